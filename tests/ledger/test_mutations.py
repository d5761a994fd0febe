"""No forgery survives, each is caught by a check with a name, and a second reader that shares no code finds the same."""

from __future__ import annotations

import os
import runpy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.ledger.making import LedgerFiles, files_of
from agentloupe.engine.ledger.report import replay
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.exchange import import_file
from agentloupe.verbs.forking import fork_run
from agentloupe.verbs.resuming import resume
from agentloupe.words.canonical import loads
from agentloupe.words.errors import LoupeError
from tests.cli.driving import agentloupe
from tests.fork_support import Script, weather_run
from tests.ledger.mutations import COLUMNS, Deck, Mutation, mutations
from tests.ledger.support import LONG_STORY, OWNER, PUBLIC, in_memory, signed, told
from tests.support import ROOT, shared_folder
from tests.tapes import Program, ask, record_in, sequence_of, use
from tests.unit import test_lookups as shop

OTHER = runpy.run_path(str(ROOT / "tools" / "verify_ledger.py"))


ALL = os.environ.get("HYPOTHESIS_PROFILE") == "ci"
KEYS = [PUBLIC.public_bytes_raw()]


def ours(files: LedgerFiles, key: bool = False) -> str:
    """The check that stops it, or what a replay says, with the anchor or the key known."""
    try:
        folder = in_memory(files)
        return str(replay(folder, trust=OWNER.public()) if key else replay(folder, anchor=files.head))
    except LoupeError as fault:
        return fault.reason


def theirs(files: LedgerFiles, key: bool = False) -> str:
    """The same of the second reader."""
    named = {"events.jsonl": files.events, "budget.json": files.budget, "contract.json": files.contract}
    named |= {"checkpoint.json": files.checkpoint}
    if files.bodies is not None:
        named["bodies.jsonl"] = b"".join(files.bodies)
    try:
        return OTHER["judge"](named, files.receipts, None if key else files.head, KEYS if key else None)
    except OTHER["Fault"] as fault:
        return fault.guard


def forged(files: LedgerFiles, every: int) -> Iterator[tuple[Mutation, str, bool, LedgerFiles]]:
    """Forgeries of a ledger, for every column; `every` so many edits one is made, all of them with 1."""
    for mutation in islice(mutations(files), 0, None, every):
        deck = Deck.of(files)
        mutation.edit(deck)
        for column, (depth, key) in COLUMNS.items():
            made = deck.files(depth, files.head)
            if made != files:
                yield mutation, column, key, made


def caught(files: LedgerFiles, every: int = 1) -> tuple[Counter[tuple[str, str, str, str]], list[str], list[str]]:
    """How often what was caught by which check; what survived; where the two readers differ."""
    files = signed(files)
    whole = ours(files)
    assert whole.startswith("events="), whole
    assert {theirs(files), ours(files, True), theirs(files, True)} == {whole}
    table: Counter[tuple[str, str, str, str]] = Counter()
    survived: list[str] = []
    differ: list[str] = []
    for mutation, column, key, made in forged(files, every):
        found, other = ours(made, key), theirs(made, key)
        name = f"{mutation.what} {mutation.where}: {mutation.done} ({column})"
        if found != other:
            differ.append(f"{name}: {found} / {other}")
        if found.startswith("events=") and (key or not _told(made)):
            survived.append(name)
        guard = "the report says so" if found.startswith("events=") else f"`{found}`"
        table[mutation.what, mutation.done, column, guard] += 1
    return table, survived, differ


def _told(files: LedgerFiles) -> bool:
    """Whether the report says what happened, where it may have: the run went on behind the anchor, its values were deleted."""
    report = replay(in_memory(files), anchor=files.head).fields
    notes = str(report["notes"])
    grown = f"anchored to sequence {files.head.sequence} only"
    if grown in notes or (report["bodies"] is None and report["coverage"] == "limited_replay"):
        return True
    # Only the signature is another one: whoever looks at the anchor and has no key is told that nobody looked at it.
    said = loads(files.checkpoint)
    assert isinstance(said, dict)
    return "nobody looked" in notes or "signature" not in said


def _recorded() -> LedgerFiles:
    return files_of(
        Program((ask("hej"), use("get", {"o": "å"}, i=2), use("put", {"o": 9}, i=3), ask("slutt"))).recorded()
    )


def _forked() -> LedgerFiles:
    store = MemoryStore()
    weather_run(store)
    both = [("calculate", {"expression": "17.7 - 11.9"}), ("calculate", {"expression": "1 + 1"})]
    return files_of(store.recording(fork_run(store, "weather-1", 3, None, Script(both, "5.8 C")).id))


def _settled() -> LedgerFiles:
    """A run of which one effect was found to be done and one not to be, and that went on."""
    shop.forget()
    whole = record_in(MemoryStore(), shop.shop, "a", "b")
    store = shop.cut(whole, sequence_of(whole, "tool.started", "pay by key"), happened=True)
    resume(whole.run_id, shop.shop, store=store)
    once = store.recording(whole.run_id)
    store = shop.cut(once, sequence_of(once, "tool.started", "pay by key", 1), happened=False)
    resume(whole.run_id, shop.shop, store=store)
    return files_of(store.recording(whole.run_id))


def _imported() -> LedgerFiles:
    store = MemoryStore()
    report = import_file(store, shared_folder() / "data" / "tau_bench" / "gpt-4o-airline.give.json")
    smallest = min(report.runs, key=lambda run: run.found.steps)
    return files_of(store.recording(smallest.run_id))


LEDGERS: dict[str, Callable[[], LedgerFiles]] = {
    "fourteen events": told,
    "every kind": lambda: told(LONG_STORY, bodies=None),
    "a recorded run": _recorded,
    "a fork": _forked,
    "a settled run": _settled,
    "an imported run": _imported,
}


@pytest.mark.parametrize("name", LEDGERS)
def test_nothing_survives_and_two_readers_agree(name: str) -> None:
    """Of the larger ledgers one edit in seven; all of them in `make test-all`."""
    every = 1 if name == "fourteen events" or ALL else 7
    table, survived, differ = caught(LEDGERS[name](), every)
    assert survived == []
    assert differ == []
    assert table.total() > 100


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_survives_on_the_runs_of_the_demo(tmp_path: Path) -> None:
    """Both agents, their forks, and whatever else the demo records, as programs of their own."""
    done = agentloupe("demo", "--model", "scripted", "--db", tmp_path / "demo.db", patience=200)
    assert done.code == 0, done.err
    store = open_url(tmp_path / "demo.db")
    runs = [run.id for run in store.runs()]
    assert len(runs) >= 5
    for run in runs:
        _nothing_survives(files_of(store.recording(run)), 3 if ALL else 37)
    store.close()


def test_nothing_survives_on_runs_of_others() -> None:
    """Of every file of the sample data that there is a reader for, its smallest run."""
    store, formats = MemoryStore(), set[str]()
    for path in sorted(p for p in (shared_folder() / "data").rglob("*.json*") if p.stat().st_size < 500_000):
        try:
            report = import_file(store, path)
        except LoupeError:
            continue
        if report.runs:
            smallest = min(report.runs, key=lambda run: run.found.steps)
            _nothing_survives(files_of(store.recording(smallest.run_id)), 7 if ALL else 53)
            formats.add(str(report.format))
    assert formats >= {"tau-bench"}


def _nothing_survives(files: LedgerFiles, every: int) -> None:
    table, survived, differ = caught(files, every)
    assert survived == []
    assert differ == []
    assert table.total() > 20


def test_every_check_is_needed_by_some_forgery() -> None:
    """A check that catches nothing would be one that nobody would miss."""
    from agentloupe.engine.ledger.checks import GUARDS

    seen = {guard for *_, guard in caught(told(), 3)[0]}
    broken = [*_torn(told()), *_told_wrongly()]
    seen |= {f"`{ours(files)}`" for files in broken}
    assert [ours(files) for files in broken] == [theirs(files) for files in broken]
    assert {f"`{guard.name}`" for guard in GUARDS} <= seen


def _torn(files: LedgerFiles) -> Iterator[LedgerFiles]:
    """Damage to the text of the log."""
    for cut in (1, 2, 100):
        yield replace(files, events=files.events[:-cut])
    for old, new in (
        (b'"seq":2', b'"seq":2,"seq":2'),
        (b"\n", b"\n\n"),
        (b"running", b"runn\xff"),
        (
            b"{",
            b"[",
        ),
    ):
        yield replace(files, events=files.events.replace(old, new))


def _told_wrongly() -> Iterator[LedgerFiles]:
    """Ledgers that are whole in themselves and tell what cannot be; nobody has an anchor of them."""
    stories: list[list[tuple[str, dict[str, Any]]]] = [
        [("attempt_started", {"attempt": n}) for n in (1, 2, 3, 4)],
        [("tool_allowed", {"call_id": "c", "tool": "rm", "input_digest": ""})],
        [("check_finished", {"name": "tests", "passed": False}), ("run_finished", {"status": "ok"})],
        [("state_changed", {"state": "succeeded"})],
    ]
    for story in stories:
        yield told([("run_started", {}), *story], bodies=None)


def table_of_mutations() -> list[tuple[str, ...]]:
    """What was changed, how, and for each depth the checks that caught it: the table in docs/reference/ledger.md."""
    table, survived, differ = caught(told())
    assert not survived
    assert not differ
    rows: dict[tuple[str, str], dict[str, list[str]]] = {}
    for (what, done, column, guard), count in sorted(table.items()):
        rows.setdefault((what, done), {}).setdefault(column, []).append(f"{guard} {count}")
    return [(*key, *(", ".join(found.get(column, ["-"])) for column in COLUMNS)) for key, found in rows.items()]
