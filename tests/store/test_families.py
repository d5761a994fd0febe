"""Runs by family: a run with the forks of it and of those, whatever came first into the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.store.opening import open_url
from agentloupe.words.run import RunFilter
from tests.made import Maker, sealed


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = open_url("memory:" if request.param == "memory" else tmp_path / "runs.db")
    yield made
    made.close()


def put(store: Store, run_id: str, parent: str | None = None, minute: int = 0, **facts: Any) -> None:
    if parent is not None:
        facts |= {"parent_run_id": parent, "forked_from_step": 0}
    made = Maker(run_id, None, **facts)
    made.model([{"role": "user", "content": "q"}], {"role": "assistant", "content": "a"})
    made.finish()
    began = f"2026-04-01T10:{minute:02}:00.000000Z"
    recording = sealed(run_id, [replace(draft, recorded_at=began) for draft in made.drafts], made.bodies)
    store.insert(run_id, recording.events, recording.get, Projector)


def ids(store: Store, **wanted: Any) -> list[str]:
    return [run.id for run in store.runs(RunFilter(**wanted))]


def in_families(parents: Mapping[str, str | None], began: Mapping[str, Any], order: Sequence[str]) -> list[str]:
    """What a list by family shows, told from the parents alone."""

    def first(run: str) -> str:
        above = parents[run]
        return run if above is None or above not in parents else first(above)

    def moment(run: str) -> tuple[Any, int]:
        return began[run], order.index(run)

    heads = sorted((run for run in parents if first(run) == run), key=moment, reverse=True)
    return [
        run
        for head in heads
        for run in sorted((one for one in parents if first(one) == head), key=lambda one: (one != head, moment(one)))
    ]


@st.composite
def forests(draw: st.DrawFn) -> tuple[dict[str, str | None], dict[str, int], list[str]]:
    """Runs with their parents, some of which are not there, the minute in which each began, and the order in which they come."""
    parents: dict[str, str | None] = {}
    for n in range(draw(st.integers(1, 9))):
        above = draw(st.sampled_from([None, "gone", *parents]))
        parents[f"r{n}"] = above
    minutes = {run: draw(st.integers(0, 5)) for run in parents}
    return parents, minutes, draw(st.permutations(list(parents)))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(forests())
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_families_stand_together_whatever_came_first(
    kind: str, tmp_path_factory: pytest.TempPathFactory, forest: tuple[dict[str, str | None], dict[str, int], list[str]]
) -> None:
    parents, minutes, order = forest
    store = open_url("memory:" if kind == "memory" else tmp_path_factory.mktemp("families") / "runs.db")
    for run in order:
        put(store, run, parents[run], minutes[run], tags=["even"] if int(run[1:]) % 2 == 0 else [])
    wanted = in_families(parents, minutes, order)
    assert ids(store, order="family") == wanted
    assert ids(store, order="family", tag="even") == [run for run in wanted if int(run[1:]) % 2 == 0]
    assert ids(store, order="family", text="r1") == [run for run in wanted if run == "r1"]
    assert [run for at in range(0, 10, 2) for run in ids(store, order="family", offset=at, limit=2)] == wanted
    roots = [run for run in wanted if parents[run] is None]
    assert ids(store, order="family", roots=True) == roots
    assert sorted(ids(store, roots=True)) == sorted(roots)
    assert store.count(RunFilter(roots=True)) == len(roots)
    for run in order:
        store.rebuild(run, Projector)
    assert ids(store, order="family") == wanted
    store.close()


def test_parents_that_name_each_other_end(store: Store) -> None:
    put(store, "a", "b")
    put(store, "b", "a")
    put(store, "c", "c")
    assert sorted(ids(store, order="family")) == ["a", "b", "c"]


def test_a_window_of_time_is_kept_within_families(store: Store) -> None:
    for minute, (run, parent) in enumerate((("a", None), ("b", None), ("c", "a"), ("d", None))):
        put(store, run, parent, minute)
    assert ids(store, order="family", since="2026-04-01T10:01", until="2026-04-01T10:03") == ["b", "c"]
    assert ids(store, order="family", until="2026-04-01T10:00") == []


def test_a_page_is_one_walk_along_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where much is wanted nothing is sorted: a page costs what it holds."""
    from agentloupe.store import families

    store = open_url(tmp_path / "runs.db")
    for n in range(4):
        put(store, f"r{n}", "r0" if n == 2 else None, tags=["t"])
    monkeypatch.setattr(families, "_FEW", 0)
    assert ids(store, order="family", tag="t") == ["r3", "r1", "r0", "r2"]
    with closing(sqlite3.connect(tmp_path / "runs.db")) as conn:
        sql, args = families.select_by_family(conn, "r.id", RunFilter(order="family", tag="t"), paged=True)
        plan = [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {sql}", args)]
    assert any("runs_by_family" in line for line in plan)
    walked = next(at for at, line in enumerate(plan) if "runs_by_family" in line)
    assert not any("TEMP B-TREE" in line for line in plan[:walked])
    store.close()


def test_a_file_of_the_version_before_learns_its_families(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = open_url(path)
    for run, parent in (("late", "root"), ("root", None), ("other", None), ("later", "late"), ("lost", "gone")):
        put(store, run, parent)
    wanted = ids(store, order="family")
    store.close()
    with closing(sqlite3.connect(path)) as file:
        for trigger in ("families_begin", "families_grow"):
            file.execute(f"DROP TRIGGER {trigger}")
        file.execute("DROP INDEX runs_by_family")
        file.execute("ALTER TABLE runs DROP COLUMN family")
        file.execute("ALTER TABLE runs DROP COLUMN family_at")
        file.execute("DELETE FROM facets WHERE kind = 15")
        file.execute("PRAGMA user_version = 3")
        file.commit()
    store = open_url(path)
    assert ids(store, order="family") == wanted
    assert sorted(ids(store, roots=True)) == ["other", "root"]
    put(store, "latest", "later")
    assert ids(store, order="family").index("latest") > ids(store, order="family").index("root")
    assert store.check() == []
    store.close()
