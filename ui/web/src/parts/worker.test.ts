import { expect, test } from "vitest";
import { howOf, matches } from "./worker";

const now = Date.parse("2026-01-01T00:01:00Z");
const seen_at = "2026-01-01T00:00:55Z";

test("a worker is silent before it is quiet, and full when all its slots are in use", () => {
	expect(howOf({ seen_at, slots: 8, running: 1 }, now)).toBe("takes");
	expect(howOf({ seen_at, slots: 8, running: 8 }, now)).toBe("full");
	expect(howOf({ seen_at, slots: 8, running: 8, quiet: true }, now)).toBe("quiet");
	const old = { seen_at: "2025-12-31T23:59:50Z", slots: 8, quiet: true };
	expect(howOf(old, now)).toBe("silent");
	// A stream that is open and has nothing to say is not an alarm.
	expect(howOf({ ...old, sessions: ["s"] }, now)).toBe("quiet");
	expect(howOf({}, now)).toBe("takes");
});

test("every word must be found, in the name, the host, the client or a queue", () => {
	const w = { id: "w-3", host: "ci-2", queues: ["mail", "build"], sdk: "millrace-go/0.9" };
	expect(matches(w, "")).toBe(true);
	expect(matches(w, "CI-2 mail")).toBe(true);
	expect(matches(w, "ci-2 thumb")).toBe(false);
});
