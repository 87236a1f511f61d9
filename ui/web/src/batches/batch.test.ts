import { expect, test } from "vitest";
import { type Batch, endedText, followsOf, openOf, sharesOf, summaryOf } from "./batch";

const counts = { total: 40, waiting: 2, running: 1, completed: 30, dead: 4, cancelled: 3 };

test("the bar of a batch has a part for each state, one after the other", () => {
	const shares = sharesOf(counts);
	expect(shares.map((s) => [s.part, s.n])).toEqual([
		["completed", 30],
		["dead", 4],
		["cancelled", 3],
		["running", 1],
		["waiting", 2],
	]);
	expect(shares[0]?.from).toBe(0);
	for (const [i, s] of shares.entries())
		if (i > 0) expect(s.from).toBeCloseTo(shares[i - 1]!.from + shares[i - 1]!.length);
	expect(shares.at(-1)!.from + shares.at(-1)!.length).toBeCloseTo(1);
	expect(sharesOf(undefined)).toEqual([]);
});

test("one dead task of a million is seen", () => {
	const [, dead] = sharesOf({ total: 1_000_000, completed: 999_999, dead: 1 });
	expect(dead?.part).toBe("dead");
	expect(dead!.length).toBeGreaterThan(0.009);
});

test("the counts of a batch are said in words", () => {
	expect(openOf(counts)).toBe(3);
	expect(endedText(counts)).toBe("37 / 40");
	expect(summaryOf(counts)).toBe("40 tasks: 30 completed, 4 dead, 3 cancelled, 1 running, 2 waiting");
	expect(summaryOf({ total: 1, completed: 1 })).toBe("1 task: 1 completed");
	expect(summaryOf(undefined)).toBe("no task was added");
});

test("what a batch makes is there, or why it is not", () => {
	const b: Batch = {
		state: "sealed",
		counts,
		on_done: { queue: "reports" },
		on_success: { queue: "publish", kind: "publish.run" },
	};
	const says = (more: Batch) => followsOf({ ...b, ...more }).map((f) => f.says);
	expect(followsOf({ state: "open" })).toEqual([]);
	expect(followsOf(b).map((f) => [f.when, f.queue, f.kind, f.task])).toEqual([
		["done", "reports", "reports", undefined],
		["success", "publish", "publish.run", undefined],
	]);
	expect(says({})).toEqual([
		"made when the batch finishes",
		"made when the batch finishes, if each of its tasks was completed",
	]);
	expect(says({ state: "finished", done_task: "X" })).toEqual(["", "not made: not all of its tasks were completed"]);
	const good = { total: 1, completed: 1 };
	expect(says({ state: "finished", counts: good, refused: { code: "RESOURCE_EXHAUSTED" } })).toEqual([
		"not made yet: the server tries again",
		"not made yet: the server tries again",
	]);
});
