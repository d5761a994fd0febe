"""What a replay found: a machine record, and the same as text. Holds no time and no new id: ten replays, ten equal reports.

Words of `ReplayReport.verdict`, with the exit code of each:

| verdict | exit | |
| --- | --- | --- |
| `pass` | 0 | everything recorded was asked for again, in order, and nothing else (1 with `strict_order`, if the order is not proven) |
| `reached` | 0 | `--until-failure`: the recorded failure was reached, everything before it agreed |
| `diverged` | 1 | see `Divergence.kind` |
| `damaged` | 2 | the recording itself is not whole (`truncated`, `corrupt`) |
| `could_not_run` | 3 | nothing can be said (`version`, `limited`, `no_code`, `not_rebuildable` ...) |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from agentloupe.engine.difference import Change, inline_diff, shown
from agentloupe.engine.edits import ABSENT, show_path
from agentloupe.ports.ambient import Caller
from agentloupe.words.canonical import Json

__all__ = [
    "EXIT_CODES",
    "LEVELS",
    "NOTHING_RUN",
    "Candidate",
    "Divergence",
    "DivergenceKind",
    "Level",
    "ReplayReport",
    "Side",
    "Verdict",
    "report_from_json",
]

Verdict = Literal["pass", "reached", "diverged", "damaged", "could_not_run"]
Level = Literal["flow", "state", "content"]
"""How much must agree: `flow` the calls with their arguments; `state` also state changes, checks and the final status;
`content` also the final result, and the results of nested agents."""

LEVELS: Final[tuple[Level, ...]] = ("flow", "state", "content")
NOTHING_RUN: Final = "nothing was run"
"""What a report says as its isolation where the recording was not whole."""
EXIT_CODES: Final[Mapping[Verdict, int]] = {"pass": 0, "reached": 0, "diverged": 1, "damaged": 2, "could_not_run": 3}

DivergenceKind = Literal[
    "order",
    "name_changed",
    "input_changed",
    "extra",
    "missing",
    "unconsumed",
    "result_changed",
    "leak",
    "not_as_expected",
    "truncated",
    "corrupt",
    "version",
    "not_rebuildable",
]
"""What kind of difference. `not_as_expected`: a difference that had to appear did not."""

_WORDS: Mapping[str, str] = {
    "order": "a call was made before its turn",
    "name_changed": "another call was made than the recorded one",
    "input_changed": "the call was made with other arguments",
    "extra": "a call was made that the recording does not have: the log is exhausted",
    "missing": "the recorded call is awaited, and the program does not make it",
    "unconsumed": "the program ended, and recorded events are left",
    "result_changed": "what came out is not what was recorded",
    "leak": "a real call went past the boundary; it was refused",
    "not_as_expected": "a difference that was expected did not appear",
    "truncated": "the recording ends before it should",
    "corrupt": "the recording is damaged",
    "version": "the recording was written by a newer version",
    "not_rebuildable": "a recorded value cannot be rebuilt in this process",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a difference: what was recorded, or what was done.

    Attributes:
        type: type of the recorded event, or `None`.
        kind, name: of the call.
        key: matching key.
        digest: integrity digest of the input (of the result, where results are compared).
        value: the input or result itself, for those who may see bodies.
    """

    kind: str
    name: str
    type: str | None = None
    key: str | None = None
    digest: str | None = None
    value: Json = None

    def as_json(self) -> dict[str, Json]:
        """Structure and digests, without the value."""
        further = {"type": self.type, "key": self.key, "digest": self.digest}
        return {"kind": self.kind, "name": self.name, **{n: v for n, v in further.items() if v is not None}}

    def __str__(self) -> str:
        return f"{self.kind} {shown(self.name)}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A recorded call that was near, and why it was not the answer."""

    sequence: int
    kind: str
    name: str
    rejected: str

    def as_json(self) -> dict[str, Json]:
        """All fields."""
        return {"sequence": self.sequence, "kind": self.kind, "name": self.name, "rejected": self.rejected}


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first place where replay and tape disagree.

    Attributes:
        kind: see `DivergenceKind`.
        sequence: the event of the tape (behind its end: one more than its last).
        lane, n: the place of the call that the program made, or of the recorded one that it did not make.
        step: `idx` of the recorded step, if there is one.
        expected, actual: the two sides; `None` where there is nothing.
        changes, more_changes: the first differing places, and whether there are more.
        caller: the line of the user's code.
        candidates: the nearest recorded calls.
        agreed: sequence, type and name of the last event that agreed.
        hints: likely causes. suggestion: what to do.
        message: further words (what a damaged recording's reader said).
    """

    kind: DivergenceKind
    sequence: int | None = None
    lane: str | None = None
    n: int | None = None
    step: int | None = None
    expected: Side | None = None
    actual: Side | None = None
    changes: tuple[Change, ...] = ()
    more_changes: bool = False
    caller: Caller | None = None
    candidates: tuple[Candidate, ...] = ()
    agreed: tuple[int, str, str] | None = None
    hints: tuple[str, ...] = ()
    suggestion: str | None = None
    message: str | None = None
    reason: str | None = None

    def headline(self) -> str:
        """One line without payload: kind, place, both names, the caller."""
        place = "" if self.sequence is None else f" at sequence {self.sequence}"
        sides = ""
        if self.expected is not None or self.actual is not None:
            sides = f": expected {self.expected or 'nothing more'}, got {self.actual or 'nothing'}"
        line = f" ({self.caller})" if self.caller else ""
        return f"{self.kind}{place}{sides}{line}"

    def as_json(self, *, bodies: bool = True) -> dict[str, Json]:
        """The machine record; without `bodies` it shows paths and digests, no value."""
        record: dict[str, Json] = {
            "kind": self.kind,
            "sequence": self.sequence,
            "lane": self.lane,
            "n": self.n,
            "step": self.step,
            "expected": self.expected.as_json() if self.expected else None,
            "actual": self.actual.as_json() if self.actual else None,
            "changes": [_change(change, bodies) for change in self.changes],
            "more_changes": self.more_changes,
            "caller": {"file": self.caller.file, "line": self.caller.line} if self.caller else None,
            "candidates": [candidate.as_json() for candidate in self.candidates],
            "last_agreeing": _agreed(self.agreed),
            "hints": list(self.hints),
            "suggestion": self.suggestion,
            "message": self.message,
        }
        if self.reason is not None:
            record["reason"] = self.reason
        return record

    def lines(self, *, bodies: bool = True) -> list[str]:
        """The same for people."""
        at = "" if self.sequence is None else f" at sequence {self.sequence}"
        step = "" if self.step is None else f", step {self.step}"
        lane = "" if self.lane is None else f", call {self.lane}.{self.n}"
        text = [f"{self.kind}{at}{step}{lane}: {_WORDS[self.kind]}"]
        text += [f"  {self.message}"] if self.message else []
        text += _side_lines(self.expected, self.actual)
        text += [f"  {line}" for change in self.changes for line in _change_lines(change, bodies)]
        text += ["  and more differences"] if self.more_changes else []
        text += [f"  called from {self.caller}"] if self.caller else []
        if self.agreed:
            text.append(
                f"  last agreeing event: sequence {self.agreed[0]} {self.agreed[1]} {shown(self.agreed[2])}".rstrip()
            )
        text += [f"  near: sequence {c.sequence} {c.kind} {shown(c.name)}: {c.rejected}" for c in self.candidates]
        text += [f"  hint: {hint}" for hint in self.hints]
        text += [f"  try: {self.suggestion}"] if self.suggestion else []
        return text


def _change(change: Change, bodies: bool) -> dict[str, Json]:
    record = change.as_json()
    return record if bodies else {name: record[name] for name in ("path", "at", "change")}


def _agreed(agreed: tuple[int, str, str] | None) -> Json:
    return None if agreed is None else {"sequence": agreed[0], "type": agreed[1], "name": agreed[2]}


def _side_lines(expected: Side | None, actual: Side | None) -> list[str]:
    if expected is None and actual is None:
        return []
    lines: list[str] = []
    for label, side, absent in (("expected", expected, "nothing more"), ("actual  ", actual, "no call")):
        digest = f"  digest {side.digest[:12]}" if side and side.digest else ""
        lines.append(f"  {label}: {side or absent}{digest}")
    return lines


def _change_lines(change: Change, bodies: bool) -> list[str]:
    path = shown(show_path(change.path)) or "the whole value"
    if not bodies:
        return [f"{path} ({change.what})"]
    if isinstance(change.expected, str) and isinstance(change.actual, str):
        return [f"{path}: {inline_diff(change.expected, change.actual)}"]
    record = change.as_json()
    shown_sides = [f"{name} {_as_text(record[name])}" for name in ("expected", "actual") if name in record]
    return [f"{path} ({change.what}): {', '.join(shown_sides)}"]


def _as_text(value: Json) -> str:
    return shown(json.dumps(value, ensure_ascii=False))


_NO_NOTES: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """The outcome of one replay.

    Attributes:
        run_id: the recording.
        verdict: see the table above; `exit_code` follows from it.
        reason: finer slug for machines: the kind of divergence, or why it could not run.
        level: how much had to agree. levels: which levels did (a level is `None` when it was not come to).
        events, consumed: of the recording; calls: how many calls were answered from the tape.
        divergence: the first difference.
        differences: expected differences that appeared, in order.
        not_covered: what this replay could not watch.
        notes: what a person should know (changed code, another Python).
        version: of the reader. rules: digest of the redaction rules in force.
        message: for `could_not_run`: why, and the way out.
        unproven: why the order of what happened at once is not proven (see `proof`); empty where it is.
        strict_order: whether a pass whose order is not proven counts as failed.
        recorded: what the recording says of itself, see `covering.recorded_of`.
        patched: marks of deliberate changes that the code asked for (`loupe.patched`): whether the recording has them.
    """

    run_id: str
    verdict: Verdict
    reason: str | None = None
    level: Level = "content"
    levels: Mapping[Level, bool | None] = field(default_factory=dict[Level, "bool | None"])
    events: int = 0
    consumed: int = 0
    calls: int = 0
    divergence: Divergence | None = None
    differences: tuple[Divergence, ...] = ()
    isolation: str = "in process"
    not_covered: tuple[str, ...] = ()
    notes: tuple[str, ...] = _NO_NOTES
    version: str = ""
    rules: str | None = None
    message: str | None = None
    unproven: tuple[str, ...] = ()
    strict_order: bool = False
    recorded: Mapping[str, Json] = field(default_factory=dict[str, Json])
    patched: Mapping[str, bool] = field(default_factory=dict[str, bool])

    @property
    def exit_code(self) -> int:
        """0, 1, 2 or 3; 1 for a pass whose order is not proven, if that was asked for."""
        code = EXIT_CODES[self.verdict]
        return 1 if code == 0 and self.strict_order and self.unproven else code

    @property
    def passed(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    @property
    def coverage(self) -> str:
        """What was and was not looked at, in one line."""
        wanted = LEVELS[: LEVELS.index(self.level) + 1]
        names = "+".join(level for level in wanted if self.levels.get(level)) or "none"
        unseen = f", not observed: {', '.join(self.not_covered)}" if self.not_covered else ""
        return f"offline, {self.consumed} of {self.events} events, levels {names}{unseen}"

    def as_json(self, *, bodies: bool = True) -> dict[str, Json]:
        """The machine record."""
        return {
            "run_id": self.run_id,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "reason": self.reason,
            "level": self.level,
            "levels": {name: self.levels.get(name) for name in LEVELS},
            "events": self.events,
            "consumed": self.consumed,
            "calls": self.calls,
            "coverage": self.coverage,
            "isolation": self.isolation,
            "not_covered": list(self.not_covered),
            "order_proven": not self.unproven,
            "unproven": list(self.unproven),
            "strict_order": self.strict_order,
            "recorded": dict(self.recorded),
            "patched": dict[str, Json](self.patched),
            "divergence": self.divergence.as_json(bodies=bodies) if self.divergence else None,
            "expected_differences": [difference.as_json(bodies=bodies) for difference in self.differences],
            "notes": list(self.notes),
            "version": self.version,
            "rules": self.rules,
            "message": self.message,
        }

    def text(self, *, bodies: bool = True) -> str:
        """The report for people, several lines."""
        doubt = ", order not proven" if self.unproven else ""
        lines = [f"{self.verdict.replace('_', ' ')}{doubt}: {self.run_id}: {self.coverage}"]
        lines += [f"  order not proven: {why}" for why in self.unproven]
        if self.message:
            lines.append(f"  {self.message}")
        if self.divergence:
            lines += self.divergence.lines(bodies=bodies)
        for difference in self.differences:
            lines.append(f"as expected: {difference.headline()}")
        for change, has in self.patched.items():
            told = "made with it" if has else "made before it, and went the old way"
            lines.append(f"patched {shown(change)}: the recording was {told}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


# --- back from JSON ---------------------------------------------------------------------------------------------------


def report_from_json(record: Mapping[str, Json]) -> ReplayReport:
    """Reads a machine record back (a parent process reads what its child found); long values stay shortened.

    Raises:
        KeyError, TypeError: not a record of this version.
    """
    data = cast("dict[str, Any]", record)
    found = data["divergence"]
    return ReplayReport(
        **{
            name: data[name]
            for name in ("run_id", "verdict", "reason", "level", "levels", "events", "consumed", "calls")
        },
        **{
            name: data[name]
            for name in ("isolation", "version", "rules", "message", "strict_order", "recorded", "patched")
        },
        unproven=tuple(data["unproven"]),
        not_covered=tuple(data["not_covered"]),
        notes=tuple(data["notes"]),
        divergence=_divergence(found) if found else None,
        differences=tuple(_divergence(one) for one in data["expected_differences"]),
    )


def _divergence(data: dict[str, Any]) -> Divergence:
    caller, agreed = data["caller"], data["last_agreeing"]
    plain = ("kind", "sequence", "lane", "n", "step", "more_changes", "suggestion", "message")
    return Divergence(
        **{name: data[name] for name in plain},
        expected=Side(**data["expected"]) if data["expected"] else None,
        actual=Side(**data["actual"]) if data["actual"] else None,
        changes=tuple(
            Change(tuple(c["at"]), c.get("expected", ABSENT), c.get("actual", ABSENT)) for c in data["changes"]
        ),
        caller=Caller(caller["file"], caller["line"]) if caller else None,
        candidates=tuple(Candidate(**candidate) for candidate in data["candidates"]),
        agreed=(agreed["sequence"], agreed["type"], agreed["name"]) if agreed else None,
        hints=tuple(data["hints"]),
        reason=data.get("reason"),
    )
