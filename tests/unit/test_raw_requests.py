"""Raw requests to models of programs that wrap nothing: recorded where httpx, httpx2, requests and aiohttp send, and nowhere else."""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.providers import transports
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.providers.model_urls import asks_with, at_model, may_ask
from agentloupe.store import open_url
from agentloupe.verbs.clients import wrapping_clients
from agentloupe.verbs.forkchild import fork_command
from agentloupe.verbs.isolated import replay_command
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.resuming import resume_command
from agentloupe.verbs.running import run_recorded

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
DELTAS = [
    b"data: " + json.dumps({"id": "c", "choices": [{"index": 0, "delta": {"content": word}}]}).encode() + b"\n\n"
    for word in ("The", " tide", " turns")
] + [b"data: [DONE]\n\n"]
LINES = [json.dumps({"model": "m", "message": {"content": w}, "done": w == "!"}).encode() + b"\n" for w in ("hi", "!")]


class Server:
    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[HttpRequest] = []

    def answer(self, request: HttpRequest) -> HttpReply:
        self.asked.append(request)
        body = json.loads(request.body or b"{}")
        if request.path.endswith("/api/chat"):
            return HttpReply(200, iter(LINES), {"content-type": "application/x-ndjson"})
        if body.get("stream"):
            return HttpReply(200, iter(DELTAS), {"content-type": "text/event-stream"})
        said = {"role": "assistant", "content": f"the {len(self.asked)}. answer"}
        return json_reply({"model": "m-1", "choices": [{"index": 0, "message": said, "finish_reason": "stop"}]})


@pytest.fixture
def server() -> Iterator[Server]:
    made: list[Server] = []
    with serve(lambda request: made[0].answer(request)) as running:
        made.append(Server(running.url))
        yield made[0]


@pytest.fixture
def _covered() -> Iterator[None]:
    with wrapping_clients():
        yield


def _sync(library: str, url: str, body: Any, method: str = "POST") -> Callable[[], Any]:
    module = importlib.import_module(library)

    def worker() -> Any:
        client = module.Client(trust_env=False, verify=False)
        with client, client.stream(method, url, json=body) as response:
            return [response.status_code, b"".join(response.iter_bytes()).hex()]

    return worker


def _async(library: str, url: str, body: Any, method: str = "POST") -> Callable[[], Any]:
    module = importlib.import_module(library)

    async def worker() -> Any:
        client = module.AsyncClient(trust_env=False, verify=False)
        async with client, client.stream(method, url, json=body) as response:
            return [response.status_code, b"".join([part async for part in response.aiter_bytes()]).hex()]

    return worker


def _requests(_: str, url: str, body: Any, method: str = "POST") -> Callable[[], Any]:
    import requests

    def worker() -> Any:
        with requests.Session() as session:
            session.trust_env = False
            response = session.request(method, url, json=body, stream=True)
            return [response.status_code, b"".join(response.iter_content(None)).hex()]

    return worker


def _aiohttp(_: str, url: str, body: Any, method: str = "POST") -> Callable[[], Any]:
    import aiohttp

    async def worker() -> Any:
        async with aiohttp.ClientSession() as session, session.request(method, url, json=body) as response:
            return [response.status, (await response.read()).hex()]

    return worker


WAYS: dict[str, tuple[str, Callable[..., Callable[[], Any]]]] = {
    "httpx": ("httpx", _sync),
    "httpx async": ("httpx", _async),
    "httpx2": ("httpx2", _sync),
    "httpx2 async": ("httpx2", _async),
    "requests": ("requests", _requests),
    "aiohttp": ("aiohttp", _aiohttp),
}


def _agent(way: str, url: str, body: Any, method: str = "POST") -> Callable[[], Any]:
    library, make = WAYS[way]
    pytest.importorskip(library)
    return make(library, url, body, method)


def _bare(agent: Callable[[], Any]) -> Any:
    made = agent()
    return asyncio.run(made) if asyncio.iscoroutine(made) else made


def _steps(run_id: str) -> list[Any]:
    return [step for step in loupe.open_store().steps(run_id) if step.kind != "agent"]


ASKED: dict[str, tuple[str, Any, str]] = {
    "whole": ("/v1/chat/completions", CHAT, "chat m"),
    "stream": ("/v1/chat/completions", {**CHAT, "stream": True}, "chat m"),
    "without a model": ("/v1/chat/completions", {"messages": CHAT["messages"]}, "chat"),
    "ollama": ("/api/chat", CHAT, "chat m"),
    "gemini": ("/v1beta/models/gemini-x:generateContent", {"contents": [{"parts": [{"text": "hi"}]}]}, "chat gemini-x"),
}


@pytest.mark.usefixtures("workdir", "_covered")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("asked", ASKED)
def test_a_request_to_a_model_is_recorded_and_comes_back(server: Server, way: str, asked: str) -> None:
    path, body, name = ASKED[asked]
    agent = _agent(way, server.url + path, body)
    done = loupe.record(agent)
    (step,) = _steps(done.run_id)
    assert (step.kind, step.name, step.status) == ("llm", name, "ok")
    assert loupe.open_store().recording(done.run_id).body(step.input_digest) == body
    assert len(server.asked) == 1
    report = replay(done.run_id, agent)
    assert report.passed, report
    assert len(server.asked) == 1
    assert _bare(agent)[0] == 200
    assert len(server.asked) == 2  # outside of a run it is asked as ever


@pytest.mark.usefixtures("workdir", "_covered")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("path", "body", "method"),
    [
        ("/v1/orders", CHAT, "POST"),
        ("/v1/messages", {"to": "+49", "text": "your code"}, "POST"),
        ("/v1/chat/completions", None, "GET"),
    ],
)
def test_any_other_request_passes_untouched(server: Server, way: str, path: str, body: Any, method: str) -> None:
    done = loupe.record(_agent(way, server.url + path, body, method))
    assert done.result[0] == 200
    assert _steps(done.run_id) == []


@pytest.mark.usefixtures("_covered")
@pytest.mark.parametrize("way", WAYS)
def test_addresses_of_ones_own_are_models_too(
    server: Server, way: str, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del workdir
    monkeypatch.setenv("LOUPE_MODEL_URLS", f"elsewhere.example, {server.url}/mine")
    with wrapping_clients():
        agent = _agent(way, f"{server.url}/mine/answer", {"q": "why"})
        done = loupe.record(agent)
        (step,) = _steps(done.run_id)
        assert (step.kind, step.name) == ("other", "POST /mine/answer")
        assert replay(done.run_id, agent).passed
        assert _steps(loupe.record(_agent(way, f"{server.url}/other", {"q": "why"})).run_id) == []


@pytest.mark.usefixtures("workdir", "_covered")
def test_what_a_recorded_client_sends_is_not_recorded_twice(server: Server) -> None:
    openai = importlib.import_module("openai")
    import requests

    def worker() -> list[str]:
        with openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0) as client:
            whole = client.chat.completions.create(**CHAT).choices[0].message.content
            stream = client.chat.completions.create(**CHAT, stream=True)
            parts = "".join(part.choices[0].delta.content or "" for part in stream)
        with requests.Session() as session:
            session.mount("http://", loupe.requests_adapter())
            mounted = session.post(f"{server.url}/v1/chat/completions", json=CHAT).json()
        module = importlib.import_module("httpx")
        with module.Client(transport=loupe.http_transport(module.HTTPTransport(verify=False))) as given:
            through = given.post(f"{server.url}/v1/chat/completions", json=CHAT).json()
        return [whole, parts, mounted["model"], through["model"]]

    done = loupe.record(worker)
    assert [step.kind for step in _steps(done.run_id)] == ["llm"] * 4
    assert replay(done.run_id, worker).passed


@pytest.mark.usefixtures("workdir")
def test_everything_is_put_back() -> None:
    from requests.adapters import HTTPAdapter

    httpx = importlib.import_module("httpx")
    aiohttp = importlib.import_module("aiohttp")

    def senders() -> list[Any]:
        return [httpx.HTTPTransport.handle_request, HTTPAdapter.send, aiohttp.ClientSession._request]

    before = senders()
    with wrapping_clients():
        assert all(now is not then for now, then in zip(senders(), before, strict=True))
        transports.install()
    assert senders() == before


@pytest.mark.parametrize(
    ("url", "known"),
    [
        ("https://api.openai.com/v1/models", True),
        ("https://eu.api.openai.com/v1/files", True),
        ("https://my-place.openai.azure.com/openai/deployments/d/chat/completions?api-version=1", True),
        ("https://api.anthropic.com/v1/messages", True),
        ("https://generativelanguage.googleapis.com/v1beta/models/g:generateContent", True),
        ("https://europe-west4-aiplatform.googleapis.com/v1/projects/p/locations/l:predict", True),
        ("https://bedrock-runtime.eu-central-1.amazonaws.com/model/m/converse", True),
        *((f"https://{host}/v1/x", True) for host in ("api.mistral.ai", "api.cohere.com", "api.groq.com", "api.x.ai")),
        *((f"https://{host}/x", True) for host in ("api.deepseek.com", "api.together.xyz", "api.fireworks.ai")),
        ("https://openrouter.ai/api/v1/chat/completions", True),
        ("https://openrouter.ai/docs", False),
        ("https://notapi.openai.com/v1", False),
        ("https://api.openai.com.evil.example/v1", False),
        ("https://example.org/api.openai.com/v1", False),
        ("https://oauth2.googleapis.com/token", False),
        ("https://s3.eu-central-1.amazonaws.com/model/m/converse", False),
        ("http://127.0.0.1:8000/v1/chat/completions", False),
    ],
)
def test_hosts_of_well_known_models(url: str, known: bool) -> None:
    assert at_model(url) is known


@pytest.mark.parametrize(
    ("place", "url", "below"),
    [
        ("llm.example", "https://llm.example/any", True),
        ("llm.example", "https://LLM.example:8443/any", True),
        ("llm.example:8080", "http://llm.example:8080/v1", True),
        ("llm.example:8080", "http://llm.example:9090/v1", False),
        ("https://llm.example/api", "https://llm.example/api/x", True),
        ("https://llm.example/api/", "https://llm.example/api", True),
        ("https://llm.example/api", "https://llm.example/apis", False),
        ("https://llm.example/api", "http://llm.example/api", False),
        ("llm.example", "https://sub.llm.example/any", False),
    ],
)
def test_an_address_of_ones_own_ends_at_a_boundary(place: str, url: str, below: bool) -> None:
    assert at_model(url, [place]) is below


@pytest.mark.parametrize(
    ("path", "body", "asks"),
    [
        *((path, {"model": "m"}, True) for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses")),
        *((path, {"model": "m"}, True) for path in ("/api/chat", "/api/generate", "/v1/embeddings", "/v2/rerank")),
        ("/completion", {"prompt": "x"}, True),
        ("/openai/deployments/d/embeddings", {"input": "x"}, True),
        ("/model/a.b-v1%3A0/converse", {"system": []}, True),
        ("/v1/messages", {"to": "you"}, False),
        ("/v1/messages", ["model"], False),
        ("/v1/responses", {"form": 1}, False),
        ("/v1/orders", {"model": "T"}, False),
    ],
)
def test_paths_and_bodies_of_models(path: str, body: Any, asks: bool) -> None:
    url = f"http://localhost:1{path}"
    assert (may_ask("POST", url) and asks_with(url, json.dumps(body).encode())) is asks
    assert not may_ask("GET", url)


def test_a_body_that_is_no_json_asks_nothing() -> None:
    assert not asks_with("http://localhost/v1/messages", b"\xff")
    assert not asks_with("http://localhost/v1/messages", None)


PROGRAM = """
import asyncio, sys, aiohttp, httpx, requests
url = sys.argv[1]
ask = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
def said(response):
    return response.json()["choices"][0]["message"]["content"]
print(said(httpx.post(url + "/v1/chat/completions", json=ask)))
print(said(requests.post(url + "/v1/chat/completions", json=ask)))
async def later():
    async with httpx.AsyncClient() as client:
        async with client.stream("POST", url + "/v1/chat/completions", json={**ask, "stream": True}) as response:
            async for line in response.aiter_lines():
                print(line)
    async with aiohttp.ClientSession() as session:
        async with session.post(url + "/v1/chat/completions", json={**ask, "stream": True}) as response:
            async for line in response.content:
                print(line.decode())
asyncio.run(later())
print(requests.post(url + "/mine", json={"q": 1}).status_code)
"""


def test_a_program_without_a_line_of_loupe(server: Server, workdir: Path) -> None:
    (workdir / "raw.py").write_text(PROGRAM)
    db = str(workdir / "x.db")
    bare = subprocess.run([sys.executable, "raw.py", server.url], capture_output=True, check=True).stdout
    server.asked.clear()
    with (workdir / "said").open("w+b") as said:
        ran = run_recorded(["python", "raw.py", server.url], db=db, output=said, model_urls=[f"{server.url}/mine"])
        said.seek(0)
        assert said.read() == bare
    assert (ran.code, ran.models, len(server.asked)) == (0, True, 5)
    store = open_url(db, create=False)
    kinds = [(step.kind, step.name) for step in store.steps(ran.runs[0]) if step.kind != "agent"]
    store.close()
    assert kinds == [("llm", "chat m")] * 4 + [("other", "POST /mine")]
    report = replay_command(ran.runs[0], ["python", "raw.py", server.url], store=db)
    assert report.passed, report
    assert len(server.asked) == 5


KILLED = """
import os, signal, sys, httpx
url = sys.argv[1]
ask = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
print(httpx.post(url + "/mine", json={"q": 1}).status_code)
if os.environ.get("DIES"):
    os.kill(os.getpid(), signal.SIGKILL)
print(httpx.post(url + "/v1/chat/completions", json=ask).status_code)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kills a process")
def test_addresses_of_ones_own_are_remembered_for_resume_and_fork(
    server: Server, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever goes on with the run, or forks it, gives no addresses: what was asked there is not asked again."""
    (workdir / "raw.py").write_text(KILLED)
    command = ["python", "raw.py", server.url]
    db = str(workdir / "x.db")
    monkeypatch.setenv("DIES", "yes")
    killed = run_recorded(command, db=db, model_urls=[f"{server.url}/mine"])
    assert killed.code != 0
    assert [request.path for request in server.asked] == ["/mine"]
    monkeypatch.delenv("DIES")
    with closing(open_url(db, create=False)) as store:
        (run,) = [run.id for run in store.runs()]
    resumed = resume_command(run, command, store=db)
    assert resumed.exit_code == 0
    assert [request.path for request in server.asked] == ["/mine", "/v1/chat/completions"]
    with closing(open_url(db, create=False)) as store:
        (step,) = [step.idx for step in store.steps(run) if step.kind == "llm"]
        made = fork_command(run, command, from_step=step, store=store)
        assert [one.status for one in made.candidates] == ["ok"]
    assert [request.path for request in server.asked] == ["/mine", *["/v1/chat/completions"] * 2]
