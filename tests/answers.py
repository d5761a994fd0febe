"""An answer of a chat model with everything in it that providers send, and how objects made of answers are compared."""

from __future__ import annotations

from typing import Any

ANSWER: dict[str, Any] = {
    "id": "c-1",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "small-chat-1-2026-02-01",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "reasoning_content": "the user wants …",
                "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1'}, "x": [1]},
                    {"id": "t2", "type": "custom", "custom": {"name": "free", "input": "words"}},
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {
        "prompt_tokens": 20,
        "completion_tokens": 4,
        "total_tokens": 24,
        "prompt_tokens_details": {"cached_tokens": 16},
        "cost_in_beads": 1.0,
    },
    "system_fingerprint": "fp_1",
    "unknown_member": {"deep": [None, 1.5, "é"]},
}


def same(a: Any, b: Any, path: str = "$") -> None:
    """Equal in type, value, what is set and what is extra, all the way down."""
    assert type(a) is type(b), path
    if hasattr(a, "model_fields_set"):
        assert a.model_fields_set == b.model_fields_set, path
        same(a.model_extra, b.model_extra, f"{path}.extra")
        same(dict(vars(a)), dict(vars(b)), path)
    elif isinstance(a, dict):
        assert list(a) == list(b), path
        for name in a:
            same(a[name], b[name], f"{path}.{name}")
    elif isinstance(a, list):
        assert len(a) == len(b), path
        for index, (one, other) in enumerate(zip(a, b, strict=True)):
            same(one, other, f"{path}[{index}]")
    else:
        assert a == b, path
