"""`agentloupe delete`: a run's bodies go, its events stay."""

from __future__ import annotations

from typing import Annotated

import typer

from agentloupe.cli.asking import agree
from agentloupe.cli.common import AsJson, Database, Debug, RunRef, opened
from agentloupe.cli.output import Output, number_of
from agentloupe.words.errors import Refused


def command(
    run: RunRef,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Delete a run: what it said and saw is removed for good; its numbered, chained events stay as evidence.

    Bodies that forks of it share are kept for them. Example: agentloupe delete weather-261129-k3v9qa
    """
    from agentloupe.verbs.api import resolve
    from agentloupe.verbs.deleting import delete_run
    from agentloupe.words.run import RunFilter

    out = Output(as_json)
    with opened(db) as store:
        run_id = resolve(store, run)
        forks = store.runs(RunFilter(parent_run_id=run_id, limit=None))
        if not yes:
            if as_json:
                raise Refused("delete asks before it removes anything", hint="say --yes together with --json")
            kept = f" {number_of(len(forks), 'fork')} of it stay whole." if forks else ""
            agree(f"Delete the bodies of {run_id}? This cannot be undone.{kept}")
        removed = delete_run(store, run_id)
    if as_json:
        out.document({"run": run_id, "bodies_removed": removed, "forks": [fork.id for fork in forks]})
        return
    out.line(
        f"{run_id} deleted: {number_of(removed, 'body')} removed, its events stay; agentloupe gc gives the space back to the disk"
    )
