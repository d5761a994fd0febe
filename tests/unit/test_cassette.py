"""Recorded results by key: order, repeats, errors, ancestors, threads."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine.cassette import Cassette, Play, Take, miss_text
from agentloupe.words.canonical import key_of
from agentloupe.words.step import Step


def tool_step(idx: int, name: str, args: Any, output: Any = None, **more: Any) -> Step:
    return Step(
        run_id="r",
        idx=idx,
        parent_idx=None,
        kind=more.pop("kind", "tool"),
        name=name,
        started_at="2026-01-01T00:00:00Z",
        ended_at="2026-01-01T00:00:01Z",
        input=args,
        output=output,
        loaded=True,
        status="error" if more.get("error") else "ok",
        **more,
    )


def take(name: str, args: Any, result: Any, run: str = "r", origin: str | None = None, seq: int = 1) -> Take:
    return Take(
        kind="tool",
        name=name,
        key=key_of("tool", name, args),
        run_id=run,
        idx=seq,
        origin=origin or f"{run}/{seq}",
        seq=seq,
        write=False,
        failed=False,
        load=lambda: result,
        arguments=lambda: args,
    )


def test_results_come_in_order_and_the_last_one_repeats():
    cassette = Cassette.from_steps([tool_step(0, "f", {"x": 1}, "a"), tool_step(1, "f", {"x": 1}, "b")])
    assert [cassette.play("f", {"x": 1}) for _ in range(4)] == [Play(True, o, None) for o in "abbb"]


def test_repeats_are_marked():
    cassette = Cassette([take("f", {}, "a")])
    key = key_of("tool", "f", {})
    first, second = cassette.take("tool", "f", key), cassette.take("tool", "f", key)
    assert first is not None
    assert second is not None
    assert (first.reused, second.reused) == (False, True)


@pytest.mark.parametrize("args", [{"b": [1.0], "a": None}, '{"a":null,"b":[1]}', ' {"b": [1], "a": null} '])
def test_arguments_as_text_and_as_an_object_are_one_key(args: Any):
    cassette = Cassette.from_steps([tool_step(0, "f", {"a": None, "b": [1]}, "yes")])
    hit, output, error = cassette.play("f", args)
    assert (hit, output, error) == (True, "yes", None)


@pytest.mark.parametrize(
    ("name", "args"),
    [("f", {"x": 2}), ("g", {"x": 1}), ("f", {}), ("f", {"x": "1"}), ("f", {"x": True}), ("f", "{x:1}")],
)
def test_anything_else_is_a_miss(name: str, args: Any):
    cassette = Cassette.from_steps([tool_step(0, "f", {"x": 1}, "a")])
    assert cassette.play(name, args) == (False, None, None)


def test_an_error_is_a_result_and_null_is_one_too():
    cassette = Cassette.from_steps(
        [
            tool_step(0, "f", {}, error="HTTP 429: retry later"),
            tool_step(1, "f", {}, None),
            tool_step(2, "g", {}, False),
        ]
    )
    assert cassette.play("f", {}) == (True, None, "HTTP 429: retry later")
    assert cassette.play("f", {}) == (True, None, None)
    assert cassette.play("g", {}) == (True, False, None)


@pytest.mark.parametrize("source", ["miss", "stub", "simulated"])
def test_answers_that_nobody_recorded_do_not_count(source: Any):
    steps = [tool_step(0, "f", {}, "made up", source=source), tool_step(1, "f", {}, "real", source="live")]
    assert Cassette.from_steps(steps).play("f", {}).output == "real"
    copied = [tool_step(0, "f", {}, "made up", source="recorded", attrs={"copied_source": source})]
    assert not Cassette.from_steps(copied).play("f", {}).hit


@pytest.mark.parametrize("kind", ["llm", "agent", "clock", "random", "id", "env", "state", "check"])
def test_only_tools_answer_tools(kind: Any):
    assert not Cassette.from_steps([tool_step(0, "f", {}, "a", kind=kind)]).play("f", {}).hit


def test_calls_without_an_end_are_left_out():
    open_step = Step(run_id="r", idx=0, parent_idx=None, kind="tool", name="f", started_at="", input={}, loaded=True)
    assert not Cassette.from_steps([open_step]).play("f", {}).hit


def test_malformed_text_hits_by_its_text():
    cassette = Cassette.from_steps([tool_step(0, "f", '{"a":1,"a":2}', "lenient")])
    assert cassette.play("f", '{"a":1,"a":2}').output == "lenient"
    assert not cassette.play("f", '{"a":2}').hit


def test_the_kept_prefix_counts_as_handed_out():
    takes = [take("f", {}, "first", seq=5), take("f", {}, "second", seq=20)]
    cassette = Cassette(takes, used_before=10)
    assert cassette.play("f", {}).output == "second"
    used_up = Cassette(takes, used_before=99)
    again = used_up.take("tool", "f", key_of("tool", "f", {}))
    assert again is not None
    assert (again.output, again.reused) == ("second", True)


def test_ancestors_come_after_the_run_itself_nearest_first():
    own = [take("f", {}, "own", "c")]
    cassette = Cassette(
        own, [[take("f", {}, "parent", "b")], [take("f", {}, "grand", "a"), take("g", {}, "g", "a", seq=2)]]
    )
    assert [cassette.play("f", {}).output for _ in range(4)] == ["own", "parent", "grand", "grand"]
    assert cassette.play("g", {}).output == "g"


def test_a_copy_and_its_original_are_one_result():
    parent = [take("f", {}, "1", "p", seq=1), take("f", {}, "2", "p", seq=2), take("f", {}, "3", "p", seq=3)]
    child = [take("f", {}, "1", "c", origin="p/1", seq=1), take("f", {}, "2", "c", origin="p/2", seq=2)]
    cassette = Cassette(child, [parent], used_before=2)
    assert [cassette.play("f", {}).output for _ in range(3)] == ["2", "3", "3"]


def test_an_answer_that_a_fork_reused_does_not_come_twice_from_it():
    child = [take("f", {}, "1", "c", origin="p/1", seq=1), take("f", {}, "1", "c", origin="p/1", seq=2)]
    cassette = Cassette(child, [[take("f", {}, "1", "p", seq=1), take("f", {}, "2", "p", seq=2)]])
    assert [cassette.play("f", {}).output for _ in range(2)] == ["1", "2"]


def test_an_amended_result_is_handed_out_in_its_turn():
    cassette = Cassette([take("f", {}, "a", seq=1), take("f", {}, "b", seq=2)])
    assert cassette.amend(2, {"new": 1})
    assert not cassette.amend(7, None)
    assert [cassette.play("f", {}).output for _ in range(2)] == ["a", {"new": 1}]


def test_the_nearest_call_and_where_it_differs():
    cassette = Cassette(
        [
            take("f", {"city": "Oslo", "n": 1}, 0, seq=1),
            take("f", {"city": "Rome", "n": 2}, 0, seq=2),
            take("fetch", {}, 0, seq=3),
        ]
    )
    near = cassette.nearest("tool", "f", {"city": "Rome", "n": 3})
    assert near is not None
    assert near.take.idx == 2
    assert str(near) == "nearest recorded call: f in step 2 of r (n changed: 2 -> 3)"
    renamed = cassette.nearest("tool", "fetsh", {})
    assert renamed is not None
    assert (renamed.take.name, renamed.changes) == ("fetch", ())
    assert cassette.nearest("tool", "zzz", {}) is None


def test_a_miss_names_tool_and_arguments():
    assert miss_text("f", {"city": "Zürich"}) == 'cassette miss: no recorded result exists for f({"city":"Zürich"})'


@pytest.mark.parametrize("threads", [2, 8])
def test_no_answer_is_handed_out_twice(threads: int):
    each = 50
    takes = [take("f", {}, i, seq=i) for i in range(threads * each)]
    cassette = Cassette(takes)
    got: list[Any] = []
    start = threading.Barrier(threads)

    def work() -> None:
        start.wait()
        got.extend([cassette.play("f", {}).output for _ in range(each)])

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert Counter(got) == Counter(range(threads * each))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=20), st.integers(0, 25))
def test_each_key_is_a_queue_of_its_own(calls: list[tuple[str, int]], used: int):
    takes = [take(name, {"x": x}, i, seq=i) for i, (name, x) in enumerate(calls)]
    cassette = Cassette(takes, used_before=used)
    for name, x in {(n, v) for n, v in calls}:
        recorded = [i for i, call in enumerate(calls) if call == (name, x)]
        left = [i for i in recorded if i >= used] or recorded[-1:]
        assert [cassette.play(name, {"x": x}).output for _ in left] == left
        assert cassette.play(name, {"x": x}).output == recorded[-1]
