"""Everything that a fork can change, from the panel: messages, tools, other members, results, who answers; and two tabs."""

from __future__ import annotations

import json
import re
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from tests.e2e.served import Served
from tests.e2e.world import World
from tests.made import Maker


def opened(page: Page, server: Served, world: World) -> Locator:
    """The panel of a fork from step 3; what stands beside it."""
    server.show(page, f"/runs/{world.observed}/fork?from=3")
    expect(page.get_by_role("textbox", name="system, edited here")).to_be_visible()
    return page.get_by_role("complementary", name="Before you fork")


def typed(page: Page, name: str, text: str) -> None:
    """Puts a text in the place of the one in an editor."""
    editor = page.get_by_role("textbox", name=name)
    editor.click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)


def pressed(page: Page, group: str, name: str) -> None:
    page.get_by_role("group", name=group).get_by_role("button", name=re.compile(name)).click()


def started(page: Page) -> dict[str, Any]:
    """Starts the fork, and leads to where it went; what was sent."""
    with page.expect_request(re.compile(r"/fork$")) as sent:
        page.get_by_role("button", name=re.compile("Run 1 fork")).click()
    expect(page).to_have_url(re.compile("/compare"), timeout=60_000)
    return json.loads(sent.value.post_data or "{}")


def test_messages_tools_and_other_members_are_changed(page: Page, server: Served, world: World, store: Store) -> None:
    beside = opened(page, server, world)
    page.get_by_role("button", name="user 1").click()
    typed(page, "user 1, edited here", '{"role": "user", "content": "Is it cold?"}')
    page.get_by_role("button", name="Add message").click()
    typed(page, "new, edited here", '{"role": "user", "content": "Be quick."}')
    pressed(page, "Parts of the request", "Tools 4")
    page.get_by_role("button", name="look_up_policy", exact=True).click()
    page.get_by_role("button", name="Take out").click()
    pressed(page, "Parts of the request", "Other JSON")
    typed(page, "Other JSON, edited here", '{"tool_choice": "auto"}')
    for said in ("message 1", "message added at 2", "tool taken out: look_up_policy", "set: tool_choice"):
        expect(beside.get_by_text(said)).to_be_visible()
    sent = started(page)
    assert sent == {
        "from_step": 3,
        "engine": "generic",
        "overrides": {
            "messages": [
                {"index": 1, "op": "set", "message": {"role": "user", "content": "Is it cold?"}},
                {"index": 2, "op": "insert", "message": {"role": "user", "content": "Be quick."}},
            ],
            "tools": [{"op": "remove", "name": "look_up_policy"}],
            "extra": {"tool_choice": "auto"},
        },
    }
    run = store.run(page.url.rpartition("b=")[2].partition("&")[0])
    assert run is not None
    assert sorted(str(one["path"]) for one in run.overrides) == ["messages[1]", "messages[2]", "tool_choice", "tools"]


def test_a_fault_in_a_tab_that_is_not_open_is_marked_on_the_tab(page: Page, server: Served, world: World) -> None:
    opened(page, server, world)
    pressed(page, "Parts of the request", "Other JSON")
    typed(page, "Other JSON, edited here", "[")
    pressed(page, "Parts of the request", "Messages")
    tabs = page.get_by_role("group", name="Parts of the request")
    expect(tabs.get_by_role("button", name="Other JSON 1 fault")).to_be_visible()
    expect(tabs.get_by_role("button", name=re.compile("fault"))).to_have_count(1)


def test_a_kept_result_is_changed_and_the_model_reads_the_new_one(
    page: Page, server: Served, world: World, store: Store
) -> None:
    beside = opened(page, server, world)
    page.get_by_role("button", name="Change result of step 1").click()
    typed(page, "result of step 1, edited here", '"-20 °C')
    expect(beside.get_by_text(re.compile(r"Result of step 1: no JSON at line 1, column \d+"))).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Run 1 fork"))).to_be_disabled()
    typed(page, "result of step 1, edited here", '"-20 °C, storm"')
    expect(beside.get_by_text("result of step 1")).to_be_visible()
    assert started(page)["overrides"] == {"tool_results": {"1": "-20 °C, storm"}}
    made = page.url.rpartition("b=")[2].partition("&")[0]
    server.show(page, f"/runs/{made}?step=3&tab=messages")
    expect(page.get_by_role("tabpanel").get_by_text("-20 °C, storm")).to_be_visible()


def test_an_edited_result_says_which_types_it_loses(page: Page, server: Served, store: Store) -> None:
    made = Maker("typed-result")
    asked: list[Any] = [{"role": "user", "content": "When?"}]
    made.model(asked, {"role": "assistant", "content": "I look."})
    made.call("tool", "when", {}, {"at": {"$datetime": "2026-03-01T10:00:00"}})
    made.model(asked, {"role": "assistant", "content": "At ten."})
    recording = made.finish()
    store.insert("typed-result", recording.events, recording.get, Projector)
    server.show(page, "/runs/typed-result/fork?from=2")
    page.get_by_role("button", name="Change result of step 1, when").click()
    expect(page.get_by_text("It was recorded with types: $datetime.")).to_be_visible()


def test_a_tool_is_answered_by_a_stub_and_one_runs_live(page: Page, server: Served, world: World) -> None:
    beside = opened(page, server, world)
    page.get_by_role("combobox", name="Policy of issue_refund").select_option("stub")
    stub = page.get_by_role("textbox", name="What issue_refund answers, as JSON")
    stub.fill('{"receipt": ')
    expect(beside.get_by_text(re.compile("Stub of issue_refund: no JSON at line 1"))).to_be_visible()
    stub.fill('{"receipt": "rf-1"}')
    assert page.get_by_role("combobox", name="Policy of issue_refund").get_by_role("option", name="live").count() == 0
    page.get_by_role("checkbox", name=re.compile("Run the listed live tools")).check()
    page.get_by_role("combobox", name="Policy of calculate").select_option("live")
    expect(beside.get_by_text("Nothing is changed yet")).to_have_count(0)
    expect(beside.get_by_text("calculate answered by: live")).to_be_visible()
    sent = started(page)
    assert sent["tools"] == {"issue_refund": 'stub:{"receipt": "rf-1"}'}
    assert [one["name"] for one in sent["live_tools"]] == ["calculate"]
    assert sent["overrides"] == {}


def test_what_the_engine_would_refuse_is_said_before_the_start(page: Page, server: Served, world: World) -> None:
    beside = opened(page, server, world)
    page.get_by_role("checkbox", name=re.compile("Run the listed live tools")).check()
    page.get_by_role("combobox", name="Policy of get_weather").select_option("live")
    start = page.get_by_role("button", name=re.compile("Run 1 fork"))
    for said in ("needs a reason to run live", "tick that this is meant", "the plain loop cannot run it"):
        expect(beside.get_by_text(said)).to_be_visible()
    page.get_by_role("textbox", name="Why get_weather may run").fill("to see")
    page.get_by_role("checkbox", name=re.compile("asks the real world")).check()
    expect(beside.get_by_text("needs a reason to run live")).to_have_count(0)
    expect(start).to_be_disabled()
    expect(start).to_have_accessible_description(re.compile("get_weather.*the plain loop cannot run it"))


def test_a_second_tab_says_so_and_nothing_is_lost(page: Page, browser: Browser, server: Served, world: World) -> None:
    opened(page, server, world)
    page.get_by_label("Temperature").fill("0.7")
    other = page.context.new_page()
    opened(other, server, world)
    for tab in (page, other):
        expect(tab.get_by_role("status").get_by_text("This fork is open in another tab too.")).to_be_visible()
    other.get_by_label("Temperature").fill("0.1")
    expect(page.get_by_label("Temperature")).to_have_value("0.7")
    other.close()
    expect(page.get_by_text("This fork is open in another tab too.")).to_have_count(0)
    page.reload()
    expect(page.get_by_label("Temperature")).to_have_value("0.7")
