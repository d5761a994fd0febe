"""What the program reads from the world and says of itself: clock, chance, ids, environment, retrieval, state, checks.

Inside a run it is recorded. Chance comes from the standard `random` module, so a program that seeds it draws the same
numbers with and without Loupe.
"""

from __future__ import annotations

import inspect
import os
import random as chance
import uuid
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar, cast, overload

from agentloupe.engine.tape import PATCHED
from agentloupe.ports import ambient, codecs
from agentloupe.ports.faultpoints import reach
from agentloupe.words.call import Call, Kind
from agentloupe.words.jsontext import Json

__all__ = ["Rng", "chance_kept", "check", "env", "now", "patched", "random", "retrieve", "rng", "state", "uuid4"]

R = TypeVar("R")
T = TypeVar("T")


def _encode(value: object) -> Json:
    return codecs.encode(value).wire


def _lost(encoded: codecs.Encoded) -> tuple[tuple[str, str], ...]:
    return tuple((lost.path, lost.type) for lost in encoded.unrecordable)


def _read(kind: Kind, name: str, perform: Callable[[], T], arguments: Json = None) -> T:
    if ambient.current() is None:
        return perform()
    call = _plain(kind, name) if arguments is None else _call(kind, name, arguments)
    return ambient.call(call, perform)


def _drawn(name: str, draw: Callable[[], T], arguments: Json = None) -> T:
    """A draw from the program's own stream of chance. One that is answered moves it on as well, for draws that Loupe does not see."""
    drawn: list[bool] = []

    def perform() -> T:
        drawn.append(True)
        return draw()

    value = _read("random", name, perform, arguments)
    if not drawn:
        draw()
    return value


@contextmanager
def chance_kept() -> Generator[None]:
    """Whoever runs a program inside finds the stream of chance where it was."""
    state = chance.getstate()
    try:
        yield
    finally:
        chance.setstate(state)


def _call(kind: Kind, name: str, arguments: Json) -> Call:
    return Call(kind=kind, name=name, input=arguments, encode=_encode, decode=codecs.decode, cheap=True)


@lru_cache(256)
def _plain(kind: Kind, name: str) -> Call:
    """A read without arguments is the same call every time."""
    return _call(kind, name, None)


# --- clock, chance, ids, environment ----------------------------------------------------------------------------------


def now() -> datetime:
    """The time, aware, in UTC; recorded."""
    return _read("clock", "now", lambda: datetime.now(UTC))


def random() -> float:
    """A number in [0, 1) from the `random` module; recorded."""
    return _drawn("random", chance.random)


def uuid4() -> uuid.UUID:
    """A random UUID; recorded."""
    return _read("id", "uuid4", uuid.uuid4)


@overload
def env(name: str) -> str | None: ...
@overload
def env(name: str, default: str) -> str: ...
def env(name: str, default: str | None = None) -> str | None:
    """An environment variable; recorded, except that what its name or shape shows to be a credential is not kept.

    The default is the program's own word, and not recorded: a replay uses the one of the code that it runs.
    """
    found = _read("env", name, lambda: os.environ.get(name))
    return default if found is None else found


class Rng:
    """Further draws from the `random` module, recorded: `loupe.rng.randint(1, 6)`.

    Of things only the places that were drawn are recorded, so any things will do.
    """

    def randint(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return _drawn("randint", lambda: chance.randint(low, high), [low, high])  # noqa: S311  # the program's

    def uniform(self, low: float, high: float) -> float:
        """A number between two."""
        return _drawn("uniform", lambda: chance.uniform(low, high), [low, high])  # noqa: S311  # the program's

    def gauss(self, mean: float = 0.0, deviation: float = 1.0) -> float:
        """A number from a normal distribution."""
        return _drawn("gauss", lambda: chance.gauss(mean, deviation), [mean, deviation])

    def choice(self, things: Sequence[T]) -> T:
        """One of several. Raises `IndexError` when there are none."""
        if not things:
            raise IndexError("cannot choose from an empty sequence")
        # The draw that `random.choice` makes, so that a seed gives the same.
        return things[_drawn("choice", lambda: chance.randrange(len(things)), [len(things)])]  # noqa: S311  # see above

    def sample(self, things: Sequence[T], count: int) -> list[T]:
        """Several of several, without repetition."""
        size = len(things)
        return [things[at] for at in _drawn("sample", lambda: chance.sample(range(size), count), [size, count])]

    def shuffle(self, things: list[T]) -> None:
        """Puts a list into a new order, in place."""
        order = _drawn("shuffle", lambda: _shuffled(len(things)), [len(things)])
        things[:] = [things[at] for at in order]


def _shuffled(count: int) -> list[int]:
    places = list(range(count))
    chance.shuffle(places)
    return places


rng = Rng()


# --- retrieval, state, checks -----------------------------------------------------------------------------------------


@overload
def retrieve(
    index: str, query: object, fetch: Callable[..., Awaitable[R]], *, version: str | None = None, **options: Any
) -> Awaitable[R]: ...
@overload
def retrieve(
    index: str, query: object, fetch: Callable[..., R], *, version: str | None = None, **options: Any
) -> R: ...
def retrieve(
    index: str, query: object, fetch: Callable[..., Any], *, version: str | None = None, **options: Any
) -> Any:
    """Looks documents up by `fetch(query, **options)`, sync or async; recorded as a retrieval.

    Args:
        index: name of the index.
        query: what is looked for.
        fetch: does it; its result (documents with ids, versions and scores, in order) is recorded and returned.
        version: the index's version; default: `index_version` of the result, if it is a mapping that has one.
        options: filter and the like, handed on to `fetch` and recorded.
    """
    if inspect.iscoroutinefunction(fetch):
        if ambient.current() is None:
            return fetch(query, **options)
        return ambient.acall(_retrieval(index, query, version, options), lambda: fetch(query, **options))
    if ambient.current() is None:
        return fetch(query, **options)
    return ambient.call(_retrieval(index, query, version, options), lambda: fetch(query, **options))


def _retrieval(index: str, query: object, version: str | None, options: Mapping[str, Any]) -> Call:
    encoded = codecs.encode({"query": query, **options})

    def wire(documents: object) -> Json:
        found: object = version
        if isinstance(documents, Mapping) and version is None:
            found = cast("Mapping[str, object]", documents).get("index_version")
        return {"index_version": _encode(found), "documents": _encode(cast("object", documents))}

    def back(stored: Json) -> object:
        return codecs.decode(stored["documents"] if isinstance(stored, dict) and "documents" in stored else stored)

    return Call(
        kind="retrieval",
        name=index,
        input=encoded.wire,
        encode=wire,
        decode=back,
        lost=_lost(encoded),
    )


def state(name: str, value: T) -> T:
    """Records that a state of the program has changed, and returns the value.

    A run is `waiting` (for a person) from a state of that name until the next state, or its end.
    """
    if ambient.current() is None:
        return value
    encoded = codecs.encode(value)
    call = Call(
        kind="state",
        name=name,
        input=encoded.wire,
        encode=lambda _: encoded.wire,
        decode=lambda _: value,
        lost=_lost(encoded),
    )
    return ambient.call(call, lambda: value)


def check(name: str, passed: bool, details: object = None) -> bool:
    """Records the result of a check, and returns whether it passed."""
    if ambient.current() is None:
        return passed
    encoded = codecs.encode(details)
    call = Call(
        kind="check",
        name=name,
        input={"passed": bool(passed), "details": encoded.wire},
        attrs={"passed": bool(passed)},
        encode=lambda _: encoded.wire,
        decode=lambda _: passed,
        lost=_lost(encoded),
    )
    ambient.call(call, lambda: passed)
    reach("check.after_check")
    return passed


def patched(change: str) -> bool:
    """Lets long-lived recordings pass through a deliberate change of the code.

        if loupe.patched("ask twice"):
            ...  # the new way
        else:
            ...  # as it was when old recordings were made

    `True`, except in a replay of a recording that was made before the change. It has no place in the order of calls: it
    may be moved, and taken out once no recording without it is left.
    """
    if ambient.current() is None:
        return True
    call = Call(
        kind="check",
        name=f"{PATCHED}{change}",
        input=None,
        attrs={"passed": True},
        encode=lambda _: True,
        decode=lambda _: True,
        cheap=True,
    )
    return bool(ambient.call(call, lambda: True))
