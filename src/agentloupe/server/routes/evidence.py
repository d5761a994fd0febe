"""The facts beneath: stored values as they are, and whether all of it is whole."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from agentloupe.engine.verify import Verification, verify
from agentloupe.ports.ambient import now
from agentloupe.server.context import Here, Idx, RunId
from agentloupe.server.reply import problem, reply
from agentloupe.server.schemas.common import ErrorDocument
from agentloupe.server.schemas.evidence import Verdict
from agentloupe.verbs.anchoring import anchors_or_problem
from agentloupe.words.errors import LoupeError, NotFound
from agentloupe.words.jsontext import dumps

__all__ = ["router"]

router = APIRouter(prefix="/api/runs/{run_id}", tags=["evidence"])

_RANGE = re.compile(r"bytes=([0-9]{1,15})-([0-9]{0,15})")
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


@router.get(
    "/steps/{idx}/raw/{part}",
    responses={
        200: {"description": "The stored value as JSON text.", "content": {"application/json": {"schema": {}}}},
        206: {"description": "A part of that text, as asked for.", "content": {"application/json": {"schema": {}}}},
        416: {"model": ErrorDocument, "description": "The text has no such part."},
    },
)
def raw(
    here: Here,
    run_id: RunId,
    idx: Idx,
    part: Literal["input", "output", "error"],
    range_: Annotated[str | None, Header(alias="Range", max_length=100)] = None,
    download: Annotated[bool, Query(description="As a file.")] = False,
) -> Response:
    """What was sent or came back, exactly as it is stored: every digit of a number, every name in its order."""
    opened = here.reader.open(run_id)
    step = opened.step(idx)
    failed = step.status not in {"ok", "open"}
    digest = step.input_digest if part == "input" else step.output_digest
    if digest is None or (part != "input" and failed != (part == "error")):
        raise NotFound(f"step {idx} of {run_id} has no {part}", reason=f"no_{part}")
    text = dumps(opened.bodies().body(digest))
    headers = {"Accept-Ranges": "bytes", "ETag": f'"{digest}"'}
    if download:
        name = _ODD.sub("-", f"{run_id}-{idx}-{part}").strip(".-")
        headers["Content-Disposition"] = f'attachment; filename="{name}.json"'
    return _part(text, range_, headers)


def _part(text: bytes, wanted: str | None, headers: dict[str, str]) -> Response:
    asked = _RANGE.fullmatch(wanted) if wanted is not None else None
    if asked is None:
        return Response(text, 200, headers, "application/json")
    start, end = int(asked[1]), min(int(asked[2] or len(text)), len(text) - 1)
    if start > end:
        answer = problem(416, "range", f"the text has {len(text):,} bytes", place="Range")
        answer.headers["Content-Range"] = f"bytes */{len(text)}"
        return answer
    headers["Content-Range"] = f"bytes {start}-{end}/{len(text)}"
    return Response(text[start : end + 1], 206, headers, "application/json")


@router.get("/verify", response_model=Verdict)
def verify_run(
    here: Here,
    run_id: RunId,
    bodies: Annotated[bool, Query(description="Check bodies too, not only the chain.")] = True,
) -> Response:
    """Checks that the evidence is whole: numbers, chain, all bodies, and the anchors that the settings name."""
    run = here.reader.run(run_id)
    anchors, problem = anchors_or_problem(here.settings, here.store)
    signed = () if anchors is None else anchors.of(run_id)
    found = verify(here.store.recording(run_id), bodies=bodies, signed=signed)
    told = {**_verdict(found, problem), "anchors": here.settings.anchors is not None, "checked_at": now()}
    here.verdicts.put(run_id, (run.events, run.head), told, 1)
    return reply(told)


def _verdict(found: Verification, problem: LoupeError | None) -> dict[str, Any]:
    reason = found.fault.reason if found.fault else None
    return {**asdict(found), "reason": reason, "head": found.head, "anchor_problem": problem and problem.message}
