"""Random programs of nested concurrent calls: ten replays, ten equal reports; every edit is found, and has its kind."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import agentloupe as loupe
from agentloupe.ports import codecs
from agentloupe.words.event import Draft, Event
from tests.schedule.programs import Ask, Block, asks_in, blocks, changed, program_of
from tests.schedule.trial import Made, made, replayed
from tests.schedule.world import World, living_in
from tests.tapes import edited, with_value

pytestmark = pytest.mark.timeout(600)
_few = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def quick_and_quiet(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.CRITICAL, "agentloupe")
    monkeypatch.setenv("LOUPE_STUCK_AFTER", "0.3")


def _ten_equal(one: Made) -> None:
    first, trace, leaks = replayed(one)
    assert (first.passed, leaks) == (True, 0), f"{first.text()}\n{one.trace}\n{trace}"
    assert codecs.encode(trace) == codecs.encode(one.trace)
    for _ in range(9):
        assert replayed(one)[0] == first


@_few
@given(block=blocks(threads=False), seed=st.integers(0, 999))
def test_ten_replays_of_a_random_program_of_tasks_report_the_same(block: Block, seed: int) -> None:
    _ten_equal(made(program_of(block, loop=True), seed))


@_few
@given(block=blocks(threads=True), seed=st.integers(0, 999), loop=st.booleans())
def test_ten_replays_of_a_random_program_of_threads_report_the_same(block: Block, seed: int, loop: bool) -> None:
    _ten_equal(made(program_of(block, loop=loop), seed))


# --- edits of the program -------------------------------------------------------------------------------------------------


def _relabelled(ask: Ask) -> tuple[Ask, ...]:
    return (replace(ask, label="another label"),)


def _renamed(ask: Ask) -> tuple[Ask, ...]:
    return (replace(ask, tool="fetch" if ask.tool != "fetch" else "breaks"),)


def _dropped(_: Ask) -> tuple[Ask, ...]:
    return ()


def _doubled(ask: Ask) -> tuple[Ask, ...]:
    return ask, replace(ask, label="one more")


EDITS: list[tuple[Callable[[Ask], tuple[Ask, ...]], set[str]]] = [
    (_relabelled, {"input_changed"}),
    (_renamed, {"name_changed"}),
    (_dropped, {"order", "name_changed", "input_changed", "missing", "unconsumed", "extra"}),
    (_doubled, {"order", "name_changed", "input_changed", "extra", "missing"}),
]


def _asked(one: Made, label: str) -> bool:
    """Whether the recorded run came to that call, and got its end."""
    return any(entry[0] == label and entry[1] != "cancelled" for entry in one.trace)


def _label(one: Made, end: Event) -> str:
    opened = next(e for e in one.recording.events if e.call_id == end.call_id and e.input_digest)
    asked = one.recording.body(opened.input_digest)
    return str(asked["label"]) if isinstance(asked, dict) else ""


@pytest.mark.parametrize(("edit", "kinds"), EDITS, ids=["relabelled", "renamed", "dropped", "doubled"])
@_few
@given(data=st.data(), block=blocks(threads=False), seed=st.integers(0, 999))
def test_every_edit_of_a_program_is_found(edit: Any, kinds: set[str], data: Any, block: Block, seed: int) -> None:
    one = made(program_of(block, loop=True), seed, outside=True)
    labels = [ask.label for ask in asks_in(block) if _asked(one, ask.label)]
    assume(labels)
    label = data.draw(st.sampled_from(labels))
    other = program_of(changed(block, label, edit), loop=True)
    with living_in(World(0, closed=True)) as world:
        report = loupe.replay(one.recording, loupe.agent(name="shape")(other))
    assert report.verdict == "diverged", report.text()
    assert report.divergence is not None
    assert report.divergence.kind in kinds, report.text()
    assert world.leaks == 0


# --- edits of the recording -----------------------------------------------------------------------------------------------


@_few
@given(data=st.data(), block=blocks(threads=False), seed=st.integers(0, 999))
def test_every_edit_of_a_recording_is_found(data: Any, block: Block, seed: int) -> None:
    one = made(program_of(block, loop=True), seed)
    ends = [e for e in one.recording.events if e.type == "tool.finished" and _asked(one, _label(one, e))]
    assume(ends)
    end = data.draw(st.sampled_from(ends))
    other = replace(one, recording=with_value(one.recording, end.sequence, {"never": "said"}))
    report = replayed(other)[0]
    assert report.verdict != "pass", "another result is another trace"

    def without_call(drafts: list[Draft]) -> list[Draft]:
        return [draft for draft in drafts if draft.call_id != end.call_id]

    report = replayed(replace(one, recording=edited(one.recording, without_call)))[0]
    assert report.verdict != "pass", "a call that is not there is missed"
