r"""What differs between two JSON values, said so that a person sees it: paths, a short text diff, likely causes.

Computed once, after a miss, never on the way of an agreeing call. Characters that one cannot see (kinds of space, marks
that combine, control characters) are written as `\u....`, so that texts which look alike do not, and a terminal obeys
nothing that comes out of a payload.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from agentloupe.engine.edits import ABSENT, Absent, Path, same, show_path, value_at
from agentloupe.words.canonical import SHARED_LISTS, Json, canonical

__all__ = ["LIMIT", "Change", "changes_between", "hints_for", "inline_diff", "shown"]

LIMIT: Final = 20
"""How many changed places a report names."""

_CONTEXT = 32
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class Change:
    """One place where two values differ; `ABSENT` on the side where it is not."""

    path: Path
    expected: Json | Absent
    actual: Json | Absent

    @property
    def what(self) -> Literal["changed", "added", "removed"]:
        """Seen from the recording."""
        return "added" if self.expected is ABSENT else "removed" if self.actual is ABSENT else "changed"

    def as_json(self) -> dict[str, Json]:
        """`{path, at, change, expected?, actual?}`; long texts are cut around the difference. `at` is the path in parts."""
        record: dict[str, Json] = {"path": show_path(self.path), "at": list(self.path), "change": self.what}
        before, after = _cut(self.expected, self.actual)
        if before is not ABSENT:
            record["expected"] = before
        if after is not ABSENT:
            record["actual"] = after
        return record


def changes_between(expected: Json, actual: Json, limit: int = LIMIT) -> tuple[tuple[Change, ...], bool]:
    """The first `limit` places in order, and whether there are more."""
    found = list(islice(_walk((), expected, actual), limit + 1))
    return tuple(found[:limit]), len(found) > limit


def _walk(path: Path, a: Json | Absent, b: Json | Absent) -> Iterator[Change]:
    if same(a, b):
        return
    if isinstance(a, dict) and isinstance(b, dict):
        for name in [*a, *(n for n in b if n not in a)]:
            yield from _walk((*path, name), a.get(name, ABSENT), b.get(name, ABSENT))
    elif isinstance(a, list) and isinstance(b, list):
        yield from _walk_lists(path, a, b)
    else:
        yield Change(path, a, b)


def _walk_lists(path: Path, a: list[Json], b: list[Json]) -> Iterator[Change]:
    """Equal elements at the end belong together, so that one inserted message is one change; another order is one too."""
    if len(a) == len(b) and _bag(a) == _bag(b):
        yield Change(path, list(a), list(b))
        return
    shorter = min(len(a), len(b))
    start = next((i for i in range(shorter) if not same(a[i], b[i])), shorter)
    tail = 0
    while tail < shorter - start and same(a[-1 - tail], b[-1 - tail]):
        tail += 1
    left, right = len(a) - tail, len(b) - tail
    for i in range(start, max(left, right)):
        yield from _walk((*path, i), a[i] if i < left else ABSENT, b[i] if i < right else ABSENT)


# --- text -------------------------------------------------------------------------------------------------------------


def shown(text: str) -> str:
    """Text with everything invisible or obeyed by terminals written as an escape."""
    return "".join(c if _is_plain(c) else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}" for c in text)


def _is_plain(char: str) -> bool:
    return char in " \n\t" or (unicodedata.category(char)[0] in "LNPS")


def inline_diff(expected: str, actual: str) -> str:
    """`... before [-recorded-]{+actual+} after ...` around the part in which two texts differ."""
    start, stop_a, stop_b = _core(expected, actual)
    before = ("…" if start > _CONTEXT else "") + expected[max(0, start - _CONTEXT) : start]
    after = expected[stop_a : stop_a + _CONTEXT] + ("…" if len(expected) > stop_a + _CONTEXT else "")
    return (
        f"{shown(before)}[-{shown(_short(expected[start:stop_a]))}-]"
        f"{{+{shown(_short(actual[start:stop_b]))}+}}{shown(after)}"
    )


def _core(a: str, b: str) -> tuple[int, int, int]:
    """Where the differing middle begins, and where it ends in each text; widened to whole words and numbers."""
    shorter = min(len(a), len(b))
    start = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    tail = 0
    while tail < shorter - start and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    while start > 0 and _joins(a[start - 1]):
        start -= 1
    while tail > 0 and _joins(a[len(a) - tail]):
        tail -= 1
    return start, len(a) - tail, len(b) - tail


def _joins(char: str) -> bool:
    return char.isalnum() or char in "-_:.+"


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]}… {len(text) - 2 * half} characters …{text[-half:]}"


def _cut(a: Json | Absent, b: Json | Absent) -> tuple[Json | Absent, Json | Absent]:
    """Long values shortened to what tells them apart."""
    if isinstance(a, str) and isinstance(b, str) and max(len(a), len(b)) > _LONGEST:
        start, stop_a, stop_b = _core(a, b)
        lead = ("…" if start > _CONTEXT else "") + a[max(0, start - _CONTEXT) : start]
        return lead + _short(a[start:stop_a]), lead + _short(b[start:stop_b])
    return _brief(a), _brief(b)


def _brief(value: Json | Absent) -> Json | Absent:
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, dict | list) and len(canonical(value)) > 4 * _LONGEST:
        return {"$shortened": f"{'object' if isinstance(value, dict) else 'list'} of {len(value)}"}
    return value


# --- likely causes ----------------------------------------------------------------------------------------------------

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|(?<![^\W_])[0-9a-fA-F]{32}(?![^\W_])")
_TIME = re.compile(
    r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?|\b\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\b|\b1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?\b"
    r"|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\b|\b(?:January|February|March|April|June|July|August|September|October"
    r"|November|December)\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b"
)
_CHANCE = re.compile(r"\b0\.\d{6,}\b")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}\b|\b0x[0-9a-fA-F]{8,}\b")
_TEMPORARY = re.compile(r"/(?:var/)?tmp/\S+|/var/folders/\S+|\\Temp\\\S+")
_TRACEBACK = "Traceback (most recent call last)"
_WORD = re.compile(r"\w+")
_REDACTED = re.compile(r"\[removed:[\w:-]+\]")

UNICODE: Final = "the texts differ only in their Unicode form (composed against decomposed characters, NFC against NFD)"
SPACES: Final = "the texts differ only in kinds of space: "
LINES: Final = "the texts differ only in line ends or in space at the end of lines"
ORDER: Final = (
    "the same parts in another order: an unordered collection (a set, a listing of files) went into it; "
    "sort it before use (a set's order depends on PYTHONHASHSEED)"
)
CLOCK: Final = "the differing part looks like a time: the clock was read outside the boundary; use agentloupe.now()"
IDS: Final = "the differing part looks like a generated id: it was made outside the boundary; use agentloupe.uuid4()"
CHANCE: Final = "the differing part looks like a random number drawn outside the boundary; use agentloupe.random()"
ADDRESSES: Final = "the differing part is a memory address: an object's default repr went into it"
TEMPORARY: Final = "the differing part is a temporary path: it is another one in every process"
TRACEBACK: Final = "the text of a traceback went into it: it names lines of a tool that a replay does not run; use the error's own text, str(error)"
REDACTION: Final = (
    "one side was redacted and the other was not: a secret that only its name gave away went on under another name "
    "(name that one too, or its pattern, in [secrets]), or the rules of recording and replay differ"
)


def hints_for(kind: str, changes: Sequence[Change], request: Json = None) -> tuple[str, ...]:
    """Likely causes, most certain first; empty when nothing is known.

    `kind` is the kind of the call, `request` its recorded input.
    """
    certain = _unique(hint for change in changes for hint in _of_texts(change))
    # "The prompt changed" says nothing where the reason for the change is known.
    return certain or _unique(hint for change in changes for hint in _of_place(kind, change, request))


def _unique(hints: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(hints))


def _of_texts(change: Change) -> Iterator[str]:
    a, b = change.expected, change.actual
    if isinstance(a, str) and isinstance(b, str):
        yield from _only_form(a, b) or _causes(a, b)
    elif isinstance(a, list) and isinstance(b, list):
        if _bag(a) == _bag(b):
            yield ORDER
    elif _REDACTED.search(str(a)) or _REDACTED.search(str(b)):
        yield REDACTION
    elif isinstance(a, float) and isinstance(b, float) and _CHANCE.search(repr(a)) and _CHANCE.search(repr(b)):
        yield CHANCE


def _bag(items: list[Json]) -> Counter[bytes]:
    return Counter(map(canonical, items))


def _only_form(a: str, b: str) -> list[str]:
    """Differences that one cannot see."""
    if unicodedata.normalize("NFC", a) == unicodedata.normalize("NFC", b):
        return [UNICODE]
    if _spaces_alike(a) == _spaces_alike(b):
        odd = sorted({c for c in (*a, *b) if c.isspace() and c not in " \n\r\t"})
        names = ", ".join(f"U+{ord(c):04X} {unicodedata.name(c, 'SPACE')}" for c in odd)
        return [SPACES + names] if odd else [LINES]
    if _lines_alike(a) == _lines_alike(b):
        return [LINES]
    return []


def _spaces_alike(text: str) -> str:
    return "".join(" " if c.isspace() and c not in "\r\n" else c for c in text)


def _lines_alike(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _causes(a: str, b: str) -> Iterator[str]:
    if bool(_REDACTED.search(a)) != bool(_REDACTED.search(b)):
        yield REDACTION
    if Counter(_WORD.findall(a)) == Counter(_WORD.findall(b)) and _WORD.findall(a) != _WORD.findall(b):
        yield ORDER
        return
    if _TRACEBACK in a and _TRACEBACK in b:
        yield TRACEBACK
        return
    for pattern, hint in (
        (_UUID, IDS),
        (_TIME, CLOCK),
        (_CHANCE, CHANCE),
        (_ADDRESS, ADDRESSES),
        (_TEMPORARY, TEMPORARY),
    ):
        left, right = pattern.findall(a), pattern.findall(b)
        if left and right and left != right:
            yield hint


_PROMPT = "the system prompt is not the recorded one: the prompt template changed"
_MESSAGE = "a message differs: what was put into the prompt is not what was recorded"
_TOOLS = "the tools offered to the model are not the recorded ones: a signature or description changed"
_PARAMETER = "a parameter of the request is not the recorded one: "


def _of_place(kind: str, change: Change, request: Json) -> Iterator[str]:
    if kind != "llm" or not change.path:
        return
    head = change.path[0]
    if head in ("system", "instructions") or _role(request, change.path) in ("system", "developer"):
        yield _PROMPT
    elif change.path[:2] == ("toolConfig", "tools"):
        yield _TOOLS
    elif head in SHARED_LISTS:
        yield _TOOLS if head == "tools" else _MESSAGE
    else:
        yield _PARAMETER + str(head)


def _role(request: Json, path: Path) -> Json | Absent:
    return value_at(request, (*path[:2], "role")) if path[0] == "messages" else ABSENT
