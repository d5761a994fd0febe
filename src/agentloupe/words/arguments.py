"""What a model puts into the arguments of a tool call: kept as it is, parsed only where there is one meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentloupe.words.jsontext import Json, JsonFault, loads

__all__ = ["Arguments", "parse_arguments"]


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one tool call.

    Attributes:
        raw: what was sent, untouched.
        parsed: the arguments by name; `None` where the text has no single meaning (then the tool must not run).
        error: why not, with the position in characters; `None` exactly where `parsed` is there. Holds no payload.
    """

    raw: str | Mapping[str, Json] | None
    parsed: dict[str, Json] | None
    error: str | None = None


def parse_arguments(raw: str | Mapping[str, Json] | None) -> Arguments:
    """Reads the arguments of a tool call. Never raises.

    Nothing, blank text and `null` are no arguments: `{}`. Text must be strict JSON (RFC 8259) whose value is an object:
    duplicate keys, `NaN`, a cut text, a list and a JSON string that holds JSON again are errors, never guessed at.
    """
    if raw is None:
        return Arguments(raw, {})
    if not isinstance(raw, str):
        return Arguments(raw, dict(raw))
    text = raw.strip(" \t\n\r")
    if not text or text == "null":
        return Arguments(raw, {})
    try:
        value = loads(raw)
    except JsonFault as fault:
        return Arguments(raw, None, f"not strict JSON: {fault}")
    if isinstance(value, dict):
        return Arguments(raw, value)
    return Arguments(raw, None, _not_an_object(value, raw))


def _not_an_object(value: Json, raw: str) -> str:
    start = len(raw) - len(raw.lstrip(" \t\n\r"))
    if isinstance(value, str):
        twice = _is_object(value)
        what = "a JSON string that holds an object (encoded twice)" if twice else "a JSON string"
    else:
        what = "a list" if isinstance(value, list) else "a bare value"
    return f"not an object but {what} at character {start}"


def _is_object(text: str) -> bool:
    try:
        return isinstance(loads(text), dict)
    except ValueError:
        return False
