"""Forks of scripts, each in a process of its own; and forks through the real client library and a real address."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.compare import Comparison
from agentloupe.engine.overrides import MessageEdit, Overrides, ToolEdit, overrides_as_json, overrides_from_json
from agentloupe.engine.project import load_steps
from agentloupe.ports import ambient
from agentloupe.ports.progress import Progress
from agentloupe.ports.protocols import Store
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.scripted import ScriptedServer, ask, say
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.comparing import compare
from agentloupe.verbs.forkchild import fork_command
from agentloupe.verbs.forking import fork
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.errors import ForkRefused, UsageError
from tests.fork_support import SCHEMAS, SYSTEM, TOOLS, shape, weather_run

SCRIPT = """
import sys
import agentloupe as loupe
from agentloupe.ports import ambient
from agentloupe.words.call import Call

@loupe.tool(effect="read")
def look(k):
    open(LOG, "a").write("look " + k + "\\n")
    return {"v": k.lower()}

def answer(body):
    open(LOG, "a").write("model " + body["messages"][0]["content"] + "\\n")
    last = body["messages"][-1]
    message = {"role": "assistant", "content": "said " + last["content"]}
    if last["role"] == "user":
        call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"k":"A"}'}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"model": body["model"], "choices": [{"message": message}]}

def ask(body):
    call = Call(kind="llm", name="chat m", input=body, encode=lambda v: v, decode=lambda v: v, resend=answer)
    return ambient.call(call, lambda: answer(body))["choices"][0]["message"]

@loupe.agent
def helper(question):
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": question}]
    first = ask({"model": "m", "messages": messages})
    found = look(k="A")
    messages = messages + [first, {"role": "tool", "tool_call_id": "c", "content": str(found)}]
    return ask({"model": "m", "messages": messages})["content"]

if __name__ == "__main__":
    print(helper(sys.argv[1]))
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = open_url(str(tmp_path / "runs.db"))
    yield found
    found.close()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "my_agent.py"
    path.write_text(f"LOG = {str(tmp_path / 'log')!r}\n{SCRIPT}")
    return path


def record_script(store: Store, script: Path, question: str = "hi") -> str:
    from agentloupe.verbs.running import run_recorded

    assert run_recorded(["python", str(script), question], db=store.url).code == 0
    (script.parent / "log").unlink()
    return store.runs()[0].id


def log(script: Path) -> list[str]:
    path = script.parent / "log"
    return path.read_text().splitlines() if path.exists() else []


def test_a_script_is_forked_in_a_child(store: Store, script: Path):
    run_id = record_script(store, script)
    assert [s.kind for s in store.steps(run_id)] == ["agent", "llm", "tool", "llm"]
    done = fork_command(run_id, ["python", str(script), "hi"], from_step=3, store=store, system_prompt="X")
    [new] = done.candidates
    assert (new.status, new.parent_run_id, new.engine) == ("ok", run_id, "own")
    assert [s[3] for s in shape(store, new.id)] == ["live", "recorded", "recorded", "live"]
    assert log(script) == ["model X"]
    assert "messages[0].content was applied to 1 request" in done.notes


def test_a_fork_of_a_script_depends_on_what_the_script_declares(store: Store, script: Path):
    run_id = record_script(store, script)
    [new] = fork_command(run_id, ["python", str(script), "hi"], from_step=3, store=store).candidates
    found = compare(run_id, new.id, store=store)
    assert isinstance(found, Comparison)
    assert found.snapshot.lines() == []


def test_a_script_that_starts_other_runs_too_is_told_that_they_were_stopped(store: Store, script: Path):
    text = script.read_text()
    script.write_text(text + "    try:\n        helper('another')\n    except BaseException:\n        pass\n")
    record_script(store, script)
    run_id = store.runs()[1].id
    done = fork_command(run_id, ["python", str(script), "hi"], from_step=3, store=store)
    assert [run.status for run in done.candidates] == ["ok"]
    assert any(note.startswith("the program starts other runs too; each was stopped") for note in done.notes)
    script.write_text(text)
    alone = fork_command(run_id, ["python", str(script), "hi"], from_step=3, store=store, code_changed=True)
    assert not any("other runs" in note for note in alone.notes)


def test_who_watches_is_told_what_the_child_does(store: Store, script: Path):
    run_id = record_script(store, script)
    heard: list[Progress] = []
    command = ["python", str(script), "hi"]
    [new] = fork_command(run_id, command, from_step=1, store=store, watch=heard.append).candidates
    assert [progress.what for progress in heard] == ["begun", *["asking", "answered"] * 2, "ended"]
    assert {progress.run_id for progress in heard} == {new.id}
    assert heard[1].name == "chat m"


def test_arms_limits_and_policies_travel_with_it(store: Store, script: Path):
    run_id = record_script(store, script)
    command = ["python", str(script), "hi"]
    done = fork_command(run_id, command, from_step=1, store=store, repeat=2, tools={"look": 'stub:{"v": "stubbed"}'})
    assert [run.arm for run in done.runs] == ["candidate", "candidate", "control", "control"]
    assert [run.counts.stub for run in done.runs] == [1, 1, 1, 1]
    sandboxed = fork_command(
        run_id, command, from_step=1, store=store, tools={"look": "sandbox:json:dumps"}, max_steps=5
    ).candidates[0]
    tool = next(s for s in load_steps(store.recording(sandboxed.id)) if s.kind == "tool")
    assert (tool.source, tool.status) == ("sandbox", "error")  # json.dumps has no argument k
    live = fork_command(run_id, command, from_step=1, store=store, live={"look": loupe_allow()}).candidates[0]
    assert live.counts.live == 1
    assert log(script)[-2:] == ["look A", "model S"]
    limited = fork_command(run_id, command, from_step="start", store=store, max_steps=1).candidates[0]
    assert (limited.status, store.steps(limited.id)[-1].name) == ("error", "max_steps")


def loupe_allow() -> Any:
    from agentloupe.engine.policy import Allow

    return Allow("it only looks", read=True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [(["other"], "other_arguments"), ([], "no_session")],
)
def test_a_script_that_does_something_else_is_refused(store: Store, script: Path, words: list[str], reason: str):
    run_id = record_script(store, script)
    before = len(store.runs())
    with pytest.raises(ForkRefused) as refused:
        fork_command(run_id, ["python", str(script), *words], from_step=3, store=store)
    assert refused.value.reason == reason
    assert (len(store.runs()), log(script)) == (before, [])


def test_a_rule_may_name_a_tool_that_only_the_script_declares(
    store: Store, script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = script.read_text().replace(
        "@loupe.agent", '@loupe.tool(effect="read")\ndef spare():\n    pass\n\n@loupe.agent'
    )
    script.write_text(text)
    run_id = record_script(store, script)
    command = ["python", str(script), "hi"]
    [new] = fork_command(run_id, command, from_step=3, store=store, tools={"spare": "stub"}).candidates
    assert new.status == "ok"
    with pytest.raises(UsageError, match="no tool 'sparse' in this run; it has: look, spare"):
        fork_command(run_id, command, from_step=3, store=store, tools={"sparse": "stub"})
    assert "Traceback" not in capfd.readouterr().err


def test_a_script_that_diverges_before_n_is_refused(store: Store, script: Path):
    run_id = record_script(store, script)
    script.write_text(script.read_text().replace('look(k="A")', 'look(k="B")'))
    with pytest.raises(ForkRefused) as refused:
        fork_command(run_id, ["python", str(script), "hi"], from_step=3, store=store)
    assert refused.value.reason == "diverges_before"
    assert "look" in str(refused.value)
    assert log(script) == []


def test_what_a_child_cannot_have(store: Store, script: Path):
    run_id = record_script(store, script)
    with pytest.raises(UsageError, match="store in memory"):
        fork_command("x", ["python", str(script)], from_step=3, store=MemoryStore())
    with pytest.raises(UsageError, match="cannot be found by a child"):
        fork_command(
            run_id, ["python", str(script), "hi"], from_step=3, store=store, on_miss="human", ask=lambda _: None
        )


def test_overrides_travel_as_json():
    overrides = Overrides(
        system_prompt="",
        temperature=0.0,
        extra={"a": None},
        messages=(MessageEdit(1, "insert", {"role": "user"}),),
        tools=(ToolEdit("remove", "f"),),
        tool_results={3: [1]},
        set_paths=(("a.b", {"c": 1}),),
        unset_paths=("x",),
    )
    assert overrides_from_json(json.loads(json.dumps(overrides_as_json(overrides)))) == overrides
    assert overrides_as_json(Overrides()) == {}


# ---------------------------------------------------------------- the real client, a real address

WEATHER = [
    ask(("get_weather", {"city": "Beijing"}), ("get_weather", {"city": "Shanghai"})),
    ask(("calculate", {"expression": "17.7 - 11.9"})),
    say("5.8 C, 10.44 F"),
]
BOTH = ask(("calculate", {"expression": "17.7 - 11.9"}), ("calculate", {"expression": "(17.7 - 11.9) * 9 / 5"}))


def test_the_three_experiments_over_http():
    store = MemoryStore()
    weather_run(store)

    def forked(script: Any, step: int, **more: Any) -> Any:
        with ScriptedServer(script) as server:
            return fork("weather-1", from_step=step, store=store, provider=Endpoint(server.url), **more).candidates[0]

    first = forked([BOTH, say("x")], 3)
    assert (first.step_count, first.counts.cassette, first.counts.miss) == (7, 1, 1)
    second = forked(
        [WEATHER[0], BOTH, ask(("calculate", {"expression": "5.8 * 1.8"})), say("x")],
        0,
        system_prompt=f"{SYSTEM} Answer in one sentence.",
    )
    assert (second.step_count, second.counts.cassette, second.counts.miss) == (9, 3, 2)
    live = {"live": {"calculate": "arithmetic"}, "functions": TOOLS}
    third = forked([BOTH, say("x")], 3, **live)
    assert (third.step_count, third.counts.live, third.counts.miss) == (7, 2, 0)
    assert all(run.new_input_tokens for run in (first, second, third))


def _agents(url: str) -> tuple[Callable[[str], Any], Callable[[str], Any]]:
    """The same agent with the sync and the async client."""
    openai = pytest.importorskip("openai")

    def start(question: str) -> dict[str, Any]:
        messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        return {"model": "scripted-1", "messages": messages, "tools": SCHEMAS, "temperature": 0.2}

    def answered(request: dict[str, Any], message: Any) -> bool:
        request["messages"].append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            try:
                result = TOOLS[call.function.name](**json.loads(call.function.arguments))
            except Exception as error:
                result = {"error": str(error)}
            request["messages"].append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
        return not message.tool_calls

    @loupe.agent(name="weather")
    def weather(question: str) -> str:
        request = start(question)
        with openai.OpenAI(base_url=url, api_key="k") as made:
            client = loupe.wrap(made)
            while True:
                message = client.chat.completions.create(**request).choices[0].message
                if answered(request, message):
                    return message.content or ""

    @loupe.agent(name="aweather")
    async def aweather(question: str) -> str:
        request = start(question)
        async with openai.AsyncOpenAI(base_url=url, api_key="k") as made:
            aclient = loupe.wrap(made)
            while True:
                message = (await aclient.chat.completions.create(**request)).choices[0].message
                if answered(request, message):
                    return message.content or ""

    return weather, aweather


@pytest.mark.parametrize("which", [0, 1], ids=["sync", "async"])
def test_own_code_with_the_real_client(which: int):
    store = MemoryStore()
    with ScriptedServer([*WEATHER, BOTH, say("other")]) as server:
        weather = _agents(server.url)[which]
        with ambient.opening_with(RecordOpener(store)):
            result = weather("q")
            if asyncio.iscoroutine(result):
                asyncio.run(result)
        run_id = store.runs()[0].id
        assert [s.kind for s in store.steps(run_id)] == ["agent", "llm", "tool", "tool", "llm", "tool", "llm"]
        done = fork(run_id, weather, from_step=4, store=store, overrides=Overrides(system_prompt="Z", temperature=0.9))
        asked = server.model.requests[3:]
    new = done.candidates[0]
    assert (new.status, new.step_count, new.counts.cassette, new.counts.miss) == ("ok", 8, 1, 1)
    assert [(r["messages"][0]["content"], r["temperature"]) for r in asked] == [("Z", 0.9), ("Z", 0.9)]
    recorded = load_steps(store.recording(run_id))[4].input
    assert isinstance(recorded, dict)
    assert {k: v for k, v in asked[0].items() if k not in ("messages", "temperature")} == {
        k: v for k, v in recorded.items() if k not in ("messages", "temperature")
    }
    assert load_steps(store.recording(new.id))[0].output == "other"


def test_a_program_that_fails_in_every_fork_is_shown_once(
    store: Store, script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_id = record_script(store, script)
    script.write_text(
        script.read_text().replace('    return ask({"model"', '    raise LookupError("no")\n    return ask({"model"')
    )
    done = fork_command(run_id, ["python", str(script), "hi"], from_step=1, store=store, repeat=2)
    assert {(run.status, run.error) for run in done.runs} == {("error", "LookupError")}
    said = capfd.readouterr().err
    assert said.count("\nLookupError: no\n") == 1
    assert {Path(line.split('"')[1]).name for line in said.splitlines() if line.startswith("  File ")} == {script.name}


def test_a_program_that_fails_before_its_agent_is_named(store: Store, script: Path) -> None:
    run_id = record_script(store, script)
    script.write_text(script.read_text().replace("if __name__", "raise LookupError\nif __name__"))
    with pytest.raises(ForkRefused, match=r"the script raised LookupError at my_agent\.py:\d+ and did not start"):
        fork_command(run_id, ["python", str(script), "hi"], from_step=1, store=store)
