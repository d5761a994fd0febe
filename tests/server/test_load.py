"""A real server under load: many readers beside a writer, a million runs, and runs and files that are larger than its memory should be."""

from __future__ import annotations

import os
import random
import sqlite3
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.project import Projector
from agentloupe.store.owners import this_process
from tests.fork_support import weather_run
from tests.made import Maker
from tests.server.serving import store_in
from tests.server.test_serve import get, server
from tests.server.test_streams import bodies_of

WHOLE = pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE") != "ci", reason="takes minutes: make test-all")
CLIENTS, TURNS, WRITTEN = 50, 4, 40
MB = 1 << 20


def peak(pid: int) -> int:
    """The most memory that a process ever had, in bytes (Linux)."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        pytest.skip("the memory of another process is read from /proc")
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@pytest.mark.faults
def test_fifty_clients_read_while_one_program_writes(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    run = weather_run(store)
    paths = (
        "/api/runs?facets=1",
        f"/api/runs/{run}",
        f"/api/runs/{run}/steps",
        f"/api/runs/{run}/transcript",
        "/metrics",
    )

    def reads(address: str, token: str, number: int) -> list[int]:
        found: list[int] = []
        for turn in range(TURNS):
            headers = {"Authorization": f"Bearer {token}"}
            asked = urllib.request.Request(address + paths[(number + turn) % len(paths)], headers=headers)
            with urllib.request.urlopen(asked, timeout=120) as answer:
                answer.read()
                found.append(answer.status)
        return found

    def writes() -> None:
        for number in range(WRITTEN):
            made = Maker(f"written-{number}", None)
            made.call("tool", "t", {"n": number}, "x" * 2000)
            made.finish()
            writer = store.start(f"written-{number}", Projector, owner=this_process())
            writer.append(made.drafts, bodies_of(made, made.drafts))
            writer.close()

    with server(tmp_path) as (process, address, token), ThreadPoolExecutor(CLIENTS + 1) as pool:
        writing = pool.submit(writes)
        reading = [pool.submit(reads, address, token, number) for number in range(CLIENTS)]
        assert [one.result() for one in reading] == [[200] * TURNS] * CLIENTS
        writing.result()
        listed = get(f"{address}/api/runs?limit=200", token)
        assert listed["total"] == WRITTEN + 1
        assert {one["status"] for one in listed["items"]} == {"ok"}
        assert process.poll() is None
    store.close()


@pytest.mark.faults
def test_an_upload_over_the_limit_is_refused_while_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 MB are sent to a server that takes 2: it says so, keeps none of it, and has not grown by it."""
    monkeypatch.setenv("LOUPE_SERVER_MAX_UPLOAD", "2000000")
    store_in(tmp_path).close()
    piece = b"x" * MB

    def parts() -> Any:
        yield b'--b\r\nContent-Disposition: form-data; name="files"; filename="large.loupe"\r\n\r\n'
        for _ in range(200):
            yield piece
        yield b"\r\n--b--\r\n"

    import httpx

    with server(tmp_path) as (process, address, token):
        get(f"{address}/api/runs", token)
        before = peak(process.pid)
        headers = {
            "Authorization": f"Bearer {token}",
            "X-Loupe": "1",
            "Content-Type": "multipart/form-data; boundary=b",
        }
        try:
            answer = httpx.post(f"{address}/api/import", content=parts(), headers=headers, timeout=60)
        except (httpx.WriteError, httpx.ReadError):
            pass  # it was answered and closed before all was sent
        else:
            error = answer.json()["error"]
            assert (answer.status_code, error["reason"], error["place"]) == (413, "too_large", "server.max_upload")
            assert "LOUPE_SERVER_MAX_UPLOAD" in error["hint"]
        assert peak(process.pid) - before < 60 * MB
        assert get(f"{address}/api/runs", token)["total"] == 0


def large_run(folder: Path, megabytes: int) -> str:
    """A run of that size: a megabyte that does not shrink in each tool's result, told in a small request after it."""
    store = store_in(folder)
    chance = random.Random(1)
    writer = store.start("large", Projector, owner=this_process())
    made = Maker("large", None)
    sent = 0
    for number in range(megabytes):
        made.call("tool", "fetch", {"n": number}, chance.randbytes(MB // 2).hex())
        made.model([{"role": "user", "content": f"what of {number}?"}], {"role": "assistant", "content": "it is large"})
        writer.append(made.drafts[sent:], bodies_of(made, made.drafts[sent:]))
        sent = len(made.drafts)
        made.bodies = {digest: data for digest, data in made.bodies.items() if len(data) < MB // 2}
    made.finish()
    writer.append(made.drafts[sent:], bodies_of(made, made.drafts[sent:]))
    writer.close()
    store.close()
    return "large"


def read_whole(address: str, token: str, run: str, steps: int) -> None:
    """Everything that a page can ask of a run, from its beginning to its end."""
    at: int | None = 0
    while at is not None:
        at = get(f"{address}/api/runs/{run}/transcript?limit=50&first={at}", token)["next"]
    at = 0
    while at is not None:
        at = get(f"{address}/api/runs/{run}/search?q=it+is+large&first={at}", token)["next"]
    get(f"{address}/api/runs/{run}/minimap", token)
    for idx in range(0, steps, max(steps // 20, 1)):
        get(f"{address}/api/runs/{run}/steps/{idx}", token)
    get(f"{address}/api/compare?a={run}&b={run}&limit=200", token)
    get(f"{address}/api/runs/{run}/verify", token)


@pytest.mark.faults
@pytest.mark.parametrize("megabytes", [20, pytest.param(500, marks=[WHOLE, pytest.mark.timeout(1500)])])
def test_reading_a_large_run_takes_a_bounded_memory(tmp_path: Path, megabytes: int) -> None:
    run = large_run(tmp_path, megabytes)
    with server(tmp_path) as (process, address, token):
        get(f"{address}/api/runs", token)
        before = peak(process.pid)
        read_whole(address, token, run, 2 * megabytes)
        assert peak(process.pid) - before < 200 * MB


@WHOLE
@pytest.mark.timeout(1500)
def test_a_list_of_a_million_runs_is_paged_filtered_and_found_in(tmp_path: Path) -> None:
    from agentloupe.store.sqlite import SqliteStore
    from bench.rows.listing import filled

    store = store_in(tmp_path)
    assert isinstance(store, SqliteStore)
    filled(store, 1_000_000)
    store.close()
    with closing(sqlite3.connect(tmp_path / "runs.db")) as conn:
        named = conn.execute(
            "SELECT count(*) FROM facets n JOIN facets t ON t.rid = n.rid AND t.kind = 3 AND t.value = 'tag-7'"
            " WHERE n.kind = 13 AND n.value LIKE '%one-off 77%'"
        ).fetchone()[0]
    with server(tmp_path) as (process, address, token):
        whole = get(f"{address}/api/runs?facets=1", token)
        assert (whole["total"], len(whole["items"])) == (1_000_001, 50)
        last = get(f"{address}/api/runs?first=999990&limit=50", token)
        assert (len(last["items"]), last["next"]) == (11, None)
        found = get(f"{address}/api/runs?q=one-off+77&tag=tag-7", token)
        assert found["total"] == named > 0
        for filters in ("status=error&agent=agent-10", "tag=tag-7&tool=look_up", "q=name+42", "since=2023-11-20"):
            assert len(get(f"{address}/api/runs?{filters}", token)["items"]) == 50
        assert peak(process.pid) < 400 * MB
