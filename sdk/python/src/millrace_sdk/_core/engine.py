"""The engine of one client: its options, its connections and its producer. It lives in the I/O thread."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import errors
from ..errors import MillraceError
from . import faults, ledger, wire
from .faults import StatusError
from .leaders import Leaders
from .loop import IOLoop, log
from .producer import Producer
from .transport import GrpcTransport, Transport

WAITS_PER_CONNECTION = 900  # calls that one connection carries at once


@dataclass(frozen=True)
class Options:
    """What a client was made with."""

    addresses: tuple[str, ...]
    token: str
    namespace: str
    tls: bytes | bool | None = None
    timeout: float | None = 30.0
    ledger: ledger.Ledger | None = None
    logger: logging.Logger = log
    connect: Callable[[IOLoop, str], Transport] | None = field(default=None, compare=False)


def options(
    url: str | None,
    token: str | None,
    namespace: str | None,
    tls: bytes | bool | None,
    timeout: float | None,
    ledger_to: Any,
    logger: logging.Logger | None,
) -> Options:
    """Apply what was given over the environment."""
    text = url or os.environ.get("MILLRACE_URL") or "127.0.0.1:7081"
    addresses = tuple(a.strip() for a in text.split(","))
    for a in addresses:
        host, colon, port = a.rpartition(":")
        if not colon or not host or not port.isdigit():
            raise errors.InvalidArgument(f"address {a!r} must be host:port", field="url")
    word = (token if token is not None else os.environ.get("MILLRACE_TOKEN", "")).strip()
    if any(not "!" <= c <= "~" for c in word):
        raise errors.InvalidArgument("the token must be one word of ASCII", field="token")
    way = os.environ.get("MILLRACE_TRANSPORT", "auto")
    if way == "rest":
        raise errors.InvalidArgument("REST is not supported by this version", field="transport", reason="not_supported")
    if tls is None:
        tls = not all(_local(a) for a in addresses)
    return Options(
        addresses,
        word,
        namespace or os.environ.get("MILLRACE_NAMESPACE") or "default",
        tls,
        timeout,
        ledger.make(ledger_to),
        logger or log,
    )


def _local(address: str) -> bool:
    """Report whether an address is of this machine."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Engine:
    """Carries out the calls of one client."""

    def __init__(self, io: IOLoop, o: Options) -> None:
        self.io = io
        self.options = o
        self.token = o.token
        self.namespace = o.namespace
        self.ledger = o.ledger
        self.log = o.logger
        self.leaders = Leaders(o.addresses)
        self.closed = False
        self.producer = Producer(self)
        self.workers: list[Any] = []  # those that run
        self._transports: dict[str, Transport] = {}
        self._waits: list[tuple[Transport, int]] = []  # connections for calls that wait, with how many are open
        self._outage = 0.0

    # What sessions ask for.

    def metadata(self) -> list[tuple[str, str]]:
        """Return the metadata of a call."""
        out = [("millrace-namespace", self.namespace)]
        if self.token:
            out.append(("authorization", "Bearer " + self.token))
        return out

    def _connect(self, address: str) -> Transport:
        make = self.options.connect
        return make(self.io, address) if make else GrpcTransport(self.io, address, self.options.tls)

    def endpoint(self, partition: int) -> tuple[str, Transport]:
        """Return where the partition is, as far as is known."""
        address = self.leaders.address(partition)
        found = self._transports.get(address)
        if found is None:
            found = self._transports[address] = self._connect(address)
        return address, found

    def learned(self, partitions: int) -> bool:
        """Take in how many partitions the namespace has, and report whether this version can serve it."""
        return partitions <= 1

    def directory(self, partition: int, asked: str, entries: Sequence[Any], nodes: Sequence[str]) -> None:
        """Take in who leads which partition."""
        self.leaders.directory(partition, asked, entries, nodes)

    def reached(self, address: str) -> None:
        """Take in that a server has let a session in."""
        if self._outage:
            self.log.warning("connected to %s again", address)
            self._outage = 0.0

    def outage(self, address: str, e: MillraceError) -> None:
        """Take in that no server is reached; the log says so once a minute."""
        now = wire.monotonic()
        if not self._outage or now - self._outage > 60.0:
            self._outage = now
            self.log.warning("no stream to %s: %s", address, e)

    def turn(self, partition: int, asked: str, e: MillraceError) -> bool:
        """Take in what an error says of the leader, and report whether to go there at once."""
        return self.leaders.turn(partition, asked, e)

    def set_token(self, token: str) -> None:
        """Replace the token, on open streams too."""
        self.token = token
        self.producer.session.reauth(token)
        for w in self.workers:
            w.reauth(token)

    # Unary calls.

    async def call(
        self,
        method: str,
        request: Any,
        answer: Any,
        timeout: float | None,
        *,
        repeat: bool = True,
        stream: bool = False,
    ) -> Any:
        """Make a call, and repeat it while that helps. A call that must not be repeated ends unknown."""
        raw = request.SerializeToString()
        began = wire.monotonic()
        deadline = None if timeout is None else began + timeout
        unsure, attempt, hops = False, 0, 0
        while True:
            if self.closed:
                raise faults.closed()
            address, transport = self.endpoint(0)
            left = None if deadline is None else deadline - wire.monotonic()
            if left is not None and left <= 0:
                raise _timed_out(unsure)
            run = transport.server_stream if stream else transport.unary
            try:
                return await run(method, raw, answer, self.metadata(), left)
            except StatusError as s:
                e = faults.from_status(s)
            if deadline is not None and wire.monotonic() >= deadline and e.code == "DEADLINE_EXCEEDED":
                raise _timed_out(True)
            if self.turn(0, address, e) and hops < 3:
                hops += 1
                continue
            e = faults.sure(e, unsure, False)
            patient = faults.patience(e)
            if not repeat and e.outcome == "unknown":
                raise e
            wait = faults.wait_before(e, attempt)
            if patient == 0 or wire.monotonic() - began > patient:
                raise e
            if deadline is not None and wire.monotonic() + wait >= deadline:
                raise e
            unsure = unsure or e.outcome == "unknown"
            attempt += 1
            await asyncio.sleep(wait)

    async def wait_call(self, id: str) -> Any:
        """Wait for the end of a task by a call, on connections that carry nothing else. It returns the task."""
        request = wire.message("WaitRequest")(id=id).SerializeToString()
        answer = wire.message("WaitResponse")
        attempt, began = 0, wire.monotonic()
        while True:
            if self.closed:
                raise faults.closed()
            at = self._wait_connection()
            address = self.leaders.address(0)
            try:
                return (await self._waits[at][0].unary("TaskService/Wait", request, answer, self.metadata(), None)).task
            except StatusError as s:
                e = faults.from_status(s)
            finally:
                transport, n = self._waits[at]
                self._waits[at] = (transport, n - 1)
            self.turn(0, address, e)
            if e.code == "UNAVAILABLE" and not e.reason:
                self._drop_waits()
            patient = faults.patience(e)
            if patient == 0 or (wire.monotonic() - began > patient and e.code != "UNAVAILABLE"):
                raise e
            await asyncio.sleep(faults.wait_before(e, min(attempt, 24)))
            attempt += 1

    def _wait_connection(self) -> int:
        for i, (transport, n) in enumerate(self._waits):
            if n < WAITS_PER_CONNECTION:
                self._waits[i] = (transport, n + 1)
                return i
        self._waits.append((self._connect(self.leaders.address(0)), 1))
        return len(self._waits) - 1

    def _drop_waits(self) -> None:
        """Forget idle connections of waits: the next ones go where the leader is by then."""
        while self._waits and self._waits[-1][1] <= 0:
            self._waits.pop()[0].close()

    # The end.

    async def close(self, within: float) -> None:
        """Refuse further calls, and wait for those under way, for some seconds at most."""
        if self.closed:
            return
        await self.producer.close(within)
        self.closed = True
        for transport, _ in self._waits:
            transport.close()
        for t in self._transports.values():
            t.close()

    def abandon(self) -> None:
        """End all streams without waiting for anything."""
        self.closed = True
        self.producer.session.stop()
        for w in list(self.workers):
            w.abandon()
        for transport, _ in self._waits:
            transport.close()
        for t in self._transports.values():
            t.close()


def _timed_out(unsure: bool) -> MillraceError:
    e = errors.DeadlineExceeded("the timeout is over", outcome="unknown" if unsure else "refused")
    e.ended_here = True
    return e
