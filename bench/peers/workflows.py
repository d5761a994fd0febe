"""The workflow that Temporal's Replayer is given. A module of its own: the sandbox loads it again for each replay."""

from __future__ import annotations

from datetime import timedelta

from bench.peers import load

workflow = load("temporalio.workflow")


@workflow.defn(name="Calls")
class Calls:
    """Calls with plain values, one after another."""

    @workflow.run
    async def run(self, calls: int) -> int:
        """As many as asked for."""
        for i in range(calls):
            await workflow.execute_activity("get", i, start_to_close_timeout=timedelta(seconds=10))
        return calls
