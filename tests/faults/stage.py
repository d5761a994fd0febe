"""Where programs are killed and others go on: a folder with a store, and the world outside. And what must hold between.

stage.killed("record", "one_by_one", "a", "b", fault="effect.after_effect")
stage.sound()                       # evidence, view, effects: all that must hold after any kill
stage.said("resume", "last", "one_by_one")
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentloupe.engine.project import Projector
from agentloupe.engine.tape import RecordedCall, read_tape
from agentloupe.engine.verify import verify
from agentloupe.ports import codecs
from agentloupe.ports.faultpoints import VARIABLE
from agentloupe.ports.outbox import DEFAULT_TYPES, published
from agentloupe.store.sqlite import SqliteStore
from agentloupe.verbs.effects import open_effects, settle_effect
from agentloupe.verbs.ledger import export_ledger, replay_folder
from agentloupe.words.run import Run
from tests.faults.world import World
from tests.support import ROOT

SHOP = ("-m", "tests.faults.shop")


@dataclass
class Stage:
    """See the module. `more`: further variables of the programs; `pid`: of the one that was started last."""

    folder: Path
    world: World
    more: dict[str, str] = field(default_factory=dict)
    pid: Future[int] = field(default_factory=Future)

    # --- programs -----------------------------------------------------------------------------------------------------

    def start(self, *words: str, fault: str = "") -> subprocess.Popen[str]:
        """Starts a program of the shop, or Python with other words where they begin with a dash."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LOUPE_")}
        environment |= {
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
            "WORLD": str(self.world.port),
            "LOUPE_DB": str(self.db),
            VARIABLE: fault,
            **self.more,
        }
        command = [sys.executable, *(words if words[0].startswith("-") else (*SHOP, *words))]
        self.pid = Future()
        child = subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.pid.set_result(child.pid)
        return child

    def ran(self, *words: str, fault: str = "", timeout: float = 100) -> tuple[int, str, str]:
        """Runs a program to its end, whoever brings that about: exit code, output, errors."""
        with self.start(*words, fault=fault) as child:
            try:
                out, err = child.communicate(timeout=timeout)
            finally:
                child.kill()
        return child.returncode, out, err

    def killed(self, *words: str, fault: str) -> None:
        """Runs a program, which must be killed at its fault point."""
        code, out, err = self.ran(*words, fault=fault)
        assert code in (-signal.SIGKILL, 128 + signal.SIGKILL), f"it was not killed but ended with {code}: {out}{err}"
        assert f"killed by {VARIABLE}={fault}" in err

    def said(self, *words: str) -> Any:
        """Runs a program, which must end well; what it said."""
        code, out, err = self.ran(*words)
        assert code == 0, f"{words}: {out}{err}"
        return json.loads(out) if out.strip() else None

    # --- the store ----------------------------------------------------------------------------------------------------

    @property
    def db(self) -> Path:
        """The store's file."""
        return self.folder / "runs.db"

    @contextmanager
    def store(self) -> Generator[SqliteStore]:
        """The store, opened as the next process would."""
        opened = SqliteStore(self.db, new_fold=Projector)
        try:
            yield opened
        finally:
            opened.close()

    def runs(self) -> list[Run]:
        """All runs, the newest first."""
        with self.store() as store:
            return store.runs()

    def result(self, run_id: str) -> Any:
        """What a run came to."""
        with self.store() as store:
            recording = store.recording(run_id)
            digest = recording.events[-1].output_digest
            stored: Any = None if digest is None else recording.body(digest)
            return codecs.decode(stored["result"])

    def calls(self, run_id: str) -> list[RecordedCall]:
        """Every call of a run."""
        with self.store() as store:
            return list(read_tape(store.recording(run_id)).calls)

    # --- what must hold -----------------------------------------------------------------------------------------------

    def sound(self) -> None:
        """Evidence whole, view the derived one, and no effect that was done twice or that nobody knows of."""
        if not self.db.exists():
            assert not self.world.done, "an effect without a record"
            return
        with self.store() as store:
            assert store.check() == []
            seen: dict[str, str] = {}
            for run in store.runs():
                recording = store.recording(run.id)
                found = verify(recording)
                assert found.ok, found.head
                assert store.rebuild(run.id, Projector) == [], "the view is the derived one"
                for call in read_tape(recording).calls:
                    key = call.attrs.get("idempotency_key")
                    if isinstance(key, str) and run.parent_run_id is None:
                        assert key not in seen, "a key is one effect's"
                        seen[key] = call.status
            listed = {effect.idempotency_key for effect in open_effects(store).items}
        twice = {key: times for key, times in self.world.done.items() if times > 1}
        assert not twice, "an effect that was done twice"
        lost = {key for key in self.world.done if seen.get(key) != "ok" and key not in listed}
        assert not lost, "an effect of which the record knows no outcome, and which nobody is asked about"
        made_up = [key for key, status in seen.items() if status == "ok" and not self.world.done[key]]
        assert not made_up, "an outcome of what never was"

    def told(self, file: Path) -> None:
        """Everything that is to be told to the outside is in the sink's file, in order; some of it perhaps twice."""
        lines = [json.loads(line) for line in file.read_bytes().splitlines()]
        first: dict[str, dict[str, Any]] = {}
        for line in lines:
            assert first.setdefault(line["id"], line) == line, "a message that comes again is the same"
        with self.store() as store:
            assert store.outbox.count() == 0
            events = {run.id: published(store.events(run.id), DEFAULT_TYPES) for run in store.runs()}
        by_run: dict[str, list[str]] = {}
        for line in first.values():
            by_run.setdefault(line["run_id"], []).append(line["id"])
        assert by_run == {run: [event.event_id for event in told] for run, told in events.items() if told}

    def settle(self) -> None:
        """Says of each open effect what became of it, as a person would who asks the world by its key."""
        if not self.db.exists():
            return
        with self.store() as store:
            for effect in open_effects(store).items:
                receipt = self.world.receipts.get(effect.idempotency_key or "")
                result = None if receipt is None else f"{receipt} for {10 + len(receipt) - 2}"
                settle_effect(
                    effect.run_id,
                    effect.call_id,
                    "not_done" if receipt is None else "finished",
                    why="the world was asked",
                    by="anna",
                    result=result,
                    external_id=receipt,
                    store=store,
                )

    def derives(self, run_id: str) -> str:
        """The state that a ledger's reader derives from a run that is handed over as files."""
        folder = self.folder / f"ledger-{run_id}"
        with self.store() as store:
            export_ledger(store, run_id, folder)
        return str(replay_folder(folder).fields["state"])
