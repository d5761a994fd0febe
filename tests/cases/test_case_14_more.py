"""Case 14, more of the kind: what a refusal may carry, and what a person sees of it; nothing is tried twice or repaired."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.cli import main
from agentloupe.engine.overrides import Overrides, parse_set
from agentloupe.engine.project import load_steps
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import HttpReply, HttpRequest, completion, json_reply, serve
from agentloupe.verbs.forking import fork
from tests.tapes import files_below

KEY = "sk-" + "a1B2" * 10


class Provider:
    """Answers what it accepts, and refuses the rest; `refusal` says how."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[Any] = []
        self.refusal: Callable[[dict[str, Any]], HttpReply | None] = lambda _: None

    def __call__(self, request: HttpRequest) -> HttpReply:
        body = json.loads(request.body)
        self.bodies.append(body)
        refused = self.refusal(body)
        if refused is not None:
            return refused
        message = {"role": "assistant", "content": "a plan"}
        return json_reply(
            completion(id="c", model=body["model"], created=1, message=message, finish_reason="stop", usage=None)
        )


@pytest.fixture
def provider(workdir: Path) -> Iterator[Provider]:
    made = Provider()
    with serve(made) as running:
        made.url = f"{running.url}/v1"
        yield made


@pytest.fixture
def case(shared_case: Callable[[str], Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = shared_case("14")
    return json.loads((folder / "request.json").read_text()), json.loads((folder / "provider_400.json").read_text())


def recorded(provider: Provider, body: dict[str, Any]) -> tuple[str, int, Callable[[], Any]]:
    def agent() -> Any:
        http = openai.DefaultHttpxClient(verify=False)
        # The client would try again; whatever a fork does, a refusal of a parameter is asked once.
        with loupe.wrap(openai.OpenAI(api_key=KEY, base_url=provider.url, max_retries=2, http_client=http)) as client:
            return client.chat.completions.create(**body).choices[0].message.content

    run_id = loupe.record(agent).run_id
    (step,) = [step for step in loupe.open_store().steps(run_id) if step.kind == "llm"]
    return run_id, step.idx, agent


def forked(provider: Provider, run: tuple[str, int, Callable[[], Any]], way: str, **more: Any) -> Any:
    who: dict[str, Any] = {"agent": run[2]} if way == "own" else {"provider": Endpoint(provider.url, KEY)}
    return fork(run[0], from_step=run[1], control=False, **who, **more).candidates[0]


WAYS = pytest.mark.parametrize("way", ["own", "generic"])


@WAYS
def test_the_refusal_of_the_case_with_the_programs_own_client_and_with_the_endpoint(
    provider: Provider, case: Any, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    body, refusal = case
    run = recorded(provider, body)
    provider.refusal = lambda b: json_reply(refusal, 400) if b["model"] == "think-1" and "max_tokens" in b else None
    made = forked(provider, run, way, model="think-1")
    assert provider.bodies[1:] == [{**body, "model": "think-1"}], "asked once, with every parameter as it was"
    assert made.status == "error"
    step = load_steps(loupe.open_store().recording(made.id))[-1]
    assert (step.kind, step.status, step.attrs["status_code"]) == ("llm", "error", 400)
    capsys.readouterr()
    assert main(["show", made.id, str(step.idx)]) == 0
    shown = capsys.readouterr().out
    for part in ("400", "is not accepted by think-1; send 'max_completion_tokens'", "max_tokens"):
        assert part in shown
    assert KEY not in shown

    overrides = Overrides(
        model="think-1", set_paths=(parse_set("max_completion_tokens=300"),), unset_paths=("max_tokens", "temperature")
    )
    again = forked(provider, run, way, overrides=overrides)
    assert provider.bodies[2:] == [{"model": "think-1", "messages": body["messages"], "max_completion_tokens": 300}]
    assert again.status == "ok"
    assert [o["path"] for o in again.overrides] == ["model", "max_completion_tokens", "max_tokens", "temperature"]
    # a fork of that fork has these changes in its request already, and lists its own only
    child = forked(provider, (again.id, run[1], run[2]), way)
    assert provider.bodies[3:] == provider.bodies[2:3]
    assert child.status == "ok"


@WAYS
@pytest.mark.parametrize(
    "refusal",
    [
        {
            "error": {
                "message": f"Incorrect API key provided: {KEY}.",
                "type": "invalid_request_error",
                "code": "invalid_api_key",
            }
        },
        {"error": {"message": "no", "param": None, "hint": {"authorization": f"Bearer {KEY}", "list": [KEY]}}},
        {"error": f"bad key {KEY}"},
        {"detail": [{"loc": ["header", "authorization"], "msg": f"Bearer {KEY}", "input": KEY}]},
        [KEY],
    ],
)
def test_a_key_that_a_provider_sends_back_is_shown_nowhere_and_in_no_byte_on_disk(
    provider: Provider, case: Any, refusal: Any, way: str, capsys: pytest.CaptureFixture[str], workdir: Path
) -> None:
    run = recorded(provider, case[0])
    provider.refusal = lambda _: json_reply(refusal, 401, {"www-authenticate": f"Bearer {KEY}", "x-echo": KEY})
    made = forked(provider, run, way, model="think-1")
    assert made.status == "error"
    recording = loupe.open_store().recording(made.id)
    step = load_steps(recording)[-1]
    capsys.readouterr()
    for words in (["show", made.id], ["show", made.id, str(step.idx)], ["show", made.id, "--json"], ["list", "--json"]):
        assert main(words) == 0
        told = capsys.readouterr()
        assert KEY not in told.out + told.err, words
    assert "401" in str(step.attrs["status_code"])
    for event in recording.events:
        assert not any(KEY.encode() in body for body in recording.get(event.digests()).values())
    assert [name for name, data in files_below(workdir).items() if KEY.encode() in data] == []


@WAYS
@pytest.mark.parametrize(
    "reply", ["<html>502</html>", "", "null", '{"error": null}', '{"error": {"message": null}}', "{"]
)
def test_a_refusal_in_no_known_form_is_shown_as_it_is(provider: Provider, case: Any, reply: str, way: str) -> None:
    run = recorded(provider, case[0])
    provider.refusal = lambda _: HttpReply(
        status=400, headers={"content-type": "application/json"}, body=reply.encode()
    )
    made = forked(provider, run, way, model="think-1")
    assert (made.status, len(provider.bodies)) == ("error", 2)
    step = load_steps(loupe.open_store().recording(made.id))[-1]
    assert step.attrs["status_code"] == 400
    assert step.error
