"""A fork of a run that asked Gemini, from the page: its dialog, and a job that asks the one endpoint that speaks its form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from agentloupe.ports.protocols import Store
from agentloupe.providers.loopback import serve
from tests.server.answers import good, refused
from tests.server.test_jobs import ended, worker
from tests.unit.test_gemini import MODEL, Gemini, agent, recorded, steps

FILE = """
[endpoints.other]
base_url = "http://127.0.0.1:9/v1"
dialect = "anthropic"
model = "m"
"""


@pytest.fixture
def run(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int, Gemini]]:
    """A recorded run, its first model step, and the model, which one endpoint of the configuration names."""
    model = Gemini()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LLM_BASE_URL", raising=False)
    with serve(model.answer) as answering:
        (tmp_path / "loupe.toml").write_text(
            f'{FILE}\n[endpoints.google]\nbase_url = "{answering.url}/v1beta"\ndialect = "gemini"\n'
        )
        run_id = recorded(store, agent(answering.url))
        yield run_id, steps(store, run_id, "llm")[0].idx, model


def test_the_dialog_knows_its_form_its_tools_and_its_model(client: TestClient, run: tuple[str, int, Gemini]) -> None:
    run_id, at, _ = run
    told = good(client.get(f"/api/runs/{run_id}/fork?from={at}"))
    assert (told["form"], told["model"], told["system_prompt"]) == ("gemini", MODEL, "Be short.")
    assert [(tool["name"], tool["recorded"]) for tool in told["tools"]] == [("get_weather", 1)]
    assert good(client.get(f"/api/runs/{run_id}/steps/{at}"))["overview"]["tools"] == ["get_weather"]
    assert [one["available"] for one in told["engines"] if one["engine"] == "generic"] == [True]


def test_a_job_asks_the_endpoint_that_speaks_it(
    client: TestClient, store: Store, tmp_path: Path, run: tuple[str, int, Gemini]
) -> None:
    run_id, at, model = run
    model.asked.clear()
    body = {"from_step": at, "overrides": {"system_prompt": "Be long."}}
    begun = good(client.post(f"/api/runs/{run_id}/fork", json=body))
    with worker(store):
        job = ended(client, begun["job"]["id"])
    assert job["status"] == "done", job
    made = store.run(job["run_ids"][0])
    assert made is not None
    assert (made.status, made.counts.cassette) == ("ok", 1)
    assert [asked["systemInstruction"] for _, asked, _ in model.asked] == [{"parts": [{"text": "Be long."}]}] * 2
    (tmp_path / "loupe.toml").write_text(FILE)
    error = refused(client.post(f"/api/runs/{run_id}/fork", json=body), 409, "no_model")
    assert "the form 'gemini'" in error["message"]
