"""Forks of a script: each fork is a child process that runs the script with a forker in the place of a recorder.

The parent checks everything that can be checked, writes a session file for each fork and starts the child; the child
makes the new run in the same store and leaves a small report.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, cast

from agentloupe.engine.forker import Ended, Forker, ForkPlan
from agentloupe.engine.forkopener import ForkOpener
from agentloupe.engine.loop import Limits
from agentloupe.engine.overrides import overrides_as_json, overrides_from_json
from agentloupe.engine.policy import Allow, MissPolicy, ToolRule
from agentloupe.ports import ambient
from agentloupe.ports.cancel import Cancel
from agentloupe.ports.progress import Progress, Watch, tell
from agentloupe.ports.protocols import Opener, Store
from agentloupe.ports.schedule import plain
from agentloupe.ports.surroundings import outside
from agentloupe.verbs import launch
from agentloupe.verbs.children import quiet_stops, raised_at, run_child
from agentloupe.verbs.clients import wrap_clients
from agentloupe.verbs.ending import end_cancelled
from agentloupe.verbs.forkfamily import Family, ForkResult, ForkWishes, with_fields
from agentloupe.verbs.interrupts import raising_at_rest
from agentloupe.verbs.launched import Launch
from agentloupe.verbs.pricing import call_price
from agentloupe.verbs.replaying import agent_named
from agentloupe.words.canonical import Json, dumps
from agentloupe.words.errors import Cancelled, ForkRefused, LoupeError, StoreError, UsageError
from agentloupe.words.jsontext import loads

__all__ = ["fork_command", "fork_launch"]

_LOOK = 0.1
"""Seconds between looks at what a child says of its progress."""


# --- the parent -------------------------------------------------------------------------------------------------------


def fork_command(
    run: str,
    command: Sequence[str],
    *,
    from_step: int | Literal["start"],
    store: Store | None = None,
    wishes: ForkWishes | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
    **more: Any,
) -> ForkResult:
    """Forks by running a script, as typed behind `--`: `["python", "my_agent.py", "ARG"]`.

    Args:
        run: what to fork; see `forking.fork`.
        command: the script; only Python programs can be run. It must call the recorded agent as it was called.
        from_step: where; see `forking.fork`.
        store: where runs are; a file, since the child opens it too.
        wishes: how; functions in it (a sandbox, `ask`) must be importable by their names.
        environment: variables for the child, over those of this process.
        timeout: seconds after which a child is ended.
        more: single fields of `ForkWishes`, `Limits` and `Overrides`.

    Raises:
        RunNotFound, ForkRefused, UsageError, Damaged, StoreError: see `forking.fork`.
    """
    from agentloupe.verbs.api import open_store, resolve

    chosen = with_fields(wishes or ForkWishes(), {"engine": "own", **more})
    where = store if store is not None else open_store()
    if where.url == "memory:":
        raise UsageError("a script is forked in a process of its own, which cannot see a store in memory")
    return _Children(where, resolve(where, run), from_step, chosen, command, environment or {}, timeout).fork()


class _OfScript(Family):
    """A family whose code is a script, which declares its tools as it runs."""

    code_is_here = False


class _Children(_OfScript):
    """A family whose forks run in child processes."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        from_step: int | Literal["start"],
        wishes: ForkWishes,
        command: Sequence[str],
        environment: Mapping[str, str],
        timeout: float | None,
    ) -> None:
        super().__init__(store, run_id, from_step, _the_script, None, wishes)
        self._from = from_step
        self._command = command
        self._environment = environment
        self._timeout = timeout
        self._shown: set[str] = set()

    def own(self, plan: ForkPlan) -> None:
        """Runs one child to its end."""
        with tempfile.TemporaryDirectory(prefix="agentloupe-") as folder:
            place = Path(folder)
            report = place / "report.json"
            spec = launch.write_spec(place / "session.json", "fork", self._spec(plan, report))
            environment = {**os.environ, **launch.variables_of(self.recording), **self._environment}
            try:
                with _hearing(place / "progress.jsonl", self.wishes.watch):
                    code = self._run(launch.python_command(self._command), launch.environment(spec, environment))
            except KeyboardInterrupt:
                end_cancelled(self.store, plan.run_id, Cancelled("cancelled: it was interrupted"))
                raise
            cancel = self.wishes.cancel
            if cancel is not None and cancel.cancelled and not report.exists():
                self._killed(plan.run_id, cancel.error())
                return
            ended, crash = _read_report(report, code)
            self._shown.add(crash)
            self.noted(ended)

    def _killed(self, run_id: str, error: Cancelled) -> None:
        """Ends the run of a child that did not end by itself. Raises `Cancelled` where it had not begun one."""
        end_cancelled(self.store, run_id, error)
        if self.store.run(run_id) is None:
            raise error

    def _spec(self, plan: ForkPlan, report: Path) -> dict[str, Json]:
        wishes = self.wishes
        return {
            "db": self.store.url,
            "run": self.parent.id,
            "new_run": plan.run_id,
            "from_step": self._from,
            "arm": plan.facts.get("arm"),
            "report": str(report),
            "progress": str(report.with_name("progress.jsonl")) if wishes.watch is not None else None,
            "overrides": overrides_as_json(plan.overrides),
            "tools": {name: _rule_json(rule) for name, rule in self.policy.tools.items()},
            "live": {name: {"reason": a.reason, "read": a.read} for name, a in self.policy.allow.items()},
            "on_miss": wishes.on_miss,
            "ask": None if wishes.ask is None else _name_of(wishes.ask),
            "limits": wishes.limits.as_json(),
            "code_changed": wishes.code_changed,
            "form": wishes.form,
            "shown": list[Json](sorted(self._shown)),
        }

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> int | None:
        cancel = self.wishes.cancel
        if cancel is not None and cancel.cancelled:
            raise cancel.error()
        try:
            return run_child(command, environment=environment, stdout=2, timeout=self._timeout, cancel=cancel)
        except subprocess.TimeoutExpired:
            return None
        except OSError as wrong:
            raise ForkRefused(f"{command[0]} cannot be started: {wrong.strerror}", reason="no_code") from wrong


def _the_script() -> None:
    """Stands for code that is run elsewhere."""
    raise AssertionError("the script runs in a child")


def _name_of(function: Callable[..., object]) -> str:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not isinstance(module, str) or "<" in name or module == "__main__":
        raise UsageError(f"{name or function!r} cannot be found by a child process", hint="define it in a module")
    return f"{module}:{name}"


def _rule_json(rule: ToolRule) -> Json:
    sandbox = rule.sandbox if rule.sandbox is None or isinstance(rule.sandbox, str) else _name_of(rule.sandbox)
    return {"how": rule.how, "value": rule.value, "sandbox": sandbox}


@contextmanager
def _hearing(file: Path, watch: Watch | None) -> Generator[None]:
    """While the block runs, what a child writes down of its progress is told."""
    if watch is None:
        yield
        return
    file.touch()
    over = threading.Event()

    def listen() -> None:
        with file.open("rb") as lines:
            last = False
            while True:
                at = lines.tell()
                line = lines.readline()
                if line.endswith(b"\n"):
                    tell(watch, Progress(**cast("dict[str, Any]", loads(line))))
                elif last:
                    return
                else:
                    lines.seek(at)  # half a line is read again when it is whole
                    last = over.wait(_LOOK)

    listening = threading.Thread(target=listen, name="agentloupe-progress", daemon=True)
    with outside():
        listening.start()
    try:
        yield
    finally:
        over.set()
        listening.join()


def _noting(file: Path) -> Watch:
    """In the child: writes progress down for the parent, a line each."""

    def note(progress: Progress) -> None:
        with lock, file.open("ab") as lines:
            lines.write(dumps(asdict(progress)) + b"\n")

    lock = plain.allocate_lock()
    return note


def _read_report(file: Path, code: int | None) -> tuple[Ended, str]:
    """What a child left: how its fork fared, and where the program raised, if it did."""
    try:
        record = loads(file.read_bytes())
    except FileNotFoundError:
        ended = "was ended after its time" if code is None else f"ended with code {code}"
        raise ForkRefused(f"the script {ended} and left no report", reason="no_report") from None
    told = cast("dict[str, Any]", record)
    refusal: LoupeError | None = None
    if (refused := told.get("refusal")) is not None:
        kind = StoreError if refused["code"].startswith("store") else ForkRefused
        kind = UsageError if refused["code"] == UsageError.code else kind
        refusal = kind(refused["message"], hint=refused["hint"], reason=refused["reason"])
    return Ended(told["begun"], refusal, told["applied"], told["kept"], told["others"]), told["crash"]


# --- the child --------------------------------------------------------------------------------------------------------


class _ForkLaunch:
    """Runs a script in this process with a forker, once."""

    def __init__(self, spec: Mapping[str, Json]) -> None:
        from agentloupe.verbs.sessions import default_store

        self._file = Path(str(spec["report"]))
        step = spec["from_step"]
        wishes = _wishes_of(cast("Mapping[str, Any]", spec))
        family = _OfScript(
            default_store(str(spec["db"])),
            str(spec["run"]),
            step if isinstance(step, int) else "start",
            _the_script,
            None,
            wishes,
        )
        quiet_stops(cast("list[str]", spec["shown"]), lambda: self._forker.refusal is not None)
        raising_at_rest(cast("Cancel", wishes.cancel))
        plan = family.plan(wishes.overrides, cast("str | None", spec.get("arm")), str(spec["new_run"]))
        self._forker = Forker(plan)
        self._opener = ForkOpener(self._forker, check_arguments=True, check=lambda: family.check_names(family.named))
        self.opener: Opener = self._opener
        # The process is the fork's alone: a thread without a context, older than all marks, is its too.
        self._left = ExitStack()
        self._left.enter_context(ambient.catching_strays(ambient.away(self._forker)))

    def ended(self, error: BaseException | None) -> None:
        """The script has ended: leaves the report for the parent. A fork that began is done, however the script ended."""
        self._left.close()
        forker = self._forker
        if self._opener.session is None and forker.refusal is None:
            forker.refusal = self._opener.refusal or ForkRefused(
                f"the script {_ended_how(error)} and did not start the recorded agent", reason="no_session"
            )
        ended = forker.ended()
        refusal = ended.refusal
        told: dict[str, Json] = {"begun": ended.begun, "applied": dict[str, Json](ended.applied), "kept": ended.kept}
        told["others"] = self._opener.session is not None and self._opener.refusal is not None
        told["crash"] = raised_at(error) if error is not None else ""
        if refusal is not None:
            told["refusal"] = {
                "code": refusal.code,
                "message": refusal.message,
                "hint": refusal.hint,
                "reason": refusal.reason,
            }
        self._file.write_bytes(dumps(told))


def _ended_how(error: BaseException | None) -> str:
    return "ended" if error is None else f"raised {raised_at(error)}"


def _wishes_of(spec: Mapping[str, Any]) -> ForkWishes:
    limits = spec["limits"]
    cost = limits.get("max_cost")
    ask = spec.get("ask")
    return ForkWishes(
        overrides=overrides_from_json(spec["overrides"]),
        tools={name: ToolRule(**rule) for name, rule in spec["tools"].items()},
        live={name: Allow(**entry) for name, entry in spec["live"].items()},
        on_miss=cast("MissPolicy", spec["on_miss"]),
        ask=None if ask is None else agent_named(ask),
        engine="own",
        limits=replace(Limits(max_steps=None), **{**limits, "max_cost": None if cost is None else Decimal(cost)}),
        code_changed=spec["code_changed"],
        cancel=Cancel(),
        watch=None if spec["progress"] is None else _noting(Path(spec["progress"])),
        price=call_price if cost is not None else None,
        form=spec.get("form"),
    )


def fork_launch(spec: dict[str, Json]) -> Launch:
    """The launch of the verb `fork`: every client of the script is put under the boundary.

    Raises what making the fork's plan raises; the parent has checked all of it before.
    """
    wrap_clients()
    path = list(sys.path)
    try:
        return _ForkLaunch(spec)
    finally:
        sys.path[:] = path  # to find functions by their names it was looked at the current folder too
