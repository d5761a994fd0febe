"""A recording: the ordered events of one run, with a way to its bodies. The evidence, whatever it lies in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentloupe.ports.pack import needs, unpack
from agentloupe.words.canonical import Json
from agentloupe.words.errors import Damaged
from agentloupe.words.event import Event, Head

__all__ = ["FILE_FORMAT", "FILE_VERSION", "GetBodies", "Recording", "Texts"]

FILE_FORMAT = "loupe"
FILE_VERSION = 1
"""How a recording in a file of its own names itself; the version is raised when an old reader would misread it."""

GetBodies = Callable[[Sequence[str]], Mapping[str, bytes]]
"""Bodies by digest. What is not there is left out of the answer; what does not fit its digest raises `Corrupt`."""

_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Texts:
    """The canonical texts that events were read from, so that their chain can be proven without writing them anew.

    Attributes:
        of: the very events, by identity: for any others the texts prove nothing.
        sealed: one text for each.
    """

    of: tuple[Event, ...]
    sealed: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """Events of one run in order of `sequence`, as they were sealed.

    Attributes:
        run_id: the run.
        events: all events; their chain is not yet checked (see `verify`).
        get: the bodies.
        origin: where it was read from, for messages (a run id, a file name).
        head: the end that the place it lies in says it has; `None` where nothing says so.
        texts: what the events were read from, where that is known and canonical.
    """

    run_id: str
    events: tuple[Event, ...]
    get: GetBodies
    origin: str
    head: Head | None = None
    texts: Texts | None = field(default=None, repr=False, compare=False)

    def body_if_there(self, digest: str | None) -> Json:
        """Like `body`; `None` also where the body is gone or damaged."""
        try:
            return self.body(digest)
        except Damaged:
            return None

    def bodies(self, digests: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """These bodies and whatever those need, each once, in order of their first naming; `None` where one is not there."""
        seen: set[str] = set()
        wave = digests
        while new := [digest for digest in dict.fromkeys(wave) if digest not in seen]:
            seen.update(new)
            wave = list[str]()
            for start in range(0, len(new), _AT_ONCE):
                some = new[start : start + _AT_ONCE]
                found = self.get(some)
                for digest in some:
                    data = found.get(digest)
                    if data is not None:
                        wave.extend(needs(data))
                    yield digest, data

    def body(self, digest: str | None) -> Json:
        """The value behind a digest, whole.

        Raises:
            Damaged: the body (or a part of it) is not there; `reason` is `body_missing`.
            Corrupt: its bytes do not fit its digest.
        """
        if digest is None:
            return None
        try:
            return unpack(digest, self.get)
        except KeyError as missing:
            raise Damaged(
                f"{self.origin}: body {digest[:12]} is not there",
                hint="it was deleted, or the file was cut; the flow can still be read",
                reason="body_missing",
            ) from missing
