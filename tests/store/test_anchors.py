"""Anchors: signed checkpoints of a store, written, read, proven, and held against runs. The same for every store."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine.anchors import gone_back, next_line, proof_of, read_anchors, read_proof
from agentloupe.engine.verify import Verification, verify
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.vault import anchors as anchor_file
from agentloupe.vault.keys import PublicKeys, SigningKey, make_key, public_file
from agentloupe.verbs.anchoring import open_anchors, open_proof, verify_store, write_anchor, write_proof
from agentloupe.verbs.deleting import delete_run
from agentloupe.verbs.exchange import export_run
from agentloupe.words.errors import Corrupt, LoupeError, NotFound, Refused
from agentloupe.words.event import Head
from tests.store.make import Author, small_run
from tests.support import SRC


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_url("memory:" if request.param == "memory" else tmp_path / "loupe.db")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two key pairs, `mine` and `other`."""
    folder = tmp_path_factory.mktemp("keys")
    make_key(folder / "mine")
    make_key(folder / "other")
    return folder


class Signed:
    """A store that is anchored into a file."""

    def __init__(self, store: Store, keys: Path, folder: Path) -> None:
        self.store, self.file = store, folder / "anchors.jsonl"
        self.key, self.public = keys / "mine", keys / "mine.pub"

    def write(self, key: Path | None = None) -> int:
        return write_anchor(self.store, self.file, key=key or self.key).number

    def verify(self, run_id: str) -> Verification:
        return verify(self.store.recording(run_id), signed=open_anchors(self.file, self.public).of(run_id))

    def lines(self) -> list[bytes]:
        return self.file.read_bytes().splitlines()


@pytest.fixture
def signed(store: Store, keys: Path, tmp_path: Path) -> Signed:
    return Signed(store, keys, tmp_path)


# ---------------------------------------------------------------- a run and its anchors


def test_a_pass_says_what_it_proves_and_what_not(signed: Signed, keys: Path) -> None:
    author = Author(signed.store, "run-1").started()
    author.tool("look", {}, "one")
    signed.write()
    at = len(signed.store.recording("run-1").events)
    found = signed.verify("run-1")
    assert (found.ok, found.anchored, found.anchor_sequence) == (True, True, at)
    assert found.anchored_at == json.loads(signed.lines()[0])["checkpoint"]["at"]
    assert found.key_id == SigningKey.read(keys / "mine").key_id
    author.tool("look", {}, "two")
    author.finished()
    found = signed.verify("run-1")
    assert (found.ok, found.anchored, found.anchor_sequence) == (True, True, at)
    assert f"events 1 to {at} are those that were signed" in found.head
    assert f"anchored to sequence {at} only: nothing is proven about the end behind it" in found.notes
    signed.write()
    found = signed.verify("run-1")
    assert found.anchor_sequence == found.events
    assert not any("anchored" in note for note in found.notes)


def test_a_run_that_no_anchor_names_is_whole_and_not_anchored(signed: Signed) -> None:
    small_run(signed.store, "run-1")
    signed.write()
    small_run(signed.store, "run-2")
    found = signed.verify("run-2")
    assert (found.ok, found.anchored, found.anchored_at, found.key_id) == (True, False, None, None)
    assert any("not anchored" in note for note in found.notes)


def test_only_what_changed_is_written(signed: Signed) -> None:
    for number in range(5):
        small_run(signed.store, f"run-{number}")
    signed.write()
    author = Author(signed.store, "late").started()
    assert [signed.write(), signed.write()] == [2, 3]
    assert [len(json.loads(line)["leaves"]) for line in signed.lines()] == [5, 1, 0]
    author.clock("commit")
    signed.write()
    assert [leaf[0] for leaf in json.loads(signed.lines()[3])["leaves"]] == ["late"]
    assert [one.number for one in open_anchors(signed.file, signed.public).of("late")] == [2, 4]


def test_a_deleted_run_is_not_a_lost_one(signed: Signed) -> None:
    """Its events stay, with one more that says so; who takes them away, takes away a run."""
    small_run(signed.store, "run-1")
    signed.write()
    delete_run(signed.store, "run-1")
    found = verify_store(signed.store, open_anchors(signed.file, signed.public))
    assert found.ok
    assert found.counts() == {"anchored": 1, "grown": 1, "deleted": 1, "not_yet": 0}
    assert signed.verify("run-1").erased
    signed.write()
    assert signed.verify("run-1").anchor_sequence == signed.verify("run-1").events


def test_a_store_that_went_back_is_not_signed(keys: Path, tmp_path: Path) -> None:
    """As when an older backup is put back: nothing is signed, and the run is named; also when its id was used again."""
    db, backup = tmp_path / "loupe.db", tmp_path / "backup.db"
    store = open_url(db)
    small_run(store, "run-1")
    signed = Signed(store, keys, tmp_path)
    signed.write()
    store.close()
    shutil.copy(db, backup)
    store = signed.store = open_url(db)
    small_run(store, "run-2")
    signed.write()
    store.close()
    before = signed.file.read_bytes()
    signed.store = open_url(backup)
    with pytest.raises(Corrupt, match="run run-2: the run is gone") as gone:
        signed.write()
    assert gone.value.reason == "lost"
    found = verify_store(signed.store, open_anchors(signed.file, signed.public))
    assert [run_id for run_id, _ in found.lost] == ["run-2"]
    small_run(signed.store, "run-2")
    with pytest.raises(Corrupt, match="run run-2") as other:
        signed.write()
    assert other.value.reason == "relinked"
    assert signed.file.read_bytes() == before
    signed.store.close()


def test_the_anchors_of_another_store_are_refused(signed: Signed, tmp_path: Path) -> None:
    small_run(signed.store, "run-1")
    signed.write()
    signed.store = open_url("memory:")
    small_run(signed.store, "run-1")
    with pytest.raises(Refused) as refused:
        signed.write()
    assert refused.value.reason == "other_store"
    with pytest.raises(Corrupt) as found:
        verify_store(signed.store, open_anchors(signed.file, signed.public))
    assert found.value.reason == "other_store"


def test_the_id_of_a_store_stays(store: Store, tmp_path: Path) -> None:
    assert store.identity() == store.identity()
    if store.url != "memory:":
        again = open_url(tmp_path / "loupe.db")
        assert again.identity() == store.identity()
        again.close()
        other = open_url(tmp_path / "other.db")
        assert other.identity() != store.identity()
        other.close()


def test_heads_are_those_of_runs_with_events(store: Store) -> None:
    assert store.heads() == {}
    small_run(store, "run-1")
    Author(store, "empty")
    last = store.recording("run-1").events[-1]
    assert store.heads() == {"run-1": Head(last.sequence, last.hash)}


# ---------------------------------------------------------------- the file


def test_a_torn_line_is_no_anchor_and_is_taken_away_by_the_next(signed: Signed) -> None:
    small_run(signed.store, "run-1")
    signed.write()
    whole = signed.file.read_bytes()
    small_run(signed.store, "run-2")
    signed.write()
    torn = signed.file.read_bytes()
    for cut in (len(whole) + 1, len(torn) - 1):
        signed.file.write_bytes(torn[:cut])
        known = open_anchors(signed.file, signed.public)
        assert known.torn
        assert known.last is not None
        assert known.last.number == 1
        assert write_anchor(signed.store, signed.file, key=signed.key).mended
        assert signed.file.read_bytes()[: len(whole)] == whole
        assert len(signed.lines()) == 2
        assert not open_anchors(signed.file, signed.public).torn


def test_a_file_of_something_else_is_left_as_it_is(signed: Signed) -> None:
    """One without a line break, too: it is no torn anchor, and is not taken away."""
    small_run(signed.store, "run-1")
    for other in (b"what I must not forget", b'{"checkpoints":{"a":1}}', b"notes\nmore"):
        signed.file.write_bytes(other)
        with pytest.raises(Corrupt) as refused:
            signed.write()
        assert refused.value.reason == "anchor_line"
        assert signed.file.read_bytes() == other
    for torn in (b'{"check', b'{"checkpoint":{"at":"2026-11-30T20', b"\0" * 40):
        signed.file.write_bytes(torn)
        assert write_anchor(signed.store, signed.file, key=signed.key).mended
        assert len(signed.lines()) == 1


def test_what_was_there_before_is_never_taken_away(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty file stays where signing failed; a pipe is refused, not read for ever, not removed."""
    small_run(signed.store, "run-1")
    signed.file.touch()

    def full(file: int, data: bytes, at: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(LoupeError, match="No space left"):
            signed.write()
    assert signed.file.read_bytes() == b""
    signed.file.unlink()
    os.mkfifo(signed.file)
    for use in (signed.write, lambda: open_anchors(signed.file, signed.public)):
        with pytest.raises(LoupeError, match="no plain file"):
            use()
    with pytest.raises(LoupeError, match="no plain file"):
        anchor_file.append(signed.file, lambda _: b"{}")
    assert stat.S_ISFIFO(signed.file.lstat().st_mode)


def test_no_file_and_an_empty_file_are_no_anchors(signed: Signed) -> None:
    with pytest.raises(NotFound):
        open_anchors(signed.file, signed.public)
    for nothing in (b"", b'{"checkpoint"'):
        signed.file.write_bytes(nothing)
        with pytest.raises(Corrupt) as empty:
            open_anchors(signed.file, signed.public)
        assert empty.value.reason == "no_anchors"


def test_a_full_disk_leaves_the_file_as_it_was(signed: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
    small_run(signed.store, "run-1")
    real = os.pwrite

    def full(file: int, data: bytes, at: int) -> int:
        if at > len(data) // 2:
            raise OSError(28, "No space left on device")
        return real(file, data[: len(data) // 2 + 1], at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(LoupeError, match="No space left"):
        signed.write()
    assert not signed.file.exists()


def test_a_key_may_be_changed(signed: Signed, keys: Path, tmp_path: Path) -> None:
    small_run(signed.store, "run-1")
    signed.write()
    with pytest.raises(Corrupt) as refused:
        signed.write(keys / "other")
    assert refused.value.reason == "key"
    write_anchor(signed.store, signed.file, key=keys / "other", public_key=keys / "mine.pub")
    both = tmp_path / "both.pub"
    both.write_bytes((keys / "mine.pub").read_bytes() + (keys / "other.pub").read_bytes())
    assert open_anchors(signed.file, both).last is not None
    for one in ("mine.pub", "other.pub"):
        with pytest.raises(Corrupt) as wrong:
            open_anchors(signed.file, keys / one)
        assert wrong.value.reason == "key"


# ---------------------------------------------------------------- keys


def test_a_key_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    key_id = make_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.read(path).key_id == key_id
    assert PublicKeys.read(public_file(path)).holds(key_id)
    before = path.read_bytes(), public_file(path).read_bytes()
    with pytest.raises(Refused) as refused:
        make_key(path)
    assert refused.value.reason == "exists"
    path.unlink()
    with pytest.raises(Refused):
        make_key(path)
    assert not path.exists()
    assert public_file(path).read_bytes() == before[1]


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    make_key(tmp_path / "a.key")
    (tmp_path / "a.key").chmod(0o640)
    with pytest.raises(Refused) as refused:
        SigningKey.read(tmp_path / "a.key")
    assert refused.value.reason == "key_mode"


@pytest.mark.parametrize("text", [b"", b"no key", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_what_is_no_key_is_refused(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(text)
    file.chmod(0o600)
    for read in (SigningKey.read, PublicKeys.read):
        with pytest.raises(LoupeError) as refused:
            read(file)
        assert refused.value.reason == "key"
        with pytest.raises(NotFound):
            read(tmp_path / "nothing")


def test_a_private_key_is_no_public_one(keys: Path) -> None:
    with pytest.raises(LoupeError, match="no Ed25519 public key"):
        PublicKeys.read(keys / "mine")
    with pytest.raises(LoupeError, match=r"no Ed25519 private key|can be read by others"):
        SigningKey.read(keys / "mine.pub")


def test_without_the_library_the_error_names_the_extra(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from agentloupe.cli import main\n"
        f"raise SystemExit(main(['anchor', 'keygen', {str(tmp_path / 'k')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=SRC.parent, check=False)
    assert done.returncode == 3
    assert "pip install 'agent-loupe[sign]'" in done.stderr
    assert not (tmp_path / "k").exists()


# ---------------------------------------------------------------- one run alone


def test_a_proof_goes_with_an_export(signed: Signed, tmp_path: Path) -> None:
    from agentloupe.importers.loupe_file import open_file

    for number in range(7):
        small_run(signed.store, f"run-{number}")
    signed.write()
    file, proof = tmp_path / "run.loupe", tmp_path / "run.proof"
    export_run(signed.store, "run-3", file)
    write_proof(signed.file, signed.public, "run-3", proof)
    assert b"run-4" not in proof.read_bytes()
    known = open_proof(proof, signed.public)
    found = verify(open_file(file), signed=known.of("run-3"))
    assert (found.ok, found.anchored, found.anchor_sequence) == (True, True, found.events)
    assert known.of("run-4") == ()
    with pytest.raises(LoupeError) as refused:
        write_proof(signed.file, signed.public, "run-3", proof)
    assert refused.value.reason == "exists"
    with pytest.raises(LoupeError, match="no anchor names"):
        write_proof(signed.file, signed.public, "nobody", tmp_path / "no.proof")


class Key:
    """Signs with a real key, made once."""

    def __init__(self, folder: Path) -> None:
        make_key(folder / "k")
        self.signer = SigningKey.read(folder / "k")
        self.trust = self.signer.public()


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return Key(tmp_path_factory.mktemp("key"))


runs = st.dictionaries(st.text(min_size=1, max_size=6), st.integers(1, 5), max_size=20)


def _heads(counts: dict[str, int]) -> dict[str, Head]:
    return {run: Head(n, f"{n:064x}") for run, n in counts.items()}


@given(moments=st.lists(runs, min_size=1, max_size=5))
def test_anchors_of_any_history_are_read_back(key: Key, moments: list[dict[str, int]]) -> None:
    """Whatever runs came and grew: the last checkpoint knows where each ended, and every run has its proof."""
    now: dict[str, int] = {}
    lines: list[bytes] = []
    for moment in moments:
        for run, more in moment.items():
            now[run] = now.get(run, 0) + more
        before = read_anchors(lines, key.trust, "file")
        assert gone_back(before, _heads(now), lambda run, n: f"{n:064x}") is None
        lines.append(next_line(before, _heads(now), store="s", at=f"t{len(lines)}", signer=key.signer).line)
    known = read_anchors(lines, key.trust, "file")
    assert known.heads() == _heads(now)
    for run in now:
        proven = read_proof(proof_of(lines, known, run).rstrip(), key.trust, "proof")
        assert proven.heads() == {run: _heads(now)[run]}


@given(before=runs, after=runs)
def test_a_store_goes_on_only_where_every_run_does(key: Key, before: dict[str, int], after: dict[str, int]) -> None:
    nothing = read_anchors([], key.trust, "f")
    known = read_anchors(
        [next_line(nothing, _heads(before), store="s", at="t", signer=key.signer).line], key.trust, "f"
    )
    back = gone_back(known, _heads(after), lambda run, n: f"{n:064x}")
    shrunk = {run for run, n in before.items() if after.get(run, 0) < n}
    assert (back is None) == (not shrunk)
    assert back is None or back[0] in shrunk
