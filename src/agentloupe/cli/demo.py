"""`agentloupe demo`: the whole story on a real run, in a few minutes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from agentloupe.cli.arms import arms_table, road_of, say_road
from agentloupe.cli.common import AsJson, Database, Debug
from agentloupe.cli.output import Output, harmless
from agentloupe.cli.show import show_tree
from agentloupe.cli.views import counts_text, run_json
from agentloupe.demo.models import DemoModel, chosen_model
from agentloupe.demo.story import ATTEMPTS, Experiment, Story, shown_path
from agentloupe.demo.watch import watching
from agentloupe.engine.compare import Side, compare_runs
from agentloupe.engine.project import load_steps
from agentloupe.ports.ambient import monotonic_ms
from agentloupe.verbs.comparing import side_of
from agentloupe.verbs.pricing import price_table
from agentloupe.words.run import Run

T = TypeVar("T")


def command(
    model: Annotated[
        Literal["scripted", "local", "env"] | None,
        typer.Option(
            help="env: LLM_BASE_URL and its friends. local: a small model on this machine. scripted: a rule. Default: the first that can be had.",
            show_default=False,
        ),
    ] = None,
    page: Annotated[
        bool | None,
        typer.Option(
            "--page/--no-page",
            help="Serve the page with these runs at the end. Default: ask, where somebody sits at a terminal.",
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
    from agentloupe.engine.project import Projector
    from agentloupe.ports.settings import load
    from agentloupe.store.opening import open_url

    began = monotonic_ms()
    out = Output(as_json)
    address = db or load().db
    usual = load(environ={name: value for name, value in os.environ.items() if name != "LOUPE_DB"}).db
    store = open_url(address, new_fold=Projector)
    try:
        with chosen_model(model, _progress) as chosen:
            told = _Telling(out, Story(store, address, usual, _refunds(address)), chosen)
            told.all()
    finally:
        store.close()
    seconds = (monotonic_ms() - began) / 1000
    if as_json:
        more = [command for command, _ in told.further]
        out.document({**told.document, "passed": told.passed, "further": more, "seconds": round(seconds, 1)})
    else:
        told.end(seconds)
        if told.passed and _wants_page(page):
            _serve(address)
    raise typer.Exit(0 if told.passed else 1)


def _wants_page(said: bool | None) -> bool:
    """Whether the page shall be served now. Nobody is asked where nobody sits: in a pipe, a job, continuous integration."""
    if said is not None:
        return said
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("CI"):
        return False
    try:
        return typer.confirm("Serve the page with these runs now?", default=True)
    except typer.Abort:
        return False


def _serve(address: str) -> None:
    """Serves the page until Ctrl-C, at any free port."""
    from agentloupe.cli.serve import command as serve

    serve(host="127.0.0.1", port=0, browser=True, token=None, db=address, debug=False)


def _progress(line: str) -> None:
    sys.stderr.write(f"  .. {harmless(line)}\n")
    sys.stderr.flush()


def _refunds(address: str) -> Path:
    """The book of refunds stands beside the database, new for each demo."""
    folder = Path(address.removeprefix("sqlite:///")).resolve().parent
    book = folder / "demo-refunds.jsonl"
    book.unlink(missing_ok=True)
    return book


class _Telling:
    """Tells the story, chapter by chapter, and keeps what it told as a document."""

    def __init__(self, out: Output, story: Story, model: DemoModel) -> None:
        self.out = out
        self.story = story
        self.model = model
        self.passed = True
        self.document: dict[str, object] = {"model": {"kind": model.kind, "name": model.name}, "database": story.db}
        self.experiments: list[Experiment] = []
        self.further: list[tuple[str, str]] = []

    def all(self) -> None:
        """The five chapters."""
        self.out.line(f"model: {self.model.about}", style="bold")
        self._record()
        self._replay()
        self._fork()
        self._compare()
        self._refund()
        self.further = self._further()

    def _title(self, text: str) -> None:
        self.out.line()
        self.out.line(text, style="bold")

    def _typed(self, line: str) -> None:
        self.out.command(f"$ {line}", style="cyan")

    def _watched(self, work: Callable[[], T]) -> T:
        with watching(self.story.db, _progress):
            return work()

    # --- 1, 2 ---------------------------------------------------------------------------------------------------------

    def _record(self) -> None:
        self._title("1. Record: two agents, as they are, each a run")
        recorded: dict[str, object] = {}
        for sample in ("weather", "support"):
            command = self.story.record_command(sample)
            self._typed(command)
            run = self._recorded(sample)
            recorded[sample] = {"command": command, **run_json(run)}
            self.out.line(f"{run.id}: {run.status}, {run.step_count} steps, {run.events} events")
            if not self.out.as_json:
                show_tree(self.out, load_steps(self.story.store.recording(run.id)))
        refunds = self.story.refunds_made()
        self.out.line(f"refunds that really happened: {refunds}")
        self.document |= {"recorded": recorded, "refunds_recorded": refunds}

    def _recorded(self, sample: str) -> Run:
        """Records until the model did what the later chapters need, a few times at most."""
        run_id = self._watched(lambda: self.story.record(sample))
        for _ in range(1, ATTEMPTS):
            if self.story.did_its_part(sample):
                break
            _progress(f"the model did not use the {sample} agent's tools as it should: recording it again")
            run_id = self._watched(lambda: self.story.record(sample))
        run = self.story.store.run(run_id)
        assert run is not None, "it was just recorded"
        return run

    def _replay(self) -> None:
        self._title("2. Replay: the same code, its recorded world; no network, no key, nothing is executed")
        reports: dict[str, object] = {}
        for sample in ("weather", "support"):
            command = self.story.replay_command(sample)
            self._typed(command)
            report = self.story.replay(sample)
            reports[sample] = {"command": command, **report.as_json()}
            self.passed = self.passed and report.passed
            self.out.line(report.text(), style="green" if report.passed else "red")
            self.out.line(f"  {report.isolation}")
        refunds = self.story.refunds_made()
        self.out.line(f"refunds that really happened: {refunds}")
        self.document |= {"replayed": reports, "refunds_after_replay": refunds}

    # --- 3, 4 ---------------------------------------------------------------------------------------------------------

    def _fork(self) -> None:
        step = self.story.middle("weather").idx
        self._title(
            f"3. Fork from step {step}, the model step after the first tool results: the model is asked anew, tools are played"
        )
        for make in (self.story.unchanged, self.story.another_prompt, self.story.live_calculator):
            made = self._watched(make)
            self.experiments.append(made)
            self._say_fork(made)
        self.document["forked_from_step"] = step

    def _say_fork(self, made: Experiment) -> None:
        run = made.run
        self._typed(made.command)
        self.out.line(
            f"  {made.title}, {made.engine}: {run.status}, {run.step_count} steps; {counts_text(run)}; {run.label}"
        )
        for line in made.result.notes:
            self.out.line(f"  note: {line}", style="yellow")

    def _compare(self) -> None:
        self._title("4. Compare: where the roads part")
        table = price_table()
        parent = side_of(self.story.store, self.story.runs["weather"], table)
        sides: list[tuple[str, Side]] = [("observed", parent)]
        for made in self.experiments:
            arm = "control" if made is self.experiments[0] else "candidate"
            sides.append((arm, side_of(self.story.store, made.run.id, table)))
        arms_table(self.out, sides)
        forks: list[dict[str, object]] = []
        for (arm, side), made in zip(sides[1:], self.experiments, strict=True):
            road = road_of(compare_runs(parent, side))
            forks.append({**_told(made), "arm": arm, "answer": side.answer, "first_difference": road})
            say_road(self.out, made.title, side.run, road)
        self.out.line(
            "three forks are no verdict: repeat them beside controls (--repeat 3) before you believe a difference"
        )
        self.document |= {"answer": parent.answer, "forks": forks}

    # --- 5 ------------------------------------------------------------------------------------------------------------

    def _refund(self) -> None:
        self._title("5. Never twice: try to make a fork pay the refund again")
        before = self.story.refunds_made()
        command = self.story.refused_command()
        self._typed(command)
        refusal = self.story.refused_refund()
        self.out.line(f"  refused: {refusal}", style="green")
        same = self._watched(self.story.same_refund)
        self._say_fork(same)
        other = self._watched(self.story.other_refund)
        self._say_fork(other)
        asked = next((s for s in self.story.store.steps(other.run.id) if s.source == "miss"), None)
        if asked is not None:
            self.out.line(f"  step {asked.idx}: {asked.name} was never made like this: a miss, and it was not run")
        after = self.story.refunds_made()
        kept = after == before
        self.passed = self.passed and kept
        self.out.line(
            f"refunds that really happened: {before} before, {after} after", style="green" if kept else "bold red"
        )
        self.document["refund"] = {
            "refused": {"command": command, "reason": refusal.reason, "message": refusal.message},
            "same": _told(same),
            "other": _told(other),
            "before": before,
            "after": after,
        }

    # --- the end ------------------------------------------------------------------------------------------------------

    def _further(self) -> list[tuple[str, str]]:
        """The commands to look further, each with what it shows."""
        typed, weather, fork = self.story.typed, self.story.runs["weather"], self.experiments[0].run.id
        return [
            (typed("list"), "all runs"),
            (typed("show", weather), "a run as a tree"),
            (typed("show", weather, str(self.story.middle("weather").idx)), "a step whole: what was sent, what came"),
            (typed("compare", weather, fork), "two runs, step by step"),
            (typed("verify", "--all"), "is the evidence whole?"),
            (typed("export", weather, "-o", "weather.loupe", "--force"), "a file that replays anywhere"),
        ]

    def end(self, seconds: float) -> None:
        """How long it took, and the commands to look further."""
        self._title(f"Done in {seconds:.0f} s. Look further:")
        commands = self.further
        width = max(len(command) for command, _ in commands)
        for command, shows in commands:
            self.out.command(f"  {command:<{width}}  # {shows}")
        again = self.model.start_again
        if again is not None:
            python = shown_path(Path(sys.executable))
            self.out.line("The model ended with the demo. To run or fork more, start it again and say where it is:")
            self.out.command(f"  {python} {again} &")
            self.out.command(f"  export LLM_BASE_URL=http://127.0.0.1:8765/v1 LLM_MODEL={self.model.name}")
        self.out.line("Next, the same runs as a page in your browser:")
        self.out.command(f"  {self.story.typed('serve')}")


def _told(made: Experiment) -> dict[str, object]:
    notes = list(made.result.notes)
    return {
        "title": made.title,
        "command": made.command,
        "engine": made.engine,
        "run": run_json(made.run),
        "notes": notes,
    }
