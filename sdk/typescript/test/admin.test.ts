// Crons, and what rules queues and their keys, by both transports against a real server.
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Client, type ClientOptions, job, newId, type QueueSettings, Worker } from "../src/index.js";
import { methods } from "../src/methods.js";
import { type DevServer, devServer, Recorder } from "../src/testing.js";

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

const later = new Date("2035-01-01T00:00:00Z");

async function all<T>(list: AsyncIterable<T>): Promise<T[]> {
	const out: T[] = [];
	for await (const v of list) out.push(v);
	return out;
}

describe.skipIf(!binary).each(["stream", "rest"] as const)(
	"by %s (skipped where MILLRACE_BIN names no server)",
	(way) => {
		function client(): Client {
			const o: ClientOptions = { url: server.url, restUrl: server.http, token: server.token, transport: way };
			const c = new Client({ ...o, namespace: `admin-${newId().toLowerCase()}` });
			closers.push(() => c.close());
			return c;
		}

		it("sets, runs, pauses, lists and removes a cron", async () => {
			const c = client();
			const report = job<{ of: string }, void>("report", { queue: "reports", attempts: 2 });
			const o = {
				zone: "Europe/Berlin",
				start: later,
				overlap: "queue_one",
				catchUp: "all",
				jitter: "90s",
				key: "ann",
				cost: 3,
				priority: 4,
				labels: { team: "red" },
				headers: { a: "b" },
			} as const;
			const set = (more = {}) => report.cron(c, "nightly", "0 2 * * *", { of: "yesterday" }, { ...o, ...more });
			const made = await set({ ifVersion: 0 });
			expect(made).toMatchObject({
				...o,
				jitter: 90_000,
				name: "nightly",
				schedule: "0 2 * * *",
				words: "at 02:00 every day",
				end: undefined,
				paused: false,
				queue: "reports",
				kind: "report",
				version: 1n,
				nextAt: new Date("2035-01-01T01:00:00Z"),
				lastRun: undefined,
			});
			expect(made.payload.toString()).toBe('{"of":"yesterday"}');
			expect((await set()).version).toBe(1n);
			await expect(set({ ifVersion: 0 })).rejects.toMatchObject({ code: "PRECONDITION_FAILED" });
			const cron = c.cron("nightly");
			const run = await cron.trigger();
			expect(run).toMatchObject({ number: 1, outcome: "started", byHand: true, state: "ready" });
			expect(await c.task(run.task)).toMatchObject({ key: "ann", cost: 3, priority: 4 });
			expect(await cron.trigger({ id: newId() })).toMatchObject({ number: 2, outcome: "waiting", state: "" });
			expect((await cron.runs()).map((r) => r.outcome)).toEqual(["waiting", "started"]);
			expect([await cron.pause(), await cron.pause(), (await cron.get()).paused]).toEqual([false, true, true]);
			expect([await cron.resume(), await cron.resume(), (await cron.get()).paused]).toEqual([false, true, false]);
			await report.cron(c, "other", "@hourly", { of: "now" });
			expect((await all(c.crons())).map((one) => one.name)).toEqual(["nightly", "other"]);
			expect((await all(c.crons({ prefix: "n" }))).map((one) => one.name)).toEqual(["nightly"]);
			await expect(cron.delete({ ifVersion: 1 })).rejects.toMatchObject({ code: "PRECONDITION_FAILED" });
			await cron.delete();
			for (const word of ["get", "runs", "pause", "trigger", "delete"] as const) {
				await expect(cron[word]()).rejects.toMatchObject({ code: "NOT_FOUND" });
			}
		});

		it("previews a schedule with the offsets of its zone", async () => {
			const p = await client().previewCron("30 2 * * *", {
				zone: "Europe/Berlin",
				count: 2,
				after: new Date("2027-03-27T12:00:00Z"),
			});
			expect(p.words).toBe("at 02:30 every day");
			// 02:30 is skipped on the 28th.
			expect(p.times).toEqual(["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"]);
			expect(p.changes.slice(0, 2).map((d) => d.by)).toEqual([3_600_000, -3_600_000]);
			expect(p.changes[0]!.slots).toEqual(p.times.slice(0, 1));
		});

		it("refuses what no cron can have", async () => {
			const c = client();
			const j = job<number, void>("n");
			for (const [field, value] of Object.entries({ id: newId(), delay: 5, unique: "k", after: [newId()] })) {
				await expect(j.cron(c, "n", "@daily", 1, { [field]: value })).rejects.toMatchObject({
					code: "INVALID_ARGUMENT",
					field: `template.${field}`,
				});
			}
			const bad = { overlap: "maybe" } as never;
			await expect(j.cron(c, "n", "@daily", 1, bad)).rejects.toMatchObject({ field: "overlap" });
			await expect(j.cron(c, "n", "0 0 31 2 *", 1)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
			expect(await all(c.crons())).toEqual([]);
		});

		it("sets, updates and reads what rules a queue", async () => {
			const c = client();
			const q = c.queue("q");
			await expect(q.config()).rejects.toMatchObject({ code: "NOT_FOUND" });
			const everything: Required<QueueSettings> = {
				attempts: 7,
				crashes: 3,
				deliveries: 0,
				lease: 20_000,
				maxRun: 3_600_000,
				retry: { base: 1000, max: 60_000, factor: 3, backoff: "equalJitter" },
				maxPayload: 1000,
				aging: 0,
				retainCompleted: 0,
				retainCancelled: 10_000,
				retainDead: 20_000,
				cancelGrace: 5000,
				defaultTtl: 600_000,
				maxTasks: 100,
				maxBytes: 100_000,
				ceilings: { attempts: 9, crashes: 8, deliveries: 7, lease: 30_000, maxRun: 60_000, priority: 5 },
				fairness: "none",
				order: "strict",
				concurrency: 4,
				rate: { limit: 10, per: 60_000, burst: 2 },
				perKey: { concurrency: 1, rate: { limit: 5, per: 500 } },
				maxWorkers: 2,
				deadLetter: "dead",
				limiters: ["api"],
			};
			await c.limiter("api").set({});
			expect(await q.set(everything)).toBe(1n);
			expect(await q.config()).toEqual({ ...everything, version: 1n });
			// An update keeps what it does not name, and null is the default.
			expect(await q.update({ concurrency: 5, rate: null, order: null })).toBe(2n);
			const { rate: _, ...rest } = everything;
			expect(await q.config()).toEqual({ ...rest, concurrency: 5, order: "fifo", version: 2n });
			expect(await q.update({ concurrency: 5 })).toBe(2n); // it is as it was
			// What is set again has defaults for all that is not named.
			expect(await q.set({ lease: "10s" }, { ifVersion: 2 })).toBe(3n);
			expect(await q.config()).toEqual({ lease: 10_000, fairness: "lanes", order: "fifo", version: 3n });
			await expect(q.set({}, { ifVersion: 2n })).rejects.toMatchObject({ code: "PRECONDITION_FAILED" });
			await expect(q.update({ maxWorkers: -1 })).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
			await expect(q.update({ concurrency: 1.5 })).rejects.toMatchObject({ field: "concurrency" });
			await expect(q.update({ order: "random" as never })).rejects.toMatchObject({ field: "order" });
			await q.delete({ ifVersion: 3n });
			expect(await q.update({ maxTasks: 3 })).toBe(1n); // one that is not there is made
		});

		it("begins an update again when somebody else was faster", async () => {
			const c = client();
			const q = c.queue("q");
			await q.set({ concurrency: 3 });
			const call = c.engine.call.bind(c.engine);
			let reads = 0;
			c.engine.call = async (method, request, o) => {
				const r = await call(method, request, o);
				if ((method as unknown) === methods.getQueue && ++reads === 1) await c.queue("q").update({ maxWorkers: 9 });
				return r;
			};
			expect(await q.update({ concurrency: 4 })).toBe(3n);
			expect(await q.config()).toMatchObject({ concurrency: 4, maxWorkers: 9 });
		});

		it("lists, limits and pauses keys", async () => {
			const c = client();
			const build = job<number, number>("build");
			const q = c.queue("build");
			await q.set({ perKey: { concurrency: 1 } });
			for (const key of ["app", "app", "web"]) await build.add(c, 1, { key });
			let open = (): void => {};
			const gate = new Promise<void>((resolve) => {
				open = resolve;
			});
			let begun = 0;
			const w = new Worker(c, [build.handle(() => gate.then(() => ++begun))], { slots: 8 });
			const over = w.run({ signals: false });
			while ((await q.stats()).running < 2) await new Promise((r) => setTimeout(r, 10));
			expect(await all(q.keys({ sort: "backlog" }))).toMatchObject([
				{ key: "app", tasks: 2, ready: 1, running: 1, weight: 1, concurrency: undefined, waitsFor: "concurrency" },
				{ key: "web", ready: 0, running: 1, waitsFor: "", paused: undefined },
			]);
			const limits = { weight: 3, concurrency: 2, rate: { limit: 5, per: "1m", burst: 2 } } as const;
			expect([await q.setKey("app", limits), await q.setKey("app", limits)]).toEqual([false, true]);
			expect(await q.pauseKey("web", { reason: "their server is down", until: later })).toBe(false);
			expect(await all(q.keys())).toMatchObject([
				{ key: "app", weight: 3, concurrency: 2, rate: { limit: 5, per: 60_000, burst: 2 } },
				{ key: "web", paused: { reason: "their server is down", until: later } },
			]);
			expect([await q.resumeKey("web"), await q.resumeKey("web")]).toEqual([false, true]);
			open();
			expect(await all(q.keys({ prefix: "ap" }))).toMatchObject([{ key: "app" }]);
			await w.stop();
			await over;
		});

		it("pauses, lists and removes queues", async () => {
			const c = client();
			await job<number, number>("a").add(c, 1);
			await c.queue("b").set({});
			const q = c.queue("a");
			const o = { reason: "deploy", until: later };
			expect([await q.pause(o), await q.pause(o)]).toEqual([false, true]);
			expect(await q.stats()).toMatchObject({ ready: 1, paused: { reason: "deploy", until: later } });
			expect((await all(c.queues())).map((s) => s.queue)).toEqual(["a", "b"]);
			expect((await all(c.queues({ prefix: "a", sort: "ready", only: "paused" }))).map((s) => s.queue)).toEqual(["a"]);
			expect([await q.resume(), await q.resume()]).toEqual([false, true]);
			await expect(q.pause({ for: "1m", until: later })).rejects.toMatchObject({ field: "for" });
			await expect(q.delete()).rejects.toMatchObject({ code: "WRONG_STATE" });
			await q.delete({ purge: true });
			expect((await all(c.queues())).map((s) => s.queue)).toEqual(["b"]);
		});

		it("counts, begins, follows and stops bulk jobs", async () => {
			const c = client();
			const j = job<number, number>("n", { queue: "q" });
			const gone = await j.add(c, 1, { labels: { customer: "7" } });
			await j.add(c, 2, { labels: { customer: "8" } });
			const o = { queue: "q", labels: { customer: "7" } };
			const old = new Date("2020-01-01T00:00:00Z");
			const found = await c.countBulk("cancel", { ...o, createdFrom: old });
			expect(found).toMatchObject({ count: 1, exact: true, sample: [{ id: gone.id, key: "" }] });
			expect((await c.countBulk("cancel", { queue: "q", state: "ready", createdTo: old })).count).toBe(0);
			const id = newId();
			const started = await c.startBulk("cancel", { ...o, id, reason: "left", rate: 500 });
			expect(started).toMatchObject({ id, action: "cancel", reason: "left", rate: 500 });
			expect((await c.startBulk("cancel", { ...o, id, reason: "left", rate: 500 })).id).toBe(id);
			const ended = async (job: string) => {
				for (;;) {
					const got = await c.bulk(job).get();
					if (got.state !== "running") return got;
					await new Promise((r) => setTimeout(r, 20));
				}
			};
			expect(await ended(id)).toMatchObject({ state: "done", matched: 1, done: 1, refused: {}, eta: undefined });
			expect((await c.task(gone.id)).state).toBe("cancelled");
			expect(await c.bulk(id).stop()).toBe(true);
			expect((await c.bulks()).map((b) => b.id)).toEqual([id]);
			await c.queue("again").set({});
			const retried = await c.startBulk("retry", { queue: "q", toQueue: "again", patch: { n: null } });
			expect((await ended(retried.id)).done).toBe(1);
			expect((await c.task(gone.id)).queue).toBe("again");
			expect((await c.queue("again").redrive({ kind: "n" })).action).toBe("retry");
			await expect(c.startBulk("explode" as never)).rejects.toMatchObject({ field: "action" });
			await expect(c.startBulk("cancel", { state: "sleepy" })).rejects.toMatchObject({ field: "filter.state" });
			await expect(c.bulk(newId()).get()).rejects.toMatchObject({ code: "NOT_FOUND" });
		});

		it("lets a handler pause its queue", async () => {
			const c = client();
			const call = job<number, number>("call");
			await c.queue("call").set({ concurrency: 1 });
			const [first, second] = await call.addMany(c, [1, 2]);
			const w = new Worker(c, [
				call.handle((t, n) => {
					t.fx.pauseQueue(t.queue, { reason: "come back later", for: "1h" });
					return n;
				}),
			]);
			const over = w.run({ signals: false });
			expect(await first!.wait()).toBe(1);
			expect(await c.queue("call").stats()).toMatchObject({ ready: 1, paused: { reason: "come back later" } });
			await c.queue("call").resume();
			expect(await second!.wait()).toBe(2);
			await w.stop();
			await over;
		});
	},
);

it("has neither crons nor limits in a Recorder", async () => {
	const c = new Recorder();
	const reason = { code: "INVALID_ARGUMENT", reason: "recorder" };
	await expect(job<number, void>("n").cron(c, "n", "@daily", 1)).rejects.toMatchObject(reason);
	await expect(all(c.crons())).rejects.toMatchObject(reason);
	await expect(c.queue("n").set({ concurrency: 1 })).rejects.toMatchObject(reason);
});
