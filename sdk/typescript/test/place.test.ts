import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import {
	formatId,
	homeOf,
	idIn,
	newId,
	parseId,
	partitionOf,
	placedLow,
	placeOfCommit,
	placeOfId,
	placeOfKey,
	placeOfRange,
	placeTask,
	withBits,
} from "../src/core/place.js";
import { awayBound, patience, serverBound } from "../src/core/retry.js";
import { KVCheck, KVDeleteRange, Op, TaskSpec } from "../src/gen/millrace/v1/task.js";

const vectors = (name: string) =>
	JSON.parse(readFileSync(new URL(`../../../proto/conformance/${name}`, import.meta.url), "utf8"));

describe("the vectors that all languages share", () => {
	it("place keys as servers do", () => {
		for (const v of vectors("placement.json").keys) {
			const key = v.key_base64 === undefined ? v.key : Buffer.from(v.key_base64, "base64");
			for (const [n, want] of Object.entries(v.partitions))
				expect(placeOfKey(key, Number(n)), `${v.key} of ${n}`).toBe(want);
		}
	});

	it("place tasks as servers do", () => {
		for (const v of vectors("placement.json").tasks) {
			const unique = v.unique_key ? { key: v.unique_key } : undefined;
			const spec = TaskSpec.fromPartial({ tag: v.tag, key: v.key, unique, id: v.id });
			expect(placeTask(spec, v.of, 0), JSON.stringify(v)).toBe(v.partition);
			if (v.of > 1) expect(partitionOf(parseId(spec.id)!)).toBe(v.partition);
		}
	});

	it("place tasks of batches as servers do", () => {
		const all = vectors("placement.json").tasks_of_batches;
		expect(all.length).toBeGreaterThan(0);
		for (const v of all) {
			for (const id of [v.id, ""]) {
				const spec = TaskSpec.fromPartial({ tag: v.tag, batch: v.batch, id });
				expect(placeTask(spec, v.of, 0), JSON.stringify(v)).toBe(v.partition);
				if (v.of > 1) expect(partitionOf(parseId(spec.id)!)).toBe(v.partition);
			}
		}
	});

	it("read and write ids as servers do", () => {
		const file = vectors("task_ids.json");
		for (const v of file.ids) {
			const id = parseId(v.text)!;
			expect(formatId(id)).toBe(v.text.toUpperCase());
			expect(Number(id.hi >> 16n)).toBe(v.ms);
			expect(partitionOf(id)).toBe(v.partition);
			expect(id.lo).toBe(BigInt(`0x${v.random_low_hex}`));
			for (const [n, want] of Object.entries(v.placed_in)) expect(homeOf(id, Number(n))).toBe(want);
		}
		for (const v of file.placed) {
			const lo = placedLow(BigInt(`0x${v.random_low_hex}`), v.partition, v.of);
			const id = withBits({ hi: (BigInt(v.ms) << 16n) | BigInt(v.random_high), lo }, v.partition);
			expect(formatId(id)).toBe(v.text);
			expect(partitionOf(id)).toBe(v.partition);
			expect(homeOf(id, v.of)).toBe(v.partition);
		}
		for (const v of file.read_as) expect(formatId(parseId(v.given)!)).toBe(v.text);
		for (const text of file.invalid) expect(parseId(text), text).toBeUndefined();
	});

	it("wait as long before each try", () => {
		const file = vectors("backoff.json");
		file.server.forEach((ms: number, n: number) => {
			expect(serverBound(n)).toBe(ms);
		});
		file.away.forEach((ms: number, n: number) => {
			expect(awayBound(n)).toBe(ms);
		});
	});

	it("repeat calls as long after each code", () => {
		const file = vectors("errors.json");
		for (const v of file.codes) expect(patience({ code: v.code }), v.code).toBe(v.repeat_seconds * 1000);
		for (const reason of file.no_repeat_reasons) expect(patience({ code: "UNAVAILABLE", reason })).toBe(0);
	});
});

describe("a new id", () => {
	it("has the time, partition 0 and random bits", () => {
		const before = Date.now();
		const ids = new Set(Array.from({ length: 10_000 }, newId));
		expect(ids.size).toBe(10_000);
		for (const text of [...ids].slice(0, 100)) {
			const id = parseId(text)!;
			expect(formatId(id)).toBe(text);
			expect(partitionOf(id)).toBe(0);
			expect(Number(id.hi >> 16n)).toBeGreaterThanOrEqual(before);
			expect(Number(id.hi >> 16n)).toBeLessThanOrEqual(Date.now());
		}
		const high = new Set([...ids].map((t) => parseId(t)!.hi & 15n));
		expect(high.size).toBe(16);
	});
});

describe("a partition", () => {
	it("is named twice by the id of a task that is placed there", () => {
		for (const of of [2, 3, 7, 64, 4096]) {
			for (const p of [0, 1, of - 1]) {
				const id = parseId(idIn(p, of))!;
				expect([partitionOf(id), homeOf(id, of)]).toEqual([p, p]);
				expect(placeOfId(formatId(id), of)).toBe(p);
			}
		}
		expect(placeOfId(idIn(6, 7), 4)).toBe(-1);
		expect(placeOfId("no id", 4)).toBe(-1);
		expect(placeOfId("no id", 1)).toBe(0);
	});

	it("of a range is that of the closed tag which all of its keys share", () => {
		const of = (r: Record<string, string>): number => {
			const bytes = Object.fromEntries(Object.entries(r).map(([k, v]) => [k, Buffer.from(v)]));
			return placeOfRange(KVDeleteRange.fromPartial(bytes), 64);
		};
		expect(of({ prefix: "{user/1}/" })).toBe(placeOfKey("user/1", 64));
		expect(of({ from: "{user/1}/a", to: "{user/1}/b" })).toBe(placeOfKey("user/1", 64));
		expect(of({ prefix: "{user/1" })).toBe(-1);
		expect(of({ prefix: "{}" })).toBe(-1);
		expect(of({ from: "{user/1}", to: "{user/2}" })).toBe(-1);
		expect(of({})).toBe(-1);
	});

	it("of a commit is that of its fence, its first op that says one, or its first condition", () => {
		const put = (key: string) => Op.fromPartial({ op: { $case: "kvPut", value: { key: Buffer.from(key) } } });
		const all = Op.fromPartial({ op: { $case: "kvDeleteRange", value: {} } });
		const check = (key: string) => KVCheck.fromPartial({ key: Buffer.from(key) });
		const [a, b] = ["a", "b"].map((k) => placeOfKey(k, 64)) as [number, number];
		expect(placeOfCommit([], [all, put("b")], 64, -1)).toBe(b);
		expect(placeOfCommit([check("a")], [all], 64, -1)).toBe(a);
		expect(placeOfCommit([], [all], 64, 5)).toBe(5);
		expect(placeOfCommit([], [all], 64, -1)).toBe(0);
		expect(placeOfCommit([check("a")], [put("b")], 1, -1)).toBe(0);
		expect(placeOfCommit([check("b"), check("a")], [put("b")], 64, -1)).toMatchObject({
			code: "WRONG_PARTITION",
			op: -3,
			field: "conditions[1].key",
			outcome: "refused",
		});
		expect(placeOfCommit([], [put("a"), put("b"), put("b")], 64, a)).toMatchObject({
			code: "WRONG_PARTITION",
			op: 1,
			details: { ops: "1,2" },
		});
	});
});
