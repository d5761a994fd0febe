"""Whatever is wrong with Loupe, the program does the same: same results, same exceptions, no hang, one warning.

The programs here run bare, then recorded while Loupe is off, has no disk left, loses its database, or fails inside.
"""

from __future__ import annotations

import asyncio
import concurrent.futures as futures
import importlib
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.ports import ambient, codecs
from agentloupe.ports.streams import Streamed, aopen_stream
from agentloupe.store import open_url
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.call import Call
from tests.faults.test_disks import mounted
from tests.support import some_of

pytestmark = pytest.mark.faults

Program = Callable[[], Any]

HALFWAY: list[Callable[[], object]] = []
"""What happens in the middle of a program."""


@pytest.fixture(autouse=True)
def fresh(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUPE_WRITE_WITHOUT_STORE", "allow")
    HALFWAY.clear()


# --- the programs -------------------------------------------------------------------------------------------------------


def halfway() -> None:
    for happens in HALFWAY:
        happens()
    HALFWAY.clear()


@loupe.tool(effect="read")
def look(what: Any) -> Any:
    time.sleep(0.001)
    if what == "nothing":
        raise LookupError("nothing", 404)
    return {"seen": what}


@loupe.tool(effect="write")
def put(what: Any) -> str:
    return f"put {what}"


@loupe.tool(effect="read")
async def alook(what: Any, seconds: float = 0.001) -> Any:
    await asyncio.sleep(seconds)
    if what == "nothing":
        raise LookupError("nothing", 404)
    return {"seen": what}


def _encoded(value: Any) -> Any:
    return value.data.decode() if isinstance(value, Streamed) else codecs.encode(value).wire


def _to_model(about: Any, *, streamed: bool = False) -> Call:
    request: Any = {"model": "m", "messages": [{"role": "user", "content": repr(about)}]}
    return Call(kind="llm", name="chat m", input=request, encode=_encoded, decode=codecs.decode, streamed=streamed)


def plain() -> Any:
    """Calls one after another, one of which fails."""
    seen: list[Any] = [look(1), put("a")]
    halfway()
    try:
        look("nothing")
    except LookupError as error:
        seen.append(error.args)
    seen += [look(2), put("b"), loupe.env("NOT_THERE"), ambient.call(_to_model(seen), lambda: "well")]
    return seen


def fails() -> Any:
    """Ends with an exception of its own."""
    look(1)
    halfway()
    return look("nothing")


def loop() -> Any:
    """gather, a limit that runs out and one that does not, tasks, a cancel."""

    async def late() -> str:
        try:
            async with asyncio.timeout(0.02):
                await alook("late", 30)
        except TimeoutError:
            return "too late"
        return "in time"

    async def stopped() -> str:
        task = asyncio.create_task(alook("never", 30))
        await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.wait([task])
        return f"cancelled {task.cancelled()}"

    async def main() -> Any:
        first = await asyncio.gather(*(alook(who) for who in range(4)), late(), stopped())
        halfway()
        rest = await asyncio.gather(*(alook(who) for who in ("x", "nothing")), late(), return_exceptions=True)
        in_time = await asyncio.wait_for(alook("soon"), 30)
        return first, [repr(one) for one in rest], in_time

    return asyncio.run(main())


def pool() -> Any:
    """A pool smaller than its work, plain threads around a queue, a lock, and waits that run out."""
    told: queue.Queue[Any] = queue.Queue()
    lock, hold, seen = threading.Lock(), threading.Event(), list[Any]()

    def work(who: Any) -> Any:
        with lock:
            seen.append(who)
        return look(who)

    def consume() -> None:
        while (one := told.get()) is not None:
            seen.append(look(one))

    with futures.ThreadPoolExecutor(2) as executor:
        done = list(executor.map(work, range(5)))
        halfway()
        broken = executor.submit(look, "nothing").exception()
        late = futures.wait([executor.submit(hold.wait)], timeout=0.005)
        hold.set()
    thread = threading.Thread(target=consume)
    thread.start()
    for one in ("a", "b", None):
        told.put(one)
    thread.join()
    with pytest.raises(queue.Empty):
        told.get(timeout=0.005)
    return done, repr(broken), [len(part) for part in late], sorted(map(repr, seen))


def streams() -> Any:
    """Two streams at once, and one that breaks off."""

    async def pieces(name: str) -> AsyncIterator[bytes]:
        for number in range(3):
            await asyncio.sleep(0.001)
            if name == "bad" and number == 2:
                raise ConnectionError("gone")
            yield f"{name}{number}".encode()

    async def listen(name: str) -> Any:
        async def opens() -> Any:
            return pieces(name)

        reply = await aopen_stream(_to_model(name, streamed=True), opens, lambda _: {"status": 200})
        source: Any = reply.raw if reply.stream is None else reply.stream.abytes(reply.raw)
        return [data async for data in source]

    async def main() -> Any:
        both = await asyncio.gather(listen("a"), listen("b"))
        halfway()
        return both, [repr(one) for one in await asyncio.gather(listen("bad"), listen("c"), return_exceptions=True)]

    return asyncio.run(main())


PROGRAMS = [plain, fails, loop, pool, streams]


# --- running them -------------------------------------------------------------------------------------------------------


def outcome(program: Program) -> str:
    """What comes of a program: its result or its exception."""
    try:
        return repr(program())
    except Exception as error:  # whatever it is, it is compared
        return f"{type(error).__name__}{error.args}"


def recorded(program: Program, db: Path | None = None) -> str:
    """The same with Loupe around it."""
    opener = RecordOpener(open_url(db) if db is not None else None)
    with ambient.opening_with(opener):
        return outcome(loupe.agent(name=program.__name__)(program))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of Loupe; that a program asks no model is no trouble."""
    texts = [one.getMessage() for one in caplog.records if one.name.startswith("agentloupe") and one.levelno >= 30]
    return [text for text in texts if "without one recorded model call" not in text]


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.__name__)
def program(request: pytest.FixtureRequest) -> Program:
    found: Program = request.param
    return found


# --- what may be wrong --------------------------------------------------------------------------------------------------


def test_nothing_is_wrong(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    assert recorded(program) == outcome(program)
    assert said(caplog) == []


@pytest.mark.parametrize("schedule", ["off", "no_baton"])
def test_nothing_is_gated(program: Program, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUPE_SCHEDULE", schedule)
    assert recorded(program) == outcome(program)


def test_the_store_cannot_be_had(program: Program, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    Path("file").touch()
    monkeypatch.setenv("LOUPE_DB", "file/loupe.db")
    assert recorded(program) == outcome(program)
    assert len(said(caplog)) == 1


def test_the_disk_is_full(program: Program, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with mounted(tmp_path / "disk", "size=512k") as disk:
        HALFWAY.append(lambda: _fill(disk))
        assert recorded(program, disk / "loupe.db") == outcome(program)
    assert len(said(caplog)) == 1


def _fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as filler:
        for size in (4096, 1):
            try:
                while filler.write(b"x" * size):
                    pass
            except OSError:
                continue


@pytest.mark.parametrize("way", ["deleted", "overwritten"])
def test_the_database_is_gone_in_the_middle(program: Program, way: str, caplog: pytest.LogCaptureFixture) -> None:
    def goes() -> None:
        if way == "overwritten":
            Path("kept/loupe.db").write_bytes(b"not a database " * 1000)
        else:
            for file in Path("kept").iterdir():
                file.unlink()

    HALFWAY.append(goes)
    assert recorded(program, Path("kept/loupe.db")) == outcome(program)
    assert len(said(caplog)) <= 1


class Injected(Exception):
    """A bug of ours."""


@contextmanager
def breaking(point: str, after: int, patch: pytest.MonkeyPatch) -> Generator[list[int]]:
    """A function of Loupe raises, except for the first times that it is called."""
    module, _, names = point.partition(":")
    owner: Any = importlib.import_module(f"agentloupe.{module}")
    *path, name = names.split(".")
    for part in path:
        owner = getattr(owner, part)
    plain = getattr(owner, name)
    calls = [0]

    def breaks(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] > after:
            raise Injected(point)
        return plain(*args, **kwargs)

    with patch.context() as patched:
        patched.setattr(owner, name, breaks)
        yield calls


RECORDER = ["_open", "_asked", "_opened", "_close", "_encode", "_store_end"]
CLEANER = ["value", "facts", "attrs", "named", "call", "request", "output", "started"]
SCRIBE = ["started", "finished", "asked", "opened", "stream_opened", "streamed", "closed", "read", "scheduled"]
SCHEDULE = ["_pick", "_pump", "_hand_over", "_quiet", "_wait", "_flush", "_release"]
AT_THE_END = ("_flush", "_release", "flush", "close")
"""When nothing depends on it any more, or another tries again."""
POINTS = [
    *(f"engine.recorder:Recorder.{name}" for name in RECORDER),
    *(f"engine.cleaning:Cleaner.{name}" for name in CLEANER),
    *(f"ports.scribe:Scribe.{name}" for name in SCRIBE),
    *(f"ports.schedule.core:Schedule.{name}" for name in SCHEDULE),
    *(f"ports.schedule.gate:Gate.{name}" for name in ("_sit_down", "_come", "_look", "_rest", "_busy")),
    *(
        "ports.codecs.walk:Encoder._deep",
        "ports.schedule.order:Order.head",
        "engine.cleaning:scrub",
        "engine.cleaning:scrub_text",
        "ports.pack:Packer.pack",
    ),
    *("engine.book:Book.append", "engine.book:Book.check", "ports.pack:Packer.request"),
    *(f"store.writer:SqliteWriter.{name}" for name in ("append", "_append", "_commit", "flush", "close")),
    *("store.sqlite:SqliteStore.start",),
]


def _named(value: Any) -> str:
    return str(getattr(value, "__name__", value))


INJECTED = [(point, after, program) for point in POINTS for after in (0, 2) for program in PROGRAMS]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "after", "program"),
    some_of(INJECTED, lambda n: n % len(PROGRAMS) == n // len(PROGRAMS) % len(PROGRAMS), _named),
)
def test_a_bug_is_injected(
    program: Program, point: str, after: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each point is broken in at least two of the five programs, and each program at every fifth point; `make test-all`: all of them."""
    bare = outcome(program)
    with breaking(point, after, monkeypatch) as calls:
        assert recorded(program, Path("kept/loupe.db")) == bare
    warnings = said(caplog)
    assert len(warnings) <= (3 if "codecs" in point else 1), warnings  # of codecs: one for each type that is lost
    assert len(set(warnings)) == len(warnings)
    assert warnings or calls[0] <= after or point.endswith(AT_THE_END), "it goes on, and says so"
