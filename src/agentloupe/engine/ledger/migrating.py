"""A plain ledger (schema 0) made into a sealed one (schema 1), and what the newer rules say that the older did not.

The old bytes stay where they are; the new stream holds their digests (`migrated_from` in `run_started`). What the old one
does not tell is not made up: an unknown time is marked, an unknown value is `null`, a missing name stops the migration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from agentloupe.engine.ledger.checks import RULES, Found, first_fault, named_bodies
from agentloupe.engine.ledger.making import LedgerFiles, checkpointed, sealed_lines
from agentloupe.engine.ledger.report import LedgerReport, judge, report_of
from agentloupe.engine.ledger.terms import LIMITS, receipts_digest, terms_file
from agentloupe.ports.ledger import LedgerFolder
from agentloupe.words.canonical import Json, canonical, digest_bytes
from agentloupe.words.errors import Refused
from agentloupe.words.ledger import KINDS, LEDGER_VERSION, LedgerFault, error_of, receipt_name

__all__ = ["MIGRATION_FORM", "Migration", "migrate"]

MIGRATION_FORM: Final = "agentloupe.ledger.migration"
_NO_TIME: Final = "1970-01-01T00:00:00.000000Z"
_VALUES: Final[Mapping[str, tuple[str, ...]]] = {"input_digest": ("arguments",), "output_digest": ("result", "output")}
"""Members of a plain payload or receipt that hold a value; a sealed one holds its digest."""
_CONCLUSIONS: Final = (
    *("run_id", "events", "receipts", "state", "ended", "attempts"),
    *("model_calls", "tool_calls", "tokens", "open_calls"),
)


@dataclass(frozen=True, slots=True)
class Migration:
    """A sealed ledger made of a plain one.

    Attributes:
        files: the new folder.
        old: the report on the old one, by the old rules.
        new: the report on the new one, or the fault that the new rules find.
    """

    files: LedgerFiles
    old: LedgerReport
    new: LedgerReport | LedgerFault

    @property
    def changed(self) -> list[dict[str, Json]]:
        """Conclusions that differ, with the rule to blame."""
        if isinstance(self.new, LedgerFault):
            verdict: dict[str, Json] = {"conclusion": "verdict", "old": "whole", "new": str(self.new)}
            return [{**verdict, "rule": self.new.guard}]
        old, new = self.old.fields, self.new.fields
        differ = [name for name in _CONCLUSIONS if old[name] != new[name]]
        return [{"conclusion": name, "old": old[name], "new": new[name], "rule": "state table"} for name in differ]

    def document(self) -> bytes:
        """`migration_report.json`: both readings side by side."""
        new: Json = self.new.as_json() if isinstance(self.new, LedgerFault) else dict(self.new.fields)
        said: dict[str, Json] = {
            "report": MIGRATION_FORM,
            "from_schema": 0,
            "to_schema": LEDGER_VERSION,
            "rules_added": list[Json](sorted(RULES[LEDGER_VERSION] - RULES[0])),
            "changed": list[Json](self.changed),
            "old": dict(self.old.fields),
            "new": new,
        }
        return json.dumps(said, indent=2, ensure_ascii=True).encode() + b"\n"


def migrate(folder: LedgerFolder) -> Migration:
    """Seals a plain ledger.

    Raises:
        Refused: it is sealed already (reason `sealed`).
        Corrupt: it is not whole by the old rules, or lacks what a sealed one must tell (reason `payload`).
    """
    if b'"schema_version"' in folder.events[: folder.events.find(b"\n") + 1] and folder.checkpoint is not None:
        raise Refused(f"{folder.origin}: it is sealed already, as schema {LEDGER_VERSION}", reason="sealed")
    found = judge(folder, rules=0)
    files = _Sealing(found).files()
    bodies = [line[:-1] for line in files.bodies or ()]
    made = LedgerFolder(
        origin=folder.origin,
        events=files.events,
        receipts=files.receipts,
        budget=files.budget,
        contract=files.contract,
        checkpoint=files.checkpoint,
        has_bodies=files.bodies is not None,
        bodies=lambda: iter(bodies),
    )
    again = Found(made)
    fault = first_fault(again)
    return Migration(files, report_of(found), fault or report_of(again))


class _Sealing:
    """Makes the lines and files of a sealed ledger from those of a plain one."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.bodies: dict[str, bytes] = {}
        self.attempt = 0
        self.calls: dict[str, dict[str, Json]] = {}
        self.receipts: dict[str, bytes] = {}

    def files(self) -> LedgerFiles:
        lines = [self._line(line) for line in self.found.lines]
        self._open_receipts()
        first = cast("dict[str, Json]", lines[0]["payload"])
        budget, contract = self._budget(), self._contract()
        first |= {"budget_sha256": digest_bytes(budget), "contract_sha256": digest_bytes(contract)}
        first["migrated_from"] = self._origin()
        if any(named_bodies(line) - self.bodies.keys() for line in lines):
            first.setdefault("coverage", "lossy")  # digests of values that the old ledger never held
        lines_of_bodies = (b'{"body":"%s","value":%s}\n' % (name.encode(), data) for name, data in self.bodies.items())
        bodies = tuple(lines_of_bodies) if self.bodies else None
        return checkpointed(sealed_lines(lines), self.receipts, budget, contract, bodies)

    def _origin(self) -> dict[str, Json]:
        folder = self.found.folder
        return {
            "schema_version": 0,
            "events_sha256": digest_bytes(folder.events),
            "receipts_sha256": receipts_digest(folder.receipts),
            "budget_sha256": digest_bytes(folder.budget),
            "contract_sha256": None if folder.contract is None else digest_bytes(folder.contract),
        }

    def _line(self, line: dict[str, Json]) -> dict[str, Json]:
        kind, payload = str(line["kind"]), dict(cast("Mapping[str, Json]", line["payload"]))
        self._digests(payload)
        if kind.startswith("tool_"):
            self._of_tool(kind, payload)
        elif kind == "attempt_started":
            payload.setdefault("attempt", self.attempt + 1)
            self.attempt = cast("int", payload["attempt"])
        elif kind == "run_finished":
            payload.setdefault("status", "ok")
        if "recorded_at" not in line:
            payload["time_unknown"] = True
        lacks = [name for name in KINDS[kind].needs if name not in payload and not name.endswith("t_sha256")]
        if lacks:
            fault = self.found.at(line, "payload", f"it cannot be sealed without {lacks[0]}")
            raise error_of(fault, self.found.folder.origin)
        made: dict[str, Json] = {"schema_version": LEDGER_VERSION, "seq": line["seq"], "run_id": line["run_id"]}
        made |= {"kind": kind, "recorded_at": line.get("recorded_at", _NO_TIME)}
        if "parent_seq" in line:
            made["parent_seq"] = line["parent_seq"]
        return {**made, "payload": payload}

    def _digests(self, payload: dict[str, Json]) -> None:
        """Values leave the payload; their digests stay."""
        for digest, names in _VALUES.items():
            for name in names:
                if name in payload:
                    payload[digest] = self._kept(payload.pop(name))

    def _kept(self, value: Json) -> str:
        data = canonical(value)
        self.bodies[digest_bytes(data)] = data
        return digest_bytes(data)

    def _of_tool(self, kind: str, payload: dict[str, Json]) -> None:
        call = str(payload["call_id"])
        said = self.calls.setdefault(call, {})
        if "tool" in said:
            payload.setdefault("tool", said["tool"])
        receipt = self._old_receipt(call)
        if kind == "tool_allowed":
            payload.setdefault("input_digest", receipt.get("input_digest") or self._kept(None))
        if kind == "tool_finished":
            payload.setdefault("output_digest", receipt.get("output_digest") or self._kept(None))
        said |= payload
        if kind == "tool_finished" and "tool" in said:
            payload["receipt_sha256"] = digest_bytes(self._receipt(call, said, receipt))

    def _old_receipt(self, call: str) -> dict[str, Json]:
        """What the old receipt says of a call, with digests for its values."""
        data = self.found.folder.receipts.get(receipt_name(call))
        said = dict(cast("Mapping[str, Json]", json.loads(data))) if data is not None else {}
        self._digests(said)
        return said

    def _receipt(self, call: str, said: Mapping[str, Json], old: Mapping[str, Json]) -> bytes:
        more = {name: said.get(name) for name in ("external_id", "idempotency_key") if isinstance(said.get(name), str)}
        made = {"run_id": self.found.lines[0]["run_id"], "call_id": call, "tool": said["tool"]}
        made |= {"arguments_digest": said.get("input_digest") or self._kept(None)}
        made |= {"result_digest": said.get("output_digest") or old.get("output_digest") or self._kept(None)}
        data = self.receipts[receipt_name(call)] = terms_file({**made, **more})
        return data

    def _open_receipts(self) -> None:
        """Receipts of calls that did not come to their end keep their place: they say that the run was interrupted."""
        for call, said in self.calls.items():
            name = receipt_name(call)
            if name in self.found.folder.receipts and name not in self.receipts:
                self._receipt(call, said, self._old_receipt(call))

    def _budget(self) -> bytes:
        return terms_file({name: getattr(self.found.budget, name) for name in LIMITS})

    def _contract(self) -> bytes:
        """The old contract; where there was none, what the events tell, and every check required, as the old rules had it."""
        contract = self.found.contract
        allowed, asked = set(contract.allowed), set(contract.asked)
        checks = dict(contract.checks or {})
        if self.found.folder.contract is None:
            denied = self._tools("tool_denied")
            asked = self._tools("tool_allowed") & denied
            allowed = self._tools("tool_allowed") - denied
            names = [line["payload"] for line in self.found.lines if line["kind"] == "check_finished"]
            checks = {str(p.get("name")): True for p in names if isinstance(p, dict)}
        return terms_file(
            {
                "goal": contract.goal,
                "allowed_tools": list[Json](sorted(allowed)),
                "asked_tools": list[Json](sorted(asked)),
                "checks": [{"name": name, "required": required} for name, required in sorted(checks.items())],
            }
        )

    def _tools(self, kind: str) -> set[str]:
        return {
            str(payload.get("tool"))
            for line in self.found.lines
            if line["kind"] == kind and isinstance(payload := line["payload"], dict)
        }
