"""Lines of the user's source around a place that a report names, as they stand now. They are shown, never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

__all__ = ["lines_around"]

_AROUND: Final = 4
_LARGEST: Final = 2_000_000
"""Bytes of a file that is read."""
_WIDEST: Final = 300


def lines_around(root: Path, file: object, line: object) -> list[dict[str, Any]] | None:
    """Some lines before and after a line; `None` where it names no Python file of the project, or one without that line.

    Args:
        root: the project's folder; nothing outside of it is read.
        file: path of the file, as a report names it.
        line: number of the line, from 1.
    """
    if not isinstance(file, str) or not isinstance(line, int) or "\0" in file:
        return None
    folder = root.resolve()
    try:
        path = (folder / file).resolve()
        if path.suffix != ".py" or not path.is_relative_to(folder) or path.stat().st_size > _LARGEST:
            return None
        lines = path.read_text("utf-8", "replace").splitlines()
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return None
    if not 1 <= line <= len(lines):
        return None
    first = max(line - _AROUND, 1)
    shown = lines[first - 1 : line + _AROUND]
    return [{"number": number, "text": text[:_WIDEST]} for number, text in enumerate(shown, first)]
