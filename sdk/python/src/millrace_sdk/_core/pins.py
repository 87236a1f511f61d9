"""Which queues are pinned. In a namespace of several partitions all tasks of a queue that is bounded or ordered as a
whole are made in one. A client finds out by a refusal, or asks before it makes the ids of a commit; it may be behind,
and the server judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import MillraceError
from . import place, wire

if TYPE_CHECKING:
    from .engine import Engine


class Again:
    """What a create is placed again with: its tasks, and the ids that they had before they were placed."""

    __slots__ = ("given", "specs")

    def __init__(self, specs: Sequence[Any], given: Sequence[str]) -> None:
        self.specs = specs
        self.given = given

    def of(self, index: Sequence[int]) -> Again:
        """Return that of some of its tasks."""
        return Again([self.specs[i] for i in index], [self.given[i] for i in index])


def take(pins: dict[str, bool], e: MillraceError, queue: str) -> bool:
    """Take in why a task of a queue was refused. True: for its partition, so it may be of another one by what is known.

    A refusal that names the task's partition, and not the queue as the reason, says that the queue is not pinned.
    """
    if e.code != "WRONG_PARTITION" or e.outcome == "unknown" or not e.details.get("partition"):
        return False
    pins[e.details.get("queue") or queue] = e.reason == "queue_pinned"
    return True


def of_ops(ops: Iterable[Any]) -> list[Any]:
    """Return the tasks that a commit creates."""
    return [op.task_create for op in ops if op.WhichOneof("op") == "task_create"]


def unknown(specs: Iterable[Any], pins: place.Pins) -> list[str]:
    """Return the queues of tasks of which it is not known whether they are pinned, as far as that matters."""
    return sorted({s.queue for s in specs if not s.tag and not s.batch and s.queue not in pins})


async def ask(e: Engine, queues: Sequence[str], timeout: float | None) -> None:
    """Find out whether queues are pinned of which that is not known. Where that fails the server judges."""
    deadline = None if timeout is None else wire.monotonic() + timeout
    answer = wire.message("GetQueueResponse")
    for queue in queues:
        if queue in e.pins:
            continue
        left = None if deadline is None else deadline - wire.monotonic()
        try:
            got = await e.call("QueueService/Get", wire.message("GetQueueRequest")(queue=queue), answer, left)
        except MillraceError as wrong:
            if wrong.code in ("NOT_FOUND", "PERMISSION_DENIED"):
                e.pins.setdefault(queue, False)
        else:
            e.pins[queue] = got.config.pinned
