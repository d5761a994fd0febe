"""`agentloupe serve` as a person starts it: a process of its own, a real port, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.fork_support import weather_run
from tests.server.serving import store_in

ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)")


@contextmanager
def server(folder: Path, *more: str) -> Generator[tuple[subprocess.Popen[str], str, str]]:
    """The process, its address without a path, and its token."""
    argv = [
        sys.executable,
        "-m",
        "agentloupe",
        "serve",
        "--no-browser",
        "--port",
        "0",
        "--db",
        str(folder / "runs.db"),
        *more,
    ]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = ADDRESS.search(line)
        assert found, line + (process.stderr.read() if process.stderr and process.poll() is not None else "")
        yield process, f"http://127.0.0.1:{found[1]}", found[2]
    finally:
        process.kill()
        process.communicate()


def get(url: str, token: str | None = None) -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def test_it_prints_its_address_serves_and_stops_cleanly(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    run = weather_run(store)
    store.close()
    with server(tmp_path) as (process, address, token):
        assert get(f"{address}/healthz") == {"status": "ok"}
        assert [r["id"] for r in get(f"{address}/api/runs", token)["items"]] == [run]
        with pytest.raises(HTTPError) as refused:
            get(f"{address}/api/runs")
        assert refused.value.code == 401
        refused.value.close()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")


def test_an_open_stream_does_not_hold_up_the_end(tmp_path: Path) -> None:
    from agentloupe.engine.project import Projector
    from agentloupe.store.owners import this_process
    from tests.made import Maker
    from tests.server.test_streams import bodies_of

    store = store_in(tmp_path)
    made = Maker("live")
    writer = store.start("live", Projector, owner=this_process())
    writer.append(made.drafts, bodies_of(made, made.drafts))
    with server(tmp_path, "--token", "my-own") as (process, address, token):
        assert token == "my-own"
        request = urllib.request.Request(f"{address}/api/runs/live/stream", headers={"Authorization": "Bearer my-own"})
        with urllib.request.urlopen(request, timeout=20) as stream:
            assert stream.readline().startswith(b"event: run")
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            stream.read()
        _, errors = process.communicate(timeout=20)
        assert errors == ""
        assert time.monotonic() - began < 10
    writer.close()
    store.close()


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with server(tmp_path) as (_, address, _token):
        port = address.rpartition(":")[2]
        argv = [sys.executable, "-m", "agentloupe", "serve", "--no-browser", "--port", port, "--db", "other.db"]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False, env=dict(os.environ))
        assert done.returncode == 3
        assert f"port {port}" in done.stderr
        assert "--port 0" in done.stderr


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_a_host_that_is_not_this_machine_is_said(host: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "agentloupe", "serve", "--no-browser", "--host", host, "--port", "0", "--db", "a.db"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False, env=dict(os.environ))
    assert done.returncode == 3
    assert f"cannot listen at {host}" in done.stderr
    assert "--host takes an address of this machine" in done.stderr
    assert "--port 0" not in done.stderr
