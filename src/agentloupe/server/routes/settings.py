"""What is set, and where each setting came from. Keys are never told, only the names of the variables that hold them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

from fastapi import APIRouter
from starlette.responses import Response

from agentloupe.ports.serving import SERVER_READERS, ServerSettings
from agentloupe.ports.settings import (
    RECORDING_READERS,
    EndpointSettings,
    Settings,
    load,
    model_settings,
    places_of_model,
    variable,
)
from agentloupe.server.context import Context, Here
from agentloupe.server.reply import reply
from agentloupe.server.schemas import settings as schemas
from agentloupe.verbs.configuring import (
    SettingsFiles,
    WrongSetting,
    change_settings,
    files_of,
    line_in,
    prices_told,
)
from agentloupe.words.errors import LoupeError

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["settings"])


@router.get("/settings", response_model=schemas.SettingsDocument)
def settings(here: Here) -> Response:
    """The settings of the project, read anew: endpoints, tools that may run live with their reasons, prices, limits."""
    return reply(_document(here))


@router.put("/settings", response_model=schemas.SettingsDocument)
def change(here: Here, body: schemas.SettingsBody) -> Response:
    """Changes which tools may run live, and prices: what is given replaces the whole of it. Comments of the file stay.

    Everything else is set in the file: where models are and which variable holds a key is no matter for a page.
    """
    live = None if body.live is None else {one.tool: one.reason for one in body.live}
    prices = None if body.prices is None else _as_file(body.prices)
    if body.live is not None and live is not None and len(live) != len(body.live):
        raise WrongSetting("a tool is named twice", "live", "live")
    change_settings(files_of(here.settings.root), body.version, live=live, prices=prices)
    return reply(_document(here))


def _as_file(prices: schemas.PricesBody) -> dict[str, Any]:
    """The part of the file of prices that a request is about."""
    said = prices.model_dump(exclude_none=True)
    return said | {"models": {row.pop("model"): row for row in said["models"]}}


def _document(here: Context) -> dict[str, Any]:
    problem = None
    try:
        found = load(here.settings.root)
    except LoupeError as wrong:
        found, problem = here.settings, wrong.message
    files = files_of(here.settings.root)
    own: dict[str, Any] = {"currency": "USD", "per": "1M tokens", "models": []}
    try:
        own = prices_told(files)
    except LoupeError as wrong:
        problem = problem or wrong.message
    library = {"own_file": _own_file(files), "variable": "LOUPE_PRICES", "library": "genai-prices"}
    return {
        "items": [*_general(files, found), *_server(files, found.server)],
        "live": [
            {"tool": name, "reason": reason, "place": line_in(files, "live", name)}
            for name, reason in found.live.items()
        ],
        "model": _model(here.settings.root),
        "endpoints": [_endpoint(files, name, one) for name, one in found.endpoints.items()],
        "prices": library | own,
        "secrets": _rules(files, "secrets", found.secret_fields, found.secret_keep, found.secret_patterns),
        "redaction": _rules(files, "redaction", found.redact_fields, found.redact_keep, found.redact_patterns),
        "profiles": [
            {"agent": agent, "profile": profile, "place": line_in(files, "profiles", agent)}
            for agent, profile in found.profiles.items()
        ],
        "samples": [
            {"agent": agent, "share": share, "place": line_in(files, "samples", agent)}
            for agent, share in found.samples.items()
        ],
        "files": {"settings": files.settings.name, "prices": files.prices.name},
        "version": files.version(),
        "read_only": files.read_only(),
        "problem": problem,
    }


def _general(files: SettingsFiles, found: Settings) -> list[dict[str, Any]]:
    defaults = {f.name: f.default for f in fields(Settings)}
    named = [*(("", name) for name in schemas.GENERAL), *(("recording", name) for name in RECORDING_READERS)]
    return [_item(files, table, name, getattr(found, name), defaults[name]) for table, name in named]


def _server(files: SettingsFiles, found: ServerSettings) -> list[dict[str, Any]]:
    plain = ServerSettings()
    return [_item(files, "server", name, getattr(found, name), getattr(plain, name)) for name in SERVER_READERS]


def _item(files: SettingsFiles, table: str, name: str, value: Any, default: Any) -> dict[str, Any]:
    outside = f"LOUPE_{table.upper()}_{name.upper()}" if table else f"LOUPE_{name.upper()}"
    place = line_in(files, table, name)
    set_outside = bool(os.environ.get(outside, "").strip())
    return {
        "name": f"{table}.{name}" if table else name,
        "value": _listed(value),
        "default": _listed(default),
        "variable": outside,
        "origin": "environment" if set_outside else "file" if place or value != default else "default",
        "place": None if set_outside else place,
    }


def _rules(
    files: SettingsFiles, table: str, named: Sequence[str], keep: Sequence[str], patterns: Mapping[str, str]
) -> dict[str, Any]:
    rules = {"fields": list(named), "keep": list(keep), "patterns": list(patterns)}
    # Patterns are an inline table or one of their own.
    places = {kind: line_in(files, table, kind) or line_in(files, f"{table}.{kind}", None) for kind in rules}
    return rules | {"places": places}


def _endpoint(files: SettingsFiles, name: str, one: EndpointSettings) -> dict[str, Any]:
    return {
        "name": name,
        "base_url": _without_user(one.base_url),
        "dialect": one.dialect,
        "model": one.model,
        "key_variable": one.key_env,
        "key": one.key_env is not None and variable(one.key_env, files.root) is not None,
        "place": line_in(files, f"endpoints.{name}", None) or line_in(files, f"endpoints.{name}", "base_url"),
    }


def _listed(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value


def _model(root: Path) -> dict[str, Any]:
    nowhere = {"base_url": None, "model": None, "key": None}
    try:
        model, places = model_settings(root), places_of_model(root)
    except LoupeError as wrong:
        nothing = {"base_url": None, "model": None, "key": False, "key_variable": "LLM_API_KEY"}
        return {**nothing, "places": nowhere, "problem": wrong.message}
    return {
        "base_url": _without_user(model.base_url),
        "model": model.model,
        "key": model.api_key is not None,
        "key_variable": "LLM_API_KEY",
        "places": places,
        "problem": None,
    }


def _without_user(address: str | None) -> str | None:
    """An address without a name and a password that stand in it."""
    if address is None or "@" not in address:
        return address
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def _own_file(files: SettingsFiles) -> str | None:
    return files.prices.name if files.prices.is_file() or os.environ.get("LOUPE_PRICES") else None
