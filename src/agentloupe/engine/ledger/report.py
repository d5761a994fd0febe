"""The verdict on a ledger: a report without any value of a user, the same bytes on any machine.

report = replay(folder)                 # raises at the first fault
write(report.document())                # replay_report.json
compare(report_a, report_b)             # field by field
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast, get_args

from agentloupe import __version__
from agentloupe.engine.ledger.checks import GUARDS, RULES, Found, first_fault
from agentloupe.engine.ledger.reducer import TABLE, Reducer
from agentloupe.engine.ledger.terms import receipts_digest
from agentloupe.ports.garbage import one_generation
from agentloupe.ports.ledger import LedgerFolder
from agentloupe.ports.signing import Trust
from agentloupe.words.canonical import Json, digest, digest_bytes, loads
from agentloupe.words.errors import Corrupt, Refused
from agentloupe.words.event import Head
from agentloupe.words.ledger import LEDGER_VERSION, ROWS, error_of
from agentloupe.words.run import Coverage, coverage_left

__all__ = ["REPORT_FORM", "Comparison", "LedgerReport", "compare", "judge", "read_report", "replay", "rules_digest"]

REPORT_FORM: Final = "agentloupe.ledger.replay"
"""What a report calls itself; a salvage calls itself something else."""

_DIGEST: Final = re.compile("[0-9a-f]{64}")
_COVERAGES: Final = get_args(Coverage)
_SAME_EVIDENCE: Final = (
    *("run_id", "events_sha256", "receipts_sha256", "budget_sha256", "contract_sha256", "bodies_sha256"),
)


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """What a replay of a ledger found. `fields` are those of `replay_report.json`, in their order."""

    fields: Mapping[str, Json]

    def __str__(self) -> str:
        said = self.fields
        return f"events={said['events']} receipts={said['receipts']} state={said['state']}"

    def document(self) -> bytes:
        """The bytes of `replay_report.json`."""
        return json.dumps(self.fields, indent=2, ensure_ascii=True).encode() + b"\n"


def rules_digest(version: int = LEDGER_VERSION) -> str:
    """One digest of the rules of a version: kinds, checks in their order, state table."""
    rows: list[Json] = [[row.kind, row.type, list[Json](row.after), list[Json](row.needs)] for row in ROWS]
    checks: list[Json] = [guard.name for guard in GUARDS if guard.name in RULES[version]]
    return digest([version, rows, checks, {signal: dict[str, Json](moves) for signal, moves in TABLE.items()}])


def judge(
    folder: LedgerFolder, *, rules: int = LEDGER_VERSION, anchor: Head | None = None, trust: Trust | None = None
) -> Found:
    """Makes all checks and gives what was read on the way.

    Raises:
        Corrupt: the first fault, with file, line, sequence, kind; `reason` is the guard.
        VersionUnknown: it is newer than this reader, or of a kind that it does not know.
    """
    found = Found(folder, rules, anchor, trust)
    with one_generation:
        fault = first_fault(found)
    if fault is not None:
        raise error_of(fault, folder.origin)
    return found


def replay(
    folder: LedgerFolder, *, rules: int = LEDGER_VERSION, anchor: Head | None = None, trust: Trust | None = None
) -> LedgerReport:
    """Replays a ledger: all checks, then the derived state. Executes nothing. Raises like `judge`."""
    return report_of(judge(folder, rules=rules, anchor=anchor, trust=trust))


def report_of(found: Found) -> LedgerReport:
    """The report on a folder that passed all checks."""
    reducer, folder = found.reducer, found.folder
    assert reducer is not None
    last = found.lines[-1]
    return LedgerReport(
        {
            "report": REPORT_FORM,
            "partial": False,
            "run_id": found.lines[0]["run_id"],
            "events": len(found.lines),
            "receipts": len(folder.receipts),
            "state": reducer.final,
            "ended": reducer.ended,
            **_used(reducer),
            "events_sha256": digest_bytes(folder.events),
            "receipts_sha256": found.checkpoint.get("receipts_sha256") or receipts_digest(folder.receipts),
            "budget_sha256": digest_bytes(folder.budget),
            "contract_sha256": None if folder.contract is None else digest_bytes(folder.contract),
            "bodies_sha256": found.checkpoint.get("bodies_sha256"),
            "head": last.get("hash"),
            "anchor": None if found.anchor is None else f"{found.anchor.sequence}:{found.anchor.hash}",
            "key_id": None if found.trust is None else found.checkpoint["key_id"],
            "coverage": _coverage(found),
            "snapshot": _snapshot(found),
            "bodies": {"held": found.held, "missing": found.missing} if folder.has_bodies else None,
            "rules": found.version,
            "rules_digest": rules_digest(found.version),
            "reader": f"agentloupe {__version__}",
            "notes": list[Json](_notes(found, reducer)),
        }
    )


def _used(reducer: Reducer) -> dict[str, Json]:
    return {
        "attempts": reducer.attempts,
        "model_calls": reducer.model_calls,
        "tool_calls": reducer.tool_calls,
        "tokens": reducer.tokens,
        "open_calls": reducer.open_calls,
    }


def _coverage(found: Found) -> Json:
    """What the run says that it recorded, lowered where values are gone."""
    coverage: Json = "full"
    for line in found.lines:
        payload = line["payload"]
        assert isinstance(payload, dict)
        if line["kind"] in {"run_started", "run_finished"} and "coverage" in payload:
            said = payload["coverage"]
            coverage = said if said in _COVERAGES else "unknown"  # a report never holds what somebody else wrote
        if line["kind"] == "run_erased":
            coverage = "limited_replay"
    gone = not found.folder.has_bodies or found.missing
    return coverage_left(cast("Coverage", coverage), missing=bool(gone))


def _snapshot(found: Found) -> str | None:
    """Digest of the snapshot that the run began with."""
    payload = found.lines[0]["payload"]
    bodies = payload.get("bodies") if isinstance(payload, dict) else None
    named = bodies.get("snapshot") if isinstance(bodies, dict) else None
    return named if isinstance(named, str) and _DIGEST.fullmatch(named) else None


def _notes(found: Found, reducer: Reducer) -> list[str]:
    notes = ["the order is that in which the host committed the events, not the order of the world"]
    if not found.version:
        notes.append("a plain ledger: no chain, no checkpoint; nothing shows that it was not changed")
    elif found.trust is not None:
        notes.append(
            f"signed by key {str(found.checkpoint['key_id'])[:12]}: nothing is proven about events behind the end"
        )
    elif found.anchor is None:
        notes.append("end not anchored: only the folder itself says where it ends")
    elif found.anchor.sequence < len(found.lines):
        notes.append(f"anchored to sequence {found.anchor.sequence} only")
    if found.trust is None and "key_id" in found.checkpoint:
        notes.append("it says that it is signed; no public key was given, and nobody looked")
    if not found.folder.has_bodies:
        notes.append("no values in the folder: what was said and answered was not looked at")
    if not reducer.ended:
        notes.append("no run_finished: the run goes on, was interrupted, or its end is not here")
    return notes


# --- reading and comparing reports ------------------------------------------------------------------------------------


def read_report(data: bytes, origin: str) -> LedgerReport:
    """A report that was written before.

    Raises:
        Refused: it is partial, as a salvage is (reason `partial`).
        Corrupt: it is no report (reason `report`).
    """
    try:
        fields = loads(data)
    except ValueError:
        fields = None
    # A salvage is many lines; its first one says what it is.
    head = fields if fields is not None else _first_line(data)
    if isinstance(head, dict) and head.get("partial") is not False and "partial" in head:
        raise Refused(f"{origin}: it is partial, and no report", hint="a salvage proves nothing", reason="partial")
    if not isinstance(fields, dict) or fields.get("report") != REPORT_FORM or fields.get("partial") is not False:
        raise Corrupt(f"{origin}: no report of a ledger replay", reason="report")
    return LedgerReport(fields)


def _first_line(data: bytes) -> Json:
    try:
        return loads(data.split(b"\n", 1)[0])
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two reports beside each other.

    Attributes:
        changed: names of the fields that differ, in the order of the report.
        why: what a difference on the same evidence is, or `None`.
    """

    changed: tuple[str, ...]
    why: str | None

    def __str__(self) -> str:
        return f"deterministic={not self.changed} changed_fields={list(self.changed)}"


def compare(one: LedgerReport, other: LedgerReport) -> Comparison:
    """Compares field by field."""
    names = dict.fromkeys((*one.fields, *other.fields))
    changed = tuple(name for name in names if one.fields.get(name) != other.fields.get(name))
    if not changed:
        return Comparison((), None)
    if any(name in changed for name in _SAME_EVIDENCE):
        return Comparison(changed, "the evidence differs")
    causes = {"rules_digest": "rules", "reader": "reader", "anchor": "anchor", "key_id": "key"}
    named = " and ".join(cause for name, cause in causes.items() if name in changed)
    if not named:
        return Comparison(changed, "evidence, rules and reader are the same: one of the reports was changed")
    return Comparison(changed, f"the evidence is the same: a difference of {named}")
