"""The demo whole: its figures, and that every command that it prints can be typed and works."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentloupe.demo.models import chosen_model
from agentloupe.demo.samples import code_of
from agentloupe.demo.story import Story, shown_path
from agentloupe.demo.watch import watching
from agentloupe.providers.scripted import ScriptedServer
from agentloupe.store.sqlite import SqliteStore
from agentloupe.verbs.replaying import agent_named
from tests.cli.driving import Command, Done, agentloupe
from tests.store.make import Author
from tests.support import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def demo(folder: Path, *words: str, model: str = "scripted") -> Done:
    return agentloupe("demo", "--model", model, "--db", folder / "loupe.db", *words, patience=200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def told(folder: Path) -> str:
    """What the demo prints."""
    done = demo(folder)
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    return done.out


def test_the_figures(tmp_path: Path) -> None:
    done = demo(tmp_path, "--json")
    assert done.code == 0, done.err
    document = done.json
    assert document["model"] == {"kind": "scripted", "name": "scripted-1"}
    assert document["passed"] is True
    steps = {name: run["steps"] for name, run in document["recorded"].items()}
    assert steps == {"weather": 7, "support": 6}  # the six steps of the agent, under a root step
    assert {r["verdict"] for r in document["replayed"].values()} == {"pass"}
    assert document["forked_from_step"] == 4
    figures = [
        (f["arm"], f["run"]["steps"], *(f["run"]["counts"][k] for k in ("cassette", "live", "miss")), f["run"]["label"])
        for f in document["forks"]
    ]
    assert figures == [
        ("control", 8, 1, 0, 1, "hypothetical"),
        ("candidate", 10, 1, 0, 2, "hypothetical"),
        ("candidate", 8, 0, 2, 0, "faithful"),
    ]
    assert "in my head" in document["forks"][1]["answer"]  # a miss bends behaviour
    assert {f["first_difference"]["left"] for f in document["forks"]} == {4}
    refund = document["refund"]
    assert refund["refused"]["reason"] == "live_write"
    assert (refund["before"], refund["after"], document["refunds_recorded"]) == (1, 1, 1)
    assert refund["same"]["run"]["counts"]["cassette"] == 1
    assert (refund["other"]["run"]["counts"]["miss"], refund["other"]["run"]["counts"]["cassette"]) == (1, 0)
    assert len((tmp_path / "demo-refunds.jsonl").read_text().splitlines()) == 1
    assert not (ROOT / "refunds.jsonl").exists()


def test_the_story_is_told(told: str) -> None:
    chapters = re.findall(r"^(\d)\. (\w+)", told, re.MULTILINE)
    assert chapters == [("1", "Record"), ("2", "Replay"), ("3", "Fork"), ("4", "Compare"), ("5", "Never")]
    assert told.count("pass: ") == 2
    assert told.count("refunds that really happened: 1") == 3
    assert "refunds that really happened: 1 before, 1 after" in told
    assert "a miss, and it was not run" in told
    assert re.search(r"^Done in \d+ s", told, re.MULTILINE)


def commands_in(told: str) -> list[str]:
    """Every command that the demo printed, but the page, which goes on until it is stopped."""
    shown = re.findall(
        r"^(?:\$ |  )((?:SUPPORT_REFUNDS=\S+ )?\S*agentloupe (?!\.).*?)(?:\s+# .*)?$", told, re.MULTILINE
    )
    return [command for command in shown if " -m " not in command and "agentloupe serve" not in command]


@pytest.fixture(scope="module")
def typed(told: str, folder: Path) -> Iterator[dict[str, subprocess.CompletedProcess[str]]]:
    """What each command gives that was printed, typed in the same folder with the model started again."""
    from agentloupe.providers.scripted import sample_rule

    with ScriptedServer(sample_rule) as server, ThreadPoolExecutor(2) as pool:
        env = {**os.environ, "LLM_BASE_URL": server.url, "LLM_MODEL": "scripted-1"}

        def run(command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["bash", "-c", command], cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120
            )

        commands = commands_in(told)
        yield dict(zip(commands, pool.map(run, commands), strict=True))
    (ROOT / "weather.loupe").unlink(missing_ok=True)


def test_every_command_that_is_printed_works(typed: dict[str, subprocess.CompletedProcess[str]], folder: Path) -> None:
    verbs = [re.search(r"agentloupe (\w+)", command)[1] for command in typed]  # type: ignore[index]
    assert verbs == ["run"] * 2 + ["replay"] * 2 + ["fork"] * 6 + [
        "list",
        "show",
        "show",
        "compare",
        "verify",
        "export",
    ]
    for command, done in typed.items():
        refused = "--live refund_order" in command
        assert done.returncode == (3 if refused else 0), (command, done.stdout, done.stderr)
    forks = [done.stdout for command, done in typed.items() if " fork " in command and done.returncode == 0]
    assert "cassette 1, live 0, miss 1" in forks[0]
    assert "cassette 1, live 0, miss 2" in forks[1]
    assert "cassette 0, live 2, miss 0" in forks[2]
    # One refund of the demo, and one of the `run` that was typed; no fork made any.
    assert len((folder / "demo-refunds.jsonl").read_text().splitlines()) == 2


def test_the_model_can_be_started_again_as_it_says(told: str) -> None:
    (line,) = re.findall(r"^  (\S+ -m agentloupe\.providers\.scripted --port) \d+ &$", told, re.MULTILINE)
    words = line.split()
    with subprocess.Popen([*words, "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as model:
        assert model.stdout is not None
        assert model.stdout.readline().startswith("ready http://127.0.0.1:")
        model.terminate()


def test_it_ends_with_the_page_of_the_same_runs(told: str, folder: Path) -> None:
    command = told.rstrip().splitlines()[-1].strip()
    assert command.endswith(f"agentloupe serve --db {folder / 'loupe.db'}")
    words = [*command.split(), "--no-browser", "--port", "0", "--token", "known"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            (address,) = re.findall(r"http://[\d.:]+/", server.stdout.readline())
            asked = urllib.request.Request(f"{address}api/runs", headers={"Authorization": "Bearer known"})
            with urllib.request.urlopen(asked, timeout=20) as answer:
                assert b'"weather-' in answer.read()
        finally:
            server.terminate()


@pytest.mark.parametrize(
    ("said", "terminal", "answer", "serves"),
    [
        (None, True, "\n", True),
        (None, True, "n\n", False),
        (None, True, "", False),  # the end of the input
        (None, False, "y\n", False),
        (True, False, "", True),
        (False, True, "y\n", False),
    ],
)
def test_the_page_is_served_where_somebody_says_so_and_nobody_is_asked_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, said: bool | None, terminal: bool, answer: str, serves: bool
) -> None:
    from agentloupe.cli import demo

    class Typed(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("sys.stdin", Typed(answer))
    monkeypatch.setattr("sys.stdout", Typed())
    assert demo._wants_page(said) is serves
    monkeypatch.setenv("CI", "1")
    assert demo._wants_page(said) is (said is True)


def test_commands_name_the_store_only_where_they_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(tmp_path / "l.db")
    usual = Story(store, str(tmp_path / "l.db"), str(tmp_path / "l.db"), tmp_path / "book.jsonl")
    other = Story(store, str(tmp_path / "l.db"), str(tmp_path / "o.db"), tmp_path / "a b.jsonl")
    store.close()
    assert "--db" not in usual.typed("list")
    assert other.typed("list").endswith("list --db l.db")
    assert other.typed("run", behind=["python", "x.py"], refunds=True).startswith("SUPPORT_REFUNDS='a b.jsonl' ")


def test_samples_have_code_to_name_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert code_of("weather") == "examples.weather.agent:assistant"
    monkeypatch.chdir(tmp_path)
    assert code_of("weather") == "agentloupe.demo.samples:weather"
    assert callable(agent_named(code_of("support")))
    assert shown_path(tmp_path / "x") == "x"
    assert shown_path(Path("/x")) == "/x"


def test_the_fallback_is_said_plainly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from agentloupe.providers import local_model

    def absent(*_: Any) -> Any:
        raise local_model.LocalModelUnavailable("it is not installed", reason="not_installed")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local_model, "start", absent)
    said: list[str] = []
    with chosen_model(None, said.append) as model:
        assert model.kind == "scripted"
        assert os.environ["LLM_BASE_URL"] == model.url
    assert "LLM_BASE_URL" not in os.environ
    assert "it is not installed" in said[0]
    assert "scripted" in said[1]
    with pytest.raises(local_model.LocalModelUnavailable), chosen_model("local", said.append):
        pass


def test_a_model_that_is_set_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text('LLM_BASE_URL=http://127.0.0.1:9/v1\nLLM_MODEL=m\nLLM_EXTRA_BODY={"seed": 1}\n')
    with chosen_model(None, print) as model:
        assert (model.kind, model.url, model.name) == ("env", "http://127.0.0.1:9/v1", "m")
        assert os.environ["LLM_EXTRA_BODY"] == '{"seed":1}'
        assert model.start_again is None


def test_long_steps_are_named(tmp_path: Path) -> None:
    import threading

    store = SqliteStore(tmp_path / "l.db")
    author = Author(store, "run-1").started(root=True)
    author.tool("look", {}, {})
    said: list[str] = []
    heard = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        heard.set()

    with watching(str(tmp_path / "l.db"), say, quiet=0.01):
        assert heard.wait(10)
    assert said[0].startswith("helper: step 1, tool look (")
    store.close()
    with watching(str(tmp_path / "absent.db"), say, quiet=0.01):
        pass


@pytest.mark.local_model
@pytest.mark.timeout(600)
def test_with_the_real_local_model(tmp_path: Path, cli: Command) -> None:
    process = subprocess.run(
        [shutil.which("bash") or "bash", "-c", f".venv/bin/agentloupe demo --model local --json --db {tmp_path}/l.db"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=590,
    )
    document = Done(process.returncode, process.stdout, process.stderr).json
    assert process.returncode == 0, process.stderr
    assert document["model"]["kind"] == "local"
    assert document["passed"] is True
    assert [fork["arm"] for fork in document["forks"]] == ["control", "candidate", "candidate"]
    assert document["refund"]["before"] == document["refund"]["after"]
    assert "loading" in process.stderr
    assert all(run["status"] == "ok" for run in cli.json("list", "--db", f"{tmp_path}/l.db"))
