"""The settings, read with their places and changed: what may be, whole or not at all, comments kept."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agentloupe.ports.protocols import Store
from agentloupe.ports.settings import Settings, load
from agentloupe.server.schemas.settings import GENERAL, SettingsDocument
from agentloupe.verbs.pricing import price_table
from tests.fork_support import weather_run
from tests.server.answers import good

TOML = """\
# how this project is set
strict = true  # no half recordings

[live]  # what may run
# arithmetic
calculate = "pure arithmetic"  # bounded
old = "not any more"

[endpoints.claude]
base_url = "https://user:password@llm.example/v1"
key_env = "CLAUDE_KEY"

[server]
max_body = 3000000
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the project, which is the current one too."""
    monkeypatch.chdir(tmp_path)
    for name in ("LOUPE_PRICES", "LOUPE_STRICT", "LLM_BASE_URL", "LLM_MODEL", "LLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "loupe.toml").write_text(TOML)
    return tmp_path


def asked(client: TestClient, **body: Any) -> Any:
    return client.put("/api/settings", json={"version": good(client.get("/api/settings"))["version"], **body})


def test_every_setting_of_the_reference_is_told(client: TestClient, project: Path) -> None:
    """As one value with its words, or in a list of its own; the store has its own place."""
    anchors = project / "anchors.jsonl"
    text = f'outbox = ["run.finished"]\nanchors = "{anchors}"\nanchor_key = "{project / "k.pub"}"\n'
    (project / "loupe.toml").write_text(text)
    found = good(client.get("/api/settings"))
    items = {item["name"]: item for item in found["items"]}
    page = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text("utf-8")
    rows = re.findall(r"^\| `(?:\[(\w+)\] )?(\w+)` \|", page.partition("```toml")[0], re.MULTILINE)
    named = {f"{table}.{name}" if table else name for table, name in rows}
    assert len(named) > 15
    assert set(items) == {name for name in named if not name.startswith("secrets.")} - {"db"}
    assert found["secrets"].keys() - {"places"} == {
        name.removeprefix("secrets.") for name in named if name.startswith("secrets.")
    }
    described: Any = client.get("/api/openapi.json").json()["components"]["schemas"]["Setting"]
    assert described["properties"]["name"]["enum"] == list(items)
    assert (items["anchors"]["value"], items["anchors"]["place"]) == (str(anchors), "loupe.toml:2")
    assert (items["outbox"]["value"], items["outbox"]["default"]) == (["run.finished"], None)
    assert items["pass_trace_on"]["variable"] == "LOUPE_PASS_TRACE_ON"


def test_each_setting_says_where_it_comes_from(
    client: TestClient, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "sk-secret")
    monkeypatch.setenv("LOUPE_STUCK_AFTER", "9")
    (project / ".env").write_text("# model\nLLM_BASE_URL=http://127.0.0.1:1/v1\n")
    found = good(client.get("/api/settings"))
    items = {item["name"]: (item["value"], item["origin"], item["place"]) for item in found["items"]}
    assert items["strict"] == (True, "file", "loupe.toml:2")
    assert items["stuck_after"] == (9.0, "environment", None)
    assert items["server.max_body"] == (3000000, "file", "loupe.toml:14")
    assert items["schedule"] == ("exact", "default", None)
    assert [(one["tool"], one["place"]) for one in found["live"]] == [
        ("calculate", "loupe.toml:6"),
        ("old", "loupe.toml:7"),
    ]
    assert found["endpoints"] == [
        {
            "name": "claude",
            "base_url": "https://llm.example/v1",
            "dialect": None,
            "model": None,
            "key_variable": "CLAUDE_KEY",
            "key": True,
            "place": "loupe.toml:9",
        }
    ]
    assert found["model"]["places"] == {"base_url": ".env:2", "model": None, "key": None}
    assert "sk-secret" not in json.dumps(found)
    assert "password" not in json.dumps(found)


def test_rules_of_removal_and_what_single_agents_keep_are_told_with_their_places(
    client: TestClient, project: Path
) -> None:
    more = """
[secrets]
fields = ["pin"]
patterns = { ticket = "TICK-[0-9]{6}" }

[redaction]
keep = ["city"]
[redaction.patterns]
plate = "[A-Z]{2}-[0-9]+"

[profiles]
support = "digest_only"

[samples]
triage = 0.1
"""
    with (project / "loupe.toml").open("a") as file:
        file.write(more)
    found = good(client.get("/api/settings"))
    assert found["problem"] is None
    assert found["secrets"] == {
        "fields": ["pin"],
        "keep": [],
        "patterns": ["ticket"],
        "places": {"fields": "loupe.toml:17", "keep": None, "patterns": "loupe.toml:18"},
    }
    assert found["redaction"] == {
        "fields": [],
        "keep": ["city"],
        "patterns": ["plate"],
        "places": {"fields": None, "keep": "loupe.toml:21", "patterns": "loupe.toml:22"},
    }
    assert found["profiles"] == [{"agent": "support", "profile": "digest_only", "place": "loupe.toml:26"}]
    assert found["samples"] == [{"agent": "triage", "share": 0.1, "place": "loupe.toml:29"}]


def test_every_table_of_a_file_is_told() -> None:
    """What the reader of the file takes, the document has."""
    shown = {"redaction": "redact_fields", "secrets": "secret_fields"}
    tables = {"secrets", "redaction", "profiles", "samples", "live", "endpoints"}
    assert {shown.get(table, table) for table in tables} <= {f.name for f in fields(Settings)}
    assert tables <= SettingsDocument.model_fields.keys()
    told = {*GENERAL, "root", "db", "when_full", "server", "live", "endpoints", "profiles", "samples"}
    rules = {f"{table}_{kind}" for table in ("secret", "redact") for kind in ("fields", "keep", "patterns")}
    assert {f.name for f in fields(Settings)} == told | rules


def test_live_tools_are_changed_and_everything_else_stays_word_by_word(client: TestClient, project: Path) -> None:
    (project / "loupe.toml").chmod(0o640)
    wanted = [{"tool": "calculate", "reason": 'only "sums"'}, {"tool": "look.up", "reason": "reads 读"}]
    told = good(asked(client, live=wanted))
    assert [{"tool": one["tool"], "reason": one["reason"]} for one in told["live"]] == wanted
    assert load(project).live == {"calculate": 'only "sums"', "look.up": "reads 读"}
    text = (project / "loupe.toml").read_text("utf-8")
    kept = [line for line in TOML.splitlines() if not line.startswith(("calculate", "old"))]
    assert [line for line in text.splitlines() if line in kept] == kept
    assert "# bounded" in text
    assert (project / "loupe.toml").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in project.glob(".loupe.toml*")] == []


def test_the_first_change_makes_the_file_and_one_in_pyproject_stays_there(client: TestClient, project: Path) -> None:
    (project / "loupe.toml").unlink()
    good(asked(client, live=[{"tool": "calculate", "reason": "sums"}]))
    assert load(project).live == {"calculate": "sums"}
    (project / "loupe.toml").unlink()
    (project / "pyproject.toml").write_text('[project]\nname = "x"  # mine\n\n[tool.agentloupe]\nstrict = true\n')
    told = good(asked(client, live=[{"tool": "calculate", "reason": "sums again"}]))
    assert told["files"]["settings"] == "pyproject.toml"
    assert (load(project).live, load(project).strict) == ({"calculate": "sums again"}, True)
    assert 'name = "x"  # mine' in (project / "pyproject.toml").read_text()
    assert not (project / "loupe.toml").exists()


def test_prices_are_changed_exactly_and_costs_follow_at_once(client: TestClient, store: Store, project: Path) -> None:
    run = weather_run(store)
    assert good(client.get(f"/api/runs/{run}"))["cost"] is None
    (project / "prices.json").write_text('{"note": "ours", "currency": "USD", "per": "1K tokens", "models": {}}')
    row = {"model": "scripted", "input": "0.10000000000000000001", "output": "0", "cached_input": "0.05"}
    model = good(client.get(f"/api/runs/{run}"))["model"]
    told = good(asked(client, prices={"models": [{**row, "model": model}]}))
    assert told["prices"]["models"] == [{**row, "model": model, "cache_write": None}]
    assert told["prices"]["per"] == "1K tokens"
    assert json.loads((project / "prices.json").read_text())["note"] == "ours"
    assert str(price_table().own[model].input) == "0.00010000000000000000001"
    assert good(client.get(f"/api/runs/{run}"))["cost"] is not None
    assert good(client.get("/api/runs"))["items"][0]["cost"] is not None


@pytest.mark.parametrize(
    ("body", "reason", "place"),
    [
        ({"live": [{"tool": "refund", "reason": "  "}]}, "live", "live.refund"),
        ({"live": [{"tool": " ", "reason": "why"}]}, "live", "live. "),
        ({"live": [{"tool": "a", "reason": "x"}, {"tool": "a", "reason": "y"}]}, "live", "live"),
        ({"live": [{"tool": "a", "reason": "x\n[server]"}]}, "live", "live.a"),
        ({"prices": {"models": [{"model": "m", "input": "much", "output": "1"}]}}, "prices", "prices.m"),
        ({"prices": {"models": [{"model": "m", "input": "-1", "output": "1"}]}}, "prices", "prices.m"),
    ],
)
def test_what_is_no_setting_is_refused_with_its_place_and_nothing_is_written(
    client: TestClient, project: Path, body: dict[str, Any], reason: str, place: str
) -> None:
    fine = {"live": [{"tool": "b", "reason": "fine"}]}
    answer = asked(client, **{**fine, **body})
    assert answer.status_code == 400
    assert (answer.json()["error"]["reason"], answer.json()["error"]["place"]) == (reason, place)
    assert (project / "loupe.toml").read_text() == TOML
    assert not (project / "prices.json").exists()


def test_a_file_that_changed_meanwhile_or_is_at_fault_is_not_written_over(client: TestClient, project: Path) -> None:
    version = good(client.get("/api/settings"))["version"]
    (project / "loupe.toml").write_text(TOML + "\n# somebody else was here\n")
    body = {"version": version, "live": []}
    answer = client.put("/api/settings", json=body)
    assert (answer.status_code, answer.json()["error"]["reason"]) == (409, "settings_changed")
    (project / "loupe.toml").write_text("strict = \n")
    found = good(client.get("/api/settings"))
    assert "loupe.toml:1" in found["problem"]
    answer = client.put("/api/settings", json={**body, "version": found["version"]})
    assert (answer.status_code, answer.json()["error"]["reason"]) == (409, "settings_fault")
    assert (project / "loupe.toml").read_text() == "strict = \n"


def test_what_cannot_be_written_says_so(client: TestClient, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    assert "loupe.toml" in good(client.get("/api/settings"))["read_only"]
    answer = asked(client, live=[])
    assert (answer.status_code, answer.json()["error"]["reason"]) == (409, "read_only")
    assert str(project / "loupe.toml") in answer.json()["error"]["hint"]


def test_no_address_is_changed_over_http(client: TestClient, project: Path) -> None:
    answer = asked(client, endpoints=[{"name": "claude", "base_url": "http://evil.example", "key_env": "HOME"}])
    assert answer.status_code == 422
    assert (project / "loupe.toml").read_text() == TOML
