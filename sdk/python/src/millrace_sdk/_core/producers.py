"""The streams of a client's creates, commits and waits: one for each partition that is used.

Each call goes to its partition. How many there are is not known before a server has let the first stream in: until then
calls wait on the stream of partition 0, which every namespace has. Where there is no other, that is all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import MillraceError
from . import place
from .producer import ENDED, Call, Producer, Unplaced, Waiting

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
        n, turn = self._engine.partitions, self._engine.turn_of_free
        try:
            if o.commit is not None:
                _place_commit(c, o, n)
            else:
                for i in o.free:
                    o.specs[i].id = ""
                if not c.atomic and len(o.specs) > 1:
                    self._divide(c, o, n, turn)
                    return
                c.partition = place.together(o.specs, n, turn) if c.atomic else _place_one(o.specs[0], n, turn)
                c.items = [spec.SerializeToString() for spec in o.specs]
        except MillraceError as e:
            _end(c, e)
            return
        self._of(c.partition).submit(c)

    def _divide(self, c: Call, o: Unplaced, partitions: int, turn: int) -> None:
        homes, wrong = place.spread(o.specs, partitions, turn)
        left = len(homes) + len(wrong)

        def ended(part: Call) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                _end(c, None)

        parts = [part_of(o.specs, index, home, ended) for home, index in homes.items()]
        parts += [refused(i, e, ended) for i, e in wrong.items()]
        c.parts = parts
        for p in parts:
            p.deadline = c.deadline
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


def part_of(specs: Sequence[Any], index: list[int], partition: int, done: Callable[[Call], None]) -> Call:
    """Make the call for those tasks of a batch that are of one partition."""
    out = Call([specs[i].SerializeToString() for i in index], commit=False, atomic=False)
    out.done = done
    out.index, out.partition = index, partition
    return out


def refused(at: int, e: MillraceError, done: Callable[[Call], None] | None = None) -> Call:
    """Make the call for a task of a batch that cannot be placed: it has ended."""
    out = Call([b""], commit=False, atomic=False)
    if done is not None:
        out.done = done
    out.index, out.error, out.state = [at], e, ENDED
    return out


def _end(c: Call, e: MillraceError | None) -> None:
    c.state, c.error = ENDED, e
    c.done(c)


def _place_one(spec: Any, partitions: int, turn: int) -> int:
    return place.task_place(spec, partitions, turn % partitions)


def _place_commit(c: Call, o: Unplaced, partitions: int) -> None:
    m = o.commit
    for i in o.free:
        m.ops[i].task_create.id = ""
    for i in o.free:
        place.create_in(m.ops[i].task_create, m.conditions, m.ops, partitions, o.task, i)
    c.partition = place.commit_place(m.conditions, m.ops, partitions, o.task)
    c.items = [m.SerializeToString()]
