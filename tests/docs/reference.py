"""Writes the generated parts of the documentation: `make docs-reference`. The tests say when they are stale.

Generated are the whole of `reference/commands.md`, `reference/python.md` and `reference/api.md`, and the reports in the guides.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest import mock

import agentloupe as loupe
from tests.docs.api import api_page
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
        "aiohttp_middleware",
        "record",
        "arecord",
        "recording",
        "Recorded",
        "register_type",
    ),
    "What a program reads and says": (
        *("now", "random", "rng", "uuid4", "env", "retrieve", "state", "check", "patched"),
        *("idempotency_key", "receipt", "traceparent", "prompt"),
    ),
    "Replay": ("replay", "resume", "Resumed", "CallBoundary", "ReplayMismatch"),
    "Effects": ("open_effects", "settle_effect", "Done", "Failed", "NotDone", "DontKnow", "OutcomeUnknown"),
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
    from agentloupe.cli.app import GROUPS, VERBS

    parts = [
        f"# Commands\n\n{_MADE}\n\nWhat `--help` says. [Exit codes](exit-codes.md) are the same for all of them.\n",
        f"```text\n{help_of()}\n```\n",
    ]
    for verb in VERBS:
        parts.append(f"## {verb}\n\n```text\n{help_of(verb)}\n```\n")
        parts += [f"### {verb} {own}\n\n```text\n{help_of(verb, own)}\n```\n" for own in GROUPS.get(verb, ())]
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


_MADE_PART = re.compile(r"(<!-- made: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n"


def _ledger_parts() -> dict[str, str]:
    """The tables of `reference/ledger.md`, from the code that reads and writes the form."""
    from agentloupe.engine.ledger.checks import GUARDS, RULES
    from agentloupe.engine.ledger.reducer import SIGNALS, TABLE
    from agentloupe.words.ledger import ROWS
    from tests.ledger.mutations import COLUMNS
    from tests.ledger.test_mutations import table_of_mutations

    def ticked(names: Iterable[str | None]) -> str:
        return ", ".join("the beginning" if name is None else f"`{name}`" for name in names)

    kinds = [(f"`{r.kind}`", f"`{r.type}`", r.says, ticked(r.after), ticked(r.needs)) for r in ROWS]
    checks = [
        (str(n), f"`{g.name}`", g.proves, "0 and 1" if g.name in RULES[0] else "1") for n, g in enumerate(GUARDS, 1)
    ]
    states: list[tuple[str, ...]] = []
    for signal, moves in TABLE.items():
        for there in dict.fromkeys(moves.values()):
            sources = ", ".join(source or "nothing" for source, target in moves.items() if target == there)
            states.append((SIGNALS[signal], sources, f"`{there}`"))
    return {
        "kinds": _table(("kind", "event", "meaning", "may follow, in its call", "its payload needs"), kinds),
        "checks": _table(("", "check", "proves that", "rules"), checks),
        "states": _table(("signal", "from", "to"), states),
        "mutations": _table(("what", "what was done to it", *COLUMNS), table_of_mutations()),
    }


def ledger_page() -> str:
    """`reference/ledger.md`, with its tables as they should be."""
    made = _ledger_parts()
    text = (DOCS / "reference" / "ledger.md").read_text("utf-8")
    return _MADE_PART.sub(lambda found: found[1] + made[found[2]] + found[4], text)


def evidence_page(folder: Path) -> str:
    """`guides/evidence.md`, with its tables as they should be."""
    from tests.store.test_forgeries import tables

    place = folder / "forgeries"
    place.mkdir()
    found = tables(place)
    edits = ("what", "what was done to it", "in place", "re-linked")
    heads = {
        "store_forgeries": edits,
        "loupe_forgeries": edits,
        "anchor_forgeries": ("what was done to it", "found by"),
    }
    text = (DOCS / "guides" / "evidence.md").read_text("utf-8")
    return _MADE_PART.sub(lambda m: m[1] + _table(heads[m[2]], found[m[2]]) + m[4], text)


def points_page() -> str:
    """`internals/fault-points.md`, with its table as it should be."""
    from agentloupe.ports.faultpoints import POINTS
    from tests.unit.test_faultpoints import reached

    places = reached()
    rows = [(f"`{point}`", f"`{places[point]}`", holds) for point, holds in POINTS.items()]
    made = _table(("point", "where", "what must hold after"), rows)
    text = (DOCS / "internals" / "fault-points.md").read_text("utf-8")
    return _MADE_PART.sub(lambda found: found[1] + made + found[4], text)


def http_page() -> str:
    """`reference/api.md`."""
    from agentloupe.server.app import openapi

    return api_page(openapi(), _MADE)


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
    yield DOCS / "reference" / "ledger.md", ledger_page()
    yield DOCS / "reference" / "api.md", http_page()
    yield DOCS / "guides" / "evidence.md", evidence_page(folder)
    yield DOCS / "internals" / "fault-points.md", points_page()
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
