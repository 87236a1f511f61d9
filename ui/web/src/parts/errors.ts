import type { Schemas } from "../api/client";
import { many } from "../format";
import type { TaskFilter } from "./bulk";

type ErrorGroup = Schemas["ErrorGroup"];

export const by = ["error", "kind", "queue"] as const;
type By = (typeof by)[number];

/** Group is errors that are shown in one row. */
export interface Group {
	key: string;
	title: string;
	message: string;
	/** Of a row that is one error; "other" is what found no room in a group. */
	fingerprint?: string;
	kinds: string[];
	queues: string[];
	count: number;
	trend: number[];
	first: string | undefined;
	last: string | undefined;
	/** Tasks that had it last, the last one first. */
	sample: string[];
	/** Filters that find the tasks. */
	filters: TaskFilter[];
}

/** grouped puts what the server grouped by queue and error into rows by error, by kind or by queue, those with the most errors first. */
export function grouped(errors: readonly ErrorGroup[], how: By): Group[] {
	const groups = new Map<string, ErrorGroup[]>();
	for (const e of errors) {
		// What found no room is of many errors: in each queue it is a row by itself.
		const key =
			how === "kind"
				? (e.kind ?? "")
				: how === "queue"
					? (e.queue ?? "")
					: e.fingerprint === "other"
						? `other ${e.queue}`
						: (e.fingerprint ?? "");
		groups.set(key, [...(groups.get(key) ?? []), e]);
	}
	return [...groups]
		.map(([key, list]) => rowOf(key, list, how))
		.sort((a, b) => b.count - a.count || (a.key < b.key ? -1 : 1));
}

const unique = (list: (string | undefined)[]) => [...new Set(list.filter((x): x is string => !!x))].sort();

function rowOf(key: string, list: ErrorGroup[], how: By): Group {
	const recent = [...list].sort((a, b) => ((a.last ?? "") < (b.last ?? "") ? 1 : -1));
	const newest = recent[0]!;
	const trend = new Array<number>(24).fill(0);
	for (const e of list) for (const [i, n] of (e.trend ?? []).entries()) if (i < 24) trend[i]! += n;
	const error =
		newest.fingerprint === "other" ? "other errors" : [newest.code, newest.message].filter(Boolean).join(" ");
	const message = how === "error" ? (newest.message ?? "") : `${many(list.length, "error")}, last ${error}`;
	const queues = unique(list.map((e) => e.queue));
	return {
		key,
		title: how === "error" ? error || "an error without a code and a message" : key || "without a kind",
		message,
		...(how === "error" && newest.fingerprint ? { fingerprint: newest.fingerprint } : {}),
		kinds: unique(list.map((e) => e.kind)),
		queues,
		count: list.reduce((n, e) => n + (e.count ?? 0), 0),
		trend,
		first: list
			.map((e) => e.first ?? "")
			.filter(Boolean)
			.sort()[0],
		last: newest.last,
		sample: recent.flatMap((e) => e.sample ?? []).slice(0, 5),
		filters:
			how === "kind"
				? queues.map((queue) => ({ queue, kind: key }))
				: how === "queue"
					? [{ queue: key }]
					: queues.map((queue) => ({ queue, ...(newest.fingerprint ? { fingerprint: newest.fingerprint } : {}) })),
	};
}
