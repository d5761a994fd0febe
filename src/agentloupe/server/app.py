"""Puts the server together: routes over one store, behind the guard and the limits."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from agentloupe import __version__
from agentloupe.ports.protocols import Store
from agentloupe.ports.settings import Settings
from agentloupe.server import errors
from agentloupe.server.auth import Guard
from agentloupe.server.context import Context
from agentloupe.server.describing import with_examples
from agentloupe.server.limits import Limits
from agentloupe.server.metrics import Measured
from agentloupe.server.routes import (
    about,
    compare,
    effects,
    events,
    evidence,
    exchange,
    forkdialog,
    jobs,
    page,
    runs,
    step,
    steps,
    stream,
    transcript,
)
from agentloupe.server.routes import (
    metrics as metrics_routes,
)
from agentloupe.server.routes import (
    settings as settings_routes,
)
from agentloupe.server.schemas.common import ERRORS

__all__ = ["PAGE", "make_app", "older_than_its_sources"]

PAGE = Path(__file__).parent / "page"
"""Where the built page lies, if it was built."""

_ROUTERS = (
    about.router,
    runs.router,
    steps.router,
    step.router,
    transcript.router,
    events.router,
    effects.router,
    evidence.router,
    compare.router,
    exchange.router,
    stream.router,
    settings_routes.router,
    metrics_routes.router,
    jobs.router,
    forkdialog.router,
    page.router,  # the last one: it answers to every other address
)


class _Described(FastAPI):
    """An application whose description has examples."""

    def openapi(self) -> dict[str, Any]:
        """The description; made once."""
        made = self.openapi_schema is not None
        document = super().openapi()
        return document if made else with_examples(document)


def make_app(
    store: Store,
    settings: Settings,
    *,
    token: str | None,
    cookie: str = "loupe_token",
    names: Iterable[str] = (),
) -> FastAPI:
    """The application over a store.

    Args:
        store: where runs are; it is the caller's to close.
        settings: of the project.
        token: what a request must show; `None`: nothing.
        cookie: the name of the cookie that keeps the token.
        names: names that it is reached by, beside those of this machine and of the settings.
    """
    context = Context(store, settings, PAGE if (PAGE / "index.html").is_file() else None)
    hosts = frozenset(name.lower() for name in (*settings.server.hosts, *names))
    app = _Described(
        title="Agent Loupe",
        version=__version__,
        description="Record, replay, fork and compare runs of AI agents.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        responses=ERRORS,
        generate_unique_id_function=lambda route: route.name,
        middleware=[
            Middleware(Guard, token=token, hosts=hosts, cookie=cookie),
            Middleware(Limits, settings=settings.server),
            Middleware(Measured, metrics=context.metrics),
        ],
    )
    app.state.context = context
    errors.install(app)
    for router in _ROUTERS:
        app.include_router(router)
    return app


def older_than_its_sources(page: Path = PAGE) -> bool:
    """Whether the built page lies in a clone whose sources of it were changed since; False where there are no sources."""
    sources, built = page.parents[3] / "web" / "src", page / "index.html"
    if not built.is_file() or not sources.is_dir():
        return False
    made = built.stat().st_mtime
    return any(file.stat().st_mtime > made for file in sources.rglob("*") if file.is_file())


def openapi() -> dict[str, Any]:
    """The OpenAPI document of the routes."""
    from agentloupe.store.opening import open_url

    return make_app(open_url("memory:"), Settings(root=Path(), db="memory:"), token=None).openapi()
