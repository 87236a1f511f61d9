interface Told<T> {
	id: (row: T) => string;
	/** The topic tells of all rows that there are: those that it lacks are gone, and those that came are added at the end. */
	whole: boolean;
	/** What a row is, of what was read and what is told; where a topic leaves something out. */
	join?: (read: T, told: T) => T;
}

/** overlaid is a list that was read, with its rows as a topic tells them by now. Rows stay in their order. */
export function overlaid<T>(read: readonly T[], told: ReadonlyMap<string, T>, o: Told<T>): T[] {
	const known = new Set<string>();
	const out: T[] = [];
	for (const row of read) {
		const id = o.id(row);
		const now = told.get(id);
		known.add(id);
		if (now) out.push(o.join ? o.join(row, now) : now);
		else if (!o.whole) out.push(row);
	}
	if (o.whole) for (const [id, row] of told) if (!known.has(id)) out.push(row);
	return out;
}
