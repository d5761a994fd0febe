"""The isolation that conftest.py promises, so that no other test has to wonder."""

from __future__ import annotations

import os
import socket
import tomllib
from pathlib import Path

import pytest

from tests.conftest import NetworkRefused, _host_of, _is_local
from tests.support import ROOT


@pytest.mark.parametrize(
    "host", ["192.0.2.1", "2001:db8::1", "example.invalid", b"example.invalid", "0.0.0.0", "10.0.0.1"]
)
def test_names_and_addresses_of_other_machines_are_refused(host: str | bytes, network_attempts: list[str]) -> None:
    with pytest.raises(NetworkRefused):
        socket.getaddrinfo(host, 80)
    assert len(network_attempts) == 1
    network_attempts.clear()


def test_a_connection_past_the_resolver_is_refused_too(network_attempts: list[str]) -> None:
    with socket.socket() as sock, pytest.raises(NetworkRefused, match=r"192\.0\.2\.1"):
        sock.connect(("192.0.2.1", 9))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, pytest.raises(NetworkRefused):
        sock.sendto(b"x", ("192.0.2.1", 9))
    assert len(network_attempts) == 2
    network_attempts.clear()


def test_loopback_works() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"ping")
            assert accepted.recv(4) == b"ping"


@pytest.mark.parametrize("host", [None, "", "localhost", "127.0.0.1", "127.8.9.10", "::1", b"localhost", "::1%lo"])
def test_what_counts_as_this_machine(host: object) -> None:
    assert _is_local(host)


def test_unix_sockets_name_no_host() -> None:
    assert _host_of("socket.connect", (None, "/some/socket")) is None


def test_no_keys_and_settings_reach_a_test() -> None:
    assert [n for n in os.environ if n.startswith(("LOUPE_", "LLM_")) or n.endswith("_API_KEY")] == []


def test_workdir_is_empty_and_current(workdir: Path) -> None:
    assert Path.cwd() == workdir.resolve()
    assert list(workdir.iterdir()) == []


@pytest.mark.parametrize(
    "leaves",
    ["socket.socket()", "asyncio.new_event_loop()", "held = [socket.socket()]; held.append(held); del held"],
)
def test_a_test_that_leaves_a_socket_or_a_loop_open_fails(leaves: str, pytester: pytest.Pytester) -> None:
    """With the project's own filter of warnings; what a circle holds shows when garbage is collected."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    pytester.makeini("[pytest]\nfilterwarnings =\n" + "".join(f"    {one}\n" for one in settings["filterwarnings"]))
    pytester.makepyfile(f"import asyncio, gc, socket\n\ndef test_it():\n    {leaves}\n    gc.collect()\n")
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*PytestUnraisableExceptionWarning*"])
