"""Helpers for the tests of programs that use Millrace: none of them needs a server but dev_server.

run_handler and arun_handler run a handler once and show what it did; a Recorder stands for a client; dev_server starts
a server of its own in a temporary directory, and so does the fixture millrace_server of pytest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from . import _effects, codec, errors
from ._core import place, wire
from ._core.lane import Attempt
from ._run import Invocation
from .aio import AsyncClient
from .client import Client
from .job import Job
from .task import Runtime, Signal, Task
from .tx import Changes
from .types import At, Committed

A = TypeVar("A")
R = TypeVar("R")


@dataclass
class Run(Generic[R]):
    """What one attempt of a handler came to."""

    id: str
    settle: str = ""  # complete, fail, snooze, stop or release
    result: R | None = None  # of an attempt that completed
    effects: list[dict[str, Any]] = field(default_factory=list)  # as lines of MILLRACE_EFFECTS
    checks: list[dict[str, Any]] = field(default_factory=list)
    fatal: bool = False  # with fail: no further attempt
    code: str = ""  # of a failure, as the server would keep it
    message: str = ""
    delay: float | None = None  # seconds that RetryIn or Snooze asked for
    progress: tuple[int, str] | None = None  # the last one
    log: list[str] = field(default_factory=list)
    checkpoint: bytes | None = None
    commits: list[list[dict[str, Any]]] = field(default_factory=list)  # effects of t.tx(), in mid-task
    task: Task[Any] | None = None
    specs: list[Any] = field(default_factory=list, repr=False)  # messages of the tasks among the effects


class _TestRuntime(Runtime):
    """Stands for a worker."""

    def __init__(self, out: Run[Any], is_async: bool, client: Any) -> None:
        self.stopping = Signal()
        self.client = client
        self._out = out
        self._is_async = is_async

    def tx(self, t: Task[Any]) -> Any:
        return _Recording(self._out, self._is_async)

    def progress(self, t: Task[Any], percent: int, message: str) -> None:
        self._out.progress = (percent, message)

    def log(self, t: Task[Any], line: str) -> None:
        self._out.log.append(line)

    def save(self, t: Task[Any], data: bytes) -> Any:
        self._out.checkpoint = t._checkpoint = data or None
        return _done(None) if self._is_async else None


async def _done(v: Any) -> Any:
    return v


class _Recording(Changes):
    """A transaction in mid-task, which is noted."""

    def __init__(self, out: Run[Any], is_async: bool) -> None:
        super().__init__()
        self._out = out
        self._is_async = is_async

    def commit(self, timeout: Any = None) -> Any:
        """Note what would be committed."""
        self._out.commits.append([line for op in self._ops for line in _effects.effect(op)])
        n = len(self._ops)
        answer = Committed([None] * n, [None] * n, [None] * n, [None] * n, [None] * n, [None] * n, False, At(0, 0))
        return _done(answer) if self._is_async else answer


def _begin(
    job: Job[Any, Any],
    args: Any,
    client: Any,
    attempt: int,
    id: str | None,
    headers: Mapping[str, str] | None,
    checkpoint: bytes | None,
    tag: str,
    cancelled: bool,
    stopping: bool,
) -> tuple[Run[Any], Invocation, Attempt]:
    """Make the attempt of a task that a test describes."""
    spec = job._spec(args, {})
    spec.id, spec.tag = id or place.new_id(), tag
    for name, value in (headers or {}).items():
        spec.headers.add(name=name, value=value)
    out, run, a = _begin_spec(job, spec, client, attempt, checkpoint or b"")
    t = a.owner
    if cancelled:
        t.cancelled.set("cancelled", "cancelled")
        a.cancelled = True
    if stopping:
        t.stopping.set("the worker drains")
    return out, run, a


def _begin_spec(
    job: Job[Any, Any], spec: Any, client: Any, attempt: int = 1, checkpoint: bytes = b""
) -> tuple[Run[Any], Invocation, Attempt]:
    """Make an attempt of a task."""
    m = wire.Assignment(
        id=spec.id,
        token=1,
        attempt=attempt,
        queue=spec.queue,
        kind=spec.kind,
        payload=spec.payload,
        content_type=spec.content_type,
        priority=spec.priority,
        lease_ms=60_000,
        lease_left_ms=60_000,
        max_attempts=spec.max_attempts or 5,
        created_ms=int(time.time() * 1000),
        checkpoint=checkpoint,
        tag=spec.tag,
        headers=spec.headers,
    )
    out: Run[Any] = Run(m.id)
    a = Attempt(None, m, 0.0)
    t: Task[Any] = Task(_TestRuntime(out, job.is_async, client), m)
    t._attempt, a.owner = a, t
    out.task = t
    return out, Invocation(job, t, a), a


def _finish(job: Job[Any, Any], out: Run[Any], a: Attempt) -> Run[Any]:
    if a.cancelled and a.op != "complete":
        a.stop()
    item = wire.SettleItem.FromString(a.item)
    out.settle = a.op
    if a.op == "complete":
        out.result = codec.decode_with(job.result_codec, item.complete.result, item.complete.result_type)
        out.effects = [line for op in item.effects.ops for line in _effects.effect(op)]
        out.checks = [_effects.check(c) for c in item.effects.conditions]
        out.specs = [op.task_create for op in item.effects.ops if op.WhichOneof("op") == "task_create"]
    elif a.op == "fail":
        out.fatal, out.code, out.message = item.fail.fatal, item.fail.error.code, item.fail.error.message
        if item.fail.HasField("retry_after"):
            out.delay = wire.span(item.fail.retry_after)
    elif a.op == "snooze":
        out.delay = wire.span(item.snooze.delay)
    return out


def run_handler(
    job: Job[A, R],
    args: A,
    *,
    attempt: int = 1,
    id: str | None = None,
    headers: Mapping[str, str] | None = None,
    checkpoint: bytes | None = None,
    tag: str = "",
    cancelled: bool = False,
    stopping: bool = False,
    client: Any = None,
) -> Run[R]:
    """Run a handler once, as a worker would, without a server. An async one runs in an event loop of its own."""
    out, run, a = _begin(job, args, client, attempt, id, headers, checkpoint, tag, cancelled, stopping)
    if job.is_async:
        asyncio.run(run.acall())
    else:
        run.call()
    return _finish(job, out, a)


async def arun_handler(
    job: Job[A, R],
    args: A,
    *,
    attempt: int = 1,
    id: str | None = None,
    headers: Mapping[str, str] | None = None,
    checkpoint: bytes | None = None,
    tag: str = "",
    cancelled: bool = False,
    stopping: bool = False,
    client: Any = None,
) -> Run[R]:
    """Run a handler once, as run_handler does, within an event loop."""
    out, run, a = _begin(job, args, client, attempt, id, headers, checkpoint, tag, cancelled, stopping)
    if job.is_async:
        await run.acall()
    else:
        await asyncio.to_thread(run.call)
    return _finish(job, out, a)


class _Records:
    """What both recorders keep: tasks, their results, and keys."""

    def __init__(self) -> None:
        self.specs: list[Any] = []  # messages of the tasks that were added, in their order
        self.runs: list[Run[Any]] = []  # of drain, in their order
        self.keys: dict[tuple[str, bytes], bytes] = {}
        self._drained = 0
        self._items: dict[str, Any] = {}  # settles by the ids of tasks

    def take(self, specs: list[Any]) -> None:
        for spec in specs:
            spec.id = spec.id or place.new_id()
        self.specs += specs

    def apply(self, ops: list[Any]) -> list[Any]:
        """Apply ops of a commit: keys in memory, tasks to the list. Other ops are only noted."""
        results = []
        for op in ops:
            r = wire.message("OpResult")()
            kind = op.WhichOneof("op")
            m = getattr(op, kind)
            if kind == "task_create":
                self.take([m])
                r.task = m.id
            elif kind == "kv_put":
                self.keys[m.keyspace, m.key] = m.value
                r.rev = len(self.keys)
            elif kind == "kv_delete":
                r.existed = self.keys.pop((m.keyspace, m.key), None) is not None
            elif kind == "kv_add":
                r.sum = int(self.keys.get((m.keyspace, m.key), b"0")) + m.delta
                self.keys[m.keyspace, m.key] = str(r.sum).encode()
            results.append(r)
        return results

    def added(self, job: Job[A, Any]) -> list[A]:
        return [codec.decode_with(job.args_codec, s.payload, s.content_type) for s in self.specs if s.kind == job.name]

    def next(self, by_kind: dict[str, Job[Any, Any]]) -> Iterator[tuple[Job[Any, Any], Any]]:
        """Go through the tasks that no drain has run, those that are added meanwhile too."""
        while self._drained < len(self.specs):
            spec = self.specs[self._drained]
            self._drained += 1
            job = by_kind.get(spec.kind)
            if job is not None:
                yield job, spec

    def ran(self, run: Run[Any], item: Any) -> None:
        self.runs.append(run)
        self._items[run.id] = item
        self.apply(list(item.effects.ops))

    def ended(self, id: str) -> Any:
        """Return the message of a task that drain has run."""
        item = self._items.get(id)
        if item is None:
            raise errors.NotFound(f"task {id} was not run: call drain first")
        t = wire.message("Task")(id=id)
        if item.WhichOneof("outcome") == "complete":
            t.state, t.has_result = 5, True
            t.result, t.result_type = item.complete.result, item.complete.result_type
        else:
            t.state, t.reason = 6, "fatal" if item.fail.fatal else "max_attempts"
            t.error.CopyFrom(item.fail.error)
        return t


class Recorder(Client):
    """Stands for a client in tests: it keeps what is added and committed, and dials nothing.

    added shows the arguments of the tasks of a job; drain runs their handlers, and those of follow-up tasks. Keys are
    kept in memory, without revisions and bounds.
    """

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1", token="", namespace="default", tls=False)
        self.records = _Records()

    def added(self, job: Job[A, Any]) -> list[A]:
        """Return the arguments of the tasks of a job that were added, in their order."""
        return self.records.added(job)

    def drain(self, jobs: list[Job[Any, Any]]) -> list[Run[Any]]:
        """Run the tasks of jobs that were added, and those that they add, each once. Async handlers run in a loop."""
        first = len(self.records.runs)
        for job, spec in self.records.next({j.name: j for j in jobs}):
            out, run, a = _begin_spec(job, spec, self)
            asyncio.run(run.acall()) if job.is_async else run.call()
            self.records.ran(_finish(job, out, a), wire.SettleItem.FromString(a.item))
        return self.records.runs[first:]

    def close(self, timeout: float = 0.0) -> None:
        """Do nothing: there is no connection."""

    def _engine(self) -> Any:
        raise errors.InvalidArgument("a Recorder has no server", reason="recorder")

    def _partitions(self) -> int:
        return 1

    def _add_specs(self, pairs: list[tuple[Any, Any]], o: dict[str, Any]) -> Any:
        self.records.take([s for _, s in pairs])
        return [self._handle(job, s.id, False) for job, s in pairs]

    _add_specs_atomic = _add_specs

    def _add(self, job: Any, args: Any, o: dict[str, Any]) -> Any:
        return self._add_specs([(job, job._spec(args, o))], o)[0]

    def _commit(self, changes: Any, timeout: Any, finish: Callable[[Any, Any], Any], **more: Any) -> Any:
        return finish(_committed(self.records, changes), wire.message("At")())

    def _unary(self, method: str, request: Any, answer: str, finish: Callable[[Any], Any], **more: Any) -> Any:
        return finish(_read(self.records, method, request))

    def _wait(self, id: str, timeout: float | None) -> Any:
        return self.records.ended(id)


class AsyncRecorder(AsyncClient):
    """Stands for an AsyncClient in tests, as Recorder does for a Client."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1", token="", namespace="default", tls=False)
        self.records = _Records()

    def added(self, job: Job[A, Any]) -> list[A]:
        """Return the arguments of the tasks of a job that were added, in their order."""
        return self.records.added(job)

    async def drain(self, jobs: list[Job[Any, Any]]) -> list[Run[Any]]:
        """Run the tasks of jobs that were added, and those that they add, each once."""
        first = len(self.records.runs)
        for job, spec in self.records.next({j.name: j for j in jobs}):
            out, run, a = _begin_spec(job, spec, self)
            await run.acall() if job.is_async else run.call()
            self.records.ran(_finish(job, out, a), wire.SettleItem.FromString(a.item))
        return self.records.runs[first:]

    async def close(self, timeout: float = 0.0) -> None:
        """Do nothing: there is no connection."""

    def _engine(self) -> Any:
        raise errors.InvalidArgument("a Recorder has no server", reason="recorder")

    def _partitions(self) -> int:
        return 1

    async def _add_specs(self, pairs: list[tuple[Any, Any]], o: dict[str, Any]) -> Any:
        self.records.take([s for _, s in pairs])
        return [self._handle(job, s.id, False) for job, s in pairs]

    _add_specs_atomic = _add_specs

    async def _add(self, job: Any, args: Any, o: dict[str, Any]) -> Any:
        return (await self._add_specs([(job, job._spec(args, o))], o))[0]

    async def _commit(self, changes: Any, timeout: Any, finish: Callable[[Any, Any], Any], **more: Any) -> Any:
        return finish(_committed(self.records, changes), wire.message("At")())

    async def _unary(self, method: str, request: Any, answer: str, finish: Callable[[Any], Any], **more: Any) -> Any:
        return finish(_read(self.records, method, request))

    async def _wait(self, id: str, timeout: float | None) -> Any:
        return self.records.ended(id)


def _committed(records: _Records, changes: Any) -> Any:
    return wire.message("CommitResponse")(results=records.apply(list(changes._ops)))


def _read(records: _Records, method: str, request: Any) -> Any:
    """Answer the reads that a recorder can: those of keys."""
    if method != "KVService/Get":
        raise errors.InvalidArgument(f"a Recorder has no server, and so no {method}", reason="recorder")
    value = records.keys.get((request.keyspace, request.key))
    return wire.message("KVGetResponse")(value=value or b"", found=value is not None, rev=0 if value is None else 1)


@dataclass(frozen=True)
class DevServer:
    """A server that runs for a test."""

    url: str  # host:port
    token: str
    pid: int
    directory: pathlib.Path
    rest_url: str = ""  # host:port of REST

    def client(self, **options: Any) -> Client:
        """Return a client of the server."""
        return Client(self.url, token=self.token, tls=False, **options)

    def async_client(self, **options: Any) -> AsyncClient:
        """Return a client of the server for event loops."""
        return AsyncClient(self.url, token=self.token, tls=False, **options)


@contextlib.contextmanager
def dev_server(binary: str | None = None, *, timeout: float = 20.0) -> Generator[DevServer]:
    """Run a server in a temporary directory while the with block lasts.

    binary is the program; default: MILLRACE_BIN, else millrace in PATH.
    """
    program = binary or os.environ.get("MILLRACE_BIN") or shutil.which("millrace")
    if not program:
        raise FileNotFoundError("the program millrace was not found: set MILLRACE_BIN to its path")
    with tempfile.TemporaryDirectory(prefix="millrace-") as name:
        base = pathlib.Path(name)
        ready, token = base / "ready", base / "token"
        command = [program, "serve", "--dev", "--data", str(base / "data"), "--listen", "127.0.0.1:0"]
        command += [
            "--http",
            "127.0.0.1:0",
            "--admin",
            "off",
            "--ready-file",
            str(ready),
            "--token-file",
            str(token),
            "--grace",
            "1s",
        ]
        with open(base / "log", "wb") as log:
            p = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            told = _await_ready(p, ready, base / "log", timeout)
            yield DevServer(told["grpc"], token.read_text().strip(), p.pid, base, told["http"])
        finally:
            p.terminate()
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


def _await_ready(p: subprocess.Popen[bytes], ready: pathlib.Path, log: pathlib.Path, timeout: float) -> dict[str, Any]:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if p.poll() is not None:
            break
        try:
            found: dict[str, Any] = json.loads(ready.read_text())
            return found
        except (OSError, ValueError):
            time.sleep(0.02)
    raise RuntimeError("the server did not start: " + log.read_text(errors="replace")[-2000:])


__all__ = [
    "AsyncRecorder",
    "DevServer",
    "Recorder",
    "Run",
    "arun_handler",
    "dev_server",
    "run_handler",
]
