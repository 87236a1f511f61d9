import { expect, test } from "vitest";
import { grouped } from "./errors";

const error = (queue: string, fingerprint: string, kind: string, count: number, last: string) => ({
	queue,
	fingerprint,
	kind,
	count,
	last,
	first: last,
	code: "SMTP",
	message: `m ${fingerprint}`,
	trend: [...new Array(23).fill(0), count],
	sample: [`${queue}-${fingerprint}`],
});

const errors = [
	error("mail", "aa", "send", 3, "2026-01-01T00:00:02Z"),
	error("news", "aa", "send", 5, "2026-01-01T00:00:03Z"),
	error("mail", "bb", "bounce", 4, "2026-01-01T00:00:01Z"),
	error("mail", "other", "", 2, "2026-01-01T00:00:09Z"),
	error("news", "other", "", 1, "2026-01-01T00:00:08Z"),
];

test("the same error of two queues is one row, and is found in both", () => {
	const rows = grouped(errors, "error");
	expect(rows.map((r) => [r.key, r.count])).toEqual([
		["aa", 8],
		["bb", 4],
		["other mail", 2],
		["other news", 1],
	]);
	expect(rows[0]).toMatchObject({
		queues: ["mail", "news"],
		first: "2026-01-01T00:00:02Z",
		last: "2026-01-01T00:00:03Z",
		sample: ["news-aa", "mail-aa"],
		filters: [
			{ queue: "mail", fingerprint: "aa" },
			{ queue: "news", fingerprint: "aa" },
		],
	});
	expect(rows[0]!.trend[23]).toBe(8);
	expect(rows[2]!.title).toBe("other errors");
});

test("by kind and by queue", () => {
	expect(grouped(errors, "kind").map((r) => [r.title, r.count])).toEqual([
		["send", 8],
		["bounce", 4],
		["without a kind", 3],
	]);
	expect(grouped(errors, "kind")[0]!.filters).toEqual([
		{ queue: "mail", kind: "send" },
		{ queue: "news", kind: "send" },
	]);
	expect(grouped(errors, "queue").map((r) => [r.title, r.count, r.filters])).toEqual([
		["mail", 9, [{ queue: "mail" }]],
		["news", 6, [{ queue: "news" }]],
	]);
});
