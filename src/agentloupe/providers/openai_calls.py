"""Requests of the OpenAI SDK as calls of the boundary: what is asked, how it is sent, how the answer comes back."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from agentloupe.ports import ambient
from agentloupe.providers import chat, openai_body
from agentloupe.providers.openai_answer import decoded, encoded, with_request_id
from agentloupe.providers.openai_body import Body
from agentloupe.providers.tries import Tries
from agentloupe.words.call import Attrs, Call
from agentloupe.words.canonical import Json
from agentloupe.words.errors import ReplayRefused

__all__ = [
    "SENDING",
    "ChatCall",
    "PassedCall",
    "Sending",
    "answered",
    "asks_raw",
    "from_arguments",
    "from_options",
    "try_ended",
]

_log = logging.getLogger("agentloupe")
_PATH = "/chat/completions"
QUERY = chat.QUERY
_RAW = "x-stainless-raw-response"  # how the SDK's own `with_raw_response` tells its methods what is wanted


# --- while a request is on its way ------------------------------------------------------------------------------------


class Sending:
    """One call on its way through the SDK: its tries, the request that went out, the response that came."""

    __slots__ = ("_body", "request", "response", "tries")

    def __init__(self, body: Body) -> None:
        self._body = body
        self.tries = Tries()
        self.request: Any = None
        self.response: Any = None

    def goes_out(self, request: Any) -> None:
        """The SDK made a request and is about to send it."""
        self.request = request
        self.tries.begin()

    def came_back(self, response: Any) -> None:
        """The SDK has an answer that it accepts."""
        self.tries.end(status=response.status_code)
        self.response = response
        self._note(response)

    def failed(self, error: BaseException) -> None:
        """The SDK gives up."""
        cause = error.__cause__ or error
        status = getattr(error, "status_code", None)
        self.tries.end(status=status, error=None if status else type(cause).__name__)
        response = getattr(error, "response", None)
        if response is not None:
            self._note(response)

    def _note(self, response: Any) -> None:
        request_id = response.headers.get("x-request-id")
        if request_id is not None:
            ambient.note("request_id", request_id)
        try:
            sent: object = response.request.content or self.request.content
        except (AttributeError, RuntimeError):
            return  # a streamed body, a response without its request
        other = self._body.differs(sent) if isinstance(sent, bytes) else None
        if other is not None:
            ambient.note("sent", other)


SENDING: ContextVar[Sending | None] = ContextVar("agentloupe_openai_sending", default=None)
"""The call that this code is sending, if any."""


def try_ended(response: Any) -> None:
    """A try failed, the SDK will wait and try again."""
    sending = SENDING.get()
    if sending is None:
        return
    if response is not None:
        sending.tries.end(status=response.status_code)
    else:
        sending.tries.end(error=type(sys.exc_info()[1]).__name__)


def answered(response: Any) -> None:
    """The SDK has an answer that it accepts."""
    sending = SENDING.get()
    if sending is not None and response is not None:
        sending.came_back(response)


# --- chat completions -------------------------------------------------------------------------------------------------


class ChatCall:
    """A whole chat completion.

    Args:
        client: whose call it is.
        body: the request.
        send: sends it through the SDK as the caller asked.
        send_other: sends another body in its place, with the same options.
        facts: further facts for headers.
        query: what goes into the URL beside the body (`extra_query`): a part of what is asked, stored with it.
        parser: what the SDK makes of the answer afterwards (structured outputs); pure, so it runs in a replay too.
    """

    def __init__(
        self,
        client: Any,
        body: Body,
        send: Callable[[], Any],
        send_other: Callable[[dict[str, Json], Json], Any],
        facts: Attrs,
        query: Mapping[str, Any] | None = None,
        parser: Callable[[Any], Any] | None = None,
    ) -> None:
        self._client = client
        self._body = body
        self._send = send
        self._send_other = send_other
        self._parser = parser
        self._response: Any = None
        self.call = Call(
            kind="llm",
            name=chat.step_name(body.value),
            input={**body.value, QUERY: openai_body.json_copy(query).value} if query else body.value,
            attrs={**chat.request_facts(body.value), "provider": chat.provider_of(client.base_url), **facts},
            encode=self._encode,
            decode=self._decode,
            complete=with_request_id,
            facts=chat.response_facts,
            resend=self._resend,
            lost=body.lost,
        )

    def send(self) -> Any:
        """Performs the call."""
        with self._watch(self._body):
            return self._send()

    async def asend(self) -> Any:
        """Async twin of `send`."""
        with self._watch(self._body):
            return await self._send()

    def after(self, answer: Any) -> Any:
        """What the caller of the SDK gets."""
        if self._parser is None or isinstance(answer, str):
            return answer
        return with_request_id(self._parser(answer), {"request_id": getattr(answer, "_request_id", None)})

    def _resend(self, body: Json) -> Any:
        edited = dict(cast("dict[str, Json]", body))
        query = edited.pop(QUERY, None)
        wanted = openai_body.json_copy(edited)
        if "Async" in type(self._client).__name__:
            return self._aresend(edited, query, wanted)
        with self._watch(wanted):
            return self._send_other(edited, query)

    async def _aresend(self, edited: dict[str, Json], query: Json, wanted: Body) -> Any:
        with self._watch(wanted):
            return await self._send_other(edited, query)

    @contextmanager
    def _watch(self, body: Body) -> Generator[None]:
        sending = Sending(body)
        token = SENDING.set(sending)
        try:
            yield
        except BaseException as error:
            sending.failed(error)
            raise
        finally:
            SENDING.reset(token)
            self._response = sending.response

    def _encode(self, answer: object) -> Json:
        return encoded(answer, self._response)

    def _decode(self, answer: Json) -> object:
        return decoded(answer, self._client)


def from_arguments(client: Any, create: Any, completions: Any, arguments: Mapping[str, Any]) -> ChatCall:
    """The call behind `completions.create(**arguments)`; `create` is the SDK's own function."""
    order = openai_body.key_order(create)
    try:
        body = openai_body.body_of(arguments, order)
    except openai_body.ConsumedOnce:
        arguments = openai_body.settled(arguments)
        body = openai_body.body_of(arguments, order)

    def send_other(edited: dict[str, Json], query: Json) -> Any:
        kept = openai_body.OPTIONS - {"extra_body", QUERY}
        options = {name: arguments[name] for name in kept if name in arguments}
        known = frozenset(order) or frozenset({"messages", "model"})
        rest = {name: value for name, value in edited.items() if name not in known}
        named = {name: value for name, value in edited.items() if name in known}
        return create(completions, **named, **options, extra_query=query, extra_body=rest or None)

    facts: dict[str, Json] = {}
    if isinstance(given := arguments.get("extra_headers"), Mapping) and given:
        facts["extra_headers"] = [str(name) for name in cast("Mapping[object, object]", given)]
    given = arguments.get(QUERY)
    query = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else None
    return ChatCall(client, body, lambda: create(completions, **arguments), send_other, facts, query)


# --- everything that ends in `request` --------------------------------------------------------------------------------


class PassedCall:
    """A request that is passed on without being recorded: the run says so, a replay refuses it."""

    def __init__(self, send: Callable[[], Any], method: str, path: str, why: str) -> None:
        self._send = send
        self._why = why
        self.call = Call(
            kind="other",
            name=f"{method.upper()} {chat.endpoint_of(path)}",
            input={"method": method.upper(), "path": path},
            attrs={"not_recorded": why},
            encode=lambda _: {"not_recorded": why},
            decode=self._refuse,
        )

    def send(self) -> Any:
        """Passes the request on."""
        _warn(f"{self.call.name}: {self._why}")
        return self._send()

    async def asend(self) -> Any:
        """Async twin of `send`."""
        _warn(f"{self.call.name}: {self._why}")
        return await self._send()

    def after(self, answer: Any) -> Any:
        """What the caller of the SDK gets."""
        return answer

    def _refuse(self, _: Json) -> object:
        raise ReplayRefused(
            f"{self.call.name}: {self._why}, so there is nothing to answer it with",
            reason="not_recorded",
            hint="nothing was sent; ask with chat.completions.create and without stream",
        )


_warned: set[str] = set()


def _warn(what: str) -> None:
    """Once for each kind of request in a process."""
    if what not in _warned:
        _warned.add(what)
        _log.warning("%s; this run can be read, but not replayed past this call", what)


def from_options(
    client: Any, send: Callable[..., Any], cast_to: Any, options: Any, stream: bool
) -> ChatCall | PassedCall:
    """The call behind any request of the SDK; `send(cast_to, options)` is the SDK's own method."""
    why = _why_not(cast_to, options, stream)
    if why is not None:
        return PassedCall(lambda: send(cast_to, options), options.method, options.url, why)
    merged: dict[str, Any] = {**options.json_data, **(options.extra_json or {})}
    body = openai_body.json_copy({name: value for name, value in merged.items() if not openai_body.left_out(value)})
    parser = options.post_parser if callable(options.post_parser) else None
    nothing = cast("Any", type(options)).model_fields["post_parser"].default
    plain = options.model_copy(update={"post_parser": nothing})

    def send_other(edited: dict[str, Json], query: Json) -> Any:
        changed = {"json_data": edited, "extra_json": None, "params": query or {}}
        return send(cast_to, plain.model_copy(update=changed))

    return ChatCall(client, body, lambda: send(cast_to, plain), send_other, {}, options.params, parser)


def asks_raw(headers: object) -> bool:
    """Whether these headers of a request ask the SDK for its raw response."""
    return isinstance(headers, Mapping) and any(
        str(n).lower() == _RAW for n in cast("Mapping[object, object]", headers)
    )


def _why_not(cast_to: Any, options: Any, stream: bool) -> str | None:
    """Why this request is not recorded, or `None`."""
    if options.method.lower() != "post" or options.url != _PATH:
        return "this endpoint is not recorded yet"
    if stream:
        return "streams are not recorded yet"
    if asks_raw(options.headers):
        return "raw responses are not recorded yet"
    from openai.types.chat import ChatCompletion

    if cast_to is not ChatCompletion or not isinstance(options.json_data, Mapping):
        return "this form of request is not recorded yet"
    return None
