"""Ledgers in and out: replay a folder, salvage a damaged one, hand a run over as files and take it back.

report = replay_folder(Path("incident"))          # the strict reading, and the derived state
export_ledger(store, "last", Path("incident"))    # a run as a folder
import_ledger(store, Path("incident"))            # and back, equal
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from agentloupe.engine.ledger.checks import Found, named_bodies
from agentloupe.engine.ledger.making import LedgerFiles, files_of, recording_of
from agentloupe.engine.ledger.migrating import Migration, migrate
from agentloupe.engine.ledger.report import Comparison, LedgerReport, compare, judge, read_report, replay
from agentloupe.engine.ledger.salvage import Salvage, next_line, salvage
from agentloupe.engine.ledger.terms import receipts_digest
from agentloupe.exporters.ledger_folder import append_line, write_file, write_folder
from agentloupe.importers.files import content_of
from agentloupe.importers.ledger_folder import events_file, open_ledger, receipt_files
from agentloupe.ports import ambient
from agentloupe.ports.ledger import LedgerFolder
from agentloupe.ports.protocols import ImportedRun, Store
from agentloupe.vault.keys import PublicKeys, SigningKey
from agentloupe.verbs.exchange import RunReport, take_sealed
from agentloupe.verbs.keeping import rules_of
from agentloupe.verbs.sessions import settings_here
from agentloupe.words.canonical import Json, digest_bytes, loads
from agentloupe.words.errors import Corrupt, Refused, UsageError
from agentloupe.words.event import Head
from agentloupe.words.ledger import (
    BODIES,
    BUDGET,
    CHECKPOINT,
    CONTRACT,
    EVENTS,
    KINDS,
    LEDGER_VERSION,
    MIGRATION,
    REPORT,
)

__all__ = [
    "Exported",
    "append_event",
    "compare_reports",
    "export_ledger",
    "import_ledger",
    "migrate_folder",
    "replay_folder",
    "salvage_folder",
]


def replay_folder(
    folder: Path,
    *,
    budget: Path | None = None,
    rules: int = LEDGER_VERSION,
    anchor: Head | None = None,
    public_key: Path | None = None,
    output: Path | None = None,
) -> LedgerReport:
    """Replays a ledger and writes its report; nothing else is touched, nothing is executed.

    Args:
        folder: the ledger.
        budget: its budget, when it lies elsewhere.
        rules: whose rules hold; 0 are those of plain ledgers.
        anchor: number and hash of the last event, as known from elsewhere; not with rules 0, which know no hashes.
        public_key: file of the key by which the checkpoint has to be signed; `None`: it need not be.
        output: where the report goes; `replay_report.json` in the folder when nothing is said.

    Raises:
        Corrupt, VersionUnknown: the first fault; no report is written.
        NotFound, UsageError, LoupeError: the folder cannot be read, or the report not written.
    """
    if not rules and anchor is not None:
        hint = "leave the anchor out, or the rules, where the ledger is sealed"
        raise UsageError("no anchor can be held against a plain ledger: its events have no hashes", hint=hint)
    report = replay(open_ledger(folder, budget=budget), rules=rules, anchor=anchor, trust=_trust(public_key))
    write_file(output or folder / REPORT, report.document())
    return report


def _trust(public_key: Path | None) -> PublicKeys | None:
    return None if public_key is None else PublicKeys.read(public_key)


def salvage_folder(folder: Path, output: Path | None = None) -> Salvage:
    """Reads what can be read of a damaged ledger's log, and writes it to `output`, marked partial, if that is named.

    Raises:
        NotFound, UsageError, LoupeError: there is no such log, or the output cannot be written.
        Refused: the output lies in the folder: evidence is not added to (reason `inside`); or it is there already,
            perhaps as the only copy of an earlier salvage (reason `exists`).
    """
    if output is not None and folder.resolve() in output.resolve().parents:
        raise Refused(f"{output} lies in the ledger", hint="write the salvage somewhere else", reason="inside")
    if output is not None and output.exists():
        raise Refused(f"{output} is there already", hint="write the salvage under another name", reason="exists")
    found = salvage(events_file(folder))
    if output is not None:
        write_file(output, found.document())
    return found


def append_event(folder: Path, kind: str, payload: Mapping[str, Json]) -> Mapping[str, Json]:
    """Appends an event to a log that no process owns, behind whatever a crash left there; returns its line.

    The checkpoint of the folder is not made anew: a ledger that was damaged is never whole again.

    Raises:
        UsageError: the kind is none. Corrupt: the log holds nothing that one could go on from.
        LoupeError: it cannot be written.
    """
    if kind not in KINDS:
        raise UsageError(f"{kind[:60]} is no kind of the ledger")

    def made(data: bytes) -> bytes:
        try:
            return next_line(data, kind, payload, ambient.now())
        except ValueError as wrong:
            raise Corrupt(f"{folder}: nothing can be appended: {wrong}", reason="append") from wrong

    events_file(folder)  # refuses links and what is too large
    return cast("Mapping[str, Json]", loads(append_line(folder / EVENTS, made)))


def migrate_folder(folder: Path, new: Path, *, budget: Path | None = None) -> Migration:
    """Makes a sealed ledger of a plain one, in a folder of its own, with a report of both readings. The old one stays as it is.

    Raises:
        Refused: it is sealed already, or something is at the new place. Corrupt: see `migrate`.
        NotFound, UsageError, LoupeError: it cannot be read, or the new one not written.
    """
    made = migrate(open_ledger(folder, budget=budget))
    write_files(new, made.files, {MIGRATION: (made.document(),)})
    return made


def compare_reports(one: Path, other: Path) -> Comparison:
    """Compares two reports; a folder stands for the report in it.

    Raises like `read_report`; `NotFound`; and `Corrupt` where a folder holds other files than its report is of (reason `stale_report`).
    """
    return compare(*(_report_in(path) if path.is_dir() else _report(path) for path in (one, other)))


def _report(file: Path) -> LedgerReport:
    return read_report(content_of(file), str(file))


def _report_in(folder: Path) -> LedgerReport:
    """The report in a folder, which speaks of the files that were there when it was made, and of no others."""
    report = _report(folder / REPORT)
    there = {"events": digest_bytes(events_file(folder)), "receipts": receipts_digest(receipt_files(folder))}
    for name, digest in there.items():
        if report.fields[f"{name}_sha256"] != digest:
            raise Corrupt(
                f"{folder / REPORT} is of other {name} than the folder holds now",
                hint=f"`agentloupe ledger replay {folder}` judges what is there",
                reason="stale_report",
            )
    return report


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Attributes:
        run_id, folder: which run, where to.
        events, receipts, bodies: how many; `bodies` is `None` where no values were written.
        bytes: of all files.
        anchor: number and hash of the last event, to be kept elsewhere.
        key_id: of the key that it is signed with; `None`: it is not.
    """

    run_id: str
    folder: Path
    events: int
    receipts: int
    bodies: int | None
    bytes: int
    anchor: str
    key_id: str | None = None


def export_ledger(store: Store, run_id: str, folder: Path, *, bodies: bool = True, key: Path | None = None) -> Exported:
    """Writes a run as a ledger, signed where a private key is given.

    `bodies=False` leaves the values out: what remains is the flow, with its digests.

    Raises:
        RunNotFound: there is no such run. Damaged: it is not whole.
        Refused: something is at the folder's place already. LoupeError: it cannot be written.
    """
    signer = None if key is None else SigningKey.read(key)
    recording = store.recording(run_id)
    files = files_of(recording, bodies=bodies, signer=signer)
    size = write_files(folder, files)
    held = None if files.bodies is None else len(files.bodies)
    anchor = f"{files.head.sequence}:{files.head.hash}"
    key_id = None if signer is None else signer.key_id
    return Exported(run_id, folder, files.head.sequence, len(files.receipts), held, size, anchor, key_id)


def write_files(folder: Path, files: LedgerFiles, more: Mapping[str, Iterable[bytes]] | None = None) -> int:
    """Writes a folder, with `more` files beside those of the ledger; returns its bytes. Raises like `write_folder`."""
    parts = {EVENTS: (files.events,), BUDGET: (files.budget,), CONTRACT: (files.contract,)}
    values = {} if files.bodies is None else {BODIES: files.bodies}
    return write_folder(folder, {**parts, **values, CHECKPOINT: (files.checkpoint,), **(more or {})}, files.receipts)


def import_ledger(
    store: Store,
    folder: Path,
    *,
    budget: Path | None = None,
    anchor: Head | None = None,
    public_key: Path | None = None,
) -> RunReport:
    """Takes a sealed ledger over as a run: the events of a run that was exported come back as they were.

    Raises:
        Corrupt, VersionUnknown: see `replay_folder`. StoreError: another run has its id (reason `exists`).
    """
    found = judge(open_ledger(folder, budget=budget), anchor=anchor, trust=_trust(public_key))
    recording = recording_of(found, dict(_values(found.folder)))
    assert found.reducer is not None
    run = ImportedRun(
        run_id=recording.run_id,
        sealed=recording,
        model_calls=found.reducer.model_calls,
        tool_calls=found.reducer.tool_calls,
        warnings=_not_there(found),
    )
    return take_sealed(store, run, rules_of(settings_here()))


def _not_there(found: Found) -> tuple[str, ...]:
    """What the run will lack, where its events name values that the folder does not hold."""
    if found.folder.has_bodies or not any(map(named_bodies, found.lines)):
        return ()
    return ("the folder holds no values: the run cannot be replayed, and `verify` says of each that it is not there",)


def _values(folder: LedgerFolder) -> Iterator[tuple[str, bytes]]:
    """Digests and bytes of the values; their form was proven before."""
    for line in folder.bodies():
        digest, _, data = line.removeprefix(b'{"body":"').partition(b'","value":')
        yield digest.decode("ascii"), data[:-1]
