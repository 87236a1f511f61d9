"""A server whose frames a test plays, one by one."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc

from millrace_sdk._core import wire

WITHIN = 10.0  # seconds for what a test waits for


class Stream:
    """One stream that a client has opened."""

    def __init__(self, frames: Iterator[Any], context: Any) -> None:
        self._context = context
        self.hello: Any = None  # for a test that looks at it later
        self._in: queue.Queue[Any] = queue.Queue()
        self._out: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._read, args=(frames,), daemon=True).start()
        context.add_callback(self.end)  # the thread that serves it must not outlive the stream

    def _read(self, frames: Iterator[Any]) -> None:
        try:
            for f in frames:
                self._in.put(f)
        except Exception:
            pass
        self._in.put(None)

    def recv(self, kind: str | None = None, within: float = WITHIN) -> Any:
        """Return the content of the next frame; with a kind, of the next one of that kind. None: the client closed."""
        end = time.monotonic() + within
        while True:
            f = self._in.get(timeout=max(end - time.monotonic(), 0))
            if f is None:
                return None
            name = f.WhichOneof("frame")
            if kind is None or kind == name:
                return getattr(f, name)

    def frame(self, within: float = WITHIN) -> Any:
        """Return the next frame."""
        return self._in.get(timeout=within)

    def quiet(self, seconds: float = 0.2) -> bool:
        """Report whether no frame comes for a while."""
        try:
            f = self._in.get(timeout=seconds)
        except queue.Empty:
            return True
        self._in.put(f)
        return False

    def send(self, **frame: Any) -> None:
        """Send a frame, such as send(ack={"seq": 1})."""
        self._out.put(wire.ServerFrame(**frame))

    def end(self, code: grpc.StatusCode | None = None, text: str = "", leader: str = "") -> None:
        """End the stream, with a status or without an error; with a leader as NOT_LEADER does."""
        self._out.put((code, text, leader))

    def serve(self) -> Iterator[bytes]:
        while True:
            f = self._out.get()
            if isinstance(f, tuple):
                if f[2]:
                    e = wire.Error(code="NOT_LEADER", message=f[1], leader=f[2]).SerializeToString()
                    details = wire.Status(code=14, message=f[1])
                    details.details.add(type_url="type.googleapis.com/millrace.v1.Error", value=e)
                    self._context.set_trailing_metadata((("grpc-status-details-bin", details.SerializeToString()),))
                if f[0] is not None:
                    self._context.abort(f[0], f[1])
                return
            yield f.SerializeToString()

    def greet(self, **welcome: Any) -> Any:
        """Take Hello, answer with Welcome, and return the Hello."""
        hello = self.recv("hello")
        self.welcome(**welcome)
        return hello

    def welcome(self, **welcome: Any) -> None:
        """Answer with Welcome."""
        self.send(welcome={"partitions": 1} | welcome)


class Fake:
    """The server. Streams come out of accept; unary calls go to functions by the name of their method."""

    def __init__(self) -> None:
        self._streams: queue.Queue[Stream] = queue.Queue()
        self.calls: dict[str, Callable[[bytes, Any], bytes]] = {}
        self._all: list[Stream] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(32), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self.url = f"127.0.0.1:{self.port}"
        self._server.start()

    def service(self, details: Any) -> Any:
        """Find the handler of a call, as grpc asks for it."""
        name = details.method.rpartition("/")[2]
        if details.method.endswith("Stream/Open"):
            return grpc.stream_stream_rpc_method_handler(self._open, request_deserializer=wire.ClientFrame.FromString)
        if name in self.calls:
            return grpc.unary_unary_rpc_method_handler(self.calls[name])
        return None

    def _open(self, frames: Iterator[Any], context: Any) -> Iterator[bytes]:
        s = Stream(frames, context)
        self._all.append(s)
        self._streams.put(s)
        yield from s.serve()

    def accept(self, within: float = WITHIN) -> Stream:
        """Return the next stream that a client opens."""
        return self._streams.get(timeout=within)

    def close(self) -> None:
        """End all streams and the server."""
        for s in self._all:
            s.end()
        self._server.stop(0)
