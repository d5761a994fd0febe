"""Ed25519 keys in files (RFC 8032), in the forms that other tools read too: PKCS 8 and SubjectPublicKeyInfo, as PEM.

    key_id = make_key(Path("anchor.key"))              # and anchor.key.pub beside it
    SigningKey.read(Path("anchor.key")).sign(b"...")
    PublicKeys.read(Path("anchor.key.pub")).signed(key_id, b"...", signature)

A public file may hold several keys one after another: the old one and the new one, after a key was changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentloupe.words.canonical import digest_bytes
from agentloupe.words.errors import ConfigError, LoupeError, NotFound, Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["PublicKeys", "SigningKey", "make_key", "public_file"]

_PEM = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----\n?", re.DOTALL)
_LARGEST = 1 << 20


def public_file(private: Path) -> Path:
    """Where the public key of a private one lies."""
    return private.with_name(f"{private.name}.pub")


def make_key(path: Path) -> str:
    """Makes a key pair: the private key at `path`, readable by its owner only, the public one beside it. Returns the key id.

    Raises:
        Refused: one of the two files is there already (reason `exists`): a key is never overwritten.
        LoupeError: they cannot be written (reason `unwritable`), or the extra is missing (`extra`).
    """
    _needed()
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if path.is_dir():
        raise LoupeError(f"{path} is a folder", hint="name a file, such as anchor.key", reason="unwritable")
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    beside = public_file(path)
    if os.path.lexists(beside):
        raise _there(beside)
    _write_new(path, private, 0o600)
    try:
        _write_new(beside, public, 0o644)
    except LoupeError:
        path.unlink()
        raise
    return _id_of(key.public_key())


def _write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
    except FileExistsError as wrong:
        raise _there(path) from wrong
    except OSError as wrong:
        raise LoupeError(f"{path} cannot be written: {wrong.strerror}", reason="unwritable") from wrong


def _there(path: Path) -> Refused:
    return Refused(f"{path} is there already", hint="a key is never overwritten; name another file", reason="exists")


class SigningKey:
    """Implements `ports.signing.Signer`."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.key_id = _id_of(key.public_key())

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        """Reads a private key.

        Raises:
            NotFound: no such file. ConfigError: it holds no Ed25519 private key (reason `key`).
            Refused: others than its owner can read it (reason `key_mode`).
            LoupeError: the extra is missing (reason `extra`).
        """
        _needed()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        data = _content(path)
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise Refused(f"{path} can be read by others", hint=f"chmod 600 {path}", reason="key_mode")
        key = None
        with suppress(ValueError, TypeError, UnsupportedAlgorithm):
            key = load_pem_private_key(data, None)
        if not isinstance(key, Ed25519PrivateKey):
            raise _no_key(path, "private")
        return cls(key)

    def sign(self, data: bytes) -> bytes:
        """64 bytes."""
        return self._key.sign(data)

    def public(self) -> PublicKeys:
        """The public key that belongs to it."""
        return PublicKeys({self.key_id: self._key.public_key()})


class PublicKeys:
    """Implements `ports.signing.Trust`."""

    def __init__(self, keys: Mapping[str, Ed25519PublicKey]) -> None:
        self._keys = dict(keys)

    @classmethod
    def read(cls, path: Path) -> PublicKeys:
        """Reads one public key or several.

        Raises:
            NotFound: no such file. ConfigError: it holds no Ed25519 public key (reason `key`).
            LoupeError: the extra is missing (reason `extra`).
        """
        _needed()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        found: dict[str, Ed25519PublicKey] = {}
        data = _content(path)
        for part in _PEM.findall(data):
            key = None
            with suppress(ValueError, UnsupportedAlgorithm):
                key = load_pem_public_key(part)
            if not isinstance(key, Ed25519PublicKey):
                raise _no_key(path, "public")
            found[_id_of(key)] = key
        if not found or _PEM.sub(b"", data).strip():
            raise _no_key(path, "public")
        return cls(found)

    def __or__(self, other: PublicKeys) -> PublicKeys:
        return PublicKeys({**self._keys, **other._keys})

    def holds(self, key_id: str) -> bool:
        """See `ports.signing.Trust.holds`."""
        return key_id in self._keys

    def signed(self, key_id: str, data: bytes, signature: bytes) -> bool:
        """See `ports.signing.Trust.signed`."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._keys[key_id].verify(signature, data)
        except (KeyError, InvalidSignature):
            return False
        return True


def _id_of(key: Ed25519PublicKey) -> str:
    return digest_bytes(key.public_bytes_raw())


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError as wrong:
        raise NotFound(f"no key {path}", hint="`agentloupe anchor keygen FILE` makes one") from wrong
    except OSError as wrong:
        raise ConfigError(f"{path} cannot be read: {wrong.strerror}", reason="key") from wrong
    return data


def _no_key(path: Path, kind: str) -> ConfigError:
    other = "FILE.pub holds the public one, FILE the private one"
    return ConfigError(f"{path} holds no Ed25519 {kind} key", hint=other, reason="key")


def _needed() -> None:
    """Raises a plain error where the library of the extra is not installed."""
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # pyright: ignore[reportUnusedImport]  # noqa: F401
    except ImportError as wrong:
        raise LoupeError(
            "signatures need the extra `sign`", hint="pip install 'agent-loupe[sign]'", reason="extra"
        ) from wrong
