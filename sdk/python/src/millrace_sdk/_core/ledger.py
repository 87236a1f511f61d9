"""One line of JSON per call that ended, for audits of what was promised. The names of the fields are a contract."""

from __future__ import annotations

import json
import threading
from typing import IO, Any

from ..errors import MillraceError
from . import wire


class Ledger:
    """Writes the lines. Times are microseconds since it was made, of the monotonic clock."""

    def __init__(self, to: IO[Any]) -> None:
        self._to = to
        self._start = wire.monotonic()
        self._lock = threading.Lock()

    def now(self) -> int:
        """Return the time of an invocation."""
        return int((wire.monotonic() - self._start) * 1e6)

    def write(self, op: str, invoke: int, *, at: Any = None, error: MillraceError | None = None, **fields: Any) -> None:
        """Write how a call ended: at is its place in the log, None where it was not acknowledged."""
        line: dict[str, Any] = {"t_invoke": invoke, "t_return": self.now(), "op": op}
        line |= {k: v for k, v in fields.items() if v}
        if at is not None and at.index:
            line["partition"], line["index"] = f"p{at.partition}", at.index
        line["outcome"] = "ok" if error is None else error.outcome
        if at is not None and at.HasField("stamp"):
            line["stamp"] = at.stamp.seconds * 1000 + at.stamp.nanos // 1_000_000
        if error is not None and error.outcome == "refused":
            line["code"] = error.code
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"
        with self._lock:
            try:
                self._to.write(text)
                self._to.flush()
            except (OSError, ValueError):
                pass  # a ledger that cannot be written must not change the outcome of a call


def make(to: Any) -> Ledger | None:
    """Make a ledger over a path or a file of text; None for None."""
    if to is None or isinstance(to, Ledger):
        return to
    if hasattr(to, "write"):
        return Ledger(to)
    return Ledger(open(to, "a", encoding="utf-8"))
