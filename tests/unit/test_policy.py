"""Who may answer a tool call of a fork."""

from __future__ import annotations

from typing import Any

import pytest

from agentloupe.engine.policy import (
    Allow,
    Policy,
    ToolRule,
    check_live,
    find_sandbox,
    parse_live,
    parse_tool,
    stated_effect,
    with_live,
)
from agentloupe.verbs.instrument import tool
from agentloupe.words.errors import ForkRefused, UsageError


@pytest.mark.parametrize(
    ("text", "name", "rule"),
    [
        ("a=cassette", "a", ToolRule("cassette")),
        ("a=live", "a", ToolRule("live")),
        ("a=human", "a", ToolRule("human")),
        ("a=stub", "a", ToolRule("stub")),
        ("a=stub:null", "a", ToolRule("stub")),
        ('a=stub:{"x": [1, "="]}', "a", ToolRule("stub", value={"x": [1, "="]})),
        ("a.b=sandbox:pkg.mod:Fake.run", "a.b", ToolRule("sandbox", sandbox="pkg.mod:Fake.run")),
    ],
)
def test_rules_are_read(text: str, name: str, rule: ToolRule):
    assert parse_tool(text) == (name, rule)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", "NAME=POLICY"),
        ("=live", "NAME=POLICY"),
        ("a=livve", "did you mean live"),
        ("a=cassette:x", "no such policy"),
        ("a=stub:{x", "not JSON"),
        ("a=sandbox:module", "MODULE:FUNCTION"),
        ("a=sandbox", "MODULE:FUNCTION"),
        ("a=", "it is one of"),
        ("a=simulated", "no such policy"),
    ],
)
def test_what_is_no_rule_is_refused_by_name(text: str, names: str):
    with pytest.raises(UsageError, match=names):
        parse_tool(text)


@pytest.mark.parametrize(
    ("effect", "entry", "reason"),
    [
        ("pure", Allow("arithmetic"), None),
        ("read", Allow("the weather is free", read=True), None),
        ("read", Allow("the weather"), "live_read"),
        ("pure", None, "live_not_listed"),
        ("pure", Allow("  "), "live_no_reason"),
        ("write", Allow("please", read=True), "live_write"),
        ("write", None, "live_write"),
    ],
)
def test_live_needs_all_three(effect: Any, entry: Allow | None, reason: str | None):
    policy = Policy(tools={"t": ToolRule("live")}, allow={} if entry is None else {"t": entry})
    if reason is None:
        policy.check(lambda _: effect)
        check_live("t", effect, entry)
        return
    with pytest.raises(ForkRefused) as refused:
        policy.check(lambda _: effect)
    assert refused.value.reason == reason
    assert refused.value.exit_code == 3


def test_without_the_switch_the_list_alone_runs_nothing():
    policy = Policy(allow={"t": Allow("arithmetic")})
    policy.check(lambda _: "write")
    assert policy.rule("t").how == "cassette"
    assert policy.named_live() == ()


def test_live_names_and_reasons_are_paired():
    assert parse_live(["a", "b:read"], ["why a", "why b"]) == {"a": Allow("why a"), "b": Allow("why b", read=True)}
    assert parse_live(["a", "b"], ["both"]) == {"a": Allow("both"), "b": Allow("both")}
    for names, reasons in ((["a"], []), (["a", "b", "c"], ["1", "2"]), ([], ["why"]), (["a:write"], ["x"])):
        with pytest.raises(UsageError):
            parse_live(names, reasons)


def test_a_tool_cannot_be_live_and_something_else():
    assert with_live({"b": ToolRule("stub")}, ["a"])["a"].how == "live"
    with pytest.raises(UsageError, match="live and stub"):
        with_live({"a": ToolRule("stub")}, ["a"])


def test_effects_are_those_of_the_declaration():
    assert stated_effect(tool(effect="pure")(lambda: None)) == "pure"
    assert stated_effect(tool(lambda: None)) == "write"
    assert stated_effect(lambda: None) is None
    assert stated_effect(None) is None


@pytest.mark.parametrize("policy", [Policy(on_miss="human"), Policy(tools={"t": ToolRule("human")})])
def test_a_person_must_be_there_to_be_asked(policy: Policy):
    with pytest.raises(UsageError, match="somebody to ask"):
        policy.check(lambda _: "write")


def test_sandboxes_are_found_among_loaded_modules_only():
    assert find_sandbox(ToolRule("sandbox", sandbox=len), "t") is len
    assert find_sandbox(ToolRule("sandbox", sandbox="agentloupe.engine.policy:parse_tool"), "t") is parse_tool
    for name in ("no_such_module_here:f", "agentloupe.engine.policy:nothing", "agentloupe.engine.policy:HOWS", "x"):
        with pytest.raises(ForkRefused) as refused:
            find_sandbox(ToolRule("sandbox", sandbox=name), "t")
        assert refused.value.reason == "no_sandbox"


def test_the_policy_is_recorded_as_data():
    policy = Policy(
        tools={"a": ToolRule("stub", value=[1]), "b": ToolRule("sandbox", sandbox=parse_tool)},
        allow={"c": Allow("because")},
        on_miss="abort",
    )
    assert policy.as_json() == {
        "tools": {
            "a": {"how": "stub", "value": [1]},
            "b": {"how": "sandbox", "function": "agentloupe.engine.policy:parse_tool"},
        },
        "allow": {"c": {"reason": "because", "read": False}},
        "on_miss": "abort",
    }
