"""Effects as JSON, in the form that commands of ``millrace work`` write them: for tests of handlers."""

from __future__ import annotations

import base64
import json
from typing import Any

from ._core import wire
from .types import DEP_FAILURES, time_of


def _content(name: str, raw: bytes) -> dict[str, Any]:
    """Show bytes as text, or as base64 if they are none."""
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {name + "_base64": base64.b64encode(raw).decode()}


def _time(t: Any) -> str:
    return time_of(t).isoformat().replace("+00:00", "Z")


def _some(m: Any, *names: str) -> dict[str, Any]:
    """Return the fields that are set."""
    out: dict[str, Any] = {}
    for n in names:
        optional = n in ("if_rev", "floor", "ceiling")
        if m.HasField(n) if optional else getattr(m, n):
            out[n] = getattr(m, n)
    return out


def _template(m: Any) -> dict[str, Any]:
    """Describe a task that a batch makes: all its fields are some of a task's."""
    return _content_of({"queue": m.queue, "kind": m.kind}, m)


def _content_of(out: dict[str, Any], spec: Any) -> dict[str, Any]:
    if spec.content_type.startswith("application/json"):
        out["payload"] = json.loads(spec.payload)
    else:
        out["payload_base64"] = base64.b64encode(spec.payload).decode()
        if spec.content_type != "application/octet-stream":
            out["content_type"] = spec.content_type
    out |= _some(spec, "tag", "key", "cost", "priority")
    if spec.limiters:
        out["limiters"] = list(spec.limiters)
    if spec.labels:
        out["labels"] = dict(spec.labels)
    return out


def _task(spec: Any) -> dict[str, Any]:
    out = _content_of({"op": "task_create", "queue": spec.queue, "kind": spec.kind, "id": spec.id}, spec)
    if spec.HasField("delay"):
        out["delay"] = f"{wire.span(spec.delay):g}s"
    if spec.HasField("run_at"):
        out["run_at"] = _time(spec.run_at)
    if spec.HasField("unique"):
        out["unique"] = {"key": spec.unique.key}
    if spec.after:
        out["after"] = [{"id": a.id} | ({"on": "terminal"} if a.on == 1 else {}) for a in spec.after]
    if spec.on_dep_failure > 1:
        out["on_dep_failure"] = DEP_FAILURES[spec.on_dep_failure]
    if spec.batch:
        out["batch"] = spec.batch
    return out


def _refs(m: Any) -> list[dict[str, Any]]:
    out = []
    for c in m.changes:
        line = {"op": "ref_update", "repo": m.repo, "ref": c.name, "new": c.new}
        if c.HasField("old"):
            line["old"] = c.old
        elif c.kind == 1:
            line["old"] = ""
        out.append(line)
    return out


def _point(m: Any) -> dict[str, Any]:
    p = m.point
    out: dict[str, Any] = {"op": "vector_upsert", "collection": m.collection, "id": p.id}
    if p.vector:
        out["vector"] = list(p.vector)
    if p.payload:
        out["payload"] = json.loads(p.payload)
    return out | _some(p, "model", "if_version", "if_absent")


def effect(op: Any) -> list[dict[str, Any]]:
    """Describe one op: most are one line, a transaction of refs is one for each change."""
    kind = op.WhichOneof("op")
    m = getattr(op, kind)
    if kind == "ref_transaction":
        return _refs(m)
    if kind == "task_create":
        return [_task(m)]
    if kind == "vector_upsert":
        return [_point(m)]
    out: dict[str, Any] = {"op": kind}
    if kind in ("kv_put", "kv_delete", "kv_add"):
        out |= {"keyspace": m.keyspace} | _content("key", m.key)
    if kind == "kv_put":
        out |= _content("value", m.value) | _some(m, "if_rev", "if_absent")
    elif kind == "kv_delete":
        out |= _some(m, "if_rev")
    elif kind == "kv_add":
        out |= {"delta": m.delta} | _some(m, "floor", "ceiling", "if_rev")
    elif kind == "kv_delete_range":
        out["keyspace"] = m.keyspace
        for name in ("prefix", "from", "to"):
            if getattr(m, name):
                out |= _content(name, getattr(m, name))
    elif kind == "vector_delete":
        out |= {"collection": m.collection, "id": m.id}
    elif kind == "task_cancel":
        out |= {"id": m.id} | _some(m, "reason", "force")
    elif kind == "batch_open":
        out["id"] = m.id
        if m.labels:
            out["labels"] = dict(m.labels)
        for name in ("on_done", "on_success"):
            if m.HasField(name):
                out[name] = _template(getattr(m, name))
    elif kind == "batch_seal":
        out["id"] = m.id
    elif kind == "batch_cancel":
        out |= {"id": m.id} | _some(m, "reason", "rate", "force")
    elif kind == "queue_pause":
        out |= {"queue": m.queue} | _some(m, "reason", "resume")
        if m.HasField("until"):
            out["until"] = _time(m.until)
    return [out]


_COMPARES = {v: k for k, v in wire.COMPARES.items()}


def check(m: Any) -> dict[str, Any]:
    """Describe one check."""
    out: dict[str, Any] = {"keyspace": m.keyspace} | _content("key", m.key) | {"compare": _COMPARES[m.compare]}
    operand = m.WhichOneof("operand")
    if operand == "rev":
        out["rev"] = m.rev
    elif operand == "value":
        out |= _content("value", m.value)
    return out
