"""The programs of `examples/`, run as a user runs them: recorded, replayed without a model, and counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentloupe.demo.calculator import calculate
from agentloupe.demo.samples import SAMPLES, load_sample, sample_path
from agentloupe.providers.scripted import ScriptedServer, sample_rule
from agentloupe.words.errors import NotFound
from tests.support import ROOT
from tests.unit.test_calculator import HOSTILE, RIGHT


def python(folder: Path, *command: str, **environment: str) -> str:
    """Runs Python in the repository, with the recordings and the refunds of this folder."""
    own = {"LOUPE_DB": str(folder / "loupe.db"), "SUPPORT_REFUNDS": str(folder / "refunds.jsonl")}
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **own, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def runs(folder: Path) -> Any:
    return json.loads(python(folder, "-m", "agentloupe", "list", "--json"))


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


@pytest.mark.parametrize(
    ("name", "steps", "answer"),
    [
        ("weather", 7, "Shanghai is 5.8 C warmer than Beijing right now. In Fahrenheit the difference is 10.44 F.\n"),
        ("support", 6, "Order A-1001 is refunded: 59.9 EUR, receipt R-1.\n"),
    ],
)
def test_each_runs_is_recorded_and_replays_without_a_model(name: str, steps: int, answer: str, tmp_path: Path) -> None:
    with ScriptedServer(sample_rule) as server:
        said = python(tmp_path, str(sample_path(name)), LLM_BASE_URL=server.url, LLM_MODEL="m-7")
        asked = len(server.requests)
        assert {request["model"] for request in server.requests} == {"m-7"}
    assert said == answer
    (run,) = runs(tmp_path)
    assert (run["agent"], run["status"], run["steps"]) == (name, "ok", steps)
    report = python(tmp_path, "-m", "agentloupe", "replay", "last", "--code", f"examples.{name}.agent:assistant")
    assert "pass" in report
    assert asked == 3
    if name == "support":
        (refund,) = map(json.loads, lines(tmp_path / "refunds.jsonl"))
        assert (refund["order_id"], refund["amount"]) == ("A-1001", 59.9)
        assert len(refund["key"]) == 64


def test_a_question_can_be_given_and_extra_body_is_sent(tmp_path: Path) -> None:
    with ScriptedServer(sample_rule) as server:
        told = {"LLM_BASE_URL": server.url, "LLM_EXTRA_BODY": '{"seed": 3}'}
        said = python(tmp_path, str(sample_path("weather")), "How", "warm", "is", "Guangzhou?", **told)
        assert [request["seed"] for request in server.requests] == [3, 3]
    assert said == "Guangzhou: 24.3 C, sunny.\n"


def test_samples_are_found_once_and_others_are_refused() -> None:
    assert [sample_path(name).parent.name for name in SAMPLES] == list(SAMPLES)
    assert load_sample("weather") is load_sample("weather")
    with pytest.raises(NotFound, match="weather, support"):
        sample_path("../weather")


@pytest.mark.parametrize(("text", "value"), RIGHT)
def test_the_calculator_of_the_example_is_right(text: str, value: float) -> None:
    assert load_sample("weather").calculate(text)["result"] == calculate(text)["result"] == value


@pytest.mark.parametrize("text", HOSTILE)
def test_the_calculator_of_the_example_refuses_what_is_no_arithmetic(text: str) -> None:
    answer = json.loads(load_sample("weather").run_tool("calculate", json.dumps({"expression": text})))
    assert set(answer) == {"error"}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("get_weather", '{"city": "Atlantis"}'), ("get_weather", "{"), ("get_weather", '{"town": "x"}'), ("drop", "{}")],
)
def test_what_goes_wrong_in_a_tool_is_told_to_the_model(tool: str, arguments: str) -> None:
    assert set(json.loads(load_sample("weather").run_tool(tool, arguments))) == {"error"}


def test_the_weather_in_fahrenheit() -> None:
    assert load_sample("weather").get_weather("Beijing", unit="fahrenheit")["temperature"] == 53.4


@pytest.mark.parametrize("amount", [0, -1, 60])
def test_a_refund_never_exceeds_the_order(amount: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPPORT_REFUNDS", str(tmp_path / "refunds.jsonl"))
    for order_id in ("A-1001", "A-1002", "A-9999"):
        with pytest.raises(ValueError, match="cannot be refunded"):
            load_sample("support").refund_order(order_id, amount)
    assert not (tmp_path / "refunds.jsonl").exists()
