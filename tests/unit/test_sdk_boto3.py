"""boto3's client for Bedrock against a server that plays it: recorded with `wrap` and without a line of code, and played again."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.ports import codecs
from agentloupe.providers import transports
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.verbs.clients import wrapping_clients
from agentloupe.verbs.replaying import replay
from agentloupe.words.errors import UsageError
from agentloupe.words.jsontext import dumps
from tests.bedrock_support import KIND, claude, failure, nova
from tests.stream_support import answer_of, model_step, stored_bytes

pytest.importorskip("boto3", reason="needs boto3 (make test-sdk)")

pytestmark = [  # nobody closes a client of boto3
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
boto3: Any = importlib.import_module("boto3")
Config: Any = importlib.import_module("botocore.config").Config
ClientError: Any = importlib.import_module("botocore.exceptions").ClientError

KEY, SECRET, TOKEN = "canary-access-key", "canary-secret-access-key", "canary-session-token"
NOVA, CLAUDE = "amazon.nova-lite-v1:0", "anthropic.claude-v1:0"
MESSAGES: list[Any] = [{"role": "user", "content": [{"text": "hi"}]}]
SAID = {"role": "assistant", "content": [{"text": "hello"}]}
WHOLE: dict[str, Any] = {
    "output": {"message": SAID},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5},
    "metrics": {"latencyMs": 12},
}
OF_CLAUDE: dict[str, Any] = {
    "id": "msg",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "stop_sequence": None,
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "output_tokens": 2},
}
BODY = json.dumps(
    {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
)
ERROR = "x-amzn-errortype"


class Bedrock:
    """What the server answers: errors first, as many as there are, then what each path is for."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[HttpRequest] = []
        self.errors: list[HttpReply] = []
        self.frames: dict[str, list[bytes]] = {
            "converse-stream": nova(["It ", "rains"]),
            "invoke-with-response-stream": claude(["It ", "rains"]),
        }
        self.hold: threading.Event | None = None

    def answer(self, request: HttpRequest) -> HttpReply:
        self.asked.append(request)
        if self.errors:
            return self.errors.pop(0)
        does = request.path.rpartition("/")[2]
        if does in self.frames:
            return HttpReply(200, self._pieces(self.frames[does]), {"content-type": KIND})
        return json_reply(OF_CLAUDE if does == "invoke" else WHOLE if does == "converse" else {"of": request.path})

    def _pieces(self, frames: list[bytes]) -> Iterator[bytes]:
        for n, frame in enumerate(frames):
            if n == 1 and self.hold is not None:
                assert self.hold.wait(30)
            yield frame

    def client(self, service: str = "bedrock-runtime", **retries: Any) -> Any:
        """A client of boto3 that asks this server."""
        config = Config(retries=retries or {"total_max_attempts": 1}, s3={"addressing_style": "path"})
        keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "aws_session_token": TOKEN}
        return boto3.client(service, region_name="us-east-1", endpoint_url=self.url, config=config, **keys)


@pytest.fixture
def bedrock(workdir: Path) -> Iterator[Bedrock]:
    playing = Bedrock()
    with serve(playing.answer) as running:
        playing.url = running.url
        yield playing


def wrapped(bedrock: Bedrock, **retries: Any) -> Any:
    return loupe.wrap(bedrock.client(**retries))


@contextmanager
def _covered() -> Generator[None]:
    with wrapping_clients():
        yield


def converse(client: Any) -> Any:
    return client.converse(modelId=NOVA, messages=MESSAGES, inferenceConfig={"maxTokens": 9})


def told(response: Any) -> Any:
    """An answer without what the server's clock says."""
    about = response["ResponseMetadata"]
    headers = {name: value for name, value in about["HTTPHeaders"].items() if name != "date"}
    return {**response, "ResponseMetadata": {**about, "HTTPHeaders": headers}}


WAYS: dict[str, Callable[[Any], Any]] = {
    "converse": lambda client: told(converse(client)),
    "converse-stream": lambda client: list(client.converse_stream(modelId=NOVA, messages=MESSAGES)["stream"]),
    "invoke": lambda client: client.invoke_model(modelId=CLAUDE, body=BODY)["body"].read().decode(),
    "invoke-with-response-stream": lambda client: [
        event["chunk"]["bytes"].decode()
        for event in client.invoke_model_with_response_stream(modelId=CLAUDE, body=BODY)["body"]
    ],
}
NAMES = {"converse": f"chat {NOVA}", "converse-stream": f"stream {NOVA}"}
NAMES |= {"invoke": f"invoke {CLAUDE}", "invoke-with-response-stream": f"stream {CLAUDE}"}
TOKENS = {"converse": (3, 2), "invoke": (3, 2), "converse-stream": (11, 6), "invoke-with-response-stream": (9, 7)}


@pytest.mark.parametrize("covered", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_call_is_one_step_and_comes_back(bedrock: Bedrock, way: str, covered: bool) -> None:
    """Wrapped; and covered as under `agentloupe run`, where the client is botocore's own; both at once count once."""
    bare = WAYS[way](bedrock.client())
    for make in (wrapped, Bedrock.client) if covered else (wrapped,):
        bedrock.asked.clear()

        def agent(make: Any = make) -> Any:
            return WAYS[way](make(bedrock))

        with _covered() if covered else threading.Lock():
            done = loupe.record(agent)
            assert done.result == bare
            step = model_step(done.run_id)
            assert (step.name, step.status) == (NAMES[way], "ok")
            assert (step.input_tokens, step.output_tokens) == TOKENS[way]
            assert [one["status"] for one in step.attrs["tries"]] == [200]
            assert step.attrs.get("stream") == ("complete" if "stream" in way else None)
            report = replay(done.run_id, agent)
            assert report.passed, report.text()
            assert len(bedrock.asked) == 1
            assert bedrock.asked[0].headers["authorization"].startswith("AWS4-HMAC-SHA256 ")


def test_a_stream_of_converse_has_its_whole_answer(bedrock: Bedrock) -> None:
    bedrock.frames["converse-stream"] = nova(["It ", "rains"], arguments=['{"place":', '"Bergen"}'])
    done = loupe.record(lambda: len(WAYS["converse-stream"](wrapped(bedrock))))
    content = answer_of(done.run_id)["output"]["message"]["content"]
    assert [block["text"] for block in content if "text" in block] == ["It rains"]
    assert [block["toolUse"]["input"] for block in content if "toolUse" in block] == [{"place": "Bergen"}]
    assert stored_bytes(done.run_id) == b"".join(bedrock.frames["converse-stream"])


def error(status: int, kind: str, said: str = "no") -> HttpReply:
    return HttpReply(status, json.dumps({"message": said}).encode(), {"content-type": "application/json", ERROR: kind})


@pytest.mark.parametrize("mode", ["legacy", "standard", "adaptive"])
def test_tries_of_botocore_are_tries_of_one_step(bedrock: Bedrock, monkeypatch: Any, mode: str) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    bedrock.errors = [error(429, "ThrottlingException"), error(503, "ServiceUnavailableException")]

    def agent() -> Any:
        return told(converse(wrapped(bedrock, mode=mode, total_max_attempts=3)))

    done = loupe.record(agent)
    assert done.result["ResponseMetadata"]["RetryAttempts"] == 2
    assert [one["status"] for one in model_step(done.run_id).attrs["tries"]] == [429, 503, 200]
    report = replay(done.run_id, agent)
    assert report.passed, report.text()
    assert len(bedrock.asked) == 3


@pytest.mark.parametrize("mode", ["legacy", "standard", "adaptive"])
@pytest.mark.parametrize("way", WAYS)
def test_an_error_has_its_class_and_its_text_again(bedrock: Bedrock, monkeypatch: Any, mode: str, way: str) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)

    def agent() -> Any:
        client = wrapped(bedrock, mode=mode, total_max_attempts=2)
        try:
            WAYS[way](client)
        except client.exceptions.ThrottlingException as error:
            return [type(error).__name__, isinstance(error, ClientError), str(error), error.response["Error"]]
        return None

    bedrock.errors = [error(429, "ThrottlingException", "slow down")] * 2
    bare = loupe.record(agent)
    assert bare.result[:2] == ["ThrottlingException", True]
    assert "slow down" in bare.result[2]
    step = model_step(bare.run_id)
    assert step.attrs["status_code"] == 429
    assert [one["status"] for one in step.attrs["tries"]] == [429, 429]
    report = replay(bare.run_id, agent)
    assert report.passed, report.text()
    assert len(bedrock.asked) == 2


def test_a_connection_that_fails_fails_again(bedrock: Bedrock) -> None:
    bedrock.url = "http://127.0.0.1:1"

    def agent() -> Any:
        try:
            converse(wrapped(bedrock))
        except Exception as error:
            return [type(error).__name__, str(error)]
        return None

    done = loupe.record(agent)
    assert done.result[0] == "EndpointConnectionError"
    assert [one["error"] for one in model_step(done.run_id).attrs["tries"]] == ["EndpointConnectionError"]
    report = replay(done.run_id, agent)
    assert report.passed, report.text()
    (listed,) = [row for row in loupe.open_store().runs() if row.id == done.run_id]
    assert listed.coverage != "limited_replay"


def _connection_errors() -> dict[str, Any]:
    """As botocore raises them: with urllib3's own exception, and the request that it has signed."""
    known: Any = importlib.import_module("botocore.exceptions")
    sent: Any = importlib.import_module("botocore.awsrequest")
    below: Any = importlib.import_module("urllib3.exceptions")
    pool: Any = importlib.import_module("urllib3").HTTPSConnectionPool("127.0.0.1", 1)
    conn = sent.AWSHTTPSConnection("127.0.0.1", 1)
    url = "https://127.0.0.1:1/"
    request = sent.AWSRequest("POST", url, data=b"{}", headers={"authorization": "AWS4-HMAC-SHA256 x"}).prepare()
    return {
        "refused": known.EndpointConnectionError(endpoint_url=url, error=below.NewConnectionError(conn, "refused")),
        "slow": known.ConnectTimeoutError(endpoint_url=url, error=below.ConnectTimeoutError(conn, "timed out")),
        "late": known.ReadTimeoutError(endpoint_url=url, error=below.ReadTimeoutError(pool, "/", "timed out")),
        "closed": known.ConnectionClosedError(endpoint_url=url, request=request, error=below.ProtocolError("gone")),
        "tls": known.SSLError(endpoint_url=url, error=below.SSLError("no shared cipher")),
        "proxy": known.ProxyConnectionError(proxy_url=url, error=below.ProxyError("no", OSError(1, "no"))),
    }


@pytest.mark.parametrize("name", list(_connection_errors()))
def test_connection_errors_come_back_without_what_is_live(name: str) -> None:
    error = _connection_errors()[name]
    encoded = codecs.encode(error)
    assert encoded.unrecordable == ()
    back: Any = codecs.decode(encoded.wire)
    assert (type(back), str(back), back.args) == (type(error), str(error), error.args)
    assert back.kwargs.keys() == error.kwargs.keys()
    assert repr(back.kwargs["error"]) == repr(error.kwargs["error"])
    assert b"AWS4" not in dumps(encoded.wire)


def test_a_run_that_fails_by_its_connection_is_replayed(bedrock: Bedrock) -> None:
    bedrock.url = "http://127.0.0.1:1"

    def agent() -> Any:
        return converse(wrapped(bedrock))

    with pytest.raises(Exception, match="Could not connect"):
        loupe.record(agent)
    (run,) = loupe.open_store().runs()
    assert (run.coverage, run.coverage_notes) == ("full", ())
    report = replay(run.id, agent)
    assert report.passed, report.text()


def test_a_connection_that_is_closed_leaves_no_signature(bedrock: Bedrock) -> None:
    """botocore's exception holds the request, signed."""

    listening = importlib.import_module("socket").create_server(("127.0.0.1", 0))
    seen: list[bytes] = []

    def close() -> None:
        peer = listening.accept()[0]
        seen.append(peer.recv(65536))
        peer.close()

    thread = threading.Thread(target=close)
    thread.start()
    bedrock.url = f"http://127.0.0.1:{listening.getsockname()[1]}"

    def agent() -> Any:
        try:
            converse(wrapped(bedrock))
        except Exception as error:
            return [type(error).__name__, getattr(error, "request", None) is not None]
        return None

    done = loupe.record(agent)
    thread.join()
    listening.close()
    assert done.result == ["ConnectionClosedError", True]
    assert b"AWS4-HMAC-SHA256" in seen[0]
    report = replay(done.run_id, agent)
    assert report.passed, report.text()
    assert not secrets_in(done.run_id, ["Signature="])
    (listed,) = [row for row in loupe.open_store().runs() if row.id == done.run_id]
    assert listed.coverage != "limited_replay"


def secrets_in(run_id: str, further: list[str]) -> list[str]:
    recording = loupe.open_store().recording(run_id)
    kept = b"".join(body for event in recording.events for body in recording.get(event.digests()).values())
    return [one for one in (KEY, SECRET, TOKEN, *further) if one.encode() in kept]


@pytest.mark.parametrize("way", WAYS)
def test_neither_keys_nor_signatures_are_kept(bedrock: Bedrock, way: str) -> None:
    done = loupe.record(lambda: WAYS[way](wrapped(bedrock)))
    headers = bedrock.asked[0].headers
    assert headers["x-amz-security-token"] == TOKEN
    assert not secrets_in(done.run_id, [headers["authorization"].rpartition("Signature=")[2], "AWS4-HMAC-SHA256"])


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closes", [False, True])
def test_a_stream_that_is_left_is_left_again(bedrock: Bedrock, closes: bool) -> None:
    bedrock.hold = threading.Event()

    def agent(reads: int = 1) -> Any:
        stream = wrapped(bedrock).converse_stream(modelId=NOVA, messages=MESSAGES)["stream"]
        found = [event for _, event in zip(range(reads), stream, strict=False)]
        if closes:
            stream.close()
        return found

    try:
        done = loupe.record(agent)
        assert done.result == [{"messageStart": {"role": "assistant"}}]
        step = model_step(done.run_id)
        assert (step.status, step.attrs["stream"]) == ("cancelled", "left_early")
        assert replay(done.run_id, agent).passed
        further = replay(done.run_id, lambda: agent(9))
        assert further.divergence is not None
        assert further.divergence.kind == "extra"
    finally:
        bedrock.hold.set()


def test_a_stream_that_is_closed_after_all_that_it_says_is_complete(bedrock: Bedrock) -> None:
    def agent() -> int:
        stream = wrapped(bedrock).converse_stream(modelId=NOVA, messages=MESSAGES)["stream"]
        for n, event in enumerate(stream):
            if "metadata" in event:
                stream.close()
                return n
        return -1

    done = loupe.record(agent)
    assert done.result == len(bedrock.frames["converse-stream"]) - 1
    assert model_step(done.run_id).attrs["stream"] == "complete"
    report = replay(done.run_id, agent)
    assert report.passed, report.text()


@pytest.mark.parametrize("wrong", ["exception", "checksum", "cut"])
def test_a_stream_that_breaks_raises_the_same(bedrock: Bedrock, wrong: str) -> None:
    frames = nova(["It ", "rains"])
    bad = failure("throttlingException", "slow down") if wrong == "exception" else frames[6][:-1] + b"\0"
    bedrock.frames["converse-stream"] = [*frames[:6], *([bad] if wrong != "cut" else [])]
    if wrong == "cut":

        def breaking(frames: list[bytes]) -> Iterator[bytes]:
            yield from frames
            raise ConnectionError

        bedrock._pieces = breaking
    seen: list[str] = []

    def agent() -> Any:
        read = 0
        try:
            for _ in wrapped(bedrock).converse_stream(modelId=NOVA, messages=MESSAGES)["stream"]:
                read += 1
        except Exception as error:
            seen.append(str(error))
            return [read, type(error).__name__]
        return read

    done = loupe.record(agent)
    named = {"exception": "EventStreamError", "checksum": "ChecksumMismatch", "cut": "ProtocolError"}
    assert done.result == [6, named[wrong]]
    report = replay(done.run_id, agent)
    assert report.passed, report.text()
    assert seen[0] == seen[1]
    assert (model_step(done.run_id).status == "error") is (wrong == "cut")


def test_a_whole_body_that_breaks_breaks_the_call_again(bedrock: Bedrock) -> None:
    """Which botocore itself tells a program only when it reads; no other try is made of it, as there."""

    def breaking(_: HttpRequest) -> HttpReply:
        def cut() -> Iterator[bytes]:
            yield BODY[:9].encode()
            raise ConnectionError

        bedrock.asked.append(_)
        return HttpReply(200, cut(), {"content-type": "application/json"})

    with serve(breaking) as running:
        bedrock.url = running.url

        def agent() -> Any:
            try:
                WAYS["invoke"](wrapped(bedrock, total_max_attempts=3, mode="standard"))
            except Exception as error:
                return [type(error).__name__, str(error)]
            return None

        done = loupe.record(agent)
    assert done.result[0] == "ResponseStreamingError"
    report = replay(done.run_id, agent)
    assert report.passed, report.text()
    assert len(bedrock.asked) == 1


def test_streams_in_threads_come_back_in_their_order(bedrock: Bedrock) -> None:
    """One client in several threads; what each reads, and which was where when, is the program's to see."""

    def agent() -> Any:
        client, order, lock = wrapped(bedrock), list[str](), threading.Lock()

        def reading(name: str) -> int:
            for _ in client.converse_stream(modelId=NOVA, messages=[said(name)])["stream"]:
                with lock:
                    order.append(name)
            return len(order)

        with ThreadPoolExecutor(3) as pool:
            counts = list(pool.map(reading, "abc"))
        return [counts, order, converse(client)["stopReason"]]

    def said(name: str) -> Any:
        return {"role": "user", "content": [{"text": name}]}

    done = loupe.record(agent)
    for _ in range(3):
        report = replay(done.run_id, agent)
        assert report.passed, report.text()
    assert len(bedrock.asked) == 4


# --- what is no model -------------------------------------------------------------------------------------------------


def _others(client: Callable[[str], Any]) -> Any:
    stored = client("s3").get_object(Bucket="b", Key="k")["Body"]
    return [stored.read(5).decode(), stored.read().decode(), client("dynamodb").list_tables().get("TableNames")]


def test_other_services_pass_untouched_unless_their_client_is_wrapped(bedrock: Bedrock) -> None:
    with _covered():
        done = loupe.record(lambda: _others(bedrock.client))
        assert [step.kind for step in loupe.open_store().steps(done.run_id)] == ["agent"]

    def agent() -> Any:
        return _others(lambda service: loupe.wrap(bedrock.client(service)))

    named = loupe.record(agent)
    assert named.result == done.result
    steps = [step.name for step in loupe.open_store().steps(named.run_id) if step.kind == "other"]
    assert steps == ["GET /b", "POST /"]
    asked = len(bedrock.asked)
    report = replay(named.run_id, agent)
    assert report.passed, report.text()
    assert len(bedrock.asked) == asked


def test_other_services_are_recorded_at_an_address_that_is_named(bedrock: Bedrock) -> None:
    transports.install([bedrock.url])
    try:
        done = loupe.record(lambda: _others(bedrock.client))
    finally:
        transports.uninstall()
    assert len(loupe.open_store().steps(done.run_id)) == 3


# --- forks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_fork_of_own_code_asks_another_model_with_another_prompt(bedrock: Bedrock, way: str) -> None:
    def agent() -> Any:
        return WAYS[way](wrapped(bedrock))

    entry = loupe.agent(name="asking")(agent)
    done = loupe.record(entry)
    bedrock.asked.clear()
    (made,) = loupe.fork(done.run_id, from_step=1, agent=entry, system_prompt="Be brief.", model="eu.other-v2:0").runs
    assert made.status == "ok", made.error
    assert [request.path for request in bedrock.asked] == [f"/model/eu.other-v2%3A0/{way}"]
    assert "Be brief." in bedrock.asked[0].body.decode()
    assert bedrock.asked[0].headers["authorization"].startswith("AWS4-HMAC-SHA256 ")
    assert replay(made.id, entry).passed


# --- without a line of code, without credentials ----------------------------------------------------------------------

PROGRAM = """
import boto3, sys
client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=sys.argv[1])
asked = {{"modelId": "{model}", "messages": [{{"role": "user", "content": [{{"text": "hi"}}]}}]}}
for event in client.converse_stream(**asked)["stream"]:
    if "contentBlockDelta" in event:
        print(event["contentBlockDelta"]["delta"].get("text", ""), end="")
print(client.converse(**asked)["output"]["message"]["content"][0]["text"])
"""


def test_a_program_that_wraps_nothing_replays_without_credentials_and_without_a_network(
    bedrock: Bedrock, tmp_path: Path, monkeypatch: Any
) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(model=NOVA))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    cli = [sys.executable, "-m", "agentloupe"]
    program = ["--", sys.executable, str(script), bedrock.url]
    ran = subprocess.run([*cli, "run", *program], capture_output=True, text=True, check=False)
    assert "It rains" in ran.stdout, ran.stderr
    (run,) = loupe.open_store().runs()
    steps = [step for step in loupe.open_store().steps(run.id) if step.kind == "llm"]
    assert [step.name for step in steps] == [NAMES["converse-stream"], NAMES["converse"]]
    asked = len(bedrock.asked)
    assert asked == 2
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    again = subprocess.run([*cli, "replay", run.id, *program], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    assert len(bedrock.asked) == asked


def test_a_client_that_finds_no_credentials_asks_nobody_for_them_in_a_replay(
    bedrock: Bedrock, tmp_path: Path, monkeypatch: Any
) -> None:
    """botocore would ask the machine's own address (IMDS) where neither variables nor files have any."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))

    def agent() -> Any:
        made = boto3.Session(region_name="us-east-1").client("bedrock-runtime", endpoint_url=bedrock.url)
        return converse(loupe.wrap(made))["stopReason"]

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    done = loupe.record(agent)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    report = replay(done.run_id, agent)
    assert report.passed, report.text()


# --- the door ---------------------------------------------------------------------------------------------------------


def test_wrapping_keeps_the_client_and_changes_nothing_outside_of_a_run(bedrock: Bedrock) -> None:
    client = bedrock.client()
    kind = type(client)
    assert loupe.wrap(loupe.wrap(client)) is client
    assert type(client) is kind
    assert converse(client)["stopReason"] == "end_turn"
    assert loupe.open_store().runs() == []


def test_an_endpoint_that_is_not_known_is_refused(bedrock: Bedrock) -> None:
    """aiobotocore's is asynchronous; what it sends goes through aiohttp, and is seen there."""
    base: Any = importlib.import_module("botocore.endpoint").Endpoint

    async def _send_request(*_: Any) -> None:
        pass

    client = bedrock.client()
    client._endpoint.__class__ = type("AioEndpoint", (base,), {"_send_request": _send_request})
    with pytest.raises(UsageError, match="no endpoint that can be wrapped"):
        loupe.wrap(client)
