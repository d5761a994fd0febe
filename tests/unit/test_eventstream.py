"""Messages in frames: read however they are cut, spelt anew with right lengths and checksums, searched for secrets."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine.privacy import Rules, StreamScrubber, scrub_text
from agentloupe.engine.streamframes import Frames
from agentloupe.ports.streams import Streamed
from agentloupe.providers.assembling import assembled, first_token_ms, is_done
from agentloupe.words.dialects import finish_reason_of, form_in, message_in, text_in
from agentloupe.words.eventstream import message_in as read
from agentloupe.words.eventstream import messages_in, respelt, size_at
from agentloupe.words.toolcalls import asked_tools
from tests.bedrock_support import ALPHABET, chunk, claude, event, events_in, failure, framed, meant, nova, texts

RULES = Rules()
KEY = "sk-" + "ant-api03-" + "Frames24" * 4


def _run(data: bytes, sizes: Iterable[int] = (), rules: Rules = RULES) -> tuple[bytes, StreamScrubber]:
    """A stream through secret removal, in pieces of these sizes; as many come out, each with its time."""
    stream = StreamScrubber(rules)
    pieces = _cut(data, sizes)
    out = [done for piece in pieces for done in stream.feed([piece])] + stream.end()
    assert [ms for ms, _ in out] == [ms for ms, _ in pieces]
    return b"".join(content for _, content in out), stream


def _cut(data: bytes, sizes: Iterable[int]) -> list[tuple[float, bytes]]:
    pieces: list[tuple[float, bytes]] = []
    at = 0
    for i, size in enumerate(sizes):
        pieces.append((float(i), data[at : at + size]))
        at += size
    return [*pieces, (float(len(pieces)), data[at:])]


def _in_parts(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


def _anthropic(parts: Iterable[str]) -> list[bytes]:
    return claude(parts)


def _converse(parts: Iterable[str]) -> list[bytes]:
    return nova(parts)


FORMS = {"anthropic": _anthropic, "converse": _converse}


def _text(data: bytes) -> str:
    """The running text of a stream of either form."""
    said = [meant(payload).get("delta", {}) for _, payload in events_in(data)]
    return "".join(delta.get("text", "") for delta in said)


# --- the frames -------------------------------------------------------------------------------------------------------

_SHORT = st.text(max_size=12)
_NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


def _header(name: str, kind: int, value: Any) -> bytes:
    spelt = name.encode()
    lead = bytes([len(spelt)]) + spelt + bytes([kind])
    if kind in (6, 7):
        said = value if isinstance(value, bytes) else value.encode()
        return lead + struct.pack(">H", len(said)) + said
    return lead + value


_HEADERS = st.lists(
    st.one_of(
        st.builds(_header, _NAMES, st.sampled_from([0, 1]), st.just(b"")),
        st.builds(_header, _NAMES, st.just(2), st.binary(min_size=1, max_size=1)),
        st.builds(_header, _NAMES, st.just(3), st.binary(min_size=2, max_size=2)),
        st.builds(_header, _NAMES, st.just(4), st.binary(min_size=4, max_size=4)),
        st.builds(_header, _NAMES, st.sampled_from([5, 8]), st.binary(min_size=8, max_size=8)),
        st.builds(_header, _NAMES, st.just(6), st.binary(max_size=20)),
        st.builds(_header, _NAMES, st.just(7), st.text(st.characters(codec="utf-8"), max_size=20)),
        st.builds(_header, _NAMES, st.just(9), st.binary(min_size=16, max_size=16)),
    ),
    max_size=5,
).map(b"".join)
_PAYLOADS = st.one_of(
    st.binary(max_size=60),
    st.binary(max_size=40).map(lambda data: b'{"bytes":"' + base64.b64encode(data) + b'","p":"abc"}'),
    st.text(max_size=20).map(lambda text: json.dumps({"delta": {"text": text}, "p": "abcd"}).encode()),
)
_MESSAGES = st.builds(framed, _HEADERS, _PAYLOADS)


@given(_MESSAGES)
def test_a_message_that_is_spelt_anew_is_the_same(message: bytes) -> None:
    assert size_at(message, 0) == len(message)
    said = read(message)
    assert respelt(message, None, None) == message
    assert respelt(message, said.text, None) == message
    assert respelt(message, None, said.about) == message


@given(_HEADERS, st.text(st.characters(codec="utf-8"), max_size=60), st.booleans())
def test_another_text_has_right_lengths_and_checksums(headers: bytes, text: str, wrapped: bool) -> None:
    payload = b'{"bytes":"e30=","p":"abc"}' if wrapped else b'{"a":1,"p":"abc"}'
    made = respelt(framed(headers, payload), json.dumps({"b": text}), None)
    total, length, checksum = struct.unpack(">III", made[:12])
    assert (total, length, checksum) == (len(made), len(headers), zlib.crc32(made[:8]))
    assert struct.unpack(">I", made[-4:])[0] == zlib.crc32(made[:-4])
    assert made[12 : 12 + length] == headers
    said = json.loads(made[12 + length : -4])
    assert said.pop("p") == "abc"
    assert (meant(made[12 + length : -4]) if wrapped else said) == {"b": text}


@given(st.lists(_MESSAGES, max_size=5), st.lists(st.integers(0, 50), max_size=30))
def test_messages_are_found_however_they_are_cut(messages: list[bytes], sizes: list[int]) -> None:
    data = b"".join(messages)
    frames = Frames(messages=True)
    found = [frame for _, piece in _cut(data, sizes) for frame in frames.feed(piece)]
    assert [(frame.end - frame.start, frame.text) for frame in found] == [(len(m), read(m).text) for m in messages]
    assert frames.end() == []
    assert frames.unread is None
    assert [end for _, end in messages_in(data)] == [frame.end for frame in found]


@given(st.lists(_MESSAGES, max_size=3), st.binary(max_size=80), st.lists(st.integers(0, 50), max_size=20))
def test_any_bytes_behind_messages_pass(messages: list[bytes], rest: bytes, sizes: list[int]) -> None:
    data = b"".join(messages) + rest
    frames = Frames()
    found = [frame for _, piece in _cut(data, sizes) for frame in frames.feed(piece)] + frames.end()
    assert [f.start for f in found] == [0, *(f.end for f in found)][: len(found)]
    assert not found or found[-1].end == len(data)
    assert isinstance(assembled(data), dict | None)


@given(st.integers(0, 400), st.lists(st.integers(0, 70), max_size=20), st.sampled_from(sorted(FORMS)))
def test_what_came_of_a_stream_goes_through_as_it_came(left: int, sizes: list[int], form: str) -> None:
    """Also where it breaks off in the middle of a message."""
    whole = b"".join(FORMS[form](["It ", "rains ", "in Oslo."]))
    data = whole[: len(whole) - left]
    out, stream = _run(data, sizes)
    assert (out, stream.removed, stream.withheld, stream.unread) == (data, (), False, 0)


# --- what no client reads ---------------------------------------------------------------------------------------------

_WRONG = {
    "prelude": lambda m: m[:8] + bytes([m[8] ^ 1]) + m[9:],
    "length": lambda m: struct.pack(">I", len(m) + 1) + m[4:],
    "long headers": lambda m: _lengths(len(m), 200_000) + m[12:],
    "long payload": lambda m: _lengths(100_000_000, 0) + m[12:],
    "short": lambda m: _lengths(8, 0) + m[12:],
    "message": lambda m: m[:-1] + bytes([m[-1] ^ 1]),
}


def _lengths(total: int, headers: int) -> bytes:
    said = struct.pack(">II", total, headers)
    return said + struct.pack(">I", zlib.crc32(said))


@pytest.mark.parametrize("wrong", _WRONG)
@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_from_a_wrong_message_on_nothing_is_read_and_it_is_said(wrong: str, size: int) -> None:
    messages = claude(["It ", "rains"])
    bad = _WRONG[wrong](messages[3])
    data = b"".join([*messages[:3], bad, *messages[4:]])
    out, stream = _run(data, [size] * (len(data) // size))
    assert out == data
    assert stream.unread == len(data) - sum(map(len, messages[:3]))
    assert stream.removed == ()
    whole: Any = assembled(data)
    assert whole["content"] == [{"type": "text", "text": "It "}]
    assert whole["stop_reason"] is None
    assert not is_done(data)


@pytest.mark.parametrize("wrong", sorted(_WRONG))
@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_behind_a_wrong_message_secrets_are_still_found(wrong: str, size: int) -> None:
    messages = claude(["It ", "rains, ", KEY[:9], KEY[9:], " and so on"])
    data = b"".join([*messages[:3], _WRONG[wrong](messages[3]), *messages[4:]])
    out, stream = _run(data, [size] * (len(data) // size))
    coded = re.findall(rb'"bytes":"([^"]*)"', out)
    said = [json.loads(base64.b64decode(one)).get("delta", {}).get("text", "") for one in coded]
    assert "".join(said) == "It rains, [removed:key] and so on"
    assert len(coded) == len(messages)
    assert stream.removed == ("$.delta.text",)


@given(
    st.binary(max_size=60), st.sampled_from(["", "e30", "e30=", "AAAA", "A"]), st.lists(st.integers(0, 30), max_size=20)
)
def test_any_bytes_where_messages_should_stand_pass(lead: bytes, coded: str, sizes: list[int]) -> None:
    data = b"\xff" * 12 + lead + f'{{"bytes" : "{coded}","p":"ab"}}"bytes":"{coded}'.encode()
    stream = StreamScrubber(RULES, messages=True)
    pieces = _cut(data, sizes)
    out = [done for piece in pieces for done in stream.feed([piece])] + stream.end()
    assert (out, stream.unread, stream.withheld) == (pieces, len(data), False)


def test_a_stream_that_only_says_it_is_one_of_messages_is_plain() -> None:
    """It is looked through as what it is."""
    for data in (
        f"<html>not today, {KEY}</html>".encode(),
        b"".join(b"data: " + json.dumps({"delta": part}).encode() + b"\n\n" for part in (KEY[:9], KEY[9:])),
    ):
        stream = StreamScrubber(RULES, messages=True)
        out = b"".join(content for piece in _cut(data, [5] * 9) for _, content in stream.feed([piece]))
        out += b"".join(content for _, content in stream.end())
        assert b"[removed:key]" in out
        assert KEY[9:].encode() not in out
        assert stream.unread == len(data)


def test_a_wrong_checksum_stays_wrong_where_a_secret_is_removed() -> None:
    message = event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": f"it is {KEY} then"}})
    out, stream = _run(nova(["x"])[0] + message[:-1] + bytes([message[-1] ^ 1]))
    assert KEY.encode() not in out
    assert stream.unread == len(message)
    assert not is_right_at_the_end(out)


def is_right_at_the_end(data: bytes) -> bool:
    try:
        events_in(data)
    except AssertionError:
        return False
    return True


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", [1, 3, 11, 1000])
@pytest.mark.parametrize("size", [1, 97, 100_000])
def test_a_secret_cut_over_messages_is_what_it_is_in_one_text(form: str, part: int, size: int) -> None:
    text = f"the key is {KEY}, keep it; postgres://bob:p%40ss-1@db/x as well"
    data = b"".join(FORMS[form](_in_parts(text, part)))
    out, stream = _run(data, [size] * (len(data) // size))
    assert _text(out) == scrub_text(text, RULES)
    assert stream.removed == ("$.delta.text",)
    was, now = events_in(data), events_in(out)
    assert [headers for headers, _ in now] == [headers for headers, _ in was]
    assert [json.loads(p).get("p") for _, p in now] == [json.loads(p).get("p") for _, p in was]
    assert "".join(str(meant(payload)) for _, payload in now).count("ant-api03") == 0


@pytest.mark.parametrize("form", ["anthropic", "converse"])
def test_arguments_of_tools_are_looked_at_by_their_names(form: str) -> None:
    parts = _in_parts('{"city": "Ōslo", "api_key": "zq-zq-zq-zq"}', 5)
    data = b"".join(claude(["ok"], arguments=parts) if form == "anthropic" else nova(["ok"], arguments=parts))
    out, stream = _run(data, [64] * 200)
    (asked,) = asked_tools(assembled(out))
    assert asked.arguments == {"city": "Ōslo", "api_key": "[removed:api-key]"}
    assert stream.removed == ("$.delta.partial_json" if form == "anthropic" else "$.delta.toolUse.input",)


def test_texts_of_two_blocks_are_kept_apart() -> None:
    def delta(at: int, text: str) -> bytes:
        return event("contentBlockDelta", {"contentBlockIndex": at, "delta": {"text": text}})

    data = delta(0, KEY[:12]) + delta(1, "and here ") + delta(0, KEY[12:]) + delta(1, "nothing")
    out, _ = _run(data)
    assert [meant(payload)["delta"]["text"] for _, payload in events_in(out)] == [
        *("[removed:key]", "and here ", "", "nothing")
    ]


def test_headers_and_what_stands_beside_the_text_are_looked_at() -> None:
    said = base64.b64encode(b'{"type":"ping"}').decode()
    beside = framed(texts(event_type="chunk"), json.dumps({"bytes": said, "note": f"use {KEY} here"}).encode())
    error = framed(texts(message_type="error", error_code="Denied", error_message=f"{KEY} is no key"), b"")
    number = _header("n", 4, b"\0\0\0\7")
    mixed = framed(number + _header("say", 7, f"Bearer {KEY}") + number, b"\xff\xfe" + KEY.encode())
    out, stream = _run(claude(["a"])[0] + beside + error + mixed)
    assert KEY.encode() not in out
    assert out.count(number) == 2
    assert len(list(messages_in(out))) == 4
    told = [message for message, _ in messages_in(out)]
    assert json.loads(told[1].text) == {"type": "ping"}
    assert "[removed:key]" in told[1].about
    assert told[2].headers == {
        ":message-type": "error",
        ":error-code": "Denied",
        ":error-message": "[removed:key] is no key",
    }
    assert told[3].text.endswith("[removed:key]")
    assert "$.*" in stream.removed


@pytest.mark.parametrize("left", [1, 4, 5, 30, 60])
def test_a_secret_in_a_message_whose_end_did_not_come(left: int) -> None:
    """What is cut off there no client reads; the bytes that came are searched all the same."""
    data = claude(["a"])[0] + chunk({"text": f"the key is {KEY} . and more of that, and more"}, ALPHABET[:20])
    out, _ = _run(data[:-left])
    whole = len(claude(["a"])[0])
    told = read(out[whole:]).text
    assert KEY[8:] not in told
    assert "[removed:key]" in told


def test_padding_that_is_none_is_looked_at() -> None:
    hidden = KEY.replace("-", "")
    data = chunk({"type": "ping"}, None) + event("x", {"a": 1, "p": f"ghp_{'a1B2' * 9}"}) + chunk({}, hidden)
    out, _ = _run(data)
    assert b"a1B2" not in out
    assert meant(events_in(out)[0][1]) == {"type": "ping"}


def test_a_rule_of_the_workspace_leaves_the_padding_alone() -> None:
    rules = Rules(patterns={"letters": "[a-z]{12}"})
    data = b"".join(claude(["short"]))
    out, stream = _run(data, rules=rules)
    assert (out, stream.removed) == (data, ())


def test_what_is_not_in_the_way_of_a_secret_is_passed_on_while_it_comes() -> None:
    stream = StreamScrubber(RULES)
    held = 0
    for message in claude([f"line {i} of a long answer.\n" for i in range(100)]):
        held += 1 - len(stream.feed([(0.0, message)]))
        assert held <= 2


# --- the answer -------------------------------------------------------------------------------------------------------


def test_an_answer_of_claude_is_put_together() -> None:
    data = b"".join(claude(["It ", "rains."], arguments=['{"city":', '"Oslo"}']))
    whole: Any = assembled(data)
    assert form_in(whole) == "anthropic"
    assert whole["usage"] == {"input_tokens": 9, "output_tokens": 7, "cache_read_input_tokens": 4}
    assert (text_in(message_in(whole)), finish_reason_of(whole)) == ("It rains.", "tool_use")
    (asked,) = asked_tools(whole)
    assert (asked.call_id, asked.name, asked.arguments) == ("toolu_1", "look", {"city": "Oslo"})
    assert is_done(data)


def test_an_answer_of_converse_is_put_together() -> None:
    frames = nova(["It ", "rains."], arguments=['{"city":', '"Oslo"}'])
    whole: Any = assembled(b"".join(frames))
    thought = {"reasoningText": {"text": "Look first.", "signature": "c2ln"}}
    tool = {"toolUseId": "tooluse_1", "name": "look", "input": {"city": "Oslo"}}
    content: list[Any] = [{"reasoningContent": thought}, {"text": "It rains."}, {"toolUse": tool}]
    usage = {"inputTokens": 11, "outputTokens": 6, "totalTokens": 20, "cacheReadInputTokens": 3}
    assert whole == {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use",
        "usage": usage,
        "metrics": {"latencyMs": 12},
    }
    assert form_in(whole) == "converse"
    assert (text_in(message_in(whole)), finish_reason_of(whole)) == ("It rains.", "tool_use")
    (asked,) = asked_tools(whole)
    assert (asked.call_id, asked.name, asked.arguments) == ("tooluse_1", "look", {"city": "Oslo"})
    assert is_done(b"".join(frames))
    assert not is_done(b"".join(frames[:-1]))  # usage comes behind the end


def test_what_did_not_come_is_not_there() -> None:
    whole: Any = assembled(b"".join(nova(["It "], arguments=['{"cit'], usage=False)[:-2]))
    assert whole["output"]["message"]["content"][-1]["toolUse"]["input"] == '{"cit'
    assert whole.keys() == {"output"}
    told: Any = assembled(b"".join(nova(["x"], usage=False)))
    assert "usage" not in told


def test_blocks_of_converse_that_are_rare() -> None:
    def delta(at: int, part: dict[str, Any]) -> bytes:
        return event("contentBlockDelta", {"contentBlockIndex": at, "delta": part})

    start = event(
        "contentBlockStart", {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t", "name": "now"}}}
    )
    frames = [
        *(
            delta(0, {"text": "As said"}),
            delta(0, {"citation": {"title": "a"}}),
            delta(0, {"citation": {"title": "b"}}),
        ),
        *(start, delta(2, {"reasoningContent": {"redactedContent": "AAAA"}})),
        *(delta(3, {"toolResult": [{"text": "x"}]}), delta(3, {"toolResult": [{"text": "y"}]})),
    ]
    whole: Any = assembled(b"".join(frames))
    cited = {"content": [{"text": "As said"}], "citations": [{"title": "a"}, {"title": "b"}]}
    assert whole["output"]["message"]["content"] == [
        {"citationsContent": cited},
        {"toolUse": {"toolUseId": "t", "name": "now", "input": {}}},
        {"reasoningContent": {"redactedContent": "AAAA"}},
        {"toolResult": [{"text": "x"}, {"text": "y"}]},
    ]


@pytest.mark.parametrize("form", FORMS)
def test_an_exception_in_the_middle_ends_the_answer(form: str) -> None:
    data = b"".join(FORMS[form](["It ", "rains"])[:6]) + failure("throttlingException", "too many")
    whole: Any = assembled(data)
    assert whole["error"] == {"type": "throttlingException", "message": "too many"}
    assert is_done(data)


@pytest.mark.parametrize("form", FORMS)
def test_the_first_token_came_with_its_message(form: str) -> None:
    frames = FORMS[form](["It ", "rains"])
    streamed = Streamed(None, [(float(at), frame) for at, frame in enumerate(frames)])
    assert first_token_ms(streamed) == (2.0 if form == "anthropic" else 1.0)


def test_other_messages_are_no_answer() -> None:
    assert assembled(event("Records", {"rows": []}) + event("End", {})) is None
    assert assembled(framed(texts(event_type="AudioEvent"), b"\x00\x01\xff")) is None
    assert assembled(failure("accessDeniedException", "no")) is None


def test_a_message_is_read_in_one_pass_however_much_space_is_in_it() -> None:
    space = b" " * 500_000
    payload = b'{"bytes":"QUJD"' + space + b"}" + space + b"x"
    said = read(framed(b"", payload))
    assert (said.text, said.wrapped) == ("ABC", True)
