"""Client of Millrace, a durable work queue with transactions.

Declare a job, add tasks with a Client or an AsyncClient, and run them with a Worker: see docs/start/python.md.
"""

from typing import TYPE_CHECKING, Any

from ._core.place import new_id
from .client import Client, Handle, Tx
from .codec import Codec, RawJSON
from .errors import (
    AlreadyExists,
    BatchError,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    Failure,
    Fatal,
    Internal,
    InvalidArgument,
    LeaseLost,
    MillraceError,
    NotFound,
    NotLeader,
    PermissionDenied,
    PreconditionFailed,
    RateLimited,
    Release,
    ResourceExhausted,
    RetryIn,
    Snooze,
    TaskError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    WrongPartition,
    WrongState,
    outcome_of,
)
from .job import AddOptions, CronOptions, FollowUp, Job, TaskOptions, TemplateOptions, job
from .tx import Changes, Effects
from .types import After, At, Committed, Dependency, KVItem, KVWriter, QueuePaused, QueueStats, Retry, TaskInfo, Unique

if TYPE_CHECKING:
    from .aio import AsyncClient, AsyncHandle, AsyncTx
    from .batch import AsyncBatch, Batch, BatchCounts, BatchInfo, BatchOptions
    from .bulk import AsyncBulk, Bulk, BulkCount, BulkInfo, BulkOptions, RedriveOptions
    from .cron import AsyncCron, Cron, CronChange, CronInfo, CronPreview, CronRun
    from .limiter import AsyncLimiter, Limiter, LimiterHolder, LimiterInfo
    from .queue import AsyncQueue, KeyLimits, Queue, QueueCeilings, QueueConfig, QueueKey, QueueSettings, Rate
    from .task import Signal, Task
    from .webhook import WebhookError, verify_webhook
    from .worker import Health, Settled, Worker

__version__ = "0.1.0"

__all__ = [
    "AddOptions",
    "After",
    "AlreadyExists",
    "AsyncBatch",
    "AsyncBulk",
    "AsyncClient",
    "AsyncCron",
    "AsyncHandle",
    "AsyncLimiter",
    "AsyncQueue",
    "AsyncTx",
    "At",
    "Batch",
    "BatchCounts",
    "BatchError",
    "BatchInfo",
    "BatchOptions",
    "Bulk",
    "BulkCount",
    "BulkInfo",
    "BulkOptions",
    "Cancelled",
    "Changes",
    "Client",
    "Codec",
    "Committed",
    "Cron",
    "CronChange",
    "CronInfo",
    "CronOptions",
    "CronPreview",
    "CronRun",
    "DataLoss",
    "DeadlineExceeded",
    "Dependency",
    "Effects",
    "Failure",
    "Fatal",
    "FollowUp",
    "Handle",
    "Health",
    "Internal",
    "InvalidArgument",
    "Job",
    "KVItem",
    "KVWriter",
    "KeyLimits",
    "LeaseLost",
    "Limiter",
    "LimiterHolder",
    "LimiterInfo",
    "MillraceError",
    "NotFound",
    "NotLeader",
    "PermissionDenied",
    "PreconditionFailed",
    "Queue",
    "QueueCeilings",
    "QueueConfig",
    "QueueKey",
    "QueuePaused",
    "QueueSettings",
    "QueueStats",
    "Rate",
    "RateLimited",
    "RawJSON",
    "RedriveOptions",
    "Release",
    "ResourceExhausted",
    "Retry",
    "RetryIn",
    "Settled",
    "Signal",
    "Snooze",
    "Task",
    "TaskError",
    "TaskInfo",
    "TaskOptions",
    "TemplateOptions",
    "TooLarge",
    "Tx",
    "Unauthenticated",
    "Unavailable",
    "Unique",
    "WebhookError",
    "Worker",
    "WrongPartition",
    "WrongState",
    "job",
    "new_id",
    "outcome_of",
    "verify_webhook",
]

# Where the names are that a process which only adds tasks does not need: they are imported on first use.
_LATER = {
    "AsyncClient": "aio",
    "AsyncHandle": "aio",
    "AsyncTx": "aio",
    "AsyncBatch": "batch",
    "Batch": "batch",
    "BatchCounts": "batch",
    "BatchInfo": "batch",
    "BatchOptions": "batch",
    "AsyncBulk": "bulk",
    "Bulk": "bulk",
    "BulkCount": "bulk",
    "BulkInfo": "bulk",
    "BulkOptions": "bulk",
    "RedriveOptions": "bulk",
    "AsyncCron": "cron",
    "Cron": "cron",
    "CronChange": "cron",
    "CronInfo": "cron",
    "CronPreview": "cron",
    "CronRun": "cron",
    "AsyncLimiter": "limiter",
    "Limiter": "limiter",
    "LimiterHolder": "limiter",
    "LimiterInfo": "limiter",
    "AsyncQueue": "queue",
    "KeyLimits": "queue",
    "Queue": "queue",
    "QueueCeilings": "queue",
    "QueueConfig": "queue",
    "QueueKey": "queue",
    "QueueSettings": "queue",
    "Rate": "queue",
    "Signal": "task",
    "Task": "task",
    "WebhookError": "webhook",
    "verify_webhook": "webhook",
    "Health": "worker",
    "Settled": "worker",
    "Worker": "worker",
}


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module("." + module, __name__), name)
    globals()[name] = found  # the next use finds it without this
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
