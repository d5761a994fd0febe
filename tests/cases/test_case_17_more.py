"""Case 17, more of the kind: what leaves the program about arguments, and results that are no JSON, is strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.cli import main
from agentloupe.engine.project import load_steps
from agentloupe.store import open_url
from agentloupe.verbs.exchange import export_run, import_file
from agentloupe.verbs.forking import fork_run
from agentloupe.verbs.looping import run_loop
from agentloupe.verbs.replaying import replay
from tests.fork_support import Script
from tests.tapes import record_in


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), "a key stands twice"
    return dict(pairs)


def strict(text: str | bytes) -> Any:
    """JSON as RFC 8259 has it: no NaN, no Infinity, no key twice."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


@pytest.fixture
def rows(shared_case: Callable[[str], Path]) -> list[dict[str, Any]]:
    return json.loads((shared_case("17") / "rows.json").read_text("utf-8"))


@loupe.tool(effect="pure", name="f")
def live(**arguments: Any) -> Any:
    return {"got": len(arguments)}


def test_the_command_and_the_exports_of_every_row(
    rows: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run that asks for all of them, and a fork over it; each row in what `show` prints and in what is exported."""
    db = tmp_path / "runs.db"
    store = open_url(db)
    calls = [("f", row["raw"]) for row in rows]
    run_loop(Script(calls, "done"), {"f": live}, model="m", question="q", store=store, run_id="r")
    made = fork_run(store, "r", 0, None, Script(calls, "done"), {"f": live})
    assert made.counts.live == sum(row["may_run_live"] for row in rows)
    for run_id in ("r", made.id):
        capsys.readouterr()
        assert main(["show", run_id, "--json", "--db", str(db)]) == 0
        shown = strict(capsys.readouterr().out)
        tools = [step for step in shown["steps"] if step["kind"] == "tool"]
        assert [step["input"] for step in tools] == [
            row["raw"] if row["parsed"] is None else row["parsed"] for row in rows
        ]
        asked = shown["steps"][0]["output"]["tool_calls"]
        assert [call["function"]["arguments"] for call in asked] == [row["raw"] for row in rows]
        for step, row in zip(tools, rows, strict=True):
            assert (step["error"] is None) is row["may_run_live"]
            assert main(["show", run_id, str(step["idx"]), "--json", "--db", str(db)]) == 0
            strict(capsys.readouterr().out)
            assert main(["show", run_id, str(step["idx"]), "--db", str(db)]) == 0
            text = capsys.readouterr().out
            assert ("90071992547409931" in text) is ("90071992547409931" in row["raw"])
            assert "\x00" not in text
        export_run(store, run_id, tmp_path / "out.jsonl")
        lines = (tmp_path / "out.jsonl").read_bytes().splitlines()
        again = [strict(line) for line in lines]
        assert [one["step"]["input"] for one in again[1:] if one["step"]["kind"] == "tool"] == [
            step["input"] for step in tools
        ]
        back = open_url("memory:")
        imported = import_file(back, tmp_path / "out.jsonl").runs[0].run_id
        before, after = load_steps(store.recording(run_id)), load_steps(back.recording(imported))
        assert [repr((s.kind, s.input, s.output)) for s in before] == [repr((s.kind, s.input, s.output)) for s in after]
    store.close()


@pytest.mark.parametrize(
    "text", ['{"id":90071992547409931}', '{"id":-90071992547409931,"deep":[{"n":18446744073709551617}]}']
)
def test_an_edit_of_a_fork_keeps_every_digit(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A large number that goes out as JSON and comes back as an override is the same number."""
    db = tmp_path / "runs.db"
    store = open_url(db)
    run_loop(Script(("f", text), "done"), {"f": live}, model="m", question="q", store=store, run_id="r")
    assert main(["show", "r", "1", "--json", "--db", str(db)]) == 0
    given = json.loads(capsys.readouterr().out)["input"]
    from agentloupe.engine.overrides import Overrides, parse_set

    model = Script("x")
    change = parse_set(f"metadata={json.dumps(given)}")
    made = fork_run(store, "r", 2, Overrides(set_paths=(change,), tool_results={1: given}), model)
    assert json.loads(model.asked[0]["messages"][-1]["content"]) == json.loads(text)
    request: Any = load_steps(store.recording(made.id))[2].input
    assert request["metadata"] == json.loads(text)
    store.close()


ODD: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    {"deep": [{"x": math.nan}], "y": -math.inf},
    -0.0,
    2**200,
    "line\u0000end",
    "\ud800",
    {"\ud800": 1},
    {1: "a", "1": "b"},
    b"\x00\xff",
]


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_a_result_that_is_no_json_is_tagged_and_comes_back(
    value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    @loupe.tool(effect="read", name="odd")
    def odd(given: Any) -> Any:
        return value

    got: list[Any] = []

    def program() -> None:
        got.append(odd(given=value))

    db = tmp_path / "x.db"
    store = open_url(db)
    recording = record_in(store, program)
    assert replay(recording, program).verdict == "pass"
    assert repr(got[0]) == repr(got[1])
    for event in recording.events:
        strict(json.dumps(event.envelope(event.run_id, event.sequence)))
        for body in recording.get(event.digests()).values():
            if body[:1] in b"{[":
                strict(body)
    assert main(["show", recording.run_id, "--json", "--db", str(db)]) == 0
    strict(capsys.readouterr().out)
    export_run(store, recording.run_id, tmp_path / "out.jsonl")
    for line in (tmp_path / "out.jsonl").read_bytes().splitlines():
        strict(line)
    store.close()
