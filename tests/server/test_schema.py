"""Requests that nobody thought of, made from the OpenAPI document: none of them is answered with a fault of the server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.transport.asgi import ASGI_TRANSPORT

from agentloupe.server.app import openapi
from tests.fork_support import weather_run
from tests.server.serving import HOST, TOKEN, app_of, store_in

HEADERS = {"Authorization": f"Bearer {TOKEN}", "X-Loupe": "1"}
CHECKS: Any = [not_a_server_error, response_schema_conformance, status_code_conformance, content_type_conformance]
EXAMPLES = 40 if os.environ.get("HYPOTHESIS_PROFILE") == "ci" else 4
# A stream of all jobs ends only when its reader goes; it has tests of its own.
told: Any = schemathesis.openapi.from_dict(openapi()).exclude(path="/api/jobs/stream")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    store = store_in(tmp_path_factory.mktemp("schema"))
    weather_run(store)
    yield app_of(store)
    store.close()


@told.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
    database=None,
)
def test_no_request_is_a_fault_of_the_server(case: Any, app: Any) -> None:
    asked = case.path_parameters or {}
    if "run_id" in asked and case.method != "DELETE" and len(str(asked["run_id"])) % 2:
        asked["run_id"] = "weather-1"  # half of them are about a run that is there
    response = ASGI_TRANSPORT.send(case, app=app, base_url=HOST, headers=HEADERS)
    case.validate_response(response, checks=CHECKS)
