"""The helper process that keeps leases while its parent cannot: ``python -m millrace_sdk._renew``.

It reads lines from standard input and ends with it: "! JSON" is where the server is, "+ID TOKEN MS" a lease of that
length, "-ID TOKEN" its end, and "." the parent's beat. When the beat is late by a sixth of a lease, it renews that
lease by unary calls, every third of its length, until the beat comes again, or was late for as long as "stall" says.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

_TICK = 0.05  # seconds
_CALL = 5.0  # seconds for one call


class Helper:
    """The leases of the parent, and its beat."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: dict[tuple[str, str], list[float]] = {}  # length and when to renew next
        self._beat = time.monotonic()
        self._server: dict[str, Any] = {}
        self._call: Any = None

    def read(self) -> None:
        """Take lines until the end of standard input, which is the end of this process."""
        rest = b""
        while data := os.read(0, 1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            with self._lock:
                for line in lines:
                    self._take(line.decode())
        os._exit(0)

    def _take(self, line: str) -> None:
        now = time.monotonic()
        kind, rest = line[:1], line[1:]
        self._beat = now
        if kind == "!":
            self._server, self._call = json.loads(rest), None
        elif kind == "+":
            id, token, ms = rest.split()
            length = int(ms) / 1000
            self._leases[id, token] = [length, now + length / 3]
        elif kind == "-":
            id, token = rest.split()
            self._leases.pop((id, token), None)

    def due(self) -> list[tuple[str, str]]:
        """Return the leases that are to be renewed now."""
        now = time.monotonic()
        out: list[tuple[str, str]] = []
        with self._lock:
            late = now - self._beat
            if late > self._server.get("stall", 600.0):
                return []  # a parent that hangs must not hold tasks for ever
            for key, lease in self._leases.items():
                if late > lease[0] / 6 and now >= lease[1]:
                    out.append(key)
                    lease[1] = now + lease[0] / 3
                elif late <= lease[0] / 6:
                    # The parent renews it: if it stops now, this was at most a third of the lease ago.
                    lease[1] = now + lease[0] / 6
        return out[:512]

    def renew(self, leases: list[tuple[str, str]]) -> None:
        """Renew leases by a call."""
        import grpc

        from ._core import wire

        if self._call is None:
            s = self._server
            options = [("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 1000)]
            if s.get("tls"):
                roots = s["roots"].encode() if s.get("roots") else None
                channel = grpc.secure_channel(s["address"], grpc.ssl_channel_credentials(roots), options)
            else:
                channel = grpc.insecure_channel(s["address"], options)
            answer = wire.message("HeartbeatResponse").FromString
            self._call = channel.unary_unary("/millrace.v1.TaskService/Heartbeat", None, answer)
        request = wire.message("HeartbeatRequest")()
        for id, token in leases:
            request.items.add(id=id, token=int(token))
        metadata = [(k, v) for k, v in self._server["metadata"]]
        try:
            got = self._call(request.SerializeToString(), timeout=_CALL, metadata=metadata)
        except grpc.RpcError:
            with self._lock:  # tried again until the lease ends
                for key in leases:
                    if key in self._leases:
                        self._leases[key][1] = time.monotonic() + 0.2
            return
        with self._lock:
            for key, r in zip(leases, got.results, strict=False):
                if r.lost:
                    self._leases.pop(key, None)

    def run(self) -> None:
        """Look after the leases."""
        # Imported before the parent needs it, which waits for this line.
        import grpc  # noqa: F401

        from ._core import wire  # noqa: F401

        os.write(1, b"ready\n")
        threading.Thread(target=self.read, daemon=True).start()
        while True:
            time.sleep(_TICK)
            leases = self.due()
            if leases and self._server:
                self.renew(leases)


if __name__ == "__main__":
    Helper().run()
