"""Recorders that stand around a client's calls: vcrpy and cassetter at HTTP, agent-rewind and rewind-agent at the SDK's method.

How they differ from us, and from each other:

- vcrpy and cassetter keep everything in memory and write one file at the end; agent-rewind writes and flushes a line for
  each call, as soon as it has the answer (no fsync); rewind-agent writes two files and commits twice. `rows/killed.py`
  measures what that means.
- vcrpy and cassetter match by method and address as they come, which answers any request to an address with the next
  answer recorded for it; both can compare bodies. agent-rewind compares a digest of the whole request, always; rewind-agent
  compares nothing.
- None of them proves on replay that what it serves is what was recorded.
- cassetter removes known headers and fields by itself, rewind-agent known fields; agent-rewind and vcrpy remove nothing
  unless told to.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.peers import Absent, load, rewinding

Asks = Callable[[], int]
Opened = Callable[[Path], contextlib.AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Cassettes:
    """A recorder, ready to be used.

    Attributes:
        name: as it is shown, with what a call is matched by.
        recording, replaying: make a call inside of them to have it recorded to a file, or answered from it.
        kept: how many calls a file has that can be read.
    """

    name: str
    recording: Opened
    replaying: Opened
    kept: Callable[[Path], int]

    def record(self, path: Path, asks: Asks) -> int:
        """Whatever asks, while it is recorded."""
        with self.recording(path):
            return asks()

    def replay(self, path: Path, asks: Asks) -> int:
        """The same answered from that file; opening it takes part."""
        with self.replaying(path):
            return asks()


def vcrpy(match: tuple[str, ...]) -> Cassettes:
    """vcrpy, matching by these. Raises `Absent`."""
    vcr = load("vcr")

    def opened(path: Path, mode: str) -> Any:
        return vcr.use_cassette(str(path), record_mode=mode, match_on=list(match))

    def kept(path: Path) -> int:
        with opened(path, "none") as cassette:
            return len(cassette)

    return Cassettes(_named("vcrpy", match), lambda path: opened(path, "all"), lambda path: opened(path, "none"), kept)


def cassetter(match: tuple[str, ...]) -> Cassettes:
    """cassetter, matching by these. Raises `Absent`."""
    library = load("cassetter")

    def opened(path: Path, mode: str) -> Any:
        named = path.with_suffix(".yaml")
        return library.use_cassette(named, record_mode=mode, match_on=list(match), intercept=["httpx2"])

    def kept(path: Path) -> int:
        try:
            with opened(path, "none") as cassette:
                return len(cassette.interactions)
        except library.cassette.CassetteNotFoundError:
            return 0

    return Cassettes(
        _named("cassetter", match), lambda path: opened(path, "all"), lambda path: opened(path, "none"), kept
    )


def rewind() -> Cassettes:
    """agent-rewind, in its strict mode. It patches the SDK's class, here for as long as it is in use. Raises `Absent`."""
    library = load("rewind")
    method = _rewound()

    @contextlib.contextmanager
    def inside(opened: Any) -> Generator[object]:
        from openai.resources.chat.completions import Completions

        plain = Completions.create
        Completions.create = method
        try:
            with opened as session:
                yield session
        finally:
            Completions.create = plain

    def kept(path: Path) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the last line is cut is what is looked for
            return len(library.Trace.load(path).events) if path.exists() else 0

    return Cassettes(
        "agent-rewind (whole request)",
        lambda path: inside(library.record(path)),
        lambda path: inside(library.replay(path)),
        kept,
    )


def rewind_agent() -> Cassettes:
    """rewind-agent, in its direct mode. Raises `Absent`."""
    load("rewind_agent")
    return Cassettes("rewind-agent (nothing)", rewinding.recording, rewinding.replaying, rewinding.kept)


@cache
def _rewound() -> Any:
    """The SDK's method as agent-rewind patches it."""
    from openai.resources.chat.completions import Completions

    undo = load("rewind").patch_openai()
    method: Any = Completions.create
    undo()
    return method


def _named(name: str, match: tuple[str, ...]) -> str:
    return f"{name} ({', '.join(match)})"


_URL = ("method", "uri")
_ALL: dict[str, tuple[str, Callable[[], Cassettes]]] = {
    "vcrpy": (_named("vcrpy", _URL), lambda: vcrpy(_URL)),
    "vcrpy+body": (_named("vcrpy", (*_URL, "body")), lambda: vcrpy((*_URL, "body"))),
    "cassetter": (_named("cassetter", _URL), lambda: cassetter(_URL)),
    "cassetter+body": (_named("cassetter", (*_URL, "json_body")), lambda: cassetter((*_URL, "json_body"))),
    "agent-rewind": ("agent-rewind (whole request)", rewind),
    "rewind-agent": ("rewind-agent (nothing)", rewind_agent),
}
LABELS = {name: label for name, (label, _) in _ALL.items()}
"""What they are called in figures, by name."""


def found(name: str) -> Cassettes | None:
    """The recorder of this name; `None` where it is not installed."""
    try:
        return _ALL[name][1]()
    except Absent:
        return None
