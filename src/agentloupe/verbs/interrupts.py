"""Ends what runs in this process when it is interrupted: at once where it waits, and never in the middle of a record.

An interrupt may come between any two steps of the program. Where it would come out of the recorder or of the store, what is
being written down would be half; so it waits the moment until that is done.
"""

from __future__ import annotations

import _thread
import signal
import threading
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from agentloupe.ports.cancel import Cancel
from agentloupe.ports.surroundings import outside

__all__ = ["raising_at_rest"]

_OURS: Final = str(Path(__file__).parents[1])
_WRITING: Final = tuple(
    str(Path(_OURS, room)) for room in ("engine", "store", "words", "ports/codecs", "ports/pack.py")
)
"""Where nothing waits for the outside world, and a step that is left out leaves something half."""
_AGAIN: Final = 0.01
_TRIES: Final = 100
"""So often an interrupt is put off, `_AGAIN` seconds each time; then it comes wherever the program is."""


def raising_at_rest(cancel: Cancel) -> None:
    """From now on SIGINT says `cancel` and raises `KeyboardInterrupt` in the main thread, from which this must be called.

    Where the program keeps that from coming out, the token ends it before its next model call.
    """
    put_off = 0

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal put_off
        cancel.cancel("it was interrupted")
        if _is_writing(frame) and put_off < _TRIES:
            put_off += 1
            _tell_again(number)
            return
        put_off = 0
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)


def _is_writing(frame: FrameType | None) -> bool:
    """Whether the innermost of our own functions that runs is one that writes down."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_OURS):
            return file.startswith(_WRITING)
        frame = frame.f_back
    return False


def _tell_again(number: int) -> None:
    main = threading.main_thread().ident
    assert main is not None, "it runs"
    # To the thread itself, since that may wait by then. Where there are no such signals, it hears of it when it is back.
    tell = partial(signal.pthread_kill, main) if hasattr(signal, "pthread_kill") else _thread.interrupt_main
    again = threading.Timer(_AGAIN, tell, (number,))
    again.daemon = True
    with outside():
        again.start()
