"""The tape: events put together into calls and lanes; what no honest recording can hold is refused at its event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentloupe.engine.tape import read_tape
from agentloupe.ports.ambient import Place
from agentloupe.ports.recording import Recording
from agentloupe.ports.schedule.core import Schedule
from agentloupe.ports.schedule.order import Turn
from agentloupe.ports.schedule.parts import Item
from agentloupe.words.call import Attrs, Call, Outcome
from agentloupe.words.canonical import key_of
from agentloupe.words.errors import Corrupt, Truncated
from agentloupe.words.event import Draft
from tests.made import START, Maker
from tests.tapes import Edit, edited, sequence_of


def _never(_: object) -> None:
    raise AssertionError("nothing is performed here")


def _call(maker: Maker, kind: Any, name: str, lane: str, n: int, **more: Any) -> None:
    call = Call(kind=kind, name=name, input=more.get("input"), effect=more.get("effect"), encode=_never, decode=_never)
    where = Place(lane, n, f"{n + 16:016x}", None)
    key = key_of(kind, name, call.input)
    maker.take(maker.scribe.opened(call, where, key, START))
    for inner in more.get("inside", ()):
        inner()
    outcome = Outcome(status=more.get("status", "ok"), output=more.get("output"))
    maker.take(maker.scribe.closed(call, where, key, outcome, START))


def _small() -> Recording:
    maker = Maker(root=True)
    maker.call("llm", "chat m", {"messages": []}, {"choices": []})
    maker.call("tool", "get", {"city": "Oslo"}, 1)
    maker.call("clock", "now", None, "x")
    maker.call("tool", "get", {"city": "Oslo"}, {"$exception": {}}, ok=False)
    return maker.finish()


def test_calls_are_put_together() -> None:
    tape = read_tape(_small())
    assert [(c.call_id, c.kind, c.name, c.status, c.closing, c.events) for c in tape.calls] == [
        ("0.0", "llm", "chat m", "ok", "model.responded", 2),
        ("0.1", "tool", "get", "ok", "tool.finished", 3),
        ("0.2", "clock", "now", "ok", "clock.read", 1),
        ("0.3", "tool", "get", "error", "tool.failed", 3),
    ]
    second = tape.calls[1]
    assert (second.first_seq, second.last_seq, second.lane, second.n) == (4, 6, "0", 1)
    assert second.input_key == key_of("tool", "get", {"city": "Oslo"})
    assert list(tape.lane("0")) == list(tape.calls)
    assert tape.lane("nowhere") == ()
    assert [c.call_id for c in tape.with_key(second.input_key or "")] == ["0.1", "0.3"]
    assert tape.with_key("0" * 64) == ()
    assert tape.call("0.2") is tape.calls[2]
    assert tape.finished is not None


def test_a_write_tool_has_its_intent() -> None:
    maker = Maker()
    _call(maker, "tool", "refund", "0", 0, effect="write", input={"order": 1})
    tape = read_tape(maker.finish())
    assert [e.type for e in tape.recording.events[1:5]] == [
        "tool.allowed",
        "tool.requested",
        "tool.started",
        "tool.finished",
    ]
    assert (tape.calls[0].effect, tape.calls[0].events) == ("write", 4)


def test_inner_calls_of_a_tool_are_told_apart_from_those_of_a_nested_agent() -> None:
    maker = Maker()
    inside = [lambda: _call(maker, "llm", "chat m", "0.0~", 0)]
    _call(maker, "tool", "summarise", "0", 0, effect="read", inside=inside)
    deeper = [lambda: _call(maker, "clock", "now", "0.1~0.0~", 0)]
    nested = [
        lambda: _call(maker, "tool", "get", "0.1~", 0, effect="read"),
        lambda: _call(maker, "agent", "helper", "0.1~", 1, inside=[lambda: _call(maker, "id", "uuid4", "0.1~.1~", 0)]),
    ]
    del deeper
    _call(maker, "agent", "helper", "0", 1, inside=nested)
    tape = read_tape(maker.finish())
    assert {c.call_id: (c.outer, c.inner) for c in tape.calls} == {
        "0.0": (None, False),
        "0.0~.0": ("0.0", True),
        "0.1": (None, False),
        "0.1~.0": ("0.1", False),
        "0.1~.1": ("0.1", False),
        "0.1~.1~.0": ("0.1~.1", False),
    }
    assert [c.call_id for c in tape.driven] == [c.call_id for c in tape.calls if c.call_id != "0.0~.0"]


def test_a_call_without_an_end_is_open() -> None:
    maker = Maker()
    call = Call(kind="llm", name="chat m", input={}, encode=_never, decode=_never)
    maker.take(maker.scribe.opened(call, Place("0", 0, "a" * 16, None), "k" * 64, START))
    tape = read_tape(maker.recording())
    assert (tape.calls[0].status, tape.calls[0].closing, tape.finished) == ("open", None, None)


def test_lanes_are_in_order_of_their_numbers() -> None:
    maker = Maker()
    for lane, n in (("0", 0), ("0/a0", 0), ("0/a1", 0), ("0/a0", 1), ("0", 1)):
        _call(maker, "clock", "now", lane, n)
    tape = read_tape(maker.finish())
    assert tape.lanes == ("0", "0/a0", "0/a1")
    assert [c.call_id for c in tape.lane("0/a0")] == ["0/a0.0", "0/a0.1"]


def test_nothing_is_truncated() -> None:
    with pytest.raises(Truncated) as empty:
        read_tape(Recording("x", (), lambda _: {}, "x"))
    assert empty.value.reason == "empty"


def _moved(frm: int, to: int) -> Edit:
    def edit(drafts: list[Draft]) -> list[Draft]:
        drafts = list(drafts)
        drafts.insert(to - 1, drafts.pop(frm - 1))
        return drafts

    return edit


def _cut(*sequences: int) -> Edit:
    return lambda drafts: [d for i, d in enumerate(drafts, 1) if i not in sequences]


def _twice(sequence: int) -> Edit:
    return lambda drafts: [*drafts[:sequence], drafts[sequence - 1], *drafts[sequence:]]


def _with(sequence: int, **fields: Any) -> Edit:
    return lambda drafts: [replace(d, **fields) if i == sequence else d for i, d in enumerate(drafts, 1)]


@pytest.mark.parametrize(
    ("edit", "at"),
    [
        (_cut(1), 1),  # no beginning
        (_twice(1), 2),  # two beginnings
        (_cut(2), 2),  # an end without a start
        (_cut(4), 4),  # started without being allowed
        (_twice(3), 4),  # two ends
        (_twice(7), 8),  # one read twice
        (_twice(4), 5),  # allowed twice
        (_twice(5), 6),  # started twice
        (_moved(5, 4), 4),  # started before it was allowed
        (_moved(6, 5), 5),  # finished before it was started
        (_moved(11, 9), 10),  # something after the end
        (_with(5, name="other"), 5),
        (_with(6, input_key="0" * 64), 6),
        (_with(7, call_id=None), 7),
        (_with(7, call_id="odd"), 7),
        (_with(7, name=None), 7),
        (_with(7, lane="1"), 7),
        (_with(7, n=9), 7),
        (_with(6, type="model.responded"), 6),
    ],
)
def test_a_lifecycle_that_cannot_be_is_corrupt_at_its_event(edit: Edit, at: int) -> None:
    with pytest.raises(Corrupt, match=rf"sequence {at}\b"):
        read_tape(edited(_small(), edit))


def test_lane_and_number_may_be_left_out_since_the_call_id_says_them() -> None:
    recording = edited(_small(), lambda drafts: [replace(d, lane=None, n=None) for d in drafts])
    assert [c.call_id for c in read_tape(recording).lane("0")] == ["0.0", "0.1", "0.2", "0.3"]


def test_a_call_whose_turn_comes_behind_a_cut_is_not_handed_over_before_it() -> None:
    """Its end may stand before it: a fork has to hand it over later, and to say so."""
    maker = Maker()
    _call(maker, "tool", "first", "0/p1", 0, effect="write")
    cut = sequence_of(maker.recording(), "tool.finished") + 1
    maker.take(maker.scribe.scheduled("schedule.marked", "0/p1", {"turn": "0/p1.0"}, START))
    tape = read_tape(maker.recording())
    assert [turn.id for turn in tape.turns()] == ["0/p1.0"]
    assert tape.turns(before=cut) == ()
    call = tape.call("0/p1.0")
    assert call is not None
    assert (call.turns_from(cut), call.turns_from(cut + 1)) == (["0/p1.0"], [])


class Keeps:
    def __init__(self) -> None:
        self.said: list[Any] = []

    def log(self, type: str, lane: str, facts: Attrs) -> None:
        self.said.append((type, lane, facts))

    def stands_still(self, awaited: str | None) -> None:
        raise AssertionError(awaited)

    def cancelled(self, id: str) -> None:
        raise AssertionError(id)


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_write_that_ends_before_another_call_has_told_that_it_was_handed_over_has_its_turn_noted(lanes: int) -> None:
    handed: list[str] = []
    keeps = Keeps()
    schedule = Schedule(keeper=keeps)
    schedule.lanes = lanes
    schedule.add(Item("0/a1.0", lambda: handed.append("0/a1.0")))  # its end is told when its task goes on
    schedule.tells("0/a2.0")
    schedule.add(Item("0/a2.0", lambda: handed.append("0/a2.0")))
    assert handed == ["0/a1.0", "0/a2.0"]
    assert keeps.said == ([("schedule.marked", "0/a2", {"turn": "0/a2.0"})] if lanes > 1 else [])


def test_what_was_overtaken_and_never_handed_over_has_no_turn_until_a_mark_says_so() -> None:
    """A process that was killed between the end of a write and its turn leaves such a tape; a resume tells the turn."""
    maker = Maker()
    _call(maker, "tool", "first", "0/p1", 0, effect="write")
    maker.take(maker.scribe.scheduled("schedule.marked", "0", {"open": ["0/p2.0"]}, START))
    _call(maker, "tool", "second", "0/p2", 0, effect="write")
    killed = read_tape(maker.recording())
    assert killed.owed() == {"0/p2.0"}
    assert [turn.id for turn in killed.turns()] == ["0/p1.0"]

    handed: list[str] = []
    keeps = Keeps()
    schedule = Schedule([Turn("0/p1.0")], keeper=keeps)
    schedule.owes(killed.owed())
    for name in ("0/p2.0", "0/p1.0"):
        schedule.add(Item(name, lambda name=name: handed.append(name)))
    schedule.pump()
    assert handed == ["0/p1.0", "0/p2.0"]
    assert keeps.said == [("schedule.marked", "0/p2", {"turn": "0/p2.0"})]
    maker.take(maker.scribe.scheduled("schedule.marked", "0/p2", {"turn": "0/p2.0"}, START))
    resumed = read_tape(maker.recording())
    assert resumed.owed() == set()
    assert [turn.id for turn in resumed.turns()] == ["0/p1.0", "0/p2.0"]
