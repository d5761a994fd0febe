"""Streams through the HTTP transport: passed on as they come, recorded piece by piece, replayed alike (T5, case 01)."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.ports.streams import pieces_of
from agentloupe.providers.http import http_transport
from agentloupe.providers.loopback import HttpReply, HttpRequest, serve
from agentloupe.verbs.replaying import replay

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
KINDS = [("httpx", False), ("httpx", True), ("httpx2", False), ("httpx2", True)]


def chunk(text: str | None, **more: Any) -> bytes:
    delta = {} if text is None else {"content": text}
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}], **more}).encode() + b"\n\n"


PARTS = [chunk("The"), chunk(" tide"), chunk(" turns"), chunk(None, usage={"prompt_tokens": 2, "completion_tokens": 3})]
END = b"data: [DONE]\n\n"


class Server:
    """Answers with parts; where `hold` is set, all after the first wait for it."""

    def __init__(self) -> None:
        self.url = ""
        self.parts: list[bytes] = [*PARTS, END]
        self.headers = {"content-type": "text/event-stream"}
        self.hold: threading.Event | None = None
        self.asked = 0

    def __call__(self, request: HttpRequest) -> HttpReply:
        self.asked += 1
        return HttpReply(200, self._body(), self.headers)

    def _body(self) -> Iterator[bytes]:
        for n, part in enumerate(self.parts):
            if n == 1 and self.hold is not None:
                assert self.hold.wait(10)
            yield part


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    with serve(made) as running:
        made.url = f"{running.url}/v1/chat/completions"
        yield made


Reader = Callable[[Any], Iterator[Any]]


def _agent(library: str, asynchronous: bool, server: Server, how: str = "iter_raw", stop: int | None = None) -> Any:
    """An agent that reads a stream by the client's method `how`, and leaves after `stop` parts."""
    module = importlib.import_module(library)

    def worker() -> list[Any]:
        got: list[Any] = []
        with (
            module.Client(transport=http_transport(module.HTTPTransport(verify=False))) as client,
            client.stream("POST", server.url, json=BODY) as response,
        ):
            for part in getattr(response, how)():
                got.append(part)
                if len(got) == stop:
                    break
        return got

    async def later() -> list[Any]:
        got: list[Any] = []
        async with (
            module.AsyncClient(transport=http_transport(module.AsyncHTTPTransport(verify=False))) as client,
            client.stream("POST", server.url, json=BODY) as response,
        ):
            async for part in getattr(response, f"a{how}")():
                got.append(part)
                if len(got) == stop:
                    break
        return got

    return later if asynchronous else worker


def _bare(agent: Any) -> Any:
    made = agent()
    return asyncio.run(made) if asyncio.iscoroutine(made) else made


def _step(run_id: str) -> Any:
    (step,) = [s for s in loupe.open_store().steps(run_id) if s.kind != "agent"]
    return step


def _answer(run_id: str, step: Any) -> Any:
    return loupe.open_store().recording(run_id).body(step.output_digest)


def _stored(run_id: str) -> bytes:
    recording = loupe.open_store().recording(run_id)
    batches: list[Any] = [recording.body(e.bodies["pieces"]) for e in recording.events if e.type.endswith(".streamed")]
    return b"".join(data for batch in batches for _, data in pieces_of(batch))


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize(("library", "asynchronous"), KINDS)
@pytest.mark.parametrize("how", ["iter_raw", "iter_bytes", "iter_text", "iter_lines"])
def test_a_stream_comes_back_as_it_came(server: Server, library: str, asynchronous: bool, how: str) -> None:
    pytest.importorskip(library)
    agent = _agent(library, asynchronous, server, how)
    done = loupe.record(agent)
    assert "".join(p if isinstance(p, str) else p.decode() for p in done.result).replace("\n", "") == (
        "".join(p.decode() for p in server.parts).replace("\n", "")
    )
    step = _step(done.run_id)
    assert (step.kind, step.status, step.input_tokens, step.output_tokens) == ("llm", "ok", 2, 3)
    assert step.attrs["stream"] == "complete"
    assert step.attrs["first_token_ms"] >= 0
    answer = _answer(done.run_id, step)
    assert answer["choices"][0]["message"]["content"] == "The tide turns"
    assert _stored(done.run_id) == b"".join(server.parts)
    asked = server.asked
    report = replay(done.run_id, agent)
    assert report.passed, report.text()
    assert server.asked == asked


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize(("library", "asynchronous"), KINDS)
def test_the_first_piece_arrives_while_the_rest_is_not_there_yet(
    server: Server, library: str, asynchronous: bool
) -> None:
    module = pytest.importorskip(library)
    server.hold = threading.Event()

    def worker() -> list[bytes]:
        client = module.Client(transport=http_transport(module.HTTPTransport(verify=False)))
        with client, client.stream("POST", server.url, json=BODY) as response:
            parts = response.iter_raw()
            first = next(parts)
            assert server.hold is None or server.hold.set() is None
            return [first, *parts]

    async def later() -> list[bytes]:
        client = module.AsyncClient(transport=http_transport(module.AsyncHTTPTransport(verify=False)))
        async with client, client.stream("POST", server.url, json=BODY) as response:
            parts = response.aiter_raw()
            first = await anext(parts)
            assert server.hold is None or server.hold.set() is None
            return [first, *[part async for part in parts]]

    done = loupe.record(later if asynchronous else worker)
    assert done.result[0] == server.parts[0]
    assert b"".join(done.result) == b"".join(server.parts)


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize(("library", "asynchronous"), KINDS)
def test_a_stream_that_is_left_early_is_one_cancelled_step(server: Server, library: str, asynchronous: bool) -> None:
    pytest.importorskip(library)
    server.hold = threading.Event()
    agent = _agent(library, asynchronous, server, stop=1)
    done = loupe.record(agent)
    server.hold.set()
    step = _step(done.run_id)
    assert (step.status, step.attrs["stream"], step.attrs["pieces"]) == ("cancelled", "left_early", 1)
    assert (step.input_tokens, step.output_tokens, step.cost) == (None, None, None)
    assert step.ended_at is not None
    answer = _answer(done.run_id, step)
    assert (answer["choices"][0]["message"]["content"], answer["usage"]) == ("The", None)
    assert replay(done.run_id, agent).passed
    further = replay(done.run_id, _agent(library, asynchronous, server, stop=2))
    assert further.divergence is not None
    assert (further.divergence.kind, further.divergence.sequence) == ("extra", step.last_seq)
    opened = next(e for e in loupe.open_store().recording(done.run_id).events if e.type == "model.opened")
    assert further.divergence.agreed == (opened.sequence, "model.opened", step.name)
    assert "record the run anew" in str(further.divergence.suggestion)
    assert "last agreeing" in further.text()


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize(("library", "asynchronous"), KINDS)
def test_leaving_a_stream_that_was_read_to_its_end_is_a_divergence(
    server: Server, library: str, asynchronous: bool
) -> None:
    pytest.importorskip(library)
    done = loupe.record(_agent(library, asynchronous, server))
    report = replay(done.run_id, _agent(library, asynchronous, server, stop=1))
    assert report.divergence is not None
    assert report.divergence.kind == "unconsumed"
    assert report.divergence.agreed is not None
    assert report.divergence.agreed[1] == "model.opened"
    assert "stopped reading" in str(report.divergence.suggestion)


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize(("library", "asynchronous"), KINDS)
def test_closing_after_the_last_word_leaves_nothing_out(server: Server, library: str, asynchronous: bool) -> None:
    """What the SDKs do: they close at `[DONE]` and do not read on."""
    pytest.importorskip(library)
    server.parts = [b"".join([*PARTS, END])]
    server.parts += [b": goodbye\n\n"]
    server.hold = threading.Event()
    agent = _agent(library, asynchronous, server, stop=1)
    done = loupe.record(agent)
    server.hold.set()
    step = _step(done.run_id)
    assert (step.status, step.attrs["stream"], step.output_tokens) == ("ok", "complete", 3)
    assert replay(done.run_id, agent).passed
    assert replay(done.run_id, _agent(library, asynchronous, server)).passed


CODINGS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.compressobj(wbits=16 + zlib.MAX_WBITS),
    "deflate": zlib.compressobj,
}


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize(("library", "asynchronous"), KINDS)
@pytest.mark.parametrize("coding", CODINGS)
def test_what_is_stored_is_what_encoded_bytes_mean(
    server: Server, library: str, asynchronous: bool, coding: str
) -> None:
    pytest.importorskip(library)
    press = CODINGS[coding]()
    plain = [*PARTS, END]
    server.parts = [press.compress(part) + press.flush(zlib.Z_SYNC_FLUSH) for part in plain] + [press.flush()]
    server.headers = {**server.headers, "content-encoding": coding}
    agent = _agent(library, asynchronous, server, "iter_text")
    done = loupe.record(agent)
    assert "".join(done.result).encode() == b"".join(plain)
    assert _stored(done.run_id) == b"".join(plain)
    assert replay(done.run_id, agent).passed


@pytest.mark.usefixtures("workdir")
def test_raw_bytes_of_an_encoded_stream_mean_the_same_in_a_replay(server: Server) -> None:
    pytest.importorskip("httpx")
    server.parts = [gzip.compress(b"".join([*PARTS, END]))]
    server.headers = {**server.headers, "content-encoding": "gzip"}
    read = _agent("httpx", False, server)

    def agent() -> str:
        return gzip.decompress(b"".join(read())).decode()

    done = loupe.record(agent)
    assert done.result.encode() == b"".join([*PARTS, END])
    assert replay(done.run_id, agent).passed


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize(("library", "asynchronous"), KINDS)
def test_a_connection_that_breaks_breaks_again(library: str, asynchronous: bool) -> None:
    module = pytest.importorskip(library)
    with _broken(PARTS[0]) as server:
        inner = _agent(library, asynchronous, server)

        async def alater() -> str:
            try:
                await inner()
            except module.RemoteProtocolError as error:
                return f"{type(error).__name__} {error} {error.request.url}"
            return "whole"

        def later() -> str:
            try:
                inner()
            except module.RemoteProtocolError as error:
                return f"{type(error).__name__} {error} {error.request.url}"
            return "whole"

        agent = alater if asynchronous else later
        done = loupe.record(agent)
        assert done.result == _bare(agent)
        assert done.result.startswith("RemoteProtocolError")
    step = _step(done.run_id)
    assert (step.status, step.attrs["stream"]) == ("error", "broken")
    assert step.error_class == f"{library}.RemoteProtocolError"
    answer = _answer(done.run_id, step)
    assert answer["choices"][0]["message"]["content"] == "The"
    assert replay(done.run_id, agent).passed


class _broken:
    """A server that closes the connection in the middle of a chunked answer."""

    def __init__(self, part: bytes) -> None:
        self._part = part
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1/chat/completions"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _run(self) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as asked:
                # What is left unread when a socket closes makes it a reset, which is another error at the other end.
                length = 0
                while (line := asked.readline()) not in (b"\r\n", b""):
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                asked.read(length)
                connection.sendall(head + b"%x\r\n%b\r\n" % (len(self._part), self._part))


@pytest.mark.usefixtures("workdir")
def test_a_dropped_stream_is_left_when_the_run_ends(server: Server) -> None:
    httpx = pytest.importorskip("httpx")
    kept: list[Any] = []

    def worker() -> bytes:
        client = httpx.Client(transport=http_transport(httpx.HTTPTransport(verify=False)))
        response = client.send(client.build_request("POST", server.url, json=BODY), stream=True)
        kept.append((client, response))
        return next(response.iter_raw())

    done = loupe.record(worker)
    step = _step(done.run_id)
    assert (step.status, step.attrs["stream"]) == ("cancelled", "left_early")
    assert replay(done.run_id, worker).passed
    for client, response in kept:
        response.close()
        client.close()


@pytest.mark.usefixtures("workdir")
def test_a_task_that_is_cancelled_in_a_stream_is_cancelled_again(server: Server) -> None:
    httpx = pytest.importorskip("httpx")
    server.hold = threading.Event()

    async def agent() -> list[str]:
        got: list[str] = []
        reading = asyncio.Event()

        async def read() -> None:
            client = httpx.AsyncClient(transport=http_transport(httpx.AsyncHTTPTransport(verify=False)))
            async with client, client.stream("POST", server.url, json=BODY) as response:
                async for part in response.aiter_raw():
                    got.append(part.decode())
                    reading.set()

        task = asyncio.create_task(read())
        await reading.wait()
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            got.append("cancelled")
        return got

    done = loupe.record(agent)
    server.hold.set()
    assert done.result == [PARTS[0].decode(), "cancelled"]
    step = _step(done.run_id)
    assert (step.status, step.attrs["stream"]) == ("cancelled", "cancelled")
    assert replay(done.run_id, agent).passed


def test_a_body_that_is_no_piece_is_refused(tmp_path: Path) -> None:
    for wrong in ({}, [[1]], [["x", "y"]], [[True, "y"]], [[1.0, {"$bytes": "%%"}]], None):
        with pytest.raises(ValueError, match=r"piece|base64|alphabet"):
            pieces_of(wrong)  # type: ignore[arg-type]
