"""Declarations of jobs, and the helpers for tests, without a server."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
from dataclasses import dataclass

import pytest

import millrace_sdk as mr
from millrace_sdk._core import wire
from millrace_sdk.testing import AsyncRecorder, Recorder, arun_handler, run_handler
from millrace_sdk.worker import _Pool


@dataclass
class Args:
    url: str
    width: int = 300


@dataclass
class Mail:
    to: str


mail: mr.Job[Mail, None] = mr.Job[Mail, None]("mail")


@mail.handler
async def send(t: mr.Task[Mail], a: Mail) -> None:
    t.fx.kv("sent").add(a.to)


@mr.job("image.thumb", queue="img", attempts=8, lease=120, max_run=3600, retry=mr.Retry(base=5, max=900))
def thumb(t: mr.Task[Args], a: Args) -> str:
    if a.url == "bad":
        raise mr.Fatal("no such image", code="no_image")
    if a.url == "busy":
        raise mr.RetryIn(5, RuntimeError("busy"))
    if a.url == "later":
        raise mr.Snooze(60)
    if a.url == "back":
        raise mr.Release
    if a.url == "exit":
        raise SystemExit(3)
    if a.url == "deep":
        return thumb(t, a)
    if a.url == "cancel":
        t.raise_if_cancelled()
    t.fx.kv("thumbs").put(t.id, "png", if_absent=True)
    t.fx.kv("counts").add("thumbs", 1, ceiling=10_000)
    t.fx.repo("app").update("refs/heads/main", "b" * 40, "a" * 40)
    t.fx.collection("img").upsert(t.id, vector=[1.0, 2.0], model="m", payload={"u": a.url})
    t.fx.kv("orders").check("7", "equal", rev=3)
    mail.add_tx(t.fx, Mail("ada"), delay=60, tag="t")
    t.progress(40, "decoded")
    t.log("a line")
    t.save_checkpoint(b"here")
    return f"{a.url}:{a.width}:{t.attempt}"


def test_a_declaration() -> None:
    assert thumb.name == "image.thumb" and not thumb.is_async and mail.is_async
    spec = thumb._spec(Args("u"), {"labels": {"a": "b"}, "unique": mr.Unique("k", ttl=5, on_conflict="reject")})
    assert (spec.queue, spec.kind, spec.max_attempts) == ("img", "image.thumb", 8)
    assert wire.span(spec.lease) == 120 and wire.span(spec.max_run) == 3600 and wire.span(spec.retry.max) == 900
    assert spec.payload == b'{"url":"u","width":300}' and spec.labels["a"] == "b"
    assert spec.unique.on_conflict == 1 and wire.span(spec.unique.ttl) == 5
    with pytest.raises(TypeError):
        thumb._spec(Args("u"), {"colour": 1})  # type: ignore[typeddict-unknown-key]


def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    c = mr.Client("127.0.0.1:1", token="t")
    with pytest.raises(mr.InvalidArgument) as e:
        thumb.add(c, {"url": 1})  # type: ignore[call-overload]
    assert e.value.reason == "invalid_args" and e.value.outcome == "refused"
    assert c._eng is None


def test_declarations_that_are_wrong() -> None:
    with pytest.raises(TypeError, match="must take the task"):

        @mr.job("x")
        def f() -> None: ...

    with pytest.raises(mr.InvalidArgument, match="has no handler"):
        mr.Worker(mr.Client("127.0.0.1:1"), [mr.Job("x")])
    with pytest.raises(mr.InvalidArgument):
        mr.Client("nowhere")
    with pytest.raises(mr.InvalidArgument):
        mr.Client("127.0.0.1:1", token="two words")


def test_run_handler() -> None:
    r = run_handler(thumb, Args("u"), attempt=2)
    assert (r.settle, r.result) == ("complete", "u:300:2")
    assert r.effects[0] == {"op": "kv_put", "keyspace": "thumbs", "key": r.id, "value": "png", "if_absent": True}
    assert r.effects[1] == {"op": "kv_add", "keyspace": "counts", "key": "thumbs", "delta": 1, "ceiling": 10_000}
    assert r.effects[2]["op"] == "ref_update" and r.effects[2]["old"] == "a" * 40
    assert r.effects[3]["vector"] == [1.0, 2.0]
    follow = r.effects[4]
    assert (follow["op"], follow["payload"], follow["delay"], follow["tag"]) == (
        "task_create",
        {"to": "ada"},
        "60s",
        "t",
    )
    assert r.checks == [{"keyspace": "orders", "key": "7", "compare": "equal", "rev": 3}]
    assert (r.progress, r.log, r.checkpoint) == ((40, "decoded"), ["a line"], b"here")


@pytest.mark.parametrize(
    ("url", "settle", "code", "fatal", "delay"),
    [
        ("bad", "fail", "no_image", True, None),
        ("busy", "fail", "RuntimeError", False, 5),
        ("later", "snooze", "", False, 60),
        ("back", "release", "", False, None),
        ("exit", "fail", "SystemExit", False, None),
        ("deep", "fail", "RecursionError", False, None),
    ],
)
def test_ends(url: str, settle: str, code: str, fatal: bool, delay: float | None) -> None:
    r = run_handler(thumb, Args(url))
    assert (r.settle, r.code, r.fatal, r.delay) == (settle, code, fatal, delay)
    assert r.effects == []


def test_a_cancelled_handler() -> None:
    assert run_handler(thumb, Args("cancel"), cancelled=True).settle == "stop"
    assert run_handler(thumb, Args("cancel")).settle == "complete"


def test_arguments_that_do_not_fit_are_fatal() -> None:
    other: mr.Job[dict[str, int], str] = mr.Job[dict[str, int], str]("image.thumb")
    other.handler(thumb.function)  # type: ignore[arg-type]
    spec = other._spec({"width": 1}, {})
    from millrace_sdk.testing import _begin_spec, _finish

    out, run, a = _begin_spec(thumb, spec, None)
    run.call()
    r = _finish(thumb, out, a)
    assert (r.settle, r.code, r.fatal) == ("fail", "invalid_args", True)


async def test_arun_handler() -> None:
    r = await arun_handler(mail, Mail("ada"))
    assert r.effects == [{"op": "kv_add", "keyspace": "sent", "key": "ada", "delta": 1}]
    assert (await arun_handler(thumb, Args("u"))).settle == "complete"


def sign_up(c: mr.Client) -> mr.Handle[str]:
    tx = c.tx()
    tx.kv("users").put("ada", "1")
    mail.add_tx(tx, Mail("ada"))
    tx.commit()
    return thumb.add(c, Args("u"))


def test_a_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        monkeypatch.setenv("MILLRACE_URL", f"127.0.0.1:{listener.getsockname()[1]}")
        c = Recorder()
        for n in range(3):
            c.kv("orders").put("7", str(n))
        h = sign_up(c)
        assert c.added(mail) == [Mail("ada")] and c.added(thumb) == [Args("u")]
        with pytest.raises(mr.WrongState):
            h.wait()
        runs = c.drain([mail, thumb])
        assert [r.settle for r in runs] == ["complete"] * 3  # the follow-up too
        assert h.wait() == "u:300:1"
        assert c.kv("sent").get("ada").text() == "2"
        assert c.kv("users").get("ada").found and not c.kv("users").get("bob").found
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):  # nothing was dialled
            listener.accept()


async def test_an_async_recorder() -> None:
    c = AsyncRecorder()
    for n in range(3):
        await c.kv("orders").put("7", str(n))
    h = await thumb.add(c, Args("u"))
    await c.drain([thumb, mail])
    assert await h.wait() == "u:300:1"


def test_refused_effects_without_a_server() -> None:
    assert mr.outcome_of(None) == "ok"
    assert mr.outcome_of(asyncio.CancelledError()) == "unknown"
    assert mr.outcome_of(mr.BatchError([None, mr.NotFound()], [])) == "refused"
    assert mr.outcome_of(ValueError()) == "refused"


def test_signals() -> None:
    s = mr.Signal()
    assert not s and not s.wait(0)

    async def main() -> None:
        waiting = asyncio.ensure_future(_await(s))
        await asyncio.sleep(0)
        s.set("because", "cancelled")
        await asyncio.wait_for(waiting, 5)
        await s

    asyncio.run(main())
    assert s and s.wait() and (s.reason, s.why) == ("because", "cancelled")


async def _await(s: mr.Signal) -> None:
    await s


def test_every_handler_that_blocks_gets_a_thread() -> None:
    """Handlers that wait for each other all run at once, and what comes later too."""
    met = threading.Barrier(33, timeout=30)
    pool = _Pool(32, lambda a: met.wait() and None)
    for _ in range(2):
        pool.submit(range(32))  # type: ignore[arg-type]
        met.wait()
    pool.close()


def test_no_more_handlers_run_than_there_are_slots_until_one_outlives_its_task() -> None:
    running: queue.SimpleQueue[int] = queue.SimpleQueue()
    go_on = threading.Semaphore(0)

    def run(a: int) -> None:
        running.put(a)
        go_on.acquire()

    pool = _Pool(2, run)  # type: ignore[arg-type]
    pool.submit(range(4))  # type: ignore[arg-type]
    assert sorted((running.get(timeout=30), running.get(timeout=30))) == [0, 1]
    assert running.empty()
    pool.widen(1)
    assert running.get(timeout=30) == 2
    go_on.release(4)
    assert running.get(timeout=30) == 3
    pool.close()
