"""Values that calls take and return."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ._core import wire

Backoff = Literal["fixed", "linear", "exponential", "full_jitter", "equal_jitter"]
BACKOFFS = {"fixed": 1, "linear": 2, "exponential": 3, "full_jitter": 4, "equal_jitter": 5}


@dataclass(frozen=True)
class Retry:
    """How long a failed task waits: seconds that grow by factor from base up to max. None is the queue's value."""

    base: float | None = None
    max: float | None = None
    factor: float | None = None
    backoff: Backoff | None = None

    def _write(self, m: Any) -> None:
        if self.base is not None:
            wire.set_span(m.base, self.base)
        if self.max is not None:
            wire.set_span(m.max, self.max)
        if self.factor is not None:
            m.factor = self.factor
        if self.backoff is not None:
            m.backoff = BACKOFFS[self.backoff]


@dataclass(frozen=True)
class Unique:
    """At most one task of a queue exists under a key for ttl seconds, or until the task starts or ends.

    A second one is answered by the first, or refused with AlreadyExists. With replace the first one becomes what the
    second one says as long as it has not started: payload, times, priority, labels and settings. With delay each add
    puts the task off (debounce).
    """

    key: str
    ttl: float | None = None  # default: 24 hours
    on_conflict: Literal["return", "reject", "replace"] = "return"
    until: Literal["ttl", "start", "terminal"] = "ttl"  # what frees the key before ttl is over


@dataclass(frozen=True)
class At:
    """A place in the log of a partition: a read with min_index sees what was acknowledged there."""

    partition: int
    index: int


@dataclass(frozen=True)
class Committed:
    """What a commit did. Each list has an entry for each op, None where there is none."""

    revs: list[int | None]
    sums: list[int | None]
    ids: list[str | None]
    existed: list[bool | None]
    counts: list[int | None]
    previous: list[bytes | None]
    replayed: bool
    at: At


@dataclass(frozen=True)
class KVWriter:
    """The task that wrote a key: by the effects of an attempt, or in a commit under its lease."""

    task: str  # its id
    token: int  # of the attempt


@dataclass(frozen=True)
class KVItem:
    """A key as it was read. Without the key, found is False and rev 0.

    writer is the task that wrote it last: None for a write from outside of any task, and for one from before the
    keyspace kept writers.
    """

    key: bytes
    value: bytes
    rev: int
    found: bool = True
    writer: KVWriter | None = None

    def text(self) -> str:
        """Return the value as text."""
        return self.value.decode()


@dataclass(frozen=True)
class After:
    """A task that another one waits for: it must complete, or with on="terminal" only end, however it ends."""

    task: Any  # its id, or what add returned
    on: Literal["completed", "terminal"] = "completed"

    def _write(self, m: Any) -> None:
        m.id = self.task if isinstance(self.task, str) else self.task.id
        m.on = 1 if self.on == "terminal" else 0


@dataclass(frozen=True)
class Dependency:
    """How a task stands that another one was made to wait for."""

    id: str
    on: str  # completed, or terminal: any end is enough
    state: str  # empty: it is not there any more
    waits: bool  # the other one still waits for it


@dataclass(frozen=True)
class TaskInfo:
    """A task as it was read."""

    id: str
    queue: str
    kind: str
    state: str
    reason: str
    payload: bytes
    content_type: str
    attempt: int
    failures: int
    crashes: int
    snoozes: int
    priority: int
    tag: str
    key: str
    cost: int
    headers: Mapping[str, str]
    labels: Mapping[str, str]
    result: bytes | None
    result_type: str
    error_code: str
    error_message: str
    progress: tuple[int, str] | None
    run_at: datetime.datetime | None
    created_at: datetime.datetime | None
    finished_at: datetime.datetime | None
    message: Any = field(repr=False, compare=False, default=None)  # of the contract, with all that it has
    after: tuple[Dependency, ...] = ()  # the tasks that it was made to wait for
    on_dep_failure: str = ""  # what follows when one of them is not completed
    pending: int = 0  # how many of them a blocked task waits for
    dependents: int = 0  # how many blocked tasks wait for this one
    limiters: tuple[str, ...] = ()  # that it names itself
    batch: str = ""  # id of the batch that it was added to; empty: none


@dataclass(frozen=True)
class QueuePaused:
    """Why a queue, or a key of one, gives out no tasks."""

    since: datetime.datetime | None
    until: datetime.datetime | None  # None: until it is resumed
    by: str  # name of the token
    reason: str


@dataclass(frozen=True)
class QueueStats:
    """Counters of a queue."""

    queue: str
    blocked: int
    scheduled: int
    ready: int
    running: int
    completed: int
    dead: int
    cancelled: int
    created: int
    paused: bool
    pause: QueuePaused | None = None  # why it is paused
    oldest_ready: datetime.datetime | None = None  # since when the task waits that has been ready for longest
    message: Any = field(repr=False, compare=False, default=None)  # of the contract, with all that it has


def time_of(t: Any) -> datetime.datetime:
    """Read a Timestamp."""
    return datetime.datetime.fromtimestamp(t.seconds, datetime.timezone.utc) + datetime.timedelta(
        microseconds=t.nanos // 1000
    )


def maybe_time(m: Any, name: str) -> datetime.datetime | None:
    """Read a Timestamp that may be unset."""
    return time_of(getattr(m, name)) if m.HasField(name) else None


def unix_of(t: datetime.datetime) -> float:
    """Return the seconds since 1970 of a time; one without a zone is UTC."""
    return (t if t.tzinfo is not None else t.replace(tzinfo=datetime.timezone.utc)).timestamp()


def set_until(m: Any, seconds: float | None, until: datetime.datetime | None) -> None:
    """Write when a pause ends."""
    if seconds is not None and until is not None:
        raise ValueError("seconds and until are mutually exclusive")
    if seconds is not None:
        wire.set_time(m.until, time.time() + seconds)
    elif until is not None:
        wire.set_time(m.until, unix_of(until))


def task_info(t: Any) -> TaskInfo:
    """Read a task of the contract."""
    return TaskInfo(
        id=t.id,
        queue=t.queue,
        kind=t.kind,
        state=wire.state(t.state),
        reason=t.reason,
        payload=t.payload,
        content_type=t.content_type,
        attempt=t.attempt,
        failures=t.failures,
        crashes=t.crashes,
        snoozes=t.snoozes,
        priority=t.priority,
        tag=t.tag,
        key=t.key,
        cost=t.cost or 1,
        headers={h.name: h.value for h in t.headers},
        labels=dict(t.labels),
        result=t.result if t.has_result else None,
        result_type=t.result_type,
        error_code=t.error.code,
        error_message=t.error.message,
        progress=(t.progress.percent, t.progress.message) if t.HasField("progress") else None,
        run_at=maybe_time(t, "run_at"),
        created_at=maybe_time(t, "created_at"),
        finished_at=maybe_time(t, "finished_at"),
        message=t,
        after=tuple(
            Dependency(a.id, "terminal" if a.on == 1 else "completed", wire.state(a.state) if a.state else "", a.waits)
            for a in t.after
        ),
        on_dep_failure=DEP_FAILURES[t.on_dep_failure] if t.on_dep_failure < len(DEP_FAILURES) else "",
        pending=t.pending,
        dependents=t.dependents,
        limiters=tuple(t.limiters),
        batch=t.batch,
    )


DEP_FAILURES = ("", "hold", "cancel", "run")  # by number


def queue_stats(s: Any) -> QueueStats:
    """Read the counters of the contract."""
    return QueueStats(
        queue=s.queue,
        blocked=s.blocked,
        scheduled=s.scheduled,
        ready=s.ready,
        running=s.running,
        completed=s.completed,
        dead=s.dead,
        cancelled=s.cancelled,
        created=s.created,
        paused=s.HasField("paused"),
        pause=queue_paused(s),
        oldest_ready=maybe_time(s, "oldest_ready"),
        message=s,
    )


def queue_paused(m: Any) -> QueuePaused | None:
    """Read the pause of a queue or a key."""
    if not m.HasField("paused"):
        return None
    p = m.paused
    return QueuePaused(maybe_time(p, "since"), maybe_time(p, "until"), p.by, p.reason)


def committed(kinds: Sequence[str], answer: Any, at: Any) -> Committed:
    """Read the answer to a commit of ops of these kinds."""
    revs: list[int | None] = []
    sums: list[int | None] = []
    ids: list[str | None] = []
    existed: list[bool | None] = []
    counts: list[int | None] = []
    previous: list[bytes | None] = []
    # An op that has no such value is told from a value of zero by its kind.
    for kind, r in zip(kinds, answer.results, strict=False):
        revs.append(r.rev or (r.refs.rev if r.HasField("refs") else 0) or None)
        sums.append(r.sum if kind == "kv_add" else None)
        ids.append(r.task or None)
        existed.append(r.existed if kind in ("kv_delete", "kv_put", "vector_upsert", "vector_delete") else None)
        counts.append(r.count if kind == "kv_delete_range" else None)
        previous.append(r.prev or None)
    return Committed(revs, sums, ids, existed, counts, previous, answer.replayed, At(at.partition, at.index))
