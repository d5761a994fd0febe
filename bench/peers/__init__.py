"""Programs of others, measured in the same run. They come with `make bench` alone: where one is missing, its line says so."""

from __future__ import annotations

import importlib
from typing import Any


class Absent(Exception):
    """A peer cannot be imported."""


def load(module: str) -> Any:
    """A module of a peer, by name: the types must check without it.

    Raises:
        Absent: it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as wrong:
        raise Absent(module) from wrong
