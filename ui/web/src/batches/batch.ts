import type { Schemas } from "../api/client";
import { count, many } from "../format";

export type Batch = Schemas["Batch"];
type Counts = NonNullable<Batch["counts"]>;

export const batchId = (b: Batch): string => b.id ?? "";

/** The states of the tasks of a batch, in the order in which they are drawn. What ended well comes first. */
export const parts = ["completed", "dead", "cancelled", "running", "waiting"] as const;
export type Part = (typeof parts)[number];

/** Share is a part of the bar of a batch: where it begins and how long it is, of 1. */
export interface Share {
	part: Part;
	n: number;
	from: number;
	length: number;
}

/** sharesOf lays the counts of a batch out as a bar. A part that is not empty is at least a hundredth of it, so that it is seen. */
export function sharesOf(c: Counts | undefined): Share[] {
	const all = parts.map((part) => ({ part, n: c?.[part] ?? 0 })).filter((p) => p.n > 0);
	const sum = all.reduce((n, p) => n + p.n, 0);
	const least = all.map((p) => Math.max(0.01, p.n / sum));
	const long = least.reduce((n, l) => n + l, 0);
	let from = 0;
	return all.map((p, i) => {
		const length = least[i]! / long;
		const share = { ...p, from, length };
		from += length;
		return share;
	});
}

/** openOf is how many tasks of a batch have not ended. */
export const openOf = (c: Counts | undefined): number => (c?.waiting ?? 0) + (c?.running ?? 0);

/** endedText says how far a batch is: "37 / 40". */
export const endedText = (c: Counts | undefined): string =>
	`${count((c?.total ?? 0) - openOf(c))} / ${count(c?.total ?? 0)}`;

/** summaryOf says the counts of a batch in words, for those who cannot see the bar. */
export function summaryOf(c: Counts | undefined): string {
	const shares = sharesOf(c);
	if (shares.length === 0) return "no task was added";
	return `${many(c?.total, "task")}: ${shares.map((s) => `${count(s.n)} ${s.part}`).join(", ")}`;
}

/** Follow is a task that a batch makes when it finishes. */
export interface Follow {
	when: "done" | "success";
	queue: string;
	kind: string;
	/** Id of the task, once it is made. */
	task: string | undefined;
	/** Why there is none. */
	says: string;
}

/** followsOf are the tasks that a batch makes, and what became of each. */
export function followsOf(b: Batch): Follow[] {
	const of = (when: Follow["when"], template: Batch["on_done"], task: string | undefined): Follow[] =>
		template
			? [
					{
						when,
						queue: template.queue ?? "",
						kind: template.kind || (template.queue ?? ""),
						task: task || undefined,
						says: task ? "" : missing(b, when),
					},
				]
			: [];
	return [...of("done", b.on_done, b.done_task), ...of("success", b.on_success, b.success_task)];
}

/** missing says why a batch has not made a task. */
function missing(b: Batch, when: Follow["when"]): string {
	const c = b.counts;
	const failed = (c?.dead ?? 0) + (c?.cancelled ?? 0) > 0 || !!b.cancel?.at;
	if (b.state !== "finished")
		return when === "success"
			? "made when the batch finishes, if each of its tasks was completed"
			: "made when the batch finishes";
	// What is dead now may have been redriven since.
	if (when === "success" && (failed || !b.refused)) return "not made: not all of its tasks were completed";
	return "not made yet: the server tries again";
}
