"""The helper process that keeps leases while its parent cannot: ``python -m millrace_sdk._renew``.

It reads lines from standard input and ends with it: "! JSON" is where the partitions are led, "+ID TOKEN MS PARTITION"
a lease of that length, "-ID TOKEN" its end, and "." the parent's beat. When the beat is late by a sixth of a lease, it
renews that lease by unary calls, every third of its length, until the beat comes again, or was late for as long as
"stall" says.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_TICK = 0.05  # seconds
_CALL = 5.0  # seconds for one call


class Helper:
    """The leases of the parent, and its beat."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Length, when to renew next, and the partition.
        self._leases: dict[tuple[str, str], tuple[float, float, int]] = {}
        self._beat = time.monotonic()
        self._server: dict[str, Any] = {}
        self._calls: dict[str, Any] = {}  # by address

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
            before, self._server = self._server, json.loads(rest)
            if any(before.get(k) != self._server.get(k) for k in ("tls", "roots", "rest")):
                self._calls = {}
        elif kind == "+":
            id, token, ms, partition = rest.split()
            length = int(ms) / 1000
            self._leases[id, token] = (length, now + length / 3, int(partition))
        elif kind == "-":
            id, token = rest.split()
            self._leases.pop((id, token), None)

    def due(self) -> dict[int, list[tuple[str, str]]]:
        """Return the leases that are to be renewed now, by partition."""
        now = time.monotonic()
        out: dict[int, list[tuple[str, str]]] = {}
        with self._lock:
            late = now - self._beat
            if late > self._server.get("stall", 600.0):
                return {}  # a parent that hangs must not hold tasks for ever
            for key, (length, at, partition) in self._leases.items():
                if late > length / 6 and now >= at:
                    if len(out.setdefault(partition, [])) < 512:
                        out[partition].append(key)
                        self._leases[key] = (length, now + length / 3, partition)
                elif late <= length / 6:
                    # The parent renews it: if it stops now, this was at most a third of the lease ago.
                    self._leases[key] = (length, now + length / 6, partition)
        return out

    def _to(self, address: str) -> Any:
        """Return the call to a node, or to the one place of REST where that is in use."""
        s = self._server
        place = s.get("rest") or address
        found = self._calls.get(place)
        if found is None:
            found = self._calls[place] = _over_rest(s) if s.get("rest") else _over_grpc(s, address)
        return found

    def renew(self, due: dict[int, list[tuple[str, str]]]) -> None:
        """Renew leases, by a call to each partition that they are of, all at once."""
        from ._core import wire

        addresses = self._server["addresses"]
        metadata = [(k, v) for k, v in self._server["metadata"]]
        calls = []
        for partition, leases in due.items():
            request = wire.message("HeartbeatRequest")()
            for id, token in leases:
                request.items.add(id=id, token=int(token))
            to = self._to(addresses[min(partition, len(addresses) - 1)])
            calls.append((leases, to(request.SerializeToString(), timeout=_CALL, metadata=metadata)))
        for leases, call in calls:
            self._renewed(leases, call)

    def _renewed(self, leases: list[tuple[str, str]], call: Any) -> None:
        from ._core.faults import StatusError

        try:
            got = call.result()
        except StatusError:
            with self._lock:  # tried again until the lease ends
                for key in leases:
                    if key in self._leases:
                        length, _, partition = self._leases[key]
                        self._leases[key] = (length, time.monotonic() + 0.2, partition)
            return
        with self._lock:
            for key, r in zip(leases, got.results, strict=False):
                if r.lost:
                    self._leases.pop(key, None)

    def run(self) -> None:
        """Look after the leases."""
        # Imported before the parent needs it, which waits for this line.
        from ._core import rest, transport, wire  # noqa: F401

        os.write(1, b"ready\n")
        threading.Thread(target=self.read, daemon=True).start()
        while True:
            time.sleep(_TICK)
            due = self.due()
            if due and self._server:
                self.renew(due)


def _over_grpc(server: dict[str, Any], address: str) -> Callable[..., Any]:
    """Return the call of a heartbeat by gRPC."""
    import asyncio

    from ._core import loop, wire
    from ._core.transport import GrpcTransport

    io = loop.io()
    roots = server["roots"].encode() if server.get("roots") else None
    to = GrpcTransport(io.loop, address, roots or bool(server.get("tls")))
    answer = wire.message("HeartbeatResponse")

    def start(request: bytes, timeout: float, metadata: Sequence[tuple[str, str]]) -> Future[Any]:
        call = to.unary("TaskService/Heartbeat", request, answer, metadata, timeout)
        return asyncio.run_coroutine_threadsafe(call, io.loop)

    return start


def _over_rest(server: dict[str, Any]) -> Callable[..., Any]:
    """Return the call of a heartbeat by a request of REST."""
    from ._core import restjson, web, wire
    from ._core.rest import RestTransport

    url, roots = server["rest"], server["roots"].encode() if server.get("roots") else None
    scheme, _, host = url.partition("://")
    dialer = web.Dialer(lambda _: scheme == "https", roots)

    def call(request: bytes, timeout: float, metadata: Sequence[tuple[str, str]]) -> Any:
        m = wire.message("HeartbeatRequest").FromString(request)
        q = RestTransport.caller(metadata).request(restjson.prepare("TaskService/Heartbeat", m))
        a = dialer.send(host, q, web.Job(), timeout)
        if not a.ok:
            raise a.refusal()
        got = wire.message("HeartbeatResponse")()
        a.read(got)
        return got

    # A thread for each partition that waits: they are renewed at the same time.
    pool = ThreadPoolExecutor(8, thread_name_prefix="millrace-renew")

    def start(request: bytes, timeout: float, metadata: Sequence[tuple[str, str]]) -> Future[Any]:
        return pool.submit(call, request, timeout, metadata)

    return start


if __name__ == "__main__":
    Helper().run()
