"""Watches, inside of a program that is recorded, what its code reads past the boundary: for `agentloupe doctor`.

A profile function is told of every call of Python and of C code, with the frame that makes it; an audit hook of
connections and processes. What is done on behalf of a recorded call is no matter: a replay does not do it again. Counted
are the program's own lines; libraries are counted apart, by their names.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

from agentloupe.ports.ambient import caller, is_users
from agentloupe.ports.schedule import forks
from agentloupe.ports.surroundings import here
from agentloupe.words.jsontext import Json, dumps

__all__ = ["MENDS", "Watcher"]

_RANDOM_METHODS = "random uniform randint randrange choice choices sample shuffle gauss getrandbits betavariate randbytes normalvariate"
_PATH_READS = "read_text read_bytes open iterdir glob rglob exists stat is_file write_text write_bytes unlink mkdir"

C_CALLS: Final[dict[str, str]] = {
    **dict.fromkeys(("time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.strftime"), "clock"),
    **dict.fromkeys(("datetime.now", "datetime.utcnow", "datetime.today", "date.today"), "clock"),
    **dict.fromkeys(("time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.perf_counter_ns"), "duration"),
    **dict.fromkeys((f"Random.{name}" for name in _RANDOM_METHODS.split()), "random"),
    "os.urandom": "random",
    **dict.fromkeys(
        ("os.getpid", "os.getppid", "os.cpu_count", "os.getcwd", "os.getlogin", "os.uname"), "process facts"
    ),
    **dict.fromkeys(("os.listdir", "os.scandir"), "listing"),
    **dict.fromkeys(("io.open", "os.open", "os.stat"), "file"),
    **dict.fromkeys(("builtins.id", "builtins.hash"), "identity"),
    "builtins.input": "input",
}
"""Functions written in C, as `module.name` or `Class.name` -> what reading them is."""

PYTHON_CALLS: Final[dict[str, str]] = {
    **dict.fromkeys((f"random.Random.{name}" for name in _RANDOM_METHODS.split()), "random"),
    **dict.fromkeys(
        (
            "random.SystemRandom.random",
            "secrets.choice",
            "secrets.token_hex",
            "secrets.token_bytes",
            "secrets.token_urlsafe",
            "secrets.randbelow",
        ),
        "random",
    ),
    **dict.fromkeys(("uuid.uuid1", "uuid.uuid4", "uuid.getnode"), "id"),
    **dict.fromkeys(("os.environ[...]", "os.getenv", "os.environ.get"), "env"),
    **dict.fromkeys((f"pathlib.Path.{name}" for name in _PATH_READS.split()), "file"),
    **dict.fromkeys(("pathlib.Path.iterdir", "pathlib.Path.glob", "pathlib.Path.rglob", "os.walk"), "listing"),
    **dict.fromkeys(("glob.glob", "glob.iglob"), "listing"),
    **dict.fromkeys(("tempfile.mkdtemp", "tempfile.mkstemp", "tempfile.NamedTemporaryFile"), "file"),
    **dict.fromkeys(("platform.node", "socket.gethostname", "getpass.getuser"), "process facts"),
}
"""Functions of the standard library written in Python, as `module.qualified name`."""

_AUDITED: Final[dict[str, str]] = {
    **dict.fromkeys(("socket.connect", "socket.getaddrinfo", "socket.sendto"), "network"),
    **dict.fromkeys(("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.spawn", "pty.spawn"), "process"),
}

MENDS: Final[dict[str, str]] = {
    "clock": "loupe.now()",
    "duration": "nothing, while it only measures; loupe.now() where it decides something or reaches a prompt",
    "random": "loupe.random(), loupe.rng.choice(...)",
    "id": "loupe.uuid4()",
    "env": "loupe.env(NAME)",
    "file": 'a function decorated with @loupe.tool(effect="read") (or "write") that does it',
    "listing": 'a function decorated with @loupe.tool(effect="read"); sort what it returns',
    "identity": "a name or number of its own: addresses and hashes differ from process to process",
    "process facts": 'a function decorated with @loupe.tool(effect="read") that does it',
    "input": 'a function decorated with @loupe.tool(effect="read") that asks',
    "network": "loupe.wrap(client) for a model, @loupe.tool for anything else",
    "process": "a function decorated with @loupe.tool that starts it",
    "set order": "sorted(...) before its order reaches a prompt or decides a branch",
    "tool": "@loupe.tool on it",
    "order": "see the guide on streams and async; --strict-order makes it fail",
    "difference": "see the report of the replay",
}
"""What was read -> what to write instead."""

Found = tuple[str, str, str, int]
"""Kind, name of what was called, file, line."""

_STDLIB = sysconfig.get_paths()["stdlib"]
_OWN = str(Path(__file__).parents[1])
_AROUND = str(forks.__file__)
"""Stands around the starts of processes, whoever makes them."""
_MODULES = {"posix": "os", "nt": "os", "_io": "io"}


class Watcher:
    """Watches this process from `start` to its end.

    Args:
        folder: where `write` leaves what was found.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: Counter[Found] = Counter()
        self._libraries: Counter[tuple[str, str]] = Counter()
        self._on = False

    def start(self) -> None:
        """Begins to watch, all threads that start from now on too."""
        self._on = True
        sys.addaudithook(self._audited)
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def write(self) -> None:
        """Watches no more and writes down what was found."""
        self._on = False
        sys.setprofile(None)
        own: list[Json] = [
            {"kind": kind, "what": what, "file": file, "line": line, "times": times}
            for (kind, what, file, line), times in sorted(self._found.items(), key=lambda found: found[0][2:])
        ]
        libraries: list[Json] = [
            {"library": library, "kind": kind, "times": times}
            for (library, kind), times in sorted(self._libraries.items())
        ]
        (self._folder / f"{os.getpid()}.json").write_bytes(dumps({"own": own, "libraries": libraries}))

    def _called(self, frame: FrameType, event: str, function: Any) -> None:
        if not self._on:
            return
        if event == "c_call":
            what = _c_name(function)
            kind = C_CALLS.get(what)
            if kind is not None:
                self._note(kind, what, frame)
        elif event == "call" and frame.f_back is not None:
            what = _python_name(frame)
            kind = PYTHON_CALLS.get(what) if what else None
            if kind is not None:
                self._note(kind, what, frame.f_back)

    def _audited(self, event: str, arguments: tuple[object, ...]) -> None:
        kind = _AUDITED.get(event) if self._on else None
        if kind is None or _is_inner() or _is_ours():
            return
        line = caller()
        if line is not None and is_users(line.file):
            self._found[kind, event, line.file, line.line] += 1

    def _note(self, kind: str, what: str, frame: FrameType) -> None:
        """A call was made out of this frame."""
        file = frame.f_code.co_filename
        if _is_inner():
            return
        if is_users(file):
            self._found[kind, what, file, frame.f_lineno] += 1
        elif "site-packages" in file:
            library = Path(file.rpartition(f"site-packages{os.sep}")[2]).parts[0].removesuffix(".py")
            if library != "agentloupe":
                self._libraries[library, kind] += 1


def _is_inner() -> bool:
    """Whether this is done on behalf of a call that is recorded as a whole."""
    there = here()
    return there is not None and there.inner


def _is_ours() -> bool:
    """Whether Loupe itself does this, through whatever part of the standard library."""
    frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]  # the documented way to one's own stack
    while frame is not None and frame.f_code.co_filename.startswith((_STDLIB, _AROUND, "<")):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_OWN)


def _c_name(function: Any) -> str:
    """`time.time`, `datetime.now`, `Random.random`: the module's name before a function's, the class before a method's."""
    name = getattr(function, "__qualname__", "")
    if "." in name:
        return name
    module = getattr(function, "__module__", None) or ""
    return f"{_MODULES.get(module, module)}.{name}"


def _python_name(frame: FrameType) -> str:
    code = frame.f_code
    if code.co_qualname == "Mapping.get" and frame.f_locals.get("self") is os.environ:
        return "os.environ.get"
    if code.co_qualname == "_Environ.__getitem__":
        return "os.environ[...]"
    module = cast("str", frame.f_globals.get("__name__", ""))
    module = "pathlib" if module.startswith("pathlib.") else module  # a package of several files since Python 3.13
    return f"{module}.{code.co_qualname}"
