"""The checks of a ledger, in the one order in which they are made; the first fault ends them.

Every check is a function of what was read, and has a name: the guard that reports and the table of mutations speak of.
Each looks through all lines before the next one begins, so that later ones may trust what earlier ones proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentloupe.engine.ledger.reducer import Reducer, text_of
from agentloupe.engine.ledger.terms import (
    Budget,
    Contract,
    TermFault,
    is_count,
    read_budget,
    read_checkpoint,
    read_contract,
    read_receipt,
    receipts_digest,
    signed_bytes,
)
from agentloupe.ports.ledger import LedgerFolder
from agentloupe.ports.pack import needs
from agentloupe.ports.signing import Trust
from agentloupe.words.canonical import Json, digest_bytes, digest_parts, loads
from agentloupe.words.effects import HOWS, OUTCOMES, next_stage, stands_in
from agentloupe.words.event import Head
from agentloupe.words.jsontext import JsonFault
from agentloupe.words.ledger import (
    BODIES,
    BUDGET,
    CHECKPOINT,
    CONTRACT,
    INTERRUPTED,
    KINDS,
    LEDGER_VERSION,
    RECEIPTS,
    STATES,
    LedgerFault,
    kind_of,
    receipt_name,
)
from agentloupe.words.seal import GENESIS, link_bytes, sealed_form

__all__ = ["GUARDS", "RULES", "Found", "Guard", "first_fault", "guards_of", "named_bodies"]

Line = dict[str, Json]


@dataclass(slots=True)
class Found:
    """A folder and what the checks so far found in it.

    Attributes:
        folder: what is judged.
        version: whose rules hold, see `RULES`.
        anchor: number and hash of the last event as known from elsewhere.
        trust: keys by one of which the checkpoint has to be signed; `None`: it need not be.
        lines: the lines, once they are proven to be JSON objects.
        budget, contract: once their digests are proven.
        reducer: where the run is, after all lines.
        derived: the first fault of each guard that follows from the lines.
        held, missing: bodies that are there, and those that the events name and are not.
    """

    folder: LedgerFolder
    version: int = LEDGER_VERSION
    anchor: Head | None = None
    trust: Trust | None = None
    lines: list[Line] = field(default_factory=list[Line])
    budget: Budget = field(default_factory=Budget)
    contract: Contract = field(default_factory=Contract)
    checkpoint: Mapping[str, Json] = field(default_factory=dict[str, Json])
    reducer: Reducer | None = None
    derived: dict[str, LedgerFault] = field(default_factory=dict[str, LedgerFault])
    held: int = 0
    missing: int = 0

    def at(self, line: Line, guard: str, said: str, *, newer: bool = False) -> LedgerFault:
        """A fault at an event whose number is proven, or the line itself."""
        number = next(n for n, one in enumerate(self.lines, 1) if one is line)
        sequence = line.get("seq")
        kind = line.get("kind")
        return LedgerFault(
            guard=guard,
            said=said,
            line=number,
            sequence=sequence if is_count(sequence) else None,
            kind=kind[:60] if isinstance(kind, str) else None,
            newer=newer,
        )


Check = Callable[[Found], LedgerFault | None]


class Guard(NamedTuple):
    """A check with its name and what it proves."""

    name: str
    proves: str
    check: Check


# --- the lines themselves ---------------------------------------------------------------------------------------------

LONGEST_LINE = 16 << 20
"""Bytes of one line."""


def _json(found: Found) -> LedgerFault | None:
    data, start = found.folder.events, 0
    if not data:
        return LedgerFault(guard="json", said="the log is empty: no event", byte=0)
    for number, text in enumerate(data.split(b"\n"), 1):
        if start == len(data):
            return None  # what stands behind the last line break is nothing
        wrong = "longer than a line may be" if len(text) > LONGEST_LINE else _line_into(found.lines, text)
        if wrong is None and start + len(text) == len(data):
            wrong = "the last line has no line break: it was cut, or is being written"
        if wrong is not None:
            before = found.lines[-1].get("seq") if found.lines and number > 1 else None
            after = f"; the last whole event is sequence {before}" if is_count(before) else ""
            return LedgerFault(guard="json", said=f"{wrong}{after}", line=number, byte=start)
        start += len(text) + 1
    return None


def _line_into(lines: list[Line], text: bytes) -> str | None:
    """Adds what a line says to the lines, or tells what is wrong with it."""
    if not text.strip():
        return "a blank line"
    try:
        value = loads(text)
    except UnicodeDecodeError as wrong:
        return f"not UTF-8 at byte {wrong.start} of the line"
    except JsonFault as wrong:
        return f"not strict JSON: {wrong.fault}, at character {wrong.position} of the line"
    if not isinstance(value, dict):
        return "no JSON object"
    lines.append(value)
    return None


def _schema_version(found: Found) -> LedgerFault | None:
    for line in found.lines:
        stated = line.get("schema_version", 0)
        if stated == found.version and type(stated) is int:
            continue
        if not is_count(stated):
            return found.at(line, "schema_version", "schema_version is no number")
        if stated > LEDGER_VERSION:
            said = f"schema {stated} is newer than this reader ({LEDGER_VERSION})"
            return found.at(line, "schema_version", said, newer=True)
        said = f"schema {stated} where the rules of schema {found.version} hold"
        if found.version and "schema_version" not in line:
            said = f"no schema_version; `ledger replay --rules 0` judges a plain ledger, `ledger migrate` seals it ({said})"
        return found.at(line, "schema_version", said)
    return None


_PLAIN_FIELDS: Mapping[str, type] = {"seq": int, "run_id": str, "kind": str, "payload": dict}
_SEALED_FIELDS: Mapping[str, type] = {
    **_PLAIN_FIELDS,
    "schema_version": int,
    "recorded_at": str,
    "prev_hash": str,
    "hash": str,
}
_OPTIONAL: Mapping[str, type] = {"parent_seq": int}


def _fields(found: Found) -> LedgerFault | None:
    good: set[tuple[object, ...]] = set()
    for line in found.lines:
        shape = (*line, *map(type, line.values()))
        if shape not in good:  # a handful in any ledger
            said = _misshapen(line, found.version)
            if said is not None:
                return found.at(line, "fields", said)
            good.add(shape)
        if "parent_seq" in line and not 0 < line["parent_seq"] < line["seq"]:  # type: ignore[operator]  # numbers
            return found.at(line, "fields", "parent_seq is no number of an earlier event")
        if not line["run_id"]:
            return found.at(line, "fields", "run_id is empty")
    return None


def _misshapen(line: Line, version: int) -> str | None:
    known = {**_SEALED_FIELDS, **_OPTIONAL}
    for name in _SEALED_FIELDS if version else _PLAIN_FIELDS:
        if name not in line:
            return f"{name} is not there"
    for name, value in line.items():
        if name not in known:
            return f"a field that nobody knows: {name[:60]}"
        if type(value) is not known[name]:
            return f"{name} is of a wrong type"
    return None


def _run_id(found: Found) -> LedgerFault | None:
    first = found.lines[0]["run_id"]
    for line in found.lines:
        if line["run_id"] != first:
            return found.at(line, "run_id", "of another run than the first event")
    return None


def _sequence(found: Found) -> LedgerFault | None:
    for number, line in enumerate(found.lines, 1):
        if line["seq"] != number:
            return found.at(line, "sequence", f"sequence {number} was expected here")
    return None


def _kind(found: Found) -> LedgerFault | None:
    for line in found.lines:
        if line["kind"] not in KINDS:
            return found.at(line, "kind", f"kind {str(line['kind'])[:60]} is not known", newer=True)
    return None


_ANSWERS = frozenset({"model_proposed", "model_finished"})
_SHAPES: Mapping[str, tuple[type, ...]] = {
    "attempt": (int,),
    "passed": (bool, type(None)),
}


def _payload(found: Found) -> LedgerFault | None:
    for line in found.lines:
        payload: Mapping[str, Json] = line["payload"]  # type: ignore[assignment]  # proven by _fields
        kind = line["kind"]
        needed = KINDS[str(kind)].needs if found.version else ("call_id",) if str(kind).startswith("tool_") else ()
        for name in needed:
            if name not in payload or type(payload[name]) not in _SHAPES.get(name, (str,)):
                return found.at(line, "payload", f"its payload has no {name}, or one of a wrong type")
        if "finish_reason" in payload and kind in _ANSWERS and kind_of(KINDS[str(kind)].type, payload) != kind:
            return found.at(line, "payload", "its finish_reason is that of another kind")
        if found.version and kind == "tool_confirmed" and not _is_finding(payload):
            return found.at(line, "payload", "its outcome, or how it was found out, is not one of those that there are")
        if kind == "state_changed" and ("state" in payload) == ("name" in payload):
            return found.at(line, "payload", "its payload must have either state or name")
    return None


def _is_finding(payload: Mapping[str, Json]) -> bool:
    whole = payload.get("outcome") != "finished" or type(payload.get("output_digest")) is str
    return payload.get("outcome") in OUTCOMES and payload.get("how") in HOWS and whole


_AFTER_THE_END = frozenset({"run_erased", "tool_confirmed"})

# --- lifecycle --------------------------------------------------------------------------------------------------------


def _lifecycle(found: Found) -> LedgerFault | None:
    stages: dict[str, str] = {}
    effects: dict[str, Json] = {}
    started: set[str] = set()
    ended = False
    for number, line in enumerate(found.lines):
        kind, payload = str(line["kind"]), line["payload"]
        assert isinstance(payload, dict)
        if (kind == "run_started") is not (number == 0):
            return found.at(line, "lifecycle", "run_started stands first, and nowhere else")
        if ended and kind not in _AFTER_THE_END:
            return found.at(line, "lifecycle", "it stands behind the end of the run")
        ended = ended or kind in {"run_finished", "run_erased"}
        if kind == "attempt_started":
            stages.update((call, INTERRUPTED) for call in started if stages[call] == "tool.started")
            started.clear()
        wrong = _step_of_call(kind, payload, stages, effects)
        if wrong is not None:
            return found.at(line, "lifecycle", wrong)
        if kind == "tool_started":
            started.add(str(payload["call_id"]))
    return None


def _step_of_call(
    kind: str, payload: Mapping[str, Json], stages: dict[str, str], effects: dict[str, Json]
) -> str | None:
    """Takes a call one stage further, or tells why it cannot go there."""
    row = KINDS[kind]
    call = payload.get("call_id")
    if not row.after or not isinstance(call, str):
        return None
    before = stages.get(call)
    if row.of_tool:
        stage = next_stage(
            before,
            row.type,
            writes=effects.get(call) == "write",
            stood_in=stands_in(payload.get("source"), payload.get("copied_source")),
            outcome=payload.get("outcome"),
        )
    else:
        stage = kind if before in row.after else None
    if stage is None:
        if kind == "tool_started" and before == "tool.allowed":
            return f"call {call[:80]} writes, and starts without its tool_requested"
        was = "has not begun" if before is None else f"is at {before.replace('.', '_')}"
        return f"call {call[:80]} {was}: {kind} cannot follow"
    if kind == "tool_allowed":
        effects[call] = payload.get("effect")
    stages[call] = stage
    return None


# --- receipts ---------------------------------------------------------------------------------------------------------


def _receipts(found: Found) -> LedgerFault | None:
    calls = _tool_calls(found)
    finished = {receipt_name(call): line for call, (line, said) in calls.items() if _went_well(str(line["kind"]), said)}
    for name, line in finished.items():
        if name not in found.folder.receipts:
            return found.at(line, "receipts", f"there is no {RECEIPTS}/{name}")
    named = {receipt_name(call): (call, *about) for call, about in calls.items()}
    for name in sorted(found.folder.receipts):
        wrong = _receipt(found, name, named.get(name))
        if wrong is not None:
            return wrong
    return None


def _tool_calls(found: Found) -> dict[str, tuple[Line, Mapping[str, Json]]]:
    """Of each tool call its last line, and all that its lines said."""
    calls: dict[str, tuple[Line, Mapping[str, Json]]] = {}
    for line in found.lines:
        payload = line["payload"]
        if str(line["kind"]).startswith("tool_") and isinstance(payload, dict):
            call = str(payload["call_id"])
            said: Mapping[str, Json] = calls[call][1] if call in calls else {}
            calls[call] = (line, {**said, **payload})
    return calls


def _went_well(kind: str, said: Mapping[str, Json]) -> bool:
    """Whether a call whose last line is of this kind has a result, and so a receipt."""
    return kind == "tool_finished" or (kind == "tool_confirmed" and said.get("outcome") == "finished")


_MAY_HAVE_ONE = frozenset({"tool_finished", "tool_requested", "tool_started", "tool_unknown"})
"""Last kinds of calls that may have a receipt; all but the first lack their end: the run was interrupted."""


def _receipt(found: Found, name: str, call: tuple[str, Line, Mapping[str, Json]] | None) -> LedgerFault | None:
    file = f"{RECEIPTS}/{name}"
    if call is None:
        return LedgerFault(guard="receipts", said="no tool call has this receipt", file=file)
    call_id, line, said = call
    kind = str(line["kind"])
    place: dict[str, Any] = {"file": file, "sequence": line["seq"], "kind": kind, "guard": "receipts"}
    if kind not in _MAY_HAVE_ONE and not _went_well(kind, said):
        return LedgerFault(said="its call has no receipt: it did not finish", **place)
    data = found.folder.receipts[name]
    if "receipt_sha256" in said and said["receipt_sha256"] != digest_bytes(data):
        return LedgerFault(said="it is not the receipt whose digest the event holds", **place)
    try:
        receipt = read_receipt(data, found.version)
    except TermFault as wrong:
        return LedgerFault(said=str(wrong), newer=wrong.newer, **place)
    agreed = {"call_id": call_id, "run_id": line["run_id"], "tool": said.get("tool")}
    agreed |= {"arguments_digest": said.get("input_digest"), "idempotency_key": said.get("idempotency_key")}
    if _went_well(kind, said):
        agreed |= {"result_digest": said.get("output_digest"), "external_id": said.get("external_id")}
    for member, wanted in agreed.items():
        if receipt.get(member) != wanted and not (found.version == 0 and (wanted is None or member not in receipt)):
            return LedgerFault(said=f"its {member} is not the one of the event", **place)
    return None


# --- digests and chain ------------------------------------------------------------------------------------------------


def _budget_digest(found: Found) -> LedgerFault | None:
    return _term(found, BUDGET, "budget", found.folder.budget)


def _contract_digest(found: Found) -> LedgerFault | None:
    if found.folder.contract is None:
        if found.version:
            return LedgerFault(guard="contract_digest", said="there is no such file", file=CONTRACT)
        return None
    return _term(found, CONTRACT, "contract", found.folder.contract)


def _term(found: Found, file: str, name: str, data: bytes) -> LedgerFault | None:
    guard = f"{name}_digest"
    payload = found.lines[0]["payload"]
    assert isinstance(payload, dict)
    if (found.version or f"{name}_sha256" in payload) and payload.get(f"{name}_sha256") != digest_bytes(data):
        return LedgerFault(guard=guard, said=f"it is not the {name} whose digest run_started holds", file=file)
    try:
        if name == "budget":
            found.budget = read_budget(data, found.version)
        else:
            found.contract = read_contract(data, found.version)
    except TermFault as wrong:
        return LedgerFault(guard=guard, said=str(wrong), file=file, newer=wrong.newer)
    return None


def _chain(found: Found) -> LedgerFault | None:
    before = GENESIS
    for line in found.lines:
        if line["prev_hash"] != before:
            return found.at(line, "chain", "prev_hash does not point at the event before it")
        envelope = line.copy()
        del envelope["prev_hash"], envelope["hash"]
        before = link_bytes(before, sealed_form(envelope))
        if line["hash"] != before:
            return found.at(line, "chain", "the event is not what was sealed")
    return None


def _checkpoint(found: Found) -> LedgerFault | None:
    folder = found.folder
    if folder.checkpoint is None:
        return LedgerFault(guard="checkpoint", said="there is no such file", file=CHECKPOINT)
    try:
        said = read_checkpoint(folder.checkpoint, found.version)
    except TermFault as wrong:
        return LedgerFault(guard="checkpoint", said=str(wrong), file=CHECKPOINT, newer=wrong.newer)
    bodies = digest_parts(line + b"\n" for line in folder.bodies()) if folder.has_bodies else None
    actual: dict[str, Json] = {
        "run_id": found.lines[0]["run_id"],
        "events": len(found.lines),
        "head": found.lines[-1]["hash"],
        "events_sha256": digest_bytes(folder.events),
        "receipts_sha256": receipts_digest(folder.receipts),
        "budget_sha256": digest_bytes(folder.budget),
        "contract_sha256": digest_bytes(folder.contract or b""),
        "bodies_sha256": bodies,
    }
    for name, value in actual.items():
        if said[name] != value or type(said[name]) is not type(value):
            return LedgerFault(guard="checkpoint", said=f"its {name} is not that of the folder", file=CHECKPOINT)
    found.checkpoint = said
    return None


def _signature(found: Found) -> LedgerFault | None:
    if found.trust is None:
        return None
    key, signature = found.checkpoint.get("key_id"), found.checkpoint.get("signature")
    if not isinstance(key, str) or not isinstance(signature, str):
        said = "it is not signed, and a public key was given"
    elif not found.trust.holds(key):
        said = f"it was signed by another key ({key[:12]})"
    elif not found.trust.signed(key, signed_bytes(found.checkpoint), bytes.fromhex(signature)):
        said = "the signature does not fit: this is not what was signed"
    else:
        return None
    return LedgerFault(guard="signature", said=said, file=CHECKPOINT)


def _anchor(found: Found) -> LedgerFault | None:
    if found.anchor is None:
        return None
    number, head = found.anchor
    if number > len(found.lines):
        said = f"the anchor knows {number} events, {len(found.lines)} are there"
        return LedgerFault(guard="anchor", said=said)
    at = found.lines[number - 1].get("hash") if number else GENESIS
    if at != head:
        return found.at(found.lines[max(number - 1, 0)], "anchor", "it is not the event that the anchor knows")
    return None


_BODY, _VALUE = b'{"body":"', b'","value":'
_STARTS = len(_BODY) + 64 + len(_VALUE)


def _bodies(found: Found) -> LedgerFault | None:
    if not found.folder.has_bodies:
        return None
    held: set[str] = set()
    needed: set[str] = set()
    for number, line in enumerate(found.folder.bodies(), 1):
        digest, data = line[len(_BODY) : len(_BODY) + 64].decode("ascii", "replace"), line[_STARTS:-1]
        if line[: len(_BODY)] != _BODY or line[_STARTS - len(_VALUE) : _STARTS] != _VALUE or line[-1:] != b"}":
            said = "no line of a body"
        elif digest in held:
            said = f"body {digest[:12]} comes twice"
        elif digest_bytes(data) != digest:
            said = f"body {digest[:12]} does not fit its digest"
        elif (parts := _needs(data)) is None:
            said = f"body {digest[:12]} is not what a recorder writes"
        else:
            held.add(digest)
            needed.update(parts)
            continue
        return LedgerFault(guard="bodies", said=said, file=BODIES, line=number)
    return _bodies_named(found, held, needed)


def _needs(data: bytes) -> tuple[str, ...] | None:
    try:
        return needs(data)
    except ValueError:
        return None


def _bodies_named(found: Found, held: set[str], needed: set[str]) -> LedgerFault | None:
    """Whether every body that an event or another body needs is there, unless the events say that some are gone."""
    excused = any(
        line["kind"] == "run_erased" or (isinstance(p := line["payload"], dict) and p.get("coverage") == "lossy")
        for line in found.lines
    )
    for line in found.lines:
        missing = named_bodies(line) - held
        found.missing += len(missing)
        if missing and not excused:
            return found.at(line, "bodies", f"body {min(missing)[:12]} is not in {BODIES}")
    lost = needed - held
    found.held, found.missing = len(held), found.missing + len(lost)
    if lost and not excused:
        return LedgerFault(guard="bodies", said=f"body {min(lost)[:12]} is needed by another", file=BODIES)
    return None


def named_bodies(line: Line) -> set[str]:
    """Digests of the bodies that a line names."""
    payload = line["payload"]
    assert isinstance(payload, dict)
    more = payload.get("bodies")
    named = [payload.get("input_digest"), payload.get("output_digest")]
    named += list(more.values()) if isinstance(more, dict) else []
    return {one for one in named if isinstance(one, str)}


# --- what follows from the lines --------------------------------------------------------------------------------------


def _folded(found: Found) -> Mapping[str, LedgerFault]:
    """The first fault of each of the guards below, from one fold over all lines."""
    if found.reducer is not None:
        return found.derived
    reducer = found.reducer = Reducer(found.budget, found.contract)
    first = found.derived
    for line in found.lines:
        state = reducer.state
        used_up = reducer.used_up
        reducer.add(line)
        limit = reducer.passed_limit
        if limit is not None and "budget" not in first:
            said = f"{limit} is {getattr(found.budget, limit)}, and this is beyond it"
            first["budget"] = found.at(line, "budget", said)
        if line["kind"] in _DECIDES and "authorisation" not in first:
            said = _unauthorised(found, line, used_up)
            if said is not None:
                first["authorisation"] = found.at(line, "authorisation", said)
        if reducer.refused is not None and "stop" not in first:
            first["stop"] = found.at(line, "stop", f"the run is {state}: {line['kind']} must not follow")
        if line["kind"] == "state_changed" and "state" not in first:
            said = _contradicted(reducer, line)
            if said is not None:
                first["state"] = found.at(line, "state", said)
    return first


_DECIDES = frozenset({"tool_allowed", "tool_denied", "check_finished"})


def _unauthorised(found: Found, line: Line, used_up: bool) -> str | None:
    if found.folder.contract is None:
        return None  # only a plain ledger has none; then nothing says what was allowed
    contract, payload = found.contract, line["payload"]
    assert isinstance(payload, dict)
    if line["kind"] == "check_finished":
        unknown = found.version and text_of(payload.get("name")) not in (contract.checks or {})
        return "the contract has no such check" if unknown else None
    tool = text_of(payload.get("tool"))
    if tool in contract.asked:
        return None
    if line["kind"] == "tool_allowed":
        return None if tool in contract.allowed else f"the contract does not allow {tool[:80]}"
    denied = tool in contract.allowed and not used_up
    return f"the contract allows {tool[:80]}, and the budget was not used up" if denied else None


def _contradicted(reducer: Reducer, line: Line) -> str | None:
    payload = line["payload"]
    assert isinstance(payload, dict)
    if "state" not in payload:
        return None
    claimed = text_of(payload["state"])[:40]
    if claimed not in STATES:
        return "it names no state of a run"
    return None if reducer.claims(claimed) else f"it says {claimed}; the events give {reducer.state}"


def _derived(name: str) -> Check:
    def check(found: Found) -> LedgerFault | None:
        return _folded(found).get(name)

    return check


GUARDS: Sequence[Guard] = (
    Guard("json", "every line is strict JSON in UTF-8 and ends with a line break", _json),
    Guard("schema_version", "every line has the version whose rules hold", _schema_version),
    Guard("fields", "every line has the fields of that version, and no others", _fields),
    Guard("run_id", "all lines are of one run", _run_id),
    Guard("sequence", "numbers go from 1 to n without gap or repeat", _sequence),
    Guard("kind", "every kind is known", _kind),
    Guard("payload", "every payload has what its kind needs", _payload),
    Guard("lifecycle", "nothing ends that did not begin, nothing begins twice, no tool starts unallowed", _lifecycle),
    Guard("receipts", "every finished tool has its receipt, every receipt its call, and they agree", _receipts),
    Guard("budget_digest", "the budget is the one that the run was started with", _budget_digest),
    Guard("contract_digest", "the contract is the one that the run was started with", _contract_digest),
    Guard("chain", "every line is linked to the one before it, as it was sealed", _chain),
    Guard("checkpoint", "number of events, head and files are those of the checkpoint", _checkpoint),
    Guard("signature", "somebody whose key is known signed the checkpoint (`--public-key`)", _signature),
    Guard("anchor", "the end is where somebody else knows it to be (`--anchor`)", _anchor),
    Guard("bodies", "every value fits its digest, and none is missing", _bodies),
    Guard("budget", "no limit of the budget was passed", _derived("budget")),
    Guard("authorisation", "every decision about a tool follows from contract and budget", _derived("authorisation")),
    Guard("stop", "the run went on, and ended, where it had to", _derived("stop")),
    Guard("state", "every recorded state is the derived one", _derived("state")),
)
"""All checks, in their order. `layout` comes before them: it is made while the folder is read."""

RULES: Mapping[int, frozenset[str]] = {
    0: frozenset(guard.name for guard in GUARDS) - {"chain", "checkpoint", "anchor", "bodies"},
    LEDGER_VERSION: frozenset(guard.name for guard in GUARDS),
}
"""Names of the checks by version of the rules."""


def guards_of(version: int) -> Iterator[Guard]:
    """The checks of a version, in order."""
    return (guard for guard in GUARDS if guard.name in RULES[version])


def first_fault(found: Found) -> LedgerFault | None:
    """Makes all checks; what they read on the way stays in `found`."""
    for guard in guards_of(found.version):
        fault = guard.check(found)
        if fault is not None:
            return fault
    return None
