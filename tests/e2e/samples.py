"""Runs made of the shared cases and of hostile strings, for tests of what the page shows of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import openai

from agentloupe.engine.loop import Model
from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.verbs.exchange import import_file
from agentloupe.verbs.instrument import agent, tool
from agentloupe.verbs.looping import run_loop
from tests.cases.rec import Rec, load_agent
from tests.cases.test_case_13_fork import Capture
from tests.e2e.work import replayed
from tests.e2e.world import recorded
from tests.fork_support import Script
from tests.made import Maker
from tests.stream_support import http_client, playing
from tests.support import case_folder

__all__ = ["PAIRS", "Samples", "make_hostile", "make_samples", "read"]

PAIRS: Final = ("a", "b_one_step_more", "c_number_spelling", "d_two_swapped")
HTTP: Final = "httpx2" if int(openai.__version__.split(".")[0]) >= 3 else "httpx"


def read(number: str, name: str) -> Any:
    """What a file of a shared case holds."""
    return json.loads((case_folder(number) / name).read_text("utf-8"))


@dataclass(frozen=True)
class Samples:
    """Ids of runs by case, and of the replay of a prompt that is built from a set."""

    split: str
    unordered: str
    clock: str
    request: str
    shapes: str
    orphans: str
    arguments: str
    costs: str
    pairs: Mapping[str, str]
    secrets: str
    times: str


def make_samples(store: Store, folder: Path) -> Samples:
    """Records or imports the cases that have a part on the page."""
    return Samples(
        split=_split(store),
        unordered=_unordered(store),
        clock=_clock(store),
        request=_asked(store, "case-13", dict(read("13", "request.json"))),
        shapes=_asked(store, "case-15", {"model": "m", "messages": read("15", "messages.json")}),
        orphans=_imported(store, case_folder("16") / "messages.json"),
        arguments=_arguments(store),
        costs=_costs(store),
        pairs={name: _imported(store, case_folder("23") / f"{name}.json") for name in PAIRS},
        secrets=_secrets(store),
        times=_times(store, folder),
    )


def _imported(store: Store, path: Path) -> str:
    return import_file(store, path).runs[0].run_id


def _split(store: Store) -> str:
    """Case 03: a stream whose reads cut characters."""
    reads = [bytes.fromhex(line) for line in (case_folder("03") / "reads.hex").read_text("ascii").split()]
    with playing(reads) as server:

        def split() -> str:
            client = openai.OpenAI(
                api_key="k", base_url=f"{server.url}/v1", http_client=http_client(HTTP, asynchronous=False)
            )
            asked: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
            stream: Any = client.chat.completions.create(**asked)
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

        return recorded(store, agent(name="split")(split))


def _tags(names: list[str]) -> Callable[[], Any]:
    def tags() -> Any:
        ask = Rec().llm("small-chat-1", lambda _: {"role": "assistant", "content": "ok"})
        said = "Tags: " + ", ".join(names)
        return ask({"model": "small-chat-1", "messages": [{"role": "user", "content": said}]})

    return agent(name="tags")(tags)


def _unordered(store: Store) -> str:
    """Case 08: a prompt whose order is that of a set, replayed with another order; the id of the replay."""
    names = ["refund", "late", "vip", "damaged", "gift"]
    run = recorded(store, _tags(names))
    return replayed(store, run, "job-unordered", _tags(names[::-1]))


def _clock(store: Store) -> str:
    """Case 11: an agent that asks for time, an id and chance."""
    random.seed(1)
    load_agent(case_folder("11")).main(Rec(store), "boundary")
    return store.runs()[0].id


def _asked(store: Store, run_id: str, body: Mapping[str, Any]) -> str:
    """Cases 13 and 15: one request as it stands there, answered once."""
    more = {name: value for name, value in body.items() if name not in ("model", "messages", "tools")}
    run_loop(
        Model(Capture().send),
        model=body["model"],
        messages=body["messages"],
        tool_schemas=body.get("tools", ()),
        parameters=more,
        store=store,
        run_id=run_id,
    )
    return run_id


def _arguments(store: Store) -> str:
    """Case 17: a model that asks with every kind of arguments."""

    @tool(effect="pure", name="f")
    def f(**arguments: Any) -> Any:
        return {"got": len(arguments)}

    script = Script([("f", row["raw"]) for row in read("17", "rows.json")], "done")
    run_loop(script, {"f": f}, model="m", question="q", store=store, run_id="case-17")
    return "case-17"


def _costs(store: Store) -> str:
    """Case 22: a model step for each row that was really asked."""
    made = Maker("case-22")
    for row in read("22", "rows.json"):
        usage = row["usage"]
        if usage and "_source" in usage:
            continue
        answer: Any = {"choices": [{"index": 0, "message": {"role": "assistant", "content": row["name"]}}]}
        facts = {"model": row["model"]} | ({"usage": usage} if usage is not None else {})
        made.call("llm", f"chat {row['model']}", {"model": row["model"], "messages": []}, answer, **facts)
    recording = made.finish()
    store.insert("case-22", recording.events, recording.get, Projector)
    return "case-22"


def _secrets(store: Store) -> str:
    """Case 24: an exchange full of secrets, as a tool's arguments and result and in its error."""
    exchange = read("24", "exchange.json")

    @tool(effect="read", name="exchange")
    def send(exchange: object) -> object:
        return exchange

    @tool(effect="read", name="fail")
    def fail(exchange: Mapping[str, Any]) -> None:
        raise ValueError(f"401 for headers {exchange['request']['headers']}")

    def leaks() -> object:
        send(exchange)
        try:
            fail(exchange)
        except ValueError:
            return exchange

    return recorded(store, leaks)


def _times(store: Store, folder: Path) -> str:
    """Case 31: steps whose times are told in every way."""
    steps = [
        {"idx": n, "kind": "tool", "name": f"t{n}", "input": {}, "output": n, "started_at": row["in"]}
        for n, row in enumerate(read("31", "rows.json"))
    ]
    path = folder / "times.json"
    path.write_text(json.dumps({"run": {"id": "case-31"}, "steps": steps}), "utf-8")
    return _imported(store, path)


def make_hostile(store: Store, folder: Path) -> list[str]:
    """Case 29: for each string a run that has it as name, step, model, content, result, error and tag, and one of all but the long
    one; ids of the runs, the long one and that one last."""
    ids: list[str] = []
    texts: list[str] = read("29", "strings.json")
    for n, text in enumerate([*texts, " ".join(texts[:-1])]):
        run = {
            "id": f"hostile-{n}",
            "name": text,
            "agent": text[:200],
            "tags": [text[:200]],
            "status": "error",
        }
        asked = {
            "model": text[:200],
            "messages": [{"role": "system", "content": text}, {"role": "user", "content": text}],
        }
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": text})}}
        said = {"role": "assistant", "content": text, "tool_calls": [call]}
        steps: list[Any] = [
            {"idx": 0, "kind": "llm", "name": text, "model": text[:200], "input": asked, "output": said},
            {"idx": 1, "kind": "tool", "name": text[:200], "input": {"a": text}, "output": text},
            {"idx": 2, "kind": "tool", "name": "f", "input": {text[:200]: 1}, "status": "error",
             "error": {"type": text[:200], "message": text}},
        ]  # fmt: skip
        path = folder / f"hostile-{n}.json"
        path.write_text(json.dumps({"run": run, "steps": steps}), "utf-8")
        ids.append(_imported(store, path))
    return ids
