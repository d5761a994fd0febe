"""How one replay is judged: what must agree, the first disagreement, and the signal that stops the program.

The first disagreement poisons the replay: every later call fails too, whatever the program catches, and the verdict comes
from here, never from what comes out of the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from agentloupe.engine.expectations import Expectations, Expected
from agentloupe.engine.report import LEVELS, Divergence, Level, Verdict
from agentloupe.engine.tape import RecordedCall
from agentloupe.ports.schedule.core import STUCK_AFTER, Schedule
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json
from agentloupe.words.errors import ReplayMismatch

__all__ = ["NOT_OBSERVED", "REFUSALS", "Reached", "Ruling", "Settings"]

NOT_OBSERVED: Final = ("direct reads of clock, random, os.environ",)
"""What no replay can see; only `doctor` looks for it."""

REFUSALS: Final = 1000
"""So many calls of a program that goes on after the stop signal are refused before `Settings.gave_up` is called."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The recorded failure that `--until-failure` leads to.

    Attributes:
        call: the call as the program makes it now.
        recorded: the same on the tape.
        error: the recorded exception.
    """

    call: Call
    recorded: RecordedCall
    error: BaseException


def _same(value: Json) -> Json:
    return value


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a replay is done.

    Attributes:
        level: how much must agree.
        scrub: the recording's rules of redaction, applied to what the program says before it is compared.
        rules: their digest.
        expected: differences that a fix is meant to make.
        until_failure: stop at the recorded failure; a function is called there with `Reached`, in the caller's frames.
        stopped: called once when the program is told to stop. gave_up: called once when it does not.
        isolation: how the way out is shut, for the report.
        not_covered: what cannot be watched, for the report.
        strict_order: a pass whose order is not proven counts as failed.
        stuck_after: seconds without a move of a quiet program after which it counts as standing still.
    """

    level: Level = "content"
    scrub: Callable[[Json], Json] = _same
    rules: str | None = None
    expected: Sequence[Expected] = ()
    until_failure: bool | Callable[[Reached], None] = False
    stopped: Callable[[], None] = _nothing
    gave_up: Callable[[], None] = _nothing
    isolation: str = "in process"
    not_covered: tuple[str, ...] = NOT_OBSERVED
    strict_order: bool = False
    stuck_after: float = STUCK_AFTER


class Ruling:
    """The verdict on one replay. Its caller holds the replay's lock.

    Attributes:
        stop: what the program was stopped with. verdict: `None` until there is one; divergence: the first one.
        differences: expected ones that appeared. levels: which of them agreed, so far.
        last: the last call that agreed. ended: the program has come to its end.
        notes, message: see `ReplayReport`.
    """

    def __init__(self, settings: Settings, schedule: Schedule) -> None:
        self.settings = settings
        self.expectations = Expectations(settings.expected)
        self.stop: ReplayMismatch | None = None
        self.verdict: Verdict | None = None
        self.divergence: Divergence | None = None
        self.differences: list[Divergence] = []
        self.levels: dict[Level, bool | None] = dict.fromkeys(LEVELS)
        self.last: RecordedCall | None = None
        self.ended = False
        self.notes: list[str] = []
        self.message: str | None = None
        self._schedule = schedule
        self._refused = 0

    def counts(self, level: Level) -> bool:
        """Whether a level has to agree."""
        return LEVELS.index(level) <= LEVELS.index(self.settings.level)

    def accept(self, found: Divergence, sequences: tuple[int, int]) -> None:
        """Goes on where this difference is expected, stops where it is not."""
        if not self.expectations.take(found, sequences):
            self.halt(found)
        self.differences.append(found)

    def halt(self, found: Divergence, verdict: Verdict = "diverged") -> NoReturn:
        """Stops the program with the first disagreement."""
        self.set(found, verdict)
        raise self.again()

    def set(self, found: Divergence, verdict: Verdict = "diverged") -> None:
        """Keeps the first disagreement; the program is stopped at its next move."""
        assert self.stop is None, "the first disagreement is the one that counts"
        self.divergence = found
        if verdict == "diverged" and not self.ended:
            self.levels["flow"] = False
        self._stop_with(verdict, ReplayMismatch(found.headline(), kind=found.kind, sequence=found.sequence))
        if not self.ended:
            self.settings.stopped()

    def reached(self, message: str, sequence: int) -> None:
        """The program has come to the recorded failure: from here on every call is refused."""
        self.message = message
        self._stop_with("reached", ReplayMismatch(message, kind="reached", sequence=sequence))

    def expected_stop(self) -> NoReturn:
        """An expected call that nothing was recorded for: there is nothing to go on with, and nothing wrong."""
        self.check_expected()
        self.notes.append("stopped at the expected call that has no recorded answer; what follows was not compared")
        self._stop_with("pass", ReplayMismatch("an expected difference without a recorded answer", kind="pass"))
        raise self.again()

    def _stop_with(self, verdict: Verdict, stop: ReplayMismatch) -> None:
        self.verdict = verdict
        self.stop = stop
        self._schedule.halt(self.again)

    def again(self) -> ReplayMismatch:
        """A new signal of the same content: one exception object raised in two threads would mix their tracebacks."""
        stop = self.stop
        assert stop is not None, "stopped"
        return ReplayMismatch(stop.message, kind=stop.kind, sequence=stop.sequence)

    def refuse(self) -> NoReturn:
        """Another call of a program that was told to stop."""
        self._refused += 1
        if self._refused == REFUSALS:
            self.settings.gave_up()
        raise self.again()

    def check_expected(self) -> None:
        """Stops where a difference that was expected did not appear."""
        absent = "; ".join(map(str, self.expectations.absent()))
        if absent:
            self.halt(Divergence(kind="not_as_expected", message=f"did not appear: {self.settings.scrub(absent)}"))
