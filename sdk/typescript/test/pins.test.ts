// Queues that are bounded or ordered as a whole in a namespace of two partitions, by servers whose frames the tests write.
import { afterEach, beforeEach, expect, it } from "vitest";
import { formatId, idIn, parseId, partitionOf, placeOfText, withBits } from "../src/core/place.js";
import { GetQueueRequest, GetQueueResponse } from "../src/gen/millrace/v1/task.js";
import { type Client, job, type MillraceError, Worker } from "../src/index.js";
import { assignment, Fake, type FakeStream } from "./fake.js";

let fake: Fake;
beforeEach(async () => {
	fake = await Fake.start();
});
afterEach(() => fake.close());

const one = job<number, number>("one");
const other = job<number, number>("other");
/** A text of each of the two partitions. */
const tags = [0, 1].map((p) => {
	for (let i = 0; ; i++) if (placeOfText(`t${i}`, 2) === p) return `t${i}`;
});
const key = tags[1]!;
const placeOf = (id: string): number => partitionOf(parseId(id)!);
const pinned = { code: "WRONG_PARTITION", reason: "queue_pinned", details: { partition: "0", queue: "one" } };

/** A client that knows of both partitions, and its streams. */
async function two(): Promise<[Client, FakeStream, FakeStream]> {
	const c = fake.client();
	const first = one.add(c, 1, { tag: key });
	const s = await fake.welcome({ partitions: 2 }, 0);
	const t = await fake.welcome({ partitions: 2 }, 1);
	await created(t);
	await first;
	return [c, s, t];
}

async function created(s: FakeStream): Promise<string[]> {
	const f = await s.next("create");
	const ids = f.tasks.map((t) => t.id);
	s.ack(f.seq, { created: ids.map((id) => ({ id })) });
	return ids;
}

/** Refuses each task of the next frame. */
async function refused(s: FakeStream, error: Record<string, unknown> = pinned): Promise<string[]> {
	const f = await s.next("create");
	const ids = f.tasks.map((t) => t.id);
	s.ack(f.seq, { created: ids.map((id) => ({ id, error })) });
	return ids;
}

const failure = (p: Promise<unknown>): Promise<MillraceError> =>
	p.then(
		() => expect.unreachable(),
		(e) => e,
	);

it("places a task of a pinned queue again, once, and remembers the queue until that is over", async () => {
	const [c, s, t] = await two();
	const p = one.add(c, 1, { key });
	const had = await refused(t);
	const ids = await created(s);
	expect(ids.map(placeOf)).toEqual([0]);
	expect(ids).not.toEqual(had);
	expect((await p).id).toBe(ids[0]);
	const next = failure(one.add(c, 1, { key }));
	await refused(s, { code: "WRONG_PARTITION", field: "key", details: { partition: "1" } });
	expect((await refused(t)).map(placeOf)).toEqual([1]);
	expect(await next).toMatchObject({ code: "WRONG_PARTITION", reason: "queue_pinned", outcome: "refused" });
	expect(s.seen("create")).toBe(0);
});

it("does not place a create again whose answer was lost", async () => {
	const [c, s, t] = await two();
	const p = failure(one.add(c, 1, { key }));
	await t.next("create");
	t.cut();
	await refused(await fake.welcome({ partitions: 2 }, 1));
	expect(await p).toMatchObject({ code: "WRONG_PARTITION", reason: "queue_pinned" });
	expect(s.seen("create")).toBe(0);
});

it("fills in an id that was given again, or leaves it refused", async () => {
	const [c, s, t] = await two();
	const id = formatId(withBits(parseId(idIn(1, 2))!, 0));
	const p = one.add(c, 1, { id });
	expect((await refused(t)).map(placeOf)).toEqual([1]);
	expect(await created(s)).toEqual([id]);
	expect((await p).id).toBe(id);
	const named = idIn(1, 2);
	expect(await failure(one.add(c, 1, { id: named }))).toMatchObject({ code: "WRONG_PARTITION", field: "id" });
	c.hub.pins.clear();
	const stays = failure(one.add(c, 1, { id: named }));
	expect(await refused(t)).toEqual([named]);
	expect(await stays).toMatchObject({ reason: "queue_pinned" });
	const tagged = failure(one.add(c, 1, { tag: key })); // a tag is left to the server
	await refused(t);
	expect(await tagged).toMatchObject({ reason: "queue_pinned" });
	expect(s.seen("create")).toBe(0);
});

it("places the tasks of many again that are refused so", async () => {
	const lines: Record<string, string>[] = [];
	const c = fake.client({ ledger: (line: string) => lines.push(JSON.parse(line)) });
	const calls = [one.addMany(c, [1, 2], { key }), other.addMany(c, [3], { key })];
	const s = await fake.welcome({ partitions: 2 }, 0);
	const t = await fake.welcome({ partitions: 2 }, 1);
	const f = await t.next("create");
	expect(f.tasks.map((x) => x.queue)).toEqual(["one", "one", "other"]);
	t.ack(f.seq, { created: f.tasks.map((x) => (x.queue === "one" ? { error: pinned } : { id: x.id })) });
	const ids = await created(s);
	expect(ids.map(placeOf)).toEqual([0, 0]);
	const [moved, stayed] = await Promise.all(calls);
	expect(moved!.map((h) => h.id)).toEqual(ids);
	expect(stayed!.map((h) => h.id)).toEqual([f.tasks[2]!.id]);
	expect(lines.map((l) => [l.id, l.outcome]).sort()).toEqual([...ids, stayed![0]!.id].map((id) => [id, "ok"]).sort());
});

it.each([true, false])("places a batch that is all or none again: refused as a whole %s", async (whole) => {
	const [c, s, t] = await two();
	const p = one.addAll(c, [1, 2], { key });
	const f = await t.next("create");
	t.ack(f.seq, whole ? { error: pinned } : { created: f.tasks.map(() => ({ error: pinned })) });
	const again = await s.next("create");
	expect([again.atomic, ...again.tasks.map((x) => placeOf(x.id))]).toEqual([true, 0, 0]);
	s.ack(again.seq, { created: again.tasks.map((x) => ({ id: x.id })) });
	expect((await p).map((h) => h.id)).toEqual(again.tasks.map((x) => x.id));
	const next = one.addAll(c, [1, 2]);
	await created(s);
	await next;
});

it("leaves the outcome of a call open that ends after it was placed again", async () => {
	const [c, s, t] = await two();
	const p = failure(one.add(c, 1, { key, timeout: 200 }));
	await refused(t);
	await s.next("create");
	expect(await p).toMatchObject({ code: "DEADLINE_EXCEEDED", outcome: "unknown" });
});

/** Answers what rules queues, and returns which were asked for. Only the queue one is pinned. */
function playQueues(): string[] {
	const asked: string[] = [];
	fake.calls["QueueService/Get"] = (b) => {
		const { queue } = GetQueueRequest.decode(b);
		asked.push(queue);
		return GetQueueResponse.encode(GetQueueResponse.fromPartial({ config: { pinned: queue === "one" } })).finish();
	};
	return asked;
}

async function committed(s: FakeStream): Promise<{ id: string; after: string[] }[]> {
	const f = await s.next("commit");
	const tasks = f.commit!.ops.flatMap((o) => (o.op?.$case === "taskCreate" ? [o.op.value] : []));
	s.ack(f.seq, { commit: { results: tasks.map((x) => ({ task: x.id })) } });
	return tasks.map((x) => ({ id: x.id, after: x.after.map((a) => a.id) }));
}

it.each([true, false])("asks once with a commit whether a queue is pinned: partitions known %s", async (known) => {
	const asked = playQueues();
	const c = known ? undefined : fake.client();
	const [client, s, t] = c ? [c, undefined, undefined] : await two();
	const tx = client.tx();
	const a = one.addTx(tx, 1, { key });
	const b = one.addTx(tx, 2, { after: [a] });
	const early = known ? a.id : "";
	if (known) one.addTx(tx, 3, { after: [early] });
	const done = tx.commit();
	const zero = s ?? (await fake.welcome({ partitions: 2 }, 0));
	const tasks = await committed(zero);
	await done;
	expect(tasks.map((x) => placeOf(x.id))).toEqual(tasks.map(() => 0));
	expect([a.id, b.id]).toEqual(tasks.slice(0, 2).map((x) => x.id));
	expect(a.id).not.toBe(early);
	expect(tasks.slice(1).map((x) => x.after)).toEqual(tasks.slice(1).map(() => [a.id]));
	let away = t;
	for (let i = 0; i < 2; i++) {
		const next = client.tx();
		const h = other.addTx(next, 1, { key });
		const { id } = h;
		const over = next.commit();
		away ??= await fake.welcome({ partitions: 2 }, 1);
		await committed(away);
		await over;
		expect([placeOf(id), h.id]).toEqual([1, id]);
	}
	expect(asked).toEqual(["one", "other"]);
});

it.each(["NOT_FOUND", "PERMISSION_DENIED"])("takes a queue for not pinned that it cannot read: %s", async (code) => {
	const [c, , t] = await two();
	let asked = 0;
	fake.onCall = () => {
		asked++;
		return { fields: { code }, status: 5 };
	};
	for (let i = 0; i < 2; i++) {
		const tx = c.tx();
		one.addTx(tx, 1, { key });
		const done = tx.commit();
		expect((await committed(t)).map((x) => placeOf(x.id))).toEqual([1]);
		await done;
	}
	const tx = c.tx();
	other.addTx(tx, 1, { tag: key }); // it is where its tag says, whatever its queue is
	const done = tx.commit();
	await committed(t);
	await done;
	expect(asked).toBe(1);
});

it("places the first commit of a client whose tasks wait for each other", async () => {
	playQueues();
	const tx = fake.client().tx();
	const a = other.addTx(tx, 1);
	const b = other.addTx(tx, 2, { after: [a] });
	tx.kv("k").put(`{${key}}`, "v");
	const done = tx.commit();
	await fake.welcome({ partitions: 2 }, 0);
	const tasks = await committed(await fake.welcome({ partitions: 2 }, 1));
	await done;
	expect(tasks).toEqual([
		{ id: a.id, after: [] },
		{ id: b.id, after: [a.id] },
	]);
	expect(tasks.map((x) => placeOf(x.id))).toEqual([1, 1]);
});

it("asks nothing in a namespace of one partition", async () => {
	const asked = playQueues();
	const tx = fake.client().tx();
	one.addTx(tx, 1);
	const done = tx.commit();
	await committed(await fake.welcome());
	await done;
	expect(asked).toEqual([]);
});

it("sends a commit whose queue it could not ask for as it is, and asks with the next one", async () => {
	const [c, , t] = await two();
	fake.onCall = () => ({ fields: { code: "INTERNAL" }, status: 13 });
	for (let i = 0; i < 2; i++) {
		const tx = c.tx();
		const { id } = one.addTx(tx, 1, { key });
		const done = tx.commit();
		expect((await committed(t)).map((x) => x.id)).toEqual([id]);
		await done;
		expect(c.hub.pins.has("one")).toBe(false);
	}
});

it("places effects by what the client knows of queues", async () => {
	const c = fake.client();
	const child = job<number, number>("child");
	c.hub.pins.set("child", true);
	const made: string[] = [];
	const handler = one.handle((t, n) => {
		made.push(child.addTx(t.fx, 1, { key }).id);
		return n;
	});
	const w = new Worker(c, [handler], { slots: 4 });
	const over = w.run({ signals: false });
	const s = await fake.welcome({ partitions: 2 }, 0);
	const t = await fake.welcome({ partitions: 2 }, 1);
	s.send("assign", { sub: 1, tasks: [assignment(idIn(0, 2))] });
	const settle = await s.next("settle");
	const op = settle.items[0]!.effects!.ops[0]!.op;
	expect(op?.$case === "taskCreate" && op.value.id).toBe(made[0]);
	expect(placeOf(made[0]!)).toBe(0);
	s.ack(settle.seq, { settled: [{}] });
	t.send("assign", { sub: 1, tasks: [assignment(idIn(1, 2))] });
	const failed = await t.next("settle");
	const { outcome } = failed.items[0]!;
	expect(outcome?.$case === "fail" && outcome.value.error?.code).toBe("WRONG_PARTITION");
	t.ack(failed.seq, { settled: [{}] });
	const stopped = w.stop();
	for (const x of [s, t]) {
		await x.next("drain");
		x.end();
	}
	await stopped;
	await over;
});
