"""The three kinds of calls that the engine makes, and how they are made over gRPC."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from . import grpc, http2, wire
from .faults import StatusError

VERSION = "0.1.0"


class Stream(Protocol):
    """An open stream, as its session sees it. All methods are for the I/O thread."""

    def room(self) -> bool:
        """Report whether a frame is taken now; on_room tells when there is some again."""
        ...

    def send(self, frame: bytes) -> None:
        """Send a frame."""

    def close_send(self) -> None:
        """End this side of the stream."""

    def cancel(self) -> None:
        """End the stream."""


class Transport(Protocol):
    """Connections to one address. All methods are for the I/O thread."""

    def open(
        self,
        method: str,
        metadata: Sequence[tuple[str, str]],
        on_frames: Callable[[list[Any]], None],
        on_room: Callable[[], None],
        on_end: Callable[[StatusError | None], None],
    ) -> Stream:
        """Open a stream of frames on a connection of its own."""
        ...

    async def unary(
        self,
        method: str,
        request: bytes,
        answer: Any,
        metadata: Sequence[tuple[str, str]],
        timeout: float | None,
    ) -> Any:
        """Call a method with one answer. It raises StatusError."""

    async def server_stream(
        self,
        method: str,
        request: bytes,
        answer: Any,
        metadata: Sequence[tuple[str, str]],
        timeout: float | None,
    ) -> list[Any]:
        """Call a method with a stream of answers, and return all of them."""
        ...

    def close(self) -> None:
        """End all connections."""


# Seconds by which a server may find earlier than this side that the time of a call is over: both round.
_CLOCKS_DIFFER = 0.01


class _Call(http2.Stream):
    """One call of any kind, from its headers to its status."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: str,
        answer: Any,
        on_messages: Callable[[list[Any]], None],
        on_end: Callable[[StatusError | None], None],
        on_room: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._loop = loop
        self._address = address
        self._read = answer.FromString
        self._on_messages = on_messages
        self._on_end = on_end
        if on_room is not None:
            self.writable = on_room  # type: ignore[method-assign]
        self._messages = grpc.Messages()
        self._come: list[Any] = []
        self._headed = False  # the headers of the answer came
        self._status: grpc.Fields | None = None
        self._done = False
        self._timer: asyncio.TimerHandle | None = None
        self._until = math.inf  # when its time is over, by the clock of the loop

    def end_within(self, seconds: float) -> None:
        """End the call when it has taken so long."""
        self._until = self._loop.time() + seconds
        self._timer = self._loop.call_later(max(seconds, 0.0), self._late)

    def _late(self) -> None:
        c = self.connection
        self.fail(StatusError(grpc.DEADLINE_EXCEEDED, "the timeout is over", untaken=c is None or not c.reached))

    def fail(self, e: StatusError) -> None:
        """End the call on this side."""
        if not self._done:
            self.reset(http2.CANCEL)
            self._finish(e)

    def _finish(self, e: StatusError | None) -> None:
        if self._done:
            return
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
        self._on_end(e)

    # What the connection says.

    def got_headers(self, fields: grpc.Fields, last: bool) -> None:
        if not self._headed:
            if grpc.interim(fields) and not last:
                return
            self._headed = True
            wrong = grpc.not_grpc(fields)
            if wrong is not None:
                self.fail(wrong)
            elif last:
                self._status = fields
        elif last:
            self._status = fields
        else:
            self.fail(StatusError(grpc.INTERNAL, "the answer has headers twice"))

    def got_data(self, chunk: bytes) -> None:
        if self._done:
            return
        try:
            if not self._headed:
                raise StatusError(grpc.INTERNAL, "the answer has no headers")
            for message in self._messages.push(chunk):
                self._come.append(self._read(message))
        except StatusError as e:
            self.got_all()
            self.fail(e)
        except DecodeError:
            self.got_all()
            self.fail(StatusError(grpc.INTERNAL, "the answer cannot be read"))

    def got_all(self) -> None:
        if self._come and not self._done:
            come, self._come = self._come, []
            self._on_messages(come)

    def got_end(self) -> None:
        if self._status is None:
            self._finish(StatusError(grpc.UNAVAILABLE, "the answer ended without a status"))
            return
        e = grpc.status_of(self._status)
        if e is None and self._messages.within:
            e = StatusError(grpc.INTERNAL, "the answer ends within a message")
        self._finish(e)

    def broke(self, code: int, why: str, untaken: bool) -> None:
        c = self.connection
        if c is not None and not c.reached:
            why = f"{self._address} is not reached: {why}"
        elif code == http2.CANCEL and self._loop.time() >= self._until - _CLOCKS_DIFFER:
            # The server counts the time too, and its reset may be here before this side's timer.
            self._late()
            return
        self._finish(StatusError(grpc.UNAVAILABLE, why, untaken=untaken))


class _GrpcStream:
    """A stream of frames, on a connection of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: http2.Connection, call: _Call) -> None:
        self._loop = loop
        self._call = call
        self.room = call.room

    def send(self, frame: bytes) -> None:
        if len(frame) > grpc.MESSAGE_BYTES:
            self._call.fail(_too_long(frame))
        else:
            self._call.write(grpc.framed(frame))

    def close_send(self) -> None:
        self._call.write(b"", last=True)

    def cancel(self) -> None:
        # Its owner says first why it ends the stream: the end comes afterwards.
        self._loop.call_soon(self._call.fail, StatusError(grpc.CANCELLED, "the stream was cancelled"))


def _too_long(message: bytes) -> StatusError:
    text = f"a message of {len(message)} bytes is longer than {grpc.MESSAGE_BYTES}"
    return StatusError(grpc.RESOURCE_EXHAUSTED, text, untaken=True)


class GrpcTransport:
    """Connections to one address over HTTP/2."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: str, tls: bytes | bool | None) -> None:
        self._loop = loop
        self._address = address
        self._tls = tls
        self._shared: list[http2.Connection] = []  # of calls; each stream has one of its own
        self._heads: dict[Any, bytes] = {}

    def _connect(self) -> http2.Connection:
        return http2.Connection(self._loop, self._address, self._tls)

    def _free(self) -> http2.Connection:
        """Return a connection for one call more: another one is made while all have as many as the server allows."""
        self._shared = [c for c in self._shared if c.usable]
        for c in self._shared:
            if not c.busy:
                return c
        made = self._connect()
        self._shared.append(made)
        return made

    def _head(self, method: str, metadata: Sequence[tuple[str, str]], timeout: float | None) -> bytes:
        """Pack the headers of a call. It raises StatusError."""
        key = (method, *metadata)
        head = self._heads.get(key)
        if head is None:
            for name, value in metadata:
                if not all(" " <= c <= "~" for c in value):
                    raise StatusError(grpc.INVALID_ARGUMENT, f"{name}: must be printable ASCII")
            if len(self._heads) > 100:
                self._heads.clear()  # tokens change
            head = self._heads[key] = http2.pack(
                [
                    (":method", "POST"),
                    (":scheme", "https" if self._tls else "http"),
                    (":path", "/millrace.v1." + method),
                    (":authority", self._address),
                    ("te", "trailers"),
                    ("content-type", "application/grpc"),
                    ("user-agent", f"millrace-python/{VERSION}"),
                    *metadata,
                ]
            )
        return head if timeout is None else head + http2.pack([("grpc-timeout", grpc.timeout_text(timeout))])

    def open(
        self,
        method: str,
        metadata: Sequence[tuple[str, str]],
        on_frames: Callable[[list[Any]], None],
        on_room: Callable[[], None],
        on_end: Callable[[StatusError | None], None],
    ) -> Stream:
        connection = self._connect()

        def ended(e: StatusError | None) -> None:
            connection.close()
            on_end(e)

        call = _Call(self._loop, self._address, wire.ServerFrame, on_frames, ended, on_room)
        try:
            connection.start(call, self._head(method, metadata, None))
        except StatusError as e:
            self._loop.call_soon(call.fail, e)
        return _GrpcStream(self._loop, connection, call)

    async def _carry(
        self,
        method: str,
        request: bytes,
        answer: Any,
        metadata: Sequence[tuple[str, str]],
        timeout: float | None,
    ) -> list[Any]:
        """Make a call of one request, and return its answers."""
        if len(request) > grpc.MESSAGE_BYTES:
            raise _too_long(request)
        head = self._head(method, metadata, timeout)
        done: asyncio.Future[None] = self._loop.create_future()
        answers: list[Any] = []

        def end(e: StatusError | None) -> None:
            if not done.done():
                done.set_result(None) if e is None else done.set_exception(e)

        call = _Call(self._loop, self._address, answer, answers.extend, end)
        self._free().start(call, head, grpc.framed(request), last=True)
        if timeout is not None:
            call.end_within(timeout)
        try:
            await done
        except asyncio.CancelledError:
            call.fail(StatusError(grpc.CANCELLED, "the call was cancelled"))
            raise
        return answers

    async def unary(
        self,
        method: str,
        request: bytes,
        answer: Any,
        metadata: Sequence[tuple[str, str]],
        timeout: float | None,
    ) -> Any:
        answers = await self._carry(method, request, answer, metadata, timeout)
        if len(answers) != 1:
            raise StatusError(grpc.INTERNAL, f"the call has {len(answers)} answers in the place of one")
        return answers[0]

    async def server_stream(
        self,
        method: str,
        request: bytes,
        answer: Any,
        metadata: Sequence[tuple[str, str]],
        timeout: float | None,
    ) -> list[Any]:
        return await self._carry(method, request, answer, metadata, timeout)

    def close(self) -> None:
        for c in self._shared:
            c.close()
        self._shared.clear()
