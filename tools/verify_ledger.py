#!/usr/bin/env python3
"""Checks a ledger folder without Agent Loupe: one file, the standard library, to be read in ten minutes.

    python verify_ledger.py FOLDER [--anchor N:HASH] [--public-key FILE]

prints `events=14 receipts=1 state=retrying` and exits with 0, or names the first fault and its check and exits with 2
(3: newer, of a kind that is not known here, or it cannot be read; 64: wrong usage). Sealed ledgers (schema version 1) only. It shares no code with
`agentloupe ledger replay`, follows docs/reference/ledger.md, and makes the same checks in the same order.
"""
# pyright: basic
# Plain Python on purpose: it is read by people who check somebody else's work.

import argparse
import base64
import binascii
import hashlib
import json
import math
import re
import stat
import sys
from decimal import Decimal
from pathlib import Path
from urllib.parse import quote

VERSION = 1
FILES = (
    "events.jsonl",
    "budget.json",
    "contract.json",
    "checkpoint.json",
    "bodies.jsonl",
    "replay_report.json",
    "migration_report.json",
)
LARGEST = {"events.jsonl": 1 << 30, "bodies.jsonl": 4 << 30, "contract.json": 16 << 20}
DEEPEST = 1000

# --- what each kind may follow in its call (None: the beginning; no entry: it belongs to no call) ----------------------

ASKED = ("model_requested", "model_opened", "model_streamed")
AFTER = {
    "model_requested": (None,),
    "model_opened": ASKED,
    "model_streamed": ASKED[1:],
    "model_proposed": (None, *ASKED),
    "model_finished": (None, *ASKED),
    "model_failed": ASKED,
    "tool_allowed": (None,),
    "tool_denied": (None, "tool_allowed", "tool_requested", "not_done"),
    "tool_requested": ("tool_allowed", "not_done"),
    "tool_started": ("tool_allowed", "tool_requested", "interrupted", "not_done"),
    "tool_finished": ("tool_started", "interrupted"),
    "tool_failed": ("tool_allowed", "tool_requested", "tool_started", "interrupted"),
    "tool_unknown": ("tool_requested", "tool_started", "interrupted"),
    "tool_confirmed": ("tool_unknown",),
    **dict.fromkeys(("retrieval_finished", "retrieval_failed", "call_opened", "clock_read"), (None,)),
    **dict.fromkeys(("random_drawn", "id_minted", "env_read", "check_finished"), (None,)),
    **dict.fromkeys(("state_changed", "span_started"), (None,)),
    "call_streamed": ("call_opened", "call_streamed"),
    "call_finished": (None, "call_opened", "call_streamed"),
    "call_failed": (None, "call_opened", "call_streamed"),
    "span_finished": ("span_started",),
}
ALONE = (
    *("run_started", "run_finished", "run_erased", "attempt_started", "task_forked", "task_joined"),
    *("task_cancelled", "timer_fired", "schedule_marked"),
)
NO_CALL_ID = {"model_proposed", "model_finished", "check_finished", "state_changed"}
NEEDS = {kind: ("call_id", "tool") if kind.startswith("tool_") else ("call_id",) for kind in set(AFTER) - NO_CALL_ID}
NEEDS |= {
    "run_started": ("budget_sha256", "contract_sha256"),
    "run_finished": ("status",),
    "attempt_started": ("attempt",),
    "check_finished": ("name", "passed"),
    "tool_allowed": ("call_id", "tool", "input_digest"),
    "tool_finished": ("call_id", "tool", "output_digest", "receipt_sha256"),
    "tool_confirmed": ("call_id", "tool", "outcome", "how"),
}
TYPES = {"attempt": (int,), "passed": (bool, type(None))}

# --- where a signal leads ---------------------------------------------------------------------------------------------

GOING = ("created", "running", "waiting", "denied", "interrupted")
CHECKED = (*GOING, "succeeded")
STATES = (*CHECKED, "retrying", "failed", "exhausted")
WORK = (
    *("model_requested", "model_proposed", "model_finished", "model_failed", "tool_allowed", "tool_requested"),
    *("tool_started", "tool_finished", "tool_failed", "retrieval_finished"),
    *("retrieval_failed", "call_finished", "call_failed", "span_started", "span_finished"),
)
MOVES = {
    "begin": {"": "created"},
    "work": dict.fromkeys(GOING, "running"),
    "attempt": dict.fromkeys((*GOING, "retrying"), "running"),
    "deny": dict.fromkeys(GOING, "denied"),
    "ask": dict.fromkeys(CHECKED, "waiting"),
    "pass": dict.fromkeys(CHECKED, "running"),
    "pass_all": dict.fromkeys(CHECKED, "succeeded"),
    "retry": dict.fromkeys(CHECKED, "retrying"),
    "exhaust": dict.fromkeys(CHECKED, "exhausted"),
    "ok": dict.fromkeys(CHECKED, "succeeded"),
    "error": {**dict.fromkeys((*CHECKED, "retrying"), "failed"), "exhausted": "exhausted"},
    "waiting": dict.fromkeys(GOING, "waiting"),
    "cancelled": dict.fromkeys(STATES, "interrupted"),
    "interrupted": dict.fromkeys(STATES, "interrupted"),
}


class Fault(Exception):
    """The first thing that is wrong: the check that found it, where, what."""

    def __init__(self, guard, where, said, code=2):
        super().__init__(f"{where}: {said} [{guard}]")
        self.guard, self.code = guard, code


def need(good, guard, where, said="is not as it has to be", code=2):
    """Raises the fault unless it is good."""
    if not good:
        raise Fault(guard, where, said, code)


# --- canonical JSON (RFC 8785, integers exact) and digests ------------------------------------------------------------


def number(value):
    """A number as ECMAScript prints it; integral ones with all their digits."""
    if isinstance(value, int) or value.is_integer():
        return str(Decimal(int(value)))
    text = repr(value)
    if "e" not in text:
        return text
    sign, (mantissa, power) = "-" if value < 0 else "", text.lstrip("-").split("e-")
    if abs(value) < 1e-6:
        return f"{sign}{mantissa}e-{int(power)}"
    return f"{sign}0.{'0' * (int(power) - 1)}{mantissa.replace('.', '')}"


def text(value):
    """A text as JSON, with the fewest escapes; a surrogate that stands alone as its escape."""
    value = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    lone = re.compile("[\ud800-\udfff]")
    return lone.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def canonical(value):
    """The canonical text of a JSON value."""
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{text(name)}:{canonical(one)}" for name, one in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, str):
        return text(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return number(value)


def sha(data):
    """SHA-256 as hex digits."""
    return hashlib.sha256(data).hexdigest()


def strict(data, guard, where):
    """A JSON object, read strictly."""

    def once(pairs):
        need(len({name for name, _ in pairs}) == len(pairs), guard, where, "a member comes twice")
        return dict(pairs)

    def finite(digits):
        need(math.isfinite(float(digits)), guard, where, "a number is out of range")
        return float(digits)

    def never(name):
        raise Fault(guard, where, f"{name} is no JSON")

    try:
        said = data.decode()
        need(depth(said) <= DEEPEST, guard, where, "nested too deeply")
        value = json.loads(
            said, object_pairs_hook=once, parse_float=finite, parse_int=lambda n: int(Decimal(n)), parse_constant=never
        )
    except (ValueError, RecursionError):
        raise Fault(guard, where, "not strict JSON in UTF-8") from None
    need(isinstance(value, dict), guard, where, "no JSON object")
    return value


def depth(said):
    """How deep lists and objects stand in each other; 0 where they are too few to be too deep."""
    if said.count("{") + said.count("[") <= DEEPEST:
        return 0
    deepest = level = 0
    for sign in re.sub(r'"(?:[^"\\]|\\.)*"', "", said):
        level += (sign in "{[") - (sign in "}]")
        deepest = max(deepest, level)
    return deepest


# --- the folder -------------------------------------------------------------------------------------------------------


def plain(path, name, most):
    """The bytes of a plain file, no link and not too large."""
    found = path.lstat()
    need(stat.S_ISREG(found.st_mode), "layout", name, "it is a link, or no plain file")
    need(found.st_size <= most, "layout", name, "it is too large")
    return path.read_bytes()


def read(folder):
    """All files of the folder by name, and its receipts."""
    names = sorted(path.name for path in folder.iterdir())
    for name in names:
        left = name.startswith(".replay_report.json.") and name.endswith(".part")  # by a replay that was killed
        need(left or name in (*FILES, "receipts"), "layout", name, "does not belong into a ledger")
    files = {name: plain(folder / name, name, LARGEST.get(name, 1 << 20)) for name in FILES if name in names}
    for name in FILES[:2]:
        need(name in files, "layout", name, "is not there")
    receipts = {}
    if "receipts" in names:
        need(stat.S_ISDIR((folder / "receipts").lstat().st_mode), "layout", "receipts", "is no folder")
        for path in sorted((folder / "receipts").iterdir()):
            need(path.name.endswith(".json"), "layout", path.name, "does not belong into a ledger")
            receipts[path.name] = plain(path, f"receipts/{path.name}", 1 << 20)
    return files, receipts


# --- the lines --------------------------------------------------------------------------------------------------------

FIELDS = {"schema_version": int, "seq": int, "run_id": str, "kind": str, "recorded_at": str, "payload": dict}
FIELDS |= {"prev_hash": str, "hash": str}


def read_lines(data):
    """The log as objects: json, schema_version, fields, run_id, sequence, kind, payload."""
    need(data, "json", "events.jsonl", "is empty")
    need(data.endswith(b"\n"), "json", "events.jsonl", "its last line was cut")
    lines = [strict(one, "json", f"line {n}") for n, one in enumerate(data.split(b"\n")[:-1], 1)]
    for n, line in enumerate(lines, 1):
        version = line.get("schema_version", 0)
        good = type(version) is int and 0 <= version < 1 << 63
        need(good, "schema_version", f"line {n}")
        need(version <= VERSION, "schema_version", f"line {n}", "is newer than this reader", 3)
        need(version == VERSION, "schema_version", f"line {n}", "belongs to a plain ledger")
    for n, line in enumerate(lines, 1):
        need(set(FIELDS) <= set(line) <= {*FIELDS, "parent_seq"}, "fields", f"line {n}")
        need(all(type(line[name]) is kind for name, kind in FIELDS.items()), "fields", f"line {n}")
        if "parent_seq" in line:
            need(type(line["parent_seq"]) is int and 0 < line["parent_seq"] < line["seq"], "fields", f"line {n}")
        need(line["run_id"], "fields", f"line {n}")
    for n, line in enumerate(lines, 1):
        need(line["run_id"] == lines[0]["run_id"], "run_id", f"line {n}")
    for n, line in enumerate(lines, 1):
        need(line["seq"] == n, "sequence", f"line {n}")
    for n, line in enumerate(lines, 1):
        need(line["kind"] in AFTER or line["kind"] in ALONE, "kind", f"line {n}", "is not known here", 3)
    for n, line in enumerate(lines, 1):
        payload, kind = line["payload"], line["kind"]
        for name in NEEDS.get(kind, ()):
            need(
                name in payload and type(payload[name]) in TYPES.get(name, (str,)),
                "payload",
                f"line {n}",
                f"lacks {name}",
            )
        if kind in ("model_proposed", "model_finished") and "finish_reason" in payload:
            proposes = payload["finish_reason"] in ("tool_calls", "tool_use", "function_call")
            need(proposes == (kind == "model_proposed"), "payload", f"line {n}")
        if kind == "tool_confirmed":
            known = payload["outcome"] in ("finished", "failed", "not_done") and payload["how"] in ("lookup", "person")
            result = payload["outcome"] != "finished" or isinstance(payload.get("output_digest"), str)
            need(known and result, "payload", f"line {n}")
        need(kind != "state_changed" or ("state" in payload) != ("name" in payload), "payload", f"line {n}")
    return lines


def lifecycle(lines):
    """Nothing ends that did not begin, nothing begins twice, no tool starts unallowed, no write without its intent."""
    stage, effect, ended = {}, {}, False
    for n, line in enumerate(lines, 1):
        kind, payload, where = line["kind"], line["payload"], f"line {n}"
        need((kind == "run_started") == (n == 1), "lifecycle", where)
        need(not ended or kind in ("run_erased", "tool_confirmed"), "lifecycle", where)
        ended = ended or kind in ("run_finished", "run_erased")
        if kind == "attempt_started":
            stage = {call: "interrupted" if at == "tool_started" else at for call, at in stage.items()}
        call = payload.get("call_id")
        if kind not in AFTER or not isinstance(call, str):
            continue
        before = stage.get(call)
        source = payload.get("source")
        source = payload.get("copied_source") if source == "recorded" else source
        if kind == "tool_finished" and before == "tool_allowed" and source not in (None, "live", "recorded"):
            before = "tool_started"  # a fork answered in the tool's place
        need(before in AFTER[kind], "lifecycle", where, f"{kind} cannot follow {before}")
        if kind == "tool_allowed":
            effect[call] = payload.get("effect")
        blind = before in ("tool_allowed", "interrupted", "not_done")
        need(not (kind == "tool_started" and effect[call] == "write" and blind), "lifecycle", where)
        stage[call] = "not_done" if kind == "tool_confirmed" and payload["outcome"] == "not_done" else kind


# --- receipts, terms, chain, checkpoint -------------------------------------------------------------------------------


def receipt_name(call):
    """What the receipt of a call is called."""
    name = re.sub(r"^\.", "%2E", quote(call, safe="~+@=,", errors="surrogatepass"))
    if len(name) > 200 or not name:
        name = "sha256-" + sha(call.encode("utf-8", "surrogatepass"))
    return name + ".json"


def term(data, guard, where, needed, optional=()):
    """A small file: strict JSON, of this version, with these members and no others."""
    value = strict(data, guard, where)
    version = value.get("schema_version", 0)
    need(type(version) is int and 0 <= version < 1 << 63, guard, where)
    need(version <= VERSION, guard, where, "is newer than this reader", 3)
    need(version == VERSION and set(needed) <= set(value) <= {*needed, *optional, "schema_version"}, guard, where)
    return value


def check_receipts(lines, receipts):
    """Every finished tool has its receipt, every receipt its call, and they agree."""
    last, said = {}, {}
    for line in lines:
        if line["kind"].startswith("tool_"):
            call = line["payload"]["call_id"]
            last[call], said[call] = line["kind"], {**said.get(call, {}), **line["payload"]}
    done = {call for call, kind in last.items() if kind == "tool_finished"}
    done |= {call for call, kind in last.items() if kind == "tool_confirmed" and said[call]["outcome"] == "finished"}
    for call in done:
        need(receipt_name(call) in receipts, "receipts", f"call {call}", "has no receipt")
    calls = {receipt_name(call): call for call in last}
    needed = ("run_id", "call_id", "tool", "arguments_digest", "result_digest")
    more = ("external_id", "idempotency_key")
    for name, data in sorted(receipts.items()):
        need(name in calls, "receipts", name, "belongs to no tool call")
        call, kind, payload = calls[name], last[calls[name]], said[calls[name]]
        may = kind in ("tool_finished", "tool_requested", "tool_started", "tool_unknown")
        need(may or call in done, "receipts", name, "did not finish")
        need(payload.get("receipt_sha256", sha(data)) == sha(data), "receipts", name, "is another one")
        receipt = term(data, "receipts", name, needed, more)
        need(all(isinstance(receipt[one], str) for one in (*needed, *more) if one in receipt), "receipts", name)
        agreed = {"run_id": lines[0]["run_id"], "call_id": call, "tool": payload["tool"]}
        agreed |= {"arguments_digest": payload.get("input_digest"), "idempotency_key": payload.get("idempotency_key")}
        if call in done:
            agreed |= {"result_digest": payload["output_digest"], "external_id": payload.get("external_id")}
        for member, value in agreed.items():
            need(receipt.get(member) == value, "receipts", name, f"{member} is not the one of the event")


LIMITS = ("max_attempts", "max_model_calls", "max_tool_calls", "max_tokens")


def check_terms(files, first):
    """Budget and contract are those that the run was started with."""
    where = "budget.json"
    need(first["budget_sha256"] == sha(files[where]), "budget_digest", where)
    budget = term(files[where], "budget_digest", where, LIMITS)
    for name in LIMITS:
        value = budget[name]
        need(value is None or (type(value) is int and 0 <= value < 1 << 63), "budget_digest", where, name)
    where, guard = "contract.json", "contract_digest"
    need(where in files, guard, where, "is not there")
    need(first["contract_sha256"] == sha(files[where]), guard, where)
    contract = term(files[where], guard, where, ("goal", "allowed_tools", "asked_tools", "checks"))
    need(contract["goal"] is None or isinstance(contract["goal"], str), guard, where, "goal")
    for name in ("allowed_tools", "asked_tools"):
        named = contract[name]
        need(isinstance(named, list) and all(isinstance(one, str) for one in named), guard, where, name)
        need(len(set(named)) == len(named), guard, where, name)
    checks = {}
    need(isinstance(contract["checks"], list), guard, where, "checks")
    for one in contract["checks"]:
        good = isinstance(one, dict) and isinstance(one.get("name"), str) and one["name"] not in checks
        need(good and isinstance(one.get("required", True), bool), guard, where, "checks")
        checks[one["name"]] = one.get("required", True)
    return budget, contract, checks


def check_chain(lines):
    """Every line is linked to the one before it, as it was sealed."""
    before = "0" * 64
    for n, line in enumerate(lines, 1):
        need(line["prev_hash"] == before, "chain", f"line {n}")
        sealed = canonical({name: value for name, value in line.items() if name not in ("prev_hash", "hash")})
        before = sha(before.encode() + sealed.encode())
        need(line["hash"] == before, "chain", f"line {n}")


def check_checkpoint(files, receipts, lines):
    """Number of events, head and digests of all files are those of the checkpoint."""
    where = "checkpoint.json"
    need(where in files, "checkpoint", where, "is not there")
    actual = {
        "run_id": lines[0]["run_id"],
        "events": len(lines),
        "head": lines[-1]["hash"],
        "events_sha256": sha(files["events.jsonl"]),
        "receipts_sha256": sha(canonical([[name, sha(data)] for name, data in sorted(receipts.items())]).encode()),
        "budget_sha256": sha(files["budget.json"]),
        "contract_sha256": sha(files["contract.json"]),
        "bodies_sha256": sha(files["bodies.jsonl"]) if "bodies.jsonl" in files else None,
    }
    said = term(files[where], "checkpoint", where, actual, ("key_id", "signature"))
    for name, digits in (("key_id", 64), ("signature", 128)):
        value = said.get(name) if "key_id" in said or "signature" in said else "0" * digits
        good = isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{digits}}}", value)
        need(good, "checkpoint", where, f"{name} is not {digits} hex digits")
    for name, value in actual.items():
        need(
            said[name] == value and type(said[name]) is type(value),
            "checkpoint",
            where,
            f"{name} is not that of the folder",
        )
    return said


def check_signature(said, keys):
    """One of these public keys signed the checkpoint: a line that says what for, and all other members."""
    where, guard = "checkpoint.json", "signature"
    need("signature" in said, guard, where, "is not signed, and a public key was given")
    known = {sha(key): key for key in keys}
    need(said["key_id"] in known, guard, where, "was signed by another key")
    signed = canonical({name: value for name, value in said.items() if name != "signature"})
    data = b"agentloupe ledger 1\n" + signed.encode()
    good = signed_by(known[said["key_id"]], data, bytes.fromhex(said["signature"]))
    need(good, guard, where, "the signature does not fit")


def check_bodies(files, lines):
    """Every value fits its digest, and none is missing, unless the events say that some are."""
    if "bodies.jsonl" not in files:
        return
    held, needed = set(), set()
    for n, line in enumerate(files["bodies.jsonl"].split(b"\n")[:-1], 1):
        found = re.fullmatch(rb'\{"body":"([0-9a-f]{64})","value":(.*)\}', line, re.DOTALL)
        if not found:
            raise Fault("bodies", f"bodies.jsonl line {n}", "is no line of a value")
        need(sha(found[2]) == found[1].decode() and found[1] not in held, "bodies", f"bodies.jsonl line {n}")
        held.add(found[1])
        needed |= parts_of(found[2])
    gone = any(line["kind"] == "run_erased" or line["payload"].get("coverage") == "lossy" for line in lines)
    for n, line in enumerate(lines, 1):
        payload = line["payload"]
        more = payload.get("bodies")
        named = [
            payload.get("input_digest"),
            payload.get("output_digest"),
            *(more.values() if isinstance(more, dict) else ()),
        ]
        missing = {one.encode() for one in named if isinstance(one, str)} - held
        need(gone or not missing, "bodies", f"line {n}", "a value is missing")
    need(gone or not needed - held, "bodies", "bodies.jsonl", "a part of a value is missing")


def parts_of(data):
    """Digests of the other bodies that this one needs: each `$ref`, and the base of a `$list`; what stands in `$esc` is a text."""
    if data[:1] == b'"' or b"$" not in data:
        return set()
    value, found = strict(b'{"":%s}' % data, "bodies", "bodies.jsonl")[""], set()
    if isinstance(value, dict) and isinstance(value.get("$list"), dict):
        found.add(value["$list"].get("base"))
    todo = [value]
    while todo:
        one = todo.pop()
        mark = next(iter(one), None) if isinstance(one, dict) and len(one) == 1 else None
        if mark == "$ref" and isinstance(one[mark], str):
            found.add(one[mark])
        elif mark == "$esc" and isinstance(one[mark], dict):
            todo += one[mark].values()
        elif isinstance(one, dict | list):
            todo += one.values() if isinstance(one, dict) else one
    need(all(isinstance(one, str) for one in found), "bodies", "bodies.jsonl")
    return {one.encode() for one in found}


# --- Ed25519 (RFC 8032): only checking, nothing secret, so it need not run in constant time ------------------------------

P = 2**255 - 19  # section 5.1: the field, the order of the base point, the constant d
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)  # of -1
ONE = (0, 1, 1, 0)


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
    total = ONE
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
    """The keys of a PEM file: each is 32 bytes behind a fixed beginning (RFC 8410, section 4)."""
    found = re.findall(rb"-----BEGIN PUBLIC KEY-----\s(.*?)-----END PUBLIC KEY-----", data, re.DOTALL)
    try:
        keys = [base64.b64decode(b"".join(one.split()), validate=True) for one in found]
    except binascii.Error:
        keys = []
    start = bytes.fromhex("302a300506032b6570032100")
    need(keys and all(len(one) == 44 and one[:12] == start for one in keys), "key", "--public-key", "no such key", 3)
    return [one[12:] for one in keys]


# --- what follows -----------------------------------------------------------------------------------------------------


class Run:
    """The state of the run, folded from its lines."""

    def __init__(self, budget, contract, checks):
        self.budget, self.contract, self.checks = budget, contract, checks
        self.state, self.ended = "", False
        self.used = dict.fromkeys(LIMITS, 0)
        self.open, self.asked, self.passed, self.failed = set(), set(), set(), set()

    def count(self, kind, payload):
        """What the line uses of the budget."""
        call, used = payload.get("call_id", ""), self.used
        if kind == "model_requested":
            used["max_model_calls"] += 1
            self.asked.add(call)
        elif kind in ("model_proposed", "model_finished"):
            used["max_model_calls"] += call not in self.asked
            tokens = [payload.get(name) for name in ("input_tokens", "output_tokens")]
            used["max_tokens"] += sum(n for n in tokens if type(n) is int and 0 <= n < 1 << 63)
        elif kind in ("tool_requested", "tool_started"):
            used["max_tool_calls"] += kind == "tool_started"
            self.open.add(call)
        elif kind in ("tool_finished", "tool_failed", "tool_confirmed", "tool_denied"):
            self.open.discard(call)

    def signal(self, kind, payload):
        """What the line says for the state; `False` for what must not be said."""
        if kind in WORK:
            return "work"
        if kind == "check_finished" and self.checks.get(payload["name"]):
            return self.judged(payload["name"], payload["passed"])
        if kind == "attempt_started":
            before, attempt = self.used["max_attempts"], payload["attempt"]
            if attempt != before + 1 and (before, attempt) != (0, 2):
                return False
            self.used["max_attempts"] = attempt
            self.passed, self.failed = set(), set()
            return "attempt"
        if kind == "run_finished":
            self.ended = True
            return payload["status"] if payload["status"] in ("ok", "waiting", "cancelled", "interrupted") else "error"
        return {"run_started": "begin", "tool_denied": "deny"}.get(kind)

    def judged(self, name, passed):
        """A required check: passed, failed, or it waits for a person."""
        if passed is None:
            return "ask"
        (self.passed if passed else self.failed).add(name)
        (self.failed if passed else self.passed).discard(name)
        if passed:
            return (
                "pass_all"
                if {one for one, must in self.checks.items() if must} <= self.passed and not self.failed
                else "pass"
            )
        most = self.budget["max_attempts"]
        return "retry" if most is None or max(self.used["max_attempts"], 1) < most else "exhaust"


def derive(lines, budget, contract, checks):
    """The fold; the first fault of `budget`, then of `authorisation`, `stop`, `state`."""
    run, faults = Run(budget, contract, checks), {}
    for n, line in enumerate(lines, 1):
        kind, payload, where = line["kind"], line["payload"], f"line {n}"
        most = budget["max_tool_calls"]
        used_up = most is not None and run.used["max_tool_calls"] >= most
        run.count(kind, payload)
        signal = run.signal(kind, payload)
        if any(budget[name] is not None and run.used[name] > budget[name] for name in LIMITS):
            faults.setdefault("budget", where)
        tool, allowed = payload.get("tool"), contract["allowed_tools"]
        if tool not in contract["asked_tools"]:
            wrong = (kind == "tool_allowed" and tool not in allowed) or (
                kind == "tool_denied" and tool in allowed and not used_up
            )
            if wrong:
                faults.setdefault("authorisation", where)
        if kind == "check_finished" and payload["name"] not in checks:
            faults.setdefault("authorisation", where)
        if signal is False or (signal and run.state not in MOVES[signal]):
            faults.setdefault("stop", where)
        elif signal:
            run.state = MOVES[signal][run.state]
        if kind == "state_changed" and "state" in payload:
            claimed = payload["state"]
            if claimed not in STATES or not (claimed == run.state or (claimed == "interrupted" and run.open)):
                faults.setdefault("state", where)
    for guard in ("budget", "authorisation", "stop", "state"):
        need(guard not in faults, guard, faults.get(guard))
    return "interrupted" if run.open and not run.ended else run.state


def judge(files, receipts, anchor=None, keys=None):
    """All checks of the contents, in their order; what a replay prints. Raises `Fault`."""
    lines = read_lines(files["events.jsonl"])
    lifecycle(lines)
    check_receipts(lines, receipts)
    budget, contract, checks = check_terms(files, lines[0]["payload"])
    check_chain(lines)
    checkpoint = check_checkpoint(files, receipts, lines)
    if keys is not None:
        check_signature(checkpoint, keys)
    if anchor is not None:
        events, head = anchor
        known = events <= len(lines) and (lines[events - 1]["hash"] if events else "0" * 64) == head
        need(known, "anchor", f"event {events}", "is not the one that the anchor knows")
    check_bodies(files, lines)
    state = derive(lines, budget, contract, checks)
    return f"events={len(lines)} receipts={len(receipts)} state={state}"


class Words(argparse.ArgumentParser):
    """The words of the command line."""

    def error(self, message):
        """Ends with 64, so that nobody takes wrong words for damage."""
        self.exit(64, f"{self.prog}: {message}\n")


def anchor_of(word):
    """What `--anchor` says."""
    events, _, head = word.partition(":")
    if not re.fullmatch("[0-9]{1,18}", events) or not re.fullmatch("[0-9a-fA-F]{64}", head):
        raise argparse.ArgumentTypeError("not N:HASH")
    return int(events), head.lower()


def main(words):
    """The command."""
    asked = Words(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    asked.add_argument("folder", type=Path, metavar="FOLDER")
    asked.add_argument("--anchor", type=anchor_of, metavar="N:HASH")
    asked.add_argument("--public-key", type=Path, metavar="FILE")
    said = asked.parse_args(words)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 20 * DEEPEST))  # a few calls for each level of a line
    try:
        keys = public_keys(said.public_key.read_bytes()) if said.public_key else None
        print(judge(*read(said.folder), said.anchor, keys))
    except Fault as fault:
        print(fault, file=sys.stderr)
        return fault.code
    except OSError as wrong:
        print(wrong, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
