"""How arguments and results become bytes: by their declared type, never by what is installed."""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from . import convert
from .convert import ConvertError

T = TypeVar("T")

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"
BYTES_TYPE = "application/octet-stream"


class Codec(Protocol[T]):
    """Turns values of one type into bytes and back. Both directions raise ValueError for what is not of the type."""

    content_type: str

    def encode(self, value: T) -> bytes:
        """Write a value, after a check of it."""
        ...

    def decode(self, data: bytes) -> T:
        """Read a value, with a check of it."""
        ...


class TextCodec:
    """Text as it is."""

    content_type = TEXT_TYPE

    def encode(self, value: str) -> bytes:
        """Write text."""
        if not isinstance(value, str):
            raise ConvertError(f"it must be text, not {type(value).__name__}")
        return value.encode()

    def decode(self, data: bytes) -> str:
        """Read text."""
        return data.decode()


class BytesCodec:
    """Bytes as they are."""

    content_type = BYTES_TYPE

    def encode(self, value: bytes) -> bytes:
        """Write bytes."""
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise ConvertError(f"it must be bytes, not {type(value).__name__}")
        return bytes(value)

    def decode(self, data: bytes) -> bytes:
        """Return the bytes."""
        return data


class RawJSON:
    """JSON that is passed as bytes, so that no number or order of keys changes."""

    content_type = JSON_TYPE

    def encode(self, value: bytes) -> bytes:
        """Return the bytes."""
        return bytes(value)

    def decode(self, data: bytes) -> bytes:
        """Return the bytes."""
        return data


class JSONCodec(Generic[T]):
    """JSON of dataclasses, TypedDicts and builtins."""

    content_type = JSON_TYPE

    def __init__(self, tp: Any = Any) -> None:
        self._load = convert.loader(tp)

    def encode(self, value: T) -> bytes:
        """Check a value and write it."""
        plain = convert.dump(value)
        self._load(plain, "")
        return convert.text(plain)

    def decode(self, data: bytes) -> T:
        """Read a value. Of no bytes it is that of null."""
        value: T = self._load(convert.parse(data) if data else None, "")
        return value


class _PydanticCodec:
    """JSON by pydantic v2, for types that have a model of it in them."""

    content_type = JSON_TYPE

    def __init__(self, tp: Any, pydantic: Any) -> None:
        self._adapter = pydantic.TypeAdapter(tp)
        self._error = pydantic.ValidationError

    def encode(self, value: Any) -> bytes:
        try:
            self._adapter.validate_python(value)
            return bytes(self._adapter.dump_json(value, by_alias=True))
        except self._error as e:
            raise ConvertError(str(e)) from e

    def decode(self, data: bytes) -> Any:
        try:
            return self._adapter.validate_json(data or b"null")
        except self._error as e:
            raise ConvertError(str(e)) from e


class _MsgspecCodec:
    """JSON by msgspec, for types that have a Struct of it in them."""

    content_type = JSON_TYPE

    def __init__(self, tp: Any, msgspec: Any) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(tp)
        self._error = msgspec.MsgspecError

    def encode(self, value: Any) -> bytes:
        try:
            data = bytes(self._encoder.encode(value))
            self._decoder.decode(data)  # msgspec checks types only as it reads
        except (self._error, TypeError) as e:
            raise ConvertError(str(e)) from e
        return data

    def decode(self, data: bytes) -> Any:
        try:
            return self._decoder.decode(data or b"null")
        except self._error as e:
            raise ConvertError(str(e)) from e


def _parts(tp: Any) -> list[Any]:
    """Return a type and the types that it is made of, without those of its fields."""
    out = [tp]
    for a in typing.get_args(tp):
        out += _parts(a)
    return out


def _has(tp: Any, module: str, test: Callable[[Any, Any], bool]) -> Any:
    """Return a module that is imported already, if a part of the type is of it."""
    m = sys.modules.get(module)
    if m is not None and any(isinstance(p, type) and test(m, p) for p in _parts(tp)):
        return m
    return None


def codec_of(tp: Any) -> Codec[Any]:
    """Return the codec of a type. Types of pydantic and msgspec are known by themselves: neither is imported here."""
    if tp is Any or tp is object:
        return AnyCodec()
    if tp is str:
        return TextCodec()
    if tp is bytes:
        return BytesCodec()
    pydantic = _has(tp, "pydantic", lambda m, p: issubclass(p, m.BaseModel) or hasattr(p, "__pydantic_fields__"))
    if pydantic is not None:
        return _PydanticCodec(tp, pydantic)
    msgspec = _has(tp, "msgspec", lambda m, p: issubclass(p, m.Struct))
    if msgspec is not None:
        return _MsgspecCodec(tp, msgspec)
    return JSONCodec(tp)


class AnyCodec:
    """Values of no declared type: text and bytes as they are, others as JSON."""

    content_type = JSON_TYPE

    def encode(self, value: Any) -> bytes:
        """Write a value."""
        return encode_with(self, value)[0]

    def decode(self, data: bytes) -> Any:
        """Read JSON."""
        return convert.parse(data) if data else None


def encode_with(c: Codec[Any], value: Any) -> tuple[bytes, str]:
    """Write a value, and return the type of its content too."""
    if isinstance(c, AnyCodec):
        if isinstance(value, str):
            return value.encode(), TEXT_TYPE
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value), BYTES_TYPE
        try:
            of = codec_of(Any if isinstance(value, (list, dict, tuple)) else type(value))
        except TypeError as e:
            raise ConvertError(str(e)) from e
        return (convert.text(convert.dump(value)) if isinstance(of, AnyCodec) else of.encode(value)), JSON_TYPE
    return c.encode(value), c.content_type


def decode_with(c: Codec[Any], data: bytes, content_type: str) -> Any:
    """Read a value; without a declared type, by that of its content."""
    if isinstance(c, AnyCodec) and content_type != JSON_TYPE:
        media = content_type.partition(";")[0].strip().lower()
        if media.startswith("text/"):
            return data.decode()
        if media and media != JSON_TYPE and not media.endswith("+json"):
            return data
    return c.decode(data)


def encode_value(value: Any) -> bytes:
    """Write the value of a key: text and bytes as they are, others as JSON."""
    return encode_with(_ANY, value)[0]


_ANY = AnyCodec()
