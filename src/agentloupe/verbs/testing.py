"""Recordings as tests: replay one, record one that is missing, record one anew and say what changed. Knows no test runner.

    told = check(Case(Path("recordings/refund.loupe"), agent=support_agent, mode="none"))
    assert told.passed, told.text

A recording in a repository is a `.loupe` file. It is read as it is and never taken over into the project's store; what is
recorded here is held in memory until it is known to replay, and then written into the file, whole or not at all.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from agentloupe import __version__
from agentloupe.engine.report import Level, ReplayReport
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Opening, Session, Store
from agentloupe.ports.recording import Recording
from agentloupe.verbs import yielding
from agentloupe.verbs.instrument import as_agent
from agentloupe.verbs.patience import PATIENCE_SECONDS
from agentloupe.verbs.replaying import (
    Agent,
    ExpectedDifferences,
    Wishes,
    agent_named,
    arguments_of,
    find_recording,
    open_tape,
    replayed_agent,
    run_replayed,
    to_the_end,
)
from agentloupe.words.errors import LoupeError, UsageError

__all__ = [
    "MODES",
    "Case",
    "Mode",
    "OneRun",
    "Told",
    "check",
    "judged",
    "missing",
    "mode_for",
    "near",
    "read_or_none",
    "taking",
    "written",
]

Mode = Literal["none", "once", "new_episodes", "all"]
"""VCR.py's names. An episode is one run: `none` only replays; `once` records where there is no file; `new_episodes` also
records anew what no longer agrees; `all` records whatever there is."""

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
_NO = frozenset({"", "0", "false", "no", "off"})


def mode_for(asked: str | None, wished: str | None, environ: Mapping[str, str]) -> Mode:
    """The mode that holds: what the command line asks; `none` where `CI` is set; what a project wishes; else `once`.

    Raises:
        UsageError: there is no such mode.
    """
    in_ci = environ.get("CI", "").strip().lower() not in _NO
    chosen = asked or ("none" if in_ci else wished or "once")
    if chosen == "rewrite":  # pytest-recording's word for it
        chosen = "all"
    if chosen not in MODES:
        raise UsageError(f"unknown record mode {chosen!r}", hint=f"one of {', '.join(MODES)}")
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A recording to be checked.

    Attributes:
        path: the `.loupe` file; or a run of the project's store, by id, which is only replayed.
        agent: the function, or `module:function`; recordings of the generic loop need none.
        arguments: what the agent is called with when it is recorded; `None`: as in the recording that is there.
        level, expect, strict_order: see `replaying.replay`.
        isolated: in a child process, without a network where the system allows it; the agent is `module:function` then.
        patience: of such a child, see `isolated.replay_code`.
        mode: see `Mode`.
        environment: variables for the child.
        again: how a person has this very recording made anew, for the message.
    """

    path: Path | str
    agent: Agent | str | None = None
    arguments: tuple[Sequence[Any], Mapping[str, Any]] | None = None
    level: Level = "content"
    expect: ExpectedDifferences | None = None
    strict_order: bool = False
    isolated: bool = False
    patience: float = PATIENCE_SECONDS
    mode: Mode = "none"
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    again: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What came of a check.

    Attributes:
        passed: whether the test may pass.
        text: why not, or what was done, for people.
        report: of the replay, if there was one.
        digest: hash of the recording's last event, which stands for the whole of it.
        news: what was recorded, and how it differs from what was there; empty where nothing was written.
    """

    passed: bool
    text: str
    report: ReplayReport | None = None
    digest: str | None = None
    news: str = ""

    def properties(self) -> dict[str, str]:
        """Facts for a machine-readable test report, by name."""
        report = self.report
        if report is None:
            return {"loupe_reader": __version__}
        known = {
            "loupe_run": report.run_id,
            "loupe_verdict": report.verdict,
            "loupe_reason": report.reason,
            "loupe_events": f"{report.consumed} of {report.events}",
            "loupe_levels": "+".join(level for level, agreed in report.levels.items() if agreed) or "none",
            "loupe_order": "not proven" if report.unproven else "proven",
            "loupe_isolation": report.isolation,
            "loupe_recording": self.digest,
            "loupe_rules": report.rules,
            "loupe_reader": report.version,
        }
        return {name: value for name, value in known.items() if value}


# --- a recording and its agent ----------------------------------------------------------------------------------------


def check(case: Case) -> Told:
    """Replays, records, or both, as the mode says. What the agent raises while it is recorded comes out.

    Raises:
        LoupeError: the case itself is wrong, or the recording cannot be replayed at all.
    """
    path = case.path
    if not isinstance(path, Path) or path.exists():
        if case.mode == "all" and isinstance(path, Path):
            return _record(case, path, read_or_none(path))
        told = _replay(case)
        diverged = told.report is not None and told.report.verdict == "diverged"
        if diverged and case.mode == "new_episodes" and isinstance(path, Path):
            return _record(case, path, read_or_none(path))
        return told
    if case.mode == "none":
        return Told(passed=False, text=missing(path, case.again))
    return _record(case, path, None)


def missing(path: Path, again: str) -> str:
    """What is said of a recording that is not there, and must be."""
    way = f"\nto record it, which runs the agent for real: {again}=once" if again else ""
    return f"there is no recording {near(path)}, and record mode `none` never makes a real call{way}"


def _replay(case: Case) -> Told:
    recording = find_recording(case.path, None)
    report = _isolated(case, recording) if case.isolated else _in_process(case, recording)
    return judged(report, recording, case.path, case.again)


def judged(report: ReplayReport, recording: Recording, path: Path | str, again: str) -> Told:
    """The verdict of a replay, with the way to a new recording where the difference may be meant."""
    found = f": {report.divergence.headline()}" if report.divergence else ""
    # A test has no options: there it is an argument.
    said = report.text().replace("name it with --expect", "name it with expect= of replay(...) or of the marker")
    lines = [f"recording {near(path)}{found}", said]
    if report.verdict == "diverged" and again:
        lines.append(f"if the change is meant, record it anew, which runs the agent for real: {again}=all")
    text = "\n".join(lines)
    return Told(passed=report.passed, text=text, report=report, digest=_digest(recording))


def near(path: Path | str) -> str:
    """A file as a person in the current folder would write it."""
    here = Path.cwd()
    inside = isinstance(path, Path) and path.is_relative_to(here)
    return path.relative_to(here).as_posix() if inside and isinstance(path, Path) else str(path)


def _digest(recording: Recording) -> str | None:
    return recording.events[-1].hash if recording.events else None


def _in_process(case: Case, recording: Recording) -> ReplayReport:
    from agentloupe.verbs.clients import wrapping_clients

    wishes = Wishes(level=case.level, expect=case.expect, strict_order=case.strict_order)
    opened = open_tape(recording, wishes)
    if isinstance(opened, ReplayReport):
        return opened
    with wrapping_clients():
        return run_replayed(opened, replayed_agent(opened, case.agent), wishes)


def _isolated(case: Case, recording: Recording) -> ReplayReport:
    from agentloupe.verbs.isolated import replay_code

    if case.agent is not None and not isinstance(case.agent, str):
        raise UsageError("an isolated replay imports the agent in a process of its own", hint="name it module:function")
    return replay_code(
        recording,
        case.agent,
        level=case.level,
        expect=case.expect,
        strict_order=case.strict_order,
        environment=case.environment,
        patience=case.patience,
    )


# --- recording --------------------------------------------------------------------------------------------------------


class OneRun:
    """Opens the one run that a test records, strictly: a value that cannot be recorded raises."""

    def __init__(self) -> None:
        from agentloupe.store.memory import MemoryStore
        from agentloupe.verbs.sessions import RecordOpener

        self.store: Store = MemoryStore()
        self.opened: list[str] = []
        self._recorder = RecordOpener(self.store, strict=True, sample=1.0)  # it is made to be replayed

    def open(self, opening: Opening) -> Session:
        """A session of the test."""
        session = self._recorder.open(opening)
        self.opened.append(session.run_id)
        return session

    def recording(self) -> Recording:
        """What was recorded. Raises `UsageError` where that is not exactly one run."""
        if len(self.opened) != 1:
            said = f"{len(self.opened)} runs" if self.opened else "no run"
            raise UsageError(
                f"one recording holds one run, and the test started {said}",
                hint="start one decorated agent in it; for several, use the fixture `replay` once for each",
            )
        return self.store.recording(self.opened[0])


def _record(case: Case, path: Path, before: Recording | None) -> Told:
    """Runs the agent for real, replays what was recorded, and writes it."""
    if case.agent is None:
        raise UsageError(
            f"{near(path)} cannot be recorded: no agent is given", hint="give the function, or module:function"
        )
    agent = agent_named(case.agent) if isinstance(case.agent, str) else case.agent
    args, kwargs = case.arguments if case.arguments is not None else _recorded_arguments(path, before)
    taken = OneRun()
    with taking(taken):
        try:
            result = yielding.all_of(as_agent(agent)(*args, **kwargs))
            if inspect.isawaitable(result):
                to_the_end(result)
        except Exception:
            if not _failed(before):
                raise
    made = taken.recording()
    told = _in_process_of(replace(case, agent=agent), made)
    return told if not told.passed else written(path, taken, before, told.report)


def taking(taken: OneRun) -> ExitStack:
    """Everything that starts inside is recorded by `taken`, in every thread."""
    from agentloupe.verbs.clients import wrapping_clients

    stack = ExitStack()
    stack.enter_context(wrapping_clients())
    stack.enter_context(ambient.outside())
    stack.enter_context(ambient.opening_with(taken, process_wide=True))
    stack.enter_context(ambient.opening_with(taken))
    return stack


def _in_process_of(case: Case, made: Recording) -> Told:
    """A replay of what was just recorded: a recording that does not replay is of no use to anybody."""
    try:
        report = _in_process(replace(case, level="content", expect=None), made)
    except LoupeError as wrong:
        return Told(
            passed=False, text=f"recorded, and not written to {near(case.path)}, since it cannot be replayed: {wrong}"
        )
    if report.passed:
        return Told(passed=True, text="", report=report)
    text = f"recorded, and not written to {near(case.path)}, since it does not replay:\n{report.text()}"
    return Told(passed=False, text=text, report=report, digest=_digest(made))


def _recorded_arguments(path: Path, before: Recording | None) -> tuple[Sequence[Any], Mapping[str, Any]]:
    opened = open_tape(before) if before is not None else None
    if opened is None or isinstance(opened, ReplayReport):
        raise UsageError(
            f"{near(path)} cannot be recorded: what the agent is called with is not known",
            hint="replay(path, agent, args=[...], kwargs={...})",
        )
    return arguments_of(opened)


def _failed(before: Recording | None) -> bool:
    """Whether the recording that is replaced ended in an error, so that its successor may too."""
    last = before.events[-1] if before is not None and before.events else None
    return last is not None and last.type == "run.finished" and last.attrs.get("status") == "error"


def read_or_none(path: Path) -> Recording | None:
    """The recording in a file that may be missing or damaged."""
    try:
        return find_recording(path, None)
    except LoupeError:
        return None


def written(path: Path, taken: OneRun, before: Recording | None, report: ReplayReport | None) -> Told:
    """Writes a recording into its file; what is said names every difference to the one that was there."""
    from agentloupe.verbs.changes import changes
    from agentloupe.verbs.exchange import export_run

    made = taken.recording()
    path.parent.mkdir(parents=True, exist_ok=True)
    export_run(taken.store, made.run_id, path)
    news = f"recorded {near(path)} ({made.run_id})" if before is None else changes(near(path), before, made)
    return Told(passed=True, text=news, report=report, digest=_digest(made), news=news)
