"""Isolation for every test: no foreign settings, no keys, no network but loopback."""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.support import ROOT, case_folder, shared_folder

pytest_plugins = ["pytester"]

# ---------------------------------------------------------------- properties

_examples = DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples")
# No deadline: on a busy two-core machine a slow example says nothing about the code.
settings.register_profile("dev", max_examples=25, deadline=None, database=_examples)
settings.register_profile(
    "ci",
    max_examples=200,
    deadline=None,
    database=_examples,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # a loaded machine, not a bad strategy
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# ---------------------------------------------------------------- network


class NetworkRefused(RuntimeError):
    """A test tried to reach something other than this machine."""


_LOCAL_NAMES = frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost"})
_attempts: list[str] = []


def _is_local(host: object) -> bool:
    """Whether a host, as given to a socket call, can only mean this machine."""
    if host is None:
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    if text.lower() in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _host_of(event: str, args: tuple[object, ...]) -> object:
    """The host that an audited socket event is about; None where it names none (unix sockets, binding)."""
    if event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        return args[0]
    if event in {"socket.connect", "socket.sendto", "socket.sendmsg"} and isinstance(args[1], tuple):
        address: tuple[object, ...] = args[1]
        return address[0]
    return None


def _guard(event: str, args: tuple[object, ...]) -> None:
    """Audit hook: it also sees what C code and patched socket modules do, and no test can unhook it."""
    if event.startswith("socket."):
        host = _host_of(event, args)
        if not _is_local(host):
            _attempts.append(f"{event} {host!r}")
            raise NetworkRefused(f"tests may reach loopback only, not {host!r} ({event})")


sys.addaudithook(_guard)


@pytest.fixture(autouse=True)
def network_attempts() -> Iterator[list[str]]:
    """Attempts to leave this machine; the test fails for any left in the list, even if code swallowed the error."""
    _attempts.clear()
    yield _attempts
    left = list(_attempts)
    _attempts.clear()
    assert not left, f"the test tried to leave this machine: {left}"


# ---------------------------------------------------------------- environment

# Hundreds of tests start a Python of their own, which costs twice as much without the caches of its modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_PREFIXES = ("LOUPE_", "LLM_", "OPENAI_", "ANTHROPIC_", "AZURE_OPENAI_", "GEMINI_", "MISTRAL_", "OLLAMA_", "OTEL_")
_SUFFIXES = ("_API_KEY", "_API_TOKEN", "_PROXY", "_proxy")
_NAMES = frozenset({"NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES"})


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes away settings, keys, proxies and terminal wishes of whoever runs the tests; HOME stays."""
    for name in list(os.environ):
        if name.startswith(_PREFIXES) or name.endswith(_SUFFIXES) or name in _NAMES:
            monkeypatch.delenv(name)


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one while the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---------------------------------------------------------------- sample data


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `../shared`; tests that ask for it are skipped, visibly, where it is absent."""
    return shared_folder()


@pytest.fixture(scope="session")
def shared_case() -> Callable[[str], Path]:
    """A function from the number of a shared case ("04") to its folder."""
    return case_folder
