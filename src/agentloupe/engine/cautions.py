"""What a person should know before a changed request is sent: said in words, never repaired in silence.

Providers refuse some histories (a result without its call, one id used twice) and some parameters; thinking blocks are
signed; secrets that were removed from a recording are sent as placeholders. The request goes out unchanged all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agentloupe.engine.edits import ABSENT, Edit, same, show_path, value_at
from agentloupe.words.arguments import parse_arguments
from agentloupe.words.canonical import Json, dumps
from agentloupe.words.dialects import Form, form_of, hosted_tools, server_held
from agentloupe.words.turns import CHAT, DIALECTS, Dialect, Result

__all__ = ["History", "Pair", "cautions", "may_write", "read_history"]

_PLACEHOLDER = re.compile(rb"\[removed:([\w:.-]+)\]")


# --- calls and results in a history -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pair:
    """A tool call in a history and its result, by indices of their messages.

    Attributes:
        id, name, raw: of the call.
        call_at, result_at: messages; `result_at` is `None` where no result came.
        content: of the result.
        marked: the result's own mark of errors, where its form has one.
    """

    id: str
    name: str
    raw: Json
    call_at: int
    result_at: int | None = None
    content: Json = None
    marked: bool | None = None

    def __str__(self) -> str:
        arguments = parse_arguments(self.raw if isinstance(self.raw, str | dict) else None).parsed or {}
        shown = ", ".join(
            f"{name}={value if isinstance(value, str) else dumps(value).decode()}" for name, value in arguments.items()
        )
        return f"{self.name} {shown}".rstrip()


@dataclass(frozen=True, slots=True)
class History:
    """Calls and results of a chat history.

    Attributes:
        pairs: every call in order, with its result where one came.
        orphans: (message, id) of results that belong to no call before them.
        reused: ids that more than one call has.
    """

    pairs: tuple[Pair, ...]
    orphans: tuple[tuple[int, str], ...]
    reused: tuple[str, ...]

    @property
    def unanswered(self) -> tuple[Pair, ...]:
        """Calls without a result that are followed by something else than their results."""
        return tuple(pair for pair in self.pairs if pair.result_at is None)


def read_history(messages: Sequence[Json], dialect: Dialect = CHAT) -> History:
    """Pairs calls and results of a history in this form.

    A result belongs to the nearest earlier message of its own turn that has a call of its id without a result, and there
    to the first of them; a turn begins with a user message. Results of the old `function` role belong by name.
    """
    pairs: list[Pair] = []
    orphans: list[tuple[int, str]] = []
    turn = 0
    for at, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        turn = len(pairs) if dialect.begins(message) else turn
        pairs += [Pair(call.id or "", call.name, call.raw, at) for call in dialect.calls(message)]
        for result in dialect.results(message):
            mine = _answered(pairs, turn, result)
            if mine is None:
                orphans.append((at, result.said))
            else:
                pairs[mine] = replace(pairs[mine], result_at=at, content=result.content, marked=result.marked)
    ids = [pair.id for pair in pairs]
    reused = tuple(dict.fromkeys(i for i in ids if i and ids.count(i) > 1))
    return History(tuple(pairs), tuple(orphans), reused)


def _answered(pairs: Sequence[Pair], turn: int, result: Result) -> int | None:
    """The call that a result belongs to, as an index."""
    waiting = [
        i
        for i in range(turn, len(pairs))
        if pairs[i].result_at is None
        and (pairs[i].name == result.said and not pairs[i].id if result.by_name else pairs[i].id == result.said)
    ]
    return next((i for i in waiting if pairs[i].call_at == pairs[waiting[-1]].call_at), None)


# --- cautions ---------------------------------------------------------------------------------------------------------


def cautions(
    original: Mapping[str, Json], request: Mapping[str, Json], edits: Sequence[Edit], form: Form | None = None
) -> list[str]:
    """What to say about a request that is about to be sent, one line each; empty when there is nothing.

    Args:
        original: the request as it was recorded.
        request: what is to be sent.
        edits: what was changed.
        form: of the request, where its fields do not tell.
    """
    dialect = DIALECTS.get(form or form_of(original))
    found: list[str] = []
    if dialect is not None and isinstance(request.get(dialect.history), list):
        found += _about_history(read_history(dialect.items(request), dialect), dialect, server_held(request))
    if dialect is not None:
        found += _about_thinking(original, request, edits, dialect)
        found += _about_parameters(original, request, dialect)
    removed = {name.decode() for name in _PLACEHOLDER.findall(dumps(dict(request)))}
    if removed:
        found.append(
            f"the recording holds placeholders of removed secrets ({', '.join(sorted(removed))}): the model sees the placeholders"
        )
    hosted = hosted_tools(request)
    if hosted:
        found.append(
            f"tools run at the provider, for real, and are not answered from the cassette: {', '.join(hosted)}"
        )
    if server_held(request):
        found.append("the provider holds part of what is asked (server_held): what it remembers may have changed")
    return found


def _about_history(history: History, dialect: Dialect, held: bool) -> Iterator[str]:
    name = dialect.history
    if history.orphans and not held:  # the provider may hold their calls
        places = ", ".join(f"{name}[{at}] ({call_id})" for at, call_id in history.orphans)
        yield f"tool results without their call, providers refuse such a history: {places}"
    if history.unanswered:
        ids = ", ".join(f"{name}[{pair.call_at}] ({pair.id or pair.name})" for pair in history.unanswered)
        yield f"tool calls without a result, providers refuse such a history: {ids}"
    if history.reused:
        yield f"one id is used by several tool calls, some providers refuse that: {', '.join(history.reused)}"


def _is_signed(part: Json) -> bool:
    return isinstance(part, dict) and (
        part.get("type") == "redacted_thinking"
        or "signature" in part
        or "thought_signature" in part
        or part.get("encrypted_content") is not None
    )


def _signed(item: Json) -> list[Json]:
    """What only the model that made it can read: the item itself, or parts of it."""
    content = item.get("content") if isinstance(item, dict) else None
    parts = [item, *content] if isinstance(content, list) else [item]
    return [part for part in parts if _is_signed(part)]


def _about_thinking(
    original: Mapping[str, Json], request: Mapping[str, Json], edits: Sequence[Edit], dialect: Dialect
) -> Iterator[str]:
    name = dialect.history
    signed = [at for at, item in enumerate(dialect.items(original)) if _signed(item)]
    if not signed:
        return
    for edit in edits:
        at = edit.path[1] if len(edit.path) > 1 and edit.path[0] == name else None
        if at in signed and edit.op != "insert":
            kept = value_at(dict(request), (name, at)) if edit.op == "set" else ABSENT
            after = [] if kept is ABSENT else _signed(kept)
            if not same(after, _signed(value_at(dict(original), (name, at)))):  # type: ignore[arg-type]
                yield f"{show_path(edit.path)}: a signed thinking block is edited or dropped, its provider will refuse the history"
    if original.get("model") != request.get("model"):
        places = ", ".join(str(at) for at in signed)
        yield f"thinking blocks are signed for {original.get('model')}: another model may refuse them ({name} {places})"


# --- parameters that a model, or its form, does not take --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    """Parameters that models of these names refuse in a form: each with what to do about it."""

    models: re.Pattern[str]
    advice: Mapping[str, str]


_ONLY_DEFAULT = "only the default is accepted"
_REASONING = re.compile(r"^(o\d|gpt-5)(?!\d)")
_RULES: Mapping[Form, tuple[_Rule, ...]] = {
    "chat": (
        _Rule(
            _REASONING,
            {"max_tokens": "send max_completion_tokens", "temperature": _ONLY_DEFAULT, "top_p": _ONLY_DEFAULT},
        ),
    ),
    "responses": (_Rule(_REASONING, {"temperature": _ONLY_DEFAULT, "top_p": _ONLY_DEFAULT}),),
}
_UNKNOWN: Mapping[Form, Mapping[str, str]] = {
    "anthropic": {"seed": "it has none", "response_format": "see output_config", "n": "it has none"},
    "responses": {"seed": "it has none", "response_format": "see text.format", "max_tokens": "send max_output_tokens"},
}
"""Parameters of other forms, that this one does not have."""


def _about_parameters(original: Mapping[str, Json], request: Mapping[str, Json], dialect: Dialect) -> Iterator[str]:
    """Only what the fork changes is said: what was recorded, its provider took."""
    model = request.get("model")
    if isinstance(model, str) and model != original.get("model"):
        for rule in _RULES.get(dialect.form, ()):
            for name, advice in rule.advice.items() if rule.models.match(model.rpartition("/")[2]) else ():
                if request.get(name) is not None:
                    yield f"{model} is known to refuse {name} ({advice}): it is sent as recorded, change it with --set or --unset"
    for name, advice in _UNKNOWN.get(dialect.form, {}).items():
        if request.get(name) is not None and name not in original:
            yield f"this form of request has no {name} ({advice}): it is sent all the same"
    yield from _about_budget(original, request)


def _about_budget(original: Mapping[str, Json], request: Mapping[str, Json]) -> Iterator[str]:
    """Rules of Anthropic's extended thinking."""
    thinking = request.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    budget, limit = thinking.get("budget_tokens"), request.get("max_tokens")
    if isinstance(budget, int) and isinstance(limit, int) and budget >= limit and limit != original.get("max_tokens"):
        yield f"max_tokens ({limit}) must be more than thinking.budget_tokens ({budget}), the model will refuse it"
    temperature = request.get("temperature")
    if temperature not in (None, 1, original.get("temperature")):
        yield "with thinking enabled only temperature 1 is accepted: it is sent all the same"


# --- tools that run at the provider -----------------------------------------------------------------------------------

_ONLY_LOOK = ("web_search", "file_search", "google_search", "url_context", "retrieval", "web_fetch", "tool_search")
"""Beginnings of the types of hosted tools that are known to change nothing; any other may write."""


def may_write(hosted: str) -> bool:
    """Whether a hosted tool may change the world. What is not known may."""
    return not hosted.startswith(_ONLY_LOOK)
