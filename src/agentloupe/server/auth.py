"""Who may: only who knows the token, only under a name of this machine, only from a page of this server.

A browser sends requests to a loopback address for any site that asks it to. So `Host` must be a name that means this
server (a name that was pointed at 127.0.0.1 is none), `Origin` must be the server itself, a write needs a header that no
form can send, and the cookie with the token is never sent along from elsewhere.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentloupe.server.reply import problem

__all__ = ["HEADERS", "WRITE_HEADER", "Guard"]

WRITE_HEADER: Final = "X-Loupe"
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Of every answer: the page's own files and nothing else, and nobody may frame or embed it."""

_OPEN: Final = frozenset({"/healthz", "/readyz"})
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Guard:
    """Middleware that lets nothing pass that the rules above do not allow.

    Attributes:
        app: what is guarded.
        token: the secret; `None`: everybody on this machine may (a person asked for that).
        hosts: further names that a request may be made to.
        cookie: the name of the cookie; it differs by port, since cookies do not.
    """

    app: ASGIApp
    token: str | None
    hosts: frozenset[str] = field(default_factory=frozenset[str])
    cookie: str = "loupe_token"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers itself, or hands on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no web sockets here
        refused = self._refusal(scope)
        await (refused or self.app)(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_ours(host):
            hint = "open the address that `agentloupe serve` printed; behind a proxy set LOUPE_SERVER_HOSTS"
            return problem(403, "host", "this server does not answer to that name", hint, "Host")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return problem(403, "origin", "another site may not ask this server", None, "Origin")
        if origin is None and headers.get("sec-fetch-site") in {"cross-site", "same-site"} and _is_api(scope):
            return problem(403, "origin", "another site may not ask this server", None, "Sec-Fetch-Site")
        return self._unknown(scope, headers) or self._forged(scope, headers)

    def _is_ours(self, host: str) -> bool:
        name = _name_of(host)
        if name in self.hosts or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    def _unknown(self, scope: Scope, headers: Headers) -> Response | None:
        """A request without the token; one with it in the address gets the cookie and loses it from the address."""
        if self.token is None or scope["path"] in _OPEN:
            return None
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = next((value for name, value in asked if name == "token"), None)
        if shown is not None and scope["method"] == "GET" and not _is_api(scope) and self._fits(shown):
            return self._welcome(scope, [(name, value) for name, value in asked if name != "token"])
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = (bearer if scheme.lower() == "bearer" else None, self._in_cookie(headers), shown)
        if any(one is not None and self._fits(one) for one in given):
            return None
        if _is_page(scope):
            return None  # the page's own files hold nothing of the user's, and can say what is missing
        return problem(
            401, "no_token", "the token is missing or wrong", "open the address that `agentloupe serve` printed"
        )

    def _fits(self, given: str) -> bool:
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def _welcome(self, scope: Scope, rest: list[tuple[str, str]]) -> Response:
        place = "/" + scope["path"].lstrip("/")  # never another host
        answer = RedirectResponse(place + (f"?{urlencode(rest)}" if rest else ""), 303)
        assert self.token is not None
        answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
        return answer

    def _in_cookie(self, headers: Headers) -> str | None:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return None
        return None if found is None else found.value

    def _forged(self, scope: Scope, headers: Headers) -> Response | None:
        if scope["method"] in _READS or headers.get(WRITE_HEADER.lower()) == "1":
            return None
        hint = f"send the header {WRITE_HEADER}: 1"
        return problem(403, "forged", "a write needs a header that no form can send", hint, WRITE_HEADER)


def _name_of(host: str) -> str:
    """The name in a `Host` header, without port and brackets."""
    name = host.lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rpartition(":")[0] if name.count(":") == 1 else name


def _is_api(scope: Scope) -> bool:
    return scope["path"].startswith("/api/") or scope["path"] == "/metrics"


def _is_page(scope: Scope) -> bool:
    return scope["method"] in _READS and not _is_api(scope)


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sent
