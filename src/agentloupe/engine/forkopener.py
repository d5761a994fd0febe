"""How a fork begins and ends: it answers to the start of the recorded agent, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from agentloupe.engine.forker import Forker
from agentloupe.engine.privacy import by_name, by_position, scrub
from agentloupe.engine.raised import error_name, status_of
from agentloupe.ports import codecs
from agentloupe.ports.protocols import Boundary, Opening
from agentloupe.ports.schedule.core import Schedule
from agentloupe.words.canonical import Json, digest
from agentloupe.words.errors import CassetteMiss, ForkRefused, LoupeError, ReplayMismatch, UsageError

__all__ = ["ForkOpener", "ForkSession"]


class ForkSession:
    """One fork in progress."""

    def __init__(self, run_id: str, boundary: Forker) -> None:
        self.run_id = run_id
        self.boundary: Boundary = boundary
        self._forker = boundary

    def finished(self, result: object) -> None:
        """The agent returned. Raises `ReplayMismatch` when it did so before step N."""
        forker = self._forker
        if not forker.begun:
            if forker.refusal is None:
                forker.early_end(None)
            raise ReplayMismatch("the agent ended before the fork began", kind="unconsumed")
        if forker.stopped is not None:
            self._end_failed(forker.stopped)
        else:
            forker.end("ok", {"result": codecs.encode(result).wire}, {})

    def failed(self, error: BaseException) -> None:
        """The agent raised. Never raises."""
        forker = self._forker
        if forker.begun:
            self._end_failed(forker.stopped or error)
        elif forker.refusal is None:
            forker.early_end(error)

    def _end_failed(self, error: BaseException) -> None:
        facts: dict[str, Json] = {"error_class": error_name(error)}
        # Only our own messages are known to hold no payload, and those of a miss hold the arguments.
        if isinstance(error, LoupeError) and not isinstance(error, CassetteMiss):
            facts["error"] = str(error)  # with its way out
        self._forker.end(status_of(error), codecs.encode(error).wire, facts)


class ForkOpener:
    """Answers to the start of the recorded agent, once, with a fork.

    Args:
        forker: the boundary, made for this one fork.
        check_arguments: the agent must be called with the recorded arguments (a script chooses them itself).
        check: what can be asked only when the program has come to its agent. Raises `UsageError`.
    """

    def __init__(
        self, forker: Forker, *, check_arguments: bool = False, check: Callable[[], None] | None = None
    ) -> None:
        self.forker = forker
        self.check_arguments = check_arguments
        self.check = check
        self.refusal: ForkRefused | UsageError | None = None
        self.session: ForkSession | None = None

    @property
    def whole_schedule(self) -> Schedule | None:
        """The fork's, where a whole program was recorded; it keeps to that from its first line on."""
        whole = self.forker.plan.cut.tape.started.attrs.get("whole_program") is True
        return self.forker.schedule if whole else None

    def open(self, opening: Opening) -> ForkSession:
        """Begins the fork.

        Raises:
            ForkRefused: another agent starts than the recorded one (`other_agent`), with other arguments
                (`other_arguments`), a second one starts (`second_agent`), or `check` finds something wrong (`usage`).
        """
        recorded = self.forker.plan.cut.tape.started.name
        if self.session is not None:
            self._refuse("second_agent", "the program starts a second agent: a fork is one run")
        if opening.agent != recorded:
            self._refuse(
                "other_agent", f"the program starts agent {opening.agent!r}, the parent is a run of {recorded!r}"
            )
        if self.check_arguments and not self.forker.plan.code_changed and not self._same_arguments(opening):
            self._refuse(
                "other_arguments",
                f"agent {opening.agent!r} is called with other arguments than in the parent",
                "call it as it was recorded; of a program that starts several runs fork the one that you mean with --code",
            )
        if self.check is not None:
            try:
                self.check()
            except UsageError as wrong:
                self.refusal = self.refusal or wrong
                # In the program it is a stop like any other, of which no traceback is shown.
                raise ForkRefused(wrong.message, hint=wrong.hint, reason=wrong.reason) from wrong
        self.session = ForkSession(self.forker.plan.run_id, self.forker)
        self.forker.begins(opening)
        return self.session

    def _refuse(self, reason: str, message: str, hint: str | None = None) -> NoReturn:
        self.refusal = self.refusal or ForkRefused(message, reason=reason, hint=hint)
        raise ForkRefused(message, reason=reason, hint=hint)

    def _same_arguments(self, opening: Opening) -> bool:
        plan = self.forker.plan
        recorded = plan.cut.recording.body(plan.cut.tape.started.input_digest)
        return digest(recorded) == digest(
            by_position(scrub(by_name(opening.arguments, opening.parameters), plan.rules).value, opening.parameters)
        )
