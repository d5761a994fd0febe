"""Case 23, more of the kind: inserted, removed, moved and changed steps anywhere, and what is no difference at all."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.cli import main
from agentloupe.engine.compare import Comparison
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs.comparing import compare, detail
from agentloupe.verbs.exchange import import_file


def store_of(folder: Path, *traces: dict[str, Any], db: str = "memory:") -> Store:
    store = open_url(db)
    for trace in traces:
        path = folder / f"{trace['run']['id']}.json"
        path.write_text(json.dumps(trace), "utf-8")
        import_file(store, path)
    return store


def compared(store: Store, left: str, right: str) -> tuple[Comparison, dict[str, Any]]:
    found = compare(left, right, store=store)
    assert isinstance(found, Comparison)
    return found, json.loads(json.dumps(found.as_json()["counts"]))


def named(trace: dict[str, Any], run_id: str) -> dict[str, Any]:
    return {**copy.deepcopy(trace), "run": {"id": run_id}}


@pytest.fixture
def a(shared_case: Callable[[str], Path]) -> dict[str, Any]:
    return json.loads((shared_case("23") / "a.json").read_text("utf-8"))


def numbered(steps: list[Any]) -> list[Any]:
    return [{**step, "idx": n} for n, step in enumerate(steps)]


def extra(name: str) -> dict[str, Any]:
    return {"kind": "tool", "name": name, "input": {}, "output": {"id": 9}, "error": None,
            "started_at": "2026-04-01T10:00:09Z", "ended_at": "2026-04-01T10:00:10Z"}  # fmt: skip


def test_other_times_and_other_ids_are_no_difference(a: dict[str, Any], tmp_path: Path) -> None:
    """The same conversation on another day: every id that providers give and every time is another one."""

    def told(run_id: str, day: int, call: str) -> dict[str, Any]:
        steps = copy.deepcopy(a["steps"])
        calls = [{"id": f"{call}1", "type": "function", "function": {"name": "search", "arguments": '{"q":"a"}'}}]
        steps[0]["output"] = {"role": "assistant", "content": None, "tool_calls": calls}
        steps[3]["input"]["messages"] = [
            {"role": "user", "content": "q"},
            steps[0]["output"],
            {"role": "tool", "tool_call_id": f"{call}1", "content": "3"},
        ]
        for n, step in enumerate(steps):
            step["started_at"], step["ended_at"] = f"2026-04-{day:02}T10:00:0{n}Z", f"2026-04-{day:02}T11:{n}0:09Z"
        return {"run": {"id": run_id}, "steps": steps}

    store = store_of(tmp_path, told("one", 1, "call_"), told("other", 9, "toolu_x"))
    found, counts = compared(store, "one", "other")
    assert (counts["added"], counts["removed"], counts["changed"], counts["unchanged"]) == (0, 0, 0, 4)
    assert found.first is None


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("many", [1, 3])
def test_steps_inserted_anywhere_are_that_many_differences(
    a: dict[str, Any], tmp_path: Path, at: int, many: int
) -> None:
    b = named(a, "b")
    new = [extra(f"whoami{n}") for n in range(many)]
    b["steps"] = numbered([*b["steps"][:at], *new, *b["steps"][at:]])
    store = store_of(tmp_path, a, b)
    found, counts = compared(store, "a", "b")
    assert (counts["added"], counts["removed"], counts["changed"], counts["unchanged"]) == (many, 0, 0, 4)
    assert [row.right.name for row in found.rows if row.status == "only_right" and row.right] == [
        s["name"] for s in new
    ]
    assert found.first_at() == (at, at)
    back, counts = compared(store, "b", "a")
    assert (counts["added"], counts["removed"], counts["changed"], counts["unchanged"]) == (0, many, 0, 4)
    assert back.first_at() == (at, at)


@pytest.mark.parametrize("at", range(4))
def test_a_changed_output_is_one_changed_step_and_the_rest_is_aligned(
    a: dict[str, Any], tmp_path: Path, at: int
) -> None:
    b = named(a, "b")
    b["steps"][at]["output"] = {"content": "another"} if b["steps"][at]["kind"] == "llm" else {"hits": 99}
    _, counts = compared(store_of(tmp_path, a, b), "a", "b")
    assert (counts["added"], counts["removed"], counts["changed"], counts["unchanged"]) == (0, 0, 1, 3)


SPELLINGS: list[tuple[str, str]] = [
    ('{"n":42}', '{"n":42.0}'),
    ('{"n":100}', '{"n":1e2}'),
    ('{"n":1e21}', '{"n":1000000000000000000000}'),
    ('{"a":1,"b":2}', '{"b":2,"a":1.0}'),
    ('{"deep":[{"x":[1,2,{"y":3}]}]}', '{"deep":[{"x":[1,2.0,{"y":3}]}]}'),
]


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
@pytest.mark.parametrize("at", [0, 1])
def test_other_spellings_of_a_value_are_said_and_are_no_change(
    a: dict[str, Any], tmp_path: Path, one: str, other: str, at: int
) -> None:
    """The stored texts differ, so do their digests; the page and the JSON say that the values do not."""
    text = json.dumps({**a, "run": {"id": "x"}})
    marked = json.dumps(a["steps"][at]["output"])
    assert text.count(marked) == 1
    inner = ('{"content":"plan","meta":%s}', "%s")[at]
    for run_id, value in (("one", one), ("other", other)):
        path = tmp_path / f"{run_id}.json"
        path.write_text(text.replace(marked, inner % value).replace('"x"', f'"{run_id}"', 1), "utf-8")
    store = open_url("memory:")
    for run_id in ("one", "other"):
        import_file(store, tmp_path / f"{run_id}.json")
    found, counts = compared(store, "one", "other")
    assert (counts["changed"], counts["unchanged"]) == (0, 4)
    assert not found.identical
    (noted,) = [row for row in found.rows if row.notes]
    assert "equal values, different spelling" in noted.notes[0]
    assert noted.left is not None
    assert noted.right is not None
    assert noted.left.output_digest != noted.right.output_digest
    assert detail(found, noted, store=store)["output"] == []


@pytest.mark.parametrize(
    ("one", "other"), [({"n": 1}, {"n": True}), ({"n": 0}, {"n": False}), ({"n": 1}, {"n": "1"}), ({"n": None}, {}),
                       ({"n": 2**53 + 1}, {"n": 2**53}), ({"n": "\u00e9"}, {"n": "e\u0301"})]
)  # fmt: skip
def test_what_only_looks_equal_is_a_change(a: dict[str, Any], tmp_path: Path, one: Any, other: Any) -> None:
    left, right = named(a, "left"), named(a, "right")
    left["steps"][1]["output"], right["steps"][1]["output"] = one, other
    _, counts = compared(store_of(tmp_path, left, right), "left", "right")
    assert (counts["changed"], counts["unchanged"]) == (1, 3)


@given(st.permutations(range(5)), st.integers(0, 5))
def test_a_move_is_never_two_changes(order: list[int], keep: int) -> None:
    """Tools in another order: each is there once, unchanged or moved; none is told as changed into another."""
    import tempfile

    calls = [{**extra(f"t{n % 3}"), "input": {"q": n}} for n in range(5)]
    one = {"run": {"id": "one"}, "steps": numbered(calls)}
    moved = [*order[:keep], *[n for n in range(5) if n not in order[:keep]]]
    other = {"run": {"id": "other"}, "steps": numbered([calls[n] for n in moved])}
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(Path(folder), one, other)
        found, counts = compared(store, "one", "other")
        _, back = compared(store, "other", "one")
    assert counts["changed"] == 0
    assert counts["added"] == counts["removed"] == 5 - counts["unchanged"]
    assert (back["added"], back["removed"], back["unchanged"]) == (
        counts["removed"],
        counts["added"],
        counts["unchanged"],
    )
    assert counts["unchanged"] == _longest_rising(moved), "as few moves as possible"
    assert found.identical is (moved == list(range(5)))


def _longest_rising(order: list[int]) -> int:
    best = [1] * len(order)
    for i, one in enumerate(order):
        best[i] = 1 + max((best[j] for j in range(i) if order[j] < one), default=0)
    return max(best)


def test_the_command_says_the_same(
    shared_case: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = tmp_path / "runs.db"
    store = open_url(db)
    for name in ("a", "b_one_step_more", "c_number_spelling", "d_two_swapped"):
        import_file(store, shared_case("23") / f"{name}.json")
    wanted = {
        name: compared(store, "a", name) for name in ("a", "b_one_step_more", "c_number_spelling", "d_two_swapped")
    }
    store.close()
    for name, (found, counts) in wanted.items():
        capsys.readouterr()
        assert main(["compare", "a", name, "--json", "--db", str(db)]) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["identical"], said["counts"]) == (found.identical, counts)
        assert main(["compare", "a", name, "--db", str(db)]) == 0
        text = capsys.readouterr().out
        assert ("whoami" in text) is (name == "b_one_step_more")
        assert ("different spelling" in text) is (name == "c_number_spelling")
        differs = main(["compare", "a", name, "--fail-on", "diff", "--db", str(db)])
        assert differs == (0 if name in ("a", "c_number_spelling") else 1), name
        capsys.readouterr()
