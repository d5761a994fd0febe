"""What stands for a part that could not be recorded, in a value that is rebuilt all the same."""

from __future__ import annotations

from typing import Any, Never

from agentloupe.ports.codecs.tags import tag_of
from agentloupe.ports.codecs.walk import Value
from agentloupe.words.canonical import Json
from agentloupe.words.errors import NotRebuildable

__all__ = ["Missing", "attributes_if_recorded", "missing_type"]


class Missing:
    """A part that was not recordable. It may be held and passed on; whoever uses it is told what it was. `text`: its `repr`."""

    __slots__ = ("_loupe_path", "_loupe_text", "_loupe_type")

    def __init__(self, kind: str, path: str, text: str | None = None) -> None:
        self._loupe_type = kind
        self._loupe_path = path
        self._loupe_text = f"<not recordable: {kind} at {path}>" if text is None else text

    def __repr__(self) -> str:
        return self._loupe_text

    def _refuse(self, *_: Any, **__: Any) -> Never:
        raise NotRebuildable(f"a value of type {self._loupe_type} at {self._loupe_path} was not recordable")

    def __getattr__(self, _: str) -> Never:
        self._refuse()

    __call__ = __iter__ = __next__ = __len__ = __bool__ = __contains__ = __getitem__ = __setitem__ = _refuse
    __enter__ = __exit__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __str__ = __int__ = __float__ = _refuse
    __hash__ = object.__hash__


def missing_type(part: Missing) -> str:
    """Of which type a part was."""
    kind: str = object.__getattribute__(part, "_loupe_type")
    return kind


def attributes_if_recorded(wire: Json, value: Value) -> dict[str, Any]:
    """Attributes by name, decoded; those that were not recordable as `Missing`."""
    if not isinstance(wire, dict):
        raise NotRebuildable("recorded attributes are no object")
    return {name: _part(item, value) for name, item in wire.items()}


def _part(wire: Json, value: Value) -> object:
    lost = wire.get("$unrecordable") if isinstance(wire, dict) and tag_of(wire) == "$unrecordable" else None
    return Missing(str(lost.get("type")), str(lost.get("path"))) if isinstance(lost, dict) else value(wire)
