"""The way out is shut while a replay runs: refused with the line, in this process and for real in a child."""

from __future__ import annotations

import asyncio
import http.server
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agentloupe.engine import guard
from agentloupe.engine.guard import (
    KEYS,
    Leak,
    going_on_live,
    placeholder_keys,
    sealed_off,
    unshare_command,
    without_credentials,
)
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs import patience
from agentloupe.verbs.forking import fork
from agentloupe.verbs.instrument import as_agent
from agentloupe.verbs.isolated import replay_code
from agentloupe.verbs.patience import PATIENCE_SECONDS
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.testing import Case, check
from agentloupe.words.errors import ForkRefused, ReplayRefused
from tests.support import ROOT
from tests.tapes import Program, ask, record_in, sequence_of, use

STEPS = (ask("hello"), use("get", 1, i=1))


class Stopped(BaseException):
    pass


def _attempts() -> dict[str, Callable[[], object]]:
    return {
        "connect": lambda: socket.create_connection(("127.0.0.1", 9)),
        "unix": lambda: socket.socket(socket.AF_UNIX).connect("/nowhere"),
        "name": lambda: socket.getaddrinfo("localhost", 80),
        "datagram": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)),
        "subprocess": lambda: subprocess.run(["true", "--secret"]),
        "shell": lambda: os.system("true --secret"),  # pyright: ignore[reportDeprecated]
        "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "fork": lambda: os.fork() or os._exit(0),
    }


@pytest.mark.parametrize("way", list(_attempts()))
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_every_way_out_is_refused_and_named(way: str) -> None:
    leaks: list[Leak] = []

    def refuse(leak: Leak) -> BaseException:
        leaks.append(leak)
        return Stopped()

    with sealed_off(refuse), pytest.raises(Stopped):
        _attempts()[way]()
    assert leaks[0].caller is not None
    assert leaks[0].caller.file == __file__
    assert "--secret" not in str(leaks[0]), "arguments are nobody's business"


def test_it_is_dormant_outside_and_sees_other_threads_inside() -> None:
    seen: list[BaseException] = []

    def work() -> None:
        try:
            socket.getaddrinfo("localhost", 80)
        except BaseException as error:
            seen.append(error)

    with sealed_off(lambda _: Stopped()):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        with sealed_off(lambda _: Stopped()):
            asyncio.run(asyncio.sleep(0))  # an event loop's own pair of sockets is not the outside
    assert [type(error) for error in seen] == [Stopped]
    assert subprocess.run(["true"], check=False).returncode == 0
    assert socket.getaddrinfo("localhost", 80)


def test_what_the_standard_library_asks_about_the_machine_is_no_leak() -> None:
    leaks: list[Leak] = []

    def refuse(leak: Leak) -> BaseException:
        leaks.append(leak)
        return Stopped()

    with sealed_off(refuse):
        assert platform._Processor.get() == "", "it starts `uname -p`, and can do without"  # type: ignore[attr-defined]
    assert leaks == []


def test_a_server_of_the_program_may_ask_for_its_own_name() -> None:
    leaks: list[Leak] = []

    def refuse(leak: Leak) -> BaseException:
        leaks.append(leak)
        return Stopped()

    with sealed_off(refuse):
        with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
            assert server.server_name == "127.0.0.1"
        assert leaks == []
        with pytest.raises(Stopped):
            socket.gethostbyaddr("127.0.0.1")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_leak_inside_a_replay_is_a_divergence_with_file_and_line(asynchronous: bool) -> None:
    recording = Program(STEPS, asynchronous=asynchronous).recorded()

    def leaking(got: list[object]) -> object:
        try:
            socket.create_connection(("127.0.0.1", 9))
        except BaseException:
            return got
        return got

    report = Program(STEPS, asynchronous=asynchronous, result=leaking).replayed(recording)
    found = report.divergence
    assert found is not None, report.text()
    assert (report.exit_code, found.kind) == (1, "leak")
    assert found.sequence == sequence_of(recording, "run.finished")
    assert found.caller is not None
    assert found.caller.file == __file__
    assert f"{__file__}:{found.caller.line}" in report.text()
    assert found.message is not None
    assert "127.0.0.1" in found.message


def test_a_subprocess_inside_a_replay_too() -> None:
    recording = Program(STEPS).recorded()
    report = Program(STEPS, result=lambda got: subprocess.run(["true"])).replayed(recording)
    assert report.divergence is not None
    assert (report.divergence.kind, report.divergence.message) == ("leak", "starting a process (subprocess.Popen) true")


def test_clients_that_insist_on_a_key_find_one_and_none_stays() -> None:
    os.environ["OPENAI_API_KEY"] = "sk-real"
    with placeholder_keys():
        assert os.environ["ANTHROPIC_API_KEY"] != ""
        assert os.environ["OPENAI_API_KEY"] == "sk-real"
    assert "ANTHROPIC_API_KEY" not in os.environ
    child = without_credentials({"OPENAI_API_KEY": "sk-real", "PATH": "/bin"})
    assert "sk-real" not in child.values()
    assert all(child[name] for name in KEYS)
    del os.environ["OPENAI_API_KEY"]


# --- children ---------------------------------------------------------------------------------------------------------

CHILD = """
import asyncio, ctypes, os, socket, threading, time
import agentloupe as loupe

@loupe.tool(effect="read")
def get(i: int) -> int:
    return i

@loupe.agent
def asks() -> list[object]:
    if os.environ.get("WAY") == "waits":
        threading.Event().wait()
    if os.environ.get("WAY") == "threads":
        thread = threading.Thread(target=get, args=(2,))
        thread.start()
        thread.join()
    if os.environ.get("WAY") == "sleeps":
        time.sleep(1.5)
    if os.environ.get("WAY") == "naps":
        asyncio.run(asyncio.sleep(1.5))
    if os.environ.get("WAY") == "works":
        until = time.process_time() + 1.5
        while time.process_time() < until:
            pass
    seen: list[object] = [get(1)]
    if os.environ.get("WAY") == "native":
        # past Python's own sockets, as a native event loop does it
        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
        address = b"\\x02\\x00" + int(os.environ["PORT"]).to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
        seen.append(libc.connect(fd, address, 16))
        with open(os.environ["OUT"], "w") as out:
            out.write(str(seen[-1]))
        seen.pop()
    if os.environ.get("WAY") == "keys":
        with open(os.environ["OUT"], "w") as out:
            out.write(os.environ["OPENAI_API_KEY"])
    if os.environ.get("WAY") == "still":
        try:
            get(2)
        except BaseException:
            threading.Event().wait()
    if os.environ.get("WAY") == "deaf":
        while True:
            try:
                get(2)
            except BaseException:
                pass
    return seen
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "leaky_child.py").write_text(CHILD, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _environment(child: Path, way: str, **more: str) -> dict[str, str]:
    return {"PYTHONPATH": f"{child}{os.pathsep}{ROOT / 'src'}", "WAY": way, "OUT": str(child / "out"), **more}


def _recorded() -> object:
    import importlib

    from agentloupe.store.memory import MemoryStore
    from tests.tapes import record_in

    sys.modules.pop("leaky_child", None)
    return record_in(MemoryStore(), importlib.import_module("leaky_child").asks)


@pytest.mark.slow
@pytest.mark.parametrize("namespace", [True, False], ids=["namespace", "hook only"])
def test_a_child_in_an_empty_network_namespace_really_has_no_network(child: Path, namespace: bool) -> None:
    if namespace and unshare_command(["true"]) is None:
        pytest.skip("this system gives out no network namespaces")
    recording = _recorded()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        way = _environment(child, "native", PORT=port)
        report = replay_code(recording, "leaky_child:asks", environment=way, network_namespace=namespace)  # type: ignore[arg-type]
    assert report.verdict == "pass", report.text()
    connected = (child / "out").read_text("utf-8") == "0"
    assert connected is not namespace, "native sockets are covered by the namespace only"
    assert ("native sockets" in report.coverage) is not namespace
    assert ("network namespace" in report.isolation) is namespace


@pytest.mark.slow
def test_a_child_has_no_key_and_one_that_does_not_listen_is_ended(child: Path) -> None:
    os.environ["OPENAI_API_KEY"] = "sk-real"
    recording = _recorded()
    report = replay_code(recording, "leaky_child:asks", environment=_environment(child, "keys"))  # type: ignore[arg-type]
    assert report.verdict == "pass", report.text()
    assert "sk-real" not in (child / "out").read_text("utf-8")
    deaf = replay_code(recording, "leaky_child:asks", environment=_environment(child, "deaf"))  # type: ignore[arg-type]
    assert deaf.divergence is not None
    assert (deaf.exit_code, deaf.divergence.kind) == (1, "extra")
    del os.environ["OPENAI_API_KEY"]


@pytest.mark.slow
def test_a_child_that_sits_still_after_the_stop_is_ended(child: Path) -> None:
    recording = _recorded()
    way = _environment(child, "still", LOUPE_GRACE="0.2")
    report = replay_code(recording, "leaky_child:asks", environment=way, timeout=30)  # type: ignore[arg-type]
    assert report.divergence is not None
    assert (report.exit_code, report.divergence.kind) == (1, "extra")


@pytest.mark.slow
def test_a_child_that_stands_still_before_a_recorded_call_is_missing_it(child: Path) -> None:
    recording = _recorded()
    way = _environment(child, "waits")
    report = replay_code(recording, "leaky_child:asks", environment=way, patience=0.3, timeout=30)  # type: ignore[arg-type]
    found = report.divergence
    assert found is not None, report.text()
    assert (report.exit_code, found.kind, found.sequence) == (1, "missing", 2)
    assert found.expected is not None
    assert found.expected.name == "get"


def test_a_fork_never_shares_a_process_with_a_replay() -> None:
    with going_on_live(), going_on_live():
        with pytest.raises(ReplayRefused, match="a fork runs in this process") as replay_refused, sealed_off(_stop):
            pytest.fail("it began")
        assert replay_refused.value.reason == "fork_runs"
    with sealed_off(_stop), sealed_off(_stop):
        with pytest.raises(ForkRefused, match="a replay runs in this process") as fork_refused, going_on_live():
            pytest.fail("it began")
        assert fork_refused.value.reason == "replay_runs"
    with going_on_live():
        pass


def _stop(leak: Leak) -> BaseException:
    return Stopped(leak.what)


def test_a_fork_that_begins_inside_of_a_replay_is_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    program = Program(STEPS)
    recording = record_in(store, as_agent(program.agent, "program"))
    refused: list[str] = []

    def agent() -> object:
        try:
            fork(recording.run_id, as_agent(program.agent, "program"), from_step=1, store=store)
        except ForkRefused as error:
            refused.append(error.reason)
        return program.agent()

    assert replay(recording, as_agent(agent, "program")).verdict == "pass"
    assert refused == ["replay_runs"]
    assert len(store.runs()) == 1


def test_an_isolated_test_whose_program_stands_still_fails_as_missing(child: Path, tmp_path: Path) -> None:
    assert Case(path="r").patience == PATIENCE_SECONDS
    with (tmp_path / "r.loupe").open("wb") as out:
        LoupeFileExporter().write(iter([_recorded()]), out)  # type: ignore[list-item]
    told = check(
        Case(
            path=tmp_path / "r.loupe",
            agent="leaky_child:asks",
            isolated=True,
            patience=0.3,
            environment=_environment(child, "waits"),
        )
    )
    assert not told.passed
    assert told.report is not None
    assert told.report.divergence is not None
    assert (told.report.divergence.kind, told.report.divergence.sequence) == ("missing", 2)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["sleeps", "naps", "works"])
def test_a_child_that_sleeps_or_computes_longer_than_the_patience_is_waited_for(child: Path, way: str) -> None:
    recording = _recorded()
    report = replay_code(
        recording,  # type: ignore[arg-type]
        "leaky_child:asks",
        environment=_environment(child, way),
        patience=0.4,
        timeout=60,
    )
    assert report.verdict == "pass", report.text()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux")
def test_a_thread_that_waits_for_a_processor_only_does_not_stand_still() -> None:
    over = threading.Event()

    def works() -> None:
        while not over.is_set():
            pass

    rests = threading.Thread(target=over.wait)
    rests.start()
    assert not all(patience._wants_a_processor() for _ in range(1000))
    thread = threading.Thread(target=works)
    thread.start()
    try:
        assert any(patience._wants_a_processor() for _ in range(1000))
    finally:
        over.set()
        thread.join()
        rests.join()


@pytest.mark.slow
@pytest.mark.parametrize("debug", [True, False])
def test_a_thread_that_is_stopped_as_well_prints_no_traceback(
    child: Path, debug: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    recording = _recorded()
    way = _environment(child, "threads", **({"LOUPE_DEBUG": "1"} if debug else {}))
    report = replay_code(recording, "leaky_child:asks", environment=way, timeout=60)  # type: ignore[arg-type]
    assert report.exit_code == 1
    assert ("Traceback" in capfd.readouterr().err) is debug


@pytest.mark.slow
def test_a_child_that_spins_is_ended_after_its_time_without_a_verdict(child: Path) -> None:
    recording = _recorded()
    way = _environment(child, "waits")
    report = replay_code(recording, "leaky_child:asks", environment=way, timeout=1.5)  # type: ignore[arg-type]
    assert (report.verdict, report.reason, report.exit_code) == ("could_not_run", "timeout", 3)
    assert "was ended after 1.5 s" in report.text()


def test_code_that_is_not_there_is_refused(child: Path) -> None:
    recording = _recorded()
    report = replay_code(recording, "leaky_child:nothing", environment=_environment(child, ""))  # type: ignore[arg-type]
    assert (report.verdict, report.exit_code, report.reason) == ("could_not_run", 3, "no_code")
    assert "nothing" in report.text()


def test_the_hook_is_installed_once() -> None:
    assert guard._install.cache_info().currsize <= 1
    assert replay(Program(STEPS).recorded(), as_agent(Program(STEPS).agent, "program")).passed
    assert guard._install.cache_info().currsize == 1


def test_a_module_that_this_python_lacks_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    plain = guard.import_module
    monkeypatch.setattr(guard, "import_module", lambda name: asked.append(name) or plain(name))
    guard._module.cache_clear()
    for _ in range(3):
        with sealed_off(_stop):
            pass
    assert sorted(asked) == ["_interpreters", "_posixsubprocess"]
