"""What is set."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Final, Literal

from pydantic import Field

from agentloupe.ports.serving import SERVER_READERS
from agentloupe.ports.settings import RECORDING_READERS, Settings
from agentloupe.server.schemas.common import Document, Json

__all__ = ["GENERAL", "PricesBody", "SettingsBody", "SettingsDocument"]

_RULES: Final = frozenset(
    f"{table}_{name}" for table in ("secret", "redact") for name in ("fields", "keep", "patterns")
)
_APART: Final = _RULES | {"profiles", "samples", "live", "endpoints", "server", *RECORDING_READERS}
GENERAL: Final = tuple(f.name for f in fields(Settings) if f.default is not MISSING and f.name not in _APART)
"""Settings that are one value each. The store that is served is told elsewhere; tables have lists of their own."""
_NAMES: Final = (
    *GENERAL,
    *(f"recording.{name}" for name in RECORDING_READERS),
    *(f"server.{name}" for name in SERVER_READERS),
)


class Setting(Document):
    """One setting."""

    name: str = Field(examples=["server.max_body"], json_schema_extra={"enum": list(_NAMES)})
    value: Json | None
    default: Json | None
    variable: str
    origin: Literal["default", "file", "environment"]
    place: str | None = Field(description="File and line, where a file sets it.", examples=["loupe.toml:12"])


class LiveTool(Document):
    """A tool that a fork may run live, and why."""

    tool: str
    reason: str
    place: str | None


class ModelPlaces(Document):
    """Where it is set: `the environment`, or `.env:3`."""

    base_url: str | None
    model: str | None
    key: str | None


class EndpointDocument(Document):
    """A model that forks may ask by name; its key is never told, and nothing of it is changed over HTTP."""

    name: str
    base_url: str
    dialect: str | None
    model: str | None
    key_variable: str | None
    key: bool = Field(description="The variable holds a key.")
    place: str | None


class ModelDocument(Document):
    """The model that forks ask; its key is never told."""

    base_url: str | None
    model: str | None
    key: bool = Field(description="A key is set.")
    key_variable: str
    places: ModelPlaces
    problem: str | None


class ModelPrices(Document):
    """What the tokens of a model cost, as exact decimals in the unit of the table."""

    model: str
    input: str = Field(examples=["2.00"])
    output: str = Field(examples=["8.00"])
    cached_input: str | None
    cache_write: str | None


class Prices(Document):
    """The project's own prices, which go over those of the library."""

    own_file: str | None
    variable: str
    library: str
    currency: str
    per: str = Field(description="`1M tokens`, `1K tokens` or `1 token`.")
    models: list[ModelPrices]


class Files(Document):
    """The files that a change is written to; they need not be there yet."""

    settings: str
    prices: str


class RulePlaces(Document):
    """File and line of each kind of rules, where a file sets them."""

    fields: str | None
    keep: str | None
    patterns: str | None


class Rules(Document):
    """The project's own rules of removal, by name."""

    fields: list[str]
    keep: list[str]
    patterns: list[str]
    places: RulePlaces


class AgentProfile(Document):
    """An agent with a profile of its own."""

    agent: str
    profile: Literal["full", "redacted", "digest_only"]
    place: str | None


class AgentSample(Document):
    """An agent of which another share of the runs is kept by their profile."""

    agent: str
    share: float
    place: str | None


class SettingsDocument(Document):
    """The settings of the project."""

    items: list[Setting]
    live: list[LiveTool]
    model: ModelDocument
    endpoints: list[EndpointDocument]
    prices: Prices
    secrets: Rules
    redaction: Rules = Field(description="What the profile `redacted` removes besides the built-in shapes.")
    profiles: list[AgentProfile]
    samples: list[AgentSample]
    files: Files
    version: str = Field(description="Changes when a file does; a change has to name it.")
    read_only: str | None = Field(description="Why nothing can be changed here.")
    problem: str | None = Field(
        description="A file that cannot be understood, with its line; what was read before holds."
    )


class LiveBody(Document):
    """A tool that shall be allowed to run live."""

    tool: str = Field(max_length=500, examples=["calculate"])
    reason: str = Field(max_length=2000, examples=["pure arithmetic"])


class ModelPricesBody(Document):
    """What the tokens of a model shall cost."""

    model: str = Field(min_length=1, max_length=500, examples=["my-model"])
    input: str = Field(max_length=40, examples=["2.00"])
    output: str = Field(max_length=40, examples=["8.00"])
    cached_input: str | None = Field(default=None, max_length=40)
    cache_write: str | None = Field(default=None, max_length=40)


class PricesBody(Document):
    """The project's own prices, all of them."""

    currency: str | None = Field(default=None, max_length=10, examples=["USD"])
    per: Literal["1M tokens", "1K tokens", "1 token"] | None = None
    models: list[ModelPricesBody] = Field(max_length=1000)


class SettingsBody(Document):
    """What shall be changed. A part that is left out stays as it is; one that is there is replaced whole."""

    version: str = Field(
        max_length=100, description="Of the settings as they were read.", examples=["0123456789abcdef"]
    )
    live: list[LiveBody] | None = Field(default=None, max_length=1000)
    prices: PricesBody | None = None
