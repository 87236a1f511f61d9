"""The agent's word bench: how fast the library is, and what of the processor it takes."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import Any

import millrace_sdk as mr


@dataclass
class Args:
    """The arguments of a task."""

    n: int
    s: str = "abc"


def _answer(count: int, began: float, cpu: float, times: list[float]) -> dict[str, Any]:
    took = time.perf_counter() - began
    times.sort()

    def at(q: float) -> int:
        return round(times[min(int(len(times) * q), len(times) - 1)] * 1e6) if times else 0

    return {
        "tasks": count,
        "seconds": took,
        "cpu_seconds": time.process_time() - cpu,
        "p50_us": at(0.5),
        "p99_us": at(0.99),
    }


async def run(agent: Any, c: dict[str, Any]) -> dict[str, Any]:
    """Run one measurement."""
    what, queue = c["what"], c.get("queue", "bench")
    count, callers, slots = c.get("tasks", 10_000), c.get("callers", 32), c.get("slots", 128)
    pause = c.get("pause_ms", 0) / 1000
    if what == "add_many":
        return await _add_many(agent, queue, count)
    if what == "unary":
        return await _unary(agent, queue, count)
    job: mr.Job[Args, int] = mr.Job[Args, int]("bench", queue=queue)
    worker, done = None, threading.Event()
    if what == "cycle":
        worker = _worker(agent, job, slots, count, done)
    times: list[float] = []
    began, cpu = time.perf_counter(), time.process_time()
    share = [count // callers + (i < count % callers) for i in range(callers)] if what != "one" else [count]
    if agent.is_async:

        async def caller(n: int) -> None:
            for i in range(n):
                t = time.perf_counter()
                await job.add(agent.client, Args(i))
                times.append(time.perf_counter() - t)
                if pause:
                    await asyncio.sleep(pause)

        await asyncio.gather(*(caller(n) for n in share))
        while worker is not None and not done.is_set():
            await asyncio.sleep(0.005)
    else:

        def calls(n: int) -> None:
            for i in range(n):
                t = time.perf_counter()
                job.add(agent.client, Args(i))
                times.append(time.perf_counter() - t)
                if pause:
                    time.sleep(pause)

        threads = [threading.Thread(target=calls, args=(n,)) for n in share]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if worker is not None:
            done.wait()
    out = _answer(count, began, cpu, times)
    if worker is not None:
        worker[0].stop()
        worker[1].join()
    return out


def _worker(agent: Any, job: Any, slots: int, count: int, done: threading.Event) -> Any:
    left = [count]

    def settled(s: mr.Settled) -> None:
        left[0] -= 1
        if left[0] == 0:
            done.set()

    async def ahandle(t: mr.Task[Any], a: Args) -> int:
        t.fx.kv("bench").put(t.id, "x")
        return a.n

    def handle(t: mr.Task[Any], a: Args) -> int:
        t.fx.kv("bench").put(t.id, "x")
        return a.n

    job.handler(ahandle if agent.is_async else handle)
    w = mr.Worker(agent.client, [job], slots=slots, on_settled=settled)
    thread = threading.Thread(target=w.run, kwargs={"signals": False})
    thread.start()
    return w, thread


async def _add_many(agent: Any, queue: str, count: int) -> dict[str, Any]:
    job: mr.Job[Args, int] = mr.Job[Args, int]("bench", queue=queue)
    began, cpu = time.perf_counter(), time.process_time()
    made = job.add_many(agent.client, [Args(i) for i in range(count)])
    if agent.is_async:
        await made
    return _answer(count, began, cpu, [])


async def _unary(agent: Any, queue: str, count: int) -> dict[str, Any]:
    raw, times = agent.client.raw, []
    began, cpu = time.perf_counter(), time.process_time()
    for i in range(count):
        t = time.perf_counter()
        spec = {"queue": queue, "kind": "bench", "payload": b'{"n":1,"s":"abc"}', "id": mr.new_id()}
        for method, request in (
            ("Create", {"task": spec}),
            ("Claim", {"queues": [{"name": queue}], "max": 1, "wait": {"seconds": 1}}),
        ):
            got = getattr(raw.TaskService, method)(**request)
            got = await got if agent.is_async else got
        item = {"id": got.tasks[0].id, "token": got.tasks[0].token, "complete": {"result": str(i).encode()}}
        put = {"kv_put": {"keyspace": "bench", "key": spec["id"].encode(), "value": b"x"}}
        settled = raw.TaskService.Settle(items=[item | {"effects": {"ops": [put]}}])
        if agent.is_async:
            await settled
        times.append(time.perf_counter() - t)
    return _answer(count, began, cpu, times)
