"""The choice between gRPC and REST: REST is taken where it alone comes through, and gRPC is looked for again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import wire
from .faults import StatusError

if TYPE_CHECKING:
    from .engine import Engine
    from .rest import RestTransport
    from .transport import Transport

MODES = ("auto", "stream", "rest")

_GRACE = 5.0  # seconds that gRPC may fail that worked before: a restart or a short cut must not change the way
_ASK_AGAIN = 0.5  # seconds between two looks for REST
_LOOK_LEAST, _LOOK_MOST = 1.0, 60.0  # seconds between two looks for gRPC, which grow from one to the other
_LOOK_WITHIN = 15.0  # seconds that a stream may take to be let in when gRPC is tried again
_NAME = "REST at "  # how the address of REST begins: that of gRPC is host:port
_GRPC_PORT, _REST_PORT = "7081", "7080"  # that a server listens on by default


def rest_hosts(named: str, addresses: Sequence[str]) -> list[str]:
    """Return where REST may be: the places that are named, or each address itself and the port next to gRPC's own."""
    if named:
        return [a.strip() for a in named.split(",")]
    out: list[str] = []
    for a in addresses:
        out.append(a)
        host, _, port = a.rpartition(":")
        if port == _GRPC_PORT:
            out.append(f"{host}:{_REST_PORT}")
    return out


class Ways:
    """The way that the calls of one client take. All of it is the I/O thread's."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        o = engine.options
        self._mode = o.transport
        self._over_rest: RestTransport | None = None  # in use; None: gRPC is
        self._rest: RestTransport | None = None
        self._proved = False  # a server answered over gRPC
        self._failing = 0.0  # since when none does; 0: one does
        self._missed = 0.0  # when REST was looked for last, and was not there
        self._turning = asyncio.Lock()
        self._looking: asyncio.Task[Any] | None = None
        if o.transport == "rest":
            self._over_rest = self._made()

    def _made(self) -> RestTransport:
        if self._rest is None:
            # Here, as most programs never use it.
            from .rest import RestTransport
            from .web import Dialer, Web

            o = self._engine.options
            dialer = Dialer(o.secure, o.tls if isinstance(o.tls, bytes) else None)
            self._rest = RestTransport(self._engine.io, Web(self._engine.io, o.rest, dialer))
        return self._rest

    @property
    def rest(self) -> tuple[str, Transport] | None:
        """The address of REST and its connections while it is in use; None while gRPC is."""
        r = self._over_rest
        return None if r is None else (_NAME + (r.web.host or self._engine.options.rest[0]), r)

    @property
    def host(self) -> str:
        """The host where REST answers, as a URL, while it is in use; empty while gRPC is."""
        r = self._over_rest
        if r is None:
            return ""
        host = r.web.host or self._engine.options.rest[0]
        return ("https://" if self._engine.options.secure(host) else "http://") + host

    @staticmethod
    def is_rest(address: str) -> bool:
        """Report whether an address is one of REST."""
        return address.startswith(_NAME)

    def answered(self, address: str) -> None:
        """Take in that a server answered at an address."""
        if not self.is_rest(address):
            self._proved, self._failing = True, 0.0

    async def turned(self, address: str, s: StatusError, within: float | None = None) -> bool:
        """Take in how a call that may be made again has ended, or a stream that was not let in.

        It returns true if the same is to be tried over REST at once. It takes no longer than within, in seconds.
        """
        if self._mode != "auto" or self.is_rest(address) or s.status in (1, 4):  # this side has ended it
            return False
        if self._over_rest is not None:
            return not s.details
        if s.details:  # the server's own
            self.answered(address)
            return False
        now = wire.monotonic()
        self._failing = self._failing or now
        if self._proved and not s.permanent and now - self._failing < _GRACE:
            return False
        try:
            return await asyncio.wait_for(self._turn_alone(), within)
        except asyncio.TimeoutError:
            return False

    async def _turn_alone(self) -> bool:
        async with self._turning:  # what one call finds out holds for all that wait here
            return await self._turn()

    async def _turn(self) -> bool:
        if self._over_rest is not None or self._engine.closed:
            return self._over_rest is not None
        if self._missed and wire.monotonic() - self._missed < _ASK_AGAIN:
            return False
        rest = self._made()
        try:
            await rest.web.probe()
        except StatusError:
            self._missed = wire.monotonic()
            return False
        self._over_rest = rest
        self._engine.log.warning(
            "gRPC does not come through at %s; the client goes over to REST at %s",
            self._engine.options.addresses[0], rest.web.host,
        )  # fmt: skip
        self._looking = self._engine.io.spawn(self._look())
        return True

    @staticmethod
    def unsent(s: StatusError) -> bool:
        """Report whether a call over gRPC surely did not reach a server."""
        return not s.details and (s.permanent or s.untaken)

    async def _look(self) -> None:
        """Look for gRPC at all addresses in turn, and go back to it."""
        wait = _LOOK_LEAST
        while True:
            await asyncio.sleep(wait / 2 + wire.jitter(wait / 2))
            wait = min(2 * wait, _LOOK_MOST)
            for address in self._engine.leaders.all():
                if await self._comes_through(address):
                    self._go_back(address)
                    return

    async def _comes_through(self, address: str) -> bool:
        """Open a stream as a session would, and close it: a welcome, or the server's own refusal, tells it is there."""
        engine = self._engine
        told: asyncio.Future[bool] = engine.io.loop.create_future()

        def frames(_: list[Any]) -> None:
            if not told.done():
                told.set_result(True)

        def ended(e: StatusError | None) -> None:
            if not told.done():
                told.set_result(e is not None and bool(e.details))

        transport = engine._connect(address)
        stream = transport.open("QueueStream/Open", engine.metadata(), frames, lambda: None, ended)
        try:
            hello = wire.ClientFrame()
            h = hello.hello
            h.version, h.namespace, h.session = 1, engine.namespace, wire.random16()
            stream.send(hello.SerializeToString())
            return await asyncio.wait_for(told, _LOOK_WITHIN)
        except asyncio.TimeoutError:
            return False
        finally:
            stream.cancel()
            transport.close()

    def _go_back(self, address: str) -> None:
        rest, self._over_rest = self._over_rest, None
        self._proved, self._failing = True, 0.0
        self._engine.log.info("gRPC comes through at %s; the client goes back to its stream", address)
        if rest is not None:
            rest.retire()

    def close(self) -> None:
        """End the look for gRPC, and what REST has open."""
        if self._looking is not None:
            self._looking.cancel()
        if self._rest is not None:
            self._rest.close()
