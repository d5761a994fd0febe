"""Nothing that is done to a store's file, to a `.loupe` file or to an anchor file goes unnoticed by `verify`."""

from __future__ import annotations

import io
import re
import runpy
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from agentloupe.engine.anchors import read_anchors, read_proof
from agentloupe.engine.verify import verify
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.importers.loupe_file import read_text
from agentloupe.ports import ambient
from agentloupe.store import open_url
from agentloupe.vault.keys import PublicKeys, SigningKey, make_key
from agentloupe.verbs.anchoring import open_anchors, verify_store, write_anchor, write_proof
from agentloupe.verbs.deleting import delete_run
from agentloupe.words.canonical import canonical
from agentloupe.words.checkpoint import Checkpoint
from agentloupe.words.errors import Corrupt, LoupeError
from tests.store.forgeries import IN_PLACE, RE_LINKED, anchor_forgeries, loupe_forgeries, store_forgeries
from tests.store.make import Author, small_run
from tests.support import ROOT

Table = Counter[tuple[str, str, str, str]]
TOLD = "the report says so"
UNSIGNED = "nothing shows it"
SIGNED_AT = ("2026-06-01T00:00:00.000000Z", "2026-06-02T00:00:00.000000Z")


class Place(NamedTuple):
    """A store that was anchored twice, its anchors, the public key, and the key of somebody else."""

    db: Path
    anchors: Path
    public: Path
    other: Path


def made(folder: Path) -> Place:
    """Runs that ended, one that went on between the two anchors, one that was deleted between them, one that came later."""
    db, anchors, key = folder / "loupe.db", folder / "anchors.jsonl", folder / "key"
    make_key(key)
    make_key(folder / "other")
    store = open_url(db)
    small_run(store, "run-1")
    small_run(store, "deleted")
    author = Author(store, "run-2").started()
    author.tool("look", {"n": 1}, "one")
    for at in SIGNED_AT:
        with patch.object(ambient, "now", lambda at=at: at):
            write_anchor(store, anchors, key=key)
        if at == SIGNED_AT[0]:
            author.tool("look", {"n": 2}, "two")
            author.finished()
            delete_run(store, "deleted")
    small_run(store, "late")
    store.close()
    return Place(db, anchors, folder / "key.pub", folder / "other")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return made(tmp_path_factory.mktemp("anchored"))


def judged(db: Path, place: Place) -> str:
    """The reason that `verify --all` gives first, or `whole` with what was counted."""
    store = open_url(db)
    try:
        found = verify_store(store, open_anchors(place.anchors, place.public))
    except LoupeError as wrong:
        return wrong.reason
    finally:
        store.close()
    if found.lost:
        return "lost"
    for result in found.bad:
        assert result.fault is not None
        return result.fault.reason
    return "database" if found.database else f"whole {found.counts()}"


def stores(place: Place, folder: Path) -> tuple[Table, list[str]]:
    """Which forgery of a store's file was caught by what, and what survived.

    A run that went on behind what was signed is no fault, and told; and a run that nobody signed yet is in nobody's hands.
    """
    whole = judged(place.db, place)
    assert whole == "whole {'anchored': 3, 'grown': 0, 'deleted': 1, 'not_yet': 1}"
    table: Table = Counter()
    survived: list[str] = []
    for forgery in store_forgeries(place.db):
        copy = Path(shutil.copy(place.db, folder / "forged.db"))
        forgery.make(copy)
        found = judged(copy, place)
        told = "'grown': 1" in found or (forgery.what.endswith("signed yet") and forgery.depth == RE_LINKED)
        if found.startswith("whole"):
            if not told:
                survived.append(f"{forgery}")
            found = TOLD if "'grown': 1" in found else UNSIGNED
        table[forgery.what, forgery.done, forgery.depth, found if found in (TOLD, UNSIGNED) else f"`{found}`"] += 1
        for left in folder.glob("forged.db*"):
            left.unlink()
    return table, survived


def test_nothing_that_is_done_to_a_store_goes_unnoticed(place: Place, tmp_path: Path) -> None:
    table, survived = stores(place, tmp_path)
    assert survived == []
    assert table.total() > 150
    seen = {guard for *_, guard in table}
    assert {
        "`lost`",
        "`cut`",
        "`relinked`",
        "`reused`",
        "`other_store`",
        "`body`",
        "`body_missing`",
        "`run_id`",
    } <= seen


def test_one_damaged_run_does_not_hide_the_others(place: Place, tmp_path: Path) -> None:
    copy = Path(shutil.copy(place.db, tmp_path / "loupe.db"))
    for forgery in store_forgeries(place.db):
        if (forgery.what, forgery.done, forgery.depth) == ("event", "swapped with the next", IN_PLACE):
            forgery.make(copy)
            break
    store = open_url(copy)
    found = verify_store(store, open_anchors(place.anchors, place.public))
    store.close()
    assert [result.run_id for result in found.bad] == ["run-1"]
    assert len(found.results) == 4


def exported(place: Place, run_id: str = "run-1") -> bytes:
    """The text of a `.loupe` file."""
    store = open_url(place.db)
    out = io.BytesIO()
    LoupeFileExporter(packed=False).write(iter([store.recording(run_id)]), out)
    store.close()
    return out.getvalue()


def files(place: Place) -> tuple[Table, list[str]]:
    """The same of a `.loupe` file, with the anchors at hand."""
    text = exported(place)
    known = open_anchors(place.anchors, place.public).of("run-1")
    table: Table = Counter()
    survived: list[str] = []
    assert verify(read_text(text, "file"), signed=known).anchored
    for what, done, depth, where, forged in loupe_forgeries(text):
        try:
            result = verify(read_text(forged, "file"), signed=known)
            found = result.fault.reason if result.fault else "whole"
            if found == "whole" and result.anchor_sequence != result.events:
                found = TOLD
        except LoupeError as wrong:
            found = wrong.reason
        if found == "whole":
            survived.append(f"{what} {where}: {done} ({depth})")
        table[what, done, depth, TOLD if found == TOLD else f"`{found}`"] += 1
    return table, survived


def test_nothing_that_is_done_to_a_loupe_file_goes_unnoticed(place: Place) -> None:
    table, survived = files(place)
    assert survived == []
    assert table.total() > 100


def anchors(place: Place) -> Iterator[tuple[str, str, str]]:
    """What was done to an anchor file, where, and what reading it says: the reason, or its last checkpoint."""
    trust = PublicKeys.read(place.public)
    for done, where, text in forged_anchors(place):
        try:
            known = read_anchors(text.splitlines(), trust, "anchors")
            found = f"checkpoint {known.last.number if known.last else 0}"
        except LoupeError as wrong:
            found = wrong.reason
        yield done, where, found


def forged_anchors(place: Place) -> Iterator[tuple[str, str, bytes]]:
    """What was done, where, and the forged file."""
    other = SigningKey.read(place.other)

    def resign(said: dict[str, Any]) -> bytes:
        checkpoint = Checkpoint.of({**said["checkpoint"], "key_id": other.key_id})
        signature = other.sign(checkpoint.signed_bytes()).hex()
        return canonical({"checkpoint": checkpoint.document(), "signature": signature, "leaves": said["leaves"]})

    yield from anchor_forgeries(place.anchors.read_bytes().splitlines(), resign)


def test_nothing_that_is_done_to_an_anchor_file_goes_unnoticed(place: Place) -> None:
    """But for lines that are dropped from its end: then it is the file of then, and says so by number and time."""
    found = list(anchors(place))
    unnoticed = {(done, where, said) for done, where, said in found if said.startswith("checkpoint")}
    assert unnoticed == {("a line dropped", "line 2", "checkpoint 1"), ("emptied", "", "checkpoint 0")}
    assert {said for *_, said in found if not said.startswith("checkpoint")} >= {
        "order",
        "signature",
        "key",
        "leaves",
        "anchor_line",
    }
    with pytest.raises(Corrupt, match="holds no anchor"):
        (place.db.parent / "empty").write_bytes(b"")
        open_anchors(place.db.parent / "empty", place.public)


OTHER = runpy.run_path(str(ROOT / "tools" / "verify_anchors.py"))


def theirs(*words: Any) -> str:
    """What the second reader says of an anchor file or a proof, and of a run."""
    try:
        return OTHER["judge"](*words)[0]
    except OTHER["Fault"] as fault:
        return fault.reason


def test_a_second_reader_agrees_about_anchor_files(place: Place) -> None:
    """It shares no code with ours, and names the same reason for every forgery."""
    keys, whole = OTHER["public_keys"](place.public.read_bytes()), place.anchors.read_bytes()
    assert theirs(whole, keys) == f"checkpoints=2 runs=3 at={SIGNED_AT[1]}"
    assert theirs(whole + b"torn", keys) == theirs(whole, keys)
    for (done, where, ours), (_, _, text) in zip(anchors(place), forged_anchors(place), strict=True):
        said = theirs(text, keys)
        wanted = {"checkpoint 0": "no_anchors", "checkpoint 1": f"checkpoints=1 runs=3 at={SIGNED_AT[0]}"}.get(
            ours, ours
        )
        assert said == wanted, (done, where)


def test_a_second_reader_agrees_about_runs_and_proofs(place: Place, tmp_path: Path) -> None:
    """Of a run it does not look at values, nor at what the file says of its own length; it finds what was done to events."""
    keys = OTHER["public_keys"](place.public.read_bytes())
    write_proof(place.anchors, place.public, "run-1", tmp_path / "proof")
    proof = (tmp_path / "proof").read_bytes()
    text = exported(place)
    known = open_anchors(place.anchors, place.public).of("run-1")
    for signed in (place.anchors.read_bytes(), proof):
        assert theirs(signed, keys, text).endswith("run=run-1 events=13 anchored=13")
        for what, done, depth, where, forged in loupe_forgeries(text):
            if what != "event" or "a field changed" in done:
                continue
            said = theirs(signed, keys, forged)
            try:
                result = verify(read_text(forged, "file"), signed=known)
                ours = result.fault.reason if result.fault else "run=run-1"
            except LoupeError as wrong:
                ours = wrong.reason
            assert ours in said, (done, depth, where)
    for n in range(0, len(proof), 7):
        changed = proof[:n] + bytes([proof[n] ^ 1]) + proof[n + 1 :]
        with pytest.raises(LoupeError) as found:
            read_proof(changed.rstrip(b"\n"), PublicKeys.read(place.public), "proof")
        said = theirs(changed, keys)
        assert said == found.value.reason or b'"leaf":' not in changed, n


def test_the_second_reader_as_a_command(place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.jsonl").write_bytes(exported(place))
    (tmp_path / "late.jsonl").write_bytes(exported(place, "late"))
    words = [str(place.anchors), "--public-key", str(place.public)]
    assert OTHER["main"](words) == 0
    assert OTHER["main"]([*words, "--run", str(tmp_path / "run.jsonl")]) == 0
    assert OTHER["main"]([*words, "--run", str(tmp_path / "late.jsonl")]) == 1
    assert OTHER["main"]([str(place.anchors), "--public-key", str(place.anchors)]) == 3
    (tmp_path / "anchors").write_bytes(place.anchors.read_bytes().replace(b'"runs":3', b'"runs":2'))
    assert OTHER["main"]([str(tmp_path / "anchors"), *words[1:]]) == 2
    assert "[signature]" in capsys.readouterr().err
    assert OTHER["main"]([str(tmp_path / "nothing"), *words[1:]]) == 3


@pytest.mark.parametrize("more", [("--rum", "run.jsonl"), ("--ru", "run.jsonl"), ("run.jsonl",), ("--run",)])
def test_the_second_reader_passes_over_no_word(place: Place, more: tuple[str, ...]) -> None:
    """A misspelled option must not leave out what it asks for."""
    with pytest.raises(SystemExit) as usage:
        OTHER["main"]([str(place.anchors), "--public-key", str(place.public), *more])
    assert usage.value.code == 64


@pytest.mark.parametrize("name", [r"\ud800", "[1]"])
def test_the_second_reader_names_a_fault_whatever_a_file_holds(place: Place, name: str) -> None:
    """A text that is no text, an id that is none, a time that is none."""
    keys, whole = OTHER["public_keys"](place.public.read_bytes()), place.anchors.read_bytes()
    assert theirs(whole.replace(b"run-1", name.encode()), keys) == "leaves"
    text = exported(place).replace(b'"run":"run-1"', b'"run":[1]', 1)
    assert theirs(whole, keys, text) == "line"
    untimed = re.sub(rb'"recorded_at":"[^"]*"', b'"recorded_at":7', exported(place))
    assert theirs(whole, keys, untimed) == "line"


def tables(folder: Path) -> dict[str, list[tuple[str, ...]]]:
    """The tables in docs/guides/evidence.md."""
    place = made(folder)
    rows: dict[str, list[tuple[str, ...]]] = {}
    for name, (table, _) in {"store_forgeries": stores(place, folder), "loupe_forgeries": files(place)}.items():
        by: dict[tuple[str, str], dict[str, list[str]]] = {}
        for (what, done, depth, guard), count in sorted(table.items()):
            by.setdefault((what, done), {}).setdefault(depth, []).append(f"{guard} {count}")
        rows[name] = [
            (*key, *(", ".join(found.get(d, ["-"])) for d in (IN_PLACE, RE_LINKED))) for key, found in by.items()
        ]
    counts: Counter[tuple[str, str]] = Counter()
    for done, _, said in anchors(place):
        shown = {"checkpoint 0": "`no_anchors`"}.get(said, TOLD if said.startswith("checkpoint") else f"`{said}`")
        counts[done, shown] += 1
    by_deed: dict[str, list[str]] = {}
    for (done, said), count in sorted(counts.items()):
        by_deed.setdefault(done, []).append(f"{said} {count}")
    rows["anchor_forgeries"] = [(done, ", ".join(said)) for done, said in by_deed.items()]
    return rows
