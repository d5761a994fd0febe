"""JSON Lines and traces: what goes in comes out, partial things say so, and nothing readable is lost for a bad line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentloupe.engine.project import Projector
from agentloupe.importers import detect
from agentloupe.importers.files import top_keys
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs.exchange import ImportReport, export_run, import_file, import_files, load_trace
from agentloupe.words.errors import Corrupt, LoupeError, NotFound, Refused, UsageError
from agentloupe.words.step import Trace
from tests.made import weather_like
from tests.support import ROOT

WEATHER = ROOT / "examples" / "weather" / "run.jsonl"


@pytest.fixture
def store() -> Store:
    return open_url("memory:")


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")
    return path


def trace_of(store: Store, run_id: str) -> Trace:
    return load_trace(store.recording(run_id))


def llm(idx: int, content: str = "hi", **more: Any) -> Any:
    request = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
    return {
        "step": {"idx": idx, "kind": "llm", "name": "chat m", "input": request, "output": {"content": content}, **more}
    }


# --- the sample -------------------------------------------------------------------------------------------------------


def test_the_weather_sample_has_its_six_steps(store: Store) -> None:
    report = import_file(store, WEATHER)
    assert (report.format, report.total("steps"), report.total("model_calls")) == ("jsonl", 6, 3)
    assert (report.total("tool_calls"), report.total("partial_steps"), report.fidelity) == (3, 0, None)
    steps = trace_of(store, "weather-sample").steps
    assert [(step.idx, step.kind, step.parent_idx) for step in steps] == [
        (0, "llm", None),
        (1, "tool", None),
        (2, "tool", None),
        (3, "llm", None),
        (4, "tool", None),
        (5, "llm", None),
    ]
    assert [step.name for step in steps if step.kind == "tool"] == ["get_weather", "get_weather", "calculate"]
    assert steps[4].output == {"expression": "17.7 - 11.9", "result": 5.8}
    run = store.run("weather-sample")
    assert run is not None
    assert (run.engine, run.status, run.model, run.total_input_tokens) == ("imported", "ok", "demo-chat-1", 893)


def test_export_then_import_gives_an_equal_run(store: Store, tmp_path: Path) -> None:
    import_file(store, WEATHER)
    size = export_run(store, "weather-sample", tmp_path / "out.jsonl")
    assert size == (tmp_path / "out.jsonl").stat().st_size
    other = open_url("memory:")
    import_file(other, tmp_path / "out.jsonl")
    export_run(other, "weather-sample", tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    for given_back, original in zip(lines(tmp_path / "out.jsonl"), lines(WEATHER), strict=True):
        kind = next(iter(original))
        for name, value in original[kind].items():
            if name.endswith("_at"):
                assert given_back[kind][name].rstrip("Z").ljust(26, "0") == value.rstrip("Z").ljust(26, "0")
            elif name != "attrs":
                assert given_back[kind][name] == value, name


def test_the_source_comes_back_byte_for_byte(store: Store, tmp_path: Path) -> None:
    odd = tmp_path / "odd.jsonl"
    odd.write_bytes(
        b'\xef\xbb\xbf \r\n{ "run" : {"id":"odd"} }\r\n{"step":{"idx":0,"kind":"tool","name":"t"}}\n\xff\xfe\n'
    )
    report = import_file(store, odd, format="jsonl")
    assert len(report.quarantined) == 1 + 1  # the mark at the beginning, and the bytes that are no UTF-8
    import_file(store, WEATHER)
    export_run(store, "weather-sample", tmp_path / "raw", raw=True)
    assert (tmp_path / "raw").read_bytes() == WEATHER.read_bytes()


def test_a_source_that_is_no_text_comes_back_too(store: Store, tmp_path: Path) -> None:
    odd = tmp_path / "odd.jsonl"
    odd.write_bytes(b'{"run":{"id":"odd"}}\n\xff\xfe\n{"step":{"idx":0,"kind":"tool","name":"t"}}')
    assert import_file(store, odd).quarantined == ("line 2 (byte 21): not strict JSON: not UTF-8",)
    export_run(store, "odd", tmp_path / "raw", raw=True)
    assert (tmp_path / "raw").read_bytes() == odd.read_bytes()


# --- ids --------------------------------------------------------------------------------------------------------------


def test_the_same_file_twice_changes_nothing(store: Store) -> None:
    first = import_file(store, WEATHER)
    head = store.recording("weather-sample").events[-1].hash
    second = import_file(store, WEATHER)
    assert [run.state for run in first.runs] == ["imported"]
    assert [run.state for run in second.runs] == ["already there"]
    assert second.as_json()["already_there"] == ["weather-sample"]
    assert store.count() == 1
    assert store.recording("weather-sample").events[-1].hash == head


def test_an_id_that_is_taken_gets_a_number(store: Store, tmp_path: Path) -> None:
    one = write(tmp_path / "1.jsonl", {"run": {"id": "x"}}, llm(0, "one"))
    two = write(tmp_path / "2.jsonl", {"run": {"id": "x"}}, llm(0, "two"), {"run": {"id": "y", "parent_run_id": "x"}})
    import_file(store, one)
    assert [run.run_id for run in import_file(store, two).runs] == ["x-2", "y"]
    assert [run.run_id for run in import_file(store, two).runs] == ["x-2", "y"]
    child = store.run("y")
    assert child is not None
    assert child.parent_run_id == "x-2"
    assert store.count() == 3


def test_a_loupe_file_keeps_its_id_and_an_other_run_of_it_is_refused(store: Store, tmp_path: Path) -> None:
    import_file(store, WEATHER)
    export_run(store, "weather-sample", tmp_path / "run.loupe")
    assert import_file(store, tmp_path / "run.loupe").runs[0].state == "already there"
    fresh = open_url("memory:")
    assert import_file(fresh, tmp_path / "run.loupe").runs[0].state == "imported"
    assert fresh.recording("weather-sample").events == store.recording("weather-sample").events
    export_run(fresh, "weather-sample", tmp_path / "again.loupe")
    assert (tmp_path / "again.loupe").read_bytes() == (tmp_path / "run.loupe").read_bytes()
    another = open_url("memory:")
    import_file(another, write(tmp_path / "x.jsonl", {"run": {"id": "weather-sample"}}, llm(0)))
    with pytest.raises(LoupeError) as caught:
        import_file(another, tmp_path / "run.loupe")
    assert caught.value.reason == "exists"


# --- fields -----------------------------------------------------------------------------------------------------------


def test_null_and_missing_and_unknown_fields_come_back_as_they_were(store: Store, tmp_path: Path) -> None:
    step = {
        "idx": 0,
        "kind": "tool",
        "name": "t",
        "input": {"n": 2**70, "f": 1.0, "none": None},
        "mood": {"x": [1, 1.0]},
    }
    named = {**step, "idx": 1, "output": None, "error": None, "ended_at": "2026-04-01T10:00:00.5Z"}
    write(tmp_path / "in.jsonl", {"run": {"id": "r", "weather": "rain", "tags": None}}, {"step": step}, {"step": named})
    import_file(store, tmp_path / "in.jsonl")
    export_run(store, "r", tmp_path / "out.jsonl")
    run, first, second = (next(iter(record.values())) for record in lines(tmp_path / "out.jsonl"))
    assert run["weather"] == "rain"
    assert "ended_at" not in run
    assert "output" not in first
    assert "error" not in first
    assert second["output"] is None
    assert first["mood"] == {"x": [1, 1.0]}
    assert repr(first["mood"]["x"][1]) == "1.0"
    assert repr(first["input"]) == repr(step["input"])


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"input": None}, "the source did not keep the request"),
        ({"input": "cut text"}, "the request is no object with messages"),
        ({"input": {"model": "m"}}, "the request has no messages"),
        ({"input": {"messages": [], "truncated": True}}, "the exporter cut the request"),
        ({"truncated": True}, "the exporter cut the step"),
        ({"partial_step": "lost on the way"}, "lost on the way"),
        (
            {"input": {"messages": [{"role": "user", "content": "long … [truncated 512 characters]"}]}},
            "the exporter cut a message",
        ),
        ({"input": {"messages": [{"role": "user", "content": "[truncated] is a word"}]}}, None),
    ],
)
def test_a_request_that_is_not_whole_is_a_partial_step(
    store: Store, tmp_path: Path, step: Any, why: str | None
) -> None:
    record = llm(0)
    record["step"].update(step)
    report = import_file(store, write(tmp_path / "in.jsonl", {"run": {"id": "r"}}, record))
    assert store.steps("r")[0].partial == why
    assert report.total("partial_steps") == (0 if why is None else 1)
    assert ("not whole" in (report.fidelity or "")) == (why is not None)


def test_errors_keep_their_text_and_class(store: Store, tmp_path: Path) -> None:
    tool = {"kind": "tool", "name": "t", "input": {}}
    write(
        tmp_path / "in.jsonl",
        {"run": {"id": "r", "status": "failed", "error": "TimeoutError: secret detail"}},
        {"step": {"idx": 0, **tool, "error": "TimeoutError: too slow"}},
        {"step": {"idx": 1, **tool, "error": {"type": "Declined", "message": "no", "code": 7}}},
        {"step": {"idx": 2, **tool, "error": "it did not work"}},
    )
    import_file(store, tmp_path / "in.jsonl")
    steps = trace_of(store, "r").steps
    assert [step.status for step in steps] == ["error"] * 3
    assert [step.error_class for step in steps] == ["TimeoutError", "Declined", None]
    run = store.run("r")
    assert run is not None
    assert (run.status, run.error) == ("error", "TimeoutError")  # an event holds no payload
    export_run(store, "r", tmp_path / "out.jsonl")
    back = [next(iter(record.values())) for record in lines(tmp_path / "out.jsonl")]
    assert [record["error"] for record in back] == [
        "TimeoutError: secret detail",
        "TimeoutError: too slow",
        {"type": "Declined", "message": "no", "code": 7},
        "it did not work",
    ]


def test_a_tree_keeps_its_parents_and_the_root_is_the_run(store: Store, tmp_path: Path) -> None:
    at = "2026-04-01T10:00:0{}Z"

    def step(idx: int, parent: int | None, kind: str, name: str) -> Any:
        times = {"started_at": at.format(idx), "ended_at": at.format(9 - idx)}
        return {
            "step": {"idx": idx, "parent_idx": parent, "kind": kind, "name": name, "input": idx, "output": idx, **times}
        }

    write(
        tmp_path / "in.jsonl",
        {"run": {"id": "r"}},
        step(0, None, "agent", "agent.run"),
        step(1, 0, "agent", "planner"),
        step(2, 1, "tool", "a"),
        step(3, 1, "other", "b"),
        step(4, 0, "tool", "c"),
    )
    import_file(store, tmp_path / "in.jsonl")
    steps = trace_of(store, "r").steps
    assert [(s.parent_idx, s.kind, s.name) for s in steps] == [
        (None, "agent", "agent.run"),
        (0, "agent", "planner"),
        (1, "tool", "a"),
        (1, "other", "b"),
        (0, "tool", "c"),
    ]
    assert [(s.input, s.output) for s in steps] == [(n, n) for n in range(5)]
    assert [s.started_at[17:19] for s in steps] == ["00", "01", "02", "03", "04"]
    assert [s.ended_at[17:19] for s in steps[1:] if s.ended_at] == ["08", "07", "06", "05"]


def test_steps_stand_in_the_order_of_idx_wherever_their_lines_stand(store: Store, tmp_path: Path) -> None:
    report = import_file(store, write(tmp_path / "in.jsonl", {"run": {"id": "r"}}, llm(7, "b"), llm(3, "a")))
    assert [s.output for s in trace_of(store, "r").steps] == [{"content": "a"}, {"content": "b"}]
    assert [s.attrs["source_idx"] for s in store.steps("r")] == [3, 7]
    assert any("numbered anew" in warning for warning in report.runs[0].found.warnings)


def test_the_source_of_an_answer_and_the_counts_of_a_fork_come_back(store: Store, tmp_path: Path) -> None:
    tool = {"kind": "tool", "name": "t", "input": {}, "output": 1}
    write(
        tmp_path / "in.jsonl",
        {"run": {"id": "p-fork-1", "parent_run_id": "p", "forked_from_step": 1, "tags": ["fork", "miss:1"]}},
        {"step": {"idx": 0, **tool, "source": "recorded"}},
        {"step": {"idx": 1, **tool, "source": "cassette"}},
        {"step": {"idx": 2, **tool, "source": "miss", "error": "cassette miss"}},
    )
    import_file(store, tmp_path / "in.jsonl")
    run = store.run("p-fork-1")
    assert run is not None
    assert (run.counts.cassette, run.counts.miss, run.parent_run_id, run.forked_from_step) == (1, 1, "p", 1)
    assert {"fork", "cassette:1", "live:0", "miss:1"} <= set(run.tags)


# --- what cannot be read ----------------------------------------------------------------------------------------------


def test_bad_lines_are_set_apart_and_named(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(
        '{"run":{"id":"r"}}\n{"step":{"idx":0,"a":NaN}}\n\n{"step":{"idx":0,"idx":1}}\n[1]\n{"step":3}\n'
        + json.dumps(llm(0))
        + '\n{"step":{"idx":1,"kind":"to',
        "utf-8",
    )
    report = import_file(store, path)
    assert [place.split(" ")[1] for place in report.quarantined] == ["2", "4", "5", "6", "8"]
    assert "(byte 19)" in report.quarantined[0]
    assert report.total("steps") == 1
    assert report.as_json()["quarantined"] == 5


def test_a_file_without_a_run_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match="a step before any run"):
        import_file(store, write(tmp_path / "in.jsonl", llm(0)))
    assert store.count() == 0


def test_unknown_formats_are_named_with_those_that_are_known(store: Store, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    (tmp_path / "empty").write_text("")
    for name in ("x", "empty"):
        with pytest.raises(UsageError, match="loupe, jsonl, tau-bench, messages") as caught:
            import_file(store, tmp_path / name)
        assert caught.value.reason == "unknown_format"
    with pytest.raises(UsageError, match="no format is named"):
        import_file(store, WEATHER, format="parquet")
    with pytest.raises(NotFound):
        import_file(store, tmp_path / "none")


def test_one_bad_file_does_not_stop_the_others(store: Store, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    reports = import_files(store, [tmp_path / "x", WEATHER, tmp_path / "none"])
    assert [report.format for report in reports] == [None, "jsonl", None]
    assert [report.error is None for report in reports] == [False, True, False]
    assert all(isinstance(report, ImportReport) and json.dumps(report.as_json()) for report in reports)


def test_export_says_what_it_cannot_do(store: Store, tmp_path: Path) -> None:
    import_file(store, WEATHER)
    with pytest.raises(UsageError, match="ends neither in"):
        export_run(store, "weather-sample", tmp_path / "out.txt")
    with pytest.raises(LoupeError) as caught:
        export_run(store, "weather-sample", tmp_path / "no folder" / "out.loupe")
    assert caught.value.reason == "unwritable"
    own = weather_like("own")
    store.insert("own", own.events, own.get, Projector)
    with pytest.raises(Refused) as refused:
        export_run(store, "own", tmp_path / "raw", raw=True)
    assert refused.value.reason == "no_source"
    assert sorted(path.name for path in tmp_path.iterdir()) == []


# --- detection --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ('{"run":{}}', "jsonl"),
        ('{\n "steps": [], "run": {}}', "jsonl"),
        ('{"step":{"idx":0}}', "jsonl"),
        ('[{"role":"user","content":"\\"traj\\": 1, \\"task_id\\": 2"}]', "messages"),
        ('{"model":"m","messages":[{"role":"user","content":"{\\"run\\": 1}"}]}', "messages"),
        ('[{"task_id":1,"trial":0,"reward":1.0,"info":{"messages":[]},"traj":[]}]', "tau-bench"),
    ],
)
def test_the_format_is_seen_from_the_content(tmp_path: Path, text: str, format: str) -> None:
    path = tmp_path / "a.bin"
    path.write_text(text)
    assert detect(path).format == format


@st.composite
def any_step(draw: st.DrawFn, idx: int) -> Any:
    kind = draw(st.sampled_from(["llm", "tool", "other", "clock", "agent", "retrieval", "state", "odd kind"]))
    step: dict[str, Any] = {"idx": idx, "kind": kind}
    optional = {
        "name": st.sampled_from(["a", "b", "agent.run"]),
        "parent_idx": st.none() | st.integers(0, 4),
        "started_at": st.sampled_from(
            [None, "2026-04-01T10:00:00.25Z", "2026-04-01T12:00:00", "no time", 1774751400000]
        ),
        "ended_at": st.sampled_from([None, "2026-04-01T10:00:01.000000001Z", "2026-04-01T10:00:02+02:00"]),
        "input": json_values,
        "output": json_values,
        "error": st.none() | st.sampled_from(["", "Boom: x", "KeyError: 'a'", "just text"]) | json_values,
        "input_tokens": st.none() | st.integers(0, 9),
        "model": st.none() | st.text(max_size=3),
        "source": st.sampled_from(["live", "miss", "cassette", "elsewhere"]),
        "effect": st.sampled_from(["read", "write", "odd"]),
        "attrs": st.dictionaries(st.sampled_from(["finish_reason", "usage", "mine"]), json_values, max_size=2)
        | st.integers(),
        "more": json_values,
    }
    for name in draw(st.sets(st.sampled_from(sorted(optional)))):
        step[name] = draw(optional[name])
    return step


any_run = st.lists(st.booleans(), max_size=5).flatmap(
    lambda flags: st.tuples(*(any_step(idx) for idx in range(len(flags)))).map(list)
)


@settings(max_examples=50)  # two stores, two files and two imports each
@example([{"idx": 0, "kind": "agent", "effect": "read", "name": "agent.run"}], {})
@example([{"idx": 0, "kind": "agent", "more": 1, "error": "Boom: x", "name": "agent.run"}], {})
@given(
    any_run,
    st.dictionaries(
        st.sampled_from(["status", "tags", "result", "cost", "error", "more"]), st.deferred(lambda: json_values)
    ),
)
def test_an_export_of_an_import_stays_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], more: Any
) -> None:
    folder = tmp_path_factory.mktemp("roundtrip")
    source = write(folder / "0.jsonl", {"run": {"id": "r", **more}}, *({"step": step} for step in steps))
    outs: list[bytes] = []
    for n in (1, 2):
        fresh = open_url("memory:")
        assert import_file(fresh, source).total("steps") == len(steps)
        source = folder / f"{n}.jsonl"
        export_run(fresh, "r", source)
        outs.append(source.read_bytes())
    assert outs[0] == outs[1]
    exported = [next(iter(record.values())) for record in lines(source)][1:]
    for step, back in zip(steps, exported, strict=True):
        for name in ("more", "input_tokens", "source", "effect"):
            if step.get(name) not in (None, "live"):
                assert back[name] == step[name]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=6), json_values, max_size=5), st.integers(0, 3))
@example({":\x1f": None}, 0)
def test_top_keys_are_those_of_the_object(value: dict[str, Any], indent: int) -> None:
    text = json.dumps(value, indent=indent or None, ensure_ascii=indent == 1).encode("utf-8", "surrogatepass")
    escaped = (
        {json.dumps(key)[1:-1] for key in value}
        if indent == 1
        else {json.dumps(k, ensure_ascii=False)[1:-1] for k in value}
    )
    assert top_keys(text) == ("{", frozenset(escaped))
    assert top_keys(b"[" + text + b"]") == ("[", frozenset(escaped))
    assert top_keys(text[: len(text) // 2])[1] <= escaped
