import type { Client } from "./client.js";
import { bytesOf } from "./content.js";
import { placeOfKey } from "./core/place.js";
import type { Span } from "./errors.js";
import { KVGetRequest, KVRangeRequest } from "./gen/millrace/v1/kv.js";
import { methods } from "./methods.js";
import { type KeyRange, rangeOf, Tx } from "./tx.js";

/** The task that wrote a key: by the effects of an attempt, or in a commit under its lease. */
export interface KeyWriter {
	/** The id of the task. */
	task: string;
	/** The token of the attempt. */
	token: bigint;
}

/** What is stored under a key. */
export class Value {
	readonly bytes: Buffer;
	readonly rev: bigint;
	/**
	 * The task that wrote the key last; undefined for a write from outside of any task, and for one from before the
	 * keyspace kept writers.
	 */
	readonly writer: KeyWriter | undefined;

	/** @internal */
	constructor(bytes: Buffer, rev: bigint, writer?: KeyWriter) {
		this.bytes = bytes;
		this.rev = rev;
		this.writer = writer && { task: writer.task, token: writer.token };
	}

	/** The value as text. */
	get text(): string {
		return this.bytes.toString("utf8");
	}

	/** The value read as JSON. */
	json<T = unknown>(): T {
		return JSON.parse(this.text) as T;
	}
}

interface Options {
	timeout?: Span;
	signal?: AbortSignal;
}

/** A keyspace. Its changes are commits of their own: Tx has several in one. */
export class KV {
	readonly #client: Client;
	readonly #keyspace: string;

	/** @internal */
	constructor(client: Client, keyspace: string) {
		this.#client = client;
		this.#keyspace = keyspace;
	}

	/** Reads a key; undefined where it is absent. */
	async get(key: string | Uint8Array, o: Options = {}): Promise<Value | undefined> {
		const request = KVGetRequest.fromPartial({ keyspace: this.#keyspace, key: bytesOf(key) });
		const r = await this.#client.engine.call(methods.kvGet, request, o, (n) => placeOfKey(request.key, n));
		return r.found ? new Value(r.value, r.rev, r.writer) : undefined;
	}

	/** Stores a value: text and bytes as they are, all else as JSON. Returns the key's revision. */
	async put(
		key: string | Uint8Array,
		value: unknown,
		o: Options & { ifRev?: bigint; ifAbsent?: boolean } = {},
	): Promise<bigint> {
		const tx = new Tx(this.#client);
		tx.kv(this.#keyspace).put(key, value, o);
		return (await tx.commit(o)).revs[0]!;
	}

	/** Adds to a number. Returns the sum. */
	async add(
		key: string | Uint8Array,
		delta: number | bigint,
		o: Options & { floor?: number | bigint; ceiling?: number | bigint } = {},
	): Promise<bigint> {
		const tx = new Tx(this.#client);
		tx.kv(this.#keyspace).add(key, delta, o);
		return (await tx.commit(o)).sums[0]!;
	}

	/** Removes a key. Returns whether it was there. */
	async delete(key: string | Uint8Array, o: Options & { ifRev?: bigint } = {}): Promise<boolean> {
		const tx = new Tx(this.#client);
		tx.kv(this.#keyspace).delete(key, o);
		return (await tx.commit(o)).existed[0]!;
	}

	/** Removes the keys of a range as one change. */
	async deleteRange(range: KeyRange, o: Options = {}): Promise<void> {
		const tx = new Tx(this.#client);
		tx.kv(this.#keyspace).deleteRange(range);
		await tx.commit(o);
	}

	/** Reads the keys of a range in their order. */
	async *range(range: KeyRange, o: { limit?: number } & Options = {}): AsyncGenerator<{ key: Buffer; value: Value }> {
		const request = KVRangeRequest.fromPartial({
			keyspace: this.#keyspace,
			...rangeOf(range),
			limit: BigInt(o.limit ?? 0),
		});
		for await (const page of this.#client.engine.read(methods.kvRange, request, o)) {
			for (const item of page.items) yield { key: item.key, value: new Value(item.value, item.rev, item.writer) };
		}
	}
}
