"""Leaves a node that owes an answer and is silent while another one leads.

A node that hangs keeps its connections, and pings take half a minute to tell. After a second or two another node leads.
So while a node is silent the others are asked who leads; if they name another one, what is under way there ends, and is
repeated where they say. A client that knows of one node alone cannot ask another one, and has no timer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from . import faults, wire
from .faults import StatusError

if TYPE_CHECKING:
    from .engine import Engine

_SILENT_FOR = 1.0  # seconds for which a node may be silent while it owes an answer
_TICK = 0.25
_ASK_EVERY, _ASK_MOST = 0.5, 10.0  # seconds between questions to the others, at first and at most
_ASK_WITHIN = 1.0


class Debtor(Protocol):
    """A stream, or a call, at a node. All of it is the I/O thread's."""

    at: str  # the address of the node; empty: at none now
    heard: float  # when something came last; 0: nothing has
    owed_since: float  # when the first of what is owed left

    def owes(self) -> bool:
        """Report whether the node owes it an answer."""
        ...

    def leave(self) -> None:
        """End what is under way, as if the connection had broken."""


class _Owed:
    """A call that may be repeated."""

    def __init__(self, at: str, task: asyncio.Task[Any]) -> None:
        self.at = at
        self.heard = 0.0
        self.owed_since = wire.monotonic()
        self.left = False
        self._task = task

    def owes(self) -> bool:
        return True

    def leave(self) -> None:
        self.left = True
        self._task.cancel()


def left_error() -> StatusError:
    """Make the error of what ended because its node was left."""
    return StatusError(14, "the node was silent, and another one leads")


class Silence:
    """Watches all nodes that a client speaks to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._debtors: set[Debtor] = set()
        self._heard: dict[str, float] = {}  # by address, what calls have heard
        self._asked: dict[str, tuple[int, float]] = {}  # by address: how often in a row, and from when on again
        self._timer: asyncio.TimerHandle | None = None

    def add(self, d: Debtor) -> None:
        """Watch what a node may owe to d."""
        self._debtors.add(d)
        self.watch()

    def discard(self, d: Debtor) -> None:
        """Watch it no more."""
        self._debtors.discard(d)

    def watch(self) -> None:
        """Look from now on, if there is something to look at and somebody to ask."""
        if self._timer is None and self._debtors and len(self._engine.leaders.all()) > 1:
            self._timer = self._engine.io.loop.call_later(_TICK, self._tick)

    def stop(self) -> None:
        """Look no more."""
        self._debtors.clear()
        if self._timer is not None:
            self._timer.cancel()

    async def call(self, address: str, run: Coroutine[Any, Any, Any]) -> Any:
        """Carry out a call that may be repeated; one whose node is left ends as one that was not reached."""
        if len(self._engine.leaders.all()) < 2:
            return await run
        task = asyncio.ensure_future(run)
        owed = _Owed(address, task)
        self.add(owed)
        try:
            return await task
        except asyncio.CancelledError:
            if owed.left:
                raise left_error() from None
            task.cancel()
            raise
        finally:
            self.discard(owed)
            if not owed.left:
                self._heard[address] = wire.monotonic()

    def _quiet(self, address: str, now: float) -> float:
        """Return for how long a node has owed an answer and has not been heard of."""
        since, heard = math.inf, self._heard.get(address, 0.0)
        for d in self._debtors:
            if d.at == address:
                heard = max(heard, d.heard)
                if d.owes():
                    since = min(since, d.owed_since)
        return now - max(since, heard)

    def _tick(self) -> None:
        self._timer = None
        now = wire.monotonic()
        for address in {d.at for d in self._debtors if d.at}:
            if self._quiet(address, now) < _SILENT_FOR:
                self._asked.pop(address, None)
                continue
            times, again = self._asked.get(address, (0, 0.0))
            if now >= again:
                wait = min(_ASK_EVERY * (1 << min(times, 8)), _ASK_MOST)
                self._asked[address] = (times + 1, now + _ASK_WITHIN + wait)
                self._engine.io.spawn(self._ask(address))
        self.watch()

    async def _ask(self, silent: str) -> None:
        """Ask the other nodes who leads a partition of the silent one, and leave it if they name another one."""
        leaders = self._engine.leaders
        partition = leaders.led_by(silent)
        knocks = [asyncio.ensure_future(self._knock(a, partition, silent)) for a in leaders.all() if a != silent]
        named = ""
        for knock in asyncio.as_completed(knocks):
            named = await knock
            if named:
                break
        for knock in knocks:
            knock.cancel()
        if not named or self._quiet(silent, wire.monotonic()) < _SILENT_FOR:
            return
        self._engine.log.warning("%s is silent, and %s leads", silent, named)
        leaders.left(silent, partition, named)
        for d in list(self._debtors):
            if d.at == silent:
                d.leave()

    async def _knock(self, address: str, partition: int, silent: str) -> str:
        """Open a stream as a session would: the node, or the one that it names; empty: the silent one, or none."""
        engine = self._engine
        told: asyncio.Future[str] = engine.io.loop.create_future()

        def frames(came: list[Any]) -> None:
            if not told.done():
                told.set_result(address if came[0].WhichOneof("frame") == "welcome" else "")

        def ended(s: StatusError | None) -> None:
            if not told.done():
                told.set_result(faults.from_status(s).leader if s is not None else "")

        stream = engine.transport(address).open("QueueStream/Open", engine.metadata(), frames, lambda: None, ended)
        hello = wire.ClientFrame()
        h = hello.hello
        h.version, h.namespace, h.session, h.partition = 1, engine.namespace, wire.random16(), partition
        stream.send(hello.SerializeToString())
        try:
            named = await asyncio.wait_for(told, _ASK_WITHIN)
        except asyncio.TimeoutError:
            return ""
        finally:
            stream.cancel()
        return named if named and named != silent and engine.allows(named) else ""
