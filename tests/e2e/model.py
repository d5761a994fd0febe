"""A real scripted model behind a loopback address, which each test tells what to answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from agentloupe.providers.scripted import ScriptedServer
from agentloupe.providers.scripted.answers import Answer, Ask
from tests.e2e.world import MODEL, desk_rule

__all__ = ["Gate", "Model", "modelled"]

PATIENCE: Final = 60.0
"""Seconds after which a question that nobody lets through fails, so that no thread stays behind."""


class Gate:
    """Holds questions back until they are let through one by one."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self._go = threading.Semaphore(0)

    def wait(self) -> None:
        """Called by the model: says that it was asked, and waits."""
        self.asked.release()
        if not self._go.acquire(timeout=PATIENCE):
            raise TimeoutError

    def open(self, times: int = 1) -> None:
        """Lets so many questions through."""
        self._go.release(times)

    def reached(self) -> None:
        """Waits until one more question has come."""
        assert self.asked.acquire(timeout=PATIENCE), "the model was not asked"


class Model:
    """What answers at the address; `rule` is changed by each test.

    Attributes:
        url: of the endpoint, ending in `/v1`.
        rule: what is answered to a question.
        requests: every body that was sent here, in order.
    """

    def __init__(self) -> None:
        self.url = ""
        self.rule: Callable[[Ask], Answer] = desk_rule
        self.requests: Sequence[Mapping[str, Any]] = ()

    @property
    def variables(self) -> dict[str, str]:
        """What a server must find around it to ask this model."""
        return {"LLM_BASE_URL": self.url, "LLM_MODEL": MODEL, "LLM_API_KEY": "none"}

    def says(self, *answers: Answer, gate: Gate | None = None) -> None:
        """Answers in this order, whoever asks; each when the gate lets it through."""
        left, lock = list(answers), threading.Lock()

        def rule(_: Ask) -> Answer:
            if gate is not None:
                gate.wait()
            with lock:
                return left.pop(0) if len(left) > 1 else left[0]

        self.rule = rule


@contextmanager
def modelled() -> Generator[Model]:
    """A model at a free port while the block runs."""
    model = Model()

    def rule(asked: Ask) -> Answer:
        return model.rule(asked)

    with ScriptedServer(rule) as server:
        model.url, model.requests = server.url, server.requests
        yield model
