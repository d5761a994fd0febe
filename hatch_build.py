"""Puts the built page into the wheel: what `agentloupe serve` shows is made by Vite, and not kept in the repository.

A wheel is built with the page that is there, or builds it where npm is. Without both it is refused: a wheel whose `serve`
shows nothing is worth less than an error. An editable install takes the page from the working tree, built or not.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PAGE = "src/agentloupe/server/page"


class BuildPage(BuildHookInterface):  # pyright: ignore[reportMissingTypeArgument]  # the hook needs no configuration of its own
    """Hatchling's hook, see `[tool.hatch.build.hooks.custom]`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the page where it is missing. Raises `RuntimeError` where it cannot."""
        if self.target_name != "wheel" or version == "editable":
            return
        page = Path(self.root, _PAGE)
        if not (page / "index.html").is_file():
            self._build()
        build_data["artifacts"].append(f"/{_PAGE}/**")

    def _build(self) -> None:
        npm, web = shutil.which("npm"), Path(self.root, "web")
        if npm is None or not web.is_dir():
            raise RuntimeError(
                "the page is not built, and npm was not found: run `make page`, or install Node 20 or newer"
            )
        self.app.display_info("building the page")
        for command in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
            subprocess.run([npm, *command], cwd=web, check=True)  # noqa: S603  # npm, with fixed words
