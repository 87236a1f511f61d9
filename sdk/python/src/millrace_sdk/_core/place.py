"""Ids of tasks, and which of the partitions of a namespace a key or a task belongs to.

This is frozen, and the same in every client and server: the vectors of proto/conformance hold the copies together.
"""

from __future__ import annotations

import time
from typing import Any

from . import wire

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {c: i for i, c in enumerate(_ALPHABET)} | {c.lower(): i for i, c in enumerate(_ALPHABET)}
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_LOW = (1 << 64) - 1
_PARTITION_SHIFT = 68  # of the 12 bits in an id that name a partition


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


def new_id() -> str:
    """Make the id of a task, 26 characters whose order is that of their creation."""
    return format_id(fresh())


def task_place(spec: Any, partitions: int) -> int | None:
    """Return the partition of a task and write its id there. None: the id names another partition than the rest."""
    if partitions <= 1:
        return 0
    text = spec.tag or spec.unique.key
    home = text_place(text.encode(), partitions) if text else -1
    if not spec.id:
        if home < 0:
            home = wire.random_bits(32) % partitions
        spec.id = format_id(placed(fresh(), home, partitions))
        return home
    n = parse_id(spec.id)
    if n is None:
        return max(home, 0)  # the server says what is wrong
    if home < 0:
        home = id_home(n, partitions)
    if id_partition(n) not in (0, home):
        return None
    spec.id = format_id(with_partition(n, home))
    return home


def id_place(text: str, partitions: int) -> int:
    """Return the partition that an id names; below 0 for a text that is not an id of this namespace."""
    if partitions <= 1:
        return 0
    n = parse_id(text)
    if n is None or id_partition(n) >= partitions:
        return -1
    return id_partition(n)
