"""A check of webhooks, for those who receive them, by the scheme of Standard Webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

ID = "webhook-id"
TIMESTAMP = "webhook-timestamp"  # unix seconds
SIGNATURE = "webhook-signature"  # signatures with spaces between, each a version, a comma and base64

WebhookCode = Literal["HEADER_MISSING", "HEADER_INVALID", "TOO_OLD", "TOO_NEW", "NO_MATCH", "SECRET_INVALID"]

_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_LARGEST = (1 << 53) - 1  # what clients in all languages count to
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


class Headers(Protocol):
    """Headers of a request: a dict, or what frameworks have in its place. Names may be in any letters."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return names and values."""
        ...


class WebhookError(Exception):
    """Why a webhook was refused.

    HEADER_MISSING: field is a header that is absent or empty. HEADER_INVALID: field is a timestamp that is not a
    number, or an id with a full stop. TOO_OLD and TOO_NEW: the timestamp is further from the clock than max seconds.
    NO_MATCH: no signature was made with one of the secrets. SECRET_INVALID: field is a secret that cannot be used, so
    that the receiver is at fault.
    """

    def __init__(self, code: WebhookCode, message: str, *, field: str = "", limit: str = "", max: int = 0) -> None:
        super().__init__(message)
        self.code: WebhookCode = code
        self.message = message  # for a person; it has no part of a secret
        self.field = field  # name of the header, or the place of the secret, such as secrets[1]
        self.limit = limit  # tolerance, for TOO_OLD and TOO_NEW
        self.max = max  # its value in seconds

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def verify_webhook(
    headers: Headers,
    body: bytes | bytearray | memoryview | str,
    secrets: str | Sequence[str],
    *,
    tolerance: int = 300,
    now: Callable[[], float] = time.time,
) -> None:
    """Check that a webhook was sent by one who knows a secret, and was sent now; else raise WebhookError.

    body is what came, before it is parsed. secrets are base64 of a key, with or without the prefix whsec_; one that
    matches is enough, so that a sender may change from one to the next. tolerance is how many seconds the timestamp may
    be from the clock now, before or after. Signatures of other versions than v1 are passed over. A webhook that is sent
    a second time passes again: a receiver that must not act twice remembers the header webhook-id.
    """
    keys = _keys([secrets] if isinstance(secrets, str) else secrets)
    found: dict[str, str] = {}
    for name, value in headers.items():
        found.setdefault(name.lower(), value)
    for name in (ID, TIMESTAMP, SIGNATURE):
        if not found.get(name):
            raise WebhookError("HEADER_MISSING", f"{name}: the header is missing", field=name)
    if "." in found[ID]:  # it would blur where the id ends in what is signed
        raise WebhookError("HEADER_INVALID", f"{ID}: must not have a full stop", field=ID)
    _check_time(found[TIMESTAMP], tolerance, int(now()))
    head = _bytes(f"{found[ID]}.{found[TIMESTAMP]}.")
    data = _bytes(body) if isinstance(body, str) else body
    given = [_bytes(s) for s in found[SIGNATURE].split(" ")]
    for key in keys:
        h = hmac.new(key, head, hashlib.sha256)
        h.update(data)
        want = b"v1," + base64.b64encode(h.digest())
        if any(hmac.compare_digest(s, want) for s in given):
            return
    raise WebhookError("NO_MATCH", "no signature was made with one of the secrets")


def _check_time(text: str, tolerance: int, now: int) -> None:
    at = int(text) if _NUMBER.fullmatch(text) else _LARGEST + 1
    if at > _LARGEST:
        raise WebhookError("HEADER_INVALID", f"{TIMESTAMP}: must be unix seconds", field=TIMESTAMP)
    over = abs(now - at) - tolerance
    if over <= 0:
        return
    old = at < now
    message = f"{TIMESTAMP}: {over} s too {'old' if old else 'new'}"
    raise WebhookError("TOO_OLD" if old else "TOO_NEW", message, field=TIMESTAMP, limit="tolerance", max=tolerance)


def _keys(secrets: Sequence[str]) -> list[bytes]:
    if not secrets:
        raise WebhookError("SECRET_INVALID", "secrets: at least one is required", field="secrets")
    keys = []
    for i, secret in enumerate(secrets):
        text = secret.removeprefix("whsec_")
        if not text or not _BASE64.fullmatch(text):
            field = f"secrets[{i}]"
            message = f"{field}: must be base64 of a key, perhaps after whsec_"
            raise WebhookError("SECRET_INVALID", message, field=field)
        keys.append(base64.b64decode(text))
    return keys


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # no text of a header may be an error of another kind
