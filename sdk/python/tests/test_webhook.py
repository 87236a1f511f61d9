"""Webhooks are judged as the vectors say."""

from __future__ import annotations

import base64
import email.message
import json
import time
from typing import Any

import pytest
from conftest import VECTORS

import millrace_sdk as mr

FILE: list[dict[str, Any]] = json.loads((VECTORS / "webhooks.json").read_text())["vectors"]


def body_of(v: dict[str, Any]) -> bytes:
    return base64.b64decode(v["body_base64"]) if "body_base64" in v else v.get("body", "").encode()


@pytest.mark.parametrize("v", FILE, ids=lambda v: v["name"])
def test_vectors(v: dict[str, Any]) -> None:
    more = {"tolerance": v["tolerance"]} if "tolerance" in v else {}
    bodies: list[Any] = [body_of(v), bytearray(body_of(v)), memoryview(body_of(v))]
    if "body_base64" not in v:
        bodies.append(v.get("body", ""))
    for body in bodies:
        try:
            mr.verify_webhook(v["headers"], body, v["secrets"], now=lambda: v["now"] + 0.999, **more)
            got = None
        except mr.WebhookError as e:
            got = {k: x for k, x in (("code", e.code), ("field", e.field), ("limit", e.limit), ("max", e.max)) if x}
            assert e.message in str(e) and not any(len(s) > 6 and s[6:] in str(e) for s in v["secrets"])
        assert got == v.get("error")


def test_the_clock_of_this_machine_and_headers_of_a_server() -> None:
    v = FILE[0]
    headers = email.message.Message()  # what http.server has
    for name, value in v["headers"].items():
        headers[name] = value
    with pytest.raises(mr.WebhookError, match="TOO_OLD"):
        mr.verify_webhook(headers, body_of(v), v["secrets"][0])
    mr.verify_webhook(headers, body_of(v), v["secrets"][0], tolerance=int(time.time()) - v["now"] + 60)


def test_a_header_that_is_not_text_matches_nothing() -> None:
    v = FILE[0]
    for name in ("webhook-id", "webhook-signature"):
        with pytest.raises(mr.WebhookError, match="NO_MATCH"):
            mr.verify_webhook({**v["headers"], name: "\ud800"}, body_of(v), v["secrets"], now=lambda: v["now"])
