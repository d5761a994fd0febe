"""The page itself: built files, and `index.html` for every address of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from agentloupe.server.context import Here

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

_FOR_EVER: Final = "public, max-age=31536000, immutable"
_NONE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Agent Loupe</title>
<h1>Agent Loupe</h1>
<p>The server runs, but the page is not built. In a checkout of the source: <code>make page</code> builds it (it needs Node.js);
then reload. The API is at <a href="/api/openapi.json">/api/openapi.json</a>.</p>
</html>
"""


@router.get("/diff")
def diff(request: Request) -> Response:
    """The address of a comparison that a fork answers with; the page calls it `/compare`."""
    query = request.url.query
    return RedirectResponse("/compare" + (f"?{query}" if query else ""), 307)


@router.get("/{path:path}")
def page(here: Here, path: str) -> Response:
    """A file of the page; for every other address the page, which knows what to show there."""
    if path.startswith("api/") or path in {"api", "metrics"}:
        raise HTTPException(404, "there is no such route")
    if here.page is None:
        return HTMLResponse(_NONE)
    file = _inside(here.page, path)
    if file is None:
        return FileResponse(here.page / "index.html", headers={"Cache-Control": "no-cache"})
    named_by_content = path.startswith("assets/")
    return FileResponse(file, headers={"Cache-Control": _FOR_EVER if named_by_content else "no-cache"})


def _inside(folder: Path, path: str) -> Path | None:
    """The file of that name in the folder; never one outside of it."""
    try:
        file = (folder / path).resolve()
        return file if file.is_file() and file.is_relative_to(folder.resolve()) else None
    except (OSError, ValueError):
        return None
