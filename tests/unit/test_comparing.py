"""The verb `compare`: which rows differ, where roads part, and down to the words what is different."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine.compare import Comparison, Side, Summary, compare_runs, summarise
from agentloupe.engine.costs import PriceTable
from agentloupe.engine.loop import from_llm_call
from agentloupe.engine.overrides import Overrides
from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs.comparing import compare, detail, message_changes, side_of_recording, tool_changes, word_changes
from agentloupe.verbs.deleting import delete_run
from agentloupe.verbs.exchange import export_run, import_file
from agentloupe.verbs.forking import fork, fork_run
from agentloupe.words.canonical import Json, key_of
from agentloupe.words.errors import Corrupt, NotFound, RunNotFound, UsageError
from agentloupe.words.run import Run
from agentloupe.words.step import Step
from tests.fork_support import Script, weather_run
from tests.made import Maker, weather_like
from tests.store.test_files import edit
from tests.support import ROOT

BOTH = [("calculate", {"expression": "17.7 - 11.9"}), ("calculate", {"expression": "(17.7 - 11.9) * 9 / 5"})]


@pytest.fixture
def store() -> Store:
    made = open_url("memory:")
    weather_run(made)
    return made


def two(*runs: Any, store: Store | str | Path | None = None) -> Comparison:
    found = compare(*runs, store=store)
    assert isinstance(found, Comparison)
    return found


# --- parent and fork --------------------------------------------------------------------------------------------------


def test_parent_against_fork(store: Store) -> None:
    fork = fork_run(store, "weather-1", 3, None, Script(BOTH, "5.8 C; I could not compute Fahrenheit."))
    found = two("weather-1", fork.id, store=store)
    assert [row.status for row in found.rows] == [
        "same",
        "same",
        "same",
        "output_differs",
        "same",
        "only_right",
        "input_differs",
    ]
    assert found.rows[5].right is not None
    assert found.rows[5].right.source == "miss"
    assert found.deltas["misses"].change == 1
    assert found.deltas["errors"].change == 1  # a miss counts as an errored step
    assert found.deltas["steps"].change == 1
    assert found.first_at() == (3, 3)
    assert found.answers[1] == "5.8 C; I could not compute Fahrenheit."


def test_a_miss_beside_a_result_is_an_error_on_one_side() -> None:
    left, right = Maker("l"), Maker("r")
    for made, ok in ((left, True), (right, False)):
        made.model([{"role": "user", "content": "q"}], {"role": "assistant", "content": "go"})
        made.call("tool", "t", {"a": 1}, {"x": 1} if ok else "cassette miss", ok=ok)
    found = compare_runs(side_of_recording(left.recording()), side_of_recording(right.recording()))
    assert [row.status for row in found.rows] == ["same", "error_one_side"]


def test_a_changed_prompt_makes_one_step_differ_not_every_step_after_it(store: Store) -> None:
    calls = [("get_weather", {"city": "Beijing"}), ("get_weather", {"city": "Shanghai"})]
    recorded: Any = compare("weather-1", "weather-1", store=store)
    answer = recorded.answers[0]
    script = Script(calls, ("calculate", {"expression": "17.7 - 11.9"}), answer)
    fork = fork_run(store, "weather-1", 0, Overrides(system_prompt="Other words. " + "long " * 200), script)
    found = two("weather-1", fork.id, store=store)
    assert found.rows[0].status == "input_differs"
    assert [row.status for row in found.rows[1:]] == ["same"] * (len(found.rows) - 1)
    notes = [row.notes for row in found.rows if row.left and row.left.kind == "llm"]
    assert notes[1:] == [("input differs only in what came before",)] * 2
    assert not found.identical


def test_a_span_differs_by_what_is_in_it() -> None:
    left, right = Maker("l", root=True), Maker("r", root=True)
    for made, answer in ((left, "a"), (right, "b")):
        made.model([{"role": "user", "content": "q"}], {"role": "assistant", "content": answer})
    sides = [side_of_recording(made.finish(answer)) for made, answer in ((left, "a"), (right, "b"))]
    found = compare_runs(*sides)
    assert [(row.status, row.notes) for row in found.rows] == [("same", ("result differs",)), ("output_differs", ())]
    assert found.first == 1
    assert found.answers == ("a", "b")


def test_a_file_compares_like_a_run_of_the_store(store: Store, tmp_path: Path) -> None:
    export_run(store, "weather-1", tmp_path / "w.loupe")
    assert two("weather-1", str(tmp_path / "w.loupe"), store=store).identical
    assert two(tmp_path / "w.loupe", tmp_path / "w.loupe").identical
    recording = store.recording("weather-1")
    assert two(recording, "weather-1", store=store).identical


def test_what_cannot_be_compared(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        compare("weather-1", store=store)
    with pytest.raises(RunNotFound):
        compare("weather-1", "nobody", store=store)
    with pytest.raises(NotFound):
        compare("weather-1", tmp_path / "none.loupe", store=store)


def test_a_store_may_be_named_by_its_file(tmp_path: Path) -> None:
    db = tmp_path / "l.db"
    made = open_url(str(db))
    weather_run(made)
    made.close()
    forked = fork("weather-1", from_step=3, store=str(db), provider=from_llm_call(Script("made up")))
    assert two("weather-1", forked.candidates[0].id, store=str(db)).first is not None
    assert two("weather-1", forked.candidates[0].id, store=db).first is not None


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (
            "UPDATE events SET envelope = changed(envelope, 'get_weather', 'get_weithor') WHERE key = (1 << 32) + 5",
            "hash",
        ),
        ("DELETE FROM events WHERE key = (1 << 32) + 5", None),
        ("UPDATE runs SET last_sequence = last_sequence + 1", "end"),
    ],
)
def test_a_run_that_is_not_whole_is_not_compared(tmp_path: Path, statement: str, reason: str | None) -> None:
    db = tmp_path / "l.db"
    made = open_url(str(db))
    weather_run(made)
    made.close()
    assert two("weather-1", "weather-1", store=db).identical
    edit(db, statement)
    with pytest.raises(Corrupt) as damaged:
        compare("weather-1", "weather-1", store=db)
    assert damaged.value.exit_code == 2
    assert reason is None or damaged.value.reason == reason


def test_a_file_that_is_not_whole_is_not_compared(store: Store) -> None:
    recording = store.recording("weather-1")
    events = list(recording.events)
    events[3] = replace(events[3], name="another")
    with pytest.raises(Corrupt, match="not whole"):
        compare("weather-1", replace(recording, events=tuple(events)), store=store)


def test_a_deleted_run_costs_nobody_knows_what(store: Store) -> None:
    fork_run(store, "weather-1", 3, None, Script("made up"))
    delete_run(store, "weather-1")
    found = two("weather-1", "last", store=store)
    assert (found.left.cost, found.deltas["cost"].left, found.deltas["model_calls"].left) == (None, None, None)
    assert found.deltas["input_tokens"].left is None


def test_sums_that_lack_a_part_say_so_and_make_no_difference(store: Store) -> None:
    side = side_of_recording(store.recording("weather-1"), PriceTable.load())
    lacks = replace(side, run=replace(side.run, usage_complete=False, total_input_tokens=5))
    found = compare_runs(lacks, side)
    assert found.deltas["input_tokens"].partial == (True, False)
    assert found.deltas["input_tokens"].change is None
    assert found.as_json()["left"]["usage_complete"] is False  # type: ignore[index,call-overload]  # JSON


def test_costs_are_those_of_the_price_table(store: Store, tmp_path: Path) -> None:
    run = {"run": {"id": "paid", "model": "gpt-4o"}}
    step = {
        "idx": 0,
        "kind": "llm",
        "name": "chat gpt-4o",
        "model": "gpt-4o",
        "input": {"model": "gpt-4o", "messages": []},
        "output": {"content": "x"},
        "input_tokens": 1000,
        "output_tokens": 10,
        "started_at": "2026-04-01T00:00:00Z",
        "ended_at": "2026-04-01T00:00:01Z",
    }
    (tmp_path / "paid.jsonl").write_text(json.dumps(run) + "\n" + json.dumps({"step": step}) + "\n")
    import_file(store, tmp_path / "paid.jsonl")
    found = compare("paid", "weather-1", store=store, prices=PriceTable.load())
    assert isinstance(found, Comparison)
    assert found.left.cost is not None
    assert found.left.cost > 0
    said: Any = found.as_json()
    assert said["deltas"]["cost"]["left"] == str(found.left.cost)


# --- several ----------------------------------------------------------------------------------------------------------


def test_several_runs_make_a_table_and_a_tree(store: Store) -> None:
    forks = [
        fork_run(store, "weather-1", 3, None, Script(("calculate", {"expression": "17.7 - 11.9"}), "5.8 C.")),
        fork_run(store, "weather-1", 3, None, Script(BOTH, " 5.8  c. ")),
        fork_run(store, "weather-1", 3, None, Script(BOTH, "something else")),
    ]
    found = compare(*(fork.id for fork in forks), store=store)
    assert isinstance(found, Summary)
    assert [row.group for row in found.rows] == [0, 0, 1]
    assert found.agreement == pytest.approx(2 / 3)
    (root,) = found.paths
    assert [step.idx for step in root.stretch] == [0, 1, 2, 3, 4]
    assert sorted(len(child.runs) for child in root.children) == [1, 2]
    said: Any = found.as_json()
    assert json.loads(json.dumps(said))["runs"][1]["counts"]["miss"] == 1
    assert [len(path["children"]) for path in said["paths"]] == [2]


# --- swapping ---------------------------------------------------------------------------------------------------------

kinds = st.sampled_from([("llm", "chat m"), ("tool", "a"), ("tool", "b"), ("other", "x")])
outcome = st.sampled_from(["ok", "ok", "error"])
walk = st.lists(st.tuples(kinds, st.integers(0, 2), st.integers(0, 2), outcome), max_size=8)


def side(run_id: str, steps: list[Any]) -> Side:
    made: list[Step] = []
    for idx, ((kind, name), given_in, out, status) in enumerate(steps):
        output: Json = {"content": out} if kind == "llm" else float(out) if idx % 2 else out
        made.append(
            Step(
                run_id=run_id,
                idx=idx,
                parent_idx=None,
                kind=kind,
                name=name,
                started_at="",
                input_key=key_of(kind, name, given_in),
                output_digest=f"{kind}{name}{output!r}{status}",
                output=None if status == "error" else output,
                error="Boom" if status == "error" else None,
                error_class="Boom" if status == "error" else None,
                status=status,
                loaded=True,
            )
        )
    return Side(Run(id=run_id, name=run_id, agent="a", status="ok", started_at="", step_count=len(made)), made)


@given(walk, walk)
def test_swapping_swaps_the_sides_and_nothing_else(one: list[Any], other: list[Any]) -> None:
    there = compare_runs(side("l", one), side("r", other))
    back = compare_runs(side("r", other), side("l", one))
    swapped = {"only_left": "only_right", "only_right": "only_left"}

    def told(comparison: Comparison, flip: bool) -> set[Any]:
        rows: set[Any] = set()
        for row in comparison.rows:
            ends = (row.left and row.left.idx, row.right and row.right.idx)
            status = swapped.get(row.status, row.status) if flip else row.status
            rows.add((status, ends[::-1] if flip else ends, row.notes))
        return rows

    assert told(there, False) == told(back, True)
    assert there.identical == back.identical
    assert (there.first is None) == (back.first is None)
    if there.first is not None:
        assert there.first_at() == (back.first_at() or ())[::-1]


@given(walk)
def test_a_run_is_identical_to_itself(steps: list[Any]) -> None:
    found = compare_runs(side("l", steps), side("l", steps))
    assert found.identical
    assert found.count("same") == len(steps)


# --- down to the words ------------------------------------------------------------------------------------------------


def test_detail_of_a_model_step(store: Store) -> None:
    fork = fork_run(store, "weather-1", 3, Overrides(system_prompt="No arithmetic at all."), Script("5.8 C"))
    found = two("weather-1", fork.id, store=store)
    row = next(row for row in found.rows if row.status == "input_differs")
    shown: Any = detail(found, row, store=store)
    changed = [message for message in shown["messages"] if message["op"] != "same"]
    assert [(message["op"], message["role"], message["left"], message["right"]) for message in changed] == [
        ("changed", "system", 0, 0)
    ]
    assert "".join(text for op, text in changed[0]["words"] if op != "-") == "No arithmetic at all."
    assert shown["tools"] == []
    assert shown["answer"][0]["op"] == "changed"
    assert json.dumps(shown)


def test_detail_of_a_step_without_partner(store: Store) -> None:
    fork = fork_run(store, "weather-1", 3, None, Script(BOTH, "x"))
    found = two("weather-1", fork.id, store=store)
    row = next(row for row in found.rows if row.status == "only_right")
    shown: Any = detail(found, row, store=store)
    assert shown["left"] is None
    assert "cassette miss" in shown["right"]["error"]
    assert "input" not in shown


def test_tools_are_compared_by_name() -> None:
    def tool(name: str, **more: Any) -> Any:
        return {"type": "function", "function": {"name": name, **more}}

    left: Any = [tool("a"), tool("b", description="old"), tool("c")]
    right: Any = [tool("b", description="new"), tool("c"), tool("d")]
    found: Any = tool_changes(left, right)
    assert [(change["op"], change["name"]) for change in found] == [("removed", "a"), ("changed", "b"), ("added", "d")]
    assert found[1]["changes"][0]["path"] == "function.description"
    assert tool_changes(None, "x") == []


@given(st.text("ab \n.", max_size=30), st.text("ab \n.", max_size=30))
def test_words_put_together_are_the_two_texts(left: str, right: str) -> None:
    pieces: Any = word_changes(left, right)
    assert "".join(text for op, text in pieces if op in "=-") == left
    assert "".join(text for op, text in pieces if op in "=+") == right


def test_long_texts_are_compared_by_lines() -> None:
    left = "\n".join(f"line {n} of a long text" for n in range(2000))
    pieces: Any = word_changes(left, left.replace("line 1000 ", "row 1000 "))
    assert [(op, text) for op, text in pieces if op != "="] == [
        ("-", "line 1000 of a long text\n"),
        ("+", "row 1000 of a long text\n"),
    ]


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), max_size=6))
def test_every_message_of_both_sides_is_told_once(left: list[int], right: list[int]) -> None:
    one: list[Json] = [{"role": "user", "content": str(n)} for n in left]
    other: list[Json] = [{"role": "user", "content": str(n)} for n in right]
    found: Any = message_changes(one, other)
    assert [m["left"] for m in found if m["left"] is not None] == list(range(len(left)))
    assert [m["right"] for m in found if m["right"] is not None] == list(range(len(right)))


# --- long runs --------------------------------------------------------------------------------------------------------


def test_long_runs_that_share_their_beginning_are_read_at_their_ends_only() -> None:
    recordings = []
    for answer in ("a", "b"):
        made = Maker(f"run-{answer}")
        history: list[Json] = [{"role": "user", "content": "x" * 600}]
        for n in range(150):
            last = answer if n == 149 else str(n)
            made.model(history, {"role": "assistant", "content": last})
            made.call("tool", "t", {"n": n}, n)
            history = [
                *history,
                {"role": "assistant", "content": str(n)},
                {"role": "user", "content": f"{n} " + "y" * 50},
            ]
        recordings.append(made.finish())
    asked: list[int] = []

    def counting(get: Any) -> Any:
        def wrapped(digests: Any) -> Any:
            asked.append(len(digests))
            return get(digests)

        return wrapped

    sides = [side_of_recording(replace(one, get=counting(one.get))) for one in recordings]
    found = compare_runs(*sides)
    assert [row.status for row in found.rows].count("same") == 299
    assert sum(asked) < 20


def test_an_inserted_recording_is_compared_from_its_projection() -> None:
    made = open_url("memory:")
    sample = weather_like("sample")
    made.insert("sample", sample.events, sample.get, Projector)
    found = two("sample", sample, store=made)
    assert found.identical
    assert found.answers == ("11.9 °C", "11.9 °C")


# --- the tree of paths, on facts that the page is tested with too -------------------------------------------------------

PATHS: list[dict[str, Any]] = json.loads((ROOT / "tests" / "vectors" / "paths.json").read_text("utf-8"))


@pytest.mark.parametrize("vector", PATHS, ids=[vector["why"] for vector in PATHS])
def test_the_tree_of_paths(vector: dict[str, Any]) -> None:
    sides = [
        side(run, [((kind, name), given_in, 0, status) for kind, name, given_in, status in steps])
        for run, steps in vector["runs"].items()
    ]
    told: Any = summarise(sides).as_json()
    assert told["paths"] == vector["paths"]
