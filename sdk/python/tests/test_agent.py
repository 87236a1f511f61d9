"""The agent: its commands and events, as the runner of the scenarios uses them."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import millrace_sdk as mr
from millrace_sdk.testing import DevServer

AGENT = pathlib.Path(__file__).parent / "agent.py"


class Agent:
    """An agent that runs."""

    def __init__(self, *flags: str) -> None:
        self._p = subprocess.Popen(
            [sys.executable, str(AGENT), *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._n = 0
        self.seen: list[dict[str, Any]] = []

    def send(self, do: str, **fields: Any) -> int:
        self._n += 1
        assert self._p.stdin is not None
        self._p.stdin.write(json.dumps({"i": self._n, "do": do} | fields) + "\n")
        self._p.stdin.flush()
        return self._n

    def until(self, test: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        for line in self.seen:
            if test(line):
                self.seen.remove(line)
                return line
        assert self._p.stdout is not None
        for text in self._p.stdout:
            line = json.loads(text)
            if test(line):
                return line
            self.seen.append(line)
        raise AssertionError(f"the agent ended; it said {self.seen}")

    def answer(self, n: int) -> Any:
        line = self.until(lambda m: m.get("i") == n)
        return line["ok"] if "ok" in line else line["err"]

    def do(self, do: str, **fields: Any) -> Any:
        return self.answer(self.send(do, **fields))

    def event(self, name: str, **fields: Any) -> dict[str, Any]:
        return self.until(lambda m: m.get("event") == name and all(m.get(k) == v for k, v in fields.items()))

    def signal(self, s: int) -> None:
        self._p.send_signal(s)

    def end(self) -> int:
        assert self._p.stdin is not None
        if not self._p.stdin.closed:
            self._p.stdin.close()
        return self._p.wait(30)


def opened(flags: list[str], server: DevServer) -> Iterator[Agent]:
    a = Agent(*flags)
    assert a.do("open", address=server.url, token=server.token) == {}
    yield a
    a._p.kill()
    a.end()


BOTH = pytest.mark.parametrize("flags", [[], ["--async"]], ids=["sync", "async"])


@pytest.fixture
def own(flags: list[str], millrace_server: DevServer) -> Iterator[Agent]:
    """An agent that the test ends."""
    yield from opened(flags, millrace_server)


@pytest.fixture(scope="module", params=[[], ["--async"]], ids=["sync", "async"])
def agent(request: pytest.FixtureRequest, millrace_server: DevServer) -> Iterator[Agent]:
    """An agent of several tests: what takes longest is its start."""
    yield from opened(request.param, millrace_server)


@BOTH
def test_a_worker(own: Agent) -> None:
    agent = own
    job = mr.new_id().lower()
    steps = [{"fx": [{"op": "kv_add", "keyspace": job, "key": "k", "delta": 1}]}, {"gate": "g"}, {"return": "$args"}]
    assert agent.do("worker", jobs=[{"job": job, "handler": steps}], slots=2) == {}
    args = '{"x":9007199254740993}'
    added = agent.do("add", job=job, args=args)
    assert agent.event("begin", id=added["id"]) == {
        "event": "begin", "id": added["id"], "job": job, "attempt": 1, "args": args,
    }  # fmt: skip
    wait = agent.send("wait", id=added["id"])
    agent.do("gate", name="g")
    assert agent.answer(wait) == {"result": args}
    assert agent.event("end")["why"] == "returned"
    assert agent.event("settled")["state"] == "completed"
    assert agent.do("kv_get", keyspace=job, key="k")["value_base64"] == "MQ=="
    assert agent.do("get", id=added["id"])["state"] == "completed"
    assert agent.do("stop") == {}
    assert agent.event("exit") == {"event": "exit"}
    assert agent.do("nonsense")["code"] == "UNSUPPORTED"
    agent.do("close")
    assert agent.end() == 0


def test_handlers(agent: Agent) -> None:
    q = mr.new_id().lower()
    scripts = [
        [{"panic": "exit"}], [{"panic": "stack"}], [{"fail": "m", "code": "oops"}],
        [{"retry_in_ms": 0, "message": "x"}], [{"snooze_ms": 1}], [{"release": True}],
        [{"sleep_ms": 1}, {"block_ms": 1}, {"hold_gil_ms": 1}, {"add": {"job": q + "x", "args": "1"}},
         {"commit": {"ops": [{"op": "kv_put", "keyspace": q, "key": "mid", "value": "1"}]}},
         {"fx": [{"op": "kv_put", "keyspace": q, "key": "mid", "value": "2", "if_absent": True}]},
         {"on_refused": [{"op": "kv_put", "keyspace": q, "key": "other", "value": "3"}]}],
    ]  # fmt: skip
    agent.do("worker", jobs=[{"job": q, "handler": scripts}])
    retry = {"base_ms": 1, "max_ms": 1}
    added = agent.do("add", job=q, attempts=10, retry=retry)
    assert agent.do("wait", id=added["id"]) == {"result": "null"}
    got = agent.do("get", id=added["id"])
    assert (got["attempt"], got["failures"], got["snoozes"]) == (7, 4, 1)
    assert agent.do("kv_get", keyspace=q, key="other")["value_base64"] == "Mw=="
    agent.do("add", job=q + "y", queue=q, args="1")  # a kind that the worker does not know
    assert q + "y" in agent.event("log")["text"]


def test_commits_and_batches(agent: Agent) -> None:
    q = mr.new_id().lower()
    ops = [
        {"op": "kv_put", "keyspace": q, "key": "a", "value": "1"},
        {"op": "kv_add", "keyspace": q, "key": "s", "delta": 2},
        {"op": "task_create", "queue": q, "payload": {"a": 1}, "delay": "1m"},
    ]
    r = agent.do("commit", ops=ops)
    assert r["sums"] == ["", "2", ""] and len(r["ids"]) == 1 and r["revs"][2] == "" and not r["replayed"]
    refused = agent.do("commit", checks=[{"keyspace": q, "key": "a", "compare": "absent"}], ops=ops)
    assert (refused["code"], refused["op"], refused["outcome"]) == ("PRECONDITION_FAILED", -2, "refused")
    r = agent.do("add_many", job=q, args=["1", "2"], ids=[mr.new_id(), mr.new_id()])
    assert r["errors"] == [None, None] and len(r["ids"]) == 2
    assert len(agent.do("add_all", job=q, args=["1", "2"])["ids"]) == 2
    failed = agent.do("wait", id=r["ids"][0], timeout_ms=50)
    assert failed["code"] == "DEADLINE_EXCEEDED"
    assert agent.do("kv_get", keyspace=q, key="none") is None
    agent.do("cancel", id=r["ids"][0])
    failed = agent.do("wait", id=r["ids"][0])
    assert (failed["code"], failed["state"]) == ("TASK_FAILED", "cancelled")
    assert agent.do("bench", what="add", tasks=100, callers=4, queue=q)["tasks"] == 100


def test_forks(agent: Agent) -> None:
    q = mr.new_id().lower()
    agent.do("add", job=q)
    for how in ("os.fork", "fork", "spawn"):
        for client in ("inherited", "new"):
            made = agent.do("fork", how=how, client=client, command={"do": "add", "job": q})
            assert len(made["id"]) == 26, made


@BOTH
def test_signals(own: Agent) -> None:
    agent = own
    q = mr.new_id().lower()
    agent.do("worker", jobs=[{"job": q, "handler": [{"gate": "never"}]}], drain_ms=30_000)
    agent.do("add", job=q)
    agent.event("begin")
    agent.signal(signal.SIGTERM)
    agent.event("stopping")
    agent.signal(signal.SIGTERM)
    assert agent.event("end")["why"] == "stopped"
    assert agent.event("exit") == {"event": "exit"}
    assert agent.end() == 0


MUTANTS = ["forget-held", "drop-settle", "loop-renew", "retry-refused", "new-id", "settle-lost", "no-drain"]

# Each is planted in a process of its own, which has the library from the one that forks.
PLANT = """
import os, sys
import agent, mutants
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            agent.plant(name)
            os._exit(0)
        finally:
            os._exit(1)
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_mutants_begin() -> None:
    a = Agent("--mutant", MUTANTS[0])
    assert a.do("nonsense")["code"] == "UNSUPPORTED"
    assert a.end() == 0
    out = subprocess.run(
        [sys.executable, "-c", PLANT, *MUTANTS], cwd=AGENT.parent, stdout=subprocess.PIPE, check=True, text=True
    )
    assert out.stdout.splitlines() == [f"{name} 0" for name in MUTANTS]
