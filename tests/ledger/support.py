"""A ledger of 14 events and one receipt, made by hand, and ways to hold ledgers in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agentloupe.engine.ledger.making import LedgerFiles, checkpointed, sealed_lines
from agentloupe.engine.ledger.terms import signed_checkpoint, terms_file
from agentloupe.ports.ledger import LedgerFolder
from agentloupe.vault.keys import SigningKey
from agentloupe.words.canonical import digest_bytes, dumps
from agentloupe.words.ledger import KINDS

_KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2)]
OWNER, FORGER = map(SigningKey, _KEYS)
"""Keys of whoever signs ledgers in tests, and of whoever forges them."""
PUBLIC = _KEYS[0].public_key()
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


def _call(name: str, *kinds: str, effect: str = "read") -> list[tuple[str, dict[str, Any]]]:
    said = {"call_id": name, "tool": "run_tests", "effect": effect, "idempotency_key": f"key-{name}"}
    more = {
        "tool_allowed": {"input_digest": "1" * 64},
        "tool_finished": {"output_digest": "2" * 64, "external_id": "e"},
        "tool_confirmed": {"outcome": "failed", "how": "person"},
    }
    return [(kind, {**said, **more.get(kind, {})}) for kind in kinds]


LONG_STORY: Sequence[tuple[str, dict[str, Any]]] = (
    ("run_started", {"name": "builder", "input_digest": "3" * 64}),
    ("attempt_started", {"attempt": 1}),
    ("state_changed", {"state": "running"}),
    ("model_requested", {"call_id": "m1", "name": "chat m"}),
    ("model_opened", {"call_id": "m1"}),
    ("model_streamed", {"call_id": "m1"}),
    ("model_proposed", {"call_id": "m1", "finish_reason": "tool_use", "input_tokens": 9, "output_tokens": 2}),
    *_call("w1", "tool_allowed", "tool_requested", "tool_started", "tool_finished", effect="write"),
    *_call("r1", "tool_allowed", "tool_started", "tool_failed"),
    *_call("w2", "tool_allowed", "tool_requested", "tool_started", effect="write"),
    ("check_finished", {"name": "tests", "passed": False}),
    ("state_changed", {"state": "retrying"}),
    ("attempt_started", {"attempt": 2, "asked_again": ["w2"]}),
    *_call("w2", "tool_unknown", "tool_confirmed", effect="write"),
    ("tool_denied", {"call_id": "d1", "tool": "rm", "why": "contract"}),
    ("state_changed", {"state": "denied"}),
    ("model_requested", {"call_id": "m2", "name": "chat m"}),
    ("model_failed", {"call_id": "m2", "error_class": "RateLimitError"}),
    ("retrieval_finished", {"call_id": "q1"}),
    ("retrieval_failed", {"call_id": "q2"}),
    ("call_opened", {"call_id": "o1"}),
    ("call_streamed", {"call_id": "o1"}),
    ("call_finished", {"call_id": "o1"}),
    ("call_failed", {"call_id": "o2"}),
    ("clock_read", {"call_id": "k1"}),
    ("random_drawn", {"call_id": "k2"}),
    ("id_minted", {"call_id": "k3"}),
    ("env_read", {"call_id": "k4", "name": "HOME"}),
    ("span_started", {"call_id": "s1"}),
    ("span_finished", {"call_id": "s1"}),
    ("task_forked", {"lane": "0/1"}),
    ("task_joined", {"lane": "0/1"}),
    ("task_cancelled", {"call": "o1"}),
    ("timer_fired", {"timer": 1}),
    ("schedule_marked", {"mark": "tight"}),
    ("state_changed", {"call_id": "x1", "name": "triage"}),
    ("model_finished", {"call_id": "m3", "finish_reason": "stop", "input_tokens": 5, "output_tokens": 1}),
    ("check_finished", {"name": "format", "passed": True}),
    ("check_finished", {"name": "tests", "passed": None}),
    ("state_changed", {"state": "waiting"}),
    ("check_finished", {"name": "tests", "passed": True}),
    ("run_finished", {"status": "ok"}),
    ("run_erased", {}),
)
"""Every kind at least once."""


def at(number: int) -> str:
    return f"2026-04-01T10:{number // 60:02d}:{number % 60:02d}.000000Z"


def body_line(data: bytes) -> bytes:
    return b'{"body":"%s","value":%s}\n' % (digest_bytes(data).encode(), data)


def receipts_of(story: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, bytes]:
    """Receipts of the calls that finished."""
    digests = {p["call_id"]: p.get("input_digest", "") for kind, p in story if kind == "tool_allowed"}
    return {
        f"{p['call_id']}.json": terms_file(
            {
                "run_id": RUN,
                "call_id": p["call_id"],
                "tool": p.get("tool", ""),
                "arguments_digest": digests.get(p["call_id"], ""),
                "result_digest": p.get("output_digest", ""),
                **{name: p[name] for name in ("external_id", "idempotency_key") if name in p},
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


def signed(files: LedgerFiles) -> LedgerFiles:
    """The ledger, signed by its owner."""
    return replace(files, checkpoint=signed_checkpoint(files.checkpoint, OWNER))


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


assert {kind for kind, _ in LONG_STORY} == set(KINDS)
