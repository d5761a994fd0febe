"""The guide's own files, run as it says."""

from __future__ import annotations

import re

import pytest

from tests.support import ROOT

_FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)


def test_the_files_of_the_guide_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    guide = (ROOT / "docs/guides/pytest.md").read_text("utf-8")
    found = dict(_FILE.findall(guide))
    assert len(found) == 5
    for name, text in found.items():
        (pytester.path / name).write_text(text, "utf-8")
    plugin = ("-p", "agentloupe.pytest_plugin")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    pytester.runpytest_subprocess(*plugin).assert_outcomes(passed=2, skipped=1)
    result = pytester.runpytest_subprocess(*plugin, "-v", "--record-mode=none")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(["recordings/refund.loupe::replay PASSED*"])
    changed = found["my_app.py"].replace("number=number", "number=number.lower()")
    (pytester.path / "my_app.py").write_text(changed, "utf-8")
    failed = pytester.runpytest_subprocess(*plugin, "test_refund.py").stdout.str()
    assert "name it with expect= of replay(...) or of the marker" in failed
    said = pytester.runpytest_subprocess(*plugin, "test_refund.py", "--record-mode=all").stdout.str()
    shown = guide.partition('```text\n$ pytest "test_refund.py')[2].partition("\n")[2].partition("```")[0]
    for line in (re.sub(r"support-\S+", "", line).rstrip() for line in shown.splitlines()):
        assert line in re.sub(r"support-\S+", "", said)
