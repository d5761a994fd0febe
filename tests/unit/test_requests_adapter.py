"""HTTP APIs through `requests`: whole answers and streams, recorded and replayed."""

from __future__ import annotations

import gzip
import io
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.providers.loopback import HttpReply, HttpRequest, serve
from agentloupe.verbs.replaying import replay
from tests.stream_support import Player, answer_of, model_step, playing, stored_bytes

requests = pytest.importorskip("requests")
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
PARTS = [
    b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": word}}]}).encode() + b"\n\n"
    for word in ("The", " tide", " turns")
] + [b"data: [DONE]\n\n"]


def _session() -> Any:
    session = requests.Session()
    session.trust_env = False
    session.mount("http://", loupe.requests_adapter(max_retries=0))
    return session


def _seen(response: Any) -> list[Any]:
    headers = [[name, value] for name, value in response.raw.headers.items() if name.lower() != "date"]
    about = [response.status_code, response.reason, response.url, response.encoding, headers]
    return [*about, response.content.hex(), response.text]


REPLIES = {
    "json": HttpReply(200, b'{"model": "m-1", "choices": []}', {"content-type": "application/json"}),
    "gzip": HttpReply(200, gzip.compress(b"{}"), {"content-type": "application/json", "Content-Encoding": "gzip"}),
    "bytes": HttpReply(200, b"\xff\x00", {"content-type": "application/octet-stream"}),
    "error": HttpReply(429, b"{}", {"content-type": "application/json", "retry-after": "1"}),
    "empty": HttpReply(204, b"", {}),
}


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("reply", REPLIES)
def test_the_same_answer_comes_back(reply: str) -> None:
    asked: list[HttpRequest] = []

    def app(request: HttpRequest) -> HttpReply:
        asked.append(request)
        return REPLIES[reply]

    with serve(app) as server:

        def worker() -> list[Any]:
            with _session() as session:
                return _seen(session.post(f"{server.url}/v1/chat/completions?x=1", json=BODY))

        bare = worker()
        done = loupe.record(worker)
        assert done.result == bare
        report = replay(done.run_id, worker)
        assert report.passed, report.text()
        assert len(asked) == 2
    step = model_step(done.run_id)
    assert (step.name, step.attrs["status_code"]) == ("chat m", REPLIES[reply].status)


def _streams(server: Player, how: Callable[[Any], Any]) -> Any:
    def worker() -> Any:
        with (
            _session() as session,
            session.post(f"{server.url}/v1/chat/completions", json={**BODY, "stream": True}, stream=True) as response,
        ):
            return how(response)

    return worker


READS: dict[str, Callable[[Any], Any]] = {
    "lines": lambda response: [line.decode() for line in response.iter_lines()],
    "content": lambda response: [part.hex() for part in response.iter_content(None)],
    "small": lambda response: [part.hex() for part in response.iter_content(7)],
    "whole": lambda response: response.text,
    "raw": lambda response: response.raw.read().decode(),
}


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("how", READS)
def test_a_stream_comes_back_as_it_was_read(how: str) -> None:
    with playing(PARTS) as server:
        worker = _streams(server, READS[how])
        bare = worker()
        done = loupe.record(worker)
        assert done.result == bare
        asked = server.asked
        report = replay(done.run_id, worker)
        assert report.passed, report.text()
        assert server.asked == asked
    assert stored_bytes(done.run_id) == b"".join(PARTS)
    assert answer_of(done.run_id)["choices"][0]["message"]["content"] == "The tide turns"
    assert model_step(done.run_id).attrs["stream"] == "complete"


@pytest.mark.usefixtures("workdir")
def test_a_stream_that_is_left_early_is_left_again() -> None:
    with playing(PARTS) as server:
        server.hold = threading.Event()
        first = _streams(server, lambda response: next(response.iter_content(None)).decode())
        done = loupe.record(first)
        assert done.result == PARTS[0].decode()
        assert (model_step(done.run_id).status, model_step(done.run_id).attrs["stream"]) == ("cancelled", "left_early")
        assert replay(done.run_id, first).passed
        further = replay(done.run_id, _streams(server, lambda response: response.text))
        assert further.divergence is not None
        assert further.divergence.kind == "extra"


@pytest.mark.usefixtures("workdir")
def test_a_body_that_is_used_up_by_reading_is_sent_and_said_to_be_lost() -> None:
    seen: list[bytes] = []

    def app(request: HttpRequest) -> HttpReply:
        seen.append(request.body)
        return HttpReply(200, b"{}")

    with serve(app) as server:

        def worker() -> int:
            with _session() as session:
                return session.post(f"{server.url}/v1/files", data=io.BytesIO(b"ab")).status_code

        done = loupe.record(worker)
    assert (done.result, seen) == (200, [b"ab"])
    row = loupe.open_store().run(done.run_id)
    assert row is not None
    assert row.coverage == "limited_replay"


@pytest.mark.usefixtures("workdir")
def test_a_connection_that_fails_fails_again() -> None:
    def worker() -> str:
        with _session() as session:
            try:
                session.post("http://127.0.0.1:1/v1/chat/completions", json=BODY)
            except requests.ConnectionError as error:
                return type(error).__name__
        return "fine"

    done = loupe.record(worker)
    assert done.result == "ConnectionError"
    report = replay(done.run_id, worker)
    assert report.passed, report.text()
