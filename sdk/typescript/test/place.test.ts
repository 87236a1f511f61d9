import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { formatId, homeOf, newId, parseId, partitionOf, placedId, placeOfKey } from "../src/core/place.js";
import { awayBound, patience, serverBound } from "../src/core/retry.js";

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
			const open = { hi: (BigInt(v.ms) << 16n) | BigInt(v.random_high), lo: BigInt(`0x${v.random_low_hex}`) };
			const id = placedId(open, v.partition, v.of);
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
