"""T10 at the doors: no secret in what pytest and JUnit show, in what the doctor says, in messages about files of
expected differences, in streams that broke, and in recordings of programs that wrap nothing."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import agentloupe as loupe
from agentloupe.engine.expectations import read_expected
from agentloupe.providers.loopback import HttpReply, HttpRequest, serve
from agentloupe.verbs.clients import wrapping_clients
from agentloupe.verbs.replaying import replay
from agentloupe.words.errors import UsageError
from tests.canaries import Canaries
from tests.cli.driving import Command

AGENT = """
import json, os
import agentloupe as loupe

PLANTED = json.loads(os.environ["PLANTED"])

class Refused(Exception):
    def __init__(self, message, token):
        super().__init__(message)
        self.token = token

@loupe.tool(effect="read")
def look_up(order, password):
    return {"order": order, "api_key": PLANTED["result"], "text": f"the key is {PLANTED['text']}"}

@loupe.tool(effect="read")
def refuses(order):
    raise Refused(f"401 for {PLANTED['message']}", PLANTED["attribute"])

@loupe.agent
def support(order, api_key=None):
    for name in PLANTED["asked"]:
        look_up(order=f"{order} with {PLANTED[name]}", password=PLANTED["argument"])
    try:
        refuses(order=1)
    except Refused:
        pass
    return {"token": PLANTED["answer"], "text": PLANTED["said"]}

if __name__ == "__main__":
    support("A-1", api_key=PLANTED["input"])
"""
TESTS = """
import pytest, my_agent
def test_fixture(replay):
    replay("recordings/refund.loupe", my_agent.support, args=["A-1"], kwargs={"api_key": my_agent.PLANTED["input"]})
@pytest.mark.loupe
def test_own():
    my_agent.support("A-2", api_key=my_agent.PLANTED["input"])
"""


@pytest.fixture
def secret() -> Canaries:
    return Canaries()


def _planted(s: Canaries, when: str, asked: list[str]) -> str:
    words = {name: s.word(f"{when}: {name}") for name in ("result", "attribute", "argument", "answer", "input")}
    keys = {name: s.key(f"{when}: {name}") for name in ("text", "message", "said", "first", "second")}
    return json.dumps({**words, **keys, "asked": asked})


def test_nothing_in_what_a_test_session_shows(
    secret: Canaries, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n")
    pytester.makepyfile(my_agent=AGENT, test_agents=TESTS)
    for when, asked, mode, outcome in (
        ("recorded", ["first"], "once", {"passed": 2}),
        ("changed", ["first", "second"], "none", {"failed": 2}),
        ("anew", ["first", "second"], "all", {"passed": 2}),
    ):
        monkeypatch.setenv("PLANTED", _planted(secret, when, asked))
        done = pytester.runpytest_subprocess(
            "-p", "agentloupe.pytest_plugin", f"--record-mode={mode}", f"--junitxml={when}.xml", "-v", "-rA"
        )
        done.assert_outcomes(**outcome)
        assert secret.in_text(done.stdout.str(), done.stderr.str()) == []
    assert len(list(pytester.path.rglob("*.loupe"))) == 2
    assert (pytester.path / "changed.xml").read_text().count("last agreeing event") == 2
    assert secret.in_folder(pytester.path) == []


@pytest.mark.parametrize("as_json", [False, True])
def test_nothing_in_what_the_doctor_says(
    secret: Canaries,
    workdir: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    as_json: bool,
) -> None:
    # The second run asks for more than the first, so that a difference is told.
    grows = AGENT.replace('PLANTED["asked"]', '["first", *["second"] * ("LOUPE_WATCHED" in os.environ)]')
    (workdir / "my_agent.py").write_text(grows.replace('"LOUPE_WATCHED" in os.environ', "not os.path.exists('ran')"))
    with (workdir / "my_agent.py").open("a") as out:
        out.write("    open('ran', 'w').close()\n")
    monkeypatch.setenv("PLANTED", _planted(secret, "doctor", []))
    done = Command(capfd)("doctor", *(["--json"] if as_json else []), "my_agent.py")
    assert done.code == 1
    assert "the replay parts" in done.out
    assert secret.in_text(done.out, done.err) == []
    assert secret.in_folder(workdir) == []


def test_nothing_in_messages_about_expected_differences(secret: Canaries, workdir: Path) -> None:
    def worker() -> int:
        return loupe.now().year

    done = loupe.record(worker)
    report = replay(done.run_id, worker, expect=[{"kind": "extra", "name": f"look {secret.key('name')}"}])
    assert report.divergence is not None
    assert report.divergence.kind == "not_as_expected"
    assert secret.in_text(report.text(), json.dumps(report.as_json())) == []
    file = workdir / "expected.json"
    for entry in (
        [{"kind": secret.key("kind")}],
        [{"kind": "extra", secret.key("field"): 1}],
        [{"kind": "extra", "place": f"$.{secret.key('place')}["}],
        [{"kind": "extra", "times": secret.key("times")}],
        {"token": secret.word("no list")},
    ):
        file.write_text(json.dumps(entry))
        with pytest.raises(UsageError) as wrong:
            read_expected(file)
        assert secret.in_text(str(wrong.value), wrong.value.hint or "") == []
    file.write_text(f'[{{"kind": "{secret.key("broken JSON")}')
    with pytest.raises(UsageError) as wrong:
        read_expected(file)
    assert secret.in_text(str(wrong.value)) == []


class Breaking:
    """Streams text with secrets in small parts, and breaks off in the middle of a second one."""

    def __init__(self, s: Canaries) -> None:
        self.text = f"use {s.key('stream')} or password='{s.word('quoted')}' and go on. {s.key('cut')}"

    def __call__(self, request: HttpRequest) -> HttpReply:
        return HttpReply(200, self._parts(), {"content-type": "text/event-stream"})

    def _parts(self) -> Iterator[bytes]:
        for i in range(0, len(self.text) - 8, 3):
            choice = {"index": 0, "delta": {"content": self.text[i : i + 3]}}
            yield f"data: {json.dumps({'id': 'c', 'choices': [choice]})}\n\n".encode()
        raise ConnectionResetError("the server is gone")


@pytest.mark.parametrize("covered", [True, False], ids=["by its transport", "by the launcher's"])
def test_nothing_of_a_stream_that_breaks(secret: Canaries, workdir: Path, covered: bool) -> None:
    heard: list[str] = []

    def worker(url: str) -> str:
        transport: Any = loupe.http_transport() if covered else None
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": secret.key("content")}]}
        with httpx.Client(transport=transport, trust_env=False) as client:
            try:
                with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
                    for line in response.iter_lines():
                        heard.append(line)
            except httpx.RemoteProtocolError as error:
                error.add_note(secret.key("note of an error"))
                return type(error).__name__
        return "whole"

    with serve(Breaking(secret)) as server, wrapping_clients():
        done = loupe.record(worker, server.url)
        assert done.result == "RemoteProtocolError"
        assert len(heard) > 10
        report = replay(done.run_id, worker)
    assert report.verdict == "pass", report.text()
    (step,) = [one for one in loupe.open_store().steps(done.run_id) if one.kind == "llm"]
    assert step.attrs["stream"] == "broken"
    assert secret.in_text(report.text(), json.dumps(report.as_json())) == []
    assert secret.in_folder(workdir) == []


def test_nothing_of_raw_requests(secret: Canaries, workdir: Path) -> None:
    def app(request: HttpRequest) -> HttpReply:
        said = {"candidates": [{"content": {"parts": [{"text": f"use {secret.key('answer')}"}]}}]}
        return HttpReply(
            200, json.dumps(said).encode(), {"content-type": "application/json", "set-cookie": "a=" + cookie}
        )

    def worker(url: str) -> list[int]:
        named = urllib.parse.urlencode({"key": keys[-1], "alt": "json"})
        ask = {"contents": [{"parts": [{"text": f"my key is {secret.key('content')}"}]}]}
        with httpx.Client(trust_env=False) as client:
            first = client.post(f"{url}/v1beta/models/g:generateContent?{named}", json=ask)
            headers = {"x-goog-api-key": keys[-1], "authorization": f"Bearer {keys[-1]}"}
            listed = client.get(f"{url}/v1beta/models?{named}", headers=headers)
        return [first.status_code, listed.status_code]

    cookie = secret.word("cookie")
    keys = [secret.word("key in a URL")]
    with serve(app) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOUPE_MODEL_URLS", server.url)
        with wrapping_clients():
            done = loupe.record(worker, server.url)
            keys.append("placeholder-of-a-replay")
            report = replay(done.run_id, worker)
    assert report.verdict == "pass", report.text()
    kinds = [one.kind for one in loupe.open_store().steps(done.run_id) if one.kind != "agent"]
    assert kinds == ["llm", "other"]
    assert secret.in_folder(workdir) == []
