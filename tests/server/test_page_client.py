"""The sources of the page: a client made from the interface that the server has now, and sheets that stay out of one another's way."""

from __future__ import annotations

import json
import re

from agentloupe.server.app import openapi
from tests.support import ROOT


def test_the_page_knows_the_interface_as_it_is() -> None:
    written = json.loads((ROOT / "web" / "src" / "api" / "openapi.json").read_text())
    assert written == json.loads(json.dumps(openapi())), "stale: run `make page-api`"


def plain_classes(sheet: str) -> set[str]:
    """Classes that a sheet speaks of alone, so that they mean the same wherever they stand."""
    rules = re.findall(r"([^{}@;]+)\{", re.sub(r"/\*.*?\*/", "", sheet, flags=re.DOTALL))
    selectors = {one.strip() for rule in rules for one in rule.split(",")}
    return {one for one in selectors if re.fullmatch(r"\.[A-Za-z][\w-]*", one)}


def test_no_two_views_give_one_class_a_meaning_of_their_own() -> None:
    """A view's sheet is loaded with its page and stays: from then on it reaches into every other page."""
    owner: dict[str, str] = {}
    for file in sorted((ROOT / "web" / "src" / "views").rglob("*.css")):
        for name in plain_classes(file.read_text("utf-8")):
            assert owner.setdefault(name, file.name) == file.name, f"{name} stands in {owner[name]} and {file.name}"
    assert len(owner) > 50
