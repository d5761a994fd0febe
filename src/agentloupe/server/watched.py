"""A store whose appends are timed and counted: what the server's own worker writes, as the figures for Prometheus tell it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

from agentloupe.ports.pack import Body
from agentloupe.ports.protocols import Durability, NewFold, RunWriter, Store
from agentloupe.server.metrics import Metrics
from agentloupe.words.errors import LoupeError
from agentloupe.words.event import Draft
from agentloupe.words.run import Owner

__all__ = ["watched"]


def watched(store: Store, metrics: Metrics) -> Store:
    """The same store; appends to runs that are started or taken over through it are timed."""
    return cast("Store", _Watched(store, metrics))


class _Watched:
    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    def start(self, run_id: str, new_fold: NewFold, *, owner: Owner, share: str | None = None) -> RunWriter:
        return self._timed(self._store.start(run_id, new_fold, owner=owner, share=share))

    def take_over(
        self, run_id: str, new_fold: NewFold, *, owner: Owner, force: bool = False, ended: bool = False
    ) -> RunWriter:
        return self._timed(self._store.take_over(run_id, new_fold, owner=owner, force=force, ended=ended))

    def _timed(self, writer: RunWriter) -> RunWriter:
        return cast("RunWriter", _Timed(writer, self._metrics))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Timed:
    def __init__(self, writer: RunWriter, metrics: Metrics) -> None:
        self._writer = writer
        self._metrics = metrics

    def append(self, drafts: Sequence[Draft], bodies: Sequence[Body] = (), durability: Durability = "commit") -> None:
        began = time.perf_counter()
        try:
            self._writer.append(drafts, bodies, durability)
        except LoupeError:
            self._metrics.append_failed()
            raise
        self._metrics.appended(time.perf_counter() - began)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)
