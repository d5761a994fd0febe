"""What users put on their own code: `@tool` and `@agent`.

Outside a run all of it behaves as if it were not there. Inside, the program always gets the original values; what is
recorded is a copy.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast, overload
from weakref import WeakKeyDictionary

from agentloupe.ports import ambient, codecs
from agentloupe.ports.protocols import Opening
from agentloupe.verbs import yielding
from agentloupe.words.call import EFFECTS, Call, Effect
from agentloupe.words.canonical import digest
from agentloupe.words.errors import UsageError
from agentloupe.words.jsontext import Json
from agentloupe.words.keeping import Profile, profile_named, share_named

__all__ = [
    "Tool",
    "agent",
    "as_agent",
    "declared_tools",
    "idempotency_key",
    "receipt",
    "stated_for",
    "tool",
    "tool_of",
    "traceparent",
]

P = ParamSpec("P")
R = TypeVar("R")
Depends = Mapping[str, Any] | Callable[[], Mapping[str, Any]]
"""What a run depends on besides what is found by itself, or a function that tells it."""


def encode(value: object) -> Json:
    """A value in wire form."""
    return codecs.encode(value).wire


def _lost(encoded: codecs.Encoded) -> tuple[tuple[str, str], ...]:
    return tuple((lost.path, lost.type) for lost in encoded.unrecordable)


# --- tools ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A declared tool.

    Attributes:
        name: stable name; a recording and a cassette know the tool by it.
        effect: what it does to the world.
        function: the function as it was written.
        version: as declared, or `None`.
        source_digest: digest of its source text, or `None` where there is none to read.
        lookup: asks the outside world what became of a write effect, by its idempotency key.
        key: of a method: what of `self` belongs to the arguments.
    """

    name: str
    effect: Effect
    function: Callable[..., Any]
    version: str | None = None
    source_digest: str | None = None
    lookup: Callable[[str], Any] | None = None
    key: Callable[[Any], object] | None = None


_tools: dict[str, Tool] = {}
_stated: WeakKeyDictionary[Callable[..., Any], tuple[str, Effect]] = WeakKeyDictionary()


def declared_tools() -> Mapping[str, Tool]:
    """All tools that this process has declared, by name; of two with one name the later."""
    return dict(_tools)


def stated_for(function: object) -> tuple[str, Effect] | None:
    """Name and effect of the declared tool that a function is, however it is wrapped or bound; `None` for any other."""
    inside: Any = function
    while inside is not None:
        found = getattr(inside, "__loupe_tool__", None)
        if isinstance(found, Tool):
            return found.name, found.effect
        deeper = next(
            (d for n in ("func", "__func__", "__wrapped__") if (d := getattr(inside, n, None)) is not None), None
        )
        if deeper is None and isinstance(inside, FunctionType):
            return _stated.get(inside)
        inside = deeper
    return None


def tool_of(function: Callable[..., Any]) -> Tool | None:
    """The declaration behind a decorated function, or `None`."""
    found = getattr(function, "__loupe_tool__", None)
    return found if isinstance(found, Tool) else None


@overload
def tool(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def tool(
    *,
    effect: Effect = "write",
    name: str | None = None,
    version: str | None = None,
    lookup: Callable[[str], Any] | None = None,
    key: Callable[[Any], object] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: Effect = "write",
    name: str | None = None,
    version: str | None = None,
    lookup: Callable[[str], Any] | None = None,
    key: Callable[[Any], object] | None = None,
) -> Any:
    """Declares a function, sync or async, as a tool: its calls go through the boundary.

    Args:
        function: the function, when used without parentheses.
        effect: `pure` (the same arguments give the same result), `read` (looks at the world), `write` (changes it).
            Unstated means `write`: such a tool is never run again by accident, and never without a durable intent.
        name: stable name; default: the function's.
        version: to tell versions apart; default: a digest of the source text.
        lookup: for `write`, sync or async: finds out by idempotency key what became of an effect whose end nobody saw,
            when its run is resumed. Returns `Done`, `Failed`, `NotDone` or `DontKnow`; anything else counts as the last.
        key: for methods: `self` is not recorded; this gives what of it belongs to the arguments.

    A generator function, sync or async, is one call whose result is the list of what it yielded.

    Raises:
        UsageError: the effect is unknown, or the lookup is no function.
    """
    if effect not in EFFECTS:
        raise UsageError(f"unknown effect {effect!r}", hint=f"one of {', '.join(EFFECTS)}")
    if lookup is not None and not callable(lookup):
        raise UsageError("the lookup of a tool is a function of its idempotency key")

    def declare(written: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(written, staticmethod | classmethod):
            return _around_inside(written, declare)
        made = Tool(
            name=name or _name_of(written),
            effect=effect,
            function=written,
            version=version,
            source_digest=source_digest(written),
            lookup=lookup,
            key=key,
        )
        _tools[made.name] = made
        if isinstance(written, FunctionType):
            _stated[written] = made.name, made.effect
        return _tool_wrapper(made)

    return declare if function is None else declare(function)


def _tool_wrapper(made: Tool) -> Callable[..., Any]:
    written, bind = made.function, _Binder(made.function, made.key)
    attrs: dict[str, Json] = {"version": made.version, "source_digest": made.source_digest}
    attrs = {name: value for name, value in attrs.items() if value is not None}
    if made.effect == "write" and made.lookup is not None:
        attrs["lookup"] = True

    gives = inspect.isgeneratorfunction(_kind_of(written)) or inspect.isasyncgenfunction(_kind_of(written))
    into, outof = (yielding.wire, yielding.back) if gives else (encode, codecs.decode)
    attrs |= yielding.NO_TURN if gives else {}

    def request(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        encoded = codecs.encode(bind(args, kwargs))
        return Call(
            kind="tool",
            name=made.name,
            input=encoded.wire,
            effect=made.effect,
            attrs=attrs,
            encode=into,
            decode=outof,
            lost=_lost(encoded),
        )

    if gives:
        relayed: Callable[..., Any] = (
            yielding.tool_steps if inspect.isgeneratorfunction(_kind_of(written)) else yielding.atool_steps
        )

        @functools.wraps(written)
        def generating(*args: Any, **kwargs: Any) -> Any:
            return relayed(lambda: request(args, kwargs), lambda: written(*args, **kwargs))

        generating.__loupe_tool__ = made  # type: ignore[attr-defined]
        return generating

    if inspect.iscoroutinefunction(_kind_of(written)):

        @functools.wraps(written)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            if ambient.current() is None:
                return await written(*args, **kwargs)
            return await ambient.acall(request(args, kwargs), lambda: written(*args, **kwargs))

        wrapper: Any = asynchronous
    else:

        @functools.wraps(written)
        def synchronous(*args: Any, **kwargs: Any) -> Any:
            if ambient.current() is None:
                return written(*args, **kwargs)
            return ambient.call(request(args, kwargs), lambda: written(*args, **kwargs))

        wrapper = synchronous
    wrapper.__loupe_tool__ = made
    return wrapper


class _Binder:
    """Arguments by the names of the parameters, as they were given: defaults are the function's, not the caller's."""

    def __init__(self, function: Callable[..., Any], key: Callable[[Any], object] | None) -> None:
        self._signature = inspect.signature(function)
        self._key = key
        names = list(self._signature.parameters.values())
        self._rest = next((p.name for p in names if p.kind is p.VAR_KEYWORD), None)
        self._self = names[0].name if names and names[0].name in ("self", "cls") else None
        simple = self._self is None and all(p.kind is p.POSITIONAL_OR_KEYWORD for p in names)
        self._order = tuple(p.name for p in names)
        self._names = frozenset(self._order) if simple else None
        self._needed = sum(p.default is p.empty for p in names)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, object]:
        if self._names is not None:
            if not args and kwargs.keys() <= self._names:
                return kwargs
            if not kwargs and self._needed <= len(args) <= len(self._order):
                return dict(zip(self._order, args))  # noqa: B905  # what is left out has its default
        try:
            named: dict[str, object] = dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError:
            return {"args": list(args), "kwargs": kwargs}  # the call itself will say what is wrong
        if self._rest is not None:
            named.update(cast("dict[str, object]", named.pop(self._rest, {})))
        if self._self is not None:
            owner = named.pop(self._self, None)
            if self._key is not None:
                named["self"] = self._key(owner)
        return named


def idempotency_key() -> str:
    """Inside a `write` tool: the key to send with the effect, the same for a resumed run, another one for a fork.

    Elsewhere a fresh one, so that the same code works outside a run.
    """
    here = ambient.performing()
    key = here.facts.get("idempotency_key") if here is not None else None
    return key if isinstance(key, str) else ambient.random_hex(64)


def receipt(external_id: object) -> None:
    """Inside a tool: notes the id that the outside world gave to the effect. Does nothing outside a run.

    What is no text (a number, a UUID) is noted as the text that `str` makes of it; `None` is no id.
    """
    if external_id is not None:
        ambient.note("external_id", str(external_id))


def traceparent() -> str | None:
    """The W3C header of this place in the run's trace, to send with a request; `None` outside a run.

    Inside a tool it names the tool's own span. In a replay the agent's own code gets what it got when it was recorded;
    business code should not decide by it.
    """
    found = ambient.trace_here()
    return None if found is None else found.traceparent


# --- agents -----------------------------------------------------------------------------------------------------------


@overload
def agent(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def agent(
    *,
    name: str | None = None,
    tags: Sequence[str] = (),
    snapshot: Depends | None = None,
    profile: Profile | None = None,
    sample: float | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def agent(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    tags: Sequence[str] = (),
    snapshot: Depends | None = None,
    profile: Profile | None = None,
    sample: float | None = None,
) -> Any:
    """Declares a function, sync or async, as an agent: each call of it is a run; inside another run it is a span.

    Args:
        function: the function, when used without parentheses.
        name: the agent's name; default: the function's.
        tags: tags of its runs.
        snapshot: what else its decisions depend on (ids and digests of prompt templates, feature flags, policies,
            versions of an index), or a function that tells it. Recorded at the start of each run; a replay asks for nothing.
        profile: what its recordings keep of values, over the settings: `full`, `redacted` or `digest_only`.
        sample: the share of its runs, from 0 to 1, that are kept by the profile, over the settings; of the others digests are kept.

    Raises:
        UsageError: there is no such profile, or the share is none.
    """
    kept = profile_named(profile), share_named(sample)

    def declare(written: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(written, staticmethod | classmethod):
            return _around_inside(written, declare)
        return _agent_wrapper(written, _About(written, name or _name_of(written), tuple(tags), snapshot, *kept))

    return declare if function is None else declare(function)


def told(snapshot: Depends | None) -> Callable[[], Json] | None:
    """How an opener asks for what a run depends on besides what is found by itself."""
    if snapshot is None:
        return None
    return lambda: codecs.encode(dict(snapshot() if callable(snapshot) else snapshot)).wire


def as_agent(function: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
    """The function as an agent: itself if it is one already."""
    return function if hasattr(function, "__loupe_agent__") else agent(name=name or _name_of(function))(function)


def agents_in(names: Mapping[str, object]) -> dict[str, Callable[..., Any]]:
    """The agents among the names of a module, by their own names."""
    found: dict[str, Callable[..., Any]] = {}
    for value in names.values():
        name = getattr(value, "__loupe_agent__", None)
        if isinstance(name, str) and callable(value):
            found[name] = value
    return found


def _name_of(function: Callable[..., Any]) -> str:
    """The function's name; of a partial that of what it calls, of an object that of its class."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    name = getattr(function, "__name__", None) or type(function).__name__
    return "agent" if name == "<lambda>" else name


def _around_inside(written: Any, declare: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Any:
    """A `staticmethod` or `classmethod` of the declared function: it stays what it was, in whichever order they stand."""
    return type(written)(declare(written.__func__))


def _kind_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function to look at for what calling it gives: of an object its `__call__`, of a partial what it calls."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    plain = inspect.isroutine(function) or inspect.isclass(function)
    return function if plain else getattr(type(function), "__call__", function)  # noqa: B004  # the method itself


def _agent_wrapper(written: Callable[..., Any], about: _About) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(_kind_of(written)) or inspect.isasyncgenfunction(_kind_of(written)):
        wrapper: Any = _yielding_agent(written, about)
    elif inspect.iscoroutinefunction(_kind_of(written)):

        @functools.wraps(written)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            if ambient.in_run():
                return await ambient.acall(about.span(args, kwargs), lambda: written(*args, **kwargs))
            session = about.open(args, kwargs)
            try:
                with ambient.inside(session.boundary):
                    result = await written(*args, **kwargs)
            except BaseException as error:
                session.failed(error)
                raise
            session.finished(result)
            return result

        wrapper = asynchronous
    else:

        @functools.wraps(written)
        def synchronous(*args: Any, **kwargs: Any) -> Any:
            if ambient.in_run():
                return ambient.call(about.span(args, kwargs), lambda: written(*args, **kwargs))
            session = about.open(args, kwargs)
            try:
                with ambient.inside(session.boundary):
                    result = written(*args, **kwargs)
            except BaseException as error:
                session.failed(error)
                raise
            session.finished(result)
            return result

        wrapper = synchronous
    wrapper.__loupe_agent__ = about.name
    return wrapper


def _yielding_agent(written: Callable[..., Any], about: _About) -> Callable[..., Any]:
    relayed: Callable[..., Any] = yielding.steps if inspect.isgeneratorfunction(_kind_of(written)) else yielding.asteps

    @functools.wraps(written)
    def generating(*args: Any, **kwargs: Any) -> Any:
        def start() -> Any:
            return written(*args, **kwargs)

        def opening() -> Any:
            if ambient.in_run():
                span = replace(about.span(args, kwargs), encode=yielding.wire, decode=yielding.back)
                return yielding.open_span(span, start)
            return yielding.open_agent(about.open(args, kwargs), start)

        return relayed(opening)

    return generating


class _About:
    """What is said of an agent when it starts."""

    def __init__(
        self,
        written: Callable[..., Any],
        name: str,
        tags: tuple[str, ...],
        snapshot: Depends | None,
        profile: Profile | None,
        sample: float | None,
    ) -> None:
        self.name = name
        self._profile: Profile | None = profile
        self._sample = sample
        self._tags = tags
        self._snapshot = told(snapshot)
        self._written = written
        self._method = _first_parameter(written) in ("self", "cls")
        self._parameters = _names_of_positions(written)[1 if self._method else 0 :]
        self._source: str | None = None

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> codecs.Encoded:
        """What it is called with; of a method without `self`, so that it is replayed by a bound method."""
        return codecs.encode({"args": list(args[1:] if self._method else args), "kwargs": kwargs})

    def open(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from agentloupe.verbs.sessions import open_session

        if self._source is None:
            self._source = source_digest(self._written) or ""
        return open_session(
            Opening(
                agent=self.name,
                arguments=self.arguments(args, kwargs).wire,
                entry=entry_of(self._written),
                source_digest=self._source or None,
                tags=self._tags,
                parameters=self._parameters,
                snapshot=self._snapshot,
                profile=self._profile,
                sample=self._sample,
            )
        )

    def span(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        encoded = self.arguments(args, kwargs)
        lost = _lost(encoded)
        return Call(
            kind="agent",
            name=self.name,
            input=encoded.wire,
            encode=encode,
            decode=codecs.decode,
            lost=lost,
            parameters=self._parameters,
        )


def _names_of_positions(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of what a function may be given by position."""
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def _first_parameter(function: Callable[..., Any]) -> str | None:
    try:
        return next(iter(inspect.signature(function).parameters), None)
    except (TypeError, ValueError):
        return None


def source_digest(function: Callable[..., Any]) -> str | None:
    """Digest of a function's source text; `None` where there is none (a REPL, a built-in)."""
    try:
        return digest(inspect.getsource(inspect.unwrap(function)))
    except (OSError, TypeError):
        return None


def entry_of(function: Callable[..., Any]) -> str | None:
    """`module:function`; of a script its file's name without `.py`. `None` for what cannot be named (a closure)."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name or "<" in name:
        return None
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        file = getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file else "__main__"
    return f"{module}:{name}"
