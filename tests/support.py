"""Places and helpers that tests share; fixtures that use them stand in conftest.py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "agentloupe"
SHARED = ROOT.parent / "shared"  # sample data that is too large and too foreign to live in the repository


def shared_folder() -> Path:
    """The folder `../shared` beside the repository; skips the calling test, visibly, where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("needs ../shared (sample data beside the repository)")
    return SHARED


def case_folder(number: str) -> Path:
    """The folder of the shared case whose name begins with `number`, e.g. "04"."""
    prefix = f"{number}-"
    found = sorted(p for p in (shared_folder() / "cases").iterdir() if p.name.startswith(prefix))
    if len(found) != 1:
        pytest.fail(f"../shared/cases holds {len(found)} folders named {prefix}*, expected one")
    return found[0]


def some_of(
    cases: Iterable[tuple[Any, ...]], always: Callable[[int], bool], ids: Callable[[Any], str] = str
) -> list[Any]:
    """Parameters of a test that is repeated often: those whose number is not taken `always` run in `make test-all` only."""
    return [
        pytest.param(*case, id="-".join(map(ids, case)), marks=() if always(number) else pytest.mark.many)
        for number, case in enumerate(cases)
    ]


class Passing:
    """Passes on to `inner`, a store or a writer, what a class made of this does not say otherwise."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def calls_in(work: Callable[[], object]) -> int:
    """Function calls, of Python and of C, that some work takes."""
    count = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
