#!/usr/bin/env python3
"""Checks an anchor file, or the proof of one run, without Agent Loupe: one file, the standard library, read in ten minutes.

    python verify_anchors.py ANCHORS --public-key FILE                    # every signature, every link
    python verify_anchors.py ANCHORS --public-key FILE --run RUN.jsonl    # and a run: what `zstd -d RUN.loupe` gives
    python verify_anchors.py PROOF   --public-key FILE --run RUN.jsonl    # the same with the proof of that run

prints `checkpoints=2 runs=3 at=...` (and `run=... events=24 anchored=24`) and exits with 0; names the first fault and exits
with 2 (1: the run is not named; 3: newer, no key, or it cannot be read; 64: wrong usage). It shares no code with `agentloupe verify`, follows
docs/guides/evidence.md, and gives the same reasons. Of a run it checks events and chain, not values.
"""
# pyright: basic
# Plain Python on purpose: it is read by people who check somebody else's work.

import argparse
import base64
import binascii
import hashlib
import json
import re
import sys
from pathlib import Path

FIRST = "0" * 64
TEXTS = ("store", "at", "root", "changed", "previous", "key_id")
COUNTS = ("number", "runs", "schema_version")


class Fault(Exception):
    """The first thing that is wrong: its reason, where, what."""

    def __init__(self, reason, where, said, code=2):
        super().__init__(f"{where}: {said} [{reason}]")
        self.reason, self.code = reason, code


def need(good, reason, where, said="is not as it has to be", code=2):
    """Raises the fault unless it is good."""
    if not good:
        raise Fault(reason, where, said, code)


def sha(data):
    """SHA-256 as hex digits."""
    return hashlib.sha256(data).hexdigest()


def canonical(value):
    """Canonical JSON (RFC 8785) of texts, whole numbers, lists and objects with plain names."""
    said = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda lone: f"\\u{ord(lone[0]):04x}", said).encode()


def digits(value, count):
    """Whether it is so many hex digits."""
    return isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{count}}}", value) is not None


def strict(data, where):
    """A JSON object in which no member comes twice."""

    def once(pairs):
        need(len({name for name, _ in pairs}) == len(pairs), "anchor_line", where, "a member comes twice")
        return dict(pairs)

    def never(name):
        raise Fault("anchor_line", where, f"{name} is no JSON")

    try:
        value = json.loads(data.decode(), object_pairs_hook=once, parse_constant=never)
    except (ValueError, RecursionError):
        raise Fault("anchor_line", where, "not strict JSON in UTF-8") from None
    need(isinstance(value, dict), "anchor_line", where, "no JSON object")
    return value


# --- Ed25519 (RFC 8032): only checking, nothing secret, so it need not run in constant time ------------------------------

P = 2**255 - 19  # section 5.1: the field, the order of the base point, the constant d
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)  # of -1


def point(data):
    """Section 5.1.3: the point that 32 bytes stand for, as (X, Y, Z, T); `None` where they stand for none."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


def add(one, other):
    """Section 5.1.4: the sum of two points, the same formula for a point and itself."""
    a = (one[1] - one[0]) * (other[1] - other[0]) % P
    b = (one[1] + one[0]) * (other[1] + other[0]) % P
    c, d = 2 * D * one[3] * other[3] % P, 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(number, one):
    """A point added to itself so many times."""
    total = (0, 1, 1, 0)
    while number:
        total = add(total, one) if number & 1 else total
        one, number = add(one, one), number >> 1
    return total


BASE = point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def signed_by(key, data, signature):
    """Section 5.1.7: whether S * B is R + k * A, for the key A and the signature R, S."""
    a, r, s = point(key), point(signature[:32]), int.from_bytes(signature[32:], "little")
    if len(key) != 32 or len(signature) != 64 or a is None or r is None or s >= L:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + data).digest(), "little") % L
    left, right = times(s, BASE), add(r, times(k, a))
    return not any((left[n] * right[2] - right[n] * left[2]) % P for n in (0, 1))


def public_keys(data):
    """The keys of a PEM file by their ids: each is 32 bytes behind a fixed beginning (RFC 8410, section 4)."""
    found = re.findall(rb"-----BEGIN PUBLIC KEY-----\s(.*?)-----END PUBLIC KEY-----", data, re.DOTALL)
    try:
        keys = [base64.b64decode(b"".join(one.split()), validate=True) for one in found]
    except binascii.Error:
        keys = []
    start = bytes.fromhex("302a300506032b6570032100")
    need(keys and all(len(one) == 44 and one[:12] == start for one in keys), "key", "--public-key", "no such key", 3)
    return {sha(one[12:]): one[12:] for one in keys}


# --- Merkle tree (RFC 6962, section 2.1; RFC 9162, section 2.1.3.2) ----------------------------------------------------


def leaf_hash(leaf):
    """Hash of a leaf: `[run id, sequence, hash]` behind a byte 0."""
    return hashlib.sha256(b"\x00" + canonical(leaf)).digest()


def node(left, right):
    """Hash of two nodes, behind a byte 1."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def tree(leaves):
    """The tree hash of a list: the largest power of two that is smaller goes left, the rest right."""
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256(b"").digest()
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return node(tree(leaves[:half]), tree(leaves[half:]))


def climb(leaf, index, size, path):
    """The root that a path leads to, or `None`."""
    if not 0 <= index < size:
        return None
    at, last, reached = index, size - 1, leaf
    for beside in path:
        if last == 0:
            return None
        if at % 2 or at == last:
            reached = node(beside, reached)
            while at and not at % 2:
                at, last = at >> 1, last >> 1
        else:
            reached = node(reached, beside)
        at, last = at >> 1, last >> 1
    return reached if last == 0 else None


# --- checkpoints ------------------------------------------------------------------------------------------------------


def checkpoint_of(document, more, keys, where):
    """The checkpoint of a line, if it has the right form and one of the keys signed it."""
    need(document.keys() == {"checkpoint", "signature", *more}, "anchor_line", where, "is no anchor")
    said = document["checkpoint"]
    need(isinstance(said, dict), "anchor_line", where, "has no checkpoint")
    version = said.get("schema_version")
    need(not (type(version) is int and version > 1), "version", where, "is newer than this reader", 3)
    need(version == 1 and said.keys() == {*TEXTS, *COUNTS}, "anchor_line", where, "has other members")
    need(all(isinstance(said[name], str) for name in TEXTS), "anchor_line", where)
    need(all(type(said[name]) is int and 0 <= said[name] < 1 << 63 for name in COUNTS), "anchor_line", where)
    need(digits(document["signature"], 128), "anchor_line", where, "has no signature")
    need(said["key_id"] in keys, "key", where, "was signed by another key")
    data = b"agentloupe anchor 1\n" + canonical(said)
    good = signed_by(keys[said["key_id"]], data, bytes.fromhex(document["signature"]))
    need(good, "signature", where, "this is not what was signed")
    return said


def check_leaf(leaf, where):
    """A leaf has its form."""
    need(isinstance(leaf, list) and len(leaf) == 3, "anchor_line", where, "a leaf has no form")
    need(isinstance(leaf[0], str) and leaf[0] and digits(leaf[2], 64), "anchor_line", where, "a leaf has no form")
    need(type(leaf[1]) is int and 0 < leaf[1] < 1 << 63, "anchor_line", where, "a leaf has no sequence")


def read_anchors(data, keys):
    """The last checkpoint of an anchor file, and of each run where it ended, with times, oldest first."""
    lines = data.split(b"\n")[:-1]  # what stands behind the last line break was never finished
    need(lines, "no_anchors", "the file", "holds no anchor")
    runs, last = {}, {}
    for n, line in enumerate(lines, 1):
        where = f"line {n}"
        document = strict(line, where)
        said = checkpoint_of(document, {"leaves"}, keys, where)
        follows = (last["number"] + 1, sha(canonical(last))) if last else (1, FIRST)
        need((said["number"], said["previous"]) == follows, "order", where, "does not follow the line before")
        need(not last or said["store"] == last["store"], "store", where, "is of another store")
        leaves = document["leaves"]
        need(isinstance(leaves, list), "anchor_line", where, "has no leaves")
        for leaf in leaves:
            check_leaf(leaf, where)
        need(sha(canonical(leaves)) == said["changed"], "leaves", where, "has other leaves than were signed")
        for run_id, sequence, head in leaves:
            known = runs.setdefault(run_id, [])
            need(not known or known[-1][0] < sequence, "leaves", where, "a run goes back")
            known.append((sequence, head, said["at"]))
        need(len(runs) == said["runs"], "leaves", where, "other runs were signed")
        last = said
    root = tree([leaf_hash([run_id, *runs[run_id][-1][:2]]) for run_id in sorted(runs)])
    need(root.hex() == last["root"], "root", "the file", "gives another root than was signed")
    return last, runs


def read_proof(document, keys):
    """The same of a proof, which knows one run at one moment."""
    said = checkpoint_of(document, {"leaf", "index", "path"}, keys, "the proof")
    leaf, index, path = document["leaf"], document["index"], document["path"]
    check_leaf(leaf, "the proof")
    good = type(index) is int and isinstance(path, list) and len(path) <= 64 and all(digits(one, 64) for one in path)
    need(good, "anchor_line", "the proof", "has no path")
    root = climb(leaf_hash(leaf), index, said["runs"], [bytes.fromhex(one) for one in path])
    need(root is not None and root.hex() == said["root"], "root", "the proof", "leads to another root")
    return said, {leaf[0]: [(leaf[1], leaf[2], said["at"])]}


# --- a run ------------------------------------------------------------------------------------------------------------

EVENT = re.compile(rb'\{"event":(\{.*\}),"prev_hash":"([0-9a-f]{64})","hash":"([0-9a-f]{64})"\}', re.DOTALL)


def check_run(data, runs):
    """The events of an unpacked `.loupe` file: numbers, chain, and what was signed. The id, how many, up to where signed."""
    lines = data.split(b"\n")
    run_id = strict(lines[0], "the header").get("run")
    need(isinstance(run_id, str), "line", "the header", "names no run")
    hashes, began, before = [], "", FIRST
    for line in (one for one in lines if one.startswith(b'{"event":')):
        found = EVENT.fullmatch(line)
        if not found:
            raise Fault("line", f"event {len(hashes) + 1}", "is no line of an event")
        event, number = strict(found[1], f"event {len(hashes) + 1}"), len(hashes) + 1
        where = f"event {number}"
        need(isinstance(event.get("recorded_at"), str), "line", where, "does not say when it was recorded")
        need(event.get("sequence") == number, "gap", where, f"says that it is {event.get('sequence')}")
        need(event.get("run_id") == run_id, "run_id", where, "is of another run")
        need(found[2].decode() == before, "prev_hash", where, "does not point at the event before it")
        before = sha(before.encode() + found[1])  # the file holds the canonical form itself
        need(found[3].decode() == before, "hash", where, "is not what was sealed")
        hashes.append(before)
        began = began or event["recorded_at"]
    need(hashes, "empty", "the run", "has no events")
    for sequence, head, at in runs.get(run_id, ()):
        if sequence > len(hashes) or hashes[sequence - 1] != head:
            need(began <= at, "reused", "the run", f"began at {began}, and was signed at {at}")
            need(sequence <= len(hashes), "cut", "the run", f"has {len(hashes)} events; {sequence} were signed at {at}")
            raise Fault("relinked", f"event {sequence}", f"is not the one that was signed at {at}")
    return run_id, len(hashes), runs[run_id][-1][0] if run_id in runs else None


def judge(data, keys, run=None):
    """All checks of an anchor file or a proof, and of a run; the line to print, and the exit code. Raises `Fault`."""
    if data.count(b"\n") == 1 and data.endswith(b"\n") and b'"leaf":' in data:
        last, runs = read_proof(strict(data[:-1], "the proof"), keys)
    else:
        last, runs = read_anchors(data, keys)
    said = f"checkpoints={last['number']} runs={last['runs']} at={last['at']}"
    if run is None:
        return said, 0
    run_id, events, anchored = check_run(run, runs)
    return f"{said} run={run_id} events={events} anchored={anchored or 'no'}", 0 if anchored else 1


class Words(argparse.ArgumentParser):
    """The words of the command line."""

    def error(self, message):
        """Ends with 64, so that nobody takes wrong words for damage."""
        self.exit(64, f"{self.prog}: {message}\n")


def main(words):
    """The command."""
    asked = Words(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    asked.add_argument("signed", type=Path, metavar="ANCHORS|PROOF")
    asked.add_argument("--public-key", type=Path, metavar="FILE", required=True)
    asked.add_argument("--run", type=Path, metavar="RUN.jsonl")
    named = asked.parse_args(words)
    try:
        keys = public_keys(named.public_key.read_bytes())
        run = named.run.read_bytes() if named.run else None
        said, code = judge(named.signed.read_bytes(), keys, run)
    except Fault as fault:
        print(fault, file=sys.stderr)
        return fault.code
    except OSError as wrong:
        print(wrong, file=sys.stderr)
        return 3
    print(said)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
