import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { decode, encode } from "../src/content.js";

/** A value: one of the fields says what it is. */
interface Written {
	text?: string;
	base64?: string;
	json?: unknown;
	time?: string;
	object?: Record<string, Written>;
	nothing?: true;
	missing?: string;
	beyond_2_53?: true;
}

interface Vector {
	type?: string;
	text?: string;
	base64?: string;
	value: Written;
	or?: string[];
	refused?: true;
}

const file = JSON.parse(readFileSync(new URL("../../../proto/conformance/content.json", import.meta.url), "utf8")) as {
	encode: Vector[];
	decode: Vector[];
};

const missing: Record<string, unknown> = {
	nan: Number.NaN,
	infinity: Number.POSITIVE_INFINITY,
	"-infinity": Number.NEGATIVE_INFINITY,
	function: () => 1,
};

function made(w: Written): unknown {
	if (w.base64 !== undefined) return new Uint8Array(Buffer.from(w.base64, "base64"));
	if (w.object) return Object.fromEntries(Object.entries(w.object).map(([k, v]) => [k, made(v)]));
	if (w.time !== undefined) return new Date(w.time);
	if (w.missing !== undefined) return missing[w.missing];
	return w.nothing ? undefined : (w.text ?? w.json);
}

const bytesOf = (v: Vector): Buffer =>
	v.text === undefined ? Buffer.from(v.base64 ?? "", "base64") : Buffer.from(v.text);

const named = (all: Vector[]): [string, Vector][] => all.map((v, i) => [`${i}: ${JSON.stringify(v)}`, v]);

// What has a declared type is not here: types are gone when a program runs, and the content type takes their place.
describe("values are written and read as the vectors that all languages share say", () => {
	it.each(named(file.encode.filter((v) => !v.value.beyond_2_53)))("writes %s", (_, v) => {
		const value = made(v.value);
		if (v.refused) {
			expect(() => encode(value, undefined, "args")).toThrow(
				expect.objectContaining({ code: "INVALID_ARGUMENT", field: "args", outcome: "refused" }),
			);
			return;
		}
		for (const one of v.value.nothing ? [undefined, null] : [value]) {
			const { bytes, type } = encode(one, undefined, "args");
			expect(type).toBe(v.type);
			expect([bytesOf(v), ...(v.or ?? []).map((s) => Buffer.from(s))]).toContainEqual(bytes);
		}
	});

	it.each(named(file.decode))("reads %s", (_, v) => {
		if (v.refused) {
			expect(() => decode(bytesOf(v), v.type!, undefined)).toThrow();
			return;
		}
		const got = decode(bytesOf(v), v.type!, undefined);
		if (v.value.nothing) expect(got ?? undefined).toBeUndefined();
		else expect(got instanceof Uint8Array ? new Uint8Array(got) : got).toEqual(made(v.value));
	});
});

describe("what JavaScript would lose", () => {
	const refused = (value: unknown) =>
		expect(() => encode(value, undefined, "args")).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));

	it("is refused as it is written", () => {
		const beyond = file.encode.filter((v) => v.value.beyond_2_53);
		expect(beyond.length).toBeGreaterThan(0);
		for (const v of beyond) refused({ n: BigInt(/-?\d+/.exec(v.text!)![0]) });
		refused({ at: new Date(Number.NaN) });
		refused([new Map([["a", 1]])]);
		refused({ all: new Set([1]) });
		refused({ raw: new ArrayBuffer(1) });
	});

	it("is refused as it is read", () => {
		for (const type of ["text/plain", "application/json"]) {
			expect(() => decode(Buffer.from([0x22, 0xff, 0x22]), type, undefined)).toThrow("must be UTF-8");
		}
	});
});
