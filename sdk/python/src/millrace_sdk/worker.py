"""Workers: they take tasks and have the handlers of their jobs run."""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import contextvars
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import errors
from ._core import loop, place, wire
from ._core.engine import Engine
from ._core.lane import Attempt
from ._core.report import Reporter
from ._core.work import WorkerCore
from ._run import Invocation
from .aio import AsyncClient, AsyncTx
from .client import Client, Tx
from .errors import MillraceError
from .job import Job
from .task import Runtime, Signal, Task

UNKNOWN_KIND = 30.0  # seconds for which a task of an unknown kind is put off


@dataclass(frozen=True)
class Settled:
    """What the server has answered for an attempt."""

    id: str
    kind: str
    attempt: int
    op: str  # complete, fail, snooze, stop or release
    state: str  # of the task after it; empty with an error
    replayed: bool
    error: MillraceError | None


class _Pool:
    """Threads that run sync handlers. Nothing else runs in them, and user code cannot fill them.

    Attempts wait in one queue. At most one thread at a time is on its way to it: it sends the next one when it takes an
    attempt and others are left. So handlers that return at once run one after another in few threads, without a wait
    for the interpreter's lock between them, and those that block get as many threads as they need.
    """

    def __init__(self, slots: int, run: Callable[[Attempt], None]) -> None:
        self._most = slots
        self._run = run
        self._queue: deque[Attempt] = deque()
        self._lock = threading.Lock()  # guards the fields below, and the queue's takers
        self._idle: list[Any] = []  # a lock for each thread that waits; the last one to wait is the first to go on
        self._live = 0
        self._coming = False  # a thread is on its way to the queue
        self._closed = False

    def submit(self, attempts: Iterable[Attempt]) -> None:
        """Have attempts run."""
        with self._lock:
            self._queue.extend(attempts)
            self._call()

    def _call(self) -> None:
        """Send a thread to the queue, if there is something for it; the lock is held."""
        if self._coming or not self._queue:
            return
        if self._idle:
            self._coming = True
            self._idle.pop().release()
        elif self._live < self._most:
            name = f"millrace-handler-{self._live + 1}"
            try:
                threading.Thread(target=self._serve, name=name, daemon=True).start()
            except RuntimeError:  # the system gives no more threads
                if not self._live:
                    raise
                return
            self._coming = True
            self._live += 1

    def widen(self, more: int) -> None:
        """Allow more threads, or fewer."""
        with self._lock:
            self._most += more
            self._call()

    def _serve(self) -> None:
        mine = _thread.allocate_lock()
        mine.acquire()
        came = True
        while True:
            with self._lock:
                if came:
                    self._coming = came = False
                if self._queue:
                    a: Attempt | None = self._queue.popleft()
                    self._call()
                elif self._closed or self._live > self._most:
                    self._live -= 1
                    return
                else:
                    a = None
                    self._idle.append(mine)
            if a is None:
                came = mine.acquire()
                continue
            try:
                self._run(a)
            except BaseException:
                loop.log.exception("a thread of handlers failed")
            del a

    def close(self) -> None:
        """End the threads, each when its handler has returned."""
        with self._lock:
            self._closed = True
            for idle in self._idle:
                idle.release()
            self._idle.clear()


class _Runtime(Runtime):
    """Joins a worker with the engine: what the core calls in the I/O thread, and what tasks call in theirs."""

    def __init__(self, w: Worker, engine: Engine) -> None:
        self.client = w._client
        self.stopping = Signal()
        self._w = w
        self._engine = engine
        self._io = engine.io
        self._pool = _Pool(w.slots, self._run_sync)
        self._context = contextvars.copy_context()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gather: loop.Gather | None = None
        self._bridge: loop.Bridge | None = None
        self._thread: threading.Thread | None = None
        self._unknown: set[str] = set()
        self._asked: float | None = None  # when the loop of the handlers was asked whether it goes on; None: it does
        self._stalled = False
        self.core: WorkerCore | None = None

    # The loop of async handlers.

    def use_loop(self, user_loop: asyncio.AbstractEventLoop) -> None:
        self._loop = user_loop
        self._bridge = loop.Bridge(user_loop)
        self._gather = loop.Gather(user_loop, self._io)

    def start_loop(self) -> None:
        made = asyncio.new_event_loop()
        made.set_exception_handler(_quiet)
        self.use_loop(made)

        def run() -> None:
            asyncio.set_event_loop(made)
            made.run_forever()

        self._thread = threading.Thread(target=run, name="millrace-handlers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._pool.close()
        if self._thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(1.0)

    def partitions(self) -> int:
        return self._engine.partitions

    def pins(self) -> place.Pins:
        return self._engine.pins

    # What the core calls.

    def begin(self, attempts: Sequence[Attempt]) -> None:
        on_loop: list[Attempt] = []
        in_threads: list[Attempt] = []
        for a in attempts:
            job = self._w._by_kind.get(a.kind)
            if job is None:
                self._snooze_unknown(a)
                continue
            if a.owner is None:
                t: Task[Any] = Task(self, a.message)
                t._attempt = a
                a.owner = t
            if job.is_async:
                on_loop.append(a)
            else:
                in_threads.append(a)
        if in_threads:
            self._pool.submit(in_threads)
        if on_loop and self._bridge is not None:
            self._bridge.post(self._start_tasks, on_loop)

    def _snooze_unknown(self, a: Attempt) -> None:
        if a.kind not in self._unknown:
            self._unknown.add(a.kind)
            self._engine.log.warning("no job of this worker is called %s: its tasks are put off", a.kind)
        a.take()
        a.snooze(UNKNOWN_KIND)
        if self.core is not None:
            self.core.finished(a)

    def _run_sync(self, a: Attempt) -> None:
        if not a.take():
            return
        self._context.copy().run(Invocation(self._w._by_kind[a.kind], a.owner, a).call)
        self._io.post(self._done, a)

    def _start_tasks(self, attempts: list[Attempt]) -> None:
        assert self._loop is not None
        for a in attempts:
            if a.take():
                task = self._context.copy().run(self._loop.create_task, self._run_async(a))
                a.owner._running = task

    async def _run_async(self, a: Attempt) -> None:
        t = a.owner
        t._started = True
        run = Invocation(self._w._by_kind[a.kind], t, a)
        if t._is_cancelled():  # it was to end before its first step
            run.raised(asyncio.CancelledError())
        else:
            await run.acall()
        t._running, t._started = None, False
        assert self._gather is not None
        self._gather.post(self._done, a)

    def _done(self, a: Attempt) -> None:
        if self.core is not None:
            self.core.finished(a)

    def end(self, t: Attempt, why: str, reason: str) -> None:
        task: Task[Any] | None = t.owner
        if task is None:
            return
        task.cancelled.set(reason or why, why)
        if self._bridge is not None:
            self._bridge.post(_cancel, task)

    def stopping_now(self) -> None:
        self.stopping.set("the worker drains")

    def outlived(self, more: int) -> None:
        self._pool.widen(more)

    def settled(self, t: Attempt, op: str, state: str, replayed: bool, e: MillraceError | None) -> None:
        if e is None:
            t.owner = None  # each refers to the other: freed so, they are no work for the garbage collector
        told = self._w._on_settled
        if told is not None:
            try:
                told(Settled(t.id, t.kind, t.number, op, state, replayed, e))
            except Exception:
                self._engine.log.exception("on_settled failed")

    def stalled(self, t: Attempt, now: float) -> bool:
        job = self._w._by_kind.get(t.kind)
        if job is None or not job.is_async or self._bridge is None:
            return False
        asked = self._asked  # the loop's thread sets it to None
        if asked is None:
            asked = self._asked = now
            self._bridge.post(self._answer)
        if now - asked < self._w.stall:
            self._stalled = False
            return False
        if not self._stalled:
            self._stalled = True
            kinds = sorted({a.kind for lane in (self.core.lanes if self.core else ()) for a in lane.held.values()})
            self._engine.log.error(
                "the loop of the handlers has not answered for %.0f s: leases are not renewed any more; running: %s",
                now - asked,
                ", ".join(kinds),
            )
        return True

    def _answer(self) -> None:
        self._asked = None

    # What tasks call.

    def tx(self, t: Task[Any]) -> Any:
        fence = (t.id, t.token)
        if self._w._by_kind[t.kind].is_async:
            c = self.client if isinstance(self.client, AsyncClient) else _as_async(self.client)
            return AsyncTx(c, fence)
        return Tx(self.client if isinstance(self.client, Client) else _as_sync(self.client), fence)

    def _reporter(self, a: Attempt) -> Reporter:
        if a.reporter is None:
            a.reporter = Reporter(self._engine, a)
        found: Reporter = a.reporter
        return found

    def progress(self, t: Task[Any], percent: int, message: str) -> None:
        self._io.post(lambda: self._reporter(t._attempt).progress(percent, message))

    def log(self, t: Task[Any], line: str) -> None:
        self._io.post(lambda: self._reporter(t._attempt).log(line))

    def save(self, t: Task[Any], data: bytes) -> Any:
        async def save() -> None:
            await self._reporter(t._attempt).checkpoint(data)
            t._checkpoint = data or None

        running = asyncio.run_coroutine_threadsafe(save(), self._io.loop)
        if self._w._by_kind[t.kind].is_async:
            return asyncio.wrap_future(running)
        return running.result()


def _quiet(made: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    loop.log.warning("in the loop of the handlers: %s", context.get("message"), exc_info=context.get("exception"))


def _cancel(t: Any) -> None:
    if t._running is not None and t._started:
        t._running.cancel()


def _share(kind: type[Any], c: Any) -> Any:
    """Return a client of the other kind with the engine of one."""
    made: Any = object.__new__(kind)
    made.__dict__.update(c.__dict__)
    return made


def _as_async(c: Any) -> AsyncClient:
    out: AsyncClient = _share(AsyncClient, c)
    return out


def _as_sync(c: Any) -> Client:
    out: Client = _share(Client, c)
    return out


class Worker:
    """Takes tasks of jobs and runs their handlers, slots of them at once.

    In a namespace of several partitions the slots go where the work is. weights are the shares of queues, 1 to 1,000,
    of the tasks that are given where several have tasks ready: 3 and 1 give three of one queue for each of the other; a
    queue that is not named has 1. in_order gives tasks of a queue when those before it have nothing ready, in the order
    of queues, or of the jobs. Both hold in each partition.

    Sync handlers run in threads of the worker, async ones in an event loop of its own, or with run_async in the
    caller's. queues are those that tasks are taken from; default: those of the jobs. lease is seconds; default: each
    task's own. drain is for how many seconds handlers may go on after a stop. stall is for how long the loop of async
    handlers may be silent until their leases end. on_settled is called with what the server answered for each attempt,
    in the I/O thread: it must be quick, and must not wait for a call. renew="process" starts a helper process that
    keeps leases while C code holds the interpreter's lock for long.
    """

    def __init__(
        self,
        client: Client | AsyncClient,
        jobs: Iterable[Job[Any, Any]],
        *,
        slots: int = 64,
        drain: float = 25.0,
        queues: Sequence[str] | None = None,
        weights: Mapping[str, int] | None = None,
        in_order: bool = False,
        lease: float | None = None,
        renew: Literal["thread", "process"] = "thread",
        stall: float = 600.0,
        name: str | None = None,
        on_settled: Callable[[Settled], None] | None = None,
    ) -> None:
        self._client = client
        self._by_kind: dict[str, Job[Any, Any]] = {}
        for j in jobs:
            if j.function is None:
                raise errors.InvalidArgument(f"the job {j.name} has no handler", field="jobs")
            if j.name in self._by_kind:
                raise errors.InvalidArgument(f"two jobs are called {j.name}", field="jobs")
            self._by_kind[j.name] = j
        if not self._by_kind:
            raise errors.InvalidArgument("a worker must have a job", field="jobs")
        if not 1 <= slots <= 4096:
            raise errors.InvalidArgument("slots must be 1 to 4,096", field="slots")
        if renew not in ("thread", "process"):
            raise errors.InvalidArgument("renew must be thread or process", field="renew")
        self.slots = slots
        self.drain = drain
        self.queues = list(queues) if queues else list(dict.fromkeys(j.queue for j in self._by_kind.values()))
        self.weights = dict(weights or {})
        self.in_order = in_order
        self._check_weights()
        self.lease = lease
        self.renew = renew
        self.stall = stall
        self.name = wire.cut(name or f"{socket.gethostname()}:{os.getpid()}", 128)
        self._on_settled = on_settled
        self._runtime: _Runtime | None = None
        self._pid = 0
        self._stop_early = False

    def _check_weights(self) -> None:
        if self.weights and self.in_order:
            raise errors.InvalidArgument("weights and in_order are mutually exclusive", field="weights")
        for q, n in self.weights.items():
            if q not in self.queues:
                raise errors.InvalidArgument(f"weights: queue {q} is not one of the worker's", field="weights")
            if not 1 <= n <= 1000:
                raise errors.InvalidArgument(f"weights: that of {q} must be 1 to 1,000", field="weights")

    def run(self, *, signals: bool = True) -> None:
        """Take tasks until stop, SIGTERM or SIGINT, then drain. A second signal gives everything back at once.

        It returns when all that was held has been settled or given back, and raises the error of a server that refuses
        the worker for good. Signal handlers are installed only in the main thread.
        """
        ended = self._begin(None)
        before: dict[int, Any] = {}
        if signals and threading.current_thread() is threading.main_thread():
            for s in (signal.SIGTERM, signal.SIGINT):
                before[s] = signal.signal(s, lambda *_: self.stop())
        try:
            while True:
                try:
                    ended.result(timeout=3600.0)
                    return
                except concurrent.futures.TimeoutError:
                    if ended.done():
                        raise
                    self._same_process()
        except BaseException:
            self.stop()
            raise
        finally:
            for number, h in before.items():
                signal.signal(number, h)
            self._end()

    async def run_async(self, stop: Any = None) -> None:
        """Take tasks until stop is set, in the event loop that runs, which async handlers run in too.

        stop is an asyncio.Event, or anything with an async wait. It installs no signal handlers. If it is cancelled it
        drains first.
        """
        ended = asyncio.wrap_future(self._begin(asyncio.get_running_loop()))
        watch = asyncio.ensure_future(stop.wait()) if stop is not None else None
        try:
            waiting = {ended} | ({watch} if watch is not None else set())
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                self.stop()
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.shield(ended)
            raise
        finally:
            if watch is not None:
                watch.cancel()
            self._end()

    def stop(self) -> None:
        """Begin to drain; a second call gives everything back at once. It may be called by any thread."""
        r = self._runtime
        if r is None or r.core is None:
            self._stop_early = True
            return
        r._io.post(r.core.stop)

    def health(self) -> Health:
        """Tell whether the worker is served now, and why not."""
        r = self._runtime
        if r is None or r.core is None:
            return Health(False, 0, "the worker does not run")
        lanes = list(r.core.lanes)
        down = next((lane.session for lane in lanes if not lane.session.up), None)
        text = "" if down is None else str(down.last_error or "not connected yet")
        return Health(down is None, sum(len(lane.held) for lane in lanes), text)

    def _begin(self, user_loop: asyncio.AbstractEventLoop | None) -> concurrent.futures.Future[None]:
        if self._runtime is not None:
            raise errors.InvalidArgument("the worker runs already", reason="runs")
        engine = self._client._engine()
        self._pid = os.getpid()
        r = self._runtime = _Runtime(self, engine)
        if user_loop is not None:
            r.use_loop(user_loop)
        elif any(j.is_async for j in self._by_kind.values()):
            r.start_loop()
        made: concurrent.futures.Future[WorkerCore] = concurrent.futures.Future()

        async def serve() -> None:
            core = r.core = WorkerCore(
                engine,
                _Adapter(r),
                name=self.name,
                slots=self.slots,
                queues=self.queues,
                weights=self.weights,
                in_order=self.in_order,
                kinds=sorted(self._by_kind),
                lease=self.lease,
                drain=self.drain,
            )
            made.set_result(core)
            if self.renew == "process":
                from ._core.helper import Helper

                core.helper = Helper(engine, self.stall)
                await core.helper.ready()
            if self._stop_early:
                core.stop()
            try:
                await core.run()
            finally:
                if core.helper is not None:
                    core.helper.close()

        ended = asyncio.run_coroutine_threadsafe(serve(), engine.io.loop)
        made.result(10.0)
        return ended

    def _same_process(self) -> None:
        if os.getpid() != self._pid:
            raise errors.InvalidArgument("a worker that runs cannot go on in a forked process", reason="forked")

    def _end(self) -> None:
        if self._runtime is not None:
            self._runtime.close()
        self._runtime = None
        self._stop_early = False


@dataclass(frozen=True)
class Health:
    """Whether a worker is served."""

    connected: bool  # for every partition
    held: int  # tasks whose settle is not acknowledged
    error: str


class _Adapter:
    """The handlers as the core calls them."""

    def __init__(self, r: _Runtime) -> None:
        self.begin = r.begin
        self.end = r.end
        self.stopping = r.stopping_now
        self.outlived = r.outlived
        self.settled = r.settled
        self.stalled = r.stalled
