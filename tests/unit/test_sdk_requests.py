"""Every way into the two SDKs: with Loupe, without it and in a replay the program gets the same, sync and async."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import anthropic
import openai
import pytest

from agentloupe.ports import ambient
from agentloupe.providers import clients, sdk_request
from agentloupe.providers.clients import wrap
from agentloupe.providers.loopback import HttpReply, json_reply
from agentloupe.words.errors import ReplayRefused, UsageError
from tests.answers import ANSWER, same
from tests.sdk_support import Kept, Model, recorded, replayed, serving_model

ASKED: list[Any] = [{"role": "user", "content": "hello"}]
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "small-2026-01-01",
    "content": [
        {"type": "thinking", "thinking": "so …", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": '{"city": "Oslo", "warm": false}', "citations": None},
        {"type": "tool_use", "id": "tu_1", "name": "look", "input": {"a": [1, 2.5, None]}},
        {"type": "new_kind_of_block", "x": 1},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 41, "cache_creation_input_tokens": 12, "cache_read_input_tokens": 16, "output_tokens": 9},
    "more": {"deep": [1.0]},
}
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1.5,
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
    "model": "small-2026-01-01",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"},
        {
            "type": "message",
            "id": "m_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": '{"city": "Oslo", "warm": false}', "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "look",
            "arguments": '{"a": 1',
            "status": "completed",
        },
        {"type": "new_kind_of_item", "x": 1},
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 41,
        "input_tokens_details": {"cached_tokens": 16},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 50,
    },
}
WHOLE: dict[str, Any] = {
    **RESPONSE,
    "status": "completed",
    "output": [RESPONSE["output"][0], RESPONSE["output"][1], {**RESPONSE["output"][2], "arguments": '{"a": 1}'}],
}


class Weather(openai.BaseModel):
    city: str
    warm: bool


class Place(anthropic.BaseModel):
    city: str
    warm: bool


# --- both kinds of client under one name ------------------------------------------------------------------------------


@dataclass
class Asking:
    """How a test asks: a client of one of the SDKs, bare or wrapped."""

    model: Model
    sdk: str
    asynchronous: bool
    options: dict[str, Any]

    def __call__(self, use: Callable[[Any], Any], *, bare: bool = False) -> Any:
        return asyncio.run(self._later(use, bare)) if self.asynchronous else self._now(use, bare)

    def _now(self, use: Callable[[Any], Any], bare: bool) -> Any:
        with self._made("", bare) as client:
            return use(client)

    async def _later(self, use: Callable[[Any], Any], bare: bool) -> Any:
        async with self._made("Async", bare) as client:
            made = use(client)
            return await made if isinstance(made, Awaitable) else made

    def _made(self, kind: str, bare: bool) -> Any:
        module: Any = {"openai": openai, "anthropic": anthropic}[self.sdk]
        http = getattr(module, f"Default{kind}HttpxClient")(verify=False)
        url = self.model.url if self.sdk == "openai" else self.model.url.removesuffix("/v1")
        made = getattr(module, f"{kind}{'OpenAI' if self.sdk == 'openai' else 'Anthropic'}")(
            **{"api_key": "k", "base_url": url, "max_retries": 0, "http_client": http, **self.options}
        )
        return made if bare else wrap(made)


@pytest.fixture
def model() -> Iterator[Model]:
    with serving_model(json_reply(MESSAGE)) as made:
        yield made


def _both(model: Model, sdk: str, asynchronous: bool, use: Callable[[Any], Any], **options: Any) -> tuple[Any, Kept]:
    """What comes bare, recorded and replayed must be the same; the bare value and the one call that was recorded."""
    asking = Asking(model, sdk, asynchronous, options)
    bare = asking(use, bare=True)
    inside, kept = recorded(lambda: asking(use))
    sent = len(model.seen)
    again = replayed(kept, lambda: asking(use))
    assert len(model.seen) == sent, "a replay sends nothing"
    for one in (inside, again):
        alike(bare, one)
    assert len(kept) == 1
    return bare, kept[0]


def alike(a: Any, b: Any) -> None:
    """Equal in all that a program can see, also of raw responses."""
    if hasattr(a, "http_response"):
        assert type(a) is type(b)
        assert _raw(a) == _raw(b)
        if not inspect.iscoroutinefunction(a.parse):
            alike(a.parse(), b.parse())
        return
    if isinstance(a, list):
        assert len(a) == len(b)
        for one, other in zip(cast("list[Any]", a), b, strict=True):
            alike(one, other)
        return
    same(a, b)
    for name in ("_request_id", "_workspace_id"):
        assert getattr(a, name, None) == getattr(b, name, None)


def _raw(answer: Any) -> list[Any]:
    response = answer.http_response
    headers = [(n, v) for n, v in response.headers.multi_items() if n not in ("date", "server")]
    about = [response.status_code, response.reason_phrase, response.http_version, response.content, response.text]
    asked = [response.request.method, str(response.request.url), response.request.content]
    return [type(response), *about, headers, answer.retries_taken, answer.headers.get("date") is not None, *asked]


SYNC_AND_ASYNC = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


# --- model calls ------------------------------------------------------------------------------------------------------

MODEL_CALLS: dict[str, tuple[str, Any, Callable[[Any], Any]]] = {
    "messages": ("anthropic", MESSAGE, lambda c: c.messages.create(model="m", max_tokens=9, messages=ASKED)),
    "messages beta": (
        "anthropic",
        MESSAGE,
        lambda c: c.beta.messages.create(model="m", max_tokens=9, messages=ASKED, betas=["some-beta-1"]),
    ),
    "messages parse": (
        "anthropic",
        {**MESSAGE, "content": MESSAGE["content"][:4]},
        lambda c: c.messages.parse(model="m", max_tokens=9, messages=ASKED, output_format=Place),
    ),
    "responses": ("openai", RESPONSE, lambda c: c.responses.create(model="m", input="hello", store=False)),
    "responses parse": ("openai", WHOLE, lambda c: c.responses.parse(model="m", input=ASKED, text_format=Weather)),
    "chat parse": (
        "openai",
        {
            **ANSWER,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": '{"city": "O", "warm": true}'}}],
        },
        lambda c: c.chat.completions.parse(model="m", messages=ASKED, response_format=Weather),
    ),
    "chat raw": ("openai", ANSWER, lambda c: c.chat.completions.with_raw_response.create(model="m", messages=ASKED)),
    "responses raw": ("openai", RESPONSE, lambda c: c.responses.with_raw_response.create(model="m", input="hello")),
    "responses raw parse": (
        "openai",
        WHOLE,
        lambda c: c.responses.with_raw_response.parse(model="m", input=ASKED, text_format=Weather),
    ),
    "messages raw": (
        "anthropic",
        MESSAGE,
        lambda c: c.messages.with_raw_response.create(model="m", max_tokens=9, messages=ASKED),
    ),
    "embeddings": (
        "openai",
        {
            "object": "list",
            "model": "e",
            "data": [{"index": 0, "embedding": [0.1, 1e-9]}],
            "usage": {"prompt_tokens": 2},
        },
        lambda c: c.embeddings.create(model="e", input=["x"], encoding_format="float"),
    ),
    "completions": (
        "openai",
        {"id": "c", "object": "text_completion", "choices": [{"text": "y", "index": 0, "finish_reason": "stop"}]},
        lambda c: c.completions.create(model="m", prompt="x"),
    ),
}


@SYNC_AND_ASYNC
@pytest.mark.parametrize("name", MODEL_CALLS)
def test_a_model_call_gives_the_same_bare_recorded_and_replayed(model: Model, name: str, asynchronous: bool) -> None:
    sdk, answer, use = MODEL_CALLS[name]
    text = json.dumps(answer, indent=2, ensure_ascii=False).encode()
    headers = {
        "content-type": "application/json",
        "x-request-id": "req_7",
        "request-id": "req_7",
        "anthropic-workspace-id": "ws_1",
        "x-other": "é".encode().decode("latin-1"),
    }
    model.will_say(HttpReply(200, text, headers))
    _, kept = _both(model, sdk, asynchronous, use)
    assert kept.call.kind == "llm"
    assert kept.call.input == model.bodies()[0]
    assert "sent" not in kept.facts
    assert kept.facts["request_id"] == "req_7"
    if "raw" not in name:
        assert kept.output == answer
    else:
        assert cast("dict[str, Any]", kept.output)["text"] == text.decode()


def test_facts_of_messages_and_responses(model: Model) -> None:
    _, kept = _both(model, "anthropic", False, MODEL_CALLS["messages beta"][2])
    assert (kept.call.name, kept.call.attrs["endpoint"]) == ("chat m", "/v1/messages")
    assert kept.call.attrs["beta"] == "some-beta-1"
    assert (kept.facts["model"], kept.facts["finish_reason"]) == ("small-2026-01-01", "tool_use")
    assert (kept.facts["input_tokens"], kept.facts["output_tokens"]) == (41, 9)
    assert kept.facts["usage"] == MESSAGE["usage"]
    model.will_say(json_reply(RESPONSE))
    _, kept = _both(model, "openai", False, MODEL_CALLS["responses"][2])
    assert (kept.call.name, kept.call.attrs["endpoint"]) == ("chat m", "/responses")
    assert (kept.facts["finish_reason"], kept.facts["input_tokens"]) == ("max_output_tokens", 41)


HELD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "plain": ({}, []),
    "previous answer": ({"previous_response_id": "resp_0"}, []),
    "conversation": ({"conversation": "conv_1"}, []),
    "stored prompt": ({"prompt": {"id": "pmpt_1"}}, []),
    "file": ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]}, []),
    "hosted tools": ({"tools": [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}]}, ["web_search", "mcp"]),
    "own tools": ({"tools": [{"type": "function", "name": "f"}, {"type": "local_shell"}, {"type": "custom"}]}, []),
    "shells": (
        {
            "tools": [
                {"type": "shell", "environment": {"type": "local"}},
                {"type": "shell", "environment": {"type": "x"}},
            ]
        },
        ["shell"],
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_what_the_provider_holds_or_runs_is_labelled(model: Model, name: str) -> None:
    more, hosted = HELD[name]
    model.will_say(json_reply(WHOLE))
    asked: dict[str, Any] = {"model": "m", "input": "x", **more}
    _, kept = _both(model, "openai", False, lambda c: c.responses.create(**asked))
    assert kept.call.attrs.get("hosted", []) == hosted
    assert ("server_held" in kept.call.attrs) == (name not in ("plain", "own tools"))


def test_tools_that_anthropic_runs_are_told_from_those_that_the_program_runs(model: Model) -> None:
    tools: Any = [
        {"name": "f", "input_schema": {"type": "object"}},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    _, kept = _both(
        model, "anthropic", False, lambda c: c.messages.create(model="m", max_tokens=9, messages=ASKED, tools=tools)
    )
    assert kept.call.attrs["hosted"] == ["web_search_20250305"]
    assert kept.call.attrs["server_held"] is True


def test_what_goes_back_is_stored_as_it_is_sent(model: Model) -> None:
    def use(client: Any) -> Any:
        first = client.messages.create(model="m", max_tokens=9, messages=ASKED)
        turn = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "tu_1", "content": "1"}]}
        history = [*ASKED, {"role": "assistant", "content": first.content}, turn]
        return [first, client.messages.create(model="m", max_tokens=9, messages=iter(history))]

    asking = Asking(model, "anthropic", False, {})
    bare = asking(use, bare=True)
    inside, kept = recorded(lambda: asking(use))
    alike(bare, inside)
    alike(bare, replayed(kept, lambda: asking(use)))
    assert [k.call.input for k in kept] == model.bodies()[-2:]
    assert model.bodies()[-1] == model.bodies()[1]
    assert all("sent" not in k.facts for k in kept)


ODD_ANSWERS: dict[str, HttpReply] = {
    "text": HttpReply(200, b"it works!", {"content-type": "text/plain"}),
    "JSON that says it is text": HttpReply(200, json.dumps(MESSAGE).encode(), {"content-type": "text/plain"}),
    "no type": HttpReply(200, json.dumps(MESSAGE).encode(), {}),
    "numbers that are none": HttpReply(200, b'{"id": "x", "more": NaN}', {"content-type": "application/json"}),
    "null": json_reply(None),
    "a list": json_reply([1]),
    "half of one": json_reply({"id": "msg_2", "usage": None}),
    "surrogate": json_reply({**MESSAGE, "id": "\udc00"}),
}


def _shown(found: Any) -> Any:
    return {"nan": repr(found.to_dict())} if "nan" in repr(found) else found


@SYNC_AND_ASYNC
@pytest.mark.parametrize("name", ODD_ANSWERS)
@pytest.mark.parametrize("sdk", ["anthropic", "openai"])
def test_odd_answers_are_the_same(model: Model, sdk: str, name: str, asynchronous: bool) -> None:
    model.will_say(ODD_ANSWERS[name])

    def use(client: Any) -> Any:
        asked = MODEL_CALLS["messages" if sdk == "anthropic" else "responses"][2](client)
        if not isinstance(asked, Awaitable):
            return _shown(asked)

        async def later() -> Any:
            return _shown(await asked)

        return later()

    _both(model, sdk, asynchronous, use)


@SYNC_AND_ASYNC
@pytest.mark.parametrize("sdk", ["anthropic", "openai"])
def test_an_answer_that_the_sdk_cannot_read_is_recorded_and_fails_again(
    model: Model, sdk: str, asynchronous: bool
) -> None:
    model.will_say(HttpReply(200, b'{"cut', {"content-type": "application/json"}))
    asking = Asking(model, sdk, asynchronous, {})
    use = MODEL_CALLS["messages" if sdk == "anthropic" else "responses"][2]

    def seen() -> str:
        with pytest.raises(Exception) as caught:
            asking(use)
        return f"{type(caught.value)} {caught.value}"

    shown, kept = recorded(seen)
    assert kept[0].error is None
    assert cast("dict[str, Any]", kept[0].output)["text"] == '{"cut'
    assert replayed(kept, seen) == shown


# --- anything else ----------------------------------------------------------------------------------------------------

FILE: dict[str, Any] = {"id": "file-1", "object": "file", "bytes": 3, "created_at": 1, "filename": "a", "purpose": "x"}
OTHERS: dict[str, tuple[str, HttpReply, Callable[[Any], Any], str]] = {
    "a list": (
        "openai",
        json_reply({"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "x"}]}),
        lambda c: c.models.list(),
        "GET /models",
    ),
    "one of them": (
        "anthropic",
        json_reply({"id": "m", "type": "model"}),
        lambda c: c.models.retrieve("m-1"),
        "GET /v1/models",
    ),
    "counting": (
        "anthropic",
        json_reply({"input_tokens": 3}),
        lambda c: c.messages.count_tokens(model="m", messages=ASKED),
        "POST /v1/messages/count_tokens",
    ),
    "a file goes up": (
        "openai",
        json_reply(FILE),
        lambda c: c.files.create(file=("a.txt", io.BytesIO(b"abc")), purpose="user_data"),
        "POST /files",
    ),
    "speech": (
        "openai",
        HttpReply(200, b"\xff\x00wav", {"content-type": "audio/wav"}),
        lambda c: _content_of(c.audio.speech.create(model="t", voice="v", input="x")),
        "speech t",
    ),
    "nothing comes back": (
        "openai",
        HttpReply(204, b"", {}),
        lambda c: c.post("/things/t-1/end", cast_to=type(None)),
        "POST /things",
    ),
    "any path": ("anthropic", json_reply({"a": 1}), lambda c: c.post("/x", cast_to=object, body={"b": 2}), "POST /x"),
    "text": ("openai", HttpReply(200, b"1,5", {}), lambda c: c.get("/x", cast_to=str), "GET /x"),
}


def _content_of(answer: Any) -> Any:
    if not isinstance(answer, Awaitable):
        return [answer.content, answer.response.status_code]

    async def later() -> Any:
        return _content_of(await answer)

    return later()


@SYNC_AND_ASYNC
@pytest.mark.parametrize("name", OTHERS)
def test_any_other_request_gives_the_same(model: Model, name: str, asynchronous: bool) -> None:
    sdk, reply, use, label = OTHERS[name]
    model.will_say(reply)

    def asked(client: Any) -> Any:
        made = use(client)
        if asynchronous and type(made).__name__ == "AsyncPaginator":
            return _data(made)
        return made if not hasattr(made, "data") else made.data

    _, kept = _both(model, sdk, asynchronous, asked)
    assert kept.call.name == label


async def _data(pages: Any) -> Any:
    return (await pages).data


@SYNC_AND_ASYNC
@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_pages_lead_to_each_other(model: Model, sdk: str, asynchronous: bool) -> None:
    first = {"data": [{"id": "a"}], "has_more": True, "first_id": "a", "last_id": "a"}
    model.will_say(json_reply(first), json_reply({**first, "data": [{"id": "b"}], "has_more": False}))

    def use(client: Any) -> Any:
        pages = client.files.list(limit=1) if sdk == "openai" else client.models.list(limit=1)
        return [item.id for item in pages] if not asynchronous else _ids(pages)

    asking = Asking(model, sdk, asynchronous, {})
    ids, kept = recorded(lambda: asking(use))
    assert ids == ["a", "b"]
    assert replayed(kept, lambda: asking(use)) == ids
    assert len(model.seen) == len(kept) == 2


async def _ids(pages: Any) -> list[str]:
    return [item.id async for item in pages]


def test_the_content_of_a_file_is_a_part_of_what_is_asked(model: Model) -> None:
    model.will_say(json_reply(FILE))
    asking = Asking(model, "openai", False, {})

    def use(content: bytes) -> Callable[[], Any]:
        return lambda: asking(lambda c: c.files.create(file=("a", content), purpose="user_data"))

    _, kept = recorded(use(b"xyz"))
    _, other = recorded(use(b"xyw"))
    assert kept[0].call.input != other[0].call.input
    assert model.seen[0].body.count(b"xyz") == 1


# --- what is not recorded ---------------------------------------------------------------------------------------------


class _Once(io.BytesIO):
    """Bytes that can be read once."""

    def seekable(self) -> bool:
        return False


def test_what_is_not_recorded_passes_untouched_and_says_so(
    model: Model, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_request, "_warned", set())
    model.will_say(json_reply(FILE))
    asking = Asking(model, "openai", False, {})

    def use(client: Any) -> Any:
        return client.post(
            "/uploads/1", cast_to=object, content=_Once(b"ab"), options={"headers": {"content-length": "2"}}
        )

    with caplog.at_level(logging.WARNING):
        result, kept = recorded(lambda: asking(use))
        asking(use)
    same(asking(use, bare=True), result)
    assert [(k.call.kind, k.call.name) for k in kept] == [("other", "POST /uploads")]
    assert "not recorded" in str(kept[0].call.attrs["not_recorded"])
    assert len([r for r in caplog.records if r.name == "agentloupe"]) == 1
    before = len(model.seen)
    with pytest.raises(ReplayRefused, match="nothing to answer it with"):
        replayed(kept, lambda: asking(use))
    assert len(model.seen) == before


# --- errors and tries -------------------------------------------------------------------------------------------------


@SYNC_AND_ASYNC
@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_tries_are_listed_and_a_raw_response_knows_how_many(model: Model, sdk: str, asynchronous: bool) -> None:
    busy = json_reply({"error": {"message": "no"}}, 503, {"retry-after-ms": "1"})
    use = MODEL_CALLS["messages raw" if sdk == "anthropic" else "responses raw"][2]
    asking = Asking(model, sdk, asynchronous, {"max_retries": 2})
    model.will_say(busy, busy, json_reply(MESSAGE))
    shown, kept = recorded(lambda: asking(use))
    assert [t["status"] for t in cast("list[Any]", kept[0].facts["tries"])] == [503, 503, 200]
    assert shown.retries_taken == 2
    alike(shown, replayed(kept, lambda: asking(use)))


@SYNC_AND_ASYNC
def test_errors_of_anthropic_are_its_own(model: Model, asynchronous: bool) -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}
    model.will_say(json_reply(body, 429, {"request-id": "req_9"}))
    asking = Asking(model, "anthropic", asynchronous, {})
    _, kept = recorded(lambda: _caught(lambda: asking(MODEL_CALLS["messages"][2])))
    assert isinstance(kept[0].error, anthropic.RateLimitError)
    assert kept[0].facts["request_id"] == "req_9"
    assert [t["status"] for t in cast("list[Any]", kept[0].facts["tries"])] == [429]


def _caught(use: Callable[[], Any]) -> None:
    with pytest.raises(anthropic.APIStatusError):
        use()


# --- wrapping ---------------------------------------------------------------------------------------------------------


def test_a_replay_needs_no_credentials(model: Model) -> None:
    asking = Asking(model, "anthropic", False, {})
    use = MODEL_CALLS["messages"][2]
    shown, kept = recorded(lambda: asking(use))
    asking.options = {"api_key": None}
    alike(shown, replayed(kept, lambda: asking(use)))


def test_a_client_with_middleware_gives_what_its_middleware_made(model: Model) -> None:
    def renamed(request: Any, call_next: Any) -> Any:
        answer = call_next(request)
        made = answer.parse()
        made.id = "renamed"
        return made

    use = MODEL_CALLS["messages"][2]
    shown, _ = _both(model, "anthropic", False, use, middleware=[renamed])
    assert shown.id == "renamed"
    asking = Asking(model, "anthropic", False, {"middleware": [renamed]})
    _, raw = recorded(lambda: asking(MODEL_CALLS["messages raw"][2]))
    assert "middleware" in str(raw[0].call.attrs["not_recorded"])


def test_clients_of_clouds_are_wrapped(model: Model) -> None:
    made = cast("Any", anthropic).AnthropicVertex(
        region="r", project_id="p", access_token="t", base_url=model.url, max_retries=0
    )
    with wrap(made) as client:
        shown, kept = recorded(lambda: MODEL_CALLS["messages"][2](client))
        alike(shown, replayed(kept, lambda: MODEL_CALLS["messages"][2](client)))
    assert cast("Any", kept[0].call.input)["model"] == "m"
    assert model.seen[0].path.endswith("/models/m:rawPredict")
    assert len(model.seen) == 1


def test_programs_that_wrap_nothing(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "_client", None)
    monkeypatch.setattr(openai, "api_key", "k")
    monkeypatch.setattr(openai, "base_url", model.url)
    clients.install()
    try:
        made = anthropic.Anthropic(api_key="k", base_url=model.url.removesuffix("/v1"))
        with made:
            _, kept = recorded(lambda: MODEL_CALLS["messages"][2](made))
        model.will_say(json_reply(ANSWER))
        _, more = recorded(lambda: openai.chat.completions.create(model="m", messages=ASKED))
    finally:
        clients.uninstall()
        cast("Any", openai)._client.close()
    assert [k.call.name for k in (*kept, *more)] == ["chat m", "chat m"]
    assert type(anthropic.Anthropic(api_key="k")) is anthropic.Anthropic


def test_a_version_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = anthropic.Anthropic(api_key="k")
    monkeypatch.setattr(clients, "_NEEDED", (*clients._NEEDED, "_new_door"))
    with pytest.raises(UsageError, match="this version of anthropic is not known"):
        wrap(made)


def test_outside_a_run_nothing_happens(model: Model) -> None:
    assert ambient.current() is None
    assert Asking(model, "anthropic", False, {})(MODEL_CALLS["messages"][2]).id == "msg_1"
