"""Forms that many answers share."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ERRORS", "Document", "Error", "ErrorDocument", "Json", "Money", "Page", "Time"]

T = TypeVar("T")

Json = Annotated[Any, Field(description="Any JSON value; integers may be larger than 2^53.")]
Money = Annotated[str, Field(description="Exact decimal, in US dollars.", examples=["0.000312"])]
Time = Annotated[str, Field(description="UTC, ISO 8601.", examples=["2026-04-01T10:00:00.000000Z"])]


class Document(BaseModel):
    """A form whose members all stand in every answer."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


class Error(Document):
    """What went wrong, for people and for machines; never a payload."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_serialization_defaults_required=False,
        json_schema_extra={
            "examples": [
                {
                    "reason": "run_not_found",
                    "message": "no run 'weather-260401-abc123'",
                    "hint": "GET /api/runs lists what there is",
                    "place": None,
                }
            ]
        },
    )

    reason: str = Field(description="A stable word for machines.")
    message: str = Field(description="What happened, in one line.")
    hint: str | None = Field(description="The way out.")
    place: str | None = Field(description="The parameter, header or setting that it is about.")
    retry_after: float | None = Field(default=None, description="Seconds that a provider asks to wait.")


class ErrorDocument(Document):
    """The one shape of every error."""

    error: Error


class Page(Document, Generic[T]):
    """A part of a list. `k of n` is always known: `total` counts what there is, `next` is where to go on."""

    items: list[T]
    total: int = Field(description="How many there are in all.", ge=0)
    first: int = Field(description="Number of the first item of this page, from 0.", ge=0)
    next: int | None = Field(description="`first` of the next page; null on the last one.")


_SAID: dict[int, str] = {
    400: "The request asks for something that cannot be.",
    401: "The token is missing or wrong.",
    403: "The request comes from elsewhere, or lacks the header of a write.",
    404: "There is no such thing.",
    409: "Not possible as things stand (damaged, deleted, still running, refused).",
    413: "Over a limit; the setting is named.",
    422: "Not of the form that the route asks for.",
    429: "A provider asks to wait.",
    503: "The store or the model cannot be reached just now.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorDocument, "description": said} for status, said in _SAID.items()
}
"""Error answers that every route may give."""
