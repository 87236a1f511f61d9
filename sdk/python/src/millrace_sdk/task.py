"""What a handler sees of its attempt."""

from __future__ import annotations

import asyncio
import datetime
import threading
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, Generic, TypeVar

from . import errors
from ._core import place, report
from .tx import Effects

A = TypeVar("A")


class Signal:
    """Something that happens once. It is false before and true after, in any thread.

    A sync handler calls ``wait``, an async one awaits it: ``await t.stopping``.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.reason = ""
        self.why = ""  # of Task.cancelled: cancelled, lost (the lease) or stopped (the worker's drain is over)

    def __bool__(self) -> bool:
        return self._event.is_set()

    def is_set(self) -> bool:
        """Report whether it has happened."""
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it has happened, or for some seconds; report whether it has."""
        return self._event.wait(timeout)

    def __await__(self) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        told = loop.create_future()
        with self._lock:
            if self._event.is_set():
                return
            self._waiters.append((loop, told))
        try:
            yield from told
        finally:
            with self._lock:
                self._waiters = [w for w in self._waiters if w[1] is not told]

    def set(self, reason: str = "", why: str = "") -> None:
        """Have it happen. The library does this."""
        with self._lock:
            if self._event.is_set():
                return
            self.reason, self.why = reason, why
            self._event.set()
            waiters, self._waiters = self._waiters, []
        for loop, told in waiters:
            try:
                loop.call_soon_threadsafe(lambda f=told: None if f.done() else f.set_result(None))  # type: ignore[misc]
            except RuntimeError:
                pass  # the loop is closed


class Runtime:
    """What a task needs of the worker that runs it."""

    client: Any = None
    stopping: Signal

    def pins(self) -> place.Pins:
        """Return which queues are known to be pinned."""
        return {}

    def partitions(self) -> int:
        """Return how many partitions the namespace has."""
        return 1

    def tx(self, t: Task[Any]) -> Any:
        """Begin a commit under the lease of the task."""
        raise NotImplementedError

    def progress(self, t: Task[Any], percent: int, message: str) -> None:
        """Tell how far the work is."""

    def log(self, t: Task[Any], line: str) -> None:
        """Add a line to the log."""

    def save(self, t: Task[Any], data: bytes) -> Any:
        """Save a checkpoint."""


class Task(Generic[A]):
    """One attempt at a task, as its handler sees it."""

    # The library's own. What most tasks never need is made on first use, so that a task costs little.
    _attempt: Any = None
    _refused: Callable[[errors.MillraceError], Any] | None = None
    _fx: Effects | None = None
    _cancelled: Signal | None = None
    _headers: Mapping[str, str] | None = None
    _result: tuple[bytes, str] = (b"", "")  # of the handler, encoded
    _running: Any = None  # the asyncio.Task of an async handler
    _started = False

    def __init__(self, runtime: Runtime, m: Any) -> None:
        self._runtime = runtime
        self._m = m
        self._began = time.time()
        self._checkpoint: bytes | None = m.checkpoint or None
        self.id: str = m.id
        self.kind: str = m.kind
        self.token: int = m.token  # of this attempt: it rises with each delivery
        self.payload: bytes = m.payload
        self.content_type: str = m.content_type

    def __repr__(self) -> str:
        return f"<Task {self.kind} {self.id} attempt {self.attempt}>"

    @property
    def queue(self) -> str:
        """The queue that the task is in."""
        return str(self._m.queue)

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return int(self._m.attempt)

    @property
    def max_attempts(self) -> int:
        """How many attempts the task has in all."""
        return int(self._m.max_attempts)

    @property
    def failures(self) -> int:
        """How many attempts failed before."""
        return int(self._m.failures)

    @property
    def crashes(self) -> int:
        """How many attempts ended with their worker before."""
        return int(self._m.crashes)

    @property
    def priority(self) -> int:
        """The priority, 0 to 9; 9 is first."""
        return int(self._m.priority)

    @property
    def tag(self) -> str:
        """The tag of the task."""
        return str(self._m.tag)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the task."""
        if self._headers is None:
            self._headers = {h.name: h.value for h in self._m.headers}
        return self._headers

    @property
    def cancelled(self) -> Signal:
        """Set when the task's cancel was asked for, or its lease is lost: the handler is to end."""
        made = self._cancelled
        if made is None:  # its handler and the I/O thread may get here at once: setdefault keeps the first signal
            made = self.__dict__.setdefault("_cancelled", Signal())
        return made

    def _is_cancelled(self) -> bool:
        return self._cancelled is not None and self._cancelled.is_set()

    @property
    def client(self) -> Any:
        """The client of the worker."""
        return self._runtime.client

    @property
    def stopping(self) -> Signal:
        """Set when the worker drains: a long handler may end itself early, by Snooze or Release."""
        return self._runtime.stopping

    @property
    def created_at(self) -> datetime.datetime:
        """When the task was created."""
        return _of_ms(self._m.created_ms)

    @property
    def ready_at(self) -> datetime.datetime | None:
        """From when on this attempt could run; None: from the creation of the task on."""
        return _of_ms(self._m.ready_ms) if self._m.ready_ms else None

    @property
    def deadline(self) -> datetime.datetime | None:
        """When the attempt has to have ended, by max_run; None: there is no bound."""
        most = self._m.max_run_ms
        return _of_ms(self._began * 1000 + most) if most else None

    @property
    def fx(self) -> Effects:
        """The effects: they are applied exactly when the task completes, in the same entry of the log."""
        if self._fx is None:
            self._fx = Effects(self.id, self._runtime.partitions, self._runtime.pins)
        return self._fx

    def on_refused(self, f: Callable[[errors.MillraceError], Any]) -> None:
        """Have f called, or awaited, if the effects are refused. They are empty then: f adds others, or raises.

        Without it the attempt fails. The result stays what the handler returned.
        """
        self._refused = f

    def tx(self) -> Any:
        """Begin a transaction in mid-task: its commit is applied only while this attempt holds the task.

        In an async handler the commit is awaited.
        """
        return self._runtime.tx(self)

    def progress(self, percent: int, message: str = "") -> None:
        """Tell how far the work is, 0 to 100. It does not wait; of several within a second the last one is told."""
        self._runtime.progress(self, percent, message)

    def log(self, line: str) -> None:
        """Add a line to the task's log. It does not wait; lines are sent once a second."""
        self._runtime.log(self, line)

    @property
    def checkpoint(self) -> bytes | None:
        """What the attempts before saved last, or this one did; None: nothing."""
        return self._checkpoint

    def save_checkpoint(self, data: bytes) -> Any:
        """Save how far the work is, at most 64 KiB, for the attempts after this one. It returns when that is durable.

        In an async handler it is awaited. Empty bytes remove it, and so does the completion of the task.
        """
        if len(data) > report.CHECKPOINT_BYTES:
            raise errors.TooLarge("the checkpoint is too large", limit="checkpoint", max=report.CHECKPOINT_BYTES)
        return self._runtime.save(self, bytes(data))

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if the task's cancel was asked for, its lease is lost, or the worker's drain is over."""
        if self._is_cancelled():
            raise errors.Cancelled(self.cancelled.reason)


def _of_ms(ms: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
