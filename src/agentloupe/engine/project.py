"""From events to what people see: one pure function, and its incremental form for the append transaction.

    Recording = Run + Event[]   -- project() -->   Trace = Run + Step[]

The projection comes from events alone, never from bodies; `load_steps` fills those in afterwards. A fork's kept prefix
is shown as if it had just happened: its times are moved so that it ends where the fork begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime, timedelta
from operator import attrgetter, itemgetter
from typing import Any, cast, get_args

from agentloupe.ports.codecs import decode_for_reading, error_line
from agentloupe.ports.protocols import Delta
from agentloupe.ports.recording import Recording
from agentloupe.ports.streams import pieces_of
from agentloupe.words.call import NO_ATTRS, Attrs, Kind, Source
from agentloupe.words.canonical import Json
from agentloupe.words.dialects import message_in
from agentloupe.words.effects import FROM_OUTSIDE, NOT_DONE, OF_AN_END, is_open, next_stage, stands_in
from agentloupe.words.errors import Corrupt, Damaged
from agentloupe.words.event import FINAL_TYPES, Event
from agentloupe.words.exchange import answer_in
from agentloupe.words.keeping import DIGEST_OF, DIGESTS, KEPT, VALUES_DROPPED, digests_kept, dropped_note
from agentloupe.words.quick import maker
from agentloupe.words.run import COUNTED, Counts, Coverage, Engine, Label, Run, RunStatus, coverage_left
from agentloupe.words.step import Step, Trace

__all__ = [
    "ROOT_NAME",
    "Projector",
    "load_step",
    "load_steps",
    "outcome_of",
    "project",
    "shown_tags",
    "stream_of",
]

ROOT_NAME = "agent.run"
"""Name of the root step of a run that has one."""

NOT_REAL: frozenset[str] = frozenset({"miss", "stub", "sandbox", "simulated", "human"})
"""Sources of answers that were neither real nor recorded for that very call."""

_OWN_TAG = re.compile(rf"fork|(?:{'|'.join(COUNTED)}):\d+")
_ALWAYS_TAGGED = ("cassette", "live", "miss")
_OF_ROOT = frozenset({KEPT, f"{DIGEST_OF}output"})
"""Facts of a run's end that are those of its root step."""
_ELSEWHERE = frozenset({"effect", "error_class", "status", "input_tokens", "output_tokens"})
"""Facts of events that a step has fields for."""
_STATUS_OF_TYPE: Mapping[str, str] = {
    "tool.unknown": "unknown",
    "tool.denied": "denied",
    "model.failed": "error",
    "tool.failed": "error",
    "retrieval.failed": "error",
    "call.failed": "error",
}
_STATUS_OF_OUTCOME: Mapping[str, str] = {"finished": "ok", "failed": "error", NOT_DONE: NOT_DONE}
_ENDED = frozenset({"tool.finished", "tool.failed", "tool.denied", "tool.unknown", "tool.confirmed", NOT_DONE})
_GOING_ON = frozenset({"running", "waiting"})
_RUN_STATUSES: frozenset[str] = frozenset(get_args(RunStatus))
_COVERAGES: frozenset[str] = frozenset(get_args(Coverage))
_SOURCES: frozenset[str] = frozenset(get_args(Source))


def project(events: Iterable[Event], run_id: str | None = None) -> Trace:
    """The view of a recording's events, in order. Pure. `run_id` is needed only where there are no events.

    Raises:
        ValueError: no events, and no `run_id`.
    """
    projector: Projector | None = None
    for event in events:
        projector = projector or Projector(event.run_id)
        projector.add(event)
    if projector is None:
        if run_id is None:
            raise ValueError("no events and no run id: nothing to project")
        projector = Projector(run_id)
    delta = projector.take()
    return Trace(delta.run, delta.steps)


def shown_tags(tags: Iterable[str], counts: Counts) -> tuple[str, ...]:
    """Tags of a fork: its parent's without counts and markers, then `fork` and its own counts.

    `cassette`, `live` and `miss` are always there, the others when they are not 0.
    """
    kept = [tag for tag in tags if not _OWN_TAG.fullmatch(tag)]
    numbers = counts.as_dict()
    own = [f"{name}:{n}" for name, n in numbers.items() if n or name in _ALWAYS_TAGGED]
    return tuple(dict.fromkeys((*kept, "fork", *own)))


@dataclass(slots=True)
class _Step:
    """A step as far as it is known."""

    idx: int
    kind: Kind
    name: str
    started_at: str
    first_seq: int
    ended_at: str | None = None
    parent_idx: int | None = None
    status: str = "open"
    error_class: str | None = None
    source: str = "live"
    effect: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    call_id: str | None = None
    lane: str | None = None
    n: int | None = None
    input_key: str | None = None
    input_digest: str | None = None
    output_digest: str | None = None
    attrs: dict[str, Json] = field(default_factory=dict[str, Json])
    partial: str | None = None
    last_seq: int = 0
    copied: bool = False
    end_copied: bool = False
    stage: str | None = None
    open_effect: bool = False
    counted: str | None = None


class _Totals:
    """Sums of tokens; `None` as long as nobody reported any."""

    __slots__ = ("input", "output")

    def __init__(self) -> None:
        self.input: int | None = None
        self.output: int | None = None

    def add(self, input_tokens: int | None, output_tokens: int | None) -> None:
        if input_tokens is not None:
            self.input = (self.input or 0) + input_tokens
        if output_tokens is not None:
            self.output = (self.output or 0) + output_tokens


class Projector:
    """Folds the events of one run. Implements `ports.Fold`."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._steps: list[_Step] = []
        self._dirty: set[int] = set()
        self._by_call: dict[str, int] = {}
        self._by_span: dict[str, int] = {}
        self._orphans: dict[str, list[int]] = {}
        self._root: int | None = None
        self._run: dict[str, Any] = {**_RUN_DEFAULTS, "name": "", "agent": "", "status": "running", "started_at": ""}
        self._coverage_notes: list[str] = []
        self._tags: list[str] = []
        self._counts = dict.fromkeys(COUNTED, 0)
        self._hypothetical_from: int | None = None
        self._whole = _Totals()
        self._new = _Totals()
        self._usage_complete = True
        self._prefix_from: str | None = None
        self._prefix_to: str | None = None
        self._prefix_moved = False

    # --- in -----------------------------------------------------------------------------------------------------------

    def add(self, event: Event) -> None:
        """Takes the next event."""
        handler = _OF_RUN.get(event.type)
        if handler is not None:
            handler(self, event)
        elif event.kind is not None:
            self._of_call(event, event.kind)

    def _run_started(self, event: Event) -> None:
        attrs = event.attrs
        run = self._run
        run["agent"] = event.name or ""
        run["name"] = _text(attrs.get("run_name")) or event.name or ""
        run["started_at"] = event.recorded_at
        run["trace_id"] = event.trace_id
        for name in ("parent_run_id", "arm", "fidelity", "task_id"):
            run[name] = _text(attrs.get(name))
        run["forked_from_step"] = _whole_number(attrs.get("forked_from_step"))
        run["engine"] = cast("Engine", _text(attrs.get("engine")) or "own")
        overrides = attrs.get("overrides")
        run["overrides"] = tuple(_as_override(o) for o in overrides) if isinstance(overrides, list) else ()
        tags = attrs.get("tags")
        self._tags = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
        self._coverage(attrs)
        if attrs.get("root") is True and self._root is None:
            self._root = self._new_step(event, "agent", ROOT_NAME)
            root = self._steps[self._root]
            root.parent_idx = None
            root.input_digest = event.input_digest

    def _run_finished(self, event: Event) -> None:
        status = _text(event.attrs.get("status")) or "ok"
        run = self._run
        run["status"] = status if status in _RUN_STATUSES else "error"
        run["ended_at"] = event.recorded_at
        run["error"] = _error_line(event.attrs)
        self._coverage(event.attrs)
        if self._root is not None:
            root = self._steps[self._root]
            root.status, root.ended_at, root.last_seq = status, event.recorded_at, event.sequence
            root.output_digest = event.output_digest
            root.error_class = _text(event.attrs.get("error_class"))
            root.attrs.update({name: value for name, value in event.attrs.items() if name in _OF_ROOT})
            self._dirty.add(root.idx)

    def _run_erased(self, event: Event) -> None:
        self._run["erased"] = True
        self._run["open_effects"] = 0  # a deleted run asks nobody
        self._run["coverage"] = "limited_replay"
        if self._run["status"] in _GOING_ON:
            self._run["status"] = "interrupted"

    def _coverage(self, attrs: Attrs) -> None:
        coverage = attrs.get("coverage")
        if isinstance(coverage, str) and coverage in _COVERAGES:
            self._run["coverage"] = coverage
        notes = attrs.get("coverage_notes")
        if isinstance(notes, list):
            self._coverage_notes += [n for n in notes if isinstance(n, str) and n not in self._coverage_notes]

    # --- calls --------------------------------------------------------------------------------------------------------

    def _of_call(self, event: Event, kind: Kind) -> None:
        idx = None if event.call_id is None else self._by_call.get(event.call_id)
        if idx is None:
            idx = self._new_step(event, kind, event.name or kind)
        step = self._steps[idx]
        if VALUES_DROPPED in event.attrs and event.copied_hash is None:
            self._run["values_dropped"] += _whole_number(event.attrs[VALUES_DROPPED]) or 0
        if kind == "tool" and not self._lives_on(step, event):
            return
        self._dirty.add(idx)
        if event.type == "tool.confirmed":
            self._settled(step, event)
        else:
            self._merge(step, event)
        if event.type in FINAL_TYPES:
            self._close(step, event)
        if kind == "tool":
            self._count_open(step)
        if event.type == "state.changed" and self._run["status"] in _GOING_ON:
            self._run["status"] = "waiting" if event.name == "waiting" else "running"

    def _lives_on(self, step: _Step, event: Event) -> bool:
        """Takes a tool call on in its life (`words.effects`).

        `False`: it has ended, and takes no second end; the tape says that this is damage.
        """
        stage = next_stage(
            step.stage,
            event.type,
            writes=step.effect == "write",
            stood_in=stands_in(event.source, event.attrs.get("copied_source")),
            outcome=event.attrs.get("outcome"),
        )
        if stage is None and step.stage in _ENDED:
            return False
        if step.stage == NOT_DONE and stage in ("tool.requested", "tool.started"):
            step.status, step.ended_at, step.error_class = "open", None, None
            for name in OF_AN_END:
                step.attrs.pop(name, None)
        step.stage = stage or event.type
        return True

    def _settled(self, step: _Step, event: Event) -> None:
        """Somebody found out what became of an effect. What the program got of it, if anything, stays its outcome."""
        attrs = event.attrs
        step.last_seq = event.sequence
        step.attrs.update({name: value for name, value in attrs.items() if name not in _ELSEWHERE})
        if step.output_digest is None or step.error_class in FROM_OUTSIDE:
            step.output_digest = event.output_digest
            step.ended_at, step.end_copied = event.recorded_at, event.copied_hash is not None
            step.status = _STATUS_OF_OUTCOME.get(str(attrs.get("outcome")), "unknown")
            step.error_class = _text(attrs.get("error_class"))

    def _count_open(self, step: _Step) -> None:
        now = not step.copied and is_open(step.stage, writes=step.effect == "write")
        self._run["open_effects"] += now - step.open_effect
        step.open_effect = now

    def _new_step(self, event: Event, kind: Kind, name: str) -> int:
        idx = len(self._steps)
        step = _Step(idx, kind, name, event.recorded_at, event.sequence)
        step.copied = event.copied_hash is not None
        step.parent_idx = self._parent(event, idx)
        self._steps.append(step)
        self._dirty.add(idx)
        if event.call_id is not None:
            self._by_call[event.call_id] = idx
        if event.span_id is not None:
            self._by_span.setdefault(event.span_id, idx)
            for child in self._orphans.pop(event.span_id, ()):
                if child != idx:
                    self._steps[child].parent_idx = idx
                    self._dirty.add(child)
        return idx

    def _parent(self, event: Event, idx: int) -> int | None:
        """The step around this one; a copied call's unknown span is that of its old run, so the root stands for it."""
        span = event.parent_span_id
        if span is None:
            return self._root
        parent = self._by_span.get(span)
        if parent is None:
            self._orphans.setdefault(span, []).append(idx)
            return self._root
        return parent

    def _merge(self, step: _Step, event: Event) -> None:
        """What every event of a call may add."""
        step.last_seq = event.sequence
        step.call_id, step.lane, step.n = event.call_id, event.lane, event.n
        step.input_key = event.input_key or step.input_key
        step.input_digest = event.input_digest or step.input_digest
        step.output_digest = event.output_digest or step.output_digest
        attrs = event.attrs
        if attrs:
            step.attrs.update({k: v for k, v in attrs.items() if k not in _ELSEWHERE})
            step.effect = _text(attrs.get("effect")) or step.effect
            step.partial = _text(attrs.get("partial_step")) or step.partial
            if step.kind == "llm" and step.model is None:
                step.model = _text(attrs.get("model"))
                if step.model and self._run.get("model") is None:
                    self._run["model"] = step.model
        if event.copied_hash is not None:
            self._copied(step, event)

    def _copied(self, step: _Step, event: Event) -> None:
        step.copied = True
        at = event.recorded_at
        self._prefix_from = min(self._prefix_from or at, at)
        if self._prefix_to is None or at > self._prefix_to:
            self._prefix_to = at
            self._prefix_moved = True

    def _close(self, step: _Step, event: Event) -> None:
        attrs = event.attrs
        step.ended_at, step.end_copied = event.recorded_at, event.copied_hash is not None
        step.status = _text(attrs.get("status")) or _STATUS_OF_TYPE.get(event.type, "ok")
        step.error_class = _text(attrs.get("error_class")) or ("denied" if step.status == "denied" else None)
        if step.first_seq == event.sequence and isinstance(ms := attrs.get("ms"), int | float):
            step.started_at = _moved(event.recorded_at, timedelta(milliseconds=-ms))
        source = "recorded" if event.copied_hash is not None else event.source or "live"
        step.source = source if source in _SOURCES else "live"
        if step.kind == "llm" and event.type == "model.responded":
            self._usage(step, attrs)
        if self._run.get("parent_run_id") is not None:
            self._count(step, attrs)
            self._judge(step, attrs)

    def _usage(self, step: _Step, attrs: Attrs) -> None:
        if step.input_tokens is not None or step.output_tokens is not None:
            return  # a second end of the same call adds nothing
        step.input_tokens = _whole_number(attrs.get("input_tokens"))
        step.output_tokens = _whole_number(attrs.get("output_tokens"))
        if step.input_tokens is None or step.output_tokens is None:
            self._usage_complete = False
        self._whole.add(step.input_tokens, step.output_tokens)
        if not step.copied:
            self._new.add(step.input_tokens, step.output_tokens)

    def _count(self, step: _Step, attrs: Attrs) -> None:
        """Counts a fork's own tool calls by who answered. Malformed arguments reach nobody, so nobody is counted."""
        answered = step.source in self._counts and step.status != "denied" and not attrs.get("parse_error")
        if step.kind != "tool" or step.copied or step.counted is not None or not answered:
            return
        step.counted = step.source
        self._counts[step.source] += 1
        if attrs.get("reused") is True:
            self._counts["reused"] += 1

    def _judge(self, step: _Step, attrs: Attrs) -> None:
        """Whether an answer was real, or recorded for that very call; a copied one says what it was in the parent."""
        was = _text(attrs.get("copied_source")) if step.copied else step.source
        doubtful = was in NOT_REAL or attrs.get("reused") is True or attrs.get("replayed_write") is True
        if doubtful and (self._hypothetical_from is None or step.idx < self._hypothetical_from):
            self._hypothetical_from = step.idx

    # --- out ----------------------------------------------------------------------------------------------------------

    def take(self) -> Delta:
        """The run's row, and the steps that changed since the last `take`."""
        if self._prefix_moved:  # the whole of it, by another amount than before
            self._prefix_moved = False
            self._dirty.update(step.idx for step in self._steps if step.copied)
        shift = self._shift()
        changed = tuple(self._made(self._steps[idx], shift) for idx in sorted(self._dirty))
        self._dirty.clear()
        return Delta(self._made_run(), changed)

    def _shift(self) -> timedelta | None:
        """How far a kept prefix is moved: so that it ends when the fork began."""
        if self._prefix_to is None or not self._run["started_at"]:
            return None
        return datetime.fromisoformat(self._run["started_at"]) - datetime.fromisoformat(self._prefix_to)

    def _made(self, step: _Step, shift: timedelta | None) -> Step:
        started_at, ended_at = step.started_at, step.ended_at
        if shift is not None and step.copied:
            started_at = _moved(started_at, shift)
            if ended_at is not None and step.end_copied:  # what was open at the cut has ended in the new part
                ended_at = _moved(ended_at, shift)
        elif shift is not None and step.idx == self._root and self._prefix_from is not None:
            started_at = min(started_at, _moved(self._prefix_from, shift))
        attrs = dict(step.attrs) if step.attrs else NO_ATTRS
        return _make_step((*_kept(step), self._run_id, started_at, ended_at, attrs, None, None, None, False, None))

    def _made_run(self) -> Run:
        fork = self._run.get("parent_run_id") is not None
        counts = Counts(**self._counts) if fork else _NO_COUNTS
        label: Label | None = None
        if fork:
            label = "faithful" if self._hypothetical_from is None else "hypothetical"
        said: dict[str, Any] = {
            **self._run,
            "id": self._run_id,
            "tags": shown_tags(self._tags, counts) if fork else tuple(self._tags),
            "total_input_tokens": self._whole.input,
            "total_output_tokens": self._whole.output,
            "new_input_tokens": self._new.input,
            "new_output_tokens": self._new.output,
            "usage_complete": self._usage_complete,
            "step_count": len(self._steps),
            "counts": counts,
            "label": label,
            "hypothetical_from": self._hypothetical_from,
            "coverage_notes": tuple(self._coverage_notes),
        }
        if lacking := said["values_dropped"]:  # also where the run has no end that says so
            said["coverage"] = coverage_left(said["coverage"], missing=True)
            said["coverage_notes"] = tuple(dict.fromkeys((*self._coverage_notes, dropped_note(lacking))))
        return _make_run(_run_fields(said))


_KEPT = tuple(
    f.name for f in fields(Step) if f.name in _Step.__slots__ and f.name not in {"started_at", "ended_at", "attrs"}
)
_kept = cast("Callable[[_Step], tuple[object, ...]]", attrgetter(*_KEPT))
_make_step = maker(
    Step, (*_KEPT, "run_id", "started_at", "ended_at", "attrs", "input", "output", "error", "loaded", "cost")
)
_NO_COUNTS = Counts()
_RUN_FIELDS = tuple(f.name for f in fields(Run))
_RUN_DEFAULTS: Mapping[str, Any] = {f.name: f.default for f in fields(Run) if f.default is not MISSING}
_make_run = maker(Run, _RUN_FIELDS)
_run_fields = cast("Callable[[dict[str, Any]], tuple[object, ...]]", itemgetter(*_RUN_FIELDS))
_OF_RUN = {
    "run.started": Projector._run_started,  # pyright: ignore[reportPrivateUsage]  # the class's own table
    "run.finished": Projector._run_finished,  # pyright: ignore[reportPrivateUsage]
    "run.erased": Projector._run_erased,  # pyright: ignore[reportPrivateUsage]
}


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole_number(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _as_override(value: Json) -> Mapping[str, Json]:
    """Overrides are named by their paths; a path alone becomes an object with it."""
    return value if isinstance(value, dict) else {"path": value}


def _error_line(attrs: Attrs) -> str | None:
    name, message = _text(attrs.get("error_class")), _text(attrs.get("error"))
    if name is None or message is None or message == name or message.startswith(f"{name}:"):
        return message or name
    return f"{name}: {message}"


def _moved(at: str, shift: timedelta) -> str:
    """A time in our form, moved; what is not in our form stays."""
    try:
        moved = datetime.fromisoformat(at) + shift
    except (ValueError, OverflowError):
        return at
    return moved.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# --- with bodies ------------------------------------------------------------------------------------------------------

_STREAM_ENDED = {
    "left_early": "the program left the stream",
    "cancelled": "the stream was cancelled",
    "broken": "the stream broke",
}
_NOT_THERE = "a body is not there"


def load_steps(recording: Recording, steps: Iterable[Step] | None = None) -> tuple[Step, ...]:
    """Steps with their bodies. `steps` are headers of this recording (default: all, projected from its events).

    A step whose body was deleted stays as it is, not `loaded`, and says so in `partial`.

    Raises:
        Corrupt: a body does not fit its digest, or is not what a recorder writes.
    """
    headers = project(recording.events, recording.run_id).steps if steps is None else steps
    return tuple(load_step(recording, step) for step in headers)


def load_step(recording: Recording, step: Step, assemble: Callable[[bytes], Json] | None = None) -> Step:
    """One step with its bodies; see `load_steps`.

    A stream whose end nobody saw has no whole answer: `assemble` puts one together from the bytes that came.
    """
    if lacking := _whole_number(step.attrs.get(VALUES_DROPPED)):
        return replace(step, partial=dropped_note(lacking))
    if step.attrs.get(KEPT) == DIGESTS:
        return replace(step, partial=step.partial or digests_kept(recording.events))
    try:
        given = recording.body(step.input_digest)
        unended = step.status == "open" and assemble is not None and "opened_ms" in step.attrs
        came = assemble(stream_of(recording, step)) if unended and assemble else recording.body(step.output_digest)
    except Corrupt:
        raise
    except Damaged:
        return replace(step, partial=step.partial or _NOT_THERE)
    except ValueError as error:
        raise Corrupt(
            f"{recording.origin}: a body of step {step.idx} is not what a recorder writes", reason="body"
        ) from error
    failed, streamed = step.status not in {"ok", "open"}, "stream" in step.attrs
    return replace(
        step,
        loaded=True,
        input=given if step.kind == "llm" else decode_for_reading(given),
        output=_shown_output(step, came) if streamed or not failed else None,
        error=_shown_error(step, came) if failed else None,
    )


def stream_of(recording: Recording, step: Step) -> bytes:
    """The bytes of a streamed answer, as far as they are stored. Raises like `Recording.body`."""
    events = recording.events[step.first_seq - 1 : step.last_seq]
    named = [e.bodies["pieces"] for e in events if e.call_id == step.call_id and "pieces" in e.bodies]
    return b"".join(data for name in named for _, data in pieces_of(recording.body(name)))


def outcome_of(step: Step, came: Json) -> Json:
    """What `Step.output` shows of a recorded output; of a failed step what `Step.error` says."""
    shown = step.status in {"ok", "open"} or "stream" in step.attrs
    return _shown_output(step, came) if shown else _shown_error(step, came)


def _shown_output(step: Step, came: Json) -> Json:
    if step.kind == "llm":
        return message_in(answer_in(came))
    shown = decode_for_reading(came)
    if step.name == ROOT_NAME and step.kind == "agent" and isinstance(shown, dict) and shown.keys() == {"result"}:
        return shown["result"]
    return shown


def _shown_error(step: Step, came: Json) -> str:
    """`<class>: <message>`, from the recorded exception where there is one."""
    if (how := step.attrs.get("stream")) is not None:
        ended = _STREAM_ENDED.get(str(how), "the stream ended")
        name = f"{step.error_class}: " if step.error_class and how == "broken" else ""
        return f"{name}{ended} after {step.attrs.get('pieces')} pieces"
    if isinstance(came, dict) and "$exception" in came:
        return error_line(came)
    if step.status == "denied":
        return f"denied: {_text(step.attrs.get('why')) or 'not allowed'}"
    text = came if isinstance(came, str) and came else None
    if text is not None and step.error_class is None and step.status == "error":
        return text  # of an import: nobody knows its class
    name = step.error_class or step.status
    return name if text is None else text if text.startswith(name) else f"{name}: {text}"
