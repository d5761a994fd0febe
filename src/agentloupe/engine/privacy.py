"""Secret removal: credentials leave a value before it is digested, keyed or stored. Pure; never changes what it is given.

    found = scrub(value, rules)
    found.value      # the same object when nothing was removed
    found.removed    # paths of what was removed: $.headers.Authorization

A removed text becomes `[removed:<rule>]`, so in matching keys a secret counts as its rule's name only. Text inside text
(JSON in a string, also in a string of that string) is looked at too and keeps its spelling where nothing is removed. A
rule that fails withholds the text that it failed on; everything else is kept. Never touched: images and other `data:`
texts, thinking signatures, encrypted content, ids, names in a JSON schema, tokens of log probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from agentloupe.engine.credentials import mark
from agentloupe.engine.rulesets import BUILT_IN
from agentloupe.engine.scrubber import Found, Scrubber
from agentloupe.engine.streamscrubber import StreamScrubber
from agentloupe.ports.pack import Look
from agentloupe.words.call import Call
from agentloupe.words.canonical import digest
from agentloupe.words.jsontext import Json

__all__ = [
    "NO_RULES",
    "Rules",
    "Scrubbed",
    "StreamScrubber",
    "by_name",
    "by_position",
    "named",
    "nothing_new_in",
    "rules_from",
    "scrub",
    "scrub_text",
]

NOTHING: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rules:
    """A set of rules: the built-in ones and those of the workspace.

    Attributes:
        fields: further names of fields whose values are removed.
        keep: names of fields that the built-in names leave alone.
        patterns: further shapes in any text, as regular expressions by name.
        built_in: name of the built-in set; empty switches it off (`NO_RULES`).
    """

    fields: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    patterns: Mapping[str, str] = field(default_factory=dict[str, str])
    built_in: str = BUILT_IN

    def as_json(self) -> dict[str, Json]:
        """Its stored form, see `rules_from`."""
        return {
            "built_in": self.built_in,
            "fields": list(self.fields),
            "keep": list(self.keep),
            "patterns": dict(self.patterns),
        }

    @cached_property
    def digest(self) -> str:
        """What a run stores to say which rules held."""
        return digest(self.as_json())

    @cached_property
    def scrubber(self) -> Scrubber:
        """These rules at work; equal rules share one, and what it remembers."""
        return _scrubber(self.digest, _Held(self))


NO_RULES = Rules(built_in="")


def rules_from(stored: Json) -> Rules:
    """Rules from their stored form; what is missing or of a wrong kind counts as empty."""
    have = stored if isinstance(stored, dict) else {}

    def names(key: str) -> tuple[str, ...]:
        found = have.get(key)
        return tuple(str(name) for name in found) if isinstance(found, list) else ()

    patterns = have.get("patterns")
    return Rules(
        names("fields"),
        names("keep"),
        {name: str(text) for name, text in patterns.items()} if isinstance(patterns, dict) else {},
        str(have.get("built_in", BUILT_IN)),
    )


class Scrubbed(NamedTuple):
    """A value after secret removal.

    Attributes:
        value: the value; the very object that was given when nothing was removed.
        removed: paths of what was removed, in order; names that may be a user's text are shown as `*`.
        withheld: paths of texts on which a rule failed; their values are removed as well.
    """

    value: Json
    removed: tuple[str, ...] = NOTHING
    withheld: tuple[str, ...] = NOTHING


def scrub(value: Json, rules: Rules) -> Scrubbed:
    """Removes credentials from a JSON value. Never raises, never changes `value`."""
    if value is None or isinstance(value, (bool, int, float)):  # a union is made anew at every call
        return Scrubbed(value)
    found = Found()
    try:
        clean = rules.scrubber.scrub(value, found)
    except Exception:  # noqa: BLE001  # whatever failed: nothing unchecked may be stored
        return Scrubbed(mark("withheld"), NOTHING, ("$",))
    if clean is value:
        return Scrubbed(value)
    return Scrubbed(clean, tuple(f"${path}" for path in found.removed), tuple(f"${path}" for path in found.withheld))


def nothing_new_in(look: Look, rules: Rules) -> bool:
    """Whether nothing is removed from a request, of which only what is new is looked at.

    What it shares with earlier requests was stored, so it was clean. `False` says nothing: `scrub` knows. Never raises.
    """
    scrubber = rules.scrubber
    try:
        if not look.lists.keys().isdisjoint(scrubber.lists_by_name):
            return False
        if look.known is None and scrubber.scrub(look.rest, Found()) is not look.rest:
            return False
        for items, first in look.news():
            if not scrubber.goes_on_clean(items, first):
                return False
    except Exception:  # noqa: BLE001  # see scrub
        return False
    return True


def scrub_text(text: str, rules: Rules) -> str:
    """Removes credentials from one text (a message, a traceback, a log line)."""
    found = scrub(text, rules).value
    return found if isinstance(found, str) else ""


def by_name(arguments: Json, parameters: Sequence[str]) -> Json:
    """`{"args": [...], "kwargs": ...}` with its positional arguments under the names of their parameters.

    A parameter's name may say that its value is a secret, however it is given. `by_position` is the reverse.
    """
    args = arguments.get("args") if isinstance(arguments, dict) else None
    if not parameters or not isinstance(arguments, dict) or not isinstance(args, list):
        return arguments
    names = [*parameters[: len(args)], *(str(at) for at in range(len(parameters), len(args)))]
    return {**arguments, "args": dict(zip(names, args, strict=True))}


def by_position(arguments: Json, parameters: Sequence[str]) -> Json:
    """See `by_name`."""
    args = arguments.get("args") if parameters and isinstance(arguments, dict) else None
    return (
        {**arguments, "args": list(args.values())}
        if isinstance(arguments, dict) and isinstance(args, dict)
        else arguments
    )


def named(call: Call, scrub: Callable[[Json], Json]) -> Call:
    """The call under the name that it is recorded under: without secrets (a path in a URL may hold one)."""
    clean = scrub(call.name)
    return call if clean == call.name or not isinstance(clean, str) else replace(call, name=clean)


class _Held:
    """Carries rules past the cache, which goes by their digest."""

    __slots__ = ("rules",)

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=16)
def _scrubber(_: str, held: _Held) -> Scrubber:
    rules = held.rules
    return Scrubber(rules.fields, rules.keep, rules.patterns, rules.built_in)
