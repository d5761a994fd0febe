"""Imports code that a person named for a replay, a fork or a worker, and lets nothing happen meanwhile.

A module runs while it is imported. One that starts its agent there, because the start does not stand under
`if __name__ == "__main__"`, would otherwise record a run of its own and really run its tools, those that write too.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from agentloupe.ports.ambient import caller, catching_strays, opening_with, outside
from agentloupe.ports.protocols import Opening, Perform, Session
from agentloupe.verbs.instrument import agents_in
from agentloupe.words.call import OWN_WORK, Call
from agentloupe.words.errors import LoupeError, ReplayRefused, UsageError

__all__ = ["agents_of", "imported", "imported_file"]


def agents_of(names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """The agents of modules or files by name, or single ones: `my_app.agents`, `path/to/script.py:payer`.

    Raises:
        LoupeError: one cannot be loaded (`no_code`).
        UsageError: there is no agent in it, or not the one that is named.
    """
    found: dict[str, Callable[..., Any]] = {}
    for name in names:
        found |= _agents_of(name)
    return found


def _agents_of(name: str) -> dict[str, Callable[..., Any]]:
    module_name, wanted = _parted(name)
    by_file = module_name.endswith(".py") or "/" in module_name
    try:
        module = imported_file(Path(module_name)) if by_file else imported(module_name)
    except ImportError as wrong:
        raise LoupeError(
            f"{module_name} cannot be loaded: {wrong}",
            hint="files by their path, modules in the current folder and where Python looks",
            reason="no_code",
        ) from wrong
    found = agents_in(vars(module))
    if not found:
        raise UsageError(f"{module_name} has no agent", hint="decorate it with @loupe.agent")
    if not wanted:
        return found
    named = {agent: code for agent, code in found.items() if wanted in (agent, getattr(code, "__name__", None))}
    if not named:
        raise UsageError(f"{module_name} has no agent {wanted}", hint=f"its agents: {', '.join(sorted(found))}")
    return named


def _parted(name: str) -> tuple[str, str]:
    """Module or file, and the agent. A colon that stands before a slash is a drive's, not ours."""
    module, colon, wanted = name.rpartition(":")
    return (module, wanted) if colon and "/" not in wanted and "\\" not in wanted else (name, "")


def imported(module: str) -> ModuleType:
    """The module of that name; the current folder is looked at too.

    Raises:
        ReplayRefused: the module starts an agent, asks a model or calls a tool while it is imported (`runs_on_import`).
        ImportError: there is no such module, or it cannot be imported.
    """
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if module in sys.modules:  # nothing runs, so nobody else in this process needs to be held up
        return sys.modules[module]
    nothing = _NothingHappens(module)
    with outside(), catching_strays(nothing), opening_with(nothing):
        return importlib.import_module(module)


def made_quietly(module: str, make: Callable[[], object]) -> object:
    """What a function or class of the module gives when it is called to make the agent, as quietly as an import.

    Raises:
        ReplayRefused: it starts an agent, asks a model or calls a tool meanwhile (`runs_on_import`).
    """
    nothing = _NothingHappens(module, "makes the agent")
    with outside(), catching_strays(nothing), opening_with(nothing):
        return make()


def imported_file(path: Path) -> ModuleType:
    """The module that a file holds, under the name that the file gives it; what lies beside it can be imported by it.

    Raises:
        ReplayRefused: like `imported`; also where another module of that name is loaded already (`name_taken`).
        ImportError: there is no such file, or it is no module.
    """
    file = path.resolve()
    name = file.stem
    if not file.is_file():
        raise ImportError(f"there is no file {path}")
    there = sys.modules.get(name)
    if there is not None:
        if getattr(there, "__file__", None) and Path(str(there.__file__)).resolve() == file:
            return there
        raise ReplayRefused(
            f"a module {name} is loaded already, from elsewhere than {path}",
            hint="rename the file, or name it as a module of its package",
            reason="name_taken",
        )
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))  # as `python FILE` does
    module = importlib.util.module_from_spec(spec)
    nothing = _NothingHappens(name)
    sys.modules[name] = module
    try:
        with outside(), catching_strays(nothing), opening_with(nothing):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


class _NothingHappens:
    """Opener and boundary of a module that is being imported: plain reads pass, all else is refused."""

    def __init__(self, module: str, meanwhile: str = "is imported") -> None:
        self._module = module
        self._meanwhile = meanwhile

    def open(self, opening: Opening) -> Session:
        raise self._refusal(f"starts the agent {opening.agent!r}")

    def decide(self, call: Call) -> Perform:
        if call.cheap or call.kind in OWN_WORK:
            return Perform()
        raise self._refusal(f"makes a call ({call.kind} {call.name})")

    def finished(self, perform: Perform, value: object) -> object:
        return value

    def failed(self, perform: Perform, error: BaseException) -> None:
        """Nothing was written down that this would end."""

    def _refusal(self, what: str) -> ReplayRefused:
        return ReplayRefused(
            f"the module {self._module} {what} while it {self._meanwhile} ({caller()}); it was not run",
            hint='put that under if __name__ == "__main__", or name the script in place of the function: -- python FILE',
            reason="runs_on_import",
        )
