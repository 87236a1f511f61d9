"""A stream made of requests of REST."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from . import faults, web, wire
from .faults import StatusError
from .rest_waits import POLL_CROWDED, POLL_LEAST, Poll, Waits, within
from .web import Caller, Job, RestError

if TYPE_CHECKING:
    from .rest import RestTransport

_LANES = 6  # requests with work that one stream has open at once: what comes meanwhile shares the next
_CLAIM_TASKS = 128  # most tasks of one claim
_END_AGAIN = 0.05  # seconds until a claim that the server did not find is ended again
_END_CLAIM = "end_claim"  # the feature of servers that end a claim by its name
_WAITS = 1 << 20  # tasks that a stream waits for: any number


class _Hold:
    """One lease that takes a slot."""

    def __init__(self, sub: int, lease: float, until: float) -> None:
        self.sub = sub  # the subscription whose slot it takes; 0: not known, as a Hello named the lease
        self.lease = lease  # seconds that each renewal makes it; 0: not known, for the same reason
        self.until = until  # when it is surely over if nothing renews it; 0: not known
        self.settling = False  # its end is on the way


class _Sub:
    """One subscription: claims are made while slots are free."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.wake = asyncio.Event()  # slots may be free
        self.job: Job | None = None  # the claim under way
        self.name = b""  # its name; empty: it has none, or there is none
        self.ending = False  # the server is asked to answer it
        self.ended = asyncio.Event()  # no claim comes any more
        self.over = False

    def stop(self) -> None:
        self.over = True
        self.wake.set()
        if self.job is not None:
            self.job.cancel()


class RestStream:
    """The contract's stream over REST. All of it is the I/O thread's.

    A request without an answer breaks the stream, as a lost connection breaks gRPC's: the others are waited for, then
    the stream ends, and what was not acknowledged is sent again on the next one. A request that never left is
    acknowledged as refused before.
    """

    def __init__(
        self,
        t: RestTransport,
        caller: Caller,
        on_frames: Callable[[list[Any]], None],
        on_room: Callable[[], None],
        on_end: Callable[[StatusError | None], None],
    ) -> None:
        self.t = t
        self.caller = caller
        self._on_frames = on_frames
        self._on_room = on_room
        self._on_end = on_end
        self._frames: list[Any] = []  # that the client has yet to receive
        self._open: set[asyncio.Task[Any]] = set()  # requests of frames, and subscriptions
        self._lanes = 0
        self._full = False
        self._closed = False  # the client has closed its side
        self._cause: StatusError | None = None  # what broke the stream
        self._ended = False
        self._welcomed = False
        self._names_claims = False  # the server ends claims by their names
        self._retired = False  # the client goes over to gRPC
        self._draining = False  # the client asked for no more tasks
        self._partition: int | None = None  # of claims, where the namespace has several
        self._worker: Any = None  # who the client says it is; None for one that takes no tasks
        self._held: dict[tuple[str, int], _Hold] = {}
        self._subs: dict[int, _Sub] = {}
        self._waits = Waits(self)

    # What the session calls.

    def room(self) -> bool:
        """Report whether a frame is taken now."""
        self._full = self._lanes >= _LANES
        return not self._full

    def send(self, frame: bytes) -> None:
        """Take a frame."""
        if self.over:
            return
        f = wire.ClientFrame.FromString(frame)
        kind = f.WhichOneof("frame")
        body = getattr(f, kind)
        match kind:
            case "hello":
                self._begin(self._greet(body))
            case "create":
                self._sequenced(body.seq, self._create(body))
            case "commit":
                self._sequenced(body.seq, self._commit(body.commit))
            case "settle":
                self._settle(body)
            case "renew":
                self._renew(body)
            case "waits":
                self._wait_for(body)
            case "subscribe":
                self._subscribe(body)
            case "slots":
                u = self._subs.get(body.sub)
                if u is not None:
                    u.spec.slots = body.slots
                    u.wake.set()
            case "drain":
                self._draining = True
                self._end_claims()
            case "auth":
                self.caller = self.caller._replace(token=body.token)
            case _:
                self._fail(StatusError(3, f"a frame {kind} cannot be sent over REST"))

    def close_send(self) -> None:
        """End this side of the stream: it ends when all that was sent is answered."""
        self._closed = True
        self._end_claims()
        self._waits.stop()
        self._check_end()

    def cancel(self) -> None:
        """End the stream at once."""
        self._cause = self._cause or StatusError(1, "the stream was cancelled")
        self._stop_claims()
        self._abort()
        self._end()

    def retire(self) -> None:
        """End as a server's stream does that stops: nothing new is begun. One that was not let in yet breaks."""
        self._retired = True
        if not self._welcomed:  # before its Welcome the client reads no Goaway
            self._fail(StatusError(14, "the client goes over to gRPC"))
            return
        self._goaway()

    # The life of the stream.

    @property
    def over(self) -> bool:
        """Whether nothing is begun any more."""
        return self._closed or self._cause is not None

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work that the end of the stream waits for."""
        task = self.t.io.spawn(work)
        self._open.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            self._open.discard(task)
            self._check_end()

        task.add_done_callback(done)

    def push(self, **frame: Any) -> None:
        """Give the client a frame, with all others of this turn of the loop."""
        if not self._frames:
            self.t.io.loop.call_soon(self._flush)
        self._frames.append(wire.ServerFrame(**frame))

    def _flush(self) -> None:
        frames, self._frames = self._frames, []
        if not self._ended:
            self._on_frames(frames)

    def _check_end(self) -> None:
        if not self._open and self.over:
            self._end()

    def _end(self) -> None:
        """Tell the client of the end, once. Frames that came before are received before."""
        if self._ended:
            return
        if self._frames:
            self._flush()
        self._ended = True
        self._waits.stop()
        self.t.left(self)
        self.t.io.loop.call_soon(self._on_end, self._cause)

    def _fail(self, e: StatusError) -> None:
        """Break the stream; the first cause counts."""
        if self._cause is not None:
            return
        self._cause = e
        self._stop_claims()
        self._waits.stop()
        # Requests under way may still be answered; those that are not are given up.
        self.t.io.loop.call_later(wire.GOAWAY_WITHIN, self._abort)
        self.t.io.loop.call_soon(self._check_end)

    def _abort(self) -> None:
        for task in list(self._open):
            task.cancel()

    def _goaway(self) -> None:
        """Tell the client to leave, once no claim is under way: the tasks of one that is cut would stay leased."""
        for u in self._subs.values():
            u.wake.set()
        if self._subs or self.over:
            return
        self.push(goaway={"reason": "the client goes over to gRPC"})

    async def _greet(self, h: Any) -> None:
        """Ask who is there, which makes the Welcome: that the token is good, and that something answers.

        Whatever the client says it holds is taken as kept: a lease that is lost shows when it is renewed.
        """
        self._worker = h.worker if h.HasField("worker") else None
        for x in h.held:
            self._held[x.id, x.token] = _Hold(0, 0.0, 0.0)
        try:
            status = await self.t.carry(
                self.caller, "ServerService/Status", wire.message("StatusRequest")(), wire.message("StatusResponse")
            )
            partitions = await self._partitions()
        except StatusError as e:
            self._fail(e)
            return
        if partitions > 1:
            self._partition = h.partition
        self._welcomed = True
        self._names_claims = _END_CLAIM in status.features
        features = sorted({*status.features, "waits"})
        self.push(welcome={"kept": h.held, "partitions": partitions, "features": features, "limits": {"waits": _WAITS}})

    async def _partitions(self) -> int:
        """Ask how many partitions there are. A namespace that is not there, or not for the token to see, has one."""
        request, answer = wire.message("GetNamespaceRequest")(), wire.message("GetNamespaceResponse")
        try:
            got = await self.t.carry(self.caller, "QueueService/GetNamespace", request, answer)
        except RestError as e:
            if faults.patience(faults.from_wire(e.wire)) > 0:
                raise
            return 1
        return max(len(got.partitions), 1)

    # Frames with work.

    def _sequenced(self, seq: int, do: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        """Answer a frame by its ack, which do fills."""
        self._lanes += 1

        async def work() -> None:
            try:
                await self._answer(seq, do)
            finally:
                self._lanes -= 1
                if self._full and self._lanes < _LANES:
                    self._full = False
                    self._on_room()

        self._begin(work())

    async def _answer(self, seq: int, do: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        ack = wire.Ack(seq=seq)
        try:
            await do(ack)
        except RestError as e:
            # A worker that is not let in can do nothing any more, and is told so.
            if e.origin == web.NONE or (e.wire.code == "UNAUTHENTICATED" and self._worker is not None):
                self._fail(e)
                # What never left was certainly refused, and is acknowledged so.
                if e.origin != web.NONE or e.left:
                    return
            ack = wire.Ack(seq=seq, error=e.wire)
        except StatusError as e:
            self._fail(e)
            return
        self.push(ack=ack)

    def _create(self, f: Any) -> Callable[[Any], Coroutine[Any, Any, None]]:
        async def do(ack: Any) -> None:
            request = wire.message("BatchCreateRequest")(tasks=f.tasks, atomic=f.atomic)
            got = await self.t.carry(
                self.caller, "TaskService/BatchCreate", request, wire.message("BatchCreateResponse")
            )
            ack.created.extend(got.results)
            ack.at.CopyFrom(got.at)

        return do

    def _commit(self, commit: Any) -> Callable[[Any], Coroutine[Any, Any, None]]:
        async def do(ack: Any) -> None:
            got = await self.t.carry(self.caller, "CommitService/Commit", commit, wire.message("CommitResponse"))
            ack.commit.CopyFrom(got)
            ack.at.CopyFrom(got.at)

        return do

    def _settle(self, f: Any) -> None:
        """End attempts. A slot is free when the server has answered: it may refuse, and leave the lease."""
        keys = [(x.id, x.token) for x in f.items]
        # A failure, a release or a stop that is refused is given up; after a completion a failure may come.
        ends = [x.WhichOneof("outcome") in ("fail", "release", "stop") for x in f.items]
        for k in keys:  # a lease whose end is on the way is not counted as lost, however long the answer takes
            if k in self._held:
                self._held[k].settling = True

        async def do(ack: Any) -> None:
            request, results = wire.message("SettleRequest")(items=f.items), ()
            try:
                got = await self.t.carry(self.caller, "TaskService/Settle", request, wire.message("SettleResponse"))
                results = got.results
                ack.settled.extend(results)
                ack.at.CopyFrom(got.at)
            finally:
                self._settled(keys, ends, results)

        self._sequenced(f.seq, do)

    def _settled(self, keys: list[tuple[str, int]], ends: list[bool], results: Sequence[Any]) -> None:
        """Free the slots of attempts that have ended. ends says which the client gives up when they are refused."""
        now = wire.monotonic()
        for i, k in enumerate(keys):
            h = self._held.get(k)
            if h is None:
                continue
            h.settling = False
            if h.lease > 0:
                h.until = now + h.lease
            if i >= len(results):
                continue
            r = results[i]
            if r.HasField("error") and not r.failed_instead:
                e = faults.from_wire(r.error)
                given_up = ends[i] and faults.patience(e) == 0
                if not given_up and not faults.ends_lease(e):
                    continue
            del self._held[k]
        self._nudge()

    def _renew(self, f: Any) -> None:
        """Extend leases. It takes no lane: what waits for one must not cost a lease."""
        items = list(f.items)
        if f.all:
            known = sorted(k for k, h in self._held.items() if not h.settling)
            items = [wire.message("Hold")(id=id, token=token) for id, token in known[: wire.FRAME_ITEMS]]

        async def do(ack: Any) -> None:
            if not items:
                return
            request = wire.message("HeartbeatRequest")(items=items)
            if f.HasField("extend"):
                request.extend.CopyFrom(f.extend)
            got = await self.t.carry(
                self.caller, "TaskService/Heartbeat", request, wire.message("HeartbeatResponse"), kind=web.URGENT
            )
            ack.renewed.extend(got.results)
            ack.at.CopyFrom(got.at)
            now = wire.monotonic()
            for x, r in zip(items, got.results, strict=False):
                h = self._held.get((x.id, x.token))
                if h is None:
                    continue
                if r.lost:
                    del self._held[x.id, x.token]
                elif h.lease > 0:
                    h.until = now + h.lease
            self._nudge()

        self._begin(self._answer(f.seq, do))

    def _wait_for(self, f: Any) -> None:
        for id in f.forget:
            self._waits.forget(id)
        ack = wire.Ack(seq=f.seq)
        for id in f.ids:
            ack.waits.add()
            self._waits.ask(id)
        self.push(ack=ack)

    # Subscriptions.

    def _nudge(self) -> None:
        """Have the subscriptions count their slots again."""
        for u in self._subs.values():
            u.wake.set()

    def _stop_claims(self) -> None:
        for u in self._subs.values():
            u.stop()

    def _end_claims(self) -> None:
        """End the claims that wait, so that their answers are read.

        The tasks of a claim that is cut in the instant in which it is answered would stay leased.
        """
        for u in list(self._subs.values()):
            if not u.name:
                u.stop()
            elif not u.ending:
                u.ending = True
                u.wake.set()
                self._begin(self._end_claim(u, u.name))

    async def _end_claim(self, u: _Sub, name: bytes) -> None:
        """Have the server answer a claim, and cut it if the answer does not come in time."""
        until = wire.monotonic() + wire.RELEASE_WITHIN
        request = wire.message("EndClaimRequest")(claim=name)
        if self._partition is not None:
            request.partition = self._partition
        try:
            while (left := until - wire.monotonic()) > 0:
                made = self.t.carry(self.caller, "TaskService/EndClaim", request, wire.message("EndClaimResponse"))
                got = await within(made, left)
                # One that was not found was answered, or comes to the server behind this request.
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(u.ended.wait(), left if got.found else _END_AGAIN)
                    return
        except StatusError:
            pass
        finally:
            u.stop()

    def _subscribe(self, spec: Any) -> None:
        u = self._subs.get(spec.sub)
        if u is not None:
            u.spec = spec
            u.wake.set()
        elif not self._draining and not self._retired:
            u = self._subs[spec.sub] = _Sub(spec)
            self._begin(self._claims(u))

    async def _claims(self, u: _Sub) -> None:
        """Ask for tasks while slots are free, one request at a time: never more are given than there are slots."""
        poll, attempt = Poll(), 0
        try:
            while (request := await self._next_claim(u)) is not None:
                wait = poll.wait if web.pool().roomy() else min(poll.wait, POLL_CROWDED)
                wire.set_span(request.wait, wait)
                u.job = Job()
                began = wire.monotonic()
                try:
                    got = await self.t.carry(
                        self.caller, "TaskService/Claim", request, wire.message("ClaimResponse"),
                        kind=web.LONG, wait=wait, job=u.job,
                    )  # fmt: skip
                except StatusError as e:
                    took = wire.monotonic() - began
                    if u.over:
                        return
                    told = faults.from_status(e)
                    # A node of an older program knows no names of claims, though another one of its cluster does.
                    if u.name and told.code == "INVALID_ARGUMENT" and told.field == "claim":
                        self._names_claims = False
                        continue
                    if poll.missed(e, took):
                        continue
                    # Without any answer a lease may have been taken that nothing tells of: the stream breaks.
                    if not isinstance(e, RestError) or e.origin == web.NONE or faults.patience(told) == 0:
                        self._fail(e)
                        return
                    pause = max(faults.wait_before(told, attempt), 0.05)
                else:
                    self._assign(u, got.tasks)
                    if got.tasks or wire.monotonic() - began >= POLL_LEAST:
                        attempt = 0
                        continue
                    pause = max(wire.jitter(faults.away_bound(attempt)), 0.05)
                attempt += 1
                u.wake.clear()
                await self._rest(u, wire.monotonic() + pause, until_over=True)
        finally:
            u.over = True
            u.ended.set()
            self._subs.pop(u.spec.sub, None)
            if self._retired and not self.over:
                self._goaway()

    async def _next_claim(self, u: _Sub) -> Any:
        """Wait for free slots; None when there is no more to claim."""
        while True:
            u.wake.clear()
            free, following = self._free(u)
            u.name = b""
            if u.over or self._draining or self._retired or self.over:
                return None
            if free > 0:
                request = wire.message("ClaimRequest")(
                    queues=u.spec.queues, strict=u.spec.strict, max=min(free, u.spec.batch or _CLAIM_TASKS)
                )
                if self._names_claims:
                    request.claim = u.name = wire.random16()
                if self._worker is not None:
                    request.worker = self._worker.id
                if u.spec.HasField("lease"):
                    request.lease.CopyFrom(u.spec.lease)
                if self._partition is not None:
                    request.partition = self._partition
                return request
            await self._rest(u, following)

    async def _rest(self, u: _Sub, at: float, *, until_over: bool = False) -> None:
        """Wait until slots may be free, or until then; 0: without a bound."""
        while not u.over:
            left = at - wire.monotonic() if at else None
            if left is not None and left <= 0:
                return
            try:
                await asyncio.wait_for(u.wake.wait(), left)
            except asyncio.TimeoutError:
                return
            if not until_over:
                return
            u.wake.clear()

    def _free(self, u: _Sub) -> tuple[int, float]:
        """Count the slots that nothing holds, and say when the next lease is over that nothing renewed; 0: not known.

        A slot is held from the claim until the settle that ends the task is answered, or until the lease is over: its
        task is then one that the client forgot.
        """
        n, following, now = u.spec.slots, 0.0, wire.monotonic()
        for k, h in list(self._held.items()):
            if h.sub not in (0, u.spec.sub):
                continue
            if not h.settling and h.until:
                if now >= h.until:
                    del self._held[k]
                    continue
                following = min(following or h.until, h.until)
            n -= 1
        return n, following

    def _assign(self, u: _Sub, tasks: Sequence[Any]) -> None:
        """Give the client tasks. They go back at once when it has left meanwhile, or wants no more."""
        if not tasks:
            return
        if self.over or self._draining:
            self.t.io.spawn(self._give_back(tasks))
            return
        # Counted from now and not from when the server gave it: a slot is rather free too late than too early.
        now = wire.monotonic()
        for x in tasks:
            lease = x.lease_ms / 1000
            self._held[x.id, x.token] = _Hold(u.spec.sub, lease, now + lease)
        self.push(assign={"sub": u.spec.sub, "tasks": tasks})

    async def _give_back(self, tasks: Sequence[Any]) -> None:
        """Release tasks that came too late. Where that fails their leases end by themselves."""
        request = wire.message("SettleRequest")()
        for x in tasks:
            request.items.add(id=x.id, token=x.token).release.SetInParent()
        try:
            made = self.t.carry(self.caller, "TaskService/Settle", request, wire.message("SettleResponse"))
            await within(made, wire.RELEASE_WITHIN)
        except StatusError:
            pass
