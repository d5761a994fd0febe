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
from agentloupe.words.dialects import hosted_tools, server_held

__all__ = ["History", "Pair", "cautions", "may_write", "read_history"]

_PLACEHOLDER = re.compile(rb"\[removed:([\w:.-]+)\]")
_REASONING_MODEL = re.compile(r"^(o\d|gpt-5)(?!\d)")
_UNSUPPORTED: Mapping[str, str] = {
    "max_tokens": "send max_completion_tokens",
    "temperature": "only the default is accepted",
    "top_p": "only the default is accepted",
}


# --- calls and results in a history -----------------------------------------------------------------------------------

_ANSWERS: Mapping[str, str] = {"tool": "tool_call_id", "function": "name"}
"""Roles of results, and the member that says which call they answer."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A tool call in a history and its result, by indices of their messages.

    Attributes:
        id, name, raw: of the call.
        call_at, result_at: messages; `result_at` is `None` where no result came.
        content: of the result's message.
    """

    id: str
    name: str
    raw: Json
    call_at: int
    result_at: int | None = None
    content: Json = None

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


def read_history(messages: Sequence[Json]) -> History:
    """Pairs calls and results.

    A result belongs to the nearest earlier message of its own turn that has a call of its id without a result, and there
    to the first of them; a turn begins with a user message. Results of the old `function` role belong by name.
    """
    pairs: list[Pair] = []
    orphans: list[tuple[int, str]] = []
    turn = 0
    for at, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        role = message.get("role")
        turn = len(pairs) if role == "user" else turn
        pairs += _calls_of(message, at)
        answered = message.get(_ANSWERS.get(role, "")) if isinstance(role, str) else None
        if not isinstance(answered, str):
            continue
        mine = _answered(pairs, turn, answered, by_name=role == "function")
        if mine is None:
            orphans.append((at, answered))
        else:
            pairs[mine] = replace(pairs[mine], result_at=at, content=message.get("content"))
    ids = [pair.id for pair in pairs]
    reused = tuple(dict.fromkeys(i for i in ids if i and ids.count(i) > 1))
    return History(tuple(pairs), tuple(orphans), reused)


def _answered(pairs: Sequence[Pair], turn: int, said: str, *, by_name: bool) -> int | None:
    """The call that a result belongs to, as an index; `said` is the id (or name) that the result carries."""
    waiting = [
        i
        for i in range(turn, len(pairs))
        if pairs[i].result_at is None
        and (pairs[i].name == said and not pairs[i].id if by_name else pairs[i].id == said)
    ]
    return next((i for i in waiting if pairs[i].call_at == pairs[waiting[-1]].call_at), None)


def _calls_of(message: Mapping[str, Json], at: int) -> Iterator[Pair]:
    listed = message.get("tool_calls")
    for call in listed if isinstance(listed, list) else ():
        if isinstance(call, dict):
            function = call.get("function")
            members = function if isinstance(function, dict) else call
            yield Pair(str(call.get("id") or ""), str(members.get("name") or ""), members.get("arguments"), at)
    old = message.get("function_call")
    if isinstance(old, dict):
        yield Pair("", str(old.get("name") or ""), old.get("arguments"), at)


# --- cautions ---------------------------------------------------------------------------------------------------------


def cautions(original: Mapping[str, Json], request: Mapping[str, Json], edits: Sequence[Edit]) -> list[str]:
    """What to say about a request that is about to be sent, one line each; empty when there is nothing.

    Args:
        original: the request as it was recorded.
        request: what is to be sent.
        edits: what was changed.
    """
    found: list[str] = []
    messages = request.get("messages")
    if isinstance(messages, list):
        found += _about_history(read_history(messages))
    found += _about_thinking(original, request, edits)
    found += _about_model(original, request)
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


def _about_history(history: History) -> Iterator[str]:
    if history.orphans:
        places = ", ".join(f"messages[{at}] ({call_id})" for at, call_id in history.orphans)
        yield f"tool results without their call, providers refuse such a history: {places}"
    if history.unanswered:
        ids = ", ".join(f"messages[{pair.call_at}] ({pair.id or pair.name})" for pair in history.unanswered)
        yield f"tool calls without a result, providers refuse such a history: {ids}"
    if history.reused:
        yield f"one id is used by several tool calls, some providers refuse that: {', '.join(history.reused)}"


def _is_signed(part: Json) -> bool:
    return isinstance(part, dict) and (
        part.get("type") == "redacted_thinking" or "signature" in part or "thought_signature" in part
    )


def _signed(message: Json) -> list[Json]:
    content = message.get("content") if isinstance(message, dict) else None
    return [part for part in content if _is_signed(part)] if isinstance(content, list) else []


def _about_thinking(original: Mapping[str, Json], request: Mapping[str, Json], edits: Sequence[Edit]) -> Iterator[str]:
    before = original.get("messages")
    signed = [at for at, message in enumerate(before) if _signed(message)] if isinstance(before, list) else []
    if not signed:
        return
    for edit in edits:
        at = edit.path[1] if len(edit.path) > 1 and edit.path[0] == "messages" else None
        if at in signed and edit.op != "insert":
            kept = value_at(dict(request), ("messages", at)) if edit.op == "set" else ABSENT
            after = [] if kept is ABSENT else _signed(kept)
            if not same(after, _signed(value_at(dict(original), ("messages", at)))):  # type: ignore[arg-type]
                yield f"{show_path(edit.path)}: a signed thinking block is edited or dropped, its provider will refuse the history"
    if original.get("model") != request.get("model"):
        places = ", ".join(str(at) for at in signed)
        yield f"thinking blocks are signed for {original.get('model')}: another model may refuse them (messages {places})"


def _about_model(original: Mapping[str, Json], request: Mapping[str, Json]) -> Iterator[str]:
    model = request.get("model")
    if (
        not isinstance(model, str)
        or model == original.get("model")
        or not _REASONING_MODEL.match(model.rpartition("/")[2])
    ):
        return
    for name, advice in _UNSUPPORTED.items():
        if request.get(name) is not None:
            yield f"{model} is known to refuse {name} ({advice}): it is sent as recorded, change it with --set or --unset"


# --- tools that run at the provider -----------------------------------------------------------------------------------

_ONLY_LOOK = ("web_search", "file_search", "google_search", "url_context", "retrieval", "web_fetch", "tool_search")
"""Beginnings of the types of hosted tools that are known to change nothing; any other may write."""


def may_write(hosted: str) -> bool:
    """Whether a hosted tool may change the world. What is not known may."""
    return not hosted.startswith(_ONLY_LOOK)
