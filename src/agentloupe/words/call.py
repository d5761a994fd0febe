"""What is said at the boundary: a `Call` going out, an `Outcome` coming back.

A call is fixed before anything is performed: its kind, its name and its input as plain JSON. Everything here is data;
who answers (the world, the tape, the cassette) is decided by the boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from typing import Literal, Never, get_args

from agentloupe.words.canonical import Json

__all__ = [
    "EFFECTS",
    "KINDS",
    "NO_ATTRS",
    "NO_TURN",
    "OWN_WORK",
    "PLAIN_READS",
    "SOURCES",
    "Attrs",
    "Call",
    "Effect",
    "Kind",
    "Nothing",
    "Outcome",
    "OutcomeStatus",
    "Source",
]

Kind = Literal["agent", "llm", "tool", "retrieval", "clock", "random", "id", "env", "state", "check", "other"]
"""Kind of a step and of the call behind it."""

Effect = Literal["pure", "read", "write"]
"""What a tool does to the world. Unstated means write."""

Source = Literal["live", "cassette", "stub", "sandbox", "simulated", "human", "miss", "recorded"]
"""Where a step's result came from."""

OutcomeStatus = Literal["ok", "error", "cancelled", "unknown"]

Attrs = Mapping[str, Json]
"""Structure of a call for headers (model, usage, effect, tries ...): never a user's value."""

KINDS: tuple[Kind, ...] = get_args(Kind)
EFFECTS: tuple[Effect, ...] = get_args(Effect)
OWN_WORK: frozenset[Kind] = frozenset({"agent", "state", "check"})
"""Kinds whose work is control logic itself: done again in a replay, and compared."""
NO_TURN: frozenset[Kind] = frozenset({"agent", "state", "check", "clock", "random", "id", "env"})
"""Kinds whose end is no input that the program waits for: it has no turn in a schedule."""
PLAIN_READS: frozenset[Kind] = frozenset({"clock", "random", "id"})
"""Kinds whose results hold no secret, whatever they are."""
SOURCES: tuple[Source, ...] = get_args(Source)


_NO_KEYS: KeysView[str] = dict[str, Never]().keys()


class Nothing(Mapping[str, Never]):
    """An empty mapping that cannot be changed; hashable, since dataclasses take no other kind of default."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Never:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def keys(self) -> KeysView[str]:
        """None. In place of the inherited view, since `{**nothing}` asks for it at every call."""
        return _NO_KEYS

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"


NO_ATTRS: Attrs = Nothing()


def _complete(result: object, _: Attrs) -> object:
    return result


def _no_facts(_: Json) -> Attrs:
    return NO_ATTRS


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call as the control logic makes it.

    Attributes:
        kind: kind of the step it becomes.
        name: for a model `chat <model>`; for a tool its stable name; for reads what is read (`now`, `uuid4`, an
            environment name); for a retrieval the index.
        input: the whole request as JSON, a copy that nobody else holds.
        effect: of a tool; `None` for everything else.
        attrs: structural facts known before the call (model asked for, provider, tool version and digest).
        encode: result -> JSON. Called once, right after the call, so later edits of the result change nothing.
        decode: JSON -> a result of the type that was recorded.
        complete: puts on a decoded result what is kept among the recorded facts of its closing event and not in its
            JSON (the request id, which comes in a header); returns the result.
        facts: JSON result -> structural facts for headers (usage, finish reason, model that answered, request id).
        resend: performs the call with an edited input (a fork changes a model request); `None` where that makes no sense.
            Returns an awaitable when the call is async.
        cheap: a plain read (clock, random, id, env), committed in groups.
        lost: paths in `input` that could not be recorded, with their types.
        streamed: the answer may come in pieces (see `ports.streams`).
        parameters: names of what stands in `input["args"]` (of an agent), for secret removal.
        formerly: kind, name and input that older recordings have of this call, where they are others.
    """

    kind: Kind
    name: str
    input: Json
    effect: Effect | None = None
    attrs: Attrs = NO_ATTRS
    encode: Callable[[object], Json]
    decode: Callable[[Json], object]
    complete: Callable[[object, Attrs], object] = _complete
    facts: Callable[[Json], Attrs] = _no_facts
    resend: Callable[[Json], object] | None = None
    cheap: bool = False
    lost: tuple[tuple[str, str], ...] = ()
    streamed: bool = False
    parameters: tuple[str, ...] = ()
    formerly: tuple[Kind, str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call ended.

    Attributes:
        status: `ok`, `error` (an exception, also of a tool), `cancelled`, or `unknown` (a write whose end nobody saw).
        output: the result as JSON, or the exception in the form of `codecs`.
        attrs: structural facts (see `Call.facts`), the tries of the client library, timing.
        source: who answered.
    """

    status: OutcomeStatus
    output: Json
    attrs: Attrs = field(default=NO_ATTRS)
    source: Source = "live"
