"""A run that was exported before it had ended belongs to where it came from: two copies would do its effects twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import agentloupe as loupe
from agentloupe.cli import main
from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.store.owners import this_process
from agentloupe.verbs.effects import settle_effect
from agentloupe.verbs.exchange import export_run, import_file
from agentloupe.verbs.resuming import resume
from agentloupe.words.errors import OwnerAlive, ResumeRefused
from tests.tapes import record_in, sequence_of

done: list[str] = []


@loupe.tool(effect="read")
def look(thing: str) -> str:
    done.append(thing)
    return thing.upper()


@loupe.agent
def looker() -> str:
    return look("a") + look("b")


@loupe.tool(effect="write")
def pay_elsewhere(amount: int) -> int:
    return amount


@loupe.agent
def payer() -> int:
    return pay_elsewhere(5)


def killed(store: Store) -> str:
    """A run that was killed while it paid."""
    whole = record_in(MemoryStore(), payer)
    store.insert(whole.run_id, whole.events[: sequence_of(whole, "tool.started")], whole.get, Projector)
    return whole.run_id


def unfinished(store: Store) -> str:
    """A run that was killed between its two looks."""
    whole = record_in(MemoryStore(), looker)
    cut = next(event.sequence for event in whole.events if event.type == "tool.finished")
    store.insert(whole.run_id, whole.events[:cut], whole.get, Projector)
    done.clear()
    return whole.run_id


@pytest.fixture(params=["memory", "file"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """The store that it is imported into."""
    store: Store = MemoryStore() if request.param == "memory" else open_url(str(tmp_path / "here.db"))
    yield store
    store.close()


def imported(make: Callable[[Store], str], here: Store, folder: Path) -> str:
    there = MemoryStore()
    run_id = make(there)
    file = folder / "run.loupe"
    export_run(there, run_id, file)
    (report,) = import_file(here, file).runs
    assert any("has not ended" in warning for warning in report.found.warnings)
    return run_id


def elsewhere(store: Store, run_id: str) -> bool:
    row = store.run(run_id)
    assert row is not None
    return row.elsewhere


def test_it_goes_on_only_where_somebody_says_that_the_original_never_does(here: Store, tmp_path: Path) -> None:
    run_id = imported(unfinished, here, tmp_path)
    assert elsewhere(here, run_id)
    with pytest.raises(OwnerAlive, match="imported before it had ended") as refused:
        resume(run_id, looker, store=here)
    assert (refused.value.reason, done) == ("elsewhere", [])
    assert "--take-over" in str(refused.value.hint)
    assert resume(run_id, looker, store=here, take_over=True).result == "AB"
    assert done == ["b"]
    assert not elsewhere(here, run_id)


def test_its_effects_are_settled_where_it_came_from(here: Store, tmp_path: Path) -> None:
    run_id = imported(killed, here, tmp_path)
    with pytest.raises(OwnerAlive) as refused:
        settle_effect(run_id, "0.0", "not_done", why="asked the bank", by="anna", store=here)
    assert refused.value.reason == "elsewhere"
    with pytest.raises(ResumeRefused, match="did this happen"):
        resume(run_id, payer, store=here, take_over=True)
    settle_effect(run_id, "0.0", "not_done", why="asked the bank", by="anna", store=here)  # it is this store's now
    assert resume(run_id, payer, store=here).run is not None


def test_one_that_has_ended_or_is_there_already_is_nobody_elses(here: Store, tmp_path: Path) -> None:
    there = MemoryStore()
    whole = record_in(there, looker).run_id
    export_run(there, whole, tmp_path / "whole.loupe")
    (report,) = import_file(here, tmp_path / "whole.loupe").runs
    assert (report.found.warnings, elsewhere(here, whole)) == ((), False)
    own = unfinished(here)
    export_run(here, own, tmp_path / "own.loupe")
    (report,) = import_file(here, tmp_path / "own.loupe").runs
    assert (report.state, elsewhere(here, own)) == ("already there", False)


def test_a_file_keeps_that_mark(tmp_path: Path) -> None:
    with closing(open_url(str(tmp_path / "here.db"))) as store:
        run_id = imported(unfinished, store, tmp_path)
        assert store.rebuild(run_id, Projector) == []
    with closing(open_url(str(tmp_path / "here.db"))) as store:
        assert elsewhere(store, run_id)
        store.take_over(run_id, Projector, owner=this_process()).close()
        assert not elsewhere(store, run_id)


def test_the_command_says_what_to_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(open_url(str(tmp_path / "here.db"))) as store:
        run_id = imported(unfinished, store, tmp_path)
    code = f"{looker.__module__}:looker"
    words = ["resume", run_id, "--code", code, "--db", str(tmp_path / "here.db")]
    assert main(words) == 3
    said = capsys.readouterr().err
    assert "was imported before it had ended" in said
    assert f"agentloupe resume {run_id} --take-over" in said
    assert main(["show", run_id, "--db", str(tmp_path / "here.db")]) == 0
    assert "it may go on where it came from" in " ".join(capsys.readouterr().out.split())
    assert main([*words, "--take-over"]) == 0
    assert "it ended: ok" in capsys.readouterr().out
