"""Limiters, batches and weights, by both clients and both transports against a real server."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from test_partition_server import dial as dial
from test_partitions import tag_in
from test_server import unique, working

import millrace_sdk as mr
from millrace_sdk._core import place
from millrace_sdk.testing import AsyncRecorder, DevServer, Recorder, run_handler


@pytest.fixture(params=["stream", "rest"])
def client(millrace_server: DevServer, request: pytest.FixtureRequest) -> Iterator[mr.Client]:
    namespace = unique("batch")
    with millrace_server.client(namespace=namespace, transport=request.param, rest_url=millrace_server.rest_url) as c:
        yield c


def test_a_limiter_bounds_the_tasks_of_two_jobs(client: mr.Client) -> None:
    api, rate = client.limiter("api"), mr.Rate(1000, 1, burst=10)
    made = api.set(concurrency=1, rate=rate, if_version=0)
    assert (made.name, made.concurrency, made.rate, made.version) == ("api", 1, rate, 1)
    assert (made.used, made.tasks, made.held_by, made.queues, made.until) == (0, 0, (), (), None)
    with pytest.raises(mr.PreconditionFailed):
        api.set(concurrency=1, rate=rate, if_version=0)
    mail = mr.Job[int, int]("mail", limiters=["api"])
    push = mr.Job[int, int]("push")
    gate = threading.Event()

    def hold(t: mr.Task[int], n: int) -> int:
        gate.wait(20)
        return n

    mail.handler(hold)
    push.handler(hold)
    with working(client, mail):
        first = mail.add(client, 1)
        while not api.get().used:
            time.sleep(0.02)
        second = push.add(client, 2, limiters=["api"], cost=2)
        assert second.info().limiters == ("api",) and first.info().limiters == ("api",)
        with pytest.raises(mr.NotFound):
            push.add(client, 3, limiters=["nope"])
        client.queue("web").set(limiters=["api"])
        assert client.queue("web").config().limiters == ("api",)
        got = api.get()
        assert (got.used, got.tasks, got.queues) == (1, 2, ("web",))
        assert got.held_by[0].task == first.id and got.held_by[0].queue == "mail"
        with working(client, push):
            free = push.add(client, 4)
            while free.info().state != "running":
                time.sleep(0.02)
            assert second.info().state == "ready"  # the limiter is full
            gate.set()
            assert (first.wait(20), second.wait(20), free.wait(20)) == (1, 2, 4)
    with pytest.raises(mr.WrongState):
        api.delete()
    client.queue("web").update(limiters=None)
    assert client.queue("web").config().limiters == ()
    client.limiter("free").set()
    assert [(one.name, one.concurrency) for one in client.limiters()] == [("api", 1), ("free", None)]
    assert [one.name for one in client.limiters(prefix="f")] == ["free"]
    with pytest.raises(mr.PreconditionFailed):
        client.limiter("free").delete(if_version=7)
    client.limiter("free").delete()
    api.delete(if_version=1)
    for gone in (api.get, api.delete):
        with pytest.raises(mr.NotFound):
            gone()


def test_names_of_limiters_are_a_list(client: mr.Client) -> None:
    job = mr.Job[int, int]("n")
    for wrong in (
        lambda: job.add(client, 1, limiters="api"),
        lambda: mr.Job[int, int]("n", limiters="api").add(client, 1),
        lambda: client.queue("n").set(limiters="api"),
    ):
        with pytest.raises(mr.InvalidArgument, match="limiters: must be a list of names"):
            wrong()
    with pytest.raises(mr.InvalidArgument) as e:
        client.limiter("n").set(concurrency=-1)
    assert e.value.field == "config.concurrency"


def test_a_batch_is_filled_sealed_and_waited_for(client: mr.Client) -> None:
    part, whole = mr.Job[int, int]("part"), mr.Job[str, str]("whole")
    b = client.open_batch(
        on_done=whole.follow_up("done"), on_success=whole.follow_up("success", priority=3), labels={"env": "test"}
    )
    opened = b.get()
    assert (opened.state, opened.on_done, opened.on_success, opened.labels) == (
        "open",
        "whole",
        "whole",
        {"env": "test"},
    )
    assert not b.replayed and opened.opened_at is not None and opened.sealed_at is None and not opened.cancelled
    h = part.add(client, 0, batch=b)
    part.add_many(client, [1, 2], batch=b.id)
    part.add_all(client, [3, 4], batch=opened)
    tx = client.tx()
    part.add_tx(tx, 5, batch=b)
    tx.commit()
    assert h.info().batch == b.id
    assert client.count_bulk("cancel", batch=b.id).count == 6
    sealed = b.seal()
    assert (sealed.state, sealed.replayed, sealed.counts) == ("sealed", False, mr.BatchCounts(6, 6, 0, 0, 0, 0))
    assert client.batch(b.id).seal().replayed
    with pytest.raises(mr.WrongState) as e:
        part.add(client, 6, batch=b)
    assert e.value.reason == "batch_closed"
    with pytest.raises(mr.NotFound):
        part.add(client, 6, batch=mr.new_id())
    with pytest.raises(mr.DeadlineExceeded) as late:
        b.wait(0.1)
    assert late.value.outcome == "refused"
    waited: list[mr.BatchInfo] = []
    waits = threading.Thread(target=lambda: waited.append(b.wait()), daemon=True)
    waits.start()
    part.handler(lambda t, n: n)
    with working(client, part):
        waits.join(20)
    done = waited[0]
    assert (done.state, done.counts) == ("finished", mr.BatchCounts(6, 0, 0, 6, 0, 0))
    assert done.finished_at is not None and done.refused_code == ""
    for id, want in ((done.done_task, b"done"), (done.success_task, b"success")):
        task = client.task(id)
        assert (task.payload, task.headers["millrace-batch"]) == (want, b.id)
    assert client.task(done.success_task).priority == 3


def test_a_batch_is_opened_again_cancelled_and_listed(client: mr.Client) -> None:
    id, job = mr.new_id(), mr.Job[int, int]("late")
    assert [client.open_batch(id=id).replayed for _ in range(2)] == [False, True]
    with pytest.raises(mr.AlreadyExists):
        client.open_batch(id=id, labels={"a": "b"})
    job.add(client, 1, batch=id, delay=3600)
    b = client.batch(id)
    cancelled = b.cancel("wrong", rate=500)
    assert cancelled.cancelled and cancelled.cancel_reason == "wrong"
    assert b.wait(20).counts == mr.BatchCounts(1, 0, 0, 0, 0, 1)
    assert b.cancel("again").replayed
    ended = client.open_batch()
    assert ended.seal().state == "finished"
    with pytest.raises(mr.WrongState):
        ended.cancel()
    other = client.open_batch(tag="t", timeout=10)
    assert {one.id for one in client.batches()} == {id, ended.id, other.id}
    assert other.cancel(force=True).state in ("cancelling", "finished")
    missing = client.batch(mr.new_id())
    for ask in (missing.get, missing.seal, missing.cancel, missing.wait):
        with pytest.raises(mr.NotFound):
            ask()


def test_what_a_batch_cannot_be(client: mr.Client) -> None:
    job = mr.Job[int, int]("n")
    for wrong, field in (
        (lambda: client.open_batch(id=mr.new_id(), tag="t"), "id"),
        (lambda: client.open_batch(on_done=job.follow_up(1, delay=5)), "on_done.delay"),  # type: ignore[call-arg]
        (lambda: client.open_batch(on_success=job.follow_up(1, batch="b")), "on_success.batch"),  # type: ignore[call-arg]
        (lambda: client.batch(mr.new_id()).cancel(rate=0), "rate"),
    ):
        with pytest.raises(mr.InvalidArgument) as e:
            wrong()
        assert e.value.field == field
    for odd in (
        lambda: client.open_batch(colour="red"),  # type: ignore[call-arg]
        lambda: client.open_batch(on_done=job.follow_up(1, colour="red")),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match="colour"):
            odd()


@pytest.mark.parametrize("way", ["stream", "rest"])
async def test_an_async_client(millrace_server: DevServer, way: str) -> None:
    made = millrace_server.async_client(namespace=unique("batch"), transport=way, rest_url=millrace_server.rest_url)
    async with made as c:
        api = c.limiter("api")
        assert (await api.set(concurrency=2)).version == 1
        job = mr.Job[int, int]("n", limiters=["api"])
        b = await c.open_batch(on_done=job.follow_up(9, limiters=["api"]), tag="t")
        again = await c.open_batch(id=b.id, on_done=job.follow_up(9, limiters=["api"]))
        assert again.id == b.id and again.replayed and not b.replayed
        h = await job.add(c, 1, batch=b, tag="t")
        await job.add_many(c, [2, 3], batch=b)
        assert (await h.info()).batch == b.id and (await api.get()).tasks == 3
        assert [one.name async for one in c.limiters()] == ["api"]
        assert (await b.get()).counts.waiting == 3 and (await b.seal()).state == "sealed"
        with pytest.raises(mr.DeadlineExceeded):
            await b.wait(0.1)
        waits = asyncio.ensure_future(b.wait())

        @job.handler
        async def handle(t: mr.Task[int], n: int) -> int:
            return n

        stop = asyncio.Event()
        over = asyncio.ensure_future(mr.Worker(c, [job], weights={"n": 2}).run_async(stop))
        done = await asyncio.wait_for(waits, 20)
        assert done.state == "finished" and await c.handle(job, done.done_task).wait(20) == 9
        stop.set()
        await over
        other = await c.open_batch()
        assert (await other.cancel("not wanted")).cancel_reason == "not wanted"
        assert [one.id async for one in c.batches()] == [other.id, b.id]
        await api.delete()
        with pytest.raises(mr.NotFound):
            await api.get()


def test_batches_are_opened_filled_and_sealed_in_commits_and_completions(client: mr.Client) -> None:
    part, found = mr.Job[int, int]("split"), mr.Job[int, int]("found")
    tx = client.tx()
    whole = tx.open_batch(on_done=found.follow_up(9), labels={"env": "test"})
    h = part.add_tx(tx, 1, batch=whole)
    tx.seal_batch(whole)
    tx.commit()
    b = client.batch(whole).get()
    assert (b.state, b.counts.total, b.on_done, b.labels) == ("sealed", 1, "found", {"env": "test"})
    made = []

    def split(t: mr.Task[int], n: int) -> int:
        id = t.fx.open_batch()
        found.add_tx(t.fx, n, batch=id, delay=3600)
        t.fx.seal_batch(id)
        made.append(id)
        return n

    part.handler(split)
    with working(client, part):
        assert client.handle(part, h).wait() == 1
    assert client.batch(whole).wait().done_task
    b = client.batch(made[-1]).get()
    assert (b.state, b.counts.total, b.counts.waiting) == ("sealed", 1, 1)
    tx = client.tx()
    tx.cancel_batch(made[-1], "wrong", rate=500)
    tx.commit()
    b = client.batch(made[-1]).wait()
    assert (b.cancel_reason, b.counts.cancelled) == ("wrong", 1)


def test_ops_of_batches_are_refused_together(client: mr.Client) -> None:
    job = mr.Job[int, int]("split")
    open = client.open_batch()
    wrong: list[tuple[Callable[[mr.Tx], Any], type[mr.MillraceError]]] = [
        (lambda tx: tx.seal_batch(mr.new_id()), mr.NotFound),
        (lambda tx: job.add_tx(tx, 1, batch=open), mr.WrongState),
        (lambda tx: tx.open_batch(id=open.id, on_done=job.follow_up(1)), mr.AlreadyExists),
    ]
    for more, kind in wrong:
        tx = client.tx()
        tx.seal_batch(open.id)
        more(tx)
        with pytest.raises(kind) as e:
            tx.commit()
        assert (e.value.op, e.value.outcome) == (1, "refused")
    assert open.get().state == "open"
    with pytest.raises(mr.InvalidArgument, match="mutually exclusive"):
        client.tx().open_batch(id=open.id, tag="t")
    with pytest.raises(TypeError):
        client.tx().open_batch(name="b")  # type: ignore[call-arg]
    for rate in (0, 1_000_001):
        with pytest.raises(mr.InvalidArgument, match="rate"):
            client.tx().cancel_batch(open.id, rate=rate)
        with pytest.raises(mr.InvalidArgument, match="rate"):
            open.cancel(rate=rate)


def test_a_commit_opens_a_batch_where_it_is(dial: Callable[..., mr.Client], millrace_server: DevServer) -> None:
    bounded = mr.Job[int, int]("bounded")
    for more in ({}, {"transport": "rest", "rest_url": millrace_server.rest_url}):
        job = mr.Job[int, int]("home")
        first = dial(**more).tx()  # of a client that has not reached its server yet
        assert place.id_place(first.open_batch(tag=tag_in(3, 4)), 4) == 3
        first.commit()
        c = dial(**more)
        c.queue("bounded").set(concurrency=1)
        for p in range(4):
            tx = c.tx()
            tx.kv("k").put(f"a{{{tag_in(p, 4)}}}", "1")
            id = tx.open_batch()
            made = job.add_tx(tx, p, batch=id)
            tx.seal_batch(id)
            assert {place.id_place(id, 4), place.id_place(made, 4)} == {p}
            tx.commit()
            tx = c.tx()
            tx.kv("k").check(f"a{{{tag_in(p, 4)}}}")
            assert place.id_place(tx.open_batch(), 4) == p
            tx.commit()
        homes = set()
        for _ in range(16):
            tx = c.tx()
            homes.add(place.id_place(tx.open_batch(), 4))
            tx.commit()
        assert homes == {0, 1, 2, 3}
        for _ in range(4):
            tx = dial(**more).tx()
            assert place.id_place(tx.open_batch(on_done=bounded.follow_up(1)), 4) == 0
            tx.commit()
        tx = c.tx()
        tx.kv("k").put(f"a{{{tag_in(1, 4)}}}", "1")
        tx.open_batch(tag=tag_in(2, 4))
        with pytest.raises(mr.WrongPartition) as e:
            tx.commit()
        assert e.value.op == 1


def test_an_async_commit_opens_a_batch_where_it_is(dial: Callable[..., mr.Client], millrace_server: DevServer) -> None:
    job, bounded, sync = mr.Job[int, int]("home"), mr.Job[int, int]("bounded"), dial()
    sync.queue("bounded").set(concurrency=1)

    async def opened(more: dict[str, Any], p: int) -> None:
        def fresh() -> mr.AsyncClient:  # one that has not reached its server yet
            return millrace_server.async_client(namespace=sync._options.namespace, **more)

        async with fresh() as c:
            tx = c.tx()
            tx.kv("k").put(f"a{{{tag_in(p, 4)}}}", "1")
            id = await tx.open_batch()
            made = job.add_tx(tx, p, batch=id)
            tx.seal_batch(id)
            await tx.commit()
            assert {place.id_place(id, 4), place.id_place(made, 4)} == {p}
        async with fresh() as c:
            tx = c.tx()
            assert place.id_place(await tx.open_batch(on_done=bounded.follow_up(1)), 4) == 0
            await tx.commit()
        async with fresh() as c:
            tx = c.tx()
            job.add_tx(tx, p)
            id = await tx.open_batch()
            out = await tx.commit()
            assert place.id_place(id, 4) == place.id_place(out.ids[0], 4)

    async def run() -> None:
        for more in ({}, {"transport": "rest", "rest_url": millrace_server.rest_url}):
            for p in range(4):
                await opened(more, p)

    asyncio.run(run())


def test_a_batch_of_several_partitions_is_of_one(dial: Callable[..., mr.Client], millrace_server: DevServer) -> None:
    for more in ({}, {"transport": "rest", "rest_url": millrace_server.rest_url}):
        c = dial(**more)
        job = mr.Job[int, int]("narrow")
        homes = set()
        for p in range(4):  # a client that has not reached its server yet, too
            b = c.open_batch(tag=tag_in(p, 4))
            assert place.id_place(b.id, 4) == p
            ids = [h.id for h in job.add_many(c, list(range(40)), batch=b)]
            ids += [h.id for h in job.add_all(c, [1, 2], batch=b)] + [job.add(c, 3, batch=b, tag=tag_in(p, 4)).id]
            tx = c.tx()
            ids.append(job.add_tx(tx, 4, batch=b))
            assert tx.commit().ids == [ids[-1]]
            assert {place.id_place(id, 4) for id in ids} == {p}
            with pytest.raises(mr.WrongPartition):
                job.add(c, 5, batch=b, tag=tag_in((p + 1) % 4, 4))
            assert b.seal().counts.total == 44
        for _ in range(64):
            homes.add(place.id_place(c.open_batch().id, 4))
        assert homes == {0, 1, 2, 3} and len(list(c.batches())) >= 68


def test_queues_are_served_in_order(client: mr.Client) -> None:
    last, first = mr.Job[int, int]("last"), mr.Job[int, int]("first")
    seen: list[int] = []

    def see(t: mr.Task[int], n: int) -> int:
        seen.append(n)
        return n

    last.handler(see)
    first.handler(see)
    late = last.add(client, 9)
    first.add_many(client, [1, 2, 3])
    with working(client, first, last, slots=1, in_order=True):  # the order of the jobs
        late.wait(20)
    assert seen == [1, 2, 3, 9]


def test_weights_say_which_queue_is_served(millrace_server: DevServer) -> None:
    slow, fast = mr.Job[int, str]("slow"), mr.Job[int, str]("fast")
    seen: list[str] = []

    def see(t: mr.Task[int], n: int) -> str:
        seen.append(t.kind)
        return t.kind

    slow.handler(see)
    fast.handler(see)
    with millrace_server.client(namespace=unique("weights"), transport="stream") as c:
        ends = [*slow.add_many(c, [1, 2, 3]), *fast.add_many(c, [1, 2, 3, 4, 5, 6, 7, 8, 9])]
        with working(c, slow, fast, slots=1, weights={"fast": 3}):
            for h in ends:
                h.wait(20)
    at = [i for i, kind in enumerate(seen) if kind == "slow"]
    # Three of the one for each of the other, but for what a division leaves over. In turn it would be one.
    assert all(3 <= b - a - 1 <= 4 for a, b in itertools.pairwise(at))


def test_a_worker_refuses_weights_that_mean_nothing(client: mr.Client) -> None:
    job = mr.Job[int, int]("n")
    job.handler(lambda t, n: n)
    wrong: list[dict[str, Any]] = [
        {"weights": {"other": 2}},
        {"weights": {"n": 0}},
        {"weights": {"n": 1001}},
        {"weights": {"n": 2}, "in_order": True},
    ]
    for o in wrong:
        with pytest.raises(mr.InvalidArgument) as e:
            mr.Worker(client, [job], **o)
        assert e.value.field == "weights"


def test_a_recorder_has_neither_limiters_nor_batches() -> None:
    for ask in (
        lambda c: c.open_batch(),
        lambda c: c.batch(mr.new_id()).wait(),
        lambda c: list(c.batches()),
        lambda c: c.limiter("n").set(concurrency=1),
        lambda c: list(c.limiters()),
    ):
        with pytest.raises(mr.InvalidArgument) as e:
            ask(Recorder())
        assert e.value.reason == "recorder"


async def test_an_async_recorder_has_no_batches() -> None:
    with pytest.raises(mr.InvalidArgument) as e:
        await AsyncRecorder().open_batch()
    assert e.value.reason == "recorder"


def test_effects_show_limiters_and_the_batch() -> None:
    job, id = mr.Job[int, int]("n", limiters=["a"]), mr.new_id()

    @job.handler
    def handle(t: mr.Task[int], n: int) -> int:
        job.add_tx(t.fx, n, limiters=["b"], batch=id)
        return n

    made = run_handler(job, 1).effects[0]
    assert (made["limiters"], made["batch"]) == (["a", "b"], id)
