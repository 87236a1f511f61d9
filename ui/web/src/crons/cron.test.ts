import { expect, it } from "vitest";
import { taskId } from "./acts";
import {
	afterThis,
	blank,
	type Change,
	type Cron,
	comingOf,
	configOf,
	configText,
	fieldOf,
	formOf,
	halfDayBefore,
	inUTC,
	isOpen,
	markOf,
	markOfTime,
	missing,
	type Run,
	ranOf,
	settingsOf,
	slotText,
	standing,
	stripOf,
	took,
	utcBeside,
	wrongOf,
} from "./cron";

const bytes = (s: string) => `b(${s})`;

it("writes slots with the zone that they were given in", () => {
	expect(slotText("2026-03-29T03:00:00+02:00")).toBe("2026-03-29 03:00 +02:00");
	expect(slotText("2026-03-29T01:00:30Z")).toBe("2026-03-29 01:00:30 UTC");
	expect(slotText(undefined)).toBe("–");
	expect(inUTC("2026-03-29T03:00:00+02:00")).toBe("2026-03-29T01:00:00Z");
	expect(utcBeside("2026-03-29T03:00:00+02:00")).toBe("01:00 UTC");
	expect(utcBeside("2026-03-29T01:00:00+02:00")).toBe("2026-03-28 23:00 UTC");
});

it("says how a cron stands", () => {
	const c = { schedule: "* * * * *", template: { queue: "q" } };
	expect(standing({ ...c, next_at: "2026-01-01T00:00:00Z" })).toBe("on");
	expect(standing({ ...c, next_at: "2026-01-01T00:00:00Z", paused: true })).toBe("paused");
	expect(standing({ ...c, waiting_at: "2026-01-01T00:00:00Z" })).toBe("waits");
	expect(standing(c)).toBe("over");
});

const run = (number: number, more: Partial<Run>): Run => ({ number, outcome: "started", ...more });

it("draws the last runs, the last one at the end, and says them", () => {
	const runs = [
		run(5, { outcome: "skipped", skipped: "overlap" }),
		run(4, { state: "running" }),
		run(3, { state: "dead", began_at: "2026-01-01T00:00:00Z", ended_at: "2026-01-01T00:00:01Z" }),
		run(2, { state: "completed", began_at: "2026-01-01T00:00:00Z", ended_at: "2026-01-01T00:04:10Z" }),
		run(1, { state: "completed", began_at: "2026-01-01T00:00:00Z", ended_at: "2026-01-01T00:00:10Z" }),
	];
	const { stripes, summary } = stripOf(runs);
	expect(stripes.map((s) => `${s.number} ${s.shape}`)).toEqual(["1 bar", "2 bar", "3 cross", "4 open", "5 dot"]);
	expect(summary).toBe("5 runs: 2 completed, 1 dead, 1 running, 1 skipped; the longest took 4 m 10 s");
	expect(stripes[1]!.height).toBe(1);
	expect(stripes[0]!.height).toBeGreaterThanOrEqual(0.2);
	expect(stripOf(Array.from({ length: 30 }, (_, i) => run(30 - i, { state: "completed" }))).stripes.length).toBe(20);
	expect(stripOf([]).summary).toBe("It has not run yet");
	expect(took(runs[1]!)).toBeUndefined();
});

it("has a word for each outcome", () => {
	expect(markOf(run(1, { outcome: "refused" })).word).toBe("refused");
	expect(markOf(run(1, { outcome: "waiting" })).shape).toBe("open");
	expect(markOf(run(1, { outcome: "skipped", skipped: "missed" })).word).toContain("its time was over");
	expect(markOf(run(1, {})).word).toContain("not kept");
	expect(markOf(run(1, { state: "cancelled" })).glyph).toBe("⊘");
});

const spring: Change = {
	at: "2027-03-28T01:00:00Z",
	kind: "skipped",
	by: "3600s",
	words: "02:30 is skipped; it fires at 03:00",
	slots: ["2027-03-28T03:00:00+02:00"],
};

it("marks slots that a change of the clocks moves, and others of that day", () => {
	expect(markOfTime("2027-03-28T03:00:00+02:00", [spring])).toEqual({
		text: "the clocks go forward 1 h: 02:30 is skipped; it fires at 03:00",
		moved: true,
	});
	expect(markOfTime("2027-03-28T12:00:00+02:00", [spring])?.moved).toBe(false);
	expect(markOfTime("2027-03-29T02:30:00+02:00", [spring])).toBeUndefined();
	// Lord Howe moves its clocks by half an hour, at a time that is another day in UTC.
	const howe: Change = { at: "2027-10-02T15:30:00Z", kind: "skipped", by: "1800s", words: "", slots: [] };
	expect(markOfTime("2027-10-03T09:00:00+11:00", [howe])?.text).toBe("the clocks change on this day");
	expect(halfDayBefore(spring)).toBe("2027-03-27T13:00:00.000Z");
});

it("asks what comes behind the next slot of a cron", () => {
	const daily: Cron = {
		schedule: "0 2 * * *",
		template: { queue: "q" },
		next_at: "2026-12-01T01:00:00Z",
		next_local: "2026-12-01T02:00:00+01:00",
	};
	expect(afterThis(daily)).toBe("2026-12-01T00:59:59.000Z");
	expect(comingOf(daily, { times: ["2026-12-01T02:00:00+01:00", "2026-12-02T02:00:00+01:00"] })).toEqual([
		"2026-12-01T02:00:00+01:00",
		"2026-12-02T02:00:00+01:00",
	]);
	const period: Cron = { ...daily, schedule: "@every 90s" };
	expect(afterThis(period)).toBe(daily.next_at);
	expect(comingOf(period, { times: ["2026-12-01T02:01:30+01:00"] })).toEqual([
		"2026-12-01T02:00:00+01:00",
		"2026-12-01T02:01:30+01:00",
	]);
	expect(
		comingOf(
			{ ...daily, end: "2026-12-01T12:00:00Z" },
			{ times: ["2026-12-01T02:00:00+01:00", "2026-12-02T02:00:00+01:00"] },
		),
	).toHaveLength(1);
	expect(comingOf({ schedule: "x", template: { queue: "q" } }, undefined)).toEqual([]);
});

const cron: Cron = {
	name: "nightly",
	version: "3",
	schedule: "0 2 * * *",
	zone: "Europe/Berlin",
	jitter: "600s",
	start: "2026-01-01T00:00:00.123Z",
	overlap: "queue_one",
	catch_up: "none",
	template: {
		queue: "reports",
		payload: { n: 9007199254740992 },
		priority: 3,
		headers: [{ name: "h", value: "v" }],
		labels: { a: "b" },
		max_crashes: 7,
	},
	words: "at 02:00",
	next_local: "x",
	runs: 2,
};

it("keeps what its form does not show", () => {
	const form = formOf(cron, '{"n":9007199254740993}');
	const out = configOf(cron, form, bytes);
	expect(out).toEqual({
		...settingsOf(cron),
		template: { ...cron.template, payload: undefined, payload_base64: 'b({"n":9007199254740993})' },
	});
	expect(out.start).toBe(cron.start);
	expect("version" in out || "words" in out || "next_local" in out).toBe(false);
	expect(configText(settingsOf(cron), '{"n":9007199254740993}')).toContain('"n": 9007199254740993');
	expect(configText(out, '{"n":9007199254740993}')).toBe(configText(settingsOf(cron), '{"n":9007199254740993}'));
});

it("leaves out what is emptied, and sends what is typed", () => {
	const out = configOf(
		cron,
		{ ...formOf(cron, ""), zone: " ", jitter: "", priority: "", labels: "", payload: "" },
		bytes,
	);
	expect(out).toEqual({
		schedule: "0 2 * * *",
		start: cron.start,
		overlap: "queue_one",
		catch_up: "none",
		template: { queue: "reports", headers: [{ name: "h", value: "v" }], max_crashes: 7 },
	});
	const made = configOf(
		undefined,
		{ ...blank, name: "n", schedule: " @daily ", queue: "q", key: "ann", attempts: "4", paused: true },
		bytes,
	);
	expect(made).toEqual({
		schedule: "@daily",
		overlap: "skip",
		catch_up: "one",
		paused: true,
		template: { queue: "q", key: "ann", max_attempts: 4, payload_base64: "b({})" },
	});
	// Bytes that are not text stay as they are.
	const binary: Cron = { ...cron, template: { queue: "q", payload_base64: "/w==" } };
	expect(configOf(binary, formOf(binary, undefined), bytes).template.payload_base64).toBe("/w==");
	expect(configText(settingsOf(binary), undefined)).toContain("/w==");
});

it("says what is wrong before the server is asked", () => {
	expect(missing(blank)).toBe(true);
	const good = { ...blank, name: "n", schedule: "any", queue: "q" };
	expect(missing(good)).toBe(false);
	expect(wrongOf(good, true)).toEqual({});
	const bad = wrongOf(
		{ ...good, name: "-n", queue: "a b", jitter: "soon", priority: "10", payload: "{", labels: "x", attempts: "some" },
		true,
	);
	expect(Object.keys(bad).sort()).toEqual(["attempts", "jitter", "labels", "name", "payload", "priority", "queue"]);
	expect(wrongOf({ ...good, payload: "{" }, false)).toEqual({});
	expect([
		fieldOf("template.queue"),
		fieldOf("schedule"),
		fieldOf("catch_up"),
		fieldOf("of.none"),
		fieldOf(undefined),
	]).toEqual(["queue", "schedule", "catchUp", undefined, undefined]);
});

it("makes ids of tasks that are in the order of their times", () => {
	const random = "ffffffffffffffffffffffffffffffff";
	const first = taskId(random, 1_700_000_000_000);
	expect(first).toMatch(/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/);
	expect(taskId(random, 1_700_000_000_000)).toBe(first);
	expect(taskId("00000000000000000000000000000000", 1_700_000_000_001) > first).toBe(true);
});

it("sees when a cron has run, and when a run has ended", () => {
	const c: Cron = { name: "a", schedule: "@daily", template: { queue: "q" }, runs: 1 };
	const of = (...list: Cron[]) => ranOf(list);
	expect(ranOf(undefined)).toBeUndefined();
	expect(of(c)).toBe(of({ ...c, paused: true, next_at: "2026-01-01T00:00:00Z" }));
	expect(of(c)).not.toBe(of({ ...c, runs: 2 }));
	expect(of({ ...c, last_run: { state: "running" } })).not.toBe(of({ ...c, last_run: { state: "completed" } }));
	expect(of(c)).not.toBe(of(c, { ...c, name: "b" }));
	// One that has not run has no runs to be read.
	expect(of(c)).toBe(of(c, { ...c, name: "b", runs: 0 }));
	const runs: Run[] = [
		{ outcome: "waiting" },
		{ outcome: "started", state: "ready" },
		{ outcome: "started", state: "completed" },
		{ outcome: "skipped" },
	];
	expect(runs.map(isOpen)).toEqual([true, true, false, false]);
});
