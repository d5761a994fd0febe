"""The one tool that the demo ever runs live in a fork: a calculator that cannot do anything else.

Numbers, `+ - * / ** %`, parentheses and unary signs. The text is parsed, never evaluated as code, and every size is
bounded: length, depth, exponents and the numbers themselves.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable

__all__ = ["MAX_DEPTH", "MAX_EXPONENT", "MAX_LENGTH", "MAX_NUMBER", "calculate"]

MAX_LENGTH = 200
"""Characters of an expression."""

MAX_DEPTH = 40
"""Operations inside each other."""

MAX_EXPONENT = 64
"""Largest exponent, either sign."""

MAX_NUMBER = 1e60
"""Largest absolute value, also of every value on the way."""

Number = int | float

_ALLOWED = re.compile(r"[0-9.eE+\-*/%() ]+")
_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right,
    ast.Mod: operator.mod,
}


def calculate(expression: str) -> dict[str, str | Number]:
    """`{"expression": ..., "result": ...}`; results that are not whole have 12 significant digits.

    Raises:
        ValueError: not an expression of this small language, too large, or without a value (division by zero).
    """
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"the expression is longer than {MAX_LENGTH} characters")
    if not _ALLOWED.fullmatch(expression):
        raise ValueError("only numbers, + - * / ** % and parentheses are allowed")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError("not an arithmetic expression") from None
    value = _value(tree.body, 0)
    return {"expression": expression, "result": value if isinstance(value, int) else float(f"{value:.12g}")}


def _value(node: ast.expr, depth: int) -> Number:
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} operations inside each other")
    match node:
        case ast.Constant(value=int() | float() as number):
            return _bounded(number)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, depth + 1)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner, depth + 1)
        case ast.BinOp(left=left, op=op, right=right):
            return _bounded(_combined(op, _value(left, depth + 1), _value(right, depth + 1)))
        case _:
            raise ValueError("only numbers, + - * / ** % and parentheses are allowed")


def _combined(op: ast.operator, left: Number, right: Number) -> Number:
    try:
        if isinstance(op, ast.Pow):
            return _power(left, right)
        combine = _BINARY.get(type(op))
        if combine is None:
            raise ValueError("only + - * / ** % are allowed")
        return combine(left, right)
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except OverflowError:
        raise ValueError("the number is too large") from None


def _power(base: Number, exponent: Number) -> Number:
    if abs(exponent) > MAX_EXPONENT:
        raise ValueError(f"exponents go to {MAX_EXPONENT}")
    if base < 0 and not float(exponent).is_integer():
        raise ValueError("a root of a negative number has no real value")
    return base**exponent


def _bounded(number: Number) -> Number:
    if not math.isfinite(number) or abs(number) > MAX_NUMBER:
        raise ValueError("the number is too large")
    return number
