"""Signatures, as the engine sees them: who signs, and who is believed."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Signer", "Trust"]


class Signer(Protocol):
    """Holds a private key."""

    @property
    def key_id(self) -> str:
        """SHA-256 of the public key: 64 hex digits."""
        ...

    def sign(self, data: bytes) -> bytes:
        """The signature of these bytes."""
        ...


class Trust(Protocol):
    """Public keys that somebody decided to believe."""

    def holds(self, key_id: str) -> bool:
        """Whether the key is among them."""
        ...

    def signed(self, key_id: str, data: bytes, signature: bytes) -> bool:
        """Whether the signature of these bytes was made with that key, which is among them."""
        ...
