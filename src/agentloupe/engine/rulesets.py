"""The built-in sets of rules by name. A set never changes: a recording is compared by the one that it was made under."""

from __future__ import annotations

from agentloupe.engine.credentials import ROOTS, SHAPES, TOKEN_NEEDLES, Shape, Words
from agentloupe.engine.spokensecrets import SPOKEN, SPOKEN_FIRST

__all__ = ["BUILT_IN", "FIRST_WORDS", "UNTYPED", "shapes_of", "words_in"]

BUILT_IN = "loupe-s3"
"""The set of new recordings; a change that removes more or less gets another name."""

UNTYPED = frozenset({"loupe-s1"})
"""Sets that removed the type of a value under a secret name together with what it says."""

_UNSPOKEN = frozenset({"loupe-s1", "loupe-s2"})
"""Sets that did not know how programs that run commands say credentials."""


def shapes_of(built_in: str) -> tuple[Shape, ...]:
    """The shapes of a set, none for the empty name. In this order: a later one sees what an earlier one left."""
    if not built_in:
        return ()
    return SHAPES if built_in in _UNSPOKEN else (*SHAPES, *SPOKEN)


FIRST_WORDS = tuple(
    dict.fromkeys((*(needle.lower() for needle in TOKEN_NEEDLES), "eyj", "://", "-----begin", *ROOTS, *SPOKEN_FIRST))
)
"""Lower-case words of which one stands in, or within a name's length before, whatever a built-in shape finds."""
_WORDS = Words(FIRST_WORDS)


def words_in(low: str) -> list[str]:
    """Those of `FIRST_WORDS` that stand in a text in lower case."""
    return _WORDS.within(low)
