"""The session of a replay: which agent's start it answers to, and what its end is compared with."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final, NamedTuple, NoReturn

from agentloupe.engine.explain import digest_of
from agentloupe.engine.privacy import by_name, by_position
from agentloupe.engine.recorder import status_of
from agentloupe.engine.replayer import Replayer
from agentloupe.engine.report import Divergence, DivergenceKind, Side
from agentloupe.ports import codecs
from agentloupe.ports.ambient import Caller, caller
from agentloupe.ports.protocols import Boundary, Opening, Perform
from agentloupe.ports.schedule.core import Schedule
from agentloupe.verbs.children import raised_at
from agentloupe.words.call import OWN_WORK, Call
from agentloupe.words.canonical import Json
from agentloupe.words.errors import Damaged, ReplayMismatch

__all__ = ["ReplayOpener", "ReplaySession", "Strays", "result_wire"]


def result_wire(result: object) -> Json:
    """An agent's result as a recording holds it."""
    return {"result": codecs.encode(result).wire}


class Strays:
    """The boundary of code that belongs to no run while one is replayed: before and after it, in a thread of its own.

    Plain reads and the program's own work go on; anything else would be a real call, and is a leak.
    """

    def __init__(self, replayer: Replayer) -> None:
        self._replayer = replayer

    def decide(self, call: Call) -> Perform:
        """Lets plain reads pass. Raises `ReplayMismatch` for everything that reaches the world."""
        if call.cheap or call.kind in OWN_WORK:
            return Perform()
        what = f"a call outside of the run, or from a thread that lost its context: {call.kind} {call.name}"
        raise self._replayer.strayed(what, caller())

    def finished(self, perform: Perform, value: object) -> object:
        """The value."""
        return value

    def failed(self, perform: Perform, error: BaseException) -> None:
        """Nothing to do."""


class ReplaySession:
    """The recorded agent, running again."""

    def __init__(self, replayer: Replayer) -> None:
        self.run_id = replayer.tape.recording.run_id
        self.boundary: Boundary = replayer
        self._replayer = replayer

    def finished(self, result: object) -> None:
        """The agent returned. Raises `ReplayMismatch` when that is not what was recorded, or something is left over."""
        self._replayer.end("ok", result_wire(result))

    def failed(self, error: BaseException) -> None:
        """The agent raised. Never raises: the verdict is in the report."""
        try:
            if isinstance(error, SystemExit) and not error.code:
                self.finished(None)
            else:
                self._replayer.end(status_of(error), codecs.encode(error).wire)
        except ReplayMismatch:
            if not isinstance(error, ReplayMismatch):
                self._replayer.notes.append(f"the agent raised {raised_at(error)}")


class _Difference(NamedTuple):
    """How a start is not the recorded one."""

    kind: DivergenceKind
    opening: Opening
    given: Json
    line: Caller | None


_OTHERS: Final = "the program starts other runs too; each was stopped where it began"


class ReplayOpener:
    """Answers to the start of the recorded agent, once.

    Any other start in the same process is another run, which is not on the tape: it is stopped where it begins, and has no part
    in the verdict. Which start is the recorded one is told by name and arguments, since threads start theirs in any order. Where
    none comes that agrees, the first one that did not is the verdict.
    """

    def __init__(self, replayer: Replayer) -> None:
        self.replayer = replayer
        self.opened = False
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._thread = threading.get_ident()
        self._others: list[_Difference] = []
        replayer.unstarted = self._none_agreed

    @property
    def whole_schedule(self) -> Schedule | None:
        """The replay's, where a whole program was recorded; it keeps to that from its first line on."""
        return self.replayer.schedule if self.replayer.tape.started.attrs.get("whole_program") is True else None

    def open(self, opening: Opening) -> ReplaySession:
        """Compares name and arguments. Raises `ReplayMismatch` where they are not the recorded ones."""
        with self._lock:
            if self.opened:
                self._another()
            found = self._difference(opening)
            awaited = found is not None and self._may_still_come()
            if found is not None and awaited:
                self._others.append(found)
            else:
                self._begin(found)
        if awaited:
            self._wait_for_it()
        self._fingerprint(opening)
        return ReplaySession(self.replayer)

    def _begin(self, found: _Difference | None) -> None:
        self.opened = True
        self._begun.set()
        if found is not None:
            self._differs(found)

    def _another(self) -> NoReturn:
        if _OTHERS not in self.replayer.notes:
            self.replayer.notes.append(_OTHERS)
        raise ReplayMismatch(_OTHERS, kind="extra")

    def _may_still_come(self) -> bool:
        """Whether the program starts runs in threads of their own, and the recorded one may be among the next."""
        elsewhere = threading.get_ident() != self._thread
        return elsewhere and not self.replayer.stopped and not self.replayer.settings.expected

    def _wait_for_it(self) -> NoReturn:
        """Stops this start when the recorded one has begun: what comes out of it may keep a program from going on to that."""
        if not self._begun.wait(self.replayer.settings.stuck_after):
            self._none_agreed()
        if self.replayer.stopped:
            raise self.replayer.strayed(_OTHERS, None)
        self._another()

    def _none_agreed(self) -> None:
        with self._lock, suppress(ReplayMismatch):
            if self._others and not self.opened and not self.replayer.stopped:
                self._begin(self._others[0])

    def _difference(self, opening: Opening) -> _Difference | None:
        tape = self.replayer.tape
        recorded = tape.started
        if self.replayer.settings.scrub(opening.agent) != recorded.name:
            return _Difference("name_changed", opening, None, caller())
        given = by_position(
            self.replayer.settings.scrub(by_name(opening.arguments, opening.parameters)), opening.parameters
        )
        if recorded.input_digest is None:
            wrong = Damaged("sequence 1 has no arguments", reason="no_input")
            found = Divergence(kind="corrupt", sequence=1, message=str(wrong), reason=wrong.reason)
            raise self.replayer.abandon("damaged", found)
        if not self.replayer.equal(recorded.input_digest, given):
            return _Difference("input_changed", opening, given, caller())
        return None

    def _fingerprint(self, opening: Opening) -> None:
        """Other code is information, not a difference."""
        known = self.replayer.snapshot()
        before = known.get("source_digest")
        if isinstance(before, str) and opening.source_digest is not None and before != opening.source_digest:
            self.replayer.notes.append(f"the source of the agent {opening.agent!r} has changed since it was recorded")

    def _differs(self, found: _Difference) -> None:
        kind, opening, given, line = found
        recorded = self.replayer.tape.started
        was = self.replayer.value_or_none(recorded.input_digest) if kind == "input_changed" else None
        actual = Side(
            kind="agent", name=opening.agent, digest=digest_of(given) if kind == "input_changed" else None, value=given
        )
        self.replayer.differs_at_start(kind, was, actual, line)
