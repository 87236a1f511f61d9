"""Both clients and workers against a real server."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import millrace_sdk as mr
from millrace_sdk.testing import DevServer

WITHIN = 20.0


@dataclass
class Args:
    n: int


@pytest.fixture
def client(millrace_server: DevServer) -> Iterator[mr.Client]:
    with millrace_server.client() as c:
        yield c


@contextmanager
def working(c: Any, *jobs: mr.Job[Any, Any], **options: Any) -> Iterator[mr.Worker]:
    """Run a worker in a thread."""
    w = mr.Worker(c, jobs, **options)
    wrong: list[BaseException] = []

    def run() -> None:
        try:
            w.run()
        except BaseException as e:
            wrong.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield w
    finally:
        w.stop()
        thread.join(WITHIN)
        assert not thread.is_alive() and not wrong, wrong


def unique(name: str) -> str:
    """Name something that no other test uses."""
    return f"{name}-{mr.new_id().lower()}"


def doubling(queue: str, space: str) -> mr.Job[Args, int]:
    """A job that counts its completions."""
    job: mr.Job[Args, int] = mr.Job[Args, int]("double", queue=queue)

    @job.handler
    def double(t: mr.Task[Args], a: Args) -> int:
        t.fx.kv(space).add("count")
        return 2 * a.n

    return job


def test_a_cycle(client: mr.Client) -> None:
    space = unique("n")
    job = doubling(unique("q"), space)
    with working(client, job, slots=16):
        h = job.add(client, Args(21))
        assert h.wait(WITHIN) == 42 and h.info().state == "completed"
        hs = job.add_many(client, [Args(i) for i in range(300)])
        assert [h.wait(WITHIN) for h in hs] == [2 * i for i in range(300)]
    assert client.kv(space).get("count").value == b"301"
    assert client.queue(job.queue).stats().completed == 301


def test_an_async_cycle(millrace_server: DevServer) -> None:
    queue, space = unique("q"), unique("n")

    async def main() -> None:
        job: mr.Job[Args, int] = mr.Job[Args, int]("double", queue=queue)

        @job.handler
        async def double(t: mr.Task[Args], a: Args) -> int:
            tx = t.tx()
            tx.kv(space).add("mid")
            assert (await tx.commit()).sums[0]
            t.fx.kv(space).add("count")
            await asyncio.sleep(0)
            return 2 * a.n

        async with millrace_server.async_client() as c:
            stop = asyncio.Event()
            run = asyncio.ensure_future(mr.Worker(c, [job]).run_async(stop))
            hs = await asyncio.gather(*(job.add(c, Args(i)) for i in range(200)))
            assert [await h.wait(WITHIN) for h in hs] == [2 * i for i in range(200)]
            assert (await c.kv(space).get("count")).value == b"200"
            assert (await c.kv(space).get("mid")).value == b"200"
            stop.set()
            await run

    asyncio.run(main())


def test_bytes_are_kept(client: mr.Client) -> None:
    q = unique("q")
    raw: mr.Job[bytes, bytes] = mr.Job[bytes, bytes](q)
    text: mr.Job[str, str] = mr.Job[str, str](q + "t")
    plain: mr.Job[Any, Any] = mr.Job[Any, Any](q + "j")
    raw.handler(lambda t, a: a[::-1])
    text.handler(lambda t, a: a + "ä")
    plain.handler(lambda t, a: a)
    big = os.urandom(1 << 20)
    with working(client, raw, text, plain):
        assert raw.add(client, big).wait(WITHIN) == big[::-1]
        assert text.add(client, "ä").wait(WITHIN) == "ää"
        value = {"b": 9007199254740993, "a": [1.5, None, "x"]}
        got = plain.add(client, value).wait(WITHIN)
        assert got == value and list(got) == list(value)
        assert plain.add(client, None).wait(WITHIN) is None
    with pytest.raises(mr.TooLarge):
        raw.add(client, b"x" * (2 << 20))


def test_ids_make_adds_repeatable(client: mr.Client) -> None:
    job = doubling(unique("q"), unique("n"))
    id = mr.new_id()
    assert not job.add(client, Args(1), id=id).replayed
    assert job.add(client, Args(1), id=id).replayed
    a = job.add(client, Args(1), unique="k")
    assert job.add(client, Args(2), unique="k").id == a.id
    with pytest.raises(mr.AlreadyExists):
        job.add(client, Args(2), unique=mr.Unique("k", on_conflict="reject"))


def test_batches(client: mr.Client) -> None:
    job = doubling(unique("q"), unique("n"))
    bad: mr.Job[Args, int] = mr.Job[Args, int]("double", queue=job.queue, priority=99)
    with pytest.raises(mr.BatchError) as e:
        client._add_specs([(job, job._spec(Args(1), {})), (bad, bad._spec(Args(2), {}))], {})
    assert e.value.errors[0] is None and isinstance(e.value.errors[1], mr.InvalidArgument)
    assert e.value.handles[0].info().state == "ready"
    with pytest.raises(mr.InvalidArgument):
        client._add_specs_atomic([(job, job._spec(Args(1), {})), (bad, bad._spec(Args(2), {}))], {})
    assert len(job.add_all(client, [Args(i) for i in range(3)])) == 3
    assert client.queue(job.queue).stats().ready == 4
    assert job.add_many(client, []) == [] == job.add_all(client, [])


def test_keys(client: mr.Client) -> None:
    kv = client.kv(unique("n"))
    rev = kv.put("a", "1")
    assert kv.get("a") == mr.KVItem(b"a", b"1", rev)
    assert not kv.get("b").found
    with pytest.raises(mr.PreconditionFailed):
        kv.put("a", "2", if_absent=True)
    with pytest.raises(mr.PreconditionFailed) as e:
        kv.put("a", "2", if_rev=rev + 100)
    assert e.value.op == 0 and e.value.details["rev"] == str(rev)
    assert kv.put("a", {"x": 1}, if_rev=rev) > rev
    assert kv.add("n", 5) == 5 and kv.add("n", -2, floor=0) == 3
    with pytest.raises(mr.PreconditionFailed):
        kv.add("n", -4, floor=0)
    assert kv.delete("n") and not kv.delete("n")
    tx = client.tx()
    for i in range(20):
        tx.kv(kv.name).put(f"p/{i:02}", str(i))
    r = tx.commit()
    assert len(r.revs) == 20 and not r.replayed and r.at.index > 0
    assert [i.text() for i in kv.range(prefix="p/", limit=3)] == ["0", "1", "2"]
    assert [i.key for i in kv.range(start="p/18", end="p/19")] == [b"p/18"]
    assert len(list(kv.scan(prefix="p/"))) == 20
    tx = client.tx()
    tx.kv(kv.name).delete_range(prefix="p/", count=True)
    assert tx.commit().counts == [20]


def test_transactions(client: mr.Client) -> None:
    space, job = unique("n"), doubling(unique("q"), unique("n"))
    kv = client.kv(space)
    rev = kv.put("7", "x")
    tx = client.tx()
    tx.kv(space).check("7", "equal", rev=rev)
    tx.kv(space).check("8", "absent")
    tx.kv(space).put("7", "y", if_rev=rev)
    tx.kv(space).add("sum", 3)
    id = job.add_tx(tx, Args(1))
    r = tx.commit()
    assert r.ids == [None, None, id] and r.sums == [None, 3, None] and r.revs[0] is not None
    with pytest.raises(mr.PreconditionFailed) as e:
        tx.commit()
    assert e.value.op == -2
    assert client.task(id).kind == "double"


def test_every_end(client: mr.Client) -> None:
    job: mr.Job[str, str] = mr.Job[str, str](unique("q"), attempts=2, retry=mr.Retry(base=0.01, max=0.02))
    seen: list[mr.Settled] = []

    @job.handler
    def handle(t: mr.Task[str], a: str) -> str:
        if t.attempt > 1 and a not in ("fail", "exit"):
            return f"{a} {t.attempt}"
        if a == "fail":
            raise KeyError("lost")
        if a == "exit":
            raise SystemExit(1)
        if a == "fatal":
            raise mr.Fatal("never", code="never")
        if a == "retry":
            raise mr.RetryIn(0, "again")
        if a == "snooze":
            raise mr.Snooze(0.05)
        if a == "release":
            raise mr.Release
        return a

    with working(client, job, slots=4, on_settled=seen.append):
        hs = {a: job.add(client, a) for a in ("fail", "exit", "fatal", "retry", "snooze", "release", "ok")}
        for a in ("retry", "snooze", "release"):
            assert hs[a].wait(WITHIN) == f"{a} 2"
        assert hs["ok"].wait(WITHIN) == "ok"
        for a, code in (("fail", "KeyError"), ("exit", "SystemExit"), ("fatal", "never")):
            with pytest.raises(mr.TaskError) as e:
                hs[a].wait(WITHIN)
            assert (e.value.state, e.value.code) == ("dead", code)
    by_task = {a: [s.op for s in seen if s.id == h.id] for a, h in hs.items()}
    assert by_task["fail"] == ["fail", "fail"] and by_task["fatal"] == ["fail"]
    assert by_task["snooze"] == ["snooze", "complete"] and by_task["release"] == ["release", "complete"]


def test_refused_effects(client: mr.Client) -> None:
    space = unique("n")
    job: mr.Job[str, str] = mr.Job[str, str](unique("q"), attempts=1)

    @job.handler
    def handle(t: mr.Task[str], a: str) -> str:
        t.fx.kv(space).put("taken", a, if_absent=True)
        if a == "again":
            t.on_refused(lambda e: t.fx.kv(space).put("other", e.code))
        return a

    client.kv(space).put("taken", "x")
    with working(client, job):
        assert job.add(client, "again").wait(WITHIN) == "again"
        with pytest.raises(mr.TaskError) as e:
            job.add(client, "plain").wait(WITHIN)
        assert e.value.code == "PRECONDITION_FAILED"
    assert client.kv(space).get("other").value == b"PRECONDITION_FAILED"
    assert client.kv(space).get("taken").value == b"x"


@pytest.mark.parametrize("is_async", [False, True])
def test_cancel(client: mr.Client, is_async: bool) -> None:
    job: mr.Job[str, str] = mr.Job[str, str](unique("q"))
    began, why = threading.Event(), []

    def handle(t: mr.Task[str], a: str) -> str:
        began.set()
        t.cancelled.wait(WITHIN)
        why.append((t.cancelled.why, t.cancelled.reason))
        t.raise_if_cancelled()
        return ""

    async def ahandle(t: mr.Task[str], a: str) -> str:
        began.set()
        try:
            await asyncio.sleep(WITHIN)
        finally:
            why.append((t.cancelled.why, t.cancelled.reason))
        return ""

    job.handler(ahandle if is_async else handle)
    with working(client, job):
        h = job.add(client, "x")
        assert began.wait(WITHIN)
        h.cancel("changed my mind")
        with pytest.raises(mr.TaskError) as e:
            h.wait(WITHIN)
        assert e.value.state == "cancelled"
    assert why == [("cancelled", "changed my mind")]


def test_leases_are_kept_while_handlers_block(client: mr.Client) -> None:
    q = unique("q")
    sync: mr.Job[str, int] = mr.Job[str, int]("sync", queue=q, lease=1)
    on_loop: mr.Job[str, int] = mr.Job[str, int]("loop", queue=q, lease=1)

    @sync.handler
    def busy(t: mr.Task[str], a: str) -> int:
        end = time.monotonic() + 1.8
        while time.monotonic() < end:
            pass
        return t.attempt

    @on_loop.handler
    async def blocked(t: mr.Task[str], a: str) -> int:
        time.sleep(1.8)
        return t.attempt

    with working(client, sync, on_loop):
        hs = [j.add(client, "x") for j in (sync, on_loop)]
        assert [h.wait(WITHIN) for h in hs] == [1, 1]


def test_a_helper_keeps_leases_while_the_interpreter_is_held(client: mr.Client) -> None:
    import ctypes

    job: mr.Job[str, int] = mr.Job[str, int](unique("q"), lease=2)
    usleep = ctypes.PyDLL(None).usleep

    @job.handler
    def hold(t: mr.Task[str], a: str) -> int:
        usleep(2_400_000)
        return t.attempt

    with working(client, job, renew="process"):
        assert job.add(client, "x").wait(WITHIN) == 1


def test_a_stalled_loop_loses_its_leases(client: mr.Client) -> None:
    job: mr.Job[str, int] = mr.Job[str, int](unique("q"), lease=1)
    begun, again = threading.Event(), threading.Event()

    @job.handler
    async def blocked(t: mr.Task[str], a: str) -> int:
        begun.set()
        if t.attempt == 1:
            assert again.wait(WITHIN)  # it blocks its loop until the other worker has the task
        again.set()
        return t.attempt

    with working(client, job, stall=0.2):
        h = job.add(client, "x")
        assert begun.wait(WITHIN)
        with working(client, job):
            assert h.wait(WITHIN) == 2


def test_progress_and_checkpoints(client: mr.Client) -> None:
    job: mr.Job[str, str] = mr.Job[str, str](unique("q"), retry=mr.Retry(base=0.01, max=0.01))

    @job.handler
    async def handle(t: mr.Task[str], a: str) -> str:
        if t.checkpoint is None:
            t.progress(40, "half")
            t.log("one line")
            await t.save_checkpoint(b"half")
            raise RuntimeError("again")
        return t.checkpoint.decode()

    with working(client, job):
        h = job.add(client, "x")
        assert h.wait(WITHIN) == "half"
    lines = client.raw.TaskService.Logs(id=h.id).lines
    assert [x.line for x in lines] == ["one line"]


def test_a_ledger(millrace_server: DevServer) -> None:
    out = io.StringIO()
    space, q = unique("n"), unique("q")
    job = doubling(q, space)
    with millrace_server.client(ledger=out) as c, working(c, job):
        h = job.add(c, Args(1))
        h.wait(WITHIN)
        c.kv(space).put("a", "1")
        with pytest.raises(mr.PreconditionFailed):
            c.kv(space).put("a", "1", if_absent=True)
        c.kv(space).get("a")
    lines = [json.loads(x) for x in out.getvalue().splitlines()]
    by_op = {x["op"]: x for x in lines}
    assert by_op["create"]["id"] == h.id and by_op["create"]["outcome"] == "ok" and by_op["create"]["index"] > 0
    assert by_op["deliver"]["token"] == by_op["complete"]["token"] and by_op["complete"]["attempt"] == 1
    assert by_op["complete"]["partition"] == "p0" and by_op["complete"]["t_invoke"] <= by_op["complete"]["t_return"]
    puts = [x for x in lines if x["op"] == "kv_put"]
    assert [x["outcome"] for x in puts] == ["ok", "refused"] and puts[1]["code"] == "PRECONDITION_FAILED"
    assert puts[0]["key"] == space + "/a" and puts[0]["value"] == "1" and len(puts[0]["request_id"]) == 32
    assert by_op["kv_get"]["value"] == "1" and by_op["wait"]["outcome"] == "ok"


def _add_in_child(c: Any, q: str, to: Any) -> None:
    job: mr.Job[Args, int] = mr.Job[Args, int]("double", queue=q)
    to.send(job.add(c, Args(1)).id)


def test_forks(client: mr.Client) -> None:
    q = unique("q")
    job: mr.Job[Args, int] = mr.Job[Args, int]("double", queue=q)
    job.add(client, Args(0))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, job.add(client, Args(1)).id.encode())
        finally:
            os._exit(0)
    assert len(os.read(read, 100)) == 26
    os.waitpid(pid, 0)
    near, far = multiprocessing.get_context("fork").Pipe()
    p = multiprocessing.get_context("fork").Process(target=_add_in_child, args=(client, q, far))
    p.start()
    assert near.poll(WITHIN) and len(near.recv()) == 26
    p.join()
    job.add(client, Args(2))
    assert client.queue(q).stats().ready == 4
    assert client._eng is not None and client._eng.producer.session.up


def test_threads_and_loops_together(millrace_server: DevServer, client: mr.Client) -> None:
    q = unique("q")
    job = doubling(q, unique("n"))

    async def add(n: int) -> None:
        loop = asyncio.get_running_loop()
        with concurrent.futures.ThreadPoolExecutor(1) as full:  # user code may fill the default executor
            loop.set_default_executor(full)
            blocker = threading.Event()
            loop.run_in_executor(None, blocker.wait)
            async with millrace_server.async_client() as c:
                await asyncio.gather(*(job.add(c, Args(i)) for i in range(n)))
            blocker.set()

    threads = [threading.Thread(target=lambda: asyncio.run(add(50))) for _ in range(2)]
    threads += [threading.Thread(target=lambda: [job.add(client, Args(i)) for i in range(10)]) for _ in range(32)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(WITHIN)
    assert client.queue(q).stats().ready == 100 + 320


def test_raw_calls_and_tasks(client: mr.Client) -> None:
    assert client.raw.ServerService.Status().version
    with pytest.raises(mr.NotFound):
        client.task(mr.new_id())
    with pytest.raises(AttributeError):
        client.raw.NoService  # noqa: B018
    queue = client.queue(unique("q"))
    doubling(queue.name, "n").add(client, Args(1))
    queue.pause("for a test")
    assert queue.stats().paused
    queue.resume()
    assert not queue.stats().paused


def test_a_closed_client(millrace_server: DevServer) -> None:
    c = millrace_server.client()
    c.kv("n").get("a")
    c.close()
    with pytest.raises(mr.Unavailable, match="closed"):
        c.kv("n").get("a")
    with pytest.raises(mr.Unavailable, match="closed"):
        c.kv("n").put("a", "1")


def test_no_server() -> None:
    with mr.Client("127.0.0.1:9", token="t", timeout=0.3) as c, pytest.raises(mr.MillraceError) as e:
        c.kv("n").put("a", "1")
    assert e.value.outcome == "refused" and e.value.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
