"""What becomes of a recorded stream: views, secrets, forks, exports, and a process that is killed in the middle of it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.project import load_step, stream_of
from agentloupe.engine.replayer import Replayer
from agentloupe.engine.tape import read_tape
from agentloupe.engine.verify import verify
from agentloupe.ports import ambient
from agentloupe.ports.recording import Recording
from agentloupe.ports.streams import pieces_of
from agentloupe.providers.assembling import assembled
from agentloupe.store import open_url
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from tests.cli.driving import Command
from tests.stream_support import Player, answer_of, http_client, model_step, playing, stored_bytes
from tests.support import ROOT

CANARY = "sk-ant-api03-" + "LoupeCanary24" * 4
WORDS = ["The", " tide", " turns"]


def sse(*texts: str, usage: dict[str, int] | None = None) -> list[bytes]:
    """A streamed chat completion, an event for each text."""
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if usage is not None:
        chunks.append({"choices": [], "model": "gpt-4o", "usage": usage})
    return [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


def asks(server: Player, *messages: str, model: str = "m") -> Any:
    """An agent that asks once for each message and returns what was streamed, text by text."""

    @loupe.agent(name="streaming")
    def streaming() -> list[str]:
        said: list[str] = []
        with http_client("httpx", asynchronous=False) as client:
            for message in messages:
                body = {"model": model, "messages": [{"role": "user", "content": message}], "stream": True}
                with client.stream("POST", f"{server.url}/v1/chat/completions", json=body) as response:
                    said.append("".join(_text(line) for line in response.iter_lines()))
        return said

    return streaming


def _text(line: str) -> str:
    if not line.startswith("data: {"):
        return ""
    choices = json.loads(line.removeprefix("data: "))["choices"]
    return choices[0]["delta"].get("content", "") if choices else ""


@pytest.mark.usefixtures("workdir")
def test_a_streamed_step_is_shown_priced_checked_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Command(capsys)
    pytest.importorskip("httpx")
    with playing(sse(*WORDS, usage={"prompt_tokens": 11, "completion_tokens": 6})) as server:
        done = loupe.record(asks(server, "hi", model="gpt-4o"))
    assert done.result == ["The tide turns"]
    shown = run("show", done.run_id, "--json").json
    (step,) = [s for s in shown["steps"] if s["kind"] == "llm"]
    assert step["output"]["content"] == "The tide turns"
    assert (step["input_tokens"], step["output_tokens"]) == (11, 6)
    assert step["cost"] is not None
    assert step["attrs"]["first_token_ms"] >= 0
    assert "first_token_ms" in run("show", done.run_id, str(step["idx"])).out
    assert run("verify", done.run_id).code == 0
    assert run("rebuild", done.run_id).code == 0
    file = tmp_path / "streamed.loupe"
    assert run("export", done.run_id, "-o", str(file)).code == 0
    assert replay(file, asks(server, "hi", model="gpt-4o")).passed
    same = run("compare", done.run_id, done.run_id, "--json")
    assert same.code == 0


@pytest.mark.usefixtures("workdir")
def test_a_deleted_or_changed_piece_is_damage() -> None:
    pytest.importorskip("httpx")
    with playing(sse(*WORDS)) as server:
        agent = asks(server, "hi")
        done = loupe.record(agent)
    store = loupe.open_store()
    recording = store.recording(done.run_id)
    (name,) = [e.bodies["pieces"] for e in recording.events if "pieces" in e.bodies][-1:]
    whole = {d: b for e in recording.events for d, b in recording.get(e.digests()).items()}
    for changed in (
        {**whole, name: whole[name].replace(b"tide", b"Tide")},
        {d: b for d, b in whole.items() if d != name},
    ):
        held = Recording(
            recording.run_id, recording.events, lambda names, c=changed: {n: c[n] for n in names if n in c}, "x"
        )
        replayer = Replayer(read_tape(held))
        with ambient.inside(replayer), pytest.raises(loupe.ReplayMismatch):
            _ask_once(server)
        assert replayer.report().verdict == "damaged"


def _ask_once(server: Player) -> None:
    with http_client("httpx", asynchronous=False) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        client.post(f"{server.url}/v1/chat/completions", json=body)


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_secret_in_a_stream_is_in_no_byte_on_disk(workdir: Path, size: int) -> None:
    """T10, the stream's part: also where it is cut over reads and over deltas."""
    pytest.importorskip("httpx")
    data = b"".join(sse("your key is ", CANARY[:9], CANARY[9:30], CANARY[30:], " keep it, page=2"))
    with playing([data[at : at + size] for at in range(0, len(data), size)]) as server:
        agent = asks(server, "hi")
        bare = agent()
        done = loupe.record(agent)
        assert done.result == bare
        assert CANARY in done.result[0]
    files = [file.read_bytes() for file in workdir.rglob("*") if file.is_file()]
    assert files
    for part in (CANARY, CANARY[9:30], CANARY[30:]):
        assert not any(part.encode() in content for content in files)
    stored = stored_bytes(done.run_id)
    assert CANARY[9:30].encode() not in stored
    assert b"page=2" in stored
    assert model_step(done.run_id).attrs["removed_from_stream"] == ["$.choices[0].delta.content"]
    assert "[removed:" in answer_of(done.run_id)["choices"][0]["message"]["content"]


@pytest.mark.usefixtures("workdir")
def test_a_fork_serves_streams_before_its_step_and_asks_from_there_on() -> None:
    pytest.importorskip("httpx")
    with playing(sse(*WORDS)) as server:
        agent = asks(server, "first", "second", "third")
        parent = loupe.record(agent)
        asked = server.asked
        server.parts = sse("now", " other", " words")
        forked = fork(parent.run_id, agent, from_step=2, model="m-2")
        assert server.asked == asked + 2
    new = forked.candidates[0].id
    store = loupe.open_store()
    steps = [load_step(store.recording(new), s) for s in store.steps(new) if s.kind == "llm"]
    said = [step.output["content"] for step in steps if isinstance(step.output, dict)]
    assert said == ["The tide turns", "now other words", "now other words"]
    assert [step.source for step in steps] == ["recorded", "live", "live"]
    assert [step.attrs["stream"] for step in steps] == ["complete"] * 3
    assert steps[1].input == {"model": "m-2", "messages": [{"role": "user", "content": "second"}], "stream": True}
    with playing(sse("never")) as other:
        report = replay(new, agent)
        assert (report.verdict, other.asked) == ("pass", 0), report.text()


@pytest.mark.faults
def test_a_killed_process_leaves_what_came_of_a_stream(tmp_path: Path) -> None:
    pytest.importorskip("httpx")
    database = tmp_path / "runs.db"
    with playing(sse("The tide turns. ", "Then ", "it ", "waits.")) as server:
        server.hold, server.after = threading.Event(), 3
        command = [sys.executable, str(ROOT / "tests" / "faults" / "stream_child.py")]
        with subprocess.Popen(
            [*command, f"{server.url}/v1/chat/completions"],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "LOUPE_DB": str(database)},
        ) as child:
            assert child.stdout is not None
            came = 0
            while came < sum(map(len, server.parts[:3])):
                came += int(child.stdout.readline())
            _until_stored(database, len(server.parts[0]))
            child.kill()
    store = open_url(database)
    (row,) = store.runs()
    assert row.status == "interrupted"
    recording = store.recording(row.id)
    assert verify(recording).ok
    (step,) = [s for s in store.steps(row.id) if s.kind == "llm"]
    assert step.status == "open"
    loaded: Any = load_step(recording, step, assembled)
    # All but a tail that might yet have become a secret.
    assert "The tide turns. Then it ".startswith(loaded.output["content"])
    assert len(loaded.output["content"]) >= len("The tide turns. ")
    store.close()


def _until_stored(database: Path, size: int) -> None:
    """Until the pieces are on disk: at most a moment after they came."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if database.exists():
            store = open_url(database)
            found = sum(len(stored_bytes_of(store, row.id)) for row in store.runs())
            store.close()
            if found >= size:
                return
        time.sleep(0.02)
    raise AssertionError("the pieces were not stored while the stream went on")


def stored_bytes_of(store: Any, run_id: str) -> bytes:
    steps = [step for step in store.steps(run_id) if step.kind == "llm"]
    return b"".join(stream_of(store.recording(run_id), step) for step in steps)


def test_pieces_are_stored_at_most_every_50_ms(workdir: Path) -> None:
    del workdir
    parts = [b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": "x"}}]}).encode() + b"\n\n"] * 400
    with playing(parts) as server:

        def worker() -> int:
            with http_client("httpx2", asynchronous=False) as client:
                asked = {"model": "m", "messages": [], "stream": True}
                with client.stream("POST", f"{server.url}/v1/chat/completions", json=asked) as response:
                    return sum(1 for _ in response.iter_raw())

        done = loupe.record(worker)
    recording = loupe.open_store().recording(done.run_id)
    batches = [pieces_of(recording.body(e.bodies["pieces"])) for e in recording.events if "pieces" in e.bodies]
    assert sum(len(batch) for batch in batches) == done.result
    took = max(ms for batch in batches for ms, _ in batch)
    assert len(batches) <= took / 50 + 2
