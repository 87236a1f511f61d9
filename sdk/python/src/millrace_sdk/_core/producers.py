"""The streams of a client's creates, commits and waits: one for each partition that is used.

Each call goes to its partition. How many there are is not known before a server has let the first stream in: until then
calls wait on the stream of partition 0, which every namespace has. Where there is no other, that is all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import MillraceError
from . import faults, place, wire
from . import pins as pinned
from .pins import Again
from .producer import ENDED, QUEUED, Call, Producer, Unplaced, Waiting

if TYPE_CHECKING:
    from .engine import Engine


class Producers:
    """Has each call carried out by the stream of its partition. All of it is the I/O thread's."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.first = Producer(engine)
        self._others: dict[int, Producer] = {}
        self._closed = False
        # With one partition these are the first producer's own, so that a call costs nothing more.
        self.submit: Callable[[Call], None] = self.first.submit
        self.abandon: Callable[[Call], None] = self.first.abandon
        self.wait: Callable[[Waiting], None] = self.first.wait
        self.forget: Callable[[Waiting], None] = self.first.forget

    def all(self) -> list[Producer]:
        """Return those there are."""
        return [self.first, *self._others.values()]

    def learned(self, partitions: int) -> None:
        """Take in how many partitions there are: what waited for that goes on."""
        if partitions > 1:
            self.submit, self.abandon = self._submit, self._abandon
            self.wait, self.forget = self._wait, self._forget
        for c in self.first.take_open():
            if c.items:
                self.submit(c)
            else:
                _end(c, None)
        if partitions > 1:
            for w in self.first.take_undecided():
                self._wait(w)

    def learn(self, c: Call) -> None:
        """Have a call without items end when it is known how many partitions there are."""
        if self._engine.partitions:
            _end(c, None)
        else:
            c.open = Unplaced((), ())
            self.first.submit(c)

    def _of(self, partition: int) -> Producer:
        if partition <= 0:  # below: the server says what is wrong
            return self.first
        found = self._others.get(partition)
        if found is None:
            found = self._others[partition] = Producer(self._engine, partition)
            found.session.closing = self._closed
        return found

    def _submit(self, c: Call) -> None:
        if c.state == ENDED:  # it could not be placed
            c.done(c)
        elif c.open is None:
            self._of(c.partition).submit(c)
        else:
            self._place(c, c.open)

    def _place(self, c: Call, o: Unplaced) -> None:
        """Find the partition of a call, or divide it."""
        c.open = None
        e = self._engine
        if o.commit is not None:
            queues = [] if o.task else pinned.unknown(pinned.of_ops(o.commit.ops), e.pins)
            if queues:
                e.io.spawn(self._ask(c, o, queues))
            else:
                self._send_commit(c, o)
            return
        for i in o.free:
            o.specs[i].id = ""
        again = Again(o.specs, [spec.id for spec in o.specs])
        if not c.atomic and len(o.specs) > 1:
            homes, wrong = place.spread(o.specs, e.partitions, e.turn_of_free, e.pins)
            parts = [part_of(again, index, home) for home, index in homes.items()]
            self._divide(c, parts + [refused(i, w) for i, w in wrong.items()])
            return
        try:
            c.partition = _place_all(c, o.specs, e)
        except MillraceError as w:
            _end(c, w)
            return
        c.items = [spec.SerializeToString() for spec in o.specs]
        c.again = again
        self._of(c.partition).submit(c)

    async def _ask(self, c: Call, o: Unplaced, queues: Sequence[str]) -> None:
        """Place a commit when it is known which of its queues are pinned."""
        await pinned.ask(self._engine, queues, None if c.deadline is None else c.deadline - wire.monotonic())
        if c.state != ENDED:
            self._send_commit(c, o)

    def _send_commit(self, c: Call, o: Unplaced) -> None:
        try:
            _place_commit(c, o, self._engine.partitions, self._engine.pins)
        except MillraceError as e:
            _end(c, e)
            return
        self._of(c.partition).submit(c)

    def replace(self, at: Producer, c: Call, e: MillraceError | None) -> bool:
        """Carry out a create elsewhere that was refused because its queue has its tasks elsewhere than was known.

        Of a batch, unless it is atomic, these are the tasks that were refused so. It is done once, and only where the
        refusal proves that nothing was made: no earlier try may have been applied.
        """
        again = c.again
        if again is None or c.unsure:
            return False
        if e is None and len(c.items) > 1 and not c.atomic:
            return self._replace_some(at, c, again)
        if e is None:
            e = next((faults.from_wire(r.error) for r in c.answer if r.HasField("error")), None)
        if e is None or not self._placed_again(c, again, e):
            return False
        at.let_go(c)
        # What was surely refused has not left.
        c.state, c.first, c.answer, c.at = QUEUED, None, None, None
        self._of(c.partition).submit(c)
        return True

    def _replace_some(self, at: Producer, c: Call, again: Again) -> bool:
        parts: list[Call] = []
        stay: list[int] = []
        for i, r in enumerate(c.answer):
            if r.HasField("error"):
                one = Call([c.items[i]], commit=False, atomic=False)
                one.index, one.partition = [i], c.partition
                if self._placed_again(one, again.of([i]), faults.from_wire(r.error)):
                    parts.append(one)
                    continue
            stay.append(i)
        if not parts:
            return False
        at.let_go(c)
        self._divide(c, [_answered(c, stay), *parts])
        return True

    def _placed_again(self, c: Call, again: Again, e: MillraceError) -> bool:
        """Place a refused create again, and report whether it is of another partition by what is known now."""
        if not pinned.take(self._engine.pins, e, again.specs[0].queue):
            return False
        c.again = None
        had, home = [spec.id for spec in again.specs], c.partition
        for spec, id in zip(again.specs, again.given, strict=True):
            spec.id = id
        try:
            home = _place_all(c, again.specs, self._engine)
        except MillraceError:  # an id that was given names a partition: the server's refusal stands
            pass
        if home == c.partition:
            for spec, id in zip(again.specs, had, strict=True):
                spec.id = id
            return False
        c.partition, c.items = home, [spec.SerializeToString() for spec in again.specs]
        return True

    def _divide(self, c: Call, parts: list[Call]) -> None:
        """Have the parts of a call carried out. It ends with the last of them."""
        left = len(parts)

        def ended(part: Call) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                _end(c, None)

        c.parts = parts
        for p in parts:
            p.done, p.deadline = ended, c.deadline
            if c.gone:  # else its caller finds the parts
                p.gone = True
            self._submit(p)

    def _abandon(self, c: Call) -> None:
        if c.parts is None:
            self._of(c.partition).abandon(c)
            return
        for p in c.parts:
            self._of(p.partition).abandon(p)

    def _wait(self, w: Waiting) -> None:
        self._of(place.id_place(w.id, self._engine.partitions)).wait(w)

    def _forget(self, w: Waiting) -> None:
        self._of(place.id_place(w.id, self._engine.partitions)).forget(w)

    def reauth(self, token: str) -> None:
        """Tell the open streams of a new token."""
        for p in self.all():
            p.session.reauth(token)

    async def close(self, within: float) -> None:
        """Refuse further calls, wait for those under way, and end the streams."""
        self._closed = True
        await asyncio.gather(*(p.close(within) for p in self.all()))

    def stop(self) -> None:
        """End all streams at once."""
        self._closed = True
        for p in self.all():
            p.session.stop()


def part_of(batch: Again, index: list[int], partition: int) -> Call:
    """Make the call for those tasks of a batch that are of one partition."""
    out = Call([batch.specs[i].SerializeToString() for i in index], commit=False, atomic=False)
    out.index, out.partition, out.again = index, partition, batch.of(index)
    return out


def _answered(c: Call, index: list[int]) -> Call:
    """Make the call for those tasks of a batch that were answered: it has ended."""
    out = Call([b""] * len(index), commit=False, atomic=False)
    out.index, out.answer, out.at, out.state = index, [c.answer[i] for i in index], c.at, ENDED
    return out


def refused(at: int, e: MillraceError) -> Call:
    """Make the call for a task of a batch that cannot be placed: it has ended."""
    out = Call([b""], commit=False, atomic=False)
    out.index, out.error, out.state = [at], e, ENDED
    return out


def _end(c: Call, e: MillraceError | None) -> None:
    c.state, c.error = ENDED, e
    c.done(c)


def _place_all(c: Call, specs: Sequence[Any], e: Engine) -> int:
    """Write the ids of tasks that go together, and return their partition."""
    if c.atomic:
        return place.together(specs, e.partitions, e.turn_of_free, e.pins)
    return place.task_place(specs[0], e.partitions, e.turn_of_free % e.partitions, e.pins)


def _place_commit(c: Call, o: Unplaced, partitions: int, pins: place.Pins) -> None:
    m = o.commit
    moved = [i for i in o.made if place.is_misplaced(m.ops[i].task_create, partitions, pins)]
    place.create_again((*o.free, *moved), m.conditions, m.ops, partitions, o.task, pins)
    c.partition = place.commit_place(m.conditions, m.ops, partitions, o.task, pins)
    c.items = [m.SerializeToString()]
