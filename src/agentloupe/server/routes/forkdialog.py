"""What a person sees before a fork: the request that will be sent, who answers tools, who could drive it, what to beware of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from agentloupe.engine.cautions import cautions
from agentloupe.engine.overrides import tool_names
from agentloupe.engine.views.flags import instructions_of
from agentloupe.engine.views.messages import messages_of, text_in
from agentloupe.ports.settings import Settings, load, model_settings
from agentloupe.server.asking import place_of_fork
from agentloupe.server.context import Context, Here, RunId
from agentloupe.server.jobs import command_for, worker_of
from agentloupe.server.reading import Opened
from agentloupe.server.reply import reply
from agentloupe.server.schemas.jobs import ForkDialog
from agentloupe.verbs.jobspec import BUILT_IN
from agentloupe.words.dialects import Form, server_held, tools_in, without_tools
from agentloupe.words.errors import LoupeError
from agentloupe.words.jsontext import Json, dumps
from agentloupe.words.step import Step
from agentloupe.words.turns import DIALECTS

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["jobs"])

_APART: Final = frozenset({"messages", "input", "contents", "tools", "system", "instructions", "systemInstruction"})
_WRITES: Final = ("cassette", "stub", "human")
_READS: Final = ("cassette", "live", "stub", "human")


@router.get("/runs/{run_id}/fork", response_model=ForkDialog)
def fork_dialog(
    here: Here,
    run_id: RunId,
    from_: Annotated[str, Query(alias="from", pattern="^(start|[0-9]{1,9})$", description="A model step, or `start`.")],
) -> Response:
    """Everything that the dialog of a fork is filled with. From the start only the agent's own code is run, so there is no request."""
    opened = here.reader.open(run_id)
    at, request, form = place_of_fork(opened, from_)
    whole = request if isinstance(request, dict) else {}
    temperature = whole.get("temperature")
    prompt = instructions_of(whole)
    return reply(
        {
            "run_id": run_id,
            "from_step": at or 0,
            "at_start": at is None,
            "request": dumps(request).decode("utf-8", "backslashreplace"),
            "form": form,
            "system_prompt": prompt if isinstance(prompt, str) else _system_text(whole) if prompt is not None else None,
            "model": model if isinstance(model := whole.get("model"), str) else opened.run.model,
            "temperature": temperature if isinstance(temperature, int | float) else None,
            "parameters": {name: value for name, value in without_tools(whole).items() if name not in _APART},
            "tools": _tools(opened.steps, whole),
            "engines": _engines(here, opened, form, at),
            "endpoints": _endpoints(here),
            "kept": _kept(opened.steps, at or 0),
            "cautions": cautions(whole, whole, (), form),
            "server_held": server_held(whole),
            "live_known": [
                {"name": n, "reason": r, "read": False} for n, r in {**BUILT_IN, **_settings(here).live}.items()
            ],
        }
    )


def _system_text(request: Mapping[str, Json]) -> str:
    first = messages_of(dict(request))[:1]
    return text_in(first[0]) if first else ""


def _kept(steps: Sequence[Step], start: int) -> dict[str, int]:
    before = [step for step in steps[:start] if step.kind != "agent"]
    return {"steps": len(before), "answers": sum(step.kind == "llm" for step in before)}


def _tools(steps: Sequence[Step], request: Mapping[str, Json]) -> list[dict[str, Any]]:
    """Tools that the model was told of, then others that were called."""
    told = tool_names(tools_in(request))
    called = [step for step in steps if step.kind == "tool"]
    found: list[dict[str, Any]] = []
    for name in dict.fromkeys((*told, *(step.name for step in called))):
        mine = [step for step in called if step.name == name]
        effect = next((step.effect for step in mine if step.effect and not step.attrs.get("effect_unstated")), None)
        if effect is None and name in BUILT_IN:
            effect = "pure"  # the server has this tool itself, and knows what it does
        locked = effect in (None, "write")
        reason = None
        if locked:
            said = "it is declared to write" if effect == "write" else "nobody said what it does to the world"
            reason = f"never run live in a fork: {said}"
        recorded = sum(step.source not in {"miss", "stub", "simulated"} for step in mine)
        found.append(
            {
                "name": name,
                "effect": effect,
                "recorded": recorded,
                "policy": "cassette",
                "choices": list(_WRITES if locked else _READS),
                "locked": locked,
                "reason": reason,
                "built_in": name in BUILT_IN,
            }
        )
    return found


def _engines(here: Context, opened: Opened, form: Form | None, at: int | None) -> list[dict[str, Any]]:
    run = opened.run
    generic: tuple[str, str] | None = None
    if at is None:
        generic = "start", "only the agent's own code begins at the start"
    elif form not in DIALECTS:
        generic = "form", f"the generic loop does not speak the form {form!r}"
    worker = worker_of(here, run.agent) if here.jobs is not None else None
    imported = run.engine == "imported"
    own: tuple[str, str] | None = None
    if worker is None:
        own = "no_worker", f"no worker has the agent {run.agent!r}"
        own = ("imported", "it is an import: its code is not here") if imported else own
    command = None if worker is not None or imported else command_for(here, run)
    return [_engine("generic", None, None, generic, None), _engine("own", run.agent, worker, own, command)]


def _engine(
    engine: str, agent: str | None, worker: str | None, why_not: tuple[str, str] | None, command: str | None
) -> dict[str, Any]:
    code, said = why_not or (None, None)
    row = {"engine": engine, "agent": agent, "worker": worker, "available": why_not is None}
    return {**row, "why_not": said, "why_not_code": code, "command": command}


def _settings(here: Context) -> Settings:
    try:
        return load(here.settings.root)
    except LoupeError:
        return here.settings  # the page of settings says what is wrong with the file


def _endpoints(here: Context) -> list[dict[str, Any]]:
    found = [
        {"name": name, "base_url": one.base_url, "model": one.model, "key_variable": one.key_env}
        for name, one in _settings(here).endpoints.items()
    ]
    try:
        standard = model_settings(here.settings.root)
    except LoupeError:
        return found
    if standard.base_url is not None:
        plain = {"base_url": standard.base_url, "model": standard.model, "key_variable": "LLM_API_KEY"}
        found.insert(0, {"name": "", **plain})
    return found
