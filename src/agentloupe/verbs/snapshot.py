"""The snapshot: the versions of everything that a run's decisions may depend on, as far as this process can tell.

What a run is made from does not change while a process lives (the code is loaded, the packages are imported), so most of
it is found once a process and kept. Requests carry the model's name, its parameters and the tools' schemas themselves.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from agentloupe.ports.protocols import Opening
from agentloupe.ports.settings import find_root
from agentloupe.verbs.instrument import declared_tools
from agentloupe.words.canonical import digest, digest_bytes
from agentloupe.words.jsontext import Json

__all__ = ["code_version", "packages", "take"]

_GIT_SECONDS = 2.0
_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "requirements.txt", "conda-lock.yml", "pylock.toml")
_IMAGE = ("LOUPE_IMAGE_DIGEST", "IMAGE_DIGEST", "CONTAINER_IMAGE_DIGEST")
_LARGE = 64_000_000
_OURS = Path(__file__).resolve().parents[1]


def take(root: Path, env_names: Sequence[str], opening: Opening) -> dict[str, Json]:
    """The snapshot of a run that starts now. What cannot be known is left out, so its absence says so.

    Args:
        root: the project's folder.
        env_names: environment names whose values may be kept.
        opening: what starts.
    """
    found: dict[str, Json] = {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": _platform(),
        "time_zone": _time_zone(),
        "entry": opening.entry,
        "source_digest": opening.source_digest,
        "script": _script(root),
        "git": _git(root),
        "distributions": _distributions(),
        "lock_files": _locks(root),
        "tools": _tools(),
        "env": {name: os.environ[name] for name in env_names if name in os.environ},
        "image": next((os.environ[name] for name in _IMAGE if os.environ.get(name)), None),
        "given": _given(opening),
    }
    return {name: value for name, value in found.items() if value not in (None, {}, [])}


def _given(opening: Opening) -> Json:
    """What the program says itself; that it could not say it costs no run, and is told."""
    try:
        return opening.snapshot() if opening.snapshot is not None else None
    except Exception as wrong:  # noqa: BLE001  # the user's own function
        return {"failed": type(wrong).__name__}


def _time_zone() -> Json:
    """The zone's name where the system tells it (`Europe/Oslo`), else what the C library calls it."""
    try:
        name = str(Path("/etc/localtime").readlink()).partition("zoneinfo/")[2]
    except OSError:
        name = ""
    return os.environ.get("TZ") or name or list[Json](time.tzname)


@lru_cache(maxsize=1)
def _platform() -> str:
    return platform.platform()


@lru_cache(maxsize=8)
def _script(root: Path) -> Json:
    """The program's file, by its path in the project, with its digest; none where the program is our own command."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if not file:
        return None
    path = Path(file).resolve()
    command = getattr(getattr(main, "main", None), "__module__", "")  # what the installed command imports
    if path.is_relative_to(_OURS) or command.partition(".")[0] == "agentloupe":
        return None
    try:
        return {"file": _below(path, root), "digest": digest_bytes(path.read_bytes())}
    except OSError:
        return None


def _below(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def _tools() -> Json:
    """The declared tools: what they do to the world, their versions and the digests of their sources."""
    facts: dict[str, Json] = {}
    for name, tool in declared_tools().items():
        known = {"effect": tool.effect, "version": tool.version, "source_digest": tool.source_digest}
        facts[name] = {label: value for label, value in known.items() if value is not None}
    return facts


# --- git --------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _git(root: Path) -> Json:
    """Commit and digest of what is not committed, as they were when the first run of this process began."""
    if not any((folder / ".git").exists() for folder in (root, *root.parents)):
        return None
    commit = _ask_git(root, "rev-parse", "HEAD")
    status = _ask_git(root, "status", "--porcelain=v1", "--untracked-files=normal")
    if commit is None or status is None:
        return None
    known: dict[str, Json] = {"commit": commit.decode().strip(), "dirty": bool(status)}
    if status:
        change = _ask_git(root, "diff", "HEAD", "--no-ext-diff", "--binary")
        if change is not None and len(change) <= _LARGE:
            known["changes_digest"] = digest_bytes(status + b"\0" + change)
    return known


def code_version() -> str:
    """The commit that this process runs on, `-dirty` where there is more; `unknown` outside of a repository."""
    known = _git(find_root())
    if not isinstance(known, dict):
        return "unknown"
    return f"{str(known['commit'])[:12]}{'-dirty' if known['dirty'] else ''}"


def _ask_git(root: Path, *words: str) -> bytes | None:
    command = ["git", "-C", str(root), "--no-optional-locks", *words]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_GIT_SECONDS, check=False, stdin=subprocess.DEVNULL)  # noqa: S603  # fixed words and a folder
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


# --- installed distributions and lock files ---------------------------------------------------------------------------


def packages() -> list[Json]:
    """The installed distributions as `name==version`, in order; a body of its own, since runs share it."""
    return [f"{name}=={version}" for name, version in sorted(_versions(tuple(sys.path)).items())]


def _distributions() -> Json:
    """Digest and number of the installed distributions."""
    found = _versions(tuple(sys.path))
    return {"digest": digest(dict[str, Json](found)), "count": len(found)}


@lru_cache(maxsize=4)
def _versions(path: tuple[str, ...]) -> dict[str, str]:
    """Installed distributions, name -> version.

    Read from the names of their `.dist-info` folders (`name-version.dist-info`, the recording of installed projects
    that PyPA specifies), since reading the metadata of each takes a hundred times longer.
    """
    found: dict[str, str] = {}
    for folder in path:
        for name, version in _in_folder(folder or "."):
            found.setdefault(name, version)
    return found


def _in_folder(folder: str) -> list[tuple[str, str]]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return []
    parts = [name.rsplit(".", 1)[0].split("-") for name in names]
    return [(part[0].lower().replace("_", "-"), part[1] if len(part) > 1 else "") for part in parts]


def _locks(root: Path) -> Json:
    found: dict[str, Json] = {}
    for name in _LOCKS:
        try:
            stat = (root / name).stat()
        except OSError:
            continue
        found[name] = _digest_of(root / name, stat.st_mtime_ns, stat.st_size)
    return found


@lru_cache(maxsize=64)
def _digest_of(path: Path, changed: int, size: int) -> str | None:
    del changed, size  # they are in the key: a changed file is read again
    try:
        return digest_bytes(path.read_bytes())
    except OSError:
        return None
