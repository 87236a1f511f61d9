"""What both clients are made of. How a caller waits is the subclass's: a lock, or a future of its event loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any, Literal, TypeVar

from .. import errors
from ..errors import MillraceError
from ..types import At
from . import engine as engines
from . import faults, loop, place, wire
from .pins import Again, of_ops, unknown
from .producer import Call, Unplaced, in_order
from .producers import refused

T = TypeVar("T")
_UNSET: Any = object()


class BaseClient:
    """The options of a client, and its engine in this process."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        namespace: str | None = None,
        tls: bytes | bool | None = None,
        timeout: float | None = 30.0,
        ledger: IO[Any] | str | None = None,
        logger: logging.Logger | None = None,
        transport: Literal["auto", "stream", "rest"] | None = None,
        rest_url: str | None = None,
    ) -> None:
        self._options = engines.options(url, token, namespace, tls, timeout, ledger, logger, transport, rest_url)
        self._token = self._options.token
        self._eng: engines.Engine | None = None
        self._closed = False

    def _engine(self) -> engines.Engine:
        """Return the engine. A process that was forked begins another one, with sessions of its own."""
        io = loop.io()
        e = self._eng
        if e is not None and e.io is io and not self._closed:
            return e
        with loop.guard():
            if self._closed:
                raise faults.closed()
            if self._eng is None or self._eng.io is not io:
                made = engines.Engine(io, self._options)
                made.token = self._token
                if self._eng is not None:
                    if self._eng.partitions:
                        made.learned(self._eng.partitions)
                        made.pins.update(self._eng.pins)
                    loop.drop(self._eng)
                self._eng = made
                io.closers.add(self)
            return self._eng

    def _pins(self) -> dict[str, bool]:
        """Return for each queue of which it is known whether it is pinned."""
        return self._eng.pins if self._eng is not None else {}

    def _partitions(self) -> int:
        """Return how many partitions the namespace has; 0: no server has said so yet."""
        return self._eng.partitions if self._eng is not None else 0

    @property
    def transport(self) -> Literal["stream", "rest"]:
        """How the client speaks to its server now: over gRPC with streams, or over REST."""
        e = self._eng
        over_rest = self._options.transport == "rest" if e is None else e.ways.rest is not None
        return "rest" if over_rest else "stream"

    def abandon(self) -> None:
        """End all streams without waiting for anything: the process ends."""
        e = self._eng
        if e is not None and e.io is loop.io():
            e.io.post(e.abandon)

    def set_token(self, token: str) -> None:
        """Replace the token, on open streams too."""
        self._token = token.strip()
        e = self._eng
        if e is not None and e.io is loop.io():
            e.io.post(e.set_token, self._token)

    def _time(self, timeout: Any) -> float | None:
        """Return the timeout of a call."""
        return self._options.timeout if timeout is _UNSET else timeout

    # How a caller waits.

    def _carry(self, calls: list[Call], timeout: float | None, finish: Callable[[], Any]) -> Any:
        """Carry out calls, and return what finish makes of them when all have ended."""
        raise NotImplementedError

    def _await(self, coroutine: Callable[[engines.Engine], Any], finish: Callable[[Any], Any]) -> Any:
        """Run a coroutine in the I/O thread, and return what finish makes of its result."""
        raise NotImplementedError

    def _handle(self, job: Any, id: str, replayed: bool, replaced: bool) -> Any:
        raise NotImplementedError

    # Tasks.

    def _create(self, specs: Sequence[Any], atomic: bool) -> list[Call]:
        """Make the calls that add tasks."""
        n = self._partitions()
        if n > 1:
            return self._create_placed(specs, n, atomic)
        free = [i for i, spec in enumerate(specs) if not spec.id] if n == 0 else None
        for spec in specs:
            if not spec.id:
                spec.id = place.new_id()
        return self._gather(specs, atomic, free)

    def _create_placed(self, specs: Sequence[Any], partitions: int, atomic: bool) -> list[Call]:
        """Make the calls that add tasks, of one partition each."""
        e = self._engine()
        turn = e.turn_of_free
        again = Again(specs, [s.id for s in specs])
        if len(specs) == 1 or atomic:
            if atomic:
                home = place.together(specs, partitions, turn, e.pins)
            else:
                home = place.task_place(specs[0], partitions, turn % partitions, e.pins)
            calls = self._gather(specs, atomic)
            for c in calls:
                c.partition, c.again = home, again
            return calls
        homes, wrong = place.spread(specs, partitions, turn, e.pins)
        calls = [refused(i, e) for i, e in wrong.items()]
        for home, index in homes.items():
            at = 0
            for c in self._gather([specs[i] for i in index], False):
                c.partition, c.index = home, index[at : at + len(c.items)]
                c.again = again.of(c.index)
                at += len(c.items)
                calls.append(c)
        return calls

    def _gather(self, specs: Sequence[Any], atomic: bool, free: list[int] | None = None) -> list[Call]:
        """Make calls of as many tasks as fit in a frame. free: they are open, and these have no id of their own."""
        calls: list[Call] = []
        ledger = self._options.ledger
        invoke = ledger.now() if ledger is not None else 0
        items: list[bytes] = []
        size = first = 0

        def cut(end: int) -> None:
            these = specs[first:end]
            c = Call(items, commit=False, atomic=atomic, note=_noted(ledger, invoke, these))
            if free is not None:
                c.open = Unplaced(these, [i - first for i in free if first <= i < end])
            calls.append(c)

        for i, spec in enumerate(specs):
            raw = spec.SerializeToString()
            n = len(raw)
            if n + 64 > wire.FRAME_BYTES:
                raise errors.TooLarge(f"the task takes {n} bytes", limit="frame_bytes", max=wire.FRAME_BYTES)
            if items and not atomic and (len(items) >= wire.FRAME_ITEMS or size + n > wire.FRAME_AIM):
                cut(i)
                items, size, first = [], 0, i
            items.append(raw)
            size += n
        cut(len(specs))
        return calls

    def _add(self, job: Any, args: Any, o: dict[str, Any]) -> Any:
        spec = job._spec(args, o)
        calls = self._create([spec], False)

        def finish() -> Any:
            c = calls[0]
            if c.error is not None:
                raise trimmed(c.error)
            r = c.answer[0]
            return self._handle(job, r.id, r.replayed, r.replaced)

        return self._carry(calls, self._time(o.get("timeout", _UNSET)), finish)

    def _add_many(self, job: Any, args: Iterable[Any], o: dict[str, Any]) -> Any:
        specs = [job._spec(a, o) for a in args]
        if o.get("id") and len(specs) > 1:
            raise errors.InvalidArgument("several tasks cannot have one id", field="id")
        return self._add_specs([(job, s) for s in specs], o)

    def _add_specs(self, pairs: list[tuple[Any, Any]], o: dict[str, Any]) -> Any:
        calls = self._create([s for _, s in pairs], False) if pairs else []

        def finish() -> Any:
            handles: list[Any] = []
            wrong: list[MillraceError | None] = []
            for (job, _), (r, e, _) in zip(pairs, in_order(calls, len(pairs)), strict=True):
                if r is not None and e is None and r.HasField("error"):
                    e = faults.from_wire(r.error)
                wrong.append(None if e is None else trimmed(e))
                handles.append(None if e is not None or r is None else self._handle(job, r.id, r.replayed, r.replaced))
            if any(e is not None for e in wrong):
                raise errors.BatchError(wrong, handles)
            return handles

        return self._carry(calls, self._time(o.get("timeout", _UNSET)), finish)

    def _add_all(self, job: Any, args: Iterable[Any], o: dict[str, Any]) -> Any:
        specs = [job._spec(a, o) for a in args]
        if len(specs) > wire.FRAME_ITEMS:
            raise errors.TooLarge(
                f"{len(specs)} tasks cannot be added at once", limit="frame_items", max=wire.FRAME_ITEMS
            )
        return self._add_specs_atomic([(job, s) for s in specs], o)

    def _add_specs_atomic(self, pairs: list[tuple[Any, Any]], o: dict[str, Any]) -> Any:
        calls = self._create([s for _, s in pairs], True) if pairs else []

        def finish() -> Any:
            handles: list[Any] = []
            for c in calls:
                if c.error is not None:
                    raise c.error
                refused = [faults.from_wire(r.error) for r in c.answer if r.HasField("error")]
                if refused:
                    raise refused[0]
                for (job, _), r in zip(pairs, c.answer, strict=False):
                    handles.append(self._handle(job, r.id, r.replayed, r.replaced))
            return handles

        return self._carry(calls, self._time(o.get("timeout", _UNSET)), finish)

    def _batch_home(self, m: Any, o: Mapping[str, Any], specs: Sequence[Any] = ()) -> Any:
        """Return the partition of a batch that a transaction opens next to tasks, if nothing else in it says one."""
        from ..batch import learn_home

        timeout = self._time(o.get("timeout", _UNSET))
        return self._await(lambda e: learn_home(e, m, o.get("tag", ""), timeout, specs), lambda home: home)

    # Commits.

    def _commit(
        self,
        changes: Any,
        timeout: float | None,
        finish: Callable[[Any, Any], Any],
        *,
        op: str = "commit",
        fence: tuple[str, int] | None = None,
        **line: str,
    ) -> Any:
        """Commit changes under a request id, so that it can be sent again; finish takes the answer and its place."""
        n, task = self._partitions(), fence[0] if fence is not None else ""
        pins = self._pins()
        # Users of a Tx have the ids of its tasks, so it has asked. What an AsyncTx does not know is asked for now.
        late = (
            n > 1
            and not task
            and (
                bool(unknown(of_ops(changes._ops), pins))
                or any(place.is_misplaced(changes._ops[i].task_create, n, pins) for i in changes._made)
            )
        )
        home = 0 if late else place.commit_place(changes._checks, changes._ops, n, task, pins)
        request = wire.CommitRequest(conditions=changes._checks, ops=changes._ops, request_id=wire.random16())
        if fence is not None:
            request.fence.task, request.fence.token = fence
        raw = request.SerializeToString()
        if len(raw) + 64 > wire.FRAME_BYTES:
            raise errors.TooLarge(f"the commit takes {len(raw)} bytes", limit="frame_bytes", max=wire.FRAME_BYTES)
        ledger = self._options.ledger
        note: Callable[[Call], None] | None = None
        if ledger is not None:
            invoke = ledger.now()
            rid = request.request_id.hex()
            more = {"id": fence[0], "token": str(fence[1])} if fence is not None else {}

            def written(c: Call) -> None:
                replayed = c.error is None and c.answer.replayed
                ledger.write(op, invoke, at=c.at, error=c.error, request_id=rid, replayed=replayed, **more, **line)

            note = written

        call = Call([raw], commit=True, atomic=False, note=note)
        call.partition = home
        if n == 0:
            call.open = Unplaced((), changes._free[:], request, task)
        elif late:
            call.open = Unplaced((), (), request, made=changes._made)

        def end() -> Any:
            if call.error is not None:
                raise call.error
            return finish(call.answer, call.at)

        return self._carry([call], timeout, end)

    # Unary calls.

    def _unary(
        self,
        method: str,
        request: Any,
        answer: str,
        finish: Callable[[Any], Any],
        *,
        timeout: Any = _UNSET,
        repeat: bool = True,
        stream: bool = False,
        place: Callable[[int], int] | None = None,
        op: str = "",
        line: Callable[[Any], dict[str, Any]] | None = None,
        **fields: Any,
    ) -> Any:
        t = self._time(timeout)
        kind = wire.message(answer)
        ledger = self._options.ledger

        async def run(e: engines.Engine) -> Any:
            if ledger is None or not op:
                return await e.call(method, request, kind, t, repeat=repeat, stream=stream, place=place)
            invoke = ledger.now()
            try:
                got = await e.call(method, request, kind, t, repeat=repeat, stream=stream, place=place)
            except MillraceError as wrong:
                ledger.write(op, invoke, error=wrong, **fields)
                raise
            ledger.write(op, invoke, at=got.at, **fields, **(line(got) if line else {}))
            return got

        return self._await(run, finish)


def _noted(ledger: Any, invoke: int, specs: Sequence[Any]) -> Callable[[Call], None] | None:
    """Return what writes the lines of a call that adds tasks; None without a ledger."""
    return None if ledger is None else lambda c: ledger_creates(ledger, invoke, specs, c)


def ledger_creates(ledger: Any, invoke: int, specs: Sequence[Any], c: Call) -> None:
    """Write the lines of a call that added tasks."""
    for spec, (r, e, at) in zip(specs, c.outcomes(), strict=True):
        more = {}
        if e is None and r is not None:
            if r.HasField("error"):
                e = faults.from_wire(r.error)
            else:
                more = {"replayed": r.replayed, "answer": r.id if r.id != spec.id else ""}
        ledger.write(
            "create", invoke, at=at if e is None else None, error=e, id=spec.id, queue=spec.queue,
            key=spec.unique.key, **more,
        )  # fmt: skip


def trimmed(e: MillraceError) -> MillraceError:
    """Drop the index within a gathered frame from a field: it means nothing to the caller of one task."""
    if e.field.startswith(("tasks[", "items[")):
        _, closed, rest = e.field.partition("]")
        if closed:
            e.field = rest.lstrip(".")
    return e


def at_of(at: Any) -> At:
    """Read a place in the log."""
    return At(at.partition, at.index)
