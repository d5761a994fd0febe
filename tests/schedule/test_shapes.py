"""Exact schedules: no replay of any shape of concurrent program is wrong (`tests.schedule.campaign` does many more)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.schedule.campaign import busy_processes
from tests.schedule.shapes import OF_LOOPS, OF_THREADS, OUTSIDE
from tests.schedule.trial import Trial, tried

MANY = os.environ.get("HYPOTHESIS_PROFILE") == "ci"
RECORDINGS, REPLAYS = (10, 30) if MANY else (2, 3)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "agentloupe")


def _faultless(trial: Trial) -> None:
    assert not trial.said, "\n".join(trial.said)
    assert (trial.wrong, trial.leaks, trial.guessed, trial.marks) == (0, 0, 0, {})
    assert trial.replays == RECORDINGS * REPLAYS


@pytest.mark.timeout(900 if MANY else 180)
@pytest.mark.parametrize("shape", OF_LOOPS, ids=lambda shape: shape.__name__)
def test_programs_of_a_loop(shape: Callable[[], Any]) -> None:
    with busy_processes(2 if MANY else 0):
        _faultless(tried(shape.__name__, shape, recordings=RECORDINGS, replays=REPLAYS))


@pytest.mark.timeout(900 if MANY else 180)
@pytest.mark.parametrize("shape", OF_THREADS, ids=lambda shape: shape.__name__)
def test_programs_of_threads(shape: Callable[[], Any]) -> None:
    with busy_processes(2 if MANY else 0):
        _faultless(tried(shape.__name__, shape, recordings=RECORDINGS, replays=REPLAYS))


@pytest.mark.parametrize("shape", OUTSIDE, ids=lambda shape: shape.__name__)
def test_what_cannot_be_exact_says_so_and_never_hangs(shape: Callable[[], Any]) -> None:
    trial = tried(shape.__name__, shape, recordings=2, replays=2)
    assert trial.leaks == 0
    assert set(trial.marks) <= {"guess"}
    doubtful = trial.marks.get("guess", 0) > 0
    assert trial.guessed >= (trial.replays / 2 if doubtful else 0), "a mark of the recording is a doubt of every replay"
