"""The pytest plugin, by real test sessions: what is recorded, replayed, refused and said."""

from __future__ import annotations

import json
import xml.etree.ElementTree as Xml
from pathlib import Path

import pytest

from agentloupe.importers.loupe_file import open_file

AGENT = """
import agentloupe as loupe

@loupe.tool(effect="read")
def look_up(order):
    with open("calls.txt", "a") as out:
        out.write(f"{order}\\n")
    return {"order": order, "paid": True}

@loupe.agent
def support(order):
    return "refunded" if look_up(order=ORDER(order))["paid"] else "kept"

@loupe.agent
async def waiting(order):
    return look_up(order=ORDER(order))["order"]

def ORDER(order):
    return order
"""
CHANGED = AGENT.replace("    return order\n", "    return order.lower()\n")
TESTS = """
import pytest
import agentloupe as loupe
import my_agent

def test_fixture(replay):
    assert replay("recordings/refund.loupe", my_agent.support, args=["A-1"]).passed

def test_async(replay):
    replay("recordings/waiting.loupe", my_agent.waiting, kwargs={"order": "A-2"})

class TestOwn:
    @pytest.mark.loupe
    def test_own(self):
        assert my_agent.support("A-3") == "refunded"
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with an agent and tests of it."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # starts twice as fast; what a test needs it names
    pytester.makeini("[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n")
    pytester.makepyfile(my_agent=AGENT, test_agents=TESTS)
    return pytester


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "agentloupe.pytest_plugin", *args)


def calls(project: pytest.Pytester) -> list[str]:
    """What the real tool was called with, over all sessions so far."""
    file = project.path / "calls.txt"
    return file.read_text().split() if file.exists() else []


def files(project: pytest.Pytester) -> list[str]:
    return sorted(p.relative_to(project.path).as_posix() for p in project.path.rglob("*.loupe"))


def test_once_records_and_then_replays(project: pytest.Pytester) -> None:
    first = run(project)
    first.assert_outcomes(passed=3)
    first.stdout.fnmatch_lines(["*recordings of agents*", "recorded recordings/refund.loupe (support-*)"])
    assert calls(project) == ["A-1", "A-2", "A-3"]
    assert files(project) == [
        "recordings/refund.loupe",
        "recordings/test_agents/TestOwn.test_own.loupe",
        "recordings/waiting.loupe",
    ]
    second = run(project, "--junitxml=told.xml")
    second.assert_outcomes(passed=3)
    assert "recordings of agents" not in second.stdout.str()
    assert len(calls(project)) == 3, "nothing real ran again"
    assert not (project.path / ".loupe").exists(), "the project's store is left alone"
    told = _properties(project.path / "told.xml")
    recording = open_file(project.path / "recordings/refund.loupe")
    assert told["test_fixture"]["loupe_run"] == recording.run_id
    assert told["test_fixture"]["loupe_recording"] == recording.events[-1].hash
    assert told["test_own"]["loupe_verdict"] == "pass"
    assert told["test_own"]["loupe_levels"] == "flow+state+content"
    assert told["test_async"]["loupe_events"] == "5 of 5"
    assert told["test_async"]["loupe_reader"]


def _properties(file: Path) -> dict[str, dict[str, str]]:
    cases = Xml.parse(file).getroot().iter("testcase")
    return {str(c.get("name")): {str(p.get("name")): str(p.get("value")) for p in c.iter("property")} for c in cases}


@pytest.mark.parametrize("how", ["the variable CI", "the option", "the setting"])
def test_none_never_makes_a_real_call(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "the variable CI":
        monkeypatch.setenv("CI", "true")
    elif how == "the setting":
        project.makeini("[pytest]\npythonpath = .\nloupe_record_mode = none\n")
    result = run(project, *(["--record-mode=none"] if how == "the option" else []))
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "there is no recording recordings/refund.loupe, and record mode `none` never makes a real call",
            'to record it, which runs the agent for real: pytest "test_agents.py::test_fixture" --loupe-record-mode=once',
        ]
    )
    assert calls(project) == []
    assert files(project) == []


def test_in_ci_only_the_command_line_can_ask_for_a_recording(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "1")
    project.makepyfile(
        test_agents="""
        import pytest, my_agent
        @pytest.mark.loupe(mode="all")
        def test_own():
            my_agent.support("A-1")
        def test_fixture(replay):
            replay("recordings/x.loupe", my_agent.support, args=["A-2"], mode="once")
        """
    )
    run(project).assert_outcomes(failed=2)
    assert calls(project) == []
    run(project, "--loupe-record-mode=once").assert_outcomes(passed=2)
    assert calls(project) == ["A-1", "A-2"]


def test_a_changed_agent_fails_with_the_report_and_without_a_traceback_of_ours(project: pytest.Pytester) -> None:
    run(project).assert_outcomes(passed=3)
    project.makepyfile(my_agent=CHANGED)
    before = {name: (project.path / name).read_bytes() for name in files(project)}
    for mode in ("once", "none"):
        result = run(project, f"--record-mode={mode}")
        result.assert_outcomes(failed=3)
        result.stdout.fnmatch_lines(
            [
                "recording recordings/refund.loupe: input_changed at sequence 2*my_agent.py:*",
                "  order: *A*a*",
                'if the change is meant*: pytest "test_agents.py::test_fixture" --loupe-record-mode=all',
            ]
        )
        assert "agentloupe/" not in result.stdout.str()
        assert "Traceback" not in result.stdout.str()
    assert calls(project) == ["A-1", "A-2", "A-3"]
    assert {name: (project.path / name).read_bytes() for name in files(project)} == before


OWN = "recordings/test_agents/TestOwn.test_own.loupe"
FORMS = [
    ("test_agents.py::test_fixture", "recordings/refund.loupe", "1"),
    ("test_agents.py::TestOwn::test_own", OWN, "3"),
    ("recordings/refund.loupe", "recordings/refund.loupe", "1"),
    ("test_folder.py", OWN, "3"),
]
"""By fixture, by marker, by folder, by marked folder: the test, its recording, the number of its order."""


@pytest.mark.parametrize("mode", ["all", "new_episodes"])
def test_one_changed_recording_is_made_anew_and_its_difference_is_shown(project: pytest.Pytester, mode: str) -> None:
    run(project).assert_outcomes(passed=3)
    project.makeini(
        "[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n"
        "loupe_recordings = recordings\nloupe_agent = my_agent:support\n"
    )
    project.makepyfile(
        my_agent=CHANGED,
        test_folder="""
        import pytest, my_agent
        @pytest.mark.loupe_recordings("recordings/test_agents")
        def test_all(replay, recording):
            replay(recording, my_agent.support)
        """,
    )
    before = {name: (project.path / name).read_bytes() for name in files(project)}
    for wanted, file, number in FORMS:
        (project.path / file).write_bytes(before[file])
        asked = len(calls(project))
        result = run(project, f"--record-mode={mode}", wanted)
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(
            [
                f"recorded {file} anew: support-* -> support-*",
                "  step 1 tool look_up: input differs",
                f"    input order: A-{number} -> a-{number}",
            ]
        )
        assert (project.path / file).read_bytes() != before[file]
        assert calls(project)[asked:] == [f"a-{number}"]
    changed = {name for name in files(project) if (project.path / name).read_bytes() != before[name]}
    assert changed == {file for _, file, _ in FORMS}
    run(project, "--record-mode=none", "--deselect", "test_agents.py::test_async", "test_agents.py").assert_outcomes(
        passed=2, deselected=1
    )


def test_new_episodes_records_what_is_missing_or_no_longer_agrees(project: pytest.Pytester) -> None:
    run(project).assert_outcomes(passed=3)
    (project.path / "recordings/waiting.loupe").unlink()
    kept = (project.path / "recordings/refund.loupe").read_bytes()
    run(project, "--record-mode=new_episodes").assert_outcomes(passed=3)
    assert calls(project)[3:] == ["A-2"]
    assert (project.path / "recordings/refund.loupe").read_bytes() == kept
    project.makepyfile(my_agent=CHANGED)
    result = run(project, "--record-mode=new_episodes")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["recorded recordings/refund.loupe anew: *"])
    assert calls(project)[4:] == ["a-1", "a-2", "a-3"]


def test_a_marked_test_that_fails_when_it_runs_once_more_keeps_its_recording(project: pytest.Pytester) -> None:
    run(project).assert_outcomes(passed=3)
    kept = (project.path / OWN).read_bytes()
    project.makepyfile(my_agent=CHANGED.replace('"refunded" if', '"sent back" if'))
    result = run(project, "--record-mode=new_episodes", "test_agents.py::TestOwn")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError*", "*sent back*"])
    assert (project.path / OWN).read_bytes() == kept
    assert calls(project)[3:] == ["a-3"]


def test_what_is_wrong_with_a_recording_is_never_mended_by_recording(project: pytest.Pytester) -> None:
    run(project).assert_outcomes(passed=3)
    for name in files(project):
        file = project.path / name
        file.write_bytes(file.read_bytes()[:-40])
    result = run(project, "--record-mode=new_episodes")
    result.assert_outcomes(failed=3)
    assert len(calls(project)) == 3
    assert "Traceback" not in result.stdout.str()


def test_the_verdict_is_the_session_s_and_not_the_test_s(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agents="""
        import pytest, my_agent
        @pytest.mark.loupe
        def test_swallows():
            try:
                my_agent.support("A-1")
            except BaseException:
                pass
        @pytest.mark.loupe
        def test_says_no():
            result = None
            try:
                result = my_agent.support("A-2")
            except BaseException:
                pass
            assert result == "refunded"
        """
    )
    run(project).assert_outcomes(passed=2)
    project.makepyfile(my_agent=CHANGED)
    run(project).assert_outcomes(failed=2)
    project.makepyfile(my_agent=AGENT.replace('"refunded" if', '"sent back" if'))
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*result_changed*", "the test itself then failed with AssertionError: *"])


def test_a_test_that_fails_records_nothing(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agents="""
        import pytest, my_agent
        @pytest.mark.loupe
        def test_wrong():
            assert my_agent.support("A-1") == "kept"
        @pytest.mark.loupe
        def test_none():
            pass
        @pytest.mark.loupe
        def test_two():
            my_agent.support("A-2"), my_agent.support("A-3")
        @pytest.mark.loupe
        def test_skips():
            pytest.skip("not today")
        """
    )
    result = run(project)
    result.assert_outcomes(failed=3, skipped=1)
    result.stdout.fnmatch_lines(["*one recording holds one run, and the test started no run*"])
    result.stdout.fnmatch_lines(["*one recording holds one run, and the test started 2 runs*"])
    assert files(project) == []


def test_the_network_is_shut_in_tests_that_replay(project: pytest.Pytester) -> None:
    project.makepyfile(
        my_agent="""
        import os, urllib.request
        import agentloupe as loupe
        @loupe.agent
        def support(order):
            if os.environ.get("LEAK"):
                try:
                    urllib.request.urlopen("http://127.0.0.1:9/")
                except Exception:
                    pass
            return loupe.now().year > 2000
        """,
        test_agents="""
        import pytest, my_agent
        @pytest.mark.loupe
        def test_own():
            assert my_agent.support(1)
        def test_fixture(replay):
            replay("recordings/x.loupe", my_agent.support, args=[1])
        """,
    )
    run(project).assert_outcomes(passed=2)
    project.makeconftest("import os\nos.environ['LEAK'] = '1'\n")
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*leak*a real call went past the boundary; it was refused*"])


def test_sessions_in_tests_are_strict(project: pytest.Pytester) -> None:
    project.makepyfile(
        my_agent="""
        import threading
        import agentloupe as loupe
        @loupe.tool(effect="read")
        def look_up(order):
            return threading.Lock()
        @loupe.agent
        def support(order):
            look_up(order)
            return "done"
        """,
        test_agents="""
        import pytest, my_agent
        import agentloupe as loupe
        @pytest.mark.loupe
        def test_own():
            my_agent.support(1)
        def test_plain():
            loupe.record(my_agent.support, 1)
        """,
    )
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*Unrecordable: the result of 'look_up' cannot be recorded*"])
    project.makeini("[pytest]\npythonpath = .\nloupe_strict = false\n")
    run(project, "-k", "plain").assert_outcomes(passed=1)


def test_each_file_of_a_folder_is_a_test(project: pytest.Pytester) -> None:
    run(project).assert_outcomes(passed=3)
    project.makeini(
        "[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n"
        "loupe_recordings = recordings\nloupe_agent =\n    waiting = my_agent:waiting\n    my_agent:support\n"
    )
    result = run(project, "-v", "--junitxml=told.xml")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(
        [
            "recordings/refund.loupe::replay PASSED*",
            "recordings/test_agents/TestOwn.test_own.loupe::replay PASSED*",
            "recordings/waiting.loupe::replay PASSED*",
        ]
    )
    assert len(calls(project)) == 3
    project.makepyfile(my_agent=CHANGED)
    result = run(project, "recordings/refund.loupe")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["recording recordings/refund.loupe: input_changed at sequence 2*"])
    # The recorded arguments say what to record anew with.
    result = run(project, "recordings/refund.loupe", "--record-mode=new_episodes")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["    input order: A-1 -> a-1"])


def test_a_folder_by_marker_gives_a_test_for_each_file(project: pytest.Pytester) -> None:
    run(project).assert_outcomes(passed=3)
    project.makepyfile(
        test_folder="""
        import pytest, my_agent
        @pytest.mark.loupe_recordings("recordings/test_agents")
        def test_all(replay, recording):
            replay(recording, my_agent.support)
        """,
        test_empty="""
        import pytest
        @pytest.mark.loupe_recordings("nowhere")
        def test_all(replay, recording):
            replay(recording)
        """,
    )
    result = run(project, "-v", "test_folder.py")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_folder.py::test_all[[]TestOwn.test_own[]] PASSED*"])
    run(project, "test_empty.py").assert_outcomes(skipped=1)
    result = run(project, "test_empty.py", "--record-mode=none")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*there is no folder *nowhere, so that nothing would be tested*", "*agentloupe export RUN -o *"]
    )


def test_isolated_replays_run_in_a_process_of_their_own(project: pytest.Pytester) -> None:
    run(project).assert_outcomes(passed=3)
    with (project.path / "my_agent.py").open("a") as out:
        out.write('\nimport os\nopen("process.txt", "w").write(str(os.getpid()))\n')
    project.makepyfile(
        test_agents="""
        import os, my_agent
        def test_isolated(replay):
            report = replay("recordings/refund.loupe", "my_agent:support", isolated=True)
            assert report.isolation.startswith("child process")
            assert open("process.txt").read() != str(os.getpid())
        def test_function(replay):
            replay("recordings/refund.loupe", my_agent.support, isolated=True)
        """
    )
    result = run(project)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*an isolated replay imports the agent in a process of its own*"])


def test_async_tests_work_inside_their_own_loop(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agents="""
        import pytest, my_agent
        pytestmark = pytest.mark.anyio
        @pytest.fixture
        def anyio_backend():
            return "asyncio"
        @pytest.mark.loupe
        async def test_own():
            assert await my_agent.waiting("A-1") == "A-1"
        async def test_fixture(replay):
            replay("recordings/x.loupe", my_agent.waiting, args=["A-2"])
            replay("recordings/y.loupe", my_agent.support, args=["A-3"])
        """
    )
    run(project, "-p", "anyio").assert_outcomes(passed=2)
    assert len(calls(project)) == 3
    run(project, "-p", "anyio", "--record-mode=none").assert_outcomes(passed=2)
    assert len(calls(project)) == 3
    project.makepyfile(my_agent=CHANGED)
    run(project, "-p", "anyio").assert_outcomes(failed=2)


def test_other_workers_tell_the_same(project: pytest.Pytester) -> None:
    first = run(project, "-p", "xdist", "-n", "2")
    first.assert_outcomes(passed=3)
    first.stdout.fnmatch_lines(["recorded recordings/refund.loupe (support-*)"])
    assert sorted(calls(project)) == ["A-1", "A-2", "A-3"]
    project.makeini("[pytest]\npythonpath = .\nloupe_recordings = recordings\nloupe_agent = my_agent:support\n")
    (project.path / "recordings/waiting.loupe").unlink()
    second = run(
        project,
        "-p",
        "xdist",
        "-n",
        "2",
        "-p",
        "pytest_randomly",
        "--junitxml=told.xml",
        "--deselect",
        "test_agents.py::test_async",
    )
    second.assert_outcomes(passed=4)
    assert all(told["loupe_verdict"] == "pass" for told in _properties(project.path / "told.xml").values())
    assert len(calls(project)) == 3


def test_an_order_that_is_not_proven_fails_where_that_is_wanted(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile(
        my_agent=AGENT
        + """
import asyncio
@loupe.tool(effect="read")
async def later(n):
    await asyncio.sleep(0)
    return n
@loupe.agent
async def both():
    return sum(await asyncio.gather(later(n=1), later(n=2)))
""",
        test_agents="""
        import asyncio, pytest, my_agent
        @pytest.mark.loupe
        def test_own():
            assert asyncio.run(my_agent.both()) == 3
        """,
    )
    monkeypatch.setenv("LOUPE_SCHEDULE", "off")
    run(project).assert_outcomes(passed=1)
    run(project, "--junitxml=told.xml").assert_outcomes(passed=1)
    assert _properties(project.path / "told.xml")["test_own"]["loupe_order"] == "not proven"
    strict = run(project, "--loupe-strict-order")
    strict.assert_outcomes(failed=1)
    strict.stdout.fnmatch_lines(["*order not proven: *"])
    monkeypatch.delenv("LOUPE_SCHEDULE")
    run(project, "--record-mode=all").assert_outcomes(passed=1)
    run(project, "--loupe-strict-order").assert_outcomes(passed=1)


def test_wrong_words_are_named(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_agents="""
        import pytest, my_agent
        @pytest.mark.loupe("a.loupe", levle="flow")
        def test_marker():
            my_agent.support("A-1")
        def test_mode(replay):
            replay("a.loupe", my_agent.support, args=["A-1"], mode="sometimes")
        def test_arguments(replay):
            replay("a.loupe", my_agent.support)
        def test_no_run(replay):
            replay("a-run-of-the-store", my_agent.support)
        """
    )
    result = run(project)
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(["*@pytest.mark.loupe: *unexpected keyword argument 'levle'*"])
    result.stdout.fnmatch_lines(["*unknown record mode 'sometimes'*"])
    result.stdout.fnmatch_lines(["*a.loupe cannot be recorded: what the agent is called with is not known*"])
    assert calls(project) == []
    assert "Traceback" not in result.stdout.str()
    project.makeini("[pytest]\nloupe_recordings = nowhere\n")
    for words in (["--record-mode=none"], ["--loupe-recordings=nowhere"]):
        result = run(project, *words)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*no such folder of recordings*", "*--loupe-recordings*agentloupe export RUN*"])


def test_the_plugin_is_found_and_loads_nothing_before_it_is_needed(project: pytest.Pytester) -> None:
    from tests.support import ROOT

    assert '[project.entry-points.pytest11]\nagentloupe = "agentloupe.pytest_plugin"' in (
        ROOT / "pyproject.toml"
    ).read_text("utf-8")
    project.makepyfile(
        my_agent="",
        test_agents="""
        import json, sys
        def test_nothing():
            with open("loaded.json", "w") as out:
                json.dump([name for name in sys.modules if name.startswith(("agentloupe", "orjson", "zstandard"))], out)
        """,
    )
    run(project).assert_outcomes(passed=1)
    assert json.loads((project.path / "loaded.json").read_text()) == ["agentloupe", "agentloupe.pytest_plugin"]
