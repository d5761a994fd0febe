"""Where the instructions or the tools of a model changed from one of its requests to the next.

Found in the packed bodies: a list of tools that did not change is one body, and requests that begin alike share the
lists that they are told by, so that a run of 10,000 steps costs one pass over its small bodies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import orjson

from agentloupe.engine.views.bodies import whole_ones
from agentloupe.ports.recording import GetBodies
from agentloupe.words.canonical import Json
from agentloupe.words.jsontext import quick_text
from agentloupe.words.step import Step

__all__ = ["Flags", "flags_of", "instructions_of"]

_AT_ONCE = 2000
_TOP = ("system", "instructions", "systemInstruction", "system_instruction")
_LISTS = ("messages", "input", "contents")
_LEADING = ("system", "developer")
_TOLD: Final = re.compile(
    rb'\{"\$list":\{"base":"([0-9a-f]{64})",(?:"near":\[[^\]]*\],)?"parts":\[\[([0-9]{1,9}),([0-9]{1,9})\],'
)
"""How a list begins that is told by another one: which, and the range of it that comes first."""


@dataclass(frozen=True, slots=True)
class Flags:
    """Indexes of the model steps whose leading instructions (`prompt`) or tools differ from the model step before."""

    prompt: frozenset[int]
    tools: frozenset[int]


def instructions_of(request: Mapping[str, Json]) -> Json:
    """The leading instructions of a request, whatever its form; `None` where it has none."""
    for name in _TOP:
        if request.get(name) is not None:
            return request[name]
    listed = next((found for name in _LISTS if isinstance(found := request.get(name), list)), None)
    leading = listed[0] if listed else None
    return leading.get("content") if isinstance(leading, dict) and leading.get("role") in _LEADING else None


def flags_of(steps: Sequence[Step], get: GetBodies) -> Flags:
    """Compares each model step with the one before it in the same agent, among `steps`. What is gone is not compared."""
    asked = [step for step in steps if step.kind == "llm" and step.input_digest is not None]
    heads = _Heads(whole_ones(get))
    heads.fetch(step.input_digest for step in asked if step.input_digest is not None)
    prompt: set[int] = set()
    tools: set[int] = set()
    before: dict[int | None, tuple[bytes, bytes]] = {}
    for step in asked:
        now = heads.of(step.input_digest or "")
        if now is None:
            continue
        was = before.get(step.parent_idx)
        before[step.parent_idx] = now
        if was is not None and was[0] != now[0]:
            prompt.add(step.idx)
        if was is not None and was[1] != now[1]:
            tools.add(step.idx)
    return Flags(frozenset(prompt), frozenset(tools))


class _Heads:
    """Instructions and tools of packed requests, as texts that are equal where those are."""

    def __init__(self, get: GetBodies) -> None:
        self._get = get
        self._requests: dict[str, dict[str, Json]] = {}
        self._first: dict[str, Json] = {}

    def fetch(self, digests: Iterable[str]) -> None:
        """Reads the requests, and of their lists what is needed to know how they begin."""
        for digest, text in self._bodies(digests):
            value = _read(text)
            if isinstance(value, dict):
                self._requests[digest] = value
        wanted = {ref for request in self._requests.values() for ref in _lists_in(request)}
        told: dict[str, str] = {}
        while wanted:
            for digest, text in self._bodies(wanted):
                base = self._begins(digest, text)
                if base is not None:
                    told[digest] = base
            wanted = set(told.values()) - self._first.keys() - told.keys()
        for digest in told:
            at = digest
            while at in told:
                at = told[at]
            self._first[digest] = self._first.get(at)
        self._fill()

    def _bodies(self, digests: Iterable[str]) -> Iterable[tuple[str, bytes]]:
        listed = list(dict.fromkeys(digests))
        for start in range(0, len(listed), _AT_ONCE):
            yield from self._get(listed[start : start + _AT_ONCE]).items()

    def _begins(self, digest: str, text: bytes) -> str | None:
        """Notes the first item of a list, or names the list that it begins like."""
        self._first[digest] = None
        told = _TOLD.match(text)
        if told is None:
            value = _read(text)
            self._first[digest] = value[0] if isinstance(value, list) and value else None
            return None
        start, stop = int(told[2]), int(told[3])
        if start != stop:  # from the middle of another list: a cut history, which no instructions lead
            return told[1].decode() if start == 0 else None
        value = _read(text)
        own = cast("dict[str, dict[str, list[list[Json]]]]", value)["$list"]["parts"][1]
        self._first[digest] = own[0] if own else None
        return None

    def _fill(self) -> None:
        """Reads first messages that are bodies of their own; of long texts inside of them the name is as good."""
        apart = {ref for item in self._first.values() if (ref := _reference(item)) is not None}
        texts = dict(self._bodies(apart))
        for digest, item in self._first.items():
            ref = _reference(item)
            if ref is not None and ref in texts:
                self._first[digest] = _read(texts[ref])

    def of(self, digest: str) -> tuple[bytes, bytes] | None:
        """Texts of instructions and tools; `None` for a request that is not there."""
        request = self._requests.get(digest)
        if request is None:
            return None
        shown = dict(request)
        for name in _LISTS:
            ref = _reference(request.get(name))
            if ref is not None:
                shown[name] = [self._first.get(ref)]
        return quick_text(instructions_of(shown)), quick_text(request.get("tools", request.get("toolConfig")))


def _read(text: bytes) -> Json:
    """A body's value, where only equality counts: huge integers may be read as floats. Damage reads as nothing."""
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _lists_in(request: Mapping[str, Json]) -> Iterable[str]:
    return (ref for name in _LISTS if (ref := _reference(request.get(name))) is not None)


def _reference(value: Json) -> str | None:
    digest = value.get("$ref") if isinstance(value, dict) and len(value) == 1 else None
    return digest if isinstance(digest, str) else None
