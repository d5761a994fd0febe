"""tracefork around the OpenAI client, in its own environment: it needs Python 3.12, so nothing of ours is imported here.

How it is used:

- Its recorder takes a client's transport. Its documentation shows Anthropic's client; OpenAI's has the same shape and goes
  the same way. It keeps the tape in memory until it is saved. With a checkpoint each call is committed as well, by
  opening a SQLite file for it (WAL, NORMAL: that survives SIGKILL, not a loss of power).
- A stream is read to its end before it is handed on.
- A replay compares SHA-256 of the body with the one recorded at the same place, always, and nothing of an answer.
- A fork runs the program again with recorded answers up to a call, whose answer is swapped; what comes after is done for
  real. Its engine hands Anthropic's client to the program, and the program here takes only the transport out of that.
- Each request is kept whole, compressed in the tape, plain in the checkpoint. Nothing is taken out unless told to.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers import load
from bench.timing import Batch

PEER = "tracefork"
"""Its environment."""
KEEPING = {"saved": "tracefork (tape saved at the end)", "checkpoint": "tracefork (each call in its checkpoint)"}
"""Both ways in which it keeps calls, as they are shown."""
BARE, CANNED, REPLAYED, STREAMED, FORKED = "bare there", "canned there", "tape replayed", "tape streamed", "tape forked"
"""What is measured there, beside both ways to record: the bare client with the server, and answered at once; tracefork."""

Request = dict[str, Any]


def _client(url: str, transport: Any = None) -> Any:
    http = None if transport is None else load("httpx2").Client(transport=transport)
    return load("openai").OpenAI(base_url=url, api_key="none", max_retries=0, http_client=http)


def _read(requests: str) -> list[Any]:
    return json.loads(Path(requests).read_text("utf-8"))


def _asking(requests: list[Request]) -> Callable[[Any], int]:
    def asks(client: Any) -> int:
        create = client.chat.completions.create
        for request in requests:
            create(**request)
        return len(requests)

    return asks


def _answering(answers: Iterator[bytes]) -> Any:
    """A transport that gives these answers, at once."""
    httpx2, headers = load("httpx2"), {"content-type": "application/json"}
    return httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=next(answers)))


def _paths(folder: str) -> Iterator[str]:
    Path(folder).mkdir()
    return (f"{folder}/{number}.db" for number in itertools.count())


@contextmanager
def _recording(client: Any, path: str, keeping: str) -> Generator[Any]:
    """The client to ask while it is recorded."""
    with load("tracefork").Recorder(client, checkpoint_path=path if keeping == "checkpoint" else None) as recorder:
        yield recorder.client
    if keeping == "saved":
        recorder.tape.save(path)


@contextmanager
def calls(url: str, folder: str, requests: str) -> Generator[dict[str, Batch]]:
    """Calls of the bare client, recorded in both ways, and replayed. Raises `Absent`."""
    tracefork, transports = load("tracefork"), load("tracefork.transport")
    asks, client, paths = _asking(_read(requests)), _client(url), _paths(folder)

    def recorded(keeping: str) -> Batch:
        def batch() -> int:
            with _recording(client, next(paths), keeping) as recorder:
                return asks(recorder)

        return batch

    with _recording(client, kept := next(paths), "saved") as recorder:
        asks(recorder)
    tape = tracefork.Tape.load(kept)
    canned = _client(url, _answering(itertools.repeat(tape.exchange(0)[1])))

    def replayed() -> int:
        transport = transports.TraceforkTransport("replay", tracefork.Tape.load(kept))
        count = asks(_client(url, transport))
        assert transport.fully_consumed(), "the same calls were made"
        return count

    yield {
        BARE: lambda: asks(client),
        CANNED: lambda: asks(canned),
        REPLAYED: replayed,
        **{keeping: recorded(keeping) for keeping in KEEPING},
    }


@contextmanager
def streams(url: str, folder: str, request: Request) -> Generator[dict[str, Callable[[], float]]]:
    """Seconds to the first chunk of a stream, bare and recorded. Raises `Absent`."""
    load("tracefork")
    client, paths = _client(url), _paths(folder)

    def first(asked: Any) -> float:
        began = time.perf_counter()
        stream = asked.chat.completions.create(**request)
        next(iter(stream))
        took = time.perf_counter() - began
        for _ in stream:
            pass
        return took

    def recorded() -> float:
        with _recording(client, next(paths), "saved") as recorder:
            return first(recorder)

    yield {BARE: lambda: first(client), STREAMED: recorded}


@contextmanager
def forks(url: str, folder: str, requests: str) -> Generator[dict[str, Batch]]:
    """Forks of these calls at the last one, stored; and what the calls take by themselves. Raises `Absent`."""
    tracefork, forking, httpx2 = load("tracefork"), load("tracefork.fork"), load("httpx2")
    asked = _read(requests)
    asks, client, paths = _asking(asked), _client(url), _paths(folder)
    with tracefork.Recorder(client) as recorder:
        asks(recorder.client)
    last = len(asked) - 1
    answer = recorder.tape.exchange(last)[1]
    canned, live = _client(url, _answering(itertools.repeat(answer))), httpx2.HTTPTransport()
    store = tracefork.TapeStore(next(paths))
    run = store.save_tape(recorder.tape)
    spec = forking.BranchSpec(last, answer)

    def program(theirs: Any) -> None:
        asks(client.copy(http_client=theirs._client))

    def batch() -> int:
        branch = forking.ForkEngine.fork(store.load_tape(run), spec, program, post_fork_transport=live)
        assert branch.prefix_replayed == last, "all calls but the last"
        store.save_branch(
            parent_run_id=run,
            divergence_step=last,
            delta_tape=branch.delta_tape,
            branch_digest=branch.branch_digest,
            confinement_tier=branch.confinement_tier,
        )
        return 1

    def bare() -> int:
        asks(canned)
        return 1

    yield {CANNED: bare, FORKED: batch}
    store.close()


def stored(folder: str, exchanges: str) -> None:
    """Records these requests with these answers, without the SDK's share, and prints the size of the file in both ways."""
    pairs, url, sizes = _read(exchanges), "http://127.0.0.1:9/v1", dict[str, int]()
    for keeping, path in zip(KEEPING, _paths(folder), strict=False):
        answers = iter([json.dumps(answer).encode() for _, answer in pairs])
        with _recording(_client(url, _answering(answers)), path, keeping) as recorder:
            for request, _ in pairs:
                recorder._client.post(f"{url}/chat/completions", json=request)
        sizes[keeping] = Path(path).stat().st_size
    print(json.dumps(sizes))


def killed(path: str, keeping: str, url: str, requests: str) -> None:
    """Makes these calls, recorded, and ends as SIGKILL does it."""
    with _recording(_client(url), path, keeping) as recorder:
        _asking(_read(requests))(recorder)
        os.kill(os.getpid(), signal.SIGKILL)


def kept(path: str) -> None:
    """Prints how many calls can be read."""
    tape, _ = load("tracefork.checkpoint").recover_checkpoint(path)
    print(len(tape.exchanges))


if __name__ == "__main__":
    {"stored": stored, "killed": killed, "kept": kept}[sys.argv[1]](*sys.argv[2:])
