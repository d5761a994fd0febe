"""Runs a user's script or module as its own program, with an opener for the whole process.

    python -m agentloupe.verbs.launch SPEC -- script.py ARGS...
    python -m agentloupe.verbs.launch SPEC -- -m module ARGS...

`SPEC` is a JSON file: `{"verb": "record", "name": ..., "tags": [...], "task_id": ..., "db": ...}`; other verbs bring
fields of their own. Sessions are opened by the verb's opener. A script that makes boundary calls without opening a run
gets one run around all of it. The exit code is the script's.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from agentloupe.ports import ambient
from agentloupe.ports.protocols import Boundary, Opener, Opening, Perform, Serve, Session
from agentloupe.ports.streams import Piece, StreamBoundary
from agentloupe.words.call import Call
from agentloupe.words.errors import ConfigError, LoupeError, ReplayMismatch, UsageError
from agentloupe.words.jsontext import Json, dumps, loads

__all__ = ["OPENERS", "Launch", "command", "main", "wrap_clients", "wrapping_clients", "write_spec"]

OPENERS: dict[str, str] = {
    "record": "agentloupe.verbs.launch:record_launch",
    "replay": "agentloupe.verbs.isolated:replay_launch",
    "fork": "agentloupe.verbs.forkchild:fork_launch",
}
"""Verb -> `module:function`; the function takes the spec and gives a `Launch`."""


class Launch(Protocol):
    """How one verb runs a script."""

    @property
    def opener(self) -> Opener:
        """Opens every session of the process."""
        ...

    def ended(self, code: int) -> int:
        """The script has ended with this exit code: writes reports; returns the code of the process."""
        ...


def write_spec(path: Path, verb: str, fields: Mapping[str, Json]) -> Path:
    """Writes a spec file for `command`."""
    path.write_bytes(dumps({"verb": verb, **fields}))
    return path


def command(spec: Path, script: Sequence[str]) -> list[str]:
    """The command line that runs a script under a spec, in the interpreter that the script names.

    `script` is what a user typed behind `--`: `python my_agent.py ARGS`, `python -m my_agent`, or `my_agent.py ARGS`.

    Raises:
        UsageError: it is nothing that Python can run.
    """
    words = list(script)
    interpreter = sys.executable
    if words and _is_python(words[0]):
        interpreter, words = _which(words[0]), words[1:]
    if not words or (words[0].startswith("-") and words[0] != "-m") or (words[0] == "-m" and len(words) < 2):
        raise UsageError("expected a Python script behind --", hint="agentloupe run -- python my_agent.py ARGS")
    if words[0] != "-m" and not words[0].endswith((".py", ".pyw")) and not Path(words[0]).is_file():
        raise UsageError(f"{words[0]!r} is no Python script", hint="only Python programs can be run from here")
    if words[0] != "-m" and not Path(words[0]).exists():
        raise UsageError(f"no such script: {words[0]}", hint="it is looked for in the current folder")
    return [interpreter, "-m", "agentloupe.verbs.launch", str(spec), "--", *words]


def _is_python(word: str) -> bool:
    name = Path(word).name
    return name.startswith(("python", "pypy")) and not name.endswith(".py")


def _which(word: str) -> str:
    """The interpreter that was named; plain `python` is this one, which has Loupe."""
    return sys.executable if word in ("python", "python3") else word


# --- the child --------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of the child process; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if len(words) < 3 or words[1] != "--":
        sys.stderr.write("usage: python -m agentloupe.verbs.launch SPEC -- script.py ARGS...\n")
        return 64
    try:
        spec = _read_spec(Path(words[0]))
        launch = _launch_of(spec)
    except LoupeError as wrong:
        sys.stderr.write(f"agentloupe: {wrong}\n")
        return wrong.exit_code
    whole = _WholeScript(launch.opener, words[2:], spec)
    with ExitStack() as stack:
        stack.enter_context(ambient.opening_with(whole, process_wide=True))
        stack.enter_context(ambient.inside(whole.boundary))
        code, error = _run(words[2:])
    whole.ended(error)
    return launch.ended(code)


def _read_spec(path: Path) -> dict[str, Json]:
    try:
        spec = loads(path.read_bytes())
    except (OSError, ValueError) as wrong:
        raise ConfigError(f"{path} cannot be read: {wrong}") from wrong
    if not isinstance(spec, dict) or not isinstance(spec.get("verb"), str):
        raise ConfigError(f"{path} is no session file")
    return spec


def _launch_of(spec: dict[str, Json]) -> Launch:
    verb = str(spec["verb"])
    if verb not in OPENERS:
        raise UsageError(f"unknown verb {verb!r} in the session file")
    module, _, function = OPENERS[verb].partition(":")
    make: Callable[[dict[str, Json]], Launch] = getattr(importlib.import_module(module), function)
    return make(spec)


def _run(words: Sequence[str]) -> tuple[int, BaseException | None]:
    """Runs a script as `__main__`; its exit code, and what ended it, if something did."""
    module = words[1] if words[0] == "-m" else None
    sys.argv = list(words[1:] if module else words)
    sys.path[0] = "" if module else str(Path(words[0]).resolve().parent)
    try:
        if module:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as left:
        return _exit_code(left), left
    except KeyboardInterrupt as stop:
        return 130, stop
    except ReplayMismatch as stop:
        return 1, stop  # the report says it better than a traceback
    except BaseException as error:  # noqa: BLE001  # whatever it is, the script ended with it
        _show(error)
        return 1, error
    return 0, None


def _exit_code(left: SystemExit) -> int:
    if left.code is None:
        return 0
    if isinstance(left.code, int):
        return left.code & 0xFF
    sys.stderr.write(f"{left.code}\n")
    return 1


def _show(error: BaseException) -> None:
    """The traceback as Python would print it, without the frames that are ours."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


class _WholeScript:
    """Opens sessions for the script; calls outside of any make one run around the whole script, when the first comes.

    It is an opener and, for calls outside of sessions, a boundary that hands everything on.
    """

    implicit = True

    def __init__(self, opener: Opener, words: Sequence[str], spec: Mapping[str, Json]) -> None:
        self.boundary: Boundary = self
        self._opener = opener
        self._name = _name_of(words)
        self._spec = spec
        self._session: Session | None = None

    def open(self, opening: Opening) -> Session:
        """A session of the script's own."""
        return self._opener.open(opening)

    def decide(self, call: Call) -> Serve | Perform:
        """A call that belongs to no run: from here on the script as a whole is one."""
        if self._session is None:
            self._session = self._opener.open(Opening(agent=self._name))
        return self._session.boundary.decide(call)

    def finished(self, perform: Perform, value: object) -> object:
        """Handed on."""
        return cast("Session", self._session).boundary.finished(perform, value)

    def opened(self, perform: Perform, head: Json) -> None:
        """Handed on."""
        cast("StreamBoundary", cast("Session", self._session).boundary).opened(perform, head)

    def streamed(self, perform: Perform, piece: Piece) -> None:
        """Handed on."""
        cast("StreamBoundary", cast("Session", self._session).boundary).streamed(perform, piece)

    def failed(self, perform: Perform, error: BaseException) -> None:
        """Handed on."""
        cast("Session", self._session).boundary.failed(perform, error)

    def ran_off(self, what: str, inner: bool) -> None:
        """Told to the run around the script, if there is one."""
        run = self._session.boundary if self._session is not None else None
        if hasattr(run, "ran_off"):
            cast("Any", run).ran_off(what, inner)

    def ended(self, error: BaseException | None) -> None:
        """The script has ended: so does the run around it, if there is one."""
        if self._session is None:
            return
        if error is None:
            self._session.finished(None)
        else:
            self._session.failed(error)


def _name_of(words: Sequence[str]) -> str:
    return words[1].rpartition(".")[2] if words[0] == "-m" else Path(words[0]).stem


# --- clients that the script makes itself ------------------------------------------------------------------------------


def wrap_clients() -> None:
    """Puts the clients of model SDKs under the boundary that the script makes from now on, without importing any SDK."""
    for sdk in _SDKS:
        if sdk in sys.modules:
            _install()
        elif not any(isinstance(finder, _WhenImported) and finder.name == sdk for finder in sys.meta_path):
            sys.meta_path.insert(0, _WhenImported(sdk, _install))


@contextmanager
def wrapping_clients() -> Generator[None]:
    """As `wrap_clients`, for the time inside: what code makes there and does not wrap asks no model behind our back."""
    wrap_clients()
    try:
        yield
    finally:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _WhenImported)]
        if not sys.modules.keys().isdisjoint(_SDKS):
            from agentloupe.providers import clients

            clients.uninstall()


_SDKS = ("openai", "anthropic")


def _install() -> None:
    from agentloupe.providers import clients

    clients.install()


class _WhenImported(MetaPathFinder):
    """Does something right after a module has been imported for the first time; then it is gone."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self._then = then

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        """Finds the module as it would be found without us, and looks on while it is executed."""
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._then()

        spec.loader.exec_module = exec_module
        return spec


# --- the verb `record` ------------------------------------------------------------------------------------------------


class _RecordLaunch:
    """`agentloupe run`: every session of the script is recorded."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        from agentloupe.verbs.sessions import RecordOpener, default_store

        db = spec.get("db")
        self.opener = RecordOpener(
            default_store(str(db)) if db else None,
            name=spec.get("name"),
            tags=[str(tag) for tag in spec.get("tags") or ()],
            task_id=spec.get("task_id"),
            argv=[str(word) for word in spec.get("argv") or ()],
        )
        self._report = spec.get("report")

    def ended(self, code: int) -> int:
        """Says what was recorded, and loudly when it was nothing."""
        sessions = self.opener.sessions
        if not sessions:
            sys.stderr.write(
                "agentloupe: NOTHING WAS RECORDED: the script opened no run and made no call that goes through Loupe.\n"
                "            Wrap its model client (loupe.wrap(client)), or put @loupe.agent on its entry point.\n"
            )
        elif not any(session.recorder.model_calls for session in sessions):
            sys.stderr.write(
                "agentloupe: NO MODEL CALL WAS RECORDED: the script asked no model, or asked past Loupe: clients of the\n"
                "            openai package are seen by themselves, what others ask is not recorded.\n"
            )
        for session in sessions:
            row = session.row()
            whole = (
                "" if row is not None and row.ended_at is not None and row.coverage != "lossy" else ", but not whole"
            )
            said = f"recorded {row.id}{whole}" if row is not None else f"NOT RECORDED: {session.run_id}"
            sys.stderr.write(f"agentloupe: {said}\n")
        if self._report:
            runs = [session.run_id for session in sessions]
            Path(self._report).write_bytes(dumps({"runs": list[Json](runs), "exit_code": code}))
        return code


def record_launch(spec: dict[str, Json]) -> Launch:
    """The launch of the verb `record`.

    Raises what opening a store raises: a recording that was asked for by name does not start without its store.
    """
    wrap_clients()
    return _RecordLaunch(spec)


if __name__ == "__main__":
    sys.exit(main())
