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
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from . import _effects, _record, codec, errors
from ._core import place, wire
from ._core.lane import Attempt
from ._run import Invocation
from .aio import AsyncClient, AsyncHandle
from .client import Client, Handle
from .job import Job
from .task import Runtime, Signal, Task
from .tx import Changes
from .types import At, Committed, committed

A = TypeVar("A")
R = TypeVar("R")
H = TypeVar("H")


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
    refused: errors.MillraceError | None = None  # why a Recorder refused the effects, where the attempt failed of it


class _TestRuntime(Runtime):
    """Stands for a worker."""

    def __init__(self, out: Run[Any], is_async: bool, client: Any, store: _record.Store | None) -> None:
        self.stopping = Signal()
        self.client = client
        self._out = out
        self._is_async = is_async
        self._store = store  # of a Recorder

    def tx(self, t: Task[Any]) -> Any:
        return _Recording(self._out, self._is_async, self._store, (t.id, t.token))

    def progress(self, t: Task[Any], percent: int, message: str) -> None:
        self._out.progress = (percent, message)

    def log(self, t: Task[Any], line: str) -> None:
        self._out.log.append(line)

    def save(self, t: Task[Any], data: bytes) -> Any:
        if self._store is not None:
            self._store.save(t.id, t.token, data)
        self._out.checkpoint = t._checkpoint = data or None
        return _done(None) if self._is_async else None


async def _done(v: Any) -> Any:
    return v


class _Recording(Changes):
    """A transaction in mid-task, which is noted. A Recorder judges it."""

    def __init__(
        self, out: Run[Any], is_async: bool, store: _record.Store | None = None, fence: tuple[str, int] = ("", 0)
    ) -> None:
        super().__init__()
        self._out = out
        self._is_async = is_async
        self._store = store
        self._fence = fence

    def open_batch(self, **o: Any) -> Any:
        """Open a batch."""
        id = self._opened(self._batch(o), 0, 1)
        return _done(id) if self._is_async else id

    def commit(self, timeout: Any = None) -> Any:
        """Note what would be committed."""
        if self._is_async:
            return self._acommit()
        return self._end()

    async def _acommit(self) -> Committed:
        return self._end()

    def _end(self) -> Committed:
        n = len(self._ops)
        answer = Committed([None] * n, [None] * n, [None] * n, [None] * n, [None] * n, [None] * n, False, At(0, 0))
        if self._store is not None:
            answer = committed(self._kinds(), _commit(self._store, self, self._fence), self._store.at())
        self._out.commits.append([line for op in self._ops for line in _effects.effect(op)])
        return answer


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
    return _begin_message(job, m, client)


def _begin_message(
    job: Job[Any, Any], m: Any, client: Any, store: _record.Store | None = None
) -> tuple[Run[Any], Invocation, Attempt]:
    out: Run[Any] = Run(m.id)
    a = Attempt(None, m, 0.0)
    t: Task[Any] = Task(_TestRuntime(out, job.is_async, client, store), m)
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


class _Records(Generic[H]):
    """What both recorders have. H is the client's handle."""

    _store: _record.Store
    _handle: Callable[[Any, str, bool, bool], H]

    def added(self, job: Job[A, Any]) -> list[A]:
        """Return the arguments of the tasks of a job that were added, in their order."""
        specs = [s for s in self._store.specs() if s.kind == job.name]
        return [codec.decode_with(job.args_codec, s.payload, s.content_type) for s in specs]

    @property
    def effects(self) -> list[dict[str, Any]]:
        """What commits changed, and completions that drain made, in order, as Run.effects shows it."""
        return [line for op in self._store.ops() for line in _effects.effect(op)]

    def _engine(self) -> Any:
        raise _record.lacking("server")

    def _partitions(self) -> int:
        return 1

    def _create_each(self, pairs: list[tuple[Any, Any]]) -> list[H]:
        results = self._store.create_each([s for _, s in pairs])
        wrong = [r if isinstance(r, errors.MillraceError) else None for r in results]
        handles: list[Any] = [
            None if e is not None else self._handle(job, r.id, r.replayed, r.replaced)
            for (job, _), r, e in zip(pairs, results, wrong, strict=True)
        ]
        if any(e is not None for e in wrong):
            raise errors.BatchError(wrong, handles)
        return handles

    def _create_all(self, pairs: list[tuple[Any, Any]]) -> list[H]:
        results = self._store.create_all([s for _, s in pairs])
        return [self._handle(job, r.id, r.replayed, r.replaced) for (job, _), r in zip(pairs, results, strict=True)]

    def _create_one(self, job: Any, args: Any, o: dict[str, Any]) -> H:
        r = self._store.create_each([job._spec(args, o)])[0]
        if isinstance(r, errors.MillraceError):
            raise r
        return self._handle(job, r.id, r.replayed, r.replaced)

    def _apply(self, changes: Any, finish: Callable[[Any, Any], Any], fence: tuple[str, int] | None) -> Any:
        return finish(_commit(self._store, changes, fence), self._store.at())


def _commit(store: _record.Store, changes: Any, fence: tuple[str, int] | None) -> Any:
    """Commit changes, which their caller may use again."""
    request = wire.CommitRequest(conditions=changes._checks, ops=changes._ops)
    return store.commit(list(request.conditions), list(request.ops), fence)


class _Drain:
    """One call of drain."""

    def __init__(self, store: _record.Store, jobs: list[Job[Any, Any]], client: Any) -> None:
        self._store = store
        self._jobs = {j.name: j for j in jobs}
        self._client = client
        self._passed: set[str] = set()  # tasks that were snoozed or released
        self.runs: list[Run[Any]] = []

    def next(self) -> _Recorded | None:
        """Begin the next attempt; None: no task waits."""
        m = self._store.next(self._jobs, self._passed)
        return None if m is None else _Recorded(self, self._jobs[m.kind], m, self._client, self._store)

    def ran(self, run: Run[Any]) -> None:
        """Take in what an attempt came to."""
        self.runs.append(run)
        if run.settle in ("snooze", "release"):
            self._passed.add(run.id)


class _Recorded:
    """An attempt that drain makes."""

    def __init__(self, drain: _Drain, job: Job[Any, Any], m: Any, client: Any, store: _record.Store) -> None:
        self.job = job
        self._drain = drain
        self._store = store
        self._out, self.invocation, self._attempt = _begin_message(job, m, client, store)

    def settled(self) -> bool:
        """Settle what the handler came to; False: its effects were refused, and it is to be asked."""
        a, out = self._attempt, self._out
        refusal = self._store.settle(wire.SettleItem.FromString(a.item))
        if refusal is not None and a.op == "complete" and a.again:
            a.refusal = refusal
            return False
        if refusal is not None:  # the attempt fails in place of it
            a.fail(refusal.code, str(refusal))
            if self._store.runs(out.id):
                self._store.settle(wire.SettleItem.FromString(a.item))
        _finish(self.job, out, a)
        out.refused = refusal
        self._drain.ran(out)
        return True


class Recorder(_Records[Handle[Any]], Client):
    """Stands for a client in tests: it keeps what is added and committed, and dials nothing.

    added shows the arguments of the tasks of a job; drain runs their handlers, and those of follow-up tasks.

    It judges tasks and keys as a server does: ids and unique keys, if_absent, if_rev, check, the bounds of add, the
    fence of Task.tx, all of a transaction or nothing. It has one partition, and judges neither limits nor rights. Time
    does not pass in it: drain does not wait for a delay, and a unique key stays taken. What else only a server does is
    InvalidArgument with the reason recorder.
    """

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1", token="", namespace="default", tls=False)
        self._store = _record.Store()

    def drain(self, jobs: list[Job[Any, Any]]) -> list[Run[Any]]:
        """Run the tasks of jobs that were added, and those that they add, one after the other.

        An attempt that fails is followed by the next one at once, up to the task's attempts. A task that is snoozed or
        released waits for the next drain. Effects are applied when the attempt completes; when they are refused,
        on_refused is asked, or the attempt fails. Each async handler runs in a loop of its own.
        """
        d = _Drain(self._store, jobs, self)
        while (r := d.next()) is not None:
            while True:
                asyncio.run(r.invocation.acall()) if r.job.is_async else r.invocation.call()
                if r.settled():
                    break
        return d.runs

    def close(self, timeout: float = 0.0) -> None:
        """Do nothing: there is no connection."""

    def _add_specs(self, pairs: list[tuple[Any, Any]], o: dict[str, Any]) -> Any:
        return self._create_each(pairs)

    def _add_specs_atomic(self, pairs: list[tuple[Any, Any]], o: dict[str, Any]) -> Any:
        return self._create_all(pairs)

    def _add(self, job: Any, args: Any, o: dict[str, Any]) -> Any:
        return self._create_one(job, args, o)

    def _commit(self, changes: Any, timeout: Any, finish: Callable[[Any, Any], Any], **more: Any) -> Any:
        return self._apply(changes, finish, more.get("fence"))

    def _unary(self, method: str, request: Any, answer: str, finish: Callable[[Any], Any], **more: Any) -> Any:
        return finish(self._store.call(method, request))

    def _wait(self, id: str, timeout: float | None) -> Any:
        return self._store.ended(id)


class AsyncRecorder(_Records[AsyncHandle[Any]], AsyncClient):
    """Stands for an AsyncClient in tests, as Recorder does for a Client."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1", token="", namespace="default", tls=False)
        self._store = _record.Store()

    async def drain(self, jobs: list[Job[Any, Any]]) -> list[Run[Any]]:
        """Run the tasks of jobs that were added, and those that they add, as Recorder.drain does."""
        d = _Drain(self._store, jobs, self)
        while (r := d.next()) is not None:
            while True:
                await r.invocation.acall() if r.job.is_async else r.invocation.call()
                if r.settled():
                    break
        return d.runs

    async def close(self, timeout: float = 0.0) -> None:
        """Do nothing: there is no connection."""

    async def _add_specs(self, pairs: list[tuple[Any, Any]], o: dict[str, Any]) -> Any:
        return self._create_each(pairs)

    async def _add_specs_atomic(self, pairs: list[tuple[Any, Any]], o: dict[str, Any]) -> Any:
        return self._create_all(pairs)

    async def _add(self, job: Any, args: Any, o: dict[str, Any]) -> Any:
        return self._create_one(job, args, o)

    async def _commit(self, changes: Any, timeout: Any, finish: Callable[[Any, Any], Any], **more: Any) -> Any:
        return self._apply(changes, finish, more.get("fence"))

    async def _unary(self, method: str, request: Any, answer: str, finish: Callable[[Any], Any], **more: Any) -> Any:
        return finish(self._store.call(method, request))

    async def _wait(self, id: str, timeout: float | None) -> Any:
        return self._store.ended(id)


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
            "--disk-reserve",
            "16777216",
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
