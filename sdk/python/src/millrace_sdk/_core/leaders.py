"""Where calls and streams go: who leads which partition, and which node is asked while that is not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import MillraceError
from . import faults, wire

ANYWHERE = -1  # stands for the partition of what is about none, where there are several

_UNLED_FOR, _UNLED_MOST = 0.3, 5.0  # seconds that a node without a leader is given, at first and at most
_UNLED_APART = 10.0  # seconds between two such answers after which those before are forgotten
_MEMBERS_MOST = 64  # members of a cluster that a client remembers


class _Unled:
    """What is known of nodes that know of no leader, one after the other."""

    def __init__(self) -> None:
        self._at = ""
        self._since = self._last = 0.0
        self._left = 0  # nodes in a row

    def leave(self, asked: str, nodes: int, now: float) -> bool:
        """Note that a node knows of no leader, and report whether to go to the next: later in each round."""
        if nodes < 2:
            return False
        if now - self._last > _UNLED_APART:
            self._at, self._since, self._left = asked, now, 0
        elif asked != self._at:
            self._at, self._since = asked, now
        self._last = now
        if now - self._since < min(_UNLED_FOR * (1 << min(self._left // nodes, 8)), _UNLED_MOST):
            return False
        self._left += 1
        self._since = now
        return True


class Leaders:
    """Knows where the partitions of a namespace are led. allows says whether a token may go to an address."""

    def __init__(self, addresses: Sequence[str], allows: Callable[[str], bool] = bool) -> None:
        self.given = list(addresses)
        self.nodes: list[str] = []
        self.changes = 0  # counts what moves a partition
        self._allows = allows
        self._leads: dict[int, str] = {}
        self._looks: dict[int, int] = {}  # by partition: the address that is asked while its leader is not known
        self._unled: dict[int, _Unled] = {}

    def all(self) -> list[str]:
        """Return all addresses that are known, those that were given first."""
        return list(dict.fromkeys([*self.given, *self.nodes, *self._leads.values()]))

    def address(self, partition: int) -> str:
        """Return where to go for a partition."""
        led = self._leads.get(partition)
        if led:
            return led
        known = self.all()
        return known[self._looks.get(partition, 0) % len(known)]

    def led_by(self, address: str) -> int:
        """Return a partition that a node leads; 0 if it is not known to lead one."""
        return min((p for p, a in self._leads.items() if a == address), default=0)

    def _lead(self, partition: int, address: str) -> None:
        if self._leads.get(partition) != address:
            self._leads[partition] = address
            self.changes += 1

    def directory(self, asked: str, entries: Sequence[Any], nodes: Sequence[str]) -> None:
        """Take in who leads which partition, and who the members are. An empty address is the node that says so."""
        if nodes:
            self.nodes = [n for n in nodes if self._allows(n)][:_MEMBERS_MOST]
        for e in entries:
            address = e.address or asked
            if self._allows(address):
                self._lead(e.partition, address)

    def reached(self, partition: int, address: str) -> None:
        """Take in that a partition is served there."""
        self._lead(partition, address)
        self._unled.pop(partition, None)

    def turn(self, partition: int, asked: str, e: MillraceError) -> bool:
        """Take in what an error at an address says, and report whether to go to the leader that it names at once."""
        if e.code == "NOT_LEADER" and e.leader:
            if not self._allows(e.leader):
                return False
            if partition != ANYWHERE:
                self._lead(partition, e.leader)
            return e.leader != asked
        if e.code == "NOT_LEADER" or (e.code == "UNAVAILABLE" and e.reason == "no_leader"):
            unled = self._unled.setdefault(partition, _Unled())
            if unled.leave(asked, len(self.all()), wire.monotonic()):
                self._next(partition, asked)
        elif faults.patience(e) > 0 and e.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED") and not e.reason:
            self._next(partition, asked)  # it was not reached, or broke: the others may know more
        return False

    def left(self, address: str, partition: int, leader: str) -> None:
        """Take in that a node is silent, and another one leads one of its partitions: the others are looked for."""
        for p in [p for p, a in self._leads.items() if a == address]:
            del self._leads[p]
            self._look_on(p, address)
        self._look_on(ANYWHERE, address)
        self._lead(partition, leader)

    def _next(self, partition: int, asked: str) -> None:
        if self._leads.get(partition) == asked:
            del self._leads[partition]
            self.changes += 1
        self._look_on(partition, asked)

    def _look_on(self, partition: int, asked: str) -> None:
        known = self.all()
        at = self._looks.get(partition, 0) % len(known)
        if known[at] == asked:
            self._looks[partition] = (at + 1) % len(known)
            self.changes += 1
