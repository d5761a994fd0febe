"""The generic loop in every dialect: what it sends, what it is told, what it never runs; over real HTTP."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import NOT_GIVEN

import agentloupe as loupe
from agentloupe.engine.compare import compare_runs
from agentloupe.engine.overrides import MessageEdit, Overrides, ToolEdit
from agentloupe.engine.project import load_steps
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import json_reply, serve
from agentloupe.verbs.comparing import side_of
from agentloupe.verbs.forking import fork
from agentloupe.verbs.pricing import price_table
from agentloupe.verbs.replaying import replay
from agentloupe.words.errors import ForkRefused
from agentloupe.words.run import Run
from tests.dialect_support import (
    FORMS,
    HISTORY,
    PATHS,
    QUESTION,
    TOOLS,
    Dialects,
    agent_of,
    answered,
    definition,
    ran,
    weather_answers,
)

FORM = pytest.mark.parametrize("form", FORMS)
STEPS = {"first": (0, 1), "second": (1, 4), "last": (2, 6)}
"""Which request, and which step of the parent (a root, the model, two tools, the model, a tool, the model)."""


@pytest.fixture
def server(workdir: Path) -> Iterator[Dialects]:
    made = Dialects()
    with serve(made) as running:
        made.url = running.url
        yield made


def recorded(server: Dialects, form: str, *answers: Any, **more: Any) -> tuple[str, list[Any]]:
    """The weather run (or another), and what its agent asked."""
    server.answers = list(answers) or weather_answers()
    done = loupe.record(agent_of(form, server, **more), QUESTION)
    asked = copy.deepcopy(server.asked)
    forget(server)
    return done.run_id, asked


def forget(server: Dialects, *answers: Any) -> None:
    server.asked.clear()
    server.headers.clear()
    server.paths.clear()
    server.answers = list(answers)
    ran.clear()


def forked(server: Dialects, run_id: str, step: int, *answers: Any, **more: Any) -> Run:
    forget(server, *answers)
    where = Endpoint(f"{server.url}/v1", "secret-key")
    return fork(run_id, from_step=step, provider=where, engine="generic", control=False, **more).candidates[0]


# ---------------------------------------------------------------- unchanged


@FORM
@pytest.mark.parametrize("where", STEPS)
def test_an_unchanged_fork_is_unchanged_to_the_letter(server: Dialects, form: str, where: str) -> None:
    run_id, asked = recorded(server, form)
    nth, step = STEPS[where]
    run = forked(server, run_id, step, *weather_answers()[nth:])
    assert server.asked == asked[nth:]
    assert server.paths == [PATHS[form]] * len(server.asked)
    assert (run.status, run.label, run.overrides) == ("ok", "faithful", ())
    assert ran == [], "every tool is answered from the recording"
    table = price_table()
    compared = compare_runs(side_of(loupe.open_store(), run_id, table), side_of(loupe.open_store(), run.id, table))
    assert compared.first is None, "the same road"
    assert compared.answers == ("Together 20.5 degrees.",) * 2
    report = replay(run.id)
    assert report.passed, report.text()


@FORM
def test_what_the_model_thought_goes_back_untouched(server: Dialects, form: str) -> None:
    run_id, _ = recorded(server, form)
    forked(server, run_id, 1, *weather_answers())
    text = json.dumps(server.asked[1])
    assert {"chat": "thought 0", "anthropic": "sig0==", "responses": "gAAAA-opaque0"}[form] in text


@FORM
def test_the_key_goes_where_the_dialect_wants_it(server: Dialects, form: str) -> None:
    run_id, _ = recorded(server, form)
    forked(server, run_id, 6, "done")
    (headers,) = server.headers
    if form == "anthropic":
        assert (headers["x-api-key"], headers["anthropic-version"]) == ("secret-key", "2023-06-01")
        assert "authorization" not in headers
    else:
        assert headers["authorization"] == "Bearer secret-key"
        assert "x-api-key" not in headers


@FORM
def test_the_steps_of_the_new_part_say_what_they_cost(server: Dialects, form: str) -> None:
    run_id, _ = recorded(server, form)
    run = forked(server, run_id, 4, *weather_answers()[1:])
    steps = [s for s in loupe.open_store().steps(run.id) if s.kind == "llm" and s.source == "live"]
    assert [(s.name, s.input_tokens, s.output_tokens) for s in steps] == [("chat small-1", 10, 5)] * 2
    assert (run.new_input_tokens, run.new_output_tokens) == (20, 10)


# ---------------------------------------------------------------- overrides

SYSTEM_AT = {"chat": ("messages", 0, "content"), "anthropic": ("system",), "responses": ("instructions",)}
MAX_TOKENS = {"chat": "max_tokens", "anthropic": "max_tokens", "responses": "max_output_tokens"}
CHOICE: dict[str, Any] = {"chat": "required", "anthropic": {"type": "any"}, "responses": "required"}


def put(request: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(request)
    at = changed
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    return changed


def expected_of(form: str, request: Any, name: str) -> tuple[Overrides, Any]:
    """An override, and the request as it must go out."""
    history = HISTORY[form]
    user = 1 if form == "chat" else 0
    edited: Any = {"role": "user", "content": "How warm is it in Rome?"}
    other = definition(form, "add", {"x": {"type": "integer"}})
    cases: dict[str, tuple[Overrides, Any]] = {
        "system prompt": (Overrides(system_prompt="Be brief."), put(request, SYSTEM_AT[form], "Be brief.")),
        "empty prompt": (Overrides(system_prompt=""), put(request, SYSTEM_AT[form], "")),
        "model": (Overrides(model="other-1"), put(request, ("model",), "other-1")),
        "temperature": (Overrides(temperature=0.75), put(request, ("temperature",), 0.75)),
        "top_p": (Overrides(top_p=0.5), put(request, ("top_p",), 0.5)),
        "max tokens": (Overrides(max_tokens=7), put(request, (MAX_TOKENS[form],), 7)),
        "tool choice": (Overrides(tool_choice=CHOICE[form]), put(request, ("tool_choice",), CHOICE[form])),
        "a field of its own": (Overrides(extra={"x_vendor": [1]}), put(request, ("x_vendor",), [1])),
        "a message": (Overrides(messages=(MessageEdit(user, "set", edited),)), put(request, (history, user), edited)),
        "a tool less": (
            Overrides(tools=(ToolEdit("remove", "send"),)),
            put(request, ("tools",), [t for t in request["tools"] if t != definition(form, "send")]),
        ),
        "a tool more": (
            Overrides(tools=(ToolEdit("add", "look", definition(form, "look", {})),)),
            put(request, ("tools",), [*request["tools"], definition(form, "look", {})]),
        ),
        "a schema": (Overrides(tools=(ToolEdit("set", "add", other),)), put(request, ("tools", 1), other)),
    }
    return cases[name]


CASES = (
    "system prompt",
    "empty prompt",
    "model",
    "temperature",
    "top_p",
    "max tokens",
    "tool choice",
    "a field of its own",
    "a message",
    "a tool less",
    "a tool more",
    "a schema",
)


@FORM
@pytest.mark.parametrize("name", CASES)
def test_one_change_is_the_only_difference_and_holds_for_later_requests(server: Dialects, form: str, name: str) -> None:
    run_id, asked = recorded(server, form)
    overrides, expected = expected_of(form, asked[0], name)
    run = forked(server, run_id, 1, *weather_answers(), overrides=overrides)
    assert server.asked[0] == expected
    _, later = expected_of(form, asked[1], name)
    assert server.asked[1] == later
    assert len(run.overrides) == 1
    assert ran == []
    assert replay(run.id).passed


@pytest.mark.parametrize(
    ("form", "absent"), [("anthropic", {"system": NOT_GIVEN}), ("responses", {"instructions": None})]
)
def test_a_system_prompt_where_there_was_none(server: Dialects, form: str, absent: dict[str, Any]) -> None:
    run_id, asked = recorded(server, form, **absent)
    forked(server, run_id, 6, "done", system_prompt="Be brief.")
    assert server.asked == [{**asked[2], SYSTEM_AT[form][0]: "Be brief."}]


def test_a_leading_instruction_of_responses_is_replaced_in_its_place(server: Dialects) -> None:
    first = {"role": "developer", "content": "Use the tools."}
    history: list[Any] = [first, {"role": "user", "content": "hi"}]
    run_id, asked = recorded(server, "responses", "hello", instructions=None, input=history)
    run = forked(server, run_id, 1, "done", system_prompt="Be brief.")
    assert server.asked == [{**asked[0], "input": [{**first, "content": "Be brief."}, history[1]]}]
    assert [o["path"] for o in run.overrides] == ["input[0].content"]


def test_a_mark_of_the_cache_stays_on_a_changed_system_prompt(server: Dialects) -> None:
    blocks = [{"type": "text", "text": "Use the tools.", "cache_control": {"type": "ephemeral"}}]
    run_id, asked = recorded(server, "anthropic", "hello", system=blocks)
    forked(server, run_id, 1, "done", system_prompt="Be brief.")
    assert server.asked == [{**asked[0], "system": [{**blocks[0], "text": "Be brief."}]}]


@FORM
def test_a_kept_result_is_changed_where_the_model_reads_it(server: Dialects, form: str) -> None:
    run_id, asked = recorded(server, form)
    run = forked(server, run_id, 4, *weather_answers()[1:], tool_results={3: {"city": "Rome", "degrees": 30}})
    before, after = json.dumps(asked[1]), json.dumps(server.asked[0])
    wanted = json.dumps(json.dumps({"city": "Rome", "degrees": 30}))[1:-1]
    assert before.replace(json.dumps(json.dumps({"city": "Rome", "degrees": 17.0}))[1:-1], wanted) == after
    assert before != after
    assert run.label == "hypothetical"


@FORM
def test_a_later_result_is_changed_in_the_cassette(server: Dialects, form: str) -> None:
    run_id, asked = recorded(server, form)
    forked(server, run_id, 4, *weather_answers()[1:], tool_results={5: {"sum": 99}})
    assert json.loads(json.dumps(asked[2]).replace("20.5", "99")) == server.asked[1]


# ---------------------------------------------------------------- tools


def results(form: str, request: Any) -> list[tuple[str, Any]]:
    """Ids and contents of the newest results, as the dialect has them."""
    last = request[HISTORY[form]]
    if form == "anthropic":
        return [(b["tool_use_id"], b["content"]) for b in last[-1]["content"]]
    if form == "chat":
        return [(m["tool_call_id"], m["content"]) for m in last if m["role"] == "tool"][-2:]
    return [(i["call_id"], i["output"]) for i in last if i.get("type") == "function_call_output"][-2:]


@FORM
def test_a_miss_is_told_in_the_form_of_the_dialect(server: Dialects, form: str) -> None:
    run_id, _ = recorded(server, form)
    run = forked(server, run_id, 1, [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Köln"})], "done")
    (first, second) = results(form, server.asked[1])
    assert json.loads(first[1]) == {"city": "Oslo", "degrees": 3.5}
    assert json.loads(second[1]).keys() == {"error"}
    assert "cassette miss" in second[1]
    assert "Köln" in second[1], "not escaped"
    if form == "anthropic":
        blocks = server.asked[1]["messages"][-1]["content"]
        assert [b.get("is_error") for b in blocks] == [None, True]
    assert (run.status, run.counts.miss, run.counts.cassette) == ("ok", 1, 1)
    assert ran == []


@pytest.mark.parametrize("form", ["chat", "responses"])
def test_malformed_arguments_reach_nothing(server: Dialects, form: str) -> None:
    run_id, _ = recorded(server, form)
    run = forked(
        server, run_id, 1, [("add", '{"a": 1,'), ("add", "[]")], "done", live={"add": "sums"}, functions=[TOOLS["add"]]
    )
    assert [("malformed" in content) for _, content in results(form, server.asked[1])] == [True, True]
    assert ran == []
    assert (run.counts.live, run.counts.miss) == (0, 0)


@FORM
def test_only_what_is_allowed_ever_runs(server: Dialects, form: str) -> None:
    """Every tool, every step, every policy that is no word for running it."""
    run_id, _ = recorded(server, form)
    again = [
        [(name, {"city": "Ulm"} if name == "get_weather" else {"a": 1, "b": 2} if name == "add" else {"text": "x"})]
        for name in TOOLS
    ]
    for step in (1, 4, 6):
        run = forked(server, run_id, step, *again, "done", functions=list(TOOLS.values()))
        assert (ran, run.counts.live, run.counts.miss) == ([], 0, 3)
    run = forked(server, run_id, 6, *again, "done", functions=list(TOOLS.values()), live={"add": "arithmetic"})
    assert (ran, run.counts.live, run.counts.miss) == ([("add", (1, 2))], 1, 2)
    for name, reason in (("send", "live_write"), ("get_weather", "live_read")):
        with pytest.raises(ForkRefused) as refused:
            forked(server, run_id, 6, *again, functions=list(TOOLS.values()), live={name: "why not"})
        assert (refused.value.reason, ran, server.asked) == (reason, [], [])


@FORM
def test_a_limit_stops_it_with_calls_pending(server: Dialects, form: str) -> None:
    run_id, _ = recorded(server, form)
    run = forked(server, run_id, 1, *[[("add", {"a": 3.5, "b": 17.0})]] * 9, max_steps=2)
    assert (run.status, len(server.asked)) == ("error", 2)
    last = loupe.open_store().steps(run.id)[-1]
    assert (last.kind, last.name) == ("other", "max_steps")
    assert replay(run.id).passed


@FORM
def test_a_fork_of_a_fork_goes_on_in_the_dialect(server: Dialects, form: str) -> None:
    run_id, asked = recorded(server, form)
    first = forked(server, run_id, 4, *weather_answers()[1:], temperature=0.75)
    second = forked(server, first.id, 6, "once more")
    assert server.asked == [{**asked[2], "temperature": 0.75}]
    assert (second.status, second.parent_run_id) == ("ok", first.id)
    assert replay(second.id).passed


def test_a_custom_tool_gets_its_text_and_answers_in_its_own_form(server: Dialects) -> None:
    item = {"type": "custom_tool_call", "id": "ct", "call_id": "c9", "name": "send", "input": "free text {"}
    run_id, asked = recorded(server, "responses", "hello")
    first = {**answered("responses", asked[0], "x", 0), "output": [item]}
    run = forked(server, run_id, 1, json_reply(first), "done", tools={"send": 'stub:"ok"'})
    assert server.asked[1]["input"][-2:] == [item, {"type": "custom_tool_call_output", "call_id": "c9", "output": "ok"}]
    step = next(s for s in load_steps(loupe.open_store().recording(run.id)) if s.kind == "tool")
    assert (step.name, step.input, step.attrs.get("parse_error")) == ("send", "free text {", None)


def test_a_paused_turn_is_asked_to_go_on(server: Dialects) -> None:
    run_id, asked = recorded(server, "anthropic", "hello")
    paused = {**answered("anthropic", asked[0], "searching", 0), "stop_reason": "pause_turn"}
    run = forked(server, run_id, 1, json_reply(paused), "found")
    assert run.status == "ok"
    said = {"role": "assistant", "content": [{"type": "text", "text": "searching"}]}
    assert server.asked[1]["messages"] == [*asked[0]["messages"], said]


# ---------------------------------------------------------------- what the provider holds, and refuses


def test_a_response_that_goes_on_at_the_provider_is_said(server: Dialects) -> None:
    run_id, asked = recorded(server, "responses", "hello", previous_response_id="resp_0")
    forget(server, "done")
    where = Endpoint(f"{server.url}/v1", "k")
    done = fork(run_id, from_step=1, provider=where, control=False)
    assert server.asked == asked
    assert any("server_held" in note for note in done.notes)
    assert not any("without their call" in note for note in done.notes)


def test_a_conversation_at_the_provider_is_not_written_into(server: Dialects) -> None:
    run_id, asked = recorded(server, "responses", "hello", conversation="conv_1")
    with pytest.raises(ForkRefused, match="--unset conversation") as refused:
        forked(server, run_id, 1, "done")
    assert (refused.value.reason, server.asked) == ("server_held", [])
    forked(server, run_id, 1, "done", unset_paths=("conversation",))
    assert server.asked == [{n: v for n, v in asked[0].items() if n != "conversation"}]


REFUSALS: dict[str, Any] = {
    "chat": {"error": {"message": "no such model", "type": "invalid_request_error", "param": "model", "code": None}},
    "anthropic": {"type": "error", "error": {"type": "not_found_error", "message": "no such model"}},
    "responses": {"error": {"message": "no such model", "type": "invalid_request_error", "param": "model"}},
}


@FORM
def test_a_refusal_is_shown_and_nothing_is_dropped(server: Dialects, form: str) -> None:
    run_id, asked = recorded(server, form)
    run = forked(server, run_id, 6, json_reply(REFUSALS[form], 404), model="gone-1")
    assert server.asked == [{**asked[2], "model": "gone-1"}]
    assert run.status == "error"
    assert "no such model" in str(run.error)


@FORM
def test_an_answer_of_another_form_is_said(server: Dialects, form: str) -> None:
    run_id, _ = recorded(server, form)
    run = forked(server, run_id, 6, json_reply({"object": "list", "data": []}))
    assert run.status == "error"
    assert "the model's answer is no " in str(run.error)


@FORM
def test_an_endpoint_of_another_dialect_is_not_asked(server: Dialects, form: str) -> None:
    run_id, _ = recorded(server, form)
    other: Any = FORMS[(FORMS.index(form) + 1) % 3]
    forget(server, "done")
    with pytest.raises(ForkRefused, match="speaks") as refused:
        fork(run_id, from_step=6, provider=Endpoint(f"{server.url}/v1", dialect=other), control=False)
    assert (refused.value.reason, server.asked) == ("other_form", [])


@pytest.mark.parametrize(("form", "place"), [("anthropic", "messages 1"), ("responses", "input 1")])
def test_a_changed_model_may_not_read_what_another_one_signed(server: Dialects, form: str, place: str) -> None:
    run_id, _ = recorded(server, form)
    forget(server, "done")
    where = Endpoint(f"{server.url}/v1", "k")
    done = fork(run_id, from_step=4, provider=where, control=False, model="other-1")
    assert any(f"signed for small-1: another model may refuse them ({place})" in note for note in done.notes)


@pytest.mark.parametrize(
    ("form", "change", "said"),
    [
        ("anthropic", {"seed": 3}, "has no seed"),
        ("responses", {"seed": 3}, "has no seed"),
        ("responses", {"model": "o3"}, "known to refuse temperature"),
        ("chat", {"model": "o3"}, "known to refuse max_tokens"),
        ("anthropic", {"max_tokens": 64}, "more than thinking.budget_tokens"),
        ("anthropic", {"temperature": 0.5}, "only temperature 1"),
    ],
)
def test_what_a_form_or_a_model_does_not_take_is_said(
    server: Dialects, form: str, change: dict[str, Any], said: str
) -> None:
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048, "temperature": 1}
    run_id, asked = recorded(server, form, "hello", **(thinking if form == "anthropic" else {}))
    forget(server, "done")
    done = fork(run_id, from_step=1, provider=Endpoint(f"{server.url}/v1", "k"), control=False, **change)
    assert any(said in note for note in done.notes), done.notes
    assert server.asked == [{**asked[0], **change}], "it is sent all the same"


def test_betas_that_were_asked_for_are_asked_for_again(server: Dialects) -> None:
    run_id, _ = recorded(
        server, "anthropic", "hello", extra_headers={"anthropic-beta": "interleaved-thinking-2025-05-14"}
    )
    forked(server, run_id, 1, "done")
    assert server.headers[0]["anthropic-beta"] == "interleaved-thinking-2025-05-14"


# ---------------------------------------------------------------- streams


@FORM
@pytest.mark.parametrize("where", STEPS)
def test_a_streamed_agent_is_forked_in_one_piece_and_still_lines_up(server: Dialects, form: str, where: str) -> None:
    run_id, asked = recorded(server, form, stream=True)
    nth, step = STEPS[where]
    run = forked(server, run_id, step, *weather_answers()[nth:])
    pieces = ("stream", "stream_options")
    assert server.asked == [{n: v for n, v in one.items() if n not in pieces} for one in asked[nth:]]
    assert (run.status, run.label) == ("ok", "faithful")
    assert [o["path"] for o in run.overrides] == ["stream"], "that it asks otherwise is said"
    table = price_table()
    compared = compare_runs(side_of(loupe.open_store(), run_id, table), side_of(loupe.open_store(), run.id, table))
    assert compared.first is None, "the same road"
    assert compared.answers == ("Together 20.5 degrees.",) * 2
    assert replay(run.id).passed
