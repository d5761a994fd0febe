"""The calculator: right, bounded, and no way to anything else; the demo's own and the one of the weather example."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.demo.calculator import MAX_EXPONENT, MAX_LENGTH, MAX_NUMBER, calculate

RIGHT: list[tuple[str, float]] = [
    ("17.7 - 11.9", 5.8),
    ("(17.7 - 11.9) * 9 / 5", 10.44),
    ("11.9 - -2.5", 14.4),
    ("-3 ** 2", -9),
    ("+4 % 3", 1),
    ("2 ** 0.5", 1.41421356237),
    ("2 ** -1", 0.5),
    ("1e3 + 1", 1001),
    (" 7 ", 7),
    ("0.1 + 0.2", 0.3),
    ("(-8) ** 2", 64),
]

HOSTILE = [
    "",
    "   ",
    "1 +",
    "()",
    "1, 2",
    "1 // 2",
    "1 @ 2",
    "1 << 70",
    "1 < 2",
    "e",
    "e(1)",
    "(1)(2)",
    "__import__('os').system('true')",
    "().__class__",
    "[x for x in (1,)]",
    "lambda: 1",
    "'a' * 9",
    "1j",
    "0x10",
    "1_000",
    "1 if 1 else 2",
    "9 ** 9 ** 9",
    "10 ** 65",
    "10 ** 40 * 10 ** 40",
    "1e999",
    "1e999 - 1e999",
    "1 / 0",
    "1 % 0",
    "0 ** -1",
    "(-8) ** 0.5",
    "(" * 150 + "1" + ")" * 49,
    "-" * 199 + "1",
    "+".join("1" * 200),
    "9" * 199,
    "１ + １",
    "1\n+ 1",
    "1\0",
]


@pytest.mark.parametrize(("text", "value"), RIGHT)
def test_right(text: str, value: float) -> None:
    answer = calculate(text)
    assert answer == {"expression": text, "result": value}
    assert math.copysign(1, float(answer["result"])) == math.copysign(1, value)


@pytest.mark.parametrize("text", HOSTILE)
def test_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        calculate(text)


@given(st.text(alphabet="0123456789.eE+-*/%() ", max_size=MAX_LENGTH + 5))
def test_any_text_gives_a_bounded_number_or_a_reason(text: str) -> None:
    try:
        result = calculate(text)["result"]
    except ValueError:
        return
    assert isinstance(result, int | float)
    assert abs(result) <= MAX_NUMBER


@given(st.integers(-999, 999), st.integers(-999, 999), st.sampled_from("+-*"))
def test_whole_numbers_stay_whole(a: int, b: int, sign: str) -> None:
    expected: dict[str, Callable[[], Any]] = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b}
    assert calculate(f"({a}) {sign} ({b})")["result"] == expected[sign]()


def test_exponents_go_to_their_limit_and_no_further() -> None:
    assert calculate(f"2 ** {MAX_EXPONENT}")["result"] == 2**MAX_EXPONENT
    with pytest.raises(ValueError, match="exponents"):
        calculate(f"2 ** {MAX_EXPONENT + 1}")
