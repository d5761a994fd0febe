"""`run`: starts a program under a recording and says afterwards what was recorded."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from agentloupe.ports.protocols import Store
from agentloupe.ports.settings import load
from agentloupe.store.opening import open_url
from agentloupe.verbs import launch
from agentloupe.verbs.children import run_child
from agentloupe.verbs.sessions import end_left
from agentloupe.words.call import Attrs
from agentloupe.words.errors import LoupeError
from agentloupe.words.jsontext import Json, loads
from agentloupe.words.keeping import Profile

__all__ = ["Ran", "run_recorded"]


@dataclass(slots=True)
class Ran:
    """What became of a program that was run under a recording.

    Attributes:
        code: its exit code; 128 and the signal's number where a signal ended it.
        programs: how many Python programs took part: itself, and what it started.
        runs: ids of the runs that it opened, in the order in which they began, program by program.
        whole: those of them that were stored to their end.
        cut: those that were stored, but not to their end.
        lost: those of which nothing was stored.
        failed: why a Python program could not be recorded.
        models: whether any model was asked.
        left: those whose end is to be written here, where the exit code is seen, with what is known of it.
    """

    code: int
    programs: int = 0
    runs: list[str] = field(default_factory=list[str])
    whole: set[str] = field(default_factory=set[str])
    cut: set[str] = field(default_factory=set[str])
    lost: set[str] = field(default_factory=set[str])
    failed: list[str] = field(default_factory=list[str])
    models: bool = False
    left: dict[str, Mapping[str, Attrs]] = field(default_factory=dict[str, Mapping[str, Attrs]])

    def said(self) -> list[str]:
        """What a person should know, a line each; loud where nothing useful was recorded."""
        lines = [f"NOTHING WAS RECORDED of one program: {why}" for why in dict.fromkeys(self.failed)]
        if not self.programs and not self.failed:
            lines.append("NOTHING WAS RECORDED: no Python program was started that finds Loupe at its start.")
        elif not self.runs and not self.failed:
            lines.append(
                f"NOTHING WAS RECORDED: the program opened no run and made no call that goes through Loupe.\n{_WAY}"
            )
        elif self.runs and not self.models:
            lines.append(f"NO MODEL CALL WAS RECORDED: the program asked no model, or asked past Loupe.\n{_WAY}")
        for run_id in self.runs:
            if run_id in self.lost:
                lines.append(f"NOT RECORDED: {run_id}")
            else:
                lines.append(f"recorded {run_id}{'' if run_id in self.whole else ', but not whole'}")
        return lines


_WAY = (
    "            Clients of openai and anthropic are seen by themselves, and so is what httpx, httpx2, requests, aiohttp and\n"
    "            boto3 send to addresses of models; name other addresses with --model-url, or put @loupe.agent on the\n"
    "            entry point and @loupe.tool on what asks."
)


def run_recorded(
    script: Sequence[str],
    *,
    name: str | None = None,
    tags: Sequence[str] = (),
    task_id: str | None = None,
    db: str | None = None,
    output: IO[bytes] | None = None,
    insist: bool = False,
    watch: Path | None = None,
    more: Mapping[str, str] | None = None,
    model_urls: Sequence[str] = (),
    profile: Profile | None = None,
    sample: float | None = None,
) -> Ran:
    """Runs a program, as typed behind `--`, to its end, with every agent in it recorded.

    Args:
        script: the program and its arguments.
        name: of its runs.
        tags: of its runs.
        task_id: of the task that its runs work on.
        db: where to; default: the project's store.
        output: takes what it prints, errors too; default: it goes where ours goes.
        insist: see `run_child`.
        watch: folder for what its code reads past the boundary; see `watching`.
        more: variables for it, over those of this process.
        model_urls: addresses of models, besides those that are known and those of the settings.
        profile: what its recordings keep of values, over code and settings.
        sample: the share of its runs that are kept by the profile, over code and settings.

    Raises:
        UsageError: there is no such program.
        StoreError: `db` cannot be opened; then nothing was started.
    """
    words = launch.command(script)
    if db is not None:
        open_url(db).close()
    with tempfile.TemporaryDirectory(prefix="agentloupe-") as folder:
        notes = Path(folder) / "notes"
        notes.mkdir()
        fields: dict[str, Json] = {"name": name, "tags": list[Json](tags), "task_id": task_id, "db": db}
        fields |= {"argv": list[Json](script), "notes": str(notes), "parent": os.getpid()}
        fields |= {} if profile is None else {"profile": profile}
        fields |= {} if sample is None else {"sample": sample}
        fields |= {} if watch is None else {"watch": str(watch)}
        spec = launch.write_spec(Path(folder) / "spec.json", "record", fields)
        out = None if output is None else output.fileno()
        code = run_child(
            words,
            environment=launch.environment(spec, {**os.environ, **_models(model_urls), **(more or {})}),
            stdout=out,
            stderr=out,
            insist=insist,
        )
        ran = _read(notes, code)
    _end(ran, db)
    _look_up(ran, db)
    return ran


def _models(urls: Sequence[str]) -> dict[str, str]:
    return {launch.MODEL_URLS: ",".join([*load().model_urls, *urls])} if urls else {}


def _read(notes: Path, code: int) -> Ran:
    ran = Ran(code)
    for file in sorted(notes.glob("*.jsonl"), key=lambda path: path.stat().st_ctime_ns):
        for line in file.read_bytes().splitlines():
            _take(ran, loads(line))
    return ran


def _take(ran: Ran, note: Json) -> None:
    match note:
        case {"begun": _}:
            ran.programs += 1
        case {"run": str(run_id)}:
            ran.runs.append(run_id)
        case {"fared": str(run_id), "kept": bool(kept), "whole": bool(whole), "models": bool(models)}:
            (ran.whole if whole else ran.cut if kept else ran.lost).add(run_id)
            ran.models = ran.models or models
        case {"left": str(run_id), "ends": dict(ends)}:
            ran.left[run_id] = cast("Mapping[str, Attrs]", ends)
        case {"failed": str(why)}:
            ran.failed.append(why)
        case _:
            pass


def _end(ran: Ran, db: str | None) -> None:
    """Ends the runs that a program left by an exit which it could not see itself."""
    for run_id, ends in ran.left.items():
        with suppress(LoupeError):  # it stays interrupted, which is said of it below
            store = open_url(load().db if db is None else db, create=False)
            end_left(store, run_id, ends, ran.code)
            store.close()
        for found in (ran.whole, ran.cut, ran.lost):
            found.discard(run_id)


def _look_up(ran: Ran, db: str | None) -> None:
    """Of runs whose program left no last word: what the store says."""
    unsure = [run_id for run_id in ran.runs if run_id not in ran.whole | ran.cut | ran.lost]
    if not unsure:
        return
    try:
        store = open_url(load().db if db is None else db, create=False)
    except LoupeError:
        ran.lost.update(unsure)
        return
    for run_id in unsure:
        _look_at(ran, store, run_id)
    store.close()


def _look_at(ran: Ran, store: Store, run_id: str) -> None:
    try:
        row, steps = store.run(run_id), store.steps(run_id)
    except LoupeError:
        row, steps = None, []
    if row is None:
        ran.lost.add(run_id)
    else:
        ended = row.ended_at is not None and row.coverage != "lossy" and row.status != "interrupted"
        (ran.whole if ended else ran.cut).add(run_id)
    ran.models = ran.models or any(step.kind == "llm" for step in steps)
