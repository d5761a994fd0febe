"""`replay`: the recorded agent again, from its tape, offline; in this process or in a child without a network.

    report = replay("support-261129-k3x9qp", support_agent)
    assert report.passed, report.text()

A recording of one's own code needs that code (`agent`, or `module:function`); a recording of the generic loop (`run_loop`,
a generic fork) needs nothing. Damage and differences are verdicts in the report; what cannot be started at all is an
exception: `ReplayRefused` with its `reason`, `RunNotFound`.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

from agentloupe import __version__
from agentloupe.engine.covering import recorded_of
from agentloupe.engine.difference import shown
from agentloupe.engine.expectations import Expected, read_expected
from agentloupe.engine.guard import placeholder_keys, sealed_off
from agentloupe.engine.privacy import NO_RULES, Rules, rules_from, scrub
from agentloupe.engine.replayer import Replayer
from agentloupe.engine.report import LEVELS, NOTHING_RUN, Divergence, Level, ReplayReport
from agentloupe.engine.ruling import NOT_OBSERVED, Reached, Settings
from agentloupe.engine.tape import Tape, read_tape
from agentloupe.engine.verify import verify
from agentloupe.ports import codecs
from agentloupe.ports.ambient import caller, catching_strays, opening_with
from agentloupe.ports.protocols import Opener, Store
from agentloupe.ports.recording import Recording
from agentloupe.ports.surroundings import outside
from agentloupe.verbs import reads, yielding
from agentloupe.verbs.api import open_store, resolve
from agentloupe.verbs.importing import imported, made_quietly
from agentloupe.verbs.instrument import as_agent
from agentloupe.verbs.replaysession import ReplayOpener, Strays
from agentloupe.verbs.sessions import settings_here
from agentloupe.words.canonical import Json
from agentloupe.words.errors import Damaged, LoupeError, NotRebuildable, ReplayMismatch, ReplayRefused, VersionUnknown
from agentloupe.words.keeping import (
    VALUES_DROPPED,
    dropped_note,
    dropped_values,
    keeps_digests,
    only_digests,
    without_answers,
)
from agentloupe.words.seal import Fault

__all__ = [
    "Agent",
    "Wishes",
    "agent_for",
    "agent_named",
    "arguments_of",
    "command_for",
    "debug_here",
    "names_file",
    "open_run",
    "open_tape",
    "replay",
    "replayed_agent",
    "replayer_for",
    "rules_in",
    "run_replayed",
    "shut_off",
    "to_the_end",
    "way_back",
]

Agent = Callable[..., Any]
UntilFailure = bool | Callable[[Reached], None]
ExpectedDifferences = str | Path | Sequence[Mapping[str, Json] | Expected]

_FILE_ENDS = (".loupe", ".jsonl")
_IN_PROCESS = "audit hook in this process"
_NATIVE = "native sockets, and connections that were open before"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """How a replay is wanted.

    Attributes:
        level: how much must agree: `flow`, `state` or `content`.
        expect: expected differences, or the file that lists them.
        until_failure: stop where the recording failed; a function is called there (see `replayer.Reached`).
        isolation: how the way out is shut, for the report.
        unseen: what the chosen isolation cannot see, for the report.
        stopped: called when the replay has stopped the program. gave_up: called when it does not stop.
        strict_order: a pass whose order is not proven counts as failed.
        stuck_after: seconds until a program that does not move is stopped; default: as the settings say.
    """

    level: Level = "content"
    expect: ExpectedDifferences | None = None
    until_failure: UntilFailure = False
    isolation: str = _IN_PROCESS
    unseen: tuple[str, ...] = (_NATIVE,)
    stopped: Callable[[], None] | None = None
    gave_up: Callable[[], None] | None = None
    strict_order: bool = False
    stuck_after: float | None = None


def replay(
    run: str | Path | Recording,
    agent: Agent | str | None = None,
    *,
    store: Store | str | Path | None = None,
    level: Level = "content",
    expect: ExpectedDifferences | None = None,
    until_failure: UntilFailure = False,
    strict_order: bool = False,
) -> ReplayReport:
    """Replays a run in this process. Performs nothing and changes nothing in the recording.

    Args:
        run: id of a run (a unique beginning, `last`), an exported file, or a recording.
        agent: the agent's function, or `module:function`; not needed for recordings of the generic loop.
        store: where runs are; default: the project's.
        level: how much must agree: `flow` the calls with their arguments; `state` also state changes, checks and the
            final status; `content` also the final result.
        expect: differences that are meant (see `expectations`), or the file that lists them.
        until_failure: go to the recorded failure and stop there with the verdict `reached`; a function is called there,
            in the frames of the call that failed.
        strict_order: a pass whose order is not proven (see `ReplayReport.unproven`) counts as failed.

    Raises:
        RunNotFound: there is no such run.
        ReplayRefused: it cannot be replayed; `reason` says why, the hint how.
        UsageError: `level` or `expect` is not understood.
    """
    wishes = Wishes(level=level, expect=expect, until_failure=until_failure, strict_order=strict_order)
    opened = open_run(run, store, wishes)
    if isinstance(opened, ReplayReport):
        return opened
    try:
        chosen = replayed_agent(opened, agent)
    except Damaged as wrong:
        return unreadable(opened.recording.run_id, wrong, wishes, events=len(opened.recording.events))
    return run_replayed(opened, chosen, wishes)


# --- opening ----------------------------------------------------------------------------------------------------------


def open_run(run: str | Path | Recording, store: Store | str | Path | None, wishes: Wishes) -> Tape | ReplayReport:
    """Finds what is named, a run or a file, and opens its tape; see `open_tape`. Raises like `replay`."""
    try:
        return open_tape(find_recording(run, store), wishes)
    except (Damaged, VersionUnknown) as wrong:
        return unreadable(str(run), wrong, wishes)


def names_file(run: str) -> bool:
    """Whether a text can only name an exported file, and no run of a store."""
    return run.endswith(_FILE_ENDS) or "/" in run


def find_recording(run: str | Path | Recording, store: Store | str | Path | None) -> Recording:
    """The recording that is named: itself, an exported file, or a run of the store.

    Raises:
        RunNotFound, NotFound: there is none. Damaged, VersionUnknown: it cannot be read.
    """
    if isinstance(run, Recording):
        return run
    if isinstance(run, Path) or names_file(run):
        from agentloupe.importers.loupe_file import open_file

        return open_file(Path(run))
    where = store if store is not None and not isinstance(store, str | Path) else open_store(store, create=False)
    return where.recording(resolve(where, run))


def open_tape(recording: Recording, wishes: Wishes | None = None) -> Tape | ReplayReport:
    """Verifies a recording and reads its tape; a recording that is not whole gives the report that says so.

    Raises:
        ReplayRefused: it is whole and still cannot be replayed.
    """
    wishes = wishes or Wishes()
    if wishes.level not in LEVELS:
        from agentloupe.words.errors import UsageError

        raise UsageError(f"unknown level {wishes.level!r}", hint=f"one of {', '.join(LEVELS)}")
    try:
        fault = verify(recording, bodies=False).fault
        return _checked(read_tape(recording), wishes) if fault is None else _faulty(recording, wishes, fault)
    except (Damaged, VersionUnknown) as wrong:
        if wrong.reason == "no_calls":
            raise ReplayRefused(
                f"{recording.run_id} cannot be replayed: no store wrote it, and its events do not name their calls",
                hint="`agentloupe ledger replay FOLDER` judges the ledger that it came from",
                reason="no_calls",
            ) from wrong
        return unreadable(recording.run_id, wrong, wishes, events=len(recording.events))


def _faulty(recording: Recording, wishes: Wishes, fault: Fault) -> ReplayReport:
    """A chain that does not hold; a cut tail is told apart."""
    cut = fault.reason in ("end", "empty")
    found = Divergence(
        kind="truncated" if cut else "corrupt",
        sequence=fault.sequence + 1 if cut else fault.sequence,
        message=f"{fault.reason}: expected {fault.expected[:16]}, found {fault.actual[:16]}",
        reason="truncated" if fault.reason == "end" else fault.reason,
    )
    return _not_whole(recording, wishes, found)


def _checked(tape: Tape, wishes: Wishes) -> Tape | ReplayReport:
    """A readable tape that is also complete, and allowed to be replayed."""
    recording = tape.recording
    if any(event.type == "run.erased" for event in recording.events):
        raise _refused(tape, "limited", "its bodies were deleted", "the flow can still be read with `agentloupe show`")
    if keeps_digests(recording.events):
        raise _refused(tape, "digest_only", only_digests(recording.events), without_answers(recording.events))
    if tape.started.attrs.get("engine") == "imported":
        raise _refused(tape, "trace_only", "it was imported: another program ran it", "fork it instead")
    lacking = dropped_values(recording.events) if tape.finished is None or VALUES_DROPPED in tape.finished.attrs else 0
    if lacking:
        hint = 'record it again with when_full = "wait" ([recording] in the settings)'
        raise _refused(tape, "limited", dropped_note(lacking), hint)
    if tape.finished is None:
        if wishes.until_failure:
            return tape
        last = recording.events[-1]
        found = Divergence(
            kind="truncated",
            sequence=last.sequence + 1,
            agreed=(last.sequence, last.type, last.name or ""),
            message="there is no run.finished: the run still runs, was interrupted, or its end was cut off",
            suggestion=f"an interrupted run goes on with `agentloupe resume {recording.run_id}`, and can be replayed then",
        )
        return _not_whole(recording, wishes, found)
    _covered(tape)
    return tape


_NOTES_SHOWN: Final = 3
_TEACH: Final = (
    "teach Loupe the type (agentloupe.register_type), or keep it out of what is recorded; `agentloupe show` lists all"
)


def _way_out(notes: str) -> str:
    return _TEACH if "could not be recorded" in notes else "see the notes of `agentloupe show`"


def _some(notes: list[str]) -> str:
    """The first notes, and how many there are besides."""
    more = len(notes) - _NOTES_SHOWN
    return "; ".join(notes[:_NOTES_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _covered(tape: Tape) -> None:
    finished = tape.finished
    assert finished is not None, "checked before"
    coverage = finished.attrs.get("coverage", "full")
    listed = finished.attrs.get("coverage_notes")
    notes = _some(list(map(str, listed)) if isinstance(listed, list) else [])
    if coverage == "control_flow":
        raise _refused(tape, "control_flow", f"not all of it went through the boundary ({notes})", way_back(tape))
    if coverage == "limited_replay":
        raise _refused(tape, "limited", f"parts were not recordable ({notes})", _way_out(notes))
    if coverage in ("trace_only", "lossy"):
        raise _refused(tape, str(coverage), f"its coverage is {coverage} ({notes})", "record it again")
    if coverage != "full":
        raise _refused(
            tape, "coverage", f"its coverage {coverage!r} is not known to this reader", "upgrade agent-loupe"
        )


_CHILDREN: Final = ("child process", "other interpreter")


def way_back(tape: Tape) -> str:
    """What to do about a recording of coverage `control_flow`: names the tools to decorate, where it was tools."""
    attrs: Mapping[str, Json] = tape.finished.attrs if tape.finished is not None else {}
    named, notes = attrs.get("undecorated"), attrs.get("coverage_notes")
    if isinstance(named, list) and named:
        tools = ", ".join(map(str, named))
        own = "hand-offs and forms to answer in, which a framework takes itself, are named in the setting control_tools"
        return f"decorate these tools with @loupe.tool: {tools}; then record again ({own})"
    if isinstance(notes, list) and any(child in str(note) for child in _CHILDREN for note in notes):
        return "start processes and interpreters inside a tool (@loupe.tool), whose result a replay gives back; then record again"
    return "see the notes of `agentloupe show`, mend the program and record again"


def _refused(tape: Tape, reason: str, why: str, hint: str) -> ReplayRefused:
    return ReplayRefused(f"{tape.recording.origin} cannot be replayed: {why}", hint=hint, reason=reason)


def _not_whole(recording: Recording, wishes: Wishes, found: Divergence) -> ReplayReport:
    return ReplayReport(
        run_id=recording.run_id,
        verdict="damaged",
        reason=found.reason or found.kind,
        level=wishes.level,
        events=len(recording.events),
        divergence=found,
        isolation=NOTHING_RUN,
        version=__version__,
        recorded=recorded_of(recording.events),
    )


def unreadable(run_id: str, wrong: LoupeError, wishes: Wishes, events: int = 0) -> ReplayReport:
    """The report on a recording that cannot be read."""
    damaged = isinstance(wrong, Damaged)
    kind = "version" if not damaged else "truncated" if wrong.code == "truncated" else "corrupt"
    found = Divergence(kind=kind, message=str(wrong), reason=wrong.reason)
    return ReplayReport(
        run_id=run_id,
        verdict="damaged" if damaged else "could_not_run",
        reason=wrong.reason,
        level=wishes.level,
        events=events,
        divergence=found,
        isolation=NOTHING_RUN,
        version=__version__,
        message=str(wrong),
    )


# --- the agent --------------------------------------------------------------------------------------------------------


def agent_for(tape: Tape, agent: Agent | str | None) -> Agent:
    """The function to run: the one given, or the generic loop for recordings of it.

    A run that began inside a program (`with recording(...)`) is replayed by running the program, which opens it itself.

    Raises:
        ReplayRefused: own code was recorded and none is given (`no_code`).
    """
    if isinstance(agent, str):
        agent = agent_named(agent)
    if agent is not None:
        return agent if _opens_itself(tape) else as_agent(agent)
    if tape.started.attrs.get("engine") == "generic":
        from agentloupe.engine.loop import replay_agent

        return replay_agent(tape.recording)
    raise _refused(tape, "no_code", "its code was not given, and it is not run by itself", f"try: {command_for(tape)}")


def replayed_agent(tape: Tape, agent: Agent | str | None) -> Agent:
    """As `agent_for`; a module that makes its clients while it is imported finds a key, as the replay itself does."""
    with placeholder_keys():
        return agent_for(tape, agent)


def _opens_itself(tape: Tape) -> bool:
    """Whether the recorded run was a block or a script: only those have no arguments at all."""
    return tape.recording.body(tape.started.input_digest) is None


def command_for(tape: Tape, verb: str = "replay") -> str:
    """The command that replays (or resumes) a recording, as far as its snapshot tells."""
    import shlex

    run = f"agentloupe {verb} {shlex.quote(tape.recording.run_id)}"
    argv = tape.started.attrs.get("argv")
    if isinstance(argv, list) and argv:
        return f"{run} -- {shlex.join(map(str, argv))}"
    entry = tape.started.attrs.get("entry")
    return f"{run} --code {entry}" if isinstance(entry, str) else f"{run} -- python your_script.py"


def agent_named(name: str) -> Agent:
    """Imports `module:function`; the current folder is looked at too. `module:maker().method` calls `maker` for the object.

    Raises:
        ReplayRefused: there is no such module or function, it is a method without its object, or its object cannot be
            made (`no_code`); or the module does not stay quiet meanwhile (`runs_on_import`).
    """
    module, colon, path = name.partition(":")
    if not colon or not module or not path:
        raise ReplayRefused(f"{name!r} names no code", hint="write module:function", reason="no_code")
    try:
        found: object = imported(module)
        for part in path.split("."):
            found = _member(module, found, part)
    except (ImportError, AttributeError) as wrong:
        raise ReplayRefused(
            f"{name} cannot be loaded: {wrong}", hint="write module:function", reason="no_code"
        ) from wrong
    if not callable(found):
        raise ReplayRefused(f"{name} is no function", hint="write module:function", reason="no_code")
    if inspect.isfunction(found) and next(iter(inspect.signature(found).parameters), None) == "self":
        raise ReplayRefused(
            f"{name} is a method, and needs its object",
            hint=f'name what makes one, without arguments: "{module}:make_it().{path.rpartition(".")[2]}"',
            reason="no_code",
        )
    return found


def _member(module: str, owner: object, part: str) -> object:
    found: Any = getattr(owner, part.removesuffix("()"))
    if not part.endswith("()"):
        return found
    try:
        return made_quietly(module, found)
    except LoupeError:
        raise
    except Exception as wrong:  # of the program: whatever it raises
        raise ImportError(f"{part} raised {type(wrong).__name__}: {wrong}") from wrong


def arguments_of(tape: Tape) -> tuple[list[Any], dict[str, Any]]:
    """What the agent was called with.

    Raises:
        NotRebuildable: an argument's class is not here. Damaged: the arguments are not there.
    """
    given = codecs.decode(tape.recording.body(tape.started.input_digest))
    if given is None:
        return [], {}
    if not isinstance(given, dict):
        raise NotRebuildable("the recorded arguments have an unknown form")
    known = cast("dict[str, Any]", given)
    return list(known.get("args", ())), dict(known.get("kwargs", {}))


# --- running ----------------------------------------------------------------------------------------------------------


def replayer_for(tape: Tape, wishes: Wishes) -> Replayer:
    """The replayer of a tape, with the rules of redaction that the recording was made under.

    Raises:
        ReplayRefused: `until_failure`, and the recording holds no failure (`no_failure`).
        UsageError: the expected differences are not understood.
    """
    if wishes.until_failure and not _failed(tape):
        raise _refused(tape, "no_failure", "it does not end in a failure", "leave --until-failure out")
    rules = rules_in(tape)
    settings = Settings(
        level=wishes.level,
        scrub=lambda value: scrub(value, rules).value,
        rules=rules.digest,
        expected=read_expected(wishes.expect) if wishes.expect is not None else (),
        until_failure=wishes.until_failure,
        isolation=wishes.isolation,
        not_covered=(*NOT_OBSERVED, *wishes.unseen),
        stopped=wishes.stopped or _nothing,
        gave_up=wishes.gave_up or _nothing,
        strict_order=wishes.strict_order,
        stuck_after=wishes.stuck_after if wishes.stuck_after is not None else settings_here().stuck_after,
    )
    return Replayer(tape, settings)


def _nothing() -> None:
    return None


def rules_in(tape: Tape) -> Rules:
    """The rules of redaction that a recording was made under; the built-in ones where it does not say.

    Raises:
        VersionUnknown: their digest is not the one that the run names.
    """
    named = tape.started.attrs.get("rules")
    stored = tape.started.bodies.get("rules")
    if stored is None:
        return NO_RULES if named == NO_RULES.digest else Rules()
    rules = rules_from(tape.recording.body(stored))
    if named is not None and rules.digest != named:
        raise VersionUnknown(
            f"{tape.recording.origin}: its rules of redaction are not understood by this version",
            hint="upgrade agent-loupe",
        )
    return rules


def _failed(tape: Tape) -> bool:
    status = tape.finished.attrs.get("status") if tape.finished else None
    last = tape.driven[-1].status if tape.driven else "ok"
    return status in ("error", "cancelled") or last in ("error", "cancelled")


def run_replayed(tape: Tape, agent: Agent, wishes: Wishes, replayer: Replayer | None = None) -> ReplayReport:
    """Runs the agent against the tape, in this process, with the way out shut."""
    try:
        replayer = replayer or replayer_for(tape, wishes)
        args, kwargs = arguments_of(tape)
    except (Damaged, VersionUnknown, NotRebuildable) as wrong:
        return unreadable(tape.recording.run_id, wrong, wishes, events=len(tape.recording.events))
    opener = ReplayOpener(replayer)
    with placeholder_keys(), shut_off(replayer, opener), opening_with(opener), reads.chance_kept():
        _drive(lambda: agent(*args, **kwargs), replayer)
    return replayer.report()


@contextmanager
def shut_off(replayer: Replayer, opener: Opener) -> Generator[None]:
    """In this process, in every thread: nothing connects, no tool runs, no agent starts but under this replay."""
    with sealed_off(replayer.leaked), catching_strays(Strays(replayer)), opening_with(opener, process_wide=True):
        yield


def _drive(start: Callable[[], object], replayer: Replayer) -> None:
    """Runs the program to its end; what comes out of it says nothing, except that a person pressed Ctrl-C."""
    try:
        result = yielding.all_of(start())
        if inspect.isawaitable(result):
            to_the_end(result)
    except ReplayMismatch:
        return
    except KeyboardInterrupt:
        if not replayer.report().passed:
            raise
    except BaseException:  # noqa: BLE001  # the session judged it
        return


def to_the_end(awaitable: Awaitable[object]) -> None:
    """Runs an agent's coroutine, in a thread of its own where a loop is already running in this one."""

    async def whole() -> None:
        await awaitable

    if not _loop_runs_here():
        asyncio.run(whole())
        return
    outcome: list[BaseException] = []
    context = contextvars.copy_context()

    def work() -> None:
        try:
            context.run(asyncio.run, whole())
        except BaseException as error:  # noqa: BLE001  # handed on below
            outcome.append(error)

    thread = threading.Thread(target=work, name="agentloupe-agent")
    with outside():
        thread.start()
        thread.join()
    if outcome:
        raise outcome[0]


def _loop_runs_here() -> bool:
    """Apart, so that no agent runs while an error is handled: errors that it raises would be said to have come of that one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# --- a debugger at the recorded failure -------------------------------------------------------------------------------


def debug_here(reached: Reached) -> None:
    """Opens a debugger in the user's frame whose call failed when it was recorded; for `until_failure`."""
    import pdb  # noqa: T100  # that is what was asked for

    frame = _user_frame()
    sys.stderr.write(
        f"{reached.recorded.kind} {shown(reached.recorded.name)} failed here with {type(reached.error).__name__}\n"
    )
    debugger = pdb.Pdb()
    debugger.reset()
    debugger.interaction(frame, None)


def _user_frame() -> FrameType | None:
    line = caller()
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # the documented way to one's own stack
    while frame is not None and line is not None:
        if (frame.f_code.co_filename, frame.f_lineno) == (line.file, line.line):
            return frame
        frame = frame.f_back
    return None
