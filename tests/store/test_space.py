"""T7: a run's space grows with what is new in it, not with how often it was sent."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import zstandard

from agentloupe.engine.project import load_steps
from agentloupe.store.sqlite import SqliteStore
from agentloupe.words.canonical import dumps
from tests.store.make import Author

WORDS = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "order",
    "refund",
    "ticket",
    "customer",
    "please",
    "check",
    "why",
    "total",
    "late",
)


def grown(store: SqliteStore, steps: int) -> tuple[list[list[dict[str, str]]], int]:
    """A run of model steps whose context grows by about 700 bytes a step; what was sent, and the bytes that were new."""
    chance = random.Random(7)
    text = lambda n: " ".join(chance.choice(WORDS) + str(chance.randrange(1000)) for _ in range(n))  # noqa: E731
    author = Author(store, "grows").started(root=True)
    history: list[dict[str, str]] = [{"role": "system", "content": text(300)}]
    sent: list[list[dict[str, str]]] = []
    new: list[Any] = [history[0]]
    for _ in range(steps):
        history = [*history, {"role": "user", "content": text(40)}]
        sent.append(history)
        answer = text(30)
        author.model(history, answer, durability="grouped")
        history = [*history, {"role": "assistant", "content": answer}]
        new += [history[-2], {"choices": [{"message": history[-1]}], "model": "small-1"}, history[-1]]
    author.finished()
    compress = zstandard.ZstdCompressor(level=3).compress
    texts = {dumps(value) for value in new}
    return sent, sum(min(len(t), len(compress(t))) for t in texts)


def test_t7_300_growing_steps_take_the_space_of_what_is_new(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "loupe.db")
    sent, unique = grown(store, 300)
    store.gc()
    size = store.size()
    store.close()
    file = (tmp_path / "loupe.db").stat().st_size
    budget = unique + 1024 * size.events
    print(
        f"\nspace: {file} bytes on disk, {size.bodies_stored} in bodies, {unique} unique, {size.events} events, budget {budget}"
    )
    assert file <= budget
    assert sum(len(dumps(messages)) for messages in sent) > 20 * file  # type: ignore[arg-type]


def test_every_request_of_a_growing_run_is_rebuilt_exactly(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "loupe.db")
    sent, _ = grown(store, 120)
    steps = [step for step in load_steps(store.recording("grows")) if step.kind == "llm"]
    assert [step.input["messages"] for step in steps if isinstance(step.input, dict)] == sent
    store.close()


def test_space_grows_in_a_line(tmp_path: Path) -> None:
    def bodies(n: int) -> int:
        store = SqliteStore(tmp_path / f"{n}.db")
        grown(store, n)
        stored = store.size().bodies_stored
        store.close()
        return stored

    assert bodies(240) < 4.4 * bodies(60)
