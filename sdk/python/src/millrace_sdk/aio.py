"""The client of event loops: every call that waits is awaited."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ._core import base, engine, loop, place, wire
from ._core.producer import Call, Waiting
from .batch import AsyncBatch, BatchInfo, BatchOptions, abatches, open_batch
from .bulk import Action, AsyncBulk, BulkCount, BulkInfo, BulkOptions, bulks, count_bulk, start_bulk
from .client import (
    _CLOSE_WITHIN,
    _abandon,
    _forget,
    _id_of,
    _late,
    _nothing,
    _submit,
    _wait,
    mark,
    of_task,
    task_result,
)
from .cron import AsyncCron, CronInfo, CronPreview, acrons, preview
from .errors import MillraceError
from .job import Job
from .kv import AsyncKeyspace
from .limiter import AsyncLimiter, LimiterInfo, alimiters
from .queue import AsyncQueue, QueueOnly, QueueSort, aqueues
from .raw import AsyncRaw
from .tx import Changes
from .types import Committed, QueueStats, TaskInfo, committed, task_info

if TYPE_CHECKING:
    from typing_extensions import Unpack

R = TypeVar("R")


class AsyncHandle(Generic[R]):
    """A task that was added."""

    def __init__(self, client: AsyncClient, job: Job[Any, R], id: str, replayed: bool, replaced: bool = False) -> None:
        self._client = client
        self._job = job
        self.id = id
        self.replayed = replayed  # it had been added before
        self.replaced = replaced  # it had been added before, and became what was asked for

    def __repr__(self) -> str:
        return f"<AsyncHandle {self._job.name} {self.id}>"

    async def wait(self, timeout: float | None = None) -> R:
        """Wait for the end of the task, and return its result; TaskError if it did not complete.

        Without a timeout the wait has no end; after a timeout it is a DeadlineExceeded, and the task goes on.
        """
        result: R = task_result(self._job, await self._client._wait(self.id, timeout))
        return result

    async def info(self) -> TaskInfo:
        """Read the task."""
        return await self._client.task(self.id)

    async def cancel(self, reason: str = "", *, force: bool = False) -> None:
        """Ask for the cancel of the task; with force its worker loses it at once."""
        await self._client.cancel(self.id, reason, force=force)


class AsyncTx(Changes):
    """A transaction: checks and ops that are applied all at once, or not at all."""

    _late = True

    def __init__(self, client: AsyncClient, fence: tuple[str, int] | None = None) -> None:
        super().__init__(fence[0] if fence is not None else "")
        self._client = client
        self._fence = fence

    def _partitions(self) -> int:
        return self._client._partitions()

    def _pins(self, spec: Any) -> place.Pins:
        return self._client._pins()  # what is not known is asked for by the commit

    async def open_batch(self, **o: Unpack[BatchOptions]) -> str:
        """Open a batch in the commit's partition, as AsyncClient.open_batch does by itself, and return its id.

        What is added after it may name the batch: tasks by the option batch, seal_batch and cancel_batch. Where it is
        the first part of a commit that says a partition, id or tag say which.
        """
        op, n = self._batch(o), self._partitions()
        home = self._home(n, o, self._pins(None)) if n > 0 else -1
        if home < 0 and not op.batch_open.id:
            free = [self._ops[i].task_create for i in self._free]
            home = await self._client._batch_home(op.batch_open, o, free)
            n = self._partitions()
            if n > 1 and free:  # so that the batch goes where these go
                place.create_again(self._free, self._checks, self._ops, n, self._task, self._pins(None))
                self._made += self._free
                self._free.clear()
            at = self._home(n, o, self._pins(None))
            home = at if at >= 0 else home
        return self._opened(op, home, n)

    async def commit(self, timeout: Any = base._UNSET) -> Committed:
        """Apply the transaction. PreconditionFailed says which check was not met, by op and details."""
        kinds = self._kinds()
        out: Committed = await self._client._commit(
            self, self._client._time(timeout), lambda a, at: committed(kinds, a, at), fence=self._fence
        )
        return out


class _Waiter:
    """A coroutine that waits for the end of its calls."""

    __slots__ = ("_g", "_left", "ended")

    def __init__(self, g: loop.Gather, calls: int) -> None:
        self._g = g
        self._left = calls
        self.ended: asyncio.Future[None] = g.loop.create_future()

    def done(self, c: Call) -> None:
        """Take in the end of one call, in the I/O thread."""
        if c.note is not None:
            c.note(c)
        self._left -= 1
        if self._left == 0:
            self._g.bridge.post(_tell, self.ended)


def _tell(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


class AsyncClient(base.BaseClient):
    """A client for event loops: ``async with AsyncClient() as c``. Its options are those of Client.

    It may be used from several event loops, and together with a Client: all streams are in one I/O thread.
    """

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout: float = _CLOSE_WITHIN) -> None:
        """Wait for the calls under way, for some seconds at most, and close the client."""
        if self._closed:
            return
        self._closed = True
        e = self._eng
        if e is not None and e.io is loop.io():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(e.close(timeout), e.io.loop))

    # How a coroutine waits.

    async def _carry(self, calls: list[Call], timeout: float | None, finish: Callable[[], Any]) -> Any:
        if not calls:
            return finish()
        e = self._engine()
        g = loop.gather()
        waiter = _Waiter(g, len(calls))
        deadline = None if timeout is None else wire.monotonic() + timeout
        for c in calls:
            c.deadline = deadline
            c.done = waiter.done
        if timeout is not None and timeout <= 0:
            raise _late()
        g.post(_submit, e, calls)
        try:
            await waiter.ended
        except BaseException as wrong:
            mark(wrong, calls)
            for c in calls:
                e.io.post(_abandon, e, c)
            raise
        return finish()

    async def _await(self, coroutine: Callable[[engine.Engine], Any], finish: Callable[[Any], Any]) -> Any:
        e = self._engine()
        return finish(await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine(e), e.io.loop)))

    def _handle(self, job: Any, id: str, replayed: bool, replaced: bool) -> Any:
        return AsyncHandle(self, job, id, replayed, replaced)

    async def _wait(self, id: str, timeout: float | None) -> Any:
        e = self._engine()
        g = loop.gather()
        told: asyncio.Future[Any] = g.loop.create_future()
        invoke = e.ledger.now() if e.ledger else 0
        wrong: MillraceError | None = None

        def tell(task: Any, error: MillraceError | None) -> None:
            if not told.done():
                told.set_result((task, error))

        w = Waiting(id, lambda task, error: g.bridge.post(tell, task, error))
        g.post(_wait, e, w)
        try:
            await asyncio.wait({told}, timeout=timeout)
            if not told.done():
                raise _late()
            task, wrong = told.result()
        except MillraceError as late:
            wrong = late
            raise
        finally:
            if not told.done():
                g.post(_forget, e, w)
                told.cancel()
            if e.ledger:
                e.ledger.write("wait", invoke, id=id, error=wrong)
        if wrong is not None:
            raise wrong
        return task

    # Calls.

    async def wait(self, id: str, timeout: float | None = None) -> TaskInfo:
        """Wait for the end of a task, whatever it is, and return it."""
        return task_info(await self._wait(id, timeout))

    def handle(self, job: Job[Any, R], id: str) -> AsyncHandle[R]:
        """Return the handle of a task that was added elsewhere."""
        return AsyncHandle(self, job, id, False)

    async def new_id(self, *, tag: str = "", unique: str = "") -> str:
        """Make an id for a task of that tag, or unique key: the task has it as it is, whatever partition it goes to.

        The first time it waits for the server, in a namespace of one partition too.
        """
        if self._partitions() == 0:
            await self._await(lambda e: e.learn(self._options.timeout), _nothing)
        return _id_of(tag, unique, self._partitions())

    def tx(self) -> AsyncTx:
        """Begin a transaction."""
        return AsyncTx(self)

    def kv(self, keyspace: str) -> AsyncKeyspace:
        """Return a keyspace."""
        return AsyncKeyspace(self, keyspace)

    def queue(self, name: str) -> AsyncQueue:
        """Return a queue."""
        return AsyncQueue(self, name)

    def queues(self, *, prefix: str = "", sort: QueueSort = "name", only: QueueOnly = "") -> AsyncIterator[QueueStats]:
        """Go through the queues with their counters, by name or as sort says, page by page."""
        return aqueues(self, prefix, sort, only)

    def cron(self, name: str) -> AsyncCron:
        """Return a cron. Job.cron makes one."""
        return AsyncCron(self, name)

    def crons(self, *, prefix: str = "") -> AsyncIterator[CronInfo]:
        """Go through the crons by name, page by page."""
        return acrons(self, prefix)

    async def preview_cron(
        self, schedule: str, *, zone: str = "", count: int = 5, after: datetime.datetime | None = None
    ) -> CronPreview:
        """Say when a schedule holds: its next slots, 1 to 100, from now or after a time. Nothing is stored."""
        out: CronPreview = await preview(self, schedule, zone, count, after)
        return out

    def limiter(self, name: str) -> AsyncLimiter:
        """Return a limiter, which bounds tasks of several queues together."""
        return AsyncLimiter(self, name)

    def limiters(self, *, prefix: str = "") -> AsyncIterator[LimiterInfo]:
        """Go through the limiters by name, page by page."""
        return alimiters(self, prefix)

    async def open_batch(self, **o: Unpack[BatchOptions]) -> AsyncBatch:
        """Open a batch, to which tasks are added by the option batch until it is sealed.

        AlreadyExists: the id is that of a batch that was opened with something else. ResourceExhausted: too many
        batches have not finished.
        """
        out: AsyncBatch = await open_batch(self, o, AsyncBatch)
        return out

    def batch(self, id: str) -> AsyncBatch:
        """Return a batch that was opened elsewhere."""
        return AsyncBatch(self, id)

    def batches(self) -> AsyncIterator[BatchInfo]:
        """Go through the batches, the last opened first, partition after partition, page by page."""
        return abatches(self)

    async def task(self, id: str) -> TaskInfo:
        """Read a task. NotFound: there is none with this id."""
        request = wire.message("GetRequest")(id=id)
        out: TaskInfo = await self._unary(
            "TaskService/Get", request, "GetResponse", lambda r: task_info(r.task), place=of_task(id), op="get", id=id
        )
        return out

    async def cancel(self, id: str, reason: str = "", *, force: bool = False) -> None:
        """Ask for the cancel of a task; with force its worker loses it at once."""
        request = wire.message("CancelRequest")(id=id, reason=reason, force=force, request_id=wire.random16())
        await self._unary("TaskService/Cancel", request, "CancelResponse", _nothing, place=of_task(id))

    async def start_bulk(self, action: Action, **o: Unpack[BulkOptions]) -> BulkInfo:
        """Begin a job that acts on every task of a filter, in all partitions.

        The server goes on with it when the client is gone. Tasks that are added after the start are left alone. At most
        10 jobs run at once in a namespace.
        """
        out: BulkInfo = await start_bulk(self, action, o)
        return out

    async def count_bulk(self, action: Action, **o: Unpack[BulkOptions]) -> BulkCount:
        """Count what a bulk job would find, and change nothing."""
        out: BulkCount = await count_bulk(self, action, o)
        return out

    def bulk(self, id: str) -> AsyncBulk:
        """Return a bulk job."""
        return AsyncBulk(self, id)

    async def bulks(self) -> list[BulkInfo]:
        """List the bulk jobs that run and those that ended within a day, the last begun first."""
        out: list[BulkInfo] = await bulks(self)
        return out

    @property
    def raw(self) -> AsyncRaw:
        """The calls of the contract, as they are: ``await c.raw.TaskService.Get(id="...")``."""
        return AsyncRaw(self)
