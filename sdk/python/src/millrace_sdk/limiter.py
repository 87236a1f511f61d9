"""Limiters: bounds that tasks of several queues share."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ._core import wire
from ._core.pages import apages, pages
from .queue import Rate, _rate, _write_rate
from .types import maybe_time

_PAGE = 1000


@dataclass(frozen=True)
class LimiterHolder:
    """A running task that holds a limiter."""

    task: str
    queue: str


@dataclass(frozen=True)
class LimiterInfo:
    """A limiter, and what is used of it in all partitions."""

    name: str
    concurrency: int | None  # what its running tasks may cost together, in each partition; None: no bound
    rate: Rate | None  # of what begins, in units of cost, in each partition
    version: int  # rises with each change
    used: int  # what the running tasks cost together that hold it
    tasks: int  # that have not ended and name it themselves, those that run included
    until: datetime.datetime | None  # when its rate lets a task of cost 1 begin; None: now
    held_by: tuple[LimiterHolder, ...]  # the first 10 running tasks that hold it; only where one limiter is read
    queues: tuple[str, ...]  # the first 10 queues whose settings name it; only where one limiter is read
    message: Any = field(repr=False, compare=False, default=None)  # of the contract, with all that it has


def _info(m: Any) -> LimiterInfo:
    return LimiterInfo(
        name=m.name,
        concurrency=m.config.concurrency or None,
        rate=_rate(m.config),
        version=m.version,
        used=m.used,
        tasks=m.tasks,
        until=maybe_time(m, "until"),
        held_by=tuple(LimiterHolder(h.task, h.queue) for h in m.held_by),
        queues=tuple(m.queues),
        message=m,
    )


def _page(client: Any, prefix: str, cursor: str) -> Any:
    request = wire.message("ListLimitersRequest")(limit=_PAGE, cursor=cursor, prefix=prefix)
    return client._unary(
        "LimiterService/List", request, "ListLimitersResponse", lambda r: ([_info(m) for m in r.limiters], r.cursor)
    )


def limiters(client: Any, prefix: str) -> Iterator[LimiterInfo]:
    """Go through the limiters by name, page by page."""
    return pages(lambda cursor: _page(client, prefix, cursor))


def alimiters(client: Any, prefix: str) -> AsyncIterator[LimiterInfo]:
    """Go through the limiters as limiters does."""
    return apages(lambda cursor: _page(client, prefix, cursor))


class _Limiter:
    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name

    def _ask(self, method: str, read: Callable[[Any], Any], fill: Callable[[Any], None] | None, **fields: Any) -> Any:
        request = wire.message(method + "LimiterRequest")(name=self.name, **fields)
        if fill is not None:
            fill(request)
        return self._client._unary("LimiterService/" + method, request, method + "LimiterResponse", read)

    def _set(self, concurrency: int | None, rate: Rate | None, if_version: int | None) -> Any:
        def fill(m: Any) -> None:
            m.config.SetInParent()
            m.config.concurrency = concurrency or 0
            if rate is not None:
                _write_rate(m.config.rate, rate)

        return self._ask("Set", lambda r: _info(r.limiter), fill, if_version=if_version)

    def _get(self) -> Any:
        return self._ask("Get", lambda r: _info(r.limiter), None)

    def _delete(self, if_version: int | None) -> Any:
        return self._ask("Delete", lambda r: None, None, if_version=if_version)


class Limiter(_Limiter):
    """A limiter of a Client. set makes one that is not there."""

    def set(
        self, *, concurrency: int | None = None, rate: Rate | None = None, if_version: int | None = None
    ) -> LimiterInfo:
        """Make the limiter, or replace what it bounds; this needs the scope admin. None bounds nothing.

        Running tasks go on when a limit falls below what runs. if_version is the version that it must have; 0: it must
        not be there yet.
        """
        out: LimiterInfo = self._set(concurrency, rate, if_version)
        return out

    def get(self) -> LimiterInfo:
        """Read the limiter, with the tasks that hold it. NotFound: it is not there."""
        out: LimiterInfo = self._get()
        return out

    def delete(self, *, if_version: int | None = None) -> None:
        """Remove the limiter. WrongState: a queue names it, or a task that has not ended."""
        self._delete(if_version)


class AsyncLimiter(_Limiter):
    """A limiter of an AsyncClient. set makes one that is not there."""

    async def set(
        self, *, concurrency: int | None = None, rate: Rate | None = None, if_version: int | None = None
    ) -> LimiterInfo:
        """Make the limiter, or replace what it bounds; this needs the scope admin. None bounds nothing.

        Running tasks go on when a limit falls below what runs. if_version is the version that it must have; 0: it must
        not be there yet.
        """
        out: LimiterInfo = await self._set(concurrency, rate, if_version)
        return out

    async def get(self) -> LimiterInfo:
        """Read the limiter, with the tasks that hold it. NotFound: it is not there."""
        out: LimiterInfo = await self._get()
        return out

    async def delete(self, *, if_version: int | None = None) -> None:
        """Remove the limiter. WrongState: a queue names it, or a task that has not ended."""
        await self._delete(if_version)
