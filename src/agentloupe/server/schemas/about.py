"""What this server is, and how it is."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentloupe.server.schemas.common import Document

__all__ = ["About", "Health"]


class StoreCounts(Document):
    """How much is stored."""

    runs: int


class About(Document):
    """This server."""

    version: str
    schema_version: int = Field(description="Of stored events.")
    store: str = Field(description="Name of the store's file, without its folder.")
    read_only: bool
    features: list[str] = Field(description="What this server can do beside reading.", examples=[["import"]])
    model: str | None = Field(description="The model that forks ask unless they name another.")
    counts: StoreCounts
    page: str | None = Field(description="Version of the built page, if there is one.")


class Health(Document):
    """Alive, or ready for work."""

    status: Literal["ok"]
