"""What gRPC puts into HTTP/2: messages with their prefix, times, and the status of a call."""

from __future__ import annotations

import base64
import math
import struct

from .faults import StatusError

MESSAGE_BYTES = 64 << 20  # most bytes of a message, in both directions

_PREFIX = struct.Struct(">BI")  # whether it is compressed, and its length

CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED = 1, 2, 4, 8
INVALID_ARGUMENT, INTERNAL, UNAVAILABLE = 3, 13, 14

# Statuses of HTTP in codes of gRPC, for answers that something between made; what is not listed is unknown.
_OF_HTTP = {400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 502: 14, 503: 14, 504: 14}

Fields = list[tuple[bytes, bytes]]


def framed(message: bytes) -> bytes:
    """Put the prefix in front of a message."""
    return _PREFIX.pack(0, len(message)) + message


class Messages:
    """Cuts what arrives into messages. Chunks may end anywhere."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # the beginning of a message whose end has not come
        self._have = 0  # bytes in them
        self._want = _PREFIX.size  # bytes at which the message is whole; a prefix while its length is not known

    @property
    def within(self) -> bool:
        """Whether a message has begun, and its end has not come."""
        return self._have > 0

    def push(self, chunk: bytes) -> list[bytes]:
        """Take a chunk, and return the messages that are whole. It raises StatusError."""
        if self._have:
            self._parts.append(chunk)
            self._have += len(chunk)
            if self._have < self._want:
                return []
            chunk = b"".join(self._parts)
            self._parts, self._have = [], 0
        out: list[bytes] = []
        at, end = 0, len(chunk)
        self._want = _PREFIX.size
        while end - at >= _PREFIX.size:
            packed, n = _PREFIX.unpack_from(chunk, at)
            if packed:
                raise StatusError(INTERNAL, "a message is compressed, which was not agreed on")
            if n > MESSAGE_BYTES:
                raise StatusError(RESOURCE_EXHAUSTED, f"a message of {n} bytes is longer than {MESSAGE_BYTES}")
            self._want = _PREFIX.size + n
            if end - at < self._want:
                break
            out.append(chunk[at + _PREFIX.size : at + self._want])
            at += self._want
            self._want = _PREFIX.size
        if at < end:
            self._parts.append(chunk[at:])
            self._have = end - at
        return out


def timeout_text(seconds: float) -> str:
    """Write a time as the header grpc-timeout has it: at most 8 digits and a unit."""
    ms = max(math.ceil(seconds * 1000), 1)
    return f"{ms}m" if ms < 10**8 else f"{min(math.ceil(ms / 1000), 10**8 - 1)}S"


def _first(fields: Fields, name: bytes) -> bytes | None:
    return next((value for key, value in fields if key == name), None)


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _bytes(value: bytes | None) -> bytes:
    """Read base64 with padding or without; several values have commas between them, of which the first one counts."""
    if not value:
        return b""
    first = value.split(b",", 1)[0].strip()
    try:
        return base64.b64decode(first + b"=" * (-len(first) % 4))
    except ValueError:
        return b""  # the code and the message are there without it


def has_status(fields: Fields) -> bool:
    """Report whether headers have the status of a call."""
    return _first(fields, b"grpc-status") is not None


def status_of(fields: Fields) -> StatusError | None:
    """Read the status of a call; None: it went well."""
    text = _text(_first(fields, b"grpc-status"))
    code = int(text) if text.isascii() and text.isdigit() and len(text) <= 3 else UNKNOWN
    if code == 0:
        return None
    from urllib.parse import unquote  # most calls end well

    message = unquote(_text(_first(fields, b"grpc-message")))
    return StatusError(code, message, _bytes(_first(fields, b"grpc-status-details-bin")))


def interim(fields: Fields) -> bool:
    """Report whether headers are followed by those of the answer."""
    return (_first(fields, b":status") or b"").startswith(b"1")


def not_grpc(fields: Fields) -> StatusError | None:
    """Return the status of an answer that is not gRPC's; None: it is."""
    kind = _text(_first(fields, b"content-type"))
    http = _text(_first(fields, b":status"))
    spoken = kind == "application/grpc" or kind.startswith(("application/grpc+", "application/grpc;"))
    if spoken and (http == "200" or has_status(fields)):
        return None
    code = _OF_HTTP.get(int(http) if http.isascii() and http.isdigit() else 0, UNKNOWN)
    return StatusError(code, f"the answer is not gRPC's: HTTP status {http}, content-type {kind!r}")
