"""Runs for the tests of stores: written with the scribe, as a recorder would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any, cast

from agentloupe.engine.project import Projector
from agentloupe.ports.ambient import Place
from agentloupe.ports.pack import Body
from agentloupe.ports.protocols import Durability, RunWriter, Store
from agentloupe.ports.scribe import Entry, Scribe, Started
from agentloupe.store.owners import this_process
from agentloupe.words.call import Call, Effect, Kind, Outcome, OutcomeStatus
from agentloupe.words.canonical import digest_bytes, key_of
from agentloupe.words.event import Draft
from agentloupe.words.run import Owner
from agentloupe.words.trace import TraceContext

_clock = count()


def at() -> str:
    """Times that only go up."""
    seconds, rest = divmod(next(_clock), 1000)
    minutes, seconds = divmod(seconds, 60)
    return f"2026-03-02T{10 + minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}.{rest:03d}000Z"


def call(kind: Kind, name: str, value: Any, *, effect: Effect | None = None, **attrs: Any) -> Call:
    """A call as instrumentation builds it."""
    return Call(
        kind=kind,
        name=name,
        input=value,
        effect=effect,
        attrs=attrs,
        encode=lambda v: cast("Any", v),
        decode=lambda v: v,
    )


class Author:
    """Writes one run into a store, call by call."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        *,
        owner: Owner | None = None,
        share: str | None = None,
        writer: RunWriter | None = None,
    ) -> None:
        self.writer: RunWriter = writer or store.start(run_id, Projector, owner=owner or this_process(), share=share)
        self.scribe = Scribe(TraceContext(run_id.encode().hex().ljust(32, "0")[:32], "b" * 16))
        self._n = count()

    def started(self, agent: str = "helper", name: str = "a run", **facts: Any) -> Author:
        tags = tuple(facts.pop("tags", ()))
        self.add(
            self.scribe.started(
                Started(agent=agent, name=name, arguments={"args": [], "kwargs": {}}, tags=tags, facts=facts), at()
            )
        )
        return self

    def add(self, entry: Entry, durability: Durability | None = None) -> None:
        self.writer.append(entry.drafts, entry.bodies, durability or entry.durability)

    def place(self) -> Place:
        n = next(self._n)
        return Place("0", n, f"{n:016x}", None)

    def did(
        self,
        what: Call,
        output: Any,
        *,
        status: OutcomeStatus = "ok",
        source: Any = "live",
        where: Place | None = None,
        durability: Durability | None = None,
        **attrs: Any,
    ) -> None:
        where = where or self.place()
        key = key_of(what.kind, what.name, what.input)
        self.add(self.scribe.opened(what, where, key, at()), durability)
        outcome = Outcome(status=status, output=output, attrs=attrs, source=source)
        self.add(self.scribe.closed(what, where, key, outcome, at()), durability)

    def model(
        self, messages: Sequence[Any], answer: str = "yes", tokens: tuple[int, int] | None = (10, 5), **more: Any
    ) -> None:
        usage = {} if tokens is None else {"input_tokens": tokens[0], "output_tokens": tokens[1]}
        response = {"choices": [{"message": {"role": "assistant", "content": answer}}], "model": "small-1"}
        request = {"model": "small", "messages": list(messages)}
        self.did(call("llm", "chat small", request, model="small"), response, model="small-1", **usage, **more)

    def tool(self, name: str, args: Any, output: Any, *, effect: Effect = "read", **more: Any) -> None:
        self.did(call("tool", name, args, effect=effect), output, **more)

    def clock(self, durability: Durability | None = None) -> None:
        time = at()
        self.did(replace(call("clock", "now", None), cheap=True), time, durability=durability)

    def finished(self, result: Any = "done", status: OutcomeStatus = "ok", **attrs: Any) -> None:
        self.add(self.scribe.finished(Outcome(status=status, output={"result": result}, attrs=attrs), at()))
        self.writer.close()


def small_run(store: Store, run_id: str = "run-1", **facts: Any) -> Author:
    """A run of six steps: root, model, tool, clock, tool that fails, model."""
    author = Author(store, run_id).started(root=True, **facts)
    author.model([{"role": "user", "content": "how warm is it?"}])
    author.tool("get_weather", {"city": "Oslo"}, {"celsius": 4})
    author.clock()
    author.tool(
        "get_weather",
        {"city": "nowhere"},
        failure("LookupError", "no such place"),
        status="error",
        error_class="LookupError",
    )
    author.model([{"role": "user", "content": "how warm is it?"}, {"role": "assistant", "content": "yes"}], "4 degrees")
    author.finished("4 degrees")
    return author


def failure(name: str, message: str) -> Any:
    """An exception in wire form."""
    return {"$exception": {"class": f"builtins:{name}", "message": message, "args": [message]}}


def dead_owner() -> Owner:
    """An owner on this host that cannot be alive: this very pid, started at another time."""
    return replace(this_process(), started="another time")


def erased_drafts() -> list[Draft]:
    return [Draft(type="run.erased", event_id="erase-1", recorded_at=at())]


def body(text: bytes) -> Body:
    return Body(digest_bytes(text), text, ())
