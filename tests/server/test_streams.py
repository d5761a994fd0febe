"""What changes is told as it changes, and a reader that comes back misses nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from agentloupe.engine.project import Projector
from agentloupe.ports.pack import Body, needs
from agentloupe.ports.protocols import Store
from agentloupe.ports.settings import Settings
from agentloupe.server.context import Context
from agentloupe.server.streams import RunFeed
from agentloupe.store.owners import this_process
from agentloupe.words.event import Draft
from tests.fork_support import weather_run
from tests.made import Maker
from tests.server.answers import refused
from tests.server.serving import TOKEN, client_of


def read(messages: list[bytes]) -> list[tuple[str, str | None, Any]]:
    """(event, id, document) of each."""
    found: list[tuple[str, str | None, Any]] = []
    for message in messages:
        fields = dict(line.split(": ", 1) for line in message.decode().strip().splitlines())
        found.append((fields["event"], fields.get("id"), json.loads(fields["data"])))
    return found


def bodies_of(made: Maker, drafts: Sequence[Draft]) -> list[Body]:
    """What drafts name, and all that is needed to read it."""
    todo, found = {d for draft in drafts for d in draft.digests()}, dict[str, bytes]()
    while todo:
        found.update({digest: made.bodies[digest] for digest in todo})
        todo = {ref for digest in todo for ref in needs(made.bodies[digest])} - found.keys()
    return [Body(digest, data, tuple(needs(data))) for digest, data in found.items()]


@pytest.fixture
def here(store: Store, tmp_path: Any) -> Context:
    return Context(store, Settings(root=tmp_path, db=""))


def test_steps_are_told_as_they_happen(here: Context, store: Store) -> None:
    made = Maker("live")
    writer = store.start("live", Projector, owner=this_process())
    sent = 0

    def append() -> None:
        nonlocal sent
        writer.append(made.drafts[sent:], bodies_of(made, made.drafts[sent:]))
        sent = len(made.drafts)

    append()
    feed = RunFeed(here, "live", 0)
    first = read(feed.take())
    assert [event for event, _, _ in first] == ["run"]
    assert feed.take() == []
    made.call("tool", "t", {}, 1)
    append()
    run, steps = read(feed.take())
    assert [step["name"] for step in steps[2]["items"]] == ["t"]
    assert steps[1] == str(run[2]["run"]["events"])
    late = RunFeed(here, "live", int(steps[1] or 0))
    assert [event for event, _, _ in read(late.take())] == ["run"]
    made.call("tool", "u", {}, 2)
    append()
    assert [s["name"] for e, _, d in read(late.take()) if e == "steps" for s in d["items"]] == ["u"]
    made.finish("done")
    append()
    assert [event for event, _, _ in read(feed.take())] == ["run", "steps", "end"]
    assert feed.ended
    writer.close()


def test_a_run_that_has_ended_is_told_whole_and_ends_the_stream(store: Store) -> None:
    run = weather_run(store)
    client = client_of(store, TOKEN)
    with client.stream("GET", f"/api/runs/{run}/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = "".join(answer.iter_text())
    told = read([part.encode() for part in text.strip().split("\n\n")])
    assert [event for event, _, _ in told] == ["run", "steps", "end"]
    assert [step["idx"] for step in told[1][2]["items"]] == list(range(6))
    assert told[2][2] == {"status": "ok"}
    last = told[2][1]
    assert last is not None
    with client.stream("GET", f"/api/runs/{run}/stream", headers={"Last-Event-ID": last}) as answer:
        again = "".join(answer.iter_text())
    assert "event: steps" not in again
    assert "event: end" in again


def test_a_stream_of_nothing_is_refused_at_once(store: Store) -> None:
    client = client_of(store, TOKEN)
    refused(client.get("/api/runs/nobody/stream"), 404, "run_not_found")
    run = weather_run(store)
    refused(client.get(f"/api/runs/{run}/stream", headers={"Last-Event-ID": "x"}), 422, "asked_wrong")


def test_a_run_that_is_deleted_meanwhile_ends_the_stream(here: Context, store: Store) -> None:
    feed = RunFeed(here, "gone", 0)
    assert read(feed.take()) == [("end", "0", {"status": None})]


def test_what_a_growing_run_had_is_not_read_again(here: Context, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 300 steps, one that ends and one that is new are read; what is kept is what a fresh reader sees."""
    made = Maker("live", root=True)
    writer = store.start("live", Projector, owner=this_process())
    sent = 0

    def append(leave: int = 0) -> None:
        nonlocal sent
        until = len(made.drafts) - leave
        writer.append(made.drafts[sent:until], bodies_of(made, made.drafts[sent:until]))
        sent = until

    for at in range(300):
        made.call("tool", "t", {"at": at}, at)
    append(leave=1)  # the last one is still open
    feed = RunFeed(here, "live", 0)
    feed.take()
    read_now: list[int] = []
    whole = store.steps

    def steps(run_id: str, *, first: int = 0, limit: int | None = None) -> Any:
        found = whole(run_id, first=first, limit=limit)
        read_now.append(len(found))
        return found

    monkeypatch.setattr(store, "steps", steps)
    made.model([{"role": "user", "content": "well?"}], {"role": "assistant", "content": "yes"})
    append()
    told = [item for event, _, d in read(feed.take()) if event == "steps" for item in d["items"]]
    assert [(item["idx"], item["status"]) for item in told] == [(300, "ok"), (301, "ok")]
    assert sum(read_now) == 2
    assert list(here.reader.open("live").steps) == whole("live")
    made.finish("done")
    append()
    told = read(feed.take())
    assert [item["idx"] for event, _, d in told if event == "steps" for item in d["items"]] == [0]
    assert list(here.reader.open("live").steps) == whole("live")
    writer.close()
