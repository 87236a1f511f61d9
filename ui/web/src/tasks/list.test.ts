import { expect, test } from "vitest";
import type { Task } from "./filter";
import { pageLength, TaskList } from "./list";

const id = (n: number) => `t${String(n).padStart(6, "0")}`;

/** A server with tasks of the numbers from..to, the last one first. */
function server(to: number, from = 0) {
	const calls = { list: 0, got: [] as string[][] };
	const all = new Map<string, Task>();
	for (let n = from; n <= to; n++) all.set(id(n), { id: id(n), state: "ready" });
	const list = async (cursor: string) => {
		calls.list++;
		const ids = [...all.keys()].sort().reverse();
		const at = cursor === "" ? 0 : ids.findIndex((x) => x < cursor);
		const page = ids.slice(at, at + pageLength);
		const more = at + pageLength < ids.length;
		return { tasks: page.map((x) => all.get(x)!), cursor: more ? page.at(-1)! : "", inspected: page.length };
	};
	const get = async (ids: string[]) => {
		calls.got.push(ids);
		return ids.flatMap((x) => all.get(x) ?? []);
	};
	return { all, calls, list: new TaskList(list, get) };
}

test("pages follow each other to the end", async () => {
	const s = server(249);
	for (let i = 0; i < 5; i++) await s.list.more();
	expect(s.list.rows.length).toBe(250);
	expect(s.list.open).toBe(false);
	expect(s.calls.list).toBe(3);
	expect(s.list.inspected).toBe(250);
});

test("rows stay where they are, their cells change, and what is gone says so", async () => {
	const s = server(9);
	await s.list.more();
	s.list.onRange(0, 4);
	s.all.set(id(9), { id: id(9), state: "running" });
	s.all.delete(id(8));
	await s.list.refresh();
	expect(s.list.rows.map((r) => r.id).slice(0, 3)).toEqual([id(9), id(8), id(7)]);
	expect(s.list.rows[0]?.task?.state).toBe("running");
	expect(s.list.rows[1]).toMatchObject({ gone: true, task: { state: "ready" } });
	expect(s.calls.got).toEqual([[id(9), id(8), id(7), id(6), id(5)]]); // only what is seen
});

test("what is newer is counted, not shown", async () => {
	const s = server(9);
	await s.list.more();
	for (let n = 10; n < 47; n++) s.all.set(id(n), { id: id(n) });
	await s.list.peek();
	expect([s.list.newer, s.list.newerMore, s.list.rows.length]).toEqual([37, false, 10]);
	for (let n = 47; n < 400; n++) s.all.set(id(n), { id: id(n) });
	await s.list.peek();
	expect([s.list.newer, s.list.newerMore]).toEqual([pageLength, true]);
});

test("rows far from what is seen keep their ids only, and come back", async () => {
	const s = server(2999);
	for (let i = 0; i < 30; i++) {
		s.list.onRange(s.list.rows.length - 20, s.list.rows.length - 1);
		await s.list.more();
	}
	expect(s.list.rows.length).toBe(3000);
	expect(s.list.rows.filter((r) => r.task).length).toBeLessThan(1300);
	expect(s.list.rows[0]).toEqual({ id: id(2999), task: undefined, gone: false });
	s.list.onRange(0, 20);
	await s.list.refresh();
	expect(s.list.rows[0]?.task?.id).toBe(id(2999));
});

test("a thin page waits for who looks", async () => {
	let n = 0;
	const list = new TaskList(
		async () => ({ tasks: n++ < 2 ? [] : [{ id: "a" }], cursor: n < 3 ? `c${n}` : "", inspected: 10_000 }),
		async () => [],
	);
	await list.more();
	expect([list.open, list.thin, list.inspected]).toEqual([true, true, 10_000]);
	list.onEnd();
	await list.peek(); // looking at 10,000 tasks again and again is not cheap
	expect(n).toBe(1);
	await list.more();
	await list.more();
	expect([list.rows.length, list.open, list.inspected]).toEqual([1, false, 30_000]);
});

test("an error keeps the rows, and the page is asked for again", async () => {
	let fail = true;
	const list = new TaskList(
		async () => {
			if (fail) throw new Error("x");
			return { tasks: [{ id: "a" }], cursor: "", inspected: 1 };
		},
		async () => [],
	);
	await list.more();
	expect(list.error).toBeInstanceOf(Error);
	fail = false;
	await list.more();
	expect([list.error, list.rows.length]).toEqual([undefined, 1]);
});
