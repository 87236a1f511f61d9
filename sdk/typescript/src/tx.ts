import { type BatchCancelOptions, type BatchOptions, cancelled, followsPinned, opened } from "./batch.js";
import type { Client } from "./client.js";
import { bytesOf, valueBytes } from "./content.js";
import type { Hub } from "./core/hub.js";
import {
	idIn,
	pinned,
	placeOfCommit,
	placeOfId,
	placeOfKey,
	placeOfOp,
	placeOfText,
	placeTask,
	random16,
} from "./core/place.js";
import { invalid, MillraceError, millis, type Span } from "./errors.js";
import { RefChangeKind } from "./gen/millrace/v1/ref_change.js";
import {
	type BatchOpen,
	type CommitRequest,
	type CommitResponse,
	type Fence,
	type KVCheck,
	KVCheckCompare,
	type Op,
	type TaskSpec,
} from "./gen/millrace/v1/task.js";
import type { CallOptions } from "./job.js";
import { toTimestamp } from "./time.js";

/** What a commit came to. Entries are by op, in their order. */
export interface Committed {
	/** The new revision of a key that was put or added to. */
	revs: (bigint | undefined)[];
	/** What an addition made. */
	sums: (bigint | undefined)[];
	/** Whether a deleted key was there. */
	existed: boolean[];
	/** It was applied before, and nothing was done again. */
	replayed: boolean;
	/** Where it stands in the log. */
	at: { partition: number; index: bigint } | undefined;
}

/** A condition of a commit. */
export type Condition =
	| { exists: true }
	| { absent: true }
	| { rev: bigint; is?: "equal" | "notEqual" | "less" | "greater" }
	| { value: string | Uint8Array; is?: "equal" | "notEqual" | "less" | "greater" };

const compares = {
	equal: KVCheckCompare.EQUAL,
	notEqual: KVCheckCompare.NOT_EQUAL,
	less: KVCheckCompare.LESS,
	greater: KVCheckCompare.GREATER,
};

const zeroId = "0".repeat(40);

/** A range of keys: those with a prefix, those between two keys, or all. */
export type KeyRange =
	| { prefix: string | Uint8Array }
	| { from?: string | Uint8Array; to?: string | Uint8Array }
	| { all: true };

const none = Buffer.alloc(0);

export function rangeOf(r: KeyRange): { from: Buffer; to: Buffer; prefix: Buffer } {
	if ("prefix" in r) return { from: none, to: none, prefix: bytesOf(r.prefix) };
	if ("all" in r) return { from: none, to: none, prefix: none };
	return {
		from: r.from === undefined ? none : bytesOf(r.from),
		to: r.to === undefined ? none : bytesOf(r.to),
		prefix: none,
	};
}

/** Changes of one keyspace within a transaction. */
export class TxKV {
	readonly #tx: Changes;
	readonly #keyspace: string;

	constructor(tx: Changes, keyspace: string) {
		this.#tx = tx;
		this.#keyspace = keyspace;
	}

	/** Stores a value: text and bytes as they are, all else as JSON. */
	put(
		key: string | Uint8Array,
		value: unknown,
		o: { ifRev?: bigint; ifAbsent?: boolean; wantPrev?: boolean } = {},
	): void {
		this.#tx.ops.push({
			op: {
				$case: "kvPut",
				value: {
					keyspace: this.#keyspace,
					key: bytesOf(key),
					value: valueBytes(value),
					ifRev: o.ifRev,
					ifAbsent: o.ifAbsent ?? false,
					wantPrev: o.wantPrev ?? false,
				},
			},
		});
	}

	/** Adds to a number. The commit is refused where the sum would be below floor or above ceiling. */
	add(
		key: string | Uint8Array,
		delta: number | bigint,
		o: { floor?: number | bigint; ceiling?: number | bigint; ifRev?: bigint } = {},
	): void {
		this.#tx.ops.push({
			op: {
				$case: "kvAdd",
				value: {
					keyspace: this.#keyspace,
					key: bytesOf(key),
					delta: BigInt(delta),
					ifRev: o.ifRev,
					floor: o.floor === undefined ? undefined : BigInt(o.floor),
					ceiling: o.ceiling === undefined ? undefined : BigInt(o.ceiling),
				},
			},
		});
	}

	/** Removes a key. An absent one is not an error. */
	delete(key: string | Uint8Array, o: { ifRev?: bigint } = {}): void {
		this.#tx.ops.push({
			op: { $case: "kvDelete", value: { keyspace: this.#keyspace, key: bytesOf(key), ifRev: o.ifRev } },
		});
	}

	/** Removes the keys of a range as one change. */
	deleteRange(range: KeyRange): void {
		this.#tx.ops.push({
			op: { $case: "kvDeleteRange", value: { keyspace: this.#keyspace, ...rangeOf(range), count: false } },
		});
	}

	/** Asks that a condition holds; else the whole commit is refused with PRECONDITION_FAILED. */
	check(key: string | Uint8Array, c: Condition): void {
		const check: KVCheck = {
			keyspace: this.#keyspace,
			key: bytesOf(key),
			compare:
				"exists" in c ? KVCheckCompare.EXISTS : "absent" in c ? KVCheckCompare.ABSENT : compares[c.is ?? "equal"],
			operand: undefined,
		};
		if ("rev" in c) check.operand = { $case: "rev", value: c.rev };
		if ("value" in c) check.operand = { $case: "value", value: bytesOf(c.value) };
		this.#tx.conditions.push(check);
	}
}

/** How a queue is paused. Without a time it is until it is resumed. */
export interface PauseOptions {
	until?: Date;
	/** Or for how long from now. */
	for?: Span;
	/** At most 256 B. Readers see it. */
	reason?: string;
}

/** When a pause ends. */
export function pauseEnd(o: PauseOptions): Date | undefined {
	if (o.for === undefined) return o.until;
	if (o.until !== undefined) throw invalid("for", "and until are mutually exclusive");
	return new Date(Date.now() + millis(o.for));
}

/** A point of a collection. */
export interface Point {
	vector?: readonly number[] | Float32Array;
	model?: string;
	/** An object; the text of it is embedded where there is no vector. */
	payload?: unknown;
	ifVersion?: string;
	ifAbsent?: boolean;
}

/** What a commit, or the completion of a task, changes. */
export class Changes {
	/** @internal */
	readonly ops: Op[] = [];
	/** @internal */
	readonly conditions: KVCheck[] = [];
	/** @internal Tasks whose ids were made. A commit may find out that their queues are pinned, and make them again. */
	readonly made = new Set<TaskSpec>();
	readonly #hub: Hub | undefined;
	readonly #task: string | undefined;

	/** @internal task: the one that all of it is in a partition with; undefined: the first part says where. */
	constructor(hub?: Hub, task?: string) {
		this.#hub = hub;
		this.#task = task;
	}

	kv(keyspace: string): TxKV {
		return new TxKV(this, keyspace);
	}

	/** Refs of a repository. */
	repo(
		name: string,
		o: { tag?: string } = {},
	): { update(ref: string, to: string, from?: string): void; delete(ref: string, from?: string): void } {
		const change = (kind: RefChangeKind, ref: string, to: string, from: string | undefined): void => {
			this.ops.push({
				op: {
					$case: "refTransaction",
					value: {
						repo: name,
						tag: o.tag ?? "",
						message: "",
						changes: [
							{
								kind,
								name: ref,
								new: to,
								old: from,
								target: "",
								oldTarget: undefined,
								noDeref: false,
								missingOk: false,
								message: "",
							},
						],
					},
				},
			});
		};
		return {
			/** Moves a ref. With from it must be there; an empty from: it must not exist. */
			update: (ref, to, from) => change(RefChangeKind.UPDATE, ref, to, from === "" ? zeroId : from),
			delete: (ref, from) => change(RefChangeKind.DELETE, ref, "", from),
		};
	}

	/** Points of a collection. */
	collection(name: string): { upsert(id: string, p: Point): void; delete(id: string): void } {
		return {
			upsert: (id, p) => {
				this.ops.push({
					op: {
						$case: "vectorUpsert",
						value: {
							collection: name,
							point: {
								id,
								vector: p.vector ? Array.from(p.vector) : [],
								model: p.model ?? "",
								payload: p.payload === undefined ? none : Buffer.from(JSON.stringify(p.payload)),
								ifVersion: p.ifVersion ?? "",
								ifAbsent: p.ifAbsent ?? false,
							},
						},
					},
				});
			},
			delete: (id) => {
				this.ops.push({ op: { $case: "vectorDelete", value: { collection: name, id, ifVersion: "" } } });
			},
		};
	}

	/** Cancels a task of the same partition. */
	cancelTask(id: string, o: { reason?: string; force?: boolean } = {}): void {
		this.ops.push({ op: { $case: "taskCancel", value: { id, reason: o.reason ?? "", force: o.force ?? false } } });
	}

	/** Pauses a queue, until or for a time where one is given. */
	pauseQueue(queue: string, o: PauseOptions = {}): void {
		const until = pauseEnd(o);
		this.ops.push({
			op: {
				$case: "queuePause",
				value: { queue, reason: o.reason ?? "", until: until && toTimestamp(until), resume: false },
			},
		});
	}

	/** Lets a queue go on. */
	resumeQueue(queue: string): void {
		this.ops.push({ op: { $case: "queuePause", value: { queue, reason: "", until: undefined, resume: true } } });
	}

	/**
	 * Opens a batch in the commit's partition, as Client.openBatch does by itself, and returns its id. What is added after it may name the batch:
	 * tasks by the option batch, sealBatch and cancelBatch. Where it is the first part of a commit that says a partition, id or tag say which.
	 */
	async openBatch(o: BatchOptions = {}): Promise<string> {
		const op = await opened(o);
		if (!op.id) {
			const n = await this.learn(o);
			let home = o.tag ? placeOfText(o.tag, n) : this.#here(n);
			if (home < 0 && (await this.pinnedByFollowUp(op, o))) home = pinned;
			if (home < 0) home = (this.#hub ? this.#hub.turn++ : 0) % Math.max(n, 1);
			op.id = idIn(home, n);
		}
		this.ops.push({ op: { $case: "batchOpen", value: op } });
		return op.id;
	}

	/**
	 * Says that a batch of the commit's partition gets no more tasks, as Batch.seal does. It sees what was added before it: a completion that adds
	 * the last tasks of a batch can seal it.
	 */
	sealBatch(id: string): void {
		this.ops.push({ op: { $case: "batchSeal", value: { id } } });
	}

	/** Seals a batch of the commit's partition and has its tasks cancelled, as Batch.cancel does. */
	cancelBatch(id: string, o: BatchCancelOptions = {}): void {
		this.ops.push({ op: { $case: "batchCancel", value: cancelled(id, o) } });
	}

	/** @internal The number of partitions, for what cannot be written without it. A handler knows it. */
	protected async learn(_: CallOptions): Promise<number> {
		return this.#partitions;
	}

	/** @internal Whether what a batch makes says that it is pinned. A handler's partition is that of its task. */
	protected async pinnedByFollowUp(_batch: BatchOpen, _: CallOptions): Promise<boolean> {
		return false;
	}

	/** Forgets all changes and conditions. */
	reset(): void {
		this.ops.length = 0;
		this.conditions.length = 0;
		this.made.clear();
	}

	// Without a server there is one partition; before a stream is let in the number is not known: 0.
	get #partitions(): number {
		return this.#hub ? this.#hub.partitions : 1;
	}

	#home(partitions: number): number {
		return this.#task === undefined ? -1 : placeOfId(this.#task, partitions);
	}

	/** The partition of the commit, as far as it says one; below 0: it does not. */
	#here(n: number): number {
		const home = this.#home(n);
		if (home >= 0) return home;
		const pins = this.#hub?.pins;
		for (const op of this.ops) {
			const place = placeOfOp(op, n, pins);
			if (place >= 0) return place;
		}
		return this.conditions.length > 0 ? placeOfKey(this.conditions[0]!.key, n) : -1;
	}

	/** @internal The task gets its id as soon as it is known where it belongs: else with the commit, or when it is asked for. */
	create(spec: TaskSpec): void {
		const n = this.#partitions;
		if (n > 0) {
			const open = !spec.id;
			const home = this.#here(n);
			const place = placeTask(spec, n, home < 0 ? (this.#hub?.turn ?? 0) % n : home, this.#hub?.pins);
			if (typeof place !== "number") throw new MillraceError({ ...place, op: this.ops.length });
			if (open) this.made.add(spec);
		}
		this.ops.push({ op: { $case: "taskCreate", value: spec } });
	}

	/** @internal Refuses what is in several partitions. */
	place(): void {
		const n = this.#partitions;
		if (n <= 1) return;
		const place = placeOfCommit(this.conditions, this.ops, n, this.#home(n), this.#hub?.pins);
		if (typeof place !== "number") throw new MillraceError(place);
	}
}

/** A commit: all of its changes in one entry of the log, or none. */
export class Tx extends Changes {
	readonly #client: Client;
	readonly #fence: Fence | undefined;

	/** @internal */
	constructor(client: Client, fence?: Fence) {
		super(client.hub, fence?.task);
		this.#client = client;
		this.#fence = fence;
	}

	/** @internal */
	protected override async learn(o: CallOptions): Promise<number> {
		await this.#client.engine.learn(o);
		return super.learn(o);
	}

	/** @internal */
	protected override pinnedByFollowUp(b: BatchOpen, o: CallOptions): Promise<boolean> {
		return followsPinned(this.#client, b, o);
	}

	/** Commits. A commit whose answer is lost is sent again under the same id, and is applied once. */
	async commit(o: { timeout?: Span; signal?: AbortSignal } = {}): Promise<Committed> {
		if (this.ops.length + this.conditions.length === 0) throw invalid("ops", "is required");
		const request: CommitRequest = {
			fence: this.#fence,
			conditions: [...this.conditions],
			ops: [...this.ops],
			requestId: random16(),
		};
		return committed(request, await this.#client.engine.commit(request, this.made, o));
	}
}

function committed(request: CommitRequest, r: CommitResponse): Committed {
	const kind = (i: number): string | undefined => request.ops[i]?.op?.$case;
	return {
		revs: r.results.map((x) => (x.rev === 0n ? undefined : x.rev)),
		sums: r.results.map((x, i) => (kind(i) === "kvAdd" ? x.sum : undefined)),
		existed: r.results.map((x) => x.existed),
		replayed: r.replayed,
		at: r.at && { partition: r.at.partition, index: r.at.index },
	};
}
