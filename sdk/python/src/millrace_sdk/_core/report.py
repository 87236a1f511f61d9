"""What a handler tells of its work: progress, lines of a log, and a checkpoint. One report a second at most is sent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..errors import MillraceError
from . import wire

if TYPE_CHECKING:
    from .engine import Engine
    from .lane import Attempt

LINES, LINES_BYTES, LINE_BYTES, TEXT_BYTES = 500, 64 << 10, 4 << 10, 256
CHECKPOINT_BYTES = 64 << 10
_EVERY = 1.0  # seconds
_PATIENT = 30.0  # seconds for a report in the background
_LAST = 5.0  # seconds for the last one of an attempt, which its settle waits for


def clean(text: str, size: int) -> str:
    """Return text that the contract allows, cut to a size."""
    return wire.cut(text.replace("\0", "\ufffd"), size)


class Reporter:
    """Sends the reports of one attempt. All of it is the I/O thread's."""

    def __init__(self, engine: Engine, t: Attempt) -> None:
        self._engine = engine
        self._t = t
        self._number = 0
        self._progress: tuple[int, str] | None = None
        self._lines: list[str] = []
        self._bytes = 0
        self._dropped = 0
        self._checkpoint: bytes | None = None
        self._unsent: Any = None  # a report of unknown outcome: it goes again, under its number
        self._running: asyncio.Task[Any] | None = None
        self._lock = asyncio.Lock()
        self._ended: MillraceError | None = None
        self._last = 0.0

    def progress(self, percent: int, text: str) -> None:
        """Take in how far the work is."""
        self._progress = (min(max(percent, 0), 100), clean(text, TEXT_BYTES))
        self._start()

    def log(self, line: str) -> None:
        """Take a line; of too many within a second the first ones are dropped, and counted."""
        line = clean(line.rstrip("\r\n"), LINE_BYTES)
        self._lines.append(line)
        self._bytes += len(line.encode())
        while len(self._lines) > LINES or self._bytes > LINES_BYTES:
            self._bytes -= len(self._lines.pop(0).encode())
            self._dropped += 1
        self._start()

    async def checkpoint(self, data: bytes) -> None:
        """Save a checkpoint, and return when it is durable."""
        self._checkpoint = data
        while self._unsent is not None or self._checkpoint is not None:  # pyright: ignore[reportUnnecessaryComparison]
            await self._send(_PATIENT)

    def pending(self) -> bool:
        """Report whether something is to be sent."""
        return self._ended is None and (self._unsent is not None or self._something())

    def _something(self) -> bool:
        return bool(self._progress or self._lines or self._dropped or self._checkpoint is not None)

    def _start(self) -> None:
        if self._running is None or self._running.done():
            self._running = self._engine.io.spawn(self._run())

    async def _run(self) -> None:
        while self.pending() and not self._t.lost:
            wait = self._last + _EVERY - wire.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            try:
                await self._send(_PATIENT)
            except MillraceError as e:
                self._engine.log.info("a report of task %s was not taken: %s", self._t.id, e)

    def _take(self) -> Any:
        if self._unsent is None and self._something():
            self._number += 1
            r = wire.message("ReportRequest")(id=self._t.id, token=self._t.token, number=self._number)
            if self._progress is not None:
                r.progress.percent, r.progress.message = self._progress
            r.lines.extend(self._lines)
            r.lines_dropped = self._dropped
            if self._checkpoint is not None:
                r.checkpoint = self._checkpoint
            self._progress, self._lines, self._bytes, self._dropped, self._checkpoint = None, [], 0, 0, None
            self._unsent = r
        return self._unsent

    async def _send(self, timeout: float) -> None:
        async with self._lock:
            if self._ended is not None:
                raise self._ended
            r = self._take()
            if r is None:
                return
            self._last = wire.monotonic()
            try:
                home = self._t.lane.session.partition if self._t.lane is not None else 0
                answer = wire.message("ReportResponse")
                await self._engine.call("TaskService/Report", r, answer, timeout, place=lambda n: home)
            except MillraceError as e:
                if e.outcome == "refused" and not e.ended_here:
                    self._unsent, self._ended = None, e
                raise
            self._unsent = None

    async def finish(self) -> None:
        """Send what waits before the attempt is settled, for a while."""
        if self._running is not None:
            self._running.cancel()
        try:
            while self.pending() and not self._t.lost:
                await self._send(_LAST)
        except MillraceError:
            pass
