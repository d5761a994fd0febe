"""The verb `resume`: a run whose process was killed goes on where it was, as the same run.

    done = resume("support-261129-k3x9qp", support_agent)

The agent's code runs again; what the recording holds is answered from it and checked, what was open is asked for again, and
from there on everything is real and recorded. What became of an effect whose outcome nobody saw is asked of its tool's
`lookup`; where that does not tell, it is a question to a person. It is never tried again blindly.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from agentloupe.engine.credentials import mark
from agentloupe.engine.loop import Model
from agentloupe.engine.privacy import scrub
from agentloupe.engine.project import Projector
from agentloupe.engine.resumer import Attempt, Resumer, check_resumable, schedule_of
from agentloupe.engine.tape import Tape, read_tape
from agentloupe.engine.verify import verify
from agentloupe.ports import ambient
from agentloupe.ports.faultpoints import reach
from agentloupe.ports.protocols import Opener, Opening, Provider, RunWriter, Session, Store
from agentloupe.ports.schedule.core import Schedule
from agentloupe.verbs import launch
from agentloupe.verbs.api import open_store, resolve
from agentloupe.verbs.children import quiet_stops, raised_at, run_child
from agentloupe.verbs.clients import wrap_clients
from agentloupe.verbs.elsewhere import check_here
from agentloupe.verbs.forkfamily import ForkWishes
from agentloupe.verbs.instrument import declared_tools
from agentloupe.verbs.launched import Launch
from agentloupe.verbs.lookups import note_unseen, settle_by_lookup
from agentloupe.verbs.looping import tool_functions
from agentloupe.verbs.loopresuming import is_of_the_loop, prepared
from agentloupe.verbs.replaying import agent_for, arguments_of, command_for, rules_in, to_the_end
from agentloupe.verbs.replaysession import ReplayOpener
from agentloupe.verbs.sessions import (
    RecordOpener,
    RecordSession,
    default_store,
    settings_here,
    snapshot_of,
    without_secrets,
)
from agentloupe.words.canonical import Json, dumps
from agentloupe.words.errors import Corrupt, LoupeError, ReplayMismatch, ReplayRefused, ResumeRefused
from agentloupe.words.jsontext import loads
from agentloupe.words.run import Run

__all__ = ["Resumed", "resume", "resume_code", "resume_command", "resume_launch"]


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a resume gave.

    Attributes:
        run_id: id of the run, the one that it always had.
        result: what the agent returned; `None` for a script.
        run: the run's row.
        served: how many calls were answered from the recording.
        exit_code: of the script, where one was run.
        error: what the agent raised, where `resume_code` was asked.
        notes: what a person should know, one line each.
    """

    run_id: str
    result: Any
    run: Run | None
    served: int
    exit_code: int = 0
    error: Exception | None = None
    notes: tuple[str, ...] = ()


def resume(
    run: str,
    agent: Callable[..., Any] | str | None = None,
    *,
    store: Store | str | Path | None = None,
    force_owner: bool = False,
    take_over: bool = False,
    provider: Provider | Model | None = None,
    wishes: ForkWishes | None = None,
) -> Resumed:
    """Goes on with a run that was interrupted. What the agent raises beyond the recording comes out, recorded as well.

    Args:
        run: its id, a unique beginning of one, `last` or `last~N`.
        agent: the agent's function, sync or async, or `module:function`.
        store: where runs are: a store, its URL or its file; default: the project's.
        force_owner: the run belongs to a process on another host, and you know that it is gone.
        take_over: the run was imported before it had ended, and you know that the original never goes on.
        provider: of runs of the plain loop: who is asked; default: the model of the settings.
        wishes: of runs of the plain loop, what no recording holds: `functions`, sandboxes in `tools`, `ask`, `price`,
            `cancel`, `watch`, `patience`, `endpoint`. The rest is taken from the run.

    A run of the plain loop (a fork with the generic engine, a recording of `run_loop`) needs no agent. An error that
    ended it is recorded, and not raised.

    Raises:
        RunNotFound: there is no such run.
        OwnerAlive: its owner lives, or is on another host (reason `other_host`), or the run may go on where it was
            imported from (`elsewhere`).
        ResumeRefused: it cannot go on; `reason` says why, the hint what to do. For `open_intent` no lookup told
            what became of an effect, and a person must find out (`settle_effect`); `intents` lists them.
        Damaged: the recording is not whole.
    """
    done = resume_code(
        run, agent, store=store, force_owner=force_owner, take_over=take_over, provider=provider, wishes=wishes
    )
    if done.error is not None:
        raise done.error
    return done


def resume_code(
    run: str,
    agent: Callable[..., Any] | str | None = None,
    *,
    store: Store | str | Path | None = None,
    force_owner: bool = False,
    take_over: bool = False,
    provider: Provider | Model | None = None,
    wishes: ForkWishes | None = None,
) -> Resumed:
    """As `resume`, with what the agent raises beside the rest."""
    where, run_id = _found(run, store, take_over)
    if agent is None and is_of_the_loop(tape := read_tape(where.recording(run_id))):
        return _loop_resumed(where, tape, force_owner, provider, wishes or ForkWishes())
    taken = _Taken(where, run_id, force_owner)
    error: Exception | None = None
    try:
        code = _code_of(taken.tape, agent)
        _check_arguments(taken.tape)
        taken.begin()
        args, kwargs = arguments_of(taken.tape)
        opener = taken.opener()
        with ambient.outside(), ambient.opening_with(opener):
            try:
                result = code(*args, **kwargs)
                if inspect.isawaitable(result):
                    to_the_end(result)
            except ReplayMismatch:
                if opener.refused() is None:
                    raise
            except Exception as raised:  # noqa: BLE001  # it is the run's error, recorded there, and the caller's to raise
                error = raised
        return replace(opener.told(), error=error)
    finally:
        taken.give_up()


def _loop_resumed(
    store: Store, tape: Tape, force: bool, provider: Provider | Model | None, wishes: ForkWishes
) -> Resumed:
    """A run of the plain loop goes on: everything that it needs is looked for before it is taken over."""
    from agentloupe.store.owners import this_process

    run_id = tape.recording.run_id
    _check_first(store, run_id, force)
    made = prepared(store, tape, provider, wishes)
    writer = store.take_over(run_id, Projector, owner=this_process(), force=force)
    reach("resume.after_owner")
    try:
        tape = note_unseen(store, writer, _whole_tape(store, run_id))
        tape = settle_by_lookup(store, writer, tape, tool_functions(wishes.functions))
        taken = snapshot_of(settings_here(), _opening(tape))
        attempt = Attempt(bodies={"snapshot": scrub(taken, rules_in(tape)).value})
        going = made(writer, tape, attempt)
    except BaseException:
        writer.close()
        raise
    try:
        message = going.run()
        served = going.resumer.kept.progress
        return Resumed(run_id, message, store.run(run_id), served, notes=_notes(tape))
    finally:
        going.resumer.give_up()


def _found(run: str, store: Store | str | Path | None, take_over: bool) -> tuple[Store, str]:
    """The run that is named. Raises early, and leaves its owner alone, where there is nothing to go on with."""
    where = open_store(store, create=False) if store is None or isinstance(store, str | Path) else store
    run_id = resolve(where, run)
    row = where.run(run_id)
    if row is None or row.parent_run_id is not None or row.status not in ("running", "waiting", "interrupted"):
        _whole_tape(where, run_id)
    if not take_over:
        check_here(where, run_id)
    return where, run_id


def _whole_tape(store: Store, run_id: str) -> Tape:
    """The tape of a run that may go on. Raises `Damaged` or `ResumeRefused`."""
    recording = store.recording(run_id)
    found = verify(recording, bodies=False)
    if found.fault is not None:
        raise Corrupt(f"run {run_id} is not whole, it cannot go on: {found.head}", reason=found.fault.reason)
    tape = read_tape(recording)
    check_resumable(tape)
    return tape


def _code_of(tape: Tape, agent: Callable[..., Any] | str | None) -> Callable[..., Any]:
    try:
        return agent_for(tape, agent)
    except ReplayRefused as wrong:
        hint = f"try: {command_for(tape, 'resume')}" if agent is None else wrong.hint
        raise ResumeRefused(
            wrong.message.replace("cannot be replayed", "cannot go on"), hint=hint, reason=wrong.reason
        ) from wrong


_REMOVED = mark("").removesuffix("]").encode()


def _check_arguments(tape: Tape) -> None:
    """A secret that the agent was called with is not in the recording: what runs for real needs it again."""
    if _REMOVED in dumps(tape.recording.body(tape.started.input_digest)):
        raise ResumeRefused(
            f"{tape.recording.run_id} cannot go on by itself: its agent was called with a secret, which is not recorded",
            hint=f"run the program that calls it: agentloupe resume {tape.recording.run_id} -- python your_script.py",
            reason="secret",
        )


def _notes(tape: Tape) -> tuple[str, ...]:
    lost = sum("removed_from_output" in call.attrs or "removed_from_stream" in call.attrs for call in tape.driven)
    if not lost:
        return ()
    return (f"secrets were taken out of {lost} recorded outcomes: what ran for real was given placeholders for them",)


class _Taken:
    """A run that this process has taken over, its unseen effects noted.

    Attributes:
        tape: of the run.
        resumer: goes on with it, once its effects are settled (`begin`).
        refusal: why it did not begin.
    """

    def __init__(self, store: Store, run_id: str, force: bool, argv: Sequence[str] | None = None) -> None:
        from agentloupe.store.owners import this_process

        self.store = store
        self.argv = argv
        self.resumer: Resumer | None = None
        self.refusal: ResumeRefused | None = None
        self._writer = store.take_over(run_id, Projector, owner=this_process(), force=force)
        reach("resume.after_owner")
        try:
            self.tape = note_unseen(store, self._writer, _whole_tape(store, run_id))
        except BaseException:
            self._writer.close()
            raise

    def begin(self) -> Resumer:
        """The code is there, and its tools are declared: asks their lookups, then takes up the tape.

        Raises:
            ResumeRefused: effects stay open.
        """
        if self.refusal is not None:
            raise self.refusal
        if self.resumer is None:
            try:
                self.tape = settle_by_lookup(self.store, self._writer, self.tape)
            except ResumeRefused as refused:
                self.refusal = refused
                raise
            self.resumer = _resumer(self._writer, self.tape, self.argv, self.whole or _schedule(self.tape))
        return self.resumer

    @cached_property
    def whole(self) -> Schedule | None:
        """Of a run around a whole program, which keeps to it from its first line on, before the run is begun again."""
        if self.tape.started.attrs.get("whole_program") is not True:
            return None
        return _schedule(self.tape)

    def give_up(self) -> None:
        """Leaves the run to whoever resumes it next. Idempotent."""
        if self.resumer is not None:
            self.resumer.give_up()
        else:
            self._writer.close()

    def opener(self) -> _ResumeOpener:
        """Answers to the start of the recorded agent."""
        return _ResumeOpener(self)


def _schedule(tape: Tape) -> Schedule:
    from agentloupe.ports.schedule.hooks import supported

    return schedule_of(tape, tape.mode if supported() is None else "off", settings_here().stuck_after)


def _resumer(writer: RunWriter, tape: Tape, argv: Sequence[str] | None, schedule: Schedule) -> Resumer:
    settings, rules = settings_here(), rules_in(tape)
    taken = snapshot_of(settings, _opening(tape))
    facts: dict[str, Json] = {} if argv is None else {"argv": list[Json](without_secrets(argv, rules))}
    return Resumer(
        writer,
        tape,
        rules=rules,
        schedule=schedule,
        declared=declared_tools,
        attempt=Attempt(facts=facts, bodies={"snapshot": scrub(taken, rules).value}),
        strict=settings.strict,
        refuse_writes=settings.write_without_store == "refuse",
        drops_values=settings.when_full == "drop_bodies",
        passes_trace_on=settings.pass_trace_on,
        control_tools=settings.control_tools,
    )


def _opening(tape: Tape) -> Opening:
    entry = tape.started.attrs.get("entry")
    return Opening(agent=tape.started.name or "", entry=entry if isinstance(entry, str) else None)


def _stop(refusal: ResumeRefused) -> ReplayMismatch:
    """What stops the program of a run that does not go on."""
    return ReplayMismatch(refusal.message.partition("\n")[0], kind=refusal.reason or "refused")


class _ResumeSession(RecordSession):
    """The recorded agent, running on."""

    def __init__(self, resumer: Resumer, store: Store) -> None:
        super().__init__(resumer, store, warns=False)
        self.resumer = resumer
        self.result: object = None

    def finished(self, result: object) -> None:
        """Ends the run with the agent's result. Raises `ReplayMismatch` where it came out before the end of its tape."""
        self.result = result
        super().finished(result)
        self._check()

    def failed(self, error: BaseException) -> None:
        """Ends the run with what the agent raised. Never raises."""
        if isinstance(error, ReplayMismatch):
            self.resumer.give_up()
        else:
            self.resumer.kept.notes.append(f"the agent raised {raised_at(error)}")
            super().failed(error)

    def _check(self) -> None:
        refusal = self.resumer.refusal
        if refusal is not None:
            raise _stop(refusal)


class _ResumeOpener:
    """Answers to the start of the recorded agent, once; what a script starts after its end are new runs."""

    def __init__(self, taken: _Taken) -> None:
        self.taken = taken
        self.session: _ResumeSession | None = None
        self._next = RecordOpener(taken.store, argv=taken.argv)

    @property
    def whole_schedule(self) -> Schedule | None:
        """That of the run around the whole program, where there is one."""
        return self.taken.whole

    def open(self, opening: Opening) -> Session:
        """Settles what is open, compares name and arguments. Raises `ReplayMismatch` where the run does not go on."""
        if self.session is not None and self.session.resumer.over:
            return self._next.open(opening)
        try:
            resumer = self.taken.begin()
        except ResumeRefused as refusal:
            raise _stop(refusal) from refusal
        try:
            ReplayOpener(resumer.kept).open(opening)
        except ReplayMismatch:
            resumer.diverged()
            raise
        self.session = _ResumeSession(resumer, self.taken.store)
        return self.session

    def refused(self) -> ResumeRefused | None:
        """Why the run did not go on, if it did not."""
        if self.taken.refusal is not None:
            return self.taken.refusal
        resumer = self.taken.resumer
        if resumer is not None and resumer.refusal is not None:
            return resumer.refusal
        if self.session is None:
            return ResumeRefused(
                f"{self.taken.tape.recording.run_id} did not go on: the program did not start its agent",
                hint="was it the right one?",
                reason="no_session",
            )
        return None

    def told(self, exit_code: int = 0) -> Resumed:
        """What came of it. Raises `ResumeRefused` where the run did not go on."""
        refusal = self.refused()
        if refusal is not None:
            raise refusal
        assert self.session is not None, "it was started"
        resumer = self.session.resumer
        return Resumed(
            resumer.run_id,
            self.session.result,
            self.session.row(),
            resumer.kept.progress,
            exit_code,
            notes=_notes(resumer.tape),
        )


# --- a script ---------------------------------------------------------------------------------------------------------


def resume_command(
    run: str,
    command: Sequence[str],
    *,
    store: Store | str | Path | None = None,
    force_owner: bool = False,
    take_over: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Resumed:
    """Goes on with a run of a script, as typed behind `--`: `["python", "my_agent.py", "ARG"]`.

    The script is run from its beginning; the first agent that it starts must be the interrupted run's. What it starts
    after that has ended are new runs. Errors as `resume`; the script's exit code is in the result.
    """
    where, run_id = _found(run, store, take_over)
    _check_first(where, run_id, force_owner)
    if where.url == "memory:":
        raise ResumeRefused(
            "a script is run in a process of its own, which cannot see a store in memory", reason="memory"
        )
    with tempfile.TemporaryDirectory(prefix="agentloupe-") as folder:
        place = Path(folder)
        fields: dict[str, Json] = {
            "db": where.url,
            "run": run_id,
            "force": force_owner,
            "report": str(place / "report.json"),
            "argv": list[Json](command),
        }
        spec = launch.write_spec(place / "session.json", "resume", fields)
        words = launch.python_command(command)
        told = launch.environment(
            spec, {**os.environ, **launch.variables_of(where.recording(run_id)), **(environment or {})}
        )
        try:
            code = run_child(words, environment=told, insist=False)
        except OSError as wrong:
            raise ResumeRefused(f"{words[0]} cannot be started: {wrong.strerror}", reason="no_code") from wrong
        return _read_report(place / "report.json", where, run_id, code)


def _check_first(store: Store, run_id: str, force: bool) -> None:
    """All that the child would refuse, said here."""
    from agentloupe.store.owners import check_gone

    row = store.run(run_id)
    check_gone(run_id, row.owner if row is not None else None, force=force)
    _whole_tape(store, run_id)


def _read_report(file: Path, store: Store, run_id: str, code: int) -> Resumed:
    try:
        told = cast("dict[str, Any]", loads(file.read_bytes()))
    except FileNotFoundError:
        raise ResumeRefused(f"the script ended with code {code} and left no report", reason="no_report") from None
    if (refusal := told.get("refusal")) is not None:
        raise ResumeRefused(
            refusal["message"], hint=refusal["hint"], reason=refusal["reason"], intents=tuple(refusal["intents"])
        )
    return Resumed(run_id, None, store.run(run_id), told["served"], code, notes=tuple(told["notes"]))


class _ResumeLaunch:
    """Runs a script in this process, which goes on with a run."""

    def __init__(self, spec: Mapping[str, Json]) -> None:
        self._file = Path(str(spec["report"]))
        argv = spec.get("argv")
        words = [str(word) for word in argv] if isinstance(argv, list) else []
        try:
            self._taken = _Taken(default_store(str(spec["db"])), str(spec["run"]), bool(spec.get("force")), words)
        except LoupeError as wrong:
            self._leave({"refusal": _refusal_json(wrong)})
            raise
        self._opener = self._taken.opener()
        self.opener: Opener = self._opener

    def ended(self, error: BaseException | None) -> None:
        """The script has ended: leaves the report for the parent; with what, its exit code says."""
        del error
        self._taken.give_up()
        try:
            told = self._opener.told()
            self._leave({"served": told.served, "notes": list[Json](told.notes)})
        except LoupeError as wrong:
            self._leave({"refusal": _refusal_json(wrong)})

    def _leave(self, told: dict[str, Json]) -> None:
        self._file.write_bytes(dumps(told))


def _refusal_json(wrong: LoupeError) -> Json:
    intents = wrong.intents if isinstance(wrong, ResumeRefused) else ()
    return {
        "message": wrong.message,
        "hint": wrong.hint,
        "reason": wrong.reason,
        "intents": [cast("dict[str, Json]", dict(intent)) for intent in intents],
    }


def resume_launch(spec: dict[str, Json]) -> Launch:
    """The launch of the verb `resume`: every client of the script is put under the boundary.

    Raises what taking the run over raises; the report for the parent says it too.
    """
    wrap_clients()
    quiet_stops()
    return _ResumeLaunch(spec)
