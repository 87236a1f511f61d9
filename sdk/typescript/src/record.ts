// What a Recorder keeps in place of a server: keys and tasks in memory, and the judgement of what changes them.
//
// It has one partition and no clock of its own: nothing waits, no lease runs out, no unique key is free again by time. It judges the checks and ops of
// keys and tasks as a server does, and neither limits nor rights. Changes of refs and of collections, and pauses of queues, are kept as they
// came. proto/conformance/commits.json holds this to servers.
import { newId, parseId } from "./core/place.js";
import type { Created } from "./core/producer.js";
import { type Fault, MillraceError } from "./errors.js";
import { KVGetResponse, KVRangeResponse } from "./gen/millrace/v1/kv.js";
import {
	Assignment,
	At,
	CancelAsked,
	type CancelRequest,
	CancelResponse,
	type CommitRequest,
	CommitResponse,
	CreateResult,
	type Fail,
	GetResponse,
	type KVAdd,
	type KVCheck,
	KVCheckCompare,
	type KVPut,
	type Op,
	OpResult,
	type SettleItem,
	State,
	TaskSpec,
	UniqueOnConflict,
	UniqueUntil,
	Task as WireTask,
} from "./gen/millrace/v1/task.js";
import { fromDuration, fromTimestamp, toDuration, toTimestamp } from "./time.js";

// Of tasks of a queue without a configuration.
const defaultAttempts = 5;
const defaultCrashes = 10;
const defaultDeliveries = 1000;
const defaultLease = 60_000;

/** The most bytes of a value that a refusal shows. */
const shownBytes = 1 << 10;
const most = (1n << 63n) - 1n;
const least = -(1n << 63n);

const keyspaceName = /^[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}$/;
const taskName = /^[a-zA-Z0-9][a-zA-Z0-9._:-]{0,127}$/;
const utf8 = new TextDecoder("utf-8", { fatal: true });

/** What a key holds. A revision of 0: it is not there. */
interface Row {
	space: string;
	key: Buffer;
	value: Buffer;
	rev: bigint;
}

/** A task, and what became of it. */
interface Entry {
	/** What was asked for first, by which a repetition is told. */
	readonly first: TaskSpec;
	/** What is asked for now. */
	spec: TaskSpec;
	/** What readers see. */
	info: WireTask;
	/** That of the attempt that runs; 0: none does. */
	token: bigint;
	checkpoint: Buffer;
}

/** Reports whether the start or the end of a task has freed its unique key. */
function freed(t: Entry): boolean {
	const until = t.spec.unique?.until ?? UniqueUntil.TTL;
	const ended = t.info.state >= State.COMPLETED;
	return until !== UniqueUntil.TTL && (ended || (until === UniqueUntil.START && t.info.attempt > 0));
}

/** A refusal, on its way to where it is known at which op it was. */
class Refusal {
	constructor(readonly fault: Fault) {}

	at(op: number): Refusal {
		return new Refusal({ ...this.fault, op });
	}

	/** Says where the bad field is. */
	within(where: string): Refusal {
		const { field = "", message = "" } = this.fault;
		return new Refusal({ ...this.fault, field: where + field, message: where + message });
	}
}

const refusal = (fault: Omit<Fault, "outcome">): Refusal => new Refusal({ ...fault, outcome: "refused" });

const invalid = (field: string, text: string, reason = ""): Refusal =>
	refusal({ code: "INVALID_ARGUMENT", field, reason, message: `${field}: ${text}` });

const exists = (kind: string, id: string): Refusal =>
	refusal({ code: "ALREADY_EXISTS", message: `${kind} ${JSON.stringify(id)} exists with other content` });

const notFound = (id: string): Refusal =>
	refusal({ code: "NOT_FOUND", message: `task ${JSON.stringify(id)} not found` });

/** The error of what a Recorder does not have. */
export const lacking = (what: string): MillraceError =>
	new MillraceError({
		code: "INVALID_ARGUMENT",
		reason: "recorder",
		message: `a Recorder has no ${what}: test this against a server`,
		outcome: "refused",
	});

/** Runs f; what it refuses becomes an error. */
function judged<T>(f: () => T): T {
	try {
		return f();
	} catch (e) {
		throw e instanceof Refusal ? new MillraceError(e.fault) : e;
	}
}

/** Runs f, and has change say more of what it refuses. */
function telling<T>(f: () => T, change: (r: Refusal) => Refusal): T {
	try {
		return f();
	} catch (e) {
		throw e instanceof Refusal ? change(e) : e;
	}
}

const stateOf = (t: Entry): string => State[t.info.state]!.toLowerCase();
const ended = (t: Entry): boolean => t.info.state >= State.COMPLETED;
const nameOf = (space: string, key: Uint8Array): string => `${space}/${Buffer.from(key).toString("latin1")}`;

/** A task as bytes that are the same for the same words. */
function words(spec: TaskSpec, bare = false): Buffer {
	const labels = Object.fromEntries(Object.entries(spec.labels).sort(([a], [b]) => (a < b ? -1 : 1)));
	const out: TaskSpec = { ...spec, labels };
	if (bare) Object.assign(out, { id: "", unique: undefined });
	return Buffer.from(TaskSpec.encode(out).finish());
}

/** Keeps what one client adds and commits. */
export class Store {
	/** Counts creates and commits, as places in a log. */
	#index = 0n;
	/** Counts attempts. */
	#tokens = 0n;
	readonly #tasks = new Map<string, Entry>();
	readonly #order: Entry[] = [];
	/** How many of the first tasks have ended. */
	#ended = 0;
	readonly #unique = new Map<string, Entry>();
	readonly #keys = new Map<string, Row>();
	readonly #ops: Op[] = [];
	/** Takes back what the change under way has done. */
	#undo: (() => void)[] = [];

	/** What was asked for of each task, in the order in which they were added. */
	get specs(): TaskSpec[] {
		return this.#order.map((t) => t.spec);
	}

	/** The ops that were applied, in order. */
	get ops(): readonly Op[] {
		return this.#ops;
	}

	get #at(): At {
		return At.fromPartial({ index: this.#index, stamp: toTimestamp(new Date()) });
	}

	/** A task that has ended. */
	ended(id: string): WireTask {
		return judged(() => {
			const t = this.#task(id);
			if (ended(t)) return { ...t.info };
			const state = stateOf(t);
			throw refusal({
				code: "WRONG_STATE",
				reason: "recorder",
				message: `task ${id} is ${state}, and nothing runs it: call drain before`,
				details: { state },
			});
		});
	}

	#task(id: string): Entry {
		const t = this.#tasks.get(id);
		if (!t) throw notFound(id);
		return t;
	}

	/** Answers a call, by the path of its method; a stream of answers is one. */
	call(path: string, request: unknown): unknown {
		return judged(() => {
			switch (path) {
				case "/millrace.v1.KVService/Get": {
					const { keyspace, key } = request as { keyspace: string; key: Buffer };
					named(keyspace, key);
					const row = this.#row(keyspace, key);
					return KVGetResponse.fromPartial({ value: row.value, rev: row.rev, found: row.rev > 0n, at: this.#at });
				}
				case "/millrace.v1.KVService/Range": {
					const r = request as RangeOf & { limit: bigint; keysOnly: boolean };
					ranged(r);
					const rows = this.#within(r).slice(0, r.limit > 0n ? Number(r.limit) : undefined);
					const items = rows.map((x) => ({ key: x.key, value: r.keysOnly ? Buffer.alloc(0) : x.value, rev: x.rev }));
					return KVRangeResponse.fromPartial({ items });
				}
				case "/millrace.v1.TaskService/Get":
					return GetResponse.fromPartial({ task: this.#task((request as { id: string }).id).info, at: this.#at });
				case "/millrace.v1.TaskService/Cancel": {
					const { id, reason, force } = request as CancelRequest;
					this.#next();
					const done = this.#cancel(id, reason, force);
					this.#ops.push({ op: { $case: "taskCancel", value: { id, reason, force } } });
					return CancelResponse.fromPartial({ ...done, at: this.#at });
				}
			}
			throw lacking(path.replace("/millrace.v1.", ""));
		});
	}

	// Changes. One that is refused has changed nothing.

	/** Begins an entry of the log. */
	#next(): void {
		this.#index++;
		this.#undo = [];
	}

	#rollback(): void {
		for (const f of this.#undo.reverse()) f();
		this.#undo = [];
	}

	/** Adds tasks, each by itself. */
	createEach(specs: TaskSpec[]): (Created | MillraceError)[] {
		this.#next();
		return specs.map((spec) => {
			try {
				return judged(() => this.#judged(spec));
			} catch (e) {
				return e as MillraceError;
			}
		});
	}

	/** Adds a task. */
	create(spec: TaskSpec): Created {
		this.#next();
		return judged(() => this.#judged(spec));
	}

	/** Adds all tasks, or none. */
	createAll(specs: TaskSpec[]): Created[] {
		this.#next();
		return judged(() =>
			telling(
				() =>
					specs.map((spec, i) =>
						telling(
							() => this.#judged(spec),
							(r) => (r.fault.field ? r.within(`tasks[${i}].`) : r.at(i)),
						),
					),
				(r) => {
					this.#rollback();
					return r;
				},
			),
		);
	}

	#judged(spec: TaskSpec): Created {
		spec.id ||= newId();
		judge(spec);
		return this.#create(spec);
	}

	/** Carries out a commit. */
	commit(request: CommitRequest): CommitResponse {
		return judged(() => {
			shape(request.conditions, request.ops);
			const f = request.fence;
			if (f)
				telling(
					() => this.#holder(f.task, f.token),
					(r) => r.at(-1),
				);
			const results = this.#apply(request.conditions, request.ops);
			return CommitResponse.fromPartial({ results, at: this.#at });
		});
	}

	/** Applies ops in order, if all conditions hold: all of them, or none. shape has let them pass. */
	#apply(conditions: readonly KVCheck[], ops: readonly Op[]): OpResult[] {
		twice(ops);
		this.#next();
		conditions.forEach((c, i) => {
			const row = this.#row(c.keyspace, c.key);
			if (!holds(row, c)) throw mismatch(row).at(-2 - i);
		});
		const results = ops.map((op, i) =>
			telling(
				() => OpResult.fromPartial(this.#op(op)),
				(r) => {
					this.#rollback();
					return r.at(i);
				},
			),
		);
		this.#ops.push(...ops);
		return results;
	}

	#op(op: Op): Partial<OpResult> {
		const x = op.op;
		switch (x?.$case) {
			case "kvPut":
				return this.#put(x.value);
			case "kvDelete": {
				const row = this.#atRev(x.value);
				this.#set({ ...row, rev: 0n });
				return { existed: row.rev > 0n };
			}
			case "kvAdd":
				return this.#add(x.value);
			case "kvDeleteRange": {
				const rows = this.#within(x.value);
				for (const row of rows) this.#set({ ...row, rev: 0n });
				return x.value.count ? { count: BigInt(rows.length) } : {};
			}
			case "taskCreate": {
				const r = this.#create(x.value);
				return { task: r.id, replayed: r.replayed, payloadMatches: r.payloadMatches, replaced: r.replaced };
			}
			case "taskCancel":
				return { task: x.value.id, ...this.#cancel(x.value.id, x.value.reason, x.value.force) };
			case "batchOpen":
			case "batchSeal":
			case "batchCancel":
				return { batch: x.value.id }; // there are no batches here: they are noted
		}
		return {};
	}

	// Keys.

	#row(space: string, key: Buffer): Row {
		return this.#keys.get(nameOf(space, key)) ?? { space, key, value: Buffer.alloc(0), rev: 0n };
	}

	/** Writes a key; a revision of 0 removes it. */
	#set(row: Row): void {
		const old = this.#row(row.space, row.key);
		this.#undo.push(() => this.#restore(old));
		this.#restore(row);
	}

	#restore(row: Row): void {
		if (row.rev > 0n) this.#keys.set(nameOf(row.space, row.key), row);
		else this.#keys.delete(nameOf(row.space, row.key));
	}

	/** What the key of an op holds, if it is at the revision that the op names. */
	#atRev(op: { keyspace: string; key: Buffer; ifRev?: bigint | undefined }): Row {
		const row = this.#row(op.keyspace, op.key);
		if (op.ifRev !== undefined && op.ifRev !== row.rev) throw mismatch(row);
		return row;
	}

	#put(op: KVPut): Partial<OpResult> {
		const row = this.#atRev(op);
		if (op.ifAbsent && row.rev > 0n) throw mismatch(row);
		this.#set({ ...row, value: Buffer.from(op.value), rev: this.#index });
		const prev = op.wantPrev ? { prev: row.value, existed: row.rev > 0n } : {};
		return { rev: this.#index, ...prev };
	}

	#add(op: KVAdd): Partial<OpResult> {
		const row = this.#atRev(op);
		const text = row.value.toString("latin1");
		const n = row.rev === 0n ? 0n : /^[+-]?[0-9]+$/.test(text) ? BigInt(text.replace("+", "")) : most + 1n;
		let why = "";
		const sum = n + op.delta;
		if (n < least || n > most) why = "not_a_number";
		else if (sum < least || sum > most) why = "overflow";
		else if ((op.floor !== undefined && sum < op.floor) || (op.ceiling !== undefined && sum > op.ceiling))
			why = "bound";
		if (why)
			throw refusal({
				code: "PRECONDITION_FAILED",
				reason: why,
				message: `nothing was added to the key: ${why}`,
				details: { rev: String(row.rev) },
			});
		this.#set({ ...row, value: Buffer.from(String(sum)), rev: this.#index });
		return { rev: this.#index, sum };
	}

	/** What the keys of a range hold, in their order. */
	#within(r: RangeOf): Row[] {
		const all = [...this.#keys.values()].filter(
			(x) =>
				x.space === r.keyspace &&
				x.key.subarray(0, r.prefix.length).equals(r.prefix) &&
				Buffer.compare(x.key, r.from) >= 0 &&
				(r.to.length === 0 || Buffer.compare(x.key, r.to) < 0),
		);
		return all.sort((a, b) => Buffer.compare(a.key, b.key));
	}

	// Tasks.

	/** Makes a task that judge has let pass, or finds the one that is there. */
	#create(spec: TaskSpec): Created {
		const old = this.#tasks.get(spec.id);
		if (old) {
			if (!words(old.first).equals(words(spec))) throw exists("task", spec.id);
			return CreateResult.fromPartial({ id: spec.id, replayed: true, payloadMatches: true });
		}
		const held = spec.unique?.key ? `${spec.queue}/${spec.unique.key}` : "";
		const other = held ? this.#unique.get(held) : undefined;
		if (other && !freed(other)) {
			if (spec.unique!.onConflict === UniqueOnConflict.REJECT) throw exists("unique", spec.unique!.key);
			const payloadMatches = words(other.spec, true).equals(words(spec, true));
			const waits = other.info.attempt === 0 && other.info.state < State.COMPLETED;
			if (spec.unique!.onConflict === UniqueOnConflict.REPLACE && waits && !(payloadMatches && !spec.delay)) {
				return this.#replace(other, spec);
			}
			return CreateResult.fromPartial({ id: other.spec.id, replayed: true, payloadMatches });
		}
		const kept = TaskSpec.fromPartial(spec);
		const t: Entry = { first: kept, spec: kept, info: infoOf(kept), token: 0n, checkpoint: Buffer.alloc(0) };
		this.#tasks.set(kept.id, t);
		this.#order.push(t);
		this.#undo.push(() => {
			this.#tasks.delete(kept.id);
			this.#order.pop();
		});
		if (held) {
			this.#unique.set(held, t);
			this.#undo.push(() => (other ? this.#unique.set(held, other) : this.#unique.delete(held)));
		}
		return CreateResult.fromPartial({ id: kept.id });
	}

	/** Makes a task that has not started what another create of its unique key asks for. */
	#replace(t: Entry, spec: TaskSpec): Created {
		const { spec: was, info } = t;
		this.#undo.push(() => {
			t.spec = was;
			t.info = info;
		});
		t.spec = TaskSpec.fromPartial({ ...spec, id: was.id });
		t.info = { ...infoOf(t.spec), createdAt: info.createdAt };
		return CreateResult.fromPartial({ id: was.id, replaced: true });
	}

	#holder(id: string, token: bigint): Entry {
		const t = this.#tasks.get(id);
		if (!t || token === 0n || t.token !== token)
			throw refusal({ code: "LEASE_LOST", message: `task ${id}: token ${token} lost its lease` });
		return t;
	}

	/** Begins an attempt at the first task that waits, of a kind that is taken, and is not one of passed; undefined: none does. */
	next(takes: (kind: string) => boolean, passed: ReadonlySet<string>): Assignment | undefined {
		while (this.#ended < this.#order.length && ended(this.#order[this.#ended]!)) this.#ended++;
		for (let i = this.#ended; i < this.#order.length; i++) {
			const t = this.#order[i]!;
			const { spec: s, info } = t;
			if (ended(t) || t.token !== 0n || passed.has(s.id) || !takes(s.kind)) continue;
			t.token = ++this.#tokens;
			Object.assign(info, { state: State.RUNNING, reason: "", runAt: undefined, startedAt: toTimestamp(new Date()) });
			info.attempt++;
			const lease = BigInt(Math.round(fromDuration(info.lease)));
			return Assignment.fromPartial({
				id: s.id,
				token: t.token,
				attempt: info.attempt,
				queue: s.queue,
				kind: s.kind,
				payload: s.payload,
				contentType: s.contentType,
				headers: s.headers,
				priority: s.priority,
				leaseMs: lease,
				leaseLeftMs: lease,
				maxAttempts: info.maxAttempts,
				failures: info.failures,
				createdMs: BigInt(fromTimestamp(info.createdAt)!.getTime()),
				checkpoint: t.checkpoint,
				tag: s.tag,
			});
		}
		return undefined;
	}

	/** Keeps the checkpoint of an attempt. */
	save(id: string, token: bigint, data: Buffer): void {
		judged(() => {
			this.#holder(id, token).checkpoint = data;
		});
	}

	/** Ends an attempt. A refusal leaves it running, unless its effects ask for a failure in its place: failed is true then. */
	settle(m: SettleItem): { failed: boolean; refused: MillraceError | undefined } {
		const t = judged(() => this.#holder(m.id, m.token));
		const x = m.outcome;
		let failed = false;
		try {
			if (x?.$case === "complete") {
				const { conditions, ops } = m.effects ?? { conditions: [], ops: [] };
				for (const op of ops) if (op.op?.$case === "taskCreate") op.op.value.id ||= newId();
				telling(
					() => shape(conditions, ops),
					(r) => r.within("items[0].effects."),
				);
				failed = m.effects?.failOnRefusal ?? false;
				this.#apply(conditions, ops);
				failed = false;
			}
		} catch (e) {
			if (!(e instanceof Refusal)) throw e;
			const { code, message = "" } = e.fault;
			if (failed)
				fail(t, {
					error: { code, message: `effects refused: ${message}`, stack: "" },
					fatal: false,
					retryAfter: undefined,
				});
			return { failed, refused: new MillraceError(e.fault) };
		}
		switch (x?.$case) {
			case "complete":
				Object.assign(t.info, { hasResult: true, result: x.value.result, resultType: x.value.resultType });
				end(t, State.COMPLETED, "");
				break;
			case "fail":
				fail(t, x.value);
				break;
			case "snooze":
				t.info.snoozes++;
				putBack(t, "snooze", fromDuration(x.value.delay));
				break;
			case "stop":
				t.info.error = x.value.error;
				end(t, State.CANCELLED, "");
				break;
			default:
				putBack(t, "", 0);
		}
		return { failed: false, refused: undefined };
	}

	/** Cancels a task that waits. */
	#cancel(id: string, reason: string, force: boolean): { state: State; replayed: boolean } {
		const t = this.#task(id);
		if (t.info.state === State.CANCELLED) return { state: State.CANCELLED, replayed: true };
		const state = stateOf(t);
		if (ended(t)) throw refusal({ code: "WRONG_STATE", message: `task ${id} is ${state}`, details: { state } });
		if (t.token !== 0n)
			throw refusal({
				code: "INVALID_ARGUMENT",
				reason: "recorder",
				message: "a Recorder does not cancel a task that runs: test this against a server",
			});
		const old = { ...t.info };
		this.#undo.push(() => {
			t.info = old;
		});
		t.info.cancel = CancelAsked.fromPartial({ at: toTimestamp(new Date()), reason, force });
		end(t, State.CANCELLED, "");
		return { state: State.CANCELLED, replayed: false };
	}
}

/** A new task as readers see it. */
function infoOf(spec: TaskSpec): WireTask {
	const now = new Date();
	const info = WireTask.fromPartial({
		id: spec.id,
		queue: spec.queue,
		kind: spec.kind,
		state: State.READY,
		payload: spec.payload,
		contentType: spec.contentType,
		headers: spec.headers,
		priority: spec.priority,
		uniqueKey: spec.unique?.key ?? "",
		maxAttempts: spec.maxAttempts || defaultAttempts,
		maxCrashes: spec.maxCrashes || defaultCrashes,
		maxDeliveries: spec.maxDeliveries ?? defaultDeliveries,
		lease: spec.lease ?? toDuration(defaultLease),
		tag: spec.tag,
		labels: spec.labels,
		createdAt: toTimestamp(now),
		readyAt: toTimestamp(now),
	});
	if (spec.maxRun) info.maxRun = spec.maxRun;
	if (spec.expiresAt) info.expiresAt = spec.expiresAt;
	const run = spec.delay ? new Date(now.getTime() + fromDuration(spec.delay)) : fromTimestamp(spec.runAt);
	if (run && run > now)
		Object.assign(info, { state: State.SCHEDULED, reason: "delay", runAt: toTimestamp(run), readyAt: undefined });
	return info;
}

/** Ends an attempt as a failure. */
function fail(t: Entry, f: Fail): void {
	t.info.error = f.error;
	t.info.failures++;
	if (f.fatal) end(t, State.DEAD, "fatal");
	else if (t.info.failures >= t.info.maxAttempts) end(t, State.DEAD, "max_attempts");
	else putBack(t, "retry", fromDuration(f.retryAfter));
}

/** Has a task wait for its next attempt, for some milliseconds. */
function putBack(t: Entry, reason: string, wait: number): void {
	t.token = 0n;
	const at = toTimestamp(new Date(Date.now() + wait));
	const waits = { state: State.SCHEDULED, reason, runAt: at, readyAt: undefined };
	Object.assign(t.info, wait > 0 ? waits : { state: State.READY, reason: "", runAt: undefined, readyAt: at });
}

function end(t: Entry, state: State, reason: string): void {
	t.token = 0n;
	Object.assign(t.info, { state, reason, runAt: undefined, finishedAt: toTimestamp(new Date()) });
}

// What no server takes, whatever it holds.

interface RangeOf {
	keyspace: string;
	from: Buffer;
	to: Buffer;
	prefix: Buffer;
}

function named(space: string, key: Uint8Array): void {
	if (!keyspaceName.test(space)) throw invalid("keyspace", "not a name of a keyspace");
	if (key.length === 0) throw invalid("key", "must not be empty");
}

function ranged(r: RangeOf): void {
	if (!keyspaceName.test(r.keyspace)) throw invalid("keyspace", "not a name of a keyspace");
	if (r.prefix.length > 0 && r.from.length + r.to.length > 0) throw invalid("prefix", "from or to is given too");
}

function judge(spec: TaskSpec): void {
	if (!taskName.test(spec.queue)) throw invalid("queue", "not a name of a queue");
	if (!taskName.test(spec.kind)) throw invalid("kind", "not a name of a kind");
	if (!parseId(spec.id)) throw invalid("id", "not an id of a task");
	if (spec.priority > 9) throw invalid("priority", "must be at most 9");
}

function shape(conditions: readonly KVCheck[], ops: readonly Op[]): void {
	conditions.forEach((c, i) => {
		telling(
			() => named(c.keyspace, c.key),
			(r) => r.within(`conditions[${i}].`),
		);
	});
	ops.forEach((op, i) => {
		telling(
			() => shapeOf(op),
			(r) => r.within(`ops[${i}].`).at(i),
		);
	});
}

function shapeOf(op: Op): void {
	const x = op.op;
	switch (x?.$case) {
		case "kvPut":
			named(x.value.keyspace, x.value.key);
			if (x.value.ifAbsent && x.value.ifRev) throw invalid("if_rev", "and if_absent are mutually exclusive");
			return;
		case "kvDelete":
		case "kvAdd":
			named(x.value.keyspace, x.value.key);
			return;
		case "kvDeleteRange":
			ranged(x.value);
			return;
		case "taskCreate":
			x.value.id ||= newId();
			judge(x.value);
	}
}

/** What an op writes, a key or a point, and its field; undefined: it is of another kind. */
function written(op: Op): { what: string; field: string } | undefined {
	const x = op.op;
	switch (x?.$case) {
		case "kvPut":
		case "kvDelete":
		case "kvAdd":
			return { what: `key ${nameOf(x.value.keyspace, x.value.key)}`, field: "key" };
		case "vectorUpsert":
			return { what: `point ${x.value.collection}/${x.value.point?.id}`, field: "id" };
		case "vectorDelete":
			return { what: `point ${x.value.collection}/${x.value.id}`, field: "id" };
	}
	return undefined;
}

/** Refuses the first op that writes what an op before it writes too. */
function twice(ops: readonly Op[]): void {
	const seen = new Set<string>();
	ops.forEach((op, i) => {
		const w = written(op);
		if (!w) return;
		if (seen.has(w.what))
			throw invalid(`ops[${i}].${w.field}`, "an op before it writes the same key", "duplicate_key").at(i);
		seen.add(w.what);
	});
}

/** The refusal of a condition, with the revision and the value that were found. */
function mismatch(row: Row): Refusal {
	const details: Record<string, string> = { rev: String(row.rev) };
	if (row.rev > 0n && row.value.length <= shownBytes) {
		try {
			details.value = utf8.decode(row.value);
		} catch {
			// it is not text
		}
	}
	const found = row.rev > 0n ? `at revision ${row.rev}` : "absent";
	const message = `key ${JSON.stringify(row.key.toString())} of keyspace ${JSON.stringify(row.space)} is ${found}`;
	return refusal({ code: "PRECONDITION_FAILED", message, details });
}

/** Judges a comparison. A key that is not there has revision 0 and no value: it is unequal to every value, and neither less nor greater. */
function holds(row: Row, c: KVCheck): boolean {
	const there = row.rev > 0n;
	if (c.compare === KVCheckCompare.EXISTS) return there;
	if (c.compare === KVCheckCompare.ABSENT) return !there;
	let order: number;
	if (c.operand?.$case === "rev") order = row.rev < c.operand.value ? -1 : row.rev > c.operand.value ? 1 : 0;
	else if (!there) return c.compare === KVCheckCompare.NOT_EQUAL;
	else order = Buffer.compare(row.value, c.operand?.value ?? Buffer.alloc(0));
	switch (c.compare) {
		case KVCheckCompare.EQUAL:
			return order === 0;
		case KVCheckCompare.NOT_EQUAL:
			return order !== 0;
		case KVCheckCompare.LESS:
			return order < 0;
		default:
			return order > 0;
	}
}
