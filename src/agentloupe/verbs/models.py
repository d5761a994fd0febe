"""Who is asked by a fork of the generic loop: the endpoint that is given, one of the configuration, or that of `LLM_BASE_URL`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from agentloupe.engine.edits import nearest
from agentloupe.engine.loop import Model
from agentloupe.ports.cancel import Cancel
from agentloupe.ports.progress import Progress, Watch, tell
from agentloupe.ports.protocols import Provider
from agentloupe.ports.settings import EndpointSettings, load, model_settings, variable
from agentloupe.words.canonical import Json
from agentloupe.words.dialects import Form
from agentloupe.words.errors import ForkRefused, UsageError

__all__ = ["Chosen", "Pace", "chosen_endpoint", "model_behind"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model to ask.

    Attributes:
        provider: who sends requests to it.
        model: its name, where neither an override nor the recording names one.
        extra_body: fields for each request that has none of them.
    """

    provider: Provider
    model: str | None = None
    extra_body: Mapping[str, Json] = field(default_factory=dict[str, Json])


def chosen_endpoint(name: str | None, form: Form) -> Chosen:
    """The endpoint of this name in the configuration; without a name that of `LLM_BASE_URL`, else the only fitting one.

    Raises:
        ForkRefused: no model is set (`no_model`).
        UsageError: no endpoint has this name.
        ConfigError: an address or a key that is none.
    """
    known = load().endpoints
    if name is not None:
        if name not in known:
            close = nearest(name, known)
            hint = f"did you mean {close!r}?" if close else f"configured are: {', '.join(sorted(known)) or 'none'}"
            raise UsageError(f"no endpoint {name!r} is configured", hint=hint)
        return _configured(known[name])
    from agentloupe.providers.endpoint import Endpoint

    where = model_settings()
    if where.base_url is not None:
        endpoint = Endpoint(where.base_url, where.api_key, dialect=where.dialect)
        return Chosen(endpoint, where.model, where.extra_body)
    fitting = [one for one in known.values() if one.dialect in (None, form)]
    if len(fitting) == 1:
        return _configured(fitting[0])
    several = f"say which: --endpoint {' or '.join(sorted(known))}"
    unset = "set LLM_BASE_URL and LLM_MODEL (also in .env), or name an endpoint of loupe.toml with --endpoint (in Python: give a provider)"
    if known and not fitting:
        others = ", ".join(f"{one} speaks {known[one].dialect}" for one in sorted(known))
        raise ForkRefused(
            f"the step was asked in the form {form!r}, and no configured endpoint speaks it ({others})",
            hint=f'add [endpoints.NAME] with dialect = "{form}", {unset}',
            reason="no_model",
        )
    raise ForkRefused("no model is set: nobody can be asked", hint=several if fitting else unset, reason="no_model")


def _configured(where: EndpointSettings) -> Chosen:
    from agentloupe.providers.endpoint import Endpoint

    key = variable(where.key_env) if where.key_env is not None else None
    return Chosen(Endpoint(where.base_url, key, dialect=where.dialect), where.model)


@dataclass(frozen=True, slots=True)
class Pace:
    """How a run waits for a provider that says "later": how long at most, what ends it, and who is told."""

    patience: float
    cancel: Cancel | None
    watch: Watch | None
    run_id: str

    def says(self, seconds: float, text: str) -> None:
        """Tells that it waits."""
        tell(self.watch, Progress(run_id=self.run_id, what="rate_limited", seconds=seconds, text=text))


def model_behind(provider: Provider | Model, form: Form, beta: Json, pace: Pace) -> Model:
    """The model as the loop reaches it, speaking this form. `beta`: betas of an API that the recorded request named.

    Raises:
        ForkRefused: it speaks another form (`other_form`).
    """
    model = provider if isinstance(provider, Model) else _spoken_to(provider, form, beta, pace)
    if model.dialect not in (None, form):
        raise ForkRefused(
            f"the step was asked in the form {form!r}, and this model speaks {model.dialect!r}",
            hint=f'give an endpoint of that form (dialect = "{form}", --endpoint NAME), or fork with the agent\'s own code',
            reason="other_form",
        )
    return model


def _spoken_to(provider: Provider, form: Form, beta: Json, pace: Pace) -> Model:
    from agentloupe.providers.chat import response_facts
    from agentloupe.providers.endpoint import Endpoint
    from agentloupe.providers.pacing import Paced

    send = provider.send
    if isinstance(provider, Endpoint):
        provider = provider.speaking(form, beta if isinstance(beta, str) else None)
        send = Paced(endpoint=provider, patience=pace.patience, cancel=pace.cancel, says=pace.says).send
    dialect = cast("Form | None", getattr(provider, "dialect", None))
    return Model(send, response_facts, getattr(provider, "provider", None), dialect=dialect)
