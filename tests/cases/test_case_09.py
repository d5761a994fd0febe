"""Case 09: matching after secrets were removed, and multipart boundaries. Nothing listens where the requests go."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import requests.adapters
import urllib3

import agentloupe as loupe
from agentloupe.engine.project import load_steps
from agentloupe.engine.report import ReplayReport
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.sessions import RecordOpener

CANARY = "LOUPE-CANARY-09"
Asked = tuple[str, str, dict[str, str], bytes]
Client = Callable[[Asked], Any]


def by_httpx(library: Any, inner: Any = None) -> Client:
    def send(asked: Asked) -> Any:
        method, url, headers, content = asked
        with library.Client(transport=loupe.http_transport(inner)) as client:
            return client.request(method, url, headers=headers, content=content).json()

    return send


def by_requests(asked: Asked) -> Any:
    method, url, headers, content = asked
    with requests.Session() as session:
        session.trust_env = False
        session.mount("http://", loupe.requests_adapter())
        return session.request(method, url, headers=headers, data=content).json()


def answered(adapter: Any, request: Any, *_: object, **__: object) -> Any:
    raw = urllib3.HTTPResponse(io.BytesIO(b'{"a": 1}'), status=200, reason="OK", preload_content=False)
    return adapter.build_response(request, raw)


@pytest.fixture(params=["httpx", "httpx2", "requests"])
def clients(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Client, Client]:
    """One whose server answers, to record with, and one as the program has it."""
    if request.param != "requests":
        library: Any = {"httpx": httpx, "httpx2": httpx2}[request.param]
        mock = library.MockTransport(lambda _: library.Response(200, json={"a": 1}))
        return by_httpx(library, mock), by_httpx(library)

    def recording(asked: Asked) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(requests.adapters.HTTPAdapter, "send", answered)
            return by_requests(asked)

    return recording, by_requests


@pytest.fixture(autouse=True)
def dialled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """No test of this case may try to connect: neither while it records, nor in a match, nor in a miss."""
    tried: list[Any] = []
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, lambda _, address: tried.append(address))
    yield tried
    assert tried == []


@pytest.fixture
def case(shared_case: Callable[[str], Path]) -> Path:
    return shared_case("09")


@pytest.fixture
def store(workdir: Path) -> Iterator[Store]:
    opened = open_url(workdir / "x.db")
    yield opened
    opened.close()


def exchange_of(case: Path, name: str) -> Asked:
    live = json.loads((case / f"{name}.json").read_text(encoding="utf-8"))
    return live["method"], live["url"], live["headers"], json.dumps(live["body"]).encode()


def before_redaction(case: Path) -> Asked:
    """The recorded exchange as it was sent: in its own order, with the secrets that were taken out."""
    kept = json.loads((case / "redacted_recorded.json").read_text(encoding="utf-8"))
    _, _, headers, content = exchange_of(case, "live_same")
    secret = json.loads(content)["user_token"]
    body = {key: secret if key == "user_token" else value for key, value in kept["body"].items()}
    url = kept["url"].replace("[REDACTED]", "LOUPE-CANARY-0901")
    return kept["method"], url, headers, json.dumps(body).encode()


def form_of(case: Path, name: str) -> Asked:
    headers = json.loads((case / f"{name}.headers.json").read_text(encoding="utf-8"))
    return "POST", "http://127.0.0.1:9/v1/files", headers, (case / f"{name}.body").read_bytes()


def made(store: Store, client: Client, asked: Asked) -> str:
    opener = RecordOpener(store)
    with ambient.opening_with(opener), loupe.recording("case", store=store):
        assert client(asked) == {"a": 1}
    return store.runs()[0].id


def again(store: Store, run_id: str, client: Client, asked: Asked) -> tuple[ReplayReport, list[Any]]:
    got: list[Any] = []

    def program() -> None:
        with loupe.recording("case"):
            got.append(client(asked))

    return replay(store.recording(run_id), program), got


def test_the_live_side_is_redacted_before_it_is_compared(
    case: Path, workdir: Path, store: Store, clients: tuple[Client, Client]
) -> None:
    recording, client = clients
    run_id = made(store, recording, before_redaction(case))
    report, got = again(store, run_id, client, exchange_of(case, "live_same"))
    assert (report.verdict, got) == ("pass", [{"a": 1}]), report.text()

    report, got = again(store, run_id, client, exchange_of(case, "live_changed"))
    found = report.divergence
    assert found is not None
    assert (found.kind, got) == ("input_changed", [])
    assert [change.path for change in found.changes] == [("body", "json", "q")], "the body field, and nothing else"
    assert CANARY not in report.text() + json.dumps(report.as_json())

    with (workdir / "x.loupe").open("wb") as out:
        LoupeFileExporter().write(iter([store.recording(run_id)]), out)
    for path in workdir.rglob("*"):
        assert CANARY.encode() not in path.read_bytes(), path


def test_a_boundary_is_chance_and_a_byte_is_not(case: Path, store: Store, clients: tuple[Client, Client]) -> None:
    recording, client = clients
    run_id = made(store, recording, form_of(case, "recorded"))
    (step,) = (step for step in load_steps(store.recording(run_id)) if step.kind == "other")
    assert isinstance(step.input, dict)
    assert step.input["body"] == {
        "multipart": [
            {"purpose": "vision"},
            {"file": {"filename": "a.bin", "content-type": "application/octet-stream", "base64": "AP8NCi0tQQ=="}},
        ]
    }
    for name in ("recorded", "same_parts_new_boundary"):
        report, got = again(store, run_id, client, form_of(case, name))
        assert (report.verdict, got) == ("pass", [{"a": 1}]), report.text()
    report, got = again(store, run_id, client, form_of(case, "one_byte_changed"))
    assert report.divergence is not None
    assert (report.divergence.kind, got) == ("input_changed", [])
