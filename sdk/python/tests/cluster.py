"""A cluster of real servers on this machine: three nodes, plain text for clients on loopback."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import millrace_sdk as mr


def _reserve(n: int) -> list[socket.socket]:
    """Take n ports on which nothing listens, by the UDP sockets of the same numbers, as the tests of all languages do.

    The kernel draws none of them by itself. They are free again when the sockets are closed.
    """
    held: list[socket.socket] = []
    while len(held) < n:
        lock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            lock.bind(("127.0.0.1", random.randrange(10_000, 32_700)))
        except OSError:  # another test has it
            lock.close()
            continue
        with socket.socket() as s:
            unused = s.connect_ex(lock.getsockname()) == errno.ECONNREFUSED
        if unused:
            held.append(lock)
        else:
            lock.close()
    return held


class Cluster:
    """The nodes, by number from 1."""

    def __init__(self, base: pathlib.Path, nodes: int) -> None:
        self._base = base
        self._program = os.environ["MILLRACE_BIN"]
        self._made = base / "init"
        self._command("cluster", "init", "--shards", "4", "--nodes", str(nodes), "--dir", str(self._made))
        row = self._command("token", "--name", "test", "--role", "admin")
        self.token: str = row["token"]
        (base / "tokens.yaml").write_text(
            f"tokens:\n  - name: test\n    tenant: default\n    hash: {row['hash']}\n    roles: [admin, operator]\n"
        )
        self._reserved = _reserve(2 * nodes)
        ports = [f"127.0.0.1:{lock.getsockname()[1]}" for lock in self._reserved]
        self._peers, self.api = ports[:nodes], ports[nodes:]
        self._running: dict[int, subprocess.Popen[str]] = {}

    def _command(self, *args: str) -> Any:
        out = subprocess.run([self._program, *args, "--json"], check=True, capture_output=True, text=True).stdout
        return json.loads(out.splitlines()[0])

    @property
    def url(self) -> str:
        return ",".join(self.api)

    def client(self, **options: Any) -> mr.Client:
        return mr.Client(self.url, token=self.token, tls=False, **options)

    def launch(self, node: int) -> None:
        """Start a node."""
        peers = ",".join(f"{i + 1}={p}/{a}" for i, (p, a) in enumerate(zip(self._peers, self.api, strict=True)))
        args = ["serve", "--json", "--config", str(self._made / f"n{node}" / "millrace.yaml")]
        args += ["--data", str(self._base / f"data{node}"), "--tokens", str(self._base / "tokens.yaml")]
        args += ["--listen", self.api[node - 1], "--peer-listen", self._peers[node - 1], "--peers", peers]
        args += ["--admin", "off", "--http", "off", "--memory", "256MiB", "--disk-reserve", "16777216"]
        with open(self._base / f"log{node}", "ab") as log:
            self._running[node] = subprocess.Popen(
                [self._program, *args], stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True
            )

    def await_ready(self, node: int) -> None:
        """Wait for the line that says where the node serves."""
        out = self._running[node].stdout
        assert out is not None
        line = out.readline()
        assert line, (self._base / f"log{node}").read_text()[-2000:]

    def kill(self, node: int) -> None:
        """End a node at once."""
        p = self._running.pop(node)
        p.send_signal(signal.SIGCONT)
        p.kill()
        p.wait()
        assert p.stdout is not None
        p.stdout.close()

    def pause(self, node: int) -> None:
        """Have a node hang: it keeps its connections."""
        self._running[node].send_signal(signal.SIGSTOP)

    def led(self, namespace: str) -> list[str]:
        """Return by partition the address of its leader, as a node says that knows all of them."""
        with self.client(namespace=namespace) as c:
            answer = c.raw.QueueService.GetNamespace()
        return [p.address for p in answer.partitions]

    def close(self) -> None:
        for node in list(self._running):
            self.kill(node)
        for lock in self._reserved:
            lock.close()


@contextmanager
def cluster(nodes: int = 3) -> Iterator[Cluster]:
    """Run a cluster in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="millrace-") as name:
        c = Cluster(pathlib.Path(name), nodes)
        try:
            for node in range(1, nodes + 1):
                c.launch(node)
            for node in range(1, nodes + 1):
                c.await_ready(node)
            yield c
        finally:
            c.close()
