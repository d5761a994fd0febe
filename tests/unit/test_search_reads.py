"""A search asks for bodies many at a time, and finds the same as one that asks for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentloupe.engine.project import project
from agentloupe.engine.views.search import found_in
from tests.made import Maker


def test_bodies_are_asked_for_many_at_a_time() -> None:
    made = Maker()
    for n in range(200):
        made.call("tool", "look_up", {"place": n}, f"answer {n}")
    recording = made.finish()
    steps = project(recording.events).steps
    asked: list[int] = []

    def counted(digests: Sequence[str]) -> Mapping[str, bytes]:
        asked.append(len(digests))
        return recording.get(digests)

    found = [hit for _, hits in found_in(replace(recording, get=counted), steps, "answer 17", 0) for hit in hits]
    assert [hit.match for hit in found] == ["answer 17"] * 11  # 17, 170 to 179
    assert len(asked) < 40
    assert max(asked) <= 40
