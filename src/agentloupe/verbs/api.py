"""The verbs: record an agent, find a run, open a store.

done = record(agent, "question")         # Recorded(run_id, result, run)
with recording("nightly", tags=["ci"]):  # where a decorator does not fit
...
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentloupe.ports import ambient
from agentloupe.ports.protocols import Opener, Opening, Session, Store
from agentloupe.ports.settings import load
from agentloupe.verbs import yielding
from agentloupe.verbs.instrument import Depends, as_agent, told
from agentloupe.verbs.sessions import RecordOpener, RecordSession, default_store, open_session
from agentloupe.words.errors import RunNotFound, UsageError
from agentloupe.words.keeping import Profile, profile_named, share_named
from agentloupe.words.run import Run, RunFilter
from agentloupe.words.trace import read_trace

__all__ = ["Recorded", "arecord", "open_store", "record", "recording", "resolve"]


# --- stores and runs --------------------------------------------------------------------------------------------------


def open_store(url: str | Path | None = None, *, create: bool = True) -> Store:
    """The store of a URL or path; without one that of the settings (`LOUPE_DB`, default `.loupe/loupe.db`).

    Opened once a process and kept; it is closed when the process ends.

    Args:
        url: which store.
        create: make it where it is not there; what only looks for a run does not.

    Raises:
        UsageError: a URL of an unknown kind.
        StoreError, StoreReadOnly, StoreBusy, Corrupt, VersionUnknown, ConfigError: it cannot be opened.
    """
    return default_store(load().db if url is None else str(url), create=create)


_FORK = "-fork-"
"""Between a run's id and what tells its forks apart."""
_LAST = re.compile(r"last(?:~([0-9]{1,6}))?")


def resolve(store: Store, ref: str) -> str:
    """The id of the run that `ref` names: an id, a unique beginning of one, `last`, or `last~N` (N runs before it).

    Raises:
        RunNotFound: no run, or several (up to five of them are named; `reason` is `ambiguous`).
    """
    exact = store.run(ref)
    if exact is not None:
        return exact.id
    last = _LAST.fullmatch(ref)
    if last is not None:
        found = store.runs(RunFilter(limit=1, offset=int(last[1] or 0)))
        if not found:
            raise RunNotFound(f"there is no run {ref}: the store holds {store.count()} runs")
        return found[0].id
    found = store.runs(RunFilter(id_prefix=ref, limit=6)) if ref else []
    forks = [run.id for run in found if run.id.startswith(f"{ref}{_FORK}")]
    if forks and len(forks) == len(found):
        names = ", ".join(forks[:5]) + (" and more" if len(forks) > 5 else "")
        raise RunNotFound(f"no run {ref!r}: it is gone; its forks are {names}", reason="gone")
    if not found:
        raise RunNotFound(f"no run {ref!r}", hint="`agentloupe list` shows what there is")
    if len(found) > 1:
        names = ", ".join(run.id for run in found[:5])
        more = " and more" if len(found) > 5 else ""
        raise RunNotFound(
            f"{ref!r} is the beginning of several runs: {names}{more}",
            hint="give more of it, or the whole id",
            reason="ambiguous",
        )
    return found[0].id


# --- recording --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a recording gave.

    Attributes:
        run_id: id of the run.
        result: what the agent returned.
        run: the run's row; `None` when nothing could be stored.
    """

    run_id: str
    result: Any
    run: Run | None


def record(agent: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Recorded:
    """Runs an agent, decorated or not, and records it as a run of its own.

    An async agent is run to its end with `asyncio.run`. Of one that yields the result is the list of all that it yields.
    What the agent raises comes out, recorded as well.

    Raises:
        UsageError: an async agent inside a running event loop; await `arecord` there.
    """
    ambient.ran_off(f"agent {getattr(agent, '__name__', type(agent).__name__)}")
    opener = _opener_here()
    wrapped = as_agent(agent)
    if inspect.iscoroutinefunction(wrapped):
        import asyncio

        _refuse_inside_a_loop()
        return asyncio.run(arecord(agent, *args, **kwargs))
    with ambient.outside(), ambient.opening_with(opener):
        result = yielding.all_of(wrapped(*args, **kwargs))
        if inspect.isawaitable(result):
            result = _run(result)
    return _recorded(opener, result)


async def arecord(agent: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Recorded:
    """Async twin of `record`."""
    ambient.ran_off(f"agent {getattr(agent, '__name__', type(agent).__name__)}")
    opener = _opener_here()
    with ambient.outside(), ambient.opening_with(opener):
        result = yielding.all_of(as_agent(agent)(*args, **kwargs))
        if inspect.isawaitable(result):
            result = await result
    return _recorded(opener, result)


def _run(awaitable: Awaitable[object]) -> object:
    import asyncio

    async def whole() -> object:
        return await awaitable

    _refuse_inside_a_loop()
    return asyncio.run(whole())


def _refuse_inside_a_loop() -> None:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("record() cannot run an async agent inside a running event loop", hint="await arecord(...)")


class _Elsewhere:
    """Hands the start on to who decides here (a replay, a fork, a whole script that is recorded)."""

    def __init__(self, outer: Opener) -> None:
        self._outer = outer
        self.session: Session | None = None

    def open(self, opening: Opening) -> Session:
        """The session of the outer opener."""
        session = self._outer.open(opening)
        self.session = self.session or session
        return session


def _opener_here() -> RecordOpener | _Elsewhere:
    outer = ambient.opener()
    return RecordOpener() if outer is None or isinstance(outer, RecordOpener) else _Elsewhere(outer)


def _recorded(opener: RecordOpener | _Elsewhere, result: Any) -> Recorded:
    session = opener.session if isinstance(opener, _Elsewhere) else opener.sessions[0]
    row = session.row() if isinstance(session, RecordSession) else None
    return Recorded(session.run_id if session is not None else "", result, row)


class recording:  # noqa: N801  # used as a function: `with recording("name"):`
    """Records a block, sync (`with`) or async (`async with`), as one run.

    Inside another run the block belongs to that run, and nothing is opened.

    Args:
        name: the run's and the agent's name.
        tags: tags of the run.
        task_id: of the task that the run works on; write effects' keys come from it.
        store: where to; default: the store of the settings.
        strict: an unrecordable value raises.
        snapshot: what else the block depends on, or a function that tells it; see `agent`.
        profile: what the recording keeps of values, over the settings: `full`, `redacted` or `digest_only`.
        sample: the share of runs, from 0 to 1, that are kept by the profile, over the settings; of the others digests are kept.
        traceparent, tracestate: the W3C headers of whoever asked for the work: the run belongs to that trace. What is
            not well formed is ignored.

    Attributes:
        run_id: id of the run, from the beginning of the block on.
        result: set it inside the block to store a result.
    """

    def __init__(
        self,
        name: str,
        *,
        tags: Sequence[str] = (),
        task_id: str | None = None,
        store: Store | None = None,
        strict: bool | None = None,
        snapshot: Depends | None = None,
        profile: Profile | None = None,
        sample: float | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> None:
        self.run_id = ""
        self.result: object = None
        self._opening = Opening(
            agent=name,
            name=name,
            tags=tuple(tags),
            task_id=task_id,
            strict=bool(strict),
            snapshot=told(snapshot),
            profile=profile_named(profile),
            sample=share_named(sample),
            trace=read_trace(traceparent, tracestate),
        )
        self._own = RecordOpener(store, strict=strict) if store is not None or strict is not None else None
        self._session: Session | None = None
        self._left = ExitStack()

    def __enter__(self) -> Self:
        if ambient.in_run():
            return self
        recorded = self._own if ambient.opener() is None else None
        session = recorded.open(self._opening) if recorded else open_session(self._opening)
        self._session, self.run_id = session, session.run_id
        self._left.enter_context(ambient.inside(session.boundary))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.close()
        session, self._session = self._session, None
        if session is None:
            return
        if error is not None:
            session.failed(error)
        else:
            session.finished(self.result)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)
