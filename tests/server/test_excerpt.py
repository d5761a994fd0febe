"""Lines of source around the place that a report names: of the project's own Python files, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentloupe.server.excerpt import lines_around


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "agent.py").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    (root / "secret.env").write_text("KEY=1\n")
    (tmp_path / "other.py").write_text("outside\n")
    (root / "link.py").symlink_to(tmp_path / "other.py")
    (root / "big.py").write_text("x\n" * 1_100_000)
    return root


@pytest.mark.parametrize(("line", "first", "last"), [(1, 1, 5), (10, 6, 14), (20, 16, 20)])
def test_some_lines_before_and_after(project: Path, line: int, first: int, last: int) -> None:
    for file in ("agent.py", str(project / "agent.py")):
        found = lines_around(project, file, line)
        assert found == [{"number": n, "text": f"line {n}"} for n in range(first, last + 1)]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("agent.py", 0),
        ("agent.py", 21),
        ("agent.py", None),
        (None, 1),
        ("secret.env", 1),
        ("../other.py", 1),
        ("link.py", 1),
        ("big.py", 1),
        ("nowhere.py", 1),
        ("a\0.py", 1),
        (".", 1),
    ],
)
def test_nothing_else_is_read(project: Path, file: object, line: object) -> None:
    assert lines_around(project, file, line) is None
