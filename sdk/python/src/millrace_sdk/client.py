"""The client of threads: every call blocks until it has ended."""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import datetime
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import codec, errors
from ._core import base, engine, faults, loop, pins, place, wire
from ._core.producer import Call, Waiting
from .errors import MillraceError, TaskError
from .job import Job
from .tx import Changes
from .types import Committed, TaskInfo, committed, task_info

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .batch import Batch, BatchInfo, BatchOptions
    from .bulk import Action, Bulk, BulkCount, BulkInfo, BulkOptions
    from .cron import Cron, CronInfo, CronPreview
    from .kv import Keyspace
    from .limiter import Limiter, LimiterInfo
    from .queue import Queue, QueueOnly, QueueSort
    from .raw import Raw
    from .types import QueueStats

A = TypeVar("A")
R = TypeVar("R")
_CLOSE_WITHIN = 5.0  # seconds for calls under way


def task_result(job: Any, t: Any) -> Any:
    """Return the result of a task that has ended; TaskError if it did not complete."""
    state = wire.state(t.state)
    if state != "completed":
        raise TaskError(t.id, state, t.reason, t.error.code, t.error.message)
    return codec.decode_with(job.result_codec, t.result, t.result_type)


class Handle(Generic[R]):
    """A task that was added."""

    def __init__(self, client: Client, job: Job[Any, R], id: str, replayed: bool, replaced: bool = False) -> None:
        self._client = client
        self._job = job
        self.id = id
        self.replayed = replayed  # it had been added before
        self.replaced = replaced  # it had been added before, and became what was asked for

    def __repr__(self) -> str:
        return f"<Handle {self._job.name} {self.id}>"

    def wait(self, timeout: float | None = None) -> R:
        """Wait for the end of the task, and return its result; TaskError if it did not complete.

        Without a timeout the wait has no end; after a timeout it is a DeadlineExceeded, and the task goes on.
        """
        result: R = task_result(self._job, self._client._wait(self.id, timeout))
        return result

    def info(self) -> TaskInfo:
        """Read the task."""
        return self._client.task(self.id)

    def cancel(self, reason: str = "", *, force: bool = False) -> None:
        """Ask for the cancel of the task; with force its worker loses it at once."""
        self._client.cancel(self.id, reason, force=force)


class Tx(Changes):
    """A transaction: checks and ops that are applied all at once, or not at all."""

    def __init__(self, client: Client, fence: tuple[str, int] | None = None) -> None:
        super().__init__(fence[0] if fence is not None else "")
        self._client = client
        self._fence = fence

    def _partitions(self) -> int:
        return self._client._learn()

    def _pins(self, spec: Any) -> place.Pins:
        if not self._task:
            self._client._learn_pins(spec)
        return self._client._pins()

    def open_batch(self, **o: Unpack[BatchOptions]) -> str:
        """Open a batch in the commit's partition, as Client.open_batch does by itself, and return its id.

        What is added after it may name the batch: tasks by the option batch, seal_batch and cancel_batch. Where it is
        the first part of a commit that says a partition, id or tag say which.
        """
        op, n = self._batch(o), self._partitions()
        home = self._home(n, o, self._client._pins())
        if home < 0 and not op.batch_open.id:
            home = int(self._client._batch_home(op.batch_open, o))
        return self._opened(op, home, n)

    def commit(self, timeout: Any = base._UNSET) -> Committed:
        """Apply the transaction. PreconditionFailed says which check was not met, by op and details."""
        kinds = self._kinds()
        out: Committed = self._client._commit(
            self, self._client._time(timeout), lambda a, at: committed(kinds, a, at), fence=self._fence
        )
        return out


class Client(base.BaseClient):
    """A client of a server, or of the nodes of a cluster: ``with Client() as c``.

    Options default to MILLRACE_URL (host:port, or several with commas between), MILLRACE_TOKEN and MILLRACE_NAMESPACE.
    The first call connects. tls is True, or the certificates of authorities as PEM; it is the default beyond loopback
    addresses. timeout is that of each call, in seconds. It may be used by many threads, and after a fork: the child
    gets sessions of its own.

    transport is "stream" for gRPC alone, "rest" for REST alone, or "auto", the default: REST while something on the way
    lets no gRPC through. rest_url (host:port, or several) is where REST is, by default at url, and at port 7080 of the
    same host if url has port 7081. The variables are MILLRACE_TRANSPORT and, with MILLRACE_URL, MILLRACE_REST_URL.
    """

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None) -> None:
        self.close()

    def close(self, timeout: float = _CLOSE_WITHIN) -> None:
        """Wait for the calls under way, for some seconds at most, and close the client."""
        if self._closed:
            return
        self._closed = True
        e = self._eng
        if e is not None and e.io is loop.io():
            e.io.run(e.close(timeout))

    # How a thread waits.

    def _carry(self, calls: list[Call], timeout: float | None, finish: Callable[[], Any]) -> Any:
        if not calls:
            return finish()
        e = self._engine()
        if e.io.inside():
            raise errors.InvalidArgument("the I/O thread must not wait for itself", reason="io_thread")
        waiter = _Waiter(len(calls))
        deadline = None if timeout is None else wire.monotonic() + timeout
        for c in calls:
            c.deadline = deadline
            c.done = waiter.done
        if timeout is not None and timeout <= 0:
            raise _late()
        e.io.post(_submit, e, calls)
        try:
            waiter.lock.acquire()
        except BaseException as wrong:  # such as KeyboardInterrupt
            mark(wrong, calls)
            for c in calls:
                e.io.post(_abandon, e, c)
            raise
        return finish()

    def _await(self, coroutine: Callable[[engine.Engine], Any], finish: Callable[[Any], Any]) -> Any:
        e = self._engine()
        if e.io.inside():
            raise errors.InvalidArgument("the I/O thread must not wait for itself", reason="io_thread")
        running: concurrent.futures.Future[Any] = asyncio.run_coroutine_threadsafe(coroutine(e), e.io.loop)
        try:
            return finish(running.result())
        except BaseException:
            running.cancel()
            raise

    def _learn(self) -> int:
        """Return how many partitions the namespace has; the first time it waits for the server."""
        n = self._partitions()
        if n == 0:
            self._await(lambda e: e.learn(self._options.timeout), _nothing)
            n = self._partitions()
        return n

    def _learn_pins(self, spec: Any) -> None:
        """Find out whether the queue of a task is pinned, if that is not known."""
        queues = pins.unknown([spec], self._pins())
        if queues:
            self._await(lambda e: pins.ask(e, queues, self._options.timeout), _nothing)

    def _handle(self, job: Any, id: str, replayed: bool, replaced: bool) -> Any:
        return Handle(self, job, id, replayed, replaced)

    def _wait(self, id: str, timeout: float | None) -> Any:
        e = self._engine()
        told = threading.Event()
        out: list[Any] = [None, None]
        invoke = e.ledger.now() if e.ledger else 0

        def done(task: Any, wrong: MillraceError | None) -> None:
            out[:] = task, wrong
            told.set()

        w = Waiting(id, done)
        e.io.post(_wait, e, w)
        try:
            if not told.wait(timeout):
                raise _late()
        finally:
            if not told.is_set():
                e.io.post(_forget, e, w)
            if e.ledger:
                e.ledger.write("wait", invoke, id=id, error=out[1] if told.is_set() else _late())
        if out[1] is not None:
            raise out[1]
        return out[0]

    # Calls.

    def wait(self, id: str, timeout: float | None = None) -> TaskInfo:
        """Wait for the end of a task, whatever it is, and return it."""
        return task_info(self._wait(id, timeout))

    def handle(self, job: Job[Any, R], id: str) -> Handle[R]:
        """Return the handle of a task that was added elsewhere."""
        return Handle(self, job, id, False)

    def new_id(self, *, tag: str = "", unique: str = "") -> str:
        """Make an id for a task of that tag, or unique key: the task has it as it is, whatever partition it goes to.

        The first time it waits for the server, in a namespace of one partition too.
        """
        return _id_of(tag, unique, self._learn())

    def tx(self) -> Tx:
        """Begin a transaction."""
        return Tx(self)

    def kv(self, keyspace: str) -> Keyspace:
        """Return a keyspace."""
        from .kv import Keyspace

        return Keyspace(self, keyspace)

    def queue(self, name: str) -> Queue:
        """Return a queue."""
        from .queue import Queue

        return Queue(self, name)

    def queues(self, *, prefix: str = "", sort: QueueSort = "name", only: QueueOnly = "") -> Iterator[QueueStats]:
        """Go through the queues with their counters, by name or as sort says, page by page."""
        from .queue import queues

        return queues(self, prefix, sort, only)

    def cron(self, name: str) -> Cron:
        """Return a cron. Job.cron makes one."""
        from .cron import Cron

        return Cron(self, name)

    def crons(self, *, prefix: str = "") -> Iterator[CronInfo]:
        """Go through the crons by name, page by page."""
        from .cron import crons

        return crons(self, prefix)

    def preview_cron(
        self, schedule: str, *, zone: str = "", count: int = 5, after: datetime.datetime | None = None
    ) -> CronPreview:
        """Say when a schedule holds: its next slots, 1 to 100, from now or after a time. Nothing is stored."""
        from .cron import preview

        out: CronPreview = preview(self, schedule, zone, count, after)
        return out

    def limiter(self, name: str) -> Limiter:
        """Return a limiter, which bounds tasks of several queues together."""
        from .limiter import Limiter

        return Limiter(self, name)

    def limiters(self, *, prefix: str = "") -> Iterator[LimiterInfo]:
        """Go through the limiters by name, page by page."""
        from .limiter import limiters

        return limiters(self, prefix)

    def open_batch(self, **o: Unpack[BatchOptions]) -> Batch:
        """Open a batch, to which tasks are added by the option batch until it is sealed.

        AlreadyExists: the id is that of a batch that was opened with something else. ResourceExhausted: too many
        batches have not finished.
        """
        from .batch import Batch, open_batch

        out: Batch = open_batch(self, o, Batch)
        return out

    def batch(self, id: str) -> Batch:
        """Return a batch that was opened elsewhere."""
        from .batch import Batch

        return Batch(self, id)

    def batches(self) -> Iterator[BatchInfo]:
        """Go through the batches, the last opened first, partition after partition, page by page."""
        from .batch import batches

        return batches(self)

    def task(self, id: str) -> TaskInfo:
        """Read a task. NotFound: there is none with this id."""
        request = wire.message("GetRequest")(id=id)
        out: TaskInfo = self._unary(
            "TaskService/Get", request, "GetResponse", lambda r: task_info(r.task), place=of_task(id), op="get", id=id
        )
        return out

    def cancel(self, id: str, reason: str = "", *, force: bool = False) -> None:
        """Ask for the cancel of a task; with force its worker loses it at once."""
        request = wire.message("CancelRequest")(id=id, reason=reason, force=force, request_id=wire.random16())
        self._unary("TaskService/Cancel", request, "CancelResponse", _nothing, place=of_task(id))

    def start_bulk(self, action: Action, **o: Unpack[BulkOptions]) -> BulkInfo:
        """Begin a job that acts on every task of a filter, in all partitions.

        The server goes on with it when the client is gone. Tasks that are added after the start are left alone. At most
        10 jobs run at once in a namespace.
        """
        from .bulk import start_bulk

        out: BulkInfo = start_bulk(self, action, o)
        return out

    def count_bulk(self, action: Action, **o: Unpack[BulkOptions]) -> BulkCount:
        """Count what a bulk job would find, and change nothing."""
        from .bulk import count_bulk

        out: BulkCount = count_bulk(self, action, o)
        return out

    def bulk(self, id: str) -> Bulk:
        """Return a bulk job."""
        from .bulk import Bulk

        return Bulk(self, id)

    def bulks(self) -> list[BulkInfo]:
        """List the bulk jobs that run and those that ended within a day, the last begun first."""
        from .bulk import bulks

        out: list[BulkInfo] = bulks(self)
        return out

    @property
    def raw(self) -> Raw:
        """The calls of the contract, as they are: ``c.raw.TaskService.Get(id="...")``."""
        from .raw import Raw

        return Raw(self)


class _Waiter:
    """A thread that waits for the end of its calls: its lock is free then."""

    __slots__ = ("left", "lock")

    def __init__(self, calls: int) -> None:
        self.left = calls
        self.lock = _thread.allocate_lock()
        self.lock.acquire()

    def done(self, c: Call) -> None:
        """Take in the end of one call, in the I/O thread."""
        if c.note is not None:
            c.note(c)
        self.left -= 1
        if self.left == 0:
            self.lock.release()


def _id_of(tag: str, unique: str, partitions: int) -> str:
    spec = wire.TaskSpec(tag=tag)
    spec.unique.key = unique
    place.task_place(spec, partitions)
    return str(spec.id)


def of_task(id: str) -> Callable[[int], int]:
    """Say which of several partitions a task is of."""
    return lambda n: place.id_place(id, n)


# Which producer a call goes to is looked up by the I/O thread: it changes when the number of partitions is learned.


def _submit(e: engine.Engine, calls: list[Call]) -> None:
    for c in calls:
        e.producers.submit(c)


def _abandon(e: engine.Engine, c: Call) -> None:
    e.producers.abandon(c)


def _wait(e: engine.Engine, w: Waiting) -> None:
    e.producers.wait(w)


def _forget(e: engine.Engine, w: Waiting) -> None:
    e.producers.forget(w)


def _nothing(r: Any) -> None:
    pass


def _late() -> MillraceError:
    e = errors.DeadlineExceeded("the timeout is over", outcome="refused")
    e.ended_here = True
    return e


def mark(e: BaseException, calls: list[Call]) -> None:
    """Note on what ends a caller whether one of its calls may be applied: outcome_of reads it."""
    left = [c.left() for c in calls]
    try:
        e.millrace_outcome = "unknown" if any(left) else "refused"  # type: ignore[attr-defined]
    except AttributeError:
        pass


__all__ = ["Client", "Handle", "Tx", "faults"]
