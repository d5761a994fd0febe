"""Every error that Loupe raises, in one tree.

    LoupeError                      exit  code (slug)
    ├── UsageError                   64   usage
    ├── NotFound                      3   not_found
    │   ├── RunNotFound               3   run_not_found
    │   └── StepNotFound              3   step_not_found
    ├── Refused                       3   refused
    │   ├── ForkRefused               3   fork_refused
    │   ├── ReplayRefused             3   replay_refused
    │   ├── ResumeRefused             3   resume_refused
    │   ├── EffectRefused             3   effect_refused
    │   └── OwnerAlive                3   owner_alive
    ├── CassetteMiss                  3   cassette_miss
    ├── LimitReached                  3   limit_reached
    ├── Cancelled                     3   cancelled
    ├── Damaged                       2   damaged
    │   ├── Truncated                 2   truncated
    │   └── Corrupt                   2   corrupt
    ├── VersionUnknown                3   version
    ├── NotRebuildable                3   not_rebuildable
    ├── Unrecordable                  3   unrecordable
    ├── StoreError                    3   store
    │   ├── StoreBusy                 3   store_busy
    │   ├── StoreFull                 3   store_full
    │   └── StoreReadOnly             3   store_read_only
    ├── ConfigError                   3   config
    └── ProviderError                 3   provider
        ├── ModelUnreachable          3   model_unreachable
        └── ModelRefused              3   model_refused   (an HTTP status of 400 or more)
            ├── RateLimited           3   rate_limited    (later)
            └── QuotaExhausted        3   quota_exhausted (not before somebody pays)

    ReplayMismatch (BaseException)    1   the stop signal of a strict replay: control logic must not swallow it

A message names the place and the way out, and never holds a payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

__all__ = [
    "Cancelled",
    "CassetteMiss",
    "ConfigError",
    "Corrupt",
    "Damaged",
    "EffectRefused",
    "ForkRefused",
    "LimitReached",
    "LoupeError",
    "ModelRefused",
    "ModelUnreachable",
    "NotFound",
    "NotRebuildable",
    "OwnerAlive",
    "ProviderError",
    "QuotaExhausted",
    "RateLimited",
    "Refused",
    "ReplayMismatch",
    "ReplayRefused",
    "ResumeRefused",
    "RunNotFound",
    "StepNotFound",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "Truncated",
    "Unrecordable",
    "UsageError",
    "VersionUnknown",
]


class LoupeError(Exception):
    """Base of all errors: a one-line message, a stable `code`, the process's `exit_code` and an optional `hint`.

    `reason` is a second, finer slug for machines (for instance `not_llm` of a refused fork).
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, *, hint: str | None = None, reason: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.reason = reason or self.code

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(LoupeError):
    """The call itself is wrong: an unknown option, a value out of range."""

    code = "usage"
    exit_code = 64


class NotFound(LoupeError):
    """Something that was named does not exist."""

    code = "not_found"


class RunNotFound(NotFound):
    """No run has this id, or several begin with it."""

    code = "run_not_found"


class StepNotFound(NotFound):
    """The run has no step of this index."""

    code = "step_not_found"


class Refused(LoupeError):
    """Possible to ask, not allowed to do."""

    code = "refused"


class ForkRefused(Refused):
    """A fork cannot start here. `reason`: no_step, not_llm, cut_request, body_deleted, diverges_before, live_write, ..."""

    code = "fork_refused"


class ReplayRefused(Refused):
    """A replay cannot start. `reason`: no_code, limited, control_flow, trace_only, running, empty, ..."""

    code = "replay_refused"


class ResumeRefused(Refused):
    """A run cannot go on. `reason`: finished, fork, imported, limited, control_flow, no_code, open_intent, diverged, ...

    Attributes:
        intents: for `open_intent`: each effect whose outcome nobody saw, as JSON; no payloads.
    """

    code = "resume_refused"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        reason: str | None = None,
        intents: tuple[Mapping[str, object], ...] = (),
    ) -> None:
        super().__init__(message, hint=hint, reason=reason)
        self.intents = intents


class EffectRefused(Refused):
    """A write effect was not started, because its intent could not be made durable first."""

    code = "effect_refused"


class OwnerAlive(Refused):
    """The run has a living owner; only the owner may append to it."""

    code = "owner_alive"


class CassetteMiss(LoupeError):
    """A fork asked for a call that was never recorded, and its miss policy is `abort`."""

    code = "cassette_miss"


class LimitReached(LoupeError):
    """A limit of steps, tokens, cost or time stopped a fork."""

    code = "limit_reached"


class Cancelled(LoupeError):
    """Somebody stopped it from outside; its run has the status `cancelled`."""

    code = "cancelled"


class Damaged(LoupeError):
    """The evidence itself is not whole."""

    code = "damaged"
    exit_code = 2


class Truncated(Damaged):
    """The recording ends before it should."""

    code = "truncated"


class Corrupt(Damaged):
    """A gap, a digest or a link of the chain does not fit."""

    code = "corrupt"


class VersionUnknown(LoupeError):
    """Written by a newer version, or of a kind this reader does not know."""

    code = "version"


class NotRebuildable(LoupeError):
    """A recorded value names a class that this process does not have."""

    code = "not_rebuildable"


class Unrecordable(LoupeError):
    """A value cannot be recorded, and the session is strict."""

    code = "unrecordable"


class StoreError(LoupeError):
    """The store cannot be opened, read or written."""

    code = "store"


class StoreBusy(StoreError):
    """Another process holds the store's write lock for too long."""

    code = "store_busy"


class StoreFull(StoreError):
    """The disk is full."""

    code = "store_full"


class StoreReadOnly(StoreError):
    """The store can be read but not written."""

    code = "store_read_only"


class ConfigError(LoupeError):
    """A setting, a `.env` or a `loupe.toml` cannot be understood; names file and line."""

    code = "config"


class ProviderError(LoupeError):
    """A model call failed."""

    code = "provider"


class ModelUnreachable(ProviderError):
    """Nobody answers at the model's address."""

    code = "model_unreachable"


class ModelRefused(ProviderError):
    """The model's endpoint answered with an error status.

    Attributes:
        status: the HTTP status.
        body: the provider's error body as JSON or text, whole.
        retry_after: seconds the provider asks to wait, if it said so.
    """

    code = "model_refused"

    def __init__(
        self,
        message: str,
        *,
        status: int,
        body: object = None,
        retry_after: float | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.body = body
        self.retry_after = retry_after


class RateLimited(ModelRefused):
    """The provider wants to be asked later; `retry_after` says when, if it said so."""

    code = "rate_limited"


class QuotaExhausted(ModelRefused):
    """The quota or the money at the provider is used up: waiting does not help."""

    code = "quota_exhausted"


class ReplayMismatch(BaseException):
    """Stops a strict replay at its first divergence.

    It derives from `BaseException` so that `except Exception` in an agent cannot hide it; the verdict comes from the
    session's report, never from what comes out of the agent.

    Attributes:
        kind: one of the kinds of divergence (`input_changed`, `name_changed`, `order`, `extra`, `missing`,
            `unconsumed`, `result_changed`, `truncated`, `corrupt`, `version`, `leak`).
        sequence: the event of the tape at which it happened, if there is one.
    """

    def __init__(self, message: str, *, kind: str, sequence: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.sequence = sequence
