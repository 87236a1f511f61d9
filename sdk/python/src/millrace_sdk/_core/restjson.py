"""Messages as the JSON of REST, both ways, and the requests of methods, by the tables of the contract in rest.json.

JSON that is a client's own, such as a payload, is kept byte for byte: an answer is read from its beginning to its end,
and such a value is cut out of it. Members and words that the contract does not have are passed over: the server may be
newer. Of a message that a client reads and writes back they are kept. A value of another type than the contract says is
an error, and so is a document that is not whole.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from json import decoder
from typing import Any, NamedTuple
from urllib.parse import quote

from . import wire

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_SPAN = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)")
_SPACE = re.compile(r"[ \t\n\r]*")


class BadAnswer(ValueError):
    """A document is not what the contract says."""


class BadRequest(ValueError):
    """A request has no route: args are the field and what is wrong with it."""


@cache
def tables() -> Any:
    """Return the tables."""
    return json.loads(wire.file("rest.json"))


def words_of(enum: Any) -> list[str]:
    """Return the words of an enumeration by number; the one that means nothing is empty."""
    prefix = enum.name.upper() + "_"
    if enum.values[0].name.endswith("_UNSPECIFIED"):
        prefix = enum.values[0].name.removesuffix("UNSPECIFIED")
    return [v.name.removeprefix(prefix).lower().replace("unspecified", "") for v in enum.values]


class _Field(NamedTuple):
    name: str  # of the field
    form: str  # as the table has it, else by its type
    many: bool
    optional: bool  # it has presence: what is set is written, even if it is empty
    of: Any  # the descriptor
    words: list[str]
    other: str  # the name under which it is refused as not supported


def _form(f: Any, row: dict[str, Any]) -> str:
    if "form" in row:
        return str(row["form"])
    if f.type == f.TYPE_MESSAGE:
        if f.message_type.GetOptions().map_entry:
            return "map"
        return {"google.protobuf.Timestamp": "time", "google.protobuf.Duration": "span_text"}.get(
            f.message_type.full_name, "message"
        )
    return {
        f.TYPE_BOOL: "bool", f.TYPE_INT32: "int", f.TYPE_INT64: "int", f.TYPE_UINT32: "int", f.TYPE_UINT64: "int",
        f.TYPE_DOUBLE: "real", f.TYPE_FLOAT: "real", f.TYPE_ENUM: "word", f.TYPE_BYTES: "bytes",
    }.get(f.type, "text")  # fmt: skip


def is_many(f: Any) -> bool:
    """Report whether a field is a list or a map."""
    return bool(f.is_repeated if hasattr(f, "is_repeated") else f.label == f.LABEL_REPEATED)


def _field(f: Any, row: dict[str, Any]) -> _Field:
    form = _form(f, row)
    many = is_many(f) and form != "map"
    words = words_of(f.enum_type) if form == "word" else []
    return _Field(f.name, form, many, not many and bool(f.has_presence), f, words, row.get("other", ""))


def _rows(m: Any) -> list[tuple[Any, dict[str, Any]]]:
    rows = tables()["fields"]
    prefix = m.full_name.removeprefix("millrace.v1.") + "."
    return [(f, rows.get(prefix + f.name, {})) for f in m.fields]


# Requests.


@cache
def _written(m: Any) -> list[_Field]:
    """Return the fields of a message that a body may have. The server refuses one that is reserved by its name."""
    out = []
    for f, row in _rows(m):
        if row.get("reserved"):
            out.append(_field(f, row)._replace(other=f.name))
        elif not row.get("absent") or "other" in row:
            out.append(_field(f, row))
    return out


def write(m: Any, skip: tuple[str, ...] = ()) -> str:
    """Write a message as an object, without the fields that are to be skipped."""
    parts: list[str] = []
    for f in _written(m.DESCRIPTOR):
        if f.name not in skip:
            _write_field(parts, m, f)
    if _keeps(m.DESCRIPTOR):
        parts += [f"{json.dumps(name)}:{value}" for name, value in _kept(m).items()]
    return "{" + ",".join(parts) + "}"


# Where a message that is to be written back has what its object says and the contract does not: members as they stand
# in JSON, and names of those that were forgotten. No contract has such fields, since protobuf keeps the numbers from
# 19,000 to 19,999 for itself; a server that gets one over gRPC refuses it, as all that it does not know.
_KEPT, _FORGOTTEN = 19999, 19998


@cache
def _keeps(m: Any) -> bool:
    return m.full_name.removeprefix("millrace.v1.") in tables()["kept"]


def _keep(m: Any, name: str, value: str) -> None:
    m.MergeFromString(wire.field(_KEPT, f"{json.dumps(name)}:{value}".encode()))


def _kept(m: Any) -> dict[str, str]:
    """Return the members that were kept, by name, without words that were replaced since."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    out: dict[str, str] = {}
    for f in UnknownFieldSet(m):
        if f.field_number == _FORGOTTEN:
            out.pop(f.data.decode(), None)
        elif f.field_number == _KEPT:
            name, at = decoder.scanstring(f.data.decode(), 1)  # type: ignore[attr-defined]
            out[name] = f.data.decode()[at + 1 :]
        else:  # it came over gRPC
            raise BadRequest("config", "has a field that is not known, which REST cannot carry")
    known = m.DESCRIPTOR.fields_by_name
    return {name: value for name, value in out.items() if name not in known or not getattr(m, name)}


def forget(m: Any, name: str) -> None:
    """Drop a member that was kept."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    begins = (json.dumps(name) + ":").encode()
    if any(f.field_number == _KEPT and f.data.startswith(begins) for f in UnknownFieldSet(m)):
        m.MergeFromString(wire.field(_FORGOTTEN, name.encode()))


def _write_field(parts: list[str], m: Any, f: _Field) -> None:
    if f.optional and not m.HasField(f.name):
        return
    v = getattr(m, f.name)
    if not f.optional and not v:
        return
    name = f.name
    if f.other:
        name, text = f.other, "true"
    elif f.form == "map":
        text = "{" + ",".join(f"{json.dumps(k)}:{json.dumps(v[k])}" for k in sorted(v)) + "}"
    elif f.many and f.form == "real":  # numbers as text would be twice as long, and be rounded by some readers
        text = _quote(base64.b64encode(struct.pack(f"<{len(v)}f", *v)).decode())
    elif f.many:
        text = "[" + ",".join(_value(f, one) for one in v) + "]"
    else:
        text = _value(f, v)
    if f.form in ("bytes", "content") and not f.other:
        name += "_base64"
    parts.append(f'"{name}":{text}')


def _quote(text: str) -> str:
    return '"' + text + '"'


def _value(f: _Field, v: Any) -> str:
    match f.form:
        case "message":
            return write(v)
        case "bytes" | "content":  # any bytes then arrive as they are, whatever their type says
            return _quote(base64.b64encode(v).decode())
        case "exact":  # as text, so that nothing between here and the server rounds it
            return _quote(str(v))
        case "bool":
            return "true" if v else "false"
        case "int":
            return str(v)
        case "real":
            return repr(v) if math.isfinite(v) else '"NaN"'  # which no field takes: the server refuses it by its name
        case "word":
            return _quote(f.words[v] if 0 <= v < len(f.words) else f"unknown-{v}")
        case "hex":
            return _quote(v.hex())
        case "object":
            return str(v.decode(errors="replace"))
        case "span_text":
            return _quote(span_text(v))
        case "time":
            return _quote(time_text(v))
        case "prose":  # text for people, of which REST refuses one character that the contract allows
            return json.dumps(v.replace("\0", "\ufffd"))
        case _:
            return json.dumps(v)


def span_text(d: Any) -> str:
    """Write a Duration, such as 1.5s."""
    nanos = d.seconds * 10**9 + d.nanos
    sign = "-" if nanos < 0 else ""
    whole, rest = divmod(abs(nanos), 10**9)
    return f"{sign}{whole}" + (f".{rest:09d}".rstrip("0") if rest else "") + "s"


def time_text(t: Any) -> str:
    """Write a Timestamp as RFC 3339 has it. The server refuses one that is not a date."""
    try:
        day = _EPOCH + datetime.timedelta(seconds=t.seconds)
    except OverflowError:
        return f"{t.seconds} s since 1970"
    text = day.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return text + (f".{t.nanos:09d}".rstrip("0") if t.nanos else "") + "Z"


class Prepared(NamedTuple):
    """The request of a method, ready to be sent."""

    verb: str
    path: str  # escaped
    query: list[tuple[str, str]]
    body: str | None
    match: str  # of the header If-Match; empty: there is none
    route: dict[str, Any]


def prepare(method: str, m: Any) -> Prepared:
    """Write the request of a method by the first of its routes that it has all segments for. It raises BadRequest."""
    first: BadRequest | None = None
    for route in tables()["routes"].get(method, ()):
        try:
            path = "".join(part if isinstance(part, str) else _segment(m, part) for part in route["path"])
        except BadRequest as e:  # a shorter path may do
            first = first or e
            continue
        query = [pair for q in route.get("query", ()) for pair in _parameters(m, *q)]
        match = ""
        if "match" in route:
            into, f = _at(m, route["match"])
            match = f'"{getattr(into, f.name)}"' if _is_set(into, f) else ""
        body = None
        if route.get("body") == "*":
            body = write(m, tuple(route.get("skip", ())))
        elif "body" in route:
            body = write(getattr(m, route["body"]))
        return Prepared(route["verb"], path, query, body, match, route)
    raise first or BadRequest("", f"{method} has no route")


def _at(m: Any, path: str) -> tuple[Any, Any]:
    head, below, rest = path.partition(".")
    if below:
        return _at(getattr(m, head), rest)
    return m, m.DESCRIPTOR.fields_by_name[head]


def _is_set(m: Any, f: Any) -> bool:
    if not is_many(f) and f.has_presence:
        return bool(m.HasField(f.name))
    return bool(getattr(m, f.name))


def _segment(m: Any, part: list[str]) -> str:
    name, path = part
    into, f = _at(m, path)
    v = getattr(into, f.name)
    if not v:
        told = "must not be empty" if name in ("keyspace", "key", "tenant") else "is required"
        raise BadRequest(name, told)
    if v in (".", "..", b".", b".."):  # a proxy would resolve it
        return "%2E" * len(v)
    return quote(v if isinstance(v, bytes) else str(v), safe="$&+=:@~")


def _parameters(m: Any, name: str, path: str, words: list[str] | None) -> list[tuple[str, str]]:
    """Return the parameters that a field gives: none at its default."""
    into, f = _at(m, path)
    if not _is_set(into, f):
        return []
    v = getattr(into, f.name)
    if is_many(f):
        return [(name, str(one)) for one in v]
    if f.type == f.TYPE_BOOL:
        return [(name, (words or ["true"])[0])] if v else []
    if f.type == f.TYPE_ENUM:
        return [(name, words[v] if words and 0 <= v < len(words) else "unknown")]
    if f.type == f.TYPE_MESSAGE:
        return [(name, time_text(v) if f.message_type.name == "Timestamp" else span_text(v))]
    return [(name, v if isinstance(v, (str, bytes)) else str(v))]  # type: ignore[list-item]


# Answers.


def _refuse(word: str) -> Any:
    raise BadAnswer(f"{word} is not JSON")


_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(parse_constant=_refuse).scan_once  # type: ignore[attr-defined]


class _Member(NamedTuple):
    field: _Field
    as64: bool  # of bytes: base64
    inside: str  # the message whose fields stand in place of it; empty: it is a field of its own


@cache
def _read_plan(m: Any) -> dict[str, _Member]:
    out: dict[str, _Member] = {}
    _add(out, m, "")
    return out


def _add(out: dict[str, _Member], m: Any, inside: str) -> None:
    for f, row in _rows(m):
        if row.get("inline"):
            _add(out, f.message_type, f.name)
            continue
        place = f.message_type is not None and f.message_type.name == "At" and not is_many(f)  # a header has it
        if row.get("absent") or row.get("reserved") or place:
            continue
        one = _field(f, row)
        # The names of the contract carry a unit that the value in JSON has itself, or lack one that it needs.
        name = {
            "span": f.name.removesuffix("_ms"), "moment": f.name.removesuffix("_ms") + "_at", "millis": f.name + "_ms",
        }.get(one.form, f.name)  # fmt: skip
        out[name] = _Member(one, False, inside)
        if one.form in ("bytes", "content"):
            out[name + "_base64"] = _Member(one, True, inside)


def read(text: str, into: Any) -> None:
    """Read an object into a message, which must be empty. It raises BadAnswer."""
    try:
        i = _object(text, _space(text, 0), into)
        if _space(text, i) != len(text):
            raise BadAnswer("something follows the answer")
    except BadAnswer:
        raise
    except (StopIteration, IndexError, ValueError, TypeError, OverflowError, RecursionError, ArithmeticError) as e:
        raise BadAnswer(f"the answer is not what the contract says: {e}") from None


def member(text: str, name: str) -> str | None:
    """Return one member of an object as it stands; None where there is none."""
    found: list[str] = []

    def take(s: str, i: int, key: str) -> int:
        _, end = _scan(s, i)
        if key == name and s[i] != "n":
            found[:] = [s[i:end]]
        return end

    try:
        _each(text, _space(text, 0), take)
    except (StopIteration, IndexError, ValueError, RecursionError):
        return None
    return found[0] if found else None


def _space(s: str, i: int) -> int:
    found = _SPACE.match(s, i)
    return found.end() if found else i


def _each(s: str, i: int, element: Callable[[str, int, str], int]) -> int:
    """Pass an object, and call element for each member: it returns where the value ends."""
    if s[i] != "{":
        raise BadAnswer("an object is wanted")
    i = _space(s, i + 1)
    if s[i] == "}":
        return i + 1
    while True:
        if s[i] != '"':
            raise BadAnswer("a name is wanted")
        key, i = decoder.scanstring(s, i + 1)  # type: ignore[attr-defined]
        i = _space(s, i)
        if s[i] != ":":
            raise BadAnswer("a value is wanted")
        i = _space(s, element(s, _space(s, i + 1), key))
        if s[i] == "}":
            return i + 1
        if s[i] != ",":
            raise BadAnswer("an object does not end")
        i = _space(s, i + 1)


def _list(s: str, i: int, element: Callable[[int], int]) -> int:
    if s[i] != "[":
        raise BadAnswer("a list is wanted")
    i = _space(s, i + 1)
    if s[i] == "]":
        return i + 1
    while True:
        i = _space(s, element(i))
        if s[i] == "]":
            return i + 1
        if s[i] != ",":
            raise BadAnswer("a list does not end")
        i = _space(s, i + 1)


def _object(s: str, i: int, m: Any) -> int:
    plan = _read_plan(m.DESCRIPTOR)

    keeps = _keeps(m.DESCRIPTOR)

    def element(s: str, i: int, key: str) -> int:
        p = plan.get(key)
        # null counts as left out, but it is a value that a client may store.
        if p is None or (s[i] == "n" and (p.as64 or p.field.form != "content")):
            end = _scan(s, i)[1]
            if p is None and keeps and s[i] != "n":
                _keep(m, key, s[i:end])
            return end
        if keeps and p.field.words and not p.field.many:
            word, end = _scan(s, i)
            if _text(word) not in p.field.words:
                _keep(m, key, s[i:end])
                return end
        into = m
        if p.inside:
            into = getattr(m, p.inside)
            into.SetInParent()
        return _member(s, i, into, p)

    return _each(s, i, element)


def _member(s: str, i: int, m: Any, p: _Member) -> int:
    f = p.field
    if f.many:
        target = getattr(m, f.name)

        def element(i: int) -> int:
            if f.form == "rows":  # a message with a list alone stands as that list
                row, end = _scan(s, i)
                one = target.add()
                getattr(one, one.DESCRIPTOR.fields[0].name).extend(_real(x) for x in row)
                return end
            if f.form == "message":
                return _object(s, i, target.add())
            v, end = _read_value(s, i, p)
            target.append(v)
            return end

        return _list(s, i, element)
    if f.form == "message":
        one = getattr(m, f.name)
        one.SetInParent()
        return _object(s, i, one)
    v, end = _read_value(s, i, p)
    if f.form == "map":
        target = getattr(m, f.name)
        for key, text in v.items():
            target[_mend(key)] = _mend(text)
    elif f.form in ("time", "span_text", "millis"):
        one = getattr(m, f.name)
        one.SetInParent()
        one.seconds, one.nanos = v
    else:
        setattr(m, f.name, v)
    return end


def _read_value(s: str, i: int, p: _Member) -> tuple[Any, int]:
    """Read one value, and return it with where it ends."""
    v, end = _scan(s, i)
    f = p.field
    match f.form:
        case "content" | "object" if not p.as64:
            return s[i:end].encode(), end
        case "bytes" | "content":
            return base64.b64decode(_text(v), validate=True) if p.as64 else _mend(v).encode(), end
        case "bool":
            if not isinstance(v, bool):
                raise BadAnswer("true or false is wanted")
        case "int" | "exact":
            v = _whole(v)
        case "real":
            v = _real(v)
        case "word":
            word = _text(v)
            v = f.words.index(word) if word in f.words else 0
        case "hex":
            v = bytes.fromhex(_text(v))
        case "map":
            if not isinstance(v, dict):
                raise BadAnswer("an object is wanted")
        case "span":
            v = max(_nanos(v) // 10**6, 0)
        case "moment":
            seconds, nanos = _moment(v)
            v = seconds * 1000 + nanos // 10**6
        case "time":
            v = _moment(v)
        case "span_text":
            v = _split(_nanos(v))
        case "millis":
            v = _split(_whole(v) * 10**6)
        case _:
            v = _mend(v)
    return v, end


def _text(v: Any) -> str:
    if not isinstance(v, str):
        raise BadAnswer("a text is wanted")
    return v


def _mend(v: Any) -> str:
    """Return a text; what is half of a pair of characters is replaced."""
    text = _text(v)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _whole(v: Any) -> int:
    """Read a whole number, which may stand in a text."""
    if isinstance(v, str) and re.fullmatch(r"-?[0-9]{1,20}", v):
        return int(v)
    if not isinstance(v, int) or isinstance(v, bool):
        raise BadAnswer("a whole number is wanted")
    return v


def _real(v: Any) -> float:
    if isinstance(v, bool) or not isinstance(v, (int, float, str)):
        raise BadAnswer("a number is wanted")
    x = float(v)
    if not math.isfinite(x):
        raise BadAnswer("a number is too large")
    return x


def _nanos(v: Any) -> int:
    """Read a duration such as 1m30s, in nanoseconds."""
    text = _text(v)
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0
    total, at = Decimal(0), 0
    for part in _SPAN.finditer(rest):
        if part.start() != at:
            break
        total += Decimal(part[1]) * _UNITS[part[2]]
        at = part.end()
    if at != len(rest) or not rest:
        raise BadAnswer(f"{text!r} is not a duration")
    return sign * int(total)


def _split(nanos: int) -> tuple[int, int]:
    whole, rest = divmod(abs(nanos), 10**9)
    return (whole, rest) if nanos >= 0 else (-whole, -rest)


def _moment(v: Any) -> tuple[int, int]:
    """Read a time of RFC 3339: seconds since 1970, and nanoseconds."""
    found = _TIME.fullmatch(_text(v))
    if not found:
        raise BadAnswer(f"{v!r} is not a time")
    year, month, day, hour, minute, second = (int(found[n]) for n in range(1, 7))
    t = datetime.datetime(year, month, day, hour, minute, min(second, 59), tzinfo=datetime.timezone.utc)
    since = t - _EPOCH
    seconds = since.days * 86400 + since.seconds + second - min(second, 59)
    if found[8] not in "Zz":
        sign = -1 if found[8][0] == "+" else 1
        seconds += sign * (int(found[8][1:3]) * 3600 + int(found[8][4:6]) * 60)
    return seconds, int(((found[7] or "") + "0" * 9)[:9])
