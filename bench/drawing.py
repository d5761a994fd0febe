"""Curves as SVG, drawn by plain code: both axes logarithmic, one line for each curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 180, 30, 50
_COLOURS = ("#0b7285", "#c2255c", "#5f3dc4", "#2b8a3e", "#e67700", "#1864ab", "#862e9c", "#5c940d")
_LABEL = 14
_INK = "#868e96"


def curves_as_svg(curves: Sequence[Mapping[str, Any]]) -> str:
    """A picture of curves that share their sizes."""
    sizes = [float(size) for size in curves[0]["sizes"]]
    values = [float(value) for curve in curves for value in curve["values"]]
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** (math.floor(math.log10(max(values))) + 1)

    def x(size: float) -> float:
        share = math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0])
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - math.log(value / low) / math.log(high / low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<text x="{_LEFT}" y="18" fill="{_INK}">{escape(str(curves[0]["unit"]))}, by calls of the run</text>',
    ]
    parts += [_grid_up(x(size), f"{size:,.0f}") for size in sizes]
    parts += [
        _grid_across(y(10**power), f"{10**power:g}")
        for power in range(round(math.log10(low)), round(math.log10(high)) + 1)
    ]
    heights = _apart([y(float(curve["values"][-1])) for curve in curves])
    for i, curve in enumerate(curves):
        points = [(x(size), y(value)) for size, value in zip(sizes, curve["values"], strict=True)]
        parts.append(_line(points, _COLOURS[i % len(_COLOURS)], str(curve["name"]), heights[i]))
    return "\n".join((*parts, "</svg>\n"))


def _apart(heights: Sequence[float]) -> list[float]:
    """Where labels stand that would like to be at these heights and must not lie on each other."""
    placed = dict[int, float]()
    free = float("-inf")
    for i in sorted(range(len(heights)), key=heights.__getitem__):
        free = placed[i] = max(heights[i], free + _LABEL)
    return [placed[i] for i in range(len(heights))]


def _grid_up(x: float, label: str) -> str:
    bottom = _HEIGHT - _BOTTOM
    line = f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{_INK}" stroke-opacity="0.3"/>'
    return f'{line}<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle" fill="{_INK}">{label}</text>'


def _grid_across(y: float, label: str) -> str:
    right = _WIDTH - _RIGHT
    line = f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{_INK}" stroke-opacity="0.3"/>'
    return f'{line}<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{_INK}">{label}</text>'


def _line(points: Sequence[tuple[float, float]], colour: str, name: str, label_y: float) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points)
    label = f'<text x="{points[-1][0] + 10:.1f}" y="{label_y + 4:.1f}" fill="{colour}">{escape(name)}</text>'
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}{label}'
