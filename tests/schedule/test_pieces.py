"""Pieces of streams are inputs where somebody else could see when they came: what follows from that is replayed as it was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.tape import read_tape
from agentloupe.ports import ambient
from agentloupe.ports.recording import Recording
from agentloupe.ports.schedule.parts import PieceTurn
from agentloupe.ports.schedule.pieces import Passed, passed_in
from agentloupe.ports.streams import aopen_stream
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.sessions import RecordOpener
from tests.schedule.test_inputs import WAITS, _ask, _stream, fetch, passes, recorded, send, types_of
from tests.tapes import edited

Say = Callable[[str], None]


@pytest.fixture(autouse=True)
def fresh() -> None:
    WAITS.clear()


async def _read(name: str, pieces: int, say: Say) -> None:
    async def come() -> AsyncIterator[bytes]:
        for number in range(pieces):
            await asyncio.sleep(WAITS.get(name, 0) / 1000)
            yield f"{name}{number}".encode()

    async def opens() -> AsyncIterator[bytes]:
        return come()

    reply = await aopen_stream(_stream(name), opens, lambda _: {"status": 200})
    assert reply.stream is not None
    async for data in reply.stream.abytes(reply.raw):
        say(data.decode())


def _readers(names: str) -> Callable[[], Any]:
    @loupe.agent(name="readers")
    async def readers() -> Any:
        seen: list[str] = []
        await asyncio.gather(*(_read(name, 4, seen.append) for name in names))
        return seen

    return readers


def _turns(recording: Recording) -> list[str]:
    return [turn.id for turn in read_tape(recording).turns()]


def test_how_pieces_came_between_each_other_is_on_the_tape() -> None:
    WAITS.update(a=1, b=2)
    recording, seen = recorded(_readers("ab"))
    of = {"a": "0/a1.0", "b": "0/a2.0"}
    pieces = [turn for turn in _turns(recording) if not turn.endswith(("+", ".0"))]
    assert pieces == [f"{of[piece[0]]}+{int(piece[1]) + 1}" for piece in seen]
    WAITS.clear()
    passes(recording, _readers("ab"))


def test_pieces_that_nobody_else_could_see_have_no_turns() -> None:
    @loupe.agent(name="reader")
    async def alone() -> Any:
        seen: list[str] = []
        await _read("a", 3, seen.append)
        return seen

    recording, seen = recorded(alone)
    assert seen == ["a0", "a1", "a2"]
    assert "schedule.marked" not in types_of(recording)
    passes(recording, alone)


def test_a_recording_without_turns_of_pieces_is_replayed_as_ever() -> None:
    WAITS.update(a=1, b=2)
    recording, _ = recorded(_readers("ab"))
    older = edited(recording, lambda drafts: [draft for draft in drafts if draft.type != "schedule.marked"])
    assert set(_turns(older)) == {"0/a1.0", "0/a1.0+", "0/a2.0", "0/a2.0+"}
    WAITS.clear()
    report = loupe.replay(older, _readers("ab"), level="state")
    assert report.passed, report.text()


def test_a_stream_that_is_another_one_as_expected_takes_its_pieces_and_its_end_out_of_the_order() -> None:
    WAITS.update(a=1, b=2)
    recording, _ = recorded(_readers("ab"))
    WAITS.clear()
    expected = [{"kind": "name_changed", "name": "a"}]
    report = loupe.replay(recording, _readers("xb"), level="state", expect=expected)
    assert report.passed, report.text()


def test_a_task_that_is_cancelled_while_a_piece_waits_ends_there_in_a_replay_too() -> None:
    @loupe.agent(name="impatient")
    async def impatient() -> Any:
        seen: list[str] = []
        reading = asyncio.create_task(_read("a", 6, seen.append))
        while len(seen) < 3:
            await asyncio.sleep(0.001)
        reading.cancel()
        try:
            await reading
        except asyncio.CancelledError:
            seen.append("cancelled")
        return [seen, await fetch(str(len(seen)))]

    for wait in (0, 1, 3):
        WAITS.update(a=wait)
        recording, _ = recorded(impatient)
        WAITS.clear()
        passes(recording, impatient)


@loupe.agent(name="reads and asks")
async def reads_and_asks() -> Any:
    seen: list[str] = []

    async def beside() -> None:
        await asyncio.sleep(0.004)
        seen.append(str(await ambient.acall(_ask("b"), lambda: _answer())))

    await asyncio.gather(_read("a", 6, seen.append), beside())
    return [seen, await fetch(",".join(seen))]


async def _answer() -> Any:
    return {"choices": [{"message": {"role": "assistant", "content": "b"}}]}


def test_writes_that_pieces_have_set_off_come_behind_them() -> None:
    @loupe.agent(name="writes")
    async def writes() -> Any:
        seen: list[str] = []

        def write(piece: str) -> None:
            seen.append(piece)
            sending.append(asyncio.create_task(send(piece)))

        sending: list[asyncio.Task[str]] = []
        await asyncio.gather(*(_read(name, 4, write) for name in "ab"))
        seen += await asyncio.gather(*sending)
        return [seen, await fetch(",".join(seen))]

    WAITS.update(a=1, b=2, a0=1, b1=1)
    recording, _ = recorded(writes)
    WAITS.clear()
    passes(recording, writes)


def test_a_fork_amid_a_stream_hands_over_its_pieces_and_replays_as_it_was() -> None:
    WAITS.update(a=3)
    store = MemoryStore()
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        asyncio.run(reads_and_asks())
    run_id = opener.sessions[0].run_id
    asked = next(step for step in store.steps(run_id) if step.call_id == "0/a2.0")
    done = fork(run_id, reads_and_asks, from_step=asked.idx, store=store)
    passes(store.recording(done.candidates[0].id), reads_and_asks)


def test_pieces_are_written_as_spans_and_many_at_once() -> None:
    passed = Passed()
    for call, number in [("0.1", 3), ("0.1", 4), ("0.2", 1), ("0.1", 5), ("0.1", 7)]:
        passed.add(PieceTurn(call, number))
    assert not passed.many
    written = passed.take()
    assert written == [["0.1", 3, 4], ["0.2", 1, 1], ["0.1", 5, 5], ["0.1", 7, 7]]
    assert not passed
    assert [piece.id for piece in passed_in(written)] == ["0.1+3", "0.1+4", "0.2+1", "0.1+5", "0.1+7"]
    for number in range(500):
        passed.add(PieceTurn(f"0.{number % 2}", number + 1))
    assert passed.many


@pytest.mark.parametrize("wire", [None, "x", 3, [3], [["0.1", 2, 1]], [["0.1", 0, 1]], [["0.1", "1", 2]], [["0.1", 1]]])
def test_what_is_no_span_of_pieces_says_nothing(wire: Any) -> None:
    assert list(passed_in(wire)) == []


class _Enough(Exception):
    """A reader has seen what it wanted."""


def _racers(names: str) -> Callable[[], Any]:
    """Each leaves its stream after the second piece, and no other input comes after that."""

    async def second(name: str) -> str:
        seen: list[str] = []

        def say(piece: str) -> None:
            seen.append(piece)
            if len(seen) == 2:
                raise _Enough

        with contextlib.suppress(_Enough):
            await _read(name, 6, say)
        return seen[-1]

    @loupe.agent(name="racers")
    async def racers() -> Any:
        return [await done for done in asyncio.as_completed([second(name) for name in names])]

    return racers


@pytest.mark.parametrize("waits", [(5, 3, 1), (1, 5, 3), (3, 1, 5)])
def test_the_last_pieces_before_the_end_of_the_run_are_on_the_tape(waits: tuple[float, ...]) -> None:
    WAITS.update(zip("abc", waits, strict=True))
    recording, seen = recorded(_racers("abc"))
    name_of = {f"0/a{n}.0+2": name for n, name in enumerate("abc", 1)}
    assert seen == [f"{name_of[turn]}1" for turn in _turns(recording) if turn.endswith("+2")]
    WAITS.clear()
    passes(recording, _racers("abc"))


def _early(names: str) -> Callable[[], Any]:
    """It ends while its readers wait for their next pieces."""

    @loupe.agent(name="early")
    async def early() -> Any:
        pieces: asyncio.Queue[str] = asyncio.Queue()
        readers = [asyncio.create_task(_read(name, 50, pieces.put_nowait)) for name in names]
        seen = [await pieces.get() for _ in range(4)]
        return [*seen, len(readers)]

    return early


def test_a_run_that_ends_while_a_piece_is_waited_for_does_so_in_a_replay() -> None:
    WAITS.update(a=4, b=5)
    recording, _ = recorded(_early("ab"))
    left = [event for event in recording.events if event.attrs.get("stream") == "left_early"]
    assert [event.attrs.get("waiting") for event in left] == [True, True]
    WAITS.clear()
    passes(recording, _early("ab"))
