"""Shuts the way to the outside world while a replay runs: one audit hook in this process, an empty network for a child.

An audit hook (PEP 578) cannot be removed again, so there is one for the life of the process, and it does nothing while
nobody is sealed off. It sees what Python code and C code that tells Python about it do: connecting, asking for names,
sending to an address, starting processes. What Python does without telling (sending through a connection that was open
before, the bare `fork_exec` of `multiprocessing`, another interpreter) is taken away for the time. A native event loop's own sockets are not
seen; a child in an empty network namespace cannot use them.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, NoReturn, cast

from agentloupe.ports.ambient import Caller, caller, of_a_run
from agentloupe.ports.callers import HARMLESS, asker
from agentloupe.words.errors import ForkRefused, ReplayRefused

__all__ = ["KEYS", "Leak", "going_on_live", "placeholder_keys", "sealed_off", "unshare_command", "without_credentials"]

_NETWORK: Mapping[str, str] = {
    "socket.connect": "connecting",
    "socket.getaddrinfo": "asking for a network name",
    "socket.gethostbyname": "asking for a network name",
    "socket.gethostbyaddr": "asking for a network name",
    "socket.sendto": "sending to an address",
    "socket.sendmsg": "sending a message",
}
_SPAWNING = (
    *("subprocess.Popen", "os.system", "os.posix_spawn", "os.spawn", "os.exec", "os.fork", "os.forkpty"),
    *("pty.spawn", "os.startfile", "_winapi.CreateProcess"),
)
# `socket.getfqdn` keeps the name that it has; every server of the standard library asks it for its own.
_WITHOUT_AN_ANSWER: Final = {"socket.gethostbyaddr": frozenset({socket.getfqdn.__code__.co_filename})}
_REFUSED: Final[Mapping[str, str]] = {**_NETWORK, **dict.fromkeys(_SPAWNING, "starting a process")}


@dataclass(frozen=True, slots=True)
class Leak:
    """An attempt to reach the outside past the boundary.

    Attributes:
        event: the audit event (`socket.connect`).
        what: the same in words.
        target: host and port, or the program's name; never its arguments.
        caller: the line of the user's code, if one is on the stack.
    """

    event: str
    what: str
    target: str
    caller: Caller | None


Refuse = Callable[[Leak], BaseException]

_refusing: list[Refuse] = []


def _hook(event: str, args: tuple[object, ...]) -> None:
    if not _refusing or event not in _REFUSED:
        return
    if asker() in _WITHOUT_AN_ANSWER.get(event, HARMLESS):
        raise OSError("refused while a replay runs")
    raise _refusing[-1](Leak(event, _REFUSED[event], _target(event, args), caller()))


@cache
def _install() -> None:
    sys.addaudithook(_hook)


@contextmanager
def sealed_off(refuse: Refuse) -> Generator[None]:
    """While inside, nothing in this process (in no thread) connects anywhere or starts a process.

    `refuse` gets each attempt and makes the exception that is raised in its place.

    Raises:
        ReplayRefused: a fork runs in this process, whose requests would be refused.
    """
    _install()
    with _lock:
        if _live:
            raise ReplayRefused(
                "a fork runs in this process, and a replay shuts the way out", hint=_APART, reason="fork_runs"
            )
        _refusing.append(refuse)
        _take_away()
    try:
        yield
    finally:
        with _lock:
            _refusing.remove(refuse)
            if not _refusing:
                _give_back()


_live: list[object] = []
_APART: Final = "wait for it, or use the command: there each has a process of its own"


@contextmanager
def going_on_live() -> Generator[None]:
    """While inside, something asks the real world on purpose, and no replay begins in this process.

    Raises:
        ForkRefused: a replay runs in this process.
    """
    with _lock:
        if _refusing:
            raise ForkRefused("a replay runs in this process, and shuts the way out", hint=_APART, reason="replay_runs")
        _live.append(None)
    try:
        yield
    finally:
        with _lock:
            _live.pop()


# --- what tells no audit hook -----------------------------------------------------------------------------------------

_lock = threading.Lock()
_taken: list[tuple[Any, str, object]] = []
_ABSENT: Final = object()
_SENDING = ("send", "sendall", "sendfile", "sendmsg", "write")


def _take_away() -> None:
    """Puts refusals in the place of what sends without an audit event; those who are not sealed off go on as before."""
    if _taken:
        return
    kinds: list[Any] = [socket.socket, getattr(sys.modules.get("ssl"), "SSLSocket", None)]
    for kind, name in ((kind, name) for kind in kinds for name in _SENDING if hasattr(kind, name)):
        _replace(kind, name, _sending(getattr(kind, name)))
    for module, name, refusal in (
        ("_posixsubprocess", "fork_exec", _fork_exec),
        ("_interpreters", "create", _create),  # new in Python 3.13; no audit hook hears of it
    ):
        owner = _module(module)
        if owner is not None:
            _replace(owner, name, refusal)


@cache
def _module(name: str) -> Any:
    """A module, or `None` where this Python has none of that name: to look for it takes longer than all else here."""
    with suppress(ImportError):
        return import_module(name)
    return None


def _replace(owner: Any, name: str, by: object) -> None:
    own = cast("Mapping[str, object]", vars(owner))
    _taken.append((owner, name, own.get(name, _ABSENT)))
    setattr(owner, name, by)


def _give_back() -> None:
    while _taken:
        owner, name, before = _taken.pop()
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@functools.lru_cache(32)
def _sending(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def send(self: socket.socket, *args: Any, **kwargs: Any) -> Any:
        # Other threads of this process may serve somebody; what they have open is no way out of this replay.
        if _refusing and of_a_run() and (peer := _peer(self)):
            raise _refusing[-1](Leak("socket.send", "sending through an open connection", peer, caller()))
        return method(self, *args, **kwargs)

    return send


def _peer(sock: socket.socket) -> str:
    """Who is at the other end; empty for nobody, and for a pair of one process (with which event loops wake themselves)."""
    try:
        address: object = sock.getpeername()
    except OSError:
        return ""
    shown = _address(address) if address else ""
    pair = os.name == "nt" and shown.startswith("127.0.0.1:")
    return "" if pair else shown


def _fork_exec(*args: Any, **_: Any) -> NoReturn:
    program = next(iter(args[1] or ()), "") if len(args) > 1 else ""
    raise _refusing[-1](Leak("fork_exec", "starting a process", os.path.basename(_text(program)), caller()))


def _create(*_: Any, **__: Any) -> NoReturn:
    raise _refusing[-1](Leak("interpreters.create", "starting an interpreter", "", caller()))


def _target(event: str, args: tuple[object, ...]) -> str:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        return _address(args[1])
    if event == "os.system":
        return _first_word(args[0])
    if not args:
        return ""
    return str(args[0]) if event in _NETWORK else os.path.basename(_text(args[0]))


def _address(address: object) -> str:
    if isinstance(address, tuple):
        host, port, *_ = (*cast("tuple[object, ...]", address), "", "")
        return f"{host}:{port}"
    return _text(address)


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _first_word(command: object) -> str:
    words = _text(command).split()
    return os.path.basename(words[0]) if words else ""


# --- a child without a network ----------------------------------------------------------------------------------------


@cache
def _namespace() -> tuple[str, ...] | None:
    """What to put before a command so that it has no network; found by trying, once."""
    tool = shutil.which("unshare")
    if tool is None:
        return None
    for options in (("-n",), ("-rn",)):
        try:
            done = subprocess.run([tool, *options, "true"], capture_output=True, timeout=5, check=False)  # noqa: S603  # no input
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return (tool, *options, "--")
    return None


def unshare_command(command: Sequence[str]) -> list[str] | None:
    """The command so that it runs in a network namespace of its own, with nothing in it; `None` where that cannot be had."""
    prefix = _namespace()
    return None if prefix is None else [*prefix, *command]


# --- credentials ------------------------------------------------------------------------------------------------------

KEYS: Final = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "MISTRAL_API_KEY",
    "COHERE_API_KEY",
    "CO_API_KEY",
    "GROQ_API_KEY",
    "DEEPSEEK_API_KEY",
    "OPENROUTER_API_KEY",
    "TOGETHER_API_KEY",
    "FIREWORKS_API_KEY",
    "PERPLEXITY_API_KEY",
    "CEREBRAS_API_KEY",
    "NVIDIA_API_KEY",
    "REPLICATE_API_TOKEN",
    "VOYAGE_API_KEY",
    "XAI_API_KEY",
    "LLM_API_KEY",
    "AWS_ACCESS_KEY_ID",  # with these two botocore looks no further: not in files, nor at the address of the machine's role
    "AWS_SECRET_ACCESS_KEY",
)
"""Variables that model clients take their key from."""

PLACEHOLDER: Final = "placeholder-of-a-replay"


def without_credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """A child's environment in which every client finds a key that is none."""
    return {**environment, **dict.fromkeys(KEYS, PLACEHOLDER)}


@contextmanager
def placeholder_keys() -> Generator[None]:
    """Lets clients that insist on a key be made without one, in this process; keys that are there are left alone."""
    before = {name: value for name in KEYS if not (value := os.environ.get(name))}
    os.environ.update(dict.fromkeys(before, PLACEHOLDER))
    try:
        yield
    finally:
        for name, value in before.items():
            if os.environ.get(name) == PLACEHOLDER:
                del os.environ[name]
                if value is not None:
                    os.environ[name] = value
