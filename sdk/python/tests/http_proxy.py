"""What stands between a client and a server over HTTP/1.1: a proxy of a real server, and a server that a test plays."""

from __future__ import annotations

import http.client
import http.server
import json
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Proxy:
    """A proxy that speaks HTTP/1.1, and lets gRPC through while grpc is set."""

    def __init__(self, rest: str, grpc: str) -> None:
        self._rest, self._grpc = rest, grpc
        self.grpc = threading.Event()
        self.seen: list[str] = []  # the paths of requests
        self.lose: Callable[[str], bool] = lambda path: False  # whether the answer to a request is lost
        self.greeted = 0  # connections of gRPC that were refused
        self._tunnels: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn: socket.socket) -> None:
        try:
            first = conn.recv(3, socket.MSG_PEEK)
            if first == b"PRI":
                self._tunnel(conn)
            elif first == b"CON":
                self._connect(conn)
            else:
                while self._request(conn):
                    pass
        except (OSError, http.client.HTTPException):
            pass
        finally:
            conn.close()

    def _tunnel(self, conn: socket.socket) -> None:
        if not self.grpc.is_set():
            self.greeted += 1
            conn.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        self._join(conn, self._grpc)

    def _connect(self, conn: socket.socket) -> None:
        """Go where all that is asked for goes, whatever its name is."""
        self.seen.append(_head(conn).decode().split(" ")[1])
        conn.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        self._join(conn, self._rest)

    def _join(self, conn: socket.socket, to: str) -> None:
        host, _, port = to.rpartition(":")
        up = socket.create_connection((host, int(port)))
        self._tunnels += [conn, up]
        back = threading.Thread(target=_copy, args=(up, conn), daemon=True)
        back.start()
        _copy(conn, up)
        back.join()

    def _request(self, conn: socket.socket) -> bool:
        head = _head(conn)
        if not head:
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        verb, path, _ = first.split(" ")
        headers = dict(line.split(": ", 1) for line in lines if line)
        body = b""
        size = int(headers.get("Content-Length", 0))
        while len(body) < size:
            body += conn.recv(size - len(body))
        self.seen.append(path)
        up = http.client.HTTPConnection(self._rest, timeout=60)
        up.request(verb, path, body or None, {k: v for k, v in headers.items() if k.lower() not in _HOP})
        r = up.getresponse()
        answer = r.read()
        up.close()
        if self.lose(path):
            return False
        told = [f"HTTP/1.1 {r.status} {r.reason}", f"Content-Length: {len(answer)}"]
        told += [f"{k}: {v}" for k, v in r.getheaders() if k.lower() not in _HOP]
        conn.sendall("\r\n".join(told).encode() + b"\r\n\r\n" + answer)
        return True

    def cut(self) -> None:
        """Let gRPC through no more, and end what goes through."""
        self.grpc.clear()
        for s in self._tunnels:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        """End the proxy."""
        self._listener.close()
        self.cut()


def _head(conn: socket.socket) -> bytes:
    """Read the first line of a request and its headers; empty: there is none."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        one = conn.recv(1)
        if not one:
            return b""
        head += one
    return head


def _copy(source: socket.socket, to: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            to.sendall(data)
    except OSError:
        pass
    for s in (source, to):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Canned:
    """A server of REST whose answers a test makes: a function by the path gives the status, the body and headers."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, Callable[[Any], tuple[int, Any, dict[str, str]]]] = {
            "/v1/status": lambda r: (200, {"version": "x", "durability": "fsync"}, {}),
            "/v1/namespace": lambda r: (200, {"partitions": [{}]}, {}),
        }
        self.seen: list[tuple[str, str, Any]] = []  # method, path and headers
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.seen.append((self.command, self.path, self.headers))
                path = self.path.partition("?")[0]
                found = next((f for p, f in outer.answers.items() if path.startswith(p)), None)
                status, body, headers = found(self) if found else (404, b"nothing here", {})
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                if not isinstance(body, bytes):
                    self.send_header("Content-Type", "application/json")
                for k, v in headers.items():
                    self.send_header(k, v)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()  # it polls for its end

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
