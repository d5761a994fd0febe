"""Waits for a child process so that signals end both: what is recorded in the child is kept, and no child is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType

from agentloupe.ports.ambient import is_users
from agentloupe.ports.cancel import Cancel
from agentloupe.ports.surroundings import outside

__all__ = ["GRACE", "PATIENCE", "missing_variable", "quiet_stops", "raised_at", "run_child"]

DEBUG = "LOUPE_DEBUG"
"""Set by `--debug`, for children."""
PATIENCE = 5.0
"""Seconds that a child has to end by itself after it was interrupted."""
GRACE = 2.0
"""The same after somebody cancelled what it does: they wait for it."""


def raised_at(error: BaseException, about: str | None = None) -> str:
    """Class and place of an exception: `KeyError at my_agent.py:10`, the innermost line that is no library's.

    Its own words may hold what nobody should see; what it is `about` is given where that is known to hold nothing.
    """
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    place = f" at {Path(lines[-1].filename).name}:{lines[-1].lineno}" if lines else ""
    return f"{type(error).__qualname__}{f': {about!r}' if about else ''}{place}"


def missing_variable(error: BaseException) -> str | None:
    """The environment variable that a program read straight and that is not set, where it raised for that."""
    if not isinstance(error, KeyError) or not error.args:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    name: object = error.args[0]
    straight = bool(frames) and frames[-1].filename == os.environ.__class__.__getitem__.__code__.co_filename
    return name if straight and isinstance(name, str) else None


def quiet_stops(shown: Sequence[str] = (), stopped: Callable[[], bool] = lambda: False) -> None:
    """In a child that replays or forks: a program, or a thread, that is stopped prints no traceback; the verdict says why.

    What a thread raises of its own is printed as ever, what the program raises with its own lines alone, unless it was raised at one of the places that were `shown`; once something
    was `stopped` in them, what they raise comes of that (a framework whose task was ended), and is a line. With
    `--debug` everything is printed.
    """
    if os.environ.get(DEBUG):
        return
    from agentloupe.words.errors import ForkRefused, LimitReached, ReplayMismatch

    stops = ReplayMismatch, ForkRefused, LimitReached
    thread_hook, hook = threading.excepthook, sys.excepthook

    def in_thread(raised: threading.ExceptHookArgs) -> None:
        if isinstance(raised.exc_value, stops):
            return
        if stopped() and raised.exc_value is not None:
            _say_consequence("a thread", raised.exc_value)
        else:
            thread_hook(raised)

    def in_program(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        # Of an interrupt the command tells that waits for us.
        if raised_at(error) in shown or isinstance(error, (*stops, KeyboardInterrupt)):
            return
        if stopped():
            _say_consequence("the program", error)
        elif hook is not sys.__excepthook__ or not _told_shortly(error):
            hook(kind, error, trace)

    threading.excepthook, sys.excepthook = in_thread, in_program


def _told_shortly(error: BaseException) -> bool:
    """Prints what a program raised with the lines of its own files; says whether there are any."""
    told = traceback.TracebackException.from_exception(error)
    own = [frame for frame in told.stack if is_users(frame.filename)]
    if not own or isinstance(error, BaseExceptionGroup):
        return False
    less = len(own) < len(told.stack) or told.__cause__ is not None or told.__context__ is not None
    told.stack = traceback.StackSummary.from_list(own)
    told.__cause__ = told.__context__ = None
    more = "(lines of libraries and earlier errors are left out; --debug shows them)\n" if less else ""
    sys.stderr.write("".join(told.format()) + more)
    return True


def _say_consequence(who: str, error: BaseException) -> None:
    sys.stderr.write(f"agentloupe: {who} was stopped, and raised {raised_at(error)} (--debug shows where)\n")


def run_child(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    timeout: float | None = None,
    insist: bool = True,
    cancel: Cancel | None = None,
    apart: bool = False,
) -> int:
    """Runs a child to its end; returns its exit code, 128 and the signal's number where a signal ended it.

    Ctrl-C in a terminal reaches the child by itself; where there is none, it is handed on. SIGTERM is handed on always.

    Args:
        command: the program and its arguments.
        environment: all variables of the child; default: those of this process.
        stdout: descriptor that its output goes to; default: where ours goes.
        stderr: the same for its errors.
        timeout: seconds after which it is ended.
        insist: after an interrupt the child is ended if it does not end in time, and `KeyboardInterrupt` comes out;
            without it the child's own handling decides, and its exit code says what became of it.
        cancel: interrupts the child, and ends it where it does not end by itself within `GRACE`.
        apart: it has no terminal: Ctrl-C is not for it, and it reads nothing.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it was ended after its time.
        KeyboardInterrupt: it was interrupted, and has ended.
    """
    stdin = subprocess.DEVNULL if apart else None
    with (
        subprocess.Popen(  # noqa: S603  # what the user typed
            command, env=environment, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=apart
        ) as child,
        _handing_on(child),
        _cancelling(child, cancel),
    ):
        try:
            code = child.wait(timeout)
        except KeyboardInterrupt:
            code = _after_interrupt(child, insist)
            if insist:
                raise
        except BaseException:
            child.kill()
            raise
    return 128 - code if code < 0 else code


def _after_interrupt(child: subprocess.Popen[bytes], insist: bool) -> int:
    """Waits on; a child that the terminal does not tell of the interrupt is told here."""
    told = _terminal_tells()
    while True:
        try:
            return child.wait(PATIENCE if insist else None if told else 1.0)
        except KeyboardInterrupt:
            continue
        except subprocess.TimeoutExpired:
            if told:
                child.kill()
            else:
                _interrupt(child)
                told = True


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    if os.name == "posix":
        child.send_signal(signal.SIGINT)
    else:
        child.terminate()


@contextmanager
def _cancelling(child: subprocess.Popen[bytes], cancel: Cancel | None) -> Generator[None]:
    """While the block runs a cancel ends the child, and with it the block."""
    if cancel is None:
        yield
        return
    late = threading.Timer(GRACE, child.kill)
    late.daemon = True

    def end() -> None:
        _interrupt(child)
        with outside():
            late.start()

    try:
        with cancel.waking(end):
            yield
    finally:
        late.cancel()


def _terminal_tells() -> bool:
    """Whether Ctrl-C reaches the whole foreground group, this process and its children, by itself."""
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        try:
            if stream is not None and os.tcgetpgrp(stream.fileno()) == os.getpgrp():
                return True
        except (OSError, ValueError):
            continue
    return False


@contextmanager
def _handing_on(child: subprocess.Popen[bytes]) -> Generator[None]:
    """While the block runs a request to end this process ends the child, whose end ends the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hand_on(number: int, frame: FrameType | None) -> None:
        del number, frame
        child.terminate()

    before = signal.signal(signal.SIGTERM, hand_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
