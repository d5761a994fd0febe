"""Generators under the boundary: a tool that yields is one call, whose result is the list of what it yielded.

Live, every item goes on to the program as it comes. In a replay the same items come again, without the tool. What a program sends
into a generator, or throws, is its own word: a state of the run, compared as such. Where the program stopped reading is
kept (`left_early`); one that reads on there in a replay asks for what was never recorded, and is stopped.

An agent that yields is a run from its first item to its last, or to where its caller leaves it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from agentloupe.engine.raised import says_nothing
from agentloupe.ports import ambient, codecs
from agentloupe.ports.protocols import Boundary, Perform, Reading, Serve, Session
from agentloupe.ports.surroundings import Surroundings, entered, here, left
from agentloupe.words.call import Call
from agentloupe.words.effects import HALF_DONE
from agentloupe.words.jsontext import Json

__all__ = [
    "NO_TURN",
    "Yielded",
    "all_of",
    "asteps",
    "atool_steps",
    "back",
    "open_agent",
    "open_span",
    "steps",
    "tool_steps",
    "wire",
]

How = Literal["complete", "left_early", "raised"]
NO_TURN: Mapping[str, Json] = {"unseen": "its items come one by one"}
"""What a call says that has no turn of its own among a concurrent program's inputs."""


@dataclass(slots=True)
class Yielded:
    """What came out of a generator, in wire form: an item may be changed by whoever got it.

    Attributes:
        items: in order.
        how: it ended: by itself, since the program read no more, or by an exception.
        returned: what a generator returned at its end.
        error: what it raised.
    """

    items: list[Json] = field(default_factory=list[Json])
    how: How = "complete"
    returned: Json = None
    error: Json = None


def wire(value: object) -> Json:
    """The result of a yielding tool as JSON; what stands in for one (a sandbox, a person) may give a list, or one item."""
    if not isinstance(value, Yielded):
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        return {"yielded": [codecs.encode(item).wire for item in items]}
    more: dict[str, Json] = {"returned": value.returned, "error": value.error}
    more["how"] = value.how if value.how != "complete" else None
    return {"yielded": value.items, **{name: one for name, one in more.items() if one is not None}}


def back(stored: Json) -> Yielded:
    """The reverse of `wire`. Any other JSON, such as a stub's, is a list of items or one item."""
    if not isinstance(stored, dict) or not isinstance(items := stored.get("yielded"), list):
        return Yielded(list(stored) if isinstance(stored, list) else [stored])
    how = stored.get("how", "complete")
    return Yielded(list(items), cast("How", how), stored.get("returned"), stored.get("error"))


class _Place:
    """Where the body of a generator stands: each of its steps is done there, whoever asks for it, in whatever task.

    Attributes:
        busy: it is at a step now.
    """

    def __init__(self, there: Surroundings | None) -> None:
        self.busy = False
        self._there = there

    @contextmanager
    def step(self) -> Generator[None]:
        if self._there is None:
            yield
            return
        token = entered(replace(self._there, home=None))
        self.busy = True
        try:
            yield
        finally:
            self.busy = False
            left(token)


class _Ending:
    """Is told what comes out of a generator, what is put in, and how it ended. This one keeps nothing."""

    def came(self, item: object) -> None:
        """An item."""

    def sent(self, value: object) -> None:
        """The program sent this in, or threw it."""

    def ended(self, how: How, returned: object = None, error: BaseException | None = None) -> None:
        """It is over."""

    def cancelled(self, times: int) -> None:
        """So often has the program cancelled what is over now, at its last step."""


# --- one generator around another, sync and async ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Opened:
    """What stands behind a generator: made when its first item is asked for."""

    source: Any
    place: _Place = field(default_factory=lambda: _Place(None))
    ending: _Ending = field(default_factory=_Ending)


def steps(opening: Callable[[], _Opened]) -> Generator[Any, Any, Any]:
    """Gives what a generator yields, and takes in what is sent and thrown."""
    opened = opening()
    source, place, ending = opened.source, opened.place, opened.ending
    resume, given = source.send, None
    while True:
        try:
            with place.step():
                item = resume(given)
        except StopIteration as over:
            ending.ended("complete", over.value)
            return over.value
        except BaseException as error:
            ending.ended("raised", error=error)
            raise
        ending.came(item)
        try:
            resume, given = source.send, (yield item)
        except GeneratorExit:
            with place.step():
                source.close()
            ending.ended("left_early")
            raise
        except BaseException as error:  # noqa: BLE001  # thrown in: it is the generator's
            resume, given = source.throw, error
        if given is not None:
            ending.sent(given)


async def asteps(opening: Callable[[], _Opened]) -> AsyncGenerator[Any, Any]:
    """Async twin of `steps`."""
    opened = opening()
    source, place, ending = opened.source, opened.place, opened.ending
    resume, given = source.asend, None
    while True:
        cancels = ambient.cancels()
        try:
            with place.step():
                item = await resume(given)
        except StopAsyncIteration:
            ending.ended("complete")
            return
        except BaseException as error:
            ending.cancelled(cancels.count())
            ending.ended("raised", error=error)
            raise
        ending.came(item)
        try:
            resume, given = source.asend, (yield item)
        except GeneratorExit:
            with place.step():
                await source.aclose()
            ending.ended("left_early")
            raise
        except BaseException as error:  # noqa: BLE001  # thrown in: it is the generator's
            resume, given = source.athrow, error
        if given is not None:
            ending.sent(given)


class _Async:
    """A generator that waits for nothing, as an async one. `cancels`: but for the cancel that was its end on the tape."""

    def __init__(self, source: Generator[Any, Any, Any], cancels: bool = False) -> None:
        self._source = source
        self._cancels = cancels

    async def asend(self, value: object) -> object:
        return await self._in_turn(self._source.send, value)

    async def athrow(self, error: BaseException) -> object:
        return await self._in_turn(self._source.throw, error)

    async def _in_turn(self, resume: Callable[[Any], object], given: object) -> object:
        try:
            return self._next(resume, given)
        except BaseException as error:
            if self._cancels and not isinstance(error, StopAsyncIteration):
                await ambient.until_cancelled()
            raise

    async def aclose(self) -> None:
        self._source.close()

    def _next(self, resume: Callable[[Any], object], given: object) -> object:
        try:
            return resume(given)
        except StopIteration:
            raise StopAsyncIteration from None


# --- tools ------------------------------------------------------------------------------------------------------------


def tool_steps(request: Callable[[], Call], start: Callable[[], Any]) -> Generator[Any, Any, Any]:
    """A generator tool's call, made when its first item is asked for. `start` makes the real generator."""
    return steps(lambda: _open_tool(request, start, lambda source, _: source))


def atool_steps(request: Callable[[], Call], start: Callable[[], Any]) -> AsyncGenerator[Any, Any]:
    """Async twin of `tool_steps`."""
    return asteps(lambda: _open_tool(request, start, _Async))


def _open_tool(
    request: Callable[[], Call], start: Callable[[], Any], shape: Callable[[Generator[Any, Any, Any], bool], Any]
) -> _Opened:
    boundary = ambient.current()
    if boundary is None:
        return _Opened(start())
    made = request()
    decision = boundary.decide(made)
    if isinstance(decision, Serve):
        return _Opened(shape(_again(boundary, made, _given(decision), decision.reading), decision.cancels > 0))
    with ambient.performed(decision, made.kind):
        place = _Place(here())
        if decision.instead is None:
            return _Opened(start(), place, _ToolEnding(boundary, made, decision, place))
    return _Opened(shape(_instead(boundary, made, decision), False))


class _ToolEnding(_Ending):
    """Tells the boundary of a tool's items when the last has come."""

    def __init__(self, boundary: Boundary, request: Call, perform: Perform, place: _Place) -> None:
        self._boundary = boundary
        self._place = place
        self._request = request
        self._perform = perform
        self._seen = Yielded()
        self._over = False
        perform.left = self._left

    def came(self, item: object) -> None:
        self._seen.items.append(codecs.encode(item).wire)

    def sent(self, value: object) -> None:
        if not self._over:
            _say_sent(self._request, value)

    def cancelled(self, times: int) -> None:
        if times:
            self._perform.facts["cancels"] = times

    def _left(self) -> None:
        """The run ends. Of a step that is not done nobody knows what it will give."""
        if not self._place.busy:
            self.ended("left_early")

    def ended(self, how: How, returned: object = None, error: BaseException | None = None) -> None:
        if self._over:
            return
        self._over = True
        self._perform.ended = ambient.monotonic_ms()
        seen = self._seen
        if error is not None and not seen.items:
            self._boundary.failed(self._perform, error)
            return
        if self._request.effect == "write" and (how == "left_early" or (error is not None and says_nothing(error))):
            self._perform.facts[HALF_DONE] = True
        seen.how, seen.returned = how, None if returned is None else codecs.encode(returned).wire
        if error is not None:
            seen.error = codecs.encode(error).wire
            self._perform.facts["error_class"] = type(error).__qualname__
        self._boundary.finished(self._perform, seen)


def _say_sent(request: Call, value: object) -> None:
    """What the program sends into a generator it says of its own accord: it is compared as a state is."""
    encoded = codecs.encode(value)
    said = Call(
        kind="state",
        name=f"sent to {request.name}",
        input=encoded.wire,
        encode=lambda _: encoded.wire,
        decode=lambda _: None,
        lost=tuple((lost.path, lost.type) for lost in encoded.unrecordable),
    )
    ambient.call(said, lambda: None)


def _given(decision: Serve) -> Yielded:
    if decision.handed is not None:
        decision.handed(False)
    if decision.error is not None:
        if decision.cancels:  # that is to come when the first item is asked for
            return Yielded(how="raised", error=codecs.encode(decision.error).wire)
        raise decision.error
    return decision.value if isinstance(decision.value, Yielded) else back(codecs.encode(decision.value).wire)


def _instead(boundary: Boundary, request: Call, decision: Perform) -> Generator[Any, Any, Any]:
    """What stands in for the tool gives all its items at once."""
    assert decision.instead is not None, "checked before"
    try:
        with ambient.performed(decision, request.kind):
            value = decision.instead()
    except BaseException as error:
        boundary.failed(decision, error)
        raise
    return (yield from _again(boundary, request, back(wire(boundary.finished(decision, value)))))


def _again(
    boundary: Boundary, request: Call, recorded: Yielded, reading: Reading | None = None
) -> Generator[Any, Any, Any]:
    """The recorded items, as many as the program took then. Asking for more is a call that was not recorded."""
    taken = _Taken(recorded, reading)
    for item in recorded.items:
        taken.count += 1
        try:
            value = yield codecs.decode(item)
        except GeneratorExit:
            taken.left()
            raise
        except BaseException as error:  # noqa: BLE001  # it was thrown into the tool, whose answer was recorded
            value = error
        if taken.over:
            break  # the run is; nobody compares what happens to what it left
        if value is not None:
            _say_sent(request, value)
    if recorded.how == "left_early" and not taken.over:
        if reading is not None:
            raise reading.further(f"the program reads on after {taken.count} items, where the recorded one had left")
        boundary.decide(replace(request, input={"item": len(recorded.items), "of": request.input}))
    taken.over = True
    if recorded.how == "raised":
        error = codecs.decode(recorded.error)
        raise error if isinstance(error, BaseException) else RuntimeError(str(error))
    return codecs.decode(recorded.returned)


class _Taken:
    """How many of the recorded items the program took."""

    def __init__(self, recorded: Yielded, reading: Reading | None) -> None:
        self.count = 0
        self.over = False
        self._recorded = recorded
        self._reading = reading
        if reading is not None:
            reading.ended = self.left

    def left(self) -> None:
        """The program takes no more: as recorded, or not."""
        if self.over:
            return
        self.over = True
        how, whole = self._recorded.how, len(self._recorded.items)
        if self._reading is None or (how == "left_early" and self.count == whole):
            return
        other = "left later" if how == "left_early" else "went on to the end"
        self._reading.less(f"the program left after {self.count} of {whole} items, the recorded one {other}")


# --- agents -----------------------------------------------------------------------------------------------------------


def all_of(result: object) -> object:
    """Of an agent that yields: the list of all that it yields, or for an async one what to await for it. Else the result."""
    if getattr(result, "gi_code", None) is steps.__code__:
        return list(cast("Generator[object]", result))
    if getattr(result, "ag_code", None) is asteps.__code__:
        return _all(cast("AsyncGenerator[object]", result))
    return result


async def _all(items: AsyncGenerator[object]) -> list[object]:
    return [item async for item in items]


def open_agent(session: Session, start: Callable[[], Any]) -> _Opened:
    """A run whose agent yields: it goes on as long as its items are asked for."""
    with ambient.inside(session.boundary):
        return _Opened(start(), _Place(here()), _AgentEnding(session))


def open_span(request: Call, start: Callable[[], Any]) -> _Opened:
    """The same inside of another run: a step of it."""
    boundary = ambient.current()
    assert boundary is not None, "inside of a run"
    decision = boundary.decide(request)
    assert isinstance(decision, Perform), "a nested agent is run again, never served"
    with ambient.performed(decision, request.kind):
        place = _Place(here())
        return _Opened(start(), place, _ToolEnding(boundary, request, decision, place))


class _AgentEnding(_Ending):
    """Ends the session with what the agent yielded."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen: list[object] = []

    def came(self, item: object) -> None:
        self._seen.append(codecs.decode(codecs.encode(item).wire))

    def ended(self, how: How, returned: object = None, error: BaseException | None = None) -> None:
        if error is not None:
            self._session.failed(error)
        elif how == "left_early":
            self._session.failed(GeneratorExit())
        else:
            self._session.finished(self._seen if returned is None else {"yielded": self._seen, "returned": returned})
