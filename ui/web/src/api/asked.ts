import type { QueryCache } from "@tanstack/react-query";

/** How many answers are remembered. */
const most = 1000;

/** When what was answered had been asked for, by the time of the answer. */
const asked = new Map<number, number>();

/**
 * noteReads notes of each read of a cache when it was asked for. The cache knows only when it was answered, and what a stream tells
 * in between may be newer than the answer.
 */
export function noteReads(cache: QueryCache): void {
	const began = new Map<string, number>();
	cache.subscribe((event) => {
		const hash = event.query.queryHash;
		if (event.type === "removed") began.delete(hash);
		if (event.type !== "updated") return;
		const { action } = event;
		if (action.type === "fetch") began.set(hash, Date.now());
		if (action.type !== "success" || action.manual) return;
		const answered = event.query.state.dataUpdatedAt;
		// Of several that were answered in one millisecond the first counts: what is told hides the others for a moment longer.
		asked.set(answered, Math.min(asked.get(answered) ?? answered, began.get(hash) ?? answered));
		for (const old of asked.keys()) {
			if (asked.size <= most) break;
			asked.delete(old);
		}
	});
}

/** askedAt is when something was asked for that was answered at a time. */
export function askedAt(answered: number): number {
	return asked.get(answered) ?? answered;
}
