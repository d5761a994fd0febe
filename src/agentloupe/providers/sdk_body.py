"""The body of a request as a model SDK will send it, known before it is sent.

The SDK's own way from arguments to bytes costs a millisecond for a short request and tens for a long one. A replay sends
nothing, so it need not walk it: this is the same result by serialisation. That it is the same is checked at every
recorded call against the bytes that went out (`Body.differs`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import lru_cache
from typing import Any, cast

import orjson

from agentloupe.words.canonical import Json
from agentloupe.words.jsontext import parsed

__all__ = ["OPTIONS", "Body", "ConsumedOnce", "body_of", "json_copy", "key_order", "left_out", "settled"]

OPTIONS = frozenset({"extra_headers", "extra_query", "extra_body", "timeout"})
"""Arguments of `create` that steer the request and are no part of its body."""

_PASS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


@dataclass(frozen=True, slots=True)
class Body:
    """A request body.

    Attributes:
        value: a copy that nobody else holds.
        text: its bytes, when the short way made it.
        lost: paths that hold no JSON, with their types; the SDK will refuse to send those.
    """

    value: dict[str, Json]
    text: bytes | None
    lost: tuple[tuple[str, str], ...] = ()

    def differs(self, sent: bytes) -> Json:
        """What was sent, if it is another JSON value than this one; `None` if it is the same, or no JSON."""
        if sent == self.text:
            return None
        try:
            value = parsed(sent)
        except ValueError:
            return None
        return None if value == self.value else value


def body_of(arguments: Mapping[str, Any], order: tuple[str, ...] = ()) -> Body:
    """The body made of the arguments of `create`: what is not given left out, `extra_body` merged over it.

    Args:
        arguments: as the caller gave them, see `settled` for iterators.
        order: in which the SDK writes the members, see `key_order`.

    Raises:
        ConsumedOnce: an argument holds an iterator, which reading would use up.
    """
    body = {name: arguments[name] for name in order if name in arguments}
    body.update((name, value) for name, value in arguments.items() if name not in OPTIONS)
    extra = arguments.get("extra_body")
    if isinstance(extra, Mapping):
        body.update(cast("Mapping[str, Any]", extra))
    marks = _loaded_marks()
    return json_copy({name: value for name, value in body.items() if not isinstance(value, marks)})


def json_copy(members: Mapping[str, Any]) -> Body:
    """A deep copy as the SDK would write it: messages that are SDK objects dumped, tuples and iterables as lists."""
    try:
        text = orjson.dumps(members, default=_plain, option=_PASS)
    except TypeError as error:
        if isinstance(error.__cause__, ConsumedOnce):
            raise error.__cause__ from None
    else:
        return Body(orjson.loads(text), text)
    lost: list[tuple[str, str]] = []
    return Body({name: _walk(value, f"$.{name}", lost) for name, value in members.items()}, None, tuple(lost))


class ConsumedOnce(Exception):
    """An iterator stands among the arguments: reading it would take it away from the SDK."""


def settled(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with every iterator in them made a list, so that they can be read twice."""
    return {name: value if name in OPTIONS - {"extra_body"} else _settle(value) for name, value in arguments.items()}


def _settle(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _settle(v) for k, v in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple | Iterator):
        return [_settle(v) for v in cast("Iterable[Any]", value)]
    return value


# --- values -----------------------------------------------------------------------------------------------------------


@lru_cache(4)
def _marks(openai: bool, anthropic: bool) -> tuple[type, ...]:
    """The marks for "not given" of the SDKs that are loaded."""
    loaded = [name for name, there in (("openai", openai), ("anthropic", anthropic)) if there]
    named = [getattr(sys.modules[f"{sdk}._types"], name, None) for sdk in loaded for name in ("NotGiven", "Omit")]
    return tuple(mark for mark in named if isinstance(mark, type))


def _loaded_marks() -> tuple[type, ...]:
    return _marks("openai._types" in sys.modules, "anthropic._types" in sys.modules)


def left_out(value: object) -> bool:
    """Whether this is one of an SDK's marks for "not given"."""
    return isinstance(value, _loaded_marks())


def _is_object(value: object) -> bool:
    """Whether this is an object of an SDK, or another model of pydantic: they dump those alike."""
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return base is not None and isinstance(value, base)


def _plain(value: Any) -> Any:
    """One level of what orjson does not know."""
    if _is_object(value):
        return _dumped(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {k: v for k, v in cast("Mapping[Any, Any]", value).items() if not left_out(v)}
    if isinstance(value, Iterator):
        raise ConsumedOnce
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return list(cast("Iterable[Any]", value))
    raise TypeError


def _dumped(value: Any) -> Any:
    """An SDK object in a request, dumped as the SDK does it."""
    return value.model_dump(mode="json", exclude_unset=True, exclude=getattr(value, "__api_exclude__", None))


def _walk(value: Any, path: str, lost: list[tuple[str, str]]) -> Json:
    """The long way: large integers, other keys than text, marks deep inside, things that are no JSON."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, Enum) and isinstance(value, str | int):
        return _walk(value.value, path, lost)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value)
        return {_key(k): _walk(v, f"{path}.{k}", lost) for k, v in members.items() if not left_out(v)}
    if isinstance(value, list | tuple):
        return [_walk(v, f"{path}[{i}]", lost) for i, v in enumerate(cast("Iterable[Any]", value))]
    try:
        return _walk(_plain(value), path, lost)
    except TypeError:
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        lost.append((path, name))
        return {"$unrecordable": name}


def _key(key: object) -> str:
    """A member's name, as Python's own JSON writer makes it."""
    if isinstance(key, bool) or key is None:
        return {True: "true", False: "false", None: "null"}[key]
    return key if isinstance(key, str) else repr(key)


# --- order ------------------------------------------------------------------------------------------------------------


class _Probe:
    """Stands where a resource stands, and takes what it would post."""

    def __init__(self, asynchronous: bool) -> None:
        self.members: tuple[str, ...] = ()
        self._post = self._later if asynchronous else self._take

    def _take(self, *_: object, body: Mapping[str, object], **__: object) -> None:
        self.members = tuple(body)

    async def _later(self, *_: object, body: Mapping[str, object], **__: object) -> None:
        self.members = tuple(body)


@lru_cache(64)
def key_order(create: Callable[..., Any]) -> tuple[str, ...]:
    """In which order this version of the SDK writes a request's members; empty if it does not show.

    Found by letting the SDK make one body out of nothing. Without it everything works, more slowly.
    """
    names = [p.name for p in inspect.signature(create).parameters.values() if p.kind is p.KEYWORD_ONLY]
    arguments = dict.fromkeys(n for n in names if n not in OPTIONS)
    asynchronous = inspect.iscoroutinefunction(inspect.unwrap(create))
    probe = _Probe(asynchronous)
    try:
        made = create(probe, **arguments)
        if asynchronous:
            made.send(None)
    except StopIteration:
        pass
    except Exception:  # noqa: BLE001 - another version of the SDK may do anything here; the order is only a help
        return ()
    return probe.members
