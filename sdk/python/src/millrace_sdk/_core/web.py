"""Requests of HTTP: the threads that carry them, the hosts where they go, and the errors that they end with.

One pool of threads serves all clients of a process. Requests that wait at the server, such as claims, are for a part of
the threads only, so that renewals and calls always find one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import email.utils
import http.client
import os
import re
import socket
import ssl
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit

from . import restjson, wire
from .faults import StatusError
from .loop import IOLoop

T = TypeVar("T")

URGENT, WORK, LONG = range(3)  # renewals; all other requests; those that wait at the server

_THREADS = 16
_LONG_THREADS = 10  # of these
_IDLE_THREAD = 30.0  # seconds after which a thread without work ends
CALL_WITHIN = 40.0  # seconds for an answer: servers end a call after 30
PROBE_WITHIN = 3.0  # seconds: a call waits for it
_CONNECT_WITHIN = 10.0  # seconds
_IDLE = 30.0  # seconds that a connection is kept: servers and proxies close theirs after 60
_ANSWER_BYTES = 32 << 20  # several large payloads as base64
_REDIRECTS = 3  # one leads to the leader; more are of proxies, or of a leader that has just changed
_UNLED_FOR, _UNLED_MOST = 0.3, 5.0  # seconds that a host which knows of no leader is given, at first and at most

# What gRPC calls each code of the contract.
STATUS = {
    "INVALID_ARGUMENT": 3, "TOO_LARGE": 3, "UNAUTHENTICATED": 16, "PERMISSION_DENIED": 7, "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6, "LEASE_LOST": 9, "WRONG_STATE": 9, "PRECONDITION_FAILED": 9, "WRONG_PARTITION": 9,
    "RATE_LIMITED": 8, "RESOURCE_EXHAUSTED": 8, "NOT_LEADER": 14, "UNAVAILABLE": 14, "DEADLINE_EXCEEDED": 4,
    "INTERNAL": 13, "DATA_LOSS": 15,
}  # fmt: skip

SERVER, BETWEEN, NONE = (
    "server",
    "between",
    "none",
)  # who ended a request: Millrace, something on the way, or no answer came


class RestError(StatusError):
    """The end of a request that did not succeed: a status of gRPC with the error of the contract in it."""

    def __init__(self, e: Any, origin: str) -> None:
        st = wire.Status(code=STATUS.get(e.code, 2), message=e.message)
        st.details.add(type_url="type.googleapis.com/millrace.v1.Error", value=e.SerializeToString())
        super().__init__(st.code, e.message, st.SerializeToString())
        self.wire = e
        self.origin = origin

    @property
    def left(self) -> bool:
        """Whether the request may have been applied."""
        return bool(self.wire.outcome == 1)


def unanswered(host: str, left: bool, why: object) -> RestError:
    """Make the error of a request without an answer. One that never left changed nothing."""
    e = wire.Error(code="UNAVAILABLE", message=f"REST at {host}: {why}", outcome=1 if left else 0)
    return RestError(e, NONE)


def refused_here(field: str, message: str) -> RestError:
    """Make the error of a request that no server would take."""
    return RestError(wire.Error(code="INVALID_ARGUMENT", field=field, message=message), SERVER)


class Request(NamedTuple):
    """One request, ready to be sent."""

    verb: str
    path: str  # escaped, with the query
    body: bytes | None
    headers: dict[str, str]


class Answer:
    """The answer to a request."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def ok(self) -> bool:
        """Whether it is a success."""
        return 200 <= self.status < 300

    def text(self) -> str:
        """Return the body as text, which JSON is."""
        return self.body.decode(errors="replace")

    def _json(self) -> bool:
        return (self.headers.get("Content-Type") or "").partition(";")[0].strip().lower() == "application/json"

    def read(self, into: Any) -> None:
        """Read the object of the answer. What is not such an object was not written by Millrace."""
        try:
            if not self._json():
                raise restjson.BadAnswer("it is not JSON")
            restjson.read(self.text(), into)
        except restjson.BadAnswer:
            raise self.between() from None

    def at(self, into: Any) -> None:
        """Read where the answer stands in the log: partition/epoch/index. What is missing is zero."""
        found = re.fullmatch(r"(\d{1,9})/(\d{1,9})/(\d{1,19})", self.headers.get("Millrace-Index") or "")
        into.SetInParent()
        if found:
            into.partition, into.epoch, into.index = (int(n) for n in found.groups())

    def refusal(self) -> RestError:
        """Read the error of an answer that is not a success."""
        text = restjson.member(self.text(), "error") if self._json() else None
        if text is not None:
            e = wire.Error()
            try:
                restjson.read(text, e)
            except restjson.BadAnswer:
                return self.between()
            if e.code in STATUS:  # an object with an error of some other form is not Millrace's
                if not e.HasField("retry_after"):
                    self._retry_after(e)
                return RestError(e, SERVER)
        return self.between()

    def between(self) -> RestError:
        """Make the error of an answer that Millrace did not write: by a proxy, or by another server."""
        # These statuses are of what looked at the request and did not pass it on.
        code = {
            401: "UNAUTHENTICATED", 407: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 429: "RATE_LIMITED",
            413: "TOO_LARGE", 414: "TOO_LARGE", 431: "TOO_LARGE", 404: "INVALID_ARGUMENT", 405: "INVALID_ARGUMENT",
        }.get(self.status)  # fmt: skip
        reason = http.client.responses.get(self.status, "")
        text = f"something between here and the server answered {self.status} {reason}".rstrip()
        e = wire.Error(code=code or "UNAVAILABLE", message=text, outcome=0 if code else 1)
        self._retry_after(e)
        return RestError(e, BETWEEN)

    def _retry_after(self, e: Any) -> None:
        """Read how long the header asks to wait: seconds, or a date."""
        text = (self.headers.get("Retry-After") or "").strip()
        if text.isdigit() and len(text) < 10:
            wire.set_span(e.retry_after, float(text))
        elif text:
            with contextlib.suppress(ValueError, TypeError, IndexError, OverflowError):
                wire.set_span(
                    e.retry_after, max(email.utils.parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
                )


class Job:
    """A request in the pool: another thread may end it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._conn: Any = None
        self.over = False

    def hold(self, conn: Any) -> bool:
        """Note the connection that the request is on; false: it is not wanted any more."""
        with self._lock:
            self._conn = conn
            return not self.over

    def cancel(self) -> None:
        """End the request. What had left may still be applied."""
        with self._lock:
            self.over = True
            sock = getattr(self._conn, "sock", None)
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)


class Pool:
    """Threads of this process that carry requests. They begin when there is work, and end without it."""

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._queues: tuple[deque[Callable[[], None]], ...] = (deque(), deque(), deque())
        self._threads = 0
        self._idle = 0
        self.long = 0  # requests under way that wait at the server

    def submit(self, kind: int, work: Callable[[], None]) -> None:
        """Have work done by a thread."""
        with self._ready:
            self._queues[kind].append(work)
            self._ready.notify()
            if self._idle < sum(map(len, self._queues)) and self._threads < _THREADS:
                self._threads += 1
                threading.Thread(target=self._run, name="millrace-rest", daemon=True).start()

    def roomy(self) -> bool:
        """Report whether a request may wait at the server for long without keeping others from their turn."""
        return self.long < _LONG_THREADS // 2 and not self._queues[LONG]

    def _next(self) -> tuple[int, Callable[[], None]] | None:
        for kind in (URGENT, WORK, LONG):
            if self._queues[kind] and (kind != LONG or self.long < _LONG_THREADS):
                self.long += kind == LONG
                return kind, self._queues[kind].popleft()
        return None

    def _run(self) -> None:
        while True:
            with self._ready:
                found = self._next()
                while found is None:
                    self._idle += 1
                    told = self._ready.wait(_IDLE_THREAD)
                    self._idle -= 1
                    found = self._next()
                    if found is None and not told:
                        self._threads -= 1
                        return
            kind, work = found
            try:
                work()
            finally:
                if kind == LONG:
                    with self._ready:
                        self.long -= 1
                        self._ready.notify()  # one of those that wait may begin


_pool: Pool | None = None
_pool_lock = threading.Lock()


def pool() -> Pool:
    """Return the threads of this process."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = Pool()
        return _pool


def _after_fork() -> None:
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class Caller(NamedTuple):
    """Who makes requests: what each of them says of its client."""

    namespace: str
    token: str
    agent: str

    def request(self, p: restjson.Prepared, more: Sequence[tuple[str, str]] = ()) -> Request:
        """Make a request of what was prepared."""
        headers = {"User-Agent": self.agent}
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        if p.match:
            headers["If-Match"] = p.match
        body = None
        if p.body is not None:
            headers["Content-Type"] = "application/json"
            body = p.body.encode(errors="replace")
        query = urlencode([("ns", self.namespace), *p.query, *more], quote_via=quote)
        return Request(p.verb, p.path + "?" + query, body, headers)


class Dialer:
    """Connections to hosts, which are kept for the next request. Its methods are for the threads of the pool."""

    def __init__(self, secure: Callable[[str], bool], roots: bytes | None) -> None:
        self.secure = secure
        self._roots = roots
        self._context: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._kept: dict[str, list[tuple[Any, float]]] = {}
        self._closed = False

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context(cadata=self._roots.decode() if self._roots else None)
        return self._context

    def _new(self, host: str, secure: bool) -> Any:
        name, _, port = host.rpartition(":")
        name = name.strip("[]")
        via = _proxy_of(name, "https" if secure else "http")
        at = (via.hostname or "", via.port or 80) if via else (name, int(port))
        conn: Any
        if secure:
            conn = http.client.HTTPSConnection(*at, timeout=_CONNECT_WITHIN, context=self._tls())
        else:
            conn = http.client.HTTPConnection(*at, timeout=_CONNECT_WITHIN)
        if via:
            headers = {}
            if via.username:
                pair = f"{unquote(via.username)}:{unquote(via.password or '')}"
                headers["Proxy-Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
            conn.set_tunnel(name, int(port), headers)
        return conn

    def _take(self, key: str) -> Any:
        """Return a connection that was kept and that the other side has not closed."""
        while True:
            with self._lock:
                kept = self._kept.get(key)
                if not kept:
                    return None
                conn, since = kept.pop()
            if time.monotonic() - since < _IDLE and _alive(conn.sock):
                return conn
            conn.close()

    def _keep(self, key: str, conn: Any) -> None:
        with self._lock:
            if not self._closed:
                self._kept.setdefault(key, []).append((conn, time.monotonic()))
                return
        conn.close()

    def close(self) -> None:
        """Close what is kept; what is under way ends with its answer."""
        with self._lock:
            self._closed = True
            kept, self._kept = self._kept, {}
        for conns in kept.values():
            for conn, _ in conns:
                conn.close()

    def send(self, host: str, q: Request, job: Job, within: float) -> Answer:
        """Send a request to a host and where it redirects, and return the answer. It raises RestError."""
        secure = self.secure(host)
        answer = self._once(host, secure, q, job, within)
        for hop in range(_REDIRECTS + 1):
            to = self._redirect(answer, host, secure)
            if to is None or hop == _REDIRECTS:
                break
            host, path = to
            q = q._replace(path=path)
            answer = self._once(host, secure, q, job, within)
        return answer

    def _redirect(self, a: Answer, host: str, secure: bool) -> tuple[str, str] | None:
        """Return where an answer sends the request, if that is not a step down to clear text."""
        location = a.headers.get("Location") or ""
        if a.status not in (307, 308) or not location:
            return None
        scheme = "https" if secure else "http"
        try:
            to = urlsplit(urljoin(f"{scheme}://{host}/", location))
            at = to.netloc.rpartition("@")[2]
            if to.port is None:
                at += ":443" if secure else ":80"
        except ValueError:
            return None
        if to.scheme != scheme or (not secure and self.secure(at)):
            return None  # clear text leaves this machine only where it was asked for
        return at, to.path + ("?" + to.query if to.query else "")

    def _once(self, host: str, secure: bool, q: Request, job: Job, within: float) -> Answer:
        key = ("https://" if secure else "http://") + host
        left, conn = False, self._take(key)
        try:
            if conn is None:
                conn = self._new(host, secure)
                conn.timeout = min(_CONNECT_WITHIN, within)
                conn.connect()
            if not job.hold(conn):
                raise OSError("the caller has left")
            conn.sock.settimeout(within)
            # From here on the server may act on the request, whether or not its body or the answer is lost.
            left = True
            conn.request(q.verb, q.path, q.body, q.headers)
            r = conn.getresponse()
            body = r.read(_ANSWER_BYTES + 1)
            if len(body) > _ANSWER_BYTES:
                raise OSError(f"the answer is longer than {_ANSWER_BYTES} bytes")
            answer = Answer(r.status, r.headers, body)
            job.hold(None)
            if r.will_close or not r.isclosed():
                conn.close()
            else:
                self._keep(key, conn)
            return answer
        except (OSError, http.client.HTTPException, ValueError) as e:
            job.hold(None)
            if conn is not None:
                conn.close()
            why = "no answer came in time" if isinstance(e, TimeoutError) else (str(e) or type(e).__name__)
            raise unanswered(host, left, why) from None


def _alive(sock: Any) -> bool:
    """Report whether a connection without a request has nothing to read: an end would be something."""
    if sock is None:
        return False
    try:
        sock.setblocking(False)
        socket.socket.recv(sock, 1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except (OSError, ValueError):
        return False
    return False


def _proxy_of(host: str, scheme: str) -> Any:
    """Return the proxy that the environment names for a host, None for a host of this machine."""
    if host == "localhost" or host == "::1" or host.startswith("127."):
        return None
    url = urllib.request.getproxies_environment().get(scheme)
    if not url or urllib.request.proxy_bypass_environment(host):  # type: ignore[attr-defined]
        return None
    return urlsplit(url if "//" in url else "//" + url)


class Web:
    """The hosts where REST of one cluster may be. All but the work in threads is the I/O thread's."""

    def __init__(self, io: IOLoop, hosts: Sequence[str], dialer: Dialer) -> None:
        self._io = io
        self._hosts = list(hosts)
        self._dialer = dialer
        self.host = ""  # the one that answered last; empty before one did
        self._probing: asyncio.Future[None] | None = None
        self._unled_since, self._unled_last, self._left = 0.0, 0.0, 0

    async def run(self, kind: int, work: Callable[[], T], job: Job) -> T:
        """Do work in a thread, and return what it returns."""
        done: asyncio.Future[T] = self._io.loop.create_future()

        def settle(value: Any, e: BaseException | None) -> None:
            if not done.done():
                done.set_result(value) if e is None else done.set_exception(e)

        def carry() -> None:
            value: Any = None
            wrong: BaseException | None = None
            try:
                if job.over:
                    raise unanswered(self.host, False, "the caller has left")
                value = work()
            except Exception as e:
                wrong = e
            try:
                self._io.post(settle, value, wrong)
            except RuntimeError:
                pass  # the process ends

        pool().submit(kind, carry)
        try:
            return await done
        except asyncio.CancelledError:
            job.cancel()
            raise

    async def call(
        self,
        make: Callable[[], Request],
        read: Callable[[Answer], T],
        *,
        kind: int = WORK,
        wait: float = 0.0,
        job: Job | None = None,
    ) -> T:
        """Send a request, and return what read makes of its answer, all in a thread. It raises StatusError."""
        # The first call, and the first after a host was lost, looks for one that answers.
        if not self.host:
            await self.probe()
        host, job = self.host, job or Job()

        def work() -> T:
            a = self._dialer.send(host, make(), job, CALL_WITHIN + wait)
            if not a.ok:
                raise a.refusal()
            return read(a)

        try:
            return await self.run(kind, work, job)
        except restjson.BadRequest as e:
            raise refused_here(*e.args) from None
        except RestError as e:
            if e.origin == NONE and not e.left and self.host == host and not job.over:
                self.host = ""  # another of them may serve now
            elif e.wire.code == "UNAVAILABLE" and e.wire.reason == "no_leader":
                self._unled(host)
            raise

    def _unled(self, host: str) -> None:
        """A host that knows of no leader is left for the next one after a while, which is longer each round."""
        n, now = len(self._hosts), wire.monotonic()
        if n < 2 or host != self.host:
            return
        if now - self._unled_last > 10.0:
            self._unled_since, self._left = now, 0
        self._unled_last = now
        if now - self._unled_since >= min(_UNLED_FOR * (1 << min(self._left // n, 8)), _UNLED_MOST):
            self._left += 1
            self._unled_since = now
            self.host = self._hosts[(self._hosts.index(host) + 1) % n]

    async def probe(self) -> None:
        """Look for Millrace at the hosts, in order, and keep the first where it answers, be it with a refusal."""
        if self._probing is None:
            self._probing = asyncio.ensure_future(self._probe())
            self._probing.add_done_callback(self._probed)
        await asyncio.shield(self._probing)

    def _probed(self, f: asyncio.Future[None]) -> None:
        self._probing = None
        if not f.cancelled():
            f.exception()  # those who waited have it

    async def _probe(self) -> None:
        first: RestError | None = None
        for host in self._hosts:
            try:
                await self._answers(host)
            except RestError as e:
                first = first or e
            else:
                self.host = host
                return
        if first is not None:
            first.wire.outcome = 0  # it was only asked whether it is there
            raise RestError(first.wire, first.origin)

    async def _answers(self, host: str) -> None:
        """Return if Millrace answers at a host. A refusal counts too: calls then get it as their own error."""

        def ask() -> None:
            q = Request("GET", "/v1/status", None, {})
            a = self._dialer.send(host, q, job, PROBE_WITHIN)
            if not a.ok:
                e = a.refusal()
                if e.origin != SERVER:
                    raise e
                return
            got = wire.message("StatusResponse")()
            a.read(got)
            if not got.durability:
                raise a.between()

        job = Job()
        try:
            await asyncio.wait_for(self.run(URGENT, ask, job), PROBE_WITHIN)
        except asyncio.TimeoutError:
            job.cancel()
            raise unanswered(host, False, "no answer came in time") from None

    def close(self) -> None:
        """Close the connections that are kept."""
        self._dialer.close()
