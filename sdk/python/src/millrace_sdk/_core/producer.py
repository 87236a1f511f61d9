"""The stream of a client's creates, commits and waits to one partition."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import errors
from ..errors import MillraceError
from . import faults, wire
from .session import Session, Window

if TYPE_CHECKING:
    from .engine import Engine
    from .pins import Again

QUEUED, SENT, ENDED = range(3)
_COARSE = 2.0  # seconds: longer timeouts share timers
_STEP = 0.25


class Call:
    """One create or commit of a caller that waits for it. Its state is the I/O thread's."""

    __slots__ = (
        "again", "answer", "at", "atomic", "began", "commit", "deadline", "done", "error", "first", "gone", "index",
        "items", "key", "note", "open", "partition", "parts", "size", "solo", "state", "tries", "unsure",
    )  # fmt: skip

    def __init__(
        self, items: list[bytes], *, commit: bool, atomic: bool, note: Callable[[Call], None] | None = None
    ) -> None:
        self.items = items  # encoded: specs, or one commit
        self.commit = commit
        self.atomic = atomic
        self.note = note  # called by done, before its caller goes on
        self.done: Callable[[Call], None] = _unheard  # called once, by the I/O thread
        self.size = sum(map(len, items)) + 8 * len(items) + 16
        self.state = QUEUED
        self.unsure = False  # it may have been applied
        self.first: float | None = None  # when it left first
        # Its caller has left: set by the caller's thread before it looks at first. The I/O thread looks at it after it
        # has set first, so what the caller sees not to have left does not leave.
        self.gone = False
        self.began: float | None = None  # the same, over all repetitions after an answer
        self.solo = False  # a frame which it shared was refused as a whole
        self.tries = 0
        self.deadline: float | None = None
        self.key: Any = None  # where its deadline is kept
        self.answer: Any = None  # the results of the specs, or that of the commit
        self.at: Any = None
        self.error: MillraceError | None = None
        self.partition = 0
        self.again: Again | None = None  # what it may be placed again with, once
        self.open: Unplaced | None = None  # what is placed once it is known how many partitions there are
        self.index: list[int] | None = None  # where its items stand in the batch that it is of; None: as they are
        self.parts: list[Call] | None = None  # what it was divided into, one for each partition

    def left(self) -> bool:
        """Note that the caller has left, and report whether the call had."""
        self.gone = True
        left = [p.left() for p in self.parts or ()]
        return self.first is not None or any(left)

    def outcomes(self) -> list[tuple[Any, MillraceError | None, Any]]:
        """Return the result, the error and the place in the log of each item of a create that has ended."""
        if self.parts is None:
            answer = self.answer if self.answer is not None else [None] * len(self.items)
            return [(r, self.error, self.at) for r in answer]
        return in_order(self.parts, len(self.items))


def in_order(calls: Sequence[Call], size: int) -> list[tuple[Any, MillraceError | None, Any]]:
    """Return the outcomes of the items of a batch, which may have gone in several calls."""
    out: list[tuple[Any, MillraceError | None, Any]] = [(None, None, None)] * size
    at = 0
    for c in calls:
        for i, outcome in enumerate(c.outcomes()):
            out[c.index[i] if c.index is not None else at] = outcome
            at += 1
    return out


class Unplaced:
    """What a call asks for, while it is not known how many partitions there are."""

    __slots__ = ("commit", "free", "made", "specs", "task")

    def __init__(
        self, specs: Sequence[Any], free: Sequence[int], commit: Any = None, task: str = "", made: Sequence[int] = ()
    ) -> None:
        self.specs = specs  # messages of tasks
        self.free = free  # indexes of tasks, or of ops that create some, whose ids were not given
        self.commit = commit  # or the message of a commit, under the lease of a task
        self.task = task
        self.made = made  # indexes of ops whose ids were made with a place, which their queues may change


def _unheard(c: Call) -> None:
    """Tell nothing: a call whose caller does not wait yet."""


class _CreateFrame:
    def __init__(self, p: Producer, calls: list[Call], n: Window) -> None:
        self._p = p
        self._calls = calls
        self._n = n

    def size(self) -> Window:
        return self._n

    def acked(self, ack: Any) -> None:
        if ack.HasField("error"):
            self._refused(ack)
            return
        results, i = ack.created, 0
        p = self._p
        for c in self._calls:
            n = len(c.items)
            if c.state == SENT:
                mine = results[i : i + n]
                c.at = ack.at
                if len(mine) < n:
                    p.answered(c, _lacking("results"))
                else:
                    c.answer = mine
                    one = n == 1 and mine[0].HasField("error")
                    p.answered(c, faults.from_wire(mine[0].error) if one else None)
            i += n

    def _refused(self, ack: Any) -> None:
        """When one bad item can have been the reason, each call is tried in a frame of its own."""
        e = faults.from_wire(ack.error)
        if e.code not in ("INVALID_ARGUMENT", "TOO_LARGE") or len(self._calls) == 1:
            for c in self._calls:
                if c.state == SENT:
                    c.at = ack.at
                    self._p.answered(c, faults.from_wire(ack.error))
            return
        for c in reversed(self._calls):
            if c.state == SENT:
                c.solo, c.state = True, QUEUED
                self._p.creates.appendleft(c)
        self._p.session.poke()

    def lost(self) -> None:
        for c in reversed(self._calls):
            if c.state == SENT:
                c.unsure, c.state = True, QUEUED
                self._p.creates.appendleft(c)

    def expire(self, before: float) -> float | None:
        return self._p.expire_calls(self._calls, before)


class _CommitFrame:
    def __init__(self, p: Producer, call: Call) -> None:
        self._p = p
        self._c = call

    def size(self) -> Window:
        return Window(1, self._c.size, 1)

    def acked(self, ack: Any) -> None:
        c = self._c
        if c.state != SENT:
            return
        if ack.HasField("error"):
            self._p.answered(c, faults.from_wire(ack.error))
        elif not ack.HasField("commit"):
            self._p.answered(c, _lacking("the commit"))
        else:
            c.answer = ack.commit
            c.at = ack.commit.at if ack.commit.HasField("at") else ack.at
            self._p.answered(c, None)

    def lost(self) -> None:
        c = self._c
        if c.state == SENT:
            c.unsure, c.state = True, QUEUED
            self._p.commits.appendleft(c)

    def expire(self, before: float) -> float | None:
        return self._p.expire_calls([self._c], before)


class _WaitsFrame:
    def __init__(self, p: Producer, ids: list[str]) -> None:
        self._p = p
        self._ids = ids

    def size(self) -> Window:
        return Window(len(self._ids), 32 * len(self._ids), 0)

    def acked(self, ack: Any) -> None:
        if ack.HasField("error"):
            e = faults.from_wire(ack.error)
            for id in self._ids:
                self._p.wait_refused(id, e)
            return
        for id, r in zip(self._ids, ack.waits, strict=False):
            if r.HasField("error"):
                self._p.wait_refused(id, faults.from_wire(r.error))

    def lost(self) -> None:
        pass  # a new stream asks for all that is waited for

    def expire(self, before: float) -> float | None:
        return None


class Waiting:
    """One caller that waits for the end of a task. done is called once, with the task or an error."""

    __slots__ = ("done", "id", "task")

    def __init__(self, id: str, done: Callable[[Any, MillraceError | None], None]) -> None:
        self.id = id
        self.done = done
        self.task: Any = None  # of the I/O thread, where the wait is a call


class Producer:
    """The role of a stream: creates and commits of all threads and loops, and the waits for tasks."""

    def __init__(self, engine: Engine, partition: int = 0) -> None:
        self.engine = engine
        self.session = Session(engine, self, partition)
        self.creates: deque[Call] = deque()
        self.commits: deque[Call] = deque()
        self._gone = 0  # calls that ended in a queue, and lie there still
        self._turn = False
        self._started = False
        self._open: set[Call] = set()
        self._deadlines: dict[float, set[Call]] = {}
        self._timer: Any = None
        self._timer_at = math.inf
        self._waiting: dict[str, list[Waiting]] = {}
        self._ask: list[str] = []  # waits that this stream was not asked for yet
        self._asked: set[str] = set()
        self._forget: list[str] = []
        self._undecided: list[Waiting] = []  # before it is known what the server can do

    # What callers ask for. Each is called by the I/O thread.

    def submit(self, c: Call) -> None:
        """Carry out a call; its done is called when it has ended."""
        if self.session.closing or self.session.stopped is not None:
            c.state, c.error = ENDED, faults.closed()
            c.done(c)
            return
        self._open.add(c)
        if c.deadline is not None:
            self._watch(c)
        self._queue(c)

    def _queue(self, c: Call) -> None:
        (self.commits if c.commit else self.creates).append(c)
        self._start()
        self.session.poke()

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self.session.start(once=False)

    def abandon(self, c: Call) -> None:
        """Leave a call because its caller has: what had left goes its way."""
        if c.state != ENDED:
            self._end(c, self._left_error(c, "the caller has left"))

    def _left_error(self, c: Call, text: str) -> MillraceError:
        unsure = c.unsure or c.state == SENT
        last = self.session.last_error
        if not unsure and not self.session.up and last is not None:
            e: MillraceError = errors.Unavailable(f"no server was reached: {last}", outcome="refused")
        else:
            e = errors.DeadlineExceeded(text, outcome="unknown" if unsure else "refused")
        e.ended_here = True
        return e

    def _end(self, c: Call, e: MillraceError | None) -> None:
        if c.state == QUEUED:
            self._gone += 1
            if self._gone >= 64 and 2 * self._gone > len(self.creates) + len(self.commits):
                self._sweep()
        c.state, c.error = ENDED, e
        self._open.discard(c)
        if c.key is not None:
            self._unwatch(c)
        c.done(c)

    def _sweep(self) -> None:
        """Drop the calls from the queues that have ended there."""
        self._gone = 0
        self.creates = deque(c for c in self.creates if c.state == QUEUED)
        self.commits = deque(c for c in self.commits if c.state == QUEUED)

    def answered(self, c: Call, e: MillraceError | None) -> None:
        """Take the answer to a call that was sent: its end, or a reason to repeat it."""
        if c.again is not None and self.engine.producers.replace(self, c, e):
            return
        if e is None:
            self._end(c, None)
            return
        e = faults.sure(e, c.unsure, c.commit)
        c.unsure = e.outcome == "unknown"
        if c.began is None:
            c.began = c.first
        began = c.began if c.began is not None else wire.monotonic()
        patient = faults.patience(e)
        wait = faults.wait_before(e, c.tries)
        now = wire.monotonic()
        if patient == 0 or now - began > patient or (c.deadline is not None and now + wait >= c.deadline):
            self._end(c, e)
            return
        c.tries += 1
        c.state = QUEUED
        self.engine.io.loop.call_later(wait, self._again, c)

    def _again(self, c: Call) -> None:
        if c.state == QUEUED and c in self._open:
            if self.session.stopped is not None or self.session.closing:
                e = faults.closed()
                e.outcome = "unknown" if c.unsure else "refused"
                self._end(c, e)
            else:
                self._queue(c)

    # Timeouts: those of two seconds and more share timers, so that a call costs no timer of its own.

    def _watch(self, c: Call) -> None:
        at = c.deadline or 0.0
        if at - wire.monotonic() >= _COARSE:
            at = math.ceil(at / _STEP) * _STEP
        c.key = at
        self._deadlines.setdefault(at, set()).add(c)
        if at < self._timer_at:
            self._set_timer(at)

    def _unwatch(self, c: Call) -> None:
        group = self._deadlines.get(c.key)
        if group is not None:
            group.discard(c)
            if not group:
                del self._deadlines[c.key]
        c.key = None

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.engine.io.loop.call_later(max(at - wire.monotonic(), 0.0), self._timeouts)

    def _timeouts(self) -> None:
        now = wire.monotonic()
        self._timer, self._timer_at = None, math.inf
        for at in [at for at in self._deadlines if at <= now]:
            for c in list(self._deadlines.get(at, ())):
                if c.state != ENDED:
                    self._end(c, self._left_error(c, "the timeout is over"))
            self._deadlines.pop(at, None)
        if self._deadlines:
            self._set_timer(min(self._deadlines))

    def let_go(self, c: Call) -> None:
        """Forget a call that is carried out elsewhere from here on."""
        self._open.discard(c)
        if c.key is not None:
            self._unwatch(c)

    def take_open(self) -> list[Call]:
        """Give away the calls that wait for the number of partitions."""
        out: list[Call] = []
        for queue in (self.creates, self.commits):
            out += [c for c in queue if c.open is not None and c.state == QUEUED and c.first is None]
            rest = [c for c in queue if c not in out]
            queue.clear()
            queue.extend(rest)
        for c in out:
            self.let_go(c)
        return out

    # Waits.

    def take_undecided(self) -> list[Waiting]:
        """Give away the waits that came before the first answer of a server."""
        out, self._undecided = self._undecided, []
        return out

    def wait(self, w: Waiting) -> None:
        """Have a caller told of the end of a task."""
        if self.session.closing or self.session.stopped is not None:
            w.done(None, faults.closed())
        elif not self.session.up and not self.session.features:
            self._undecided.append(w)
            self._start()
            self.session.poke()
        elif "waits" not in self.session.features or len(self._waiting) >= self.session.waits_limit:
            w.task = self.engine.io.spawn(self._wait_by_call(w))
        else:
            self._wait_on_stream(w)

    def _wait_on_stream(self, w: Waiting) -> None:
        others = self._waiting.get(w.id)
        if others is not None:
            others.append(w)
            return
        self._waiting[w.id] = [w]
        if w.id in self._forget:
            self._forget.remove(w.id)
        if w.id not in self._asked:
            self._ask.append(w.id)
            self.session.poke()

    def forget(self, w: Waiting) -> None:
        """Have a caller not told any more."""
        if w in self._undecided:
            self._undecided.remove(w)
        if w.task is not None:
            w.task.cancel()
            return
        others = self._waiting.get(w.id)
        if not others or w not in others:
            return
        others.remove(w)
        if not others:
            del self._waiting[w.id]
            if w.id in self._asked:
                self._asked.discard(w.id)
                self._forget.append(w.id)
                self.session.poke()
            elif w.id in self._ask:
                self._ask.remove(w.id)

    async def _wait_by_call(self, w: Waiting) -> None:
        try:
            task = await self.engine.wait_call(w.id)
        except MillraceError as e:
            w.done(None, e)
        else:
            w.done(task, None)

    def wait_refused(self, id: str, e: MillraceError) -> None:
        """Take in that the server does not tell of a task, for now or for good."""
        self._asked.discard(id)
        if faults.patience(e) == 0:
            self._told(id, None, e)
        elif id in self._waiting:
            self.engine.io.loop.call_later(faults.wait_before(e, 3), self._ask_again, id)

    def _ask_again(self, id: str) -> None:
        if id in self._waiting and id not in self._asked and id not in self._ask:
            self._ask.append(id)
            self.session.poke()

    def _told(self, id: str, task: Any, e: MillraceError | None) -> None:
        self._asked.discard(id)
        for w in self._waiting.pop(id, ()):
            w.done(task, e)

    # The role of the session.

    def hello(self, h: Any) -> None:
        """Add nothing: a producer holds no leases."""

    def welcomed(self, w: Any) -> None:
        """Ask for all that is waited for again."""
        self._asked.clear()
        self._forget.clear()
        self._ask = list(self._waiting)
        undecided, self._undecided = self._undecided, []
        if "waits" not in self.session.features:
            self._ask = []
            for waiting in self._waiting.values():
                undecided += waiting
            self._waiting = {}
        for w in undecided:
            if "waits" in self.session.features:
                self._wait_on_stream(w)
            else:
                w.task = self.engine.io.spawn(self._wait_by_call(w))

    def parted(self) -> None:
        """Have nothing to do: what had left is back in the queues."""

    def receive(self, frame: Any) -> None:
        """Take the end of a task."""
        if frame.WhichOneof("frame") != "ended":
            return
        ended = frame.ended
        if not ended.HasField("error"):
            self._told(ended.id, ended.task, None)
            return
        self.wait_refused(ended.id, faults.from_wire(ended.error))

    def idle(self) -> bool:
        """Report whether nothing waits to be written."""
        for queue in (self.creates, self.commits):
            while queue and queue[0].state != QUEUED:
                queue.popleft()
        return not self.creates and not self.commits and not self._ask and not self._forget and not self._undecided

    def next(self, seq: int) -> tuple[bytes, Any] | None:
        """Make the next frame. Creates and commits take turns, so that neither waits for a queue of the other."""
        if self._ask or self._forget:
            made = self._next_waits(seq)
            if made is not None:
                return made
        if self.session.paused():
            return None
        self._turn = not self._turn
        if self._turn:
            return self._next_commit(seq) or self._next_creates(seq)
        return self._next_creates(seq) or self._next_commit(seq)

    def _next_waits(self, seq: int) -> tuple[bytes, Any] | None:
        ids, forget = self._ask[: wire.FRAME_ITEMS], self._forget[: wire.FRAME_ITEMS]
        out = _WaitsFrame(self, ids)
        if not self.session.fits(out.size()):
            return None
        del self._ask[: len(ids)], self._forget[: len(forget)]
        self._asked.update(ids)
        return wire.waits_frame(seq, ids, forget), out

    def _next_creates(self, seq: int) -> tuple[bytes, Any] | None:
        queue = self.creates
        calls: list[Call] = []
        specs: list[bytes] = []
        size, left = 0, self.session.left()
        now = wire.monotonic()
        while queue:
            c = queue[0]
            if c.state != QUEUED:
                queue.popleft()
                continue
            items, more = len(specs) + len(c.items), size + c.size
            if calls:
                # What is all or nothing, or was in a frame that was refused as a whole, goes alone.
                alone = c.solo or c.atomic or calls[0].solo or calls[0].atomic
                if alone or items > wire.FRAME_ITEMS or more > wire.FRAME_AIM:
                    break
            if items > left.items or more > left.bytes:
                break
            queue.popleft()
            if not self._leaves(c, now):
                continue
            calls.append(c)
            specs += c.items
            size = more
        if not calls:
            return None
        self.engine.turn_of_free += 1
        return wire.create_frame(seq, specs, calls[0].atomic), _CreateFrame(self, calls, Window(len(specs), size, 0))

    def _leaves(self, c: Call, now: float) -> bool:
        """Take a call for a frame; false: its caller left before it did."""
        fresh = c.first is None
        if fresh:
            c.first = now
        if fresh and c.gone:
            c.first = None
            self._end(c, self._left_error(c, "the caller has left"))
            return False
        c.state = SENT
        return True

    def _next_commit(self, seq: int) -> tuple[bytes, Any] | None:
        queue = self.commits
        while queue:
            c = queue[0]
            if c.state != QUEUED:
                queue.popleft()
                continue
            out = _CommitFrame(self, c)
            if not self.session.fits(out.size()):
                return None
            queue.popleft()
            if not self._leaves(c, wire.monotonic()):
                continue
            return wire.commit_frame(seq, c.items[0]), out
        return None

    def expire_calls(self, calls: list[Call], before: float) -> float | None:
        """End the calls that left first before then, and return when the oldest of the others left."""
        oldest: float | None = None
        for c in calls:
            if c.state == ENDED or c.first is None:
                continue
            if c.first <= before:
                self._end(c, faults.expired())
            elif oldest is None or c.first < oldest:
                oldest = c.first
        return oldest

    def expire(self, before: float) -> float | None:
        """End the calls that wait to be sent again and left first before then."""
        return self.expire_calls([c for q in (self.creates, self.commits) for c in q], before)

    def refuse(self, e: MillraceError) -> None:
        """End all that waits."""
        for queue in (self.creates, self.commits):
            calls = [c for c in queue if c.state == QUEUED]
            queue.clear()
            for c in calls:
                copy = errors.make(e.code, e.message, reason=e.reason, outcome="unknown" if c.unsure else "refused")
                copy.ended_here = e.ended_here
                self._end(c, copy)
        undecided, self._undecided = self._undecided, []
        waiting, self._waiting, self._ask = self._waiting, {}, []
        for w in undecided + [w for ws in waiting.values() for w in ws]:
            w.done(None, e)

    async def close(self, within: float) -> None:
        """Refuse further calls, wait for those under way, and end the stream."""
        for c in [c for c in self._open if c.state == QUEUED and c.tries and c not in self.creates]:
            if c not in self.commits:
                self._again(c)
        self.session.closing = True
        waiting, self._waiting, self._ask, self._forget = self._waiting, {}, [], []
        for w in self._undecided + [w for ws in waiting.values() for w in ws]:
            w.done(None, faults.closed())
        self._undecided = []
        await self.session.drain(within)


def _lacking(what: str) -> MillraceError:
    return errors.Internal(f"the answer lacks {what}", outcome="unknown")
