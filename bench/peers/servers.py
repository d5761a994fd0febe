"""Phoenix and MLflow as servers to look at runs with, and ours, each started and asked over HTTP in the same way.

Those of others live in environments of their own below `.venv/peers`, which `make bench-peers` makes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from agentloupe.store import open_url
from agentloupe.store.sqlite import SqliteStore
from bench.agents import answer, conversations, model_and_tool, recorded
from bench.aside import PEERS
from bench.peers import Absent

PAGE = 50
"""Runs on a page of the list."""
_NEW = 200
_PATIENCE_S = 150.0
"""Until a server must be healthy, and must have taken in what it was sent."""
_QUIET = {"DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "PHOENIX_TELEMETRY_ENABLED": "false"}
"""Nothing that is measured here talks to anybody outside of this machine."""


class Late(Exception):
    """A server did not get there."""


class Span(NamedTuple):
    """A step as the others take it."""

    trace: int
    number: int
    parent: int | None
    kind: str
    name: str
    input: str
    output: str


def spans(trace: int, steps: int) -> list[Span]:
    """What `model_and_tool` does in so many steps, with the same requests, answers and results, as one trace."""
    made = [Span(trace, 1, None, "AGENT", "bench", "", "")]
    for i, request in enumerate(conversations((steps - 1) // 2, new=_NEW, most=20)):
        said = json.dumps(answer(_NEW // 2, i))
        made.append(Span(trace, len(made) + 1, 1, "LLM", "chat bench-1", json.dumps(request), said))
        row = json.dumps({"row": i, "text": "some twenty characters"})
        made.append(Span(trace, len(made) + 1, 1, "TOOL", "look_up", json.dumps({"row": i}), row))
    return made


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Server(ABC):
    """A server that is started, filled and asked.

    Args:
        folder: where it keeps its data, and what it says.
        steps: of the run that is opened.
        runs: how many short runs are beside it in the list.
    """

    title: str
    healthy = "/healthz"
    list_at: tuple[int, int]
    """A point of its page's list of steps, in a window of 1440 by 900 pixels."""

    def __init__(self, folder: Path, steps: int, runs: int) -> None:
        self.folder, self.steps, self.runs = folder, steps, runs
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it. Raises `Absent`."""

    def variables(self) -> Mapping[str, str]:
        """Variables that it needs."""
        return {}

    @abstractmethod
    def fill(self) -> None:
        """Puts the long run and the short ones into it, and waits until they are there."""

    @abstractmethod
    def headers(self) -> int:
        """Asks for the steps of the long run without what went in and out; how many came."""

    @abstractmethod
    def whole(self) -> int:
        """Asks for the steps of the long run with what went in and out; how many came."""

    @abstractmethod
    def listed(self) -> int:
        """Asks for a page of the list; how many came."""

    @abstractmethod
    def page(self) -> str:
        """The address at which a browser opens the long run."""

    def start(self) -> float:
        """Seconds from the command to healthy, by the clock.

        Raises:
            Absent: it is not installed.
            Late: it ended, or was not healthy in time.
        """
        said, command = self.folder / "said.txt", self.command()
        environ = {**os.environ, **_QUIET, **self.variables()}
        began = time.perf_counter()
        with said.open("wb") as out:
            self._process = subprocess.Popen(command, env=environ, cwd=self.folder, stdout=out, stderr=out)
        while (took := time.perf_counter() - began) < _PATIENCE_S:
            if self._process.poll() is not None:
                last = said.read_text("utf-8", "replace").strip().splitlines()[-1:]
                raise Late(f"ended: {''.join(last) or 'it said nothing'}")
            try:
                with urllib.request.urlopen(self._at(self.healthy), timeout=5):
                    return time.perf_counter() - began
            except (urllib.error.URLError, OSError):
                time.sleep(0.02)
        raise Late(f"not healthy after {took:.0f} s")

    def stop(self) -> None:
        """Ends it, and what it has started."""
        if self._process is None:
            return
        for pid in [self._process.pid, *below(self._process.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()
        self._process = None

    def ask(self, path: str, body: object = None, **headers: str) -> Any:
        """What it answers, from JSON; `body` is posted."""
        sent = None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self._at(path), sent, {"content-type": "application/json", **named})
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as got:
            return json.loads(got.read() or b"null")

    def _at(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def _spans(self) -> Iterator[list[Span]]:
        """The long run, then all short ones together."""
        yield spans(1, self.steps)
        yield [span for trace in range(2, self.runs + 2) for span in spans(trace, 3)]


def below(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    told = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in told.splitlines()]
    found = [pid]
    for parent in found:
        found += [child for child, of in pairs if of == parent]
    return found[1:]


class Ours(Server):
    """`agentloupe serve`. Each time another run is opened, which it has never looked at: it keeps the last ones."""

    title = "Agent Loupe"
    list_at = 700, 500

    def __init__(self, folder: Path, steps: int, runs: int, opened: int) -> None:
        super().__init__(folder, steps, runs)
        self._opened = opened
        self._fresh: Iterator[str] = iter(())
        self._db = folder / "runs.db"

    def command(self) -> list[str]:
        words = ["serve", "--no-browser", "--port", str(self.port), "--db", str(self._db), "--token", "bench"]
        return [sys.executable, "-m", "agentloupe", *words]

    def fill(self) -> None:
        store = open_url(self._db)
        assert isinstance(store, SqliteStore), "a path is a SQLite store"
        self._fresh = iter([recorded(store, model_and_tool, self.steps, new=_NEW) for _ in range(self._opened)])
        for _ in range(self.runs):
            recorded(store, model_and_tool, 3, new=_NEW)
        store.close()

    def headers(self) -> int:
        run = next(self._fresh)
        self._get(f"/api/runs/{run}")
        return len(self._get(f"/api/runs/{run}/steps?limit=1000")["items"])

    def whole(self) -> int:
        run, cards = next(self._fresh), list[Any]()
        steps = self._get(f"/api/runs/{run}")["steps"]
        while True:
            page = self._get(f"/api/runs/{run}/transcript?limit=200&first={len(cards)}")
            cards += page["items"]
            if len(cards) == page["total"]:
                return steps

    def listed(self) -> int:
        return len(self._get(f"/api/runs?limit={PAGE}")["items"])

    def page(self) -> str:
        return self._at(f"/runs/{next(self._fresh)}?token=bench")

    def _get(self, path: str) -> Any:
        return self.ask(path, authorization="Bearer bench")


class Peer(Server):
    """One of others."""

    name: str

    def program(self, name: str) -> str:
        """A program of its environment. Raises `Absent`."""
        found = PEERS / self.name / "bin" / name
        if not found.is_file():
            raise Absent(self.name)
        return str(found)

    def installed_mb(self) -> float:
        """What its environment takes on the disk, in MB. Raises `Absent`."""
        self.command()
        files = (path for path in (PEERS / self.name).rglob("*") if path.is_file() and not path.is_symlink())
        return sum(path.stat().st_size for path in files if "__pycache__" not in path.parts) / 1e6


def _time(second: int) -> str:
    return datetime.fromtimestamp(1_700_000_000 + second, UTC).isoformat()


_LOOPBACK_ONLY = """
import sys, grpc.aio
from phoenix.server.main import main
server = grpc.aio._server.Server
add = server.add_insecure_port
server.add_insecure_port = lambda self, address: add(self, address.replace("[::]", "127.0.0.1"))
sys.argv = ["phoenix", "serve"]
main()
"""
"""`phoenix serve`, whose port for gRPC would be open to the whole network, without a setting for that."""

_HEADERS = """query($trace: ID!) { node(id: "UHJvamVjdDox") { ... on Project { trace(traceId: $trace) { numSpans
spans(first: 1000) { edges { node {
  id spanId parentId name spanKind statusCode startTime endTime latencyMs tokenCountTotal
} } } } } } }"""
_LISTED = """query($first: Int!) { node(id: "UHJvamVjdDox") { ... on Project { spans(
  first: $first, filterCondition: "parent_id is None", sort: {col: startTime, dir: desc}
) { edges { node { id name statusCode startTime latencyMs tokenCountTotal } } } } } }"""
_COUNTED = 'query { node(id: "UHJvamVjdDox") { ... on Project { recordCount } } }'


class Phoenix(Peer):
    """Spans in through its JSON call; headers and lists by GraphQL, as its page does, the whole through REST."""

    name, title = "phoenix", "Phoenix"
    list_at = 500, 500

    def command(self) -> list[str]:
        self.program("phoenix")
        return [self.program("python"), "-c", _LOOPBACK_ONLY]

    def variables(self) -> Mapping[str, str]:
        return {
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(self.port),
            "PHOENIX_GRPC_PORT": str(free_port()),
            "PHOENIX_WORKING_DIR": str(self.folder),
        }

    def fill(self) -> None:
        sent = 0
        for some in self._spans():
            self.ask("/v1/projects/default/spans", {"data": [self._span(span) for span in some]})
            sent += len(some)
        began = time.perf_counter()
        while (there := self._graph(_COUNTED)["recordCount"]) < sent:
            if time.perf_counter() - began > _PATIENCE_S:
                raise Late(f"had taken in {there} of {sent} spans after {_PATIENCE_S:.0f} s")
            time.sleep(0.2)

    def headers(self) -> int:
        return len(self._graph(_HEADERS, trace=f"{1:032x}")["trace"]["spans"]["edges"])

    def whole(self) -> int:
        return len(self.ask(f"/v1/projects/default/spans?limit=1000&trace_id={1:032x}")["data"])

    def listed(self) -> int:
        return len(self._graph(_LISTED, first=PAGE)["spans"]["edges"])

    def page(self) -> str:
        return self._at(f"/projects/UHJvamVjdDox/traces/{1:032x}")

    def _graph(self, query: str, **variables: object) -> Any:
        got = self.ask("/graphql", {"query": query, "variables": variables})
        assert "errors" not in got, got
        return got["data"]["node"]

    @staticmethod
    def _span(span: Span) -> dict[str, Any]:
        return {
            "name": span.name,
            "context": {"trace_id": f"{span.trace:032x}", "span_id": f"{span.trace:08x}{span.number:08x}"},
            "span_kind": span.kind,
            "parent_id": span.parent and f"{span.trace:08x}{span.parent:08x}",
            "start_time": _time(span.number),
            "end_time": _time(span.number + 1),
            "status_code": "OK",
            "attributes": {"input.value": span.input, "output.value": span.output},
        }


class Mlflow(Peer):
    """Spans in by OTLP. It has no call that gives the spans of a trace without what went in and out."""

    name, title = "mlflow", "MLflow"
    healthy = "/health"
    list_at = 130, 500

    def command(self) -> list[str]:
        # One worker: the default is four, whose parent ends each that does not answer within 5 s and starts it anew.
        words = ["server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        kept = [
            "--backend-store-uri",
            f"sqlite:///{self.folder}/mlflow.db",
            "--default-artifact-root",
            str(self.folder),
        ]
        return [self.program("mlflow"), *words, *kept]

    def fill(self) -> None:
        for some in self._spans():
            scope = {"scope": {"name": "bench"}, "spans": [self._span(span) for span in some]}
            body = {"resourceSpans": [{"resource": {}, "scopeSpans": [scope]}]}
            self.ask("/v1/traces", body, x_mlflow_experiment_id="0")

    def headers(self) -> int:
        return self.whole()

    def whole(self) -> int:
        return len(self.ask(f"/ajax-api/3.0/mlflow/traces/get?trace_id=tr-{1:032x}")["trace"]["spans"])

    def listed(self) -> int:
        where = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}
        asked = {"locations": [where], "max_results": PAGE, "order_by": ["timestamp_ms DESC"]}
        return len(self.ask("/ajax-api/3.0/mlflow/traces/search", asked)["traces"])

    def page(self) -> str:
        return self._at(f"/#/experiments/0/traces?selectedEvaluationId=tr-{1:032x}")

    @staticmethod
    def _span(span: Span) -> dict[str, Any]:
        start = 1_700_000_000 + span.number
        values = {"openinference.span.kind": span.kind, "input.value": span.input, "output.value": span.output}
        made: dict[str, Any] = {
            "traceId": f"{span.trace:032x}",
            "spanId": f"{span.trace:08x}{span.number:08x}",
            "name": span.name,
            "kind": 1,
            "startTimeUnixNano": f"{start}000000000",
            "endTimeUnixNano": f"{start + 1}000000000",
            "status": {"code": 1},
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in values.items()],
        }
        return made if span.parent is None else {**made, "parentSpanId": f"{span.trace:08x}{span.parent:08x}"}
