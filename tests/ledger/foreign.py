"""Logs of the shared cases as ledgers: converted line by line, with whatever is damaged left as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentloupe.engine.ledger.making import checkpointed
from agentloupe.engine.ledger.terms import LIMITS, terms_file
from agentloupe.verbs.ledger import write_files
from agentloupe.words.canonical import digest_bytes, dumps
from agentloupe.words.ledger import linked
from agentloupe.words.seal import GENESIS

KINDS = {
    "run.started": "run_started",
    "call.llm": "model_finished",
    "tool.intent": "call_finished",
    "tool.succeeded": "call_finished",
    "run.finished": "run_finished",
}
BUDGET = terms_file(dict.fromkeys(LIMITS))
CONTRACT = terms_file({"goal": None, "allowed_tools": [], "asked_tools": [], "checks": []})
_BEGINNING = b'{"schema_version"'


def converted(log: bytes) -> bytes:
    """The log with every whole event as a line of a ledger, linked in the order in which they stand."""
    before, out = GENESIS, b""
    for line in log.splitlines(keepends=True):
        end = line[len(line.rstrip(b"\n")) :]
        start = line.rfind(_BEGINNING)
        torn, text = line[: max(start, 0)], line[max(start, 0) :].rstrip(b"\n")
        try:
            event = json.loads(text)
        except ValueError:
            out += line
            continue
        made = linked(_line(event), before)
        before = str(made["hash"])
        out += torn + dumps(made) + end
    return out


def _line(event: dict[str, Any]) -> dict[str, Any]:
    kind = KINDS.get(event["event_type"], event["event_type"])
    payload: dict[str, Any] = {"event_id": event["event_id"], "source_digest": event["output_digest"]}
    if kind == "run_started":
        payload |= {"budget_sha256": digest_bytes(BUDGET), "contract_sha256": digest_bytes(CONTRACT)}
    if kind == "call_finished":
        payload["call_id"] = f"0.{event['sequence']}"
    if kind == "run_finished":
        payload["status"] = "ok"
    made = {"schema_version": event["schema_version"], "seq": event["sequence"], "run_id": event["run_id"]}
    return {**made, "kind": kind, "recorded_at": event["recorded_at"], "payload": payload}


def lines_by_sequence(log: bytes) -> dict[int, dict[str, Any]]:
    """The converted lines of a whole log by their numbers, as a log that was cut later still has them."""
    return {line["seq"]: line for line in map(json.loads, converted(log).splitlines())}


def cut_ledger(lines: Sequence[dict[str, Any]], folder: Path) -> None:
    """A ledger of these lines whose checkpoint somebody made to fit what is left."""
    write_files(folder, checkpointed(lines, {}, BUDGET, CONTRACT, None))


def as_ledger(log: bytes, folder: Path) -> None:
    """A folder with that log, a budget and a contract; without a checkpoint, which only a whole log has."""
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(converted(log))
    (folder / "budget.json").write_bytes(BUDGET)
    (folder / "contract.json").write_bytes(CONTRACT)
