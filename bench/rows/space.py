"""What 300 steps with a growing context take on disk, beside the compressed size of what was really new."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path

import orjson
import zstandard

from agentloupe.store.sqlite import SqliteStore
from bench.agents import MODEL, answer, ask, conversations, recorded
from bench.aside import ROOT, python_of
from bench.context import Context
from bench.figures import Figure, Found, Peer
from bench.peers import Absent, saver, tapes

_STEPS = 300
_AN_EVENT = 1024


def _agent(steps: int) -> int:
    for i, request in enumerate(conversations(steps, most=10**9)):
        ask(request, answer(512, i))
    return steps


def unique_bodies(steps: int) -> tuple[int, int]:
    """(bytes of everything new, each compressed by itself at level 3; bytes of every request whole)."""
    compress = zstandard.ZstdCompressor(level=3).compress
    seen: set[bytes] = set()
    whole = 0
    for i, request in enumerate(conversations(steps, most=10**9)):
        whole += len(orjson.dumps(request))
        seen.update(orjson.dumps(part) for part in (*request["messages"], *request["tools"], {"model": MODEL}))
        seen.add(orjson.dumps(answer(512, i)))
    return sum(min(len(text), len(compress(text))) for text in seen), whole


def file_bytes(store: SqliteStore) -> int:
    """Size of the store's file with everything in it."""
    path = Path(store.path)
    conn = sqlite3.connect(path)
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    conn.close()
    return path.stat().st_size


def _saved(context: Context) -> Peer:
    """A checkpoint holds the whole state, so that messages are kept once for each step after them."""
    name = "LangGraph's SqliteSaver, messages as the state"
    try:
        return Peer(name, saver.stored(context.path("saver"), conversations(_STEPS, most=10**9)) / 1e3)
    except Absent:
        return Peer(name, None)


def _taped(context: Context) -> list[Peer]:
    """The same calls, recorded where the OpenAI client sends them."""
    try:
        python = python_of(tapes.PEER)
    except Absent:
        return [Peer(label, None) for label in tapes.KEEPING.values()]
    exchanges = ((request, answer(512, i)) for i, request in enumerate(conversations(_STEPS, most=10**9)))
    given, folder = context.written("exchanges", list(exchanges)), str(context.path("tapes"))
    sizes = json.loads(subprocess.check_output([python, "-m", tapes.__name__, "stored", folder, given], cwd=ROOT))
    return [Peer(label, sizes[keeping] / 1e3) for keeping, label in tapes.KEEPING.items()]


def measure(context: Context) -> Found:
    """The file, and what lies in it."""
    store, empty = context.store("space"), context.store("empty")
    before = file_bytes(empty)
    run = recorded(store, _agent, _STEPS)
    took = file_bytes(store)
    events = len(store.recording(run).events)
    bodies, whole = unique_bodies(_STEPS)
    size = store.size()
    found = Found()
    found.figures.append(
        Figure(
            row="space",
            name="the whole file",
            unit="KB",
            measured=took / 1e3,
            target=(bodies + events * _AN_EVENT) / 1e3,
            peers=(
                Peer("unique bodies, zstd 3", bodies / 1e3),
                Peer("every request kept whole, as JSON", whole / 1e3),
                _saved(context),
                *_taped(context),
            ),
            note=f"target: unique bodies at zstd level 3 + 1 KB for each of {events:,} events; an empty file has {before / 1e3:.0f} KB",
        )
    )
    found.figures.append(
        Figure(
            row="space",
            name="beyond the unique bodies, for each event",
            unit="bytes",
            measured=(took - bodies) / events,
            target=_AN_EVENT,
        )
    )
    found.figures.append(
        Figure(
            row="space",
            name="stored bodies",
            unit="KB",
            measured=size.bodies_stored / 1e3,
            peers=(Peer("before compression, shared", size.bodies_whole / 1e3),),
        )
    )
    return found
