"""What screens show of a run: messages of every form, what fills the window, cards, columns, hits."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine.project import project
from agentloupe.engine.views import context
from agentloupe.engine.views.flags import Flags, flags_of
from agentloupe.engine.views.layout import FOLD, level_of, units_of
from agentloupe.engine.views.messages import answer_of, is_new, messages_of
from agentloupe.engine.views.minimap import columns_of
from agentloupe.engine.views.outline import Outline
from agentloupe.engine.views.search import found_in, hits_in
from agentloupe.engine.views.transcript import CUT, Transcript, cut_text
from agentloupe.ports.recording import Recording
from agentloupe.words.step import Step
from tests.made import Maker
from tests.support import ROOT

VECTORS = json.loads((ROOT / "tests" / "vectors" / "messages.json").read_text("utf-8"))
NO_FLAGS = Flags(frozenset(), frozenset())


def said(message: Any) -> list[Any]:
    parts = [[part.type, part.text, part.call_id, part.name] for part in message.parts]
    return [message.role, message.path, parts]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_every_form_of_request_becomes_messages(vector: dict[str, Any]) -> None:
    assert [said(m) for m in messages_of(vector["request"])] == vector["messages"]


@pytest.mark.parametrize(
    ("output", "parts"),
    [
        (None, None),
        ({"role": "assistant", "content": "yes"}, [["text", "yes"]]),
        ({"role": "assistant", "output": [{"type": "message", "content": [{"type": "output_text", "text": "a"}]}]}, [["text", "a"]]),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "n", "input": {}}]}, [["tool_call", "{}"]]),
        ({"candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}}]}, [["text", "a"]]),
        ({"candidates": []}, []),
        ("bare", [["text", "bare"]]),
        ({"role": "assistant", "content": None, "refusal": "no"}, [["text", "no"]]),
    ],
)  # fmt: skip
def test_every_form_of_answer_becomes_a_message(output: Any, parts: Any) -> None:
    answer = answer_of(output)
    assert (None if answer is None else [[p.type, p.text] for p in answer.parts]) == parts


_NAMES = [
    "role",
    "content",
    "parts",
    "type",
    "text",
    "tool_calls",
    "function",
    "output",
    "call_id",
    "thinking",
    "input",
]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda t: st.lists(t, max_size=3) | st.dictionaries(st.sampled_from(_NAMES) | st.text(max_size=4), t, max_size=4),
    max_leaves=12,
)


@given(_JSON, _JSON)
def test_nothing_that_was_stored_can_break_the_reading_of_messages(history: Any, answer: Any) -> None:
    for name in ("messages", "input", "contents", "system"):
        for message in messages_of({name: history}):
            assert message.role
            assert all(isinstance(part.text, str) for part in message.parts)
    answer_of(answer)


def test_new_is_what_the_request_before_does_not_have() -> None:
    before = messages_of({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "a"}]})
    now = messages_of({"messages": [{"role": "user", "content": c} for c in ("a", "a", "a", "b")]})
    assert is_new(now, before) == [False, False, True, True]
    one = messages_of({"messages": [{"role": "tool", "tool_call_id": "1", "content": "x"}]})
    other = messages_of({"messages": [{"role": "tool", "tool_call_id": "2", "content": "x"}]})
    assert is_new(other, one) == [False]


# --- context ----------------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.booleans()), st.integers(0, 10**6)),
       st.none() | st.integers(0, 10**7))  # fmt: skip
def test_shares_sum_up_to_what_was_reported(characters: Any, tokens: int | None) -> None:
    total, parts = context.shares(characters, tokens)
    assert tokens is None or total == tokens
    if any(characters.values()):
        assert sum(part.tokens for part in parts) == total
        assert sum(part.share for part in parts) == pytest.approx(1)


@given(st.integers(1, 5000), st.integers(3, 300), st.data())
def test_a_sample_has_the_ends_and_the_one_that_is_looked_at(count: int, most: int, data: Any) -> None:
    always = data.draw(st.integers(0, count - 1))
    found = context.sampled(count, most, always)
    assert len(found) <= most
    assert {0, count - 1, always} <= set(found)
    assert found == sorted(set(found))


# --- shape ------------------------------------------------------------------------------------------------------------


def steps_of(*kinds: tuple[str, str, int | None]) -> list[Step]:
    """Steps of (kind, name, parent)."""
    return [
        Step(run_id="r", idx=n, parent_idx=parent, kind=kind, name=name, started_at="", status="ok")  # type: ignore[arg-type]
        for n, (kind, name, parent) in enumerate(kinds)
    ]


def test_depth_and_children_follow_the_parents() -> None:
    steps = steps_of(("agent", "r", None), ("agent", "a", 0), ("tool", "t", 3), ("agent", "b", 1), ("llm", "m", 9))
    assert Outline.of(steps) == Outline((0, 1, 3, 2, 0), (1, 1, 0, 1, 0))


def test_a_circle_of_parents_ends() -> None:
    found = Outline.of(steps_of(("agent", "a", 1), ("agent", "b", 0), ("agent", "c", 2)))
    assert len(found.depth) == 3


@given(st.lists(st.none() | st.integers(0, 12), max_size=12))
def test_every_step_has_a_depth_whatever_the_parents_say(parents: list[int | None]) -> None:
    found = Outline.of(steps_of(*(("other", "x", p) for p in parents)))
    assert all(depth >= 0 for depth in found.depth)
    assert len(found.depth) == len(found.children) == len(parents)


def cards(steps: list[Step], **more: Any) -> list[tuple[str, list[int]]]:
    units = units_of(level_of(steps, more.pop("inside", None)), fold_kept=more.pop("fold_kept", False))
    return [(unit.card, [step.idx for step in unit.steps]) for unit in units]


def test_a_model_takes_the_tools_that_follow_it_along() -> None:
    steps = steps_of(
        ("agent", "agent.run", None), ("clock", "now", 0), ("llm", "m", 0), ("tool", "a", 0), ("agent", "sub", 0),
        ("llm", "m", 4), ("tool", "b", 0), ("llm", "m", 0),
    )  # fmt: skip
    assert cards(steps) == [("question", [2]), ("step", [1]), ("model", [2, 3, 6]), ("agent", [4]), ("model", [7])]
    assert cards(steps, inside=4) == [("question", [5]), ("model", [5])]


def test_many_equal_calls_are_one_card() -> None:
    many = steps_of(("llm", "m", None), *(("tool", "t", None) for _ in range(FOLD + 1)), ("llm", "m", None))
    assert cards(many) == [("question", [0]), ("model", list(range(FOLD + 2))), ("model", [FOLD + 2])]
    alone = steps_of(*(("tool", "t", None) for _ in range(FOLD + 1)))
    assert cards(alone) == [("group", list(range(FOLD + 1)))]
    few = steps_of(*(("random", "r", None) for _ in range(FOLD)))
    assert [card for card, _ in cards(few)] == ["step"] * FOLD


def test_a_kept_prefix_is_one_card_if_wanted() -> None:
    steps = steps_of(("llm", "m", None), ("tool", "t", None), ("llm", "m", None))
    steps = [replace(step, source="recorded") if step.idx < 2 else step for step in steps]
    assert cards(steps, fold_kept=True) == [("question", [0]), ("kept", [0, 1]), ("model", [2])]
    assert cards(steps) == [("question", [0]), ("model", [0, 1]), ("model", [2])]


@given(st.lists(st.tuples(st.sampled_from(["llm", "tool", "agent", "clock"]), st.sampled_from("ab")), max_size=40))
def test_every_step_of_a_level_is_on_a_card(kinds: list[tuple[str, str]]) -> None:
    steps = steps_of(*((kind, name, None) for kind, name in kinds))
    level = level_of(steps, None)
    shown = {idx for card, members in cards(steps) for idx in members if card != "question"}
    assert shown == {step.idx for step in level}


def test_columns_keep_what_must_be_seen() -> None:
    steps = steps_of(*(("llm" if n % 2 else "tool", "x", None) for n in range(1000)))
    steps[517] = replace(steps[517], source="miss")
    steps[3] = replace(steps[3], input_tokens=7, output_tokens=5)
    found = columns_of(steps, Flags(frozenset({999}), frozenset()), 300, 40)
    assert len(found) == 250
    assert [c.first for c in found if c.miss] == [516]
    assert [(c.first, c.last) for c in found if c.cut] == [(40, 43)]
    assert found[-1].flag
    assert found[0].tokens == 12
    assert sum(c.model_calls for c in found) == 500
    assert columns_of([], NO_FLAGS, 10, None) == []


# --- with bodies ------------------------------------------------------------------------------------------------------


def whole(recording: Recording, **more: Any) -> list[dict[str, Any]]:
    steps = project(recording.events).steps
    level = level_of(steps, None)
    filler = Transcript(recording, level, Outline.of(steps), flags_of(steps, recording.get), lambda _: "near")
    return filler.cards(enumerate(units_of(level, fold_kept=False)))


def call(name: str, arguments: str, id: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_results_are_joined_to_their_calls_by_arguments_not_by_order() -> None:
    made = Maker()
    asked: Any = {
        "role": "assistant",
        "content": None,
        "tool_calls": [call("t", '{"a": 1}', "x"), call("t", '{"a": 2}', "y")],
    }
    made.model([{"role": "system", "content": "s"}, {"role": "user", "content": "q"}], asked)
    made.call("tool", "t", {"a": 2}, "two")
    made.call("tool", "t", {"a": 1}, "one")
    made.call("tool", "unasked", {}, "extra")
    question, model = whole(made.finish())
    assert [(m["role"], m["text"]) for m in question["messages"]] == [("system", "s"), ("user", "q")]
    rows = [(row["call_id"], row["step"], row["result"]["text"]) for row in model["calls"]]
    assert rows == [("x", 2, "one"), ("y", 1, "two"), (None, 3, "extra")]
    assert model["parallel"]


def test_developers_are_named_and_count_as_instructions() -> None:
    request: Any = {"messages": [{"role": "developer", "content": "be brief"}, {"role": "system", "content": "now"}]}
    messages = messages_of(request)
    assert [message.role for message in messages] == ["developer", "system"]
    parts = context.parts_of(request, messages, [False, False], ["program", "program"])
    assert parts == {("system", "program", False): len("be brief" + "now")}


def test_a_call_without_a_result_says_so() -> None:
    made = Maker()
    made.model([{"role": "user", "content": "q"}], {"role": "assistant", "tool_calls": [call("t", "not json", "x")]})
    _, model = whole(made.finish())
    assert [(r["name"], r["arguments"]["text"], r["step"], r["result"]) for r in model["calls"]] == [("t", "not json", None, None)]  # fmt: skip


def test_what_is_said_later_stands_on_the_model_that_was_asked() -> None:
    made = Maker()
    history: list[Any] = [{"role": "user", "content": "first"}]
    made.model(history, {"role": "assistant", "content": "a"})
    history += [{"role": "assistant", "content": "a"}, {"role": "user", "content": "second"}]
    made.model(history, {"role": "assistant", "content": "b"})
    _, one, two = whole(made.finish())
    assert one["asked"] == []
    assert [m["text"] for m in two["asked"]] == ["second"]
    assert (one["text"]["text"], two["text"]["text"]) == ("a", "b")


def test_long_texts_say_how_much_is_missing() -> None:
    assert cut_text("x" * (CUT + 5)) == {"text": "x" * CUT, "missing": 5}
    assert cut_text("x" * CUT)["missing"] == 0


def test_a_body_that_is_gone_costs_its_own_card_only() -> None:
    made = Maker()
    made.model([{"role": "user", "content": "q"}], {"role": "assistant", "content": "a"})
    made.call("clock", "now", None, "10:00")
    recording = made.finish()
    gone = project(recording.events).steps[0].output_digest
    left = replace(recording, get=lambda digests: {d: b for d, b in recording.get(digests).items() if d != gone})
    _, model, clock = whole(left)
    assert "not there" in model["problem"]
    assert model["text"]["text"] == ""
    assert (clock["output"]["text"], clock["problem"]) == ("10:00", None)


def test_a_text_is_found_once_where_it_was_said() -> None:
    made = Maker()
    history: list[Any] = [{"role": "user", "content": "find the Needle"}]
    made.model(history, {"role": "assistant", "content": "looking", "reasoning_content": "needle?"})
    made.call("tool", "needle_finder", {"where": "hay"}, {"found": ["a NEEDLE"]})
    made.model([*history, {"role": "user", "content": "and?"}], {"role": "assistant", "content": "done"})
    recording = made.finish()
    steps = project(recording.events).steps
    hits = [hit for _, found in found_in(recording, steps, "needle", 0) for hit in found]
    assert [(h.idx, h.where, h.match) for h in hits] == [
        (0, "input", "Needle"),
        (0, "reasoning", "needle"),
        (1, "name", "needle"),
        (1, "output", "NEEDLE"),
    ]
    assert [done for done, _ in found_in(recording, steps, "needle", 1)] == [2, 3]


@given(st.text(max_size=30), st.text(min_size=1, max_size=3))
def test_a_hit_is_a_part_of_the_text(text: str, wanted: str) -> None:
    for hit in hits_in(0, "name", text, wanted):
        assert hit.before + hit.match + hit.after in text
        assert hit.match.casefold().find(wanted.casefold()) >= 0 or wanted.casefold() in text.casefold()
    assert bool(list(hits_in(0, "name", text, wanted))) == (wanted.casefold() in text.casefold())
