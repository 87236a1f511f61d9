"""The JSON of REST against the schemas of the OpenAPI document, both ways, and what no schema says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from conftest import ROOT

from millrace_sdk._core import restjson, wire

DOC = json.loads((ROOT / "gen/openapi/millrace.v1.json").read_text())
ROUTES = [(method, i) for method, rows in restjson.tables()["routes"].items() for i in range(len(rows))]
# What an answer has and no message has: a place in the log, where a list goes on, and whether a state is an end.
WITHOUT_FIELD = {"index", "cursor", "after", "after_rev", "partial", "done"}


def method_of(name: str) -> Any:
    service, _, method = name.partition("/")
    return wire.SERVICES[service].methods_by_name[method]


def schema_of(s: Any) -> Any:
    """Follow a reference."""
    while "$ref" in s:
        s = DOC["components"]["schemas"][s["$ref"].rpartition("/")[2]]
    return s


def operation(method: str, i: int) -> tuple[Any, dict[str, Any]]:
    """Find what the document says of a route."""
    row = restjson.tables()["routes"][method][i]
    path = "".join(p if isinstance(p, str) else "{" + p[0] + "}" for p in row["path"])
    found: dict[str, Any] = DOC["paths"][path][row["verb"].lower()]
    assert found["x-grpc"] == "/millrace.v1." + method
    return row, found


def fill(m: Any, depth: int = 0, choice: int = 0) -> Any:
    """Set all fields of a message; of a oneof the one of this number."""
    for f in m.DESCRIPTOR.fields:
        o = f.containing_oneof
        if o is not None and len(o.fields) > 1 and o.fields[choice % len(o.fields)].number != f.number:
            continue
        if f.message_type is not None and f.message_type.GetOptions().map_entry:
            getattr(m, f.name)["k"] = "v"
        elif f.message_type is not None and restjson.is_many(f):
            if depth < 6:
                fill(getattr(m, f.name).add(), depth + 1, choice)
        elif f.message_type is not None:
            one = getattr(m, f.name)
            one.SetInParent()
            if f.message_type.full_name.startswith("google.protobuf."):
                one.seconds, one.nanos = 90, 500
            elif depth < 6:
                fill(one, depth + 1, choice)
        else:
            name = f.name
            plain = b"{}" if name in ("payload", "params", "patch") else b"0123456789abcdef"
            v: Any = {
                f.TYPE_STRING: "x", f.TYPE_BYTES: plain,
                f.TYPE_BOOL: True, f.TYPE_ENUM: len(f.enum_type.values) - 1 if f.enum_type else 0,
                f.TYPE_DOUBLE: 1.5, f.TYPE_FLOAT: 1.5,
            }.get(f.type, 3)  # fmt: skip
            getattr(m, name).append(v) if restjson.is_many(f) else setattr(m, name, v)
    return m


def check(v: Any, s: Any, at: str) -> None:
    """Check a value against a schema, as far as types, names and forms go."""
    s = schema_of(s)
    kinds = s.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    kind = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}[type(v)]
    assert not kinds or kind in kinds or (kind == "integer" and "number" in kinds), f"{at} is {kind}, not {kinds}"
    if isinstance(v, dict) and "properties" in s:
        for name, one in v.items():
            assert name in s["properties"] or s.get("additionalProperties"), f"{at} has no {name}"
            check(one, s["properties"].get(name, {}), f"{at}.{name}")
    elif isinstance(v, list):
        for one in v:
            check(one, s.get("items", {}), at + "[]")
    elif isinstance(v, str):
        # A word that the server does not have yet is for it to refuse; texts of a closed set are any here.
        assert "enum" not in s or v in s["enum"] or v in ("x", "terminal", "history", "replace"), f"{at} is {v}"
        if "examples" in s or "contentEncoding" in s or s.get("pattern", "").startswith("^([1-9]"):
            assert re.search(s["pattern"], v) if "pattern" in s else True, f"{at} is {v}"
        if s.get("format") == "date-time":
            assert v == "1970-01-01T00:01:30.0000005Z"


@pytest.mark.parametrize(("method", "i"), ROUTES)
def test_a_request_is_as_its_schema_says(method: str, i: int) -> None:
    row, op = operation(method, i)
    known = {p["name"] for p in op.get("parameters", []) if p.get("in") == "query"}
    for choice in range(16):
        m = fill(wire.message(method_of(method).input_type.full_name)(), 0, choice)
        p = restjson.prepare(method, m) if i == 0 else None
        body = restjson.write(m, tuple(row.get("skip", ()))) if row.get("body") == "*" else None
        if "body" in row and body is None:
            body = restjson.write(getattr(m, row["body"]))
        if p is not None:
            assert p.body == body and p.verb == row["verb"]
            assert {name for name, _ in p.query} <= known | {"ns"}
        assert {name for name, *_ in row.get("query", ())} <= known
        content = op.get("requestBody", {}).get("content", {}).get("application/json")
        if body is not None:
            told = json.loads(body)
            found = {name for name in RESERVED if drop(told, name)}
            assert method != "TaskService/Create" or len(found) == 1
            check(told, content["schema"], method)
        else:
            assert content is None or method in ("KVService/Put",), "a body is wanted"


# Fields and ops that no server has yet, which it refuses by their names.
RESERVED = ("webhook", "kv_get")


def drop(v: Any, name: str) -> bool:
    """Remove a name from an object and all in it, and report whether it was there with the word true."""
    found = False
    if isinstance(v, dict):
        found = name in v and v.pop(name) is True
        v = list(v.values())
    if isinstance(v, list):
        for one in v:
            found |= drop(one, name)
    return found


def sample(s: Any, depth: int = 0) -> Any:
    """Make a value as a schema says."""
    s = schema_of(s)
    kind = s.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "string":
        if "enum" in s:
            return s["enum"][-1]
        if "contentEncoding" in s:
            return "AAE="
        if s.get("format") == "date-time":
            return "2026-01-02T03:04:05.25+01:00"
        if "examples" in s:
            return "1m30.5s"
        pattern = s.get("pattern", "")
        return (
            "7"
            if pattern.startswith(("^[0-9]+", "^-?[0-9]+", "^([1-9]", "^(0|"))
            else "00" * 16
            if "{32}" in pattern
            else "x"
        )
    if kind in ("integer", "number", "boolean"):
        return {"integer": 3, "number": 1.5, "boolean": True}[kind]
    if kind == "array":
        return [sample(s.get("items", {}), depth + 1)]
    if "properties" in s:
        return {k: sample(x, depth + 1) for k, x in s["properties"].items()} if depth < 5 else {}
    return {"k": "v"}


@pytest.mark.parametrize(("method", "i"), ROUTES)
def test_an_answer_is_read_whole(method: str, i: int) -> None:
    row, op = operation(method, i)
    answers = [a for status, a in op["responses"].items() if status in ("200", "201", "202")]
    content = [c for a in answers if (c := a.get("content", {}).get("application/json"))]
    if not content:
        return
    s = schema_of(content[0]["schema"])
    if method == "TaskService/Wait":
        kind = wire.message("Task")
    else:
        out = wire.message(method_of(method).output_type.full_name)()
        kind = type(getattr(out, row["answer"])) if "answer" in row else type(out)
    whole = kind()
    restjson.read(json.dumps(sample(s)), whole)
    for name, of in s.get("properties", {}).items():
        if name in WITHOUT_FIELD and name not in kind.DESCRIPTOR.fields_by_name:
            continue
        m = kind()
        restjson.read(json.dumps({name: sample(of), "newer": [{}, 1e3, None]}), m)
        assert m.ListFields(), f"{method}: {name} sets nothing"


def test_what_is_a_clients_own_is_kept_byte_for_byte() -> None:
    task = wire.message("Task")()
    text = '{ "z" : 9007199254740993, "a":1.0,"a":1e400 , "é":"\\u00e9\\ud83d\\ude00" }'
    restjson.read('{"payload": ' + text + ', "result":null,"labels":{"k":"\\ud800"}}', task)
    assert task.payload.decode() == text and task.result == b"null"
    assert task.labels["k"] == "\ufffd"
    task.Clear()
    restjson.read('{"payload_base64":"AAH/gA=="}', task)
    assert task.payload == b"\x00\x01\xff\x80"


def test_numbers_are_exact() -> None:
    spec = wire.SettleItem(id="i", token=2**64 - 1)
    assert json.loads(restjson.write(spec))["token"] == "18446744073709551615"
    check = wire.KVCheck(keyspace="n", key=b"\xff", compare=3, rev=2**53 + 1)
    assert restjson.write(check) == '{"keyspace":"n","key_base64":"/w==","compare":"equal","rev":"9007199254740993"}'
    a = wire.Assignment()
    restjson.read('{"token":"18446744073709551615","lease":"1m0.5s","created_at":"2026-01-02T03:04:05.678Z"}', a)
    assert (a.token, a.lease_ms, a.created_ms) == (2**64 - 1, 60_500, 1767323045678)
    for bad in ('{"token":"1.0"}', '{"token":true}', '{"token":"18446744073709551616"}', '{"attempt":-1}'):
        with pytest.raises(restjson.BadAnswer):
            restjson.read(bad, wire.Assignment())


def test_times_and_spans_go_both_ways() -> None:
    for nanos, text in ((0, "0s"), (1, "0.000000001s"), (90_500_000_000, "90.5s"), (-1_500_000_000, "-1.5s")):
        p = wire.message("google.protobuf.Duration")()
        sign = -1 if nanos < 0 else 1
        p.seconds, p.nanos = sign * (abs(nanos) // 10**9), sign * (abs(nanos) % 10**9)
        assert restjson.span_text(p) == text
        assert restjson._nanos(text) == nanos
    assert restjson._nanos("1h2m3.5s4ms5us6ns") == 3_723_504_005_006
    t = wire.message("google.protobuf.Timestamp")(seconds=-62135596800)
    assert restjson.time_text(t) == "0001-01-01T00:00:00Z"
    t.seconds = 1 << 60
    assert "s since 1970" in restjson.time_text(t)
    assert restjson._moment("1969-12-31T23:59:59.5-00:30") == (1799, 500_000_000)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "nul", '{"id":1}', '{"id":"x"', '{"id":"x"} x', '{"id" "x"}', '{"id":"x",}', '{"headers":{}}',
     '{"max_run":"1 day"}', '{"run_at":"yesterday"}', '{"attempt":NaN}', '{"payload_base64":"?"}', '{"id":"a\nb"}',
     '{"x":' + "[" * 100_000 + "}"],
)  # fmt: skip
def test_what_is_not_the_contracts_is_an_error(text: str) -> None:
    with pytest.raises(restjson.BadAnswer):
        restjson.read(text, wire.message("Task")())


def test_a_path_has_segments() -> None:
    get = restjson.prepare("KVService/Get", wire.message("KVGetRequest")(keyspace="n", key=b"a/\xff .:"))
    assert get.path == "/v1/kv/n/keys/a%2F%FF%20.:" and get.query == []
    assert restjson.prepare("KVService/Get", wire.message("KVGetRequest")(keyspace="n", key=b"..")).path.endswith(
        "%2E%2E"
    )
    with pytest.raises(restjson.BadRequest, match="key"):
        restjson.prepare("KVService/Get", wire.message("KVGetRequest")(keyspace="n"))
    with pytest.raises(restjson.BadRequest, match="no route"):
        restjson.prepare("BackupService/Take", wire.message("TakeBackupRequest")())
    named = restjson.prepare("TenantService/Get", wire.message("GetTenantRequest")(tenant="t"))
    assert named.path == "/v1/tenants/t"
    assert restjson.prepare("TenantService/Get", wire.message("GetTenantRequest")()).path == "/v1/tenant"


def test_one_member_of_an_object() -> None:
    assert restjson.member('{"a":[1, {"error":2}],"error" : {"code":"X"} }', "error") == '{"code":"X"}'
    assert restjson.member('{"error":null}', "error") is None
    assert restjson.member("<html>", "error") is None
