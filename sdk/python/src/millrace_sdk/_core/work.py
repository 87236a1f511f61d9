"""A worker: its lanes, what it gives to handlers, and its drain. All of it is the I/O thread's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import MillraceError
from . import wire
from .lane import OPEN, Attempt, Lane
from .slots import Division

if TYPE_CHECKING:
    from .engine import Engine

RETURN_WITHIN = 0.5  # seconds for handlers that were told to end as the drain is over
CLOSE_WITHIN = 1.0  # seconds for the server to end a stream on which nothing is left


class Handlers(Protocol):
    """What a worker calls for its tasks, in the I/O thread. None of it may block."""

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Have the handlers run; each calls finished in the end."""

    def end(self, t: Attempt, why: str, reason: str) -> None:
        """Tell a handler to end: lost, cancelled or stopped."""

    def stopping(self) -> None:
        """Tell all handlers that the worker drains."""

    def outlived(self, more: int) -> None:
        """Count handlers that run on though their tasks are not this worker's any more: they take no slot."""

    def settled(self, t: Attempt, op: str, state: str, replayed: bool, e: MillraceError | None) -> None:
        """Hear of the answer to a settle."""

    def stalled(self, t: Attempt, now: float) -> bool:
        """Report whether the loop of a handler has not answered for so long that its leases are to end."""
        ...


class WorkerCore:
    """Takes tasks and has them run, a bounded number at once, over a lane for each partition. It runs once."""

    def __init__(
        self,
        engine: Engine,
        handlers: Handlers,
        *,
        name: str,
        slots: int,
        queues: Sequence[str],
        weights: Mapping[str, int],
        in_order: bool,
        kinds: Sequence[str],
        lease: float | None,
        drain: float,
    ) -> None:
        self.engine = engine
        self.handlers = handlers
        self.host = socket.gethostname()
        self.name = name
        self.slots = slots
        self.queues = list(queues)
        self.weights = weights  # of the queues that are named, in the tasks that are given
        self.in_order = in_order  # a queue is served when those before it have nothing ready
        self.kinds = list(kinds)
        self.lease = lease
        self.drain_within = drain
        self.lanes: list[Lane] = [Lane(self, 0)]  # by partition; one until it tells how many there are
        self.division = Division(self)
        self.drains = False
        self.over = False
        self._failed: MillraceError | None = None
        self._changed = asyncio.Event()  # something that run or drain waits for
        self._stop = False
        self._hurry = False
        self._missed = 0
        self.helper: Any = None  # the process that renews when this one cannot

    # What the owner asks for.

    async def run(self) -> None:
        """Take tasks until stop, then drain. It raises the error of a server that refuses the stream for good."""
        self.engine.workers.append(self)
        try:
            self._start(self.lanes[0])
            self.widen()
            while not self._stop and self._failed is None:
                self._changed.clear()
                await self._changed.wait()
            if self._failed is not None:
                self._finish("lost")
                raise self._failed
            await self._drain()
        finally:
            self.over = True
            self.engine.workers.remove(self)
            self.division.stop()
            for lane in self.lanes:
                lane.stop_timers()

    def _start(self, lane: Lane) -> None:
        lane.session.start(True, lambda e: self._lane_failed(lane, e))

    def widen(self) -> None:
        """Have a lane for each partition that is known."""
        while len(self.lanes) < self.engine.partitions and not self._stop and not self.over:
            lane = Lane(self, len(self.lanes))
            self.lanes.append(lane)
            self._start(lane)

    def stop(self) -> None:
        """Begin to drain; a second call gives everything back at once."""
        if self._stop:
            self._hurry = True
        self._stop = True
        self._changed.set()

    def reauth(self, token: str) -> None:
        """Tell the open streams of a new token."""
        for lane in self.lanes:
            lane.session.reauth(token)

    def abandon(self) -> None:
        """End all streams without waiting for anything."""
        self.over = True
        for lane in self.lanes:
            lane.session.stop()

    def _lane_failed(self, lane: Lane, e: MillraceError) -> None:
        """Take in that a lane ended for good: so does the worker; one that drains already finishes the others."""
        if self.drains and len(self.lanes) > 1:
            self._missed += len(lane.held)
            self._lose(lane, "lost")
        else:
            self._failed = e
        self._changed.set()

    # What lanes and handlers say.

    def came_up(self, lane: Lane) -> None:
        """Take in that a lane is served."""
        if self.engine.partitions > 1:
            self.widen()
            lane.share.up = True
            self.division.balance()

    def begin(self, attempts: list[Attempt]) -> None:
        """Give attempts to the handlers."""
        ledger = self.engine.ledger
        if ledger is not None:
            for t in attempts:
                if t.refusal is None:
                    self._line(t, "deliver", ledger.now(), None, None)
        if self.helper is not None:
            self.helper.hold(attempts)
        if len(self.lanes) > 1:
            attempts = self.division.admit(attempts)
        self.handlers.begin(attempts)

    def finished(self, t: Attempt) -> None:
        """Take in that a handler has returned, and the settle that it came to."""
        if t.lost or t.released:
            self.handlers.outlived(-1)
            self._changed.set()
            return
        if t.reporter is not None and t.reporter.pending():
            self.engine.io.spawn(self._finish_reports(t))
            return
        self._settle(t)

    async def _finish_reports(self, t: Attempt) -> None:
        await t.reporter.finish()
        if t.lost or t.released:
            self.handlers.outlived(-1)
        else:
            self._settle(t)

    def _settle(self, t: Attempt) -> None:
        if t.cancelled and (t.op != "complete" or t.stopped):
            t.stop()
        elif t.stopped:
            t.release()
        if t.lane is not None:
            t.lane.settle(t)
        if self.division.waiting:
            self.division.pump()

    def cancel(self, t: Attempt, reason: str) -> None:
        """Take in that a task's cancel was asked for, which may be told several times."""
        if t.cancelled or t.stage != OPEN:
            return
        t.cancelled = True
        if t.refusal is None and t.take():  # its handler has not begun
            self.unqueued(t)
            self._settle(t)
            return
        self.handlers.end(t, "cancelled", reason)

    def end(self, t: Attempt, why: str) -> None:
        """Tell a handler to end."""
        self.handlers.end(t, why, "")

    def outlived(self, t: Attempt) -> None:
        """Take in that a handler runs on though its lease is lost."""
        self.handlers.outlived(1)

    def unqueued(self, t: Attempt) -> None:
        """Take in that an attempt ended before its handler began."""

    def dropped(self, t: Attempt) -> None:
        """Take in that nothing more is to be done for an attempt."""
        if self.helper is not None:
            self.helper.forget(t)
        if len(self.lanes) > 1:
            self.division.freed()
        if self.drains:
            self._changed.set()

    def settled(self, t: Attempt, op: str, state: str, replayed: bool, e: MillraceError | None) -> None:
        """Hear of the answer to a settle."""
        self.handlers.settled(t, op, state, replayed, e)

    def may_renew(self, t: Attempt, now: float) -> bool:
        """Report whether the lease of an attempt is renewed: not for a loop that has not answered for long."""
        return t.stage != OPEN or not self.handlers.stalled(t, now)

    def write_line(self, t: Attempt, op: str, at: Any, e: MillraceError | None, *, replayed: bool = False) -> None:
        """Write the line of a settle."""
        if self.engine.ledger is not None:
            self._line(t, op, t.invoke, at, e, replayed=replayed)

    def _line(self, t: Attempt, op: str, invoke: int, at: Any, e: MillraceError | None, **more: Any) -> None:
        ledger = self.engine.ledger
        if ledger is not None:
            ledger.write(
                op, invoke, at=at, error=e, id=t.id, token=str(t.token), attempt=t.number, queue=t.queue, **more
            )

    # The drain.

    def _held(self) -> int:
        return sum(len(lane.held) for lane in self.lanes)

    async def _drained(self, seconds: float, *, patient: bool) -> bool:
        """Wait until nothing is held; patient waits end early when the owner hurries."""
        deadline = wire.monotonic() + seconds
        while self._held():
            left = deadline - wire.monotonic()
            if left <= 0 or (patient and self._hurry) or self._failed is not None:
                return False
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except asyncio.TimeoutError:
                pass
        return True

    async def _drain(self) -> None:
        self.drains = True
        self.handlers.stopping()
        for lane in self.lanes:
            lane.begin_drain()
        if not await self._drained(self.drain_within, patient=True):
            self._end_handlers()
            if not await self._drained(RETURN_WITHIN, patient=False):
                self._give_back()
                await self._drained(wire.RELEASE_WITHIN, patient=False)
        await asyncio.gather(*(lane.session.drain(CLOSE_WITHIN) for lane in self.lanes))
        left = self._held() + self._missed
        self._finish("stopped")
        if left:
            self.engine.log.warning("%d tasks were not settled before the end", left)

    def _end_handlers(self) -> None:
        """Tell the handlers to end that did not finish in time. Their tasks go back when they return."""
        for lane in self.lanes:
            for t in list(lane.held.values()):
                if t.stage == OPEN:
                    t.stopped = True
                    self.handlers.end(t, "stopped", "")

    def _give_back(self) -> None:
        """Release the tasks whose handlers have not returned."""
        now = wire.monotonic()
        for lane in self.lanes:
            for t in list(lane.held.values()):
                if t.stage != OPEN:
                    continue
                t.released = True
                self.handlers.outlived(1)
                double = Attempt(lane, t.message, now)  # the item of t belongs to its handler
                double.take()
                lane.held[t.key] = double
                lane.give_back(double)

    def _finish(self, why: str) -> None:
        """End what is left."""
        self.over = True
        for lane in self.lanes:
            self._lose(lane, why)

    def _lose(self, lane: Lane, why: str) -> None:
        """End the attempts of a lane: nothing can be settled on it any more."""
        for t in list(lane.held.values()):
            t.lost = True
            if t.stage == OPEN and not t.take():
                self.handlers.outlived(1)
                self.handlers.end(t, why, "")
        lane.held.clear()
        lane.stop_timers()
