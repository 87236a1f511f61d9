"""Jobs of the server that do one thing to many tasks."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from . import convert, errors
from ._core import place, wire
from ._core.base import _UNSET
from .types import TaskInfo, maybe_time, task_info, unix_of

Action = Literal["cancel", "retry", "delete", "prioritize"]
_ACTIONS = ("", "cancel", "retry", "delete", "prioritize")  # by number, as the words below
_STATES = ("", "running", "done", "stopped")


class TaskFilter(TypedDict, total=False):
    """Which tasks a bulk job is about: those that have all of it. None of it: all that the action is about."""

    queue: str
    state: str  # one that the action is about; default: all of these
    kind: str
    worker: str  # that runs them, or completed them
    unique: str  # the unique key that they were added under
    labels: Mapping[str, str]
    created_from: datetime.datetime  # then or later; a time without a zone is UTC
    created_to: datetime.datetime  # before
    fingerprint: str  # of their last error
    batch: str  # id of the batch that they were added to


class BulkSettings(TypedDict, total=False):
    """How a bulk job is run."""

    id: str  # of new_id: makes the start repeatable over processes
    rate: int  # tasks a second in each partition, 1 to 1,000,000; default 1,000
    reason: str  # at most 256 B
    force: bool  # with cancel: running tasks are taken from their workers at once
    priority: int  # with prioritize: 0 to 9
    to_queue: str  # with retry: the queue that the tasks move to, as the same tasks
    patch: Mapping[str, Any]  # with retry: a merge patch (RFC 7396) of each payload
    timeout: float | None  # seconds, of the call; default: the client's


class BulkOptions(TaskFilter, BulkSettings, total=False):
    """Which tasks a bulk job is about, and how it is run."""


class RedriveOptions(BulkSettings, total=False):
    """Which dead tasks of a queue are retried, and how."""

    kind: str
    labels: Mapping[str, str]
    created_from: datetime.datetime
    created_to: datetime.datetime
    fingerprint: str
    batch: str


@dataclass(frozen=True)
class BulkInfo:
    """How far a bulk job is."""

    id: str
    action: str
    state: str  # running, done or stopped: it was stopped, or its queue was removed
    rate: int
    reason: str
    by: str  # name of the token
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None
    matched: int  # tasks that were found before the start
    exact: bool  # matched is all of them, and not a part
    done: int  # tasks that the action was done to
    refused: Mapping[str, int]  # tasks that refused it, by the code; CHANGED: they were in another state by then
    eta: datetime.datetime | None  # when it will be done at the pace so far
    message: Any  # of the contract, with all that it has


@dataclass(frozen=True)
class BulkCount:
    """What a bulk job would find."""

    count: int
    exact: bool  # all were looked at; else there may be more
    oldest: datetime.datetime | None  # creations of those that were looked at
    newest: datetime.datetime | None
    sample: list[TaskInfo]  # the first ones, at most 10, without payload and result


def _info(j: Any) -> BulkInfo:
    refused: dict[str, int] = {}
    for r in j.refused:
        refused[r.code] = refused.get(r.code, 0) + r.count
    return BulkInfo(
        id=j.id,
        action=_ACTIONS[j.action] if j.action < len(_ACTIONS) else "unknown",
        state=_STATES[j.state] if j.state < len(_STATES) else "unknown",
        rate=j.rate,
        reason=j.reason,
        by=j.by,
        started_at=maybe_time(j, "started_at"),
        ended_at=maybe_time(j, "ended_at"),
        matched=j.matched,
        exact=j.exact,
        done=j.done,
        refused=refused,
        eta=maybe_time(j, "eta"),
        message=j,
    )


def _count(r: Any) -> BulkCount:
    f = r.found
    return BulkCount(
        f.count, f.exact, maybe_time(f, "oldest"), maybe_time(f, "newest"), [task_info(t) for t in f.sample]
    )


def _request(action: str, o: Mapping[str, Any]) -> Any:
    for given in o:
        if given not in BulkOptions.__optional_keys__:
            raise TypeError(f"unknown option {given!r}")
    if action not in _ACTIONS[1:]:
        raise errors.InvalidArgument("action: must be cancel, retry, delete or prioritize", field="action")
    m = wire.message("StartBulkRequest")(id=o.get("id") or place.new_id(), action=_ACTIONS.index(action))
    f = m.filter
    f.SetInParent()
    for name in ("queue", "kind", "worker", "unique", "fingerprint", "batch"):
        setattr(f, name, o.get(name, ""))
    if (state := o.get("state")) is not None:
        if state not in wire.STATES[1:]:
            raise errors.InvalidArgument("filter.state: must be a state of tasks", field="filter.state")
        f.state = wire.STATES.index(state)
    for name, value in (o.get("labels") or {}).items():
        f.labels[name] = value
    if (begin := o.get("created_from")) is not None:
        wire.set_time(getattr(f, "from"), unix_of(begin))
    if (end := o.get("created_to")) is not None:
        wire.set_time(f.to, unix_of(end))
    m.rate, m.reason, m.force = o.get("rate", 0), o.get("reason", ""), o.get("force", False)
    m.priority, m.to_queue = o.get("priority", 0), o.get("to_queue", "")
    if (patch := o.get("patch")) is not None:
        m.patch = convert.text(convert.dump(patch))
    return m


def start_bulk(client: Any, action: str, o: Mapping[str, Any]) -> Any:
    """Begin a job."""
    return client._unary(
        "BulkService/Start", _request(action, o), "StartBulkResponse", lambda r: _info(r.job),
        timeout=o.get("timeout", _UNSET),
    )  # fmt: skip


def count_bulk(client: Any, action: str, o: Mapping[str, Any]) -> Any:
    """Count what a job would find."""
    request = _request(action, o)
    request.dry_run = True
    return client._unary("BulkService/Start", request, "StartBulkResponse", _count, timeout=o.get("timeout", _UNSET))


def bulks(client: Any) -> Any:
    """List jobs."""
    request = wire.message("ListBulkRequest")()
    return client._unary("BulkService/List", request, "ListBulkResponse", lambda r: [_info(j) for j in r.jobs])


class _Bulk:
    def __init__(self, client: Any, id: str) -> None:
        self._client = client
        self.id = id

    def _get(self) -> Any:
        request = wire.message("GetBulkRequest")(id=self.id)
        return self._client._unary("BulkService/Get", request, "GetBulkResponse", lambda r: _info(r.job))

    def _stop(self) -> Any:
        request = wire.message("CancelBulkRequest")(id=self.id)
        return self._client._unary("BulkService/Cancel", request, "CancelBulkResponse", lambda r: r.replayed)


class Bulk(_Bulk):
    """A bulk job, by its id. NotFound: it is not there, or ended more than a day ago."""

    def get(self) -> BulkInfo:
        """Read how far it is."""
        out: BulkInfo = self._get()
        return out

    def stop(self) -> bool:
        """End it before its end, and return whether it had ended. What it did stays."""
        out: bool = self._stop()
        return out


class AsyncBulk(_Bulk):
    """A bulk job, by its id. NotFound: it is not there, or ended more than a day ago."""

    async def get(self) -> BulkInfo:
        """Read how far it is."""
        out: BulkInfo = await self._get()
        return out

    async def stop(self) -> bool:
        """End it before its end, and return whether it had ended. What it did stays."""
        out: bool = await self._stop()
        return out
