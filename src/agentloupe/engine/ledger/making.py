"""From a recording to the files of a ledger, and back. Both ways through the one table of `words.ledger`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from agentloupe.engine.ledger.checks import Found
from agentloupe.engine.ledger.terms import (
    CHECKPOINT_FIELDS,
    receipts_digest,
    signed_checkpoint,
    terms_file,
    terms_of,
    told_terms,
)
from agentloupe.engine.verify import verify
from agentloupe.ports.recording import Recording
from agentloupe.ports.signing import Signer
from agentloupe.words.canonical import Json, canonical, digest_bytes, digest_parts, loads
from agentloupe.words.errors import Corrupt, Refused
from agentloupe.words.event import SCHEMA_VERSION, Event, Head, from_envelope
from agentloupe.words.keeping import keeps_digests
from agentloupe.words.ledger import (
    LARGEST_RECEIPT,
    LEDGER_VERSION,
    envelope_of,
    line_of,
    line_text,
    linked,
    receipt_name,
)
from agentloupe.words.seal import GENESIS, link

__all__ = ["LedgerFiles", "files_of", "recording_of", "sealed_lines"]

_AT_ONCE = 500
_EVERY_EVENT: Mapping[str, Json] = {"schema_version": SCHEMA_VERSION, "owner_epoch": 1}


@dataclass(frozen=True, slots=True)
class LedgerFiles:
    """The contents of a folder that is to be written.

    Attributes:
        head: number and hash of the last line: the anchor, to be kept elsewhere.
        bodies: lines with their line breaks, or `None` without values.
    """

    head: Head
    events: bytes
    receipts: Mapping[str, bytes]
    budget: bytes
    contract: bytes
    checkpoint: bytes
    bodies: tuple[bytes, ...] | None


def files_of(recording: Recording, *, bodies: bool = True, signer: Signer | None = None) -> LedgerFiles:
    """A run as the files of a ledger, its checkpoint signed where a signer is given.

    Who signs says that the run is whole: then its values are looked at also where they stay behind.

    Raises:
        Damaged: the recording is not whole: evidence is not handed on as better than it is.
        Refused: a receipt is larger than readers of ledgers take (reason `too_large`), or of its values only digests were
            kept, so that it has no receipts (`digest_only`).
    """
    if keeps_digests(recording.events):
        raise Refused(
            f"{recording.origin}: a ledger holds receipts, and of this run's values only digests were kept",
            hint="`agentloupe export` writes its events with their chain",
            reason="digest_only",
        )
    found = verify(recording, bodies=bodies or signer is not None)
    if not found.ok:
        raise Corrupt(f"{recording.origin}: {found.head}", reason=found.fault.reason if found.fault else "corrupt")
    terms = terms_of(recording)
    budget, contract = terms["budget"], terms["contract"]
    receipts = dict(_receipts(recording.events))
    added = _Added(budget, contract, receipts)
    lines = sealed_lines(line_of(event, added.of(event)) for event in recording.events)
    values = tuple(_bodies(recording)) if bodies else None
    files = checkpointed(lines, receipts, budget, contract, values)
    return files if signer is None else replace(files, checkpoint=signed_checkpoint(files.checkpoint, signer))


def checkpointed(
    lines: Sequence[Mapping[str, Json]],
    receipts: Mapping[str, bytes],
    budget: bytes,
    contract: bytes,
    bodies: tuple[bytes, ...] | None,
) -> LedgerFiles:
    """The files, with the checkpoint that holds the number, the head and the digests of all of them."""
    events = b"".join(line_text(line) + b"\n" for line in lines)
    last = lines[-1]
    said: tuple[Json, ...] = (
        LEDGER_VERSION,
        last["run_id"],
        len(lines),
        last["hash"],
        digest_bytes(events),
        receipts_digest(receipts),
        digest_bytes(budget),
        digest_bytes(contract),
        None if bodies is None else digest_parts(bodies),
    )
    checkpoint = terms_file(dict(zip(CHECKPOINT_FIELDS, said, strict=True)))
    return LedgerFiles(Head(len(lines), str(last["hash"])), events, receipts, budget, contract, checkpoint, bodies)


def sealed_lines(lines: Iterable[Mapping[str, Json]]) -> list[dict[str, Json]]:
    """Lines, linked from the first one on."""
    before, made = GENESIS, list[dict[str, Json]]()
    for line in lines:
        made.append(linked(line, before))
        before = str(made[-1]["hash"])
    return made


class _Added:
    """What the payloads of some events hold beyond the events."""

    def __init__(self, budget: bytes, contract: bytes, receipts: Mapping[str, bytes]) -> None:
        self.first: dict[str, Json] = {"budget_sha256": digest_bytes(budget), "contract_sha256": digest_bytes(contract)}
        self.receipts = receipts

    def of(self, event: Event) -> Mapping[str, Json] | None:
        if event.type == "run.started":
            return self.first
        if _went_well(event):
            return {"receipt_sha256": digest_bytes(self.receipts[receipt_name(event.call_id or "")])}
        return None


def _went_well(event: Event) -> bool:
    return event.type == "tool.finished" or (
        event.type == "tool.confirmed" and event.attrs.get("outcome") == "finished"
    )


def _receipts(events: Iterable[Event]) -> Iterator[tuple[str, bytes]]:
    """Receipts of the tool calls that finished, or were found to have."""
    said: dict[str, dict[str, Json]] = {}
    for event in events:
        if not event.type.startswith("tool."):
            continue
        call = said.setdefault(event.call_id or "", {})
        call["arguments_digest"] = event.input_digest or call.get("arguments_digest")
        call |= {name: event.attrs[name] for name in ("external_id", "idempotency_key") if name in event.attrs}
        if _went_well(event):
            receipt = {"run_id": event.run_id, "call_id": event.call_id, "tool": event.name}
            made = terms_file({**receipt, "result_digest": event.output_digest, **call})
            if len(made) > LARGEST_RECEIPT:
                raise Refused(
                    f"the receipt of call {event.call_id} (tool {event.name}) has {len(made)} bytes, "
                    f"a ledger's have at most {LARGEST_RECEIPT}",
                    hint="export the run as .loupe",
                    reason="too_large",
                )
            yield receipt_name(event.call_id or ""), made


def _bodies(recording: Recording) -> Iterator[bytes]:
    """Every body that the events name, and those that they need, once; some at a time."""
    named = (digest for event in recording.events for digest in sorted(event.digests()))
    for digest, data in recording.bodies(named):
        if data is not None:
            yield b'{"body":"%s","value":%s}\n' % (digest.encode(), data)


# --- back -------------------------------------------------------------------------------------------------------------


def recording_of(found: Found, own_bodies: Mapping[str, bytes]) -> Recording:
    """The recording that a ledger was made of; numbers and hashes are those of the store that it came from.

    Args:
        found: a sealed ledger that passed all checks.
        own_bodies: the values of the folder by digest.

    Raises:
        Corrupt: an event lacks what every event of a store has.
        VersionUnknown: an event has a field or schema that this reader does not know.
    """
    bodies = dict(own_bodies)
    envelopes = [envelope_of(line) for line in found.lines]
    events = _sealed(envelopes)
    if _keep_terms(found, events, envelopes[0], bodies):
        events = _sealed(envelopes)

    def get(digests: Sequence[str]) -> Mapping[str, bytes]:
        return {digest: bodies[digest] for digest in digests if digest in bodies}

    return Recording(events[0].run_id, events, get, found.folder.origin, Head(len(events), events[-1].hash))


def _sealed(envelopes: Iterable[dict[str, Json]]) -> tuple[Event, ...]:
    events: list[Event] = []
    before = GENESIS
    for envelope in envelopes:
        if "schema_version" not in envelope:  # no store wrote it
            envelope |= {**_EVERY_EVENT, "event_id": f"{envelope['run_id']}-{envelope['sequence']}", **envelope}
        sealed = link(before, envelope)
        events.append(from_envelope(envelope, before, sealed))
        before = sealed
    return tuple(events)


def _keep_terms(found: Found, events: Sequence[Event], first: dict[str, Json], bodies: dict[str, bytes]) -> bool:
    """Terms that the events do not tell become bodies of the run's first event; of a run that a store wrote there are none."""
    named = dict(cast("Mapping[str, Json]", first.get("bodies") or {}))
    brought = {"budget": found.folder.budget, "contract": found.folder.contract or b""}
    kept = {
        label: canonical(loads(brought[label])) for label, told in told_terms(events).items() if brought[label] != told
    }
    kept = {label: text for label, text in kept.items() if label not in named}
    bodies |= {digest_bytes(text): text for text in kept.values()}
    first["bodies"] = {**named, **{label: digest_bytes(text) for label, text in kept.items()}}
    if not first["bodies"]:
        del first["bodies"]
    return bool(kept)
