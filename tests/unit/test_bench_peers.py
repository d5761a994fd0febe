"""Programs of others are measured where they are installed, and said to be missing where they are not."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench import clients
from bench.aside import Aside
from bench.context import Context
from bench.peers import Absent, cassettes, rewound
from bench.timing import by_turns

MODULES = {"vcrpy": "vcr", "cassetter": "cassetter", "agent-rewind": "rewind"}


def needs(module: str) -> None:
    """Skips, visibly, where it is not installed."""
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed: `make bench` installs it")


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
    nowhere = clients.bare("http://127.0.0.1:9/v1") if name == "agent-rewind" else client
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
    aside = Aside(what, *(str(tmp_path / "peer") if arg == "PATH" else arg for arg in args))
    try:
        cpu, wall = aside.timed()
    finally:
        aside.close()
    assert cpu > 0
    assert wall > 0


def test_a_fork_of_agent_rewind_asks_the_model_once(tmp_path: Path) -> None:
    needs("rewind")
    paths = iter(range(9))
    assert rewound.forking(tmp_path / "parent", lambda: tmp_path / str(next(paths)), 8, 100)() == 1


def test_what_is_not_installed_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no_such_module"):
        Aside("bench.peers:load", "no_such_module")
    context = Context(tmp_path)
    absent = context.aside("bench.peers:load", "no_such_module")
    assert absent is None
    assert set(by_turns({"here": lambda: 1, "absent": absent}, 1)) == {"here"}
    context.close()


def test_what_goes_wrong_aside_is_told() -> None:
    with pytest.raises(RuntimeError, match=r"bench.peers:nothing ended: AttributeError"):
        Aside("bench.peers:nothing")
