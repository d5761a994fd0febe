"""Counts and times for Prometheus, without bodies, names of runs, or anything else that a user wrote."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HELP", "Histogram", "Measured", "Metrics", "Sample", "exposition"]

_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_APPENDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0)
_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure: its name, its labels, its value."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class Histogram:
    """How often something took how long, or lay how far. Not safe with threads by itself."""

    bounds: Sequence[float] = _BUCKETS
    counts: list[int] = field(default_factory=list[int])
    whole: int = 0
    total: float = 0.0

    def add(self, value: float) -> None:
        """Counts one."""
        self.counts = self.counts or [0] * len(self.bounds)
        for at, bound in enumerate(self.bounds):
            self.counts[at] += value <= bound
        self.whole += 1
        self.total += value

    def samples(self, name: str, labels: Mapping[str, str] | None = None) -> list[Sample]:
        """As Prometheus takes it."""
        own = dict(labels or {})
        counts = self.counts or [0] * len(self.bounds)
        found = [Sample(f"{name}_bucket", n, {**own, "le": str(le)}) for le, n in zip(self.bounds, counts, strict=True)]
        found.append(Sample(f"{name}_bucket", self.whole, {**own, "le": "+Inf"}))
        return [*found, Sample(f"{name}_count", self.whole, own), Sample(f"{name}_sum", self.total, own)]


@dataclass(slots=True)
class Metrics:
    """Requests and appends since the server began. Safe with threads."""

    _requests: dict[_Labels, int] = field(default_factory=dict[_Labels, int])
    _times: dict[str, Histogram] = field(default_factory=dict[str, Histogram])
    _appends: Histogram = field(default_factory=lambda: Histogram(_APPENDS))
    _failed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request."""
        labels = (("method", method), ("route", route), ("status", str(status)))
        with self._lock:
            self._requests[labels] = self._requests.get(labels, 0) + 1
            self._times.setdefault(route, Histogram()).add(seconds)

    def appended(self, seconds: float) -> None:
        """Counts an append of events."""
        with self._lock:
            self._appends.add(seconds)

    def append_failed(self) -> None:
        """Counts an append that the store refused."""
        with self._lock:
            self._failed += 1

    def samples(self) -> list[Sample]:
        """What was counted."""
        with self._lock:
            found = [
                Sample("loupe_http_requests_total", count, dict(labels)) for labels, count in self._requests.items()
            ]
            for route, times in self._times.items():
                found += times.samples("loupe_http_request_seconds", {"route": route})
            found += self._appends.samples("loupe_event_append_seconds")
            found.append(Sample("loupe_event_appends_failed_total", self._failed))
        return found


@dataclass(frozen=True, slots=True)
class Measured:
    """Middleware that counts requests by the route that answered; a path that has none counts as `other`."""

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands on, and counts when the answer has been sent."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, sent)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.request(scope["method"], route, status, time.perf_counter() - began)


HELP: Final[Mapping[str, tuple[str, str]]] = {
    "loupe_runs": ("gauge", "Runs that are stored, by coverage: full ones can be replayed."),
    "loupe_runs_by_status": ("gauge", "Runs that are stored, by status."),
    "loupe_runs_with_forks": ("gauge", "Runs that forks were made of."),
    "loupe_runs_with_misses": ("gauge", "Forks that asked their cassette for something that was never recorded."),
    "loupe_jobs": ("gauge", "Jobs, by status."),
    "loupe_queue_depth": ("gauge", "Jobs that wait for a worker."),
    "loupe_replays": ("gauge", "Replays of the last 500 that were done as jobs, by verdict and by commit of the code."),
    "loupe_replay_divergence_position": ("histogram", "Where those replays diverged, as a share of the recording."),
    "loupe_recent_runs": ("gauge", "The newest runs that the figures of recent runs are about."),
    "loupe_recent_runs_without_snapshot": (
        "gauge",
        "Of those, runs that do not say which code and packages they ran on.",
    ),
    "loupe_recent_effects_without_receipt": ("gauge", "Of those, effects that began and whose outcome nobody saw."),
    "loupe_recent_values_dropped": (
        "gauge",
        "Of those, values of clock, chance, ids and environment that were not kept, since the queue of what waits was full.",
    ),
    "loupe_recent_forks": ("gauge", "Of those, forks."),
    "loupe_recent_fork_misses": ("gauge", "Misses of those forks."),
    "loupe_recent_cost": (
        "gauge",
        "What those runs newly spent, as far as prices are known, in the currency of the prices.",
    ),
    "loupe_event_append_seconds": ("histogram", "Time to write events of a run down, of the server's own worker."),
    "loupe_event_appends_failed_total": ("counter", "Appends of the server's own worker that the store refused."),
    "loupe_http_requests_total": ("counter", "Requests, by route and status."),
    "loupe_http_request_seconds": ("histogram", "Time to answer, by route."),
}
"""Every figure: its type, and what it says."""


def exposition(samples: Iterable[Sample]) -> str:
    """The samples in the text format of Prometheus."""
    families: dict[str, list[Sample]] = {}
    for sample in samples:
        base = sample.name
        for ending in ("_bucket", "_count", "_sum"):
            if base.endswith(ending) and base.removesuffix(ending) in HELP:
                base = base.removesuffix(ending)
        families.setdefault(base, []).append(sample)
    lines: list[str] = []
    for name, members in families.items():
        kind, said = HELP[name]
        lines += [f"# HELP {name} {said}", f"# TYPE {name} {kind}"]
        lines += [f"{one.name}{_labels(one.labels)} {one.value:.15g}" for one in members]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
