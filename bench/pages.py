"""Results as a table for the terminal, and as the page `docs/reference/performance.md`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.drawing import curves_as_svg
from bench.figures import Figure, figure_of
from bench.rows import NAMES, TITLES
from bench.runner import bound, number

_ABOUT = Path(__file__).resolve().parent / "about.md"
_PAGE, _PICTURE = "performance.md", "growth.svg"


def figures_of(found: Mapping[str, Any]) -> list[Figure]:
    """The figures in results."""
    return [figure_of(one) for one in found["figures"]]


def table(found: Mapping[str, Any]) -> str:
    """All figures with a target, one line each."""
    rows = [
        (
            TITLES[f.row],
            f.name,
            bound(f),
            f"{number(f.measured)} {f.unit}",
            f"{number(f.ratio or 0)} x",
            f"{number(f.paced or 0)} x",
            _verdict(f),
        )
        for f in figures_of(found)
        if f.target is not None
    ]
    heads = ("row", "what", "target", "measured", "ratio", "at pace", "")
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (heads, *rows)
    )


def _verdict(figure: Figure) -> str:
    if figure.ok is None:
        return ""
    return "ok" if figure.ok else "ok at reference pace" if (figure.paced or 0) >= 1 else "missed"


# --- the page ---------------------------------------------------------------------------------------------------------


def write(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes the page and its picture; what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    page, picture = folder / _PAGE, folder / _PICTURE
    page.write_text("\n".join(_page(found)) + "\n", "utf-8")
    written = [page]
    if found["curves"]:
        picture.write_text(curves_as_svg(found["curves"]), "utf-8")
        written.append(picture)
    return written


def _page(found: Mapping[str, Any]) -> Iterator[str]:
    figures = figures_of(found)
    yield from _head(found)
    for name in NAMES:
        mine = [figure for figure in figures if figure.row == name]
        if mine:
            yield from _section(name, mine)
    if found["curves"]:
        yield from _curves(found["curves"])
    yield from ("", _ABOUT.read_text("utf-8").rstrip())


def _head(found: Mapping[str, Any]) -> Iterator[str]:
    machine = found["machine"]
    with_target = [figure for figure in figures_of(found) if figure.ok is not None]
    met = sum(figure.ok is True for figure in with_target)
    at_pace = sum(_verdict(figure) == "ok at reference pace" for figure in with_target)
    pace = statistics.median(figure.pace for figure in figures_of(found) if figure.pace is not None)
    yield "# Performance"
    yield ""
    yield "This page is made by a command; measure your own machine with it:"
    yield ""
    yield "```console"
    yield "$ make bench                        # all rows, as a table"
    yield "$ make bench RUN_ARGS=--write-docs  # the same, and this page"
    yield "```"
    yield ""
    yield (
        f"Measured on {machine['cores']} cores that other programs used at the same time, Python {machine['python']}, "
        f"SQLite {machine['sqlite']}, agentloupe {machine['agentloupe']}. Figures are there to be compared with the others "
        "of their row, which were measured by turns in the same run; none of them says how fast another machine is."
    )
    yield ""
    yield (
        f"Each figure is the least of a few short batches, by the processor time of the process (by the wall "
        "clock where it waits for the disk); the median tells how disturbed the run was. *Ratio* says how many times better "
        "than its target a figure is. *At pace* says the same for the machine that the targets were set on: a small call of "
        f"the bare OpenAI SDK takes 0.76 ms there, and {number(0.76 * pace)} ms here while this was measured, so programs "
        f"ran {number(pace)} times slower."
    )
    yield ""
    if found.get("runs", 1) > 1:
        yield f"The rows come from {found['runs']} runs, each row whole from the last one that measured it."
        yield ""
    yield f"{met} of {len(with_target)} targets are met as measured, {at_pace} more at that pace."
    for name, why in found.get("failures", {}).items():
        yield ""
        yield f"**Not measured:** {TITLES[name]}: {why}."


def _section(name: str, figures: Sequence[Figure]) -> Iterator[str]:
    yield from ("", f"## {TITLES[name]}", "")
    if any(figure.target is not None for figure in figures):
        yield "| what | target | measured | median | ratio | at pace | |"
        yield "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
    else:
        yield "| what | | measured | median | | | |"
        yield "| --- | --- | ---: | ---: | --- | --- | --- |"
    for figure in figures:
        target = "" if figure.target is None else bound(figure)
        ratio = "" if figure.ratio is None else f"{number(figure.ratio)} x"
        paced = "" if figure.paced is None else f"{number(figure.paced)} x"
        median = "" if figure.median is None else number(figure.median)
        cells = (
            figure.name,
            target,
            f"{number(figure.measured)} {figure.unit}",
            median,
            ratio,
            paced,
            _bold(_verdict(figure)),
        )
        yield f"| {' | '.join(cells)} |".replace("  ", " ")
        for peer in figure.peers:
            measured = peer.why if peer.value is None else f"{number(peer.value)} {figure.unit}"
            yield f"| &emsp;beside: {peer.name} | | {measured} | | | | |".replace("  ", " ")
    notes = [f"{figure.name}: {figure.note}" for figure in figures if figure.note]
    if notes:
        yield ""
        yield from (f"- {note}." for note in dict.fromkeys(notes))


def _bold(verdict: str) -> str:
    return f"**{verdict}**" if verdict == "missed" else verdict


def _curves(curves: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    sizes = curves[0]["sizes"]
    yield from ("", f"![Cost of a call by the length of the run]({_PICTURE})", "")
    yield f"| us a call | {' | '.join(f'{size:,}' for size in sizes)} |"
    yield f"| --- | {' | '.join('---:' for _ in sizes)} |"
    for curve in curves:
        yield f"| {curve['name']} | {' | '.join(number(value) for value in curve['values'])} |"
