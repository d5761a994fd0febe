"""The commands of the documentation are done, page by page and in their order, in a project that has what they name.

What a page shows of their output is printed by them, but for ids, times, digests and figures; lines may be left out. It stands
below `<!-- printed by: COMMAND -->`, or in a block of the form `$ COMMAND` and its output.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest
import zstandard

from tests.docs.project import SHOP, WEATHER, Project, project, shown_script
from tests.docs.test_docs import ALL, command_lines, name_of
from tests.ledger.support import plain
from tests.support import ROOT

Doing: TypeAlias = Callable[[Project], object]

CHINESE = "README.zh-CN.md"
"""Its commands are those of the English one: tests/docs/test_translation.py."""
MENDED = "agentloupe replay last --code examples.notify.fixed:notifier"
START = shown_script("start.md")
NOT_HERE: Mapping[str, str] = {
    "pip install": "it would fetch packages; tests/test_wheel.py installs",
    "make ": "make's targets are those of the developer; test_make_targets_exist",
    "export ": "the project has its own model",
    "python -m agentloupe.providers.": "a server that goes on; tests/unit/test_scripted.py, tests/unit/test_local_model.py",
    "agentloupe serve": "a server that goes on; tests/server/test_serve.py",
    "LOUPE_SERVER_HOSTS=": "a server that goes on; tests/server/test_serve.py",
    "agentloupe worker": "a worker that goes on; tests/server/test_worker.py",
    "curl ": "the examples of the API are asked of a real server; tests/docs/examples.py",
    "openssl ": "another program, which writes outside of the project",
    "zstd -d < ": "another program, into a pager; the same file is unpacked for docs/guides/evidence.md",
    "SUPPORT_REFUNDS=": "as below",
    ".venv/bin/": "the demo, with a model that is fetched; tests/cli/test_demo.py has it with the scripted one",
    "pytest ": "tests/pytest_plugin has the modes",
}
"""Beginnings of lines that are not done here, with the reason."""


@dataclass(frozen=True)
class Story:
    """What a page needs.

    Attributes:
        prepare: done first.
        script: what `my_agent.py` is.
        before: done before the command that begins so, once for each.
        exits: exit codes of commands that begin so, where it is not 0.
        typed: what is typed into a command that begins so.
    """

    prepare: Doing
    script: str = START
    before: Mapping[str, Doing] = field(default_factory=dict[str, Doing])
    exits: Mapping[str, int] = field(default_factory=dict[str, int])
    typed: Mapping[str, str] = field(default_factory=dict[str, str])


def nothing(made: Project) -> None:
    """The page begins with nothing."""


def two_runs(made: Project) -> None:
    """A weather run, in a file too, and a fork of it that goes another way."""
    made.agents(weather=True)
    made.names["PARENT"] = made.record("assistant", "Beijing or Shanghai: which is warmer, by how much?")
    assert made.do("agentloupe", "export", "last", "-o", "incident.loupe") == 0
    forked(*LIVE)(made)


def forked(*wish: str) -> Doing:
    def do(made: Project) -> None:
        assert made.do("agentloupe", "fork", made.names["PARENT"], "--from", "4", *wish) == 0

    return do


LIVE = ("--live", "calculate", "--reason", "arithmetic", "--tools-from", "agentloupe.demo.calculator")


def two_more(made: Project) -> None:
    """Two more forks, which answer in other words."""
    forked(*LIVE, "--system-prompt", "Answer in one sentence.")(made)
    forked()(made)


def weather(made: Project) -> None:
    """A run of `my_agent.py`, which is the weather agent here."""
    made.agents(weather=True)
    made.run_script()


def ticket(made: Project) -> None:
    made.record("triage")
    made.write("fix.json", '[{"kind": "unconsumed", "name": "notify"}]')
    made.agents(mended=True)


def support_in_a_file(made: Project) -> None:
    made.names["RUN"] = made.record("support")
    assert made.do("agentloupe", "export", "last", "-o", "incident.loupe") == 0


def file_to_import(made: Project) -> None:
    support_in_a_file(made)
    made.names |= {"FILE": "incident.loupe", "...": ""}


def fails(made: Project) -> None:
    """A run that ended in a failure, and nobody at a terminal to debug it."""
    made.scripts(SHOP.replace('    return {"charge"', '    raise LookupError\n    return {"charge"'))
    assert made.do("python", "my_agent.py") == 1
    made.names["--pdb"] = ""


def bank(made: Project) -> None:
    """Effects that nobody saw end; what is published is so once, and not followed."""
    open_charge(made)
    made.names["--follow"] = ""


def open_charge(made: Project) -> None:
    made.names |= {"RUN": made.killed("tool.started", "charge"), "CALL": "0.3"}


def plain_ledger(made: Project) -> None:
    (folder := made.folder / "plain" / "receipts").mkdir(parents=True)
    files = plain()
    for name, data in files.receipts.items():
        (folder / name).write_bytes(data)
    (made.folder / "plain" / "events.jsonl").write_bytes(files.events)
    (made.folder / "plain" / "budget.json").write_bytes(files.budget)


def unpacked(made: Project) -> None:
    data = (made.folder / "incident.loupe").read_bytes()
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        (made.folder / "incident.jsonl").write_bytes(reader.read())


def next_key(made: Project) -> None:
    (made.folder / "old.key.pub").write_bytes((made.folder / "anchor.key.pub").read_bytes())
    assert made.do("agentloupe", "anchor", "keygen", "new.key") == 0


def goes_on(made: Project) -> None:
    assert made.do("agentloupe", "resume", "last", "--code", "my_app.agents:support") == 0


def exported(*folders: str) -> Doing:
    def do(made: Project) -> None:
        for folder in folders:
            shutil.rmtree(made.folder / folder, ignore_errors=True)
            assert made.do("agentloupe", "ledger", "export", "last", folder) == 0
            assert made.do("agentloupe", "ledger", "replay", folder) == 0

    return do


def torn(made: Project) -> None:
    log = made.folder / "incident" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:3], lines[3][:50], b"\n", lines[4]]))


def imported(made: Project) -> None:
    made.write("talk.json", '[{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good day"}]')
    before = {run.id for run in made.store.runs()}
    assert made.do("agentloupe", "import", "talk.json") == 0
    (run,) = (run.id for run in made.store.runs() if run.id not in before)
    made.names |= {"RUN": run, "FILE": "raw.json"}


def anchored(made: Project) -> None:
    exported("incident/")(made)
    said = json.loads((made.folder / "incident" / "checkpoint.json").read_bytes())
    made.names["15:<hash>"] = f"{said['events']}:{said['head']}"


def signed_again(made: Project) -> None:
    signing(made)
    shutil.rmtree(made.folder / "incident")
    assert made.do("agentloupe", "ledger", "export", "last", "incident/", "--key", "anchor.key") == 0


def signing(made: Project) -> None:
    made.record("support")
    assert made.do("agentloupe", "anchor", "keygen", "anchor.key") == 0


STORIES: Mapping[str, Story] = {
    "README.md": Story(nothing, script=SHOP),
    "docs/start.md": Story(nothing),
    "docs/guides/compare.md": Story(
        two_runs,
        before={"agentloupe compare last~3": two_more},
        exits={"agentloupe compare last~1 last --fail-on diff": 1},
    ),
    "docs/guides/effects.md": Story(
        bank, script=SHOP, before={"agentloupe effects settle RUN CALL --outcome not-done": open_charge}
    ),
    "docs/guides/evidence.md": Story(
        lambda made: made.record("support"),
        before={
            "agentloupe anchor write --key anchor.key": lambda made: made.killed_agent(
                "support", "tool.finished", "find_ticket"
            ),
            "agentloupe verify last --anchors": goes_on,
            "python tools/verify_anchors.py": unpacked,
            "agentloupe anchor write --key new.key": next_key,
        },
    ),
    "docs/guides/existing-agents.md": Story(nothing, before={"agentloupe replay last --code": Project.bot}),
    "docs/guides/existing-programs.md": Story(
        nothing, before={"agentloupe doctor my_agent": lambda made: made.scripts(SHOP)}
    ),
    "docs/guides/fork.md": Story(
        weather,
        script=WEATHER,
        before={
            "agentloupe fork last --from 4 --system-prompt @prompt.txt": lambda made: (
                made.run_script(),
                made.write("prompt.txt", "Answer in one sentence."),
            ),
            "agentloupe fork last --from start": lambda made: made.record("assistant", "How warm is it in Beijing?"),
        },
    ),
    "docs/guides/ledger.md": Story(
        signing,
        before={
            "agentloupe ledger compare": exported("here/", "there/"),
            "agentloupe ledger salvage": torn,
            "agentloupe ledger replay plain/": plain_ledger,
            "agentloupe ledger import": exported("incident/"),
        },
        exits={"agentloupe ledger replay incident/ --anchor": 2, "agentloupe ledger salvage": 2},
    ),
    "docs/guides/profiles.md": Story(nothing, script=SHOP),
    "docs/guides/record.md": Story(nothing, script=SHOP, typed={"agentloupe delete": "y\n"}),
    "docs/guides/replay.md": Story(
        support_in_a_file,
        script=SHOP,
        before={
            "agentloupe replay last -- python": lambda made: made.run_script(),
            "agentloupe replay last --expect": ticket,
            "agentloupe replay last --until-failure": fails,
        },
        exits={f"{MENDED}": 1, f"{MENDED} --expect": 0},
    ),
    "docs/guides/resume.md": Story(
        lambda made: made.killed_agent("support", "tool.started", "find_ticket"),
        script=SHOP,
        before={
            "agentloupe resume last -- python": lambda made: made.killed("tool.finished", "look_up"),
            "agentloupe effects list": open_charge,
        },
    ),
    "docs/guides/secrets-and-coverage.md": Story(support_in_a_file),
    "docs/guides/streams-and-async.md": Story(lambda made: made.record("planner")),
    "docs/guides/trace-context.md": Story(nothing),
    "docs/reference/importing.md": Story(file_to_import, before={"agentloupe export RUN --raw": imported}),
    "docs/reference/ledger.md": Story(
        support_in_a_file,
        before={
            "python tools/verify_ledger.py incident/ --anchor": anchored,
            "python tools/verify_ledger.py incident/ --public-key": signed_again,
        },
    ),
}


def own_words(line: str) -> list[str]:
    return shlex.split(line.rstrip("\\"), comments=True)


def begins(line: str, known: Mapping[str, object]) -> str | None:
    """The longest known beginning of a line."""
    return max((start for start in known if line.startswith(start)), key=len, default=None)


_SHOWN = re.compile(r"<!-- printed by: (.*?) -->\n```text\n(.*?)```", re.DOTALL)
_SESSION = re.compile(r"^```text\n(\$ .*?)^```", re.MULTILINE | re.DOTALL)


def sessions(text: str) -> Iterator[tuple[str, str]]:
    """Commands of blocks that show a terminal, each with what it printed."""
    for block in _SESSION.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, printed = part.partition("\n")
            yield line, printed


def lines_of(page: Path) -> list[tuple[str, str]]:
    """Commands of a page in the order in which they stand, each with what the page shows of its output."""
    text = page.read_text("utf-8")
    shown = {" ".join(own_words(command)): printed for command, printed in _SHOWN.findall(text)}
    found = [(line, shown.pop(" ".join(own_words(line)), "")) for line in command_lines(page) if is_command(line)]
    assert not shown, f"output of commands that {name_of(page)} does not have"
    return [*found, *sessions(text)]


_PROGRAM = re.compile(
    r"(?:LOUPE_\w+=\S+ )?(?:\.venv/bin/)?(?:agentloupe|python|pip|pytest|make|export|curl|openssl|zstd) "
)


def is_command(line: str) -> bool:
    return _PROGRAM.match(line) is not None


def masked(line: str) -> str:
    """A line without what differs from one time to the next."""
    line = re.sub(r"\b[a-z_]+-\d{6}-[0-9a-z]{6}(-fork-[0-9a-f]{6})?\b", "RUN", line)
    line = re.sub(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z?", "TIME", line)
    line = re.sub(r"\b(?=\w*\d)[0-9a-f]{12,64}\b", "DIGEST", line)
    line = re.sub(r"(?<![\w-])[+-]?\d+(?:[.,]\d+)*", "0", line)
    return re.sub(r"\s+", " ", line).strip()


def assert_printed(shown: str, printed: str, where: str) -> None:
    """Every shown line was printed, in that order."""
    rest = iter([masked(line) for line in printed.splitlines()])
    missing = next((line for line in shown.splitlines() if line.strip() and masked(line) not in rest), None)
    assert missing is None, f"{where} does not print {missing!r}, but:\n{printed}"


@pytest.mark.parametrize("page", STORIES)
def test_the_commands_of_a_page_do_what_it_says(page: str, workdir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    story = STORIES[page]
    waiting = dict(story.before)
    with project(workdir, story.script) as made:
        story.prepare(made)
        for line, shown in lines_of(ROOT / page):
            if begins(line, NOT_HERE):
                continue
            if (before := begins(line, waiting)) is not None:
                waiting.pop(before)(made)
            words = [word for word in (made.names.get(word, word) for word in own_words(line)) if word]
            capfd.readouterr()
            code = made.do(*words, typed=story.typed.get(begins(line, story.typed) or "", ""))
            printed = "".join(capfd.readouterr())
            expected = story.exits.get(begins(line, story.exits) or "", 0)
            assert code == expected, f"{line}: {code}\n{printed}"
            assert_printed(shown, printed, line)
    assert not waiting, "these commands are not on the page any more"


def test_every_command_is_done_or_has_its_reason() -> None:
    left = [
        (name_of(page), line) for page in ALL if name_of(page) not in (*STORIES, CHINESE) for line, _ in lines_of(page)
    ]
    assert not [(page, line) for page, line in left if begins(line, NOT_HERE) is None]
    known = {begins(line, NOT_HERE) for page in ALL for line, _ in lines_of(page)}
    assert not set(NOT_HERE) - known, "no page has these any more"
    named = {name for reason in NOT_HERE.values() for name in re.findall(r"tests/[\w/]+(?:\.py)?", reason)}
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize(
    ("shown", "printed"),
    [("a 2 b", "a b"), ("a\nb", "b\na"), ("run weather-261130-mmx72k: ok", "run weather-261130-mmx72k: not ok")],
)
def test_output_that_is_another_is_found(shown: str, printed: str) -> None:
    with pytest.raises(AssertionError, match="does not print"):
        assert_printed(shown, printed, "it")


def test_ids_times_and_figures_are_no_difference() -> None:
    shown = "shop-261130-mmx72k  at 2026-11-30T20:15:15Z, 12.5 s, 7ebaf7b327cf"
    assert_printed(shown, "first\nshop-261201-k3v9qa at 2026-12-01T08:00:00.1Z, 3 s, aaaaf7b32700\nlast", "it")
