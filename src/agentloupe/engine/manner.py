"""How a recorded agent writes its history, learnt from its requests, so that the plain loop goes on in its hand.

An unchanged fork must be unchanged to the letter: a small model answers `{"a":1}` otherwise than `{"a": 1}`. What a loop can
choose is how it spells a tool's result, and which members of what the model said it gives back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast, get_args

from agentloupe.engine.cautions import Pair, read_history
from agentloupe.words.arguments import parse_arguments
from agentloupe.words.canonical import Json, canonical, digest, dumps, key_of, loads
from agentloupe.words.turns import CHAT, Asked, Dialect, Told

__all__ = ["PLAIN", "Manner", "learn_manner", "manner_from_json"]

Spelling = Literal["compact", "spaced", "escaped"]
"""JSON without spaces; with a space after `,` and `:` (Python's default); the same with non-ASCII characters escaped."""

Nulls = Literal["content", "kept", "dropped", "empty"]
"""Members of an assistant message that are null: only `content` stays, all stay, none stays, only `content` as `""`."""

_SPELL: Mapping[Spelling, Callable[[Json], str]] = {
    "compact": lambda value: dumps(value).decode("utf-8", "surrogatepass"),
    "spaced": lambda value: json.dumps(value, ensure_ascii=False),
    "escaped": json.dumps,
}


_REASONING = frozenset({"reasoning", "thinking", "redacted_thinking", "reasoningContent"})
"""Types of parts that an agent may leave out of its history altogether."""
_TEXTS = frozenset({"text", "input_text", "output_text", "json"})
_WHOLE = "type"
"""Among the members of a part that are left out: the whole part is."""
_INSIDE = ("content", "tool_calls")
"""Members that hold parts."""
_FUNCTION = "function"
_SPELLED = ("arguments", _FUNCTION)
"""Members of a call that are, or hold, its arguments as text."""


@dataclass(frozen=True, slots=True)
class Manner:
    """One way of writing a history.

    Attributes:
        nulls: what becomes of null members of an assistant message of chat completions.
        spelling: of results that are not text.
        texts: results that were written in another way, by matching key of the call: every text that was seen.
        left_out: members that parts of a type (messages: of a role) lose when they go back.
        added: members that are null, and that parts of a type get when they go back.
        arguments: spelling of the arguments of calls; `None`: as the model wrote them.
        wrapped: results stand in a list of one part of this type; `None`: they are the text itself.
        lists: results that are lists of parts stay lists.
        marks: also a result that is no error says so.
        members: of a result, in order, where they are not the plain ones.
        said: texts in no spelling of JSON (a text in quotes, a table, a part of the result), by call and result.
        orders: of the members of parts of a type (messages: of a role; of what a call names: `function`; of what stands in a
            block of Converse: its name and a point), where it is another one than the model's own.
    """

    nulls: Nulls = "content"
    spelling: Spelling = "compact"
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    added: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    arguments: Spelling | None = None
    wrapped: str | None = None
    lists: bool = False
    marks: bool = False
    members: tuple[str, ...] = ()
    said: Mapping[str, str] = field(default_factory=dict[str, str])
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])

    # --- what the model said ------------------------------------------------------------------------------------------

    def turn(self, items: Sequence[dict[str, Json]]) -> list[Json]:
        """What the model said as it goes back: whole, with its reasoning, unless the agent left something out."""
        return [self._part(item) if _WHOLE in item else self.message(item) for item in items if not self._gone(item)]

    def message(self, message: Mapping[str, Json]) -> dict[str, Json]:
        """The assistant message as it goes back in the next request: whole, with its reasoning."""
        message = self._part(message)
        if self.nulls == "kept":
            return dict(message)
        if self.nulls == "empty" and message.get("content") is None:
            message = {**message, "content": ""}
        keep = "content" if self.nulls == "content" else None
        return {name: value for name, value in message.items() if value is not None or name == keep}

    def _gone(self, part: Json) -> bool:
        return isinstance(part, dict) and _WHOLE in self.left_out.get(_kind(part), ())

    def _part(self, part: Mapping[str, Json]) -> dict[str, Json]:
        """A part, and the parts inside of it, without what the agent leaves out."""
        kind = _kind(part)
        gone = self.left_out.get(kind, ())
        kept = {name: value for name, value in part.items() if name not in gone}
        kept |= {name: None for name in self.added.get(kind, ()) if name not in kept}
        for name in _SPELLED if self.arguments is not None else ():
            if name in kept:
                kept[name] = self._respelled(kept[name])
        for name in _INSIDE:
            inner = kept.get(name)
            if isinstance(inner, list):
                kept[name] = [self._part(p) if isinstance(p, dict) else p for p in inner if not self._gone(p)]
        if isinstance(function := kept.get(_FUNCTION), dict):
            kept[_FUNCTION] = _ordered(function, self.orders.get(_FUNCTION, ()))
        if isinstance(inside := kept.get(kind), dict):
            kept[kind] = _ordered(inside, self.orders.get(f"{kind}.", ()))
        return _ordered(kept, self.orders.get(kind, ()))

    def _respelled(self, value: Json) -> Json:
        """Arguments, or what holds them."""
        if isinstance(value, dict) and "arguments" in value:
            return {**value, "arguments": self._respelled(value["arguments"])}
        parsed = _value(value) if isinstance(value, str) else None
        return value if parsed is None or self.arguments is None else _SPELL[self.arguments](parsed)

    # --- results ------------------------------------------------------------------------------------------------------

    def told(self, asked: Asked, arguments: Json, value: Json) -> Told:
        """A tool's result, as it stands in the next request."""
        content = value
        if not (self.lists and _is_parts(value)):
            content = self.content(self.result(asked.name, arguments, value))
        return self._as_written(Told(asked, content, False if self.marks else None))

    def failed(self, asked: Asked, text: str) -> Told:
        """A tool's error, as it stands in the next request."""
        return self._as_written(Told(asked, self.content(self.error(text)), True))

    def _as_written(self, told: Told) -> Told:
        return replace(told, members=self.members) if self.members else told

    def content(self, text: str) -> Json:
        """The content of a result that says this text."""
        return text if self.wrapped is None else [{"type": self.wrapped, "text": text}]

    def result(self, name: str, arguments: Json, value: Json) -> str:
        """A tool's result as the content of a message: a text as it is, anything else as JSON."""
        if not self.texts and not self.said:
            return self.spell_result(value)
        key = key_of("tool", name, arguments)
        for text in self.texts.get(key, ()):
            if _says(text, value):
                return text
        return self.said.get(_place(key, value)) or self.spell_result(value)

    def spell_result(self, value: Json) -> str:
        """A result that was never written before."""
        return value if isinstance(value, str) else _SPELL[self.spelling](value)

    def error(self, text: str) -> str:
        """A tool's error: an object with the single member `error`, unescaped."""
        return _SPELL["compact" if self.spelling == "compact" else "spaced"]({"error": text})

    def as_json(self) -> Json:
        """For `run.started` of the run that is written in this manner."""
        shown: dict[str, Json] = {"nulls": self.nulls, "spelling": self.spelling, "texts": _lists(self.texts)}
        more: dict[str, Json] = {
            "left_out": _lists(self.left_out),
            "added": _lists(self.added),
            "arguments": self.arguments,
            "wrapped": self.wrapped,
            "lists": self.lists,
            "marks": self.marks,
            "members": list(self.members),
            "said": dict(self.said),
            "orders": _lists(self.orders),
        }
        return {**shown, **{name: value for name, value in more.items() if value}}


PLAIN = Manner()


def manner_from_json(value: Json) -> Manner:
    """Reads `Manner.as_json` back; what is not understood is plain."""
    if not isinstance(value, dict):
        return PLAIN
    nulls, wrapped = value.get("nulls"), value.get("wrapped")
    spelling, arguments = value.get("spelling"), value.get("arguments")
    said = value.get("said")
    return Manner(
        cast("Nulls", nulls) if nulls in get_args(Nulls) else PLAIN.nulls,
        cast("Spelling", spelling) if spelling in get_args(Spelling) else PLAIN.spelling,
        _tuples(value.get("texts")),
        _tuples(value.get("left_out")),
        _tuples(value.get("added")),
        cast("Spelling", arguments) if arguments in get_args(Spelling) else None,
        wrapped if isinstance(wrapped, str) else None,
        value.get("lists") is True,
        value.get("marks") is True,
        _tuples({"members": value.get("members")}).get("members", ()),
        {str(place): str(text) for place, text in said.items()} if isinstance(said, dict) else {},
        _tuples(value.get("orders")),
    )


def _lists(named: Mapping[str, tuple[str, ...]]) -> dict[str, Json]:
    return {name: list(texts) for name, texts in named.items()}


def _tuples(value: Json) -> dict[str, tuple[str, ...]]:
    members = value if isinstance(value, dict) else {}
    return {name: tuple(map(str, texts)) for name, texts in members.items() if isinstance(texts, list)}


def _place(key: str, value: Json) -> str:
    """Stands for one result of one call."""
    return digest([key, value])


def _none_recorded(_: str) -> Sequence[Json]:
    return ()


def learn_manner(
    requests: Iterable[Mapping[str, Json] | None],
    dialect: Dialect = CHAT,
    answers: Iterable[Json] = (),
    recorded: Callable[[str], Sequence[Json]] = _none_recorded,
) -> Manner:
    """Learns from recorded requests, whose histories hold what the agent wrote. Nothing to see is `PLAIN`.

    Args:
        requests: of one form.
        dialect: that form.
        answers: recorded answers, some of which went back in these requests.
        recorded: the recorded results of a tool call, by matching key.
    """
    asked = [r for r in requests if r is not None and isinstance(r.get(dialect.history), list)]
    histories = [dialect.items(request) for request in asked]
    pairs = [pair for history in histories for pair in read_history(history, dialect).pairs]
    answered = [pair for pair in pairs if pair.result_at is not None]
    spelling = _spelling(pairs)
    texts: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        text = _text(pair.content)
        value = _value(text) if text is not None else None
        if text is not None and value is not None and _SPELL[spelling](value) != text:
            key = key_of("tool", pair.name, _arguments(pair.raw))
            texts[key] = tuple(dict.fromkeys((*texts.get(key, ()), text)))
    seen = [item for history in histories for item in history]
    changes = _changes([dialect.turn(answer) for answer in answers], seen)
    return Manner(
        "empty" if changes.emptied else _nulls(seen),
        spelling,
        texts,
        changes.left_out,
        changes.added,
        changes.arguments,
        next((kind for pair in answered if (kind := _wrapping(pair.content)) is not None), None),
        any(isinstance(pair.content, list) and _wrapping(pair.content) is None for pair in answered),
        any(pair.marked is False for pair in answered),
        _members(seen),
        _said_of(answered, spelling, recorded),
        changes.orders,
    )


_MEMBERS = ("role", "tool_call_id", "content")
_RESULTS: Mapping[str, tuple[str, ...]] = {
    "tool": _MEMBERS,
    "tool_result": ("type", "tool_use_id", "content", "is_error"),
    "function_call_output": ("type", "call_id", "output"),
    "custom_tool_call_output": ("type", "call_id", "output"),
    "toolResult": ("toolUseId", "content", "status"),
}
"""Results by their type (chat completions: by their role), with their members as they are plainly written."""


def _members(seen: Sequence[Json]) -> tuple[str, ...]:
    """The members of results; nothing where they are plain, or hold what a loop cannot know."""
    for part in _parts(seen):
        plain = _RESULTS.get(_kind(part))
        inside = part.get(_kind(part))
        if plain is not None:
            names, most = (
                tuple(inside if isinstance(inside, dict) else part),
                {*plain, "name"} if plain is _MEMBERS else {*plain},
            )
            known = {*plain} - {"is_error", "status"} <= {*names} <= most
            return names if known and names != tuple(name for name in plain if name in names) else ()
    return ()


def _said_of(answered: Sequence[Pair], spelling: Spelling, recorded: Callable[[str], Sequence[Json]]) -> dict[str, str]:
    """What was written of results that it does not spell. Of a call with several results nothing says which text is whose."""
    written: dict[str, set[str]] = {}
    for pair in answered:
        text = _text(pair.content)
        if text is not None:
            written.setdefault(key_of("tool", pair.name, _arguments(pair.raw)), set()).add(text)
    said: dict[str, str] = {}
    for key, texts in written.items():
        values = {digest(value): value for value in recorded(key)}
        if len(texts) != 1 or len(values) != 1:
            continue
        (text,), (value,) = texts, values.values()
        plain = value if isinstance(value, str) else _SPELL[spelling](value)
        if text != plain and (_value(text) is None or not _says(text, value)):
            said[_place(key, value)] = text
    return said


# --- parts of a history -----------------------------------------------------------------------------------------------


def _wrapping(content: Json) -> str | None:
    """Type of the only part of a result, where that is a text."""
    part = content[0] if isinstance(content, list) and len(content) == 1 else None
    kind = part.get("type") if isinstance(part, dict) and part.keys() == {"type", "text"} else None
    return kind if isinstance(kind, str) and kind in _TEXTS else None


def _text(content: Json) -> str | None:
    """What a result says, where that is one text."""
    if _wrapping(content) is not None:
        content = cast("list[dict[str, Json]]", content)[0]["text"]
    return content if isinstance(content, str) else None


def _is_parts(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(p, dict) and "type" in p for p in value)


def _kind(part: Mapping[str, Json]) -> str:
    """Type of a part; role of a message; of a block of Converse, which has neither, its only member."""
    return str(part.get("type") or part.get("role") or (next(iter(part)) if len(part) == 1 else ""))


def _parts(items: Iterable[Json]) -> list[dict[str, Json]]:
    """Items, and the parts inside of them."""
    found: list[dict[str, Json]] = []
    for item in items:
        if isinstance(item, dict):
            found.append(item)
            for name in _INSIDE:
                inner = item.get(name)
                found += _parts(inner) if isinstance(inner, list) else []
    return found


@dataclass(frozen=True, slots=True)
class _Changes:
    """What became of answers in a history.

    Attributes:
        left_out, added: members, by type of part.
        emptied: a content that was null became empty.
        arguments: how arguments were spelled anew.
        orders: of members, by type of part, where one was changed.
    """

    left_out: dict[str, tuple[str, ...]]
    added: dict[str, tuple[str, ...]]
    emptied: bool
    arguments: Spelling | None
    orders: dict[str, tuple[str, ...]]


def _changes(turns: Iterable[Sequence[dict[str, Json]]], history: Sequence[Json]) -> _Changes:
    """Compares answers with what is found of them in a history. What is not in there, or in other words, tells nothing."""
    written = _parts(history)
    kinds = {_kind(part) for part in written}
    left_out: dict[str, set[str]] = {}
    added: dict[str, set[str]] = {}
    emptied, spelled, orders = False, dict[str, str](), _Orders()
    for turn in turns:
        pairs = [(part, _again(part, written)) for part in _parts(turn)]
        if all(again is None for _, again in pairs):
            continue
        for part, again in pairs:
            kind = _kind(part)
            if again is not None:
                _narrow(left_out, kind, part.keys() - again.keys())
                _narrow(added, kind, {n for n, value in again.items() if value is None and n not in part})
                spelled |= {_said(part): _said(again)} if _said(part) else {}
                orders.see(kind, part, again)
                orders.see(f"{kind}.", part.get(kind), again.get(kind))
                orders.see(_FUNCTION, part.get(_FUNCTION), again.get(_FUNCTION))
                emptied = emptied or (part.get("content", "") is None and again.get("content") == "")
            elif kind in _REASONING - kinds:
                left_out[kind] = {_WHOLE}
    return _Changes(_sorted(left_out), _sorted(added), emptied, _spelled_anew(spelled), orders.changed())


class _Orders:
    """In which order an agent writes the members of what a model said: one order for each type, or none."""

    def __init__(self) -> None:
        self._known: dict[str, list[str] | None] = {}
        self._changed: set[str] = set()

    def see(self, kind: str, said: Json, written: Json) -> None:
        """A part as it was said and as it was written."""
        if not isinstance(said, dict) or not isinstance(written, dict):
            return
        if [name for name in said if name in written] != [name for name in written if name in said]:
            self._changed.add(kind)
        known = self._known.setdefault(kind, [])
        if known is not None and not _inserted(known, list(written)):
            self._known[kind] = None  # now so, now otherwise

    def changed(self) -> dict[str, tuple[str, ...]]:
        """The orders that are other ones than the model's."""
        return {kind: tuple(known) for kind, known in sorted(self._known.items()) if known and kind in self._changed}


def _inserted(order: list[str], names: Sequence[str]) -> bool:
    """Puts the names into the order, each new one behind the one that it follows; `False`: they stand in another one."""
    places = [order.index(name) for name in names if name in order]
    if places != sorted(places):
        return False
    for at, name in enumerate(names):
        if name not in order:
            order.insert(order.index(names[at - 1]) + 1 if at else 0, name)
    return True


def _ordered(part: dict[str, Json], order: Sequence[str]) -> dict[str, Json]:
    """The part with its members in that order; others behind them."""
    return {name: part[name] for name in order if name in part} | part


def _said(part: Mapping[str, Json]) -> str:
    """The arguments of a call as text."""
    function = part.get("function")
    said = function.get("arguments") if isinstance(function, dict) else part.get("arguments")
    return said if isinstance(said, str) else ""


def _spelled_anew(spelled: Mapping[str, str]) -> Spelling | None:
    """The spelling that gives what was written of all that was said; `None` where nothing was changed."""
    if all(said == written for said, written in spelled.items()):
        return None
    values = [(_value(said), written) for said, written in spelled.items()]
    for spelling in cast("tuple[Spelling, ...]", get_args(Spelling)):
        if all(value is not None and _SPELL[spelling](value) == written for value, written in values):
            return spelling
    return None


def _narrow(known: dict[str, set[str]], kind: str, names: set[str]) -> None:
    known[kind] = known[kind] & names if kind in known else names


def _sorted(known: Mapping[str, set[str]]) -> dict[str, tuple[str, ...]]:
    return {kind: tuple(sorted(names)) for kind, names in sorted(known.items()) if names}


def _again(part: Mapping[str, Json], written: Sequence[dict[str, Json]]) -> dict[str, Json] | None:
    """The part as it stands in the history: of its type, and all that both have is equal; its inner parts tell for it."""

    def agrees(one: Mapping[str, Json]) -> bool:
        both = {n for n in part.keys() & one.keys() if n not in ("type", "role")}
        own = {n for n in both if not (part[n] is None or isinstance(part[n], list)) and n != "status"}
        inner = [n for n in both & set(_INSIDE) if isinstance(part[n], list) and part[n]]
        return (
            _kind(one) == _kind(part)
            and bool(own or inner)
            and all(_agree(part[n], one[n]) for n in own)
            and all(_tells(part[n], one[n]) for n in inner)
        )

    return next((one for one in written if agrees(one)), None)


def _agree(a: Json, b: Json) -> bool:
    """Equal, or JSON texts of equal values."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(_agree(a[name], b[name]) for name in a.keys() & b.keys())
    if isinstance(a, str) and isinstance(b, str) and a != b:
        value = _value(a)
        return value is not None and _says(b, value)
    return a == b


def _tells(parts: Json, written: Json) -> bool:
    """Whether the first inner part of a kind that both have is the same."""
    ours = _parts(parts) if isinstance(parts, list) else []
    theirs = _parts(written) if isinstance(written, list) else []
    return any(_again(one, theirs) is not None for one in ours)


# --- spelling ---------------------------------------------------------------------------------------------------------


def _spelling(pairs: Sequence[Pair]) -> Spelling:
    """The spelling that gives the most of the results again; the first of equals."""
    written = [text for pair in pairs if (text := _text(pair.content)) is not None]
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
