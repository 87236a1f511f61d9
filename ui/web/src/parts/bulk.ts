import type { Schemas } from "../api/client";
import { parseTime } from "../format";

export type TaskFilter = Schemas["TaskFilter"];
export type BulkJob = Schemas["BulkJob"];
export type BulkCount = Schemas["BulkCount"];

/** BulkAction is what a job does to each task that it finds. redrive is retry of the dead. */
export type BulkAction = "redrive" | "retry" | "cancel" | "delete" | "reprioritise";

interface Verb {
	/** Word of the button. */
	name: string;
	/** What the server calls it. */
	action: NonNullable<BulkJob["action"]>;
	needs: string;
	/** What it does to each task. */
	what: string;
	/** What cannot be undone. */
	lost?: string;
	/** What a task was when it was done. */
	done: string;
}

const operate = "task:operate|admin";

export const verbs: Record<BulkAction, Verb> = {
	redrive: {
		name: "Redrive",
		action: "retry",
		needs: operate,
		what: "Each dead task becomes ready again. Its counts of failures and crashes start at 0.",
		done: "redriven",
	},
	retry: {
		name: "Retry",
		action: "retry",
		needs: operate,
		what: "Each dead or cancelled task becomes ready again. Its counts of failures and crashes start at 0.",
		done: "made ready",
	},
	cancel: {
		name: "Cancel tasks",
		action: "cancel",
		needs: operate,
		what: "Each task that waits or runs is cancelled. Workers are told to stop what they run.",
		lost: "A cancelled task does not run unless it is retried.",
		done: "cancelled",
	},
	delete: {
		name: "Delete",
		action: "delete",
		needs: "admin",
		what: "Each ended task is removed, with its payload, its result and its attempts.",
		lost: "A deleted task cannot be brought back.",
		done: "deleted",
	},
	reprioritise: {
		name: "Set priority",
		action: "prioritize",
		needs: operate,
		what: "Each ready or scheduled task gets the priority.",
		done: "changed",
	},
};

const actions: Record<string, string> = {
	cancel: "cancel",
	retry: "retry",
	delete: "delete",
	prioritize: "set the priority of",
};

/** actionName names what a job does, from its own words. */
export function actionName(job: Pick<BulkJob, "action" | "filter">): string {
	if (job.action === "retry" && job.filter?.state === "dead") return "redrive";
	return actions[job.action ?? ""] ?? job.action ?? "?";
}

/** filterText writes a filter as the tasks' screen reads it: "queue:mail state:dead". */
export function filterText(f: TaskFilter | undefined): string {
	if (!f) return "";
	const parts: [string, string | undefined][] = [
		["queue", f.queue],
		["state", f.state],
		["kind", f.kind],
		["worker", f.worker],
		["unique", f.unique],
		["error", f.fingerprint],
		["batch", f.batch],
		["after", f.from],
		["before", f.to],
		...Object.entries(f.labels ?? {}).map(([k, v]): [string, string] => [`label.${k}`, v]),
	];
	return parts
		.filter(([, v]) => v)
		.map(([k, v]) => `${k}:${/[\s"]/.test(v!) ? JSON.stringify(v) : v}`)
		.join(" ");
}

const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** newJobId names a job by the time and 68 random bits, in partition 0, so that its start may be asked for again. */
export function newJobId(ms: number, random = crypto.getRandomValues(new Uint8Array(9))): string {
	let n = BigInt(ms) & 0xffffffffffffn;
	n = (n << 12n) << 4n; // the partition, and the first four random bits
	n |= BigInt(random[8]! & 0x0f);
	for (const b of random.subarray(0, 8)) n = (n << 8n) | BigInt(b);
	let out = "";
	for (let i = 0; i < 26; i++) {
		out = alphabet[Number(n & 31n)] + out;
		n >>= 5n;
	}
	return out;
}

interface Pace {
	/** Part that is done, 0 to 1; undefined where nothing says how much there is. */
	part: number | undefined;
	/** Tasks a second, since the job began. */
	perSecond: number | undefined;
	/** Milliseconds until it is through, at this rate. */
	rest: number | undefined;
}

/** pace tells how far a job is, its rate so far, and how long the rest takes by what the server tells of its end. */
export function pace(job: BulkJob, now: number): Pace {
	const handled = (job.done ?? 0) + refusedOf(job);
	const matched = job.matched ?? 0;
	if (job.state !== "running")
		return { part: job.state === "done" ? 1 : ratio(handled, matched), ...ended(job, handled) };
	const began = Date.parse(job.started_at ?? "");
	const ran = (now - began) / 1000;
	const perSecond = ran >= 1 ? handled / ran : undefined;
	const eta = parseTime(job.eta);
	const rest = eta === undefined ? undefined : Math.max(0, eta - now);
	return { part: ratio(handled, matched), perSecond, rest };
}

function ended(job: BulkJob, handled: number): Pick<Pace, "perSecond" | "rest"> {
	const ran = (Date.parse(job.ended_at ?? "") - Date.parse(job.started_at ?? "")) / 1000;
	return { perSecond: ran > 0 ? handled / ran : undefined, rest: undefined };
}

function ratio(a: number, b: number): number | undefined {
	return b > 0 ? Math.min(1, a / b) : undefined;
}

/** refusedOf counts the tasks that a job did nothing to. */
export function refusedOf(job: BulkJob): number {
	return (job.refused ?? []).reduce((n, r) => n + (r.count ?? 0), 0);
}

/** sumCounts adds up what dry runs found. */
export function sumCounts(counts: readonly BulkCount[]): BulkCount {
	const times = (pick: (c: BulkCount) => string | undefined) =>
		counts
			.map(pick)
			.filter((t) => t !== undefined)
			.sort();
	const oldest = times((c) => c.oldest)[0];
	const newest = times((c) => c.newest).at(-1);
	return {
		count: counts.reduce((n, c) => n + (c.count ?? 0), 0),
		exact: counts.every((c) => c.exact),
		inspected: counts.reduce((n, c) => n + (c.inspected ?? 0), 0),
		...(oldest ? { oldest } : {}),
		...(newest ? { newest } : {}),
		sample: counts.flatMap((c) => c.sample ?? []).slice(0, 10),
	};
}
