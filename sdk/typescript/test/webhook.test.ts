import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import * as edge from "../src/fetch.js";
import { verifyWebhook, type WebhookCode, WebhookError } from "../src/index.js";

interface Vector {
	name: string;
	secrets: string[];
	now: number;
	tolerance?: number;
	headers: Record<string, string>;
	body?: string;
	body_base64?: string;
	error?: { code: WebhookCode; field?: string; limit?: string; max?: number };
}

const file = JSON.parse(readFileSync(new URL("../../../proto/conformance/webhooks.json", import.meta.url), "utf8")) as {
	vectors: Vector[];
};

const bytesOf = (v: Vector): Uint8Array =>
	new Uint8Array(v.body_base64 === undefined ? Buffer.from(v.body ?? "") : Buffer.from(v.body_base64, "base64"));

/** The forms that headers and a body come in; what fetch does not take as a header, such as a space at an end, comes in no Headers. */
function forms(v: Vector): [edge.WebhookHeaders, string | Uint8Array | ArrayBuffer][] {
	const bytes = bytesOf(v);
	const out: [edge.WebhookHeaders, string | Uint8Array | ArrayBuffer][] = [
		[v.headers, bytes],
		[Object.fromEntries(Object.entries(v.headers).map(([k, x]) => [k, [x]])), bytes.buffer as ArrayBuffer],
	];
	if (v.body_base64 === undefined) out.push([v.headers, v.body ?? ""]);
	if (!Object.values(v.headers).some((x) => /^[ \t]|[ \t]$|[^ -~\t]/.test(x)))
		out.push([new Headers(v.headers), bytes]);
	return out;
}

describe("webhooks are judged as the vectors that all languages share say", () => {
	expect(file.vectors.length).toBeGreaterThan(0);
	it.each(file.vectors)("$name", async (v) => {
		const o = { now: () => v.now * 1000 + 999, ...(v.tolerance === undefined ? {} : { tolerance: v.tolerance }) };
		for (const [headers, body] of forms(v)) {
			const e = await verifyWebhook(headers, body, v.secrets, o).catch((e: unknown) => e);
			if (v.error === undefined) {
				expect(e).toBeUndefined();
				continue;
			}
			if (!(e instanceof WebhookError)) throw e;
			const { code, field, limit, max } = e;
			expect({ code, field, limit, max }).toEqual(v.error);
			for (const s of v.secrets) if (s.length > 6) expect(e.message).not.toContain(s.slice(6));
		}
	});
});

describe("a receiver", () => {
	it("goes by the clock of its machine", async () => {
		const v = file.vectors[0]!;
		await expect(verifyWebhook(v.headers, bytesOf(v), v.secrets[0]!)).rejects.toMatchObject({ code: "TOO_OLD" });
		const tolerance = Math.ceil(Date.now() / 1000) - v.now + 60;
		await verifyWebhook(v.headers, bytesOf(v), v.secrets[0]!, { tolerance });
	});

	it("finds the same at the edge", () => {
		expect(edge.verifyWebhook).toBe(verifyWebhook);
		expect(edge.WebhookError).toBe(WebhookError);
	});
});
