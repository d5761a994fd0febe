"""Temporal's Replayer over a history made by hand: activities one after another. Nothing of it needs a server.

A workflow replays commands: for each activity its history has six events (scheduled, started, completed, and a workflow task
of three). Arguments of activities are not compared; answers are decoded from JSON, as ours are.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from bench.peers import load
from bench.timing import Batch

EVENTS_A_CALL = 6
_QUEUE = {"name": "bench", "kind": "TASK_QUEUE_KIND_NORMAL"}
_AT = "2026-01-01T00:00:00Z"


@contextmanager
def replaying(calls: int, sandboxed: bool) -> Generator[Batch]:
    """Replays of one history with so many activities; counts activities. Raises `Absent`."""
    client, worker = load("temporalio.client"), load("temporalio.worker")
    from bench.peers.workflows import Calls

    history = client.WorkflowHistory.from_json("bench", {"events": events(calls)})
    runner = {} if sandboxed else {"workflow_runner": worker.UnsandboxedWorkflowRunner()}
    replayer = worker.Replayer(workflows=[Calls], **runner)
    loop = asyncio.new_event_loop()

    def batch() -> int:
        loop.run_until_complete(replayer.replay_workflow(history))  # raises what differs
        return calls

    batch()  # modules that the sandbox loads once
    yield batch
    loop.close()


def events(calls: int) -> list[dict[str, Any]]:
    """The history: begun, `calls` activities that one workflow task each has asked for, completed."""
    made: list[dict[str, Any]] = []

    def add(kind: str, **attrs: Any) -> str:
        head, *tail = kind.split("_")
        key = head.lower() + "".join(word.capitalize() for word in tail) + "EventAttributes"
        number = str(len(made) + 1)
        made.append(
            {"eventId": number, "eventTime": _AT, "eventType": f"EVENT_TYPE_{kind}", "taskId": number, key: attrs}
        )
        return number

    def task() -> str:
        scheduled = add("WORKFLOW_TASK_SCHEDULED", taskQueue=_QUEUE, startToCloseTimeout="10s", attempt=1)
        started = add("WORKFLOW_TASK_STARTED", scheduledEventId=scheduled, requestId="bench")
        return add("WORKFLOW_TASK_COMPLETED", scheduledEventId=scheduled, startedEventId=started)

    add(
        "WORKFLOW_EXECUTION_STARTED",
        workflowType={"name": "Calls"},
        taskQueue=_QUEUE,
        input=_payload(calls),
        workflowTaskTimeout="10s",
        originalExecutionRunId="bench",
        firstExecutionRunId="bench",
        attempt=1,
    )
    asked_by = task()
    for i in range(calls):
        scheduled = add(
            "ACTIVITY_TASK_SCHEDULED",
            activityId=str(i + 1),
            activityType={"name": "get"},
            taskQueue=_QUEUE,
            input=_payload(i),
            startToCloseTimeout="10s",
            workflowTaskCompletedEventId=asked_by,
        )
        started = add("ACTIVITY_TASK_STARTED", scheduledEventId=scheduled, requestId="bench", attempt=1)
        answer = _payload({"row": i, "text": "some twenty characters"})
        add("ACTIVITY_TASK_COMPLETED", result=answer, scheduledEventId=scheduled, startedEventId=started)
        asked_by = task()
    add("WORKFLOW_EXECUTION_COMPLETED", result=_payload(calls), workflowTaskCompletedEventId=asked_by)
    return made


def _payload(value: object) -> dict[str, Any]:
    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return {"payloads": [{"metadata": {"encoding": text(b"json/plain")}, "data": text(json.dumps(value).encode())}]}
