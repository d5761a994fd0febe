"""No forgery survives, each is caught by a check with a name, and a second reader that shares no code finds the same."""

from __future__ import annotations

import os
import runpy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from agentloupe.engine.ledger.making import LedgerFiles, files_of
from agentloupe.engine.ledger.report import replay
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.exchange import import_file
from agentloupe.verbs.forking import fork_run
from agentloupe.words.errors import LoupeError
from tests.fork_support import Script, weather_run
from tests.ledger.mutations import DEPTHS, Deck, Mutation, mutations
from tests.ledger.support import LONG_STORY, in_memory, told
from tests.support import ROOT, shared_folder
from tests.tapes import Program, ask, use

OTHER = runpy.run_path(str(ROOT / "tools" / "verify_ledger.py"))


def ours(files: LedgerFiles) -> str:
    """The check that stops it, or what a replay says."""
    try:
        return str(replay(in_memory(files), anchor=files.head))
    except LoupeError as fault:
        return fault.reason


def theirs(files: LedgerFiles) -> str:
    """The same of the second reader."""
    named = {"events.jsonl": files.events, "budget.json": files.budget, "contract.json": files.contract}
    named |= {"checkpoint.json": files.checkpoint}
    if files.bodies is not None:
        named["bodies.jsonl"] = b"".join(files.bodies)
    try:
        return OTHER["judge"](named, files.receipts, files.head)
    except OTHER["Fault"] as fault:
        return fault.guard


def forged(files: LedgerFiles, every: int) -> Iterator[tuple[Mutation, str, LedgerFiles]]:
    """Forgeries of a ledger, in every depth; `every` so many edits one is made, all of them with 1."""
    for mutation in islice(mutations(files), 0, None, every):
        deck = Deck.of(files)
        mutation.edit(deck)
        for depth in DEPTHS:
            made = deck.files(depth, files.head)
            if made != files:
                yield mutation, depth, made


def caught(files: LedgerFiles, every: int = 1) -> tuple[Counter[tuple[str, str, str, str]], list[str], list[str]]:
    """How often what was caught by which check; what survived; where the two readers differ."""
    whole = ours(files)
    assert whole.startswith("events="), whole
    assert theirs(files) == whole
    table: Counter[tuple[str, str, str, str]] = Counter()
    survived: list[str] = []
    differ: list[str] = []
    for mutation, depth, made in forged(files, every):
        found, other = ours(made), theirs(made)
        name = f"{mutation.what} {mutation.where}: {mutation.done} ({depth})"
        if found != other:
            differ.append(f"{name}: {found} / {other}")
        if found.startswith("events=") and not _told(made):
            survived.append(name)
        guard = "the report says so" if found.startswith("events=") else f"`{found}`"
        table[mutation.what, mutation.done, depth, guard] += 1
    return table, survived, differ


def _told(files: LedgerFiles) -> bool:
    """Whether the report says what happened, where it may have: the run went on behind the anchor, its values were deleted."""
    report = replay(in_memory(files), anchor=files.head).fields
    grown = f"anchored to sequence {files.head.sequence} only"
    return grown in str(report["notes"]) or (report["bodies"] is None and report["coverage"] == "limited_replay")


def _recorded() -> LedgerFiles:
    return files_of(
        Program((ask("hej"), use("get", {"o": "å"}, i=2), use("put", {"o": 9}, i=3), ask("slutt"))).recorded()
    )


def _forked() -> LedgerFiles:
    store = MemoryStore()
    weather_run(store)
    both = [("calculate", {"expression": "17.7 - 11.9"}), ("calculate", {"expression": "1 + 1"})]
    return files_of(store.recording(fork_run(store, "weather-1", 3, None, Script(both, "5.8 C")).id))


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
    "an imported run": _imported,
}


@pytest.mark.parametrize("name", LEDGERS)
def test_nothing_survives_and_two_readers_agree(name: str) -> None:
    """Of the larger ledgers one edit in seven; all of them in `make test-all`."""
    every = 1 if name == "fourteen events" or os.environ.get("HYPOTHESIS_PROFILE") == "ci" else 7
    table, survived, differ = caught(LEDGERS[name](), every)
    assert survived == []
    assert differ == []
    assert table.total() > 100


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
    for (what, done, depth, guard), count in sorted(table.items()):
        rows.setdefault((what, done), {}).setdefault(depth, []).append(f"{guard} {count}")
    return [(*key, *(", ".join(found.get(depth, ["-"])) for depth in DEPTHS)) for key, found in rows.items()]
