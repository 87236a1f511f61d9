import type { Schemas } from "../api/client";
import { parseTime } from "../format";

type Worker = Schemas["Worker"];

/** How a worker is: it takes tasks, has all its slots in use, is given none, or was not heard of for a while. */
export type How = "takes" | "full" | "quiet" | "silent";

/** A caller of claims is heard of when it claims. A worker with a stream may have nothing to say for hours: the server closes a dead stream. */
const silentAfter = 60_000;

export function howOf(w: Worker, now: number): How {
	const seen = parseTime(w.seen_at);
	if (seen !== undefined && now - seen > silentAfter && !w.sessions?.length) return "silent";
	if (w.quiet) return "quiet";
	return w.slots && (w.running ?? 0) >= w.slots ? "full" : "takes";
}

/** matches tells whether each word is part of a worker's name, host, client, or one of its queues. */
export function matches(w: Worker, words: string): boolean {
	const text = [w.id, w.host, w.sdk, ...(w.queues ?? []), ...(w.nodes ?? [])].join("\n").toLowerCase();
	return words
		.toLowerCase()
		.split(/\s+/)
		.every((word) => text.includes(word));
}
