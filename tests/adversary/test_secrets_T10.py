"""T10: a secret that is planted anywhere is in no byte on disk, in no report, in no line of ours.

Each test sends secrets through ways in that people use, gets its values back unharmed, and then looks through every file.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import openai
import pydantic
import pytest

import agentloupe as loupe
from agentloupe.providers.loopback import HttpReply, HttpRequest, completion, json_reply, serve
from agentloupe.verbs.exchange import export_run, import_file
from agentloupe.verbs.replaying import replay
from tests.canaries import Canaries
from tests.cli.driving import Command


@pytest.fixture
def secret() -> Canaries:
    return Canaries()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@dataclasses.dataclass
class Login:
    user: str
    password: str
    note: str = ""


class Config(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    host: str
    key: pydantic.SecretStr


class Refused(Exception):
    def __init__(self, message: str, *, token: str, headers: dict[str, str]) -> None:
        super().__init__(message)
        self.token, self.headers = token, headers


def _anywhere(s: Canaries, where: str) -> dict[str, Any]:
    """One value with secrets in every form that a value may have."""
    quoted = json.dumps({"note": json.dumps({"apiKey": s.word(f"{where}: JSON in JSON in JSON")})})
    form = urllib.parse.urlencode({"user": "demo", "client_secret": s.word(f"{where}: form"), "n": 1})
    return {
        "plain": f"the key is {s.key(f'{where}: text')}, keep it",
        "api_key": s.word(f"{where}: name"),
        "nested": [{"credentials": {"pin": s.word(f"{where}: below a name"), "list": [s.word(f"{where}: list")]}}],
        "arguments": quoted,
        "url": f"https://bob:{s.word(f'{where}: userinfo')}@h.invalid/p?access_token={s.word(f'{where}: query')}&page=2",
        "fragment": f"https://h.invalid/cb#access_token={s.word(f'{where}: fragment')}&state=1",
        "headers": {
            "Authorization": s.basic(f"{where}: basic"),
            "Cookie": f"sid={s.word(f'{where}: cookie')}; theme=dark",
        },
        "pairs": [["X-Api-Key", s.word(f"{where}: header pair")], ["Accept", "json"]],
        "curl": f"curl -H 'Authorization: {s.basic(f'{where}: basic in text')}' x",
        "bytes": f'{{"password": "{s.word(f"{where}: bytes")}"}}'.encode(),
        "odd bytes": b"\xff\xfe" + f"token={s.key(f'{where}: odd bytes')}".encode(),
        "form": form,
        "multipart": f'--b\r\nContent-Disposition: form-data; name="password"\r\n\r\n{s.word(f"{where}: multipart")}\r\n--b--',
        "login": Login("demo", s.word(f"{where}: dataclass"), s.key(f"{where}: field of a dataclass")),
        "config": Config(host="h", key=s.word(f"{where}: SecretStr"), client_secret=s.word(f"{where}: extra")),  # type: ignore[arg-type, call-arg]
        "tuple": (1, s.key(f"{where}: tuple")),
        "odd": {1: "x", "password": s.word(f"{where}: dict with odd keys"), (1, 2): s.key(f"{where}: odd value")},
        s.key(f"{where}: name of a member"): 1,
        "env": f"export OPENAI_API_KEY={s.key(f'{where}: export')}\nDB_PASSWORD={s.word(f'{where}: assignment')}9",
    }


def _error(s: Canaries, where: str) -> Refused:
    error = Refused(
        f"401 for key {s.key(f'{where}: message')}",
        token=s.word(f"{where}: attribute"),
        headers={"x-api-key": s.word(f"{where}: header of an error")},
    )
    error.add_note(f"sent Authorization: {s.basic(f'{where}: note')}")
    error.__cause__ = ValueError(f"password='{s.word(f'{where}: cause')}'")
    return error


# --- ways in ----------------------------------------------------------------------------------------------------------


def _program(s: Canaries, kept: list[Any] | None = None) -> Any:
    """An agent that touches every kind of call."""

    @loupe.tool(effect="read", name=f"look {s.key('name of a tool')}")
    def look(what: Any) -> Any:
        return _anywhere(s, "result of a tool")

    @loupe.tool
    async def write(what: Any, token: str) -> Any:
        raise _error(s, "error of a tool")

    @loupe.agent(name="inner")
    def inner(password: str) -> Any:
        return {"password": s.word("result of an inner agent")}

    @loupe.agent
    async def agent(question: Any, *, api_key: str) -> Any:
        caught: list[str] = []
        got = look(_anywhere(s, "argument of a tool"))
        if kept is not None:
            kept.append(got)
        try:
            await write(_anywhere(s, "argument of a write"), s.word("named argument"))
        except Refused as error:
            caught.append(error.token)
        loupe.env("SERVICE_TOKEN")
        loupe.env("PLAIN")
        loupe.now()
        loupe.state(f"waiting {s.key('name of a state')}", _anywhere(s, "state"))
        loupe.check("fine", True, _anywhere(s, "check"))
        loupe.retrieve(
            "index", _anywhere(s, "query"), lambda _, **__: [_anywhere(s, "document")], filter=_anywhere(s, "filter")
        )
        inner(s.word("argument of an inner agent"))
        if kept is not None:
            kept.extend(caught)
        return _anywhere(s, "result")

    return agent


@pytest.fixture
def environment(secret: Canaries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", secret.word("variable"))
    monkeypatch.setenv("PLAIN", f"text {secret.key('plain variable')}")


def _record(s: Canaries, program: Any) -> str:
    async def main() -> str:
        async with loupe.recording(
            f"block {s.key('name of a run')}", tags=[s.key("tag")], task_id=f"task {s.key('task')}"
        ) as block:
            block.result = await program(_anywhere(s, "argument"), api_key=s.word("named argument of an agent"))
        return block.run_id

    return asyncio.run(main())


@pytest.mark.usefixtures("environment")
def test_nothing_of_what_an_agent_says_and_hears(
    secret: Canaries, workdir: Path, caplog: pytest.LogCaptureFixture, command: Command
) -> None:
    caplog.set_level(logging.DEBUG)
    kept: list[Any] = []
    run_id = _record(secret, _program(secret, kept))
    assert kept == [_anywhere(secret, "result of a tool"), secret.word("error of a tool: attribute")], (
        "the program has them"
    )
    assert secret.in_folder(workdir) == []
    said = [command("show", run_id, *more) for more in ((), ("--json",))]
    said += [command("list", "--json"), command("list"), command("verify", run_id, "--json")]
    for i in range(len(json.loads(said[1].out)["steps"]) if "steps" in said[1].json else 3):
        said.append(command("show", run_id, "--step", str(i), "--json"))
    assert secret.in_text(*(text for done in said for text in (done.out, done.err))) == []
    assert secret.in_text(caplog.text) == []


@pytest.mark.usefixtures("environment")
def test_nothing_in_files_that_are_exported_and_imported(secret: Canaries, workdir: Path) -> None:
    run_id = _record(secret, _program(secret))
    store = loupe.open_store()
    other = loupe.open_store(workdir / "other" / "loupe.db")
    for ending in ("loupe", "jsonl"):
        file = workdir / f"run.{ending}"
        export_run(store, run_id, file)
        import_file(other, file)
    other.close()
    assert secret.in_folder(workdir) == []


@pytest.mark.usefixtures("environment")
def test_nothing_in_a_replay_that_passes_and_in_one_that_does_not(secret: Canaries, workdir: Path) -> None:
    program = _program(secret)
    done = loupe.record(lambda: asyncio.run(program(1, api_key=secret.word("argument"))))
    report = replay(done.run_id, lambda: asyncio.run(program(1, api_key=secret.word("another argument"))))
    assert report.verdict == "pass", report.text()

    other = Canaries()
    other.key("offset so that no mark is the same")
    changed = _program(other)
    reports = [replay(done.run_id, lambda: asyncio.run(changed(1, api_key=other.word("argument"))))]

    def raising() -> None:
        raise _error(other, "error of an agent")

    reports.append(replay(done.run_id, raising))
    for one in reports:
        texts = (one.text(), json.dumps(one.as_json()))
        assert other.in_text(*texts) == []
        assert secret.in_text(*texts) == []
    assert secret.in_folder(workdir) == []


def test_nothing_when_the_agent_itself_fails(
    secret: Canaries, workdir: Path, caplog: pytest.LogCaptureFixture, command: Command
) -> None:
    caplog.set_level(logging.DEBUG)

    def agent() -> None:
        raise _error(secret, "error of an agent")

    with pytest.raises(Refused):
        loupe.record(agent)
    done = [command("show", "last"), command("show", "last", "--json"), command("list", "--json")]
    assert secret.in_text(*(one.out + one.err for one in done), caplog.text) == []
    assert secret.in_folder(workdir) == []


# --- models -------------------------------------------------------------------------------------------------------------


class Model:
    """A model that answers with secrets, or refuses with some."""

    def __init__(self, s: Canaries) -> None:
        self.s = s
        self.fails = False
        self.url = ""

    def __call__(self, request: HttpRequest) -> HttpReply:
        s = self.s
        headers = {"set-cookie": f"sid={s.word('cookie of an answer')}", "x-request-id": "r-1"}
        if self.fails:
            error = {"message": f"bad key {s.key('refusal')}", "token": s.word("body of a refusal")}
            return json_reply({"error": error}, 401, headers)
        call = {"name": "f", "arguments": json.dumps({"password": s.word("arguments of a call"), "n": 1})}
        message = {
            "role": "assistant",
            "content": f"use {s.key('answer')}",
            "tool_calls": [{"id": "c", "type": "function", "function": call}],
        }
        whole = completion(id="c-1", model="m", created=1, message=message, finish_reason="stop", usage=None)
        return json_reply(whole, 200, headers)


@pytest.fixture
def model(secret: Canaries) -> Iterator[Model]:
    made = Model(secret)
    with serve(made) as running:
        made.url = running.url
        yield made


def _messages(s: Canaries, where: str) -> list[Any]:
    return [
        {"role": "system", "content": f"You may use {s.key(f'{where}: system')}"},
        {"role": "user", "content": [{"type": "text", "text": f"password='{s.word(f'{where}: part')}'"}]},
        {"role": "tool", "tool_call_id": "c", "content": json.dumps({"secret": s.word(f"{where}: tool message")})},
    ]


def _options(s: Canaries, model: Model, where: str) -> dict[str, Any]:
    url = model.url.replace("://", f"://u:{s.word(f'{where}: base_url')}@") + "/v1"
    return {
        "api_key": s.key(f"{where}: api_key"),
        "base_url": url,
        "max_retries": 0,
        "default_headers": {"X-Custom-Token": s.word(f"{where}: header")},
        "default_query": {"api_key": s.word(f"{where}: query of the client")},
    }


@pytest.mark.parametrize("fails", [False, True], ids=["answers", "refuses"])
def test_nothing_of_a_model_client(secret: Canaries, model: Model, workdir: Path, fails: bool) -> None:
    model.fails = fails

    @loupe.tool(effect="read")
    def f(password: str, n: int) -> str:
        return secret.key("result of a call")

    def agent() -> str:
        with loupe.wrap(openai.OpenAI(**_options(secret, model, "sync"))) as client:
            try:
                got = client.chat.completions.create(
                    model="m",
                    messages=_messages(secret, "sync"),
                    user=secret.key("user"),
                    extra_headers={"Authorization": f"Bearer {secret.word('bearer')}"},
                    extra_query={"token": secret.word("query of the call")},
                    extra_body={"metadata": {"db.password": secret.word("metadata")}},
                )
            except openai.APIStatusError:
                return "refused"
        for call in got.choices[0].message.tool_calls or ():
            f(**json.loads(cast("Any", call).function.arguments))
        return str(got.choices[0].message.content)[:4]

    done = loupe.record(agent)
    report = replay(done.run_id, agent)
    assert report.verdict == "pass", report.text()
    assert secret.in_folder(workdir) == []


@pytest.mark.parametrize("fails", [False, True], ids=["answers", "refuses"])
def test_nothing_of_an_async_model_client(secret: Canaries, model: Model, workdir: Path, fails: bool) -> None:
    model.fails = fails

    @loupe.tool(effect="read")
    async def f(password: str, n: int) -> str:
        return secret.key("result of a call")

    async def agent() -> str:
        async with loupe.wrap(openai.AsyncOpenAI(**_options(secret, model, "async"))) as client:
            try:
                got = await client.chat.completions.create(model="m", messages=_messages(secret, "async"))
            except openai.APIStatusError:
                return "refused"
        for call in got.choices[0].message.tool_calls or ():
            await f(**json.loads(cast("Any", call).function.arguments))
        return "answered"

    done = loupe.record(agent)
    report = replay(done.run_id, agent)
    assert report.verdict == "pass", report.text()
    assert secret.in_folder(workdir) == []


class Streaming:
    """A model that says a text in small parts, cut anywhere, in the form of OpenAI or Anthropic."""

    def __init__(self, s: Canaries) -> None:
        self.text = f"use {s.key('stream')} or password='{s.word('quoted in a stream')}' and go on. " + "fine. " * 50
        self.arguments = json.dumps({"user": "demo", "credentials": {"pin": s.word("arguments in a stream")}})
        self.head = {"content-type": "text/event-stream", "set-cookie": f"a={s.word('cookie of a stream')}"}
        self.url = ""

    def __call__(self, request: HttpRequest) -> HttpReply:
        events = self._anthropic() if request.path.endswith("/messages") else self._openai()
        body = "".join(events).encode()
        return HttpReply(200, iter([body[i : i + 37] for i in range(0, len(body), 37)]), self.head)

    def _openai(self) -> Iterator[str]:
        for i in range(0, len(self.text), 3):
            yield self._chunk({"content": self.text[i : i + 3]})
        for i in range(0, len(self.arguments), 4):
            function = {"name": "f" if i == 0 else None, "arguments": self.arguments[i : i + 4]}
            yield self._chunk({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]})
        yield self._chunk({}, "stop")
        yield "data: [DONE]\n\n"

    @staticmethod
    def _chunk(delta: Any, finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        whole = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return f"data: {json.dumps(whole)}\n\n"

    def _anthropic(self) -> Iterator[str]:
        about = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
        usage = {"input_tokens": 1, "output_tokens": 1}
        yield self._event("message_start", message={**about, "stop_sequence": None, "usage": usage})
        yield self._event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for i in range(0, len(self.text), 3):
            yield self._event(
                "content_block_delta", index=0, delta={"type": "text_delta", "text": self.text[i : i + 3]}
            )
        yield self._event("content_block_stop", index=0)
        yield self._event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage)
        yield self._event("message_stop")

    @staticmethod
    def _event(kind: str, **more: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n"


@pytest.fixture
def streaming(secret: Canaries) -> Iterator[Streaming]:
    made = Streaming(secret)
    with serve(made) as running:
        made.url = running.url
        yield made


@pytest.mark.parametrize("leave", [None, 20], ids=["read to the end", "left early"])
def test_nothing_of_a_stream(secret: Canaries, streaming: Streaming, workdir: Path, leave: int | None) -> None:
    heard: list[str] = []

    @loupe.tool(effect="read")
    def f(arguments: str) -> str:
        return secret.key("result of a call")

    def agent() -> int:
        said = arguments = ""
        with loupe.wrap(openai.OpenAI(api_key=secret.key("api_key"), base_url=f"{streaming.url}/v1")) as client:
            stream = client.chat.completions.create(model="m", messages=_messages(secret, "stream"), stream=True)
            for n, chunk in enumerate(stream):
                delta = chunk.choices[0].delta
                said += delta.content or ""
                arguments += "".join(call.function.arguments or "" for call in delta.tool_calls or () if call.function)
                if n == leave:
                    stream.close()
                    break
        if arguments:
            f(arguments)
        heard.append(said)
        return len(heard)

    done = loupe.record(agent)
    assert heard[0] == streaming.text[: len(heard[0])], "the program hears what was said"
    heard.clear()
    report = replay(done.run_id, agent)
    assert report.verdict == "pass", report.text()
    assert secret.in_text(*heard) == []
    assert leave is not None or heard[0].endswith("and go on. " + "fine. " * 50)
    assert secret.in_folder(workdir) == []


def test_nothing_of_an_async_stream_of_another_api(secret: Canaries, streaming: Streaming, workdir: Path) -> None:
    anthropic = pytest.importorskip("anthropic")
    heard: list[str] = []

    async def agent() -> int:
        made = anthropic.AsyncAnthropic(api_key=secret.key("api_key"), base_url=streaming.url)
        async with loupe.wrap(made) as client:
            asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": secret.key("content")}]}
            async with client.messages.stream(**asked) as stream:
                heard.append("".join([text async for text in stream.text_stream]))
        return len(heard)

    done = loupe.record(agent)
    assert heard == [streaming.text]
    heard.clear()
    report = replay(done.run_id, agent)
    assert report.verdict == "pass", report.text()
    assert secret.in_text(*heard) == []
    assert secret.in_folder(workdir) == []


def test_nothing_of_plain_http(secret: Canaries, model: Model, workdir: Path) -> None:
    s = secret

    @loupe.tool(effect="read")
    def f(arguments: str) -> str:
        return s.key("result of a call")

    def agent() -> int:
        with httpx.Client(transport=cast("Any", loupe.http_transport()), auth=("user", s.word("basic auth"))) as client:
            got = [
                client.post(
                    f"{model.url}/v1/chat/completions?page=2&api-key={s.word('query')}",
                    json={"model": "m", "messages": _messages(s, "json"), "password": s.word("member of a body")},
                    headers={"X-Api-Key": s.word("header"), "Cookie": f"a={s.word('cookie')}"},
                ),
                client.post(f"{model.url}/form", data={"client_secret": s.word("form"), "n": "1"}),
                client.post(
                    f"{model.url}/parts",
                    files={"password": (None, s.word("multipart")), "b": ("f", b"\xff")},
                    headers={"Content-Type": "multipart/form-data; boundary=b"},
                ),
                client.get(f"{model.url}/get", headers={"Authorization": f"Token {s.word('token')}"}),
            ]
        message = got[0].json()["choices"][0]["message"]
        for call in message["tool_calls"]:
            f(call["function"]["arguments"])
        return len([answer.status_code for answer in got])

    done = loupe.record(agent)
    report = replay(done.run_id, agent)
    assert report.verdict == "pass", report.text()
    assert s.in_folder(workdir) == []


def test_a_fork_of_a_request_with_secrets_keeps_none_and_says_so(
    secret: Canaries, model: Model, workdir: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agent() -> str:
        with loupe.wrap(openai.OpenAI(**_options(secret, model, "sync"))) as client:
            client.chat.completions.create(model="m", messages=_messages(secret, "sync"))
        return "done"

    done = loupe.record(agent)
    store = loupe.open_store()
    asked: list[Any] = []

    def answer(messages: Any, tools: Any, model: Any, temperature: Any) -> Any:
        asked.append(messages)
        return {"role": "assistant", "content": f"again {secret.key('answer of a fork')}"}, 1, 1

    step = next(s.idx for s in store.steps(done.run_id) if s.kind == "llm")
    fork = loupe.fork_run(
        store, done.run_id, step, loupe.Overrides(system_prompt=f"be {secret.key('override')}"), answer
    )
    assert asked
    for run in (done.run_id, fork.id):
        export_run(store, run, workdir / f"{run}.loupe")
        export_run(store, run, workdir / f"{run}.jsonl")
    shown = [
        command("show", fork.id, "--json"),
        command("compare", done.run_id, fork.id),
        command("compare", done.run_id, fork.id, "--json"),
    ]
    assert secret.in_text(*(one.out + one.err for one in shown)) == []
    assert secret.in_folder(workdir) == []


# --- the command line -------------------------------------------------------------------------------------------------


def test_nothing_of_a_command_line_and_of_a_crash(secret: Canaries, workdir: Path) -> None:
    import subprocess

    (workdir / "program.py").write_text(
        "import os, signal, sys\n"
        "import agentloupe as loupe\n"
        "@loupe.tool(effect='read')\n"
        "def look(x): return {'password': x}\n"
        "with loupe.recording('r'):\n"
        "    for _ in range(50): look(sys.argv[2])\n"
        "    look({'token': os.environ['MY_TOKEN']})\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n",
        "utf-8",
    )
    words = ["--api-key", secret.word("option"), f"--token={secret.word('option with =')}", secret.key("word")]
    import os

    done = subprocess.run(
        [sys.executable, "-m", "agentloupe", "run", "--", "python", "program.py", secret.key("first word"), *words],
        env={**os.environ, "MY_TOKEN": secret.word("variable"), "TMPDIR": str(workdir)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode != 0
    assert list(workdir.rglob("*.db"))
    assert secret.in_text(done.stdout, done.stderr) == []
    (workdir / "program.py").unlink()
    assert secret.in_folder(workdir) == []


# --- imports ----------------------------------------------------------------------------------------------------------


def _foreign(s: Canaries) -> dict[str, Any]:
    request = {"model": "m", "messages": _messages(s, "request"), "api_key": s.word("request")}
    call = {"name": "login", "arguments": json.dumps({"password": s.word("arguments")})}
    return {
        "messages": [
            *request["messages"],
            {"role": "assistant", "content": None, "tool_calls": [{"id": "t", "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": "t", "content": f"ok {s.key('tool result')}"},
            {"role": "assistant", "content": "done", "extra": {"access_token": s.word("extra")}},
        ]
    }


def test_nothing_of_what_is_imported(secret: Canaries, workdir: Path, command: Command) -> None:
    file = workdir / "chat.json"
    file.write_text(json.dumps(_foreign(secret)), "utf-8")
    said = command.ok("import", file)
    assert "credentials were removed" in said
    file.unlink()
    raw = workdir / "raw.json"
    command.ok("export", "last", "-o", raw, "--raw")
    assert json.loads(raw.read_text("utf-8"))["messages"][1]["role"] == "user"
    assert secret.in_folder(workdir) == []


def test_an_import_may_keep_what_it_holds(secret: Canaries, workdir: Path, command: Command) -> None:
    file = workdir / "chat.json"
    file.write_text(json.dumps(_foreign(secret)), "utf-8")
    said = command.ok("import", "--keep-secrets", file)
    assert "removed" not in said
    raw = workdir / "raw.json"
    command.ok("export", "last", "-o", raw, "--raw")
    assert raw.read_bytes() == file.read_bytes()
    file.unlink()
    raw.unlink()
    loupe.open_store().close()
    assert len(secret.in_folder(workdir)) >= 6, "the search sees into the database"


def test_the_search_finds_what_is_compressed_encoded_or_cut_in(secret: Canaries, workdir: Path) -> None:
    import base64

    import zstandard

    packed = zstandard.ZstdCompressor().compress(secret.key("compressed").encode() * 50)
    (workdir / "a").write_bytes(b"before" + packed + b"behind")
    for lead in range(3):
        text = "x" * lead + secret.word(f"base 64 at {lead}")
        (workdir / f"b{lead}").write_bytes(base64.b64encode(text.encode()))
    secret.key("nowhere")
    places = ["compressed", *(f"base 64 at {lead}" for lead in range(3))]
    assert sorted(secret.in_folder(workdir)) == sorted(places)
