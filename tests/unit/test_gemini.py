"""Gemini as programs ask it, without a client of ours: its model stands in the URL, its answers and streams are model steps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

import agentloupe as loupe
from agentloupe.engine.project import load_steps
from agentloupe.providers.assembling import assembled, is_done
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.words.dialects import finish_reason_of, form_in, message_in, text_in
from agentloupe.words.errors import ConfigError
from agentloupe.words.exchange import answer_in
from agentloupe.words.step import Step
from agentloupe.words.toolcalls import asked_tools, newest_results
from agentloupe.words.turns import DIALECTS, Asked, Told
from tests.cassettes import Exchange, read_cassette
from tests.support import shared_folder

MODEL = "gemini-2.5-flash"
PATH = f"/v1beta/models/{MODEL}:generateContent"
TOOLS = [{"functionDeclarations": [{"name": "get_weather", "description": "", "parameters": {"type": "OBJECT"}}]}]
SYSTEM = {"parts": [{"text": "Be short."}]}


def said(*parts: dict[str, Any], reason: str = "STOP") -> dict[str, Any]:
    content = {"role": "model", "parts": list(parts)}
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 4, "totalTokenCount": 15}
    candidate = {"content": content, "finishReason": reason, "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL, "responseId": "r"}


def calls(city: str) -> dict[str, Any]:
    return {"functionCall": {"name": "get_weather", "args": {"city": city}}, "thoughtSignature": "c2ln"}


class Gemini:
    """Asks for the weather of what it was asked about, and tells it from the result."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []

    def answer(self, request: HttpRequest) -> HttpReply:
        body = json.loads(request.body)
        path = f"{request.path}?{request.query}" if request.query else request.path
        self.asked.append((path, body, {name.lower(): value for name, value in request.headers.items()}))
        last = body["contents"][-1]["parts"][0]
        if "functionResponse" in last:
            return json_reply(said({"text": f"It is {json.dumps(last['functionResponse']['response'])}."}))
        return json_reply(said({"text": "thinking", "thought": True}, calls("Oslo")))


@pytest.fixture
def gemini() -> Iterator[tuple[str, Gemini]]:
    model = Gemini()
    with serve(model.answer) as answering:
        yield answering.url, model


@loupe.tool(effect="read")
def get_weather(city: str) -> dict[str, Any]:
    return {"city": city, "degrees": 7}


def agent(url: str) -> Any:
    @loupe.agent(name="forecaster")
    def forecaster() -> str:
        with httpx.Client(transport=cast("Any", loupe.http_transport())) as client:
            contents: list[Any] = [{"role": "user", "parts": [{"text": "How is Oslo?"}]}]
            while True:
                body = {"contents": contents, "tools": TOOLS, "systemInstruction": SYSTEM}
                answer = client.post(f"{url}{PATH}", json=body, headers={"x-goog-api-key": "LOUPE-CANARY-0331"}).json()
                content = answer["candidates"][0]["content"]
                asked = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
                if not asked:
                    return "".join(part["text"] for part in content["parts"])
                results = [
                    {"functionResponse": {"name": one["name"], "response": get_weather(**one["args"])}} for one in asked
                ]
                contents += [content, {"role": "user", "parts": results}]

    return forecaster


def recorded(store: Any, forecaster: Any) -> str:
    from agentloupe.ports import ambient
    from agentloupe.verbs.sessions import RecordOpener

    with ambient.opening_with(RecordOpener(store)):
        made = forecaster()
        if asyncio.iscoroutine(made):
            asyncio.run(made)
    return store.runs()[0].id


def steps(store: Any, run_id: str, kind: str) -> list[Step]:
    return [step for step in load_steps(store.recording(run_id)) if step.kind == kind]


# --- recorded ---------------------------------------------------------------------------------------------------------


def test_its_calls_are_model_steps_with_messages_tools_and_tokens(gemini: tuple[str, Gemini]) -> None:
    url, _ = gemini
    store = loupe.open_store("memory:")
    forecaster = agent(url)
    run_id = recorded(store, forecaster)
    first, second = steps(store, run_id, "llm")
    assert (first.name, first.attrs["model"], first.attrs["finish_reason"]) == (f"chat {MODEL}", MODEL, "STOP")
    assert (first.input_tokens, first.output_tokens) == (11, 4)
    assert str(text_in(message_in(answer_in(second.output)))).startswith('It is {"city": "Oslo"')
    (tool,) = steps(store, run_id, "tool")
    assert (tool.name, tool.source) == ("get_weather", "live")
    run = store.run(run_id)
    assert run is not None
    assert (run.model, run.coverage, run.total_input_tokens) == (MODEL, "full", 22)
    report = replay(store.recording(run_id), forecaster)
    assert report.passed, report.text()
    assert b"LOUPE-CANARY" not in b"".join(event.hash.encode() for event in store.events(run_id))


def test_a_tool_that_nobody_decorated_is_seen_in_the_next_request() -> None:
    answer = said(calls("Oslo"), calls("Rome"), {"functionCall": {"name": "now"}})
    assert [(one.call_id, one.name, one.arguments) for one in asked_tools(answer)] == [
        ("get_weather#0", "get_weather", {"city": "Oslo"}),
        ("get_weather#1", "get_weather", {"city": "Rome"}),
        ("now#0", "now", None),
    ]
    results = [{"functionResponse": {"name": "get_weather", "response": {"degrees": d}}} for d in (7, 21)]
    history: list[Any] = [
        {"role": "user", "parts": []},
        {"role": "model", "parts": []},
        {"role": "user", "parts": results},
    ]
    assert newest_results({"contents": history}) == [
        ("get_weather#0", {"degrees": 7}),
        ("get_weather#1", {"degrees": 21}),
    ]
    assert newest_results({"contents": [*history, {"role": "model", "parts": []}]}) == []


def test_what_it_says_in_words() -> None:
    answer = said({"text": "hm", "thought": True}, {"text": "It is "}, {"text": "warm."}, reason="MAX_TOKENS")
    assert (form_in(answer), finish_reason_of(answer)) == ("gemini", "MAX_TOKENS")
    assert text_in(message_in(answer)) == "It is warm."
    blocked: dict[str, Any] = {"promptFeedback": {"blockReason": "SAFETY"}, "candidates": []}
    assert (finish_reason_of(blocked), message_in(blocked)) == (None, blocked)


# --- streams ----------------------------------------------------------------------------------------------------------


def stream(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in chunks)


def chunk(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "candidates": [{"content": {"parts": list(parts), "role": "model"}, "index": 0, **more}],
        "modelVersion": MODEL,
    }


def test_a_stream_becomes_the_answer_that_it_is() -> None:
    end = {**chunk({"text": ""}, finishReason="STOP"), "usageMetadata": {"promptTokenCount": 3}}
    pieces = (
        chunk({"text": "let me", "thought": True}),
        chunk({"text": " see", "thought": True, "thoughtSignature": "s"}),
        chunk({"text": "It is"}),
        chunk({"text": " warm"}, {"functionCall": {"name": "now", "args": {}}, "thoughtSignature": "t"}),
        end,
    )
    whole = cast("dict[str, Any]", assembled(stream(*pieces)))
    (candidate,) = whole["candidates"]
    assert candidate["content"] == {
        "role": "model",
        "parts": [
            {"text": "let me see", "thought": True, "thoughtSignature": "s"},
            {"text": "It is warm"},
            {"functionCall": {"name": "now", "args": {}}, "thoughtSignature": "t"},
        ],
    }
    assert (candidate["finishReason"], whole["usageMetadata"]) == ("STOP", {"promptTokenCount": 3})
    assert not is_done(stream(*pieces[:-1]))
    assert is_done(stream(*pieces))
    refused = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}
    assert assembled(stream(refused)) == refused


REAL = (
    "cassettes_pydantic_ai/test_google__test_google_streaming_tool_call_thought_signature.yaml",
    "cassettes_openinference/test_instrumentation__test_streaming_reasoning.yaml",
    "cassettes_openllmetry/test_generate_content__test_client_spans.yaml",
    "cassettes_openinference/test_instrumentor__test_google_adk_instrumentor_multi_agent.yaml",
    "cassettes_otel_contrib/test_tool_events.yaml",
)


@pytest.mark.parametrize("file", REAL)
def test_real_answers_are_model_steps_and_come_again_to_the_byte(file: str) -> None:
    """What a program gets through our transport is what it gets without, and again in a replay; headers say what it was."""
    exchanges = [one for one in read_cassette(shared_folder() / "data" / file) if "googleapis" in one.host]
    assert exchanges
    left = iter(exchanges * 2)

    def model(_: HttpRequest) -> HttpReply:
        one = next(left)
        streamed = {"content-type": "text/event-stream"} if one.content.startswith(b"data:") else {}
        return HttpReply(one.status, one.body, headers={**streamed, **one.headers})

    with serve(model) as answering:

        def ask() -> list[bytes]:
            with httpx.Client(transport=cast("Any", loupe.http_transport())) as client:
                return [_read(client, answering.url, one) for one in exchanges]

        store = loupe.open_store("memory:")
        program = loupe.agent(name="reader")(ask)
        run_id = recorded(store, program)
        assert ask() == [one.content for one in exchanges]
        run = store.run(run_id)
        assert run is not None
        if run.coverage == "full":
            report = replay(store.recording(run_id), program)
            assert report.passed, report.text()
    named = {one.name for exchange in exchanges for one in asked_tools(_json_in(exchange.content))}
    assert (run.coverage == "full") == (not named), "tools that nobody decorated are named, as with any other provider"
    assert all(any(name in note for note in run.coverage_notes) for name in named)
    found = steps(store, run_id, "llm")
    assert len(found) == len(exchanges)
    for step, one in zip(found, exchanges, strict=True):
        assert step.name == f"chat {step.attrs['model']}" or step.name.startswith("stream gemini")
        assert step.input_tokens
        assert step.attrs.get("finish_reason", "STOP") == "STOP"  # one of them was asked to spell it as a number
        assert "gemini" in one.path


def _json_in(content: bytes) -> Any:
    return assembled(content) if content.startswith(b"data:") else json.loads(content)


def _read(client: httpx.Client, url: str, one: Exchange) -> bytes:
    with client.stream("POST", url + one.path, json=one.asked) as response:
        return b"".join(response.iter_bytes())


# --- forks ------------------------------------------------------------------------------------------------------------


def test_a_generic_fork_goes_on_in_its_form(gemini: tuple[str, Gemini]) -> None:
    url, model = gemini
    store = loupe.open_store("memory:")
    run_id = recorded(store, agent(url))
    at = steps(store, run_id, "llm")[0].idx
    model.asked.clear()
    provider = Endpoint(f"{url}/v1beta", "LOUPE-CANARY-0332")
    done = fork(run_id, None, from_step=at, store=store, provider=provider, system_prompt="Be long.", model="gemini-x")
    (made,) = done.candidates
    assert (made.status, made.counts.cassette, made.label) == ("ok", 1, "faithful"), made.error
    (path, first, headers), (_, second, _) = model.asked
    assert (path, headers["x-goog-api-key"]) == ("/v1beta/models/gemini-x:generateContent", "LOUPE-CANARY-0332")
    assert first["systemInstruction"] == {"parts": [{"text": "Be long."}]}
    assert "model" not in first
    assert second["contents"][1] == {"role": "model", "parts": [{"text": "thinking", "thought": True}, calls("Oslo")]}
    response = {"name": "get_weather", "response": {"city": "Oslo", "degrees": 7}}
    assert second["contents"][2] == {"role": "user", "parts": [{"functionResponse": response}]}
    new = [step for step in steps(store, made.id, "llm") if step.source == "live"]
    assert [step.name for step in new] == ["chat gemini-x"] * 2
    assert (new[0].input_tokens, new[0].attrs["finish_reason"]) == (11, "STOP")
    report = loupe.replay(store.recording(made.id), None)
    assert report.passed, report.text()


def test_an_unchanged_generic_fork_has_its_model_in_the_address_alone_as_its_parent_had(
    gemini: tuple[str, Gemini],
) -> None:
    url, model = gemini
    store = loupe.open_store("memory:")
    run_id = recorded(store, agent(url))
    parent = steps(store, run_id, "llm")[0]
    model.asked.clear()
    provider = Endpoint(f"{url}/v1beta", "LOUPE-CANARY-0332")
    (made,) = fork(run_id, None, from_step=parent.idx, store=store, provider=provider, engine="generic").candidates
    first = steps(store, made.id, "llm")[0]
    assert (first.name, first.input_key, first.model, made.overrides) == (
        parent.name,
        parent.input_key,
        parent.model,
        (),
    )
    assert {path for path, _, _ in model.asked} == {f"/v1beta/models/{parent.model}:generateContent"}
    assert loupe.replay(store.recording(made.id), None).passed


def test_own_code_keeps_its_model_and_changes_the_rest(gemini: tuple[str, Gemini]) -> None:
    url, model = gemini
    store = loupe.open_store("memory:")
    forecaster = agent(url)
    run_id = recorded(store, forecaster)
    at = steps(store, run_id, "llm")[0].idx
    model.asked.clear()
    (made,) = fork(run_id, forecaster, from_step=at, store=store, system_prompt="Be long.").candidates
    assert made.status == "ok", made.error
    assert [body["systemInstruction"] for _, body, _ in model.asked] == [{"parts": [{"text": "Be long."}]}] * 2


@pytest.mark.parametrize("client", ["httpx", "requests", "aiohttp"])
def test_own_code_asks_another_model_than_its_url_names(gemini: tuple[str, Gemini], client: str) -> None:
    url, model = gemini
    store = loupe.open_store("memory:")
    asker = {"httpx": by_httpx, "requests": by_requests, "aiohttp": by_aiohttp}[client](
        f"{url}{PATH}?key=LOUPE-CANARY-0333&x=1"
    )
    run_id = recorded(store, asker)
    (at,) = [step.idx for step in steps(store, run_id, "llm")]
    model.asked.clear()
    (made,) = fork(run_id, asker, from_step=at, store=store, model="gemini-x", system_prompt="Be long.").candidates
    assert made.status == "ok", made.error
    ((path, body, _),) = model.asked
    assert path == "/v1beta/models/gemini-x:generateContent?key=LOUPE-CANARY-0333&x=1"
    assert (body["systemInstruction"], "model" in body) == ({"parts": [{"text": "Be long."}]}, False)
    (step,) = steps(store, made.id, "llm")
    assert (step.name, step.status) == ("chat gemini-x", "ok")
    report = replay(store.recording(made.id), asker)
    assert report.passed, report.text()


RESULT = {"functionResponse": {"name": "get_weather", "response": {}}}
BODY: dict[str, Any] = {"contents": [{"role": "user", "parts": [RESULT]}], "systemInstruction": SYSTEM}


def by_httpx(url: str) -> Any:
    @loupe.agent(name="asker")
    def asker() -> int:
        with httpx.Client(transport=cast("Any", loupe.http_transport())) as client:
            return client.post(url, json=BODY).status_code

    return asker


def by_requests(url: str) -> Any:
    requests = pytest.importorskip("requests")

    @loupe.agent(name="asker")
    def asker() -> int:
        with requests.Session() as session:
            session.mount("http://", loupe.requests_adapter())
            return session.post(url, json=BODY).status_code

    return asker


def by_aiohttp(url: str) -> Any:
    aiohttp = pytest.importorskip("aiohttp")

    @loupe.agent(name="asker")
    async def asker() -> int:
        async with (
            aiohttp.ClientSession(middlewares=[loupe.aiohttp_middleware()]) as session,
            session.post(url, json=BODY) as reply,
        ):
            await reply.read()
            return reply.status

    return asker


def test_a_result_is_an_object_for_it() -> None:
    dialect = DIALECTS["gemini"]
    told = [
        Told(Asked("c1", "a", {}), '{"x": 1}'),
        Told(Asked(None, "b", {}), "plain"),
        Told(Asked(None, "b", {}), "[1, 2]"),
    ]
    (item,) = cast("list[dict[str, Any]]", dialect.told(told))
    assert [part["functionResponse"] for part in item["parts"]] == [
        {"id": "c1", "name": "a", "response": {"x": 1}},
        {"name": "b", "response": {"result": "plain"}},
        {"name": "b", "response": {"result": [1, 2]}},
    ]
    changed = cast("Any", dialect.with_result(item, "c1", "other"))
    assert changed["parts"][0]["functionResponse"] == {"id": "c1", "name": "a", "response": {"result": "other"}}
    assert changed["parts"][1:] == item["parts"][1:]
    assert [one.by_name for one in dialect.results(item)] == [False, True, True]
    assert not dialect.begins(item)
    with pytest.raises(ConfigError, match="names no model"):
        Endpoint("http://127.0.0.1:9/v1beta", dialect="gemini").send({"contents": []})
