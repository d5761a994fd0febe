"""`agentloupe demo`: the whole story on a real run, in a few minutes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from agentloupe.ambient import monotonic_ms
from agentloupe.cli.arms import arms_table, road_of, say_road
from agentloupe.cli.common import AsJson, Database, Debug
from agentloupe.cli.output import Output, short
from agentloupe.cli.show import show_tree
from agentloupe.cli.views import run_json
from agentloupe.compare import Side, compare_runs
from agentloupe.comparing import side_of
from agentloupe.demo.models import DemoModel, chosen_model
from agentloupe.demo.story import Experiment, Story
from agentloupe.pricing import price_table
from agentloupe.project import load_steps
from agentloupe.report import ReplayReport


def command(
    model: Annotated[
        Literal["scripted", "local", "env"] | None,
        typer.Option(
            help="env: LLM_BASE_URL and its friends. local: a small model on this machine. scripted: a rule. Default: the first that can be had.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Record two real agents, replay them offline, fork one from the middle, compare, and try to refund twice.

    Example: agentloupe demo --model scripted
    """
    from agentloupe.settings import load
    from agentloupe.store.opening import open_url

    began = monotonic_ms()
    out = Output(as_json)
    address = db or load().db
    store = open_url(address)
    try:
        with chosen_model(model, _progress) as chosen:
            story = Story(store, address, _refunds(address))
            told = _Telling(out, story, chosen)
            told.all()
    finally:
        store.close()
    seconds = (monotonic_ms() - began) / 1000
    if as_json:
        out.document({**told.document, "seconds": round(seconds, 1)})
    else:
        told.next(address, is_default=db is None, seconds=seconds)
    raise typer.Exit(0 if told.passed else 1)


def _progress(line: str) -> None:
    sys.stderr.write(f"  .. {line}\n")
    sys.stderr.flush()


def _refunds(address: str) -> Path:
    """The book of refunds stands beside the database, new for each demo."""
    folder = Path(address.removeprefix("sqlite:///")).resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    book = folder / "demo-refunds.jsonl"
    book.unlink(missing_ok=True)
    return book


class _Telling:
    """Tells the story, step by step."""

    def __init__(self, out: Output, story: Story, model: DemoModel) -> None:
        self.out = out
        self.story = story
        self.model = model
        self.passed = True
        self.document: dict[str, object] = {"model": {"kind": model.kind, "name": model.name}}
        self.experiments: list[Experiment] = []

    def all(self) -> None:
        """The five chapters."""
        self.out.line(f"model: {self.model.about}", style="bold")
        self._record()
        self._replay()
        self._fork()
        self._compare()
        self._refund()

    def _title(self, text: str) -> None:
        self.out.line()
        self.out.line(text, style="bold")

    def _record(self) -> None:
        self._title("1. Record: two agents, as they are, each a run")
        recorded: dict[str, object] = {}
        for sample in ("weather", "support"):
            self.out.line(f"$ agentloupe run -- {' '.join(self.story.command(sample))}")
            run_id = self.story.record(sample)
            recording = self.story.store.recording(run_id)
            steps = load_steps(recording)
            run = self.story.store.run(run_id)
            assert run is not None, "it was just recorded"
            recorded[sample] = run_json(run)
            self.out.line(f"{run_id}: {run.status}, {run.step_count} steps, {run.events} events")
            if not self.out.as_json:
                show_tree(self.out, steps)
        self.out.line(f"refunds that really happened: {self.story.refunds_made()}")
        self.document["recorded"] = recorded

    def _replay(self) -> None:
        self._title("2. Replay: the same code, its recorded world; no network, no key, nothing is executed")
        reports: dict[str, object] = {}
        for sample in ("weather", "support"):
            self.out.line(f"$ agentloupe replay {self.story.runs[sample]} -- {' '.join(self.story.command(sample))}")
            report = self.story.replay(sample)
            reports[sample] = report.as_json()
            self._say_report(report)
        self.out.line(f"refunds that really happened: {self.story.refunds_made()}")
        self.document["replayed"] = reports

    def _say_report(self, report: ReplayReport) -> None:
        self.passed = self.passed and report.passed
        self.out.line(report.text(), style="green" if report.passed else "red")
        self.out.line(f"  {report.isolation}")

    def _fork(self) -> None:
        step = self.story.middle("weather")
        run = self.story.runs["weather"]
        self._title(
            f"3. Fork: from step {step}, the model step after the first tool results; the model is asked anew, tools are played"
        )
        for title, make in (
            (f"agentloupe fork {run} --from {step}", self.story.unchanged),
            (
                f"agentloupe fork {run} --from {step} --system-prompt @prompt.txt --code weather_agent:assistant",
                self.story.another_prompt,
            ),
            (f"agentloupe fork {run} --from {step} --live calculate --reason ...", self.story.live_calculator),
        ):
            self.out.line(f"$ {title}")
            made = make(step)
            self.experiments.append(made)
            counts = made.run.counts
            self.out.line(
                f"  {made.title} ({made.engine}): {made.run.status}, {made.run.step_count} steps; "
                f"cassette {counts.cassette}, live {counts.live}, miss {counts.miss}; {made.run.label}"
            )
            for line in made.result.notes:
                self.out.line(f"  note: {line}", style="yellow")

    def _compare(self) -> None:
        self._title("4. Compare: where the roads part")
        table = price_table()
        parent = side_of(self.story.store, self.story.runs["weather"], table)
        sides: list[tuple[str, Side]] = [("observed", parent)]
        sides += [
            ("control" if made is self.experiments[0] else "candidate", side_of(self.story.store, made.run.id, table))
            for made in self.experiments
        ]
        roads: list[dict[str, object]] = []
        if not self.out.as_json:
            arms_table(self.out, sides)
        for (_, side), made in zip(sides[1:], self.experiments, strict=True):
            road = road_of(compare_runs(parent, side))
            roads.append(
                {
                    "title": made.title,
                    "run": run_json(side.run),
                    "answer": short(side.answer, 400),
                    "first_difference": road,
                }
            )
            say_road(self.out, made.title, side.run, road)
        self.out.line(
            "three forks are no verdict: repeat them beside controls (--repeat 3) before you believe a difference"
        )
        self.document["forks"] = roads

    def _refund(self) -> None:
        step = self.story.middle("support")
        run = self.story.runs["support"]
        self._title("5. Never twice: try to make a fork pay the refund again")
        before = self.story.refunds_made()
        self.out.line(f"$ agentloupe fork {run} --from {step} --live refund_order --reason 'trying to'")
        refusal = self.story.refused_refund(step)
        self.out.line(f"  refused: {refusal}", style="green")
        self.out.line(f"$ agentloupe fork {run} --from {step} --code support_agent:assistant")
        made = self.story.forked_refund(step)
        counts = made.run.counts
        self.out.line(
            f"  {made.run.status}, the refund was answered by: cassette {counts.cassette}, live {counts.live}, miss {counts.miss}; {made.run.label}"
        )
        after = self.story.refunds_made()
        self.passed = self.passed and after == before
        self.out.line(
            f"refunds that really happened: {before} before, {after} after",
            style="green" if after == before else "bold red",
        )
        self.document["refund"] = {"refused": refusal, "fork": run_json(made.run), "before": before, "after": after}

    def next(self, address: str, *, is_default: bool, seconds: float) -> None:
        """The commands to look further."""
        at = "" if is_default else f" --db {address}"
        weather, fork = self.story.runs["weather"], self.experiments[0].run.id
        self._title(f"Done in {seconds:.0f} s. Look further:")
        self.out.line(f"  agentloupe list{at}")
        self.out.line(f"  agentloupe show {weather}{at}            # the tree; add a number for a whole step")
        self.out.line(f"  agentloupe compare {weather} {fork}{at}")
        self.out.line(f"  agentloupe verify --all{at}")
        self.out.line(f"  agentloupe export {weather} -o weather.loupe{at}")
