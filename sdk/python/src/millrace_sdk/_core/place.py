"""Ids of tasks, and which of the partitions of a namespace a key or a task belongs to.

This is frozen, and the same in every client and server: the vectors of proto/conformance hold the copies together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from .. import errors
from . import wire

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {c: i for i, c in enumerate(_ALPHABET)} | {c.lower(): i for i, c in enumerate(_ALPHABET)}
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_LOW = (1 << 64) - 1
_PARTITION_SHIFT = 68  # of the 12 bits in an id that name a partition

PINNED = 0  # the partition of all tasks of a queue that is bounded or ordered as a whole
Pins = Mapping[str, bool]  # for each queue of which it is known, whether it is pinned so
_NO_PINS: Pins = {}


def text_place(text: bytes, partitions: int) -> int:
    """Return the partition of a text: its FNV-1a hash of 64 bits, modulo the number of partitions."""
    if partitions <= 1:
        return 0
    h = 14695981039346656037
    for b in text:
        h = ((h ^ b) * 1099511628211) & _LOW
    return h % partitions


def key_place(key: bytes, partitions: int) -> int:
    """Return the partition of a key: by the text in its first pair of braces, else by the whole key."""
    if partitions <= 1:
        return 0
    _, opened, rest = key.partition(b"{")
    if opened:
        tag, closed, _ = rest.partition(b"}")
        if closed and tag:
            key = tag
    return text_place(key, partitions)


def format_id(n: int) -> str:
    """Write the 128 bits of an id as 26 characters."""
    p = _PAIRS
    return "".join(
        [
            p[n >> 120], p[n >> 110 & 1023], p[n >> 100 & 1023], p[n >> 90 & 1023], p[n >> 80 & 1023],
            p[n >> 70 & 1023], p[n >> 60 & 1023], p[n >> 50 & 1023], p[n >> 40 & 1023], p[n >> 30 & 1023],
            p[n >> 20 & 1023], p[n >> 10 & 1023], p[n & 1023],
        ]
    )  # fmt: skip


def parse_id(text: str) -> int | None:
    """Read the bits of an id; None for what is not one. Lower case is accepted."""
    if len(text) != 26 or _VALUES.get(text[0], 99) > 7:
        return None
    n = 0
    for c in text:
        v = _VALUES.get(c)
        if v is None:
            return None
        n = n << 5 | v
    return n


def id_partition(n: int) -> int:
    """Return the partition bits of an id."""
    return n >> _PARTITION_SHIFT & 0xFFF


def id_home(n: int, partitions: int) -> int:
    """Return the partition that an id puts a task in when nothing else does."""
    return 0 if partitions <= 1 else (n & _LOW) % partitions


def with_partition(n: int, partition: int) -> int:
    """Return an id with other partition bits."""
    return n & ~(0xFFF << _PARTITION_SHIFT) | (partition & 0xFFF) << _PARTITION_SHIFT


def placed(n: int, partition: int, partitions: int) -> int:
    """Return an id with partition bits and random bits that both name a partition."""
    if partitions > 1:
        low = n & _LOW
        low -= low % partitions
        if low > _LOW - partitions:
            low -= partitions
        n = n & ~_LOW | low + partition
    return with_partition(n, partition)


def fresh() -> int:
    """Make an id whose partition bits are open."""
    bits = wire.random_bits(68)
    return (time.time_ns() // 1_000_000) << 80 | (bits >> 64) << 64 | bits & _LOW


# One character for each value of a random byte: five of its bits, and for the first one, below which the partition bits
# begin, three.
_TAIL = bytes(ord(_ALPHABET[b & 31]) for b in range(256))
_TAIL_FIRST = [_ALPHABET[b & 7] for b in range(256)]
_clock = (0, "")  # a time in milliseconds, and how ids made then begin


def new_id() -> str:
    """Make the id of a task, 26 characters whose order is that of their creation. Its partition bits are open."""
    global _clock
    now = time.time_ns() // 1_000_000
    at, begin = _clock
    if at != now:
        begin = format_id(now << 80)[:12]
        _clock = now, begin
    tail = wire.random_bytes(14)
    return begin + _TAIL_FIRST[tail[0]] + tail[1:].translate(_TAIL).decode()


def id_in(partition: int, partitions: int) -> str:
    """Make an id of a partition."""
    return format_id(placed(fresh(), partition, partitions))


def is_pinned(spec: Any, pins: Pins) -> bool:
    """Report whether a task belongs to PINNED by its queue. The server judges a tag or a batch that says otherwise."""
    return not spec.tag and not spec.batch and pins.get(spec.queue, False)


def is_misplaced(spec: Any, partitions: int, pins: Pins) -> bool:
    """Report whether a task has an id of another partition than its queue says."""
    return is_pinned(spec, pins) and id_place(spec.id, partitions) != PINNED


def _pin(spec: Any, partitions: int) -> int:
    """Place a task that is pinned: its id names that partition, and the random bits count for nothing."""
    if not spec.id:
        spec.id = id_in(PINNED, partitions)
        return PINNED
    n = parse_id(spec.id)
    if n is not None and id_partition(n) != PINNED:
        raise errors.WrongPartition(
            f"names partition {id_partition(n)}, and the task's queue partition {PINNED}", field="id"
        )
    return PINNED


def task_place(spec: Any, partitions: int, home: int = -1, pins: Pins = _NO_PINS) -> int:
    """Return the partition of a task, by its tag, key, unique key, batch or id, in this order, and write its id there.

    What says no place goes to home, below 0 to a random one. An id that names another partition is WrongPartition.
    A pinned queue says it before all of these but a tag and a batch.
    """
    if partitions <= 1:
        spec.id = spec.id or new_id()
        return 0
    if is_pinned(spec, pins):
        return _pin(spec, partitions)
    by, text = "tag", spec.tag
    if not text:
        by, text = "key", spec.key
    if not text:
        by, text = "unique.key", spec.unique.key
    if text:
        home = text_place(text.encode(), partitions)
    elif spec.batch:
        by, home = "batch", max(id_place(spec.batch, partitions), 0)  # the server refuses one that names none
    said = bool(text or spec.batch)
    if not spec.id:
        if spec.after and not said:
            home = id_place(spec.after[0].id, partitions)  # those that a task waits for are of its partition
        if home < 0:
            home = wire.random_bits(32) % partitions
        spec.id = id_in(home, partitions)
        return home
    n = parse_id(spec.id)
    if n is None:
        return max(home, 0)  # the server says what is wrong
    if not said:
        by, home = "random bits", id_home(n, partitions)
    at = id_partition(n)
    if at == 0:  # open, or of partition 0 already
        spec.id = format_id(with_partition(n, home))
    elif at != home:
        raise errors.WrongPartition(f"names partition {at}, and the task's {by} partition {home}", field="id")
    return home


def id_place(text: str, partitions: int) -> int:
    """Return the partition that an id names; below 0 for a text that is not an id of this namespace."""
    if partitions <= 1:
        return 0
    n = parse_id(text)
    if n is None or id_partition(n) >= partitions:
        return -1
    return id_partition(n)


def create_place(spec: Any, partitions: int, pins: Pins = _NO_PINS) -> int:
    """Return where a task says that it belongs; below 0: nowhere."""
    if is_pinned(spec, pins):
        return PINNED
    text = spec.tag or spec.key or spec.unique.key
    if text:
        return text_place(text.encode(), partitions)
    if spec.batch:
        return id_place(spec.batch, partitions)
    n = parse_id(spec.id)
    if n is None:
        return id_place(spec.after[0].id, partitions) if spec.after else -1
    return id_home(n, partitions)


def range_place(r: Any, partitions: int) -> int:
    """Return the partition of a range of keys: by a tag in braces that all of them begin with; below 0: several."""
    if partitions <= 1:
        return 0
    first, last = getattr(r, "from"), r.to
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    shared = r.prefix or first[:same]
    _, opened, rest = shared.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    return text_place(tag, partitions) if opened and closed and tag else -1


def op_place(op: Any, partitions: int, pins: Pins = _NO_PINS) -> int:
    """Return the partition that an op says it belongs to; below 0: none, or it is for the server to judge."""
    kind = op.WhichOneof("op")
    m: Any = getattr(op, kind) if kind else None
    if kind in ("kv_put", "kv_delete", "kv_check", "kv_add"):
        return key_place(m.key, partitions)
    if kind == "kv_delete_range":
        return range_place(m, partitions)
    if kind == "vector_upsert":
        return key_place(m.point.id.encode(), partitions)
    if kind == "vector_delete":
        return key_place(m.id.encode(), partitions)
    if kind == "task_create":
        return create_place(m, partitions, pins)
    if kind in ("task_complete", "task_fail", "task_snooze"):
        return id_place(m.task.id, partitions)
    if kind in ("task_cancel", "batch_open", "batch_seal", "batch_cancel"):
        return id_place(m.id, partitions)
    if kind == "ref_transaction":
        return text_place((m.tag or m.repo).encode(), partitions)
    return -1


def first_place(checks: Sequence[Any], ops: Sequence[Any], partitions: int, pins: Pins = _NO_PINS) -> int:
    """Return the partition that the first part of a commit says; below 0: none does."""
    for op in ops:
        home = op_place(op, partitions, pins)
        if home >= 0:
            return home
    return key_place(checks[0].key, partitions) if checks else -1


def commit_place(checks: Sequence[Any], ops: Sequence[Any], partitions: int, task: str, pins: Pins = _NO_PINS) -> int:
    """Return the one partition of a commit: that of the task whose fence or effects it has, else of its first part.

    Parts of another partition are WrongPartition; it names all ops that stray.
    """
    if partitions <= 1:
        return 0
    if task:
        home = id_place(task, partitions)
        if home < 0:
            return 0  # the server says that there is no such lease
    else:
        home = first_place(checks, ops, partitions, pins)
    strays = [(i, p) for i, op in enumerate(ops) if (p := op_place(op, partitions, pins)) not in (-1, home)]
    if strays:
        raise errors.WrongPartition(
            f"outside the commit's partition {home}: " + ", ".join(f"ops[{i}] of partition {p}" for i, p in strays),
            op=strays[0][0],
            details={"ops": ",".join(str(i) for i, _ in strays)},
        )
    for i, c in enumerate(checks):
        p = key_place(c.key, partitions)
        if p != home:
            raise errors.WrongPartition(
                f"is of partition {p}, and the commit of partition {home}", op=-2 - i, field=f"conditions[{i}].key"
            )
    return max(home, 0)


def create_in(
    spec: Any, checks: Sequence[Any], ops: Sequence[Any], partitions: int, task: str, at: int, pins: Pins = _NO_PINS
) -> None:
    """Write the id of a task that op at of a commit creates: what says no place goes to the commit's partition."""
    home = id_place(task, partitions) if task else first_place(checks, ops, partitions, pins)
    try:
        task_place(spec, partitions, home, pins)
    except errors.WrongPartition as e:
        e.op = at
        raise


def create_again(
    index: Sequence[int], checks: Sequence[Any], ops: Sequence[Any], partitions: int, task: str, pins: Pins = _NO_PINS
) -> None:
    """Write other ids of tasks that a commit creates. Tasks of the commit that wait for these follow their ids."""
    had = {ops[i].task_create.id: i for i in index}
    after = [(i, a, had[a.id]) for i, op in enumerate(ops) for a in op.task_create.after if a.id in had]
    for a in after:
        a[1].id = ""
    for i in had.values():
        ops[i].task_create.id = ""
    for i in had.values():
        for at, a, of in after:
            if at == i:
                a.id = ops[of].task_create.id
        create_in(ops[i].task_create, checks, ops, partitions, task, i, pins)
    for _, a, of in after:
        a.id = ops[of].task_create.id


RUN = 32  # tasks of a batch that nothing places go to one partition before the next one's turn: frames are fuller


def spread(
    specs: Sequence[Any], partitions: int, turn: int, pins: Pins = _NO_PINS
) -> tuple[dict[int, list[int]], dict[int, errors.MillraceError]]:
    """Write the ids of tasks, and return their indexes by partition. Those that cannot be placed are in the second."""
    homes: dict[int, list[int]] = {}
    wrong: dict[int, errors.MillraceError] = {}
    free = 0
    for i, spec in enumerate(specs):
        home = -1
        if not (spec.id or spec.tag or spec.key or spec.unique.key or spec.batch):
            home = (turn + free // RUN) % partitions
            free += 1
        try:
            homes.setdefault(task_place(spec, partitions, home, pins), []).append(i)
        except errors.WrongPartition as e:
            e.field = f"tasks[{i}].{e.field}"
            wrong[i] = e
    return homes, wrong


def together(specs: Sequence[Any], partitions: int, turn: int, pins: Pins = _NO_PINS) -> int:
    """Write the ids of tasks that are added all or none, and return their one partition; else WrongPartition."""
    home = next((p for s in specs if (p := create_place(s, partitions, pins)) >= 0), turn % partitions)
    strays: list[str] = []
    for i, spec in enumerate(specs):
        try:
            at = task_place(spec, partitions, home, pins)
            stray = at != home
        except errors.WrongPartition:
            at, stray = create_place(spec, partitions, pins), True
        if stray:
            strays.append(f"tasks[{i}] of partition {at}")
    if strays:
        raise errors.WrongPartition(f"outside the batch's partition {home}: " + ", ".join(strays))
    return home
