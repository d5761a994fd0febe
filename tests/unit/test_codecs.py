"""Values come back with the type they had; nothing runs because data names it; nothing makes recording fail."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import math
import pathlib
import random
import sys
import threading
import types
import uuid
import zoneinfo
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, NamedTuple, TypeVar

import httpx
import httpx2
import openai
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai._models import construct_type
from openai.types.chat import ChatCompletion, ParsedChatCompletion

from agentloupe.ports import codecs
from agentloupe.ports.codecs import TAGS, Lost, decode, decode_for_reading, encode, error_line, register_type
from agentloupe.words.canonical import digest, dumps, loads
from agentloupe.words.errors import NotRebuildable
from tests.unit.values import json_values, same


def stored(value: object) -> Any:
    """The wire as it comes back from a store; the value must be whole."""
    encoded = encode(value)
    assert encoded.unrecordable == ()
    wire = loads(dumps(encoded.wire))
    assert same(wire, encoded.wire)
    return wire


def again(value: object) -> Any:
    """A value after recording and reading back."""
    return decode(stored(value))


# ---------------------------------------------------------------- any value

HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.datetimes(timezones=st.none() | st.just(dt.UTC) | st.just(zoneinfo.ZoneInfo("Europe/Oslo")))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.fractions()
    | st.complex_numbers(allow_nan=False),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
VALUES = st.recursive(
    HASHABLE | json_values(max_leaves=3) | st.sampled_from(sorted(TAGS)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.dictionaries(st.sampled_from(sorted(TAGS)), inner, max_size=2)
        | st.tuples(inner, inner)
        | st.sets(HASHABLE, max_size=3)
        | st.builds(collections.deque, st.lists(inner, max_size=2))
    ),
    max_leaves=8,
)


@given(VALUES)
def test_any_value_comes_back_with_its_types(value) -> None:
    back = again(value)
    assert back == value
    assert shape(back) == shape(value)


def shape(value: Any) -> object:
    """The types in a value; sets and orders apart, since equality has settled those."""
    if isinstance(value, dict):
        return dict, [(shape(k), shape(v)) for k, v in value.items()]
    if isinstance(value, list | tuple | collections.deque):
        return type(value), [shape(v) for v in value]
    return type(value)


@given(json_values())
def test_plain_json_is_its_own_wire_unless_it_looks_like_a_tag(value) -> None:
    wire = encode(value).wire
    assert same(decode(wire), value)
    if not any(f'{{"{tag}":' in dumps(value).decode("utf-8", "replace") for tag in TAGS):
        assert same(wire, value)


def test_the_wire_is_a_copy() -> None:
    value = {"a": [1, {"b": 2}], "flat": {"c": 3}}
    wire = encode(value).wire
    value["a"][1]["b"] = 9  # type: ignore[index]
    value["flat"]["c"] = 9  # type: ignore[index]
    assert wire == {"a": [1, {"b": 2}], "flat": {"c": 3}}
    back: Any = decode(wire)
    back["a"][1]["b"] = 7
    assert wire == {"a": [1, {"b": 2}], "flat": {"c": 3}}


class Colour(enum.Enum):
    RED = ("r", 1)
    GREEN = 2


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: tuple[int, ...] = ()


@dataclasses.dataclass
class Order:
    id: int
    lines: list[Point]
    note: str = dataclasses.field(default="", compare=False)

    def __post_init__(self) -> None:
        self.seen = True


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: object


class Text(str):
    pass


class Numbers(list):
    pass


class Record(dict):
    def items(self):  # type: ignore[override]
        return [("a lie", 1)]


class Money(int):
    __slots__ = ()


class Outer:
    class Inner(enum.Enum):
        A = 1


EXACT = [
    math.inf,
    -math.inf,
    -0.0,
    2**80,
    (1, (2, [3])),
    {1, "a", (2,)},
    frozenset([1.5, "b"]),
    b"\x00\xff",
    b"plain text",
    bytearray(b"x"),
    3 + 4j,
    complex(math.inf, -0.0),
    range(1, 10, 2),
    decimal.Decimal("1.10"),
    decimal.Decimal("-Infinity"),
    fractions.Fraction(1, 3),
    uuid.UUID(int=7),
    dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Oslo")),
    dt.datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=45))),
    dt.datetime(2026, 1, 1),  # noqa: DTZ001  # naive ones are values, too
    dt.date(2026, 2, 28),
    dt.time(1, 2, 3, 4, tzinfo=dt.UTC),
    dt.time(1, 2, fold=1),
    dt.timedelta(days=-1, seconds=2, microseconds=3),
    dt.UTC,
    dt.timezone(dt.timedelta(hours=1), "MINE"),
    zoneinfo.ZoneInfo("Asia/Kathmandu"),
    pathlib.PurePosixPath("/a/b"),
    pathlib.Path("x"),
    pathlib.PureWindowsPath("c:/x"),
    Colour.RED,
    Level.LOW,
    Word.YES,
    Access.READ,
    Access.READ | Access.WRITE,
    Access(0),
    Outer.Inner.A,
    Point(1, (2, 3)),
    Order(1, [Point(1)], "note"),
    Frozen({"a": (1,)}),
    Text("sub"),
    Numbers([1, (2,)]),
    Money(3),
    collections.OrderedDict([("b", 1), ("a", 2)]),
    collections.defaultdict(list, {"a": [1]}),
    collections.defaultdict(None, {1: 2}),
    collections.Counter("abca"),
    collections.deque([1, (2,)], maxlen=3),
    types.SimpleNamespace(a=1, b=(2,)),
    {1: "a", None: "b", (1, 2): "c", "d": "e"},
    {"$tuple": [1]},
    {"$set": {"name": "x"}},
    {"$ref": "#/$defs/Step"},
    {"$unrecordable": {"type": "x", "path": "$"}},
    int,
    dict,
    Order,
    Colour,
    Outer.Inner,
]


def _id(value: Any) -> str:
    """Sets are shown without their members: their order differs between the processes that share the tests."""
    return type(value).__name__ if isinstance(value, set | frozenset) else f"{type(value).__name__} {value!r}"[:40]


@pytest.mark.parametrize("value", EXACT, ids=_id)
def test_types_come_back(value) -> None:
    back = again(value)
    assert type(back) is type(value)
    assert back == value
    assert repr(back) == repr(value) or isinstance(value, set | frozenset)
    assert type(again([value])[0]) is type(value)


def test_nan_comes_back() -> None:
    assert encode([math.nan]).wire == [{"$float": "NaN"}]
    assert math.isnan(again([math.nan])[0])
    assert math.isnan(again(decimal.Decimal("NaN")))


def test_what_two_of_a_kind_are_told_by() -> None:
    fold = dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Oslo"))
    assert again(fold).fold == 1
    assert again(fold).utcoffset() == dt.timedelta(hours=1)
    assert again(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)).tzinfo is dt.UTC
    assert again(collections.deque([1], maxlen=3)).maxlen == 3
    assert list(again({"b": 1, "a": 2})) == ["b", "a"]
    assert list(again(Record(b=1, a=2))) == ["b", "a"]


def test_objects_get_their_state_back_and_no_code_of_theirs_runs() -> None:
    order = again(Order(1, [Point(1)], "note"))
    assert (order.note, order.lines[0].y) == ("note", ())
    assert order.seen  # what is no field of it is kept as well
    order = Order(1, [])
    del order.seen
    assert not hasattr(again(order), "seen")  # neither __init__ nor __post_init__ ran
    word = Text("x")
    word.mark = (1, 2)  # type: ignore[attr-defined]
    assert again(word).mark == (1, 2)
    record = Record(a=1)
    assert dict.__eq__(again(record), {"a": 1})


def test_equal_sets_have_one_wire() -> None:
    words = [f"w{i}" for i in range(50)]
    random.Random(1).shuffle(words)
    assert encode(set(words)).wire == encode({*words[::-1]}).wire
    assert digest(encode({1.0}).wire) == digest(encode({1}).wire)


def test_bytes_that_are_text_can_be_read() -> None:
    assert encode(b"sk-x \xc3\xa9").wire == {"$bytes": {"utf-8": "sk-x é"}}
    assert encode(b"\xff").wire == {"$bytes": "/w=="}


# ---------------------------------------------------------------- pydantic and the SDK's objects

RAW: dict[str, Any] = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "reasoning_content": "not in the SDK's types",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "odd": {"a": [1]}},
}


class Answer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    city: str
    when: dt.datetime | None = None
    _private: int = pydantic.PrivateAttr(default=3)


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int = 1


T = TypeVar("T")


class Box(pydantic.BaseModel, Generic[T]):
    item: T


class Ids(pydantic.RootModel[list[int]]):
    pass


def assert_same_model(back: Any, model: Any) -> None:
    assert type(back) is type(model)
    assert back == model
    assert repr(back) == repr(model)
    assert back.model_dump() == model.model_dump()
    assert back.model_dump(exclude_unset=True) == model.model_dump(exclude_unset=True)
    assert back.model_fields_set == model.model_fields_set
    assert back.model_extra == model.model_extra


@pytest.mark.parametrize(
    "model",
    [
        Answer(city="Oslo", when=dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
        Answer.model_construct(city="x", unknown=(1,)),
        Loose.model_validate({"a": 2, "b": [Answer(city="x")], "$tuple": 1}),
        Box[int](item=1),
        Box[Answer](item=Answer(city="x")),
        Ids([1, 2]),
    ],
    ids=lambda m: type(m).__name__,
)
def test_pydantic_models(model) -> None:
    assert_same_model(again(model), model)


def test_private_attributes_of_models() -> None:
    answer = Answer(city="x")
    object.__setattr__(answer, "__pydantic_private__", {"_private": 7})
    assert again(answer)._private == 7
    held: Any = Answer(city="x")
    held.__pydantic_private__["_private"] = threading.Lock()
    encoded = encode(held)
    assert [lost.path for lost in encoded.unrecordable] == ["$._private"]
    back: Any = decode(encoded.wire)
    assert back.city == "x"
    with pytest.raises(NotRebuildable):
        bool(back._private)


def test_the_sdks_answer_is_its_own_class_all_the_way_down() -> None:
    answer: Any = construct_type(type_=ChatCompletion, value=RAW)
    answer._request_id = "req_1"
    back = again(answer)
    assert_same_model(back, answer)
    message = back.choices[0].message
    assert type(message) is type(answer.choices[0].message)
    assert type(message.tool_calls[0].function) is type(answer.choices[0].message.tool_calls[0].function)
    assert message.reasoning_content == "not in the SDK's types"
    assert back.usage.odd == {"a": [1]}
    assert back._request_id == "req_1"


def test_a_parsed_answer_keeps_its_parameters() -> None:
    answer: Any = construct_type(type_=ParsedChatCompletion[Answer], value=RAW)
    answer.choices[0].message.parsed = Answer(city="Oslo")
    back = again(answer)
    assert type(back) is ParsedChatCompletion[Answer]
    assert back.choices[0].message.parsed == Answer(city="Oslo")


# ---------------------------------------------------------------- exceptions


class Declined(Exception):
    def __init__(self, code: str, *, limit: decimal.Decimal) -> None:
        super().__init__(f"declined: {code}")
        self.code = code
        self.limit = limit


class Slotted(ValueError):
    __slots__ = ("extra",)


class Several(ExceptionGroup):
    pass


class Stopped(BaseException):
    pass


def unicode_error() -> BaseException:
    try:
        b"a\xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


ERRORS = [
    Declined("no_funds", limit=decimal.Decimal("1.10")),
    ValueError(),
    ValueError("a", 1, (2,)),
    KeyError("k"),
    FileNotFoundError(2, "No such file", "a.txt"),
    OSError("only text"),
    ConnectionResetError(104, "reset"),
    unicode_error(),
    StopIteration(5),
    SystemExit(3),
    ImportError("m", name="n", path="p"),
    ModuleNotFoundError("m", name="n"),
    AttributeError("x", name="n"),
    NameError("x", name="n"),
    SyntaxError("bad", ("file", 1, 2, "text", 1, 3)),
    Several("group", [ValueError(1), Declined("c", limit=decimal.Decimal(1))]),
    BaseExceptionGroup("base", [KeyboardInterrupt()]),
    Stopped("now"),
    TimeoutError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: f"{type(e).__name__} {e}"[:40])
def test_exceptions_take_the_same_branch(error) -> None:
    back = again(error)
    assert type(back) is type(error)
    assert back.args == error.args or isinstance(error, BaseExceptionGroup)
    assert str(back) == str(error)
    assert repr(back) == repr(error)
    assert vars(back) == vars(error)
    for name in ("errno", "strerror", "filename", "value", "code", "name", "path", "start", "reason", "lineno"):
        assert getattr(back, name, None) == getattr(error, name, None)
    with pytest.raises(type(error)):
        raise back


def test_attributes_slots_notes_causes_and_groups() -> None:
    slotted: Any = Slotted("s")
    slotted.extra = (1,)
    assert again(slotted).extra == (1,)
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            inner.add_note("look here")
            raise Declined("c", limit=decimal.Decimal(1)) from inner
    except Declined as error:
        back = again(error)
    assert type(back.__cause__) is KeyError
    assert back.__cause__.__notes__ == ["look here"]
    assert back.__suppress_context__
    group = again(ERRORS[15])
    assert [type(member) for member in group.exceptions] == [ValueError, Declined]
    assert group.exceptions[1].limit == decimal.Decimal(1)
    assert group.subgroup(Declined).exceptions[0].code == "c"


def test_contexts_that_never_end_are_cut() -> None:
    error: BaseException = ValueError("0")
    for n in range(100):
        error, before = ValueError(str(n)), error
        error.__context__ = before
    assert str(again(error)) == "99"
    knot: Any = ValueError("knot")
    knot.myself = knot
    assert [lost.path for lost in encode(knot).unrecordable] == ["$.myself"]


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_requests_and_responses(library) -> None:
    request = library.Request("POST", "http://h/v1?q=1", headers=[("X-A", "1"), ("x-a", "2")], json={"a": "é"})
    import gzip

    response = library.Response(
        429,
        headers={"content-encoding": "gzip", "x-request-id": "q", "retry-after": "2"},
        content=gzip.compress(b'{"error": {"code": "rate"}}'),
        request=request,
    )
    response.elapsed = dt.timedelta(seconds=0.25)
    back = again(response)
    assert type(back) is library.Response
    assert (back.status_code, back.reason_phrase, back.http_version) == (429, "Too Many Requests", "HTTP/1.1")
    assert back.headers.multi_items() == response.headers.multi_items()
    assert back.json() == {"error": {"code": "rate"}}
    assert back.text == response.text
    assert back.elapsed == response.elapsed
    assert back.request.headers.get_list("x-a") == ["1", "2"]
    assert (back.request.method, str(back.request.url), back.request.content) == (
        "POST",
        "http://h/v1?q=1",
        request.content,
    )
    with pytest.raises(library.HTTPStatusError):
        back.raise_for_status()


def test_a_response_that_was_never_read_stays_unread() -> None:
    response = httpx2.Response(200, stream=httpx2.ByteStream(b"x"), request=httpx2.Request("GET", "http://h/"))
    back = again(response)
    with pytest.raises(httpx2.ResponseNotRead):
        back.content  # noqa: B018


def test_the_sdks_rate_limit_error() -> None:
    body = {"message": "slow down", "code": "rate_limit", "type": "requests", "param": None}
    request = httpx2.Request("POST", "http://h/v1/chat/completions", headers={"x": "1"}, json={"a": 1})
    response = httpx2.Response(429, headers={"x-request-id": "r1"}, json={"error": body}, request=request)
    error = openai.RateLimitError("Error code: 429", response=response, body=body)
    back = again(error)
    with pytest.raises(openai.RateLimitError):
        raise back
    assert str(back) == "Error code: 429"
    assert (back.status_code, back.code, back.type, back.param, back.request_id) == (
        429,
        "rate_limit",
        "requests",
        None,
        "r1",
    )
    assert back.body == body
    assert back.response.json() == {"error": body}
    assert back.request.content == request.content
    assert back.response.request.url == request.url


def test_an_error_in_one_line() -> None:
    assert error_line(encode(Declined("c", limit=decimal.Decimal(1))).wire) == "Declined: declined: c"
    assert error_line(encode(ValueError("first\nsecond")).wire) == "ValueError: first"
    assert error_line(encode(ValueError()).wire) == "ValueError"
    assert error_line("text") == "text"


# ---------------------------------------------------------------- what cannot be recorded


class Plain:
    pass


class Wicked:
    def __getattribute__(self, name):
        raise RuntimeError("no")

    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


class WickedError(Exception):
    def __str__(self):
        raise RuntimeError("no")


class WickedList(list):
    def __iter__(self):
        raise RuntimeError("no")

    def __len__(self):
        raise RuntimeError("no")


def test_what_cannot_be_recorded_is_marked_and_listed() -> None:
    encoded = encode({"ok": 1, "bad": [1, threading.Lock()], "f": len, "o": Plain()})
    assert encoded.unrecordable == (
        Lost("$.bad[1]", "_thread.lock"),
        Lost("$.f", "builtin_function_or_method"),
        Lost("$.o", f"{__name__}.Plain"),
    )
    assert encoded.unrecordable[0] == ("$.bad[1]", "_thread.lock")
    wire: Any = encoded.wire
    assert wire["ok"] == 1
    assert wire["bad"] == [1, {"$unrecordable": {"type": "_thread.lock", "path": "$.bad[1]"}}]
    with pytest.raises(NotRebuildable, match=r"_thread\.lock at \$\.bad\[1\]"):
        decode(encoded.wire)


def test_iterators_are_not_used_up() -> None:
    numbers = iter([1, 2, 3])
    generator = (n for n in [1, 2])
    assert len(encode([numbers, generator]).unrecordable) == 2
    assert (list(numbers), list(generator)) == ([1, 2, 3], [1, 2])


def test_objects_that_fight_back_do_no_harm() -> None:
    for value in (Wicked(), [Wicked()], {"a": Wicked()}, {Plain(): 1}, (Wicked(),)):
        assert len(encode(value).unrecordable) == 1


def test_overridden_methods_of_builtins_are_not_asked() -> None:
    assert list.__eq__(again(WickedList([1, 2])), [1, 2])
    assert type(again(WickedError("x"))) is WickedError


def test_circles_and_depth() -> None:
    circle: list[Any] = [1]
    circle.append({"again": circle})
    back = again(circle)
    assert back[1]["again"] is back
    shared = [1]
    assert again([shared, shared]) == [[1], [1]]
    deep: Any = 1
    for _ in range(codecs.DEPTH - 1):
        deep = (deep,)
    assert again(deep) == deep
    for _ in range(5):
        deep = {"x": deep}
    (lost,) = encode(deep).unrecordable
    assert lost.type == f"tuple below {codecs.DEPTH} levels"
    assert lost.path == "$.x.x.x.x.x[0][0][0][0][0]…(180 more)…" + "[0]" * 10


def test_little_stack_left_is_no_error() -> None:
    deep: Any = 1
    for _ in range(150):
        deep = [deep]

    def dive(levels: int) -> Any:
        return dive(levels - 1) if levels else encode(deep)

    depth = 0
    frame: Any = sys._getframe()
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    encoded = dive(sys.getrecursionlimit() - depth - 60)
    assert len(encoded.unrecordable) == 1


def test_a_dict_that_another_thread_changes_is_not_fatal() -> None:
    class Changing(dict):
        pass

    busy = {i: i for i in range(3)}

    class Key:
        def __hash__(self):
            return 1

    busy[Key()] = 1  # type: ignore[index]
    assert encode(busy).unrecordable[0].type.endswith("Key")


def local_error() -> Exception:
    class LocalError(Exception):
        pass

    return LocalError("from a function")


def test_a_class_that_nobody_can_find_again_is_listed_but_told() -> None:
    encoded = encode(local_error())
    assert [lost.path for lost in encoded.unrecordable] == ["$"]
    assert error_line(encoded.wire) == "LocalError: from a function"
    with pytest.raises(NotRebuildable, match="is not loaded here"):
        decode(encoded.wire)


def test_a_part_of_an_exception_that_was_lost_stops_who_uses_it() -> None:
    error: Any = Declined("c", limit=decimal.Decimal(1))
    error.connection = threading.Lock()
    encoded = encode(error)
    assert [lost.path for lost in encoded.unrecordable] == ["$.connection"]
    back: Any = decode(encoded.wire)
    assert back.code == "c"
    assert "not recordable: _thread.lock" in repr(back.connection)
    for use in (lambda x: x.acquire, lambda x: bool(x), lambda x: x(), lambda x: x == 1, lambda x: list(x)):
        with pytest.raises(NotRebuildable):
            use(back.connection)


# ---------------------------------------------------------------- data only


def test_classes_are_never_imported(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    wires: list[Any] = [
        {"$type": "colorsys:X"},
        {"$exception": {"class": "colorsys:X", "args": []}},
        {"$enum": ["colorsys:X", "A"]},
        {"$model": ["colorsys:X", {}, {}]},
    ]
    for wire in wires:
        with pytest.raises(NotRebuildable):
            decode(wire)
    assert "colorsys" not in sys.modules


def test_names_lead_to_classes_only_and_run_no_look_up_code(monkeypatch) -> None:
    module: Any = types.ModuleType("sly")
    asked: list[str] = []
    module.__getattr__ = asked.append
    monkeypatch.setitem(sys.modules, "sly", module)
    for name in (
        "sly:Gone",
        "builtins:len",
        "builtins:eval",
        "os:path",
        "os:path.join",
        "builtins:int.real",
        "",
        ":",
        "x",
    ):
        with pytest.raises(NotRebuildable):
            decode({"$type": name})
    assert asked == []


@pytest.mark.parametrize(
    "wire",
    [
        {"$tuple": 5},
        {"$dict": [[1]]},
        {"$dict": [[[], 1]]},
        {"$bytes": "***"},
        {"$bytes": 5},
        {"$float": "1.5"},
        {"$decimal": "x"},
        {"$uuid": "x"},
        {"$uuid": None},
        {"$datetime": "yesterday"},
        {"$datetime": ["2026-01-01", None]},
        {"$zoneinfo": "../../etc/passwd"},
        {"$timezone": [1, 2, 3]},
        {"$path": ["Path", "x"]},
        {"$range": [1, 2, "3"]},
        {"$range": [1, 2, 0]},
        {"$deque": [[1], "x"]},
        {"$defaultdict": [{"$type": "subprocess:Popen"}, []]},
        {"$enum": ["builtins:int", "real"]},
        {"$enum": [f"{__name__}:Colour", "BLUE"]},
        {"$namedtuple": ["builtins:int", [1]]},
        {"$dataclass": ["builtins:int", {}]},
        {"$dataclass": [f"{__name__}:Plain", {"a": 1}]},
        {"$model": [f"{__name__}:Plain", {}, {}]},
        {"$model": [f"{__name__}:Answer", 5, {}]},
        {"$model": [{"generic": ["builtins:list", ["builtins:int"]]}, {}, {}]},
        {"$sub": ["builtins:bool", "int", 1]},
        {"$sub": [f"{__name__}:Plain", "str", "x"]},
        {"$sub": [f"{__name__}:Text", "str", 5, 6, 7]},
        {"$exception": {"class": "builtins:int", "args": []}},
        {"$exception": {"args": []}},
        {"$exception": 5},
        {"$exception": {"class": "builtins:ValueError", "args": [], "state": {"nothing": 1}}},
        {"$http_request": {"module": "os", "method": "GET"}},
        {"$http_response": {"module": "httpx2"}},
        {"$custom": ["never registered", 1]},
        {"$unrecordable": 5},
    ],
    ids=lambda w: dumps(w).decode()[:60],
)
def test_a_wire_that_nobody_writes_is_one_kind_of_error(wire) -> None:
    with pytest.raises(NotRebuildable):
        decode(wire)


@given(st.dictionaries(st.sampled_from(sorted(TAGS)), json_values(max_leaves=6), min_size=1, max_size=1))
def test_any_wire_decodes_or_is_that_one_kind_of_error(wire) -> None:
    with contextlib.suppress(NotRebuildable):
        decode(wire)


def test_depth_of_a_foreign_wire() -> None:
    wire: Any = 1
    for _ in range(100_000):  # far beyond any limit that others have left behind
        wire = [wire]
    # In a thread of its own, whose count of frames nobody has put out of step.
    with ThreadPoolExecutor(1) as fresh, pytest.raises(NotRebuildable, match="too deep"):
        fresh.submit(decode, wire).result()
    assert decode_for_reading(wire) is wire


# ---------------------------------------------------------------- registry, script, reading


class Vector:
    def __init__(self, values: list[float]) -> None:
        self.values = values


def test_a_registered_type(monkeypatch) -> None:
    assert encode(Vector([1.0])).unrecordable != ()
    register_type(Vector, "test.vector", lambda v: tuple(v.values), lambda plain: Vector(list(plain)))
    assert stored(Vector([1.0, math.inf])) == {"$custom": ["test.vector", {"$tuple": [1.0, {"$float": "Infinity"}]}]}
    assert again([Vector([1.0])])[0].values == [1.0]


def test_a_class_of_a_script_is_the_same_class_when_the_script_is_a_module(monkeypatch) -> None:
    def made(name: str, file: str) -> Any:
        module = types.ModuleType(name)
        module.__file__ = file
        cls = enum.Enum("City", {"OSLO": 1}, module=name, qualname="City")
        module.City = cls  # type: ignore[attr-defined]
        return module

    monkeypatch.delitem(sys.modules, "weather_agent", raising=False)  # other tests load the example by that name
    script = made("__main__", "/somewhere/weather_agent.py")
    monkeypatch.setitem(sys.modules, "__main__", script)
    wire = encode(script.City.OSLO).wire
    assert wire == {"$enum": ["weather_agent:City", "OSLO"]}
    assert decode(wire) is script.City.OSLO
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    with pytest.raises(NotRebuildable, match="import weather_agent before"):
        decode(wire)
    module = made("weather_agent", "/somewhere/weather_agent.py")
    monkeypatch.setitem(sys.modules, "weather_agent", module)
    assert decode(wire) is module.City.OSLO
    assert encode(module.City.OSLO).wire == wire


def test_reading_is_plain_json_for_people() -> None:
    value = {
        "t": (1, {2}),
        "when": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "then": dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Oslo")),
        "c": Colour.GREEN,
        "m": Loose.model_validate({"a": 1, "b": 2}),
        "p": Point(1),
        "o": Order(1, []),
        "d": {1: "a", (1, 2): "b"},
        "e": Declined("x", limit=decimal.Decimal(1)),
        "b": b"text",
        "money": decimal.Decimal("1.10"),
        "half": fractions.Fraction(1, 2),
        "span": dt.timedelta(days=1, seconds=5),
        "lost": len,
    }
    assert decode_for_reading(encode(value).wire) == {
        "t": [1, [2]],
        "when": "2026-01-01T00:00:00+00:00",
        "then": "2026-01-01T00:00:00",
        "c": "GREEN",
        "m": {"a": 1, "b": 2},
        "p": [1, []],
        "o": {"id": 1, "lines": [], "note": ""},
        "d": {"1": "a", "[1,2]": "b"},
        "e": "Declined: declined: x",
        "b": "text",
        "money": "1.10",
        "half": "1/2",
        "span": "1 day, 0:00:05",
        "lost": "(not recordable: builtin_function_or_method)",
    }


@given(json_values())
def test_reading_never_fails(wire) -> None:
    dumps(decode_for_reading(wire))


@given(VALUES)
def test_what_is_read_has_no_tags_of_ours_left_but_those_nobody_reads(value) -> None:
    dumps(decode_for_reading(encode(value).wire))
