"""Runs out to files and in from files, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agentloupe.ports.protocols import Store
from agentloupe.ports.serving import ServerSettings
from tests.fork_support import weather_run
from tests.server.answers import good, refused
from tests.server.serving import TOKEN, client_of, store_in


@pytest.mark.parametrize("format", ["loupe", "jsonl"])
def test_what_is_exported_can_be_imported(client: TestClient, store: Store, tmp_path: Path, format: str) -> None:
    run = weather_run(store)
    file = client.get(f"/api/runs/{run}/export", params={"format": format})
    assert file.headers["content-disposition"] == f'attachment; filename="{run}.{format}"'
    (tmp_path / "other").mkdir()
    other = store_in(tmp_path / "other")
    there = client_of(other, TOKEN)
    report = good(there.post("/api/import", files={"files": ("a.bin", file.content)}))["items"]
    assert [(r["path"], r["steps"], r["model_calls"]) for r in report] == [("a.bin", 6, 3)]
    assert other.count() == 1
    other.close()


def test_a_file_that_cannot_be_read_does_not_hold_up_the_others(client: TestClient, store: Store) -> None:
    run = weather_run(store)
    whole = client.get(f"/api/runs/{run}/export").content
    files: Any = [("files", ("bad.json", b"\x00 no run")), ("files", ("again.loupe", whole))]
    bad, again = good(client.post("/api/import", files=files))["items"]
    assert bad["error"]["message"]
    assert again["already_there"] == [run]


@pytest.mark.parametrize("name", ["../../evil.jsonl", "/etc/passwd", "..", "", "a\u202eb\x1b[2J.jsonl", "x" * 300])
def test_a_name_cannot_lead_out_of_the_folder(client: TestClient, store: Store, tmp_path: Path, name: str) -> None:
    before = {p for p in tmp_path.parent.rglob("*") if "runs.db" not in p.name}
    run = weather_run(store)
    whole = client.get(f"/api/runs/{run}/export?format=jsonl").content
    answer = client.post("/api/import", files={"files": (name, whole)})
    assert answer.status_code in {200, 400}
    assert {p for p in tmp_path.parent.rglob("*") if "runs.db" not in p.name} == before


def test_an_import_has_a_limit_and_a_form(store: Store) -> None:
    client = client_of(store, TOKEN, server=ServerSettings(max_upload=1000))
    big = client.post("/api/import", files={"files": ("big", b"x" * 2000)})
    assert refused(big, 413, "too_large")["place"] == "server.max_upload"
    unsaid = client.post(
        "/api/import",
        content=(b"x" * 300 for _ in range(9)),
        headers={"content-type": "multipart/form-data; boundary=b"},
    )
    refused(unsaid, 413, "too_large")
    refused(client.post("/api/import", json={}), 400, "no_form")
    refused(client.post("/api/import", files={"files": (None, "just a field")}), 400, "no_files")
    assert store.count() == 0


def test_a_run_that_is_not_there_cannot_be_exported(client: TestClient) -> None:
    refused(client.get("/api/runs/nobody/export"), 404, "run_not_found")
