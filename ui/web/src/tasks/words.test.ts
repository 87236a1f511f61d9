import { expect, test } from "vitest";
import { triesOf, whyOf } from "./words";

const now = Date.parse("2030-01-31T12:00:00Z");
const at = (s: number) => new Date(now + s * 1000).toISOString();

test("a row says why its task is where it is", () => {
	expect(whyOf({ state: "ready", ready_at: at(-120) }, now)).toBe("waits 2 m");
	expect(whyOf({ state: "scheduled", reason: "retry", run_at: at(41), error: { code: "SMTP" } }, now)).toBe(
		"retry in 41 s after SMTP",
	);
	expect(whyOf({ state: "scheduled", reason: "snooze", run_at: at(-1) }, now)).toBe("snoozed, runs now");
	expect(whyOf({ state: "scheduled", reason: "delay", run_at: at(60) }, now)).toBe("runs in 1 m");
	expect(whyOf({ state: "running", lease_until: at(38), progress: { percent: 40 } }, now)).toBe(
		"40 % · lease 38 s left",
	);
	expect(whyOf({ state: "running", lease_until: at(-3) }, now)).toBe("lease over for 3 s");
	expect(whyOf({ state: "running", cancel: { at: at(-1), by: "bob" } }, now)).toBe("asked to stop by bob");
	expect(whyOf({ state: "dead", reason: "fatal", error: { code: "SMTP", message: "550 no\nmore" } }, now)).toBe(
		"fatal · SMTP 550 no",
	);
	expect(whyOf({ state: "completed", started_at: at(-2), finished_at: at(-1) }, now)).toBe("took 1 s");
	expect(whyOf({ state: "cancelled", cancel: { by: "bob", reason: "asked" } }, now)).toBe("by bob: asked");
	expect(whyOf({ state: "blocked" }, now)).toBe("");
});

test("tries count the one that runs", () => {
	expect(triesOf({ state: "ready", failures: 0, max_attempts: 5 })).toBe("0/5");
	expect(triesOf({ state: "running", failures: 2, max_attempts: 5 })).toBe("3/5");
	expect(triesOf({ state: "dead", failures: 5, max_attempts: 5 })).toBe("5/5");
});
