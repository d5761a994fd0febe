"""Jobs, replay reports, settings and commands on the page."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from platform import python_version
from typing import Any, cast

from playwright.sync_api import Browser, Page, expect

from agentloupe.engine.expectations import read_expected
from agentloupe.engine.project import Projector
from agentloupe.ports.jobs import Job, Worker
from agentloupe.ports.protocols import Store
from agentloupe.store.opening import open_url
from agentloupe.store.owners import this_process
from agentloupe.verbs.instrument import agent
from tests.e2e.served import Served, serving
from tests.e2e.work import Work, jobs_in, trip_today, worker
from tests.e2e.world import World


def test_a_report_shows_the_first_divergence_from_both_sides(page: Page, server: Served, work: Work) -> None:
    server.show(page, f"/replays?run={work.run}")
    page.locator(f"a[href$='/replays/{work.diverged}']").first.click()
    expect(page.get_by_role("heading", name="Replay, strict")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("1 agreed · 1 diverged · 6 left over"))).to_be_visible()
    expect(page.get_by_text("Expected, on the tape")).to_be_visible()
    expect(page.get_by_text("Actual, from today’s code")).to_be_visible()
    expect(page.get_by_text(re.compile(r"work\.py:\d+"))).to_be_visible()
    expect(page.get_by_text("Strict replay never takes a near match.")).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 900})
    beside = page.get_by_role("complementary").bounding_box()
    assert beside is not None
    for box in page.locator("aside .box").all():  # a command that does not break must not widen what is beside it
        inside = box.bounding_box()
        assert inside is not None
        assert inside["x"] + inside["width"] <= beside["x"] + beside["width"]
    page.keyboard.press("o")
    expect(page).to_have_url(re.compile(f"/runs/{work.run}.*step=1"))
    expect(page.get_by_role("link", name=re.compile("replay"))).to_have_count(1)


def test_a_difference_that_is_meant_is_named_as_the_command_takes_it(
    page: Page, server: Served, work: Work, tmp_path: Path
) -> None:
    server.show(page, f"/replays/{work.diverged}")
    page.keyboard.press("e")
    said = page.get_by_role("dialog", name="A difference that is meant")
    (tmp_path / "expected.json").write_text(said.locator("pre").inner_text(), "utf-8")
    (entry,) = read_expected(tmp_path / "expected.json")
    assert entry.name is not None
    expect(said.get_by_text(f"agentloupe replay {work.run} --expect expected.json")).to_be_visible()
    page.keyboard.press("Escape")
    expect(said).to_have_count(0)


def _report(store: Store, work: Work, job: str, **changes: Any) -> str:
    """The report of the replay that diverged, with other members, as a job of its own; its id."""
    jobs, me = jobs_in(store), Worker(id=f"worker-{job}", owner=this_process(), agents=())
    done = jobs.get(work.diverged)
    assert done is not None
    assert isinstance(done.result, dict)
    jobs.add(Job(id=job, kind="replay", spec={}, runs=(), parent=work.run, needs=f"agent:{job}"))
    assert jobs.take(me, [f"agent:{job}"]) is not None
    jobs.tell(job, me.id, status="done", result={**done.result, **changes})
    return job


def test_a_report_shows_the_code_what_is_left_over_and_what_it_was_recorded_with(
    page: Page, server: Served, work: Work, store: Store, folder: Path
) -> None:
    (folder / "agent.py").write_text("".join(f"step_{n}()\n" for n in range(1, 21)))
    done = jobs_in(store).get(work.diverged)
    assert done is not None
    assert isinstance(done.result, dict)
    caller = {"file": str(folder / "agent.py"), "line": 10}
    divergence: Any = {**cast("dict[str, Any]", done.result["divergence"]), "caller": caller}
    server.show(
        page, f"/replays/{_report(store, work, 'job-shown', divergence=divergence, patched={'two-cities': False})}"
    )
    code = page.get_by_role("region", name="The code that made the call")
    expect(code.locator(".hit")).to_contain_text("step_10()")
    expect(code).to_contain_text("step_14()")
    expect(code).not_to_contain_text("step_15()")
    expect(page.get_by_text("Left over: 6 events")).to_be_visible()
    expect(page.get_by_text("two-cities: the recording was made before it")).to_be_visible()
    expect(page.get_by_text("Offline, 1 of 8 events")).to_be_visible()
    made = page.get_by_role("complementary").filter(has_text="Recorded with")
    expect(made).to_contain_text(f"Python{python_version()}")
    page.get_by_role("link", name="3", exact=True).click()
    expect(page).to_have_url(re.compile("/events.*event=3"))


def test_a_damaged_recording_is_never_called_diverged(page: Page, server: Served, work: Work, store: Store) -> None:
    bad: dict[str, Any] = {"kind": "corrupt", "sequence": 4, "message": "event 4 is not what was sealed"}
    none = dict.fromkeys(("lane", "n", "step", "expected", "actual", "caller", "last_agreeing", "suggestion"))
    divergence = {**none, "changes": [], "more_changes": False, "candidates": [], "hints": [], **bad}
    levels = dict.fromkeys(("flow", "state", "content"))
    changes: dict[str, Any] = {"verdict": "damaged", "exit_code": 2, "levels": levels, "divergence": divergence}
    server.show(page, f"/replays/{_report(store, work, 'job-damaged', **changes)}")
    expect(page.get_by_role("status").filter(has_text="The recording itself is not whole.")).to_be_visible()
    expect(page.get_by_text("first bad event: 4")).to_be_visible()
    expect(page.get_by_text(re.compile("diverged"))).to_have_count(0)


def test_a_replay_that_agrees_says_what_was_judged(page: Page, server: Served, work: Work) -> None:
    server.show(page, f"/replays/{work.passed}")
    expect(page.get_by_text("agrees to the end")).to_be_visible()
    expect(page.get_by_text("Control flow: agrees")).to_be_visible()
    expect(page.get_by_text("Content: agrees")).to_be_visible()
    expect(page.get_by_text("No model was asked, no tool was run.")).to_be_visible()
    expect(page.get_by_text(re.compile("diverge"))).to_have_count(0)


def test_a_replay_is_started_once_a_worker_has_the_agent(page: Page, server: Served, work: Work, store: Store) -> None:
    server.show(page, f"/replays?run={work.run}")
    start = page.get_by_role("button", name=re.compile("^Replay"))
    expect(start).to_be_disabled()
    expect(page.get_by_text("agentloupe worker tests.e2e.work:trip")).to_be_visible()
    with worker(store, trip=agent(name="trip")(trip_today)).working():
        expect(start).to_be_enabled()
        page.keyboard.press("r")
        expect(page).to_have_url(re.compile("/jobs/job-"))
        page.get_by_role("link", name="Open the report").click()
    expect(page.get_by_text("first divergence: event 2")).to_be_visible()


def test_a_run_is_made_again_from_the_start_with_changes(page: Page, server: Served, work: Work, store: Store) -> None:
    server.show(page, f"/runs/{work.run}")
    page.get_by_role("link", name="Run again with changes").click()
    expect(page.get_by_role("heading", name="Run again from the start")).to_be_visible()
    expect(page.get_by_text("No step is kept")).to_be_visible()
    start = page.get_by_role("button", name=re.compile("Run 1 fork"))
    expect(start).to_be_disabled()
    expect(start).to_have_accessible_description(re.compile("no worker has the agent.*agentloupe worker"))
    with worker(store, trip=agent(name="trip")(trip_today)).working():
        page.reload()
        page.get_by_role("combobox", name="Policy of get_weather").select_option("stub")
        page.get_by_role("textbox", name="What get_weather answers, as JSON").fill('"cold"')
        with page.expect_request(lambda one: one.method == "POST" and one.url.endswith("/fork")) as sent:
            start.click()
        assert sent.value.post_data_json == {
            "from_step": "start",
            "engine": "own",
            "overrides": {},
            "tools": {"get_weather": 'stub:"cold"'},
        }
        expect(page).to_have_url(re.compile("/compare"))
    made = page.url.rpartition("b=")[2].partition("&")[0]
    assert [step.source for step in store.steps(made) if step.kind == "tool"] == ["stub", "stub"]
    run = store.run(made)
    assert run is not None
    assert (run.parent_run_id, run.forked_from_step) == (work.run, None)


def test_replays_are_turned_page_by_page(browser: Browser, page: Page, tmp_path: Path) -> None:
    with closing(open_url(tmp_path / "runs.db", new_fold=Projector)) as store:
        jobs, me = jobs_in(store), Worker(id="w", owner=this_process(), agents=())
        for n in range(51):
            jobs.add(Job(id=f"job-{n:02}", kind="replay", spec={}, runs=(), parent="r", needs="agent:a"))
            assert jobs.take(me, ["agent:a"]) is not None
            jobs.tell(f"job-{n:02}", me.id, status="done")
    with serving(tmp_path / "runs.db") as served:
        served.show(page, "/replays")
        rows = page.get_by_role("table", name="Replays").locator("tbody tr")
        expect(rows).to_have_count(50)
        expect(page.get_by_text("1 to 50 of 51")).to_be_visible()
        page.get_by_role("button", name="Older").click()
        expect(rows).to_have_count(1)
        expect(rows.first.locator("a[href$='/replays/job-00']")).to_be_visible()
        page.keyboard.press("p")
        expect(rows).to_have_count(50)


def test_a_job_that_waits_for_code_names_the_command(page: Page, server: Served, work: Work) -> None:
    server.show(page, f"/jobs/{work.lacking}")
    expect(page.get_by_text("No worker has the agent nobody.")).to_be_visible()
    expect(page.get_by_text("agentloupe worker tests.e2e.work:trip")).to_be_visible()


def test_a_question_is_answered_where_it_is_asked(page: Page, server: Served, work: Work, store: Store) -> None:
    server.show(page, f"/jobs/{work.waiting}")
    expect(page.get_by_text('{"city":"Guangzhou"}')).to_be_visible()
    expect(page.get_by_text(re.compile("nearest recorded call: get_weather in step 2 .*Shanghai"))).to_be_visible()
    page.get_by_role("textbox", name="Result as JSON").fill('{"t": 9007199254740993}')
    page.get_by_role("textbox", name="Your name").fill("anna")
    page.get_by_role("button", name="Give this result").click()
    expect(page.get_by_role("textbox", name="Result as JSON")).to_have_count(0)
    said = jobs_in(store).answered("q-1")
    assert said is not None
    assert (said.value, said.by, said.failed) == ({"t": 9007199254740993}, "anna", False)


def test_a_limit_counts_down_and_a_failure_has_a_way_out(page: Page, server: Served, work: Work) -> None:
    server.show(page, "/jobs?status=rate_limited")
    expect(page.get_by_text("Quota for this minute is used up.")).to_be_visible()
    expect(page.get_by_text("goes on in 17 s")).to_be_visible()
    server.show(page, "/jobs?status=failed")
    card = page.get_by_role("article").filter(has_text="the quota of this month is used up")
    expect(card.get_by_text("raise the quota, or name another endpoint")).to_be_visible()
    card.get_by_role("link", name="Fork it again").click()
    expect(page).to_have_url(re.compile("/fork.*from=3"))
    server.show(page, f"/jobs/{work.failed}", lang="zh-CN")
    expect(page.get_by_text("配额已用尽。")).to_be_visible()
    server.show(page, "/runs", lang="en")


def test_a_job_is_stopped(page: Page, server: Served, work: Work, store: Store, world: World) -> None:
    job = jobs_in(store).add(
        Job(id="job-to-stop", kind="replay", spec={}, runs=(), parent=world.observed, needs="agent:nobody")
    )
    server.show(page, f"/jobs/{job.id}")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("cancelled")).to_be_visible()


def test_the_list_of_jobs_follows_what_happens(page: Page, server: Served, work: Work, store: Store) -> None:
    server.show(page, "/jobs")
    expect(page.get_by_text("job-failed").first).to_be_visible()
    jobs_in(store).add(Job(id="job-seen", kind="replay", spec={}, runs=(), parent=work.run, needs="agent:nobody"))
    expect(page.get_by_role("link", name="job-seen")).to_be_visible()


def test_settings_say_where_they_come_from_and_keep_the_key(page: Page, server: Served) -> None:
    server.show(page, "/settings")
    expect(page.get_by_text("set in LLM_API_KEY")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="server.max_body")
    expect(row).to_contain_text("LOUPE_SERVER_MAX_BODY")
    expect(row).to_contain_text("default")
    for table in ("Secret removal", "Redaction", "Agents kept in another way"):
        expect(page.get_by_role("region", name=table)).to_be_visible()
    named = page.get_by_role("table", name="Settings").locator("tbody tr td:first-child")
    expect(named.filter(has_text="anchor_key")).to_contain_text("public key")
    assert named.count() == named.filter(has=page.locator(".note")).count() > 10  # every setting says what it does
    page.get_by_role("main").get_by_role("button", name="Dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.get_by_role("checkbox", name="Single keys do something").uncheck()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_commands_lead_to_places_and_runs(page: Page, server: Served, world: World) -> None:
    server.show(page, "/runs")
    expect(page.get_by_role("link", name="Weather watch")).to_be_visible()
    page.keyboard.press("ControlOrMeta+k")
    page.keyboard.type("jobs")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    page.keyboard.press("ControlOrMeta+k")
    page.keyboard.type(world.failed[:12])
    expect(page.get_by_role("option", name=re.compile("Weather watch"))).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Weather watch")
