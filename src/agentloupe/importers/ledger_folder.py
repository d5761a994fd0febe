"""Reads a folder of the ledger form. Follows nothing that leads out of it, and holds nothing that is too large to be one.

Only the files that the form knows may lie in it, each a plain file: a link, a pipe, a further folder, a further name
are faults of `layout`. Sizes are looked at before a byte is read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from agentloupe.ports.ledger import LedgerFolder, no_bodies
from agentloupe.words.errors import LoupeError, NotFound, UsageError
from agentloupe.words.ledger import (
    ARTEFACTS,
    BODIES,
    BUDGET,
    CHECKPOINT,
    CONTRACT,
    EVENTS,
    LARGEST_RECEIPT,
    RECEIPTS,
    LedgerFault,
    error_of,
    left_over,
)

__all__ = ["LARGEST", "budget_file", "events_file", "open_ledger", "receipt_files"]

LARGEST = {EVENTS: 1 << 30, BODIES: 4 << 30, BUDGET: 1 << 20, CONTRACT: 16 << 20, CHECKPOINT: 1 << 20}
"""Bytes that a file may have."""
MOST_RECEIPTS = 1_000_000
LONGEST_BODY = 512 << 20
"""Bytes of one line of the values."""


def open_ledger(folder: Path, *, budget: Path | None = None) -> LedgerFolder:
    """The contents of a folder. Nothing in them is judged yet.

    Args:
        folder: where it lies.
        budget: where the budget lies, when it is not in the folder.

    Raises:
        NotFound: there is no such folder. UsageError: it is a file, or a folder of something else.
        Corrupt: something in it is missing, too much, no plain file, or too large (reason `layout`).
        LoupeError: it cannot be read (reason `unreadable`).
    """
    names = _of_ledger(folder)
    for name in sorted(names):
        if name not in (*ARTEFACTS, RECEIPTS) and not left_over(name):
            raise _layout(folder, name, "nothing of this name belongs into a ledger")
    contract = _whole(folder, CONTRACT) if CONTRACT in names else None
    checkpoint = _whole(folder, CHECKPOINT) if CHECKPOINT in names else None
    for name in ARTEFACTS:
        if name in names:
            _plain_size(folder, name)
    return LedgerFolder(
        origin=str(folder),
        events=_needed(folder, EVENTS, names),
        receipts=receipt_files(folder),
        budget=_needed(folder, BUDGET, names) if budget is None else budget_file(budget),
        contract=contract,
        checkpoint=checkpoint,
        has_bodies=BODIES in names,
        bodies=(lambda: _lines(folder)) if BODIES in names else no_bodies,
    )


def events_file(folder: Path) -> bytes:
    """The bytes of the log alone, for a salvage. Raises like `open_ledger`."""
    return _needed(folder, EVENTS, _of_ledger(folder))


def receipt_files(folder: Path) -> dict[str, bytes]:
    """The bytes of all receipts by their file names. Raises like `open_ledger`."""
    return dict(_receipts(folder)) if RECEIPTS in _of_ledger(folder) else {}


def budget_file(path: Path) -> bytes:
    """A budget that lies elsewhere. Raises like `open_ledger`."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    return _whole(path.parent, path.name, LARGEST[BUDGET], link=True)


def _of_ledger(folder: Path) -> set[str]:
    """The names in a folder that has at least one name of a ledger."""
    names = _listed(folder)
    if names.isdisjoint((*ARTEFACTS, RECEIPTS)):
        hint = "agentloupe ledger export RUN FOLDER writes one"
        raise UsageError(f"{folder} is no ledger: there is no {EVENTS} in it", hint=hint)
    return names


def _listed(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder)}
    except FileNotFoundError as missing:
        raise NotFound(f"there is no folder {folder}") from missing
    except NotADirectoryError as file:
        raise UsageError(f"{folder} is a file; a ledger is a folder") from file
    except OSError as wrong:
        raise _unreadable(folder, wrong) from wrong


def _needed(folder: Path, name: str, names: set[str]) -> bytes:
    if name not in names:
        raise _layout(folder, name, "there is no such file")
    return _whole(folder, name)


def _receipts(folder: Path) -> Iterator[tuple[str, bytes]]:
    place = folder / RECEIPTS
    if not stat.S_ISDIR(place.lstat().st_mode):
        raise _layout(folder, RECEIPTS, "it is no folder")
    names = sorted(_listed(place))
    if len(names) > MOST_RECEIPTS:
        raise _layout(folder, RECEIPTS, f"{len(names)} receipts: more than are read")
    for name in names:
        if not name.endswith(".json"):
            raise _layout(folder, f"{RECEIPTS}/{name}", "nothing of this name belongs into a ledger")
        yield name, _whole(folder, f"{RECEIPTS}/{name}", LARGEST_RECEIPT)


def _plain_size(folder: Path, name: str, *, link: bool = False) -> int:
    """Size of a plain file; a link would lead out of the folder, a pipe would never end."""
    found = (folder / name).stat(follow_symlinks=link)
    if not stat.S_ISREG(found.st_mode):
        raise _layout(folder, name, "it is a link, or no plain file")
    return found.st_size


def _whole(folder: Path, name: str, most: int | None = None, *, link: bool = False) -> bytes:
    most = LARGEST[name] if most is None else most
    size = _plain_size(folder, name, link=link)
    if size > most:
        raise _layout(folder, name, f"larger than {most} bytes")
    try:
        with _opened(f"{folder}/{name}", link=link) as file:
            data = file.read(size + 1)  # as much as there is, since room is made for as much as may come
            if len(data) > size:
                data += file.read(most + 1 - len(data))
    except OSError as wrong:
        raise _unreadable(folder / name, wrong) from wrong
    if len(data) > most:
        raise _layout(folder, name, f"larger than {most} bytes")
    return data


def _lines(folder: Path) -> Iterator[bytes]:
    """Lines of the values, without their line breaks; what stands behind the last one is a line, too."""
    if _plain_size(folder, BODIES) > LARGEST[BODIES]:
        raise _layout(folder, BODIES, f"larger than {LARGEST[BODIES]} bytes")
    try:
        with _opened(f"{folder}/{BODIES}") as file:
            while line := file.readline(LONGEST_BODY + 1):
                if len(line) > LONGEST_BODY:
                    raise _layout(folder, BODIES, f"a line is longer than {LONGEST_BODY} bytes")
                if line[-1:] != b"\n":
                    raise _layout(folder, BODIES, "the last line has no line break: it was cut")
                yield line[:-1]
    except OSError as wrong:
        raise _unreadable(folder / BODIES, wrong) from wrong


def _opened(path: str, *, link: bool = False) -> BinaryIO:
    flags = os.O_RDONLY | (0 if link else getattr(os, "O_NOFOLLOW", 0))
    return os.fdopen(os.open(path, flags), "rb")


def _layout(folder: Path, name: str, said: str) -> LoupeError:
    shown = name.encode("utf-8", "backslashreplace").decode()[:200]
    return error_of(LedgerFault(guard="layout", said=said, file=shown), str(folder))


def _unreadable(path: Path, wrong: OSError) -> LoupeError:
    return LoupeError(f"{path} cannot be read: {wrong.strerror or wrong}", reason="unreadable")
