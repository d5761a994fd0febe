"""A fork is stored in the space of what is new in it: what it shares with its parent is referred to."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.overrides import Overrides
from agentloupe.engine.project import load_steps
from agentloupe.engine.verify import verify
from agentloupe.importers.loupe_file import open_file
from agentloupe.store.sqlite import SqliteStore
from agentloupe.verbs.deleting import delete_run
from agentloupe.verbs.exchange import export_run
from agentloupe.verbs.forking import fork_run
from agentloupe.verbs.looping import run_loop
from agentloupe.words.canonical import Json

HISTORY = 200


def said(messages: list[Json], *_: object) -> tuple[dict[str, Json], int, int]:
    return {"role": "assistant", "content": f"the answer to {len(messages)}"}, 5, 5


def parent(store: SqliteStore) -> str:
    """A run with one model call, after a history of some 60 KB that no compressor makes small."""
    chance = random.Random(3)
    history: list[Json] = [{"role": "user", "content": f"{chance.getrandbits(1200):x}"} for _ in range(HISTORY)]
    return run_loop(said, model="m", system="be brief", messages=history, question="well?", store=store)[0].run_id


@pytest.fixture
def store(tmp_path: Path) -> Any:
    opened = SqliteStore(tmp_path / "l.db")
    yield opened
    opened.close()


@pytest.mark.parametrize("overrides", [Overrides(), Overrides(temperature=0.5), Overrides(system_prompt="be long")])
def test_a_fork_shares_the_history_of_its_parent(store: SqliteStore, overrides: Overrides, tmp_path: Path) -> None:
    run = parent(store)
    before = store.size().bodies_stored
    made = fork_run(store, run, 0, overrides, said)
    assert store.size().bodies_stored - before < before / 10
    first = load_steps(store.recording(made.id))[0]
    assert isinstance(first.input, dict)
    messages = first.input["messages"]
    assert isinstance(messages, list)
    assert len(messages) == HISTORY + 2
    assert messages[0] == {"role": "system", "content": overrides.system_prompt or "be brief"}


def test_what_a_fork_shares_stays_when_its_parent_is_deleted(store: SqliteStore, tmp_path: Path) -> None:
    run = parent(store)
    made = fork_run(store, run, 0, Overrides(system_prompt="be long"), said)
    request = load_steps(store.recording(made.id))[0].input
    export_run(store, made.id, tmp_path / "fork.loupe")
    delete_run(store, run)
    store.gc()
    assert load_steps(store.recording(made.id))[0].input == request
    for recording in (store.recording(made.id), open_file(tmp_path / "fork.loupe")):
        found = verify(recording)
        assert found.ok, found.head
        assert found.bodies_missing == 0
