"""A real server in a process of its own, and a real browser that looks at it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, expect

from agentloupe.server.app import PAGE
from bench.browser import browsing, chromium
from tests.support import ROOT

__all__ = ["AXE", "Served", "browsing", "chromium", "missing", "serving"]

AXE: Final = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


def missing() -> str | None:
    """What a browser test needs and does not have, with the way to get it."""
    if chromium() is None:
        return "needs Chromium (apt-get install chromium, or CHROMIUM=/path/to/one)"
    if not (PAGE / "index.html").is_file():
        return "needs the built page (make page)"
    return None


@dataclass
class Served:
    """A server that runs.

    Attributes:
        address: where it is, with the token.
        process: of it.
    """

    address: str
    process: subprocess.Popen[str]

    def at(self, path: str, **asked: str) -> str:
        """The address of a page, with the token."""
        root, _, token = self.address.partition("/?")
        more = "".join(f"&{name}={value}" for name, value in asked.items())
        mark = "&" if "?" in path else "?"
        return f"{root}{path}{mark}{token}{more}"

    def show(self, page: Page, path: str, **asked: str) -> None:
        """Opens a page and waits until it shows its content and hears keys."""
        page.goto(self.at(path, **asked))
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)

    def stop(self) -> None:
        """Ends it and waits until it is gone."""
        self.process.terminate()
        self.process.wait(timeout=20)


@contextmanager
def serving(db: Path, *more: str, **env: str) -> Generator[Served]:
    """`agentloupe serve` over a database, as a person starts it, with further options and variables."""
    command = [sys.executable, "-m", "agentloupe", "serve", "--no-browser", "--port", "0", "--db", str(db), *more]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("LLM_", "LOUPE_"))}
    everything = {**own, "LOUPE_DB": str(db), **env}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=everything, cwd=db.parent) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        served = Served(said.rpartition(" ")[2].strip(), process)
        assert "token=" in served.address, said
        try:
            yield served
        finally:
            served.stop()
