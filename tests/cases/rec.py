"""The recorder hook of the shared cases (`main(rec)`, see their FORMATS.md), as a thin adapter over the SDK.

Whether it records, replays or forks is decided by the opener around it, as for any program.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import agentloupe as loupe
from agentloupe.ports import ambient, codecs
from agentloupe.ports.protocols import Store
from agentloupe.words.call import Call
from agentloupe.words.jsontext import Json

__all__ = ["Rec", "load_agent"]


def load_agent(folder: Path) -> ModuleType:
    """The module `agent.py` of a case."""
    spec = importlib.util.spec_from_file_location(f"case_{folder.name.replace('-', '_')}", folder / "agent.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Rec:
    """What a case calls.

    Args:
        store: where runs are recorded; default: the store of the settings.
        effect: what the case's tools do to the world.
    """

    def __init__(self, store: Store | None = None, effect: Any = "read") -> None:
        self.store = store
        self.effect = effect

    def run(self, name: str) -> Any:
        return loupe.recording(name, store=self.store)

    def llm(self, name: str, fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def ask(body: Any) -> Any:
            encoded = codecs.encode(body)
            call = Call(
                kind="llm",
                name=f"chat {name}",
                input=encoded.wire,
                attrs={"model": name},
                encode=_as_completion,
                decode=_from_completion,
                lost=tuple((lost.path, lost.type) for lost in encoded.unrecordable),
            )
            return ambient.call(call, lambda: fn(body))

        return ask

    def tool(self, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        assert not inspect.isgeneratorfunction(fn)
        return loupe.tool(effect=self.effect, name=name)(fn)

    def now(self) -> datetime:
        return loupe.now()

    def uuid(self) -> UUID:
        return loupe.uuid4()

    def random(self) -> float:
        return loupe.random()


def _as_completion(message: object) -> Json:
    return {"choices": [{"index": 0, "finish_reason": "stop", "message": codecs.encode(message).wire}]}


def _from_completion(body: Json) -> object:
    completion: Any = body
    return codecs.decode(completion["choices"][0]["message"])
