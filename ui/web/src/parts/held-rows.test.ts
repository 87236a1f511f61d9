import { expect, it } from "vitest";
import { holdRows, shownOf } from "./held-rows";

interface Row {
	id: string;
	n: number;
}

const id = (r: Row) => r.id;

it("keeps the order of rows, and changes their cells", () => {
	const held = holdRows<Row>(
		[
			{ id: "b", n: 9 },
			{ id: "a", n: 1 },
		],
		id,
	);
	const now = shownOf(
		held,
		[
			{ id: "a", n: 20 },
			{ id: "b", n: 8 },
			{ id: "c", n: 3 },
		],
		id,
	);
	expect(now.rows.map((r) => `${r.id}${r.n}`)).toEqual(["b8", "a20"]);
	expect([now.newer, now.gone.size]).toEqual([1, 0]);
});

it("keeps what went, as it was", () => {
	const held = holdRows<Row>([{ id: "a", n: 1 }], id);
	const now = shownOf(held, [], id);
	expect(now.rows).toEqual([{ id: "a", n: 1 }]);
	expect([...now.gone]).toEqual(["a"]);
});
