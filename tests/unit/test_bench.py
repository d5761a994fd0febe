"""The measurements run, and say what they found as JSON, as a table and as a page. No timings are judged here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench import apart, cli, pages, runner
from bench.drawing import curves_as_svg
from bench.figures import Curve, Figure, Found, Peer
from bench.rows import NAMES, TITLES


def test_every_row_has_a_title_and_a_module_that_measures() -> None:
    assert set(TITLES) == set(NAMES)
    for name in NAMES:
        assert callable(apart.row(name).measure)


def test_a_row_is_measured_in_a_process_of_its_own_and_what_it_made_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart.tempfile, "tempdir", str(tmp_path))
    said: list[str] = []
    found = runner.run(["space"], scale=0.01, rounds=1, say=said.append)
    assert list(tmp_path.iterdir()) == []
    figures = pages.figures_of(found)
    assert {figure.row for figure in figures} == {"space"}
    assert figures[0].target is not None
    assert figures[0].peers
    assert any("the whole file" in line for line in said)
    assert pages.figures_of(json.loads(json.dumps(found))) == figures
    assert str(tmp_path) not in json.dumps(found)


def test_a_row_that_takes_too_long_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(apart.Failed, match="stopped after 0 s"):
        apart.measured_apart("space", 1.0, 1, limit_s=0.01)
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_fails_is_told_and_does_not_stop_the_others(tmp_path: Path) -> None:
    def measured(name: str, scale: float, rounds: int) -> Found:
        if name == "space":
            raise apart.Failed("its process ended with code 1")
        return Found([Figure(row=name, name="x", unit="ms", measured=1.0, target=2.0)])

    said: list[str] = []
    found = runner.run(["space", "fork"], say=said.append, measured=measured)
    assert found["failures"] == {"space": "its process ended with code 1"}
    assert [figure.row for figure in pages.figures_of(found)] == ["fork"]
    assert any("FAILED: its process" in line for line in said)
    page, *_ = pages.write({**results(), "failures": found["failures"]}, tmp_path)
    assert f"**Not measured:** {TITLES['space']}: its process ended with code 1." in page.read_text("utf-8")


def test_a_peer_that_is_not_installed_is_a_line_that_says_so(tmp_path: Path) -> None:
    figure = Figure(row="fork", name="x", unit="ms", measured=1.0, peers=(Peer("somebody", None),), pace=1.0)
    assert "somebody: not installed" in runner.line(figure)
    page, *_ = pages.write({**results(), "figures": [figure.as_json()]}, tmp_path)
    assert "somebody | | not installed |" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("better", "measured", "ratio", "ok"),
    [("less", 5.0, 2.0, True), ("more", 5.0, 0.5, False), ("less", 20.0, 0.5, False)],
)
def test_a_ratio_says_how_much_better_than_the_target(better: str, measured: float, ratio: float, ok: bool) -> None:
    figure = Figure(row="fork", name="x", unit="ms", measured=measured, target=10.0, better=better)  # type: ignore[arg-type]
    assert figure.ratio == ratio
    assert figure.ok is ok


def test_a_figure_without_a_target_is_neither_met_nor_missed() -> None:
    assert Figure(row="fork", name="x", unit="ms", measured=1.0).ok is None


def results() -> dict[str, object]:
    figures = [
        Figure(row="fork", name="whole", unit="ms", measured=20.0, target=10.0, peers=(Peer("other", 40.0),), pace=1.5),
        Figure(row="fork", name="to the id", unit="ms", measured=12.0, target=10.0, pace=1.5),
        Figure(row="growth", name="flat", unit="x", measured=1.0, target=1.5),
    ]
    curves = [Curve("growth", "a < b", "us a call", (100, 1000), (10.0, 12.0))]
    return {
        "machine": runner.machine(),
        "rounds": 1,
        "figures": [figure.as_json() for figure in figures],
        "curves": [curve.as_json() for curve in curves],
        "failures": {},
    }


def test_the_page_holds_every_figure_its_peers_and_the_command(tmp_path: Path) -> None:
    page, picture = pages.write(results(), tmp_path)
    text = page.read_text("utf-8")
    assert "make bench" in text
    assert "1 of 3 targets are met as measured, 1 more at that pace" in text
    assert "| whole | <= 10 | 20 ms | | 0.5 x | 0.75 x | **missed** |" in text
    assert "| to the id | <= 10 | 12 ms | | 0.833 x | 1.25 x | ok at reference pace |" in text
    assert "other | | 40 ms |" in text
    assert picture.name in text
    assert "a &lt; b" in picture.read_text("utf-8")


def test_a_flat_curve_can_be_drawn_too() -> None:
    curve = Curve("growth", "flat", "us", (100, 1000), (10.0, 10.0)).as_json()
    assert curves_as_svg([curve]).startswith("<svg")


def test_labels_of_curves_that_end_together_do_not_lie_on_each_other() -> None:
    curves = [Curve("growth", name, "us", (100, 1000), (10.0, 12.0)).as_json() for name in ("a", "b", "c")]
    labels = [float(y) for y in re.findall(r'y="([0-9.]+)" fill="#[0-9a-f]+">[abc]<', curves_as_svg(curves))]
    assert len(labels) == 3
    assert labels[1] - labels[0] >= 12
    assert labels[2] - labels[1] >= 12


def test_the_command_measures_what_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []

    def measured(name: str, scale: float, rounds: int) -> Found:
        asked.append((name, scale, rounds))
        return Found([Figure(row="fork", name="whole", unit="ms", measured=5.0, target=10.0)])

    monkeypatch.setattr(cli, "measured_apart", measured)
    monkeypatch.setattr(cli, "_LATEST", tmp_path / "results" / "latest.json")
    assert cli.main(["--quick", "--rows", "fork", "--json", str(tmp_path / "f.json")]) == 0
    assert asked == [("fork", 0.1, 3)]
    assert json.loads((tmp_path / "f.json").read_text())["figures"][0]["ok"] is True
    assert (tmp_path / "results" / "latest.json").exists()
    assert "whole" in capsys.readouterr().out
    assert cli.main(["--rows", "nothing"]) == 64
    assert "nothing" in capsys.readouterr().err


def test_results_of_several_runs_are_shown_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps(results()), "utf-8")
    again = [Figure(row="fork", name="measured again", unit="ms", measured=5.0, target=10.0).as_json()]
    second.write_text(json.dumps({**results(), "figures": again, "curves": []}), "utf-8")
    assert cli.main(["--from-json", str(first), str(second)]) == 0
    shown = capsys.readouterr().out
    assert "measured again" in shown
    assert "to the id" not in shown
    assert "flat" in shown
