"""What people decorate besides plain functions: methods of all kinds, objects, partials, lambdas; nested agents and tools."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.project import load_steps
from agentloupe.ports import ambient
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.sessions import RecordOpener

done: list[object] = []


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @loupe.tool(effect="read", key=lambda shop: shop.name)
    def price(self, thing: str) -> str:
        done.append(thing)
        return f"{thing} at {self.name}"

    @classmethod
    @loupe.tool(effect="read")
    def inner_class(cls, thing: str) -> str:
        done.append(thing)
        return f"{cls.__name__} {thing}"

    @loupe.tool(effect="read")
    @classmethod
    def outer_class(cls, thing: str) -> str:
        done.append(thing)
        return f"{cls.__name__} {thing}"

    @staticmethod
    @loupe.tool(effect="read")
    def inner_static(thing: str) -> str:
        done.append(thing)
        return f"static {thing}"

    @loupe.tool(effect="read")
    @staticmethod
    def outer_static(thing: str) -> str:
        done.append(thing)
        return f"static {thing}"

    @loupe.tool
    async def later(self, thing: str) -> str:
        done.append(thing)
        await asyncio.sleep(0)
        return f"later {thing}"


class Caller:
    def __call__(self, thing: str) -> str:
        done.append(thing)
        return f"called {thing}"


class AsyncCaller:
    async def __call__(self, thing: str) -> str:
        await asyncio.sleep(0)
        done.append(thing)
        return f"called {thing}"


def two(first: str, second: str) -> str:
    done.append(second)
    return first + second


called = loupe.tool(effect="pure", name="called")(Caller())
acalled = loupe.tool(effect="pure")(AsyncCaller())
part = loupe.tool(effect="pure")(functools.partial(two, "one "))
short = loupe.tool(effect="pure", name="short")(lambda thing: done.append(thing) or thing)


def methods() -> list[str]:
    shop = Shop("corner")
    first = [shop.price("tea"), shop.inner_class("a"), Shop.outer_class("b"), shop.outer_class("c")]
    return [*first, shop.inner_static("d"), Shop.inner_static("e"), shop.outer_static("f"), Shop.outer_static("g")]


def objects() -> list[str]:
    return [called("tea"), part("two"), str(short("x")), asyncio.run(acalled("y"))]


async def amethods() -> list[str]:
    return [await Shop("x").later("tea"), await acalled("z")]


@loupe.tool(effect="read")
def asks_further(thing: str) -> str:
    return part(thing) + called(thing)


def inner_calls() -> list[str]:
    return [asks_further("deep")]


@loupe.agent
def below(thing: str) -> str:
    return part(thing)


@loupe.agent
async def abelow(thing: str) -> str:
    return await acalled(thing)


def nested() -> list[str]:
    return [below("nested"), asyncio.run(abelow("async"))]


async def anested() -> list[str]:
    return [below("sync"), *await asyncio.gather(abelow("one"), abelow("two"))]


NAMES = {
    "methods": ["price", "inner_class", "outer_class", "outer_class", *["inner_static"] * 2, *["outer_static"] * 2],
    "objects": ["called", "two", "short", "AsyncCaller"],
    "amethods": ["later", "AsyncCaller"],
    "inner_calls": ["asks_further", "two", "called"],
    "nested": ["below", "two", "abelow", "AsyncCaller"],
}


@pytest.mark.parametrize(
    "program", [methods, objects, amethods, inner_calls, nested, anested], ids=lambda p: p.__name__
)
def test_they_are_recorded_and_replayed(program: Callable[..., Any]) -> None:
    done.clear()
    plain = program()
    plain = asyncio.run(plain) if asyncio.iscoroutine(plain) else plain
    store = MemoryStore()
    with ambient.opening_with(RecordOpener(store)):
        made = loupe.agent(program)()
        made = asyncio.run(made) if asyncio.iscoroutine(made) else made
    assert made == plain
    recording = store.recording(store.runs()[0].id)
    names = [step.name for step in load_steps(recording) if step.idx]
    assert names == NAMES.get(program.__name__, names)
    done.clear()
    report = loupe.replay(recording, program)
    assert report.passed, report.text()
    assert done == []


def test_self_is_kept_by_its_key_only() -> None:
    store = MemoryStore()
    with ambient.opening_with(RecordOpener(store)):
        loupe.agent(methods)()
    price, cls = load_steps(store.recording(store.runs()[0].id))[1:3]
    assert (price.input, cls.input) == ({"self": "corner", "thing": "tea"}, {"thing": "a"})


def test_a_module_that_is_loaded_again_declares_its_tools_again(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    monkeypatch.syspath_prepend(str(workdir))
    source = "import agentloupe as loupe\n@loupe.tool(effect='read')\ndef look():\n    return {}\n"
    (workdir / "reloaded_tools.py").write_text(source.format(1))
    import reloaded_tools  # type: ignore[import-not-found]

    (workdir / "reloaded_tools.py").write_text(source.format("'another'"))
    importlib.invalidate_caches()
    again: Any = importlib.reload(reloaded_tools)
    store = MemoryStore()
    with ambient.opening_with(RecordOpener(store)):
        assert loupe.agent(name="x")(lambda: again.look())() == "another"
    assert [step.name for step in load_steps(store.recording(store.runs()[0].id))] == ["agent.run", "look"]
    del sys.modules["reloaded_tools"]
