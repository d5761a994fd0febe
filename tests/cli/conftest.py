"""A weather run recorded once, copied for each test, and the command in this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentloupe.providers.scripted import ScriptedServer, sample_rule
from tests.cli.driving import Command, Model, agentloupe, first_run
from tests.support import ROOT


@pytest.fixture(scope="session")
def server() -> Iterator[ScriptedServer]:
    """The model of the samples, for the whole session."""
    with ScriptedServer(sample_rule) as running:
        yield running


@pytest.fixture(scope="session")
def recorded(server: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one run of the weather agent and one of the support agent, recorded as a user records them."""
    folder = tmp_path_factory.mktemp("recorded")
    db = folder / "loupe.db"
    for sample in ("weather", "support"):
        words = ["run", "--tag", sample, "--db", str(db), "--", "python", f"examples/{sample}/agent.py"]
        variables = {"LLM_BASE_URL": server.url, "SUPPORT_REFUNDS": str(folder / "refunds.jsonl")}
        done = agentloupe(*words, cwd=ROOT, patience=50, **variables)
        assert done.code == 0, done.err
    assert not db.with_name("loupe.db-wal").exists()
    return db


@pytest.fixture
def db(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that store, which commands use by themselves; the current folder is empty."""
    folder = tmp_path / "work"
    folder.mkdir()
    copy = folder / "loupe.db"
    shutil.copy(recorded, copy)
    monkeypatch.setenv("LOUPE_DB", str(copy))
    monkeypatch.chdir(folder)
    return copy


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is a project of its own, without a store."""
    (tmp_path / "loupe.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command, in this process."""
    return Command(capsys)


@pytest.fixture
def model(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    """The scripted model, set in the environment as a user sets one."""
    monkeypatch.setenv("LLM_BASE_URL", server.url)
    monkeypatch.setenv("LLM_MODEL", "scripted-1")
    return server


@pytest.fixture
def in_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is the checkout, where `examples.weather.agent` can be imported."""
    monkeypatch.chdir(ROOT)


@pytest.fixture
def weather(db: Path, cli: Command) -> str:
    """Id of the weather run."""
    return first_run(cli, "weather")


@pytest.fixture
def support(db: Path, cli: Command) -> str:
    """Id of the support run."""
    return first_run(cli, "support")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    """A model whose answers a test chooses."""
    with Model() as running:
        monkeypatch.setenv("LLM_BASE_URL", running.url)
        monkeypatch.setenv("LLM_MODEL", "scripted-1")
        yield running
