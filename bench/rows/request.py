"""The whole request of a late step of a 10,000-step run: 500 messages, rebuilt from the store."""

from __future__ import annotations

from agentloupe.store.sqlite import SqliteStore
from bench.agents import model_and_tool, recorded
from bench.context import Context
from bench.figures import Figure, Found
from bench.timing import Batch, by_turns

STEPS = 10_000
_MESSAGES = 500


def long_run(context: Context) -> tuple[SqliteStore, str]:
    """A run of 10,000 steps whose last conversation has 500 messages."""
    context.say("recording a run of 10,000 steps")
    store = context.store("long")
    return store, recorded(store, model_and_tool, context.size(STEPS, 600), new=400, last=_MESSAGES)


def measure(context: Context) -> Found:
    """Steps with 500, 250 and 20 messages."""
    store, run = long_run(context)
    recording = store.recording(run)
    models = [step for step in store.steps(run) if step.kind == "llm"]
    batches: dict[str, Batch] = {}
    sizes: dict[str, int] = {}
    for back in (1, _MESSAGES // 4, _MESSAGES // 2 - 10):
        digest = models[-back].input_digest
        request = recording.body(digest)
        assert isinstance(request, dict)
        messages = request["messages"]
        assert isinstance(messages, list)
        name = f"{len(messages)} messages"

        def rebuilt(digest: str | None = digest) -> int:
            for _ in range(5):
                store.get([])  # a connection is open
                recording.body(digest)
            return 5

        batches[name] = rebuilt
        sizes[name] = len(messages)
    taken = by_turns(batches, context.turns(10))
    found = Found()
    for name, one in taken.items():
        found.figures.append(
            Figure(
                row="request",
                name=name,
                unit="ms",
                measured=one.ms,
                median=one.median * 1e3,
                target=5.0,
            )
        )
    return found
