"""The scribe of a run of which only digests are kept, and what those digests are.

Its events have the same types and facts as those of any run. What would be the name of a body is a fact instead
(`digest_of_output`), since there is no body: an event's digests name bodies, and a store, an export or `verify` looks for those.
What a call was asked for is told by its matching key alone.

    sha256:<64 hex>                     SHA-256 of the value's canonical form
    hmac-sha256:<id of the key>:<64 hex>  the same, keyed: nobody without the key can try out what it stands for
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agentloupe.engine.news import without_ids
from agentloupe.ports.ambient import Place
from agentloupe.ports.pack import Body, Look
from agentloupe.ports.scribe import Entry, Scribe, Started
from agentloupe.words.call import Call, Outcome
from agentloupe.words.canonical import Json, canonical, digest_bytes, keyed_digest
from agentloupe.words.dialects import message_in
from agentloupe.words.event import Draft
from agentloupe.words.exchange import answer_in
from agentloupe.words.keeping import DIGEST_OF, DIGESTS, KEPT
from agentloupe.words.step import Step

__all__ = ["ANSWER", "DigestScribe", "Digests", "answer_of", "cannot_be_told", "digest_kept"]

ANSWER: Final = f"{DIGEST_OF}answer"
"""Of a model call: the digest of its message without the ids that every call gets anew, so that two runs can be compared."""
_KEPT_WHOLE: Final = frozenset({"rules", "packages"})
"""Bodies of `run.started` that hold nothing of the program's values: a reader needs the rules, and packages are public."""
_ID_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class Digests:
    """How digests of values that are not kept are made.

    Attributes:
        key: of the workspace; `None`: they are not keyed.
    """

    key: bytes | None = field(default=None, repr=False)

    @property
    def key_id(self) -> str | None:
        """What tells the key from others, and nothing about it."""
        return None if self.key is None else keyed_digest(self.key, b"id of this key")[:_ID_DIGITS]

    def of(self, value: Json) -> str:
        """The digest of a value, in the form above. Raises like `canonical`."""
        text = canonical(value)
        if self.key is None:
            return f"sha256:{digest_bytes(text)}"
        return f"hmac-sha256:{self.key_id}:{keyed_digest(self.key, text)}"

    def matching(self, input_key: str) -> str:
        """What is recorded as a matching key, 64 hex digits."""
        return input_key if self.key is None else keyed_digest(self.key, input_key.encode())


def answer_of(output: Json) -> Json:
    """What is compared of a model's answer: its message, without the ids that every call gets anew."""
    return without_ids(message_in(answer_in(output)))


class DigestScribe(Scribe):
    """A scribe that gives out no body of a value. `digests` is set before it is used."""

    digests: Digests = Digests()

    def started(self, what: Started, at: str) -> Entry:
        """See `Scribe`. The command line may hold a question, so it is told by its digest too."""
        bodies: list[Body] = []
        named: dict[str, str] = {}
        for label in _KEPT_WHOLE & (what.bodies or {}).keys():
            packed = self.packer.pack((what.bodies or {})[label])
            named[label] = packed.digest
            bodies += packed.bodies
        others = {label: value for label, value in (what.bodies or {}).items() if label not in _KEPT_WHOLE}
        facts = {name: value for name, value in what.facts.items() if name != "argv"}
        if "argv" in what.facts:
            facts[f"{DIGEST_OF}argv"] = self.digests.of(what.facts["argv"])
        entry = super().started(replace(what, bodies=others, facts=facts), at)
        return Entry((replace(entry.drafts[0], bodies=named),), tuple(bodies), entry.durability)

    def asked(self, call: Call, look: Look | None, where: Place, at: str) -> tuple[Entry, str]:
        """See `Scribe`."""
        entry, key = super().asked(call, look, where, at)
        return entry._replace(bodies=()), key

    def closed(
        self, call: Call, where: Place, key: str, outcome: Outcome, at: str, *, text: bytes | None = None
    ) -> Entry:
        """See `Scribe`."""
        if call.kind == "llm" and outcome.output is not None:
            told = {**outcome.attrs, ANSWER: self.digests.of(answer_of(outcome.output))}
            outcome = replace(outcome, attrs=told)
        return super().closed(call, where, key, outcome, at)

    def read(self, call: Call, where: Place, key: str, value: Json, at: str) -> Entry:
        """See `Scribe`."""
        return self.closed(call, where, key, Outcome(status="ok", output=value), at)

    def _pack(self, value: Json, bodies: list[Body], *, shared: bool = False, text: bytes | None = None) -> str:
        return self.digests.of(value)

    def _of(self, call: Call, where: Place, kind: str, at: str, **said: Any) -> Draft:
        told: dict[str, Any] = {**said, "input_key": self.digests.matching(said["input_key"]), "input_digest": None}
        return _withheld(super()._of(call, where, kind, at, **told))

    def _draft(self, kind: str, at: str, **said: Any) -> Draft:
        return _withheld(super()._draft(kind, at, **said))


def _withheld(draft: Draft) -> Draft:
    """The draft with what it would name as bodies among its facts, as the digests of what was not kept."""
    named = {"input": draft.input_digest, "output": draft.output_digest, **draft.bodies}
    told: dict[str, Json] = {f"{DIGEST_OF}{label}": digest for label, digest in named.items() if digest is not None}
    return replace(
        draft, input_digest=None, output_digest=None, bodies={}, attrs={**draft.attrs, KEPT: DIGESTS, **told}
    )


# --- compared ---------------------------------------------------------------------------------------------------------


def digest_kept(step: Step, value: Json = None) -> str | None:
    """The digest that stands for a step's output in a comparison: the one that was kept, or that of `value`; else `None`."""
    said = step.attrs.get(ANSWER if step.kind == "llm" else f"{DIGEST_OF}output")
    if isinstance(said, str):
        return said
    return Digests().of(value) if value is not None else None


def cannot_be_told(left: Step, right: Step) -> Iterator[str]:
    """A note where two outputs count as different since digests do not tell whether they are."""
    mine, theirs = digest_kept(left), digest_kept(right)
    keyed = [one is not None and one.startswith("hmac-") for one in (mine, theirs)]
    if any(keyed) and (mine or "").rpartition(":")[0] != (theirs or "").rpartition(":")[0]:
        yield "output: only a digest was kept, by a key that the other side does not have: whether it differs is not known"
    elif mine is not None or theirs is not None:
        yield "output: only a digest was kept"
