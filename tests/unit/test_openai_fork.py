"""Forks of agents that use a wrapped OpenAI client, with the generic loop's endpoint beside it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.engine.loop import Model
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import HttpReply, HttpRequest, completion, error_reply, json_reply, serve
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.words.errors import ForkRefused

KEY = "sk-canary-forks-51"


class Server:
    """Answers `<model>: <last message>`, and refuses `max_tokens` for the model `think-1`."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[dict[str, Any]] = []

    def __call__(self, request: HttpRequest) -> HttpReply:
        asked = json.loads(request.body)
        self.seen.append(asked)
        if asked["model"] == "think-1" and "max_tokens" in asked:
            message = "'max_tokens' is not accepted by think-1; send 'max_completion_tokens'"
            return error_reply(400, message, param="max_tokens", code="unsupported_parameter")
        message = {"role": "assistant", "content": f"{asked['model']}: {asked['messages'][-1]['content']}"}
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        answer = completion(id="c", model=asked["model"], created=1, message=message, finish_reason="stop", usage=usage)
        return json_reply(answer, headers={"x-request-id": f"req_{len(self.seen)}"})


@pytest.fixture
def server(workdir: object) -> Iterator[Server]:
    made = Server()
    with serve(made) as running:
        made.url = f"{running.url}/v1"
        yield made


class Once(io.BytesIO):
    """Bytes that can be read once."""

    def seekable(self) -> bool:
        return False


def _client(server: Server) -> openai.OpenAI:
    http = openai.DefaultHttpxClient(verify=False)
    return loupe.wrap(openai.OpenAI(api_key=KEY, base_url=server.url, max_retries=0, http_client=http))


def _talk(server: Server, *, upload: bool = False) -> Any:
    @loupe.agent(name="talk")
    def talk(first: str) -> list[str]:
        said: list[str] = []
        with _client(server) as client:
            for word in (first, "second", "third"):
                answer = client.chat.completions.create(
                    model="small-chat-1", messages=[{"role": "user", "content": word}], max_tokens=300
                )
                said.append(f"{answer.choices[0].message.content} {answer._request_id}")
            if upload:
                length: Any = {"headers": {"content-length": "2"}}
                client.post("/uploads", cast_to=object, content=Once(b"{}"), options=length)
        return said

    return talk


def test_a_fork_keeps_what_came_before_and_sends_what_was_changed(server: Server) -> None:
    agent = _talk(server)
    run_id = loupe.record(agent, "first").run_id
    before = len(server.seen)
    result = fork(run_id, agent, from_step=2, control=False, model="other-1")
    assert result.candidates[0].status == "ok"
    sent = server.seen[before:]
    assert [body["model"] for body in sent] == ["other-1", "other-1"]
    assert sent[0] == {"model": "other-1", "messages": [{"role": "user", "content": "second"}], "max_tokens": 300}
    recording = loupe.open_store().recording(result.candidates[0].id)
    finished: Any = recording.body(recording.events[-1].output_digest)
    said = finished["result"]
    assert said == ["small-chat-1: first req_1", "other-1: second req_4", "other-1: third req_5"]


def test_a_fork_can_be_replayed(server: Server) -> None:
    agent = _talk(server)
    run_id = loupe.record(agent, "first").run_id
    forked = fork(run_id, agent, from_step=2, control=False, model="other-1").candidates[0].id
    before = len(server.seen)
    assert replay(forked, agent).passed
    assert len(server.seen) == before


@pytest.mark.parametrize("way", ["own", "generic"])
def test_a_refused_parameter_is_shown_and_nothing_is_dropped(server: Server, way: str) -> None:
    agent = _talk(server)
    run_id = loupe.record(agent, "first").run_id
    before = len(server.seen)
    endpoint = Endpoint(server.url, KEY)
    model = Model(endpoint.send, endpoint.facts, endpoint.provider)
    who: dict[str, Any] = {"agent": agent} if way == "own" else {"provider": model}
    run = fork(run_id, from_step=3, control=False, model="think-1", **who).candidates[0]
    assert run.status == "error"
    assert [body.get("max_tokens") for body in server.seen[before:]] == [300]
    failed = [step for step in loupe.open_store().steps(run.id) if step.kind == "llm"][-1]
    assert failed.status == "error"
    assert "400" in str(failed.attrs.get("status_code", failed.error_class))
    recording = loupe.open_store().recording(run.id)
    kept = json.dumps(recording.body(failed.output_digest))
    assert "not accepted by think-1" in kept
    assert "unsupported_parameter" in kept
    assert KEY not in kept


def test_what_is_not_recorded_is_sent_by_no_fork_and_no_replay(server: Server) -> None:
    run_id = loupe.record(_talk(server), "first").run_id
    uploading = _talk(server, upload=True)
    before = len(server.seen)
    assert not replay(run_id, uploading).passed
    assert len(server.seen) == before
    with pytest.raises(ForkRefused, match="read while it is sent") as refused:
        fork(run_id, uploading, from_step=3, control=False)
    assert refused.value.reason == "not_recorded"
    assert [body["model"] for body in server.seen[before:]] == ["small-chat-1"]
