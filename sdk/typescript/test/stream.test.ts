import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Renewer } from "../src/core/renewer.js";
import { job, MillraceError, outcomeOf, Worker } from "../src/index.js";
import { assignment, Fake, type FakeStream } from "./fake.js";

let fake: Fake;
beforeEach(async () => {
	fake = await Fake.start();
});
afterEach(() => fake.close());

const one = job<number, number>("one");
const A = "01HF7YAT000000000000000085";

it("sends a create again on the next stream, under the same id and before what is newer", async () => {
	const c = fake.client();
	const first = one.add(c, 1);
	const s = await fake.welcome();
	const frame = await s.next("create");
	s.cut();
	const second = one.add(c, 2);
	const t = await fake.welcome();
	const again = await t.next("create");
	expect(again.tasks[0]!.id).toBe(frame.tasks[0]!.id);
	expect(t.hello.session).toEqual(s.hello.session);
	const rest = again.tasks.length === 2 ? [] : (await t.next("create")).tasks;
	t.ack(again.seq, { created: again.tasks.map((x) => ({ id: x.id, replayed: x.id === frame.tasks[0]!.id })) });
	if (rest.length > 0) t.ack(again.seq + 1n, { created: rest.map((x) => ({ id: x.id })) });
	expect((await first).replayed).toBe(true);
	expect((await second).replayed).toBe(false);
});

it("gathers what is added in one turn into one frame", async () => {
	const c = fake.client();
	const all = Promise.all(Array.from({ length: 100 }, (_, i) => one.add(c, i)));
	const s = await fake.welcome();
	const frame = await s.next("create");
	expect(frame.tasks.length).toBe(100);
	s.ack(frame.seq, { created: frame.tasks.map((t) => ({ id: t.id })) });
	expect((await all).length).toBe(100);
});

it("keeps within the window of the server", async () => {
	const c = fake.client();
	const all = one.addMany(c, [1, 2, 3, 4, 5]);
	const s = await fake.welcome({
		limits: { unackedItems: 2, unackedBytes: 1 << 20, unackedCommits: 4, frameItems: 512 },
	});
	let n = 0;
	while (n < 5) {
		const f = await s.next("create");
		expect(f.tasks.length).toBeLessThanOrEqual(2);
		expect(s.seen("create")).toBe(0);
		n += f.tasks.length;
		s.ack(f.seq, { created: f.tasks.map((t) => ({ id: t.id })) });
	}
	expect((await all).length).toBe(5);
});

it("makes no frames while the last ones wait to be sent: what is added meanwhile shares one", async () => {
	const c = fake.client();
	const big = job<string, number>("big");
	const first = one.add(c, 1);
	const s = await fake.welcome();
	const f = await s.next("create");
	s.ack(f.seq, { created: f.tasks.map((t) => ({ id: t.id })) });
	await first;
	s.call.pause();
	const all: Promise<unknown>[] = [big.add(c, "x".repeat(900_000))];
	for (let i = 0; i < 5; i++) {
		await new Promise((r) => setImmediate(r));
		await new Promise((r) => setImmediate(r));
		all.push(one.add(c, i));
	}
	s.call.resume();
	for (const n of [1, 5]) {
		const f = await s.next("create");
		expect(f.tasks.length).toBe(n);
		s.ack(f.seq, { created: f.tasks.map((t) => ({ id: t.id })) });
	}
	await Promise.all(all);
});

it("tells refused from unknown when the time is over", async () => {
	const c = fake.client();
	const never = one.add(c, 1, { timeout: 50 }).catch((e) => e);
	expect(outcomeOf(await never)).toBe("refused");
	const s = await fake.welcome();
	const left = one.add(c, 2, { timeout: 300 }).catch((e) => e);
	await s.next("create");
	const e = await left;
	expect(e).toBeInstanceOf(MillraceError);
	expect(e.code).toBe("DEADLINE_EXCEEDED");
	expect(e.outcome).toBe("unknown");
});

it("keeps a refusal unknown that comes after a try whose answer was lost", async () => {
	const c = fake.client();
	const p = one.add(c, 1).catch((e) => e);
	const s = await fake.welcome();
	await s.next("create");
	s.cut();
	const t = await fake.welcome();
	const f = await t.next("create");
	t.ack(f.seq, { created: [{ id: "", error: { code: "NOT_FOUND", message: "x", outcome: 0 } }] });
	expect((await p).outcome).toBe("unknown");
});

it("repeats what the server cannot do now, and not what it refuses", async () => {
	const c = fake.client();
	const p = one.add(c, 1);
	const s = await fake.welcome();
	const f = await s.next("create");
	s.ack(f.seq, { created: [{ id: "", error: { code: "UNAVAILABLE", reason: "overload", message: "x", outcome: 0 } }] });
	const again = await s.next("create");
	expect(again.tasks[0]!.id).toBe(f.tasks[0]!.id);
	s.ack(again.seq, { created: [{ id: again.tasks[0]!.id }] });
	await p;
	const q = one.add(c, 1).catch((e) => e);
	const g = await s.next("create");
	s.ack(g.seq, {
		created: [
			{
				id: "",
				error: { code: "INVALID_ARGUMENT", field: "tasks[0].queue", message: "tasks[0].queue: bad", outcome: 0 },
			},
		],
	});
	expect(await q).toMatchObject({ code: "INVALID_ARGUMENT", field: "queue", outcome: "refused" });
});

it("ends what waits when the stream cannot be opened", async () => {
	const c = fake.client();
	const p = one.add(c, 1).catch((e) => e);
	const s = await fake.accept();
	s.end(16, "no token");
	expect(await p).toMatchObject({ code: "UNAUTHENTICATED", outcome: "refused" });
});

it("opens another stream after a goaway, and sends there what is not acknowledged", async () => {
	const c = fake.client();
	const p = one.add(c, 1);
	const s = await fake.welcome();
	const f = await s.next("create");
	s.send("goaway", { reason: "stopping" });
	s.end();
	const t = await fake.welcome();
	const again = await t.next("create");
	expect(again.tasks[0]!.id).toBe(f.tasks[0]!.id);
	t.ack(again.seq, { created: [{ id: again.tasks[0]!.id }] });
	await p;
});

it("waits on the stream, and asks again on the next one", async () => {
	const c = fake.client();
	const p = one.of(c, A).wait();
	const s = await fake.welcome();
	expect((await s.next("waits")).ids).toEqual([A]);
	s.cut();
	const t = await fake.welcome();
	const f = await t.next("waits");
	expect(f.ids).toEqual([A]);
	t.ack(f.seq, { waits: [{}] });
	t.send("ended", {
		id: A,
		task: { id: A, state: 5, hasResult: true, result: Buffer.from("7"), resultType: "application/json" },
	});
	expect(await p).toBe(7);
});

async function working(
	run: (t: import("../src/index.js").Task) => unknown,
	o = {},
): Promise<{ w: Worker; s: FakeStream; over: Promise<void> }> {
	const w = new Worker(fake.client(), [one.handle((t) => run(t) as number)], { slots: 1, drain: 200, ...o });
	const over = w.run({ signals: false });
	const s = await fake.welcome();
	return { w, s, over };
}

it("names what it holds in the next hello, and ends the handler of what is lost", async () => {
	let aborted: unknown;
	const { w, s, over } = await working(
		(t) =>
			new Promise((_, reject) => {
				t.signal.addEventListener("abort", () => {
					aborted = t.signal.reason;
					reject(aborted);
				});
			}),
	);
	expect((await s.next("subscribe")).slots).toBe(1);
	s.send("assign", { sub: 1, tasks: [assignment(A)] });
	await new Promise((r) => setImmediate(r));
	while (w.health.running === 0) await new Promise((r) => setTimeout(r, 1));
	s.cut();
	const t = await fake.welcome({ lost: [{ id: A, token: 7n }] });
	expect(t.hello.held).toEqual([{ id: A, token: 7n }]);
	while (!aborted) await new Promise((r) => setTimeout(r, 1));
	expect((aborted as Error).name).toBe("LeaseLost");
	await w.stop();
	await over;
	expect(t.seen("settle")).toBe(0);
});

it("sends a settle again until it is answered, though its lease was lost meanwhile", async () => {
	const seen: unknown[] = [];
	const { w, s, over } = await working(() => 5, { onSettled: (x: unknown) => seen.push(x) });
	s.send("assign", { sub: 1, tasks: [assignment(A)] });
	await s.next("settle");
	s.send("leaseLost", { id: A, token: 7n, reason: "expired" });
	s.cut();
	const t = await fake.welcome({ lost: [{ id: A, token: 7n }] });
	expect(t.hello.held).toEqual([{ id: A, token: 7n }]);
	const f = await t.next("settle");
	t.ack(f.seq, { settled: [{ replayed: true, state: 5 }] });
	while (seen.length === 0) await new Promise((r) => setTimeout(r, 1));
	expect(seen[0]).toMatchObject({ op: "complete", replayed: true, error: undefined });
	await w.stop();
	await over;
});

it("answers a lost lease with its window, so that the server gives it tasks again", async () => {
	const { w, s, over } = await working(
		(t) => new Promise((_, reject) => t.signal.addEventListener("abort", () => reject(t.signal.reason))),
	);
	s.send("assign", { sub: 1, tasks: [assignment(A)] });
	while (w.health.running === 0) await new Promise((r) => setTimeout(r, 1));
	s.send("leaseLost", { id: A, token: 7n, reason: "expired" });
	expect(await s.next("slots")).toMatchObject({ sub: 1, slots: 1 });
	await w.stop();
	await over;
});

it("completes again with other effects when the first were refused, and else fails", async () => {
	const { w, s, over } = await working((t) => {
		t.fx.kv("k").put("a", "1", { ifAbsent: true });
		if (t.attempt === 1) {
			t.onRefused(() => {
				t.fx.reset();
				t.fx.kv("k").put("b", "2");
			});
		}
		return 1;
	});
	s.send("assign", { sub: 1, tasks: [assignment(A)] });
	const first = await s.next("settle");
	expect(first.items[0]!.effects!.failOnRefusal).toBe(false);
	s.ack(first.seq, { settled: [{ error: { code: "PRECONDITION_FAILED", message: "x", op: 0, outcome: 0 } }] });
	const second = await s.next("settle");
	expect(second.items[0]!.effects!.ops[0]!.op!.value).toMatchObject({ key: Buffer.from("b") });
	s.ack(second.seq, { settled: [{ state: 5 }] });
	s.send("assign", { sub: 1, tasks: [assignment(A, { token: 8n, attempt: 2 })] });
	expect((await s.next("settle")).items[0]!.effects!.failOnRefusal).toBe(true);
	await w.stop();
	await over;
});

it("opens its stream when the thread that renews leases has started", async () => {
	let started = (): void => {};
	const ready = new Promise<void>((resolve) => {
		started = resolve;
	});
	const spy = vi.spyOn(Renewer.prototype, "ready", "get").mockReturnValue(ready);
	const order: string[] = [];
	const w = new Worker(fake.client(), [one.handle(() => 1)]);
	const over = w.run({ signals: false });
	const opened = fake.welcome().then(() => order.push("stream"));
	await new Promise((r) => setTimeout(r, 100));
	order.push("thread");
	started();
	await opened;
	expect(order).toEqual(["thread", "stream"]);
	await w.stop();
	await over;
	spy.mockRestore();
});

it("tells a worker that is not let in by an error", async () => {
	const w = new Worker(fake.client(), [one.handle(() => 1)], { drain: 1 });
	const over = w.run({ signals: false }).catch((e) => e);
	const s = await fake.accept();
	s.end(7, "no right to work");
	expect(await over).toMatchObject({ code: "PERMISSION_DENIED" });
});
