"""A share of runs that are kept by their profile: who is in, what is kept of the others, and what readers then say."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentloupe as loupe
from agentloupe.engine.verify import verify
from agentloupe.ports import ambient
from agentloupe.ports.settings import load
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.looping import run_loop
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.resuming import resume
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.errors import ConfigError, ForkRefused, ReplayRefused, ResumeRefused, UsageError
from agentloupe.words.event import Event
from agentloupe.words.keeping import in_sample
from tests.canaries import Canaries
from tests.cli.driving import Command
from tests.fork_support import Script

_SCOPES = [f"task-{number}" for number in range(2000)]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def secret() -> Canaries:
    return Canaries()


def _events(run_id: str) -> tuple[Event, ...]:
    return loupe.open_store().recording(run_id).events


def _facts(run_id: str) -> Any:
    """What the run says of its profile and its sample."""
    attrs = _events(run_id)[0].attrs
    return {name: attrs[name] for name in ("profile", "sample", "sampled_out") if name in attrs}


_OUT = {"profile": "digest_only", "sampled_out": True}


# --- who is in --------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.floats(0, 1), st.text())
def test_a_larger_share_keeps_what_a_smaller_one_kept(one: float, other: float, scope: str) -> None:
    smaller, larger = sorted((one, other))
    assert in_sample(larger, scope) or not in_sample(smaller, scope)
    assert in_sample(1.0, scope)
    assert not in_sample(0.0, scope)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_of_many_tasks_about_that_share_is_in(share: float) -> None:
    found = sum(in_sample(share, scope) for scope in _SCOPES)
    assert abs(found / len(_SCOPES) - share) < 0.03


def test_runs_of_one_task_are_in_or_out_together_and_tasks_differ(workdir: Path) -> None:
    seen: dict[str, set[bool]] = {}
    for task in [f"order-{number}" for number in range(12)]:
        for _ in range(3):
            with loupe.recording("worker", task_id=task, sample=0.5) as block:
                pass
            seen.setdefault(task, set()).add("sampled_out" in _facts(block.run_id))
    assert all(len(one) == 1 for one in seen.values())
    assert {next(iter(one)) for one in seen.values()} == {True, False}


def test_a_run_without_a_task_is_told_by_its_own_id(workdir: Path) -> None:
    for _ in range(12):
        with loupe.recording("worker", sample=0.5) as block:
            pass
        assert ("sampled_out" in _facts(block.run_id)) == (not in_sample(0.5, block.run_id))


def test_a_nested_agent_follows_its_outer_run_whatever_it_says_itself(workdir: Path, secret: Canaries) -> None:
    @loupe.agent(sample=1)
    def inner(text: str) -> str:
        return secret.word("result of an inner agent")

    @loupe.agent(sample=0)
    def outer() -> str:
        return inner(secret.word("argument"))

    done = loupe.record(outer)
    assert _facts(done.run_id) == {**_OUT, "sample": 0}
    assert len(loupe.open_store().runs()) == 1
    assert secret.in_folder(workdir) == []


def test_the_programs_own_chance_is_not_asked(workdir: Path) -> None:
    drawn: list[list[float]] = []
    for share in (0.0, 0.5, 1.0):
        random.seed(7)
        before = random.getstate()
        with loupe.recording("draws", sample=share):
            assert random.getstate() == before
            drawn.append([loupe.random() for _ in range(3)])
    assert drawn[0] == drawn[1] == drawn[2]


# --- what is kept of the others ---------------------------------------------------------------------------------------


def _agent(s: Canaries) -> Any:
    @loupe.tool
    def pay(to: str) -> str:
        loupe.receipt("r-1")
        return s.word("result of a write")

    @loupe.tool(effect="read")
    def look(what: str) -> str:
        raise ValueError(s.word("error of a tool"))

    def work(question: str) -> str:
        loupe.state("asking", {"of": s.word("state")})
        try:
            look(s.word("argument"))
        except ValueError:
            pay(s.word("argument of a write"))
        return s.word("result")

    return work


def _recorded(s: Canaries, **said: Any) -> tuple[Event, ...]:
    with loupe.recording("careful", task_id="order-7", **said) as block:
        block.result = _agent(s)(s.word("argument of the agent"))
    return _events(block.run_id)


def test_structure_states_and_effects_stay_as_in_any_run_and_no_value_does(workdir: Path, secret: Canaries) -> None:
    out = _recorded(secret, sample=0)
    assert secret.in_folder(workdir) == []
    bare, full = _recorded(secret, profile="digest_only"), _recorded(secret)
    for other in (bare, full):
        assert [(event.type, event.name, event.lane) for event in out] == [
            (event.type, event.name, event.lane) for event in other
        ]
        assert _of_writes(out) == _of_writes(other)
    assert len(_of_writes(out)) == 4, "allowed, intent, start and outcome"
    assert [event.attrs.get("digest_of_output") for event in out[1:-1]] == [
        event.attrs.get("digest_of_output") for event in bare[1:-1]
    ]


def _of_writes(events: tuple[Event, ...]) -> list[Any]:
    return [
        (event.type, event.attrs.get("idempotency_key"), event.attrs.get("external_id"))
        for event in events
        if event.name == "pay"
    ]


def test_a_run_that_is_in_is_kept_by_its_profile_says_the_share_and_replays(workdir: Path) -> None:
    agent = loupe.agent(name="twice", sample=0.999_999_999)(_twice)
    done = loupe.record(agent, 2)
    assert _facts(done.run_id) == {"sample": 0.999_999_999}
    assert replay(done.run_id, agent).passed
    redacted = loupe.record(loupe.agent(profile="redacted", sample=0.999_999_999)(_twice), 2)
    assert _facts(redacted.run_id) == {"profile": "redacted", "sample": 0.999_999_999}


def _twice(number: int) -> int:
    return 2 * number


def test_a_run_that_ends_in_error_is_in_or_out_like_any_other(workdir: Path, secret: Canaries) -> None:
    with pytest.raises(KeyError), loupe.recording("fails", sample=0) as block:
        raise KeyError(secret.word("error"))
    row = loupe.open_store().run(block.run_id)
    assert row is not None
    assert (row.status, row.error) == ("error", "KeyError")
    assert secret.in_folder(workdir) == []


def test_digests_alone_leave_nothing_to_sample(workdir: Path) -> None:
    done = loupe.record(loupe.agent(profile="digest_only", sample=0)(_twice), 1)
    assert _facts(done.run_id) == {"profile": "digest_only"}


def test_its_digests_are_keyed_where_there_is_a_key_and_without_the_key_nothing_is_kept(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LOUPE_DIGEST_KEY_FILE", "digest.key")
    (workdir / "digest.key").write_text("0123456789abcdef")
    with loupe.recording("r", sample=0) as block:
        loupe.env("HOME_OF_NOBODY")
    env = next(event for event in _events(block.run_id) if event.type == "env.read")
    assert str(env.attrs["digest_of_output"]).startswith("hmac-sha256:")
    assert "digested_by" in _events(block.run_id)[0].attrs
    (workdir / "digest.key").unlink()
    assert loupe.record(loupe.agent(sample=0.5)(_twice), 2).run is None
    assert "digest_key_file" in caplog.text


# --- what readers say -------------------------------------------------------------------------------------------------


def test_it_says_so_wherever_it_is_shown(workdir: Path, command: Command) -> None:
    run_id = loupe.record(loupe.agent(sample=0.25)(_never), 1).run_id
    while in_sample(0.25, run_id):
        run_id = loupe.record(loupe.agent(sample=0.25)(_never), 1).run_id
    store = loupe.open_store()
    row = store.run(run_id)
    assert row is not None
    assert row.coverage == "limited_replay"
    assert row.coverage_notes == ("sampled_out: of values only digests are kept (sample 0.25)",)
    assert "sampled_out: of values only digests are kept" in command("show", run_id).out
    assert "(only digests were kept (sampled_out))" in command("show", run_id).out
    (listed,) = [line for line in command("list").out.splitlines() if line.startswith(run_id)]
    assert "(limited_replay, sampled_out)" in listed
    found = verify(store.recording(run_id))
    assert (found.ok, found.bodies_missing) == (True, 0)
    assert any("only digests were kept (sampled_out)" in note for note in found.notes)


def _never(number: int) -> int:
    return number


def test_an_interrupted_run_says_it_too(workdir: Path) -> None:
    block = loupe.recording("cut", sample=0)
    block.__enter__()
    assert _facts(block.run_id) == {**_OUT, "sample": 0}
    assert _events(block.run_id)[0].attrs["coverage"] == "limited_replay"
    block.__exit__(None, None, None)


def test_replay_fork_and_resume_say_at_once_that_there_are_no_answers_and_the_way_out(
    workdir: Path, command: Command
) -> None:
    began: list[int] = []
    run_id = loupe.record(loupe.agent(sample=0)(_twice), 1).run_id

    def program() -> None:
        began.append(1)

    refused: list[ReplayRefused | ForkRefused | ResumeRefused] = []
    for attempt in (replay, fork, resume):
        with pytest.raises((ReplayRefused, ForkRefused, ResumeRefused)) as no:
            attempt(run_id, program, **({"from_step": "start"} if attempt is fork else {}))  # type: ignore[operator]
        refused.append(no.value)
    assert [one.reason for one in refused] == ["digest_only"] * 3
    assert all("of its values only digests were kept (sampled_out)" in str(one) for one in refused)
    assert all("record the agent again with sample = 1" in str(one.hint) for one in refused[:2])
    assert began == []
    done = command("replay", run_id, "--code", "nowhere:nothing")
    assert (done.code, "sampled_out" in done.err) == (3, True)
    ledger = command("ledger", "export", run_id, "ledger")
    assert (ledger.code, "only digests were kept" in ledger.err) == (3, True)


# --- who decides ------------------------------------------------------------------------------------------------------


def test_code_goes_over_the_agents_line_and_that_over_the_setting(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workdir / "loupe.toml").write_text("sample = 0\n[samples]\nbusy = 1\n")
    assert (load().sample, load().samples) == (0.0, {"busy": 1.0})
    assert _facts(loupe.record(_twice, 1).run_id) == {**_OUT, "sample": 0}
    assert _facts(loupe.record(loupe.agent(name="busy")(_twice), 1).run_id) == {}
    assert _facts(loupe.record(loupe.agent(name="busy", sample=0)(_twice), 1).run_id) == {**_OUT, "sample": 0}
    monkeypatch.setenv("LOUPE_SAMPLE", "1")
    assert _facts(loupe.record(_twice, 1).run_id) == {}


def test_the_command_line_goes_over_all(workdir: Path, command: Command) -> None:
    (workdir / "agent.py").write_text(
        "import agentloupe as loupe\n\n@loupe.agent(sample=1)\ndef agent(q):\n    return q\n\nagent(1)\n"
    )
    assert command("run", "--sample", "0", "--", "python", "agent.py").code == 0
    assert _facts(loupe.open_store().runs()[0].id) == {**_OUT, "sample": 0}
    wrong = command("run", "--sample", "10%", "--", "python", "agent.py")
    assert (wrong.code, "sample '10%' must be a number from 0 to 1" in wrong.err) == (64, True)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), True, "half"])
def test_what_is_no_share_is_an_error_where_it_is_said(share: Any, workdir: Path) -> None:
    with pytest.raises(UsageError, match="must be a number from 0 to 1"):
        loupe.agent(sample=share)
    with pytest.raises(UsageError, match="must be a number from 0 to 1"):
        loupe.recording("x", sample=share)


@pytest.mark.parametrize(
    ("text", "place"), [("sample = 2\n", r"toml:1: sample "), ('[samples]\nbusy = "x"\n', r"toml:2: samples\.busy ")]
)
def test_a_wrong_setting_names_its_line_and_keeps_the_least(
    text: str, place: str, workdir: Path, secret: Canaries
) -> None:
    (workdir / "loupe.toml").write_text(text)
    with pytest.raises(ConfigError, match=f"{place}must be a number from 0 to 1"):
        load()
    loupe.record(lambda text: text, secret.word("argument"))
    assert secret.in_folder(workdir) == []


def test_the_plain_loop_is_sampled_by_the_agents_line(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUPE_SAMPLE", "0")
    kept = run_loop(Script("yes"), model="m", question="q", store=loupe.open_store(), run_id="out")
    assert [step.output for step in kept] == [None]
    assert _facts("out") == {**_OUT, "sample": 0}
    assert "yes" in str(run_loop(Script("yes"), model="m", question="q")[0].output), "what is not stored is given back"


def test_a_recording_for_tests_is_always_in(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentloupe.verbs.testing import Case, check

    monkeypatch.setenv("LOUPE_SAMPLE", "0")
    told = check(Case(path=workdir / "twice.loupe", agent=_twice, arguments=((2,), {}), mode="once"))
    assert told.passed, told.text
    assert (workdir / "twice.loupe").exists()


def test_the_id_that_the_run_got_decides_and_not_one_that_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    is_in, out = (next(s for s in _SCOPES if in_sample(0.5, s) is wanted) for wanted in (True, False))
    ids = iter([is_in, is_in, out])
    monkeypatch.setattr(ambient, "new_run_id", lambda _: next(ids))
    opener = RecordOpener(MemoryStore(), sample=0.5)
    for _ in range(2):
        with ambient.opening_with(opener):
            loupe.agent(name="same")(_twice)(1)
    rows = [session.row() for session in opener.sessions]
    assert [(row.id, row.coverage) for row in rows if row] == [(is_in, "full"), (out, "limited_replay")]
