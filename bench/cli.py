"""The command line of the measurements."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import pages
from bench.rows import NAMES
from bench.runner import run

_HERE = Path(__file__).resolve().parent
_LATEST = _HERE / "results" / "latest.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Measures what is asked for. 0: every target is met, 1: some are not, 64: no such row."""
    asked = _parser().parse_args(argv)
    names = [name for name in NAMES if asked.rows is None or name in asked.rows.split(",")]
    if asked.rows is not None and (unknown := set(asked.rows.split(",")) - set(NAMES)):
        print(f"no row {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 64
    if asked.from_json is not None:
        found = json.loads(Path(asked.from_json).read_text("utf-8"))
    else:
        found = run(names, scale=0.1 if asked.quick else 1.0, rounds=asked.rounds or (3 if asked.quick else 7))
        for path in filter(None, (_LATEST, asked.json and Path(asked.json))):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(pages.table(found))
    if asked.write_docs:
        for path in pages.write(found, _HERE.parent / "docs" / "reference"):
            print(f"wrote {path.relative_to(_HERE.parent)}", file=sys.stderr)
    return 1 if any(figure["ok"] is False for figure in found["figures"]) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Agent Loupe beside limits and peers.")
    parser.add_argument("--rows", metavar="A,B", help=f"only these of: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer repetitions")
    parser.add_argument("--rounds", type=int, metavar="N", help="repetitions of each measurement (7; quick: 3)")
    parser.add_argument("--json", metavar="FILE", help="also write the results there")
    parser.add_argument("--from-json", metavar="FILE", help="measure nothing: show results that were written before")
    parser.add_argument("--write-docs", action="store_true", help="make docs/reference/performance.md from the results")
    return parser
