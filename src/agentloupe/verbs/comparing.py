"""The verb `compare`: two runs step by step, or several in one table.

found = compare("weather-260401-abc123", "weather-260401-abc123-fork-1f2e3d")
found.rows[found.first]                  # where they part
detail(found, found.rows[found.first])   # what differs there, down to the words
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from agentloupe.engine.compare import Comparison, Row, Side, Summary, compare_runs, summarise
from agentloupe.engine.costs import PriceTable, price_run
from agentloupe.engine.difference import changes_between
from agentloupe.engine.news import News
from agentloupe.engine.overrides import tool_name
from agentloupe.engine.project import load_step, outcome_of, project
from agentloupe.engine.snapshots import read_snapshot
from agentloupe.engine.verify import verify
from agentloupe.engine.withholding import digest_kept
from agentloupe.ports.garbage import one_generation
from agentloupe.ports.pack import needs
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import GetBodies, Recording
from agentloupe.verbs.api import open_store, resolve
from agentloupe.verbs.replaying import find_recording
from agentloupe.words.canonical import Json, canonical, loads
from agentloupe.words.dialects import text_in, tools_in, without_tools
from agentloupe.words.errors import Corrupt, Damaged, UsageError
from agentloupe.words.event import Event
from agentloupe.words.keeping import DIGEST_OF, DIGESTS, KEPT
from agentloupe.words.step import Step, Trace

__all__ = [
    "compare",
    "detail",
    "message_changes",
    "request_changes",
    "side_of",
    "side_of_recording",
    "tool_changes",
    "word_changes",
]

Source = str | Path | Recording
"""A run of the store (by id, beginning of one, `last` ...), an exported file, or a recording."""

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_MANY_WORDS = 4000
_HISTORIES = ("messages", "input", "contents")


def compare(
    *runs: Source, store: Store | str | Path | None = None, prices: PriceTable | None = None
) -> Comparison | Summary:
    """Compares two runs, or sums up three and more.

    Args:
        runs: what to compare.
        store: where runs are: a store, its URL or its file; default: the store of the settings.
        prices: for the costs; default: the price library and `prices.json`.

    Raises:
        UsageError: fewer than two runs. RunNotFound, NotFound: there is no such run or file.
        Damaged, VersionUnknown: a recording cannot be read, or is not whole.
    """
    if len(runs) < 2:
        raise UsageError("a comparison needs at least two runs", hint="agentloupe compare RUN RUN")
    table = prices or PriceTable.load()
    where = open_store(store, create=False) if isinstance(store, str | Path) else store
    with one_generation:
        sides = [_side(run, where, table) for run in runs]
        return compare_runs(*sides) if len(sides) == 2 else summarise(sides)


def _side(run: Source, store: Store | None, table: PriceTable) -> Side:
    where = store or (open_store(create=False) if isinstance(run, str) else None)
    if isinstance(run, str) and where is not None and not _is_file(run):
        run_id = resolve(where, run)
        if not where.holds(run_id):
            _whole(where.recording(run_id))
        return side_of(where, run_id, table)
    recording = find_recording(run, where)
    _whole(recording)
    return side_of_recording(recording, table)


def _whole(recording: Recording) -> None:
    """Raises `Corrupt` where the chain does not hold; bodies are checked as they are read."""
    found = verify(recording, bodies=False)
    if found.fault is not None:
        raise Corrupt(
            f"run {recording.run_id} is not whole, it is not compared: {found.head}", reason=found.fault.reason
        )


def _is_file(run: str) -> bool:
    return "/" in run or run.endswith(".loupe")


def side_of(store: Store, run_id: str, table: PriceTable | None = None) -> Side:
    """A run of a store as one side: from its projection, bodies only when they are asked for."""
    row = store.run(run_id)
    if row is None:
        return side_of_recording(store.recording(run_id), table)  # raises, and says which run
    started = store.events(run_id, limit=1)
    return _made(Trace(row, tuple(store.steps(run_id))), store.get, run_id, table, started)


def side_of_recording(recording: Recording, table: PriceTable | None = None) -> Side:
    """A recording as one side."""
    trace = project(recording.events, recording.run_id)
    return _made(trace, recording.get, recording.origin, table, recording.events[:1])


def _made(trace: Trace, get: GetBodies, origin: str, table: PriceTable | None, started: Sequence[Event]) -> Side:
    run = trace.run if table is None else price_run(trace.run, trace.steps, table)
    outputs = _Outputs(run.id, get, origin)
    first = started[0] if started else None
    told = partial(read_snapshot, first, Recording(run.id, tuple(started), get, origin).body)
    return Side(run, trace.steps, News(trace.steps, get), outputs, _answer(trace, outputs), told)


# --- bodies -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Outputs:
    """Loads outputs of steps, many in one go; remembers nothing but the bodies of this go."""

    run_id: str
    get: GetBodies
    origin: str

    def __call__(self, steps: Sequence[Step]) -> Mapping[int, Json]:
        held = _Held(self.get)
        held.fetch(step.output_digest for step in steps if step.output_digest is not None)
        recording = Recording(self.run_id, (), held, self.origin)
        found: dict[int, Json] = {}
        for step in steps:
            try:
                found[step.idx] = outcome_of(step, held.value(recording, step.output_digest))
            except Corrupt:
                raise
            except Damaged:
                continue  # not there any more: it counts as different
        return found


@dataclass(slots=True)
class _Held:
    """Bodies that were fetched together; anything else is asked for where they came from."""

    get: GetBodies
    texts: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def fetch(self, digests: Iterable[str]) -> None:
        """Fetches bodies and what they need, round by round."""
        wanted = dict.fromkeys(digests)
        while wanted:
            found = self.get(list(wanted))
            self.texts.update(found)
            ahead = (digest for text in found.values() for digest in needs(text))
            wanted = dict.fromkeys(digest for digest in ahead if digest not in self.texts)

    def value(self, recording: Recording, digest: str | None) -> Json:
        """A body's value; most stand alone and need not be put together. Raises like `Recording.body`."""
        text = self.texts.get(digest) if digest is not None else None
        return recording.body(digest) if text is None or b'{"$' in text else loads(text)

    def __call__(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        here = {digest: self.texts[digest] for digest in digests if digest in self.texts}
        missing = [digest for digest in digests if digest not in here]
        return here if not missing else {**here, **self.get(missing)}


def _answer(trace: Trace, outputs: Callable[[Sequence[Step]], Mapping[int, Json]]) -> Json:
    """The run's final answer: what its root step returned, else the text of the last message of a model.

    Of a run that kept digests only it is `{"digest_of_output": ...}`: what was answered is not known, and not null either.
    """
    if trace.steps and trace.steps[0].kind == "agent" and trace.steps[0].parent_idx is None:
        root = trace.steps[0]
        if root.attrs.get(KEPT) == DIGESTS and (kept := digest_kept(root)) is not None:
            return {f"{DIGEST_OF}output": kept}
        result = outputs([root]).get(root.idx) if root.status == "ok" else None
        if result is not None:
            return text_in(result)  # the plain loop returns the whole message
    last = next((s for s in reversed(trace.steps) if s.kind == "llm" and s.status == "ok"), None)
    message = outputs([last]).get(last.idx) if last is not None else None
    return text_in(message)


# --- what differs in a row --------------------------------------------------------------------------------------------


def detail(
    comparison: Comparison, row: Row, *, store: Store | None = None, sources: Sequence[Recording] = ()
) -> dict[str, Json]:
    """What differs in one row, with the values.

    Args:
        comparison: that the row is of.
        row: of it.
        store: where its runs are; default: the store of the settings.
        sources: recordings that are in no store (files).

    Returns:
        `{status, notes, left, right, input, output, messages?, tools?}`. `left` and `right` are the steps with `input`, `output`
        and `error`; `input` and `output` list changed places (`difference.Change.as_json`), `messages` the model step's
        history message by message (`message_changes`), `tools` its tool definitions (`tool_changes`).
    """
    left = _loaded(comparison.left.id, row.left, store, sources)
    right = _loaded(comparison.right.id, row.right, store, sources)
    found: dict[str, Json] = {
        "status": row.status,
        "notes": list(row.notes),
        "left": _shown(left),
        "right": _shown(right),
    }
    if left is None or right is None:
        return found
    found["input"] = _changes(left.input, right.input)
    found["output"] = _changes(_outcome(left), _outcome(right))
    if isinstance(mine := _outcome(left), str) and isinstance(theirs := _outcome(right), str):
        found["words"] = word_changes(mine, theirs)
    if left.kind == "llm" and isinstance(left.input, dict) and isinstance(right.input, dict):
        found |= _asked_changes(left, right)
    return found


def _asked_changes(left: Step, right: Step) -> dict[str, list[Json]]:
    one, other = _request(left), _request(right)
    return {
        "messages": message_changes(_history(one), _history(other)),
        "answer": message_changes([left.output], [right.output]),
        "tools": tool_changes(tools_in(one), tools_in(other)),
    }


def request_changes(left: Step, right: Step) -> dict[str, list[Json]]:
    """What differs between two model steps with their bodies: `{messages, answer, tools, parameters}`.

    `parameters` lists changed places of everything in the requests that is neither message nor tool; see `detail` for the others.
    """
    one, other = (
        {k: v for k, v in without_tools(_request(step)).items() if k not in _HISTORIES} for step in (left, right)
    )
    return {**_asked_changes(left, right), "parameters": _changes(one, other)}


def _request(step: Step) -> Mapping[str, Json]:
    return step.input if isinstance(step.input, dict) else {}


def _loaded(run_id: str, step: Step | None, store: Store | None, sources: Sequence[Recording]) -> Step | None:
    if step is None:
        return None
    recording = next((one for one in sources if one.run_id == run_id), None)
    get = recording.get if recording is not None else (store or open_store(create=False)).get
    return load_step(Recording(run_id, (), get, run_id), step)


def _shown(step: Step | None) -> Json:
    if step is None:
        return None
    return {"idx": step.idx, "name": step.name, "input": step.input, "output": step.output, "error": step.error}


def _outcome(step: Step) -> Json:
    return step.output if step.error is None else step.error


def _changes(left: Json, right: Json) -> list[Json]:
    places, more = changes_between(left, right)
    listed: list[Json] = [place.as_json() for place in places]
    return [*listed, {"more": True}] if more else listed


def _history(request: Mapping[str, Json]) -> list[Json]:
    found = next((h for name in _HISTORIES if isinstance(h := request.get(name), list)), None)
    return found if found is not None else []


def message_changes(left: Sequence[Json], right: Sequence[Json]) -> list[Json]:
    """Two lists of messages, aligned: `{op, left, right, role, words?, changes?}` for each message.

    `op` is `same`, `changed`, `added` or `removed`; `left` and `right` are positions. A changed message has its texts word
    by word (`words`, see `word_changes`) and the changed places of everything else (`changes`).
    """
    ours, theirs = [canonical(m) for m in left], [canonical(m) for m in right]
    found: list[Json] = []
    for op, i, k, j, n in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        paired = min(k - i, n - j)
        what = "same" if op == "equal" else "changed"
        found.extend(_message(what, i + at, j + at, left, right) for at in range(paired))
        found.extend(_message("removed", at, None, left, right) for at in range(i + paired, k))
        found.extend(_message("added", None, at, left, right) for at in range(j + paired, n))
    return found


def _message(
    op: Literal["same", "changed", "added", "removed"],
    i: int | None,
    j: int | None,
    left: Sequence[Json],
    right: Sequence[Json],
) -> Json:
    mine = left[i] if i is not None else None
    theirs = right[j] if j is not None else None
    record: dict[str, Json] = {"op": op, "left": i, "right": j, "role": _role(theirs if mine is None else mine)}
    if op == "changed":
        one, other = _text(mine), _text(theirs)
        if one is not None and other is not None and one != other:
            record["words"] = word_changes(one, other)
        rest = _changes(_without_text(mine, one, other), _without_text(theirs, one, other))
        if rest:
            record["changes"] = rest
    return record


def _role(message: Json) -> Json:
    return message.get("role") if isinstance(message, dict) else None


def _text(message: Json) -> str | None:
    content = message.get("content") if isinstance(message, dict) else message
    return content if isinstance(content, str) else None


def _without_text(message: Json, one: str | None, other: str | None) -> Json:
    """A message without the text that is compared by words."""
    if one is None or other is None:
        return message
    return {k: v for k, v in message.items() if k != "content"} if isinstance(message, dict) else None


def word_changes(left: str, right: str) -> list[Json]:
    """Two texts word by word: pieces `["=", text]`, `["-", text]` and `["+", text]` in order; long texts line by line."""
    ours, theirs = _WORDS.findall(left), _WORDS.findall(right)
    many = len(ours) + len(theirs) > _MANY_WORDS
    if many:
        ours, theirs = left.splitlines(keepends=True), right.splitlines(keepends=True)
    pieces: list[Json] = []
    for op, i, k, j, n in difflib.SequenceMatcher(None, ours, theirs, autojunk=many).get_opcodes():
        if op == "equal":
            pieces.append(["=", "".join(ours[i:k])])
            continue
        if k > i:
            pieces.append(["-", "".join(ours[i:k])])
        if n > j:
            pieces.append(["+", "".join(theirs[j:n])])
    return pieces


def tool_changes(left: Json, right: Json) -> list[Json]:
    """Tool definitions by name: `{op, name, changes?}` for those that were added, removed or changed."""
    ours, theirs = _by_name(left), _by_name(right)
    found: list[Json] = []
    for name in dict.fromkeys((*ours, *theirs)):
        if name not in theirs or name not in ours:
            found.append({"op": "removed" if name in ours else "added", "name": name})
        elif changes := _changes(ours[name], theirs[name]):
            found.append({"op": "changed", "name": name, "changes": changes})
    return found


def _by_name(tools: Json) -> dict[str, Json]:
    named: dict[str, Json] = {}
    for at, tool in enumerate(tools if isinstance(tools, list) else []):
        named[tool_name(tool) or f"#{at}"] = tool
    return named
