"""Finds the verb, loads its module, and turns every failure into one line and an exit code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from traceback import format_exception
from typing import Annotated, Any, cast

import typer
from typer import exceptions
from typer._click.exceptions import (
    ClickException,
)  # typer exports no base of its usage errors
from typer._click.exceptions import (
    UsageError as ClickUsage,
)

from agentloupe.cli.output import Output, fail, harmless, short
from agentloupe.words.errors import LoupeError, ReplayMismatch

__all__ = ["GROUPS", "VERBS", "run"]

VERBS: dict[str, str] = {
    "demo": "record, replay, fork and compare a real agent",
    "run": "run a program as it is, and record it",
    "list": "list runs, newest first",
    "show": "show a run as a tree, or one step whole",
    "replay": "drive the same code over a recording, offline, to the first divergence",
    "resume": "go on with a run whose process was killed",
    "effects": "list what was begun and nobody saw end, and settle it",
    "fork": "start a new run from a model step of an old one, with changes",
    "compare": "align two runs step by step, or put several in one table",
    "serve": "open the page: find, fork and compare runs in a browser",
    "worker": "run forks and replays of your own agents for the page",
    "doctor": "run an agent and list what escapes the boundary, with file and line",
    "verify": "check a recording's numbers, chain, bodies and anchors",
    "anchor": "sign where the runs end, in a file outside the database",
    "export": "write a run to a .loupe or .jsonl file",
    "import": "read runs from files",
    "ledger": "hand a run over as a folder of files, and replay such a folder without code",
    "rebuild": "make the lists anew from the events and say what differed",
    "delete": "delete a run's bodies; its events stay as evidence",
    "prune": "delete old runs",
    "gc": "remove bodies that no run needs, and give space back",
    "size": "say how much there is",
}
"""Every verb with what its line in the overview says."""

GROUPS: dict[str, tuple[str, ...]] = {
    "anchor": ("keygen", "write", "prove"),
    "ledger": ("replay", "compare", "salvage", "migrate", "export", "import"),
    "effects": ("list", "settle", "publish"),
}
"""Verbs that have verbs of their own."""
UNSAID = {"effects": "list"}
"""Which of its own verbs is meant where a verb is given without one."""

EPILOG = """Exit codes: 0 pass or done, 1 diverged or failed check, 2 damaged evidence, 3 could not run or refused, 64 wrong usage.

RUN is an id, a unique beginning of one, last, or last~1. The database: --db, LOUPE_DB, or .loupe/loupe.db beside the project."""


def run(argv: list[str]) -> int:
    """Runs `argv` and returns the exit code."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    debug, as_json = "--debug" in own, "--json" in own
    argv = _said(argv)
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 still gets every line
    try:
        with _children_told(debug), _in_the_callers_trace():
            code = _build(own)(args=argv, prog_name="agentloupe", standalone_mode=False)
        sys.stdout.flush()
    except exceptions.Exit as done:
        return done.exit_code
    except BrokenPipeError:
        return _reader_left()
    except _Ended as ended:
        if isinstance(ended.cause, BrokenPipeError):
            return _reader_left()
        return _failed(ended.cause, as_json=as_json)
    except (Exception, KeyboardInterrupt, ReplayMismatch) as error:  # noqa: BLE001  # the last place: each becomes a line
        if debug and not isinstance(error, (ClickException, exceptions.Abort)):
            sys.stderr.write(harmless("".join(format_exception(error))))
        return _failed(error, as_json=as_json)
    return code if isinstance(code, int) else 0


def _open_what_is_closed() -> None:
    """A stream that whoever started us closed leads nowhere: else the next file that is opened takes its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # open as long as we are


def _children_told(debug: bool) -> AbstractContextManager[None]:
    """Children that the command starts are told of `--debug` by a variable; whoever ran the command here has it as before."""
    if not debug:
        return nullcontext()
    from agentloupe.ports.environment import variables

    return variables({"LOUPE_DEBUG": "1"})


def _in_the_callers_trace() -> AbstractContextManager[None]:
    """Runs that the command makes belong to the trace of whoever started it, as the variable `TRACEPARENT` tells."""
    if "TRACEPARENT" not in os.environ:
        return nullcontext()
    from agentloupe.ports.tracing import arriving, of_environment

    return arriving(of_environment(os.environ))


def _said(argv: list[str]) -> list[str]:
    """The command line with the verb that goes without saying (`effects` means `effects list`)."""
    verb = argv[0] if argv else ""
    if verb not in UNSAID or (argv[1:] and argv[1] in (*GROUPS[verb], "--help", "-h")):
        return argv
    return [verb, UNSAID[verb], *argv[1:]]


def _reader_left() -> int:
    """Who read our output wants no more of it: no error, and nothing more is written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _failed(error: BaseException, *, as_json: bool) -> int:
    """Every way to fail, as one line and an exit code."""
    match error:
        case ClickUsage():
            return fail(_usage(error), code=64, slug="usage", hint=_usage_hint(error), as_json=as_json)
        case ClickException():
            return fail(error.format_message(), code=3, slug="error", as_json=as_json)
        case exceptions.Abort() | KeyboardInterrupt():
            return fail("interrupted; what was recorded so far is kept", code=130, slug="interrupted", as_json=as_json)
        case ReplayMismatch():
            return fail(error.message, code=1, slug=error.kind, as_json=as_json)
        case LoupeError():
            slug, why = error.code, error.reason
            return fail(error.message, code=error.exit_code, slug=slug, reason=why, hint=error.hint, as_json=as_json)
        case OSError():
            return fail(_os_message(error), code=3, slug="os", as_json=as_json)
        case _:
            hint = "this is a fault of agentloupe itself; run the command again with --debug and report what it prints"
            return fail(f"{type(error).__name__}: {error}", code=3, slug="internal", hint=hint, as_json=as_json)


def _build(argv: list[str]) -> typer.Typer:
    app = typer.Typer(
        name="agentloupe",
        help="A time-travel debugger for AI agents.",
        epilog=EPILOG,
        invoke_without_command=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_top)
    verb = next((word for word in argv if not word.startswith("-")), None)
    for name, summary in VERBS.items():
        settings = {"ignore_unknown_options": False, "allow_extra_args": False}
        if name == verb:
            module = import_module(f"agentloupe.cli.{name}_" if name == "import" else f"agentloupe.cli.{name}")
            if name in GROUPS:
                app.add_typer(_group(name, module.COMMANDS, settings), name=name, help=summary)
            else:
                app.command(name, context_settings=settings)(_ours(module.command))
        else:
            app.command(name, help=summary)(_not_loaded)
    return app


def _group(name: str, commands: Mapping[str, Callable[..., None]], settings: dict[str, bool]) -> typer.Typer:
    """A verb that has verbs of its own."""
    group = typer.Typer(name=name, no_args_is_help=True, rich_markup_mode=None)
    for verb in GROUPS[name]:
        group.command(verb, context_settings=settings)(_ours(commands[verb]))
    return group


class _Ended(Exception):
    """A verb was ended from outside. The command line's library would make exit codes of its own of what is inside."""

    def __init__(self, cause: KeyboardInterrupt | BrokenPipeError) -> None:
        super().__init__()
        self.cause = cause


def _ours(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb, with what ends it from outside kept for `run`."""

    @wraps(verb)
    def kept(*args: Any, **kwargs: Any) -> None:
        try:
            verb(*args, **kwargs)
        except (KeyboardInterrupt, BrokenPipeError) as ended:
            raise _Ended(ended) from ended

    return kept


def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        from agentloupe import __version__

        Output().line(f"agentloupe {__version__}")
    elif context.invoked_subcommand is None:
        Output().line(context.get_help())


def _not_loaded() -> None:
    """Stands in the overview for a verb whose module was not needed."""
    raise AssertionError("a verb runs only after its module is loaded")


def _usage(wrong: ClickUsage) -> str:
    """What is wrong on the command line, without the words of the library that reads numbers."""
    given = _given(wrong)
    said = re.sub(
        r"Input should be a valid (?:integer|number), unable to parse string as an? \w+",
        lambda _: f"{given} is not a number" if given else "not a number",
        wrong.format_message(),
    )
    return said.replace("Input should be", f"{given} should be".lstrip())


def _given(wrong: ClickUsage) -> str:
    """The value that is wrong, in quotes; empty where the library of numbers does not tell it."""
    errors = getattr(wrong.__cause__, "errors", None)
    found = cast("list[dict[str, object]]", errors()) if callable(errors) else []
    return short(repr(found[0].get("input"))) if found else ""


def _usage_hint(wrong: ClickUsage) -> str:
    path = wrong.ctx.command_path if wrong.ctx else "agentloupe"
    return f"see {path} --help"


def _os_message(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or type(error).__name__}"
