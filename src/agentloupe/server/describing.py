"""Examples in the description of the API: what a real server was asked and answered, and one error of each status."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

__all__ = ["EXAMPLES", "with_examples"]

EXAMPLES: Final = Path(__file__).with_name("examples.json")
"""`operations` by name (`get /api/runs`): `request`, and `answers` by status; `errors` by status. Made by `python -m tests.docs.examples`."""


def with_examples(document: dict[str, Any]) -> dict[str, Any]:
    """Puts an example at every request, every answer and every error of a description; changes and returns it."""
    known = _examples()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            _in_operation(operation, known["operations"].get(f"{method} {path}", {}), known["errors"])
    errors = {f"Error{status}": {"value": error} for status, error in known["errors"].items()}
    document.setdefault("components", {})["examples"] = errors
    return document


def _in_operation(operation: dict[str, Any], known: dict[str, Any], errors: dict[str, Any]) -> None:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        if "request" in known:
            content["example"] = known["request"]
    for status, answer in operation["responses"].items():
        for content in answer.get("content", {}).values():
            if status in errors:
                content["examples"] = {"error": {"$ref": f"#/components/examples/Error{status}"}}
            elif status in known.get("answers", {}):
                content["example"] = known["answers"][status]


@cache
def _examples() -> dict[str, Any]:
    return json.loads(EXAMPLES.read_text("utf-8"))
