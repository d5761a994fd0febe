"""The doctor: one real run, one from the tape, and every source that escapes with its file, line and mend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentloupe.cli import main
from agentloupe.verbs.doctor import examine
from agentloupe.verbs.watching import C_CALLS, MENDS, PYTHON_CALLS

HEAD = """
import datetime, glob, os, random, secrets, socket, subprocess, sys, threading, time, uuid
from pathlib import Path
import agentloupe as loupe

@loupe.tool(effect="write")
def effect(what):
    open("done", "a").write("x")
    return [time.time(), random.random(), uuid.uuid4().hex]

@loupe.agent
def agent():
    effect("once")
"""
TAIL = """
    return "done"

if __name__ == "__main__":
    agent()
"""

ESCAPES = {
    "time.time()": "clock",
    "time.monotonic()": "duration",
    "datetime.datetime.now()": "clock",
    "datetime.date.today()": "clock",
    "random.random()": "random",
    "random.randint(1, 6)": "random",
    "random.Random(1).choice([1, 2])": "random",
    "random.SystemRandom().random()": "random",
    "secrets.token_hex(4)": "random",
    "os.urandom(4)": "random",
    "uuid.uuid4()": "id",
    "uuid.uuid1()": "id",
    "os.environ['HOME']": "env",
    "os.environ.get('HOME')": "env",
    "os.getenv('HOME')": "env",
    "open(__file__).close()": "file",
    "Path(__file__).read_text()": "file",
    "os.listdir('.')": "listing",
    "glob.glob('*')": "listing",
    "list(Path('.').iterdir())": "listing",
    "id(agent)": "identity",
    "hash('text')": "identity",
    "os.getpid()": "process facts",
    "subprocess.run(['true'])": "process",
}


def examined(workdir: Path, body: str, **more: str) -> tuple[list[tuple[str, str | None, int | None]], int]:
    (workdir / "my_agent.py").write_text(f"{HEAD}{body}{TAIL}")
    (workdir / "loupe.toml").write_text("")
    with (workdir / "said").open("wb") as said:
        found = examine(["python", "my_agent.py"], output=said, **more)
    assert (workdir / "done").read_text() == "x", "the tool ran once, in the first run"
    return [(one.kind, one.file, one.line) for one in found.findings], found.exit_code


def test_every_source_is_found_on_its_line_and_nothing_else(workdir: Path) -> None:
    body = "".join(f"    {line}\n" for line in ESCAPES if "subprocess" not in line)
    first = HEAD.count("\n") + 1
    found, code = examined(workdir, body)
    expected = [(kind, "my_agent.py", first + n) for n, kind in enumerate(ESCAPES.values()) if kind != "process"]
    assert (found, code) == (expected, 1)


def test_a_read_is_named_as_it_is_written(workdir: Path) -> None:
    (workdir / "my_agent.py").write_text(f"{HEAD}    os.environ['HOME']; os.environ.get('NO_SUCH')\n{TAIL}")
    (workdir / "loupe.toml").write_text("")
    with (workdir / "said").open("wb") as said:
        found = examine(["python", "my_agent.py"], output=said)
    assert {one.what for one in found.findings} == {"os.environ[...]", "os.environ.get"}


def test_what_a_replay_would_refuse_is_found_on_its_line(workdir: Path) -> None:
    found, code = examined(workdir, "    subprocess.run(['true'])\n")
    line = HEAD.count("\n") + 1
    assert code == 1
    assert found == [("process", "my_agent.py", line)], "the replay is refused, so it has no difference to tell"


def test_an_agent_that_asks_the_boundary_is_clean(workdir: Path) -> None:
    clean = "    loupe.now(), loupe.random(), loupe.uuid4(), loupe.env('HOME'), loupe.rng.choice([1, 2])\n"
    threads = "    work = threading.Thread(target=lambda: loupe.now()); work.start(); work.join()\n"
    assert examined(workdir, clean) == ([], 0)
    (workdir / "done").unlink()
    found, _ = examined(workdir, threads)
    assert [kind for kind, _, _ in found if kind not in ("order", "difference")] == []


def test_the_order_of_a_set_shows(workdir: Path) -> None:
    found, code = examined(
        workdir, "    loupe.state('names', list({'anna', 'bert', 'carl', 'dora', 'emil', 'fred'}))\n"
    )
    assert (found, code) == ([("set order", "my_agent.py", HEAD.count("\n") + 1)], 1)
    (workdir / "done").unlink()
    assert examined(workdir, "    loupe.state('names', sorted({'anna', 'bert', 'carl'}))\n") == ([], 0)


def test_reads_in_threads_and_at_import_are_found(workdir: Path) -> None:
    (workdir / "settings_of_mine.py").write_text("import os\nMODE = os.environ.get('MODE')\n")
    body = "    import settings_of_mine\n    work = threading.Thread(target=lambda: time.time()); work.start(); work.join()\n"
    found, _ = examined(workdir, body)
    assert ("env", "settings_of_mine.py", 2) in found
    assert ("clock", "my_agent.py", HEAD.count("\n") + 2) in found


def test_as_json_and_for_a_function(workdir: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    (workdir / "loupe.toml").write_text("")
    (workdir / "mod.py").write_text(
        f"{HEAD}    print(time.time())\n    return 'done'\n\ndef word(text): return agent(), text\n"
    )
    code = main(["doctor", "--code", "mod:word", "--json", "--", "hello"])
    said = json.loads(capfdbinary.readouterr().out)
    assert code == 1
    assert [(one["kind"], one["file"], one["mend"]) for one in said["findings"]] == [("clock", "mod.py", "loupe.now()")]
    assert said["replay"]["verdict"] == "pass"
    assert said["run"].startswith("word-")


def test_what_records_nothing_is_no_clean_bill(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workdir / "loupe.toml").write_text("")
    (workdir / "plain.py").write_text("print(1)")
    assert main(["doctor", "plain.py"]) == 3
    assert "NOTHING WAS RECORDED" in capsys.readouterr().out


def test_every_kind_has_its_mend() -> None:
    assert {*C_CALLS.values(), *PYTHON_CALLS.values()} <= MENDS.keys()
