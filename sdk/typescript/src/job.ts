import type { Client } from "./client.js";
import { type Codec, decode, encode } from "./content.js";
import { newId } from "./core/place.js";
import type { CronInfo, CronOptions } from "./cron.js";
import { BatchError, invalid, MillraceError, millis, type Span, TaskError } from "./errors.js";
import {
	type After,
	AfterOn,
	Backoff,
	OnDepFailure,
	type Retry,
	State,
	type TaskSpec,
	TaskSpec as TaskSpecCodec,
	type TaskTemplate,
	UniqueOnConflict,
	UniqueUntil,
	type Task as WireTask,
} from "./gen/millrace/v1/task.js";
import { type Schema, type Validated, validate } from "./schema.js";
import type { Task } from "./task.js";
import { fromDuration, toDuration, toTimestamp } from "./time.js";
import type { Changes } from "./tx.js";

/** How a job is tried again. */
export interface RetryPolicy<Time = Span> {
	/** The first pause, and the longest one. */
	base?: Time;
	max?: Time;
	factor?: number;
	backoff?: "fullJitter" | "equalJitter" | "exponential" | "fixed" | "linear";
}

/** Settings of a job. What is left out is the queue's. */
export interface JobOptions<In, Args, Out> {
	/** Default: the job's name. */
	queue?: string;
	/** How many failures end a task as dead. */
	attempts?: number;
	crashes?: number;
	lease?: Span;
	maxRun?: Span;
	retry?: RetryPolicy;
	priority?: number;
	/** The limiters that each task needs: it runs only while all of them have room for its cost. */
	limiters?: readonly string[];
	/** Validates arguments, where they are added and where they are handled. */
	input?: Schema<In, Args>;
	/** Validates results before they are settled. */
	output?: Schema<Out, Out>;
	/** Encodes arguments and results in the place of JSON. */
	codec?: Codec<unknown>;
}

const uniqueUntils = { ttl: UniqueUntil.TTL, start: UniqueUntil.START, terminal: UniqueUntil.TERMINAL };
const uniqueConflicts = {
	return: UniqueOnConflict.RETURN,
	reject: UniqueOnConflict.REJECT,
	replace: UniqueOnConflict.REPLACE,
};

/** What belongs to one task. */
export interface AddOptions {
	/**
	 * Made with newId, where the caller must know it before; adding twice under one id makes one task. Such an id leaves the partition open:
	 * where there are several, the handle has the id that was filled in.
	 */
	id?: string;
	/** Tasks and keys with one tag share a partition. */
	tag?: string;
	/** The line of its queue that the task waits in, which gets its share and has limits of its own. */
	key?: string;
	/** What it weighs in shares, rates and limiters; default 1. */
	cost?: number;
	/** The limiters that it needs, besides those of its job and its queue. */
	limiters?: readonly string[];
	/** The open batch that it is added to: its id, or what openBatch returned. Without a tag, a key or a unique key the task goes to its partition. */
	batch?: TaskRef;
	delay?: Span;
	runAt?: Date;
	expires?: Span;
	priority?: number;
	/** At most one task of the queue exists under it for a day, or for uniqueFor. */
	unique?: string;
	uniqueFor?: Span;
	/** What frees the key before that: the first delivery of the task, or its end. Default: ttl, nothing. */
	uniqueUntil?: "ttl" | "start" | "terminal";
	/**
	 * What adding under a key does that is taken: return the task, be refused with ALREADY_EXISTS, or replace what the task is as long as it has
	 * not started: payload, times, priority, labels and settings. With delay each add then puts the task off (debounce).
	 */
	onConflict?: "return" | "reject" | "replace";
	headers?: Record<string, string>;
	labels?: Record<string, string>;
	/** It is blocked until these tasks have completed, or with on: "terminal" have ended. They are of the same partition. */
	after?: readonly (TaskRef | { task: TaskRef; on?: "completed" | "terminal" })[];
	/** What follows when one of them is not completed: it is held (the default), cancelled, or runs all the same. */
	onDepFailure?: "hold" | "cancel" | "run";
}

/** A task or a batch: its id, or its handle. */
export type TaskRef = string | { readonly id: string };

export interface CallOptions {
	/** Default: 30 seconds. */
	timeout?: Span;
	signal?: AbortSignal;
}

/** A task that was added. */
export class Handle<Out> {
	readonly #id: string | TaskSpec;
	/** The task was there before: under this id, or under the unique key. */
	readonly replayed: boolean;
	/** The task was there under the unique key, and became what was asked for. */
	readonly replaced: boolean;
	readonly #client: Client | undefined;
	readonly #codec: Codec<unknown> | undefined;

	/** @internal */
	constructor(
		client: Client | undefined,
		id: string | TaskSpec,
		made: { replayed: boolean; replaced: boolean },
		codec: Codec<unknown> | undefined,
	) {
		this.#id = id;
		this.replayed = made.replayed;
		this.replaced = made.replaced;
		this.#client = client;
		this.#codec = codec;
	}

	/**
	 * Of a task in a commit of a client that has not reached its server yet: one that is read before the commit leaves its partition open. In a
	 * namespace of several partitions the first commit with a queue that is bounded as a whole may change it.
	 */
	get id(): string {
		if (typeof this.#id === "string") return this.#id;
		this.#id.id ||= newId();
		return this.#id.id;
	}

	/**
	 * Waits until the task has ended, without a bound unless timeout says one.
	 * @throws TaskError if it did not complete.
	 */
	async wait(o: CallOptions = {}): Promise<Out> {
		if (!this.#client) throw invalid("client", "the task was added to a transaction without a client");
		const t = await this.#client.engine.wait(this.id, o);
		return resultOf(t, this.#codec) as Out;
	}
}

/** The result of a task that has ended. */
export function resultOf(t: WireTask, codec: Codec<unknown> | undefined): unknown {
	if (t.state !== State.COMPLETED) {
		throw new TaskError(t.id, stateName(t.state), t.reason, t.error?.code ?? "", t.error?.message ?? "");
	}
	return t.hasResult ? decode(t.result, t.resultType || "application/json", codec) : undefined;
}

export const stateName = (s: State): string => (State[s] ?? "unknown").toLowerCase();

const backoffs = {
	fullJitter: Backoff.FULL_JITTER,
	equalJitter: Backoff.EQUAL_JITTER,
	exponential: Backoff.EXPONENTIAL,
	fixed: Backoff.FIXED,
	linear: Backoff.LINEAR,
};

export function wireRetry(r: RetryPolicy): Retry {
	return {
		backoff: r.backoff ? backoffs[r.backoff] : Backoff.BACKOFF_UNSPECIFIED,
		base: r.base === undefined ? undefined : toDuration(millis(r.base)),
		factor: r.factor ?? 0,
		max: r.max === undefined ? undefined : toDuration(millis(r.max)),
	};
}

/** A policy as it was read; times are milliseconds. */
export function retryOf(r: Retry): RetryPolicy<number> {
	const out: RetryPolicy<number> = {};
	const found = (Object.keys(backoffs) as (keyof typeof backoffs)[]).find((name) => backoffs[name] === r.backoff);
	if (found) out.backoff = found;
	if (r.base) out.base = fromDuration(r.base);
	if (r.factor) out.factor = r.factor;
	if (r.max) out.max = fromDuration(r.max);
	return out;
}

const depFailures = { hold: OnDepFailure.HOLD, cancel: OnDepFailure.CANCEL, run: OnDepFailure.RUN };

/** A task to wait for. That of a handle in the same commit has its id when the commit is placed. */
function afterOf(a: TaskRef | { task: TaskRef; on?: "completed" | "terminal" }): After {
	const [task, on] = typeof a === "object" && "task" in a ? [a.task, a.on] : [a, undefined];
	return {
		get id() {
			return typeof task === "string" ? task : task.id;
		},
		on: on === "terminal" ? AfterOn.TERMINAL : AfterOn.COMPLETED,
	};
}

/** Names of limiters. A text is one of characters, which is never meant. */
export function names(given: readonly string[] | undefined): readonly string[] {
	if (typeof given === "string") throw invalid("limiters", "must be a list of names");
	return given ?? [];
}

/** What tasks may have that are made of a template: those of crons, and those that batches make. */
export type TemplateOptions = Pick<AddOptions, "tag" | "key" | "cost" | "limiters" | "priority" | "headers" | "labels">;

/** What one task alone can have. */
export const ofOneTask = ["id", "delay", "runAt", "expires", "unique", "after", "onDepFailure", "batch"];

/** The template that has what a task has. */
export function templateOf(s: TaskSpec): TaskTemplate {
	const { queue, kind, payload, contentType, headers, priority, maxAttempts, maxCrashes, maxDeliveries } = s;
	const { lease, maxRun, retry, labels, tag, key, cost, limiters } = s;
	return {
		...{ queue, kind, payload, contentType, headers, priority, maxAttempts, maxCrashes, maxDeliveries },
		...{ lease, maxRun, retry, labels, tag, key, cost, limiters },
	};
}

/** What a batch makes when it finishes: a task of a job. Job.followUp returns it. */
export class FollowUp {
	readonly #options: TemplateOptions;
	readonly #spec: () => Promise<TaskSpec>;

	/** @internal */
	constructor(options: TemplateOptions, spec: () => Promise<TaskSpec>) {
		this.#options = options;
		this.#spec = spec;
	}

	/** @internal */
	async template(field: string): Promise<TaskTemplate> {
		for (const name of ofOneTask) {
			if (name in this.#options) throw invalid(`${field}.${name}`, "must not be set in a template");
		}
		return templateOf(await this.#spec());
	}
}

/** A kind of task: its name, its settings, and the types of its arguments and results. */
export class Job<In, Args, Out> {
	readonly name: string;
	readonly queue: string;
	/** @internal */
	readonly options: JobOptions<In, Args, Out>;

	/** @internal */
	constructor(name: string, options: JobOptions<In, Args, Out>) {
		this.name = name;
		this.queue = options.queue ?? name;
		this.options = options;
	}

	/** Adds a task. */
	async add(client: Client, args: In, o: AddOptions & CallOptions = {}): Promise<Handle<Out>> {
		const made = this.spec(args, o);
		const spec = made instanceof Promise ? await made : made;
		const r = await client.engine.create(spec, o);
		return new Handle<Out>(client, r.id || spec.id, r, this.options.codec);
	}

	/**
	 * Adds many tasks, each by itself.
	 * @throws BatchError if some were not added: its errors are by argument.
	 */
	async addMany(
		client: Client,
		args: readonly In[],
		o: Omit<AddOptions, "id" | "unique"> & CallOptions = {},
	): Promise<Handle<Out>[]> {
		const specs = await Promise.all(args.map((a) => this.spec(a, o)));
		const results = await client.engine.createEach(specs, o);
		if (results.some((r) => r instanceof MillraceError)) {
			throw new BatchError(results.map((r) => (r instanceof MillraceError ? r : undefined)));
		}
		return results.map((r, i) => {
			const created = r as Exclude<typeof r, MillraceError>;
			return new Handle<Out>(client, created.id || specs[i]!.id, created, this.options.codec);
		});
	}

	/** Adds tasks, all or none. */
	async addAll(
		client: Client,
		args: readonly In[],
		o: Omit<AddOptions, "id" | "unique"> & CallOptions = {},
	): Promise<Handle<Out>[]> {
		const specs = await Promise.all(args.map((a) => this.spec(a, o)));
		const results = await client.engine.createAll(specs, o);
		return results.map((r, i) => new Handle<Out>(client, r.id || specs[i]!.id, r, this.options.codec));
	}

	/** Adds a task with a commit, or with the completion of a task: t.fx. Its schema must not be asynchronous. */
	addTx(tx: Changes, args: In, o: AddOptions = {}): Handle<Out> {
		const s = this.options.input;
		if (s) {
			const r = s["~standard"].validate(args);
			if (r instanceof Promise)
				throw invalid("args", "the schema of a job that is added to a transaction must not be asynchronous");
			if (r.issues) throw invalid("args", r.issues.map((i) => i.message).join("; "));
		}
		const spec = this.#fill(args, o);
		tx.create(spec);
		return new Handle<Out>(undefined, spec, { replayed: false, replaced: false }, this.options.codec);
	}

	/**
	 * Makes a cron whose tasks are those of this job with args, or replaces it; this needs the scope admin. The schedule has five fields as in
	 * crontab(5), or six with seconds first, or is @every with a duration, @hourly, @daily, @weekly, @monthly or @yearly. Client.cron does the rest.
	 */
	async cron(client: Client, name: string, schedule: string, args: In, o: CronOptions = {}): Promise<CronInfo> {
		const cron = client.cron(name);
		cron.check(o);
		return cron.set(schedule, await this.spec(args, o), o);
	}

	/**
	 * Says which task of this job a batch makes when it finishes: onDone or onSuccess of Client.openBatch. It has the header millrace-batch with the
	 * id of the batch.
	 */
	followUp(args: In, o: TemplateOptions = {}): FollowUp {
		return new FollowUp(o, async () => this.spec(args, o));
	}

	/** The task with an id, to wait for. */
	of(client: Client, id: string): Handle<Out> {
		return new Handle<Out>(client, id, { replayed: true, replaced: false }, this.options.codec);
	}

	/** Binds a handler. The binding goes to a Worker. */
	handle(run: (t: Task, args: Args) => Promise<Out> | Out): Binding {
		return { job: this as unknown as AnyJob, run: run as (t: Task, args: unknown) => unknown };
	}

	/** @internal */
	spec(args: In, o: AddOptions): TaskSpec | Promise<TaskSpec> {
		const made = (v: Validated<unknown>): TaskSpec => {
			if ("problem" in v) throw invalid("args", v.problem);
			return this.#fill(args, o);
		};
		const v = validate(this.options.input as Schema<unknown, unknown> | undefined, args);
		return v instanceof Promise ? v.then(made) : made(v);
	}

	// What was given is stored, not what the schema made of it: the worker validates again.
	#fill(args: In, o: AddOptions): TaskSpec {
		const { bytes, type } = encode(args, this.options.codec, "args");
		const spec = TaskSpecCodec.fromPartial({
			id: o.id ?? "", // it is made where the task is placed
			queue: this.queue,
			kind: this.name,
			payload: bytes,
			contentType: type,
			tag: o.tag ?? "",
			key: o.key ?? "",
			cost: o.cost ?? 0,
			priority: o.priority ?? this.options.priority ?? 0,
			maxAttempts: this.options.attempts ?? 0,
			maxCrashes: this.options.crashes ?? 0,
			limiters: [...names(this.options.limiters), ...names(o.limiters)],
			batch: typeof o.batch === "object" ? o.batch.id : (o.batch ?? ""),
		});
		if (o.headers) spec.headers = Object.entries(o.headers).map(([name, value]) => ({ name, value }));
		if (o.labels) spec.labels = { ...o.labels };
		if (o.after) spec.after = o.after.map(afterOf);
		if (o.onDepFailure) spec.onDepFailure = depFailures[o.onDepFailure];
		if (o.delay !== undefined) spec.delay = toDuration(millis(o.delay));
		if (o.runAt) spec.runAt = toTimestamp(o.runAt);
		if (o.expires !== undefined) spec.expiresAt = toTimestamp(new Date(Date.now() + millis(o.expires)));
		if (this.options.lease !== undefined) spec.lease = toDuration(millis(this.options.lease));
		if (this.options.maxRun !== undefined) spec.maxRun = toDuration(millis(this.options.maxRun));
		if (this.options.retry) spec.retry = wireRetry(this.options.retry);
		if (o.unique !== undefined) {
			spec.unique = {
				key: o.unique,
				until: uniqueUntils[o.uniqueUntil ?? "ttl"],
				ttl: o.uniqueFor === undefined ? undefined : toDuration(millis(o.uniqueFor)),
				onConflict: uniqueConflicts[o.onConflict ?? "return"],
			};
		}
		return spec;
	}
}

export type AnyJob = Job<unknown, unknown, unknown>;

/** A job with its handler. */
export interface Binding {
	/** @internal */
	readonly job: AnyJob;
	/** @internal */
	readonly run: (t: Task, args: unknown) => unknown;
}

/** Declares a job, once for producers and workers. Types come from its schemas, or from the type arguments. */
export function job<In, Args = In, Out = unknown>(
	name: string,
	options: JobOptions<In, Args, Out> & { input: Schema<In, Args> },
): Job<In, Args, Out>;
export function job<Args = unknown, Out = unknown>(
	name: string,
	options?: JobOptions<Args, Args, Out>,
): Job<Args, Args, Out>;
export function job(name: string, options: JobOptions<unknown, unknown, unknown> = {}): AnyJob {
	if (!name) throw invalid("name", "is required");
	return new Job(name, options);
}
