"""Strategies for JSON values, and equality that tells types apart."""

from __future__ import annotations

from hypothesis import strategies as st

# Every code point but high surrogates, so that no text holds a pair that JSON cannot tell from one character.
ANY_TEXT = st.text(st.characters(exclude_categories=()).filter(lambda c: not "\ud800" <= c <= "\udbff"), max_size=8)
PLAIN_TEXT = st.text(max_size=8)
INTEGERS = st.integers() | st.integers(-(2**70), 2**70)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
MARK_LIKE = st.sampled_from(["$ref", "$list", "$esc", "$tuple", "$dict", "$float", "$model", "$other", "base", "parts"])


def json_values(leaves=None, keys=None, *, max_leaves=12):
    """JSON values; by default of everything that can stand in one."""
    leaves = leaves if leaves is not None else st.none() | st.booleans() | INTEGERS | FLOATS | ANY_TEXT
    keys = keys if keys is not None else ANY_TEXT | MARK_LIKE
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(keys, inner, max_size=4)
            | st.builds(lambda key, value: {key: value}, MARK_LIKE, inner)
        ),
        max_leaves=max_leaves,
    )


def same(a: object, b: object) -> bool:
    """Equal with equal types all the way down; 0.0 and -0.0 differ, order of keys counts."""
    return repr(a) == repr(b)
