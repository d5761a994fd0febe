"""Makes the events of an imported run: the same events that a recorder would have written, as far as the source knows.

What has no place among the known fields goes into an `extra` body beside it; the source itself is kept whole as the body
`raw`, once for all runs of a file. What the source does not know stays unknown: a missing time is marked, a missing
model has no name, a request that is not whole is a partial step with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import cast

from agentloupe.importers.times import ASSUMED, Moment, moment
from agentloupe.ports import ambient
from agentloupe.ports.ambient import Place
from agentloupe.ports.codecs import encode
from agentloupe.ports.pack import Body, Packer
from agentloupe.ports.protocols import ImportedRun
from agentloupe.ports.scribe import Entry, Scribe, Started
from agentloupe.words.call import EFFECTS, KINDS, NO_ATTRS, SOURCES, Call, Effect, Kind, Outcome, OutcomeStatus, Source
from agentloupe.words.canonical import Json, digest, key_of
from agentloupe.words.event import Draft

__all__ = [
    "MARKS",
    "Raw",
    "RunBuilder",
    "Said",
    "class_of",
    "known_effect",
    "known_kind",
    "known_source",
    "partial_reason",
    "raw_of",
    "step_name",
]

MARKS = frozenset({"absent", "end_unknown", "time_flag", "time_unknown"})
"""Facts that tell how a source was read, not what it says."""

_CLASS = re.compile(r"([A-Za-z_][\w.]{0,100}):?(?:\s|$)")
_CUT = re.compile(r"[\[<(]\s*(?:\.{3}|…)?\s*truncated\b[^\])>]{0,80}[\])>]\s*\Z", re.IGNORECASE)
_HISTORIES = ("messages", "input", "contents")


@dataclass(frozen=True, slots=True)
class Raw:
    """The source as it was: the digest of its body, and the bodies. Shared by all runs of a file."""

    digest: str
    bodies: tuple[Body, ...]


def raw_of(content: bytes) -> Raw:
    """Keeps a file's bytes: as text where they are UTF-8, else as bytes in the form of `codecs`."""
    try:
        value: object = content.decode()
    except UnicodeDecodeError:
        value = content
    packed = Packer().pack(encode(value).wire)
    return Raw(packed.digest, tuple(packed.bodies))


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a source says of one step. A name of a field that it does not have at all stands in `absent`.

    Attributes:
        kind, name: of the step.
        input, output: values; of a model step the request, and the message or the whole response.
        error: class and message, if it failed.
        started_at, ended_at: as the source writes them (see `times`).
        parent: position of the step around it among those built before, or `None`.
        attrs: structural facts.
        extra: what has no place.
    """

    kind: Kind
    name: str
    input: Json = None
    output: Json = None
    error: str | None = None
    error_class: str | None = None
    started_at: Json = None
    ended_at: Json = None
    parent: int | None = None
    source: Source | None = None
    effect: Effect | None = None
    ended: bool = True
    attrs: Mapping[str, Json] = field(default=NO_ATTRS)
    extra: Mapping[str, Json] = field(default=NO_ATTRS)
    absent: tuple[str, ...] = ()


def step_name(model: Json) -> str:
    """`chat <model>`, or `chat` where nobody knows the model."""
    return f"chat {model}" if isinstance(model, str) and model else "chat"


def partial_reason(request: Json) -> str | None:
    """Why a recorded request is not whole, or `None`."""
    if request is None:
        return "the source did not keep the request"
    if not isinstance(request, dict):
        return "the request is no object with messages"
    if request.get("truncated") or request.get("_truncated"):
        return "the exporter cut the request"
    history = next((h for name in _HISTORIES if isinstance(h := request.get(name), list)), None)
    if history is None:
        return "the request has no messages"
    if any(isinstance(m, dict) and isinstance(c := m.get("content"), str) and _CUT.search(c) for m in history):
        return "the exporter cut a message"
    return None


class RunBuilder:
    """Builds one run, step by step in the order of their sequence.

    Args:
        run_id: the id that the run should have.
        source_format: name of the format.
        raw: the whole source.
        part: what the source says of this run, to recognise it when it is imported again.
    """

    def __init__(self, run_id: str, source_format: str, raw: Raw, part: Json) -> None:
        self.run_id = run_id
        self.warnings: list[str] = []
        self._format = source_format
        self._raw = raw
        self._part = digest(part)
        self._scribe = Scribe.begun(None)
        self._drafts: list[Draft] = []
        self._bodies: list[Body] = list(raw.bodies)
        self._now = ambient.now()
        self._at: str | None = None
        self._untimed = self._assumed = 0
        self._spans: list[str] = []
        self._waiting: list[tuple[int, Call, Place, str, Said]] = []
        self._kinds: list[Kind] = []
        self._partial = self._pending = 0

    # --- beginning and end

    def start(
        self,
        *,
        agent: str,
        name: str,
        started_at: Json = None,
        near: Json = None,
        arguments: Json = None,
        tags: Sequence[str] = (),
        root: bool = False,
        facts: Mapping[str, Json] = NO_ATTRS,
        extra: Mapping[str, Json] = NO_ATTRS,
    ) -> None:
        """`run.started`.

        `near` is a time to stand in where the source does not know when the run began; `extra` has what it says of the
        run and has no place.
        """
        at, marks = self._time("run", started_at)
        if started_at is None and near is not None:
            at = self._at = _near(near) or at
        known: dict[str, Json] = {
            "source_format": self._format,
            "source_digest": self._part,
            "coverage": "trace_only",
            **({"root": True} if root else {}),
            **marks,
            **facts,
        }
        bodies: dict[str, Json] = {"extra": dict(extra)} if extra else {}
        started = Started(
            agent=agent, name=name, arguments=arguments, engine="imported", tags=tuple(tags), facts=known, bodies=bodies
        )
        entry = self._scribe.started(started, at)
        (draft,) = entry.drafts
        self._take(entry._replace(drafts=(replace(draft, bodies={**draft.bodies, "raw": self._raw.digest}),)))

    def finish(
        self,
        *,
        status: OutcomeStatus = "ok",
        ended_at: Json = None,
        result: Json = None,
        facts: Mapping[str, Json] = NO_ATTRS,
    ) -> None:
        """`run.finished`."""
        self._close_until(-1)
        at, marks = self._time("run", ended_at)
        output: Json = result if status != "ok" and isinstance(result, str) else {"result": result}
        self._take(self._scribe.finished(Outcome(status=status, output=output, attrs={**marks, **facts}), at))

    def made(self, fidelity: Sequence[str] = ()) -> ImportedRun:
        """The run as far as it was built. `fidelity` lists what the source did not keep."""
        self._close_until(-1)
        notes = list(fidelity)
        if self._assumed:
            notes.append(f"times without a zone were taken as UTC ({self._assumed})")
        if self._untimed:
            all_of_them = self._untimed == len(self._spans)
            notes.append(
                "times are not known" if all_of_them else f"when some steps began is not known ({self._untimed})"
            )
        if self._partial:
            notes.append(f"{self._partial} model requests are not whole")
        text = "; ".join(notes) or None
        first = self._drafts[0]
        self._drafts[0] = replace(first, attrs={**first.attrs, **({"fidelity": text} if text else {})})
        return ImportedRun(
            run_id=self.run_id,
            drafts=tuple(self._drafts),
            bodies=tuple(self._bodies),
            fidelity=text,
            steps=len(self._spans) + (1 if first.attrs.get("root") else 0),
            model_calls=self._kinds.count("llm") - self._pending,
            tool_calls=self._kinds.count("tool"),
            partial_steps=self._partial,
            warnings=tuple(self.warnings),
        )

    # --- steps

    def step(self, said: Said, *, last_inside: int | None = None) -> int:
        """Adds a step; returns its position. `last_inside` is the position of the last step that happens in it."""
        n = len(self._spans)
        self._close_until(n)
        where = Place("0", n, ambient.new_span_id(), None if said.parent is None else self._spans[said.parent])
        self._spans.append(where.span_id)
        self._kinds.append(said.kind)
        call = self._call(said)
        key = key_of(call.kind, call.name, call.input)
        at, marks = self._time(f"step {n}", said.started_at)
        attrs: dict[str, Json] = {**marks, **({"absent": list(said.absent)} if said.absent else {})}
        call = replace(call, attrs={**call.attrs, **attrs})
        entry = self._scribe.opened(call, where, key, at)
        two = bool(entry.drafts)
        self._take(self._with_extra(entry, said.extra) if two else entry)
        self._waiting.append((n if last_inside is None or not two else last_inside, call, where, key, said))
        if not two:
            self._close()
        return n

    def _call(self, said: Said) -> Call:
        attrs = dict(said.attrs)
        self._pending += "pending" in attrs
        if said.kind == "llm":
            reason = attrs.get("partial_step") or partial_reason(said.input)
            if reason:
                attrs["partial_step"] = reason
                self._partial += 1
        return Call(
            kind=said.kind,
            name=said.name,
            input=said.input,
            effect=said.effect if said.kind == "tool" else None,
            attrs=attrs,
            encode=_as_it_is,
            decode=_as_it_is,
        )

    def _close_until(self, n: int) -> None:
        """Ends the steps inside which no further step happens; innermost first. -1: all of them."""
        while self._waiting and (n < 0 or min(self._waiting[-1][0], n) < n):
            self._close()

    def _close(self) -> None:
        _, call, where, key, said = self._waiting.pop()
        one = call.kind not in ("llm", "tool", "agent")
        if not said.ended and not one:
            return
        began = None if said.started_at is None else _near(said.started_at)
        at, marks = self._time("", said.ended_at) if said.ended_at is not None else (self._at or self._now, {})
        attrs: dict[str, Json] = {**_facts(said), **marks}
        if said.ended_at is None:
            attrs["end_unknown"] = True
        elif one and began is not None and "ms" not in attrs:
            attrs["ms"] = _ms_between(began, at)  # one event has one time: the beginning is told from it
        failed = said.error is not None
        status: OutcomeStatus = "error" if failed else "ok"
        output: Json = said.error if failed else _response(said) if said.kind == "llm" else encode(said.output).wire
        if failed:
            name = said.error_class or class_of(said.error)
            attrs.update({"error_class": name} if name else {})
        outcome = Outcome(status=status, output=output, attrs=attrs, source=said.source or "live")
        entry = self._scribe.closed(call, where, key, outcome, at)
        self._take(self._with_extra(entry, said.extra) if one else entry)

    # --- helpers

    def _with_extra(self, entry: Entry, extra: Mapping[str, Json]) -> Entry:
        if not extra:
            return entry
        packed = self._scribe.packer.pack(dict(extra))
        first, *rest = entry.drafts
        first = replace(first, bodies={**first.bodies, "extra": packed.digest})
        return Entry((first, *rest), (*entry.bodies, *packed.bodies))

    def _time(self, where: str, value: Json) -> tuple[str, dict[str, Json]]:
        """When it was, and marks where that is not what the source says. An unknown time is the last known one."""
        if value is not None:
            try:
                found = moment(value)
            except ValueError as wrong:
                self.warnings.append(f"{where or 'a step'}: {wrong}")
            else:
                self._at = found.at
                return found.at, self._flagged(found)
        self._untimed += where.startswith("step")
        return self._at or self._now, {"time_unknown": True}

    def _flagged(self, found: Moment) -> dict[str, Json]:
        if found.flag is None:
            return {}
        self._assumed += ASSUMED in found.flag
        return {"time_flag": found.flag}

    def _take(self, entry: Entry) -> None:
        self._drafts.extend(entry.drafts)
        self._bodies.extend(entry.bodies)


def _as_it_is(value: object) -> Json:
    return cast("Json", value)


def _near(value: Json) -> str | None:
    """A time that only stands in for another one; `None` when it cannot be read."""
    try:
        return moment(value).at
    except ValueError:
        return None


def _ms_between(began: str, at: str) -> float:
    """Milliseconds from one of our times to another."""
    return (datetime.fromisoformat(at) - datetime.fromisoformat(began)) / timedelta(milliseconds=1)


def _facts(said: Said) -> dict[str, Json]:
    """Facts that belong to the end of a step."""
    names = ("input_tokens", "output_tokens", "finish_reason", "usage", "ms", "reused", "external_id")
    return {name: said.attrs[name] for name in names if said.attrs.get(name) is not None}


def _response(said: Said) -> Json:
    """A model's answer in the form of a chat completion: whole where the source has it whole, else as much as is known."""
    output = said.output
    if isinstance(output, dict) and isinstance(output.get("choices"), list):
        return output
    return {"choices": [{"index": 0, "message": output}]}


def class_of(error: Json) -> str | None:
    """The class that an error's text begins with, by its looks; `None` where there is none."""
    found = _CLASS.match(error) if isinstance(error, str) else None
    name = found.group(1).rstrip(":") if found else ""
    short = name.rpartition(".")[2]
    return name if short[:1].isupper() and short.endswith(("Error", "Exception", "Timeout", "Warning")) else None


def known_kind(value: Json) -> Kind:
    """A kind by its name; what is no kind is `other`."""
    return value if isinstance(value, str) and value in KINDS else "other"


def known_source(value: Json) -> Source | None:
    """A source by its name, or `None`."""
    return value if isinstance(value, str) and value in SOURCES else None


def known_effect(value: Json) -> Effect | None:
    """An effect by its name, or `None`: unstated."""
    return value if isinstance(value, str) and value in EFFECTS else None
