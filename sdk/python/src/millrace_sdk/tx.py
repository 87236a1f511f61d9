"""What is committed at once: a transaction, or the effects of a handler."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import codec, convert, errors
from ._core import place, wire
from .types import set_until

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .batch import BatchOptions
    from .job import Prepared

Key = str | bytes


def key_bytes(key: Key) -> bytes:
    """Return the bytes of a key."""
    return key.encode() if isinstance(key, str) else bytes(key)


class Changes:
    """Collects checks and ops, in their order. Nothing is sent before the commit.

    In a namespace of several partitions all of it is of one: that of the handler's task, or of the first op. A task's
    tag or unique key says where it is, and a key's text between its first braces, or else all of it. What belongs
    elsewhere is WrongPartition, before anything is sent.
    """

    _late = False  # whether the commit may find out that the queue of a task is pinned, and change its id

    def __init__(self, task: str = "") -> None:
        self._checks: list[Any] = []
        self._ops: list[Any] = []
        self._task = task  # in whose partition all of it is
        self._free: list[int] = []  # ops that create tasks whose ids wait for the number of partitions
        self._made: list[int] = []  # ops that create tasks whose ids may change so

    def _partitions(self) -> int:
        """Return how many partitions there are; 0: it is not known yet."""
        return 1

    def _pins(self, spec: Any) -> place.Pins:
        """Return which queues are known to be pinned, where a task is to be placed."""
        return {}

    def __len__(self) -> int:
        return len(self._checks) + len(self._ops)

    def kv(self, keyspace: str) -> TxKeyspace:
        """Return a keyspace whose changes are part of this commit."""
        return TxKeyspace(self, keyspace)

    def repo(self, name: str, *, tag: str = "") -> TxRepo:
        """Return a repository whose changes are part of this commit. tag is the repository's, if it has one."""
        return TxRepo(self, name, tag)

    def collection(self, name: str) -> TxCollection:
        """Return a collection whose changes are part of this commit."""
        return TxCollection(self, name)

    def queue(self, name: str) -> TxQueue:
        """Return a queue that this commit pauses or resumes."""
        return TxQueue(self, name)

    def cancel(self, id: str, reason: str = "", *, force: bool = False) -> None:
        """Cancel a task."""
        op = self._op()
        op.task_cancel.id = id
        op.task_cancel.reason, op.task_cancel.force = reason, force

    def seal_batch(self, id: str) -> None:
        """Say that a batch of the commit's partition gets no more tasks, as Batch.seal does.

        It sees what was added before it: a completion that adds the last tasks of a batch can seal it.
        """
        self._op().batch_seal.id = id

    def cancel_batch(self, id: str, reason: str = "", *, rate: int | None = None, force: bool = False) -> None:
        """Seal a batch of the commit's partition and have its tasks cancelled, as Batch.cancel does."""
        from . import batch

        op = wire.Op()
        batch.fill_cancel(op.batch_cancel, id, reason, rate, force)
        self._ops.append(op)

    def _batch(self, o: Mapping[str, Any]) -> Any:
        """Make the op of a batch that is opened."""
        from . import batch

        op = wire.Op()
        op.batch_open.SetInParent()
        batch.fill_open(op.batch_open, o)
        return op

    def _home(self, n: int, o: Mapping[str, Any], pins: place.Pins) -> int:
        """Return the partition of a batch that has no id; below 0: nothing says it."""
        if o.get("tag"):
            return place.text_place(o["tag"].encode(), n)
        if self._task:
            return max(place.id_place(self._task, n), 0)
        return place.first_place(self._checks, self._ops, n, pins) if n > 1 else 0

    def _opened(self, op: Any, home: int, n: int) -> str:
        """Add a batch that is opened, with an id of that partition if it has none, and return its id."""
        op.batch_open.id = op.batch_open.id or place.id_in(home, n)
        self._ops.append(op)
        return str(op.batch_open.id)

    def _op(self) -> Any:
        op = wire.Op()
        self._ops.append(op)
        return op

    def _create(self, p: Prepared) -> str:
        n, spec = self._partitions(), p.spec
        if n > 1:
            open = not spec.id
            place.create_in(spec, self._checks, self._ops, n, self._task, len(self._ops), self._pins(spec))
            if open and self._late:
                self._made.append(len(self._ops))
        elif not spec.id:
            spec.id = place.new_id()
            if n == 0:
                self._free.append(len(self._ops))
        self._op().task_create.CopyFrom(spec)
        return str(spec.id)

    def _clear(self) -> None:
        self._checks.clear()
        self._ops.clear()
        self._free.clear()
        self._made.clear()

    def _kinds(self) -> list[str]:
        return [op.WhichOneof("op") or "" for op in self._ops]


class TxKeyspace:
    """A keyspace within a commit."""

    def __init__(self, to: Changes, name: str) -> None:
        self._to = to
        self._name = name

    def put(
        self, key: Key, value: Any, *, if_rev: int | None = None, if_absent: bool = False, want_previous: bool = False
    ) -> None:
        """Store a value: text and bytes as they are, others as JSON."""
        m = self._to._op().kv_put
        m.keyspace, m.key = self._name, key_bytes(key)
        m.value, m.if_absent, m.want_prev = codec.encode_value(value), if_absent, want_previous
        if if_rev is not None:
            m.if_rev = if_rev

    def delete(self, key: Key, *, if_rev: int | None = None) -> None:
        """Remove a key. An absent key is not an error."""
        m = self._to._op().kv_delete
        m.keyspace, m.key = self._name, key_bytes(key)
        if if_rev is not None:
            m.if_rev = if_rev

    def add(
        self,
        key: Key,
        delta: int = 1,
        *,
        floor: int | None = None,
        ceiling: int | None = None,
        if_rev: int | None = None,
    ) -> None:
        """Add to a number; an absent key holds 0. A sum beyond a bound is refused."""
        m = self._to._op().kv_add
        m.keyspace, m.key, m.delta = self._name, key_bytes(key), delta
        if floor is not None:
            m.floor = floor
        if ceiling is not None:
            m.ceiling = ceiling
        if if_rev is not None:
            m.if_rev = if_rev

    def delete_range(self, *, prefix: Key | None = None, start: Key = b"", end: Key = b"", count: bool = False) -> None:
        """Remove the keys that begin with prefix, or those from start up to end, without it."""
        if prefix is not None and (start or end):
            raise errors.InvalidArgument("prefix and start and end are mutually exclusive", field="prefix")
        m = self._to._op().kv_delete_range
        m.keyspace, m.count = self._name, count
        setattr(m, "from", key_bytes(start))
        m.to, m.prefix = key_bytes(end), key_bytes(prefix or b"")

    def check(
        self,
        key: Key,
        compare: str = "exists",
        *,
        rev: int | None = None,
        value: Any = None,
    ) -> None:
        """Refuse the commit unless the key exists, is absent, or compares so to rev or value.

        compare is exists, absent, equal, not_equal, less or greater.
        """
        if compare not in wire.COMPARES:
            raise errors.InvalidArgument(f"compare must be one of {', '.join(wire.COMPARES)}", field="compare")
        m = wire.KVCheck(keyspace=self._name, key=key_bytes(key), compare=wire.COMPARES[compare])
        if rev is not None:
            m.rev = rev
        elif value is not None:
            m.value = codec.encode_value(value)
        self._to._checks.append(m)


class TxRepo:
    """A repository within a commit. All its changes are one op, a transaction of refs."""

    def __init__(self, to: Changes, name: str, tag: str = "") -> None:
        self._to = to
        self._name = name
        self._tag = tag
        self._op: Any = None

    def _change(self, kind: int, ref: str, message: str, **fields: str | None) -> None:
        if self._op is None or self._op not in self._to._ops:
            self._op = self._to._op()
            self._op.ref_transaction.repo, self._op.ref_transaction.tag = self._name, self._tag
        c = self._op.ref_transaction.changes.add(kind=kind, name=ref, message=message)
        for name, value in fields.items():
            if value is not None:
                setattr(c, name, value)

    def create(self, ref: str, new: str, *, message: str = "") -> None:
        """Make a ref that must not exist."""
        self._change(1, ref, message, new=new)

    def update(self, ref: str, new: str, old: str | None = None, *, message: str = "") -> None:
        """Move a ref, with old only from there. An empty old means that it must not exist, an empty new removes it."""
        if old == "" and new:
            self.create(ref, new, message=message)
        elif new:
            self._change(2, ref, message, new=new, old=old)
        else:
            self.delete(ref, old or None, message=message)

    def delete(self, ref: str, old: str | None = None, *, message: str = "") -> None:
        """Remove a ref, with old only from there."""
        self._change(3, ref, message, old=old)

    def verify(self, ref: str, old: str | None = None) -> None:
        """Refuse the commit unless a ref is at old, or without it does not exist."""
        self._change(4, ref, "", old=old)


class TxCollection:
    """A collection of points within a commit."""

    def __init__(self, to: Changes, name: str) -> None:
        self._to = to
        self._name = name

    def upsert(
        self,
        id: str,
        *,
        vector: Sequence[float] = (),
        model: str = "",
        payload: Mapping[str, Any] | None = None,
        if_version: str = "",
        if_absent: bool = False,
    ) -> None:
        """Store a point. Without a vector the text of the payload is embedded."""
        m = self._to._op().vector_upsert
        m.collection = self._name
        p = m.point
        p.id, p.model, p.if_version, p.if_absent = id, model, if_version, if_absent
        p.vector.extend(vector)
        if payload is not None:
            p.payload = convert.text(convert.dump(payload))

    def delete(self, id: str, *, if_version: str = "") -> None:
        """Remove a point."""
        m = self._to._op().vector_delete
        m.collection, m.id, m.if_version = self._name, id, if_version


class TxQueue:
    """A queue within a commit."""

    def __init__(self, to: Changes, name: str) -> None:
        self._to = to
        self._name = name

    def pause(self, reason: str = "", *, seconds: float | None = None, until: datetime.datetime | None = None) -> None:
        """Give out no tasks until it is resumed, for some seconds, or until a time; a time without a zone is UTC."""
        op = wire.Op()
        op.queue_pause.queue, op.queue_pause.reason = self._name, reason
        set_until(op.queue_pause, seconds, until)
        self._to._ops.append(op)

    def resume(self) -> None:
        """Give out tasks again."""
        m = self._to._op().queue_pause
        m.queue, m.resume = self._name, True


class Effects(Changes):
    """The effects of a handler: they are applied exactly when the task completes, in the same entry of the log."""

    def __init__(
        self,
        task: str = "",
        partitions: Callable[[], int] | None = None,
        pins: Callable[[], place.Pins] | None = None,
    ) -> None:
        super().__init__(task)
        self._of = partitions
        self._known = pins

    def _partitions(self) -> int:
        return self._of() if self._of is not None else 1

    def _pins(self, spec: Any = None) -> place.Pins:
        return self._known() if self._known is not None else {}

    def open_batch(self, **o: Unpack[BatchOptions]) -> str:
        """Open a batch in the commit's partition, as Client.open_batch does by itself, and return its id.

        What is added after it may name the batch: tasks by the option batch, seal_batch and cancel_batch.
        """
        n = self._partitions()
        return self._opened(self._batch(o), self._home(n, o, self._pins()), n)

    def _write(self, item: Any) -> None:
        """Add them to a message that has a field for them. Those of another partition are WrongPartition."""
        if not self._checks and not self._ops:
            return
        place.commit_place(self._checks, self._ops, self._partitions(), self._task, self._pins())
        item.effects.conditions.extend(self._checks)
        item.effects.ops.extend(self._ops)
