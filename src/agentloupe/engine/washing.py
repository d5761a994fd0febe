"""Secret removal from a run that is imported: what another program wrote down was looked at by nobody.

    clean = wash(run, rules)
    clean.run        # the same run; its bodies, names and facts without credentials
    clean.removed    # how many were removed

Keys are made anew where an input changed, so that a fork finds the recorded answers. The source of the file, which is kept beside
the steps, is cleaned too. Runs that are sealed by a chain are never changed; `suspicious` counts what they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from agentloupe.engine.privacy import Rules, scrub, scrub_text
from agentloupe.ports.pack import Body, Packer, needs, unpack
from agentloupe.ports.protocols import ImportedRun
from agentloupe.ports.recording import Recording
from agentloupe.words.canonical import key_of
from agentloupe.words.event import KIND_OF_TYPE, Draft
from agentloupe.words.jsontext import Json, loads

__all__ = ["Washed", "suspicious", "wash"]

_SHARED = frozenset({"model.requested"})
_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Washed:
    """An imported run after secret removal, and how many values were removed."""

    run: ImportedRun
    removed: int


def wash(run: ImportedRun, rules: Rules) -> Washed:
    """A run of drafts without credentials, which says by which rules. Raises nothing of its own; a body that is not there stays away."""
    work = _Wash(run, rules)
    drafts = [work.draft(draft) for draft in run.drafts]
    packed = work.packer.pack(rules.as_json())
    first = drafts[0]
    said = {**first.attrs, "rules": rules.digest}
    drafts[0] = replace(first, attrs=said, bodies={**first.bodies, "rules": packed.digest})
    bodies = (*work.bodies, *packed.bodies) if work.removed else (*run.bodies, *packed.bodies)
    clean = tuple(drafts) if work.removed else (drafts[0], *run.drafts[1:])
    if not work.removed:
        clean = (
            replace(run.drafts[0], attrs=said, bodies={**run.drafts[0].bodies, "rules": packed.digest}),
            *clean[1:],
        )
    return Washed(replace(run, drafts=clean, bodies=bodies), work.removed)


@dataclass(slots=True)
class _Wash:
    run: ImportedRun
    rules: Rules
    packer: Packer = field(default_factory=Packer)
    bodies: list[Body] = field(default_factory=list[Body])
    removed: int = 0
    _data: dict[str, bytes] = field(default_factory=dict[str, bytes])
    _made: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict[str, tuple[str, tuple[str, ...]]])
    _keys: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self._data.update((body.digest, body.data) for body in self.run.bodies)

    def draft(self, draft: Draft) -> Draft:
        """A draft with what it names, cleaned."""
        name = self._name(draft.name)
        attrs = self._facts(draft.attrs)
        given, removed = self._body(draft.input_digest, draft)
        output, lost = self._body(draft.output_digest, draft, named=draft.name if draft.type == "env.read" else None)
        if removed:
            attrs["removed"] = list[Json](removed)
        if lost:
            attrs["removed_from_output"] = list[Json](lost)
        more = {label: self._body(digest, draft, raw=label == "raw")[0] for label, digest in draft.bodies.items()}
        return replace(
            draft,
            name=name,
            attrs=attrs,
            input_digest=given,
            output_digest=output,
            bodies=cast("Mapping[str, str]", more),
            input_key=self._key(draft, name, bool(removed) or name != draft.name),
        )

    def _name(self, name: str | None) -> str | None:
        clean = scrub_text(name, self.rules) if name is not None else None
        self.removed += clean != name
        return clean

    def _facts(self, attrs: Mapping[str, Json]) -> dict[str, Json]:
        found = scrub(dict(attrs), self.rules)
        self.removed += len(found.removed)
        return cast("dict[str, Json]", found.value)

    def _key(self, draft: Draft, name: str | None, changed: bool) -> str | None:
        """The key of the cleaned input; all events of one call have the same."""
        if draft.input_key is None or draft.call_id is None:
            return draft.input_key
        kind = KIND_OF_TYPE.get(draft.type)
        if changed and kind is not None and draft.input_digest is not None:
            self._keys[draft.call_id] = key_of(kind, name or "", self._value(draft.input_digest, draft))
        return self._keys.get(draft.call_id, draft.input_key)

    def _value(self, digest: str, draft: Draft) -> Json:
        return scrub(unpack(digest, self._get), self.rules).value

    def _get(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        return {digest: self._data[digest] for digest in digests if digest in self._data}

    def _body(
        self, digest: str | None, draft: Draft, *, named: str | None = None, raw: bool = False
    ) -> tuple[str | None, tuple[str, ...]]:
        if digest is None:
            return None, ()
        if digest not in self._made or named is not None:
            try:
                value = unpack(digest, self._get)
            except KeyError:
                return digest, ()
            clean, removed = self._clean(value, named, raw)
            packed = self.packer.pack(clean, shared_lists=draft.type in _SHARED)
            self.bodies += packed.bodies
            self.removed += len(removed)
            self._made[digest] = packed.digest, removed
        return self._made[digest]

    def _clean(self, value: Json, named: str | None, raw: bool) -> tuple[Json, tuple[str, ...]]:
        if named is not None:  # the name of a variable says what its value is
            found = scrub({named: value}, self.rules)
            return next(iter(cast("dict[str, Json]", found.value).values())), found.removed
        found = scrub(value, self.rules)
        if raw and isinstance(value, str) and isinstance(found.value, str):
            text = "\n".join(scrub_text(line, self.rules) for line in found.value.split("\n"))  # JSON Lines
            return text, ("$",) if text != value else ()
        return found.value, found.removed


def suspicious(recording: Recording, rules: Rules) -> int:
    """How many values of a recording look like credentials. Looks at each body once."""
    count, seen = 0, set[str]()
    todo = [digest for event in recording.events for digest in event.digests()]
    while todo:
        batch = [digest for digest in dict.fromkeys(todo[-_AT_ONCE:]) if digest not in seen]
        del todo[-_AT_ONCE:]
        seen.update(batch)
        for data in recording.get(batch).values() if batch else ():
            todo.extend(needs(data))
            try:
                count += len(scrub(loads(data), rules).removed)
            except ValueError:
                continue
    return count
