"""Whatever goes wrong: one line that names the place and the way out, an exit code, nothing lost, no traceback."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentloupe.providers.scripted import ScriptedServer, ask, fail
from agentloupe.store import database
from tests.cli.driving import Command, Done, Model, agentloupe
from tests.support import ROOT

# --- what is not there ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        *(["show", "nope"], ["replay", "nope", "--code", "a:b"], ["fork", "nope", "--from", "1"], ["verify", "nope"]),
        *(
            ["compare", "nope", "last"],
            ["export", "nope", "-o", "x.loupe"],
            ["delete", "nope", "-y"],
            ["rebuild", "nope"],
        ),
    ],
    ids=lambda words: words[0],
)
def test_wrong_run(db: Path, cli: Command, words: list[str]) -> None:
    done = cli(*words)
    assert (done.code, done.error) == (3, "no run 'nope'")
    assert "agentloupe list" in done.err
    told = cli(*words, "--json").json["error"]
    assert (told["code"], told["exit_code"]) == ("run_not_found", 3)


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["show", "last"],
            ["verify", "last"],
            ["verify", "--all"],
            ["size"],
            ["gc"],
            ["rebuild"],
            ["delete", "last", "-y"],
        ),
        *(["fork", "last", "--from", "1"], ["compare", "last", "last"], ["prune", "--older-than", "1d"]),
        *(["export", "last", "-o", "x.loupe"], ["replay", "last", "--code", "a:b"]),
    ],
    ids=" ".join,
)
def test_no_store(empty: Path, cli: Command, words: list[str]) -> None:
    done = cli(*words)
    assert done.code == 3
    assert str(empty / ".loupe" / "loupe.db") in done.error
    assert "--db or LOUPE_DB" in done.err
    assert not (empty / ".loupe").exists()


@pytest.mark.parametrize(
    ("step", "reason", "said"),
    [
        ("99", "no_step", "99"),
        ("2", "not_llm", "tool"),
        ("0", "not_llm", "agent"),
        ("-1", "usage", "--from"),
        ("x", "usage", "--from"),
        ("٣", "usage", "--from"),
    ],
)
def test_wrong_step(
    db: Path, cli: Command, weather: str, model: ScriptedServer, step: str, reason: str, said: str
) -> None:
    done = cli("fork", weather, "--from", step, "--json")
    told = done.json["error"]
    assert (told["reason"], done.code) == (reason, 64 if reason == "usage" else 3)
    assert said in told["message"] + str(told["hint"])
    assert cli.json("list", "--parent", weather) == []


def test_wrong_step_of_show(db: Path, cli: Command, weather: str) -> None:
    done = cli("show", weather, "7")
    assert (done.code, done.error) == (3, f"{weather} has no step 7")
    assert "steps are 0 to 6" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "temprature=1"], "temperature"),
        (["--set", "messages[9].content=x"], "messages"),
        (["--set", "temperature"], "PATH=VALUE"),
        (["--unset", "nothing"], "nothing"),
        (["--overrides", "wrong.json"], "did you mean 'system_prompt'?"),
        (["--overrides", "list.json"], "list.json"),
        (["--overrides", "text.json"], "text.json"),
        (["--overrides", "absent.json"], "absent.json"),
        (["--system-prompt", "@absent.txt"], "absent.txt"),
        (["--tool", "calculate=casette"], "did you mean cassette?"),
        (["--tool", "calculate"], "NAME=POLICY"),
        (["--tool", "calculate=stub:{"], "not JSON"),
        (["--tool", "calculat=stub"], "no tool 'calculat' in this run; it has: calculate, "),
        (["--tool", "calculat=stub"], "did you mean 'calculate'?"),
        (["--live", "nosuch", "--reason", "x"], "no tool 'nosuch' in this run"),
        (["--live", "calculate"], "reason"),
        (["--live", "calculate", "--reason", "x"], "its function was not given"),
        (["--live", "calculate", "--reason", "x"], "--tools-from MODULE"),
        (["--live", "calculate", "--reason", "x", "--tools-from", "absent"], "absent"),
        (["--max-cost", "much"], "--max-cost much"),
        (["--repeat", "4"], "from 1 to 3"),
        (["--max-steps", "0"], "--max-steps"),
        (["--engine", "own"], "--code MODULE:FUNCTION"),
        (["--code", "absent:x"], "absent:x"),
        (["--code", "a:b", "--", "python", "x.py"], "not both"),
        (["--", "python", "absent.py"], "absent.py"),
        (["--", "ls"], "ls"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_wishes(db: Path, cli: Command, weather: str, model: ScriptedServer, words: list[str], said: str) -> None:
    Path("wrong.json").write_text('{"sytem_prompt": "x"}')
    Path("list.json").write_text("[]")
    Path("text.json").write_text("{")
    done = cli("fork", weather, "--from", "4", *words)
    assert done.code in (3, 64)
    assert done.error
    assert said in done.err
    assert cli.json("list", "--parent", weather) == []


def test_a_cut_request_is_not_forked(db: Path, cli: Command, weather: str, model: ScriptedServer) -> None:
    cli.ok("export", weather, "-o", "whole.jsonl")
    lines = [json.loads(line) for line in Path("whole.jsonl").read_text().splitlines()]
    cut = [cut_step(line) for line in lines]
    Path("cut.jsonl").write_text("".join(json.dumps(line) + "\n" for line in cut))
    (report,) = cli.json("import", "cut.jsonl", "--db", "cut.db")
    assert report["partial_steps"] == 1
    assert "not complete" in cli.ok("show", "last", "4", "--db", "cut.db")
    done = cli("fork", "last", "--from", "4", "--db", "cut.db", "--json")
    assert done.code == 3
    assert done.json["error"]["reason"] == "cut_request"
    assert "4" in done.error


def cut_step(line: dict[str, Any]) -> dict[str, Any]:
    """Step 4 as an exporter leaves it that cuts long inputs."""
    if line.get("step", {}).get("idx") != 4:
        return line
    given = {**line["step"]["input"], "messages": line["step"]["input"]["messages"][:1]}
    return {"step": {**line["step"], "input": given, "partial_step": "input cut at 200 characters"}}


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [("LLM_BASE_URL=http://127.0.0.1:9/v1\noops\n", ".env:2"), ('LLM_MODEL="x\n', ".env:1"), ("\xff\xfe=1", ".env")],
)
def test_broken_env_file(db: Path, cli: Command, weather: str, text: str, said: str) -> None:
    Path(".env").write_bytes(text.encode("latin-1"))
    done = cli("fork", weather, "--from", "4")
    assert done.code == 3
    assert said in done.error
    assert cli("demo", "--model", "env").code == 3


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("loupe.toml", "db = ", "loupe.toml"),
        ("loupe.toml", "stict = true", "loupe.toml:1"),
        ("pyproject.toml", "[tool.agentloupe]\nstrict = 'x'", "pyproject.toml:2"),
    ],
)
def test_broken_settings(
    tmp_path: Path, cli: Command, monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    done = cli("list")
    assert done.code == 3
    assert said in done.error


def test_broken_prices(db: Path, cli: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUPE_PRICES", "absent.json")
    done = cli("list", "--cost")
    assert done.code == 3
    assert "absent.json" in done.error


def test_the_demo_without_its_model_says_what_is_missing(empty: Path, cli: Command) -> None:
    done = cli("demo", "--model", "env")
    assert (done.code, done.error) == (3, "LLM_BASE_URL is not set")
    assert "--model" in done.err


# --- the model --------------------------------------------------------------------------------------------------------


def test_no_model_is_set(db: Path, cli: Command, weather: str) -> None:
    done = cli("fork", weather, "--from", "4")
    assert done.code == 3
    assert "no model is set" in done.error
    assert "LLM_BASE_URL" in done.err
    assert cli.json("list", "--parent", weather) == []


def test_nobody_at_the_address(db: Path, cli: Command, weather: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_BASE_URL", "http://127.0.0.1:9/v1")
    done = cli("fork", weather, "--from", "4")
    assert done.code == 3
    assert "http://127.0.0.1:9/v1" in done.out + done.err
    assert "LLM_BASE_URL" in done.out + done.err


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (401, {}, ["401", "LLM_API_KEY"]),
        (429, {"retry-after": "17"}, ["429", "17 s"]),
        (500, {}, ["500"]),
        (503, {}, ["503"]),
    ],
)
def test_the_model_refuses(
    db: Path, cli: Command, weather: str, failing: Model, status: int, headers: dict[str, str], said: list[str]
) -> None:
    failing.answer = fail(status, "no such luck", headers=headers)
    done = cli("fork", weather, "--from", "4")
    assert done.code == 3
    assert all(part in done.out + done.err for part in said), done.out + done.err
    assert "Traceback" not in done.err
    run = cli.json("list", "--parent", weather)[0]
    assert run["status"] == "error"
    assert str(status) in cli.ok("show", run["id"], "4")
    assert cli("verify", run["id"]).code == 0


def test_a_recorded_script_that_its_model_refuses(tmp_path: Path, failing: Model) -> None:
    failing.answer = fail(401)
    db = tmp_path / "l.db"
    done = agentloupe("run", "--db", db, "--", "python", "examples/weather/agent.py", LLM_BASE_URL=failing.url)
    assert done.code == 1
    assert "AuthenticationError" in done.err  # the script's own traceback, as without us
    (run,) = agentloupe("list", "--json", "--db", db).json
    assert (run["status"], run["steps"]) == ("error", 2)


def test_malformed_tool_arguments(db: Path, cli: Command, weather: str, failing: Model) -> None:
    failing.answer = ask(("calculate", '{"expression": "1 +'), ("calculate", "[]"), ("nothing", "{}"))
    done = cli("fork", weather, "--from", "4", "--max-steps", "2", "--json")
    assert done.code == 3, done.err
    assert "ended as error: stopped after 2 model calls (max_steps)" in done.err
    run = done.json["runs"][0]
    tools = [s for s in cli.json("show", run["id"])["steps"] if s["kind"] == "tool" and s["idx"] > 4]
    assert len(tools) >= 3
    assert all(tool["status"] == "error" for tool in tools)
    assert (run["status"], run["counts"]["live"]) == ("error", 0)
    assert "max_steps" in cli.ok("show", run["id"])


# --- what cannot be recorded ------------------------------------------------------------------------------------------

UNRECORDABLE = """
import agentloupe as loupe

@loupe.tool(effect="pure")
def odd():
    return open("/dev/null")

@loupe.agent
def agent():
    odd().close()
    return lambda: 0

agent()
"""


@pytest.mark.parametrize("strict", [False, True])
def test_a_value_that_cannot_be_recorded(tmp_path: Path, strict: bool) -> None:
    script, db = tmp_path / "agent.py", tmp_path / "l.db"
    script.write_text(UNRECORDABLE)
    done = agentloupe("run", "--db", db, "--", "python", script, LOUPE_STRICT="1" if strict else "0")
    assert done.code == (1 if strict else 0), done.err
    assert ("Unrecordable" in done.err) is strict
    (run,) = agentloupe("list", "--json", "--db", db).json
    assert run["status"] == ("error" if strict else "ok")
    assert agentloupe("show", run["id"], "--db", db).code == 0
    assert agentloupe("verify", run["id"], "--db", db).code == 0


# --- the file ---------------------------------------------------------------------------------------------------------


def every_verb(cli: Command, db: Path) -> list[Done]:
    """Verbs of all kinds on one store."""
    words = [
        *(["list"], ["show", "last"], ["verify", "last"], ["verify", "--all"], ["size"], ["rebuild"], ["gc"]),
        *(["compare", "last", "last~1"], ["fork", "last", "--from", "1"], ["delete", "last", "--yes"]),
        *(
            ["export", "last", "-o", "x.loupe"],
            ["prune", "--older-than", "0m", "-y"],
            ["import", str(ROOT / "README.md")],
        ),
    ]
    return [cli(*each, "--db", db) for each in words]


def test_newer_schema(db: Path, cli: Command) -> None:
    with closing(sqlite3.connect(db)) as conn:
        conn.execute("PRAGMA user_version = 99")
    before = db.read_bytes()
    for done in every_verb(cli, db):
        assert done.code == 3
        assert "schema 99" in done.error
        assert "upgrade" in done.err
    assert db.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"not a database at all\n", b"SQLite format 3\x00" + bytes(4096)], ids=["text", "torn"]
)
def test_a_file_that_is_no_store(db: Path, cli: Command, content: bytes) -> None:
    db.write_bytes(content)
    for done in every_verb(cli, db):
        assert done.code in (2, 3)
        assert str(db) in done.error
    assert db.read_bytes() == content


def test_a_damaged_store(db: Path, cli: Command, weather: str) -> None:
    good = db.read_bytes()
    page = int.from_bytes(good[16:18], "big")
    for at in range(1, len(good) // page):
        db.write_bytes(good[: at * page] + os.urandom(page) + good[(at + 1) * page :])
        for words in (["list"], ["show", weather], ["verify", weather], ["compare", weather, weather]):
            done = cli(*words)
            assert done.code in (0, 2, 3), (at, words, done.err)
            assert "internal" not in done.err
            assert "Traceback" not in done.err
        assert cli("verify", "--all").code == 2, at


def test_a_cut_store(db: Path, cli: Command) -> None:
    db.write_bytes(db.read_bytes()[:-8192])
    done = cli("verify", "--all", "--json")
    assert done.code == 2


@pytest.mark.parametrize("at", [10, 200, -1])
def test_a_damaged_export(db: Path, cli: Command, weather: str, at: int) -> None:
    cli.ok("export", weather, "-o", "run.loupe")
    data = bytearray(Path("run.loupe").read_bytes())
    data[at] ^= 0xFF
    Path("bad.loupe").write_bytes(data)
    for words in (["verify"], ["import"], ["replay"], ["compare", "bad.loupe"]):
        done = cli(*words, "bad.loupe", *(["--db", "new.db"] if words == ["import"] else []))
        assert done.code in (2, 3), (words, done)
        assert "bad.loupe" in done.out + done.err, (words, done)
        assert "internal" not in done.err
    assert cli("list", "--db", "new.db", "--json").json == []


@pytest.mark.parametrize("words", [["verify"], ["import"], ["replay"], ["compare", "last"]], ids=" ".join)
def test_a_file_that_is_not_there(db: Path, cli: Command, words: list[str]) -> None:
    done = cli(*words, "./absent.loupe")
    assert done.code == 3
    assert "absent.loupe" in done.out + done.err


def test_a_folder_in_place_of_a_file(db: Path, cli: Command, weather: str) -> None:
    Path("folder.loupe").mkdir()
    for words in (
        ["import", "folder.loupe"],
        ["export", weather, "-o", "folder.loupe", "--force"],
        ["list", "--db", "folder.loupe"],
    ):
        done = cli(*words)
        assert done.code == 3, (words, done)
        assert "folder.loupe" in done.out + done.err
    done = cli("export", weather, "-o", "absent/run.loupe")
    assert (done.code, "absent" in done.error) == (3, True)
    done = cli("export", weather, "-o", "run.txt")
    assert (done.code, ".loupe" in done.err) == (64, True)


# --- the disk ---------------------------------------------------------------------------------------------------------


@contextmanager
def mounted(folder: Path, *options: str) -> Generator[Path]:
    """A file system of its own; skips the test, visibly, where this process may not mount."""
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root: mounts a file system")
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"needs to mount a file system: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.faults
def test_a_read_only_folder(db: Path, cli: Command, weather: str, model: ScriptedServer, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=8m") as disk:
        shutil.copy(db, disk / "loupe.db")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        there = ("--db", str(disk / "loupe.db"))
        for words in (["list"], ["show", weather], ["verify", weather], ["compare", weather, weather], ["size"]):
            assert cli(*words, *there).code == 0, words
        writing = [["fork", weather, "--from", "4"], ["delete", weather, "-y"], ["gc"], ["rebuild"]]
        for words in writing:
            done = cli(*words, *there)
            assert done.code == 3, (words, done)
            assert "LOUPE_DB" in done.err
        done = agentloupe("run", *there, "--", "python", "examples/weather/agent.py", LLM_BASE_URL=model.url)
        assert done.code == 0, done.err  # the agent's work is done, and it is said that nothing was kept
        assert "reading only" in done.err
        assert "NOT RECORDED" in done.err
        script = ("--", "python", "examples/weather/agent.py")
        done = agentloupe("fork", weather, "--from", "4", *there, *script, LLM_BASE_URL=model.url)
        assert done.code == 3
        assert f"agentloupe: store {disk / 'loupe.db'} is open for reading only" in done.err, done.err
        assert "diverges" not in done.err
        assert "Traceback" not in done.err
        done = cli("export", weather, "-o", str(disk / "x.loupe"), *there)
        assert done.code == 3
        assert f"{disk / 'x.loupe'} cannot be written" in done.err
        assert cli("demo", "--model", "scripted", "--db", str(disk / "other.db")).code == 3


FILLING = """
import os
import agentloupe as loupe

@loupe.tool(effect="read")
def read(number):
    return os.urandom(50_000).hex()

@loupe.agent
def agent():
    for number in range(60):
        read(number)
    return "done"

print(agent())
"""


@pytest.mark.faults
def test_a_full_disk(db: Path, cli: Command, weather: str, model: ScriptedServer, tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(FILLING)
    with mounted(tmp_path / "disk", "size=1m") as disk:
        there = ("--db", str(disk / "loupe.db"))
        shutil.copy(db, disk / "loupe.db")
        done = agentloupe("run", *there, "--", "python", script)
        assert (done.code, done.out) == (0, "done\n"), done.err
        assert "is full" in done.err
        assert "but not whole" in done.err
        assert "Traceback" not in done.err
        (disk / "rest").write_bytes(bytes(1)) if shutil.disk_usage(disk).free else None
        assert cli("show", weather, *there).code == 0
        assert cli("verify", weather, *there).code == 0
        newest = cli.json("list", *there)[0]
        assert newest["status"] == "interrupted" or newest["coverage"] == "lossy"
        assert cli("show", newest["id"], *there).code == 0


@contextmanager
def locked(db: Path) -> Generator[None]:
    """Another process holds the write lock."""
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('BEGIN IMMEDIATE'); print('held', flush=True); input()"
    with subprocess.Popen(
        [shutil.which("python3") or "python3", "-c", code, str(db)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield
        finally:
            holder.stdin.write("\n")
            holder.stdin.close()


def test_a_store_in_use(
    db: Path, cli: Command, weather: str, model: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    with locked(db):
        for words in (["list"], ["show", weather], ["verify", weather]):
            assert cli(*words).code == 0  # readers never wait
        for words in (["fork", weather, "--from", "4"], ["delete", weather, "-y"], ["gc"], ["rebuild"]):
            done = cli(*words)
            assert done.code == 3, (words, done)
            assert str(db) in done.error
            assert "another process" in done.error
    assert cli("verify", weather).code == 0


# --- our own faults ---------------------------------------------------------------------------------------------------


def test_a_fault_of_ours_is_a_line_and_with_debug_a_traceback(
    db: Path, cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: Callable[..., float] = lambda *_: 1 / 0  # noqa: E731
    monkeypatch.setattr("agentloupe.store.sqlite.SqliteStore.count", broken)
    done = cli("list")
    assert (done.code, done.error) == (3, "ZeroDivisionError: division by zero")
    assert "--debug" in done.err
    told = cli("list", "--debug")
    assert told.code == 3
    assert "Traceback" in told.err
    assert "LOUPE_DEBUG" not in os.environ, "it was meant for the children of that command alone"
    assert cli("list", "--json").json["error"]["code"] == "internal"


def test_wrong_usage_is_64(db: Path, cli: Command) -> None:
    for words in (["nothing"], ["list", "--nothing"], ["show"], ["list", "-n", "0"], ["run"], ["fork", "last"]):
        done = cli(*words)
        assert done.code == 64, words
        assert done.error
        assert cli(*words, "--json").json["error"]["exit_code"] == 64


def test_a_folder_is_verified_by_the_command_for_ledgers(cli: Command, tmp_path: Path) -> None:
    done = cli("verify", str(tmp_path))
    assert done.code == 64
    assert f"agentloupe ledger replay {tmp_path}" in done.err
