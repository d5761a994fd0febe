"""Runs with their costs: the user's `prices.json` over the price library, found the same way by every verb."""

from __future__ import annotations

import os
from decimal import Decimal
from functools import lru_cache
from pathlib import Path

from agentloupe.engine.costs import PriceTable, price_trace
from agentloupe.ports.protocols import Store
from agentloupe.ports.settings import find_root
from agentloupe.words.call import Attrs
from agentloupe.words.run import Run
from agentloupe.words.step import Trace

__all__ = ["call_price", "price_table", "priced_run", "priced_trace", "prices_file"]


def price_table() -> PriceTable:
    """Prices of `LOUPE_PRICES`, else of `prices.json` in the project's folder, else of the library alone.

    Raises:
        ConfigError: the file is not a price table, or `LOUPE_PRICES` names no file.
    """
    path = prices_file()
    if path is None:
        return _table(None, None)
    try:
        found = path.stat()
    except OSError:
        return PriceTable.load(path)  # raises, and says why
    return _table(str(path), (found.st_mtime_ns, found.st_size, found.st_ino))


def call_price(facts: Attrs) -> Decimal | None:
    """Cost of a model call from its facts, by the prices of now; `None` where it is not known."""
    model, provider = facts.get("model"), facts.get("provider")
    return price_table().cost(
        model if isinstance(model, str) else None,
        facts.get("usage"),
        provider=provider if isinstance(provider, str) else None,
    )


def prices_file(root: Path | None = None) -> Path | None:
    """The file with the user's own prices, as `price_table` finds it; `None` where there is none."""
    named = os.environ.get("LOUPE_PRICES")
    if named:
        return Path(named)
    beside = (root or find_root()) / "prices.json"
    return beside if beside.is_file() else None


@lru_cache(maxsize=4)
def _table(path: str | None, _version: object) -> PriceTable:
    """A file is read again when it was written again: a server lives longer than a price."""
    return PriceTable.load(None if path is None else Path(path))


def priced_trace(trace: Trace) -> Trace:
    """The trace with costs: each step's, the whole path's, and what was newly spent.

    Where the steps are gone (a deleted run) nothing is known of them, so costs are unknown.
    """
    if trace.run.step_count and not trace.steps:
        return trace
    return price_trace(trace, price_table())


def priced_run(store: Store, run: Run) -> Run:
    """The run's row with its costs; its steps are read for that."""
    return priced_trace(Trace(run, tuple(store.steps(run.id)))).run
