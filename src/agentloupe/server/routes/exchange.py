"""Runs out to a file, and in from files."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.responses import FileResponse, Response

from agentloupe.server.context import Context, Here, RunId
from agentloupe.server.reply import reply
from agentloupe.server.schemas.evidence import Imports
from agentloupe.verbs.exchange import ImportReport, export_run, import_files
from agentloupe.verbs.pricing import price_table
from agentloupe.words.errors import UsageError

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["exchange"])

_ODD: Final = re.compile(r"[^\w.-]+")
_FILES: Final = 100
_PIECE: Final = 1 << 20
_UPLOAD: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {"files": {"type": "array", "items": {"type": "string", "format": "binary"}}},
                }
            }
        },
    }
}


@router.get(
    "/runs/{run_id}/export",
    response_class=FileResponse,
    responses={
        200: {
            "description": "The file.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
def export(
    here: Here,
    run_id: RunId,
    format: Annotated[
        Literal["loupe", "jsonl"], Query(description="The recording itself, or its view as JSON Lines.")
    ] = "loupe",
) -> Response:
    """A run as a file."""
    here.reader.run(run_id)
    name = f"{_safe(run_id, 'run')}.{format}"
    folder = tempfile.TemporaryDirectory(prefix="loupe-export-")
    try:
        file = Path(folder.name) / name
        export_run(here.store, run_id, file, table=price_table())
    except BaseException:
        folder.cleanup()
        raise
    return FileResponse(
        file, media_type="application/octet-stream", filename=name, background=BackgroundTask(folder.cleanup)
    )


@router.post("/import", response_model=Imports, openapi_extra=_UPLOAD)
async def import_runs(here: Here, request: Request) -> Response:
    """Takes over the runs of files; a file that cannot be read says so, and the others go on."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise UsageError("an import is a form with files (multipart/form-data)", reason="no_form")
    async with request.form(max_files=_FILES, max_fields=10) as form:
        files = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
        if not files:
            raise UsageError("the form holds no file", hint="send files under the name `files`", reason="no_files")
        with tempfile.TemporaryDirectory(prefix="loupe-import-") as folder:
            places: list[tuple[str, Path]] = []
            for number, file in enumerate(files):
                places.append((file.filename or f"file {number + 1}", await _kept(file, Path(folder), number)))
            reports = await run_in_threadpool(_taken, here, [path for _, path in places])
    named = zip(places, reports, strict=True)
    return reply({"items": [{**report.as_json(), "path": name} for (name, _), report in named]})


async def _kept(file: UploadFile, folder: Path, number: int) -> Path:
    """The file on disk, under a name that is like its own: some formats name runs by it."""
    place = folder / str(number)
    place.mkdir()
    path = place / _safe(Path(file.filename or "").name, "upload")
    with path.open("wb") as out:  # a local disk; the pieces are small
        while piece := await file.read(_PIECE):
            out.write(piece)
    return path


def _taken(here: Context, paths: list[Path]) -> list[ImportReport]:
    return import_files(here.store, paths)


def _safe(name: str, otherwise: str) -> str:
    """A name for a file: no folders, nothing that a shell or a terminal would read as something else."""
    return _ODD.sub("-", name)[-150:].strip(".-") or otherwise
