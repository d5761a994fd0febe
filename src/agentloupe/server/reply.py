"""Answers as JSON with every number exact: integers beyond 64 bits and decimals as text arrive as they were stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from agentloupe.words.jsontext import Json, quick_text

__all__ = ["problem", "reply"]


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer. What is in it was made by this package, so it is not checked again against its schema."""
    return Response(quick_text(value), status, dict(headers or {}), "application/json")


def problem(
    status: int, reason: str, message: str, hint: str | None = None, place: str | None = None, **more: Json
) -> Response:
    """An error in the one shape that errors have; `more` are further members of it."""
    said: dict[str, Json] = {"reason": reason, "message": message, "hint": hint, "place": place, **more}
    return reply({"error": said}, status)
