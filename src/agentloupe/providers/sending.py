"""One request on its way through a client library: its tries, what went out, what came back."""

from __future__ import annotations

import sys
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from agentloupe.ports import ambient
from agentloupe.providers.sdk_body import Body
from agentloupe.providers.tries import Tries
from agentloupe.words.trace import TRACEPARENT

__all__ = ["IDS", "SENDING", "Sending", "answered", "on_its_way", "one_try", "passes_on", "trace_into", "try_ended"]

IDS = {"x-request-id": "request_id", "request-id": "request_id", "anthropic-workspace-id": "workspace_id"}
"""Headers that SDKs put on their objects, and the facts that they become."""


_IDS = frozenset(name.encode() for name in IDS)


class Sending:
    """One call on its way through the SDK.

    Attributes:
        request: the last request that went out.
        response: the response that the SDK accepted; `None` until it did.
        retries: how many tries failed before that one.
    """

    __slots__ = ("_body", "request", "response", "retries", "tries")

    def __init__(self, body: Body | None) -> None:
        self._body = body
        self.tries = Tries()
        self.request: Any = None
        self.response: Any = None
        self.retries = 0

    def goes_out(self, request: Any) -> None:
        """The SDK made a request and is about to send it."""
        self.request = request
        trace_into(request.headers)
        self.tries.begin()

    def came_back(self, response: Any, retries: int = 0) -> None:
        """The SDK has an answer that it accepts."""
        self.tries.end(status=response.status_code)
        self.response = response
        self.retries = retries
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
        headers = response.headers
        if not _IDS.isdisjoint(
            [name.lower() for name, _ in headers.raw]
        ):  # most answers have none, and a look-up is slow
            for name, fact in IDS.items():
                if (found := headers.get(name)) is not None:
                    ambient.note(fact, found)
        try:
            sent: object = response.request.content or self.request.content
        except (AttributeError, RuntimeError):
            return  # a streamed body, a response without its request
        other = self._body.differs(sent) if isinstance(sent, bytes) and self._body is not None else None
        if other is not None:
            ambient.note("sent", other)


SENDING: ContextVar[Sending | None] = ContextVar("agentloupe_sending", default=None)
"""The call that this code is sending, if any."""


@contextmanager
def on_its_way(sending: Sending) -> Generator[Sending]:
    """While the block runs it sends this call: nothing below it is a call of its own."""
    token = SENDING.set(sending)
    try:
        yield sending
    finally:
        SENDING.reset(token)


@contextmanager
def one_try(sending: Sending, headers: MutableMapping[str, Any]) -> Generator[list[int]]:
    """Lists the try that is made inside; its status is to be put into the list.

    `headers` of the request get the trace of the step, see `trace_into`.
    """
    seen: list[int] = []
    trace_into(headers)
    sending.tries.begin()
    try:
        yield seen
    except BaseException as error:
        sending.tries.end(error=type(error).__name__)
        raise
    sending.tries.end(status=seen[0])


def trace_into(headers: MutableMapping[str, Any]) -> None:
    """Puts the trace of the step into a request's headers, where the settings say so; one that the program put there stays.

    Headers are no part of what a request is matched by.
    """
    passed = ambient.passed_on()
    if passed and not any(str(name).lower() == TRACEPARENT for name in headers):
        headers.update(passed)


def passes_on() -> bool:
    """Whether a request goes out as it is: outside of any run, and on behalf of a call that is recorded already."""
    return SENDING.get() is not None or ambient.current() is None


def try_ended(response: Any) -> None:
    """A try failed, the SDK will wait and try again."""
    sending = SENDING.get()
    if sending is None:
        return
    if response is not None:
        sending.tries.end(status=response.status_code)
    else:
        sending.tries.end(error=type(sys.exc_info()[1]).__name__)


def answered(response: Any, retries: int) -> None:
    """The SDK has an answer that it accepts."""
    sending = SENDING.get()
    if sending is not None and response is not None:
        sending.came_back(response, retries)
