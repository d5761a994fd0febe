"""Writes a fork's new run: what is performed like any recording, beside it copies and answers of other origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentloupe.engine.loop import Spend
from agentloupe.engine.privacy import Rules
from agentloupe.engine.recorder import Recorder
from agentloupe.ports import ambient
from agentloupe.ports.ambient import HasPlace, Place
from agentloupe.ports.pack import Body
from agentloupe.ports.protocols import Perform, RunWriter
from agentloupe.ports.scribe import Entry, Scribe, Started, entries
from agentloupe.words.call import Attrs, Call, Outcome, Source
from agentloupe.words.canonical import Json, key_of
from agentloupe.words.event import Draft

__all__ = ["Answered", "Answering", "Pen"]


class Answered(HasPlace):
    """A call that something else than the real thing performs: a sandbox, a person."""

    __slots__ = ("attrs", "began", "call", "effect_key", "source")

    def __init__(self, place: Place, call: Call, source: Source, attrs: Attrs) -> None:
        self.place = place
        self.call = call
        self.source: Source = source
        self.attrs = attrs
        self.effect_key: str | None = None
        self.began = ambient.monotonic_ms()


class Answering(Recorder):
    """A recorder that also writes calls which something else than the real thing answers."""

    def __init__(self, writer: RunWriter, scribe: Scribe, **options: Any) -> None:
        super().__init__(writer, scribe, **options)
        self._begun: dict[str, Place] = {}

    def effect_key(self, name: str, key: str, where: Place) -> str:  # a resumer asks by place
        """The idempotency key of a write that something stands in for: this fork's own, never the parent's."""
        with self._lock:
            return self._next_write(name, key)

    def asked(self, call: Call, where: Place, source: Source, effect_key: str | None = None) -> None:
        """Stores the beginning of a call that is answered without being performed. `effect_key`: what a stand-in was given."""
        call = replace(call, input=self._clean.value(call.input, f"arguments of {call.name}").value)
        if where.lane not in self._lanes:
            self._forked(where.lane)
        with self._lock:
            key = key_of(call.kind, call.name, call.input)
            if call.kind == "tool":
                where = self._begun[where.call_id] = self._caused(call, where, key)
            told: dict[str, Json] = {"decision": source}
            if effect_key is not None:
                told["idempotency_key"] = effect_key
            opened = self._scribe.opened(call, where, key, ambient.now(), told)
            # Nothing was begun: neither an intent nor a start may be on the record.
            allowed = tuple(d for d in opened.drafts if d.type not in ("tool.requested", "tool.started"))
            self._book.append(Entry(allowed, opened.bodies))

    def answered(self, call: Call, where: Place, outcome: Outcome, nearest: str | None = None) -> None:
        """Stores the end of a call whose beginning is stored by `asked`."""
        call = replace(call, input=self._clean.value(call.input, f"arguments of {call.name}").value)
        outcome = replace(outcome, output=self._clean.value(outcome.output, f"result of {call.name}").value)
        key, at = key_of(call.kind, call.name, call.input), ambient.now()
        with self._lock:
            closed = self._scribe.closed(call, self._begun.pop(where.call_id, where), key, outcome, at)
            drafts, bodies = closed.drafts, closed.bodies
            if nearest is not None:
                packed = self._scribe.packer.pack(nearest)
                drafts = tuple(replace(d, bodies={**d.bodies, "nearest": packed.digest}) for d in drafts)
                bodies = (*bodies, *packed.bodies)
            self._book.append(Entry(drafts, bodies, "commit"))
        self._check_book()

    def ended(self, call: Call, where: Place, key: str, outcome: Outcome) -> None:
        """Stores the end of a call whose start was copied."""
        outcome = replace(outcome, output=self._clean.value(outcome.output, f"result of {call.name}").value)
        with self._lock:
            self._book.append(self._scribe.closed(call, where, key, outcome, ambient.now()))


class Pen(Answering):
    """Writes the new run: what is performed like any recording, beside it copies and answers of other origin."""

    def __init__(self, writer: RunWriter, scribe: Scribe, rules: Rules, scope: str, spend: Spend | None) -> None:
        super().__init__(writer, scribe, rules=rules, scope=scope)
        self._spend = spend

    def begin(self, what: Started, drafts: Sequence[Draft], bodies: Sequence[Body]) -> None:
        """Stores `run.started` and the kept prefix, in one."""
        started = self._scribe.started(self._clean_start(what), ambient.now())
        with self._lock:
            self._lanes.update(draft.lane for draft in drafts if draft.type == "task.forked" and draft.lane)
            self._book.append(entries([started, Entry(tuple(drafts), tuple(bodies), "commit")]))
        self._check_book()

    def finished(self, perform: Perform, value: object) -> object:
        """Stores the result, and counts what a model call cost."""
        call = getattr(perform.token, "call", None)
        if self._spend is not None and isinstance(call, Call) and call.kind == "llm":
            self._spend.add(call.facts(call.encode(value)))
        return super().finished(perform, value)
