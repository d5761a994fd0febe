"""The demo's story as data: two agents recorded, replayed with the network shut, forked, compared, and a refund refused.

Nothing here prints; `cli.demo` tells it. Every figure comes from the runs themselves.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentloupe import launch
from agentloupe.demo.calculator import calculate
from agentloupe.demo.samples import load_sample, sample_path
from agentloupe.errors import ForkRefused, LoupeError
from agentloupe.forking import ForkResult, fork
from agentloupe.isolated import replay_command
from agentloupe.jsontext import loads
from agentloupe.ports import Store
from agentloupe.report import ReplayReport
from agentloupe.run import Run

__all__ = ["Experiment", "Story"]

ONE_SENTENCE = " Answer in one sentence."
CALCULATOR_REASON = "arithmetic only: parsed, bounded, touches nothing"


@dataclass(frozen=True, slots=True)
class Experiment:
    """One fork of the demo: what it is called, what it changes, and what came of it."""

    title: str
    engine: str
    from_step: int
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
        refunds: the file in which every refund that really happens is one line.
    """

    store: Store
    db: str
    refunds: Path
    runs: dict[str, str] = field(default_factory=dict[str, str])

    # --- record, replay -----------------------------------------------------------------------------------------------

    def record(self, sample: str) -> str:
        """Runs a sample agent as its own program, recorded, and returns the run's id.

        Raises:
            LoupeError: the program failed (its own output was shown), or recorded nothing.
        """
        with tempfile.TemporaryDirectory(prefix="agentloupe-") as folder:
            report = Path(folder) / "report.json"
            fields: dict[str, Any] = {
                "db": self.db,
                "report": str(report),
                "argv": self.command(sample),
                "tags": ["demo"],
            }
            spec = launch.write_spec(Path(folder) / "spec.json", "record", fields)
            done = subprocess.run(  # noqa: S603  # our own interpreter and sample
                launch.command(spec, self.command(sample)),
                env=self._environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            runs = _runs_in(report)
        if done.returncode or not runs:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise LoupeError(
                f"the {sample} agent failed: {last}", hint="run it by itself: " + " ".join(self.command(sample))
            )
        self.runs[sample] = runs[-1]
        return runs[-1]

    def command(self, sample: str) -> list[str]:
        """The sample's command line, as a person would type it behind `--`."""
        path = sample_path(sample)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        return ["python", str(shown)]

    def replay(self, sample: str) -> ReplayReport:
        """Replays what `record` recorded, in a child without network and keys."""
        return replay_command(
            self.runs[sample], self.command(sample), store=self.store, environment=self._environment()
        )

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "SUPPORT_REFUNDS": str(self.refunds), "PYTHONHASHSEED": "0"}

    # --- fork ---------------------------------------------------------------------------------------------------------

    def middle(self, sample: str) -> int:
        """Index of the model step that follows the first tool results.

        Raises:
            LoupeError: the model asked for no tool, so there is no such step.
        """
        seen_tool = False
        for step in self.store.steps(self.runs[sample]):
            if step.kind == "tool":
                seen_tool = True
            elif step.kind == "llm" and seen_tool:
                return step.idx
        raise LoupeError(
            f"the model asked for no tool in the {sample} run", hint="run the demo again, or with another model"
        )

    def prompt(self, sample: str) -> str:
        """The sample's system prompt."""
        return str(load_sample(sample).INSTRUCTIONS)

    def unchanged(self, step: int) -> Experiment:
        """Nothing is changed: the control."""
        done = fork(self.runs["weather"], from_step=step, store=self.store)
        return Experiment("unchanged (the control)", "generic loop", step, done)

    def another_prompt(self, step: int) -> Experiment:
        """One sentence is added to the system prompt; the agent's own code runs on from the step."""
        agent = load_sample("weather").assistant
        prompt = self.prompt("weather") + ONE_SENTENCE
        done = fork(self.runs["weather"], agent, from_step=step, store=self.store, system_prompt=prompt)
        return Experiment('prompt + "Answer in one sentence."', "own code", step, done)

    def live_calculator(self, step: int) -> Experiment:
        """Nothing is changed, but the calculator may really run: pure, listed, with a reason."""
        done = fork(
            self.runs["weather"],
            from_step=step,
            store=self.store,
            live={"calculate": CALCULATOR_REASON},
            functions={"calculate": calculate},
        )
        return Experiment("unchanged, calculator live", "generic loop", step, done)

    # --- the refund ---------------------------------------------------------------------------------------------------

    def refunds_made(self) -> int:
        """How many refunds really happened."""
        return len(self.refunds.read_text("utf-8").splitlines()) if self.refunds.exists() else 0

    def refused_refund(self, step: int) -> str:
        """Asks a fork to run the refund for real; returns the refusal."""
        refund = load_sample("support").refund_order
        try:
            fork(
                self.runs["support"],
                from_step=step,
                store=self.store,
                live={"refund_order": "trying to"},
                functions={"refund_order": refund},
            )
        except ForkRefused as refused:
            return str(refused)
        raise LoupeError("a fork was allowed to run a tool that writes: this must never happen", hint="report this")

    def forked_refund(self, step: int) -> Experiment:
        """The agent's own code goes on from the step; its refund is answered from the recording."""
        agent = load_sample("support").assistant
        return Experiment(
            "support, own code", "own code", step, fork(self.runs["support"], agent, from_step=step, store=self.store)
        )


def _runs_in(report: Path) -> list[str]:
    try:
        value = loads(report.read_bytes())
    except (OSError, ValueError):
        return []
    runs = value.get("runs") if isinstance(value, dict) else None
    return [str(run) for run in runs] if isinstance(runs, list) else []
