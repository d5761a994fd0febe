# pyright: basic
"""Types that come back: what the standard library, pydantic, attrs, requests and HTTP clients hand out, and circles."""

from __future__ import annotations

import argparse
import array
import asyncio
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import http
import io
import ipaddress
import json
import pathlib
import re
import socket
import ssl
import string
import subprocess
import threading
import time
import types
import uuid
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import attrs
import httpx
import multidict
import pydantic
import pytest
import requests
import urllib3
import yarl
from hypothesis import given
from hypothesis import strategies as st

import agentloupe as loupe
from agentloupe.ports import codecs
from agentloupe.ports.codecs import decode, decode_for_reading, encode, register_type
from agentloupe.verbs.replaying import replay
from agentloupe.words.canonical import key_of
from agentloupe.words.errors import NotRebuildable, UsageError
from agentloupe.words.jsontext import dumps, loads

T = TypeVar("T")


def again(value: Any) -> Any:
    """Through the bytes of the store, and back."""
    encoded = encode(value)
    assert encoded.unrecordable == ()
    assert dumps(encode(value).wire) == dumps(encoded.wire)
    decode_for_reading(encoded.wire)
    return decode(loads(dumps(encoded.wire)))


# --- classes of users ---------------------------------------------------------------------------------------------------


class Permission(enum.IntFlag):
    READ = 1
    WRITE = 2


class Open(enum.Enum):
    KNOWN = "known"

    @classmethod
    def _missing_(cls, value: object) -> Open:
        made = object.__new__(cls)
        made._name_, made._value_ = "UNKNOWN", value
        return made


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Strict:
    a: int
    b: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Derived:
    a: int
    start: dataclasses.InitVar[int] = 3
    c: int = dataclasses.field(init=False)

    def __post_init__(self, start: int) -> None:
        self.c = self.a + start


@dataclasses.dataclass
class Node:
    name: str
    parent: Node | None = None
    children: list[Node] = dataclasses.field(default_factory=list)


@attrs.define
class Slotted:
    x: int
    y: str = "q"


@attrs.frozen
class Private:
    x: int
    p: int = 4


class Euro(decimal.Decimal):
    pass


class Stamp(dt.datetime):
    @property
    def year(self) -> int:
        raise RuntimeError("no")


class Day(dt.date):
    pass


class Span(dt.timedelta):
    pass


class Clock(dt.time):
    pass


class Buffer(bytearray):
    pass


class Ring(collections.deque):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.note = "n"


class Lists(collections.defaultdict):
    pass


class Ordered(collections.OrderedDict):
    pass


class Settings(collections.UserDict):
    pass


class Rows(collections.UserList):
    pass


class Name(collections.UserString):
    pass


class Third(fractions.Fraction):
    pass


class Ticket(uuid.UUID):
    pass


class Space(types.SimpleNamespace):
    pass


class Zone(dt.tzinfo):
    def utcoffset(self, _: Any) -> dt.timedelta:
        return dt.timedelta(hours=1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Zone)

    __hash__ = dt.tzinfo.__hash__

    def __repr__(self) -> str:
        return "Zone()"


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    name: str = "w"


class Pet(pydantic.BaseModel):
    pet: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]
    when: dt.datetime | None = None


class Rich(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", frozen=True)
    a: tuple[int, ...]
    _p: int = pydantic.PrivateAttr(default=5)


class Box(pydantic.BaseModel, Generic[T]):
    v: T


class Links(pydantic.BaseModel):
    page: pydantic.HttpUrl
    store: pydantic.AnyUrl | None = None
    many: pydantic.PostgresDsn | None = None


class Account(pydantic.BaseModel):
    user: str
    key: pydantic.SecretStr
    raw: pydantic.SecretBytes | None = None


class Computed(pydantic.BaseModel):
    a: int

    @pydantic.computed_field
    @property
    def b(self) -> int:
        return self.a + 1


@pydantic.dataclasses.dataclass
class Checked:
    a: int
    b: list[int] = dataclasses.field(default_factory=list)


VALUES: list[Any] = [
    *(Permission(3), Permission(12), http.HTTPStatus.OK, http.HTTPMethod.GET, socket.AF_INET),
    *(Strict(a=1, b=[2]), Derived(1), Slotted(1), Private(1, p=3), Checked(1, [2])),
    *(Euro("1.10"), Euro("-0"), Stamp(2026, 1, 2, 3, fold=1, tzinfo=dt.UTC), Day(2026, 1, 1), Span(1), Clock(1, 2)),
    *(Buffer(b"\xff"), Ring([1, (2,)], 3), Lists(list, {1: [2]}), Ordered(b=1, a=2), Settings(a=1), Rows([1])),
    *(Name("a"), Third(1, 3), Ticket(int=7), Space(a=(1,)), dt.datetime(2026, 1, 1, tzinfo=Zone())),
    *(Pet(pet=Dog(), when=dt.datetime(2026, 1, 1)), Rich.model_validate({"a": (1,), "z": [1]}), Computed(a=1)),  # noqa: DTZ001
    *(Box[int](v=1), Box[list[int]](v=[1]), Box[int | None](v=None), Box[dict[str, Any]](v={}), Box(v=2)),
    *(Box[Literal["a", 1]](v=1), Box[Pet](v=Pet(pet=Cat())), Box[tuple[int, ...]](v=(1,))),
    Links(page="https://x.invalid/y", store="redis://a", many="postgres://h1:1,h2:2/d"),  # type: ignore[arg-type]
    *(memoryview(b"abc"), array.array("d", [1.5, -0.0]), types.MappingProxyType({1: "a"}), slice(1, None, 2)),
    *(ipaddress.ip_address("1.2.3.4"), ipaddress.ip_address("fe80::1%eth0"), ipaddress.ip_network("10.0.0.0/8")),
    *(ipaddress.ip_interface("10.0.0.1/8"), re.compile("a(b)", re.IGNORECASE), re.compile(rb"x"), ..., NotImplemented),
    *(time.gmtime(0), pathlib.Path.cwd().stat(), type(None), argparse.Namespace(a=1)),
    *(collections.ChainMap({1: 2}, {3: 4}), subprocess.CompletedProcess(["a"], 0, b"o", None)),
    *(httpx.URL("http://x/y?z=1"), httpx.QueryParams("a=1&a=2"), httpx.Headers([("a", "b"), ("a", "c")])),
    *(yarl.URL("http://x/y?z=%20 1"), multidict.istr("Content-Type"), multidict.CIMultiDict([("a", "b"), ("A", "c")])),
    *(multidict.MultiDict(a=1), multidict.MultiDictProxy(multidict.MultiDict(a=(1,)))),
    multidict.CIMultiDictProxy(multidict.CIMultiDict({multidict.istr("Retry-After"): "7"})),
    *(decimal.Decimal("sNaN12"), decimal.Decimal("1E+30"), decimal.Decimal("-0.00")),
]


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    plain = decimal.Decimal if isinstance(a, decimal.Decimal) else type(a)
    if plain is decimal.Decimal or type(a).__eq__ is object.__eq__:
        return repr(a) == repr(b)
    return a == b


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{type(v).__name__}")
def test_values_come_back_with_their_types(value: Any) -> None:
    back = again(value)
    assert _same(back, value)
    assert _same(again({"in": [value]})["in"][0], value)
    if hasattr(value, "__dict__") and not isinstance(value, type):
        assert vars(back).keys() == vars(value).keys()


def test_state_beside_the_value_is_kept() -> None:
    assert again(Ring([1])).note == "n"
    model = again(Rich.model_validate({"a": (1,), "z": [1]}))
    assert (model._p, model.model_extra, model.model_fields_set) == (5, {"z": [1]}, {"a", "z"})
    assert again(pathlib.Path.cwd().stat()).st_mtime_ns == pathlib.Path.cwd().stat().st_mtime_ns
    back = again(memoryview(bytearray(b"abc")))
    back[0] = 1
    unknown = again(Open("other"))
    assert (unknown.name, unknown.value) == ("UNKNOWN", "other")
    assert again(string.Template("$a")).template == "$a"


def test_secrets_of_pydantic_are_never_recorded() -> None:
    encoded = encode(Account(user="u", key="LOUPE-CANARY", raw=b"LOUPE-CANARY"))  # type: ignore[arg-type]
    assert encoded.unrecordable == ()
    assert b"CANARY" not in dumps(encoded.wire)
    back: Any = decode(encoded.wire)
    assert back.user == "u"
    assert back.key.get_secret_value() == "[removed:secret]"
    assert back.raw.get_secret_value() == b"[removed:secret]"


class Appointment(pydantic.BaseModel):
    at: dt.datetime
    ends: dt.datetime


class Numbers(pydantic.RootModel[list[int]]):
    pass


class NotedNumbers(pydantic.RootModel[list[int]]):
    _note: str = pydantic.PrivateAttr(default="n")


@dataclasses.dataclass
class Crate(Generic[T]):
    held: T


def test_moments_that_pydantic_has_read_keep_their_zone() -> None:
    read = Appointment.model_validate({"at": "2026-11-29T10:00:00Z", "ends": "2026-11-29T10:00:00+05:30"})
    back = again(read)
    assert back == read
    assert [repr(m.tzinfo) for m in (back.at, back.ends)] == [repr(m.tzinfo) for m in (read.at, read.ends)]
    assert back.model_dump_json() == read.model_dump_json()


@pytest.mark.parametrize("made", [Numbers([1, 2]), NotedNumbers([3]), Crate(1), Crate[int](2)])
def test_what_came_back_may_be_passed_on_as_what_it_was(made: Any) -> None:
    back = again(made)
    assert back == made
    assert encode(back).wire == encode(made).wire


def test_a_root_model_has_its_private_attributes() -> None:
    assert again(NotedNumbers([3]))._note == "n"


# --- circles ------------------------------------------------------------------------------------------------------------


def test_objects_that_lead_back_to_themselves() -> None:
    root = Node("root")
    root.children += [Node("a", root), Node("b", root)]
    back = again({"tree": root, "other": [1]})["tree"]
    assert [child.parent is back for child in back.children] == [True, True]
    assert [child.name for child in back.children] == ["a", "b"]


def test_circles_through_every_container_that_can_hold_one() -> None:
    inner: list[Any] = []
    odd: dict[Any, Any] = {1: inner}
    space = Settings(x=(odd,))
    inner += [odd, space, {"$set": inner}]
    back = again([inner])[0]
    assert back[0][1] is back
    assert back[1].data["x"][0][1] is back
    assert back[2]["$set"] is back


def test_a_circle_through_what_cannot_hold_one_is_listed() -> None:
    held: list[Any] = []
    held.append((held,))
    turned: Any = (held,)
    assert again(held)[0][0] is not None
    held[0] = turned
    assert [lost.path for lost in encode(turned).unrecordable] == ["$[0][0]"]


@pytest.mark.parametrize("wire", [{"$up": 0}, [{"$up": 1}], [{"$up": -1}], [{"$up": "x"}], {"$tuple": [{"$up": 0}]}])
def test_circles_to_nowhere(wire: Any) -> None:
    with pytest.raises(NotRebuildable):
        decode(wire)


def test_keys_go_by_value_also_in_circles() -> None:
    def make() -> Node:
        root = Node("r")
        root.children.append(Node("k", root))
        return root

    assert key_of("tool", "t", encode(make()).wire) == key_of("tool", "t", encode(make()).wire)


# --- exceptions -----------------------------------------------------------------------------------------------------------


class NeedsArguments(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail


class NoPickle(RuntimeError):
    def __reduce__(self) -> Any:
        raise TypeError("no")


class NewTakesTwo(LookupError):
    def __new__(cls, a: int, b: int) -> Any:
        return super().__new__(cls, a)

    def __init__(self, a: int, b: int) -> None:
        self.a, self.b = a, b


def _raised(function: Any) -> BaseException:
    try:
        function()
    except BaseException as error:  # that is what is asked for
        return error
    raise AssertionError("nothing was raised")


ERRORS: list[BaseException] = [
    *(NeedsArguments(4, detail="d"), NoPickle("x"), NewTakesTwo(1, 2), asyncio.CancelledError("m"), SystemExit(3)),
    *(ConnectionResetError(104, "reset"), ssl.SSLError(1, "x"), socket.gaierror(-2, "n"), StopIteration((1,))),
    *(subprocess.CalledProcessError(1, ["a"], b"o", b"e"), subprocess.TimeoutExpired(["a"], 1.5)),
    _raised(lambda: json.loads("{")),
    _raised(lambda: decimal.Decimal(1) / 0),
    _raised(lambda: b"\xff".decode()),
    _raised(lambda: Pet(pet="x")),  # type: ignore[arg-type]
    _raised(lambda: Pet.model_validate_json('{"pet": {"kind": "bird"}}')),
    _raised(lambda: Pet.model_validate_json("{")),
    httpx.ReadTimeout("t", request=httpx.Request("GET", "http://x")),
    BaseExceptionGroup("g", [KeyboardInterrupt(), ExceptionGroup("h", [OSError(2, "x", "f"), NoPickle(1)])]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_exceptions_come_back(error: BaseException) -> None:
    back = again(error)
    assert type(back) is type(error)
    assert (str(back), repr(back)) == (str(error), repr(error))
    assert vars(back).keys() == vars(error).keys()


def test_what_validation_says_can_be_asked() -> None:
    error: Any = _raised(lambda: Pet.model_validate({"pet": {"kind": "dog", "name": 1}, "when": "x"}))
    assert again(error).errors() == error.errors()

    class Even(pydantic.BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def even(cls, n: int) -> int:
            if n % 2:
                raise ValueError("odd")
            return n

    error = _raised(lambda: Even(n=1))
    back = again(error)
    assert str(back) == str(error)
    assert back.errors()[0]["ctx"]["error"].args == ("odd",)


def test_errors_of_requests_are_asked_for_their_response() -> None:
    response: Any = requests.Response()
    response.status_code, response._content, response.url = 429, b'{"error": "slow"}', "http://x/y"
    response.headers["Retry-After"] = "3"
    response.request = requests.Request("POST", "http://x/y", json={"a": 1}).prepare()
    back = again(_raised(response.raise_for_status))
    assert type(back) is requests.HTTPError
    assert back.response is not None
    request: Any = back.request
    assert (back.response.status_code, back.response.json()) == (429, {"error": "slow"})
    assert back.response.headers["retry-after"] == "3"
    assert (request.method, request.body) == ("POST", b'{"a": 1}')
    assert back.response.ok is False


def _live_errors() -> dict[str, Any]:
    """What urllib3 raises where nothing listens, and exceptions of its with the pool and the connection that they hold."""
    pool = urllib3.HTTPConnectionPool("127.0.0.1", 1)
    connection = urllib3.HTTPConnectionPool.ConnectionCls("127.0.0.1", 1)
    answer = urllib3.HTTPResponse(io.BytesIO(b"x"), preload_content=False)
    known: Any = urllib3.exceptions
    return {
        "refused": _raised(lambda: urllib3.PoolManager().request("GET", "http://127.0.0.1:1", retries=False)),
        "tried": _raised(lambda: urllib3.PoolManager().request("GET", "http://127.0.0.1:1", retries=0)),
        "requests": _raised(lambda: requests.get("http://127.0.0.1:1")),
        "late": known.ReadTimeoutError(pool, "/x", "Read timed out."),
        "name": known.NameResolutionError("nowhere.invalid", connection, socket.gaierror(-2, "not known")),
        "slow": known.ConnectTimeoutError(connection, "timed out"),
        "full": known.FullPoolError(pool, "no more"),
        "cut": known.InvalidChunkLength(answer, b"zz"),
        "tls": known.SSLError(ssl.SSLError(1, "no shared cipher")),
        "proxy": known.ProxyError("no tunnel", OSError(1, "no")),
    }


@pytest.mark.parametrize("name", list(_live_errors()))
def test_errors_of_urllib3_come_back_without_the_connection_that_they_hold(name: str) -> None:
    error = _live_errors()[name]
    encoded = encode(error)
    assert encoded.unrecordable == ()
    back: Any = decode(encoded.wire)
    assert (type(back), str(back), repr(back)) == (type(error), str(error), repr(error))
    assert back.__dict__.keys() == error.__dict__.keys()
    assert encode(back) == encoded, "it may go on in a replay, and be compared"
    for held in ("pool", "conn", "response"):
        if held in error.__dict__ and error.__dict__[held] is not None:
            with pytest.raises(NotRebuildable, match=f"urllib3.*{held} was not recordable"):
                _ = back.__dict__[held].host


def test_a_connection_on_an_exception_of_somebody_else_is_listed() -> None:
    error = ValueError("no")
    error.conn = urllib3.HTTPConnectionPool.ConnectionCls("127.0.0.1", 1)  # type: ignore[attr-defined]
    assert [lost.path for lost in encode(error).unrecordable] == ["$.conn"]


@pytest.mark.parametrize("ask", [requests.get, lambda url: urllib3.PoolManager().request("GET", url, retries=1)])
def test_a_run_with_a_connection_that_fails_is_replayed(workdir: Path, ask: Any) -> None:
    """Caught and given on; and not caught."""

    @loupe.tool(effect="read")
    def fetch() -> None:
        ask("http://127.0.0.1:1")

    @loupe.tool(effect="read")
    def note(error: BaseException) -> BaseException:
        return error

    def agent() -> None:
        try:
            fetch()
        except Exception as error:
            note(error)
            raise

    with pytest.raises(Exception, match="Max retries exceeded"):
        loupe.record(agent)
    (run,) = loupe.open_store().runs()
    assert (run.coverage, run.coverage_notes) == ("full", ())
    report = replay(run.id, agent)
    assert report.passed, report.text()


def test_a_class_of_exceptions_that_is_written_in_c_elsewhere_is_listed_when_it_is_recorded(monkeypatch: Any) -> None:
    from pydantic_core import PydanticCustomError

    encoded = encode(PydanticCustomError("kind", "text"))
    assert [lost.type for lost in encoded.unrecordable] == ["pydantic_core._pydantic_core.PydanticCustomError"]


READ: list[tuple[Any, Any]] = [
    (ipaddress.ip_address("1.2.3.4"), "1.2.3.4"),
    (array.array("i", [1, 2]), [1, 2]),
    (Settings(a=(1,)), {"data": {"a": [1]}}),
    (httpx.URL("http://x/y"), "http://x/y"),
    (Links(page="https://x.invalid/y").page, "https://x.invalid/y"),  # type: ignore[arg-type]
    (re.compile("a(b)"), "a(b)"),
    (slice(1, None, 2), [1, None, 2]),
    (memoryview(b"abc"), "abc"),
    (types.MappingProxyType({"a": (1,)}), {"a": [1]}),
    (..., "Ellipsis"),
    (pydantic.SecretStr("x"), "[removed:secret]"),
    (time.gmtime(0), [1970, 1, 1, 0, 0, 0, 3, 1, 0]),
]


@pytest.mark.parametrize(("value", "read"), READ, ids=lambda v: type(v).__name__)
def test_people_read_plain_json(value: Any, read: Any) -> None:
    assert decode_for_reading(encode(value).wire) == read


def test_people_are_told_of_circles_and_faults() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    assert decode_for_reading(encode(circle).wire) == [1, "(the value around this one)"]
    fault = _raised(lambda: Pet(pet="x"))  # type: ignore[arg-type]
    assert decode_for_reading(encode(fault).wire) == "ValidationError: Pet"


# --- the registry ---------------------------------------------------------------------------------------------------------


class Matrix:
    """As a library of numbers has it: what it holds is in no attribute that data could set."""

    __slots__ = ("_view",)

    def __init__(self, rows: list[list[float]]) -> None:
        self._view = memoryview(array.array("d", [x for row in rows for x in row])).cast("B")

    def tolist(self) -> list[float]:
        return list(self._view.cast("d"))


def test_a_type_of_a_library_is_taught_with_two_functions() -> None:
    assert encode(Matrix([[1.0]])).unrecordable != ()
    register_type(Matrix, "tests.matrix", Matrix.tolist, lambda plain: Matrix([plain]))
    assert again([Matrix([[1.0, 2.5]])])[0].tolist() == [1.0, 2.5]


def test_a_plain_class_is_taught_by_its_name() -> None:
    @register_type
    class Weather:
        made = 0

        def __init__(self, city: str) -> None:
            type(self).made += 1
            self.city, self.lock, self.me = city, threading.Lock(), self

    encoded = encode(Weather("Oslo"))
    assert [lost.path for lost in encoded.unrecordable] == ["$.lock"]
    back: Any = decode(encoded.wire)
    assert (type(back), back.city, back.me is back, Weather.made) == (Weather, "Oslo", True, 1)
    with pytest.raises(NotRebuildable):
        back.lock.acquire()


def test_the_registry_is_strict() -> None:
    with pytest.raises(UsageError, match="or neither"):
        register_type(Node, "tests.node", to_json=lambda _: None)

    class Own:
        pass

    register_type(Own, "tests.own")
    register_type(Own, "tests.own")
    with pytest.raises(UsageError, match=r"taken by .*Own"):
        register_type(Name, "tests.own")


# --- anything -------------------------------------------------------------------------------------------------------------

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.decimals(allow_nan=False)
    | st.datetimes(timezones=st.just(dt.UTC))
    | st.uuids()
    | st.ip_addresses()
    | st.sampled_from([v for v in VALUES if type(v).__hash__ is not None and not isinstance(v, memoryview | slice)])
)


def _containers(inner: Any) -> Any:
    return (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.dictionaries(st.sampled_from(sorted(codecs.TAGS)), inner, max_size=1)
        | st.builds(lambda v: Node("n", None, [v]), inner)
        | st.builds(lambda v: Slotted(1, v), inner)
        | st.builds(lambda v: Box(v=v), inner)
        | st.builds(lambda v: Ring([v]), inner)
    )


@given(st.recursive(LEAVES, _containers, max_leaves=8))
def test_anything_comes_back_as_it_was(value: Any) -> None:
    back = again(value)
    assert repr(back) == repr(value)
    assert encode(back).wire == encode(value).wire
