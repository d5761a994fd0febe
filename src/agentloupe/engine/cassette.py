"""The cassette: recorded results of tools, read by key (kind, tool name, arguments). What a fork answers tools from.

    cassette = Cassette.from_steps(steps)
    hit, output, error = cassette.play("get_weather", {"city": "Beijing"})

Several results under one key are handed out in recorded order, each once; then the last one repeats and is marked
`reused`. A recorded error is a result. The calls of a fork's kept prefix count as handed out. A fork's own calls come
first, then those of its ancestors, nearest first; a result that was copied or played from an ancestor is the same
result and counts once. Safe to use from several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from agentloupe.engine.difference import Change, changes_between
from agentloupe.engine.edits import nearest as nearest_name
from agentloupe.engine.edits import show_path
from agentloupe.engine.tape import RecordedCall, Tape
from agentloupe.ports.codecs import error_line
from agentloupe.ports.schedule import plain
from agentloupe.words.call import Effect, Kind
from agentloupe.words.canonical import Json, dumps, key_of
from agentloupe.words.effects import NOT_DONE
from agentloupe.words.keeping import keeps_digests
from agentloupe.words.step import Step

__all__ = ["NOT_RECORDINGS", "Cassette", "Nearest", "Play", "Played", "Take", "miss_text", "takes_of"]

NOT_RECORDINGS = frozenset({"miss", "stub", "simulated"})
"""Sources whose answers are nobody's recording."""

_PLAYABLE: frozenset[Kind] = frozenset({"tool", "retrieval", "other"})
_NEAREST_LIMIT = 3


class Play(NamedTuple):
    """What `Cassette.play` says: whether it was recorded, and the output or the error."""

    hit: bool
    output: Json
    error: str | None


@dataclass(frozen=True, slots=True)
class Take:
    """One recorded result.

    Attributes:
        kind, name, key: what it answers.
        run_id, idx: the run and the step that it was recorded in.
        origin: what it is a recording of; equal for a result and its copies in forks.
        seq: first event of its call.
        write: the tool changes the world, or nobody said that it does not.
        failed: the result is an error.
        parse_error: the error is that of malformed arguments.
        error_class: class of the error, where it is known.
        amended: the result is not the recorded one, an override put it there.
        load: the result: the recorded body (for an error: in the form of `codecs`, or its text).
        arguments: the recorded arguments.
    """

    kind: Kind
    name: str
    key: str
    run_id: str
    idx: int | None
    origin: str
    seq: int
    write: bool
    failed: bool
    load: Callable[[], Json]
    arguments: Callable[[], Json]
    parse_error: bool = False
    error_class: str | None = None
    amended: bool = False


@dataclass(frozen=True, slots=True)
class Played:
    """A recorded result, handed out.

    Attributes:
        take: the recorded result.
        output: its body.
        reused: it had been handed out before.
    """

    take: Take
    output: Json
    reused: bool


@dataclass(frozen=True, slots=True)
class Nearest:
    """The recorded call that comes closest to one that was missed.

    Attributes:
        take: the recorded call.
        changes: the places in the arguments where they differ; empty when only the tool's name differs.
    """

    take: Take
    changes: tuple[Change, ...]

    def as_json(self) -> dict[str, Json]:
        """`{run_id, step, tool, arguments, changes}`."""
        changes: list[Json] = [change.as_json() for change in self.changes]
        about: dict[str, Json] = {"run_id": self.take.run_id, "step": self.take.idx, "tool": self.take.name}
        return {**about, "arguments": self.take.arguments(), "changes": changes}

    def __str__(self) -> str:
        where = f"step {self.take.idx} of {self.take.run_id}" if self.take.idx is not None else self.take.run_id
        shown = "; ".join(
            f"{show_path(change.path) or 'arguments'} {change.what}: {_brief(change)}" for change in self.changes
        )
        return f"nearest recorded call: {self.take.name} in {where}" + (f" ({shown})" if shown else "")


def _brief(change: Change) -> str:
    sides = change.as_json()
    texts = [dumps(sides[side]).decode() for side in ("expected", "actual") if side in sides]
    return " -> ".join(texts)


class Cassette:
    """Recorded results by key.

    Args:
        own: takes of the run itself, in recorded order.
        ancestors: takes of its parent, its parent's parent ..., nearest first.
        used_before: own takes whose call began before this event are handed out already.
    """

    def __init__(self, own: Iterable[Take], ancestors: Sequence[Iterable[Take]] = (), *, used_before: int = 0) -> None:
        self._lock = plain.allocate_lock()
        self._queues: dict[str, list[Take]] = {}
        self._next: dict[str, int] = {}
        seen: set[str] = set()
        for takes in (own, *ancestors):
            for take in takes:
                if take.origin not in seen:
                    self._queues.setdefault(take.key, []).append(take)
                seen.add(take.origin)
                if takes is own and take.seq < used_before:
                    self._next[take.key] = self._next.get(take.key, 0) + 1

    @classmethod
    def from_steps(cls, steps: Iterable[Step]) -> Cassette:
        """The cassette of loaded steps; steps that are no tool, have no end or no recorded source are left out."""
        return cls([take for take in map(_take_of_step, steps) if take is not None])

    def play(self, name: str, args: Json) -> Play:
        """Hands out the next recorded result of this call; arguments as an object or as JSON text are one key.

        Returns:
            `hit` is `False` when nothing was recorded; `error` is the recorded error's text.
        """
        played = self.take("tool", name, key_of("tool", name, args))
        if played is None:
            return Play(False, None, None)
        if played.take.failed:
            return Play(True, None, error_text(played.output))
        return Play(True, played.output, None)

    def take(self, kind: Kind, name: str, key: str) -> Played | None:
        """Hands out the next recorded result under a key (see `canonical.key_of`), or `None`: a miss."""
        with self._lock:
            queue = self._queues.get(key)
            if not queue:
                return None
            at = self._next.get(key, 0)
            self._next[key] = at + 1
            found = queue[min(at, len(queue) - 1)]
        assert (found.kind, found.name) == (kind, name), "a key names one kind and one name"
        return Played(found, found.load(), at >= len(queue))

    def holds(self, key: str) -> bool:
        """Whether anything was recorded under this key. Hands out nothing."""
        return bool(self._queues.get(key))

    def amend(self, idx: int, result: Json) -> bool:
        """Gives the recorded step `idx` of the run itself another result; whether there was such a one to hand out."""
        found = False
        with self._lock:
            run = next((queue[0].run_id for queue in self._queues.values()), None)
            for queue in self._queues.values():
                for i, take in enumerate(queue):
                    if take.idx == idx and take.run_id == run:
                        queue[i] = replace(take, failed=False, error_class=None, amended=True, load=lambda: result)
                        found = True
        return found

    def nearest(self, kind: Kind, name: str, arguments: Json) -> Nearest | None:
        """The recorded call that comes closest.

        Of this tool the one whose arguments differ in the fewest places; else one of the tool of the most similar name.
        """
        takes = [take for queue in self._queues.values() for take in queue if take.kind == kind]
        same_tool = [take for take in takes if take.name == name]
        if not same_tool:
            close = nearest_name(name, {take.name for take in takes})
            found = next((take for take in takes if take.name == close), None)
            return Nearest(found, ()) if found else None
        ranked = [
            Nearest(take, changes_between(take.arguments(), arguments, _NEAREST_LIMIT)[0]) for take in same_tool[:200]
        ]
        return min(ranked, key=lambda n: len(n.changes))


def miss_text(name: str, arguments: Json) -> str:
    """What the model is told of a miss: names the tool and the arguments."""
    shown = arguments if isinstance(arguments, str) else dumps(arguments).decode()
    return f"cassette miss: no recorded result exists for {name}({shown})"


_BARE = ("ToolFailed", "CassetteMiss")
"""Our own classes for errors that are only a text."""


def error_text(body: Json) -> str:
    """A recorded error as one line: class and message, or the text alone where it never had a class."""
    line = body if isinstance(body, str) else error_line(body)
    for name in _BARE:
        line = line.removeprefix(f"{name}: ")
    return line


def _may_write(kind: Kind, effect: Effect | None) -> bool:
    return kind == "tool" and effect not in ("pure", "read")


_NO_ANSWER = frozenset({"unknown", "denied", NOT_DONE})


def _take_of_step(step: Step) -> Take | None:
    source = step.attrs.get("copied_source", step.source)
    ended = step.ended_at is not None or step.output is not None or step.error is not None
    if step.kind not in _PLAYABLE or source in NOT_RECORDINGS or step.status in _NO_ANSWER or not ended:
        return None
    arguments = step.input
    failed = step.error is not None
    result: Json = step.error if failed else step.output
    return Take(
        kind=step.kind,
        name=step.name,
        key=key_of(step.kind, step.name, arguments),
        run_id=step.run_id,
        idx=step.idx,
        origin=f"{step.run_id}/{step.idx}",
        seq=step.first_seq,
        write=_may_write(step.kind, step.effect),
        failed=failed,
        load=lambda: result,
        arguments=lambda: arguments,
    )


def takes_of(tape: Tape, idx_of: Callable[[str], int | None]) -> list[Take]:
    """The recorded results on a tape, in recorded order; bodies are read only when they are handed out.

    A run that was deleted answers nothing, whatever its forks still hold of it; nor does one that keeps digests only.

    Args:
        tape: of the run.
        idx_of: call id -> index of its step.
    """
    if any(event.type == "run.erased" for event in tape.recording.events) or keeps_digests(tape.recording.events):
        return []
    return [_take_of_call(tape, call, idx_of(call.call_id)) for call in tape.calls if _is_recorded(call)]


def _is_recorded(call: RecordedCall) -> bool:
    source = call.attrs.get("copied_source", call.source)
    return call.kind in _PLAYABLE and call.status in ("ok", "error") and source not in NOT_RECORDINGS


def _take_of_call(tape: Tape, call: RecordedCall, idx: int | None) -> Take:
    recording = tape.recording
    key = call.input_key or key_of(call.kind, call.name, recording.body(call.input_digest))
    origin = call.attrs.get("origin")
    return Take(
        kind=call.kind,
        name=call.name,
        key=key,
        run_id=recording.run_id,
        idx=idx,
        origin=origin if isinstance(origin, str) else f"{recording.run_id}/{call.call_id}",
        seq=call.first_seq,
        write=_may_write(call.kind, call.effect),
        failed=call.status == "error",
        load=lambda: recording.body(call.output_digest),
        arguments=lambda: recording.body(call.input_digest),
        parse_error=call.attrs.get("parse_error") is True,
        error_class=error_class if isinstance(error_class := call.attrs.get("error_class"), str) else None,
    )
