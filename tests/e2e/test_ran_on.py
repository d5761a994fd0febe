"""What two runs ran on, above their comparison: changed with the whole list folded, the same, not known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import agentloupe as loupe
from agentloupe.engine.loop import encode
from agentloupe.engine.project import Projector
from agentloupe.ports import ambient, codecs
from agentloupe.store.opening import open_url
from agentloupe.verbs import snapshot as taking
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json
from tests.e2e.served import AXE, Served, serving
from tests.e2e.world import observed_run
from tests.tapes import record_in

BEFORE = {"anthropic": "2.13.0", "httpx": "0.28.0", "openai": "3.56.0", "attrs": "26.1", "h11": "1"}
AFTER = {"anthropic": "2.14.0", "httpx": "0.28.1", "openai": "3.57.0", "attrs": "26.2", "h11": "1"}


@dataclass(frozen=True)
class Ran:
    """A server, and runs by what they ran on."""

    served: Served
    before: str
    same: str
    after: str
    unknown: str
    templated: tuple[str, str]


def _asking(template: str) -> Any:
    @loupe.agent(name="asking", snapshot={"prompt_template": template})
    def agent() -> str:
        return "done"

    return agent


def _made_from(version: str) -> Any:
    """Asks twice, the same from any template."""

    @loupe.agent(name="templated")
    def agent() -> str:
        for text in ("one", "two"):
            body: Json = {"model": "m", "messages": [{"role": "user", "content": text}]}
            answer: Json = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}}]}
            with loupe.prompt("triage", version):
                ambient.call(
                    Call(kind="llm", name="chat m", input=body, encode=encode, decode=codecs.decode),
                    lambda answer=answer: answer,
                )
        return "done"

    return agent


@pytest.fixture(scope="module")
def ran(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    db = tmp_path_factory.mktemp("ran") / "runs.db"
    with closing(open_url(db, new_fold=Projector)) as store, pytest.MonkeyPatch.context() as patch:

        def recorded(template: str, packages: dict[str, str]) -> str:
            patch.setattr(taking, "_versions", lambda _: packages)
            return record_in(store, _asking(template)).run_id

        runs = (recorded("3", BEFORE), recorded("3", BEFORE), recorded("4", AFTER), observed_run(store))
        patch.setattr(taking, "_versions", lambda _: BEFORE)
        templated = (record_in(store, _made_from("3")).run_id, record_in(store, _made_from("4")).run_id)
    with serving(db) as served:
        yield Ran(served, *runs, templated)


def shown(page: Page, ran: Ran, left: str, right: str, name: str = "Ran on", **asked: str) -> Locator:
    """What stands there of two runs."""
    ran.served.show(page, f"/compare?a={left}&b={right}", **asked)
    return page.get_by_role("region", name=name, exact=True)


def test_what_changed_is_said_and_all_of_it_is_folded_beneath(page: Page, ran: Ran) -> None:
    found = shown(page, ran, ran.before, ran.after)
    expect(found).to_contain_text("4 packages changed: anthropic 2.13.0 → 2.14.0")
    expect(found).to_contain_text("and 1 more · prompt_template changed")
    expect(found.get_by_role("table")).to_be_hidden()
    found.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(found.get_by_role("row").filter(has_text="openai")).to_contain_text(re.compile("3.56.0.*3.57.0"))
    expect(found.get_by_role("row").filter(has_text="prompt_template")).to_be_visible()
    page.evaluate(AXE.read_text())
    seen: Any = page.evaluate("() => axe.run(document.querySelector('.ranon'))")
    assert [one["id"] for one in seen["violations"] if one["impact"] in ("serious", "critical")] == []


def test_equal_and_unknown_are_not_the_same(page: Page, ran: Ran) -> None:
    expect(shown(page, ran, ran.before, ran.same)).to_contain_text("the same packages, prompts, tools and settings")
    expect(shown(page, ran, ran.before, ran.unknown)).to_contain_text("not known of both")


def test_it_is_said_in_chinese(page: Page, ran: Ran) -> None:
    found = shown(page, ran, ran.before, ran.after, "运行依据", theme="dark", lang="zh-CN")
    expect(found).to_contain_text("4 个软件包有变化：anthropic 2.13.0 → 2.14.0")
    expect(found).to_contain_text("prompt_template 有变化")


TEMPLATES = {
    "en": ("No step differs in value. 2 calls were made from another prompt template.", "Ran on", "prompts, tools"),
    "zh-CN": ("没有步骤的值不同。 2 次调用由另一个提示词模板生成。", "运行依据", "提示词、"),
}


@pytest.mark.parametrize("lang", TEMPLATES)
def test_of_calls_from_other_templates_nothing_says_that_only_spelling_or_no_prompt_differs(
    page: Page, ran: Ran, lang: str
) -> None:
    said, name, no = TEMPLATES[lang]
    found = shown(page, ran, *ran.templated, name=name, lang=lang)
    expect(page.get_by_text(said, exact=True)).to_be_visible()
    expect(found).to_contain_text("2 calls were made from another prompt template" if lang == "en" else "2 次调用")
    expect(found).not_to_contain_text(no)
    expect(page.get_by_text("triage@3 -> triage@4")).to_have_count(2)
