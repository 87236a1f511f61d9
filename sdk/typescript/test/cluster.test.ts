// Leaders that end, and leaders that hang, in a cluster of three nodes.
import { afterAll, beforeAll, expect, it } from "vitest";
import { Client, job, Worker } from "../src/index.js";
import { Cluster, type Node } from "./cluster.js";

const binary = process.env.MILLRACE_BIN;
let cluster: Cluster;
beforeAll(async () => {
	if (!binary) return;
	cluster = await Cluster.start(binary);
	await cluster.namespace("wide", 3);
}, 60_000);
afterAll(() => cluster?.stop());

/** The node that a client speaks to about a partition. */
function leaderOf(c: Client, partition: number): Node {
	const { address } = c.hub.router.to(partition);
	return cluster.nodes.find((n) => n.address === address)!;
}

it.skipIf(!binary).each([
	["ends", (n: Node) => n.kill(), (n: Node) => n.start()],
	["hangs", (n: Node) => n.pause(), (n: Node) => n.resume()],
] as const)(
	"fails no call and loses no task when a leader %s under load (skipped where MILLRACE_BIN names no server)",
	async (how, begin, end) => {
		const o = { url: cluster.url, token: cluster.token, namespace: "wide", timeout: "60s" };
		const logger = { warn: () => {}, error: () => {} };
		const producer = new Client({ ...o, logger });
		const working = new Client({ ...o, logger });
		const load = job<number, number>(`load-${how}`);
		const settled = new Map<string, number>();
		const w = new Worker(
			working,
			[
				load.handle((t, n) => {
					t.fx.kv("n").add(`{${t.tag}}n`, 1);
					return n;
				}),
			],
			{
				slots: 16,
				onSettled: (s) => {
					if (!s.error) settled.set(s.task.id, (settled.get(s.task.id) ?? 0) + 1);
				},
			},
		);
		const over = w.run({ signals: false });
		let node: Node | undefined;
		const callers = Array.from({ length: 6 }, async (_, caller) => {
			const handles = [];
			for (let i = 0; i < 60; i++) {
				handles.push(await load.add(producer, i, { tag: `${how}/${caller}` }));
				if (i === 20 && caller === 0) {
					node = leaderOf(producer, 1);
					await begin(node);
				}
			}
			return Promise.all(handles.map((h) => h.wait()));
		});
		for (const results of await Promise.all(callers)) expect(results).toEqual(Array.from({ length: 60 }, (_, i) => i));
		// Each task was applied once.
		for (let caller = 0; caller < 6; caller++) {
			expect((await producer.kv("n").get(`{${how}/${caller}}n`))!.text).toBe("60");
		}
		expect((await producer.queue(load.queue).stats()).completed).toBe(360);
		expect([...settled.values()].every((n) => n === 1)).toBe(true);
		await end(node!);
		await w.stop();
		await over;
		await Promise.all([producer.close(), working.close()]);
	},
	120_000,
);
