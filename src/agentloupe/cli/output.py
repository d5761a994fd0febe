"""What the terminal gets: text made harmless, colours only for people, JSON for machines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from agentloupe.words.canonical import Json, dumps

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["Output", "bytes_text", "fail", "harmless", "let_go", "number_of", "pretty", "short"]

WIDE = 240
"""Columns where nobody looks: files and pipes have no edge at which a table would have to break."""

_CONTROL = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)]
# Marks that turn the direction of text, or have no width, can make a line read as what it is not.
_MARKS = [0xAD, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF]
_ESCAPED = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_MARKS)}  # what JSON itself lets through
_VISIBLE = {**{code: f"\\x{code:02x}" for code in _CONTROL}, **{code: f"\\u{code:04x}" for code in _MARKS}}


def harmless(text: str) -> str:
    """The text with control characters, terminal escapes and direction marks made visible; tabs and newlines stay."""
    return text.translate(_VISIBLE).encode("utf-8", "backslashreplace").decode()


def short(value: Json, width: int = 72) -> str:
    """A value on one line, cut to `width` characters with the number of what was left out."""
    text = value if isinstance(value, str) else dumps(value).decode()
    line = harmless(" ".join(text.split()))
    if len(line) <= width:
        return line
    kept = max(width - 12, 8)
    return f"{line[:kept]}... +{len(line) - kept}"


def pretty(value: Json) -> str:
    """A value as indented JSON; what is nested too deeply for that stays on one line."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return dumps(value).decode()


def number_of(count: int, what: str) -> str:
    """`1 run`, `2 runs`, `3 bodies`."""
    plural = "bodies" if what == "body" else f"{what}s"
    return f"{count} {what if count == 1 else plural}"


def bytes_text(count: int) -> str:
    """`812 B`, `1.4 kB`, `2.1 MB`: decimal units."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("the last unit takes every size")


class Output:
    """Writes a command's results to standard output, as text or as JSON.

    Args:
        as_json: print one JSON document and nothing else.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        """The terminal: no colours when piped or when NO_COLOR is set; wide when nobody looks."""
        if self._console is None:
            from rich.console import Console

            class Terminal(Console):
                def on_broken_pipe(self) -> None:
                    raise BrokenPipeError  # its own way is to exit with 1

            people = sys.stdout.isatty()
            self._console = Terminal(
                color_system=None if os.environ.get("NO_COLOR") else "auto",
                highlight=False,
                markup=False,
                emoji=False,
                soft_wrap=not people,
                width=None if people else WIDE,
            )
        return self._console

    def document(self, value: Any) -> None:
        """The one JSON document of a `--json` call: strict JSON, keys as they come; what a terminal obeys is escaped."""
        sys.stdout.write(dumps(value).decode("utf-8", "backslashreplace").translate(_ESCAPED) + "\n")

    def line(self, text: str = "", style: str | None = None) -> None:
        """A line of text; what may hold payload is made harmless."""
        if not self.as_json:
            self.console.print(harmless(text), style=style)

    def command(self, text: str, style: str | None = None) -> None:
        """A line that people copy into a shell: never broken, so that what folds it is the terminal and a copy is whole."""
        if not self.as_json:
            self.console.print(harmless(text), style=style, soft_wrap=True)

    def draw(self, what: RenderableType) -> None:
        """A table or a tree. Whoever builds it passes payload through `harmless` or `short`."""
        if self.as_json:
            return
        with self.console.capture() as drawn:
            self.console.print(what)
        # A table fills its lines with blanks up to its edge; whoever copies or compares them wants none.
        self.console.file.write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))

    @contextmanager
    def progress(self, title: str, total: int | None) -> Generator[Callable[[], None]]:
        """A progress bar on standard error for long work; silent when nobody looks. Yields a function: one more is done."""
        if self.as_json or not sys.stderr.isatty() or (total is not None and total < 2):
            yield lambda: None
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=total)
            yield lambda: bar.advance(task)


def fail(
    message: str,
    *,
    code: int,
    slug: str,
    reason: str | None = None,
    hint: str | None = None,
    as_json: bool = False,
) -> int:
    """Says what went wrong: one line on standard error (with the way out below it), or a JSON document on standard output."""
    if as_json:
        error = {"code": slug, "reason": reason or slug, "message": message, "hint": hint, "exit_code": code}
        with suppress(OSError):
            sys.stdout.write(json.dumps({"error": error}) + "\n")
    let_go()
    with suppress(OSError):  # the exit code tells the rest to whoever wants no text
        sys.stderr.write(f"agentloupe: {harmless(message)}\n")
        if hint:
            sys.stderr.write(f"  {harmless(hint)}\n")
    return code


def let_go() -> None:
    """Lets go of what standard output does not take, on which the end of the interpreter would fail with a code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
