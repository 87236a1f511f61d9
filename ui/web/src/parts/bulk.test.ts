import { expect, test } from "vitest";
import { actionName, filterText, newJobId, pace, sumCounts } from "./bulk";

test("a job's id is one of the server's: time first, partition 0", () => {
	expect(newJobId(0, new Uint8Array([0, 0, 0, 0, 0, 0, 0, 1, 0]))).toBe("00000000000000000000000001");
	// The largest time, and all random bits, with the 12 bits of the partition at 0.
	expect(newJobId(2 ** 48 - 1, new Uint8Array(9).fill(255))).toBe("7ZZZZZZZZZ007ZZZZZZZZZZZZZ");
	expect(newJobId(Date.now())).toMatch(/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/);
	expect(newJobId(1000) < newJobId(2000)).toBe(true);
});

test("a filter is written as the tasks' screen reads it", () => {
	const f = { queue: "mail", state: "dead" as const, fingerprint: "3f9c", labels: { order: "7", who: "ada b" } };
	expect(filterText(f)).toBe('queue:mail state:dead error:3f9c label.order:7 label.who:"ada b"');
	expect(filterText({ batch: "01KAJ0C7Q4G0AAAAAAAAAA5T8R" })).toBe("batch:01KAJ0C7Q4G0AAAAAAAAAA5T8R");
	expect(filterText(undefined)).toBe("");
});

test("a retry of the dead is a redrive", () => {
	expect(actionName({ action: "retry", filter: { state: "dead" } })).toBe("redrive");
	expect(actionName({ action: "retry", filter: {} })).toBe("retry");
});

test("the rest of the time is up to the end that the server tells", () => {
	const at = "2026-01-01T00:00:00Z";
	const job = {
		state: "running" as const,
		started_at: at,
		matched: 100,
		exact: true,
		done: 40,
		eta: "2026-01-01T00:00:20Z",
		refused: [{ code: "CHANGED", count: 10 }],
	};
	const now = Date.parse(at) + 10_000;
	expect(pace(job, now)).toEqual({ part: 0.5, perSecond: 5, rest: 10_000 });
	expect(pace(job, now + 60_000).rest).toBe(0);
	const { eta: _, ...open } = job;
	expect(pace(open, now).rest).toBeUndefined();
	// A server that has just begun has no rate yet.
	expect(pace(job, Date.parse(at) + 10).perSecond).toBeUndefined();
	expect(pace({ ...job, state: "done", ended_at: "2026-01-01T00:00:05Z" }, now)).toEqual({
		part: 1,
		perSecond: 10,
		rest: undefined,
	});
});

test("the dry runs of several filters are one count, exact only where all are", () => {
	const one = { count: 3, exact: true, inspected: 5, oldest: "2026-01-01T00:00:00Z", newest: "2026-01-03T00:00:00Z" };
	const two = { count: 0, exact: true, inspected: 0 };
	const three = { ...one, count: 4, exact: false, newest: "2026-01-02T00:00:00Z", oldest: "2025-12-31T00:00:00Z" };
	expect(sumCounts([one, two])).toMatchObject({ count: 3, exact: true, oldest: one.oldest, newest: one.newest });
	expect(sumCounts([one, three])).toMatchObject({ count: 7, exact: false, oldest: three.oldest, newest: one.newest });
});
