"""The scripted model of the documentation's examples, which also streams its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agentloupe.providers.loopback import HttpReply, HttpRequest
from agentloupe.providers.scripted import ScriptedModel


class StreamingModel(ScriptedModel):
    """Where a stream is asked for, the whole answer goes out word by word, as chat completions do."""

    def app(self, request: HttpRequest) -> HttpReply:
        """The HTTP form, see `ScriptedModel.app`."""
        asked: dict[str, Any] = json.loads(request.body) if request.body else {}
        if not asked.pop("stream", False):
            return super().app(request)
        whole = super().app(replace(request, body=json.dumps(asked).encode()))
        assert isinstance(whole.body, bytes)
        return HttpReply(200, _events(json.loads(whole.body)), {"content-type": "text/event-stream"})


def _events(whole: dict[str, Any]) -> Iterator[bytes]:
    choice = whole["choices"][0]
    head = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    words = choice["message"]["content"].split(" ")
    deltas = [{"role": "assistant", "content": words[0]}, *({"content": f" {word}"} for word in words[1:]), {}]
    for n, delta in enumerate(deltas, 1):
        reason = choice["finish_reason"] if n == len(deltas) else None
        chunk = head | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        yield f"data: {json.dumps(chunk)}\n\n".encode()
    yield b"data: [DONE]\n\n"
