"""The short way of plain chat completions: `create(...)` decides from its arguments alone.

A replay then does none of the SDK's work for sending, and builds the answer by pydantic's strict validation. What does
not fit this way comes again in `request`, see `sdk_request`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from agentloupe.providers import chat, sdk_body
from agentloupe.providers.chat import QUERY
from agentloupe.providers.openai_answer import decoded, encoded, with_request_id
from agentloupe.providers.sdk_body import Body
from agentloupe.providers.sending import SENDING, Sending
from agentloupe.words.call import Attrs, Call
from agentloupe.words.canonical import Json

__all__ = ["ChatCall", "from_arguments"]


class ChatCall:
    """A whole chat completion.

    Args:
        client: whose call it is.
        body: the request.
        send: sends it through the SDK as the caller asked.
        send_other: sends another body in its place, with the same options.
        facts: further facts for headers.
        query: what goes into the URL beside the body (`extra_query`): a part of what is asked, stored with it.
    """

    def __init__(
        self,
        client: Any,
        body: Body,
        send: Callable[[], Any],
        send_other: Callable[[dict[str, Json], Json], Any],
        facts: Attrs,
        query: Mapping[str, Any] | None = None,
    ) -> None:
        self._client = client
        self._body = body
        self._send = send
        self._send_other = send_other
        self._facts = facts
        self._query = query
        self._response: Any = None

    def call(self) -> Call:
        """The call. It is not kept here: it holds methods of this object, and a circle would keep every response for long."""
        body, query = self._body, self._query
        return Call(
            kind="llm",
            name=chat.step_name(body.value),
            input={**body.value, QUERY: sdk_body.json_copy(query).value} if query else body.value,
            attrs={
                **chat.request_facts(body.value),
                "provider": chat.provider_of(self._client.base_url),
                **self._facts,
            },
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

    def _resend(self, body: Json) -> Any:
        edited = dict(cast("dict[str, Json]", body))
        query = edited.pop(QUERY, None)
        wanted = sdk_body.json_copy(edited)
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
    order = sdk_body.key_order(create)
    try:
        body = sdk_body.body_of(arguments, order)
    except sdk_body.ConsumedOnce:
        arguments = sdk_body.settled(arguments)
        body = sdk_body.body_of(arguments, order)

    def send_other(edited: dict[str, Json], query: Json) -> Any:
        kept = sdk_body.OPTIONS - {"extra_body", QUERY}
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
