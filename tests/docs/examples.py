"""Writes `src/agentloupe/server/examples.json`: what a real server is asked and answers, once for every operation.

`python -m tests.docs.examples` makes it anew. Long lists and texts are cut; names of the machine are taken out.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, cast

from agentloupe.ports.protocols import Store
from agentloupe.server.describing import EXAMPLES
from agentloupe.server.errors import answer_to
from agentloupe.verbs.instrument import agent
from agentloupe.words.errors import RateLimited, StoreBusy
from tests.e2e.work import make_work, trip_today, worker
from tests.e2e.world import observed_run
from tests.server.serving import TOKEN, client_of, store_in
from tests.support import ROOT
from tests.unfinished import killed, shop

__all__ = ["made"]

_ITEMS: Final = 2
_LONG: Final = 240
_LINES: Final = 12

Asked = tuple[str, str, Any]
"""The path of an operation as it is described, the address that is asked, and the body that is sent."""


def _reads(run: str, other: str, killed_run: str, report: str) -> Iterator[tuple[str, str]]:
    of_run, of_step = "/api/runs/{run_id}", "/api/runs/{run_id}/steps/{idx}"
    for path in ("/healthz", "/readyz", "/metrics", "/api/about", "/api/jobs", "/api/reports"):
        yield path, path
    yield "/api/settings", "/api/settings"
    yield "/api/runs", "/api/runs?facets=1"
    yield of_run, f"/api/runs/{run}"
    for name in ("steps", "transcript", "minimap", "search?q=frost", "events", "verify", "lineage", "stream"):
        yield f"{of_run}/{name.partition('?')[0]}", f"/api/runs/{run}/{name}"
    yield f"{of_run}/fork", f"/api/runs/{run}/fork?from=3"
    yield f"{of_run}/events/{{sequence}}", f"/api/runs/{run}/events/4"
    yield of_step, f"/api/runs/{run}/steps/3"
    for name in ("messages", "context", "diff"):
        yield f"{of_step}/{name}", f"/api/runs/{run}/steps/3/{name}"
    yield f"{of_step}/raw/{{part}}", f"/api/runs/{run}/steps/3/raw/output"
    yield "/api/effects", "/api/effects"
    yield f"{of_run}/effects", f"/api/runs/{killed_run}/effects"
    yield "/api/compare", f"/api/compare?a={run}&b={other}"
    yield "/api/compare/row", f"/api/compare/row?a={run}&b={other}&row=0"
    yield "/api/summary", f"/api/summary?run={run}&run={other}"
    yield "/api/reports/{job_id}", f"/api/reports/{report}"
    yield "/api/jobs/{job_id}", f"/api/jobs/{report}"
    yield "/api/jobs/{job_id}/stream", f"/api/jobs/{report}/stream"


def _writes(run: str, killed_run: str, call: str, version: str) -> Iterator[Asked]:
    of_run = "/api/runs/{run_id}"
    changed = {"from_step": 3, "overrides": {"temperature": 0}, "repeat": 3, "control": True}
    yield f"{of_run}/tags", f"/api/runs/{run}/tags", {"tags": ["incident", "refund"]}
    yield f"{of_run}/fork/estimate", f"/api/runs/{run}/fork/estimate", changed
    yield f"{of_run}/fork", f"/api/runs/{run}/fork", changed
    settled = {"call_id": call, "outcome": "finished", "result": {"charge": "ch_5"}, "external_id": "ch_5"}
    yield f"{of_run}/effects", f"/api/runs/{killed_run}/effects", settled | {"why": "the bank's list", "by": "anna"}
    answer = {"question": "q-1", "who": "anna", "result": "18.2 °C, rain"}
    yield "/api/jobs/{job_id}/answer", "/api/jobs/job-waiting/answer", answer
    yield "/api/jobs/{job_id}/cancel", "/api/jobs/job-lacking/cancel", None
    live = [{"tool": "calculate", "reason": "arithmetic only, no effect"}]
    yield "/api/settings", "/api/settings", {"version": version, "live": live}


def made(folder: Path) -> dict[str, Any]:
    """All examples, from a server over a new store in a folder, in the form of `describing.EXAMPLES`."""
    os.environ.update(LLM_BASE_URL="http://127.0.0.1:1/v1", LLM_MODEL="demo-large")
    with closing(store_in(folder)) as store:
        found = {"operations": _of(store, folder), "errors": _errors(store)}
    return cast("dict[str, Any]", _without_names(found, folder))


def _of(store: Store, folder: Path) -> dict[str, Any]:
    client = client_of(store, TOKEN)
    run = observed_run(store)
    work, stopped = make_work(store, run), killed(store, 5)
    found: dict[str, Any] = {}

    def note(method: str, path: str, response: Any, body: Any = None) -> None:
        assert response.is_success, (method, path, response.text)
        kind = response.headers["content-type"].partition(";")[0]
        answer = _cut(response.json()) if kind == "application/json" else _first_lines(response.text)
        request = {} if body is None else {"request": body}
        found[f"{method} {path}"] = {**request, "answers": {str(response.status_code): answer}}

    for path, address in _reads(run, work.run, stopped, work.diverged):
        note("get", path, client.get(address))
    found["get /api/jobs/stream"] = found[
        "get /api/jobs/{job_id}/stream"
    ]  # the same events, of all jobs, without an end
    range_ = client.get(f"/api/runs/{run}/steps/3/raw/output", headers={"Range": "bytes=0-1"})
    found["get /api/runs/{run_id}/steps/{idx}/raw/{part}"]["answers"]["206"] = range_.text
    call = client.get(f"/api/runs/{stopped}/effects").json()["items"][0]["call_id"]
    version = client.get("/api/settings").json()["version"]
    for path, address, body in _writes(run, stopped, call, version):
        send = client.put if path == "/api/settings" else client.post
        note("put" if path == "/api/settings" else "post", path, send(address, json=body), body)
    file = folder / "run.loupe"
    file.write_bytes(client.get(f"/api/runs/{run}/export").content)
    with file.open("rb") as sent:
        note("post", "/api/import", client.post("/api/import", files={"files": ("run.loupe", sent)}))
    found["post /api/import"]["request"] = {"files": ["the bytes of run.loupe"]}
    wanted = {"agent": "trip", "level": "content"}
    with worker(store, trip=agent(name="trip")(trip_today), shop=shop).working():
        note("get", "/api/workers", client.get("/api/workers"))
        note("post", "/api/runs/{run_id}/replay", client.post(f"/api/runs/{work.run}/replay", json=wanted), wanted)
        note("post", "/api/runs/{run_id}/resume", client.post(f"/api/runs/{stopped}/resume"))
    return found


def _errors(store: Store) -> dict[str, Any]:
    """One error of each status, as the server says it; the last two as it says what a provider or the store says."""
    client, stranger = client_of(store, TOKEN), client_of(store)
    run = store.runs()[-1].id
    of_run = f"/api/runs/{run}"
    raw, late = (
        f"{of_run}/steps/0/raw/input",
        RateLimited("the endpoint answered 429: slow down", status=429, retry_after=18),
    )
    told = [
        client.post(f"{of_run}/tags", content=b"{", headers={"Content-Type": "application/json"}),
        stranger.get("/api/runs"),
        client.post(f"{of_run}/tags", json={"tags": []}, headers={"X-Loupe": ""}),
        client.get("/api/runs/weather-260401-abc123"),
        client.post(f"{of_run}/replay", json={"agent": "refund"}),
        client.post(f"{of_run}/tags", content=b" " * 3_000_000),
        client.get(raw, headers={"Range": "bytes=99999999-"}),
        client.post(f"{of_run}/fork", json={"from_step": "third"}),
    ]
    said = [
        answer_to(late),
        answer_to(
            StoreBusy("the store is in use by another process for too long", hint="close it there, or try again")
        ),
    ]
    found = {str(one.status_code): one.json() for one in told}
    return found | {str(one.status_code): json.loads(bytes(one.body)) for one in said}


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _cut(inside) for name, inside in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_cut(inside) for inside in cast("list[Any]", value)[:_ITEMS]]
    return f"{value[:_LONG]}..." if isinstance(value, str) and len(value) > _LONG else value


def _first_lines(text: str) -> str:
    return "".join(f"{line[:_LONG]}\n" for line in text.splitlines()[:_LINES])


def _without_names(value: Any, folder: Path) -> Any:
    text = json.dumps(value, ensure_ascii=False)
    names = {str(folder): "/home/anna/shop", str(ROOT): "/home/anna/shop", socket.gethostname(): "desk"}
    for name, instead in names.items():
        text = text.replace(name, instead)
    return json.loads(text.replace(f'"pid": {os.getpid()}', '"pid": 4242'))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as new:
        text = json.dumps(made(Path(new)), indent=1, ensure_ascii=False, sort_keys=True)
    EXAMPLES.write_text(f"{text}\n", "utf-8")
