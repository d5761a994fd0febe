"""The description of the API: an example at every request, every answer and every error, each of the form that it is of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from agentloupe.server.app import openapi

DOCUMENT = openapi()
BYTES = {("get", "/api/runs/{run_id}/export")}
"""What they answer is a file: no text shows it."""


def _places() -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything that has a form, by its name."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                yield f"{method} {path}: request", content
            for status, answer in operation["responses"].items():
                for kind, content in answer.get("content", {}).items():
                    if (method, path) not in BYTES or kind != "application/octet-stream":
                        yield f"{method} {path}: {status}", content


def _example(content: dict[str, Any]) -> Any:
    if "example" in content:
        return content["example"]
    (one,) = content.get("examples", {"": {}}).values()
    name = one.get("$ref", "").rpartition("/")[2]
    return DOCUMENT["components"]["examples"][name]["value"] if name else None


def test_every_request_and_every_answer_has_an_example() -> None:
    assert [name for name, content in _places() if _example(content) is None] == []


def test_every_operation_tells_the_errors_that_it_may_give() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            errors = {status: one for status, one in operation["responses"].items() if status >= "4"}
            assert {"400", "401", "403", "404", "409", "413", "422", "429", "503"} <= errors.keys(), (method, path)
            for status, one in errors.items():
                form = one["content"]["application/json"]["schema"]
                assert form == {"$ref": "#/components/schemas/ErrorDocument"}, (method, path, status)


@pytest.mark.parametrize(("name", "content"), list(_places()), ids=lambda one: one if isinstance(one, str) else "")
def test_an_example_is_of_its_form(name: str, content: dict[str, Any]) -> None:
    form = {**content.get("schema", {}), "components": DOCUMENT["components"]}
    jsonschema_rs.validate(form, _example(content))
