"""A server of gRPC for tests, over h2: HTTP/2 that shares no code with the library's own client."""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import h2.config
import h2.connection
import h2.events
import h2.exceptions

# Statuses of gRPC.
OK, PERMISSION_DENIED, UNIMPLEMENTED, UNAVAILABLE, UNAUTHENTICATED = 0, 7, 12, 14, 16


class Abort(Exception):
    """Ends a call with a status."""

    def __init__(self, status: int, text: str = "", details: bytes = b"") -> None:
        super().__init__(status, text)
        self.status, self.text, self.details = status, text, details


class Call:
    """One call, as the server has it."""

    def __init__(self, connection: Connection, number: int, headers: dict[str, str]) -> None:
        self._connection = connection
        self._number = number
        self._came = b""
        self._headed = False
        self.method = headers[":path"]
        self.headers = headers
        self.gone = connection.gone
        self.on_message: Callable[[bytes], None] = lambda m: None
        self.on_close: Callable[[], None] = lambda: None  # the client sends no more, or is gone

    def took(self, data: bytes) -> None:
        """Take a part of what the client sends."""
        self._came += data
        while len(self._came) >= 5:
            packed, n = struct.unpack_from(">BI", self._came)
            assert packed == 0
            if len(self._came) < 5 + n:
                return
            message, self._came = self._came[5 : 5 + n], self._came[5 + n :]
            self.on_message(message)

    def send(self, message: bytes) -> None:
        """Send a message."""
        self._connection.send(self._number, self._head(), struct.pack(">BI", 0, len(message)) + message)

    def end(self, status: int = OK, text: str = "", details: bytes = b"") -> None:
        """End the call."""
        trailers = [("grpc-status", str(status)), ("grpc-message", quote(text))]
        if details:
            trailers.append(("grpc-status-details-bin", base64.b64encode(details).decode().rstrip("=")))
        self._connection.send(self._number, self._head(), b"", trailers)

    def _head(self) -> list[tuple[str, str]]:
        if self._headed:
            return []
        self._headed = True
        return [(":status", "200"), ("content-type", "application/grpc")]


class Connection:
    """One connection of a client, with a thread that reads from it."""

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self._server = server
        self._sock = sock
        self._lock = threading.RLock()
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self._calls: dict[int, Call] = {}
        self.gone = threading.Event()  # it has ended
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            with self._lock:
                self._h2.initiate_connection()
                self._flush()
            while data := self._sock.recv(1 << 16):
                with self._lock:
                    events = self._h2.receive_data(data)
                    self._flush()
                for e in events:
                    self._take(e)
        except (OSError, h2.exceptions.ProtocolError):
            pass
        finally:
            self.close()
            for c in list(self._calls.values()):
                c.on_close()
            self.gone.set()

    def _take(self, e: Any) -> None:
        if isinstance(e, h2.events.RequestReceived):
            c = self._calls[e.stream_id] = Call(self, e.stream_id, dict(e.headers))
            self._server.began(c)
        elif isinstance(e, h2.events.DataReceived):
            with self._lock:
                self._h2.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
                self._flush()
            if e.stream_id in self._calls:
                self._calls[e.stream_id].took(e.data)
        elif isinstance(e, h2.events.StreamEnded):
            if e.stream_id in self._calls:
                self._calls[e.stream_id].on_close()
        elif isinstance(e, h2.events.StreamReset):
            c = self._calls.pop(e.stream_id, None)
            if c is not None:
                c.on_close()

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data:
            self._sock.sendall(data)

    def send(self, number: int, head: list[tuple[str, str]], data: bytes, trailers: Any = None) -> None:
        """Send a part of an answer. A client that is gone does not get it."""
        with self._lock, contextlib.suppress(OSError, h2.exceptions.ProtocolError):
            if head:
                self._h2.send_headers(number, head)
            most = self._h2.max_outbound_frame_size
            for at in range(0, len(data), most):
                self._h2.send_data(number, data[at : at + most])
            if trailers is not None:
                self._calls.pop(number, None)
                self._h2.send_headers(number, trailers, end_stream=True)
            self._flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


class Server:
    """A server. What it does with a call, began says: by default it knows no method."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"127.0.0.1:{self.port}"
        self.connections: list[Connection] = []
        self.calls: dict[str, Callable[[bytes], bytes]] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                self.connections.append(Connection(self, self.wrap(sock)))
            except OSError:  # of TLS too
                sock.close()

    def wrap(self, sock: socket.socket) -> socket.socket:
        """Have a connection speak TLS, where the server does."""
        return sock

    def began(self, c: Call) -> None:
        """Take a call: one of calls, by the name of its method, runs in a thread of its own."""
        f = self.calls.get(c.method.rpartition("/")[2])
        if f is None:
            c.end(UNIMPLEMENTED, f"unknown method {c.method}")
            return
        run = f

        def carry(message: bytes) -> None:
            try:
                c.send(run(message))
                c.end()
            except Abort as e:
                c.end(e.status, e.text, e.details)

        c.on_message = lambda m: threading.Thread(target=carry, args=(m,), daemon=True).start()

    def close(self) -> None:
        """End all connections, and take no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits
        self._listener.close()
        for c in self.connections:
            c.close()
