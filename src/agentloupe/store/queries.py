"""Lists of runs: a `RunFilter` as SQL over facets, and as a plain test for stores without SQL.

A facet is a thing that lists filter by. Its table is kept in the order in which lists are shown, so that a page of any
list is one walk along an index, however many runs there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from agentloupe.words.run import Run, RunFilter
from agentloupe.words.step import Step

__all__ = [
    "FORKED",
    "LISTED",
    "NEWEST",
    "UNCOUNTED",
    "Facet",
    "FacetKey",
    "Sql",
    "conditions",
    "facets_of_run",
    "facets_of_steps",
    "matches",
    "newest",
    "page_of",
    "select_rows",
    "storable",
    "wanted_facets",
]


class Facet(IntEnum):
    """Kinds of facets; the numbers are stored."""

    AGENT = 1
    STATUS = 2
    TAG = 3
    TASK = 4
    TRACE = 5
    PARENT = 6
    TOOL = 7
    ERROR = 8
    MODEL = 9
    COVERAGE = 10
    MISSED = 11
    FORKED = 12
    NAME = 13
    OPEN = 14
    ROOT = 15


FacetKey = tuple[Facet, str]
Sql = tuple[str, list[object]]
"""A statement and its arguments."""

FORKED: FacetKey = (Facet.FORKED, "")
"""Of a run that forks were made of. The only facet that does not follow from the run itself; a trigger sets it."""
LISTED: Mapping[str, Facet] = {
    "agent": Facet.AGENT,
    "model": Facet.MODEL,
    "tool": Facet.TOOL,
    "tag": Facet.TAG,
    "status": Facet.STATUS,
    "coverage": Facet.COVERAGE,
    "missed": Facet.MISSED,
    "forked": Facet.FORKED,
}
"""Facets whose values can be asked for, by name."""
UNCOUNTED = (Facet.TASK, Facet.TRACE)
"""Facets that nearly every run has a value of its own of: how many have one is not kept."""


NEWEST = "ORDER BY f.started_at DESC, f.rid DESC"


def storable(text: str) -> str:
    r"""A text as SQLite can hold it: a lone surrogate, which UTF-8 has no bytes for, as its escape (`\ud800`)."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def facets_of_run(run: Run) -> set[FacetKey]:
    """What a list can find this run by, its steps apart."""
    single = (
        (Facet.AGENT, run.agent),
        (Facet.STATUS, run.status),
        (Facet.TASK, run.task_id),
        (Facet.TRACE, run.trace_id),
        (Facet.PARENT, run.parent_run_id),
        (Facet.COVERAGE, run.coverage),
        (Facet.NAME, run.name),
        (Facet.MISSED, "" if run.counts.miss else None),
        (Facet.OPEN, "" if run.open_effects else None),
        (Facet.ROOT, "" if run.parent_run_id is None else None),
    )
    found = {(kind, storable(value)) for kind, value in single if value is not None}
    found.update((Facet.TAG, storable(tag)) for tag in run.tags)
    if run.error:
        found.update(_error_names(run.error.partition(":")[0]))
    return found


def facets_of_steps(steps: Iterable[Step]) -> set[FacetKey]:
    """Tools that were called, models that were asked, and classes of errors that happened."""
    found: set[FacetKey] = set()
    for step in steps:
        if step.kind == "tool":
            found.add((Facet.TOOL, storable(step.name)))
        elif step.kind == "llm" and step.model is not None:
            found.add((Facet.MODEL, storable(step.model)))
        if step.error_class:
            found.update(_error_names(step.error_class))
    return found


def _error_names(error_class: str) -> Iterable[FacetKey]:
    """An error is found by its whole class path and by its class alone."""
    path = storable(error_class)
    yield Facet.ERROR, path
    yield Facet.ERROR, path.rpartition(".")[2]


def wanted_facets(wanted: RunFilter) -> list[FacetKey]:
    """The facets that a filter asks for, rarest kinds first; the status is left to `status_rows`."""
    asked = (
        (Facet.TASK, wanted.task_id),
        (Facet.TRACE, wanted.trace_id),
        (Facet.PARENT, wanted.parent_run_id),
        (Facet.NAME, wanted.name),
        (Facet.ERROR, wanted.error),
        (Facet.MISSED, "" if wanted.missed else None),
        (Facet.OPEN, "" if wanted.open_effects else None),
        (Facet.FORKED, "" if wanted.forked else None),
        (Facet.ROOT, "" if wanted.roots else None),
        (Facet.TAG, wanted.tag),
        (Facet.TOOL, wanted.tool),
        (Facet.MODEL, wanted.model),
        (Facet.COVERAGE, wanted.coverage),
        (Facet.AGENT, wanted.agent),
        (Facet.STATUS, "running" if wanted.status == "interrupted" else wanted.status),
    )
    return [(kind, storable(value)) for kind, value in asked if value is not None]


def conditions(
    wanted: RunFilter, at: str, facets: Iterable[FacetKey] | None = None, *, of_runs: bool = False
) -> tuple[list[str], list[object]]:
    """SQL tests of everything that a filter asks for, its text apart, and their arguments.

    `at`: the table that gives `started_at` and `rid`; `of_runs`: it is that of runs. `facets`: those to test; default: all.
    """
    where: list[str] = []
    args: list[object] = []
    for kind, value in wanted_facets(wanted) if facets is None else facets:
        has = "EXISTS (SELECT 1 FROM facets g WHERE g.kind = ? AND g.value = ?"
        where.append(f"{has} AND g.started_at = {at}.started_at AND g.rid = {at}.rid)")
        args += [int(kind), value]
    for test, value in ((">=", wanted.since), ("<", wanted.until)):
        if value is not None:
            where.append(f"{at}.started_at {test} ?")
            args.append(value)
    if wanted.id_prefix is not None:
        between = "{}.id >= ? AND {}.id < ?"
        within = f"EXISTS (SELECT 1 FROM runs p WHERE p.rid = {at}.rid AND {between.format('p', 'p')})"  # noqa: S608  # our own text
        where.append(between.format(at, at) if of_runs else within)
        prefix = storable(wanted.id_prefix)
        args += [prefix, prefix + "\U0010ffff"]
    return where, args


def select_rows(wanted: RunFilter, rarest: Mapping[FacetKey, int] | None = None) -> Sql:
    """SQL and its arguments that select `started_at` and `rid` of the runs that a filter wants, its text apart, in no order.

    `rarest` tells how many runs have a facet: the rarest one is walked along, and the others are looked up. Only indexes
    are read, so that what a page leaves out costs little.
    """
    facets = wanted_facets(wanted)
    if rarest is not None:
        facets.sort(key=lambda facet: rarest.get(facet, 0))
    source, first, args = "runs f", "f.started_at IS NOT NULL", list[object]()
    if facets:
        source, first, args = "facets f", "f.kind = ? AND f.value = ?", [int(facets[0][0]), facets[0][1]]
    where, more = conditions(wanted, "f", facets[1:], of_runs=not facets)
    return f"SELECT f.started_at, f.rid FROM {source} WHERE {' AND '.join([first, *where])}", [*args, *more]  # noqa: S608  # our own text, values are bound


def page_of(rows: Sql, wanted: RunFilter) -> Sql:
    """The page of ordered rows that a filter wants."""
    sql, args = rows
    return f"{sql} LIMIT ? OFFSET ?", [*args, -1 if wanted.limit is None else wanted.limit, wanted.offset]


def newest(what: str, rows: Sql, wanted: RunFilter, *, paged: bool = True) -> Sql:
    """SQL and its arguments that select `what` (columns of runs `r`) of `rows`, newest first; a page of them, if `paged`.

    `interrupted` selects what says `running`: whether the owner lives is seen on reading.
    """
    sql, args = rows
    if paged:
        sql, args = page_of((f"{sql} {NEWEST}", args), wanted)
    return f"SELECT {what} FROM ({sql}) f JOIN runs r ON r.rid = f.rid WHERE r.row IS NOT NULL {NEWEST}", args  # noqa: S608  # our own text


def matches(run: Run, facets: set[FacetKey], wanted: RunFilter) -> bool:
    """Whether a run, with the facets of its steps, is wanted."""
    if wanted.status is not None and run.status != wanted.status:
        return False
    have = facets | facets_of_run(run)
    if any(f not in have for f in wanted_facets(wanted) if f[0] is not Facet.STATUS):
        return False
    if wanted.since is not None and run.started_at < wanted.since:
        return False
    if wanted.until is not None and run.started_at >= wanted.until:
        return False
    if wanted.text is not None:
        text = storable(wanted.text)
        if not run.id.startswith(text) and _lower(text) not in _lower(storable(run.name)):
            return False
    return wanted.id_prefix is None or run.id.startswith(storable(wanted.id_prefix))


def _lower(text: str) -> str:
    """ASCII letters in lower case, others as they are: what SQLite's `lower` does."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)
