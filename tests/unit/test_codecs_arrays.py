# pyright: basic
"""Values of numpy come back as what they were, and are stored as what people can read."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from agentloupe.ports import codecs
from agentloupe.ports.codecs import decode, decode_for_reading, encode, register_type
from agentloupe.words.errors import NotRebuildable
from agentloupe.words.jsontext import dumps, loads


def again(value: Any) -> Any:
    encoded = encode(value)
    assert encoded.unrecordable == ()
    decode_for_reading(encoded.wire)
    return decode(loads(dumps(encoded.wire)))


NUMBERS = [
    np.float64(0.1),
    np.float32(0.1),
    np.float16(1.5),
    np.float64("inf"),
    np.int64(-(2**62)),
    np.uint64(2**64 - 1),
    np.bool_(True),
    np.complex128(1 - 2j),
    np.str_("ü"),
    np.str_(""),
    np.bytes_(b""),
    np.bytes_(b"\xff"),
    np.datetime64("2026-11-30T12:00:00.000000001"),
    np.datetime64("NaT", "D"),
    np.timedelta64(5, "h"),
]


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
def test_numbers_come_back_with_their_type(value: Any) -> None:
    made = again({"score": value})["score"]
    assert type(made) is type(value)
    assert made.dtype == value.dtype
    assert made.tobytes() == value.tobytes()


ARRAYS = [
    np.arange(6, dtype="<i4").reshape(2, 3),
    np.arange(6.0).reshape(2, 3).T,
    np.arange(10)[::3],
    np.array([1.5, np.nan, -np.inf]),
    np.zeros((0, 3)),
    np.array(7),
    np.array([1, 2], dtype=">u2"),
    np.array(["a", "longer"]),
    np.array([b"\x00a"]),
    np.array(["2026-01-01", "NaT"], dtype="M8[us]"),
    np.array([[True], [False]]),
    np.array([1j]),
]


@pytest.mark.parametrize("value", ARRAYS, ids=repr)
def test_arrays_come_back_with_type_and_shape(value: Any) -> None:
    made = again([value])[0]
    assert type(made) is np.ndarray
    assert (made.dtype, made.shape) == (value.dtype, value.shape)
    assert made.tobytes() == value.tobytes()
    assert made.flags.writeable


def test_items_are_stored_as_text_that_can_be_searched() -> None:
    assert encode(np.array(["sk-secret"])).wire == {"$custom": ["numpy.array", ["<U9", [1], ["sk-secret"]]]}


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.ma.masked_array([1, 2], mask=[True, False]),
        np.longdouble(1),
        np.zeros(32 << 20, dtype="i2"),
    ],
    ids=["objects", "records", "subclass", "long double", "large"],
)
def test_what_items_do_not_say_is_lost_and_listed(value: Any) -> None:
    assert [lost.path for lost in encode([value]).unrecordable] == ["$[0]"]


def test_a_registered_type_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "_registered", {})
    monkeypatch.setattr("agentloupe.ports.codecs.walk._exact", {})
    monkeypatch.setattr("agentloupe.ports.codecs.walk._found", {})
    register_type(np.ndarray, "mine", to_json=lambda array: array.tolist(), from_json=np.array)
    assert encode(np.array([1])).wire == {"$custom": ["mine", [1]]}
    assert again(np.array([1])) == [1]


def test_numpy_is_never_imported_because_of_data(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = encode(np.float64(1)).wire
    monkeypatch.delitem(sys.modules, "numpy")
    with pytest.raises(NotRebuildable, match="numpy is not loaded here"):
        decode(wire)
    assert "numpy" not in sys.modules
    assert encode({"plain": (1, 2)}).unrecordable == ()


@pytest.mark.parametrize(
    "inside",
    [
        ["|O", [1], [1]],
        ["<f8", [2], [1.0]],
        ["<U100000000", [1], ["a"]],
        ["<f8", [1 << 40], []],
        ["[('a','O')]", [1], [1]],
        ["", [], []],
        "no list",
    ],
)
@pytest.mark.parametrize("name", ["numpy.array", "numpy.number"])
def test_what_nobody_writes_is_refused(name: str, inside: Any) -> None:
    with pytest.raises(NotRebuildable):
        decode({"$custom": [name, inside]})
