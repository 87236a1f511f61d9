import { readdirSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { expect, test } from "vitest";
import { ago, clock, count, many, parseSpan, rate, short, size, span, tail } from "./format";

test("lengths of time have two units at most", () => {
	expect(span(0)).toBe("0 ms");
	expect(span(999)).toBe("999 ms");
	expect(span(59_999)).toBe("59 s");
	expect(span(724_000)).toBe("12 m 4 s");
	expect(span(3_600_000)).toBe("1 h");
	expect(span(93_600_000)).toBe("1 d 2 h");
	expect(span(-41_000)).toBe("-41 s");
});

test("a time is told from now", () => {
	expect(ago(1000, 1500)).toBe("now");
	expect(ago(0, 120_000)).toBe("2 m ago");
	expect(ago(161_000, 120_000)).toBe("in 41 s");
});

test("a time is never without its zone", () => {
	expect(clock(0, "utc")).toBe("1970-01-01 00:00:00.000 UTC");
	expect(clock(0, "local")).toMatch(/[+-]\d\d:\d\d$/);
});

test("durations of the contract are read", () => {
	expect(parseSpan("1h30m")).toBe(5_400_000);
	expect(parseSpan("250ms")).toBe(250);
	expect(parseSpan("1.5s")).toBe(1500);
	expect(parseSpan("0s")).toBe(0);
	expect(parseSpan("")).toBeUndefined();
	expect(parseSpan("soon")).toBeUndefined();
});

test("numbers are grouped, and short where there is no room", () => {
	expect(count(88_120)).toBe("88,120");
	expect(count(undefined)).toBe("–");
	expect(short(9999)).toBe("9,999");
	expect(short(88_120)).toBe("88.1 k");
	expect(short(1_200_000)).toBe("1.2 M");
	expect(rate(0.4)).toBe("0.4/s");
	expect(rate(412)).toBe("412/s");
	expect(size(64_000_000)).toBe("61 MiB");
	expect(size(3)).toBe("3 B");
	expect(tail("01KAJ0C7Q4G05T8R")).toBe("…G05T8R");
});

test("things are counted with their name", () => {
	expect(many(0, "key")).toBe("0 keys");
	expect(many(1, "key")).toBe("1 key");
	expect(many(88_120, "try", "tries")).toBe("88,120 tries");
	expect(many("1", "task matches", "tasks match")).toBe("1 task matches");
	expect(many("1+", "key")).toBe("1+ keys");
	expect(many(undefined, "key")).toBe("– keys");
});

test("no screen counts things in a way of its own", () => {
	const found: string[] = [];
	for (const name of readdirSync(import.meta.dirname, { recursive: true, encoding: "utf8" })) {
		if (!/\.tsx?$/.test(name) || /\.test\.|schema|^format/.test(name)) continue;
		const text = readFileSync(resolve(import.meta.dirname, name), "utf8");
		// "1 keys": a number in front of a plural; and the choice between the two words, which is that of `many`.
		for (const m of text.matchAll(/\{count\([^{}]*\)\} [a-z]+s\b|=== 1 \? " ?(\w+)" : " ?\1e?s"/g))
			found.push(`${name}: ${m[0]}`);
	}
	expect(found).toEqual([]);
});
