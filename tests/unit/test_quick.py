"""Instances made without `__init__` are like any other."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any

import pytest

from agentloupe.words.call import Call
from agentloupe.words.event import Event
from agentloupe.words.quick import maker
from agentloupe.words.run import Run
from agentloupe.words.step import Step


@dataclass(frozen=True, slots=True)
class Pair:
    a: int
    b: str = "x"


@dataclass(frozen=True, slots=True)
class Longer(Pair):
    c: int = 0


@dataclass(frozen=True)
class Loose:
    a: int


def test_an_instance_is_like_one_made_the_long_way() -> None:
    made = maker(Pair, ["b", "a"])(["y", 1])
    assert type(made) is Pair
    assert made == Pair(1, "y")
    assert hash(made) == hash(Pair(1, "y"))
    assert replace(made, a=2) == Pair(2, "y")
    with pytest.raises(FrozenInstanceError):
        made.a = 3  # type: ignore[misc]


def test_a_step_can_be_made_so() -> None:
    long = Step(
        run_id="r", idx=0, parent_idx=None, kind="tool", name="t", started_at="s", status="ok", first_seq=1, last_seq=1
    )
    names = [field.name for field in fields(Step)]
    assert maker(Step, names)([getattr(long, name) for name in names]) == long


def test_every_field_is_needed_and_no_other() -> None:
    for names in (["a"], ["a", "b", "c"], ["a", "c"]):
        with pytest.raises(TypeError):
            maker(Pair, names)
    with pytest.raises(TypeError, match="no slot"):
        maker(Loose, ["a"])
    with pytest.raises(TypeError, match="layout"):
        maker(Longer, ["a", "b", "c"])
    for values in ([1], [1, 2, 3]):
        with pytest.raises(ValueError, match="takes 2 values"):
            maker(Pair, ["a", "b"])(values)


@pytest.mark.parametrize("word", [Call, Event, Run, Step])
def test_the_words_are_frozen(word: Any) -> None:
    made = object.__new__(word)
    for field in fields(word):
        with pytest.raises(FrozenInstanceError):
            setattr(made, field.name, "changed")
