"""T13: by default settings an agent that stops early, asks once more or changes one character is told so."""

from __future__ import annotations

import pytest

from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.replaying import replay
from agentloupe.words.canonical import Json
from tests.tapes import Program, ask, record_in, use

STEPS = (ask("hello"), use("lookup", {"n": 1}, id=4), ask("bye"))


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def program(request: pytest.FixtureRequest) -> Program:
    return Program(STEPS, asynchronous=request.param, result=lambda got: "the same")


def test_stopping_early(program: Program) -> None:
    recording = program.recorded()
    report = program.changed(STEPS[:2]).replayed(recording)
    assert report.divergence is not None
    assert (report.exit_code, report.divergence.kind) == (1, "unconsumed")


def test_asking_once_more(program: Program) -> None:
    recording = program.recorded()
    report = program.changed([*STEPS, ask("bye")]).replayed(recording)
    assert report.divergence is not None
    assert (report.exit_code, report.divergence.kind) == (1, "extra")


def test_one_character_of_the_system_prompt(program: Program) -> None:
    recording = program.recorded()
    first = STEPS[0]
    assert isinstance(first.input, dict)
    messages: list[Json] = [{"role": "system", "content": "Be brief!"}, {"role": "user", "content": "hello"}]
    edited = type(first)(first.kind, first.name, {**first.input, "messages": messages}, first.answer)
    report = program.changed([edited, *STEPS[1:]]).replayed(recording)
    found = report.divergence
    assert found is not None
    assert (report.exit_code, found.kind, found.sequence, found.step) == (1, "input_changed", 2, 1)
    assert "messages[0].content: Be [-brief.-]{+brief!+}" in report.text()
    assert any("system prompt" in hint for hint in found.hints)


def test_the_same_with_functions_as_users_write_them() -> None:
    import agentloupe as loupe

    sent: list[str] = []

    @loupe.tool(effect="write")
    def send(to: str, text: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    def make(times: int, text: str) -> object:
        @loupe.agent(name="mailer")
        def mailer(to: str) -> list[str]:
            return [send(to, text) for _ in range(times)]

        return mailer

    recording = record_in(MemoryStore(), make(2, "hi"), "ops")  # type: ignore[arg-type]
    assert sent == ["ops", "ops"]
    found = [replay(recording, make(*how)) for how in ((2, "hi"), (1, "hi"), (3, "hi"), (2, "hi."))]  # type: ignore[arg-type]
    assert [r.divergence.kind if r.divergence else r.verdict for r in found] == [
        "pass",
        "unconsumed",
        "extra",
        "input_changed",
    ]
    assert sent == ["ops", "ops"], "nothing was sent again"
