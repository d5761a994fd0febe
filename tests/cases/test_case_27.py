"""Case 27, as a ledger: the process died between doing and noting. A reading of the files says so, and sends nothing.

What a resume does with it is in tests/unit/test_resume.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.ledger.making import LedgerFiles, checkpointed, sealed_lines
from agentloupe.engine.ledger.report import replay
from agentloupe.engine.ledger.terms import LIMITS, terms_file
from agentloupe.words.canonical import digest_bytes
from agentloupe.words.errors import Corrupt
from tests.ledger.support import in_memory

BUDGET = terms_file(dict.fromkeys(LIMITS))
CONTRACT = terms_file({"goal": None, "allowed_tools": ["send_mail"], "asked_tools": [], "checks": []})


def ledger(folder: Path, *, receipt: bool, requested: bool = True) -> LedgerFiles:
    """The case's log: begun, intended, started. A ledger has the decision apart from the intent."""
    begun, intent, started = (json.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines())
    asked = intent["payload"]["input"]
    call = {"call_id": asked["idempotency_key"], "tool": asked["name"], "idempotency_key": asked["idempotency_key"]}
    terms = {"budget_sha256": digest_bytes(BUDGET), "contract_sha256": digest_bytes(CONTRACT)}
    story: list[tuple[str, dict[str, Any], str]] = [
        ("run_started", terms, begun["recorded_at"]),
        ("tool_allowed", {**call, "effect": "write", "input_digest": intent["input_digest"]}, intent["recorded_at"]),
        ("tool_requested", {**call, "effect": "write"}, intent["recorded_at"]),
        ("tool_started", call, started["recorded_at"]),
    ]
    story = [event for event in story if requested or event[0] != "tool_requested"]
    lines = [
        {"schema_version": 1, "seq": n, "run_id": "run-27", "kind": kind, "recorded_at": at, "payload": payload}
        for n, (kind, payload, at) in enumerate(story, 1)
    ]
    written = {"run_id": "run-27", "call_id": call["call_id"], "tool": "send_mail", "result_digest": "7" * 64}
    written |= {"arguments_digest": intent["input_digest"], "idempotency_key": call["idempotency_key"]}
    receipts = {"run-27%3A2.json": terms_file(written)} if receipt else {}
    return checkpointed(sealed_lines(lines), receipts, BUDGET, CONTRACT, None)


@pytest.mark.parametrize("receipt", [False, True])
def test_an_intent_without_its_end_is_interrupted_with_or_without_its_receipt(
    shared_case: Callable[[str], Path], receipt: bool
) -> None:
    report = replay(in_memory(ledger(shared_case("27"), receipt=receipt)))
    assert str(report) == f"events=4 receipts={int(receipt)} state=interrupted"
    assert (report.fields["open_calls"], report.fields["ended"]) == (1, False)


def test_a_write_that_starts_without_its_intent_is_a_fault(shared_case: Callable[[str], Path]) -> None:
    with pytest.raises(Corrupt, match="starts without its tool_requested") as caught:
        replay(in_memory(ledger(shared_case("27"), receipt=False, requested=False)))
    assert caught.value.reason == "lifecycle"


def test_a_receipt_of_another_call_is_no_evidence(shared_case: Callable[[str], Path]) -> None:
    files = ledger(shared_case("27"), receipt=True)
    (data,) = files.receipts.values()
    moved = replace(files, receipts={"run-27%3A3.json": data})
    with pytest.raises(Corrupt, match="no tool call has this receipt"):
        replay(in_memory(moved))
    forged = replace(files, receipts={"run-27%3A2.json": data.replace(b"send_mail", b"send_post")})
    with pytest.raises(Corrupt, match="its tool is not the one of the event"):
        replay(in_memory(forged))
