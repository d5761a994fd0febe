"""The protocols that adapters implement. Nothing here does anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol

from agentloupe.ports.outbox import Outbox
from agentloupe.ports.pack import Body
from agentloupe.ports.recording import GetBodies, Recording
from agentloupe.words.call import Attrs, Call
from agentloupe.words.canonical import Json
from agentloupe.words.event import Draft, Event, Head
from agentloupe.words.keeping import Profile
from agentloupe.words.run import Owner, Run, RunFilter
from agentloupe.words.step import Step
from agentloupe.words.trace import TraceContext

if TYPE_CHECKING:
    from agentloupe.ports.schedule.core import Schedule

__all__ = [
    "Answer",
    "Boundary",
    "Delta",
    "Durability",
    "Exporter",
    "Fold",
    "Imported",
    "ImportedRun",
    "Importer",
    "NewFold",
    "Opener",
    "Opening",
    "Perform",
    "Provider",
    "Reading",
    "RunWriter",
    "Serve",
    "Session",
    "Size",
    "Store",
]

Durability = Literal["grouped", "commit", "full"]
"""What an append promises when it returns: nothing yet (written within 50 ms or with the next append), survives SIGKILL,
survives power loss."""


# --- the boundary -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Serve:
    """A decision: this is the answer, nothing is performed.

    Attributes:
        value, error: what the program gets.
        call_id: the recorded call whose turn it waits for; `None`: it is handed over at once.
        cancels: how often the program cancelled it while it was performed. Then its end has its turn all the same.
        handed: called when it is handed over, or with `True` when the program has cancelled it before.
        reading: of a result that the program takes item by item.
    """

    value: object = None
    error: BaseException | None = None
    call_id: str | None = None
    cancels: int = 0
    handed: Callable[[bool], None] | None = None
    reading: Reading | None = None


@dataclass(slots=True)
class Reading:
    """How far a program takes a recorded result that comes item by item.

    Attributes:
        further: it takes more than was recorded, as the text says. Returns the signal that stops it.
        less: it takes less. Does not raise.
        ended: is called when the program has ended; set by the driver.
    """

    further: Callable[[str], BaseException]
    less: Callable[[str], None]
    ended: Callable[[], None] = lambda: None


def _no_facts() -> dict[str, Json]:
    return {}  # `dict[str, Json]()` takes four times as long


@dataclass(slots=True)
class Perform:
    """A decision: do the real thing, then report back with `finished` or `failed`.

    Attributes:
        token: the boundary's own bookkeeping.
        instead: what to run in place of the real thing (a sandbox function, an edited model request), or `None`. It
            may return an awaitable when the call is async.
        facts: structural facts gathered while performing: tries of the client library, a request id.
        ended: when the real thing was done (milliseconds of `ambient.monotonic_ms`); set by the driver.
        left: ends a result that comes item by item, where it is not at its end when the run is; set by the driver.
        waiting: the program waits for a piece of a stream; set by the driver.
    """

    token: object = None
    instead: Callable[[], object] | None = None
    facts: dict[str, Json] = field(default_factory=_no_facts)
    ended: float | None = None
    left: Callable[[], None] | None = None
    waiting: bool = False


class Boundary(Protocol):
    """The one door between control logic and the outside world: recorder, replayer, forker.

    The two drivers in `ambient` (sync and async) are the only callers: `decide`, then nothing or the real thing, then
    `finished` or `failed`. All three methods are quick and never wait for the outside world.
    """

    def decide(self, call: Call) -> Serve | Perform:
        """Decides who answers. Raises `ReplayMismatch` to stop a replay, `EffectRefused` before a write."""
        ...

    def finished(self, perform: Perform, value: object) -> object:
        """Takes the real result; returns what the control logic gets."""
        ...

    def failed(self, perform: Perform, error: BaseException) -> None:
        """Takes the exception of the real thing; the driver raises it afterwards."""
        ...


# --- sessions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """An agent is about to run.

    Attributes:
        agent: the agent's name.
        name: the run's name, or `None` for the opener's choice.
        arguments: `{"args": [...], "kwargs": {...}}` in wire form.
        entry: `module:function` of the agent, or `None` (a `with recording(...)` block, a script).
        source_digest: digest of the agent's source text, if it can be read.
        root: whether the run gets a root step `agent.run`.
        parameters: names of the positional arguments, for secret removal.
        schedule: of a whole program, which has kept to it since it began; `None` for an agent, whose run brings its own.
        snapshot: tells what else the run depends on, in wire form; asked for a recording only.
        trace: the place in a trace that the run is called from, where the caller says it.
        profile, sample: what is kept of values, and of which share of runs, where the code says it.
    """

    agent: str
    name: str | None = None
    arguments: Json = None
    entry: str | None = None
    source_digest: str | None = None
    tags: tuple[str, ...] = ()
    task_id: str | None = None
    root: bool = True
    strict: bool = False
    parameters: tuple[str, ...] = ()
    schedule: Schedule | None = None
    snapshot: Callable[[], Json] | None = None
    trace: TraceContext | None = None
    profile: Profile | None = None
    sample: float | None = None


class Session(Protocol):
    """One agent running under one boundary. Exactly one of `finished` and `failed` ends it."""

    run_id: str
    boundary: Boundary

    def finished(self, result: object) -> None:
        """The agent returned. Raises `ReplayMismatch` when a replay's result is not the recorded one."""
        ...

    def failed(self, error: BaseException) -> None:
        """The agent raised; the caller raises it again afterwards. Never raises."""
        ...


class Opener(Protocol):
    """Decides what an agent's start means: a new recording, a replay, a fork. One implementation for each."""

    def open(self, opening: Opening) -> Session:
        """Begins the session of an agent that starts now."""
        ...


# --- the store --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delta:
    """What a fold changed since it was last asked: the run's row and the steps' rows (headers, not `loaded`)."""

    run: Run
    steps: tuple[Step, ...]


class Fold(Protocol):
    """Folds sealed events of one run, in order, into its projection. Pure: looks at events only, never at bodies."""

    def add(self, event: Event) -> None:
        """Takes the next event."""
        ...

    def take(self) -> Delta:
        """The changes since the last `take`; the whole run's row each time."""
        ...


NewFold = Callable[[str], Fold]
"""Makes the fold of a run that has no events yet, from its id."""


class RunWriter(Protocol):
    """The one owner of a run. Not shared between processes; calls from several threads are serialised."""

    run_id: str
    owner: Owner

    @property
    def head(self) -> Head:
        """Number and hash of the last event that was sealed (events still grouped in memory are not)."""
        ...

    def append(self, drafts: Sequence[Draft], bodies: Sequence[Body] = (), durability: Durability = "commit") -> None:
        """Numbers, chains, folds and writes the events in one transaction, bodies first.

        Raises:
            StoreBusy, StoreFull, StoreReadOnly, StoreError: nothing of this append was written. Grouped events of
                before stay in memory and are tried again.
            OwnerAlive: another owner took the run over.
        """
        ...

    def offer(self, drafts: Sequence[Draft], bodies: Sequence[Body] = ()) -> bool:
        """Groups the events, like `append`, if that can be done without waiting for anything; `False`: nothing was done.

        Raises like `append`.
        """
        ...

    def remind(self, collect: Callable[[], None]) -> None:
        """Calls `collect` once, within 50 ms and before the next flush, so that what grows meanwhile is told in one.

        It is called in another thread, may append, and must not raise. A store that writes at once need not call it.
        """
        ...

    def flush(self) -> None:
        """Writes what is grouped. Raises like `append`."""
        ...

    def close(self) -> None:
        """Flushes, and gives the run up. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes and counts of a store. `bodies_stored` is after compression and sharing, `bodies_whole` before.

    `messages` wait in the outbox.
    """

    url: str
    runs: int
    events: int
    bodies: int
    bodies_stored: int
    bodies_whole: int
    file_bytes: int
    orphans: int
    messages: int


class Store(Protocol):
    """Where recordings live. Opened by URL, see `api.open_store`. Safe to use from several threads and processes."""

    url: str

    @property
    def outbox(self) -> Outbox:
        """What is still to be told to the outside."""
        ...

    def start(self, run_id: str, new_fold: NewFold, *, owner: Owner, share: str | None = None) -> RunWriter:
        """Takes ownership of a run that does not exist yet. `share` names a run whose bodies the new one refers to.

        A run that was begun by a process which died before its first event does not exist.

        Raises:
            StoreError: a run of this id exists (reason `exists`).
        """
        ...

    def take_over(
        self, run_id: str, new_fold: NewFold, *, owner: Owner, force: bool = False, ended: bool = False
    ) -> RunWriter:
        """Takes ownership of a run that has not ended and whose owner is gone; its epoch is the last one's plus one.

        Whoever owned it before can append nothing any more. `force`: also where the owner's process is on another host,
        so that nobody can tell from here whether it lives; one that is seen to live is never forced out. `ended`: also
        a run that has ended, so that what was found out later about its effects can be appended.

        Raises:
            RunNotFound: there is no such run.
            OwnerAlive: its owner lives (reason `owner_alive`), or is on another host (`other_host`).
            StoreError: the run has ended (reason `ended`), or its bodies were deleted (`erased`).
        """
        ...

    def recording(self, run_id: str) -> Recording:
        """The run's events and the way to its bodies. Raises `RunNotFound`."""
        ...

    def holds(self, run_id: str) -> bool:
        """Whether the run's chain is plainly whole; quicker than `verify`, which says what is wrong where it is not.

        False may also mean that the texts do not have the usual form. Raises `RunNotFound`.
        """
        ...

    def identity(self) -> str:
        """Id of the store: made when somebody first asks for it, and kept, also in copies. Raises `StoreReadOnly`."""
        ...

    def heads(self) -> dict[str, Head]:
        """Where the chain of each run ends; runs without events are left out."""
        ...

    def get(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        """Bodies by digest, checked; see `GetBodies`."""
        ...

    def run(self, run_id: str) -> Run | None:
        """One run's row. A `running` run whose owner is gone is `interrupted`."""
        ...

    def runs(self, wanted: RunFilter | None = None) -> list[Run]:
        """Rows of runs, newest first."""
        ...

    def count(self, wanted: RunFilter | None = None, *, most: int | None = None) -> int:
        """How many runs `runs` would give without its limit; where there are more than `most`, `most`, or the right number."""
        ...

    def facets(self, name: str, limit: int = 50) -> list[tuple[str, int]]:
        """Values that lists can be filtered by, and how many runs have each, the most frequent first.

        `name`: agent, model, tool, tag, status, coverage, missed, forked. An interrupted run counts as running here.
        """
        ...

    def steps(self, run_id: str, *, first: int = 0, limit: int | None = None) -> list[Step]:
        """Headers of steps from `idx` `first` on, without bodies."""
        ...

    def events(self, run_id: str, *, first: int = 1, limit: int | None = None) -> list[Event]:
        """Events of a run from a number on, as they were sealed. Raises `RunNotFound`, `Corrupt`."""
        ...

    def tags(self, run_id: str, tags: Sequence[str]) -> None:
        """Replaces a run's tags in the projection only."""
        ...

    def insert(
        self, run_id: str, events: Sequence[Event], get: GetBodies, new_fold: NewFold, *, elsewhere: bool = False
    ) -> None:
        """Takes over a sealed recording as it is (import of an export): same numbers, same hashes.

        `elsewhere`: where the run has not ended, its row says that it belongs to where it came from, until it is taken over.

        Raises:
            StoreError: a run of this id with other events exists (reason `exists`).
        """
        ...

    def rebuild(self, run_id: str, new_fold: NewFold) -> list[str]:
        """Makes the run's projection anew and stores it; returns what differed, one line each."""
        ...

    def erase(self, run_id: str, drafts: Sequence[Draft]) -> int:
        """Removes the run's bodies (those that no other run needs) and its projection; the events stay.

        Appends `drafts` (`run.erased`). Returns how many bodies went. Raises `RunNotFound`, `OwnerAlive`.
        """
        ...

    def gc(self) -> tuple[int, int]:
        """Removes bodies that no run refers to and gives space back. Returns (bodies, bytes) removed."""
        ...

    def check(self) -> list[str]:
        """Asks the database itself whether it is whole; faults, one line each."""
        ...

    def size(self) -> Size:
        """How much there is."""
        ...

    def close(self) -> None:
        """Flushes and closes. Idempotent."""
        ...


# --- models -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A model's answer to a whole request.

    Attributes:
        response: the whole response body (chat completion form: `choices[0].message`, `usage`, `model` ...).
        facts: structural facts: tries, request id, provider.
    """

    response: Json
    facts: Attrs


class Provider(Protocol):
    """Sends whole model requests exactly as given."""

    def send(self, request: Mapping[str, Json]) -> Answer:
        """Sends a request body.

        Raises:
            ModelUnreachable: nobody answers at the address.
            ModelRefused: an error status; nothing is dropped from the request to make it pass.
        """
        ...


# --- in and out -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """One run found in a foreign file.

    Attributes:
        run_id: id to store it under.
        drafts, bodies: its events, to be sealed by the store; or
        sealed: its events as they were sealed elsewhere (then `drafts` is empty), with `get` for the bodies.
        fidelity: what the source kept, with reasons; `None` when nothing is missing.
        steps, model_calls, tool_calls, partial_steps: counts for the report.
        warnings: what a person should know (orphan results, reused ids), one line each.
    """

    run_id: str
    drafts: tuple[Draft, ...] = ()
    bodies: tuple[Body, ...] = ()
    sealed: Recording | None = None
    fidelity: str | None = None
    steps: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    partial_steps: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What a file held: its runs, and the places that could not be read (`line 3: not JSON`), kept apart, never lost."""

    format: str
    runs: tuple[ImportedRun, ...]
    quarantined: tuple[str, ...] = ()


class Importer(Protocol):
    """Reads one foreign format."""

    @property
    def format(self) -> str:
        """Its name in reports."""
        ...

    def detects(self, head: bytes) -> bool:
        """Whether the first 64 KiB look like this format. Looks at content, never at a file's name."""
        ...

    def read(self, path: Path) -> Imported:
        """Reads a whole file. Raises `Damaged` (with the byte offset) or `VersionUnknown` when it cannot go on."""
        ...


class Exporter(Protocol):
    """Writes one format."""

    @property
    def format(self) -> str:
        """Its name."""
        ...

    def write(self, recordings: Iterator[Recording], out: BinaryIO) -> None:
        """Writes recordings one after another."""
        ...
