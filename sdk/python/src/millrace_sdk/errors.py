"""Errors of calls, and what handlers raise to end an attempt in another way than by a result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

OutcomeWord = Literal["ok", "refused", "unknown"]


@dataclass(frozen=True)
class Failure:
    """One of several reasons for one refusal, as a transaction of refs has them."""

    change: int  # position in the transaction; -1: the whole
    code: str
    reason: str = ""
    message: str = ""
    details: Mapping[str, str] = field(default_factory=dict)


class MillraceError(Exception):
    """Why a call did not succeed. There is a subclass for each code.

    outcome is "refused" if nothing was changed, and "unknown" if the call may have been applied. op is the index of the
    refused op of a commit: -1 is its fence, -2-i its check i, None: no op was refused.
    """

    code: str = "INTERNAL"

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        reason: str = "",
        field: str = "",
        op: int | None = None,
        limit: str = "",
        max: int = 0,
        details: Mapping[str, str] | None = None,
        retry_after: float = 0.0,
        failures: Sequence[Failure] = (),
        leader: str = "",
        outcome: Literal["refused", "unknown"] = "refused",
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.message = message
        self.reason = reason
        self.field = field
        self.op = op
        self.limit = limit
        self.max = max
        self.details: Mapping[str, str] = details or {}
        self.retry_after = retry_after  # seconds
        self.failures = tuple(failures)
        self.leader = leader
        self.outcome: Literal["refused", "unknown"] = outcome
        # What this side ended, such as by a timeout, is not repeated.
        self.ended_here = False

    def __str__(self) -> str:
        out = self.code
        if self.reason:
            out += f" ({self.reason})"
        if self.op is not None:
            out += " at " + (
                "the fence" if self.op == -1 else f"checks[{-2 - self.op}]" if self.op < -1 else f"ops[{self.op}]"
            )
        if self.field and not self.message.startswith(self.field):
            out += f" in {self.field}"
        if self.message:
            out += f": {self.message}"
        if self.limit:
            out += f" (limit {self.limit} = {self.max})"
        if self.outcome == "unknown":
            out += "; the outcome is unknown"
        return out

    def __reduce__(self) -> Any:
        return (_rebuild, (type(self), self.message, self.__dict__))


def _rebuild(cls: type[MillraceError], message: str, state: dict[str, Any]) -> MillraceError:
    e = cls(message)
    e.__dict__.update(state)
    return e


class InvalidArgument(MillraceError):
    """The call is wrong in itself."""

    code = "INVALID_ARGUMENT"


class TooLarge(MillraceError):
    """A payload, a value or a frame is larger than its limit."""

    code = "TOO_LARGE"


class Unauthenticated(MillraceError):
    """There is no token, or one that does not hold."""

    code = "UNAUTHENTICATED"


class PermissionDenied(MillraceError):
    """The token does not allow the call."""

    code = "PERMISSION_DENIED"


class NotFound(MillraceError):
    """What the call is about is not there."""

    code = "NOT_FOUND"


class AlreadyExists(MillraceError):
    """What the call makes is there, and differs."""

    code = "ALREADY_EXISTS"


class LeaseLost(MillraceError):
    """The lease of the attempt has ended: the task is not this attempt's any more."""

    code = "LEASE_LOST"


class WrongState(MillraceError):
    """The task is in a state that does not allow the call."""

    code = "WRONG_STATE"


class PreconditionFailed(MillraceError):
    """A check, a revision or a bound was not met: op and details say which and what was found."""

    code = "PRECONDITION_FAILED"


class WrongPartition(MillraceError):
    """The parts of the call belong to several partitions, or to another one than it names."""

    code = "WRONG_PARTITION"


class RateLimited(MillraceError):
    """A rate is used up: retry_after says when to come again."""

    code = "RATE_LIMITED"


class ResourceExhausted(MillraceError):
    """A limit is reached: limit and max say which."""

    code = "RESOURCE_EXHAUSTED"


class NotLeader(MillraceError):
    """The node does not lead the partition."""

    code = "NOT_LEADER"


class Unavailable(MillraceError):
    """No server was reached, or none that can serve the call now."""

    code = "UNAVAILABLE"


class DeadlineExceeded(MillraceError):
    """The timeout of the call is over."""

    code = "DEADLINE_EXCEEDED"


class Internal(MillraceError):
    """The server, or this library, is at fault."""

    code = "INTERNAL"


class DataLoss(MillraceError):
    """Stored bytes are damaged."""

    code = "DATA_LOSS"


CLASSES: dict[str, type[MillraceError]] = {
    c.code: c
    for c in (
        InvalidArgument, TooLarge, Unauthenticated, PermissionDenied, NotFound, AlreadyExists, LeaseLost, WrongState,
        PreconditionFailed, WrongPartition, RateLimited, ResourceExhausted, NotLeader, Unavailable, DeadlineExceeded,
        Internal, DataLoss,
    )
}  # fmt: skip


def make(code: str, message: str = "", **fields: Any) -> MillraceError:
    """Make the error of a code; a code that this version does not know is a plain MillraceError."""
    cls = CLASSES.get(code)
    return cls(message, **fields) if cls else MillraceError(message, code=code, **fields)


class TaskError(Exception):
    """The task that a caller waited for did not complete."""

    def __init__(self, id: str, state: str, reason: str = "", code: str = "", message: str = "") -> None:
        super().__init__(id, state, reason, code, message)
        self.id = id
        self.state = state
        self.reason = reason
        self.code = code
        self.message = message

    def __str__(self) -> str:
        out = f"task {self.id} is {self.state}"
        if self.reason:
            out += f" ({self.reason})"
        text = ": ".join(t for t in (self.code, self.message) if t)
        return f"{out}: {text}" if text else out


class BatchError(Exception):
    """Some tasks of add_many were not added. errors has an entry for each argument; None: it was added.

    handles has the handles of those that were added, and None for the others.
    """

    def __init__(self, errors: Sequence[MillraceError | None], handles: Sequence[Any]) -> None:
        bad = [e for e in errors if e is not None]
        super().__init__(f"{len(bad)} of {len(errors)} tasks were not added; the first: {bad[0] if bad else ''}")
        self.errors = tuple(errors)
        self.handles = tuple(handles)


class _End(Exception):
    """What a handler raises to say how its attempt ends."""


class Fatal(_End):
    """Fail the task for good: there is no further attempt."""

    def __init__(self, error: BaseException | str = "", *, code: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.code = code


class RetryIn(_End):
    """Fail the attempt, and try again after some seconds instead of the policy's wait."""

    def __init__(self, seconds: float, error: BaseException | str = "", *, code: str = "") -> None:
        super().__init__(seconds, error)
        self.seconds = seconds
        self.error = error
        self.code = code


class Snooze(_End):
    """Give the task back for some seconds. It counts as no failure."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Release(_End):
    """Give the task back to its old place in the queue. It counts as no failure."""


class Cancelled(Exception):
    """The task's cancel was asked for, or its lease was lost: Task.raise_if_cancelled raises it in a sync handler."""


def outcome_of(error: BaseException | None) -> OutcomeWord:
    """Say what became of a call: "ok", "refused" (nothing was changed) or "unknown" (it may have been applied)."""
    if error is None:
        return "ok"
    if isinstance(error, MillraceError):
        return error.outcome
    told = getattr(error, "millrace_outcome", None)
    if told in ("refused", "unknown"):
        return "refused" if told == "refused" else "unknown"
    if isinstance(error, (asyncio.CancelledError, KeyboardInterrupt)):
        return "unknown"
    if isinstance(error, BatchError):
        return "unknown" if any(e is not None and e.outcome == "unknown" for e in error.errors) else "refused"
    return "refused" if isinstance(error, (TypeError, ValueError)) else "unknown"
