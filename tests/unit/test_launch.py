"""Scripts under a launch: run as `__main__`, recorded, with their own exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs import launch
from agentloupe.words.errors import UsageError
from agentloupe.words.jsontext import Json, loads

AGENT = """
import sys
import agentloupe as loupe

@loupe.tool(effect="read")
def look(what):
    return {"saw": what}

@loupe.agent
def assistant(question):
    return look(question)

if __name__ == "__main__":
    from beside import SUFFIX
    print(assistant(sys.argv[1] + SUFFIX)["saw"])
"""
STRAY = """
import agentloupe as loupe, sys
print(loupe.env("SOME", "default"))
loupe.check("done", True)
sys.exit(int(sys.argv[1]))
"""


def start(workdir: Path, *script: str, **fields: Json) -> subprocess.CompletedProcess[str]:
    spec = launch.write_spec(
        workdir / "spec.json", "record", {"db": str(workdir / "x.db"), "report": str(workdir / "report.json"), **fields}
    )
    words = launch.command(spec, script)
    return subprocess.run(words, cwd=workdir, capture_output=True, text=True, check=False, env={**os.environ})


def opened(workdir: Path) -> Store:
    return open_url(workdir / "x.db", create=False)


def test_a_script_with_an_agent(workdir: Path) -> None:
    (workdir / "my_agent.py").write_text(AGENT, "utf-8")
    (workdir / "beside.py").write_text("SUFFIX = '!'", "utf-8")
    done = start(
        workdir, "python", "my_agent.py", "hi", name="nightly", tags=["t"], argv=["python", "my_agent.py", "hi"]
    )
    assert (done.stdout, done.returncode) == ("hi!\n", 0), done.stderr
    store = opened(workdir)
    (run,) = store.runs()
    assert (run.agent, run.name, run.tags, run.status) == ("assistant", "nightly", ("t",), "ok")
    started = store.recording(run.id).events[0]
    assert started.attrs["entry"] == "my_agent:assistant"
    assert started.attrs["argv"] == ["python", "my_agent.py", "hi"]
    assert f"recorded {run.id}" in done.stderr
    assert "NO MODEL CALL" in done.stderr
    assert loads((workdir / "report.json").read_bytes()) == {"runs": [run.id], "exit_code": 0}
    store.close()


def test_calls_outside_of_any_run_make_one_around_the_script(workdir: Path) -> None:
    (workdir / "stray.py").write_text(STRAY, "utf-8")
    done = start(workdir, "stray.py", "3")
    assert (done.stdout, done.returncode) == ("default\n", 3), done.stderr
    store = opened(workdir)
    (run,) = store.runs()
    assert (run.agent, run.status, run.error) == ("stray", "error", "SystemExit")
    assert [s.kind for s in store.steps(run.id)] == ["agent", "env", "check"]
    store.close()


def test_a_module_is_run_as_main(workdir: Path) -> None:
    package = workdir / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("", "utf-8")
    (package / "job.py").write_text(
        AGENT.replace("from beside import SUFFIX", "from pack.other import SUFFIX"), "utf-8"
    )
    (package / "other.py").write_text("SUFFIX = '?'", "utf-8")
    done = start(workdir, "python", "-m", "pack.job", "hi")
    assert (done.stdout, done.returncode) == ("hi?\n", 0), done.stderr
    store = opened(workdir)
    assert store.recording(store.runs()[0].id).events[0].attrs["entry"] == "pack.job:assistant"
    store.close()


def test_a_script_that_records_nothing_is_told_so_loudly(workdir: Path) -> None:
    (workdir / "plain.py").write_text("print(__name__, __file__)", "utf-8")
    done = start(workdir, "plain.py")
    assert (done.stdout, done.returncode) == ("__main__ plain.py\n", 0)
    assert "NOTHING WAS RECORDED" in done.stderr


@pytest.mark.parametrize(
    ("code", "exit_code", "says"),
    [
        ("raise ValueError('x')", 1, "ValueError: x"),
        ("raise SystemExit('a text')", 1, "a text"),
        ("raise KeyboardInterrupt", 130, ""),
        ("import sys; sys.exit(None)", 0, ""),
        ("def broken(:", 1, "SyntaxError"),
    ],
)
def test_exit_codes_are_the_scripts(workdir: Path, code: str, exit_code: int, says: str) -> None:
    (workdir / "s.py").write_text(code, "utf-8")
    done = start(workdir, "s.py")
    assert done.returncode == exit_code
    assert says in done.stderr
    assert "launch.py" not in done.stderr, "the traceback is the script's own"
    assert "runpy" not in done.stderr


def test_a_missing_script_and_a_broken_spec_are_one_line(workdir: Path) -> None:
    with pytest.raises(UsageError, match=r"no such script: nowhere\.py"):
        launch.command(workdir / "spec.json", ["python", "nowhere.py"])
    (workdir / "spec.json").write_text("{", "utf-8")
    words = [sys.executable, "-m", "agentloupe.verbs.launch", "spec.json", "--", "x.py"]
    broken = subprocess.run(words, cwd=workdir, capture_output=True, text=True, check=False)
    assert (broken.returncode, broken.stderr.count("\n")) == (3, 1)


def test_commands_as_a_user_types_them(workdir: Path) -> None:
    spec = workdir / "spec.json"
    (workdir / "a.py").touch()
    head = [sys.executable, "-m", "agentloupe.verbs.launch", str(spec), "--"]
    assert launch.command(spec, ["python", "a.py", "x"]) == [*head, "a.py", "x"]
    assert launch.command(spec, ["a.py", "--flag"]) == [*head, "a.py", "--flag"]
    assert launch.command(spec, ["python3", "-m", "pack.job"]) == [*head, "-m", "pack.job"]
    assert launch.command(spec, ["/opt/python3.12", "a.py"])[0] == "/opt/python3.12"
    for wrong in ([], ["python"], ["python", "-c", "print(1)"], ["python", "-m"], ["ls", "-l"]):
        with pytest.raises(UsageError):
            launch.command(spec, wrong)
