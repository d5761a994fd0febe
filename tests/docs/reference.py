"""Writes the generated parts of the documentation: `make docs-reference`. The tests say when they are stale.

Generated are the whole of `reference/commands.md` and `reference/python.md`, and the reports in the guides.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import agentloupe as loupe
from tests.docs.divergences import reports
from tests.support import ROOT

DOCS = ROOT / "docs"
REPORTING = tuple(DOCS / "guides" / f"{name}.md" for name in ("replay", "when-a-replay-diverges", "streams-and-async"))
"""Guides that show reports."""
_MADE = "<!-- made by `make docs-reference`; edit the source instead -->"
_REPORT = re.compile(r"(<!-- report: (\w+) -->\n```text\n)(.*?)(```\n)", re.DOTALL)

_GROUPS = {
    "Recording": (
        "agent",
        "tool",
        "wrap",
        "wrap_openai",
        "http_transport",
        "requests_adapter",
        "record",
        "arecord",
        "recording",
        "Recorded",
        "register_type",
    ),
    "What a program reads and says": (
        *("now", "random", "rng", "uuid4", "env", "retrieve", "state", "check", "patched"),
        *("idempotency_key", "receipt"),
    ),
    "Replay": ("replay", "resume", "Resumed", "CallBoundary", "ReplayMismatch"),
    "Fork": ("fork", "fork_run", "Overrides", "apply_overrides", "Cassette", "messages_at"),
    "The plain loop": ("run_loop", "finish"),
    "Reading": ("compare", "open_store", "LoupeError"),
}


def help_of(*argv: str) -> str:
    """What `agentloupe ARGV --help` prints, at a width of 100."""
    from agentloupe.cli.app import run

    said = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}), contextlib.redirect_stdout(said):
        code = run([*argv, "--help"])
    assert code == 0
    return "\n".join(line.rstrip() for line in said.getvalue().splitlines()).strip()


def commands_page() -> str:
    """`reference/commands.md`."""
    from agentloupe.cli.app import VERBS

    parts = [
        f"# Commands\n\n{_MADE}\n\nWhat `--help` says. [Exit codes](exit-codes.md) are the same for all of them.\n",
        f"```text\n{help_of()}\n```\n",
    ]
    parts += [f"## {verb}\n\n```text\n{help_of(verb)}\n```\n" for verb in VERBS]
    return "\n".join(parts)


def _signature(name: str, thing: object) -> str:
    try:
        signature = inspect.signature(thing)  # type: ignore[arg-type]  # anything callable; else TypeError
    except (TypeError, ValueError):
        return name
    kept = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=kept, return_annotation=inspect.Signature.empty))
    return name + re.sub(r"<factory>", "...", text)


def _entry(name: str) -> str:
    thing = getattr(loupe, name)
    shown = "type" if name == "rng" else name
    said = inspect.getdoc(type(thing) if name == "rng" else thing) or ""
    signature = name if shown == "type" else _signature(name, thing)
    return f"### {name}\n\n```text\n{signature}\n\n{said.strip()}\n```\n"


def python_page() -> str:
    """`reference/python.md`."""
    parts = [
        f"# Python\n\n{_MADE}\n\nThe public names of `import agentloupe as loupe`, with their own words.\n",
        "Everything else may change without notice.\n",
    ]
    for title, names in _GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [_entry(name) for name in names]
    return "\n".join(parts)


def undocumented() -> set[str]:
    """Public names that no group lists, and listed ones that are not public."""
    return {name for group in _GROUPS.values() for name in group} ^ (set(loupe.__all__) - {"__version__"})


def reported() -> set[str]:
    """Names of the reports that the guides ask for."""
    return {found[2] for page in REPORTING for found in _REPORT.finditer(page.read_text("utf-8"))}


def pages(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every generated page with what it should say."""
    yield DOCS / "reference" / "commands.md", commands_page()
    yield DOCS / "reference" / "python.md", python_page()
    made = reports(folder)
    for page in REPORTING:
        text = page.read_text("utf-8")
        yield page, _REPORT.sub(lambda found: f"{found[1]}{made[found[2]]}\n{found[4]}", text)


def main() -> None:
    """Writes the pages and names them."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        for page, text in pages(Path(folder)):
            page.write_text(text, "utf-8")
            sys.stdout.write(f"{page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
