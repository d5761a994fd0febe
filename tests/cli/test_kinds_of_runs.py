"""Runs of every kind are listed and shown: imported, interrupted, failed, retried, of several turns, with nothing in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentloupe.providers.scripted import Answer, Ask, ScriptedServer, fail, sample_rule
from agentloupe.store.owners import this_process
from agentloupe.store.sqlite import SqliteStore
from tests.cli.driving import Command, agentloupe
from tests.store.make import Author, at, call
from tests.support import ROOT


def test_an_imported_run(empty: Path, cli: Command) -> None:
    cli.ok("import", ROOT / "examples/weather/run.jsonl")
    assert "trace_only" in cli.ok("list")
    (run,) = cli.json("list")
    assert (run["steps"], run["coverage"], run["engine"]) == (6, "trace_only", "imported")
    out = cli.ok("show", "last")
    assert "coverage trace_only" in out
    assert '{"city":"Beijing"' in out
    assert cli("replay", "last", "--code", "examples.weather.agent:assistant").code == 3
    assert "1 of them already there" in cli.ok("import", ROOT / "examples/weather/run.jsonl")


def test_a_fork_of_an_imported_run(empty: Path, cli: Command, model: ScriptedServer) -> None:
    cli.ok("import", ROOT / "examples/weather/run.jsonl")
    made = cli.json("fork", "last", "--from", "3")["runs"][0]
    assert made["steps"] == 7
    out = cli.ok("show", made["id"])
    assert "fork of weather-sample from step 3" in out
    assert "[recorded]" in out
    assert f"forked 1 time: {made['id']}" in cli.ok("show", "weather-sample")


def test_an_interrupted_run(empty: Path, cli: Command) -> None:
    store = SqliteStore(empty / "l.db")
    author = Author(store, "helper-1", owner=replace(this_process(), pid=2**22 + 1)).started(root=True)
    author.tool("look", {"a": 1}, {"b": 2})
    author.add(author.scribe.asked(call("tool", "pay", {"a": 3}, effect="write"), None, author.place(), at())[0])
    author.writer.flush()
    there = ("--db", empty / "l.db")
    assert "interrupted" in cli.ok("list", *there)
    assert cli.json("list", "--status", "interrupted", *there)[0]["ended_at"] is None
    out = cli.ok("show", "last", *there)
    assert "helper-1  interrupted" in out
    assert '{"a":1} -> {"b":2}' in out
    assert cli.ok("list", "--offset", "1", *there).strip() == "no runs from 2 on: there are 1"
    assert '{"a":3}\n' in out, "of an open call nothing is known to have come back, also no null"
    assert cli("verify", "last", *there).code == 0
    assert "interrupted" in cli.ok("prune", "--older-than", "0m", "--dry-run", *there)
    store.close()


def test_a_running_run_is_shown_and_not_deleted(empty: Path, cli: Command) -> None:
    store = SqliteStore(empty / "l.db")
    author = Author(store, "helper-1").started(root=True)
    there = ("--db", empty / "l.db")
    assert "running" in cli.ok("list", *there)
    assert "open" in cli.ok("show", "last", *there)
    refused = cli("delete", "last", "--yes", *there)
    assert (refused.code, "helper-1" in refused.error) == (3, True)
    assert cli.json("prune", "--older-than", "0m", "--yes", *there)["runs"] == []
    author.finished()
    store.close()


def test_a_run_of_nothing(empty: Path, cli: Command) -> None:
    store = SqliteStore(empty / "l.db")
    Author(store, "helper-1").started().finished()
    store.close()
    there = ("--db", empty / "l.db")
    assert "helper-1  ok" in cli.ok("show", "last", *there)
    assert cli.json("show", "last", *there)["steps"] == []
    nothing = cli("show", "last", "0", *there)
    assert (nothing.code, "it has no steps" in nothing.err) == (3, True)


@pytest.fixture
def busy() -> Iterator[ScriptedServer]:
    """A model that refuses the first request of three."""
    asked: list[Ask] = []

    def rule(one: Ask) -> Answer:
        asked.append(one)
        return fail(429, "slow down", headers={"retry-after-ms": "1"}) if len(asked) % 2 else sample_rule(one)

    with ScriptedServer(rule) as server:
        yield server


def test_tries_are_shown(tmp_path: Path, busy: ScriptedServer, cli: Command) -> None:
    db = tmp_path / "l.db"
    done = agentloupe("run", "--db", db, "--", "python", "examples/weather/agent.py", LLM_BASE_URL=busy.url)
    assert done.code == 0, done.err
    assert "2 tries" in cli.ok("show", "last", "--db", db)
    step = cli.ok("show", "last", "1", "--db", db)
    assert "try 1: status 429" in step
    assert "try 2: status 200" in step


def test_tau_bench(shared: Path, empty: Path, cli: Command) -> None:
    files = sorted((shared / "data" / "tau_bench").rglob("*.json*"))[:1]
    (report,) = cli.json("import", *files)
    assert report["runs"] > 0
    assert len(cli.json("list", "-n", "5")) == min(5, report["runs"])
    assert cli("show", "last").code == 0
    assert os.fspath(files[0]) in cli.ok("import", *files)
