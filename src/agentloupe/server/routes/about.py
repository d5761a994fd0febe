"""What this server is, and whether it is well."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import Response

from agentloupe import __version__
from agentloupe.ports.settings import model_settings
from agentloupe.server.context import Context, Here
from agentloupe.server.reply import reply
from agentloupe.server.schemas.about import About, Health
from agentloupe.words.errors import LoupeError
from agentloupe.words.event import SCHEMA_VERSION
from agentloupe.words.run import RunFilter

__all__ = ["router"]

router = APIRouter(tags=["about"])

_FEATURES = ("compare", "export", "import", "jobs", "streams")


@router.get("/healthz", response_model=Health)
def healthz() -> Response:
    """Alive. Needs no token."""
    return reply({"status": "ok"})


@router.get("/readyz", response_model=Health)
def readyz(here: Here) -> Response:
    """Ready for work: the store answers. Needs no token."""
    here.store.runs(RunFilter(limit=1))
    return reply({"status": "ok"})


@router.get("/api/about", response_model=About)
def about(here: Here) -> Response:
    """What this server is and has."""
    return reply(
        {
            "version": __version__,
            "schema_version": SCHEMA_VERSION,
            "store": Path(here.store.url.removeprefix("sqlite:///")).name,
            "read_only": False,
            "features": list(_FEATURES),
            "model": _model(here),
            "counts": {"runs": here.store.count()},
            "page": _page_version(here),
        }
    )


def _model(here: Context) -> str | None:
    try:
        return model_settings(here.settings.root).model
    except LoupeError:
        return None  # the settings say where the fault is; this server works without a model


def _page_version(here: Context) -> str | None:
    if here.page is None:
        return None
    version = here.page / "version.txt"
    return version.read_text("utf-8").strip() if version.is_file() else "unknown"
