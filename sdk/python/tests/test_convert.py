"""Codecs: which one a type gets, what it writes and what it refuses."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import subprocess
import sys
import threading
import typing
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import pytest

from millrace_sdk import codec, convert
from millrace_sdk.convert import ConvertError

UTC = datetime.timezone.utc


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: int = 0


class Address(TypedDict):
    city: str
    zip: str | None


@dataclasses.dataclass
class Inner:
    n: int
    children: list[Inner] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Everything:
    a: int
    b: float
    c: str
    d: bytes
    e: bool
    f: datetime.datetime
    g: uuid.UUID
    h: Color
    i: list[Inner]
    j: dict[str, int]
    k: tuple[int, str]
    m: Address
    p: Point
    q: Literal["x", 1]
    r: int | str
    s: decimal.Decimal
    t: Mapping[int, Sequence[float]]
    v: frozenset[int]
    w: Annotated[int, ["a list"]]
    u: datetime.date | None = None


EVERYTHING = Everything(
    9007199254740993, 1.5, "ä", b"\x00\xff", True, datetime.datetime(2026, 1, 2, 3, 4, 5, 6, UTC), uuid.UUID(int=7),
    Color.BLUE, [Inner(1, [Inner(2)])], {"x": 1}, (1, "a"), {"city": "Ulm", "zip": None}, Point(1), 1, "r",
    decimal.Decimal("1.10"), {1: [1.0]}, frozenset({3}), 5, datetime.date(2026, 1, 2),
)  # fmt: skip


def test_everything_comes_back() -> None:
    c = codec.codec_of(Everything)
    assert c.content_type == "application/json"
    data = c.encode(EVERYTHING)
    assert c.decode(data) == EVERYTHING
    assert b'"a":9007199254740993' in data and b'"d":"AP8="' in data and b'"f":"2026-01-02T03:04:05.000006Z"' in data


def test_go_times() -> None:
    c = codec.codec_of(datetime.datetime)
    assert c.decode(b'"2026-01-02T03:04:05.123456789Z"') == datetime.datetime(2026, 1, 2, 3, 4, 5, 123456, UTC)
    assert c.decode(b'"2026-01-02T03:04:05+02:00"').utcoffset() == datetime.timedelta(hours=2)


@pytest.mark.parametrize(
    ("tp", "data"),
    [
        (int, b'"1"'), (int, b"true"), (int, b"1.5"), (str | None, b"1"), (bool, b"1"), (list[int], b'[1,"a"]'),
        (Inner, b"{}"), (Inner, b'{"n":null}'), (Inner, b"[]"), (Color, b'"green"'), (Address, b'{"city":"x"}'),
        (tuple[int, int], b"[1]"), (Literal["a"], b'"b"'), (datetime.datetime, b'"today"'), (int, b"{"),
        (type(None), b"1"),
        (uuid.UUID, b'"x"'), (dict[str, int], b'{"a":"b"}'),
    ],
)  # fmt: skip
def test_refused(tp: Any, data: bytes) -> None:
    with pytest.raises(ValueError):
        codec.codec_of(tp).decode(data)


def test_the_place_of_what_is_wrong() -> None:
    with pytest.raises(ConvertError, match=r"children\[0\].n must be an integer"):
        codec.codec_of(Inner).decode(b'{"n":1,"children":[{"n":"x"}]}')


def test_what_is_written_is_checked() -> None:
    with pytest.raises(ConvertError):
        codec.codec_of(Inner).encode(Inner("x"))  # type: ignore[arg-type]
    with pytest.raises(ConvertError):
        codec.codec_of(float).encode(float("nan"))
    with pytest.raises(ConvertError):
        codec.codec_of(dict[str, Any]).encode({"a": object()})


def test_text_and_bytes_are_raw() -> None:
    assert codec.encode_with(codec.codec_of(str), "ä") == ("ä".encode(), "text/plain; charset=utf-8")
    assert codec.encode_with(codec.codec_of(bytes), b"\xff") == (b"\xff", "application/octet-stream")
    with pytest.raises(ValueError):
        codec.codec_of(str).encode(b"x")


def test_values_without_a_type() -> None:
    c = codec.codec_of(Any)
    assert codec.encode_with(c, {"a": [1, None]}) == (b'{"a":[1,null]}', "application/json")
    assert codec.encode_with(c, "x")[1].startswith("text/")
    assert codec.decode_with(c, b"x", "text/plain") == "x"
    assert codec.decode_with(c, b"\xff", "application/octet-stream") == b"\xff"
    assert codec.decode_with(c, b"[1]", "application/json") == [1]
    assert codec.encode_value(Inner(1)) == b'{"n":1,"children":[]}'


def test_new_types() -> None:
    UserID = NewType("UserID", int)
    assert codec.codec_of(UserID).decode(b"3") == 3
    with pytest.raises(TypeError):
        codec.codec_of(complex)


def test_pydantic() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        url: str
        width: int = pydantic.Field(300, alias="w", gt=0)

    c = codec.codec_of(Model)
    data = c.encode(Model(url="u", w=5))
    assert data == b'{"url":"u","w":5}'
    assert c.decode(data).width == 5
    with pytest.raises(ValueError):
        c.decode(b'{"url":"u","w":-1}')
    assert codec.codec_of(list[Model]).decode(b'[{"url":"u"}]')[0].width == 300


def test_msgspec() -> None:
    msgspec = pytest.importorskip("msgspec")

    class S(msgspec.Struct):  # type: ignore[misc,name-defined]
        n: int

    c = codec.codec_of(S)
    assert c.encode(S(1)) == b'{"n":1}'
    assert c.decode(b'{"n":2}').n == 2
    for bad in (lambda: c.encode(S("x")), lambda: c.decode(b'{"n":"x"}')):
        with pytest.raises(ValueError):
            bad()


def test_nothing_that_is_optional_is_imported() -> None:
    program = (
        "import sys, millrace_sdk, millrace_sdk.testing\n"
        "job = millrace_sdk.Job[dict[str, int], list[str]]('j')\n"
        "job._spec({'a': 1}, {})\n"
        "print([m for m in ('pydantic', 'msgspec', 'opentelemetry', 'pytest') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@dataclasses.dataclass
class Branch:
    """Has itself as a part, by way of Twig, and a part whose type is found slowly."""

    twig: Twig | None
    leaf: Leaf


@dataclasses.dataclass
class Twig:
    branch: Branch | None


@dataclasses.dataclass
class Leaf:
    n: _found_slowly()  # type: ignore[valid-type]


begun = threading.Event()
others_done = threading.Event()


def _found_slowly() -> type:
    if not begun.is_set():
        begun.set()
        assert others_done.wait(60)
    return int


def test_threads_may_use_a_type_while_another_thread_makes_what_reads_it() -> None:
    value = {"twig": {"branch": {"twig": None, "leaf": {"n": 1}}}, "leaf": {"n": 2}}
    whole = Branch(Twig(Branch(None, Leaf(1))), Leaf(2))
    first: list[Any] = []
    thread = threading.Thread(target=lambda: first.append(convert.loader(Branch)(value, "")))
    thread.start()
    try:
        assert begun.wait(60)
        assert convert.loader(Twig)(value["twig"], "") == whole.twig
        assert convert.loader(Branch)(value, "") == whole
    finally:
        others_done.set()
        thread.join()
    assert first == [whole]
    assert convert.loader(Branch) is convert.loader(Branch)


def test_a_type_that_cannot_be_made_leaves_no_part_of_it_behind() -> None:
    @dataclasses.dataclass
    class Odd:
        point: Point
        odd: complex

    for _ in range(2):
        with pytest.raises(TypeError, match="complex"):
            convert.loader(typing.get_type_hints(Odd)["odd"])
        with pytest.raises(TypeError, match="complex"):
            convert.loader(Odd)
    assert convert.loader(Point)([1, 2], "") == Point(1, 2)
