"""A real browser: the Chromium that is installed, driven without a window."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browsing", "chromium", "longest_task", "wheel"]

TASK: Final = "RunTask"
"""What Chromium calls a task of a thread in a trace."""
_WHEEL: Final = 40

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str | None:
    """The browser that is installed: the one that `CHROMIUM` names, else the first of the usual names."""
    named = os.environ.get("CHROMIUM")
    return named or next((found for name in _NAMES if (found := shutil.which(name))), None)


@contextmanager
def browsing() -> Generator[Browser]:
    """The installed Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(_FLAGS))
        yield browser
        browser.close()


def wheel(page: Page) -> None:
    """Scrolls what the mouse stands on by 48,000 pixels, a step in every other frame."""
    for _ in range(_WHEEL):
        page.mouse.wheel(0, 1200)
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def longest_task(browser: Browser, page: Page, scroll: Callable[[Page], None]) -> float:
    """Milliseconds of processor time of the longest task of the page's main thread while it is scrolled, from a trace."""
    browser.start_tracing(page=page, categories=["toplevel", "disabled-by-default-devtools.timeline", "__metadata"])
    scroll(page)
    trace: list[dict[str, Any]] = json.loads(browser.stop_tracing())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace if e["name"] == "thread_name"}
    tasks = [
        e.get("tdur", e["dur"])
        for e in trace
        if e["name"] == TASK and "dur" in e and names.get((e["pid"], e["tid"])) == "CrRendererMain"
    ]
    assert len(tasks) > _WHEEL, "the trace holds no tasks of the page"
    return max(tasks) / 1e3
