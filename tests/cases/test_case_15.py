"""Case 15: every message shape comes back as it went in (values; the fork and the page have tests of their own)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentloupe.ports.codecs import decode, encode
from agentloupe.ports.pack import Packer, unpack
from agentloupe.words.canonical import dumps, key_of, loads
from tests.unit.values import same


def messages(folder: Path) -> list[Any]:
    found: Any = loads((folder / "messages.json").read_bytes())
    assert len(found) == 14
    return found


class Shelf(dict[str, bytes]):
    def get_many(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        return {d: self[d] for d in digests if d in self}


def test_the_file_comes_back_from_packing_and_encoding(shared_case: Callable[[str], Path]) -> None:
    history = messages(shared_case("15"))
    request: Any = {"model": "m", "messages": history, "n": 1.0}
    before = copy.deepcopy(request)
    shelf, packer = Shelf(), Packer()
    for upto in (1, 5, 14, 9, 14):  # grows, is cut, and comes again
        part = {**request, "messages": history[:upto]}
        packed = packer.pack(part, shared_lists=True)
        shelf.update({body.digest: body.data for body in packed.bodies})
        assert same(unpack(packed.digest, shelf.get_many), part)
    assert same(request, before)
    wire = encode(request)
    assert wire.unrecordable == ()
    assert same(decode(wire.wire), before)
    assert same(loads(dumps(request)), before)


def test_every_text_is_stored_as_it_was_sent(shared_case: Callable[[str], Path]) -> None:
    history = messages(shared_case("15"))
    packed = Packer().pack({"messages": history}, shared_lists=True)
    stored = b"".join(body.data for body in packed.bodies)
    for text in (
        "U2lnbmF0dXJl+/==",
        "step one\\n\u200bstep two",
        '{\\"k\\": 1}',
        '"k":[1.0,1]',
        '"reasoning_content":""',
    ):
        assert text.encode() in stored


def test_null_empty_text_and_text_of_none_are_three_things(shared_case: Callable[[str], Path]) -> None:
    history = messages(shared_case("15"))
    keys: set[str] = set()
    for content in (None, "", "None", "null"):
        edited = [{**m, "content": content} if i == 3 else m for i, m in enumerate(history)]
        keys.add(key_of("llm", "", {"messages": edited}))
    assert len(keys) == 4
