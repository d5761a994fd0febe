"""An endpoint sends whole requests as they are, once, and says plainly what went wrong."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agentloupe.providers import endpoint as module
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import HttpReply, HttpRequest, error_reply, json_reply, serve
from agentloupe.words.errors import ConfigError, ModelRefused, ModelUnreachable, ProviderError

ANSWER: dict[str, Any] = {
    "model": "m-2026-01-01",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "more": None},
    "unknown": [1, None],
}
KEY = "sk-canary-1234"


class Server:
    def __init__(self, url: str) -> None:
        self.url = f"{url}/v1"
        self.reply = json_reply(ANSWER, headers={"x-request-id": "req_1"})
        self.seen: list[HttpRequest] = []


@pytest.fixture
def server() -> Iterator[Server]:
    made: list[Server] = []

    def app(request: HttpRequest) -> HttpReply:
        made[0].seen.append(request)
        return made[0].reply

    with serve(app) as running:
        made.append(Server(running.url))
        yield made[0]


def test_a_request_goes_out_exactly_as_given(server: Server) -> None:
    request: dict[str, Any] = {
        "z": 1,
        "model": "m",
        "messages": [{"content": "é\udc00", "role": "user"}],
        "big": 2**70,
        "f": 1.0,
    }
    Endpoint(server.url, KEY, headers={"X-Team": "blue"}).send(request)
    sent = server.seen[0]
    assert list(json.loads(sent.body).items()) == list(request.items())
    assert b'"f":1.0' in sent.body
    assert (sent.method, sent.path) == ("POST", "/v1/chat/completions")
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.headers["content-type"] == "application/json"
    assert sent.headers["x-team"] == "blue"


def test_what_a_recording_says_of_the_url_goes_into_the_url(server: Server) -> None:
    Endpoint(server.url, KEY).send({"model": "m", "extra_query": {"api-version": "2026-02-01", "n": ["a b", "c"]}})
    assert json.loads(server.seen[0].body) == {"model": "m"}
    assert server.seen[0].query == "api-version=2026-02-01&n=a+b&n=c"


def test_an_answer_comes_back_whole_with_its_facts(server: Server) -> None:
    answer = Endpoint(server.url + "/").send({"model": "m", "messages": []})
    assert answer.response == ANSWER
    facts: Any = dict(answer.facts)
    assert [t["status"] for t in facts.pop("tries")] == [200]
    assert facts == {
        "model": "m-2026-01-01",
        "finish_reason": "stop",
        "usage": ANSWER["usage"],
        "input_tokens": 3,
        "output_tokens": 1,
        "provider": "127.0.0.1",
        "request_id": "req_1",
    }
    assert "authorization" not in server.seen[0].headers


def test_a_model_that_refuses_a_parameter_is_quoted_and_nothing_is_retried(server: Server) -> None:
    message = "'max_tokens' is not accepted by think-1; send 'max_completion_tokens'"
    server.reply = error_reply(400, message, param="max_tokens", code="unsupported_parameter")
    with pytest.raises(ModelRefused) as caught:
        Endpoint(server.url, KEY).send({"model": "think-1", "max_tokens": 300})
    error = caught.value
    assert (error.status, error.retry_after) == (400, None)
    assert error.body == json.loads(server.reply.body)  # type: ignore[arg-type]
    assert str(error) == f"the model answered HTTP 400: {message} (param max_tokens)"
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("status", "way_out"), [(401, "LLM_API_KEY"), (404, "LLM_MODEL"), (429, "wait"), (500, "the server failed")]
)
def test_error_statuses_are_one_line_with_the_way_out(server: Server, status: int, way_out: str) -> None:
    server.reply = error_reply(status, f"Incorrect key: {KEY}\nand sk-other\x1b[31m", code=KEY)
    with pytest.raises(ModelRefused) as caught:
        Endpoint(server.url, KEY).send({"model": "m"})
    text = str(caught.value)
    assert f"HTTP {status}" in text
    assert way_out in text
    assert "\n" not in text
    assert "\x1b" not in text
    assert "sk-" not in text
    assert KEY not in repr((caught.value.body, caught.value))
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_told(server: Server, headers: dict[str, str], seconds: float | None) -> None:
    server.reply = error_reply(429, "slow down", headers=headers)
    with pytest.raises(ModelRefused) as caught:
        Endpoint(server.url).send({})
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>bad gateway</html>", ""),
        (b'{"error": "just text"}', ": just text"),
        (b'{"message": "at the top"}', ": at the top"),
        (b'{"error": {"message": null}}', ""),
        (b"", ""),
        (b"[1]", ""),
    ],
)
def test_error_bodies_of_any_shape(server: Server, body: bytes, said: str) -> None:
    server.reply = HttpReply(502, body, {"content-type": "text/html"})
    with pytest.raises(ModelRefused) as caught:
        Endpoint(server.url).send({})
    assert caught.value.message == f"the model answered HTTP 502{said}"


def test_long_error_messages_are_cut(server: Server) -> None:
    server.reply = error_reply(400, "word " * 1000)
    with pytest.raises(ModelRefused) as caught:
        Endpoint(server.url).send({})
    assert len(caught.value.message) < 350


@pytest.mark.parametrize("body", [b"", b"it works", b"[]", b'"x"', b'{"a":', b"\xff"])
def test_an_answer_that_is_no_json_object(server: Server, body: bytes) -> None:
    server.reply = HttpReply(200, body, {"content-type": "application/json"})
    with pytest.raises(ProviderError, match="no JSON object") as caught:
        Endpoint(server.url).send({})
    assert not isinstance(caught.value, ModelRefused | ModelUnreachable)
    assert server.url in str(caught.value)


def test_a_redirect_is_not_followed(server: Server) -> None:
    server.reply = HttpReply(307, b"", {"location": f"{server.url}/elsewhere"})
    with pytest.raises(ProviderError, match="307"):
        Endpoint(server.url, KEY).send({})
    assert len(server.seen) == 1


def test_an_answer_that_is_too_large(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER", 10)
    with pytest.raises(ProviderError, match="larger"):
        Endpoint(server.url).send({})


def test_proxies_do_not_stand_between_here_and_this_machine(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert Endpoint(server.url).send({}).response == ANSWER


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ModelUnreachable) as caught:
        Endpoint(f"http://127.0.0.1:{port}/v1?x=1", KEY).send({})
    text = str(caught.value)
    assert f"http://127.0.0.1:{port}/v1:" in text
    assert "agentloupe demo --model local" in text
    assert KEY not in text


@contextmanager
def _listener(answer: bytes | None) -> Generator[str]:
    """Accepts one connection, reads, sends these bytes and hangs up; `None` keeps quiet until the end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        done = threading.Event()

        def run() -> None:
            accepted, _ = listening.accept()
            with accepted:
                accepted.recv(65536)
                if answer is None:
                    done.wait(10)
                else:
                    accepted.sendall(answer)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            done.set()
            thread.join()


@pytest.mark.parametrize("answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"])
def test_a_connection_that_breaks(answer: bytes) -> None:
    with _listener(answer) as url, pytest.raises(ModelUnreachable, match="broke"):
        Endpoint(url).send({})


def test_a_model_that_keeps_quiet() -> None:
    with _listener(None) as url, pytest.raises(ModelUnreachable, match=r"within 0\.05 s"):
        Endpoint(url, timeout=0.05).send({})


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8080", "ftp://host/v1", "http://", "http://host:port/v1", "http://ho st/v1", "http://a\n/v1"]
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match="LLM_BASE_URL"):
        Endpoint(url)


def test_credentials_have_their_place() -> None:
    with pytest.raises(ConfigError, match="LLM_BASE_URL holds a user"):
        Endpoint("https://me:secret@host/v1")
    with pytest.raises(ConfigError, match="LLM_API_KEY") as caught:
        Endpoint("https://host/v1", "sk-x\ny")
    assert "sk-x" not in str(caught.value)
    assert KEY not in repr(Endpoint("https://host/v1", KEY, headers={"x": KEY}))


def test_who_answers() -> None:
    assert Endpoint("https://api.openai.com/v1").provider == "openai"
    assert Endpoint("https://x.openai.azure.com/openai").provider == "azure"
    assert Endpoint("http://[::1]:8080/v1").provider == "::1"
