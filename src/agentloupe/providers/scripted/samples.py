"""Rules that play the two sample agents: weather and support.

`sample_rule` is a pure function of what is asked. Real models answer an unchanged request differently the second time;
this one does so by rule and not by chance. A conversation that this model itself began, and that goes on for the first
time, takes the short road: one calculation. A conversation that comes in from elsewhere, or that goes on from an answer
that was continued before - which is what a fork does - takes the long road: it asks for the Fahrenheit figure too.

For the weather question about two cities that gives, in any order of experiments, and also on a model that never saw
the recording:

    recorded                                  llm tool tool llm tool llm                             6 steps
    fork from step 3, unchanged               ... llm, two calculations, llm                         7 steps
    fork from step 0, "answer in one sentence"  llm tool tool llm, two, llm, one, llm                9 steps

and with a calculator that never saw the Fahrenheit expression (a cassette) 1 hit and 1 miss, 3 hits and 2 misses; with
a live calculator no miss.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from agentloupe.providers.scripted.answers import Answer, Ask, Done, ask, done_calls, say

__all__ = ["sample_rule"]

_BRIEF = "one sentence"
_NOT_CITIES = frozenset(
    {"How", "What", "Which", "Is", "Are", "And", "The", "In", "Celsius", "Fahrenheit", "Compare", "Tell"}
)
_PLACE = re.compile(r"\b[A-Z][a-z]+(?: [A-Z][a-z]+)*\b")
_ORDER = re.compile(r"\b[A-Z]{1,4}-\d{1,12}\b")
_AT_MOST = re.compile(r"at most (\d{1,9}(?:\.\d{1,4})?)")


def sample_rule(asked: Ask) -> Answer:
    """Plays the agent whose tools are offered; without known tools it says that it cannot help."""
    done = done_calls(asked.messages)
    if "get_weather" in asked.tools:
        return _weather(asked, done)
    if "lookup_order" in asked.tools:
        return _support(asked, done)
    return say("I have no tool for that question.")


# --- weather ----------------------------------------------------------------------------------------------------------


def _weather(asked: Ask, done: Sequence[Done]) -> Answer:
    cities = _cities(asked.question)
    looked_up = {str(call.arguments.get("city")) for call in done if call.name == "get_weather"}
    missing = [city for city in cities if city not in looked_up]
    if missing:
        return ask(*(("get_weather", {"city": city}) for city in missing))
    known = _temperatures(done)
    if len(known) < 2:
        return say(_report(done) if done else "Please name a city.")
    return _difference(asked, done, known[:2])


def _cities(question: str) -> list[str]:
    """The places a question names, in order, each once, at most eight."""
    found = [word for word in _PLACE.findall(question) if word.split()[0] not in _NOT_CITIES]
    return list(dict.fromkeys(found))[:8]


def _temperatures(done: Sequence[Done]) -> list[tuple[str, Decimal]]:
    """City and temperature of each look-up that worked, the last one of a city counting."""
    found: dict[str, Decimal] = {}
    for call in done:
        degrees = _number((call.result or {}).get("temperature"))
        if call.name == "get_weather" and degrees is not None:
            found[str(call.arguments.get("city"))] = degrees
    return list(found.items())


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _report(done: Sequence[Done]) -> str:
    """What is known of single cities."""
    said: list[str] = []
    for call in done:
        city = call.arguments.get("city")
        if call.result is None:
            said.append(f"I could not get the weather of {city}.")
        else:
            said.append(f"{city}: {call.result.get('temperature')} C, {call.result.get('condition', 'no report')}.")
    return " ".join(said)


def _difference(asked: Ask, done: Sequence[Done], pair: Sequence[tuple[str, Decimal]]) -> Answer:
    """Works out how far two cities are apart: asks for what was not asked yet, else answers."""
    (cool, low), (warm, high) = sorted(pair, key=lambda item: item[1])
    celsius, fahrenheit = f"{high} - {low}", f"({high} - {low}) * 9 / 5"
    tried = {str(call.arguments.get("expression")): call for call in done if call.name == "calculate"}
    brief = _BRIEF in asked.instructions.lower()
    if "calculate" in asked.tools and not tried:
        wanted = [celsius] if asked.continues and not brief else [celsius, fahrenheit]
        return ask(*(("calculate", {"expression": text}) for text in wanted))
    gap = _result(tried.get(celsius))
    missed = fahrenheit in tried and tried[fahrenheit].result is None
    again = f"{_plain(high - low)} * 9 / 5"
    if "calculate" in asked.tools and brief and missed and again not in tried:
        return ask(("calculate", {"expression": again}))
    computed = _result(tried.get(fahrenheit)) or _result(tried.get(again))
    return say(_verdict(cool, warm, gap or high - low, computed, brief=brief, missed=missed))


def _result(call: Done | None) -> Decimal | None:
    return _number((call.result or {}).get("result")) if call else None


def _verdict(cool: str, warm: str, gap: Decimal, computed: Decimal | None, *, brief: bool, missed: bool) -> str:
    """The final answer. Without a computed Fahrenheit figure it does the arithmetic itself, against its instructions."""
    own = _plain(gap * 9 / 5)
    figure = _plain(computed) if computed is not None else own
    if brief and missed and computed is None:
        return f"{warm} is {_plain(gap)} C warmer than {cool}, which I worked out in my head to be {own} F."
    if brief:
        return f"{warm} is {_plain(gap)} C ({figure} F) warmer than {cool}."
    if missed and computed is None:
        return (
            f"{warm} is {_plain(gap)} C warmer than {cool} right now. "
            f"The calculator had no answer for Fahrenheit; {_plain(gap)} x 9 / 5 is {own} F."
        )
    return f"{warm} is {_plain(gap)} C warmer than {cool} right now. In Fahrenheit the difference is {figure} F."


def _plain(number: Decimal) -> str:
    """Without trailing zeros and without an exponent."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# --- support ----------------------------------------------------------------------------------------------------------


def _support(asked: Ask, done: Sequence[Done]) -> Answer:
    named = _ORDER.search(asked.question)
    if named is None:
        return say("Which order is it? Please give its number.")
    order_id = named.group()
    looked_up = next((call for call in done if call.name == "lookup_order"), None)
    if looked_up is None:
        return ask(("lookup_order", {"order_id": order_id}))
    if looked_up.result is None:
        return say(f"I could not find order {order_id}.")
    refunded = next((call for call in done if call.name == "refund_order"), None)
    if refunded is None:
        return _refund(asked, order_id, looked_up.result)
    if refunded.result is None:
        return say(f"I could not refund order {order_id}; a colleague will look at it.")
    amount = refunded.result.get("amount", refunded.arguments.get("amount"))
    return say(f"Order {order_id} is refunded: {amount} EUR, receipt {refunded.result.get('refund_id')}.")


def _refund(asked: Ask, order_id: str, order: Mapping[str, Any]) -> Answer:
    """Refunds what the order cost, or less where the instructions say "at most N"."""
    total = _number(order.get("total"))
    if not order.get("refundable") or total is None or "refund_order" not in asked.tools:
        return say(f"Order {order_id} cannot be refunded.")
    limit = _AT_MOST.search(asked.instructions)
    amount = min(total, Decimal(limit.group(1))) if limit else total
    return ask(("refund_order", {"order_id": order_id, "amount": float(amount)}))
