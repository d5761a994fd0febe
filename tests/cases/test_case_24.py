"""Case 24: secrets in headers, cookies, query, bodies and JSON inside strings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine import credentials, privacy
from agentloupe.engine.privacy import Rules, scrub
from agentloupe.store import open_url
from agentloupe.verbs.exchange import export_run, import_file

CANARY = "LOUPE-CANARY-24"


@pytest.fixture
def exchange(shared_case: Callable[[str], Path]) -> dict[str, Any]:
    return json.loads((shared_case("24") / "exchange.json").read_text("utf-8"))


def test_nothing_of_a_secret_reaches_the_disk_and_neighbours_stay(exchange: dict[str, Any], workdir: Path) -> None:
    @loupe.tool(effect="read", name="exchange")
    def send(exchange: object) -> object:
        return exchange

    store = open_url(workdir / "x.db")
    with loupe.recording("leaks", store=store) as block:
        assert send(exchange) == exchange, "the program keeps its secrets"
        with pytest.raises(ValueError, match="CANARY"):
            _fail(exchange)
        block.result = exchange
    step = next(s for s in store.steps(block.run_id) if s.name == "exchange")
    recording = store.recording(block.run_id)
    text = json.dumps(recording.body(step.output_digest))
    for neighbour in ("page=2", "theme=dark", "demo", "order is 5512", '"expires_in": 60', "X-Request-Id", "r-1"):
        assert neighbour in text
    removed: Any = step.attrs["removed"]
    assert {"$.exchange.request.url", "$.exchange.tool_call.arguments"} <= set(removed)
    every_body = [recording.body(d) for event in recording.events for d in event.digests()]
    assert CANARY not in repr(every_body)
    store.close()
    for path in workdir.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes()


@loupe.tool(effect="read", name="fail")
def _fail(exchange: dict[str, Any]) -> None:
    raise ValueError(f"401 for headers {exchange['request']['headers']}")


def test_removed_paths_are_listed(exchange: dict[str, Any]) -> None:
    found = scrub(exchange, Rules())
    assert len(found.removed) == 10, "one for each text; the arguments hold two"
    assert "$.request.headers.AUTHORIZATION" in found.removed
    assert "$.request.body.metadata.db.password" in found.removed


@pytest.fixture
def fresh_scrubbers() -> Iterator[None]:
    """Scrubbers are kept by their rules' digest, which does not tell that a shape was broken meanwhile."""
    privacy._scrubber.cache_clear()
    yield
    privacy._scrubber.cache_clear()


@pytest.mark.usefixtures("fresh_scrubbers")
def test_a_rule_that_raises_withholds_that_text_only(exchange: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    broken = credentials.Shape("broken", ("5512",), "order", when=_raise)
    monkeypatch.setattr("agentloupe.engine.rulesets.SHAPES", (broken, *credentials.SHAPES))
    found = scrub(exchange, Rules(keep=("nothing-that-is-there",)))
    assert found.withheld == ("$.request.body.messages[0].content",)
    text = json.dumps(found.value)
    assert "5512" not in text
    assert "[removed:withheld:broken]" in text
    assert "page=2" in text
    assert CANARY not in text


@pytest.mark.usefixtures("fresh_scrubbers")
def test_a_rule_that_raises_costs_a_run_one_text_and_the_rest_is_stored(
    exchange: dict[str, Any], workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same through a recording, its list of what is gone, its export, and what the command shows."""

    @loupe.tool(effect="read", name="exchange")
    def send(exchange: object) -> object:
        return exchange

    broken = credentials.Shape("broken", ("5512",), "order", when=_raise)
    monkeypatch.setattr("agentloupe.engine.rulesets.SHAPES", (broken, *credentials.SHAPES))
    (workdir / "loupe.toml").write_text('[secrets]\nfields = ["rules-of-this-test"]\n', "utf-8")
    store = open_url(workdir / "x.db")
    with loupe.recording("leaks", store=store) as block:
        send(exchange)
        while_open = b"".join(path.read_bytes() for path in workdir.rglob("*") if path.is_file())
        send({"plain": "kept"})
    steps = [step for step in store.steps(block.run_id) if step.name == "exchange"]
    recording = store.recording(block.run_id)
    text = json.dumps([recording.body(step.output_digest) for step in steps])
    assert "[removed:withheld:broken]" in text
    for neighbour in ("page=2", "theme=dark", '"expires_in": 60', "r-1", "kept"):
        assert neighbour in text
    export_run(store, block.run_id, workdir / "out.jsonl")
    export_run(store, block.run_id, workdir / "out.loupe")
    store.close()
    assert CANARY.encode() not in while_open
    assert [path.name for path in workdir.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()] == []
    again = open_url("memory:")
    import_file(again, workdir / "out.loupe")
    found = again.recording(block.run_id)
    assert CANARY not in repr([found.body(d) for event in found.events for d in event.digests()])


def _raise(_: object) -> str:
    raise ArithmeticError("this rule is broken")
