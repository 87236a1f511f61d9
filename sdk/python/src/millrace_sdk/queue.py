"""Queues: their counters, their limits, their keys, and whether they give out tasks."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from . import errors
from ._core import restjson, wire
from ._core.pages import apages, pages
from .errors import NotFound, PreconditionFailed
from .job import names_of
from .types import BACKOFFS, QueuePaused, QueueStats, Retry, maybe_time, queue_paused, queue_stats, set_until

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .bulk import BulkInfo, RedriveOptions

Fairness = Literal["lanes", "none"]
Order = Literal["fifo", "strict"]
_FAIRNESS = ("lanes", "none")  # by number, as the words below
_ORDERS = ("fifo", "strict")
_PAGE = 1000
_TRIES = 20  # of an update: far more than people and programs change one queue at once


@dataclass(frozen=True)
class Rate:
    """How much begins in a time: tasks that cost limit together in each per seconds, and burst at once."""

    limit: int  # 1 to 1,000,000,000
    per: float  # seconds, 0.001 to a day
    burst: int | None = None  # default: limit


@dataclass(frozen=True)
class KeyLimits:
    """What bounds each key of a queue. None bounds nothing. Tasks without a key count as those of one key."""

    concurrency: int | None = None  # tasks that run at once
    rate: Rate | None = None


@dataclass(frozen=True)
class QueueCeilings:
    """What a task may ask for itself: an add beyond one is InvalidArgument, reason ceiling. None bounds nothing."""

    attempts: int | None = None
    crashes: int | None = None
    deliveries: int | None = None  # such a task cannot turn its limit off either
    lease: float | None = None  # seconds
    max_run: float | None = None  # seconds
    priority: int | None = None  # 1 to 9


class QueueSettings(TypedDict, total=False):
    """What rules a queue. None is the default. Times are seconds."""

    attempts: int | None  # default: 5
    crashes: int | None  # 10
    deliveries: int | None  # 1,000; 0: no bound
    lease: float | None  # 60
    max_run: float | None  # no bound
    retry: Retry | None
    max_payload: int | None  # bytes; 1 MiB, which is also the most
    aging: float | None  # 60; 0: strict priority
    retain_completed: float | None  # a day; 0: removed at the end
    retain_cancelled: float | None  # a day
    retain_dead: float | None  # 14 days
    cancel_grace: float | None  # 30: how long the worker of a cancelled task may go on
    default_ttl: float | None  # a task that names no expires_at expires this long after its add; no bound
    max_tasks: int | None  # that have not ended, in each partition; no bound
    max_bytes: int | None  # of payloads and results, in each partition; no bound
    ceilings: QueueCeilings | None
    fairness: Fairness | None  # lanes: keys get shares by their weights; none: the first task of all goes first
    order: Order | None  # fifo, or strict: one task of a key at a time
    concurrency: int | None  # tasks that run at once; no bound
    rate: Rate | None
    per_key: KeyLimits | None
    max_workers: int | None  # workers that have tasks at once; no bound
    dead_letter: str | None  # the queue in which a copy is made of each task that dies
    limiters: Sequence[str] | None  # at most 4 that each of its tasks needs, besides those that the task names


@dataclass(frozen=True)
class QueueConfig:
    """What rules a queue, as QueueSettings says it. None is the default."""

    version: int  # rises with each change
    attempts: int | None
    crashes: int | None
    deliveries: int | None
    lease: float | None
    max_run: float | None
    retry: Retry | None
    max_payload: int | None
    aging: float | None
    retain_completed: float | None
    retain_cancelled: float | None
    retain_dead: float | None
    cancel_grace: float | None
    default_ttl: float | None
    max_tasks: int | None
    max_bytes: int | None
    ceilings: QueueCeilings | None
    fairness: Fairness
    order: Order
    concurrency: int | None
    rate: Rate | None
    per_key: KeyLimits | None
    max_workers: int | None
    dead_letter: str | None
    limiters: tuple[str, ...]


@dataclass(frozen=True)
class QueueKey:
    """A key of a queue that has tasks which have not ended, or for which something is set."""

    key: str
    tasks: int
    ready: int
    running: int
    weight: int  # its share among the keys that have tasks ready
    concurrency: int | None  # None: the queue's, as the rate
    rate: Rate | None
    pause: QueuePaused | None
    oldest_ready: datetime.datetime | None
    waits_for: str  # what holds its ready tasks up: paused, concurrency, rate, order; empty: nothing of its own
    until: datetime.datetime | None  # when its rate lets the next task go
    held_by: tuple[str, ...]  # the first 10 tasks that hold it up
    owed: int  # by how much, in cost by weight 1, it is behind the key that was served last; negative: ahead


# The names of settings in the contract, by how they are written.
_COUNTS = {
    "attempts": "max_attempts",
    "crashes": "max_crashes",
    "max_payload": "max_payload",
    "max_tasks": "max_tasks",
    "max_bytes": "max_bytes",
    "concurrency": "concurrency",
    "max_workers": "max_workers",
    "dead_letter": "dead_letter",
}
_SPANS = (
    "lease",
    "max_run",
    "aging",
    "retain_completed",
    "retain_cancelled",
    "retain_dead",
    "cancel_grace",
    "default_ttl",
)
_WORDS = {"fairness": _FAIRNESS, "order": _ORDERS}
_OTHERS = {
    "deliveries": "max_deliveries",
    "retry": "retry",
    "ceilings": "ceilings",
    "rate": "rate",
    "per_key": "per_key",
}
_CEILINGS = {
    "attempts": "max_attempts",
    "crashes": "max_crashes",
    "deliveries": "max_deliveries",
    "priority": "priority",
}


def _write(m: Any, settings: Mapping[str, Any]) -> None:
    """Write the settings that are named; those of None as their defaults."""
    for name, v in settings.items():
        field = _COUNTS.get(name) or _OTHERS.get(name) or name
        if name not in QueueSettings.__optional_keys__:
            raise TypeError(f"unknown setting {name!r}")
        m.ClearField(field)
        if v is None:
            continue
        if name in _SPANS:
            wire.set_span(getattr(m, field), v)
        elif name in _WORDS:
            if v not in _WORDS[name]:
                raise errors.InvalidArgument(f"{name}: must be {' or '.join(_WORDS[name])}", field="config." + name)
            setattr(m, field, _WORDS[name].index(v))
        elif name == "retry":
            v._write(m.retry)
            m.retry.SetInParent()
        elif name == "ceilings":
            _write_ceilings(m.ceilings, v)
        elif name == "rate":
            _write_rate(m.rate, v)
        elif name == "per_key":
            _write_limits(m.per_key, v)
        elif name == "limiters":
            m.limiters.extend(names_of(name, v))
        else:
            setattr(m, field, v)


def _write_rate(m: Any, r: Rate) -> None:
    m.limit, m.burst = r.limit, r.burst or 0
    wire.set_span(m.per, r.per)
    m.SetInParent()


def _write_limits(m: Any, k: KeyLimits) -> None:
    m.concurrency = k.concurrency or 0
    if k.rate is not None:
        _write_rate(m.rate, k.rate)


def _write_ceilings(m: Any, c: QueueCeilings) -> None:
    for name, field in _CEILINGS.items():
        setattr(m, field, getattr(c, name) or 0)
    if c.lease is not None:
        wire.set_span(m.lease, c.lease)
    if c.max_run is not None:
        wire.set_span(m.max_run, c.max_run)


def _config(m: Any) -> QueueConfig:
    given: dict[str, Any] = {name: getattr(m, field) or None for name, field in _COUNTS.items()}
    given |= {name: _span(m, name) for name in _SPANS}
    given |= {name: words[n] if (n := getattr(m, name)) < len(words) else "unknown" for name, words in _WORDS.items()}
    return QueueConfig(
        version=m.version,
        deliveries=m.max_deliveries if m.HasField("max_deliveries") else None,
        retry=_retry(m.retry) if m.HasField("retry") else None,
        ceilings=_ceilings(m.ceilings) if m.HasField("ceilings") else None,
        rate=_rate(m),
        per_key=KeyLimits(m.per_key.concurrency or None, _rate(m.per_key)) if m.HasField("per_key") else None,
        limiters=tuple(m.limiters),
        **given,
    )


def _span(m: Any, name: str) -> float | None:
    return wire.span(getattr(m, name)) if m.HasField(name) else None


def _rate(m: Any) -> Rate | None:
    """Read the rate of a message that has one."""
    return Rate(m.rate.limit, wire.span(m.rate.per), m.rate.burst or None) if m.HasField("rate") else None


def _retry(m: Any) -> Retry:
    words: dict[int, Any] = {n: word for word, n in BACKOFFS.items()}
    return Retry(_span(m, "base"), _span(m, "max"), m.factor or None, words.get(m.backoff))


def _ceilings(m: Any) -> QueueCeilings:
    counts = {name: getattr(m, field) or None for name, field in _CEILINGS.items()}
    return QueueCeilings(lease=_span(m, "lease"), max_run=_span(m, "max_run"), **counts)


def _key(k: Any) -> QueueKey:
    return QueueKey(
        key=k.key,
        tasks=k.tasks,
        ready=k.ready,
        running=k.running,
        weight=k.settings.weight or 1,
        concurrency=k.settings.concurrency or None,
        rate=_rate(k.settings),
        pause=queue_paused(k),
        oldest_ready=maybe_time(k, "oldest_ready"),
        waits_for=k.waits_for,
        until=maybe_time(k, "until"),
        held_by=tuple(k.held_by),
        owed=k.owed,
    )


class _Queue:
    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name

    def _ask(self, method: str, messages: str, read: Callable[[Any], Any], fill: Any = None, **fields: Any) -> Any:
        request = wire.message(messages + "Request")(queue=self.name, **fields)
        if fill is not None:
            fill(request)
        return self._client._unary("QueueService/" + method, request, messages + "Response", read)

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

    def _get(self) -> Any:
        """Read the configuration as a message without its version, and the version."""

        def read(r: Any) -> tuple[Any, int]:
            version = int(r.config.version)
            r.config.ClearField("version")
            return r.config, version

        return self._ask("Get", "GetQueue", read)

    def _config(self) -> Any:
        return self._ask("Get", "GetQueue", lambda r: _config(r.config))

    def _set(self, config: Any, if_version: int | None) -> Any:
        return self._ask("Set", "SetQueue", lambda r: r.version, config=config, if_version=if_version)

    def _made(self, settings: Mapping[str, Any]) -> Any:
        m = wire.message("QueueConfig")()
        _write(m, settings)
        return m

    def _change(self, config: Any, settings: Mapping[str, Any]) -> None:
        """Write settings into a configuration that was read. What a newer server has besides stays."""
        for name in _WORDS:
            if name in settings:
                restjson.forget(config, name)
        _write(config, settings)

    def _delete(self, purge: bool, if_version: int | None) -> Any:
        return self._ask("Delete", "DeleteQueue", lambda r: None, purge=purge, if_version=if_version)

    def _redrive(self, o: RedriveOptions) -> Any:
        from .bulk import start_bulk

        return start_bulk(self._client, "retry", {**o, "queue": self.name, "state": "dead"})

    def _pause(self, reason: str, seconds: float | None, until: datetime.datetime | None) -> Any:
        return self._ask(
            "Pause", "PauseQueue", lambda r: r.replayed, lambda m: set_until(m, seconds, until), reason=reason
        )

    def _resume(self) -> Any:
        return self._ask("Resume", "ResumeQueue", lambda r: r.replayed)

    def _page(self, sort: str, prefix: str, cursor: str) -> Any:
        return self._ask(
            "Keys",
            "ListKeys",
            lambda r: ([_key(k) for k in r.keys], r.cursor),
            sort=sort,
            prefix=prefix,
            cursor=cursor,
            limit=_PAGE,
        )

    def _set_key(self, key: str, weight: int | None, concurrency: int | None, rate: Rate | None) -> Any:
        def fill(m: Any) -> None:
            m.settings.weight, m.settings.concurrency = weight or 0, concurrency or 0
            if rate is not None:
                _write_rate(m.settings.rate, rate)

        return self._ask("SetKey", "SetKey", lambda r: r.replayed, fill, key=key)

    def _pause_key(self, key: str, reason: str, seconds: float | None, until: datetime.datetime | None) -> Any:
        return self._ask(
            "PauseKey", "PauseKey", lambda r: r.replayed, lambda m: set_until(m, seconds, until), key=key, reason=reason
        )

    def _resume_key(self, key: str) -> Any:
        return self._ask("ResumeKey", "ResumeKey", lambda r: r.replayed, key=key)


KeySort = Literal["name", "backlog", "owed"]


class Queue(_Queue):
    """A queue of a Client."""

    def stats(self) -> QueueStats:
        """Read the counters."""
        out: QueueStats = self._stats()
        return out

    def config(self) -> QueueConfig:
        """Read what rules the queue. NotFound: it is not there."""
        out: QueueConfig = self._config()
        return out

    def set(self, *, if_version: int | None = None, **settings: Unpack[QueueSettings]) -> int:
        """Replace what rules the queue, or make it, and return the version. What is not named has its default."""
        out: int = self._set(self._made(settings), if_version)
        return out

    def update(self, **settings: Unpack[QueueSettings]) -> int:
        """Set these settings, keep the others, and return the version. A queue that is not there is made.

        If somebody else changes the queue meanwhile, this begins again. Settings of a newer server that this version
        of the library does not know stay as well.
        """
        for left in range(_TRIES - 1, -1, -1):
            try:
                config, version = self._get()
            except NotFound:
                config, version = self._made({}), 0
            self._change(config, settings)
            try:
                out: int = self._set(config, version)
                return out
            except PreconditionFailed:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def delete(self, *, purge: bool = False, if_version: int | None = None) -> None:
        """Remove the queue with its tasks. WrongState: it has tasks that have not ended, and purge does not say so."""
        self._delete(purge, if_version)

    def redrive(self, **o: Unpack[RedriveOptions]) -> BulkInfo:
        """Begin a job that makes its dead tasks ready: Client.start_bulk with retry and the state dead."""
        out: BulkInfo = self._redrive(o)
        return out

    def pause(self, reason: str = "", *, seconds: float | None = None, until: datetime.datetime | None = None) -> bool:
        """Give out no tasks until it is resumed, for some seconds, or until a time; one without a zone is UTC.

        It returns whether the queue was paused so before.
        """
        out: bool = self._pause(reason, seconds, until)
        return out

    def resume(self) -> bool:
        """Give out tasks again, and return whether the queue was not paused."""
        out: bool = self._resume()
        return out

    def keys(self, *, sort: KeySort = "name", prefix: str = "") -> Iterator[QueueKey]:
        """Go through its keys by name, page by page.

        By backlog those with the most ready tasks come first, by owed those that are the furthest behind their share;
        of these there are at most 1,000.
        """
        return pages(lambda cursor: self._page(sort, prefix, cursor))

    def set_key(
        self, key: str, *, weight: int | None = None, concurrency: int | None = None, rate: Rate | None = None
    ) -> bool:
        """Set the weight, 1 to 1,000, and the limits of a key, and return whether it was so. None is the queue's."""
        out: bool = self._set_key(key, weight, concurrency, rate)
        return out

    def pause_key(
        self, key: str, reason: str = "", *, seconds: float | None = None, until: datetime.datetime | None = None
    ) -> bool:
        """Give out no tasks of a key, as pause does for all of the queue."""
        out: bool = self._pause_key(key, reason, seconds, until)
        return out

    def resume_key(self, key: str) -> bool:
        """Give out tasks of the key again, and return whether it was not paused."""
        out: bool = self._resume_key(key)
        return out


class AsyncQueue(_Queue):
    """A queue of an AsyncClient."""

    async def stats(self) -> QueueStats:
        """Read the counters."""
        out: QueueStats = await self._stats()
        return out

    async def config(self) -> QueueConfig:
        """Read what rules the queue. NotFound: it is not there."""
        out: QueueConfig = await self._config()
        return out

    async def set(self, *, if_version: int | None = None, **settings: Unpack[QueueSettings]) -> int:
        """Replace what rules the queue, or make it, and return the version. What is not named has its default."""
        out: int = await self._set(self._made(settings), if_version)
        return out

    async def update(self, **settings: Unpack[QueueSettings]) -> int:
        """Set these settings, keep the others, and return the version. A queue that is not there is made.

        If somebody else changes the queue meanwhile, this begins again. Settings of a newer server that this version
        of the library does not know stay as well.
        """
        for left in range(_TRIES - 1, -1, -1):
            try:
                config, version = await self._get()
            except NotFound:
                config, version = self._made({}), 0
            self._change(config, settings)
            try:
                out: int = await self._set(config, version)
                return out
            except PreconditionFailed:
                if not left:
                    raise
        raise AssertionError("unreachable")

    async def delete(self, *, purge: bool = False, if_version: int | None = None) -> None:
        """Remove the queue with its tasks. WrongState: it has tasks that have not ended, and purge does not say so."""
        await self._delete(purge, if_version)

    async def redrive(self, **o: Unpack[RedriveOptions]) -> BulkInfo:
        """Begin a job that makes its dead tasks ready: AsyncClient.start_bulk with retry and the state dead."""
        out: BulkInfo = await self._redrive(o)
        return out

    async def pause(
        self, reason: str = "", *, seconds: float | None = None, until: datetime.datetime | None = None
    ) -> bool:
        """Give out no tasks until it is resumed, for some seconds, or until a time; one without a zone is UTC.

        It returns whether the queue was paused so before.
        """
        out: bool = await self._pause(reason, seconds, until)
        return out

    async def resume(self) -> bool:
        """Give out tasks again, and return whether the queue was not paused."""
        out: bool = await self._resume()
        return out

    def keys(self, *, sort: KeySort = "name", prefix: str = "") -> AsyncIterator[QueueKey]:
        """Go through its keys by name, page by page.

        By backlog those with the most ready tasks come first, by owed those that are the furthest behind their share;
        of these there are at most 1,000.
        """
        return apages(lambda cursor: self._page(sort, prefix, cursor))

    async def set_key(
        self, key: str, *, weight: int | None = None, concurrency: int | None = None, rate: Rate | None = None
    ) -> bool:
        """Set the weight, 1 to 1,000, and the limits of a key, and return whether it was so. None is the queue's."""
        out: bool = await self._set_key(key, weight, concurrency, rate)
        return out

    async def pause_key(
        self, key: str, reason: str = "", *, seconds: float | None = None, until: datetime.datetime | None = None
    ) -> bool:
        """Give out no tasks of a key, as pause does for all of the queue."""
        out: bool = await self._pause_key(key, reason, seconds, until)
        return out

    async def resume_key(self, key: str) -> bool:
        """Give out tasks of the key again, and return whether it was not paused."""
        out: bool = await self._resume_key(key)
        return out


QueueSort = Literal["name", "ready", "oldest", "dead", "rate"]
QueueOnly = Literal["", "paused", "stuck", "dead"]


def _queues(client: Any, prefix: str, sort: str, only: str, cursor: str) -> Any:
    request = wire.message("ListQueuesRequest")(limit=_PAGE, cursor=cursor, prefix=prefix, sort=sort, only=only)
    return client._unary(
        "QueueService/List", request, "ListQueuesResponse", lambda r: ([queue_stats(s) for s in r.queues], r.cursor)
    )


def queues(client: Any, prefix: str, sort: str, only: str) -> Iterator[QueueStats]:
    """Go through queues, page by page."""
    return pages(lambda cursor: _queues(client, prefix, sort, only, cursor))


def aqueues(client: Any, prefix: str, sort: str, only: str) -> AsyncIterator[QueueStats]:
    """Go through queues as queues does."""
    return apages(lambda cursor: _queues(client, prefix, sort, only, cursor))
