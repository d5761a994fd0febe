"""Case 11, more of the kind: everything that looks at a run, every draw, and one draw more or less."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import time_machine

import agentloupe as loupe
from agentloupe.cli import main
from agentloupe.ports.tracing import arriving
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.replaying import replay
from agentloupe.words.trace import read_trace
from tests.cases.rec import Rec, load_agent
from tests.tapes import record_in

DRAWS: dict[str, Callable[[], Any]] = {
    "now": loupe.now,
    "uuid4": loupe.uuid4,
    "random": loupe.random,
    "randint": lambda: loupe.rng.randint(1, 10**9),
    "uniform": lambda: loupe.rng.uniform(0, 1),
    "choice": lambda: loupe.rng.choice(range(10**9)),
    "sample": lambda: loupe.rng.sample(range(10**6), 4),
    "shuffle": lambda: _shuffled(),
}


def _shuffled() -> list[int]:
    things = list(range(30))
    loupe.rng.shuffle(things)
    return things


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_draw_comes_back_under_another_clock_and_seed(name: str, seed: int) -> None:
    got: list[Any] = []

    def program() -> None:
        got.append([DRAWS[name](), DRAWS[name]()])

    with time_machine.travel("2026-03-02T08:00:00Z", tick=False):
        random.seed(0)
        recording = record_in(MemoryStore(), program)
    with time_machine.travel("2031-12-31T23:59:59Z", tick=False):
        random.seed(seed)
        assert replay(recording, program).verdict == "pass"
    assert got[0] == got[1]
    assert [type(one) for one in got[0]] == [type(one) for one in got[1]]


def test_a_replay_neither_moves_the_clock_nor_draws_from_the_programs_chance() -> None:
    def program() -> None:
        for draw in DRAWS.values():
            draw()

    recording = record_in(MemoryStore(), program)
    random.seed(4)
    wanted = [random.random() for _ in range(3)]
    random.seed(4)
    drawn = [random.random()]
    with time_machine.travel("2031-01-01T00:00:00Z", tick=False):
        assert replay(recording, program).verdict == "pass"
        assert datetime.now(UTC).year == 2031
    drawn.append(random.random())
    with loupe.recording("r", store=MemoryStore()):
        Rec().llm("m", lambda body: {"role": "assistant", "content": "x"})({"model": "m", "messages": []})
        loupe.uuid4()
        loupe.now()
        drawn.append(random.random())
    assert drawn == wanted, "the recorder's own ids and times take nothing from `random`"


@pytest.mark.parametrize("change", ["one more", "one less", "another name", "another order"])
def test_a_draw_more_or_less_is_told_at_its_place(change: str) -> None:
    """Values are matched one by one, by what was read: later ones are not moved up."""

    def program(change: str | None) -> None:
        loupe.random()
        if change == "one more":
            loupe.random()
        if change == "another order":
            loupe.rng.randint(1, 9)
            loupe.uuid4()
        else:
            loupe.now() if change == "another name" else loupe.uuid4()
            if change != "one less":
                loupe.rng.randint(1, 9)
        loupe.env("HOME")

    recording = record_in(MemoryStore(), lambda: program(None))
    report = replay(recording, lambda: program(change))
    assert report.divergence is not None
    assert report.exit_code == 1
    assert report.divergence.kind in ("name_changed", "order")
    assert report.divergence.sequence == {"one more": 3, "another name": 3, "another order": 3, "one less": 4}[change]
    assert replay(recording, lambda: program(None)).verdict == "pass"


DIRECT: dict[str, tuple[Callable[[], Any], str]] = {
    "date": (lambda: f"{datetime.now(UTC):%A %d %B %Y}", "clock"),
    "time": (lambda: f"{datetime.now(UTC):%H:%M:%S}", "clock"),
    "iso": (lambda: datetime.now(UTC).isoformat(), "clock"),
    "id": (lambda: str(uuid.uuid4()), "id"),
    "chance": (lambda: repr(random.random()), "random"),
}


@pytest.mark.parametrize("name", DIRECT)
def test_what_is_read_past_the_boundary_fails_at_the_first_model_call_and_the_cause_is_named(name: str) -> None:
    read, cause = DIRECT[name]
    ask = Rec().llm("m", lambda body: {"role": "assistant", "content": "x"})

    def program() -> None:
        ask({"model": "m", "messages": [{"role": "user", "content": f"It is {read()} now."}]})

    with time_machine.travel("2026-03-02T08:15:00Z", tick=False):
        random.seed(1)
        recording = record_in(MemoryStore(), program)
    with time_machine.travel("2027-05-20T21:30:40Z", tick=False):
        random.seed(2)
        report = replay(recording, program)
    found = report.divergence
    assert found is not None
    assert (found.kind, found.sequence) == ("input_changed", 2)
    words = {"clock": "clock was read outside", "id": "made outside the boundary", "random": "chance"}
    assert any(words[cause] in hint or "outside the boundary" in hint for hint in found.hints), found.hints
    assert "messages[0].content: It is " in report.text()


def test_every_command_that_looks_at_a_run_changes_nothing_about_its_replay(
    shared_case: Callable[[str], Path], workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load_agent(shared_case("11"))
    store = open_url(workdir / "x.db")
    module.main(Rec(store))
    run_id = store.runs()[0].id
    first = replay(store.recording(run_id), lambda: module.main(Rec()))
    assert first.verdict == "pass"
    head = store.recording(run_id).events[-1].hash
    looks = [["list"], ["show", run_id], ["show", run_id, "4"], ["verify", run_id], ["export", run_id, "-o", "a.loupe"],
             ["export", run_id, "-o", "a.jsonl"], ["compare", run_id, run_id], ["size"], ["gc"], ["rebuild"]]  # fmt: skip
    for words in looks:
        assert main([*words, "--db", str(workdir / "x.db")]) == 0, words
        again = replay(store.recording(run_id), lambda: module.main(Rec()))
        assert again == first, words
    assert store.recording(run_id).events[-1].hash == head
    store.close()


def test_being_traced_changes_nothing_about_its_replay(shared_case: Callable[[str], Path], workdir: Path) -> None:
    """Somebody else's trace around the program, in the recording, in the replay, in both."""
    module = load_agent(shared_case("11"))
    store = open_url(workdir / "x.db")
    traces = [None, read_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=1")]
    for recorded_in in traces:
        with arriving(recorded_in):
            module.main(Rec(store))
        recording = store.recording(store.runs()[0].id)
        reports: list[Any] = []
        for replayed_in in traces:
            with arriving(replayed_in):
                reports.append(replay(recording, lambda: module.main(Rec())))
        assert reports[0].verdict == "pass", reports[0].text()
        assert reports[0] == reports[1]
    store.close()
