"""The client of HTTP/2 and gRPC, against a peer that plays single frames, also wrong ones."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import contextlib
import pathlib
import queue
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc_server
import pytest
from fake import WITHIN
from hpack import Decoder, Encoder
from test_fake import Background

import millrace_sdk as mr
from millrace_sdk._core import grpc, http2, loop, transport, wire
from millrace_sdk._core.faults import StatusError
from millrace_sdk._core.http2 import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
)  # fmt: skip

ANSWER = wire.message("KVGetResponse")
OK = [(":status", "200"), ("content-type", "application/grpc")]


def frame(kind: int, flags: int, stream: int, content: bytes = b"", length: int | None = None) -> bytes:
    n = len(content) if length is None else length
    return n.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content


def headers(stream: int, fields: list[tuple[str, str]], flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, Encoder().encode(fields))


def message(content: bytes, packed: int = 0) -> bytes:
    return struct.pack(">BI", packed, len(content)) + content


def trailers(stream: int, status: int = 0, **more: str) -> bytes:
    fields = [("grpc-status", str(status))] + [(k.replace("_", "-"), v) for k, v in more.items()]
    return headers(stream, fields, END_HEADERS | END_STREAM)


def answer(stream: int, rev: int) -> bytes:
    """A whole answer."""
    data = message(ANSWER(found=True, rev=rev).SerializeToString())
    return headers(stream, OK) + frame(DATA, 0, stream, data) + trailers(stream)


class Link:
    """A connection, as the server has it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(WITHIN)
        self._came = b""
        self._decoder = Decoder()

    def _read(self, n: int) -> bytes:
        while len(self._came) < n:
            got = self.sock.recv(1 << 16)
            if not got:
                raise EOFError
            self._came += got
        out, self._came = self._came[:n], self._came[n:]
        return out

    def greet(self, *settings: tuple[int, int]) -> Link:
        """Take what the client begins with, and send settings."""
        self.greeted()
        self.send(frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", k, v) for k, v in settings)))
        return self

    def greeted(self) -> None:
        """Take what the client begins with."""
        assert self._read(len(PREFACE)) == PREFACE
        kind, _, _, content = self.frame()
        given = dict(struct.iter_unpack(">HI", content))
        assert kind == SETTINGS and given[1] == 0 and given[2] == 0 and given[4] == http2.STREAM_WINDOW
        kind, _, stream, content = self.frame()
        assert kind == WINDOW_UPDATE and stream == 0

    def frame(self) -> tuple[int, int, int, bytes]:
        head = self._read(9)
        return head[3], head[4], int.from_bytes(head[5:9], "big"), self._read(int.from_bytes(head[:3], "big"))

    def next(self, kind: int) -> tuple[int, int, bytes]:
        """The next frame of a kind: its flags, its stream, and its content."""
        while True:
            got = self.frame()
            if got[0] == kind:
                return got[1:]

    def request(self) -> tuple[int, dict[str, str]]:
        """The next call: its stream and its headers."""
        flags, stream, content = self.next(HEADERS)
        while not flags & END_HEADERS:
            flags, _, more = self.next(CONTINUATION)
            content += more
        return stream, dict(self._decoder.decode(content))

    def send(self, *parts: bytes) -> None:
        self.sock.sendall(b"".join(parts))

    def ended(self) -> bool:
        """Whether the client ends the connection; what it still sends is dropped."""
        with contextlib.suppress(ConnectionError):
            while self.sock.recv(1 << 16):
                pass
        return True


class Peer:
    """A server whose connections a test plays."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(WITHIN)
        self.port: int = self._listener.getsockname()[1]
        self._links: list[Link] = []

    def accept(self) -> Link:
        sock, _ = self._listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._links.append(Link(sock))
        return self._links[-1]

    def close(self) -> None:
        self._listener.close()
        for link in self._links:
            link.sock.close()


class Client:
    """Makes calls in the I/O thread."""

    def __init__(self, address: str, tls: bytes | bool | None = None) -> None:
        self.io = loop.io()
        self.to = transport.GrpcTransport(self.io.loop, address, tls)

    def call(self, request: bytes = b"", timeout: float | None = None) -> concurrent.futures.Future[Any]:
        made = self.to.unary("KVService/Get", request, ANSWER, [("millrace-namespace", "n")], timeout)
        return asyncio.run_coroutine_threadsafe(made, self.io.loop)

    def do(self, f: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return f()

        return self.io.run(run(), WITHIN)


@pytest.fixture
def peer() -> Iterator[Peer]:
    p = Peer()
    yield p
    p.close()


@pytest.fixture
def client(peer: Peer) -> Iterator[Client]:
    c = Client(f"127.0.0.1:{peer.port}")
    yield c
    c.do(c.to.close)


def wrong(call: concurrent.futures.Future[Any]) -> StatusError:
    with pytest.raises(StatusError) as e:
        call.result(WITHIN)
    return e.value


def test_a_call_and_its_answer_in_pieces(peer: Peer, client: Client) -> None:
    call = client.call(b"abc", timeout=5.0)
    link = peer.accept().greet()
    stream, h = link.request()
    assert stream == 1 and h[":method"] == "POST" and h[":path"] == "/millrace.v1.KVService/Get"
    assert h["te"] == "trailers" and h["millrace-namespace"] == "n" and h["grpc-timeout"].endswith("m")
    assert link.next(DATA) == (END_STREAM, 1, message(b"abc"))
    for b in answer(1, 7):
        link.send(bytes((b,)))
    assert call.result(WITHIN).rev == 7
    call = client.call()  # on the same connection
    assert link.request()[0] == 3
    data = message(ANSWER(rev=8).SerializeToString())
    parts = [frame(DATA, 0, 3, data[i : i + 1]) for i in range(len(data))]
    block = Encoder().encode(OK)
    link.send(
        headers(3, [(":status", "100")]),
        frame(HEADERS, WITH_PRIORITY | PADDED, 3, b"\x02" + bytes(5) + block[:1] + b"xx"),
        frame(CONTINUATION, END_HEADERS, 3, block[1:]),
        *parts,
        frame(DATA, PADDED, 3, b"\x03xyz"),
        frame(0x2, 0, 3, bytes(5)),  # a priority
        frame(0xBE, 0, 3, b"of a type that is not known"),
        trailers(3),
    )
    assert call.result(WITHIN).rev == 8


def test_settings_and_pings_are_answered(peer: Peer, client: Client) -> None:
    call = client.call()
    link = peer.accept().greet()
    assert link.next(SETTINGS) == (ACK, 0, b"")
    link.send(frame(PING, 0, 0, b"12345678"), frame(PING, ACK, 0, b"87654321"))
    assert link.next(PING) == (ACK, 0, b"12345678")
    link.send(answer(1, 1))
    assert call.result(WITHIN).rev == 1


PROTOCOL, FLOW, SIZE, PACKING, CALM = 0x1, 0x3, 0x6, 0x9, 0xB
BAD: dict[str, tuple[bytes, int]] = {
    "a frame that is too long": (frame(DATA, 0, 1, length=16385), SIZE),
    "data of a stream that never was": (frame(DATA, 0, 9, b"x"), PROTOCOL),
    "data of the connection": (frame(DATA, 0, 0, b"x"), PROTOCOL),
    "headers of a stream that never was": (headers(9, OK), PROTOCOL),
    "headers of a stream of the server's": (headers(2, OK), PROTOCOL),
    "a push": (frame(PUSH_PROMISE, END_HEADERS, 1, bytes(4)), PROTOCOL),
    "padding that is longer than its frame": (frame(DATA, PADDED, 1, b"\x05xx"), PROTOCOL),
    "padding of nothing": (frame(HEADERS, PADDED | END_HEADERS, 1), PROTOCOL),
    "a priority that is cut": (frame(HEADERS, WITH_PRIORITY | END_HEADERS, 1, b"xx"), SIZE),
    "headers that are no headers": (frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\x0f"), PACKING),
    "headers that end in a text": (frame(HEADERS, END_HEADERS, 1, b"\x00\x7fab"), PACKING),
    "headers that go on in another frame": (frame(HEADERS, 0, 1, b"\x88") + frame(PING, 0, 0, bytes(8)), PROTOCOL),
    "headers that go on in another stream": (frame(HEADERS, 0, 1, b"\x88") + frame(CONTINUATION, 0, 3), PROTOCOL),
    "a continuation of nothing": (frame(CONTINUATION, END_HEADERS, 1), PROTOCOL),
    "headers without end": (frame(HEADERS, 0, 1, b"\x88") + frame(CONTINUATION, 0, 1, bytes(16384)) * 5, CALM),
    "headers in empty parts": (frame(HEADERS, 0, 1, b"\x88") + frame(CONTINUATION, 0, 1), CALM),
    "headers that unpack to too much": (headers(1, [("a" * 100, "b" * 3000)] * 30), PACKING),
    "settings of a stream": (frame(SETTINGS, 0, 1), PROTOCOL),
    "settings of a wrong length": (frame(SETTINGS, 0, 0, b"xxxxx"), SIZE),
    "an answer to settings with content": (frame(SETTINGS, ACK, 0, bytes(6)), SIZE),
    "a longest frame that is too short": (frame(SETTINGS, 0, 0, struct.pack(">HI", 5, 100)), PROTOCOL),
    "a first window that is too large": (frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 31)), FLOW),
    "a ping of a wrong length": (frame(PING, 0, 0, b"1"), SIZE),
    "a ping of a stream": (frame(PING, 0, 1, bytes(8)), PROTOCOL),
    "a farewell that is cut": (frame(GOAWAY, 0, 0, bytes(4)), SIZE),
    "a window of a wrong length": (frame(WINDOW_UPDATE, 0, 0, b"x"), SIZE),
    "a window that grows by nothing": (frame(WINDOW_UPDATE, 0, 1, bytes(4)), PROTOCOL),
    "a window of the connection that is too large": (frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), FLOW),
    "a window of a stream that is too large": (frame(WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff"), FLOW),
    "a window of a stream that never was": (frame(WINDOW_UPDATE, 0, 9, b"\0\0\0\x01"), PROTOCOL),
    "a reset of a wrong length": (frame(RST_STREAM, 0, 1, b"x"), SIZE),
    "a reset of a stream that never was": (frame(RST_STREAM, 0, 9, bytes(4)), PROTOCOL),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_server_that_breaks_the_rules(peer: Peer, client: Client, name: str) -> None:
    bad, code = BAD[name]
    call = client.call()
    link = peer.accept().greet()
    link.request()
    link.send(bad)
    e = wrong(call)
    assert e.status == grpc.UNAVAILABLE and "broke the rules" in e.message and not e.untaken
    assert link.next(GOAWAY)[2][4:] == struct.pack(">I", code)
    assert link.ended()
    call = client.call()  # on another connection
    link = peer.accept().greet()
    link.send(answer(link.request()[0], 2))
    assert call.result(WITHIN).rev == 2


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\0",
        frame(PING, 0, 0, bytes(8)),
        frame(SETTINGS, ACK, 0),
        b"SSH-2.0-x\r\n",
    ],
)
def test_what_does_not_speak_http_2(peer: Peer, client: Client, first: bytes) -> None:
    call = client.call()
    link = peer.accept()
    link.send(first)
    link.sock.shutdown(socket.SHUT_WR)
    e = wrong(call)
    assert e.status == grpc.UNAVAILABLE and e.untaken and "does not speak HTTP/2" in e.message


def test_a_server_that_ends_at_once(peer: Peer, client: Client) -> None:
    call = client.call()
    peer.accept().sock.close()
    assert wrong(call).untaken  # no call leaves before the server has greeted
    call = client.call()
    link = peer.accept().greet()
    link.request()
    link.sock.close()
    e = wrong(call)
    assert e.status == grpc.UNAVAILABLE and not e.untaken


def test_no_call_leaves_before_the_server_has_greeted(peer: Peer, client: Client) -> None:
    first = client.call()
    link = peer.accept()
    link.greeted()
    second = client.call()
    client.do(lambda: None)  # the call has begun
    link.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        link.sock.recv(1)
    link.sock.close()
    assert wrong(first).untaken and wrong(second).untaken


def test_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    c = Client(f"127.0.0.1:{port}")
    e = wrong(c.call())
    assert e.status == grpc.UNAVAILABLE and e.untaken and f"127.0.0.1:{port} is not reached" in e.message
    e = wrong(Client("no.such.host.invalid:1").call())
    assert e.status == grpc.UNAVAILABLE and e.untaken and "is not found" in e.message


def test_a_server_that_hangs_in_tls(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "CONNECT_WITHIN", 0.1)
    e = wrong(Client(f"127.0.0.1:{peer.port}", tls=True).call())
    assert e.status == grpc.UNAVAILABLE and e.untaken and "no connection within" in e.message


@pytest.mark.parametrize("hangs", [False, True])
def test_names_with_several_addresses(peer: Peer, monkeypatch: pytest.MonkeyPatch, hangs: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        gone = s.getsockname()[1]
    row = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
    places = [(*row, ("127.0.0.1", gone)), (*row, ("127.0.0.1", peer.port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: places)
    connect = http2.Connection._connect_to

    async def hang(self: http2.Connection, family: int, place: Any) -> socket.socket:
        if place[1] == gone:
            await asyncio.Event().wait()
        return await connect(self, family, place)

    if hangs:
        monkeypatch.setattr(http2.Connection, "_connect_to", hang)
        monkeypatch.setattr(http2, "CONNECT_WITHIN", WITHIN)
    c = Client("millrace.test:1")
    call = c.call()
    link = peer.accept().greet()
    assert link.request()[1][":authority"] == "millrace.test:1"
    link.send(answer(1, 3))
    assert call.result(WITHIN).rev == 3
    c.do(c.to.close)


# Windows.


def test_a_window_of_nothing(peer: Peer, client: Client) -> None:
    call, second = client.call(b"0123456789"), client.call(b"0123456789")
    link = peer.accept().greet((4, 0))
    begun = [link.frame() for _ in range(3)]
    assert sorted(f[0] for f in begun) == [HEADERS, HEADERS, SETTINGS]
    stream, number = (f[2] for f in begun if f[0] == HEADERS)
    link.send(frame(PING, 0, 0, bytes(8)))
    assert link.frame()[:2] == (PING, ACK)  # and nothing of the calls
    body = b""
    for more in (3, 4, 100):
        link.send(frame(WINDOW_UPDATE, 0, number, struct.pack(">I", more)))
        flags, at, content = link.next(DATA)
        assert at == number and len(content) == min(more, 15 - len(body))
        body += content
    assert flags == END_STREAM and body == message(b"0123456789")
    link.send(answer(number, 2), answer(stream, 1))
    assert second.result(WITHIN).rev == 2 and call.result(WITHIN).rev == 1


def test_a_first_window_that_shrinks_below_nothing(peer: Peer, client: Client) -> None:
    call = client.call(bytes(50_000))
    link = peer.accept().greet()
    link.request()
    sent = 0
    while sent < 50_005:
        sent += len(link.next(DATA)[2])
    second = client.call(bytes(1000))  # all but 530 bytes of the connection's window are left
    number, _ = link.request()
    assert len(link.next(DATA)[2]) == 1005
    third = client.call(bytes(20_000))
    number, _ = link.request()
    assert len(link.next(DATA)[2]) == 14_525  # the rest of the connection's window
    link.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 10)))
    link.next(SETTINGS)
    link.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 20)), frame(PING, 0, 0, bytes(8)))
    assert link.frame()[0] == PING  # the stream's own window is below nothing
    link.send(frame(WINDOW_UPDATE, 0, number, struct.pack(">I", 14_525 - 10 + 100)))
    assert len(link.next(DATA)[2]) == 100
    link.send(frame(WINDOW_UPDATE, 0, number, struct.pack(">I", 1 << 20)))
    flags, _, content = link.next(DATA)
    assert flags == END_STREAM and len(content) == 20_005 - 14_525 - 100
    link.send(answer(5, 5), answer(3, 3), answer(1, 1))
    assert [c.result(WITHIN).rev for c in (call, second, third)] == [1, 3, 5]


def test_the_window_of_the_connection_bounds_all_streams(peer: Peer, client: Client) -> None:
    calls = [client.call(bytes(16_000)) for _ in range(4)]
    link = peer.accept().greet()
    for _ in calls:
        link.request()
        assert len(link.next(DATA)[2]) == 16_005
    last = client.call(bytes(1_600))
    number, _ = link.request()
    assert link.next(DATA)[::2] == (0, message(bytes(1_600))[: 65_535 - 4 * 16_005])
    link.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 20)))
    assert link.next(DATA)[:2] == (END_STREAM, number)
    link.send(*(answer(stream, stream) for stream in (1, 3, 5, 7, number)))
    assert [c.result(WITHIN).rev for c in (*calls, last)] == [1, 3, 5, 7, number]


def test_large_messages_both_ways(peer: Peer, client: Client) -> None:
    size = 9 << 20
    call = client.call(bytes(size))
    link = peer.accept().greet()
    link.request()
    sent = 0
    while sent < size + 5:
        flags, _, content = link.next(DATA)
        assert len(content) <= 16384
        sent += len(content)
        for stream in (0, 1):
            link.send(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", len(content))))
    assert flags == END_STREAM
    size = 18 << 20  # more than the window of the connection
    data = message(ANSWER(value=bytes(size)).SerializeToString())
    given = {0: http2.CONNECTION_WINDOW, 1: http2.STREAM_WINDOW}
    link.send(headers(1, OK))
    for at in range(0, len(data), 16384):
        part = data[at : at + 16384]
        while min(given.values()) < len(part):
            _, stream, more = link.next(WINDOW_UPDATE)
            given[stream] += struct.unpack(">I", more)[0]
        for stream in given:
            given[stream] -= len(part)
        link.send(frame(DATA, 0, 1, part))
    link.send(trailers(1))
    assert len(call.result(WITHIN).value) == size


def test_a_longer_frame_is_used_where_the_server_takes_it(peer: Peer, client: Client) -> None:
    first = client.call()
    link = peer.accept().greet((5, 1 << 20))
    link.send(answer(link.request()[0], 1))
    first.result(WITHIN)
    client.call(bytes(40_000))
    link.request()
    assert len(link.next(DATA)[2]) == 40_005


def test_a_stream_has_room_again(peer: Peer, client: Client) -> None:
    told: queue.Queue[str] = queue.Queue()

    def begin() -> transport.Stream:
        return client.to.open("QueueStream/Open", [], lambda f: None, lambda: told.put("room"), lambda e: None)

    stream = client.do(begin)
    link = peer.accept().greet()
    number, _ = link.request()
    client.do(lambda: stream.send(bytes(100_000)))
    assert not client.do(stream.room)
    sent = 0
    while sent < 65_535:
        sent += len(link.next(DATA)[2])
    assert sent == 65_535 and told.empty()
    for s in (0, number):
        link.send(frame(WINDOW_UPDATE, 0, s, struct.pack(">I", 1 << 20)))
    assert told.get(timeout=WITHIN) == "room" and client.do(stream.room)
    client.do(stream.close_send)
    while not link.next(DATA)[0] & END_STREAM:
        pass
    client.do(stream.cancel)
    assert link.next(RST_STREAM) == (0, number, struct.pack(">I", CANCEL))
    assert link.ended()


# The ends of calls.


def ends(peer: Peer, client: Client, *parts: bytes) -> StatusError:
    """How a call ends that is answered so."""
    call = client.call()
    link = peer.accept().greet()
    link.request()
    link.send(*parts)
    return wrong(call)


def test_trailers_alone(peer: Peer, client: Client) -> None:
    details = base64.b64encode(b"\x08\x05").decode().rstrip("=")
    h = [*OK, ("grpc-status", "5"), ("grpc-message", "no%20such%E2%82%AC"), ("grpc-status-details-bin", details)]
    e = ends(peer, client, headers(1, h, END_HEADERS | END_STREAM))
    assert (e.status, e.message, e.details) == (5, "no such€", b"\x08\x05")


def test_details_that_cannot_be_read(peer: Peer, client: Client) -> None:
    e = ends(peer, client, headers(1, OK), trailers(1, 9, grpc_message="%zz", grpc_status_details_bin="a,b"))
    assert (e.status, e.message, e.details) == (9, "%zz", b"")


@pytest.mark.parametrize(
    ("parts", "status", "text"),
    [
        ((headers(1, OK), frame(DATA, END_STREAM, 1)), 14, "without a status"),
        ((headers(1, OK, END_HEADERS | END_STREAM),), 2, ""),
        ((headers(1, OK), trailers(1)), 13, "0 answers"),
        ((headers(1, OK), frame(DATA, 0, 1, message(b"") * 2), trailers(1)), 13, "2 answers"),
        ((headers(1, OK), frame(DATA, 0, 1, message(b"abc")[:-1]), trailers(1)), 13, "within a message"),
        ((headers(1, OK), frame(DATA, 0, 1, message(b"abc", packed=1)), trailers(1)), 13, "compressed"),
        ((headers(1, OK), frame(DATA, 0, 1, b"\0\xff\xff\xff\xff")), 8, "longer than"),
        ((headers(1, OK), frame(DATA, 0, 1, message(b"\xff\xff"))), 13, "cannot be read"),
        ((headers(1, OK), headers(1, OK)), 13, "headers twice"),
        ((frame(DATA, 0, 1, message(b"")),), 13, "no headers"),
        ((headers(1, OK), trailers(1, 12345)), 2, ""),
        ((headers(1, [(":status", "503"), ("content-type", "text/html")]),), 14, "HTTP status 503"),
        ((headers(1, [(":status", "404")], END_HEADERS | END_STREAM),), 12, "HTTP status 404"),
        ((headers(1, [("content-type", "application/grpc")]),), 2, "not gRPC's"),
        ((headers(1, [(":status", "403"), ("content-type", "application/json")]),), 7, "HTTP status 403"),
    ],
)
def test_answers_that_are_no_answers(
    peer: Peer, client: Client, parts: tuple[bytes, ...], status: int, text: str
) -> None:
    e = ends(peer, client, *parts)
    assert e.status == status and text in e.message and not e.untaken


def test_a_status_beside_another_code_of_http(peer: Peer, client: Client) -> None:
    h = [(":status", "500"), ("content-type", "application/grpc"), ("grpc-status", "16")]
    assert ends(peer, client, headers(1, h, END_HEADERS | END_STREAM)).status == 16


@pytest.mark.parametrize(("code", "untaken"), [(7, True), (8, False), (2, False)])
def test_a_reset(peer: Peer, client: Client, code: int, untaken: bool) -> None:
    e = ends(peer, client, headers(1, OK), frame(RST_STREAM, 0, 1, struct.pack(">I", code)))
    assert e.status == grpc.UNAVAILABLE and e.untaken == untaken and str(code) in e.message


def test_small_frames_are_not_held_back(peer: Peer, client: Client) -> None:
    call = client.call()
    link = peer.accept().greet()
    link.send(answer(link.request()[0], 1))
    assert call.result(WITHIN).rev == 1
    (connection,) = client.to._shared
    sock = connection._transport.get_extra_info("socket")
    assert client.do(lambda: sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) != 0


def test_what_comes_after_the_end_is_dropped(peer: Peer, client: Client) -> None:
    call = client.call()
    link = peer.accept().greet()
    link.request()
    link.send(answer(1, 1), frame(DATA, 0, 1, b"late"), frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\x01"), trailers(1, 5))
    link.send(frame(RST_STREAM, 0, 1, bytes(4)))
    assert call.result(WITHIN).rev == 1
    call = client.call()
    link.send(answer(link.request()[0], 2))
    assert call.result(WITHIN).rev == 2


def test_a_timeout_and_a_cancel_reset_the_call(peer: Peer, client: Client) -> None:
    call = client.call(timeout=0.1)
    link = peer.accept().greet()
    link.request()
    e = wrong(call)
    assert e.status == grpc.DEADLINE_EXCEEDED and not e.untaken
    assert link.next(RST_STREAM) == (0, 1, struct.pack(">I", CANCEL))
    call = client.call()
    link.request()
    call.cancel()
    assert link.next(RST_STREAM) == (0, 3, struct.pack(">I", CANCEL))


def test_a_cancel_of_the_server_after_the_timeout_is_the_timeout(
    peer: Peer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = transport._Call._late
    held = threading.Event()
    monkeypatch.setattr(transport._Call, "_late", lambda call: late(call) if held.is_set() else held.set())
    call = client.call(timeout=0.05)
    link = peer.accept().greet()
    link.request()
    assert held.wait(WITHIN)  # the timer of this side is over, and found nothing to do
    link.send(frame(RST_STREAM, 0, 1, struct.pack(">I", CANCEL)))
    e = wrong(call)
    assert e.status == grpc.DEADLINE_EXCEEDED and not e.untaken


def test_a_timeout_before_the_connection_is_made() -> None:
    with socket.socket() as s:  # it accepts nothing, so that TLS has no answer
        s.bind(("127.0.0.1", 0))
        s.listen()
        e = wrong(Client(f"127.0.0.1:{s.getsockname()[1]}", tls=True).call(timeout=0.05))
    assert e.status == grpc.DEADLINE_EXCEEDED and e.untaken


def test_a_call_that_was_not_taken_is_refused(peer: Peer) -> None:
    with mr.Client(f"127.0.0.1:{peer.port}", tls=False, transport="stream", timeout=0.3) as c:
        with pytest.raises(mr.DeadlineExceeded) as late:
            c.task("a")  # the server does not greet
        assert late.value.outcome == "refused"
    with mr.Client(f"127.0.0.1:{peer.port}", tls=False, transport="stream", timeout=WITHIN) as c:
        call = Background(lambda: c.cancel("a"))
        peer.accept().sock.close()  # of the client before
        link = peer.accept().greet()
        stream, _ = link.request()
        link.send(frame(RST_STREAM, 0, stream, struct.pack(">I", 7)))
        stream, _ = link.request()  # it is made again
        error = wire.Error(code="NOT_FOUND", message="gone")
        status = wire.Status(code=5)
        status.details.add(type_url="type.googleapis.com/millrace.v1.Error", value=error.SerializeToString())
        details = base64.b64encode(status.SerializeToString()).decode()
        fields = [*OK, ("grpc-status", "5"), ("grpc-status-details-bin", details)]
        link.send(headers(stream, fields, END_HEADERS | END_STREAM))
        with pytest.raises(mr.NotFound) as e:
            call.end()
        assert e.value.outcome == "refused"


def test_headers_that_cannot_be_sent(client: Client) -> None:
    made = client.to.unary("KVService/Get", b"", ANSWER, [("millrace-namespace", "ü")], None)
    e = wrong(asyncio.run_coroutine_threadsafe(made, client.io.loop))
    assert e.status == grpc.INVALID_ARGUMENT and "millrace-namespace" in e.message


def test_a_message_that_is_too_long(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc, "MESSAGE_BYTES", 10)
    e = wrong(client.call(bytes(11)))
    assert e.status == grpc.RESOURCE_EXHAUSTED and e.untaken and "11 bytes" in e.message


def test_long_headers_are_continued(peer: Peer, client: Client) -> None:
    made = client.to.unary("KVService/Get", b"", ANSWER, [("authorization", "x" * 40_000)], None)
    call = asyncio.run_coroutine_threadsafe(made, client.io.loop)
    link = peer.accept().greet()
    link._decoder.max_header_list_size = 1 << 20
    stream, h = link.request()
    assert h["authorization"] == "x" * 40_000
    link.send(answer(stream, 1))
    assert call.result(WITHIN).rev == 1


# The ends of connections.


def test_a_server_that_goes_away(peer: Peer, client: Client) -> None:
    first, second = client.call(), client.call()
    link = peer.accept().greet()
    link.request()
    link.request()
    link.send(frame(GOAWAY, 0, 0, struct.pack(">II", 1, 0) + b"bye"))
    assert wrong(second).untaken
    third = client.call()  # on another connection
    other = peer.accept().greet()
    other.send(answer(other.request()[0], 3))
    assert third.result(WITHIN).rev == 3
    link.send(answer(1, 1))  # the call that it took goes on
    assert first.result(WITHIN).rev == 1
    assert link.ended()


def test_as_many_calls_as_the_server_allows(peer: Peer, client: Client) -> None:
    first = client.call()
    link = peer.accept().greet((3, 1))
    link.request()
    link.next(SETTINGS)
    second = client.call()
    other = peer.accept().greet((3, 1))
    other.request()
    other.send(answer(1, 2))
    assert second.result(WITHIN).rev == 2
    link.send(answer(1, 1))
    assert first.result(WITHIN).rev == 1


def test_pings_find_a_server_that_is_gone(peer: Peer, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "PING_AFTER", 0.05)
    monkeypatch.setattr(http2, "PING_WITHIN", 0.5)
    call = client.call()
    link = peer.accept().greet()
    for _ in range(3):  # whatever comes tells that the server is there
        content = link.next(PING)[2]
        link.send(frame(PING, ACK, 0, content))
    assert not call.done()
    link.next(PING)
    e = wrong(call)
    assert e.status == grpc.UNAVAILABLE and "no answer to a ping" in e.message and not e.untaken
    assert link.ended()


def test_a_server_that_asks_and_does_not_read(peer: Peer, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "_UNREAD", 1 << 16)
    call = client.call()
    link = peer.accept().greet()
    link.request()
    with contextlib.suppress(OSError):
        for _ in range(2000):  # more than the buffers of both sides hold
            link.send(frame(PING, 0, 0, bytes(8)) * 1000)
    assert "reads none" in wrong(call).message


def test_closing_ends_what_is_open(peer: Peer, client: Client) -> None:
    call = client.call()
    link = peer.accept().greet()
    link.request()
    client.do(client.to.close)
    assert wrong(call).status == grpc.UNAVAILABLE
    assert link.ended()


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, pathlib.Path]:
    at = tmp_path_factory.mktemp("tls")
    key, cert = at / "key.pem", at / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=millrace.test"]
    command = [*make, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return key, cert


class Secure(grpc_server.Server):
    """A server that speaks TLS."""

    def __init__(self, files: tuple[pathlib.Path, pathlib.Path], protocols: list[str]) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files[1], files[0])
        if protocols:
            self._context.set_alpn_protocols(protocols)
        super().__init__()

    def wrap(self, sock: socket.socket) -> socket.socket:
        return self._context.wrap_socket(sock, server_side=True)


def test_tls(certificate: tuple[pathlib.Path, pathlib.Path]) -> None:
    server, http1 = Secure(certificate, ["h2"]), Secure(certificate, [])
    roots = certificate[1].read_bytes()
    server.calls["Get"] = lambda request: ANSWER(rev=4, value=bytes(3 << 20)).SerializeToString()
    try:
        c = Client(server.url, roots)
        assert c.call(bytes(1 << 20)).result(WITHIN).rev == 4
        c.do(c.to.close)
        e = wrong(Client(server.url, True).call())  # of an authority that the system does not know
        assert e.status == grpc.UNAVAILABLE and e.untaken and "certificate" in e.message
        e = wrong(Client(f"localhost:{server.port}", roots).call())  # a name that the certificate does not have
        assert e.status == grpc.UNAVAILABLE and e.untaken and "ertificate" in e.message
        e = wrong(Client(http1.url, roots).call())
        assert e.status == grpc.UNAVAILABLE and e.untaken and "does not offer HTTP/2" in e.message
        with mr.Client(server.url, tls=roots, transport="stream") as whole:
            assert whole.kv("s").get("k").rev == 4
    finally:
        server.close()
        http1.close()


def test_no_thread_is_left_behind(peer: Peer, client: Client) -> None:
    before = threading.active_count()
    calls = [client.call() for _ in range(20)]
    link = peer.accept().greet()
    for _ in calls:
        link.send(answer(link.request()[0], 1))
    for c in calls:
        c.result(WITHIN)
    assert threading.active_count() <= before
