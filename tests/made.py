"""Recordings made by hand, for tests that need one without a store, a recorder or an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentloupe.ports.ambient import Place
from agentloupe.ports.recording import Recording
from agentloupe.ports.scribe import Entry, Scribe, Started
from agentloupe.words.call import Attrs, Call, Kind, Outcome
from agentloupe.words.canonical import Json, canonical, key_of
from agentloupe.words.event import Draft, Event
from agentloupe.words.seal import GENESIS, link
from agentloupe.words.trace import TraceContext

START = "2026-04-01T10:00:00.000000Z"


class Maker:
    """Collects drafts and bodies of a run as a recorder would write them."""

    def __init__(self, run_id: str = "made", arguments: Json = None, **facts: Json) -> None:
        self.run_id = run_id
        self.scribe = Scribe(TraceContext("1" * 32, "2" * 16))
        self.drafts: list[Draft] = []
        self.bodies: dict[str, bytes] = {}
        self.calls = 0
        self.take(self.scribe.started(Started(agent="maker", name=run_id, arguments=arguments, facts=facts), START))

    def take(self, entry: Entry) -> None:
        self.drafts.extend(entry.drafts)
        self.bodies.update({body.digest: body.data for body in entry.bodies})

    def call(self, kind: Kind, name: str, input: Json, output: Json, *, ok: bool = True, **attrs: Json) -> None:
        call = Call(kind=kind, name=name, input=input, encode=lambda v: v, decode=lambda v: v, attrs=attrs)  # type: ignore[arg-type,return-value]
        where = Place("0", self.calls, f"{self.calls + 16:016x}", None)
        self.calls += 1
        key = key_of(kind, name, input)
        self.take(self.scribe.opened(call, where, key, START))
        self.take(self.scribe.closed(call, where, key, Outcome(status="ok" if ok else "error", output=output), START))

    def model(self, messages: Sequence[Json], message: Json, **request: Json) -> None:
        answer: Json = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        self.call("llm", f"chat {request.get('model', 'm')}", {"messages": list(messages), **request}, answer)

    def finish(self, result: Json = None, **attrs: Json) -> Recording:
        self.take(self.scribe.finished(Outcome(status="ok", output={"result": result}, attrs=attrs), START))
        return self.recording()

    def recording(self) -> Recording:
        return sealed(self.run_id, self.drafts, self.bodies)


def sealed(run_id: str, drafts: Sequence[Draft], bodies: Mapping[str, bytes]) -> Recording:
    """Numbers and chains drafts."""
    events: list[Event] = []
    before = GENESIS
    for number, draft in enumerate(drafts, 1):
        envelope = draft.envelope(run_id, number)
        canonical(envelope)  # structure only
        fields = {name: getattr(draft, name) for name in Draft.__dataclass_fields__}
        event = Event(**fields, run_id=run_id, sequence=number, prev_hash=before, hash=link(before, envelope))
        events.append(event)
        before = event.hash

    def get(digests: Sequence[str]) -> Mapping[str, bytes]:
        return {digest: bodies[digest] for digest in digests if digest in bodies}

    return Recording(run_id, tuple(events), get, run_id)


def weather_like(run_id: str = "made") -> Recording:
    """A run with a growing context, a tool call, a failure, a clock read and a large body."""
    made = Maker(run_id, {"args": ["how warm?"], "kwargs": {}}, root=True)
    history: list[Json] = [{"role": "system", "content": "S" * 300}, {"role": "user", "content": "how warm? ☀"}]
    asked: Attrs = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "get"}}]}
    made.model(history, dict(asked))
    made.call("tool", "get", {"city": "Oslo", "big": 2**70, "half": 1.0}, {"page": "x" * 5000, "c": 11.9})
    history.append(dict(asked))
    history.append({"role": "tool", "tool_call_id": "c1", "content": "x" * 3000})
    made.model(history, {"role": "assistant", "content": "11.9 °C"})
    made.call("clock", "now", None, {"$datetime": "2026-04-01T10:00:00+00:00"})
    return made.finish("11.9 °C")
