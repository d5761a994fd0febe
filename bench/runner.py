"""Runs rows one after another, shows what they come to, and gathers it."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

from bench.context import Context
from bench.figures import Curve, Figure, Found
from bench.rows import NAMES, TITLES
from bench.timing import PACE, pace_since

Say = Callable[[str], None]
_PACED = frozenset({"us", "ms", "1/s"})


class _Row(Protocol):
    def measure(self, context: Context) -> Found: ...


def row(name: str) -> _Row:
    """The module of a row. Raises `KeyError` for one that there is not."""
    if name not in NAMES:
        raise KeyError(name)
    return cast("_Row", importlib.import_module(f"bench.rows.{name}"))


def run(
    names: Sequence[str] = NAMES,
    *,
    scale: float = 1.0,
    rounds: int = 7,
    say: Say | None = None,
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Measures rows; the results as JSON. Everything that is made on the way is removed again.

    `keep` gets what there is after each row, so that a run that is stopped has not been for nothing.
    """
    say = say or _to_stderr
    folder = Path(tempfile.mkdtemp(prefix="loupe-bench-"))
    context = Context(folder, scale=scale, rounds=rounds, say=lambda text: say(f"  ... {text}"))
    figures: list[Figure] = []
    curves: list[Curve] = []
    try:
        rows = {name: row(name) for name in names}  # loaded at once: the code may be edited meanwhile
        for name, measured in rows.items():
            say(TITLES[name])
            began, first = time.perf_counter(), len(PACE)
            found = measured.measure(context)
            pace = pace_since(first)
            mine = [replace(f, pace=pace) if f.unit in _PACED and f.paces else f for f in found.figures]
            for figure in mine:
                say(f"  {line(figure)}")
            say(f"  ({time.perf_counter() - began:.0f} s)")
            figures += mine
            curves += found.curves
            keep(_results(scale, rounds, figures, curves))
    finally:
        context.close()
        shutil.rmtree(folder, ignore_errors=True)
    return _results(scale, rounds, figures, curves)


def _results(scale: float, rounds: int, figures: Sequence[Figure], curves: Sequence[Curve]) -> dict[str, Any]:
    return {
        "machine": machine(),
        "scale": scale,
        "rounds": rounds,
        "figures": [figure.as_json() for figure in figures],
        "curves": [curve.as_json() for curve in curves],
    }


def machine() -> Mapping[str, Any]:
    """What the figures were measured on, without anything that names it."""
    import orjson
    import zstandard

    import agentloupe

    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "orjson": orjson.__version__,
        "zstandard": zstandard.__version__,
        "agentloupe": agentloupe.__version__,
    }


def line(figure: Figure) -> str:
    """A figure for the terminal."""
    told = f"{figure.name}: {number(figure.measured)} {figure.unit}".rstrip()
    if figure.target is not None:
        word = "ok" if figure.ok else "MISSED"
        told += f"  (target {bound(figure)}, {number(figure.ratio or 0)} x, at reference pace {number(figure.paced or 0)} x)  {word}"
    for peer in figure.peers:
        told += f"\n      {peer.name}: {number(peer.value)}"
    return told


def bound(figure: Figure) -> str:
    """A target with its direction."""
    sign = "<=" if figure.better == "less" else ">="
    return f"{sign} {number(figure.target or 0)}"


def number(value: float) -> str:
    """Three figures that count, thousands apart."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
