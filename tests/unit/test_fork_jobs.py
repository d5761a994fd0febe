"""What a server needs of a fork: its id at once, how far it is, an end from outside, waiting, asking people, an estimate."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.loop import Limits
from agentloupe.engine.policy import Given, Question
from agentloupe.ports.cancel import Cancel, waiting_for
from agentloupe.ports.progress import Progress
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import json_reply, serve
from agentloupe.providers.pacing import Bucket, Paced, bucket_of
from agentloupe.verbs.estimating import estimate_fork
from agentloupe.verbs.forking import ForkWishes, fork, prepare_fork
from agentloupe.verbs.replaying import replay
from agentloupe.words.errors import Cancelled, LimitReached, QuotaExhausted, RateLimited
from agentloupe.words.run import Run
from tests.dialect_support import QUESTION, Dialects, agent_of, answered, weather_answers


@pytest.fixture
def server(workdir: Path) -> Iterator[Dialects]:
    made = Dialects()
    with serve(made) as running:
        made.url = running.url
        yield made


def recorded(server: Dialects, form: str = "chat") -> str:
    server.answers = weather_answers()
    run_id = loupe.record(agent_of(form, server), QUESTION).run_id
    server.asked.clear()
    return run_id


def endpoint(server: Dialects) -> Endpoint:
    return Endpoint(f"{server.url}/v1", "k")


def forked(server: Dialects, run_id: str, step: int, *answers: Any, **more: Any) -> Run:
    server.answers = list(answers)
    return fork(run_id, from_step=step, provider=endpoint(server), control=False, **more).candidates[0]


# ---------------------------------------------------------------- how far it is


def test_the_id_is_known_before_anything_is_asked_and_progress_is_told(server: Dialects) -> None:
    run_id = recorded(server)
    server.answers = weather_answers()
    told: list[tuple[Progress, Any]] = []
    store = loupe.open_store()

    def watch(progress: Progress) -> None:
        told.append((progress, store.run(progress.run_id)))

    wishes = ForkWishes(watch=watch)
    pending = prepare_fork(run_id, from_step=1, store=store, provider=endpoint(server), wishes=wishes)
    assert server.asked == []
    assert store.run(pending.ids[0]) is None
    done = pending.run()
    assert done.candidates[0].id == pending.ids[0]
    assert [p.what for p, _ in told] == ["begun", *["asking", "answered"] * 3, "ended"]
    assert {p.run_id for p, _ in told} == set(pending.ids)
    assert all(row is not None for _, row in told), "who is told finds the run in the store"
    assert (told[0][1].status, told[-1][1].status) == ("running", "ok")
    assert (told[1][0].name, told[1][0].call_id) == ("chat small-1", "0.0")


def test_who_watches_cannot_break_it(server: Dialects) -> None:
    def watch(progress: Progress) -> None:
        raise ValueError(progress.what)

    assert forked(server, recorded(server), 6, "done", watch=watch).status == "ok"


# ---------------------------------------------------------------- an end from outside


@pytest.mark.parametrize("form", ["chat", "anthropic", "responses"])
def test_a_cancelled_fork_stops_inside_of_a_waiting_call(server: Dialects, form: str) -> None:
    run_id = recorded(server, form)
    cancel, late = Cancel(), threading.Event()

    def answer(body: Any) -> Any:
        if len(server.asked) == 2:
            cancel.cancel("no longer wanted")
            late.wait(20)  # until the test is over
        return json_reply(answered(form, body, [("add", {"a": 3.5, "b": 17.0})], len(server.asked)))

    try:
        run = forked(server, run_id, 1, answer, answer, answer, cancel=cancel)
    finally:
        late.set()
    assert (run.status, len(server.asked)) == ("cancelled", 2)
    assert "no longer wanted" in str(run.error)
    last = loupe.open_store().steps(run.id)[-1]
    assert (last.kind, last.status) == ("llm", "cancelled")
    report = replay(run.id)
    assert report.passed, report.text()


@pytest.mark.parametrize("engine", ["generic", "own"])
def test_a_cancelled_fork_asks_no_more(server: Dialects, engine: str) -> None:
    run_id = recorded(server)
    cancel = Cancel()

    def watch(progress: Progress) -> None:
        if progress.what == "answered":
            cancel.cancel()

    agent = agent_of("chat", server) if engine == "own" else None
    server.answers = weather_answers()[1:]
    given: dict[str, Any] = {} if agent is not None else {"provider": endpoint(server)}
    done = fork(run_id, agent, from_step=4, control=False, cancel=cancel, watch=watch, **given)
    run = done.candidates[0]
    assert (run.status, len(server.asked)) == ("cancelled", 1)
    last = loupe.open_store().steps(run.id)[-1]
    assert (last.kind, last.name) == ("other", "cancelled")
    report = replay(run.id, agent)
    assert report.passed, report.text()


def test_what_is_cancelled_before_it_begins_asks_nothing(server: Dialects) -> None:
    run_id = recorded(server)
    cancel = Cancel()
    cancel.cancel()
    cancel.cancel("again")
    run = forked(server, run_id, 1, cancel=cancel)
    assert (run.status, server.asked, cancel.why) == ("cancelled", [], "")


def test_time_is_a_limit_inside_of_a_call_too(server: Dialects) -> None:
    run_id = recorded(server)
    late = threading.Event()
    try:
        run = forked(server, run_id, 6, lambda _: late.wait(20), limits=Limits(max_seconds=0.05))
    finally:
        late.set()
    assert run.status == "error"
    steps = loupe.open_store().steps(run.id)
    assert [(s.kind, s.name) for s in steps[-2:]] == [("llm", "chat small-1"), ("other", "max_seconds")]
    report = replay(run.id)
    assert report.passed, report.text()


def test_waiting_gives_what_came_and_raises_what_was_raised() -> None:
    assert waiting_for(lambda: 3, Cancel()) == 3
    with pytest.raises(KeyError):
        waiting_for(lambda: {}["x"], Cancel(), 5)
    with pytest.raises(LimitReached):
        waiting_for(threading.Event().wait, None, 0.01)
    cancel = Cancel()
    cancel.cancel("why")
    with pytest.raises(Cancelled, match="why"):
        waiting_for(lambda: 3, cancel)


# ---------------------------------------------------------------- later


def later(ms: str = "5", status: int = 429) -> Any:
    return json_reply({"error": {"message": "slow down"}}, status, {"retry-after-ms": ms})


@pytest.mark.parametrize("status", [429, 503, 529])
def test_a_provider_that_says_when_is_waited_for(server: Dialects, status: int) -> None:
    run_id = recorded(server)
    told: list[Progress] = []
    run = forked(server, run_id, 6, later(status=status), later(status=status), "done", watch=told.append)
    assert (run.status, len(server.asked)) == ("ok", 3)
    waits = [p for p in told if p.what == "rate_limited"]
    assert [0 < (p.seconds or 0) <= 0.005 for p in waits] == [True, True]
    assert "slow down" in str(waits[0].text)
    step = loupe.open_store().steps(run.id)[-1]
    tries: Any = step.attrs["tries"]
    assert [one["status"] for one in tries] == [status, status, 200]


def test_impatience_and_a_time_that_is_not_named_end_the_fork(server: Dialects) -> None:
    run_id = recorded(server)
    run = forked(server, run_id, 6, later("500"), patience=0.1)
    assert (run.status, len(server.asked)) == ("error", 1)
    assert "slow down" in str(run.error)
    server.asked.clear()
    elsewhere = Endpoint(f"{server.url}/v1//", "k", dialect="chat")  # an address of its own, with a bucket of its own
    server.answers = [json_reply({"error": {"message": "slow down"}}, 429)]
    with pytest.raises(RateLimited) as refused:
        Paced(endpoint=elsewhere, bucket=Bucket()).send({"model": "m", "messages": []})
    assert (refused.value.retry_after, len(server.asked)) == (None, 1)


PAY = [
    (429, {"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "see billing"}}),
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}}),
    (402, {"error": {"message": "pay"}}),
]


@pytest.mark.parametrize(("status", "body"), PAY)
def test_an_account_that_is_used_up_is_told_apart_and_not_waited_for(server: Dialects, status: int, body: Any) -> None:
    run_id = recorded(server)
    refused = json_reply(body, status, {"retry-after-ms": "1"})
    run = forked(server, run_id, 6, refused, "done")
    assert (run.status, len(server.asked)) == ("error", 1)
    step = loupe.open_store().steps(run.id)[-1]
    assert step.error_class == "agentloupe.words.errors.QuotaExhausted"
    server.answers = [refused] * 9
    with pytest.raises(QuotaExhausted, match="waiting does not help") as raised:
        endpoint(server).send({"model": "m", "messages": []})
    assert raised.value.status == status


def test_one_refusal_holds_everybody_who_asks_there(server: Dialects) -> None:
    now = [0.0]
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds * 1000

    bucket = Bucket(lambda: now[0])
    where = endpoint(server)
    first = Paced(endpoint=where, patience=60, bucket=bucket, wait=wait)
    other = Paced(endpoint=where, patience=60, bucket=bucket, wait=wait)
    hasty = Paced(endpoint=where, patience=1, bucket=bucket, wait=wait)
    server.answers = [later("30000")] * 3 + ["hello"] * 9
    with pytest.raises(RateLimited):
        first.send({"model": "m", "messages": []})
    assert waited == [30.0, 30.0], "the third refusal was beyond its patience"
    bucket.hold(20)
    with pytest.raises(RateLimited) as refused:
        hasty.send({"model": "m", "messages": []})
    assert refused.value.retry_after == 20
    asked = len(server.asked)
    server.answers = ["hello"] * 9
    answer = other.send({"model": "m", "messages": []})
    assert (len(server.asked), waited[-1]) == (asked + 1, 20.0)
    assert answer.facts["waited_ms"] == 20000.0


def test_each_endpoint_has_a_bucket_of_its_own(server: Dialects) -> None:
    """While one address is held, another one is asked at once; whoever asks the held one later finds it held."""
    free = Endpoint(f"{server.url}/v1", "k", dialect="chat")
    held = Endpoint(f"{server.url.replace('127.0.0.1', 'localhost')}/v1", "k", dialect="chat")
    assert held.url != free.url
    bucket_of(held.url).hold(3600)
    server.answers = ["hello"]
    answer = Paced(endpoint=free, patience=0.1).send({"model": "m", "messages": []})
    assert (len(server.asked), "waited_ms" in answer.facts) == (1, False)
    with pytest.raises(RateLimited) as refused:
        Paced(endpoint=held, patience=0.1).send({"model": "m", "messages": []})
    assert refused.value.retry_after == pytest.approx(3600, abs=60)
    assert len(server.asked) == 1


def test_waiting_for_a_provider_is_cancelled(server: Dialects) -> None:
    run_id = recorded(server)
    cancel = Cancel()

    def watch(progress: Progress) -> None:
        if progress.what == "rate_limited":
            cancel.cancel()

    run = forked(server, run_id, 6, later("50000"), cancel=cancel, watch=watch)
    assert (run.status, len(server.asked)) == ("cancelled", 1)


# ---------------------------------------------------------------- people


def test_a_person_is_asked_and_who_that_was_is_recorded(server: Dialects) -> None:
    run_id = recorded(server)
    questions: list[Question] = []
    told: list[Progress] = []

    def ask(question: Question) -> Given:
        questions.append(question)
        return Given({"sum": 7}, by="anna")

    missed = [("add", {"a": 3, "b": 4})]
    run = forked(server, run_id, 1, missed, "done", on_miss="human", ask=ask, watch=told.append)
    (question,) = questions
    (step,) = [s for s in loupe.open_store().steps(run.id) if s.kind == "tool"]
    assert (step.source, step.attrs["answered_by"]) == ("human", "anna")
    assert step.ended_at is not None
    assert (question.run_id, question.because, question.arguments) == (run.id, "miss", {"a": 3, "b": 4})
    assert question.nearest_call is not None
    assert question.nearest_call["step"] == 5
    assert question.nearest_call["changes"]
    assert [p.call_id for p in told if p.what == "waiting"] == [question.call_id]
    assert '"sum":7' in str(server.asked[1]["messages"][-1]["content"]).replace(" ", "")
    assert replay(run.id).passed


def test_who_is_asked_may_end_the_fork(server: Dialects) -> None:
    run_id = recorded(server)

    def ask(_: Question) -> Any:
        raise Cancelled("the page was closed")

    run = forked(server, run_id, 1, [("add", {"a": 3, "b": 4})], "done", on_miss="human", ask=ask)
    assert (run.status, len(server.asked)) == ("cancelled", 1)
    assert replay(run.id).passed


# ---------------------------------------------------------------- before it is made


def test_an_estimate_is_what_the_parent_asked_from_there(
    server: Dialects, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = workdir / "prices.json"
    prices.write_text(
        '{"currency": "USD", "per": "1M tokens", "models": {"small-1": {"input": 1, "output": 2}, "big-1": {"input": 10, "output": 20}}}'
    )
    monkeypatch.setenv("LOUPE_PRICES", str(prices))
    run_id = recorded(server)
    store = loupe.open_store()
    told = estimate_fork(run_id, from_step=4, store=store)
    assert (told.runs, told.calls, told.input_tokens, told.output_tokens) == (1, 2, 20, 10)
    assert (told.cost, told.complete) == (Decimal("0.00004"), True)
    paired = ForkWishes(repeat=2, overrides=loupe.Overrides(model="big-1"))
    told = estimate_fork(run_id, from_step="start", store=store, wishes=paired)
    assert (told.runs, told.calls) == (4, 12)
    assert told.cost == Decimal("0.00006") * 2 + Decimal("0.0006") * 2
    unknown = ForkWishes(overrides=loupe.Overrides(model="nobody-knows-1"), limits=Limits(max_steps=1))
    told = estimate_fork(run_id, from_step=1, store=store, wishes=unknown)
    assert (told.calls, told.cost, told.complete) == (1, None, False)
    assert told.as_json()["cost"] is None
    assert server.asked == []
