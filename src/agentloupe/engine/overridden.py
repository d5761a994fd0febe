"""Requests of a recorded fork: the program makes them without the fork's overrides, the recording holds them with these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast, get_args

from agentloupe.engine.edits import Edit, Op, Path, apply_edits, parse_path, same, value_at
from agentloupe.engine.tape import RecordedCall
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json, key_of

__all__ = ["Overridden"]


class Overridden:
    """The overrides of one recorded fork.

    Args:
        bodies: digests of `run.started`.
        value: what is behind a digest. key: the key of a recorded call.

    Attributes:
        edits: the overrides, where they are known; else they are read from the recording.
    """

    def __init__(
        self,
        bodies: Mapping[str, str],
        value: Callable[[str | None], Json],
        key: Callable[[RecordedCall], str],
    ) -> None:
        self.edits: list[tuple[Path, Op, Json]] | None = None
        self._bodies = bodies
        self._value = value
        self._key = key

    def agrees(self, recorded: RecordedCall, call: Call, given: Json) -> bool:
        """Whether a fork's recorded request is this one with the fork's recorded overrides in it."""
        if not recorded.kind == call.kind == "llm" or not isinstance(given, dict) or not self._all():
            return False
        # Names say the model, which an override may have changed; the key holds it anyway.
        wanted = self._key(recorded)
        for chosen in self._choices(recorded):
            edits = [Edit(path, op, value, path, value_at(given, path)) for path, op, value in chosen]
            changed, applied = apply_edits(given, edits)
            if applied and key_of(call.kind, call.name, changed) == wanted:
                return True
        return False

    def _choices(self, recorded: RecordedCall) -> Iterator[Sequence[tuple[Path, Op, Json]]]:
        """Which overrides this request may have had: a fork of a fork has those of its ancestors before its own."""
        whole = self._all()
        was = self._value(recorded.input_digest)
        seen = [edit for edit in whole if edit[1] == "remove" or same(value_at(was, edit[0]), edit[2])]
        if seen:
            yield seen
        for count in range(len(whole), 0, -1):
            yield whole[:count]

    def _all(self) -> Sequence[tuple[Path, Op, Json]]:
        if self.edits is None:
            bodies = self._bodies
            stored = [self._value(bodies.get(label)) for label in ("inherited", "overrides")]
            self.edits = [
                (parse_path(str(change["path"])), cast("Op", change["op"]), change.get("value"))
                for changes in stored
                for change in (changes if isinstance(changes, list) else ())
                if isinstance(change, dict) and change.get("op") in get_args(Op)
            ]
        return self.edits
