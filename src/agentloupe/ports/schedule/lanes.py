"""Lanes: the sequential paths of a program. What is counted in a lane is fixed when it is made, before any await."""

from __future__ import annotations

import threading
import zlib
from typing import NamedTuple

from agentloupe.words.call import Attrs
from agentloupe.words.canonical import Json

__all__ = ["Lane", "Naming", "stable_hash"]


class Naming(NamedTuple):
    """How a run counts its lanes and makes its hashes: the same in a recording, its replays and its forks.

    Attributes:
        salt: of the hashes of tasks and futures.
        closers_apart, finalisers_apart: whether what closes a generator, and tasks that finalisers make, are counted apart;
            recordings of older programs do not.
    """

    salt: int = 0
    closers_apart: bool = True
    finalisers_apart: bool = True

    @property
    def facts(self) -> dict[str, Json]:
        """What a run says of it at its beginning."""
        apart = {"closers_apart": self.closers_apart, "finalisers_apart": self.finalisers_apart}
        return {"hash_salt": self.salt, **{name: True for name, counted in apart.items() if counted}}

    @classmethod
    def of(cls, facts: Attrs) -> Naming:
        """The same from what a run says."""
        salt = facts.get("hash_salt")
        return cls(
            salt if isinstance(salt, int) else 0,
            facts.get("closers_apart") is True,
            facts.get("finalisers_apart") is True,
        )


class Lane:
    """One sequential path: the program itself (`0`), a task (`<parent>/aN`), a work item (`/pN`), a thread (`/tN`).

    The task that closes an async generator which was left is `/g-NAME-N`. Calls made while another call is performed are in
    the lane `<call_id>~` below it.

    Attributes:
        path: its name, unique in its run.
        calls: how many calls were made in it.
        timers, futures: how many timers and futures.
        thread: the thread that runs it, once that is known.
        made_at: the line that made it, where somebody may ask.
    """

    __slots__ = ("_closers", "_kids", "_remote", "calls", "futures", "made_at", "path", "thread", "timers")

    def __init__(self, path: str, calls: int = 0, *, thread: int | None = None) -> None:
        self.path = path
        self.calls = calls
        self.timers = 0
        self.futures = 0
        self.thread = thread
        self.made_at: object = None
        self._kids = 0
        self._remote = 0
        self._closers: dict[str, int] | None = None

    def child(self, tag: str, *, thread: int | None = None) -> Lane:
        """A new lane below this one.

        One that is made for this lane by another thread (`run_coroutine_threadsafe`) races with those that the lane makes
        itself, so it is counted apart.
        """
        if self.thread is None or self.thread == threading.get_ident():
            self._kids += 1
            return Lane(f"{self.path}/{tag}{self._kids}", thread=thread)
        self._remote += 1
        return Lane(f"{self.path}/r{tag}{self._remote}", thread=thread)

    def closer(self, generator: str) -> Lane:
        """A new lane for what closes an async generator that was left.

        Counted by the generator's name: a client that asks a real model leaves other generators behind than one that reads
        from a tape, and neither may move the number of what the program makes itself.
        """
        if self._closers is None:
            self._closers = {}
        number = self._closers[generator] = self._closers.get(generator, 0) + 1
        return Lane(f"{self.path}/g-{generator}-{number}")

    def next_timer(self) -> str:
        """The name of the next timer, which is taken."""
        name = self.coming_timer()
        self.timers += 1
        return name

    def coming_timer(self) -> str:
        """What the next timer will be called."""
        return f"{self.path}t{self.timers + 1}"

    def next_future(self, salt: int) -> int:
        """A hash for the next future."""
        self.futures += 1
        return stable_hash(f"{self.path}f{self.futures}", salt)


def stable_hash(name: str, salt: int) -> int:
    """The same number in every process, so that sets of tasks iterate alike in a recording and in its replay.

    The salt tells the runs of one process apart: the same lanes of a thousand runs must not share one hash.
    """
    return zlib.crc32(name.encode(), salt)
