"""Profiles of recordings: what is kept of values, that the program never notices, and what readers then say."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentloupe as loupe
from agentloupe.engine.compare import Comparison, Summary
from agentloupe.engine.privacy import Rules, scrub
from agentloupe.engine.project import load_steps, project
from agentloupe.engine.redaction import PERSONAL_SHAPES, redacted
from agentloupe.engine.verify import verify
from agentloupe.engine.withholding import Digests
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import Recording
from agentloupe.providers.loopback import HttpReply, HttpRequest, completion, json_reply, serve
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.comparing import compare
from agentloupe.verbs.exchange import export_run, import_file
from agentloupe.verbs.forking import fork
from agentloupe.verbs.looping import run_loop
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.resuming import resume
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.canonical import Json, digest
from agentloupe.words.errors import ForkRefused, ReplayRefused, ResumeRefused, UsageError
from agentloupe.words.keeping import PROFILES, Profile
from tests.canaries import Canaries
from tests.cli.driving import Command
from tests.fork_support import Script
from tests.tapes import Program, ask, use

KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture(params=["plain", "keyed"])
def digest_key(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Without a key, and with one; the file lies outside of what the tests search."""
    if request.param == "plain":
        return None
    (tmp_path / "digest.key").write_text(f"{KEY}\n")
    monkeypatch.setenv("LOUPE_DIGEST_KEY_FILE", str(tmp_path / "digest.key"))
    return KEY


@pytest.fixture
def secret() -> Canaries:
    return Canaries()


@pytest.fixture
def model(secret: Canaries) -> Iterator[str]:
    """A model that answers with text of its own, whole and streamed; its base URL."""

    def answer(request: HttpRequest) -> HttpReply:
        asked = json.loads(request.body)
        message = {"role": "assistant", "content": f"it is {secret.word('answer')}"}
        if asked.get("stream"):
            part = {"index": 0, "delta": message, "finish_reason": None}
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [part]}
            return HttpReply(
                200, b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(chunk).encode(), {"content-type": "text/event-stream"}
            )
        return json_reply(completion(id="c", model="m", created=1, message=message, finish_reason="stop", usage=None))

    with serve(answer) as server:
        yield f"{server.url}/v1"


def _agent(s: Canaries, url: str, profile: Profile | None = None) -> Any:
    """An agent that makes every kind of call, with text of its own in each."""

    @loupe.tool(effect="read")
    def look(what: str) -> dict[str, str]:
        return {"saw": s.word("result of a tool")}

    @loupe.tool
    async def write(what: str) -> str:
        loupe.receipt("r-1")
        raise ValueError(f"refused {s.word('error of a tool')}")

    @loupe.agent
    def inner(text: str) -> str:
        return s.word("result of an inner agent")

    @loupe.agent(name="careful", profile=profile, snapshot=lambda: {"prompt": s.word("snapshot")})
    async def agent(question: str) -> list[Any]:
        got: list[Any] = [look(s.word("argument of a tool"))]
        try:
            await write(s.word("argument of a write"))
        except ValueError as error:
            got.append(str(error))
        got.append(inner(s.word("argument of an inner agent")))
        got.append(loupe.env("PLAIN"))
        loupe.state("thinking", {"of": s.word("state")})
        loupe.check("fine", True, s.word("check"))
        got.append(loupe.retrieve("docs", s.word("query"), lambda _: [{"id": "1", "text": s.word("document")}]))
        with loupe.wrap(openai.OpenAI(api_key="x", base_url=url, max_retries=0)) as client:
            messages: Any = [{"role": "user", "content": s.word("message")}]
            for _ in range(2):
                said = client.chat.completions.create(model="m", messages=messages).choices[0].message.content
                messages = [*messages, {"role": "assistant", "content": said}]
                got.append(said)
            streamed = client.chat.completions.create(model="m", messages=messages, stream=True)
            got.append("".join(chunk.choices[0].delta.content or "" for chunk in streamed))
        got.append(str(type(loupe.now())) + str(type(loupe.random())) + str(type(loupe.uuid4())))
        return got

    return agent


def _run(agent: Any, s: Canaries) -> tuple[str, Any]:
    done = loupe.record(agent, s.word("argument of the agent"))
    return done.run_id, done.result


@pytest.fixture
def _plain(secret: Canaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN", secret.word("variable"))


# --- digest only ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_plain", "digest_key")
def test_no_text_of_the_program_is_in_any_file_of_the_store(
    secret: Canaries, model: str, workdir: Path, command: Command
) -> None:
    run_id, got = _run(_agent(secret, model, "digest_only"), secret)
    assert got[0] == {"saw": secret.word("result of a tool")}, "the program has its values"
    assert got[-2] == f"it is {secret.word('answer')}"
    store = loupe.open_store()
    for ending in ("loupe", "jsonl"):
        export_run(store, run_id, workdir / f"run.{ending}")
    no_ledger = command("ledger", "export", run_id, str(workdir / "ledger"))
    assert (no_ledger.code, "only digests were kept" in no_ledger.err) == (3, True)
    said = [command("show", run_id), command("show", run_id, "--json"), command("verify", run_id)]
    assert [done.code for done in said] == [0, 0, 0]
    assert secret.in_folder(workdir) == []
    assert secret.in_text(*(done.out + done.err for done in said)) == []
    recording = store.recording(run_id)
    named = {label for event in recording.events for label in event.bodies}
    assert named == {"rules", "packages"}
    assert all(event.input_digest is None and event.output_digest is None for event in recording.events)


@pytest.mark.usefixtures("_plain")
def test_the_search_finds_the_text_in_a_full_recording(secret: Canaries, model: str, workdir: Path) -> None:
    _run(_agent(secret, model), secret)
    places = secret.in_folder(workdir)
    assert {"message", "answer", "state", "document", "snapshot", "variable", "error of a tool"} <= set(places)


@pytest.mark.usefixtures("_plain", "digest_key")
def test_while_it_goes_on_nothing_is_in_the_spool_either(secret: Canaries, model: str, workdir: Path) -> None:
    seen: list[str] = []

    @loupe.tool(effect="read")
    def search() -> int:
        seen.extend(secret.in_folder(workdir))
        return 1

    agent = _agent(secret, model)

    async def whole() -> None:
        async with loupe.recording("careful", profile="digest_only") as block:
            block.result = await agent(secret.word("argument of the agent"))
            search()

    asyncio.run(whole())
    assert seen == []


@pytest.mark.usefixtures("_plain", "digest_key")
def test_replay_fork_and_resume_say_at_once_that_there_are_no_answers(
    secret: Canaries, model: str, workdir: Path, command: Command
) -> None:
    agent = _agent(secret, model, "digest_only")
    run_id, _ = _run(agent, secret)
    began: list[int] = []

    def program() -> None:
        began.append(1)

    with pytest.raises(ReplayRefused, match=r"only digests were kept \(profile digest_only\)") as refused:
        replay(run_id, program)
    assert (refused.value.reason, refused.value.hint) == ("digest_only", refused.value.hint)
    assert "record the agent again with the profile full or redacted" in str(refused.value.hint)
    for where in ("start", _llm_step(run_id)):
        with pytest.raises(ForkRefused) as no_fork:
            fork(run_id, program, from_step=where)
        assert no_fork.value.reason == "digest_only"
    with pytest.raises(ResumeRefused) as no_resume:
        resume(run_id, program)
    assert no_resume.value.reason == "digest_only"
    assert began == []
    done = command("replay", run_id, "--code", "nowhere:nothing")
    assert done.code == 3
    assert "profile digest_only" in done.err


def _llm_step(run_id: str) -> int:
    return next(step.idx for step in loupe.open_store().steps(run_id) if step.kind == "llm")


@pytest.mark.usefixtures("_plain", "digest_key")
def test_it_verifies_and_says_what_is_not_there(secret: Canaries, model: str, workdir: Path, command: Command) -> None:
    run_id, _ = _run(_agent(secret, model, "digest_only"), secret)
    store = loupe.open_store()
    found = verify(store.recording(run_id))
    assert (found.ok, found.bodies_missing, found.coverage) == (True, 0, "limited_replay")
    assert any("only digests were kept" in note for note in found.notes)
    row = store.run(run_id)
    assert row is not None
    assert (row.coverage, row.coverage_notes) == (
        "limited_replay",
        ("profile digest_only: of values only digests are kept",),
    )
    steps = load_steps(store.recording(run_id))
    assert {step.partial for step in steps if step.status != "open"} == {"only digests were kept (profile digest_only)"}
    assert [line for line in command("verify", run_id, "--json").json["notes"] if "digest_only" in line]
    assert "profile digest_only" in command("show", run_id).out
    assert command("rebuild").code == 0
    assert store.steps(run_id) == list(project(store.recording(run_id).events).steps)


def test_an_interrupted_run_says_its_profile_too(workdir: Path) -> None:
    block = loupe.recording("cut", profile="digest_only")
    block.__enter__()
    events = loupe.open_store().recording(block.run_id).events
    assert (events[0].attrs["profile"], events[0].attrs["coverage"]) == ("digest_only", "limited_replay")
    block.__exit__(None, None, None)


@pytest.mark.usefixtures("_plain")
def test_two_of_them_are_compared_by_their_digests(secret: Canaries, model: str, digest_key: str | None) -> None:
    agent = _agent(secret, model, "digest_only")
    runs = [_run(agent, secret)[0] for _ in range(2)]
    other = Canaries()
    other.word("offset so that no mark is the same")
    runs.append(_run(_agent(other, model, "digest_only"), other)[0])
    timeless = [step for step in _compared(runs[0], runs[1]).rows if (step.left or step.right).name not in _CHANCE]  # type: ignore[union-attr]
    assert {row.status for row in timeless} == {"same"}
    changed = _compared(runs[0], runs[2])
    assert changed.first is not None
    assert not changed.identical
    assert any("only a digest was kept" in note for row in changed.rows for note in row.notes)


def _compared(left: str, right: str) -> Comparison:
    found = compare(left, right)
    assert isinstance(found, Comparison)
    return found


_CHANCE = frozenset({"now", "random", "uuid4"})


@pytest.mark.usefixtures("_plain")
def test_one_is_compared_with_a_full_one_as_far_as_digests_tell(
    secret: Canaries, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, bare = _run(_agent(secret, model), secret)[0], _run(_agent(secret, model, "digest_only"), secret)[0]
    rows = [row for row in _compared(full, bare).rows if row.left is None or row.left.name not in _CHANCE]
    assert {row.status for row in rows if (row.left or row.right).kind in ("llm", "env")} == {"same"}  # type: ignore[union-attr]
    (tmp_path / "digest.key").write_text(KEY)
    monkeypatch.setenv("LOUPE_DIGEST_KEY_FILE", str(tmp_path / "digest.key"))
    keyed = _run(_agent(secret, model, "digest_only"), secret)[0]
    told = _compared(bare, keyed)
    assert any("by a key that the other side does not have" in note for row in told.rows for note in row.notes)


def test_answers_that_nobody_kept_are_told_apart_by_their_digests(workdir: Path, command: Command) -> None:
    @loupe.agent(profile="digest_only")
    def asked(answer: str) -> str:
        return answer

    runs = [loupe.record(asked, answer).run_id for answer in ("yes", "yes", "no")]
    same, other = _compared(runs[0], runs[1]).answers, _compared(runs[0], runs[2]).answers
    assert same[0] == same[1]
    assert isinstance(same[0], dict)
    assert list(same[0]) == ["digest_of_output"]
    assert other[0] != other[1]

    @loupe.agent(name="asked")
    def whole(answer: str) -> str:
        return answer

    table = compare(*runs, loupe.record(whole, "yes").run_id)
    assert isinstance(table, Summary)
    assert ([row.group for row in table.rows], table.agreement) == ([0, 0, 1, 0], 0.75)
    assert command.ok("list").count("digest_only") == 3


# --- its digests ------------------------------------------------------------------------------------------------------


def test_without_a_key_keys_and_digests_are_those_that_anybody_can_make(workdir: Path) -> None:
    with loupe.recording("r", profile="digest_only") as block:
        loupe.env("HOME_OF_NOBODY")
    event = next(e for e in loupe.open_store().recording(block.run_id).events if e.type == "env.read")
    assert event.attrs["digest_of_output"] == f"sha256:{digest(None)}"
    assert event.input_key == digest(["env", "HOME_OF_NOBODY", None])
    assert "digested_by" not in loupe.open_store().recording(block.run_id).events[0].attrs


def test_with_a_key_nothing_can_be_tried_out_without_it(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOUPE_DIGEST_KEY_FILE", str(tmp_path / "digest.key"))
    (tmp_path / "digest.key").write_text(KEY)
    monkeypatch.setenv("YES_OR_NO", "yes")

    @loupe.tool(effect="read")
    def answer(question: bool) -> bool:
        return question

    with loupe.recording("r", profile="digest_only") as block:
        loupe.env("YES_OR_NO")
        answer(question=True)
    recording = loupe.open_store().recording(block.run_id)
    answers: tuple[Json, ...] = ("yes", "no", True, False, {"question": True})
    guesses = {digest(value) for value in answers}
    guesses |= {digest(["env", "YES_OR_NO", None]), digest(["tool", "answer", {"question": True}])}
    text = repr([event.as_sealed for event in recording.events])
    assert not [guess for guess in guesses if guess in text]
    keyed = Digests(KEY.encode())
    env = next(e for e in recording.events if e.type == "env.read")
    assert env.attrs["digest_of_output"] == keyed.of("yes")
    assert env.input_key == keyed.matching(digest(["env", "YES_OR_NO", None]))
    assert recording.events[0].attrs["digested_by"] == keyed.key_id
    assert KEY not in text
    assert all(KEY.encode() not in file.read_bytes() for file in (workdir / ".loupe").rglob("*") if file.is_file())


@pytest.mark.parametrize("content", [None, "short", "x" * 5000])
def test_a_key_that_cannot_be_used_keeps_nothing_rather_than_what_can_be_guessed(
    content: str | None, workdir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if content is not None:
        (workdir / "digest.key").write_text(content)
    monkeypatch.setenv("LOUPE_DIGEST_KEY_FILE", "digest.key")
    done = loupe.record(loupe.agent(profile="digest_only")(_twice), 2)
    assert done.result == 4, "the agent goes on"
    assert done.run is None
    assert "digest_key_file" in caplog.text
    assert loupe.record(_twice, 2).run is not None, "a full recording needs no key"


def _twice(number: int) -> int:
    return 2 * number


# --- every profile ----------------------------------------------------------------------------------------------------

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.emails(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_steps = st.one_of(
    st.builds(ask, st.text(), st.text() | st.emails()),
    st.builds(lambda name, answer, given: use(name, answer, given=given), st.sampled_from("ab"), _values, _values),
    st.builds(lambda text: use("fails", ValueError(text)), st.text()),
)


@given(st.lists(_steps, max_size=5), st.booleans(), st.sampled_from([b"", KEY.encode()]))
def test_no_profile_changes_what_the_program_gets(steps: list[Any], asynchronous: bool, key: bytes) -> None:
    program = Program(steps, asynchronous=asynchronous)
    outcomes = [_outcome(program, profile, key) for profile in PROFILES]
    bare = program.agent()
    expected = asyncio.run(bare) if asynchronous else bare
    assert all(result == expected for result, _ in outcomes)
    full, _, bared = (recording for _, recording in outcomes)
    assert [event.type for event in bared.events] == [event.type for event in full.events]
    assert [event.name for event in bared.events] == [event.name for event in full.events]
    assert verify(bared).ok


def _outcome(program: Program, profile: Profile, key: bytes) -> tuple[Any, Recording]:
    store: Store = MemoryStore()
    opener = RecordOpener(store, profile=profile)
    with ambient.opening_with(opener):
        result: Any = loupe.agent(program.agent)()
        if program.asynchronous:
            result = asyncio.run(_awaited(result))
    return result, store.recording(opener.sessions[0].run_id)


async def _awaited(value: Any) -> Any:
    return await value


def test_the_plain_loop_keeps_what_the_profile_of_its_name_says(
    secret: Canaries, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOUPE_PROFILE", "digest_only")
    asked, answered = secret.word("question"), secret.word("answer")
    with_steps = run_loop(Script(answered), model="m", question=asked, store=loupe.open_store(), run_id="kept")
    assert [step.output for step in with_steps] == [None]
    assert secret.in_folder(workdir) == []
    with pytest.raises(ForkRefused, match="digest_only"):
        fork("kept", from_step=0, store=loupe.open_store())
    forgotten = run_loop(Script(answered), model="m", question=asked)
    assert answered in str(forgotten[0].output), "what is not stored is given back whole"


# --- redacted ---------------------------------------------------------------------------------------------------------


def test_a_redacted_run_holds_no_personal_data_and_replays_with_placeholders(workdir: Path, command: Command) -> None:
    heard: list[Any] = []

    @loupe.tool(effect="read")
    def customer(email: str) -> dict[str, str]:
        return {"surname": "Nakamura", "note": "call +49 170 1234567 or mail jo@example.org", "order": "order 5512"}

    @loupe.agent(profile="redacted")
    def support(question: str) -> str:
        found = customer("jo@example.org")
        heard.append(found)
        return found["order"]

    done = loupe.record(support, "I am jo@example.org, my card is 4111 1111 1111 1111")
    assert heard[0]["surname"] == "Nakamura", "the program has its values"
    canaries = [b"jo@example.org", b"Nakamura", b"170 1234567", b"4111 1111"]
    recording = loupe.open_store().recording(done.run_id)
    text = repr([recording.body(name) for event in recording.events for name in event.digests()])
    assert not [one for one in canaries if one.decode() in text]
    assert "order 5512" in text
    assert "[removed:email]" in text
    report = replay(done.run_id, support)
    assert heard[1]["surname"] == "[removed:surname]"
    notes: Any = report.recorded["coverage_notes"]
    assert "profile redacted" in notes[0]
    assert report.passed, report.text()
    assert "profile redacted" in command("show", done.run_id).out


def test_redaction_has_rules_of_its_own_project(workdir: Path) -> None:
    (workdir / "loupe.toml").write_text(
        'profile = "redacted"\n[redaction]\nfields = ["nickname"]\nkeep = ["email", "ssn"]\npatterns = { case = "CASE-[0-9]+" }\n'
    )
    done = loupe.record(lambda it: it, {"nickname": "bo", "text": "CASE-12 of a@b.example", "iban": "x"})
    recording = loupe.open_store().recording(done.run_id)
    given: Any = recording.body(recording.events[0].input_digest)
    assert given["args"][0] == {
        "nickname": "[removed:nickname]",
        "text": "[removed:case] of a@b.example",
        "iban": "[removed:iban]",
    }


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("write to ana.b+c@mail.example.org now", "email"),
        ("DE89 3704 0044 0532 0130 00", "iban"),
        ("GB82WEST12345698765432", "iban"),
        ("4111-1111-1111-1111", "card"),
        ("378282246310005", "card"),
        ("+1 (555) 010-9999", "phone"),
        ("078-05-1120", "ssn"),
    ],
)
def test_shapes_of_personal_data(text: str, rule: str) -> None:
    found = scrub(text, redacted(Rules(), (), (), {})).value
    assert f"[removed:{rule}]" in str(found)
    assert scrub(text, redacted(Rules(), (), tuple(PERSONAL_SHAPES), {})).value == text


@pytest.mark.parametrize(
    "text",
    ["2026-11-29T14:00:00+00:00", "order 5512, 3 pieces", "call_1234567890abcdef", "1+1=2", "v1.2.3", "@loupe.agent"],
)
def test_other_text_is_left_alone(text: str) -> None:
    assert scrub(text, redacted(Rules(), (), (), {})).value == text


# --- who decides ------------------------------------------------------------------------------------------------------


def _profile(run_id: str) -> Any:
    return loupe.open_store().recording(run_id).events[0].attrs.get("profile", "full")


def test_code_goes_over_the_agents_table_and_that_over_the_setting(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workdir / "loupe.toml").write_text('profile = "redacted"\n[profiles]\nquiet = "digest-only"\n')
    quiet = loupe.agent(name="quiet")(_twice)
    assert _profile(loupe.record(_twice, 1).run_id) == "redacted"
    assert _profile(loupe.record(quiet, 1).run_id) == "digest_only"
    assert _profile(loupe.record(loupe.agent(name="quiet", profile="full")(_twice), 1).run_id) == "full"
    monkeypatch.setenv("LOUPE_PROFILE", "full")
    assert _profile(loupe.record(_twice, 1).run_id) == "full"
    assert _profile(loupe.record(quiet, 1).run_id) == "digest_only"
    with loupe.recording("block", profile="redacted") as block:
        pass
    assert _profile(block.run_id) == "redacted"


def test_the_command_line_goes_over_all_and_the_command_line_itself_is_not_kept(
    workdir: Path, command: Command, secret: Canaries
) -> None:
    (workdir / "agent.py").write_text(
        "import sys\nimport agentloupe as loupe\n\n@loupe.agent(profile='full')\ndef agent(q):\n    return q\n\nagent(sys.argv[1])\n"
    )
    done = command("run", "--profile", "digest-only", "--", "python", "agent.py", secret.word("command line"))
    assert done.code == 0, done.err
    run_id = loupe.open_store().runs()[0].id
    assert _profile(run_id) == "digest_only"
    assert secret.in_folder(workdir) == []
    wrong = command("run", "--profile", "some", "--", "python", "agent.py", "x")
    assert (wrong.code, "must be one of full, redacted, digest_only" in wrong.err) == (64, True)


def test_an_unknown_profile_is_an_error_where_it_is_said(workdir: Path) -> None:
    with pytest.raises(UsageError, match="must be one of full, redacted, digest_only"):
        loupe.agent(profile="secret")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="must be one of"):
        loupe.recording("x", profile="none")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ['profile = "digest-olny"\n', 'nonsense = 1\n[profiles]\nx = "redacted"\n'])
def test_settings_that_cannot_be_read_and_speak_of_profiles_keep_the_least(
    text: str, workdir: Path, secret: Canaries
) -> None:
    (workdir / "loupe.toml").write_text(text)
    loupe.record(lambda text: text, secret.word("argument"))
    assert secret.in_folder(workdir) == []


def test_a_full_recording_says_nothing_of_profiles(workdir: Path) -> None:
    run_id = loupe.record(_twice, 1).run_id
    names = {name for event in loupe.open_store().recording(run_id).events for name in event.attrs}
    assert not names & {"profile", "kept", "digested_by", "sample", "coverage_notes"}
    assert not [name for name in names if name.startswith("digest_of_")]


def test_an_exported_one_comes_back_and_is_refused_there_too(workdir: Path) -> None:
    run_id = loupe.record(loupe.agent(profile="digest_only")(_twice), 1).run_id
    export_run(loupe.open_store(), run_id, workdir / "x.loupe")
    other = open_url("memory:")
    import_file(other, workdir / "x.loupe")
    with pytest.raises(ReplayRefused, match="digest_only"):
        replay(run_id, _twice, store=other)
    with pytest.raises(ReplayRefused, match="digest_only"):
        replay(workdir / "x.loupe", _twice)


def test_an_effect_that_nobody_saw_end_is_settled_without_its_values(
    workdir: Path, secret: Canaries, command: Command
) -> None:
    @loupe.tool
    def pay(amount: str) -> None:
        raise loupe.OutcomeUnknown("no answer")

    with pytest.raises(loupe.OutcomeUnknown), loupe.recording("payer", profile="digest_only") as block:
        pay(secret.word("amount"))
    asked = command("effects", "--json").json["items"]
    done = command(
        *("effects", "settle", block.run_id, asked[0]["call_id"], "--outcome", "done"),
        *("--result", json.dumps(secret.word("result")), "--why", "the bank said so"),
    )
    assert done.code == 0, done.err
    assert secret.in_folder(workdir) == []
    assert command("effects", "--json").json["items"] == []
    assert verify(loupe.open_store().recording(block.run_id)).ok


@pytest.mark.skipif(os.name != "posix", reason="a program of its own")
def test_a_recording_for_tests_must_hold_answers(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentloupe.verbs.testing import Case, check

    monkeypatch.setenv("LOUPE_PROFILE", "digest_only")
    told = check(Case(path=workdir / "twice.loupe", agent=_twice, arguments=((2,), {}), mode="once"))
    assert not told.passed
    assert "digest_only" in told.text
    assert "record the agent again with the profile full" in told.text
    assert not (workdir / "twice.loupe").exists()
