"""The parent's side of the process that keeps leases while C code holds the interpreter's lock."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import Engine
    from .lane import Attempt

_BEAT = 0.1  # seconds
_START_WITHIN = 30.0  # seconds


class Helper:
    """Starts the process, and tells it of leases. All of it is the I/O thread's."""

    def __init__(self, engine: Engine, stall: float) -> None:
        self._engine = engine
        self._stall = stall
        env = dict(os.environ)
        here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        env["PYTHONPATH"] = here + (os.pathsep + env["PYTHONPATH"] if env.get("PYTHONPATH") else "")
        # In a session of its own, so that a signal to the group of its parent leaves it until the drain is over.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "millrace_sdk._renew"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()
        os.set_blocking(self._pipe, False)
        self._waiting = bytearray()
        self._told: tuple[int, int, str, str] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tick()

    async def ready(self) -> None:
        """Wait until the process can renew, for a while: a worker takes no tasks before."""
        assert self._process.stdout is not None
        loop, fd = self._engine.io.loop, self._process.stdout.fileno()
        told: asyncio.Future[bytes] = loop.create_future()

        def readable() -> None:
            loop.remove_reader(fd)
            if not told.done():
                told.set_result(os.read(fd, 64))

        loop.add_reader(fd, readable)
        try:
            if not await asyncio.wait_for(told, _START_WITHIN):
                self._engine.log.warning("the process that renews leases ended")
        except asyncio.TimeoutError:
            loop.remove_reader(fd)
            self._engine.log.warning("the process that renews leases did not start within %.0f s", _START_WITHIN)

    def _tick(self) -> None:
        """Tell the helper that this process goes on, and where the partitions are led."""
        self._timer = self._engine.io.loop.call_later(_BEAT, self._tick)
        partitions, leaders, rest = max(self._engine.partitions, 1), self._engine.leaders, self._engine.ways.host
        now = (leaders.changes, partitions, rest, self._engine.token)
        if self._told != now:
            self._told = now
            tls = self._engine.options.tls
            where = {
                "addresses": [leaders.address(p) for p in range(partitions)],
                "rest": rest,
                "tls": bool(tls),
                "roots": tls.decode() if isinstance(tls, bytes) else "",
                "stall": self._stall,
                "metadata": self._engine.metadata(),
            }
            self._write("!" + json.dumps(where))
        self._write(".")

    def _write(self, line: str) -> None:
        self._waiting += line.encode() + b"\n"
        try:
            n = os.write(self._pipe, self._waiting)
        except BlockingIOError:
            return
        except OSError:
            self._waiting.clear()
            return
        del self._waiting[:n]

    def hold(self, attempts: Sequence[Attempt]) -> None:
        """Tell of leases."""
        for t in attempts:
            partition = t.lane.session.partition if t.lane is not None else 0
            self._write(f"+{t.id} {t.token} {round(t.length * 1000)} {partition}")

    def forget(self, t: Attempt) -> None:
        """Tell of the end of a lease."""
        self._write(f"-{t.id} {t.token}")

    def close(self) -> None:
        """End the process."""
        if self._timer is not None:
            self._timer.cancel()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
