"""A fork of a 100-step run at its last model call, with a model that answers at once."""

from __future__ import annotations

from typing import Any

from agentloupe.engine.loop import from_llm_call
from agentloupe.engine.overrides import Overrides
from agentloupe.verbs.forking import ForkWishes, fork, fork_run, prepare_fork
from agentloupe.words.step import Step
from bench import clients
from bench.agents import conversations, model_and_tool, recorded
from bench.context import Context
from bench.figures import Figure, Found, Peer, beside
from bench.peers import Absent, rewinding, rewound, tapes
from bench.timing import Batch, by_turns

_STEPS = 100
_NEW = 1024
_PEERS = (
    "agent-rewind lets everything after the fork happen for real and keeps its requests whole; DBOS puts the fork into a queue "
    "that it polls once a second; rewind-agent compares nothing and keeps only the last call; tracefork sees model calls only, swaps the answer of the last one and asks no model for it; "
    "its tools would run for real"
)
_OVERRIDES = Overrides(system_prompt="Answer in one sentence.")


def _fake(messages: list[Any], tools: Any, model: Any, temperature: Any) -> tuple[dict[str, Any], int, int]:
    return {"role": "assistant", "content": "done"}, 10, 2


def measure(context: Context) -> Found:
    """To the new run's id, the whole fork with the generic loop, the whole fork with the agent's own code."""
    store = context.store("fork")
    run = recorded(store, model_and_tool, _STEPS, new=_NEW, most=2 * _STEPS)
    last = [step.idx for step in store.steps(run) if _is_model(step)][-1]

    def to_the_id() -> int:
        wishes = ForkWishes(overrides=_OVERRIDES)
        pending = prepare_fork(run, from_step=last, store=store, provider=from_llm_call(_fake), wishes=wishes)
        assert len(pending.ids) == 1
        return 1

    def generic() -> int:
        made = fork_run(store, run, last, _OVERRIDES, _fake)
        assert made.status == "ok", made.error
        return 1

    def own() -> int:
        done = fork(run, model_and_tool, from_step=last, store=store, overrides=_OVERRIDES)
        assert done.candidates[0].status == "ok", done.candidates[0].error
        return 1

    before = store.size()
    generic()
    after = store.size()
    batches: dict[str, Batch] = {"id": to_the_id, "generic": generic, "own": own}
    for batch in batches.values():
        batch()  # modules that only forks need are loaded
    talk = clients.Talk("model calls", tuple(conversations((_STEPS - 1) // 2, new=_NEW, most=2 * _STEPS)))
    asked, folder, parts = (
        context.written("asked", talk.requests),
        str(context.path("tapes")),
        (tapes.CANNED, tapes.FORKED),
    )
    with clients.server() as url:
        apart = context.parts(parts, "bench.peers.tapes:forks", url, folder, asked, peer=tapes.PEER)
        others = {"rewind": _rewound(context), "rewind-agent": _rewinding(context, url, talk)}
        taken = by_turns({**batches, **others}, context.turns(10))
    dbos_forks = context.aside("bench.peers.dbos_steps:forks", str(context.path("dbos")), _STEPS)
    slow = by_turns({"dbos": dbos_forks, **apart}, 3)
    rewind = beside(
        "agent-rewind, its recording opened, the same program run again", taken, "rewind", lambda one: one.ms
    )
    rewinds = beside(
        "rewind-agent, its model calls through the OpenAI client, the last one live",
        taken,
        "rewind-agent",
        lambda one: one.ms,
    )
    dbos = beside("DBOS, to the result, by the wall clock", slow, "dbos", lambda one: one.wall * 1e3)
    there = (
        beside(
            "tracefork, its tape opened, its model calls through the OpenAI client",
            slow,
            tapes.FORKED,
            lambda one: one.ms,
        ),
        beside("those calls of the bare SDK, answered at once", slow, tapes.CANNED, lambda one: one.ms),
    )
    found = Found()
    for name, target, what, peers in (
        ("id", 5.0, "to the new run's id", ()),
        ("generic", 50.0, "whole, generic loop", ()),
        ("own", 50.0, "whole, the agent's own code run again", (rewind, rewinds, dbos, *there)),
    ):
        figure = Figure(
            row="fork",
            name=what,
            unit="ms",
            measured=taken[name].ms,
            median=taken[name].median * 1e3,
            target=target,
            peers=peers,
            note=_PEERS if peers else "",
        )
        found.figures.append(figure)
    found.figures.append(
        Figure(
            row="fork",
            name="new bodies of a fork, stored",
            unit="KB",
            measured=(after.bodies_stored - before.bodies_stored) / 1e3,
            peers=(Peer("bodies of the parent, stored", before.bodies_stored / 1e3),),
            note="the request at the fork is told by what it shares with the parent's",
        )
    )
    return found


def _rewound(context: Context) -> Batch | None:
    """The same program under agent-rewind: recorded once, forked at its last model call into a file of its own."""
    try:
        return rewound.forking(context.path("rewound"), lambda: context.path("forked"), _STEPS, _NEW)
    except Absent:
        return None


def _rewinding(context: Context, url: str, talk: clients.Talk) -> Batch | None:
    client = clients.bare(url)
    try:
        return rewinding.forking(context.path("rewinding"), lambda: talk.by(client))
    except Absent:
        return None


def _is_model(step: Step) -> bool:
    return step.kind == "llm"
