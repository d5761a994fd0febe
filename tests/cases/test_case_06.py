"""Case 06: the message list changes after the call."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloupe.store import open_url
from tests.cases.rec import Rec, load_agent


@pytest.fixture
def case(shared_case: Callable[[str], Path]) -> Path:
    return shared_case("06")


def test_each_step_holds_the_request_as_it_was_sent(case: Path, workdir: Path) -> None:
    expected = json.loads((case / "expected.json").read_text("utf-8"))
    store = open_url(workdir / "x.db")
    load_agent(case).main(Rec(store))

    (run,) = store.runs()
    recording = store.recording(run.id)
    requests: list[Any] = [recording.body(s.input_digest) for s in store.steps(run.id) if s.kind == "llm"]
    assert [len(r["messages"]) for r in requests] == expected["stored_message_counts"]
    assert requests[0]["messages"][0] == expected["step0_first_message"]
    assert [r["messages"][1]["content"] for r in requests] == [
        expected["step0_user"],
        expected["step1_user"],
        expected["step2_user"],
    ]
    assert run.coverage == "full"
    store.close()


def test_editing_what_was_returned_changes_nothing_stored(case: Path, workdir: Path) -> None:
    store = open_url(workdir / "x.db")
    rec = Rec(store)
    answers: list[dict[str, Any]] = []

    def model(body: dict[str, Any]) -> dict[str, Any]:
        answers.append({"role": "assistant", "content": "as it was"})
        return answers[-1]

    ask = rec.llm("small-chat-1", model)
    with rec.run("edited") as run:
        got = ask({"model": "small-chat-1", "messages": []})
        assert got is answers[0], "the program gets the very object"
        got["content"] = "edited"
        got["extra"] = [1]
    (step,) = [s for s in store.steps(run.run_id) if s.kind == "llm"]
    body: Any = store.recording(run.run_id).body(step.output_digest)
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "as it was"}
    store.close()


def test_the_recorder_itself_edits_nothing(case: Path, workdir: Path) -> None:
    def run_plain(rec: object) -> list[Any]:
        seen: list[Any] = []

        def model(body: dict[str, Any]) -> dict[str, Any]:
            seen.append(json.loads(json.dumps(body)))
            return {"role": "assistant", "content": "ok", "token": "kept-for-the-program"}

        ask = rec.llm("m", model) if isinstance(rec, Rec) else model
        body: dict[str, Any] = {
            "model": "m",
            "messages": [{"role": "user", "content": "x"}],
            "api_key": "k-12345678",
        }
        seen.append(ask(body))
        seen.append(body)
        return seen

    plain = run_plain(None)
    store = open_url(workdir / "x.db")
    rec = Rec(store)
    with rec.run("same"):
        recorded = run_plain(rec)
    assert recorded == plain
    store.close()
