"""A real browser: the Chromium that is installed, driven without a window."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browsing", "chromium"]

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
