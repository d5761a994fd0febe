"""`python -m tests.schedule.campaign [shape ...]`: every shape, many recordings and replays, beside busy processes.

Prints a table; exit code 1 when a single replay went wrong.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from tests.schedule.shapes import EXACT, OUTSIDE
from tests.schedule.trial import Trial, tried

__all__ = ["busy_processes", "main"]

_HEAD = f"{'shape':28}{'replays':>8}{'wrong':>6}{'leaks':>6}{'traces':>8}{'rec ms':>8}{'rep ms':>8}  marks"


@contextmanager
def busy_processes(count: int) -> Generator[None]:
    """That many processes compute beside, so that nothing comes when it is expected."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _row(trial: Trial) -> str:
    recording = 1e3 * trial.record_seconds / max(trial.recordings, 1)
    replaying = 1e3 * trial.replay_seconds / max(trial.replays, 1)
    marks = ", ".join(f"{mark} {count}" for mark, count in sorted(trial.marks.items())) or "none"
    said = f"{marks}; not proven in {trial.guessed} replays" if trial.guessed else marks
    return (
        f"{trial.name:28}{trial.replays:8}{trial.wrong:6}{trial.leaks:6}"
        f"{len(trial.traces):5}/{trial.recordings:<2}{recording:8.1f}{replaying:8.1f}  {said}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.schedule.campaign", description=__doc__)
    parser.add_argument("shapes", nargs="*", help="default: all that must be exact, then those that cannot be")
    parser.add_argument("--recordings", type=int, default=10)
    parser.add_argument("--replays", type=int, default=30, help="of each recording")
    parser.add_argument("--busy", type=int, default=2, help="processes that compute beside")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="what the first wrong replays said")
    chosen = parser.parse_args(arguments)
    logging.getLogger("agentloupe").setLevel(logging.CRITICAL)
    shapes = {shape.__name__: shape for shape in (*EXACT, *OUTSIDE)}
    unknown = [name for name in chosen.shapes if name not in shapes]
    if unknown:
        parser.error(f"unknown shape {unknown[0]}; there are {', '.join(shapes)}")
    wrong = 0
    print(_HEAD, flush=True)
    with busy_processes(chosen.busy):
        for name in chosen.shapes or shapes:
            few = shapes[name] in OUTSIDE
            recordings, replays = (4, 5) if few else (chosen.recordings, chosen.replays)
            trial = tried(name, shapes[name], recordings=recordings, replays=replays, first_seed=chosen.seed)
            print(_row(trial), flush=True)
            wrong += 0 if few else trial.wrong
            if chosen.show:
                print(*trial.said, sep="\n", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
