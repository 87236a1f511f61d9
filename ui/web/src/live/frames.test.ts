import { expect, test } from "vitest";
import { asFrame, type Frame, fold, Parser, rowId } from "./frames";

const whole: Frame = {
	topic: "queues",
	stamp: "t1",
	whole: true,
	rows: [
		{ queue: "a", ready: 1 },
		{ queue: "b", ready: 2 },
	],
};

test("a whole frame, changes and rows that are gone lead to the rows of now", () => {
	const one = fold(undefined, whole)!;
	const two = fold(one, { topic: "queues", stamp: "t2", rows: [{ queue: "a", ready: 9 }], gone: ["b"] })!;
	expect([...two.rows.values()]).toEqual([{ queue: "a", ready: 9 }]);
	expect(two.stamp).toBe("t2");
	expect([...one.rows.keys()]).toEqual(["a", "b"]);
});

test("changes without what they change are dropped", () => {
	expect(fold(undefined, { topic: "queues", stamp: "t", rows: [{ queue: "a" }] })).toBeUndefined();
});

test("a topic of what is not there is not known", () => {
	expect(fold(undefined, { ...whole, rows: [], error: { code: "NOT_FOUND" } })).toBeUndefined();
});

test("what is known makes a whole frame for another tab", () => {
	const known = fold(undefined, whole)!;
	expect(fold(undefined, asFrame("queues", known))!.rows).toEqual(known.rows);
});

test("a row is named by its id, its queue or its name", () => {
	expect(rowId({ id: "1", queue: "q" })).toBe("1");
	expect(rowId({ queue: "q" })).toBe("q");
	expect(rowId({})).toBe("");
	expect(rowId({ id: "w", host: "a" }, "workers")).toBe("w\na");
	expect(rowId({ id: "w" }, "workers")).toBe("w\n");
});

test("events are cut wherever the stream was cut", () => {
	const text = 'id: n-1\nevent: queues\ndata: {"a":\ndata: 1}\n\n: comment\n\nid: n-2\ndata: {}\n\n';
	for (let i = 0; i <= text.length; i++) {
		const p = new Parser();
		const events = [...p.push(text.slice(0, i)), ...p.push(text.slice(i))];
		expect(events).toEqual([
			{ id: "n-1", data: '{"a":\n1}' },
			{ id: "n-2", data: "{}" },
		]);
	}
});

test("rows of the cluster are named after their part", () => {
	const rows = [
		{ node: { id: 1, name: "n1" } },
		{ shard: { shard: 0 } },
		{ link: { from: 1, to: 2 } },
		{ loss: { node: 1 } },
		{ cluster: {} },
	];
	expect(rows.map((r) => rowId(r))).toEqual(["node:1", "shard:0", "link:1:2", "loss:1", "cluster"]);
});
