import { expect, test } from "vitest";
import { boundsText, configOf, formOf, most, named, sameBounds, standingOf, usedText, withFigures } from "./limiter";

const now = Date.parse("2026-01-01T00:00:00Z");

test("a limiter has room, is full, waits for its rate, or bounds nothing", () => {
	const rate = { limit: 5, per: "1s" };
	expect(standingOf({ concurrency: 2, used: 1 }, 1, now)).toBe("room");
	expect(standingOf({ concurrency: 2, used: 2 }, 1, now)).toBe("full");
	expect(standingOf({ concurrency: 2, used: 3 }, 1, now)).toBe("full"); // one that costs more runs alone
	expect(standingOf({ rate, until: "2026-01-01T00:00:01Z" }, 1, now)).toBe("rate");
	expect(standingOf({ rate, until: "2025-12-31T23:59:59Z" }, 1, now)).toBe("room");
	expect(standingOf({ used: 7 }, 1, now)).toBe("nothing");
});

test("each partition may run what a limiter lets", () => {
	expect(most({ concurrency: 2 }, 3)).toBe(6);
	expect(most({ concurrency: 2 }, 0)).toBe(2); // where it is not known how many there are
	expect(most({}, 3)).toBeUndefined();
	expect(standingOf({ concurrency: 2, used: 2 }, 3, now)).toBe("room");
	expect(usedText({ concurrency: 2, used: 5 }, 3)).toBe(
		"tasks that cost 5 of at most 6 run, 2 in each of 3 partitions",
	);
	expect(usedText({ concurrency: 2, used: 1 }, 1)).toBe("tasks that cost 1 of at most 2 run");
	expect(usedText({ used: 1 }, 1)).toBe("tasks that cost 1 run, without a bound");
});

test("what a limiter bounds is said in words, and read back as it was typed", () => {
	const x = { concurrency: 1200, rate: { limit: 600, per: "60s", burst: 50 } };
	expect(boundsText(x)).toBe("1,200 at once, 600 per 1m, burst 50");
	expect(boundsText({})).toBe("nothing");
	expect(configOf(formOf({ name: "api", ...x }))).toEqual({ ...x, rate: { ...x.rate, per: "1m" } });
	expect(configOf(formOf(undefined))).toEqual({});
	expect(sameBounds(x, configOf(formOf(x)))).toBe(true);
	expect(sameBounds(x, { concurrency: 1200 })).toBe(false);
});

test("who names a limiter keeps it", () => {
	expect(named({})).toBe("");
	expect(named({ tasks: 1 })).toBe("1 task that has not ended");
	expect(named({ tasks: 1200, queues: ["a"] })).toBe("1,200 tasks that have not ended and 1 queue: a");
	expect(named({ queues: ["a", "b"] })).toBe("2 queues: a, b");
});

test("figures are those that came last, and who holds a limiter is what was read", () => {
	const read = {
		name: "api",
		used: 1,
		until: "2026-01-01T00:00:00Z",
		held_by: [{ task: "t", queue: "q" }],
		queues: ["q"],
	};
	expect(withFigures(read, undefined)).toBe(read);
	expect(withFigures(read, { name: "api", used: 2 })).toEqual({
		name: "api",
		used: 2,
		held_by: read.held_by,
		queues: ["q"],
	});
});
