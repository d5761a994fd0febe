"""Case 04, more of the kind: where the time of a call went, what it cost, and other ways to fail before it succeeds."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.cli import main
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.verbs.replaying import replay
from agentloupe.words.step import Step

MESSAGES: list[Any] = [{"role": "user", "content": "work"}]


class Scripted:
    """Answers with the replies of a script, the last one again and again; counts how often it was asked."""

    def __init__(self) -> None:
        self.replies: list[HttpReply] = []
        self.asked = 0
        self.url = ""

    def __call__(self, request: HttpRequest) -> HttpReply:
        self.asked += 1
        return self.replies[min(self.asked, len(self.replies)) - 1]


@pytest.fixture
def script(shared_case: Callable[[str], Path]) -> list[HttpReply]:
    found = json.loads((shared_case("04") / "server_script.json").read_text("utf-8"))
    return [json_reply(one["body"], one["status"], one["headers"]) for one in found]


@pytest.fixture
def server(script: list[HttpReply], workdir: Path) -> Iterator[Scripted]:
    made = Scripted()
    made.replies = script
    with serve(made) as running:
        made.url = f"{running.url}/v1"
        yield made


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waits of the client between its tries: nobody waits, and the clock for durations goes on as if."""
    waited: list[float] = []
    plain = time.perf_counter_ns
    monkeypatch.setattr("time.perf_counter_ns", lambda: plain() + int(sum(waited) * 1e9))
    monkeypatch.setattr("openai._base_client.time.sleep", waited.append)

    async def noted(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("openai._base_client.anyio.sleep", noted)
    return waited


def agent_of(server: Scripted, retries: int, way: str = "sync") -> Callable[[], Any]:
    """Asks once with a client of that kind; what the SDK raises comes out."""
    options: dict[str, Any] = {"api_key": "k", "base_url": server.url, "max_retries": retries}

    def ask() -> str | None:
        more = {"http_client": pytest.importorskip("httpx").Client(verify=False)} if way == "legacy" else {}
        with loupe.wrap(openai.OpenAI(**options, **more)) as client:
            return client.chat.completions.create(model="small-chat-1", messages=MESSAGES).choices[0].message.content

    async def ask_later() -> str | None:
        async with loupe.wrap(openai.AsyncOpenAI(**options)) as client:
            answer = await client.chat.completions.create(model="small-chat-1", messages=MESSAGES)
            return answer.choices[0].message.content

    return ask_later if way == "async" else ask


def recorded(agent: Callable[[], Any]) -> tuple[str, Step]:
    """The run and its one model step."""
    with loupe.recording("worker") as session:
        try:
            made = agent()
            if asyncio.iscoroutine(made):
                asyncio.run(made)
        except openai.APIError:
            pass
    assert session.run_id is not None
    (step,) = [step for step in loupe.open_store().steps(session.run_id) if step.kind == "llm"]
    return session.run_id, step


def statuses(step: Step) -> list[Any]:
    tries: Any = step.attrs["tries"]
    return [one["status"] for one in tries]


@pytest.mark.parametrize("way", ["legacy", "async"])
def test_a_replay_of_other_clients_neither_asks_nor_waits(server: Scripted, waits: list[float], way: str) -> None:
    agent = agent_of(server, 2, way)
    done = loupe.record(agent)
    asked, waited = server.asked, len(waits)
    assert (done.result, asked, waited) == ("done", 3, 2)
    assert replay(done.run_id, agent).passed
    assert (server.asked, len(waits)) == (asked, waited)


@pytest.mark.parametrize("way", ["sync", "legacy", "async"])
def test_waiting_is_time_of_the_step_and_of_no_try(server: Scripted, waits: list[float], way: str) -> None:
    _, step = recorded(agent_of(server, 2, way))
    tries: Any = step.attrs["tries"]
    assert statuses(step) == [503, 429, 200]
    assert len(waits) == 2
    assert waits[1] == 1.0, "Retry-After"
    waited, whole = sum(waits) * 1000, float(step.attrs["ms"])  # type: ignore[arg-type]
    assert whole >= waited >= 1000, "the step took more than a second"
    assert all(0 < one["ms"] < waits[0] * 1000 for one in tries), "no try has a wait in it, the last one neither"
    assert sum(one["ms"] for one in tries) <= whole - waited + 1
    assert tries[2]["started_ms"] - tries[1]["started_ms"] >= 1000


def test_it_is_paid_once(
    server: Scripted, waits: list[float], workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workdir / "prices.json").write_text('{"models": {"small-chat-1": {"input": "2.00", "output": "8.00"}}}', "utf-8")
    (workdir / "loupe.toml").write_text("", "utf-8")
    run_id, step = recorded(agent_of(server, 2))
    capsys.readouterr()
    assert main(["list", "--cost", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["id"], run["cost"], run["total_input_tokens"], run["total_output_tokens"]) == (
        run_id,
        "0.000048",
        20,
        1,
    )
    assert main(["show", run_id, str(step.idx)]) == 0
    shown = capsys.readouterr().out
    assert all(f"{status}" in shown for status in (503, 429, 200)), shown


@pytest.mark.parametrize("way", ["sync", "async"])
def test_tries_that_are_used_up_are_one_error_that_replays_without_asking(
    server: Scripted, waits: list[float], script: list[HttpReply], way: str
) -> None:
    server.replies = script[:1]
    agent = agent_of(server, 2, way)
    seen: list[Any] = []

    def outcome(error: openai.InternalServerError) -> list[Any]:
        seen.append([error.status_code, str(error)])
        return seen[-1]

    def handled() -> Any:
        try:
            return agent()
        except openai.InternalServerError as error:
            return outcome(error)

    async def handled_later() -> Any:
        try:
            return await agent()
        except openai.InternalServerError as error:
            return outcome(error)

    program = handled_later if way == "async" else handled
    run_id = loupe.record(program).run_id
    (step,) = [step for step in loupe.open_store().steps(run_id) if step.kind == "llm"]
    assert (step.status, step.attrs["status_code"], statuses(step)) == ("error", 503, [503, 503, 503])
    assert (step.input_tokens, step.output_tokens) == (None, None)
    asked, waited = server.asked, len(waits)
    assert (asked, waited) == (3, 2)
    assert replay(run_id, program).passed
    assert seen[0] == seen[1]
    assert (server.asked, len(waits)) == (asked, waited)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502])
def test_other_answers_that_a_client_tries_again(
    server: Scripted, waits: list[float], script: list[HttpReply], status: int
) -> None:
    server.replies = [json_reply({"error": {"message": "later"}}, status), script[2]]
    agent = agent_of(server, 2)
    run_id = loupe.record(agent).run_id
    (step,) = [step for step in loupe.open_store().steps(run_id) if step.kind == "llm"]
    assert (step.status, statuses(step)) == ("ok", [status, 200])
    asked, waited = server.asked, len(waits)
    assert replay(run_id, agent).passed
    assert (server.asked, len(waits)) == (asked, waited)


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_what_a_client_does_not_try_again_is_one_try(server: Scripted, waits: list[float], status: int) -> None:
    server.replies = [json_reply({"error": {"message": "no"}}, status)]
    _, step = recorded(agent_of(server, 2))
    assert (step.status, step.attrs["status_code"], statuses(step), waits) == ("error", status, [status], [])


def test_two_calls_in_a_row_list_their_own_tries(server: Scripted, waits: list[float], script: list[HttpReply]) -> None:
    server.replies = [script[0], script[2], script[1], script[1], script[2]]
    agent = agent_of(server, 2)

    def twice() -> list[Any]:
        return [agent(), agent()]

    run_id = loupe.record(twice).run_id
    models = [step for step in loupe.open_store().steps(run_id) if step.kind == "llm"]
    assert [statuses(step) for step in models] == [[503, 200], [429, 429, 200]]
    run = loupe.open_store().run(run_id)
    assert run is not None
    assert (run.total_input_tokens, run.total_output_tokens) == (40, 2)
    assert replay(run_id, twice).passed
