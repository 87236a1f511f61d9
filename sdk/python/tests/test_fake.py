"""The rules of the protocol, against a server that plays single frames."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc_server
import pytest
from fake import WITHIN, Fake, Stream

import millrace_sdk as mr
from millrace_sdk._core import faults, producer, wire

note: mr.Job[str, str] = mr.Job[str, str]("note")


@pytest.fixture
def fake() -> Iterator[Fake]:
    f = Fake()
    yield f
    f.close()


@pytest.fixture
def client(fake: Fake) -> Iterator[mr.Client]:
    c = mr.Client(fake.url, token="secret", timeout=WITHIN)
    yield c
    c.close(0.05)


class Background:
    """A call that runs in a thread of its own."""

    def __init__(self, f: Callable[[], Any]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._f = f
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.value = self._f()
        except BaseException as e:
            self.error = e

    def end(self) -> Any:
        self._thread.join(WITHIN)
        assert not self._thread.is_alive(), "the call did not end"
        if self.error is not None:
            raise self.error
        return self.value


def created(s: Stream, frame: Any, **more: Any) -> None:
    """Answer a CreateFrame."""
    s.send(ack={"seq": frame.seq, "created": [{"id": t.id} | more for t in frame.tasks]})


def test_an_add(fake: Fake, client: mr.Client) -> None:
    call = Background(lambda: note.add(client, "hello", tag="t", priority=3, headers={"a": "b"}, unique="u"))
    s = fake.accept()
    hello = s.greet()
    assert hello.version == 1 and len(hello.session) == 16 and hello.namespace == "default"
    f = s.recv("create")
    (t,) = f.tasks
    assert (t.queue, t.kind, t.payload, t.content_type) == ("note", "note", b"hello", "text/plain; charset=utf-8")
    assert (t.tag, t.priority, t.unique.key, t.headers[0].name) == ("t", 3, "u", "a")
    created(s, f, replayed=True)
    h = call.end()
    assert h.id == t.id and h.replayed


def test_a_break_sends_the_same_again(fake: Fake, client: mr.Client) -> None:
    call = Background(lambda: note.add(client, "x"))
    s = fake.accept()
    first = s.greet()
    f = s.recv("create")
    s.end(grpc_server.UNAVAILABLE, "gone")
    s = fake.accept()
    again = s.greet()
    assert again.session == first.session
    g = s.recv("create")
    assert g.tasks[0].SerializeToString() == f.tasks[0].SerializeToString()
    created(s, g)
    assert call.end().id == f.tasks[0].id


def test_a_commit_keeps_its_request_id(fake: Fake, client: mr.Client) -> None:
    call = Background(lambda: client.kv("n").add("k", 2))
    s = fake.accept()
    s.greet()
    f = s.recv("commit")
    assert len(f.commit.request_id) == 16 and f.commit_seq == 0
    s.end(grpc_server.UNAVAILABLE, "gone")
    s = fake.accept()
    s.greet()
    g = s.recv("commit")
    assert g.commit.SerializeToString() == f.commit.SerializeToString()
    s.send(ack={"seq": g.seq, "commit": {"results": [{"sum": 2}], "replayed": True}})
    assert call.end() == 2


def test_acks_come_in_any_order(fake: Fake, client: mr.Client) -> None:
    one = Background(lambda: note.add(client, "1"))
    s = fake.accept()
    s.greet()
    f = s.recv("create")
    two = Background(lambda: note.add(client, "2"))
    g = s.recv("create")
    s.send(ack={"seq": 999})
    created(s, g)
    assert two.end().id == g.tasks[0].id
    created(s, f)
    assert one.end().id == f.tasks[0].id


def test_the_window_bounds_what_is_unanswered(fake: Fake, client: mr.Client) -> None:
    call = Background(lambda: note.add_many(client, [str(i) for i in range(1024)]))
    s = fake.accept()
    s.greet(limits={"unacked_items": 600, "unacked_bytes": 1 << 20, "unacked_commits": 1})
    f = s.recv("create")
    assert len(f.tasks) == 512
    assert s.quiet()
    created(s, f)
    g = s.recv("create")
    assert len(g.tasks) == 512
    created(s, g)
    assert len(call.end()) == 1024


def test_commits_have_a_window_of_their_own(fake: Fake, client: mr.Client) -> None:
    calls = [Background(lambda: client.kv("n").put("k", "v")) for _ in range(2)]
    s = fake.accept()
    s.greet(limits={"unacked_items": 600, "unacked_bytes": 1 << 20, "unacked_commits": 1})
    f = s.recv("commit")
    assert s.quiet()
    s.send(ack={"seq": f.seq, "commit": {"results": [{"rev": 1}]}})
    g = s.recv("commit")
    s.send(ack={"seq": g.seq, "commit": {"results": [{"rev": 2}]}})
    assert sorted(c.end() for c in calls) == [1, 2]


def test_goaway_opens_another_stream_at_once(fake: Fake, client: mr.Client) -> None:
    call = Background(lambda: note.add(client, "x"))
    s = fake.accept()
    session = s.greet().session
    f = s.recv("create")
    s.send(goaway={"reason": "shutdown"})
    assert s.recv() is None  # this side is closed
    created(s, f)
    assert call.end().id
    s.end()
    call = Background(lambda: note.add(client, "y"))
    s = fake.accept()
    assert s.greet().session == session
    created(s, s.recv("create"))
    call.end()


def test_throttle_pauses_creates(fake: Fake, client: mr.Client) -> None:
    call = Background(lambda: note.add(client, "x"))
    s = fake.accept()
    s.greet()
    created(s, s.recv("create"))
    call.end()
    s.send(throttle={"limit": "creates", "retry_after": {"nanos": 400_000_000}})
    e = client._eng
    assert e is not None
    _until(lambda: e.producer.session.paused())
    call = Background(lambda: note.add(client, "y"))
    assert s.quiet(0.15)
    created(s, s.recv("create"))
    call.end()


def _until(ready: Callable[[], Any]) -> None:
    end = wire.monotonic() + WITHIN
    while not ready():
        assert wire.monotonic() < end, "it did not happen"
        threading.Event().wait(0.005)


def test_a_bad_task_does_not_take_others_with_it(fake: Fake, client: mr.Client) -> None:
    first = Background(lambda: note.add(client, "0"))
    s = fake.accept()
    calls = [Background(lambda i=i: note.add(client, str(i))) for i in range(1, 3)]
    e = client._eng
    assert e is not None
    _until(lambda: len(e.producer.creates) == 3)
    s.greet()
    f = s.recv("create")
    assert len(f.tasks) == 3
    s.send(
        ack={"seq": f.seq, "error": {"code": "INVALID_ARGUMENT", "message": "one is bad", "field": "tasks[1].queue"}}
    )
    for _ in range(3):
        g = s.recv("create")
        assert len(g.tasks) == 1
        if g.tasks[0].payload == b"1":
            bad = {"code": "INVALID_ARGUMENT", "message": "bad", "field": "tasks[0].queue"}
            s.send(ack={"seq": g.seq, "created": [{"error": bad}]})
        else:
            created(s, g)
    first.end()
    results = []
    for c in calls:
        try:
            results.append(c.end().id)
        except mr.InvalidArgument as wrong:
            results.append(wrong.field)
    assert "queue" in results and len(set(results)) == 2


def test_later_is_repeated_and_a_refusal_is_not(fake: Fake, client: mr.Client) -> None:
    call = Background(lambda: note.add(client, "x"))
    s = fake.accept()
    s.greet()
    f = s.recv("create")
    later = {"code": "UNAVAILABLE", "reason": "no_leader", "message": "wait"}
    s.send(ack={"seq": f.seq, "created": [{"error": later}]})
    g = s.recv("create")
    assert g.tasks[0].id == f.tasks[0].id and g.seq != f.seq
    s.send(ack={"seq": g.seq, "created": [{"error": {"code": "PERMISSION_DENIED", "message": "no"}}]})
    with pytest.raises(mr.PermissionDenied) as e:
        call.end()
    assert e.value.outcome == "refused"
    assert s.quiet()


def test_a_refusal_after_a_break_is_unknown(fake: Fake, client: mr.Client) -> None:
    call = Background(lambda: note.add(client, "x"))
    s = fake.accept()
    s.greet()
    s.recv("create")
    s.end(grpc_server.UNAVAILABLE, "gone")
    s = fake.accept()
    s.greet()
    f = s.recv("create")
    s.send(ack={"seq": f.seq, "created": [{"error": {"code": "PERMISSION_DENIED", "message": "no"}}]})
    with pytest.raises(mr.PermissionDenied) as e:
        call.end()
    assert e.value.outcome == "unknown" == mr.outcome_of(e.value)


def test_timeouts_tell_what_had_left(fake: Fake, client: mr.Client) -> None:
    waiting = Background(lambda: note.add(client, "x", timeout=0.3))
    s = fake.accept()
    with pytest.raises(mr.DeadlineExceeded) as e:
        waiting.end()
    assert e.value.outcome == "refused"
    s.greet()
    left = Background(lambda: note.add(client, "y", timeout=0.3))
    f = s.recv("create")
    assert [t.payload for t in f.tasks] == [b"y"]  # the first one never leaves
    with pytest.raises(mr.DeadlineExceeded) as e:
        left.end()
    assert e.value.outcome == "unknown"
    created(s, f)
    assert client._eng is not None
    _until(lambda: not client._eng.producer.session.frames)  # type: ignore[union-attr]
    assert not client._eng.producer._open and not client._eng.producer._deadlines


async def test_a_cancelled_caller(fake: Fake) -> None:
    async with mr.AsyncClient(fake.url, token="secret") as c:
        call = asyncio.ensure_future(note.add(c, "x"))
        s = await asyncio.to_thread(fake.accept)
        await asyncio.to_thread(s.greet)
        f = await asyncio.to_thread(s.recv, "create")
        call.cancel()
        try:
            await call
        except asyncio.CancelledError as e:
            assert mr.outcome_of(e) == "unknown"
        created(s, f)
        other = asyncio.ensure_future(note.add(c, "y"))
        created(s, await asyncio.to_thread(s.recv, "create"))
        assert (await other).id
        await c.close(0.05)


def test_calls_of_one_turn_share_a_frame(fake: Fake) -> None:
    async def main() -> None:
        async with mr.AsyncClient(fake.url, token="secret") as c:
            warm = asyncio.ensure_future(note.add(c, "w"))
            s = await asyncio.to_thread(fake.accept)
            await asyncio.to_thread(s.greet)
            created(s, await asyncio.to_thread(s.recv, "create"))
            await warm
            calls = [asyncio.ensure_future(note.add(c, str(i))) for i in range(100)]
            f = await asyncio.to_thread(s.recv, "create")
            assert len(f.tasks) == 100
            created(s, f)
            await asyncio.gather(*calls)
            await c.close(0.05)

    asyncio.run(main())


def test_a_server_that_refuses_the_stream(fake: Fake, client: mr.Client) -> None:
    call = Background(lambda: note.add(client, "x"))
    fake.accept().end(grpc_server.UNAUTHENTICATED, "who are you")
    with pytest.raises(mr.Unauthenticated):
        call.end()
    call = Background(lambda: note.add(client, "x"))  # the next call tries again
    s = fake.accept()
    s.greet()
    created(s, s.recv("create"))
    call.end()


def test_a_leader_that_an_error_names_is_followed(fake: Fake, client: mr.Client) -> None:
    other = Fake()
    try:
        call = Background(lambda: note.add(client, "x"))
        fake.accept().end(grpc_server.UNAVAILABLE, "not here", leader=other.url)
        s = other.accept()
        s.greet(directory=[{"partition": 0, "address": ""}], nodes=[fake.url, other.url])
        created(s, s.recv("create"))
        call.end()
        s.end(grpc_server.UNAVAILABLE, "gone")  # the leader is asked again, then the other member
        other.close()
        call = Background(lambda: note.add(client, "y"))
        s = fake.accept()
        s.greet(nodes=[fake.url, other.url])
        created(s, s.recv("create"))
        call.end()
    finally:
        other.close()


def test_a_fault_of_the_library_does_not_end_the_session(
    fake: Fake, client: mr.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = producer.Producer.hello
    hellos: list[int] = []

    def hello(self: Any, h: Any) -> None:
        hellos.append(1)
        if len(hellos) == 1:
            raise RuntimeError("a fault")
        before(self, h)

    def receive(self: Any, frame: Any) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(producer.Producer, "hello", hello)
    monkeypatch.setattr(producer.Producer, "receive", receive)
    call = Background(lambda: note.add(client, "x"))
    s = fake.accept()
    while (first := s.recv()) is None:  # the stream whose hello failed
        s = fake.accept()
    assert first.version == 1
    s.send(welcome={"partitions": 1})
    f = s.recv("create")
    s.send(available={"sub": 1})  # a frame that is not taken ends the stream
    s = fake.accept()
    s.greet()
    g = s.recv("create")
    assert g.tasks[0].id == f.tasks[0].id
    created(s, g)
    call.end()
    assert sum("fault" in r.getMessage() or "not taken" in r.getMessage() for r in caplog.records) >= 2


def test_what_left_too_long_ago_is_unknown(fake: Fake, client: mr.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "RESEND_FOR", 0.0)
    call = Background(lambda: note.add(client, "x"))
    s = fake.accept()
    s.greet()
    s.recv("create")
    s.end(grpc_server.UNAVAILABLE, "gone")
    with pytest.raises(mr.Unavailable) as e:
        call.end()
    assert e.value.outcome == "unknown" and e.value.reason == "expired"


def test_a_new_token_goes_to_the_open_stream(fake: Fake, client: mr.Client) -> None:
    call = Background(lambda: note.add(client, "x"))
    s = fake.accept()
    s.greet()
    created(s, s.recv("create"))
    call.end()
    client.set_token("other")
    assert s.recv("auth").token == "other"


# Waits.


def test_waits_share_the_stream(fake: Fake, client: mr.Client) -> None:
    ids = [mr.new_id() for _ in range(3)]
    waits = [Background(lambda i=i: client.handle(note, i).wait(WITHIN)) for i in ids]
    e = client._engine()
    s = fake.accept()
    _until(lambda: len(e.producer._undecided) == 3)
    s.greet(features=["waits"])
    f = s.recv("waits")
    assert sorted(f.ids) == sorted(ids)
    s.send(ack={"seq": f.seq, "waits": [{} for _ in f.ids]})
    s.end(grpc_server.UNAVAILABLE, "gone")
    s = fake.accept()
    s.greet(features=["waits"])
    f = s.recv("waits")
    assert sorted(f.ids) == sorted(ids)  # asked for again
    results = [{} if i != ids[2] else {"error": {"code": "NOT_FOUND", "message": "none"}} for i in f.ids]
    s.send(ack={"seq": f.seq, "waits": results})
    s.send(ended={"id": ids[0], "task": {"id": ids[0], "state": 5, "result": b"done", "result_type": "text/plain"}})
    dead = {"id": ids[1], "state": 6, "reason": "fatal", "error": {"code": "bad", "message": "no"}}
    s.send(ended={"id": ids[1], "task": dead})
    assert waits[0].end() == "done"
    with pytest.raises(mr.TaskError) as failed:
        waits[1].end()
    assert (failed.value.state, failed.value.reason, failed.value.code) == ("dead", "fatal", "bad")
    with pytest.raises(mr.NotFound):
        waits[2].end()


def test_a_wait_that_ends_is_forgotten(fake: Fake, client: mr.Client) -> None:
    id = mr.new_id()
    wait = Background(lambda: client.handle(note, id).wait(0.5))
    s = fake.accept()
    s.greet(features=["waits"])
    f = s.recv("waits")
    s.send(ack={"seq": f.seq, "waits": [{}]})
    with pytest.raises(mr.DeadlineExceeded):
        wait.end()
    assert list(s.recv("waits").forget) == [id]


def test_waits_are_calls_where_the_stream_has_none(fake: Fake, client: mr.Client) -> None:
    task = wire.message("Task")(id="a", state=5, result=b"done", result_type="text/plain")
    answer = wire.message("WaitResponse")(task=task).SerializeToString()
    fake.calls["Wait"] = lambda request: answer
    wait = Background(lambda: client.handle(note, mr.new_id()).wait(WITHIN))
    fake.accept().greet()
    assert wait.end() == "done"


# Workers.


class Working:
    """A worker of one job, whose handler waits for the test."""

    def __init__(self, client: mr.Client, **options: Any) -> None:
        self.go = threading.Event()
        self.tasks: list[mr.Task[str]] = []
        self.settled: list[mr.Settled] = []
        self.job: mr.Job[str, str] = mr.Job[str, str]("note")
        self.job.handler(self.handle)
        self.worker = mr.Worker(client, [self.job], on_settled=self.settled.append, **options)
        self.run = Background(lambda: self.worker.run(signals=False))

    def handle(self, t: mr.Task[str], a: str) -> str:
        self.tasks.append(t)
        while not self.go.wait(0.005):
            t.raise_if_cancelled()
        return a + "!"


def assign(s: Stream, *ids: str, token: int = 7, lease_ms: int = 60_000) -> None:
    """Give tasks to a worker."""
    tasks = [
        {
            "id": i, "token": token, "attempt": 1, "queue": "note", "kind": "note", "payload": b"x",
            "content_type": "text/plain", "lease_ms": lease_ms, "lease_left_ms": lease_ms,
        }
        for i in ids
    ]  # fmt: skip
    s.send(assign={"sub": 1, "tasks": tasks})


def settled(s: Stream, frame: Any, state: int = 5, **more: Any) -> None:
    """Answer a SettleFrame."""
    s.send(ack={"seq": frame.seq, "settled": [{"state": state} | more for _ in frame.items]})


def stop(w: Working, s: Stream) -> None:
    """Drain a worker that holds nothing."""
    w.worker.stop()
    assert s.recv("drain") is not None
    assert s.recv() is None
    s.end()
    w.run.end()


def test_a_worker(fake: Fake, client: mr.Client) -> None:
    w = Working(client, slots=5, lease=30.0)
    s = fake.accept()
    hello = s.greet()
    assert list(hello.worker.kinds) == ["note"] and not hello.held
    sub = s.recv("subscribe")
    assert sub.slots == 5 and sub.queues[0].name == "note" and wire.span(sub.lease) == 30
    assign(s, "a", "b")
    assign(s, "a")  # what came twice is run once
    w.go.set()
    done = []
    while len(done) < 2:
        f = s.recv("settle")
        done += [(i.id, i.token, i.complete.result) for i in f.items]
        settled(s, f)
    assert sorted(done) == [("a", 7, b"x!"), ("b", 7, b"x!")]
    stop(w, s)
    assert sorted((x.id, x.op, x.state) for x in w.settled) == [
        ("a", "complete", "completed"),
        ("b", "complete", "completed"),
    ]


def test_held_leases_are_named_and_unacked_settles_sent_again(fake: Fake, client: mr.Client) -> None:
    w = Working(client)
    s = fake.accept()
    first = s.greet()
    s.recv("subscribe")
    assign(s, "a", "b")
    _until(lambda: len(w.tasks) == 2)
    s.end(grpc_server.UNAVAILABLE, "gone")
    s = fake.accept()
    hello = s.greet(kept=[{"id": "a", "token": 7}], lost=[{"id": "b", "token": 7}])
    assert hello.session == first.session
    assert sorted((h.id, h.token) for h in hello.held) == [("a", 7), ("b", 7)]
    s.recv("subscribe")
    renewed = s.recv("renew")  # everything is renewed at once
    assert [i.id for i in renewed.items] == ["a"]
    _until(lambda: any(t.id == "b" and t.cancelled.why == "lost" for t in w.tasks))
    w.go.set()
    f = s.recv("settle")
    assert [i.id for i in f.items] == ["a"]
    s.end(grpc_server.UNAVAILABLE, "gone")
    s = fake.accept()
    hello = s.greet(kept=[{"id": "a", "token": 7}])
    assert [h.id for h in hello.held] == ["a"]
    g = s.recv("settle")
    assert g.items[0].SerializeToString() == f.items[0].SerializeToString()
    settled(s, g, replayed=True)
    stop(w, s)
    assert [(x.id, x.replayed) for x in w.settled] == [("a", True)]


def test_leases_are_renewed_at_a_third(fake: Fake, client: mr.Client) -> None:
    w = Working(client)
    s = fake.accept()
    s.greet()
    s.recv("subscribe")
    assign(s, "a", lease_ms=1000)
    f = s.recv("renew", 1.0)
    assert [(i.id, i.token) for i in f.items] == [("a", 7)]
    s.send(ack={"seq": f.seq, "renewed": [{"cancel": True}]})
    _until(lambda: w.tasks and w.tasks[0].cancelled.why == "cancelled")
    g = s.recv("settle")
    assert g.items[0].WhichOneof("outcome") == "stop"
    settled(s, g, state=7)
    stop(w, s)


def test_a_lost_lease_ends_the_handler_and_nothing_is_settled(fake: Fake, client: mr.Client) -> None:
    w = Working(client, slots=3)
    s = fake.accept()
    s.greet()
    s.recv("subscribe")
    assign(s, "a")
    _until(lambda: w.tasks)
    s.send(lease_lost={"id": "a", "token": 7, "reason": "expired"})
    assert s.recv("slots").slots == 3  # the slot is asked back
    _until(lambda: w.tasks[0].cancelled.why == "lost")
    assert s.quiet()
    stop(w, s)
    assert w.settled == []


def test_a_lease_lost_while_its_settle_is_away_changes_nothing(fake: Fake, client: mr.Client) -> None:
    w = Working(client)
    w.go.set()
    s = fake.accept()
    s.greet()
    s.recv("subscribe")
    assign(s, "a")
    f = s.recv("settle")
    s.send(lease_lost={"id": "a", "token": 7, "reason": "expired"})
    s.recv("slots")
    settled(s, f)
    stop(w, s)
    assert [(x.op, x.state, x.error) for x in w.settled] == [("complete", "completed", None)]


def test_a_settle_that_comes_too_late(fake: Fake, client: mr.Client) -> None:
    w = Working(client)
    w.go.set()
    s = fake.accept()
    s.greet()
    s.recv("subscribe")
    assign(s, "a")
    f = s.recv("settle")
    settled(s, f, error={"code": "LEASE_LOST", "message": "late"})
    stop(w, s)
    assert isinstance(w.settled[0].error, mr.LeaseLost)


def test_a_cancel_of_what_no_handler_began(fake: Fake, client: mr.Client) -> None:
    w = Working(client, slots=1)
    s = fake.accept()
    s.greet()
    s.recv("subscribe")
    assign(s, "a")
    _until(lambda: w.tasks)
    assign(s, "b")  # there is no thread for it
    s.send(cancel={"id": "b", "token": 7, "reason": "why not"})
    f = s.recv("settle")
    assert f.items[0].id == "b" and f.items[0].WhichOneof("outcome") == "stop"
    settled(s, f, state=7)
    w.go.set()
    settled(s, s.recv("settle"))
    stop(w, s)
    assert len(w.tasks) == 1


def test_a_settle_that_is_refused_becomes_a_failure(fake: Fake, client: mr.Client) -> None:
    w = Working(client)
    w.go.set()
    s = fake.accept()
    s.greet()
    s.recv("subscribe")
    assign(s, "a")
    refused = {"code": "PRECONDITION_FAILED", "message": "no", "op": 0}
    settled(s, s.recv("settle"), error=refused)
    f = s.recv("settle")
    assert f.items[0].fail.error.code == "PRECONDITION_FAILED"
    settled(s, f, state=3)
    stop(w, s)
    assert [x.op for x in w.settled] == ["complete", "fail"]


def test_drain_releases_what_no_handler_began_and_waits_for_the_rest(fake: Fake, client: mr.Client) -> None:
    w = Working(client, slots=1)
    s = fake.accept()
    s.greet()
    s.recv("subscribe")
    assign(s, "a")
    _until(lambda: w.tasks)
    assign(s, "b")
    _until(lambda: w.worker.health().held == 2)
    w.worker.stop()
    s.recv("drain")
    f = s.recv("settle")
    assert (f.items[0].id, f.items[0].WhichOneof("outcome")) == ("b", "release")
    settled(s, f, state=3)
    assert w.tasks[0].stopping and not w.tasks[0].cancelled
    w.go.set()
    f = s.recv("settle")
    assert (f.items[0].id, f.items[0].WhichOneof("outcome")) == ("a", "complete")
    settled(s, f)
    assert s.recv() is None
    s.end()
    w.run.end()


def test_a_second_stop_gives_everything_back(fake: Fake, client: mr.Client) -> None:
    w = Working(client)
    s = fake.accept()
    s.greet()
    s.recv("subscribe")
    assign(s, "a")
    _until(lambda: w.tasks)
    w.worker.stop()
    s.recv("drain")
    w.worker.stop()
    f = s.recv("settle")
    assert f.items[0].WhichOneof("outcome") == "release"
    settled(s, f, state=3)
    assert s.recv() is None
    s.end()
    w.run.end()


def test_an_unknown_kind_is_put_off(fake: Fake, client: mr.Client, caplog: pytest.LogCaptureFixture) -> None:
    w = Working(client)
    s = fake.accept()
    s.greet()
    s.recv("subscribe")
    for id in ("a", "b"):
        task = {"id": id, "token": 1, "attempt": 1, "queue": "note", "kind": "strange", "lease_ms": 60_000}
        s.send(assign={"sub": 1, "tasks": [task | {"lease_left_ms": 60_000}]})
        f = s.recv("settle")
        assert wire.span(f.items[0].snooze.delay) == 30
        settled(s, f, state=2)
    stop(w, s)
    assert sum("strange" in r.getMessage() for r in caplog.records) == 1


def test_a_worker_that_is_refused_says_so(fake: Fake, client: mr.Client) -> None:
    w = Working(client)
    fake.accept().end(grpc_server.PERMISSION_DENIED, "no")
    with pytest.raises(mr.PermissionDenied):
        w.run.end()


def test_reports(fake: Fake, client: mr.Client) -> None:
    reports: list[Any] = []

    def report(request: bytes) -> bytes:
        reports.append(wire.message("ReportRequest").FromString(request))
        return b""

    fake.calls["Report"] = report
    job: mr.Job[str, None] = mr.Job[str, None]("note")

    @job.handler
    def handle(t: mr.Task[str], a: str) -> None:
        t.save_checkpoint(b"half")
        assert t.checkpoint == b"half"
        t.progress(50, "half")
        t.log("a line")

    worker = mr.Worker(client, [job])
    run = Background(lambda: worker.run(signals=False))
    s = fake.accept()
    s.greet()
    s.recv("subscribe")
    assign(s, "a")
    settled(s, s.recv("settle"))
    worker.stop()
    s.recv()
    s.end()
    run.end()
    assert [r.number for r in reports] == list(range(1, len(reports) + 1))
    assert reports[0].checkpoint == b"half"
    assert [line for r in reports for line in r.lines] == ["a line"]
    assert [r.progress.percent for r in reports if r.HasField("progress")] == [50]
