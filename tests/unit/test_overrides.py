"""What a fork changes in a request, and that it changes nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine.cautions import cautions, read_history
from agentloupe.engine.edits import ABSENT, Edit, apply_edits, parse_path, same, show_path, value_at
from agentloupe.engine.overrides import (
    MessageEdit,
    Overrides,
    ToolEdit,
    apply_overrides,
    apply_to_request,
    compile_overrides,
    overrides_from_json,
    parse_set,
)
from agentloupe.words.dialects import form_of
from agentloupe.words.errors import UsageError

LOOKUP = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}


def changed(request: Any, overrides: Overrides, form: Any = None) -> Any:
    """The request after overriding."""
    return apply_to_request(request, overrides, form).request


def chat(**more: Any) -> dict[str, Any]:
    return {
        "model": "small-1",
        "messages": [
            {"role": "system", "content": "Be brief.", "name": "house"},
            {"role": "user", "content": "Hi"},
            {"role": "developer", "content": "No emoji."},
        ],
        "tools": [LOOKUP],
        "temperature": 0.2,
        "x_vendor": {"keep": [1, None]},
        **more,
    }


# ---------------------------------------------------------------- system prompt


def test_the_leading_instruction_is_replaced_and_keeps_its_other_fields():
    request = chat()
    before = copy.deepcopy(request)
    applied = apply_to_request(request, Overrides(system_prompt="Be long."))
    sent: Any = applied.request
    assert sent["messages"][0] == {"role": "system", "content": "Be long.", "name": "house"}
    assert sent["messages"][1:] == before["messages"][1:]
    assert {k: v for k, v in applied.request.items() if k != "messages"} == {
        k: v for k, v in before.items() if k != "messages"
    }
    assert applied.changes == [{"path": "messages[0].content", "op": "set", "value": "Be long."}]
    assert applied.notes == ("message 2 is a further instruction that stays",)
    assert request == before


@pytest.mark.parametrize("first", [None, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "?"}])
def test_without_a_leading_instruction_one_is_put_in_front(first: Any):
    messages: list[Any] = [] if first is None else [first, {"role": "system", "content": "later"}]
    assert apply_overrides(messages, Overrides(system_prompt="S")) == [{"role": "system", "content": "S"}, *messages]


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("prompt", ["", "Z", "ü\u200b"])
def test_an_empty_prompt_is_an_override_too(role: str, prompt: str):
    messages: list[Any] = [{"role": role, "content": "A"}, {"role": "user", "content": "u"}]
    assert apply_overrides(messages, Overrides(system_prompt=prompt))[0] == {"role": role, "content": prompt}


def test_an_absent_prompt_is_no_override():
    messages: list[Any] = [{"role": "system", "content": "A"}]
    assert apply_overrides(messages, Overrides()) == messages
    assert apply_overrides(messages, Overrides(temperature=1.0)) == messages
    assert Overrides().empty
    assert not Overrides(system_prompt="").empty


def test_content_parts_of_a_prompt_are_replaced_as_a_whole():
    messages: list[Any] = [{"role": "system", "content": [{"type": "text", "text": "A"}]}]
    assert apply_overrides(messages, Overrides(system_prompt="B")) == [{"role": "system", "content": "B"}]


@pytest.mark.parametrize(
    ("request_body", "expected"),
    [
        ({"system": "A", "messages": []}, {"system": "B", "messages": []}),
        ({"system": [{"type": "text", "text": "A"}], "messages": []}, {"system": "B", "messages": []}),
        ({"anthropic_version": "x", "messages": []}, {"anthropic_version": "x", "messages": [], "system": "B"}),
        ({"input": "hi"}, {"input": "hi", "instructions": "B"}),
        ({"input": [], "instructions": "A"}, {"input": [], "instructions": "B"}),
        ({"contents": []}, {"contents": [], "systemInstruction": {"parts": [{"text": "B"}]}}),
        (
            {"contents": [], "systemInstruction": {"role": "system", "parts": [{"text": "A"}, {"text": "C"}]}},
            {"contents": [], "systemInstruction": {"role": "system", "parts": [{"text": "B"}]}},
        ),
        (
            {"contents": [], "system_instruction": {"parts": []}},
            {"contents": [], "system_instruction": {"parts": [{"text": "B"}]}},
        ),
    ],
)
def test_other_forms_of_request(request_body: Any, expected: Any):
    assert changed(request_body, Overrides(system_prompt="B")) == expected


def test_the_provider_tells_an_anthropic_request_without_a_system_prompt():
    request: Any = {"model": "c", "messages": [{"role": "user", "content": "hi"}]}
    assert form_of(request) == "chat"
    assert form_of(request, "anthropic") == "anthropic"
    assert changed(request, Overrides(system_prompt="S"), "anthropic") == {**request, "system": "S"}


# ---------------------------------------------------------------- parameters, tools, messages, paths


@pytest.mark.parametrize(
    ("overrides", "path", "value"),
    [
        (Overrides(model="m2"), "model", "m2"),
        (Overrides(temperature=0.9), "temperature", 0.9),
        (Overrides(top_p=0.1), "top_p", 0.1),
        (Overrides(seed=0), "seed", 0),
        (Overrides(max_tokens=5), "max_tokens", 5),
        (Overrides(tool_choice="none"), "tool_choice", "none"),
        (Overrides(response_format={"type": "json_object"}), "response_format", {"type": "json_object"}),
        (Overrides(extra={"x_new": None}), "x_new", None),
        (Overrides(set_paths=(("x_vendor.keep[1]", 7),)), "x_vendor.keep[1]", 7),
        (Overrides(set_paths=(("messages[1].content", None),)), "messages[1].content", None),
        (Overrides(set_paths=(("extra.x_new.deep", 1),)), "x_new.deep", 1),
        (Overrides(set_paths=(("response_format.type", "text"),)), "response_format.type", "text"),
    ],
)
def test_one_change_is_one_change(overrides: Overrides, path: str, value: Any):
    request = chat()
    applied = apply_to_request(request, overrides)
    assert value_at(applied.request, parse_path(path)) == value
    assert applied.changes == [{"path": path, "op": "set", "value": value}]
    back, _ = apply_edits(applied.request, [undo(edit) for edit in applied.edits])
    assert same(back, request) or value_at(request, parse_path(path)[:1]) is ABSENT
    assert request == chat()


def undo(edit: Edit) -> Edit:
    if edit.was is ABSENT:
        return Edit(edit.path, "remove", None, edit.path, edit.value)
    return Edit(edit.path, "set", edit.was, edit.path, edit.value)


def test_what_is_that_way_already_is_no_change():
    overrides = Overrides(
        temperature=0.2, model="small-1", system_prompt="Be brief.", extra={"x_vendor": {"keep": [1, None]}}
    )
    applied = apply_to_request(chat(), overrides)
    assert applied.changes == []
    assert applied.request == chat()


@pytest.mark.parametrize("name", ["max_completion_tokens", "max_output_tokens", "max_tokens"])
def test_a_limit_of_tokens_keeps_the_name_that_the_request_uses(name: str):
    request = {"model": "m", "messages": [], name: 10}
    assert changed(request, Overrides(max_tokens=20)) == {"model": "m", "messages": [], name: 20}


def test_parameters_of_other_forms():
    gemini = changed({"contents": []}, Overrides(max_tokens=5, temperature=0.5))
    assert gemini["generationConfig"] == {"maxOutputTokens": 5, "temperature": 0.5}
    assert changed({"input": "x"}, Overrides(max_tokens=5))["max_output_tokens"] == 5


def test_renaming_and_dropping_parameters_is_an_explicit_override():
    request = {"model": "s", "messages": [], "max_tokens": 300, "temperature": 0.2}
    overrides = Overrides(unset_paths=("max_tokens", "temperature"), set_paths=(("max_completion_tokens", 300),))
    applied = apply_to_request(request, overrides)
    assert applied.request == {"model": "s", "messages": [], "max_completion_tokens": 300}
    assert [(c["op"], c["path"]) for c in applied.changes] == [
        ("set", "max_completion_tokens"),
        ("remove", "max_tokens"),
        ("remove", "temperature"),
    ]


def test_tools_are_added_changed_and_removed():
    other: Any = {"type": "function", "function": {"name": "other", "parameters": {}}}
    new: Any = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object", "required": ["k"]}}}
    edits = (ToolEdit("set", "lookup", new), ToolEdit("add", "other", other))
    assert changed(chat(), Overrides(tools=edits))["tools"] == [new, other]
    assert "tools" not in changed(chat(), Overrides(tools=(ToolEdit("remove", "lookup"),)))
    flat: Any = {"input": "x", "tools": [{"type": "function", "name": "lookup"}]}
    assert "tools" not in changed(flat, Overrides(tools=(ToolEdit("remove", "lookup"),)))
    with pytest.raises(UsageError, match=r"no tool 'lokup'.*'lookup'"):
        apply_to_request(chat(), Overrides(tools=(ToolEdit("remove", "lokup"),)))


def test_message_edits_mean_the_recorded_indices():
    edits = (
        MessageEdit(0, "remove"),
        MessageEdit(2, "insert", {"role": "user", "content": "between"}),
        MessageEdit(1, "set", {"role": "user", "content": "Hello"}),
        MessageEdit(3, "insert", {"role": "user", "content": "end"}),
    )
    messages = changed(chat(), Overrides(messages=edits))["messages"]
    assert [m["content"] for m in messages] == ["Hello", "between", "No emoji.", "end"]


def test_message_indices_out_of_range_name_the_nearest():
    with pytest.raises(UsageError, match=r"messages\[9\].*nearest is messages\[2\]"):
        apply_to_request(chat(), Overrides(messages=(MessageEdit(9, "remove"),)))


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("temprature", "did you mean temperature"),
        ("messages[7].content", r"nearest is messages\[2\]"),
        ("x_vendor.kep[0]", "did you mean x_vendor.keep"),
        ("temperature.deep", "temperature is a single value"),
        ("qqqqqq", "extra.qqqqqq"),
        ("tools[0].function.parameters.a.b", "no tools"),
        ("messages[0]content.x", "not a path"),
    ],
)
def test_an_unknown_path_names_the_nearest(path: str, names: str):
    with pytest.raises(UsageError, match=names):
        apply_to_request(chat(), Overrides(set_paths=((path, 1),)))


def test_unsetting_what_is_not_there_is_refused():
    with pytest.raises(UsageError, match="no seed") as refused:
        apply_to_request(chat(), Overrides(unset_paths=("seed",)))
    assert refused.value.hint is None, "the name is right: nothing nearer and no extra field is meant"


# ---------------------------------------------------------------- later requests


def later(request: dict[str, Any]) -> dict[str, Any]:
    more = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "and now?"}]
    return {**request, "messages": [*request["messages"], *more]}


def test_the_same_edits_fit_later_requests_of_the_same_agent():
    edits = compile_overrides(
        Overrides(
            system_prompt="X", temperature=0.5, messages=(MessageEdit(3, "insert", {"role": "user", "content": "!"}),)
        ),
        chat(),
    )
    request: Any
    request, applied = apply_edits(later(chat()), edits)
    assert len(applied) == 3
    assert [m["content"] for m in request["messages"]] == ["X", "Hi", "No emoji.", "!", "a", "and now?"]
    assert request["temperature"] == 0.5


def test_a_request_of_somebody_else_is_left_alone():
    edits = compile_overrides(Overrides(system_prompt="X", temperature=0.5), chat())
    other: Any = {
        "model": "small-1",
        "messages": [{"role": "system", "content": "You are the critic."}],
        "temperature": 0.7,
    }
    assert apply_edits(other, edits) == (other, ())


def test_an_edit_that_finds_another_shape_does_not_fit():
    edits = compile_overrides(Overrides(set_paths=(("response_format.type", "text"),)), chat())
    for shape in ("text", ["x"], 3, None):
        other = chat(response_format=shape)
        assert apply_edits(other, edits)[0] == other


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, json_values)
def test_setting_any_field_changes_that_field_only(value: Any, other: Any):
    request = {**chat(), "x_vendor": other}
    applied = apply_to_request(request, Overrides(extra={"x_new": value}))
    assert {k: v for k, v in applied.request.items() if k != "x_new"} == request
    assert same(applied.request["x_new"], value)


@given(st.lists(st.text(min_size=1, max_size=4) | st.integers(0, 99), max_size=4), st.text(min_size=1, max_size=4))
def test_paths_read_back_as_they_were_written(rest: list[Any], first: str):
    path = (first, *rest)
    assert parse_path(show_path(path)) == path


@given(json_values)
def test_equality_tells_booleans_from_numbers(value: Any):
    assert same(value, copy.deepcopy(value))
    assert not same([value, True], [value, 1])
    assert same([value, 1.0], [value, 1])


# ---------------------------------------------------------------- from text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("temperature=0.5", ("temperature", 0.5)),
        ("model=think-1", ("model", "think-1")),
        ('stop=["a"]', ("stop", ["a"])),
        ("messages[0].content=a=b", ("messages[0].content", "a=b")),
        ("seed=null", ("seed", None)),
        ("user=", ("user", "")),
    ],
)
def test_set_reads_json_or_text(text: str, expected: Any):
    assert parse_set(text) == expected


@pytest.mark.parametrize("text", ["temperature", "=1", "a..b=1", "[0]=1", "a[x]=1"])
def test_set_refuses_what_is_no_path_and_value(text: str):
    with pytest.raises(UsageError):
        parse_set(text)


def test_overrides_from_json_and_unknown_names():
    overrides = overrides_from_json(
        {
            "system_prompt": "",
            "temperature": None,
            "messages": [{"index": 1, "op": "remove"}],
            "set_paths": [["a.b", 1]],
        }
    )
    assert overrides == Overrides(system_prompt="", messages=(MessageEdit(1, "remove"),), set_paths=(("a.b", 1),))
    with pytest.raises(UsageError, match=r"unknown override 'temprature'.*temperature"):
        overrides_from_json({"temprature": 1})
    with pytest.raises(UsageError, match="wrong shape"):
        overrides_from_json({"messages": [{"nonsense": 1}]})


# ---------------------------------------------------------------- cautions


def test_a_removed_secret_is_sent_as_its_placeholder_and_said():
    request = chat()
    request["messages"][1]["content"] = "my key is [removed:openai-key]"
    assert any("openai-key" in line for line in cautions(request, request, ()))


@pytest.mark.parametrize(
    ("overrides", "warned"),
    [
        (Overrides(messages=(MessageEdit(1, "remove"),)), True),
        (Overrides(set_paths=(("messages[1].content[0].thinking", "other"),)), True),
        (Overrides(set_paths=(("messages[1].content[1].text", "other"),)), False),
        (Overrides(messages=(MessageEdit(0, "set", {"role": "user", "content": "x"}),)), False),
        (Overrides(model="other-1"), True),
        (Overrides(), False),
    ],
)
def test_signed_thinking_is_not_edited_in_silence(overrides: Overrides, warned: bool):
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    request: dict[str, Any] = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [thinking, {"type": "text", "text": "a"}]},
        ],
    }
    applied = apply_to_request(request, overrides)
    said = cautions(request, applied.request, applied.edits)
    assert any("thinking" in line for line in said) is warned


def test_parameters_that_a_new_model_refuses_are_named_and_sent():
    request = {"model": "small", "messages": [], "max_tokens": 3, "temperature": 0.1}
    applied = apply_to_request(request, Overrides(model="gpt-5-mini"))
    said = cautions(request, applied.request, applied.edits)
    assert [line.split()[5] for line in said] == ["max_tokens", "temperature"]
    assert applied.request == {**request, "model": "gpt-5-mini"}


def test_results_find_their_calls_in_their_own_turn():
    messages: list[Any] = [
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "2"},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "a", "content": "0"},
    ]
    history = read_history(messages)
    assert [(pair.call_at, pair.content) for pair in history.pairs] == [(0, "1"), (1, "2")]
    assert history.orphans == ((4, "a"),)
    assert history.reused == ("a",)
