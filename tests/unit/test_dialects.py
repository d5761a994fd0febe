"""What requests and answers say, in the forms of chat completions, Responses and Anthropic messages."""

from __future__ import annotations

from typing import Any

import pytest

from agentloupe.engine.toolwatch import SeenResult, ToolWatch
from agentloupe.words.dialects import finish_reason_of, message_in, server_held
from agentloupe.words.toolcalls import asked_tools, forced_tool, newest_results

CHAT: dict[str, Any] = {
    "choices": [
        {
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}},
                    {"id": "b", "type": "custom", "custom": {"name": "write", "input": "text"}},
                ],
            },
        }
    ]
}
RESPONSE: dict[str, Any] = {
    "object": "response",
    "status": "completed",
    "output": [
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "id": "fc", "call_id": "a", "name": "look", "arguments": '{"x": 1}'},
        {"type": "custom_tool_call", "call_id": "b", "name": "write", "input": "text"},
        {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}},
        {"type": "web_search_call", "id": "ws", "status": "completed"},
        {"type": "shell_call", "call_id": "d", "action": {}},
        {"type": "shell_call_output", "call_id": "d", "output": []},
    ],
}
MESSAGE: dict[str, Any] = {
    "type": "message",
    "role": "assistant",
    "id": "msg",
    "stop_reason": "tool_use",
    "content": [
        {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "a", "name": "look", "input": {"x": 1}},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    ],
}
ASKED: dict[str, tuple[Any, list[tuple[str, str, Any]], str]] = {
    "chat": (CHAT, [("a", "look", '{"x": 1}'), ("b", "write", "text")], "tool_calls"),
    "responses": (
        RESPONSE,
        [("a", "look", '{"x": 1}'), ("b", "write", "text"), ("c", "local_shell", {"command": ["ls"]})],
        "completed",
    ),
    "messages": (MESSAGE, [("a", "look", {"x": 1})], "tool_use"),
}


@pytest.mark.parametrize("form", ASKED)
def test_tools_that_the_program_is_asked_for(form: str) -> None:
    answer, asked, reason = ASKED[form]
    assert [(one.call_id, one.name, one.arguments) for one in asked_tools(answer)] == asked
    assert finish_reason_of(answer) == reason


HISTORIES: dict[str, dict[str, Any]] = {
    "chat": {
        "messages": [
            {"role": "tool", "tool_call_id": "old", "content": "0"},
            {"role": "assistant", "tool_calls": []},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": "2"},
            {"role": "user", "content": "go on"},
        ]
    },
    "responses": {
        "input": [
            {"type": "function_call_output", "call_id": "old", "output": "0"},
            {"type": "function_call", "call_id": "a"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {"type": "custom_tool_call_output", "call_id": "b", "output": "2"},
            {"role": "user", "content": "go on"},
        ]
    },
    "responses that go on at the provider": {
        "previous_response_id": "resp",
        "input": [
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {"type": "function_call_output", "call_id": "b", "output": "2"},
        ],
    },
    "messages": {
        "messages": [
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "old", "content": "0"}]},
            {"role": "assistant", "content": []},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                    {"type": "tool_result", "tool_use_id": "b", "content": "2"},
                    {"type": "text", "text": "go on"},
                ],
            },
        ]
    },
    "nothing of these": {"messages": "x"},
}


@pytest.mark.parametrize("form", HISTORIES)
def test_the_newest_results(form: str) -> None:
    expected = [] if form == "nothing of these" else [("a", "1"), ("b", "2")]
    assert newest_results(HISTORIES[form]) == expected


@pytest.mark.parametrize("form", ["chat", "responses", "messages"])
def test_a_tool_that_ran_outside_is_seen_in_every_form(form: str) -> None:
    answer = ASKED[form][0]
    watch = ToolWatch()
    watch.answered(answer, {"model": "m"})
    seen = watch.requested(HISTORIES[form])
    assert seen[0] == SeenResult("look", ASKED[form][1][0][2], "1")
    assert watch.undecorated()[0] == "look"
    other = ToolWatch()
    other.answered(answer, {"model": "m"})
    other.performed("look")
    assert "look" not in [one.name for one in other.requested(HISTORIES[form])]


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "function", "function": {"name": "look"}}, "look"),
        ({"type": "function", "name": "look"}, "look"),
        ({"type": "tool", "name": "look"}, "look"),
        ({"type": "any"}, None),
        ("required", None),
    ],
)
def test_a_tool_that_must_be_asked_for_is_a_form_to_answer_in(choice: Any, name: str | None) -> None:
    request: dict[str, Any] = {"model": "m", "tool_choice": choice}
    assert forced_tool(request) == name
    watch = ToolWatch()
    watch.answered(MESSAGE, request)
    assert watch.never_seen() == (() if name else ("look",))


def test_a_message_is_what_the_model_said() -> None:
    assert message_in(CHAT) == CHAT["choices"][0]["message"]
    assert message_in(RESPONSE) == {"role": "assistant", "output": RESPONSE["output"]}
    assert message_in(MESSAGE) == {"role": "assistant", "content": MESSAGE["content"]}
    assert message_in({"data": [1]}) == {"data": [1]}
    assert message_in("text") == "text"


@pytest.mark.parametrize(
    ("part", "held"),
    [
        ({"type": "file", "file": {"file_id": "file-1"}}, True),
        ({"type": "input_image", "file_id": "file-1"}, True),
        ({"type": "document", "source": {"type": "file", "file_id": "file-1"}}, True),
        ({"type": "tool_result", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}, True),
        ({"type": "file", "file": {"file_data": "data:..."}}, False),
        ({"type": "text", "text": '"file_id": "f"'}, False),
    ],
)
def test_files_that_lie_at_the_provider(part: dict[str, Any], held: bool) -> None:
    assert server_held({"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": [part]}]}) == held
    assert server_held({"input": [{"role": "user", "content": [part]}]}) == held


def test_an_item_that_is_only_named_lies_at_the_provider() -> None:
    assert server_held({"input": [{"type": "item_reference", "id": "msg_1"}]})
