import { expect, test } from "vitest";
import type { Task } from "./filter";
import { type Attempt, axis, deadBecause, type Row, timeline } from "./timeline";

const base = Date.parse("2030-01-31T12:00:00Z");
const at = (s: number) => new Date(base + s * 1000).toISOString();
const task = (t: Partial<Task>): Task => ({
	id: "1",
	state: "running",
	created_at: at(0),
	creator: "ada",
	lease: "60s",
	...t,
});
const ended = (number: number, start: number, end: number, a: Partial<Attempt>): Attempt => ({
	number,
	worker: "w-1",
	start: at(start),
	end: at(end),
	ready_at: at(start - 1),
	lease_until: at(start + 60),
	token: String(900 + number),
	...a,
});
const bars = (r: Row | undefined) => r?.bars.map((b) => [b.kind, (b.from - base) / 1000, (b.to - base) / 1000]);
const says = (rows: Row[]) => rows.map((r) => r.says);

test("a task that succeeds at once has two rows", () => {
	const t = timeline(
		task({ state: "completed", finished_at: at(3) }),
		[ended(1, 1, 3, { outcome: "completed", ready_at: at(0) })],
		[],
		base + 9000,
	);
	expect(says(t.rows)).toEqual(["created by ada", "completed, took 2 s"]);
	expect(bars(t.rows[1])).toEqual([
		["queue", 0, 1],
		["work", 1, 3],
	]);
	expect(t.lease).toBeUndefined();
	expect(t.to).toBe(base + 3000); // what is over does not grow
});

test("a crash, a failure and a try that runs", () => {
	const t = timeline(
		task({}),
		[
			ended(1, 1, 61, { outcome: "crashed", lease_until: at(61) }),
			ended(2, 62, 63, { outcome: "failed", retry_at: at(74), error: { code: "SMTP", message: "451 later\nmore" } }),
			{ number: 3, worker: "w-3", start: at(75), ready_at: at(74), lease_until: at(140), index: "0" },
		],
		[],
		base + 100_000,
	);
	expect(says(t.rows)).toEqual([
		"created by ada",
		"crashed after 1 m: its lease was over",
		"failed after 1 s: SMTP 451 later",
		"running",
	]);
	expect(bars(t.rows[2])).toEqual([
		["queue", 61, 62],
		["work", 62, 63],
		["wait", 63, 74],
	]);
	expect(bars(t.rows[3])).toEqual([
		["queue", 74, 75],
		["work", 75, 100],
		["lease", 100, 140],
	]);
	expect(t.rows[2]).toMatchObject({ after: "waits 11 s", token: "902" });
	expect(t.retired).toEqual(["901", "902"]);
	expect(t.lease).toEqual({ until: base + 140_000, all: 60_000, renewed: base + 80_000 });
});

test("a live token is never shown, even if an answer had it", () => {
	const live = { number: 1, start: at(1), token: "977", lease_until: at(61) } as Attempt;
	const t = timeline(task({}), [live], [], base + 2000);
	expect(t.retired).toEqual([]);
	expect((t.rows[1] as { token?: string }).token).toBeUndefined();
	expect(t.lease?.renewed).toBeUndefined(); // it was not renewed yet
});

test("a lease that is over has nothing left", () => {
	const t = timeline(task({}), [{ number: 1, start: at(1), lease_until: at(61) }], [], base + 70_000);
	expect(bars(t.rows[1])?.map((b) => b[0])).toEqual(["work"]);
});

test("a worker that went away is told from a lease that was over", () => {
	const t = timeline(
		task({ state: "ready", ready_at: at(5) }),
		[ended(1, 1, 5, { outcome: "crashed" })],
		[],
		base + 9000,
	);
	expect(t.rows[1]?.says).toBe("crashed after 4 s: its worker went away, 56 s before its lease was over");
	expect(t.rows[1]).toMatchObject({ after: "ready again" });
	expect(bars(t.rows[2])).toEqual([["queue", 5, 9]]);
});

test("a released task keeps its old place", () => {
	const t = timeline(
		task({}),
		[
			ended(1, 1, 2, { outcome: "released", ready_at: at(0) }),
			{ number: 2, start: at(3), ready_at: at(0), lease_until: at(63) },
		],
		[],
		base + 4000,
	);
	expect(t.rows[1]).toMatchObject({ after: "back at its old place" });
	expect(bars(t.rows[2])?.[0]).toEqual(["queue", 2, 3]);
});

test("a wait that a person cut short ends where it was ready", () => {
	const t = timeline(
		task({}),
		[
			ended(1, 1, 2, { outcome: "snoozed", retry_at: at(62) }),
			{ number: 2, start: at(13), ready_at: at(12), lease_until: at(73) },
		],
		[],
		base + 14_000,
	);
	expect(t.rows[1]).toMatchObject({ after: "was to wait 1 m, made ready after 10 s" });
	expect(bars(t.rows[1])?.at(-1)).toEqual(["wait", 2, 12]);
});

test("attempts that are only counted are said to be not kept", () => {
	const t = timeline(
		task({ state: "dead", reason: "max_attempts", finished_at: at(990) }),
		[ended(7, 980, 990, { outcome: "failed" })],
		[
			{ outcome: "failed", count: 5 },
			{ outcome: "crashed", count: 1 },
		],
		base + 9_000_000,
	);
	expect(says(t.rows)).toEqual([
		"created by ada",
		"tries 1 to 6 are not kept: 5 failed, 1 crashed",
		"failed after 10 s",
		"dead: as many failures as it may have (max_attempts)",
	]);
	expect(t.from).toBe(base + 979_000); // what is not kept takes no room
	expect(deadBecause("odd")).toBe("odd");
});

test("a delay before the first try, and a cancel", () => {
	const delayed = timeline(task({ state: "scheduled", run_at: at(60) }), [], [], base + 20_000);
	expect(says(delayed.rows)).toEqual(["created by ada", "runs in 40 s"]);
	expect(bars(delayed.rows[1])).toEqual([["wait", 0, 60]]);
	const retry = timeline(
		task({ state: "scheduled", run_at: at(60) }),
		[ended(1, 1, 2, { outcome: "failed", retry_at: at(60) })],
		[],
		base + 20_000,
	);
	expect(bars(retry.rows[2])).toEqual([]); // the attempt's row has it
	const cancelled = timeline(
		task({ state: "cancelled", finished_at: at(9), cancel: { by: "bob", reason: "asked" } }),
		[],
		[],
		base + 99_000,
	);
	expect(cancelled.rows[1]?.says).toBe("cancelled by bob: asked");
});

test("places keep the order of times, and long waits do not hide short attempts", () => {
	const place = axis([0, 10, 3_600_000, 3_600_010]);
	expect(place(-5)).toBe(0);
	expect(place(0)).toBe(0);
	expect(place(3_600_010)).toBe(1);
	expect(place(4_000_000)).toBe(1);
	expect(place(10)).toBeGreaterThan(0.03);
	expect(place(5)).toBeCloseTo(place(10) / 2);
	expect(axis([])(7)).toBe(0);
	expect(axis([7])(7)).toBe(0);
});
