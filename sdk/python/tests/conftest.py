"""What all tests share: the program of the server, and a client of a server that the tests play."""

from __future__ import annotations

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[3]
VECTORS = ROOT / "proto" / "conformance"
sys.path.insert(0, str(pathlib.Path(__file__).parent))

if "MILLRACE_BIN" not in os.environ and (ROOT / "bin" / "millrace").exists():
    os.environ["MILLRACE_BIN"] = str(ROOT / "bin" / "millrace")
for name in ("MILLRACE_URL", "MILLRACE_TOKEN", "MILLRACE_NAMESPACE"):
    os.environ.pop(name, None)
