"""The three kinds of calls that the engine makes, over gRPC. Nothing else of the library knows grpcio."""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from . import wire
from .faults import StatusError
from .loop import IOLoop

if "grpc" not in sys.modules:
    # The core of gRPC writes to standard error at each fork.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

VERSION = "0.1.0"

_CLOSE_AFTER = 0.5  # seconds
_ROOM = 4  # frames that wait for the thread which sends them: what comes later is gathered into fewer


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


def _status(e: Any) -> StatusError:
    """Read the end of a call."""
    details = b""
    try:
        for key, value in e.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                details = value
        return StatusError(e.code().value[0], e.details() or "", details)
    except Exception:
        return StatusError(14, str(e))


class _Outbox:
    """The frames that wait for gRPC's thread, as the iterator that it reads from."""

    def __init__(self, io: IOLoop, on_room: Callable[[], None]) -> None:
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._io = io
        self._on_room = on_room
        self._full = False

    def __iter__(self) -> _Outbox:
        return self

    def __next__(self) -> bytes:
        frame = self._queue.get()
        if self._full and self._queue.qsize() < _ROOM:
            self._full = False
            self._io.post(self._on_room)
        if frame is None:
            raise StopIteration
        return frame

    def room(self) -> bool:
        if self._queue.qsize() < _ROOM:
            return True
        self._full = True
        # It may have been emptied since it was looked at.
        return self._queue.qsize() < _ROOM

    def put(self, frame: bytes | None) -> None:
        self._queue.put(frame)


class _GrpcStream:
    def __init__(self, outbox: _Outbox, call: Any) -> None:
        self._outbox = outbox
        self._call = call
        self.room = outbox.room
        self.send = outbox.put

    def close_send(self) -> None:
        self._outbox.put(None)

    def cancel(self) -> None:
        self._call.cancel()
        self._outbox.put(None)


class _Reader:
    """Reads a stream in a thread of its own, and hands frames over: one wake-up for all that have come."""

    def __init__(
        self,
        io: IOLoop,
        call: Any,
        on_frames: Callable[[list[Any]], None],
        on_end: Callable[[StatusError | None], None],
    ) -> None:
        self._io = io
        self._call = call
        self._frames: deque[Any] = deque()
        self._scheduled = False
        self._on_frames = on_frames
        self._on_end = on_end

    def run(self) -> None:
        end: StatusError | None = None
        try:
            for frame in self._call:
                self._frames.append(frame)
                if not self._scheduled:
                    self._scheduled = True
                    self._io.post(self._deliver)
        except grpc.RpcError as e:
            end = _status(e)
        except Exception as e:
            end = StatusError(14, f"the stream broke: {e}")
        try:
            self._io.post(self._on_end, end)
        except RuntimeError:
            pass  # the process ends

    def _deliver(self) -> None:
        self._scheduled = False
        frames = [self._frames.popleft() for _ in range(len(self._frames))]
        if frames:
            self._on_frames(frames)


class GrpcTransport:
    """Connections to one address by grpcio."""

    def __init__(self, io: IOLoop, address: str, tls: bytes | bool | None) -> None:
        self._io = io
        self._address = address
        self._tls = tls
        self._shared: Any = None  # the channel of calls; each stream has one of its own
        self._calls: dict[tuple[str, Any], Any] = {}

    def _channel(self) -> Any:
        options = [
            ("grpc.primary_user_agent", f"millrace-python/{VERSION}"),
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 3_000),  # how long a connection may take
            ("grpc.max_reconnect_backoff_ms", 1_000),
            ("grpc.max_receive_message_length", 64 << 20),
            ("grpc.max_send_message_length", 64 << 20),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.lb_policy_name", "pick_first"),
        ]
        if self._tls:
            roots = self._tls if isinstance(self._tls, bytes) else None
            return grpc.secure_channel(self._address, grpc.ssl_channel_credentials(roots), options)
        return grpc.insecure_channel(self._address, options)

    def open(
        self,
        method: str,
        metadata: Sequence[tuple[str, str]],
        on_frames: Callable[[list[Any]], None],
        on_room: Callable[[], None],
        on_end: Callable[[StatusError | None], None],
    ) -> Stream:
        channel = self._channel()
        outbox = _Outbox(self._io, on_room)
        call = channel.stream_stream(
            "/millrace.v1." + method,
            request_serializer=None,
            response_deserializer=wire.ServerFrame.FromString,
        )(outbox, metadata=list(metadata))

        def ended(e: StatusError | None) -> None:
            outbox.put(None)  # frees gRPC's thread
            # Closed under the thread that waits for its events, a channel of older versions of grpcio ends the process.
            self._io.loop.call_later(_CLOSE_AFTER, channel.close)
            on_end(e)

        reader = _Reader(self._io, call, on_frames, ended)
        threading.Thread(target=reader.run, name="millrace-read", daemon=True).start()
        return _GrpcStream(outbox, call)

    def _method(self, kind: str, method: str, answer: Any) -> Any:
        key = (method, kind)
        found = self._calls.get(key)
        if found is None:
            if self._shared is None:
                self._shared = self._channel()
            make = getattr(self._shared, kind)
            found = make("/millrace.v1." + method, request_serializer=None, response_deserializer=answer.FromString)
            self._calls[key] = found
        return found

    async def unary(
        self,
        method: str,
        request: bytes,
        answer: Any,
        metadata: Sequence[tuple[str, str]],
        timeout: float | None,
    ) -> Any:
        loop = self._io.loop
        done: asyncio.Future[Any] = loop.create_future()
        call = self._method("unary_unary", method, answer).future(request, timeout=timeout, metadata=list(metadata))

        def finish(c: Any) -> None:
            if done.done():
                return
            try:
                done.set_result(c.result())
            except grpc.RpcError as e:
                done.set_exception(_status(e))
            except grpc.FutureCancelledError:
                done.set_exception(StatusError(1, "the call was cancelled"))
            except Exception as e:
                done.set_exception(StatusError(13, str(e)))

        call.add_done_callback(lambda c: self._io.post(finish, c))
        try:
            return await done
        except asyncio.CancelledError:
            call.cancel()
            raise

    async def server_stream(
        self,
        method: str,
        request: bytes,
        answer: Any,
        metadata: Sequence[tuple[str, str]],
        timeout: float | None,
    ) -> list[Any]:
        done: asyncio.Future[list[Any]] = self._io.loop.create_future()
        call = self._method("unary_stream", method, answer)(request, timeout=timeout, metadata=list(metadata))
        answers: list[Any] = []

        def end(e: StatusError | None) -> None:
            if not done.done():
                done.set_result(answers) if e is None else done.set_exception(e)

        reader = _Reader(self._io, call, answers.extend, end)
        threading.Thread(target=reader.run, name="millrace-read", daemon=True).start()
        try:
            return await done
        except asyncio.CancelledError:
            call.cancel()
            raise

    def close(self) -> None:
        if self._shared is not None:
            self._shared.close()
            self._shared = None
            self._calls.clear()
