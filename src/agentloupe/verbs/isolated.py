"""Replays in a child process: without a network where the system allows it, without keys, with the recorded hash seed.

The parent verifies the recording, writes a session file and starts the child; the child runs the code against the tape
and writes its report, which the parent reads. A child that does not stop after the stop signal is ended by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, cast

from agentloupe import __version__
from agentloupe.engine.covering import recorded_of
from agentloupe.engine.expectations import Expected, read_expected
from agentloupe.engine.guard import placeholder_keys, unshare_command, without_credentials
from agentloupe.engine.report import Divergence, Level, ReplayReport, report_from_json
from agentloupe.engine.tape import Tape
from agentloupe.ports import codecs
from agentloupe.ports.protocols import Opener, Session, Store
from agentloupe.ports.recording import Recording
from agentloupe.ports.surroundings import outside
from agentloupe.verbs import launch
from agentloupe.verbs.children import quiet_stops, raised_at, run_child
from agentloupe.verbs.clients import wrap_clients
from agentloupe.verbs.launched import leave_at_once
from agentloupe.verbs.patience import Watch
from agentloupe.verbs.replaying import (
    ExpectedDifferences,
    Wishes,
    agent_for,
    debug_here,
    open_run,
    replayer_for,
    run_replayed,
    shut_off,
)
from agentloupe.verbs.replaysession import ReplayOpener
from agentloupe.verbs.siblings import others_of, replayers_of
from agentloupe.words.errors import ConfigError, LoupeError, ReplayMismatch, ReplayRefused
from agentloupe.words.jsontext import Json, dumps, loads

__all__ = ["GRACE_SECONDS", "ReplayLaunch", "main", "replay_code", "replay_command", "replay_launch"]

GRACE_SECONDS: Final = 10.0
"""So long may a child go on after the stop signal; the variable `LOUPE_GRACE` says otherwise, in seconds."""

_NAMESPACE: Final = "child process in an empty network namespace"
_HOOKED: Final = "child process with an audit hook"
_UNSEEN: Final = "unseen"
"""File beside the report of a program that left by an exit whose code it could not see itself."""
_NATIVE: Final = "native sockets"


# --- the parent -------------------------------------------------------------------------------------------------------


def replay_command(
    run: str | Path | Recording,
    command: Sequence[str],
    *,
    store: Store | str | Path | None = None,
    level: Level = "content",
    expect: ExpectedDifferences | None = None,
    until_failure: bool | str = False,
    strict_order: bool = False,
    environment: Mapping[str, str] | None = None,
    network_namespace: bool = True,
    patience: float | None = None,
    timeout: float | None = None,
) -> ReplayReport:
    """Replays by running a script, as typed behind `--`: `["python", "my_agent.py", "ARG"]`.

    Args:
        run: what to replay; see `replay`.
        command: the script; only Python programs can be run.
        store: where runs are; see `replay`.
        level: how much must agree; see `replay`.
        expect: differences that are meant; see `replay`.
        until_failure: stop at the recorded failure; `"debugger"` opens a debugger there.
        strict_order: a pass whose order is not proven counts as failed.
        environment: variables for the child, over those of this process.
        network_namespace: use one where the system allows it.
        patience: a program that makes no call for so many seconds (at most twice as many), does no work meanwhile and
            sleeps no longer sleep of its own stands still: `missing`. Default: it is waited for.
        timeout: seconds after which the child is ended in any case; then there is no verdict (`timeout`).

    Raises:
        RunNotFound, ReplayRefused, UsageError: see `replay`; `command` is nothing that Python can run.
    """
    wishes = _wishes(level, expect, until_failure, strict_order)
    words = launch.python_command(command)
    opened = open_run(run, store, wishes)
    if isinstance(opened, ReplayReport):
        return opened
    child = _Child(
        opened, wishes, environment or {}, network_namespace, patience, timeout, others_of(opened, run, store)
    )
    return child.report(lambda _: words, {}, launched=True)


def replay_code(
    run: str | Path | Recording,
    code: str | None = None,
    *,
    store: Store | str | Path | None = None,
    level: Level = "content",
    expect: ExpectedDifferences | None = None,
    until_failure: bool | str = False,
    strict_order: bool = False,
    environment: Mapping[str, str] | None = None,
    network_namespace: bool = True,
    patience: float | None = None,
    timeout: float | None = None,
) -> ReplayReport:
    """Replays `module:function` in a child; without `code`, the generic loop. Arguments and errors as `replay_command`."""
    wishes = _wishes(level, expect, until_failure, strict_order)
    opened = open_run(run, store, wishes)
    if isinstance(opened, ReplayReport):
        return opened
    if code is None:
        agent_for(opened, None)  # refuses here what needs code
    child = _Child(opened, wishes, environment or {}, network_namespace, patience, timeout)
    return child.report(lambda spec: [sys.executable, "-m", "agentloupe.verbs.isolated", str(spec)], {"code": code})


def _wishes(level: Level, expect: ExpectedDifferences | None, until_failure: bool | str, strict_order: bool) -> Wishes:
    expected = read_expected(expect) if expect is not None else None
    hook = debug_here if until_failure == "debugger" else bool(until_failure)
    return Wishes(level=level, expect=expected, until_failure=hook, strict_order=strict_order)


@dataclass(slots=True)
class _Child:
    """One child process that replays a recording."""

    tape: Tape
    wishes: Wishes
    environment: Mapping[str, str]
    namespace: bool
    patience: float | None
    timeout: float | None
    others: Sequence[Recording] = ()

    def report(
        self, command: Callable[[Path], list[str]], fields: Mapping[str, Json], *, launched: bool = False
    ) -> ReplayReport:
        """Runs the child to its end. `command` makes the command line from the session file's path.

        `launched`: it is the user's own program, which finds that file through its environment.
        """
        replayer_for(self.tape, self.wishes)  # refuses here what cannot be
        with tempfile.TemporaryDirectory(prefix="agentloupe-") as folder:
            place = Path(folder)
            bare = command(place / "session.json")
            shut = unshare_command(bare) if self.namespace else None
            spec = {**self._spec(place), **fields, "isolation": _NAMESPACE if shut else _HOOKED}
            launch.write_spec(place / "session.json", "replay", spec)
            code = self._run(shut or bare, place / "session.json" if launched else None)
            isolation = _NAMESPACE if shut else _HOOKED
            return self._read(place / "report.json", code, isolation)

    def _spec(self, place: Path) -> dict[str, Json]:
        file = _written(self.tape.recording, place / "recording.loupe")
        others = [_written(other, place / f"other{i}.loupe") for i, other in enumerate(self.others)]
        expected = read_expected(self.wishes.expect) if self.wishes.expect is not None else None
        until = self.wishes.until_failure
        return {
            "file": str(file),
            "others": [str(other) for other in others],
            "report": str(place / "report.json"),
            "level": self.wishes.level,
            "expect": None if expected is None else [_entry(entry) for entry in expected],
            "until_failure": "debugger" if callable(until) else until,
            "patience": self.patience,
            "strict_order": self.wishes.strict_order,
        }

    def _run(self, command: Sequence[str], spec: Path | None) -> int | None:
        environment = without_credentials(
            {**os.environ, **launch.variables_of(self.tape.recording), **self.environment}
        )
        if spec is not None:
            environment = launch.environment(spec, environment)
        try:
            # What the program prints goes beside the report, not into it.
            return run_child(command, environment=environment, stdout=2, timeout=self.timeout)
        except subprocess.TimeoutExpired:
            return None
        except OSError as wrong:
            raise ReplayRefused(f"{command[0]} cannot be started: {wrong.strerror}", reason="no_code") from wrong

    def _read(self, file: Path, code: int | None, isolation: str) -> ReplayReport:
        try:
            report = report_from_json(cast("dict[str, Json]", loads(file.read_bytes())))
            return self._compared(report, code) if file.with_name(_UNSEEN).exists() else report
        except FileNotFoundError:
            ended = f"was ended after {self.timeout:g} s" if code is None else f"ended with code {code}"
            return ReplayReport(
                run_id=self.tape.recording.run_id,
                verdict="could_not_run",
                reason="timeout" if code is None else "no_report",
                level=self.wishes.level,
                events=len(self.tape.recording.events),
                isolation=isolation,
                version=__version__,
                message=f"the child process {ended} and left no report",
                recorded=recorded_of(self.tape.recording.events),
            )

    def _compared(self, report: ReplayReport, code: int | None) -> ReplayReport:
        """The report of a program whose exit code is seen only here."""
        last = self.tape.finished
        was = last.attrs.get("exit_code") if last is not None else None
        if last is None or not isinstance(was, int) or code == was or not report.passed or report.level == "flow":
            return report
        found = Divergence(
            kind="result_changed",
            sequence=last.sequence,
            message=f"the program ended with exit code {code}, the recorded one with {was}",
        )
        levels = {**report.levels, "state": False, "content": False}
        return replace(report, verdict="diverged", divergence=found, levels=levels)


def _written(recording: Recording, file: Path) -> Path:
    from agentloupe.exporters.loupe_file import LoupeFileExporter

    with file.open("wb") as out:
        LoupeFileExporter().write(iter([recording]), out)
    return file


def _entry(entry: Expected) -> Json:
    from agentloupe.engine.edits import show_path

    known = asdict(entry)
    if entry.place is not None:
        known["place"] = show_path(entry.place)
    return {name: value for name, value in known.items() if value is not None}


# --- the child --------------------------------------------------------------------------------------------------------


class ReplayLaunch:
    """Runs a script, or a function, against a tape in this process, which does nothing else."""

    def __init__(self, spec: Mapping[str, Json]) -> None:
        self._file = Path(str(spec["report"]))
        self._left = ExitStack()
        self._written = False
        self._writing = threading.Lock()
        self._over = False
        patience = spec.get("patience")
        self._patience = float(patience) if isinstance(patience, int | float) else None
        self._watch: Watch | None = None
        level = cast("Level", spec.get("level", "content"))
        expect = cast("Sequence[Mapping[str, Json]] | None", spec.get("expect"))
        isolation = str(spec.get("isolation", _HOOKED))
        until = cast("bool | str", spec.get("until_failure") or False)
        wishes = _wishes(level, expect, until, spec.get("strict_order") is True)
        self.wishes = replace(wishes, isolation=isolation, unseen=() if isolation == _NAMESPACE else (_NATIVE,))
        opened = open_run(Path(str(spec["file"])), None, self.wishes)
        if isinstance(opened, ReplayReport):
            self.write(opened)
            raise ReplayRefused(f"the recording cannot be read by the child: {opened.reason}", reason="child")
        self.tape = opened
        self.wishes = replace(self.wishes, stopped=self._stopped, gave_up=self._give_up)
        self.replayer = replayer_for(opened, self.wishes)
        quiet_stops(stopped=lambda: self.replayer.stopped or self._opener.turned_away)
        files = cast("Sequence[str]", spec.get("others") or ())
        self._opener = ReplayOpener(self.replayer, [*replayers_of(map(Path, files), self.wishes)])
        self.opener: Opener = self._opener

    def shut(self) -> None:
        """From here to the end of the process nothing gets out."""
        self._left.enter_context(placeholder_keys())
        self._left.enter_context(shut_off(self.replayer, self.opener))
        self.watch()

    def watch(self) -> None:
        """Ends the program when it stands still for longer than it may."""
        if self._patience is not None:
            self._watch = Watch(self._patience, lambda: self._opener.progress, self._stands_still)
            self._watch.start()

    def _stands_still(self) -> None:
        if self.replayer.ended:
            self.replayer.notes.append("after the run the program stood still, and was ended")
        elif not self.replayer.stopped:
            self.replayer.stand_still()
        self._give_up()

    def ended_unseen(self, session: Session) -> bool:
        """The program left by an exit: the recorded one stands for it, and the parent, who sees the code, compares."""
        if session.run_id != self.tape.recording.run_id:
            return False
        self._file.with_name(_UNSEEN).touch()
        last = self.tape.finished
        if last is None or last.attrs.get("error_class") != "SystemExit":
            return False
        session.failed(cast("SystemExit", codecs.decode(self.tape.recording.body(last.output_digest))))
        return True

    def ended(self, error: BaseException | None) -> None:
        """The program has ended; its own exit code says nothing about the replay."""
        self._left.close()
        self._over = True
        if error is not None and not self.replayer.ended and not isinstance(error, ReplayMismatch):
            self.replayer.notes.append(f"the program raised {raised_at(error)}")
        self._opener.ended()
        self.write(self.replayer.report())

    def write(self, report: ReplayReport) -> None:
        """Leaves the report for the parent, whole or not at all; only the first counts."""
        if self._watch is not None:
            self._watch.stop()
        with self._writing:  # who comes second may end the process, and waits until the report is whole
            if self._written:
                return
            draft = self._file.with_suffix(".new")
            draft.write_bytes(dumps(report.as_json()))
            draft.replace(self._file)
            self._written = True

    def _stopped(self) -> None:
        """The program has been told to stop; it has some seconds, unless it has ended: no thread may start then."""
        if self._over:
            return
        timer = threading.Timer(float(os.environ.get("LOUPE_GRACE", GRACE_SECONDS)), self._give_up)
        timer.daemon = True
        with outside():
            timer.start()

    def _give_up(self) -> None:
        report = self.replayer.report()
        self.write(report)
        sys.stderr.write("agentloupe: the program did not stop with its replay; it was ended\n")
        sys.stderr.flush()
        leave_at_once(report.exit_code)


def replay_launch(spec: dict[str, Json]) -> ReplayLaunch:
    """The launch of the verb `replay`: every client of the script is put under the boundary, and the way out is shut.

    Raises:
        ReplayRefused: the recording cannot be read.
    """
    made = ReplayLaunch(spec)
    wrap_clients()
    made.shut()
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of a child that replays a function; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        spec = loads(Path(words[0]).read_bytes())
        if not isinstance(spec, dict):
            raise ConfigError(f"{words[0]} is no session file")
        made = ReplayLaunch(spec)
    except LoupeError as wrong:
        sys.stderr.write(f"agentloupe: {wrong}\n")
        return wrong.exit_code
    try:
        code = spec.get("code")
        # As `agentloupe run` does: a client that the code makes and does not wrap must not look like a way out.
        wrap_clients()
        agent = agent_for(made.tape, str(code) if code is not None else None)
    except LoupeError as wrong:
        made.write(replace(made.replayer.report(), reason=wrong.reason, message=str(wrong)))
        return wrong.exit_code
    made.watch()
    report = run_replayed(made.tape, agent, made.wishes, made.replayer)
    made.write(report)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
