"""Which model the demo talks to: the one that is set, the small local one, or a scripted one; it always says which."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from agentloupe.ports.environment import variables
from agentloupe.ports.settings import model_settings
from agentloupe.words.errors import ConfigError
from agentloupe.words.jsontext import dumps

__all__ = ["DemoModel", "chosen_model"]

Choice = Literal["scripted", "local", "env"]

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DemoModel:
    """A model that answers. `kind` is `env`, `local` or `scripted`; `about` says what it is in words."""

    kind: Choice
    url: str
    name: str
    about: str
    api_key: str = "none"
    extra_body: str = ""

    @property
    def start_again(self) -> str | None:
        """Arguments of Python that start this model again by itself; `None` for one that is not ours."""
        module = {"local": "local_model", "scripted": "scripted"}.get(self.kind)
        return None if module is None else f"-m agentloupe.providers.{module} --port 8765"

    def variables(self) -> dict[str, str]:
        """The environment under which the sample agents find it."""
        return {
            "LLM_BASE_URL": self.url,
            "LLM_API_KEY": self.api_key,
            "LLM_MODEL": self.name,
            "LLM_EXTRA_BODY": self.extra_body,
        }


@contextmanager
def chosen_model(wanted: Choice | None, say: Say) -> Generator[DemoModel]:
    """The model while the block runs, with the environment set for it.

    Args:
        wanted: the choice; `None` takes `env` where `LLM_BASE_URL` is set, else `local` where it is installed, else `scripted`.
        say: hears one line for each stage.

    Raises:
        ConfigError: `env` is wanted and `LLM_BASE_URL` or `LLM_MODEL` is not set.
        LocalModelUnavailable: `local` is wanted and cannot be had.
    """
    with _model(wanted, say) as model, variables(model.variables()):
        yield model


@contextmanager
def _model(wanted: Choice | None, say: Say) -> Generator[DemoModel]:
    if wanted == "env" or (wanted is None and model_settings().base_url):
        yield _from_settings()
    elif wanted == "scripted":
        with _scripted("asked for") as model:
            yield model
    else:
        with _local_or_scripted(must=wanted == "local", say=say) as model:
            yield model


def _from_settings() -> DemoModel:
    found = model_settings()
    if not found.base_url or not found.model:
        missing = "LLM_BASE_URL" if not found.base_url else "LLM_MODEL"
        raise ConfigError(
            f"{missing} is not set", hint="set it in the environment or in .env, or choose --model local or scripted"
        )
    extra = dumps(dict(found.extra_body)).decode() if found.extra_body else ""
    return DemoModel(
        "env", found.base_url, found.model, f"{found.model} at {found.base_url}", found.api_key or "none", extra
    )


@contextmanager
def _local_or_scripted(*, must: bool, say: Say) -> Generator[DemoModel]:
    from agentloupe.providers.local_model import LocalModelUnavailable, start

    with ExitStack() as stack:
        try:
            model = stack.enter_context(start(say))
        except LocalModelUnavailable as absent:
            if must:
                raise
            say(f"the small local model cannot be had: {absent}")
            say("falling back to a scripted model: all that follows really happens, but a rule makes the answers up")
            yield stack.enter_context(_scripted("no real model could be had"))
            return
        about = f"{model.model}, a small model on this machine (ready after {model.start_ms / 1000:.1f} s)"
        yield DemoModel("local", model.url, model.model, about)


@contextmanager
def _scripted(why: str) -> Generator[DemoModel]:
    from agentloupe.providers.scripted import ScriptedServer, sample_rule

    with ScriptedServer(sample_rule) as server:
        yield DemoModel("scripted", server.url, "scripted-1", f"scripted, answers made by a rule ({why})")
