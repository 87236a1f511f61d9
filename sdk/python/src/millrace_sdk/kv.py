"""Keys: what is written alone here is a commit of one op."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from typing import Any

from . import errors
from ._core import place, wire
from ._core.base import _UNSET
from .tx import Changes, Key, key_bytes
from .types import KVItem, KVWriter

_PAGE = 1000


def _shown(raw: bytes) -> str:
    """Write a value as a line of the ledger has it."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(raw).decode()


def _writer(m: Any) -> KVWriter | None:
    """Read who wrote a key, where the keyspace keeps that."""
    return KVWriter(m.writer.task, m.writer.token) if m.HasField("writer") else None


class _Keyspace:
    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name

    def _line(self, key: bytes) -> str:
        return f"{self.name}/{_shown(key)}"

    def _get(self, key: Key, min_index: int, stale: bool) -> Any:
        raw = key_bytes(key)
        request = wire.message("KVGetRequest")(keyspace=self.name, key=raw, min_index=min_index, stale=stale)
        return self._client._unary(
            "KVService/Get",
            request,
            "KVGetResponse",
            lambda r: KVItem(raw, r.value, r.rev, r.found, _writer(r)),
            place=lambda n: place.key_place(raw, n),
            op="kv_get",
            line=lambda r: {"value": _shown(r.value)},
            key=self._line(raw),
        )

    def _one(self, kind: str, key: Key, timeout: Any, changes: Changes, read: Any, value: str = "") -> Any:
        return self._client._commit(
            changes,
            self._client._time(timeout),
            lambda a, at: read(a.results[0]),
            op=kind,
            key=self._line(key_bytes(key)),
            value=value,
        )

    def _put(self, key: Key, value: Any, if_rev: int | None, if_absent: bool, timeout: Any) -> Any:
        changes = Changes()
        changes.kv(self.name).put(key, value, if_rev=if_rev, if_absent=if_absent)
        shown = _shown(changes._ops[0].kv_put.value)
        return self._one("kv_put", key, timeout, changes, lambda r: r.rev, shown)

    def _delete(self, key: Key, if_rev: int | None, timeout: Any) -> Any:
        changes = Changes()
        changes.kv(self.name).delete(key, if_rev=if_rev)
        return self._one("kv_delete", key, timeout, changes, lambda r: r.existed)

    def _add(self, key: Key, delta: int, floor: int | None, ceiling: int | None, timeout: Any) -> Any:
        changes = Changes()
        changes.kv(self.name).add(key, delta, floor=floor, ceiling=ceiling)
        return self._one("kv_add", key, timeout, changes, lambda r: r.sum, str(delta))

    def _range(self, prefix: Key | None, start: Key, end: Key, limit: int, keys_only: bool) -> Any:
        if prefix is not None and (start or end):
            raise errors.InvalidArgument("prefix and start and end are mutually exclusive", field="prefix")
        request = wire.message("KVRangeRequest")(
            keyspace=self.name, to=key_bytes(end), prefix=key_bytes(prefix or b""), limit=limit, keys_only=keys_only
        )
        setattr(request, "from", key_bytes(start))
        return self._client._unary(
            "KVService/Range",
            request,
            "KVRangeResponse",
            lambda chunks: [KVItem(i.key, i.value, i.rev, writer=_writer(i)) for c in chunks for i in c.items],
            stream=True,
        )

    @staticmethod
    def _bounds(prefix: Key | None, start: Key, end: Key) -> tuple[bytes, bytes]:
        """Return a prefix as bounds, so that the next page can begin within it."""
        if prefix is None:
            return key_bytes(start), key_bytes(end)
        first = key_bytes(prefix)
        last = first.rstrip(b"\xff")
        return first, (last[:-1] + bytes((last[-1] + 1,))) if last else b""


class Keyspace(_Keyspace):
    """A keyspace of a Client. Keys and values are text or bytes; other values are stored as JSON."""

    def get(self, key: Key, *, min_index: int = 0, stale: bool = False) -> KVItem:
        """Read a key. It sees every write that was acknowledged before; stale reads what the node has."""
        out: KVItem = self._get(key, min_index, stale)
        return out

    def put(
        self, key: Key, value: Any, *, if_rev: int | None = None, if_absent: bool = False, timeout: Any = _UNSET
    ) -> int:
        """Store a value, and return its revision."""
        out: int = self._put(key, value, if_rev, if_absent, timeout)
        return out

    def delete(self, key: Key, *, if_rev: int | None = None, timeout: Any = _UNSET) -> bool:
        """Remove a key, and return whether it existed."""
        out: bool = self._delete(key, if_rev, timeout)
        return out

    def add(
        self, key: Key, delta: int = 1, *, floor: int | None = None, ceiling: int | None = None, timeout: Any = _UNSET
    ) -> int:
        """Add to a number, and return the sum."""
        out: int = self._add(key, delta, floor, ceiling, timeout)
        return out

    def range(
        self, *, prefix: Key | None = None, start: Key = b"", end: Key = b"", limit: int = 0, keys_only: bool = False
    ) -> list[KVItem]:
        """Return the keys of a range in byte order, as they stood at one instant."""
        out: list[KVItem] = self._range(prefix, start, end, limit, keys_only)
        return out

    def scan(
        self, *, prefix: Key | None = None, start: Key = b"", end: Key = b"", keys_only: bool = False
    ) -> Iterator[KVItem]:
        """Go through the keys of a range page by page: each page is as it stood when it was read."""
        first, last = self._bounds(prefix, start, end)
        while True:
            page: list[KVItem] = self._range(None, first, last, _PAGE, keys_only)
            yield from page
            if len(page) < _PAGE:
                return
            first = page[-1].key + b"\0"


class AsyncKeyspace(_Keyspace):
    """A keyspace of an AsyncClient. Keys and values are text or bytes; other values are stored as JSON."""

    async def get(self, key: Key, *, min_index: int = 0, stale: bool = False) -> KVItem:
        """Read a key. It sees every write that was acknowledged before; stale reads what the node has."""
        out: KVItem = await self._get(key, min_index, stale)
        return out

    async def put(
        self, key: Key, value: Any, *, if_rev: int | None = None, if_absent: bool = False, timeout: Any = _UNSET
    ) -> int:
        """Store a value, and return its revision."""
        out: int = await self._put(key, value, if_rev, if_absent, timeout)
        return out

    async def delete(self, key: Key, *, if_rev: int | None = None, timeout: Any = _UNSET) -> bool:
        """Remove a key, and return whether it existed."""
        out: bool = await self._delete(key, if_rev, timeout)
        return out

    async def add(
        self, key: Key, delta: int = 1, *, floor: int | None = None, ceiling: int | None = None, timeout: Any = _UNSET
    ) -> int:
        """Add to a number, and return the sum."""
        out: int = await self._add(key, delta, floor, ceiling, timeout)
        return out

    async def range(
        self, *, prefix: Key | None = None, start: Key = b"", end: Key = b"", limit: int = 0, keys_only: bool = False
    ) -> list[KVItem]:
        """Return the keys of a range in byte order, as they stood at one instant."""
        out: list[KVItem] = await self._range(prefix, start, end, limit, keys_only)
        return out

    async def scan(
        self, *, prefix: Key | None = None, start: Key = b"", end: Key = b"", keys_only: bool = False
    ) -> AsyncIterator[KVItem]:
        """Go through the keys of a range page by page: each page is as it stood when it was read."""
        first, last = self._bounds(prefix, start, end)
        while True:
            page: list[KVItem] = await self._range(None, first, last, _PAGE, keys_only)
            for item in page:
                yield item
            if len(page) < _PAGE:
                return
            first = page[-1].key + b"\0"
