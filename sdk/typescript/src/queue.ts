// Queues: their counters, their limits, their keys, and whether they give out tasks.
import { type BulkInfo, type RedriveOptions, startBulk } from "./bulk.js";
import type { Client } from "./client.js";
import { forget } from "./core/kept.js";
import { invalid, MillraceError, millis, type Span } from "./errors.js";
import {
	ListKeysRequest,
	ListQueuesRequest,
	QueueConfig as QueueConfigCodec,
	QueueConfigFairness,
	QueueConfigOrder,
	type QueueCeilings as WireCeilings,
	type QueueConfig as WireConfig,
	type QueueKey as WireKey,
	type QueuePaused as WirePaused,
	type Rate as WireRate,
	type QueueStats as WireStats,
} from "./gen/millrace/v1/task.js";
import { type CallOptions, names, type RetryPolicy, retryOf, wireRetry } from "./job.js";
import { methods } from "./methods.js";
import { fromDuration, fromTimestamp, toDuration, toTimestamp } from "./time.js";
import { type PauseOptions, pauseEnd } from "./tx.js";

/** How much begins in a time: tasks that cost limit together in each per, and burst at once. */
export interface Rate<Time = Span> {
	/** 1 to 1,000,000,000. */
	limit: number;
	/** A millisecond to a day. */
	per: Time;
	/** Default: limit. */
	burst?: number;
}

/** What bounds each key of a queue. Tasks without a key count as those of one key. */
export interface KeyLimits<Time = Span> {
	/** Tasks that run at once. */
	concurrency?: number;
	rate?: Rate<Time>;
}

/** What a task may ask for itself: an add beyond one is INVALID_ARGUMENT with the reason ceiling. */
export interface QueueCeilings<Time = Span> {
	attempts?: number;
	crashes?: number;
	/** Such a task cannot turn its limit off either. */
	deliveries?: number;
	lease?: Time;
	maxRun?: Time;
	/** 1 to 9. */
	priority?: number;
}

/** What rules a queue. What is left out has its default. */
export interface QueueSettings<Time = Span> {
	/** Default: 5. */
	attempts?: number;
	/** Default: 10. */
	crashes?: number;
	/** Default: 1,000; 0: no bound. */
	deliveries?: number;
	/** Default: a minute. */
	lease?: Time;
	/** Default: no bound. */
	maxRun?: Time;
	retry?: RetryPolicy<Time>;
	/** Bytes. Default: 1 MiB, which is also the most. */
	maxPayload?: number;
	/** Default: a minute; 0: strict priority. */
	aging?: Time;
	/** Default: a day; 0: removed at the end. */
	retainCompleted?: Time;
	/** Default: a day. */
	retainCancelled?: Time;
	/** Default: 14 days. */
	retainDead?: Time;
	/** How long the worker of a cancelled task may go on. Default: 30 seconds. */
	cancelGrace?: Time;
	/** How long after its add a task expires that names no time itself. Default: never. */
	defaultTtl?: Time;
	/** Tasks that have not ended, in each partition. Default: no bound. */
	maxTasks?: number;
	/** Of payloads and results, in each partition. Default: no bound. */
	maxBytes?: number;
	ceilings?: QueueCeilings<Time>;
	/** lanes, the default: keys get shares by their weights; none: the first task of all goes first. */
	fairness?: "lanes" | "none";
	/** fifo, the default, or strict: one task of a key at a time, and one that waits to be tried again holds up its key. */
	order?: "fifo" | "strict";
	/** Tasks that run at once. Default: no bound. */
	concurrency?: number;
	/** Default: no bound. */
	rate?: Rate<Time>;
	perKey?: KeyLimits<Time>;
	/** Workers that have tasks at once. Default: no bound. */
	maxWorkers?: number;
	/** The queue in which a copy is made of each task that dies. It must not lead back to this one. */
	deadLetter?: string;
	/** At most 4 limiters that each of its tasks needs, besides those that the task names. */
	limiters?: readonly string[];
}

/** What rules a queue, as it was read. Times are milliseconds. */
export interface QueueConfig extends QueueSettings<number> {
	/** Rises with each change. */
	version: bigint;
	fairness: "lanes" | "none";
	order: "fifo" | "strict";
}

/** Settings that are changed: null sets one back to its default, and what is left out stays. */
export type QueueChanges = { [K in keyof QueueSettings]?: QueueSettings[K] | null };

/** Why a queue, or a key of one, gives out no tasks. */
export interface QueuePaused {
	since: Date | undefined;
	/** Undefined: until it is resumed. */
	until: Date | undefined;
	/** Name of the token. */
	by: string;
	reason: string;
}

/** Counts of a queue. */
export interface QueueStats {
	queue: string;
	blocked: number;
	ready: number;
	scheduled: number;
	running: number;
	completed: number;
	dead: number;
	cancelled: number;
	/** All that there ever were. */
	created: number;
	/** Undefined: it gives out tasks. */
	paused: QueuePaused | undefined;
	/** Since when the task waits that has been ready for longest. */
	oldestReady: Date | undefined;
}

/** A key of a queue that has tasks which have not ended, or for which something is set. */
export interface QueueKey {
	key: string;
	tasks: number;
	ready: number;
	running: number;
	/** Its share among the keys that have tasks ready. */
	weight: number;
	/** Undefined: the queue's, as the rate. */
	concurrency: number | undefined;
	rate: Rate<number> | undefined;
	/** Undefined: its tasks are given out. */
	paused: QueuePaused | undefined;
	oldestReady: Date | undefined;
	/** What holds its ready tasks up: paused, concurrency, rate, order; empty: nothing of its own. */
	waitsFor: string;
	/** When its rate lets the next task go. */
	until: Date | undefined;
	/** The first 10 tasks that hold it up. */
	heldBy: string[];
	/** By how much, in cost by weight 1, it is behind the key that was served last; negative: ahead. */
	owed: number;
}

/** Which queues are listed, and in which order. */
export interface QueuesQuery {
	prefix?: string;
	sort?: "name" | "ready" | "oldest" | "dead" | "rate";
	only?: "paused" | "stuck" | "dead";
}

const pageSize = 1000;
/** How often an update begins again: far more than people and programs change one queue at once. */
const updateTries = 20;

const counts = { attempts: "maxAttempts", crashes: "maxCrashes", maxWorkers: "maxWorkers" } as const;
const longs = ["maxPayload", "maxTasks", "maxBytes", "concurrency"] as const;
const spans = [
	"lease",
	"maxRun",
	"aging",
	"retainCompleted",
	"retainCancelled",
	"retainDead",
	"cancelGrace",
	"defaultTtl",
] as const;
const fairness = { lanes: QueueConfigFairness.LANES, none: QueueConfigFairness.NONE };
const orders = { fifo: QueueConfigOrder.FIFO, strict: QueueConfigOrder.STRICT };

export function whole(name: string, v: number): number {
	if (!Number.isSafeInteger(v)) throw invalid(name, "must be a whole number");
	return v;
}

function chosen<T>(name: string, of: Record<string, T>, v: string): T {
	if (!Object.hasOwn(of, v)) throw invalid(name, `must be ${Object.keys(of).join(" or ")}`);
	return of[v]!;
}

/** Writes the settings that are there. */
function change(c: WireConfig, s: QueueChanges): void {
	for (const name of Object.keys(counts) as (keyof typeof counts)[]) {
		if (s[name] !== undefined) c[counts[name]] = whole(name, s[name] ?? 0);
	}
	for (const name of longs) if (s[name] !== undefined) c[name] = BigInt(whole(name, s[name] ?? 0));
	for (const name of spans) {
		const v = s[name];
		if (v !== undefined) c[name] = v === null ? undefined : toDuration(millis(v));
	}
	if (s.deliveries !== undefined) {
		c.maxDeliveries = s.deliveries === null ? undefined : whole("deliveries", s.deliveries);
	}
	if (s.retry !== undefined) c.retry = s.retry === null ? undefined : wireRetry(s.retry);
	if (s.ceilings !== undefined) c.ceilings = s.ceilings === null ? undefined : wireCeilings(s.ceilings);
	if (s.fairness !== undefined) c.fairness = chosen("fairness", fairness, s.fairness ?? "lanes");
	if (s.order !== undefined) c.order = chosen("order", orders, s.order ?? "fifo");
	if (s.rate !== undefined) c.rate = s.rate === null ? undefined : wireRate(s.rate);
	if (s.perKey !== undefined) {
		const k = s.perKey;
		c.perKey =
			k === null ? undefined : { concurrency: BigInt(whole("perKey", k.concurrency ?? 0)), rate: wireRate(k.rate) };
	}
	if (s.deadLetter !== undefined) c.deadLetter = s.deadLetter ?? "";
	if (s.limiters !== undefined) c.limiters = [...names(s.limiters ?? undefined)];
}

export function wireRate(r: Rate | undefined): WireRate | undefined {
	if (!r) return undefined;
	return {
		limit: BigInt(whole("rate", r.limit)),
		per: toDuration(millis(r.per)),
		burst: BigInt(whole("rate", r.burst ?? 0)),
	};
}

function wireCeilings(c: QueueCeilings): WireCeilings {
	return {
		maxAttempts: whole("ceilings", c.attempts ?? 0),
		maxCrashes: whole("ceilings", c.crashes ?? 0),
		maxDeliveries: whole("ceilings", c.deliveries ?? 0),
		lease: c.lease === undefined ? undefined : toDuration(millis(c.lease)),
		maxRun: c.maxRun === undefined ? undefined : toDuration(millis(c.maxRun)),
		priority: whole("ceilings", c.priority ?? 0),
	};
}

function configOf(c: WireConfig): QueueConfig {
	const out: QueueConfig = {
		version: c.version,
		fairness: c.fairness === QueueConfigFairness.NONE ? "none" : "lanes",
		order: c.order === QueueConfigOrder.STRICT ? "strict" : "fifo",
	};
	for (const name of Object.keys(counts) as (keyof typeof counts)[]) {
		if (c[counts[name]] !== 0) out[name] = c[counts[name]];
	}
	for (const name of longs) if (c[name] !== 0n) out[name] = Number(c[name]);
	for (const name of spans) if (c[name]) out[name] = fromDuration(c[name]);
	if (c.maxDeliveries !== undefined) out.deliveries = c.maxDeliveries;
	if (c.retry) out.retry = retryOf(c.retry);
	if (c.ceilings) out.ceilings = ceilingsOf(c.ceilings);
	if (c.rate) out.rate = rateOf(c.rate);
	if (c.perKey) {
		out.perKey = {};
		if (c.perKey.concurrency !== 0n) out.perKey.concurrency = Number(c.perKey.concurrency);
		if (c.perKey.rate) out.perKey.rate = rateOf(c.perKey.rate);
	}
	if (c.deadLetter) out.deadLetter = c.deadLetter;
	if (c.limiters.length > 0) out.limiters = c.limiters;
	return out;
}

export function rateOf(r: WireRate): Rate<number> {
	const out: Rate<number> = { limit: Number(r.limit), per: fromDuration(r.per) };
	if (r.burst !== 0n) out.burst = Number(r.burst);
	return out;
}

function ceilingsOf(c: WireCeilings): QueueCeilings<number> {
	const out: QueueCeilings<number> = {};
	if (c.maxAttempts) out.attempts = c.maxAttempts;
	if (c.maxCrashes) out.crashes = c.maxCrashes;
	if (c.maxDeliveries) out.deliveries = c.maxDeliveries;
	if (c.lease) out.lease = fromDuration(c.lease);
	if (c.maxRun) out.maxRun = fromDuration(c.maxRun);
	if (c.priority) out.priority = c.priority;
	return out;
}

const pausedOf = (p: WirePaused | undefined): QueuePaused | undefined =>
	p && { since: fromTimestamp(p.since), until: fromTimestamp(p.until), by: p.by, reason: p.reason };

function statsOf(s: WireStats): QueueStats {
	return {
		queue: s.queue,
		blocked: Number(s.blocked),
		ready: Number(s.ready),
		scheduled: Number(s.scheduled),
		running: Number(s.running),
		completed: Number(s.completed),
		dead: Number(s.dead),
		cancelled: Number(s.cancelled),
		created: Number(s.created),
		paused: pausedOf(s.paused),
		oldestReady: fromTimestamp(s.oldestReady),
	};
}

function keyOf(k: WireKey): QueueKey {
	return {
		key: k.key,
		tasks: Number(k.tasks),
		ready: Number(k.ready),
		running: Number(k.running),
		weight: k.settings?.weight || 1,
		concurrency: Number(k.settings?.concurrency ?? 0n) || undefined,
		rate: k.settings?.rate && rateOf(k.settings.rate),
		paused: pausedOf(k.paused),
		oldestReady: fromTimestamp(k.oldestReady),
		waitsFor: k.waitsFor,
		until: fromTimestamp(k.until),
		heldBy: k.heldBy,
		owed: Number(k.owed),
	};
}

/** Lists queues, page by page. */
export async function* queues(client: Client, q: QueuesQuery & CallOptions): AsyncGenerator<QueueStats> {
	let cursor = "";
	do {
		const request = ListQueuesRequest.fromPartial({
			limit: pageSize,
			cursor,
			prefix: q.prefix ?? "",
			sort: q.sort ?? "",
			only: q.only ?? "",
		});
		const page = await client.engine.call(methods.listQueues, request, q);
		for (const s of page.queues) yield statsOf(s);
		cursor = page.cursor;
	} while (cursor);
}

/** A queue. The first task, or set, makes one that is not there. */
export class Queue {
	readonly name: string;
	readonly #client: Client;

	/** @internal */
	constructor(client: Client, name: string) {
		this.#client = client;
		this.name = name;
	}

	/** Reads the counters. */
	async stats(o: CallOptions = {}): Promise<QueueStats> {
		return statsOf((await this.#client.engine.call(methods.queueStats, { queue: this.name, stale: false }, o)).stats!);
	}

	/** Reads what rules the queue. */
	async config(o: CallOptions = {}): Promise<QueueConfig> {
		return configOf(await this.#config(o));
	}

	async #config(o: CallOptions): Promise<WireConfig> {
		return (await this.#client.engine.call(methods.getQueue, { queue: this.name, stale: false }, o)).config!;
	}

	/** Replaces what rules the queue, or makes it. Returns the version. What is not named has its default. */
	async set(settings: QueueSettings, o: CallOptions & { ifVersion?: bigint | number } = {}): Promise<bigint> {
		const config = QueueConfigCodec.fromPartial({});
		change(config, settings);
		return this.#set(config, o.ifVersion === undefined ? undefined : BigInt(o.ifVersion), o);
	}

	async #set(config: WireConfig, ifVersion: bigint | undefined, o: CallOptions): Promise<bigint> {
		return (await this.#client.engine.call(methods.setQueue, { queue: this.name, config, ifVersion }, o)).version;
	}

	/**
	 * Sets these settings and keeps the others. Returns the version. A queue that is not there is made. If somebody else changes the queue
	 * meanwhile, this begins again. Settings of a newer server that this version of the library does not know stay as well.
	 */
	async update(changes: QueueChanges, o: CallOptions = {}): Promise<bigint> {
		for (let left = updateTries - 1; ; left--) {
			let config: WireConfig;
			try {
				config = await this.#config(o);
			} catch (e) {
				if (!(e instanceof MillraceError) || e.code !== "NOT_FOUND") throw e;
				config = QueueConfigCodec.fromPartial({});
			}
			const { version } = config;
			config.version = 0n;
			for (const [name, v] of Object.entries(changes)) if (v !== undefined) forget(config, name);
			change(config, changes);
			try {
				return await this.#set(config, version, o);
			} catch (e) {
				if (!(e instanceof MillraceError) || e.code !== "PRECONDITION_FAILED" || left === 0) throw e;
			}
		}
	}

	/** Removes the queue with its tasks. Without purge it is refused with WRONG_STATE while it has tasks that have not ended. */
	async delete(o: CallOptions & { purge?: boolean; ifVersion?: bigint | number } = {}): Promise<void> {
		const ifVersion = o.ifVersion === undefined ? undefined : BigInt(o.ifVersion);
		await this.#client.engine.call(methods.deleteQueue, { queue: this.name, purge: o.purge ?? false, ifVersion }, o);
	}

	/** Begins a job that makes its dead tasks ready: Client.startBulk with retry and the state dead. */
	redrive(o: RedriveOptions = {}): Promise<BulkInfo> {
		return startBulk(this.#client, "retry", { ...o, queue: this.name, state: "dead" });
	}

	/** Gives out no tasks until it is resumed, or until or for a time. Returns whether it was paused so before. */
	async pause(o: PauseOptions & CallOptions = {}): Promise<boolean> {
		const until = pauseEnd(o);
		const request = { queue: this.name, until: until && toTimestamp(until), reason: o.reason ?? "" };
		return (await this.#client.engine.call(methods.pauseQueue, request, o)).replayed;
	}

	/** Gives out tasks again. Returns whether it was not paused. */
	async resume(o: CallOptions = {}): Promise<boolean> {
		return (await this.#client.engine.call(methods.resumeQueue, { queue: this.name }, o)).replayed;
	}

	/**
	 * Lists its keys by name, page by page. By backlog those with the most ready tasks come first, by owed those that are the furthest behind
	 * their share; of these there are at most 1,000.
	 */
	async *keys(o: CallOptions & { sort?: "name" | "backlog" | "owed"; prefix?: string } = {}): AsyncGenerator<QueueKey> {
		let cursor = "";
		do {
			const request = ListKeysRequest.fromPartial({
				queue: this.name,
				sort: o.sort ?? "",
				prefix: o.prefix ?? "",
				limit: pageSize,
				cursor,
			});
			const page = await this.#client.engine.call(methods.listKeys, request, o);
			for (const k of page.keys) yield keyOf(k);
			cursor = page.cursor;
		} while (cursor);
	}

	/** Sets the weight, 1 to 1,000, and the limits of a key. Returns whether it was so. What is left out is the queue's. */
	async setKey(key: string, s: { weight?: number } & KeyLimits, o: CallOptions = {}): Promise<boolean> {
		const settings = {
			weight: whole("weight", s.weight ?? 0),
			concurrency: BigInt(whole("concurrency", s.concurrency ?? 0)),
			rate: wireRate(s.rate),
		};
		return (await this.#client.engine.call(methods.setKey, { queue: this.name, key, settings }, o)).replayed;
	}

	/** Gives out no tasks of a key, as pause does for all of the queue. */
	async pauseKey(key: string, o: PauseOptions & CallOptions = {}): Promise<boolean> {
		const until = pauseEnd(o);
		const request = { queue: this.name, key, until: until && toTimestamp(until), reason: o.reason ?? "" };
		return (await this.#client.engine.call(methods.pauseKey, request, o)).replayed;
	}

	/** Gives out tasks of the key again. Returns whether it was not paused. */
	async resumeKey(key: string, o: CallOptions = {}): Promise<boolean> {
		return (await this.#client.engine.call(methods.resumeKey, { queue: this.name, key }, o)).replayed;
	}
}
