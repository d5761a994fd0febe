"""All shapes of concurrent program that a replay must reproduce, and those that it cannot vouch for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.schedule.shapes_loops import LOOPS
from tests.schedule.shapes_more import MORE_LOOPS, MORE_THREADS, OUTSIDE
from tests.schedule.shapes_streams import STREAM_LOOPS, STREAM_THREADS
from tests.schedule.shapes_threads import THREADS

__all__ = ["EXACT", "OF_LOOPS", "OF_THREADS", "OUTSIDE"]

OF_LOOPS: list[Callable[[], Any]] = [*LOOPS, *MORE_LOOPS, *STREAM_LOOPS]
OF_THREADS: list[Callable[[], Any]] = [*THREADS, *MORE_THREADS, *STREAM_THREADS]
EXACT = [*OF_LOOPS, *OF_THREADS]
