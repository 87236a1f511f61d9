"""Batches: tasks that are counted together, and what is made when all of them have ended."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from . import errors
from ._core import pins, place, wire
from ._core.base import _UNSET
from ._core.pages import apages, pages
from .job import FollowUp
from .types import maybe_time

_STATES = ("", "open", "sealed", "cancelling", "finished")  # by number
_PAGE = 1000


class BatchOptions(TypedDict, total=False):
    """Options of a batch, and of the call that opens it."""

    on_done: FollowUp  # the task that is made when it finishes, however its tasks ended
    on_success: FollowUp  # the one that is made besides if each was completed, and the batch was not cancelled
    id: str  # of new_id: opened again with it and the same options, a batch is the one that is there
    tag: str  # the batch is in the partition of it, as tasks with it are; id and tag are mutually exclusive
    labels: Mapping[str, str]  # at most 16
    timeout: float | None  # seconds; default: the client's


@dataclass(frozen=True)
class BatchCounts:
    """Tasks of a batch by what became of them, those too that were removed after their end."""

    total: int
    waiting: int  # blocked, scheduled or ready
    running: int
    completed: int
    dead: int
    cancelled: int


@dataclass(frozen=True)
class BatchInfo:
    """A batch, and where it stands."""

    id: str
    state: str  # open: it takes tasks; sealed or cancelling: it takes none, and some have not ended; finished
    counts: BatchCounts
    labels: Mapping[str, str]
    on_done: str  # queue of the task that it makes when it finishes; empty: none
    on_success: str
    opened_at: datetime.datetime | None
    sealed_at: datetime.datetime | None
    finished_at: datetime.datetime | None
    by: str  # name of the token that opened it
    cancelled: bool
    cancel_reason: str
    done_task: str  # id of the task of on_done; empty: it was not made
    success_task: str
    refused_code: str  # why one of them could not be made when that was tried last; empty: it could
    refused_message: str
    replayed: bool  # the call that returned it found that it was so before
    message: Any = field(repr=False, compare=False, default=None)  # of the contract, with all that it has


def _info(b: Any, replayed: bool = False) -> BatchInfo:
    n = b.counts
    return BatchInfo(
        id=b.id,
        state=_STATES[b.state] if b.state < len(_STATES) else "unknown",
        counts=BatchCounts(n.total, n.waiting, n.running, n.completed, n.dead, n.cancelled),
        labels=dict(b.labels),
        on_done=b.on_done.queue,
        on_success=b.on_success.queue,
        opened_at=maybe_time(b, "opened_at"),
        sealed_at=maybe_time(b, "sealed_at"),
        finished_at=maybe_time(b, "finished_at"),
        by=b.by,
        cancelled=b.HasField("cancel"),
        cancel_reason=b.cancel.reason,
        done_task=b.done_task,
        success_task=b.success_task,
        refused_code=b.refused.code,
        refused_message=b.refused.message,
        replayed=replayed,
        message=b,
    )


def fill_open(m: Any, o: Mapping[str, Any]) -> None:
    """Write a batch as its options have it, without an id of its own."""
    for given in o:
        if given not in BatchOptions.__optional_keys__:
            raise TypeError(f"unknown option {given!r}")
    if o.get("id") and o.get("tag"):
        raise errors.InvalidArgument("id and tag are mutually exclusive", field="id")
    m.id = o.get("id", "")
    m.labels.update(o.get("labels") or {})
    for name in ("on_done", "on_success"):
        follow: FollowUp | None = o.get(name)
        if follow is not None:
            getattr(m, name).MergeFromString(follow._template(name))


def fill_cancel(m: Any, id: str, reason: str, rate: int | None, force: bool) -> None:
    """Write the cancel of a batch."""
    if rate is not None and not 1 <= rate <= 1_000_000:
        raise errors.InvalidArgument("rate must be 1 to 1,000,000", field="rate")
    m.id, m.reason, m.rate, m.force = id, reason, rate or 0, force


def follow_queues(m: Any) -> list[str]:
    """Return the queues of the tasks that a batch makes."""
    return [f.queue for f in (m.on_done, m.on_success) if f.queue]


async def learn_home(e: Any, m: Any, tag: str, timeout: float | None, specs: Sequence[Any] = ()) -> int:
    """Find out what says the partition of a batch, and of tasks next to it, and return that of the batch.

    The batch has no id, and only its tag or what it makes says the place.
    """
    await e.learn(timeout)
    n: int = e.partitions
    if n > 1 and specs:
        await pins.ask(e, pins.unknown(specs, e.pins), timeout)
    if tag:
        return place.text_place(tag.encode(), n)
    if n > 1:
        await pins.ask(e, follow_queues(m), timeout)
        if any(e.pins.get(q) for q in follow_queues(m)):
            return place.PINNED
    e.turn_of_free += 1
    return (int(e.turn_of_free) - 1) % n


def open_batch(client: Any, o: Mapping[str, Any], made: Callable[[Any, str, bool], Any]) -> Any:
    """Open a batch, and return what is made of its id."""
    m = wire.message("OpenBatchRequest")()
    fill_open(m, o)
    timeout = client._time(o.get("timeout", _UNSET))

    async def run(e: Any) -> Any:
        left = timeout
        if not m.id:  # so that it is safe to repeat
            began = wire.monotonic()
            home = await learn_home(e, m, o.get("tag", ""), timeout)
            if timeout is not None:
                left = max(timeout - (wire.monotonic() - began), 0.0)
            m.id = place.id_in(home, e.partitions)
        kind = wire.message("OpenBatchResponse")
        return await e.call("BatchService/Open", m, kind, left, place=lambda n: place.id_place(m.id, n))

    return client._await(run, lambda r: made(client, r.batch.id, r.replayed))


def _page(client: Any, cursor: str) -> Any:
    request = wire.message("ListBatchesRequest")(limit=_PAGE, cursor=cursor)
    return client._unary(
        "BatchService/List", request, "ListBatchesResponse", lambda r: ([_info(b) for b in r.batches], r.cursor)
    )


def batches(client: Any) -> Iterator[BatchInfo]:
    """Go through the batches, page by page."""
    return pages(lambda cursor: _page(client, cursor))


def abatches(client: Any) -> AsyncIterator[BatchInfo]:
    """Go through the batches as batches does."""
    return apages(lambda cursor: _page(client, cursor))


class _Batch:
    def __init__(self, client: Any, id: str, replayed: bool = False) -> None:
        self._client = client
        self.id = id
        self.replayed = replayed  # it had been opened before

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def _ask(self, method: str, request: Any = None) -> Any:
        request = request or wire.message(method + "BatchRequest")(id=self.id)
        return self._client._unary(
            "BatchService/" + method,
            request,
            method + "BatchResponse",
            lambda r: _info(r.batch, "replayed" in r.DESCRIPTOR.fields_by_name and r.replayed),
            place=lambda n: place.id_place(self.id, n),
        )

    def _cancel(self, reason: str, rate: int | None, force: bool) -> Any:
        m = wire.message("CancelBatchRequest")()
        fill_cancel(m, self.id, reason, rate, force)
        return self._ask("Cancel", m)

    def _wait(self, timeout: float | None) -> Any:
        request, kind = wire.message("WaitBatchRequest")(id=self.id), wire.message("WaitBatchResponse")
        return self._client._await(
            lambda e: e.wait_within("BatchService/Wait", request, kind, self.id, timeout), lambda r: _info(r.batch)
        )


class Batch(_Batch):
    """A batch of a Client. Client.open_batch opens one. Of one that is not there, each call is NotFound.

    Tasks are added to it by the option batch of an add.
    """

    def get(self) -> BatchInfo:
        """Read the batch."""
        out: BatchInfo = self._ask("Get")
        return out

    def seal(self) -> BatchInfo:
        """Say that it gets no more tasks. It finishes when all of them have ended: at once if that is so by now."""
        out: BatchInfo = self._ask("Seal")
        return out

    def cancel(self, reason: str = "", *, rate: int | None = None, force: bool = False) -> BatchInfo:
        """Seal it and have its tasks cancelled, rate of them a second, by default 1,000.

        Running tasks are asked to stop, or with force taken from their workers. WrongState: it has finished, and was
        not cancelled.
        """
        out: BatchInfo = self._cancel(reason, rate, force)
        return out

    def wait(self, timeout: float | None = None) -> BatchInfo:
        """Wait until it has finished, and return it.

        Without a timeout the wait has no end; after a timeout it is a DeadlineExceeded, and the batch goes on.
        """
        out: BatchInfo = self._wait(timeout)
        return out


class AsyncBatch(_Batch):
    """A batch of an AsyncClient. AsyncClient.open_batch opens one. Of one that is not there, each call is NotFound.

    Tasks are added to it by the option batch of an add.
    """

    async def get(self) -> BatchInfo:
        """Read the batch."""
        out: BatchInfo = await self._ask("Get")
        return out

    async def seal(self) -> BatchInfo:
        """Say that it gets no more tasks. It finishes when all of them have ended: at once if that is so by now."""
        out: BatchInfo = await self._ask("Seal")
        return out

    async def cancel(self, reason: str = "", *, rate: int | None = None, force: bool = False) -> BatchInfo:
        """Seal it and have its tasks cancelled, rate of them a second, by default 1,000.

        Running tasks are asked to stop, or with force taken from their workers. WrongState: it has finished, and was
        not cancelled.
        """
        out: BatchInfo = await self._cancel(reason, rate, force)
        return out

    async def wait(self, timeout: float | None = None) -> BatchInfo:
        """Wait until it has finished, and return it.

        Without a timeout the wait has no end; after a timeout it is a DeadlineExceeded, and the batch goes on.
        """
        out: BatchInfo = await self._wait(timeout)
        return out
