"""What is set, and where each setting came from. Keys are never told, only the names of the variables that hold them."""

from __future__ import annotations

import os
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

from fastapi import APIRouter
from starlette.responses import Response

from agentloupe.ports.serving import SERVER_READERS, ServerSettings
from agentloupe.ports.settings import Settings, find_root, load, model_settings
from agentloupe.server.context import Here
from agentloupe.server.reply import reply
from agentloupe.server.schemas import settings as schemas
from agentloupe.words.errors import LoupeError

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["settings"])

_SHOWN: Final = ("strict", "write_without_store", "schedule", "stuck_after", "env")


@router.get("/settings", response_model=schemas.SettingsDocument)
def settings(here: Here) -> Response:
    """The settings of the project, read anew: endpoints, tools that may run live with their reasons, prices, limits."""
    problem = None
    try:
        found = load(here.settings.root)
    except LoupeError as wrong:
        found, problem = here.settings, wrong.message
    return reply(
        {
            "items": [*_general(found), *_server(found.server)],
            "live": [{"tool": name, "reason": reason} for name, reason in found.live.items()],
            "model": _model(found.root),
            "prices": _prices(),
            "secrets": {
                "fields": list(found.secret_fields),
                "keep": list(found.secret_keep),
                "patterns": list(found.secret_patterns),
            },
            "problem": problem,
        }
    )


def _general(found: Settings) -> list[dict[str, Any]]:
    defaults = {f.name: f.default for f in fields(Settings) if f.default is not MISSING}
    return [_item(name, f"LOUPE_{name.upper()}", getattr(found, name), defaults[name]) for name in _SHOWN]


def _server(found: ServerSettings) -> list[dict[str, Any]]:
    plain = ServerSettings()
    return [
        _item(f"server.{name}", f"LOUPE_SERVER_{name.upper()}", getattr(found, name), getattr(plain, name))
        for name in SERVER_READERS
    ]


def _item(name: str, variable: str, value: Any, default: Any) -> dict[str, Any]:
    origin = "environment" if os.environ.get(variable, "").strip() else "default" if value == default else "file"
    return {"name": name, "value": _listed(value), "default": _listed(default), "variable": variable, "origin": origin}


def _listed(value: Any) -> Any:
    return list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value


def _model(root: Path) -> dict[str, Any]:
    try:
        model = model_settings(root)
    except LoupeError as wrong:
        return {"base_url": None, "model": None, "key": False, "key_variable": "LLM_API_KEY", "problem": wrong.message}
    return {
        "base_url": _without_user(model.base_url),
        "model": model.model,
        "key": model.api_key is not None,
        "key_variable": "LLM_API_KEY",
        "problem": None,
    }


def _without_user(address: str | None) -> str | None:
    """An address without a name and a password that stand in it."""
    if address is None or "@" not in address:
        return address
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def _prices() -> dict[str, Any]:
    named = os.environ.get("LOUPE_PRICES")
    beside = find_root() / "prices.json"
    own = Path(named).name if named else beside.name if beside.is_file() else None
    return {"own_file": own, "variable": "LOUPE_PRICES", "library": "genai-prices"}
