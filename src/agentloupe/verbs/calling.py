"""Calls a function of a module as a program of its own: `python -m agentloupe.verbs.calling MODULE:FUNCTION WORDS...`."""

from __future__ import annotations

import inspect
import sys

from agentloupe.verbs import yielding
from agentloupe.verbs.instrument import as_agent
from agentloupe.verbs.replaying import agent_named, to_the_end
from agentloupe.words.errors import LoupeError

__all__ = ["main"]


def main() -> int:
    """Calls the function with the words, as an agent; returns the exit code."""
    try:
        agent = as_agent(agent_named(sys.argv[1]))
    except LoupeError as wrong:
        sys.stderr.write(f"agentloupe: {wrong}\n")
        return wrong.exit_code
    result = yielding.all_of(agent(*sys.argv[2:]))
    if inspect.isawaitable(result):
        to_the_end(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
