"""Where a fork leaves its parent: the step, the events before it, and whether a fork can start there at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agentloupe.engine.tape import RecordedCall, Tape, read_tape
from agentloupe.ports.ambient import new_event_id
from agentloupe.ports.recording import Recording
from agentloupe.words.call import NO_ATTRS
from agentloupe.words.canonical import Json
from agentloupe.words.errors import Damaged, ForkRefused
from agentloupe.words.event import FINAL_TYPES, Draft, Event
from agentloupe.words.keeping import keeps_digests, only_digests, without_answers

__all__ = ["Cut", "Prefix", "copy_prefix", "cut_at", "cut_at_start"]

_DRAFT_FIELDS = tuple(Draft.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Prefix:
    """The kept events of a parent, copied for a new run.

    Attributes:
        drafts: in recorded order, with their original times.
        calls: how many calls they hold.
        model_calls: how many of them are model calls.
        lane_calls: how many calls the main lane `0` has made.
    """

    drafts: tuple[Draft, ...]
    calls: int
    model_calls: int
    lane_calls: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A place to fork from.

    Attributes:
        tape: of the parent.
        step: index of the step, or `None`: from the start.
        call: the model call at the step, or `None` (from the start).
        request: its recorded request, or `None`.
        sequence: the first event that is not kept.
        head: the parent's chain hash before that event.
        first_idx: index of the first step that is a call (1 where the parent has a root step).
    """

    tape: Tape
    step: int | None
    call: RecordedCall | None
    request: dict[str, Json] | None
    sequence: int
    head: str
    first_idx: int

    @property
    def recording(self) -> Recording:
        """The parent's recording."""
        return self.tape.recording

    def idx_of(self, call_id: str) -> int | None:
        """Index of the step of a call of the parent."""
        return index_of(self.tape, self.first_idx).get(call_id)

    def kept(self) -> list[RecordedCall]:
        """The calls that began before the cut, in order."""
        return [call for call in self.tape.calls if call.first_seq < self.sequence]


def index_of(tape: Tape, first_idx: int) -> dict[str, int]:
    """Call id -> index of its step."""
    return {call.call_id: first_idx + i for i, call in enumerate(tape.calls)}


def cut_at(recording: Recording, step: int) -> Cut:
    """The cut before a model step.

    Raises:
        ForkRefused: `reason` is `no_step`, `not_llm`, `cut_request` or `body_deleted`.
        Corrupt: the events are not those of one honest run.
    """
    tape = _kept_tape(recording)
    first_idx = 1 if tape.started.attrs.get("root") else 0
    position = step - first_idx
    where = f"step {step} of {recording.run_id}"
    if step < 0 or position >= len(tape.calls):
        last = len(tape.calls) + first_idx - 1
        hint = f"it has steps 0 to {last}" if last >= 0 else "it has no steps"
        raise ForkRefused(f"{where} is not there", hint=hint, reason="no_step")
    models = [i + first_idx for i, call in enumerate(tape.calls) if call.kind == "llm"]
    if position < 0 or tape.calls[position].kind != "llm":
        kind = "agent" if position < 0 else tape.calls[position].kind
        raise ForkRefused(
            f"{where} is of kind {kind}: a fork starts at a model step", hint=_near(models, step), reason="not_llm"
        )
    call = tape.calls[position]
    why = call.attrs.get("partial_step") or call.attrs.get("partial")
    if why:
        told = f" ({why})" if isinstance(why, str) else ""
        raise ForkRefused(f"{where}: the stored request is not complete{told}", reason="cut_request")
    return _cut(tape, step, call, _request(recording, call, where), first_idx)


def cut_at_start(recording: Recording) -> Cut:
    """The cut before everything: the agent anew from its recorded input. Raises like `cut_at`."""
    tape = _kept_tape(recording)
    first_idx = 1 if tape.started.attrs.get("root") else 0
    head = tape.started
    return Cut(tape, None, None, None, head.sequence + 1, head.hash, first_idx)


def _kept_tape(recording: Recording) -> Tape:
    """The tape of a run that nobody deleted: what its forks still hold of its content is theirs."""
    if any(event.type == "run.erased" for event in recording.events):
        raise ForkRefused(f"run {recording.run_id} was deleted", reason="body_deleted")
    events = recording.events
    if keeps_digests(events):
        why = f"run {recording.run_id}: {only_digests(events)}"
        raise ForkRefused(why, hint=without_answers(events), reason="digest_only")
    return read_tape(recording)


def _near(models: list[int], step: int) -> str:
    if not models:
        return "it has no model step"
    before = [idx for idx in models if idx < step]
    after = [idx for idx in models if idx > step]
    near = [*before[-1:], *after[:1]]
    return f"the nearest {'is' if len(near) == 1 else 'are'} {', '.join(map(str, near))}"


def _request(recording: Recording, call: RecordedCall, where: str) -> dict[str, Json]:
    if call.input_digest is None:
        raise ForkRefused(f"{where}: its request was not recorded", reason="cut_request")
    try:
        request = recording.body(call.input_digest)
    except Damaged as missing:
        if missing.reason != "body_missing":
            raise
        raise ForkRefused(f"{where}: its request was deleted", reason="body_deleted") from missing
    history = request if isinstance(request, dict) else {}
    if not any(name in history for name in ("messages", "input", "contents")):
        raise ForkRefused(f"{where}: the stored request has no messages", reason="cut_request")
    return history


def _cut(tape: Tape, step: int, call: RecordedCall, request: dict[str, Json], first_idx: int) -> Cut:
    events = tape.recording.events
    before = events[call.first_seq - events[0].sequence - 1]
    assert before.sequence == call.first_seq - 1, "numbers have no gap"
    return Cut(tape, step, call, request, call.first_seq, before.hash, first_idx)


# --- copying ----------------------------------------------------------------------------------------------------------


def copy_prefix(
    cut: Cut, *, trace_id: str, root_span: str, end_agents: bool, amended: Mapping[str, str] | None = None
) -> Prefix:
    """The kept events as drafts of a new run: new event ids, original times, `copied_hash`, source `recorded`.

    Calls that are open at the cut keep their recorded outcome.

    Args:
        cut: where.
        trace_id: of the new run.
        root_span: span of the new run itself.
        end_agents: also nested agents that are open at the cut keep their recorded end. (The code that runs again ends
            them itself.)
        amended: call id -> digest of another result, which an override gives to a kept tool call.
    """
    kept = cut.kept()
    chosen = _chosen(cut, kept, end_agents)
    numbers = {event.sequence: i for i, event in enumerate(chosen, 2)}
    numbers[cut.tape.started.sequence] = 1
    spans = {cut.tape.started.span_id: root_span}
    drafts = tuple(_copy(cut, event, numbers, spans, trace_id) for event in chosen)
    if amended:
        drafts = tuple(_amended(draft, amended) for draft in drafts)
    return Prefix(
        drafts=drafts,
        calls=len(kept),
        model_calls=sum(call.kind == "llm" for call in kept),
        lane_calls=max((call.n + 1 for call in kept if call.lane == "0"), default=0),
    )


def _chosen(cut: Cut, kept: list[RecordedCall], end_agents: bool) -> list[Event]:
    open_ids = {call.call_id for call in kept if call.last_seq >= cut.sequence}
    if not end_agents:
        open_ids -= {call.call_id for call in kept if call.kind == "agent"}
    chosen: list[Event] = []
    for event in cut.recording.events[1:]:
        if event.type in ("run.finished", "run.erased"):
            continue
        if event.sequence < cut.sequence or event.call_id in open_ids:
            chosen.append(event)
    return chosen


def _copy(cut: Cut, event: Event, numbers: Mapping[int, int], spans: Mapping[str | None, str], trace_id: str) -> Draft:
    fields = {name: getattr(event, name) for name in _DRAFT_FIELDS}
    parent_span = event.parent_span_id
    attrs = dict(event.attrs)
    if event.type in FINAL_TYPES:
        attrs.setdefault("origin", f"{cut.recording.run_id}/{event.call_id}")
        if event.source not in (None, "recorded"):
            attrs.setdefault("copied_source", event.source)
    fields |= {
        "event_id": new_event_id(),
        "copied_hash": event.hash,
        "source": "recorded",
        "owner_epoch": 1,
        "trace_id": trace_id,
        "span_id": spans.get(event.span_id, event.span_id),
        "parent_span_id": spans.get(parent_span, parent_span),
        "parent_seq": numbers.get(event.parent_seq) if event.parent_seq is not None else None,
        "attrs": attrs or NO_ATTRS,
    }
    return Draft(**fields)


def _amended(draft: Draft, amended: Mapping[str, str]) -> Draft:
    """The end of a kept tool call with the result that an override gives it: nobody's recording any more."""
    result = amended.get(draft.call_id or "")
    if result is None or draft.type not in ("tool.finished", "tool.failed"):
        return draft
    kept = {name: value for name, value in draft.attrs.items() if name not in ("error_class", "parse_error", "origin")}
    attrs: dict[str, Json] = {**kept, "amended": True, "copied_source": "stub"}
    return replace(draft, type="tool.finished", output_digest=result, attrs=attrs)
