"""The three kinds of calls that the engine makes, over REST, for clients whose way to the server lets no gRPC through.

A stream is made of requests: each frame with work is one, whose answer becomes its ack; a subscription is a claim that
waits for tasks, made again and again; and waits for tasks are requests that wait at the server. There are no sessions:
what must be repeatable carries an id of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from . import faults, restjson, web, wire
from .faults import StatusError
from .loop import IOLoop
from .rest_stream import RestStream
from .rest_waits import POLL_CROWDED, POLL_LEAST, Poll, ended, within
from .transport import VERSION, Stream
from .web import Answer, Caller, Job, RestError, Web

_PAGE = 1000  # most items of a page of a range
_FINISHED = 4  # the state of a batch


def _into(a: Answer, route: dict[str, Any], out: Any) -> Any:
    """Read an answer into the response of a route."""
    fields = out.DESCRIPTOR.fields_by_name
    if "at" in fields and not restjson.is_many(fields["at"]):  # a response with a list of places has them in its body
        a.at(out.at)
    if a.status == 204 and route.get("empty"):
        return out
    into = out
    if "answer" in route:
        into = getattr(out, route["answer"])
        into.SetInParent()
        if "replayed" in fields:  # the status tells what was made from what was there already
            out.replayed = a.status == 200
    a.read(into)
    return out


def _enclosed(e: RestError, message: str) -> RestError:
    """Name a field as the message has it: a route of one thing has names of its own for what is a part of a message."""
    field = e.wire.field
    if not field or (message == "config" and field in ("queue", "if_version", "headers")):
        return e
    e.wire.field = {"If-Match": "if_version", "body": message}.get(field, f"{message}.{field}")
    return RestError(e.wire, e.origin)


class RestTransport:
    """REST of one cluster, as connections to one address are."""

    def __init__(self, io: IOLoop, w: Web) -> None:
        self.io = io
        self.web = w
        self._streams: set[RestStream] = set()
        self._special: dict[str, Callable[[Caller, Any, Any], Coroutine[Any, Any, Any]]] = {
            "TaskService/Claim": self._claim,
            "TaskService/Wait": self._wait,
            "BatchService/Wait": self._wait_batch,
            "KVService/Get": self._get_key,
            "KVService/Put": self._put_key,
            "KVService/DeleteRange": self._delete_keys,
            "RefService/GetRef": self._get_ref,
        }

    @staticmethod
    def caller(metadata: Sequence[tuple[str, str]]) -> Caller:
        """Read who calls from the metadata of gRPC."""
        told = dict(metadata)
        token = told.get("authorization", "").removeprefix("Bearer ")
        return Caller(told.get("millrace-namespace", "default"), token, f"millrace-python/{VERSION}")

    def open(
        self,
        method: str,
        metadata: Sequence[tuple[str, str]],
        on_frames: Callable[[list[Any]], None],
        on_room: Callable[[], None],
        on_end: Callable[[StatusError | None], None],
    ) -> Stream:
        """Open a stream of frames."""
        s = RestStream(self, self.caller(metadata), on_frames, on_room, on_end)
        self._streams.add(s)
        return s

    def left(self, s: RestStream) -> None:
        """Take in that a stream has ended."""
        self._streams.discard(s)

    def retire(self) -> None:
        """End the open streams without a loss: each finishes what it has begun."""
        for s in list(self._streams):
            s.retire()

    async def carry(
        self,
        caller: Caller,
        method: str,
        request: Any,
        answer: Any,
        *,
        kind: int = web.WORK,
        wait: float = 0.0,
        job: Job | None = None,
    ) -> Any:
        """Make a call as its route says."""
        route: dict[str, Any] = {}

        def make() -> web.Request:
            p = restjson.prepare(method, request)
            route.update(p.route)
            return caller.request(p)

        try:
            return await self.web.call(make, lambda a: _into(a, route, answer()), kind=kind, wait=wait, job=job)
        except RestError as e:
            if route.get("body") in ("config", "task"):
                raise _enclosed(e, route["body"]) from None
            raise

    async def unary(
        self,
        method: str,
        request: bytes,
        answer: Any,
        metadata: Sequence[tuple[str, str]],
        timeout: float | None,
    ) -> Any:
        """Call a method with one answer."""
        service, _, name = method.partition("/")
        m = wire.message(wire.SERVICES[service].methods_by_name[name].input_type.full_name).FromString(request)
        caller = self.caller(metadata)
        special = self._special.get(method)
        made = special(caller, m, answer) if special is not None else self.carry(caller, method, m, answer)
        return await within(made, timeout)

    async def server_stream(
        self,
        method: str,
        request: bytes,
        answer: Any,
        metadata: Sequence[tuple[str, str]],
        timeout: float | None,
    ) -> list[Any]:
        """Call a method with a stream of answers, and return all of them."""
        if method != "KVService/Range":
            raise StatusError(12, f"{method} has no route of REST")
        m = wire.message("KVRangeRequest").FromString(request)
        out: list[Any] = await within(self._range(self.caller(metadata), m, answer), timeout)
        return out

    def close(self) -> None:
        """End all connections."""
        self.web.close()

    # The methods that need more than their route.

    async def _claim(self, caller: Caller, m: Any, answer: Any) -> Any:
        wait = max(wire.span(m.wait), 0.0)
        kind = web.LONG if wait else web.WORK
        return await self.carry(caller, "TaskService/Claim", m, answer, kind=kind, wait=wait)

    async def result(self, caller: Caller, id: str, wait: float, job: Job | None) -> tuple[Any, Any]:
        """Wait for the end of a task, for some seconds at most: what is known of it, and the place in the log."""
        at = wire.message("At")()

        def make() -> web.Request:
            p = restjson.prepare("TaskService/Wait", wire.message("WaitRequest")(id=id))
            return caller.request(p, [("wait", f"{round(wait * 1000)}ms")])

        def read(a: Answer) -> Any:
            t = wire.message("Task")()
            a.read(t)
            a.at(at)
            return t

        return await self.web.call(make, read, kind=web.LONG if wait else web.WORK, wait=wait, job=job), at

    async def whole(self, caller: Caller, id: str, t: Any, at: Any) -> Any:
        """Read a task that has ended: what a wait answers lacks parts of it.

        One that was removed at its end is as the wait knew it.
        """
        request = wire.message("GetRequest")(id=id, min_index=at.index)
        try:
            return (await self.carry(caller, "TaskService/Get", request, wire.message("GetResponse"))).task
        except RestError as e:
            if e.origin != web.SERVER or e.wire.code != "NOT_FOUND":
                raise
        # The wait says whether there is a result by having one.
        t.id, t.has_result = id, bool(t.result)
        return t

    async def _wait(self, caller: Caller, m: Any, answer: Any) -> Any:
        t, at = await self._until(lambda wait: self.result(caller, m.id, wait, None), ended)
        out = answer()
        out.task.CopyFrom(await self.whole(caller, m.id, t, at))
        out.at.CopyFrom(at)
        return out

    async def _wait_batch(self, caller: Caller, m: Any, answer: Any) -> Any:
        async def look(wait: float) -> tuple[Any, Any]:
            at = wire.message("At")()

            def make() -> web.Request:
                return caller.request(restjson.prepare("BatchService/Wait", m), [("wait", f"{round(wait * 1000)}ms")])

            def read(a: Answer) -> Any:
                b = wire.message("Batch")()
                a.read(b)
                a.at(at)
                return b

            return await self.web.call(make, read, kind=web.LONG, wait=wait), at

        b, at = await self._until(look, lambda b: bool(b.state == _FINISHED))
        return answer(batch=b, at=at)

    async def _until(self, look: Callable[[float], Coroutine[Any, Any, Any]], done: Callable[[Any], bool]) -> Any:
        """Look at something again and again, each time waiting at the server for some seconds, until it is done."""
        poll, attempt = Poll(), 0
        while True:
            began = wire.monotonic()
            wait = poll.wait if web.pool().roomy() else min(poll.wait, POLL_CROWDED)
            try:
                found, at = await look(wait)
            except RestError as e:
                if poll.missed(e, wire.monotonic() - began):
                    continue
                raise
            if done(found):
                return found, at
            if wire.monotonic() - began < POLL_LEAST:  # answered by something that does not wait
                await asyncio.sleep(max(wire.jitter(faults.away_bound(attempt)), 0.05))
                attempt += 1

    async def _get_key(self, caller: Caller, m: Any, answer: Any) -> Any:
        """Take the value as it stands, and its revision and writer from headers. A key that is absent is an answer."""

        def read(a: Answer) -> Any:
            rev = a.headers.get("Millrace-Rev") or ""
            if not rev.isdigit():
                raise a.between()
            out = answer(value=a.body, rev=int(rev), found=True)
            if by := a.headers.get("Millrace-Writer"):
                task, _, token = by.partition(" ")
                if not task or not token.isdigit():
                    raise a.between()
                out.writer.task, out.writer.token = task, int(token)
            a.at(out.at)
            return out

        try:
            return await self.web.call(lambda: caller.request(restjson.prepare("KVService/Get", m)), read)
        except RestError as e:
            # A proxy that does not know the path says so too, in a form of its own: that is an error.
            if e.origin == web.SERVER and e.wire.code == "NOT_FOUND":
                return answer()
            raise

    async def _put_key(self, caller: Caller, m: Any, answer: Any) -> Any:
        """Put by a commit: a path has no room for every key."""
        commit = wire.CommitRequest(request_id=m.request_id)
        commit.ops.add().kv_put.CopyFrom(m.put)
        c = await self.carry(caller, "CommitService/Commit", commit, wire.message("CommitResponse"))
        one = c.results[0]
        return answer(rev=one.rev, prev=one.prev, existed=one.existed, at=c.at)

    async def _delete_keys(self, caller: Caller, m: Any, answer: Any) -> Any:
        """Delete a range; all keys are meant where no bound is given, and REST wants that said."""

        def make() -> web.Request:
            p = restjson.prepare("KVService/DeleteRange", m)
            return caller.request(p, _all_keys(p))

        return await self.web.call(make, lambda a: _into(a, {}, answer()))

    async def _range(self, caller: Caller, m: Any, answer: Any) -> list[Any]:
        """Read a range page by page, each as of an instant of its own."""
        left, cursor, out = m.limit, "", []
        m.limit = 0

        def make() -> web.Request:
            p = restjson.prepare("KVService/Range", m)
            more = [*_all_keys(p), ("limit", str(min(_PAGE, left or _PAGE)))]
            return caller.request(p, [*more, ("cursor", cursor)] if cursor else more)

        def read(a: Answer) -> tuple[Any, str]:
            text = restjson.member(a.text(), "cursor")
            return _into(a, {}, answer()), json.loads(text) if text else ""

        while True:
            page, cursor = await self.web.call(make, read)
            out.append(page)
            n = len(page.items)
            # The last page is the one without a cursor, or the one that fills the limit.
            if not cursor or (left and n >= left):
                return out
            left = left and left - n

    async def _get_ref(self, caller: Caller, m: Any, answer: Any) -> Any:
        """Refuse a name before which the route would put refs/."""
        if m.name != "HEAD" and not m.name.startswith("refs/"):
            raise web.refused_here("name", "is neither HEAD nor below refs/")
        return await self.carry(caller, "RefService/GetRef", m, answer)


def _all_keys(p: restjson.Prepared) -> list[tuple[str, str]]:
    """Name the range of all keys where the query names none."""
    named = {name for name, _ in p.query}
    return [] if named & {"prefix", "from", "to"} else [("prefix", "")]
