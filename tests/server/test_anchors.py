"""What the server's verdict says of anchors that the settings name."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from agentloupe.ports.protocols import Store
from agentloupe.verbs.anchoring import make_anchor_key, write_anchor
from tests.server.answers import good
from tests.server.serving import TOKEN, client_of, store_in
from tests.store.make import small_run


@pytest.fixture
def named(store: Store, tmp_path: Path) -> dict[str, Path]:
    """A store of one run that was signed, and the settings that say so."""
    small_run(store, "run-1")
    make_anchor_key(tmp_path / "key")
    write_anchor(store, tmp_path / "anchors.jsonl", key=tmp_path / "key")
    return {"anchors": tmp_path / "anchors.jsonl", "anchor_key": tmp_path / "key.pub"}


def test_a_verdict_says_what_was_signed(store: Store, named: dict[str, Path]) -> None:
    client = client_of(store, TOKEN, **named)
    found = good(client.get("/api/runs/run-1/verify"))
    assert (found["ok"], found["anchored"], found["anchor_sequence"]) == (True, True, found["events"])
    assert found["anchored_at"] is not None
    assert found["key_id"] is not None
    assert any("those that were signed" in line for line in found["proves"])
    assert found["anchor_problem"] is None
    small_run(store, "run-2")
    later = good(client.get("/api/runs/run-2/verify"))
    assert (later["ok"], later["anchored"], later["anchored_at"], later["key_id"]) == (True, False, None, None)


def test_anchors_that_cannot_be_used_are_told_and_do_not_stop_the_verdict(store: Store, named: dict[str, Path]) -> None:
    named["anchors"].write_bytes(named["anchors"].read_bytes().replace(b'"runs":1', b'"runs":2'))
    client = client_of(store, TOKEN, **named)
    found = good(client.get("/api/runs/run-1/verify"))
    assert (found["ok"], found["anchored"]) == (True, False)
    assert "the signature does not fit" in found["anchor_problem"]


def test_anchors_of_another_store_are_told_and_prove_nothing(
    store: Store, named: dict[str, Path], tmp_path: Path
) -> None:
    """The same run stands in another store: what was signed says nothing about that one, as `verify --all` says too."""
    with closing(store_in(tmp_path / "other")) as other:
        small_run(other, "run-1")
        found = good(client_of(other, TOKEN, **named).get("/api/runs/run-1/verify"))
    assert (found["ok"], found["anchored"], found["anchor_sequence"]) == (True, False, None)
    assert "is not the store whose runs were signed" in found["anchor_problem"]
    assert good(client_of(store, TOKEN, **named).get("/api/runs/run-1/verify"))["anchor_problem"] is None


def test_without_such_settings_nothing_is_said_of_anchors(store: Store) -> None:
    small_run(store, "run-1")
    found = good(client_of(store, TOKEN).get("/api/runs/run-1/verify"))
    assert (found["anchored"], found["anchor_sequence"], found["anchor_problem"]) == (False, None, None)
