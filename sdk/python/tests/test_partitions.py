"""Namespaces of several partitions, and nodes that lead them: the rules of the protocol, by nodes that are played."""

from __future__ import annotations

import asyncio
import io
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc_server
import pytest
from fake import WITHIN, Fake, Stream
from test_fake import Background, _until, assign, created, settled

import millrace_sdk as mr
from millrace_sdk._core import place, wire
from millrace_sdk._core.engine import Engine
from millrace_sdk._core.leaders import Leaders, _Unled

note: mr.Job[str, str] = mr.Job[str, str]("note")


def tag_in(partition: int, of: int) -> str:
    """Return a tag of a partition."""
    return next(t for i in range(999) if place.text_place((t := f"t{i}").encode(), of) == partition)


def id_in(partition: int, of: int) -> str:
    """Return an id of a partition."""
    return place.format_id(place.placed(place.fresh(), partition, of))


class Nodes:
    """A cluster. led is by partition the node that leads it."""

    def __init__(self, nodes: int, *led: int) -> None:
        self.all = [Fake() for _ in range(nodes)]
        self.led = list(led)
        self._came: dict[tuple[int, int], list[Stream]] = {}

    def welcome(self, node: int) -> dict[str, Any]:
        entries = [{"partition": p, "address": "" if at == node else self.all[at].url} for p, at in enumerate(self.led)]
        return {"partitions": len(self.led), "directory": entries, "nodes": [f.url for f in self.all]}

    def accept(self, node: int, partition: int) -> Stream:
        """Return the next stream of a partition at a node, after its Hello. Others that come are kept."""
        kept = self._came.setdefault((node, partition), [])
        while not kept:
            s = self.all[node].accept()
            s.hello = s.recv("hello")
            if s.hello is not None:  # else a question who leads, which was dropped at once
                self._came.setdefault((node, s.hello.partition), []).append(s)
        return kept.pop(0)

    def stream(self, node: int, partition: int) -> Stream:
        """Let in the next stream of a partition at a node."""
        s = self.accept(node, partition)
        s.welcome(**self.welcome(node))
        return s

    def close(self) -> None:
        for f in self.all:
            f.close()


def create_at(ns: Nodes, node: int, partition: int = 0) -> tuple[Stream, Any]:
    """Return the stream on which a task of a partition comes to a node.

    Streams before it may ask who leads: they end without a task.
    """
    while True:
        s = ns.stream(node, partition)
        if (frame := s.recv("create")) is not None:
            return s, frame


@pytest.fixture
def nodes() -> Iterator[Callable[..., Nodes]]:
    made: list[Nodes] = []

    def make(n: int, *led: int) -> Nodes:
        made.append(Nodes(n, *led))
        return made[-1]

    yield make
    for ns in made:
        ns.close()


@pytest.fixture
def dial() -> Iterator[Callable[..., mr.Client]]:
    made: list[mr.Client] = []

    def make(ns: Nodes, *at: int) -> mr.Client:
        made.append(mr.Client(",".join(ns.all[i].url for i in at or (0,)), token="secret", timeout=WITHIN))
        return made[-1]

    yield make
    for c in made:
        c.close(0.05)


def engine(c: Any) -> Engine:
    assert c._eng is not None
    return c._eng  # type: ignore[no-any-return]


def add(c: mr.Client, **o: Any) -> Background:
    return Background(lambda: note.add(c, "x", **o))


def end_elsewhere(s: Stream, leader: str) -> None:
    s.end(grpc_server.UNAVAILABLE, "not here", leader=leader)


# Where calls go.


def test_each_partition_has_a_stream_to_its_leader(nodes: Any, dial: Any) -> None:
    ns = nodes(2, 0, 1, 0, 1)
    c = dial(ns)
    call = add(c, tag=tag_in(3, 4))  # the client does not know yet how many partitions there are
    first = ns.stream(0, 0)
    s = ns.stream(1, 3)
    frame = s.recv("create")
    assert place.id_place(frame.tasks[0].id, 4) == 3 and frame.tasks[0].tag == tag_in(3, 4)
    created(s, frame)
    assert call.end().id == frame.tasks[0].id
    call = add(c, unique=tag_in(1, 4))
    s = ns.stream(1, 1)
    frame = s.recv("create")
    assert place.id_place(frame.tasks[0].id, 4) == 1
    created(s, frame)
    call.end()
    call = add(c, id=id_in(0, 4))
    created(first, first.recv("create"))  # the first frame on it: nothing else came here
    call.end()


def test_tasks_that_say_no_place_take_turns(nodes: Any, dial: Any) -> None:
    ns = nodes(1, 0, 0)
    c = dial(ns)
    call = add(c, tag=tag_in(0, 2))
    streams = [ns.stream(0, 0)]
    created(streams[0], streams[0].recv("create"))
    call.end()
    call = add(c, tag=tag_in(1, 2))
    streams.append(ns.stream(0, 1))
    created(streams[1], streams[1].recv("create"))
    call.end()
    at = engine(c).turn_of_free
    for i in range(4):
        call = add(c)
        s = streams[(at + i) % 2]
        frame = s.recv("create")
        assert place.id_place(frame.tasks[0].id, 2) == (at + i) % 2
        created(s, frame)
        call.end()


def test_a_new_leader_moves_its_partition_alone(nodes: Any, dial: Any) -> None:
    ns = nodes(2, 0, 0)
    c = dial(ns)
    call = add(c, tag=tag_in(0, 2))
    zero = ns.stream(0, 0)
    created(zero, zero.recv("create"))
    call.end()
    call = add(c, tag=tag_in(1, 2))
    one = ns.stream(0, 1)
    frame = one.recv("create")
    ns.led[1] = 1
    end_elsewhere(one, ns.all[1].url)
    one = ns.stream(1, 1)
    again = one.recv("create")
    assert again.tasks[0].id == frame.tasks[0].id
    created(one, again)
    call.end()
    call = add(c, tag=tag_in(0, 2))
    created(zero, zero.recv("create"))
    call.end()


def test_a_stream_whose_leader_is_gone_asks_the_others(nodes: Any, dial: Any) -> None:
    ns = nodes(3, 0, 1)
    c = dial(ns)
    call = add(c, tag=tag_in(1, 2))
    ns.stream(0, 0)
    frame = ns.stream(1, 1).recv("create")
    ns.all[1].close()
    ns.led[1] = 2
    end_elsewhere(ns.accept(0, 1), ns.all[2].url)
    s, again = create_at(ns, 2, 1)
    assert again.tasks[0].id == frame.tasks[0].id
    created(s, again)
    call.end()


def test_a_directory_tells_of_new_leaders(nodes: Any, dial: Any) -> None:
    ns = nodes(2, 0, 0)
    c = dial(ns)
    call = add(c, tag=tag_in(0, 2))
    zero = ns.stream(0, 0)
    created(zero, zero.recv("create"))
    call.end()
    ns.led[1] = 1
    zero.send(directory={"partitions": ns.welcome(0)["directory"]})
    call = add(c, tag=tag_in(0, 2))  # its answer comes after the directory
    created(zero, zero.recv("create"))
    call.end()
    call = add(c, tag=tag_in(1, 2))
    one = ns.stream(1, 1)
    created(one, one.recv("create"))
    call.end()
    assert engine(c).leaders.address(0) == ns.all[0].url  # an empty address is the node that says so


def test_reads_go_to_the_leader_of_their_partition(nodes: Any, dial: Any) -> None:
    ns = nodes(2, 0, 1)
    c = dial(ns)
    call = add(c, tag=tag_in(0, 2))
    s = ns.stream(0, 0)
    created(s, s.recv("create"))
    call.end()
    asked: list[tuple[int, str]] = []

    def play(node: int, name: str, answer: Any) -> None:
        def method(request: bytes) -> bytes:
            asked.append((node, name))
            out: bytes = answer.SerializeToString()
            return out

        ns.all[node].calls[name] = method

    for node in (0, 1):
        play(node, "Get", wire.message("KVGetResponse")())
        play(node, "Cancel", wire.message("CancelResponse")())
        play(node, "Stats", wire.message("QueueStatsResponse")())
    for p in (1, 0):
        c.kv("s").get("{" + tag_in(p, 2) + "}/a")
        c.cancel(id_in(p, 2))
    c.queue("q").stats()  # about no partition: any node can tell
    assert asked == [(1, "Get"), (1, "Cancel"), (0, "Get"), (0, "Cancel"), (0, "Stats")]


def test_a_wait_goes_to_the_partition_of_its_task(nodes: Any, dial: Any) -> None:
    ns = nodes(2, 0, 1)
    c = dial(ns)
    one = id_in(1, 2)
    wait = Background(lambda: c.wait(one))  # before it is known how many partitions there are
    s = ns.accept(0, 0)
    s.welcome(**ns.welcome(0), features=["waits"])
    s = ns.accept(1, 1)
    s.welcome(**ns.welcome(1), features=["waits"])
    frame = s.recv("waits")
    assert list(frame.ids) == [one]
    s.send(ack={"seq": frame.seq, "waits": [{}]})
    s.send(ended={"id": one, "task": {"id": one, "state": 5}})
    assert wait.end().id == one


def test_a_namespace_of_one_partition_has_one_stream(nodes: Any, dial: Any) -> None:
    ns = nodes(1, 0)
    c = dial(ns)
    calls = [add(c, tag=t) for t in ("a", "b", "c")]
    s = ns.stream(0, 0)
    left = 3
    while left:
        frame = s.recv("create")
        left -= len(frame.tasks)
        assert all(place.parse_id(t.id) for t in frame.tasks)
        created(s, frame)
    for call in calls:
        call.end()
    assert engine(c).producers.all() == [engine(c).producer]


# Batches and commits.


@pytest.mark.parametrize("known", [False, True])
def test_a_batch_is_divided_and_answered_whole(nodes: Any, dial: Any, known: bool) -> None:
    ns = nodes(2, 0, 1)
    c = dial(ns)
    zero = one = None
    if known:
        call = add(c, tag=tag_in(1, 2))
        zero, one = ns.stream(0, 0), ns.stream(1, 1)
        created(one, one.recv("create"))
        call.end()
    ids = [id_in(p, 2) for p in (0, 1, 1, 0)]
    torn = place.format_id(place.with_partition(place.placed(place.fresh(), 0, 2), 1))
    specs = [note._spec("x", {"id": i}) for i in [*ids, torn]]
    call = Background(lambda: c._add_specs([(note, s) for s in specs], {}))
    zero, one = zero or ns.stream(0, 0), one or ns.stream(1, 1)
    frame = zero.recv("create")
    assert [t.id for t in frame.tasks] == [ids[0], ids[3]]
    created(zero, frame)
    frame = one.recv("create")
    assert [t.id for t in frame.tasks] == [ids[1], ids[2]]
    bad = {"code": "INVALID_ARGUMENT", "field": "tasks[1].payload", "message": "bad"}
    one.send(ack={"seq": frame.seq, "created": [{"id": ids[1]}, {"error": bad}]})
    with pytest.raises(mr.BatchError) as e:
        call.end()
    assert [h.id if h else None for h in e.value.handles] == [ids[0], ids[1], None, ids[3], None]
    assert [x and (x.code, x.field) for x in e.value.errors] == [
        None, None, ("INVALID_ARGUMENT", "payload"), None, ("WRONG_PARTITION", "id"),
    ]  # fmt: skip


@pytest.mark.parametrize("known", [False, True])
def test_an_atomic_batch_is_of_one_partition(nodes: Any, dial: Any, known: bool) -> None:
    ns = nodes(1, 0, 0)
    c = dial(ns)
    if known:
        call = add(c, tag=tag_in(0, 2))
        s = ns.stream(0, 0)
        created(s, s.recv("create"))
        call.end()
    torn = [(note, note._spec("x", {"tag": tag_in(p, 2)})) for p in (0, 1)]
    call = Background(lambda: c._add_specs_atomic(torn, {}))
    if not known:
        s = ns.stream(0, 0)
    with pytest.raises(mr.WrongPartition, match=r"partition 0: tasks\[1\] of partition 1"):
        call.end()
    pairs = [(note, note._spec("x", {})), (note, note._spec("x", {"tag": tag_in(1, 2)}))]
    call = Background(lambda: c._add_specs_atomic(pairs, {}))
    s = ns.stream(0, 1)
    frame = s.recv("create")
    assert frame.atomic and [place.id_place(t.id, 2) for t in frame.tasks] == [1, 1]
    created(s, frame)
    assert len(call.end()) == 2


@pytest.mark.parametrize("known", [False, True])
def test_a_commit_of_two_partitions_is_refused_before_it_is_sent(nodes: Any, dial: Any, known: bool) -> None:
    ns = nodes(1, 0, 0)
    c = dial(ns)
    if known:
        call = add(c, tag=tag_in(0, 2))
        s = ns.stream(0, 0)
        created(s, s.recv("create"))
        call.end()
    tx = c.tx()
    for p in (0, 1, 0):
        tx.kv("s").put("{" + tag_in(p, 2) + "}", "v")
    call = Background(tx.commit)
    if not known:
        s = ns.stream(0, 0)
    with pytest.raises(mr.WrongPartition) as e:
        call.end()
    assert (e.value.op, e.value.outcome, dict(e.value.details)) == (1, "refused", {"ops": "1"})
    assert e.value.message == "outside the commit's partition 0: ops[1] of partition 1"
    call = Background(lambda: c.kv("s").put("{" + tag_in(0, 2) + "}", "v"))
    frame = s.recv()
    assert len(frame.commit.ops) == 1  # nothing of the first one was sent
    s.send(ack={"seq": frame.seq, "commit": {"results": [{"rev": 3}]}})
    assert call.end() == 3


def test_a_task_of_a_transaction_has_its_id_at_once(nodes: Any, dial: Any) -> None:
    ns = nodes(1, 0, 0)
    c = dial(ns)

    def commit() -> str:
        tx = c.tx()
        id = note.add_tx(tx, "x", tag=tag_in(1, 2))
        other = note.add_tx(tx, "x")  # it says no place: it goes where the transaction does
        tx.kv("s").put("{" + tag_in(1, 2) + "}", other)
        with pytest.raises(mr.WrongPartition) as e:
            note.add_tx(tx, "x", tag=tag_in(0, 2), id=id_in(1, 2))
        assert (e.value.field, e.value.op) == ("id", 3)
        tx.commit()
        return id

    call = Background(commit)
    ns.stream(0, 0)
    s = ns.stream(0, 1)
    frame = s.recv("commit")
    ids = [op.task_create.id for op in frame.commit.ops[:2]]
    assert [place.id_place(i, 2) for i in ids] == [1, 1] and frame.commit.ops[2].kv_put.value.decode() == ids[1]
    s.send(ack={"seq": frame.seq, "commit": {"results": [{"task": i} for i in ids] + [{"rev": 1}]}})
    assert call.end() == ids[0]


def test_a_transaction_of_a_loop_is_placed_when_the_server_answers(nodes: Any) -> None:
    ns = nodes(1, 0, 0)

    async def run() -> tuple[str, Any]:
        async with mr.AsyncClient(ns.all[0].url, token="secret", timeout=WITHIN) as c:
            tx = c.tx()
            id = note.add_tx(tx, "x")
            tx.kv("s").put("{" + tag_in(1, 2) + "}", "v")
            return id, await tx.commit()

    call = Background(lambda: asyncio.run(run()))
    zero = ns.stream(0, 0)
    s = ns.stream(0, 1)
    frame = s.recv("commit")
    id = frame.commit.ops[0].task_create.id
    assert place.id_place(id, 2) == 1
    s.send(ack={"seq": frame.seq, "commit": {"results": [{"task": id}, {"rev": 1}]}})
    zero.end()
    s.end()
    assert call.end()[1].ids == [id, None]


def test_a_caller_that_leaves_a_divided_batch(nodes: Any) -> None:
    ns = nodes(1, 0, 0)

    async def run() -> None:
        c = mr.AsyncClient(ns.all[0].url, token="secret", timeout=WITHIN)
        pairs = [(note, note._spec("x", {"tag": tag_in(p, 2)})) for p in (0, 1)]
        call = asyncio.ensure_future(c._add_specs(pairs, {}))
        await asyncio.to_thread(lambda: [ns.stream(0, 0).recv("create"), ns.stream(0, 1).recv("create")])
        call.cancel()
        with pytest.raises(asyncio.CancelledError) as e:
            await call
        assert mr.outcome_of(e.value) == "unknown"
        await c.close(0.01)

    asyncio.run(run())


def test_an_id_of_the_client_stays_as_it_is(nodes: Any, dial: Any) -> None:
    ns = nodes(1, 0, 0)
    c = dial(ns)
    call = Background(lambda: note.add(c, "x", tag=tag_in(1, 2), id=c.new_id(tag=tag_in(1, 2))))
    ns.stream(0, 0)
    s = ns.stream(0, 1)
    frame = s.recv("create")
    created(s, frame)
    call.end()
    for given in ({"tag": tag_in(0, 2)}, {"unique": tag_in(1, 2)}, {}):
        id = c.new_id(**given)
        spec = wire.TaskSpec(id=id, tag=given.get("tag", ""))
        spec.unique.key = given.get("unique", "")
        place.task_place(spec, 2)
        assert spec.id == id

    async def run() -> str:
        async with mr.AsyncClient(ns.all[0].url, token="secret", timeout=WITHIN) as a:
            return await a.new_id(tag=tag_in(1, 2))

    call = Background(lambda: asyncio.run(run()))
    s = ns.stream(0, 0)
    assert s.recv() is None
    s.end()
    assert place.id_place(call.end(), 2) == 1


# Queues that are bounded or ordered as a whole.

PINNED = {"code": "WRONG_PARTITION", "reason": "queue_pinned", "details": {"partition": "0", "queue": "note"}}
BELONGS = {"code": "WRONG_PARTITION", "field": "key", "details": {"partition": "1"}}


@pytest.fixture
def two(nodes: Any, dial: Any) -> tuple[Nodes, mr.Client, Stream, Stream]:
    """A client of two partitions that it knows, and the streams of both."""
    ns = nodes(1, 0, 0)
    c = dial(ns)
    call = add(c, tag=tag_in(1, 2))
    zero, one = ns.stream(0, 0), ns.stream(0, 1)
    created(one, one.recv("create"))
    call.end()
    return ns, c, zero, one


def refuse(s: Stream, frame: Any, **wrong: Any) -> None:
    """Refuse each task of a frame by itself."""
    s.send(ack={"seq": frame.seq, "created": [{"id": t.id, "error": wrong} for t in frame.tasks]})


def test_a_task_of_a_pinned_queue_is_placed_again_once(two: Any) -> None:
    _, c, zero, one = two
    call = add(c, key=tag_in(1, 2))
    frame = one.recv("create")
    refuse(one, frame, **PINNED)
    again = zero.recv("create")
    assert place.id_place(again.tasks[0].id, 2) == 0 and again.tasks[0].key == tag_in(1, 2)
    created(zero, again)
    assert call.end().id == again.tasks[0].id != frame.tasks[0].id
    call = add(c, key=tag_in(1, 2))  # the client remembers
    again = zero.recv("create")
    refuse(zero, again, **BELONGS)  # and learns when that is over
    frame = one.recv("create")
    assert place.id_place(frame.tasks[0].id, 2) == 1
    refuse(one, frame, **PINNED)
    with pytest.raises(mr.WrongPartition) as e:
        call.end()
    assert (e.value.reason, e.value.outcome) == ("queue_pinned", "refused")
    assert zero.quiet()


def test_a_create_whose_answer_was_lost_is_not_placed_again(two: Any) -> None:
    ns, c, zero, one = two
    call = add(c, key=tag_in(1, 2))
    one.recv("create")
    one.end(grpc_server.UNAVAILABLE, "cut")
    one = ns.stream(0, 1)
    refuse(one, one.recv("create"), **PINNED)
    with pytest.raises(mr.WrongPartition):
        call.end()
    assert zero.quiet()


def test_an_id_that_was_given_is_filled_in_again_or_stays_refused(two: Any) -> None:
    _, c, zero, one = two
    open_id = place.format_id(place.with_partition(place.placed(place.fresh(), 1, 2), 0))
    call = add(c, id=open_id)
    frame = one.recv("create")
    assert place.id_place(frame.tasks[0].id, 2) == 1
    refuse(one, frame, **PINNED)
    again = zero.recv("create")
    assert again.tasks[0].id == open_id
    created(zero, again)
    assert call.end().id == open_id
    call = add(c, id=id_in(1, 2))
    with pytest.raises(mr.WrongPartition, match="names partition 1, and the task's queue partition 0"):
        call.end()
    engine(c).pins.clear()
    call = add(c, id=id_in(1, 2))
    refuse(one, one.recv("create"), **PINNED)
    with pytest.raises(mr.WrongPartition) as e:
        call.end()
    assert e.value.reason == "queue_pinned" and zero.quiet()
    call = add(c, tag=tag_in(1, 2))  # a tag is left to the server
    refuse(one, one.recv("create"), **PINNED)
    with pytest.raises(mr.WrongPartition):
        call.end()
    assert zero.quiet()


@pytest.mark.parametrize("known", [False, True])
def test_the_tasks_of_a_batch_that_are_refused_so_are_placed_again(nodes: Any, dial: Any, known: bool) -> None:
    ns = nodes(1, 0, 0)
    lines = io.StringIO()
    c = mr.Client(ns.all[0].url, token="secret", timeout=WITHIN, ledger=lines)
    if known:
        call = add(c, tag=tag_in(1, 2))
        zero, one = ns.stream(0, 0), ns.stream(0, 1)
        created(one, one.recv("create"))
        call.end()
        lines.truncate(0)
        lines.seek(0)
    other: mr.Job[str, str] = mr.Job[str, str]("other")
    given = id_in(1, 2)
    pairs: list[Any] = [(note, note._spec("x", {"key": tag_in(p, 2)})) for p in (1, 0, 1)]
    pairs += [(other, other._spec("x", {"key": tag_in(1, 2)})), (note, note._spec("x", {"id": given}))]
    call = Background(lambda: c._add_specs(pairs, {}))
    if not known:
        zero, one = ns.stream(0, 0), ns.stream(0, 1)
    created(zero, first := zero.recv("create"))
    frame = one.recv("create")
    ids = [t.id for t in frame.tasks]
    assert len(ids) == 4 and ids[3] == given
    results = [{"id": i, "error": PINNED} for i in ids]
    results[2] = {"id": ids[2]}  # of the other queue
    one.send(ack={"seq": frame.seq, "created": results})
    again = zero.recv("create")
    moved = [t.id for t in again.tasks]
    assert len(moved) == 2 and not {*moved} & {*ids} and {place.id_place(i, 2) for i in moved} == {0}
    created(zero, again)
    with pytest.raises(mr.BatchError) as e:
        call.end()
    assert [h and h.id for h in e.value.handles] == [moved[0], first.tasks[0].id, moved[1], ids[2], None]
    assert e.value.errors[4].reason == "queue_pinned"
    written = {x["id"]: x["outcome"] for x in map(json.loads, lines.getvalue().splitlines())}
    assert written == dict.fromkeys([*moved, first.tasks[0].id, ids[2]], "ok") | {given: "refused"}
    c.close(0.05)


def test_an_atomic_batch_of_a_pinned_queue_is_placed_again(two: Any) -> None:
    _, c, zero, one = two
    for shape in ("whole", "each"):
        engine(c).pins.clear()
        call = Background(lambda: note.add_all(c, ["a", "b"], key=tag_in(1, 2)))
        frame = one.recv("create")
        if shape == "whole":
            one.send(ack={"seq": frame.seq, "error": PINNED})
        else:
            one.send(ack={"seq": frame.seq, "created": [{"error": PINNED} for _ in frame.tasks]})
        again = zero.recv("create")
        assert again.atomic and [place.id_place(t.id, 2) for t in again.tasks] == [0, 0]
        created(zero, again)
        assert [h.id for h in call.end()] == [t.id for t in again.tasks]
    call = Background(lambda: note.add_all(c, ["a", "b"]))
    created(zero, zero.recv("create"))
    call.end()


def test_a_caller_that_leaves_a_batch_that_was_placed_again(two: Any) -> None:
    _, c, zero, one = two
    call = Background(lambda: note.add_many(c, ["a", "b"], key=tag_in(1, 2), timeout=0.5))
    refuse(one, one.recv("create"), **PINNED)
    assert len(zero.recv("create").tasks) == 2  # and no answer comes
    with pytest.raises(mr.BatchError) as e:
        call.end()
    assert [x.code for x in e.value.errors] == ["DEADLINE_EXCEEDED"] * 2
    assert [x.outcome for x in e.value.errors] == ["unknown"] * 2


def play_queues(ns: Nodes, asked: list[str], **pinned: bool) -> None:
    """Answer what rules queues: whether they are pinned; others are not there."""

    def get(request: bytes) -> Any:
        queue = wire.message("GetQueueRequest").FromString(request).queue
        asked.append(queue)
        if queue not in pinned:
            raise grpc_server.Abort(5, "unknown")
        return wire.message("GetQueueResponse")(config={"pinned": pinned[queue]}).SerializeToString()

    ns.all[0].calls["Get"] = get


def committed(s: Stream) -> Any:
    """Answer a commit, and return its ops."""
    frame = s.recv("commit")
    ops = frame.commit.ops
    s.send(ack={"seq": frame.seq, "commit": {"results": [{"task": op.task_create.id} for op in ops]}})
    return ops


def test_a_transaction_asks_once_whether_a_queue_is_pinned(two: Any) -> None:
    ns, c, zero, one = two
    asked: list[str] = []
    play_queues(ns, asked, note=True)
    other: mr.Job[str, str] = mr.Job[str, str]("other")

    def commit(job: Any, **o: Any) -> str:
        tx = c.tx()
        id: str = job.add_tx(tx, "x", **o)
        tx.commit()
        return id

    call = Background(lambda: commit(note, key=tag_in(1, 2)))
    assert place.id_place(committed(zero)[0].task_create.id, 2) == 0
    call.end()
    call = Background(lambda: commit(other, key=tag_in(1, 2)))
    assert place.id_place(committed(one)[0].task_create.id, 2) == 1
    call.end()
    assert asked == ["note", "other"] and engine(c).pins == {"note": True, "other": False}
    for job in (note, other):
        call = Background(lambda job=job: commit(job, key=tag_in(1, 2)))
        committed(zero if job is note else one)
        call.end()
    call = Background(lambda: commit(mr.Job[str, str]("third"), tag=tag_in(1, 2)))  # by its tag, whatever its queue is
    committed(one)
    call.end()
    assert asked == ["note", "other"]


@pytest.mark.parametrize("known", [False, True])
def test_a_transaction_of_a_loop_asks_with_its_commit(nodes: Any, known: bool) -> None:
    ns = nodes(1, 0, 0)
    asked: list[str] = []
    play_queues(ns, asked, note=True)
    other: mr.Job[str, str] = mr.Job[str, str]("other")
    ready = threading.Event()

    async def run() -> Any:
        async with mr.AsyncClient(ns.all[0].url, token="secret", timeout=WITHIN) as c:
            if known:
                await note.add(c, "x", tag=tag_in(1, 2))
            ready.set()
            tx = c.tx()
            a = note.add_tx(tx, "x", key=tag_in(1, 2))
            note.add_tx(tx, "x", after=[a])
            done = await tx.commit()
            tx = c.tx()
            id = other.add_tx(tx, "x", key=tag_in(1, 2))
            return done.ids, id, (await tx.commit()).ids

    call = Background(lambda: asyncio.run(run()))
    zero = ns.stream(0, 0)
    if known:
        one = ns.stream(0, 1)
        created(one, one.recv("create"))
    ops = committed(zero)
    assert [place.id_place(op.task_create.id, 2) for op in ops] == [0, 0]
    assert ops[1].task_create.after[0].id == ops[0].task_create.id
    if not known:
        one = ns.stream(0, 1)
    committed(one)
    zero.end()
    one.end()
    ids, id, others = call.end()
    assert ids == [op.task_create.id for op in ops] and others == [id] and asked == ["note", "other"]


def test_a_namespace_of_one_partition_asks_nothing(nodes: Any, dial: Any) -> None:
    ns = nodes(1, 0)
    c = dial(ns)
    asked: list[str] = []
    play_queues(ns, asked, note=True)

    def commit() -> None:
        tx = c.tx()
        note.add_tx(tx, "x")
        tx.commit()

    call = Background(commit)
    committed(ns.stream(0, 0))
    call.end()
    assert not asked and not engine(c).pins


def test_effects_are_placed_by_what_the_client_knows_of_queues(nodes: Any, dial: Any) -> None:
    ns = nodes(1, 0, 0)
    c = dial(ns)
    job: mr.Job[str, str] = mr.Job[str, str]("note")
    child: mr.Job[str, str] = mr.Job[str, str]("child")
    made: list[str] = []

    @job.handler
    def handle(t: mr.Task[str], a: str) -> str:
        engine(c).pins["child"] = True
        made.append(child.add_tx(t.fx, "x", key=tag_in(1, 2)))
        return a

    worker = mr.Worker(c, [job], slots=4)
    run = Background(lambda: worker.run(signals=False))
    streams = [ns.stream(0, 0), ns.stream(0, 1)]
    assign(streams[0], id_in(0, 2))
    item = streams[0].recv("settle")
    assert item.items[0].effects.ops[0].task_create.id == made[0] and place.id_place(made[0], 2) == 0
    settled(streams[0], item)
    assign(streams[1], id_in(1, 2))
    item = streams[1].recv("settle")
    assert item.items[0].fail.error.code == "WRONG_PARTITION"
    settled(streams[1], item)
    worker.stop()
    for s in streams:
        assert s.recv("drain") is not None
        s.end()
    run.end()


# Nodes that are gone, silent, or know of no leader.


def test_a_leader_is_followed_three_times_in_a_row(nodes: Any, dial: Any) -> None:
    ns = nodes(5, 4)
    c = dial(ns)
    call = add(c)
    for i in range(4):
        end_elsewhere(ns.accept(i, 0), ns.all[i + 1].url)
    s = ns.stream(4, 0)
    created(s, s.recv("create"))
    call.end()


def test_a_token_is_not_taken_to_a_leader_in_clear_text(nodes: Any, dial: Any) -> None:
    ns = nodes(1, 0)
    c = dial(ns)
    call = add(c)
    end_elsewhere(ns.accept(0, 0), "192.0.2.1:7081")
    s = ns.accept(0, 0)
    s.welcome(partitions=1, nodes=["192.0.2.1:7081", ns.all[0].url], directory=[{"address": "192.0.2.1:7081"}])
    created(s, s.recv("create"))
    call.end()
    assert engine(c).leaders.all() == [ns.all[0].url]
    with mr.Client("127.0.0.1:1", token="t", tls=False) as plain, mr.Client("127.0.0.1:1", token="t", tls=True) as tls:
        assert plain._engine().allows("192.0.2.1:7081") and tls._engine().allows("192.0.2.1:7081")
        assert not plain._engine().allows("nowhere")


def test_a_node_that_knows_of_no_leader_is_left_later_each_round() -> None:
    u = _Unled()
    assert not u.leave("a", 1, 100.0)
    now, node, waits = 100.0, 0, []
    for _ in range(6):
        at, since = "ab"[node], now
        while not u.leave(at, 2, now):
            now += 0.05
        waits.append(round(now - since, 2))
        node = 1 - node
    assert waits == sorted(waits) and waits[0] >= 0.3 and waits[2] > waits[1] and waits[4] > waits[3]


def test_a_stream_leaves_a_node_that_knows_of_no_leader(nodes: Any, dial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace_sdk._core.leaders._UNLED_FOR", 0.0)
    ns = nodes(2, 1)
    c = dial(ns, 0, 1)
    call = add(c)
    end_elsewhere(ns.accept(0, 0), "")
    s = ns.stream(1, 0)
    created(s, s.recv("create"))
    call.end()


def test_members_are_where_a_client_goes_on(nodes: Any, dial: Any) -> None:
    ns = nodes(3, 0)
    c = dial(ns)
    call = add(c)
    s = ns.stream(0, 0)
    created(s, s.recv("create"))
    call.end()
    ns.all[0].close()
    ns.led[0] = 1
    call = add(c)
    created(*create_at(ns, 1))
    call.end()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a client take a node for silent sooner, and ask the others sooner."""
    monkeypatch.setattr("millrace_sdk._core.silence._SILENT_FOR", 0.3)
    monkeypatch.setattr("millrace_sdk._core.silence._ASK_EVERY", 0.1)


def test_a_silent_node_is_left_when_others_name_another(nodes: Any, dial: Any, impatient: None) -> None:
    ns = nodes(3, 0)
    c = dial(ns, 0, 1, 2)
    call = add(c)
    frame = ns.stream(0, 0).recv("create")  # and it hangs
    ns.led[0] = 2
    end_elsewhere(ns.accept(1, 0), ns.all[2].url)
    s, again = create_at(ns, 2)
    assert again.tasks[0].id == frame.tasks[0].id
    created(s, again)
    call.end()


def test_a_silent_node_is_waited_for_while_others_name_it(nodes: Any, dial: Any, impatient: None) -> None:
    ns = nodes(3, 0)
    c = dial(ns, 0, 1, 2)
    call = add(c)
    s = ns.stream(0, 0)
    frame = s.recv("create")
    for node in (1, 2, 1, 2):
        end_elsewhere(ns.accept(node, 0), ns.all[0].url)
    created(s, frame)
    call.end()
    assert engine(c).leaders.address(0) == ns.all[0].url


def test_a_read_at_a_silent_node_is_made_at_the_leader(nodes: Any, dial: Any, impatient: None) -> None:
    ns = nodes(2, 1)
    c = dial(ns, 0, 1)
    hangs = threading.Event()

    def hang(request: bytes) -> bytes:
        hangs.wait(WITHIN)
        return b""

    ns.all[0].calls["Get"] = hang
    ns.all[1].calls["Get"] = lambda request: wire.message("KVGetResponse")(found=True, rev=3).SerializeToString()
    call = Background(lambda: c.kv("s").get("k"))
    ns.stream(1, 0)  # the question who leads
    try:
        assert call.end().rev == 3
    finally:
        hangs.set()


def test_what_leaders_know_is_by_partition() -> None:
    known = Leaders(["a:1", "b:1"])
    gone = mr.Unavailable("gone")
    known.reached(0, "a:1")
    known.reached(1, "b:1")
    assert not known.turn(1, "b:1", gone)
    assert known.address(0) == "a:1" and known.address(1) == "a:1"
    assert not known.turn(1, "a:1", gone)
    assert known.address(1) == "b:1" and known.address(0) == "a:1"
    refused = mr.MillraceError("x", code="NOT_LEADER", leader="c:1")
    assert known.turn(0, "a:1", refused) and known.address(0) == "c:1"
    assert not known.turn(0, "c:1", refused)


# Workers.


class Working:
    """A worker whose handlers wait for the test."""

    def __init__(self, c: mr.Client, **options: Any) -> None:
        self.go = threading.Semaphore(0)
        self.begun: list[str] = []
        self.job: mr.Job[str, str] = mr.Job[str, str]("note")
        self.job.handler(self.handle)
        self.worker = mr.Worker(c, [self.job], **options)
        self.run = Background(lambda: self.worker.run(signals=False))

    def handle(self, t: mr.Task[str], a: str) -> str:
        self.begun.append(t.id)
        while not self.go.acquire(timeout=0.01):
            t.raise_if_cancelled()
        return a


class Windows:
    """What the server knows of the windows of a worker."""

    def __init__(self, streams: list[Stream]) -> None:
        self.streams = streams
        self.now = [0] * len(streams)

    def take(self, partition: int, until: Callable[[int], bool]) -> int:
        """Take frames of a stream until its window is as wanted."""
        end = wire.monotonic() + WITHIN
        while not until(self.now[partition]):
            assert wire.monotonic() < end, self.now
            f = self.streams[partition].frame()
            kind = f.WhichOneof("frame")
            if kind in ("subscribe", "slots"):
                self.now[partition] = getattr(f, kind).slots
        return self.now[partition]


def test_a_worker_has_a_lane_for_each_partition(nodes: Any, dial: Any) -> None:
    ns = nodes(2, 0, 1, 0, 1)
    w = Working(dial(ns), slots=8)
    streams = [ns.stream(at, p) for p, at in enumerate(ns.led)]
    windows = Windows(streams)
    assert [windows.take(p, lambda n: n == 2) for p in range(4)] == [2] * 4  # an even share for each
    ids = [id_in(p, 4) for p in range(4)]
    for s, id in zip(streams, ids, strict=True):
        assign(s, id)
    for _ in ids:
        w.go.release()
    for s, id in zip(streams, ids, strict=True):
        frame = s.recv("settle")
        assert [i.id for i in frame.items] == [id]
        settled(s, frame)
    streams[1].end(grpc_server.UNAVAILABLE, "gone")  # one of them breaks, and comes back alone
    assign(streams[2], other := id_in(2, 4))
    end_elsewhere(ns.accept(0, 1), ns.all[1].url)
    again = ns.stream(1, 1)
    assert again.recv("subscribe").slots == 2
    assert again.hello.partition == 1 and not again.hello.held
    w.go.release()
    frame = streams[2].recv("settle")
    assert frame.items[0].id == other
    settled(streams[2], frame)
    assert w.worker.health().connected
    end(w, [streams[0], again, streams[2], streams[3]])


def end(w: Working, streams: list[Stream]) -> None:
    """Drain a worker that holds nothing."""
    w.worker.stop()
    for s in streams:
        assert s.recv("drain") is not None
    for s in streams:
        s.end()
    w.run.end()


def test_slots_go_where_the_work_is(nodes: Any, dial: Any) -> None:
    ns = nodes(1, 0, 0)
    w = Working(dial(ns), slots=8)
    streams = [ns.stream(0, 0), ns.stream(0, 1)]
    windows = Windows(streams)
    assert [windows.take(p, lambda n: n == 4) for p in (0, 1)] == [4, 4]
    ids = [id_in(1, 2) for _ in range(7)]
    assign(streams[1], *ids[:4])  # it uses all that it has
    assert windows.take(0, lambda n: n < 4) == 1  # one stays free, so that no task waits for it
    assert windows.take(1, lambda n: n > 4) == 7
    assign(streams[1], *ids[4:])
    for _ in ids:
        w.go.release()
    left = set(ids)
    while left:
        frame = streams[1].recv("settle")
        left -= {i.id for i in frame.items}
        settled(streams[1], frame)
    end(w, streams)


def test_fewer_slots_than_partitions_travel(nodes: Any, dial: Any) -> None:
    ns = nodes(1, 0, 0, 0, 0)
    w = Working(dial(ns), slots=1)
    streams = [ns.stream(0, p) for p in range(4)]
    windows = Windows(streams)
    for p in range(4):
        assert windows.take(p, lambda n: n == 1) == 1  # the one slot comes by everywhere
        assert windows.take(p, lambda n: n == 0) == 0
    streams[2].send(available={"sub": 1})
    assert windows.take(2, lambda n: n == 1) == 1
    assign(streams[2], id := id_in(2, 4))
    w.go.release()
    frame = streams[2].recv("settle")
    assert frame.items[0].id == id
    settled(streams[2], frame)
    end(w, streams)


def test_a_task_beyond_the_slots_waits_for_one_or_goes_back(nodes: Any, dial: Any) -> None:
    ns = nodes(1, 0, 0)
    w = Working(dial(ns), slots=2)
    streams = [ns.stream(0, 0), ns.stream(0, 1)]
    windows = Windows(streams)
    assert [windows.take(p, lambda n: n == 1) for p in (0, 1)] == [1, 1]
    ids = [id_in(p, 2) for p in (0, 1, 1)]
    assign(streams[0], ids[0])
    _until(lambda: w.begun == ids[:1])
    assign(streams[1], ids[1], ids[2])  # the last came while a window shrank
    frame = streams[1].recv("settle")
    assert [(i.id, i.WhichOneof("outcome")) for i in frame.items] == [(ids[2], "release")]
    settled(streams[1], frame, state=3)
    assert sorted(w.begun) == sorted(ids[:2])
    for _ in range(2):
        w.go.release()
    for s in streams:
        settled(s, s.recv("settle"))
    end(w, streams)


def test_effects_of_another_partition_fail_the_attempt(nodes: Any, dial: Any) -> None:
    ns = nodes(1, 0, 0)
    job: mr.Job[str, str] = mr.Job[str, str]("note")

    @job.handler
    def handle(t: mr.Task[str], a: str) -> str:
        t.fx.kv("k").put("{" + tag_in(1, 2) + "}", "v")
        if t.token == 7:
            t.fx.kv("k").put("{" + tag_in(0, 2) + "}", "v")
        else:
            t.fx.kv("k").put("{" + tag_in(1, 2) + "}/id", note.add_tx(t.fx, "x"))
        return a

    worker = mr.Worker(dial(ns), [job], slots=4)
    run = Background(lambda: worker.run(signals=False))
    streams = [ns.stream(0, 0), ns.stream(0, 1)]
    assign(streams[1], id_in(1, 2))
    item = streams[1].recv("settle")
    assert item.items[0].fail.error.code == "WRONG_PARTITION" and not item.items[0].HasField("effects")
    settled(streams[1], item)
    assign(streams[1], id_in(1, 2), token=8)
    item = streams[1].recv("settle")
    ops = item.items[0].effects.ops
    assert place.op_place(ops[1], 2) == 1 and ops[1].task_create.id == ops[2].kv_put.value.decode()
    settled(streams[1], item)
    worker.stop()
    for s in streams:
        assert s.recv("drain") is not None
        s.end()
    run.end()


def test_a_lane_that_is_refused_while_others_drain(nodes: Any, dial: Any) -> None:
    ns = nodes(1, 0, 0)
    w = Working(dial(ns), slots=4)
    streams = [ns.stream(0, 0), ns.stream(0, 1)]
    ids = [id_in(0, 2), id_in(1, 2)]
    for s, id in zip(streams, ids, strict=True):
        assign(s, id)
    _until(lambda: len(w.begun) == 2)
    w.worker.stop()
    for s in streams:
        assert s.recv("drain") is not None
    streams[1].end(grpc_server.PERMISSION_DENIED, "no more")
    w.go.release()
    w.go.release()
    settled(streams[0], streams[0].recv("settle"))
    streams[0].end()
    w.run.end()


def test_the_helper_renews_at_the_leader_of_each_partition(nodes: Any) -> None:
    ns = nodes(2, 0, 1)
    renewed: queue.Queue[tuple[int, list[str]]] = queue.Queue()

    def play(node: int) -> None:
        def heartbeat(request: bytes) -> bytes:
            m = wire.message("HeartbeatRequest").FromString(request)
            renewed.put((node, [i.id for i in m.items]))
            out: bytes = wire.message("HeartbeatResponse")(results=[{} for _ in m.items]).SerializeToString()
            return out

        ns.all[node].calls["Heartbeat"] = heartbeat

    play(0)
    play(1)
    where = {"addresses": [f.url for f in ns.all], "tls": False, "roots": "", "stall": 60.0, "metadata": []}
    lines = [f"!{json.dumps(where)}", "+a 1 600 0", "+b 2 600 1", "+c 3 600 1"]  # and then no beat
    p = subprocess.Popen([sys.executable, "-m", "millrace_sdk._renew"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert p.stdin is not None and p.stdout is not None
    with p, p.stdin:
        assert p.stdout.readline() == b"ready\n"
        p.stdin.write(("\n".join(lines) + "\n").encode())
        p.stdin.flush()
        got: set[tuple[int, str]] = set()
        while len(got) < 3:
            node, ids = renewed.get(timeout=WITHIN)
            got |= {(node, id) for id in ids}
    assert got == {(0, "a"), (1, "b"), (1, "c")}
