"""Case 04: a client library that retries on its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.engine.ruling import Ruling
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.verbs.replaying import replay
from agentloupe.words.step import Step

MESSAGES: list[Any] = [{"role": "user", "content": "work"}]


class Busy:
    """The case's server: the scripted replies one after another, then the last again and again."""

    def __init__(self, script: list[dict[str, Any]]) -> None:
        self.script = script
        self.asked = 0
        self.url = ""

    def __call__(self, request: HttpRequest) -> HttpReply:
        reply = self.script[min(self.asked, len(self.script) - 1)]
        self.asked += 1
        return json_reply(reply["body"], reply["status"], reply["headers"])


@pytest.fixture
def expected(shared_case: Callable[[str], Path]) -> dict[str, Any]:
    return json.loads((shared_case("04") / "expected.json").read_text("utf-8"))


@pytest.fixture
def server(shared_case: Callable[[str], Path]) -> Iterator[Busy]:
    busy = Busy(json.loads((shared_case("04") / "server_script.json").read_text("utf-8")))
    with serve(busy) as running:
        busy.url = f"{running.url}/v1"
        yield busy


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits of the client between its tries, noted instead of waited."""
    waited: list[float] = []
    monkeypatch.setattr("openai._base_client.time.sleep", waited.append)
    return waited


def _agent(url: str, max_retries: int, seen: list[str | None] | None = None) -> Callable[[], str | None]:
    """Calls once; what it got goes into `seen`."""

    def worker() -> str | None:
        with loupe.wrap(openai.OpenAI(api_key="k", base_url=url, max_retries=max_retries)) as client:
            text = client.chat.completions.create(model="small-chat-1", messages=MESSAGES).choices[0].message.content
        if seen is not None:
            seen.append(text)
        return text

    return worker


def _model_steps(run_id: str) -> list[Step]:
    return [step for step in loupe.open_store().steps(run_id) if step.kind == "llm"]


@pytest.mark.usefixtures("workdir")
def test_one_step_lists_every_try_and_the_waits_belong_to_none(
    server: Busy, sleeps: list[float], expected: dict[str, Any]
) -> None:
    done = loupe.record(_agent(server.url, 2))
    assert done.result == expected["final_text"]
    steps = _model_steps(done.run_id)
    assert len(steps) == expected["llm_steps"]
    tries: Any = steps[0].attrs["tries"]
    assert [t["status"] for t in tries] == expected["attempts"]
    assert sleeps[1] == 1.0  # Retry-After
    assert sum(t["ms"] for t in tries) <= float(steps[0].attrs["ms"])  # type: ignore[arg-type]
    assert done.run is not None
    assert (steps[0].input_tokens, steps[0].output_tokens) == (20, 1)
    assert (done.run.total_input_tokens, done.run.total_output_tokens) == (20, expected["billed_usage_counted"])


@pytest.mark.usefixtures("workdir")
def test_a_replay_neither_asks_nor_waits(server: Busy, sleeps: list[float], expected: dict[str, Any]) -> None:
    run_id = loupe.record(_agent(server.url, 2)).run_id
    asked, waited = server.asked, len(sleeps)
    seen: list[str | None] = []
    report = replay(run_id, _agent(server.url, 2, seen))
    assert report.passed, report
    assert seen == [expected["replay"]["text"]]
    assert server.asked - asked == expected["replay"]["network_calls"]
    assert len(sleeps) - waited == expected["replay"]["sleeps"]


@pytest.mark.usefixtures("workdir")
def test_a_divergence_is_not_tried_again(server: Busy, sleeps: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = loupe.record(_agent(server.url, 2)).run_id
    asked, waited, refused = server.asked, len(sleeps), list[str]()
    monkeypatch.setattr(Ruling, "refuse", lambda self: refused.append("again"))
    other = [{**MESSAGES[0], "content": "something else"}]
    monkeypatch.setitem(globals(), "MESSAGES", other)
    report = replay(run_id, _agent(server.url, 2))
    assert report.divergence is not None
    assert (report.verdict, report.divergence.kind) == ("diverged", "input_changed")
    assert (refused, server.asked - asked, len(sleeps) - waited) == ([], 0, 0)


@pytest.mark.usefixtures("workdir")
def test_without_retries_the_step_is_an_error_of_one_try(server: Busy, sleeps: list[float]) -> None:
    with pytest.raises(openai.InternalServerError), loupe.recording("once") as session:
        _agent(server.url, 0)()
    run_id = session.run_id
    assert run_id is not None
    (step,) = _model_steps(run_id)
    assert step.status == "error"
    assert step.attrs["status_code"] == 503
    tries: Any = step.attrs["tries"]
    assert [t["status"] for t in tries] == [503]
    assert sleeps == []
