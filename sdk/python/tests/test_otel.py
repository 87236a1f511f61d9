"""The context of OpenTelemetry, with a stand-in for its API package."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

import millrace_sdk as mr
from millrace_sdk.testing import run_handler


def test_the_context_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[Any] = ["00-outer"]
    propagate, context = types.ModuleType("opentelemetry.propagate"), types.ModuleType("opentelemetry.context")
    propagate.inject = lambda carrier: carrier.update(traceparent=current[-1])  # type: ignore[attr-defined]
    propagate.extract = lambda headers: headers["traceparent"]  # type: ignore[attr-defined]
    context.attach = lambda c: current.append(c) or len(current)  # type: ignore[attr-defined,func-returns-value]
    context.detach = lambda token: current.pop()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", propagate)
    monkeypatch.setitem(sys.modules, "opentelemetry.context", context)
    seen: list[Any] = []
    job: mr.Job[str, None] = mr.Job[str, None]("traced")
    job.handler(lambda t, a: seen.append((current[-1], t.headers["traceparent"])))
    assert run_handler(job, "x", headers={"traceparent": "00-inner"}).settle == "complete"
    spec = job._spec("x", {})
    assert [(h.name, h.value) for h in spec.headers] == [("traceparent", "00-outer")]
    assert job._spec("x", {"headers": {"traceparent": "mine"}}).headers[0].value == "mine"
    assert seen[0][0] == seen[0][1] and current == ["00-outer"]


def test_without_it_nothing_is_added() -> None:
    if "opentelemetry.propagate" not in sys.modules:
        assert not mr.Job[str, None]("plain")._spec("x", {}).headers
