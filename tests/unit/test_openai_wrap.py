"""What an application gets from an OpenAI client with and without Loupe is equal, field by field and type by type."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion

import agentloupe as loupe
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Perform
from agentloupe.providers import clients as wrapping
from agentloupe.providers.clients import wrap
from agentloupe.providers.loopback import HttpReply, json_reply
from agentloupe.words.call import Call
from agentloupe.words.canonical import key_of
from agentloupe.words.errors import UsageError
from tests.answers import ANSWER, same
from tests.sdk_support import Keeping, Kept, Model, recorded, replayed, serving_model

# --- a model ----------------------------------------------------------------------------------------------------------

MESSAGES: list[Any] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]


@pytest.fixture
def model() -> Iterator[Model]:
    with serving_model(json_reply(ANSWER, headers={"x-request-id": "req_7"})) as made:
        yield made


def later(model: Model, *, bare: bool = False, way: str = "create", **options: Any) -> Callable[..., Any]:
    """A method of an async client, to be called like a sync one."""

    def call(**arguments: Any) -> Any:
        async def asked() -> Any:
            made = model.made(AsyncOpenAI, http_client=openai.DefaultAsyncHttpxClient(verify=False), **options)
            async with made if bare else wrap(made) as client:
                return await getattr(client.chat.completions, way)(**arguments)

        return asyncio.run(asked())

    return call


def creator(model: Model, kind: str, *, bare: bool = False) -> Callable[..., Any]:
    """`create` of one kind of client."""
    if kind == "async":
        return later(model, bare=bare)
    client = (
        model.client(http_client=pytest.importorskip("httpx").Client(verify=False))
        if kind == "httpx"
        else model.client()
    )
    return (client if bare else wrap(client)).chat.completions.create


KINDS = ("httpx2", "httpx", "async")


# --- the same with and without ----------------------------------------------------------------------------------------

ANSWERS: list[Any] = [
    ANSWER,
    {"id": "r-9", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}}]},
    {**ANSWER, "usage": None, "choices": []},
    {
        **ANSWER,
        "created": "yesterday",
        "choices": [{"message": {"content": 3, "more": None}, "finish_reason": "tired"}],
    },
    {**ANSWER, "created": 2**70},
    {**ANSWER, "id": "\udc00"},
    {"error": None},
    [],
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_answers_are_the_same_bare_recorded_and_replayed(model: Model, kind: str, answer: Any) -> None:
    model.will_say(json_reply(answer, headers={"x-request-id": "req_7"}))
    bare = creator(model, kind, bare=True)(model="m", messages=MESSAGES)
    create = creator(model, kind)
    outside = create(model="m", messages=MESSAGES)
    inside, kept = recorded(lambda: create(model="m", messages=MESSAGES))
    again = replayed(kept, lambda: create(model="m", messages=MESSAGES))
    for one in (outside, inside, again):
        same(bare, one)
        assert getattr(bare, "_request_id", None) == getattr(one, "_request_id", None)
    assert [k.output for k in kept] == [answer]
    assert len(model.seen) == 3
    assert len({request.body for request in model.seen}) == 1


@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
def test_an_answer_that_is_no_json_is_text_again(model: Model, content_type: str) -> None:
    model.will_say(HttpReply(200, b"{}" if "json" in content_type else b"it works!", {"content-type": content_type}))
    client = wrap(model.client())

    def use() -> Any:
        return client.chat.completions.create(model="m", messages=MESSAGES)

    bare = model.client().chat.completions.create(model="m", messages=MESSAGES)
    inside, kept = recorded(use)
    same(bare, inside)
    same(bare, replayed(kept, use))


def test_the_object_can_be_used_like_the_original(model: Model) -> None:
    client = wrap(model.client())

    def use() -> ChatCompletion:
        return client.chat.completions.create(model="m", messages=MESSAGES)

    bare, kept = recorded(use)
    again = replayed(kept, use)
    assert again == bare
    assert again.to_json() == bare.to_json()
    assert again.model_dump() == bare.model_dump()
    assert again.choices[0].message.reasoning_content == "the user wants …"
    with pytest.raises(AttributeError):
        _ = again.choices[0]._request_id


# --- what is asked ----------------------------------------------------------------------------------------------------


def _asked(model: Model, **arguments: Any) -> tuple[Kept, Any]:
    client = wrap(model.client())
    _, kept = recorded(lambda: client.chat.completions.create(**{"model": "m", "messages": MESSAGES, **arguments}))
    return kept[0], model.bodies()[-1]


REQUESTS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.1, "top_p": None, "stop": openai.NOT_GIVEN, "seed": 7, "max_tokens": 10**17},
    {"extra_body": {"min_p": 0.5, "temperature": 9, "nested": {"a": (1, 2)}}, "temperature": 0.1},
    {"messages": ({"role": "user", "content": ({"type": "text", "text": t} for t in "ab")} for _ in range(2))},
    {"messages": tuple(MESSAGES), "logit_bias": {"50256": -100}, "temperature": 1e-7},
    {"logit_bias": {50256: -100}, "metadata": {"big": 2**80}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}},
    {"extra_headers": {"X-Team": "secret"}, "timeout": 5.0, "stream": False},
]


def test_both_names_are_one_function() -> None:
    assert loupe.wrap_openai is loupe.wrap


@pytest.mark.parametrize("arguments", REQUESTS, ids=range(len(REQUESTS)))
def test_the_stored_request_is_the_body_on_the_wire(model: Model, arguments: dict[str, Any]) -> None:
    kept, sent = _asked(model, **arguments)
    assert kept.call.input == sent
    assert list(kept.call.input) == list(sent)  # type: ignore[call-overload]  # in the order of the wire, too
    assert "sent" not in kept.facts
    assert kept.call.lost == ()


def test_an_answer_goes_back_as_the_sdk_sends_it(model: Model) -> None:
    answer = ChatCompletion.construct(**ANSWER).choices[0].message
    kept, sent = _asked(model, messages=[*MESSAGES, answer, {"role": "tool", "tool_call_id": "t1", "content": "1"}])
    assert kept.call.input == sent
    assert sent["messages"][2]["reasoning_content"] == "the user wants …"


def test_of_headers_the_names_are_kept_only(model: Model) -> None:
    kept, _ = _asked(model, extra_headers={"X-Team": "blue"})
    assert kept.call.attrs["extra_headers"] == ["X-Team"]
    assert "blue" not in repr((kept.call.attrs, kept.call.input, kept.facts))


@pytest.mark.parametrize("way", ["create", "parse"])
def test_what_goes_into_the_url_is_a_part_of_what_is_asked(model: Model, way: str) -> None:
    ask = getattr(wrap(model.client()).chat.completions, way)
    _, kept = recorded(lambda: ask(model="m", messages=MESSAGES, extra_query={"api-version": "1"}))
    _, other = recorded(lambda: ask(model="m", messages=MESSAGES, extra_query={"api-version": "2"}))
    call, changed = kept[0].call, other[0].call
    assert call.input == {**model.bodies()[0], "extra_query": {"api-version": "1"}}
    assert key_of("llm", "", call.input) != key_of("llm", "", changed.input)
    assert "extra_query" not in model.bodies()[0]
    assert "sent" not in kept[0].facts
    assert model.seen[0].query == "api-version=1"


def test_a_body_that_is_changed_on_its_way_is_kept_as_sent(model: Model) -> None:
    class Adding(OpenAI):
        def _prepare_options(self, options: Any) -> Any:
            options.json_data = {**options.json_data, "user": "somebody"}
            return super()._prepare_options(options)

    client = wrap(model.client(Adding))
    _, kept = recorded(lambda: client.chat.completions.create(model="m", messages=MESSAGES))
    assert kept[0].call.input == {"model": "m", "messages": MESSAGES}
    assert kept[0].facts["sent"] == model.bodies()[0] == {"model": "m", "messages": MESSAGES, "user": "somebody"}


def test_later_edits_change_nothing(model: Model) -> None:
    client = wrap(model.client())
    messages = [dict(m) for m in MESSAGES]

    def use() -> Any:
        answer = client.chat.completions.create(model="m", messages=messages)
        messages[1]["content"] = "REWRITTEN"
        answer.choices[0].message.content = "EDITED"
        answer.choices.clear()
        return answer

    _, kept = recorded(use)
    assert kept[0].call.input == {"model": "m", "messages": MESSAGES}
    assert kept[0].output == ANSWER


def test_what_cannot_be_sent_is_named_and_fails_as_it_does_without(model: Model) -> None:
    client = wrap(model.client())
    keeping = Keeping()
    with ambient.inside(keeping), pytest.raises(TypeError, match="not JSON serializable"):
        client.chat.completions.create(model="m", messages=MESSAGES, metadata={"a": object()})
    assert keeping.calls[0].call.lost == (("$.metadata.a", "builtins.object"),)
    assert isinstance(keeping.calls[0].error, TypeError)
    assert model.seen == []


def test_facts_of_a_call(model: Model) -> None:
    kept, _ = _asked(model, seed=3, tools=[{"type": "function", "function": {"name": "f"}}, {"type": "web"}])
    assert (kept.call.kind, kept.call.name) == ("llm", "chat m")
    assert kept.call.attrs == {
        "model": "m",
        "seed": 3,
        "hosted": ["web"],
        "server_held": True,
        "provider": "127.0.0.1",
    }
    assert kept.facts["model"] == "small-chat-1-2026-02-01"
    assert kept.facts["finish_reason"] == "tool_calls"
    assert kept.facts["usage"] == ANSWER["usage"]
    assert (kept.facts["input_tokens"], kept.facts["output_tokens"]) == (20, 4)
    assert (kept.facts["fingerprint"], kept.facts["request_id"]) == ("fp_1", "req_7")


def test_tokens_that_were_not_sent_are_absent(model: Model) -> None:
    model.will_say(json_reply({**ANSWER, "usage": {"prompt_tokens": None, "completion_tokens": True}}))
    kept, _ = _asked(model)
    assert not {"input_tokens", "output_tokens"} & set(kept.facts)


# --- tries ------------------------------------------------------------------------------------------------------------


def _error(status: int, **headers: str) -> HttpReply:
    body = {"error": {"message": "no", "type": "t", "code": "c", "param": "p"}}
    return json_reply(body, status, {"retry-after-ms": "1", **headers})


@pytest.mark.parametrize("asynchronous", [False, True])
def test_every_try_is_listed(model: Model, asynchronous: bool) -> None:
    model.will_say(_error(503), _error(429), json_reply(ANSWER))
    create = later(model, max_retries=2) if asynchronous else wrap(model.client(max_retries=2)).chat.completions.create
    _, kept = recorded(lambda: create(model="m", messages=MESSAGES))
    tries: Any = kept[0].facts["tries"]
    assert [t["status"] for t in tries] == [503, 429, 200]
    ends = [t["started_ms"] + t["ms"] for t in tries]
    assert all(end < later["started_ms"] for end, later in zip(ends, tries[1:], strict=False))
    assert "error" not in tries[0]
    assert len(kept) == 1


def test_a_call_that_fails_lists_its_tries_too(model: Model) -> None:
    model.will_say(_error(503, **{"x-request-id": "req_e"}))
    keeping = Keeping()
    client = wrap(model.client())
    with ambient.inside(keeping), pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="m", messages=MESSAGES)
    facts: Any = keeping.calls[0].facts
    assert [t["status"] for t in facts["tries"]] == [503]
    assert facts["request_id"] == "req_e"


def test_a_try_without_an_answer_names_its_error(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    keeping = Keeping()
    client = wrap(model.client(base_url="http://127.0.0.1:1/v1", max_retries=1))
    with ambient.inside(keeping), pytest.raises(openai.APIConnectionError):
        client.chat.completions.create(model="m", messages=MESSAGES)
    tries: Any = keeping.calls[0].facts["tries"]
    assert [(t["status"], t["error"]) for t in tries] == [(None, "ConnectError")] * 2


# --- the client stays what it is --------------------------------------------------------------------------------------


def test_wrapping_keeps_the_object_and_its_type(model: Model) -> None:
    client = model.client()
    made = client.chat.completions
    assert wrap(client) is client
    assert isinstance(client, OpenAI)
    assert type(client).__name__ == "OpenAI"
    kind = type(client)
    assert wrap(wrap(client)) is client
    assert type(client) is kind
    assert client.chat.completions is made
    assert type(wrap(model.client())) is kind


def test_threads_that_wrap_at_once_agree(model: Model) -> None:
    clients = [model.client() for _ in range(4)]
    clients += clients
    start = threading.Barrier(len(clients))

    def work(client: Any) -> Any:
        start.wait()
        return wrap(client)

    with ThreadPoolExecutor(len(clients)) as pool:
        wrapped = list(pool.map(work, clients))
    assert all(one is other for one, other in zip(wrapped, clients, strict=True))
    assert len({type(client) for client in wrapped}) == 1
    assert type(wrapped[0]).__mro__[1] is OpenAI


def test_copies_are_wrapped(model: Model) -> None:
    client = wrap(model.client()).with_options(max_retries=1).copy(timeout=3)
    _, kept = recorded(lambda: client.chat.completions.create(model="m", messages=MESSAGES))
    assert len(kept) == 1
    assert client.max_retries == 1


def test_azure_clients_are_wrapped(model: Model) -> None:
    options = {"api_version": "2024-10-21", "azure_endpoint": model.url}
    client = wrap(model.client(openai.AzureOpenAI, base_url=None, **options))
    assert isinstance(client, openai.AzureOpenAI)
    _, kept = recorded(lambda: client.chat.completions.create(model="dep", messages=MESSAGES))
    assert kept[0].call.input == {"model": "dep", "messages": MESSAGES}
    assert model.seen[0].path.endswith("/deployments/dep/chat/completions")
    assert kept[0].call.name == "chat dep"


def test_other_things_are_refused() -> None:
    with pytest.raises(UsageError, match=r"builtins\.dict is no client"):
        wrap({})


def test_programs_that_wrap_nothing(model: Model) -> None:
    wrapping.install()
    try:
        wrapping.install()
        client = model.client()
        azure = openai.AsyncAzureOpenAI(api_key="k", api_version="1", azure_endpoint=model.url)
        asyncio.run(azure.close())
    finally:
        wrapping.uninstall()
    assert type(wrap(client)) is type(client)
    assert type(azure) is not openai.AsyncAzureOpenAI
    assert type(model.client()) is OpenAI
    _, kept = recorded(lambda: client.chat.completions.create(model="m", messages=MESSAGES))
    assert len(kept) == 1


# --- other ways into the SDK ------------------------------------------------------------------------------------------


class Weather(openai.BaseModel):
    city: str
    warm: bool


@pytest.mark.parametrize("way", ["parse", "beta", "post"])
def test_other_ways_to_a_whole_answer_are_recorded(model: Model, way: str) -> None:
    message = {"role": "assistant", "content": '{"city": "Oslo", "warm": false}'}
    answer = {**ANSWER, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    model.will_say(json_reply(answer, headers={"x-request-id": "req_7"}))

    def use(client: OpenAI) -> Any:
        if way == "parse":
            return client.chat.completions.parse(model="m", messages=MESSAGES, response_format=Weather)
        if way == "beta":
            return client.beta.chat.completions.create(model="m", messages=MESSAGES)
        return client.post("/chat/completions", cast_to=ChatCompletion, body={"model": "m", "messages": MESSAGES})

    bare = use(model.client())
    client = wrap(model.client())
    inside, kept = recorded(lambda: use(client))
    again = replayed(kept, lambda: use(client))
    for one in (inside, again):
        same(bare, one)
        assert one._request_id == "req_7"
    assert kept[0].call.input == model.bodies()[0]
    assert [k.call.kind for k in kept] == ["llm"]
    if way == "parse":
        assert again.choices[0].message.parsed == Weather(city="Oslo", warm=False)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("way", ["create", "parse"])
def test_a_fork_sends_an_edited_request_through_the_same_client(model: Model, way: str, asynchronous: bool) -> None:
    class Editing(Keeping):
        def decide(self, call: Call) -> Perform:
            turn = super().decide(call)
            asked: Any = call.input
            assert asked["extra_query"] == {"v": "1"}
            edited: dict[str, Any] = {**asked, "model": "other", "min_p": 0.5, "extra_query": {"v": "2"}}
            del edited["temperature"]
            resend = call.resend
            assert resend is not None
            turn.instead = lambda: resend(edited)
            return turn

    arguments = {
        "model": "m",
        "messages": MESSAGES,
        "temperature": 0.3,
        "extra_body": {"q": 1},
        "extra_headers": {"X-A": "b"},
        "extra_query": {"v": "1"},
    }
    ask = later(model, way=way) if asynchronous else getattr(wrap(model.client()).chat.completions, way)
    keeping = Editing()
    with ambient.inside(keeping):
        answer = ask(**arguments)
    assert isinstance(answer, ChatCompletion)
    sent = model.bodies()[0]
    sent.pop("stream", None)
    assert sent == {"model": "other", "messages": MESSAGES, "min_p": 0.5, "q": 1}
    assert model.seen[0].headers["x-a"] == "b"
    assert model.seen[0].query == "v=2"
    assert keeping.calls[0].output == ANSWER
    assert "sent" not in keeping.calls[0].facts
