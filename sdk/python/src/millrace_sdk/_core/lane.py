"""A worker's way to one partition: the leases of its tasks, their renewal and their end."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import errors
from ..errors import MillraceError
from . import faults, wire
from .session import Session, Window
from .share import Share

if TYPE_CHECKING:
    from .work import WorkerCore

OPEN, SETTLING, SETTLED = range(3)  # with its handler; its settle waits to be written; it was written

_RENEW_BYTES = 48  # for an id and a token


class Attempt:
    """One attempt at a task. Its state is the I/O thread's; item and op are made where the handler runs."""

    stage = OPEN
    lost = False  # the lease is gone: nothing is sent any more
    cancelled = False  # the task's cancel was asked for
    stopped = False  # the handler was told to end as the worker's drain is over
    released = False  # it was given back while its handler still runs
    first: float | None = None  # when its settle left first
    unsure = False
    tries = 0
    solo = False  # its settle gets a frame of its own
    plainly = False  # a failure was refused, and replaced by one that every server takes
    refusal: MillraceError | None = None
    item = b""
    op = ""  # complete, fail, stop, snooze or release
    fatal = False
    again = False  # a refusal of its effects goes to the handler
    invoke = 0
    owner: Any = None  # the handlers' own
    reporter: Any = None

    def __init__(self, lane: Lane | None, m: Any, now: float) -> None:
        self.lane = lane
        self.message = m
        self.id: str = m.id
        self.token: int = m.token
        self.key = (self.id, self.token)
        self.kind: str = m.kind
        self.length = max(m.lease_ms / 1000, 1.0)  # of the lease, in seconds
        self.renew_at = now + max(m.lease_left_ms / 1000 - self.length * 2 / 3, 0.0)
        self._ticket = [True]

    @property
    def number(self) -> int:
        """Which attempt at the task it is, from 1."""
        return int(self.message.attempt)

    @property
    def queue(self) -> str:
        """The queue of the task."""
        return str(self.message.queue)

    def take(self) -> bool:
        """Take the right to begin the handler, or to end the attempt before: one caller gets it."""
        try:
            self._ticket.pop()
        except IndexError:
            return False
        return True

    def offer(self) -> None:
        """Let the handler be called once more."""
        self._ticket = [True]

    @property
    def begun(self) -> bool:
        """Whether the handler has begun."""
        return not self._ticket

    # The settle.

    def _settle(self, op: str) -> Any:
        self.op = op
        item = wire.SettleItem()
        item.id, item.token = self.id, self.token
        return item

    def complete(self, result: bytes, content_type: str, effects: Any, again: bool) -> int:
        """End the attempt with a result and effects, which write themselves; what it returns is the encoded size."""
        item = self._settle("complete")
        done = item.complete
        done.result, done.result_type = result, content_type
        if effects is not None:
            effects._write(item)
        self.again = again
        self.item = item.SerializeToString()
        return len(self.item)

    def fail(
        self, code: str, message: str, stack: str = "", *, fatal: bool = False, retry_after: float | None = None
    ) -> None:
        """End the attempt as a failure."""
        item = self._settle("fail")
        self.fatal = fatal
        item.fail.fatal = fatal
        e = item.fail.error
        e.code, e.message, e.stack = wire.cut(code, 64), wire.cut(message, 4 << 10), wire.cut(stack, 16 << 10)
        if retry_after is not None:
            wire.set_span(item.fail.retry_after, max(retry_after, 0.0))
        self.item = item.SerializeToString()

    def snooze(self, seconds: float) -> None:
        """End the attempt by putting the task off."""
        item = self._settle("snooze")
        wire.set_span(item.snooze.delay, max(seconds, 0.0))
        self.item = item.SerializeToString()

    def release(self) -> None:
        """End the attempt by giving the task back."""
        item = self._settle("release")
        item.release.SetInParent()
        self.item = item.SerializeToString()

    def stop(self) -> None:
        """End the attempt of a task whose cancel was asked for, with the failure that it ended with, if it did."""
        failed = wire.SettleItem.FromString(self.item).fail.error if self.op == "fail" else None
        item = self._settle("stop")
        item.stop.SetInParent()
        if failed is not None:
            item.stop.error.CopyFrom(failed)
        self.item = item.SerializeToString()


class _SettleFrame:
    def __init__(self, lane: Lane, attempts: list[Attempt], n: Window) -> None:
        self._lane = lane
        self._attempts = attempts
        self._n = n

    def size(self) -> Window:
        return self._n

    def lost(self) -> None:
        lane = self._lane
        for t in reversed(self._attempts):
            if lane.held.get(t.key) is t:
                t.unsure, t.stage = True, SETTLING
                lane.settles.appendleft(t)

    def acked(self, ack: Any) -> None:
        lane = self._lane
        if ack.HasField("error"):
            e = faults.from_wire(ack.error)
            if len(self._attempts) > 1 and e.code in ("INVALID_ARGUMENT", "TOO_LARGE"):
                for t in reversed(self._attempts):  # one bad item can have been the reason
                    if lane.held.get(t.key) is t:
                        t.solo, t.stage = True, SETTLING
                        lane.settles.appendleft(t)
                lane.session.poke()
                return
            for t in self._attempts:
                lane.answered(t, ack.at, None, faults.from_wire(ack.error))
            return
        results, at = ack.settled, ack.at
        for t, r in zip(self._attempts, results, strict=False):
            lane.answered(t, at, r, faults.from_wire(r.error) if r.HasField("error") else None)
        for t in self._attempts[len(results) :]:
            lane.answered(t, at, None, errors.Internal("the answer lacks results", outcome="unknown"))

    def expire(self, before: float) -> float | None:
        return self._lane.expire_attempts(self._attempts, before)


class _RenewFrame:
    def __init__(self, lane: Lane, attempts: list[Attempt]) -> None:
        self._lane = lane
        self.attempts = attempts

    def size(self) -> Window:
        return Window(len(self.attempts), _RENEW_BYTES * len(self.attempts), 0)

    def message(self, seq: int) -> bytes:
        frame = wire.ClientFrame()
        frame.renew.seq = seq
        for t in self.attempts:
            frame.renew.items.add(id=t.id, token=t.token)
        return bytes(frame.SerializeToString())

    def acked(self, ack: Any) -> None:
        lane = self._lane
        if ack.HasField("error"):
            e = faults.from_wire(ack.error)
            if faults.patience(e) > 0:  # not renewed: try again well before the leases end
                soon = wire.monotonic() + max(0.05, e.retry_after)
                for t in self.attempts:
                    t.renew_at = min(t.renew_at, soon)
                lane.renew_by(soon)
            return
        for t, r in zip(self.attempts, ack.renewed, strict=False):
            if lane.held.get(t.key) is not t:
                continue
            if r.lost:
                lane.lose(t.key, "expired")
            elif r.cancel:
                lane.core.cancel(t, "")

    def lost(self) -> None:
        pass  # a new stream renews everything

    def expire(self, before: float) -> float | None:
        return None


class Lane:
    """The role of a stream: what a worker holds in one partition."""

    def __init__(self, core: WorkerCore, partition: int) -> None:
        self.core = core
        self.session = Session(core.engine, self, partition)
        self.held: dict[tuple[str, int], Attempt] = {}
        self.settles: deque[Attempt] = deque()
        self.control: deque[bytes] = deque()
        self._renewals: deque[_RenewFrame] = deque()
        self.share = Share(0 if partition else core.slots)  # of the worker's slots
        self._subscribe = False  # the next frame is the subscription
        self._restate = False  # a frame tells the window: a server keeps the slot of a lease that it ended until then
        self._renew_timer: Any = None
        self._renew_next = math.inf

    # The role of the session.

    def hello(self, h: Any) -> None:
        """Name the worker and every lease that it holds, those whose settle has no answer too."""
        h.worker.id, h.worker.host = self.core.name, wire.cut(self.core.host, 128)
        h.worker.kinds.extend(self.core.kinds)
        for t in self.held.values():
            h.held.add(id=t.id, token=t.token)

    def welcomed(self, w: Any) -> None:
        """Resume the work."""
        for lease in w.lost:
            self.lose((lease.id, lease.token), "lost with the stream")
        self.control.clear()
        self._renewals.clear()
        if self.core.drains:
            self.control.append(_DRAIN)
        self._subscribe, self._restate = not self.core.drains, False
        self._renew(wire.monotonic(), everything=True)
        self.core.came_up(self)

    def parted(self) -> None:
        """Note that no server can give tasks: leases outlive a stream."""
        self.share.up = False

    def restate(self) -> None:
        """Tell the server the window."""
        self._restate = True
        self.session.poke()

    def idle(self) -> bool:
        """Report whether nothing waits that must be written before the end."""
        return not self.settles and not self.control and not self._restate

    def next(self, seq: int) -> tuple[bytes, Any] | None:
        """Make the next frame: first the window, then renewals, which are urgent, then settles."""
        if self._subscribe:
            self._subscribe = self._restate = False
            return self._subscription(), None
        if self._restate:
            self._restate = False
            frame = wire.ClientFrame()
            frame.slots.sub, frame.slots.slots = 1, self.share.slots
            return bytes(frame.SerializeToString()), None
        if self.control:
            return self.control.popleft(), None
        if self._renewals and self.session.fits(self._renewals[0].size()):
            r = self._renewals.popleft()
            return r.message(seq), r
        return self._next_settles(seq)

    def _subscription(self) -> bytes:
        frame = wire.ClientFrame()
        sub = frame.subscribe
        sub.sub, sub.slots, sub.batch = 1, self.share.slots, 128
        for q in self.core.queues:
            sub.queues.add(name=q, weight=self.core.weights.get(q, 0))
        sub.strict = self.core.in_order
        if self.core.lease:
            wire.set_span(sub.lease, self.core.lease)
        return bytes(frame.SerializeToString())

    def receive(self, frame: Any) -> None:
        """Take what the server pushes to a worker."""
        kind = frame.WhichOneof("frame")
        if kind == "assign":
            self._assigned(frame.assign.tasks)
        elif kind == "lease_lost":
            lost = frame.lease_lost
            self.lose((lost.id, lost.token), lost.reason)
            self._restate = not self.core.drains
            self.session.poke()
        elif kind == "available":
            self.core.division.available(self)
        elif kind == "cancel":
            t = self.held.get((frame.cancel.id, frame.cancel.token))
            if t is not None:
                self.core.cancel(t, frame.cancel.reason)

    def _assigned(self, tasks: Sequence[Any]) -> None:
        """Take tasks over. One that is held came twice; one that comes while the worker drains goes back."""
        core = self.core
        if core.over:
            return
        now = wire.monotonic()
        held = self.held
        begin: list[Attempt] = []
        renew = math.inf
        for m in tasks:
            t = Attempt(self, m, now)
            if t.key in held:
                continue
            held[t.key] = t
            if t.renew_at < renew:
                renew = t.renew_at
            if core.drains:
                t.take()
                self.give_back(t)
            else:
                begin.append(t)
        self.renew_by(renew)
        if begin:
            core.begin(begin)
        if len(core.lanes) > 1:
            core.division.filled(self, now)
        if core.drains:
            self.session.poke()

    # The end of attempts.

    def give_back(self, t: Attempt) -> None:
        """Queue the release of an attempt."""
        t.release()
        self.settle(t)

    def settle(self, t: Attempt) -> None:
        """Queue the settle of an attempt."""
        if not t.invoke and self.core.engine.ledger is not None:
            t.invoke = self.core.engine.ledger.now()
        t.stage = SETTLING
        self.settles.append(t)
        self.session.poke()

    def _next_settles(self, seq: int) -> tuple[bytes, Any] | None:
        queue = self.settles
        out: list[Attempt] = []
        size, left = 0, self.session.left()
        now = wire.monotonic()
        while queue:
            t = queue[0]
            more = size + len(t.item) + 8
            if out and (t.solo or out[0].solo or len(out) >= wire.FRAME_ITEMS or more > wire.FRAME_AIM):
                break
            if len(out) >= left.items or more > left.bytes:
                break
            queue.popleft()
            if t.first is None:
                t.first = now
            t.stage = SETTLED
            out.append(t)
            size = more
        if not out:
            return None
        if len(self.core.lanes) > 1:
            self.core.division.freed()
        return wire.settle_frame(seq, [t.item for t in out]), _SettleFrame(self, out, Window(len(out), size, 0))

    def answered(self, t: Attempt, at: Any, r: Any, e: MillraceError | None) -> None:
        """Take the answer to one settle."""
        if self.held.get(t.key) is not t:
            return  # given up meanwhile
        core = self.core
        if e is None or (r is not None and r.failed_instead):  # the error is why: the attempt has ended all the same
            op = t.op
            if e is not None:
                op = "fail"
                core.engine.log.warning(
                    "the effects were refused and the attempt failed: task %s, attempt %d: %s", t.id, t.number, e
                )
            core.write_line(t, op, at, None, replayed=r.replayed)
            self.drop(t)
            core.settled(t, op, wire.state(r.state), r.replayed, None)
            return
        op, wait, log = t.op, faults.patience(e), core.engine.log
        if faults.ends_lease(e):
            log.info("the lease was lost before the attempt was settled: task %s, attempt %d: %s", t.id, t.number, e)
            core.write_line(t, op, at, faults.sure(e, t.unsure, False))
            core.end(t, "lost")
            self.drop(t)
        elif e.op is None and wait > 0 and wire.monotonic() - (t.first or 0.0) < faults.GIVE_UP:
            # The settle is sent again for as long as servers remember its token.
            t.unsure = t.unsure or e.outcome == "unknown"
            t.stage = SETTLING
            t.tries += 1
            core.engine.io.loop.call_later(faults.wait_before(e, t.tries - 1), self._again, t)
            return
        elif op == "complete" and t.again and e.outcome == "refused":
            # The handler may change the effects and complete once more: the lease is still held.
            core.write_line(t, op, at, e)
            t.refusal, t.first, t.unsure, t.stage, t.invoke = e, None, False, OPEN, 0
            t.offer()
            core.begin([t])
        elif op in ("complete", "snooze") or (op == "fail" and not t.plainly and e.outcome == "refused"):
            # It will never be applied as it is. A plain failure in its place lets the policy for retries decide.
            log.warning("the attempt is failed because it could not be settled: task %s, %s: %s", t.id, op, e)
            core.write_line(t, op, at, e)
            fatal, t.plainly = t.fatal and op == "fail", op == "fail"
            t.fail(e.code, str(e), fatal=fatal)
            t.solo, t.first, t.unsure, t.invoke = True, None, False, 0
            self.settle(t)
        else:
            log.error("the attempt could not be settled: task %s, attempt %d, %s: %s", t.id, t.number, op, e)
            core.write_line(t, op, at, e)
            self.drop(t)
        core.settled(t, op, "", False, e)

    def _again(self, t: Attempt) -> None:
        if self.held.get(t.key) is t and t.stage == SETTLING and t not in self.settles:
            self.settles.append(t)
            self.session.poke()

    def lose(self, key: tuple[str, int], reason: str) -> None:
        """End a lease that the server says is gone. A settle that is on its way keeps its answer."""
        t = self.held.get(key)
        if t is None or t.stage != OPEN:
            return
        t.lost = True
        self.core.engine.log.info("the lease of task %s, attempt %d, is lost: %s", t.id, t.number, reason)
        if t.take():
            self.core.unqueued(t)
        else:
            self.core.outlived(t)
        self.drop(t)
        self.core.end(t, "lost")

    def drop(self, t: Attempt) -> None:
        """Forget an attempt."""
        if self.held.get(t.key) is t:
            del self.held[t.key]
        self.core.dropped(t)

    # Renewal.

    def renew_by(self, at: float) -> None:
        """Have the timer fire then, if it would fire later."""
        if at >= self._renew_next:
            return
        self._renew_next = at
        if self._renew_timer is not None:
            self._renew_timer.cancel()
        wait = max(at - wire.monotonic(), 0.0)
        self._renew_timer = self.core.engine.io.loop.call_later(wait, self._renew_due)

    def _renew_due(self) -> None:
        self._renew_next, self._renew_timer = math.inf, None
        if self.session.up and not self.core.over:
            self._renew(wire.monotonic(), everything=False)
        elif self.held and not self.core.over:
            self.renew_by(wire.monotonic() + 1.0)
        self.session.poke()

    def _renew(self, now: float, *, everything: bool) -> None:
        """Queue the renewal of the leases that are due, or all. A lease that is due soon shares the frame."""
        if self._renewals:  # not written since the last time
            self._renewals.clear()
            everything = True
        due: list[Attempt] = []
        following = math.inf
        for t in self.held.values():
            if t.stage == SETTLED:
                continue
            if (everything or t.renew_at <= now + t.length / 6) and self.core.may_renew(t, now):
                due.append(t)
                t.renew_at = now + t.length / 3
            elif t.renew_at <= now:
                t.renew_at = now + t.length / 3
            following = min(following, t.renew_at)
        for i in range(0, len(due), wire.FRAME_ITEMS):
            self._renewals.append(_RenewFrame(self, due[i : i + wire.FRAME_ITEMS]))
        self.renew_by(following)

    # The end.

    def begin_drain(self) -> None:
        """Ask for no more tasks, and give back those that no handler has begun."""
        self._subscribe = self._restate = False
        if self.session.up:
            self.control.append(_DRAIN)
        for t in list(self.held.values()):
            if t.stage == OPEN and t.refusal is None and t.take():
                self.core.unqueued(t)
                self.give_back(t)
        self.session.poke()

    def stop_timers(self) -> None:
        """End the renewal."""
        if self._renew_timer is not None:
            self._renew_timer.cancel()
            self._renew_timer = None

    def expire_attempts(self, attempts: Sequence[Attempt], before: float) -> float | None:
        """Give up the settles that left before then and have no answer."""
        oldest: float | None = None
        for t in attempts:
            if self.held.get(t.key) is not t or t.first is None:
                continue
            if t.first > before:
                oldest = t.first if oldest is None else min(oldest, t.first)
                continue
            self.core.engine.log.error("an attempt was not settled in time: task %s, attempt %d", t.id, t.number)
            self.core.write_line(t, t.op, None, faults.expired())
            self.drop(t)
            self.core.settled(t, t.op, "", False, faults.expired())
        return oldest

    def expire(self, before: float) -> float | None:
        """Give up the settles that wait to be sent again and left before then."""
        oldest = self.expire_attempts(list(self.settles), before)
        self.settles = deque(t for t in self.settles if self.held.get(t.key) is t)
        return oldest

    def refuse(self, e: MillraceError) -> None:
        """End the settles that wait, when the stream ends for good."""
        while self.settles:
            t = self.settles.popleft()
            copy = errors.make(e.code, e.message, reason=e.reason, outcome="unknown" if t.unsure else "refused")
            self.core.write_line(t, t.op, None, copy)
            self.core.settled(t, t.op, "", False, copy)


def _drain_frame() -> bytes:
    frame = wire.ClientFrame()
    frame.drain.SetInParent()
    return bytes(frame.SerializeToString())


_DRAIN = _drain_frame()
