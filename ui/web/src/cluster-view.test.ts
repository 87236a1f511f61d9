import { describe, expect, it } from "vitest";
import { alarms, fromRows, ms, partitionNames, type Status } from "./cluster-view";

const now = Date.parse("2026-11-29T00:00:00Z");
const node = (id: number, o: object = {}) => ({ id, name: `n${id}`, reachable: true, lag: 0, ...o });
const fine: Status = {
	nodes: [node(1), node(2), node(3)],
	shards: [{ shard: 0, leader: 1 }],
	if_lost: [{ node: 1, shards: [] }],
	warnings: [],
};
const texts = (s: Status) => alarms(s, now).map((a) => (a.bad ? "! " : "") + a.text);

describe("what a person has to look at", () => {
	it("is nothing where all is well", () => {
		expect(texts(fine)).toEqual([]);
	});
	it("begins with shards without a leader and what that stops, then with nodes that are gone", () => {
		const s: Status = {
			...fine,
			nodes: [node(1), node(2, { reachable: false, error: "node 2 is not reached: refused" }), node(3, { lag: 4000 })],
			shards: [
				{ shard: 0, leader: 1 },
				{ shard: 1, leader: 0, partitions: [{ namespace: "wide", partition: 3 }], partition_count: 9 },
			],
			if_lost: [
				{ node: 1, shards: [0] },
				{ node: 3, shards: [0] },
			],
			warnings: ["look at this"],
		};
		expect(texts(s)).toEqual([
			"! Shard 1 has no leader: nothing is written to wide p3 and 8 more.",
			"! n2 is not reached: refused.",
			"n3 is 4,000 entries behind.",
			"Writes to other shards go on, and stop if n1 or n3 fails too.",
			"look at this",
		]);
		const down = texts({ ...s, shards: [{ shard: 0, leader: 1 }] });
		expect(down).toContain("Writes go on, and stop if n1 or n3 fails too.");
		const stopped = texts({ ...s, shards: [{ shard: 0 }] });
		expect(stopped.filter((x) => x.includes("go on"))).toEqual([]);
	});
	it("tells of disks, certificates and syncs before they stop something", () => {
		const disk = (free: number, full = false) => ({ disk: { size: 1000, free, reserve: 10, full } });
		expect(texts({ nodes: [node(1, disk(60))] })).toEqual([]);
		expect(texts({ nodes: [node(1, disk(40))] })[0]).toContain("40 B left");
		expect(texts({ nodes: [node(1, disk(5, true))] })[0]).toBe(
			"! The disk of n1 is full: writes that need room are refused.",
		);
		expect(texts({ nodes: [node(1, { cert_ends_at: "2026-12-01T00:00:00Z" })] })).toEqual([
			"The certificate of n1 ends in 2 d.",
		]);
		expect(texts({ nodes: [node(1, { cert_ends_at: "2026-11-28T00:00:00Z" })] })).toEqual([
			"! The certificate of n1 has ended.",
		]);
		expect(texts({ nodes: [node(1, { fsync_us: { p99: 25_000 } })] })[0]).toContain("25 ms");
	});
});

describe("the topic of the cluster", () => {
	it("has one part in each row, in any order", () => {
		const s = fromRows([
			{ node: { id: 2 } },
			{ shard: { shard: 0 } },
			{ cluster: { cluster_id: "c", asked: 1 } },
			{ node: { id: 1 } },
			{ link: { from: 1, to: 2 } },
			{ loss: { node: 1 } },
		]);
		expect(s.nodes?.map((n) => n.id)).toEqual([1, 2]);
		expect(s.cluster_id).toBe("c");
		expect(s.links).toHaveLength(1);
		expect(s.if_lost).toHaveLength(1);
	});
});

it("figures are short", () => {
	expect(ms(120)).toBe("0.1 ms");
	expect(ms(40)).toBe("0.04 ms");
	expect(ms(41_000)).toBe("41 ms");
	expect(partitionNames({ partitions: [{ namespace: "a", partition: 0 }] })).toBe("a p0");
});
