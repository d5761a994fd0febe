"""Whatever a ledger holds: two readers agree about it, neither of them breaks, and a salvage reads what there is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine.ledger.making import LedgerFiles
from agentloupe.engine.ledger.migrating import migrate
from agentloupe.engine.ledger.report import replay
from agentloupe.engine.ledger.salvage import next_line, salvage
from agentloupe.words.canonical import dumps
from agentloupe.words.errors import LoupeError
from tests.ledger.mutations import Deck
from tests.ledger.support import LONG_STORY, in_memory, plain, plain_lines, signed, told
from tests.ledger.test_exchange import VALUES
from tests.ledger.test_mutations import ours, theirs

WHOLE = {"short": signed(told()), "long": signed(told(LONG_STORY, bodies=None))}
LINES = WHOLE["short"].events.splitlines(keepends=True)
NAMED = st.sampled_from(
    [
        *(
            "call_id",
            "tool",
            "kind",
            "name",
            "passed",
            "state",
            "attempt",
            "status",
            "source",
            "copied_source",
            "effect",
        ),
        *(
            "finish_reason",
            "input_digest",
            "output_digest",
            "receipt_sha256",
            "bodies",
            "coverage",
            "attrs",
            "input_tokens",
        ),
        *(
            "max_attempts",
            "max_tokens",
            "allowed_tools",
            "asked_tools",
            "checks",
            "goal",
            "required",
            "events",
            "run_id",
        ),
    ]
)
ODD = (
    VALUES
    | st.integers(-3, 2**80)
    | st.sampled_from(["c1", "c2", "run_tests", "tests", "running", "interrupted", "recorded", "write"])
)


def _put(holder: Any, name: str, value: Any, deeper: int) -> None:
    """Puts a value under a name; or deeper, where there is something to go into."""
    inside = [
        one for one in (holder.values() if isinstance(holder, dict) else holder) if isinstance(one, dict | list) and one
    ]
    if deeper and inside:
        _put(inside[deeper % len(inside)], name, value, deeper // 2)
    elif isinstance(holder, dict):
        holder[name] = value
    else:
        holder.append(value)


@st.composite
def odd_ledgers(draw: st.DrawFn) -> LedgerFiles:
    files = WHOLE[draw(st.sampled_from(sorted(WHOLE)))]
    deck = Deck.of(files)
    for _ in range(draw(st.integers(1, 3))):
        what = draw(st.sampled_from(["lines", "lines", "lines", "budget", "contract", "checkpoint"]))
        holder: Any = getattr(deck, what)
        if what == "lines":
            holder = holder[draw(st.integers(0, len(holder) - 1))]["payload"]
        _put(holder, draw(NAMED), draw(ODD), draw(st.integers(0, 3)))
    return deck.files(draw(st.sampled_from(["in place", "re-linked", "re-sealed", "re-signed"])), files.head)


@given(odd_ledgers(), st.booleans(), st.booleans())
def test_two_readers_agree_about_anything(files: LedgerFiles, anchored: bool, key: bool) -> None:
    if not anchored:  # what a forger made whole again is judged by what it says
        last = files.events.splitlines()[-1:]
        files = replace(files, head=files.head._replace(hash=str(json.loads(last[0])["hash"])))
    assert ours(files, key) == theirs(files, key)


@given(odd_ledgers())
def test_a_report_holds_no_value_of_anybody(files: LedgerFiles) -> None:
    try:
        report = replay(in_memory(files))
    except LoupeError:
        return  # no report
    texts = [v for v in report.fields.values() if isinstance(v, str)]
    known = {
        "agentloupe.ledger.replay",
        "fix-the-build",
        "full",
        "limited_replay",
        "trace_only",
        "control_flow",
        "lossy",
        "unknown",
    }
    assert all(len(text) == 64 or text in known or len(text) < 20 for text in texts)


@given(st.lists(st.tuples(st.integers(0, 50), NAMED, ODD), min_size=1, max_size=3))
def test_a_plain_ledger_of_anything_is_judged_and_migrated_or_refused(changes: list[Any]) -> None:
    lines = plain_lines(LONG_STORY)
    for n, name, value in changes:
        lines[n]["payload"][name] = value
    folder = replace(plain(LONG_STORY), events=b"".join(dumps(line) + b"\n" for line in lines))
    try:
        before = replay(folder, rules=0)
    except LoupeError:
        return
    try:
        done = migrate(folder)
    except LoupeError as refused:
        reason = refused.reason
    else:
        reason = (
            "payload" if done.changed or str(done.new) == str(before) else "another conclusion, and no rule is blamed"
        )
    assert reason == "payload"


# --- logs that were cut, or are no logs -------------------------------------------------------------------------------


@given(st.integers(0, len(WHOLE["short"].events)))
def test_a_log_that_was_cut_anywhere_keeps_its_whole_lines(at: int) -> None:
    data = WHOLE["short"].events[:at]
    whole = data.count(b"\n")
    found = salvage(data)
    assert [kept.event["seq"] for kept in found.kept if kept.how == "whole"] == list(range(1, whole + 1))
    cut = bool(data) and not data.endswith(b"\n")
    assert len(found.damage) == cut
    assert found.stopped is None
    if whole:
        line = json.loads(next_line(data, "clock_read", {"call_id": "z"}, "2026-04-01T11:00:00.000000Z"))
        assert line["seq"] == len(found.kept) + 1
        assert line["prev_hash"] == json.loads(data.splitlines()[len(found.kept) - 1])["hash"]
        assert ("after_damage" in line["payload"]) is cut


@given(st.lists(st.sampled_from(LINES) | st.binary(max_size=40), max_size=8))
def test_bytes_of_any_kind_are_read_without_breaking(parts: list[bytes]) -> None:
    data = b"".join(parts)
    found = salvage(data)
    seqs = [kept.event["seq"] for kept in found.kept]
    assert seqs == sorted(set(seqs)), "nothing is kept twice"  # type: ignore[type-var]
    assert json.loads(found.document().split(b"\n")[0])["partial"] is True
    files = replace(WHOLE["short"], events=data)
    assert ours(files) == theirs(files)
