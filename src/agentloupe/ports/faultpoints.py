"""Fault points: named places where a test lets the process die, to see that whoever comes next finds everything right.

    reach("effect.after_intent")          # in the code: nothing, in a process that no test has armed

A test arms one place of a process that it starts, by its environment: `LOUPE_FAULT=POINT[:NTH[:ACTION]]`. At the nth time
(the first, unless said) that the place is reached the process is killed as by SIGKILL, or with the action `stop` it stands
still until it gets SIGCONT, so that the world around it can be changed. The variable is read once, when this module is
imported. Nothing that a run is given, and no settings file, can arm a place.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import count
from typing import Final

from agentloupe.words.errors import UsageError

__all__ = ["POINTS", "VARIABLE", "armed_by", "reach"]

VARIABLE: Final = "LOUPE_FAULT"

POINTS: Final[dict[str, str]] = {
    # recording: the spool, the database, the thread that settles
    "start.after_row": "the run is in the database without an event: it is no run to anybody, `gc` removes it, its id is free",
    "spool.before_frame": "the call that was about to be committed is not there, everything before it is",
    "spool.after_frame": "the call is there, although nobody was told that it was committed",
    "spool.after_sync": "the call is there, also after a loss of power",
    "flusher.before_flush": "what was committed is there; what was only grouped may be lost",
    "settle.after_head": "everything that was committed is there, once",
    "settle.after_bodies": "bodies without an event that refers to them are not there: the spool brings both again",
    "settle.after_events": "events without their steps are not there: the spool brings both again",
    "settle.before_commit": "nothing of the batch is in the database twice, nothing is lost",
    "settle.after_commit": "the batch is in the spool and in the database: it counts once",
    "recover.before_commit": "who settles for a dead process died too: the next one settles",
    "recover.after_commit": "the dead process's spool was settled and is still there: it counts once",
    "check.after_check": "the check is there, the state that follows from it is not: a resume checks again and says it",
    "run.before_finish": "the run is interrupted, and goes on to its end",
    "run.after_finish": "the run has ended, once, with its result",
    "run.handed_over": "a script's end is known and not written: the run is interrupted, and a resume writes its end",
    # effects
    "effect.after_intent": "the intent is there, and the world has no effect: the effect is open",
    "effect.after_effect": "the world has the effect, the record has not its outcome: the effect is open",
    "effect.after_outcome": "effect and outcome are there: a resume serves the outcome",
    # resume
    "resume.after_owner": "the run has a dead owner: the next resume takes it",
    "resume.after_attempt": "the attempt is there, nothing of it was done: the next resume goes on",
    "resume.after_unknown": "the effect is unknown, and nobody was asked: the next resume asks",
    "resume.after_lookup": "the world was asked, and the record does not say so: the next resume asks again",
    "outbox.after_delivery": "the sink has the message, the cursor is before it: it is delivered again, under the same id",
    # forks and jobs
    "fork.after_prefix": "the fork holds the copy of its parent's beginning, whole, and nothing of its own",
    "job.after_claim": "the job is a dead worker's: the next one takes it",
    "job.after_answer": "the answer is there, and the one who asked is gone: nobody is asked that question again in vain",
    "job.after_work": "the runs of the job are there, its row does not say so: the next worker makes none twice",
    "job.after_finish": "the job is done, once",
    # files
    "file.before_rename": "the file at the place is the old one or none; the temporary one is no file of the ledger",
    "export.before_rename": "the file at the place is the old one or none, and the export is made again",
    "ledger.after_receipts": "there is no folder at the place; the export is made again",
    "ledger.before_rename": "there is no folder at the place; the export is made again",
}
"""The closed list: every place, and what must hold for whoever comes after a process that died there."""


def _unarmed(point: str) -> None:
    """Says that a place is reached. Does nothing, unless a test has armed that place."""


def armed_by(said: str) -> Callable[[str], None]:
    """What `reach` is in a process with this value of `LOUPE_FAULT`.

    Raises:
        UsageError: there is no such point, number or action.
    """
    if not said:
        return _unarmed
    wanted, _, rest = said.partition(":")
    nth, _, action = rest.partition(":")
    if wanted not in POINTS or not (nth or "1").isdecimal() or action not in ("", "kill", "stop"):
        raise UsageError(
            f"{VARIABLE}={said!r} names no fault point", hint="POINT[:NTH[:kill|stop]], see ports/faultpoints"
        )
    left = count(int(nth or "1") - 1, -1)

    def reach(point: str) -> None:
        if point == wanted and next(left) == 0:
            _end(said, stop=action == "stop")

    return reach


def _end(said: str, *, stop: bool) -> None:
    """Kills this process, or lets it stand still. A word is left behind, for whoever has set the variable by mistake."""
    os.write(2, f"agentloupe: {'stopped' if stop else 'killed'} by {VARIABLE}={said}\n".encode())
    how = signal.SIGSTOP if stop else getattr(signal, "SIGKILL", signal.SIGTERM)
    os.kill(os.getpid(), how)


reach: Final = armed_by(os.environ.get(VARIABLE, ""))
