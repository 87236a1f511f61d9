"""Declarations of jobs: a name, the types of its arguments and its result, and the settings of its tasks."""

from __future__ import annotations

import datetime
import inspect
import sys
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, overload

from . import codec as codecs
from . import errors
from ._core import wire
from ._otel import inject
from .codec import Codec
from .types import DEP_FAILURES, After, Retry, Unique

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .aio import AsyncClient, AsyncHandle
    from .batch import AsyncBatch, Batch, BatchInfo
    from .client import Client, Handle
    from .cron import CronInfo
    from .task import Task
    from .tx import Changes

A = TypeVar("A")
R = TypeVar("R")


class TemplateOptions(TypedDict, total=False):
    """What tasks may have of their own, those of crons too. What is left out is the job's setting, then the queue's."""

    queue: str
    tag: str  # in a namespace of several partitions, tasks and keys with one tag share one
    key: str  # the line of the queue that it waits in, which gets its share and has limits of its own
    cost: int  # what it weighs in shares, rates and limiters; default 1
    limiters: Sequence[str]  # that it needs besides those of its job and its queue: it runs while all have room for it
    priority: int  # 0 to 9; 9 is first
    headers: Mapping[str, str]
    labels: Mapping[str, str]
    attempts: int
    crashes: int
    deliveries: int
    lease: float  # seconds
    max_run: float  # seconds
    retry: Retry


class TaskOptions(TemplateOptions, total=False):
    """What a task may have of its own."""

    id: str  # of new_id: makes the add repeatable over processes
    delay: float  # seconds until it is ready
    run_at: datetime.datetime  # or the time
    expires_at: datetime.datetime  # it is dead if no worker got it by then
    unique: str | Unique
    after: Iterable[str | After | Handle[Any] | AsyncHandle[Any]]  # it is blocked until these tasks have completed
    batch: str | Batch | AsyncBatch | BatchInfo  # the open one that it is added to; without a tag or key it goes there
    on_dep_failure: Literal["hold", "cancel", "run"]  # what follows when one of them is not completed


class AddOptions(TaskOptions, total=False):
    """Options of an add: those of the task, and of the call."""

    timeout: float | None  # seconds; default: the client's


class CronOptions(TemplateOptions, total=False):
    """Options of a cron: those of its tasks, its own, and of the call."""

    zone: str  # of the schedule, by its name in the IANA database; default: UTC
    overlap: Literal["skip", "allow", "queue_one", "cancel_previous"]  # while the task of the run before has not ended
    catch_up: Literal["one", "none", "all"]  # which slots that were missed run
    jitter: float  # seconds, of which each task waits for a part
    start: datetime.datetime  # no slot before it; a time without a zone is UTC
    end: datetime.datetime  # no slot after it
    paused: bool  # slots go by until it is resumed
    if_version: int  # that it must have; 0: it must not be there yet
    timeout: float | None  # seconds; default: the client's


class Prepared:
    """A task that is ready to be added."""

    __slots__ = ("spec",)

    def __init__(self, spec: Any) -> None:
        self.spec = spec


class FollowUp:
    """What a batch makes when it finishes: a task of a job. Job.follow_up returns it."""

    __slots__ = ("_args", "_job", "_options")

    def __init__(self, job: Job[Any, Any], args: Any, o: Mapping[str, Any]) -> None:
        self._job = job
        self._args = args
        self._options = o

    def _template(self, field: str) -> bytes:
        """Encode the template, which is a field of a request."""
        for given in self._options:
            if given in TaskOptions.__optional_keys__ and given not in TemplateOptions.__optional_keys__:
                at = f"{field}.{given}"
                raise errors.InvalidArgument(f"{at}: must not be set in a template", field=at)
            if given not in TemplateOptions.__optional_keys__:
                raise TypeError(f"unknown option {given!r}")
        # A template has the fields of a task under the same numbers.
        made: bytes = self._job._made(self._args, self._options).SerializeToString()  # type: ignore[arg-type]
        return made


class Job(Generic[A, R]):
    """A kind of task. Declare it once, where producers and workers can import it.

    With types, ``Job[Args, str]("image.thumb")``, producers need not import the handler; the decorator ``job`` declares
    a job and its handler at once.
    """

    def __init__(
        self,
        name: str,
        *,
        queue: str | None = None,
        attempts: int | None = None,
        crashes: int | None = None,
        deliveries: int | None = None,
        lease: float | None = None,
        max_run: float | None = None,
        priority: int | None = None,
        retry: Retry | None = None,
        limiters: Sequence[str] | None = None,
        args: Codec[A] | None = None,
        result: Codec[R] | None = None,
    ) -> None:
        self.name = name
        self.queue = queue or name
        self.function: Callable[..., Any] | None = None
        self._args = args
        self._result = result
        given = {
            "attempts": attempts,
            "crashes": crashes,
            "deliveries": deliveries,
            "lease": lease,
            "max_run": max_run,
            "priority": priority,
            "retry": retry,
            "limiters": limiters,
        }
        self._settings: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        self._template: bytes | None = None
        self._types: tuple[Any, Any] | None = None
        self._asked: Callable[..., Any] | None = None  # the function that _is_async tells of
        self._is_async = False

    def __repr__(self) -> str:
        return f"<Job {self.name}>"

    # The types, and what they make of values.

    def _declared(self) -> tuple[Any, Any]:
        if self._types is None:
            made = getattr(self, "__orig_class__", None)
            found = typing.get_args(made) if made is not None else ()
            found = tuple(Any if isinstance(t, TypeVar) else t for t in found)
            self._types = (found[0], found[1]) if len(found) == 2 else (Any, Any)
        return self._types

    @property
    def args_codec(self) -> Codec[A]:
        """What writes and reads arguments."""
        if self._args is None:
            self._args = codecs.codec_of(self._declared()[0])
        return self._args

    @property
    def result_codec(self) -> Codec[R]:
        """What writes and reads results."""
        if self._result is None:
            self._result = codecs.codec_of(self._declared()[1])
        return self._result

    def handler(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Set the handler of a job that was declared apart; for use as a decorator."""
        self.function = f
        return f

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function."""
        f = self.function
        if self._asked is not f:
            self._is_async = f is not None and (
                inspect.iscoroutinefunction(f) or inspect.iscoroutinefunction(getattr(f, "__call__", None))  # noqa: B004
            )
            self._asked = f
        return self._is_async

    def __call__(self, t: Task[A], a: A) -> Any:
        """Call the handler, as any function."""
        if self.function is None:
            raise TypeError(f"the job {self.name} has no handler")
        return self.function(t, a)

    # Tasks.

    def _spec(self, args: A, o: TaskOptions) -> Any:
        """Make the message of a task that is added now."""
        spec = self._made(args, o)
        inject(spec.headers)
        return spec

    def _made(self, args: A, o: TaskOptions) -> Any:
        """Make the message of a task. An id that is not given is made where the task is placed."""
        if self._template is None:
            spec = wire.TaskSpec(queue=self.queue, kind=self.name)
            _settle_settings(spec, self._settings)
            self._template = spec.SerializeToString()
        spec = wire.TaskSpec.FromString(self._template)
        try:
            spec.payload, spec.content_type = codecs.encode_with(self.args_codec, args)
        except ValueError as e:
            raise errors.InvalidArgument(f"arguments of {self.name}: {e}", reason="invalid_args", field="args") from e
        spec.id = o.get("id") or ""
        if o:
            _settle_settings(spec, o)
            _settle_options(spec, o)
        return spec

    @overload
    def add(self, c: Client, args: A, **o: Unpack[AddOptions]) -> Handle[R]: ...
    @overload
    def add(self, c: AsyncClient, args: A, **o: Unpack[AddOptions]) -> Coroutine[Any, Any, AsyncHandle[R]]: ...
    def add(self, c: Any, args: A, **o: Any) -> Any:
        """Add a task. It is durable when this returns; an error whose outcome is unknown may have added it."""
        return c._add(self, args, o)

    @overload
    def add_many(self, c: Client, args: Iterable[A], **o: Unpack[AddOptions]) -> list[Handle[R]]: ...
    @overload
    def add_many(
        self, c: AsyncClient, args: Iterable[A], **o: Unpack[AddOptions]
    ) -> Coroutine[Any, Any, list[AsyncHandle[R]]]: ...
    def add_many(self, c: Any, args: Iterable[A], **o: Any) -> Any:
        """Add tasks, each by itself. If some are not added, BatchError says which."""
        return c._add_many(self, args, o)

    @overload
    def add_all(self, c: Client, args: Iterable[A], **o: Unpack[AddOptions]) -> list[Handle[R]]: ...
    @overload
    def add_all(
        self, c: AsyncClient, args: Iterable[A], **o: Unpack[AddOptions]
    ) -> Coroutine[Any, Any, list[AsyncHandle[R]]]: ...
    def add_all(self, c: Any, args: Iterable[A], **o: Any) -> Any:
        """Add up to 512 tasks: all of them, or none."""
        return c._add_all(self, args, o)

    def add_tx(self, tx: Changes, args: A, **o: Unpack[TaskOptions]) -> str:
        """Add a task in a transaction, or as an effect of a handler. It returns the task's id."""
        return tx._create(Prepared(self._spec(args, o)))

    def follow_up(self, args: A, **o: Unpack[TemplateOptions]) -> FollowUp:
        """Say which task of this job a batch makes when it finishes: on_done or on_success of Client.open_batch.

        It has the header millrace-batch with the id of the batch.
        """
        return FollowUp(self, args, o)

    @overload
    def cron(self, c: Client, name: str, schedule: str, args: A, **o: Unpack[CronOptions]) -> CronInfo: ...
    @overload
    def cron(
        self, c: AsyncClient, name: str, schedule: str, args: A, **o: Unpack[CronOptions]
    ) -> Coroutine[Any, Any, CronInfo]: ...
    def cron(self, c: Any, name: str, schedule: str, args: A, **o: Any) -> Any:
        """Make a cron whose tasks are those of this job with args, or replace it. This needs the scope admin.

        The schedule has five fields as in crontab(5), or six with seconds first, or is @every with a duration, @hourly,
        @daily, @weekly, @monthly or @yearly. Client.cron does the rest.
        """
        from .cron import set_cron  # a process that only adds tasks does not need it

        return set_cron(c, self, name, schedule, args, o)


def names_of(field: str, names: Sequence[str]) -> Sequence[str]:
    """Return a list of names. A text is one of characters, which is never meant."""
    if isinstance(names, str):
        raise errors.InvalidArgument(f"{field}: must be a list of names", field=field)
    return names


def _settle_settings(spec: Any, s: Mapping[str, Any]) -> None:
    """Write what a job and a task may set alike."""
    if "attempts" in s:
        spec.max_attempts = s["attempts"]
    if "crashes" in s:
        spec.max_crashes = s["crashes"]
    if "deliveries" in s:
        spec.max_deliveries = s["deliveries"]
    if s.get("lease") is not None:
        wire.set_span(spec.lease, s["lease"])
    if s.get("max_run") is not None:
        wire.set_span(spec.max_run, s["max_run"])
    if s.get("priority") is not None:
        spec.priority = s["priority"]
    if s.get("retry") is not None:
        s["retry"]._write(spec.retry)
    if s.get("limiters"):
        spec.limiters.extend(names_of("limiters", s["limiters"]))


def _settle_options(spec: Any, o: Mapping[str, Any]) -> None:
    """Write what only a task has."""
    for name in o:
        if name not in _KNOWN:
            raise TypeError(f"unknown option {name!r}")
    if o.get("queue"):
        spec.queue = o["queue"]
    if o.get("tag"):
        spec.tag = o["tag"]
    if o.get("key"):
        spec.key = o["key"]
    if o.get("cost"):
        spec.cost = o["cost"]
    if o.get("delay") is not None:
        wire.set_span(spec.delay, o["delay"])
    if o.get("run_at") is not None:
        wire.set_time(spec.run_at, o["run_at"].timestamp())
    if o.get("expires_at") is not None:
        wire.set_time(spec.expires_at, o["expires_at"].timestamp())
    for task in o.get("after") or ():
        (task if isinstance(task, After) else After(task))._write(spec.after.add())
    if o.get("batch"):
        spec.batch = o["batch"] if isinstance(o["batch"], str) else o["batch"].id
    if o.get("on_dep_failure"):
        spec.on_dep_failure = DEP_FAILURES.index(o["on_dep_failure"])
    unique = o.get("unique")
    if isinstance(unique, Unique):
        spec.unique.key = unique.key
        spec.unique.on_conflict = _CONFLICTS.index(unique.on_conflict)
        spec.unique.until = _UNTILS.index(unique.until)
        if unique.ttl is not None:
            wire.set_span(spec.unique.ttl, unique.ttl)
    elif unique:
        spec.unique.key = unique
    for name, value in (o.get("headers") or {}).items():
        spec.headers.add(name=name, value=value)
    for name, value in (o.get("labels") or {}).items():
        spec.labels[name] = value


_KNOWN = AddOptions.__optional_keys__
_CONFLICTS = ("return", "reject", "replace")  # by their numbers, as those of what frees a key
_UNTILS = ("ttl", "start", "terminal")


class _Declare:
    """The decorator that job returns."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self._name = name
        self._settings = settings

    @overload
    def __call__(self, f: Callable[[Task[A], A], Awaitable[R]]) -> Job[A, R]: ...
    @overload
    def __call__(self, f: Callable[[Task[A], A], R]) -> Job[A, R]: ...
    def __call__(self, f: Callable[..., Any]) -> Job[Any, Any]:
        out: Job[Any, Any] = Job(self._name, **self._settings)
        out.function = f
        out._types = _types_of(f, sys._getframe(1).f_locals)
        out.__doc__ = f.__doc__
        return out


def job(
    name: str,
    *,
    queue: str | None = None,
    attempts: int | None = None,
    crashes: int | None = None,
    deliveries: int | None = None,
    lease: float | None = None,
    max_run: float | None = None,
    priority: int | None = None,
    retry: Retry | None = None,
    limiters: Sequence[str] | None = None,
) -> _Declare:
    """Declare a job and its handler, ``def f(t: Task[Args], a: Args) -> Result`` or ``async def``.

    The types of arguments and result are read from the annotations. lease and max_run are seconds. limiters are those
    that each task needs: it runs only while all of them have room for its cost.
    """
    return _Declare(
        name,
        {
            "queue": queue,
            "attempts": attempts,
            "crashes": crashes,
            "deliveries": deliveries,
            "lease": lease,
            "max_run": max_run,
            "priority": priority,
            "retry": retry,
            "limiters": limiters,
        },
    )


def _types_of(f: Callable[..., Any], local: Mapping[str, Any]) -> tuple[Any, Any]:
    """Read the types of a handler's arguments and result."""
    parameters = list(inspect.signature(f).parameters)
    if len(parameters) < 2:
        raise TypeError(f"the handler {f.__name__} must take the task and its arguments: (t, a)")
    # Task is imported for the check of types alone, in many a file.
    from . import task

    try:
        hints = typing.get_type_hints(f, localns={"Task": task.Task, **local}, include_extras=True)
    except NameError as e:
        raise TypeError(f"the annotations of {f.__name__} must be importable at run time: {e}") from e
    return hints.get(parameters[1], Any), hints.get("return", Any)
