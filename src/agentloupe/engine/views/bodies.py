"""Bodies for what is only compared or looked through: one that is damaged is left out, as if it were gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentloupe.ports.recording import GetBodies
from agentloupe.words.errors import Corrupt

__all__ = ["whole_ones"]


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
