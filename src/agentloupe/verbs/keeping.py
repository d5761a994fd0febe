"""What a new recording keeps of values, decided from the settings, what the code says, and what the command line asks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from agentloupe.engine.privacy import Rules
from agentloupe.engine.recorder import Recorder
from agentloupe.engine.redaction import redacted
from agentloupe.engine.withholding import Digests, DigestScribe
from agentloupe.ports.scribe import Scribe, Started
from agentloupe.ports.settings import Settings
from agentloupe.words.errors import ConfigError
from agentloupe.words.jsontext import Json
from agentloupe.words.keeping import SAMPLED_OUT, Profile, in_sample
from agentloupe.words.run import Coverage
from agentloupe.words.trace import TraceContext

__all__ = ["Keeping", "keeping_for", "read_digest_key", "rules_of"]

_SHORTEST_KEY, _LONGEST_KEY = 16, 4096
"""Bytes."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is kept of one run.

    Attributes:
        profile: see `words.keeping`.
        rules: of secret removal, and of redaction where that is asked for.
        digests: how values that are not kept are digested.
        sample: the share of runs that are kept by the profile; of the others digests are kept.
        sampled_out: the run is one of the others.
    """

    profile: Profile
    rules: Rules
    digests: Digests
    sample: float = 1.0
    sampled_out: bool = False

    def of_run(self, scope: str) -> Keeping:
        """What is kept of one run, told by its task's id or its own (see `words.keeping.in_sample`)."""
        if in_sample(self.sample, scope):
            return self
        return replace(self, profile="digest_only", sampled_out=True)

    def scribe(self, caller: TraceContext | None) -> Scribe:
        """The scribe of the run."""
        if self.profile != "digest_only":
            return Scribe.begun(caller)
        scribe = DigestScribe.begun(caller)
        scribe.digests = self.digests
        return scribe

    @property
    def coverage(self) -> tuple[Coverage, str] | None:
        """How far that lowers the coverage, and why; `None` where everything is kept."""
        if self.sampled_out:
            return "limited_replay", f"{SAMPLED_OUT}: of values only digests are kept (sample {self.sample:g})"
        if self.profile == "digest_only":
            return "limited_replay", "profile digest_only: of values only digests are kept"
        if self.profile == "redacted":
            return "full", "profile redacted: personal data is replaced by placeholders, and a replay serves those"
        return None

    def begin(self, recorder: Recorder, what: Started) -> None:
        """Starts a recorder's run, which says what is kept of it."""
        if self.coverage is not None:
            recorder.lower(*self.coverage)
        recorder.start(replace(what, facts={**what.facts, **self._facts()}))

    def _facts(self) -> dict[str, Json]:
        """What `run.started` says of it; nothing of a full recording."""
        said: dict[str, Json] = {} if self.sample == 1 else {"sample": self.sample}
        if self.sampled_out:
            said[SAMPLED_OUT] = True
        covered = self.coverage
        if covered is None:
            return said
        said |= {"profile": self.profile, "coverage": covered[0], "coverage_notes": [covered[1]]}
        key_id = self.digests.key_id if self.profile == "digest_only" else None
        return said if key_id is None else {**said, "digested_by": key_id}


def rules_of(settings: Settings) -> Rules:
    """The rules of secret removal that a project has."""
    return Rules(settings.secret_fields, settings.secret_keep, dict(settings.secret_patterns))


def keeping_for(settings: Settings, agent: str, wished: Profile | None, sample: float | None) -> Keeping:
    """What is kept of runs of this agent. `wished`, `sample`: what the code or the command line says, over the settings.

    Raises:
        ConfigError: the file of the digest key is needed and cannot be used.
    """
    profile = wished or settings.profiles.get(agent) or settings.profile
    rules = rules_of(settings)
    if profile == "redacted":
        rules = redacted(rules, settings.redact_fields, settings.redact_keep, settings.redact_patterns)
    share = 1.0  # where digests are all there is, there is nothing to leave out
    if profile != "digest_only":
        share = settings.samples.get(agent, settings.sample) if sample is None else sample
    key = None
    if (profile == "digest_only" or share < 1) and settings.digest_key_file is not None:
        key = read_digest_key(settings.digest_key_file)
    return Keeping(profile, rules, Digests(key), share)


def read_digest_key(path: Path) -> bytes:
    """The key in a file: its bytes without white space around them, 16 to 4,096 of them. It is never shown nor recorded.

    Raises:
        ConfigError: it cannot be read, or is too short or too long; names the file, nothing of what is in it.
    """
    try:
        with path.open("rb") as file:
            key = file.read(_LONGEST_KEY + 1).strip()
    except OSError as wrong:
        raise ConfigError(f"digest_key_file {path} cannot be read: {wrong.strerror}") from wrong
    if not _SHORTEST_KEY <= len(key) <= _LONGEST_KEY:
        raise ConfigError(
            f"digest_key_file {path} holds no key: {_SHORTEST_KEY} to {_LONGEST_KEY} bytes are needed",
            hint="make one with: openssl rand -hex 32",
        )
    return key
