"""Case 22, from recorded runs to what is shown: what a run, its replay and its forks cost, with the case's prices."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.cli import main
from agentloupe.engine.costs import PriceTable
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs.forking import fork_run
from agentloupe.verbs.replaying import replay
from agentloupe.words.canonical import Json
from tests.fork_support import Script
from tests.made import Maker


@pytest.fixture
def case(shared_case: Callable[[str], Path], workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shared_case("22")
    monkeypatch.setenv("LOUPE_PRICES", str(folder / "prices.json"))
    return folder


@pytest.fixture
def rows(case: Path) -> list[dict[str, Any]]:
    return json.loads((case / "rows.json").read_text("utf-8"))


def run_of(rows: list[dict[str, Any]], store: Store, run_id: str = "r") -> None:
    """A recorded run with a model call for each row that was really made."""
    from agentloupe.engine.project import Projector

    made = Maker(run_id)
    for row in rows:
        answer: Json = {"choices": [{"index": 0, "message": {"role": "assistant", "content": row["name"]}}]}
        facts: dict[str, Any] = {"model": row["model"]}
        if row["usage"] is not None:
            facts["usage"] = row["usage"]
        made.call("llm", f"chat {row['model']}", {"model": row["model"], "messages": []}, answer, **facts)
    recording = made.finish()
    store.insert(run_id, recording.events, recording.get, Projector)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert main([*words, "--db", "runs.db"]) == 0
    text = capsys.readouterr().out
    return json.loads(text) if "--json" in words else text


def really_made(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if not (row["usage"] and "_source" in row["usage"])]


def test_every_row_and_their_sum_as_the_command_shows_them(
    case: Path, rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    expected = json.loads((case / "expected.json").read_text("utf-8"))
    store = open_url("runs.db")
    made = really_made(rows)
    run_of(made, store)
    store.close()
    steps = [step for step in shown(capsys, "show", "r", "--json")["steps"] if step["kind"] == "llm"]
    assert [step["cost"] for step in steps] == [row["expected_cost"] for row in made]
    (run,) = shown(capsys, "list", "--json")
    assert run["cost"] == expected["known_total"]
    assert run["cost_complete"] is not expected["run_total_is_marked_incomplete"]
    for words in (["list", "--cost"], ["show", "r"]):
        text = shown(capsys, *words)
        assert expected["known_total"].rstrip("0") in text, text
        (line,) = [line for line in text.splitlines() if expected["known_total"] in line]
        assert any(word in line for word in ("+", "unknown", "incomplete", "at least")), line


@pytest.mark.parametrize("name", ["unknown model", "no usage sent", "look-alike that is another model"])
def test_a_run_of_unknown_cost_is_neither_free_nor_nothing(
    rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    store = open_url("runs.db")
    run_of([row for row in rows if row["name"] == name], store)
    run_of([row for row in rows if row["name"] == "free by price list"], store, "free")
    store.close()
    listed = {run["id"]: run for run in shown(capsys, "list", "--json")}
    assert (listed["r"]["cost"], listed["free"]["cost"]) == (None, "0")
    assert (listed["r"]["cost_complete"], listed["free"]["cost_complete"]) == (False, True)
    text = shown(capsys, "show", "r")
    assert "cost unknown" in text, text
    assert "$0" not in text
    assert "cost $0.00" in shown(capsys, "show", "free")


def test_a_fork_pays_for_its_own_part_only_and_a_replay_pays_nothing(
    rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """What the kept prefix cost when it was recorded is in the whole path's cost, and not in what is newly spent."""
    from agentloupe.verbs.looping import run_loop

    store = open_url("runs.db")
    script = Script(("f", {}), ("f", {}), "done", tokens=(1000, 100))
    run_loop(script, {"f": lambda: "x"}, model="small-chat-1", question="q", store=store, run_id="r")
    before = shown(capsys, "list", "--json")
    assert before[0]["cost"] == "0.0084"
    made = fork_run(store, "r", 4, None, Script("other end", tokens=(2000, 0)))
    assert replay("r", store=store).passed
    assert replay(made.id, store=store).passed
    store.close()
    listed = {run["id"]: run for run in shown(capsys, "list", "--json")}
    assert set(listed) == {"r", made.id}, "a replay is no run and costs nothing"
    assert listed["r"] == before[0] | {key: listed["r"][key] for key in listed["r"] if key not in before[0]}
    assert (listed[made.id]["cost"], listed[made.id]["new_cost"]) == ("0.0096", "0.004")
    steps = [s for s in shown(capsys, "show", made.id, "--json")["steps"] if s["kind"] == "llm"]
    assert [step["source"] for step in steps] == ["recorded", "recorded", "live"]
    assert "newly spent" in shown(capsys, "show", made.id)


PRICES = {
    "small-chat-1": (Decimal(2), Decimal("0.5"), Decimal(8)),
    "acme/think-1": (Decimal(1), Decimal(1), Decimal(4)),
    "free-1": (Decimal(0), Decimal(0), Decimal(0)),
}


@given(
    st.sampled_from(sorted(PRICES)),
    st.integers(0, 10**7),
    st.integers(0, 10**7),
    st.integers(0, 10**7),
    st.integers(0, 10**6),
    st.sampled_from(["inside", "beside"]),
    st.sampled_from(["inside", "beside"]),
    st.sampled_from(["{}", "router/{}", "a/b/{}", "{}-2026-02-01", "x/{}@20260201"]),
)
def test_any_usage_in_any_spelling_is_counted_once_and_exactly(
    model: str, plain: int, cached: int, visible: int, reasoning: int, cache_is: str, reasoning_is: str, spelled: str
) -> None:
    """Tokens are made first, then written down as the providers do; the cost is that of the tokens."""
    table = PriceTable({name: _prices(*prices) for name, prices in PRICES.items()})
    usage: dict[str, Json] = {}
    if cache_is == "inside":
        usage |= {"prompt_tokens": plain + cached, "prompt_tokens_details": {"cached_tokens": cached}}
        usage["completion_tokens"] = visible + (reasoning if reasoning_is == "inside" else 0)
        usage["total_tokens"] = plain + cached + visible + reasoning
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        output = visible + reasoning
    else:
        usage |= {"input_tokens": plain, "cache_read_input_tokens": cached, "output_tokens": visible}
        output = visible
    price_in, price_cached, price_out = PRICES[model]
    wanted = (price_in * plain + price_cached * cached + price_out * output) / 1_000_000
    assert table.cost(spelled.format(model), usage) == wanted
    for other in (f"{model}-pro", f"{model}x", f"x{model}", f"{model}-mini-2026-02-01", model[:-1]):
        assert table.cost(other, usage) is None


def _prices(given: Decimal, cached: Decimal, output: Decimal) -> Any:
    from agentloupe.engine.costs import Prices

    million = Decimal(1_000_000)
    return Prices(given / million, output / million, cached / million)
