import type { Schemas } from "../api/client";
import { parseSpan, parseTime, span } from "../format";
import type { Task } from "./filter";

export type Attempt = Schemas["Attempt"];
type Older = Schemas["OutcomeCount"];

/** Bar is a stretch of time in a row. Times are in milliseconds. */
interface Bar {
	/** queue: it was ready, and no worker had it. work: a worker held it. lease: what is left of a lease. wait: it was not to run yet. */
	kind: "queue" | "work" | "lease" | "wait";
	from: number;
	to: number;
}

/** Try is one attempt. */
interface Try {
	kind: "try";
	at: number;
	number: number;
	worker: string;
	/** Fencing token of one that has ended; one that runs has none here. */
	token: string | undefined;
	/** Undefined while it runs. */
	outcome: Attempt["outcome"];
	bars: Bar[];
	/** What became of it, in words. */
	says: string;
	/** How long the task waits after it, in words. */
	after: string;
	attempt: Attempt;
}

/** Mark is a row that is not an attempt. */
interface Mark {
	kind: "created" | "older" | "now" | "ended";
	at: number | undefined;
	/** Of now and ended: the task's state. */
	state?: Task["state"];
	bars: Bar[];
	says: string;
}

export type Row = Try | Mark;

export interface Timeline {
	rows: Row[];
	/** First and last time that is shown. */
	from: number;
	to: number;
	/** Tokens that change nothing any more, oldest first. */
	retired: string[];
	/** Of a task that runs: until when its lease lasts, and when that was said. */
	lease?: { until: number; all: number | undefined; renewed: number | undefined };
	/** Maps a time to its place, 0 to 1. */
	place: (t: number) => number;
}

const outcomes: Record<string, string> = {
	completed: "completed",
	failed: "failed",
	timeout: "timed out",
	crashed: "crashed",
	snoozed: "snoozed",
	released: "released",
	cancelled: "cancelled",
};

/**
 * timeline lays out what is stored of a task's attempts. Nothing in it is guessed: what the server does not keep is said to be not kept.
 * now is the server's time in milliseconds.
 */
export function timeline(task: Task, attempts: readonly Attempt[], older: readonly Older[], now: number): Timeline {
	const rows: Row[] = [];
	const created = parseTime(task.created_at) ?? now;
	const runAt = parseTime(task.run_at);
	const first = attempts[0];
	rows.push({
		kind: "created",
		at: created,
		bars: [],
		says: `created${task.creator ? ` by ${task.creator}` : ""}`,
	});
	const gone = older.reduce((n, o) => n + (o.count ?? 0), 0);
	if (gone > 0)
		rows.push({
			kind: "older",
			at: undefined,
			bars: [],
			says: `${gone === 1 ? "try 1 is" : `tries 1 to ${gone} are`} not kept: ${older
				.map((o) => `${o.count} ${o.outcome ? outcomes[o.outcome] : "of unknown outcome"}`)
				.join(", ")}`,
		});
	const retired: string[] = [];
	let lease: Timeline["lease"];
	let before = gone > 0 ? undefined : created; // when the attempt before ended
	for (const [i, a] of attempts.entries()) {
		const start = parseTime(a.start) ?? now;
		const end = parseTime(a.end);
		const until = parseTime(a.lease_until);
		const ready = parseTime(a.ready_at);
		const next = attempts[i + 1];
		const bars: Bar[] = [];
		if (ready !== undefined) {
			// A task that was given back keeps its old place, so it may be ready since before the attempt before.
			const from = Math.max(ready, before ?? ready);
			if (i === 0 && gone === 0 && from > created) bars.push({ kind: "wait", from: created, to: from });
			if (start > from) bars.push({ kind: "queue", from, to: start });
		}
		bars.push({ kind: "work", from: start, to: Math.max(start, end ?? now) });
		let after = "";
		const retry = parseTime(a.retry_at);
		if (end === undefined) {
			if (until !== undefined) {
				if (until > now) bars.push({ kind: "lease", from: now, to: until });
				const all = parseSpan(task.lease);
				const said = all === undefined ? undefined : until - all;
				lease = { until, all, renewed: said !== undefined && said > start + 500 ? said : undefined };
			}
		} else {
			if (a.token) retired.push(a.token);
			if (retry !== undefined && retry > end) {
				const readied = parseTime(next?.ready_at);
				const early = readied !== undefined && readied >= end && readied < retry - 1 ? readied : undefined;
				bars.push({ kind: "wait", from: end, to: early ?? retry });
				after =
					early === undefined
						? `waits ${span(retry - end)}`
						: `was to wait ${span(retry - end)}, made ready after ${span(early - end)}`;
			} else if (a.outcome === "released") after = "back at its old place";
			else if (!next && task.state === "ready")
				after = ["failed", "timeout", "crashed", "snoozed"].includes(a.outcome ?? "") ? "ready again" : "";
		}
		rows.push({
			kind: "try",
			at: start,
			number: a.number ?? 0,
			worker: a.worker ?? "",
			token: end === undefined ? undefined : a.token,
			outcome: a.outcome,
			bars,
			says: said(a, start, end, until),
			after,
			attempt: a,
		});
		before = end ?? start;
	}
	const last = lastRow(task, rows, first !== undefined || gone > 0, created, before, runAt, now);
	if (last) rows.push(last);
	const times = [created, ...rows.flatMap((r) => r.bars.flatMap((b) => [b.from, b.to]))];
	for (const r of rows) if (r.at !== undefined) times.push(r.at);
	if (!task.finished_at) times.push(now);
	const from = gone > 0 && first ? Math.min(...times.filter((t) => t !== created)) : Math.min(...times);
	const shown = times.filter((t) => t >= from);
	const place = axis(shown);
	return { rows, from, to: Math.max(...shown), retired, place, ...(lease ? { lease } : {}) };
}

/** lastRow is the row of where the task is now, or of how it ended; undefined where the attempts say it. */
function lastRow(
	task: Task,
	rows: readonly Row[],
	tried: boolean,
	created: number,
	before: number | undefined,
	runAt: number | undefined,
	now: number,
): Mark | undefined {
	const state = task.state;
	const finished = parseTime(task.finished_at);
	switch (state) {
		case "ready": {
			const ready = parseTime(task.ready_at) ?? before ?? created;
			const from = Math.max(ready, before ?? ready);
			return { kind: "now", at: from, state, bars: [{ kind: "queue", from, to: Math.max(now, from) }], says: "ready" };
		}
		case "scheduled":
		case "blocked": {
			if (runAt === undefined) return { kind: "now", at: undefined, state, bars: [], says: state };
			// The wait after a failure stands in the row of its attempt.
			const shown = rows.some((r) => r.bars.some((b) => b.kind === "wait" && b.to === runAt));
			const from = before ?? created;
			const bars: Bar[] = shown || runAt <= from ? [] : [{ kind: "wait", from, to: runAt }];
			return { kind: "now", at: runAt, state, bars, says: runAt > now ? `runs in ${span(runAt - now)}` : "is due" };
		}
		case "dead":
			return { kind: "ended", at: finished, state, bars: [], says: `dead: ${deadBecause(task.reason)}` };
		case "cancelled": {
			const by = task.cancel?.by ? ` by ${task.cancel.by}` : "";
			const why = task.cancel?.reason ? `: ${task.cancel.reason}` : "";
			const bars: Bar[] =
				tried || finished === undefined || finished <= created ? [] : [{ kind: "queue", from: created, to: finished }];
			return { kind: "ended", at: finished, state, bars, says: `cancelled${by}${why}` };
		}
	}
	return undefined;
}

const reasons: Record<string, string> = {
	max_attempts: "as many failures as it may have (max_attempts)",
	max_crashes: "as many crashes as it may have (max_crashes)",
	max_deliveries: "as many deliveries as it may have (max_deliveries)",
	fatal: "its worker said that no further try can help (fatal)",
	expired: "no worker got it in time (expired)",
};

/** deadBecause says why a task is dead. */
export function deadBecause(reason: string | undefined): string {
	return reasons[reason ?? ""] ?? reason ?? "no reason is kept";
}

/** said tells what became of an attempt. */
function said(a: Attempt, start: number, end: number | undefined, until: number | undefined): string {
	if (end === undefined) return "running";
	const took = span(Math.max(0, end - start));
	switch (a.outcome) {
		case "completed":
			return `completed, took ${took}`;
		case "crashed":
			if (until === undefined || end >= until - 1) return `crashed after ${took}: its lease was over`;
			return `crashed after ${took}: its worker went away, ${span(until - end)} before its lease was over`;
		case "timeout":
			return `timed out after ${took}`;
		case "snoozed":
			return `snoozed after ${took}: its worker put it off`;
		case "released":
			return `released after ${took}`;
		case "cancelled":
			return `stopped after ${took}: its cancel was asked for`;
		case "failed": {
			const text = [a.error?.code, a.error?.message?.split("\n")[0]].filter(Boolean).join(" ");
			return `failed after ${took}${text ? `: ${text}` : ""}`;
		}
	}
	return a.outcome ?? "ended";
}

/**
 * axis maps times to places, in order. A stretch between two times that are shown takes room by the fourth root of its length, so that
 * an attempt of milliseconds is seen beside a wait of hours.
 */
export function axis(times: readonly number[]): (t: number) => number {
	const points = [...new Set(times)].sort((a, b) => a - b);
	const at = [0];
	for (let i = 1; i < points.length; i++) at.push(at[i - 1]! + (points[i]! - points[i - 1]!) ** 0.25);
	const all = at.at(-1)! || 1;
	return (t) => {
		if (points.length === 0 || t <= points[0]!) return 0;
		let i = 1;
		while (i < points.length && points[i]! < t) i++;
		if (i >= points.length) return 1;
		const [a, b] = [points[i - 1]!, points[i]!];
		const part = (t - a) / (b - a);
		return (at[i - 1]! + (at[i]! - at[i - 1]!) * part) / all;
	};
}
