"""The rows: one module each, with `measure(context) -> Found`. Loaded when they are measured."""

from __future__ import annotations

NAMES = (
    "machine",
    "recording",
    "killed",
    "streams",
    "reads",
    "replay",
    "client_replay",
    "concurrency",
    "fork",
    "resume",
    "append",
    "space",
    "request",
    "headers",
    "server",
    "viewers",
    "page",
    "listing",
    "compare",
    "verify",
    "imports",
    "growth",
)
"""In the order in which they are measured and shown."""

TITLES = {
    "machine": "The machine",
    "recording": "Recording a model call",
    "killed": "Killed after 20 calls",
    "streams": "Streams",
    "reads": "Recording a plain read",
    "replay": "Replay, engine alone",
    "client_replay": "Replay through the OpenAI client",
    "concurrency": "50 calls in flight at 20 ms a call",
    "fork": "Fork of a 100-step run, last model call live",
    "resume": "Resume of a killed run",
    "append": "Durable append",
    "space": "Space: 300 steps, growing context",
    "request": "One request of a 10,000-step run, rebuilt",
    "headers": "Opening a 10,000-step run, headers first",
    "server": "A 10,000-step run through the API of the server",
    "viewers": "The server beside Phoenix and MLflow",
    "page": "The page: a 10,000-step run in a browser",
    "listing": "A page of the list of 1,000,000 runs: 19 of 20 are no slower",
    "compare": "Comparing two 10,000-step runs",
    "verify": "Verification, single thread",
    "imports": "`import agentloupe`",
    "growth": "Growth from 100 to 100,000 calls",
}
