"""Case 11: time, ids and chance (the recording half)."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.ports import codecs
from agentloupe.store import open_url
from tests.cases.rec import Rec, load_agent


@pytest.fixture
def case(shared_case: Callable[[str], Path]) -> Path:
    return shared_case("11")


def test_time_ids_and_chance_are_recorded_with_their_types(case: Path, workdir: Path) -> None:
    store = open_url(workdir / "x.db")
    _, uid = load_agent(case).main(Rec(store))
    (run,) = store.runs()
    recording = store.recording(run.id)
    steps = {s.kind: s for s in store.steps(run.id)}
    moment: Any = codecs.decode(recording.body(steps["clock"].output_digest))
    assert moment.utcoffset() == timedelta(0), "the recorded time has a zone"
    assert str(codecs.decode(recording.body(steps["id"].output_digest))) == uid
    dice: Any = codecs.decode(recording.body(steps["random"].output_digest))
    body: Any = recording.body(steps["llm"].input_digest)
    assert ("temperature" in body) == (dice < 0.5)
    store.close()


def test_a_seeded_program_draws_the_same_numbers_with_and_without(case: Path, workdir: Path) -> None:
    def program() -> list[Any]:
        random.seed(7)
        things = list(range(10))
        drawn: list[Any] = [random.random(), loupe.random(), random.getrandbits(64)]
        drawn += [loupe.rng.randint(1, 6), loupe.rng.uniform(0, 2), loupe.rng.gauss(0, 1), loupe.rng.choice("abc")]
        drawn.append(loupe.rng.sample(range(100), 5))
        loupe.rng.shuffle(things)
        return [*drawn, things, random.random()]

    without = program()
    store = open_url(workdir / "x.db")
    with loupe.recording("seeded", store=store):
        loupe.now()
        loupe.uuid4()
        inside = program()
    assert inside == without

    random.seed(7)
    plain: list[Any] = [random.random(), random.random(), random.getrandbits(64)]
    plain += [random.randint(1, 6), random.uniform(0, 2), random.gauss(0, 1), random.choice("abc")]
    plain.append(random.sample(range(100), 5))
    things = list(range(10))
    random.shuffle(things)
    assert without == [*plain, things, random.random()], "and the same as the standard library draws"
    store.close()
