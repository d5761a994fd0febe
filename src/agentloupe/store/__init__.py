"""Where recordings live: SQLite (one file), memory. Opened by URL with `open_url`."""

from __future__ import annotations

from agentloupe.store.opening import open_url

__all__ = ["open_url"]
