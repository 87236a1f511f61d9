"""One HTTP/2 connection to a server: how it is made, looked after and ended. It knows nothing of gRPC.

All of it is the I/O thread's. Headers are read by hpack; frames are read and written here.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from hpack import Decoder, HPACKError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# Types of frames.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

# Flags of frames.
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20

# Codes of errors.
NO_ERROR = 0x0
PROTOCOL_ERROR = 0x1
FLOW_CONTROL_ERROR = 0x3
FRAME_SIZE_ERROR = 0x6
REFUSED_STREAM = 0x7
CANCEL = 0x8
COMPRESSION_ERROR = 0x9
ENHANCE_YOUR_CALM = 0xB

CONNECT_WITHIN = 3.0  # seconds for a connection, TLS included
PING_AFTER = 10.0  # seconds without anything from the server, while streams are open
PING_WITHIN = 20.0  # seconds after a ping for anything to come
CLOSE_WITHIN = 1.0  # seconds for what is written to leave, at the end
STREAM_WINDOW = 4 << 20  # bytes that may be under way to this side for one stream
CONNECTION_WINDOW = 16 << 20  # the same for all
HEADER_BYTES = 64 << 10  # most bytes of the headers of an answer, packed or not
_FRAME = 16 << 10  # bytes: the longest frame that is taken, which is the least that HTTP/2 allows
_WINDOW = (1 << 16) - 1  # bytes: a window at first
_MOST = (1 << 31) - 1  # of a window, or the number of a stream
_STREAMS = 1000  # how many may be open before the server says so
_UNREAD = 1 << 20  # bytes of answers that a server leaves unread
_BUFFER = 256 << 10  # bytes that wait for the socket from which on no more is written
_NEXT_AFTER = 0.25  # seconds for a connection to one of several addresses, before the next one is tried too

_HEAD = struct.Struct(">HBBBI")
_SETTING = struct.Struct(">HI")
_U32 = struct.Struct(">I")


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """Encode a frame."""
    n = len(content)
    return _HEAD.pack(n >> 8, n & 0xFF, kind, flags, stream) + content


def _greeting() -> bytes:
    """Encode what this side begins with: no pushes, no table of headers, and large windows."""
    settings = ((0x1, 0), (0x2, 0), (0x4, STREAM_WINDOW), (0x6, HEADER_BYTES))
    return (
        PREFACE
        + frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(k, v) for k, v in settings))
        + frame(WINDOW_UPDATE, 0, 0, _U32.pack(CONNECTION_WINDOW - _WINDOW))
    )


_GREETING = _greeting()


@functools.lru_cache(maxsize=8)
def tls_context(roots: bytes | None) -> ssl.SSLContext:
    """Make what TLS is spoken with: authorities as PEM, or those of the system."""
    context = ssl.create_default_context(cadata=roots.decode() if roots else None)
    context.set_alpn_protocols(["h2"])
    return context


class _Socket(socket.socket):
    """A socket whose end the server hears of though a forked process may have it too."""

    pid = 0

    def close(self) -> None:
        if self.pid == os.getpid():
            try:
                self.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        super().close()


class Broken(Exception):
    """What the server did against the rules of HTTP/2, which ends the connection."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Stream:
    """One request and its answer. Subclasses take what comes."""

    number = 0  # which one of its connection; 0: it has not begun
    over = False  # nothing more comes
    sent_end = False  # nothing more is sent

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.window = 0  # bytes that may be sent
        self.waiting: deque[memoryview] = deque()  # what the windows, or the socket, have no room for
        self.last = False  # what waits is the end of this side
        self.full = False  # room has been looked for, and there was none
        self.received = 0  # bytes for which the server got no new window yet

    def got_headers(self, fields: list[tuple[bytes, bytes]], last: bool) -> None:
        """Take headers, or trailers, which are the last."""

    def got_data(self, chunk: bytes) -> None:
        """Take a part of the body."""

    def got_all(self) -> None:
        """Take in that one read of the connection has brought no more for now."""

    def got_end(self) -> None:
        """Take the end of the answer."""

    def broke(self, code: int, why: str, untaken: bool) -> None:
        """Take in that the answer has no end: a code of HTTP/2, and whether the server surely did nothing."""

    def writable(self) -> None:
        """Take in that there is room again."""

    def room(self) -> bool:
        """Report whether what is written leaves at once; writable tells when it does again."""
        c = self.connection
        if not self.waiting and c is not None and c.flows:
            return True
        self.full = True
        return False

    def write(self, content: bytes, last: bool = False) -> None:
        """Send a part of the body; last ends this side."""
        c = self.connection
        if c is not None and not self.over and not self.sent_end and not self.last:
            c.write(self, content, last)

    def reset(self, code: int) -> None:
        """End the stream on both sides. Nothing more is told of it."""
        c = self.connection
        if c is not None and not self.over:
            c.reset(self, code)


class Connection(asyncio.BufferedProtocol):
    """A connection. It is dialed at once; streams may begin before it is made."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str, tls: bytes | bool | None) -> None:
        self._loop = loop
        self._address = address
        self._tls = tls
        self._transport: Any = None
        self._buffer = memoryview(bytearray(64 << 10))
        self._rest = b""  # the beginning of a frame
        self._block: list[Any] | None = None  # headers without their end: stream, flags, bytes
        self._decoder = Decoder(HEADER_BYTES)
        self._streams: dict[int, Stream] = {}
        self._starting: dict[Stream, tuple[bytes, bytes, bool]] = {}  # before the connection is made
        self._blocked: dict[Stream, None] = {}  # those with something that waits
        self._told: dict[Stream, None] = {}  # those for which this read has brought something
        self._answers: list[bytes] = []  # frames that this read asks for
        self._next = 1
        self._window = _WINDOW  # bytes that may be sent over all streams
        self._stream_window = _WINDOW  # of a new stream
        self._frame = _FRAME  # bytes: the longest frame that the server takes
        self._most = _STREAMS
        self._received = 0  # bytes for which the server got no new window yet
        self._heard = 0.0  # when something came last
        self._asked = 0.0  # when a ping left; 0: none is out
        self._timer: asyncio.TimerHandle | None = None
        self.flows = False  # what is written leaves
        # The settings of the server came, which makes it one that speaks HTTP/2. No stream leaves before.
        self.reached = False
        self.ended = False
        self._closing = False  # the server goes away: no stream begins any more
        self._greeted: asyncio.Future[None] = loop.create_future()
        self._dialing = loop.create_task(self._dial())

    # How it is made.

    async def _dial(self) -> None:
        try:
            await asyncio.wait_for(self._make(), CONNECT_WITHIN)
        except (asyncio.TimeoutError, TimeoutError):
            self._end(NO_ERROR, f"no connection within {CONNECT_WITHIN:.0f} s")
        except asyncio.CancelledError:
            self._end(NO_ERROR, "the connection was closed")
        except Exception as e:  # of the network, of names, and of TLS
            self._end(NO_ERROR, str(e) or type(e).__name__)

    async def _make(self) -> None:
        name, _, port = self._address.rpartition(":")
        name = name.strip("[]")
        sock = await self._connect(name, int(port))
        try:
            if self._tls:
                context = tls_context(self._tls if isinstance(self._tls, bytes) else None)
                await self._loop.create_connection(lambda: self, sock=sock, ssl=context, server_hostname=name)
            else:
                await self._loop.create_connection(lambda: self, sock=sock)
        except BaseException:
            sock.close()
            raise
        await self._greeted

    async def _connect(self, name: str, port: int) -> socket.socket:
        """Connect to the first of the addresses of a name that answers. Each has a head start on the next one."""
        places = await self._resolve(name, port)
        tries: set[asyncio.Task[socket.socket]] = set()
        wrong: BaseException | None = None
        try:
            while places or tries:
                if places:
                    family, place = places.pop(0)
                    tries.add(asyncio.ensure_future(self._connect_to(family, place)))
                done, tries = await asyncio.wait(
                    tries, timeout=_NEXT_AFTER if places else None, return_when=asyncio.FIRST_COMPLETED
                )
                made = [t.result() for t in done if t.exception() is None]
                if made:
                    for other in made[1:]:
                        other.close()
                    return made[0]
                wrong = next((t.exception() for t in done), wrong)
            raise wrong or OSError(f"{name} has no address")
        finally:
            for t in tries:
                t.add_done_callback(_discard)
                t.cancel()

    async def _connect_to(self, family: int, place: Any) -> socket.socket:
        # With its protocol named, asyncio switches off Nagle's algorithm, which holds small frames back for 40 ms.
        sock = _Socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.pid = os.getpid()
        try:
            sock.setblocking(False)
            await self._loop.sock_connect(sock, place)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _resolve(self, name: str, port: int) -> list[tuple[int, Any]]:
        """Return the addresses of a name. It is looked up in a thread that the end of the process does not wait for."""
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                socket.inet_pton(family, name)
            except (OSError, ValueError):
                continue
            return [(family, (name, port))]
        found: asyncio.Future[list[tuple[int, Any]]] = self._loop.create_future()

        def tell(places: list[tuple[int, Any]], e: Exception | None) -> None:
            if found.done():
                return
            found.set_exception(e) if e is not None else found.set_result(places)

        def look() -> None:
            places: list[tuple[int, Any]] = []
            wrong: Exception | None = None
            try:
                infos = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
                places = [(int(family), place) for family, _, _, _, place in infos]
            except Exception as e:  # also of names that are not valid
                wrong = OSError(f"{name} is not found: {e}")
            try:
                self._loop.call_soon_threadsafe(tell, places, wrong)
            except RuntimeError:
                pass  # the process ends

        threading.Thread(target=look, name="millrace-names", daemon=True).start()
        return await found

    def connection_made(self, transport: Any) -> None:
        """Greet the server."""
        if self.ended:
            transport.abort()
            return
        self._transport = transport
        if self._tls:
            tls = transport.get_extra_info("ssl_object")
            if tls is None or tls.selected_alpn_protocol() != "h2":
                self._end(NO_ERROR, "the server does not offer HTTP/2")
                return
        transport.set_write_buffer_limits(high=_BUFFER, low=_BUFFER // 4)
        transport.write(_GREETING)

    def _open(self) -> None:
        """Begin the streams that waited for the settings of the server."""
        self.reached = self.flows = True
        if not self._greeted.done():
            self._greeted.set_result(None)
        starting, self._starting = self._starting, {}
        for s, (head, body, last) in starting.items():
            self._begin(s, head, body, last)
        self._tell_room()

    # How it ends.

    @property
    def usable(self) -> bool:
        """Whether a stream may begin."""
        return not self._closing and not self.ended and self._next <= _MOST

    @property
    def busy(self) -> bool:
        """Whether it has as many streams as the server allows."""
        return len(self._streams) + len(self._starting) >= self._most

    def close(self) -> None:
        """End the connection, and all streams that are open."""
        self._end(NO_ERROR, "the connection was closed")

    def _end(self, code: int, why: str) -> None:
        """End the connection, and all its streams."""
        if self.ended:
            return
        self.ended, self.flows = True, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._dialing.cancel()
        if self._transport is not None:
            if self.reached and not self._transport.is_closing():
                if code != NO_ERROR:
                    self._put(frame(GOAWAY, 0, 0, _U32.pack(0) + _U32.pack(code)))
                self._transport.close()
                # A server that reads nothing must not keep it.
                self._loop.call_later(CLOSE_WITHIN, self._transport.abort)
            else:
                self._transport.abort()
        streams = [*self._streams.values(), *self._starting]
        self._streams.clear()
        self._starting.clear()
        self._blocked.clear()
        for s in streams:
            s.over = True
            s.waiting.clear()
            s.broke(code, why, not self.reached)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take in that the connection has ended."""
        if not self.reached and self._rest:
            self._end(NO_ERROR, "the server does not speak HTTP/2")
        self._end(NO_ERROR, str(exc) if exc is not None and str(exc) else "the server ended the connection")

    def eof_received(self) -> bool:
        """Take in that the server sends no more, which is the end."""
        return False

    # What is sent.

    def pause_writing(self) -> None:
        """Take in that the socket takes no more."""
        self.flows = False

    def resume_writing(self) -> None:
        """Take in that the socket takes more."""
        if not self.ended and self.reached:
            self.flows = True
            self._pump()

    def _put(self, data: bytes) -> None:
        """Send bytes. What comes after the end of the connection, which is not told yet, goes nowhere."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def start(self, s: Stream, head: bytes, body: bytes = b"", last: bool = False) -> None:
        """Begin a stream with its headers, packed, and its body as far as it is there."""
        s.connection = self
        if not self.reached:
            self._starting[s] = (head, body, last)
        else:
            self._begin(s, head, body, last)

    def _begin(self, s: Stream, head: bytes, body: bytes, last: bool) -> None:
        s.number, s.window = self._next, self._stream_window
        self._next += 2
        self._streams[s.number] = s
        most = self._frame
        parts = [frame(HEADERS, END_HEADERS if len(head) <= most else 0, s.number, head[:most])]
        for at in range(most, len(head), most):
            flags = END_HEADERS if at + most >= len(head) else 0
            parts.append(frame(CONTINUATION, flags, s.number, head[at : at + most]))
        if self._timer is None:
            self._watch()
        self._put(b"".join(parts))
        if body or last:
            self.write(s, body, last)

    def write(self, s: Stream, content: bytes, last: bool) -> None:
        """Send a part of the body of a stream."""
        if s in self._starting:
            head, body, _ = self._starting[s]
            self._starting[s] = (head, body + content, last)
            s.last = last
            return
        n = len(content)
        if not s.waiting and self.flows and n <= s.window and n <= self._window and n <= self._frame:
            s.window -= n
            self._window -= n
            s.sent_end = last
            head = _HEAD.pack(n >> 8, n & 0xFF, DATA, END_STREAM if last else 0, s.number)
            self._put(head + content)
            return
        s.waiting.append(memoryview(content))
        s.last = last
        self._blocked[s] = None
        self._pump()

    def _pump(self) -> None:
        """Send what waits as far as there is room: a frame of each stream in turn."""
        turn = deque(self._blocked)
        out: list[bytes] = []
        size = 0
        while turn and self.flows and size < _BUFFER:
            s = turn.popleft()
            content = s.waiting[0]
            n = min(len(content), max(s.window, 0), self._window, self._frame)
            if n == 0 and len(content) > 0:
                continue
            if n == len(content):
                s.waiting.popleft()
            else:
                s.waiting[0] = content[n:]
            s.window -= n
            self._window -= n
            size += n
            s.sent_end = s.last and not s.waiting
            out.append(_HEAD.pack(n >> 8, n & 0xFF, DATA, END_STREAM if s.sent_end else 0, s.number))
            out.append(bytes(content[:n]))
            if s.waiting:
                turn.append(s)
            else:
                self._blocked.pop(s, None)
        if out:
            self._put(b"".join(out))
            if self._blocked and self.flows:
                self._loop.call_soon(self._pump_more)
        self._tell_room()

    def _pump_more(self) -> None:
        if not self.ended:
            self._pump()

    def _tell_room(self) -> None:
        for s in [s for s in self._streams.values() if s.full and not s.waiting]:
            if self.flows and not s.waiting and not s.over:
                s.full = False
                s.writable()

    def reset(self, s: Stream, code: int) -> None:
        """End a stream on both sides."""
        s.over = True
        self._forget(s)
        if s.number and not self.ended:
            self._put(frame(RST_STREAM, 0, s.number, _U32.pack(code)))
        self._ended_one()

    def _forget(self, s: Stream) -> None:
        s.waiting.clear()
        self._blocked.pop(s, None)
        self._starting.pop(s, None)
        self._streams.pop(s.number, None)

    def _ended_one(self) -> None:
        if self._closing and not self._streams and not self._starting:
            self._end(NO_ERROR, "the connection was closed")

    # Whether the server is there.

    def _watch(self) -> None:
        """Begin to look after the connection. One that has been idle for long is pinged at once."""
        self._asked = 0.0
        self._tick()

    def _tick(self) -> None:
        """Ping a server that is silent while streams are open. Anything that comes is as good as the answer."""
        self._timer = None
        if self.ended or not self._streams:
            return
        now = self._loop.time()
        if self._asked and self._heard < self._asked:
            left = self._asked + PING_WITHIN - now
            if left <= 0:
                self._transport.abort()  # what is written would wait for it
                self._end(NO_ERROR, f"no answer to a ping within {PING_WITHIN:.0f} s")
                return
        else:
            self._asked = 0.0
            left = self._heard + PING_AFTER - now
            if left <= 0:
                self._asked = now
                self._put(frame(PING, 0, 0, b"millrace"))
                left = PING_WITHIN
        self._timer = self._loop.call_later(left, self._tick)

    # What comes.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next read goes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        if self.ended:
            return
        self._heard = self._loop.time()
        data = bytes(self._buffer[:nbytes])
        if self._rest:
            data = self._rest + data
        try:
            self._read(data)
        except Broken as e:
            self._deliver()
            if not self.reached:
                self._end(NO_ERROR, "the server does not speak HTTP/2")
            else:
                self._end(e.code, f"the server broke the rules of HTTP/2: {e}")
            return
        self._deliver()
        if self._answers and not self.ended:
            answers, self._answers = self._answers, []
            self._put(b"".join(answers))
            if self._transport.get_write_buffer_size() > _UNREAD:
                self._transport.abort()
                self._end(ENHANCE_YOUR_CALM, "the server asks for answers and reads none")

    def _deliver(self) -> None:
        """Tell streams that all is there that this read has brought."""
        told = self._told
        if told:
            self._told = {}
            for s in told:
                s.got_all()

    def _read(self, data: bytes) -> None:
        at, end = 0, len(data)
        while end - at >= 9:
            high, low, kind, flags, number = _HEAD.unpack_from(data, at)
            n = high << 8 | low
            if n > _FRAME:
                raise Broken(FRAME_SIZE_ERROR, f"a frame of {n} bytes")
            if end - at < 9 + n:
                break
            self._take(kind, flags, number & _MOST, data[at + 9 : at + 9 + n])
            if self.ended:
                return
            at += 9 + n
        self._rest = data[at:]

    def _take(self, kind: int, flags: int, number: int, content: bytes) -> None:
        """Take a frame."""
        if not self.reached and (kind != SETTINGS or flags & ACK or number):
            raise Broken(PROTOCOL_ERROR, "the first frame is not of settings")
        if self._block is not None and kind != CONTINUATION:
            raise Broken(PROTOCOL_ERROR, "headers are not continued")
        if kind == DATA:
            self._data(flags, number, content)
        elif kind == HEADERS:
            if flags & PADDED:
                content = _unpadded(content)
            if flags & WITH_PRIORITY:
                if len(content) < 5:
                    raise Broken(FRAME_SIZE_ERROR, "headers are too short")
                content = content[5:]
            self._part_of_headers(flags, number, flags & END_STREAM, content)
        elif kind == CONTINUATION:
            if self._block is None or self._block[0] != number:
                raise Broken(PROTOCOL_ERROR, "no headers are continued")
            self._part_of_headers(flags, number, self._block[1], content)
        elif kind == WINDOW_UPDATE:
            self._window_update(number, content)
        elif kind == RST_STREAM:
            self._was_reset(number, content)
        elif kind in (SETTINGS, PING, GOAWAY):
            if number:
                raise Broken(PROTOCOL_ERROR, "a frame of the connection names a stream")
            (self._settings, self._pinged, self._goaway)[(SETTINGS, PING, GOAWAY).index(kind)](flags, content)
        elif kind == PUSH_PROMISE:
            raise Broken(PROTOCOL_ERROR, "a push was not agreed on")

    def _stream(self, number: int) -> Stream | None:
        """Return a stream; None for one that has ended."""
        s = self._streams.get(number)
        if s is None and (number >= self._next or number % 2 == 0):
            raise Broken(PROTOCOL_ERROR, f"there was no stream {number}")
        return s

    def _data(self, flags: int, number: int, content: bytes) -> None:
        n = len(content)
        s = self._stream(number)
        self._received += n  # all is taken at once, so no window is ever used up
        if 2 * self._received >= CONNECTION_WINDOW:
            self._answers.append(frame(WINDOW_UPDATE, 0, 0, _U32.pack(self._received)))
            self._received = 0
        if flags & PADDED:
            content = _unpadded(content)
        if s is None:
            return
        s.received += n
        self._told[s] = None
        if content:
            s.got_data(content)
        if flags & END_STREAM:
            self._got_end(s)
        elif 2 * s.received >= STREAM_WINDOW and not s.over:
            self._answers.append(frame(WINDOW_UPDATE, 0, number, _U32.pack(s.received)))
            s.received = 0

    def _part_of_headers(self, flags: int, number: int, last: int, content: bytes) -> None:
        block = self._block
        if block is None:
            self._stream(number)
            block = self._block = [number, last, b""]
        block[2] += content
        if len(block[2]) > HEADER_BYTES:
            raise Broken(ENHANCE_YOUR_CALM, f"headers of more than {HEADER_BYTES} bytes")
        if not flags & END_HEADERS:
            if not content:
                raise Broken(ENHANCE_YOUR_CALM, "a part of headers is empty")
            return
        self._block = None
        try:
            # Of a stream that has ended too: what the decoder keeps is of all streams.
            fields: Any = self._decoder.decode(block[2], raw=True)
        except (HPACKError, ValueError, IndexError) as e:
            raise Broken(COMPRESSION_ERROR, f"headers cannot be read: {e}") from e
        s = self._streams.get(number)
        if s is None:
            return
        self._told[s] = None
        s.got_headers(fields, bool(last))
        if last and not s.over:
            self._got_end(s)

    def _got_end(self, s: Stream) -> None:
        if s.over:
            return
        s.over = True
        self._told.pop(s, None)
        done = s.sent_end
        self._forget(s)
        if not done:
            self._answers.append(frame(RST_STREAM, 0, s.number, _U32.pack(NO_ERROR)))
        s.got_all()
        s.got_end()
        self._ended_one()

    def _settings(self, flags: int, content: bytes) -> None:
        if flags & ACK:
            if content:
                raise Broken(FRAME_SIZE_ERROR, "an answer to settings has content")
            return
        if len(content) % 6:
            raise Broken(FRAME_SIZE_ERROR, "settings have a wrong length")
        for kind, value in _SETTING.iter_unpack(content):
            if kind == 0x3:
                self._most = value
            elif kind == 0x4:
                self._set_window(value)
            elif kind == 0x5:
                if not _FRAME <= value < 1 << 24:
                    raise Broken(PROTOCOL_ERROR, f"a longest frame of {value} bytes")
                self._frame = value
        self._answers.append(frame(SETTINGS, ACK, 0))
        if not self.reached:
            self._open()
        elif self._blocked:
            self._pump()

    def _set_window(self, value: int) -> None:
        """Set the window of streams, of those that are open too."""
        if value > _MOST:
            raise Broken(FLOW_CONTROL_ERROR, "a window is too large")
        more, self._stream_window = value - self._stream_window, value
        for s in self._streams.values():
            s.window += more
            if s.window > _MOST:
                raise Broken(FLOW_CONTROL_ERROR, "a window is too large")

    def _pinged(self, flags: int, content: bytes) -> None:
        if len(content) != 8:
            raise Broken(FRAME_SIZE_ERROR, "a ping has a wrong length")
        if not flags & ACK:
            self._answers.append(frame(PING, ACK, 0, content))

    def _goaway(self, flags: int, content: bytes) -> None:
        if len(content) < 8:
            raise Broken(FRAME_SIZE_ERROR, "a farewell is too short")
        last, code = struct.unpack_from(">II", content)
        last &= _MOST
        self._closing = True
        for s in [s for n, s in self._streams.items() if n > last]:
            self._forget(s)
            s.over = True
            s.broke(code, "the server goes away and did not take the call", True)
        self._ended_one()

    def _window_update(self, number: int, content: bytes) -> None:
        if len(content) != 4:
            raise Broken(FRAME_SIZE_ERROR, "an update of a window has a wrong length")
        more = _U32.unpack(content)[0] & _MOST
        if not more:
            raise Broken(PROTOCOL_ERROR, "a window grows by nothing")
        if number == 0:
            self._window += more
            if self._window > _MOST:
                raise Broken(FLOW_CONTROL_ERROR, "the window of the connection is too large")
        else:
            s = self._stream(number)
            if s is None:
                return
            s.window += more
            if s.window > _MOST:
                raise Broken(FLOW_CONTROL_ERROR, "the window of a stream is too large")
        if self._blocked:
            self._pump()

    def _was_reset(self, number: int, content: bytes) -> None:
        if len(content) != 4:
            raise Broken(FRAME_SIZE_ERROR, "a reset has a wrong length")
        s = self._stream(number)
        if s is None:
            return
        code = _U32.unpack(content)[0]
        self._forget(s)
        self._told.pop(s, None)
        s.over = True
        s.got_all()
        s.broke(code, f"the stream was reset with code {code}", code == REFUSED_STREAM)
        self._ended_one()


def _unpadded(content: bytes) -> bytes:
    """Drop the padding of a frame."""
    if not content or content[0] >= len(content):
        raise Broken(PROTOCOL_ERROR, "the padding is longer than its frame")
    return content[1 : len(content) - content[0]]


def _discard(t: asyncio.Task[socket.socket]) -> None:
    """Close a connection that came too late."""
    if not t.cancelled() and t.exception() is None:
        t.result().close()


def literal(name: bytes, value: bytes) -> bytes:
    """Pack a header as it is."""
    return b"\x00" + _length(len(name)) + name + _length(len(value)) + value


def _length(n: int) -> bytes:
    """Pack the length of a text that is not compressed."""
    if n < 0x7F:
        return bytes((n,))
    out, n = bytearray((0x7F,)), n - 0x7F
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def pack(fields: Sequence[tuple[str, str]]) -> bytes:
    """Pack headers, which no table of the server keeps."""
    return b"".join(literal(k.encode("ascii"), v.encode("ascii")) for k, v in fields)
