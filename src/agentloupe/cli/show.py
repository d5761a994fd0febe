"""`agentloupe show`: a run as a tree, or one step whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

from agentloupe.cli.common import AsJson, Database, Debug, RunRef, opened
from agentloupe.cli.output import Output, harmless, number_of, pretty, short
from agentloupe.cli.views import (
    cost_text,
    counts_text,
    run_json,
    seconds_text,
    status_style,
    step_json,
    tokens_text,
)
from agentloupe.engine.overrides import tool_names
from agentloupe.ports.recording import Recording
from agentloupe.verbs.elsewhere import warning_of
from agentloupe.words.dialects import text_in, tools_in, without_tools
from agentloupe.words.errors import StepNotFound
from agentloupe.words.jsontext import Json
from agentloupe.words.prompts import PROMPT, prompt_of
from agentloupe.words.run import Run, RunFilter
from agentloupe.words.step import Step, Trace

_SOURCE_STYLES = {"miss": "bold red", "cassette": "blue", "recorded": "dim", "live": ""}


def command(
    run: RunRef,
    step: Annotated[
        int | None, typer.Argument(metavar="[STEP]", help="Show this step whole.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many steps.")] = 200,
    first: Annotated[int, typer.Option("--first", min=0, help="Begin with this step.")] = 0,
    tools: Annotated[
        bool, typer.Option("--tools", help="With STEP: show the tools that the model was told of whole.")
    ] = False,
    headers: Annotated[bool, typer.Option("--headers", help="With --json: leave out inputs and outputs.")] = False,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Show a run as a tree of steps, or one step with all that was sent and came back.

    Examples: agentloupe show last; agentloupe show last 3; agentloupe show last 3 --tools
    """
    from agentloupe.engine.project import load_step
    from agentloupe.engine.snapshots import read_snapshot
    from agentloupe.providers.assembling import assembled
    from agentloupe.verbs.api import resolve
    from agentloupe.verbs.pricing import priced_trace

    out = Output(as_json)
    with opened(db) as store:
        run_id = resolve(store, run)
        recording = store.recording(run_id)
        row = store.run(run_id)
        assert row is not None
        trace = priced_trace(Trace(row, tuple(store.steps(run_id))))
        forks = store.runs(RunFilter(parent_run_id=run_id, limit=None))
        if step is not None:
            whole = load_step(recording, _step(trace, step), assembled)
            response = _response(recording.body(whole.output_digest), whole) if whole.loaded else None
            _show_step(out, whole, response, tools, _nearest(recording, whole))
            return
        changes = changes_of(recording)
        ran_on = read_snapshot(recording.events[0] if recording.events else None, recording.body)
        chosen = trace.steps[first : first + limit] if not as_json else trace.steps[first:]
        steps = chosen if headers else [load_step(recording, item, assembled) for item in chosen]
    if as_json:
        out.document(
            {
                "run": run_json(trace.run),
                "forks": [fork.id for fork in forks],
                "snapshot": {
                    "digest": ran_on.digest,
                    "facts": dict(ran_on.facts),
                    "packages": dict[str, Json](ran_on.packages),
                },
                "steps": [step_json(s) for s in steps],
            }
        )
        return
    _show_run(out, trace.run, forks, changes, gone=bool(row.step_count) and not trace.steps)
    out.line(f"  {ran_on.line()}", style="dim")
    show_tree(out, steps)
    if len(steps) < len(trace.steps):
        out.line(f"steps {first} to {first + len(steps) - 1} of {len(trace.steps)}; more with --first and --limit")


def _step(trace: Trace, idx: int) -> Step:
    if not 0 <= idx < len(trace.steps):
        there = f"steps are 0 to {len(trace.steps) - 1}" if trace.steps else "it has no steps"
        raise StepNotFound(f"{trace.run.id} has no step {idx}", hint=there)
    return trace.steps[idx]


# --- a run ------------------------------------------------------------------------------------------------------------


def _show_run(out: Output, run: Run, forks: Sequence[Run], changes: Sequence[str], *, gone: bool) -> None:
    out.line(f"{run.id}  {run.status}", style=f"bold {status_style(run.status)}".strip())
    took = seconds_text(run.started_at, run.ended_at)
    out.line(
        f"  {run.name}: agent {run.agent}, started {run.started_at[:19].replace('T', ' ')} UTC"
        + (f", took {took}" if took else "")
    )
    spent = (
        ""
        if run.parent_run_id is None
        else f"; newly spent {tokens_text(run.new_input_tokens, run.new_output_tokens)}, {cost_text(run.new_cost)}"
    )
    tokens = tokens_text(run.total_input_tokens, run.total_output_tokens, run.usage_complete)
    out.line(f"  tokens {tokens}; cost {cost_text(run.cost, run.cost_complete)}{spent}")
    if run.parent_run_id is not None:
        _show_lineage(out, run, changes)
    notes = "".join(f"; {note}" for note in run.coverage_notes)
    out.line(f"  coverage {run.coverage}{notes}", style="yellow" if run.coverage != "full" else "dim")
    if run.fidelity:
        out.line(f"  imported: {run.fidelity}", style="yellow")
    if run.elsewhere:
        out.line(f"  {warning_of(run.id)}", style="yellow")
    if gone:
        out.line(f"  its content was deleted; {run.events} events stay: agentloupe verify {run.id}", style="yellow")
    if run.error:
        out.line(f"  {run.error}", style="red")
    if run.tags:
        out.line(f"  tags {', '.join(run.tags)}")
    if forks:
        out.line(
            f"  forked {number_of(len(forks), 'time')}: {', '.join(fork.id for fork in forks[:5])}{' ...' if len(forks) > 5 else ''}"
        )


def _show_lineage(out: Output, run: Run, changes: Sequence[str]) -> None:
    at = "start" if run.forked_from_step is None else f"step {run.forked_from_step}"
    arm = f", {run.arm}" if run.arm else ""
    out.line(f"  fork of {run.parent_run_id} from {at}{arm}; tools answered by: {counts_text(run)}")
    for change in changes or [str(override.get("path", override)) for override in run.overrides]:
        out.line(f"  changed: {change}", style="cyan")
    if run.label == "hypothetical":
        since = "" if run.hypothetical_from is None else f" from step {run.hypothetical_from} on"
        out.line(
            f"  hypothetical{since}: some answers were neither real nor recorded for that very call", style="yellow"
        )
    elif run.label:
        out.line(f"  {run.label}: every answer was real, or recorded for that very call", style="green")


def changes_of(recording: Recording) -> list[str]:
    """What a fork changed, a line each; empty where that is not there any more."""
    listed = recording.body_if_there(recording.events[0].bodies.get("overrides")) if recording.events else None
    changes = [change for change in listed if isinstance(change, dict)] if isinstance(listed, list) else []
    return [
        f"{change.get('path')} taken out"
        if change.get("op") == "remove"
        else f"{change.get('path')} = {short(change.get('value'), 160)}"
        for change in changes
    ]


def show_tree(out: Output, steps: Sequence[Step]) -> None:
    """Draws steps as a tree, each with what it said in a line."""
    from rich.text import Text
    from rich.tree import Tree

    root = Tree("", hide_root=True, guide_style="dim")
    places: dict[int, Tree] = {}
    width = max(min(out.console.width, 160) - 24, 40)
    for step in steps:
        above = places.get(step.parent_idx, root) if step.parent_idx is not None else root
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{step.idx:>3} ", style="bold")
        line.append(f"{step.kind} ", style="dim")
        line.append(harmless(step.name), style="" if step.status in ("ok", "open") else "red")
        line.append(_figures(step), style="dim")
        if step.source != "live":
            line.append(
                f" [{step.source}{', reused' if step.attrs.get('reused') else ''}]",
                style=_SOURCE_STYLES.get(step.source, "magenta"),
            )
        node = above.add(line)
        said = _said(step, width)
        if said:
            line.append(f"\n    {said}", style="red" if step.error else "")
        places[step.idx] = node
    out.draw(root)


def _figures(step: Step) -> str:
    took = seconds_text(step.started_at, step.ended_at) if step.source != "recorded" else ""
    tokens = (
        f"{step.input_tokens} in {step.output_tokens} out"
        if step.kind == "llm" and step.input_tokens is not None
        else ""
    )
    tries = step.attrs.get("tries")
    again = f"{len(tries)} tries" if isinstance(tries, list) and len(tries) > 1 else ""
    state = "" if step.status == "ok" else step.status
    prompt = prompt_of(step.attrs) or ""
    return "".join(f"  {part}" for part in (step.effect or "", prompt, took, tokens, again, state) if part)


def _said(step: Step, width: int) -> str:
    """The step in a line: what a model answered, what a tool was asked and gave."""
    if step.error is not None:
        given = short(step.input, width // 2) + " -> " if step.kind == "tool" else ""
        return given + short(step.error, width - len(given))
    if not step.loaded:
        return f"({step.partial})" if step.partial else ""
    if step.kind == "llm":
        return short(_answer(step.output), width)
    if step.kind == "agent":
        return f"-> {short(step.output, width - 3)}" if step.status == "ok" else ""
    if step.input in (None, {}, []):
        return short(step.output, width)
    if step.status == "open":  # nothing came back yet, which a null would deny
        return short(step.input, width)
    half = width // 2 - 4
    return f"{short(step.input, half)} -> {short(step.output, half)}"


def _answer(message: Json) -> str:
    if not isinstance(message, dict):
        return short(message)
    calls = [_asked(call) for call in cast("list[Any]", message.get("tool_calls") or [])]
    content = message.get("content") or message.get("output")
    if isinstance(content, list):
        return " ".join(part for part in map(_part, content) if part)
    words = content if isinstance(content, str) else "" if content is None else short(content, 400)
    return " ".join(part for part in (words, *(f"=> {call}" for call in calls)) if part)


def _part(part: Json) -> str:
    """A content block of a message, or an item of a response: its text, or the tool that it asks for."""
    if not isinstance(part, dict):
        return short(part, 400)
    if isinstance(inner := part.get("content"), list):
        return " ".join(text for text in map(_part, inner) if text)
    if isinstance(text := part.get("text") or part.get("refusal"), str):
        return text
    asked = part.get("toolUse")
    call = asked if isinstance(asked, dict) else part
    if isinstance(name := call.get("name"), str):
        given = call.get("arguments", call.get("input"))
        return f"=> {name}({given if isinstance(given, str) else short(given, 400)})"
    return ""


def _asked(call: Any) -> str:
    whole = cast("dict[str, Any]", call) if isinstance(call, dict) else {}
    function = cast("dict[str, Any]", whole.get("function") or {})
    return f"{function.get('name', '?')}({function.get('arguments', '')})"


# --- a step -----------------------------------------------------------------------------------------------------------


def _response(value: Json, step: Step) -> Json:
    return value if step.kind == "llm" and step.error is None else None


def _nearest(recording: Recording, step: Step) -> Json:
    """Of a miss: the recorded call that came closest, with its difference, as it was told when the fork was made."""
    event = next((e for e in recording.events[step.first_seq - 1 : step.last_seq] if "nearest" in e.bodies), None)
    return recording.body_if_there(event.bodies["nearest"]) if event is not None else None


def _show_step(out: Output, step: Step, response: Json, tools: bool, nearest: Json) -> None:
    if out.as_json:
        more = {"response": response, "nearest": nearest}
        out.document({**step_json(step), **{name: value for name, value in more.items() if value is not None}})
        return
    out.line(f"step {step.idx}: {step.kind} {step.name}  {step.status}", style="bold")
    for name, value in _facts(step):
        out.line(f"  {name}: {value}")
    if step.partial:
        out.line(f"  not complete: {step.partial}", style="yellow")
    if not step.loaded:
        return
    if step.kind == "llm" and isinstance(step.input, dict):
        _show_request(out, step.input, tools)
    elif step.input is not None:
        _block(out, "input", step.input)
    if step.error is not None:
        _block(out, "error", step.error)
    if step.error is None or step.output is not None:
        _block(out, "answer" if step.kind == "llm" else "output", step.output)
    if nearest is not None:
        out.line(str(nearest), style="yellow")


def _facts(step: Step) -> list[tuple[str, str]]:
    facts = [
        ("started", step.started_at),
        ("took", seconds_text(step.started_at, step.ended_at)),
        ("answered by", step.source),
        ("effect", step.effect or ""),
        ("prompt", prompt_of(step.attrs) or ""),
        ("tokens", tokens_text(step.input_tokens, step.output_tokens) if step.kind == "llm" else ""),
        ("cost", cost_text(step.cost) if step.kind == "llm" else ""),
        ("events", f"{step.first_seq} to {step.last_seq}"),
        ("matching key", (step.input_key or "")[:12]),
    ]
    facts += [(name, short(value, 120)) for name, value in step.attrs.items() if name not in ("tries", PROMPT)]
    return [*((name, value) for name, value in facts if value), *_tries(step.attrs.get("tries"))]


def _tries(tries: Json) -> list[tuple[str, str]]:
    """Each attempt of the client library inside the call, a line each."""
    listed = [one for one in tries if isinstance(one, dict)] if isinstance(tries, list) else []
    told: list[tuple[str, str]] = []
    for number, one in enumerate(listed, 1):
        parts = [f"status {one['status']}" if one.get("status") is not None else "no answer"]
        parts += [f"{one['ms']:.0f} ms"] if isinstance(one.get("ms"), int | float) else []
        parts += [short(one["error"], 100)] if one.get("error") is not None else []
        told.append((f"try {number}", ", ".join(parts)))
    return told


def _show_request(out: Output, request: dict[str, Json], whole_tools: bool) -> None:
    system = request.get("system")
    if system is not None:
        _block(out, "system", text_in({"content": system}))
    messages = request.get("messages")
    for message in messages if isinstance(messages, list) else []:
        role = message.get("role", "?") if isinstance(message, dict) else "?"
        if (
            isinstance(message, dict)
            and isinstance(message.get("content"), str)
            and message.keys() <= {"role", "content"}
        ):
            _block(out, f"{role}", message["content"])
        else:
            _block(out, f"{role}", message)
    tools = tools_in(request)
    if tools:
        names = ", ".join(name for tool in tools for name in tool_names([tool]) or [short(tool, 40)])
        _block(out, f"tools ({len(tools)})", tools if whole_tools else f"{names}   (whole with --tools)")
    rest = {name: value for name, value in without_tools(request).items() if name not in ("messages", "system")}
    if rest:
        _block(out, "parameters", rest)


def _block(out: Output, title: str, value: Json) -> None:
    out.line(f"--- {title}", style="bold")
    out.line(value if isinstance(value, str) else pretty(value))
