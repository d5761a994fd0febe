"""Delivers what waits in a store's outbox: at least once, and in order."""

from __future__ import annotations

import threading
from typing import Final

from agentloupe.ports.faultpoints import reach
from agentloupe.ports.ids import random_hex
from agentloupe.ports.outbox import Outbox, Sink

__all__ = ["publish"]

_AT_ONCE: Final = 200
_EVERY: Final = 0.5


def publish(outbox: Outbox, sink: Sink, *, stop: threading.Event | None = None) -> int:
    """Hands all messages that wait to a sink; returns how many.

    A message is taken out of the outbox when the sink has it for certain. Whoever dies in between delivers it again.

    Args:
        outbox: of a store.
        sink: where they go; the caller closes it.
        stop: given: goes on with what comes later (looks twice a second) until it is set.

    Raises:
        OwnerAlive: another publisher has the outbox (reason `publishing`).
        Exception: whatever the sink raises; what it did not take waits.
    """
    from agentloupe.store.owners import this_process

    token, done = random_hex(16), 0
    outbox.lease(this_process(), token)
    try:
        while True:
            messages = outbox.waiting(_AT_ONCE)
            if messages:
                sink.deliver(messages)
                reach("outbox.after_delivery")
                outbox.delivered(token, messages[-1].number)
                done += len(messages)
            elif stop is None or stop.wait(_EVERY):
                return done
            else:
                outbox.lease(this_process(), token)
    finally:
        outbox.release(token)
