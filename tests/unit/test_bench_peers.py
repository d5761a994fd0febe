"""Programs of others are measured where they are installed, and said to be missing where they are not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench import apart, aside, clients
from bench.aside import Aside
from bench.context import Context
from bench.peers import Absent, cassettes, rewinding, rewound, servers, tapes
from bench.timing import by_turns

MODULES = {"vcrpy": "vcr", "cassetter": "cassetter", "agent-rewind": "rewind", "rewind-agent": "rewind_agent"}


def needs(module: str) -> None:
    """Skips, visibly, where it is not installed."""
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed: `make bench` installs it")


def needs_environment(peer: str) -> None:
    """Skips, visibly, where a peer has none."""
    try:
        aside.python_of(peer)
    except Absent:
        pytest.skip(f"{peer} has no environment: `make bench` makes it where Python 3.12 or newer is")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with clients.server() as url:
        yield url


@pytest.mark.slow
@pytest.mark.parametrize("name", cassettes.LABELS)
def test_a_recorder_keeps_calls_and_answers_them(tmp_path: Path, url: str, name: str) -> None:
    needs(MODULES[name.partition("+")[0]])
    recorder = cassettes.found(name)
    assert recorder is not None
    assert recorder.name == cassettes.LABELS[name]
    talk, client, path = clients.short(3), clients.bare(url), tmp_path / "kept"
    assert recorder.record(path, lambda: talk.by(client)) == 3
    assert recorder.kept(path) == 3
    nowhere = clients.bare("http://127.0.0.1:9/v1") if name in ("agent-rewind", "rewind-agent") else client
    assert recorder.replay(path, lambda: talk.by(nowhere)) == 3


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("module", "what", "args"),
    [
        ("temporalio", "bench.peers.temporal:replaying", (10, False)),
        ("dbos", "bench.peers.dbos_steps:steps", ("PATH", 3)),
        ("dbos", "bench.peers.dbos_steps:forks", ("PATH", 3)),
        ("langgraph", "bench.peers.saver:steps", ("PATH", 3)),
    ],
)
def test_a_peer_is_measured_in_a_process_of_its_own(
    tmp_path: Path, module: str, what: str, args: tuple[object, ...]
) -> None:
    needs(module)
    peer = Aside(what, *(str(tmp_path / "peer") if arg == "PATH" else arg for arg in args))
    try:
        cpu, wall = peer.timed()
    finally:
        peer.close()
    assert cpu > 0
    assert wall > 0


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("calls", (tapes.BARE, tapes.CANNED, tapes.REPLAYED, *tapes.KEEPING)),
        ("forks", (tapes.CANNED, tapes.FORKED)),
        ("streams", (tapes.BARE, tapes.STREAMED)),
    ],
)
def test_tracefork_is_measured_in_its_own_python(tmp_path: Path, url: str, what: str, names: tuple[str, ...]) -> None:
    needs_environment(tapes.PEER)
    context = Context(tmp_path)
    asked = clients.short(3).requests
    stream = {**asked[0], "stream": True, "max_tokens": 3, "seed": 0}
    given = stream if what == "streams" else context.written("asked", asked)
    words = f"{tapes.__name__}:{what}", url, str(tmp_path / what), given
    try:
        taken = by_turns(context.parts(names, *words, peer=tapes.PEER), 1)
    finally:
        context.close()
    assert set(taken) == set(names)
    assert all(one.least > 0 for one in taken.values())


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_tracefork_keeps_is_read_from_its_files(tmp_path: Path) -> None:
    needs_environment(tapes.PEER)
    told = {row: apart.measured_here(row, 0.01, 1).figures[0] for row in ("killed", "space")}
    kept = {row: {peer.name: peer.value for peer in figure.peers} for row, figure in told.items()}
    assert [kept["killed"][label] for label in tapes.KEEPING.values()] == [0, 20]
    whole = kept["space"]["every request kept whole, as JSON"]
    saved, checkpoint = (kept["space"][label] for label in tapes.KEEPING.values())
    assert whole is not None
    assert saved is not None
    assert checkpoint is not None
    assert told["space"].measured < saved < whole < checkpoint


def test_a_fork_of_agent_rewind_asks_the_model_once(tmp_path: Path) -> None:
    needs("rewind")
    paths = iter(range(9))
    assert rewound.forking(tmp_path / "parent", lambda: tmp_path / str(next(paths)), 8, 100)() == 1


def test_a_fork_of_rewind_agent_asks_the_server_for_the_last_call_only(tmp_path: Path, url: str) -> None:
    needs("rewind_agent")
    talk, client, asked = clients.short(3), clients.bare(url), [0]
    send = client._client.send

    def counted(*args: object, **kwargs: object) -> object:
        asked[0] += 1
        return send(*args, **kwargs)

    client._client.send = counted
    fork = rewinding.forking(tmp_path / "parent", lambda: talk.by(client))
    assert asked == [3]
    assert fork() == 1
    assert asked == [4]


def test_what_is_not_installed_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no_such_module"):
        Aside("bench.peers:load", "no_such_module")
    context = Context(tmp_path)
    absent = context.aside("bench.peers:load", "no_such_module")
    assert absent is None
    with pytest.raises(Absent, match="no-such-peer"):
        aside.python_of("no-such-peer")
    assert context.parts(("one", "two"), "bench.peers:load", "json", peer="no-such-peer") == {"one": None, "two": None}
    assert set(by_turns({"here": lambda: 1, "absent": absent}, 1)) == {"here"}
    context.close()


def test_several_subjects_share_a_process_and_may_time_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "several.py").write_text(
        "import contextlib\n"
        "@contextlib.contextmanager\n"
        "def subjects(calls):\n"
        "    yield {'counted': lambda: calls, 'timed': lambda: 1e6}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(aside, "PEERS", tmp_path)
    (tmp_path / "here" / "bin").mkdir(parents=True)
    (tmp_path / "here" / "bin" / "python").symlink_to(sys.executable)
    with pytest.raises(Absent):  # it was not installed to its end
        aside.python_of("here")
    (tmp_path / "here" / ".ready").touch()
    context = Context(tmp_path)
    try:
        taken = by_turns(context.parts(("counted", "timed"), "several:subjects", 3, peer="here"), 1)
    finally:
        context.close()
    assert taken["counted"].least < 1e6
    assert taken["timed"].least == taken["timed"].wall == 1e6


def test_what_goes_wrong_aside_is_told() -> None:
    with pytest.raises(RuntimeError, match=r"bench.peers:nothing ended: AttributeError"):
        Aside("bench.peers:nothing")


class Scripted(servers.Phoenix):
    """A peer whose program is a text of Python."""

    script = ""

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.script, str(self.port)]


def test_a_server_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    class Parent(Scripted):
        script = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[2], sys.argv[1]])"
        answering = (
            "import http.server, sys\n"
            "class Yes(http.server.BaseHTTPRequestHandler):\n"
            "    def do_GET(self): self.send_response(200); self.end_headers()\n"
            "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Yes).serve_forever()\n"
        )

        def command(self) -> list[str]:
            return [*super().command(), self.answering]

    server = Parent(tmp_path / "peer", 3, 1)
    try:
        assert server.start() > 0
        assert len(servers.below(os.getpid())) >= 2
    finally:
        server.stop()
    with pytest.raises(OSError, match=r"refused|reset"):
        server.ask("/healthz")


def test_a_server_that_ends_before_it_is_healthy_tells_its_last_line(tmp_path: Path) -> None:
    class Broken(Scripted):
        script = "print('working'); raise SystemExit('no such table')"

    server = Broken(tmp_path / "peer", 3, 1)
    with pytest.raises(servers.Late, match="ended: no such table"):
        server.start()
    server.stop()


def test_a_server_that_is_not_installed_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "PEERS", tmp_path)
    for kind in (servers.Phoenix, servers.Mlflow):
        server = kind(tmp_path / f"{kind.name}-data", 3, 1)
        with pytest.raises(Absent):
            server.start()
        with pytest.raises(Absent):
            server.installed_mb()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", [servers.Phoenix, servers.Mlflow])
def test_a_server_of_others_gives_what_it_was_sent(tmp_path: Path, kind: type[servers.Peer]) -> None:
    server = kind(tmp_path / "peer", 21, 3)
    try:
        server.start()
    except Absent:
        pytest.skip(f"{kind.title} is not installed: `make bench-peers` installs it")
    try:
        server.fill()
        assert (server.headers(), server.whole(), server.listed()) == (21, 21, 4)
    finally:
        server.stop()
