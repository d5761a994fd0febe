"""A fork of the plain loop whose process was killed goes on: its tape first, then its policy as before."""

from __future__ import annotations

from agentloupe.engine.forker import Forker
from agentloupe.engine.pen import Answered, Answering
from agentloupe.engine.resumer import Resumer
from agentloupe.engine.turn import Again
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
        self._begun_before: dict[str, Again] = {}

    def _perform(self, call: Call, where: Place, again: Again | None = None) -> Serve | Perform:
        if again is not None:
            self._begun_before[where.call_id] = again
        return self.forker.answer(call, where)

    def decide_at(self, call: Call, where: Place, *, again: Again | None = None) -> Perform:
        """Performs a call for real; what is stored of one that was open is not written anew."""
        return super().decide_at(call, where, again=self._begun_before.pop(where.call_id, again))

    def effect_key(self, name: str, key: str, where: Place) -> str:
        """The one that the tape has, where the call was begun before."""
        begun = self._begun_before.get(where.call_id)
        return super().effect_key(name, key, where) if begun is None or begun.key is None else begun.key

    def asked(self, call: Call, where: Place, source: Source, effect_key: str | None = None) -> None:
        """Stores the beginning of a call that is answered without being performed, unless the tape has it."""
        if self._begun_before.pop(where.call_id, None) is None:
            super().asked(call, where, source, effect_key)

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
