"""Cases 13 and 15, on the wire: the bytes of a fork's request, sent by its endpoint and by the program's own client."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.cli import main
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import HttpReply, HttpRequest, completion, json_reply, serve
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.exchange import export_run, import_file
from agentloupe.verbs.forking import fork


class Wire:
    """Keeps the bodies that come, as they come."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[bytes] = []

    def __call__(self, request: HttpRequest) -> HttpReply:
        self.bodies.append(request.body)
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        message = {"role": "assistant", "content": "{}"}
        return json_reply(completion(id="c", model="m", created=1, message=message, finish_reason="stop", usage=usage))

    def last(self) -> Any:
        return json.loads(self.bodies[-1])


@pytest.fixture
def wire(workdir: Path) -> Iterator[Wire]:
    made = Wire()
    with serve(made) as running:
        made.url = f"{running.url}/v1"
        yield made


@pytest.fixture
def bodies(shared_case: Callable[[str], Path]) -> dict[str, Any]:
    """The requests of both cases, and what case 13 expects of one changed field."""
    case = shared_case("13")
    history = json.loads((shared_case("15") / "messages.json").read_text("utf-8"))
    return {
        "13": json.loads((case / "request.json").read_text("utf-8")),
        "13 expected": json.loads((case / "expected_request.json").read_text("utf-8")),
        "15": {"model": "m", "messages": history, "n": 1, "x_vendor": {"k": [1.0, 1, None, ""]}},
    }


def agent_of(wire: Wire, body: dict[str, Any]) -> Callable[[], str]:
    """Sends a body through the SDK, the fields that it does not know as `extra_body`."""
    known = {"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "temperature",
             "top_p", "seed", "stop", "max_tokens", "stream", "metadata", "n"}  # fmt: skip

    def ask() -> str:
        given: dict[str, Any] = copy.deepcopy({name: value for name, value in body.items() if name in known})
        extra = {name: value for name, value in body.items() if name not in known}
        http = openai.DefaultHttpxClient(verify=False)
        with loupe.wrap(openai.OpenAI(api_key="k", base_url=wire.url, max_retries=0, http_client=http)) as client:
            return str(client.chat.completions.create(**given, extra_body=extra).choices[0].message.content)

    return ask


def recorded(wire: Wire, body: dict[str, Any]) -> tuple[str, int, Callable[[], str]]:
    agent = agent_of(wire, body)
    run_id = loupe.record(agent).run_id
    assert wire.last() == body, "the SDK sends what the case says"
    (step,) = [step for step in loupe.open_store().steps(run_id) if step.kind == "llm"]
    return run_id, step.idx, agent


def forked(wire: Wire, run: tuple[str, int, Callable[[], str]], way: str, **more: Any) -> Any:
    run_id, idx, agent = run
    before = len(wire.bodies)
    who: dict[str, Any] = {"agent": agent} if way == "own" else {"provider": Endpoint(wire.url, "k")}
    done = fork(run_id, from_step=idx, control=False, **who, **more)
    assert len(wire.bodies) == before + 1
    return done.candidates[0]


WAYS = pytest.mark.parametrize("way", ["own", "generic"])


@WAYS
@pytest.mark.parametrize("name", ["13", "15"])
def test_an_unchanged_fork_sends_the_same_body(wire: Wire, bodies: dict[str, Any], name: str, way: str) -> None:
    body = bodies[name]
    run = recorded(wire, body)
    made = forked(wire, run, way)
    assert wire.last() == body
    assert json.dumps(wire.last()["messages"]) == json.dumps(body["messages"]), (
        "order of keys, 1 and 1.0, every character"
    )
    assert made.overrides == ()


@WAYS
def test_one_changed_field_is_the_only_difference_and_the_only_one_listed(
    wire: Wire, bodies: dict[str, Any], way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(wire, bodies["13"])
    made = forked(wire, run, way, temperature=0.9)
    assert wire.last() == bodies["13 expected"]
    for image in (1, 2):
        url = wire.last()["messages"][1]["content"][image]["image_url"]["url"]
        assert url == bodies["13"]["messages"][1]["content"][image]["image_url"]["url"]
    capsys.readouterr()
    assert main(["show", made.id]) == 0
    shown = capsys.readouterr().out
    assert [line.strip() for line in shown.splitlines() if "changed:" in line] == ["changed: temperature = 0.9"]
    assert main(["show", made.id, "--json"]) == 0
    assert [o["path"] for o in json.loads(capsys.readouterr().out)["run"]["overrides"]] == ["temperature"]


@WAYS
@pytest.mark.parametrize("name", ["13", "15"])
def test_a_changed_system_prompt_is_the_first_message_and_nothing_else(
    wire: Wire, bodies: dict[str, Any], name: str, way: str
) -> None:
    wanted = copy.deepcopy(bodies[name])
    wanted["messages"][0]["content"] = "Z"
    made = forked(wire, recorded(wire, bodies[name]), way, system_prompt="Z")
    assert wire.last() == wanted
    assert [o["path"] for o in made.overrides] == ["messages[0].content"]


def test_the_fork_of_a_fork_of_an_import_of_an_export_still_sends_the_same_body(
    wire: Wire, bodies: dict[str, Any], tmp_path: Path
) -> None:
    """Four ways through files and stores, one after another."""
    body = bodies["15"]
    run_id, idx, _ = recorded(wire, body)
    store: Any = loupe.open_store()
    for n, ending in enumerate(["loupe", "jsonl", "loupe", "jsonl"]):
        export_run(store, run_id, tmp_path / f"{n}.{ending}")
        store = MemoryStore()
        run_id = import_file(store, tmp_path / f"{n}.{ending}").runs[0].run_id
        idx = next(step.idx for step in store.steps(run_id) if step.kind == "llm")
        done = fork(run_id, from_step=idx, store=store, control=False, provider=Endpoint(wire.url, "k"))
        assert wire.last() == body
        assert json.dumps(wire.last()["messages"]) == json.dumps(body["messages"])
        run_id = done.candidates[0].id


@pytest.mark.parametrize("index", range(14))
def test_each_message_alone_goes_out_as_it_came(wire: Wire, bodies: dict[str, Any], index: int) -> None:
    body = {"model": "m", "messages": [bodies["15"]["messages"][index]]}
    forked(wire, recorded(wire, body), "own")
    assert json.dumps(wire.last()["messages"]) == json.dumps(body["messages"])


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "reasoning_content": None},
        {"role": "assistant", "reasoning_content": ""},
        {"role": "assistant", "content": [], "tool_calls": []},
        {"role": "assistant", "content": "None"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "", "type": "custom", "custom": {"input": " "}}]},
        {"role": "assistant", "content": None, "audio": {"id": "audio_1"}, "refusal": ""},
        {"role": "user", "content": [{"type": "file", "file": {"file_data": "data:x;base64,AA==", "n": 1e21}}]},
        {"role": "user", "content": "\u202e\u0000\ud7ff\uffff \u2028", "b": 1, "a": 2},
        {"content": "no role at all", "nested": {"a": {"b": {"c": [[], {}, [{}]]}}}},
        {"role": "user", "content": "x" * 300_000},
    ],
)
def test_messages_of_no_known_shape_go_out_as_they_came(wire: Wire, message: Any) -> None:
    body: Any = {"model": "m", "messages": [{"role": "system", "content": "S"}, message]}
    run = recorded(wire, body)
    for way in ("own", "generic"):
        forked(wire, run, way)
        assert json.dumps(wire.last()["messages"]) == json.dumps(body["messages"])
