// Batches: tasks that are counted together, and what is made when all of them have ended.
import type { Client } from "./client.js";
import { idIn, pinned, placeOfId, placeOfText } from "./core/place.js";
import { invalid, millis } from "./errors.js";
import { BatchState, ListBatchesRequest, OpenBatchRequest, type Batch as WireBatch } from "./gen/millrace/v1/batch.js";
import type { BatchCancel, BatchOpen } from "./gen/millrace/v1/task.js";
import type { CallOptions, FollowUp } from "./job.js";
import { methods } from "./methods.js";
import { fromTimestamp } from "./time.js";

/** How a batch is opened. */
export interface BatchOptions extends CallOptions {
	/** The task that is made when it finishes, however its tasks ended: Job.followUp says which. */
	onDone?: FollowUp | undefined;
	/** The one that is made besides if each of its tasks was completed, and it was not cancelled. */
	onSuccess?: FollowUp | undefined;
	/** Made with newId: opened again with it and the same options, a batch is the one that is there. */
	id?: string;
	/** The batch is in the partition of the tag, as tasks with it are. id and tag are mutually exclusive. */
	tag?: string;
	/** At most 16. */
	labels?: Record<string, string>;
}

/** Tasks of a batch by what became of them, those too that were removed after their end. */
export interface BatchCounts {
	total: number;
	/** Blocked, scheduled or ready. */
	waiting: number;
	running: number;
	completed: number;
	dead: number;
	cancelled: number;
}

/** A batch, and where it stands. */
export interface BatchInfo {
	id: string;
	/** open: it takes tasks; sealed or cancelling: it takes none, and some have not ended. */
	state: "open" | "sealed" | "cancelling" | "finished" | "unknown";
	counts: BatchCounts;
	labels: Record<string, string>;
	/** Queues of the tasks that it makes when it finishes; empty: it makes none. */
	onDone: string;
	onSuccess: string;
	openedAt: Date | undefined;
	sealedAt: Date | undefined;
	finishedAt: Date | undefined;
	/** Name of the token that opened it. */
	by: string;
	/** Who cancelled it; undefined: it was not. */
	cancel: { by: string; reason: string } | undefined;
	/** The ids of the tasks that it made; empty: it has not. */
	doneTask: string;
	successTask: string;
	/** Why one of them could not be made when that was tried last; it is tried again. */
	refused: { code: string; message: string } | undefined;
	/** The call that returned it found that it was so before. */
	replayed: boolean;
}

const pageSize = 1000;

const states: Partial<Record<BatchState, BatchInfo["state"]>> = {
	[BatchState.OPEN]: "open",
	[BatchState.SEALED]: "sealed",
	[BatchState.CANCELLING]: "cancelling",
	[BatchState.FINISHED]: "finished",
};

function infoOf(b: WireBatch, replayed = false): BatchInfo {
	const n = b.counts;
	return {
		id: b.id,
		state: states[b.state] ?? "unknown",
		counts: {
			total: Number(n?.total ?? 0n),
			waiting: Number(n?.waiting ?? 0n),
			running: Number(n?.running ?? 0n),
			completed: Number(n?.completed ?? 0n),
			dead: Number(n?.dead ?? 0n),
			cancelled: Number(n?.cancelled ?? 0n),
		},
		labels: b.labels,
		onDone: b.onDone?.queue ?? "",
		onSuccess: b.onSuccess?.queue ?? "",
		openedAt: fromTimestamp(b.openedAt),
		sealedAt: fromTimestamp(b.sealedAt),
		finishedAt: fromTimestamp(b.finishedAt),
		by: b.by,
		cancel: b.cancel && { by: b.cancel.by, reason: b.cancel.reason },
		doneTask: b.doneTask,
		successTask: b.successTask,
		refused: b.refused && { code: b.refused.code, message: b.refused.message },
		replayed,
	};
}

/** A batch as it is asked for. Its id is as the options have it, or empty. */
export async function opened(o: BatchOptions): Promise<BatchOpen> {
	if (o.id && o.tag) throw invalid("id", "and tag are mutually exclusive");
	return {
		id: o.id ?? "",
		tag: "", // what has no id gets one that names the place
		labels: o.labels ?? {},
		onDone: await o.onDone?.template("on_done"),
		onSuccess: await o.onSuccess?.template("on_success"),
	};
}

/** Whether what a batch makes is of a pinned queue, asked for where it is not known. */
export async function followsPinned(client: Client, b: BatchOpen, o: CallOptions): Promise<boolean> {
	if (client.hub.partitions <= 1) return false;
	const queues = [b.onDone, b.onSuccess].flatMap((f) => (f ? [f.queue] : []));
	await client.engine.askPins(queues, o);
	return queues.some((q) => client.hub.pins.get(q));
}

/** How a batch is cancelled: rate is in tasks a second, by default 1,000. */
export interface BatchCancelOptions {
	reason?: string;
	rate?: number;
	/** Running tasks are taken from their workers at once. */
	force?: boolean;
}

/** The cancel of a batch, as it is asked for. */
export function cancelled(id: string, o: BatchCancelOptions): BatchCancel {
	if (o.rate !== undefined && !(Number.isInteger(o.rate) && o.rate >= 1 && o.rate <= 1_000_000))
		throw invalid("rate", "must be 1 to 1,000,000");
	return { id, reason: o.reason ?? "", rate: o.rate ?? 0, force: o.force ?? false };
}

/** Opens a batch. */
export async function openBatch(client: Client, o: BatchOptions): Promise<Batch> {
	const late = o.timeout === undefined ? undefined : Date.now() + millis(o.timeout);
	const open = await opened(o);
	let { id } = open;
	if (!id) {
		// So that it is safe to repeat.
		await client.engine.learn(o);
		const n = client.hub.partitions;
		let home = o.tag ? placeOfText(o.tag, n) : client.hub.turn++ % Math.max(n, 1);
		if (!o.tag && (await followsPinned(client, open, o))) home = pinned;
		id = idIn(home, n);
	}
	const left = late === undefined ? o : { ...o, timeout: Math.max(late - Date.now(), 1) };
	const r = await client.engine.call(
		methods.openBatch,
		OpenBatchRequest.fromPartial({ ...open, id } as never),
		left,
		(n) => placeOfId(id, n),
	);
	return new Batch(client, r.batch!.id, r.replayed);
}

/** Lists batches, page by page. */
export async function* batches(client: Client, o: CallOptions): AsyncGenerator<BatchInfo> {
	let cursor = "";
	do {
		const request = ListBatchesRequest.fromPartial({ limit: pageSize, cursor });
		const page = await client.engine.call(methods.listBatches, request, o);
		for (const b of page.batches) yield infoOf(b);
		cursor = page.cursor;
	} while (cursor);
}

/**
 * A batch, by its id. Client.openBatch opens one; tasks are added to it by the option batch of an add. One that is not there, or finished more than
 * a week ago, is NOT_FOUND.
 */
export class Batch {
	readonly id: string;
	/** It had been opened before. */
	readonly replayed: boolean;
	readonly #client: Client;

	/** @internal */
	constructor(client: Client, id: string, replayed = false) {
		this.#client = client;
		this.id = id;
		this.replayed = replayed;
	}

	readonly #place = (n: number): number => placeOfId(this.id, n);

	/** Reads it. */
	async get(o: CallOptions = {}): Promise<BatchInfo> {
		return infoOf(
			(await this.#client.engine.call(methods.getBatch, { id: this.id, stale: false }, o, this.#place)).batch!,
		);
	}

	/** Says that it gets no more tasks. It finishes when all of them have ended: at once if that is so by now. */
	async seal(o: CallOptions = {}): Promise<BatchInfo> {
		const r = await this.#client.engine.call(methods.sealBatch, { id: this.id }, o, this.#place);
		return infoOf(r.batch!, r.replayed);
	}

	/**
	 * Seals it and has its tasks cancelled, rate of them a second, by default 1,000. Running tasks are asked to stop, or with force taken from their
	 * workers. One that has finished is WRONG_STATE.
	 */
	async cancel(o: BatchCancelOptions & CallOptions = {}): Promise<BatchInfo> {
		const r = await this.#client.engine.call(methods.cancelBatch, cancelled(this.id, o), o, this.#place);
		return infoOf(r.batch!, r.replayed);
	}

	/** Waits until it has finished, without a bound unless timeout says one. After the timeout it is DEADLINE_EXCEEDED, and the batch goes on. */
	async wait(o: CallOptions = {}): Promise<BatchInfo> {
		return infoOf((await this.#client.engine.last(methods.waitBatch, { id: this.id }, o, this.#place)).batch!);
	}
}
