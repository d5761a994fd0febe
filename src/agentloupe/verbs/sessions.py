"""Sessions: an agent starts, runs under a boundary, and ends. Here: the opener that records."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agentloupe.engine import project
from agentloupe.engine.covering import unrecordable_in, what_is_lost
from agentloupe.engine.privacy import Rules, scrub, scrub_text
from agentloupe.engine.raised import error_name, status_of
from agentloupe.engine.recorder import Recorder
from agentloupe.engine.withholding import Digests
from agentloupe.ports import ambient, codecs
from agentloupe.ports.faultpoints import reach
from agentloupe.ports.protocols import Boundary, Opening, RunWriter, Session, Store
from agentloupe.ports.schedule.core import Schedule
from agentloupe.ports.schedule.lanes import Naming
from agentloupe.ports.scribe import Scribe, Started
from agentloupe.ports.settings import Settings, find_root, load
from agentloupe.verbs import snapshot
from agentloupe.verbs.keeping import Keeping, keeping_for, rules_of
from agentloupe.words.call import Attrs, Outcome, OutcomeStatus
from agentloupe.words.errors import LoupeError, StoreError, Unrecordable
from agentloupe.words.event import Head
from agentloupe.words.jsontext import Json
from agentloupe.words.keeping import Profile
from agentloupe.words.run import Owner, Run
from agentloupe.words.trace import TraceContext

__all__ = [
    "RecordOpener",
    "RecordSession",
    "default_store",
    "end_left",
    "open_session",
    "settings_here",
    "snapshot_of",
    "without_secrets",
]

_log = logging.getLogger("agentloupe")

_TRIES_FOR_AN_ID = 5


def settings_here() -> Settings:
    """The settings of the current folder, and defaults where they cannot be read (said once; the agent goes on)."""
    try:
        return load()
    except LoupeError as wrong:
        _say_once(f"settings are not used: {wrong}")
        root = Path.cwd()
        return Settings(root=root, db=str(root / ".loupe" / "loupe.db"), profile=_least(root))


def _least(root: Path) -> Profile:
    """The profile where settings cannot be read: where somebody seems to have set one, nothing may be kept that they forbid."""
    files = (find_root(root) / name for name in ("loupe.toml", "pyproject.toml"))
    with suppress(OSError):
        texts = [file.read_bytes() for file in files if file.is_file()]
        set_here = any(name in os.environ for name in ("LOUPE_PROFILE", "LOUPE_SAMPLE"))
        if set_here or any(word in text for text in texts for word in (b"profile", b"sample")):
            return "digest_only"
    return "full"


# --- the store of this process ----------------------------------------------------------------------------------------

_stores: dict[tuple[int, str], Store] = {}
_lock = threading.Lock()
_said: set[str] = set()


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        _log.warning(text)


def default_store(url: str, *, create: bool = True) -> Store:
    """The store of a URL, opened once a process; made where it is not there, if `create`. Raises what opening raises."""
    with _lock:
        key = os.getpid(), url
        if key not in _stores:
            from agentloupe.store import open_url

            if create:
                _shield(Path(url.removeprefix("sqlite:///")).parent)
            _stores[key] = open_url(url, create=create, new_fold=project.Projector)
        return _stores[key]


def _shield(folder: Path) -> None:
    """A new folder `.loupe` keeps itself out of version control."""
    if folder.name != ".loupe" or folder.exists():
        return
    try:
        folder.mkdir(parents=True)
        (folder / ".gitignore").write_text("*\n", "utf-8")
    except OSError:
        return  # opening the store will say what is wrong with the place


def _close_stores() -> None:
    for (pid, _), store in list(_stores.items()):
        if pid == os.getpid():
            try:
                store.close()
            except LoupeError as wrong:
                _say_once(f"the store could not be closed well: {wrong}")
    _stores.clear()


atexit.register(_close_stores)


class _NoWriter:
    """Stands in where no store can be had: everything is refused, so the recorder does what it does on a full disk."""

    def __init__(self, run_id: str, why: Exception) -> None:
        self.run_id = run_id
        self.owner = Owner("", 0, "")
        self._why = why

    @property
    def head(self) -> Head:
        return Head(0, "")

    def append(self, drafts: object, bodies: object = (), durability: object = "commit") -> None:
        raise self._why

    def offer(self, drafts: object, bodies: object = ()) -> bool:
        raise self._why

    def remind(self, collect: object) -> None:
        """There is nothing to tell."""

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""


# --- recording --------------------------------------------------------------------------------------------------------


class _Program:
    """Numbers the runs that one process starts: where it is replayed as a whole, the others are looked for by that."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._id = ambient.random_hex(8)
        self._begun = itertools.count()

    def next(self) -> dict[str, Json]:
        """Facts of the next run."""
        return {"program": self._id, "nth": next(self._begun)}


class RecordOpener:
    """Opens a new recording for each agent that starts.

    Args:
        store: where to; default: the one that the settings name, opened when the first run starts.
        name, tags, task_id: for all runs that it opens, over what the agent says (tags are added).
        strict: an unrecordable value raises; default: as the settings say.
        settings: default: those of the current folder.
        argv: the command line, when a whole script is recorded.
        profile: what is kept of values, over what the agent and the settings say.
        sample: the share of runs that are kept by it, over what the agent and the settings say.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        name: str | None = None,
        tags: Sequence[str] = (),
        task_id: str | None = None,
        strict: bool | None = None,
        settings: Settings | None = None,
        argv: Sequence[str] | None = None,
        profile: Profile | None = None,
        sample: float | None = None,
    ) -> None:
        self.sessions: list[RecordSession] = []
        self._store = store
        self._name = name
        self._tags = tuple(tags)
        self._task_id = task_id
        self._strict = strict
        self._settings = settings
        self._argv = argv
        self._profile: Profile | None = profile
        self._sample = sample
        self._program = _Program()

    def open(self, opening: Opening) -> Session:
        """Begins a recording. For want of a store nothing is recorded, which is said once.

        Raises:
            Unrecordable: an argument of the agent cannot be recorded, and the session is strict.
        """
        settings = self._settings or settings_here()
        sample = opening.sample if self._sample is None else self._sample
        keeping, fault = _kept(settings, opening.agent, self._profile or opening.profile, sample)
        rules = keeping.rules
        opening = _without_secrets_in_names(opening, rules)
        strict = opening.strict or (settings.strict if self._strict is None else self._strict)
        lost = unrecordable_in(opening.arguments)
        if lost and strict:
            raise Unrecordable(what_is_lost(f"what the agent {opening.agent!r} is called with", lost))
        task_id = opening.task_id or (scrub_text(self._task_id, rules) if self._task_id else None)
        store, writer = self._writer(opening.agent, settings, fault)
        scope = task_id or writer.run_id
        keeping = keeping.of_run(scope)
        recorder = Recorder(
            writer,
            keeping.scribe(opening.trace or ambient.arrived()),
            rules=rules,
            scope=scope,
            strict=strict,
            refuse_writes=settings.write_without_store == "refuse",
            drops_values=settings.when_full == "drop_bodies",
            passes_trace_on=settings.pass_trace_on,
            control_tools=settings.control_tools,
            schedule=opening.schedule or new_schedule(settings),
        )
        keeping.begin(recorder, self._started(opening, settings, recorder, task_id))
        session = RecordSession(recorder, store, warns=self._argv is None)
        self.sessions.append(session)
        del self.sessions[:-100]
        return session

    def _writer(self, agent: str, settings: Settings, fault: LoupeError | None) -> tuple[Store | None, RunWriter]:
        run_id = ambient.new_run_id(agent)
        if fault is not None:
            return None, _NoWriter(run_id, fault)
        try:
            store = self._store if self._store is not None else default_store(settings.db)
            if settings.outbox is not None:
                store.outbox.publish(settings.outbox)
            return store, _start(store, agent, run_id)
        except Exception as wrong:  # noqa: BLE001  # a store that cannot be had must not cost the agent its run
            return None, _NoWriter(run_id, wrong)

    def _started(self, opening: Opening, settings: Settings, recorder: Recorder, task_id: str | None) -> Started:
        rules, schedule = recorder.rules, recorder.schedule
        facts: dict[str, Json] = {"root": opening.root, "rules": rules.digest}
        if schedule is not None:
            facts |= schedule.facts
        if opening.schedule is not None:
            facts["whole_program"] = True
        if self._program.pid != os.getpid():
            self._program = _Program()  # a forked process starts runs of its own
        facts |= self._program.next()
        known = {"task_id": task_id, "entry": opening.entry}
        facts.update({label: value for label, value in known.items() if value is not None})
        if self._argv is not None:
            facts["argv"] = list[Json](without_secrets(self._argv, rules))
        return Started(
            agent=opening.agent,
            name=self._name or opening.name or opening.agent,
            arguments=opening.arguments,
            parameters=opening.parameters,
            tags=tuple(dict.fromkeys((*opening.tags, *self._tags))),
            facts=facts,
            bodies={
                "snapshot": snapshot_of(settings, opening),
                "packages": snapshot.packages(),
                "rules": rules.as_json(),
            },
        )


def _kept(
    settings: Settings, agent: str, wished: Profile | None, sample: float | None
) -> tuple[Keeping, LoupeError | None]:
    """What is kept of a run, and why nothing is: where its digests should be keyed and cannot be, no others are made."""
    try:
        return keeping_for(settings, agent, wished, sample), None
    except LoupeError as wrong:
        return Keeping("digest_only", rules_of(settings), Digests()), wrong


def new_schedule(settings: Settings) -> Schedule:
    """The schedule of a new run; on a Python whose loops are not known, nothing is waited for, and the run says so."""
    from agentloupe.ports.schedule.hooks import supported

    mode = settings.schedule if supported() is None else "off"
    return Schedule(mode=mode, naming=Naming(salt=int(ambient.random_hex(8), 16)))


def _without_secrets_in_names(opening: Opening, rules: Rules) -> Opening:
    """What a run is named by goes into its id and into lists."""
    agent = scrub_text(opening.agent, rules)
    task_id = scrub_text(opening.task_id, rules) if opening.task_id else opening.task_id
    return (
        opening
        if (agent, task_id) == (opening.agent, opening.task_id)
        else replace(opening, agent=agent, task_id=task_id)
    )


def without_secrets(argv: Sequence[str], rules: Rules) -> list[str]:
    """A command line as it may be kept: `--api-key VALUE` and what looks like a credential are taken out."""
    kept: list[str] = []
    option = ""
    for word in argv:
        named = scrub({option: word}, rules).value if option else None
        value = named.get(option) if isinstance(named, dict) else None
        kept.append(value if isinstance(value, str) else scrub_text(word, rules))
        option = word.lstrip("-") if word.startswith("-") and "=" not in word else ""
    return kept


def snapshot_of(settings: Settings, opening: Opening) -> Json:
    """What the start of an agent depends on. Never raises."""
    try:
        taken = snapshot.take(settings.root, settings.env, opening)
        return {**taken, "model_urls": list[Json](settings.model_urls)} if settings.model_urls else taken
    except Exception as wrong:  # noqa: BLE001  # an odd machine must not cost the agent its run
        return {"failed": error_name(wrong)}


def _start(store: Store, agent: str, run_id: str) -> RunWriter:
    from agentloupe.store.owners import this_process

    for _ in range(_TRIES_FOR_AN_ID):
        try:
            return store.start(run_id, project.Projector, owner=this_process())
        except StoreError as wrong:
            if wrong.reason != "exists":
                raise
        run_id = ambient.new_run_id(agent)
    raise StoreError("no free run id was found")


class RecordSession:
    """One recording in progress. `warns`: says when no model call was recorded (a launch says it for the whole script)."""

    def __init__(self, recorder: Recorder, store: Store | None, *, warns: bool = True) -> None:
        self.run_id = recorder.run_id
        self.boundary: Boundary = recorder
        self.recorder = recorder
        self._store = store
        self._warns = warns

    def row(self) -> Run | None:
        """The run's row as it is stored now; `None` when it is not stored."""
        try:
            return self._store.run(self.run_id) if self._store is not None else None
        except LoupeError:
            return None

    def finished(self, result: object) -> None:
        """Ends the recording with the agent's result. Never raises."""
        self._end("ok", lambda: {"result": codecs.encode(result).wire}, {})

    def failed(self, error: BaseException) -> None:
        """Ends the recording with what the agent raised. `SystemExit` with 0 or nothing is a good end. Never raises."""
        if isinstance(error, SystemExit) and not error.code:
            self.finished(None)
            return
        self._end(status_of(error), lambda: codecs.encode(error).wire, _error_facts(error))

    def hand_over(self) -> dict[str, Attrs]:
        """Leaves the end to whoever sees the program's exit code (`end_left`): the facts of a bad end and of a good one."""
        ends: dict[OutcomeStatus, Attrs] = {"error": _error_facts(SystemExit(1)), "ok": {}}
        return {**self.recorder.hand_over(ends)}

    def _end(self, status: OutcomeStatus, output: Callable[[], Json], facts: dict[str, Json]) -> None:
        try:
            wire: Json = output()
        except Exception as wrong:  # noqa: BLE001  # a result that no codec can read is still the agent's result
            wire = {"result": None}
            facts["result_failed"] = error_name(wrong)
        self.recorder.end(status, wire, facts)
        if self._warns and status == "ok" and not self.recorder.model_calls:
            _log.warning(
                "run %s ended without one recorded model call; if the agent asks a model, wrap its client: "
                "client = loupe.wrap(client)",
                self.run_id,
            )


def _error_facts(error: BaseException) -> dict[str, Json]:
    name = error_name(error)
    # Only our own messages are known to hold no payload; an event can never be erased.
    said = f"{name}: {error.message}" if isinstance(error, LoupeError) else name
    return {"error_class": name, "error": said}


def end_left(store: Store, run_id: str, ends: Mapping[str, Attrs], code: int) -> None:
    """Writes the end of a run that `RecordSession.hand_over` left, now that the program's exit code is known.

    Raises:
        LoupeError: the run cannot be taken over or written; it stays as it is, interrupted.
    """
    from agentloupe.store.owners import this_process

    reach("run.handed_over")
    started = store.events(run_id, limit=1)[0]
    writer = store.take_over(run_id, project.Projector, owner=this_process())
    status: OutcomeStatus = "error" if code else "ok"
    output: Json = codecs.encode(SystemExit(code)).wire if code else {"result": codecs.encode(None).wire}
    scribe = Scribe(TraceContext(started.trace_id or "", started.span_id or ""), epoch=writer.owner.epoch)
    entry = scribe.finished(
        Outcome(status=status, output=output, attrs={**ends[status], "exit_code": code}), ambient.now()
    )
    try:
        writer.append(entry.drafts, entry.bodies, entry.durability)
    finally:
        writer.close()


def open_session(opening: Opening) -> Session:
    """Begins the session of an agent that starts now, as the current opener decides; without one it is recorded."""
    if not ambient.opening_here():
        ambient.ran_off(f"agent {opening.agent}")
    return (ambient.opener() or _recording).open(opening)


_recording = RecordOpener()
