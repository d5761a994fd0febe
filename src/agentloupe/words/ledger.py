"""The ledger: a run as a folder of files, and the one table that ties its kinds to the types of events.

    events.jsonl             one line an event, chained
    receipts/<call_id>.json  durable evidence of what one tool call came to
    budget.json              how much the run might use
    contract.json            its goal, the tools it might use, the checks that it had to pass
    checkpoint.json          number, head and digests of all of it
    bodies.jsonl             the values (may be left out)
    replay_report.json       what a replay of the folder found; no evidence
    migration_report.json    of a ledger that was made from a plain one: both readings side by side

`line_of` and `envelope_of` are inverse to each other for every event that a store holds. See docs/reference/ledger.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote

from agentloupe.words.call import NO_ATTRS
from agentloupe.words.canonical import Json, canonical, digest_bytes, dumps
from agentloupe.words.effects import INTERRUPTED, LIFE
from agentloupe.words.errors import Corrupt, LoupeError, VersionUnknown
from agentloupe.words.event import Event, Said
from agentloupe.words.seal import link_bytes, sealed_form

__all__ = [
    "ARTEFACTS",
    "BODIES",
    "BUDGET",
    "CHECKPOINT",
    "CONTRACT",
    "EVENTS",
    "INTERRUPTED",
    "KINDS",
    "LARGEST_RECEIPT",
    "LEDGER_VERSION",
    "MIGRATION",
    "RECEIPTS",
    "REPORT",
    "ROWS",
    "STATES",
    "LedgerFault",
    "Row",
    "envelope_of",
    "error_of",
    "kind_of",
    "left_over",
    "line_of",
    "line_text",
    "linked",
    "receipt_name",
]

LEDGER_VERSION: Final = 1
"""`schema_version` of the lines and files of a ledger. Version 0 is the plain form: no version, no chain, no digests."""

LARGEST_RECEIPT: Final = 1 << 20
"""Bytes that readers take a receipt with, and writers therefore make one with."""

EVENTS, BUDGET, CONTRACT, CHECKPOINT, BODIES, REPORT, MIGRATION, RECEIPTS = (
    "events.jsonl",
    "budget.json",
    "contract.json",
    "checkpoint.json",
    "bodies.jsonl",
    "replay_report.json",
    "migration_report.json",
    "receipts",
)
ARTEFACTS: Final = (EVENTS, BUDGET, CONTRACT, CHECKPOINT, BODIES, REPORT, MIGRATION)
"""The files that may lie in the folder, beside the folder `receipts`."""


def left_over(name: str) -> bool:
    """Whether a file of the folder is a report that was being written when its replay was killed. It is never read."""
    return name.startswith(f".{REPORT}.") and name.endswith(".part")


STATES: Final = (
    *("created", "running", "waiting", "retrying", "succeeded"),
    *("failed", "denied", "exhausted", "interrupted"),
)
"""What a run can be in, as derived from its events, budget and contract."""


# --- the table --------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A kind of the ledger.

    Attributes:
        kind: its name in a line.
        type: the type of the event that it is.
        after: kinds of the same call that it may follow, `None` is the beginning; empty: it belongs to no call. Of a tool
            stages of `words.effects.LIFE`, with the kinds' names.
        needs: what its payload must hold (in a sealed ledger).
        says: what it means.
    """

    kind: str
    type: str
    after: tuple[str | None, ...]
    needs: tuple[str, ...]
    says: str

    @property
    def of_tool(self) -> bool:
        """Whether its payload says `tool` for the name of the call."""
        return self.type.startswith("tool.")


_ONE: Final = (None,)
_ASKED: Final = ("model_requested", "model_opened", "model_streamed")
_TOOL: Final = ("call_id", "tool")


def _tool(type: str, needs: tuple[str, ...], says: str) -> Row:
    stages = tuple(None if stage is None else stage.replace(".", "_") for stage in LIFE[type])
    return Row(type.replace(".", "_"), type, stages, needs, says)


ROWS: Final[tuple[Row, ...]] = (
    Row("run_started", "run.started", (), ("budget_sha256", "contract_sha256"), "the run begins"),
    Row("run_finished", "run.finished", (), ("status",), "it has ended"),
    Row("run_erased", "run.erased", (), (), "its values were deleted"),
    Row("attempt_started", "attempt.started", (), ("attempt",), "another attempt begins"),
    Row("model_requested", "model.requested", _ONE, ("call_id",), "a model is asked"),
    Row("model_opened", "model.opened", _ASKED, ("call_id",), "its answer begins to come"),
    Row("model_streamed", "model.streamed", _ASKED[1:], ("call_id",), "pieces of it"),
    Row("model_proposed", "model.responded", (None, *_ASKED), (), "it answered, and asks for tools"),
    Row("model_finished", "model.responded", (None, *_ASKED), (), "it answered, and asks for none"),
    Row("model_failed", "model.failed", _ASKED, ("call_id",), "it gave no answer"),
    _tool("tool.allowed", (*_TOOL, "input_digest"), "a tool may run"),
    _tool("tool.denied", _TOOL, "a tool may not run"),
    _tool("tool.requested", _TOOL, "the durable intent of a write"),
    _tool("tool.started", _TOOL, "it runs"),
    _tool(
        "tool.finished",
        (*_TOOL, "output_digest", "receipt_sha256"),
        "it has ended well; its receipt was in its place before",
    ),
    _tool("tool.failed", _TOOL, "it ended with an error"),
    _tool("tool.unknown", _TOOL, "nobody saw its end"),
    _tool(
        "tool.confirmed",
        (*_TOOL, "outcome", "how"),
        "what became of it: `outcome` finished, failed or not_done, found out by `how` lookup or person; of `finished` there is a receipt",
    ),
    Row("retrieval_finished", "retrieval.finished", _ONE, ("call_id",), "documents were found"),
    Row("retrieval_failed", "retrieval.failed", _ONE, ("call_id",), "the search failed"),
    Row("call_opened", "call.opened", _ONE, ("call_id",), "a streamed call begins to be answered"),
    Row("call_streamed", "call.streamed", ("call_opened", "call_streamed"), ("call_id",), "pieces of it"),
    Row("call_finished", "call.finished", (None, "call_opened", "call_streamed"), ("call_id",), "another call ended"),
    Row("call_failed", "call.failed", (None, "call_opened", "call_streamed"), ("call_id",), "another call failed"),
    Row("clock_read", "clock.read", _ONE, ("call_id",), "the clock was read"),
    Row("random_drawn", "random.drawn", _ONE, ("call_id",), "a random number was drawn"),
    Row("id_minted", "id.minted", _ONE, ("call_id",), "an id was made"),
    Row("env_read", "env.read", _ONE, ("call_id",), "the environment was read"),
    Row("check_finished", "check.finished", _ONE, ("name", "passed"), "a check passed, failed, or waits for a person"),
    Row("state_changed", "state.changed", _ONE, (), "`state`: the run's own claim; `name`: a state of the program"),
    Row("task_forked", "task.forked", (), (), "a task or thread makes its first call"),
    Row("task_joined", "task.joined", (), (), "a thread has ended"),
    Row("task_cancelled", "task.cancelled", (), (), "a call was cancelled after its end"),
    Row("timer_fired", "timer.fired", (), (), "a sleep or timeout ran out"),
    Row("schedule_marked", "schedule.marked", (), (), "a mark of the schedule"),
    Row("span_started", "span.started", _ONE, ("call_id",), "a nested agent begins"),
    Row("span_finished", "span.finished", ("span_started",), ("call_id",), "it has ended"),
)
"""Every kind, once. The two kinds of `model.responded` are told apart by the answer's finish reason."""

KINDS: Final[Mapping[str, Row]] = {row.kind: row for row in ROWS}
_KIND_OF_TYPE: Final[Mapping[str, str]] = {row.type: row.kind for row in ROWS}
_ASKS_FOR_TOOLS: Final = frozenset({"tool_calls", "tool_use", "function_call"})
_ANSWERED: Final = "model.responded"


def kind_of(type: str, attrs: Mapping[str, Json]) -> str:
    """The kind of an event, from its type and its facts. Raises `KeyError` for a type that no event has."""
    if type == _ANSWERED:
        reason = attrs.get("finish_reason")
        return "model_proposed" if isinstance(reason, str) and reason in _ASKS_FOR_TOOLS else "model_finished"
    return _KIND_OF_TYPE[type]


_IN_LINE: Final = frozenset({"run_id", "sequence", "type", "recorded_at", "parent_seq"})
"""Fields of an event that stand in the line itself; all others stand in its payload."""
_IN_PAYLOAD: Final = frozenset(Said.__annotations__) - _IN_LINE - {"attrs"}
_ADDED: Final = frozenset({"budget_sha256", "contract_sha256", "receipt_sha256"})
"""What a payload holds beyond the event: it can be told again from the folder."""
_RESERVED: Final = _IN_PAYLOAD | _IN_LINE | _ADDED | {"attrs", "tool"}


def line_of(event: Event, added: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """The line of an event, without the two hashes. `added`: digests of the folder's files (see `_ADDED`).

    Facts (`attrs`) stand in the payload beside the fields; those that are called like a field stand in its `attrs`.
    """
    kind = kind_of(event.type, event.attrs)
    payload: dict[str, Json] = {}
    said = event.as_sealed
    for name, value in said.items():
        if name in _IN_PAYLOAD:
            payload["tool" if name == "name" and KINDS[kind].of_tool else name] = value
    apart: dict[str, Json] = {}
    for name, value in said.get("attrs", NO_ATTRS).items():
        (apart if name in _RESERVED else payload)[name] = value
    if apart:
        payload["attrs"] = apart
    payload.update(added or {})
    line: dict[str, Json] = {"schema_version": LEDGER_VERSION, "seq": event.sequence, "run_id": event.run_id}
    line |= {"kind": kind, "recorded_at": event.recorded_at}
    if event.parent_seq is not None:
        line["parent_seq"] = event.parent_seq
    return {**line, "payload": payload}


def envelope_of(line: Mapping[str, Json]) -> dict[str, Json]:
    """The envelope of the event that a line was made of.

    Raises:
        Corrupt: the kind is not the one that such an event has (reason `kind`).
    """
    row = KINDS[str(line["kind"])]
    envelope: dict[str, Json] = {"run_id": line["run_id"], "sequence": line["seq"], "type": row.type}
    envelope["recorded_at"] = line["recorded_at"]
    if "parent_seq" in line:
        envelope["parent_seq"] = line["parent_seq"]
    attrs: dict[str, Json] = {}
    payload = line["payload"]
    assert isinstance(payload, dict)
    for name, value in payload.items():
        if name == "attrs" and isinstance(value, dict):
            attrs.update(value)
        elif name == "tool" and row.of_tool:
            envelope["name"] = value
        elif name in _IN_PAYLOAD:
            envelope[name] = value
        elif name not in _ADDED:
            attrs[name] = value
    if row.kind == "model_proposed":
        attrs.setdefault("finish_reason", "tool_calls")  # of a ledger that no store wrote
    if attrs:
        envelope["attrs"] = attrs
    if kind_of(row.type, attrs) != row.kind:
        raise Corrupt(f"sequence {line['seq']}: {row.kind} is not the kind of its event", reason="kind")
    return envelope


def linked(line: Mapping[str, Json], before: str) -> dict[str, Json]:
    """A line with its two hashes: `hash = SHA-256(prev_hash + canonical(line without the two))`."""
    return {**line, "prev_hash": before, "hash": link_bytes(before, sealed_form(line))}


def line_text(line: Mapping[str, Json]) -> bytes:
    """The text of a line, without a line break: the same for the same line, whatever order its payload came in."""
    payload, last = line["payload"], ("payload", "prev_hash", "hash")
    begins = dumps({name: value for name, value in line.items() if name not in last})
    ends = "".join(f',"{name}":"{line[name]}"' for name in last[1:] if name in line)
    return b'%s,"payload":%s%s}' % (begins[:-1], canonical(payload), ends.encode())


_LONGEST_NAME: Final = 200


def receipt_name(call_id: str) -> str:
    """File name of a call's receipt: `<call_id>.json`. What no file can be called is escaped as in a URL."""
    name = quote(call_id, safe="~+@=,", errors="surrogatepass")
    name = re.sub(r"^\.", "%2E", name)
    if len(name) > _LONGEST_NAME or not name:
        name = f"sha256-{digest_bytes(call_id.encode('utf-8', 'surrogatepass'))}"
    return f"{name}.json"


# --- faults -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFault:
    """The first thing that is wrong with a ledger.

    Attributes:
        guard: name of the check that found it.
        said: what is wrong, without any value of a user.
        file: name of the artefact in the folder.
        line, sequence, kind: of the event, as far as known; lines from 1.
        byte: offset in the file where the damage begins, for damaged text.
        newer: it is not damaged, but newer than this reader, or of a kind that it does not know.
    """

    guard: str
    said: str
    file: str = EVENTS
    line: int | None = None
    sequence: int | None = None
    kind: str | None = None
    byte: int | None = None
    newer: bool = False

    def __str__(self) -> str:
        places = (
            f"line {self.line}" if self.line is not None else "",
            f"sequence {self.sequence}" if self.sequence is not None else "",
            f"kind {self.kind}" if self.kind is not None else "",
            f"byte {self.byte}" if self.byte is not None else "",
        )
        return f"{', '.join((self.file, *filter(None, places)))}: {self.said} [{self.guard}]"

    def as_json(self) -> dict[str, Json]:
        """The fault for machines."""
        places: dict[str, Json] = {"file": self.file, "line": self.line, "sequence": self.sequence, "kind": self.kind}
        return {"guard": self.guard, "said": self.said, **places, "byte": self.byte}


def error_of(fault: LedgerFault, origin: str) -> LoupeError:
    """The fault as an error: damaged evidence, or something newer than this reader."""
    text = f"{origin}: {fault}"
    if fault.newer:
        return VersionUnknown(text, hint="upgrade agent-loupe", reason=fault.guard)
    return Corrupt(text, reason=fault.guard)
