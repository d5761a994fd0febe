"""What model calls cost: exact decimals from the user's `prices.json` first, then from the price library.

Unknown stays unknown: a model that nobody has a price for, a usage that was not sent, a kind of token without a price
give `None`, never 0. The price library (genai-prices) is imported at the first model that needs it.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from agentloupe.words.canonical import Json
from agentloupe.words.errors import ConfigError
from agentloupe.words.run import Run
from agentloupe.words.step import Step, Trace

__all__ = ["PriceTable", "Prices", "Tokens", "price_run", "price_step", "price_trace", "tokens_of", "total"]

_PER = {"1M tokens": Decimal(1_000_000), "1K tokens": Decimal(1_000), "1 token": Decimal(1)}
_MANY_RATES = 10_000
_DATE = re.compile(r"[-@](20\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])$")
_VERSION_TAIL = re.compile(r"\d*(?:[-@:.](?:\d[\d.:-]*|v\d[\d.:-]*|latest|preview|exp))*")


# --- tokens -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one call, each counted once.

    Attributes:
        plain: input tokens at full price.
        cached: input tokens read from the provider's cache.
        written: input tokens written to it.
        output: output tokens, those for reasoning among them.
        audio_in, audio_out: how many of `plain` and `output` are audio.
    """

    plain: int
    output: int
    cached: int = 0
    written: int = 0
    audio_in: int = 0
    audio_out: int = 0


def tokens_of(usage: Json) -> Tokens | None:
    """Reads a usage object as providers send it; `None` if it does not say how much was used.

    - Anthropic messages: `input_tokens` stands beside `cache_read_input_tokens` and `cache_creation_input_tokens`.
    - Converse of Bedrock the same: `inputTokens` beside `cacheReadInputTokens` and `cacheWriteInputTokens`.
    - OpenAI chat completions and responses: `prompt_tokens` / `input_tokens` include the cached part of their details.
    - Reasoning is inside `completion_tokens`, unless the total shows that a provider counts it beside.
    """
    if not isinstance(usage, dict):
        return None
    given = _count(usage, "prompt_tokens", "input_tokens", "inputTokens")
    output = _count(usage, "completion_tokens", "output_tokens", "outputTokens")
    whole = _count(usage, "total_tokens")
    if given is not None and output is None and whole == given:
        output = 0
    if given is None or output is None:
        return None
    details_in = _details(usage, "prompt_tokens_details", "input_tokens_details")
    details_out = _details(usage, "completion_tokens_details", "output_tokens_details")
    audio_in, audio_out = _count(details_in, "audio_tokens") or 0, _count(details_out, "audio_tokens") or 0
    if not _BESIDE.isdisjoint(usage):
        cached = _count(usage, "cache_read_input_tokens", "cacheReadInputTokens") or 0
        written = _count(usage, "cache_creation_input_tokens", "cacheWriteInputTokens") or 0
        return Tokens(given, output, cached, written)
    reasoning = _count(details_out, "reasoning_tokens") or 0
    if reasoning and whole == given + output + reasoning:
        output += reasoning
    cached = _count(details_in, "cached_tokens")
    if cached is None:
        cached = _count(usage, "prompt_cache_hit_tokens", "cached_tokens") or 0
    return Tokens(max(given - cached, 0), output, min(cached, given), audio_in=audio_in, audio_out=audio_out)


_BESIDE = frozenset(
    {"cache_read_input_tokens", "cache_creation_input_tokens", "cacheReadInputTokens", "cacheWriteInputTokens"}
)
"""Counts of tokens that stand beside those of the input, and are no part of them."""


def _count(usage: Mapping[str, Json], *names: str) -> int | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def _details(usage: Mapping[str, Json], *names: str) -> Mapping[str, Json]:
    for name in names:
        value = usage.get(name)
        if isinstance(value, dict):
            return value
    return {}


# --- prices -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one model, per token. `cached` and `written` may be unknown."""

    input: Decimal
    output: Decimal
    cached: Decimal | None = None
    written: Decimal | None = None

    def cost(self, tokens: Tokens) -> Decimal | None:
        """Exact. A cache without a price of its own costs like input; writing to it, and audio, are then unknown."""
        if tokens.audio_in or tokens.audio_out or (tokens.written and self.written is None):
            return None
        cached = self.input if self.cached is None else self.cached
        written = (self.written or Decimal(0)) * tokens.written
        return _tidy(self.input * tokens.plain + cached * tokens.cached + written + self.output * tokens.output)


@dataclass(frozen=True)
class PriceTable:
    """The user's prices over those of the library.

    Attributes:
        own: prices by model name, as `prices.json` gives them.
        currency: of every cost. The library knows US dollars only and is not asked in another currency.
    """

    own: Mapping[str, Prices] = field(default_factory=dict[str, Prices])
    currency: str = "USD"

    @classmethod
    def load(cls, path: Path | str | None = None) -> PriceTable:
        """Reads a `prices.json`; without a path, the library alone.

        Its form: `{"currency": "USD", "per": "1M tokens", "models": {NAME: {"input": "2.00", "cached_input": "0.50",
        "cache_write": "2.50", "output": "8.00"}}}`; `cached_input` and `cache_write` may be left out.

        Raises:
            ConfigError: the file cannot be read, or is not of this form.
        """
        if path is None:
            return cls()
        try:
            text = Path(path).read_text("utf-8")
            value: object = json.loads(text, parse_float=Decimal, parse_int=Decimal)
        except (OSError, ValueError) as wrong:
            raise ConfigError(f"{path}: prices cannot be read: {wrong}") from wrong
        document = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        models: object = document.get("models")
        per = _PER.get(str(document.get("per", "1M tokens")))
        if not isinstance(models, dict) or per is None:
            raise ConfigError(f'{path}: expected {{"per": "1M tokens", "models": {{...}}}}')
        own = {name: _prices(row, per, f"{path}: {name}") for name, row in cast("dict[str, Any]", models).items()}
        return cls(own, str(document.get("currency", "USD")))

    def cost(
        self, model: str | None, usage: Json, *, provider: str | None = None, at: str | None = None
    ) -> Decimal | None:
        """Cost of one call, or `None` if it is not known.

        Args:
            model: name as the provider gives it: dated snapshots (`NAME-2026-02-01`) and names behind router and
                provider prefixes (`router/NAME`) are found, names that only begin alike are not.
            usage: the usage object as sent.
            provider: who answered (a name, or the host of its API), where the same model has several prices.
            at: when, UTC in ISO 8601, since prices change.
        """
        if not model or not usage:
            return None
        own = next((self.own[name] for name in _names(model) if name in self.own), None) if self.own else None
        if own is None and (self.currency != "USD" or _library_model(model, provider) is None):
            return None
        tokens = tokens_of(usage)
        if tokens is None:
            return None
        return own.cost(tokens) if own is not None else _library_cost(tokens, model, provider, at)


def _prices(row: object, per: Decimal, where: str) -> Prices:
    members = cast("dict[str, object]", row) if isinstance(row, dict) else {}

    def price(name: str) -> Decimal | None:
        value = members.get(name)
        if value is None:
            return None
        try:
            found = Decimal(cast("Any", value))
        except (InvalidOperation, TypeError, ValueError):
            found = Decimal("NaN")
        if not found.is_finite() or found < 0:
            raise ConfigError(f"{where}: {name} is no price")
        return found / per

    given, output = price("input"), price("output")
    if given is None or output is None:
        raise ConfigError(f"{where}: needs `input` and `output`")
    return Prices(given, output, price("cached_input"), price("cache_write"))


def _names(model: str) -> list[str]:
    """Names under which a model's price may stand: as it is, without prefixes, and all of these without a date."""
    parts = model.split("/")
    whole = ["/".join(parts[start:]) for start in range(len(parts))]
    return [*whole, *(name for one in whole if (name := _DATE.sub("", one)) != one)]


# --- the library ------------------------------------------------------------------------------------------------------


def _library_cost(tokens: Tokens, model: str, provider: str | None, at: str | None) -> Decimal | None:
    found = _library_model(model, provider)
    if found is None:
        return None
    its_provider, its_model = found
    when = dt.datetime.fromisoformat(at) if at else dt.datetime.max.replace(tzinfo=dt.UTC)
    rates = _rates_of(its_provider, its_model, when)
    if rates is not None and not tokens.audio_in and not tokens.audio_out:
        cost = rates.cost(tokens)
        if cost is not None:
            return _tidy(cost)
    return _asked(tokens, its_provider, its_model, when)


@dataclass(frozen=True, slots=True)
class _Rates:
    """What a request and one token cost by a price of the library, where fewer input tokens are sent than a tier begins at."""

    fee: Decimal
    plain: Decimal
    output: Decimal
    cached: Decimal | None
    written: Decimal | None
    below: int | None

    def cost(self, tokens: Tokens) -> Decimal | None:
        """The same as the library says, at a fraction of its time; `None` where it has to be asked."""
        whole = tokens.plain + tokens.cached + tokens.written
        if self.below is not None and whole >= self.below:
            return None
        cost = self.fee + self.plain * tokens.plain + self.output * tokens.output
        for rate, count in ((self.cached, tokens.cached), (self.written, tokens.written)):
            if count:
                if rate is None:
                    return None
                cost += rate * count
        return cost


_KNOWN_RATES: dict[int, tuple[object, _Rates | None]] = {}
"""By the identity of the library's price, which is kept beside so that it stays the only one of its number."""


def _rates_of(its_provider: Any, its_model: Any, when: dt.datetime) -> _Rates | None:
    """What one token costs at a time, found by asking the library for none and for one of each kind."""
    price = its_model.get_prices(when)
    known = _KNOWN_RATES.get(id(price))
    if known is not None and known[0] is price:
        return known[1]
    fee = _asked(Tokens(0, 0), its_provider, its_model, when)
    one = (Tokens(1, 0), Tokens(0, 1), Tokens(0, 0, cached=1), Tokens(0, 0, written=1))
    alone = [_asked(tokens, its_provider, its_model, when) for tokens in one]
    plain, output, cached, written = (None if cost is None or fee is None else cost - fee for cost in alone)
    starts = [
        tier.start for value in cast("dict[str, Any]", vars(price)).values() for tier in getattr(value, "tiers", ())
    ]
    below: int | None = min(starts) if starts else None
    rates = None
    if fee is not None and plain is not None and output is not None and (below is None or below > 1):
        rates = _Rates(fee, plain, output, cached, written, below)
    if len(_KNOWN_RATES) > _MANY_RATES:
        _KNOWN_RATES.clear()
    _KNOWN_RATES[id(price)] = (price, rates)
    return rates


def _asked(tokens: Tokens, its_provider: Any, its_model: Any, when: dt.datetime) -> Decimal | None:
    from genai_prices import Usage

    counts = {
        "input_tokens": tokens.plain + tokens.cached + tokens.written,
        "output_tokens": tokens.output,
        "cache_read_tokens": tokens.cached,
        "cache_write_tokens": tokens.written,
        "input_audio_tokens": tokens.audio_in,
        "output_audio_tokens": tokens.audio_out,
    }
    usage = Usage(
        **{name: count for name, count in counts.items() if count or name in ("input_tokens", "output_tokens")}
    )
    try:
        price = its_model.calc_price(usage, its_provider, genai_request_timestamp=when)
    except (LookupError, ValueError):
        return None
    return _tidy(price.total_price)


@lru_cache(512)
def _library_model(model: str, provider: str | None) -> tuple[Any, Any] | None:
    """(provider, model) of the library, for the first name that it knows."""
    from genai_prices import data_snapshot

    snapshot = data_snapshot.get_snapshot()
    parts = model.split("/")
    by_host = f"https://{provider}" if provider and "." in provider else None
    asked: list[tuple[str | None, str | None, str]] = []
    if provider:
        asked.append((None, by_host, model) if by_host else (provider, None, model))
    asked += [(parts[start - 1], None, "/".join(parts[start:])) for start in range(1, len(parts))]
    asked += [(None, None, model), *((None, None, name) for name in _names(model)[1:])]
    for who, host, name in asked:
        try:
            found = snapshot.find_provider_model(name, None, who, host)
        except LookupError:
            continue
        if _really(name.lower(), *found):
            return found
    return None


def _really(name: str, its_provider: Any, model: Any) -> bool:
    """Whether a name is this model and not one that begins like it: what follows must be a version.

    Before the names of Bedrock may stand who made the model, and a region: `us.anthropic.NAME`.
    """
    literals = [str(model.id).lower(), *_literals(model.match)]
    tails = [name[len(text) :] for text in literals if name.startswith(text)]
    if its_provider.id == "aws":
        parts = [name.partition(text) for text in _literals(model.match, ("contains", "ends_with"))]
        tails += [tail for before, text, tail in parts if text and before[-1:] in ("", ".")]
    return any(_VERSION_TAIL.fullmatch(tail) for tail in tails)


def _literals(clause: Any, kinds: Sequence[str] = ("equals", "starts_with")) -> list[str]:
    """Texts that names are compared with, in a clause of the library and those inside it."""
    found: list[str] = []
    for name in kinds:
        text = getattr(clause, name, None)
        if isinstance(text, str):
            found.append(text.lower())
    for name in ("or_", "and_"):
        for inner in cast("list[Any]", getattr(clause, name, None) or []):
            found += _literals(inner, kinds)
    return found


# --- runs -------------------------------------------------------------------------------------------------------------


def total(costs: Iterable[Decimal | None]) -> tuple[Decimal | None, bool]:
    """(sum of what is known, whether everything is known). The sum of only unknown costs is unknown."""
    every = list(costs)
    known = [cost for cost in every if cost is not None]
    if every and not known:
        return None, False
    return _tidy(sum(known, Decimal(0))), len(known) == len(every)


def _tidy(amount: Decimal) -> Decimal:
    """The same amount without zeros at its end, and without an exponent when it is printed."""
    return Decimal(f"{amount.normalize():f}")


def price_trace(trace: Trace, table: PriceTable) -> Trace:
    """The trace with the costs of its model steps, and of the run: the whole path, and what was newly spent.

    A copied prefix cost what it cost in the parent and nothing new; an answer from a cassette cost nothing.
    """
    steps = tuple(price_step(step, table) for step in trace.steps)
    return Trace(_with_costs(trace.run, ((step, step.cost) for step in steps if step.kind == "llm")), steps)


def price_step(step: Step, table: PriceTable) -> Step:
    """A step with its cost; only model steps have one."""
    return replace(step, cost=_step_cost(step, table)) if step.kind == "llm" else step


def price_run(run: Run, steps: Iterable[Step], table: PriceTable) -> Run:
    """The run with its costs, as `price_trace` gives it, without making its steps anew."""
    return _with_costs(run, ((step, _step_cost(step, table)) for step in steps if step.kind == "llm"))


def _with_costs(run: Run, priced: Iterable[tuple[Step, Decimal | None]]) -> Run:
    counted = [(step, cost) for step, cost in priced if not _never_billed(step)]
    if run.erased and not counted:
        return replace(run, cost=None, new_cost=None, cost_complete=False)  # what it held cannot be told any more
    whole, complete = total(cost for _, cost in counted)
    new, _ = total(cost for step, cost in counted if step.source != "recorded")
    return replace(run, cost=whole, new_cost=new, cost_complete=complete)


def _step_cost(step: Step, table: PriceTable) -> Decimal | None:
    if step.source not in ("live", "recorded"):
        return Decimal(0)
    usage: Json = step.attrs.get("usage")
    if usage is None and step.input_tokens is not None and step.output_tokens is not None:
        usage = {"input_tokens": step.input_tokens, "output_tokens": step.output_tokens}
    provider = step.attrs.get("provider")
    host = provider if isinstance(provider, str) else None
    model = step.attrs.get("model")
    if isinstance(model, str):
        cost = table.cost(model, usage, provider=host, at=step.started_at)
        if cost is not None or model == step.model:
            return cost
    return table.cost(step.model, usage, provider=host, at=step.started_at)


def _never_billed(step: Step) -> bool:
    """A call that the provider refused, and sent no usage for."""
    return step.status == "error" and step.cost is None and step.attrs.get("status_code") is not None
