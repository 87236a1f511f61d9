"""The I/O thread: one per process, with an event loop that holds all streams of all clients.

Threads of users hand over by a queue and one wake-up for all that waits in it. What the engine knows is touched by this
thread alone, so it needs no locks.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from .. import errors

log = logging.getLogger("millrace")


class IOLoop:
    """The thread, and its event loop."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._queue: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._scheduled = False
        self._thread = threading.Thread(target=self._run, name="millrace-io", daemon=True)
        self._thread.start()
        self.closers: weakref.WeakSet[Any] = weakref.WeakSet()  # clients, closed at the end of the process

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def inside(self) -> bool:
        """Report whether the caller is the I/O thread."""
        return threading.current_thread() is self._thread

    def post(self, f: Callable[..., Any], *args: Any) -> None:
        """Have f called by the I/O thread, in the order of the calls of a thread."""
        self._queue.append((f, args))
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        # Set before the queue is looked at: what is added from here on wakes the loop again.
        self._scheduled = False
        queue = self._queue
        for _ in range(len(queue)):
            f, args = queue.popleft()
            try:
                f(*args)
            except Exception:
                log.exception("a call in the I/O thread failed")

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        """Run a coroutine in the I/O thread; to be called by it."""
        task = self.loop.create_task(coroutine)
        _tasks.add(task)
        task.add_done_callback(_ended)
        return task

    def run(self, coroutine: Any, timeout: float | None = None) -> Any:
        """Run a coroutine in the I/O thread, and wait for its end in another one."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)


_tasks: set[asyncio.Task[Any]] = set()  # the event loop itself refers to tasks only weakly


def _ended(task: asyncio.Task[Any]) -> None:
    _tasks.discard(task)
    if not task.cancelled() and task.exception() is not None:
        log.error("a task of the I/O thread failed", exc_info=task.exception())


_current: IOLoop | None = None
_lock = threading.Lock()
_dropped: list[Any] = []  # what a fork inherited: closing it could hang, so it is kept and left alone


def io() -> IOLoop:
    """Return the I/O thread of this process, which begins with the first call."""
    global _current
    if _current is not None:
        return _current
    with _lock:
        if _current is None:
            _refuse_gevent()
            _current = IOLoop()
        return _current


def _refuse_gevent() -> None:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        raise errors.InvalidArgument(
            "gevent has replaced threads, which this library cannot work with", reason="gevent"
        )


def drop(thing: Any) -> None:
    """Keep what a fork inherited from being closed."""
    _dropped.append(thing)


def _after_fork() -> None:
    global _current, _lock, _tasks
    _dropped.append((_current, _tasks))
    _current, _lock, _tasks = None, threading.Lock(), set()


os.register_at_fork(after_in_child=_after_fork)


def _at_exit() -> None:
    current = _current
    if current is None or current.pid != os.getpid():
        return
    for c in list(current.closers):
        try:
            c.abandon()
        except Exception:
            log.debug("a client was not closed at the end", exc_info=True)
    current.loop.call_soon_threadsafe(current.loop.stop)
    current._thread.join(1.0)


atexit.register(_at_exit)


class Bridge:
    """Hands results over to an event loop of the user's: one wake-up for all that waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._queue: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._scheduled = False

    def post(self, f: Callable[..., Any], *args: Any) -> None:
        """Have f called in the event loop."""
        self._queue.append((f, args))
        if not self._scheduled:
            self._scheduled = True
            try:
                self.loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop is closed: its callers are gone
                self._queue.clear()
                self._scheduled = False

    def _drain(self) -> None:
        self._scheduled = False
        queue = self._queue
        for _ in range(len(queue)):
            f, args = queue.popleft()
            try:
                f(*args)
            except Exception:
                log.exception("a hand-over to an event loop failed")


class Gather:
    """Hands calls of an event loop over to the I/O thread once per turn of that loop, so that they share frames."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: IOLoop) -> None:
        self.loop = loop
        self.bridge = Bridge(loop)
        self.io = target
        self._calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def post(self, f: Callable[..., Any], *args: Any) -> None:
        """Have f called by the I/O thread, with the other calls of this turn."""
        if not self._calls:
            self.loop.call_soon(self._flush)
        self._calls.append((f, args))

    def _flush(self) -> None:
        calls, self._calls = self._calls, []
        self.io.post(_call_all, calls)


def _call_all(calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
    for f, args in calls:
        try:
            f(*args)
        except Exception:
            log.exception("a call in the I/O thread failed")


_gathers: dict[asyncio.AbstractEventLoop, Gather] = {}


def gather() -> Gather:
    """Return what hands over between the running event loop and the I/O thread."""
    running = asyncio.get_running_loop()
    g = _gathers.get(running)
    target = io()
    if g is None or g.io is not target:
        for other in list(_gathers):
            if other.is_closed():
                _gathers.pop(other, None)
        g = _gathers[running] = Gather(running, target)
    return g


def guard() -> threading.Lock:
    """Return the lock under which clients get their engines in this process."""
    return _engines


_engines = threading.Lock()


def _free_engines() -> None:
    global _engines
    _engines = threading.Lock()


os.register_at_fork(after_in_child=_free_engines)
