"""Exchanges of the field, forked with the generic loop: a server on this machine answers as the providers did then.

An unchanged fork is unchanged to the letter: the loop must send what the agents of the field sent, request for request,
although it knows their tools only by their results.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

import agentloupe as loupe
from agentloupe.engine.tape import read_tape
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import HttpReply, HttpRequest, serve
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.words.canonical import dumps
from agentloupe.words.exchange import answer_in
from agentloupe.words.toolcalls import asked_tools
from tests.cassettes import Exchange, cassettes, exchanges_of
from tests.real_streams import in_odd_cuts
from tests.support import SHARED

FILES = [p for p in cassettes(SHARED / "data") if len(exchanges_of(p)) > 1]


class Player:
    """Plays exchanges from one on, in order; a stream that was not asked for comes as the whole answer it told."""

    def __init__(self, exchanges: list[Exchange]) -> None:
        self.url = ""
        self.exchanges = exchanges
        self.at = 0
        self.asked: list[Any] = []
        self.whole: dict[int, Any] = {}

    def __call__(self, request: HttpRequest) -> HttpReply:
        asked = json.loads(request.body)
        self.asked.append(asked)
        at, self.at = self.at, self.at + 1
        if at >= len(self.exchanges):
            return HttpReply(500, b"{}")
        one = self.exchanges[at]
        if "event-stream" not in one.headers.get("content-type", ""):
            return HttpReply(one.status, one.content, {"content-type": "application/json"})
        if asked.get("stream"):
            return HttpReply(one.status, in_odd_cuts(one.body), one.headers)
        return HttpReply(200, dumps(self.whole[at]))


def sender(player: Player) -> Any:
    """An agent that sends the requests of the field, whatever comes back; its tools are nowhere to be seen."""

    def worker() -> None:
        with httpx.Client(transport=cast("Any", loupe.http_transport()), timeout=20) as client:
            for one in player.exchanges:
                headers = {"anthropic-beta": one.betas} if one.betas else {}
                client.post(f"{player.url}/{one.host}{one.path}", json=one.asked, headers=headers)

    return worker


@pytest.fixture
def player(workdir: Path) -> Iterator[Player]:
    made = Player([])
    with serve(made) as running:
        made.url = running.url
        yield made


def pairs(exchanges: list[Exchange]) -> Iterator[int]:
    """Exchanges whose history the next one continues with results of tools."""
    for at, (one, after) in enumerate(itertools.pairwise(exchanges)):
        name = "input" if "input" in one.asked else "messages"
        before, history = one.asked.get(name), after.asked.get(name)
        if isinstance(before, str):
            before = [{"role": "user", "content": before}]
        if one.status != 200 or after.status != 200 or not isinstance(before, list) or not isinstance(history, list):
            continue
        if history[: len(before)] == before and len(history) > len(before):
            yield at


REWORDED = {
    "test_bedrock_mantle__test_reused_tool_call_ids[stream].yaml": "its agent gives calls ids of its own",
    "test_groq__test_tool_use_failed_error.yaml": "its agent tells reasoning as text",
    "test_deepseek__test_deepseek_deferred_capability_with_thinking.yaml": "its agent adds messages and tools",
    "test_openai_responses__test_openai_responses_phase_streamed_on_part_start.yaml": "the stream says one item twice, otherwise",
    "test_complete_handoff_with_tools__test_router_analytics_complete_workflow.yaml.gz": "another agent takes over",
    "test_openai_agents__test_agent_with_handoff_spans.yaml": "another agent takes over",
}
"""Agents of the field whose next request is not the plain loop's: there only the first one is compared."""


def recorded(player: Player, exchanges: list[Exchange]) -> tuple[str, list[int]]:
    """A run of these exchanges, and its model steps."""
    player.exchanges = exchanges
    run_id = loupe.record(sender(player)).run_id
    tape = read_tape(loupe.open_store().recording(run_id))
    calls = [call for call in tape.calls if call.kind == "llm"]
    player.whole = {i: answer_in(tape.recording.body(call.output_digest)) for i, call in enumerate(calls)}
    return run_id, [step.idx for step in loupe.open_store().steps(run_id) if step.kind == "llm"]


def in_one_piece(asked: dict[str, Any]) -> dict[str, Any]:
    """The request as the loop asks it: not for a stream."""
    return {n: v for n, v in asked.items() if n not in ("stream", "stream_options") or not v}


def base_of(player: Player, one: Exchange) -> str:
    end = next(e for e in ("/chat/completions", "/messages", "/responses") if one.path.endswith(e))
    return f"{player.url}/{one.host}{one.path.removesuffix(end)}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name[:60])
def test_an_unchanged_fork_of_the_field_is_unchanged_to_the_letter(player: Player, path: Path) -> None:
    exchanges = exchanges_of(path)
    found = list(pairs(exchanges))
    if not found:
        pytest.skip("no conversation goes on in here")
    run_id, steps = recorded(player, exchanges)
    for at in found:
        player.at, player.asked = at, []
        where = Endpoint(base_of(player, exchanges[at]), "k")
        run = fork(run_id, from_step=steps[at], provider=where, control=False).candidates[0]
        assert player.asked[0] == in_one_piece(exchanges[at].asked)
        asks_for_tools = len(player.asked) > 1
        assert asks_for_tools == bool(asked_tools(player.whole[at])), run.error
        if asks_for_tools and path.name not in REWORDED:
            assert player.asked[1] == in_one_piece(exchanges[at + 1].asked)
        report = replay(run.id)
        assert report.passed, report.text()


def test_the_field_has_conversations_to_go_on_with(shared: Path) -> None:
    del shared  # skips where there is none
    known = [path.name for path in FILES if path.name not in REWORDED]
    goes_on = [path.name for path in FILES if list(pairs(exchanges_of(path)))]
    assert len(goes_on) >= 18
    assert len([name for name in goes_on if name in known]) >= 12
    assert set(goes_on) >= set(REWORDED), "each exception is about something"
