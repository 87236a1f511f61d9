// The agent's word bench: how fast the library is, and what of the processor it takes.

import * as wire from "../src/gen/millrace/v1/task.js";
import { type Client, job, newId, Worker } from "../src/index.js";

export interface Answer {
	tasks: number;
	seconds: number;
	cpu_seconds: number;
	p50_us: number;
	p99_us: number;
}

const claim = { path: "/millrace.v1.TaskService/Claim", request: wire.ClaimRequest, response: wire.ClaimResponse };
const settle = { path: "/millrace.v1.TaskService/Settle", request: wire.SettleRequest, response: wire.SettleResponse };
const create = { path: "/millrace.v1.TaskService/Create", request: wire.CreateRequest, response: wire.CreateResponse };

/** Runs one measurement. */
export async function bench(c: Client, s: Record<string, unknown>): Promise<Answer> {
	const what = s.what as string;
	const queue = (s.queue as string) ?? "bench";
	const count = (s.tasks as number) ?? 10_000;
	const callers = what === "one" ? 1 : ((s.callers as number) ?? 32);
	const pause = (s.pause_ms as number) ?? 0;
	const j = job<{ n: number; s: string }, number>("bench", { queue });
	const times: number[] = [];
	let left = count;
	let done = (): void => {};
	const settled = new Promise<void>((resolve) => {
		done = resolve;
	});
	let worker: Worker | undefined;
	let running: Promise<void> | undefined;
	if (what === "cycle") {
		const b = j.handle((t, a) => {
			t.fx.kv("bench").put(t.id, "x");
			return a.n;
		});
		worker = new Worker(c, [b], {
			slots: (s.slots as number) ?? 128,
			onSettled: () => {
				if (--left === 0) done();
			},
		});
		running = worker.run({ signals: false });
	}
	const begun = performance.now();
	const cpu = process.cpuUsage();
	if (what === "add_many") {
		await j.addMany(
			c,
			Array.from({ length: count }, (_, n) => ({ n, s: "abc" })),
		);
	} else if (what === "unary") {
		for (let i = 0; i < count; i++) await unary(c, queue, i, times);
	} else {
		const caller = async (n: number): Promise<void> => {
			for (let i = 0; i < n; i++) {
				const t = performance.now();
				await j.add(c, { n: i, s: "abc" });
				times.push(performance.now() - t);
				if (pause) await new Promise((resolve) => setTimeout(resolve, pause));
			}
		};
		await Promise.all(
			Array.from({ length: callers }, (_, i) => caller(Math.floor(count / callers) + (i < count % callers ? 1 : 0))),
		);
		if (worker) await settled;
	}
	const seconds = (performance.now() - begun) / 1000;
	const used = process.cpuUsage(cpu);
	await worker?.stop();
	await running;
	times.sort((a, b) => a - b);
	const at = (q: number): number =>
		Math.round((times[Math.min(Math.floor(times.length * q), times.length - 1)] ?? 0) * 1000);
	return { tasks: count, seconds, cpu_seconds: (used.user + used.system) / 1e6, p50_us: at(0.5), p99_us: at(0.99) };
}

async function unary(c: Client, queue: string, i: number, times: number[]): Promise<void> {
	const t = performance.now();
	const id = newId();
	const task = wire.TaskSpec.fromPartial({ id, queue, kind: "bench", payload: Buffer.from('{"n":1,"s":"abc"}') });
	await c.raw(create, { task });
	const got = await c.raw(
		claim,
		wire.ClaimRequest.fromPartial({ queues: [{ name: queue }], max: 1, wait: { seconds: 1n, nanos: 0 } }),
	);
	const a = got.tasks[0]!;
	await c.raw(
		settle,
		wire.SettleRequest.fromPartial({
			items: [
				{
					id: a.id,
					token: a.token,
					outcome: { $case: "complete", value: { result: Buffer.from(String(i)), resultType: "" } },
					effects: {
						ops: [
							{ op: { $case: "kvPut", value: { keyspace: "bench", key: Buffer.from(id), value: Buffer.from("x") } } },
						],
					},
				},
			],
		}),
	);
	times.push(performance.now() - t);
}
