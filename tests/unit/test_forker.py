"""Forks that run the agent's own code: served up to N, live from there, tools by policy."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from agentloupe.engine.loop import Limits, from_llm_call
from agentloupe.engine.overrides import MessageEdit, Overrides
from agentloupe.engine.policy import Allow, ToolRule
from agentloupe.engine.project import Projector, load_steps
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Store
from agentloupe.providers.chat import request_facts
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import ForkWishes, fork, prepare_fork
from agentloupe.verbs.instrument import agent, tool
from agentloupe.verbs.looping import run_loop
from agentloupe.verbs.reads import check, env, now, retrieve, state
from agentloupe.verbs.reads import random as draw
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json
from agentloupe.words.errors import Corrupt, Damaged, ForkRefused, LimitReached, RunNotFound, UsageError
from tests.fork_support import Script, shape

# ---------------------------------------------------------------- an agent with a small client of its own


class Client:
    """A wrapped client in small: one method under the boundary, sync and async."""

    def __init__(self) -> None:
        self.script: Callable[..., Any] = Script()
        self.sent: list[dict[str, Any]] = []

    def _send(self, body: Json) -> Any:
        assert isinstance(body, dict)
        self.sent.append(body)
        message, tokens_in, tokens_out = self.script(
            body["messages"], body.get("tools"), body.get("model"), body.get("temperature")
        )
        usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
        return {"model": body["model"], "choices": [{"index": 0, "message": message}], "usage": usage}

    def _call(self, body: dict[str, Any], resend: Callable[[Json], object]) -> Call:
        return Call(
            kind="llm",
            name=f"chat {body['model']}",
            input=json.loads(json.dumps(body)),
            attrs={"model": body["model"]},
            encode=lambda value: value,  # type: ignore[arg-type,return-value]
            decode=lambda value: value,
            facts=lambda value: {"input_tokens": value["usage"]["prompt_tokens"], "output_tokens": 1},  # type: ignore[index,call-overload]
            resend=resend,
        )

    def create(self, **body: Any) -> Any:
        return ambient.call(self._call(body, self._send), lambda: self._send(body))["choices"][0]["message"]

    async def acreate(self, **body: Any) -> Any:
        async def send(edited: Json) -> Any:
            await asyncio.sleep(0)
            return self._send(edited)

        answer = await ambient.acall(self._call(body, send), lambda: send(body))
        return answer["choices"][0]["message"]


client = Client()
ran: list[str] = []


@tool(effect="read")
def look(k: str) -> dict[str, Any]:
    ran.append(f"look {k}")
    return {"v": k.lower()}


@tool(effect="pure")
def double(x: int) -> int:
    ran.append(f"double {x}")
    return 2 * x


@tool(effect="write")
def refund(order: str, amount: int = 5) -> str:
    ran.append(f"refund {order}")
    return f"refunded {amount} for {order}"


@tool(effect="read")
def flaky(n: int) -> str:
    ran.append(f"flaky {n}")
    raise TimeoutError("no answer")


OWN: dict[str, Any] = {"look": look, "double": double, "refund": refund, "flaky": flaky}


def _answers(message: Any) -> list[Any]:
    found: list[Any] = []
    for call in message.get("tool_calls", []):
        try:
            content = json.dumps(OWN[call["function"]["name"]](**json.loads(call["function"]["arguments"])))
        except Exception as error:
            content = json.dumps({"error": str(error)})
        found.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    return found


@agent(name="helper")
def helper(question: str, system: str = "Be brief.") -> str:
    messages: list[Any] = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    now()
    draw()
    while True:
        message = client.create(model="small-1", messages=messages, temperature=0.1)
        messages = [*messages, message]
        found = _answers(message)
        if not found:
            return message["content"]
        messages += found


@agent(name="ahelper")
async def ahelper(question: str) -> str:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
    while True:
        message = await client.acreate(model="small-1", messages=messages)
        messages = [*messages, message]
        found = _answers(message)
        if not found:
            return message["content"]
        messages += found


SCRIPT: list[Any] = [("look", {"k": "A"}), [("refund", {"order": "o1"}), ("flaky", {"n": 1})], "done"]


@pytest.fixture(autouse=True)
def fresh() -> None:
    ran.clear()
    client.sent.clear()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def record(
    store: Store, function: Callable[..., Any], *args: Any, script: list[Any] | None = None, **kwargs: Any
) -> str:
    client.script = Script(*(SCRIPT if script is None else script))
    opener = RecordOpener(store, name="run")
    with ambient.opening_with(opener):
        result = function(*args, **kwargs)
        if asyncio.iscoroutine(result):
            asyncio.run(result)
    ran.clear()
    client.sent.clear()
    return opener.sessions[0].run_id


# root 0, now 1, random 2, llm 3, look 4, llm 5, refund 6, flaky 7, llm 8


keys: list[str | None] = []


@agent(name="keyed")
def keyed(question: str) -> str:
    keys.append(env("SMALL_API_KEY"))
    env("SMALL_MODEL")
    keys.append(env("SMALL_MODEL"))
    return client.create(model="small-1", messages=[{"role": "user", "content": question}])["content"]


def test_a_fork_asks_with_the_key_that_is_set_now_and_a_replay_needs_none(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMALL_API_KEY", "zq-recorded-77")
    monkeypatch.setenv("SMALL_MODEL", "then")
    run_id = record(store, keyed, "hi", script=["done"])
    monkeypatch.setenv("SMALL_API_KEY", "zq-present-88")
    monkeypatch.setenv("SMALL_MODEL", "now")
    keys.clear()
    client.script = Script("again")
    assert fork(run_id, keyed, from_step=4, store=store).candidates[0].status == "ok"
    assert keys == ["zq-present-88", "then"], "what is no secret is as it was recorded"
    monkeypatch.delenv("SMALL_API_KEY")
    keys.clear()
    assert replay(run_id, keyed, store=store).passed
    assert keys == ["[removed:api-key]", "then"]


def test_a_fork_of_own_code_is_served_up_to_n_and_live_from_there(store: MemoryStore):
    run_id = record(store, helper, "hi")
    assert [s.kind for s in store.steps(run_id)] == [
        "agent",
        "clock",
        "random",
        "llm",
        "tool",
        "llm",
        "tool",
        "tool",
        "llm",
    ]
    client.script = Script(("look", {"k": "A"}), "changed")
    done = fork(run_id, helper, from_step=5, store=store, system_prompt="Be long.")
    new = done.candidates[0]
    assert [entry[3] for entry in shape(store, new.id)] == [
        *("live", "recorded", "recorded", "recorded", "recorded"),
        *("live", "cassette", "live"),
    ]
    assert ran == []
    assert [body["messages"][0]["content"] for body in client.sent] == ["Be long.", "Be long."]
    assert [body["temperature"] for body in client.sent] == [0.1, 0.1]
    assert (new.status, new.parent_run_id, new.forked_from_step, new.engine) == ("ok", run_id, 5, "own")
    assert new.counts.cassette == 1
    assert new.counts.reused == 1  # look(A) was used up in the kept part
    steps = load_steps(store.recording(new.id))
    assert steps[0].output == "changed"
    assert steps[0].name == "agent.run"
    assert "messages[0].content was applied to 2 requests" in done.notes
    assert "1 model answer was kept that was made with the old prompt" in done.notes
    assert [override["path"] for override in new.overrides] == ["messages[0].content"]


def test_an_async_agent_is_forked_the_same_way(store: MemoryStore):
    run_id = record(store, ahelper, "hi")
    client.script = Script("changed")
    done = fork(run_id, ahelper, from_step=3, store=store, temperature=0.9)
    assert done.candidates[0].status == "ok"
    assert [(b["messages"][-1]["role"], b["temperature"]) for b in client.sent] == [("tool", 0.9)]
    assert ran == []

    async def inside_a_loop() -> Any:
        client.script = Script("again")
        return fork(run_id, ahelper, from_step=3, store=store)

    assert asyncio.run(inside_a_loop()).candidates[0].status == "ok"


def test_tools_raise_as_they_did_and_a_write_is_only_played(store: MemoryStore):
    run_id = record(store, helper, "hi")
    client.script = Script([("refund", {"order": "o1"}), ("flaky", {"n": 1}), ("refund", {"order": "o2"})], "ok")
    new = fork(run_id, helper, from_step=5, store=store).candidates[0]
    assert ran == []
    tools = [s for s in load_steps(store.recording(new.id)) if s.kind == "tool"][1:]
    assert [(s.source, s.status) for s in tools] == [("cassette", "ok"), ("cassette", "error"), ("miss", "error")]
    assert tools[1].error == "TimeoutError: no answer"
    assert tools[0].attrs["replayed_write"] is True
    told = [m["content"] for m in client.sent[-1]["messages"] if m["role"] == "tool"]
    assert json.loads(told[2]) == {"error": "no answer"}
    assert "cassette miss" in json.loads(told[3])["error"]
    assert (new.label, new.hypothetical_from) == ("hypothetical", 6)
    events = [e.type for e in store.recording(new.id).events if e.copied_hash is None]
    assert "tool.requested" not in events
    assert "tool.started" not in events


@pytest.mark.parametrize("how", ["live", "stub", "sandbox", "human"])
def test_policies(store: MemoryStore, how: str):
    run_id = record(store, helper, "hi", script=[("double", {"x": 2}), "done"])
    client.script = Script(("double", {"x": 21}), "ok")
    asked: list[Any] = []
    more: dict[str, Any] = {
        "live": {"live": {"double": "arithmetic"}},
        "stub": {"tools": {"double": "stub:7"}},
        "sandbox": {"tools": {"double": ToolRule("sandbox", sandbox=lambda x: x + 1)}},
        "human": {"tools": {"double": "human"}, "ask": lambda question: asked.append(question) or "forty"},
    }[how]
    new = fork(run_id, helper, from_step=3, store=store, **more).candidates[0]
    step = next(s for s in load_steps(store.recording(new.id)) if s.kind == "tool")
    assert step.source == how
    assert step.output == {"live": 42, "stub": 7, "sandbox": 22, "human": "forty"}[how]
    assert json.loads(client.sent[-1]["messages"][-1]["content"]) == step.output
    assert new.counts.as_dict()[how] == 1
    assert ran == (["double 21"] if how == "live" else [])
    assert new.label == ("faithful" if how == "live" else "hypothetical")
    assert [(q.tool, q.arguments, q.because) for q in asked] == ([("double", {"x": 21}, "policy")] if asked else [])


@pytest.mark.parametrize("how", ["sandbox", "human", "human on a miss"])
def test_what_stands_in_for_a_tool_and_calls_that_tool_is_answered_from_the_recording(store: MemoryStore, how: str):
    run_id = record(store, helper, "q", script=[("double", {"x": 21}), "done"])
    ran.clear()

    def around(x: Any) -> Any:
        return double(21) + 1 if x == 22 else double(x)

    rule = ToolRule("sandbox", sandbox=around)
    client.script = Script(("double", {"x": 22}), ("double", {"x": 23}), "done")
    if how == "sandbox":
        wishes: dict[str, Any] = {"tools": {"double": rule}}
    else:
        asked = {"tools": {"double": ToolRule("human")}} if how == "human" else {"on_miss": "human"}
        wishes = {**asked, "ask": lambda question: around(question.arguments["x"])}
    done = fork(run_id, helper, from_step=3, store=store, **wishes).candidates[0]
    steps = [step for step in load_steps(store.recording(done.id)) if step.name == "double"]
    mine = "sandbox" if how == "sandbox" else "human"
    assert [(step.source, step.output) for step in steps[:2]] == [("cassette", 42), (mine, 43)]
    assert [step.source for step in steps[2:]] == ["miss", mine]
    assert "inside of what stands in for a tool" in str(steps[2].error)
    assert done.status == "ok"
    assert not ran


def test_a_failing_sandbox_is_a_tool_error(store: MemoryStore):
    run_id = record(store, helper, "hi", script=["done"])
    client.script = Script(("double", {"x": 1}), "ok")

    def broken(x: int) -> int:
        raise KeyError("nope")

    new = fork(
        run_id, helper, from_step=3, store=store, tools={"double": ToolRule("sandbox", sandbox=broken)}
    ).candidates[0]
    step = next(s for s in load_steps(store.recording(new.id)) if s.kind == "tool")
    assert (step.source, step.error) == ("sandbox", "KeyError: 'nope'")
    assert new.status == "ok"


@pytest.mark.parametrize("listed", [Allow("please", read=True), Allow("")])
def test_a_write_is_refused_live_when_it_is_called_too(store: MemoryStore, listed: Allow):
    run_id = record(store, helper, "hi", script=["done"])  # refund was never recorded: only its declaration tells
    client.script = Script(("refund", {"order": "o9"}), "ok")
    with pytest.raises(ForkRefused) as refused:
        fork(run_id, helper, from_step=3, store=store, live={"refund": listed})
    assert refused.value.reason in ("live_write", "live_no_reason")
    assert ran == []


def test_misses_by_policy(store: MemoryStore):
    run_id = record(store, helper, "hi", script=[("look", {"k": "A"}), "done"])
    client.script = Script([("look", {"k": "B"}), ("look", {"k": "C"})], "never")
    aborted = fork(run_id, helper, from_step=3, store=store, on_miss="abort").candidates[0]
    assert (aborted.status, aborted.counts.miss, aborted.step_count) == ("error", 1, 5)
    assert aborted.error is not None
    assert "CassetteMiss" in aborted.error
    assert len(client.sent) == 1

    client.script = Script(("look", {"k": "B"}), "fine")
    human = fork(run_id, helper, from_step=3, store=store, on_miss="human", ask=lambda q: {"v": q.nearest}).candidates[
        0
    ]
    step = next(s for s in load_steps(store.recording(human.id)) if s.kind == "tool")
    assert (step.source, human.counts.human, human.counts.miss) == ("human", 1, 0)
    assert "k changed" in str(step.output)


def test_max_steps_counts_model_calls_of_the_new_part(store: MemoryStore):
    run_id = record(store, helper, "hi")
    client.script = Script(*[("look", {"k": "A"})] * 9)
    new = fork(run_id, helper, from_step=8, store=store, max_steps=2).candidates[0]
    last = load_steps(store.recording(new.id))[-1]
    assert (new.status, last.kind, last.name, last.status) == ("error", "other", "max_steps", "error")
    assert len(client.sent) == 2
    assert new.step_count == 8 + 2 * 2 + 1


def test_an_agent_that_swallows_the_limit_does_not_get_further(store: MemoryStore):
    @agent(name="stubborn")
    def stubborn() -> str:
        for _ in range(9):
            try:
                client.create(model="m", messages=[])
            except LimitReached:
                continue
        return "fine"

    run_id = record(store, stubborn, script=["x"] * 9)
    client.script = Script(*["y"] * 9)
    new = fork(run_id, stubborn, from_step=1, store=store, max_steps=3).candidates[0]
    assert (new.status, len(client.sent)) == ("error", 3)


@pytest.mark.parametrize(("limit", "value"), [("max_tokens", 20), ("max_seconds", 0.0)])
def test_other_limits(store: MemoryStore, limit: str, value: Any):
    run_id = record(store, helper, "hi")
    client.script = Script(*[("look", {"k": "A"})] * 9)
    new = fork(run_id, helper, from_step=8, store=store, limits=Limits(**{limit: value})).candidates[0]
    assert new.status == "error"
    assert store.steps(new.id)[-1].name == limit
    assert len(client.sent) == {"max_tokens": 2, "max_seconds": 0}[limit]


# ---------------------------------------------------------------- the code before N


def changed_prompt(question: str, system: str = "Be BRIEF.") -> str:
    return helper.__wrapped__(question, system)  # type: ignore[attr-defined]


def asks_less(question: str, system: str = "") -> str:
    return "nothing"


def fails_early(question: str, system: str = "") -> str:
    now()
    raise RuntimeError("early")


def asks_another(question: str, system: str = "Be brief.") -> str:
    now()
    draw()
    draw()
    return helper.__wrapped__(question, system)  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", [changed_prompt, asks_less, fails_early, asks_another])
def test_code_that_diverges_before_n_is_refused(store: MemoryStore, code: Any):
    run_id = record(store, helper, "hi")
    before = len(store.runs())
    with pytest.raises(ForkRefused) as refused:
        fork(run_id, agent(name="helper")(code), from_step=5, store=store)
    assert refused.value.reason == "diverges_before"
    assert "step 5" in str(refused.value)
    assert len(store.runs()) == before
    assert client.sent == []


def test_changed_code_may_change_what_the_model_is_asked_before_n(store: MemoryStore):
    run_id = record(store, helper, "hi")
    client.script = Script("fine")
    done = fork(run_id, agent(name="helper")(changed_prompt), from_step=5, store=store, code_changed=True)
    assert client.sent[0]["messages"][0]["content"] == "Be BRIEF."
    assert "1 kept calls have another input than recorded (code changed)" in done.notes
    assert done.candidates[0].status == "ok"
    with pytest.raises(ForkRefused):
        fork(run_id, agent(name="helper")(asks_another), from_step=5, store=store, code_changed=True)


def test_another_agent_is_refused(store: MemoryStore):
    run_id = record(store, helper, "hi")
    with pytest.raises(ForkRefused) as refused:
        fork(run_id, ahelper, from_step=3, store=store)
    assert refused.value.reason == "other_agent"


def test_a_plain_function_is_taken_for_the_recorded_agent(store: MemoryStore):
    def plain(question: str) -> str:
        return client.create(model="m", messages=[{"role": "user", "content": question}])["content"]

    run_id = record(store, agent(plain), "hi", script=["a"])
    client.script = Script("b")
    assert fork(run_id, plain, from_step=1, store=store).candidates[0].status == "ok"


def test_from_the_start_everything_is_new(store: MemoryStore):
    run_id = record(store, helper, "hi", system="Be kind.")
    client.script = Script(("look", {"k": "A"}), "again")
    new = fork(run_id, helper, from_step="start", store=store).candidates[0]
    assert client.sent[0]["messages"][:2] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
    ]
    assert (new.forked_from_step, new.counts.cassette, new.counts.reused, new.label) == (None, 1, 0, "faithful")
    assert new.parent_run_id == run_id
    assert ran == []
    with pytest.raises(ForkRefused) as refused:
        fork(run_id, from_step="start", store=store)
    assert refused.value.reason == "no_code"


def test_overrides_from_the_start_apply_to_the_first_request(store: MemoryStore):
    run_id = record(store, helper, "hi")
    client.script = Script("x")
    new = fork(run_id, helper, from_step="start", store=store, system_prompt="New.").candidates[0]
    assert client.sent[0]["messages"][0]["content"] == "New."
    assert [o["path"] for o in new.overrides] == ["messages[0].content"]


# ---------------------------------------------------------------- overrides in own code


@agent(name="team")
def team(question: str) -> str:
    plan = client.create(
        model="m", messages=[{"role": "system", "content": "Plan."}, {"role": "user", "content": question}]
    )
    review = critic(plan["content"])
    return client.create(
        model="m", messages=[{"role": "system", "content": "Plan."}, {"role": "user", "content": question + review}]
    )["content"]


@agent(name="critic")
def critic(text: str) -> str:
    check("has text", bool(text))
    return client.create(
        model="m", messages=[{"role": "system", "content": "Criticise."}, {"role": "user", "content": text}]
    )["content"]


def test_a_sub_agents_prompt_is_left_alone(store: MemoryStore):
    run_id = record(store, team, "q", script=["plan", "meh", "final"])
    kinds = [s.kind for s in store.steps(run_id)]
    assert kinds == ["agent", "llm", "agent", "check", "llm", "llm"]
    client.script = Script("plan", "meh", "final")
    fork(run_id, team, from_step=1, store=store, system_prompt="X")
    assert [body["messages"][0]["content"] for body in client.sent] == ["X", "Criticise.", "X"]


def test_a_fork_inside_a_nested_agent(store: MemoryStore):
    run_id = record(store, team, "q", script=["plan", "meh", "final"])
    client.script = Script("great", "final 2")
    new = fork(run_id, team, from_step=4, store=store, system_prompt="Praise.").candidates[0]
    assert [body["messages"][0]["content"] for body in client.sent] == ["Praise.", "Plan."]
    steps = load_steps(store.recording(new.id))
    assert [(s.kind, s.parent_idx, s.status) for s in steps] == [
        ("agent", None, "ok"),
        ("llm", 0, "ok"),
        ("agent", 0, "ok"),
        ("check", 2, "ok"),
        ("llm", 2, "ok"),
        ("llm", 0, "ok"),
    ]
    assert steps[2].output == "great"
    assert steps[0].output == "final 2"


def test_a_message_edit_applies_where_index_and_content_match(store: MemoryStore):
    run_id = record(store, helper, "hi", script=[("look", {"k": "A"}), ("look", {"k": "A"}), "done"])
    client.script = Script(("look", {"k": "A"}), "fine")
    edits = (MessageEdit(1, "set", {"role": "user", "content": "hello"}),)
    fork(run_id, helper, from_step=5, store=store, messages=edits)
    assert [body["messages"][1]["content"] for body in client.sent] == ["hello", "hello"]


def test_a_model_override_names_the_step(store: MemoryStore):
    run_id = record(store, helper, "hi")
    client.script = Script("x")
    new = fork(run_id, helper, from_step=8, store=store, model="large-2").candidates[0]
    last = store.steps(new.id)[-1]
    assert (last.name, last.model) == ("chat large-2", "large-2")
    assert client.sent[0]["model"] == "large-2"


def test_a_client_that_cannot_send_a_changed_request_is_said(store: MemoryStore, monkeypatch: pytest.MonkeyPatch):
    run_id = record(store, helper, "hi")
    original = client._call
    monkeypatch.setattr(client, "_call", lambda body, resend: original(body, None))  # type: ignore[arg-type]
    with pytest.raises(ForkRefused) as refused:
        fork(run_id, helper, from_step=3, store=store, temperature=1.0)
    assert refused.value.reason == "no_resend"
    client.script = Script("unchanged is fine")
    assert fork(run_id, helper, from_step=3, store=store).candidates[0].status == "ok"


def test_a_fork_of_a_fork_keeps_the_changes_it_inherits(store: MemoryStore):
    run_id = record(store, helper, "hi")
    client.script = Script(("look", {"k": "A"}), "Y")
    child = fork(run_id, helper, from_step=5, store=store, system_prompt="Y.").candidates[0]
    client.sent.clear()
    client.script = Script("Y2")
    grandchild = fork(child.id, helper, from_step=7, store=store, temperature=0.9).candidates[0]
    assert [(b["messages"][0]["content"], b["temperature"]) for b in client.sent] == [("Y.", 0.9)]
    assert [o["path"] for o in grandchild.overrides] == ["temperature"]
    assert grandchild.parent_run_id == child.id


def test_reads_and_state_of_the_new_part_are_real(store: MemoryStore):
    @agent(name="reader")
    def reader() -> str:
        first = client.create(model="m", messages=[])
        state("phase", {"is": first["content"]})
        docs = retrieve("wiki", first["content"], lambda *_, **__: [{"id": "d1"}])
        return f"{docs} {now().year}"

    run_id = record(store, reader, script=["a"])
    client.script = Script("a")
    same = fork(run_id, reader, from_step=1, store=store).candidates[0]
    sources = {s.kind: s.source for s in store.steps(same.id)}
    assert sources == {"agent": "live", "llm": "live", "state": "live", "retrieval": "cassette", "clock": "live"}
    client.script = Script("b")
    other = fork(run_id, reader, from_step=1, store=store).candidates[0]
    assert other.status == "error"  # a retrieval that was never recorded is a miss, not a look at the world
    assert {s.kind: s.source for s in store.steps(other.id)}["retrieval"] == "miss"


# ---------------------------------------------------------------- refusals


def test_places_where_no_fork_can_start(store: MemoryStore):
    run_id = record(store, helper, "hi")
    for step, reason in ((99, "no_step"), (-1, "no_step"), (0, "not_llm"), (1, "not_llm"), (4, "not_llm")):
        for code in (helper, None):
            with pytest.raises(ForkRefused) as refused:
                fork(run_id, code, from_step=step, store=store)
            assert refused.value.reason == reason
            assert f"step {step}" in str(refused.value)
    with pytest.raises(ForkRefused, match="the nearest are 3, 5"):
        fork(run_id, from_step=4, store=store)


def test_a_model_call_inside_a_tool_is_no_place_for_own_code(store: MemoryStore):
    @tool(effect="read")
    def ask_model(q: str) -> str:
        return client.create(model="inner", messages=[{"role": "user", "content": q}])["content"]

    @agent(name="outer")
    def outer() -> str:
        return ask_model("x")

    run_id = record(store, outer, script=["inner answer"])
    assert [s.kind for s in store.steps(run_id)] == ["agent", "tool", "llm"]
    with pytest.raises(ForkRefused) as refused:
        fork(run_id, outer, from_step=2, store=store)
    assert refused.value.reason == "inside_a_tool"


def test_the_generic_loop_goes_on_from_own_code(store: MemoryStore):
    run_id = record(store, helper, "hi")
    model = Script(("refund", {"order": "o1"}), "ok")
    done = fork(run_id, from_step=5, store=store, provider=from_llm_call(model))
    new = done.candidates[0]
    assert shape(store, new.id)[5:] == [
        (5, "llm", "chat small-1", "live"),
        (6, "tool", "refund", "cassette"),
        (7, "llm", "chat small-1", "live"),
    ]
    assert new.engine == "generic"
    assert all(s.parent_idx == 0 for s in store.steps(new.id)[1:])
    assert (
        model.asked[1]["messages"][-1]["content"] == '"refunded 5 for o1"'
    )  # as `helper` writes it: texts in quotes too
    assert ran == []


def test_a_wrong_number_of_repeats_or_an_unknown_name(store: MemoryStore):
    run_id = record(store, helper, "hi")
    for repeat in (0, 4):
        with pytest.raises(UsageError, match="1 to 3"):
            fork(run_id, helper, from_step=3, store=store, repeat=repeat)
    with pytest.raises(UsageError, match="did you mean 'temperature'"):
        fork(run_id, helper, from_step=3, store=store, temprature=1)


def test_repeats_run_controls_beside_candidates(store: MemoryStore):
    run_id = record(store, helper, "hi")
    client.script = Script(*["a", "b"] * 2)
    done = fork(run_id, helper, from_step=8, store=store, repeat=2, system_prompt="X")
    assert [run.arm for run in done.runs] == ["candidate", "candidate", "control", "control"]
    assert [b["messages"][0]["content"] for b in client.sent] == ["Be brief.", "X", "Be brief.", "X"]
    assert [len(run.overrides) for run in done.runs] == [1, 1, 0, 0]
    summary = done.summary()
    assert summary["parent"] == run_id
    assert [len(arm) for arm in summary["arms"].values()] == [1, 2, 2]  # type: ignore[union-attr,arg-type]
    client.script = Script("a", "b")
    alone = fork(run_id, helper, from_step=8, store=store, repeat=2, control=False)
    assert (len(alone.candidates), len(alone.controls)) == (2, 0)


def test_require_faithful(store: MemoryStore):
    run_id = record(store, helper, "hi")
    with pytest.raises(ForkRefused) as refused:
        fork(run_id, helper, from_step=8, store=store, require_faithful=True, tools={"look": "stub"})
    assert refused.value.reason == "not_faithful"
    client.script = Script(("look", {"k": "Z"}), "x")
    with pytest.raises(ForkRefused, match="hypothetical from step 9") as kept:
        fork(run_id, helper, from_step=8, store=store, require_faithful=True)
    assert "the run is kept: agentloupe show" in str(kept.value)
    client.script = Script("fine")
    assert fork(run_id, helper, from_step=8, store=store, require_faithful=True).candidates[0].label is not None


# ---------------------------------------------------------------- changed results of tools


def test_a_kept_result_is_changed_for_the_code(store: MemoryStore):
    run_id = record(store, helper, "hi")
    client.script = Script(("look", {"k": "A"}), "fine")
    done = fork(run_id, helper, from_step=5, store=store, tool_results={4: {"v": "other"}})
    new = done.candidates[0]
    assert json.loads(client.sent[0]["messages"][-1]["content"]) == {"v": "other"}
    steps = load_steps(store.recording(new.id))
    assert steps[4].output == {"v": "other"}
    assert (new.label, new.hypothetical_from) == ("hypothetical", 4)
    assert [o["path"] for o in new.overrides] == ["tool_results.4"]
    assert load_steps(store.recording(run_id))[4].output == {"v": "a"}
    assert replay(new.id, helper, store=store).verdict == "pass"


def test_an_error_of_a_kept_tool_becomes_a_result(store: MemoryStore):
    run_id = record(store, helper, "hi")
    client.script = Script("fine")
    new = fork(run_id, helper, from_step=8, store=store, tool_results={7: "it worked"}).candidates[0]
    step = load_steps(store.recording(new.id))[7]
    assert (step.output, step.error, step.status) == ("it worked", None, "ok")
    assert json.loads(client.sent[0]["messages"][-1]["content"]) == "it worked"


def test_a_result_behind_n_is_changed_in_the_cassette(store: MemoryStore):
    run_id = record(store, helper, "hi")
    client.script = Script([("refund", {"order": "o1"})], "fine")
    new = fork(run_id, helper, from_step=5, store=store, tool_results={6: "not refunded"}).candidates[0]
    step = load_steps(store.recording(new.id))[6]
    assert (step.output, step.source) == ("not refunded", "stub")
    assert (new.counts.stub, new.counts.cassette) == (1, 0)
    assert ran == []


@pytest.mark.parametrize("idx", [0, 1, 3, 99, -1])
def test_only_results_of_tools_can_be_changed(store: MemoryStore, idx: int):
    run_id = record(store, helper, "hi")
    with pytest.raises(UsageError, match="tool steps are 4, 6, 7"):
        fork(run_id, helper, from_step=5, store=store, tool_results={idx: 1})


def test_the_generic_loop_changes_the_message_that_carries_the_result(store: MemoryStore):
    run_id = record(store, helper, "hi")
    model = Script("x")
    done = fork(run_id, from_step=5, store=store, provider=from_llm_call(model), tool_results={4: {"v": "other"}})
    assert json.loads(model.asked[0]["messages"][-1]["content"]) == {"v": "other"}
    assert load_steps(store.recording(done.candidates[0].id))[4].output == {"v": "other"}
    assert replay(done.candidates[0].id, store=store).verdict == "pass"


# ---------------------------------------------------------------- forks of own code replay


@pytest.mark.parametrize("more", [{}, {"system_prompt": "X"}, {"temperature": 0.7}, {"model": "large"}])
@pytest.mark.parametrize("step", [3, 5, 8, "start"])
def test_forks_of_own_code_replay(store: MemoryStore, step: Any, more: dict[str, Any]):
    run_id = record(store, helper, "hi")
    client.script = Script(("look", {"k": "A"}), ("look", {"k": "new"}), "fine")
    new = fork(run_id, helper, from_step=step, store=store, **more).candidates[0]
    report = replay(new.id, helper, store=store)
    assert report.verdict == "pass", report.text()


def test_a_fork_of_a_fork_replays(store: MemoryStore):
    run_id = record(store, helper, "hi")
    client.script = Script(("look", {"k": "A"}), "Y")
    child = fork(run_id, helper, from_step=5, store=store, system_prompt="Y.").candidates[0]
    client.script = Script("Y2")
    grandchild = fork(child.id, helper, from_step=7, store=store, temperature=0.9).candidates[0]
    report = replay(grandchild.id, helper, store=store)
    assert report.verdict == "pass", report.text()


# ---------------------------------------------------------------- named before it is made


def test_a_fork_is_named_at_once_and_made_later(store: MemoryStore):
    run_id = record(store, helper, "hi")
    wishes = ForkWishes(repeat=2, overrides=Overrides(temperature=0.9))
    pending = prepare_fork(run_id, helper, from_step=8, store=store, wishes=wishes)
    assert pending.arms == ("control", "candidate", "control", "candidate")
    assert [store.run(new) for new in pending.ids] == [None] * 4
    client.script = Script("a", "b", "c", "d")
    done = pending.run()
    assert [run.id for run in done.candidates] == [pending.ids[1], pending.ids[3]]
    assert [run.id for run in done.controls] == [pending.ids[0], pending.ids[2]]


def test_what_a_header_tells_is_refused_at_once(store: MemoryStore):
    run_id = record(store, helper, "hi")
    for step, reason in ((99, "no_step"), (-1, "no_step"), (0, "not_llm"), (4, "not_llm")):
        with pytest.raises(ForkRefused) as refused:
            prepare_fork(run_id, from_step=step, store=store)
        assert refused.value.reason == reason
    with pytest.raises(RunNotFound):
        prepare_fork("nobody", from_step=0, store=store)
    with pytest.raises(UsageError):
        prepare_fork(run_id, from_step=3, store=store, wishes=ForkWishes(repeat=4))


# ---------------------------------------------------------------- parents that are not as they should be


def test_a_damaged_parent_is_damaged_not_forked(store: MemoryStore):
    run_id = record(store, helper, "hi")
    kept = store._kept(run_id)
    whole = list(kept.events)
    for at in (2, len(whole) // 2):
        kept.events[at] = replace(whole[at], recorded_at="2020-01-01T00:00:00.000000Z")
        with pytest.raises(Corrupt, match="not whole"):
            fork(run_id, helper, from_step=5, store=store)
        kept.events[:] = whole
    digest = load_steps(store.recording(run_id))[5].input_digest
    assert digest is not None
    good = store._bodies[digest]
    store._bodies[digest] = good + b" "
    with pytest.raises(Damaged):
        fork(run_id, helper, from_step=5, store=store)
    store._bodies[digest] = good
    client.script = Script("fine")
    assert fork(run_id, helper, from_step=5, store=store).candidates[0].status == "ok"


def test_a_parent_that_has_not_ended_can_be_forked(store: MemoryStore):
    run_id = record(store, helper, "hi")
    events = [e for e in store.recording(run_id).events if e.type != "run.finished"]
    other = MemoryStore()
    other.insert(run_id, events, store.get, Projector)
    other._bodies.update(store._bodies)
    client.script = Script("fine")
    new = fork(run_id, helper, from_step=5, store=other).candidates[0]
    assert (new.status, new.step_count) == ("ok", 6)


def test_a_run_whose_tools_ran_outside_is_not_run_again(store: MemoryStore):
    @agent(name="loose")
    def loose() -> str:
        first = client.create(model="m", messages=[])
        messages = [first, {"role": "tool", "tool_call_id": "call_0_0", "content": "42"}]
        return client.create(model="m", messages=messages)["content"]

    run_id = record(store, loose, script=[("outside", {}), "done"])
    run = store.run(run_id)
    assert run is not None
    assert run.coverage == "control_flow"
    with pytest.raises(ForkRefused) as refused:
        fork(run_id, loose, from_step=3, store=store)
    assert refused.value.reason == "control_flow"
    assert "decorate these tools with @loupe.tool: outside" in str(refused.value)
    done = fork(run_id, from_step=3, store=store, provider=from_llm_call(Script("generic works")))
    assert done.candidates[0].status == "ok"
    again = from_llm_call(Script(("outside", {}), "the recorded message answers"))
    asked = fork(run_id, from_step=1, store=store, provider=again).candidates[0]
    assert (asked.status, asked.counts.cassette, asked.counts.miss) == ("ok", 1, 0)


@pytest.mark.parametrize(
    ("tools", "live", "refused"),
    [
        ([{"type": "web_search_preview"}], {}, False),
        ([{"type": "code_interpreter"}], {}, True),
        ([{"type": "mcp", "server_url": "x"}], {"mcp": "a test server"}, False),
        ([{"type": "something_new"}], {}, True),
    ],
)
def test_tools_that_run_at_the_provider(store: MemoryStore, tools: list[Any], live: dict[str, str], refused: bool):
    run_loop(Script("x"), model="m", question="q", tool_schemas=tools, store=store, run_id="r")
    model = Script("y")
    if refused:
        with pytest.raises(ForkRefused) as found:
            fork("r", from_step=0, store=store, provider=from_llm_call(model), live=live)
        assert (found.value.reason, model.asked) == ("hosted_tool", [])
        return
    done = fork("r", from_step=0, store=store, provider=from_llm_call(model), live=live)
    assert any(str(tools[0]["type"]) in note for note in done.notes)


@pytest.mark.parametrize("rule", [{"tools": {"lok": "stub"}}, {"live": {"lok": "a slip"}}])
def test_a_rule_for_a_tool_that_is_nowhere_is_a_wrong_call(store: MemoryStore, rule: dict[str, Any]):
    offered: list[Any] = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    run_loop(Script("x"), model="m", question="q", tool_schemas=offered, store=store, run_id="r")
    with pytest.raises(UsageError, match="no tool 'lok' in this run; it has: look") as found:
        fork("r", from_step=0, store=store, provider=from_llm_call(Script("y")), **rule)
    assert found.value.hint == "did you mean 'look'?"


def test_a_rule_may_name_a_tool_that_was_never_called(store: MemoryStore):
    offered: list[Any] = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    run_loop(Script("x"), model="m", question="q", tool_schemas=offered, store=store, run_id="r")
    model = from_llm_call(Script(("look", {}), "y"))
    assert fork("r", from_step=0, store=store, provider=model, tools={"look": "stub"}).candidates[0].counts.stub == 1
    run_id = record(store, helper, "hi", script=["done"])
    declared = fork(run_id, helper, from_step=3, store=store, tools={"refund": "stub"})  # its code has it
    assert declared.candidates[0].status == "ok"
    with pytest.raises(UsageError, match="no tool 'refnd'"):
        fork(run_id, helper, from_step=3, store=store, tools={"refnd": "stub"})


def test_live_tools_without_their_reasons_are_a_wrong_call(store: MemoryStore):
    run_loop(Script("x"), model="m", question="q", store=store, run_id="r")
    with pytest.raises(UsageError, match="live tools need their reasons"):
        fork("r", from_step=0, store=store, provider=from_llm_call(Script("y")), live=["calculate"])


def test_steps_whose_state_the_provider_holds_are_labelled(store: MemoryStore):
    assert request_facts({"model": "m", "previous_response_id": "resp_1"})["server_held"] is True
    assert request_facts({"model": "m", "conversation": "c"})["server_held"] is True
    assert request_facts({"model": "m", "tools": [{"type": "web_search_preview"}]})["server_held"] is True
    assert "server_held" not in request_facts({"model": "m", "tools": [{"type": "function", "function": {}}]})


@pytest.mark.parametrize("engine", ["own", "generic"])
def test_an_approval_in_the_parent_is_none_in_the_fork(store: MemoryStore, engine: str):
    paid = ("refund", {"order": "o1"})
    run_id = record(store, helper, "q", script=[paid, "done"])
    (allowed,) = [e for e in store.recording(run_id).events if e.type == "tool.allowed"]
    assert allowed.attrs["decision"] == "allowed"
    again = Script(paid, ("refund", {"order": "o2"}), "done")
    client.script = again
    if engine == "own":
        new = fork(run_id, helper, from_step=3, store=store).candidates[0]
    else:
        new = fork(run_id, from_step=3, store=store, provider=from_llm_call(again)).candidates[0]
    mine = [e for e in store.recording(new.id).events if e.name == "refund" and e.copied_hash is None]
    assert [e.attrs["decision"] for e in mine if e.type == "tool.allowed"] == ["cassette", "miss"]
    assert {e.type for e in mine} == {"tool.allowed", "tool.finished", "tool.failed"}, "neither an intent nor a start"
    assert ran == []
    answered: dict[str, Any] = {
        "tools": {"refund": "human"},
        "ask": lambda question: f"approved {question.arguments['order']}",
    }
    client.script = Script(("refund", {"order": "o2"}), "done")
    asked = fork(run_id, helper, from_step=3, store=store, **answered).candidates[0]
    client.script = Script(("refund", {"order": "o3"}), "done")
    (other,) = fork(asked.id, helper, from_step=3, store=store).candidates
    assert (other.counts.human, other.counts.miss) == (0, 1), "what a person said to another call is no answer"


def test_a_limit_of_cost(store: MemoryStore):
    run_id = record(store, helper, "hi")
    client.script = Script(*[("look", {"k": "A"})] * 9)
    new = fork(
        run_id, helper, from_step=8, store=store, price=lambda _: Decimal("0.4"), max_cost=Decimal(1)
    ).candidates[0]
    assert (store.steps(new.id)[-1].name, len(client.sent)) == ("max_cost", 3)
    run_loop(Script(("look", {"k": "A"}), "x"), OWN, model="m", question="q", store=store, run_id="g")
    model = Script(*[("look", {"k": "A"})] * 9)
    more: dict[str, Any] = {"price": lambda _: Decimal("0.4"), "max_cost": Decimal(1)}
    generic = fork("g", from_step=0, store=store, provider=from_llm_call(model), **more).candidates[0]
    assert (store.steps(generic.id)[-1].name, len(model.asked)) == ("max_cost", 3)


def test_without_a_model_the_generic_loop_is_refused_before_a_run_is_made(
    store: MemoryStore, workdir: Any, monkeypatch: pytest.MonkeyPatch
):
    run_id = record(store, helper, "hi")
    before = len(store.runs())
    with pytest.raises(ForkRefused) as refused:
        fork(run_id, from_step=5, store=store)
    assert (refused.value.reason, len(store.runs())) == ("no_model", before)


def test_a_secret_stays_out_of_a_fork_and_still_reaches_the_model(store: MemoryStore):
    secret = "sk-" + "a1B2c3D4" * 6

    @agent(name="keyed")
    def keyed() -> str:
        messages: list[Any] = [{"role": "system", "content": "S"}, {"role": "user", "content": f"my key is {secret}"}]
        first = client.create(model="m", messages=messages)
        return client.create(model="m", messages=[*messages, first, *_answers(first)])["content"]

    run_id = record(store, keyed, script=[("look", {"k": secret}), "done"])
    client.script = Script(("look", {"k": secret}), "done")
    done = fork(run_id, keyed, from_step=1, store=store, system_prompt="Z")
    assert [body["messages"][0]["content"] for body in client.sent] == ["Z", "Z"]
    assert all(secret in body["messages"][1]["content"] for body in client.sent)
    assert done.candidates[0].counts.cassette == 1
    assert secret.encode() not in b"".join(store._bodies.values())
    assert any("placeholders of removed secrets" in note for note in done.notes)


def test_arguments_whose_secrets_were_removed_are_given_as_placeholders(store: MemoryStore):
    run_id = record(store, helper, "my key is sk-" + "a1B2c3D4" * 6, script=["done"])
    client.script = Script("done")
    fork(run_id, helper, from_step=3, store=store)
    assert client.sent[0]["messages"][1]["content"] == "my key is [removed:key]"


@pytest.mark.parametrize(("limit", "value"), [("max_steps", 2), ("max_tokens", 20), ("max_seconds", 0.0)])
def test_a_fork_that_a_limit_stopped_replays_to_the_same_end(store: MemoryStore, limit: str, value: Any):
    run_id = record(store, helper, "hi")
    client.script = Script(*[("look", {"k": "A"})] * 9)
    new = fork(run_id, helper, from_step=8, store=store, limits=Limits(**{limit: value})).candidates[0]
    sent = len(client.sent)
    report = replay(new.id, helper, store=store)
    assert report.verdict == "pass", report.text()
    assert report.consumed == report.events
    assert len(client.sent) == sent


def test_an_agent_that_swallows_the_limit_replays_to_the_same_end_and_no_further(store: MemoryStore):
    def stubborn_with(more: int) -> Any:
        @agent(name="stubborn")
        def stubborn() -> str:
            for n in range(9):
                try:
                    client.create(model="m", messages=[{"role": "user", "content": str(n)}])
                except LimitReached:
                    for _ in range(more):
                        with contextlib.suppress(LimitReached):
                            client.create(model="m", messages=[])
            return "fine"

        return stubborn

    run_id = record(store, stubborn_with(0), script=["x"] * 9)
    client.script = Script(*["y"] * 9)
    new = fork(run_id, stubborn_with(0), from_step=1, store=store, max_steps=3).candidates[0]
    assert [replay(new.id, stubborn_with(more), store=store).verdict for more in (0, 2)] == ["pass", "pass"]
    early = replay(new.id, agent(name="stubborn")(lambda: "fine"), store=store)
    assert early.divergence is not None
    assert early.divergence.kind == "unconsumed"
