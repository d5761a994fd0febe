"""One canonical form, checked against published facts, two other implementations and a naive one of our own."""

from __future__ import annotations

import enum
import hashlib
import json
import math
import random
import shutil
import struct
import subprocess
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from agentloupe.words import canonical as room
from agentloupe.words.canonical import FORM, canonical, digest, digest_bytes, digest_parts, dumps, key_of, loads
from agentloupe.words.jsontext import MAX_DEPTH, JsonFault
from tests.support import ROOT
from tests.unit.values import ANY_TEXT, FLOATS, PLAIN_TEXT, json_values, same

VECTORS = json.loads((ROOT / "tests" / "vectors" / "canonical.json").read_text("utf-8"))


def sha(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


# ---------------------------------------------------------------- published facts


def test_the_form_has_a_name_that_the_vectors_are_for() -> None:
    assert VECTORS["form"] == FORM == "loupe-c1"


@pytest.mark.parametrize("vector", VECTORS["values"], ids=lambda v: v["why"])
def test_vectors(vector) -> None:
    value = loads(vector["text"])
    assert canonical(value).decode() == vector["canonical"]
    assert digest(value) == sha(vector["canonical"]) == vector["sha256"]


@pytest.mark.parametrize("vector", VECTORS["doubles"], ids=lambda v: v["bits"])
def test_doubles_of_rfc_8785(vector) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(vector["bits"]))
    assert canonical(value).decode() == vector["text"]


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda v: f"{v['kind']} {v['text']}")
def test_keys(vector) -> None:
    assert key_of(vector["kind"], vector["name"], loads(vector["text"])) == vector["key"] == sha(vector["of"])


def test_digests_are_sha_256() -> None:
    assert digest_bytes(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest_parts([b"a", b"", b"bc"]) == digest_bytes(b"abc")


# ---------------------------------------------------------------- other implementations

_SAFE = st.integers(-(2**53) + 1, 2**53 - 1)
_FRACTIONS = FLOATS.filter(lambda f: not f.is_integer())


@given(json_values(st.none() | st.booleans() | _SAFE | _FRACTIONS | PLAIN_TEXT, PLAIN_TEXT))
def test_equals_rfc8785_where_numbers_allow(value) -> None:
    assert canonical(value) == rfc8785.dumps(value)


def naive(value: object) -> str:
    """The form, as plainly as it can be written."""
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda m: m[0].encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{naive(k)}:{naive(v)}" for k, v in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(naive, value)) + "]"
    if isinstance(value, float):
        if not math.isfinite(value):
            name = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(value)]
            return f'{{"$float":"{name}"}}'
        return str(int(value)) if value == int(value) else rfc8785.dumps(value).decode()
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)
    return json.dumps(value)


@given(json_values(st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT))
@example([1e16, 1e15 + 0.5, 1e-4, 9e-5, 1e-6, 9e-7, -0.0, 5e-324, 2**64, -(2**63) - 1])
@example({"\ue000": 1, "😀": 2, "\udfff": 3})
def test_equals_a_naive_implementation(value) -> None:
    assert canonical(value).decode() == naive(value)


def test_prints_doubles_as_javascript_does() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node on PATH to compare with")
    chance = random.Random(8785)
    bits = [chance.getrandbits(64) for _ in range(3000)]
    near = [chance.uniform(-1, 1) * 10.0 ** chance.randint(-12, 22) for _ in range(3000)]
    doubles = [f for f in [*(struct.unpack(">d", b.to_bytes(8, "big"))[0] for b in bits), *near] if math.isfinite(f)]
    script = """
        const text = require("fs").readFileSync(0, "utf8");
        const all = JSON.parse(text).map(x => Number.isInteger(x) ? BigInt(x).toString() : JSON.stringify(x));
        process.stdout.write(JSON.stringify(all));
    """
    told = subprocess.run([node, "-e", script], input=json.dumps(doubles), capture_output=True, text=True, check=True)
    assert [canonical(f).decode() for f in doubles] == json.loads(told.stdout)


# ---------------------------------------------------------------- laws


@given(json_values())
def test_order_of_keys_and_white_space_do_not_matter(value) -> None:
    shuffled = loads(json.dumps(loads(dumps(value)), indent=2, sort_keys=True, ensure_ascii=True))
    assert canonical(shuffled) == canonical(value)


@given(json_values())
def test_reading_the_form_gives_the_form(value) -> None:
    assert canonical(loads(canonical(value))) == canonical(value)


def test_numbers_compare_by_value_and_booleans_are_none() -> None:
    assert digest(1) == digest(1.0) == digest(loads("1e0"))
    assert digest(10**21) == digest(1e21)
    assert digest(0) == digest(-0.0) != digest(False)
    kinds: list[Any] = [1, True, "1", [1], {"1": 1}, None]
    assert len({digest(x) for x in kinds}) == 6
    assert digest(2**53) != digest(2**53 + 1)


def test_huge_integers_are_exact() -> None:
    huge = 7 * 10**9000 + 1
    text = canonical(huge)
    assert text == b"7" + b"0" * 8999 + b"1"
    assert loads(text) == huge
    assert loads(dumps({"n": huge})) == {"n": huge}


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    pass


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ((1, 2), "$: a value of type tuple is no JSON"),
        ({"a": [1, {"b": (2,)}]}, "$.a[1].b: a value of type tuple is no JSON"),
        ({"a": {1: 2}}, "$.a: a key of type int is no JSON"),
        ({"a": b"x"}, "$.a: a value of type bytes is no JSON"),
        ([Colour.RED], "$[0]: a value of type Colour is no JSON"),
        ({"a": Text("x")}, "$.a: a value of type Text is no JSON"),
        ({Text("a"): 1}, "$: a key of type Text is no JSON"),
        ({"a": {1, 2}}, "$.a: a value of type set is no JSON"),
    ],
)
@pytest.mark.parametrize("write", [canonical, dumps])
def test_what_is_no_json_is_named_with_its_path(write, value, says) -> None:
    with pytest.raises(TypeError) as told:
        write(value)
    assert str(told.value) == says


def nested(levels: int) -> list:
    value: list = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize("write", [canonical, dumps])
def test_depth_has_a_bound_and_never_a_recursion_error(write) -> None:
    deep = nested(MAX_DEPTH)
    assert write(loads(write(deep))) == write(deep) == b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    with_a_large_integer = write({"a": deep[0], "n": 2**80})
    assert write(loads(with_a_large_integer)) == with_a_large_integer
    with pytest.raises(ValueError, match="nested deeper than 1000 levels"):
        write(nested(MAX_DEPTH + 1))
    endless: list = []
    endless += [endless, endless]
    with pytest.raises(ValueError, match="nested deeper"):
        write(endless)
    with pytest.raises(JsonFault, match="nested deeper"):
        loads("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


# ---------------------------------------------------------------- exact text


@given(json_values())
@example({"b": 1, "a": 1.0, "c": [1e16, -0.0, 1e-7, 2**64, "\udc00", "é\x7f\x00"]})
def test_exact_text_comes_back_with_types_and_order(value) -> None:
    assert same(loads(dumps(value)), value)
    assert same(loads(dumps(value).decode()), value)
    assert same(json.loads(dumps(value)), value)


@given(json_values())
def test_both_ways_of_writing_give_one_text(value) -> None:
    beside_a_large_integer = dumps([value, 2**80])
    assert beside_a_large_integer == b"[%s,%d]" % (dumps(value), 2**80)


def test_exact_text_is_neither_sorted_nor_escaped() -> None:
    assert dumps({"b": "é/😀\u2028", "a": 1.0}) == '{"b":"é/😀\u2028","a":1.0}'.encode()


def test_floats_that_json_does_not_have_are_tagged() -> None:
    value: Any = [math.nan, {"x": -math.inf}, math.inf, None]
    text = b'[{"$float":"NaN"},{"x":{"$float":"-Infinity"}},{"$float":"Infinity"},null]'
    assert dumps(value) == canonical(value) == text


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert loads(dumps("\ud83d\ude00")) == "😀"
    assert digest("\ud83d\ude00") == digest("😀") != digest("\ude00\ud83d")


@pytest.mark.parametrize("vector", VECTORS["faults"], ids=lambda v: v["text"] or "(empty)")
def test_faults_have_a_place(vector) -> None:
    with pytest.raises(JsonFault) as told:
        loads(vector["text"])
    assert told.value.position == vector["position"]
    assert f"at character {vector['position']} (line 1, column {vector['position'] + 1})" in str(told.value)


def test_a_fault_says_line_and_column() -> None:
    with pytest.raises(JsonFault, match=r"duplicate key at character 14 \(line 3, column 2\)"):
        loads('{\n "abc": 1,\n "abc": 2}')


@given(st.text(alphabet='{}[]",:\\ 0123456789.eE+-truefalsn\n\tuNI', max_size=20))
@example("1e999")
@example("-0")
@example("1.0e5")
@example('"\\ud83d\\ude00"')
def test_reads_what_the_standard_library_reads_but_for_what_is_not_strict(text) -> None:
    def pairs(found):
        if len(dict(found)) != len(found):
            raise ValueError
        return dict(found)

    def refuse(_):
        raise ValueError

    try:
        expected = json.loads(text, object_pairs_hook=pairs, parse_constant=refuse)
    except ValueError:
        expected = ValueError
    if "inf" in repr(expected):
        expected = ValueError
    try:
        found = loads(text)
    except ValueError:
        found = ValueError
    assert same(found, expected)


def test_bytes_must_be_utf_8() -> None:
    with pytest.raises(ValueError):
        loads(b'"\xff"')


# ---------------------------------------------------------------- keys


def naive_key(request: Any) -> str:
    lists = {k: request[k] for k in room.SHARED_LISTS if isinstance(request.get(k), list)}
    rest = {k: v for k, v in request.items() if k not in lists}
    told = {k: sha(b"".join(hashlib.sha256(naive(i).encode()).digest() for i in v)) for k, v in lists.items()}
    return sha(naive(["llm", rest, told]))


_MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(["role", "content", "n"]), json_values(max_leaves=3), max_size=3), max_size=6
)


@given(_MESSAGES, st.lists(st.tuples(st.integers(0, 6), json_values(max_leaves=2)), max_size=6), st.booleans())
def test_model_keys_do_not_depend_on_what_was_seen_before(messages, edits, fresh) -> None:
    for at, message in [(0, None), *edits]:
        if message is not None:
            messages = [*messages[:at], message, *messages[at + fresh :]]
        request: Any = {"messages": messages, "model": "m", "n": len(messages), "tools": [{"a": 1.0}]}
        assert key_of("llm", "any name", request) == naive_key(request)


def test_a_nan_is_not_taken_for_the_null_that_stood_there() -> None:
    keys = [
        key_of("llm", "", {"messages": [{"n": n}, {"long": "x" * 50}, *([1] * more)]})
        for n, more in [(None, 0), (math.nan, 0), (None, 1), (math.nan, 1)]
    ]
    assert len(set(keys)) == 4


def test_a_growing_context_is_digested_once(monkeypatch) -> None:
    calls: list[int] = []
    real = room.canonical

    def counted(value):
        calls.append(len(orjson.dumps(value)))
        return real(value)

    monkeypatch.setattr(room, "canonical", counted)
    messages: list[Any] = [{"role": "user", "content": f"growing {i} " + "x" * 300} for i in range(200)]
    key_of("llm", "", {"messages": messages})
    calls.clear()
    key_of("llm", "", {"messages": [*messages, {"role": "user", "content": "new"}]})
    assert len(calls) == 2  # the new message and the request around the lists
    assert sum(calls) < 300


def test_kinds_and_names_take_part() -> None:
    assert len({key_of(k, n, {}) for k in ("tool", "retrieval", "other") for n in ("a", "b")}) == 6
    assert key_of("llm", "chat a", {"messages": []}) == key_of("llm", "chat b", {"messages": []})
    assert key_of("llm", "a", "text") != key_of("llm", "a", None)


@pytest.mark.parametrize("raw", [None, "", "  \n", "null", " null ", "{}", " {\n} "])
def test_no_arguments_are_one_key(raw) -> None:
    assert key_of("tool", "now", raw) == key_of("tool", "now", {})


def test_text_of_arguments_is_the_object_only_as_a_whole() -> None:
    one = key_of("tool", "f", {"a": {"b": 1}})
    assert key_of("tool", "f", '{"a": {"b": 1.0}}') == one
    assert key_of("tool", "f", {"a": '{"b": 1}'}) != one
    assert key_of("tool", "f", '"{\\"a\\": 1}"') != key_of("tool", "f", {"a": 1})
    assert key_of("tool", "f", '{"a": 1') != key_of("tool", "f", '{"a":1')
    assert key_of("other", "f", "{}") != key_of("other", "f", {})
