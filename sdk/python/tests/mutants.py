"""Planted bugs: each patches the library at the start of an agent, so that a scenario is seen to fail where it must."""

from __future__ import annotations

from typing import Any

import millrace_sdk as mr
from millrace_sdk._core import faults, lane, producer, wire, work


def forget_held() -> None:
    """A new stream names no leases, as those that came before it are forgotten."""
    before = lane.Lane.hello

    def hello(self: Any, h: Any) -> None:
        self.held = {k: t for k, t in self.held.items() if t.stage != lane.OPEN}
        before(self, h)
        del h.held[:]

    lane.Lane.hello = hello  # type: ignore[method-assign]


def drop_settle() -> None:
    """The first settle is never sent."""
    before = lane.Lane.settle
    dropped: list[str] = []

    def settle(self: Any, t: Any) -> None:
        if dropped:
            before(self, t)
        else:
            dropped.append(t.id)
            t.stage = lane.SETTLING

    lane.Lane.settle = settle  # type: ignore[method-assign]


def loop_renew() -> None:
    """Leases are renewed by the loop, or the threads, that handlers block."""
    before = lane.Lane._renew_due

    def due(self: Any) -> None:
        core = self.core
        runtime = core.handlers.begin.__self__
        back = lambda: core.engine.io.post(before, self)  # noqa: E731
        if runtime._bridge is not None:
            runtime._bridge.post(back)
        else:
            pool, run = runtime._pool, runtime._run_sync
            pool._run = lambda a: a() if callable(a) else run(a)
            pool.submit([back])

    lane.Lane._renew_due = due  # type: ignore[method-assign]


def retry_refused() -> None:
    """A refused call is repeated."""
    faults.patience = lambda e: 30.0


def new_id() -> None:
    """A repeated create has another id."""
    before = producer._CreateFrame.lost

    def lost(self: Any) -> None:
        before(self)
        for c in self._calls:
            for i, raw in enumerate(c.items):
                spec = wire.TaskSpec.FromString(raw)
                spec.id = mr.new_id()
                c.items[i] = spec.SerializeToString()

    producer._CreateFrame.lost = lost  # type: ignore[method-assign]


def settle_lost() -> None:
    """A settle is sent after the lease was lost."""
    before = work.WorkerCore.finished

    def finished(self: Any, t: Any) -> None:
        if t.lost and t.lane is not None:
            t.lost = False
            t.lane.held[t.key] = t
        before(self, t)

    work.WorkerCore.finished = finished  # type: ignore[method-assign]


def no_drain() -> None:
    """A stop ends handlers at once."""
    before = work.WorkerCore.stop

    def stop(self: Any) -> None:
        self._hurry = True
        before(self)

    work.WorkerCore.stop = stop  # type: ignore[method-assign]


def plant(name: str) -> None:
    """Plant a bug by its name."""
    globals()[name.replace("-", "_")]()
