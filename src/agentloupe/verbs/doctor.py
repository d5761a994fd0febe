"""`doctor`: runs an agent twice, the second time from the tape, and lists what escapes the boundary, with the way out.

The first run is real, once, and is recorded; while it runs, its code is watched (`watching`). The second is a replay: no
tool runs, no model is asked. A third, also from the tape, has another seed for hashes, so that the order of a set
that reaches a prompt shows.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from agentloupe.engine.report import ReplayReport
from agentloupe.ports.protocols import Store
from agentloupe.verbs.api import open_store
from agentloupe.verbs.isolated import replay_code, replay_command
from agentloupe.verbs.running import Ran, run_recorded
from agentloupe.verbs.watching import MENDS
from agentloupe.words.errors import ReplayRefused
from agentloupe.words.jsontext import Json, loads

__all__ = ["BLIND", "Diagnosis", "Finding", "examine"]

BLIND = (
    "what C extensions and native event loops read for themselves",
    "addresses in a default repr, and the order in which objects are freed",
    "code that ran in processes that the program forked off",
    "branches that this run did not take",
)
"""What no run of the doctor can see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One source of nondeterminism.

    Attributes:
        kind: what is read; a key of `MENDS`.
        what: what was called or found.
        file, line: the program's own line; `None` where none is known.
        times: how often.
    """

    kind: str
    what: str
    file: str | None = None
    line: int | None = None
    times: int = 1

    @property
    def mend(self) -> str:
        """What to write instead."""
        return MENDS[self.kind]

    def as_json(self) -> dict[str, Json]:
        """For machines."""
        place: dict[str, Json] = {"file": self.file, "line": self.line}
        return {"kind": self.kind, "what": self.what, **place, "times": self.times, "mend": self.mend}


@dataclass(slots=True)
class Diagnosis:
    """What the doctor found.

    Attributes:
        ran: the first, real run.
        run_id: what it recorded; `None` where it recorded nothing.
        findings: in the program's own code, by place.
        libraries: library -> kind -> how often.
        replay: report of the second run; `None` where there was none.
        refused: why the recording could not be replayed.
    """

    ran: Ran
    run_id: str | None = None
    findings: list[Finding] = field(default_factory=list[Finding])
    libraries: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    replay: ReplayReport | None = None
    refused: str | None = None

    @property
    def exit_code(self) -> int:
        """0 nothing escapes, 1 something does or the replay parts, 3 there is nothing to go by."""
        if self.run_id is None:
            return 3
        return 1 if self.findings or self.refused or self.replay is None or not self.replay.passed else 0

    def as_json(self) -> dict[str, Json]:
        """For machines."""
        return {
            "run": self.run_id,
            "exit_code_of_the_program": self.ran.code,
            "findings": [finding.as_json() for finding in self.findings],
            "libraries": {name: dict[str, Json](kinds) for name, kinds in self.libraries.items()},
            "replay": None if self.replay is None else self.replay.as_json(),
            "refused": self.refused,
            "not_seen": list[Json](BLIND),
        }


def examine(
    script: Sequence[str],
    *,
    code: str | None = None,
    db: str | None = None,
    name: str | None = None,
    output: IO[bytes] | None = None,
) -> Diagnosis:
    """Runs a program, as typed behind `--`, once for real and again from the tape.

    Args:
        script: the program; with `code` the words that the function is called with.
        code: `module:function`, in the place of a program.
        db: where the recording goes; default: the project's store.
        name: of the recorded run.
        output: takes what the program prints in its first run; default: it goes where ours goes.

    Raises:
        UsageError: there is no such program. StoreError: the store cannot be opened.
    """
    command = [sys.executable, "-m", "agentloupe.verbs.calling", code, *script] if code is not None else list(script)
    seed = os.environ.get("PYTHONHASHSEED")
    with tempfile.TemporaryDirectory(prefix="agentloupe-") as folder:
        fixed = {} if seed not in (None, "", "random") else {"PYTHONHASHSEED": "1"}
        ran = run_recorded(
            command, db=db, name=name, tags=["doctor"], watch=Path(folder), more=fixed, output=output, sample=1.0
        )
        found = Diagnosis(ran, ran.runs[-1] if ran.runs and ran.runs[-1] not in ran.lost else None)
        _take_watched(found, Path(folder))
    if found.run_id is not None:
        with_store = open_store(db, create=False)
        _of_the_recording(found, with_store)
        _replays(found, with_store, command, code, "1" if fixed else str(seed))
    found.findings.sort(key=lambda one: (one.file or "", one.line or 0, one.kind))
    return found


def _take_watched(found: Diagnosis, folder: Path) -> None:
    for file in sorted(folder.glob("*.json")):
        seen: Any = loads(file.read_bytes())
        for one in seen["own"]:
            place: dict[str, Any] = {**one, "file": _near(one["file"])}
            found.findings.append(Finding(**place))
        for one in seen["libraries"]:
            kinds = found.libraries.setdefault(one["library"], {})
            kinds[one["kind"]] = kinds.get(one["kind"], 0) + one["times"]


def _near(file: str) -> str:
    """A file as a person would write it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _of_the_recording(found: Diagnosis, store: Store) -> None:
    """What the recording itself says that it lacks."""
    assert found.run_id is not None, "checked before"
    recording = store.recording(found.run_id)
    last = recording.events[-1]
    undecorated = last.attrs.get("undecorated")
    for tool in undecorated if isinstance(undecorated, list) else ():
        found.findings.append(Finding(kind="tool", what=f"{tool} runs past the boundary"))
    marks = [event for event in recording.events if event.type == "schedule.marked" and "mark" in event.attrs]
    if marks:
        found.findings.append(Finding(kind="order", what="the order of some calls is not proven", times=len(marks)))


def _replays(found: Diagnosis, store: Store, command: list[str], code: str | None, seed: str) -> None:
    assert found.run_id is not None, "checked before"

    def again(hash_seed: str) -> ReplayReport:
        environment = {"PYTHONHASHSEED": hash_seed}
        if code is not None:
            return replay_code(str(found.run_id), code, store=store, environment=environment)
        return replay_command(str(found.run_id), command, store=store, environment=environment)

    try:
        found.replay = again(seed)
        if not found.replay.passed:
            found.findings.append(_difference(found.replay, "difference"))
            return
        other = again("2" if seed != "2" else "3")
        if not other.passed:
            found.findings.append(_difference(other, "set order"))
    except ReplayRefused as refused:
        found.refused = str(refused)


def _difference(report: ReplayReport, kind: str) -> Finding:
    parted = report.divergence
    line = parted.caller if parted is not None else None
    what = parted.kind if parted is not None else report.reason or report.verdict
    shown = f"with another hash seed: {what}" if kind == "set order" else f"the replay parts: {what}"
    if line is None:
        return Finding(kind=kind, what=shown)
    return Finding(kind=kind, what=shown, file=_near(line.file), line=line.line)
