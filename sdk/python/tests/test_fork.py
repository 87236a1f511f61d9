"""Processes that are forked from one in which a client is used already."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fake import WITHIN, Fake, Stream

from millrace_sdk._core import http2

# As a server of web applications does that loads the application before it forks: the client is made and used in the
# parent, used by threads of each child, and again in the parent; then each child ends by a signal.
PRELOADED = """
import os, signal, sys, threading
import millrace_sdk as mr

note = mr.Job[str, str]("note")
client = mr.Client(os.environ["MILLRACE_URL"], timeout=10.0)
note.add(client, "parent")


def serve(n):
    read, write = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(write, b"x"))
    calls = [threading.Thread(target=note.add, args=(client, f"child {n}")) for _ in range(3)]
    for c in calls:
        c.start()
    for c in calls:
        c.join()
    os.write(done, b".")
    os.read(read, 1)
    client.close()


ready, done = os.pipe()
children = []
for n in range(2):
    pid = os.fork()
    if pid == 0:
        serve(n)
        sys.exit(0)
    children.append(pid)
for _ in children:
    assert os.read(ready, 1) == b"."
note.add(client, "parent again")
for pid in children:
    os.kill(pid, signal.SIGTERM)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
note.add(client, "parent at last")
client.close()
print("ended")
"""

# The parent closes its client while a child, which has inherited its sockets, goes on.
CLOSED = """
import os, sys
import millrace_sdk as mr

client = mr.Client(os.environ["MILLRACE_URL"], timeout=10.0)
mr.Job[str, str]("note").add(client, "parent")
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(write)
    os.read(read, 1)  # until the parent has ended
    os._exit(0)
os.close(read)
client.close(0.1)
print("closed", flush=True)
sys.stdin.read()
os.close(write)
os.waitpid(pid, 0)
"""


def test_a_child_that_closes_a_socket_does_not_end_the_connection() -> None:
    ours, theirs = socket.socketpair()
    sock = http2._Socket(fileno=ours.detach())
    sock.pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        sock.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    with theirs:
        theirs.sendall(b"still there")
        assert sock.recv(100) == b"still there"
        sock.close()
        assert theirs.recv(100) == b""


@pytest.fixture
def fake() -> Iterator[Fake]:
    f = Fake()
    yield f
    f.close()


def start(fake: Fake, program: str) -> subprocess.Popen[str]:
    source = str(pathlib.Path(__file__).parents[1] / "src")
    env = os.environ | {"MILLRACE_URL": fake.url, "PYTHONPATH": source}
    pipe = subprocess.PIPE
    # Python itself warns of each fork beside threads.
    warnings = ["-W", "default", "-W", "ignore:This process:DeprecationWarning"]
    return subprocess.Popen(
        [sys.executable, *warnings, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe, env=env, text=True
    )


def test_a_client_that_is_loaded_before_the_fork(fake: Fake) -> None:
    added: dict[bytes, list[str]] = {}  # by session

    def play(s: Stream) -> None:
        hello = s.greet()
        mine = added.setdefault(hello.session, [])
        while (f := s.recv("create")) is not None:
            mine += [t.payload.decode() for t in f.tasks]
            s.send(ack={"seq": f.seq, "created": [{"id": t.id} for t in f.tasks]})
        s.end()

    def serve() -> None:
        while True:
            try:
                s = fake.accept(4 * WITHIN)
            except Exception:
                return
            threading.Thread(target=play, args=(s,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with start(fake, PRELOADED) as p:
        out, err = p.communicate(timeout=4 * WITHIN)
    assert (out, err, p.returncode) == ("ended\n", "", 0)
    assert sorted(added.values(), key=lambda a: a[0]) == [
        ["child 0"] * 3,
        ["child 1"] * 3,
        ["parent", "parent again", "parent at last"],
    ]


def test_a_server_hears_of_the_end_though_a_child_has_the_socket(fake: Fake) -> None:
    with start(fake, CLOSED) as p:
        s = fake.accept()
        s.greet()
        f: Any = s.recv("create")
        s.send(ack={"seq": f.seq, "created": [{"id": t.id} for t in f.tasks]})
        assert p.stdout is not None and p.stdout.readline() == "closed\n"
        assert s.recv() is None
        assert s.gone.wait(WITHIN)  # the connection has ended, and not this side of the stream alone
        _, err = p.communicate(timeout=WITHIN)
    assert (err, p.returncode) == ("", 0)
