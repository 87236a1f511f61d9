"""The code blocks of the guides and of the README run, each file in one go."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import sys
import threading
import types
from typing import Any

import pytest
from conftest import ROOT

import millrace_sdk as mr
from millrace_sdk.testing import DevServer

FILES = [
    *(ROOT / f"docs/start/{page}.md" for page in ("python", "cron", "limits", "batches")),
    ROOT / "sdk/python/README.md",
]


def blocks(path: pathlib.Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.S | re.M)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_blocks(path: pathlib.Path, millrace_server: DevServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_URL", millrace_server.url)
    monkeypatch.setenv("MILLRACE_TOKEN", millrace_server.token)
    namespace = path.stem.lower()
    monkeypatch.setenv("MILLRACE_NAMESPACE", namespace)
    # A module of its own, so that types are found by their names.
    module = types.ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)
    found = blocks(path)
    assert found
    for n, block in enumerate(found):
        stop = threading.Event()
        if ".run()" in block:
            before = _completed(millrace_server, namespace)
            args = (millrace_server, namespace, before, stop)
            threading.Thread(target=_signal_when_done, args=args, daemon=True).start()
        try:
            exec(compile(block, f"{path.name}:{n}", "exec"), module.__dict__)
        finally:
            stop.set()


def _completed(server: DevServer, namespace: str) -> int:
    """Count the tasks that earlier blocks have completed."""
    with server.client(namespace=namespace) as c:
        try:
            return sum(q.completed for q in c.queues())
        except mr.NotFound:  # the first call of the page makes the namespace
            return 0


def _signal_when_done(server: DevServer, namespace: str, before: int, stop: threading.Event) -> None:
    """Send the signal that ends a worker, once the queues are empty and have completed something more."""
    with server.client(namespace=namespace) as c:
        while not stop.wait(0.02):
            queues: Any = c.raw.QueueService.List().queues
            if sum(q.completed for q in queues) > before and not any(q.ready + q.running + q.scheduled for q in queues):
                os.kill(os.getpid(), signal.SIGTERM)
                return
