"""Bodies for what is only compared or looked through: one that is damaged is left out, as if it were gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agentloupe.ports.pack import needs
from agentloupe.ports.recording import GetBodies
from agentloupe.words.errors import Corrupt

__all__ = ["held", "whole_ones"]


def whole_ones(get: GetBodies) -> GetBodies:
    """The same bodies without the damaged ones; who shows a body itself asks for it directly, and is told."""

    def got(digests: Sequence[str]) -> Mapping[str, bytes]:
        try:
            return get(digests)
        except Corrupt:
            return {digest: data for one in digests for digest, data in _alone(get, one).items()}

    return got


def _alone(get: GetBodies, digest: str) -> Mapping[str, bytes]:
    try:
        return get([digest])
    except Corrupt:
        return {}


def held(get: GetBodies, digests: Iterable[str | None]) -> GetBodies:
    """The same bodies, with these and all that they need fetched at once; any other is fetched when it is asked for."""
    whole, texts = whole_ones(get), dict[str, bytes]()
    wanted = dict.fromkeys(digest for digest in digests if digest is not None)
    while wanted:
        found = whole(list(wanted))
        texts.update(found)
        ahead = (ref for text in found.values() for ref in needs(text))
        wanted = dict.fromkeys(ref for ref in ahead if ref not in texts)

    def got(asked: Sequence[str]) -> Mapping[str, bytes]:
        here = {digest: texts[digest] for digest in asked if digest in texts}
        missing = [digest for digest in asked if digest not in here]
        return here if not missing else {**here, **get(missing)}

    return got
