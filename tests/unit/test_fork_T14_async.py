"""T14 for async agents with tools in tasks: the parent stays as it is, and no tool runs that was not allowed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.policy import Allow
from agentloupe.engine.project import load_steps
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from tests.cases.rec import Rec
from tests.fork_support import exported
from tests.tapes import record_in

ROUNDS = 3
sang: list[tuple[str, int]] = []


@loupe.tool(effect="pure", name="added")
async def added(n: int) -> int:
    await asyncio.sleep(0)
    sang.append(("added", n))
    return n + 1


@loupe.tool(effect="read", name="looked")
async def looked(n: int) -> int:
    await asyncio.sleep(0)
    sang.append(("looked", n))
    return n


@loupe.tool(effect="write", name="sent")
async def sent(n: int) -> str:
    sang.append(("sent", n))
    return f"sent {n}"


def crowd_of(new_from: int) -> Any:
    """An agent of three rounds, each with three tools at once; from a round on it asks what nobody recorded."""

    @loupe.agent(name="crowd")
    async def crowd() -> int:
        ask = Rec().llm("m", lambda body: {"role": "assistant", "content": "go"})
        for n in range(ROUNDS):
            ask({"model": "m", "messages": [{"role": "user", "content": f"round {n}"}]})
            k = n + (10 if n >= new_from else 0)
            await asyncio.gather(added(n=k), looked(n=k), sent(n=k), return_exceptions=True)
        return ROUNDS

    return crowd


@pytest.mark.parametrize("allowed", [[], ["added"], ["added", "looked"]], ids=["none", "one", "two"])
@pytest.mark.parametrize("new", [False, True], ids=["the recorded calls", "calls nobody recorded"])
def test_only_the_allowed_tools_run_and_the_parent_stays(allowed: list[str], new: bool) -> None:
    store = MemoryStore()
    recording = record_in(store, crowd_of(ROUNDS))
    before = exported(store, recording.run_id)
    models = [step.idx for step in load_steps(recording) if step.kind == "llm"]
    assert len(models) == ROUNDS
    live = {name: Allow("a test", read=True) for name in allowed}
    for n, step in enumerate(models):
        sang.clear()
        agent = crowd_of(n if new else ROUNDS)
        made = fork(recording.run_id, agent, from_step=step, store=store, control=False, live=live).candidates[0]
        assert {name for name, _ in sang} == set(allowed)
        assert len(sang) == len(allowed) * (ROUNDS - n), "nothing of the kept part runs"
        answered = 3 - len(allowed)
        counted = made.counts.miss if new else made.counts.cassette
        assert counted == answered * (ROUNDS - n)
        assert exported(store, recording.run_id) == before
