"""W3C trace context: read from headers, variables and OpenTelemetry; on every event; sent on where the settings say so."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI
from opentelemetry import trace as otel
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span

import agentloupe as loupe
from agentloupe.engine.project import Projector
from agentloupe.ports import ambient
from agentloupe.ports.recording import Recording
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.running import run_recorded
from agentloupe.words.run import RunFilter
from agentloupe.words.trace import TraceContext, read_trace, read_tracestate
from tests.fork_support import Script, weather_run
from tests.tapes import record_in

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"

# --- the headers (vectors of the recommendation and of its test suite) ------------------------------------------------


@pytest.mark.parametrize(
    ("header", "flags"),
    [
        (PARENT, 1),
        (f"00-{TRACE}-{SPAN}-00", 0),
        (f"00-{TRACE}-{SPAN}-03", 3),
        (f"00-{TRACE}-{SPAN}-ff", 3),
        (f" \t{PARENT} ", 1),
        (f"01-{TRACE}-{SPAN}-01", 1),
        (f"cc-{TRACE}-{SPAN}-01", 1),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", 1),
        (f"cc-{TRACE}-{SPAN}-01-", 1),
    ],
)
def test_a_good_header_is_read(header: str, flags: int) -> None:
    assert read_trace(header) == TraceContext(TRACE, SPAN, flags)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-what-the-future-will-be-like",
        f"00-{TRACE}-{SPAN}-01-",
        f"cc-{TRACE}-{SPAN}-01.what-the-future-will-be-like",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN.upper()}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}0-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-001",
        f"00-{TRACE}-{SPAN}-.0",
        f"0-{TRACE}-{SPAN}-01",
        f".0-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00_{TRACE}_{SPAN}_01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE[:-1]}\u0665-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01,00-{TRACE}-{SPAN}-01",
    ],
)
def test_a_malformed_header_is_ignored(header: str | None) -> None:
    assert read_trace(header, STATE) is None


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("foo=1", "foo=1"),
        ("foo=1,bar=2", "foo=1,bar=2"),
        (" foo=1 \t,\tbar=2 ", "foo=1,bar=2"),
        ("foo=1,,bar=2,", "foo=1,bar=2"),
        ("foo= 1", "foo= 1"),
        ("fw529a3039@dt=FfffFFFF", "fw529a3039@dt=FfffFFFF"),
        ("0tenant@sys=1", "0tenant@sys=1"),
        ("a-b_c*d/e=~!", "a-b_c*d/e=~!"),
        (f"{'z' * 256}=1", f"{'z' * 256}=1"),
        ("", ""),
        ("foo", ""),
        ("foo=", ""),
        ("=1", ""),
        ("foo=1,foo=2", ""),
        ("Foo=1", ""),
        ("0foo=1", ""),
        ("foo@=1", ""),
        ("@foo=1", ""),
        ("foo@@bar=1", ""),
        ("foo@bar@baz=1", ""),
        (f"{'z' * 257}=1", ""),
        (f"{'t' * 242}@v=1", ""),
        (f"t@{'v' * 15}=1", ""),
        ("foo=a=b", ""),
        ("foo=\u00e9", ""),
        ("foo=a\x00b", ""),
        (f"foo={'v' * 257}", ""),
        (",".join(f"k{n}=1" for n in range(33)), ""),
        (",".join(f"k{n}=1" for n in range(32)), ",".join(f"k{n}=1" for n in range(32))),
    ],
)
def test_a_state_is_read_or_left_out(text: str, read: str) -> None:
    assert read_tracestate(text) == read
    assert read_trace(PARENT, text) == TraceContext(TRACE, SPAN, 1, read)


def test_a_long_state_loses_its_long_members_first() -> None:
    long, short = f"long={'v' * 200}", [f"k{n}={'v' * 60}" for n in range(9)]
    assert read_tracestate(",".join([long, *short[:4]])) == ",".join([long, *short[:4]])
    assert read_tracestate(",".join([long, *short])) == ",".join(short[:8])


HEX = "0123456789abcdef"
contexts = st.builds(
    TraceContext,
    st.text(HEX, min_size=32, max_size=32).filter(lambda text: text.strip("0")),
    st.text(HEX, min_size=16, max_size=16).filter(lambda text: text.strip("0")),
    st.integers(0, 3),
)


@pytest.mark.parametrize("header", [PARENT.encode(), 7, [PARENT]])
def test_what_is_no_text_is_ignored(header: Any) -> None:
    """As some servers give headers: a header from outside must not stop an agent."""
    assert read_trace(header) is None
    assert read_trace(PARENT, header) == TraceContext(TRACE, SPAN)


@given(contexts)
def test_what_is_written_is_read_again(context: TraceContext) -> None:
    assert read_trace(context.traceparent) == context
    assert context.headers == {"traceparent": context.traceparent}
    assert read_trace(context.at("1" * 16).traceparent) == context.at("1" * 16)


@given(st.one_of(st.text(max_size=80), st.text(f"{HEX}-,= ", max_size=80)), st.text(max_size=600))
def test_no_header_is_an_error(header: str, state: str) -> None:
    found = read_trace(header, state)
    if found is not None:
        assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]", found.traceparent)
    kept = read_tracestate(state)
    assert len(kept) <= 512
    assert read_tracestate(kept) == kept


# --- into recordings --------------------------------------------------------------------------------------------------


@pytest.fixture
def store(workdir: Path) -> MemoryStore:
    del workdir
    return MemoryStore()


@loupe.tool(effect="read")
def seen(n: int) -> str | None:
    return loupe.traceparent()


def block(store: MemoryStore, **headers: Any) -> Recording:
    with loupe.recording("block", store=store, **headers) as made:
        made.result = [loupe.traceparent(), seen(n=1)]
    return store.recording(made.run_id)


def test_a_run_belongs_to_the_trace_that_it_is_called_from(store: MemoryStore) -> None:
    recording = block(store, traceparent=PARENT, tracestate=STATE)
    started = recording.events[0]
    assert {event.trace_id for event in recording.events} == {TRACE}
    assert (started.parent_span_id, recording.body(started.bodies["tracestate"])) == (SPAN, STATE)
    assert all(event.span_id for event in recording.events)
    assert [run.id for run in store.runs(RunFilter(trace_id=TRACE))] == [recording.run_id]
    assert [step.parent_idx for step in store.steps(recording.run_id)] == [None, 0]


def test_inside_the_header_names_the_span_around(store: MemoryStore) -> None:
    recording = block(store, traceparent=f"00-{TRACE}-{SPAN}-00")
    started, tool = recording.events[0], next(e for e in recording.events if e.type == "tool.started")
    result = recording.body(recording.events[-1].output_digest)
    assert result == {"result": [f"00-{TRACE}-{started.span_id}-00", f"00-{TRACE}-{tool.span_id}-00"]}
    assert started.attrs["trace_flags"] == 0


def test_a_run_that_nobody_called_has_a_trace_of_its_own(store: MemoryStore) -> None:
    for headers in ({}, {"traceparent": "00-nonsense", "tracestate": STATE}):
        recording = block(store, **headers)
        (trace_id,) = {event.trace_id for event in recording.events}
        assert trace_id not in (None, TRACE)
        assert recording.events[0].parent_span_id is None
        assert "tracestate" not in recording.events[0].bodies
    assert loupe.traceparent() is None


def test_the_span_of_opentelemetry_is_taken_where_there_is_one(store: MemoryStore) -> None:
    context = SpanContext(int(TRACE, 16), int(SPAN, 16), True, TraceFlags(1), TraceState([("a", "b")]))
    with use_span(NonRecordingSpan(context)):
        assert otel.get_current_span().get_span_context().trace_id == int(TRACE, 16)
        inside = block(store)
        told = block(store, traceparent=f"00-{'1' * 32}-{SPAN}-01")
    assert {event.trace_id for event in inside.events} == {TRACE}
    assert inside.body(inside.events[0].bodies["tracestate"]) == "a=b"
    assert {event.trace_id for event in told.events} == {"1" * 32}
    assert block(store).events[0].trace_id != TRACE


def test_a_secret_in_a_state_is_not_kept(store: MemoryStore) -> None:
    key = "sk-proj-" + "a1B2" * 12
    recording = block(store, traceparent=PARENT, tracestate=f"vendor={key}")
    assert recording.events[0].trace_id == TRACE
    assert key not in repr([recording.get(digest) for event in recording.events for digest in event.digests()])


def test_the_variables_of_a_program_that_is_run(workdir: Path) -> None:
    (workdir / "agent.py").write_text(
        "import agentloupe as loupe\n@loupe.agent\ndef one():\n    return loupe.random()\none()\none()\n", "utf-8"
    )
    more = {"TRACEPARENT": PARENT, "TRACESTATE": STATE}
    with (workdir / "said").open("wb") as said:
        ran = run_recorded(["agent.py"], db="x.db", output=said, more=more)
    with_store = open_url(workdir / "x.db")
    assert (ran.code, len(ran.runs)) == (0, 2)
    assert {with_store.recording(run).events[0].trace_id for run in ran.runs} == {TRACE}
    with_store.close()


# --- replay, fork, resume ---------------------------------------------------------------------------------------------


def wanderer() -> list[str | None]:
    """Asks for its trace beside calls, inside a nested agent, and in a thread."""
    found = [loupe.traceparent(), nested()]
    thread = threading.Thread(target=lambda: found.append(loupe.traceparent()))
    thread.start()
    thread.join()
    return found


@loupe.agent
def nested() -> str | None:
    loupe.now()
    return loupe.traceparent()


def test_a_replay_gets_the_trace_that_was_recorded(store: MemoryStore) -> None:
    agent = loupe.agent(name="wanderer")(wanderer)
    with ambient.arriving(TraceContext(TRACE, SPAN, 3, STATE)):
        recording = record_in(store, agent)
    report = replay(recording, agent)
    assert (report.verdict, report.levels) == ("pass", {"flow": True, "state": True, "content": True}), report.text()


def test_a_fork_is_of_the_trace_that_asks_for_it(store: MemoryStore) -> None:
    weather_run(store)
    parent = store.recording("weather-1").events[0].trace_id
    alone = loupe.fork_run(store, "weather-1", 5, None, Script("done"))
    with ambient.arriving(TraceContext(TRACE, SPAN)):
        asked = loupe.fork_run(store, "weather-1", 5, None, Script("done"))
    events = store.recording(asked.id).events
    assert {event.trace_id for event in events} == {TRACE}
    assert events[0].parent_span_id == SPAN
    own = {event.trace_id for event in store.recording(alone.id).events}
    assert len(own) == 1
    assert own.isdisjoint({parent, TRACE})


def test_copied_events_of_the_run_itself_hang_under_the_new_run(store: MemoryStore) -> None:
    weather_run(store)
    old = store.recording("weather-1").events[0].span_id
    events = store.recording(loupe.fork_run(store, "weather-1", 5, None, Script("done")).id).events
    assert old not in {event.span_id for event in events} | {event.parent_span_id for event in events}


def test_a_resumed_run_keeps_its_trace_and_says_who_asked(store: MemoryStore) -> None:
    agent = loupe.agent(name="wanderer")(wanderer)
    with ambient.arriving(TraceContext(TRACE, SPAN, 0, STATE)):
        recording = record_in(store, agent)
    cut = MemoryStore()
    cut.insert(recording.run_id, recording.events[:2], recording.get, Projector)
    with ambient.arriving(TraceContext("2" * 32, SPAN)):
        loupe.resume(recording.run_id, agent, store=cut)
    events = cut.recording(recording.run_id).events
    assert {event.trace_id for event in events} == {TRACE}
    attempt = next(event for event in events if event.type == "attempt.started")
    assert attempt.attrs["called_from"] == f"00-{'2' * 32}-{SPAN}-01"
    result = cut.recording(recording.run_id).body(events[-1].output_digest)
    assert isinstance(result, dict)
    assert all(str(header).endswith("-00") for header in result["result"])  # type: ignore[union-attr]


# --- out --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def heard() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A model's address, and the headers of what it was asked."""
    headers: list[dict[str, str]] = []

    def app(request: HttpRequest) -> HttpReply:
        headers.append({name.lower(): value for name, value in request.headers.items()})
        return json_reply({"id": "1", "model": "m", "choices": [{"index": 0, "message": MESSAGE}]})

    with serve(app) as running:
        yield f"{running.url}/v1", headers


MESSAGE: Any = {"role": "assistant", "content": "hello"}
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def by_sdk(url: str) -> object:
    with loupe.wrap(OpenAI(base_url=url, api_key="none", max_retries=0)) as client:
        return client.chat.completions.create(**BODY).choices[0].message.content


def by_httpx(url: str) -> object:
    transport: Any = loupe.http_transport(httpx.HTTPTransport(verify=False))
    with httpx.Client(transport=transport) as client:
        return client.post(f"{url}/chat/completions", json=BODY).json()


def by_requests(url: str) -> object:
    with requests.Session() as session:
        session.mount("http://", loupe.requests_adapter())
        return session.post(f"{url}/chat/completions", json=BODY).json()


async def by_aiohttp(url: str) -> object:
    async with (
        aiohttp.ClientSession(middlewares=[loupe.aiohttp_middleware()]) as session,
        session.post(f"{url}/chat/completions", json=BODY) as response,
    ):
        return await response.json()


WAYS = [by_sdk, by_httpx, by_requests, by_aiohttp]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_request_carries_the_trace_of_its_step_where_the_settings_say_so(
    way: Callable[[str], object], heard: Any, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, headers = heard
    plain = record_in(store, way, url)
    monkeypatch.setenv("LOUPE_PASS_TRACE_ON", "true")
    with ambient.arriving(TraceContext(TRACE, SPAN, 1, STATE)):
        traced = record_in(store, way, url)
    assert len(headers) == 2
    assert not {"traceparent", "tracestate"} & headers[0].keys()
    step = next(event for event in traced.events if event.type == "model.requested")
    assert headers[1]["traceparent"] == f"00-{TRACE}-{step.span_id}-01"
    assert headers[1]["tracestate"] == STATE
    before = next(event for event in plain.events if event.type == "model.requested")
    assert (step.input_key, step.input_digest) == (before.input_key, before.input_digest)
    for recording in (plain, traced):
        report = replay(recording, way)
        assert report.verdict == "pass", report.text()
    assert len(headers) == 2


def test_a_header_that_the_program_sends_itself_stays(
    heard: Any, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, headers = heard
    monkeypatch.setenv("LOUPE_PASS_TRACE_ON", "true")

    def own(url: str) -> None:
        with loupe.wrap(OpenAI(base_url=url, api_key="none", default_headers={"Traceparent": PARENT})) as client:
            client.chat.completions.create(**BODY)

    record_in(store, own, url)
    assert headers[0]["traceparent"] == PARENT


def test_the_loop_sends_it_too(heard: Any, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    url, headers = heard
    weather_run(store)
    monkeypatch.setenv("LLM_BASE_URL", url)
    monkeypatch.setenv("LOUPE_PASS_TRACE_ON", "true")
    result = loupe.fork("weather-1", from_step=5, store=store)
    made = store.recording(result.runs[0].id).events
    last = [event for event in made if event.type == "model.requested"][-1]
    assert headers[0]["traceparent"] == f"00-{last.trace_id}-{last.span_id}-01"
    Endpoint(url).send(BODY)
    assert "traceparent" not in headers[1]
