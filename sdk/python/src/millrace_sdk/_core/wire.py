"""Messages of the contract, built at import from a descriptor set in a private pool, and frames as bytes.

Frames of many items are put together from items that are encoded already, so that an item is encoded once, in the
thread that made it, and its size is known.
"""

from __future__ import annotations

import os
import pkgutil
import random
import time
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FRAME_ITEMS = 512  # tasks, settles or renewals of one frame
FRAME_AIM = 1 << 20  # bytes: a frame is closed here
FRAME_BYTES = 4 << 20  # bytes: a frame that is larger is refused
GOAWAY_WITHIN = 2.0  # seconds for the acks that a stopping server still sends
RELEASE_WITHIN = 2.0  # seconds for the acks of tasks that were given back at the end
PAYLOAD_BYTES = 1 << 20  # most bytes of a payload or a result

STATES = ("unknown", "blocked", "scheduled", "ready", "running", "completed", "dead", "cancelled")
OUTCOMES = ("", "completed", "failed", "timeout", "crashed", "snoozed", "released", "cancelled")
COMPARES = {"exists": 1, "absent": 2, "equal": 3, "not_equal": 4, "less": 5, "greater": 6}


def file(name: str) -> bytes:
    """Read a file of this package."""
    # Not by importlib.resources, which brings archives and temporary files into the memory of each worker.
    return pkgutil.get_data(__name__.rpartition(".")[0], name) or b""


def _load() -> tuple[Any, dict[str, Any]]:
    """Build the pool, and a table of its services by name."""
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(file("contract.binpb"))
    pool = descriptor_pool.DescriptorPool()
    # The shape of an error's details in a status of gRPC, which is in no file of the contract.
    status = descriptor_pb2.FileDescriptorProto(
        name="millrace/status.proto", package="millrace.status", syntax="proto3"
    )
    pack = status.message_type.add(name="Any")
    pack.field.add(name="type_url", number=1, type=9, label=1)
    pack.field.add(name="value", number=2, type=12, label=1)
    st = status.message_type.add(name="Status")
    st.field.add(name="code", number=1, type=5, label=1)
    st.field.add(name="message", number=2, type=9, label=1)
    st.field.add(name="details", number=3, type=11, label=3, type_name=".millrace.status.Any")
    services: dict[str, Any] = {}
    for f in [*files.file, status]:
        pool.AddSerializedFile(f.SerializeToString())
    for f in files.file:
        if f.package == "millrace.v1":
            for name, service in pool.FindFileByName(f.name).services_by_name.items():
                services[name] = service
    return pool, services


_POOL, SERVICES = _load()


def message(name: str) -> Any:
    """Return the class of a message of the contract."""
    full = name if "." in name else "millrace.v1." + name
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(full))


Ack = message("Ack")
Assignment = message("Assignment")
ClientFrame = message("ClientFrame")
CommitRequest = message("CommitRequest")
CreateResult = message("CreateResult")
Effects = message("Effects")
Error = message("Error")
Hello = message("Hello")
KVCheck = message("KVCheck")
Op = message("Op")
ServerFrame = message("ServerFrame")
SettleItem = message("SettleItem")
Status = message("millrace.status.Status")
TaskSpec = message("TaskSpec")


def varint(n: int) -> bytes:
    """Encode a number as protobuf does."""
    if n < 0x80:
        return bytes((n,))
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number: int, content: bytes) -> bytes:
    """Encode a field of bytes, or of a message that is encoded."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def _items(number: int, items: Iterable[bytes]) -> bytes:
    tag = varint(number << 3 | 2)
    parts: list[bytes] = []
    for item in items:
        parts.append(tag)
        parts.append(varint(len(item)))
        parts.append(item)
    return b"".join(parts)


def create_frame(seq: int, tasks: Iterable[bytes], atomic: bool) -> bytes:
    """Encode a ClientFrame with a CreateFrame of encoded TaskSpecs."""
    body = b"\x08" + varint(seq) + _items(2, tasks) + (b"\x18\x01" if atomic else b"")
    return field(2, body)


def commit_frame(seq: int, commit: bytes) -> bytes:
    """Encode a ClientFrame with a CommitFrame of an encoded CommitRequest."""
    return field(3, b"\x08" + varint(seq) + field(2, commit))


def settle_frame(seq: int, items: Iterable[bytes]) -> bytes:
    """Encode a ClientFrame with a SettleFrame of encoded SettleItems."""
    return field(6, b"\x08" + varint(seq) + _items(2, items))


def waits_frame(seq: int, ids: Sequence[str], forget: Sequence[str]) -> bytes:
    """Encode a ClientFrame with a WaitsFrame."""
    frame = ClientFrame()
    frame.waits.seq = seq
    frame.waits.ids.extend(ids)
    frame.waits.forget.extend(forget)
    return bytes(frame.SerializeToString())


def random16() -> bytes:
    """Make the id of a session or a request."""
    return os.urandom(16)


def cut(text: str, size: int) -> str:
    """Shorten a text to a number of bytes, and drop what is not UTF-8."""
    raw = text.encode("utf-8", "ignore")
    return text if len(raw) == len(text) <= size else raw[:size].decode("utf-8", "ignore")


def set_span(target: Any, seconds: float) -> None:
    """Write a Duration."""
    nanos = round(seconds * 1e9)
    whole, rest = divmod(abs(nanos), 1_000_000_000)
    sign = -1 if nanos < 0 else 1
    target.seconds, target.nanos = sign * whole, sign * rest
    target.SetInParent()


def span(d: Any) -> float:
    """Read a Duration, in seconds."""
    return float(d.seconds) + float(d.nanos) / 1e9


def set_time(target: Any, unix: float) -> None:
    """Write a Timestamp."""
    whole = int(unix // 1)
    target.seconds, target.nanos = whole, min(int((unix - whole) * 1e9), 999_999_999)
    target.SetInParent()


def moment(t: Any) -> float:
    """Read a Timestamp, in seconds since 1970."""
    return float(t.seconds) + float(t.nanos) / 1e9


def state(n: int) -> str:
    """Name a state of a task."""
    return STATES[n] if 0 < n < len(STATES) else "unknown"


# Drawing random bits for each id from the system costs more than all the rest of an id.
_random = random.Random()
_random.seed(os.urandom(32))
os.register_at_fork(after_in_child=lambda: _random.seed(os.urandom(32)))


def random_bits(n: int) -> int:
    """Draw bits that differ in each process."""
    return _random.getrandbits(n)


def random_bytes(n: int) -> bytes:
    """Draw bytes that differ in each process."""
    return _random.randbytes(n)


def jitter(most: float) -> float:
    """Draw a wait evenly from zero to the most."""
    return _random.uniform(0.0, most)


monotonic = time.monotonic
