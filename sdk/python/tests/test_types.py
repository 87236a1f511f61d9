"""The check of types: mypy accepts the guide, and refuses what is wrong."""

from __future__ import annotations

import pathlib
import re

import pytest
from test_docs import FILES, blocks

HERE = pathlib.Path(__file__).parent


def test_mypy(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = pytest.importorskip("mypy.api")
    monkeypatch.setenv("MYPYPATH", str(HERE.parent / "src"))
    paths = []
    for n, f in enumerate(FILES):
        paths.append(tmp_path / f"guide_{n}.py")
        paths[-1].write_text("\n".join(blocks(f)))
    bad = HERE / "expect_error.py"
    config = HERE.parent / "pyproject.toml"
    out, _, _ = api.run(["--config-file", str(config), "--no-pretty", str(bad), *map(str, paths)])
    found = {(pathlib.Path(m[1]).name, int(m[2])) for m in re.finditer(r"^(.*?):(\d+): error:", out, re.M)}
    lines = enumerate(bad.read_text().splitlines(), 1)
    assert found == {(bad.name, n) for n, line in lines if line.endswith("# wrong")}, out
