"""Counts and times for Prometheus, without bodies, names of runs, or anything else that a user wrote."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Measured", "Metrics", "Sample", "exposition"]

_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure: its name, its labels, its value."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class Metrics:
    """Requests since the server began. Safe with threads."""

    _requests: dict[_Labels, int] = field(default_factory=dict[_Labels, int])
    _times: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request."""
        labels = (("method", method), ("route", route), ("status", str(status)))
        with self._lock:
            self._requests[labels] = self._requests.get(labels, 0) + 1
            times = self._times.setdefault(route, [0.0] * (len(_BUCKETS) + 2))
            for at, bound in enumerate(_BUCKETS):
                times[at] += seconds <= bound
            times[-2] += 1
            times[-1] += seconds

    def samples(self) -> list[Sample]:
        """What was counted."""
        with self._lock:
            found = [
                Sample("loupe_http_requests_total", count, dict(labels)) for labels, count in self._requests.items()
            ]
            for route, times in self._times.items():
                bounds = (*map(str, _BUCKETS), "+Inf")
                found += [
                    Sample("loupe_http_request_seconds_bucket", count, {"route": route, "le": bound})
                    for bound, count in zip(bounds, times[:-1], strict=True)
                ]
                found.append(Sample("loupe_http_request_seconds_count", times[-2], {"route": route}))
                found.append(Sample("loupe_http_request_seconds_sum", times[-1], {"route": route}))
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


_HELP: Final[Mapping[str, tuple[str, str]]] = {
    "loupe_runs": ("gauge", "Runs that are stored, by coverage: full ones can be replayed."),
    "loupe_runs_by_status": ("gauge", "Runs that are stored, by status."),
    "loupe_runs_with_forks": ("gauge", "Runs that forks were made of."),
    "loupe_runs_with_misses": ("gauge", "Forks that asked their cassette for something that was never recorded."),
    "loupe_jobs": ("gauge", "Jobs, by status."),
    "loupe_queue_depth": ("gauge", "Jobs that wait for a worker."),
    "loupe_http_requests_total": ("counter", "Requests, by route and status."),
    "loupe_http_request_seconds": ("histogram", "Time to answer, by route."),
}


def exposition(samples: Iterable[Sample]) -> str:
    """The samples in the text format of Prometheus."""
    families: dict[str, list[Sample]] = {}
    for sample in samples:
        base = sample.name
        for ending in ("_bucket", "_count", "_sum"):
            if base.endswith(ending) and base.removesuffix(ending) in _HELP:
                base = base.removesuffix(ending)
        families.setdefault(base, []).append(sample)
    lines: list[str] = []
    for name, members in families.items():
        kind, said = _HELP[name]
        lines += [f"# HELP {name} {said}", f"# TYPE {name} {kind}"]
        lines += [f"{one.name}{_labels(one.labels)} {one.value:.15g}" for one in members]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
