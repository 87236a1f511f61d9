"""The plug-in of pytest: the fixture millrace_server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import DevServer


@pytest.fixture(scope="session")
def millrace_server() -> Iterator[DevServer]:
    """A server for the tests of a session. Without the program millrace, the tests that ask for it are skipped."""
    from .testing import dev_server

    try:
        server = dev_server()
        with server as s:
            yield s
    except FileNotFoundError as e:
        pytest.skip(str(e))
