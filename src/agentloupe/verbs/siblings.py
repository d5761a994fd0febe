"""The other runs of a program: where it started several, each is replayed by the whole program, the others beside it.

A run names the program that started it and which of its runs it was (`program`, `nth` of its `run.started`). The runs that
began before one ended are those that the program needs to come to it, and through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from agentloupe.engine.replayer import Replayer
from agentloupe.engine.tape import Tape
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import Recording
from agentloupe.verbs.api import open_store
from agentloupe.verbs.replaying import Wishes, find_recording, names_file, open_tape, replayer_for
from agentloupe.words.errors import LoupeError
from agentloupe.words.event import Event
from agentloupe.words.run import RunFilter

__all__ = ["MOST", "others_of", "replayers_of"]

MOST: Final = 1_000
"""So many runs of a store are looked at, from the end of the one that is replayed backwards in time."""
_PAGE: Final = 100


def others_of(tape: Tape, run: str | Path | Recording, store: Store | str | Path | None) -> list[Recording]:
    """What the same program recorded, up to the end of that run, in the store where it lies; nothing of a file on its own."""
    if isinstance(run, Path | Recording) or names_file(run):
        return []
    where = store if store is not None and not isinstance(store, str | Path) else open_store(store, create=False)
    program = _program(tape.started)
    if program is None or tape.finished is None:
        return []
    return [where.recording(run_id) for run_id in _found(where, tape, program)]


def _found(store: Store, tape: Tape, program: str) -> Iterator[str]:
    assert tape.finished is not None, "checked before"
    until = tape.finished.recorded_at
    for offset in range(0, MOST, _PAGE):
        page = store.runs(RunFilter(until=until, limit=_PAGE, offset=offset))
        for row in page:
            first = next(iter(store.events(row.id, limit=1)), None)
            if first is None or _program(first) != program:
                continue
            if row.id != tape.recording.run_id and not row.erased:
                yield row.id
            if first.attrs.get("nth") == 0:
                return
        if len(page) < _PAGE:
            return


def _program(started: Event) -> str | None:
    said = started.attrs.get("program")
    return said if isinstance(said, str) else None


def replayers_of(files: Iterable[Path], wishes: Wishes) -> Iterator[Replayer]:
    """A replay of each of these files; one that cannot be replayed is left out, and its start is stopped like any other."""
    for file in files:
        with suppress(LoupeError):
            quiet = replace(wishes, expect=None, until_failure=False, stopped=None)
            opened = open_tape(find_recording(file, None), quiet)
            if isinstance(opened, Tape):
                yield replayer_for(opened, quiet)
