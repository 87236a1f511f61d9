"""Crons, and what rules queues and their keys, by both clients and both transports against a real server."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from test_server import unique

import millrace_sdk as mr
from millrace_sdk.testing import AsyncRecorder, DevServer, Recorder

LATER = datetime.datetime(2035, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass
class Args:
    of: str


@pytest.fixture(params=["stream", "rest"])
def client(millrace_server: DevServer, request: pytest.FixtureRequest) -> Iterator[mr.Client]:
    namespace = unique("admin")
    with millrace_server.client(namespace=namespace, transport=request.param, rest_url=millrace_server.rest_url) as c:
        yield c


def test_a_cron(client: mr.Client) -> None:
    report = mr.Job[Args, None]("report", queue="reports", attempts=2)
    set_at = lambda **o: report.cron(  # noqa: E731
        client, "nightly", "0 2 * * *", Args("yesterday"), zone="Europe/Berlin", start=LATER, overlap="queue_one",
        catch_up="all", jitter=90, key="ann", cost=3, priority=4, labels={"team": "red"}, headers={"a": "b"}, **o
    )  # fmt: skip
    c = set_at(if_version=0)
    assert (c.name, c.schedule, c.zone, c.words) == ("nightly", "0 2 * * *", "Europe/Berlin", "at 02:00 every day")
    assert (c.overlap, c.catch_up, c.jitter, c.start, c.end, c.paused) == ("queue_one", "all", 90, LATER, None, False)
    assert (c.queue, c.kind, c.payload, c.key, c.cost) == ("reports", "report", b'{"of":"yesterday"}', "ann", 3)
    assert (c.priority, c.labels, c.headers, c.message.config.template.max_attempts) == (
        4,
        {"team": "red"},
        {"a": "b"},
        2,
    )
    assert c.next_at == LATER + datetime.timedelta(hours=1) and c.version == 1 and c.last_run is None
    assert set_at().version == 1  # it is as it was
    with pytest.raises(mr.PreconditionFailed):
        set_at(if_version=0)
    cron = client.cron("nightly")
    run = cron.trigger()
    assert (run.number, run.outcome, run.by_hand, run.state) == (1, "started", True, "ready")
    task = client.task(run.task)
    assert (task.key, task.cost, task.headers["millrace-cron"], task.headers["a"]) == ("ann", 3, "nightly", "b")
    second = cron.trigger(id=mr.new_id())
    assert (second.number, second.outcome, second.state) == (2, "waiting", "")
    assert [r.outcome for r in cron.runs()] == ["waiting", "started"]
    assert (cron.pause(), cron.pause(), cron.get().paused) == (False, True, True)
    assert (cron.resume(), cron.resume(), cron.get().paused) == (False, True, False)
    report.cron(client, "other", "@hourly", Args("now"))
    assert [one.name for one in client.crons()] == ["nightly", "other"]
    assert [one.name for one in client.crons(prefix="n")] == ["nightly"]
    with pytest.raises(mr.PreconditionFailed):
        cron.delete(if_version=1)
    cron.delete()
    for gone in (cron.get, cron.runs, cron.pause, cron.trigger, cron.delete):
        with pytest.raises(mr.NotFound):
            gone()


def test_a_list_of_crons_goes_over_pages(client: mr.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from millrace_sdk import cron

    monkeypatch.setattr(cron, "_PAGE", 2)
    job = mr.Job[int, None]("n")
    names = [f"c{n}" for n in range(5)]
    for name in names:
        job.cron(client, name, "@yearly", 1)
    assert [c.name for c in client.crons()] == names


def test_a_preview_has_the_zones_offsets(client: mr.Client) -> None:
    p = client.preview_cron("30 2 * * *", zone="Europe/Berlin", count=3, after=datetime.datetime(2027, 3, 27, 12))
    assert p.words == "at 02:30 every day"
    # 02:30 is skipped on the 28th.
    assert [t.isoformat() for t in p.times] == [
        "2027-03-28T03:00:00+02:00",
        "2027-03-29T02:30:00+02:00",
        "2027-03-30T02:30:00+02:00",
    ]
    spring, autumn = p.changes[:2]
    assert (spring.by, autumn.by) == (3600, -3600)
    assert spring.slots == p.times[:1] and "02:30" in spring.words


def test_what_no_cron_can_have_is_refused(client: mr.Client) -> None:
    job = mr.Job[int, None]("n")
    for field, value in {"id": mr.new_id(), "delay": 5, "unique": "k", "after": [mr.new_id()]}.items():
        with pytest.raises(mr.InvalidArgument) as e:
            job.cron(client, "n", "@daily", 1, **{field: value})
        assert e.value.field == "template." + field
    with pytest.raises(TypeError, match="colour"):
        job.cron(client, "n", "@daily", 1, colour="red")  # type: ignore[call-overload]
    with pytest.raises(mr.InvalidArgument) as e:
        job.cron(client, "n", "@daily", 1, overlap="maybe")  # type: ignore[call-overload]
    assert e.value.field == "overlap"
    with pytest.raises(mr.InvalidArgument) as e:
        job.cron(client, "n", "0 0 31 2 *", 1)
    assert e.value.field.endswith("schedule")
    assert list(client.crons()) == []


def test_what_rules_a_queue(client: mr.Client) -> None:
    q = client.queue("q")
    with pytest.raises(mr.NotFound):
        q.config()
    everything: Any = {
        "attempts": 7, "crashes": 3, "deliveries": 0, "lease": 20.0, "max_run": 3600.0, "max_payload": 1000,
        "aging": 0.0, "retry": mr.Retry(1.0, 60.0, 3.0, "equal_jitter"), "retain_completed": 0.0,
        "retain_cancelled": 10.0,
        "retain_dead": 20.0, "cancel_grace": 5.0, "default_ttl": 600.0, "max_tasks": 100, "max_bytes": 100_000,
        "ceilings": mr.QueueCeilings(9, 8, 7, 30.0, 60.0, 5), "fairness": "none", "order": "strict", "concurrency": 4,
        "rate": mr.Rate(10, 60.0, 2), "per_key": mr.KeyLimits(1, mr.Rate(5, 0.5)), "max_workers": 2,
        "dead_letter": "dead", "limiters": ("api",),
    }  # fmt: skip
    client.limiter("api").set()
    assert set(everything) == mr.QueueSettings.__optional_keys__
    assert q.set(**everything) == 1
    got = q.config()
    assert {k: getattr(got, k) for k in everything} == everything and got.version == 1
    # An update keeps what it does not name, and None is the default.
    assert q.update(concurrency=5, rate=None, order=None) == 2
    got = q.config()
    assert (got.concurrency, got.rate, got.order, got.attempts, got.deliveries) == (5, None, "fifo", 7, 0)
    assert q.update(concurrency=5) == 2  # it is as it was
    # What is set again has defaults for all that is not named.
    assert q.set(lease=10, if_version=2) == 3
    got = q.config()
    assert (got.lease, got.attempts, got.deliveries, got.per_key, got.fairness) == (10, None, None, None, "lanes")
    with pytest.raises(mr.PreconditionFailed):
        q.set(lease=11, if_version=2)
    with pytest.raises(mr.InvalidArgument) as e:
        q.update(max_workers=-1)
    assert e.value.field.endswith("max_workers")
    with pytest.raises(TypeError, match="colour"):
        q.update(colour="red")  # type: ignore[call-arg]
    with pytest.raises(mr.InvalidArgument) as e:
        q.update(order="random")  # type: ignore[arg-type]
    assert e.value.field == "config.order"
    q.delete(if_version=3)
    assert q.update(max_tasks=3) == 1  # one that is not there is made


def test_an_update_begins_again_when_somebody_else_was_faster(client: mr.Client) -> None:
    q, other = client.queue("q"), client.queue("q")
    q.set(concurrency=3)
    get, tries = q._get, []

    def slow() -> Any:
        found = get()
        tries.append(found)
        if len(tries) == 1:
            other.update(max_workers=9)
        return found

    q._get = slow  # type: ignore[method-assign]
    assert q.update(concurrency=4) == 3 and len(tries) == 2
    assert (q.config().concurrency, q.config().max_workers) == (4, 9)


def test_keys_of_a_queue(client: mr.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from millrace_sdk import queue

    job = mr.Job[int, int]("build")
    q = client.queue("build")
    q.set(per_key=mr.KeyLimits(1))
    for key in ("app", "app", "web"):
        job.add(client, 1, key=key)
    client.raw.TaskService.Claim(queues=[{"name": "build"}], max=10)
    app, web = q.keys(sort="backlog")
    assert (app.key, app.tasks, app.ready, app.running, app.waits_for, len(app.held_by)) == (
        "app",
        2,
        1,
        1,
        "concurrency",
        1,
    )
    assert app.oldest_ready is not None and (web.key, web.ready, web.waits_for) == ("web", 0, "")
    assert (app.weight, app.concurrency, app.rate, app.pause) == (1, None, None, None)
    limits: Any = {"weight": 3, "concurrency": 2, "rate": mr.Rate(5, 60, 1)}
    assert (q.set_key("app", **limits), q.set_key("app", **limits)) == (False, True)
    assert (q.pause_key("web", "their server is down", until=LATER), q.pause_key("app")) == (False, False)
    monkeypatch.setattr(queue, "_PAGE", 1)
    app, web = q.keys()
    assert (app.weight, app.concurrency, app.rate) == (3, 2, mr.Rate(5, 60, 1))
    assert web.pause is not None and (web.pause.until, web.pause.reason) == (LATER, "their server is down")
    assert (q.resume_key("web"), q.resume_key("web")) == (False, True)
    assert q.set_key("app") is False  # it is the queue's again
    assert [(k.key, k.weight) for k in q.keys(prefix="a")] == [("app", 1)]


def test_a_queue_is_paused_listed_and_removed(client: mr.Client) -> None:
    mr.Job[int, int]("a").add(client, 1)
    client.queue("b").set()
    q = client.queue("a")
    assert (q.pause("deploy", until=LATER), q.pause("deploy", until=LATER)) == (False, True)
    s = q.stats()
    assert s.paused and s.pause is not None and (s.pause.reason, s.pause.until) == ("deploy", LATER)
    assert [(one.queue, one.ready) for one in client.queues()] == [("a", 1), ("b", 0)]
    assert [one.queue for one in client.queues(prefix="a", sort="ready", only="paused")] == ["a"]
    assert (q.resume(), q.resume()) == (False, True)
    with pytest.raises(ValueError, match="mutually exclusive"):
        q.pause(seconds=5, until=LATER)
    with pytest.raises(mr.WrongState):
        q.delete()
    q.delete(purge=True)
    assert [one.queue for one in client.queues()] == ["b"]


async def test_all_of_it_in_an_event_loop(millrace_server: DevServer) -> None:
    async with millrace_server.async_client(namespace=unique("admin")) as c:
        job = mr.Job[int, int]("n")
        made = await job.cron(c, "n", "@daily", 1, key="k", cost=2)
        assert (made.key, made.cost) == ("k", 2)
        cron = c.cron("n")
        assert (await cron.trigger()).outcome == "started"
        assert (await cron.pause(), await cron.resume()) == (False, False)
        assert [r.number for r in await cron.runs()] == [1]
        assert (await cron.get()).runs == 1 and [one.name async for one in c.crons()] == ["n"]
        assert (await c.preview_cron("@daily")).words == "at 00:00 every day"
        await cron.delete()
        q = c.queue("n")
        assert await q.set(concurrency=2) == 1
        assert await q.update(max_tasks=9) == 2
        got = await q.config()
        assert (got.concurrency, got.max_tasks) == (2, 9)
        assert (await q.set_key("k", weight=2), await q.pause_key("k"), await q.resume_key("k")) == (
            False,
            False,
            False,
        )
        assert [(k.key, k.weight) async for k in q.keys()] == [("k", 2)]  # noqa: SIM118
        assert (await q.pause(seconds=60), await q.resume()) == (False, False)
        assert [s.queue async for s in c.queues()] == ["n"]
        assert (await c.count_bulk("cancel")).count == 1
        started = await c.start_bulk("cancel", reason="over")
        assert (await c.bulk(started.id).get()).reason == "over" and [j.id for j in await c.bulks()] == [started.id]
        await c.bulk(started.id).stop()
        assert (await q.redrive()).action == "retry"
        await q.delete(purge=True)
        made_at_once = await asyncio.gather(*(c.queue("n").update(concurrency=i + 1) for i in range(3)))
        assert max(made_at_once) == 3


def test_bulk_jobs(client: mr.Client) -> None:
    job = mr.Job[int, int]("n", queue="q")
    dead = job.add(client, 1, labels={"customer": "7"})
    other = job.add(client, 2, labels={"customer": "8"})
    found = client.count_bulk("cancel", queue="q", labels={"customer": "7"}, created_from=LATER.replace(year=2020))
    assert (found.count, found.exact, [t.id for t in found.sample]) == (1, True, [dead.id])
    assert client.count_bulk("cancel", queue="q", state="ready", created_to=LATER.replace(year=2020)).count == 0
    id = client.new_id()
    started = client.start_bulk("cancel", id=id, queue="q", labels={"customer": "7"}, reason="left", rate=500)
    assert (started.id, started.action, started.reason, started.rate) == (id, "cancel", "left", 500)
    assert client.start_bulk("cancel", id=id, queue="q", labels={"customer": "7"}, reason="left", rate=500).id == id
    got = _ended(client, id)
    assert (got.state, got.matched, got.done, got.refused) == ("done", 1, 1, {})
    assert got.started_at is not None and got.ended_at is not None and got.eta is None
    assert client.task(dead.id).state == "cancelled" and client.task(other.id).state == "ready"
    assert client.bulk(id).stop() is True and [j.id for j in client.bulks()] == [id]
    client.queue("again").set()
    retried = client.start_bulk("retry", queue="q", to_queue="again", patch={"n": None})
    # A payload that is not an object becomes one, as merge patches have it.
    assert _ended(client, retried.id).done == 1 and client.task(dead.id).queue == "again"
    assert client.queue("again").redrive(kind="n").action == "retry"
    assert client.start_bulk("prioritize", queue="q", priority=7).action == "prioritize"
    with pytest.raises(mr.InvalidArgument):
        client.start_bulk("explode")  # type: ignore[arg-type]
    with pytest.raises(mr.InvalidArgument):
        client.start_bulk("cancel", state="sleepy")
    with pytest.raises(TypeError, match="colour"):
        client.start_bulk("cancel", colour="red")  # type: ignore[call-arg]
    with pytest.raises(mr.NotFound):
        client.bulk(mr.new_id()).get()


def _ended(c: mr.Client, id: str) -> mr.BulkInfo:
    while (j := c.bulk(id).get()).state == "running":
        time.sleep(0.02)
    return j


def test_a_handler_pauses_its_queue(client: mr.Client) -> None:
    from test_server import working

    job = mr.Job[int, int]("call")

    @job.handler
    def call(t: mr.Task[int], a: int) -> int:
        t.fx.queue(t.queue).pause("come back later")
        return a

    client.queue("call").set(concurrency=1)
    first, second = job.add_many(client, [1, 2])
    with working(client, job):
        assert first.wait(20) == 1
        stats = client.queue("call").stats()
        assert stats.ready == 1 and stats.pause is not None and stats.pause.reason == "come back later"
        client.queue("call").resume()
        assert second.wait(20) == 2


def test_a_recorder_has_neither_crons_nor_limits() -> None:
    for ask in (
        lambda c: mr.Job[int, int]("n").cron(c, "n", "@daily", 1),
        lambda c: list(c.crons()),
        lambda c: c.queue("n").set(concurrency=1),
        lambda c: list(c.queue("n").keys()),
    ):
        with pytest.raises(mr.InvalidArgument) as e:
            ask(Recorder())
        assert e.value.reason == "recorder"


async def test_an_async_recorder_has_no_crons() -> None:
    with pytest.raises(mr.InvalidArgument) as e:
        await mr.Job[int, int]("n").cron(AsyncRecorder(), "n", "@daily", 1)
    assert e.value.reason == "recorder"
