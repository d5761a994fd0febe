"""What all rows share: sizes, a folder for stores, and runs that are made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from agentloupe.store import open_url
from agentloupe.store.sqlite import SqliteStore

T = TypeVar("T")


@dataclass(slots=True)
class Context:
    """One run of the measurements.

    Attributes:
        folder: where stores and cassettes are made; on the disk that is measured.
        scale: 1 for the whole, less for a quick look; sizes that a row is not about are multiplied by it.
        rounds: how many batches each subject gets.
        say: shows progress.
    """

    folder: Path
    scale: float = 1.0
    rounds: int = 7
    say: Callable[[str], None] = lambda _: None
    _made: dict[str, object] = field(default_factory=dict[str, object])
    _stores: list[SqliteStore] = field(default_factory=list[SqliteStore])

    def size(self, whole: int, least: int = 10) -> int:
        """A size under the scale."""
        return max(least, int(whole * self.scale))

    def path(self, name: str) -> Path:
        """A fresh path in the folder."""
        return self.folder / f"{name}-{len(list(self.folder.iterdir()))}"

    def store(self, name: str) -> SqliteStore:
        """A new, empty store in a file of its own."""
        store = open_url(self.path(name).with_suffix(".db"))
        assert isinstance(store, SqliteStore), "a path is a SQLite store"
        self._stores.append(store)
        return store

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Something that several rows look at, made when it is first asked for."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]  # type: ignore[return-value]  # what `make` of this name gave

    def close(self) -> None:
        """Closes all stores."""
        while self._stores:
            self._stores.pop().close()
