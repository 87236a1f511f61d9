"""How the agent of the scenarios reads settings of queues, and shows what it administers."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import millrace_sdk as mr


def _moment(t: datetime.datetime | None) -> str:
    return "" if t is None else t.astimezone(datetime.timezone.utc).isoformat().replace("+00:00", "Z")


def cron(c: mr.CronInfo) -> dict[str, Any]:
    """Show a cron."""
    return {
        "name": c.name, "schedule": c.schedule, "zone": c.zone, "words": c.words, "jitter_ms": round(c.jitter * 1000),
        "paused": c.paused, "overlap": c.overlap, "catch_up": c.catch_up, "queue": c.queue, "kind": c.kind,
        "priority": c.priority, "task_key": c.key, "cost": c.cost, "limiters": list(c.limiters), "tag": c.tag,
        "labels": dict(c.labels),
        "version": str(c.version), "runs": c.runs, "start": _moment(c.start), "end": _moment(c.end),
        "next_at": _moment(c.next_at), "waiting_at": _moment(c.waiting_at),
        "last_run": None if c.last_run is None else run(c.last_run),
    }  # fmt: skip


def run(r: mr.CronRun) -> dict[str, Any]:
    """Show a run of a cron."""
    return {
        "number": r.number, "slot": _moment(r.slot), "by_hand": r.by_hand, "outcome": r.outcome, "skipped": r.skipped,
        "task": r.task, "state": r.state, "passed": r.passed, "task_code": r.code, "message": r.message,
    }  # fmt: skip


def preview(p: mr.CronPreview) -> dict[str, Any]:
    """Show when a schedule holds."""
    changes = [
        {"at": _moment(d.at), "by_ms": round(d.by * 1000), "words": d.words, "slots": len(d.slots)} for d in p.changes
    ]
    return {"words": p.words, "times": [t.isoformat().replace("+00:00", "Z") for t in p.times], "changes": changes}


def rate(r: dict[str, Any] | None) -> mr.Rate | None:
    """Read a rate."""
    return None if r is None else mr.Rate(r["limit"], r["per_ms"] / 1000, r.get("burst"))


def _rate(r: mr.Rate | None) -> dict[str, Any] | None:
    return None if r is None else {"limit": r.limit, "per_ms": round(r.per * 1000), "burst": r.burst or 0}


def settings(given: dict[str, Any]) -> dict[str, Any]:
    """Read settings of a queue."""
    out: dict[str, Any] = {}
    for name, v in given.items():
        if name.endswith("_ms"):
            out[name.removesuffix("_ms")] = None if v is None else v / 1000
        elif name == "rate":
            out[name] = rate(v)
        elif name == "per_key":
            out[name] = None if v is None else mr.KeyLimits(v.get("concurrency"), rate(v.get("rate")))
        else:
            out[name] = v
    return out


def config(c: mr.QueueConfig) -> dict[str, Any]:
    """Show what rules a queue."""
    k = c.per_key or mr.KeyLimits()
    return {
        "version": str(c.version), "attempts": c.attempts or 0, "lease_ms": round((c.lease or 0) * 1000),
        "concurrency": c.concurrency or 0, "max_workers": c.max_workers or 0, "max_tasks": c.max_tasks or 0,
        "order": c.order, "fairness": c.fairness, "dead_letter": c.dead_letter or "", "rate": _rate(c.rate),
        "per_key": {"concurrency": k.concurrency or 0, "rate": _rate(k.rate)}, "limiters": list(c.limiters),
    }  # fmt: skip


def key(k: mr.QueueKey) -> dict[str, Any]:
    """Show a key of a queue."""
    paused = None if k.pause is None else {"reason": k.pause.reason, "until": _moment(k.pause.until)}
    return {
        "key": k.key, "tasks": k.tasks, "ready": k.ready, "running": k.running, "weight": k.weight,
        "concurrency": k.concurrency or 0, "rate": _rate(k.rate), "paused": paused, "waits_for": k.waits_for,
    }  # fmt: skip


def limiter(one: mr.LimiterInfo) -> dict[str, Any]:
    """Show a limiter."""
    return {
        "name": one.name, "concurrency": one.concurrency or 0, "rate": _rate(one.rate), "version": str(one.version),
        "used": one.used, "tasks": one.tasks, "held_by": [{"task": h.task, "queue": h.queue} for h in one.held_by],
        "queues": list(one.queues),
    }  # fmt: skip


def batch(b: mr.BatchInfo) -> dict[str, Any]:
    """Show a batch."""
    return {
        "id": b.id, "state": b.state, "counts": dataclasses.asdict(b.counts), "labels": dict(b.labels),
        "on_done": b.on_done, "on_success": b.on_success, "done_task": b.done_task, "success_task": b.success_task,
        "refused": b.refused_code, "cancel": b.cancel_reason if b.cancelled else None, "replayed": b.replayed,
    }  # fmt: skip


def bulk_options(c: dict[str, Any]) -> dict[str, Any]:
    """Read which tasks a bulk job is about, and how it is run."""
    names = ("queue", "state", "kind", "labels", "reason", "force", "priority", "to_queue", "patch", "batch")
    given = {k: c[k] for k in names if k in c}
    return given | ({"rate": c["per_second"]} if "per_second" in c else {})


def bulk(j: mr.BulkInfo) -> dict[str, Any]:
    """Show how far a bulk job is."""
    return {
        "id": j.id, "action": j.action, "state": j.state, "rate": j.rate, "reason": j.reason, "matched": j.matched,
        "done": j.done, "refused": dict(j.refused),
    }  # fmt: skip
