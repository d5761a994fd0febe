"""How a recorded agent writes its history, learnt from its requests, so that the plain loop goes on in its hand.

An unchanged fork must be unchanged to the letter: a small model answers `{"a":1}` otherwise than `{"a": 1}`. What a loop can
choose is how it spells a tool's result, and whether members that are null stay in an assistant message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from agentloupe.engine.cautions import Pair, read_history
from agentloupe.words.arguments import parse_arguments
from agentloupe.words.canonical import Json, canonical, dumps, key_of, loads

__all__ = ["PLAIN", "Manner", "learn_manner", "manner_from_json"]

Spelling = Literal["compact", "spaced", "escaped"]
"""JSON without spaces; with a space after `,` and `:` (Python's default); the same with non-ASCII characters escaped."""

Nulls = Literal["content", "kept", "dropped"]
"""Members of an assistant message that are null: only `content` stays, all stay, none stays."""

_SPELL: Mapping[Spelling, Callable[[Json], str]] = {
    "compact": lambda value: dumps(value).decode("utf-8", "surrogatepass"),
    "spaced": lambda value: json.dumps(value, ensure_ascii=False),
    "escaped": json.dumps,
}


@dataclass(frozen=True, slots=True)
class Manner:
    """One way of writing a history.

    Attributes:
        nulls: what becomes of null members of an assistant message.
        spelling: of results that are not text.
        texts: results that were written in another way, by matching key of the call: every text that was seen.
    """

    nulls: Nulls = "content"
    spelling: Spelling = "compact"
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])

    def message(self, message: Mapping[str, Json]) -> dict[str, Json]:
        """The assistant message as it goes back in the next request: whole, with its reasoning."""
        if self.nulls == "kept":
            return dict(message)
        keep = "content" if self.nulls == "content" else None
        return {name: value for name, value in message.items() if value is not None or name == keep}

    def result(self, name: str, arguments: Json, value: Json) -> str:
        """A tool's result as the content of a message: a text as it is, anything else as JSON."""
        for text in self.texts.get(key_of("tool", name, arguments), ()) if self.texts else ():
            if _says(text, value):
                return text
        return self.spell_result(value)

    def spell_result(self, value: Json) -> str:
        """A result that was never written before."""
        return value if isinstance(value, str) else _SPELL[self.spelling](value)

    def error(self, text: str) -> str:
        """A tool's error: an object with the single member `error`, unescaped."""
        return _SPELL["compact" if self.spelling == "compact" else "spaced"]({"error": text})

    def as_json(self) -> Json:
        """For `run.started` of the run that is written in this manner."""
        texts: dict[str, Json] = {key: list(seen) for key, seen in self.texts.items()}
        return {"nulls": self.nulls, "spelling": self.spelling, "texts": texts}


PLAIN = Manner()


def manner_from_json(value: Json) -> Manner:
    """Reads `Manner.as_json` back; what is not understood is plain."""
    if not isinstance(value, dict):
        return PLAIN
    nulls, spelling, texts = value.get("nulls"), value.get("spelling"), value.get("texts")
    seen = {k: tuple(map(str, v)) for k, v in texts.items() if isinstance(v, list)} if isinstance(texts, dict) else {}
    return Manner(
        cast("Nulls", nulls) if nulls in get_args(Nulls) else PLAIN.nulls,
        cast("Spelling", spelling) if spelling in get_args(Spelling) else PLAIN.spelling,
        seen,
    )


def learn_manner(requests: Iterable[Mapping[str, Json] | None]) -> Manner:
    """Learns from recorded chat requests, whose histories hold what the agent wrote. Nothing to see is `PLAIN`."""
    histories = [messages for r in requests if r is not None and isinstance(messages := r.get("messages"), list)]
    pairs = [pair for history in histories for pair in read_history(history).pairs]
    spelling = _spelling(pairs)
    texts: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        text = pair.content
        value = _value(text) if isinstance(text, str) else None
        if isinstance(text, str) and value is not None and _SPELL[spelling](value) != text:
            key = key_of("tool", pair.name, _arguments(pair.raw))
            texts[key] = tuple(dict.fromkeys((*texts.get(key, ()), text)))
    return Manner(_nulls([message for history in histories for message in history]), spelling, texts)


def _spelling(pairs: Sequence[Pair]) -> Spelling:
    """The spelling that gives the most of the results again; the first of equals."""
    written = [pair.content for pair in pairs if isinstance(pair.content, str)]
    values = [(text, value) for text in dict.fromkeys(written) if (value := _value(text)) is not None]

    def fits(spelling: Spelling) -> int:
        return sum(_SPELL[spelling](value) == text for text, value in values)

    return max(cast("tuple[Spelling, ...]", get_args(Spelling)), key=fits)


def _nulls(messages: Sequence[Json]) -> Nulls:
    """Seen from assistant messages that ask for tools: most of them have no content."""
    for message in messages:
        if not isinstance(message, dict) or message.get("role") != "assistant" or not message.get("tool_calls"):
            continue
        if any(value is None for name, value in message.items() if name != "content"):
            return "kept"
        if "content" not in message:
            return "dropped"
    return PLAIN.nulls


def _value(text: str) -> Json:
    """The object or list that a text spells, or `None`."""
    if not text.startswith(("{", "[")):
        return None
    try:
        return loads(text)
    except ValueError:
        return None


def _says(text: str, value: Json) -> bool:
    return canonical(_value(text)) == canonical(value)


def _arguments(raw: Json) -> Json:
    parsed = parse_arguments(raw if isinstance(raw, str | dict) else None)
    return parsed.parsed if parsed.error is None else raw
