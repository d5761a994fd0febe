"""Waiting for providers that say "later": one bucket for each address, shared by all forks of this process.

A refusal that names its seconds (429 and `Retry-After`) is waited for, as long as patience lasts, and shows among the
tries of the step. What says that the money is used up is never waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from agentloupe.ports.ambient import monotonic_ms
from agentloupe.ports.cancel import Cancel, waiting_for
from agentloupe.ports.protocols import Answer
from agentloupe.ports.schedule import plain
from agentloupe.providers.endpoint import Endpoint
from agentloupe.words.canonical import Json
from agentloupe.words.errors import RateLimited

__all__ = ["Bucket", "Paced", "bucket_of"]

PATIENCE = 60.0
"""Seconds that one model call waits altogether, unless said otherwise."""


class Bucket:
    """Requests to one address: empty until the moment that its provider named. Safe with threads."""

    def __init__(self, clock: Callable[[], float] = monotonic_ms) -> None:
        self._clock = clock
        self._lock = plain.allocate_lock()
        self._until = 0.0

    def hold(self, seconds: float) -> None:
        """Nothing goes out for so long."""
        with self._lock:
            self._until = max(self._until, self._clock() + seconds * 1000)

    def pause(self) -> float:
        """Seconds until something may go out."""
        with self._lock:
            return max(self._until - self._clock(), 0.0) / 1000


_buckets: dict[str, Bucket] = {}
_lock = plain.allocate_lock()


def bucket_of(address: str) -> Bucket:
    """The bucket of an address."""
    with _lock:
        return _buckets.setdefault(address, Bucket())


def _no_one(seconds: float, text: str) -> None:
    del seconds, text


@dataclass(frozen=True, kw_only=True)
class Paced:
    """An endpoint that is asked again when it said "later".

    Attributes:
        endpoint: where requests go.
        patience: seconds that one request may wait altogether.
        cancel: ends the waiting.
        says: told before each waiting: the seconds, and what the provider said.
        bucket: of the endpoint's address.
        wait: how it waits so many seconds.
    """

    endpoint: Endpoint
    patience: float = PATIENCE
    cancel: Cancel | None = None
    says: Callable[[float, str], None] = _no_one
    bucket: Bucket | None = None
    wait: Callable[[float], None] = field(default=plain.sleep, repr=False)

    def send(self, request: Mapping[str, Json]) -> Answer:
        """Sends a request; tries that were refused stand before the last in `tries`, `waited_ms` beside them.

        Raises:
            RateLimited: patience does not last for what the provider asks, or it names no time.
            Cancelled: while it waited.
            ProviderError: see `Endpoint.send`.
        """
        bucket = self.bucket or bucket_of(self.endpoint.url)
        began, waited, tries, said = monotonic_ms(), 0.0, list[Json](), "another request was refused"
        while True:
            pause = bucket.pause()
            if pause:
                if waited + pause > self.patience:
                    raise RateLimited(f"the model is asked again in {pause:.0f} s", status=429, retry_after=pause)
                self.says(pause, said)
                waiting_for(lambda pause=pause: self.wait(pause), self.cancel)
                waited += pause
            at = monotonic_ms()
            try:
                answer = self.endpoint.send(request)
            except RateLimited as later:
                tries.append({"status": later.status, "started_ms": round(at - began, 3), "ms": _since(at)})
                if later.retry_after is None or waited + later.retry_after > self.patience:
                    raise
                said = later.message
                bucket.hold(later.retry_after)
                continue
            return _told(answer, tries, waited, at - began) if tries or waited else answer


def _since(at: float) -> float:
    return round(monotonic_ms() - at, 3)


def _told(answer: Answer, tries: list[Json], waited: float, after: float) -> Answer:
    last = answer.facts.get("tries")
    listed = (
        [{**one, "started_ms": round(after, 3)} for one in last if isinstance(one, dict)]
        if isinstance(last, list)
        else []
    )
    facts: dict[str, Json] = {**answer.facts, "tries": [*tries, *listed], "waited_ms": round(waited * 1000, 3)}
    return replace(answer, facts=facts)
