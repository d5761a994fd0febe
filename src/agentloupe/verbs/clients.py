"""Puts the model clients of a program, and its raw requests to models, under the boundary, without importing any of their packages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from agentloupe.verbs.sessions import settings_here

__all__ = ["CLIENTS", "wrap_clients", "wrapping_clients"]

CLIENTS = ("anthropic", "openai")
"""Packages whose clients are wrapped when they are made."""
TRANSPORTS = ("httpx", "httpx2", "requests", "aiohttp", "botocore.endpoint")
"""Modules whose raw requests to models are recorded where they are sent."""

_SDKS = "agentloupe.providers.clients"
_RAW = "agentloupe.providers.transports"


def wrap_clients() -> None:
    """Covers what the program asks models from now on; packages that it has not imported yet, when it does."""
    urls = settings_here().model_urls
    for name in (*CLIENTS, *TRANSPORTS):
        if name in sys.modules:
            _install(name, urls)
        elif not any(isinstance(finder, _WhenImported) and finder.name == name for finder in sys.meta_path):
            sys.meta_path.insert(0, _WhenImported(name, lambda name=name: _install(name, urls)))


@contextmanager
def wrapping_clients() -> Generator[None]:
    """As `wrap_clients`, for the time inside: what code makes there and does not wrap asks no model behind our back."""
    wrap_clients()
    try:
        yield
    finally:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _WhenImported)]
        for name in (_SDKS, _RAW):
            if name in sys.modules:
                import_module(name).uninstall()


def _install(name: str, urls: Sequence[str]) -> None:
    if name in CLIENTS:
        import_module(_SDKS).install()
    else:
        import_module(_RAW).install(urls)


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
