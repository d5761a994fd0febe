"""Without a network for real: the tests of the replay pass in an empty network namespace, with every provider's key unset."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from agentloupe.engine.guard import KEYS, unshare_command
from tests.support import ROOT

REPLAYS = ("replay", "replay_T2", "replay_T8", "replay_T9", "replay_T13", "verification_matrix", "yielding")
"""Tests that record with what they make themselves: no server is started, so nothing of them needs a network."""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_tests_of_the_replay_pass_in_an_empty_network_namespace() -> None:
    files = [f"tests/unit/test_{name}.py" for name in REPLAYS]
    options = ["-q", "-p", "no:cacheprovider", "-p", "pytest_timeout", "-p", "agentloupe.pytest_plugin"]
    shut = unshare_command([sys.executable, "-m", "pytest", *options, *files])
    if shut is None:
        pytest.skip("network namespaces are not to be had here")
    keyless = {name: value for name, value in os.environ.items() if name not in KEYS}
    environment = keyless | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(shut, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 150
    assert "failed" not in done.stdout
