"""A fork with the generic loop: the request of step N is rebuilt, and the plain loop goes on from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from agentloupe.engine.cautions import Pair, read_history
from agentloupe.engine.cut import Cut
from agentloupe.engine.forker import Ended, Forker, ForkPlan
from agentloupe.engine.forkopener import ForkOpener
from agentloupe.engine.loop import Loop, Model, Spend, Tools
from agentloupe.engine.manner import PLAIN, Manner, learn_manner
from agentloupe.engine.overrides import apply_to_request
from agentloupe.engine.tape import RecordedCall
from agentloupe.ports import ambient, codecs
from agentloupe.ports.ambient import Lane
from agentloupe.ports.protocols import Opening, Provider
from agentloupe.providers.chat import MODEL_IN_PATH, QUERY
from agentloupe.verbs.models import Chosen, Pace, chosen_endpoint, model_behind
from agentloupe.words.call import Effect
from agentloupe.words.canonical import Json, key_of
from agentloupe.words.dialects import Form
from agentloupe.words.errors import LoupeError, UsageError
from agentloupe.words.exchange import answer_in
from agentloupe.words.prompts import PROMPT
from agentloupe.words.turns import DIALECTS

__all__ = ["LoopFork", "LoopParts"]

_AROUND = 4
"""Model calls before and after step N in which the parent's hand is looked at."""


@dataclass(frozen=True, slots=True)
class LoopParts:
    """What the loop of a fork is made of, beside its plan.

    Attributes:
        form: of the requests.
        provider: who is asked; `None`: the model of the settings.
        functions: behind live tools.
        effects: by tool name.
        model: the model to ask where the request names none: the parent's.
        endpoint: name of the endpoint in the configuration.
        patience: seconds that a model call may wait for a provider that says "later".
    """

    form: Form
    provider: Provider | Model | None
    functions: Mapping[str, Callable[..., object]]
    effects: Mapping[str, Effect | None]
    model: str | None
    endpoint: str | None = None
    patience: float = 60.0


class LoopFork:
    """Forks of one cut with the generic loop."""

    def __init__(self, cut: Cut, parts: LoopParts) -> None:
        assert cut.request is not None, "the generic loop starts at a model step"
        assert cut.call is not None, "the generic loop starts at a model step"
        self._cut = cut
        self._call = cut.call
        self._request = cut.request
        self._parts = parts
        self._dialect = DIALECTS[parts.form]

    def run(self, plan: ForkPlan) -> Ended:
        """Makes one fork; how it ended is in its run."""
        parts = self._parts
        chosen, model = self._chosen(plan)
        applied = apply_to_request(self._request, plan.overrides, parts.form)
        request, sent = _sendable(self._with_results(applied.request, plan), self._wanted(chosen), chosen)
        spend = self._spend(plan)
        manner = self._manner()
        bodies = {**plan.bodies, "request": request}
        bodies |= {} if manner == PLAIN else {"manner": manner.as_json()}
        facts = {**plan.facts, "dialect": parts.form}
        changes = [*applied.changes, *sent]
        forker = Forker(replace(plan, spend=spend, written=changes, bodies=bodies, facts=facts))
        return self._drive(forker, self._loop(model, spend, manner, applied.request), request)

    def resumed(self, plan: ForkPlan, manner: Manner) -> Loop:
        """The loop of a fork that goes on."""
        request = apply_to_request(self._request, plan.overrides, self._parts.form).request
        return self._loop(self._chosen(plan)[1], self._spend(plan), manner, request)

    @property
    def span_id(self) -> str | None:
        """Under which span the calls of the new part stand; `None`: the run's own."""
        span = self._call.parent_span_id
        return None if span == self._cut.tape.started.span_id else span

    def _chosen(self, plan: ForkPlan) -> tuple[Chosen | None, Model]:
        """Who is asked, from the configuration where nobody is given."""
        given = self._parts.provider
        chosen = chosen_endpoint(self._parts.endpoint, self._parts.form) if given is None else None
        return chosen, self._model(chosen.provider if chosen is not None else cast("Provider | Model", given), plan)

    def _wanted(self, chosen: Chosen | None) -> str | None:
        """The model that a request without one has to name; `None` where it is asked in the address, as it was."""
        return None if self._addressed else self._parts.model or (chosen.model if chosen is not None else None)

    @property
    def _addressed(self) -> str | None:
        """The recorded model where it stood in the address, and in no body (Gemini, Converse)."""
        if self._parts.form not in MODEL_IN_PATH or self._request.get("model"):
            return None
        events = self._cut.recording.events
        asked = events[self._call.first_seq - events[0].sequence]  # an answer may name a version of it
        model = asked.attrs.get("model") or self._parts.model
        return model if isinstance(model, str) else None

    def _template(self, request: Mapping[str, Json]) -> Json:
        """The template of the forked step, which the loop's steps go on from, unless what is made of it was changed."""
        made = (*_INSTRUCTING, self._dialect.history)
        alike = all(request.get(name) == self._request.get(name) for name in made)
        return self._call.attrs.get(PROMPT) if alike else None

    def _spend(self, plan: ForkPlan) -> Spend:
        spend = Spend(plan.limits, cancel=plan.cancel)
        spend.price = plan.price or spend.price
        return spend

    def _loop(self, model: Model, spend: Spend, manner: Manner, request: Mapping[str, Json]) -> Loop:
        tools = Tools(self._parts.functions, None, self._parts.effects)
        return Loop(model, tools, spend, manner, self._dialect, self._addressed, self._template(request))

    def _drive(self, forker: Forker, loop: Loop, request: Mapping[str, Json]) -> Ended:
        cut = self._cut
        started = cut.tape.started
        entry = started.attrs.get("entry")
        session = ForkOpener(forker).open(
            Opening(
                agent=started.name or "",
                arguments=cut.recording.body(started.input_digest),
                entry=entry if isinstance(entry, str) else None,
            )
        )
        assert forker.prefix is not None, "a generic fork has begun"
        try:
            with ambient.inside(forker, lane=Lane("0", forker.prefix.lane_calls), span_id=self.span_id):
                message = loop.run(request)
        except Exception as error:  # noqa: BLE001 - a limit, an abort, a failed model call: the run's error, recorded there
            session.failed(error)
        except BaseException as stop:
            session.failed(stop)
            raise
        else:
            session.finished(message)
        return forker.ended()

    def _model(self, provider: Provider | Model, plan: ForkPlan) -> Model:
        """Who is asked. Names of new model steps follow the recorded convention, so that a comparison lines them up."""
        pace = Pace(self._parts.patience, plan.cancel, plan.watch, plan.run_id)
        model = model_behind(provider, self._parts.form, self._call.attrs.get("beta"), pace)
        recorded = self._call.name
        asked = self._addressed or self._request.get("model") or self._call.attrs.get("model")
        if recorded == f"chat {asked}" or not recorded:
            return model

        def named(request: Mapping[str, Json]) -> str:
            now = request.get("model")
            if isinstance(asked, str) and asked in recorded and isinstance(now, str):
                return recorded.replace(asked, now)
            return recorded

        return replace(model, named=named)

    # --- the parent's hand --------------------------------------------------------------------------------------------

    def _manner(self) -> Manner:
        """How the parent writes its history: seen in the requests around N, and in its last one."""
        asked = [call for call in self._cut.tape.calls if call.kind == "llm" and call.input_digest is not None]
        at = next(i for i, call in enumerate(asked) if call is self._call)
        near = {call.call_id: call for call in (*asked[max(at - _AROUND, 0) : at + _AROUND], *asked[-2:])}.values()
        requests = [self._cut.recording.body(call.input_digest) for call in near]
        answers = [answer for call in near if (answer := self._answer_of(call)) is not None]
        bodies = [r if isinstance(r, dict) else None for r in requests]
        return learn_manner(bodies, self._dialect, answers, self._results_of)

    def _results_of(self, key: str) -> list[Json]:
        """The recorded results of a tool call."""
        found = [call for call in self._cut.tape.with_key(key) if call.kind == "tool" and call.status == "ok"]
        digests = dict.fromkeys(call.output_digest for call in found)
        return [codecs.decode_for_reading(self._cut.recording.body(digest)) for digest in digests]

    def _answer_of(self, call: RecordedCall) -> Json:
        """What the model answered; `None` where nothing of this form was."""
        if call.status != "ok":
            return None
        answer = answer_in(self._cut.recording.body(call.output_digest))
        try:
            return answer if self._dialect.turn(answer) else None
        except LoupeError:
            return None

    # --- changed results ----------------------------------------------------------------------------------------------

    def _with_results(self, request: dict[str, Json], plan: ForkPlan) -> dict[str, Json]:
        """The request with changed results of kept tool steps in its history."""
        if not plan.results:
            return request
        manner = self._manner()
        for call_id, result in plan.results.items():
            call = self._cut.tape.call(call_id)
            assert call is not None, "looked up before"
            content = manner.content(manner.spell_result(codecs.decode_for_reading(result)))
            request = self._result_in(request, call, content)
        return request

    def _result_in(self, request: dict[str, Json], call: RecordedCall, content: Json) -> dict[str, Json]:
        """Puts a result into the item that carries it."""
        dialect = self._dialect
        items = dialect.items(request)
        carrier = self._carrier(items, call)
        if carrier is None or carrier.result_at is None:
            raise UsageError(f"the result of {call.name} is not found in the messages of the step that is forked")
        at = carrier.result_at
        items[at] = dialect.with_result(cast("dict[str, Json]", items[at]), carrier.id, content)
        return {**request, dialect.history: items}

    def _carrier(self, items: Sequence[Json], call: RecordedCall) -> Pair | None:
        """The call with its result in the history: by id and arguments, or by one of them.

        An id, and arguments, may stand there several times: those that are equal are counted from the end.
        """
        later = [one for one in self._cut.kept() if one.kind == "tool" and one.first_seq > call.first_seq]
        answered = [pair for pair in read_history(items, self._dialect).pairs if pair.result_at is not None]
        told = [(pair.id, (pair.name, key_of("tool", pair.name, pair.raw))) for pair in answered]
        mine, *others = [(one.attrs.get("tool_call_id"), (one.name, one.input_key)) for one in (call, *later)]
        for part in (slice(0, 2), slice(0, 1), slice(1, 2)):
            found = [at for at, one in enumerate(told) if one[part] == mine[part]]
            after = sum(one[part] == mine[part] for one in others)
            if len(found) > after:
                return answered[found[-1 - after]]
        return None


_PIECES = ("stream", "stream_options", "background")
"""What asks for an answer that does not come whole, or not now."""
_INSTRUCTING = ("system", "instructions", "system_instruction", "systemInstruction", "prompt")
"""Members of a request, beside its history, that a prompt template may have made."""


def _sendable(
    request: dict[str, Json], model: str | None, chosen: Chosen | None
) -> tuple[dict[str, Json], list[dict[str, Json]]]:
    """What the loop itself needs: a model, and an answer in one piece. Each is a recorded change."""
    added: dict[str, Json] = {"model": model} if not request.get("model") and model else {}
    if chosen is not None:
        added |= {name: value for name, value in chosen.extra_body.items() if name not in request}
    gone = [name for name in _PIECES if request.get(name)] if request.get("stream") or request.get("background") else []
    changes = [_change(name, "set", value) for name, value in added.items()]
    changes += [_change(name, "remove", None) for name in gone if name != "stream_options"]
    query = request.get(QUERY)
    if isinstance(query, dict) and query.get("alt") == "sse":  # so does Gemini ask for a stream
        request = {**request, QUERY: {name: value for name, value in query.items() if name != "alt"}}
        changes.append(_change(f"{QUERY}.alt", "remove", None))
    return {**{name: value for name, value in request.items() if name not in gone}, **added}, changes


def _change(path: str, op: str, value: Json) -> dict[str, Json]:
    return {"path": path, "op": op, "value": value}
