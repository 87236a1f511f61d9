import { describe, expect, it } from "vitest";
import { isObject, matches, objections, rulesOf, words } from "./ref-rules";

const rules = [
	{ refs: "refs/heads/main", deny: ["force" as const, "delete" as const] },
	{ refs: "refs/tags/**", deny: ["update" as const], except: ["ci"] },
	{ refs: "refs/heads/*", only: "effects" as const, queue: "build" },
];

describe("rules of refs", () => {
	it("match within a component by one star and across by two", () => {
		expect(matches("refs/heads/*", "refs/heads/a")).toBe(true);
		expect(matches("refs/heads/*", "refs/heads/a/b")).toBe(false);
		expect(matches("refs/heads/**", "refs/heads/a/b")).toBe(true);
		expect(matches("refs/heads/v1.0", "refs/heads/v1x0")).toBe(false);
		expect(matches("refs/heads/(a|b)", "refs/heads/a")).toBe(false);
	});
	it("are found by name, with their numbers", () => {
		expect(rulesOf(rules, "refs/heads/main").map((r) => r.number)).toEqual([1, 3]);
	});
	it("are said in words", () => {
		expect(words(rules[0]!)).toBe("no force, delete");
		expect(words(rules[1]!)).toBe("no update; but not for ci");
		expect(words(rules[2]!)).toBe("only by effects of tasks of build");
	});
	it("object before a move is sent, and say when they do not know", () => {
		const of = (...a: Parameters<typeof objections>) => objections(...a).map((o) => [o.number, o.sure]);
		expect(of(rules.slice(0, 1), "refs/heads/main", "delete", "ada")).toEqual([[1, true]]);
		expect(of(rules.slice(0, 1), "refs/heads/main", "update", "ada")).toEqual([[1, false]]);
		expect(of(rules.slice(0, 1), "refs/heads/main", "create", "ada")).toEqual([]);
		expect(of(rules, "refs/tags/v1", "update", "ci")).toEqual([]);
		expect(of(rules, "refs/tags/v1", "update", "ada")).toEqual([[2, true]]);
		expect(of(rules, "refs/heads/x", "create", "ada")).toEqual([[3, true]]);
	});
	it("ids of objects are whole", () => {
		expect(isObject("0".repeat(40))).toBe(true);
		expect(isObject("0".repeat(39))).toBe(false);
		expect(isObject("g".repeat(40))).toBe(false);
	});
});
