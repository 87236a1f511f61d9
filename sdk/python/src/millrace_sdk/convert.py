"""Values of dataclasses, TypedDicts and builtins as JSON, checked by their types.

JSON is the value that Go's encoding/json writes: bytes are base64, times are RFC 3339, numbers have any length.
"""

from __future__ import annotations

import base64
import binascii
import collections.abc
import dataclasses
import datetime
import enum
import json
import re
import sys
import threading
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

Load = Callable[[Any, str], Any]


class ConvertError(ValueError):
    """A value is not of its type."""


_PLAIN = frozenset((str, int, float, bool, type(None)))  # what json writes as it is
_names: dict[type, tuple[str, ...]] = {}  # of the fields of dataclasses


def dump(value: Any) -> Any:
    """Turn a value into what the package json writes."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    names = _names.get(kind)
    if names is not None:
        return {n: dump(getattr(value, n)) for n in names}
    if isinstance(value, (int, float, str)):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, dict):
        return {_key(k): dump(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [dump(v) for v in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        _names[kind] = tuple(f.name for f in dataclasses.fields(value))
        return dump(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        text = value.isoformat()
        if value.tzinfo is None:
            raise ConvertError(f"the time {text} must have a time zone: other machines may have another one")
        return text[:-6] + "Z" if text.endswith("+00:00") else text
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, enum.Enum):
        return dump(value.value)
    if isinstance(value, _of_modules(_TEXTS)):
        return str(value)
    if isinstance(value, collections.abc.Mapping):
        return {_key(k): dump(v) for k, v in value.items()}
    raise ConvertError(f"a value of type {type(value).__name__} cannot be written as JSON")


_TEXTS = (("uuid", "UUID"), ("decimal", "Decimal"), ("pathlib", "PurePath"))  # types whose values are shown as text


def _of_modules(names: Sequence[tuple[str, str]]) -> tuple[Any, ...]:
    """Return those of some types whose modules are imported."""
    return tuple(found for m, name in names if (found := getattr(sys.modules.get(m), name, None)) is not None)


def _key(k: Any) -> str:
    if isinstance(k, str):
        return k
    if isinstance(k, bool):
        return "true" if k else "false"
    if isinstance(k, (int, *_of_modules(_TEXTS[:1]))):
        return str(k)
    if isinstance(k, enum.Enum):
        return _key(k.value)
    raise ConvertError(f"a key of type {type(k).__name__} cannot be written as JSON")


_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def text(value: Any) -> bytes:
    """Write what dump returns as JSON."""
    try:
        return _write(value).encode()
    except (TypeError, ValueError, UnicodeError) as e:
        raise ConvertError(str(e)) from e


def _constant(name: str) -> Any:
    raise ConvertError(f"it must be JSON, which has no {name}")


_DECODER = json.JSONDecoder(parse_constant=_constant)
_read = _DECODER.raw_decode


def parse(data: bytes) -> Any:
    """Read JSON, which is UTF-8."""
    try:  # without spaces around it, as it is most of the time
        decoded = data.decode()
        value, end = _read(decoded)
        if end == len(decoded):
            return value
    except ConvertError:
        raise
    except (ValueError, RecursionError):
        pass
    try:
        return _DECODER.decode(data.decode())
    except ConvertError:
        raise
    except (ValueError, RecursionError) as e:
        raise ConvertError(f"it must be JSON: {e}") from e


_loaders: dict[Any, Load] = {}  # by type; each is whole, with all that it calls


class _Making(threading.local):
    """What a thread makes now, by type. Threads that need the same type make it each for itself."""

    def __init__(self) -> None:
        self.loads: dict[Any, Load] = {}


_making = _Making()


def loader(tp: Any) -> Load:
    """Return what turns parsed JSON into a value of a type. It raises ConvertError with the place of what is wrong."""
    try:
        found = _loaders.get(tp)
    except TypeError:  # a type that cannot be a key, such as Annotated with a list
        return _make(tp)
    if found is not None:
        return found
    loads = _making.loads
    found = loads.get(tp)
    if found is not None:
        return found
    # A type that has itself as a part is read by what is made here at last.
    made: list[Load] = []
    outermost = not loads
    loads[tp] = lambda v, at: made[0](v, at)
    try:
        made.append(_make(tp))
        loads[tp] = made[0]
        if outermost:  # what is made for its parts may call it: other threads see all of them when all are whole
            _loaders.update(loads)
        return made[0]
    finally:
        if outermost:  # what was not made to the end is forgotten, with its parts
            loads.clear()


def _bad(at: str, want: str, v: Any) -> ConvertError:
    return ConvertError(f"{at or 'it'} must be {want}, not {_name(v)}")


def _name(v: Any) -> str:
    kinds = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list"}
    return kinds.get(type(v), "an object")


def _any(v: Any, at: str) -> Any:
    return v


def _bool(v: Any, at: str) -> bool:
    if isinstance(v, bool):
        return v
    raise _bad(at, "a boolean", v)


def _int(v: Any, at: str) -> int:
    if isinstance(v, int) and not isinstance(v, bool):
        return v
    if isinstance(v, float) and v.is_integer():
        return int(v)
    raise _bad(at, "an integer", v)


def _float(v: Any, at: str) -> float:
    if isinstance(v, (int, float)) and not isinstance(v, bool):
        return float(v)
    raise _bad(at, "a number", v)


def _str(v: Any, at: str) -> str:
    if isinstance(v, str):
        return v
    raise _bad(at, "text", v)


def _bytes(v: Any, at: str) -> bytes:
    try:
        return base64.b64decode(_str(v, at), validate=True)
    except binascii.Error:
        raise ConvertError(f"{at or 'it'} must be base64") from None


def _none(v: Any, at: str) -> None:
    if v is not None:
        raise _bad(at, "null", v)


def _parsed(of: Callable[[str], Any], want: str) -> Load:
    def load(v: Any, at: str) -> Any:
        try:
            return of(_str(v, at))
        except (ValueError, ArithmeticError):
            raise ConvertError(f"{at or 'it'} must be {want}") from None

    return load


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _datetime(s: str) -> datetime.datetime:
    if not _RFC3339.fullmatch(s):
        raise ValueError
    if s.endswith(("Z", "z")):
        s = s[:-1] + "+00:00"
    head, dot, rest = s.partition(".")
    if dot:  # Python 3.10 reads three or six digits of a fraction only
        digits = len(rest) - len(rest.lstrip("0123456789"))
        s = f"{head}.{rest[:digits][:6].ljust(6, '0')}{rest[digits:]}"
    return datetime.datetime.fromisoformat(s)


_SIMPLE: dict[Any, Load] = {
    Any: _any,
    object: _any,
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    None: _none,
    type(None): _none,
    list: lambda v, at: v if isinstance(v, list) else _raise(_bad(at, "a list", v)),
    dict: lambda v, at: v if isinstance(v, dict) else _raise(_bad(at, "an object", v)),
    datetime.datetime: _parsed(_datetime, "a time such as 2006-01-02T15:04:05Z"),
    datetime.date: _parsed(datetime.date.fromisoformat, "a date such as 2006-01-02"),
    datetime.time: _parsed(datetime.time.fromisoformat, "a time of day"),
    datetime.timedelta: lambda v, at: datetime.timedelta(seconds=_float(v, at)),
}


def _of_imported(tp: Any) -> Load | None:
    """Return what reads the types of modules that are not imported here: a program that has such a type did it."""
    if tp in _of_modules((("uuid", "UUID"),)):
        return _parsed(tp, "a UUID")
    if tp in _of_modules((("pathlib", "Path"),)):
        return lambda v, at: tp(_str(v, at))
    if tp in _of_modules((("decimal", "Decimal"),)):
        of_text = _parsed(tp, "a decimal number")
        return lambda v, at: tp(str(v)) if isinstance(v, int) else of_text(v, at)
    return None


def _raise(e: Exception) -> Any:
    raise e


def _make(tp: Any) -> Load:
    simple = _SIMPLE.get(tp) if isinstance(tp, (type, type(None))) or tp is Any else None
    if simple is None and isinstance(tp, type):
        simple = _of_imported(tp)
    if simple is not None:
        return simple
    origin = typing.get_origin(tp)
    if origin is typing.Annotated:
        return loader(typing.get_args(tp)[0])
    if origin is not None:
        return _make_generic(tp, origin, typing.get_args(tp))
    if isinstance(tp, typing.NewType):
        return loader(tp.__supertype__)
    if isinstance(tp, typing.TypeVar):
        return _any
    if isinstance(tp, type):
        cls: Any = tp
        if issubclass(cls, enum.Enum):
            return _make_enum(cls)
        if dataclasses.is_dataclass(cls):
            return _make_dataclass(cls)
        if typing.is_typeddict(cls):
            return _make_typed_dict(cls)
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return _make_named_tuple(cls)
    raise TypeError(f"{tp!r} cannot be read from JSON: use a dataclass, a TypedDict, builtins, pydantic or msgspec")


def _make_generic(tp: Any, origin: Any, args: tuple[Any, ...]) -> Load:
    if origin in (typing.Union, types.UnionType):
        return _make_union(args)
    if origin is typing.Literal:

        def literal(v: Any, at: str) -> Any:
            for a in args:
                if a == v and type(a) is type(v):
                    return a
            raise ConvertError(f"{at or 'it'} must be one of {', '.join(map(repr, args))}")

        return literal
    if getattr(origin, "_name", "") in ("Required", "NotRequired"):
        return loader(args[0])
    if origin is tuple:
        return _make_tuple(args)
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        return _make_map(args)
    if isinstance(origin, type) and issubclass(origin, collections.abc.Iterable):
        return _make_list(origin, args)
    if dataclasses.is_dataclass(origin) and isinstance(origin, type):
        return _make_dataclass(origin)
    raise TypeError(f"{tp!r} cannot be read from JSON")


def _make_union(args: tuple[Any, ...]) -> Load:
    loads = [(a, loader(a)) for a in args if a is not type(None)]
    null = len(loads) != len(args)

    def union(v: Any, at: str) -> Any:
        if v is None and null:
            return None
        if len(loads) == 1:
            return loads[0][1](v, at)
        # The type that the value has already goes first: 1 is an int before it is a float.
        for a, load in loads:
            if type(v) is a:
                return load(v, at)
        wrong: list[str] = []
        for _, load in loads:
            try:
                return load(v, at)
            except ConvertError as e:
                wrong.append(str(e))
        raise ConvertError("; or ".join(wrong))

    return union


def _make_tuple(args: tuple[Any, ...]) -> Load:
    if len(args) == 2 and args[1] is Ellipsis:
        one = loader(args[0])

        def many(v: Any, at: str) -> Any:
            return tuple(one(x, f"{at}[{i}]") for i, x in enumerate(_list(v, at)))

        return many
    parts = [loader(a) for a in args if a != ()]

    def fixed(v: Any, at: str) -> Any:
        v = _list(v, at)
        if len(v) != len(parts):
            raise ConvertError(f"{at or 'it'} must have {len(parts)} elements, not {len(v)}")
        return tuple(load(x, f"{at}[{i}]") for i, (load, x) in enumerate(zip(parts, v, strict=True)))

    return fixed


def _list(v: Any, at: str) -> list[Any]:
    if isinstance(v, list):
        return v
    raise _bad(at, "a list", v)


def _make_list(origin: type, args: tuple[Any, ...]) -> Load:
    one = loader(args[0])
    make: Callable[[list[Any]], Any] = list
    if issubclass(origin, frozenset):
        make = frozenset
    elif issubclass(origin, collections.abc.Set):
        make = set

    def load(v: Any, at: str) -> Any:
        return make([one(x, f"{at}[{i}]") for i, x in enumerate(_list(v, at))])

    return load


def _make_map(args: tuple[Any, ...]) -> Load:
    key, one = args[0], loader(args[1])
    of = (lambda k, at: _int(parse(k.encode()), at)) if key is int else loader(key)

    def load(v: Any, at: str) -> Any:
        if not isinstance(v, dict):
            raise _bad(at, "an object", v)
        return {of(k, at): one(x, f"{at}.{k}" if at else k) for k, x in v.items()}

    return load


def _make_enum(tp: type[enum.Enum]) -> Load:
    def load(v: Any, at: str) -> Any:
        try:
            return tp(v)
        except ValueError:
            raise ConvertError(f"{at or 'it'} must be one of {', '.join(repr(m.value) for m in tp)}") from None

    return load


def _object(v: Any, at: str) -> dict[str, Any]:
    if isinstance(v, dict):
        return v
    raise _bad(at, "an object", v)


def _make_dataclass(tp: Any) -> Load:
    hints = typing.get_type_hints(tp, include_extras=True)
    fields = [
        (
            f.name,
            loader(hints[f.name]),
            f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
        )
        for f in dataclasses.fields(tp)
        if f.init
    ]

    def load(v: Any, at: str) -> Any:
        v = _object(v, at)
        found: dict[str, Any] = {}
        for name, one, needed in fields:
            if name in v:
                found[name] = one(v[name], f"{at}.{name}" if at else name)
            elif needed:
                raise ConvertError(f"{f'{at}.{name}' if at else name} is required")
        try:
            return tp(**found)
        except ValueError as e:
            raise ConvertError(f"{at or 'it'}: {e}") from e

    return load


def _make_typed_dict(tp: Any) -> Load:
    hints = typing.get_type_hints(tp)
    loads = {name: loader(hint) for name, hint in hints.items()}

    def load(v: Any, at: str) -> Any:
        v = _object(v, at)
        for name in tp.__required_keys__:
            if name not in v:
                raise ConvertError(f"{f'{at}.{name}' if at else name} is required")
        return {k: loads[k](x, f"{at}.{k}" if at else k) for k, x in v.items() if k in loads}

    return load


def _make_named_tuple(tp: Any) -> Load:
    hints = typing.get_type_hints(tp)
    parts = [(n, loader(hints.get(n, Any))) for n in tp._fields]
    least = len(parts) - len(tp._field_defaults)

    def load(v: Any, at: str) -> Any:
        v = _list(v, at)
        if not least <= len(v) <= len(parts):
            raise ConvertError(f"{at or 'it'} must have {len(parts)} elements, not {len(v)}")
        return tp(*(one(x, f"{at}.{n}" if at else n) for (n, one), x in zip(parts, v, strict=False)))

    return load
