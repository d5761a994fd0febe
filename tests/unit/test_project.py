"""The projection: what people see, computed from events alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine.project import Projector, load_steps, project, shown_tags
from agentloupe.ports.ambient import Place
from agentloupe.store.memory import MemoryStore
from agentloupe.store.sealing import seal_drafts
from agentloupe.words.event import Draft, Event, Head
from agentloupe.words.run import Counts
from agentloupe.words.seal import GENESIS
from agentloupe.words.step import Step
from tests.store.make import Author, call, small_run


def sealed(*drafts: Draft, run_id: str = "r") -> tuple[Event, ...]:
    return seal_drafts(run_id, Head(0, GENESIS), drafts).events


def draft(type: str, second: float = 0, **more: Any) -> Draft:
    call_id = more.get("call_id")
    more.setdefault("event_id", f"{type}-{call_id}")
    more.setdefault("recorded_at", f"2026-03-02T10:00:{second:09.6f}Z")
    return Draft(type=type, **more)


def fork_of(*drafts: Draft, **attrs: Any) -> tuple[Event, ...]:
    start = draft(
        "run.started", 30, name="a", attrs={"parent_run_id": "p", "forked_from_step": 3, **attrs}, span_id="root"
    )
    return sealed(start, *drafts)


def tool(call_id: str, second: float = 40, *, copied: bool = False, source: Any = None, **attrs: Any) -> list[Draft]:
    copied_hash = "c" * 64 if copied else None
    kept = {"call_id": call_id, "name": "f", "lane": "0", "copied_hash": copied_hash, "parent_span_id": "old-root"}
    return [
        draft("tool.allowed", second, attrs={"effect": "read"}, **kept),
        draft("tool.finished", second + 1, attrs=attrs, source="recorded" if copied else source, **kept),
    ]


def recorded() -> tuple[MemoryStore, Author]:
    store = MemoryStore()
    return store, small_run(store)


# ---------------------------------------------------------------- runs and steps


def test_a_run_has_its_root_and_its_steps_under_it() -> None:
    store, _ = recorded()
    trace = project(store.recording("run-1").events)
    assert [(s.idx, s.parent_idx, s.kind, s.name, s.status) for s in trace.steps] == [
        (0, None, "agent", "agent.run", "ok"),
        (1, 0, "llm", "chat small", "ok"),
        (2, 0, "tool", "get_weather", "ok"),
        (3, 0, "clock", "now", "ok"),
        (4, 0, "tool", "get_weather", "error"),
        (5, 0, "llm", "chat small", "ok"),
    ]
    run = trace.run
    assert (run.status, run.agent, run.name, run.model) == ("ok", "helper", "a run", "small")
    assert (run.total_input_tokens, run.total_output_tokens, run.usage_complete) == (20, 10, True)
    assert (run.new_input_tokens, run.new_output_tokens) == (20, 10)
    assert (run.label, run.hypothetical_from, run.tags) == (None, None, ())
    assert trace.steps[1].model == "small"
    assert trace.steps[1].attrs["model"] == "small-1"
    assert trace.steps[4].error_class == "LookupError"
    assert trace.steps[0].ended_at == run.ended_at
    assert all(a.first_seq < b.first_seq for a, b in zip(trace.steps, trace.steps[1:], strict=False))


def test_a_run_without_root_has_steps_without_parent() -> None:
    store = MemoryStore()
    author = Author(store, "r").started(root=False)
    author.tool("f", {}, 1)
    author.finished()
    assert [(s.idx, s.parent_idx) for s in project(store.recording("r").events).steps] == [(0, None)]


def test_folding_bit_by_bit_gives_what_folding_at_once_gives() -> None:
    store, _ = recorded()
    events = store.recording("run-1").events
    fold = Projector("run-1")
    steps: dict[int, object] = {}
    delta = fold.take()
    for event in events:
        fold.add(event)
        delta = fold.take()
        steps.update((step.idx, step) for step in delta.steps)
    assert delta.run == project(events).run
    assert tuple(steps.values()) == project(events).steps
    assert fold.take().steps == ()


def test_an_open_call_stays_open() -> None:
    events = sealed(draft("run.started", name="a"), *tool("0.0")[:1], draft("run.finished", 5, attrs={"status": "ok"}))
    trace = project(events)
    assert (trace.run.status, trace.steps[0].status, trace.steps[0].ended_at) == ("ok", "open", None)


def test_unknown_usage_is_not_nought() -> None:
    store = MemoryStore()
    author = Author(store, "r").started()
    author.model([{"role": "user", "content": "a"}], tokens=None)
    run = project(store.recording("r").events).run
    assert (run.total_input_tokens, run.usage_complete) == (None, False)
    author.model([{"role": "user", "content": "b"}], tokens=(0, 3))
    run = project(store.recording("r").events).run
    assert (run.total_input_tokens, run.total_output_tokens, run.usage_complete) == (0, 3, False)


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (draft("tool.finished", 2, call_id="0.0", name="f"), "ok"),
        (draft("tool.finished", 2, call_id="0.0", name="f", attrs={"status": "cancelled"}), "cancelled"),
        (draft("tool.failed", 2, call_id="0.0", name="f", attrs={"error_class": "E"}), "error"),
        (draft("tool.unknown", 2, call_id="0.0", name="f"), "unknown"),
        (draft("tool.denied", 2, call_id="0.0", name="f"), "denied"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.type,
)
def test_how_a_call_ended(last: Draft, status: str) -> None:
    events = sealed(draft("run.started", name="a"), draft("tool.allowed", 1, call_id="0.0", name="f"), last)
    assert project(events).steps[0].status == status


@pytest.mark.parametrize(("outcome", "status"), [("finished", "ok"), ("failed", "error"), ("not_done", "not_done")])
def test_a_confirmed_write_is_no_longer_unknown(outcome: str, status: str) -> None:
    life = ("tool.allowed", "tool.requested", "tool.started", "tool.unknown")
    told = [draft(t, 2, call_id="0.0", name="pay", attrs={"effect": "write"}) for t in life]
    before = project(sealed(draft("run.started", name="a"), *told))
    assert (before.steps[0].status, before.run.open_effects) == ("unknown", 1)
    found = draft("tool.confirmed", 3, call_id="0.0", name="pay", attrs={"outcome": outcome})
    after = project(sealed(draft("run.started", name="a"), *told, found))
    assert (after.steps[0].status, after.run.open_effects) == (status, 0)
    again = [draft(t, 4, call_id="0.0", name="pay", attrs={"effect": "write"}) for t in life[1:3]]
    then = project(sealed(draft("run.started", name="a"), *told, found, *again))
    expected = ("open", 1) if outcome == "not_done" else (status, 0)
    assert (then.steps[0].status, then.run.open_effects) == expected, "what has ended takes no second beginning"


def test_inner_calls_hang_under_the_call_that_made_them() -> None:
    store = MemoryStore()
    author = Author(store, "r").started(root=True)
    outer = author.place()
    what = call("tool", "ask", {}, effect="read")
    author.add(author.scribe.opened(what, outer, "k", "2026-03-02T10:00:00.000000Z"))
    inner = Place(f"{outer.call_id}~", 0, "1" * 16, outer.span_id)
    author.did(call("llm", "chat small", {"messages": []}), {}, where=inner)
    assert [(s.name, s.parent_idx) for s in project(store.recording("r").events).steps][1:] == [
        ("ask", 0),
        ("chat small", 1),
    ]


def test_a_parent_that_comes_later_is_found() -> None:
    child = draft("call.finished", 1, call_id="b", name="child", span_id="s2", parent_span_id="s1")
    parent = draft("call.finished", 2, call_id="a", name="parent", span_id="s1")
    steps = project(sealed(draft("run.started", name="a"), child, parent)).steps
    assert [(s.name, s.parent_idx) for s in steps] == [("child", 1), ("parent", None)]


def test_a_call_of_one_event_began_before_it_ended() -> None:
    one = draft("retrieval.finished", 3, call_id="a", name="docs", attrs={"ms": 1500})
    step = project(sealed(draft("run.started", name="a"), one)).steps[0]
    assert (step.started_at, step.ended_at) == ("2026-03-02T10:00:01.500000Z", "2026-03-02T10:00:03.000000Z")


def test_the_failure_of_a_run_is_one_line() -> None:
    for error, shown in (("boom", "E: boom"), ("E", "E"), ("E: boom", "E: boom"), (None, "E")):
        attrs = {"status": "error", "error_class": "E"} | ({"error": error} if error else {})
        run = project(sealed(draft("run.started", name="a"), draft("run.finished", 1, attrs=attrs))).run
        assert (run.status, run.error) == ("error", shown)


def test_nothing_cannot_be_projected_without_a_name() -> None:
    with pytest.raises(ValueError, match="no events"):
        project(())
    assert project((), "r").run.id == "r"


# ---------------------------------------------------------------- forks


def test_a_kept_prefix_is_moved_to_end_where_the_fork_begins() -> None:
    new = [draft("tool.allowed", 31, call_id="0.2", name="f"), draft("tool.finished", 33, call_id="0.2", name="f")]
    end = draft("run.finished", 34, attrs={"status": "ok"}, span_id="root")
    events = fork_of(*tool("0.0", 10, copied=True), *tool("0.1", 12, copied=True), *new, end, root=True)
    root, first, second, third = project(events).steps
    assert (first.started_at[-10:-1], second.ended_at) == ("27.000000", "2026-03-02T10:00:30.000000Z")
    assert (root.started_at, root.ended_at) == (first.started_at, "2026-03-02T10:00:34.000000Z")
    assert [s.source for s in (first, second, third)] == ["recorded", "recorded", "live"]
    assert [s.parent_idx for s in (first, second)] == [0, 0]
    assert events[1].recorded_at == "2026-03-02T10:00:10.000000Z"  # the evidence keeps its times


def test_a_prefix_that_comes_in_parts_is_moved_as_a_whole() -> None:
    events = fork_of(*tool("0.0", 10, copied=True), *tool("0.1", 12, copied=True))
    fold = Projector("r")
    steps: dict[int, Any] = {}
    for event in events:
        fold.add(event)
        steps.update((s.idx, s) for s in fold.take().steps)
    assert tuple(steps.values()) == project(events).steps


def test_counts_labels_and_tags_of_a_fork() -> None:
    events = fork_of(
        *tool("0.0", 10, copied=True, reused=False),
        *tool("0.1", source="cassette"),
        *tool("0.2", source="cassette", reused=True),
        *tool("0.3", source="miss"),
        *tool("0.4"),
        *tool("0.5", source="miss", parse_error="at 3"),
        tags=["nightly", "fork", "miss:7", "cassette:1", "missing:1"],
    )
    run = project(events).run
    assert run.counts == Counts(cassette=2, live=1, miss=1, reused=1)
    assert run.tags == ("nightly", "missing:1", "fork", "cassette:2", "live:1", "miss:1", "reused:1")
    assert (run.label, run.hypothetical_from) == ("hypothetical", 2)


@pytest.mark.parametrize("doubt", [{"source": "stub"}, {"source": "human"}, {"replayed_write": True}, {"reused": True}])
def test_an_answer_that_was_not_for_this_call_makes_a_fork_hypothetical(doubt: dict[str, Any]) -> None:
    run = project(fork_of(*tool("0.0", source="cassette"), *tool("0.1", **doubt))).run
    assert (run.label, run.hypothetical_from) == ("hypothetical", 1)


def test_a_fork_of_real_and_recorded_answers_is_faithful() -> None:
    run = project(fork_of(*tool("0.0", copied=True), *tool("0.1", source="cassette"), *tool("0.2"))).run
    assert (run.label, run.hypothetical_from) == ("faithful", None)


def test_a_doubtful_answer_in_the_kept_prefix_stays_doubtful() -> None:
    run = project(fork_of(*tool("0.0", copied=True, copied_source="stub"), *tool("0.1"))).run
    assert (run.label, run.hypothetical_from) == ("hypothetical", 0)


def test_a_fork_has_two_sums() -> None:
    usage = {"input_tokens": 7, "output_tokens": 3}
    kept = {"call_id": "0.0", "name": "chat m", "copied_hash": "c" * 64}
    new = {"call_id": "0.1", "name": "chat m"}
    events = fork_of(
        *(draft(t, 1, attrs=usage if "resp" in t else {}, **kept) for t in ("model.requested", "model.responded")),
        *(draft(t, 40, attrs=usage if "resp" in t else {}, **new) for t in ("model.requested", "model.responded")),
    )
    run = project(events).run
    assert (run.total_input_tokens, run.total_output_tokens) == (14, 6)
    assert (run.new_input_tokens, run.new_output_tokens) == (7, 3)


@given(counts=st.builds(Counts, **{name: st.integers(0, 9) for name in ("cassette", "live", "miss", "stub", "reused")}))
def test_tags_of_a_fork_of_a_fork_do_not_pile_up(counts: Counts) -> None:
    once = shown_tags(["a"], Counts(cassette=5, stub=1))
    assert shown_tags(once, counts) == shown_tags(["a"], counts)


# ---------------------------------------------------------------- bodies


def test_steps_are_loaded_with_their_values() -> None:
    store, _ = recorded()
    recording = store.recording("run-1")
    steps = load_steps(recording)
    assert steps[0].output == "4 degrees"
    assert steps[1].input == {"model": "small", "messages": [{"role": "user", "content": "how warm is it?"}]}
    assert steps[1].output == {"role": "assistant", "content": "yes"}
    response = recording.body(steps[1].output_digest)
    assert isinstance(response, dict)
    assert response["model"] == "small-1"
    assert all(step.loaded for step in steps)
    assert (steps[4].output, steps[4].error) == (None, "LookupError: no such place")
    assert load_steps(recording, store.steps("run-1", first=2, limit=1)) == (steps[2],)


def test_a_step_whose_body_is_gone_says_so() -> None:
    store, _ = recorded()
    recording = replace(store.recording("run-1"), get=lambda digests: {})
    step = load_steps(recording)[1]
    assert (step.loaded, step.input, step.partial) == (False, None, "a body is not there")


# ---------------------------------------------------------------- work


class Counted(set[int]):
    """Counts what is put in."""

    put = 0

    def add(self, element: int) -> None:
        self.put += 1
        super().add(element)

    def update(self, *others: Iterable[int]) -> None:
        for other in others:
            for element in other:
                self.add(element)


def test_the_work_of_a_kept_prefix_grows_with_its_length_and_not_with_its_square() -> None:
    def work(calls: int) -> int:
        kept = [one for n in range(calls) for one in tool(f"0.{n}", n * 0.01, copied=True)]
        projector = Projector("r")
        projector._dirty = dirty = Counted()
        for event in fork_of(*kept):
            projector.add(event)
        assert len(projector.take().steps) == calls
        return dirty.put

    assert work(200) <= 2.1 * work(100)


def test_a_prefix_that_grows_between_two_looks_is_moved_as_a_whole() -> None:
    projector = Projector("r")
    looks: list[Sequence[Step]] = []
    for event in fork_of(*tool("0.0", 0, copied=True), *tool("0.1", 10, copied=True)):
        projector.add(event)
        looks.append(projector.take().steps)
    moved = looks[-1]
    assert [step.idx for step in moved] == [0, 1]
    assert moved[0].started_at < moved[1].started_at
