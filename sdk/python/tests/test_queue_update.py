"""An update keeps the settings of a newer server that this version of the library does not know."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fake import Fake
from http_proxy import Canned

import millrace_sdk as mr
from millrace_sdk._core import wire

MORE = wire.varint(5000 << 3) + wire.varint(7)  # a field that this version does not know
WAS: dict[str, Any] = {
    "version": "8",
    "max_attempts": 7,
    "new": {"a": [1, "é"]},
    "order": "newest",
    "per_key": {"concurrency": 2, "new": 9007199254740993, "rate": {"limit": 5, "per": "1s", "new": True}},
    "gone": None,
    "retry": {"factor": 3.0, "new": "x"},
}
KEPT = {k: v for k, v in WAS.items() if k not in ("version", "gone")}


def newer() -> Any:
    """Return a configuration with fields and a word that this version does not know."""
    m = wire.message("QueueConfig")(version=8, max_attempts=7, order=6)
    m.per_key.concurrency = 2
    m.per_key.rate.limit = 5
    for one in (m, m.per_key, m.per_key.rate):
        one.MergeFromString(MORE)
    return m


def test_over_grpc() -> None:
    server = Fake()
    asked: list[Any] = []

    def set_queue(raw: bytes) -> bytes:
        asked.append(wire.message("SetQueueRequest").FromString(raw))
        return bytes(wire.message("SetQueueResponse")(version=9).SerializeToString())

    server.calls["Get"] = lambda raw: wire.message("GetQueueResponse")(config=newer()).SerializeToString()
    server.calls["Set"] = set_queue
    with mr.Client(server.url, tls=False, transport="stream") as c:
        for settings, fields in (
            ({"concurrency": 3}, {"concurrency": 3}),
            ({"order": "strict"}, {"order": 1}),
            ({"order": "fifo", "attempts": None}, {"order": 0, "max_attempts": 0}),
        ):
            assert c.queue("q").update(**settings) == 9  # type: ignore[arg-type]
            want = newer()
            want.ClearField("version")
            for name, v in fields.items():
                setattr(want, name, v)
            got = asked[-1]
            assert got.if_version == 8
            assert got.config.SerializeToString(deterministic=True) == want.SerializeToString(deterministic=True)
    server.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_over_rest(is_async: bool) -> None:
    server = Canned()
    asked: list[Any] = []

    def answer(r: Any) -> tuple[int, Any, dict[str, str]]:
        if r.command == "GET":
            return 200, WAS, {}
        asked.append((r.headers["If-Match"], json.loads(r.body)))
        return 200, {"version": "9"}, {}

    server.answers["/v1/queues/q"] = answer

    def update(**settings: Any) -> int:
        async def run() -> int:
            async with mr.AsyncClient(server.url, tls=False, transport="rest") as ac:
                return await ac.queue("q").update(**settings)

        if is_async:
            return asyncio.run(run())
        with mr.Client(server.url, tls=False, transport="rest") as c:
            return c.queue("q").update(**settings)

    assert update(concurrency=3) == 9
    assert asked[-1] == ('"8"', KEPT | {"concurrency": 3})
    # What is set replaces what was kept, the default too.
    update(order="strict", per_key=None)
    assert asked[-1][1] == {k: v for k, v in KEPT.items() if k != "per_key"} | {"order": "strict"}
    update(order="fifo", per_key=mr.KeyLimits(concurrency=4))
    assert asked[-1][1] == {k: v for k, v in KEPT.items() if k != "order"} | {"per_key": {"concurrency": 4}}
    server.close()


def test_what_rest_cannot_carry_is_refused() -> None:
    server = Canned()
    with mr.Client(server.url, tls=False, transport="rest") as c, pytest.raises(mr.InvalidArgument) as e:
        c.queue("q")._set(newer(), None)
    assert e.value.field == "config" and not [r for r in server.seen if r[0] == "PUT"]
    server.close()
