"""Arguments, results and values are written and read as the vectors say."""

from __future__ import annotations

import base64
import datetime
import json
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import VECTORS

from millrace_sdk import codec
from millrace_sdk.convert import ConvertError

FILE: dict[str, list[dict[str, Any]]] = json.loads((VECTORS / "content.json").read_text())


@dataclass
class Record:
    n: int
    b: bytes


TYPES: dict[str, Any] = {
    "text": str, "bytes": bytes, "integer": int, "number": float, "boolean": bool, "time": datetime.datetime,
    "list of integers": list[int], "object": Record,
}  # fmt: skip
MISSING = {"nan": float("nan"), "infinity": float("inf"), "-infinity": -float("inf"), "function": print}


def value_of(v: dict[str, Any]) -> Any:
    if "base64" in v:
        return base64.b64decode(v["base64"])
    if "object" in v:
        return {k: value_of(x) for k, x in v["object"].items()}
    if "time" in v:
        return datetime.datetime.fromisoformat(v["time"].replace("Z", "+00:00"))
    if "missing" in v:
        return MISSING[v["missing"]]
    return None if "nothing" in v else v["text"] if "text" in v else v["json"]


def bytes_of(v: dict[str, Any]) -> bytes:
    return v["text"].encode() if "text" in v else base64.b64decode(v.get("base64", ""))


def name(v: dict[str, Any]) -> str:
    return json.dumps(v, ensure_ascii=True)[:80]


@pytest.mark.parametrize("v", FILE["encode"], ids=name)
def test_what_is_written(v: dict[str, Any]) -> None:
    value = value_of(v["value"])
    # By the type that a job would declare, where a single value has one, and without a declared type.
    for tp in {Any, type(value) if isinstance(value, (str, bytes, bool, int, float)) else Any}:
        c = codec.codec_of(tp)
        if v.get("refused"):
            with pytest.raises(ConvertError):
                codec.encode_with(c, value)
            continue
        data, content_type = codec.encode_with(c, value)
        assert content_type == v["type"]
        assert data in (bytes_of(v), *(x.encode() for x in v.get("or", [])))


@pytest.mark.parametrize("v", FILE["decode"] + FILE["typed"], ids=name)
def test_what_is_read(v: dict[str, Any]) -> None:
    tp = TYPES[v["as"]] if "as" in v else Any
    if v.get("refused"):
        with pytest.raises(ValueError):
            codec.decode_with(codec.codec_of(tp), bytes_of(v), v["type"])
        return
    got, want = codec.decode_with(codec.codec_of(tp), bytes_of(v), v["type"]), value_of(v["value"])
    if tp is Record:
        want = Record(want["n"], base64.b64decode(want["b"]))
    assert got == want and (type(got) is type(want) or {type(got), type(want)} == {int, float})


def test_text_is_utf8() -> None:
    for tp in (Any, str):
        with pytest.raises(ValueError):
            codec.decode_with(codec.codec_of(tp), b"\xff", "text/plain")
    with pytest.raises(ConvertError):
        codec.codec_of(Any).decode(b'"\xff"')


def test_a_time_without_a_zone() -> None:
    with pytest.raises(ConvertError, match="must have a time zone"):
        codec.codec_of(datetime.datetime).encode(datetime.datetime(2030, 1, 2))
    with pytest.raises(ConvertError, match="must have a time zone"):
        codec.encode_value({"at": datetime.datetime(2030, 1, 2)})
