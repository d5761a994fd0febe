"""Inside of a program that was started by `launch`: the session begins before its first line and ends after its last.

Who opens sessions is said for the whole process. Calls of a program that opens no run make one around all of it.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from opcode import opname
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

from agentloupe.ports import ambient
from agentloupe.ports.protocols import Boundary, Opener, Opening, Perform, Serve, Session
from agentloupe.ports.schedule import plain
from agentloupe.ports.schedule.core import Schedule
from agentloupe.ports.streams import Piece, StreamBoundary
from agentloupe.ports.tracing import of_environment
from agentloupe.verbs.onstart.sitecustomize import HERE, SPEC
from agentloupe.words.call import Attrs, Call
from agentloupe.words.errors import ReplayMismatch, UsageError
from agentloupe.words.jsontext import Json, dumps
from agentloupe.words.keeping import profile_named, share_named
from agentloupe.words.trace import TraceContext

if TYPE_CHECKING:
    from agentloupe.verbs.sessions import RecordSession

__all__ = ["OPENERS", "Launch", "begin", "leave_at_once", "main_name"]

OPENERS: dict[str, str] = {
    "record": "agentloupe.verbs.launched:record_launch",
    "replay": "agentloupe.verbs.isolated:replay_launch",
    "fork": "agentloupe.verbs.forkchild:fork_launch",
    "resume": "agentloupe.verbs.resuming:resume_launch",
}
"""Verb -> `module:function`; the function takes the spec and gives a `Launch`."""


class Launch(Protocol):
    """How one verb runs a program."""

    @property
    def opener(self) -> Opener:
        """Opens every session of the process."""
        ...

    def ended(self, error: BaseException | None) -> None:
        """The program has ended, with an exception that nobody caught or an exit if one is given: writes reports."""
        ...


leave_at_once: Callable[[int], NoReturn] = os._exit
"""Ends the process without any more ado, also without what is done at the end of a session."""


def begin(spec: dict[str, Json]) -> None:
    """Begins the session that a file describes, until the end of this process.

    Raises:
        LoupeError: it cannot begin.
    """
    verb = str(spec.get("verb"))
    if verb not in OPENERS:
        raise UsageError(f"unknown verb {verb!r} in the session file")
    if verb != "record":
        _for_this_process_only()
    module, _, function = OPENERS[verb].partition(":")
    make: Callable[[dict[str, Json]], Launch] = getattr(importlib.import_module(module), function)
    launch = make(spec)
    whole = _WholeProgram(launch.opener)
    left = ExitStack()
    ambient.arrived_at_process(of_environment(os.environ))
    left.enter_context(ambient.opening_with(whole, process_wide=True))
    left.enter_context(ambient.inside(whole.boundary))
    watch = spec.get("watch")
    ending = _Ending(launch, whole, left, _watching(Path(watch)) if isinstance(watch, str) else None)
    # What the program registers comes later, and is therefore done before.
    atexit.register(ending)
    os._exit = ending.at_once


def _for_this_process_only() -> None:
    """A replay, a fork and a resumed run are one process: what it starts is not the run, and must not take itself for it."""
    os.environ.pop(SPEC, None)
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place and place != HERE]
    if places:
        os.environ["PYTHONPATH"] = os.pathsep.join(places)
    else:
        os.environ.pop("PYTHONPATH", None)


def _watching(folder: Path) -> Callable[[], None]:
    """Watches what the program reads past the boundary; what comes back writes it down."""
    from agentloupe.verbs.watching import Watcher

    watcher = Watcher(folder)
    watcher.start()
    return watcher.write


class _Ending:
    """What is done when the program has ended: once, in the process that began, not in copies that it forked off."""

    def __init__(
        self, launch: Launch, whole: _WholeProgram, left: ExitStack, watched: Callable[[], None] | None
    ) -> None:
        self._launch = launch
        self._watched = watched
        self._whole = whole
        self._left = left
        self._pid = os.getpid()
        self._exits = whole.began = _Exits()

    def __call__(self) -> None:
        if self._pid != os.getpid():
            return
        self._pid = -1
        if self._watched is not None:
            self._watched()
        self._left.close()
        error = self._exits.found()
        unseen = getattr(self._launch, "ended_unseen", None) if error is None and self._exits.unseen() else None
        with suppress(ReplayMismatch):  # the verdict is in what the launch has to say
            self._whole.ended(error, unseen)
        self._launch.ended(error)

    def at_once(self, status: int) -> NoReturn:
        """In the place of `os._exit`: a program that leaves by it has ended too."""
        try:
            self._exits.seen = SystemExit(status)
            self()
        finally:
            leave_at_once(status)


class _Exits:
    """Notices with what the program ends: Python tells nobody the exit code of `sys.exit`.

    An exit may be caught again. It ended the program if the outermost frame has done nothing since. Of a bare
    `raise SystemExit(n)` is seen that the outermost frame did not return (`unseen`), and not the code.
    """

    def __init__(self) -> None:
        import _sitebuiltins

        self.seen: SystemExit | None = None
        self._outermost: FrameType | None = None
        self._main: FrameType | None = None
        self._at = -1
        self._follow(sys, "exit")
        self._follow(_sitebuiltins.Quitter, "__call__")

    def _follow(self, owner: Any, name: str) -> None:
        leave = getattr(owner, name)

        @functools.wraps(leave)
        def followed(*args: Any, **kwargs: Any) -> NoReturn:
            try:
                leave(*args, **kwargs)
            except SystemExit as raised:
                self._note(raised.code)
                raise
            raise AssertionError("leaving raises")

        setattr(owner, name, followed)

    def _note(self, code: object) -> None:
        if (frame := _outermost_frame()) is not None:
            self.seen, self._outermost, self._at = SystemExit(code), frame, frame.f_lasti

    def __call__(self) -> None:
        """The program has made its first call: the frame that it runs in is looked at when it has ended."""
        self._main = _outermost_frame()

    def unseen(self) -> bool:
        """Whether the program was left by an exit that nobody saw: its frame stands, and not at a return."""
        main = self._main
        if main is None or hasattr(sys, "ps1"):
            return False
        return not opname[main.f_code.co_code[main.f_lasti]].startswith("RETURN")

    def found(self) -> BaseException | None:
        """What ended the program: an exception that nobody caught, or an exit."""
        if hasattr(sys, "ps1"):
            return None  # a person typed; what failed on the way ended nothing
        uncaught = getattr(sys, "last_value", None)
        if isinstance(uncaught, BaseException):
            return uncaught
        still = self._outermost is None or self._outermost.f_lasti == self._at
        return self.seen if still else None


def _outermost_frame() -> FrameType | None:
    """The frame in which the main thread runs the program; `None` in another thread."""
    if threading.current_thread() is not threading.main_thread():
        return None
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]  # the documented way to one's own stack
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def main_name() -> str:
    """What the program in this process is called: its module, or its file without `.py`."""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None and spec.name:
        return spec.name.removesuffix(".__main__").rpartition(".")[2]
    return Path(file).stem if file else "python"


class _WholeProgram:
    """Opens sessions for the program; calls outside of any make one run around all of it, when the first comes.

    It is an opener and, for calls outside of sessions, a boundary that hands everything on. Such a program keeps to one
    schedule from its first line on; when it opens a session of its own, each of its runs has one, and the program none.
    """

    implicit = True

    def __init__(self, opener: Opener) -> None:
        self.boundary: Boundary = self
        self.began: Callable[[], None] | None = None
        self._opener = opener
        self._session: Session | None = None
        self._opening = plain.RLock()
        self._schedule: Schedule | None = getattr(opener, "whole_schedule", None)
        self._early: list[tuple[str, str, Attrs]] = []
        self._has_forked = False
        if self._schedule is not None and self._schedule.keeper is None:
            self._schedule.keeper = self

    @property
    def trace(self) -> TraceContext | None:
        """Of the run around the program, once there is one."""
        return getattr(self._session.boundary, "trace", None) if self._session is not None else None

    @property
    def passes_trace_on(self) -> bool:
        """As that run says."""
        return self._session is not None and getattr(self._session.boundary, "passes_trace_on", False)

    @property
    def schedule(self) -> Schedule | None:
        """Of the program, as long as it opens no session of its own."""
        return self._schedule

    def open(self, opening: Opening) -> Session:
        """A session of the program's own."""
        if self._session is None and self._schedule is not None:
            self._schedule.close()
            self._schedule = None
        return self._opener.open(opening)

    def log(self, type: str, lane: str, facts: Attrs) -> None:
        """What the schedule does before the first call is kept for the run that this one makes."""
        self._early.append((type, lane, facts))

    def stands_still(self, awaited: str | None) -> None:
        """Nothing was recorded so far."""

    def cancelled(self, id: str) -> None:
        """Nothing was recorded so far."""

    def decide(self, call: Call) -> Serve | Perform:
        """A call that belongs to no run: from here on the program as a whole is one."""
        if self._session is None:
            self._begin()
            if self.began is not None:
                self.began()
        return cast("Session", self._session).boundary.decide(call)

    def _begin(self) -> None:
        with self._opening:
            if self._session is not None:
                return
            with self._schedule.own() if self._schedule is not None else nullcontext():
                session = self._opener.open(Opening(agent=main_name(), schedule=self._schedule))
            log = getattr(session.boundary, "log", None)
            for event in self._early if log is not None else ():
                cast("Any", log)(*event)
            self._early.clear()
            self._session = session
            if self._has_forked:
                self.forked()

    def finished(self, perform: Perform, value: object) -> object:
        """Handed on."""
        return cast("Session", self._session).boundary.finished(perform, value)

    def opened(self, perform: Perform, head: Json) -> None:
        """Handed on."""
        cast("StreamBoundary", cast("Session", self._session).boundary).opened(perform, head)

    def streamed(self, perform: Perform, piece: Piece) -> None:
        """Handed on."""
        cast("StreamBoundary", cast("Session", self._session).boundary).streamed(perform, piece)

    def failed(self, perform: Perform, error: BaseException) -> None:
        """Handed on."""
        cast("Session", self._session).boundary.failed(perform, error)

    def ran_off(self, what: str, inner: bool) -> None:
        """Told to the run around the program, if there is one."""
        run = self._session.boundary if self._session is not None else None
        if hasattr(run, "ran_off"):
            cast("Any", run).ran_off(what, inner)

    def forked(self, *child: str) -> None:
        """Told to the run around the program; at its beginning, if there is none so far."""
        run = self._session.boundary if self._session is not None else None
        self._has_forked = run is None
        if hasattr(run, "forked"):
            cast("Any", run).forked(*child)

    def ended(self, error: BaseException | None, unseen: Callable[[Session], bool] | None = None) -> None:
        """The program has ended: so does the run around it, if there is one.

        `unseen`: it left by an exit whose code is not known; asked whether the run gets its end by that.
        """
        if self._session is None or (unseen is not None and unseen(self._session)):
            return
        if error is None:
            self._session.finished(None)
        else:
            self._session.failed(error)


# --- the verb `record` ------------------------------------------------------------------------------------------------


class _RecordLaunch:
    """`agentloupe run`: every session of the program is recorded, and noted for whoever started it."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        from agentloupe.verbs.sessions import RecordOpener, default_store, new_schedule, settings_here

        db, notes = spec.get("db"), spec.get("notes")
        self._parent = spec.get("parent")
        self._notes = Path(notes) / f"{os.getpid()}.jsonl" if isinstance(notes, str) else None
        self._recording = RecordOpener(
            default_store(str(db)) if db else None,
            name=spec.get("name"),
            tags=[str(tag) for tag in spec.get("tags") or ()],
            task_id=spec.get("task_id"),
            argv=[str(word) for word in spec.get("argv") or ()],
            profile=profile_named(spec.get("profile")),
            sample=share_named(spec.get("sample")),
        )
        self.opener: Opener = self
        self.whole_schedule = new_schedule(settings_here())
        self._note({"begun": sys.executable})

    def open(self, opening: Opening) -> Session:
        """A recording, noted at once: the program may end without a last word."""
        session = self._recording.open(opening)
        self._note({"run": session.run_id})
        return session

    def ended(self, error: BaseException | None) -> None:
        """The last notes: how each run fared."""
        del error
        for session in self._recording.sessions:
            row = session.row()
            whole = row is not None and row.ended_at is not None and row.coverage != "lossy"
            models = session.recorder.model_calls > 0
            self._note({"fared": session.run_id, "kept": row is not None, "whole": whole, "models": models})

    def ended_unseen(self, session: Session) -> bool:
        """Leaves the end to the command that started this very process, and sees its exit code."""
        if os.getppid() != self._parent or self._notes is None:
            return False
        ends = cast("RecordSession", session).hand_over()
        if ends:
            self._note({"left": session.run_id, "ends": {status: dict(facts) for status, facts in ends.items()}})
        return True

    def _note(self, note: dict[str, Json]) -> None:
        if self._notes is None:
            return
        try:
            with self._notes.open("ab") as file:
                file.write(dumps(note) + b"\n")
        except OSError:
            self._notes = None  # who started us is gone; nobody reads notes any more


def record_launch(spec: dict[str, Json]) -> Launch:
    """The launch of the verb `record`.

    Raises what opening a store raises: a recording that was asked for by name does not begin without its store.
    """
    from agentloupe.verbs.clients import wrap_clients

    wrap_clients()
    return _RecordLaunch(spec)
