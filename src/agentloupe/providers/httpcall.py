"""An HTTP request of any client library as a call of the boundary."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

from agentloupe.ports.streams import Streamed
from agentloupe.providers import chat
from agentloupe.providers.assembling import is_done
from agentloupe.providers.exchange import facts_of
from agentloupe.providers.httpasked import body_asked, query_asked, query_in_order, query_text
from agentloupe.providers.httpstream import told
from agentloupe.providers.sending import Sending, on_its_way, one_try
from agentloupe.words.call import Attrs, Call, Kind
from agentloupe.words.canonical import Json
from agentloupe.words.errors import NotRebuildable
from agentloupe.words.jsontext import parsed

__all__ = ["HttpCall", "bytes_of_body", "json_bytes"]

_KEYS: Final = frozenset({"key", "sig", "signature"})
"""Parameters of a model's URL that are credentials where their names alone do not say so."""
_GOOGLE: Final = re.compile(r"(^|\.)googleapis\.com$|^/v\d+(alpha|beta)\d*/")
"""Host, or path behind a gateway, of APIs that take their key as `?key=`, also where no model answers."""
_KEY: Final = re.compile(r"(?<=[?&])key=[^&]*")


class HttpCall:
    """One request, and the call that it is: kind `llm` where a model answers (path and JSON body say so), else `other`.

    Args:
        method, url: of the request.
        content: its body, whole; `None` where it cannot be read without using it up.
        content_type: the header of that name.

    Attributes:
        asked: whether it asks for a stream.
    """

    def __init__(self, method: str, url: str, content: bytes | None, content_type: str) -> None:
        self._method = method
        self._url = url
        self._content = content
        self._content_type = content_type
        address = urlsplit(url)
        self._path, self._query = address.path, address.query
        body = _json_of(content or b"")
        self._body: dict[str, Json] = body if isinstance(body, dict) else {}
        self._operation = chat.operation_of(self._path) if self._body else None
        self._model = self._operation is not None and chat.names_a_model(self._path, self._body)
        self.asked = self._body.get("stream") is True

    def call(
        self,
        encode: Callable[[Any], Json],
        decode: Callable[[dict[str, Json]], object],
        resend: Callable[[dict[str, Json], str | None], object],
    ) -> Call:
        """The call.

        Args:
            encode: a whole response to a stored exchange.
            decode: the reverse.
            resend: sends the request with another JSON body, and to another URL where that is not `None`.
        """
        endpoint = chat.endpoint_of(self._path)
        facts: Attrs = {"provider": chat.provider_of(self._url), "method": self._method}
        if self._model:
            facts = {**chat.request_facts(self._body, self._path), **facts, "endpoint": chat.asked_at(self._path)}

        def decoded(answer: Json) -> object:
            if not isinstance(answer, dict):
                raise NotRebuildable(f"the recorded answer of {endpoint} is no exchange")
            return decode(answer)

        def again(asked: Json) -> object:
            body = dict(cast("dict[str, Json]", asked))
            query = body.pop(chat.QUERY, None) or {}
            known, changed = query_asked(self._query), dict[str, str]()
            if isinstance(query, dict) and query != _told(known):
                changed["query"] = query_text({**{k: v for k, v in known.items() if k in _KEYS}, **query})
            if "model" not in self._body and (path := chat.with_model(self._path, body.get("model"))) is not None:
                changed["path"] = path
                del body["model"]
            return resend(body, urlunsplit(urlsplit(self._url)._replace(**changed)) if changed else None)

        return Call(
            kind="llm" if self._model else "other",
            name=self._name(endpoint),
            input=self._asked(),
            attrs=facts,
            encode=lambda answer: told(answer, model=self._model) if isinstance(answer, Streamed) else encode(answer),
            decode=decoded,
            facts=facts_of,
            resend=again if self._model else None,
            lost=(("$.body", "a body that can be read once"),) if self._content is None else (),
            streamed=True,
            formerly=self._formerly(endpoint),
        )

    def _formerly(self, endpoint: str) -> tuple[Kind, str, Json] | None:
        """The call as older recordings have it, where they have another."""
        name = chat.former_name(self._body, self._path) if self._model else None
        if name is None:
            return None
        return ("llm", name, self._asked()) if name else ("other", f"{self._method} {endpoint}", self._asked_of_none())

    def _name(self, endpoint: str) -> str:
        if self._model and self._operation is not None:
            return chat.step_name(self._body, self._operation, self._path)
        return f"{self._method} {endpoint}"

    def _asked(self) -> dict[str, Json]:
        if self._model:
            query = _told(query_asked(self._query))
            return {**self._body, chat.QUERY: query} if query else self._body
        return self._asked_of_none()

    def _asked_of_none(self) -> dict[str, Json]:
        """What is asked of a server that is no model's."""
        body = {} if self._content is None else body_asked(self._content, self._content_type)
        query = query_in_order(self._query)
        if _GOOGLE.search(chat.host_of(self._url)) or _GOOGLE.search(self._path):
            query = _KEY.sub("key=", query)
        return {"path": self._path, "query": query, "body": body}

    def done(self, streamed: Streamed) -> bool:
        """Whether a stream says no more."""
        return self._model and is_done(streamed.data)

    @contextmanager
    def tried(self, headers: MutableMapping[str, Any]) -> Generator[list[int]]:
        """Lists the only try of a call, see `one_try`. No transport below records it again."""
        with on_its_way(Sending(None)) as sending, one_try(sending, headers) as seen:
            yield seen


def _told(query: dict[str, Json]) -> dict[str, Json]:
    """A query without what lets a program in."""
    return {name: value for name, value in query.items() if name not in _KEYS}


def bytes_of_body(body: object) -> bytes | None:
    """The body of a request; `None` where it cannot be read without using it up."""
    if isinstance(body, str):
        return body.encode()
    return b"" if body is None else bytes(body) if isinstance(body, bytes | bytearray) else None


def json_bytes(body: Json) -> bytes:
    """A JSON body as clients send it."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _json_of(content: bytes) -> Json:
    try:
        return parsed(content)
    except ValueError:
        return None
