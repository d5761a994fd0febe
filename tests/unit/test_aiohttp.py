"""HTTP APIs through `aiohttp`: whole answers, streams, errors and cancels, recorded and replayed."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.providers.loopback import HttpReply, HttpRequest, serve
from agentloupe.verbs.replaying import replay
from tests.stream_support import answer_of, model_step, playing, stored_bytes

aiohttp = pytest.importorskip("aiohttp", minversion="3.12")
pytestmark = pytest.mark.usefixtures("workdir")

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
PARTS = [
    b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": word}}]}).encode() + b"\n\n"
    for word in ("The", " tide", " turns")
] + [b"data: [DONE]\n\n"]


def _session(**options: Any) -> Any:
    return aiohttp.ClientSession(middlewares=[loupe.aiohttp_middleware()], **options)


def _asking(url: str, how: Callable[[Any], Awaitable[Any]], **options: Any) -> Callable[[], Awaitable[Any]]:
    async def worker() -> Any:
        async with _session() as session, session.post(f"{url}/v1/chat/completions", **options) as response:
            return await how(response)

    return worker


async def _seen(response: Any) -> list[Any]:
    headers = [[name.decode(), value.decode()] for name, value in response.raw_headers if name.lower() != b"date"]
    about = [type(response).__name__, response.status, response.reason, response.ok, str(response.url), headers]
    about += [response.version, response.content_type, response.charset, response.method, len(response.history)]
    about += [list(response.headers)]
    body: bytes = await response.read()
    return [*about, body.hex(), await response.text(errors="replace"), response.closed, response.connection is None]


REPLIES = {
    "json": HttpReply(200, b'{"model": "m-1", "choices": []}', {"content-type": "application/json"}),
    "gzip": HttpReply(200, gzip.compress(b"{}"), {"content-type": "application/json", "Content-Encoding": "gzip"}),
    "bytes": HttpReply(200, b"\xff\x00", {"content-type": "application/octet-stream"}),
    "error": HttpReply(429, b"{}", {"content-type": "application/json", "retry-after": "1"}),
    "empty": HttpReply(204, b"", {}),
}


@pytest.mark.parametrize("reply", REPLIES)
def test_the_same_answer_comes_back(reply: str) -> None:
    asked: list[HttpRequest] = []

    def app(request: HttpRequest) -> HttpReply:
        asked.append(request)
        return REPLIES[reply]

    with serve(app) as server:
        worker = _asking(server.url, _seen, json=BODY, params={"x": "1"})
        bare = asyncio.run(worker())  # type: ignore[arg-type]
        done = loupe.record(worker)
        assert done.result == bare
        report = replay(done.run_id, worker)
        assert report.passed, report.text()
        assert not report.unproven
        assert len(asked) == 2
    step = model_step(done.run_id)
    assert (step.name, step.attrs["status_code"]) == ("chat m", REPLIES[reply].status)


@pytest.mark.parametrize("form", [False, True], ids=["fields", "file"])
def test_a_form_is_recorded_as_it_is_sent(form: bool) -> None:
    asked: list[HttpRequest] = []

    def app(request: HttpRequest) -> HttpReply:
        asked.append(request)
        return HttpReply(200, b"{}", {"content-type": "application/json"})

    with serve(app) as server:

        async def worker() -> int:
            data = aiohttp.FormData({"purpose": "vision"})
            if form:
                data.add_field("file", b"\x00bytes", filename="a.bin")
            async with _session() as session, session.post(f"{server.url}/v1/files", data=data) as response:
                return response.status

        done = loupe.record(worker)
        assert done.result == 200
        assert replay(done.run_id, worker).passed
    (step,) = [s for s in loupe.open_store().steps(done.run_id) if s.kind == "other"]
    stored: Any = loupe.open_store().recording(done.run_id).body(step.input_digest)
    assert b"vision" in asked[0].body
    assert ("multipart" in stored["body"]) is form
    assert "vision" in json.dumps(stored)


async def _content(response: Any) -> Any:
    return [part.hex() async for part in response.content.iter_any()]


async def _lines(response: Any) -> Any:
    return [line.decode() async for line in response.content]


async def _chunks(response: Any) -> Any:
    return [[part.hex(), ends] async for part, ends in response.content.iter_chunks()]


def _joined(parts: list[Any]) -> list[str]:
    """The chunks as they were sent, whatever pieces they came in; the empty one at the end may come or not."""
    whole = [""]
    for part, ends in parts:
        whole[-1] += part
        if ends:
            whole.append("")
    return [chunk for chunk in whole if chunk]


async def _small(response: Any) -> Any:
    return [part.hex() async for part in response.content.iter_chunked(7)]


async def _whole(response: Any) -> Any:
    return await response.text(), response.closed


async def _eof(response: Any) -> Any:
    await response.content.wait_eof()
    return response.content.at_eof(), response.content.is_eof(), (await response.read()).decode()


@pytest.mark.parametrize("how", [_content, _lines, _chunks, _small, _whole, _eof], ids=lambda how: how.__name__)
def test_a_stream_comes_back_as_it_was_read(how: Callable[[Any], Awaitable[Any]]) -> None:
    with playing(PARTS) as server:
        worker = _asking(server.url, how, json={**BODY, "stream": True})
        bare = asyncio.run(worker())  # type: ignore[arg-type]
        done = loupe.record(worker)
        if how in (_lines, _whole, _eof):  # the others cut where the bytes happened to arrive
            assert done.result == bare
        if how is _chunks:  # whether a chunk's end comes with its last bytes or behind them is a matter of arrival, too
            assert _joined(done.result) == _joined(bare)
        asked = server.asked
        report = replay(done.run_id, worker)
        assert report.passed, report.text()
        assert not report.unproven
        assert server.asked == asked
    assert stored_bytes(done.run_id) == b"".join(PARTS)
    assert answer_of(done.run_id)["choices"][0]["message"]["content"] == "The tide turns"
    assert (model_step(done.run_id).status, model_step(done.run_id).attrs["stream"]) == ("ok", "complete")


def test_the_first_piece_arrives_while_the_rest_is_not_there_yet() -> None:
    with playing(PARTS) as server:
        server.hold = threading.Event()

        async def how(response: Any) -> str:
            first: bytes = await response.content.readany()
            assert server.hold is not None
            server.hold.set()
            return (first + await response.content.read()).decode()

        done = loupe.record(_asking(server.url, how, json={**BODY, "stream": True}))
        assert done.result == b"".join(PARTS).decode()


async def _first(response: Any) -> str:
    return (await response.content.readany()).decode()


def test_a_stream_that_is_left_early_is_left_again() -> None:
    with playing(PARTS) as server:
        server.hold = threading.Event()
        worker = _asking(server.url, _first, json={**BODY, "stream": True})
        done = loupe.record(worker)
        assert done.result == PARTS[0].decode()
        assert (model_step(done.run_id).status, model_step(done.run_id).attrs["stream"]) == ("cancelled", "left_early")
        assert replay(done.run_id, worker).passed
        further = replay(done.run_id, _asking(server.url, _whole, json={**BODY, "stream": True}))
        assert further.divergence is not None
        assert further.divergence.kind == "extra"


def test_a_stream_that_is_left_after_its_last_word_is_whole() -> None:
    async def how(response: Any) -> list[str]:
        seen: list[str] = []
        async for line in response.content:
            seen.append(line.decode())
            if b"[DONE]" in line:
                break
        return seen

    with playing(PARTS) as server:
        worker = _asking(server.url, how, json={**BODY, "stream": True})
        done = loupe.record(worker)
        assert model_step(done.run_id).attrs["stream"] == "complete"
        assert replay(done.run_id, worker).passed


def test_a_read_that_is_cancelled_ends_the_stream() -> None:
    async def how(response: Any) -> list[str]:
        seen = [await _first(response)]
        try:
            async with asyncio.timeout(0.05):
                seen.append(await _first(response))
        except TimeoutError:
            seen.append("late")
        return seen

    with playing(PARTS) as server:
        server.hold = threading.Event()
        worker = _asking(server.url, how, json={**BODY, "stream": True})
        done = loupe.record(worker)
        assert done.result == [PARTS[0].decode(), "late"]
        assert model_step(done.run_id).attrs["stream"] == "cancelled"
        for _ in range(5):
            report = replay(done.run_id, worker)
            assert report.passed, report.text()


def test_a_program_that_reads_on_after_a_cancelled_read_has_its_bytes_and_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with playing(PARTS) as server, caplog.at_level(logging.WARNING, "agentloupe"):
        server.hold = threading.Event()

        async def how(response: Any) -> str:
            seen = await _first(response)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await response.content.readany()
            assert server.hold is not None
            server.hold.set()
            return seen + (await response.content.read()).decode()

        done = loupe.record(_asking(server.url, how, json={**BODY, "stream": True}))
    assert done.result == b"".join(PARTS).decode()
    assert any("reads on after a read that it cancelled" in record.message for record in caplog.records)


@pytest.mark.parametrize("after", [0, 1], ids=["before the headers", "while it is read"])
def test_the_total_timeout_of_a_session_fires_in_its_turn(after: int) -> None:
    with playing(PARTS) as server:
        server.hold = threading.Event()
        server.after = after

        async def worker() -> str:
            async with _session(timeout=aiohttp.ClientTimeout(total=0.2)) as session:
                try:
                    async with session.post(
                        f"{server.url}/v1/chat/completions", json={**BODY, "stream": True}
                    ) as response:
                        return (await response.read()).decode()
                except TimeoutError:
                    return "late"

        done = loupe.record(worker)
        assert done.result == "late"
        report = replay(done.run_id, worker)
        assert report.passed, report.text()


def test_a_total_timeout_that_aiohttp_makes_an_error_of_inside_of_the_call() -> None:
    hold = threading.Event()

    def app(request: HttpRequest) -> HttpReply:
        hold.wait()
        return HttpReply(200, b"{}", {})

    with serve(app) as server:

        async def worker() -> list[Any]:
            seen: list[Any] = []
            try:
                async with asyncio.timeout(30), _session(timeout=aiohttp.ClientTimeout(total=0.1)) as session:
                    try:
                        await session.post(f"{server.url}/v1/chat/completions", json=BODY)
                    except TimeoutError as error:
                        seen.append(type(error).__name__)
                    task = asyncio.current_task()
                    seen.append(task.cancelling() if task else None)
                    await asyncio.sleep(0)
            finally:
                hold.set()
            return seen

        done = loupe.record(worker)
        assert done.result == ["TimeoutError", 0]
        report = replay(done.run_id, worker)
        assert report.passed, report.text()


def test_connections_that_fail_fail_again_with_what_they_say() -> None:
    async def worker() -> list[Any]:
        async with _session() as session:
            try:
                await session.post("http://127.0.0.1:1/v1/chat/completions", json=BODY)
            except aiohttp.ClientConnectorError as error:
                return [type(error).__name__, str(error), error.host, error.port, error.os_error.errno, error.ssl]
        return []

    done = loupe.record(worker)
    assert done.result[0] == "ClientConnectorError"
    report = replay(done.run_id, worker)
    assert report.passed, report.text()


def test_a_stream_that_breaks_breaks_again() -> None:
    read = threading.Event()

    def app(_: HttpRequest) -> HttpReply:
        def parts() -> Any:
            yield PARTS[0]
            assert read.wait(30)
            raise ConnectionResetError("broken on purpose")

        return HttpReply(200, parts(), {"content-type": "text/event-stream"})

    async def how(response: Any) -> list[Any]:
        seen: list[Any] = []
        for _ in range(3):  # what broke it is said as often as it is read
            try:
                seen.append((await response.content.readany()).decode())
                read.set()
            except aiohttp.ClientPayloadError as error:
                seen.append([type(error).__name__, str(error).partition(":")[0]])
        return seen

    with serve(app) as server:
        worker = _asking(server.url, how, json={**BODY, "stream": True})
        bare = asyncio.run(worker())  # type: ignore[arg-type]
        read.clear()
        done = loupe.record(worker)
        assert done.result == bare
        assert done.result[1][0] == "ClientPayloadError"
        assert model_step(done.run_id).attrs["stream"] == "broken"
        report = replay(done.run_id, worker)
        assert report.passed, report.text()


def test_what_a_program_raises_for_a_status_is_an_error_of_its_own_class() -> None:
    @loupe.tool(effect="read")
    async def ask(url: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            response.raise_for_status()
            return await response.json()

    with serve(lambda _: HttpReply(503, b"", {"retry-after": "7"})) as server:

        async def worker() -> list[Any]:
            try:
                return await ask(f"{server.url}/weather")
            except aiohttp.ClientResponseError as error:
                after = (error.headers or {}).get("Retry-After")
                return [error.status, error.message, after, str(error.request_info.url)]

        done = loupe.record(worker)
        assert done.result[0] == 503
        row = loupe.open_store().run(done.run_id)
        assert row is not None
        report = replay(done.run_id, worker)
        assert report.passed, report.text()


def test_redirects_and_cookies_of_a_session() -> None:
    def app(request: HttpRequest) -> HttpReply:
        if request.path == "/first":
            return HttpReply(302, b"", {"location": "/second", "set-cookie": "lang=en"})
        return HttpReply(
            200, json.dumps({"cookie": request.headers.get("cookie")}).encode(), {"content-type": "application/json"}
        )

    with serve(app) as server:

        async def worker() -> list[Any]:
            async with (
                _session(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
                session.get(f"{server.url}/first") as response,
            ):
                return [await response.json(), str(response.url), [one.status for one in response.history]]

        done = loupe.record(worker)
        assert done.result[2] == [302]
        steps = [s.name for s in loupe.open_store().steps(done.run_id) if s.kind == "other"]
        assert steps == ["GET /first", "GET /second"]
        assert replay(done.run_id, worker).passed


def test_calls_at_once_replay_in_their_order() -> None:
    def app(request: HttpRequest) -> HttpReply:
        return HttpReply(
            200, json.dumps({"said": json.loads(request.body)["n"]}).encode(), {"content-type": "application/json"}
        )

    with serve(app) as server:

        async def worker() -> list[Any]:
            async with _session() as session:

                async def one(n: int) -> Any:
                    async with session.post(f"{server.url}/v1/chat/completions", json={**BODY, "n": n}) as response:
                        return (await response.json())["said"]

                ended: list[Any] = []
                for done in asyncio.as_completed([one(n) for n in range(5)]):
                    ended.append(await done)
                await asyncio.sleep(0.001)
                return ended

        done = loupe.record(worker)
        for _ in range(5):
            report = replay(done.run_id, worker)
            assert report.passed, report.text()
            assert not report.unproven


def test_a_secret_cut_by_chunks_is_in_no_byte_on_disk_and_the_stream_replays(workdir: Path) -> None:
    secret = "sk-" + "proj-" + "Ab1" * 12
    before, after = b'data: {"choices": [{"index": 0, "delta": {"content": "the key is ', b'"}}]}\n\n'
    cut = [before + secret[:9].encode(), secret[9:].encode(), after, PARTS[-1]]
    with playing(cut) as server:
        said = {"headers": {"Authorization": f"Bearer {secret}"}, "params": {"api_key": secret}}
        worker = _asking(server.url, _whole, json={**BODY, "stream": True}, **said)
        done = loupe.record(worker)
        assert secret in done.result[0]
        kept = b"".join(path.read_bytes() for path in workdir.rglob("*") if path.is_file())
        assert secret.encode() not in kept
        assert b"the key is " in stored_bytes(done.run_id)
        assert secret not in stored_bytes(done.run_id).decode()
        report = replay(done.run_id, worker)
        assert report.passed, report.text()


def test_a_websocket_passes_untouched() -> None:
    with serve(lambda _: HttpReply(400, b"no", {})) as server:

        async def worker() -> str:
            async with _session() as session:
                try:
                    await session.ws_connect(f"{server.url}/v1/realtime")
                except aiohttp.WSServerHandshakeError as error:
                    return f"{error.status}"
            return ""

        done = loupe.record(worker)
        assert done.result == "400"
        assert [s.kind for s in loupe.open_store().steps(done.run_id)] == ["agent"]


def test_a_fork_sends_what_was_changed() -> None:
    asked: list[tuple[str, Any]] = []

    def app(request: HttpRequest) -> HttpReply:
        asked.append((request.query, json.loads(request.body)))
        return HttpReply(200, PARTS[0] + PARTS[-1], {"content-type": "text/event-stream"})

    with serve(app) as server:

        @loupe.agent
        async def worker() -> str:
            async with _session() as session:
                said: list[str] = []
                for text in ("one", "two"):
                    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
                    body = {"model": "m", "messages": messages, "stream": True}
                    async with session.post(f"{server.url}/v1/chat/completions?x=1", json=body) as response:
                        said.append((await response.read()).decode())
                return "".join(said)

        done = loupe.record(worker)
        made = loupe.fork(done.run_id, worker, from_step=2, system_prompt="Be long.")
    assert [run.status for run in made.candidates] == ["ok"]
    assert len(asked) == 3
    query, body = asked[-1]
    assert query == "x=1"
    assert body == {**asked[1][1], "messages": [{"role": "system", "content": "Be long."}, asked[1][1]["messages"][1]]}
