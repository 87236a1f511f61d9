"""What a Recorder keeps in place of a server: keys and tasks in memory, and the judgement of what changes them.

It has one partition and no clock of its own: nothing waits, no lease runs out, no unique key is free again by time. It
judges the checks and ops of keys and tasks as a server does, and neither limits nor rights. Changes of refs and of
collections, and pauses of queues, are kept as they came. proto/conformance/commits.json holds this to servers.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from . import errors
from ._core import place, wire
from .errors import MillraceError

_ATTEMPTS, _CRASHES, _DELIVERIES, _LEASE = 5, 10, 1000, 60  # of tasks of a queue without a configuration
_SHOWN_BYTES = 1 << 10  # most bytes of a value that a refusal shows
_MOST, _LEAST = (1 << 63) - 1, -(1 << 63)

_KEYSPACE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:-]{0,127}")
_NUMBER = re.compile(rb"[+-]?[0-9]+")

_SCHEDULED, _READY, _RUNNING, _COMPLETED, _DEAD, _CANCELLED = 2, 3, 4, 5, 6, 7

_Key = tuple[str, bytes]  # a keyspace, and a key of it


class _Row(NamedTuple):
    """What a key holds."""

    value: bytes = b""
    rev: int = 0  # the index of the commit that wrote it; 0: it is not there


_NONE = _Row()


class _Entry:
    """A task, and what became of it."""

    __slots__ = ("checkpoint", "first", "info", "spec", "token")

    def __init__(self, spec: Any, info: Any) -> None:
        self.first = spec  # what was asked for first, by which a repetition is told
        self.spec = spec  # what is asked for now
        self.info = info  # what readers see
        self.token = 0  # of the attempt that runs; 0: none does
        self.checkpoint = b""

    @property
    def freed(self) -> bool:
        """Whether its start or its end has freed its unique key."""
        until = self.spec.unique.until
        return bool(until and (self.ended or (until == 1 and self.info.attempt > 0)))

    @property
    def ended(self) -> bool:
        """Whether it has ended for good."""
        return bool(self.info.state >= _COMPLETED)


def lacking(what: str) -> MillraceError:
    """Make the error of what a Recorder does not have."""
    return errors.InvalidArgument(f"a Recorder has no {what}: test this against a server", reason="recorder")


def _invalid(field: str, text: str, reason: str = "") -> MillraceError:
    return errors.InvalidArgument(f"{field}: {text}", field=field, reason=reason)


def _within(e: MillraceError, where: str, op: int | None = None) -> MillraceError:
    """Say where the bad field is, and at which op."""
    made = errors.make(e.code, where + e.message, field=where + e.field, reason=e.reason, details=e.details)
    made.op = op
    return made


def _at(e: MillraceError, op: int) -> MillraceError:
    e.op = op
    return e


def _exists(kind: str, id: str) -> MillraceError:
    return errors.AlreadyExists(f'{kind} "{id}" exists with other content')


def _not_found(id: str) -> MillraceError:
    return errors.NotFound(f'task "{id}" not found')


class Store:
    """Keeps what one client adds and commits. It may be used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._index = 0  # counts creates and commits, as places in a log
        self._tokens = 0  # counts attempts
        self._tasks: dict[str, _Entry] = {}
        self._order: list[_Entry] = []  # as they were added
        self._ended = 0  # how many of the first ones have ended
        self._unique: dict[tuple[str, str], _Entry] = {}
        self._keys: dict[_Key, _Row] = {}
        self._ops: list[Any] = []  # of all commits, and of the effects of completions
        self._undo: list[Callable[[], object]] = []  # takes back what the change under way has done

    # Reads.

    def specs(self) -> list[Any]:
        """Return what was asked for of each task, in the order in which they were added."""
        with self._lock:
            return [t.spec for t in self._order]

    def ops(self) -> list[Any]:
        """Return the ops that were applied, in order."""
        with self._lock:
            return list(self._ops)

    def at(self) -> Any:
        """Return where the log stands."""
        return wire.message("At")(index=self._index)

    def get(self, id: str) -> Any:
        """Return a task as it is now."""
        with self._lock:
            t = self._tasks.get(id)
            if t is None:
                raise _not_found(id)
            out = wire.message("Task")()
            out.CopyFrom(t.info)
            return out

    def ended(self, id: str) -> Any:
        """Return a task that has ended."""
        t = self.get(id)
        if t.state < _COMPLETED:
            state = wire.state(t.state)
            raise errors.WrongState(
                f"task {id} is {state}, and nothing runs it: call drain before",
                reason="recorder",
                details={"state": state},
            )
        return t

    def call(self, method: str, request: Any) -> Any:
        """Answer a call; that of a stream is a list of its messages."""
        with self._lock:
            if method == "KVService/Get":
                row = self._keys.get(_named(request.keyspace, request.key), _NONE)
                return wire.message("KVGetResponse")(value=row.value, rev=row.rev, found=row.rev != 0, at=self.at())
            if method == "KVService/Range":
                return [self._range(request)]
            if method == "TaskService/Get":
                return wire.message("GetResponse")(task=self.get(request.id), at=self.at())
            if method == "TaskService/Cancel":
                self._next()
                state, replayed = self._cancel(request)
                op = wire.Op()
                op.task_cancel.id, op.task_cancel.reason, op.task_cancel.force = (
                    request.id,
                    request.reason,
                    request.force,
                )
                self._ops.append(op)
                return wire.message("CancelResponse")(state=state, replayed=replayed, at=self.at())
        raise lacking(method)

    def _range(self, request: Any) -> Any:
        _ranged(request)
        out = wire.message("KVRangeResponse")()
        names = self._names(request)
        for k in names[: request.limit] if request.limit else names:
            row = self._keys[k]
            out.items.add(key=k[1], value=b"" if request.keys_only else row.value, rev=row.rev)
        return out

    # Changes. One that raises has changed nothing.

    def _next(self) -> None:
        """Begin an entry of the log."""
        self._index += 1
        self._undo.clear()

    def _rollback(self) -> None:
        for f in reversed(self._undo):
            f()
        self._undo.clear()

    def create_each(self, specs: Sequence[Any]) -> list[Any]:
        """Add tasks, each by itself: there is a result or an error for each."""
        with self._lock:
            self._next()
            return [self._try_create(spec) for spec in specs]

    def _try_create(self, spec: Any) -> Any:
        try:
            return self._judged(spec)
        except MillraceError as e:
            return e

    def create_all(self, specs: Sequence[Any]) -> list[Any]:
        """Add all tasks, or none."""
        with self._lock:
            self._next()
            out = []
            for i, spec in enumerate(specs):
                try:
                    out.append(self._judged(spec))
                except MillraceError as e:
                    self._rollback()
                    raise (_within(e, f"tasks[{i}].") if e.field else _at(e, i)) from None
            return out

    def _judged(self, spec: Any) -> Any:
        spec.id = spec.id or place.new_id()
        _judge(spec)
        return self._create(spec)

    def commit(self, checks: Sequence[Any], ops: Sequence[Any], fence: tuple[str, int] | None = None) -> Any:
        """Carry out a commit."""
        with self._lock:
            _shape(checks, ops)
            if fence is not None:
                try:
                    self._holder(*fence)
                except MillraceError as e:
                    raise _at(e, -1) from None
            return wire.message("CommitResponse")(results=self._apply(checks, ops), at=self.at())

    def _apply(self, checks: Sequence[Any], ops: Sequence[Any]) -> list[Any]:
        """Apply ops in order, if all checks hold: all of them, or none. _shape has let them pass."""
        _twice(ops)
        self._next()
        for i, c in enumerate(checks):
            row = self._keys.get((c.keyspace, c.key), _NONE)
            if not _holds(row, c):
                raise _at(_mismatch(c, row), -2 - i)
        results = []
        for i, op in enumerate(ops):
            try:
                results.append(self._op(op))
            except MillraceError as e:
                self._rollback()
                raise _at(e, i) from None
        self._ops.extend(ops)
        return results

    def _op(self, op: Any) -> Any:
        kind = op.WhichOneof("op")
        out = wire.message("OpResult")()
        m = getattr(op, kind)
        if kind == "kv_put":
            self._put(m, out)
        elif kind == "kv_delete":
            k, row = self._at_rev(m)
            self._set(k, _NONE)
            out.existed = row.rev != 0
        elif kind == "kv_add":
            self._add(m, out)
        elif kind == "kv_delete_range":
            names = self._names(m)
            for k in names:
                self._set(k, _NONE)
            out.count = len(names) if m.count else 0
        elif kind == "task_create":
            made = self._create(m)
            out.task, out.replayed, out.payload_matches = made.id, made.replayed, made.payload_matches
            out.replaced = made.replaced
        elif kind == "task_cancel":
            out.state, out.replayed = self._cancel(m)
            out.task = m.id
        elif kind in ("batch_open", "batch_seal", "batch_cancel"):
            out.batch = m.id  # there are no batches here: they are noted
        return out

    # Keys.

    def _set(self, k: _Key, row: _Row) -> None:
        old = self._keys.get(k, _NONE)
        self._undo.append(lambda: self._restore(k, old))
        self._restore(k, row)

    def _restore(self, k: _Key, row: _Row) -> None:
        if row.rev:
            self._keys[k] = row
        else:
            self._keys.pop(k, None)

    def _at_rev(self, m: Any) -> tuple[_Key, _Row]:
        """Return what the key of an op holds, if it is at the revision that the op names."""
        k = (m.keyspace, m.key)
        row = self._keys.get(k, _NONE)
        if m.HasField("if_rev") and m.if_rev != row.rev:
            raise _mismatch(m, row)
        return k, row

    def _put(self, m: Any, out: Any) -> None:
        k, row = self._at_rev(m)
        if m.if_absent and row.rev:
            raise _mismatch(m, row)
        if m.want_prev:
            out.prev, out.existed = row.value, row.rev != 0
        self._set(k, _Row(m.value, self._index))
        out.rev = self._index

    def _add(self, m: Any, out: Any) -> None:
        k, row = self._at_rev(m)
        n, why = 0, ""
        if row.rev:
            # A text of more digits than any number of 64 bits has is not read: int would refuse thousands of them.
            plain = _NUMBER.fullmatch(row.value) and len(row.value.lstrip(b"+-0")) <= 19
            n = int(row.value) if plain else _MOST + 1
        total = n + m.delta
        if not _LEAST <= n <= _MOST:
            why = "not_a_number"
        elif not _LEAST <= total <= _MOST:
            why = "overflow"
        elif (m.HasField("floor") and total < m.floor) or (m.HasField("ceiling") and total > m.ceiling):
            why = "bound"
        if why:
            raise errors.PreconditionFailed(
                f"nothing was added to the key: {why}", reason=why, details={"rev": str(row.rev)}
            )
        self._set(k, _Row(str(total).encode(), self._index))
        out.rev, out.sum = self._index, total

    def _names(self, m: Any) -> list[_Key]:
        """Return the keys of a range, in their order."""
        start = getattr(m, "from")
        return sorted(
            k
            for k in self._keys
            if k[0] == m.keyspace and k[1].startswith(m.prefix) and k[1] >= start and (not m.to or k[1] < m.to)
        )

    # Tasks.

    def _create(self, spec: Any) -> Any:
        """Make a task that _judge has let pass, or find the one that is there."""
        result = wire.CreateResult
        old = self._tasks.get(spec.id)
        if old is not None:
            if old.first != spec:
                raise _exists("task", spec.id)
            return result(id=spec.id, replayed=True, payload_matches=True)
        held = (spec.queue, spec.unique.key)
        other = self._unique.get(held) if spec.unique.key else None
        if other is not None and not other.freed:
            if spec.unique.on_conflict == 1:
                raise _exists("unique", spec.unique.key)
            same = _bare(other.spec) == _bare(spec)
            waits = other.info.attempt == 0 and not other.ended
            if spec.unique.on_conflict == 2 and waits and not (same and not spec.HasField("delay")):
                return self._replace(other, spec)
            return result(id=other.spec.id, replayed=True, payload_matches=same)
        kept = wire.TaskSpec()
        kept.CopyFrom(spec)
        t = _Entry(kept, _info_of(kept))
        self._tasks[kept.id] = t
        self._order.append(t)
        self._undo.append(lambda: (self._tasks.pop(kept.id), self._order.pop()))
        if held[1]:
            self._unique[held] = t
            self._undo.append(lambda: self._unique.pop(held) if other is None else self._unique.update({held: other}))
        return result(id=kept.id)

    def _replace(self, t: _Entry, spec: Any) -> Any:
        """Make a task that has not started what another create of its unique key asks for."""
        spec_before, info_before = t.spec, t.info

        def undo() -> None:
            t.spec, t.info = spec_before, info_before

        self._undo.append(undo)
        t.spec = wire.TaskSpec()
        t.spec.CopyFrom(spec)
        t.spec.id = spec_before.id
        t.info = _info_of(t.spec)
        t.info.created_at.CopyFrom(info_before.created_at)
        return wire.CreateResult(id=t.spec.id, replaced=True)

    def _holder(self, id: str, token: int) -> _Entry:
        t = self._tasks.get(id)
        if t is None or token == 0 or t.token != token:
            raise errors.LeaseLost(f"task {id}: token {token} lost its lease")
        return t

    def next(self, kinds: Iterable[str], passed: set[str]) -> Any:
        """Begin an attempt at the first task that waits, of one of kinds, and is not one of passed; None: none does."""
        with self._lock:
            while self._ended < len(self._order) and self._order[self._ended].ended:
                self._ended += 1
            for t in self._order[self._ended :]:
                s = t.spec
                if t.ended or t.token or s.id in passed or s.kind not in kinds:
                    continue
                self._tokens += 1
                t.token = self._tokens
                i = t.info
                i.state, i.reason = _RUNNING, ""
                i.attempt += 1
                i.ClearField("run_at")
                wire.set_time(i.started_at, time.time())
                lease = round(wire.span(i.lease) * 1000)
                return wire.Assignment(
                    id=s.id, token=t.token, attempt=i.attempt, queue=s.queue, kind=s.kind, payload=s.payload,
                    content_type=s.content_type, headers=s.headers, priority=s.priority, lease_ms=lease,
                    lease_left_ms=lease, max_attempts=i.max_attempts, failures=i.failures,
                    created_ms=round(wire.moment(i.created_at) * 1000), checkpoint=t.checkpoint, tag=s.tag,
                )  # fmt: skip
            return None

    def save(self, id: str, token: int, data: bytes) -> None:
        """Keep the checkpoint of an attempt."""
        with self._lock:
            self._holder(id, token).checkpoint = data

    def settle(self, m: Any) -> MillraceError | None:
        """End an attempt. A refusal leaves it running, unless its effects ask for a failure in its place."""
        with self._lock:
            t = self._holder(m.id, m.token)
            kind = m.WhichOneof("outcome")
            if kind == "complete":
                try:
                    _shape(m.effects.conditions, m.effects.ops)
                except MillraceError as e:
                    return _within(e, "items[0].effects.", e.op)
                try:
                    self._apply(m.effects.conditions, m.effects.ops)
                except MillraceError as e:
                    if m.effects.fail_on_refusal:
                        _fail(
                            t, wire.message("Fail")(error={"code": e.code, "message": f"effects refused: {e.message}"})
                        )
                    return e
                t.info.has_result, t.info.result = True, m.complete.result
                t.info.result_type = m.complete.result_type
                _end(t, _COMPLETED, "")
            elif kind == "fail":
                _fail(t, m.fail)
            elif kind == "snooze":
                t.info.snoozes += 1
                _put_back(t, "snooze", wire.span(m.snooze.delay))
            elif kind == "stop":
                t.info.error.CopyFrom(m.stop.error)
                _end(t, _CANCELLED, "")
            else:
                _put_back(t, "", 0.0)
            return None

    def runs(self, id: str) -> bool:
        """Tell whether an attempt at a task runs."""
        with self._lock:
            return self._tasks[id].token != 0

    def _cancel(self, m: Any) -> tuple[int, bool]:
        """Cancel a task that waits."""
        t = self._tasks.get(m.id)
        if t is None:
            raise _not_found(m.id)
        if t.info.state == _CANCELLED:
            return _CANCELLED, True
        state = wire.state(t.info.state)
        if t.ended:
            raise errors.WrongState(f"task {m.id} is {state}", details={"state": state})
        if t.token:
            raise errors.InvalidArgument(
                "a Recorder does not cancel a task that runs: give run_handler cancelled=True", reason="recorder"
            )
        old = wire.message("Task")()
        old.CopyFrom(t.info)
        self._undo.append(lambda: setattr(t, "info", old))
        wire.set_time(t.info.cancel.at, time.time())
        t.info.cancel.reason, t.info.cancel.force = m.reason, m.force
        _end(t, _CANCELLED, "")
        return _CANCELLED, False


def _info_of(spec: Any) -> Any:
    """Return a new task as readers see it."""
    now = time.time()
    t = wire.message("Task")(
        id=spec.id, queue=spec.queue, kind=spec.kind, state=_READY, payload=spec.payload,
        content_type=spec.content_type, headers=spec.headers, priority=spec.priority, unique_key=spec.unique.key,
        max_attempts=spec.max_attempts or _ATTEMPTS, max_crashes=spec.max_crashes or _CRASHES,
        max_deliveries=spec.max_deliveries if spec.HasField("max_deliveries") else _DELIVERIES,
        tag=spec.tag, labels=spec.labels,
    )  # fmt: skip
    wire.set_time(t.created_at, now)
    wire.set_time(t.ready_at, now)
    for name in ("lease", "max_run", "expires_at"):
        if spec.HasField(name):
            getattr(t, name).CopyFrom(getattr(spec, name))
    if not spec.HasField("lease"):
        wire.set_span(t.lease, _LEASE)
    run = now + wire.span(spec.delay) if spec.HasField("delay") else wire.moment(spec.run_at)
    if run > now:
        t.state, t.reason = _SCHEDULED, "delay"
        wire.set_time(t.run_at, run)
        t.ClearField("ready_at")
    return t


def _bare(spec: Any) -> Any:
    """Return a task but for its id and unique key."""
    out = wire.TaskSpec()
    out.CopyFrom(spec)
    out.id = ""
    out.ClearField("unique")
    return out


def _fail(t: _Entry, f: Any) -> None:
    """End an attempt as a failure."""
    t.info.error.CopyFrom(f.error)
    t.info.failures += 1
    if f.fatal:
        _end(t, _DEAD, "fatal")
    elif t.info.failures >= t.info.max_attempts:
        _end(t, _DEAD, "max_attempts")
    else:
        _put_back(t, "retry", wire.span(f.retry_after))


def _put_back(t: _Entry, reason: str, wait: float) -> None:
    """Have a task wait for its next attempt."""
    t.token = 0
    at = time.time() + wait
    t.info.state, t.info.reason = (_SCHEDULED, reason) if wait > 0 else (_READY, "")
    wire.set_time(t.info.run_at if wait > 0 else t.info.ready_at, at)
    t.info.ClearField("ready_at" if wait > 0 else "run_at")


def _end(t: _Entry, state: int, reason: str) -> None:
    t.token = 0
    t.info.state, t.info.reason = state, reason
    t.info.ClearField("run_at")
    wire.set_time(t.info.finished_at, time.time())


# What no server takes, whatever it holds.


def _named(space: str, key: bytes) -> _Key:
    if not _KEYSPACE.fullmatch(space):
        raise _invalid("keyspace", "not a name of a keyspace")
    if not key:
        raise _invalid("key", "must not be empty")
    return space, key


def _ranged(m: Any) -> None:
    if not _KEYSPACE.fullmatch(m.keyspace):
        raise _invalid("keyspace", "not a name of a keyspace")
    if m.prefix and (getattr(m, "from") or m.to):
        raise _invalid("prefix", "from or to is given too")


def _judge(spec: Any) -> None:
    if not _NAME.fullmatch(spec.queue):
        raise _invalid("queue", "not a name of a queue")
    if not _NAME.fullmatch(spec.kind):
        raise _invalid("kind", "not a name of a kind")
    if place.parse_id(spec.id) is None:
        raise _invalid("id", "not an id of a task")
    if spec.priority > 9:
        raise _invalid("priority", "must be at most 9")


def _shape(checks: Iterable[Any], ops: Iterable[Any]) -> None:
    for i, c in enumerate(checks):
        try:
            _named(c.keyspace, c.key)
        except MillraceError as e:
            raise _within(e, f"conditions[{i}].") from None
    for i, op in enumerate(ops):
        try:
            _shape_of(op)
        except MillraceError as e:
            raise _within(e, f"ops[{i}].", i) from None


def _shape_of(op: Any) -> None:
    kind = op.WhichOneof("op")
    m = getattr(op, kind)
    if kind in ("kv_put", "kv_delete", "kv_add"):
        _named(m.keyspace, m.key)
        if kind == "kv_put" and m.if_absent and m.if_rev:
            raise _invalid("if_rev", "and if_absent are mutually exclusive")
    elif kind == "kv_delete_range":
        _ranged(m)
    elif kind == "task_create":
        _judge(m)


def _written(op: Any) -> tuple[tuple[str, str, Any], str] | None:
    """Return what an op writes, a key or a point, and its field; None: it is of another kind."""
    kind = op.WhichOneof("op")
    m = getattr(op, kind)
    if kind in ("kv_put", "kv_delete", "kv_add"):
        return ("key", m.keyspace, m.key), "key"
    if kind in ("vector_upsert", "vector_delete"):
        return ("point", m.collection, m.point.id if kind == "vector_upsert" else m.id), "id"
    return None


def _twice(ops: Iterable[Any]) -> None:
    """Refuse the first op that writes what an op before it writes too."""
    seen = set()
    for i, op in enumerate(ops):
        w = _written(op)
        if w is None:
            continue
        if w[0] in seen:
            raise _at(_invalid(f"ops[{i}].{w[1]}", "an op before it writes the same key", "duplicate_key"), i)
        seen.add(w[0])


def _mismatch(m: Any, row: _Row) -> MillraceError:
    """Make the refusal of a check, with the revision and the value that were found."""
    details = {"rev": str(row.rev)}
    where = f"at revision {row.rev}" if row.rev else "absent"
    text = f'key "{m.key.decode(errors="backslashreplace")}" of keyspace "{m.keyspace}" is {where}'
    if row.rev and len(row.value) <= _SHOWN_BYTES:
        try:
            details["value"] = row.value.decode()
        except UnicodeDecodeError:
            pass
    return errors.PreconditionFailed(text, details=details)


def _holds(row: _Row, c: Any) -> bool:
    """Judge a comparison.

    A key that is not there has revision 0 and no value: it is unequal to every value, and neither less nor greater.
    """
    there, compare = row.rev != 0, c.compare
    if compare == wire.COMPARES["exists"]:
        return there
    if compare == wire.COMPARES["absent"]:
        return not there
    found: tuple[Any, Any] = (row.rev, c.rev) if c.WhichOneof("operand") == "rev" else (row.value, c.value)
    if c.WhichOneof("operand") != "rev" and not there:
        return bool(compare == wire.COMPARES["not_equal"])
    if compare == wire.COMPARES["equal"]:
        return bool(found[0] == found[1])
    if compare == wire.COMPARES["not_equal"]:
        return bool(found[0] != found[1])
    return bool(found[0] < found[1] if compare == wire.COMPARES["less"] else found[0] > found[1])
