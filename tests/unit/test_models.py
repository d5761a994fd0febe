"""Who a fork of the generic loop asks: from the configuration, by name, by form, from `LLM_BASE_URL`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.cli import main
from agentloupe.ports.settings import load
from agentloupe.providers.loopback import HttpReply, serve
from agentloupe.verbs.forking import fork
from agentloupe.words.errors import ConfigError, ForkRefused, UsageError
from tests.dialect_support import FORMS, QUESTION, Dialects, agent_of


@pytest.fixture
def server(workdir: Path) -> Iterator[Dialects]:
    made = Dialects()
    with serve(made) as running:
        made.url = running.url
        yield made


def configure(workdir: Path, server: Dialects, **endpoints: dict[str, str]) -> None:
    tables = [
        f"[endpoints.{name}]\n" + "".join(f'{key} = "{value}"\n' for key, value in table.items())
        for name, table in endpoints.items()
    ]
    (workdir / "loupe.toml").write_text("\n".join(tables).replace("URL", f"{server.url}/v1"))


def recorded(server: Dialects, form: str) -> str:
    server.answers = ["hello", "again"]
    run_id = loupe.record(agent_of(form, server), QUESTION).run_id
    server.headers.clear()
    server.paths.clear()
    return run_id


@pytest.mark.parametrize("form", FORMS)
def test_the_only_endpoint_of_the_form_is_asked_with_its_key(
    server: Dialects, workdir: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    run_id = recorded(server, form)
    others = {other: {"base_url": "http://127.0.0.1:9/v1", "dialect": other} for other in FORMS if other != form}
    configure(workdir, server, mine={"base_url": "URL", "dialect": form, "key_env": "MY_KEY"}, **others)
    (workdir / ".env").write_text("MY_KEY=key-of-the-file\n")
    assert fork(run_id, from_step=1, control=False).candidates[0].status == "ok"
    assert "key-of-the-file" in server.headers[0]["x-api-key" if form == "anthropic" else "authorization"]
    monkeypatch.setenv("MY_KEY", "key-of-the-variable")
    fork(run_id, from_step=1, control=False)
    assert "key-of-the-variable" in str(server.headers[1])


def test_an_endpoint_is_chosen_by_name(server: Dialects, workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_id = recorded(server, "chat")
    configure(workdir, server, one={"base_url": "http://127.0.0.1:9/v1"}, two={"base_url": "URL"})
    with pytest.raises(ForkRefused, match="--endpoint one or two") as refused:
        fork(run_id, from_step=1, control=False)
    assert refused.value.reason == "no_model"
    assert main(["fork", run_id, "--from", "1", "--endpoint", "two"]) == 0
    assert len(server.paths) == 1
    with pytest.raises(UsageError, match="did you mean 'two'"):
        fork(run_id, from_step=1, control=False, endpoint="twoo")
    assert main(["fork", run_id, "--from", "1", "--endpoint", "nowhere"]) == 64
    assert "configured are: one, two" in capsys.readouterr().err


def test_the_variable_goes_before_the_configuration(
    server: Dialects, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = recorded(server, "anthropic")
    configure(workdir, server, one={"base_url": "http://127.0.0.1:9/v1"})
    monkeypatch.setenv("LLM_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("LLM_API_KEY", "k")
    assert fork(run_id, from_step=1, control=False).candidates[0].status == "ok"
    assert server.paths == ["/v1/messages"], "asked in the form of the recording"
    monkeypatch.setenv("LLM_DIALECT", "chat")
    with pytest.raises(ForkRefused, match=r"'anthropic'.*speaks 'chat'"):
        fork(run_id, from_step=1, control=False)


def test_extra_fields_of_the_variable_are_written_down(
    server: Dialects, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = recorded(server, "chat")
    monkeypatch.setenv("LLM_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("LLM_EXTRA_BODY", '{"top_k": 3, "temperature": 1}')
    run = fork(run_id, from_step=1, control=False).candidates[0]
    assert (server.asked[1]["top_k"], server.asked[1]["temperature"]) == (3, 0.25), "what was recorded stays"
    assert [o["path"] for o in run.overrides] == ["top_k"]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"dialect": "chat"}, "no base_url"),
        ({"base_url": "URL", "dialect": "french"}, "must be one of chat, anthropic, responses"),
        ({"base_url": "URL", "api_key": "sk-1"}, "api_key is unknown"),
    ],
)
def test_a_wrong_endpoint_names_its_place(server: Dialects, workdir: Path, table: dict[str, str], said: str) -> None:
    configure(workdir, server, one=table)
    with pytest.raises(ConfigError, match=said) as wrong:
        load()
    assert "loupe.toml" in str(wrong.value)
    assert "sk-1" not in str(wrong.value)


def test_a_dialect_that_is_none_is_said(server: Dialects, workdir: Path, monkeypatch: Any) -> None:
    run_id = recorded(server, "chat")
    monkeypatch.setenv("LLM_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("LLM_DIALECT", "french")
    with pytest.raises(ConfigError, match="LLM_DIALECT must be one of"):
        fork(run_id, from_step=1, control=False)


def test_a_form_that_nobody_speaks_is_named_with_what_to_configure(server: Dialects, workdir: Path) -> None:
    run_id = recorded(server, "anthropic")
    configure(workdir, server, one={"base_url": "URL", "dialect": "chat"})
    with pytest.raises(ForkRefused, match=r"form 'anthropic'.*one speaks chat") as refused:
        fork(run_id, from_step=1, control=False)
    assert 'dialect = "anthropic"' in str(refused.value.hint)
    with pytest.raises(ForkRefused, match="this model speaks 'chat'") as other:
        fork(run_id, from_step=1, control=False, endpoint="one")
    assert 'dialect = "anthropic", --endpoint NAME' in str(other.value.hint)
    assert server.paths == []


def test_an_address_that_knows_no_such_form_is_told_apart_from_a_wrong_model(
    server: Dialects, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = recorded(server, "anthropic")
    with serve(lambda _: HttpReply(404, b'{"error": {"message": "no such path"}}')) as openai_only:
        monkeypatch.setenv("LLM_BASE_URL", f"{openai_only.url}/v1")
        assert main(["fork", run_id, "--from", "1"]) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert "asked was in the form 'anthropic', at /messages" in said
    assert 'dialect = "anthropic"' in said
