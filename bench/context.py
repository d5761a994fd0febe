"""What all rows share: sizes, a folder for stores, and runs that are made once."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentloupe.store import open_url
from agentloupe.store.sqlite import SqliteStore
from bench.aside import Aside, Part, python_of
from bench.peers import Absent

_QUICK = 0.1


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
    _open: ExitStack = field(default_factory=ExitStack)

    def size(self, whole: int, least: int = 10) -> int:
        """A size under the scale."""
        return max(least, int(whole * self.scale))

    def path(self, name: str) -> Path:
        """A fresh path in the folder."""
        return self.folder / f"{name}-{len(list(self.folder.iterdir()))}"

    def written(self, name: str, value: object) -> str:
        """The path of a fresh file that holds a value as JSON, for processes of others."""
        path = self.path(name)
        path.write_text(json.dumps(value), "utf-8")
        return str(path)

    def store(self, name: str) -> SqliteStore:
        """A new, empty store in a file of its own."""
        store = open_url(self.path(name).with_suffix(".db"))
        assert isinstance(store, SqliteStore), "a path is a SQLite store"
        self._open.callback(store.close)
        return store

    def ends(self, close: Callable[[], object]) -> None:
        """Has something done when the measurements are over."""
        self._open.callback(close)

    def turns(self, least: int = 0) -> int:
        """How many batches each subject gets where so many are wanted at least; a look with small sizes gets its rounds."""
        return max(self.rounds, least) if self.scale >= _QUICK else self.rounds

    @property
    def few(self) -> int:
        """How many batches each subject gets where one takes long."""
        return max(3, self.rounds // 2) if self.scale >= _QUICK else self.rounds

    def aside(self, what: str, *args: Any, peer: str | None = None) -> Aside | None:
        """A subject in a process of its own, see `Aside`; `None` where what it needs is not installed.

        `peer`: the environment that it lives in, where it has one of its own.
        """
        try:
            made = Aside(what, *args) if peer is None else Aside(what, *args, python=python_of(peer))
        except Absent:
            return None
        self._open.callback(made.close)
        return made

    def parts(self, names: Collection[str], what: str, *args: Any, peer: str) -> dict[str, Part | None]:
        """Several subjects that share a process, by name; each is `None` where the peer is not installed."""
        made = self.aside(what, *args, peer=peer)
        return {name: None if made is None else Part(made, name) for name in names}

    def close(self) -> None:
        """Closes all stores, and ends what was measured aside."""
        self._open.close()
