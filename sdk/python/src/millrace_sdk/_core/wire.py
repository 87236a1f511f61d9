"""Messages of the contract, built at import from a descriptor set in a private pool, and frames as bytes.

Frames of many items are put together from items that are encoded already, so that an item is encoded once, in the
thread that made it, and its size is known.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

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
    # By what loaded this module, which may be an archive, and not by a module that brings more into each process.
    return bytes(__loader__.get_data(os.path.join(os.path.dirname(__file__), name)))  # type: ignore[name-defined]


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


def _protobuf() -> tuple[Any, Callable[[Any], Any]]:
    """Return an empty pool, and what makes classes of messages from descriptors.

    The public modules bring the implementation in pure Python along with the compiled one, and all descriptors of
    descriptors: half of what a process that only adds a task takes to start. So the compiled one is asked itself.
    """
    from google.protobuf.internal import api_implementation

    if api_implementation.Type() == "upb":
        try:
            return _compiled(vars(api_implementation)["_c_module"])
        except (KeyError, AttributeError):  # a later version has it elsewhere
            pass
    from google.protobuf import descriptor_pool, message_factory

    return descriptor_pool.DescriptorPool(), message_factory.GetMessageClass


def _compiled(implementation: Any) -> tuple[Any, Callable[[Any], Any]]:
    from google.protobuf.message import Message

    pool, meta = implementation.DescriptorPool(), implementation.MessageMeta

    def class_of(descriptor: Any) -> Any:
        made = getattr(descriptor, "_concrete_class", None)
        if made is None:
            made = meta(descriptor.name, (Message,), {"DESCRIPTOR": descriptor, "__module__": None})
            for f in descriptor.fields:
                if f.message_type is not None:
                    class_of(f.message_type)
        return made

    return pool, class_of


def _first(raw: bytes, at: int) -> tuple[bytes, int]:
    """Read the field of bytes at a place of an encoded message. Return where it ends, too."""
    n = shift = 0
    at += 1  # its number, below 16
    while True:
        b = raw[at]
        n |= (b & 0x7F) << shift
        shift += 7
        at += 1
        if b < 0x80:
            return raw[at : at + n], at + n


def _described(name: bytes, number: int, kind: int, of: bytes = b"", label: int = 1) -> bytes:
    """Encode the descriptor of a field."""
    more = field(6, of) if of else b""
    return field(2, field(1, name) + bytes((0x18, number, 0x20, label, 0x28, kind)) + more)


# The shape of an error's details in a status of gRPC, which is in no file of the contract.
_STATUS = (
    field(1, b"millrace/status.proto")
    + field(2, b"millrace.status")
    + field(4, field(1, b"Any") + _described(b"type_url", 1, 9) + _described(b"value", 2, 12))
    + field(
        4,
        field(1, b"Status")
        + _described(b"code", 1, 5)
        + _described(b"message", 2, 9)
        + _described(b"details", 3, 11, b".millrace.status.Any", 3),
    )
    + field(12, b"proto3")
)


def _load() -> tuple[Any, Callable[[Any], Any], dict[str, Any]]:
    """Build the pool, and a table of its services by name."""
    pool, made = _protobuf()
    files = [_STATUS]
    raw = file("contract.binpb")
    at = 0
    while at < len(raw):
        one, at = _first(raw, at)
        files.append(one)
    for one in files:
        pool.AddSerializedFile(one)
    services: dict[str, Any] = {}
    for one in files:
        f = pool.FindFileByName(_first(one, 0)[0].decode())
        if f.package == "millrace.v1":
            services.update(f.services_by_name)
    return pool, made, services


_POOL, _class_of, SERVICES = _load()


def message(name: str) -> Any:
    """Return the class of a message of the contract."""
    full = name if "." in name else "millrace.v1." + name
    return _class_of(_POOL.FindMessageTypeByName(full))


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
