"""An interrupt ends what waits at once, and what is being written down when that is done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentloupe.ports.cancel import Cancel
from agentloupe.verbs import interrupts
from tests.support import SRC


@pytest.fixture
def cancel() -> Iterator[Cancel]:
    before = signal.getsignal(signal.SIGINT)
    made = Cancel()
    interrupts.raising_at_rest(made)
    yield made
    signal.signal(signal.SIGINT, before)


def standing_in(place: str, source: str) -> Callable[..., Any]:
    """A function as if it stood in a file of ours."""
    names: dict[str, Any] = {"signal": signal, "threading": threading}
    exec(compile(source, str(SRC / place), "exec"), names)  # our own text, under another name
    return names["does"]


INTERRUPTED = """
def does(done):
    signal.raise_signal(signal.SIGINT)
    done.append("whole")
"""


@pytest.mark.parametrize(
    "place", ["store/writer.py", "engine/recorder.py", "ports/codecs/walk.py", "words/canonical.py"]
)
def test_what_is_being_written_is_written_first(cancel: Cancel, place: str) -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):  # where it comes out is what is tested
        standing_in(place, INTERRUPTED)(done)
        assert done == ["whole"]
        threading.Event().wait(60)
    assert done == ["whole"]
    assert cancel.cancelled


@pytest.mark.parametrize("place", ["ports/drivers.py", "verbs/working.py", "providers/http.py", "../users_agent.py"])
def test_what_waits_ends_at_once(cancel: Cancel, place: str) -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        standing_in(place, INTERRUPTED)(done)
    assert (done, cancel.cancelled) == ([], True)


def test_the_users_code_that_the_engine_calls_is_not_taken_for_writing(cancel: Cancel) -> None:
    """The innermost function of ours counts: a tool that runs below the drivers may wait for ever."""
    driver = standing_in("ports/drivers.py", "def does(perform, done):\n    perform(done)\n")
    engine = standing_in("engine/loop.py", "def does(driver, perform, done):\n    driver(perform, done)\n")
    tool = standing_in("../users_tool.py", INTERRUPTED)
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        engine(driver, tool, done)
    assert done == []


def test_one_that_never_stops_writing_is_interrupted_in_the_end(
    cancel: Cancel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "_TRIES", 3)
    stuck = standing_in("store/writer.py", "def does():\n    signal.raise_signal(2)\n    threading.Event().wait(60)\n")
    with pytest.raises(KeyboardInterrupt):
        stuck()
    assert cancel.why == "it was interrupted"
