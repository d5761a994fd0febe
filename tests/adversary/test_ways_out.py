"""Ways out of a replay that no audit event tells of, and ways for a real tool into a fork."""

from __future__ import annotations

import functools
import multiprocessing
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.policy import ToolRule
from agentloupe.ports import ambient
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.errors import ForkRefused
from tests.adversary.test_threads import PAID, ask, pay

# ---------------------------------------------------------------- replay


def recorded(agent: Any, *args: Any) -> tuple[MemoryStore, Recording]:
    store, opener = MemoryStore(), RecordOpener(None)
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        agent(*args)
    return store, store.recording(opener.sessions[0].run_id)


@pytest.fixture
def peer() -> Iterator[tuple[socket.socket, list[bytes]]]:
    """A connection that was open before, and what arrives at its other end."""
    arrived: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        far.settimeout(5)
        with near, far:

            def listen() -> None:
                with suppress(OSError):
                    while data := far.recv(100):
                        arrived.append(data)

            thread = threading.Thread(target=listen)
            thread.start()
            yield near, arrived
            near.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("method", ["send", "sendall", "sendmsg"])
def test_nothing_is_sent_through_a_connection_that_was_open_before(method: str, peer: Any) -> None:
    near, arrived = peer
    sends: list[bool] = [False]

    @loupe.agent(name="sender")
    def sender() -> str:
        if sends[0]:
            with suppress(BaseException):
                getattr(near, method)([b"hello"] if method == "sendmsg" else b"hello")
        return "done"

    _, recording = recorded(sender)
    sends[0] = True
    report = replay(recording, sender)
    assert (report.verdict, report.reason) == ("diverged", "leak"), report.text()
    assert "open connection" in report.text()
    near.sendall(b"after the replay")
    assert method not in vars(socket.socket), "what was taken away is given back"
    near.shutdown(socket.SHUT_WR)
    assert b"hello" not in b"".join(arrived)


def test_another_thread_may_serve_somebody_while_a_replay_runs(peer: Any) -> None:
    near, _ = peer
    sent: list[int] = []
    go, done = threading.Event(), threading.Event()

    def serve() -> None:
        go.wait(5)
        sent.append(near.send(b"served"))
        done.set()

    @loupe.agent(name="waits")
    def waits(inside: bool) -> str:
        del inside
        go.set()
        done.wait(5)
        return "done"

    server = threading.Thread(target=serve)
    go_on = done.set
    go_on()
    _, recording = recorded(waits, True)
    go.clear()
    done.clear()
    server.start()
    assert replay(recording, waits).passed
    server.join()
    assert sent == [6]


def test_a_spawned_process_is_a_leak(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    spawns: list[bool] = [False]

    @loupe.agent(name="spawner")
    def spawner() -> str:
        if spawns[0]:
            with suppress(BaseException):
                multiprocessing.get_context("spawn").Process(target=os.mkdir, args=(str(touched),)).start()
        return "done"

    _, recording = recorded(spawner)
    spawns[0] = True
    report = replay(recording, spawner)
    assert (report.verdict, report.reason) == ("diverged", "leak")
    assert "starting a process" in report.text()
    assert not touched.exists()


# ---------------------------------------------------------------- fork


@loupe.agent(name="payer")
def payer() -> str:
    ask("first")
    return pay(1)


STAND_INS = {
    "the tool": pay,
    "the function behind it": pay.__wrapped__,  # type: ignore[attr-defined]
    "a partial": functools.partial(pay.__wrapped__, amount=1),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("stand_in", STAND_INS)
def test_the_real_tool_is_no_sandbox(stand_in: str) -> None:
    store, recording = recorded(payer)
    PAID.clear()
    with pytest.raises(ForkRefused, match="is the real tool 'pay'"):
        fork(
            recording.run_id,
            payer,
            from_step=1,
            store=store,
            tools={"pay": ToolRule("sandbox", sandbox=STAND_INS[stand_in])},
        )
    assert PAID == []


@pytest.mark.parametrize("stand_in", STAND_INS)
def test_the_real_tool_is_no_live_tool_under_another_name(stand_in: str) -> None:
    store, recording = recorded(payer)
    PAID.clear()
    with pytest.raises(ForkRefused) as refused:
        fork(
            recording.run_id,
            from_step=1,
            store=store,
            functions={"calculator": STAND_INS[stand_in]},
            live={"calculator": "needed"},
        )
    assert refused.value.reason == "live_write"
    assert PAID == []


def test_a_deleted_run_is_not_forked_though_its_forks_still_hold_its_bodies() -> None:
    from agentloupe.verbs.deleting import delete_run

    store, recording = recorded(payer)
    child = fork(recording.run_id, payer, from_step=1, store=store).candidates[0]
    delete_run(store, recording.run_id)
    with pytest.raises(ForkRefused) as refused:
        fork(recording.run_id, payer, from_step=1, store=store)
    assert refused.value.reason == "body_deleted"
    assert fork(child.id, payer, from_step=1, store=store).candidates[0].status == "ok"


def test_the_default_of_a_variable_is_the_programs_own_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    default = ["before"]

    @loupe.agent(name="reader")
    def reader() -> str:
        return loupe.env("NOT_SET_ANYWHERE", default[0])

    _, recording = recorded(reader)
    assert replay(recording, reader).passed
    default[0] = "after"
    assert replay(recording, reader).reason == "result_changed"
