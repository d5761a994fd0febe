"""What the interface says of the shared cases: strict JSON with every digit, and of a secret not one byte, nor in the log."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from starlette.testclient import TestClient

import agentloupe as loupe
from agentloupe.ports.protocols import Store
from agentloupe.server.app import openapi
from agentloupe.verbs.looping import run_loop
from tests.fork_support import Script
from tests.server.serving import TOKEN, store_in
from tests.server.test_serve import server
from tests.support import case_folder

SECRET = b"LOUPE-CANARY-24"


def reads(store: Store, run_id: str) -> Iterator[str]:
    """Every address that reads a run, each of its steps and events, a comparison, or lists; from the interface's own description."""
    steps, events = len(store.steps(run_id)), len(store.recording(run_id).events)
    for path, ways in openapi()["paths"].items():
        if "get" not in ways or "{job_id}" in path or path.endswith("/stream"):
            continue
        whole = path.replace("{run_id}", run_id)
        asked = [f"?{name}={run_id}" for name in ("run", "q")] if path in {"/api/summary", "/api/runs"} else [""]
        if path.startswith("/api/compare"):
            asked = [f"?a={run_id}&b={run_id}&row={row}" for row in range(steps)]
        elif path.endswith("/export"):
            asked = ["?format=jsonl"]
        elif path.endswith("/search"):
            asked = ["?q=CANARY", "?q=exchange"]
        for more in asked:
            for idx in range(steps if "{idx}" in path else 1):
                for part in ("input", "output", "error") if "{part}" in path else ("",):
                    for n in range(1, events + 1) if "{sequence}" in path else (1,):
                        yield whole.format(idx=idx, part=part, sequence=n) + more


def strict(text: bytes) -> Any:
    """JSON without NaN, Infinity or a name that stands twice."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), "a name stands twice"
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


def test_17_every_reply_is_strict_json_and_keeps_every_digit(client: TestClient, store: Store) -> None:
    rows = json.loads((case_folder("17") / "rows.json").read_text("utf-8"))

    @loupe.tool(effect="pure", name="f")
    def live(**arguments: Any) -> Any:
        return {"got": arguments}

    run_loop(
        Script([("f", row["raw"]) for row in rows], "done"),
        {"f": live},
        model="m",
        question="q",
        store=store,
        run_id="r",
    )
    said: dict[str, bytes] = {}
    for path in reads(store, "r"):
        answer = client.get(path)
        assert answer.status_code < 500, path
        if answer.headers["content-type"].startswith("application/json"):
            strict(answer.content)
            said[path] = answer.content
    assert len(said) > 100
    everything = b"".join(said.values())
    assert b"90071992547409931" in everything
    assert b"90071992547409940" not in everything
    for idx, row in enumerate(rows, 1):
        kept = strict(said[f"/api/runs/r/steps/{idx}/raw/input"])
        assert kept == (row["raw"] if row["parsed"] is None else row["parsed"])


def test_24_no_reply_and_no_line_of_the_log_holds_a_secret(tmp_path: Path) -> None:
    exchange = json.loads((case_folder("24") / "exchange.json").read_text("utf-8"))

    @loupe.tool(effect="read", name="exchange")
    def send(exchange: object) -> object:
        return exchange

    @loupe.tool(effect="read", name="fail")
    def fail(exchange: Any) -> None:
        raise ValueError(f"401 for headers {exchange['request']['headers']}")

    store = store_in(tmp_path)
    with loupe.recording("leaks", store=store) as block:
        block.result = send(exchange)
        with pytest.raises(ValueError, match="CANARY"):
            fail(exchange)
    paths = list(reads(store, block.run_id))
    store.close()
    read: dict[str, bytes] = {}
    codes: set[int] = set()
    with server(tmp_path, "--debug", "--token", TOKEN) as (process, address, _):
        for path in paths:
            request = Request(address + path, headers={"Authorization": f"Bearer {TOKEN}"})
            try:
                with urlopen(request, timeout=20) as answer:
                    read[path] = answer.read()
            except HTTPError as refused:
                codes.add(refused.code)
                read[path] = refused.read()
        process.send_signal(signal.SIGINT)
        log = "".join(process.communicate(timeout=20))
    assert codes <= {400, 404, 422}, (
        "what there is not: errors of steps that went well, requests of tools, the stream of a run"
    )
    everything = b"".join(read.values())
    for neighbour in (b"page=2", b"theme=dark", b"5512", b"X-Request-Id"):
        assert neighbour in everything
    assert b"$.exchange.request.url" in everything, "what was removed is listed"
    assert [path for path, text in read.items() if SECRET in text] == []
    assert SECRET.decode() not in log
