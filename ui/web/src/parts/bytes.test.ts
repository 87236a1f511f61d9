import { expect, test } from "vitest";
import { visible } from "../format";
import { hex, indented, textOf } from "./bytes";

const encode = (s: string) => new TextEncoder().encode(s);

test("JSON is laid out by its own characters", () => {
	expect(indented('{"b":9007199254740993,"a":-0,"a":[1e400,{}, []]}')).toBe(
		'{\n  "b": 9007199254740993,\n  "a": -0,\n  "a": [\n    1e400,\n    {},\n    []\n  ]\n}',
	);
	expect(indented('"a\\"b{,"')).toBe('"a\\"b{,"');
	expect(indented("{")).toBeUndefined();
});

test("bytes that are not text are shown in hex only", () => {
	expect(textOf(new Uint8Array([0xff, 0xfe]), true)).toBeUndefined();
	expect(textOf(encode("ä").subarray(0, 1), false)).toBe("");
	expect(textOf(encode("ä").subarray(0, 1), true)).toBeUndefined();
	expect(hex(encode("ab\n"))).toBe("000000  61 62 0a                                         ab·");
});

test("control characters can be seen, newlines stay", () => {
	expect(visible("a\u0000b\nc\u007f")).toBe("a␀b\nc␡");
	expect(visible("a\u202eb\u2066c\u0085\t")).toBe("a\\u202eb\\u2066c\\u0085\t");
	expect(visible("\u{e0041}")).toBe("\\udb40\\udc41");
	expect(visible("\u05e9 \u{1f469}\u200d\u{1f467}")).toBe("\u05e9 \u{1f469}\u200d\u{1f467}");
});
