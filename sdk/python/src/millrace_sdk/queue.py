"""Queues: their counters, and whether they give out tasks."""

from __future__ import annotations

import time
from typing import Any

from ._core import wire
from .types import QueueStats, queue_stats


class _Queue:
    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name

    def _stats(self) -> Any:
        request = wire.message("QueueStatsRequest")(queue=self.name)
        return self._client._unary(
            "QueueService/Stats",
            request,
            "QueueStatsResponse",
            lambda r: queue_stats(r.stats),
            op="stats",
            queue=self.name,
        )

    def _pause(self, reason: str, seconds: float | None) -> Any:
        request = wire.message("PauseQueueRequest")(queue=self.name, reason=reason)
        if seconds is not None:
            wire.set_time(request.until, time.time() + seconds)
        return self._client._unary("QueueService/Pause", request, "PauseQueueResponse", lambda r: None)

    def _resume(self) -> Any:
        request = wire.message("ResumeQueueRequest")(queue=self.name)
        return self._client._unary("QueueService/Resume", request, "ResumeQueueResponse", lambda r: None)


class Queue(_Queue):
    """A queue of a Client."""

    def stats(self) -> QueueStats:
        """Read the counters."""
        out: QueueStats = self._stats()
        return out

    def pause(self, reason: str = "", *, seconds: float | None = None) -> None:
        """Give out no tasks until it is resumed, or for some seconds."""
        self._pause(reason, seconds)

    def resume(self) -> None:
        """Give out tasks again."""
        self._resume()


class AsyncQueue(_Queue):
    """A queue of an AsyncClient."""

    async def stats(self) -> QueueStats:
        """Read the counters."""
        out: QueueStats = await self._stats()
        return out

    async def pause(self, reason: str = "", *, seconds: float | None = None) -> None:
        """Give out no tasks until it is resumed, or for some seconds."""
        await self._pause(reason, seconds)

    async def resume(self) -> None:
        """Give out tasks again."""
        await self._resume()
