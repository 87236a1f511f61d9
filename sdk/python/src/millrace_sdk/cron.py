"""Crons: tasks by a schedule."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from . import errors
from ._core import place, wire
from ._core.base import _UNSET
from ._core.pages import apages, pages
from .job import CronOptions, Job, TaskOptions, TemplateOptions
from .types import maybe_time, time_of, unix_of

Overlap = Literal["skip", "allow", "queue_one", "cancel_previous"]
CatchUp = Literal["one", "none", "all"]
_OVERLAPS = ("skip", "allow", "queue_one", "cancel_previous")  # by number, as the words below
_CATCH_UPS = ("one", "none", "all")
_OUTCOMES = ("", "started", "waiting", "skipped", "refused")
_REPEATED = 2  # a change by which the clocks go back
_PAGE = 1000


@dataclass(frozen=True)
class CronRun:
    """A run of a cron."""

    number: int  # from 1
    slot: datetime.datetime  # when it was due; of a run by hand, when it was asked for
    at: datetime.datetime  # when that was done
    by_hand: bool
    outcome: str  # started, waiting, skipped or refused
    skipped: str  # why it made no task: overlap, missed or replaced
    task: str  # the id of its task, or of the one that it will make; empty: it made none
    state: str  # that of the task; empty: the task is not there any more
    passed: int  # slots that were passed over before it; 100 stands for 100 and more
    code: str  # why the task was refused
    message: str


@dataclass(frozen=True)
class CronInfo:
    """A cron, and where it stands."""

    name: str
    schedule: str
    zone: str  # empty: UTC
    words: str  # the schedule in English
    jitter: float  # seconds
    start: datetime.datetime | None
    end: datetime.datetime | None
    paused: bool
    overlap: str
    catch_up: str
    queue: str  # of its tasks, as what follows
    kind: str
    payload: bytes
    content_type: str
    priority: int
    tag: str
    key: str
    cost: int
    limiters: tuple[str, ...]
    headers: Mapping[str, str]
    labels: Mapping[str, str]
    version: int
    next_at: datetime.datetime | None  # its next slot
    waiting_at: datetime.datetime | None  # the slot of the run that waits for the end of a task
    created_at: datetime.datetime | None
    updated_at: datetime.datetime | None
    by: str  # name of the token that changed it last
    runs: int  # ever
    last_run: CronRun | None
    message: Any = field(repr=False, compare=False, default=None)  # of the contract, with all that it has


@dataclass(frozen=True)
class CronChange:
    """A change of the clocks of a zone, and what it does to a schedule."""

    at: datetime.datetime  # the first instant after it
    by: float  # seconds that the clocks are moved; negative: back
    words: str  # what it does to the schedule, in English
    slots: list[datetime.datetime]  # that it moved, or that are within the time that comes twice


@dataclass(frozen=True)
class CronPreview:
    """When a schedule holds. Times have the offset from UTC that its zone has then."""

    words: str  # the schedule in English
    times: list[datetime.datetime]  # its next slots
    changes: list[CronChange]  # of the zone's clocks within a year, at most 4


def _info(c: Any) -> CronInfo:
    g, t = c.config, c.config.template
    return CronInfo(
        name=c.name,
        schedule=g.schedule,
        zone=g.zone,
        words=c.words,
        jitter=wire.span(g.jitter),
        start=maybe_time(g, "start"),
        end=maybe_time(g, "end"),
        paused=g.paused,
        overlap=_word(_OVERLAPS, g.overlap),
        catch_up=_word(_CATCH_UPS, g.catch_up),
        queue=t.queue,
        kind=t.kind or t.queue,
        payload=t.payload,
        content_type=t.content_type or "application/json",
        priority=t.priority,
        tag=t.tag,
        key=t.key,
        cost=t.cost or 1,
        limiters=tuple(t.limiters),
        headers={h.name: h.value for h in t.headers},
        labels=dict(t.labels),
        version=c.version,
        next_at=maybe_time(c, "next_at"),
        waiting_at=maybe_time(c, "waiting_at"),
        created_at=maybe_time(c, "created_at"),
        updated_at=maybe_time(c, "updated_at"),
        by=c.by,
        runs=c.runs,
        last_run=_run(c.last_run) if c.HasField("last_run") else None,
        message=c,
    )


def _run(r: Any) -> CronRun:
    return CronRun(
        number=r.number,
        slot=time_of(r.slot),
        at=time_of(r.at),
        by_hand=r.by_hand,
        outcome=_word(_OUTCOMES, r.outcome),
        skipped=r.skipped,
        task=r.task,
        state=wire.state(r.state) if r.state else "",
        passed=r.passed,
        code=r.error.code,
        message=r.error.message,
    )


def _preview(r: Any) -> CronPreview:
    changes = [
        CronChange(
            at=time_of(d.at),
            by=-wire.span(d.by) if d.kind == _REPEATED else wire.span(d.by),
            words=d.words,
            slots=[_local(s) for s in d.slots],
        )
        for d in r.dst
    ]
    return CronPreview(r.words, [_local(s) for s in r.times], changes)


def _local(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def _word(words: tuple[str, ...], n: int) -> str:
    return words[n] if n < len(words) else "unknown"


def _number(field: str, words: tuple[str, ...], word: str) -> int:
    if word not in words:
        raise errors.InvalidArgument(f"{field}: must be {', '.join(words[:-1])} or {words[-1]}", field=field)
    return words.index(word)


def set_cron(client: Any, job: Job[Any, Any], name: str, schedule: str, args: Any, o: Mapping[str, Any]) -> Any:
    """Make a cron, or replace it."""
    for given in o:
        if given in TaskOptions.__optional_keys__ and given not in TemplateOptions.__optional_keys__:
            raise errors.InvalidArgument(
                f"template.{given}: must not be set: each run has its own", field="template." + given
            )
        if given not in CronOptions.__optional_keys__:
            raise TypeError(f"unknown option {given!r}")
    request = wire.message("SetCronRequest")(name=name)
    m = request.config
    m.schedule, m.zone, m.paused = schedule, o.get("zone", ""), o.get("paused", False)
    m.overlap = _number("overlap", _OVERLAPS, o.get("overlap", "skip"))
    m.catch_up = _number("catch_up", _CATCH_UPS, o.get("catch_up", "one"))
    if (jitter := o.get("jitter")) is not None:
        wire.set_span(m.jitter, jitter)
    if (start := o.get("start")) is not None:
        wire.set_time(m.start, unix_of(start))
    if (end := o.get("end")) is not None:
        wire.set_time(m.end, unix_of(end))
    if (version := o.get("if_version")) is not None:
        request.if_version = version
    own: Any = {k: v for k, v in o.items() if k in TemplateOptions.__optional_keys__}
    # A template has the fields of a task under the same numbers.
    m.template.MergeFromString(job._made(args, own).SerializeToString())
    return client._unary(
        "CronService/Set", request, "SetCronResponse", lambda r: _info(r.cron), timeout=o.get("timeout", _UNSET)
    )


def preview(client: Any, schedule: str, zone: str, count: int, after: datetime.datetime | None) -> Any:
    """Say when a schedule holds."""
    request = wire.message("PreviewCronRequest")(schedule=schedule, zone=zone, count=count)
    if after is not None:
        wire.set_time(getattr(request, "from"), unix_of(after))
    return client._unary("CronService/Preview", request, "PreviewCronResponse", _preview)


def _page(client: Any, prefix: str, cursor: str) -> Any:
    request = wire.message("ListCronsRequest")(limit=_PAGE, cursor=cursor, prefix=prefix)
    return client._unary(
        "CronService/List", request, "ListCronsResponse", lambda r: ([_info(c) for c in r.crons], r.cursor)
    )


def crons(client: Any, prefix: str) -> Iterator[CronInfo]:
    """Go through the crons by name, page by page."""
    return pages(lambda cursor: _page(client, prefix, cursor))


def acrons(client: Any, prefix: str) -> AsyncIterator[CronInfo]:
    """Go through the crons as crons does."""
    return apages(lambda cursor: _page(client, prefix, cursor))


class _Cron:
    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name

    def _ask(self, method: str, messages: str, read: Callable[[Any], Any], **fields: Any) -> Any:
        request = wire.message(messages + "Request")(name=self.name, **fields)
        return self._client._unary("CronService/" + method, request, messages + "Response", read)

    def _get(self) -> Any:
        return self._ask("Get", "GetCron", lambda r: _info(r.cron))

    def _pause(self) -> Any:
        return self._ask("Pause", "PauseCron", lambda r: r.replayed)

    def _resume(self) -> Any:
        return self._ask("Resume", "ResumeCron", lambda r: r.replayed)

    def _trigger(self, id: str | None) -> Any:
        # With an id the call can be repeated.
        return self._ask("Trigger", "TriggerCron", lambda r: _run(r.run), id=id or place.new_id())

    def _runs(self) -> Any:
        return self._ask("Runs", "ListCronRuns", lambda r: [_run(one) for one in r.runs])

    def _delete(self, if_version: int | None) -> Any:
        return self._ask("Delete", "DeleteCron", lambda r: None, if_version=if_version)


class Cron(_Cron):
    """A cron of a Client. Job.cron makes one. Of one that is not there, each call is NotFound."""

    def get(self) -> CronInfo:
        """Read the cron."""
        out: CronInfo = self._get()
        return out

    def pause(self) -> bool:
        """Let its slots go by until it is resumed, and return whether it was paused before."""
        out: bool = self._pause()
        return out

    def resume(self) -> bool:
        """Let it go on, and return whether it was not paused."""
        out: bool = self._resume()
        return out

    def trigger(self, *, id: str | None = None) -> CronRun:
        """Run it now, also when it is paused, and say what the run came to. Its next slot stays."""
        out: CronRun = self._trigger(id)
        return out

    def runs(self) -> list[CronRun]:
        """Read its last runs, at most 100, the last one first."""
        out: list[CronRun] = self._runs()
        return out

    def delete(self, *, if_version: int | None = None) -> None:
        """Remove it with the list of its runs. Its tasks stay."""
        self._delete(if_version)


class AsyncCron(_Cron):
    """A cron of an AsyncClient. Job.cron makes one. Of one that is not there, each call is NotFound."""

    async def get(self) -> CronInfo:
        """Read the cron."""
        out: CronInfo = await self._get()
        return out

    async def pause(self) -> bool:
        """Let its slots go by until it is resumed, and return whether it was paused before."""
        out: bool = await self._pause()
        return out

    async def resume(self) -> bool:
        """Let it go on, and return whether it was not paused."""
        out: bool = await self._resume()
        return out

    async def trigger(self, *, id: str | None = None) -> CronRun:
        """Run it now, also when it is paused, and say what the run came to. Its next slot stays."""
        out: CronRun = await self._trigger(id)
        return out

    async def runs(self) -> list[CronRun]:
        """Read its last runs, at most 100, the last one first."""
        out: list[CronRun] = await self._runs()
        return out

    async def delete(self, *, if_version: int | None = None) -> None:
        """Remove it with the list of its runs. Its tasks stay."""
        await self._delete(if_version)
