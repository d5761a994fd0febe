"""A fork of the plain loop whose process was killed goes on: its tape first, then its policy as before."""

from __future__ import annotations

from agentloupe.engine.forker import Forker
from agentloupe.engine.pen import Answered, Answering
from agentloupe.engine.resumer import Resumer
from agentloupe.ports.ambient import Place
from agentloupe.ports.protocols import Perform, Serve
from agentloupe.words.call import Call, Source

__all__ = ["ForkResumer"]


class ForkResumer(Answering, Resumer):
    """Goes on with one fork. Takes the arguments of `Resumer`, and `forker`: the fork's rules, which `goes_on` with this."""

    only_plays = True
    forker: Forker

    def __init__(self, *given: object, **named: object) -> None:
        super().__init__(*given, **named)  # type: ignore[arg-type]  # those of `Resumer`, as they are
        self._begun_before: dict[str, int] = {}

    def _perform(self, call: Call, where: Place, inner_calls: int | None = None) -> Serve | Perform:
        if inner_calls is not None:
            self._begun_before[where.call_id] = inner_calls
        return self.forker.answer(call, where)

    def decide_at(self, call: Call, where: Place, *, inner_calls: int | None = None) -> Perform:
        """Performs a call for real; of one that was open only the end is written."""
        return super().decide_at(call, where, inner_calls=self._begun_before.pop(where.call_id, inner_calls))

    def asked(self, call: Call, where: Place, source: Source) -> None:
        """Stores the beginning of a call that is answered without being performed, unless the tape has it."""
        if self._begun_before.pop(where.call_id, None) is None:
            super().asked(call, where, source)

    def finished(self, perform: Perform, value: object) -> object:
        """Takes the result of what was performed, or of what stands in for it."""
        if isinstance(perform.token, Answered):
            return self.forker.finished(perform, value)
        return super().finished(perform, value)

    def failed(self, perform: Perform, error: BaseException) -> None:
        """Takes the exception of either."""
        if isinstance(perform.token, Answered):
            self.forker.failed(perform, error)
        else:
            super().failed(perform, error)
