"""Answers of the server, checked for what all of them have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["good", "refused"]


def good(answer: Any) -> Any:
    """The document of an answer that went well."""
    assert answer.status_code in {200, 202}, answer.text
    return answer.json()


def refused(answer: Any, status: int, reason: str) -> Mapping[str, Any]:
    """The error of one that did not."""
    error = answer.json()["error"]
    assert (answer.status_code, error["reason"]) == (status, reason), answer.text
    assert set(error) >= {"reason", "message", "hint", "place"}
    return error
