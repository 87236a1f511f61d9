"""Programs that the check of types must refuse: each line that ends so is wrong, and no other one is."""

from __future__ import annotations

from typing import TypedDict

import millrace_sdk as mr


class Mail(TypedDict):
    to: str


apart = mr.Job[Mail, int]("apart")


@mr.job("sync")
def sync(t: mr.Task[int], a: int) -> str:
    t.fx.kv(7).add("x")  # wrong
    t.progress("half")  # wrong
    return str(a)


@mr.job("on_loop")
async def on_loop(t: mr.Task[str], a: str) -> float:
    return 1.0


def threads(c: mr.Client) -> None:
    a: str = sync.add(c, 1).wait()
    b: float = on_loop.add(c, "x").wait(5)
    n: list[int] = [h.wait() for h in apart.add_many(c, [{"to": "ada"}])]
    sync.add(c, "text")  # wrong
    on_loop.add(c, 1)  # wrong
    apart.add(c, {"from": "ada"})  # wrong
    x: int = sync.add(c, 1).wait()  # wrong
    sync.add(c, 1, colour="red")  # wrong
    sync.add(c, 1, delay="5m")  # wrong
    sync.add_many(c, 1)  # wrong
    apart.add_tx(c, {"to": "ada"})  # wrong
    tx = c.tx()
    tx.kv("n").put("a", 1, if_rev="3")  # wrong
    r = tx.commit()
    print(r.revs + 1)  # wrong
    print(a, b, n, x)
    name: str = apart.cron(c, "n", "@daily", {"to": "ada"}, zone="UTC", overlap="allow", key="k").name
    apart.cron(c, "n", "@daily", {"from": "ada"})  # wrong
    apart.cron(c, "n", "@daily", {"to": "ada"}, overlap="maybe")  # wrong
    apart.cron(c, "n", "@daily", {"to": "ada"}, delay=5)  # wrong
    version: int = c.queue("q").update(concurrency=3, rate=mr.Rate(10, 60), per_key=None)
    c.queue("q").set(order="random")  # wrong
    c.queue("q").update(colour="red")  # wrong
    for k in c.queue("q").keys(sort="backlog"):
        print(k.ready + 1, name, version)
    used: int = c.limiter("n").set(concurrency=3, rate=mr.Rate(10, 60)).used
    c.limiter("n").set(concurrency="3")  # wrong
    many = c.open_batch(on_done=apart.follow_up({"to": "ada"}, priority=3), labels={"a": "b"})
    state: str = many.seal().state
    sync.add(c, 1, batch=many, limiters=["n"])
    sync.add(c, 1, batch=7)  # wrong
    c.open_batch(on_done=apart)  # wrong
    apart.follow_up({"from": "ada"})  # wrong
    apart.follow_up({"to": "ada"}, delay=5)  # wrong
    mr.Worker(c, [sync], weights={"sync": 3})
    mr.Worker(c, [sync], weights={"sync": "3"})  # wrong
    print(used, state)


async def loops(c: mr.AsyncClient) -> None:
    ok: str = await (await sync.add(c, 1)).wait()
    bad: int = await (await sync.add(c, 1)).wait()  # wrong
    words: str = (await apart.cron(c, "n", "@daily", {"to": "ada"})).words
    await apart.cron(c, "n", "@daily", {"to": "ada"}, end="2030-01-01")  # wrong
    waited: mr.BatchInfo = await (await c.open_batch()).wait(5)
    await (await c.open_batch()).wait("5")  # wrong
    print(ok, bad, words, waited)
