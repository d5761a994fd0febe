"""What runs depended on, as they recorded it, and how that differs between two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agentloupe.words.canonical import Json, dumps
from agentloupe.words.errors import Damaged
from agentloupe.words.event import Event

__all__ = ["Change", "Snapshot", "SnapshotComparison", "compare_snapshots", "read_snapshot"]

_SHOWN: Final = 5
_LONG: Final = 60
_TOLD_APART: Final = frozenset({"distributions"})
"""What other facts say in more detail."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a run recorded of what it depends on.

    Attributes:
        digest: of the snapshot; `None` where there is none.
        facts: by name; empty where there is none, or it was deleted.
        packages: installed distributions, name -> version.
    """

    digest: str | None = None
    facts: Mapping[str, Json] = field(default_factory=dict[str, Json])
    packages: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def known(self) -> bool:
        """Whether anything is known."""
        return bool(self.facts)

    @property
    def unknown(self) -> str:
        """Why nothing is known: there never was one, or it is gone or damaged, which is another thing to say."""
        if self.digest is None:
            return "no snapshot"
        return f"snapshot {self.digest[:12]} cannot be read (`agentloupe verify` tells why)"

    def line(self) -> str:
        """The snapshot in one line."""
        if not self.known:
            return f"{self.unknown}: what it ran on is not known"
        python, git = self.facts.get("python"), self.facts.get("git")
        parts = [f"Python {python}" if python else ""]
        parts.append(f"{len(self.packages)} packages" if self.packages else "")
        if isinstance(git, dict):
            dirty = " with uncommitted changes" if git.get("dirty") else ""
            parts.append(f"commit {str(git.get('commit'))[:12]}{dirty}")
        parts.append(f"image {self.facts['image']}" if "image" in self.facts else "")
        given = self.facts.get("given")
        parts.append(f"given {', '.join(given)}" if isinstance(given, dict) and given else "")
        return f"snapshot {str(self.digest)[:12]}: {', '.join(filter(None, parts))}"


def read_snapshot(started: Event | None, body: Callable[[str | None], Json]) -> Snapshot:
    """The snapshot of a run, by its first event. `body` reads a body; what was deleted is not known."""

    def told(label: str) -> Json:
        try:
            return body(started.bodies.get(label)) if started is not None else None
        except Damaged:
            return None

    facts, packages = told("snapshot"), told("packages")
    pairs = (str(one).partition("==") for one in packages) if isinstance(packages, list) else ()
    return Snapshot(
        started.bodies.get("snapshot") if started is not None else None,
        facts if isinstance(facts, dict) else {},
        {name: version for name, _, version in pairs},
    )


# --- two of them ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs: its path (`tools.refund.version`, `packages.openai`), and both values; `None` is absent."""

    what: str
    left: Json
    right: Json

    def as_json(self) -> dict[str, Json]:
        """All fields."""
        return {"what": self.what, "left": self.left, "right": self.right}


@dataclass(frozen=True, slots=True)
class SnapshotComparison:
    """How what two runs depended on differs.

    Attributes:
        left, right: both snapshots.
        changes: what differs, in a fixed order; empty also where a side is not known.
    """

    left: Snapshot
    right: Snapshot
    changes: tuple[Change, ...]

    def lines(self) -> list[str]:
        """For people: `3 packages changed: ...`, `prompt_template changed: 3 -> 4`."""
        sides = (("left", self.left), ("right", self.right))
        unreadable = [f"{name}: {side.unknown}" for name, side in sides if not side.known and side.digest is not None]
        if unreadable:
            return [f"{one}: what it ran on cannot be compared" for one in unreadable]
        unknown = [name for name, side in sides if not side.known]
        if unknown:
            both = "neither run has" if len(unknown) == 2 else f"the {unknown[0]} run has no"
            return [f"{both} {'a ' if len(unknown) == 2 else ''}snapshot: what it ran on cannot be compared"]
        packages = [change for change in self.changes if change.what.startswith("packages.")]
        return [*_of_packages(packages), *(_said(c) for c in self.changes if c not in packages)]

    def as_json(self) -> dict[str, Json]:
        """The comparison as JSON: digests of both snapshots, `changes`, and `lines`."""
        return {
            "left": self.left.digest,
            "right": self.right.digest,
            "changes": [change.as_json() for change in self.changes],
            "lines": list[Json](self.lines()),
        }


def compare_snapshots(left: Snapshot, right: Snapshot) -> SnapshotComparison:
    """Compares what two runs depended on. Swapping the sides swaps left and right and nothing else."""
    if not (left.known and right.known):
        return SnapshotComparison(left, right, ())
    mine, theirs = _flat(left), _flat(right)
    paths = sorted(mine.keys() | theirs.keys())
    if "script" not in left.facts or "script" not in right.facts:  # one was loaded by a command of ours
        paths = [path for path in paths if not path.startswith("script.")]
    changes = (Change(path, mine.get(path), theirs.get(path)) for path in paths if mine.get(path) != theirs.get(path))
    return SnapshotComparison(left, right, tuple(changes))


def _flat(snapshot: Snapshot) -> dict[str, Json]:
    """Every fact by its path; lists are one fact."""
    facts = {name: value for name, value in snapshot.facts.items() if name not in _TOLD_APART}
    return dict(_leaves("", {**facts, "packages": dict[str, Json](snapshot.packages)}))


def _leaves(path: str, value: Json) -> Iterator[tuple[str, Json]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for name, inside in value.items():
        yield from _leaves(f"{path}.{name}" if path else name, inside)


def _of_packages(changes: Sequence[Change]) -> list[str]:
    if not changes:
        return []
    count = "1 package" if len(changes) == 1 else f"{len(changes)} packages"
    shown = [f"{change.what.partition('.')[2]} {_sides(change)}" for change in changes[:_SHOWN]]
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return [f"{count} changed: {', '.join(shown)}{more}"]


_CALLED: Final = {
    "given": "{0}",
    "tools": "tool {0}",
    "lock_files": "lock file {0}",
    "env": "variable {0}",
    "git": "git {0}",
    "script": "script {0}",
}


def _said(change: Change) -> str:
    first, _, rest = change.what.partition(".")
    name = _CALLED[first].format(rest.replace(".", " ")) if first in _CALLED and rest else change.what.replace("_", " ")
    if change.what.endswith("digest") or first == "lock_files":
        return f"{name.removesuffix('_digest')} {_how(change)}"
    return f"{name} {_how(change)}: {_sides(change)}"


def _how(change: Change) -> str:
    return "added" if change.left is None else "removed" if change.right is None else "changed"


def _sides(change: Change) -> str:
    return f"{_short(change.left)} -> {_short(change.right)}"


def _short(value: Json) -> str:
    if value is None:
        return "absent"
    text = value if isinstance(value, str) else dumps(value).decode("utf-8", "replace")
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."
