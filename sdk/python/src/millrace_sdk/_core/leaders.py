"""Which address a stream or a call goes to: one that was given, that of the leader, or of another member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import MillraceError
from . import faults, wire

_UNLED_FOR, _UNLED_MOST = 0.3, 5.0  # seconds that a node without a leader is given, at first and at most


class Leaders:
    """Knows where the partitions of a namespace are led."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.given = list(addresses)
        self.nodes: list[str] = []
        self._at = 0  # the address that is asked while no leader is known
        self._leads: dict[int, str] = {}
        self._unled_at, self._unled_since, self._unled_last, self._left = "", 0.0, 0.0, 0

    def all(self) -> list[str]:
        """Return all addresses that are known, those that were given first."""
        return self.given + [n for n in self.nodes if n not in self.given]

    def address(self, partition: int) -> str:
        """Return where to go for a partition."""
        led = self._leads.get(partition)
        if led:
            return led
        known = self.all()
        return known[self._at % len(known)]

    def directory(self, partition: int, asked: str, entries: Sequence[Any], nodes: Sequence[str]) -> bool:
        """Take in who leads which partition. An empty address is the node that says so."""
        if nodes:
            self.nodes = [n for n in nodes if n]
        changed = False
        for e in entries:
            address = e.address or asked
            if address and self._leads.get(e.partition) != address:
                self._leads[e.partition] = address
                changed = True
        return changed

    def reached(self, partition: int, address: str) -> None:
        """Take in that a partition is served there."""
        self._leads[partition] = address
        self._left = 0

    def turn(self, partition: int, asked: str, e: MillraceError) -> bool:
        """Take in what an error at an address says, and report whether to go to another one at once."""
        if e.leader and e.leader != asked:
            self._leads[partition] = e.leader
            return True
        if e.code == "NOT_LEADER" or (e.code == "UNAVAILABLE" and e.reason == "no_leader"):
            return self._unled(partition, asked)
        if faults.patience(e) > 0 and e.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED") and not e.reason:
            self._next(partition, asked)  # it was not reached, or broke: the others may know more
        return False

    def _next(self, partition: int, asked: str) -> None:
        if self._leads.get(partition) == asked:
            del self._leads[partition]
        known = self.all()
        if len(known) > 1 and known[self._at % len(known)] == asked:
            self._at = (self._at + 1) % len(known)

    def _unled(self, partition: int, asked: str) -> bool:
        """A node that knows of no leader is left for the next one after a while, which is longer each round."""
        known, now = len(self.all()), wire.monotonic()
        if known < 2:
            return False
        if now - self._unled_last > 10.0:
            self._unled_at, self._unled_since, self._left = asked, now, 0
        elif asked != self._unled_at:
            self._unled_at, self._unled_since = asked, now
        self._unled_last = now
        if now - self._unled_since < min(_UNLED_FOR * (1 << min(self._left // known, 8)), _UNLED_MOST):
            return False
        self._left += 1
        self._unled_since = now
        self._next(partition, asked)
        return False
