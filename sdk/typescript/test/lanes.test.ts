// The lanes of a worker, whose partitions are played by a server.
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { idIn } from "../src/core/place.js";
import { Session } from "../src/core/session.js";
import { job, type Settlement, type Task, Worker } from "../src/index.js";
import { assignment, Fake, type FakeStream } from "./fake.js";

let fake: Fake;
beforeEach(async () => {
	fake = await Fake.start();
});
afterEach(() => {
	vi.restoreAllMocks();
	return fake.close();
});

const one = job<number, number>("one");
const turn = (): Promise<void> => new Promise((r) => setImmediate(r));

/** A worker of two partitions, each of which is let in. */
async function two(run: (t: Task) => unknown, o: Record<string, unknown>) {
	const w = new Worker(fake.client(), [one.handle((t) => run(t) as number)], { drain: 200, ...o });
	const over = w.run({ signals: false });
	const streams = [await fake.welcome({ partitions: 2 }, 0), await fake.welcome({ partitions: 2 }, 1)] as const;
	await Promise.all(streams.map((s) => s.next("subscribe")));
	return { w, streams, over };
}

it("never offers more slots than it has, while they travel over the partitions", async () => {
	const windows = new Map<number, number>();
	const looked = new Set<number>();
	let most = 0;
	let done = (): void => {};
	const all = new Promise<void>((resolve) => {
		done = resolve;
	});
	// In the order in which frames leave: those of several streams may arrive in another one.
	const { tell } = Session.prototype;
	vi.spyOn(Session.prototype, "tell").mockImplementation(function (this: Session, frame) {
		tell.call(this, frame);
		if (frame?.$case !== "subscribe" && frame?.$case !== "slots") return;
		windows.set(this.partition, frame.value.slots);
		most = Math.max(
			most,
			[...windows.values()].reduce((x, y) => x + y, 0),
		);
		if (frame.value.slots > 0) looked.add(this.partition);
		if (looked.size === 6) done();
	});
	fake.onStream = (s) => s.welcome({ partitions: 6 });
	const w = new Worker(fake.client(), [one.handle(() => 1)], { slots: 2, drain: 1 });
	const over = w.run({ signals: false });
	await all;
	expect(most).toBe(2);
	await w.stop();
	await over;
});

it("gives a partition a slot whose server tells of tasks", async () => {
	const streams = new Map<number, FakeStream>();
	let told = 0;
	fake.onStream = (s) => {
		streams.set(s.hello.partition, s);
		s.welcome({ partitions: 3 });
	};
	const w = new Worker(fake.client(), [one.handle(() => 1)], { slots: 1, drain: 1 });
	const over = w.run({ signals: false });
	while (streams.size < 3) await new Promise((r) => setImmediate(r));
	const s = streams.get(2)!;
	for (;;) {
		const f = told === 0 ? await s.next("subscribe") : await s.next("slots");
		told++;
		if (f.slots > 0) break;
		s.send("available", { sub: 1 });
	}
	await w.stop();
	await over;
});

it("begins no more handlers than it has slots, and gives back what no slot comes free for", async () => {
	const begun: string[] = [];
	const settled: Settlement[] = [];
	let end = (_: number): void => {};
	const first = new Promise<number>((resolve) => {
		end = resolve;
	});
	const { w, streams, over } = await two(
		(t) => {
			begun.push(t.id);
			return begun.length === 1 ? first : new Promise((_, no) => t.signal.addEventListener("abort", no));
		},
		{ slots: 2, onSettled: (s: Settlement) => settled.push(s) },
	);
	// A server that has not heard yet that its window is smaller.
	const tasks = [0, 0, 1, 1, 1].map((p) => assignment(idIn(p, 2)));
	streams[0].send("assign", { sub: 1, tasks: tasks.slice(0, 2) });
	while (begun.length < 2) await turn();
	streams[1].send("assign", { sub: 1, tasks: tasks.slice(2, 4) });
	while (w.health.running < 4) await turn();
	await turn();
	expect(begun.length).toBe(2);
	// The slot of the first one goes to what has waited longest.
	end(1);
	const done = await streams[0].next("settle");
	expect(done.items[0]!.id).toBe(tasks[0]!.id);
	while (begun.length < 3) await turn();
	expect(begun[2]).toBe(tasks[2]!.id);
	// The other one is given back when it has waited for a while.
	const back = await streams[1].next("settle");
	expect(back.items.map((x) => [x.id, x.outcome?.$case])).toEqual([[tasks[3]!.id, "release"]]);
	streams[1].ack(back.seq, { settled: [{}] });
	while (settled.length < 1) await turn();
	expect(settled[0]!.op).toBe("release");
	expect(begun.length).toBe(3);
	await w.stop();
	await over;
});

it("stops a task at once whose cancel comes before a slot is free", async () => {
	const begun: string[] = [];
	const { w, streams, over } = await two(
		(t) => {
			begun.push(t.id);
			return new Promise((_, no) => t.signal.addEventListener("abort", no));
		},
		{ slots: 2 },
	);
	const tasks = [0, 0, 1].map((p) => assignment(idIn(p, 2)));
	streams[0].send("assign", { sub: 1, tasks: tasks.slice(0, 2) });
	streams[1].send("assign", { sub: 1, tasks: tasks.slice(2) });
	while (w.health.running < 3) await turn();
	const waiting = tasks.find((t) => !begun.includes(t.id))!;
	const lane = waiting === tasks[2] ? 1 : 0;
	streams[lane].send("cancel", { id: waiting.id, token: 7n, reason: "no" });
	const f = await streams[lane].next("settle");
	expect(f.items.map((x) => [x.id, x.outcome?.$case])).toEqual([[waiting.id, "stop"]]);
	await w.stop();
	await over;
});

it("fails an attempt whose effect names what is not there: its lease goes on", async () => {
	const settled: Settlement[] = [];
	const { w, streams, over } = await two(() => 1, { slots: 2, onSettled: (s: Settlement) => settled.push(s) });
	streams[0].send("assign", { sub: 1, tasks: [assignment(idIn(0, 2))] });
	const first = await streams[0].next("settle");
	expect(first.items[0]!.outcome?.$case).toBe("complete");
	streams[0].ack(first.seq, { settled: [{ error: { code: "NOT_FOUND", message: "x", outcome: 0, op: 0 } }] });
	const second = await streams[0].next("settle");
	expect(second.items[0]!.outcome?.$case).toBe("fail");
	streams[0].ack(second.seq, { settled: [{ state: 2 }] });
	while (settled.length < 1) await turn();
	expect(settled[0]!.op).toBe("fail");
	await w.stop();
	await over;
});

it("resumes and drains each partition by itself", async () => {
	const { w, streams, over } = await two(
		(t) =>
			new Promise((resolve) => {
				void t.stopping.then(() => resolve(1));
			}),
		{ slots: 2, drain: 5000 },
	);
	const tasks = [0, 1].map((p) => assignment(idIn(p, 2)));
	for (const p of [0, 1] as const) streams[p].send("assign", { sub: 1, tasks: [tasks[p]] });
	while (w.health.running < 2) await turn();
	streams[1].cut();
	const again = await fake.welcome({ partitions: 2, kept: [{ id: tasks[1]!.id, token: 7n }] }, 1);
	expect(again.hello.session).toEqual(streams[1].hello.session);
	expect(again.hello.session).not.toEqual(streams[0].hello.session);
	expect(again.hello.held).toEqual([{ id: tasks[1]!.id, token: 7n }]);
	// All leases of the new stream are renewed, there and nowhere else.
	const renewed = await again.next("renew");
	expect(renewed.items).toEqual([{ id: tasks[1]!.id, token: 7n }]);
	again.ack(renewed.seq, { renewed: [{}] });
	expect(streams[0].seen("renew")).toBe(0);
	const stopped = w.stop();
	for (const [p, s] of [streams[0], again].entries()) {
		await s.next("drain");
		const f = await s.next("settle");
		expect(f.items.map((x) => [x.id, x.outcome?.$case])).toEqual([[tasks[p]!.id, "complete"]]);
		s.ack(f.seq, { settled: [{ state: 5 }] });
	}
	await stopped;
	await over;
	expect([streams[0].closed, again.closed]).toEqual([true, true]);
});

it("lets the other partitions finish when one ends for good while it drains", async () => {
	const ends: (() => void)[] = [];
	const { w, streams, over } = await two(
		(t) =>
			new Promise((resolve, no) => {
				t.signal.addEventListener("abort", () => no(t.signal.reason));
				ends.push(() => resolve(1));
			}),
		{ slots: 2, drain: 20_000 },
	);
	const ended = over.catch((e) => e);
	const tasks = [0, 1].map((p) => assignment(idIn(p, 2)));
	for (const p of [0, 1] as const) streams[p].send("assign", { sub: 1, tasks: [tasks[p]] });
	while (ends.length < 2) await turn();
	const stopped = w.stop();
	await streams[0].next("drain");
	streams[1].cut();
	(await fake.accept(1)).end(7, "no right to work");
	while (w.health.running > 1) await turn();
	for (const end of ends) end();
	const f = await streams[0].next("settle");
	expect(f.items[0]!.outcome?.$case).toBe("complete");
	streams[0].ack(f.seq, { settled: [{ state: 5 }] });
	await stopped;
	expect(await ended).toMatchObject({ code: "PERMISSION_DENIED" });
});
