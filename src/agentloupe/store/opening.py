"""Opens a store by URL; the implementation is loaded only when it is asked for."""

from __future__ import annotations

from pathlib import Path

from agentloupe.ports.protocols import NewFold, Store
from agentloupe.words.errors import UsageError

__all__ = ["open_url"]


def open_url(
    url: str | Path, *, create: bool = True, read_only: bool = False, new_fold: NewFold | None = None
) -> Store:
    """Opens the store that a URL names: `sqlite:///path`, a plain path (SQLite), or `memory:`.

    Args:
        url: `sqlite:///relative/path`, `sqlite:////absolute/path`, a path, or `memory:`.
        create: make the file (and its folder) when it is not there.
        read_only: never write, not even to bring an old file up to date.
        new_fold: makes views, see `SqliteStore`.

    Raises:
        UsageError: a URL of an unknown kind.
        StoreError, StoreReadOnly, StoreBusy, Corrupt, VersionUnknown: see `SqliteStore`.
    """
    text = str(url)
    if text == "memory:":
        from agentloupe.store.memory import MemoryStore

        return MemoryStore()
    from agentloupe.store.sqlite import SqliteStore

    if text.startswith("sqlite:"):
        if not text.startswith("sqlite:///") or len(text) == len("sqlite:///"):
            raise UsageError(f"store URL {text!r} names no file", hint="write sqlite:///path or a plain path")
        return SqliteStore(text.removeprefix("sqlite:///"), create=create, read_only=read_only, new_fold=new_fold)
    scheme, colon, _ = text.partition("://")
    if colon and scheme.isalnum():
        raise UsageError(f"no store for URLs of kind {scheme}:", hint="write sqlite:///path or a plain path")
    return SqliteStore(text, create=create, read_only=read_only, new_fold=new_fold)
