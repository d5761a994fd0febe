"""The snapshot: what a run's decisions may depend on, cheaply."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.ports.protocols import Opening
from agentloupe.ports.recording import Recording
from agentloupe.store import open_url
from agentloupe.verbs import snapshot
from agentloupe.verbs.replaying import replay

OPENING = Opening(agent="a", entry="m:a", source_digest="d" * 64)


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    snapshot._git.cache_clear()
    snapshot._script.cache_clear()


def git(folder: Path, *words: str) -> str:
    env = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": "t",
        "GIT_AUTHOR_EMAIL": "t@example.org",
        "GIT_COMMITTER_NAME": "t",
        "GIT_COMMITTER_EMAIL": "t@example.org",
    }
    done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_what_is_in_it(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workdir / "uv.lock").write_text("locked", "utf-8")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("SECRET_THING", "LOUPE-CANARY-1")
    monkeypatch.setenv("LOUPE_IMAGE_DIGEST", "sha256:abc")
    found = snapshot.take(workdir, ("TZ", "NOT_SET"), OPENING)
    assert set(found) >= {"python", "platform", "implementation", "time_zone", "entry", "source_digest"}
    assert (found["entry"], found["image"], found["env"]) == ("m:a", "sha256:abc", {"TZ": "UTC"})
    distributions: Any = found["distributions"]
    assert distributions["count"] > 5
    assert len(distributions["digest"]) == 64
    locks: Any = found["lock_files"]
    assert set(locks) == {"uv.lock"}
    assert "CANARY" not in repr(found)
    assert "git" not in found, "what cannot be known is absent"


def test_a_changed_lock_file_is_another_digest(workdir: Path) -> None:
    lock = workdir / "poetry.lock"
    lock.write_text("one", "utf-8")
    first = snapshot.take(workdir, (), OPENING)["lock_files"]
    lock.write_text("other", "utf-8")
    assert snapshot.take(workdir, (), OPENING)["lock_files"] != first


def test_git_commit_and_uncommitted_changes(workdir: Path) -> None:
    git(workdir, "init", "-q")
    assert "git" not in snapshot.take(workdir, (), OPENING), "no commit yet"
    (workdir / "a.txt").write_text("one\n", "utf-8")
    git(workdir, "add", "a.txt")
    git(workdir, "commit", "-q", "-m", "first")
    commit = git(workdir, "rev-parse", "HEAD")

    def now() -> Any:
        snapshot._git.cache_clear()
        return snapshot.take(workdir, (), OPENING)["git"]

    assert now() == {"commit": commit, "dirty": False}
    (workdir / "a.txt").write_text("two\n", "utf-8")
    two = now()
    assert (two["commit"], two["dirty"]) == (commit, True)
    (workdir / "a.txt").write_text("three\n", "utf-8")
    assert now()["changes_digest"] != two["changes_digest"]


def test_it_is_cheap_after_the_first_time(workdir: Path) -> None:
    snapshot.take(workdir, (), OPENING)
    start = time.process_time()
    for _ in range(20):
        snapshot.take(workdir, (), OPENING)
    assert (time.process_time() - start) / 20 < 0.005


def test_the_same_snapshot_is_stored_once(workdir: Path) -> None:
    store = open_url(workdir / "x.db")
    digests: set[str] = set()
    for _ in range(3):
        with loupe.recording("r", store=store) as block:
            pass
        digests.add(store.recording(block.run_id).events[0].bodies["snapshot"])
    assert len(digests) == 1
    store.close()


KEY = "sk-proj-" + "abcdefghijklmnopqrstuvwx0123456789ABCD"


@pytest.mark.usefixtures("workdir")
def test_what_only_the_program_knows_is_recorded_without_secrets_and_never_asked_for_by_a_replay() -> None:
    asked: list[str] = []

    def depends() -> dict[str, Any]:
        asked.append("once a run")
        return {"flags": {"new_prompt": True, "for": "tenant-7"}, "index": 41, "api_key": KEY}

    @loupe.agent(snapshot=depends)
    def agent() -> int:
        return loupe.uuid4().version or 0

    def block() -> None:
        with loupe.recording("block", snapshot={"prompt": "triage@3"}):
            loupe.uuid4()

    agent()
    block()
    blocks, agents = (loupe.open_store().recording(run.id) for run in loupe.open_store().runs())
    given: Any = _given(agents)
    assert (given["flags"], given["index"]) == ({"new_prompt": True, "for": "tenant-7"}, 41)
    assert KEY not in repr(given)
    assert _given(blocks) == {"prompt": "triage@3"}
    assert replay(agents, agent).passed
    assert replay(blocks, block).passed
    assert asked == ["once a run"]


@pytest.mark.usefixtures("workdir")
def test_a_program_that_cannot_say_what_it_depends_on_runs_all_the_same() -> None:
    @loupe.agent(snapshot=lambda: {"flags": 1 // 0})
    def agent() -> str:
        return "ran"

    assert agent() == "ran"
    (run,) = loupe.open_store().runs()
    assert run.status == "ok"
    assert _given(loupe.open_store().recording(run.id)) == {"failed": "ZeroDivisionError"}


def _given(recording: Recording) -> Any:
    kept: Any = recording.body(recording.events[0].bodies["snapshot"])
    return kept["given"]
