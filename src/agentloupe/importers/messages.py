"""Reads plain OpenAI chat messages; each conversation becomes a run, see `conversation`.

A file is a list of messages, a request body `{"messages": [...], "tools": ..., "model": ...}`, or JSON Lines of such bodies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentloupe.importers.building import Raw, RunBuilder, raw_of
from agentloupe.importers.conversation import add_conversation
from agentloupe.importers.files import content_of, top_keys
from agentloupe.ports.protocols import Imported, ImportedRun
from agentloupe.words.canonical import Json, digest, loads
from agentloupe.words.errors import Corrupt

__all__ = ["MessagesImporter"]


@dataclass(frozen=True, slots=True)
class MessagesImporter:
    """Plain chat messages."""

    format: str = "messages"

    def detects(self, head: bytes) -> bool:
        """Whether it is a list of objects with a role, or an object with messages."""
        opening, keys = top_keys(head)
        return "role" in keys if opening == "[" else "messages" in keys and not keys & {"run", "step", "steps"}

    def read(self, path: Path) -> Imported:
        """Reads all conversations.

        Raises:
            Corrupt: there is none in it.
        """
        content = content_of(path)
        raw = raw_of(content)
        quarantined: list[str] = []
        runs = tuple(_built(body, raw) for body in _bodies(content, quarantined))
        if not runs:
            raise Corrupt(
                f"{path}: no conversation in it; {'; '.join(quarantined[:3]) or 'it is empty'}", reason="no_run"
            )
        return Imported(format=self.format, runs=runs, quarantined=tuple(quarantined))


def _bodies(content: bytes, quarantined: list[str]) -> Iterator[dict[str, Json]]:
    try:
        whole = loads(content)
    except ValueError as wrong:
        lines = [(n, line) for n, line in enumerate(content.split(b"\n"), 1) if line.strip()]
        if len(lines) < 2:
            quarantined.append(f"not strict JSON: {wrong}")
            return
        for number, line in lines:
            yield from _of_line(number, line, quarantined)
        return
    yield from _conversation(whole, "the file", quarantined)


def _of_line(number: int, line: bytes, quarantined: list[str]) -> Iterator[dict[str, Json]]:
    try:
        value = loads(line.removesuffix(b"\r"))
    except ValueError as wrong:
        quarantined.append(f"line {number}: not strict JSON: {wrong}")
        return
    yield from _conversation(value, f"line {number}", quarantined)


def _conversation(value: Json, where: str, quarantined: list[str]) -> Iterator[dict[str, Json]]:
    listed: dict[str, Json] = {"messages": value}
    body = listed if isinstance(value, list) else value
    if isinstance(body, dict) and isinstance(body.get("messages"), list):
        yield body
    else:
        quarantined.append(f"{where}: no list of messages")


def _built(body: dict[str, Json], raw: Raw) -> ImportedRun:
    part = digest(body)
    builder = RunBuilder(f"chat-{part[:8]}", "messages", raw, body)
    builder.start(agent="chat", name=f"chat {part[:8]}")
    messages = body["messages"]
    assert isinstance(messages, list)
    rest = {name: value for name, value in body.items() if name != "messages"}
    add_conversation(builder, messages, rest)
    builder.finish()
    notes = [] if isinstance(rest.get("model"), str) else ["the model is not known: a fork must be told one"]
    if "tools" not in rest:
        notes.append("definitions of tools are not known")
    return builder.made(["model calls are inferred from the assistant messages", *notes])
