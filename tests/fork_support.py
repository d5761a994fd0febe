"""A scripted model and the weather run, for tests of forks."""

from __future__ import annotations

import copy
import io
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentloupe.demo.calculator import calculate as plain_calculate
from agentloupe.engine.project import Projector
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.ports.protocols import Store
from agentloupe.store.owners import this_process
from agentloupe.verbs.instrument import tool
from agentloupe.verbs.looping import run_loop

QUESTION = "what is the difference in temperature between Beijing and Shanghai now, and in Fahrenheit?"
SYSTEM = "Use the tools for data and for arithmetic. No mental arithmetic."
CITIES = {"Beijing": (11.9, "sunny"), "Shanghai": (17.7, "cloudy"), "Guangzhou": (24.3, "clear")}


def schema(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


SCHEMAS: list[Any] = [
    schema("get_weather", city={"type": "string"}, unit={"enum": ["celsius", "fahrenheit"]}),
    schema("calculate", expression={"type": "string"}),
]


def plain_weather(city: str, unit: str = "celsius") -> dict[str, Any]:
    degrees, sky = CITIES[city]
    return {"city": city, "temperature": degrees if unit == "celsius" else degrees * 9 / 5 + 32, "sky": sky}


PLAIN: dict[str, Any] = {"get_weather": plain_weather, "calculate": plain_calculate}
"""The tools, with no effect stated."""

TOOLS: dict[str, Any] = {
    "get_weather": tool(effect="read", name="get_weather")(plain_weather),
    "calculate": tool(effect="pure", name="calculate")(plain_calculate),
}


class Script:
    """A fake model: the n-th question gets the n-th answer. Remembers what it was asked."""

    def __init__(self, *answers: Any, tokens: tuple[int | None, int | None] = (10, 5)) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.tokens = tokens
        self._lock = threading.Lock()

    def __call__(
        self, messages: list[Any], tools: list[Any], model: str | None, temperature: float | None
    ) -> tuple[dict[str, Any], int | None, int | None]:
        with self._lock:
            at = len(self.asked)
            self.asked.append(
                copy.deepcopy({"messages": messages, "tools": tools, "model": model, "temperature": temperature})
            )
        answer = self.answers[at] if at < len(self.answers) else "done"
        if isinstance(answer, BaseException):
            raise answer
        return (answer if isinstance(answer, dict) else say(answer, at)), *self.tokens


def say(answer: Any, at: int = 0) -> dict[str, Any]:
    """A text is a final answer; pairs of tool and arguments are calls."""
    if isinstance(answer, str):
        return {"role": "assistant", "content": answer}
    pairs: Sequence[tuple[str, Any]] = [answer] if isinstance(answer, tuple) else answer
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{at}_{i}",
                "type": "function",
                "function": {"name": name, "arguments": args if isinstance(args, str) else json.dumps(args)},
            }
            for i, (name, args) in enumerate(pairs)
        ],
    }


def weather_script() -> Script:
    return Script(
        [("get_weather", {"city": "Beijing"}), ("get_weather", {"city": "Shanghai"})],
        ("calculate", {"expression": "17.7 - 11.9"}),
        "Shanghai is 5.8 C warmer, that is 10.44 F.",
    )


def weather_run(store: Store, run_id: str = "weather-1", tools: dict[str, Any] = TOOLS, **more: Any) -> str:
    """The six-step run: model 0, 3, 5, tools 1, 2, 4."""
    steps = run_loop(
        weather_script(),
        tools,
        model="small-1",
        system=SYSTEM,
        question=QUESTION,
        tool_schemas=SCHEMAS,
        store=store,
        run_id=run_id,
        name="weather",
        **more,
    )
    assert [step.kind for step in steps] == ["llm", "tool", "tool", "llm", "tool", "llm"]
    return run_id


def shape(store: Store, run_id: str) -> list[tuple[int, str, str, str]]:
    """(idx, kind, name, source) of every step."""
    return [(s.idx, s.kind, s.name, s.source) for s in store.steps(run_id)]


def import_runs(store: Store, path: Path) -> list[str]:
    """Imports a foreign file; ids of its runs."""
    from agentloupe.importers import detect

    ids: list[str] = []
    for found in detect(path).read(path).runs:
        if found.sealed is not None:
            store.insert(found.run_id, found.sealed.events, found.sealed.get, Projector)
        else:
            writer = store.start(found.run_id, Projector, owner=this_process())
            writer.append(found.drafts, found.bodies)
            writer.close()
        ids.append(found.run_id)
    return ids


def exported(store: Store, run_id: str) -> bytes:
    """The run as a file."""
    out = io.BytesIO()
    LoupeFileExporter().write(iter([store.recording(run_id)]), out)
    return out.getvalue()


def sandbox(**arguments: Any) -> str:
    """Stands in for a tool."""
    return f"sandboxed {sorted(arguments)}"
