"""The plugin steps aside for plugins that have its option already: pytest must start with both installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OTHER = """
def pytest_addoption(parser):
    parser.getgroup("other").addoption("--record-mode", default=None)
"""


@pytest.mark.parametrize("other", ["pytest_recording", "cassetter"])
def test_pytest_starts_beside_a_plugin_with_the_same_option(tmp_path: Path, other: str) -> None:
    (tmp_path / other).mkdir()
    (tmp_path / other / "__init__.py").touch()
    (tmp_path / other / "options.py").write_text(OTHER, "utf-8")
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n", "utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugins = ["-p", "agentloupe.pytest_plugin", "-p", f"{other}.options"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "--record-mode=none"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
