"""Killed programs whose tools can be asked: scripts, and runs of the plain loop, settle by themselves and go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.effects import open_effects
from agentloupe.verbs.forkfamily import ForkWishes
from agentloupe.verbs.looping import run_loop
from agentloupe.verbs.resuming import resume
from tests.faults.test_resume import python
from tests.tapes import sequence_of

pytestmark = pytest.mark.faults

SHOP = """
import asyncio, json, os, signal, sys
from pathlib import Path
import agentloupe as loupe

bank = Path("bank.jsonl")

def entries():
    return [json.loads(line) for line in bank.read_text().splitlines()] if bank.exists() else []

async def find(key):
    await asyncio.sleep(0)
    found = [entry for entry in entries() if entry["key"] == key]
    return loupe.Done(found[0]["charge"], external_id=found[0]["charge"]) if found else loupe.NotDone()

@loupe.tool(effect="write", lookup=find)
def charge(order):
    if os.environ.get("DIE") == f"before {order}":
        os.kill(os.getpid(), signal.SIGKILL)
    with bank.open("a") as out:
        out.write(json.dumps({"key": loupe.idempotency_key(), "charge": f"ch_{order}"}) + "\\n")
    if os.environ.get("DIE") == f"after {order}":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"ch_{order}"

@loupe.agent
def shop(orders):
    return [charge(order=order) for order in orders]

if __name__ == "__main__":
    print(json.dumps(shop(sys.argv[1:])))
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", [("-m", "agentloupe", "resume", "last", "--"), None])
def test_a_killed_shop_charges_each_order_once(workdir: Path, when: str, how: tuple[str, ...] | None) -> None:
    """As a script, whose tools are declared when it has begun, and as an agent by its name."""
    (workdir / "shop.py").write_text(SHOP, "utf-8")
    script = ("python", "shop.py", "A", "B")
    killed = python(workdir, "-m", "agentloupe", "run", "--", *script, die=f"{when} B")
    assert killed.returncode != 0
    again = (*how, *script) if how else ("-m", "agentloupe", "resume", "last", "--code", "shop:shop")
    done = python(workdir, *again)
    assert done.returncode == 0, done.stderr
    charges = [json.loads(line) for line in (workdir / "bank.jsonl").read_text().splitlines()]
    assert [entry["charge"] for entry in charges] == ["ch_A", "ch_B"]
    listed = python(workdir, "-m", "agentloupe", "effects", "--json")
    assert json.loads(listed.stdout)["items"] == []
    if how:
        assert '["ch_A", "ch_B"]' in done.stdout


sent: dict[str, str] = {}


def was_sent(key: str) -> loupe.Done | loupe.NotDone:
    return loupe.Done(sent[key]) if key in sent else loupe.NotDone()


@loupe.tool(effect="write", lookup=was_sent)
def send(text: str) -> str:
    key = loupe.idempotency_key()
    assert key not in sent, "sent twice"
    sent[key] = f"sent {text}"
    return sent[key]


def model(messages: list[Any], tools: object, name: object, temperature: object) -> Any:
    if messages[-1]["role"] == "tool":
        return {"role": "assistant", "content": messages[-1]["content"]}, None, None
    asked = {"name": "send", "arguments": '{"text": "hello"}'}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": asked}]}, None, None


def cut(store: Store, after: Callable[[Any], int]) -> MemoryStore:
    recording = store.recording("loop-1")
    made = MemoryStore()
    made.insert("loop-1", recording.events[: after(recording)], recording.get, Projector)
    return made


@pytest.mark.parametrize("happened", [True, False])
def test_a_killed_run_of_the_plain_loop_sends_once(happened: bool) -> None:
    sent.clear()
    store = MemoryStore()
    run_loop(model, [send], model="m", question="q", store=store, run_id="loop-1")
    key = next(iter(sent))
    if not happened:
        sent.clear()
    held = cut(store, lambda recording: sequence_of(recording, "tool.started", "send"))
    (effect,) = open_effects(held).items
    assert (effect.lookup, effect.idempotency_key) == (True, key)
    from agentloupe.engine.loop import from_llm_call

    done = resume("loop-1", store=held, provider=from_llm_call(model), wishes=ForkWishes(functions={"send": send}))
    assert done.result == {"role": "assistant", "content": "sent hello"}
    assert sent == {key: "sent hello"}
    assert open_effects(held).items == ()
    assert held.rebuild("loop-1", Projector) == []
