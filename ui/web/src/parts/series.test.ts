import { expect, test } from "vitest";
import { drawn, summary } from "./series";

const answer = {
	step: "10s",
	from: "2026-01-01T00:00:00Z",
	node: "n1",
	series: [
		{ name: "created", values: [10, 0, 25] },
		{ name: "ready", values: [3, 0, 4] },
	],
	gaps: [{ first: 1, steps: 1 }],
};

test("what was counted is a rate, what was there is not, and a gap has no value", () => {
	const d = drawn(answer);
	expect(d.times).toEqual([0, 10_000, 20_000].map((t) => Date.parse(answer.from) + t));
	expect(d.series.map((s) => s.values)).toEqual([
		[1, null, 2.5],
		[3, null, 4],
	]);
	expect(d.missing).toBe(1);
});

test("a summary says the last and the highest value, and where nothing is known", () => {
	expect(summary(drawn(answer), "/s")).toBe("created 2.5/s, at most 2.5/s; ready 4/s, at most 4/s");
	const none = { ...answer, gaps: [{ first: 0, steps: 3 }], series: [answer.series[0]!] };
	expect(summary(drawn(none), "/s")).toBe("created: nothing known");
	expect(drawn({})).toEqual({ times: [], series: [], missing: 0 });
});
