import type { Schemas } from "../api/client";
import { count, many, parseTime } from "../format";
import { type BoundsForm, boundsFormOf, boundsOf, boundsWrong, rateText } from "../parts/bounds";

export type Limiter = Schemas["Limiter"];
export type LimiterConfig = Schemas["LimiterConfig"];

export const limiterId = (x: Limiter): string => x.name ?? "";

/** How a limiter is: it has room, is full, waits for its rate, or bounds nothing. */
export type Standing = "room" | "full" | "rate" | "nothing";

/** most is how much may run under a limiter at once, in all partitions of the namespace together; undefined: there is no bound. */
export const most = (x: Limiter, partitions: number): number | undefined =>
	x.concurrency ? x.concurrency * Math.max(1, partitions) : undefined;

/** standingOf says whether a task of cost 1 could begin by now, which is in milliseconds. */
export function standingOf(x: Limiter, partitions: number, now: number): Standing {
	if (!x.concurrency && !x.rate) return "nothing";
	const all = most(x, partitions);
	if (all !== undefined && (x.used ?? 0) >= all) return "full";
	return (parseTime(x.until) ?? 0) > now ? "rate" : "room";
}

/** usedText says how much of a limiter is used, for those who cannot see a bar. */
export function usedText(x: Limiter, partitions: number): string {
	const all = most(x, partitions);
	if (all === undefined) return `tasks that cost ${count(x.used ?? 0)} run, without a bound`;
	const each = partitions > 1 ? `, ${count(x.concurrency)} in each of ${many(partitions, "partition")}` : "";
	return `tasks that cost ${count(x.used ?? 0)} of at most ${count(all)} run${each}`;
}

/** boundsText writes what a limiter bounds: "2 at once, 600 per 1m". */
export function boundsText(x: LimiterConfig): string {
	const parts = [x.concurrency ? `${count(x.concurrency)} at once` : undefined, rateText(x.rate)];
	return parts.filter(Boolean).join(", ") || "nothing";
}

/** Form is a limiter as it is typed. */
export interface Form extends BoundsForm {
	name: string;
}

export const formOf = (x: Limiter | undefined): Form => ({ name: x?.name ?? "", ...boundsFormOf(x) });
export const configOf = (f: Form): LimiterConfig => boundsOf(f);
export const wrongOf = boundsWrong;

/** sameBounds tells whether two limiters bound the same. A burst of as much as the limit is as none. */
export const sameBounds = (a: LimiterConfig, b: LimiterConfig): boolean => boundsText(a) === boundsText(b);

/** named says which queue or tasks name a limiter, which then cannot be removed; empty: none is known. */
export function named(x: Limiter): string {
	const parts = [
		(x.tasks ?? 0) > 0 ? many(x.tasks, "task that has not ended", "tasks that have not ended") : "",
		x.queues?.length ? `${many(x.queues.length, "queue")}: ${x.queues.join(", ")}` : "",
	];
	return parts.filter(Boolean).join(" and ");
}

/** withFigures is a limiter as a list tells it, with who holds it and who names it, which is read of one limiter alone. */
export function withFigures(read: Limiter, told: Limiter | undefined): Limiter {
	if (!told) return read;
	const { held_by, queues } = read;
	return { ...told, ...(held_by ? { held_by } : {}), ...(queues ? { queues } : {}) };
}
