"""The Chinese README says what the English one says: same headings, blocks, tables, links and names, in the same order."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.support import ROOT

ENGLISH = (ROOT / "README.md").read_text("utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text("utf-8")

_BLOCK = re.compile(r"^```\w*\n.*?^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"[ \t]+#.*$", re.MULTILINE)


def prose(text: str) -> str:
    return _BLOCK.sub("", text)


def headings(text: str) -> list[int]:
    return [len(marks) for marks in re.findall(r"^(#+) ", prose(text), re.MULTILINE)]


def blocks(text: str) -> list[str]:
    """Fenced and indented blocks, without their comments."""
    fenced: list[str] = _BLOCK.findall(text)
    indented: list[str] = re.findall(r"^ {4}\S.*$", prose(text), re.MULTILINE)
    return [_COMMENT.sub("", block) for block in [*fenced, *indented]]


def columns(text: str) -> list[int]:
    """How many cells each row of each table has."""
    return [line.count("|") for line in prose(text).splitlines() if line.startswith("|")]


def links(text: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(text)) if not link.startswith("README")]


def names(text: str) -> list[str]:
    """Words in code: commands, files, functions. Their order within a sentence is the language's own."""
    return sorted(re.findall(r"`([^`\n]+)`", prose(text)))


def points(text: str) -> int:
    return len(re.findall(r"^- ", prose(text), re.MULTILINE))


PARTS: tuple[Callable[[str], object], ...] = (headings, blocks, columns, links, names, points)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_the_chinese_readme_keeps_step(part: Callable[[str], object]) -> None:
    assert part(CHINESE) == part(ENGLISH)


def test_each_names_the_other() -> None:
    assert "](README.zh-CN.md)" in ENGLISH
    assert "](README.md)" in CHINESE


@pytest.mark.parametrize(
    ("part", "old", "new"),
    [
        (headings, "## Install", "Install"),
        (blocks, "agentloupe doctor my_agent.py ", "agentloupe doctor another.py "),
        (links, "docs/start.md", "docs/begin.md"),
        (names, "`.loupe/loupe.db`", "`.loupe/runs.db`"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_fell_behind_is_found(part: Callable[[str], object], old: str, new: str) -> None:
    assert old in ENGLISH
    assert part(ENGLISH.replace(old, new)) != part(ENGLISH)
