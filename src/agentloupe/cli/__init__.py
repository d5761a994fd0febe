"""The command line: one module per verb, loaded only when its verb is used.

Exit codes, the same everywhere: 0 pass or done, 1 diverged or a failed check, 2 damaged evidence, 3 could not run or
refused, 64 wrong usage, 130 interrupted by the person.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Never shows a traceback unless `--debug` is given."""
    from agentloupe.cli.app import run

    # No `list(...)` here: the verb's module becomes a name of this package as soon as it is loaded.
    return run([*(sys.argv[1:] if argv is None else argv)])
