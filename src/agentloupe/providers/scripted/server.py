"""The scripted model behind a real HTTP address, for real clients."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from agentloupe.providers.loopback import LoopbackServer, serve
from agentloupe.providers.scripted.answers import Answer
from agentloupe.providers.scripted.model import Rule, ScriptedModel

__all__ = ["ScriptedServer"]


class ScriptedServer:
    """A scripted model on 127.0.0.1, at a free port, while the block runs.

        with ScriptedServer([ask(("add", {"a": 1})), say("2")]) as server:
            client = OpenAI(base_url=server.url, api_key="none")

    Attributes:
        model: the scripted model.
    """

    def __init__(self, script: Sequence[Answer] | Rule | ScriptedModel, *, port: int = 0) -> None:
        self.model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
        self._port = port
        self._running: AbstractContextManager[LoopbackServer] | None = None
        self._server: LoopbackServer | None = None

    @property
    def url(self) -> str:
        """The base URL that OpenAI clients want, ending in `/v1`."""
        if self._server is None:
            raise RuntimeError("the scripted server runs inside its `with` block only")
        return f"{self._server.url}/v1"

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Every request body so far, in order."""
        return self.model.requests

    def __enter__(self) -> Self:
        self._running = serve(self.model.app, port=self._port)
        self._server = self._running.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running, self._running, self._server = self._running, None, None
        if running is not None:
            running.__exit__(kind, error, trace)
