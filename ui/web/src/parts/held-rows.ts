import { useRef, useState } from "react";

/** Held is the order in which rows are shown, until it is asked for another. */
export interface Held<T> {
	ids: string[];
	/** Each row as it was read last. */
	known: Map<string, T>;
}

/** holdRows takes the rows in, in their order. */
export function holdRows<T>(rows: readonly T[], id: (row: T) => string): Held<T> {
	return { ids: rows.map(id), known: new Map(rows.map((r) => [id(r), r])) };
}

/** shownOf is what is shown of a list that was read again: the rows of before in their order, with what is new in their cells. */
export function shownOf<T>(held: Held<T>, rows: readonly T[], id: (row: T) => string) {
	const there = new Set<string>();
	let newer = 0;
	for (const r of rows) {
		there.add(id(r));
		if (held.known.has(id(r))) held.known.set(id(r), r);
		else newer++;
	}
	return { rows: held.ids.map((i) => held.known.get(i)!), gone: new Set(held.ids.filter((i) => !there.has(i))), newer };
}

/**
 * useHeldRows shows a list that is read again and again without moving its rows: cells change in place, rows that went are grey, and
 * new ones are counted until `show`. Another `key` (an order, a filter, one more page) shows the list as it is.
 */
export function useHeldRows<T>(rows: readonly T[] | undefined, id: (row: T) => string, key: string) {
	const held = useRef<{ key: string; held: Held<T> }>(undefined);
	const [, again] = useState(0);
	if (rows && held.current?.key !== key) held.current = { key, held: holdRows(rows, id) };
	const show = () => {
		held.current = undefined;
		again((n) => n + 1);
	};
	if (!rows || !held.current) return { rows: [] as T[], gone: new Set<string>(), newer: 0, show };
	return { ...shownOf(held.current.held, rows, id), show };
}
