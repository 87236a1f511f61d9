import { expect, it } from "vitest";
import { diffLines } from "./diff";

const shown = (a: string, b: string) => diffLines(a, b).map((l) => l.op + l.text);

it("shows what only one of two texts has", () => {
	expect(shown("a\nb\nc", "a\nx\nc\nd")).toEqual([" a", "-b", "+x", " c", "+d"]);
	expect(shown("a", "a")).toEqual([" a"]);
	expect(shown("", "a")).toEqual(["+a"]);
});

it("leads from either side to that side", () => {
	const a = "one\ntwo\ntwo\nthree";
	const b = "two\none\ntwo\nfour\nthree";
	const lines = diffLines(a, b);
	expect(
		lines
			.filter((l) => l.op !== "+")
			.map((l) => l.text)
			.join("\n"),
	).toBe(a);
	expect(
		lines
			.filter((l) => l.op !== "-")
			.map((l) => l.text)
			.join("\n"),
	).toBe(b);
});
