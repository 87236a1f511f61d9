"""The agent of the scenarios: reads commands as lines of JSON, and carries them out with this library.

    python agent.py [--async] [--mutant NAME]

sdk/scenarios/README.md describes the commands, the steps of handlers and the events.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import ctypes
import datetime
import inspect
import json
import logging
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import admin

import millrace_sdk as mr
from millrace_sdk import codec, convert

OUT = threading.Lock()


def say(line: dict[str, Any]) -> None:
    """Write one line."""
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    with OUT:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


class Unsupported(Exception):
    """The library cannot do what was asked."""


def error(e: BaseException) -> dict[str, Any]:
    """Describe an error to the runner."""
    if isinstance(e, Unsupported):
        return {"code": "UNSUPPORTED", "message": str(e)}
    if isinstance(e, mr.TaskError):
        return {
            "code": "TASK_FAILED", "state": e.state, "reason": e.reason, "task_code": e.code, "message": e.message,
            "outcome": "refused",
        }  # fmt: skip
    if isinstance(e, mr.MillraceError):
        out: dict[str, Any] = {"code": e.code, "outcome": e.outcome, "message": e.message}
        if e.op is not None:
            out["op"] = e.op
        out |= {k: v for k in ("reason", "field", "limit") if (v := getattr(e, k))}
        if e.details:
            out["details"] = dict(e.details)
        return out
    return {"code": type(e).__name__, "message": str(e), "outcome": mr.outcome_of(e)}


# Arguments and results travel as text, so that no language changes a number.


class JSONText:
    """JSON as the text that it is."""

    content_type = codec.JSON_TYPE

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, data: bytes) -> str:
        return data.decode() if data else "null"


class Base64:
    """Bytes, shown as base64."""

    content_type = codec.BYTES_TYPE

    def encode(self, value: str) -> bytes:
        return base64.b64decode(value)

    def decode(self, data: bytes) -> str:
        return base64.b64encode(data).decode()


class Checked(JSONText):
    """JSON that must fit a type."""

    TYPES = {"int": int, "float": float, "str": str, "string": str, "bool": bool, "list": list, "object": dict}

    def __init__(self, schema: Any) -> None:
        self._load = _schema(schema)

    def encode(self, value: str) -> bytes:
        self._load(json.loads(value), "")
        return value.encode()

    def decode(self, data: bytes) -> str:
        self._load(json.loads(data or b"null"), "")
        return super().decode(data)


def _schema(schema: Any) -> convert.Load:
    """Return the check of a schema: the name of a type, or those of an object's fields."""
    if isinstance(schema, str):
        name = {"integer": "int", "number": "float", "boolean": "bool", "array": "list"}.get(schema, schema)
        return convert.loader(Checked.TYPES.get(name, Any))
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        return _fields(schema["properties"], set(schema.get("required", ())))
    if isinstance(schema, dict) and isinstance(schema.get("type"), str):
        return _schema(schema["type"])
    if isinstance(schema, dict):
        return _fields(schema, set(schema))
    raise Unsupported(f"schema {schema!r}")


def _fields(fields: dict[str, Any], required: set[str]) -> convert.Load:
    loads = {k: _schema(v) for k, v in fields.items()}

    def load(v: Any, at: str) -> Any:
        if not isinstance(v, dict):
            raise convert.ConvertError("it must be an object")
        for k, one in loads.items():
            if k in v:
                one(v[k], k)
            elif k in required:
                raise convert.ConvertError(f"{k} is required")
        return v

    return load


def codec_of(name: str | None, schema: Any = None) -> Any:
    """Return the codec of a command."""
    if schema is not None:
        return Checked(schema)
    found = {None: JSONText, "json": JSONText, "text": codec.TextCodec, "bytes": Base64}.get(name)
    if found is None:
        raise Unsupported(f"codec {name}")
    return found()


def job_of(c: dict[str, Any]) -> mr.Job[Any, Any]:
    """Declare the job that a command names."""
    made = codec_of(c.get("codec"), c.get("schema"))
    result = codec_of(c.get("codec"))
    return mr.Job(c["job"], queue=c.get("queue") or c["job"], args=made, result=result)


def waits_of(c: dict[str, Any]) -> dict[str, Any]:
    """Read which tasks an add, or the effect of one, waits for."""
    o: dict[str, Any] = {k: c[k] for k in ("on_dep_failure",) if k in c}
    if "after" in c:
        o["after"] = [mr.After(a["id"], a.get("on", "completed")) for a in c["after"]]
    return o


def options_of(c: dict[str, Any]) -> dict[str, Any]:
    """Read the settings of an add."""
    o: dict[str, Any] = {
        k: c[k]
        for k in ("id", "tag", "cost", "priority", "headers", "labels", "attempts", "limiters", "batch")
        if k in c
    }
    if "task_key" in c:
        o["key"] = c["task_key"]
    for name in ("delay", "lease", "max_run", "timeout"):
        if name + "_ms" in c:
            o[name] = c[name + "_ms"] / 1000
    if "unique" in c:
        u = c["unique"]
        o["unique"] = u if isinstance(u, str) else mr.Unique(u["key"], u.get("ttl_ms", 0) / 1000 or None)
        if "until" in c or "on_conflict" in c:
            o["unique"] = mr.Unique(u, until=c.get("until", "ttl"), on_conflict=c.get("on_conflict", "return"))
    o |= waits_of(c)
    if "retry" in c:
        r = c["retry"]
        given = {k: r[k + "_ms"] / 1000 for k in ("base", "max") if k + "_ms" in r}
        o["retry"] = mr.Retry(**given)
    return o


# Effects.


def some_bytes(line: dict[str, Any], name: str) -> bytes:
    """Read text, or base64."""
    if name + "_base64" in line:
        return base64.b64decode(line[name + "_base64"])
    v = line.get(name, "")
    return v.encode() if isinstance(v, str) else json.dumps(v, separators=(",", ":")).encode()


def seconds(v: Any) -> float:
    """Read a duration: a number of seconds, or text such as 250ms or 1m30s."""
    if isinstance(v, (int, float)):
        return float(v)
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    return sum(float(n) * units[u] for n, u in re.findall(r"([0-9.]+)(ms|h|m|s)", v))


def number(v: Any) -> int | None:
    """Read a number, or decimal text."""
    return None if v is None else int(v)


def write_ops(to: mr.Changes, ops: list[dict[str, Any]]) -> None:
    """Add effects, as lines of MILLRACE_EFFECTS, to a commit that waits for nothing."""
    for o in ops:
        write_op(to, o)


async def settle_ops(to: mr.Changes, ops: list[dict[str, Any]]) -> None:
    """Add effects to a commit, which may wait for the server."""
    for o in ops:
        await settle(write_op(to, o))


def write_op(to: mr.Changes, o: dict[str, Any]) -> Any:
    """Add an effect to a commit: at once, or when what it returns is awaited."""
    op = o["op"]
    if op.startswith("kv_"):
        _write_kv(to, op, o)
    elif op == "ref_update":
        repo = to.repo(o["repo"], tag=o.get("tag", ""))
        name, new, old = o.get("ref") or o.get("name"), o.get("new", ""), o.get("old")
        repo.update(name, new, old)
    elif op == "vector_upsert":
        p = o.get("point", o)
        to.collection(o["collection"]).upsert(
            p["id"], vector=p.get("vector", ()), model=p.get("model", ""), payload=p.get("payload"),
            if_version=str(p.get("if_version", "")), if_absent=bool(p.get("if_absent")),
        )  # fmt: skip
    elif op == "vector_delete":
        to.collection(o["collection"]).delete(o["id"], if_version=str(o.get("if_version", "")))
    elif op == "task_create":
        _write_create(to, o)
    elif op == "task_cancel":
        to.cancel(o["id"], o.get("reason", ""), force=bool(o.get("force")))
    elif op == "batch_open":
        follows = {name: _follow_up(o[name]) for name in ("on_done", "on_success") if name in o}
        assert isinstance(to, (mr.Tx, mr.AsyncTx, mr.Effects))
        return to.open_batch(**{n: o[n] for n in ("id", "tag", "labels") if n in o}, **follows)
    elif op == "batch_seal":
        to.seal_batch(o["id"])
    elif op == "batch_cancel":
        to.cancel_batch(o["id"], o.get("reason", ""), rate=o.get("rate"), force=bool(o.get("force")))
    elif op == "queue_pause":
        queue = to.queue(o["queue"])
        queue.resume() if o.get("resume") else queue.pause(o.get("reason", ""), **pause_of(o))
    else:
        raise Unsupported(f"op {op}")
    return None


def pause_of(o: dict[str, Any]) -> dict[str, Any]:
    """Read when a pause ends."""
    if "for_ms" in o:
        return {"seconds": o["for_ms"] / 1000}
    return {"until": _moment(o["until"])} if "until" in o else {}


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def _write_kv(to: mr.Changes, op: str, o: dict[str, Any]) -> None:
    space = to.kv(o["keyspace"])
    rev = number(o.get("if_rev"))
    if op == "kv_put":
        space.put(some_bytes(o, "key"), some_bytes(o, "value"), if_rev=rev, if_absent=bool(o.get("if_absent")))
    elif op == "kv_delete":
        space.delete(some_bytes(o, "key"), if_rev=rev)
    elif op == "kv_add":
        space.add(
            some_bytes(o, "key"), int(o["delta"]), floor=number(o.get("floor")), ceiling=number(o.get("ceiling")),
            if_rev=rev,
        )  # fmt: skip
    elif op == "kv_delete_range":
        prefix = some_bytes(o, "prefix") if "prefix" in o or "prefix_base64" in o else None
        space.delete_range(
            prefix=prefix, start=some_bytes(o, "from"), end=some_bytes(o, "to"), count=bool(o.get("count"))
        )
    else:
        raise Unsupported(f"op {op}")


def _write_create(to: mr.Changes, o: dict[str, Any]) -> None:
    kind = o.get("kind") or o["queue"]
    more: dict[str, Any] = {
        k: o[k] for k in ("id", "tag", "key", "cost", "labels", "priority", "limiters", "batch") if k in o
    }
    if "delay" in o:
        more["delay"] = seconds(o["delay"])
    elif "delay_ms" in o:
        more["delay"] = o["delay_ms"] / 1000
    if "unique" in o:
        more["unique"] = mr.Unique(**o["unique"])
    more |= waits_of(o)
    mr.Job(kind, queue=o["queue"]).add_tx(to, _payload(o), **more)


def _follow_up(o: dict[str, Any]) -> mr.FollowUp:
    more = {k: o[k] for k in ("tag", "key", "labels", "priority") if k in o}
    return mr.Job[Any, Any](o.get("kind") or o["queue"], queue=o["queue"]).follow_up(_payload(o), **more)


def _payload(o: dict[str, Any]) -> Any:
    if "payload_base64" in o:
        return base64.b64decode(o["payload_base64"])
    return o.get("payload")


def write_checks(to: mr.Changes, checks: list[dict[str, Any]]) -> None:
    """Add conditions to a commit."""
    for k in checks:
        value = some_bytes(k, "value") if "value" in k or "value_base64" in k else None
        to.kv(k["keyspace"]).check(some_bytes(k, "key"), k["compare"], rev=number(k.get("rev")), value=value)


def committed(r: mr.Committed) -> dict[str, Any]:
    """Describe what a commit did."""

    def text(v: int | None) -> str:
        return "" if v is None else str(v)

    return {
        "revs": [text(v) for v in r.revs],
        "sums": [text(v) for v in r.sums],
        "ids": [i for i in r.ids if i],
        "replayed": r.replayed,
    }


async def in_thread(f: Callable[[], Any]) -> Any:
    """Run f in a thread of its own: commands that wait must not hold up others."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def tell(value: Any, e: BaseException | None) -> None:
        if not done.done():
            done.set_result(value) if e is None else done.set_exception(e)

    def run() -> None:
        value, wrong = None, None
        try:
            value = f()
        except BaseException as e:
            wrong = e if isinstance(e, Exception) else RuntimeError(repr(e))
        loop.call_soon_threadsafe(tell, value, wrong)

    threading.Thread(target=run, daemon=True).start()
    return await done


async def every(of: Any) -> list[Any]:
    """Go through all that a Client, or an AsyncClient, lists."""
    return [v async for v in of] if hasattr(of, "__aiter__") else list(of)


async def settle(v: Any) -> Any:
    """Await what an AsyncClient returns; a Client has returned its result already."""
    return await v if inspect.isawaitable(v) else v


# Handlers.


class Script:
    """The steps of a handler. A sync and an async handler take the same ones, in their own way of waiting."""

    def __init__(self, agent: Agent, spec: dict[str, Any]) -> None:
        self._agent = agent
        steps = spec.get("handler") or []
        self._scripts = steps if steps and isinstance(steps[0], list) else [steps]

    def steps(self, attempt: int) -> list[dict[str, Any]]:
        return self._scripts[min(attempt, len(self._scripts)) - 1]

    def begin(self, t: mr.Task[Any], a: Any) -> None:
        say({"event": "begin", "id": t.id, "job": t.kind, "attempt": t.attempt, "args": a})

    def end(self, t: mr.Task[Any], how: str) -> None:
        why = t.cancelled.why if t.cancelled else how
        say({"event": "end", "id": t.id, "attempt": t.attempt, "why": why})

    def run(self, t: mr.Task[Any], a: Any) -> Any:
        """Run the steps in a thread."""
        watch = threading.Thread(target=self._watch, args=(t, done := threading.Event()), daemon=True)
        watch.start()
        self.begin(t, a)
        how = "raised"
        try:
            for step in self.steps(t.attempt):
                if "return" in step:
                    how = "returned"
                    return self._return(step, a)
                self._step(t, step)
            how = "returned"
            return self._empty(t)
        finally:
            done.set()
            self.end(t, how)

    def _watch(self, t: mr.Task[Any], done: threading.Event) -> None:
        while not done.wait(0.02):
            if t.stopping:
                say({"event": "stopping", "id": t.id})
                return

    async def arun(self, t: mr.Task[Any], a: Any) -> Any:
        """Run the steps in an event loop."""
        watch = asyncio.ensure_future(self._awatch(t))
        self.begin(t, a)
        how = "raised"
        try:
            for step in self.steps(t.attempt):
                if "return" in step:
                    how = "returned"
                    return self._return(step, a)
                await self._astep(t, step)
            how = "returned"
            return self._empty(t)
        finally:
            watch.cancel()
            self.end(t, how)

    async def _awatch(self, t: mr.Task[Any]) -> None:
        await t.stopping
        say({"event": "stopping", "id": t.id})

    def _empty(self, t: mr.Task[Any]) -> Any:
        return "" if not t.content_type.startswith(codec.JSON_TYPE) else "null"

    def _return(self, step: dict[str, Any], a: Any) -> Any:
        return step["return"].replace("$args", a if isinstance(a, str) else "")

    def _step(self, t: mr.Task[Any], step: dict[str, Any]) -> None:
        if "gate" in step:
            say({"event": "gate", "id": t.id, "name": step["gate"]})
            gate = self._agent.gate(step["gate"])
            while not gate.wait(0.02):
                t.raise_if_cancelled()
        elif "sleep_ms" in step:
            t.cancelled.wait(step["sleep_ms"] / 1000)
            t.raise_if_cancelled()
        elif "add" in step:
            job = job_of(step["add"])
            job.add(t.client, step["add"].get("args", "null"), **options_of(step["add"]))
        elif "commit" in step:
            tx = t.tx()
            write_checks(tx, step["commit"].get("checks", []))
            write_ops(tx, step["commit"].get("ops", []))
            tx.commit()
        else:
            self._common(t, step)

    async def _astep(self, t: mr.Task[Any], step: dict[str, Any]) -> None:
        if "gate" in step:
            say({"event": "gate", "id": t.id, "name": step["gate"]})
            gate = self._agent.gate(step["gate"])
            while not gate.is_set():
                await asyncio.sleep(0.01)
        elif "sleep_ms" in step:
            await asyncio.sleep(step["sleep_ms"] / 1000)
        elif "add" in step:
            job = job_of(step["add"])
            await settle(job.add(t.client, step["add"].get("args", "null"), **options_of(step["add"])))
        elif "commit" in step:
            tx = t.tx()
            write_checks(tx, step["commit"].get("checks", []))
            await settle_ops(tx, step["commit"].get("ops", []))
            await tx.commit()
        else:
            self._common(t, step)

    def _common(self, t: mr.Task[Any], step: dict[str, Any]) -> None:
        """Take a step that both kinds of handlers take alike."""
        if "fx" in step:
            write_ops(t.fx, step["fx"])
        elif "on_refused" in step:
            ops = step["on_refused"]
            t.on_refused(lambda e: write_ops(t.fx, ops))
        elif "block_ms" in step:
            time.sleep(step["block_ms"] / 1000)
        elif "hold_gil_ms" in step:
            ctypes.PyDLL(None).usleep(step["hold_gil_ms"] * 1000)
        elif "exit" in step:
            os._exit(step["exit"])
        else:
            self._end(step)

    def _end(self, step: dict[str, Any]) -> None:
        message = step.get("message", "")
        if "fatal" in step:
            raise mr.Fatal(step["fatal"], code=step.get("code", ""))
        if "fail" in step:
            e = RuntimeError(step["fail"])
            if "code" in step:
                e.code = step["code"]  # type: ignore[attr-defined]
            raise e
        if "retry_in_ms" in step:
            raise mr.RetryIn(step["retry_in_ms"] / 1000, message, code=step.get("code", ""))
        if "snooze_ms" in step:
            raise mr.Snooze(step["snooze_ms"] / 1000)
        if "release" in step:
            raise mr.Release()
        panic = step.get("panic")
        if panic == "exit":
            raise SystemExit(3)
        if panic == "stack":
            self._end(step)
        if panic == "reject":
            raise RuntimeError("an unhandled rejection")
        raise Unsupported(f"step {step}")


class Agent:
    """One client, at most one worker, and the commands."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async
        self.client: Any = None
        self.opened: dict[str, Any] = {}
        self.worker: mr.Worker | None = None
        self.worker_ended = threading.Event()
        self.exiting = False
        self._forks = threading.Lock()
        self._gates: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def gate(self, name: str) -> threading.Event:
        with self._lock:
            return self._gates.setdefault(name, threading.Event())

    async def do(self, c: dict[str, Any]) -> Any:
        """Carry out a command."""
        word = c["do"]
        f = getattr(self, "do_" + word, None)
        if f is None:
            raise Unsupported(word)
        if not self.is_async and word not in ("worker", "gate", "open", "set_token"):
            return await in_thread(lambda: asyncio.run(f(c)))
        return await f(c)

    async def do_open(self, c: dict[str, Any]) -> Any:
        self.opened = c
        self.client = self.make()
        return {}

    def make(self) -> Any:
        c = self.opened
        given: dict[str, Any] = {"namespace": c.get("namespace"), "token": c.get("token"), "ledger": c.get("ledger")}
        if "timeout_ms" in c:
            given["timeout"] = c["timeout_ms"] / 1000
        if "transport" in c:
            given["transport"] = {"grpc": "stream"}.get(c["transport"], c["transport"])
        url = c.get("address") or ",".join(c["addresses"])
        return (mr.AsyncClient if self.is_async else mr.Client)(url, tls=False, **given)

    async def do_set_token(self, c: dict[str, Any]) -> Any:
        self.client.set_token(c["token"])
        return {}

    async def do_add(self, c: dict[str, Any]) -> Any:
        h = await settle(job_of(c).add(self.client, c.get("args", "null"), **options_of(c)))
        return {"id": h.id, "replayed": h.replayed, "replaced": h.replaced}

    def _pairs(self, c: dict[str, Any]) -> tuple[Any, Any]:
        """Make the tasks of add_many, each of which may have an id of its own."""
        job, o = job_of(c), options_of(c)
        ids = c.get("ids") or [None] * len(c["args"])
        specs = [job._spec(a, o | ({"id": i} if i else {})) for a, i in zip(c["args"], ids, strict=True)]
        return [(job, s) for s in specs], o

    async def do_add_many(self, c: dict[str, Any]) -> Any:
        pairs, o = self._pairs(c)
        try:
            handles = await settle(self.client._add_specs(pairs, o))
        except mr.BatchError as e:
            return {
                "ids": [h.id if h else "" for h in e.handles],
                "errors": [error(x) if x is not None else None for x in e.errors],
            }
        return {"ids": [h.id for h in handles], "errors": [None] * len(handles)}

    async def do_add_all(self, c: dict[str, Any]) -> Any:
        pairs, o = self._pairs(c)
        return {"ids": [h.id for h in await settle(self.client._add_specs_atomic(pairs, o))]}

    async def do_wait(self, c: dict[str, Any]) -> Any:
        job: mr.Job[Any, Any] = mr.Job("any", result=codec_of(c.get("codec")))
        timeout = c["timeout_ms"] / 1000 if "timeout_ms" in c else None
        return {"result": await settle(self.client.handle(job, c["id"]).wait(timeout))}

    async def do_get(self, c: dict[str, Any]) -> Any:
        t = await settle(self.client.task(c["id"]))
        return {
            "state": t.state, "reason": t.reason, "attempt": t.attempt, "failures": t.failures, "crashes": t.crashes,
            "snoozes": t.snoozes, "task_code": t.error_code, "message": t.error_message, "limiters": list(t.limiters),
            "batch": t.batch,
        }  # fmt: skip

    async def do_commit(self, c: dict[str, Any]) -> Any:
        tx = self.client.tx()
        write_checks(tx, c.get("checks", []))
        await settle_ops(tx, c.get("ops", []))
        timeout = {"timeout": c["timeout_ms"] / 1000} if "timeout_ms" in c else {}
        return committed(await settle(tx.commit(**timeout)))

    async def do_kv_get(self, c: dict[str, Any]) -> Any:
        item = await settle(self.client.kv(c["keyspace"]).get(some_bytes(c, "key")))
        if not item.found:
            return None
        writer = item.writer and {"task": item.writer.task, "token": str(item.writer.token)}
        return {"value_base64": base64.b64encode(item.value).decode(), "rev": str(item.rev), "writer": writer}

    async def do_cancel(self, c: dict[str, Any]) -> Any:
        await settle(self.client.cancel(c["id"], c.get("reason", ""), force=bool(c.get("force"))))
        return {}

    async def do_gate(self, c: dict[str, Any]) -> Any:
        self.gate(c["name"]).set()
        return {}

    # Crons, and what rules queues: admin.py has how they are shown.

    async def do_cron_set(self, c: dict[str, Any]) -> Any:
        given = options_of(c) | {k: c[k] for k in ("zone", "overlap", "catch_up", "paused", "if_version") if k in c}
        given |= {k: _moment(c[k]) for k in ("start", "end") if k in c}
        if "jitter_ms" in c:
            given["jitter"] = c["jitter_ms"] / 1000
        made = job_of(c).cron(self.client, c["name"], c["schedule"], c.get("args", "null"), **given)
        return admin.cron(await settle(made))

    async def do_cron_get(self, c: dict[str, Any]) -> Any:
        return admin.cron(await settle(self.client.cron(c["name"]).get()))

    async def do_crons(self, c: dict[str, Any]) -> Any:
        return {"crons": [admin.cron(one) for one in await every(self.client.crons())]}

    async def do_cron_pause(self, c: dict[str, Any]) -> Any:
        return {"replayed": await settle(self.client.cron(c["name"]).pause())}

    async def do_cron_resume(self, c: dict[str, Any]) -> Any:
        return {"replayed": await settle(self.client.cron(c["name"]).resume())}

    async def do_cron_trigger(self, c: dict[str, Any]) -> Any:
        return admin.run(await settle(self.client.cron(c["name"]).trigger()))

    async def do_cron_runs(self, c: dict[str, Any]) -> Any:
        return {"runs": [admin.run(r) for r in await settle(self.client.cron(c["name"]).runs())]}

    async def do_cron_delete(self, c: dict[str, Any]) -> Any:
        await settle(self.client.cron(c["name"]).delete())
        return {}

    async def do_cron_preview(self, c: dict[str, Any]) -> Any:
        made = self.client.preview_cron(c["schedule"], zone=c.get("zone", ""), count=c.get("count", 5))
        return admin.preview(await settle(made))

    async def do_queue_get(self, c: dict[str, Any]) -> Any:
        return admin.config(await settle(self.client.queue(c["queue"]).config()))

    async def do_queue_set(self, c: dict[str, Any]) -> Any:
        more = {"if_version": c["if_version"]} if "if_version" in c else {}
        version = await settle(self.client.queue(c["queue"]).set(**more, **admin.settings(c["settings"])))
        return {"version": str(version)}

    async def do_queue_update(self, c: dict[str, Any]) -> Any:
        version = await settle(self.client.queue(c["queue"]).update(**admin.settings(c["settings"])))
        return {"version": str(version)}

    async def do_queue_delete(self, c: dict[str, Any]) -> Any:
        await settle(self.client.queue(c["queue"]).delete(purge=bool(c.get("purge"))))
        return {}

    async def do_queue_pause(self, c: dict[str, Any]) -> Any:
        q, reason, more = self.client.queue(c["queue"]), c.get("reason", ""), pause_of(c)
        paused = q.pause_key(c["key"], reason, **more) if "key" in c else q.pause(reason, **more)
        return {"replayed": await settle(paused)}

    async def do_queue_resume(self, c: dict[str, Any]) -> Any:
        q = self.client.queue(c["queue"])
        return {"replayed": await settle(q.resume_key(c["key"]) if "key" in c else q.resume())}

    async def do_queue_key(self, c: dict[str, Any]) -> Any:
        given = {k: c[k] for k in ("weight", "concurrency") if k in c}
        made = self.client.queue(c["queue"]).set_key(c["key"], rate=admin.rate(c.get("rate")), **given)
        return {"replayed": await settle(made)}

    async def do_queue_keys(self, c: dict[str, Any]) -> Any:
        given = {k: c[k] for k in ("sort", "prefix") if k in c}
        return {"keys": [admin.key(k) for k in await every(self.client.queue(c["queue"]).keys(**given))]}

    async def do_bulk_start(self, c: dict[str, Any]) -> Any:
        return admin.bulk(await settle(self.client.start_bulk(c["action"], **admin.bulk_options(c))))

    async def do_bulk_count(self, c: dict[str, Any]) -> Any:
        n = await settle(self.client.count_bulk(c["action"], **admin.bulk_options(c)))
        return {"count": n.count, "exact": n.exact, "sample": [t.id for t in n.sample]}

    async def do_bulk_get(self, c: dict[str, Any]) -> Any:
        return admin.bulk(await settle(self.client.bulk(c["id"]).get()))

    async def do_bulks(self, c: dict[str, Any]) -> Any:
        return {"bulks": [admin.bulk(j) for j in await settle(self.client.bulks())]}

    async def do_bulk_stop(self, c: dict[str, Any]) -> Any:
        return {"replayed": await settle(self.client.bulk(c["id"]).stop())}

    async def do_redrive(self, c: dict[str, Any]) -> Any:
        given = admin.bulk_options(c)
        return admin.bulk(await settle(self.client.queue(given.pop("queue")).redrive(**given)))

    # Limiters and batches.

    async def do_limiter_set(self, c: dict[str, Any]) -> Any:
        given = {k: c[k] for k in ("concurrency", "if_version") if k in c}
        made = self.client.limiter(c["name"]).set(rate=admin.rate(c.get("rate")), **given)
        return admin.limiter(await settle(made))

    async def do_limiter_get(self, c: dict[str, Any]) -> Any:
        return admin.limiter(await settle(self.client.limiter(c["name"]).get()))

    async def do_limiters(self, c: dict[str, Any]) -> Any:
        return {"limiters": [admin.limiter(one) for one in await every(self.client.limiters())]}

    async def do_limiter_delete(self, c: dict[str, Any]) -> Any:
        given = {k: c[k] for k in ("if_version",) if k in c}
        await settle(self.client.limiter(c["name"]).delete(**given))
        return {}

    async def do_batch_open(self, c: dict[str, Any]) -> Any:
        given: dict[str, Any] = {k: c[k] for k in ("id", "tag", "labels") if k in c}
        for name in ("on_done", "on_success"):
            if name in c:
                follow = c[name]
                given[name] = job_of(follow).follow_up(follow.get("args", "null"), **options_of(follow))
        b = await settle(self.client.open_batch(**given))
        return {"id": b.id, "replayed": b.replayed}

    async def do_batch_get(self, c: dict[str, Any]) -> Any:
        return admin.batch(await settle(self.client.batch(c["id"]).get()))

    async def do_batch_seal(self, c: dict[str, Any]) -> Any:
        return admin.batch(await settle(self.client.batch(c["id"]).seal()))

    async def do_batch_cancel(self, c: dict[str, Any]) -> Any:
        made = self.client.batch(c["id"]).cancel(
            c.get("reason", ""), rate=c.get("per_second"), force=bool(c.get("force"))
        )
        return admin.batch(await settle(made))

    async def do_batch_wait(self, c: dict[str, Any]) -> Any:
        timeout = c["timeout_ms"] / 1000 if "timeout_ms" in c else None
        return admin.batch(await settle(self.client.batch(c["id"]).wait(timeout)))

    async def do_batches(self, c: dict[str, Any]) -> Any:
        return {"batches": [admin.batch(one) for one in await every(self.client.batches())]}

    # The worker.

    async def do_worker(self, c: dict[str, Any]) -> Any:
        if self.worker is not None:
            raise Unsupported("a second worker")
        jobs: list[mr.Job[Any, Any]] = []
        for spec in c["jobs"]:
            job = job_of(spec)
            script = Script(self, spec)
            job.handler(script.arun if self.is_async else script.run)
            jobs.append(job)
        more: dict[str, Any] = {k: c[k] for k in ("slots", "queues", "weights", "in_order", "renew") if k in c}
        if "drain_ms" in c:
            more["drain"] = c["drain_ms"] / 1000
        if "stall_ms" in c:
            more["stall"] = c["stall_ms"] / 1000
        if "lease_ms" in c:
            more["lease"] = c["lease_ms"] / 1000
        self.worker = mr.Worker(self.client, jobs, on_settled=self._settled, **more)
        self.worker_ended.clear()
        threading.Thread(target=self._serve, daemon=True).start()
        return {}

    def _serve(self) -> None:
        assert self.worker is not None
        line: dict[str, Any] = {"event": "exit"}
        try:
            self.worker.run(signals=False)
        except BaseException as e:
            line["err"] = error(e)
        self.worker = None
        say(line)
        self.worker_ended.set()

    def _settled(self, s: mr.Settled) -> None:
        line: dict[str, Any] = {"event": "settled", "id": s.id, "attempt": s.attempt, "op": s.op}
        line |= {"state": s.state, "replayed": s.replayed} if s.error is None else {"err": error(s.error)}
        say(line)

    async def do_stop(self, c: dict[str, Any]) -> Any:
        w = self.worker
        if w is not None:
            w.stop()
            await in_thread(self.worker_ended.wait)
        return {}

    async def do_close(self, c: dict[str, Any]) -> Any:
        if self.client is not None:
            await settle(self.client.close())
        self.exiting = True
        return {}

    # Forks.

    async def do_fork(self, c: dict[str, Any]) -> Any:
        how = c["how"]
        command = c.get("command") or c.get("run")
        if command is None:
            raise Unsupported("fork without a command")
        # A fork that runs while another one begins would inherit the locks of the package multiprocessing.
        with self._forks:
            return self._fork(c, how, command)

    def _fork(self, c: dict[str, Any], how: str, command: dict[str, Any]) -> Any:
        new = c.get("client", "inherited") == "new"
        if how == "os.fork":
            return self._os_fork(command, new)
        ctx = multiprocessing.get_context(how)
        near, far = ctx.Pipe()
        inherited = self if how == "fork" else None
        p = ctx.Process(target=_in_child, args=(inherited, self.opened, self.is_async, command, new, far))
        p.start()
        if not near.poll(60):
            p.kill()
            raise RuntimeError("the child does not answer")
        answer = near.recv()
        p.join(10)
        return _unwrap(answer)

    def _os_fork(self, command: dict[str, Any], new: bool) -> Any:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                answer = _child(self, command, new)
                os.write(write, json.dumps(answer).encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as f:
            text = f.read()
        os.waitpid(pid, 0)
        return _unwrap(json.loads(text))

    # Speed.

    async def do_bench(self, c: dict[str, Any]) -> Any:
        import bench

        return await bench.run(self, c)


def _unwrap(answer: dict[str, Any]) -> Any:
    if "err" in answer:
        e = answer["err"]
        raise mr.MillraceError(e.get("message", ""), code=e["code"], outcome=e.get("outcome", "refused"))
    return answer["ok"]


def _child(agent: Agent, command: dict[str, Any], new: bool) -> dict[str, Any]:
    """Carry out a command in a child, and describe its answer."""
    answer: dict[str, Any] = {}

    def run() -> None:
        try:
            if new:
                agent.client = agent.make()
            answer["ok"] = asyncio.run(getattr(agent, "do_" + command["do"])(command))
        except BaseException as e:
            answer["err"] = error(e)

    # In a thread of its own: the loop that runs in the parent's is not the child's.
    t = threading.Thread(target=run)
    t.start()
    t.join()
    return answer


def _in_child(inherited: Any, opened: Any, is_async: bool, command: Any, new: bool, to: Any) -> None:
    agent = inherited
    if agent is None:
        agent = Agent(is_async)
        agent.opened = opened
        new = True
    to.send(_child(agent, command, new))


# Planted bugs.


def plant(name: str) -> None:
    """Patch the library with a bug, so that each scenario is seen to fail where it must."""
    import mutants

    mutants.plant(name)


class _Lines(logging.Handler):
    """Tells the runner of lines of the log."""

    def emit(self, record: logging.LogRecord) -> None:
        say({"event": "log", "text": record.getMessage()})


async def serve(agent: Agent) -> None:
    """Read commands until the end of standard input."""
    loop = asyncio.get_running_loop()
    commands: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        # Not by sys.stdin, whose lock a child of a fork would find taken for ever.
        rest = b""
        while data := os.read(0, 1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                loop.call_soon_threadsafe(commands.put_nowait, line.decode())
        loop.call_soon_threadsafe(commands.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    signals = 0
    tasks: set[asyncio.Task[None]] = set()

    def stop() -> None:
        nonlocal signals
        signals += 1
        w = agent.worker
        if w is not None:
            w.stop()
        if signals == 1:
            tasks.add(loop.create_task(end()))

    async def end() -> None:
        if agent.worker is not None:
            await in_thread(agent.worker_ended.wait)
        await agent.do_close({})
        finish()

    for s in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(s, stop)

    async def one(c: dict[str, Any]) -> None:
        line: dict[str, Any] = {"i": c.get("i")}
        try:
            line["ok"] = await agent.do(c)
        except BaseException as e:
            if not isinstance(e, (mr.MillraceError, mr.TaskError, Unsupported)):
                traceback.print_exc(file=sys.stderr)
            line["err"] = error(e)
        say(line)
        if agent.exiting:
            finish()

    while (text := await commands.get()) is not None:
        if text.strip():
            task = loop.create_task(one(json.loads(text)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    await agent.do_close({})
    finish()


def finish() -> None:
    """End the process; threads that wait are left where they are."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--async", dest="is_async", action="store_true")
    parser.add_argument("--mutant")
    args = parser.parse_args()
    log = logging.getLogger("millrace")
    lines = _Lines()
    lines.setLevel(logging.WARNING)
    log.addHandler(lines)
    if args.mutant:
        plant(args.mutant)
    asyncio.run(serve(Agent(args.is_async)))


if __name__ == "__main__":
    main()
