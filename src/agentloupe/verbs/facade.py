"""One class for programs that make their outside calls by hand: recorded the first time, served from the log the second.

    with CallBoundary("record", "calls.db") as boundary:
        ticket = boundary.call("ticket.read", {"id": "T-4"}, lambda: tickets.read("T-4"))
    log = boundary.run_id

    boundary = CallBoundary("replay", "calls.db", run=log)
    ticket = boundary.call("ticket.read", {"id": "T-4"}, must_not_run)
    boundary.assert_finished()

A thin front: behind it stand the same recorder and the same replayer as everywhere else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from agentloupe.engine.replayer import Replayer
from agentloupe.engine.report import ReplayReport
from agentloupe.ports import ambient, codecs
from agentloupe.ports.protocols import Opening, Session, Store
from agentloupe.ports.recording import Recording
from agentloupe.verbs.api import open_store
from agentloupe.verbs.replaying import Wishes, find_recording, open_tape, replayer_for
from agentloupe.verbs.replaysession import ReplayOpener
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.call import Call
from agentloupe.words.errors import Damaged, Refused, UsageError
from agentloupe.words.jsontext import Json

__all__ = ["CallBoundary"]


class CallBoundary:
    """The boundary of one run.

    Args:
        mode: `record` performs every call and appends it; `replay` performs none and answers from the log.
        log: where runs are kept (a store, its URL or path), or a `Recording` or exported file to replay.
        run: which run of a store to replay; default: the last one.
        name: the run's and its agent's name.

    Raises:
        UsageError: another mode, or a recording in the mode `record`.
        RunNotFound, NotFound: there is no such log. Damaged: the log is not whole. ReplayRefused: it cannot be replayed.
    """

    def __init__(
        self,
        mode: Literal["record", "replay"],
        log: Store | Recording | str | Path | None = None,
        *,
        run: str = "last",
        name: str = "calls",
    ) -> None:
        self.mode = mode
        self._lane = ambient.Lane("0")
        self._replayer: Replayer | None = None
        if mode == "record":
            self._session = _recorded(log, name)
        elif mode == "replay":
            self._replayer = _replayer(log, run)
            agent = self._replayer.tape.started.name or name
            self._session: Session = ReplayOpener(self._replayer).open(Opening(agent=agent, name=name, root=False))
        else:
            raise UsageError(f"unknown mode {mode!r}", hint="record or replay")

    @property
    def run_id(self) -> str:
        """The run that is recorded or replayed."""
        return self._session.run_id

    @property
    def report(self) -> ReplayReport | None:
        """In a replay: what was found so far."""
        return None if self._replayer is None else self._replayer.report()

    def call(self, name: str, arguments: object, real_call: Callable[..., Any]) -> Any:
        """Makes one call.

        Args:
            name: stable name of what is called.
            arguments: what it is called with; any recordable value.
            real_call: does it; called without arguments, or with `arguments` if it needs one. Never called in a replay.

        Raises:
            ReplayMismatch: in a replay, where the call is not the recorded one; from then on at every call.
        """
        encoded = codecs.encode(arguments)
        request = Call(
            kind="other",
            name=name,
            input=encoded.wire,
            encode=_encode,
            decode=codecs.decode,
            lost=tuple((lost.path, lost.type) for lost in encoded.unrecordable),
        )
        with ambient.inside(self._session.boundary, lane=self._lane):
            return ambient.call(request, lambda: _perform(real_call, arguments))

    def assert_finished(self) -> None:
        """Ends the run. Raises `ReplayMismatch` when recorded calls are left, or an earlier call was not the recorded one."""
        self._session.finished(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.assert_finished()
        else:
            self._session.failed(error)


def _encode(value: object) -> Json:
    return codecs.encode(value).wire


def _perform(real_call: Callable[..., Any], arguments: object) -> Any:
    try:
        parameters = inspect.signature(real_call).parameters.values()
        wanted = any(p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.KEYWORD_ONLY) for p in parameters)
    except (TypeError, ValueError):
        wanted = True  # a built-in that does not say
    return real_call(arguments) if wanted else real_call()


def _recorded(log: Store | Recording | str | Path | None, name: str) -> Session:
    if isinstance(log, Recording):
        raise UsageError("a recording cannot be added to", hint="give the store that the run shall be kept in")
    store = open_store(log) if log is None or isinstance(log, str | Path) else log
    return RecordOpener(store).open(Opening(agent=name, name=name, root=False))


def _replayer(log: Store | Recording | str | Path | None, run: str) -> Replayer:
    if isinstance(log, Recording):
        recording = log
    elif isinstance(log, str | Path) and str(log).endswith(".loupe"):
        recording = find_recording(Path(log), None)
    else:
        if isinstance(log, str | Path) and "://" not in str(log) and not Path(log).is_file():
            raise Refused(f"there is no log at {log}", reason="no_log")
        recording = find_recording(run, log)
    wishes = Wishes()
    opened = open_tape(recording, wishes)
    if isinstance(opened, ReplayReport):
        raise Damaged(opened.message or opened.text(bodies=False), reason=opened.reason)
    return replayer_for(opened, wishes)
