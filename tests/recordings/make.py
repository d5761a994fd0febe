"""Makes the recordings that must replay for ever: `python -m tests.recordings.make`.

It records the agents of the newest `vN/agents.py` against a model on this machine, and writes for each `NAME.loupe` and a ledger folder
`NAME.ledger`, both listed in `vN/MANIFEST.json` with their digests. What is there already is never written again; new names are added.
`--anew` makes a version anew from nothing, and is for a version that no release has carried yet.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

import agentloupe as loupe
from agentloupe.engine.project import Projector
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import Recording
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.providers.scripted import Answer, Ask, ScriptedModel, ask, done_calls, fail, say
from agentloupe.store import open_url
from agentloupe.verbs.exchange import export_run
from agentloupe.verbs.instrument import as_agent
from agentloupe.verbs.ledger import export_ledger
from agentloupe.words.canonical import Json, digest_bytes
from tests.bedrock_support import KIND, claude, nova

HERE: Final = Path(__file__).resolve().parent
MANIFEST: Final = "MANIFEST.json"
NEWEST: Final = "v1"
KEY: Final = "sk-proj-" + "Zx81" * 12
"""A key that no recording may hold."""


# --- a model on this machine ------------------------------------------------------------------------------------------


def rule(asked: Ask) -> Answer:
    """What the model says: by the tools that it is offered and the results that it has."""
    if asked.params.get("model") == "busy":
        return fail(429, "slow down", headers={"retry-after": "1"})
    done = done_calls(asked.messages)
    if "get_weather" not in asked.tools:
        return say(f"you said: {asked.question}")
    if not done:
        return ask(("get_weather", {"city": "Beijing"}), ("get_weather", {"city": "Shanghai"}))
    if len(done) == 2:
        return ask(("add", {"one": 17.7, "other": -11.9}))
    return say(f"The difference is {done[-1].text} C.")


def _messages(body: dict[str, Any]) -> HttpReply:
    """Anthropic's messages: a thought and a tool first, then text; or a stream of events."""
    told = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
    usage = {"input_tokens": 12, "output_tokens": 7}
    if body.get("stream"):
        return HttpReply(200, _events(told, usage), {"content-type": "text/event-stream"})
    if len(body["messages"]) == 1:
        thought = {"type": "thinking", "thinking": "Add them.", "signature": "c2lnbmVk"}
        tool = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"one": 2, "other": 3}}
        return json_reply({**told, "content": [thought, tool], "stop_reason": "tool_use", "usage": usage})
    text = {"type": "text", "text": f"It is {body['messages'][-1]['content'][0]['content']}."}
    return json_reply({**told, "content": [text], "stop_reason": "end_turn", "usage": usage})


def _events(told: dict[str, Any], usage: dict[str, int]) -> Iterator[bytes]:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**told, "content": [], "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}}
            for t in ("Piece ", "by piece.")
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 4},
        },
        {"type": "message_stop"},
    ]
    for event in events:
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _bedrock(path: str) -> HttpReply:
    """Bedrock's frames, and a whole answer."""
    if path.endswith("/converse"):
        message: dict[str, Any] = {"role": "assistant", "content": [{"text": "All at once."}]}
        return json_reply({"output": {"message": message}, "stopReason": "end_turn"})
    if path.endswith("/invoke"):
        usage = {"input_tokens": 12, "output_tokens": 7}
        text = {"type": "text", "text": "All at once."}
        return json_reply({"type": "message", "role": "assistant", "content": [text], "usage": usage})
    parts = ["Frame ", "by ", "frame."]
    frames = claude(parts, arguments=['{"item": ', '"pen"}']) if "invoke" in path else nova(parts)
    return HttpReply(200, iter(frames), {"content-type": KIND})


def answering() -> Callable[[HttpRequest], HttpReply]:
    """The whole model: chat completions, messages and Bedrock."""
    chat = ScriptedModel(rule)

    def app(request: HttpRequest) -> HttpReply:
        if request.path.startswith(("/model/", "/v1/model/")):
            return _bedrock(request.path)
        return _messages(json.loads(request.body)) if request.path == "/v1/messages" else chat.app(request)

    return app


# --- what is recorded -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """One recording: the agent and what it is called with."""

    agent: str
    arguments: tuple[Any, ...] = ()
    raises: bool = False


WANTED: Final[dict[str, Wanted]] = {
    "weather": Wanted("weather", ("How much warmer is Shanghai than Beijing?",)),
    "shop": Wanted("shop", (["pen", "nothing", "ink"],)),
    "shop-failed": Wanted("shop", ([None],), raises=True),
    "impatient": Wanted("impatient", ("now?",)),
    "streamer": Wanted("streamer", ("in pieces, please",)),
    "claude": Wanted("claude", ("2 and 3?",)),
    "claude-streams": Wanted("claude_streams", ("in pieces?",)),
    "threads": Wanted("threads", (["pen", "paper", "ink", "ruler"],)),
    "tasks": Wanted("tasks", (["a", "b", "c"],)),
    "reader": Wanted("reader", ("refunds",)),
    "patched": Wanted("patched"),
    "careless": Wanted("careless", (KEY,)),
    "yielding": Wanted("yielding", (3,)),
    "plain-http": Wanted("plain_http"),
    "charges": Wanted("charges", (["pen", "ink", "nib"],)),
    "bedrock": Wanted("bedrock", ("frame by frame?",)),
}


@dataclass
class Maker:
    """Makes one version.

    Attributes:
        folder: of the version.
        store: where runs lie while they are made.
        agents: the module of its agents.
        made: name -> id of the run and name of the agent that replays it, in order.
    """

    folder: Path
    store: Store
    agents: Any
    made: dict[str, tuple[str, str | None]] = field(default_factory=dict[str, "tuple[str, str | None]"])

    def record(self, name: str, agent: Callable[..., Any], *arguments: Any, raises: bool = False) -> str:
        """Records one run."""
        from agentloupe.verbs.sessions import RecordOpener

        opener = RecordOpener(self.store)
        with ambient.opening_with(opener):
            try:
                result = as_agent(agent)(*arguments)
                if hasattr(result, "__aiter__"):
                    result = _all_of(result)
                if asyncio.iscoroutine(result):
                    asyncio.run(result)
            except Exception:
                if not raises:
                    raise
        run_id = opener.sessions[-1].run_id
        self.made[name] = run_id, agent.__name__
        return run_id

    def all(self) -> None:
        """Everything that `WANTED` names, then what is made from it."""
        for name, wanted in WANTED.items():
            self.record(name, getattr(self.agents, wanted.agent), *wanted.arguments, raises=wanted.raises)
        self.record("patched-before", self._before_the_change())
        self._traced()
        self._forked()
        self._resumed()
        self._settled()

    def _before_the_change(self) -> Callable[..., Any]:
        """The agent `patched` as its code was before: the same name, called with nothing."""
        look_up = self.agents.look_up

        @loupe.agent(name="patched")
        def patched() -> list[str]:
            return [look_up(item="one")["item"]]

        return patched

    def _traced(self) -> None:
        """A run in somebody's trace."""
        trace = loupe_trace()
        with ambient.arriving(trace):
            self.record("traced", self.agents.weather, "How much warmer is Shanghai than Beijing?")

    def _forked(self) -> None:
        """Forks of `weather`: with the plain loop, changed, and with its own code."""
        parent = self.made["weather"][0]
        model = [step.idx for step in self.store.steps(parent) if step.kind == "llm"]
        plain = loupe.fork(parent, from_step=model[1], store=self.store, system_prompt="Be brief.", engine="generic")
        self.made["fork-plain"] = plain.runs[0].id, None
        own = loupe.fork(parent, self.agents.weather, from_step=model[2], store=self.store)
        self.made["fork-own"] = own.runs[0].id, "weather"

    def _resumed(self) -> None:
        """A run of `shop` that was cut off in the middle, and went on."""
        whole = self.store.recording(self.made["shop"][0])
        at = [event.sequence for event in whole.events if event.type == "tool.finished"][1]
        other = open_url("memory:")
        other.insert(whole.run_id, whole.events[:at], whole.get, Projector)
        loupe.resume(whole.run_id, self.agents.shop, store=other)
        self._write("resumed", other.recording(whole.run_id), other, "shop")

    def _settled(self) -> None:
        """A run that was killed in the middle of two charges: its tool's lookup found the first, a person settled the second."""
        run_id = self.made["charges"][0]
        other = _killed(self.store.recording(run_id), nth=0)
        loupe.resume(run_id, self.agents.charges, store=other)
        other = _killed(other.recording(run_id), nth=1)
        call_id = loupe.open_effects(other).items[0].call_id
        said: dict[str, Json] = {"charged": "by hand", "key": 64}
        loupe.settle_effect(
            run_id,
            call_id,
            "finished",
            why="it is on the list",
            by="a person",
            result=said,
            external_id="R-2",
            store=other,
        )
        loupe.resume(run_id, self.agents.charges, store=other)
        self._write("settled", other.recording(run_id), other, "charges")

    def write(self) -> None:
        """Writes what is new."""
        for name, (run_id, agent) in self.made.items():
            self._write(name, self.store.recording(run_id), self.store, agent)

    def _write(self, name: str, recording: Recording, store: Store, agent: str | None) -> None:
        known = manifest(self.folder)
        if name in known:
            return
        export_run(store, recording.run_id, self.folder / f"{name}.loupe")
        export_ledger(store, recording.run_id, self.folder / f"{name}.ledger")
        known[name] = {
            "run": recording.run_id,
            "agent": agent,
            "events": len(recording.events),
            "head": recording.events[-1].hash,
            "files": digests(self.folder, name),
        }
        text = json.dumps(known, indent=1, sort_keys=True)
        (self.folder / MANIFEST).write_text(f"{text}\n", "utf-8")


def _killed(recording: Recording, nth: int) -> Store:
    """A store with a run as a process leaves it that is killed in the middle of its nth charge."""
    life = [e for e in recording.events if e.type == "tool.started" and e.name == "charge"]
    store = open_url("memory:")
    store.insert(recording.run_id, recording.events[: life[nth].sequence], recording.get, Projector)
    return store


async def _all_of(items: Any) -> list[Any]:
    return [item async for item in items]


def loupe_trace() -> Any:
    """The trace that `traced` is called from."""
    from agentloupe.words.trace import read_trace

    return read_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03", "vendor=1")


def manifest(folder: Path) -> dict[str, Any]:
    """What a version holds, by name."""
    file = folder / MANIFEST
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def digests(folder: Path, name: str) -> dict[str, str]:
    """The files of one recording with their digests."""
    files = [
        folder / f"{name}.loupe",
        *sorted(path for path in (folder / f"{name}.ledger").rglob("*") if path.is_file()),
    ]
    return {str(path.relative_to(folder)): digest_bytes(path.read_bytes()) for path in files}


def make(folder: Path) -> None:
    """Makes what a version lacks."""
    agents = importlib.import_module(f"tests.recordings.{folder.name}.agents")
    with tempfile.TemporaryDirectory() as place, serve(answering()) as model:
        variables = {
            "MODEL_URL": model.url,
            "LLM_BASE_URL": f"{model.url}/v1",
            "LLM_MODEL": "small-1",
            "LANG": "C.UTF-8",
        }
        before = Path.cwd()
        os.chdir(place)
        try:
            with mock.patch.dict(os.environ, variables), mock.patch("platform.platform", return_value="any"):
                maker = Maker(folder, open_url(Path(place) / "x.db"), agents)
                maker.all()
                maker.write()
                maker.store.close()
        finally:
            os.chdir(before)


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--anew", action="store_true", help="make the newest version anew, before any release carries it"
    )
    folder = HERE / NEWEST
    if options.parse_args().anew:
        (folder / MANIFEST).unlink(missing_ok=True)
        for old in [*folder.glob("*.loupe"), *folder.glob("*.ledger")]:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    make(folder)


if __name__ == "__main__":
    main()
