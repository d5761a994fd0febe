"""Says of which prompt template model calls are made."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from agentloupe.ports.surroundings import enter_prompt, leave_prompt
from agentloupe.words.canonical import digest_bytes
from agentloupe.words.errors import UsageError
from agentloupe.words.jsontext import Json

__all__ = ["prompt"]

P = ParamSpec("P")
R = TypeVar("R")


class prompt:  # noqa: N801  # used as a function: `with prompt("refund", 4):`
    """Says that model calls inside are made from a prompt template, as a `with` block or on a function (sync or async).

    Each such call is recorded with it, also in tasks and threads that are begun inside; the innermost one counts. It is no part of what
    is sent, so a replay with another version is judged by the requests alone, and says in its notes which template is another.

    Args:
        name: of the template.
        version: of the template, as its registry calls it.
        text: the template itself, of which the SHA-256 is kept: it tells versions apart that nobody numbers.

    A name alone is enough to find the calls of a template; which version it was it does not tell.

    Raises:
        UsageError: the name is no text, or empty.
    """

    def __init__(self, name: str, version: str | int | None = None, *, text: str | None = None) -> None:
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]  # what untyped code does
            wrong = f"loupe.prompt wants the template's name, not {name!r}"
            if callable(name):
                wrong = "@loupe.prompt stands without the template's name"
            raise UsageError(wrong, hint='write loupe.prompt("refund", version=4)')
        said: dict[str, Json] = {"name": name}
        if version is not None:
            said["version"] = str(version)
        if text is not None:
            said["digest"] = digest_bytes(text.encode("utf-8", "surrogatepass"))
        self._said = said

    def __enter__(self) -> None:
        enter_prompt(self._said)

    def __exit__(self, *_: object) -> None:
        leave_prompt()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, whose model calls are made from this template."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(
                f"{function.__qualname__} yields: what runs between two items is not inside of it",
                hint=f"use `with loupe.prompt({self._said['name']!r}):` around its model calls",
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return cast("Callable[P, R]", awaited)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return called
