"""The page in a real browser: a 10,000-step run opened, and scrolled from its first card to its last."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agentloupe.server.app import PAGE
from bench.agents import model_and_tool, recorded
from bench.browser import browsing, chromium, longest_task, wheel
from bench.context import Context
from bench.figures import NOT_INSTALLED, Figure, Found
from bench.rows.request import STEPS

if TYPE_CHECKING:
    from playwright.sync_api import Page

_AT_END: Final = "(t => t.scrollTop + t.clientHeight > t.scrollHeight - 400)(document.querySelector('#transcript'))"


@contextmanager
def _serving(database: Path) -> Generator[str]:
    """A server as a person starts it; its address, with the token."""
    argv = [sys.executable, "-m", "agentloupe", "serve", "--no-browser", "--port", "0", "--db", str(database)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.kill()


def _opened(page: Page, address: str, run: str) -> float:
    """Milliseconds from asking for the address to the first card of the transcript, by the clock of the page."""
    root, _, token = address.partition("/?")
    page.goto(f"{root}/runs/{run}?{token}")
    shown = page.wait_for_function("document.querySelector('#transcript article') && performance.now()")
    return float(shown.json_value())


def _to_its_end(page: Page) -> None:
    wheel(page)
    page.keyboard.press("End")
    page.wait_for_function(_AT_END)


def measure(context: Context) -> Found:
    """A run that nobody has looked at yet; a browser of its own for each repetition."""
    steps = context.size(STEPS, 1000)
    if chromium() is None or not (PAGE / "index.html").is_file():
        context.say(f"a browser, or the built page, is {NOT_INSTALLED}: the page is not measured")
        return Found()
    context.say(f"recording a run of {steps:,} steps")
    store = context.store("page")
    run = recorded(store, model_and_tool, steps, new=200)
    opened: list[float] = []
    longest: list[float] = []
    with _serving(Path(store.path)) as address:
        for _ in range(context.few):
            with browsing() as browser:
                page = browser.new_page(viewport={"width": 1440, "height": 900}, bypass_csp=True)
                opened.append(_opened(page, address, run))
                page.locator("#transcript").hover()
                longest.append(longest_task(browser, page, _to_its_end))
    found = Found()
    for name, taken, target, note in (
        ("opened, to its first card", opened, 1000.0, "in a new browser, by the clock of the page"),
        ("scrolled, its longest task", longest, 50.0, "processor time of one task of the main thread, from a trace"),
    ):
        figure = Figure(
            row="page",
            name=f"{steps:,} steps {name}",
            unit="ms",
            measured=min(taken),
            median=sorted(taken)[len(taken) // 2],
            target=target,
            note=note,
        )
        found.figures.append(figure)
    return found
