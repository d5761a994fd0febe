"""Pydantic: models, secrets, URLs and what validation says. Pydantic is never imported here; its values mean that it is loaded."""

from __future__ import annotations

import sys
import types
from typing import Any, cast

from agentloupe.ports.codecs.missing import attributes_if_recorded
from agentloupe.ports.codecs.objects import bare, family, written_class
from agentloupe.ports.codecs.walk import Codec, Inner, Value, add_codec, attributes, items, only
from agentloupe.words.canonical import Json
from agentloupe.words.errors import NotRebuildable

__all__ = ["add_codecs"]

_REMOVED = "[removed:secret]"
"""What a value says that its own type calls a secret: it is never recorded, whatever the rules are."""


def _loaded(module: str, name: str) -> type | None:
    """A class of pydantic, where something has loaded it."""
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None


def _is(value: object, module: str, name: str) -> bool:
    cls = _loaded(module, name)
    return cls is not None and isinstance(value, cls)


def _base(module: str, name: str) -> type:
    cls = _loaded(module, name)
    if cls is None:
        raise NotRebuildable(f"a value of pydantic ({name}) was recorded, and pydantic is not loaded here")
    return cls


# --- models -----------------------------------------------------------------------------------------------------------


def _is_model(value: object) -> bool:
    return _is(value, "pydantic.main", "BaseModel") and hasattr(value, "__pydantic_fields_set__")


def _write_model(value: Any, inner: Inner) -> Json:
    """Class, fields as they are (extra ones apart), and what else pydantic keeps, where it is not the usual."""
    inner.may_close_circles()
    held = cast("dict[str, object]", value.__dict__)
    extra = cast("dict[str, object] | None", value.__pydantic_extra__)
    private = cast("dict[str, object] | None", value.__pydantic_private__)
    fields_set = cast("set[str]", value.__pydantic_fields_set__)
    more: dict[str, Json] = {}
    if extra is not None:
        more["extra"] = {name: inner(item, name) for name, item in extra.items()}
    if private is not None:
        more["private"] = {name: inner(item, name) for name, item in private.items()}
    if fields_set != held.keys():
        more["set"] = [*(n for n in held if n in fields_set), *sorted(n for n in fields_set if n not in held)]
    return [written_class(value.__class__), {name: inner(item, name) for name, item in held.items()}, more]


def _read_model(wire: Json, value: Value) -> object:
    name, inside, more = only(wire, object, dict, dict)
    made = value.begin(bare(family(name, _base("pydantic.main", "BaseModel"), "pydantic model")))
    extra, private = more.get("extra"), more.get("private")
    put = object.__setattr__
    put(made, "__dict__", fields := attributes(inside, value))
    chosen = more.get("set")
    put(made, "__pydantic_fields_set__", set(fields) if chosen is None else set(items(chosen, value)))
    _put_beside(made, "__pydantic_extra__", None if extra is None else attributes(extra, value))
    _put_beside(made, "__pydantic_private__", None if private is None else attributes_if_recorded(private, value))
    return made


def _put_beside(made: Any, name: str, held: object) -> None:
    """Of a root model, nothing is what the class says, and has no place in the value."""
    if held is not None or isinstance(getattr(made.__class__, name, None), types.MemberDescriptorType):
        object.__setattr__(made, name, held)


# --- the time zones of moments that pydantic has read from text ---------------------------------------------------------


def _write_zone(value: Any, _: Inner) -> Json:
    _, (seconds,) = value.__reduce__()
    return seconds


def _read_zone(wire: Json, _: Value) -> object:
    if not isinstance(wire, int):
        raise NotRebuildable("a recorded time zone of pydantic has no seconds")
    return cast("Any", _base("pydantic_core", "TzInfo"))(wire)


# --- secrets and URLs ---------------------------------------------------------------------------------------------------


def _is_secret(value: object) -> bool:
    return _is(value, "pydantic.types", "SecretStr") or _is(value, "pydantic.types", "SecretBytes")


def _write_secret(value: object, _: Inner) -> Json:
    return written_class(type(value))


def _read_secret(wire: Json, _: Value) -> object:
    cls = family(wire, _base("pydantic.types", "_SecretBase"), "secret of pydantic")
    made = bare(cls)
    made.__dict__["_secret_value"] = (
        _REMOVED.encode() if issubclass(cls, _base("pydantic.types", "SecretBytes")) else _REMOVED
    )
    return made


def _is_url(value: object) -> bool:
    return _is(value, "pydantic.networks", "_BaseUrl") or _is(value, "pydantic.networks", "_BaseMultiHostUrl")


def _write_url(value: Any, _: Inner) -> Json:
    core = value.__dict__["_url"]
    return [written_class(value.__class__), type(core).__name__, str(core)]


def _read_url(wire: Json, _: Value) -> object:
    name, kind, text = only(wire, object, str, str)
    if kind not in ("Url", "MultiHostUrl"):
        raise NotRebuildable("a recorded URL is of a kind that this version does not know")
    cls = family(name, None, "URL")
    if not _is_url(made := bare(cls)):
        raise NotRebuildable("a recorded URL is no URL of pydantic here")
    made.__dict__["_url"] = cast("Any", _base("pydantic_core", kind))(text)
    return made


# --- what validation says -----------------------------------------------------------------------------------------------


def _write_faults(error: Any, inner: Inner) -> Json:
    """Title, faults, and in what mode: what its own `__reduce__` makes it from."""
    _, (title, faults, mode, hidden) = error.__reduce__()
    told = [{name: item for name, item in fault.items() if name not in ("msg", "url")} for fault in faults]
    return [title, inner(told, "errors()"), mode, hidden]


def _read_faults(wire: Json, value: Value) -> object:
    title, told, mode, hidden = only(wire, str, list, str, bool)
    cls: Any = _base("pydantic_core", "ValidationError")
    return cls.from_exception_data(title, items(told, value), mode, hidden)


def add_codecs() -> None:
    """Adds the codecs of this module."""
    add_codec(Codec("$model", _is_model, _write_model, _read_model))
    add_codec(Codec("$secret", _is_secret, _write_secret, _read_secret))
    add_codec(Codec("$pydantic_zone", lambda v: _is(v, "pydantic_core", "TzInfo"), _write_zone, _read_zone))
    add_codec(Codec("$pydantic_url", _is_url, _write_url, _read_url))
    add_codec(Codec("$faults", lambda v: _is(v, "pydantic_core", "ValidationError"), _write_faults, _read_faults))
