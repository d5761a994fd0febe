"""What reaches the terminal: payloads are hostile, colours are for people, JSON is for machines."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from agentloupe.cli.output import Output, harmless, number_of, short
from agentloupe.store.sqlite import SqliteStore
from agentloupe.verbs.looping import run_loop
from tests.cli.driving import HOSTILE, Command, agentloupe
from tests.fork_support import Script, schema
from tests.support import ROOT

_RAW = re.compile("[^\n\t\x20-\x7e\xa0-\U0010ffff]|[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def tool_that_fails(text: str) -> str:
    """Fails with what it was given."""
    raise ValueError(text)


@pytest.fixture
def hostile(empty: Path) -> Path:
    """A store with a run in which everything that comes from outside is hostile."""
    db = empty / "loupe.db"
    model = Script(
        [("boom", {HOSTILE: HOSTILE, "text": HOSTILE}), (HOSTILE, HOSTILE), ("boom", {"text": HOSTILE})], HOSTILE
    )
    store = SqliteStore(db)
    run_loop(
        model,
        {"boom": tool_that_fails},
        model=HOSTILE,
        system=HOSTILE,
        question=HOSTILE,
        tool_schemas=[schema("boom", text={"description": HOSTILE})],
        store=store,
        run_id="hostile-1",
        name=HOSTILE,
        tags=[HOSTILE],
    )
    store.close()
    return db


def is_harmless(text: str) -> None:
    found = _RAW.search(text)
    assert found is None, f"{found} in {text[:200]!r}"
    for char in set(text) - set("\n\t"):
        assert unicodedata.category(char) not in ("Cc", "Cf"), char


@pytest.mark.parametrize(
    "words",
    [
        *(("show", "last", str(step)) for step in range(5)),
        *(("show", "last"), ("show", "last", "0", "--tools"), ("list",), ("verify", "last"), ("verify", "--all")),
        *(("compare", "last", "last"), ("compare", "last", "last", "--all"), ("compare", "last", "last", "last")),
        *(("rebuild",), ("size",), ("export", "last", "-o", "x.loupe"), ("prune", "--older-than", "0m", "--dry-run")),
        *(
            ("show", HOSTILE),
            ("list", "--tag", HOSTILE),
            ("list", "--status", HOSTILE),
            ("import", HOSTILE),
            (HOSTILE,),
        ),
        *(("export", "last", "-o", f"{HOSTILE.replace('/', '')}.loupe"), ("verify", HOSTILE), ("replay", HOSTILE)),
        *(
            ("fork", "last", "--from", HOSTILE),
            ("fork", "last", "--from", "0", "--set", HOSTILE),
            ("list", "--db", HOSTILE),
        ),
        *(("replay", "last", "--", HOSTILE), ("replay", "last", "--code", HOSTILE), ("show", "last", HOSTILE)),
    ],
    ids=lambda words: " ".join(map(harmless, words))[:60],
)
def test_nothing_that_a_terminal_obeys_gets_out(hostile: Path, cli: Command, words: tuple[str, ...]) -> None:
    done = cli(*words, *([] if "--db" in words else ["--db", str(hostile)]))
    is_harmless(done.out + done.err)
    assert done.out + done.err != ""
    assert "Traceback" not in done.err


@pytest.mark.parametrize("words", [("list",), ("show", "last"), ("show", "last", "3"), ("show", HOSTILE)])
def test_json_says_the_same_and_is_harmless_too(hostile: Path, cli: Command, words: tuple[str, ...]) -> None:
    done = cli(*words, "--json", "--db", hostile)
    is_harmless(done.out)
    assert done.json is not None
    if words == ("list",):
        assert done.json[0]["name"] == HOSTILE
        assert HOSTILE in done.json[0]["tags"]


def test_a_hostile_run_is_shown_whole(hostile: Path, cli: Command) -> None:
    out = cli.ok("show", "last", "--db", hostile)
    assert "a\\x1b[31mred" in out
    assert "\\u202egnp.exe" in out


def test_the_name_of_a_hostile_script_is_harmless(tmp_path: Path) -> None:
    script = tmp_path / f"x{HOSTILE.replace('/', '')}.py"
    script.write_text("import agentloupe as loupe\nloupe.random()\n")
    done = agentloupe("run", "--db", tmp_path / "l.db", "--name", HOSTILE, "--", "python", script)
    is_harmless(done.err)
    assert "recorded" in done.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b]8;;http://x\x1b\\", "\\x1b]8;;http://x\\x1b\\"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("\ud800", "\\ud800"),
        ("schön 北京 🙂", "schön 北京 🙂"),
    ],
)
def test_harmless(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_short_keeps_the_width_and_says_what_is_missing() -> None:
    assert short("x" * 100, 40) == "x" * 28 + "... +72"
    assert short({"a": [1, "b\n"]}) == '{"a":[1,"b\\n"]}'
    assert short("two\n  lines") == "two lines"


def test_counts_in_words() -> None:
    assert [number_of(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    assert number_of(3, "body") == "3 bodies"


# --- colours ----------------------------------------------------------------------------------------------------------


def in_a_terminal(*words: str, **variables: str) -> str:
    """What a command writes to a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "agentloupe", *words],
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **variables},
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    written = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        written += piece
    os.close(leader)
    assert process.wait(timeout=20) == 0
    return written.decode()


def test_colours_are_for_people(db: Path, weather: str) -> None:
    assert "\x1b[" in in_a_terminal("show", weather)
    assert "\x1b[" not in in_a_terminal("show", weather, NO_COLOR="1")
    assert "\x1b[" not in agentloupe("show", weather).out


def test_a_terminal_cuts_lines_at_its_width(db: Path, weather: str) -> None:
    lines = re.sub("\x1b\\[[0-9;]*m", "", in_a_terminal("show", weather, NO_COLOR="1")).splitlines()
    assert max(map(len, lines)) <= 120


def test_a_terminal_does_not_break_a_line_that_people_copy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    out = Output()
    command = "agentloupe compare " + " ".join(f"weather-{n}" for n in range(9))
    out.command(command)
    out.line(command)
    whole, *broken = capsys.readouterr().out.splitlines()
    assert whole == command
    assert len(broken) > 1


def test_json_has_no_colours_in_a_terminal(db: Path, weather: str) -> None:
    assert json.loads(in_a_terminal("show", weather, "--json"))["run"]["id"] == weather


def test_a_terminal_without_utf8_gets_every_line(db: Path, weather: str) -> None:
    done = agentloupe("show", weather, PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert done.out.isascii()


@pytest.mark.parametrize("words", ["show {run} --json", "list", "show {run}"])
def test_a_reader_that_leaves_early_is_no_error(db: Path, weather: str, words: str) -> None:
    command = f"{sys.executable} -u -m agentloupe {words.format(run=weather)} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "streams", "code"),
    [
        ("show {run} --json", ">/dev/full", 3),
        ("list --json", ">/dev/full", 3),
        ("list", ">/dev/full", 3),
        ("show nobody --json", ">/dev/full", 3),
        ("show nobody", "2>/dev/full", 3),
        ("list --limit x", "2>/dev/full", 64),
        ("list", ">&-", 0),
        ("show {run} --json", ">&- 2>&- <&-", 0),
        ("show nobody", ">&- 2>&-", 3),
    ],
)
def test_a_stream_that_takes_nothing_changes_no_exit_code_and_shows_no_traceback(
    db: Path, weather: str, words: str, streams: str, code: int
) -> None:
    command = f"exec {sys.executable} -m agentloupe {words.format(run=weather)} {streams}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "fault of agentloupe" not in done.stderr
    assert "Exception ignored" not in done.stderr
