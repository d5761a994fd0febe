"""Answers that come in pieces: the driver of a streamed call, and the handle between its bytes and the boundary.

    reply = open_stream(call, send, head)        # async: `await aopen_stream(...)`
    reply.stream is None                         # it was a whole answer: `reply.value`
    for data in reply.stream.bytes(source): ...  # live: what `source` gives, told to the boundary; replayed: what was recorded

What is recorded are the bytes that a transport gives to the library above it, so that the same library reads the same
bytes in a replay. Pieces are passed on at once. Two moments are inputs and take turns: that the answer opens, and that it
ends. A program that leaves a stream on its own account waits for nobody.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, runtime_checkable

from agentloupe.ports import ambient
from agentloupe.ports.protocols import Boundary, Perform, Serve
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json

__all__ = [
    "Coding",
    "How",
    "Piece",
    "Played",
    "Reply",
    "Stream",
    "StreamBoundary",
    "Streamed",
    "aopen_stream",
    "open_stream",
    "pieces_of",
    "pieces_wire",
]

R = TypeVar("R")

How = Literal["complete", "left_early", "cancelled", "broken", "open"]
"""How a stream ended: read to its end; the program stopped reading; the program was stopped while it read; the connection
failed; nobody knows (the process was killed, or the stream is still being read)."""

Piece = tuple[float, bytes]
"""Milliseconds since the answer opened, and the bytes that came then."""


@dataclass(slots=True)
class Streamed:
    """A streamed answer, as far as it came.

    Attributes:
        head: what came before the first piece: status, headers.
        pieces: in order; one for each read, also where a read gave nothing.
        how: it ended.
        error: what broke or cancelled it.
        closed: the program closed it after the end of what it says, without reading on until nothing came any more.
        facts: what else its adapter finds out about it, for headers.
    """

    head: Json
    pieces: list[Piece] = field(default_factory=list[Piece])
    how: How = "open"
    error: BaseException | None = None
    closed: bool = False
    facts: dict[str, Json] = field(default_factory=dict[str, Json])

    @property
    def data(self) -> bytes:
        """All bytes so far."""
        return b"".join(data for _, data in self.pieces)


@dataclass(slots=True)
class Played(Streamed):
    """A recorded stream that is served.

    Attributes:
        past: is asked for the signal that stops a program which reads on where the recording has no more.
        left: is told that the program left, after so many pieces. Does not raise; what is not as recorded stops the next call.
        read: pieces that the program has taken.
        over: the program has come to the end, or left.
    """

    past: Callable[[], BaseException] = AssertionError
    left: Callable[[int], None] = lambda _: None
    read: int = 0
    over: bool = False


@runtime_checkable
class StreamBoundary(Boundary, Protocol):
    """A boundary that keeps streams. Others let them pass."""

    def opened(self, perform: Perform, head: Json) -> None:
        """The answer begins to come. Its end is told with `finished`, whose value is the `Streamed`."""
        ...

    def streamed(self, perform: Perform, piece: Piece) -> None:
        """A piece came, and goes to the program now."""
        ...


class Coding(Protocol):
    """How the bytes of an answer travel (gzip ...). What is recorded is what they mean."""

    def decode(self, data: bytes) -> bytes:
        """What these further bytes mean; may be nothing yet."""
        ...

    def encode(self, data: bytes) -> bytes:
        """Bytes that mean this, to be read at once."""
        ...

    def end(self) -> bytes:
        """The bytes that close what was encoded."""
        ...


# --- the driver -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Reply(Generic[R]):
    """What came back for a call that may be streamed.

    Attributes:
        raw: the real answer, unread where `stream` is set; `None` where none was asked for.
        value: of a whole answer: what the program gets.
        stream: of a streamed one.
    """

    raw: R | None = None
    value: object = None
    stream: Stream | None = None


Head = Callable[[R], "Json"]
"""Says what came before the first piece; `None` for an answer that was read whole."""


def open_stream(
    request: Call, perform: Callable[[], R], head: Head[R], done: Callable[[Streamed], bool] | None = None
) -> Reply[R]:
    """Sends a call whose answer may come in pieces through the current boundary; see `ambient.call`.

    Args:
        request: its `encode` gets a `Streamed` where the answer was one, else what `perform` returned.
        perform: does the real thing, up to where the answer begins to come.
        head: see `Head`.
        done: whether the pieces so far say all that the answer will say, so that a program which closes it leaves
            nothing out. Default: never before the bytes end.
    """
    boundary = ambient.current()
    if boundary is None:
        raw = perform()
        return Reply(raw, raw)
    turn = boundary.decide(request)
    if isinstance(turn, Serve):
        return _served(turn, done)
    try:
        with ambient.performed(turn, request.kind):
            raw = cast("R", turn.instead()) if turn.instead else perform()
    except BaseException as error:
        boundary.failed(turn, error)
        raise
    return _came(boundary, turn, raw, head(raw), done)


async def aopen_stream(
    request: Call, perform: Callable[[], Awaitable[R]], head: Head[R], done: Callable[[Streamed], bool] | None = None
) -> Reply[R]:
    """Async twin of `open_stream`."""
    boundary = ambient.current()
    if boundary is None:
        raw = await perform()
        return Reply(raw, raw)
    turn = boundary.decide(request)
    if isinstance(turn, Serve):
        return _served(turn, done)
    try:
        with ambient.performed(turn, request.kind):
            raw = await cast("Awaitable[R]", turn.instead()) if turn.instead else await perform()
    except BaseException as error:
        boundary.failed(turn, error)
        raise
    return _came(boundary, turn, raw, head(raw), done)


def _served(turn: Serve, done: Callable[[Streamed], bool] | None) -> Reply[Any]:
    if turn.error is not None:
        raise turn.error
    if isinstance(turn.value, Played):
        return Reply(stream=_PlayedStream(turn.value, done))
    return Reply(value=turn.value)


def _came(boundary: Boundary, turn: Perform, raw: R, head: Json, done: Callable[[Streamed], bool] | None) -> Reply[R]:
    if head is None:
        return Reply(raw, boundary.finished(turn, raw))
    if not isinstance(boundary, StreamBoundary):
        return Reply(raw, raw)
    boundary.opened(turn, head)
    return Reply(raw, stream=_LiveStream(boundary, turn, head, done))


# --- the handle -------------------------------------------------------------------------------------------------------


class Stream(Protocol):
    """A streamed answer in the hands of an adapter. One program reads it, once.

    Attributes:
        head: what came before the first piece.
        coding: how its bytes travel; to be set before they are read.
        live: whether there is a real answer behind it.
    """

    head: Json
    coding: Coding | None
    live: bool

    def bytes(self, source: Iterable[bytes] | None) -> Iterator[bytes]:
        """The answer's bytes: those of `source` as they come; in a replay (`None`) the recorded ones, without waiting."""
        ...

    def abytes(self, source: AsyncIterable[bytes] | None) -> AsyncIterator[bytes]:
        """Async twin of `bytes`."""
        ...

    def close(self) -> None:
        """The program reads no more. Does nothing after the end."""
        ...

    async def aclose(self) -> None:
        """Async twin of `close`."""
        ...


class _LiveStream:
    """Passes bytes on while they are told to the boundary."""

    live = True

    def __init__(
        self, boundary: StreamBoundary, perform: Perform, head: Json, done: Callable[[Streamed], bool] | None
    ) -> None:
        self.head = head
        self.coding: Coding | None = None
        self._boundary = boundary
        self._perform = perform
        self._done = done
        self._seen = Streamed(head)
        self._opened = ambient.monotonic_ms()

    def bytes(self, source: Iterable[bytes] | None) -> Iterator[bytes]:
        """See `Stream.bytes`."""
        reading = iter(source or ())
        while True:
            try:
                data = next(reading)
            except StopIteration:
                break
            except BaseException as error:
                self._broke(error)
                raise
            self._piece(data)
            yield data
        self._end("complete")

    async def abytes(self, source: AsyncIterable[bytes] | None) -> AsyncIterator[bytes]:
        """See `Stream.abytes`."""
        reading = cast("AsyncIterable[bytes]", source).__aiter__()
        while True:
            try:
                data = await anext(reading)
            except StopAsyncIteration:
                break
            except BaseException as error:
                self._broke(error)
                raise
            self._piece(data)
            yield data
        self._end("complete")

    def _piece(self, data: bytes) -> None:
        if self._seen.how != "open":
            return
        meant = data if self.coding is None else self.coding.decode(data)
        piece = (round(ambient.monotonic_ms() - self._opened, 3), meant)
        self._seen.pieces.append(piece)
        self._boundary.streamed(self._perform, piece)

    def _broke(self, error: BaseException) -> None:
        if self._seen.how == "open":
            self._seen.error = error
            self._end("cancelled" if _stopped(error) else "broken")

    def _end(self, how: How) -> None:
        """The end is handed over. Where turns are taken, `complete` and `broken` have waited for theirs."""
        if self._seen.how == "open":
            self._seen.how = how
            self._boundary.finished(self._perform, self._seen)

    def _leave(self) -> None:
        if self._seen.how != "open":
            return
        if self._done is not None and self._done(self._seen):
            self._seen.closed = True
            self._end("complete")
        else:
            self._end("left_early")

    def close(self) -> None:
        """See `Stream.close`."""
        self._leave()

    async def aclose(self) -> None:
        """See `Stream.aclose`."""
        self._leave()


class _PlayedStream:
    """Gives the recorded bytes again."""

    live = False

    def __init__(self, played: Played, done: Callable[[Streamed], bool] | None) -> None:
        self.head = played.head
        self.coding: Coding | None = None
        self._played = played
        self._done = done

    def bytes(self, source: Iterable[bytes] | None) -> Iterator[bytes]:
        """See `Stream.bytes`."""
        yield from self._pieces()
        played = self._played
        if played.how == "cancelled" and played.error is not None:
            raise played.error
        yield from self._last()

    async def abytes(self, source: AsyncIterable[bytes] | None) -> AsyncIterator[bytes]:
        """See `Stream.abytes`."""
        for data in self._pieces():
            yield data
        if self._played.how == "cancelled":
            await asyncio.get_running_loop().create_future()  # it was stopped while it waited, and will be again
        for data in self._last():
            yield data

    def _pieces(self) -> Iterator[bytes]:
        played = self._played
        while played.read < len(played.pieces) and not played.over:
            data = played.pieces[played.read][1]
            played.read += 1
            yield data if self.coding is None else self.coding.encode(data)

    def _last(self) -> Iterator[bytes]:
        """What follows the last piece: the end, also where the program had closed a stream that had said all."""
        played = self._played
        if played.over:
            return
        if played.how not in ("complete", "broken"):
            raise played.past()
        played.over = True
        if played.how == "broken" and played.error is not None:
            raise played.error
        if self.coding is not None and (rest := self.coding.end()):
            yield rest

    def _leave(self) -> None:
        played = self._played
        if played.over:
            return
        played.over = True
        so_far = Streamed(played.head, played.pieces[: played.read])
        if played.how == "complete" and self._done is not None and self._done(so_far):
            return
        played.left(played.read)

    def close(self) -> None:
        """See `Stream.close`."""
        self._leave()

    async def aclose(self) -> None:
        """See `Stream.aclose`."""
        self._leave()


def _stopped(error: BaseException) -> bool:
    """Whether this stops code from outside: a cancelled task, Ctrl-C, a generator that is thrown away."""
    return isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit)


# --- as JSON ----------------------------------------------------------------------------------------------------------


def pieces_wire(pieces: Sequence[Piece]) -> list[Json]:
    """Pieces as JSON: `[ms, text]`, or `[ms, {"$bytes": base64}]` where a piece alone is no UTF-8."""
    return [[ms, _data_wire(data)] for ms, data in pieces]


def _data_wire(data: bytes) -> Json:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"$bytes": base64.b64encode(data).decode("ascii")}


def pieces_of(wire: Json) -> list[Piece]:
    """The reverse of `pieces_wire`. Raises `ValueError` for anything else."""
    return [_piece_of(item) for item in wire] if isinstance(wire, list) else [_piece_of(wire)]


def _piece_of(wire: Json) -> Piece:
    match wire:
        case [int() | float() as ms, str() as text] if not isinstance(ms, bool):
            return float(ms), text.encode("utf-8", "surrogatepass")
        case [int() | float() as ms, {"$bytes": str() as coded}] if not isinstance(ms, bool):
            return float(ms), base64.b64decode(coded, validate=True)
        case _:
            raise ValueError("a piece of a stream is neither [ms, text] nor [ms, bytes]")
