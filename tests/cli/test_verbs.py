"""Every verb does what it is for: as text for people, as one JSON document for machines."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from agentloupe.cli.app import GROUPS, VERBS
from agentloupe.engine.project import Projector
from agentloupe.providers.scripted import ScriptedServer, ask, say
from agentloupe.store import open_url
from tests.cli.driving import Command, agentloupe
from tests.support import ROOT

RUN_FIELDS = {
    *("id", "name", "agent", "status", "started_at", "ended_at", "model", "tags", "parent_run_id", "forked_from_step"),
    *("steps", "counts", "label", "total_input_tokens", "total_output_tokens", "cost", "coverage", "fidelity", "error"),
}

# --- list -------------------------------------------------------------------------------------------------------------


def test_list_names_the_newest_first(db: Path, cli: Command, weather: str, support: str) -> None:
    out = cli.ok("list")
    assert out.index(support) < out.index(weather)
    listed = cli.json("list")
    assert [run["id"] for run in listed] == [support, weather]
    assert all(run.keys() >= RUN_FIELDS for run in listed)
    first = listed[1]
    assert (first["agent"], first["status"], first["steps"], first["tags"]) == ("weather", "ok", 7, ["weather"])
    assert first["counts"].keys() >= {"cassette", "live", "miss"}
    assert (first["parent_run_id"], first["forked_from_step"], first["label"]) == (None, None, None)


def test_list_filters(db: Path, cli: Command, weather: str, support: str) -> None:
    def found(*words: str) -> list[str]:
        return [run["id"] for run in cli.json("list", *words)]

    assert found("--agent", "weather") == found("--tag", "weather") == found("--tool", "get_weather") == [weather]
    assert found("--status", "error") == []
    assert found("-n", "1") == [support]
    assert found("-n", "1", "--offset", "1") == [weather]
    assert found("--since", "2000-01-01", "--until", "2001-01-01") == []
    assert "1 to 1 of 2" in cli.ok("list", "-n", "1")
    assert "no runs match" in cli.ok("list", "--status", "error")
    assert cli("list", "--status", "fine").code == 64
    assert found("--roots") == found("--sort", "family") == [support, weather]
    refused = cli("list", "--sort", "price")
    assert (refused.code, "one of newest, family" in refused.err) == (64, True)


def test_list_tells_costs_where_they_are_asked_for(db: Path, cli: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own.json").write_text('{"models": {"scripted-1": {"input": "1000", "output": "2000"}}}')
    monkeypatch.setenv("LOUPE_PRICES", "own.json")
    assert "cost" not in cli.ok("list")
    assert "cost" in cli.ok("list", "--cost")
    costs = [(run["cost"], 1000 * run["total_input_tokens"], run["total_output_tokens"]) for run in cli.json("list")]
    assert all(float(cost) * 1_000_000 == given + 2000 * out for cost, given, out in costs), costs


def test_list_without_a_store_is_empty_and_makes_none(empty: Path, cli: Command) -> None:
    assert "no runs yet" in cli.ok("list")
    assert cli.json("list") == []
    assert not (empty / ".loupe").exists()


@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_store_that_was_named_and_is_not_there_is_an_error(
    empty: Path, cli: Command, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "variable":
        monkeypatch.setenv("LOUPE_DB", str(empty / "typo.db"))
    done = cli("list", *(["--db", str(empty / "typo.db")] if by == "option" else []))
    assert done.code == 3
    assert "typo.db" in done.err
    assert "check --db or LOUPE_DB" in done.err
    assert not (empty / "typo.db").exists()


def test_the_command_line_goes_over_variables_and_these_over_the_file(
    db: Path, cli: Command, weather: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (db.parent / "loupe.toml").write_text('db = "file.db"\n')
    monkeypatch.setenv("LOUPE_DB", str(db.parent / "variable.db"))
    assert "variable.db" in cli("list").err
    assert weather in cli.ok("list", "--db", str(db))
    monkeypatch.delenv("LOUPE_DB")
    assert weather not in cli.ok("list")
    (db.parent / "file.db").write_bytes(db.read_bytes())
    assert weather in cli.ok("list")


# --- show -------------------------------------------------------------------------------------------------------------


def test_show_draws_a_tree(db: Path, cli: Command, weather: str) -> None:
    out = cli.ok("show", weather)
    lines = [line.strip("├└─│ ") for line in out.splitlines()]
    kinds = [line.split()[1] for line in lines if line[:1].isdigit()]
    assert kinds == ["agent", "llm", "tool", "tool", "llm", "tool", "llm"]
    assert '{"expression":"17.7 - 11.9"} -> {"expression":"17.7 - 11.9","result":5.8}' in out
    assert "5.8 C warmer" in out
    assert "tokens 1012 in, 124 out; cost unknown" in out
    assert max(map(len, out.splitlines())) <= 240


def test_show_as_json_holds_every_step(db: Path, cli: Command, weather: str) -> None:
    shown = cli.json("show", weather)
    assert shown["run"]["id"] == weather
    assert [step["idx"] for step in shown["steps"]] == list(range(7))
    assert shown["steps"][2]["input"] == {"city": "Beijing"}
    assert shown["steps"][5]["output"] == {"expression": "17.7 - 11.9", "result": 5.8}
    assert all("input" not in step for step in cli.json("show", weather, "--headers")["steps"])


def test_show_can_begin_in_the_middle(db: Path, cli: Command, weather: str) -> None:
    out = cli.ok("show", weather, "--first", "2", "-n", "2")
    assert "steps 2 to 3 of 7" in out
    assert "calculate" not in out


def test_show_a_model_step_whole(db: Path, cli: Command, weather: str) -> None:
    out = cli.ok("show", weather, "4")
    for part in ("--- system", "You are a weather assistant.", "--- tool", "Beijing", "--- answer", "17.7 - 11.9"):
        assert part in out
    assert "try 1: status 200" in out
    assert "get_weather, calculate" in out
    assert '"expression"' not in out.partition("--- tools")[2].partition("--- parameters")[0]
    whole = cli.ok("show", weather, "4", "--tools")
    assert '"required"' in whole.partition("--- tools")[2]
    step = cli.json("show", weather, "4")
    assert step["input"]["messages"][0]["role"] == "system"
    assert step["response"]["choices"][0]["message"]["tool_calls"] == step["output"]["tool_calls"]


def test_show_a_tool_step_whole(db: Path, cli: Command, support: str) -> None:
    out = cli.ok("show", support, "4")
    assert "effect: write" in out
    assert '"refund_id": "R-1"' in out


# --- which run --------------------------------------------------------------------------------------------------------


def test_runs_are_named_in_four_ways(db: Path, cli: Command, weather: str, support: str) -> None:
    def run(ref: str) -> str:
        return str(cli.json("show", ref, "--headers")["run"]["id"])

    assert run("last") == support
    assert run("last~1") == run(weather) == run("weath") == run(weather[:-1]) == weather


def test_a_beginning_of_several_runs_names_them(db: Path, cli: Command, weather: str, model: ScriptedServer) -> None:
    fork = cli.json("fork", weather, "--from", "4")["runs"][0]["id"]
    assert cli.json("show", weather, "--headers")["run"]["id"] == weather  # exact beats a beginning
    done = cli("show", "weather")
    assert done.code == 3
    assert weather in done.error
    assert fork in done.error
    error = cli("show", "weather", "--json").json["error"]
    assert (error["reason"], error["hint"]) == ("ambiguous", "give more of it, or the whole id")


def test_a_run_that_is_gone_is_not_one_of_its_forks(
    db: Path, cli: Command, weather: str, model: ScriptedServer
) -> None:
    file = db.with_name("fork.loupe")
    forked = cli.json("fork", weather, "--from", "4")["runs"][0]["id"]
    cli("export", forked, "-o", file)
    elsewhere = db.with_name("elsewhere.db")
    assert cli("import", file, "--db", elsewhere).code == 0
    done = cli("show", weather, "--db", elsewhere)
    assert done.code == 3
    assert f"no run '{weather}': it is gone; its forks are {forked}" in done.err


@pytest.mark.parametrize("ref", ["nope", "last~7", "", "last~x", "../x"])
def test_no_such_run(db: Path, cli: Command, ref: str) -> None:
    done = cli("show", ref)
    assert done.code == 3
    assert "run" in done.error


# --- replay -----------------------------------------------------------------------------------------------------------


def test_replay_with_a_command(db: Path, cli: Command, weather: str, in_checkout: None) -> None:
    done = cli("replay", weather, "--", "python", "examples/weather/agent.py")
    assert done.code == 0
    assert done.out.startswith(f"pass: {weather}")


def test_replay_with_code_as_json(db: Path, cli: Command, weather: str, in_checkout: None) -> None:
    done = agentloupe("replay", weather, "--code", "examples.weather.agent:assistant", "--json", LOUPE_DB=str(db))
    assert (done.code, done.json["verdict"]) == (0, "pass")


def test_what_a_replayed_program_prints_is_no_part_of_the_document(db: Path, weather: str) -> None:
    words = ["replay", weather, "--json", "--db", str(db), "--", "python", "examples/weather/agent.py"]
    done = agentloupe(*words)
    assert (done.code, done.json["verdict"]) == (0, "pass")
    assert "5.8 C warmer" in done.err


def test_replay_says_where_other_code_parts(db: Path, cli: Command, weather: str, tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    text = (ROOT / "examples/weather/agent.py").read_text()
    script.write_text(text.replace("Ask for everything you need at once.", "Ask for one thing at a time."))
    done = cli("replay", weather, "--", "python", script)
    assert done.code == 1
    assert "messages[0].content" in done.out
    assert cli("replay", weather, "--json", "--", "python", script).json["verdict"] == "diverged"


def test_replay_finds_a_program_that_stands_still(db: Path, cli: Command, weather: str, tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text("import threading\nthreading.Event().wait()\n")
    done = cli("replay", weather, "--patience", "0.5", "--", "python", script)
    assert done.code == 1
    assert "missing" in done.out
    assert "  ran in a child process" in done.out
    late = cli("replay", weather, "--patience", "0", "--timeout", "1", "--", "python", script)
    assert (late.code, "was ended after 1 s" in late.out) == (3, True)
    assert cli("replay", weather, "--timeout", "0", "--", "python", script).code == 64


def test_replay_without_code_says_how(db: Path, cli: Command, weather: str) -> None:
    done = cli("replay", weather)
    assert done.code == 3
    assert "examples/weather/agent.py" in done.err


# --- fork -------------------------------------------------------------------------------------------------------------


def test_fork_unchanged(db: Path, cli: Command, weather: str, model: ScriptedServer) -> None:
    out = cli.ok("fork", weather, "--from", "4")
    for part in ("observed", "candidate", "cassette 1, live 0, miss 1", "hypothetical", "at step 4", "no verdict"):
        assert part in out
    made = cli.json("list", "--parent", weather)[0]
    assert made["id"].startswith(f"{weather}-fork-")
    assert (made["forked_from_step"], made["counts"]["miss"], made["label"]) == (4, 1, "hypothetical")
    assert cli("fork", weather, "--from", "4", "--fail-on", "miss").code == 1


def test_a_miss_shows_the_nearest_recorded_call(
    db: Path, cli: Command, weather: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([ask(("get_weather", '{"city": "Nowhere"}')), say("I do not know.")])
    with ScriptedServer(lambda _: next(answers)) as server:
        monkeypatch.setenv("LLM_BASE_URL", server.url)
        fork = cli.json("fork", weather, "--from", "4")["runs"][0]["id"]
    miss = next(s for s in cli.json("show", fork, "--headers")["steps"] if s["source"] == "miss")
    assert "nearest recorded call: get_weather in step" in cli.ok("show", fork, str(miss["idx"]))
    assert '-> "Nowhere"' in cli.json("show", fork, str(miss["idx"]))["nearest"]


def test_a_fork_ends_well_when_one_candidate_does(
    db: Path, cli: Command, weather: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = ask(("get_weather", '{"city": "Nowhere"}'))
    answers = iter([missing, missing, missing, say("It is warm.")])
    with ScriptedServer(lambda _: next(answers)) as server:
        monkeypatch.setenv("LLM_BASE_URL", server.url)
        aborted = cli("fork", weather, "--from", "4", "--on-miss", "abort")
        assert aborted.code == 3
        (line,) = aborted.err.splitlines()
        assert "was made and ended as error: " in line
        assert "leaves its parent's road at step 4" in aborted.out
        assert cli("fork", weather, "--from", "4", "--on-miss", "abort", "--fail-on", "miss").code == 1
        mixed = cli("fork", weather, "--from", "4", "--on-miss", "abort", "--repeat", "2", "--no-control")
        assert (mixed.code, mixed.err) == (0, "")


def test_fork_as_json_with_controls(db: Path, cli: Command, weather: str, model: ScriptedServer) -> None:
    made = cli.json("fork", weather, "--from", "4", "--repeat", "2", "--system-prompt", "Answer in one sentence.")
    assert made["parent"]["id"] == weather
    assert [len(made["controls"]), len(made["runs"])] == [2, 2]
    assert {run["arm"] for run in made["controls"]} == {"control"}
    assert made["runs"][0]["first_difference"]["left"] == 4
    assert made["runs"][0]["overrides"] != []
    shown = cli.ok("show", made["runs"][0]["id"])
    assert "changed: messages[0].content = Answer in one sentence." in shown


@pytest.mark.parametrize("tools", ["agentloupe.demo.calculator", "examples.weather.agent"])
def test_fork_with_a_live_calculator(
    db: Path, cli: Command, weather: str, model: ScriptedServer, in_checkout: None, tools: str
) -> None:
    live = ["--live", "calculate", "--reason", "arithmetic", "--tools-from", tools]
    made = cli.json("fork", weather, "--from", "4", *live)["runs"][0]
    assert (made["counts"]["live"], made["counts"]["miss"], made["label"]) == (2, 0, "faithful")


def test_fork_with_own_code(db: Path, cli: Command, weather: str, model: ScriptedServer, in_checkout: None) -> None:
    made = cli.json("fork", weather, "--from", "4", "--code", "examples.weather.agent:assistant")["runs"][0]
    assert (made["engine"], made["counts"]["miss"]) == ("own", 1)


def test_fork_with_a_command(db: Path, weather: str, server: ScriptedServer) -> None:
    words = ["fork", weather, "--from", "4", "--json", "--db", str(db)]
    behind = ["--", "python", "examples/weather/agent.py"]
    done = agentloupe(*words, *behind, LLM_BASE_URL=server.url)
    assert done.code == 0, done.err
    made = done.json["runs"][0]
    assert (made["engine"], made["steps"], made["counts"]["miss"]) == ("own", 8, 1)
    assert "5.8 C warmer" in done.err


def test_fork_with_overrides_of_a_file(db: Path, cli: Command, weather: str, model: ScriptedServer) -> None:
    Path("changes.json").write_text(json.dumps({"temperature": 0.5, "system_prompt": "Old."}))
    Path("prompt.txt").write_text("New prompt.")
    words = ["--overrides", "changes.json", "--system-prompt", "@prompt.txt", "--set", "seed=7"]
    made = cli.json("fork", weather, "--from", "4", *words)["runs"][0]
    sent = cli.json("show", made["id"], "4")["input"]
    assert (sent["temperature"], sent["seed"], sent["messages"][0]["content"]) == (0.5, 7, "New prompt.")


def test_fork_with_tools_by_policy(db: Path, cli: Command, weather: str, model: ScriptedServer) -> None:
    made = cli.json("fork", weather, "--from", "4", "--tool", 'calculate=stub:{"result": 1}')["runs"][0]
    assert made["counts"]["stub"] == 2
    assert made["label"] == "hypothetical"


def test_nobody_to_ask_is_said(db: Path, cli: Command, weather: str, model: ScriptedServer) -> None:
    for wish in (("--tool", "calculate=human"), ("--on-miss", "human")):
        done = cli("fork", weather, "--from", "4", *wish)
        assert (done.code, done.error) == (64, "policy human needs somebody to ask")
    assert cli.json("list", "--parent", weather) == []


# --- compare ----------------------------------------------------------------------------------------------------------


def test_compare_two_and_several(db: Path, cli: Command, weather: str, model: ScriptedServer) -> None:
    forks = [run["id"] for run in cli.json("fork", weather, "--from", "4", "--repeat", "2", "--no-control")["runs"]]
    out = cli.ok("compare", weather, forks[0])
    for part in ("first difference in row 4", "misses", "6 tool calculate [miss]", "answers"):
        assert part in out
    assert cli.json("compare", weather, forks[0])["first"]["row"] == 4
    assert "tool_calls" in cli.ok("compare", weather, forks[0], "--row", "4")
    assert cli("compare", weather, forks[0], "--row", "99").code == 3
    table = cli.ok("compare", weather, *forks)
    assert "2 different answers" in table
    assert all(run in table for run in (weather, *forks))
    assert len(cli.json("compare", weather, *forks)["runs"]) == 3
    assert cli("compare", weather, forks[0], "--fail-on", "diff").code == 1
    assert cli("compare", weather, weather, "--fail-on", "diff").code == 0


# --- files ------------------------------------------------------------------------------------------------------------


def test_export_and_import(db: Path, cli: Command, weather: str) -> None:
    assert weather in cli.ok("export", weather, "-o", "run.loupe")
    refused = cli("export", weather, "-o", "run.loupe")
    assert (refused.code, "--force" in refused.err) == (3, True)
    assert cli.json("export", weather, "-o", "run.loupe", "--force")["bytes"] == Path("run.loupe").stat().st_size
    assert "1 run: 7 steps, 3 model calls, 3 tool calls" in cli.ok("import", "run.loupe", "--db", "new.db")
    (report,) = cli.json("import", "run.loupe", "--db", "new.db")
    assert report.keys() >= {"format", "runs", "steps", "model_calls", "tool_calls", "partial_steps", "fidelity"}
    assert cli.json("show", weather, "--db", "new.db")["steps"] == cli.json("show", weather)["steps"]
    assert cli("verify", "run.loupe").code == 0
    cli.ok("export", weather, "-o", "run.jsonl")
    assert cli.json("import", "run.jsonl", "--db", "other.db")[0]["steps"] == 7


def test_an_exported_run_replays_without_a_store(
    db: Path, cli: Command, weather: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cli.ok("export", weather, "-o", "run.loupe")
    file = Path("run.loupe").resolve()
    monkeypatch.setenv("LOUPE_DB", str(tmp_path / "nowhere.db"))
    monkeypatch.chdir(ROOT)
    assert cli("replay", file, "--code", "examples.weather.agent:assistant").code == 0
    assert not (tmp_path / "nowhere.db").exists()


# --- the store --------------------------------------------------------------------------------------------------------


def test_verify_one_and_all(db: Path, cli: Command, weather: str) -> None:
    assert "whole" in cli.ok("verify", weather)
    checked = cli.json("verify", weather)
    assert (checked["ok"], checked["reason"]) == (True, None)
    assert "2 runs checked, none damaged" in cli.ok("verify", "--all")
    every = {"ok": True, "runs": 2, "damaged": [], "lost": [], "anchors": None, "database": []} | {
        "bodies": True,
        "index": [],
    }
    assert cli.json("verify", "--all") == every
    run = cli.json("show", weather, "--headers")["run"]
    assert cli("verify", weather, "--anchor", f"{run['events'] - 1}:{run['head']}").code in (0, 2)
    assert cli("verify", weather, "--anchor", "3").code == 64
    assert cli("verify").code == 64


def test_rebuild_size_gc(db: Path, cli: Command) -> None:
    assert "2 runs rebuilt, none differed" in cli.ok("rebuild")
    assert cli.json("rebuild") == {"runs": 2, "differed": {}}
    assert "2 runs" in cli.ok("size")
    assert cli.json("size")["runs"] == 2
    assert "0 bodies removed" in cli.ok("gc")
    assert cli.json("gc")["bodies"] == 0


def test_delete_asks_first(db: Path, cli: Command, weather: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("delete", weather, "--json").code == 3
    monkeypatch.setattr("sys.stdin", io.StringIO())
    unasked = cli("delete", weather)
    assert (unasked.code, "say --yes" in unasked.err) == (3, True)
    assert cli.json("show", weather)["steps"] != []
    gone = cli.json("delete", weather, "--yes")
    assert (gone["run"], gone["forks"]) == (weather, [])
    assert gone["bodies_removed"] > 0
    shown = cli.ok("show", weather)
    assert "its content was deleted" in shown
    assert "cost unknown" in shown
    assert cli("verify", weather).code == 0
    assert cli.json("list", "--agent", "weather")[0]["coverage"] == "limited_replay"
    assert cli("replay", weather, "--", "python", ROOT / "examples/weather/agent.py").code == 3


def test_prune_counts_no_run_that_is_deleted_already(db: Path, cli: Command, weather: str, support: str) -> None:
    cli.ok("delete", weather, "--yes")
    assert "1 run would be deleted" in cli.ok("prune", "--older-than", "0m", "--dry-run")


def test_names_are_listed_where_they_say_more_than_the_agent(db: Path, cli: Command, tmp_path: Path) -> None:
    assert " name " not in cli.ok("list").splitlines()[0]
    script = tmp_path / "named.py"
    script.write_text("import agentloupe as loupe\n\n@loupe.agent\ndef bot():\n    return 1\n\nbot()\n")
    assert agentloupe("run", "--name", "nightly", "--db", db, "--", "python", script).code == 0
    head, newest, *_ = cli.ok("list").splitlines()
    assert " name " in head
    assert "nightly" in newest


def test_lines_of_tables_end_with_what_they_say(db: Path, cli: Command) -> None:
    lines = cli.ok("list").splitlines()
    assert lines == [line.rstrip() for line in lines]
    assert len({len(line) for line in lines}) > 1


def test_a_number_that_is_none_is_said_plainly(db: Path, cli: Command) -> None:
    assert "Invalid value for '[STEP]': 'abc' is not a number" in cli("show", "last", "abc").err
    done = cli("list", "-n", "x")
    assert (done.code, "Invalid value for '--limit' / '-n': 'x' is not a number" in done.err) == (64, True)


def test_prune(db: Path, cli: Command) -> None:
    assert cli.json("prune", "--older-than", "1d", "--dry-run")["runs"] == []
    assert cli("prune", "--older-than", "soon").code == 64
    assert len(cli.json("prune", "--older-than", "0m", "--dry-run")["runs"]) == 2
    assert "2 runs deleted" in cli.ok("prune", "--older-than", "0m", "--yes")
    assert {run["coverage"] for run in cli.json("list")} == {"limited_replay"}


# --- run --------------------------------------------------------------------------------------------------------------


def test_run_gives_the_script_s_own_code_and_output(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(
        "import sys, agentloupe as loupe\nwith loupe.recording('r'):\n    print('hi', loupe.random() < 1)\nsys.exit(7)\n"
    )
    words = ["--name", "nightly", "--tag", "x", "--task", "T-1", "--db", str(tmp_path / "l.db")]
    done = agentloupe("run", *words, "--", "python", str(script))
    assert (done.code, done.out) == (7, "hi True\n")
    (run,) = agentloupe("list", "--json", "--db", str(tmp_path / "l.db")).json
    assert (run["name"], run["tags"], run["task_id"], run["agent"]) == ("nightly", ["x"], "T-1", "r")


# --- all --------------------------------------------------------------------------------------------------------------


def _interrupted(db: Path, run: str, other: Path) -> Path:
    """A store in which this run is as if its process had been killed before its last model call."""
    store, left = open_url(db), open_url(other)
    recording = store.recording(run)
    last = [event.sequence for event in recording.events if event.type == "model.requested"][-1]
    left.insert(run, recording.events[: last - 1], recording.get, Projector)
    store.close()
    left.close()
    return other


SAYS_NOTHING_ITSELF = {"run"}
"""Its output is the script's."""
STAYS = {"serve", "worker"}
"""They go on until they are told to stop; they have no document to print."""


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - GROUPS.keys() - {"demo"} - SAYS_NOTHING_ITSELF - STAYS))
def test_every_verb_prints_one_document(
    verb: str, db: Path, cli: Command, weather: str, model: ScriptedServer, in_checkout: None, tmp_path: Path
) -> None:
    file = tmp_path / "run.loupe"
    assert cli("export", weather, "-o", file).code == 0
    words: dict[str, tuple[str | Path, ...]] = {
        "show": (weather,),
        "replay": (weather, "--code", "examples.weather.agent:assistant"),
        "fork": (weather, "--from", "4"),
        "resume": (weather, "--code", "examples.weather.agent:assistant"),
        "compare": (weather, "last"),
        "doctor": ("examples/weather/agent.py",),
        "verify": (weather,),
        "export": (weather, "-o", tmp_path / "again.loupe"),
        "import": (file,),
        "delete": (weather, "--yes"),
        "prune": ("--older-than", "1d", "--yes"),
    }
    if verb == "resume":
        db = _interrupted(db, weather, tmp_path / "interrupted.db")
    given = (verb, *words.get(verb, ()), "--json")
    # Those that start programs, or load code, stand in a process of their own.
    apart = verb in ("replay", "resume", "doctor")
    done = agentloupe(*given, LOUPE_DB=str(db), LLM_BASE_URL=model.url) if apart else cli(*given)
    assert done.code in (0, 1), done.err
    json.loads(done.out)


def test_a_family_is_told_from_both_sides(db: Path, cli: Command, weather: str, model: ScriptedServer) -> None:
    forks = [cli.json("fork", weather, "--from", "4")["runs"][0]["id"] for _ in range(2)]
    shown = cli.ok("show", weather)
    assert "forked 2 times: " in shown
    assert all(fork in shown for fork in forks)
    assert cli.json("show", weather)["forks"] == forks[::-1]
    assert f"fork of {weather} from step 4" in cli.ok("show", forks[0])


def test_kept_answers_are_said_of_a_fork_without_code(
    db: Path, cli: Command, weather: str, model: ScriptedServer
) -> None:
    done = cli("fork", weather, "--from", "4", "--system-prompt", "One word.")
    assert "note: 1 model answer was kept that was made with the old prompt" in done.out
    assert "old prompt" not in cli("fork", weather, "--from", "1", "--system-prompt", "One word.").out


ALL_VERBS = [*(VERBS.keys() - GROUPS.keys()), *(f"{verb} {own}" for verb, inner in GROUPS.items() for own in inner)]


@pytest.mark.parametrize("verb", sorted(ALL_VERBS))
def test_help_has_an_example_and_needs_no_store(verb: str, empty: Path, cli: Command) -> None:
    out = cli.ok(*verb.split(), "--help")
    assert f"agentloupe {verb}" in " ".join(out.partition("Example")[2].split())
    assert "--debug" in out
    assert not (empty / ".loupe").exists()


def test_the_overview_names_every_verb_and_code(empty: Path, cli: Command) -> None:
    out = cli.ok("--help")
    assert all(f"  {verb} " in out for verb in VERBS)
    assert "64 wrong usage" in out
    assert cli.ok() == out
    assert cli.ok("--version").startswith("agentloupe ")
