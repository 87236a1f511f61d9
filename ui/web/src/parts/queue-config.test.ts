import { expect, test } from "vitest";
import { configOf, diff, fields, groups, isAbout, merge, normal, spanText, valuesOf, wrongOf } from "./queue-config";

const field = (name: string) => fields.find((f) => f.name === name)!;

test("a configuration goes through its texts unchanged, with fields that the page does not know", () => {
	const config = { version: "7", max_attempts: 5, lease: "3600s", retry: { factor: 1.5 }, later: { x: 1 } } as const;
	const values = valuesOf(config);
	expect(values).toEqual({ max_attempts: "5", lease: "1h", "retry.factor": "1.5" });
	expect(configOf(config, values)).toEqual({ max_attempts: 5, lease: "1h", retry: { factor: 1.5 }, later: { x: 1 } });
	// What the server alone says is not sent back.
	expect(configOf({ concurrency: 1, pinned: true }, { concurrency: "1" })).toEqual({ concurrency: 1 });
});

test("what is emptied is left out, an object with its last field too", () => {
	expect(configOf({ retry: { factor: 2 }, max_tasks: 3 }, {})).toEqual({});
	expect(configOf({}, { max_deliveries: "0" })).toEqual({ max_deliveries: 0 });
});

test("limits lie within objects of objects", () => {
	const config = {
		concurrency: 20,
		per_key: { concurrency: 1, rate: { limit: 100, per: "60s", burst: 5 } },
		order: "strict",
	} as const;
	const values = valuesOf(config);
	expect(values).toEqual({
		concurrency: "20",
		"per_key.concurrency": "1",
		"per_key.rate.limit": "100",
		"per_key.rate.per": "1m",
		"per_key.rate.burst": "5",
		order: "strict",
	});
	expect(configOf(config, values)).toEqual({
		...config,
		per_key: { ...config.per_key, rate: { ...config.per_key.rate, per: "1m" } },
	});
	const { "per_key.rate.limit": _1, "per_key.rate.per": _2, "per_key.rate.burst": _3, ...rest } = values;
	expect(configOf(config, rest)).toEqual({ concurrency: 20, per_key: { concurrency: 1 }, order: "strict" });
	expect(config.per_key.rate.limit).toBe(100);
	expect(groups.filter((g) => g.limits).flatMap((g) => g.fields).length).toBe(12);
});

test("names of limiters are in order, each once, and the queue of dead letters is one", () => {
	const config = { limiters: ["gpu", "api"], dead_letter: "letters" };
	const values = valuesOf(config);
	expect(values).toEqual({ limiters: "api, gpu", dead_letter: "letters" });
	expect(configOf(config, values)).toEqual({ limiters: ["api", "gpu"], dead_letter: "letters" });
	expect(configOf(config, {})).toEqual({});
	expect(diff(values, normal({ limiters: "gpu,api  gpu", dead_letter: " letters " }))).toEqual([]);
	expect(normal({ limiters: " , " })).toEqual({});
	expect(wrongOf(field("limiters"), "api, -x")).toContain("-x must be letters");
	expect(wrongOf(field("limiters"), "a b c d e")).toBe("must be at most 4 names");
	expect(wrongOf(field("limiters"), "a a b c d")).toBeUndefined();
	expect(wrongOf(field("dead_letter"), "a queue")).toContain("must be letters");
	expect([isAbout("limiters[1]", field("limiters")), isAbout("lease", field("limiters"))]).toEqual([true, false]);
});

test("durations are written as people write them", () => {
	expect(spanText(0)).toBe("0s");
	expect(spanText(5_400_000)).toBe("1h30m");
	expect(spanText(1_209_600_000)).toBe("336h");
	expect(spanText(1500)).toBe("1s500ms");
});

test("the same duration in other words is not a change", () => {
	expect(diff(valuesOf({ lease: "3600s" }), normal({ lease: " 60m " }))).toEqual([]);
	expect(diff(valuesOf({ lease: "3600s" }), normal({ lease: "", max_attempts: "07" }))).toEqual([
		{ name: "max_attempts", label: "Attempts: failures", from: undefined, to: "7" },
		{ name: "lease", label: "Attempts: lease", from: "1h", to: undefined },
	]);
});

test("a text that is not a number or a duration is refused before it is sent", () => {
	expect(wrongOf(field("lease"), "an hour")).toContain("duration");
	expect(wrongOf(field("lease"), "-1s")).toContain("duration");
	expect(wrongOf(field("max_attempts"), "1.5")).toContain("whole");
	expect(wrongOf(field("retry.factor"), "1.55")).toBeUndefined();
	expect(wrongOf(field("max_bytes"), "9007199254740993")).toContain("2^53");
	expect(wrongOf(field("max_attempts"), "")).toBeUndefined();
});

test("changes of both sides are merged, and what both changed is named", () => {
	const base = { lease: "1m", max_attempts: "5", aging: "1m" };
	const theirs = { lease: "2m", max_attempts: "8", aging: "1m" };
	const yours = { lease: "1m", max_attempts: "9", max_tasks: "3" };
	expect(merge(base, theirs, yours)).toEqual({
		values: { lease: "2m", max_attempts: "9", max_tasks: "3" },
		conflicts: ["max_attempts"],
	});
	// The same change on both sides is not a conflict.
	expect(merge(base, yours, yours).conflicts).toEqual([]);
});
