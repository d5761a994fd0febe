"""A project as a reader of the guides has one: a script, a package of agents, a database beside them, a scripted model."""

from __future__ import annotations

import io
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import agentloupe as loupe
from agentloupe.cli.app import run as cli_run
from agentloupe.engine.project import Projector
from agentloupe.ports.recording import Recording
from agentloupe.providers.scripted import ScriptedServer, sample_rule
from agentloupe.store.memory import MemoryStore
from tests.docs.streamed import StreamingModel
from tests.support import ROOT
from tests.tapes import record_in, sequence_of

SHOP = """\
import agentloupe as loupe


@loupe.tool(effect="read")
def look_up(order):
    return {"order": order, "state": "paid"}


@loupe.tool(effect="write")
def charge(order):
    return {"charge": f"ch_{order}"}


@loupe.agent
def shop(question="a question"):
    known = [look_up(order=order) for order in ("A-1", "A-2", "A-3")]
    return question, len(known), charge(order=1)


if __name__ == "__main__":
    print(shop())
"""
"""A script that charges somebody in its fourth call, 0.3."""

AGENTS = """\
import agentloupe as loupe


@loupe.tool(effect="read")
def find_ticket(number):
    return {"number": number, "state": "open"}


@loupe.tool(effect="write")
def notify(who):
    return f"told {who}"


@loupe.agent
def support(number="A-1001"):
    return find_ticket(number)["state"]


@loupe.agent
def planner(number="A-1001"):
    return [find_ticket(number)["state"] for _ in range(2)]


@loupe.agent
def triage(number="T-7"):
    state = find_ticket(number)["state"]
    if state == "closed" or not MENDED:
        notify("Kim")
    return state
"""
"""What `my_app.agents` has; `MENDED` stands above, the weather agent where a page needs it."""

BOT = """\
import agentloupe as loupe


class Bot:
    def __init__(self, unit):
        self.unit = unit

    @loupe.tool(effect="read", key=lambda bot: bot.unit)
    def get_weather(self, city):
        return {"city": city, "unit": self.unit}

    @loupe.agent(name="weather-bot")
    def answer(self, question="How warm is it in Beijing?"):
        return self.get_weather("Beijing")


def make_bot():
    return Bot("celsius")


if __name__ == "__main__":
    print(make_bot().answer())
"""
"""An agent that is a method of an object."""

WEATHER = (ROOT / "examples" / "weather" / "agent.py").read_text("utf-8")
_RUNS = re.compile(r"<!-- (?:runs|script: \S+) -->\n```python\n(.*?)```", re.DOTALL)


_OURS = ("my_agent", "my_app", "my_package")


def shown_script(page: str) -> str:
    """The first script that a page shows."""
    found = _RUNS.search((ROOT / "docs" / page).read_text("utf-8"))
    assert found is not None
    return found[1]


class Project:
    """A folder with `my_agent.py`, `my_package`, `my_app.agents`, the command `my-agent` and a model to ask."""

    def __init__(self, folder: Path, script: str) -> None:
        self.folder = folder
        self.names: dict[str, str] = {}
        self.write("loupe.toml", "")
        self.scripts(script)
        self.write("untouched.py", shown_script("guides/existing-agents.md"))
        self.write("my_app/__init__.py", "")
        self.agents()
        for name in ("tools", "examples"):
            (folder / name).symlink_to(ROOT / name)

    def write(self, name: str, text: str) -> Path:
        """A file of the project."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        return file

    def scripts(self, script: str) -> None:
        """What `my_agent.py`, `my_package` and `my-agent` are from here on."""
        self.write("my_agent.py", script)
        self.write("my_package/__main__.py", script)
        self.write("bin/my-agent", f"#!{sys.executable}\n{script}").chmod(0o755)

    def agents(self, *, mended: bool = False, weather: bool = False) -> None:
        """Writes `my_app.agents`. The weather agent takes its time, since it imports a client."""
        more = WEATHER.partition("\nif __name__")[0] if weather else ""
        self.write("my_app/agents.py", f"{more}\nMENDED = {mended}\n{AGENTS}")

    def agent(self, name: str) -> Callable[..., Any]:
        """An agent of `my_app.agents`."""
        return runpy.run_path(str(self.folder / "my_app" / "agents.py"), run_name="my_app.agents")[name]

    @property
    def store(self) -> Any:
        """The project's database."""
        return loupe.open_store(self.folder / ".loupe" / "loupe.db")

    def record(self, name: str, *args: Any) -> str:
        """Records an agent of `my_app.agents`; its id."""
        return record_in(self.store, self.agent(name), *args).run_id

    def bot(self) -> None:
        """Writes `my_app.bots` and the script `my_bot.py`, and runs that."""
        self.write("my_app/bots.py", BOT)
        self.write("my_bot.py", BOT.replace("if __name__", "from my_app.bots import make_bot\n\nif __name__"))
        assert self.do("python", "my_bot.py") == 0

    def run_script(self) -> None:
        """Runs `my_agent.py`."""
        with mock.patch.object(sys, "argv", ["my_agent.py"]):
            runpy.run_path(str(self.folder / "my_agent.py"), run_name="__main__")

    def killed(self, after: str, name: str) -> str:
        """A run of `my_agent.py` that was killed at its first event of that type and name; its id."""
        return self._killed(runpy.run_path(str(self.folder / "my_agent.py"))["shop"], after, name)

    def killed_agent(self, agent: str, after: str, name: str) -> str:
        """The same of an agent of `my_app.agents`."""
        return self._killed(self.agent(agent), after, name)

    def _killed(self, agent: Callable[..., Any], after: str, name: str) -> str:
        whole: Recording = record_in(MemoryStore(), agent)
        events = whole.events[: sequence_of(whole, after, name)]
        self.store.insert(whole.run_id, events, whole.get, Projector)
        return whole.run_id

    def do(self, *words: str, typed: str = "") -> int:
        """Does a command: ours in this process, all others as they are; its exit code. Output goes where it always goes."""
        if words[0] == "agentloupe":
            with mock.patch.object(sys, "stdin", io.StringIO(typed)):
                code = cli_run(list(words[1:]))
            sys.stdout.flush()
            return code
        return subprocess.run(
            list(words), cwd=self.folder, stdin=subprocess.DEVNULL, check=False, timeout=60
        ).returncode


@contextmanager
def project(folder: Path, script: str) -> Generator[Project]:
    """The project, whose folder is to be the current one, while its model listens."""
    with ScriptedServer(StreamingModel(sample_rule)) as server:
        variables = {
            "LLM_BASE_URL": server.url,
            "LLM_MODEL": "scripted-1",
            "PATH": os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
        }
        with mock.patch.dict(os.environ, variables):
            try:
                yield Project(folder, script)
            finally:
                for name in [name for name in sys.modules if name.partition(".")[0] in _OURS]:
                    del sys.modules[name]  # the next project has others of these names


__all__ = ["SHOP", "WEATHER", "Project", "project", "shown_script"]
