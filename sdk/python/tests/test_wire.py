"""What clients and servers compute alike: the vectors of proto/conformance."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from conftest import VECTORS

from millrace_sdk import errors
from millrace_sdk._core import faults, place, wire


def vectors(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


def test_places_of_keys() -> None:
    for v in vectors("placement.json")["keys"]:
        key = v["key"].encode() if "key" in v else base64.b64decode(v["key_base64"])
        for p, want in v["partitions"].items():
            assert place.key_place(key, int(p)) == want, v


def test_places_of_tasks() -> None:
    for v in vectors("placement.json")["tasks"]:
        spec = wire.TaskSpec(id=v.get("id", ""), tag=v.get("tag", ""))
        if v.get("unique_key"):
            spec.unique.key = v["unique_key"]
        assert place.task_place(spec, v["of"]) == v["partition"], v


def test_ids() -> None:
    v = vectors("task_ids.json")
    for x in v["ids"]:
        n = place.parse_id(x["text"])
        assert n is not None and place.format_id(n) == x["text"]
        assert n >> 80 == x["ms"] and place.id_partition(n) == x["partition"]
        assert f"{n & (1 << 64) - 1:016x}" == x["random_low_hex"] and n >> 64 & 15 == x["random_high"]
        for p, want in x["placed_in"].items():
            assert place.id_home(n, int(p)) == want


def test_placed_ids_name_their_partition_twice() -> None:
    for x in vectors("task_ids.json")["placed"]:
        n = x["ms"] << 80 | x["random_high"] << 64 | int(x["random_low_hex"], 16)
        assert place.format_id(place.placed(n, x["partition"], x["of"])) == x["text"], x


def test_texts_of_ids() -> None:
    v = vectors("task_ids.json")
    for x in v["read_as"]:
        n = place.parse_id(x["given"])
        assert n is not None and place.format_id(n) == x["text"]
    for text in v["invalid"]:
        assert place.parse_id(text) is None, text


def test_new_ids_differ_and_rise() -> None:
    ids = [place.new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert ids[0][:8] <= ids[-1][:8]


def test_codes_of_errors() -> None:
    v = vectors("errors.json")
    assert {c["code"] for c in v["codes"]} == set(errors.CLASSES)
    for c in v["codes"]:
        e = errors.make(c["code"])
        assert type(e).code == c["code"]
        assert faults.patience(e) == c["repeat_seconds"], c
    for reason in v["no_repeat_reasons"]:
        assert faults.patience(errors.Unavailable(reason=reason)) == 0


def test_bounds_of_backoff() -> None:
    v = vectors("backoff.json")
    assert [round(faults.server_bound(i) * 1000) for i in range(len(v["server"]))] == v["server"]
    assert [round(faults.away_bound(i) * 1000) for i in range(len(v["away"]))] == v["away"]


@pytest.mark.parametrize("n", [0, 1, 127, 128, 300, 1 << 40])
def test_frames_are_those_of_the_contract(n: int) -> None:
    specs = [wire.TaskSpec(queue="q", payload=b"x" * 200).SerializeToString() for _ in range(3)]
    f = wire.ClientFrame.FromString(wire.create_frame(n, specs, True))
    assert f.create.seq == n and len(f.create.tasks) == 3 and f.create.atomic
    commit = wire.CommitRequest(request_id=b"1" * 16).SerializeToString()
    f = wire.ClientFrame.FromString(wire.commit_frame(n, commit))
    assert f.commit.seq == n and f.commit.commit.request_id == b"1" * 16
    item = wire.SettleItem(id="a", token=7)
    f = wire.ClientFrame.FromString(wire.settle_frame(n, [item.SerializeToString()]))
    assert f.settle.seq == n and f.settle.items[0].token == 7


def test_spans_and_texts() -> None:
    m = wire.message("Snooze")()
    for seconds in (0.0, 0.25, 1.5, 86400.0):
        wire.set_span(m.delay, seconds)
        assert wire.span(m.delay) == seconds
    assert wire.cut("aäb", 2) == "a"
    assert wire.cut("abc", 3) == "abc"


def test_an_error_of_the_wire() -> None:
    w = wire.Error(code="PRECONDITION_FAILED", reason="rev", message="m", op=0, details={"rev": "3"}, outcome=0)
    e = faults.from_wire(w)
    assert isinstance(e, errors.PreconditionFailed) and e.op == 0 and e.details["rev"] == "3"
    assert errors.outcome_of(e) == "refused" and "ops[0]" in str(e)
    w = wire.Error(code="NEW_CODE", message="m", outcome=1, max=3, limit="l")
    e = faults.from_wire(w)
    assert e.code == "NEW_CODE" and e.outcome == "unknown" and e.op is None


def test_a_refusal_after_an_unknown_try_proves_nothing() -> None:
    assert faults.sure(errors.RateLimited(), True, False).outcome == "unknown"
    assert faults.sure(errors.NotFound(), True, False).outcome == "refused"
    assert faults.sure(errors.AlreadyExists(), True, False).outcome == "refused"
    assert faults.sure(errors.AlreadyExists(), True, True).outcome == "unknown"
    assert faults.sure(errors.RateLimited(), False, False).outcome == "refused"
