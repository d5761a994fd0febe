"""Runs rows one after another, each in a process of its own, shows what they come to, and gathers it."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.apart import Failed, Row, measured_apart
from bench.figures import Curve, Figure
from bench.rows import NAMES, TITLES

Say = Callable[[str], None]


def run(
    names: Sequence[str] = NAMES,
    *,
    scale: float = 1.0,
    rounds: int = 7,
    say: Say | None = None,
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
    measured: Row = measured_apart,
) -> dict[str, Any]:
    """Measures rows; the results as JSON.

    `keep` gets what there is after each row, so that a run that is stopped has not been for nothing. A row that fails
    is told and does not stop the others. `measured`: how one is measured.
    """
    say = say or _to_stderr
    figures: list[Figure] = []
    curves: list[Curve] = []
    failures: dict[str, str] = {}
    began_all = time.perf_counter()
    for name in names:
        say(TITLES[name])
        began, worked = time.perf_counter(), _processor_time()
        try:
            found = measured(name, scale, rounds)
        except Failed as failed:
            failures[name] = str(failed)
            say(f"  FAILED: {failed}")
        else:
            for figure in found.figures:
                say(f"  {line(figure)}")
            figures += found.figures
            curves += found.curves
        say(f"  ({time.perf_counter() - began:.0f} s, {_processor_time() - worked:.0f} s of processor time)")
        keep(_results(scale, rounds, figures, curves, failures))
    say(f"all in {time.perf_counter() - began_all:.0f} s, {_processor_time():.0f} s of processor time")
    return _results(scale, rounds, figures, curves, failures)


def _processor_time() -> float:
    """Seconds that this process and those that it has started and that have ended took."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _results(
    scale: float, rounds: int, figures: Sequence[Figure], curves: Sequence[Curve], failures: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "machine": machine(),
        "scale": scale,
        "rounds": rounds,
        "figures": [figure.as_json() for figure in figures],
        "curves": [curve.as_json() for curve in curves],
        "failures": dict(failures),
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
        told += f"\n      {peer.name}: {peer.why if peer.value is None else number(peer.value)}"
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
