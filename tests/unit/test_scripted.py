"""The scripted model: lists, rules, errors, and the sample agents whose figures the demo shows."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast
from urllib.parse import urlsplit

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloupe.demo.calculator import calculate
from agentloupe.providers.assembling import assembled
from agentloupe.providers.loopback import HttpReply, HttpRequest, RequestError, json_reply, serve
from agentloupe.providers.scripted import (
    Answer,
    Ask,
    ScriptedModel,
    ScriptedServer,
    ToolCall,
    ask,
    done_calls,
    fail,
    sample_rule,
    say,
)
from agentloupe.providers.scripted import model as model_module

Messages = list[dict[str, Any]]
Tool = Callable[[str, dict[str, Any]], str]

SYSTEM = "Use the tools for data and for arithmetic; never do arithmetic in your head."
QUESTION = "what is the difference in temperature between Beijing and Shanghai now, and in Fahrenheit?"
WEATHER = {"Beijing": (11.9, "sunny"), "Shanghai": (17.7, "cloudy"), "Guangzhou": (24.3, "sunny")}


def tools(*names: str) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": n, "parameters": {"type": "object"}}} for n in names]


WEATHER_TOOLS = tools("get_weather", "calculate")
SUPPORT_TOOLS = tools("lookup_order", "refund_order")


@pytest.fixture
def client_of() -> Iterator[Callable[[ScriptedServer], openai.OpenAI]]:
    made: list[openai.OpenAI] = []

    def make(server: ScriptedServer) -> openai.OpenAI:
        made.append(openai.OpenAI(base_url=server.url, api_key="none", max_retries=0))
        return made[-1]

    yield make
    for client in made:
        client.close()


# --- lists ------------------------------------------------------------------------------------------------------------


def test_a_list_is_played_in_order_through_a_real_client(client_of: Any) -> None:
    script = [ask(("add", {"a": 1, "b": 2})), say("3"), say("four", usage=None)]
    with ScriptedServer(script) as server:
        client = client_of(server)
        send = lambda: client.chat.completions.create(model="m-1", messages=[{"role": "user", "content": "1+2?"}])  # noqa: E731
        first, second, third = send(), send(), send()
    assert first.choices[0].finish_reason == "tool_calls"
    assert first.choices[0].message.tool_calls[0].function.arguments == '{"a": 1, "b": 2}'
    assert (second.choices[0].message.content, second.choices[0].finish_reason) == ("3", "stop")
    assert second.usage.total_tokens == second.usage.prompt_tokens + second.usage.completion_tokens
    assert third.usage is None
    assert first.model == "m-1"
    assert len({first.id, second.id, third.id}) == 3


def test_requests_are_kept_whole_and_apart_from_the_callers_own(client_of: Any) -> None:
    model = ScriptedModel([say("a"), say("b")])
    messages: Messages = [{"role": "user", "content": "x"}]
    model.answer({"model": "m", "messages": messages, "temperature": 0.5, "x_vendor": {"deep": [1]}})
    messages.append({"role": "assistant", "content": "a"})
    model.answer({"model": "m", "messages": messages})
    assert model.requests[0] == {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "temperature": 0.5,
        "x_vendor": {"deep": [1]},
    }
    assert len(model.requests[1]["messages"]) == 2


def test_a_used_up_list_says_so_and_is_not_retried() -> None:
    with ScriptedServer([]) as server, openai.OpenAI(base_url=server.url, api_key="none", max_retries=5) as client:
        with pytest.raises(openai.BadRequestError, match="used up after 0 answers"):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (429, openai.RateLimitError),
        (503, openai.InternalServerError),
    ],
)
def test_errors_arrive_as_the_clients_own(status: int, error: type[openai.APIStatusError], client_of: Any) -> None:
    script = [fail(status, "no luck", headers={"retry-after": "7", "x-request-id": "req_1"})]
    with ScriptedServer(script) as server, pytest.raises(error, match="no luck") as caught:
        client_of(server).chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    assert caught.value.response.headers["retry-after"] == "7"
    assert caught.value.request_id == "req_1"


def test_a_client_that_retries_is_seen_twice_and_gets_the_next_answer() -> None:
    script = [fail(429, headers={"retry-after-ms": "1"}), say("at last")]
    with ScriptedServer(script) as server, openai.OpenAI(base_url=server.url, api_key="none", max_retries=1) as client:
        answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        assert answer.choices[0].message.content == "at last"
        assert len(server.requests) == 2


def test_odd_bodies_go_out_as_written() -> None:
    with ScriptedServer(
        [Answer(body=b"not json"), Answer(body={"choices": []}), fail(500, body={"detail": "x"})]
    ) as server:
        assert post(server.url, chat())[2] == b"not json"
        assert json.loads(post(server.url, chat())[2]) == {"choices": []}
        status, _, body = post(server.url, chat())
    assert (status, json.loads(body)) == (500, {"detail": "x"})


def test_malformed_arguments_own_ids_and_extra_fields_survive() -> None:
    made = Answer(
        calls=(ToolCall("f", '{"a": ', id="mine"),), extra={"reasoning_content": "hm"}, finish_reason="length"
    )
    message = ScriptedModel([made]).answer(chat())["choices"][0]
    assert message["message"]["tool_calls"][0] == {
        "id": "mine",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a": '},
    }
    assert message["message"]["reasoning_content"] == "hm"
    assert message["finish_reason"] == "length"


def test_equal_scripts_give_equal_bytes_and_repeats_give_new_ids() -> None:
    first, second = (ScriptedModel([ask(("f", {})), ask(("f", {}))]) for _ in range(2))
    one, two = first.answer(chat()), first.answer(chat())
    assert [one, two] == [second.answer(chat()), second.answer(chat())]
    assert one["choices"][0]["message"]["tool_calls"][0]["id"] != two["choices"][0]["message"]["tool_calls"][0]["id"]


def test_a_loop_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "MAX_REQUESTS", 2)
    model = ScriptedModel(lambda _: say("again"))
    model.answer(chat())
    model.answer(chat())
    with pytest.raises(RequestError, match="2 requests, no more"):
        model.answer(chat())


def test_as_a_plain_function_it_gives_message_and_tokens() -> None:
    model = ScriptedModel(
        [say("hi", usage={"prompt_tokens": 5, "completion_tokens": 2}), say("ho", usage=None), fail(429)]
    )
    assert model.llm_call([{"role": "user", "content": "x"}], tools("f"), "m", 0.0) == (
        {"role": "assistant", "content": "hi"},
        5,
        2,
    )
    assert model.llm_call([{"role": "user", "content": "x"}], None, None, None)[1:] == (None, None)
    with pytest.raises(RequestError) as caught:
        model.llm_call([{"role": "user", "content": "x"}], None, None, None)
    assert caught.value.status == 429
    assert model.requests[0]["tools"] == tools("f")
    assert "tools" not in model.requests[1]


def test_threads_get_each_answer_once() -> None:
    model = ScriptedModel([say(str(n)) for n in range(40)])
    got: list[str] = []
    workers = [
        threading.Thread(
            target=lambda: got.extend(model.answer(chat())["choices"][0]["message"]["content"] for _ in range(5))
        )
        for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(got, key=int) == [str(n) for n in range(40)]


@given(st.lists(st.text(max_size=20) | st.none(), max_size=5))
def test_any_text_comes_back_as_it_was(texts: list[str | None]) -> None:
    model = ScriptedModel([Answer(content=text) for text in texts])
    for text in texts:
        body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
        reply = model.app(HttpRequest("POST", "/v1/chat/completions", {}, body))
        assert isinstance(reply.body, bytes)
        assert json.loads(reply.body)["choices"][0]["message"]["content"] == text


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream_says_what_the_whole_answer_says(client_of: Any, usage: bool) -> None:
    answer = [
        ask(("add", {"a": 1, "b": [2, "three"]}), ("look", {}), content="Let me  see:\n- so"),
        say("done", usage=None),
    ]
    asked = {"model": "m-1", "messages": [{"role": "user", "content": "1+2?"}], "tools": tools("add", "look")}
    options = {"stream_options": {"include_usage": True}} if usage else {}
    with ScriptedServer(answer) as server, ScriptedServer(answer) as other:
        client = client_of(server)
        chunks = list(client.chat.completions.create(**asked, **options, stream=True))
        with client.chat.completions.stream(**asked, **options) as stream:
            last = stream.get_final_completion()
        whole = client_of(other).chat.completions.create(**asked)
    text = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert text == ["Let", " me", "  see:", "\n-", " so"]
    pieces = [d.function.arguments for c in chunks if c.choices for d in c.choices[0].delta.tool_calls or ()]
    assert "".join(pieces) == "".join(call.function.arguments for call in whole.choices[0].message.tool_calls)
    assert len(pieces) > 3
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "tool_calls"
    assert [c.usage.total_tokens for c in chunks if c.usage] == ([whole.usage.total_tokens] if usage else [])
    assert (last.choices[0].message.content, last.usage) == ("done", None)


@settings(max_examples=60)
@given(st.text(max_size=40) | st.none(), st.lists(st.text(max_size=40), max_size=3))
def test_any_answer_streams_to_itself(content: str | None, arguments: list[str]) -> None:
    calls = tuple(ToolCall(name="t", arguments=text) for text in arguments)
    model = ScriptedModel([Answer(content=content, calls=calls)] * 2)
    whole = model.app(HttpRequest("POST", "/v1/chat/completions", {}, json.dumps(chat()).encode()))
    fresh = ScriptedModel([Answer(content=content, calls=calls)])
    asked = chat(stream=True, stream_options={"include_usage": True})
    events = fresh.app(HttpRequest("POST", "/v1/chat/completions", {}, json.dumps(asked).encode()))
    assert isinstance(whole.body, bytes)
    assert not isinstance(events.body, bytes)
    got = cast("dict[str, Any]", assembled(b"".join(events.body)))
    want = json.loads(whole.body)
    assert got["choices"][0]["finish_reason"] == want["choices"][0]["finish_reason"]
    message, wanted = got["choices"][0]["message"], want["choices"][0]["message"]
    assert message.get("content") == wanted["content"]
    assert message.get("tool_calls") == wanted.get("tool_calls")
    assert got["usage"] == want["usage"]


def test_an_error_is_no_stream(client_of: Any) -> None:
    with ScriptedServer([fail(429)]) as server, pytest.raises(openai.RateLimitError):
        client_of(server).chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], stream=True)


# --- the HTTP seam ----------------------------------------------------------------------------------------------------


def chat(**more: object) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "x"}], **more}


def post(url: str, body: object, path: str = "/v1/chat/completions", **headers: str) -> tuple[int, Any, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=5)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request("POST", path, raw, headers)
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b"{}", "`messages` must be a list"),
        (b'{"messages": []}', "at least one message"),
        (b'{"messages": ["x"]}', "message 0"),
        (b'{"messages": [{"role": "user"}, {"role": 1}]}', "message 1"),
    ],
)
def test_a_bad_body_is_a_400_with_the_reason(body: bytes, reason: str) -> None:
    with ScriptedServer([say("never")]) as server:
        status, _, text = post(server.url, body)
        assert server.model.played == 0
    error = json.loads(text)["error"]
    assert status == 400
    assert reason in error["message"]
    assert error["type"] == "invalid_request_error"


def test_routes_beside_the_chat() -> None:
    with ScriptedServer([]) as server:
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=5)
        got: dict[str, Any] = {}
        for path in ("/health", "/v1/models?limit=1", "/nothing", "/v1/chat/completions"):
            connection.request("GET", path)
            reply = connection.getresponse()
            got[path] = (reply.status, json.loads(reply.read()))
        connection.close()
    assert got["/health"] == (200, {"status": "ok", "model": "scripted-1"})
    assert got["/v1/models?limit=1"][1]["data"][0]["id"] == "scripted-1"
    assert got["/nothing"][0] == got["/v1/chat/completions"][0] == 404


def test_sizes_are_bounded_and_faults_of_the_app_are_a_500(capsys: pytest.CaptureFixture[str]) -> None:
    def app(request: HttpRequest) -> HttpReply:
        if request.body == b"crash":
            raise ZeroDivisionError("by zero")
        return json_reply(len(request.body))

    with serve(app, max_body=10) as server:
        assert post(server.url, b"0123456789")[2] == b"10"
        assert post(server.url, b"0123456789x")[0] == 413
        assert post(server.url, b"", **{"Content-Length": "many"})[0] == 411
        status, _, body = post(server.url, b"crash")
    assert status == 500
    assert "ZeroDivisionError: by zero" in json.loads(body)["error"]["message"]
    assert "Traceback" in capsys.readouterr().err


def test_chunks_are_sent_as_they_come() -> None:
    with serve(lambda _: HttpReply(200, iter([b"one ", b"", b"two"]), {"content-type": "text/plain"})) as server:
        status, headers, body = post(server.url, b"")
    assert (status, headers["transfer-encoding"], body) == (200, "chunked", b"one two")


def test_it_listens_on_loopback_and_only_inside_its_block() -> None:
    server = ScriptedServer([])
    with pytest.raises(RuntimeError, match="`with` block only"):
        _ = server.url
    with server:
        assert urlsplit(server.url).hostname == "127.0.0.1"
    with pytest.raises(RuntimeError):
        _ = server.url


# --- the sample agents ------------------------------------------------------------------------------------------------


class Road:
    """What a plain agent loop went through: the kinds of its steps, the sources of its tools, the conversation."""

    def __init__(self, messages: Messages) -> None:
        self.messages = messages
        self.kinds: list[str] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: str | None = None

    def upto(self, step: int) -> Messages:
        """The messages of the model step with this index."""
        at = len(self.messages) - len(self.kinds) + step
        return list(self.messages[:at])


def drive(
    model: ScriptedModel, messages: Messages, run_tool: Tool, offered: list[dict[str, Any]] = WEATHER_TOOLS
) -> Road:
    road = Road(list(messages))
    for _ in range(12):
        reply = model.answer({"model": "m", "messages": road.messages, "tools": offered})["choices"][0]["message"]
        road.kinds.append("llm")
        road.messages.append(reply)
        if not reply.get("tool_calls"):
            road.answer = reply["content"]
            return road
        for call in reply["tool_calls"]:
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            road.asked.append((name, arguments))
            result = run_tool(name, arguments)
            road.kinds.append("tool")
            road.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    raise AssertionError("no end")


def real_tool(name: str, arguments: dict[str, Any]) -> str:
    if name == "calculate":
        return json.dumps(calculate(**arguments))
    degrees, sky = WEATHER[arguments["city"]]
    return json.dumps({"city": arguments["city"], "temperature": degrees, "unit": "celsius", "condition": sky})


class Cassette:
    """Answers what was recorded, and counts."""

    def __init__(self, recorded: Road, live: tuple[str, ...] = ()) -> None:
        self.known = {json.dumps(asked): real_tool(*asked) for asked in recorded.asked}
        self.live_names = live
        self.hits = self.misses = self.live = 0

    def __call__(self, name: str, arguments: dict[str, Any]) -> str:
        if name in self.live_names:
            self.live += 1
            return real_tool(name, arguments)
        found = self.known.get(json.dumps((name, arguments)))
        if found is None:
            self.misses += 1
            return json.dumps({"error": f"cassette miss: {name}"})
        self.hits += 1
        return found


def start(system: str = SYSTEM, question: str = QUESTION) -> Messages:
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


def record(model: ScriptedModel) -> Road:
    return drive(model, start(), real_tool)


def unchanged_from_3(model: ScriptedModel, recorded: Road) -> None:
    cassette = Cassette(recorded)
    road = drive(model, recorded.upto(3), cassette)
    assert 3 + len(road.kinds) == 7
    assert road.kinds == ["llm", "tool", "tool", "llm"]
    assert [a["expression"] for _, a in road.asked] == ["17.7 - 11.9", "(17.7 - 11.9) * 9 / 5"]
    assert (cassette.hits, cassette.misses) == (1, 1)
    assert road.answer is not None
    assert "10.44 F" in road.answer


def one_sentence_from_0(model: ScriptedModel, recorded: Road) -> None:
    cassette = Cassette(recorded)
    road = drive(model, start(f"{SYSTEM} Answer in one sentence."), cassette)
    assert road.kinds == ["llm", "tool", "tool", "llm", "tool", "tool", "llm", "tool", "llm"]
    assert (cassette.hits, cassette.misses) == (3, 2)
    assert road.answer is not None
    assert "in my head" in road.answer
    assert road.answer.count(". ") == 0


def live_calculator_from_3(model: ScriptedModel, recorded: Road) -> None:
    cassette = Cassette(recorded, live=("calculate",))
    road = drive(model, recorded.upto(3), cassette)
    assert 3 + len(road.kinds) == 7
    assert (cassette.live, cassette.hits, cassette.misses) == (2, 0, 0)


EXPERIMENTS = [unchanged_from_3, one_sentence_from_0, live_calculator_from_3]


def test_the_weather_run_has_six_steps() -> None:
    road = record(ScriptedModel(sample_rule))
    assert road.kinds == ["llm", "tool", "tool", "llm", "tool", "llm"]
    assert road.asked == [
        ("get_weather", {"city": "Beijing"}),
        ("get_weather", {"city": "Shanghai"}),
        ("calculate", {"expression": "17.7 - 11.9"}),
    ]
    assert road.answer == "Shanghai is 5.8 C warmer than Beijing right now. In Fahrenheit the difference is 10.44 F."


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 0, 2, 1)])
@pytest.mark.parametrize("fresh", [False, True], ids=["same model", "model that never saw the recording"])
def test_the_three_experiments_have_their_figures_in_any_order(order: tuple[int, ...], fresh: bool) -> None:
    model = ScriptedModel(sample_rule)
    recorded = record(model)
    model = ScriptedModel(sample_rule) if fresh else model
    for at in order:
        EXPERIMENTS[at](model, recorded)


def test_recording_again_after_forks_takes_the_recorded_road_again() -> None:
    model = ScriptedModel(sample_rule)
    first = record(model)
    unchanged_from_3(model, first)
    again = record(model)
    assert again.asked == first.asked
    assert again.answer == first.answer
    unchanged_from_3(model, again)


def test_the_rule_is_pure() -> None:
    asked = Ask(messages=tuple(start()), tools=frozenset({"get_weather"}), params={}, asked_before=0, continues=False)
    assert sample_rule(asked) == sample_rule(asked)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How is the weather in Guangzhou?", "Guangzhou: 24.3 C, sunny."),
        ("How much warmer is Guangzhou than Beijing?", "Guangzhou is 12.4 C warmer than Beijing"),
        ("hello", "Please name a city."),
    ],
)
def test_other_weather_questions(question: str, answer: str) -> None:
    road = drive(ScriptedModel(sample_rule), start(question=question), real_tool)
    assert road.answer is not None
    assert road.answer.startswith(answer)


def test_an_edited_tool_result_changes_the_road() -> None:
    def colder(name: str, arguments: dict[str, Any]) -> str:
        return real_tool(name, arguments).replace("17.7", "-2.5")

    road = drive(ScriptedModel(sample_rule), start(), colder)
    assert road.asked[2] == ("calculate", {"expression": "11.9 - -2.5"})
    assert road.answer is not None
    assert road.answer.startswith("Beijing is 14.4 C warmer than Shanghai")


def test_tools_that_all_fail_are_told_to_the_user() -> None:
    road = drive(ScriptedModel(sample_rule), start(), lambda *_: '{"error": "down"}')
    assert road.answer == "I could not get the weather of Beijing. I could not get the weather of Shanghai."


ORDER = {"order_id": "A-1001", "total": 59.9, "currency": "EUR", "refundable": True}


def support_tool(name: str, arguments: dict[str, Any]) -> str:
    if name == "lookup_order":
        return json.dumps({**ORDER, "order_id": arguments["order_id"]})
    return json.dumps({"refund_id": "R-1", **arguments})


def support(
    system: str = "Help.", question: str = "Please refund order A-1001.", run_tool: Tool = support_tool
) -> Road:
    return drive(ScriptedModel(sample_rule), start(system, question), run_tool, SUPPORT_TOOLS)


def test_the_support_run_looks_up_refunds_and_tells_the_receipt() -> None:
    road = support()
    assert road.kinds == ["llm", "tool", "llm", "tool", "llm"]
    assert road.asked[1] == ("refund_order", {"order_id": "A-1001", "amount": 59.9})
    assert road.answer == "Order A-1001 is refunded: 59.9 EUR, receipt R-1."


def test_a_changed_prompt_changes_the_refund() -> None:
    assert support("Refund at most 20 EUR.").asked[1][1]["amount"] == 20.0


def test_support_without_refund() -> None:
    refuses = lambda *_: json.dumps({**ORDER, "refundable": False})  # noqa: E731
    assert support(run_tool=refuses).answer == "Order A-1001 cannot be refunded."
    assert support(question="refund me").answer == "Which order is it? Please give its number."
    assert support(run_tool=lambda *_: '{"error": "gone"}').answer == "I could not find order A-1001."
    missed = lambda name, args: support_tool(name, args) if name == "lookup_order" else '{"error": "cassette miss"}'  # noqa: E731
    assert support(run_tool=missed).answer == "I could not refund order A-1001; a colleague will look at it."


def test_unknown_tools_get_an_honest_answer_and_none_means_none() -> None:
    model = ScriptedModel(sample_rule)
    assert drive(model, start(), real_tool, tools("other")).answer == "I have no tool for that question."
    reply = model.answer({**chat(), "tools": WEATHER_TOOLS, "tool_choice": "none"})
    assert "tool_calls" not in reply["choices"][0]["message"]


def test_results_are_matched_by_their_call_and_strays_are_left_out() -> None:
    messages: Messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]},
        {
            "role": "assistant",
            "tool_calls": [{"id": i, "function": {"name": "f", "arguments": "{" if i == "2" else "{}"}} for i in "12"],
        },
        {"role": "tool", "tool_call_id": "2", "content": "plain"},
        {"role": "tool", "tool_call_id": "9", "content": "{}"},
        {"role": "tool", "tool_call_id": "1", "content": '{"ok": 1}'},
    ]
    assert [(d.arguments, d.result) for d in done_calls(tuple(messages))] == [({}, None), ({}, {"ok": 1})]
