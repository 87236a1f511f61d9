import { expect, test } from "vitest";
import { lines } from "./diff";

const text = (a: string, b: string) => lines(a, b).map((l) => ({ a: "-", b: "+", both: " " })[l.side] + l.text);

test("lines that both have stay, the others are of one side", () => {
	expect(text("a\nb\nc", "a\nc\nd")).toEqual([" a", "-b", " c", "+d"]);
	expect(text("", "x")).toEqual(["+x"]);
	expect(text("x", "")).toEqual(["-x"]);
	expect(text("", "")).toEqual([]);
	expect(text("a\nx\nb", "a\ny\nb")).toEqual([" a", "-x", "+y", " b"]);
});

test("very long texts are shown one after the other", () => {
	const long = Array.from({ length: 1001 }, (_, i) => `${i}`).join("\n");
	expect(lines(long, "0")).toHaveLength(1002);
});
