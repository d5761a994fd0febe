"""`agentloupe effects`: writes of which nobody saw the end, listed and settled; and messages for the outside, delivered."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from agentloupe.cli.common import AsJson, Database, Debug, RunRef, opened, text_given
from agentloupe.cli.output import Output, harmless, number_of
from agentloupe.words.canonical import Json
from agentloupe.words.effects import SettledOutcome
from agentloupe.words.errors import StoreError, UsageError
from agentloupe.words.jsontext import loads

if TYPE_CHECKING:
    from agentloupe.verbs.effects import OpenEffects

_WORDS: Final[Mapping[str, SettledOutcome]] = {"done": "finished", "failed": "failed", "not-done": "not_done"}


def list_(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="Only of this run. Default: of all runs.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Stop after so many, at the end of a run.")] = 100,
    cursor: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on where a list before has stopped.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """List effects that were begun and of which nobody has noted what became of them, newest run first.

    Ask whoever received them, by the key; then say it with `agentloupe effects settle`, or resume the run if its tool has
    a lookup. Exit code 0, also where there are some. Example: agentloupe effects list
    """
    found = _found(db, run, limit, cursor)
    out = Output(as_json)
    if as_json:
        out.document({"items": [effect.as_json() for effect in found.items], "cursor": found.cursor})
        return
    if not found.items:
        out.line("no open effects")
        return
    _table(out, found)
    if found.cursor is not None:
        out.line(f"there are more: agentloupe effects list --cursor {found.cursor}")


def _found(db: str | None, run: str | None, limit: int, cursor: str | None) -> OpenEffects:
    """A page of open effects; none where there is no store yet, unless a person named one."""
    from agentloupe.verbs.effects import OpenEffects, open_effects

    try:
        with opened(db) as store:
            return open_effects(store, run, limit=limit, cursor=cursor)
    except StoreError as absent:
        named = db is not None or run is not None or os.environ.get("LOUPE_DB", "").strip()
        if absent.reason != "missing" or named:
            raise
        return OpenEffects(())


def _table(out: Output, found: OpenEffects) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("run, idempotency key, digest of arguments", "call", "tool", "begun (UTC)", "status", "lookup"):
        table.add_column(title, no_wrap=title == "call", overflow="fold")
    for effect in found.items:
        digest = (effect.arguments_digest or "")[:12]
        going_on = effect.run_status in ("running", "waiting")
        table.add_row(
            "\n  ".join(filter(None, (harmless(effect.run_id), harmless(effect.idempotency_key or ""), digest))),
            harmless(effect.call_id),
            harmless(effect.tool),
            effect.since[:19].replace("T", " "),
            f"{effect.status}, run goes on" if going_on else effect.status,
            "yes" if effect.lookup else "no",
        )
    out.draw(table)
    out.line(number_of(len(found.items), "open effect"))


def settle(
    run: RunRef,
    call: Annotated[
        str, typer.Argument(metavar="CALL", help="Id of the call, as the list has it.", show_default=False)
    ],
    outcome: Annotated[
        str, typer.Option(metavar="done|failed|not-done", help="What became of it.", show_default=False)
    ],
    why: Annotated[str, typer.Option(metavar="TEXT", help="How you know.", show_default=False)],
    result: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|@FILE",
            help="Of done: what the tool would have returned, null for nothing; the program gets it. Of failed: the error, as a JSON text.",
            show_default=False,
        ),
    ] = None,
    external_id: Annotated[
        str | None,
        typer.Option(
            "--external-id", metavar="ID", help="The id that the outside world gave to it.", show_default=False
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who says so. Default: the login name.", show_default=False)
    ] = None,
    force_owner: Annotated[
        bool,
        typer.Option("--force-owner", help="The run's process was on another host, and you know that it is gone."),
    ] = False,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Say what became of an open effect: one durable event, with who and why. The run then goes on with `resume`.

    An effect that was not done is done at the next resume, under the same idempotency key.
    Example: agentloupe effects settle last 0.3 --outcome done --result '{"charge": "ch_1"}' --why "the bank's list has it"
    """
    from agentloupe.verbs.effects import settle_effect

    if outcome not in _WORDS:
        raise UsageError(f"--outcome {outcome}: no such outcome", hint=f"one of {', '.join(_WORDS)}")
    if outcome == "done" and result is None:
        raise UsageError(
            "--outcome done needs --result: the program goes on with what the tool would have returned",
            hint="--result null, where it returns nothing",
        )
    with opened(db) as store:
        done = settle_effect(
            run,
            call,
            _WORDS[outcome],
            why=why,
            by=by,
            result=None if result is None else _json(result),
            external_id=external_id,
            store=store,
            force_owner=force_owner,
        )
    out = Output(as_json)
    if as_json:
        told: dict[str, Json] = {"run_id": done.run_id, "call_id": done.call_id, "tool": done.tool}
        out.document({**told, "outcome": done.outcome, "sequence": done.sequence})
    else:
        out.line(f"settled {done.tool} (call {done.call_id} of {done.run_id}): {outcome}, at sequence {done.sequence}")


def _json(given: str) -> Json:
    text = text_given(given, "--result")
    try:
        return loads(text)
    except ValueError as wrong:
        raise UsageError(f"--result is not JSON: {wrong}", hint="a text needs its quotes: '\"text\"'") from wrong


def publish(
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="The file that gets a JSON line for each.", show_default=False)
    ],
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes later, until Ctrl-C or a signal to end.")
    ] = False,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Deliver what waits in the outbox to a file, at least once and in order; a line is safe before it leaves the outbox.

    What is kept for it the setting `outbox` says; it is off by default. One publisher at a time.
    Example: agentloupe effects publish --to events.jsonl
    """
    from agentloupe.exporters.message_file import MessageFile
    from agentloupe.verbs.publishing import publish as deliver

    out = Output(as_json)
    with opened(db) as store, closing(MessageFile(to)) as sink:
        outbox = store.outbox
        with _until_told() if follow else nullcontext() as stop:
            done = deliver(outbox, sink, stop=stop)
        types, left = outbox.types(), outbox.count()
    if as_json:
        out.document({"delivered": done, "waiting": left, "types": sorted(types)})
        return
    out.line(f"{number_of(done, 'message')} delivered to {to}")
    if not types:
        out.line("the outbox is off: outbox = true in loupe.toml (or LOUPE_OUTBOX=on) turns it on for the next runs")


@contextmanager
def _until_told() -> Generator[threading.Event]:
    """An event that is set by Ctrl-C, or by the signal to end."""
    told = threading.Event()

    def end(*_: object) -> None:
        told.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


COMMANDS: Mapping[str, Callable[..., None]] = {"list": list_, "settle": settle, "publish": publish}
