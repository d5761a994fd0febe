"""What a program came to by itself (nested agents, states, checks, its result), compared with what is recorded."""

from __future__ import annotations

from agentloupe.engine.explain import Explainer, digest_of
from agentloupe.engine.report import Divergence, Level
from agentloupe.engine.ruling import Ruling
from agentloupe.engine.serving import Bodies
from agentloupe.engine.tape import RecordedCall, Tape
from agentloupe.ports.ambient import caller
from agentloupe.words.canonical import Json, digest
from agentloupe.words.errors import Corrupt, Damaged

__all__ = ["Outcomes"]


class Outcomes:
    """The recorded results of one run. What differs goes to the ruling."""

    def __init__(self, tape: Tape, bodies: Bodies, explainer: Explainer, ruling: Ruling) -> None:
        self._tape = tape
        self._bodies = bodies
        self._explainer = explainer
        self._ruling = ruling

    def own(self, recorded: RecordedCall, status: str, output: Json) -> None:
        """A nested agent, a state change or a check, done again."""
        level: Level = "content" if recorded.kind == "agent" else "state"
        if recorded.status != status:
            self.differ("state", recorded, recorded.output_digest, output, f"status {recorded.status}, now {status}")
        elif not self.equal(recorded.output_digest, output):
            self.differ(level, recorded, recorded.output_digest, output)

    def differ(
        self, level: Level, recorded: RecordedCall, name: str | None, output: Json, message: str | None = None
    ) -> None:
        """A result differs: that counts where its level has to agree."""
        self._ruling.levels[level] = False
        if not self._ruling.counts(level):
            return
        was = self.value(name)
        found = self._explainer.result_difference(
            (recorded.kind, recorded.name, name, was),
            output,
            (recorded.last_seq, recorded),
            self._ruling.last,
            message,
            caller(),
        )
        self._ruling.accept(found, (recorded.first_seq, recorded.last_seq))

    def end(self, status: str, output: Json) -> None:
        """The program has ended with this status and result."""
        finished = self._tape.finished
        if finished is None:
            return
        was = finished.attrs.get("status")
        if self._ruling.levels["state"] is None:
            self._ruling.levels["state"] = was == status
        if was != status:
            self._ruling.levels["state"] = False
            if self._ruling.counts("state"):
                self._result(finished.output_digest, output, f"status {was}, now {status}")
        equal = self.equal(finished.output_digest, output)
        self._ruling.levels["content"] = equal and was == status and self._ruling.levels["content"] is not False
        if not equal and was == status and self._ruling.counts("content"):
            self._result(finished.output_digest, output, None)

    def _result(self, name: str | None, output: Json, message: str | None) -> None:
        finished = self._tape.finished
        assert finished is not None, "compared with an end"
        agent = self._tape.started.name or ""
        found = self._explainer.result_difference(
            ("agent", agent, name, self.value(name)), output, (finished.sequence, None), self._ruling.last, message
        )
        self._ruling.accept(found, (finished.sequence, finished.sequence))

    def equal(self, name: str | None, output: Json) -> bool:
        """Whether a value is the recorded one: by bytes, else by value. A recording without a digest is equal to nothing."""
        if name is None:
            return False
        if digest_of(output) == name:
            return True
        recorded = self.value(name)
        return recorded is not None and digest(_without_context(recorded)) == digest(_without_context(output))

    def value(self, name: str | None) -> Json:
        """The value behind a digest; `None` when it was deleted, so that only its digest is left to compare with."""
        if name is None:
            return None
        try:
            return self._bodies.value(name)
        except Corrupt as wrong:
            self._ruling.halt(Divergence(kind="corrupt", message=str(wrong), reason=wrong.reason), "damaged")
        except Damaged:
            return None


def _without_context(value: Json) -> Json:
    """Exceptions without what happened to be handled when they were raised: a replay has less behind its calls."""
    if isinstance(value, list):
        return [_without_context(item) for item in value]
    if not isinstance(value, dict):
        return value
    inside = value.get("$exception") if len(value) == 1 else None
    if isinstance(inside, dict):
        return {"$exception": {k: _without_context(v) for k, v in inside.items() if k != "context"}}
    return {name: _without_context(item) for name, item in value.items()}
