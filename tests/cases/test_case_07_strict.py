"""Case 07, strict replay: the same call three times, three answers; a fourth is a divergence, nothing is executed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.replaying import replay
from tests.tapes import record_in


class RetryLater(Exception):
    """What the tool raises."""


@pytest.fixture
def case(shared_case: Callable[[str], Path]) -> Path:
    return shared_case("07")


def _agent(answers: list[dict[str, Any]], calls: int, real: list[Any]) -> Callable[[], list[Any]]:
    left = iter(answers)

    @loupe.tool(effect="read")
    def job_status(job: int) -> Any:
        answer = next(left)
        real.append(job)
        if "error" in answer:
            raise RetryLater(answer["error"])
        return answer["out"]

    @loupe.agent(name="poller")
    def poller() -> list[Any]:
        seen: list[Any] = []
        for _ in range(calls):
            try:
                seen.append(job_status(job=7))
            except RetryLater as error:
                seen.append(f"error {error}")
        return seen

    return poller


def test_recorded_order_each_answer_once_and_a_fourth_call_diverges(case: Path) -> None:
    cassette = json.loads((case / "cassette.json").read_text("utf-8"))
    expected = json.loads((case / "expected.json").read_text("utf-8"))["strict"]
    real: list[Any] = []
    store = MemoryStore()
    recording = record_in(store, _agent(cassette["calls"], 3, real))
    assert real == [7, 7, 7]
    real.clear()

    for _ in range(3):
        report = replay(recording, _agent(cassette["calls"], 3, real))
        assert report.verdict == "pass", report.text()
    result = recording.body(recording.events[-1].output_digest)
    assert result == {"result": [expected["call_1"], expected["call_2"], expected["call_3"]]}

    report = replay(recording, _agent(cassette["calls"], 4, real))
    assert report.divergence is not None
    assert (report.exit_code, report.divergence.kind, report.divergence.n) == (1, "extra", 3)
    assert "log is exhausted" in report.text()
    assert report.calls == 3
    assert real == [], "nothing executed"
