"""Texts that UTF-8 has no bytes for, wherever a program may put them: recorded, listed, found, and made anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import agentloupe as loupe
from agentloupe.engine.project import Projector
from agentloupe.engine.verify import verify
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Store
from agentloupe.store.opening import open_url
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.run import RunFilter

ODD = "a\ud800b"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = open_url("memory:" if request.param == "memory" else tmp_path / "runs.db", new_fold=Projector)
    yield made
    made.close()


@loupe.tool(effect="read", name=f"look {ODD}")
def look(**asked: object) -> object:
    if "fail" in asked:
        raise ValueError(ODD)
    return asked


def test_a_lone_surrogate_anywhere_is_recorded_listed_and_found(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with ambient.opening_with(RecordOpener(store)), loupe.recording(f"run {ODD}", tags=[f"tag {ODD}"]):
        assert look(**{ODD: ODD}) == {ODD: ODD}
        with pytest.raises(ValueError, match="b"):
            look(fail=True)
        loupe.state(f"state {ODD}", {ODD: [ODD]})
    assert [record.message for record in caplog.records if "not recorded whole" in record.message] == []
    (run,) = store.runs()
    assert (run.name, run.tags, run.coverage) == (f"run {ODD}", (f"tag {ODD}",), "full")
    for wanted in ({"tag": f"tag {ODD}"}, {"tool": f"look {ODD}"}, {"name": f"run {ODD}"}, {"text": f"N {ODD}"}):
        assert [one.id for one in store.runs(RunFilter(**wanted))] == [run.id], wanted  # type: ignore[arg-type]
    steps = store.steps(run.id)
    assert [step.name for step in steps if step.kind == "tool"] == [f"look {ODD}"] * 2
    assert verify(store.recording(run.id)).ok
    store.tags(run.id, [f"by hand {ODD}"])
    assert [one.tags for one in store.runs(RunFilter(tag=f"by hand {ODD}"))] == [(f"by hand {ODD}",)]
    assert store.rebuild(run.id, Projector) == []
    assert store.steps(run.id) == steps
    assert [one.tags for one in store.runs(RunFilter(tag=f"by hand {ODD}"))] == [(f"by hand {ODD}",)]
