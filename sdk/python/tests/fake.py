"""A server whose frames a test plays, one by one."""

from __future__ import annotations

import queue
import time
from typing import Any

import grpc_server
from grpc_server import OK, Call

from millrace_sdk._core import wire

WITHIN = 10.0  # seconds for what a test waits for


class Stream:
    """One stream that a client has opened."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.gone = call.gone  # set when the connection has ended
        self.hello: Any = None  # for a test that looks at it later
        self._in: queue.Queue[Any] = queue.Queue()
        call.on_message = lambda m: self._in.put(wire.ClientFrame.FromString(m))
        call.on_close = lambda: self._in.put(None)

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
        self._call.send(wire.ServerFrame(**frame).SerializeToString())

    def end(self, status: int = OK, text: str = "", leader: str = "") -> None:
        """End the stream, with a status or without an error; with a leader as NOT_LEADER does."""
        details = wire.Status(code=14, message=text)
        if leader:
            e = wire.Error(code="NOT_LEADER", message=text, leader=leader).SerializeToString()
            details.details.add(type_url="type.googleapis.com/millrace.v1.Error", value=e)
        self._call.end(status, text, details.SerializeToString() if leader else b"")

    def greet(self, **welcome: Any) -> Any:
        """Take Hello, answer with Welcome, and return the Hello."""
        hello = self.recv("hello")
        self.welcome(**welcome)
        return hello

    def welcome(self, **welcome: Any) -> None:
        """Answer with Welcome."""
        self.send(welcome={"partitions": 1} | welcome)


class Fake(grpc_server.Server):
    """The server. Streams come out of accept; unary calls go to functions by the name of their method."""

    def __init__(self) -> None:
        self._streams: queue.Queue[Stream] = queue.Queue()
        super().__init__()

    def began(self, c: Call) -> None:
        """Take a call."""
        if c.method.endswith("Stream/Open"):
            self._streams.put(Stream(c))
        else:
            super().began(c)

    def accept(self, within: float = WITHIN) -> Stream:
        """Return the next stream that a client opens."""
        return self._streams.get(timeout=within)
