"""Instances made without `__init__` are like any other."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from inspect import signature

import pytest

from agentloupe.words.event import Event
from agentloupe.words.quick import maker, quick


@dataclass(frozen=True, slots=True)
class Base:
    a: int


@dataclass(frozen=True, slots=True)
class Pair(Base):
    b: str = "x"


@dataclass(frozen=True)
class Loose:
    a: int


def test_an_instance_is_like_one_made_the_long_way() -> None:
    made = maker(Pair, ["b", "a"])(["y", 1])
    assert made == Pair(1, "y")
    assert hash(made) == hash(Pair(1, "y"))
    assert replace(made, a=2) == Pair(2, "y")
    with pytest.raises(FrozenInstanceError):
        made.a = 3  # type: ignore[misc]


def test_an_event_can_be_made_so() -> None:
    long = Event(type="run.started", event_id="e", recorded_at="t", run_id="r", sequence=1, prev_hash="0", hash="1")
    names = [field.name for field in fields(Event)]
    assert maker(Event, names)([getattr(long, name) for name in names]) == long


def test_every_field_is_needed_and_no_other() -> None:
    for names in (["a"], ["a", "b", "c"], ["a", "c"]):
        with pytest.raises(TypeError):
            maker(Pair, names)
    with pytest.raises(TypeError, match="no slot"):
        maker(Loose, ["a"])
    with pytest.raises(ValueError, match="values"):
        maker(Pair, ["a", "b"])([1])


@dataclass(frozen=True, slots=True)
class Slow:
    a: int
    b: str = "x"
    c: list[int] = field(default_factory=list[int])
    d: int = field(default=4, kw_only=True)


@quick
@dataclass(frozen=True, slots=True)
class Fast:
    a: int
    b: str = "x"
    c: list[int] = field(default_factory=list[int])
    d: int = field(default=4, kw_only=True)


def test_a_quick_class_takes_what_it_took() -> None:
    assert [(p.name, p.kind) for p in signature(Fast).parameters.values()] == [
        (p.name, p.kind) for p in signature(Slow).parameters.values()
    ]
    for args, named in (((1,), {}), ((1, "y"), {"d": 2}), ((), {"a": 1, "c": [3]})):
        fast, slow = Fast(*args, **named), Slow(*args, **named)  # type: ignore[arg-type]
        assert [getattr(fast, f.name) for f in fields(Fast)] == [getattr(slow, f.name) for f in fields(Slow)]
    assert Fast(1).c is not Fast(1).c
    assert replace(Fast(1), a=2) == Fast(2)
    with pytest.raises(FrozenInstanceError):
        Fast(1).a = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Fast()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Fast(1, "x", [], 4)  # type: ignore[misc]


def test_only_a_class_that_sets_all_its_fields_and_no_more_can_be_quick() -> None:
    with pytest.raises(TypeError, match="no slot"):
        quick(Loose)

    @dataclass(frozen=True, slots=True)
    class More:
        a: int

        def __post_init__(self) -> None:
            raise AssertionError

    with pytest.raises(TypeError, match="does more"):
        quick(More)
