"""Exceptions: rebuilt with their class, arguments and attributes, without running `__init__`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, cast

from agentloupe.ports.codecs.classes import class_wire, type_name
from agentloupe.ports.codecs.missing import Missing, attributes_if_recorded, missing_type
from agentloupe.ports.codecs.objects import family, set_state, state_of
from agentloupe.ports.codecs.walk import Codec, Inner, Value, add_codec, attributes, items, only
from agentloupe.words.canonical import Json
from agentloupe.words.errors import NotRebuildable

__all__ = ["error_line"]

_CHAIN = 16  # causes of causes

# What the C classes keep outside of `args` and `__dict__`.
_STATE: tuple[tuple[type[BaseException], tuple[str, ...]], ...] = (
    (OSError, ("errno", "strerror", "filename", "filename2")),
    (ImportError, ("msg", "name", "path")),
    (StopIteration, ("value",)),
    (SystemExit, ("code",)),
    (UnicodeDecodeError, ("encoding", "object", "start", "end", "reason")),
    (UnicodeEncodeError, ("encoding", "object", "start", "end", "reason")),
    (UnicodeTranslateError, ("object", "start", "end", "reason")),
    (SyntaxError, ("msg", "filename", "lineno", "offset", "text", "end_lineno", "end_offset", "print_file_and_line")),
    (AttributeError, ("name",)),
    (NameError, ("name",)),
)


_TELLING = frozenset({"urllib3.exceptions", "botocore.exceptions"})
_LIVE = frozenset({"urllib3.connection", "urllib3.connectionpool", "urllib3.response", "botocore.awsrequest"})
"""Modules of what works on a network, or is signed for it: exceptions of those hold it beside what they say. A pickle of
urllib3's leaves it out, too."""


def _without_live(error: BaseException, attrs: dict[str, object]) -> tuple[list[object], dict[str, Json]]:
    """The arguments of an exception without what is live; takes that out of its attributes. Types of that by name.

    Of an argument, by its place, also its `repr`: the text of an exception consists of those.
    """
    args, live = list(error.args), dict[str, Json]()
    if not _is_of(type(error), _TELLING):
        return args, live
    for name, item in [*attrs.items()]:
        if (kind := _live_type(item)) is not None:
            live[name] = kind
            del attrs[name]
    for at, item in enumerate(args):
        if (kind := _live_type(item)) is not None:
            live[str(at)] = [kind, repr(item)]
            args[at] = None
    return args, live


def _live_type(item: object) -> str | None:
    if isinstance(item, Missing):  # of an exception that was recorded and goes on in a replay
        return missing_type(item)
    return type_name(type(item)) if _is_of(type(item), _LIVE) else None


def _put_live(made: BaseException, live: Mapping[str, Json]) -> None:
    """What stands for what was live, in the places where it was."""
    args: list[object] = list(made.args)
    for name, wire in live.items():
        if isinstance(wire, str):
            set_state(made, {name: Missing(wire, f"$.{name}")})
        else:
            kind, text = only(wire, str, str)
            args[int(name)] = Missing(kind, f"$.args[{name}]", text)
    _set_args(made, args)


def _set_args(made: BaseException, args: Iterable[object]) -> None:
    BaseException.args.__set__(made, tuple(args))  # type: ignore[attr-defined]


def _is_of(cls: type, modules: Collection[str]) -> bool:
    return any(base.__module__ in modules for base in cls.__mro__)


def _c_state(error: BaseException) -> dict[str, object]:
    """What the C class under an exception keeps by itself, as far as it is set."""
    found: dict[str, object] = {}
    for cls, names in _STATE:
        if isinstance(error, cls):
            for name in names:
                item: object = cls.__dict__[name].__get__(error, type(error))
                if item is not None:
                    found[name] = item
    return found


def _write(error: BaseException, inner: Inner) -> Json:
    attrs = state_of(error)
    notes = attrs.pop("__notes__", None)
    args, live = _without_live(error, attrs)
    wire: dict[str, Json] = {
        "class": _class(error, inner),
        "message": _message(error),
        "args": [inner(item, f"args[{i}]") for i, item in enumerate(args)],
    }
    if live:
        wire["live"] = live
    if attrs:
        wire["attrs"] = {name: inner(item, name) for name, item in attrs.items()}
    state = _c_state(error)
    if state:
        wire["state"] = {name: inner(item, name) for name, item in state.items()}
    if notes is not None:
        wire["notes"] = inner(notes, "__notes__")
    wire.update(_chained(error, inner))
    if isinstance(error, BaseExceptionGroup):
        members = cast("BaseExceptionGroup[BaseException]", error).exceptions
        wire["args"] = []
        wire["text"] = error.message
        wire["members"] = [inner(member, f"exceptions[{i}]") for i, member in enumerate(members)]
    return wire


def _class(error: BaseException, inner: Inner) -> Json:
    """The class; also of one that cannot be found again: then it is listed as lost, and its name is for people."""
    wire = class_wire(type(error))
    if wire is None or not _can_be_made(type(error)):
        inner.lose(error)
        return f"{type(error).__module__}:{type(error).__qualname__}"
    return wire


@lru_cache(512)
def _can_be_made(cls: type[BaseException]) -> bool:
    """Whether the `__new__` of the interpreter makes one: not where a C type of somebody else lies between."""
    if issubclass(cls, BaseExceptionGroup):
        return True
    try:
        _builtin(cls).__new__(cls)
    except TypeError:
        return False
    return True


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # a user's __str__ that fails says nothing about the exception
        return ""


def _chained(error: BaseException, inner: Inner) -> dict[str, Json]:
    """Cause and context, not endlessly: each is an exception with its own."""
    wire: dict[str, Json] = {}
    if error.__cause__ is not None and _length(error.__cause__) < _CHAIN:
        wire["cause"] = inner(error.__cause__, "__cause__")
    context = error.__context__
    if context is not None and context is not error.__cause__ and _length(context) < _CHAIN:
        wire["context"] = inner(context, "__context__")
    if error.__suppress_context__:
        wire["suppress_context"] = True
    return wire


def _length(error: BaseException | None) -> int:
    count = 0
    while error is not None and count < _CHAIN:
        error = error.__cause__ or error.__context__
        count += 1
    return count


def _builtin(cls: type) -> type[BaseException]:
    """The nearest C class under an exception's class: its `__new__` is code of the interpreter."""
    for base in cls.__mro__:
        if base.__module__ == "builtins" and issubclass(base, BaseException):
            return base
    raise NotRebuildable("a class of exceptions that derives from none")


def _read(wire: Json, value: Value) -> object:
    if not isinstance(wire, dict):
        raise NotRebuildable("a recorded exception is no object")
    cls = family(wire.get("class"), BaseException, "exception")
    made = _blank(cls, wire, value)
    if "attrs" in wire:
        set_state(made, attributes_if_recorded(wire["attrs"], value))
    if isinstance(live := wire.get("live"), dict):
        _put_live(made, live)
    if "notes" in wire:
        made.__dict__["__notes__"] = value(wire["notes"])
    for name, item in attributes(wire.get("state", {}), value).items():
        _set_c_state(made, name, item)
    made.__cause__ = _exception(wire.get("cause"), value)
    made.__context__ = _exception(wire.get("context"), value) or made.__cause__
    made.__suppress_context__ = wire.get("suppress_context") is True
    return made


def _blank(cls: type, wire: dict[str, Json], value: Value) -> BaseException:
    base = cast("Any", _builtin(cls))
    if issubclass(cls, BaseExceptionGroup):
        text = wire.get("text")
        return base.__new__(cls, text if isinstance(text, str) else "", items(wire.get("members"), value))
    made: BaseException = base.__new__(cls)
    _set_args(made, items(wire.get("args", []), value))
    return made


def _set_c_state(made: BaseException, name: str, item: object) -> None:
    for cls, names in _STATE:
        if isinstance(made, cls) and name in names:
            cls.__dict__[name].__set__(made, item)
            return
    raise NotRebuildable(f"an exception of class {type(made).__qualname__} has no such state here")


def _exception(wire: Json, value: Value) -> BaseException | None:
    if wire is None:
        return None
    made = value(wire)
    return made if isinstance(made, BaseException) else None


def error_line(wire: Json) -> str:
    """A recorded exception in one line for people: `Class: message`. Other values as text."""
    inside = wire.get("$exception") if isinstance(wire, dict) else None
    if not isinstance(inside, dict):
        return wire if isinstance(wire, str) else "error"
    name = str(inside.get("class")).rpartition(":")[2].rpartition("<locals>.")[2]
    lines = str(inside.get("message") or "").strip().splitlines()
    return f"{name}: {lines[0]}" if lines else name


def add_codecs() -> None:
    """Adds the codec of exceptions."""
    add_codec(Codec("$exception", lambda value: isinstance(value, BaseException), _write, _read))
