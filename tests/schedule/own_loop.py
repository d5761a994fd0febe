"""The smallest event loop that is not asyncio's: nothing of `asyncio.base_events` is in it."""

from __future__ import annotations

import asyncio
import heapq
import time
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any


class OwnLoop(asyncio.AbstractEventLoop):
    """Runs callbacks, tasks and timers of one thread; no sockets, no threads."""

    def __init__(self) -> None:
        self._soon: deque[asyncio.Handle] = deque()
        self._timers: list[asyncio.TimerHandle] = []
        self._stopping = False
        self._closed = False

    def get_debug(self) -> bool:
        return False

    def time(self) -> float:
        return time.monotonic()

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        self._soon.append(asyncio.Handle(callback, args, self, context))
        return self._soon[-1]

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, timer)
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> Any:
        return asyncio.Task(coro, loop=self, **options)

    def run_forever(self) -> None:
        events._set_running_loop(self)
        try:
            while not self._stopping:
                self._once()
        finally:
            self._stopping = False
            events._set_running_loop(None)

    def _once(self) -> None:
        if not self._soon and self._timers:
            time.sleep(max(0.0, self._timers[0].when() - self.time()))
        while self._timers and (self._timers[0].cancelled() or self._timers[0].when() <= self.time()):
            self._soon.append(heapq.heappop(self._timers))
        for _ in range(len(self._soon)):
            handle = self._soon.popleft()
            if not handle.cancelled():
                handle._run()

    def run_until_complete(self, future: Any) -> Any:
        task: asyncio.Future[Any] = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(lambda _: self.stop())
        self.run_forever()
        return task.result()

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise AssertionError(context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass
