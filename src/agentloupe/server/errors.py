"""The one seam at which errors become answers: a status, and `{"error": {reason, message, hint, place}}`.

Messages name the place and the way out and never hold a payload, as everywhere in the package.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from agentloupe.server.reply import problem
from agentloupe.words.errors import (
    ForkRefused,
    LoupeError,
    ModelRefused,
    NotFound,
    ProviderError,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    UsageError,
)
from agentloupe.words.jsontext import Json

__all__ = ["ASKED_WRONG", "answer_to", "install"]

_LOG = logging.getLogger("agentloupe.server")

_OF_REASON: Final[Mapping[str, int]] = {"too_large": 413, "exists": 409, "no_model": 409, "missing": 503, "closed": 503}
_OF_CLASS: Final[tuple[tuple[type[LoupeError], int], ...]] = (
    (NotFound, 404),
    (UsageError, 400),
    (ForkRefused, 400),
    (StoreBusy, 503),
    (StoreFull, 503),
    (StoreReadOnly, 503),
    (StoreError, 503),
    (ProviderError, 503),
)
ASKED_WRONG: Final = 422
"""Status of a request that does not have the form that its route asks for."""

_OF_STATUS: Final[Mapping[int, str]] = {401: "no_token", 403: "forbidden", 404: "not_found", 405: "method_not_allowed"}


def status_of(error: LoupeError) -> int:
    """The HTTP status of an error of the tree."""
    if isinstance(error, ModelRefused) and error.status == 429:
        return 429
    if error.reason in _OF_REASON:
        return _OF_REASON[error.reason]
    return next((status for kind, status in _OF_CLASS if isinstance(error, kind)), 409)


def answer_to(error: LoupeError) -> Response:
    """An error of the tree as an answer; a provider's wait is in it, and in the header that says so."""
    place = getattr(error, "place", None)
    more: dict[str, Json] = {}
    wait = getattr(error, "retry_after", None)
    if isinstance(wait, int | float):
        more["retry_after"] = wait
    answer = problem(status_of(error), error.reason, error.message, error.hint, place, **more)
    if more:
        answer.headers["Retry-After"] = str(round(cast("float", wait)))
    return answer


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, LoupeError)
    return answer_to(error)


def _asked_wrong(_: Request, error: Exception) -> Response:
    """Names the first wrong field; its value is not repeated."""
    assert isinstance(error, RequestValidationError)
    faults = cast("list[Mapping[str, Any]]", error.errors())
    first = faults[0] if faults else cast("Mapping[str, Any]", {})
    where = ".".join(str(part) for part in first.get("loc", ()))
    if first.get("type") == "json_invalid":
        return problem(400, "not_json", "the body of the request is not JSON", place=f"{where}")
    said = f"{where}: {first.get('msg', 'not as the route asks for')}"
    return problem(ASKED_WRONG, "asked_wrong", said, "GET /api/openapi.json tells the form of every request", where)


def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason = _OF_STATUS.get(error.status_code, "refused")
    answer = problem(error.status_code, reason, str(error.detail))
    answer.headers.update(error.headers or {})
    return answer


def _fault(request: Request, error: Exception) -> Response:
    _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    hint = "the server's log has the traceback; please report it"
    return problem(500, "internal", f"a fault of the server itself ({type(error).__name__})", hint)


def install(app: FastAPI) -> None:
    """Makes every failure of a route an answer of that shape."""
    app.add_exception_handler(LoupeError, _refused)
    app.add_exception_handler(RequestValidationError, _asked_wrong)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _fault)
