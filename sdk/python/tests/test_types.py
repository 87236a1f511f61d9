"""The checks of types: mypy and pyright accept the guide, and refuse what is wrong."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from test_docs import FILES, blocks

HERE = pathlib.Path(__file__).parent
BAD = HERE / "expect_error.py"
PYRIGHT = HERE.parents[1] / "typescript/node_modules/pyright/index.js"


def guides(into: pathlib.Path) -> list[pathlib.Path]:
    """Write the code of each guide into a file of its own."""
    paths = [into / f"guide_{n}.py" for n in range(len(FILES))]
    for path, f in zip(paths, FILES, strict=True):
        path.write_text("\n".join(blocks(f)))
    return paths


def wrong() -> set[tuple[str, int]]:
    """Return the lines that must be refused."""
    lines = enumerate(BAD.read_text().splitlines(), 1)
    return {(BAD.name, n) for n, line in lines if line.endswith("# wrong")}


def test_mypy(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = pytest.importorskip("mypy.api")
    monkeypatch.setenv("MYPYPATH", str(HERE.parent / "src"))
    config = HERE.parent / "pyproject.toml"
    out, _, _ = api.run(["--config-file", str(config), "--no-pretty", str(BAD), *map(str, guides(tmp_path))])
    found = {(pathlib.Path(m[1]).name, int(m[2])) for m in re.finditer(r"^(.*?):(\d+): error:", out, re.M)}
    assert found == wrong(), out


@pytest.mark.skipif("MILLRACE_SDK_LONG" not in os.environ, reason="it takes seconds: scripts/sdk-types.sh runs it")
def test_pyright(tmp_path: pathlib.Path) -> None:
    """Users may have its strict mode, without the exceptions that this package makes for itself."""
    guides(tmp_path)
    (tmp_path / BAD.name).write_text(BAD.read_text())
    config = {
        "include": ["."], "typeCheckingMode": "strict", "pythonVersion": "3.10",
        "extraPaths": [str(HERE.parent / "src")],
    }  # fmt: skip
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = ["node", str(PYRIGHT), "-p", str(tmp_path), "--pythonpath", sys.executable, "--outputjson"]
    out = json.loads(subprocess.run(command, capture_output=True, check=False, timeout=240).stdout)
    assert out["summary"]["filesAnalyzed"] == 1 + len(FILES)
    told = out["generalDiagnostics"]
    assert {(pathlib.Path(d["file"]).name, d["range"]["start"]["line"] + 1) for d in told} == wrong(), told
