"""agent-rewind around a whole program: its decorators, its recording, its fork.

A fork runs the program again with recorded answers up to a step; whatever comes after is done for real. The kept part is
copied into the fork's own file. There is no policy for tools, and no answer is looked up for calls that come after.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.agents import answer, conversations
from bench.peers import load
from bench.timing import Batch


def forking(path: Path, fresh: Callable[[], Path], steps: int, new: int) -> Batch:
    """Forks of `model_and_tool` with so many steps, at its last model call; `fresh` gives paths. Raises `Absent`."""
    rewind: Any = load("rewind")

    @rewind.llm(name="ask")
    def ask(request: dict[str, Any]) -> dict[str, Any]:
        return answer(new // 2, len(request["messages"]) // 2)

    @rewind.tool(name="look_up")
    def look_up(row: int) -> dict[str, object]:
        return {"row": row, "text": "some twenty characters"}

    pairs = (steps - 1) // 2

    def program() -> None:
        for i, request in enumerate(conversations(pairs, new=new, most=2 * steps)):
            ask(request)
            look_up(i)

    with rewind.record(path):
        program()

    def batch() -> int:
        with rewind.fork(path, at=2 * pairs - 2, save_as=fresh()) as session:
            program()
        assert len(session.new_events) == 2, "the last model call and its tool"
        return 1

    return batch
