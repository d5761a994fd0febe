"""What a measurement says: one figure with its target, the machine's limit and the peers of the same run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

NOT_INSTALLED = "not installed"
Better = Literal["less", "more"]
Measured = TypeVar("Measured")


@dataclass(frozen=True, slots=True)
class Peer:
    """The same work done by something else, or by the bare machine, in the same run; without a value `why` says why not."""

    name: str
    value: float | None
    why: str = NOT_INSTALLED


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure.

    Attributes:
        row: row that it belongs to.
        name: what was measured.
        unit: of `measured`, `target` and the peers.
        measured: the best of several repetitions, which other load on the machine disturbs least.
        better: whether `less` or `more` is better.
        target: what it should reach; `None` where it is only told.
        median: of the repetitions; tells how disturbed the run was.
        peers: others, and limits of the machine, in the same unit.
        note: what the figure does and does not hold.
        pace: how many times slower than the machine that targets were set on this one was meanwhile, by the same small
            call of the bare SDK; `None` where that says nothing (ratios, sizes, disks). `paces`: whether it says something.
    """

    row: str
    name: str
    unit: str
    measured: float
    better: Better = "less"
    target: float | None = None
    median: float | None = None
    peers: Sequence[Peer] = ()
    note: str = ""
    pace: float | None = None
    paces: bool = True

    @property
    def ratio(self) -> float | None:
        """How far from the target: 1 is the target, 2 is twice as good."""
        if self.target is None or not self.measured or not self.target:
            return None
        return self.target / self.measured if self.better == "less" else self.measured / self.target

    @property
    def paced(self) -> float | None:
        """The ratio that the reference machine would have, as far as the pace tells."""
        return None if self.ratio is None else self.ratio * (self.pace or 1.0)

    @property
    def ok(self) -> bool | None:
        """Whether the target is met; `None` where there is none."""
        ratio = self.ratio
        return None if ratio is None else ratio >= 1.0

    def as_json(self) -> dict[str, Any]:
        """The figure with what follows from it."""
        return {**asdict(self), "ratio": self.ratio, "paced": self.paced, "ok": self.ok}


@dataclass(frozen=True, slots=True)
class Curve:
    """How a figure grows: cost of one operation at several sizes."""

    row: str
    name: str
    unit: str
    sizes: Sequence[int]
    values: Sequence[float]

    def as_json(self) -> dict[str, Any]:
        """The curve as it is."""
        return asdict(self)


@dataclass(slots=True)
class Found:
    """What a row came to."""

    figures: list[Figure] = field(default_factory=list[Figure])
    curves: list[Curve] = field(default_factory=list[Curve])

    def as_json(self) -> dict[str, Any]:
        """For `found_of`."""
        return {"figures": [one.as_json() for one in self.figures], "curves": [one.as_json() for one in self.curves]}


def beside(name: str, taken: Mapping[str, Measured], key: str, of: Callable[[Measured], float]) -> Peer:
    """A peer of which a figure was measured under a key; where it was left out it is not installed."""
    return Peer(name, of(taken[key]) if key in taken else None)


def found_of(results: Mapping[str, Any]) -> Found:
    """What was found, from its JSON."""
    return Found([figure_of(one) for one in results["figures"]], [Curve(**one) for one in results["curves"]])


def figure_of(one: Mapping[str, Any]) -> Figure:
    """A figure from its JSON."""
    known: dict[str, Any] = {name: value for name, value in one.items() if name in Figure.__dataclass_fields__}
    known["peers"] = tuple(Peer(**peer) for peer in one["peers"])
    return Figure(**known)
