"""Any request of a model SDK as a call of the boundary.

Clients that Stainless makes (`openai`, `anthropic`) send everything through one method, `request(cast_to, options)`. What
is recorded is the exchange that came of it; what the program gets, live and in a replay, is what the SDK itself makes of
that exchange: its own types, its own exceptions, raw responses with their bytes and headers.

    answer = request_call(client, sdk, cast_to, options, stream).ask()      # async: await ....aask()

- An answer that the program gets parsed is stored as the provider's JSON. Where bytes or headers can be seen (raw
  responses, files) and for endpoints that are no model, the exchange is stored (`words.exchange`).
- One call, whatever the SDK tries inside; a replay gives the last exchange to the SDK, and waits for nothing.
- Streams are recorded as the bytes that the SDK reads, below it: what it makes of them it makes again.
- A failed call is its exception, as of every call.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from agentloupe.ports import ambient, codecs
from agentloupe.ports.streams import Reply, Streamed, aopen_stream, open_stream
from agentloupe.providers import chat, sdk_body
from agentloupe.providers.assembling import is_done
from agentloupe.providers.chat import QUERY
from agentloupe.providers.exchange import facts_of, rebuilt, stored
from agentloupe.providers.httpstream import head_of, played, teed, told
from agentloupe.providers.sdk_asked import Asked, asked, asks_raw, name_of
from agentloupe.providers.sdk_body import Body
from agentloupe.providers.sending import IDS, Sending, on_its_way
from agentloupe.words.call import Attrs, Call
from agentloupe.words.canonical import Json, dumps
from agentloupe.words.errors import ReplayRefused
from agentloupe.words.exchange import exchange, is_exchange
from agentloupe.words.jsontext import parsed

__all__ = ["Passed", "Requested", "RequestedStream", "Sdk", "request_call"]

_log = logging.getLogger("agentloupe")


class Sdk(Protocol):
    """The SDK's own doing, of one client."""

    def send(self, options: Any) -> Any:
        """Sends a request as the SDK does; an awaitable where the client is async."""
        ...

    def read(self, options: Any, answer: Callable[[Any], Any], retries: int) -> Any:
        """What the SDK makes of a recorded response; an awaitable where the client is async.

        Args:
            options: of the request.
            answer: the response to the request that the SDK builds of them.
            retries: how many tries failed before it.
        """
        ...


@dataclass(slots=True)
class _Kept:
    """A recorded answer that the SDK has not read yet; `bare` where of its headers only ids were kept."""

    exchange: dict[str, Json]
    bare: bool
    retries: int = 0


@dataclass(frozen=True, slots=True)
class _Unread:
    """An answer that came, and that the SDK could not read: the exception is the program's, the answer is recorded."""

    error: Exception


class Passed:
    """A request that is passed on without being recorded: the run says so, a replay refuses it."""

    def __init__(self, send: Callable[[], Any], name: str, asked: Json, why: str) -> None:
        self._send = send
        self._name = name
        self._asked = asked
        self._why = why

    def call(self) -> Call:
        """The call."""
        about: Attrs = {"not_recorded": self._why}
        return Call(
            kind="other",
            name=self._name,
            input=self._asked,
            attrs=about,
            encode=lambda _: dict(about),
            decode=self._refuse,
        )

    def send(self) -> Any:
        """Passes the request on."""
        _warn(f"{self._name}: {self._why}")
        with on_its_way(Sending(None)):
            return self._send()

    async def asend(self) -> Any:
        """Async twin of `send`."""
        _warn(f"{self._name}: {self._why}")
        with on_its_way(Sending(None)):
            return await self._send()

    def ask(self) -> Any:
        """Sends the call through the current boundary: what the caller of the SDK gets."""
        return ambient.call(self.call(), self.send)

    async def aask(self) -> Any:
        """Async twin of `ask`."""
        return await ambient.acall(self.call(), self.asend)

    def _refuse(self, _: Json) -> object:
        raise ReplayRefused(
            f"{self._name}: {self._why}, so there is nothing to answer it with",
            reason="not_recorded",
            hint="nothing was sent",
        )


class Requested:
    """A request and its whole answer.

    Args:
        client: whose request it is.
        sdk: sends and reads.
        options: as the SDK's method made them.
        asked: what is asked, as JSON.
        plain: whether the program sees nothing of the answer but what it parses to.
    """

    _streamed = False

    def __init__(self, client: Any, sdk: Sdk, options: Any, asked: Asked, plain: bool) -> None:
        self._sdk = sdk
        self._options = options
        self._asked = asked
        self._plain = plain
        self._by_value = bool(getattr(client, "_middleware", ()))
        self._async = inspect.iscoroutinefunction(inspect.unwrap(cast("Any", type(client)).request))
        self._provider = chat.provider_of(client.base_url)
        self._sent: Sending | None = None

    def call(self) -> Call:
        """The call. It is not kept here: it holds methods of this object, and a circle would keep every response for long."""
        asked = self._asked
        return Call(
            kind=asked.kind,
            name=asked.name,
            input=asked.input,
            attrs={**asked.facts, "provider": self._provider},
            encode=self._encode,
            decode=self._decode,
            complete=_complete,
            facts=facts_of,
            resend=self._resend if asked.kind == "llm" else None,
            lost=asked.body.lost if asked.body is not None else (),
            streamed=self._streamed,
        )

    # --- live ---------------------------------------------------------------------------------------------------------

    def send(self) -> Any:
        """Performs the call."""
        return self._sending(self._options, self._asked.body)

    async def asend(self) -> Any:
        """Async twin of `send`."""
        return await self._asending(self._options, self._asked.body)

    def _resend(self, body: Json) -> Any:
        edited = dict(cast("dict[str, Json]", body))
        changed = {"params": edited.pop(QUERY, None) or {}, "json_data": edited, "extra_json": None}
        options = self._options.model_copy(update=changed)
        sending = self._asending if self._async else self._sending
        return sending(options, sdk_body.json_copy(edited))

    def _sending(self, options: Any, body: Body | None) -> Any:
        with self._watch(body) as sending:
            try:
                return self._sdk.send(options)
            except Exception as error:
                if sending.response is None:
                    raise
                return _Unread(error)

    async def _asending(self, options: Any, body: Body | None) -> Any:
        with self._watch(body) as sending:
            try:
                return await self._sdk.send(options)
            except Exception as error:
                if sending.response is None:
                    raise
                return _Unread(error)

    @contextmanager
    def _watch(self, body: Body | None) -> Generator[Sending]:
        self._sent = sending = Sending(body)
        with on_its_way(sending):
            try:
                yield sending
            except BaseException as error:
                sending.failed(error)
                raise

    def _encode(self, answer: object) -> Json:
        response = self._sent.response if self._sent is not None else None
        if self._by_value or response is None:
            return {"value": codecs.encode(answer).wire}
        if self._plain:
            found = _json_in(response)
            if found is not None:
                return found
        return stored(response)

    # --- in a replay --------------------------------------------------------------------------------------------------

    def _decode(self, output: Json) -> object:
        if self._by_value and isinstance(output, dict) and output.keys() == {"value"}:
            return codecs.decode(output["value"])
        if isinstance(output, dict) and is_exchange(output):
            return _Kept(output, bare=False)
        return _Kept(_as_exchange(output), bare=True)

    # --- both ---------------------------------------------------------------------------------------------------------

    def ask(self) -> Any:
        """Sends the call through the current boundary: what the caller of the SDK gets."""
        return self._given(ambient.call(self.call(), self.send))

    async def aask(self) -> Any:
        """Async twin of `ask`."""
        answer = self._given(await ambient.acall(self.call(), self.asend))
        return await answer if inspect.iscoroutine(answer) else answer

    def _given(self, answer: Any) -> Any:
        """The answer, a recorded one read by the SDK (in a coroutine where the client is async)."""
        if isinstance(answer, _Unread):
            raise answer.error
        if not isinstance(answer, _Kept):
            return answer
        return self._sdk.read(self._reading(), lambda request: rebuilt(answer.exchange, request), answer.retries)

    def _reading(self) -> Any:
        """The options under which an exchange is read: nothing of them is sent, so they hold no files."""
        body = self._asked.body
        changed = {"json_data": body.value if body else None, "extra_json": None, "files": None, "content": None}
        return self._options.model_copy(update={n: v for n, v in changed.items() if hasattr(self._options, n)})


class RequestedStream(Requested):
    """A request whose answer comes in pieces, or is given to the program unread."""

    _streamed = True

    def __init__(self, client: Any, sdk: Sdk, options: Any, asked: Asked) -> None:
        super().__init__(client, sdk, options, asked, plain=False)

    def ask(self) -> Any:
        """See `Requested.ask`."""
        return self._opened(open_stream(self.call(), self.send, self._head, self._done))

    async def aask(self) -> Any:
        """See `Requested.aask`."""
        answer = self._opened(await aopen_stream(self.call(), self.asend, self._head, self._done))
        return await answer if inspect.iscoroutine(answer) else answer

    def _head(self, _: object) -> Json:
        """What came before the first piece; `None` for an answer that the SDK has read whole."""
        response = self._sent.response if self._sent is not None else None
        if response is None or hasattr(response, "_content"):
            return None
        return {**head_of(response), "retries": self._sent.retries if self._sent is not None else 0}

    def _done(self, streamed: Streamed) -> bool:
        return self._asked.kind == "llm" and is_done(streamed.data)

    def _opened(self, reply: Reply[Any]) -> Any:
        stream = reply.stream
        if stream is None:
            return self._given(reply.value)
        if stream.live:
            sent, self._sent = self._sent, None  # the stream holds this call: with its response here that were a circle
            assert sent is not None, "a live stream was sent"
            teed(sent.response, stream)
            return reply.raw
        retries = stream.head.get("retries") if isinstance(stream.head, dict) else None
        tried = retries if isinstance(retries, int) else 0
        return self._sdk.read(self._reading(), lambda r: played(stream, r, asynchronous=self._async), tried)

    def _encode(self, answer: object) -> Json:
        if isinstance(answer, Streamed):
            return told(answer, model=self._asked.kind == "llm")
        return super()._encode(answer)


def _complete(kept: object, facts: Attrs) -> object:
    """Puts on a recorded answer what stands beside it: ids that came in headers, how often the SDK tried."""
    if isinstance(kept, _Kept):
        tries = facts.get("tries")
        kept.retries = len(tries) - 1 if isinstance(tries, list) and tries else 0
        if kept.bare:
            headers = cast("list[Json]", kept.exchange["headers"])
            headers += [[name, facts[fact]] for name, fact in IDS.items() if isinstance(facts.get(fact), str)]
    return kept


def _json_in(response: Any) -> Json:
    """The JSON of an answer; `None` where it is none, or where its value does not tell all of its text."""
    content: bytes = response.content
    kind = str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
    if not kind.endswith("json") or any(mark in content for mark in (b"NaN", b"Infinity")):
        return None
    try:
        found = parsed(content)
    except ValueError:
        return None
    return None if isinstance(found, dict) and is_exchange(found) else found


def _as_exchange(answer: Json) -> dict[str, Json]:
    headers = [("content-type", "application/json")]
    return exchange(200, headers, dumps(answer), http_version="HTTP/1.1", reason_phrase="OK")


# --- from options -----------------------------------------------------------------------------------------------------


def request_call(client: Any, sdk: Sdk, cast_to: Any, options: Any, stream: bool) -> Requested | Passed:
    """The call behind any request of an SDK: `request(cast_to, options, stream=stream)`."""
    raw = asks_raw(options.headers)
    wanted = asked(options)
    why = _why_not(client, options, raw, stream) or (wanted if isinstance(wanted, str) else None)
    if why is not None or isinstance(wanted, str):
        about: Json = {"method": options.method.upper(), "path": options.url.partition("?")[0]}
        return Passed(lambda: sdk.send(options), name_of(options), about, why or "")
    if stream or raw == "stream":
        return RequestedStream(client, sdk, options, wanted)
    plain = wanted.kind == "llm" and raw is None and _is_parsed(cast_to)
    return Requested(client, sdk, options, wanted, plain)


def _why_not(client: Any, options: Any, raw: str | None, stream: bool) -> str | None:
    """Why this request is not recorded, or `None`."""
    if (raw is not None or stream) and getattr(client, "_middleware", ()):
        return "raw responses and streams of a client with middleware are not recorded"
    return None


def _is_parsed(cast_to: Any) -> bool:
    """Whether the SDK makes an object of an answer of this type, of which nothing shows bytes or headers."""
    if not inspect.isclass(cast_to):
        return True  # a union, an alias
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return base is not None and issubclass(cast_to, base)


_warned: set[str] = set()


def _warn(what: str) -> None:
    """Once for each kind of request in a process."""
    if what not in _warned:
        _warned.add(what)
        _log.warning("%s; this run can be read, but not replayed past this call", what)
