"""Case 16, import: a result without its call, a call without its result, one id used twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentloupe.engine.cassette import Cassette
from agentloupe.store import open_url
from agentloupe.verbs.exchange import import_file, load_trace


def test_results_find_their_calls_and_orphans_are_kept_and_marked(shared_case: Callable[[str], Path]) -> None:
    folder = shared_case("16")
    expected: dict[str, Any] = json.loads((folder / "expected.json").read_text("utf-8"))
    store = open_url("memory:")
    report = import_file(store, folder / "messages.json")
    steps = load_trace(store.recording(report.runs[0].run_id)).steps
    pairs = [
        {"call": f"{s.name} k={s.input['k']}", "result": s.output}
        for s in steps
        if s.kind == "tool" and s.status == "ok" and isinstance(s.input, dict)
    ]
    assert pairs == expected["pairs"]
    without_call = [
        s.input["tool_call_id"] for s in steps if s.attrs.get("orphan") == "no_call" and isinstance(s.input, dict)
    ]
    assert without_call == expected["results_without_call"]
    assert [s.attrs["tool_call_id"] for s in steps if s.attrs.get("orphan") == "no_result"] == expected[
        "calls_without_result"
    ]
    assert len(steps) == 1 + 3 + 3 + 1  # the orphan, three answers, their calls, the request that waits
    warnings = report.runs[0].found.warnings
    assert any("result without its call" in one for one in warnings)
    assert any("c9 has no result" in one for one in warnings)


def test_the_cassette_hands_out_what_was_asked_for_and_no_orphan(shared_case: Callable[[str], Path]) -> None:
    store = open_url("memory:")
    report = import_file(store, shared_case("16") / "messages.json")
    cassette = Cassette.from_steps(load_trace(store.recording(report.runs[0].run_id)).steps)
    assert cassette.play("lookup", {"k": "A"}) == (True, "1", None)
    assert cassette.play("lookup", '{"k":"B"}') == (True, "2", None)
    assert cassette.play("lookup", {"k": "C"}).hit is False
    assert cassette.play("result without call", {"role": "tool", "tool_call_id": "gone"}).hit is False


def test_the_last_request_holds_the_history_unchanged(shared_case: Callable[[str], Path]) -> None:
    folder = shared_case("16")
    store = open_url("memory:")
    report = import_file(store, folder / "messages.json")
    step = load_trace(store.recording(report.runs[0].run_id)).steps[-1]
    assert step.input == {"messages": json.loads((folder / "messages.json").read_text("utf-8"))}
