import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { expect, it } from "vitest";
import { ApiError, asApiError, errorOf, sentence } from "./errors";

const refused = (status: number, error: object) =>
	errorOf(status, { error: { message: "m", outcome: "refused", ...error } });

it("says which limit refused a call, and what a refusal means", () => {
	const of = (status: number, error: object) => sentence(refused(status, error));
	expect(of(507, { code: "RESOURCE_EXHAUSTED", limit: "disk", max: 7 })).toMatch(/disk is full \(limit disk\)/);
	expect(of(429, { code: "RESOURCE_EXHAUSTED", limit: "keyspace_bytes", max: 1000 })).toBe(
		"The limit keyspace_bytes of 1,000 is reached.",
	);
	expect(of(429, { code: "RATE_LIMITED", limit: "creates", retry_after_ms: 2000 })).toBe(
		"Too many calls: the limit is creates. Wait 2 s.",
	);
	expect(of(413, { code: "TOO_LARGE", limit: "max_payload", max: 1048576 })).toBe(
		"It is over the limit max_payload of 1,048,576.",
	);
	expect(of(403, { code: "PERMISSION_DENIED" })).toMatch(/does not allow/);
	expect(of(404, { code: "NOT_FOUND", message: 'route "/v1/kv/x" not found' })).toMatch(/service is closed/);
	expect(of(404, { code: "NOT_FOUND", message: 'queue "x" not found' })).toMatch(/not there/);
	expect(of(409, { code: "WRONG_STATE" })).toBe("");
	expect(sentence(asApiError(new TypeError("fetch failed")))).toBe("The server did not answer.");
});

it("knows only codes that the server has", () => {
	const schema = readFileSync(resolve(import.meta.dirname, "schema.d.ts"), "utf8");
	const known = /Codes and their statuses: ([^*]*)/.exec(schema)?.[1] ?? "";
	const source = readFileSync(resolve(import.meta.dirname, "errors.ts"), "utf8");
	for (const [, code] of source.matchAll(/case "([A-Z_]+)":/g)) expect(known).toContain(`${code} `);
});

it("takes an answer that is not of the server for no proof", () => {
	const e = errorOf(502, "<html>");
	expect([e.status, e.code, e.outcome]).toEqual([502, "UNAVAILABLE", "unknown"]);
	expect(new ApiError(500, { code: "INTERNAL" }).outcome).toBe("unknown");
});
