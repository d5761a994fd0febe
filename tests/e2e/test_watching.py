"""A fork in a real browser: begin it, watch it, answer for it, end it, lose the server meanwhile."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from agentloupe.engine.project import Projector
from agentloupe.providers.scripted import ask, say
from agentloupe.providers.scripted.answers import fail
from agentloupe.store.opening import open_url
from tests.e2e.model import Gate, Model
from tests.e2e.served import Served, serving
from tests.e2e.world import NEW_PROMPT, World, observed_run

RECORDED = ask(("look_up_policy", {"topic": "Frost guarantee"}))
UNKNOWN = ask(("calculate", {"expression": "7.6 - -4.1"}))


def started(page: Page, server: Served, run: str, *, miss: str = "error (tell the model)") -> Locator:
    """Begins a fork at step 3; the card of its job."""
    server.show(page, f"/runs/{run}/fork?from=3")
    page.get_by_role("radio", name=miss).check()
    page.get_by_role("button", name="Run 1 fork").click()
    return page.get_by_role("article", name=re.compile("^fork "))


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Holds the model back; whoever still waits at the end is let through."""
    made = Gate()
    yield made
    made.open(100)


def test_a_step_is_found_forked_watched_and_compared(
    page: Page, server: Served, world: World, model: Model, gate: Gate
) -> None:
    model.says(RECORDED, say("Only one box is covered."), gate=gate)
    server.show(page, "/runs")
    row = page.get_by_role("row").filter(has=page.get_by_text(world.observed, exact=True))
    row.get_by_role("link", name="Frost refund").click()
    page.get_by_role("region", name="Transcript").get_by_text("I need the exact rule").click()
    page.get_by_role("article", name="Step 3", exact=True).get_by_role("link", name="Fork from here").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Fork from step 3")
    before = page.get_by_role("complementary", name="Before you fork")
    expect(before).to_contain_text("Nothing is changed yet")
    expect(before).to_contain_text("issue_refund is not run, whatever happens.")
    page.get_by_role("textbox", name="edited here").fill(NEW_PROMPT)
    expect(before).to_contain_text("system prompt +2 −1 lines")
    page.get_by_role("button", name="Run 1 fork").click()
    gate.reached()
    job = page.get_by_role("article", name=re.compile("^fork "))
    job.get_by_role("link").first.click()
    expect(page.get_by_text("cut at step 3").first).to_be_visible()
    gate.open()
    gate.reached()
    transcript = page.get_by_role("region", name="Transcript")
    expect(transcript.get_by_text("look_up_policy").last).to_be_visible()
    expect(transcript.get_by_text("Only one box is covered.")).to_have_count(0)
    gate.open()
    expect(transcript.get_by_text("Only one box is covered.")).to_be_visible()
    page.get_by_role("link", name="Compare with parent").click()
    expect(page.get_by_text("Only one box is covered.").first).to_be_visible()
    expect(page.get_by_text("only in A").first).to_be_visible()


def test_three_repeats_end_in_their_summary(page: Page, server: Served, world: World, model: Model) -> None:
    model.says(say("All the same."))
    server.show(page, f"/runs/{world.observed}/fork?from=3")
    page.get_by_role("group", name="Repeat").get_by_role("button", name="3").click()
    page.get_by_role("checkbox", name="with control arm").uncheck()
    page.get_by_role("button", name="Run 3 forks").click()
    expect(page.get_by_role("heading", name="Summary of 4 runs")).to_be_visible()
    expect(page.get_by_text("3 of 4 runs end with the same answer")).to_be_visible()
    expect(page.get_by_role("img", name="Where the runs went together")).to_be_visible()


def test_a_person_answers_a_missed_call_in_place(page: Page, server: Served, world: World, model: Model) -> None:
    model.says(UNKNOWN, say("11.7 degrees apart."))
    job = started(page, server, world.observed, miss="human (ask me)")
    expect(job).to_contain_text("waiting for a person")
    expect(job).to_contain_text("7.6 - -4.1")
    for inside in (job.locator(".asking textarea"), job.get_by_role("button", name="Stop and keep what is done")):
        place = inside.bounding_box()
        assert place is not None
        assert place["x"] + place["width"] <= page.evaluate("innerWidth"), "cut off at the edge of the window"
    give = job.get_by_role("button", name="Give this result")
    expect(give).to_be_disabled()
    job.get_by_role("textbox", name="Result as JSON").fill("11.7")
    job.get_by_role("textbox", name="Your name").fill("Ada")
    give.click()
    expect(page.get_by_text("11.7 degrees apart.").first).to_be_visible()
    page.get_by_role("heading", level=2).get_by_role("link", name="(fork from step 3)").click()
    page.get_by_role("region", name="Transcript").get_by_role("button", name=re.compile("calculate")).click()
    expect(page.get_by_text("Given by")).to_be_visible()
    expect(page.get_by_text("Ada", exact=True)).to_be_visible()


def test_a_fork_is_ended_while_the_model_thinks(
    page: Page, server: Served, world: World, model: Model, gate: Gate
) -> None:
    model.says(RECORDED, say("never said"), gate=gate)
    job = started(page, server, world.observed)
    gate.reached()
    gate.open()
    gate.reached()
    job.get_by_role("button", name="Stop and keep what is done").click()
    expect(job).to_contain_text("cancelled")
    job.get_by_role("link").first.click()
    expect(page.get_by_role("region", name="Transcript").get_by_text("look_up_policy").last).to_be_visible()
    expect(page.get_by_text("never said")).to_have_count(0)


def test_a_provider_that_says_later_is_waited_for_with_its_seconds(
    page: Page, server: Served, world: World, model: Model
) -> None:
    model.says(fail(429, "Slow down, please", headers={"retry-after": "2"}), say("After the pause."))
    job = started(page, server, world.observed)
    expect(job).to_contain_text("rate limited")
    expect(job.get_by_text(re.compile(r"goes on in \d s"))).to_be_visible()
    expect(job).to_contain_text("Slow down, please")
    expect(page.get_by_text("After the pause.").first).to_be_visible()


def test_an_exhausted_quota_ends_the_fork_and_says_so(page: Page, server: Served, world: World, model: Model) -> None:
    spent = {"error": {"message": "You exceeded your current quota", "type": "x", "code": "insufficient_quota"}}
    model.says(fail(429, body=spent))
    job = started(page, server, world.observed)
    expect(job).to_contain_text("failed")
    expect(job).to_contain_text(re.compile("quota", re.IGNORECASE))
    expect(page.get_by_role("button", name="Back to the run")).to_be_enabled()


def test_a_fork_survives_the_death_of_its_server(page: Page, tmp_path: Path, model: Model, gate: Gate) -> None:
    model.says(RECORDED, RECORDED, say("After all."), gate=gate)
    db = tmp_path / "own.db"
    with closing(open_url(db, new_fold=Projector)) as store:
        run = observed_run(store)
    same = ("--port", str(free_port()), "--token", "the-same-token-as-before")
    with serving(db, *same, **model.variables) as first:
        job = started(page, first, run)
        gate.reached()
        gate.open()
        gate.reached()
        first.process.kill()
        expect(page.get_by_text("The server has not answered since")).to_be_visible()
        gate.open(10)
    with serving(db, *same, **model.variables):
        expect(page.get_by_text("The server has not answered since")).to_be_hidden()
        expect(page.get_by_text("After all.").first).to_be_visible()
        assert job.count() == 0


def free_port() -> int:
    """A port that nobody listens at."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_what_cannot_be_begun_says_why(page: Page, tmp_path: Path) -> None:
    db = tmp_path / "own.db"
    with closing(open_url(db, new_fold=Projector)) as own:
        run = observed_run(own)
    with serving(db) as served:
        served.show(page, f"/runs/{run}/fork?from=3")
        expect(page.get_by_role("button", name="Run 1 fork")).to_be_disabled()
        expect(page.get_by_text("No endpoint is configured")).to_be_visible()
        code = page.get_by_role("button", name="Own code")
        expect(code).to_be_disabled()
        expect(code).to_have_accessible_description(re.compile("agentloupe worker"))
