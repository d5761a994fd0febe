"""The schedule of one run: when what comes from outside is handed to the program, and in which order.

One rule, obeyed by recordings and replays alike:

    An input (the end of a call, the expiry of a timer) is handed over only while the program is quiet, one at a time.
    The order of the hand-overs is what the tape keeps.

*Quiet*: no code of the program can run before another input comes. Since recordings keep the rule as well, whatever happens
between two inputs follows from the program, and a replay needs nothing but the order.

There is one class for all: a recording has no order to keep and is live from the start; a replay has the whole order and is
never live; a fork keeps the order of its prefix and is live from then on.
"""

from __future__ import annotations

import threading
import time
from _thread import RLock as _RLock
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Final

from agentloupe.ports.schedule.faults import survives
from agentloupe.ports.schedule.lanes import Lane, Naming
from agentloupe.ports.schedule.order import Order, Turn
from agentloupe.ports.schedule.parts import STUCK_AFTER, Coming, Item, Keeper, Mark, Mode, PieceTurn, Strand
from agentloupe.ports.schedule.told import Told
from agentloupe.words.call import Attrs
from agentloupe.words.canonical import Json
from agentloupe.words.errors import ReplayMismatch

__all__ = ["PATIENCE", "STUCK_AFTER", "Item", "Mode", "Schedule", "Strand", "Turn", "nudge"]

PATIENCE: Final = 0.05
"""Seconds that a loop which is never quiet may keep an input back."""
UNSEEN_WORK: Final = 12
"""So many times `stuck_after` a replay waits, from one input to the next, for a thread that computes without the baton."""
MARKS_KEPT: Final = 100
"""So many marks are written; more say nothing new."""
_OWN_NAMING: Final = Naming()


class _Threads(threading.local):
    def __init__(self) -> None:
        self.strands: dict[int, Strand] = {}


_threads = _Threads()
_serials = count()


class Schedule:
    """The schedule of one run.

    Args:
        order: the hand-overs to be followed, from a tape.
        live: inputs come from the world, and are handed over as they arrive once the order is used up; see `go_live`.
        mode: how much is waited for.
        keeper: what is told of it.
        stuck_after: seconds without a move after which an order that must be followed counts as stuck.
        naming: how lanes are counted and hashes made.

    Attributes:
        order: what is left of the tape's.
        strands: of the program, those that have ended left out; several of them pass the baton.
        lanes: how many lanes were made, the first one counted.
        marks: how often the order could not be proven, by mark.
        baton: whether strands pass it; from the second one on. holder: who has it, since when. runq: who may have it next.
        beginning: work items that a worker is about to take; until then nobody runs. coming: the same themselves.
        at_close: called when the run is over.
    """

    def __init__(
        self,
        order: Sequence[Turn] = (),
        *,
        live: bool = True,
        mode: Mode = "exact",
        keeper: Keeper | None = None,
        stuck_after: float = STUCK_AFTER,
        naming: Naming = _OWN_NAMING,
    ) -> None:
        self.mode: Mode = mode
        self.live = live
        self.keeper = keeper
        self.stuck_after = stuck_after
        self.naming = naming
        self.lock = _RLock()
        self.strands: set[Strand] = set()
        self.lanes = 1
        self.baton = False
        self.closed = mode == "off"
        self.marks: dict[Mark, int] = {}
        self.moved = time.monotonic()
        self.halted_at = 0.0
        self.items: dict[str, Item] = {}
        self.spare: dict[str, Item] = {}
        self.idle: dict[Any, Strand] = {}
        self.holder: Strand | None = None
        self.since = 0.0
        self.runq: deque[Strand] = deque()
        self.beginning = 0
        self.coming: list[Coming] = []
        self.at_close: list[Callable[[], None]] = []
        self._told = Told(self.log)
        self._used: dict[Strand, object] = {}
        self._waited_for = 0
        self._signal: Callable[[], BaseException] | None = None
        self.order = Order(order)
        self._complained = False
        self.failed = False
        self._gone: str | None = None
        self._serial = next(_serials)
        self.root_task: Callable[[], Any] = _nothing

    @property
    def facts(self) -> dict[str, Json]:
        """What a run says of its schedule at its beginning."""
        return {"schedule": self.mode, **self.naming.facts}

    # --- what is waited for -------------------------------------------------------------------------------------------

    @property
    def follows(self) -> bool:
        """Whether the next hand-over is a tape's."""
        return not self.live or bool(self.order)

    def known(self, id: str) -> bool:
        """Whether the order has a turn for this input."""
        return id in self.order

    def awaited(self) -> str | None:
        """What the order waits for: the first thing that did not happen yet; `None` when nothing is left of it."""
        return self.order.awaited()

    def left(self) -> list[str]:
        """Inputs of the order that were not handed over."""
        return self.order.left()

    @survives
    def started(self, name: str) -> None:
        """A call that is answered from the order has started, or a lane has ended."""
        self.moved = time.monotonic()
        self.order.happened((name,))

    def drop(self, ids: Iterable[str]) -> None:
        """Inputs that will not be handed over, or were handed over past the schedule: their turns are left out."""
        if self.order.drop(ids):
            self.pump()

    def go_live(self) -> None:
        """The program has come to the end of the order: from here on inputs come from the world."""
        with self.lock:
            self.order.cut()
            self.live = True
            self.items |= self.spare
            self.spare.clear()
        self.pump()

    def _pick(self, loop: Any) -> Item | None:
        """The input whose turn it is, where it is here. The lock is held."""
        head = self.order.head()
        if head is not None:
            item = self.items.get(head.id)
            if item is None or not self.order.ripe(head):
                return self._spare(loop)
            return item
        if not self.live:
            return self._spare(loop)
        if self.spare:  # the order is used up: what was due meanwhile is an input like any other
            self.items |= self.spare
            self.spare.clear()
        idle = self.idle
        for item in list(self.items.values()):  # as they have arrived
            if item.loop is None or item.loop is loop or item.loop in idle:
                if not item.dead():
                    return item
                del self.items[item.id]
        return None

    def _spare(self, loop: Any) -> Item | None:
        """A timer that did not fire on the tape, and is due, where the tape's next input is not here though all is quiet.

        A program that sleeps once more than it did is to be found, if at all, by what it does then.
        """
        if len(self.strands) > 1 and not self.baton:
            return None
        for item in list(self.spare.values()):
            if item.dead():
                del self.spare[item.id]
            elif item.loop is None or item.loop is loop or item.loop in self.idle:
                return item
        return None

    # --- handing over -------------------------------------------------------------------------------------------------

    @survives
    def add(self, item: Item) -> None:
        """An input is here."""
        item.since = self.moved = time.monotonic()
        self.items[item.id] = item
        if self.closed or self._signal is not None:
            self._flush()
        else:
            self.pump()

    @survives
    def due(self, item: Item) -> None:
        """A timer is due: it is an input, if the order does not stand against it."""
        if self.follows and not self.closed and self._signal is None:
            self.spare[item.id] = item
            self.pump()
        else:
            self.add(item)

    def over(self, lane: Lane, when_set: bool) -> bool:
        """Whether the time of a timer is over when it is set, so that no input has to come: by the tape, else `when_set`.

        How long the program took to set it is chance. A timer that is over has its name, and no turn.
        """
        name = lane.coming_timer()
        told = name in self.order.at_once
        if told or (when_set and not self.follows):
            lane.next_timer()
            if not told:
                self.log("timer.fired", lane.path, {"timer": name, "at_once": True})
            return True
        return False

    @survives
    def withdraw(self, id: str) -> bool:
        """The program does not wait for an input any more; whether that was so before it was handed over."""
        with self.lock:
            self._told.withdrawn(id)
            return self.items.pop(id, None) is not None

    @survives
    def pump(self, loop: Any = None, *, forced: bool = False) -> bool:
        """Hands over one input if the program is quiet; whether it did. `loop`: the one that asks, in its own thread."""
        if self.closed or self._signal is not None or not (self.items or self.spare):
            return False
        with self.lock:
            done = (forced or self._quiet(loop)) and self._pump(loop, forced)
        self.complain()
        return done

    def _pump(self, loop: Any, forced: bool) -> bool:
        item = self._pick(loop)
        if item is None or (item.loop is None and loop is not None and not forced):
            return False  # for a thread: the loop that asks parks first
        if item.loop is not loop and item.loop is not None:
            if item.loop in self.idle:  # the inputs of a loop are handed over by it
                nudge(item.loop)
            return False
        if item.dead():  # a timer that has fired on the tape, and that the program has cancelled
            del self.items[item.id]
            self._gone = self._gone or item.id
            return False
        self._hand_over(item)
        return True

    @survives
    def complain(self) -> None:
        """Tells of a timer that was cancelled. Never with the lock: whoever is told may wait for somebody who waits for it."""
        if self._gone is not None and self.keeper is not None and not self._complained and not _owned(self.lock):
            self._complained = True
            self.keeper.cancelled(str(self._gone))

    def _quiet(self, loop: Any) -> bool:
        if not self.baton:
            return True  # who asks is quiet, and who else there is does not matter
        if self.runq or self.beginning:
            return False
        return self.holder is None or (loop is not None and self.idle.get(loop) is None)

    @survives
    def tells(self, id: str) -> None:
        """The end of a call is told before its turn."""
        with self.lock:
            self._told.end(id, others=self._several)

    @survives
    def leave_waiting(self) -> None:
        """What was told and is not handed over yet has its turn later, if at all."""
        with self.lock:
            self._told.waiting()

    def owes(self, ids: Collection[str]) -> None:
        """These calls were told by an attempt that died before it handed them over: their turn is still to be noted."""
        with self.lock:
            self._told.owed(ids)

    def _hand_over(self, item: Item) -> None:
        follows = self.follows
        if not follows:
            self._told.pieces(item.piece)
        self._told.turn(item.id)
        if self.spare.pop(item.id, None) is not None:
            self.mark("guess", {"why": f"timer {item.id} is not in the recording"})
        else:
            del self.items[item.id]
            self.order.advance()
        self.moved, self._waited_for = time.monotonic(), 0
        if item.lane is not None and not follows:
            self.log("timer.fired", item.lane, {"timer": item.id})
        item.deliver()

    @survives
    def note_pieces(self) -> None:
        """The run ends: which pieces were handed over last is logged while something can be."""
        with self.lock:
            self._told.pieces()

    def takes_turns(self, piece: PieceTurn) -> bool:
        """Whether a piece of a stream is an input: by the tape, else where somebody else could see that it was waited for.

        Recordings of older programs have no turns of pieces, and none is waited for.
        """
        if self.closed or self.known(piece.id):
            return not self.closed
        return not self.follows and self._several

    @property
    def _several(self) -> bool:
        """Whether more than one part of the program may wait for something."""
        return self.lanes > 1 or len(self.strands) > 1

    # --- calls of threads ---------------------------------------------------------------------------------------------

    @survives
    def begin(self, lane: Lane) -> None:
        """This thread runs the program from here on, if it does not do so already."""
        if self._serial not in _threads.strands and not self.closed:
            strand = Strand(lane)
            self.enter(strand)
            self.holder, self.since = strand, time.monotonic()

    @survives
    def enter(self, strand: Strand) -> None:
        """This thread is that strand."""
        strand.here()
        _threads.strands[self._serial] = strand
        self.strands.add(strand)

    @survives
    def leave(self, strand: Strand) -> None:
        """The strand has ended in this thread."""
        _threads.strands.pop(self._serial, None)
        self.strands.discard(strand)

    def strand(self) -> Strand | None:
        """The strand that this thread is."""
        return _threads.strands.get(self._serial)

    @contextmanager
    def own(self) -> Generator[None]:
        """What this thread does inside is Loupe's own (a disk, `git`): while it waits there, it is not taken for stuck.

        Nothing of the program may be called inside: no hook would see it wait.
        """
        strand = self.strand() if self.baton else None
        if strand is None or strand.inner:
            yield
            return
        strand.inner = True
        try:
            yield
        finally:
            strand.inner = False

    @property
    def contended(self) -> bool:
        """Whether the turn of a call of a thread may not come at once."""
        return len(self.strands) > 1 or self.follows

    @survives
    def away(self) -> None:
        """This thread leaves the program for a while, to perform a call."""
        if self.baton and (strand := self.strand()) is not None:
            self.park(strand)

    @survives
    def piece(self, piece: PieceTurn) -> bool:
        """Waits for the turn of a piece of a stream that this thread reads; whether it has one."""
        strand = self.strand()
        if strand is None or not self.takes_turns(piece):
            return False
        if self.baton or len(self.strands) > 1:
            self.block(strand, Item(piece.id, lambda: self.wake(strand), piece=piece))
        elif self.follows:
            self._alone(piece.id)
        self.check()
        return True

    @survives
    def back(self) -> None:
        """This thread comes back by itself, and not with an input."""
        strand = self.strand() if self.baton and not self.closed else None
        if strand is not None and self._signal is None:
            with self.lock:
                if self.holder is strand:
                    return
                self.runq.append(strand)
                self.grant()
            strand.turn.acquire()
        self.check()

    @survives
    def turn(self, id: str) -> None:
        """Waits for the turn of a call that this thread has made and that is done.

        Raises:
            the stop signal: the run is stopped meanwhile.
        """
        if self.closed:
            return
        strand = self.strand()
        if strand is None and not self.strands:
            self.begin(Lane("0"))
            strand = self.strand()
        if strand is None:
            self.passed_by(id)
        elif self.baton or len(self.strands) > 1:
            self.block(strand, Item(id, lambda: self.wake(strand)))
            if self.closed and not self.live:
                raise ReplayMismatch("the recorded run is over, and this call had no end in it", kind="leak")
        elif self.follows:
            self._alone(id)  # else nobody can come before, or see that it waits
        else:
            self._told.pieces()
        self.check()

    def _alone(self, id: str) -> None:
        """The only strand waits: if it is not its turn now, it never will be, unless code without a lane moves on."""
        with self.lock:
            head = self.order.head()
            if head is not None and head.id == id:
                self.order.advance()
                self.moved = time.monotonic()
                return
            if head is None and self.live:
                return
        if not self.marks:
            self._stand_still()
            return
        over = allocate_lock()
        over.acquire()
        self.add(Item(id, over.release))
        while not over.acquire(True, self.until_stuck()):
            self.look()

    def passed_by(self, id: str) -> None:
        """Code without a place in this schedule has its answer: it waits for nothing, and the order is not proven."""
        self.mark("no_lane", {"call": id})
        self.withdraw(id)
        self.drop([id])

    # --- the baton ----------------------------------------------------------------------------------------------------

    def grant(self) -> None:
        """The strand that was woken longest ago runs, if none does."""
        if self.holder is None and self.runq and not self.beginning:
            self.holder, self.since = self.runq.popleft(), time.monotonic()
            with suppress(RuntimeError):  # only after a guess: it runs already
                self.holder.turn.release()

    @property
    def gates_threads(self) -> bool:
        """Whether threads of the program are to pass a baton."""
        return self.mode == "exact" and not self.closed

    @survives
    def take_baton(self, strand: Strand) -> None:
        """A second strand is about to be there: from here on they pass the baton, and this one has it first."""
        with self.lock:
            if self.baton or self.mode != "exact" or self.closed:
                return
            self.baton = True
            self.holder, self.since = strand, time.monotonic()
            for loop in [loop for loop, idle in self.idle.items() if idle is strand]:
                del self.idle[loop]
        from agentloupe.ports.schedule.watch import watch

        watch(self)

    @survives
    def take_baton_here(self) -> None:
        """The same for the strand that this thread is."""
        if not self.baton and (strand := self.strand()) is not None:
            self.take_baton(strand)

    @survives
    def join_in(self, strand: Strand) -> None:
        """A new strand is there; it runs when it is its turn."""
        with self.lock:
            self.strands.add(strand)
            self.wake(strand)

    @survives
    def rest(self, strand: Strand) -> None:
        """Waits until the strand has the baton, for which it is in the queue already."""
        strand.blocked = True
        if not (self.closed or self.halted):
            self._wait(strand, None)
            self._held(strand)
        strand.blocked = strand.lost = False

    @survives
    def block(self, strand: Strand, item: Item | None = None, timeout: float | None = None) -> None:
        """Waits until something wakes the strand and it has the baton, or until the run is over.

        Args:
            strand: this thread's.
            item: an input that wakes it.
            timeout: seconds until that is there, for timers; else it is there now.

        Raises:
            the stop signal: the run is stopped, before or meanwhile.
        """
        self.check()
        here = item is not None and (timeout is None or (self.follows and self.known(item.id)))
        strand.blocked = True
        try:
            if not (self.closed or self.halted):  # looked at after `blocked` is said, so that nobody is forgotten
                with self.lock:  # who sees the input sees the strand parked: else others wake it, and it parks then
                    if item is not None and here:
                        self.items[item.id] = item
                    self.park(strand)
                if not self._wait(strand, None if here else timeout) and item is not None:
                    self.due(item)
                    self._wait(strand, None)
                self._held(strand)
        except BaseException:  # Ctrl-C
            self._torn(strand)
            raise
        finally:
            strand.blocked = strand.lost = False
            if item is not None:
                self.items.pop(item.id, None)
                self.spare.pop(item.id, None)
        self.check()

    def _wait(self, strand: Strand, timeout: float | None) -> bool:
        if timeout is not None:
            return strand.turn.acquire(True, timeout)
        while not strand.turn.acquire(True, self.until_stuck() if self.follows else -1):
            self.look()
        return True

    def _held(self, strand: Strand) -> None:
        """A strand goes on. Without the baton nobody knows what goes on beside it: that is never passed over in silence."""
        if self.baton and self.holder is not strand and not (strand.lost or self.closed or self.halted):
            self.mark("guess", {"why": "a thread went on before its turn"})

    @survives
    def stopped_in_call(self) -> None:
        """A call of this thread was stopped (`SystemExit`, Ctrl-C), and has no turn: if others had the baton, it runs beside them."""
        if (strand := self.strand()) is not None:
            self._held(strand)

    def _torn(self, strand: Strand) -> None:
        """The strand goes on although nothing has woken it."""
        with self.lock:
            if self.holder is strand:
                strand.turn.acquire(False)
                return
            with suppress(ValueError):
                self.runq.remove(strand)
        if self.baton:
            self.mark("guess", {"why": "a thread was interrupted while it waited"})

    @survives
    def yields(self, strand: Strand) -> None:
        """The others come first, if there are any."""
        if self.baton:
            self.queue(strand)
            self.block(strand)

    @survives
    def queue(self, strand: Strand) -> None:
        """The strand has its place; it runs when the baton comes to it."""
        with self.lock:
            self.runq.append(strand)

    @survives
    def wake(self, strand: Strand) -> None:
        """The strand can go on, when it is its turn."""
        with self.lock:
            if not self.baton or self.closed:
                with suppress(RuntimeError):
                    strand.turn.release()
                return
            self.runq.append(strand)
            self.grant()

    @survives
    def call(self, loop: Any) -> None:
        """A thread of the run has put something into a loop: its place in the queue is fixed now. The lock is held."""
        strand = self.idle.pop(loop, None)
        if strand is not None and self.baton:
            strand.called = True
            self.wake(strand)

    @survives
    def come(self, strand: Strand) -> None:
        """A loop that was called waits until it is its turn."""
        if strand.called:
            strand.called = False
            self.rest(strand)

    def pass_over(self, strand: Strand) -> None:
        """The strand is stuck where nobody can see for what: others go on."""
        with self.lock:
            strand.lost, self.holder = True, None
            self.mark("guess", {"why": "a thread waits, or turns round, where it cannot be seen for what"})
            self.grant()
            self.pump()

    @survives
    def park(self, strand: Strand) -> None:
        """The strand is about to block: the next one runs; if there is none, the program is quiet."""
        with self.lock:
            if self.holder is strand:
                self.holder = None
            self.grant()
            self.pump()

    @survives
    def regain(self, strand: Strand) -> None:
        """A strand that lost the baton by a guess takes its place in the queue again."""
        if strand.lost and self._signal is None:
            self.wake(strand)
            self.rest(strand)

    @survives
    def regain_here(self) -> None:
        """The same for the strand that this thread is."""
        if self.baton and (strand := self.strand()) is not None:
            self.regain(strand)

    # --- what is not proven, and what is over --------------------------------------------------------------------------

    @survives
    def mark(self, mark: Mark, facts: Attrs) -> None:
        """The order is not proven from here on, and why."""
        with self.lock:
            count = self.marks[mark] = self.marks.get(mark, 0) + 1
        if count <= MARKS_KEPT:
            self.log("schedule.marked", "0", {"mark": mark, **facts})

    def log(self, type: str, lane: str, facts: Attrs) -> None:
        """Tells the run, except of what a tape has already."""
        if self.keeper is not None and self.live and (self.mode == "off" or not self.closed):
            self.keeper.log(type, lane, facts)

    @property
    def halted(self) -> bool:
        """Whether the program is to stop."""
        return self._signal is not None

    def check(self) -> None:
        """Raises the stop signal, if the run is stopped."""
        if self._signal is not None:
            raise self._signal()

    def halt(self, signal: Callable[[], BaseException]) -> None:
        """Stops the program: whatever waits is woken, and everything that asks from now on gets a new `signal()`."""
        if self._signal is None and not self.closed:
            self._signal = signal
            self.halted_at = time.monotonic()
            self._flush()

    def look(self) -> None:
        """Called now and then by what waits: does a program that must follow an order still move?"""
        if self.baton and (self.holder is not None or self.runq or self.beginning):
            return  # who computes does not stand still
        if self.follows and not self.closed and time.monotonic() - self.moved >= self.stuck_after:
            if self._waited_for < UNSEEN_WORK and self._works_unseen():
                self._waited_for += 1
                self.moved = time.monotonic()
            else:
                self._stand_still()

    def _works_unseen(self) -> bool:
        """Whether a strand that others were let past has used the processor since the last look: it computes, or imports."""
        lost = [strand for strand in list(self.strands) if strand.lost and not strand.blocked]
        if not lost:
            return False
        from agentloupe.ports.schedule.watch import used_by

        before, self._used = self._used, {strand: used_by(strand) for strand in lost}
        return self._used != before

    def until_stuck(self) -> float:
        """Seconds until it is worth a `look`."""
        return max(0.01, self.stuck_after - (time.monotonic() - self.moved))

    def _stand_still(self) -> None:
        if self.keeper is not None and self._signal is None and not self._complained:
            self._complained = True
            self.keeper.stands_still(self.awaited())

    def close(self) -> None:
        """The run is over: nothing waits any more. What a replay has no answer for is left as it is, in flight."""
        if self.closed:
            return
        self._told.pieces()
        self.closed = True
        last = [self._flush] if self.live or self._signal is not None else []
        for step in (*last, self._release, *self.at_close):
            with suppress(Exception):  # each of them, whatever became of the others
                step()
        _threads.strands.pop(self._serial, None)
        self.at_close.clear()

    def abandon(self) -> None:
        """In a forked child, where the other threads are not: nothing is waited for any more, and no lock is anybody's."""
        self.lock = _RLock()
        self.items.clear()
        self.spare.clear()
        self.strands.clear()
        self.runq.clear()
        self.beginning = 0
        self.coming.clear()
        self.closed = True

    def _flush(self) -> None:
        for name in [*self.items, *self.spare]:  # without the lock, see complain; each is taken once
            item = self.items.pop(name, None) or self.spare.pop(name, None)
            if item is None or item.dead():
                continue
            if item.loop is None:
                item.deliver()
            else:
                nudge(item.loop, item.deliver)
        if self._signal is not None:
            self._release()

    def _release(self) -> None:
        """Strands that are blocked wait no more; without the lock as well."""
        for strand in list(self.strands):
            if strand.blocked:
                with suppress(RuntimeError):
                    strand.turn.release()


def _owned(lock: Any) -> bool:
    return lock._is_owned()


def _nothing() -> None:
    """Wakes a loop."""


def nudge(loop: Any, what: Callable[[], object] = _nothing) -> None:
    """Lets a loop do something in its own thread, on nobody's behalf; a loop that is closed does nothing any more."""
    from agentloupe.ports.schedule.gate import OUTSIDE, plain_threadsafe

    with suppress(RuntimeError):
        plain_threadsafe(loop, what, context=OUTSIDE())
