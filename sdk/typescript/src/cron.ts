// Crons: tasks by a schedule.
import type { Client } from "./client.js";
import { newId } from "./core/place.js";
import { invalid, millis, type Span } from "./errors.js";
import {
	CronChangeKind,
	type CronConfigCatchUp,
	type CronConfigOverlap,
	CronRunOutcome,
	ListCronsRequest,
	type Cron as WireCron,
	type CronRun as WireRun,
} from "./gen/millrace/v1/cron.js";
import { State, type TaskSpec } from "./gen/millrace/v1/task.js";
import { type CallOptions, ofOneTask, stateName, type TemplateOptions, templateOf } from "./job.js";
import { methods } from "./methods.js";
import { fromDuration, fromTimestamp, toDuration, toTimestamp } from "./time.js";

/** Options of a cron: those of its tasks, and its own. */
export interface CronOptions extends TemplateOptions, CallOptions {
	/** Of the schedule, by its name in the IANA database. Default: UTC. */
	zone?: string;
	/**
	 * What a slot does while the task of the run before has not ended. skip, the default: it makes no task; allow: one all the same; queue_one:
	 * one when that task has ended; cancel_previous: that task is cancelled, and one is made when it has ended.
	 */
	overlap?: Overlap;
	/** Which slots that were missed run. Default: one, the last. */
	catchUp?: CatchUp;
	/** Each task waits for a part of it. It must be shorter than the time between two slots, and at most a day. */
	jitter?: Span;
	/** No slot before it; @every counts from it. */
	start?: Date;
	/** No slot after it. */
	end?: Date;
	/** Slots go by until it is resumed. */
	paused?: boolean;
	/** The version that it must have; 0: it must not be there yet. */
	ifVersion?: bigint | number;
}

export type Overlap = "skip" | "allow" | "queue_one" | "cancel_previous";
export type CatchUp = "one" | "none" | "all";

/** A cron, and where it stands. */
export interface CronInfo {
	name: string;
	schedule: string;
	/** Empty: UTC. */
	zone: string;
	/** The schedule in English. */
	words: string;
	/** Milliseconds. */
	jitter: number;
	start: Date | undefined;
	end: Date | undefined;
	paused: boolean;
	overlap: Overlap;
	catchUp: CatchUp;
	/** Of its tasks, as what follows. */
	queue: string;
	kind: string;
	payload: Buffer;
	contentType: string;
	priority: number;
	tag: string;
	key: string;
	cost: number;
	limiters: string[];
	headers: Record<string, string>;
	labels: Record<string, string>;
	version: bigint;
	/** Its next slot. */
	nextAt: Date | undefined;
	/** The slot of the run that waits for the end of a task. */
	waitingAt: Date | undefined;
	createdAt: Date | undefined;
	updatedAt: Date | undefined;
	/** Name of the token that changed it last. */
	by: string;
	/** Ever. */
	runs: number;
	lastRun: CronRun | undefined;
}

/** A run of a cron. */
export interface CronRun {
	/** From 1. */
	number: number;
	/** When it was due; of a run by hand, when it was asked for. */
	slot: Date;
	/** When that was done. */
	at: Date;
	byHand: boolean;
	outcome: "started" | "waiting" | "skipped" | "refused" | "unknown";
	/** Why it made no task: overlap, missed or replaced. */
	skipped: string;
	/** The id of its task, or of the one that it will make; empty: it made none. */
	task: string;
	/** That of the task; empty: the task is not there any more. */
	state: string;
	/** Slots that were passed over before it; 100 stands for 100 and more. */
	passed: number;
	/** Why the task was refused. */
	code: string;
	message: string;
}

/** When a schedule holds. */
export interface CronPreview {
	/** The schedule in English. */
	words: string;
	/** Its next slots in RFC 3339, with the offset from UTC that the zone has then. */
	times: string[];
	/** The changes of the zone's clocks within a year, at most 4. */
	changes: CronChange[];
}

/** A change of the clocks of a zone, and what it does to a schedule. */
export interface CronChange {
	/** The first instant after it. */
	at: Date;
	/** Milliseconds that the clocks are moved; negative: back. */
	by: number;
	/** What it does to the schedule, in English. */
	words: string;
	/** The slots that it moved, or that are within the time that comes twice, as times of a preview. */
	slots: string[];
}

const pageSize = 1000;
const overlaps: Overlap[] = ["skip", "allow", "queue_one", "cancel_previous"]; // by number, as the words below
const catchUps: CatchUp[] = ["one", "none", "all"];

function numberOf(field: string, words: string[], word: string): number {
	const n = words.indexOf(word);
	if (n < 0) throw invalid(field, `must be ${words.slice(0, -1).join(", ")} or ${words.at(-1)}`);
	return n;
}

const outcomes: Partial<Record<CronRunOutcome, CronRun["outcome"]>> = {
	[CronRunOutcome.STARTED]: "started",
	[CronRunOutcome.WAITING]: "waiting",
	[CronRunOutcome.SKIPPED]: "skipped",
	[CronRunOutcome.REFUSED]: "refused",
};

function runOf(r: WireRun): CronRun {
	return {
		number: Number(r.number),
		slot: fromTimestamp(r.slot)!,
		at: fromTimestamp(r.at)!,
		byHand: r.byHand,
		outcome: outcomes[r.outcome] ?? "unknown",
		skipped: r.skipped,
		task: r.task,
		state: r.state === State.STATE_UNSPECIFIED ? "" : stateName(r.state),
		passed: r.passed,
		code: r.error?.code ?? "",
		message: r.error?.message ?? "",
	};
}

function infoOf(c: WireCron): CronInfo {
	const g = c.config!;
	const t = g.template!;
	return {
		name: c.name,
		schedule: g.schedule,
		zone: g.zone,
		words: c.words,
		jitter: fromDuration(g.jitter),
		start: fromTimestamp(g.start),
		end: fromTimestamp(g.end),
		paused: g.paused,
		overlap: overlaps[g.overlap] ?? "skip",
		catchUp: catchUps[g.catchUp] ?? "one",
		queue: t.queue,
		kind: t.kind || t.queue,
		payload: t.payload,
		contentType: t.contentType || "application/json",
		priority: t.priority,
		tag: t.tag,
		key: t.key,
		cost: t.cost || 1,
		limiters: t.limiters,
		headers: Object.fromEntries(t.headers.map((h) => [h.name, h.value])),
		labels: t.labels,
		version: c.version,
		nextAt: fromTimestamp(c.nextAt),
		waitingAt: fromTimestamp(c.waitingAt),
		createdAt: fromTimestamp(c.createdAt),
		updatedAt: fromTimestamp(c.updatedAt),
		by: c.by,
		runs: Number(c.runs),
		lastRun: c.lastRun && runOf(c.lastRun),
	};
}

/** Lists crons, page by page. */
export async function* crons(client: Client, o: { prefix?: string } & CallOptions): AsyncGenerator<CronInfo> {
	let cursor = "";
	do {
		const request = ListCronsRequest.fromPartial({ limit: pageSize, cursor, prefix: o.prefix ?? "" });
		const page = await client.engine.call(methods.listCrons, request, o);
		for (const c of page.crons) yield infoOf(c);
		cursor = page.cursor;
	} while (cursor);
}

/** Says when a schedule holds. */
export async function previewCron(
	client: Client,
	schedule: string,
	o: { zone?: string; count?: number; after?: Date } & CallOptions,
): Promise<CronPreview> {
	const from = o.after && toTimestamp(o.after);
	const request = { schedule, zone: o.zone ?? "", count: o.count ?? 5, from };
	const r = await client.engine.call(methods.previewCron, request, o);
	return {
		words: r.words,
		times: r.times,
		changes: r.dst.map((d) => ({
			at: fromTimestamp(d.at)!,
			by: d.kind === CronChangeKind.REPEATED ? -fromDuration(d.by) : fromDuration(d.by),
			words: d.words,
			slots: d.slots,
		})),
	};
}

/** A cron, by its name. Job.cron makes one. One that is not there is NOT_FOUND. */
export class Cron {
	readonly name: string;
	readonly #client: Client;

	/** @internal */
	constructor(client: Client, name: string) {
		this.#client = client;
		this.name = name;
	}

	/** @internal Refuses options that its tasks cannot share. */
	check(o: CronOptions): void {
		for (const name of ofOneTask) {
			if (name in o) throw invalid(`template.${name}`, "must not be set: each run has its own");
		}
	}

	/** @internal */
	async set(schedule: string, spec: TaskSpec, o: CronOptions): Promise<CronInfo> {
		const overlap: CronConfigOverlap = numberOf("overlap", overlaps, o.overlap ?? "skip");
		const catchUp: CronConfigCatchUp = numberOf("catchUp", catchUps, o.catchUp ?? "one");
		const config = {
			schedule,
			zone: o.zone ?? "",
			template: templateOf(spec),
			jitter: o.jitter === undefined ? undefined : toDuration(millis(o.jitter)),
			start: o.start && toTimestamp(o.start),
			end: o.end && toTimestamp(o.end),
			paused: o.paused ?? false,
			overlap,
			catchUp,
		};
		const ifVersion = o.ifVersion === undefined ? undefined : BigInt(o.ifVersion);
		return infoOf((await this.#client.engine.call(methods.setCron, { name: this.name, config, ifVersion }, o)).cron!);
	}

	/** Reads it. */
	async get(o: CallOptions = {}): Promise<CronInfo> {
		return infoOf((await this.#client.engine.call(methods.getCron, { name: this.name, stale: false }, o)).cron!);
	}

	/** Lets its slots go by until it is resumed. Returns whether it was paused before. */
	async pause(o: CallOptions = {}): Promise<boolean> {
		return (await this.#client.engine.call(methods.pauseCron, { name: this.name }, o)).replayed;
	}

	/** Lets it go on. Returns whether it was not paused. */
	async resume(o: CallOptions = {}): Promise<boolean> {
		return (await this.#client.engine.call(methods.resumeCron, { name: this.name }, o)).replayed;
	}

	/** Runs it now, also when it is paused, and tells what the run came to. Its next slot stays. id: of the task, by newId. */
	async trigger(o: { id?: string } & CallOptions = {}): Promise<CronRun> {
		const id = o.id ?? newId(); // with it the call can be repeated
		return runOf((await this.#client.engine.call(methods.triggerCron, { name: this.name, id }, o)).run!);
	}

	/** Its last runs, at most 100, the last one first. */
	async runs(o: CallOptions = {}): Promise<CronRun[]> {
		return (await this.#client.engine.call(methods.cronRuns, { name: this.name, stale: false }, o)).runs.map(runOf);
	}

	/** Removes it with the list of its runs. Its tasks stay. */
	async delete(o: { ifVersion?: bigint | number } & CallOptions = {}): Promise<void> {
		const ifVersion = o.ifVersion === undefined ? undefined : BigInt(o.ifVersion);
		await this.#client.engine.call(methods.deleteCron, { name: this.name, ifVersion }, o);
	}
}
