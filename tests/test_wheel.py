"""The wheel holds what an installation needs: the package with its types, and the sample agents of the demo."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "No module named" in done.stderr:
        pytest.skip("needs hatchling")
    if "npm was not found" in done.stderr:
        pytest.skip("needs the built page (`make page`) or npm")
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_samples_are_in_it_as_they_are_here(unpacked: Path) -> None:
    inside = unpacked / "agentloupe" / "demo" / "examples"
    for path in (ROOT / "examples").rglob("*"):
        if path.suffix in (".py", ".jsonl", ".md"):
            assert (inside / path.relative_to(ROOT / "examples")).read_bytes() == path.read_bytes()
    assert list(inside.rglob("__pycache__")) == []


def test_it_says_that_it_is_typed(unpacked: Path) -> None:
    assert (unpacked / "agentloupe" / "py.typed").is_file()


def test_the_built_page_is_in_it(unpacked: Path) -> None:
    page = unpacked / "agentloupe" / "server" / "page"
    index = (page / "index.html").read_text("utf-8")
    named = re.findall(r'(?:src|href)="/?(assets/[^"]+)"', index)
    assert named
    assert all((page / name).is_file() for name in named)


def test_its_samples_can_be_named_and_found(unpacked: Path, tmp_path: Path) -> None:
    code = (
        "from agentloupe.demo.samples import *; import agentloupe.demo.samples as s;"
        "print(sample_path('weather'), s.support.__name__, code_of('weather'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(unpacked), "PYTHONDONTWRITEBYTECODE": "1"},  # others look at what is there
        capture_output=True,
        text=True,
        check=True,
    )
    path, name, named = done.stdout.split()
    assert Path(path).is_relative_to(unpacked)
    assert (name, named) == ("assistant", "agentloupe.demo.samples:weather")
