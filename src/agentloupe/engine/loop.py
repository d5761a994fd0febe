"""The plain agent loop: ask the model, run its tool calls, append the results, until no tool call is left or a limit is met.

One loop for recording a sample, forking and evaluating. Every model call and every tool call goes through the boundary
that is current (`ambient.call`), so a recorder, a forker or a replayer decides who answers; the loop itself decides
nothing. Which form a request has (chat completions, Anthropic messages, Responses) is the business of its `Dialect`;
requests are sent whole: what the loop does not know, it keeps.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NoReturn, TypeAlias, cast

from agentloupe.engine.manner import PLAIN, Manner, manner_from_json
from agentloupe.engine.tape import RecordedCall, Tape, outer_of, read_tape
from agentloupe.ports import ambient
from agentloupe.ports.cancel import Cancel, waiting_for
from agentloupe.ports.codecs import decode, decode_for_reading
from agentloupe.ports.codecs import encode as encode_value
from agentloupe.ports.protocols import Answer, Opening
from agentloupe.ports.recording import Recording
from agentloupe.words.arguments import Arguments, parse_arguments
from agentloupe.words.call import NO_ATTRS, Attrs, Call, Effect
from agentloupe.words.canonical import Json
from agentloupe.words.dialects import Form
from agentloupe.words.errors import Cancelled, ForkRefused, LimitReached, LoupeError, ModelRefused
from agentloupe.words.prompts import PROMPT
from agentloupe.words.turns import CHAT, DIALECTS, Asked, Dialect, Told, calls_in_message, final_message, message_of

__all__ = [
    "LIMIT_STEPS",
    "NO_TOOLS",
    "ExecTool",
    "Limits",
    "LlmCall",
    "Loop",
    "Model",
    "Spend",
    "ToolFailed",
    "Tools",
    "again",
    "dialect_in",
    "from_llm_call",
    "manner_in",
    "replay_agent",
    "step_name",
]

LlmCall: TypeAlias = Callable[
    [list[Json], list[Json], str | None, float | None], tuple[dict[str, Json], int | None, int | None]
]
"""`llm_call(messages, tools, model, temperature) -> (assistant message, input tokens or None, output tokens or None)`."""

ExecTool: TypeAlias = Callable[[str, dict[str, Json]], tuple[Json, str | None]]
"""`exec_tool(name, args) -> (output, error)`: exactly one of the two counts."""

LIMIT_STEPS = ("max_steps", "max_tokens", "max_cost", "max_seconds")
"""Names of the step (kind `other`) that ends a run at a limit."""


def encode(value: object) -> Json:
    """A value in wire form."""
    return encode_value(value).wire


class ToolFailed(Exception):
    """A tool's error that is only a text (of an executor, of a recording); the text is all that the model sees."""


# --- limits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a run of the loop has to stop; `None` means no limit.

    Attributes:
        max_steps: model calls.
        max_tokens: input and output tokens together; calls of unknown usage count nothing.
        max_cost: in the currency of the prices; calls of unknown cost count nothing.
        max_seconds: wall time.
    """

    max_steps: int | None = 12
    max_tokens: int | None = None
    max_cost: Decimal | None = None
    max_seconds: float | None = None

    def as_json(self) -> dict[str, Json]:
        """The limits that are set, for `run.started`."""
        shown: dict[str, Json] = {"max_steps": self.max_steps, "max_tokens": self.max_tokens}
        shown["max_cost"] = None if self.max_cost is None else str(self.max_cost)
        shown["max_seconds"] = self.max_seconds
        return {name: value for name, value in shown.items() if value is not None}


Price: TypeAlias = Callable[[Attrs], Decimal | None]
"""Cost of a model call from its structural facts; `None` is unknown."""


def _no_price(_: Attrs) -> Decimal | None:
    return None


@dataclass(slots=True)
class Spend:
    """What has been spent against limits so far.

    `met` is a limit that a recorded run met, by the name of its step, and after how many model calls: for a replay.
    `cancel` ends the waiting for a model.
    """

    limits: Limits
    price: Price = _no_price
    met: tuple[str, int] | None = None
    cancel: Cancel | None = None
    calls: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)
    since: float = field(default_factory=ambient.monotonic_ms)

    def add(self, facts: Attrs) -> None:
        """Counts one model call by its facts."""
        self.calls += 1
        for name in ("input_tokens", "output_tokens"):
            count = facts.get(name)
            if isinstance(count, int):
                self.tokens += count
        self.cost += self.price(facts) or 0

    @property
    def seconds_left(self) -> float | None:
        """How long a model call may take; `None`: as long as it wants."""
        most = self.limits.max_seconds
        return None if most is None else most - (ambient.monotonic_ms() - self.since) / 1000

    def reached(self) -> tuple[str, str] | None:
        """The limit that does not allow another model call: name of the limit's step, and what to say. Or `None`."""
        limits = self.limits
        if self.met is not None and self.calls >= self.met[1]:
            return self.met[0], "stopped where the recorded run did"
        if limits.max_steps is not None and self.calls >= limits.max_steps:
            return "max_steps", f"stopped after {self.calls} model calls (max_steps)"
        if limits.max_tokens is not None and self.tokens >= limits.max_tokens:
            return "max_tokens", f"stopped after {self.tokens} tokens of {limits.max_tokens} (max_tokens)"
        if limits.max_cost is not None and self.cost >= limits.max_cost:
            return "max_cost", f"stopped after a cost of {self.cost} of {limits.max_cost} (max_cost)"
        seconds = (ambient.monotonic_ms() - self.since) / 1000
        if limits.max_seconds is not None and seconds >= limits.max_seconds:
            return "max_seconds", f"stopped after {limits.max_seconds:g} seconds (max_seconds)"
        return None


# --- the model --------------------------------------------------------------------------------------------------------


def _no_facts(_: Json) -> Attrs:
    return NO_ATTRS


@dataclass(frozen=True, slots=True)
class Model:
    """How the loop reaches a model.

    Attributes:
        send: sends a whole request body. Raises `ProviderError`.
        facts: structural facts of a response.
        provider: who answers, for the header.
        named: the name of a step, from its request.
        dialect: the form that it speaks; `None`: whatever it is asked in.
    """

    send: Callable[[Mapping[str, Json]], Answer]
    facts: Callable[[Json], Attrs] = _no_facts
    provider: str | None = None
    named: Callable[[Mapping[str, Json]], str] = field(default_factory=lambda: step_name)
    dialect: Form | None = None


def step_name(request: Mapping[str, Json]) -> str:
    """`chat <model>`."""
    model = request.get("model")
    return f"chat {model}" if isinstance(model, str) and model else "chat"


def from_llm_call(llm_call: LlmCall) -> Model:
    """A model behind a plain function; its answers get the form of a chat completion, usage only where it is known."""

    def send(request: Mapping[str, Json]) -> Answer:
        temperature = request.get("temperature")
        message, tokens_in, tokens_out = llm_call(
            list(cast("list[Json]", request.get("messages") or [])),
            list(cast("list[Json]", request.get("tools") or [])),
            cast("str | None", request.get("model")),
            temperature if isinstance(temperature, int | float) else None,
        )
        reason = "tool_calls" if calls_in_message(message) else "stop"
        choices: list[Json] = [{"index": 0, "message": message, "finish_reason": reason}]
        response: dict[str, Json] = {"object": "chat.completion", "model": request.get("model"), "choices": choices}
        usage: dict[str, Json] = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
        usage = {name: count for name, count in usage.items() if count is not None}
        if usage:
            response["usage"] = usage
        return Answer(response=response, facts={})

    return Model(send, _own_facts, dialect="chat")


def _own_facts(response: Json) -> Attrs:
    """Facts of the answers that `from_llm_call` makes."""
    assert isinstance(response, dict)
    facts: dict[str, Json] = {}
    if isinstance(response.get("model"), str):
        facts["model"] = response["model"]
    facts["finish_reason"] = "tool_calls" if calls_in_message(message_of(response)) else "stop"
    usage = response.get("usage")
    if isinstance(usage, dict):
        facts["usage"] = usage
        for ours, theirs in (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")):
            if theirs in usage:
                facts[ours] = usage[theirs]
    return facts


# --- tools ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tools:
    """What the loop runs when the boundary says that a tool call is performed.

    Attributes:
        functions: plain functions by tool name, called with the arguments by name; async ones are awaited.
        execute: takes the calls that no function is there for.
        effects: by tool name; where nobody stated one, it counts as `write`.
    """

    functions: Mapping[str, Callable[..., object]] = field(default_factory=dict[str, Callable[..., object]])
    execute: ExecTool | None = None
    effects: Mapping[str, Effect | None] = field(default_factory=dict[str, "Effect | None"])

    def finds_out(self, name: str) -> bool:
        """Whether the tool can be asked what became of an effect whose end nobody saw."""
        declared = getattr(self.functions.get(name), "__loupe_tool__", None)
        return getattr(declared, "lookup", None) is not None

    def run(self, name: str, arguments: dict[str, Json]) -> object:
        """Does the real thing.

        Raises:
            ToolFailed: the executor says so, or there is no such tool.
            Exception: whatever the function raises.
        """
        function = self.functions.get(name)
        if function is not None:
            result = inspect.unwrap(function)(**arguments)
            return asyncio.run(_await(result)) if inspect.isawaitable(result) else result
        if self.execute is None:
            raise ToolFailed(f"there is no tool named {name!r}")
        output, error = self.execute(name, arguments)
        if error is not None:
            raise ToolFailed(error)
        return output


async def _await(result: object) -> object:
    return await cast("asyncio.Future[object]", result)


NO_TOOLS = Tools()


# --- the loop ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Loop:
    """The loop as an agent. `run` is called with a boundary current (see `ambient.inside`), or without one.

    Attributes:
        model: who is asked.
        tools: what runs when a tool call is performed.
        spend: what was spent, against its limits.
        manner: how it writes its history.
        dialect: the form in which it asks.
        addressed: the model of requests that name none, since it stands in the address: sent, and a fact of the call.
        template: of the prompt that its requests begin with, as `loupe.prompt` said it.
    """

    model: Model
    tools: Tools = NO_TOOLS
    spend: Spend = field(default_factory=lambda: Spend(Limits()))
    manner: Manner = PLAIN
    dialect: Dialect = CHAT
    addressed: str | None = None
    template: Json = None

    def run(self, request: Mapping[str, Json]) -> dict[str, Json]:
        """Runs from this request to the final message of the model, which is returned. The request is not changed.

        Raises:
            LimitReached: tool calls were pending when a limit was met; a step of kind `other` says so.
            ProviderError: the model could not be asked.
            CassetteMiss: a fork's miss policy ended it.
        """
        dialect = self.dialect
        while True:
            answer = self._ask(request)
            asked = dialect.asked(answer)
            if not asked and not dialect.goes_on(answer):
                return final_message(answer)
            reached = self.spend.reached()
            if reached is not None:
                _stop(*reached, asked)
            history = [*dialect.items(request), *self.manner.turn(dialect.turn(answer))]
            results = [self._answer(call) for call in asked]
            history += dialect.told(results) if results else []
            request = {**request, dialect.history: history}

    def _ask(self, request: Mapping[str, Json]) -> Json:
        body = dict(request)
        sent = body if body.get("model") or self.addressed is None else {**body, "model": self.addressed}
        attrs: dict[str, Json] = {"model": sent.get("model")}
        if self.template is not None:
            attrs[PROMPT] = self.template
        if self.model.provider is not None:
            attrs["provider"] = self.model.provider
        call = Call(
            kind="llm",
            name=self.model.named(sent),
            input=body,
            attrs=attrs,
            encode=lambda value: cast("Json", value),
            decode=lambda value: value,
            facts=self.model.facts,
        )
        try:
            response = ambient.call(call, lambda: self._send(sent))
        except LimitReached as late:
            if late.reason != "max_seconds":
                raise
            _stop("max_seconds", late.message, ())
        self.spend.add(self.model.facts(response))
        return response

    def _send(self, body: dict[str, Json]) -> Json:
        try:
            answer = waiting_for(lambda: self.model.send(body), self.spend.cancel, self.spend.seconds_left)
        except ModelRefused as refused:
            ambient.note("status_code", refused.status)
            raise
        for name, value in answer.facts.items():
            ambient.note(name, value)
        return answer.response

    def _answer(self, asked: Asked) -> Told:
        arguments = Arguments(asked.raw, None) if asked.free else parse_arguments(asked.raw)
        attrs: dict[str, Json] = {} if asked.id is None else {"tool_call_id": asked.id}
        effect = self.tools.effects.get(asked.name)
        if effect is None:
            attrs["effect_unstated"] = True
        if self.tools.finds_out(asked.name):
            attrs["lookup"] = True
        if arguments.error is not None:
            attrs["parse_error"] = True
        call = Call(
            kind="tool",
            name=asked.name,
            input=cast("Json", arguments.raw) if arguments.parsed is None else arguments.parsed,
            effect="pure" if arguments.error is not None else effect or "write",  # malformed: nothing will run
            attrs=attrs,
            encode=encode,
            decode=decode_for_reading,
        )
        try:
            value = ambient.call(call, lambda: self._perform(asked, arguments))
        except LoupeError as error:
            if isinstance(error, LimitReached | ForkRefused | Cancelled) or error.reason == "abort":
                raise
            return self.manner.failed(asked, error.message)
        except ToolFailed as error:
            return self.manner.failed(asked, str(error))
        except Exception as error:  # noqa: BLE001 - a failing tool is told to the model, whatever it raises
            return self.manner.failed(asked, f"{type(error).__name__}: {error}")
        return self.manner.told(asked, call.input, plain_value(value))

    def _perform(self, asked: Asked, arguments: Arguments) -> object:
        if arguments.error is not None:
            ambient.note("parse_error", True)
            raise ToolFailed(f"malformed arguments of {asked.name}: {arguments.error}")
        return self.tools.run(asked.name, {"input": asked.raw} if arguments.parsed is None else arguments.parsed)


def plain_value(value: object) -> Json:
    """A tool's result as plain JSON, as a model may read it."""
    return value if isinstance(value, str) else decode_for_reading(encode(value))


def _stop(name: str, text: str, pending: Sequence[Asked]) -> NoReturn:
    waiting: list[Json] = [call.name for call in pending]
    call = Call(
        kind="other",
        name=name,
        input={"pending": waiting},
        attrs={"limit": True},
        encode=encode,
        decode=decode_for_reading,
    )

    def refuse() -> None:
        left = f"; tool calls were pending: {', '.join(map(str, waiting))}" if waiting else ""
        raise LimitReached(f"{text}{left}", reason=name)

    ambient.call(call, refuse)
    raise AssertionError("a limit's step never ends well")


# --- replaying --------------------------------------------------------------------------------------------------------


def replay_agent(recording: Recording) -> Callable[..., object]:
    """The loop as the agent of a recorded run of it, for a strict replay; it needs no model and no tools.

    A fork's kept prefix was made by other control logic: its calls are made again as they were recorded, then the loop
    goes on with the request that it began with. A recording without a model call of its own has nothing to go on with.
    """
    tape = read_tape(recording)
    started = tape.started

    def agent(*_: object, **__: object) -> object:
        opener = ambient.opener()
        if opener is None:
            raise LoupeError("a replay's opener is missing", reason="no_session")
        opening = Opening(
            agent=started.name or "",
            arguments=recording.body(started.input_digest),
            entry=cast("str | None", started.attrs.get("entry")),
            root=bool(started.attrs.get("root")),
        )
        session = opener.open(opening)
        try:
            with ambient.inside(session.boundary):
                result = _again(tape)
        except BaseException as error:
            session.failed(error)
            raise
        session.finished(result)
        return result

    return agent


def again(tape: Tape, loop: Loop, span_id: str | None = None) -> dict[str, Json]:
    """Drives the loop once more as it was recorded: the kept calls first, then from the request that it began with.

    Whether it is answered or asks for real, the boundary decides. `span_id`: under which its calls stand.
    """
    boundary = ambient.current()
    assert boundary is not None, "inside of a session"
    kept = frozenset(event.call_id for event in tape.recording.events if event.copied_hash is not None)
    _reissue_all(tape, None, kept)
    first = next((call for call in tape.calls if call.kind == "llm" and call.call_id not in kept), None)
    digest = first.input_digest if first is not None else tape.started.bodies.get("request")
    if digest is None:
        raise LoupeError("the recording holds no model call of the loop", reason="empty")
    if first is not None:
        loop = replace(loop, template=first.attrs.get(PROMPT))
    calls = max((call.n + 1 for call in tape.calls if call.call_id in kept and call.lane == "0"), default=0)
    with ambient.inside(boundary, lane=ambient.Lane("0", calls), span_id=span_id):
        return loop.run(cast("dict[str, Json]", tape.recording.body(digest)))


def _again(tape: Tape) -> object:
    kept = frozenset(event.call_id for event in tape.recording.events if event.copied_hash is not None)
    effects: dict[str, Effect | None] = {call.name: call.effect for call in tape.calls if call.kind == "tool"}
    new = [call for call in tape.calls if call.call_id not in kept]
    stop = next((call.name for call in new if call.attrs.get("limit") and call.name in LIMIT_STEPS), None)
    asked = [call for call in new if call.kind == "llm"]
    spend = Spend(Limits(max_steps=None), met=None if stop is None else (stop, len(asked)))
    # One model was asked all along; where it stood in the address, the requests do not say it.
    model = Model(_nobody, named=lambda _: asked[0].name) if asked else Model(_nobody)
    return again(tape, Loop(model, Tools(effects=effects), spend, manner_in(tape), dialect_in(tape)))


def manner_in(tape: Tape) -> Manner:
    """How a recorded run of the loop writes its history."""
    return manner_from_json(tape.recording.body(tape.started.bodies.get("manner")))


def dialect_in(tape: Tape) -> Dialect:
    """The form in which a recorded run of the loop asked; chat completions where it does not say."""
    return DIALECTS.get(cast("Form", tape.started.attrs.get("dialect")), CHAT)


def _nobody(_: Mapping[str, Json]) -> Answer:
    raise LoupeError("nobody is asked in a replay", reason="no_model")


def _reissue_all(tape: Tape, outer: str | None, kept: Collection[str | None]) -> None:
    """Makes the kept calls again that were made inside of a call (or, with `None`, by the program itself), lane by lane."""
    boundary = ambient.current()
    assert boundary is not None, "inside of a session"
    for path in tape.lanes:
        if outer_of(path) == outer:
            with ambient.inside(boundary, lane=ambient.Lane(path)):
                _reissue(tape, path, kept)


def _reissue(tape: Tape, lane: str, kept: Collection[str | None]) -> None:
    """Makes the kept calls of a lane again, those of nested agents inside them."""
    for recorded in tape.lane(lane):
        if recorded.call_id not in kept or recorded.attrs.get("limit"):
            continue
        call = Call(
            kind=recorded.kind,
            name=recorded.name,
            input=tape.recording.body(recorded.input_digest),
            effect=recorded.effect,
            attrs={PROMPT: recorded.attrs[PROMPT]} if PROMPT in recorded.attrs else NO_ATTRS,
            encode=lambda value: cast("Json", value),
            decode=lambda value: value,
        )
        try:
            ambient.call(call, lambda recorded=recorded: _redo(tape, recorded, kept))
        except Exception:  # noqa: BLE001, S112 - what the old program did with an error is not known, nor needed
            continue


def _redo(tape: Tape, recorded: RecordedCall, kept: Collection[str | None]) -> Json:
    """What the old program did itself (a nested agent, a state, a check): its calls, and the recorded outcome."""
    _reissue_all(tape, recorded.call_id, kept)
    output = tape.recording.body(recorded.output_digest)
    if recorded.status != "ok":
        raise cast("BaseException", decode(output))
    return output
