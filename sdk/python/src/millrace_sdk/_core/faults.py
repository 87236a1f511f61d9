"""Errors of the wire as exceptions, and how long a call is repeated after each."""

from __future__ import annotations

from typing import Any

from .. import errors
from ..errors import MillraceError
from . import wire

RESEND_FOR = 570.0  # seconds after which what left first is not sent again: servers remember ids for ten minutes
GIVE_UP = 600.0  # seconds after which what left has an unknown outcome
REFUSED_FOR = 30.0  # seconds for which what a limit refuses is repeated

_BASE, _MOST = 0.05, 5.0
_SOON_MOST, _SOON_TRIES = 0.25, 24

# Statuses of gRPC without details: the code of the contract, and whether the call was surely refused.
_STATUS = {
    3: ("INVALID_ARGUMENT", True), 12: ("INVALID_ARGUMENT", True), 11: ("INVALID_ARGUMENT", True),
    16: ("UNAUTHENTICATED", True), 7: ("PERMISSION_DENIED", True), 5: ("NOT_FOUND", True),
    6: ("ALREADY_EXISTS", True), 9: ("PRECONDITION_FAILED", True), 8: ("RESOURCE_EXHAUSTED", False),
    4: ("DEADLINE_EXCEEDED", False), 1: ("DEADLINE_EXCEEDED", False), 13: ("INTERNAL", False),
    15: ("DATA_LOSS", False),
}  # fmt: skip

# Statuses after which opening a stream again does not help.
_PERMANENT = {16, 7, 3, 12, 5, 9}


class StatusError(Exception):
    """The end of a call of gRPC: its status, and the encoded details of it."""

    def __init__(self, status: int, message: str = "", details: bytes = b"", *, untaken: bool = False) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
        self.details = details
        self.untaken = untaken  # no server has done anything for it

    @property
    def permanent(self) -> bool:
        """Whether calling again cannot help until something is changed by hand."""
        return self.status in _PERMANENT


def from_wire(w: Any) -> MillraceError:
    """Convert an error of the contract."""
    return errors.make(
        w.code,
        w.message,
        reason=w.reason,
        field=w.field,
        op=w.op if w.HasField("op") else None,
        limit=w.limit,
        max=w.max,
        details=dict(w.details),
        retry_after=wire.span(w.retry_after),
        failures=[errors.Failure(f.change, f.code, f.reason, f.message, dict(f.details)) for f in w.failures],
        leader=w.leader,
        outcome="unknown" if w.outcome == 1 else "refused",
    )


def from_status(e: StatusError) -> MillraceError:
    """Convert the end of a call. Without details, what may have been applied is unknown."""
    if e.details:
        try:
            status = wire.Status.FromString(e.details)
            for d in status.details:
                if d.type_url.endswith("/millrace.v1.Error"):
                    return from_wire(wire.Error.FromString(d.value))
        except Exception:  # details that cannot be read are as none
            pass
    code, refused = _STATUS.get(e.status, ("UNAVAILABLE", False))
    return errors.make(code, e.message, outcome="refused" if refused or e.untaken else "unknown")


def unreached(message: str) -> MillraceError:
    """Make the error of a call that never left."""
    return errors.Unavailable(message)


def closed() -> MillraceError:
    """Make the error of a call of a closed client."""
    e = errors.Unavailable("the client is closed", reason="closed")
    e.ended_here = True
    return e


def expired() -> MillraceError:
    """Make the error of a call that left and had no answer for as long as servers remember it."""
    return errors.Unavailable("no answer came for 10 minutes", reason="expired", outcome="unknown")


def patience(e: MillraceError) -> float:
    """Return for how many seconds a call is repeated after an error; 0: not at all."""
    if e.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "NOT_LEADER"):
        return 0.0 if e.ended_here or e.reason in ("session_expired", "expired") else RESEND_FOR
    if e.code in ("RATE_LIMITED", "RESOURCE_EXHAUSTED"):
        return REFUSED_FOR
    return 0.0


def ends_lease(e: MillraceError) -> bool:
    """Tell whether a refused settle means that the lease is gone.

    What an effect is refused for, which the error names by its op, may be of another task.
    """
    return e.op is None and e.code in ("LEASE_LOST", "NOT_FOUND", "WRONG_STATE")


def server_bound(n: int) -> float:
    """Return the longest wait before try n, from 0, after an error of a server that is there."""
    return _MOST if n >= 7 else min(_BASE * (1 << n), _MOST)


def away_bound(n: int) -> float:
    """Return the longest wait before try n while no leader or no server is there."""
    if n < _SOON_TRIES:
        return min(_BASE * (1 << min(n, 3)), _SOON_MOST)
    return server_bound(n - _SOON_TRIES + 3)


def wait_before(e: MillraceError, n: int) -> float:
    """Draw the wait before try n after an error; what the server wishes is the least."""
    away = e.code in ("UNAVAILABLE", "NOT_LEADER")
    return max(wire.jitter(away_bound(n) if away else server_bound(n)), e.retry_after)


def sure(e: MillraceError, unsure: bool, commit: bool) -> MillraceError:
    """Settle what an earlier try left open: only a refusal by the state itself proves that it was not applied."""
    if e.outcome == "unknown" or not unsure:
        return e
    if e.code in ("NOT_FOUND", "WRONG_STATE", "PRECONDITION_FAILED", "WRONG_PARTITION", "LEASE_LOST"):
        return e
    if e.code == "ALREADY_EXISTS" and (not commit or e.op is not None):
        return e
    e.outcome = "unknown"
    return e
