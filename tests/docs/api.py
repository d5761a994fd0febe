"""Writes `reference/api.md` from the server's OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentloupe.server.metrics import HELP

_TITLES = {
    "runs": "Runs",
    "steps": "Steps",
    "reading": "A run to read",
    "evidence": "Evidence",
    "comparing": "Comparing",
    "jobs": "Forks, replays and jobs",
    "exchange": "Files in and out",
    "streams": "Streams",
    "settings": "Settings",
    "about": "The server itself",
}
_HEAD = """\
Everything that [the page](../guides/serve.md) does goes through these routes. `GET /api/openapi.json` gives the same as OpenAPI 3.1, with every form
as JSON Schema and with an example of every request, answer and error, as a real server gave it; `python -m agentloupe.server.openapi` prints it without a
server.

Requests carry the token, as `Authorization: Bearer TOKEN`; `/healthz` and `/readyz` need none. Requests that change something also carry
`X-Loupe: 1`. Lists come in parts: `first` and `limit` choose one, `total` says how many there are, `next` is the `first` of the next part, or null.
Costs are decimals as text. Stored JSON is given out as it was stored, so integers may be larger than 2^53.

```sh
curl -H "Authorization: Bearer $TOKEN" 'http://127.0.0.1:8321/api/runs?limit=2&status=error'
curl -H "Authorization: Bearer $TOKEN" -H 'X-Loupe: 1' -H 'Content-Type: application/json' \\
  -d '{"from_step": 4, "overrides": {"temperature": 0}}' http://127.0.0.1:8321/api/runs/RUN/fork
```
"""
_STREAMS = """\
Streams are server-sent events (`text/event-stream`). The id of an event says up to where everything was told: a reader that comes back sends it as
`Last-Event-ID`, to this server or to another one over the same file, and gets exactly the rest. A comment comes every ten seconds while nothing happens;
`problem` tells an error in the shape above and ends the stream.
"""


def api_page(document: Mapping[str, Any], made: str) -> str:
    """The page. `made`: the line that says that it is generated."""
    forms: Mapping[str, Any] = document["components"]["schemas"]
    parts = [f"# HTTP API\n\n{made}\n\n{_HEAD}", _errors(document, forms)]
    for tag, title in _TITLES.items():
        parts.append(f"## {title}\n")
        if tag == "streams":
            parts.append(_STREAMS)
        parts += [_route(*route) for route in _routes(document, tag)]
    figures = [(f"`{name}`", kind, said) for name, (kind, said) in HELP.items()]
    parts.append(
        f"## Figures for Prometheus\n\nWhat `/metrics` tells:\n\n{_table(('figure', 'type', 'meaning'), figures)}"
    )
    parts.append("## Forms\n")
    parts += [_form(name, forms[name]) for name in sorted(forms) if not name.startswith(("HTTP", "Validation"))]
    return "\n".join(parts)


def untitled(document: Mapping[str, Any]) -> set[str]:
    """Tags of routes that the page has no heading for."""
    methods = (one for path in document["paths"].values() for one in path.values())
    return {tag for one in methods for tag in one.get("tags", ["none"])} - _TITLES.keys()


def _routes(document: Mapping[str, Any], tag: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            if route.get("tags", [])[:1] == [tag]:
                yield method.upper(), path, route


def _errors(document: Mapping[str, Any], forms: Mapping[str, Any]) -> str:
    responses = document["paths"]["/api/runs"]["get"]["responses"]
    rows = [(status, one["description"]) for status, one in responses.items() if status != "200"]
    example = json.dumps({"error": forms["Error"]["examples"][0]}, indent=2)
    return (
        f"## Errors\n\nAll have one shape. `reason` is a stable word, `hint` the way out, `place` the parameter, header or setting.\n\n"
        f"```json\n{example}\n```\n\n{_table(('status', 'meaning'), rows)}"
    )


def _route(method: str, path: str, route: Mapping[str, Any]) -> str:
    text = [f"### {method} {path}\n\n{_prose(route.get('description', ''))}\n"]
    asked = [
        (f"`{one['name']}`", one["in"], _type(one["schema"]), _default(one), _prose(one.get("description", "")))
        for one in route.get("parameters", [])
    ]
    if asked:
        text.append(_table(("parameter", "in", "type", "default", "meaning"), asked))
    body = route.get("requestBody")
    if body is not None:
        kind, said = next(iter(body["content"].items()))
        text.append(f"Body (`{kind}`): {_type(said['schema'])}.\n")
    for status, answer in route["responses"].items():
        if status.startswith("2"):
            text.append(f"Answers {status}{_answer(answer)}.\n")
    return "\n".join(text)


def _answer(answer: Mapping[str, Any]) -> str:
    content = answer.get("content")
    if not content:
        return ", without a body"
    kind, said = next(iter(content.items()))
    form = said.get("schema") or {}
    shown = _type(form) if form.get("$ref") or form.get("anyOf") else f"`{kind}`"
    own = answer["description"].rstrip(".")
    return f": {shown}" + ("" if own == "Successful Response" else f" ({own[0].lower()}{own[1:]})")


def _form(name: str, form: Mapping[str, Any]) -> str:
    needed = set(form.get("required", []))
    rows = [
        (
            f"`{member}`",
            _type(one),
            _prose(" ".join(text for text in (one.get("description", ""), _example(one)) if text)),
        )
        for member, one in form.get("properties", {}).items()
    ]
    optional = [f"`{member}`" for member in form.get("properties", {}) if member not in needed]
    left_out = f"May be left out: {', '.join(optional)}.\n" if optional and needed else ""
    examples = "".join(f"```json\n{json.dumps(one, indent=2)}\n```\n" for one in form.get("examples", []))
    table = _table(("member", "type", "meaning"), rows) if rows else ""
    return "\n".join(
        part for part in (f"### {name}\n\n{_prose(form.get('description', ''))}\n", table, left_out, examples) if part
    )


def _example(one: Mapping[str, Any]) -> str:
    found = one.get("examples") or [e for option in one.get("anyOf", []) for e in option.get("examples", [])]
    return f"For instance `{json.dumps(found[0], ensure_ascii=False)}`." if found else ""


def _default(one: Mapping[str, Any]) -> str:
    if one.get("required"):
        return "needed"
    default = one["schema"].get("default")
    return "" if default is None else f"`{json.dumps(default)}`"


def _type(schema: Mapping[str, Any]) -> str:
    """A type in words, forms as links."""
    reference = schema.get("$ref")
    if reference is not None:
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower().replace('_', '')})" if "_" not in name else f"[{name}](#{name.lower()})"
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " or ".join(dict.fromkeys(_type(one) for one in options))
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"object of {_type(inner)}" if isinstance(inner, dict) and inner else "object"
    words = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}
    return words.get(str(kind), "any JSON")


def _prose(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
