"""One stream under one session id: opened again when it breaks, with all that has no answer sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import MillraceError
from . import faults, wire
from .faults import StatusError
from .silence import left_error

if TYPE_CHECKING:
    from .engine import Engine
    from .transport import Stream

WELCOME_WITHIN = 10.0  # seconds
_HOPS = 3  # how often in a row a stream goes to the leader that an error names, without a wait


class Window(NamedTuple):
    """What the server has admitted and not acknowledged."""

    items: int = 0
    bytes: int = 0
    commits: int = 0


DEFAULT_WINDOW = Window(4096, 16 << 20, 64)
_ANY = Window(1 << 62, 1 << 62, 1 << 62)


class Outgoing(Protocol):
    """A frame that awaits its ack."""

    def size(self) -> Window:
        """Return what the frame takes of the window."""
        ...

    def acked(self, ack: Any) -> None:
        """Take the answer, which is the end of the frame."""

    def lost(self) -> None:
        """Put the content back to the front of its queue; called in falling order of seq."""

    def expire(self, before: float) -> float | None:
        """End what left first before then, and return when the oldest of the rest left."""


class Role(Protocol):
    """What a session does with its stream."""

    def hello(self, h: Any) -> None:
        """Add to the first frame of a stream."""

    def welcomed(self, w: Any) -> None:
        """Take in that the server let the session in."""

    def parted(self) -> None:
        """Take in that the stream has ended."""

    def next(self, seq: int) -> tuple[bytes, Outgoing | None] | None:
        """Make the next frame; None when nothing waits, or the window is full."""

    def receive(self, frame: Any) -> None:
        """Take a frame that is not the session's own."""

    def refuse(self, e: MillraceError) -> None:
        """End all that waits: what had left as unknown, the rest as refused."""

    def expire(self, before: float) -> float | None:
        """End what waits to be sent again and left first before then."""

    def idle(self) -> bool:
        """Report whether nothing waits to be written."""
        ...


class Session:
    """Keeps a stream open. All of it is the I/O thread's."""

    def __init__(self, engine: Engine, role: Role, partition: int = 0) -> None:
        self.engine = engine
        self.role = role
        self.partition = partition
        self.id = wire.random16()
        self.seq = 0
        self.frames: dict[int, Outgoing] = {}
        self.used = Window()
        self.limit = DEFAULT_WINDOW
        self.features: frozenset[str] = frozenset()
        self.waits_limit = 4096
        self.up = False
        self.closing = False
        self.stopped: BaseException | None = None
        self.last_error: MillraceError | None = None
        self.at = ""  # the address of the stream that is open, or opens
        self.heard = 0.0  # when a frame came last
        self.owed_since = 0.0  # when the first of the frames without an ack left
        self._stream: Stream | None = None
        self._goaway = False
        self._half_closed = False
        self._pause_until = 0.0
        self._auth: str | None = None
        self._writing = False
        self._wake = asyncio.Event()  # for an idle run
        self._end: asyncio.Future[StatusError | None] | None = None
        self._welcome: asyncio.Future[Any] | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None
        self.done = asyncio.Event()

    # What the owner asks for.

    def start(self, once: bool, on_fail: Callable[[MillraceError], None] | None = None) -> None:
        """Begin to serve. once ends the session at an error that opening again cannot mend, which on_fail is told."""

        self.engine.silence.add(self)

        async def serve() -> None:
            try:
                e = await self._run(once)
                if e is not None and on_fail is not None:
                    on_fail(e)
            finally:
                self.engine.silence.discard(self)
                self.done.set()
                if self._sweep is not None:
                    self._sweep.cancel()

        self._task = self.engine.io.spawn(serve())

    def poke(self) -> None:
        """Have what waits written, once all that comes in this turn of the loop is there."""
        self._wake.set()
        if not self._writing and self.up:
            self._writing = True
            self.engine.io.loop.call_soon(self._write)

    def owes(self) -> bool:
        """Report whether the node owes an answer: an ack, or the welcome."""
        return bool(self.frames) or not self.up

    def leave(self) -> None:
        """End the stream as if it had broken."""
        if self._end is not None and not self._end.done():
            self._end.set_result(left_error())
            if self._stream is not None:
                self._stream.cancel()

    def reauth(self, token: str) -> None:
        """Tell the open stream of a new token."""
        self._auth = token
        self.poke()

    def stop(self, cause: BaseException | None = None) -> None:
        """End the session at once."""
        self.stopped = cause or faults.closed()
        self._wake.set()
        if self._stream is not None:
            self._stream.cancel()
        if self._task is not None and not self.up:
            self._task.cancel()
        if self._task is None:
            self.role.refuse(faults.closed())
            self.done.set()

    async def drain(self, within: float) -> None:
        """Half-close when nothing is left, and wait for the end of the stream, for some seconds at most."""
        self.closing = True
        self.poke()
        if self._task is None:
            self.stop()
            return
        if not self.up and self.role.idle():
            self.stop()
        try:
            await asyncio.wait_for(self.done.wait(), within)
        except asyncio.TimeoutError:
            self.stop()
            try:
                await asyncio.wait_for(self.done.wait(), 1.0)
            except asyncio.TimeoutError:
                pass

    def left(self) -> Window:
        """Return what the window has room for. An empty one takes any frame."""
        u, m = self.used, self.limit
        if not any(u):
            return _ANY
        return Window(m.items - u.items, m.bytes - u.bytes, m.commits - u.commits)

    def fits(self, n: Window) -> bool:
        """Report whether the window has room for a frame."""
        r = self.left()
        return n.items <= r.items and n.bytes <= r.bytes and n.commits <= r.commits

    def paused(self) -> bool:
        """Report whether the server asked to send no creates and commits now."""
        return self._pause_until > 0 and wire.monotonic() < self._pause_until

    # The life of streams.

    async def _run(self, once: bool) -> MillraceError | None:
        """Serve until the session is stopped or drained; the error is one that opening again cannot mend."""
        attempt = 0
        while True:
            address, welcomed, error = "", False, None
            try:
                address, welcomed, error = await self._connect()
            except asyncio.CancelledError:
                if self.stopped is None:
                    raise
            except Exception as wrong:  # a fault of this library must not end the session
                self.engine.log.exception("a stream broke by a fault of this library")
                error = StatusError(14, f"a fault of this library: {wrong!r}")
            if welcomed:
                attempt = 0
            elif error is not None and await self._turned(address, error):
                continue
            e = faults.from_status(error) if error is not None else None
            self.last_error = e
            self._put_back()
            permanent = error is not None and error.permanent and not (e and e.code == "NOT_LEADER")
            if self.stopped is not None:
                self.role.refuse(faults.closed())
                return None
            if self.closing and self.role.idle():
                return None
            if e is not None and self.engine.turn(self.partition, address, e) and attempt < _HOPS:
                attempt += 1
                continue
            if permanent and e is not None:
                self.role.refuse(e)
                if once:
                    return e
                attempt = 0
                if not await self._await_work():
                    return None
                continue
            if e is not None:
                if not welcomed:
                    self.engine.outage(address, e)
                await self._sleep(faults.wait_before(e, attempt))
            elif not welcomed or not self._goaway:
                await self._sleep(wire.jitter(0.05))
            attempt += 1

    async def _turned(self, address: str, error: StatusError) -> bool:
        """Report whether a stream on which no server answered is to be opened another way."""
        answered = self._welcome is not None and self._welcome.done()
        return self.stopped is None and not answered and await self.engine.ways.turned(address, error)

    async def _sleep(self, seconds: float) -> None:
        if self.stopped is None:
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                if self.stopped is None:
                    raise

    async def _await_work(self) -> bool:
        while self.role.idle() and not self.closing:
            if self.stopped is not None:
                return False
            self._wake.clear()
            try:
                await self._wake.wait()
            except asyncio.CancelledError:
                if self.stopped is None:
                    raise
                return False
        return self.stopped is None

    async def _connect(self) -> tuple[str, bool, StatusError | None]:
        """Open a stream and serve it to its end: its address, whether it was let in, and its status."""
        if self.stopped is not None:
            return "", False, None
        engine = self.engine
        address, transport = engine.endpoint(self.partition)
        # Over REST it is at no node that could be left.
        self.at, self.owed_since = "" if engine.ways.is_rest(address) else address, wire.monotonic()
        loop = engine.io.loop
        end: asyncio.Future[StatusError | None] = loop.create_future()
        self._end, self._welcome = end, loop.create_future()
        welcome = self._welcome
        token = engine.token
        self._goaway = self._half_closed = False

        def ended(e: StatusError | None) -> None:
            if not end.done():
                end.set_result(e)

        stream = transport.open(
            "QueueStream/Open", engine.metadata(), lambda f: self._frames_came(end, f), self.poke, ended
        )
        self._stream = stream
        try:
            hello = wire.ClientFrame()
            h = hello.hello
            h.version, h.namespace, h.session, h.partition = 1, engine.namespace, self.id, self.partition
            self.role.hello(h)
            stream.send(hello.SerializeToString())
            await asyncio.wait({end, welcome}, timeout=WELCOME_WITHIN, return_when=asyncio.FIRST_COMPLETED)
            if not welcome.done():
                if end.done():
                    return address, False, end.result() or StatusError(14, "the server ended the stream")
                return (
                    address,
                    False,
                    StatusError(14, f"{address} did not answer within {WELCOME_WITHIN:.0f} s"),
                )
            self._let_in(welcome.result(), address)
            if engine.token != token:
                self._auth = engine.token
            self.up = True
            self.poke()
            return address, True, await end
        finally:
            self.up = False
            self.at = ""
            self._stream = None
            if not end.done():
                stream.cancel()

    def _let_in(self, w: Any, address: str) -> None:
        self.engine.directory(address, w.directory, w.nodes)
        self.engine.reached(self.partition, address)
        self.engine.learned(w.partitions)
        n = w.limits
        d = DEFAULT_WINDOW
        self.limit = Window(n.unacked_items or d.items, n.unacked_bytes or d.bytes, n.unacked_commits or d.commits)
        self.waits_limit = n.waits or 4096
        self.features = frozenset(w.features)
        self.role.welcomed(w)

    def _frames_came(self, end: asyncio.Future[StatusError | None], frames: list[Any]) -> None:
        if end is not self._end:
            return  # of a stream that was left
        self.heard = wire.monotonic()
        try:
            self._take_frames(end, frames)
        except Exception:  # what was told is lost: another stream tells it again
            self.engine.log.exception("a frame was not taken")
            if not end.done():
                end.set_result(StatusError(14, "a frame was not taken"))

    def _take_frames(self, end: asyncio.Future[StatusError | None], frames: list[Any]) -> None:
        for f in frames:
            kind = f.WhichOneof("frame")
            if kind == "ack":
                self._acked(f.ack)
            elif kind == "welcome":
                if self._welcome is not None and not self._welcome.done():
                    self._welcome.set_result(f.welcome)
            elif kind == "throttle":
                wait = wire.span(f.throttle.retry_after)
                self._pause_until = wire.monotonic() + wait
                self.engine.io.loop.call_later(wait + 0.001, self.poke)
            elif kind == "goaway":
                self._goaway = True
                self.poke()
                self.engine.io.loop.call_later(wire.GOAWAY_WITHIN, self._leave, end)
            elif kind == "directory":
                self.engine.directory(self.at, f.directory.partitions, f.directory.nodes)
            elif kind is not None:
                self.role.receive(f)

    def _leave(self, end: asyncio.Future[StatusError | None]) -> None:
        if end is self._end and not end.done():
            end.set_result(None)

    def _acked(self, ack: Any) -> None:
        out = self.frames.pop(ack.seq, None)
        if out is None:
            return
        n, u = out.size(), self.used
        self.used = Window(u.items - n.items, u.bytes - n.bytes, u.commits - n.commits)
        out.acked(ack)
        if not self.role.idle() or self.closing:
            self.poke()

    def _put_back(self) -> None:
        """End the bookkeeping of a stream: what was not acknowledged goes back to the role."""
        self._pause_until = 0.0
        for seq in sorted(self.frames, reverse=True):
            self.frames.pop(seq).lost()
        self.used = Window()
        self.role.expire(wire.monotonic() - faults.RESEND_FOR)
        self.role.parted()

    def _write(self) -> None:
        """Write what waits."""
        self._writing = False
        stream = self._stream
        if stream is None or not self.up or self._half_closed:
            return
        try:
            self._write_to(stream)
        except Exception:
            self.engine.log.exception("a frame was not made")
            stream.cancel()

    def _write_to(self, stream: Stream) -> None:
        """Write as far as the window and the stream have room."""
        if self._goaway:
            self._half_closed = True
            stream.close_send()
            return
        if self._auth is not None:
            auth = wire.ClientFrame()
            auth.auth.token, self._auth = self._auth, None
            stream.send(auth.SerializeToString())
        while stream.room():
            made = self.role.next(self.seq + 1)
            if made is None:
                if self.closing and not self.frames and self.role.idle():
                    self._half_closed = True
                    stream.close_send()
                return
            frame, out = made
            if out is not None:
                if not self.frames:
                    self.owed_since = wire.monotonic()
                self.seq += 1
                self.frames[self.seq] = out
                n, u = out.size(), self.used
                self.used = Window(u.items + n.items, u.bytes + n.bytes, u.commits + n.commits)
                if self._sweep is None:
                    self._sweep = self.engine.io.loop.call_later(faults.RESEND_FOR, self._give_up)
            stream.send(frame)

    def _give_up(self) -> None:
        """End what left first so long ago that servers forget it."""
        before = wire.monotonic() - faults.GIVE_UP
        oldest: float | None = self.role.expire(before)
        for out in list(self.frames.values()):
            t = out.expire(before)
            if t is not None and (oldest is None or t < oldest):
                oldest = t
        self._sweep = None
        if self.frames or not self.role.idle():
            wait = 1.0 if oldest is None else max(oldest + faults.GIVE_UP - wire.monotonic(), 1.0)
            self._sweep = self.engine.io.loop.call_later(wait, self._give_up)
