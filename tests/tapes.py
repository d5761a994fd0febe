"""Recordings of small agents, and ways to damage or to edit them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentloupe.engine.report import ReplayReport
from agentloupe.ports import ambient, codecs
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.instrument import as_agent
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json
from agentloupe.words.event import Draft, Event
from tests.made import sealed

Edit = Callable[[list[Draft]], list[Draft]]


def record_in(store: Store, agent: Callable[..., Any], *args: Any, **kwargs: Any) -> Recording:
    """Records an agent, sync or async, decorated or not; what it raises is swallowed."""
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        try:
            result = as_agent(agent)(*args, **kwargs)
            if inspect.isawaitable(result):
                asyncio.run(_whole(result))
        except Exception:
            pass
    return store.recording(opener.sessions[-1].run_id)


async def _whole(awaitable: Any) -> Any:
    return await awaitable


def edited(recording: Recording, edit: Edit) -> Recording:
    """The recording as somebody left it who changed events and numbered and chained them anew."""
    drafts = edit([_draft(event) for event in recording.events])
    made = sealed(recording.run_id, drafts, {})
    return replace(made, get=recording.get)


def tampered(recording: Recording, at: int, **fields: Any) -> Recording:
    """One event (by sequence) changed in place, chain left alone."""
    events = tuple(replace(e, **fields) if e.sequence == at else e for e in recording.events)
    return replace(recording, events=events)


def without(recording: Recording, *sequences: int) -> Recording:
    """Events left out, chain left alone."""
    return replace(recording, events=tuple(e for e in recording.events if e.sequence not in sequences))


def with_body(recording: Recording, digest: str | None, data: bytes) -> Recording:
    """Another body under the same digest."""

    def get(digests: Sequence[str]) -> Mapping[str, bytes]:
        found = dict(recording.get(digests))
        if digest in digests and digest is not None:
            found[digest] = data
        return found

    return replace(recording, get=get)


def with_value(recording: Recording, sequence: int, value: Json) -> Recording:
    """Another output of one event, with its own digest, chained anew."""
    from agentloupe.ports.pack import Packer

    packed = Packer().pack(value)
    bodies = {body.digest: body.data for body in packed.bodies}

    def get(digests: Sequence[str]) -> Mapping[str, bytes]:
        return {**recording.get(digests), **{d: bodies[d] for d in digests if d in bodies}}

    def edit(drafts: list[Draft]) -> list[Draft]:
        return [replace(d, output_digest=packed.digest) if i == sequence else d for i, d in enumerate(drafts, 1)]

    return replace(edited(recording, edit), get=get)


def _draft(event: Event) -> Draft:
    return Draft(**{name: getattr(event, name) for name in Draft.__dataclass_fields__})


def sequence_of(recording: Recording, type: str, name: str | None = None, nth: int = 0) -> int:
    """Sequence of the nth event of a type (and name)."""
    found = [e.sequence for e in recording.events if e.type == type and name in (None, e.name)]
    return found[nth]


@dataclass(frozen=True)
class Step:
    """One call of a program: what it asks, and what the world answers (an exception is raised)."""

    kind: Any
    name: str
    input: Json = None
    answer: Any = None

    def call(self) -> Call:
        return Call(
            kind=self.kind,
            name=self.name,
            input=self.input,
            effect="read" if self.kind == "tool" else None,
            encode=lambda value: codecs.encode(value).wire,
            decode=codecs.decode,
            cheap=self.kind in ("clock", "random", "id", "env"),
        )


@dataclass
class Program:
    """An agent that makes calls one after another, and counts those that really reach the world."""

    steps: Sequence[Step]
    asynchronous: bool = False
    swallow: bool = False
    result: Callable[[list[Any]], Any] = field(default=lambda got: got)
    real: list[str] = field(default_factory=list)

    @property
    def agent(self) -> Callable[..., Any]:
        return self._async if self.asynchronous else self._sync

    def changed(self, steps: Sequence[Step], **others: Any) -> Program:
        return replace(self, steps=steps, real=[], **others)

    def _world(self, step: Step) -> Any:
        self.real.append(step.name)
        if isinstance(step.answer, BaseException):
            raise step.answer
        return step.answer

    def _sync(self) -> Any:
        got: list[Any] = []
        for step in self.steps:
            try:
                got.append(ambient.call(step.call(), lambda step=step: self._world(step)))
            except Exception as error:
                got.append(f"{type(error).__name__}: {error}")
            except BaseException:
                if not self.swallow:
                    raise
        return self.result(got)

    async def _async(self) -> Any:
        async def world(step: Step) -> Any:
            return self._world(step)

        got: list[Any] = []
        for step in self.steps:
            try:
                got.append(await ambient.acall(step.call(), lambda step=step: world(step)))
            except Exception as error:
                got.append(f"{type(error).__name__}: {error}")
            except BaseException:
                if not self.swallow:
                    raise
        return self.result(got)

    def recorded(self) -> Recording:
        """Runs and records it in a store of its own; forgets what was counted."""
        made = record_in(MemoryStore(), as_agent(self.agent, "program"))
        self.real.clear()
        return made

    def replayed(self, recording: Recording, **wishes: Any) -> ReplayReport:
        """Replays it; nothing may reach the world."""
        report = replay(recording, as_agent(self.agent, "program"), **wishes)
        assert self.real == [], "a replay performs nothing"
        return report

    def replayed_own(self, recording: Recording, **wishes: Any) -> ReplayReport:
        """Replays it; only its own work (states, checks) may be done again."""
        report = replay(recording, as_agent(self.agent, "program"), **wishes)
        own = {step.name for step in self.steps if step.kind in ("state", "check", "agent")}
        assert set(self.real) <= own
        return report


def ask(text: str, answer: Any = "yes") -> Step:
    """A model call."""
    request: Json = {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}],
    }
    return Step("llm", "chat m", request, {"choices": [{"message": {"role": "assistant", "content": answer}}]})


def use(name: str, answer: Any = None, **arguments: Json) -> Step:
    """A tool call."""
    return Step("tool", name, dict(arguments), answer)


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file's content, by its path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
