"""Requests that wait at the server: for how long, and those for the end of tasks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from . import web, wire
from .faults import StatusError
from .web import Job, RestError

if TYPE_CHECKING:
    from .rest_stream import RestStream

_WAIT_LANES = 4  # requests of one stream that wait for the end of tasks
_POLL = 25.0  # seconds that a request waits at the server: some proxies cut what is silent for half a minute
POLL_CROWDED = 2.0  # the same while others want the thread
POLL_LEAST = 1.0  # below that a request says nothing about what cuts it
_AGAIN_LEAST, _AGAIN_MOST = 0.1, 2.0  # seconds between two looks at a task, when more are waited for than lanes


def ended(t: Any) -> bool:
    """Report whether a task has ended."""
    return wire.state(t.state) in ("completed", "dead", "cancelled")


async def within(made: Coroutine[Any, Any, Any], timeout: float | None) -> Any:
    """Await an answer for some seconds at most. It raises StatusError."""
    try:
        return await asyncio.wait_for(made, timeout)
    except asyncio.TimeoutError:
        raise StatusError(4, "the timeout is over") from None


class Poll:
    """How long a request asks the server to wait. Proxies cut what is silent, each after a time of its own."""

    def __init__(self) -> None:
        self.wait = _POLL

    def missed(self, e: StatusError, took: float) -> bool:
        """Take the error of a request that waited; true: the wait was the reason, and it is shorter now."""
        if not isinstance(e, RestError):
            return False
        if e.origin == web.SERVER:  # a server names the longest wait that it allows
            most = e.wire.max / 1000
            if e.wire.limit not in ("claim_wait_ms", "result_wait_ms") or most >= self.wait:
                return False
            self.wait = most
            return True
        if not e.left or took < 2 * POLL_LEAST or took >= self.wait:
            return False
        self.wait = max(took / 2, POLL_LEAST)
        return True


class Waits:
    """The waits for tasks of one stream: a few requests wait at the server; of more tasks each is looked at in turn."""

    def __init__(self, s: RestStream) -> None:
        self._s = s
        self._ids: dict[str, float] = {}  # seconds before the task is looked at again
        self._turn: deque[tuple[float, str]] = deque()  # and when
        self._lanes: set[asyncio.Task[Any]] = set()
        self._waiting: dict[str, Job] = {}  # requests that wait at the server

    def ask(self, id: str) -> None:
        """Tell of the end of a task."""
        if id in self._ids:
            return
        self._ids[id] = _AGAIN_LEAST
        self._turn.appendleft((0.0, id))
        if len(self._lanes) < _WAIT_LANES:
            self._lanes.add(self._s.t.io.spawn(self._lane()))
        else:
            for job in self._waiting.values():  # they take turns from now on
                job.cancel()

    def forget(self, id: str) -> None:
        """Tell of it no more."""
        self._ids.pop(id, None)
        job = self._waiting.get(id)
        if job is not None:
            job.cancel()

    def stop(self) -> None:
        """End all."""
        self._ids.clear()
        self._turn.clear()
        for lane in list(self._lanes):
            lane.cancel()

    async def _lane(self) -> None:
        try:
            await self._take_turns()
        finally:
            lane = asyncio.current_task()
            if lane is not None:
                self._lanes.discard(lane)

    async def _take_turns(self) -> None:
        poll = Poll()
        while self._turn and not self._s.over:
            at, id = self._turn.popleft()
            pause = at - wire.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            if id not in self._ids:
                continue
            task: Any = None
            place: Any = None
            wait = 0.0
            if not self._turn:
                wait = poll.wait if web.pool().roomy() else min(poll.wait, POLL_CROWDED)
            job, began = Job(), wire.monotonic()
            if wait:
                self._waiting[id] = job
            try:
                t, place = await self._s.t.result(self._s.caller, id, wait, job)
                if ended(t):
                    task = await self._s.t.whole(self._s.caller, id, t, place)
            except RestError as e:
                if id in self._ids and not job.over and not poll.missed(e, wire.monotonic() - began):
                    del self._ids[id]
                    self._s.push(ended={"id": id, "error": e.wire})
            finally:
                self._waiting.pop(id, None)
            if id not in self._ids:
                continue
            if task is not None:
                del self._ids[id]
                self._s.push(ended={"id": id, "task": task, "at": place})
                continue
            again = self._ids[id]
            if wait and wire.monotonic() - began >= POLL_LEAST:
                again = 0.0  # it has waited at the server
            else:
                self._ids[id] = min(2 * again, _AGAIN_MOST)
            self._turn.append((wire.monotonic() + again, id))
