"""Open effects: listed over all runs, and settled by a person with one durable event."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.cli import main
from agentloupe.engine.project import Projector
from agentloupe.engine.tape import read_tape
from agentloupe.engine.verify import verify
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import Recording
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.store.owners import this_process
from agentloupe.verbs.deleting import delete_run
from agentloupe.verbs.effects import open_effects, settle_effect
from agentloupe.words.canonical import Json
from agentloupe.words.errors import NotFound, OwnerAlive, Refused, RunNotFound, UsageError
from agentloupe.words.run import RunFilter
from tests.tapes import record_in, sequence_of

KINDS = ["memory", "sqlite"]


@loupe.tool(effect="write")
def charge(amount: int) -> dict[str, Any]:
    return {"charge": f"ch_{amount}", "token": "sk-live-1234567890abcdefghijkl"}


@loupe.tool(effect="read")
def around(amount: int) -> dict[str, Any]:
    return charge(amount=amount)


@loupe.agent
def shop(*amounts: int) -> int:
    return sum(len(charge(amount=amount)) for amount in amounts)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = MemoryStore() if request.param == "memory" else open_url(tmp_path / "runs.db", new_fold=Projector)
    yield opened
    opened.close()


def killed(store: Store, agent: Callable[..., Any], *args: Any, after: str, nth: int = 0) -> Recording:
    """The run of a process that was killed after an event."""
    whole = record_in(MemoryStore(), agent, *args)
    store.insert(whole.run_id, whole.events[: sequence_of(whole, after, "charge", nth)], whole.get, Projector)
    return store.recording(whole.run_id)


def test_open_effects_are_listed_over_all_runs_and_settled_ones_are_gone(store: Store) -> None:
    record_in(store, shop, 1)
    first, second = (killed(store, shop, 5, 7, after="tool.started", nth=1) for _ in range(2))
    listed = open_effects(store)
    assert [effect.run_id for effect in listed.items] == [second.run_id, first.run_id]
    assert [run.id for run in store.runs(RunFilter(open_effects=True))] == [second.run_id, first.run_id]
    effect = listed.items[1]
    intent = next(e for e in reversed(first.events) if e.type == "tool.requested")
    assert (effect.call_id, effect.tool, effect.status, effect.lookup) == (intent.call_id, "charge", "open", False)
    assert effect.idempotency_key == intent.attrs["idempotency_key"]
    assert effect.arguments_digest == read_tape(first).calls[1].input_digest

    done = settle_effect(
        first.run_id, effect.call_id, "finished", why="seen", by="ann", result={"charge": 1}, store=store
    )
    assert [one.run_id for one in open_effects(store).items] == [second.run_id]
    made = store.recording(first.run_id)
    assert [e.type for e in made.events[len(first.events) :]] == ["tool.unknown", "tool.confirmed"]
    assert made.events[-1].sequence == done.sequence
    assert store.rebuild(first.run_id, Projector) == []
    assert verify(made).ok
    assert [one.run_id for one in open_effects(store).items] == [second.run_id]


def test_a_page_stops_at_the_end_of_a_run_and_goes_on_by_its_cursor(store: Store) -> None:
    runs = [killed(store, shop, n, after="tool.started").run_id for n in range(5)]
    seen, cursor = list[str](), None
    while True:
        page = open_effects(store, limit=2, cursor=cursor)
        seen += [effect.run_id for effect in page.items]
        if (cursor := page.cursor) is None:
            break
    assert seen == runs[::-1]
    for cursor in ("x", "\u0663", "9" * 20):
        with pytest.raises(UsageError, match="no such cursor"):
            open_effects(store, cursor=cursor)


@pytest.mark.parametrize("outcome", ["finished", "failed", "not_done"])
def test_what_a_person_says_is_one_event_with_who_and_why_and_no_value_in_it(store: Store, outcome: Any) -> None:
    before = killed(store, shop, 5, after="tool.requested")
    (effect,) = open_effects(store, before.run_id).items
    secret = "sk-live-1234567890abcdefghijkl"
    results: dict[str, Json] = {"finished": {"charge": "ch_5", "api_key": secret}, "failed": "declined"}
    settle_effect(
        before.run_id,
        effect.call_id,
        outcome,
        why=f"the bank says so, token {secret}",
        by="ann",
        result=results.get(outcome),
        external_id="ch_5",
        store=store,
    )
    made = store.recording(before.run_id)
    confirmed = made.events[-1]
    assert (confirmed.attrs["outcome"], confirmed.attrs["how"]) == (outcome, "person")
    assert confirmed.attrs["idempotency_key"] == effect.idempotency_key
    assert confirmed.owner_epoch == before.events[-1].owner_epoch + 1
    assert made.body(confirmed.bodies["by"]) == "ann"
    assert secret not in str(made.body(confirmed.bodies["why"]))
    assert "bank" not in json.dumps(confirmed.envelope(made.run_id, 1)), "events hold structure and digests only"
    (call,) = read_tape(made).calls
    expected = {"finished": "ok", "failed": "error", "not_done": "open"}
    assert (call.settled, call.status) == (outcome, expected[outcome])
    if outcome == "finished":
        assert confirmed.attrs["external_id"] == "ch_5"
        assert made.body(confirmed.output_digest)["charge"] == "ch_5"  # type: ignore[index,call-overload]
        assert secret not in str(made.body(confirmed.output_digest))


def test_settling_twice_says_that_it_is_settled_and_writes_nothing(store: Store) -> None:
    before = killed(store, shop, 5, after="tool.started")
    settle_effect(before.run_id, "0.0", "finished", why="seen", store=store)
    events = store.recording(before.run_id).events
    with pytest.raises(Refused, match="settled already: finished, by person") as refused:
        settle_effect(before.run_id, "0.0", "not_done", why="no", store=store)
    assert refused.value.reason == "settled"
    assert store.recording(before.run_id).events == events


def test_what_cannot_be_settled_says_why(store: Store) -> None:
    before = killed(store, shop, 5, 7, after="tool.started", nth=1)
    cases: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        (("nobody", "0.0", "finished"), RunNotFound, "no run 'nobody'"),
        ((before.run_id, "0.9", "finished"), NotFound, r"no call '0.9'.*its open effects: 0.1 \(charge\)"),
        ((before.run_id, "0.0", "finished"), Refused, "has its end: ok"),
        ((before.run_id, "0.1", "perhaps"), UsageError, "one of finished, failed, not_done"),
    ]
    for args, error, said in cases:
        with pytest.raises(error, match=said):
            settle_effect(*args, why="seen", store=store)
    with pytest.raises(UsageError, match="how you know"):
        settle_effect(before.run_id, "0.1", "finished", why=" ", store=store)
    with pytest.raises(UsageError, match="is the text of its error"):
        settle_effect(before.run_id, "0.1", "failed", why="seen", result={"code": 7}, store=store)
    with pytest.raises(UsageError, match="not done has no result"):
        settle_effect(before.run_id, "0.1", "not_done", why="seen", result="ch_1", store=store)
    allowed = killed(store, shop, 5, after="tool.allowed")
    with pytest.raises(Refused, match="never began") as refused:
        settle_effect(allowed.run_id, "0.0", "finished", why="seen", store=store)
    assert refused.value.reason == "not_begun"
    assert store.recording(before.run_id).events == before.events


def test_a_living_owner_is_left_alone(store: Store) -> None:
    before = killed(store, shop, 5, after="tool.started")
    writer = store.take_over(before.run_id, Projector, owner=this_process())
    with pytest.raises(OwnerAlive):
        settle_effect(before.run_id, "0.0", "finished", why="seen", store=store)
    writer.close()
    settle_effect(before.run_id, "0.0", "finished", why="seen", store=store)


def test_an_effect_around_an_effect_is_not_done_only_where_that_was_not(store: Store) -> None:
    @loupe.agent(name="careful")
    def careful() -> Any:
        return around(amount=3)

    before = killed(store, careful, after="tool.started")
    assert [e.call_id for e in open_effects(store, before.run_id).items] == ["0.0~.0"]
    with pytest.raises(Refused, match="an effect inside of it was begun"):
        settle_effect(before.run_id, "0.0", "not_done", why="no", store=store)
    settle_effect(before.run_id, "0.0~.0", "not_done", why="no", store=store)
    with pytest.raises(Refused, match="never began"):
        settle_effect(before.run_id, "0.0", "not_done", why="no", store=store)


def test_an_effect_that_timed_out_stays_a_question_when_its_run_has_ended(store: Store) -> None:
    @loupe.tool(effect="write", name="charge")
    def slow(amount: int) -> None:
        raise TimeoutError("no answer")

    @loupe.agent(name="patient")
    def patient() -> str:
        try:
            slow(amount=3)
        except TimeoutError:
            return "went on"
        raise AssertionError

    recording = record_in(store, patient)
    assert [e.type for e in recording.events if e.name == "charge"][-1] == "tool.unknown"
    assert recording.events[-1].type == "run.finished"
    (effect,) = open_effects(store).items
    assert (effect.run_status, effect.status) == ("ok", "unknown")
    settle_effect(recording.run_id, effect.call_id, "finished", why="seen", result="late", store=store)
    made = store.recording(recording.run_id)
    assert [e.type for e in made.events[-2:]] == ["run.finished", "tool.confirmed"]
    assert open_effects(store).items == ()
    assert store.rebuild(recording.run_id, Projector) == []
    report = loupe.replay(made, patient)
    assert report.passed, report.text()  # the program got a timeout, and gets it again
    run = store.run(recording.run_id)
    assert run is not None
    assert (run.status, run.open_effects) == ("ok", 0)


def test_a_deleted_run_asks_nobody(store: Store) -> None:
    before = killed(store, shop, 5, after="tool.started")
    delete_run(store, before.run_id, why="test")
    assert open_effects(store).items == ()
    with pytest.raises(Refused, match="was deleted"):
        settle_effect(before.run_id, "0.0", "finished", why="seen", store=store)


def test_the_command_lists_and_settles(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*argv: str) -> tuple[int, str, str]:
        code = main(list(argv))
        out = capsys.readouterr()
        return code, out.out, out.err

    assert said("effects") == (0, "no open effects\n", "")
    store = open_url(workdir / "runs.db", new_fold=Projector)
    before = killed(store, shop, 5, after="tool.started")
    store.close()
    db = ("--db", str(workdir / "runs.db"))
    code, text, _ = said("effects", *db)
    assert code == 0
    assert all(word in text for word in (before.run_id, "0.0", "charge", "open", "1 open effect"))
    (item,) = json.loads(said("effects", before.run_id, "--json", *db)[1])["items"]
    assert f"\n  {item['idempotency_key']}\n  {item['arguments_digest'][:12]}" in text
    assert max(map(len, text.splitlines())) <= 150
    assert (item["call_id"], item["run_status"]) == ("0.0", "interrupted")
    settle = ("effects", "settle", before.run_id, "0.0", *db)
    assert said(*settle, "--outcome", "done")[0] == 64
    code, _, err = said(*settle, "--outcome", "maybe", "--why", "x")
    assert (code, "one of done, failed, not-done" in err) == (64, True)
    code, _, err = said(*settle, "--outcome", "done", "--why", "x")
    assert (code, "--result null, where it returns nothing" in err) == (64, True), (
        "nothing is not made up for a program"
    )
    code, _, err = said(*settle, "--outcome", "done", "--why", "x", "--result", "{")
    assert (code, "--result is not JSON" in err) == (64, True)
    (workdir / "result.json").write_text('{"charge": "ch_5"}')
    done = said(*settle, "--outcome", "done", "--why", "seen", "--result", f"@{workdir / 'result.json'}", "--json")
    assert json.loads(done[1])["outcome"] == "finished"
    code, _, err = said(*settle, "--outcome", "done", "--why", "seen", "--result", "null")
    assert (code, "settled already" in err) == (3, True)
    assert said("effects", "list", *db)[1] == "no open effects\n"
