"""What the page shows of a run and of a step."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agentloupe.engine.views.messages import PartType
from agentloupe.server.schemas.common import Document, Json, Page
from agentloupe.server.schemas.steps import StepHeader
from agentloupe.words.call import Kind, Source

__all__ = ["Context", "Messages", "Minimap", "Search", "StepDetail", "StepDiff", "TranscriptPage"]


class Text(Document):
    """A text's beginning (2,000 characters), and how many characters are missing."""

    text: str
    missing: int


class Said(Document):
    """What somebody said."""

    role: str
    text: str
    missing: int


class _Card(Document):
    at: int = Field(description="Number of the card.")
    step: int = Field(description="Index of its (first) step.")
    kept: bool = Field(description="It was kept from the parent; the cut stands where this turns false.")


class QuestionCard(_Card):
    """What the first model of this level was asked: instructions and the user's words."""

    card: Literal["question"]
    messages: list[Said]
    problem: str | None = Field(description="Why something cannot be shown.")


class CallRow(Document):
    """A tool call with its result."""

    call_id: str | None = Field(description="The model's id of the call; null: the program called it by itself.")
    name: str
    arguments: Text
    step: int | None = Field(description="The step that answered it; null: none was recorded.")
    status: str | None
    source: Source | None
    effect: str | None
    result: Text | None
    error: Text | None
    nearest: str | None = Field(description="Of a miss: the nearest recorded call and its difference.")
    reused: bool
    inside: int = Field(description="Steps that happened in the tool.")


class ModelCard(_Card):
    """A model's answer with the calls that it asked for."""

    card: Literal["model"]
    name: str
    status: str
    source: Source
    text: Text
    reasoning: Text
    asked: list[Said] = Field(description="What was said to it anew, tools apart; of the first model see `question`.")
    calls: list[CallRow]
    calls_missing: int = Field(description="Further calls that are not in `calls`.")
    misses: int = Field(description="Of all its calls, those that missed.")
    errors: int = Field(description="Of all its calls, those that failed without a miss.")
    parallel: bool
    prompt_flag: bool
    tools_flag: bool
    error: Text | None
    problem: str | None


class AgentCard(_Card):
    """A sub-agent, folded. Its own cards: `inside=<step>`."""

    card: Literal["agent"]
    name: str
    status: str
    source: Source
    inside: int
    text: Text
    error: Text | None
    problem: str | None


class _StepCard(_Card):
    kind: Kind
    name: str
    status: str
    source: Source
    input: Text
    output: Text
    error: Text | None
    inside: int
    problem: str | None


class StepCard(_StepCard):
    """Any other step."""

    card: Literal["step"]


class LimitCard(_StepCard):
    """The step that a limit ended the run with."""

    card: Literal["limit"]


class GroupCard(_Card):
    """More than five equal calls one after another."""

    card: Literal["group"]
    kind: Kind
    name: str
    first: int
    last: int
    count: int
    misses: int
    errors: int


class KeptCard(_Card):
    """The kept prefix of a fork, folded."""

    card: Literal["kept"]
    first: int
    last: int
    count: int
    misses: int
    errors: int
    model_calls: int
    tool_calls: int


Card = Annotated[
    QuestionCard | ModelCard | AgentCard | StepCard | LimitCard | GroupCard | KeptCard, Field(discriminator="card")
]


class TranscriptPage(Page[Card]):
    """Cards of one level of a run, in order."""


# --- a step -----------------------------------------------------------------------------------------------------------


class Try(Document):
    """One attempt of the client library inside the call."""

    status: int | None
    ms: float | None
    error: str | None


class Overview(Document):
    """What is known of a step beside what was said."""

    asked_for: str | None = Field(description="The model that the request names.")
    answered_by: str | None = Field(description="The model that says it answered.")
    given_by: str | None = Field(description="The person who gave the result of a tool.")
    provider: str | None
    prompt: str | None = Field(description="The prompt template that the call was made from: `refund@4`.")
    parameters: dict[str, Json] = Field(description="The request without its messages and tools, as sent.")
    tools: list[str] = Field(description="Names of the tools that the model was told of.")
    stop_reason: str | None
    request_digest: str | None
    tries: list[Try]
    server_held: bool = Field(description="The provider holds a part of what was asked.")
    hosted_tools: list[str]
    partial: str | None
    provenance: str | None
    nearest: str | None
    played_from: str | None = Field(description="Of an answer out of a cassette: the run that it is from.")
    played_step: int | None
    overrides: list[dict[str, Json]] = Field(description="Of the step that a fork began with: what was changed.")
    time_flag: str | None = Field(description="Of an import: what was assumed to read its time.")
    removed: list[str] = Field(description="Where secrets were taken out before it was stored.")
    error: str | None
    problem: str | None


class StepDetail(StepHeader):
    """A step with what is known of it."""

    overview: Overview


class MessagePart(Document):
    """A part of a message, as text."""

    type: PartType
    text: str
    missing: int
    call_id: str | None
    name: str | None


class Message(Document):
    """A message of a request, or an answer."""

    index: int
    role: str
    path: str = Field(description="Where it stands in the request.", examples=["messages/3"])
    parts: list[MessagePart]
    new: bool = Field(description="The model step before was not asked this.")
    source: Source | None = Field(description="Of a tool's result: who answered.")


class Messages(Document):
    """A model step's conversation."""

    items: list[Message]
    total: int
    first: int
    next: int | None
    answer: Message | None
    before: int | None = Field(description="The model step that `new` compares with.")


class ContextPart(Document):
    """A part of what fills the window."""

    role: str
    source: str
    tokens: int
    share: float
    new: bool


class Growth(Document):
    """What filled the window of one model step."""

    idx: int
    total: int
    parts: list[ContextPart] | None = Field(description="Of some 25 of them; the others tell their total only.")


class Context(Document):
    """What fills the window, estimated from reported usage."""

    total: int
    reported: bool = Field(description="The total was reported; else a token was taken for four characters.")
    estimated: Literal[True] = Field(description="Parts are always estimates.")
    parts: list[ContextPart]
    growth: list[Growth] = Field(description="At most 200 model steps of the run, this one among them.")
    growth_of: int = Field(description="How many model steps the run has.")


class StepDiff(Document):
    """What differs between two model steps of a run."""

    left: int | None = Field(description="Index of the step before; null: there is none.")
    right: int
    messages: list[dict[str, Json]]
    answer: list[dict[str, Json]]
    tools: list[dict[str, Json]]
    parameters: list[dict[str, Json]]


# --- a run ------------------------------------------------------------------------------------------------------------


class MinimapColumn(Document):
    """A stretch of steps."""

    first: int
    last: int
    tokens: int
    model_calls: int
    miss: bool
    error: bool
    flag: bool
    cut: bool


class Minimap(Document):
    """A run as at most `columns` columns."""

    columns: list[MinimapColumn]
    step_count: int
    width: int = Field(description="Steps in a column.")


class SearchHit(Document):
    """A place where the text stands."""

    idx: int
    where: Literal["name", "input", "output", "error", "reasoning"]
    path: str
    before: str
    match: str
    after: str


class Search(Document):
    """Hits so far. Of a model's input only what was new in it is looked at."""

    items: list[SearchHit]
    scanned: int = Field(description="Steps that have been looked at, from the first one on.")
    of: int
    next: int | None = Field(description="`first` to go on with; null: all was looked at.")
