"""Costs: exact, and unknown where they are unknown."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine.costs import Prices, PriceTable, Tokens, price_trace, tokens_of, total
from agentloupe.words.errors import ConfigError
from agentloupe.words.run import Run
from agentloupe.words.step import Step, Trace

USAGE: dict[str, Any] = {"prompt_tokens": 1000, "completion_tokens": 100}
OWN = PriceTable({"small": Prices(Decimal("0.000002"), Decimal("0.000008"))})
AT = "2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (None, None),
        ({}, None),
        ([], None),
        ({"prompt_tokens": 5}, None),
        ({"prompt_tokens": None, "completion_tokens": 1}, None),
        ({"prompt_tokens": True, "completion_tokens": 1}, None),
        ({"prompt_tokens": -1, "completion_tokens": 1}, None),
        ({"prompt_tokens": 5, "total_tokens": 5}, Tokens(5, 0)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Tokens(0, 0)),
        ({"input_tokens": 7, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 3}}, Tokens(4, 2, 3)),
        ({"input_tokens": 7, "output_tokens": 2, "cache_creation_input_tokens": 9}, Tokens(7, 2, 0, 9)),
        ({"inputTokens": 7, "outputTokens": 2, "totalTokens": 9}, Tokens(7, 2)),
        (
            {"inputTokens": 7, "outputTokens": 2, "cacheReadInputTokens": 4, "cacheWriteInputTokens": 3},
            Tokens(7, 2, 4, 3),
        ),
        ({"prompt_tokens": 7, "completion_tokens": 2, "prompt_cache_hit_tokens": 6}, Tokens(1, 2, 6)),
        ({"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": None}, Tokens(7, 2)),
        ({**USAGE, "prompt_tokens_details": {"audio_tokens": 4}}, Tokens(1000, 100, audio_in=4)),
    ],
)
def test_usage_as_providers_send_it(usage: Any, tokens: Tokens | None) -> None:
    assert tokens_of(usage) == tokens


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("small", True),
        ("small-2026-02-01", True),
        ("small-20260201", True),
        ("small@20260201", True),
        ("router/small", True),
        ("router/eu/small-2026-02-01", True),
        ("small-pro", False),
        ("small-2026", False),
        ("small-2026-13-01", False),
        ("smaller", False),
        ("small/other", False),
        ("", False),
        (None, False),
    ],
)
def test_names_that_are_the_model_and_names_that_only_look_like_it(model: str | None, known: bool) -> None:
    assert OWN.cost(model, dict(USAGE)) == (Decimal("0.0028") if known else None)


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("gpt-4o-mini", True),
        ("gpt-4o-mini-2024-07-18", True),
        ("gpt-4o-mini-2031-01-01", True),
        ("openai/gpt-4o-mini", True),
        ("claude-sonnet-4-5-20250929", True),
        ("claude-sonnet-4-5-mine", False),
        ("deepseek-chat-turbo", False),
        ("gpt-4o-mini-pro", False),
        ("mystery-7b", False),
    ],
)
def test_models_of_the_library(model: str, known: bool) -> None:
    assert (PriceTable.load().cost(model, dict(USAGE), at=AT) is not None) is known


def test_a_price_of_the_library_is_exact() -> None:
    usage: Any = {**USAGE, "prompt_tokens_details": {"cached_tokens": 400}}
    assert PriceTable.load().cost("gpt-4o-mini-2024-07-18", usage, at=AT) == Decimal("0.00018")
    assert PriceTable.load().cost("gpt-4o-mini", usage, at=AT, provider="127.0.0.1") == Decimal("0.00018")


def test_the_same_model_costs_what_its_provider_asks() -> None:
    table, model = PriceTable.load(), "llama-3.3-70b-versatile"
    assert table.cost(model, dict(USAGE), at=AT) is None
    assert table.cost(model, dict(USAGE), at=AT, provider="api.groq.com") is not None
    assert table.cost(model, dict(USAGE), at=AT, provider="groq") == table.cost(
        model, dict(USAGE), at=AT, provider="api.groq.com"
    )


@pytest.mark.parametrize(
    ("model", "same"),
    [
        ("anthropic.claude-3-5-sonnet-20240620-v1:0", "claude-3-5-sonnet-20240620"),
        ("us.anthropic.claude-3-5-sonnet-20240620-v1:0", "claude-3-5-sonnet-20240620"),
        ("anthropic.claude-3-5-sonnet-20240620-mini", None),
        ("my-claude-3-5-sonnet-20240620", None),
        (
            "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-3-5-sonnet-20240620-v1:0",
            "claude-3-5-sonnet-20240620",
        ),
    ],
)
def test_names_of_bedrock_have_a_maker_and_a_region_in_front(model: str, same: str | None) -> None:
    host = "bedrock-runtime.us-east-1.amazonaws.com"
    usage: Any = {"inputTokens": 1000, "outputTokens": 10}
    cost = PriceTable().cost(model, usage, provider=host)
    assert cost == (None if same is None else PriceTable().cost(same, usage, provider=host))
    assert (cost is None) == (same is None)


def test_own_prices_beat_the_library() -> None:
    table = PriceTable({"gpt-4o-mini": Prices(Decimal(1), Decimal(1))})
    assert table.cost("gpt-4o-mini", dict(USAGE)) == 1100


def test_another_currency_is_not_mixed_with_dollars() -> None:
    table = PriceTable({"small": Prices(Decimal(1), Decimal(1))}, "EUR")
    assert table.cost("gpt-4o-mini", dict(USAGE)) is None
    assert table.cost("small", dict(USAGE)) == 1100


def test_kinds_of_tokens_without_a_price_are_unknown() -> None:
    prices = Prices(Decimal(2), Decimal(3))
    assert prices.cost(Tokens(1, 1, cached=1)) == 7
    assert prices.cost(Tokens(1, 1, written=1)) is None
    assert prices.cost(Tokens(1, 1, audio_in=1)) is None
    assert Prices(Decimal(2), Decimal(3), written=Decimal(5)).cost(Tokens(1, 1, written=1)) == 10


def _file(tmp_path: Path, value: object) -> Path:
    path = tmp_path / "prices.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return path


def test_a_price_file(tmp_path: Path) -> None:
    row = {"input": 0.1, "output": "0.3", "cached_input": 0, "cache_write": "0.125"}
    table = PriceTable.load(_file(tmp_path, {"per": "1K tokens", "models": {"m": row}}))
    assert table.own["m"] == Prices(Decimal("0.0001"), Decimal("0.0003"), Decimal(0), Decimal("0.000125"))


@pytest.mark.parametrize(
    "value",
    [
        "{",
        "[]",
        {"models": []},
        {"per": "dozen", "models": {}},
        {"models": {"m": {"input": "1"}}},
        {"models": {"m": {"input": "1", "output": "much"}}},
        {"models": {"m": {"input": "-1", "output": "1"}}},
        {"models": {"m": {"input": "NaN", "output": "1"}}},
        {"models": {"m": 3}},
    ],
)
def test_a_price_file_that_cannot_be_used_is_named(tmp_path: Path, value: object) -> None:
    with pytest.raises(ConfigError, match=r"prices\.json"):
        PriceTable.load(_file(tmp_path, value))


def test_a_price_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        PriceTable.load(tmp_path / "nowhere.json")


# --- runs -------------------------------------------------------------------------------------------------------------


def _step(idx: int, **given: Any) -> Step:
    known: dict[str, Any] = {"kind": "llm", "model": "small", "attrs": {"usage": USAGE}, "status": "ok", **given}
    return Step(run_id="r", idx=idx, parent_idx=None, name="chat small", started_at=AT, **known)


def _priced(*steps: Step) -> Trace:
    run = Run(id="r", name="r", agent="a", status="ok", started_at=AT)
    return price_trace(Trace(run, steps), OWN)


def test_the_whole_path_and_what_was_newly_spent() -> None:
    trace = _priced(
        _step(0, source="recorded"),
        _step(1, kind="tool"),
        _step(2, source="cassette"),
        _step(3),
        _step(4, source="stub"),
    )
    assert [step.cost for step in trace.steps] == [Decimal("0.0028"), None, 0, Decimal("0.0028"), 0]
    assert trace.run.cost == Decimal("0.0056")
    assert trace.run.new_cost == Decimal("0.0028")
    assert trace.run.cost_complete


def test_tokens_without_a_usage_object_are_enough() -> None:
    assert _priced(_step(0, attrs={}, input_tokens=1000, output_tokens=100)).run.cost == Decimal("0.0028")
    assert _priced(_step(0, attrs={}, input_tokens=1000)).run.cost is None


def test_the_model_that_answered_beats_the_one_that_was_asked() -> None:
    assert _priced(_step(0, model="auto", attrs={"usage": USAGE, "model": "small-2026-02-01"})).run.cost is not None


def test_a_run_without_model_calls_costs_nothing() -> None:
    run = _priced(_step(0, kind="tool")).run
    assert (run.cost, run.new_cost, run.cost_complete) == (0, 0, True)


def test_a_run_of_unknown_costs_is_unknown() -> None:
    run = _priced(_step(0, model="mystery")).run
    assert (run.cost, run.new_cost, run.cost_complete) == (None, None, False)


def test_a_refused_call_is_not_billed_and_a_broken_one_is_unknown() -> None:
    assert _priced(_step(0), _step(1, status="error", attrs={"status_code": 429})).run.cost_complete
    assert not _priced(_step(0), _step(1, status="error", attrs={})).run.cost_complete


@given(st.lists(st.one_of(st.none(), st.integers(0, 10**6))))
def test_sums_are_exact(cents: list[int | None]) -> None:
    costs = [None if c is None else Decimal(c) / 1000 for c in cents]
    known = [c for c in cents if c is not None]
    expected = None if cents and not known else Decimal(sum(known)) / 1000
    assert total(costs) == (expected, len(known) == len(cents))


def test_the_library_is_imported_when_a_price_is_wanted_and_not_before() -> None:
    code = "import agentloupe.engine.costs, sys; raise SystemExit('genai_prices' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_computed_from_rates_is_what_the_library_says() -> None:
    """Every model of the library, with and without caches, on both sides of its tiers, at several times."""
    from genai_prices import data_snapshot

    from agentloupe.engine import costs

    counts = (0, 1, 7, 1_000, 199_999, 200_000, 200_001, 1_234_567)
    checked = quick = 0
    for provider in data_snapshot.get_snapshot().providers:
        for at, model in enumerate(provider.models):
            for turn in range(4):
                plain, output, cached, written = (counts[(at + turn * 3 + n * 5) % len(counts)] for n in range(4))
                tokens = Tokens(plain, output, cached if turn % 2 else 0, written if turn > 1 else 0)
                when = dt.datetime(2024 + turn, 3, 1 + at % 28, (at * 7) % 24, tzinfo=dt.UTC)
                rates = costs._rates_of(provider, model, when)
                told = None if rates is None else rates.cost(tokens)
                checked += 1
                if told is not None:
                    quick += 1
                    assert costs._tidy(told) == costs._asked(tokens, provider, model, when), (model.id, tokens)
    assert quick > checked / 4, (quick, checked)
