"""Runs in from files, and out to files.

    report = import_file(store, Path("trace.json"))     # which runs, what the source kept
    export_run(store, "last", Path("run.loupe"))         # .loupe: the recording itself; .jsonl: its view

A file is taken over run by run, each in one transaction. Importing the same file again changes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import BinaryIO, Literal, cast

from agentloupe.engine.costs import PriceTable, price_trace
from agentloupe.engine.privacy import NO_RULES, Rules
from agentloupe.engine.project import Projector, load_steps, project
from agentloupe.engine.washing import suspicious, wash
from agentloupe.exporters.jsonl import JsonLinesExporter
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.importers import detect
from agentloupe.ports import ambient, codecs
from agentloupe.ports.faultpoints import reach
from agentloupe.ports.protocols import Exporter, ImportedRun, Store
from agentloupe.ports.recording import Recording
from agentloupe.verbs.elsewhere import warning_of
from agentloupe.verbs.keeping import rules_of
from agentloupe.verbs.sessions import settings_here
from agentloupe.words.canonical import Json
from agentloupe.words.errors import (
    Corrupt,
    Damaged,
    LoupeError,
    Refused,
    StoreError,
    StoreFull,
    StoreReadOnly,
    UsageError,
)
from agentloupe.words.event import Event
from agentloupe.words.step import Trace

__all__ = ["ImportReport", "RunReport", "export_run", "import_file", "import_files", "load_trace", "take_sealed"]

_ENDINGS: Mapping[str, Literal["loupe", "jsonl"]] = {".loupe": "loupe", ".jsonl": "jsonl"}
_LARGEST_SUFFIX = 10_000


# --- in ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunReport:
    """What became of one run of a file.

    Attributes:
        run_id: the id that it has here.
        state: `imported`, or `already there` (then nothing was changed).
        found: what the file says of it.
        removed: how many credentials were taken out of it.
    """

    run_id: str
    state: Literal["imported", "already there"]
    found: ImportedRun
    removed: int = 0

    def as_json(self) -> dict[str, Json]:
        """The run as JSON, without any value of its events."""
        found = self.found
        return {
            "run_id": self.run_id,
            "state": self.state,
            "steps": found.steps,
            "model_calls": found.model_calls,
            "tool_calls": found.tool_calls,
            "partial_steps": found.partial_steps,
            "fidelity": found.fidelity,
            "removed": self.removed,
            "warnings": list(found.warnings),
        }


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What became of one file.

    Attributes:
        path: the file.
        format: the format that it was read as; `None` when it could not be read.
        runs: its runs, in order.
        quarantined: places that could not be read, one line each.
        error: why the file was not taken over, or `None`.
    """

    path: Path
    format: str | None
    runs: tuple[RunReport, ...] = ()
    quarantined: tuple[str, ...] = ()
    error: LoupeError | None = None

    @property
    def partial(self) -> bool:
        """Whether the runs are a part of what the file holds: some of it could not be read."""
        return bool(self.quarantined)

    def total(self, count: Literal["steps", "model_calls", "tool_calls", "partial_steps"]) -> int:
        """A count over all runs."""
        return sum(cast("int", getattr(run.found, count)) for run in self.runs)

    @property
    def fidelity(self) -> str | None:
        """What the source did not keep, over all runs, each sentence once."""
        parts = (part for run in self.runs if run.found.fidelity for part in run.found.fidelity.split("; "))
        return "; ".join(dict.fromkeys(parts)) or None

    def as_json(self) -> dict[str, Json]:
        """The report as JSON: format, counts, fidelity, whether it is a part, quarantined places, ids of the runs and each run."""
        record: dict[str, Json] = {"path": str(self.path), "format": self.format, "runs": len(self.runs)}
        for name in ("steps", "model_calls", "tool_calls", "partial_steps"):
            record[name] = self.total(name)
        record["partial"] = self.partial
        record["quarantined"] = len(self.quarantined)
        record["quarantined_places"] = list(self.quarantined)
        record["fidelity"] = self.fidelity
        record["run_ids"] = [run.run_id for run in self.runs]
        record["already_there"] = [run.run_id for run in self.runs if run.state == "already there"]
        record["details"] = [run.as_json() for run in self.runs]
        if self.error is not None:
            record["error"] = {"code": self.error.code, "reason": self.error.reason, "message": str(self.error)}
        return record


def import_file(
    store: Store, path: Path | str, *, format: str | None = None, keep_secrets: bool = False
) -> ImportReport:
    """Takes over all runs of a file; which format it has is seen from its content, unless `format` names it.

    A run keeps the id that its source gives it when that is free; else it gets `-2`, `-3` ... appended. What no command
    could name in a foreign id becomes `-`. A run that is there already stays as it is.

    Credentials are taken out, by the rules of the project, from the steps and from the source that is kept beside them, unless
    `keep_secrets`. A `.loupe` file is sealed: it is taken over as it is, and a warning counts what looks like a credential.

    Raises:
        NotFound, UsageError: there is no such file, or nobody reads it.
        Damaged, VersionUnknown: it cannot be read; nothing of it was taken over. So too (reason `run_id`) when a sealed run
            carries an id that no recorder gives.
        StoreError: it cannot be stored; also (reason `exists`) when another run has the id that a sealed one carries.
    """
    file = Path(path)
    importer = detect(file, format)
    found = importer.read(file)
    rules = NO_RULES if keep_secrets else rules_of(settings_here())
    renamed: dict[str, str] = {}
    reports: list[RunReport] = []
    for run in found.runs:
        reports.append(
            take_sealed(store, run, rules) if run.sealed is not None else _take_drafts(store, run, renamed, rules)
        )
        renamed[run.run_id] = reports[-1].run_id
    return ImportReport(file, found.format, tuple(reports), found.quarantined)


def import_files(store: Store, paths: Iterable[Path | str], *, keep_secrets: bool = False) -> list[ImportReport]:
    """Takes over several files, see `import_file`; one that fails says so in its report, and the others go on.

    Raises:
        StoreFull, StoreReadOnly: no file can be stored.
    """
    reports: list[ImportReport] = []
    for path in paths:
        try:
            reports.append(import_file(store, path, keep_secrets=keep_secrets))
        except (StoreFull, StoreReadOnly):
            raise
        except LoupeError as error:
            reports.append(ImportReport(Path(path), None, error=error))
    return reports


def take_sealed(store: Store, run: ImportedRun, rules: Rules) -> RunReport:
    """Takes a sealed run over as it is. Raises like `import_file`."""
    sealed = run.sealed
    assert sealed is not None
    if _safe_id(run.run_id) != run.run_id:
        raise Corrupt(f"the run's id {run.run_id[:80]!r} is none that a recorder gives", reason="run_id")
    there = store.run(run.run_id)
    if there is not None and _ends_alike(store.recording(run.run_id), sealed):
        return RunReport(run.run_id, "already there", run)
    store.insert(run.run_id, sealed.events, sealed.get, Projector, elsewhere=True)
    held = suspicious(sealed, rules)
    if held:
        said = f"{held} values look like credentials; the recording is sealed, so they were left in it"
        run = replace(run, warnings=(said, *run.warnings))
    row = store.run(run.run_id)
    if row is not None and row.elsewhere:
        run = replace(run, warnings=(warning_of(run.run_id), *run.warnings))
    return RunReport(run.run_id, "imported", run)


_NO_ID = re.compile(r"last(~.*)?|.*\.(loupe|jsonl)", re.DOTALL)
"""What means something else where a run is named."""
_LONGEST_ID = 200


def _safe_id(run_id: str) -> str:
    """The id, if commands can name it and terminals can show it; else one that is like it."""
    safe = "".join(c if c.isprintable() and c not in " /\\" else "-" for c in run_id[:_LONGEST_ID])
    safe = safe.lstrip("-") or "run"
    return f"run-{safe}".replace(".", "-") if _NO_ID.fullmatch(safe) else safe


def _ends_alike(one: Recording, other: Recording) -> bool:
    return len(one.events) == len(other.events) and one.events[-1].hash == other.events[-1].hash


def _take_drafts(store: Store, run: ImportedRun, renamed: Mapping[str, str], rules: Rules) -> RunReport:
    from agentloupe.store.owners import this_process

    source = run.drafts[0].attrs.get("source_digest")
    clean = wash(run, rules)
    run = clean.run
    first = run.drafts[0]
    parent = first.attrs.get("parent_run_id")
    if isinstance(parent, str) and renamed.get(parent, parent) != parent:
        first = replace(first, attrs={**first.attrs, "parent_run_id": renamed[parent]})
    wanted = _safe_id(run.run_id)
    for n in range(1, _LARGEST_SUFFIX):
        run_id = wanted if n == 1 else f"{wanted}-{n}"
        there = store.run(run_id)
        if there is None:
            try:
                writer = store.start(run_id, Projector, owner=this_process())
            except StoreError as wrong:
                if wrong.reason != "exists":
                    raise
                continue  # somebody was quicker
            try:
                writer.append((first, *run.drafts[1:]), run.bodies, "full")
            finally:
                writer.close()
            return RunReport(run_id, "imported", run, clean.removed)
        if _source_of(store, run_id) == source:
            return RunReport(run_id, "already there", run)
    raise StoreError(f"no free id was found for the run {run.run_id}", reason="exists")


def _source_of(store: Store, run_id: str) -> Json:
    """Digest of what a run was imported from, or `None` for a run that was not, or has no event yet."""
    events = store.recording(run_id).events
    return events[0].attrs.get("source_digest") if events else None


# --- out --------------------------------------------------------------------------------------------------------------


def load_trace(recording: Recording, table: PriceTable | None = None) -> Trace:
    """The view of a recording with bodies, and with costs where a price table is given. Raises `Corrupt`."""
    trace = project(recording.events, recording.run_id)
    loaded = Trace(trace.run, load_steps(recording, trace.steps))
    return loaded if table is None else price_trace(loaded, table)


def export_run(
    store: Store, run_id: str, path: Path | str, *, raw: bool = False, table: PriceTable | None = None
) -> int:
    """Writes a run into a file and returns how many bytes it has. An existing file is replaced, whole or not at all.

    Args:
        store: where the run is.
        run_id: its id.
        path: `.loupe` writes the recording itself, `.jsonl` its view.
        raw: gives the source of an imported run back, byte for byte but for the credentials that the import took out; the
            path may have any ending.
        table: prices for the costs in a `.jsonl` file.

    Raises:
        RunNotFound: there is no such run. UsageError: another ending.
        Refused: `raw`, and the run has no foreign source (reason `no_source`).
        Damaged: a body is missing or damaged. LoupeError: the file cannot be written (reason `unwritable`).
    """
    file = Path(path)
    recording = store.recording(run_id)
    if raw:
        return _replace(file, _Bytes(_source(recording)), recording)
    form = _ENDINGS.get(file.suffix)
    if form is None:
        raise UsageError(
            f"{file.name} ends neither in .loupe nor in .jsonl", hint="the ending says which form to write"
        )
    if form == "loupe":
        return _replace(file, LoupeFileExporter(written_by=_program()), recording)
    return _replace(file, JsonLinesExporter(lambda one: load_trace(one, table)), recording)


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Writes what it holds."""

    content: bytes
    format: str = "raw"

    def write(self, recordings: object, out: BinaryIO) -> None:
        out.write(self.content)


def _source(recording: Recording) -> bytes:
    first: Event | None = recording.events[0] if recording.events else None
    digest = first.bodies.get("raw") if first is not None else None
    if digest is None:
        raise Refused(
            f"run {recording.run_id} has no foreign source to give back",
            hint="export it as .loupe or .jsonl",
            reason="no_source",
        )
    value = codecs.decode(recording.body(digest))
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise Damaged(f"run {recording.run_id}: its source is neither text nor bytes", reason="body")
    return value


def _replace(path: Path, exporter: Exporter, recording: Recording) -> int:
    """Writes beside the target first, so that a reader never sees half a file; what is no file is not replaced by one."""
    if path.exists() and not path.is_symlink() and not path.is_file():
        raise LoupeError(f"{path} cannot be written: it is no plain file", reason="unwritable")
    beside = path.with_name(f".{path.name}.{ambient.random_hex(8)}.part")
    try:
        with beside.open("wb") as out:
            exporter.write(iter([recording]), out)
            out.flush()
            os.fsync(out.fileno())
            size = out.tell()
        reach("export.before_rename")
        beside.replace(path)
    except OSError as wrong:
        raise LoupeError(f"{path} cannot be written: {wrong.strerror or wrong}", reason="unwritable") from wrong
    finally:
        with suppress(OSError):  # what stands in the way of this has been said above
            beside.unlink(missing_ok=True)
    return size


def _program() -> str:
    try:
        return f"agent-loupe {version('agent-loupe')}"
    except PackageNotFoundError:
        return "agent-loupe"
