"""Starts the local model as a child process and ends it again."""

from __future__ import annotations

import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from agentloupe.ports.ambient import monotonic_ms
from agentloupe.providers.local_model.engine import LocalModelUnavailable, require_extra

__all__ = ["START_SECONDS", "LocalModel", "start"]

START_SECONDS = 180.0
"""Longest wait for the model: a slow disk and a busy machine included."""

_STOP_SECONDS = 5.0
_READY = "ready "


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that runs.

    Attributes:
        url: the base URL that OpenAI clients want, ending in `/v1`.
        model: the name to ask for.
        process: the child that serves it.
        start_ms: milliseconds from start to ready.
    """

    url: str
    model: str
    process: subprocess.Popen[bytes]
    start_ms: float


def _silent(_: str) -> None:
    """No progress wanted."""


@contextmanager
def start(progress: Callable[[str], None] = _silent, *, seconds: float = START_SECONDS) -> Generator[LocalModel]:
    """The local model while the block runs. `progress` hears one line for each stage.

    The child ends with the block, and also when this process is killed: it watches its standard input.

    Raises:
        LocalModelUnavailable: not installed, not ready within `seconds`, or it ended with an error.
    """
    require_extra()
    began = monotonic_ms()
    with tempfile.TemporaryFile() as errors:
        process = _spawn(errors)
        try:
            url = _wait(process, progress, seconds, errors)
            yield LocalModel(url, _name(url), process, monotonic_ms() - began)
        finally:
            _stop(process)


def _spawn(errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """A session of its own, so that Ctrl-C in the terminal reaches this process only, which then ends the child."""
    command = [sys.executable, "-P", "-m", "agentloupe.providers.local_model", "--with-parent"]
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
    )


def _wait(process: subprocess.Popen[bytes], progress: Callable[[str], None], seconds: float, errors: IO[bytes]) -> str:
    """The URL, once the child has said that it is ready."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    until = monotonic_ms() + seconds * 1000
    while True:
        try:
            line = lines.get(timeout=max(0.0, until - monotonic_ms()) / 1000)
        except queue.Empty:
            raise LocalModelUnavailable(
                f"the local model was not ready within {seconds:g} s", reason="no_answer"
            ) from None
        if line is None:
            raise LocalModelUnavailable(
                f"the local model did not start: {_last_line(process, errors)}", reason="broken"
            )
        if line.startswith(_READY):
            return line.removeprefix(_READY)
        progress(line)


def _read(stream: IO[bytes] | None, lines: queue.SimpleQueue[str | None]) -> None:
    assert stream is not None
    try:
        for line in stream:
            lines.put(line.decode("utf-8", "replace").rstrip("\n"))
    except (OSError, ValueError):
        pass  # closed while reading, at the end
    lines.put(None)


def _last_line(process: subprocess.Popen[bytes], errors: IO[bytes]) -> str:
    """The last thing the child said, or how it ended."""
    code = process.wait(_STOP_SECONDS)
    errors.seek(0)
    said = errors.read(1 << 20).decode("utf-8", "replace").strip().splitlines()
    return said[-1] if said else f"exit code {code}"


def _name(url: str) -> str:
    """The model's name, asked from the server itself."""
    import json
    from http.client import HTTPConnection
    from urllib.parse import urlsplit

    connection = HTTPConnection(urlsplit(url).netloc, timeout=_STOP_SECONDS)
    try:
        connection.request("GET", "/health")
        return str(json.loads(connection.getresponse().read())["model"])
    except (OSError, ValueError, KeyError) as error:
        raise LocalModelUnavailable(f"the local model does not answer: {error}", reason="no_answer") from error
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Asks by closing its input, then terminates, then kills."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    for insist in (None, process.terminate, process.kill):
        if insist is not None:
            insist()
        try:
            process.wait(_STOP_SECONDS)
            break
        except subprocess.TimeoutExpired:
            continue
    process.stdout.close()
