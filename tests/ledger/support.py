"""A ledger of 14 events and one receipt, made by hand, and ways to hold ledgers in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentloupe.engine.ledger.making import LedgerFiles, checkpointed, sealed_lines
from agentloupe.engine.ledger.terms import terms_file
from agentloupe.ports.ledger import LedgerFolder
from agentloupe.words.canonical import digest_bytes, dumps
from agentloupe.words.ledger import KINDS

FIXTURE = Path(__file__).parent / "retrying"
RUN = "fix-the-build"

BUDGET: dict[str, Any] = {"max_attempts": 3, "max_model_calls": 10, "max_tool_calls": 5, "max_tokens": None}
CONTRACT: dict[str, Any] = {
    "goal": "the tests pass again",
    "allowed_tools": ["run_tests"],
    "asked_tools": [],
    "checks": [{"name": "format", "required": False}, {"name": "tests", "required": True}],
}
ARGUMENTS, RESULT = b'{"path":"tests"}', b'{"failed":1}'
STORY: Sequence[tuple[str, dict[str, Any]]] = (
    ("run_started", {"name": "builder", "run_name": RUN}),
    ("attempt_started", {"attempt": 1}),
    ("state_changed", {"state": "running"}),
    ("model_proposed", {"name": "chat m", "finish_reason": "tool_calls", "input_tokens": 90, "output_tokens": 12}),
    ("tool_denied", {"call_id": "c1", "tool": "delete_tests", "why": "not in the contract"}),
    ("model_proposed", {"name": "chat m", "finish_reason": "tool_calls", "input_tokens": 120, "output_tokens": 10}),
    ("tool_allowed", {"call_id": "c2", "tool": "run_tests", "effect": "read", "input_digest": digest_bytes(ARGUMENTS)}),
    ("tool_started", {"call_id": "c2", "tool": "run_tests"}),
    ("tool_finished", {"call_id": "c2", "tool": "run_tests", "output_digest": digest_bytes(RESULT)}),
    ("model_finished", {"name": "chat m", "finish_reason": "stop", "input_tokens": 150, "output_tokens": 30}),
    ("state_changed", {"state": "running"}),
    ("check_finished", {"name": "format", "passed": True}),
    ("check_finished", {"name": "tests", "passed": False}),
    ("state_changed", {"state": "retrying"}),
)


def at(number: int) -> str:
    return f"2026-04-01T10:00:{number:02d}.000000Z"


def body_line(data: bytes) -> bytes:
    return b'{"body":"%s","value":%s}\n' % (digest_bytes(data).encode(), data)


def receipts_of(story: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, bytes]:
    """Receipts of the calls that finished."""
    digests = {p["call_id"]: p["input_digest"] for kind, p in story if kind == "tool_allowed"}
    return {
        f"{p['call_id']}.json": terms_file(
            {
                "run_id": RUN,
                "call_id": p["call_id"],
                "tool": p["tool"],
                "arguments_digest": digests.get(p["call_id"], ""),
                "result_digest": p["output_digest"],
            }
        )
        for kind, p in story
        if kind == "tool_finished"
    }


def plain_lines(story: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The story as lines of a plain ledger."""
    return [{"seq": n, "run_id": RUN, "kind": kind, "payload": dict(p)} for n, (kind, p) in enumerate(story, 1)]


def told(
    story: Sequence[tuple[str, Mapping[str, Any]]] = STORY,
    *,
    budget: Mapping[str, Any] = BUDGET,
    contract: Mapping[str, Any] = CONTRACT,
    receipts: Mapping[str, bytes] | None = None,
    bodies: tuple[bytes, ...] | None = (body_line(ARGUMENTS), body_line(RESULT)),
) -> LedgerFiles:
    """The story as a sealed ledger."""
    limits, terms = terms_file(budget), terms_file(contract)
    held = receipts_of(story) if receipts is None else receipts
    lines: list[dict[str, Any]] = []
    for line in plain_lines(story):
        payload = {"event_id": f"{RUN}-{line['seq']}", **line["payload"]}
        if line["kind"] == "run_started":
            payload |= {"budget_sha256": digest_bytes(limits), "contract_sha256": digest_bytes(terms)}
        name = f"{payload.get('call_id')}.json"
        if line["kind"] == "tool_finished" and name in held:
            payload["receipt_sha256"] = digest_bytes(held[name])
        made = {"schema_version": 1, "seq": line["seq"], "run_id": RUN, "kind": line["kind"]}
        lines.append({**made, "recorded_at": at(line["seq"]), "payload": payload})
    return checkpointed(sealed_lines(lines), held, limits, terms, bodies)


def in_memory(files: LedgerFiles, origin: str = "memory") -> LedgerFolder:
    lines = [line.rstrip(b"\n") for line in files.bodies or ()]
    return LedgerFolder(
        origin=origin,
        events=files.events,
        receipts=files.receipts,
        budget=files.budget,
        contract=files.contract,
        checkpoint=files.checkpoint,
        has_bodies=files.bodies is not None,
        bodies=lambda: iter(lines),
    )


def plain(story: Sequence[tuple[str, Mapping[str, Any]]] = STORY, **more: Any) -> LedgerFolder:
    """The story as a plain ledger: no version, no chain, no digests."""
    held = {name: dumps({"call_id": name[:-5], "tool": "run_tests"}) for name in receipts_of(story)}
    events = b"".join(dumps(line) + b"\n" for line in plain_lines(story))
    return LedgerFolder("plain", events, held, dumps({"max_attempts": 3}), **more)


assert {kind for kind, _ in STORY} <= set(KINDS)
