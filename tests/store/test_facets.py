"""What lists filter by, how many runs have it, and files of an earlier version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.store.opening import open_url
from agentloupe.words.errors import StoreReadOnly
from agentloupe.words.run import RunFilter
from tests.made import Maker, sealed


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = open_url("memory:" if request.param == "memory" else tmp_path / "runs.db")
    yield made
    made.close()


def put(store: Store, run_id: str, *, model: str = "m", **facts: object) -> str:
    made = Maker(run_id, None, **facts)  # type: ignore[arg-type]
    made.model([{"role": "user", "content": "q"}], {"role": "assistant", "content": "a"}, model=model)
    made.call("tool", f"tool-of-{model}", {}, 1)
    recording = made.finish()
    store.insert(run_id, recording.events, recording.get, Projector)
    return run_id


def test_values_are_counted(store: Store) -> None:
    put(store, "a", tags=["x", "y"])
    put(store, "b", tags=["x"], model="n")
    assert store.facets("tag") == [("x", 2), ("y", 1)]
    assert store.facets("tag", 1) == [("x", 2)]
    assert store.facets("tool") == [("tool-of-m", 1), ("tool-of-n", 1)]
    assert store.facets("status") == [("ok", 2)]
    assert store.facets("coverage") == [("full", 2)]
    store.tags("a", ["z"])
    assert store.facets("tag") == [("x", 1), ("z", 1)]
    with pytest.raises(KeyError):
        store.facets("colour")


@pytest.mark.parametrize("parent_first", [True, False])
def test_runs_that_were_forked_are_found(store: Store, parent_first: bool) -> None:
    names = ["parent", "child"] if parent_first else ["child", "parent"]
    for name in names:
        facts: dict[str, Any] = {"parent_run_id": "parent", "forked_from_step": 0} if name == "child" else {}
        put(store, name, **facts)
    put(store, "other")
    forked = RunFilter(forked=True)
    assert [run.id for run in store.runs(forked)] == ["parent"]
    assert store.count(forked) == 1
    assert store.facets("forked") == [("", 1)]
    assert store.rebuild("parent", Projector) == []
    assert store.count(forked) == 1


def test_filters_of_models_coverage_and_names(store: Store) -> None:
    put(store, "a", model="m")
    put(store, "b", model="n")
    assert [run.id for run in store.runs(RunFilter(name="b"))] == ["b"]
    assert store.count(RunFilter(coverage="lossy")) == 0
    assert store.count(RunFilter(coverage="full")) == 2
    assert store.count(RunFilter(missed=True)) == 0
    model = store.runs(RunFilter(name="a"))[0].model
    assert [value for value, _ in store.facets("model")] == ([] if model is None else ["m", "n"])


def test_counting_stops_where_it_is_told_to(store: Store) -> None:
    for n in range(5):
        put(store, f"r{n}", tags=["t"])
    assert store.count(RunFilter(tag="t", name="r1")) == 1
    assert store.count(RunFilter(tag="t", coverage="full"), most=3) == 3
    assert store.count(RunFilter(tag="t", coverage="full")) == 5
    assert store.count(RunFilter(since="2026-01-01"), most=2) == 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.sampled_from("xyz"))), max_size=8))
def test_counts_are_what_counting_gives(changes: list[tuple[str, set[str]]]) -> None:
    store = open_url("memory:")
    for run, tags in changes:
        if store.run(run) is None:
            put(store, run)
        store.tags(run, sorted(tags))
    for value, runs in store.facets("tag"):
        assert store.count(RunFilter(tag=value)) == runs


def test_counts_in_a_file_are_what_counting_gives(tmp_path: Path) -> None:
    store = open_url(tmp_path / "runs.db")
    for n in range(6):
        put(store, f"r{n}", tags=[f"t{n % 2}", f"u{n % 3}"])
    store.tags("r1", ["t0"])
    store.erase("r2", [])
    file = sqlite3.connect(tmp_path / "runs.db")
    counted = file.execute("SELECT kind, value, runs FROM facet_counts ORDER BY kind, value").fetchall()
    there = file.execute(
        "SELECT kind, value, count(*) FROM facets WHERE kind NOT IN (4, 5) GROUP BY kind, value ORDER BY kind, value"
    ).fetchall()
    file.close()
    store.close()
    assert counted == there


def test_a_file_of_the_version_before_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = open_url(path)
    put(store, "parent", tags=["x"])
    put(store, "child", parent_run_id="parent", forked_from_step=0)
    store.close()
    file = sqlite3.connect(path)
    for name, kind in file.execute(
        "SELECT name, type FROM sqlite_master WHERE name LIKE 'job%' AND sql IS NOT NULL"
    ).fetchall():
        file.execute(f"DROP {kind} IF EXISTS {name}")
    for trigger in (
        "facets_are_counted",
        "facets_are_counted_off",
        "forks_mark_their_parent",
        "parents_find_their_forks",
        "families_begin",
        "families_grow",
    ):
        file.execute(f"DROP TRIGGER {trigger}")
    file.execute("DROP TABLE facet_counts")
    file.execute("DROP TABLE outbox")
    file.execute("DROP INDEX runs_by_family")
    for column in ("family", "family_at"):
        file.execute(f"ALTER TABLE runs DROP COLUMN {column}")
    file.execute("DELETE FROM facets WHERE kind > 8")
    file.execute("PRAGMA user_version = 1")
    file.commit()
    file.close()
    with pytest.raises(StoreReadOnly, match="older schema 1"):
        open_url(path, read_only=True)
    store = open_url(path)
    assert ("x", 1) in store.facets("tag")
    assert [run.id for run in store.runs(RunFilter(forked=True))] == ["parent"]
    put(store, "new", tags=["x"])
    assert ("x", 2) in store.facets("tag")
    assert store.check() == []
    store.close()


# --- by a text --------------------------------------------------------------------------------------------------------

NAMES = ("Weather report", "weather", "50% off_line", "Ärger", "a'b\"c", "x")
IDS = ("weather-1", "weather-2", "report-1", "x%-1", "b-1", "b-2", "b-3", "zz-1")


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    """The same runs in memory and in a file."""
    stores = open_url("memory:"), open_url(tmp_path_factory.mktemp("named") / "runs.db")
    for at, run_id in enumerate(IDS):
        made = Maker(NAMES[at % len(NAMES)], None, tags=["odd" if at % 2 else "even"])
        made.finish()
        recording = sealed(run_id, made.drafts, made.bodies)
        for one in stores:
            one.insert(run_id, recording.events, recording.get, Projector)
    yield stores
    for one in stores:
        one.close()


@pytest.mark.parametrize("few", [0, 3, 20_000])
@given(
    text=st.one_of(
        st.sampled_from(["weather", "WEATHER", "e", "b-", "%", "_", "ä", "Är", "'", '"', "x"]), st.text(max_size=4)
    ),
    tag=st.sampled_from([None, "odd", "even"]),
    offset=st.integers(0, 3),
    limit=st.sampled_from([1, 3, 50, None]),
    prefix=st.sampled_from([None, None, "b", "weather"]),
)
@settings(max_examples=60, deadline=None)
def test_a_text_finds_ids_by_their_beginning_and_names_by_any_part(
    named: tuple[Store, Store], few: int, text: str, tag: str | None, offset: int, limit: int | None, prefix: str | None
) -> None:
    wanted = RunFilter(text=text or None, tag=tag, offset=offset, limit=limit, id_prefix=prefix)
    plain, sql = named
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agentloupe.store.textsearch._FEW", few)
        found = [run.id for run in sql.runs(wanted)]
        assert found == [run.id for run in plain.runs(wanted)]
        assert sql.count(wanted) == plain.count(wanted)
    if text == "WEATHER" and (tag, offset, limit, prefix) == (None, 0, None, None):
        assert set(found) == {"weather-1", "weather-2", "b-3", "zz-1"}
