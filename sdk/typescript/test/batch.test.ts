// Limiters, batches and weights, by both transports against a real server.
import { execFileSync } from "node:child_process";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { placeOfId, placeOfText } from "../src/core/place.js";
import {
	type Binding,
	Client,
	type ClientOptions,
	job,
	newId,
	type Tx,
	Worker,
	type WorkerOptions,
} from "../src/index.js";
import { type DevServer, devServer, Recorder, runHandler } from "../src/testing.js";

const binary = process.env.MILLRACE_BIN;
let server: DevServer;
const closers: (() => unknown)[] = [];
beforeAll(async () => {
	if (binary) server = await devServer({ binary, http: true });
});
afterEach(async () => {
	for (const c of closers.splice(0).reverse()) await c();
});
afterAll(() => server?.stop());

async function all<T>(list: AsyncIterable<T>): Promise<T[]> {
	const out: T[] = [];
	for await (const v of list) out.push(v);
	return out;
}

/** Runs a worker until the end of the test. */
function work(c: Client, bindings: Binding[], o: WorkerOptions = {}): void {
	const w = new Worker(c, bindings, o);
	const over = w.run({ signals: false });
	closers.push(async () => {
		await w.stop();
		await over;
	});
}

async function until(done: () => Promise<boolean>): Promise<void> {
	while (!(await done())) await new Promise((r) => setTimeout(r, 20));
}

const skip = "(skipped where MILLRACE_BIN names no server)";

describe.skipIf(!binary).each(["stream", "rest"] as const)(`by %s ${skip}`, (way) => {
	function client(namespace = `batch-${newId().toLowerCase()}`): Client {
		const o: ClientOptions = { url: server.url, restUrl: server.http, token: server.token, transport: way };
		const c = new Client({ ...o, namespace });
		closers.push(() => c.close());
		return c;
	}

	it("bounds the tasks of two jobs by a limiter", async () => {
		const c = client();
		const api = c.limiter("api");
		const settings = { concurrency: 1, rate: { limit: 1000, per: "1s", burst: 10 } } as const;
		expect(await api.set(settings, { ifVersion: 0 })).toEqual({
			name: "api",
			concurrency: 1,
			rate: { limit: 1000, per: 1000, burst: 10 },
			version: 1n,
			used: 0,
			tasks: 0,
			until: undefined,
			heldBy: [],
			queues: [],
		});
		await expect(api.set(settings, { ifVersion: 0 })).rejects.toMatchObject({ code: "PRECONDITION_FAILED" });
		const mail = job<number, number>("mail", { limiters: ["api"] });
		const push = job<number, number>("push");
		let open = (): void => {};
		const gate = new Promise<void>((resolve) => {
			open = resolve;
		});
		const hold = async (_: unknown, n: number): Promise<number> => {
			await gate;
			return n;
		};
		work(c, [mail.handle(hold)]);
		const first = await mail.add(c, 1);
		await until(async () => (await api.get()).used === 1);
		const second = await push.add(c, 2, { limiters: ["api"], cost: 2 });
		expect((await c.task(second.id)).limiters).toEqual(["api"]);
		await expect(push.add(c, 3, { limiters: ["nope"] })).rejects.toMatchObject({ code: "NOT_FOUND" });
		await c.queue("web").set({ limiters: ["api"] });
		expect((await c.queue("web").config()).limiters).toEqual(["api"]);
		const heldBy = [{ task: first.id, queue: "mail" }];
		expect(await api.get()).toMatchObject({ used: 1, tasks: 2, queues: ["web"], heldBy });
		work(c, [push.handle(hold)]);
		const free = await push.add(c, 4);
		await until(async () => (await c.task(free.id)).state === "running");
		expect((await c.task(second.id)).state).toBe("ready"); // the limiter is full
		open();
		expect([await first.wait(), await second.wait(), await free.wait()]).toEqual([1, 2, 4]);
		await expect(api.delete()).rejects.toMatchObject({ code: "WRONG_STATE" });
		await c.queue("web").update({ limiters: null });
		expect((await c.queue("web").config()).limiters).toBeUndefined();
		await c.limiter("free").set({});
		expect((await all(c.limiters())).map((l) => [l.name, l.concurrency])).toEqual([
			["api", 1],
			["free", undefined],
		]);
		expect((await all(c.limiters({ prefix: "f" }))).map((l) => l.name)).toEqual(["free"]);
		await expect(c.limiter("free").delete({ ifVersion: 7 })).rejects.toMatchObject({ code: "PRECONDITION_FAILED" });
		await c.limiter("free").delete();
		await api.delete({ ifVersion: 1n });
		await expect(api.get()).rejects.toMatchObject({ code: "NOT_FOUND" });
		await expect(api.set({ concurrency: -1 })).rejects.toMatchObject({ field: "config.concurrency" });
		await expect(push.add(c, 5, { limiters: "api" as never })).rejects.toMatchObject({ field: "limiters" });
	});

	it("fills, seals and waits for a batch", async () => {
		const c = client();
		const part = job<number, number>("part");
		const whole = job<string, string>("whole");
		const b = await c.openBatch({
			onDone: whole.followUp("done"),
			onSuccess: whole.followUp("success", { priority: 3 }),
			labels: { env: "test" },
		});
		const opened = await b.get();
		expect(opened).toMatchObject({ state: "open", onDone: "whole", onSuccess: "whole", labels: { env: "test" } });
		expect([b.replayed, opened.sealedAt, opened.cancel, opened.refused]).toEqual([false, ...Array(3).fill(undefined)]);
		const h = await part.add(c, 0, { batch: b });
		await part.addMany(c, [1, 2], { batch: b.id });
		await part.addAll(c, [3, 4], { batch: opened });
		const tx = c.tx();
		part.addTx(tx, 5, { batch: b });
		await tx.commit();
		expect((await c.task(h.id)).batch).toBe(b.id);
		expect((await c.countBulk("cancel", { batch: b.id })).count).toBe(6);
		const counts = { total: 6, waiting: 6, running: 0, completed: 0, dead: 0, cancelled: 0 };
		expect(await b.seal()).toMatchObject({ state: "sealed", replayed: false, counts });
		expect((await c.batch(b.id).seal()).replayed).toBe(true);
		await expect(part.add(c, 6, { batch: b })).rejects.toMatchObject({ code: "WRONG_STATE", reason: "batch_closed" });
		await expect(part.add(c, 6, { batch: newId() })).rejects.toMatchObject({ code: "NOT_FOUND" });
		await expect(b.wait({ timeout: 100 })).rejects.toMatchObject({ code: "DEADLINE_EXCEEDED", outcome: "refused" });
		await expect(b.wait({ signal: AbortSignal.timeout(100) })).rejects.toMatchObject({ code: "DEADLINE_EXCEEDED" });
		const waited = b.wait();
		work(c, [part.handle((_, n) => n)]);
		const done = await waited;
		expect(done).toMatchObject({ state: "finished", counts: { ...counts, waiting: 0, completed: 6 } });
		expect(done.finishedAt).toBeInstanceOf(Date);
		work(c, [whole.handle((t, s) => `${s} of ${t.headers["millrace-batch"]}`)]);
		expect(await whole.of(c, done.doneTask).wait()).toBe(`done of ${b.id}`);
		expect(await whole.of(c, done.successTask).wait()).toBe(`success of ${b.id}`);
		expect((await c.task(done.successTask)).priority).toBe(3);
	});

	it("opens a batch again, cancels it, and lists batches", async () => {
		const c = client();
		const id = newId();
		const late = job<number, number>("late");
		expect([(await c.openBatch({ id })).replayed, (await c.openBatch({ id })).replayed]).toEqual([false, true]);
		await expect(c.openBatch({ id, labels: { a: "b" } })).rejects.toMatchObject({ code: "ALREADY_EXISTS" });
		await late.add(c, 1, { batch: id, delay: "1h" });
		const b = c.batch(id);
		expect((await b.cancel({ reason: "wrong", rate: 500 })).cancel).toMatchObject({ reason: "wrong" });
		expect((await b.wait()).counts).toMatchObject({ total: 1, cancelled: 1 });
		expect((await b.cancel({ reason: "again" })).replayed).toBe(true);
		const ended = await c.openBatch();
		expect((await ended.seal()).state).toBe("finished");
		await expect(ended.cancel()).rejects.toMatchObject({ code: "WRONG_STATE" });
		const other = await c.openBatch({ tag: "t", timeout: "10s" });
		expect(new Set((await all(c.batches())).map((one) => one.id))).toEqual(new Set([id, ended.id, other.id]));
		expect(["cancelling", "finished"]).toContain((await other.cancel({ force: true })).state);
		const missing = c.batch(newId());
		for (const ask of [() => missing.get(), () => missing.seal(), () => missing.cancel(), () => missing.wait()])
			await expect(ask()).rejects.toMatchObject({ code: "NOT_FOUND" });
		await expect(c.openBatch({ id, tag: "t" })).rejects.toMatchObject({ field: "id" });
		await expect(b.cancel({ rate: 0 })).rejects.toMatchObject({ field: "rate" });
		for (const [name, wrong] of [
			["onDone", { delay: 5 }],
			["onSuccess", { batch: id }],
		] as const) {
			const field = `${name === "onDone" ? "on_done" : "on_success"}.${Object.keys(wrong)[0]}`;
			const followUp = late.followUp(1, wrong as never);
			await expect(c.openBatch({ [name]: followUp })).rejects.toMatchObject({ code: "INVALID_ARGUMENT", field });
		}
	});

	it("opens, fills and seals batches in commits and completions", async () => {
		const c = client();
		const part = job<number, number>("split");
		const found = job<number, number>("found");
		const tx = c.tx();
		const whole = await tx.openBatch({ onDone: found.followUp(9), labels: { env: "test" } });
		const h = part.addTx(tx, 1, { batch: whole });
		tx.sealBatch(whole);
		await tx.commit();
		const counts = { total: 1, waiting: 1 };
		expect(await c.batch(whole).get()).toMatchObject({
			state: "sealed",
			counts,
			onDone: "found",
			labels: { env: "test" },
		});
		let made = "";
		work(c, [
			part.handle(async (t, n) => {
				made = await t.fx.openBatch();
				found.addTx(t.fx, n, { batch: made, delay: "1h" });
				t.fx.sealBatch(made);
				return n;
			}),
		]);
		expect(await part.of(c, h.id).wait()).toBe(1);
		expect((await c.batch(whole).wait()).doneTask).not.toBe("");
		expect(await c.batch(made).get()).toMatchObject({ state: "sealed", counts });
		const end = c.tx();
		end.cancelBatch(made, { reason: "wrong", rate: 500 });
		await end.commit();
		const over = { cancel: { reason: "wrong" }, counts: { total: 1, cancelled: 1 } };
		expect(await c.batch(made).wait()).toMatchObject(over);

		// What is refused changes nothing.
		const open = await c.openBatch();
		for (const [wrong, want] of [
			[(t: Tx) => t.sealBatch(newId()), { code: "NOT_FOUND", op: 1 }],
			[(t: Tx) => part.addTx(t, 1, { batch: open }), { code: "WRONG_STATE", op: 1 }],
			[(t: Tx) => t.openBatch({ id: open.id, onDone: part.followUp(1) }), { code: "ALREADY_EXISTS", op: 1 }],
		] as const) {
			const t = c.tx();
			t.sealBatch(open.id);
			await wrong(t);
			await expect(t.commit()).rejects.toMatchObject({ ...want, outcome: "refused" });
		}
		expect((await open.get()).state).toBe("open");
		await expect(c.tx().openBatch({ id: open.id, tag: "t" })).rejects.toMatchObject({ field: "id" });
		await expect(c.tx().openBatch({ onDone: part.followUp(1, { delay: 5 } as never) })).rejects.toMatchObject({
			field: "on_done.delay",
		});
		expect(() => c.tx().cancelBatch(open.id, { rate: 0 })).toThrow(expect.objectContaining({ field: "rate" }));
	});

	it("opens a batch where the commit is", async () => {
		const namespace = `home-${way}`;
		const at = ["--server", server.url, "--token", server.token];
		execFileSync(binary!, ["namespace", "create", namespace, "--partitions", "4", ...at]);
		const tag = (p: number): string => {
			for (let i = 0; ; i++) if (placeOfText(`t/${i}`, 4) === p) return `t/${i}`;
		};
		const n = job<number, number>("n");
		const bounded = job<number, number>("bounded");
		const first = client(namespace).tx(); // by a client that has not reached its server
		expect(placeOfId(await first.openBatch({ tag: tag(3) }), 4)).toBe(3);
		await first.commit();
		const c = client(namespace);
		await c.queue("bounded").set({ concurrency: 1 });
		for (let p = 0; p < 4; p++) {
			const tx = c.tx();
			tx.kv("k").deleteRange({ all: true }); // says no partition
			tx.kv("k").put(`a{${tag(p)}}`, "1");
			const id = await tx.openBatch();
			const h = n.addTx(tx, p, { batch: id });
			tx.sealBatch(id);
			expect([id, h.id].map((one) => placeOfId(one, 4))).toEqual([p, p]);
			tx.ops.shift();
			await tx.commit();
			const checked = c.tx();
			checked.kv("k").check(`a{${tag(p)}}`, { exists: true });
			expect(placeOfId(await checked.openBatch(), 4)).toBe(p);
			await checked.commit();
		}
		const free = new Set<number>();
		for (let i = 0; i < 16; i++) {
			const tx = c.tx();
			free.add(placeOfId(await tx.openBatch(), 4));
			await tx.commit();
		}
		expect(free.size).toBe(4);
		for (let i = 0; i < 4; i++) {
			const tx = client(namespace).tx();
			expect(placeOfId(await tx.openBatch({ onDone: bounded.followUp(1) }), 4)).toBe(0);
			await tx.commit();
		}
		const astray = c.tx();
		astray.kv("k").put(`a{${tag(1)}}`, "1");
		await astray.openBatch({ tag: tag(2) });
		await expect(astray.commit()).rejects.toMatchObject({ code: "WRONG_PARTITION", op: 1 });
	});

	it("has a batch of several partitions in one of them", async () => {
		const namespace = `wide-${way}`;
		const at = ["--server", server.url, "--token", server.token];
		execFileSync(binary!, ["namespace", "create", namespace, "--partitions", "4", ...at]);
		const tag = (p: number): string => {
			for (let i = 0; ; i++) if (placeOfText(`t/${i}`, 4) === p) return `t/${i}`;
		};
		const narrow = job<number, number>("narrow");
		const c = client(namespace);
		for (let p = 0; p < 4; p++) {
			const b = await c.openBatch({ tag: tag(p) }); // the first one by a client that has not reached its server
			const many = Array.from({ length: 40 }, (_, i) => i);
			const handles = [
				...(await narrow.addMany(c, many, { batch: b })),
				...(await narrow.addAll(c, [1, 2], { batch: b })),
				await narrow.add(c, 3, { batch: b, tag: tag(p) }),
			];
			const tx = c.tx();
			handles.push(narrow.addTx(tx, 4, { batch: b }));
			await tx.commit();
			expect(new Set([b.id, ...handles.map((h) => h.id)].map((id) => placeOfId(id, 4)))).toEqual(new Set([p]));
			const wrong = { code: "WRONG_PARTITION", outcome: "refused" };
			await expect(narrow.add(c, 5, { batch: b, tag: tag((p + 1) % 4) })).rejects.toMatchObject(wrong);
			expect((await b.seal()).counts.total).toBe(44);
		}
		const homes = new Set<number>();
		for (let i = 0; i < 16; i++) homes.add(placeOfId((await c.openBatch()).id, 4));
		expect(homes.size).toBe(4);
		expect(await all(c.batches())).toHaveLength(20);
	});

	it("serves queues in order", async () => {
		const c = client();
		const last = job<number, void>("last");
		const first = job<number, void>("first");
		const seen: number[] = [];
		const see = (_: unknown, n: number): void => void seen.push(n);
		const h = await last.add(c, 9);
		await first.addMany(c, [1, 2, 3]);
		work(c, [first.handle(see), last.handle(see)], { slots: 1, inOrder: true }); // the order of the jobs
		await h.wait();
		expect(seen).toEqual([1, 2, 3, 9]);
	});

	it("refuses weights that mean nothing", () => {
		const c = client();
		const n = job<number, number>("n").handle((_, a) => a);
		for (const o of [
			{ weights: { other: 2 } },
			{ weights: { n: 0 } },
			{ weights: { n: 1001 } },
			{ weights: { n: 2 }, inOrder: true },
		])
			expect(() => new Worker(c, [n], o)).toThrow(expect.objectContaining({ field: "weights" }));
	});
});

it.skipIf(!binary)(`serves queues by their weights ${skip}`, async () => {
	const c = new Client({ url: server.url, token: server.token, namespace: "weights", transport: "stream" });
	closers.push(() => c.close());
	const slow = job<number, void>("slow");
	const fast = job<number, void>("fast");
	const seen: string[] = [];
	const see = (t: { kind: string }): void => void seen.push(t.kind);
	const ends = [...(await slow.addMany(c, [1, 2, 3])), ...(await fast.addMany(c, [1, 2, 3, 4, 5, 6, 7, 8, 9]))];
	work(c, [slow.handle(see), fast.handle(see)], { slots: 1, weights: { fast: 3 } });
	await Promise.all(ends.map((h) => h.wait()));
	const at = seen.flatMap((kind, i) => (kind === "slow" ? [i] : []));
	// Three of the one for each of the other, but for what a division leaves over. In turn it would be one.
	const between = at.slice(1).map((i, n) => i - at[n]! - 1);
	expect(between.every((n) => n === 3 || n === 4)).toBe(true);
});

it("has neither limiters nor batches in a Recorder", async () => {
	const c = new Recorder();
	const reason = { code: "INVALID_ARGUMENT", reason: "recorder" };
	await expect(c.openBatch()).rejects.toMatchObject(reason);
	await expect(c.batch(newId()).wait()).rejects.toMatchObject(reason);
	await expect(all(c.batches())).rejects.toMatchObject(reason);
	await expect(c.limiter("n").set({ concurrency: 1 })).rejects.toMatchObject(reason);
	await expect(all(c.limiters())).rejects.toMatchObject(reason);
});

it("shows limiters and the batch of a task among effects", async () => {
	const j = job<number, number>("n", { limiters: ["a"] });
	const id = newId();
	const made = await runHandler(
		j.handle((t, n) => {
			j.addTx(t.fx, n, { limiters: ["b"], batch: id });
			return n;
		}),
		1,
	);
	expect(made.effects[0]).toMatchObject({ limiters: ["a", "b"], batch: id });
});
