import { expect, test } from "vitest";
import { amount, countedSince, namespaceQuotas, overText, tenantQuotas } from "./quota";

const named = <T extends { name: string }>(list: T[], name: string) => list.find((q) => q.name === name)!;

test("a tenant without bounds of its own has those that all have", () => {
	const list = tenantQuotas({ tenant: "acme" });
	expect(named(list, "tasks that have not ended")).toMatchObject({ used: 0, bound: 20_000_000 });
	expect(named(list, "payloads, results and logs").bound).toBe(64 * 2 ** 30);
	expect(named(list, "running tasks").bound).toBe(100_000);
	expect(named(list, "tasks created").bound).toBeUndefined();
	// Puts are counted where there is a rate alone.
	expect(named(list, "puts of keys")).toMatchObject({ used: undefined, bound: undefined });
	expect(named(list, "open streams, here").note).toContain("node");
});

test("what is used stands beside the bound, and what is beyond it", () => {
	const list = tenantQuotas({
		tasks: 10,
		current_tasks: 12,
		overshoot_tasks: 2,
		key_bytes: 1024,
		measured_key_bytes: 1536,
		over_key_bytes: true,
		key_writes_per_second: 5,
		recent_key_writes_per_second: 7,
		overshoot_key_writes: 9,
	});
	expect(named(list, "tasks that have not ended")).toMatchObject({ used: 12, bound: 10, over: 2 });
	expect(overText(named(list, "keys on disk"))).toBe("512 B");
	expect(named(list, "puts of keys")).toMatchObject({ used: 7, bound: 5 });
	expect(overText(named(list, "puts of keys"))).toBe("9");
	expect(overText(named(list, "running tasks"))).toBe("");
});

test("of a namespace nothing is measured that has no bound", () => {
	expect(namespaceQuotas({}).map((q) => [q.used, q.bound])).toEqual([
		[undefined, undefined],
		[undefined, undefined],
		[undefined, undefined],
		[undefined, 10 * 2 ** 30],
	]);
	expect(namespaceQuotas({ key_bytes: 2048, measured_key_bytes: 3 })[0]).toMatchObject({ used: 3, bound: 2048 });
});

test("figures are written in their unit", () => {
	expect(amount(undefined, "bytes")).toBe("–");
	expect(amount(20_000_000, "things")).toBe("20,000,000");
	expect(amount(64 * 2 ** 30, "bytes")).toBe("64 GiB");
	expect(amount(2048, "bytes a second")).toBe("2 KiB/s");
	expect(amount(3.2, "a second")).toBe("3.2/s");
});

test("what a bound refused is told with the bound, and what others refused by itself", () => {
	const refusals = {
		bounds: [
			{ bound: "max_tasks", count: 7, last: "2026-01-02T10:00:00Z" },
			{ bound: "key_bytes", count: 2, last: "2026-01-02T11:00:00Z" },
		],
		nodes: [],
	};
	const rows = namespaceQuotas({ key_bytes: 2048, measured_key_bytes: 3, refusals });
	expect(rows.map((q) => [q.name, q.refused])).toEqual([
		["keys on disk", 2],
		["puts of keys", 0],
		["keys and values put", 0],
		["ended tasks that are kept", undefined],
		["max_tasks", 7],
	]);
	expect(rows[0]?.last).toBe("2026-01-02T11:00:00Z");
	expect(tenantQuotas({ refusals: { bounds: [{ bound: "tasks", count: 1 }] } })[0]).toMatchObject({ refused: 1 });
	// A server that does not count says nothing.
	expect(namespaceQuotas({ key_bytes: 2048 })[0]?.refused).toBeUndefined();
});

test("since when it is counted is said where that is not a day", () => {
	const now = Date.parse("2026-01-02T12:00:00Z");
	const node = (name: string, since: string) => ({ node: name, since });
	expect(countedSince({ nodes: [node("n1", "2026-01-01T00:00:00Z")] }, now)).toEqual([]);
	expect(
		countedSince({ nodes: [node("n1", "2026-01-01T00:00:00Z"), node("n2", "2026-01-02T09:12:00Z")] }, now),
	).toEqual([node("n2", "2026-01-02T09:12:00Z")]);
	expect(countedSince(undefined, now)).toEqual([]);
});
