"""Case 08: a prompt built from a set, recorded with one PYTHONHASHSEED and replayed with another, in child processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentloupe.store import open_url
from agentloupe.verbs.isolated import replay_command
from tests.support import ROOT

RUNNER = """
import importlib.util, sys
from pathlib import Path
from agentloupe.store import open_url
from tests.cases.rec import Rec

spec = importlib.util.spec_from_file_location("set_prompt", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.main(Rec(open_url(sys.argv[2]) if len(sys.argv) > 2 else None))
"""


@pytest.fixture
def script(shared_case: Callable[[str], Path], workdir: Path) -> list[str]:
    (workdir / "runner.py").write_text(RUNNER, "utf-8")
    return ["python", str(workdir / "runner.py"), str(shared_case("08") / "set_prompt.py")]


def _environment(seed: str) -> dict[str, str]:
    return {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}


@pytest.mark.slow
def test_the_set_is_a_divergence_at_its_first_call_with_a_hint(script: list[str], workdir: Path) -> None:
    command = [sys.executable, *script[1:], str(workdir / "x.db")]
    subprocess.run(command, env={**os.environ, **_environment("1")}, check=True, cwd=ROOT)
    store = open_url(workdir / "x.db")
    recording = store.recording(store.runs()[0].id)

    again = {"PYTHONPATH": _environment("1")["PYTHONPATH"]}
    same = replay_command(recording, script, environment=again)
    assert same.verdict == "pass", f"the recorded seed is used unless told otherwise\n{same.text()}"

    report = replay_command(recording, script, environment=_environment("2"))
    found = report.divergence
    assert found is not None, report.text()
    assert (report.exit_code, found.kind, found.sequence) == (1, "input_changed", 2)
    assert any("unordered collection" in hint for hint in found.hints), report.text()
    assert "messages[0].content: Tags: [-" in report.text()
    assert found.caller is not None, "the line of the adapter that makes the call"
    store.close()
