"""The engine of one client: its options, its connections and its producer. It lives in the I/O thread."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import errors
from ..errors import MillraceError
from . import faults, ledger, wire
from .faults import StatusError
from .leaders import ANYWHERE, Leaders
from .loop import IOLoop, log
from .place import id_place
from .producer import Call
from .producers import Producers
from .silence import Silence
from .transport import GrpcTransport, Transport
from .ways import MODES, Ways, rest_hosts

WAITS_PER_CONNECTION = 900  # calls that one connection carries at once
_HOPS = 3  # how often in a row a call goes to the leader that an error names, without a wait
_LEAVE_AFTER = 60.0  # seconds for calls that are under way to a node that has left the cluster


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
    plain: bool = False  # plain text may go anywhere
    connect: Callable[[IOLoop, str], Transport] | None = field(default=None, compare=False)
    transport: str = "stream"  # one of MODES
    rest: tuple[str, ...] = ()  # host:port of the places where REST may be

    def secure(self, address: str) -> bool:
        """Report whether TLS is spoken at a place of REST."""
        return bool(self.tls) or not (self.plain or _local(address))


def options(
    url: str | None,
    token: str | None,
    namespace: str | None,
    tls: bytes | bool | None,
    timeout: float | None,
    ledger_to: Any,
    logger: logging.Logger | None,
    transport: str | None = None,
    rest_url: str | None = None,
) -> Options:
    """Apply what was given over the environment."""
    text = url or os.environ.get("MILLRACE_URL") or "127.0.0.1:7081"
    addresses = tuple(a.strip() for a in text.split(","))
    rest = rest_hosts(rest_url or ("" if url else os.environ.get("MILLRACE_REST_URL", "")), addresses)
    for name, places in (("url", addresses), ("rest_url", rest)):
        for a in places:
            host, colon, port = a.rpartition(":")
            if not colon or not host or not port.isdigit():
                raise errors.InvalidArgument(f"address {a!r} must be host:port", field=name)
    word = (token if token is not None else os.environ.get("MILLRACE_TOKEN", "")).strip()
    if any(not "!" <= c <= "~" for c in word):
        raise errors.InvalidArgument("the token must be one word of ASCII", field="token")
    way = transport or os.environ.get("MILLRACE_TRANSPORT") or "auto"
    if way not in MODES:
        raise errors.InvalidArgument(f"transport {way!r} must be one of {', '.join(MODES)}", field="transport")
    plain = tls is not None and not tls
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
        transport=way,
        rest=tuple(rest),
        plain=plain,
    )


def _local(address: str) -> bool:
    """Report whether an address is of this machine."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            raw = socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return raw[0] == 127 if len(raw) == 4 else raw == bytes(15) + b"\x01"
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
        self.leaders = Leaders(o.addresses, self.allows)
        self.silence = Silence(self)
        self.ways = Ways(self)
        self.closed = False
        self.partitions = 0  # of the namespace; 0: not known yet
        self.pins: dict[str, bool] = {}  # for each queue of which it is known, whether it is pinned
        self.turn_of_free = wire.random_bits(16)  # modulo partitions: where tasks go that say no place
        self.producers = Producers(self)
        self.producer = self.producers.first
        self.workers: list[Any] = []  # those that run
        self._transports: dict[str, Transport] = {}
        # Connections for calls that wait, with their address and how many calls are open.
        self._waits: list[tuple[str, Transport, int]] = []
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
        return make(self.io, address) if make else GrpcTransport(self.io.loop, address, self.options.tls)

    def allows(self, address: str) -> bool:
        """Report whether to go to an address because a server says so: a token goes nowhere in clear text."""
        host, _, port = address.rpartition(":")
        return bool(host) and port.isdigit() and (bool(self.options.tls) or self.options.plain or _local(address))

    def transport(self, address: str) -> Transport:
        """Return the connections to an address."""
        found = self._transports.get(address)
        if found is None:
            found = self._transports[address] = self._connect(address)
        return found

    def endpoint(self, partition: int) -> tuple[str, Transport]:
        """Return where the partition is, as far as is known."""
        if self.ways.rest is not None:
            return self.ways.rest
        address = self.leaders.address(partition)
        return address, self.transport(address)

    def learned(self, partitions: int) -> None:
        """Take in how many partitions the namespace has. It never loses any."""
        n = max(partitions, 1)
        if n <= self.partitions:
            return
        self.partitions = n
        self.producers.learned(n)
        for w in self.workers:
            w.widen()

    async def learn(self, timeout: float | None) -> None:
        """Wait until it is known how many partitions there are."""
        told: asyncio.Future[MillraceError | None] = self.io.loop.create_future()
        c = Call([], commit=False, atomic=False)
        c.done = lambda c: told.set_result(c.error)
        c.deadline = None if timeout is None else wire.monotonic() + timeout
        self.producers.learn(c)
        wrong = await told
        if wrong is not None:
            raise wrong

    def directory(self, asked: str, entries: Sequence[Any], nodes: Sequence[str]) -> None:
        """Take in who leads which partition, and who the members are, as the node at an address says."""
        self.leaders.directory(asked, entries, nodes)
        self.silence.watch()
        known = set(self.leaders.all())
        for address in [a for a in self._transports if a not in known]:
            self.io.loop.call_later(_LEAVE_AFTER, self._transports.pop(address).close)

    def reached(self, partition: int, address: str) -> None:
        """Take in that a server has let a session in."""
        if not self.ways.is_rest(address):
            self.leaders.reached(partition, address)
        self.ways.answered(address)
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
        self.producers.reauth(token)
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
        place: Callable[[int], int] | None = None,
    ) -> Any:
        """Make a call, and repeat it while that helps. A call that must not be repeated ends unknown.

        place says of which of several partitions it is: it goes to the leader of that one.
        """
        raw = request.SerializeToString()
        began = wire.monotonic()
        deadline = None if timeout is None else began + timeout
        unsure, attempt, hops, named = False, 0, 0, ""
        owed = repeat and not stream and not method.endswith("/Wait")
        while True:
            if self.closed:
                raise faults.closed()
            partition = self._partition(place)
            over_rest = self.ways.rest
            if over_rest is not None:
                address, transport = over_rest
            else:
                address = named or self.leaders.address(partition)
                transport = self.transport(address)
            left = None if deadline is None else deadline - wire.monotonic()
            if left is not None and left <= 0:
                raise _timed_out(unsure)
            run = transport.server_stream if stream else transport.unary
            try:
                carried = run(method, raw, answer, self.metadata(), left)
                got = await (self.silence.call(address, carried) if owed and over_rest is None else carried)
                self.ways.answered(address)
                return got
            except StatusError as s:
                unsent = self.ways.unsent(s)
                if (repeat or unsent) and await self.ways.turned(address, s, left):
                    unsure = unsure or not unsent
                    continue
                e, untaken = faults.from_status(s), s.untaken
            if deadline is not None and wire.monotonic() >= deadline and e.code == "DEADLINE_EXCEEDED":
                raise _timed_out(unsure or not untaken)
            named = ""
            if self.turn(partition, address, e) and hops < _HOPS:
                hops += 1
                named = e.leader if partition == ANYWHERE else ""
                continue
            hops = 0
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

    def _partition(self, place: Callable[[int], int] | None) -> int:
        """Return the partition of a call; where there is one, all calls are of it."""
        if self.partitions <= 1:
            return 0
        return ANYWHERE if place is None else place(self.partitions)

    async def wait_call(self, id: str) -> Any:
        """Wait for the end of a task by a call. It returns the task."""
        request, answer = wire.message("WaitRequest")(id=id), wire.message("WaitResponse")
        return (await self.wait("TaskService/Wait", request, answer, id)).task

    async def wait_within(self, method: str, request: Any, answer: Any, id: str, timeout: float | None) -> Any:
        """Make a call as wait does, for some seconds at most. A read changes nothing."""
        try:
            return await asyncio.wait_for(self.wait(method, request, answer, id), timeout)
        except asyncio.TimeoutError:
            raise _timed_out(False) from None

    async def wait(self, method: str, request: Any, answer: Any, id: str) -> Any:
        """Make a call that waits for something of the partition of an id, on connections that carry nothing else."""
        data = request.SerializeToString()
        attempt, began = 0, wire.monotonic()
        while True:
            if self.closed:
                raise faults.closed()
            if self.ways.rest is not None:
                return await self.call(method, request, answer, None, place=lambda n: id_place(id, n))
            partition = self._partition(lambda n: id_place(id, n))
            address = self.leaders.address(partition)
            transport = self._wait_begins(address)
            try:
                return await transport.unary(method, data, answer, self.metadata(), None)
            except StatusError as s:
                e = faults.from_status(s)
            finally:
                self._wait_ends(transport)
            self.turn(partition, address, e)
            if e.code == "UNAVAILABLE" and not e.reason:
                self._drop_waits()
            patient = faults.patience(e)
            if patient == 0 or (wire.monotonic() - began > patient and e.code != "UNAVAILABLE"):
                raise e
            await asyncio.sleep(faults.wait_before(e, min(attempt, 24)))
            attempt += 1

    def _wait_begins(self, address: str) -> Transport:
        for i, (at, transport, n) in enumerate(self._waits):
            if at == address and n < WAITS_PER_CONNECTION:
                self._waits[i] = (at, transport, n + 1)
                return transport
        made = self._connect(address)
        self._waits.append((address, made, 1))
        return made

    def _wait_ends(self, transport: Transport) -> None:
        for i, (at, t, n) in enumerate(self._waits):
            if t is transport:
                self._waits[i] = (at, t, n - 1)

    def _drop_waits(self) -> None:
        """Forget idle connections of waits: the next ones go where the leader is by then."""
        for _, transport, _ in [w for w in self._waits if w[2] <= 0]:
            transport.close()
        self._waits = [w for w in self._waits if w[2] > 0]

    # The end.

    async def close(self, within: float) -> None:
        """Refuse further calls, and wait for those under way, for some seconds at most."""
        if self.closed:
            return
        await self.producers.close(within)
        self.closed = True
        self.ways.close()
        self.silence.stop()
        for _, transport, _ in self._waits:
            transport.close()
        for t in self._transports.values():
            t.close()

    def abandon(self) -> None:
        """End all streams without waiting for anything."""
        self.closed = True
        self.ways.close()
        self.producers.stop()
        self.silence.stop()
        for w in list(self.workers):
            w.abandon()
        for _, transport, _ in self._waits:
            transport.close()
        for t in self._transports.values():
            t.close()


def _timed_out(unsure: bool) -> MillraceError:
    e = errors.DeadlineExceeded("the timeout is over", outcome="unknown" if unsure else "refused")
    e.ended_here = True
    return e
