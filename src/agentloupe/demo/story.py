"""The demo's story as data: two agents recorded, replayed with the network shut, forked, compared, and a refund refused.

Nothing here prints; `cli.demo` tells it. Every chapter knows the command that does the same thing, as a person would type
it. Every figure comes from the runs themselves.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from agentloupe.demo.calculator import calculate
from agentloupe.demo.samples import code_of, sample_path
from agentloupe.engine.project import load_step
from agentloupe.engine.report import ReplayReport
from agentloupe.ports.environment import variables
from agentloupe.ports.protocols import Store
from agentloupe.verbs.forking import ForkResult, fork
from agentloupe.verbs.isolated import replay_code
from agentloupe.verbs.running import run_recorded
from agentloupe.words.errors import ForkRefused, LoupeError
from agentloupe.words.run import Run
from agentloupe.words.step import Step

__all__ = ["Experiment", "Story", "shown_path"]

ONE_SENTENCE = "Answer in one sentence."
AT_MOST = "Refund at most 20."
CALCULATOR = "agentloupe.demo.calculator"
CALCULATOR_REASON = "arithmetic only: parsed, bounded, touches nothing"
REFUND_REASON = "trying to pay twice"
ATTEMPTS = 3
"""So often is a sample recorded until its model does what the chapter is about; small models do not always."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One fork of the demo: what it is called, the command that makes it, and what came of it."""

    title: str
    engine: str
    command: str
    result: ForkResult

    @property
    def run(self) -> Run:
        """The new run."""
        return self.result.candidates[0]


@dataclass(slots=True)
class Story:
    """The demo's steps, each to be called once, in order.

    Attributes:
        store: where everything is recorded.
        db: its address, for child processes.
        default_db: the address that commands take by themselves; another one is named in every command.
        refunds: the file in which every refund that really happens is one line.
    """

    store: Store
    db: str
    default_db: str
    refunds: Path
    runs: dict[str, str] = field(default_factory=dict[str, str])

    # --- commands -----------------------------------------------------------------------------------------------------

    def typed(self, verb: str, *words: str, behind: Sequence[str] = (), refunds: bool = False) -> str:
        """A command as a person types it, in this folder; `behind` is what stands behind `--`."""
        place = (
            [] if self.db == self.default_db else ["--db", self.db if "://" in self.db else shown_path(Path(self.db))]
        )
        tail = ["--", *behind] if behind else []
        line = shlex.join([*_program(), verb, *words, *place, *tail])
        return f"SUPPORT_REFUNDS={shlex.quote(shown_path(self.refunds))} {line}" if refunds else line

    def book(self) -> AbstractContextManager[None]:
        """While the block runs every refund that really happens is written into the book, also one in a fork."""
        return variables({"SUPPORT_REFUNDS": str(self.refunds)})

    # --- record, replay -----------------------------------------------------------------------------------------------

    def record_command(self, sample: str) -> str:
        """The command that records a sample."""
        return self.typed("run", "--tag", "demo", behind=_script(sample), refunds=sample == "support")

    def record(self, sample: str) -> str:
        """Runs a sample agent as its own program, recorded, and returns the run's id.

        Raises:
            LoupeError: the program failed, or recorded nothing.
        """
        script = _script(sample)
        with self.book(), tempfile.TemporaryFile() as said:
            ran = run_recorded(script, db=self.db, tags=["demo"], output=said, insist=True, sample=1.0)
            last = _last_line(said)
        if ran.code or not ran.runs:
            raise LoupeError(f"the {sample} agent failed: {last}", hint="run it by itself: " + shlex.join(script))
        self.runs[sample] = ran.runs[-1]
        return ran.runs[-1]

    def did_its_part(self, sample: str) -> bool:
        """Whether the recorded model asked for what the later chapters are about: tools, and a refund."""
        asked = {step.name for step in self.store.steps(self.runs[sample]) if step.kind == "tool"}
        return bool(asked) if sample == "weather" else "refund_order" in asked

    def replay_command(self, sample: str) -> str:
        """The command that replays a sample."""
        return self.typed("replay", self.runs[sample], "--code", code_of(sample))

    def replay(self, sample: str) -> ReplayReport:
        """Replays what `record` recorded, in a child without network and keys."""
        return replay_code(self.runs[sample], code_of(sample), store=self.store)

    # --- fork ---------------------------------------------------------------------------------------------------------

    def middle(self, sample: str) -> Step:
        """The model step that follows the first tool results; the last model step where the model asked for no tool."""
        models = [step for step in self.store.steps(self.runs[sample]) if step.kind == "llm"]
        tools = [step.idx for step in self.store.steps(self.runs[sample]) if step.kind == "tool"]
        after = [step for step in models if tools and step.idx > tools[0]]
        if not models:
            raise LoupeError(f"the {sample} agent asked its model nothing", hint="run the demo again")
        return after[0] if after else models[-1]

    def prompt(self, sample: str, more: str) -> str:
        """The system prompt that the sample's model step was sent, with a sentence more."""
        step = load_step(self.store.recording(self.runs[sample]), self.middle(sample))
        messages = step.input.get("messages") if isinstance(step.input, dict) else None
        first = messages[0] if isinstance(messages, list) and messages else None
        sent = first.get("content") if isinstance(first, dict) else None
        return f"{sent} {more}" if isinstance(sent, str) else more

    def _fork_words(self, sample: str) -> list[str]:
        return [self.runs[sample], "--from", str(self.middle(sample).idx)]

    def unchanged(self) -> Experiment:
        """Nothing is changed: the control."""
        command = self.typed("fork", *self._fork_words("weather"))
        done = fork(self.runs["weather"], from_step=self.middle("weather").idx, store=self.store)
        return Experiment("unchanged (the control)", "generic loop", command, done)

    def another_prompt(self) -> Experiment:
        """One sentence is added to the system prompt, nothing else differs from the control."""
        prompt = self.prompt("weather", ONE_SENTENCE)
        at = self.middle("weather").idx
        done = fork(self.runs["weather"], from_step=at, store=self.store, system_prompt=prompt)
        command = self.typed("fork", *self._fork_words("weather"), "--system-prompt", prompt)
        return Experiment(f'prompt + "{ONE_SENTENCE}"', "generic loop", command, done)

    def live_calculator(self) -> Experiment:
        """Nothing is changed, but the calculator may really run: pure, listed, with a reason."""
        words = ["--live", "calculate", "--reason", CALCULATOR_REASON, "--tools-from", CALCULATOR]
        done = fork(
            self.runs["weather"],
            from_step=self.middle("weather").idx,
            store=self.store,
            live={"calculate": CALCULATOR_REASON},
            functions={"calculate": calculate},
        )
        command = self.typed("fork", *self._fork_words("weather"), *words)
        return Experiment("unchanged, calculator live", "generic loop", command, done)

    def _own(self, sample: str, more: str | None) -> Experiment:
        """A fork with the agent's own code, with a sentence more in the system prompt or unchanged."""
        words = [*self._fork_words(sample), "--code", code_of(sample)]
        changes: dict[str, Any] = {}
        if more is not None:
            changes["system_prompt"] = self.prompt(sample, more)
            words += ["--system-prompt", changes["system_prompt"]]
        at = self.middle(sample).idx
        with self.book():
            done = fork(self.runs[sample], code_of(sample), from_step=at, store=self.store, **changes)
        title = "unchanged" if more is None else f'prompt + "{more}"'
        return Experiment(title, "own code", self.typed("fork", *words), done)

    # --- the refund ---------------------------------------------------------------------------------------------------

    def refunds_made(self) -> int:
        """How many refunds really happened."""
        return len(self.refunds.read_text("utf-8").splitlines()) if self.refunds.exists() else 0

    def refused_command(self) -> str:
        """The command that asks for the refund to be run for real."""
        return self.typed("fork", *self._fork_words("support"), "--live", "refund_order", "--reason", REFUND_REASON)

    def refused_refund(self) -> ForkRefused:
        """Asks a fork to run the refund for real; returns the refusal."""
        allowed = {"refund_order": REFUND_REASON}
        try:
            with self.book():
                fork(self.runs["support"], from_step=self.middle("support").idx, store=self.store, live=allowed)
        except ForkRefused as refused:
            return refused
        raise LoupeError("a fork was allowed to run a tool that writes: this must never happen", hint="report this")

    def same_refund(self) -> Experiment:
        """The agent's own code goes on from the step; its refund is answered from the recording."""
        return self._own("support", None)

    def other_refund(self) -> Experiment:
        """The same with a prompt that allows less: that refund was never made, so it is a miss, and it is not made now."""
        return self._own("support", AT_MOST)


def _script(sample: str) -> list[str]:
    """The sample's command line, as a person would type it behind `--`."""
    return ["python", shown_path(sample_path(sample))]


def shown_path(path: Path) -> str:
    """A path as a person would type it in this folder."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_absolute() and path.is_relative_to(here) else str(path)


def _program() -> list[str]:
    """How this program is called here: by its name where that is this installation, else by its path."""
    own = Path(sys.executable).with_name("agentloupe")
    found = shutil.which("agentloupe")
    if found is not None and own.exists() and own.samefile(found):
        return ["agentloupe"]
    return [shown_path(own)] if own.exists() else [sys.executable, "-m", "agentloupe"]


def _last_line(said: IO[bytes]) -> str:
    """The last thing that a program said."""
    said.seek(0)
    lines = said.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
