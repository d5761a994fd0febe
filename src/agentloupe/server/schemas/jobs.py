"""Jobs: what is asked for, and how it goes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from agentloupe.ports.jobs import JobKind, JobStatus
from agentloupe.server.schemas.common import Document, Json, Money, Page, Time

__all__ = [
    "AnswerBody",
    "Estimated",
    "ForkBody",
    "ForkDialog",
    "Forked",
    "Job",
    "JobPage",
    "ReplayBody",
    "ReportPage",
    "Started",
    "Workers",
]

_FORK: dict[str, Any] = {
    "from_step": 3,
    "overrides": {"system_prompt": "Answer in one sentence.", "temperature": 0.2},
    "live_tools": False,
    "repeat": 1,
}


class LiveTool(Document):
    """A tool that may run live in this fork, and why."""

    name: str = Field(max_length=500)
    reason: str | None = Field(default=None, max_length=2000, description="Default: that of the settings.")
    read: bool = Field(default=False, description="It reads the world; that is meant.")


class ForkBody(Document):
    """A fork. Only what is changed needs to be there."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_FORK]})

    from_step: int | Literal["start"] = Field(description="Index of a model step, or `start` (own code only).")
    overrides: dict[str, Json] = Field(default_factory=dict, description="What is changed, see the guide on forks.")
    live_tools: bool | list[LiveTool] = False
    tools: dict[str, str] = Field(
        default_factory=dict, description="Policy by tool: cassette, live, human, stub, stub:JSON."
    )
    on_miss: Literal["error", "abort", "human"] = "error"
    repeat: int = Field(default=1, description="1 to 3.")
    control: bool | None = Field(default=None, description="Also fork with nothing changed; default: when repeated.")
    engine: Literal["own", "generic"] | None = None
    agent: str | None = Field(default=None, max_length=500, description="Own code: the agent's name at a worker.")
    limits: dict[str, Json] = Field(
        default_factory=dict, description="max_steps, max_tokens, max_cost, max_seconds of the new part."
    )
    endpoint: str | None = Field(default=None, max_length=500, description="Name of a configured endpoint.")
    require_faithful: bool = False
    code_changed: bool = False


class Progress(Document):
    """What a job has made so far, over all of its runs; the kept part does not count."""

    runs: int = Field(description="Runs that have ended.")
    of: int = Field(description="Runs that it makes.")
    steps: int
    model_calls: int
    cost: Money | None


class Question(Document):
    """What a person is asked: the result of a tool call."""

    id: str
    run_id: str | None
    tool: str
    arguments: Json | None
    because: str = Field(description="`policy` or `miss`.")
    nearest: str | None
    asked_at: Time


class JobError(Document):
    """Why it failed."""

    reason: str
    message: str
    hint: str | None


class Lacks(Document):
    """What an open job waits for that is not there."""

    message: str
    command: str = Field(
        description="What to type in the project's folder.", examples=["agentloupe worker my_app.agents"]
    )


class Job(Document):
    """A piece of work that takes time."""

    id: str
    kind: JobKind
    status: JobStatus
    run_ids: list[str] = Field(description="Runs that it makes; of a replay none.")
    parent: str
    from_step: int | Literal["start"] | None
    agent: str | None = Field(description="The agent that it needs; null: no code of the user's.")
    engine: str | None
    created_at: Time
    started_at: Time | None
    ended_at: Time | None
    progress: Progress
    retry_after: float | None = Field(description="Seconds that a provider asks to wait.")
    message: str | None = Field(description="What a provider or a worker says.")
    error: JobError | None
    question: Question | None
    cancelling: bool = Field(description="A person wants it to end, and it has not ended yet.")
    worker: str | None
    lacks: Lacks | None = Field(description="An open job waits for a worker that is not there.")
    notes: list[str] = Field(description="What to know before believing it.")
    compare_url: str | None
    number: int = Field(description="Rises with every change of any job.")


class JobPage(Page[Job]):
    """Jobs, newest first."""


class ForkedRun(Document):
    """A run that will be made."""

    id: str
    arm: str | None


class Forked(Document):
    """A fork that was begun: its runs have their names, and appear as they are made."""

    job: Job
    runs: list[ForkedRun]
    controls: list[ForkedRun]
    compare_url: str = Field(examples=["/diff?a=weather-1&b=weather-1-fork-1f2e3d"])


class Started(Document):
    """A job that was begun."""

    job: Job


class Estimated(Document):
    """What a fork is likely to ask and cost. No promise."""

    runs: int
    calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost: Money | None
    complete: bool
    basis: str


class ReplayBody(Document):
    """A replay by a worker that has the agent."""

    agent: str | None = Field(default=None, max_length=500, description="Default: the run's own agent.")
    level: Literal["flow", "state", "content"] = "content"
    until_failure: bool = False


class AnswerBody(Document):
    """A person's answer to a question."""

    question: str = Field(max_length=100)
    who: str = Field(min_length=1, max_length=200, examples=["anna"])
    result: Json | None = None
    error: str | None = Field(default=None, max_length=20_000, description="The tool failed, and this is what it says.")


class WorkerDocument(Document):
    """Who does jobs."""

    id: str
    agents: list[str]
    host: str
    pid: int
    seen_at: Time


class Workers(Document):
    """Workers that are there. The server's own does what needs no code of the user's."""

    items: list[WorkerDocument]


class Report(Document):
    """A replay that was done."""

    id: str
    run_id: str
    at: Time | None
    passed: bool | None
    report: Json | None


class SourceLine(Document):
    """A line of the user's own code."""

    number: int = Field(description="Number of the line, from 1.")
    text: str


class ReportDetail(Report):
    """One replay, with the code that made the call at which it parted."""

    source: list[SourceLine] | None = Field(
        description="Lines around the caller of the first divergence, as the project's file stands now; null: it is not there."
    )


class ReportPage(Page[Report]):
    """Replays that were done, newest first."""


class ToolRow(Document):
    """How a tool is answered in a fork."""

    name: str
    effect: str | None = Field(description="Null: nobody said, so it counts as one that writes.")
    recorded: int
    policy: str
    choices: list[str]
    locked: bool
    reason: str | None
    built_in: bool = Field(description="The server has its code: the plain loop can run it live too.")


class EngineRow(Document):
    """Who could drive the fork."""

    engine: Literal["generic", "own"]
    agent: str | None
    worker: str | None
    available: bool
    why_not: str | None
    why_not_code: str | None = Field(
        description="The same as a stable word: `no_worker`, `imported`, `form`, `start` (only own code begins at the start)."
    )
    command: str | None = Field(description="What to type where it is not available.")


class Endpoint(Document):
    """A configured model endpoint; its key is never told."""

    name: str
    base_url: str
    model: str | None
    key_variable: str | None


class Kept(Document):
    """What a fork keeps."""

    steps: int
    answers: int


class ForkDialog(Document):
    """What the dialog needs to know before a fork."""

    run_id: str
    from_step: int = Field(description="Index of the model step; 0 at the start.")
    at_start: bool = Field(description="From the start of the run: own code only, and there is no request.")
    request: str = Field(description="The recorded request as JSON text, exact.")
    form: str | None
    system_prompt: str | None
    model: str | None
    temperature: float | None
    parameters: dict[str, Json]
    tools: list[ToolRow]
    engines: list[EngineRow]
    endpoints: list[Endpoint]
    kept: Kept
    cautions: list[str]
    server_held: bool
    live_known: list[LiveTool]
