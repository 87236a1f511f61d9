"""The context of OpenTelemetry in the headers of tasks, where the program has imported its API package already."""

from __future__ import annotations

import sys
from typing import Any


def inject(headers: Any) -> None:
    """Add the traceparent of the current context to the headers of a task."""
    api = sys.modules.get("opentelemetry.propagate")
    if api is None:
        return
    carrier: dict[str, str] = {}
    api.inject(carrier)
    there = {h.name for h in headers}
    for name in ("traceparent", "tracestate"):
        if name in carrier and name not in there:
            headers.add(name=name, value=carrier[name])


def attach(t: Any) -> Any:
    """Make the context of a task's headers the current one; what it returns is for detach."""
    api = sys.modules.get("opentelemetry.propagate")
    if api is None:
        return None
    context = sys.modules.get("opentelemetry.context")
    if context is None or "traceparent" not in t.headers:
        return None
    return context.attach(api.extract(dict(t.headers)))


def detach(token: Any) -> None:
    """End what attach began."""
    if token is None:
        return
    context = sys.modules.get("opentelemetry.context")
    if context is not None:
        context.detach(token)
