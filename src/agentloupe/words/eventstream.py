r"""Messages in frames (`application/vnd.amazon.eventstream`), in which Amazon Bedrock streams: read, and spelt anew.

    total length | length of headers | CRC-32 of both | headers | payload | CRC-32 of all before      4 bytes each, big-endian

A model's event is the payload itself, or stands in it as `{"bytes": base64, "p": padding}`. The padding hides how long the
text is; it is the beginning of the same letters in every message.

    size_at(data, 0)                  # how long the message there is; 0: none that a client reads; None: not known yet
    message_in(data[:size])           # what it says
    respelt(data[:size], text, None)  # the same message with another text, its lengths and checksums right
"""

from __future__ import annotations

import base64
import re
import string
from collections.abc import Iterator
from struct import pack, unpack_from
from typing import Final, NamedTuple
from zlib import crc32

from agentloupe.words.jsontext import Json, dumps, loads

__all__ = [
    "MEDIA_TYPE",
    "Message",
    "as_bytes",
    "as_text",
    "is_right",
    "message_in",
    "messages_in",
    "respelt",
    "size_at",
]

MEDIA_TYPE: Final = "application/vnd.amazon.eventstream"

_PRELUDE, _CRC = 12, 4
_MOST_OF_HEADERS, _MOST_OF_PAYLOAD = 128 * 1024, 24 * 1024 * 1024
"""Bytes beyond which clients read no message."""
_WIDTHS: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value by its type: yes, no, integers, a time, a UUID."""
_TEXTS: Final = frozenset({6, 7})
"""Types whose value begins with its length, in two bytes: bytes and text."""
_ALPHABET: Final = (string.ascii_letters + string.digits).encode()
_WRAPPED: Final = re.compile(rb'(\s*\{[^{}\[\]]*?"bytes"\s*:\s*")((?:[A-Za-z0-9+/]|\\/)*=*)(.*)', re.DOTALL)
_BESIDE: Final = re.compile(rb'\s*\{\s*"bytes"\s*:\s*""?\s*+(?:,\s*"p"\s*:\s*"([A-Za-z0-9]*)"\s*+)?\}?\s*+')
_PADDED: Final = re.compile(rb',\s*"p"\s*:\s*"([A-Za-z0-9]*)"\s*\}\s*\Z')


def as_text(content: bytes) -> str:
    """Bytes as text; what is no UTF-8 as lone surrogates, so that nothing is lost."""
    return content.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """The reverse of `as_text`; surrogates that stand for no byte (from JSON escapes) become `?`."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


class Message(NamedTuple):
    """What a message says.

    Attributes:
        text: its payload without the padding; of one in base 64 what it means.
        wrapped: whether that stood in base 64.
        about: the rest that may be a text, as JSON: its headers, and what stands beside the text.
        headers: those that are texts.
    """

    text: str
    wrapped: bool
    about: str
    headers: dict[str, str]


# --- where they are ---------------------------------------------------------------------------------------------------


def size_at(data: bytes | bytearray, at: int) -> int | None:
    """How many bytes a message has by its first twelve; 0 where they are those of none; `None` where they have not come."""
    if len(data) < at + _PRELUDE:
        return None
    total, headers, checksum = unpack_from(">III", data, at)
    payload = total - headers - _PRELUDE - _CRC
    possible = headers <= _MOST_OF_HEADERS and 0 <= payload <= _MOST_OF_PAYLOAD
    return total if possible and crc32(data[at : at + 8]) == checksum else 0


def is_right(message: bytes) -> bool:
    """Whether the checksum of a whole message is that of what it says."""
    return crc32(message[:-_CRC]) == unpack_from(">I", message, len(message) - _CRC)[0]


def messages_in(data: bytes) -> Iterator[tuple[Message, int]]:
    """The messages of a stream, each with the place of its end, up to the first that is cut or that no client reads."""
    at = 0
    while (size := size_at(data, at)) and at + size <= len(data) and is_right(one := data[at : at + size]):
        at += size
        yield message_in(one), at


# --- what they say ----------------------------------------------------------------------------------------------------


def message_in(data: bytes) -> Message:
    """What a message says, or what came of one whose end is cut."""
    headers, payload, _ = _parts(data)
    listed, left = _headers(headers)
    said = _said(payload)
    pairs = [(header.name, as_text(header.value)) for header in listed if header.value is not None]
    about: dict[str, Json] = {"headers": [[name, value] for name, value in pairs]}
    about |= {name: text for name, text in (("left", as_text(left)), ("beside", said.beside)) if text}
    return Message(said.text, said.wrapped, dumps(about).decode(), dict(pairs))


def _parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Headers, payload, and the checksum at the end, as far as they came."""
    total, headers = unpack_from(">II", data)
    end = _PRELUDE + headers
    return data[_PRELUDE:end], data[end : total - _CRC], data[total - _CRC : total]


class _Header(NamedTuple):
    """A header: its bytes, its name, its type, and its value where that may be a text."""

    raw: bytes
    name: str
    type: int
    value: bytes | None


def _headers(data: bytes) -> tuple[list[_Header], bytes]:
    """The headers, and bytes behind them that are none."""
    found: list[_Header] = []
    at = 0
    while at < len(data):
        value = at + 2 + data[at]
        kind = data[value - 1] if value <= len(data) else -1
        if kind in _TEXTS and value + 2 <= len(data):
            value += 2
            end = value + unpack_from(">H", data, value - 2)[0]
        elif kind in _WIDTHS:
            end = value + _WIDTHS[kind]
        else:
            break
        if end > len(data):
            break
        name = as_text(data[at + 1 : at + 1 + data[at]])
        found.append(_Header(data[at:end], name, kind, data[value:end] if kind in _TEXTS else None))
        at = end
    return found, data[at:]


class _Said(NamedTuple):
    """A payload: `before`, the text (in base 64 where it is `wrapped`), `behind`; what of these may be a text is `beside`."""

    text: str
    wrapped: bool = False
    before: bytes = b""
    behind: bytes = b""
    beside: str = ""


def _said(payload: bytes) -> _Said:
    found = _WRAPPED.match(payload)
    if found is not None:
        before, coded, behind = found.groups()
        if not behind.startswith(b'"'):  # cut
            left = len(coded) % 4
            coded, behind = (coded[: len(coded) - left], coded[len(coded) - left :] + behind)
        try:
            text = as_text(base64.b64decode(coded.replace(b"\\/", b"/"), validate=True))
        except ValueError:
            return _Said(as_text(payload))
        nothing = _BESIDE.fullmatch(before + behind)
        known = nothing is not None and _ALPHABET.startswith(nothing[1] or b"")
        return _Said(text, True, before, behind, "" if known else as_text(before + behind))
    padded = _PADDED.search(payload)
    if padded is not None and _ALPHABET.startswith(padded[1]):
        return _Said(as_text(payload[: padded.start()] + b"}"), behind=padded[0])
    return _Said(as_text(payload))


# --- spelt anew -------------------------------------------------------------------------------------------------------


def respelt(data: bytes, text: str | None, about: str | None) -> bytes:
    """A message that says something else; `None`: as it did. The padding stays, and so does a checksum that was wrong.

    Args:
        data: the message; of one whose end is cut what came.
        text: see `Message`.
        about: see `Message`.
    """
    headers, payload, checksum = _parts(data)
    said = _said(payload)
    told = _object(about) if about is not None else None
    new_headers = headers if told is None else _spelt_headers(headers, told)
    if told is not None and said.beside:
        found = _WRAPPED.match(as_bytes(str(told.get("beside"))))
        said = said._replace(before=found[1], behind=found[3]) if found else said._replace(before=b"", behind=b"")
    new_payload = _spelt(said, said.text if text is None else text)
    total, length = unpack_from(">II", data)
    more = len(new_headers) - len(headers)
    lengths = pack(">II", total + more + len(new_payload) - len(payload), length + more)
    made = lengths + pack(">I", crc32(lengths)) + new_headers + new_payload
    if len(checksum) < _CRC:
        return made + pack(">I", crc32(made))[: len(checksum)]
    wrong = crc32(data[: -len(checksum)]) ^ unpack_from(">I", checksum)[0]
    return made + pack(">I", crc32(made) ^ wrong)


def _object(text: str) -> dict[str, Json]:
    try:
        found = loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _spelt_headers(headers: bytes, told: dict[str, Json]) -> bytes:
    """Headers with other texts; those of which nothing is told are left out."""
    listed, _ = _headers(headers)
    pairs = told.get("headers")
    texts = iter(pairs if isinstance(pairs, list) else [])
    made = b""
    for header in listed:
        if header.value is None:
            made += header.raw
            continue
        match next(texts, None):
            case [str() as name, str() as value]:
                said = as_bytes(name)[:255], as_bytes(value)[:65535]
                made += bytes([len(said[0])]) + said[0] + bytes([header.type]) + pack(">H", len(said[1])) + said[1]
            case _:
                pass
    left = told.get("left")
    return made + (as_bytes(left) if isinstance(left, str) else b"")


def _spelt(said: _Said, text: str) -> bytes:
    if said.wrapped:
        return said.before + base64.b64encode(as_bytes(text)) + said.behind
    return as_bytes(text.removesuffix("}") if said.behind else text) + said.behind
