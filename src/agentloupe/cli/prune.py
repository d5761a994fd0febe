"""`agentloupe prune`: delete old runs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from agentloupe.cli.asking import agree
from agentloupe.cli.common import AsJson, Database, Debug, opened
from agentloupe.cli.output import Output, number_of
from agentloupe.ports.ambient import now
from agentloupe.words.errors import LoupeError, Refused, UsageError
from agentloupe.words.run import Run, RunFilter

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def command(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Age of the runs to delete: 90m, 12h, 30d, 8w.")
    ],
    status: Annotated[str | None, typer.Option(help="Only runs of this status.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only runs with this tag.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Delete the bodies of runs that ended long ago. Running runs are never touched.

    Example: agentloupe prune --older-than 30d --dry-run
    """
    from agentloupe.verbs.deleting import delete_run

    before = _before(older_than)
    out = Output(as_json)
    with opened(db) as store:
        old = [run for run in store.runs(RunFilter(tag=tag, until=before, limit=None)) if _ended(run, before, status)]
        if dry_run or not old:
            _say(out, old, 0, dry_run, [])
            return
        if not yes:
            if as_json:
                raise Refused(
                    "prune asks before it removes anything", hint="say --yes (or --dry-run) together with --json"
                )
            agree(f"Delete the bodies of {number_of(len(old), 'run')}? This cannot be undone.")
        removed, kept = 0, list[str]()
        with out.progress("deleting", len(old)) as one_more:
            for run in old:
                try:
                    removed += delete_run(store, run.id, why=f"older than {older_than}")
                except LoupeError as refused:
                    kept.append(f"{run.id}: {refused.message}")
                one_more()
    _say(out, old, removed, dry_run, kept)


def _before(age: str) -> str:
    found = re.fullmatch(r"([0-9]{1,6})([mhdw])", age)
    if found is None:
        raise UsageError(f"--older-than {age}: not an age", hint="write a number and m, h, d or w, for instance 30d")
    limit = datetime.fromisoformat(now()) - timedelta(**{_UNITS[found[2]]: int(found[1])})
    # Without a Z it stands before every stored time of its microsecond, however many digits that has.
    return limit.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")


def _ended(run: Run, before: str, status: str | None) -> bool:
    if run.erased:
        return False  # it is deleted already
    ended = (run.ended_at is not None and run.ended_at < before) or run.status == "interrupted"
    return ended and (status is None or run.status == status)


def _say(out: Output, old: list[Run], removed: int, dry_run: bool, kept: list[str]) -> None:
    if out.as_json:
        out.document(
            {"runs": [run.id for run in old], "bodies_removed": removed, "dry_run": dry_run, "not_deleted": kept}
        )
        return
    for run in old if dry_run else []:
        out.line(f"{run.id}  {run.started_at[:19]}  {run.status}")
    verb = "would be deleted" if dry_run else "deleted"
    out.line(
        f"{number_of(len(old) - len(kept), 'run')} {verb}"
        + ("" if dry_run else f", {number_of(removed, 'body')} removed")
    )
    for line in kept:
        out.line(f"not deleted: {line}")
