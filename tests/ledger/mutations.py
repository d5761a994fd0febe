"""Forgeries of a ledger: everything a person with an editor, or with our own code, may do to one.

Each is made in four depths: `in place` (only that is changed), `re-linked` (the chain is made anew behind it), `re-sealed`
(digests, receipts' digests and checkpoint, too: the folder is whole again in itself, under the old signature) and `re-signed` (and signed
with a key of the forger's own). Nobody can make the anchor anew, which lies elsewhere, nor sign with a key that he does not have.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from agentloupe.engine.ledger.making import LedgerFiles, checkpointed, sealed_lines
from agentloupe.engine.ledger.terms import signed_checkpoint
from agentloupe.words.canonical import canonical, digest_bytes
from agentloupe.words.event import Head
from agentloupe.words.ledger import KINDS, line_text
from tests.ledger.support import FORGER, OWNER

COLUMNS: dict[str, tuple[str, bool]] = {
    "in place": ("in place", False),
    "re-linked": ("re-linked", False),
    "re-sealed": ("re-sealed", False),
    "re-sealed, the key is known": ("re-sealed", True),
    "re-signed, the key is known": ("re-signed", True),
}
"""Of the table: how deep it is mended, and whether the reader knows the public key; where not, the anchor."""
Line = dict[str, Any]


@dataclass
class Deck:
    """A ledger that can be edited."""

    lines: list[Line]
    receipts: dict[str, bytes]
    budget: Any
    contract: Any
    checkpoint: Any
    bodies: Any
    cut: tuple[str, ...] = ()
    """Files whose last bytes are gone, whatever else was mended."""

    @classmethod
    def of(cls, files: LedgerFiles) -> Deck:
        lines = [json.loads(line) for line in files.events.splitlines()]
        budget, contract, checkpoint = map(json.loads, (files.budget, files.contract, files.checkpoint))
        bodies = None if files.bodies is None else list(files.bodies)
        return cls(lines, dict(files.receipts), budget, contract, checkpoint, bodies)

    def files(self, depth: str, head: Head) -> LedgerFiles:
        """The edited ledger, mended as deep as that."""
        made = self._mended(depth, head)
        return replace(made, **{name: getattr(made, name)[:-9] for name in self.cut})

    def _mended(self, depth: str, head: Head) -> LedgerFiles:
        budget, contract = canonical(self.budget) + b"\n", canonical(self.contract) + b"\n"
        bodies = None if self.bodies is None else tuple(self.bodies)
        lines = copy.deepcopy(self.lines)
        if depth in ("re-sealed", "re-signed"):
            for line in lines:
                _sign(line, budget, contract, self.receipts)
        if depth != "in place":
            lines = sealed_lines({k: v for k, v in line.items() if k not in ("prev_hash", "hash")} for line in lines)
        events = b"".join(line_text(line) + b"\n" for line in lines)
        if depth in ("re-sealed", "re-signed") and lines and "run_id" in lines[-1]:
            made = checkpointed(lines, self.receipts, budget, contract, bodies)
            return replace(made, head=head, checkpoint=self._signed(made.checkpoint, depth))
        return LedgerFiles(head, events, self.receipts, budget, contract, canonical(self.checkpoint) + b"\n", bodies)

    def _signed(self, checkpoint: bytes, depth: str) -> bytes:
        if depth == "re-signed":
            return signed_checkpoint(checkpoint, FORGER)
        kept = {name: self.checkpoint[name] for name in ("key_id", "signature") if name in self.checkpoint}
        return canonical({**json.loads(checkpoint), **kept}) + b"\n"


def _sign(line: Line, budget: bytes, contract: bytes, receipts: dict[str, bytes]) -> None:
    payload = line["payload"]
    if "budget_sha256" in payload:
        payload |= {"budget_sha256": digest_bytes(budget), "contract_sha256": digest_bytes(contract)}
    name = f"{payload.get('call_id')}.json"
    if "receipt_sha256" in payload and name in receipts:
        payload["receipt_sha256"] = digest_bytes(receipts[name])


@dataclass(frozen=True)
class Mutation:
    """A forgery: what was touched, what was done to it, and the edit."""

    what: str
    done: str
    where: str
    edit: Callable[[Deck], object]


def mutations(files: LedgerFiles) -> Iterator[Mutation]:
    """All forgeries of a ledger; of lines of one kind the first and the last are taken."""
    deck = Deck.of(files)
    for n in _chosen(deck.lines):
        yield from _of_line(deck.lines[n], n, len(deck.lines))
    for name, data in deck.receipts.items():
        yield from _of_receipt(name, json.loads(data))
    for one, other in pairwise(deck.receipts):
        yield Mutation("receipt", "swapped with another", one, lambda d, a=one, b=other: _swapped(d.receipts, a, b))
    yield from _of_terms(deck)
    yield from _of_bodies(deck)


def _swapped(receipts: dict[str, bytes], one: str, other: str) -> None:
    receipts[one], receipts[other] = receipts[other], receipts[one]


def _chosen(lines: list[Line]) -> list[int]:
    places: dict[str, list[int]] = {}
    for n, line in enumerate(lines):
        places.setdefault(line["kind"], []).append(n)
    return sorted({n for found in places.values() for n in (found[0], found[-1])})


def _other(value: Any) -> Any:
    """A value like it, but another one."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value[:-1]}{'0' if value[-1:] != '0' else '1'}"
    return [*value, "more"] if isinstance(value, list) else {**value, "more": "1"}


def _of_line(line: Line, n: int, count: int) -> Iterator[Mutation]:
    where = f"{n + 1} {line['kind']}"

    def one(what: str, done: str, edit: Callable[[list[Line]], object]) -> Mutation:
        return Mutation(what, done, where, lambda deck: edit(deck.lines))

    yield one("event", "dropped", lambda lines: lines.pop(n))
    yield one("event", "dropped, the rest numbered anew", lambda lines: (lines.pop(n), _numbered(lines)))
    yield one("event", "duplicated", lambda lines: lines.insert(n, copy.deepcopy(lines[n])))
    yield one(
        "event",
        "duplicated, the rest numbered anew",
        lambda lines: (lines.insert(n, copy.deepcopy(lines[n])), _numbered(lines)),
    )
    if n + 1 < count:
        yield one("event", "swapped with the next", lambda lines: lines.insert(n, lines.pop(n + 1)))
        yield one(
            "event",
            "swapped with the next, numbered anew",
            lambda lines: (lines.insert(n, lines.pop(n + 1)), _numbered(lines)),
        )
        yield one("event", "tail cut behind it", lambda lines: lines.__delitem__(slice(n + 1, None)))
    yield one("event", "another kind", lambda lines: lines[n].update(kind=_other_kind(line["kind"])))
    yield one("event", "an unknown kind", lambda lines: lines[n].update(kind="tool_teleported"))
    yield one("event", "a newer version", lambda lines: lines[n].update(schema_version=9))
    yield one("event", "its version taken away", lambda lines: lines[n].pop("schema_version"))
    for name in ("seq", "run_id", "recorded_at", "prev_hash", "hash"):
        yield one("event", f"{name} changed", lambda lines, name=name: lines[n].update({name: _other(line[name])}))
        yield one("event", f"{name} taken away", lambda lines, name=name: lines[n].pop(name, None))
    yield one("event", "a field added", lambda lines: lines[n].update(note="x"))
    yield one("event", "a cause made up", lambda lines: lines[n].update(parent_seq=line.get("parent_seq", 0) + 1))
    for name, value in line["payload"].items():
        yield one(
            "payload",
            "a member changed",
            lambda lines, name=name, value=value: lines[n]["payload"].update({name: _other(value)}),
        )
        yield one("payload", "a member taken away", lambda lines, name=name: lines[n]["payload"].pop(name))
    yield one("payload", "a member added", lambda lines: lines[n]["payload"].update(note="x"))


def _numbered(lines: list[Line]) -> None:
    for n, line in enumerate(lines, 1):
        line["seq"] = n


def _other_kind(kind: str) -> str:
    family = [one for one in KINDS if one.split("_")[0] == kind.split("_", maxsplit=1)[0] and one != kind]
    return family[0] if family else "clock_read"


def _of_receipt(name: str, receipt: Any) -> Iterator[Mutation]:
    def one(done: str, edit: Callable[[dict[str, bytes]], object]) -> Mutation:
        return Mutation("receipt", done, name, lambda deck: edit(deck.receipts))

    def put(changed: Any) -> Callable[[dict[str, bytes]], object]:
        return lambda receipts: receipts.update({name: canonical(changed) + b"\n"})

    yield one("dropped", lambda receipts: receipts.pop(name))
    yield one("renamed", lambda receipts: receipts.update({"other.json": receipts.pop(name)}))
    yield one("duplicated", lambda receipts: receipts.update({"other.json": receipts[name]}))
    yield one("emptied", put({}))
    yield one("truncated", lambda receipts: receipts.update({name: receipts[name][:-9]}))
    for member, value in receipt.items():
        yield one("a member changed", put({**receipt, member: _other(value)}))
        yield one("a member taken away", put({k: v for k, v in receipt.items() if k != member}))
    yield one("a member added", put({**receipt, "note": "x"}))


def _of_terms(deck: Deck) -> Iterator[Mutation]:
    yield Mutation("event", "the log truncated in a line", "", lambda d: setattr(d, "cut", ("events",)))
    yield Mutation("budget", "swapped with the contract", "", _exchanged)
    for what in ("budget", "contract", "checkpoint"):
        said = getattr(deck, what)
        yield Mutation(what, "truncated", "", lambda d, w=what: setattr(d, "cut", (w,)))
        for member, value in said.items():
            done = "schema_version changed" if member == "schema_version" else "a member changed"
            yield Mutation(
                what, done, member, lambda d, w=what, m=member, v=value: getattr(d, w).update({m: _other(v)})
            )
            yield Mutation(what, "a member taken away", member, lambda d, w=what, m=member: getattr(d, w).pop(m))
        yield Mutation(what, "a member added", "", lambda d, w=what: getattr(d, w).update(note="x"))
    if "signature" in deck.checkpoint:
        yield from _of_signature()
    for name in ("max_attempts", "max_model_calls", "max_tool_calls", "max_tokens"):
        yield Mutation("budget", "a limit lowered to 0", name, lambda d, n=name: d.budget.update({n: 0}))
        yield Mutation("budget", "a limit lifted", name, lambda d, n=name: d.budget.update({n: 10**6}))
    yield Mutation("tool list", "emptied", "", lambda d: d.contract.update(allowed_tools=[], asked_tools=[]))
    yield Mutation("tool list", "a tool allowed", "", lambda d: d.contract["allowed_tools"].append("rm"))
    yield Mutation("goal", "another one", "", lambda d: d.contract.update(goal="something else"))
    for n in range(len(deck.contract["checks"])):
        yield Mutation("check definition", "dropped", str(n), lambda d, n=n: d.contract["checks"].pop(n))
        yield Mutation(
            "check definition",
            "required the other way",
            str(n),
            lambda d, n=n: d.contract["checks"][n].update(required=not d.contract["checks"][n]["required"]),
        )
        yield Mutation(
            "check definition", "another command", str(n), lambda d, n=n: d.contract["checks"][n].update(how="true")
        )


def _exchanged(deck: Deck) -> None:
    deck.budget, deck.contract = deck.contract, deck.budget


def _of_signature() -> Iterator[Mutation]:
    def resigned(deck: Deck, **other: str) -> None:
        plain = {k: v for k, v in deck.checkpoint.items() if k not in ("key_id", "signature")}
        deck.checkpoint = {**json.loads(signed_checkpoint(canonical(plain), FORGER)), **other}

    def stripped(deck: Deck) -> None:
        del deck.checkpoint["key_id"], deck.checkpoint["signature"]

    yield Mutation("signature", "stripped", "", stripped)
    yield Mutation("signature", "by another key", "", resigned)
    yield Mutation(
        "signature", "by another key, under the id of the right one", "", lambda d: resigned(d, key_id=OWNER.key_id)
    )
    yield Mutation("signature", "no hex digits", "", lambda d: d.checkpoint.update(signature="x" * 128))


def _of_bodies(deck: Deck) -> Iterator[Mutation]:
    for n in range(min(len(deck.bodies or ()), 4)):
        yield Mutation("value", "changed", str(n), lambda d, n=n: d.bodies.__setitem__(n, _with_value(d.bodies[n])))
        yield Mutation("value", "dropped", str(n), lambda d, n=n: d.bodies.pop(n))
        yield Mutation("value", "duplicated", str(n), lambda d, n=n: d.bodies.append(d.bodies[n]))
    if deck.bodies:
        yield Mutation(
            "value", "replaced, with its own digest", "", lambda d: d.bodies.__setitem__(0, _own(b'"forged"'))
        )
        yield Mutation("value", "all taken away", "", lambda d: setattr(d, "bodies", None))


def _with_value(line: bytes) -> bytes:
    return line[: line.index(b'"value":') + 8] + b'"forged"}\n'


def _own(data: bytes) -> bytes:
    return b'{"body":"%s","value":%s}\n' % (digest_bytes(data).encode(), data)
