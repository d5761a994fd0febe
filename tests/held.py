"""A part of programs that are ended while they wait."""

from __future__ import annotations

__all__ = ["HELD"]

HELD = """
import pathlib, threading

HERE = pathlib.Path(__file__).parent

def held():
    "Waits for longer than anybody would, and says so once; where a file `deaf` lies, it lets nothing interrupt it."
    said = False
    while True:
        try:
            if not said:
                said = True
                open(HERE / "reached", "w").close()
            threading.Event().wait(600)
        except BaseException:
            if not (HERE / "deaf").exists():
                raise
"""
"""Text that stands at the beginning of such a program: `held()`, and `HERE`, the folder that it lies in."""
