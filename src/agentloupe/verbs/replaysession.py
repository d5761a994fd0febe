"""The session of a replay: which agent's start it answers to, and what its end is compared with."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple, NoReturn

from agentloupe.engine.explain import digest_of
from agentloupe.engine.privacy import by_name, by_position
from agentloupe.engine.raised import status_of
from agentloupe.engine.replayer import Replayer
from agentloupe.engine.report import Divergence, DivergenceKind, ReplayReport, Side
from agentloupe.ports import codecs
from agentloupe.ports.ambient import Caller, caller
from agentloupe.ports.protocols import Boundary, Opening, Perform
from agentloupe.ports.schedule.core import Schedule
from agentloupe.verbs.children import missing_variable, raised_at
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
        ruling = self._replayer.ruling
        of_its_own = ruling.stop is None
        try:
            if isinstance(error, SystemExit) and not error.code:
                self.finished(None)
            else:
                self._replayer.end(status_of(error), codecs.encode(error).wire)
        except ReplayMismatch:
            if isinstance(error, ReplayMismatch):
                return
            found = ruling.divergence
            if found is None or not of_its_own or found.kind != "unconsumed":
                self._replayer.notes.append(f"the agent raised {raised_at(error)}")
                return
            # That it asked for no more is what came of it.
            unset = missing_variable(error)
            cause = f"the agent raised {raised_at(error, unset)}"
            way = "mend what it raised, and replay again; if this end is meant, name it with --expect"
            if unset is not None:
                way = f"set the environment variable {unset} (nothing is sent there in a replay), and replay again"
            ruling.divergence = replace(found, hints=(cause, *found.hints), suggestion=way)


class _Difference(NamedTuple):
    """How a start is not that of a recorded run."""

    replayer: Replayer
    kind: DivergenceKind
    opening: Opening
    given: Json
    line: Caller | None


_OTHERS: Final = "the program starts other runs too; each was stopped where it began"


class ReplayOpener:
    """Answers to the start of the recorded agent, once.

    Any other start in the same process is another run. Where that was recorded beside this one (`others`), it is replayed
    too, from its own tape; else it is stopped where it begins, and has no part in the verdict. Which start is which run is
    told by name and arguments, equal ones in the order in which they were recorded, since threads start theirs in any
    order. Where none comes that agrees, the first one that did not is the verdict.
    """

    def __init__(self, replayer: Replayer, others: Sequence[Replayer] = ()) -> None:
        self.replayer = replayer
        self.opened = False
        self.turned_away = False
        self._waiting = sorted((*others, replayer), key=_nth)
        self._begun_others: list[Replayer] = []
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._thread = threading.get_ident()
        self._others: list[_Difference] = []
        replayer.unstarted = self._none_agreed

    @property
    def whole_schedule(self) -> Schedule | None:
        """That of the run around the whole program, where there is one; the program keeps to it from its first line on."""
        whole = (one for one in self._waiting if one.tape.started.attrs.get("whole_program") is True)
        return next((one.schedule for one in whole), None)

    @property
    def progress(self) -> int:
        """How many calls were answered so far, over all runs of the program."""
        return self.replayer.progress + sum(one.progress for one in self._begun_others)

    def open(self, opening: Opening) -> ReplaySession:
        """Compares name and arguments. Raises `ReplayMismatch` where they are not the recorded ones."""
        with self._lock:
            meant = next((one for one in self._waiting if self._difference(one, opening) is None), None)
            if meant is None and self.opened:
                self._another()
            awaited = meant is None and self._may_still_come()
            meant = meant or (self.replayer if awaited else self._waiting[0])
            found = self._difference(meant, opening)
            if found is not None and awaited:
                self._others.append(found)
            else:
                self._begin(meant, found)
        if awaited:
            self._wait_for_it()
        self._fingerprint(meant, opening)
        return ReplaySession(meant)

    def ended(self) -> None:
        """The program has ended; says which runs it left out that came before this one."""
        left = [one.tape.recording.run_id for one in self._waiting if _nth(one) < _nth(self.replayer)]
        if left and self.opened:
            self.replayer.notes.append(f"runs that came before this one, and that it did without: {', '.join(left)}")

    def _begin(self, meant: Replayer, found: _Difference | None) -> None:
        self._waiting.remove(meant)
        if meant is self.replayer:
            self.opened = True
            self._begun.set()
        else:
            self._begun_others.append(meant)
        if found is not None:
            self._differs(found)

    def _another(self) -> NoReturn:
        self.turned_away = True
        # Which starts come after a stop is chance, and no part of what is reported.
        if _OTHERS not in self.replayer.notes and not self.replayer.stopped:
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
            if self.opened or self.replayer.stopped:
                return
            first = next((report for one in self._begun_others if not (report := one.report()).passed), None)
            if first is not None:
                self.opened = True
                self._begun.set()
                raise self.replayer.abandon("diverged", _not_reached(first))
            if self._others:
                self._begin(self.replayer, self._others[0])

    def _difference(self, replayer: Replayer, opening: Opening) -> _Difference | None:
        recorded = replayer.tape.started
        if replayer.settings.scrub(opening.agent) != recorded.name:
            return _Difference(replayer, "name_changed", opening, None, caller())
        given = by_position(replayer.settings.scrub(by_name(opening.arguments, opening.parameters)), opening.parameters)
        if recorded.input_digest is None:
            wrong = Damaged("sequence 1 has no arguments", reason="no_input")
            found = Divergence(kind="corrupt", sequence=1, message=str(wrong), reason=wrong.reason)
            raise replayer.abandon("damaged", found)
        if not replayer.equal(recorded.input_digest, given):
            return _Difference(replayer, "input_changed", opening, given, caller())
        return None

    def _fingerprint(self, replayer: Replayer, opening: Opening) -> None:
        """Other code is information, not a difference."""
        known = replayer.snapshot()
        before = known.get("source_digest")
        if isinstance(before, str) and opening.source_digest is not None and before != opening.source_digest:
            replayer.notes.append(f"the source of the agent {opening.agent!r} has changed since it was recorded")

    def _differs(self, found: _Difference) -> None:
        replayer, kind, opening, given, line = found
        recorded = replayer.tape.started
        was = replayer.value_or_none(recorded.input_digest) if kind == "input_changed" else None
        actual = Side(
            kind="agent", name=opening.agent, digest=digest_of(given) if kind == "input_changed" else None, value=given
        )
        replayer.differs_at_start(kind, was, actual, line)


def _nth(replayer: Replayer) -> int:
    """Which of its program's runs it was."""
    said = replayer.tape.started.attrs.get("nth")
    return said if isinstance(said, int) else 0


def _not_reached(report: ReplayReport) -> Divergence:
    """The program did not come to the run that is replayed, since an earlier one went another way."""
    found = report.divergence
    how = (
        f"{found.kind} at event {found.sequence}: {found.message}"
        if found is not None
        else "it did not come to its end"
    )
    return Divergence(
        kind="missing",
        sequence=1,
        message=f"the program did not come to this run: an earlier one, {report.run_id}, did not agree ({how})",
        suggestion=f"replay that one first: agentloupe replay {report.run_id}",
    )
