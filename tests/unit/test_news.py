"""What was new in a request is told by the packed bodies, and is the same however they were packed."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine.news import News, same_value
from agentloupe.ports.pack import Packer
from agentloupe.words.canonical import canonical
from agentloupe.words.step import Step


class Bodies:
    """Requests packed one after another; counts how often bodies are asked for."""

    def __init__(self, requests: Sequence[Any], packer: Packer | None = None) -> None:
        packer = packer or Packer()
        self.texts: dict[str, bytes] = {}
        self.asked = 0
        self.steps: list[Step] = []
        for idx, request in enumerate(requests):
            packed = packer.pack(request, shared_lists=True)
            self.texts.update({body.digest: body.data for body in packed.bodies})
            self.steps.append(
                Step(
                    run_id="r",
                    idx=idx,
                    parent_idx=None,
                    kind="llm",
                    name="chat",
                    started_at="",
                    input_digest=packed.digest,
                )
            )

    def get(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        self.asked += 1
        return {digest: self.texts[digest] for digest in digests if digest in self.texts}

    def news(self) -> list[Any]:
        told = News(self.steps, self.get)
        return [told(step) for step in self.steps]


def message(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def growing(count: int, system: str = "S", **more: Any) -> list[Any]:
    """Requests of a conversation; texts are long enough that lists are bodies of their own."""
    history = [message(system, "system")]
    made: list[Any] = []
    for n in range(count):
        history = [*history, message(f"{n} " + "x" * 300), message(f"answer {n}", "assistant")]
        made.append({"model": "m", "messages": history, **more})
    return made


def test_equal_runs_have_equal_news() -> None:
    one, other = Bodies(growing(6)).news(), Bodies(growing(6)).news()
    assert one == other
    assert len({repr(fresh.parts) for fresh in one}) == 6


def test_another_system_prompt_is_new_once() -> None:
    one, other = Bodies(growing(6)).news(), Bodies(growing(6, "T")).news()
    assert [mine == theirs for mine, theirs in zip(one, other, strict=True)] == [False, True, True, True, True, True]


def test_a_changed_prompt_in_the_middle_is_new_once_too() -> None:
    changed = growing(6)
    for request in changed[3:]:
        request["messages"] = [message("T", "system"), *request["messages"][1:]]
    one, other = Bodies(growing(6)).news(), Bodies(changed).news()
    assert [mine == theirs for mine, theirs in zip(one, other, strict=True)] == [True, True, True, False, True, True]


def test_a_parameter_and_tools_are_new_where_they_change() -> None:
    tools: Any = [{"type": "function", "function": {"name": f"t{n}", "description": "d" * 100}} for n in range(8)]
    hot = growing(4, tools=tools)
    for request in hot[2:]:
        request["temperature"] = 1.0
        request["tools"] = tools[:-1]
    one, other = Bodies(growing(4, tools=tools)).news(), Bodies(hot).news()
    assert [mine == theirs for mine, theirs in zip(one, other, strict=True)] == [True, True, False, True]


def test_ids_that_every_call_gets_anew_are_no_news() -> None:
    def asked(call_id: str) -> list[Any]:
        call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        first = [message("q " + "x" * 600)]
        second = [
            *first,
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": "r"},
        ]
        return [{"messages": first}, {"messages": second}]

    assert Bodies(asked("a")).news() == Bodies(asked("b")).news()


def test_a_window_that_slides_has_only_its_last_message_new() -> None:
    texts = [message(f"{n} " + "x" * 300) for n in range(12)]

    def windows(system: str) -> list[Any]:
        return [{"messages": [message(system, "system"), *texts[n : n + 4]]} for n in range(8)]

    one, other = Bodies(windows("S")).news(), Bodies(windows("T")).news()
    assert [mine == theirs for mine, theirs in zip(one, other, strict=True)] == [False] + [True] * 7


def test_two_agents_that_take_turns_each_go_on_from_their_own_history() -> None:
    a, b = growing(4, "A"), growing(4, "B")
    c = growing(4, "C")
    one = Bodies([r for pair in zip(a, b, strict=True) for r in pair]).news()
    other = Bodies([r for pair in zip(a, c, strict=True) for r in pair]).news()
    assert [mine == theirs for mine, theirs in zip(one, other, strict=True)] == [True, False, *[True] * 6]


def test_a_parameter_that_goes_back_to_what_it_was_is_new_with_the_messages_of_that_very_request() -> None:
    requests = [{**request, "model": "ab"[i % 2]} for i, request in enumerate(growing(6))]
    for i, told in enumerate(Bodies(requests).news()[1:], 1):
        history = requests[i - 1]["messages"]
        added = [("messages", item) for item in requests[i]["messages"][len(history) :]]
        assert told.parts == [*added, ("set model", "ab"[i % 2])]


def test_a_list_inside_of_another_member_is_none_of_the_requests() -> None:
    requests = [{"model": "m", "about": {"messages": [message(f"{i}" + "y" * 3000)]}} for i in (1, 2)]
    told = Bodies(requests).news()[1]
    assert [name for name, _ in told.parts] == ["set about"]


def test_a_body_that_is_gone_makes_it_unknown() -> None:
    made = Bodies(growing(3))
    del made.texts[made.steps[1].input_digest or ""]
    assert [fresh is None for fresh in made.news()] == [False, True, False]


def test_bodies_are_asked_for_together() -> None:
    made = Bodies(growing(200))
    made.news()
    assert made.asked <= 4


texts = st.sampled_from(["a", "b", "c" * 400, "d" * 3000])
messages = st.lists(st.builds(message, texts, st.sampled_from(["user", "assistant"])), max_size=5)


@given(st.lists(messages, max_size=6), st.data())
def test_how_it_was_packed_makes_no_difference(lists: list[Any], data: st.DataObject) -> None:
    requests: list[Any] = [{"messages": items} for items in lists]
    warm = Packer()
    given_before: dict[str, bytes] = {}
    for noise in data.draw(st.lists(messages, max_size=3)):
        request: Any = {"messages": noise}
        given_before.update({body.digest: body.data for body in warm.pack(request, shared_lists=True).bodies})
    fresh = Bodies(copy.deepcopy(requests), Packer()).news()
    assert Bodies(copy.deepcopy(requests), Packer(remember=1)).news() == fresh
    told = Bodies(copy.deepcopy(requests), warm)
    told.texts.update(given_before)
    assert told.news() == fresh


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, 1.0, -0.0, 0.5, float("inf")])
    | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=4,
)


@given(values, values)
def test_same_value_is_one_canonical_form(one: Any, other: Any) -> None:
    assert same_value(one, other) == (canonical(one) == canonical(other))
    assert same_value(one, copy.deepcopy(one))
