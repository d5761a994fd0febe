"""Of which prompt template a model call was made: recorded per call, shown, compared, told by a replay, and never a part of what is sent."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.cli.app import run as cli
from agentloupe.engine.compare import Comparison
from agentloupe.engine.overrides import MessageEdit
from agentloupe.engine.project import load_steps
from agentloupe.ports import ambient, codecs
from agentloupe.ports.recording import Recording
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.comparing import compare
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json
from agentloupe.words.errors import UsageError
from agentloupe.words.prompts import prompt_of
from tests.server.serving import TOKEN, client_of
from tests.tapes import record_in
from tests.unit.test_sdk_streams import CHAT, SSE

TONE = "Be kind to {name}, 東京."


def asked(text: str) -> tuple[Call, Callable[..., Any]]:
    def send(_: Json = None) -> Any:
        return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}

    body: Json = {"model": "m", "messages": [{"role": "user", "content": text}]}
    encode: Callable[[object], Json] = lambda value: codecs.encode(value).wire  # noqa: E731
    return Call(kind="llm", name="chat m", input=body, encode=encode, decode=codecs.decode, resend=send), send


def ask(text: str) -> None:
    ambient.call(*asked(text))


async def aask(text: str) -> None:
    call, send = asked(text)

    async def sent() -> Any:
        await asyncio.sleep(0)
        return send()

    await ambient.acall(call, sent)


def told(recording: Recording) -> dict[str, str | None]:
    """Of each model step, by what it asked, the template."""
    steps: Any = [step for step in load_steps(recording) if step.kind == "llm"]
    return {step.input["messages"][0]["content"]: prompt_of(step.attrs) for step in steps}


@loupe.prompt("decorated", 1)
def decorated() -> None:
    ask("on a function")


@loupe.prompt("decorated", 2)
async def adecorated() -> None:
    await aask("on an async one")


def test_each_model_call_says_the_innermost_template_and_others_say_none() -> None:
    @loupe.agent(name="prompting")
    def agent() -> None:
        ask("before")
        with loupe.prompt("refund", "3"):
            ask("inside")
            with loupe.prompt("tone", text=TONE):
                ask("deeper")
            ask("inside again")
            loupe.now()
        decorated()
        ask("after")

    recording = record_in(MemoryStore(), agent)
    assert told(recording) == {
        "before": None,
        "inside": "refund@3",
        "deeper": f"tone#{hashlib.sha256(TONE.encode()).hexdigest()[:8]}",
        "inside again": "refund@3",
        "on a function": "decorated@1",
        "after": None,
    }
    assert {event.type for event in recording.events if "prompt" in event.attrs} == {"model.requested"}


def test_tasks_and_threads_have_the_template_that_they_were_begun_in() -> None:
    template = loupe.prompt("shared", 5)  # one object, entered in several places at once

    async def task(name: str) -> None:
        await aask(f"{name} 1")
        with template:
            await aask(f"{name} 2")
        await aask(f"{name} 3")

    @loupe.agent(name="prompting")
    async def agent() -> None:
        with loupe.prompt("outer"):
            tasks = [asyncio.create_task(task("a")), asyncio.create_task(task("b"))]
        await asyncio.gather(*tasks)
        with template:
            thread = threading.Thread(target=ask, args=("thread",))
            thread.start()
            with ThreadPoolExecutor(1) as pool:
                pool.submit(ask, "pool").result()
            await asyncio.to_thread(ask, "to_thread")
        thread.join()
        await adecorated()
        await aask("end")

    assert told(record_in(MemoryStore(), agent)) == {
        **{f"{name} {at}": "shared@5" if at == 2 else "outer" for name in "ab" for at in (1, 2, 3)},
        **dict.fromkeys(("thread", "pool", "to_thread"), "shared@5"),
        "on an async one": "decorated@2",
        "end": None,
    }


def test_calls_of_a_client_say_it_too_whole_and_streamed(workdir: Path) -> None:
    def reply(request: HttpRequest) -> HttpReply:
        return HttpReply(200, CHAT, SSE) if b'"stream":true' in request.body else _whole()

    with serve(reply) as server:
        client = loupe.wrap(openai.OpenAI(base_url=server.url, api_key="none", max_retries=0))

        @loupe.agent(name="prompting")
        def agent() -> None:
            with loupe.prompt("refund", 4):
                client.chat.completions.create(model="m-1", messages=[{"role": "user", "content": "whole"}])
                list(
                    client.chat.completions.create(
                        model="m-1", messages=[{"role": "user", "content": "s"}], stream=True
                    )
                )

        recording = record_in(MemoryStore(), agent)
    assert told(recording) == {"whole": "refund@4", "s": "refund@4"}
    for event in recording.events:
        if event.type == "model.requested":
            assert "refund" not in json.dumps(recording.body(event.input_digest)), "nothing of it is sent"


def _whole() -> HttpReply:
    message = {"role": "assistant", "content": "ok"}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m-1"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json_reply({**answer, "choices": [choice]})


def version(of: str | None) -> Callable[[], None]:
    @loupe.agent(name="prompting")
    def agent() -> None:
        for text in ("one", "two"):
            if of is None:
                ask(text)
            else:
                with loupe.prompt("refund", of):
                    ask(text)

    return agent


def test_a_replay_goes_by_what_is_sent_and_says_once_that_the_template_is_another() -> None:
    store = MemoryStore()
    recording, plain = record_in(store, version("3")), record_in(store, version(None))
    same, other, none = (replay(recording, agent=version(of)) for of in ("3", "4", None))
    assert [report.verdict for report in (same, other, none)] == ["pass"] * 3
    assert [note for note in same.notes if "prompt" in note] == []
    assert [note for note in other.notes if "prompt" in note] == [
        "made from another prompt: template refund@3 -> refund@4"
    ]
    assert [note for note in none.notes if "prompt" in note] == ["made from another prompt: template refund@3 -> none"]
    assert not [note for note in replay(plain, agent=version("4")).notes if "prompt" in note], "it names none"
    keys = [[e.input_key for e in one.events if e.type == "model.requested"] for one in (recording, plain)]
    assert keys[0] == keys[1]


def test_two_runs_are_compared_by_it_and_it_is_shown(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = workdir / "x.db"
    with closing(open_url(db)) as store:
        left, right = record_in(store, version("3")).run_id, record_in(store, version("4")).run_id
        found = compare(left, right, store=store)
        assert isinstance(found, Comparison)
        models = [row for row in found.rows if row.left is not None and row.left.kind == "llm"]
        assert [(row.status, row.notes) for row in models] == [("same", ("template refund@3 -> refund@4",))] * 2
        assert not found.identical
        step = client_of(store, TOKEN).get(f"/api/runs/{right}/steps/1").json()
        assert (step["kind"], step["overview"]["prompt"]) == ("llm", "refund@4")
    assert cli(["show", right, "--db", str(db)]) == 0
    assert "refund@4" in capsys.readouterr().out
    assert cli(["show", right, "--json", "--db", str(db)]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [step["attrs"]["prompt"] for step in steps if step["kind"] == "llm"] == [
        {"name": "refund", "version": "4"}
    ] * 2
    assert cli(["compare", left, right, "--db", str(db)]) == 0
    assert "template refund@3 -> refund@4" in capsys.readouterr().out


FORKS: list[tuple[dict[str, Any], str | None]] = [
    ({}, "refund@3"),
    ({"temperature": 0.5}, "refund@3"),
    ({"system_prompt": "Be brief."}, None),
    ({"messages": [MessageEdit(0, "set", {"role": "user", "content": "another"})]}, None),
]


@pytest.mark.parametrize(("changes", "template"), FORKS)
def test_the_plain_loop_goes_on_from_the_template_of_its_step_unless_what_is_made_of_it_is_changed(
    changes: dict[str, Any], template: str | None, capsys: pytest.CaptureFixture[str], workdir: Path
) -> None:
    tool: Json = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    turns: list[Json] = [
        {"role": "assistant", "content": None, "tool_calls": [tool]},
        {"role": "assistant", "content": "done"},
    ]

    @loupe.tool(effect="read")
    def look() -> str:
        return "seen"

    @loupe.agent(name="prompting")
    def agent() -> None:
        history: list[Any] = [{"role": "user", "content": "look"}]
        with loupe.prompt("refund", 3):
            for turn in turns:
                body: Json = {"model": "m", "messages": list(history)}
                answer: Json = {"choices": [{"index": 0, "message": turn}]}
                encode: Callable[[object], Json] = lambda value: codecs.encode(value).wire  # noqa: E731
                call = Call(kind="llm", name="chat m", input=body, encode=encode, decode=codecs.decode)
                ambient.call(call, lambda answer=answer: answer)
                history.append(turn)
                if turn is turns[0]:
                    history.append({"role": "tool", "tool_call_id": "c1", "content": look()})

    def served(_: HttpRequest) -> HttpReply:
        return json_reply({"choices": [{"index": 0, "message": left.pop(0)}]})

    with closing(open_url(workdir / "x.db")) as store, serve(served) as server:
        run_id = record_in(store, agent).run_id
        for step, of in ((1, 2), (3, 1)):
            left = turns[-of:]
            where = Endpoint(server.url, "k")
            (made,) = fork(run_id, from_step=step, store=store, provider=where, control=False, **changes).candidates
            assert made.status == "ok", made.error
            steps = [one for one in load_steps(store.recording(made.id)) if one.kind == "llm"]
            assert [prompt_of(one.attrs) for one in steps] == ["refund@3"] * (2 - of) + [template] * of
            assert [note for note in replay(store.recording(made.id)).notes if "prompt" in note] == []
            found = compare(run_id, made.id, store=store)
            assert isinstance(found, Comparison)
            assert found.head_json()["counts"]["other_templates"] == (0 if template else of)  # type: ignore[index,call-overload]


def test_secrets_in_it_are_taken_out() -> None:
    key = "sk-" + "proj-a1b2c3d4a1b2c3d4a1b2c3d4"

    @loupe.agent(name="prompting")
    def agent() -> None:
        with loupe.prompt("refund", key):
            ask("one")

    assert told(record_in(MemoryStore(), agent)) == {"one": "refund@[removed:key]"}


def test_what_yields_takes_a_block_and_not_the_decorator() -> None:
    def items() -> Any:
        yield 1

    with pytest.raises(UsageError, match="yields"):
        loupe.prompt("refund")(items)


def test_a_prompt_without_its_name_is_a_wrong_call() -> None:
    def ask() -> None: ...

    with pytest.raises(UsageError, match=r"stands without the template's name .*write loupe\.prompt"):
        loupe.prompt(ask)  # type: ignore[arg-type]
    for name in ("", None, 3):
        with pytest.raises(UsageError, match="wants the template's name"):
            loupe.prompt(name)  # type: ignore[arg-type]
