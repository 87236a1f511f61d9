import { describe, expect, it } from "vitest";
import { bytesOf, fromBase64, inAddress, parent, readKey, showKey, toBase64 } from "./key-text";

const bytes = (...b: number[]) => Uint8Array.from(b);

describe("keys as text", () => {
	it("leads back to the same bytes, whatever they are", () => {
		const all = Uint8Array.from({ length: 256 }, (_, i) => i);
		const odd = [
			all,
			bytes(),
			bytes(0xff, 0xfe),
			bytes(0xc3),
			bytes(0xe2, 0x82),
			bytes(0xf0, 0x9f, 0x98, 0x80),
			bytes(0x5c, 0x78, 0x30, 0x30),
		];
		for (const key of odd)
			for (const view of ["text", "hex"] as const) expect(readKey(showKey(key, view), view)).toEqual(key);
	});
	it("shows what can be read and escapes what cannot", () => {
		expect(showKey(new TextEncoder().encode("order/ä/😀"))).toBe("order/ä/😀");
		expect(showKey(bytes(0, 0xff, 0x62))).toBe("\\x00\\xffb");
		expect(showKey(bytes(0x61, 0x5c))).toBe("a\\\\");
	});
	it("does not let a key change the direction of the text beside it, or hide in it", () => {
		expect(showKey(new TextEncoder().encode("a\u202eb\u200b"))).toBe("a\\xe2\\x80\\xaeb\\xe2\\x80\\x8b");
	});
	it("reads hex with spaces and refuses half a byte", () => {
		expect(readKey("00 ff", "hex")).toEqual(bytes(0, 0xff));
		expect(readKey("0", "hex")).toBeUndefined();
		expect(readKey("zz", "hex")).toBeUndefined();
	});
});

describe("keys elsewhere", () => {
	it("stand in an address byte by byte", () => {
		expect(inAddress(bytes(0x61, 0x2f, 0xff, 0x2e, 0x20))).toBe("a%2F%FF%2E%20");
	});
	it("pass through base64", () => {
		const large = Uint8Array.from({ length: 40_000 }, (_, i) => i % 256);
		expect(fromBase64(toBase64(large))).toEqual(large);
		expect(bytesOf(undefined, "AP8=")).toEqual(bytes(0, 0xff));
		expect(bytesOf("ä", undefined)).toEqual(bytes(0xc3, 0xa4));
	});
	it("have a prefix above them", () => {
		const up = (s: string) => showKey(parent(new TextEncoder().encode(s)));
		expect(up("a/b/")).toBe("a/");
		expect(up("a/")).toBe("");
		expect(up("a/b")).toBe("a/");
	});
});
