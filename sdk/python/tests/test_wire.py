"""What clients and servers compute alike: the vectors of proto/conformance."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from conftest import VECTORS

from millrace_sdk import errors
from millrace_sdk._core import faults, place, share, wire


def vectors(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


def test_places_of_keys() -> None:
    for v in vectors("placement.json")["keys"]:
        key = v["key"].encode() if "key" in v else base64.b64decode(v["key_base64"])
        for p, want in v["partitions"].items():
            assert place.key_place(key, int(p)) == want, v


def test_places_of_tasks() -> None:
    for v in vectors("placement.json")["tasks"]:
        spec = wire.TaskSpec(id=v.get("id", ""), tag=v.get("tag", ""), key=v.get("key", ""))
        if v.get("unique_key"):
            spec.unique.key = v["unique_key"]
        assert place.task_place(spec, v["of"]) == v["partition"], v


def test_places_of_tasks_of_batches() -> None:
    found = vectors("placement.json")["tasks_of_batches"]
    assert found
    for v in found:
        for id in (v["id"], ""):
            spec = wire.TaskSpec(id=id, tag=v["tag"], batch=v["batch"])
            assert place.create_place(spec, v["of"]) == v["partition"], v
            assert place.task_place(spec, v["of"]) == v["partition"], v
            if v["of"] > 1:
                assert place.id_place(spec.id, v["of"]) == v["partition"], v


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


def test_a_range_belongs_where_all_its_keys_do() -> None:
    def at(**bounds: bytes) -> int:
        return place.range_place(wire.message("KVDeleteRange")(**bounds), 7)

    tag = place.text_place(b"user/1", 7)
    assert at(prefix=b"{user/1}/") == tag
    assert at(**{"from": b"x{user/1}/a", "to": b"x{user/1}/b"}) == tag
    assert at(prefix=b"{user/1") == at(prefix=b"{}a") == at(prefix=b"a") == at() == -1
    assert at(**{"from": b"{user/1}", "to": b"{user/2}"}) == -1


def test_parts_of_a_commit_that_stray_are_named() -> None:
    a, b = (next(f"k{i}" for i in range(99) if place.key_place(f"k{i}".encode(), 4) == p) for p in (1, 2))
    ops = [wire.Op(kv_put={"key": k.encode()}) for k in (a, b, a, b)]
    assert place.commit_place([], ops[::2], 4, "") == 1
    with pytest.raises(errors.WrongPartition, match=r"partition 1: ops\[1\] of partition 2, ops\[3\] of") as e:
        place.commit_place([], ops, 4, "")
    assert e.value.op == 1 and e.value.details == {"ops": "1,3"}
    with pytest.raises(errors.WrongPartition) as e:
        place.commit_place([wire.KVCheck(key=b.encode())], ops[:1], 4, "")
    assert e.value.op == -2 and e.value.field == "conditions[0].key"
    spec = wire.TaskSpec()
    place.create_in(spec, [], ops[:1], 4, "", 1)
    assert place.id_place(spec.id, 4) == 1 and place.create_place(spec, 4) == 1
    task = place.format_id(place.placed(place.fresh(), 2, 4))
    with pytest.raises(errors.WrongPartition):
        place.commit_place([], ops[:1], 4, task)
    assert place.commit_place([], ops[:1], 4, "not an id") == 0  # the server says that there is no such lease


def test_tasks_are_spread_in_runs_and_refused_alone() -> None:
    torn = place.format_id(place.with_partition(place.placed(place.fresh(), 0, 4), 1))
    specs = [wire.TaskSpec() for _ in range(2 * place.RUN)] + [wire.TaskSpec(id=torn)]
    homes, wrong = place.spread(specs, 4, 3)
    assert homes == {3: list(range(place.RUN)), 0: list(range(place.RUN, 2 * place.RUN))}
    assert [(i, e.field) for i, e in wrong.items()] == [(64, "tasks[64].id")]
    assert place.together([wire.TaskSpec(), wire.TaskSpec(tag="t")], 4, 0) == place.text_place(b"t", 4)
    with pytest.raises(errors.WrongPartition, match=r"tasks\[1\]"):
        place.together([wire.TaskSpec(tag="a"), wire.TaskSpec(tag="b")], 4, 0)


def test_slots_are_divided_as_by_every_client() -> None:
    names = ("slots", "target", "used", "up", "wanted", "filled", "looked", "opened")
    times = ("filled", "looked", "opened")
    all_vectors = vectors("share.json")["vectors"]
    assert {v["call"] for v in all_vectors} == {"divide", "roam"}
    for v in all_vectors:
        lanes = [share.Share(**{k: x[k] / 1000 if k in times else x[k] for k in names}) for x in v["streams"]]
        (share.divide if v["call"] == "divide" else share.roam)(v["total"], lanes, v["now"] / 1000)
        after = [{k: round(getattr(s, k) * 1000) if k in times else getattr(s, k) for k in names} for s in lanes]
        assert after == v["after"], v


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
