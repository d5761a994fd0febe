"""Agent Loupe: record, replay, fork and compare runs of AI agents."""

# ruff: noqa: TC004  # the names in __all__ are there at run time too: they are loaded when they are first used (PEP 562)

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentloupe.api import Recorded, arecord, open_store, record, recording
    from agentloupe.cassette import Cassette
    from agentloupe.comparing import compare
    from agentloupe.errors import LoupeError, ReplayMismatch
    from agentloupe.facade import CallBoundary
    from agentloupe.forking import fork, fork_run
    from agentloupe.instrument import agent, idempotency_key, receipt, tool
    from agentloupe.looping import finish, messages_at, run_loop
    from agentloupe.overrides import Overrides, apply_overrides
    from agentloupe.providers.http import http_transport
    from agentloupe.providers.openai import wrap, wrap_openai
    from agentloupe.reads import check, env, now, patched, random, retrieve, rng, state, uuid4
    from agentloupe.replaying import replay

__version__ = "0.1.0"

_HOME = {
    "CallBoundary": "facade",
    "Cassette": "cassette",
    "LoupeError": "errors",
    "Overrides": "overrides",
    "Recorded": "api",
    "ReplayMismatch": "errors",
    "agent": "instrument",
    "apply_overrides": "overrides",
    "arecord": "api",
    "check": "reads",
    "compare": "comparing",
    "env": "reads",
    "finish": "looping",
    "fork": "forking",
    "fork_run": "forking",
    "http_transport": "providers.http",
    "idempotency_key": "instrument",
    "messages_at": "looping",
    "now": "reads",
    "open_store": "api",
    "patched": "reads",
    "random": "reads",
    "receipt": "instrument",
    "record": "api",
    "recording": "api",
    "replay": "replaying",
    "retrieve": "reads",
    "rng": "reads",
    "run_loop": "looping",
    "state": "reads",
    "tool": "instrument",
    "uuid4": "reads",
    "wrap": "providers.openai",
    "wrap_openai": "providers.openai",
}
"""Public name -> module that defines it; loaded when the name is first used (PEP 562)."""

__all__ = [
    "CallBoundary",
    "Cassette",
    "LoupeError",
    "Overrides",
    "Recorded",
    "ReplayMismatch",
    "__version__",
    "agent",
    "apply_overrides",
    "arecord",
    "check",
    "compare",
    "env",
    "finish",
    "fork",
    "fork_run",
    "http_transport",
    "idempotency_key",
    "messages_at",
    "now",
    "open_store",
    "patched",
    "random",
    "receipt",
    "record",
    "recording",
    "replay",
    "retrieve",
    "rng",
    "run_loop",
    "state",
    "tool",
    "uuid4",
    "wrap",
    "wrap_openai",
]


class _Front(ModuleType):
    """The package. Importing a module of ours must not hide the function of the same name (`recording`, `compare`)."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOME and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{home}"), name)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *__all__})


sys.modules[__name__].__class__ = _Front
