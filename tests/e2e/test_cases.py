"""What the page shows of the shared cases: exact, in order, as text, and nothing of a secret."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.providers.scripted import say
from agentloupe.store.opening import open_url
from agentloupe.verbs.replaying import replay
from tests.cases.rec import Rec, load_agent
from tests.e2e.model import Model
from tests.e2e.samples import Samples, make_hostile, make_samples, read
from tests.e2e.served import Served, serving
from tests.e2e.test_fork_panel import typed
from tests.support import case_folder


@pytest.fixture(scope="module")
def place(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("samples")


@pytest.fixture(scope="module")
def kept(browser: Browser, place: Path) -> Iterator[Store]:
    with closing(open_url(place / "runs.db", new_fold=Projector)) as store:
        yield store


@pytest.fixture(scope="module")
def samples(kept: Store, place: Path) -> Samples:
    return make_samples(kept, place)


@pytest.fixture(scope="module")
def hostile(kept: Store, samples: Samples, place: Path) -> list[str]:
    return make_hostile(kept, place)


@pytest.fixture(scope="module")
def there(samples: Samples, hostile: list[str], place: Path, desk: Model) -> Iterator[Served]:
    """A server over the cases, with the prices of case 22."""
    with serving(place / "runs.db", LOUPE_PRICES=str(case_folder("22") / "prices.json"), **desk.variables) as served:
        yield served


def sent_by_the_page(page: Page, model: Model) -> Any:
    """What the fork that the panel shows asks the model first."""
    model.says(say("done"))
    before = len(model.requests)
    page.get_by_role("button", name="Run 1 fork").click()
    expect(page).to_have_url(re.compile("/compare"))
    return model.requests[before]


def test_03_no_character_is_lost_on_its_way_to_the_page(page: Page, there: Served, samples: Samples) -> None:
    there.show(page, f"/runs/{samples.split}?step=1")
    said = read("03", "expected.json")["content"]
    expect(page.get_by_role("article", name="Step 1", exact=True).get_by_text(said, exact=True)).to_be_visible()
    page.get_by_role("tab", name="Raw").click()
    expect(page.locator(".editor")).to_contain_text(said)
    assert "\ufffd" not in page.locator("body").inner_text()


def test_08_another_order_is_shown_as_a_difference_with_its_likely_cause(
    page: Page, there: Served, samples: Samples
) -> None:
    there.show(page, f"/replays/{samples.unordered}")
    expect(page.get_by_text("first divergence: event 2")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="messages[0].content")
    expect(row).to_contain_text("Tags: refund, late, vip, damaged, gift")
    expect(row).to_contain_text("Tags: gift, damaged, vip, late, refund")
    expect(page.get_by_text(re.compile("unordered collection"))).to_be_visible()


def test_11_looking_at_time_ids_and_chance_changes_no_replay(
    page: Page, there: Served, samples: Samples, kept: Store
) -> None:
    before = kept.recording(samples.clock).events
    there.show(page, f"/runs/{samples.clock}?step=1")
    transcript = page.get_by_role("region", name="Transcript")
    for name in ("now", "uuid4", "random"):
        expect(transcript.get_by_text(name, exact=True)).to_be_visible()
    expect(transcript.get_by_text(re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+\+00:00$"))).to_be_visible()
    for tab in ("Raw", "Events"):
        page.get_by_role("tab", name=tab).click()
    with page.expect_download():
        page.get_by_role("button", name="Export").click()
        page.get_by_role("menuitem").first.click()
    recording = kept.recording(samples.clock)
    assert recording.events == before
    report = replay(recording, lambda: load_agent(case_folder("11")).main(Rec(), "boundary"))
    assert report.passed, report.text()


@pytest.mark.parametrize("temperature", [None, "0.9"])
def test_13_a_fork_sends_what_was_recorded_but_for_what_was_changed(
    page: Page, there: Served, samples: Samples, model: Model, kept: Store, temperature: str | None
) -> None:
    there.show(page, f"/runs/{samples.request}/fork?from=0")
    if temperature is not None:
        page.get_by_label("Temperature").fill(temperature)
    model.says(say("{}"))
    before = len(model.requests)
    page.get_by_role("button", name="Run 1 fork").click()
    expect(page).to_have_url(re.compile("/compare"))
    (body,) = model.requests[before:]
    assert body == read("13", "request.json" if temperature is None else "expected_request.json")
    made = page.url.rpartition("b=")[2].partition("&")[0]
    run = kept.run(made)
    assert run is not None
    assert [one["path"] for one in run.overrides] == ([] if temperature is None else ["temperature"])
    there.show(page, f"/runs/{made}")
    said = "no override" if temperature is None else "1 override: temperature"
    expect(page.get_by_text(said, exact=True).first).to_be_visible()


def test_15_every_shape_of_message_is_shown_in_order(page: Page, there: Served, samples: Samples) -> None:
    messages = read("15", "messages.json")
    there.show(page, f"/runs/{samples.shapes}?tab=messages&step=0")
    boxes = page.get_by_role("tabpanel").locator(".msg")
    expect(boxes).to_have_count(len(messages) + 1)  # and the answer
    shown = boxes.all_inner_texts()
    said = [
        "A",
        "B: answer in Norwegian",
        "UklGRg==",
        "lookup {}",
        "42",
        "C: from now on be formal",
        "ja",
        'old_lookup {"k": 1}',
        "7",
        "I can't do that part.",
        "Nor that.",
        "no content",
        '"k":[1.0,1]',
        "fortsett",
    ]
    for at, role in enumerate(one.get("role") for one in messages):
        if role in ("system", "developer"):
            assert shown[at].lower().startswith(role), at
    for at, text in enumerate(said):
        assert text in shown[at], at
    assert "critic" in shown[12]


def test_16_orphans_are_shown_as_what_they_are(page: Page, there: Served, samples: Samples) -> None:
    there.show(page, f"/runs/{samples.orphans}")
    transcript = page.get_by_role("region", name="Transcript")
    for arguments, result in (('{"k":"A"}', "1"), ('{"k":"B"}', "2"), ('{"k":"C"}', "waiting for its result")):
        row = transcript.get_by_role("button").filter(has_text=arguments)
        expect(row).to_contain_text(result)
    expect(transcript.get_by_text("result without call")).to_be_visible()
    expect(transcript.get_by_text("left over")).to_be_visible()


def test_15_a_new_system_prompt_is_message_0_and_the_panel_says_what_stays(
    page: Page, there: Served, samples: Samples, model: Model
) -> None:
    there.show(page, f"/runs/{samples.shapes}/fork?from=0")
    beside = page.get_by_role("complementary", name="Before you fork")
    typed(page, "system, edited here", "Z")
    expect(beside.get_by_text("Further instructions stay as they are: messages 1, 5.")).to_be_visible()
    expect(beside.get_by_text(re.compile("Signed reasoning"))).to_have_count(0)
    wanted = read("15", "messages.json")
    wanted[0]["content"] = "Z"
    assert sent_by_the_page(page, model)["messages"] == wanted


def test_15_a_thinking_block_that_is_edited_is_warned_about(page: Page, there: Served, samples: Samples) -> None:
    there.show(page, f"/runs/{samples.shapes}/fork?from=0")
    beside = page.get_by_role("complementary", name="Before you fork")
    page.get_by_role("button", name="assistant 6", exact=True).click()
    changed = read("15", "messages.json")[6]
    changed["content"][0]["thinking"] = "another thought"
    typed(page, "assistant 6, edited here", json.dumps(changed))
    expect(beside.get_by_text("Signed reasoning is touched: messages 6.")).to_be_visible()
    expect(beside.get_by_text("The provider may refuse the history.")).to_be_visible()


def test_16_the_panel_warns_of_the_history_and_sends_it_unchanged(
    page: Page, there: Served, samples: Samples, model: Model
) -> None:
    there.show(page, f"/runs/{samples.orphans}/fork?from=7")
    beside = page.get_by_role("complementary", name="Before you fork")
    for said in ("messages[0] (gone)", "messages[6] (c9)", "lookup:0"):
        expect(beside.get_by_text(said)).to_be_visible()
    expect(beside.get_by_text("providers refuse such a history").first).to_be_visible()
    assert sent_by_the_page(page, model)["messages"] == read("16", "messages.json")


def test_17_arguments_are_shown_as_the_model_wrote_them(page: Page, there: Served, samples: Samples) -> None:
    there.show(page, f"/runs/{samples.arguments}")
    transcript = page.get_by_role("region", name="Transcript")
    calls = transcript.get_by_role("article", name="Step 0", exact=True).locator(".call")
    rows = read("17", "rows.json")
    expect(calls).to_have_count(5)
    expect(transcript.get_by_text(f"f ×{len(rows)}")).to_have_count(0)
    bad = sum(not row["may_run_live"] for row in rows[5:])
    expect(transcript.get_by_text(f"{bad} errors", exact=True)).to_be_visible()
    transcript.get_by_role("button", name=f"{len(rows) - 5} more calls").click()
    expect(calls).to_have_count(len(rows))
    for call, row in zip(calls.all(), rows, strict=True):
        expect(call).to_contain_text(row["raw"].strip())
        failed = "malformed arguments of f"
        (expect(call).not_to_contain_text if row["may_run_live"] else expect(call).to_contain_text)(failed)
    expect(transcript.get_by_text("90071992547409931").first).to_be_visible()
    assert "90071992547409940" not in page.locator("body").inner_text()


def test_22_costs_are_exact_and_what_is_unknown_is_said(page: Page, there: Served, samples: Samples) -> None:
    there.show(page, f"/runs/{samples.costs}")
    expect(page.get_by_text("at least $0.020268")).to_be_visible()
    rows = [row for row in read("22", "rows.json") if not (row["usage"] and "_source" in row["usage"])]
    for at, row in enumerate(rows):
        there.show(page, f"/runs/{samples.costs}?step={at}")
        facts = page.get_by_role("tabpanel").locator("dl")
        cost = facts.locator("dt", has_text="Cost").locator("xpath=following-sibling::dd[1]")
        wanted = {None: "unknown", "0": "$0.00"}.get(row["expected_cost"], f"${row['expected_cost']}")
        expect(cost).to_have_text(wanted)
    there.show(page, f"/runs?q={samples.costs}")
    row = page.get_by_role("row").filter(has=page.get_by_text(samples.costs, exact=True))
    expect(row).to_contain_text("0.020268+")


def test_23_one_inserted_step_is_one_difference(page: Page, there: Served, samples: Samples) -> None:
    a, more, spelled, swapped = samples.pairs.values()
    for left, right, only in ((a, more, "only in B"), (more, a, "only in A")):
        there.show(page, f"/compare?a={left}&b={right}")
        expect(page.get_by_text("1 of 5 rows differs")).to_be_visible()
        row = page.get_by_role("row").filter(has_text=only)
        expect(row).to_have_count(1)
        expect(row).to_contain_text("whoami")
    there.show(page, f"/compare?a={a}&b={a}")
    expect(page.get_by_text("These runs are the same.")).to_be_visible()
    there.show(page, f"/compare?a={a}&b={spelled}")
    expect(page.get_by_text("The values are the same, their spelling is not.")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="same, spelled otherwise")).to_have_count(1)
    there.show(page, f"/compare?a={a}&b={swapped}")
    expect(page.get_by_text("2 of 5 rows differ")).to_be_visible()


def test_24_nothing_of_a_secret_reaches_the_browser(page: Page, there: Served, samples: Samples) -> None:
    bodies: list[str] = []
    page.on("response", lambda one: bodies.append(one.text()) if "/api/" in one.url and one.ok else None)
    for step in (1, 2):
        for tab in ("overview", "raw", "events"):
            there.show(page, f"/runs/{samples.secrets}?step={step}&tab={tab}")
            bodies.append(page.content())
    there.show(page, f"/runs/{samples.secrets}?step=1")
    assert len(bodies) > 10
    assert "LOUPE-CANARY-24" not in "".join(bodies)
    for neighbour in ("page=2", "theme=dark", "demo", "5512", "X-Request-Id"):
        expect(page.get_by_role("region", name="Transcript").get_by_text(neighbour).first).to_be_attached()
    for removed in ("$.exchange.request.url", "$.exchange.tool_call.arguments"):
        expect(page.get_by_role("tabpanel").get_by_text(removed, exact=True)).to_be_visible()


def test_31_every_time_is_in_one_zone_that_is_named(browser: Browser, there: Served, samples: Samples) -> None:
    context = browser.new_context(timezone_id="Asia/Kolkata", locale="en-US")
    page = context.new_page()
    shown: list[str] = []
    for at, row in enumerate(read("31", "rows.json")):
        there.show(page, f"/runs/{samples.times}?step={at}")
        facts = page.get_by_role("tabpanel").locator("dl")
        started = facts.locator("dt", has_text="Started").locator("xpath=following-sibling::dd[1]")
        expect(started).to_contain_text("GMT+5:30")
        if row["flag"] and row["utc"]:
            expect(started).to_contain_text(row["flag"].partition(",")[0])
        shown.append(started.inner_text())
    assert "8:00" in shown[0]
    assert shown[0].startswith(shown[1].partition(" GMT")[0])
    assert ("06:00" in shown[3], "07:00" in shown[4]) == (True, True), "the repeated hour stays apart"
    numbers = page.get_by_role("region", name="Transcript").locator("article .no").all_inner_texts()
    assert numbers == [str(n) for n in range(len(shown))], "in the order of the steps, not of their times"
    there.show(page, "/runs")
    expect(page.get_by_role("columnheader", name="Started GMT+5:30")).to_be_visible()
    context.close()


SCREENS = (
    "/runs",
    "/runs/{run}?step=0",
    "/runs/{run}?step=0&tab=messages",
    "/runs/{run}?step=0&tab=raw",
    "/runs/{run}?step=1&side=tree",
    "/runs/{run}?step=2&tab=events",
    "/runs/{run}/fork?from=0",
    "/compare?a={run}&b={other}",
    "/summary?run={run}&run={other}",
    "/lineage?run={run}",
    "/replays?run={run}",
)


@pytest.mark.parametrize("screen", SCREENS)
def test_29_hostile_text_is_text_on_every_screen(page: Page, there: Served, hostile: list[str], screen: str) -> None:
    """No script of a run runs, nothing is asked for outside, nothing is wider than the window."""
    strays: list[str] = []
    origin = there.address.partition("/?")[0]

    def asked(request: Request) -> None:
        if not request.url.startswith((origin, "data:", "blob:")):
            strays.append(request.url)

    page.on("request", asked)
    page.on("dialog", lambda _: strays.append("a dialog"))
    long, everything = hostile[-2:]
    for run, other in ((everything, long), (long, everything)):
        there.show(page, screen.format(run=run, other=other))
        assert page.evaluate("window.__pwned") is None, run
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), run
        assert page.locator("a[href^='javascript:'], iframe, main img[src^='http']").count() == 0
    assert strays == []


def test_29_what_cannot_be_seen_is_made_visible(page: Page, there: Served, hostile: list[str]) -> None:
    texts = read("29", "strings.json")
    there.show(page, "/runs")
    for at in (0, 2, 5, 8, 9, 10):
        expect(page.get_by_role("link", name=texts[at], exact=True)).to_be_visible()
    for run, code in ((hostile[6], "001B"), (hostile[7], "202E")):
        there.show(page, f"/runs/{run}?step=0")
        for said in (page.get_by_role("heading", level=1), page.get_by_role("region", name="Transcript")):
            expect(said.locator(".sign", has_text=code).filter(visible=True).first).to_be_visible()
        assert json.dumps(page.title()).isascii(), "a window's title cannot turn around"
