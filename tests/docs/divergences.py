"""One real report of every kind of divergence, made with the small agents that `when-a-replay-diverges.md` shows."""

from __future__ import annotations

import os
import re
import runpy
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias
from unittest import mock

import agentloupe as loupe
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from tests.support import ROOT
from tests.tapes import edited, record_in, tampered

Edits: TypeAlias = tuple[tuple[str, str], ...]
Expect: TypeAlias = Sequence[Mapping[str, Any]] | None

PAGE: Final = ROOT / "docs" / "guides" / "when-a-replay-diverges.md"
_SHOWN = re.compile(r"<!-- (\w+\.py) -->\n```python\n(.*?)```\n", re.DOTALL)

_FIND = "    ticket = find_ticket(number)\n"
_WHO = '    who = loupe.env("ON_CALL", "Lee")\n'

EDITS: Mapping[str, Edits] = {
    "input_changed": (("{number} is ", "{number} has severity "),),
    "name_changed": (("def notify", "def page"), ("    notify(", "    page(")),
    "order": ((_FIND + _WHO, _WHO + _FIND),),
    "extra": (("    return f", '    notify("Kim", number)\n    return f'),),
    "unconsumed": (("    notify(", '    if number != "T-7":\n        notify('),),
    "result_changed": (("told {", "informed {"),),
    "leak": (
        ("import agentloupe as loupe", "import socket\n\nimport agentloupe as loupe"),
        (_WHO, '    socket.create_connection(("127.0.0.1", 9))\n' + _WHO),
    ),
}
"""What is changed in the agent for each kind."""


AT_ONCE: Mapping[str, tuple[str, Edits]] = {
    "missing": ("missing", (("return await ping(host)", "return await asyncio.Event().wait()"),)),
    "one_after_the_other": (
        "extra",
        (
            (
                'asyncio.gather(within(5, "near"), within(0.05, "far"))',
                'within(5, "near"), await within(0.05, "far")',
            ),
        ),
    ),
    "other_lane": (
        "input_changed",
        (('within(5, "near"), within(0.05, "far")', 'within(0.05, "far"), within(5, "near")'),),
    ),
    "no_timeout": ("missing", (("asyncio.timeout(seconds)", "asyncio.timeout(None)"),)),
}
"""What is changed in the agent that does two things at once, with the kind that comes of it."""

BOTH_ANSWER: Edits = (('"far"', '"near"'),)


def agent_source(name: str = "agent.py") -> str:
    """An agent as the guide shows it."""
    found = dict(_SHOWN.findall(PAGE.read_text("utf-8")))
    assert name in found, f"{PAGE.name} shows no {name}"
    return found[name]


def _agent(folder: Path, source: str, file: str = "agent.py", name: str = "triage") -> Any:
    script = folder / file
    script.write_text(source, "utf-8")
    return runpy.run_path(str(script))[name]


def _edited(source: str, edits: Edits) -> str:
    for old, new in edits:
        assert old in source, f"the agent in the guide has no {old!r}"
        source = source.replace(old, new)
    return source


def _tidy(text: str, run_id: str, folder: Path) -> str:
    """Without what differs from one making to the next: run, folder, hashes; and without general lines."""
    text = text.replace(run_id, f"{run_id.partition('-')[0]}-261129-k3v9qa").replace(f"{folder}/", "")
    text = re.sub(
        r"expected [0-9a-f]{16}, found [0-9a-f]{16}", "expected b7fac667138752ed, found 0d2738713f80dd9c", text
    )
    lines = [line for line in text.splitlines() if not line.startswith(("note: ", "  audit hook"))]
    lines = [line for line in lines if not line.startswith("diverged: ")]
    return "\n".join(re.sub(r", native sockets.*", "", line) for line in lines)


def reports(folder: Path) -> dict[str, str]:
    """Name of a report -> its text."""
    source = agent_source()
    recording = record_in(MemoryStore(), _agent(folder, source), "T-7")

    def text_of(edits: Edits = (), of: Recording = recording, expect: Expect = None) -> str:
        return loupe.replay(of, _agent(folder, _edited(source, edits)), expect=expect).text()

    made = {kind: text_of(edits) for kind, edits in EDITS.items()}
    wrong = [kind for kind, text in made.items() if f"\n{kind} at sequence" not in text]
    assert not wrong, f"another kind than {wrong}"
    left_out: Expect = [{"kind": "unconsumed", "name": "notify"}]
    made["pass"] = text_of()
    made["expected"] = text_of(EDITS["unconsumed"], expect=left_out)
    made["not_as_expected"] = text_of(expect=left_out)
    made["corrupt"] = text_of(of=tampered(recording, 4, output_digest=recording.events[0].input_digest))
    made["truncated"] = _cut_file(folder, recording, _agent(folder, source))
    made["version"] = _newer_file(folder, recording, _agent(folder, source))
    made["not_rebuildable"] = _class_gone(folder, source)
    odd = [kind for kind in ("corrupt", "truncated", "version", "not_rebuildable") if f"\n{kind}" not in made[kind]]
    assert not odd, f"another kind than {odd}"
    tidy = {name: _tidy(text, recording.run_id, folder) for name, text in made.items()}
    return tidy | _at_once(folder) | _streamed(folder)


def _streamed(folder: Path) -> dict[str, str]:
    """Reports of the agent that leaves a stream early."""
    source = agent_source("stream.py")

    def agent(lines: int) -> Any:
        return _agent(folder, _edited(source, (("== 2", f"== {lines}"),)), "stream.py", "beginning")

    recording = record_in(MemoryStore(), agent(2))
    made = {
        "read_on": loupe.replay(recording, agent(3)).text(),
        "left_before": loupe.replay(recording, agent(1)).text(),
    }
    assert "\nextra at sequence" in made["read_on"]
    assert "\nunconsumed at sequence" in made["left_before"]
    return {name: _tidy(text, recording.run_id, folder) for name, text in made.items()}


def _at_once(folder: Path) -> dict[str, str]:
    """Reports of the agent that does two things at once; a replay that stands still is stopped soon."""
    source = agent_source("watch.py")

    def agent(edits: Edits = ()) -> Any:
        return _agent(folder, _edited(source, edits), "watch.py", "watch")

    recording = record_in(MemoryStore(), agent())
    with mock.patch.dict(os.environ, {"LOUPE_SCHEDULE": "off"}):
        loose = record_in(MemoryStore(), agent(BOTH_ANSWER))
    with mock.patch.dict(os.environ, {"LOUPE_STUCK_AFTER": "0.2"}):
        made = {name: loupe.replay(recording, agent(edits)).text() for name, (_, edits) in AT_ONCE.items()}
    wrong = [name for name, (kind, _) in AT_ONCE.items() if f"\n{kind} at sequence" not in made[name]]
    assert not wrong, f"another kind than expected: {wrong}"
    tidy = {name: _tidy(text, recording.run_id, folder) for name, text in made.items()}
    doubtful = loupe.replay(loose, agent(BOTH_ANSWER))
    assert doubtful.passed
    assert doubtful.unproven
    return tidy | {"unproven": _tidy(doubtful.text(), loose.run_id, folder)}


def _exported(folder: Path, recording: Recording) -> Path:
    file = folder / "incident.loupe"
    with file.open("wb") as out:
        LoupeFileExporter(packed=False).write(iter([recording]), out)
    return file


def _cut_file(folder: Path, recording: Recording, agent: Any) -> str:
    file = _exported(folder, recording)
    file.write_bytes(file.read_bytes()[:4000])
    return loupe.replay(file, agent).text()


def _newer_file(folder: Path, recording: Recording, agent: Any) -> str:
    """The recording as a later version might have written it."""
    newer = edited(recording, lambda drafts: [replace(draft, schema_version=2) for draft in drafts])
    return loupe.replay(_exported(folder, newer), agent).text()


def _class_gone(folder: Path, source: str) -> str:
    """A recorded exception whose class has another name by now."""
    recording = record_in(MemoryStore(), _module(folder, source), "T-0")
    renamed = _module(folder, source.replace("TicketGone", "NoSuchTicket"))
    text = loupe.replay(recording, renamed).text()
    return text.replace(recording.run_id, "triage-261129-k3v9qa")


def _module(folder: Path, source: str) -> Any:
    """The agent as an imported module, where its classes are looked for."""
    (folder / "agent.py").write_text(source, "utf-8")
    module = types.ModuleType("agent")
    module.__file__ = str(folder / "agent.py")
    with mock.patch.dict(sys.modules, {"agent": module}):
        exec(compile(source, module.__file__, "exec"), module.__dict__)
    sys.modules["agent"] = module
    return module.triage
