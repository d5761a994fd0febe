"""Two runs of 10,000 steps, aligned step by step."""

from __future__ import annotations

from agentloupe.engine.compare import Comparison
from agentloupe.engine.costs import PriceTable
from agentloupe.verbs.comparing import compare
from bench.agents import answer, ask, conversations, look_up, model_and_tool, recorded
from bench.context import Context
from bench.figures import Figure, Found
from bench.rows.request import STEPS
from bench.timing import by_turns


def _other(steps: int) -> int:
    """The same program, which parts at a third of its way and makes a detour now and then."""
    pairs = (steps - 1) // 2
    for i, request in enumerate(conversations(pairs, new=200, most=20)):
        ask(request, answer(100, i if i < pairs // 3 else i + 7))
        look_up(i if i % 10 else i + 1)
        if i % 50 == 49:
            look_up(-i)
    return steps


def measure(context: Context) -> Found:
    """A run beside its repetition, and beside one that goes another way."""
    context.say("recording three runs of 10,000 steps")
    store = context.store("compare")
    steps = context.size(STEPS, 200)
    one, same = recorded(store, model_and_tool, steps, new=200), recorded(store, model_and_tool, steps, new=200)
    other = recorded(store, _other, steps)
    table = PriceTable.load()

    def beside(right: str) -> int:
        found = compare(one, right, store=store, prices=table)
        assert isinstance(found, Comparison)
        return 1

    taken = by_turns({"same": lambda: beside(same), "other": lambda: beside(other)}, context.few)
    found = Found()
    for name, what in (("same", "beside its repetition"), ("other", "beside a run that parts and makes detours")):
        figure = Figure(
            row="compare",
            name=f"{steps:,} steps {what}",
            unit="ms",
            measured=taken[name].ms,
            median=taken[name].median * 1e3,
            target=1000.0,
        )
        found.figures.append(figure)
    return found
