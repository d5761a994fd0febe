"""What is set."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentloupe.server.schemas.common import Document, Json

__all__ = ["SettingsDocument"]


class Setting(Document):
    """One setting."""

    name: str = Field(examples=["server.max_body"])
    value: Json | None
    default: Json | None
    variable: str
    origin: Literal["default", "file", "environment"]


class LiveTool(Document):
    """A tool that a fork may run live, and why."""

    tool: str
    reason: str


class ModelDocument(Document):
    """The model that forks ask; its key is never told."""

    base_url: str | None
    model: str | None
    key: bool = Field(description="A key is set.")
    key_variable: str
    problem: str | None


class Prices(Document):
    """Where prices come from."""

    own_file: str | None
    variable: str
    library: str


class Secrets(Document):
    """The project's own rules of secret removal, by name."""

    fields: list[str]
    keep: list[str]
    patterns: list[str]


class SettingsDocument(Document):
    """The settings of the project."""

    items: list[Setting]
    live: list[LiveTool]
    model: ModelDocument
    prices: Prices
    secrets: Secrets
    problem: str | None = Field(
        description="A file that cannot be understood, with its line; what was read before holds."
    )
