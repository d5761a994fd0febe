"""The session of a replay: which agent's start it answers to, and what its end is compared with."""

from __future__ import annotations

from typing import NoReturn

from agentloupe.engine.explain import digest_of
from agentloupe.engine.privacy import by_name, by_position
from agentloupe.engine.recorder import status_of
from agentloupe.engine.replayer import OWN_WORK, Replayer
from agentloupe.engine.report import Divergence, DivergenceKind, Side
from agentloupe.ports import codecs
from agentloupe.ports.ambient import caller
from agentloupe.ports.protocols import Boundary, Opening, Perform
from agentloupe.ports.schedule.core import Schedule
from agentloupe.verbs.children import raised_at
from agentloupe.words.call import Call
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


class ReplayOpener:
    """Answers to the start of the recorded agent, once.

    A second start in the same process is not on the tape: it is stopped, and the verdict on the first stands.
    """

    def __init__(self, replayer: Replayer) -> None:
        self.replayer = replayer
        self.opened = False

    @property
    def whole_schedule(self) -> Schedule | None:
        """The replay's, where a whole program was recorded; it keeps to that from its first line on."""
        return self.replayer.schedule if self.replayer.tape.started.attrs.get("whole_program") is True else None

    def open(self, opening: Opening) -> ReplaySession:
        """Compares name and arguments. Raises `ReplayMismatch` where they are not the recorded ones."""
        if self.opened:
            self._second(opening)
        self.opened = True
        self._compare(opening)
        return ReplaySession(self.replayer)

    def _second(self, opening: Opening) -> NoReturn:
        if not self.replayer.ended:
            raise self.replayer.strayed(f"another run is started inside of this one: agent {opening.agent}", caller())
        note = (
            f"the program went on to start {opening.agent!r} again or anew, which is another run; it was stopped there"
        )
        if note not in self.replayer.notes:
            self.replayer.notes.append(note)
        raise ReplayMismatch(note, kind="extra")

    def _compare(self, opening: Opening) -> None:
        tape = self.replayer.tape
        recorded = tape.started
        self._fingerprint(opening)
        if self.replayer.settings.scrub(opening.agent) != recorded.name:
            self._differs("name_changed", opening, None)
        given = by_position(
            self.replayer.settings.scrub(by_name(opening.arguments, opening.parameters)), opening.parameters
        )
        if recorded.input_digest is None:
            wrong = Damaged("sequence 1 has no arguments", reason="no_input")
            found = Divergence(kind="corrupt", sequence=1, message=str(wrong), reason=wrong.reason)
            raise self.replayer.abandon("damaged", found)
        if not self.replayer.equal(recorded.input_digest, given):
            self._differs("input_changed", opening, given)

    def _fingerprint(self, opening: Opening) -> None:
        """Other code is information, not a difference."""
        known = self.replayer.snapshot()
        before = known.get("source_digest")
        if isinstance(before, str) and opening.source_digest is not None and before != opening.source_digest:
            self.replayer.notes.append(f"the source of the agent {opening.agent!r} has changed since it was recorded")

    def _differs(self, kind: DivergenceKind, opening: Opening, given: Json) -> None:
        recorded = self.replayer.tape.started
        was = self.replayer.value_or_none(recorded.input_digest) if kind == "input_changed" else None
        actual = Side(
            kind="agent", name=opening.agent, digest=digest_of(given) if kind == "input_changed" else None, value=given
        )
        self.replayer.differs_at_start(kind, was, actual, caller())
