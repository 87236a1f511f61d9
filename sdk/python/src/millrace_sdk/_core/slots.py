"""Keeps a worker's slots divided over its lanes: they go where the work is. With one lane it has nothing to do."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from . import wire
from .lane import OPEN, SETTLED, Attempt, Lane
from .share import divide, roam, stay

if TYPE_CHECKING:
    from .work import WorkerCore

_BALANCE_LEAST = 0.01  # seconds between two balances
_BALANCE_EVERY = 0.1  # while some lane has more or less than its even share
_SURPLUS_AFTER = 0.25  # a task that came beyond the slots waits no longer than this for one


class Division:
    """The slots of one worker. All of it is the I/O thread's."""

    def __init__(self, core: WorkerCore) -> None:
        self._core = core
        self._last = 0.0  # when the slots were balanced last
        self._owed = False  # a lane waits for slots that others still use
        self._freed = False  # some came free in this turn of the loop
        self._next = 0.0  # when the timer balances; 0: it is not set
        self._timer: asyncio.TimerHandle | None = None
        self._over: asyncio.TimerHandle | None = None
        self.waiting: deque[Attempt] = deque()  # came beyond the slots: a window that shrinks may have been used

    @staticmethod
    def _used(lane: Lane) -> int:
        """Return how many slots the tasks of a lane take. One whose settle has left takes none."""
        n = 0
        for t in lane.held.values():
            if t.stage != SETTLED:
                n += 1
        return n

    def balance(self) -> None:
        """Divide the slots over the lanes again."""
        core = self._core
        if len(core.lanes) == 1 or core.drains or core.over:
            return
        now = self._last = wire.monotonic()
        shares = [lane.share for lane in core.lanes]
        for lane in core.lanes:
            lane.share.used = self._used(lane)
        wait = _BALANCE_EVERY
        if core.slots < len(shares):
            roam(core.slots, shares, now)
            wait = stay(core.slots, len(shares))
        elif not divide(core.slots, shares, now):
            wait = 0.0
        self._resize(now)
        if wait > 0:
            self._balance_in(wait, now)

    def _balance_in(self, wait: float, now: float) -> None:
        """Balance after some seconds at the latest."""
        if self._next and now + wait >= self._next:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._next = now + wait
        self._timer = self._core.engine.io.loop.call_later(wait, self._due)

    def _due(self) -> None:
        self._next, self._timer = 0.0, None
        self.balance()

    def _soon(self, now: float) -> None:
        """Balance now, or as soon as the last time is long enough ago."""
        if now - self._last >= _BALANCE_LEAST:
            self.balance()
        else:
            self._balance_in(_BALANCE_LEAST, now)

    def _resize(self, now: float) -> None:
        """Bring the windows to their targets: those that shrink at once, those that grow as slots come free.

        So no more tasks are given out than there are slots.
        """
        core = self._core
        claimed = 0  # by windows, and by tasks that are beyond a window which has shrunk
        used = [self._used(lane) for lane in core.lanes]
        for lane, n in zip(core.lanes, used, strict=True):
            if lane.share.slots > lane.share.target:
                self._set(lane, lane.share.target, n, now)
            claimed += max(lane.share.slots, n)
        self._owed = False
        for lane, n in zip(core.lanes, used, strict=True):
            s = lane.share
            if s.slots >= s.target:
                continue
            before = max(s.slots, n)
            to = min(s.target, before + max(core.slots - claimed, 0))
            if to > s.slots:
                claimed += max(to, n) - before
                self._set(lane, to, n, now)
            self._owed = self._owed or s.slots < s.target

    def _set(self, lane: Lane, slots: int, used: int, now: float) -> None:
        lane.share.set(slots, used, now)
        if lane.share.up and not self._core.drains:
            lane.restate()

    def freed(self) -> None:
        """Take in that tasks gave slots back."""
        if self.waiting:
            self.pump()
        if self._owed and not self._freed:
            self._freed = True
            self._core.engine.io.loop.call_soon(self._grow)

    def _grow(self) -> None:
        self._freed = False
        if self._owed and not self._core.drains and not self._core.over:
            self._resize(wire.monotonic())

    def filled(self, lane: Lane, now: float) -> None:
        """Take in that tasks came to a lane."""
        used = self._used(lane)
        if used and used >= lane.share.slots:
            lane.share.filled = now
            self._soon(now)

    def available(self, lane: Lane) -> None:
        """Take in that a lane without slots could have tasks."""
        if lane.share.slots == 0:
            lane.share.wanted = True
            self._soon(wire.monotonic())

    # What came beyond the slots.

    def _open(self) -> int:
        """Return how many attempts have a handler that runs, or is to run."""
        n = 0
        for lane in self._core.lanes:
            for t in lane.held.values():
                if t.stage == OPEN:
                    n += 1
        return n

    def admit(self, attempts: list[Attempt]) -> list[Attempt]:
        """Return those that may begin; the others wait for a slot, for a while."""
        self._tidy()
        more = self._open() - len(self.waiting) - self._core.slots
        if more <= 0:
            return attempts
        keep = max(len(attempts) - more, 0)
        self.waiting.extend(attempts[keep:])
        if self._over is None:
            self._over = self._core.engine.io.loop.call_later(_SURPLUS_AFTER, self._give_back)
        return attempts[:keep]

    def _tidy(self) -> None:
        if self.waiting:
            self.waiting = deque(t for t in self.waiting if t.stage == OPEN and not t.lost and not t.begun)

    def pump(self) -> None:
        """Begin what waits, as far as there are slots."""
        self._tidy()
        room = self._core.slots - (self._open() - len(self.waiting))
        begin = [self.waiting.popleft() for _ in range(min(room, len(self.waiting)))]
        if begin:
            self._core.handlers.begin(begin)

    def _give_back(self) -> None:
        """Give back what no slot came free for."""
        self._over = None
        self._tidy()
        if self._core.drains or self._core.over:
            return
        for t in list(self.waiting):
            if t.refusal is None and t.lane is not None and t.take():
                self._core.unqueued(t)
                t.lane.give_back(t)
        self._tidy()

    def stop(self) -> None:
        """End the division: nothing is given out any more."""
        for timer in (self._timer, self._over):
            if timer is not None:
                timer.cancel()
