"""How a handler is called, and what its end means: shared by workers and by the helpers for tests."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

from . import codec, errors
from ._core import wire
from ._core.lane import Attempt
from ._otel import attach, detach
from .task import Task


class Invocation:
    """One call of a handler, or of what it registered for refused effects."""

    def __init__(self, job: Any, t: Task[Any], attempt: Attempt) -> None:
        self._job = job
        self._t = t
        self._attempt = attempt

    def args(self) -> Any:
        """Read the arguments; what does not fit their type is fatal."""
        t = self._t
        try:
            return codec.decode_with(self._job.args_codec, t.payload, t.content_type)
        except (ValueError, TypeError) as e:
            raise errors.Fatal(e, code="invalid_args") from e

    def call(self) -> None:
        """Run a sync handler to its end."""
        token = None
        try:
            token = attach(self._t)
            refusal = self._refusal()
            if refusal is not None:
                self._t._refused(refusal)  # type: ignore[misc]
                self._complete()
            else:
                self._returned(self._job.function(self._t, self.args()))
        except BaseException as e:  # also SystemExit: it must not end the worker
            self.raised(e)
        finally:
            detach(token)

    async def acall(self) -> None:
        """Run an async handler to its end."""
        token = None
        try:
            token = attach(self._t)
            refusal = self._refusal()
            if refusal is not None:
                out = self._t._refused(refusal)  # type: ignore[misc]
                if hasattr(out, "__await__"):
                    await out
                self._complete()
            else:
                self._returned(await self._job.function(self._t, self.args()))
        except BaseException as e:
            self.raised(e)
        finally:
            detach(token)

    def _refusal(self) -> errors.MillraceError | None:
        refusal, self._attempt.refusal = self._attempt.refusal, None
        if refusal is not None:
            self._t.fx._clear()
        return refusal

    def _returned(self, value: Any) -> None:
        try:
            self._t._result = codec.encode_with(self._job.result_codec, value)
        except (ValueError, TypeError) as e:
            raise errors.Fatal(e, code="invalid_result") from e
        self._complete()

    def _complete(self) -> None:
        t = self._t
        data, kind = t._result
        if self._attempt.complete(data, kind, t._fx, t._refused is not None) + 64 > wire.FRAME_BYTES:
            self._attempt.fail("TOO_LARGE", "result and effects are larger than a frame", fatal=True)

    def raised(self, e: BaseException) -> None:
        """Settle by what the handler raised."""
        a = self._attempt
        if isinstance(e, errors.Snooze):
            a.snooze(e.seconds)
        elif isinstance(e, errors.Release):
            a.release()
        elif self._t._is_cancelled() and isinstance(e, (asyncio.CancelledError, errors.Cancelled)):
            a.release()  # the worker settles as the reason asks for
        elif isinstance(e, errors.Fatal):
            a.fail(*_reported(e.error, e, e.code), fatal=True)
        elif isinstance(e, errors.RetryIn):
            a.fail(*_reported(e.error, e, e.code), retry_after=e.seconds)
        else:
            a.fail(*_reported(e, e, ""))


def _reported(error: BaseException | str, raised: BaseException, code: str) -> tuple[str, str, str]:
    """Return the code, the message and the stack of a failure."""
    source = error if isinstance(error, BaseException) else raised
    try:
        stack = "".join(traceback.format_exception(type(source), source, source.__traceback__, limit=-40))
    except Exception:
        stack = ""
    if isinstance(error, str):
        return code or "error", error, stack
    own = getattr(error, "code", None)
    name = code or (own if isinstance(own, str) and own else type(error).__name__)
    try:
        text = str(error)
    except Exception:
        text = "an error that cannot be shown"
    return name, text, stack
