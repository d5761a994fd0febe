"""Puts model clients under the boundary that a program makes itself, without importing any of their packages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

__all__ = ["CLIENTS", "wrap_clients", "wrapping_clients"]

CLIENTS: dict[str, str] = {
    "anthropic": "agentloupe.providers.clients",
    "openai": "agentloupe.providers.clients",
}
"""Package of a client -> our module for it; `install()` in it covers clients made from then on, `uninstall()` ends that."""


def wrap_clients() -> None:
    """Covers the clients that the program makes from now on; packages that it has not imported yet, when it does."""
    for name in CLIENTS:
        if name in sys.modules:
            _install(name)
        elif not any(isinstance(finder, _WhenImported) and finder.name == name for finder in sys.meta_path):
            sys.meta_path.insert(0, _WhenImported(name, lambda name=name: _install(name)))


@contextmanager
def wrapping_clients() -> Generator[None]:
    """As `wrap_clients`, for the time inside: what code makes there and does not wrap asks no model behind our back."""
    wrap_clients()
    try:
        yield
    finally:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _WhenImported)]
        for name, ours in CLIENTS.items():
            if name in sys.modules:
                import_module(ours).uninstall()


def _install(name: str) -> None:
    import_module(CLIENTS[name]).install()


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
