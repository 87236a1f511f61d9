"""The example of examples/python runs against a real server."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import ROOT

from millrace_sdk.testing import DevServer


def test_thumbnails(millrace_server: DevServer) -> None:
    pytest.importorskip("PIL")
    env = os.environ | {"MILLRACE_URL": millrace_server.url, "MILLRACE_TOKEN": millrace_server.token}
    env["MILLRACE_NAMESPACE"] = "default"
    run = [sys.executable, str(ROOT / "examples/python/thumbs.py")]
    out = subprocess.run(run, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert out.returncode == 0, out.stderr
    lines = out.stdout.splitlines()
    assert "sea.png: 96x72" in lines
    assert "fire.png looks like sunset.png" in lines
    assert lines[-1] == "5 thumbnails in all"
