"""Answers that come in pieces: the driver of a streamed call, and the handle between its bytes and the boundary.

    reply = open_stream(call, send, head)        # async: `await aopen_stream(...)`
    reply.stream is None                         # it was a whole answer: `reply.value`
    for data in reply.stream.bytes(source): ...  # live: what `source` gives, told to the boundary; replayed: what was recorded

What is recorded are the bytes that a transport gives to the library above it, so that the same library reads the same
bytes in a replay. Pieces are passed on at once. Two moments are inputs and take turns: that the answer opens, and that it
ends. A program that leaves a stream on its own account waits for nobody.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, runtime_checkable

from agentloupe.ports import ambient
from agentloupe.ports.protocols import Boundary, Perform, Serve
from agentloupe.ports.schedule.core import Schedule
from agentloupe.ports.schedule.parts import PieceTurn
from agentloupe.ports.surroundings import with_prompt
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json

__all__ = [
    "END_OF_STREAM",
    "Coding",
    "How",
    "Piece",
    "Played",
    "Reply",
    "Stream",
    "StreamBoundary",
    "Streamed",
    "aopen_stream",
    "in_turn",
    "open_stream",
    "pieces_of",
    "pieces_wire",
]

R = TypeVar("R")

How = Literal["complete", "left_early", "cancelled", "broken", "open"]
"""How a stream ended: read to its end; the program stopped reading; the program was stopped while it read; the connection
failed; nobody knows (the process was killed, or the stream is still being read)."""

END_OF_STREAM = "+"
"""What is put behind the id of a call to name the turn of its stream's end; that of its beginning is the call's own."""

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
        cancels: how often the program cancelled it while it was read, and had its end nonetheless.
        lost: the program cancelled it when its end was there and waited for its turn.
        waiting: the run ended while the program waited for a piece: nobody knows what would have come.
        facts: what else its adapter finds out about it, for headers.
    """

    head: Json
    pieces: list[Piece] = field(default_factory=list[Piece])
    how: How = "open"
    error: BaseException | None = None
    closed: bool = False
    cancels: int = 0
    lost: bool = False
    waiting: bool = False
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
        ended: is told that the end was handed over.
        read: pieces that the program has taken.
        over: the program has come to the end, or left.
    """

    past: Callable[[], BaseException] = AssertionError
    left: Callable[[int], None] = lambda _: None
    ended: Callable[[], None] = lambda: None
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


def in_turn(how: Json, error_class: Json, lost: Json) -> bool:
    """Whether the end of a stream is an input of the program, with a place in the order of the tape.

    A program that leaves early does so by itself; what stops it from outside (Ctrl-C) stops it at once.
    """
    if how == "cancelled":
        return lost is not True and str(error_class).endswith("CancelledError")
    return how in ("complete", "broken")


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


def open_stream(request: Call, perform: Callable[[], R], head: Head[R], done: Done | None = None) -> Reply[R]:
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
    request = with_prompt(request)
    decision = boundary.decide(request)
    schedule = ambient.waits(request)
    if isinstance(decision, Serve):
        return _served(ambient.served(decision, schedule), decision, schedule, done)
    opening = _Opening(boundary, request, decision, schedule, head)
    ambient.in_turn(opening, perform)
    return opening.reply(done)


async def aopen_stream(
    request: Call, perform: Callable[[], Awaitable[R]], head: Head[R], done: Done | None = None
) -> Reply[R]:
    """Async twin of `open_stream`."""
    boundary = ambient.current()
    if boundary is None:
        raw = await perform()
        return Reply(raw, raw)
    request = with_prompt(request)
    decision = boundary.decide(request)
    schedule = ambient.waits(request)
    if isinstance(decision, Serve):
        return _served(await ambient.aserved(decision, schedule), decision, schedule, done)
    opening = _Opening(boundary, request, decision, schedule, head)
    try:
        await ambient.ain_turn(opening, perform)
    except BaseException as error:
        await opening.lost(error)
        raise
    return opening.reply(done)


Done = Callable[[Streamed], bool]


def _served(value: object, answer: Serve, schedule: Schedule | None, done: Done | None) -> Reply[Any]:
    if isinstance(value, Played):
        turn = _Turn(schedule, answer.call_id)
        return Reply(stream=_PlayedStream(value, turn, done))
    return Reply(value=value)


class _Opening(ambient.End):
    """The beginning of an answer: told when it is its turn, as the end of the call where the answer came whole."""

    __slots__ = ("_head", "_look", "raw")

    def __init__(
        self, boundary: Boundary, request: Call, perform: Perform, schedule: Schedule | None, look: Head[Any]
    ) -> None:
        super().__init__(boundary, request, perform, schedule)
        self._look = look
        self._head: Json = None
        self.raw: Any = None

    def tell(self) -> None:
        """Tells the boundary what came."""
        self.raw = self.value
        self._head = self._look(self.raw) if self.error is None else None
        if self._head is None or not isinstance(self.boundary, StreamBoundary):
            super().tell()
            return
        self.perform.ended = ambient.monotonic_ms()
        self.boundary.opened(self.perform, self._head)

    def reply(self, done: Done | None) -> Reply[Any]:
        """What the adapter gets."""
        if self._head is None:
            return Reply(self.raw, self.value)
        if not isinstance(self.boundary, StreamBoundary):
            return Reply(self.raw, self.raw)
        turn = _Turn(self.schedule, self.call_id)
        return Reply(self.raw, stream=_LiveStream(self.boundary, self.perform, self._head, turn, done))

    async def lost(self, error: BaseException) -> None:
        """The program was cancelled while the answer, which had begun to come, waited for its turn."""
        if self._head is None:
            return
        self.perform.ended = ambient.monotonic_ms()
        self.boundary.finished(self.perform, Streamed(self._head, how="cancelled", error=error))
        closing = getattr(self.raw, "aclose", None) or getattr(self.raw, "close", None)
        if closing is not None and inspect.isawaitable(closed := closing()):
            await closed


class _Turn:
    """The turn of a stream's end."""

    __slots__ = ("_call_id", "_id", "_schedule")

    def __init__(self, schedule: Schedule | None, call_id: str | None) -> None:
        self._schedule = schedule if call_id is not None else None
        self._call_id = str(call_id)
        self._id = f"{call_id}{END_OF_STREAM}"

    def wait(self) -> None:
        """Waits in a thread."""
        if self._schedule is not None:
            self._schedule.turn(self._id)

    async def await_(self, *, cancelled: bool) -> BaseException | None:
        """Waits in a task; what is to be raised in place of the end, where the program was cancelled meanwhile.

        `cancelled`: it was so already while it read, or is so on the tape: that is part of the end.
        """
        return None if self._schedule is None else await ambient.aturn(self._schedule, self._id, cancelled=cancelled)

    def piece(self, number: int, *, live: bool) -> None:
        """Waits in a thread for the turn of a piece: by its number, from 1 on."""
        if self._schedule is not None and not self._schedule.piece(PieceTurn(self._call_id, number)) and live:
            self._schedule.back()

    async def apiece(self, number: int, *, cancelled: bool) -> BaseException | None:
        """The same in a task; what is to be raised in place of the piece, where the program was cancelled meanwhile."""
        if self._schedule is None:
            return None
        return await ambient.apiece(self._schedule, PieceTurn(self._call_id, number), cancelled=cancelled)

    def away(self) -> None:
        """This thread waits for a piece."""
        if self._schedule is not None:
            self._schedule.away()

    def back(self) -> None:
        """It will not come."""
        if self._schedule is not None:
            self._schedule.back()


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

    def close(self, source: Callable[[], object] | None) -> None:
        """The program reads no more; after the end that says nothing new. `source` closes what there is behind it."""
        ...

    async def aclose(self, source: Callable[[], Awaitable[object]] | None) -> None:
        """Async twin of `close`."""
        ...


class _LiveStream:
    """Passes bytes on while they are told to the boundary."""

    live = True

    def __init__(self, boundary: StreamBoundary, perform: Perform, head: Json, turn: _Turn, done: Done | None) -> None:
        self.head = head
        self.coding: Coding | None = None
        self._boundary = boundary
        self._perform = perform
        self._turn = turn
        self._done = done
        self._seen = Streamed(head)
        self._opened = perform.ended or ambient.monotonic_ms()

    def bytes(self, source: Iterable[bytes] | None) -> Iterator[bytes]:
        """See `Stream.bytes`."""
        reading = iter(source or ())
        while (data := self._next(reading)) is not None:
            self._piece(data)
            yield data
        self._end("complete")

    def _next(self, reading: Iterator[bytes]) -> bytes | None:
        """The next piece; `None` when there is none."""
        self._turn.away()
        try:
            with ambient.performed(self._perform):
                data = next(reading, None)
        except BaseException as error:
            how = _how_of(error)
            if how == "cancelled":
                self._turn.back()
            self._end(how, error)
            raise
        if data is not None:
            self._turn.piece(len(self._seen.pieces) + 1, live=True)
        return data

    async def abytes(self, source: AsyncIterable[bytes] | None) -> AsyncIterator[bytes]:
        """See `Stream.abytes`."""
        reading = cast("AsyncIterable[bytes]", source).__aiter__()
        while True:
            cancels = ambient.cancels()
            self._perform.waiting = True
            try:
                with ambient.performed(self._perform):
                    data = await anext(reading)
            except StopAsyncIteration:
                self._seen.cancels += cancels.count()
                break
            except BaseException as error:
                self._seen.cancels += cancels.count()
                await self._aend(_how_of(error), error)
                raise
            self._seen.cancels += (count := cancels.count())
            lost = await self._turn.apiece(len(self._seen.pieces) + 1, cancelled=count > 0)
            if lost is not None:
                self._seen.cancels += cancels.count() - count
                await self._aend(_how_of(lost), lost)
                raise lost
            self._perform.waiting = False
            self._piece(data)
            yield data
        await self._aend("complete")

    def _piece(self, data: bytes) -> None:
        if self._seen.how != "open":
            return
        meant = data if self.coding is None else self.coding.decode(data)
        piece = (round(ambient.monotonic_ms() - self._opened, 3), meant)
        self._seen.pieces.append(piece)
        self._boundary.streamed(self._perform, piece)

    def _end(self, how: How, error: BaseException | None = None) -> None:
        """The end is handed over: what it says by itself in its turn, what the program does at once."""
        if self._seen.how != "open":
            return
        self._perform.ended = ambient.monotonic_ms()
        try:
            if in_turn(how, type(error).__name__, lost=False):
                self._turn.wait()
        finally:
            self._tell(how, error)

    async def _aend(self, how: How, error: BaseException | None = None) -> None:
        if self._seen.how != "open":
            return
        self._perform.ended = ambient.monotonic_ms()
        lost: BaseException | None = None
        try:
            if in_turn(how, type(error).__name__, lost=False):
                lost = await self._turn.await_(cancelled=how == "cancelled" or self._seen.cancels > 0)
        finally:
            self._seen.lost = lost is not None
            self._tell(*((how, error) if lost is None else ("cancelled", lost)))
        if lost is not None:
            raise lost

    def _tell(self, how: How, error: BaseException | None) -> None:
        if self._seen.how == "open":
            self._seen.how, self._seen.error = how, error
            try:
                self._boundary.finished(self._perform, self._seen)
            finally:
                self._seen.error = None  # it knows the frames that know this stream, as in `End.tell`

    def _left(self) -> How:
        """How a stream ends that the program closes."""
        self._seen.closed = self._done is not None and self._done(self._seen)
        return "complete" if self._seen.closed else "left_early"

    def close(self, source: Callable[[], object] | None) -> None:
        """See `Stream.close`."""
        try:
            if self._seen.how == "open":
                self._end(self._left())
        finally:
            if source is not None:
                with ambient.performed(self._perform):
                    source()

    async def aclose(self, source: Callable[[], Awaitable[object]] | None) -> None:
        """See `Stream.aclose`."""
        try:
            if self._seen.how == "open":
                await self._aend(self._left())
        finally:
            if source is not None:
                with ambient.performed(self._perform):
                    await source()


class _PlayedStream:
    """Gives the recorded bytes again."""

    live = False

    def __init__(self, played: Played, turn: _Turn, done: Done | None) -> None:
        self.head = played.head
        self.coding: Coding | None = None
        self._played = played
        self._turn = turn
        self._done = done

    def bytes(self, source: Iterable[bytes] | None) -> Iterator[bytes]:
        """See `Stream.bytes`."""
        played = self._played
        for data in self._pieces():
            self._turn.piece(played.read, live=False)
            yield data
        if played.over:
            return
        self._check()
        if in_turn(played.how, type(played.error).__name__, played.lost):
            self._turn.wait()
        yield from self._last()

    async def abytes(self, source: AsyncIterable[bytes] | None) -> AsyncIterator[bytes]:
        """See `Stream.abytes`."""
        played = self._played
        for data in self._pieces():
            lost = await self._turn.apiece(played.read, cancelled=played.cancels > 0)
            if lost is not None:
                played.over = True
                raise lost
            yield data
        if played.waiting and not played.over and (lost := await ambient.until_cancelled()) is not None:
            self.close(None)
            raise lost
        if played.over:
            return
        self._check()
        await self._aturn()
        for data in self._last():
            yield data

    async def _aturn(self) -> None:
        played = self._played
        stopped = played.how == "cancelled" and not played.lost
        lost = await self._turn.await_(cancelled=stopped or played.cancels > 0)
        if lost is not None:
            played.over = True
            raise lost

    def _pieces(self) -> Iterator[bytes]:
        played = self._played
        while played.read < len(played.pieces) and not played.over:
            data = played.pieces[played.read][1]
            played.read += 1
            yield data if self.coding is None else self.coding.encode(data)

    def _check(self) -> None:
        """What the program reads beyond the last piece is an end, also where it had closed a stream that had said all."""
        if self._played.how not in ("complete", "broken", "cancelled"):
            raise self._played.past()

    def _last(self) -> Iterator[bytes]:
        played = self._played
        self._over()
        if played.how != "complete" and played.error is not None:
            raise played.error
        if self.coding is not None and (rest := self.coding.end()):
            yield rest

    def _over(self) -> None:
        self._played.over = True
        self._played.ended()

    def _whole(self) -> bool:
        """Whether the program has come to the recorded end, and need not read on."""
        played = self._played
        so_far = Streamed(played.head, played.pieces[: played.read])
        return played.how == "complete" and self._done is not None and self._done(so_far)

    def close(self, source: Callable[[], object] | None) -> None:
        """See `Stream.close`."""
        if self._played.over:
            return
        if self._whole():
            self._turn.wait()
            self._over()
        else:
            self._played.over = True
            self._played.left(self._played.read)

    async def aclose(self, source: Callable[[], Awaitable[object]] | None) -> None:
        """See `Stream.aclose`."""
        if self._played.over:
            return
        if self._whole():
            await self._aturn()
            self._over()
        else:
            self._played.over = True
            self._played.left(self._played.read)


def _how_of(error: BaseException) -> How:
    """How a stream ends that raises this: what stops code from outside (a cancelled task, Ctrl-C) does not break it."""
    return "broken" if isinstance(error, Exception) else "cancelled"


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
