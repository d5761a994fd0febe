"""The documentation is true: its commands parse, its examples run, its links lead somewhere, its lists are whole."""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import typer.main

from agentloupe.cli.app import GROUPS, VERBS, _build  # the parser, without running a verb
from agentloupe.cli.app import run as cli_run
from agentloupe.engine.report import EXIT_CODES, DivergenceKind
from agentloupe.ports import settings
from agentloupe.ports.serving import SERVER_READERS
from agentloupe.providers.scripted import ScriptedServer, sample_rule
from agentloupe.words.event import EVENT_TYPES, KIND_OF_TYPE, Event
from tests.docs import divergences, reference
from tests.docs.streamed import StreamingModel
from tests.support import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TOP = [
    ROOT / name
    for name in ("README.md", "README.zh-CN.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")
]
ALL = [*TOP, *PAGES]

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_RUNS = re.compile(r"<!-- runs -->\n```python\n(.*?)```", re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_TARGET = re.compile(r"^([a-z][\w-]*):", re.MULTILINE)
_SETTING = re.compile(r"\b(?:LOUPE|LLM)_[A-Z][A-Z_]*[A-Z]\b")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def command_lines(page: Path) -> Iterator[str]:
    """Lines of shell that a page tells people to type: in `sh` and `console` blocks and in indented ones."""
    text = page.read_text("utf-8")
    for language, block in _FENCE.findall(text):
        if language in ("sh", "console", "bash"):
            yield from (line.strip().removeprefix("$ ") for line in block.splitlines())
    for line in _FENCE.sub("", text).splitlines():
        if line.startswith("    "):
            yield line.strip().removeprefix("$ ")


def loupe_commands(page: Path) -> Iterator[list[str]]:
    for line in command_lines(page):
        words = shlex.split(line, comments=True) if line.startswith(("agentloupe ", ".venv/bin/agentloupe ")) else []
        if words:
            yield words[1:]


COMMANDS = [(name_of(page), words) for page in ALL for words in loupe_commands(page)]


def parse(words: list[str]) -> None:
    """Parses a command line as the program would, and runs nothing. Raises the usage error that the user would see."""
    own = words[: words.index("--")] if "--" in words else words
    group = typer.main.get_command(_build(own))
    context = group.make_context("agentloupe", list(words))
    verb, command, rest = group.resolve_command(context, context._protected_args + context.args)  # type: ignore[attr-defined]
    assert verb in VERBS
    assert command is not None
    inner = command.make_context(verb, rest, parent=context)
    if verb in GROUPS:
        own, command, rest = command.resolve_command(inner, inner._protected_args + inner.args)
        assert own in GROUPS[verb]
        command.make_context(own, rest, parent=inner)


@pytest.mark.parametrize(
    ("page", "words"), COMMANDS, ids=lambda value: value if isinstance(value, str) else " ".join(value)[:60]
)
def test_every_command_parses(page: str, words: list[str]) -> None:
    if words in (["--version"], ["--help"]):
        return
    parse(words)


@pytest.mark.parametrize(
    "words",
    [
        ["forks", "last"],
        ["ledger", "replays", "x"],
        ["fork", "last", "--from", "3", "--warmth", "1"],
        ["list", "-n", "x"],
    ],
)
def test_a_command_that_is_none_is_found(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"No such|valid integer"):
        parse(words)


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 30
    assert {words[0] for _, words in COMMANDS} >= {
        "run",
        "list",
        "show",
        "replay",
        "fork",
        "compare",
        "verify",
        "export",
    }


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_make_targets_exist(page: Path) -> None:
    targets = set(_TARGET.findall((ROOT / "Makefile").read_text("utf-8")))
    named = [
        word
        for line in command_lines(page)
        if line.startswith("make ")
        for word in shlex.split(line, comments=True)[1:]
    ]
    assert not [word for word in named if "=" not in word and word not in targets and word != "TARGET"]


RUNNABLE = [page for page in ALL if _RUNS.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_examples_run(page: Path, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = workdir / "my_agent.py"
    script.write_text("\n\n".join(_RUNS.findall(page.read_text("utf-8"))), "utf-8")
    monkeypatch.setenv("LOUPE_DB", str(workdir / "loupe.db"))
    with ScriptedServer(StreamingModel(sample_rule)) as server:
        monkeypatch.setenv("LLM_BASE_URL", server.url)
        monkeypatch.setenv("LLM_MODEL", "scripted-1")
        runpy.run_path(str(script), run_name="__main__")


def test_the_first_script_says_what_it_lacks(workdir: Path) -> None:
    script = workdir / "my_agent.py"
    script.write_text("".join(_RUNS.findall((DOCS / "start.md").read_text("utf-8"))), "utf-8")
    with pytest.raises(SystemExit, match="set LLM_BASE_URL and LLM_MODEL first"):
        runpy.run_path(str(script), run_name="__main__")
    assert not (workdir / ".loupe").exists()


SCRIPTS = [
    (name_of(page), name, source)
    for page in ALL
    for name, source in re.findall(r"<!-- script: (\S+) -->\n```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
]


@pytest.mark.parametrize(("page", "name", "source"), SCRIPTS, ids=lambda value: value if "\n" not in value else "")
def test_scripts_are_recorded_and_replayed_as_programs(
    page: str, name: str, source: str, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workdir / name).write_text(source, "utf-8")
    db = str(workdir / "loupe.db")
    with ScriptedServer(StreamingModel(sample_rule)) as server:
        monkeypatch.setenv("LLM_BASE_URL", server.url)
        monkeypatch.setenv("LLM_MODEL", "scripted-1")
        assert cli_run(["run", "--db", db, "--", "python", str(workdir / name)]) == 0
        assert len(server.requests) == 1
        assert cli_run(["replay", "last", "--db", db, "--", "python", str(workdir / name)]) == 0
        assert len(server.requests) == 1


def test_scripts_are_shown() -> None:
    assert len(SCRIPTS) > 1


def test_some_examples_are_run() -> None:
    assert {name_of(page) for page in RUNNABLE} >= {"docs/start.md", "docs/guides/record.md", "docs/guides/fork.md"}


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    dead: list[str] = []
    for link in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert not dead


def test_settings_that_are_named_exist() -> None:
    files = [*(ROOT / "src").rglob("*.py"), ROOT / "Makefile"]
    source = "".join(file.read_text("utf-8") for file in files)
    made = {f"LOUPE_{name.upper()}" for name in settings._READERS}
    made |= {f"LOUPE_SERVER_{name.upper()}" for name in SERVER_READERS}
    made |= {f"LOUPE_RECORDING_{name.upper()}" for name in settings.RECORDING_READERS}
    named = {(name_of(page), name) for page in ALL for name in _SETTING.findall(page.read_text("utf-8"))}
    assert not {(page, name) for page, name in named if name not in made and name not in source}
    assert len(named) > 10


def test_the_page_of_settings_is_whole() -> None:
    page = (DOCS / "reference" / "settings.md").read_text("utf-8")
    for name in settings._READERS:
        assert f"| `{name}` | `LOUPE_{name.upper()}`" in page
    for field in ("base_url", "api_key", "model", "extra_body", "dialect"):
        assert f"| `LLM_{field.upper()}` |" in page
    example = tomllib.loads(next(block for language, block in _FENCE.findall(page) if language == "toml"))
    known = {
        *settings._READERS,
        "secrets",
        "redaction",
        "profiles",
        "samples",
        "recording",
        "live",
        "endpoints",
        "server",
    }
    assert set(example) == known
    for name in settings.RECORDING_READERS:
        assert f"| `[recording] {name}` | `LOUPE_RECORDING_{name.upper()}`" in page
    for name in SERVER_READERS:
        assert f"| `[server] {name}` | `LOUPE_SERVER_{name.upper()}`" in page


def test_the_example_of_settings_is_read(workdir: Path) -> None:
    page = (DOCS / "reference" / "settings.md").read_text("utf-8")
    (workdir / "loupe.toml").write_text(next(b for language, b in _FENCE.findall(page) if language == "toml"), "utf-8")
    assert settings.load(workdir, environ={}).live == {"calculate": "pure arithmetic"}


def table_rows(page: Path, heading: str) -> list[list[str]]:
    section = page.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    return rows[2:]


def test_the_page_of_events_is_whole() -> None:
    page = DOCS / "reference" / "events.md"
    types = {row[0].strip("`"): row[1].strip("`") for row in table_rows(page, "Types")}
    assert types == {name: KIND_OF_TYPE.get(name, "") for name in EVENT_TYPES}
    named = {name for row in table_rows(page, "The envelope") for name in re.findall(r"`(\w+)`", row[0])}
    assert named == set(Event.__dataclass_fields__) - {"hash", "prev_hash"}


def test_facts_that_are_recorded_are_on_the_page_of_events(tmp_path: Path) -> None:
    rows = {
        row[0].strip("`"): set(re.findall(r"`(\w+)`", row[3]))
        for row in table_rows(DOCS / "reference" / "events.md", "Types")
    }
    found: list[tuple[str, str]] = []
    for event in _demonstration(tmp_path):
        found += [(event.type, name) for name in event.attrs if name not in rows[event.type]]
    assert not sorted(set(found))


def _demonstration(folder: Path) -> Iterator[Event]:
    """Events of a run with all kinds of calls, and of a fork of it."""
    import agentloupe as loupe
    from agentloupe.demo.samples import load_sample
    from tests.tapes import record_in

    store = loupe.open_store(folder / "loupe.db")

    @loupe.tool(effect="write")
    def pay(amount: int) -> int:
        loupe.receipt("R-1")
        if amount < 0:
            raise ValueError(amount)
        return amount

    def agent() -> str:
        loupe.now()
        loupe.rng.randint(1, 6)
        loupe.uuid4()
        loupe.env("TZ")
        loupe.state("phase", 1)
        loupe.check("valid", True)
        loupe.retrieve("index", "query", lambda query: [], version="1")
        return str(pay(1) + pay(-1))

    yield from record_in(store, agent).events
    with ScriptedServer(sample_rule) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLM_BASE_URL", server.url)
        weather = record_in(store, load_sample("weather").assistant, "Beijing or Shanghai: which is warmer?")
        yield from weather.events
        made = loupe.fork(weather.run_id, from_step=4, store=store, temperature=0.5)
        yield from store.recording(made.candidates[0].id).events


def test_every_kind_of_divergence_has_its_heading() -> None:
    text = divergences.PAGE.read_text("utf-8")
    for kind in get_args(DivergenceKind):
        assert f"### {kind}\n" in text
    assert reference.reported() >= set(get_args(DivergenceKind))


def test_exit_codes_are_on_their_page() -> None:
    text = (DOCS / "reference" / "exit-codes.md").read_text("utf-8")
    assert all(f"| {code} |" in text for code in (*EXIT_CODES.values(), 64, 130))


def test_public_names_are_documented() -> None:
    assert not reference.undocumented()


def test_generated_pages_are_fresh(tmp_path: Path) -> None:
    stale = [name_of(page) for page, text in reference.pages(tmp_path) if page.read_text("utf-8") != text]
    assert not stale, "stale: make docs-reference"


def test_the_site_lists_every_page() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]

    def files(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        for inner in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
            yield from files(inner)

    assert sorted(files(nav)) == sorted(str(page.relative_to(DOCS)) for page in PAGES)
