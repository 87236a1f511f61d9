"""Recorders judge as servers do: proto/conformance/commits.json is held to a server by the tests of Go."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agent import some_bytes, write_ops
from conftest import VECTORS

import millrace_sdk as mr
from millrace_sdk.testing import AsyncRecorder, Recorder, Run

CASES: list[dict[str, Any]] = json.loads((VECTORS / "commits.json").read_text())["commits"]


def test_there_are_vectors() -> None:
    assert CASES


def number(revs: list[int], n: int) -> int:
    """Return a revision of the vectors as it was given."""
    if 0 < n <= len(revs):
        return revs[n - 1]
    return n if n == 0 or not revs else revs[-1] + n - len(revs)


def prepare(c: Recorder, case: dict[str, Any]) -> list[int]:
    """Make the keys and tasks that a case has before, and return the revisions of the keys."""
    revs = [c.kv("k").put(o["key"], some_bytes(o, "value")) for o in case.get("keys", ())]
    for o in case.get("tasks", ()):
        tx = c.tx()
        write_ops(tx, [o])
        tx.commit()
    return revs


def fill(to: mr.Changes, case: dict[str, Any], revs: list[int]) -> None:
    """Add the checks and ops of a case."""
    for o in case.get("checks", ()):
        rev = number(revs, o["rev"]) if "rev" in o else None
        to.kv(o["keyspace"]).check(o["key"], o["compare"], rev=rev, value=o.get("value"))
    write_ops(to, [o | ({"if_rev": number(revs, o["if_rev"])} if "if_rev" in o else {}) for o in case["ops"]])


def judge(c: Recorder, case: dict[str, Any], revs: list[int], e: BaseException | None, effects: bool) -> None:
    """Hold an error, and the keys that are there now, to what a case says."""
    want = case.get("refused")
    if want is None:
        assert e is None
    else:
        assert isinstance(e, mr.MillraceError)
        details = dict(want.get("details", {}))
        if "rev" in details:
            details["rev"] = str(number(revs, details["rev"]))
        got = (e.code, e.reason, e.op, e.outcome, e.details)
        assert got == (want["code"], want.get("reason", ""), want.get("op"), "refused", details)
        if not effects:
            assert e.field == want.get("field", "")
    for key, value in case.get("after", {}).items():
        item = c.kv("k").get(key)
        assert (item.value.decode() if item.found else None) == value


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_a_commit(case: dict[str, Any]) -> None:
    c = Recorder()
    revs = prepare(c, case)
    tx = c.tx()
    fill(tx, case, revs)
    error, sums = None, []
    try:
        sums = [str(n) for n in tx.commit().sums if n is not None]
    except mr.MillraceError as e:
        error = e
    judge(c, case, revs, error, False)
    assert sums == case.get("sums", sums)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_effects(case: dict[str, Any], asynchronous: bool) -> None:
    c = Recorder()
    revs = prepare(c, case)
    asked: list[mr.MillraceError] = []

    def run(t: mr.Task[bool], ask: bool) -> int:
        fill(t.fx, case, revs)
        if ask:
            t.on_refused(asked.append)
        return 7

    async def arun(t: mr.Task[bool], ask: bool) -> int:
        return run(t, ask)

    job: mr.Job[bool, int] = mr.Job[bool, int]("effects", attempts=1)
    job.handler(arun if asynchronous else run)
    if "refused" in case:
        h = job.add(c, False)
        (r,) = c.drain([job])
        assert (r.settle, r.effects, r.code) == ("fail", [], case["refused"]["code"])
        judge(c, case, revs, r.refused, True)
        with pytest.raises(mr.TaskError) as e:
            h.wait()
        assert (e.value.state, e.value.code) == ("dead", case["refused"]["code"])
    h = job.add(c, True)
    (r,) = c.drain([job])
    assert (r.settle, h.wait()) == ("complete", 7)
    judge(c, case, revs, asked[0] if asked else None, True)


def show(runs: list[Run[Any]]) -> list[str]:
    return [f"{r.task.kind if r.task else ''}{r.task.attempt if r.task else 0} {r.settle} {r.code}" for r in runs]


def make() -> tuple[mr.Job[str, str], mr.Job[str, str]]:
    """Make two jobs: the first adds a task of the second, and ends as its argument says."""
    first, then = mr.Job[str, str]("first", attempts=2), mr.Job[str, str]("then")
    snoozed: list[str] = []

    @first.handler
    def run(t: mr.Task[str], how: str) -> str:
        t.fx.kv("k").put(how, str(t.attempt))
        then.add_tx(t.fx, "after " + how)
        if how == "fails" or (how == "mends" and t.attempt == 1):
            raise mr.RetryIn(60, RuntimeError("no luck"))
        if how == "snoozes" and not snoozed:
            snoozed.append(how)
            raise mr.Snooze(3600)
        if how == "refused":
            t.fx.kv("k").check("none", "exists")
        return how + "!"

    then.handler(lambda t, a: a)
    return first, then


def test_drain_tells_what_each_attempt_came_to() -> None:
    c = Recorder()
    first, then = make()
    hs = first.add_many(c, ["fails", "mends", "snoozes", "refused", "works"], delay=3600)
    mr.Job[str, str]("unknown").add(c, "x")
    assert show(c.drain([first, then])) == [
        "first1 fail RuntimeError", "first2 fail RuntimeError", "first1 fail RuntimeError", "first2 complete ",
        "first1 snooze ", "first1 fail PRECONDITION_FAILED", "first2 fail PRECONDITION_FAILED", "first1 complete ",
        "then1 complete ", "then1 complete ",
    ]  # fmt: skip
    assert show(c.drain([first, then])) == ["first2 complete ", "then1 complete "]
    assert c.drain([first, then]) == []
    assert c.added(then) == ["after mends", "after works", "after snoozes"]
    assert [(e["op"], e.get("key")) for e in c.effects] == [
        ("kv_put", "mends"), ("task_create", None), ("kv_put", "works"), ("task_create", None), ("kv_put", "snoozes"),
        ("task_create", None),
    ]  # fmt: skip
    assert hs[2].wait() == "snoozes!" and (hs[0].info().state, hs[0].info().failures) == ("dead", 2)


async def test_an_async_recorder_judges_too() -> None:
    c = AsyncRecorder()
    await c.kv("k").put("a", "1", if_absent=True)
    with pytest.raises(mr.PreconditionFailed) as e:
        await c.kv("k").put("a", "2", if_absent=True)
    assert e.value.op == 0 and e.value.details["value"] == "1"
    asked: list[str] = []
    job: mr.Job[int, int] = mr.Job[int, int]("j")

    @job.handler
    async def run(t: mr.Task[int], n: int) -> int:
        tx = t.tx()
        tx.kv("k").put("during", "held")
        await tx.commit()
        t.fx.kv("k").add("n", n, ceiling=4)

        async def again(e: mr.MillraceError) -> None:
            asked.append(e.reason)
            t.fx.kv("k").add("n", 4)

        t.on_refused(again)
        return n

    h = await job.add(c, 5)
    assert show(await c.drain([job])) == ["j1 complete "]
    assert asked == ["bound"] and await h.wait() == 5
    assert [i.key for i in await c.kv("k").range()] == [b"a", b"during", b"n"]
    assert (await c.kv("k").get("n")).value == b"4"


def test_tasks_are_judged() -> None:
    c = Recorder()
    job: mr.Job[int, int] = mr.Job[int, int]("j")
    id = c.new_id()
    assert [job.add(c, 1, id=id).replayed, job.add(c, 1, id=id).replayed] == [False, True]
    with pytest.raises(mr.AlreadyExists):
        job.add(c, 2, id=id)
    h = job.add(c, 3, unique="u")
    other = job.add(c, 4, unique="u")
    assert other.id == h.id and other.replayed
    with pytest.raises(mr.InvalidArgument) as e:
        job.add(c, 5, priority=10)
    assert e.value.field == "priority"
    with pytest.raises(mr.BatchError) as many:
        job.add_many(c, [6, 7], queue="a b")
    assert [w.field if w else "" for w in many.value.errors] == ["queue", "queue"]
    with pytest.raises(mr.InvalidArgument) as e:
        job.add_all(c, [8, 9], priority=10)
    assert e.value.field == "tasks[0].priority"
    assert c.added(job) == [1, 3]
    h.cancel()
    with pytest.raises(mr.TaskError) as ended:
        h.wait()
    assert ended.value.state == "cancelled"
    assert c.task(id).state == "ready"


def test_a_fence_ends_with_its_attempt() -> None:
    c = Recorder()
    stale: list[mr.Task[int]] = []
    job: mr.Job[int, int] = mr.Job[int, int]("j")

    @job.handler
    def run(t: mr.Task[int], n: int) -> int:
        if not stale:
            stale.append(t)
            t.save_checkpoint(b"far")
            raise RuntimeError("once more")
        tx = stale[0].tx()
        tx.kv("k").put("a", "1")
        with pytest.raises(mr.LeaseLost) as e:
            tx.commit()
        assert e.value.op == -1 and t.checkpoint == b"far"
        return n

    job.add(c, 1)
    assert show(c.drain([job])) == ["j1 fail RuntimeError", "j2 complete "]
    assert not c.kv("k").get("a").found


def test_what_a_recorder_lacks_is_refused() -> None:
    c = Recorder()
    job: mr.Job[int, int] = mr.Job[int, int]("j")
    with pytest.raises(mr.InvalidArgument) as e:
        c.queue("j").stats()
    assert e.value.reason == "recorder" and e.value.outcome == "refused"
    h = job.add(c, 1)
    with pytest.raises(mr.WrongState) as w:
        h.wait()
    assert w.value.reason == "recorder"
    with pytest.raises(mr.NotFound):
        c.wait(c.new_id())
