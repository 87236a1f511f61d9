"""Clients over REST: what is lost on the way, errors, redirects, and the change between gRPC and REST."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import grpc_server
import pytest
from conftest import VECTORS
from fake import Fake
from http_proxy import Canned, Proxy
from test_server import WITHIN, unique, working

import millrace_sdk as mr
from millrace_sdk import errors
from millrace_sdk._core import rest_stream, ways, web, wire
from millrace_sdk.testing import DevServer

CODES = json.loads((VECTORS / "errors.json").read_text())["codes"]


@pytest.fixture
def proxy(millrace_server: DevServer) -> Iterator[Proxy]:
    p = Proxy(millrace_server.rest_url, millrace_server.url)
    yield p
    p.close()


@pytest.fixture
def canned() -> Iterator[Canned]:
    s = Canned()
    yield s
    s.close()


@pytest.fixture
def rest(millrace_server: DevServer) -> Iterator[mr.Client]:
    with mr.Client(millrace_server.rest_url, token=millrace_server.token, tls=False, transport="rest") as c:
        yield c


def over_rest(c: mr.Client) -> bool:
    """Report whether a client is over REST now."""
    return c.transport == "rest"


def counting(queue: str, space: str, runs: list[int] | None = None) -> mr.Job[int, int]:
    job: mr.Job[int, int] = mr.Job[int, int]("count", queue=queue)

    @job.handler
    def count(t: mr.Task[int], a: int) -> int:
        if runs is not None:
            runs.append(a)
        t.fx.kv(space).add("count")
        return 2 * a

    return job


def once(*paths: str) -> Callable[[str], bool]:
    """Lose the first answer of each of these paths."""
    left = set(paths)

    def lose(path: str) -> bool:
        found = next((p for p in left if path.startswith(p)), None)
        left.discard(found or "")
        return found is not None

    return lose


# Against a real server.


def test_types_and_bytes_are_kept(rest: mr.Client) -> None:
    q = unique("q")
    raw: mr.Job[bytes, bytes] = mr.Job[bytes, bytes](q)
    plain: mr.Job[Any, Any] = mr.Job[Any, Any](q + "j")
    raw.handler(lambda t, a: a[::-1])
    plain.handler(lambda t, a: a)
    big = os.urandom(1 << 20)
    with working(rest, raw, plain):
        assert raw.add(rest, big).wait(WITHIN) == big[::-1]
        value = {"z": 2**53 + 1, "a": [1.5, None, "é\0"], "b": {"y": 1, "x": 2}}
        h = plain.add(rest, value)
        got = h.wait(WITHIN)
        assert got == value and list(got) == list(value) and list(got["b"]) == ["y", "x"]
        info = h.info()
        assert json.loads(info.payload) == value and list(json.loads(info.payload)) == ["z", "a", "b"]
    space = rest.kv(unique("n"))
    key, value = b"\xff/\0 a%", os.urandom(1 << 16)
    rev = space.put(key, value)
    assert space.get(key).value == value and space.get(key).rev == rev
    assert not space.get("absent").found
    assert [i.key for i in space.range()] == [key]
    assert space.delete(key, if_rev=rev) and not space.get(key).found


def keeping_writers(server: DevServer) -> str:
    """Make a keyspace that keeps who writes its keys."""
    space = unique("n")
    request = urllib.request.Request(
        f"http://{server.rest_url}/v1/keyspaces/{space}",
        b'{"writers":true}',
        {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=WITHIN) as answer:
        assert answer.status == 200
    return space


@pytest.mark.parametrize("transport", ["stream", "rest"])
def test_reads_tell_who_wrote_a_key(millrace_server: DevServer, rest: mr.Client, transport: str) -> None:
    name = keeping_writers(millrace_server)
    with millrace_server.client() as stream:
        c = rest if transport == "rest" else stream
        space = c.kv(name)
        space.put("outside", "1")
        job: mr.Job[int, int] = mr.Job[int, int](unique("q"))

        @job.handler
        def count(t: mr.Task[int], a: int) -> int:
            t.fx.kv(name).add("count", a)
            t.fx.kv(name + "-other").put("count", "1")
            return t.token

        with working(c, job):
            h = job.add(c, 3)
            by = mr.KVWriter(h.id, h.wait(WITHIN))
        assert space.get("count").writer == by and space.get("count").value == b"3"
        assert {i.key: i.writer for i in space.range()} == {b"count": by, b"outside": None}
        assert {i.key: i.writer for i in space.scan(keys_only=True)} == {b"count": by, b"outside": None}
        assert space.get("outside").writer is None and space.get("absent").writer is None
        assert c.kv(name + "-other").get("count").writer is None
        space.put("count", "4")
        assert space.get("count") == mr.KVItem(b"count", b"4", space.get("count").rev)


@pytest.mark.parametrize("header", ["nonsense", "01J x", " 3"])
def test_a_writer_that_makes_no_sense(canned: Canned, header: str) -> None:
    answer = {"Millrace-Rev": "7", "Millrace-Writer": header}
    canned.answers["/v1/kv/"] = lambda r: (200, b"v", answer)
    with mr.Client(canned.url, tls=False, timeout=1.0, transport="rest") as c:
        with pytest.raises(mr.MillraceError):
            c.kv("n").get("k")
        answer["Millrace-Writer"] = "01J 3"
        assert c.kv("n").get("k").writer == mr.KVWriter("01J", 3)


def test_a_range_of_several_pages(rest: mr.Client) -> None:
    space = rest.kv(unique("n"))
    for first in range(0, 2100, 300):
        tx = rest.tx()
        for n in range(first, first + 300):
            tx.kv(space.name).put(f"{n:05}", n)
        tx.commit()
    assert [i.key for i in space.range()] == [f"{n:05}".encode() for n in range(2100)]
    assert len(space.range(limit=1500, keys_only=True)) == 1500
    assert [i.key for i in space.range(prefix="0002", limit=3)] == [b"00020", b"00021", b"00022"]


def test_what_else_a_client_does(rest: mr.Client) -> None:
    queue = unique("q")
    job = mr.Job[int, int]("slow", queue=queue)
    begun, ended = threading.Event(), threading.Event()

    @job.handler
    def slow(t: mr.Task[int], a: int) -> int:
        t.progress(50, "half")
        t.log("a line")
        t.save_checkpoint(b"saved")
        begun.set()
        while not t.cancelled:
            ended.wait(0.01)
        t.raise_if_cancelled()
        return a

    with working(rest, job, lease=1.5):
        h = job.add(rest, 1)
        assert begun.wait(WITHIN)
        assert rest.task(h.id).progress == (50, "half")
        assert [line.line for line in rest.raw.TaskService.Logs(id=h.id).lines] == ["a line"]
        rest.cancel(h.id, "wrong order")
        with pytest.raises(mr.TaskError) as e:
            h.wait(WITHIN)
        assert e.value.state == "cancelled"
    assert rest.queue(queue).stats().cancelled == 1
    rest.queue(queue).pause("stop", seconds=60)
    assert rest.queue(queue).stats().paused
    rest.queue(queue).resume()
    assert rest.raw.TaskService.Claim(queues=[{"name": queue}], max=1).tasks == []
    with pytest.raises(mr.InvalidArgument, match="no route"):
        rest.raw.BackupService.Take()


def test_many_wait_at_once(rest: mr.Client) -> None:
    job = counting(unique("q"), unique("n"))
    hs = job.add_many(rest, range(60))
    got: list[int] = []
    threads = [threading.Thread(target=lambda h=h: got.append(h.wait(WITHIN))) for h in hs]
    for t in threads:
        t.start()
    with working(rest, job, slots=8):
        for t in threads:
            t.join(WITHIN)
    assert sorted(got) == [2 * n for n in range(60)]


def test_an_async_client(millrace_server: DevServer) -> None:
    async def main() -> None:
        job: mr.Job[int, int] = mr.Job[int, int]("double", queue=unique("q"))

        @job.handler
        async def double(t: mr.Task[int], a: int) -> int:
            await asyncio.sleep(0)
            return 2 * a

        url = millrace_server.rest_url
        async with mr.AsyncClient(url, token=millrace_server.token, tls=False, transport="rest") as c:
            stop = asyncio.Event()
            run = asyncio.ensure_future(mr.Worker(c, [job]).run_async(stop))
            hs = await asyncio.gather(*(job.add(c, n) for n in range(100)))
            assert [await h.wait(WITHIN) for h in hs] == [2 * n for n in range(100)]
            with pytest.raises(mr.DeadlineExceeded):
                await (await mr.Job[int, int]("none", queue=unique("q")).add(c, 1)).wait(0.2)
            stop.set()
            await run

    asyncio.run(main())


def test_what_has_no_answer_is_applied_once(millrace_server: DevServer, proxy: Proxy) -> None:
    space, runs = unique("n"), list[int]()
    job = counting(unique("q"), space, runs)
    with mr.Client(proxy.url, token=millrace_server.token, tls=False, transport="rest") as c:
        proxy.lose = once("/v1/tasks:batch", "/v1/tasks:settle", "/v1/commit")
        with working(c, job):
            h = job.add(c, 4)
            assert h.replayed
            assert h.wait(WITHIN) == 8
            assert c.kv(space).add("sum", 5) == 5
        assert c.kv(space).get("count").value == b"1" and c.kv(space).get("sum").value == b"5"
        info = c.task(h.id)
    assert runs == [4] and info.attempt == 1 and not proxy.lose("/v1/commit")
    for path in ("/v1/tasks:batch", "/v1/tasks:settle", "/v1/commit"):
        assert sum(p.startswith(path) for p in proxy.seen) >= 2


def test_a_call_that_cannot_be_repeated_ends_unknown(millrace_server: DevServer, proxy: Proxy) -> None:
    with mr.Client(proxy.url, token=millrace_server.token, tls=False, transport="rest") as c:
        proxy.lose = once("/v1/tasks?")
        with pytest.raises(mr.Unavailable) as e:
            c.raw.TaskService.Create(task={"queue": unique("q")})
        assert e.value.outcome == "unknown"


# The change of the way.


def test_a_client_starts_over_rest_and_goes_back_to_grpc(
    millrace_server: DevServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "_GRACE", 0.3)
    monkeypatch.setattr(ways, "_ASK_AGAIN", 0.1)
    space, runs = unique("n"), list[int]()
    job = counting(unique("q"), space, runs)
    with mr.Client(proxy.url, token=millrace_server.token, tls=False) as c, working(c, job, slots=8):
        end, n = time.monotonic() + 60, 0

        def work() -> None:
            nonlocal n
            hs = job.add_many(c, range(n, n + 5))
            assert [h.wait(WITHIN) for h in hs] == [2 * i for i in range(n, n + 5)]
            n += 5

        work()
        assert over_rest(c) and proxy.greeted
        proxy.grpc.set()
        while over_rest(c) and time.monotonic() < end:
            work()
        assert not over_rest(c)
        work()
        # gRPC that worked before is given a while; then REST serves again.
        proxy.cut()
        work()
        while not over_rest(c) and time.monotonic() < end:
            work()
        assert over_rest(c)
        work()
        assert c.kv(space).get("count").value == str(n).encode()
    assert sorted(runs) == list(range(n))


def test_the_first_call_goes_over_rest(millrace_server: DevServer, proxy: Proxy) -> None:
    with mr.Client(proxy.url, token=millrace_server.token, tls=False) as c:
        assert not c.raw.TaskService.Claim(queues=[{"name": unique("q")}], max=1).tasks
        assert over_rest(c)


def test_rest_may_have_an_address_of_its_own(millrace_server: DevServer) -> None:
    o: dict[str, Any] = {"token": millrace_server.token, "tls": False, "rest_url": millrace_server.rest_url}
    with mr.Client("127.0.0.1:1", **o) as c:
        assert c.kv(unique("n")).add("k") == 1 and over_rest(c)


def test_what_speaks_http_2_but_no_grpc(millrace_server: DevServer) -> None:
    other = grpc_server.Server()  # it answers each call as one that it does not know
    space = unique("n")
    job = counting(unique("q"), space)
    try:
        o: dict[str, Any] = {"token": millrace_server.token, "tls": False, "rest_url": millrace_server.rest_url}
        with mr.Client(other.url, **o) as c, working(c, job):
            assert job.add(c, 4).wait(WITHIN) == 8 and over_rest(c)
        with mr.Client(other.url, **o) as c:
            assert c.kv(space).get("count").value == b"1" and over_rest(c)
    finally:
        other.close()


def test_grpc_alone(millrace_server: DevServer, proxy: Proxy) -> None:
    with mr.Client(proxy.url, token=millrace_server.token, tls=False, transport="stream", timeout=0.3) as c:
        with pytest.raises(mr.MillraceError):
            c.kv("n").add("k")
        with pytest.raises(mr.MillraceError):
            c.task(mr.new_id())
        assert not over_rest(c)
    assert proxy.seen == []


def test_a_server_that_is_down_changes_nothing() -> None:
    with mr.Client("127.0.0.1:1", tls=False, timeout=0.3) as c:
        with pytest.raises((mr.Unavailable, mr.DeadlineExceeded)):
            c.task(mr.new_id())
        assert not over_rest(c)


def test_options(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(mr.InvalidArgument) as e:
        mr.Client("h:1", transport="pigeon")  # type: ignore[arg-type]
    assert e.value.field == "transport"
    with pytest.raises(mr.InvalidArgument) as e:
        mr.Client("h:1", rest_url="http://h")
    assert e.value.field == "rest_url"
    o = mr.Client("a:7081,b:9")._options
    assert o.transport == "auto" and o.rest == ("a:7081", "a:7080", "b:9") and o.secure("a:7080")
    monkeypatch.setenv("MILLRACE_TRANSPORT", "rest")
    monkeypatch.setenv("MILLRACE_REST_URL", "r:1, s:2")
    assert mr.Client()._options.rest == ("r:1", "s:2") and mr.Client()._options.transport == "rest"
    assert mr.Client("a:1")._options.rest == ("a:1",)  # the variable goes with MILLRACE_URL
    assert mr.Client(transport="stream")._options.transport == "stream"
    plain = mr.Client("10.0.0.1:1", tls=False)._options
    assert not plain.secure("10.0.0.1:1")
    local = mr.Client("127.0.0.1:1")._options
    assert local.secure("10.0.0.1:1") and not local.secure("[::1]:1")


# Errors.


def wanted(code: str) -> Any:
    """The error of a code, with all that an error can say. Its wait is longer than the calls: none is repeated."""
    e = wire.Error(
        code=code, reason="why", message="the message", field="tasks[0].f", op=3, limit="frame_items", max=512,
        details={"rev": "9007199254740993"}, outcome=1 if code == "UNAVAILABLE" else 0,
    )  # fmt: skip
    wire.set_span(e.retry_after, 60)
    return e


def check(e: mr.MillraceError, code: str) -> None:
    assert type(e) is errors.CLASSES[code] and e.code == code
    assert (e.reason, e.field, e.op, e.limit, e.max) == ("why", "tasks[0].f", 3, "frame_items", 512)
    assert dict(e.details) == {"rev": "9007199254740993"} and e.retry_after == 60 and e.message == "the message"
    assert e.outcome == ("unknown" if code == "UNAVAILABLE" else "refused")


@pytest.mark.parametrize("row", CODES, ids=lambda r: r["code"])
def test_an_error_is_the_same_by_stream_and_by_call(row: dict[str, Any]) -> None:
    fake, code = Fake(), row["code"]

    def refuse(request: bytes) -> bytes:
        st = wire.Status(code=row["grpc"], message="the message")
        st.details.add(type_url="type.googleapis.com/millrace.v1.Error", value=wanted(code).SerializeToString())
        raise grpc_server.Abort(row["grpc"], "the message", st.SerializeToString())

    fake.calls["Get"] = refuse

    def serve() -> None:
        s = fake.accept()
        s.greet()
        s.send(ack={"seq": s.recv("commit").seq, "error": wanted(code)})
        while s.recv() is not None:
            pass
        s.end()

    threading.Thread(target=serve, daemon=True).start()
    try:
        with mr.Client(fake.url, tls=False, timeout=10.0, transport="stream") as c:
            with pytest.raises(mr.MillraceError) as e:
                c.kv("n").put("k", 1)
            check(e.value, code)
            with pytest.raises(mr.MillraceError) as e:
                c.task(mr.new_id())
            check(e.value, code)
    finally:
        fake.close()


@pytest.mark.parametrize("row", CODES, ids=lambda r: r["code"])
def test_an_error_is_the_same_over_rest(row: dict[str, Any], canned: Canned) -> None:
    code = row["code"]
    assert web.STATUS[code] == row["grpc"]
    w = wanted(code)
    body = {
        "code": code, "reason": w.reason, "message": w.message, "field": w.field, "op": w.op, "limit": w.limit,
        "max": w.max, "details": dict(w.details), "retry_after_ms": 60_000,
        "outcome": "unknown" if w.outcome else "refused",
    }  # fmt: skip
    canned.answers["/v1/commit"] = canned.answers["/v1/tasks/"] = lambda r: (row["http"], {"error": body}, {})
    with mr.Client(canned.url, tls=False, timeout=10.0, transport="rest") as c:
        with pytest.raises(mr.MillraceError) as e:
            c.kv("n").put("k", 1)
        check(e.value, code)
        with pytest.raises(mr.MillraceError) as e:
            c.task(mr.new_id())
        check(e.value, code)


def test_all_codes_are_known() -> None:
    assert set(web.STATUS) == {row["code"] for row in CODES} == set(errors.CLASSES)


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [(401, "UNAUTHENTICATED", "refused"), (403, "PERMISSION_DENIED", "refused"), (404, "INVALID_ARGUMENT", "refused"),
     (413, "TOO_LARGE", "refused"), (429, "RATE_LIMITED", "refused"), (502, "UNAVAILABLE", "unknown"),
     (200, "UNAVAILABLE", "unknown")],
)  # fmt: skip
def test_what_a_proxy_answers(canned: Canned, status: int, code: str, outcome: str) -> None:
    canned.answers["/v1/tasks/"] = lambda r: (status, b"<html>", {"Retry-After": "60"})
    with mr.Client(canned.url, tls=False, timeout=10.0, transport="rest") as c, pytest.raises(mr.MillraceError) as e:
        c.task(mr.new_id())
    assert (e.value.code, e.value.outcome, e.value.retry_after) == (code, outcome, 60.0)


def test_a_follower_names_the_leader(canned: Canned) -> None:
    leader = Canned()
    leader.answers["/v1/tasks/"] = lambda r: (200, {"id": "x", "state": "ready"}, {"Millrace-Index": "0/3/7"})
    canned.answers["/v1/tasks/"] = lambda r: (307, {}, {"Location": f"http://{leader.url}{r.path}&hop=1"})
    try:
        with mr.Client(canned.url, token="secret", tls=False, transport="rest") as c:
            got = c.raw.TaskService.Get(id="x", timeout=10)
            assert got.task.state == 3 and (got.at.partition, got.at.epoch, got.at.index) == (0, 3, 7)
        verb, path, headers = leader.seen[-1]
        assert verb == "GET" and path.endswith("hop=1") and headers["Authorization"] == "Bearer secret"
        # An answer that sends on and on, or to where the token must not go, is the error that it says it is.
        error = {
            "error": {"code": "NOT_LEADER", "message": "go there", "leader": "10.0.0.1:7081", "outcome": "refused"}
        }
        for there in (f"http://{canned.url}/v1/tasks/x", "http://10.0.0.1:7080/v1/tasks/x", f"https://{leader.url}/"):
            canned.answers["/v1/tasks/"] = lambda r, there=there: (307, error, {"Location": there})
            with mr.Client(canned.url, token="secret", transport="rest") as c:
                with pytest.raises(mr.MillraceError) as e:
                    c.raw.TaskService.Get(id="x", timeout=0.2)
                assert e.value.code in ("NOT_LEADER", "DEADLINE_EXCEEDED")
                if e.value.code == "NOT_LEADER":
                    assert e.value.leader == "10.0.0.1:7081"
    finally:
        leader.close()


def test_tls_and_a_proxy_that_the_environment_names(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=millrace.test",
    ]
    names = "subjectAltName=DNS:millrace.test,IP:127.0.0.1"
    command = [*make, "-addext", names, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = Canned(context)
    server.answers["/v1/tasks/"] = lambda r: (200, {"id": "x", "state": "ready"}, {})
    between = Proxy(server.url, "")
    try:
        with mr.Client(server.url, tls=cert.read_bytes(), transport="rest") as c:
            assert c.task("x").state == "ready" and c.task("x").state == "ready"
        with mr.Client(server.url, tls=True, transport="rest", timeout=0.3) as c, pytest.raises(mr.MillraceError) as e:
            c.task("x")
        assert "certificate" in str(e.value) or e.value.code == "DEADLINE_EXCEEDED"
        monkeypatch.setenv("https_proxy", f"http://{between.url}")
        with mr.Client("millrace.test:8443", tls=cert.read_bytes(), transport="rest") as c:
            assert c.task("x").state == "ready"
        assert between.seen[0] == "millrace.test:8443"
    finally:
        between.close()
        server.close()


def test_another_host_serves_when_one_is_gone(canned: Canned) -> None:
    canned.answers["/v1/tasks/"] = lambda r: (200, {"id": "x", "state": "ready"}, {})
    with mr.Client(f"127.0.0.1:1,{canned.url}", tls=False, transport="rest") as c:
        assert c.task("x").state == "ready"


def test_a_token_that_is_replaced(canned: Canned) -> None:
    canned.answers["/v1/commit"] = lambda r: (200, {"results": [{"rev": "1"}], "replayed": False}, {})
    with mr.Client(canned.url, token="first", tls=False, transport="rest") as c:
        c.kv("n").put("k", 1)
        c.set_token("second")
        c.kv("n").put("k", 1)
        told = [h["Authorization"] for _, path, h in canned.seen if path.startswith("/v1/commit")]
        assert told == ["Bearer first", "Bearer second"]


def test_a_worker_that_is_not_let_in_ends(canned: Canned) -> None:
    error = {"error": {"code": "UNAUTHENTICATED", "message": "no valid token", "outcome": "refused"}}
    canned.answers = {"/v1/": lambda r: (401, error, {})}
    with mr.Client(canned.url, tls=False, transport="rest") as c, pytest.raises(mr.Unauthenticated):
        mr.Worker(c, [counting("q", "n")]).run()


def test_a_claim_that_a_server_bounds_is_made_shorter(canned: Canned) -> None:
    waits: list[str] = []
    enough = threading.Event()

    def claim(r: Any) -> tuple[int, Any, dict[str, str]]:
        waits.append(json.loads(r.body)["wait"])
        if len(waits) == 1:
            error = {"code": "INVALID_ARGUMENT", "message": "too long", "limit": "claim_wait_ms", "max": 3000}
            return 400, {"error": error | {"outcome": "refused"}}, {}
        enough.set()
        return 204, b"", {}

    canned.answers["/v1/tasks:claim"] = claim
    with mr.Client(canned.url, tls=False, transport="rest") as c, working(c, counting("q", "n")):
        assert enough.wait(WITHIN)
    assert waits[:2] == ["25s", "3s"]


def test_a_slot_stays_taken_where_an_effect_is_refused() -> None:
    for code, op, failed, stays in [
        ("NOT_FOUND", None, False, False),
        ("NOT_FOUND", 0, False, True),
        ("NOT_FOUND", 0, True, False),
        ("WRONG_STATE", 2, False, True),
    ]:
        r = wire.message("SettleResult")(failed_instead=failed)
        r.error.code = code
        if op is not None:
            r.error.op = op
        s = rest_stream.RestStream.__new__(rest_stream.RestStream)
        s._held, s._subs = {("a", 1): rest_stream._Hold(0, 0.0, 0.0)}, {}
        s._settled([("a", 1)], [False], [r])
        assert (("a", 1) in s._held) == stays, (code, op, failed)
