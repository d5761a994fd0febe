"""Bedrock's streams through the recorder: the same bytes, an answer to read, no secret on disk, and back in a replay."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.project import load_step
from agentloupe.engine.verify import verify
from agentloupe.engine.views.messages import answer_of as shown_answer
from agentloupe.engine.views.messages import messages_of
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.words.exchange import content_of
from tests.bedrock_support import CONVERSE, INVOKE, KIND, chunk, claude, event, events_in, meant, nova
from tests.cli.driving import Command
from tests.stream_support import Player, answer_of, http_client, model_step, playing, stored_bytes

pytestmark = pytest.mark.usefixtures("workdir")

CANARY = "sk-ant-api03-" + "FramesCanary42" * 4
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": [{"text": "Is it wet?"}]}]}
OF_CLAUDE: dict[str, Any] = {
    "anthropic_version": "bedrock-2023-05-31",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "Is it wet?"}],
}
FORMS: dict[str, tuple[str, dict[str, Any], Callable[..., list[bytes]]]] = {
    "invoke": (INVOKE, OF_CLAUDE, claude),
    "converse": (CONVERSE, ASKED, nova),
}


def asks(server: Player, path: str, body: Any, library: str = "httpx") -> Any:
    """An agent that reads one stream to its end and returns its bytes as text."""

    @loupe.agent(name="asking")
    def asking() -> str:
        with (
            http_client(library, asynchronous=False) as client,
            client.stream("POST", f"{server.url}{path}", json=body) as response,
        ):
            return base64.b64encode(b"".join(response.iter_raw())).decode()

    return asking


def _bytes(result: str) -> bytes:
    return base64.b64decode(result)


# --- the same bytes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_a_program_gets_the_same_bytes_with_a_recorder_and_in_a_replay(
    form: str, asynchronous: bool, library: str
) -> None:
    pytest.importorskip(library)
    path, body, made = FORMS[form]
    data = b"".join(made(["It ", "rains."]))
    parts = [data[at : at + 61] for at in range(0, len(data), 61)]
    with playing(parts, KIND) as server:

        async def read_later() -> list[str]:
            async with (
                http_client(library, asynchronous=True) as client,
                client.stream("POST", f"{server.url}{path}", json=body) as response,
            ):
                return [base64.b64encode(piece).decode() async for piece in response.aiter_raw()]

        def read() -> list[str]:
            with (
                http_client(library, asynchronous=False) as client,
                client.stream("POST", f"{server.url}{path}", json=body) as response,
            ):
                return [base64.b64encode(piece).decode() for piece in response.iter_raw()]

        agent = loupe.agent(name="reading")(read_later if asynchronous else read)
        done = loupe.record(agent)
        assert b"".join(map(_bytes, done.result)) == data
    assert stored_bytes(done.run_id) == data
    assert verify(loupe.open_store().recording(done.run_id)).ok
    report = replay(done.run_id, agent)
    assert report.passed, report.text()


@pytest.mark.parametrize("form", FORMS)
def test_aiohttp_reads_the_same_bytes(form: str) -> None:
    aiohttp = pytest.importorskip("aiohttp")
    path, body, made = FORMS[form]
    data = b"".join(made(["the key ", CANARY[:9], CANARY[9:], " is yours"]))
    read: list[bytes] = []
    with playing([data[at : at + 61] for at in range(0, len(data), 61)], KIND) as server:

        @loupe.agent(name="reading")
        async def reading() -> int:
            async with (
                aiohttp.ClientSession(middlewares=[loupe.aiohttp_middleware()]) as session,
                session.post(f"{server.url}{path}", json=body) as response,
            ):
                read.append(b"".join([piece async for piece in response.content.iter_any()]))
            return len(events_in(read[-1]))

        done = loupe.record(reading)
        report = replay(done.run_id, reading)
        assert report.passed, report.text()
    assert read[0] == data
    assert read[1] == stored_bytes(done.run_id)
    assert "is yours" in json.dumps(answer_of(done.run_id))


# --- an answer to read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_step_has_its_text_its_tool_its_tokens_and_its_price(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    path, body, made = FORMS[form]
    price = {"input": "1", "cached_input": "0.5", "output": "2"}
    Path("prices.json").write_text(json.dumps({"models": {"claude-v1": price, "amazon.nova-lite-v1:0": price}}))
    with playing(made(["It ", "rains."], arguments=['{"in":', '"Oslo"}']), KIND) as server:
        done = loupe.record(asks(server, path, body))
    step = model_step(done.run_id)
    assert step.name == ("stream anthropic.claude-v1:0" if form == "invoke" else "stream amazon.nova-lite-v1:0")
    assert (step.input_tokens, step.output_tokens) == ((9, 7) if form == "invoke" else (11, 6))
    assert step.attrs["finish_reason"] == "tool_use"
    assert step.attrs["first_token_ms"] >= 0
    whole = load_step(loupe.open_store().recording(done.run_id), step)
    answer = shown_answer(whole.output)
    assert answer is not None
    parts = [(part.type, part.text, part.name) for part in answer.parts if part.type != "reasoning"]
    assert parts == [("text", "It rains.", None), ("tool_call", '{"in":"Oslo"}', "look")]
    assert [message.parts[0].text for message in messages_of(whole.input)] == ["Is it wet?"]
    shown = Command(capsys)("show", done.run_id, "--json").json
    (told,) = [one for one in shown["steps"] if one["kind"] == "llm"]
    # 9 + 4 cached + 7 out, and 11 + 3 cached + 6 out, at 1, 0.5 and 2 a million
    assert told["cost"] == ("0.000025" if form == "invoke" else "0.0000245")
    said = Command(capsys)("show", done.run_id, str(step.idx)).out
    assert "It rains." in said
    assert Command(capsys)("compare", done.run_id, done.run_id).code == 0


def test_usage_that_did_not_come_is_unknown() -> None:
    with playing(nova(["It "], usage=False), KIND) as server:
        done = loupe.record(asks(server, CONVERSE, ASKED))
    step = model_step(done.run_id)
    assert (step.input_tokens, step.output_tokens, step.cost) == (None, None, None)
    assert "usage" not in step.attrs


def test_whole_answers_are_read_too() -> None:
    content = [{"text": "Dry."}]
    whole = {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5},
    }
    message = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Dry."}]}
    usage = {"input_tokens": 3, "output_tokens": 2}
    arn = "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.m-v1:0"

    def answer(request: HttpRequest) -> HttpReply:
        return json_reply(whole if request.path.endswith("/converse") else {**message, "usage": usage})

    with serve(answer) as server:

        @loupe.agent(name="asking")
        def asking() -> None:
            with http_client("httpx", asynchronous=False) as client:
                client.post(f"{server.url}/model/m-v1:0/converse", json=ASKED)
                client.post(f"{server.url}/model/m-v1%3A0/invoke", json=OF_CLAUDE)
                client.post(f"{server.url}/model/{arn}/converse", json=ASKED)
                client.post(f"{server.url}/chain/invoke", json=ASKED)

        done = loupe.record(asking)
    steps = [step for step in loupe.open_store().steps(done.run_id) if step.kind != "agent"]
    assert [step.name for step in steps] == [
        *("chat m-v1:0", "invoke m-v1:0", f"chat {arn}", "POST /chain/invoke"),
    ]
    assert [(s.kind, s.model, s.input_tokens, s.output_tokens) for s in steps[:3]] == [
        ("llm", "m-v1:0", 3, 2),
        ("llm", "m-v1:0", 3, 2),
        ("llm", arn, 3, 2),
    ]
    outputs: list[Any] = [load_step(loupe.open_store().recording(done.run_id), step).output for step in steps[:2]]
    assert outputs == [{"role": "assistant", "content": content}, {"role": "assistant", "content": message["content"]}]


def test_a_fork_by_its_own_code_changes_what_is_asked() -> None:
    asked: list[tuple[str, Any]] = []

    def answer(request: HttpRequest) -> HttpReply:
        asked.append((request.path, json.loads(request.body)))
        return HttpReply(200, iter(nova([f"answer {len(asked)}"])), {"content-type": KIND})

    with serve(answer) as server:

        @loupe.agent(name="asking")
        def asking() -> list[str]:
            said: list[str] = []
            with http_client("httpx", asynchronous=False) as client:
                for question in ("one", "two"):
                    body = {"messages": [{"role": "user", "content": [{"text": question}]}]}
                    with client.stream("POST", f"{server.url}{CONVERSE}", json=body) as response:
                        events = [meant(p) for _, p in events_in(b"".join(response.iter_raw()))]
                    said.append("".join(one["delta"].get("text", "") for one in events if "delta" in one))
            return said

        parent = loupe.record(asking)
        (made,) = fork(
            parent.run_id, asking, from_step=2, model="amazon.nova-pro-v1:0", temperature=0.5, system_prompt="Be brief."
        ).candidates
    path, body = asked[-1]
    assert len(asked) == 3
    assert path.replace("%3A", ":") == CONVERSE.replace("lite", "pro")
    assert body == {
        "messages": [{"role": "user", "content": [{"text": "two"}]}],
        "inferenceConfig": {"temperature": 0.5},
        "system": [{"text": "Be brief."}],
    }
    recording = loupe.open_store().recording(made.id)
    result: Any = recording.body(recording.events[-1].output_digest)
    assert result["result"] == ["answer 1", "answer 3"]


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 53, 100_000])
def test_a_secret_in_frames_is_in_no_byte_on_disk(workdir: Path, form: str, size: int) -> None:
    """T10, for frames: also where it is cut over reads, messages and base 64."""
    path, body, made = FORMS[form]
    parts = ["your key is ", CANARY[:9], CANARY[9:30], CANARY[30:], " keep it, page=2"]
    data = b"".join(made(parts, arguments=['{"api_', f'key": "{CANARY[:20]}', f'{CANARY[20:]}"}}']))
    with playing([data[at : at + size] for at in range(0, len(data), size)], KIND) as server:
        read = asks(server, path, body).__wrapped__
        done = loupe.record(loupe.agent(name="reading")(lambda: hashlib.sha256(_bytes(read())).hexdigest()))
    assert done.result == hashlib.sha256(data).hexdigest()
    stored = stored_bytes(done.run_id)
    said = [json.dumps(meant(payload)) for _, payload in events_in(stored)]
    recording = loupe.open_store().recording(done.run_id)
    kept = [body for event in recording.events for body in recording.get(event.digests()).values()]
    files = [file.read_bytes() for file in workdir.rglob("*") if file.is_file()]
    assert files
    for secret in (CANARY, CANARY[9:30], CANARY[30:]):
        for content in [*files, *kept, stored, *map(str.encode, said)]:
            assert not any(spelt in content for spelt in _spellings(secret))
    assert "page=2" in "".join(said)
    place = "$.delta.partial_json" if form == "invoke" else "$.delta.toolUse.input"
    assert set(model_step(done.run_id).attrs["removed_from_stream"]) == {"$.delta.text", place}
    assert json.dumps(answer_of(done.run_id)).count("[removed:") == 2
    assert len(events_in(stored)) == len(events_in(data))


def _spellings(secret: str) -> list[bytes]:
    """A text, and what base 64 makes of it wherever it begins."""
    plain = secret.encode()
    coded = [base64.b64encode(b"x" * shift + plain)[4:-4] for shift in range(3)]
    return [plain, *coded]


@pytest.mark.parametrize("form", FORMS)
def test_a_replay_gives_messages_that_are_whole_with_what_stands_for_a_secret(form: str) -> None:
    path, body, made = FORMS[form]
    data = b"".join(made(["the key ", CANARY[:9], CANARY[9:], " is yours"]))
    seen: list[bytes] = []
    with playing([data], KIND) as server:
        agent = asks(server, path, body)

        @loupe.agent(name="reading")
        def reading() -> int:
            seen.append(_bytes(agent.__wrapped__()))
            return len(events_in(seen[-1]))

        done = loupe.record(reading)
        report = replay(done.run_id, reading)
        assert report.passed, report.text()
        assert server.asked == 1
    assert seen[0] == data
    said = [meant(payload) for _, payload in events_in(seen[1])]
    text = "".join(one["delta"].get("text", "") for one in said if "delta" in one)
    assert text.removeprefix("Look first.") == "the key [removed:key] is yours"


def test_a_stream_that_requests_reads_whole_is_looked_through() -> None:
    requests = pytest.importorskip("requests")
    data = b"".join(claude(["the key ", CANARY[:9], CANARY[9:], " is yours"]))
    events = b"".join(b"data: " + json.dumps({"say": part}).encode() + b"\n\n" for part in (CANARY[:9], CANARY[9:]))

    def answer(request: HttpRequest) -> HttpReply:
        framed = request.path.endswith("stream")
        return HttpReply(200, data if framed else events, {"content-type": KIND if framed else "text/event-stream"})

    with serve(answer) as server:

        @loupe.agent(name="reading")
        def reading() -> list[int]:
            with requests.Session() as session:
                session.mount("http://", loupe.requests_adapter())
                came = [session.post(f"{server.url}{path}", json=OF_CLAUDE) for path in (INVOKE, "/other")]
            return [len(events_in(came[0].content)), came[1].text.count("data:")]

        done = loupe.record(reading)
    report = replay(done.run_id, reading)
    assert report.passed, report.text()
    recording = loupe.open_store().recording(done.run_id)
    steps = [step for step in loupe.open_store().steps(done.run_id) if step.kind != "agent"]
    outputs: list[Any] = [recording.body(step.output_digest) for step in steps]
    texts = ["".join(str(meant(payload)) for _, payload in events_in(content_of(outputs[0]))), outputs[1]["text"]]
    for text in texts:
        assert CANARY[:9] not in text
        assert CANARY[9:] not in text
    assert [step.attrs["removed_from_output"] for step in steps] == [["$.body"]] * 2


def test_a_stream_of_no_model_is_looked_through() -> None:
    """Its whole is kept beside its pieces: in neither is the secret, however it is cut."""
    parts = [CANARY[:9], CANARY[9:30], CANARY[30:]]
    streams = {
        KIND: [event("Records", {"row": part}) for part in parts],
        "text/event-stream": [b"data: " + json.dumps({"row": part}).encode() + b"\n\n" for part in parts],
    }
    for kind, data in streams.items():
        with playing(data, kind) as server:
            done = loupe.record(asks(server, "/rows", {}).__wrapped__)
        recording = loupe.open_store().recording(done.run_id)
        (step,) = [one for one in loupe.open_store().steps(done.run_id) if one.kind == "other"]
        whole = content_of(recording.body(step.output_digest))  # type: ignore[arg-type]
        stored = b"".join(content for content in (whole, stored_bytes(done.run_id)))
        assert b"[removed:key]" in stored
        assert not any(part.encode() in stored for part in parts[1:])


# --- what no client reads ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["a wrong checksum", "no messages at all"])
def test_what_is_no_message_is_kept_as_it_came_and_the_run_says_so(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = claude(["It ", "rains"])
    bad = chunk({"type": "ping"})
    data = (
        [*frames[:3], bad[:-1] + bytes([bad[-1] ^ 1]), *frames[3:]]
        if kind == "a wrong checksum"
        else [b"<html>not today</html>"]
    )
    with playing(data, KIND) as server:
        agent = asks(server, INVOKE, OF_CLAUDE)
        done = loupe.record(agent)
        assert _bytes(done.result) == b"".join(data)
    assert stored_bytes(done.run_id) == b"".join(data)
    left = len(b"".join(data[3:] if kind == "a wrong checksum" else data))
    step = model_step(done.run_id)
    assert (step.attrs["unread_bytes"], step.status) == (left, "ok")
    run = loupe.open_store().run(done.run_id)
    assert run is not None
    assert run.coverage == "full"
    assert f"{left} bytes are no messages" in run.coverage_notes[0]
    assert f"{left} bytes are no messages" in Command(capsys)("show", done.run_id).out
    report = replay(done.run_id, agent)
    assert report.passed, report.text()
