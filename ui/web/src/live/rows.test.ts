import { expect, test } from "vitest";
import { overlaid } from "./rows";

const id = (r: { name: string }) => r.name;
const read = [
	{ name: "a", n: 1, strip: "xx" },
	{ name: "c", n: 3, strip: "yy" },
];
const told = (...rows: { name: string; n: number; strip: string }[]) => new Map(rows.map((r) => [r.name, r]));

test("cells are those that are told, and rows keep their order", () => {
	const now = told({ name: "c", n: 30, strip: "" }, { name: "a", n: 10, strip: "" });
	expect(overlaid(read, now, { id, whole: true }).map((r) => [r.name, r.n])).toEqual([
		["a", 10],
		["c", 30],
	]);
	const join = (was: { strip: string }, is: (typeof read)[0]) => ({ ...is, strip: was.strip });
	expect(overlaid(read, now, { id, whole: true, join }).map((r) => r.strip)).toEqual(["xx", "yy"]);
});

test("what a whole topic lacks is gone, and what came is added", () => {
	const now = told({ name: "b", n: 2, strip: "" }, { name: "c", n: 3, strip: "" });
	expect(overlaid(read, now, { id, whole: true }).map(id)).toEqual(["c", "b"]);
});

test("of what a part of a topic lacks nothing is known", () => {
	const now = told({ name: "b", n: 2, strip: "" }, { name: "c", n: 30, strip: "" });
	expect(overlaid(read, now, { id, whole: false }).map((r) => [r.name, r.n])).toEqual([
		["a", 1],
		["c", 30],
	]);
});
