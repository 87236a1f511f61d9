"""What a process pays for that only adds a task, and the names of the package, which come when they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import millrace_sdk as mr
from millrace_sdk.testing import DevServer

# What a producer of threads does without: workers, event loops of users, helpers for tests, REST, webhooks, and of
# protobuf the implementation in Python and the descriptors of descriptors.
LATER = set(
    """
millrace_sdk.aio millrace_sdk.batch millrace_sdk.bulk millrace_sdk.cron millrace_sdk.kv millrace_sdk.limiter
millrace_sdk.queue millrace_sdk.raw
millrace_sdk.task millrace_sdk.testing millrace_sdk.webhook millrace_sdk.worker millrace_sdk._effects
millrace_sdk._record millrace_sdk._renew millrace_sdk._run millrace_sdk._core.helper millrace_sdk._core.lane
millrace_sdk._core.report millrace_sdk._core.rest millrace_sdk._core.rest_stream millrace_sdk._core.rest_waits
millrace_sdk._core.restjson millrace_sdk._core.share millrace_sdk._core.slots millrace_sdk._core.web
millrace_sdk._core.work
concurrent.futures.process concurrent.futures.thread hashlib hmac http.client ipaddress multiprocessing pkgutil
tempfile urllib.parse urllib.request
""".split()  # noqa: SIM905
)
PROTOBUF = set(
    """
google.protobuf.descriptor_pb2 google.protobuf.descriptor_pool google.protobuf.internal.decoder
google.protobuf.internal.encoder google.protobuf.internal.python_message google.protobuf.text_format
""".split()  # noqa: SIM905
)

ADD = """
import sys
import millrace_sdk as mr
with mr.Client(tls=False) as c:
    print(mr.Job("first", queue="first").add(c, {"x": 1}).id)
print(*sys.modules)
"""


def run(code: str, *flags: str, **env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *flags, "-c", code], env=os.environ | env, stdout=subprocess.PIPE, check=True, text=True
    )
    return done.stdout.splitlines()


def test_a_producer_imports_what_it_needs(millrace_server: DevServer) -> None:
    # Without the site's packages, whose hooks import what they like: those that are needed are named.
    paths = os.pathsep.join(p for p in sys.path if p)
    env = {"MILLRACE_URL": millrace_server.url, "MILLRACE_TOKEN": millrace_server.token, "PYTHONPATH": paths}
    id, modules = run(ADD, "-S", **env)
    found = set(modules.split())
    assert len(id) == 26 and "millrace_sdk._core.producer" in found
    assert not found & LATER
    from google.protobuf.internal import api_implementation

    if api_implementation.Type() == "upb":
        assert not found & PROTOBUF


def test_the_implementation_in_python_serves_too(millrace_server: DevServer) -> None:
    env = {"MILLRACE_URL": millrace_server.url, "MILLRACE_TOKEN": millrace_server.token}
    id, modules = run(ADD, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python", **env)
    assert len(id) == 26 and "google.protobuf.descriptor_pool" in modules.split()


def test_every_public_name_is_there() -> None:
    found: dict[str, Any] = {}
    exec("from millrace_sdk import *", found)
    assert set(mr.__all__) <= set(found) and set(mr.__all__) <= set(dir(mr))
    for name in mr.__all__:
        assert getattr(mr, name) is found[name]
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = mr.Nothing  # type: ignore[attr-defined]


def test_names_do_not_turn_into_modules() -> None:
    """A name of the package may be that of a module of it too: job is."""
    out = run("import millrace_sdk.job, millrace_sdk.worker, millrace_sdk as mr; print(mr.job('x'), mr.Worker)")
    assert "_Declare" in out[0] and "class" in out[0]
