"""Programs under a recording: started as they were typed, with nothing about them changed but that they are recorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs import launch
from agentloupe.verbs.clients import CLIENTS, TRANSPORTS
from agentloupe.verbs.isolated import replay_command
from agentloupe.verbs.onstart.sitecustomize import HERE
from agentloupe.verbs.running import Ran, run_recorded
from agentloupe.words.errors import StoreError, UsageError
from agentloupe.words.jsontext import loads

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
FACTS = """
import atexit, inspect, json, os, signal, sys, threading, traceback
def facts():
    main = sys.modules["__main__"]
    return {
        "name": __name__, "file": globals().get("__file__"), "argv": sys.argv, "path": sys.path,
        "spec": getattr(main.__spec__, "name", None), "package": __package__, "flags": list(sys.flags), "orig": sys.orig_argv,
        "globals": sorted(globals()), "depth": len(inspect.stack()), "last": os.path.basename(inspect.stack()[-1].filename),
        "stdin": sys.stdin.read(), "isatty": sys.stdout.isatty(), "cwd": os.getcwd(),
        "int": str(signal.getsignal(signal.SIGINT)), "threads": threading.active_count(),
        "warnings": sys.warnoptions, "exit": sys.exit.__name__,
    }
print(json.dumps(facts(), default=str, sort_keys=True))
"""


def start(workdir: Path, *script: str, **fields: object) -> tuple[Ran, str]:
    with (workdir / "said").open("w+b") as said:
        ran = run_recorded(script, db=str(workdir / "x.db"), output=said, **fields)  # type: ignore[arg-type]
        said.seek(0)
        return ran, said.read().decode()


def opened(workdir: Path) -> Store:
    return open_url(workdir / "x.db", create=False)


def write(workdir: Path, name: str, text: str) -> None:
    (workdir / name).write_text(text, "utf-8")


def test_a_script_with_an_agent(workdir: Path) -> None:
    write(workdir, "my_agent.py", AGENT)
    write(workdir, "beside.py", "SUFFIX = '!'")
    ran, said = start(workdir, "python", "my_agent.py", "hi", name="nightly", tags=["t"])
    assert (said, ran.code, ran.programs) == ("hi!\n", 0, 1)
    store = opened(workdir)
    (run,) = store.runs()
    assert (run.agent, run.name, run.tags, run.status) == ("assistant", "nightly", ("t",), "ok")
    started = store.recording(run.id).events[0]
    assert started.attrs["entry"] == "my_agent:assistant"
    assert started.attrs["argv"] == ["python", "my_agent.py", "hi"]
    assert (ran.runs, ran.whole, ran.models) == ([run.id], {run.id}, False)
    loud, last = ran.said()
    assert loud.startswith("NO MODEL CALL WAS RECORDED")
    assert last == f"recorded {run.id}"
    store.close()


def test_calls_outside_of_any_run_make_one_around_the_program(workdir: Path) -> None:
    write(workdir, "stray.py", STRAY)
    ran, said = start(workdir, "stray.py", "3")
    assert (said, ran.code) == ("default\n", 3)
    store = opened(workdir)
    (run,) = store.runs()
    assert (run.agent, run.status, run.error) == ("stray", "error", "SystemExit")
    assert [s.kind for s in store.steps(run.id)] == ["agent", "env", "check"]
    store.close()


def test_a_module_is_run_as_main(workdir: Path) -> None:
    package = workdir / "pack"
    package.mkdir()
    write(package, "__init__.py", "")
    write(package, "job.py", AGENT.replace("from beside import SUFFIX", "from .other import SUFFIX"))
    write(package, "other.py", "SUFFIX = '?'")
    ran, said = start(workdir, "python", "-m", "pack.job", "hi")
    assert (said, ran.code) == ("hi?\n", 0)
    store = opened(workdir)
    assert store.recording(store.runs()[0].id).events[0].attrs["entry"] == "pack.job:assistant"
    store.close()


@pytest.mark.parametrize(
    "words",
    [
        ["facts.py", "a", "-b"],
        ["-u", "-W", "error::FutureWarning", "-X", "utf8", "facts.py"],
        ["-m", "facts", "x"],
        ["-c", FACTS, "y"],
        ["-"],
    ],
    ids=["script", "options", "module", "command", "stdin"],
)
def test_a_program_finds_everything_as_without(workdir: Path, words: list[str]) -> None:
    write(workdir, "facts.py", FACTS)
    given = FACTS.encode() if words == ["-"] else b"typed"
    plain = subprocess.run([sys.executable, *words], input=given, capture_output=True, check=True)
    seen = subprocess.run(
        [sys.executable, "-m", "agentloupe", "run", "--db", "x.db", "--", sys.executable, *words],
        input=given,
        capture_output=True,
        check=True,
    )
    assert loads(seen.stdout) == loads(plain.stdout)


def test_what_it_starts_is_recorded_too(workdir: Path) -> None:
    """A spawned worker, and a program that a program starts."""
    write(
        workdir,
        "many.py",
        "import multiprocessing, subprocess, sys\nimport agentloupe as loupe\n"
        "def work(n):\n    loupe.check('worked', True)\n    return n\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n        print(pool.map(work, [1, 2]))\n"
        "    subprocess.run([sys.executable, '-c', 'import agentloupe; agentloupe.check(\"child\", True)'], check=True)\n",
    )
    write(workdir, "tool", f"#!/bin/sh\nexec {sys.executable} many.py\n")
    (workdir / "tool").chmod(0o755)
    ran, said = start(workdir, "sh", "-c", "./tool")
    assert (said, ran.code) == ("[1, 2]\n", 0), ran
    assert ran.programs >= 3
    store = opened(workdir)
    assert sorted(run.agent for run in store.runs()) == ["many", "python"]
    store.close()


def test_a_sitecustomize_of_the_users_own_is_imported_too(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(workdir, "sitecustomize.py", "import sys; sys.theirs = True")
    write(workdir, "s.py", "import sys, sitecustomize, os; print(sys.theirs, os.path.basename(sitecustomize.__file__))")
    monkeypatch.setenv("PYTHONPATH", str(workdir))
    ran, said = start(workdir, "python", "s.py")
    assert (said, ran.code, ran.programs) == ("True sitecustomize.py\n", 0, 1)


@pytest.mark.parametrize(
    ("code", "exit_code", "says", "status"),
    [
        ("raise ValueError('x')", 1, "ValueError: x", "error"),
        ("raise SystemExit('a text')", 1, "a text", "error"),
        ("raise SystemExit(3)", 3, "", "error"),
        ("def main():\n    return 4\nraise SystemExit(main())", 4, "", "error"),
        (
            "def main():\n    return 0\nif True:\n    with open(__file__):\n        raise SystemExit(main())",
            0,
            "",
            "ok",
        ),
        ("raise SystemExit", 0, "", "ok"),
        ("try:\n    raise SystemExit(5)\nexcept SystemExit:\n    pass", 0, "", "ok"),
        ("import sys; sys.exit('a text')", 1, "a text", "error"),
        ("exit(3)", 3, "", "error"),
        ("import sys; sys.exit(None)", 0, "", "ok"),
        ("import os; os._exit(4)", 4, "", "error"),
        ("import sys\ntry:\n    sys.exit(5)\nexcept SystemExit:\n    pass", 0, "", "ok"),
        ("raise KeyboardInterrupt", 128 + signal.SIGINT, "KeyboardInterrupt", "cancelled"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL, "", "interrupted"),
    ],
)
def test_a_programs_end_is_its_own(workdir: Path, code: str, exit_code: int, says: str, status: str) -> None:
    write(workdir, "s.py", f"import agentloupe\nagentloupe.check('begun', True)\n{code}\n")
    ran, said = start(workdir, "python", "s.py")
    assert ran.code == exit_code
    assert says in said
    assert "agentloupe/verbs" not in said, "the traceback is the program's own"
    store = opened(workdir)
    (run,) = store.runs()
    assert run.status == status
    store.close()


@pytest.mark.parametrize(
    ("then", "now", "verdict"), [("3", "3", "pass"), ("3", "4", "diverged"), ("0", "3", "diverged")]
)
def test_a_replay_compares_a_bare_exit(workdir: Path, then: str, now: str, verdict: str) -> None:
    write(
        workdir,
        "s.py",
        "import os\nimport agentloupe\nagentloupe.check('begun', True)\nraise SystemExit(int(os.environ['CODE']))\n",
    )
    ran, _ = start(workdir, "python", "s.py", more={"CODE": then})
    assert ran.code == int(then)
    store = opened(workdir)
    report = replay_command(ran.runs[0], ["python", "s.py"], store=store, environment={"CODE": now})
    store.close()
    assert report.verdict == verdict, report
    if verdict == "diverged":
        assert f"exit code {now}, the recorded one with {then}" in report.text()


def test_a_traceback_is_the_very_same(workdir: Path) -> None:
    write(workdir, "s.py", "def f():\n    return 1 / 0\nf()\n")
    plain = subprocess.run([sys.executable, "s.py"], capture_output=True, text=True, check=False)
    assert start(workdir, "python", "s.py")[1] == plain.stderr
    write(workdir, "s.py", "def broken(:")
    plain = subprocess.run([sys.executable, "s.py"], capture_output=True, text=True, check=False)
    assert start(workdir, "python", "s.py")[1] == plain.stderr


def test_what_records_nothing_is_told_so_loudly(workdir: Path) -> None:
    write(workdir, "plain.py", "print(__name__, __file__)")
    ran, said = start(workdir, "python", "plain.py")
    assert said == f"__main__ {workdir / 'plain.py'}\n"
    assert ran.said()[0].startswith("NOTHING WAS RECORDED: the program opened no run")
    assert all(name.partition(".")[0].replace("botocore", "boto3") in ran.said()[0] for name in (*CLIENTS, *TRANSPORTS))
    ran, _ = start(workdir, "sh", "-c", "exit 6")
    assert ran.code == 6
    assert ran.said() == ["NOTHING WAS RECORDED: no Python program was started that finds Loupe at its start."]


def test_an_interpreter_without_loupe(workdir: Path) -> None:
    """A recording says so and the program runs; a replay does not let it run."""
    import venv

    venv.create(workdir / "bare", with_pip=False, symlinks=True)
    python = str(workdir / "bare" / "bin" / "python")
    write(workdir, "s.py", "open('ran', 'w').close()")
    ran, _ = start(workdir, python, "s.py")
    assert (ran.code, (workdir / "ran").exists()) == (0, True)
    assert "cannot load agentloupe" in ran.said()[0]
    (workdir / "ran").unlink()
    spec = launch.write_spec(workdir / "spec.json", "replay", {})
    refused = subprocess.run(
        launch.python_command([python, "s.py"]),
        env=launch.environment(spec),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (refused.returncode, (workdir / "ran").exists()) == (3, False)
    assert "install agent-loupe there" in refused.stderr


def test_a_store_that_cannot_be_had_stops_it_before_anything_runs(workdir: Path) -> None:
    write(workdir, "s.py", "open('ran', 'w').close()")
    (workdir / "x.db").mkdir()
    with pytest.raises(StoreError):
        start(workdir, "python", "s.py")
    assert not (workdir / "ran").exists()


def test_commands_as_a_user_types_them(workdir: Path) -> None:
    write(workdir, "a.py", "")
    python = sys.executable
    assert launch.command(["python", "a.py", "x"]) == [python, "a.py", "x"]
    assert launch.command(["a.py", "--flag"]) == [python, "a.py", "--flag"]
    assert launch.command(["python3", "-m", "pack.job"]) == [python, "-m", "pack.job"]
    assert launch.command(["/opt/python3.12", "a.py"])[0] == "/opt/python3.12"
    assert launch.command(["python", "-Xutf8", "-uc", "1", "x"]) == [python, "-Xutf8", "-uc", "1", "x"]
    assert launch.command(["ls", "-l"])[1:] == ["-l"]
    assert Path(launch.command(["agentloupe"])[0]).parent == Path(sys.executable).parent
    for wrong in ([], ["no-such-program"], ["python", "nowhere.py"], ["python", "-m"], ["python", "-Iu", "a.py"]):
        with pytest.raises(UsageError):
            launch.command(wrong)
    with pytest.raises(UsageError, match="no such script: nowhere"):
        launch.command(["python", "-W", "error", "nowhere.py"])


def test_a_replay_and_a_fork_start_python_only(workdir: Path) -> None:
    write(workdir, "a.py", "")
    write(workdir, "deaf", f"#!{sys.executable} -Es\n")
    write(workdir, "mine", "#!/usr/bin/env python3\n")
    write(workdir, "shell", "#!/bin/sh\n")
    for name in ("deaf", "mine", "shell"):
        (workdir / name).chmod(0o755)
    assert launch.python_command(["python", "a.py"]) == [sys.executable, "a.py"]
    python, *rest = launch.python_command(["./mine", "x"])
    assert (Path(python).name, rest) == ("python3", ["./mine", "x"])
    for wrong in (["./shell"], ["ls"], ["./deaf"]):
        with pytest.raises(UsageError):
            launch.python_command(wrong)


def test_the_environment_is_added_to(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = workdir / "spec.json"
    made = launch.environment(spec, {"PYTHONPATH": f"a{os.pathsep}{HERE}", "A": "b"})
    assert made == {"LOUPE_LAUNCH": str(spec), "PYTHONPATH": os.pathsep.join([HERE, "a"]), "A": "b"}


@pytest.mark.parametrize(
    ("change", "verdict", "note"),
    [
        ("sys.exit(9)", "could_not_run", "the program raised SystemExit"),
        ("raise LookupError", "could_not_run", "the program raised LookupError at my_agent.py:"),
        ("", "pass", None),
    ],
)
def test_a_replay_names_what_its_program_raised(workdir: Path, change: str, verdict: str, note: str | None) -> None:
    write(workdir, "my_agent.py", AGENT.replace("from beside import SUFFIX", "SUFFIX = ''"))
    ran, _ = start(workdir, "python", "my_agent.py", "hi")
    write(workdir, "my_agent.py", AGENT.replace("from beside import SUFFIX", f"SUFFIX = ''; {change}"))
    report = replay_command(ran.runs[0], ["python", "my_agent.py", "hi"], store=str(workdir / "x.db"))
    assert report.verdict == verdict
    assert any(said.startswith(note) for said in report.notes) if note else not report.notes


def test_a_replay_names_what_its_agent_raised(workdir: Path) -> None:
    write(workdir, "my_agent.py", AGENT.replace("from beside import SUFFIX", "SUFFIX = ''"))
    ran, _ = start(workdir, "python", "my_agent.py", "hi")
    write(
        workdir,
        "my_agent.py",
        AGENT.replace("return look(question)", "raise KeyError").replace("from beside import SUFFIX", "SUFFIX = ''"),
    )
    report = replay_command(ran.runs[0], ["python", "my_agent.py", "hi"], store=str(workdir / "x.db"))
    assert (report.verdict, report.divergence and report.divergence.kind) == ("diverged", "unconsumed")
    assert report.divergence is not None
    assert report.divergence.hints[0] == "the agent raised KeyError at my_agent.py:11"
    assert "mend what it raised" in (report.divergence.suggestion or "")


def test_a_replay_that_lacks_a_variable_says_so_first(workdir: Path) -> None:
    agent = AGENT.replace("import sys", "import os, sys").replace("from beside import SUFFIX", "SUFFIX = ''")
    write(workdir, "my_agent.py", agent)
    ran, _ = start(workdir, "python", "my_agent.py", "hi")
    write(workdir, "my_agent.py", agent.replace("return look(question)", "return look(os.environ['NOT_SET_HERE'])"))
    report = replay_command(ran.runs[0], ["python", "my_agent.py", "hi"], store=str(workdir / "x.db"))
    said = report.text()
    assert "hint: the agent raised KeyError: 'NOT_SET_HERE' at my_agent.py:11\n" in said
    assert "try: set the environment variable NOT_SET_HERE (nothing is sent there" in said
    assert "--expect" not in said


@pytest.mark.slow
@pytest.mark.parametrize("where", ["main", "thread"])
@pytest.mark.parametrize("debug", [True, False])
def test_what_a_program_raises_because_it_was_stopped_is_a_line(
    workdir: Path, where: str, debug: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    serving = """
def serve(question):
    try:
        assistant(question)
    except BaseException:
        raise RuntimeError("the portal is closed") from None
"""
    calls = {
        "main": "serve('a'); serve('b')",
        "thread": "serve('a'); import threading; t = threading.Thread(target=serve, args=('b',)); t.start(); t.join()",
    }
    write(workdir, "my_agent.py", AGENT.partition("if __name__")[0] + serving + calls[where])
    ran, _ = start(workdir, "python", "my_agent.py")
    if debug:
        monkeypatch.setenv("LOUPE_DEBUG", "1")
    report = replay_command(ran.runs[0], ["python", "my_agent.py"], store=str(workdir / "x.db"))
    assert report.passed, report.text()
    said = capfd.readouterr().err
    assert ("Traceback" in said) is debug
    assert ("was stopped, and raised RuntimeError at my_agent.py:" in said) is not debug
