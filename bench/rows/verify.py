"""Verification: the chain only, with all bodies, and with bodies so large that hashing them is most of the work."""

from __future__ import annotations

import _pydecimal as decimal_module
import argparse
import ast
import difflib
import inspect
import subprocess
import typing
import unittest.mock

from agentloupe.engine.verify import verify
from bench.agents import get, plain_calls, recorded
from bench.context import Context
from bench.figures import Figure, Found, Peer
from bench.rows.machine import sha256
from bench.timing import by_turns


def _sources() -> str:
    """Text that a tool of a coding agent would read: sources of the standard library."""
    modules = (argparse, ast, decimal_module, difflib, inspect, subprocess, typing, unittest.mock)
    return "".join(inspect.getsource(module) for module in modules)


def _large(count: int) -> int:
    """Calls with answers of some 200 KB of source text, each another."""
    whole = _sources()
    from agentloupe.ports import ambient
    from agentloupe.words.call import Call

    for i in range(count):
        at = i * 7919 % (len(whole) - 200_000)
        value = f"{i} {whole[at : at + 200_000]}"
        call = Call(kind="other", name="read", input={"row": i}, encode=lambda v: v, decode=lambda v: v)  # type: ignore[arg-type,return-value]
        ambient.call(call, lambda value=value: value)
    get(0)
    return count


def measure(context: Context) -> Found:
    """Each from a recording that was read before: reading is another row."""
    store = context.store("verify")
    many = store.recording(recorded(store, plain_calls, context.size(10_000, 500)))
    large = store.recording(recorded(store, _large, context.size(60, 8)))
    volume = sum(
        len(store.get([event.output_digest])[event.output_digest]) for event in large.events if event.output_digest
    )

    def chain() -> int:
        assert verify(many, bodies=False).ok
        return len(many.events)

    def full() -> int:
        assert verify(many).ok
        return len(many.events)

    def heavy() -> int:
        assert verify(large).ok
        return volume

    taken = by_turns({"chain": chain, "full": full, "heavy": heavy}, context.rounds)
    sha = sha256(context)
    found = Found()
    for name, what, target in (
        ("chain", "events a second, chain only", 200_000.0),
        ("full", "events a second, with all bodies", 60_000.0),
    ):
        one = taken[name]
        figure = Figure(
            row="verify",
            name=what,
            unit="1/s",
            measured=one.rate,
            median=1 / one.median,
            better="more",
            target=target,
        )
        found.figures.append(figure)
    found.figures.append(
        Figure(
            row="verify",
            name="bytes of large bodies a second, as a share of SHA-256",
            unit="x",
            measured=taken["heavy"].rate / sha.rate,
            median=sha.median / taken["heavy"].median,
            better="more",
            target=0.35,
            peers=(Peer("SHA-256, MB/s", sha.rate / 1e6),),
            note="they are read and decompressed too",
        )
    )
    return found
