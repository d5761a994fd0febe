"""Agent Loupe: record, replay, fork and compare runs of AI agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentloupe.engine.cassette import Cassette
    from agentloupe.engine.overrides import Overrides, apply_overrides
    from agentloupe.ports.codecs import register_type
    from agentloupe.providers.aiohttp import aiohttp_middleware
    from agentloupe.providers.clients import wrap, wrap_openai
    from agentloupe.providers.http import http_transport
    from agentloupe.providers.requests import requests_adapter
    from agentloupe.verbs.api import Recorded, arecord, open_store, record, recording
    from agentloupe.verbs.comparing import compare
    from agentloupe.verbs.effects import open_effects, settle_effect
    from agentloupe.verbs.facade import CallBoundary
    from agentloupe.verbs.forking import fork, fork_run
    from agentloupe.verbs.instrument import agent, idempotency_key, receipt, tool, traceparent
    from agentloupe.verbs.looping import finish, messages_at, run_loop
    from agentloupe.verbs.prompting import prompt
    from agentloupe.verbs.reads import check, env, now, patched, random, retrieve, rng, state, uuid4
    from agentloupe.verbs.replaying import replay
    from agentloupe.verbs.resuming import Resumed, resume
    from agentloupe.words.effects import Done, DontKnow, Failed, NotDone, OutcomeUnknown
    from agentloupe.words.errors import LoupeError, ReplayMismatch

__version__ = "0.1.0"

_HOME = {
    "CallBoundary": "verbs.facade",
    "Cassette": "engine.cassette",
    "Done": "words.effects",
    "DontKnow": "words.effects",
    "Failed": "words.effects",
    "LoupeError": "words.errors",
    "NotDone": "words.effects",
    "OutcomeUnknown": "words.effects",
    "Overrides": "engine.overrides",
    "Recorded": "verbs.api",
    "ReplayMismatch": "words.errors",
    "Resumed": "verbs.resuming",
    "agent": "verbs.instrument",
    "aiohttp_middleware": "providers.aiohttp",
    "apply_overrides": "engine.overrides",
    "arecord": "verbs.api",
    "check": "verbs.reads",
    "compare": "verbs.comparing",
    "env": "verbs.reads",
    "finish": "verbs.looping",
    "fork": "verbs.forking",
    "fork_run": "verbs.forking",
    "http_transport": "providers.http",
    "idempotency_key": "verbs.instrument",
    "messages_at": "verbs.looping",
    "now": "verbs.reads",
    "open_effects": "verbs.effects",
    "open_store": "verbs.api",
    "patched": "verbs.reads",
    "prompt": "verbs.prompting",
    "random": "verbs.reads",
    "receipt": "verbs.instrument",
    "record": "verbs.api",
    "recording": "verbs.api",
    "register_type": "ports.codecs",
    "replay": "verbs.replaying",
    "requests_adapter": "providers.requests",
    "resume": "verbs.resuming",
    "retrieve": "verbs.reads",
    "rng": "verbs.reads",
    "run_loop": "verbs.looping",
    "settle_effect": "verbs.effects",
    "state": "verbs.reads",
    "tool": "verbs.instrument",
    "traceparent": "verbs.instrument",
    "uuid4": "verbs.reads",
    "wrap": "providers.clients",
    "wrap_openai": "providers.clients",
}
"""Public name -> module that defines it; loaded when the name is first used (PEP 562)."""

__all__ = [
    "CallBoundary",
    "Cassette",
    "Done",
    "DontKnow",
    "Failed",
    "LoupeError",
    "NotDone",
    "OutcomeUnknown",
    "Overrides",
    "Recorded",
    "ReplayMismatch",
    "Resumed",
    "__version__",
    "agent",
    "aiohttp_middleware",
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
    "open_effects",
    "open_store",
    "patched",
    "prompt",
    "random",
    "receipt",
    "record",
    "recording",
    "register_type",
    "replay",
    "requests_adapter",
    "resume",
    "retrieve",
    "rng",
    "run_loop",
    "settle_effect",
    "state",
    "tool",
    "traceparent",
    "uuid4",
    "wrap",
    "wrap_openai",
]


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
