"""Runs and requests that are not in order: each has a state that says what is so, what it means, and the way out."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.store import envelopes
from agentloupe.store.opening import open_url
from agentloupe.verbs.deleting import delete_run
from agentloupe.verbs.exchange import import_file
from agentloupe.words.seal import link_bytes, sealed_form
from tests.e2e.model import Model
from tests.e2e.served import Served, serving
from tests.e2e.world import World, observed_run
from tests.fork_support import weather_run
from tests.made import Maker
from tests.support import ROOT

KILLED = """
import os, sys
import agentloupe as loupe
from agentloupe.store import open_url

@loupe.tool(effect="write", name="pay")
def pay(amount):
    os._exit(9)

@loupe.tool(effect="read", name="look")
def look():
    return 1

with loupe.recording("killed", store=open_url(sys.argv[1])):
    look()
    pay(5)
"""


@dataclass(frozen=True)
class Troubled:
    """Ids of runs by what is wrong with them."""

    damaged: str
    deleted: str
    killed: str
    partial: str
    lossy: str
    newer: str


@pytest.fixture(scope="module")
def place(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("troubled")


@pytest.fixture(scope="module")
def troubled(place: Path) -> Troubled:
    db = place / "runs.db"
    partial = place / "partial.json"
    steps = [
        {"idx": 0, "kind": "llm", "name": "chat m", "model": "m", "output": {"role": "assistant", "content": "hi"}},
        {"idx": 1, "kind": "llm", "name": "chat m", "model": "m", "output": {"role": "assistant", "content": "ho"}},
    ]
    partial.write_text(json.dumps({"run": {"id": "partial"}, "steps": steps}), "utf-8")
    with closing(open_url(db, new_fold=Projector)) as store:
        damaged = weather_run(store)
        deleted = observed_run(store)
        delete_run(store, deleted)
        import_file(store, partial)
        lossy = _made(store, "lossy", coverage="lossy", coverage_notes=["3 events were not written: the disk was full"])
        newer = _made(store, "newer")
    done = subprocess.run([sys.executable, "-c", KILLED, str(db)], cwd=ROOT, env={**os.environ}, check=False)
    assert done.returncode == 9
    with closing(sqlite3.connect(db)) as file, file:
        file.execute("DROP TRIGGER events_are_never_changed")
        (rid,) = file.execute("SELECT rid FROM runs WHERE id = ?", (damaged,)).fetchone()
        file.execute("UPDATE events SET hash = zeroblob(32) WHERE key = ?", ((rid << 32) + 4,))
        _resealed(file, newer, schema_version=99)
    with closing(open_url(db, new_fold=Projector)) as store:
        killed = next(run.id for run in store.runs() if run.name == "killed")
    return Troubled(damaged, deleted, killed, "partial", lossy, newer)


def _made(store: Store, run_id: str, **ended: Any) -> str:
    """A run of one model step and one tool that ended so."""
    made = Maker(run_id)
    made.model([{"role": "user", "content": "q"}], {"role": "assistant", "content": "a"})
    made.call("tool", "look", {}, 1)
    recording = made.finish(**ended)
    store.insert(run_id, recording.events, recording.get, Projector)
    return run_id


def _resealed(file: sqlite3.Connection, run_id: str, **changes: Any) -> None:
    """The last event of a run with other members, sealed as whoever wrote it would have."""
    (rid,) = file.execute("SELECT rid FROM runs WHERE id = ?", (run_id,)).fetchone()
    of_run = "SELECT key, hash, envelope FROM events WHERE key >> 32 = ? ORDER BY key DESC LIMIT 2"
    (key, _, stored), (_, before, _) = file.execute(of_run, (rid,)).fetchall()
    envelope = sealed_form({**json.loads(envelopes.unpack(stored)), **changes})
    head = bytes.fromhex(link_bytes(before.hex(), envelope))
    file.execute(
        "UPDATE events SET envelope = ?, hash = ? WHERE key = ?", (envelopes.pack_all([envelope])[0], head, key)
    )
    file.execute("UPDATE runs SET head = ? WHERE rid = ?", (head, rid))


@pytest.fixture(scope="module")
def there(troubled: Troubled, place: Path, desk: Model) -> Iterator[Served]:
    with serving(place / "runs.db", **desk.variables) as served:
        yield served


def test_a_deleted_run_says_what_remains_and_what_is_off(page: Page, there: Served, troubled: Troubled) -> None:
    there.show(page, f"/runs/{troubled.deleted}")
    expect(page.get_by_role("status").get_by_text("Some bodies are gone. It cannot be replayed")).to_be_visible()
    expect(page.get_by_text("The steps of this run went with what they held.")).to_be_visible()
    expect(page.get_by_role("link", name="Fork from here")).to_have_count(0)
    there.show(page, f"/replays?run={troubled.deleted}")
    expect(page.get_by_role("button", name="Replay")).to_have_accessible_description(re.compile("was deleted"))
    expect(page.get_by_role("button", name="Replay")).to_be_disabled()
    there.show(page, f"/runs/{troubled.deleted}/fork?from=3")
    expect(page.get_by_role("alert")).to_contain_text(troubled.deleted)


def test_a_damaged_run_names_its_first_bad_event_and_is_not_called_diverged(
    page: Page, there: Served, troubled: Troubled
) -> None:
    there.show(page, f"/runs/{troubled.damaged}")
    page.get_by_role("button", name="chain not checked").click()
    strip = page.get_by_role("status").filter(has_text="The chain of events does not verify.")
    expect(strip).to_contain_text("Event 4 is not what was sealed.")
    panel = page.get_by_role("dialog", name="Evidence")
    expect(panel).to_contain_text("First bad record")
    expect(panel).to_contain_text("Events 1 to 3 are linked")
    expect(panel.get_by_role("link", name="Show event 4")).to_be_visible()
    page.keyboard.press("Escape")
    expect(strip).to_contain_text("Replay and fork are off for this run.")
    expect(strip).to_contain_text(f"agentloupe verify {troubled.damaged}")
    expect(page.get_by_text("diverge")).to_have_count(0)


def test_a_lossy_run_says_what_was_not_recorded(page: Page, there: Served, troubled: Troubled) -> None:
    there.show(page, f"/runs/{troubled.lossy}")
    strip = page.get_by_role("status").filter(has_text="3 events were not written: the disk was full")
    expect(strip).to_contain_text("lossy")
    there.show(page, "/runs?coverage=lossy")
    expect(page.get_by_role("row").filter(has_text=troubled.lossy)).to_be_visible()
    expect(page.get_by_role("row").filter(has_text=troubled.damaged)).to_have_count(0)


def test_a_run_of_a_newer_version_says_what_to_do(page: Page, there: Served, troubled: Troubled) -> None:
    there.show(page, f"/runs/{troubled.newer}")
    expect(page.get_by_role("button", name="chain written by a newer version")).to_be_visible()
    strip = page.get_by_role("status").filter(has_text="A newer version of Agent Loupe wrote this run.")
    expect(strip).to_contain_text("has schema 99, newer than this reader (1). Upgrade agent-loupe to read all of it.")
    expect(page.get_by_text("does not verify")).to_have_count(0)


def test_a_killed_run_names_the_write_that_nobody_saw_end(page: Page, there: Served, troubled: Troubled) -> None:
    there.show(page, f"/runs/{troubled.killed}")
    strip = page.get_by_role("status").filter(has_text="The process ended before the run did.")
    expect(strip).to_contain_text("Nobody saw the end of pay, Step 2")
    expect(strip).to_contain_text(f"agentloupe resume {troubled.killed}")
    expect(page.get_by_text("time unknown")).to_be_visible()
    there.show(page, "/runs?status=interrupted")
    expect(page.get_by_role("row").filter(has_text=troubled.killed)).to_contain_text("interrupted")


def test_a_step_whose_request_is_gone_is_no_place_to_fork(page: Page, there: Served, troubled: Troubled) -> None:
    there.show(page, f"/runs/{troubled.partial}")
    card = page.get_by_role("article", name="Step 0", exact=True)
    fork = card.get_by_role("button", name="Fork from here")
    expect(fork).to_be_disabled()
    expect(fork).to_have_accessible_description(re.compile("the source did not keep the request"))
    there.show(page, f"/runs/{troubled.partial}/fork?from=0")
    expect(page.get_by_role("alert")).to_contain_text("not complete")


def test_a_model_that_is_gone_fails_the_fork_with_its_address(page: Page, tmp_path: Path) -> None:
    with closing(open_url(tmp_path / "runs.db", new_fold=Projector)) as store:
        run = observed_run(store)
    gone = {"LLM_BASE_URL": "http://127.0.0.1:1/v1", "LLM_MODEL": "demo-large", "LLM_API_KEY": "none"}
    with serving(tmp_path / "runs.db", **gone) as served:
        served.show(page, f"/runs/{run}/fork?from=3")
        page.get_by_role("button", name="Run 1 fork").click()
        job = page.get_by_role("article", name=re.compile("^fork "))
        expect(job).to_contain_text("failed")
        expect(job).to_contain_text("127.0.0.1:1")


def dropped(page: Page, name: str, content: str) -> None:
    """Drops a file whose content is what this JavaScript makes."""
    page.evaluate(
        f"""name => {{
            const carried = new DataTransfer();
            carried.items.add(new File([{content}], name));
            const init = {{ dataTransfer: carried, bubbles: true, cancelable: true }};
            window.dispatchEvent(new DragEvent('drop', init));
        }}""",
        name,
    )


def test_a_file_that_is_too_large_is_refused_with_the_setting_to_change(page: Page, there: Served) -> None:
    there.show(page, "/runs")
    dropped(page, "large.json", "new Uint8Array(200_000_001)")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("200")
    expect(alert).to_contain_text("max_upload")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('\'{"format":"loupe","version":99,"form":"loupe-c9","run":"r","written_by":"x"}\\n\'', "newer"),
        ('\'{"messages": [{"role": \'', "JSON|format|read"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(page: Page, there: Served, content: str, said: str) -> None:
    """One of a newer version, and JSON that is no JSON."""
    there.show(page, "/runs")
    dropped(page, "odd.loupe", content)
    expect(page.get_by_role("alert").get_by_text(re.compile(f"odd.loupe: .*({said})"))).to_be_visible()
    expect(page.get_by_text("0 runs imported")).to_be_visible()


@pytest.mark.parametrize("repeat", [0, 4])
def test_a_draft_from_elsewhere_cannot_ask_for_no_fork_or_for_four(
    page: Page, server: Served, world: World, repeat: int
) -> None:
    server.show(page, f"/runs/{world.observed}/fork?from=3")
    expect(page.get_by_role("button", name="Run 1 fork")).to_be_visible()
    name = f"loupe-fork-{world.observed}-3"
    kept = page.evaluate("name => JSON.parse(sessionStorage.getItem(name) ?? localStorage.getItem(name) ?? '{}')", name)
    changed = json.dumps({**kept, "repeat": repeat})
    page.evaluate("([name, text]) => sessionStorage.setItem(name, text)", [name, changed])
    page.reload()
    expect(page.get_by_role("heading", name="Fork from step 3")).to_be_visible()
    start = page.get_by_role("button", name=re.compile(r"^Run \d"))
    expect(start).to_be_disabled()
    expect(start).to_have_accessible_description(re.compile("repeat"))
