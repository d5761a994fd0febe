"""The plain loop: what it sends, what it tells the model, when it stops, and that its runs replay."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentloupe.engine.loop import Limits, Loop, Model, Spend, Tools, from_llm_call, step_name
from agentloupe.engine.manner import Manner
from agentloupe.engine.overrides import Overrides
from agentloupe.ports.protocols import Answer
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork_run
from agentloupe.verbs.looping import executor_of, finish, messages_at, run_loop, tool_functions
from agentloupe.verbs.replaying import replay
from agentloupe.words.errors import LoupeError, ModelRefused, ModelUnreachable, StepNotFound
from agentloupe.words.run import Run
from agentloupe.words.turns import Asked
from agentloupe.words.turns import calls_in_message as asked_tools
from tests.fork_support import PLAIN, QUESTION, SCHEMAS, SYSTEM, TOOLS, Script, say, weather_run, weather_script


def loop(script: Any, tools: Any = (), **more: Any) -> list[Any]:
    more = {"model": "m", "question": "q", **more}
    return run_loop(script, tools, **more)


# ---------------------------------------------------------------- what is sent


def test_the_weather_run_has_six_steps_and_no_root():
    script = weather_script()
    steps = run_loop(script, TOOLS, model="small-1", system=SYSTEM, question=QUESTION, tool_schemas=SCHEMAS)
    assert [(s.idx, s.kind, s.name) for s in steps] == [
        (0, "llm", "chat small-1"),
        (1, "tool", "get_weather"),
        (2, "tool", "get_weather"),
        (3, "llm", "chat small-1"),
        (4, "tool", "calculate"),
        (5, "llm", "chat small-1"),
    ]
    assert all(s.parent_idx is None for s in steps)
    assert steps[0].input == {
        "model": "small-1",
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}],
        "tools": SCHEMAS,
    }
    assert steps[4].input == {"expression": "17.7 - 11.9"}
    assert steps[4].output == {"expression": "17.7 - 11.9", "result": 5.8}
    assert steps[5].output == {"role": "assistant", "content": "Shanghai is 5.8 C warmer, that is 10.44 F."}
    assert messages_at(steps, 5) == script.asked[2]["messages"]
    assert [(s.input_tokens, s.output_tokens) for s in steps if s.kind == "llm"] == [(10, 5)] * 3


def test_messages_at_names_what_is_wrong():
    steps = loop(Script("x"))
    assert [m["role"] for m in messages_at(steps, 0)] == ["user"]  # type: ignore[index,call-overload]
    with pytest.raises(StepNotFound):
        messages_at(steps, 7)
    steps = loop(Script(("calculate", {"expression": "1"})), TOOLS)
    with pytest.raises(StepNotFound, match="tool"):
        messages_at(steps, 1)


def test_reasoning_goes_back_and_null_members_do_not():
    first = {**say(("calculate", {"expression": "1"})), "reasoning_content": "hm", "audio": None, "refusal": None}
    script = Script(first, "x")
    loop(script, TOOLS)
    back = script.asked[1]["messages"][1]
    assert back["reasoning_content"] == "hm"
    assert back["content"] is None
    assert "audio" not in back
    assert Manner().message({"content": None, "x": 0, "reasoning_content": ""}) == {
        "content": None,
        "x": 0,
        "reasoning_content": "",
    }


def test_parameters_stay_for_every_call():
    script = Script(("calculate", {"expression": "1"}), "x")
    loop(script, TOOLS, parameters={"temperature": 0.3, "seed": 4})
    assert [asked["temperature"] for asked in script.asked] == [0.3, 0.3]


def test_the_old_function_call_is_answered_in_its_form():
    old = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "calculate", "arguments": '{"expression":"2"}'},
    }
    script = Script(old, "x")
    loop(script, TOOLS)
    assert script.asked[1]["messages"][-1] == {
        "role": "function",
        "name": "calculate",
        "content": '{"expression":"2","result":2}',
    }


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({}, []),
        ({"tool_calls": None}, []),
        ({"tool_calls": []}, []),
        ({"tool_calls": ["x"]}, []),
        ({"tool_calls": [{"id": "a", "function": {"name": "f"}}]}, [Asked("a", "f", None)]),
        ({"tool_calls": [{"id": "a", "name": "f", "arguments": {"x": 1}}]}, [Asked("a", "f", {"x": 1})]),
        ({"function_call": {"name": "f", "arguments": "{}"}}, [Asked(None, "f", "{}")]),
    ],
)
def test_tool_calls_of_a_message(message: Any, expected: Any):
    assert asked_tools(message) == expected


def test_unknown_usage_stays_unknown():
    steps = loop(Script("x", tokens=(None, None)))
    assert (steps[0].input_tokens, steps[0].output_tokens) == (None, None)
    assert (loop(Script("x", tokens=(0, None)))[0].input_tokens) == 0


# ---------------------------------------------------------------- what tools tell the model


def told(script: Script) -> list[Any]:
    return [m["content"] for m in script.asked[-1]["messages"] if m["role"] == "tool"]


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ("as it is", "as it is"),
        ({"t": "Zürich"}, '{"t":"Zürich"}'),
        ([1, 2.0, None], "[1,2.0,null]"),
        (None, "null"),
        ((1, 2), "[1,2]"),
        (7, "7"),
    ],
)
def test_results_as_content(result: Any, content: str):
    script = Script(("f", {}), "x")
    loop(script, {"f": lambda: result})
    assert told(script) == [content]


def test_an_exception_is_told_as_class_and_message():
    def broken() -> None:
        raise ValueError("schlecht: ü")

    script = Script([("broken", {}), ("missing", {}), ("calculate", {"wrong": 1})], "x")
    steps = loop(script, {"broken": broken, **TOOLS})
    assert told(script)[0] == '{"error":"ValueError: schlecht: ü"}'
    assert "missing" in json.loads(told(script)[1])["error"]
    assert json.loads(told(script)[2])["error"].startswith("TypeError: ")
    assert [s.status for s in steps[1:4]] == ["error"] * 3
    assert steps[-1].kind == "llm"


def test_an_executor_is_asked_where_no_function_is_there():
    asked: list[Any] = []

    def exec_tool(name: str, args: Any) -> tuple[Any, str | None]:
        asked.append((name, args))
        return ("out", None) if args else (None, "HTTP 429: retry later")

    script = Script([("remote", {"a": 1}), ("remote", {})], "x")
    steps = loop(script, exec_tool=exec_tool)
    assert asked == [("remote", {"a": 1}), ("remote", {})]
    assert told(script) == ["out", '{"error":"HTTP 429: retry later"}']
    assert [s.status for s in steps[1:3]] == ["ok", "error"]


def test_an_executor_made_of_functions():
    exec_tool = executor_of(TOOLS)
    assert exec_tool("calculate", {"expression": "1+1"}) == ({"expression": "1+1", "result": 2}, None)
    output, error = exec_tool("calculate", {"expression": "1/0"})
    assert (output, error) == (None, "ValueError: division by zero")
    assert exec_tool("nothing", {})[1] == "there is no tool named 'nothing'"
    assert tool_functions([TOOLS["calculate"]]).keys() == {"calculate"}
    assert tool_functions(None) == {}


def test_an_async_tool_is_awaited():
    async def slow() -> str:
        return "later"

    script = Script(("slow", {}), "x")
    loop(script, {"slow": slow})
    assert told(script) == ["later"]


def test_malformed_arguments_reach_no_function():
    ran: list[Any] = []
    script = Script(("f", '{"a": '), "x")
    steps = loop(script, {"f": lambda **kwargs: ran.append(kwargs)})
    assert ran == []
    assert "character" in json.loads(told(script)[0])["error"]
    assert (steps[1].input, steps[1].status, steps[1].attrs["parse_error"]) == ('{"a": ', "error", True)


# ---------------------------------------------------------------- stopping


def test_max_steps_with_pending_calls_is_a_last_step():
    script = Script(*[("calculate", {"expression": "1"})] * 9)
    steps = loop(script, TOOLS, max_steps=2)
    assert [s.kind for s in steps] == ["llm", "tool", "llm", "other"]
    assert (steps[-1].name, steps[-1].status) == ("max_steps", "error")
    assert "max_steps" in steps[-1].error
    assert "calculate" in steps[-1].error


def test_an_answer_at_the_limit_is_an_answer():
    assert [s.kind for s in loop(Script("x"), max_steps=1)] == ["llm"]


@pytest.mark.parametrize("error", [ModelUnreachable("nobody there"), ModelRefused("no", status=429)])
def test_a_failed_model_call_is_a_step_and_the_end(error: Exception):
    steps = loop(Script(("calculate", {"expression": "1"}), error), TOOLS)
    assert [(s.kind, s.status) for s in steps] == [("llm", "ok"), ("tool", "ok"), ("llm", "error")]


def test_a_fault_of_the_adapter_comes_out():
    with pytest.raises(ZeroDivisionError):
        loop(Script(ZeroDivisionError("bug")))


def test_an_answer_that_is_no_completion_is_said():
    model = Model(lambda _: Answer(response={"choices": []}, facts={}))
    with pytest.raises(LoupeError, match="no chat completion"):
        Loop(model, Tools(), Spend(Limits())).run({"messages": []})


def test_without_a_boundary_the_loop_just_runs():
    message = Loop(from_llm_call(weather_script()), Tools(TOOLS)).run({"model": "m", "messages": []})
    assert message["content"] == "Shanghai is 5.8 C warmer, that is 10.44 F."
    assert step_name({}) == "chat"


# ---------------------------------------------------------------- finishing and replaying


def a_run(**more: Any) -> Run:
    return Run(id="r", name="n", agent="a", status="running", started_at="2026-01-01T00:00:00Z", **more)


def test_finish_sums_what_is_known():
    steps = run_loop(weather_script(), TOOLS, model="small-1", question="q")
    run = finish(a_run(), steps).run
    assert (run.status, run.step_count, run.model) == ("ok", 6, "small-1")
    assert (run.total_input_tokens, run.total_output_tokens, run.usage_complete) == (30, 15, True)
    partly = finish(a_run(), [*steps, *loop(Script("x", tokens=(None, None)))]).run
    assert (partly.total_input_tokens, partly.usage_complete) == (30, False)
    assert finish(a_run(), loop(Script("x", tokens=(None, None)))).run.total_input_tokens is None
    assert finish(a_run(), []).run.step_count == 0


def test_finish_is_an_error_on_a_limit_or_a_failed_model_call_only():
    missed = loop(Script(("nothing", {}), "x"))
    assert finish(a_run(), missed).run.status == "ok"
    limit = finish(a_run(), loop(Script(*[("calculate", {"expression": "1"})] * 3), TOOLS, max_steps=1)).run
    assert limit.status == "error"
    assert limit.error is not None
    assert "max_steps" in limit.error
    assert finish(a_run(), loop(Script(ModelUnreachable("x")))).run.status == "error"


def replayed(store: MemoryStore, run_id: str) -> None:
    report = replay(run_id, store=store)
    assert report.verdict == "pass", report.text()


@pytest.mark.parametrize("tools", [TOOLS, PLAIN])
def test_runs_of_the_loop_replay(tools: Any):
    store = MemoryStore()
    replayed(store, weather_run(store, tools=tools))


def test_runs_that_ended_badly_replay():
    store = MemoryStore()
    scripts: list[Any] = [
        Script(*[("calculate", {"expression": "1"})] * 3),
        Script(("f", "{broken"), "x"),
        Script(("calculate", {"expression": "1/0"}), "x"),
        Script(ModelUnreachable("gone")),
    ]
    for i, script in enumerate(scripts):
        loop(script, TOOLS, store=store, run_id=f"r{i}", max_steps=2)
        replayed(store, f"r{i}")


@pytest.mark.parametrize("overrides", [None, Overrides(system_prompt="X", temperature=0.5, model="other")])
@pytest.mark.parametrize("step", [0, 3, 5])
def test_forks_of_the_loop_replay(step: int, overrides: Overrides | None):
    store = MemoryStore()
    weather_run(store)
    model = Script([("calculate", {"expression": "17.7 - 11.9"}), ("calculate", {"expression": "9"})], "x")
    run = fork_run(store, "weather-1", step, overrides, model)
    replayed(store, run.id)
    again = fork_run(store, run.id, run.step_count - 1, None, Script("y"))
    replayed(store, again.id)
