"""What a recorder is about to store, without secrets: names, arguments, results and facts of calls, and how a run began."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agentloupe.engine.privacy import Rules, Scrubbed, by_name, by_position, nothing_new_in, scrub, scrub_text
from agentloupe.engine.streaming import clean_body
from agentloupe.ports.pack import Look
from agentloupe.ports.scribe import Started
from agentloupe.words.call import PLAIN_READS, Attrs, Call
from agentloupe.words.canonical import Json

__all__ = ["Cleaner"]

_NAMES = 1000
_ATTRS = 8
_NO_SECRETS = frozenset({"rules", "packages"})
"""Bodies of `run.started` that hold nothing of a user's."""


class Cleaner:
    """Takes secrets out of what is recorded of one run.

    Args:
        rules: of secret removal.
        withheld: called with what a rule failed on, and how much of it was withheld.
    """

    def __init__(self, rules: Rules, withheld: Callable[[str, str], None]) -> None:
        self.rules = rules
        self._withheld = withheld
        self._names: dict[str, str] = {}
        self._clean_before: tuple[Attrs, ...] = ()

    def value(self, value: Json, what: str) -> Scrubbed:
        """A value; `what` it is, for the note where a rule fails."""
        clean = scrub(value, self.rules)
        if clean.withheld:
            self._withheld(what, f"{len(clean.withheld)} values")
        return clean

    def facts(self, facts: Attrs) -> dict[str, Json]:
        """Facts of a call's end, or of a run; a new dictionary."""
        clean = scrub(dict(facts), self.rules).value if facts else None
        return clean if isinstance(clean, dict) else {}

    def attrs(self, attrs: Attrs) -> Attrs:
        """Facts known before a call; the very same when there are no secrets. Most calls say the same."""
        if attrs in self._clean_before:
            return attrs
        clean = self.facts(attrs)
        if clean != attrs:
            return clean
        if not any(isinstance(value, dict | list) for value in attrs.values()):  # those may be edited behind our back
            self._clean_before = (dict(attrs), *self._clean_before[: _ATTRS - 1])
        return attrs

    def named(self, call: Call) -> Call:
        """The call under a name without secrets (a path in a URL may hold one); names are few and looked at once."""
        clean = self._names.get(call.name)
        if clean is None:
            clean = scrub_text(call.name, self.rules)
            if len(self._names) < _NAMES:
                self._names[call.name] = clean
        return call if clean == call.name else replace(call, name=clean)

    def call(self, call: Call) -> Call:
        """The call with its input and its facts; the very same when there are no secrets."""
        clean = self.value(by_name(call.input, call.parameters), f"arguments of {call.name}")
        attrs = self.attrs(call.attrs)
        if not clean.removed and attrs is call.attrs:
            return call
        if clean.removed:
            attrs = {**attrs, "removed": list[Json](clean.removed)}
        return replace(call, input=by_position(clean.value, call.parameters), attrs=attrs)

    def request(self, call: Call, look: Look | None) -> Call:
        """A model call, of whose request only what is new is looked at where that is enough."""
        if look is not None and nothing_new_in(look, self.rules) and self.attrs(call.attrs) is call.attrs:
            return call
        return self.call(call)

    def output(self, call: Call, output: Json) -> Scrubbed:
        """The result of a call."""
        if call.kind == "env":  # the variable's name says what its value is
            named = self.value({call.name: output}, f"variable {call.name}")
            value = next(iter(named.value.values())) if isinstance(named.value, dict) else None
            return Scrubbed(value, ("$",) if named.removed else ())
        if call.kind in PLAIN_READS:
            return Scrubbed(output)
        body = clean_body(output, self.rules)
        clean = self.value(body, f"result of {call.name}")
        return clean if body is output else clean._replace(removed=("$.body", *clean.removed))

    def started(self, what: Started) -> Started:
        """What `run.started` says; the rules themselves are no secret and stay as they are."""
        bodies = {
            label: value if label in _NO_SECRETS else self.value(value, label).value
            for label, value in (what.bodies or {}).items()
        }
        arguments = self.value(by_name(what.arguments, what.parameters), "arguments").value
        return replace(
            what,
            agent=scrub_text(what.agent, self.rules),
            name=scrub_text(what.name, self.rules),
            arguments=by_position(arguments, what.parameters),
            tags=tuple(scrub_text(tag, self.rules) for tag in what.tags),
            facts=self.facts(what.facts),
            bodies=bodies,
        )
