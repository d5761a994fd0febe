"""The command line of the measurements."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import pages
from bench.apart import measured_apart
from bench.rows import NAMES
from bench.runner import run

_HERE = Path(__file__).resolve().parent
_LATEST = _HERE / "results" / "latest.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Measures what is asked for. 0: every target is met, 1: some are not, 2: a row failed, 64: no such row."""
    asked = _parser().parse_args(argv)
    names = [name for name in NAMES if asked.rows is None or name in asked.rows.split(",")]
    if asked.rows is not None and (unknown := set(asked.rows.split(",")) - set(NAMES)):
        print(f"no row {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 64
    if asked.from_json is not None:
        found = _merged([json.loads(Path(path).read_text("utf-8")) for path in asked.from_json])
    else:
        kept = [_LATEST, *([Path(asked.json)] if asked.json else [])]
        scale, rounds = (0.1, 3) if asked.quick else (1.0, 7)
        found = run(
            names,
            scale=scale,
            rounds=asked.rounds or rounds,
            keep=lambda results: _keep(results, kept),
            measured=measured_apart,
        )
    print(pages.table(found))
    if asked.write_docs:
        for path in pages.write(found, _HERE.parent / "docs" / "reference"):
            print(f"wrote {path.relative_to(_HERE.parent)}", file=sys.stderr)
    if found["failures"]:
        return 2
    return 1 if any(figure["ok"] is False for figure in found["figures"]) else 0


def _keep(results: dict[str, Any], paths: Sequence[Path]) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def _merged(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Results of several runs as one: of each row those of the last run that measured it."""
    whole: dict[str, Any] = {**several[0], "runs": len(several), "rounds": max(one["rounds"] for one in several)}
    for other in several[1:]:
        measured = {one["row"] for one in other["figures"]}
        before = {name: why for name, why in whole["failures"].items() if name not in measured}
        whole["failures"] = before | other["failures"]
        for kind in ("figures", "curves"):
            rows = {one["row"] for one in other[kind]}
            whole[kind] = [one for one in whole[kind] if one["row"] not in rows] + other[kind]
    return whole


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Agent Loupe beside limits and peers.")
    parser.add_argument("--rows", metavar="A,B", help=f"only these of: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer repetitions")
    parser.add_argument("--rounds", type=int, metavar="N", help="repetitions of each measurement (7; quick: 3)")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--from-json", metavar="FILE", nargs="+", help="measure nothing: show results of before")
    parser.add_argument("--write-docs", action="store_true", help="make docs/reference/performance.md from the results")
    return parser
