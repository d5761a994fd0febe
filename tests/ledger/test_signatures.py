"""Signed ledgers, and the small Ed25519 of the second reader: it knows RFC 8032's vectors and agrees with a kept library."""

from __future__ import annotations

import hashlib
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.store.memory import MemoryStore
from agentloupe.vault.keys import make_key
from agentloupe.verbs.ledger import export_ledger, import_ledger, replay_folder, write_files
from agentloupe.words.errors import Corrupt, LoupeError, UsageError
from agentloupe.words.event import Head
from tests.ledger.support import STORY, told
from tests.store.make import small_run
from tests.support import ROOT

OTHER = runpy.run_path(str(ROOT / "tools" / "verify_ledger.py"))
signed_by: Callable[[bytes, bytes, bytes], bool] = OTHER["signed_by"]

# RFC 8032, section 7.1: secret key, public key, message, signature.
VECTORS = {
    "TEST 1": (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    "TEST 2": (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        ),
    ),
    "TEST 3": (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
    "TEST SHA(abc)": (
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        hashlib.sha512(b"abc").hexdigest(),
        (
            "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b589"
            "09351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704"
        ),
    ),
}
ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.mark.parametrize("name", VECTORS)
def test_the_vectors_of_rfc_8032(name: str) -> None:
    secret, public, message, signature = (bytes.fromhex(one) for one in VECTORS[name])
    key = Ed25519PrivateKey.from_private_bytes(secret)
    assert key.public_key().public_bytes_raw() == public
    assert key.sign(message) == signature
    assert signed_by(public, message, signature)
    assert not signed_by(public, message + b"x", signature)


def library(public: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


@given(seed=st.binary(min_size=32, max_size=32), message=st.binary(max_size=40), data=st.data())
def test_the_second_reader_agrees_with_the_library(seed: bytes, message: bytes, data: st.DataObject) -> None:
    """On what was signed, on every flipped bit of signature, key and message, and on an `s` that is too large."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public, signature = key.public_key().public_bytes_raw(), key.sign(message)
    assert signed_by(public, message, signature)
    large = signature[:32] + (int.from_bytes(signature[32:], "little") + ORDER).to_bytes(32, "little")
    assert not signed_by(public, message, large)
    assert not library(public, message, large)
    parts = [public, message, signature]
    which = data.draw(st.integers(0, 2).filter(lambda n: parts[n]))
    bit = data.draw(st.integers(0, 8 * len(parts[which]) - 1))
    flipped = bytearray(parts[which])
    flipped[bit // 8] ^= 1 << bit % 8
    parts[which] = bytes(flipped)
    assert not signed_by(*parts)
    assert not library(*parts)


@pytest.mark.parametrize("size", [0, 31, 33, 63, 65])
def test_what_is_too_short_or_too_long_is_no_signature(size: int) -> None:
    public, message, signature = (bytes.fromhex(one) for one in VECTORS["TEST 2"][1:])
    assert not signed_by(public, message, (signature + signature)[:size])
    assert not signed_by((public + public)[: min(size, 63)], message, signature)


# ---------------------------------------------------------------- folders


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    make_key(folder / "mine")
    make_key(folder / "other")
    return folder


def _main(*words: str | Path) -> int:
    return OTHER["main"]([str(word) for word in words])


def test_a_signed_export_is_replayed_and_taken_over(
    keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = MemoryStore()
    small_run(store, "run-1")
    done = export_ledger(store, "run-1", tmp_path / "out", key=keys / "mine")
    report = replay_folder(tmp_path / "out", public_key=keys / "mine.pub")
    assert report.fields["key_id"] == done.key_id
    assert "nothing is proven about events behind the end" in str(report.fields["notes"])
    assert _main(tmp_path / "out", "--public-key", keys / "mine.pub") == 0
    assert capsys.readouterr().out == f"{report}\n"
    again = MemoryStore()
    import_ledger(again, tmp_path / "out", public_key=keys / "mine.pub")
    assert again.recording("run-1").events == store.recording("run-1").events
    unasked = replay_folder(tmp_path / "out")
    assert unasked.fields["key_id"] is None
    assert "nobody looked" in str(unasked.fields["notes"])


def test_another_key_or_none_is_a_fault_for_both_readers(
    keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = MemoryStore()
    small_run(store, "run-1")
    export_ledger(store, "run-1", tmp_path / "signed", key=keys / "mine")
    export_ledger(store, "run-1", tmp_path / "unsigned")
    for folder, key in (("signed", "other.pub"), ("unsigned", "mine.pub")):
        with pytest.raises(Corrupt) as found:
            replay_folder(tmp_path / folder, public_key=keys / key)
        assert found.value.reason == "signature"
        assert not (tmp_path / folder / "replay_report.json").exists()
        with pytest.raises(Corrupt):
            import_ledger(MemoryStore(), tmp_path / folder, public_key=keys / key)
        assert _main(tmp_path / folder, "--public-key", keys / key) == 2
        assert "[signature]" in capsys.readouterr().err
    both = tmp_path / "both.pub"
    both.write_bytes((keys / "other.pub").read_bytes() + (keys / "mine.pub").read_bytes())
    assert replay_folder(tmp_path / "signed", public_key=both)
    assert _main(tmp_path / "signed", "--public-key", both) == 0


def test_the_second_reader_passes_over_no_word(keys: Path, tmp_path: Path) -> None:
    """A misspelled option must not leave out the check that it asks for."""
    store = MemoryStore()
    small_run(store, "run-1")
    head = export_ledger(store, "run-1", tmp_path / "unsigned").anchor
    key = str(keys / "mine.pub")
    for words in (
        ("--public-keys", key),
        ("--pub", key),
        ("--anchor", "5"),
        ("--anchor=-1:" + head.partition(":")[2],),
        ("more",),
    ):
        with pytest.raises(SystemExit) as usage:
            _main(tmp_path / "unsigned", *words)
        assert usage.value.code == 64, words
    assert _main(tmp_path / "unsigned", "--anchor", head) == 0
    assert _main(tmp_path / "nothing") == 3
    assert _main(tmp_path / "unsigned", "--public-key", tmp_path / "nothing") == 3


@pytest.mark.parametrize("kind", ["object", "list"])
def test_the_second_reader_reads_as_deep_as_the_first(tmp_path: Path, kind: str) -> None:
    """A whole ledger is not damaged because its reader runs out of calls."""
    deep: object = 1
    for _ in range(990):
        deep = {"a": deep} if kind == "object" else [deep]
    begun, *others = STORY
    write_files(tmp_path / "deep", told([(begun[0], {**begun[1], "deep": deep}), *others]))
    report = replay_folder(tmp_path / "deep")
    reader = [sys.executable, str(ROOT / "tools" / "verify_ledger.py"), str(tmp_path / "deep")]
    done = subprocess.run(reader, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{report}\n"), done.stderr


def test_no_anchor_is_held_against_a_plain_ledger(tmp_path: Path) -> None:
    """The report must not name an anchor that nobody looked at."""
    with pytest.raises(UsageError, match="no hashes"):
        replay_folder(tmp_path / "plain", rules=0, anchor=Head(99, "a" * 64))


def test_a_plain_ledger_is_not_signed(keys: Path, tmp_path: Path) -> None:
    """Nobody gets around the signature by asking for the rules of those that have none."""
    files = told(bodies=None)
    plain = b"".join(
        json.dumps({k: v for k, v in json.loads(line).items() if k in ("seq", "run_id", "kind", "payload")}).encode()
        + b"\n"
        for line in files.events.splitlines()
    )
    write_files(tmp_path / "plain", replace(files, events=plain))
    with pytest.raises(LoupeError) as found:
        replay_folder(tmp_path / "plain", rules=0, public_key=keys / "mine.pub")
    assert found.value.reason in {"signature", "receipts", "budget_digest"}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        b"-----BEGIN PUBLIC KEY-----\n!!\n-----END PUBLIC KEY-----\n",
    ],
)
def test_what_is_no_key_is_refused_by_the_second_reader(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "key").write_bytes(text)
    write_files(tmp_path / "folder", told())
    assert _main(tmp_path / "folder", "--public-key", tmp_path / "key") == 3
