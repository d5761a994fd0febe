"""Secrets in streams: found however they are cut, removed without moving anything else."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine import streamscrubber
from agentloupe.engine.privacy import Rules, StreamScrubber, scrub, scrub_text
from agentloupe.engine.streamframes import Frames
from agentloupe.engine.streamscrubber import spread

RULES = Rules()
KEY = "sk-" + "ant-api03-1234567890abcdefghij"
PEM = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEow\nabc=\n-----END RSA " + "PRIVATE KEY-----"
JWT = ".".join(("eyJ" + "hbGciOiJIUzI1NiJ9", "eyJ" + "zdWIiOiIxMjM0In0", "c2lnbmF0dXJl"))
SECRETS = {
    "key": (f"the key is {KEY}, keep it", KEY),
    "bearer": ("send Authorization: Bearer abc-123-def now", "abc-123-def"),
    "url": ("postgres://bob:p%40ss-1@db/x is it", "p%40ss-1"),
    "query": ("GET https://x.invalid/y?Api_Key=zq9zq9&page=2", "zq9zq9"),
    "quoted": ("{'password': 'hunter2 and more', 'user': 'demo'}", "hunter2 and more"),
    "assigned": ("PASSWORD=hunter22 make", "hunter22"),
    "name in parts": ("my api_key = 'z1 z2' is it", "z1 z2"),
    "flag in parts": ("mycli --api-key=z1z2z3z4 run", "z1z2z3z4"),
    "cookie": ("Cookie: sid=z1z2z3; theme=dark\nnext", "z1z2z3"),
    "pem": (f"here it is\n{PEM}\nthat was it", "MIIEow"),
    "jwt": (f"token {JWT} ends", JWT[24:]),
    "prose": ("no secret 東京 here, but a token and a keyword or two", None),
}

# --- streams of three APIs ----------------------------------------------------------------------------------------------


def _chat(parts: Iterable[str], field: str = "content") -> list[Any]:
    return [{"id": "c-1", "choices": [{"index": 0, "delta": {field: part}}]} for part in parts]


def _tool(parts: Iterable[str]) -> list[Any]:
    def call(part: str) -> Any:
        return {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}

    return [{"id": "c-1", "choices": [{"index": 0, "delta": call(part)}]} for part in parts]


def _anthropic(parts: Iterable[str]) -> list[Any]:
    kind = "content_block_delta"
    return [{"type": kind, "index": 1, "delta": {"type": "text_delta", "text": part}} for part in parts]


def _anthropic_json(parts: Iterable[str]) -> list[Any]:
    kind = "content_block_delta"
    return [{"type": kind, "index": 1, "delta": {"type": "input_json_delta", "partial_json": part}} for part in parts]


def _responses(parts: Iterable[str]) -> list[Any]:
    kind = "response.output_text.delta"
    return [{"type": kind, "output_index": 0, "content_index": 0, "delta": part} for part in parts]


def _said(record: Any) -> str:
    """The text that one record carries, of whichever API."""
    if "choices" in record:
        delta = record["choices"][0]["delta"]
        return delta["tool_calls"][0]["function"]["arguments"] if "tool_calls" in delta else delta["content"]
    delta = record["delta"]
    return delta if isinstance(delta, str) else delta.get("text", "") + delta.get("partial_json", "")


APIS: dict[str, Callable[[Iterable[str]], list[Any]]] = {
    "chat": _chat,
    "tool": _tool,
    "anthropic": _anthropic,
    "anthropic json": _anthropic_json,
    "responses": _responses,
}


def _events(records: list[Any], *, end: str = "\n", spaced: bool = True) -> bytes:
    separators = None if spaced else (",", ":")
    lines = [f"data: {json.dumps(r, ensure_ascii=False, separators=separators)}{end}{end}" for r in records]
    return "".join((*lines, f"data: [DONE]{end}{end}")).encode()


def _records(content: bytes) -> list[Any]:
    lines = [line for line in content.decode().splitlines() if line.startswith("data: {")]
    return [json.loads(line[6:]) for line in lines]


def _cut(content: bytes, sizes: Iterable[int]) -> list[tuple[float, bytes]]:
    pieces: list[tuple[float, bytes]] = []
    at = 0
    for i, size in enumerate(sizes):
        pieces.append((float(i), content[at : at + size]))
        at += size
        if at >= len(content):
            return pieces
    return [*pieces, (float(len(pieces)), content[at:])]


def _run(pieces: list[tuple[float, bytes]], rules: Rules = RULES) -> list[tuple[float, bytes]]:
    stream = StreamScrubber(rules)
    out = [done for piece in pieces for done in stream.feed([piece])]
    return [*out, *stream.end()]


def _joined(pieces: list[tuple[float, bytes]]) -> bytes:
    return b"".join(content for _, content in pieces)


def _in_parts(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


# --- what goes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_secret_cut_over_events_is_what_it_is_in_one_text(api: str, name: str, size: int) -> None:
    text, secret = SECRETS[name]
    content = _events(APIS[api](_in_parts(text, size)))
    pieces = _cut(content, [11] * 10_000)
    out = _run(pieces)
    assert "".join(map(_said, _records(_joined(out)))) == scrub_text(text, RULES)
    assert [ms for ms, _ in out] == [ms for ms, _ in pieces]
    assert secret is None or secret.encode() not in _joined(out)
    assert secret is not None or out == pieces


@pytest.mark.parametrize("api", APIS)
def test_arguments_are_looked_at_by_their_names(api: str) -> None:
    text = '{"user": "demo", "credentials": {"pin": 1234, "note": "n1"}, "api_key": "zq-zq-zq", "città": "Rōma"}'
    out = _run(_cut(_events(APIS[api](_in_parts(text, 4))), [5] * 10_000))
    said = "".join(map(_said, _records(_joined(out))))
    assert json.loads(said) == scrub(json.loads(text), RULES).value
    assert "1234" not in said
    assert "zq-zq" not in said


def test_interleaved_texts_are_kept_apart() -> None:
    a, b = _in_parts(f"first {KEY} end", 5), _in_parts('{"password": "hunter2"}', 4)
    records: list[Any] = []
    for i in range(max(len(a), len(b))):
        calls = [{"index": n, "function": {"arguments": parts[i]}} for n, parts in enumerate((a, b)) if i < len(parts)]
        records += [{"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in calls]
    got: dict[int, str] = {}
    for record in _records(_joined(_run(_cut(_events(records), [9] * 10_000)))):
        call = record["choices"][0]["delta"]["tool_calls"][0]
        got[call["index"]] = got.get(call["index"], "") + call["function"]["arguments"]
    assert got == {0: "first [removed:key] end", 1: '{"password": "[removed:password]"}'}


def test_what_stands_beside_is_cleaned_by_its_name() -> None:
    records = [{"type": "start", "session": {"client_secret": {"value": "ek-zz"}, "id": "s"}}, *_chat(["hello"])]
    out = _joined(_run([(0.0, _events(records))]))
    assert b"ek-zz" not in out
    assert _records(out)[1:] == _chat(["hello"])


@pytest.mark.parametrize("size", [1, 4, 50])
def test_lines_of_json_and_bodies_without_frames(size: int) -> None:
    parts = _in_parts(f"the key is {KEY} end", 6)
    lines = "".join(json.dumps({"message": {"content": part}, "done": False}) + "\n" for part in parts).encode()
    out = _joined(_run(_cut(lines, [size] * 10_000)))
    assert (
        "".join(json.loads(line)["message"]["content"] for line in out.splitlines()) == "the key is [removed:key] end"
    )
    for body in (json.dumps({"a": {"credentials": {"pin": 77123}}}, indent=1), f"plain 東 {KEY} text", KEY):
        out = _joined(_run(_cut(body.encode(), [size] * 10_000)))
        assert out.decode() == scrub_text(body, RULES)
        assert b"77123" not in out


def test_bytes_that_are_no_text_stay_and_secrets_in_them_go() -> None:
    body = b"\x89PNG\r\n\xff\xfe\x00" * 9 + b" Authorization: Bearer abc-123-def " + bytes(range(128, 256))
    out = _joined(_run(_cut(body, [7] * 1000)))
    assert out == body.replace(b"abc-123-def", b"[removed:authorization]")


def test_names_comments_and_plain_data_of_events() -> None:
    body = f": {KEY}\n\nevent: tick\ndata: {KEY[:9]}\n\ndata: {KEY[9:]}\n\ndata: . a\ndata: b\n\n".encode()
    out = _joined(_run(_cut(body, [6] * 1000)))
    assert KEY[9:].encode() not in out
    assert out.startswith(b": [removed:key]\n\nevent: tick\n")
    assert out.endswith(b"data: . a\ndata: b\n\n")


# --- what stays ---------------------------------------------------------------------------------------------------------


def test_what_is_opaque_is_never_touched() -> None:
    delta = {"type": "signature_delta", "signature": KEY}
    records = [
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "x", "item": {"type": "reasoning", "encrypted_content": KEY, "id": KEY}},
        {"type": "image", "partial_image_b64": "", "b64_json": KEY, "url": f"data:image/png;base64,{KEY}"},
    ]
    content = _events(records, spaced=False)
    assert _joined(_run(_cut(content, [13] * 1000))) == content


def test_streams_of_the_field_come_out_as_they_went_in(shared: Any) -> None:
    files = sorted((shared / "data").glob("sse_*/**/*"))
    files = [f for f in files if f.is_file()]
    assert files
    for file in files:
        content = file.read_bytes()[:300_000]
        pieces = _cut(content, [random.Random(file.name).randint(1, 900)] * 100_000)
        assert _run(pieces) == pieces, file.name


@given(st.text(max_size=200), st.lists(st.integers(0, 40), max_size=20), st.sampled_from(["\n", "\r\n", "\r"]))
def test_no_piece_is_lost_or_moved(text: str, sizes: list[int], end: str) -> None:
    content = _events(_chat(_in_parts(text, 3)), end=end)
    pieces = _cut(content, sizes)
    out = _run(pieces)
    assert [ms for ms, _ in out] == [ms for ms, _ in pieces]
    if scrub_text(text, RULES) == text:
        assert out == pieces


@given(st.binary(max_size=120), st.lists(st.integers(0, 9), max_size=20))
def test_any_bytes_pass(content: bytes, sizes: list[int]) -> None:
    pieces = _cut(content, sizes)
    assert [ms for ms, _ in _run(pieces)] == [ms for ms, _ in pieces]
    frames = Frames()
    whole = [frame for _, piece in pieces for frame in frames.feed(piece)] + frames.end()
    assert [f.start for f in whole] == [0, *(f.end for f in whole)][: len(whole)]
    assert not whole or whole[-1].end == len(content)


WORDS = st.sampled_from(
    [
        *(text for text, _ in SECRETS.values()),
        "key",
        " ",
        "token",
        ".",
        "{",
        '"',
        "x=1",
        "東京",
        "\n",
        "a@b:c",
        "ta",
        KEY,
    ]
)


@given(st.lists(WORDS, max_size=8), st.sampled_from(sorted(APIS)), st.integers(1, 30), st.integers(1, 200))
def test_any_text_is_cleaned_as_it_would_be_whole(words: list[str], api: str, part: int, size: int) -> None:
    text = "".join(words)
    out = _run(_cut(_events(APIS[api](_in_parts(text, part))), [size] * 10_000))
    said = "".join(map(_said, _records(_joined(out))))
    for _, secret in SECRETS.values():
        if secret is not None and secret not in scrub_text(text, RULES):
            assert secret not in said


@given(st.text(max_size=20), st.lists(st.sampled_from(["ab", KEY, " ", "password=hunter22"]), max_size=6), st.data())
def test_a_cleaned_text_is_cut_where_it_was_cut(lead: str, words: list[str], data: st.DataObject) -> None:
    raw = lead + "".join(words)
    clean = scrub_text(raw, RULES)
    ends = [*sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12))), len(raw)]
    lengths = [end - start for start, end in pairwise([0, *ends])] if raw else []
    parts = spread(raw, clean, lengths)
    assert "".join(parts) == (clean if lengths else "")
    assert len(parts) == len(lengths)


# --- what is held back ------------------------------------------------------------------------------------------------


def test_running_text_is_passed_on_while_it_comes() -> None:
    stream = StreamScrubber(RULES)
    parts = [f"line {i} of a long answer without anything to hide.\n" for i in range(200)]
    held: list[int] = []
    given, got = 0, 0
    for record in [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}, *_chat(parts)]:
        given += 1
        got += len(stream.feed([(0.0, _events([record])[: -len("data: [DONE]\n\n")])]))
        held.append(given - got)
    assert max(held) <= 2
    assert given == got + len(stream.end())


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("It rains in Oslo. ", 18),
        ("all good and done, sk", 19),
        ("the password", 4),
        ("see postgres://bob", 4),
        ("say 'password': 'a b c d" + " e" * 2000, 4),
        ("Wei" + " and so forth." * 100, 1397),
        ("its api", 4),
        ("eyJ" + "a" * 3000, 0),
        ("我的密码" * 400 + "sk-", 1600),
    ],
)
def test_what_may_begin_a_secret_waits(text: str, free: int) -> None:
    assert streamscrubber.settled(text) == free


def test_a_rule_of_the_workspace_that_fails_withholds_only_its_text() -> None:
    stream = StreamScrubber(Rules(patterns={"bad": "("}))
    out = [*stream.feed([(0.0, _events(_chat(["some text"])))]), *stream.end()]
    assert "".join(map(_said, _records(_joined(out)))) == "[removed:withheld:bad]"
    assert stream.withheld


def test_rules_of_the_workspace_hold_in_streams() -> None:
    rules = Rules(fields=("customer_pin",), patterns={"ticket": r"TICK-\d{6}"})
    out = _run(_cut(_events(_chat(_in_parts("see TICK-123456 and more", 2))), [10] * 1000), rules)
    assert "".join(map(_said, _records(_joined(out)))) == "see [removed:ticket] and more"
    out = _run(_cut(_events(_tool(_in_parts('{"customer_pin": 4711}', 2))), [10] * 1000), rules)
    assert b"4711" not in _joined(out)


def test_a_fault_inside_withholds_everything_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = StreamScrubber(RULES)
    monkeypatch.setattr(streamscrubber._Channel, "add", None)
    out = [*stream.feed([(0.0, _events(_chat(["one"]))), (1.0, b"x")]), *stream.feed([(2.0, b"y")]), *stream.end()]
    assert out == [(0.0, b""), (1.0, b""), (2.0, b"")]
    assert stream.withheld


def test_places_of_what_was_removed_are_listed() -> None:
    stream = StreamScrubber(RULES)
    stream.feed([(0.0, _events(_chat(_in_parts(KEY, 9))))])
    stream.end()
    assert stream.removed == ("$.choices[0].delta.content",)


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamScrubber, "HELD", 10_000)
    stream = StreamScrubber(RULES)
    stream.feed([(0.0, _events(_tool(["{"])))])
    for _ in range(400):
        stream.feed([(1.0, _events(_tool(['"name": "a value of some length", '])))])
    assert len(stream._bytes) < 20_000


def test_a_long_stream_takes_time_that_grows_in_a_line() -> None:
    def took(count: int) -> float:
        content = _events(_chat(["the key to it, " + "x" * 20] * count))
        pieces = _cut(content, [500] * 100_000)
        start = time.process_time()
        assert _run(pieces) == pieces
        return time.process_time() - start

    took(50)
    assert took(4000) < 40 * max(took(400), 0.01)


# --- records like an earlier one ------------------------------------------------------------------------------------------


def _deltas(parts: Iterable[str], padding: Callable[[int], str]) -> list[Any]:
    """Records as the Responses API sends them, with a number and a padding that are other in each."""
    kind = "response.output_text.delta"
    return [
        {"type": kind, "sequence_number": i, "item_id": "msg_1", "delta": part, "obfuscation": padding(i)}
        for i, part in enumerate(parts)
    ]


def _sent(records: Iterable[Any]) -> list[tuple[float, bytes]]:
    texts = (json.dumps(record, separators=(",", ":")) for record in records)
    return [(float(i), f"data: {text}\n\n".encode()) for i, text in enumerate(texts)]


def _cleaned(pieces: list[tuple[float, bytes]], *, by_shape: bool = True) -> tuple[bytes, tuple[str, ...]]:
    stream = StreamScrubber(RULES)
    if not by_shape:
        stream._shapes = None
    out = [piece for one in pieces for piece in stream.feed([one])] + stream.end()
    assert len(out) == len(pieces)
    return b"".join(content for _, content in out), stream.removed


@pytest.mark.parametrize("make", [_chat, _anthropic, lambda parts: _deltas(parts, lambda i: "x9" * (i % 8))])
def test_records_like_an_earlier_one_are_not_read_again(
    make: Callable[[Iterable[str]], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    taken = streamscrubber._record
    monkeypatch.setattr(streamscrubber, "_record", lambda text: (read.append(text), taken(text))[1])
    pieces = _sent(make([f"word {i} " for i in range(200)]))
    assert _cleaned(pieces)[0] == b"".join(content for _, content in pieces)
    assert len(read) == 1


_SAYABLE = st.text(st.sampled_from('ab 7"\\\n{}[]:=\u6771\ud800'), max_size=8)
_PARTS = st.lists(
    st.one_of(_SAYABLE, st.sampled_from(["sk-", "ant-api03-1234567890", "abcdefghij", "password=", "hunter22", " "]))
)


@given(
    _PARTS, st.lists(st.sampled_from(["", "a1", "x" * 15, "x" * 16, "AKIA" + "Q7" * 8, 'y"']), min_size=1), st.data()
)
def test_a_record_that_is_not_read_is_cleaned_like_one_that_is(
    parts: list[str], pads: list[str], data: st.DataObject
) -> None:
    make = data.draw(st.sampled_from([_chat, _tool, _anthropic, _anthropic_json, _deltas]))
    records = _deltas(parts, lambda i: pads[i % len(pads)]) if make is _deltas else make(parts)  # type: ignore[operator]
    pieces = _sent(records)
    assert _cleaned(pieces) == _cleaned(pieces, by_shape=False)


def test_a_secret_beside_the_text_is_found_in_a_record_like_an_earlier_one() -> None:
    key = "AKIA" + "Q7" * 8
    said, removed = _cleaned(_sent(_deltas(["It ", "rains ", "today"], lambda i: key if i == 2 else "x")))
    assert key.encode() not in said
    assert removed == ("$.obfuscation",)
