"""Ways in: one reader for each foreign format; which one a file needs is seen from its content.

Further formats come as plug-ins: an installed package names a `ports.Importer` class (or a function that makes one) under
the entry point group `agentloupe.importers`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from agentloupe.importers.files import head_of
from agentloupe.ports.protocols import Importer
from agentloupe.words.errors import LoupeError, UsageError

__all__ = ["GROUP", "detect", "importers"]

GROUP = "agentloupe.importers"
"""Entry point group of plug-ins."""

_BUILT_IN = (
    ("loupe_file", "LoupeFileImporter"),
    ("jsonl", "JsonLinesImporter"),
    ("tau_bench", "TauBenchImporter"),
    ("messages", "MessagesImporter"),
)


def importers() -> tuple[Importer, ...]:
    """All readers, in the order in which they are asked: our own first, then plug-ins by name.

    Raises:
        LoupeError: a plug-in cannot be loaded; names it (reason `plugin`).
    """
    own = [cast("Importer", getattr(import_module(f"{__name__}.{module}"), name)()) for module, name in _BUILT_IN]
    return (*own, *_plugged())


@cache
def _plugged() -> tuple[Importer, ...]:
    found: list[Importer] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            found.append(cast("Importer", entry.load()()))
        except Exception as wrong:
            raise LoupeError(
                f"the importer {entry.name!r} ({entry.value}) cannot be loaded: {type(wrong).__name__}",
                hint="update or remove the package that brings it",
                reason="plugin",
            ) from wrong
    return tuple(found)


def detect(path: Path, wanted: str | None = None) -> Importer:
    """The reader for a file, by its content; or the one of the format that is `wanted`.

    Raises:
        NotFound: there is no such file.
        UsageError: the format is not known; the message lists those that are (reason `unknown_format`).
    """
    known = importers()
    names = ", ".join(importer.format for importer in known)
    if wanted is not None:
        named = next((importer for importer in known if importer.format == wanted), None)
        if named is None:
            raise UsageError(f"no format is named {wanted!r}", hint=f"there are {names}", reason="unknown_format")
        return named
    head = head_of(path)
    found = next((importer for importer in known if importer.detects(head)), None)
    if found is None:
        what = "is empty" if not head.strip() else "has none of the formats that can be read"
        raise UsageError(f"{path} {what}", hint=f"there are {names}", reason="unknown_format")
    return found
