"""One real report of every kind of divergence, made with the small agent that `guides/replay.md` shows."""

from __future__ import annotations

import re
import runpy
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import agentloupe as loupe
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from tests.support import ROOT
from tests.tapes import record_in, tampered

Edits: TypeAlias = tuple[tuple[str, str], ...]
Expect: TypeAlias = Sequence[Mapping[str, Any]] | None

_SHOWN = re.compile(r"<!-- agent\.py -->\n```python\n(.*?)```\n", re.DOTALL)

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


def agent_source() -> str:
    """The agent as the guide shows it."""
    found = _SHOWN.search((ROOT / "docs" / "guides" / "replay.md").read_text("utf-8"))
    assert found is not None, "guides/replay.md shows no agent.py"
    return found[1]


def _agent(folder: Path, source: str) -> Any:
    file = folder / "agent.py"
    file.write_text(source, "utf-8")
    return runpy.run_path(str(file))["triage"]


def _edited(source: str, edits: Edits) -> str:
    for old, new in edits:
        assert old in source, f"the agent in the guide has no {old!r}"
        source = source.replace(old, new)
    return source


def _tidy(text: str, run_id: str, folder: Path) -> str:
    """Without what differs from one making to the next: run, folder, hashes; and without general lines."""
    text = text.replace(run_id, "triage-261129-k3v9qa").replace(f"{folder}/", "")
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
    made["not_rebuildable"] = _class_gone(folder, source)
    return {name: _tidy(text, recording.run_id, folder) for name, text in made.items()}


def _cut_file(folder: Path, recording: Recording, agent: Any) -> str:
    file = folder / "incident.loupe"
    with file.open("wb") as out:
        LoupeFileExporter(packed=False).write(iter([recording]), out)
    file.write_bytes(file.read_bytes()[:4000])
    return loupe.replay(file, agent).text()


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
