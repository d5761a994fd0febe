"""The small files of a ledger, read strictly: budget, contract, receipt, checkpoint; and what a run's own ones say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeGuard, cast

from agentloupe.ports.recording import Recording
from agentloupe.ports.signing import Signer
from agentloupe.words.canonical import Json, canonical, digest_bytes, loads
from agentloupe.words.checkpoint import LEDGER_CONTEXT
from agentloupe.words.event import Event
from agentloupe.words.jsontext import JsonFault
from agentloupe.words.ledger import LEDGER_VERSION

__all__ = [
    "CHECKPOINT_FIELDS",
    "LIMITS",
    "RECEIPT_FIELDS",
    "SIGNATURE_FIELDS",
    "Budget",
    "Contract",
    "TermFault",
    "is_count",
    "read_budget",
    "read_checkpoint",
    "read_contract",
    "read_receipt",
    "receipts_digest",
    "signed_bytes",
    "signed_checkpoint",
    "terms_file",
    "terms_of",
    "told_terms",
]

LIMITS = ("max_attempts", "max_model_calls", "max_tool_calls", "max_tokens")
"""The members of a budget; `null` is no limit."""

RECEIPT_FIELDS: Mapping[str, bool] = {
    "schema_version": True,
    "run_id": True,
    "call_id": True,
    "tool": True,
    "arguments_digest": True,
    "result_digest": True,
    "external_id": False,
    "idempotency_key": False,
}
"""Members of a receipt, and whether it must have them."""

CHECKPOINT_FIELDS = (
    *("schema_version", "run_id", "events", "head", "events_sha256", "receipts_sha256"),
    *("budget_sha256", "contract_sha256", "bodies_sha256"),
)


SIGNATURE_FIELDS: Mapping[str, int] = {"key_id": 64, "signature": 128}
"""What a signed checkpoint has besides, as hex digits, and how many: both of them, or none."""


class TermFault(ValueError):
    """A small file is not what it has to be. The text names the member.

    Attributes:
        newer: it has a `schema_version` that this reader does not know.
    """

    def __init__(self, said: str, *, newer: bool = False) -> None:
        super().__init__(said)
        self.newer = newer


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a run may use; `None` is no limit. Tokens are input and output together."""

    max_attempts: int | None = None
    max_model_calls: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """What a run is for, and what it may do.

    Attributes:
        goal: text, or `None`.
        allowed: tools that may run.
        asked: tools of which somebody decides each time, so that either decision is right.
        checks: required ones have to pass in the same attempt before the run may succeed; `None`, of a plain ledger without
            a contract: nobody knows which there are, and every one of them is required.
    """

    goal: str | None = None
    allowed: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    checks: Mapping[str, bool] | None = None

    @property
    def required(self) -> frozenset[str]:
        """Names of the checks that have to pass."""
        return frozenset(name for name, required in (self.checks or {}).items() if required)


def is_count(value: object) -> TypeGuard[int]:
    """A whole number, 0 or more, of at most 63 bits (whatever is longer is no count, and too long to print); no boolean."""
    return type(value) is int and 0 <= value < 1 << 63


def _members(data: bytes, version: int) -> dict[str, Json]:
    try:
        value = loads(data)
    except UnicodeDecodeError as wrong:
        raise TermFault(f"not UTF-8 at byte {wrong.start}") from wrong
    except JsonFault as wrong:
        raise TermFault(f"not strict JSON: {wrong}") from wrong
    if not isinstance(value, dict):
        raise TermFault("no JSON object")
    stated = value.get("schema_version", 0)
    if not is_count(stated):
        raise TermFault("schema_version is no number")
    if stated > LEDGER_VERSION:
        raise TermFault(f"schema {stated} is newer than this reader ({LEDGER_VERSION})", newer=True)
    if stated != version:
        raise TermFault(f"schema {stated} in a ledger of schema {version}")
    return value


def _exactly(value: Mapping[str, Json], needed: Iterable[str], known: Iterable[str], *, open_ended: bool) -> None:
    missing = [name for name in needed if name not in value]
    if missing:
        raise TermFault(f"lacks {', '.join(missing)}")
    unknown = sorted(value.keys() - set(known))
    if unknown and not open_ended:
        raise TermFault(f"has members that nobody knows: {', '.join(unknown)[:200]}")


def read_budget(data: bytes, version: int) -> Budget:
    """`budget.json`. Raises `TermFault`."""
    value = _members(data, version)
    needed = LIMITS if version else LIMITS[:1]
    _exactly(value, needed, (*LIMITS, "schema_version"), open_ended=not version)
    for name in LIMITS:
        if not (value.get(name) is None or is_count(value[name])):
            raise TermFault(f"{name} is neither a number nor null")
    return Budget(**{name: value.get(name) for name in LIMITS})  # type: ignore[arg-type]  # looked at above


def read_contract(data: bytes, version: int) -> Contract:
    """`contract.json`. Raises `TermFault`."""
    value = _members(data, version)
    needed = ("goal", "allowed_tools", "asked_tools", "checks") if version else ("allowed_tools",)
    known = ("schema_version", "goal", "allowed_tools", "asked_tools", "checks")
    _exactly(value, needed, known, open_ended=not version)
    goal = value.get("goal")
    if not (goal is None or isinstance(goal, str)):
        raise TermFault("goal is neither text nor null")
    return Contract(goal, _names(value, "allowed_tools"), _names(value, "asked_tools"), _checks(value))


def _names(value: Mapping[str, Json], name: str) -> frozenset[str]:
    listed = value.get(name, [])
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise TermFault(f"{name} is no list of names")
    names = frozenset(one for one in listed if isinstance(one, str))
    if len(names) != len(listed):
        raise TermFault(f"{name} names a tool twice")
    return names


def _checks(value: Mapping[str, Json]) -> dict[str, bool]:
    listed = value.get("checks", [])
    if not isinstance(listed, list):
        raise TermFault("checks is no list")
    made: dict[str, bool] = {}
    for one in listed:
        name = one.get("name") if isinstance(one, dict) else None
        required = one.get("required", True) if isinstance(one, dict) else None
        if not isinstance(name, str) or not isinstance(required, bool) or name in made:
            raise TermFault("a check is no object with a name of its own, and required as true or false")
        made[name] = required
    return made


_RECEIPT_TEXTS = tuple(name for name in RECEIPT_FIELDS if name != "schema_version")
_RECEIPT_NEEDS = tuple(name for name, must in RECEIPT_FIELDS.items() if must)


def read_receipt(data: bytes, version: int) -> dict[str, Json]:
    """A receipt. Raises `TermFault`."""
    value = _members(data, version)
    needed = _RECEIPT_NEEDS if version else ("call_id", "tool")
    if not (value.keys() <= RECEIPT_FIELDS.keys() and all(name in value for name in needed)):
        _exactly(value, needed, RECEIPT_FIELDS, open_ended=not version)
    odd = [name for name in _RECEIPT_TEXTS if name in value and not isinstance(value[name], str)]
    if odd:
        raise TermFault(f"{', '.join(odd)}: no text")
    return value


def read_checkpoint(data: bytes, version: int) -> dict[str, Json]:
    """`checkpoint.json`. Raises `TermFault`."""
    value = _members(data, version)
    _exactly(value, CHECKPOINT_FIELDS, (*CHECKPOINT_FIELDS, *SIGNATURE_FIELDS), open_ended=False)
    if not value.keys().isdisjoint(SIGNATURE_FIELDS):
        for name, digits in SIGNATURE_FIELDS.items():
            said = value.get(name)
            if not isinstance(said, str) or not re.fullmatch(f"[0-9a-f]{{{digits}}}", said):
                raise TermFault(f"{name} is not {digits} hex digits")
    return value


def signed_checkpoint(checkpoint: bytes, signer: Signer) -> bytes:
    """A checkpoint that had no signature, with one."""
    said = cast("dict[str, Json]", loads(checkpoint)) | {"key_id": signer.key_id}
    return canonical({**said, "signature": signer.sign(signed_bytes(said)).hex()}) + b"\n"


def signed_bytes(checkpoint: Mapping[str, Json]) -> bytes:
    """What the signature of a checkpoint is over: a line that says what it is for, and all other members."""
    return LEDGER_CONTEXT + canonical({name: value for name, value in checkpoint.items() if name != "signature"})


def receipts_digest(receipts: Mapping[str, bytes]) -> str:
    """One digest of all receipts: of their names and the digests of their bytes."""
    rows: list[Json] = [[name, digest_bytes(receipts[name])] for name in sorted(receipts)]
    return digest_bytes(canonical(rows))


# --- of a run in a store ----------------------------------------------------------------------------------------------


def terms_file(value: Mapping[str, Json]) -> bytes:
    """The bytes of a small file: canonical, with a line break at the end."""
    return canonical({"schema_version": LEDGER_VERSION, **value}) + b"\n"


def terms_of(recording: Recording) -> dict[str, bytes]:
    """`budget` and `contract` that the run was started with, or else those that its own events tell."""
    return {label: _named(recording, label) or told for label, told in told_terms(recording.events).items()}


def told_terms(events: Iterable[Event]) -> dict[str, bytes]:
    """The terms of a run that had none: no limits; its tools as they were decided on, and checks that bind nobody."""
    return {"budget": terms_file(dict.fromkeys(LIMITS)), "contract": _told(events)}


def _named(recording: Recording, label: str) -> bytes | None:
    first = recording.events[0] if recording.events else None
    digest = first.bodies.get(label) if first is not None else None
    return None if digest is None else canonical(recording.body(digest)) + b"\n"


def _told(events: Iterable[Event]) -> bytes:
    allowed: set[str] = set()
    denied: set[str] = set()
    checks: set[str] = set()
    for event in events:
        if event.type == "tool.allowed":
            allowed.add(event.name or "")
        elif event.type == "tool.denied":
            denied.add(event.name or "")
        elif event.type == "check.finished":
            checks.add(event.name or "")
    return terms_file(
        {
            "goal": None,
            "allowed_tools": list[Json](sorted(allowed - denied)),
            "asked_tools": list[Json](sorted(allowed & denied)),
            "checks": [{"name": name, "required": False} for name in sorted(checks)],
        }
    )
