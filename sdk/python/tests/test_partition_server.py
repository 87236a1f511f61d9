"""Namespaces of several partitions: a real server, and a real cluster of three nodes."""

from __future__ import annotations

import asyncio
import ctypes
import io
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cluster import Cluster, cluster
from test_partitions import tag_in
from test_server import unique, working

import millrace_sdk as mr
from millrace_sdk._core import place
from millrace_sdk.testing import DevServer

WITHIN = 30.0


@pytest.fixture
def dial(millrace_server: DevServer) -> Iterator[Callable[..., mr.Client]]:
    """Clients of a namespace of four partitions."""
    name = unique("four")
    with millrace_server.client(namespace=name) as c:
        assert len(c.raw.QueueService.CreateNamespace(partitions=4).partitions) == 4
    made: list[mr.Client] = []

    def make(**options: Any) -> mr.Client:
        made.append(millrace_server.client(namespace=name, **options))
        return made[-1]

    yield make
    for c in made:
        c.close()


class Spread:
    """A job whose tasks write a key of their own partition, and a count of how many run at once."""

    def __init__(self, is_async: bool = False) -> None:
        self.name = unique("spread")
        self.job: mr.Job[int, str] = mr.Job[int, str](self.name, lease=5.0)
        self.runs: Counter[int] = Counter()
        self.most = self.now = 0
        self._lock = threading.Lock()
        self.job.handler(self.ahandle if is_async else self.handle)

    def _begin(self, t: mr.Task[int], n: int) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        t.fx.kv(self.name).add(f"{{user/{n}}}/done")

    def _end(self, n: int) -> None:
        with self._lock:
            self.now -= 1
            self.runs[n] += 1

    def handle(self, t: mr.Task[int], n: int) -> str:
        self._begin(t, n)
        threading.Event().wait(0.002)
        self._end(n)
        return t.id

    async def ahandle(self, t: mr.Task[int], n: int) -> str:
        self._begin(t, n)
        await asyncio.sleep(0.002)
        self._end(n)
        return t.id


@pytest.mark.parametrize("slots", [2, 16])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_tasks_of_all_partitions_run_once_with_their_effects(dial: Any, slots: int, is_async: bool) -> None:
    s = Spread(is_async)
    c = dial()
    with working(dial(), s.job, slots=slots):
        handles = [s.job.add(c, n, tag=f"user/{n}") for n in range(150)]
        for n, h in enumerate(handles):
            assert h.wait(WITHIN) == h.id
            assert c.kv(s.name).get(f"{{user/{n}}}/done").text() == "1"
    assert {place.id_place(h.id, 4) for h in handles} == {0, 1, 2, 3}
    assert s.most <= slots and all(s.runs[n] == 1 for n in range(150))


def test_a_batch_spreads_over_the_partitions(dial: Any) -> None:
    c = dial()
    job: mr.Job[int, int] = mr.Job[int, int](unique("batch"))
    handles = job.add_many(c, range(700))
    assert c.queue(job.queue).stats().ready == 700
    assert [h.info().payload for h in handles[::100]] == [str(n).encode() for n in range(0, 700, 100)]
    assert Counter(place.id_place(h.id, 4) for h in handles).keys() == {0, 1, 2, 3}
    all_of_one = job.add_all(c, range(100))
    assert len({place.id_place(h.id, 4) for h in all_of_one}) == 1 and all_of_one[7].info().payload == b"7"
    given = mr.new_id()
    first, again = (job.add(c, 1, id=given) for _ in range(2))
    assert first.id == again.id and again.replayed


def test_what_is_of_two_partitions_is_refused(dial: Any) -> None:
    c = dial()
    job: mr.Job[int, int] = mr.Job[int, int](unique("torn"))
    tx = c.tx()
    for i in range(5):  # of five tags two at least are of different partitions
        job.add_tx(tx, i, tag="abcde"[i])
    with pytest.raises(mr.WrongPartition) as e:
        tx.commit()
    assert e.value.outcome == "refused" and e.value.details["ops"]
    with pytest.raises(mr.NotFound):
        c.queue(job.queue).stats()
    tx = c.tx()
    ids = [job.add_tx(tx, i, tag="same") for i in range(3)] + [job.add_tx(tx, 3)]
    tx.kv("s").put("{same}/k", ids[3])
    assert tx.commit().ids == [*ids, None]
    assert [c.task(i).tag for i in ids] == ["same", "same", "same", ""]


def test_a_commit_in_mid_task_and_reports_go_to_the_partition_of_the_task(dial: Any) -> None:
    c = dial()
    job: mr.Job[str, str] = mr.Job[str, str](unique("mid"))

    @job.handler
    def handle(t: mr.Task[str], a: str) -> str:
        t.save_checkpoint(b"half")
        tx = t.tx()
        tx.kv(job.name).put("{" + a + "}", t.id)
        tx.commit()
        other = t.tx()
        other.kv(job.name).put("{" + a + "0}", "1")
        for k in range(8):
            other.kv(job.name).put("{" + f"{a}{k}" + "}", "1")
        with pytest.raises(mr.WrongPartition):
            other.commit()
        return "ok"

    with working(dial(), job, slots=4):
        handles = [job.add(c, f"t{i}", tag=f"t{i}") for i in range(8)]
        assert [h.wait(WITHIN) for h in handles] == ["ok"] * 8
    assert [c.kv(job.name).get("{" + f"t{i}" + "}").text() for i in range(8)] == [h.id for h in handles]


def test_an_async_client_of_four_partitions(dial: Any, millrace_server: DevServer) -> None:
    sync = dial()
    job: mr.Job[int, int] = mr.Job[int, int](unique("loop"))

    @job.handler
    async def handle(t: mr.Task[int], n: int) -> int:
        return n + 1

    async def run() -> None:
        async with millrace_server.async_client(namespace=sync._options.namespace) as c:
            stop = asyncio.Event()
            serving = asyncio.ensure_future(mr.Worker(c, [job], slots=3).run_async(stop))
            handles = await job.add_many(c, range(40))
            assert await asyncio.gather(*(h.wait(WITHIN) for h in handles)) == list(range(1, 41))
            stop.set()
            await serving

    asyncio.run(run())


def test_a_helper_keeps_leases_of_all_partitions(dial: Any) -> None:
    c = dial()
    job: mr.Job[int, int] = mr.Job[int, int](unique("held"), lease=1.0)
    begun, over = threading.Semaphore(0), threading.Event()

    @job.handler
    def handle(t: mr.Task[int], n: int) -> int:
        if n > 0:
            begun.release()
            assert over.wait(WITHIN)
            return t.attempt
        for _ in range(3):  # what is given while the lock is held, no process of this worker's knows of
            assert begun.acquire(timeout=WITHIN)
        ctypes.PyDLL(None).usleep(1_500_000)  # with the interpreter's lock
        over.set()
        return t.attempt

    with working(dial(), job, slots=8, renew="process"):
        handles = [job.add(c, n, tag=tag_in(n, 4)) for n in range(4)]
        assert [h.wait(WITHIN) for h in handles] == [1] * 4


def test_the_ledger_names_the_partition(dial: Any) -> None:
    lines = io.StringIO()
    c = dial(ledger=lines)
    job: mr.Job[int, int] = mr.Job[int, int](unique("lines"))
    handles = job.add_many(c, range(100))  # before it is known how many partitions there are
    handles += job.add_many(c, range(100))
    c.kv("s").put("k", "v")
    found = [json.loads(x) for x in lines.getvalue().splitlines()]
    creates = {x["id"]: x for x in found if x["op"] == "create"}
    assert creates.keys() == {h.id for h in handles}
    assert all(x["partition"] == f"p{place.id_place(i, 4)}" and x["outcome"] == "ok" for i, x in creates.items())
    puts = [x for x in found if x["op"] == "kv_put"]
    assert [x["partition"] for x in puts] == [f"p{place.key_place(b'k', 4)}"]


def of_key(partition: int) -> str:
    """Return a key of one of the four partitions."""
    return tag_in(partition, 4)


@pytest.mark.parametrize("transport", ["stream", "rest"])
def test_tasks_of_a_queue_bounded_as_a_whole_are_in_one_partition(
    dial: Any, millrace_server: DevServer, transport: str
) -> None:
    def fresh() -> mr.Client:
        """Return a client that knows of no queue."""
        c: mr.Client = dial(transport=transport, rest_url=millrace_server.rest_url)
        return c

    def places(*handles: mr.Handle[int]) -> set[int]:
        assert all(h.info().id == h.id for h in handles)
        return {place.id_place(h.id, 4) for h in handles}

    c = fresh()
    job: mr.Job[int, int] = mr.Job[int, int](unique("pinned"))
    # It is not bounded yet: the key says where the task is.
    assert places(job.add(c, 0, key=of_key(3))) == {3}
    c.queue(job.queue).update(concurrency=1)
    assert places(job.add(c, 1, key=of_key(3))) == {0}  # the client finds out
    assert places(job.add(fresh(), 2, unique=of_key(2))) == {0}
    given = mr.new_id()
    assert job.add(fresh(), 3, id=given).id == place.format_id(place.with_partition(place.parse_id(given) or 0, 0))
    with pytest.raises(mr.WrongPartition) as e:
        job.add(fresh(), 4, tag=of_key(1))
    assert (e.value.reason, e.value.outcome) == ("queue_pinned", "refused")
    named = place.format_id(place.placed(place.fresh(), 2, 4))
    with pytest.raises(mr.WrongPartition) as e:
        job.add(fresh(), 4, id=named)
    assert e.value.reason == "queue_pinned"
    for client in (fresh(), c):  # one that does not know how many partitions there are, and one that knows all
        assert places(*job.add_many(client, range(200))) == {0}
        assert places(*job.add_many(client, range(40), key=of_key(2))) == {0}
        assert places(*job.add_all(client, range(40), key=of_key(1))) == {0}
    new = fresh()
    free: mr.Job[int, int] = mr.Job[int, int](unique("free"))
    free.add(new, 0, key=of_key(2))  # it knows the partitions from here on
    assert places(*job.add_all(new, range(40), key=of_key(1))) == {0}
    new = fresh()
    tx = new.tx()
    id = job.add_tx(tx, 5, key=of_key(2))
    other = free.add_tx(tx, 6, tag=of_key(0), after=[id])
    assert tx.commit().ids == [id, other] and new.task(id).payload == b"5" and place.id_place(id, 4) == 0
    for client in (fresh(), c):  # a batch that makes such a task is there too
        ids = {place.id_place(client.open_batch(on_success=job.follow_up(6)).id, 4) for _ in range(8)}
        assert ids == {0}
    # When the limit goes, keys say again where tasks are.
    c.queue(job.queue).update(concurrency=None)
    assert places(job.add(c, 7, key=of_key(3))) == {3}


def test_a_loop_adds_to_a_queue_bounded_as_a_whole(dial: Any, millrace_server: DevServer) -> None:
    sync = dial()
    job: mr.Job[int, int] = mr.Job[int, int](unique("loop_pinned"))
    free: mr.Job[int, int] = mr.Job[int, int](unique("free"))
    sync.queue(job.queue).set(order="strict")

    def client() -> mr.AsyncClient:
        return millrace_server.async_client(namespace=sync._options.namespace)

    async def run() -> None:
        async with client() as c:
            handles = [await job.add(c, 0, key=of_key(3))]
            handles += await job.add_many(c, range(40), key=of_key(2))
            assert {place.id_place(h.id, 4) for h in handles} == {0}
        for known in (False, True):
            async with client() as c:
                if known:
                    await free.add(c, 0, key=of_key(1))
                tx = c.tx()
                first = job.add_tx(tx, 1, key=of_key(2))
                job.add_tx(tx, 2, key=of_key(3), after=[first])
                ids = (await tx.commit()).ids
                assert [place.id_place(str(i), 4) for i in ids] == [0, 0]
                assert [d.id for d in (await c.task(str(ids[1]))).after] == [ids[0]]
                tx = c.tx()
                id = job.add_tx(tx, 3, key=of_key(2))  # the client knows by now
                assert (await tx.commit()).ids == [id]

    asyncio.run(run())


# A cluster.


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with cluster() as c, c.client(namespace="four") as client:
        client.raw.QueueService.CreateNamespace(partitions=4)
        yield c


class Load:
    """A producer that goes on while nodes come and go."""

    def __init__(self, c: mr.Client, s: Spread) -> None:
        self.handles: list[mr.Handle[str]] = []
        self._stop = threading.Event()
        self._more = threading.Condition()
        self.wrong: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(c, s))
        self._thread.start()

    def _run(self, c: mr.Client, s: Spread) -> None:
        try:
            while not self._stop.wait(0.002):
                n = len(self.handles)
                h = s.job.add(c, n, tag=f"user/{n}", timeout=WITHIN)
                with self._more:
                    self.handles.append(h)
                    self._more.notify_all()
        except BaseException as e:
            with self._more:
                self.wrong.append(e)
                self._more.notify_all()

    def more(self, n: int = 100) -> None:
        """Wait until that many more tasks are added."""
        with self._more:
            want = len(self.handles) + n
            assert self._more.wait_for(lambda: len(self.handles) >= want or self.wrong, WITHIN)
        assert not self.wrong, self.wrong

    def end(self) -> None:
        self._stop.set()
        self._thread.join(WITHIN)
        assert not self._thread.is_alive() and not self.wrong, self.wrong


def finished_once(c: mr.Client, s: Spread, load: Load) -> None:
    """Check that each task of a load has had its effect, once."""
    for n, h in enumerate(load.handles):
        assert h.wait(WITHIN) == h.id
        assert c.kv(s.name).get(f"{{user/{n}}}/done").text() == "1", n


_check = pytest.mark.skipif(
    os.environ.get("MILLRACE_CHECK") != "1", reason="MILLRACE_CHECK=1 runs it: scenarios do much of the same"
)


@_check
@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_leader_that_ends_or_hangs_under_load(three: Cluster, how: str) -> None:
    s = Spread()
    with three.client(namespace="four") as c, three.client(namespace="four") as w:
        with working(w, s.job, slots=8):
            load = Load(c, s)
            load.more()
            node = three.api.index(c._eng.leaders.address(1)) + 1  # type: ignore[union-attr]
            getattr(three, how)(node)
            load.more()
            load.end()
            finished_once(c, s, load)
        assert c._eng.leaders.address(1) != three.api[node - 1]  # type: ignore[union-attr]
    if how == "pause":
        three.kill(node)
    three.launch(node)
    three.await_ready(node)


@_check
def test_nodes_that_restart_in_turn(three: Cluster) -> None:
    s = Spread(is_async=True)
    with three.client(namespace="four") as c, three.client(namespace="four") as w, working(w, s.job, slots=2):
        load = Load(c, s)
        for node in (1, 2, 3):
            load.more(50)
            three.kill(node)
            load.more(50)
            three.launch(node)
            three.await_ready(node)
        load.more(50)
        load.end()
        finished_once(c, s, load)
    assert s.most <= 2
