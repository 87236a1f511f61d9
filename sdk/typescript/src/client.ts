import { Batch, type BatchInfo, type BatchOptions, batches, openBatch } from "./batch.js";
import {
	Bulk,
	type BulkAction,
	type BulkCount,
	type BulkInfo,
	type BulkOptions,
	bulks,
	countBulk,
	startBulk,
} from "./bulk.js";
import { Hub, type Logger } from "./core/hub.js";
import { placeOfId } from "./core/place.js";
import type { Method, TlsOptions } from "./core/transport.js";
import { restHosts, type Transport } from "./core/ways.js";
import { Cron, type CronInfo, type CronPreview, crons, previewCron } from "./cron.js";
import { Engine } from "./engine.js";
import { invalid, millis, type Span } from "./errors.js";
import { CancelRequest, GetRequest } from "./gen/millrace/v1/task.js";
import { type TaskInfo, taskInfo } from "./info.js";
import { KV } from "./kv.js";
import { Ledger } from "./ledger.js";
import { Limiter, type LimiterInfo, limiters } from "./limiter.js";
import { methods } from "./methods.js";
import { Queue, type QueueStats, type QueuesQuery, queues } from "./queue.js";
import { Tx } from "./tx.js";

/** Where the server is, and how the client speaks to it. */
export interface ClientOptions {
	/** host:port, or several of one cluster with commas between them. Default: MILLRACE_URL, then 127.0.0.1:7081. */
	url?: string;
	/** Default: MILLRACE_TOKEN. */
	token?: string;
	/** Default: MILLRACE_NAMESPACE, then default. */
	namespace?: string;
	/** TLS; false: clear text. Default: TLS, but for addresses of this machine. */
	tls?: TlsOptions | boolean;
	/** How long a call may take that names no timeout of its own. Default: 30 seconds. */
	timeout?: Span;
	/**
	 * auto: gRPC with its streams, and REST while something on the way lets no gRPC through; or stream or rest alone. Default:
	 * MILLRACE_TRANSPORT, then auto.
	 */
	transport?: Transport;
	/**
	 * host:port of the REST routes, or several with commas. Default: MILLRACE_REST_URL if the address does not come from url; then the server's
	 * address, which may be that of a proxy for both, and port 7080 of the same host if that address has port 7081.
	 */
	restUrl?: string;
	/** Default: the console. */
	logger?: Logger;
	/** Is given one line of JSON for each call that ended. */
	ledger?: (line: string) => void;
}

const local = (address: string): boolean => {
	const host = address.slice(0, address.lastIndexOf(":"));
	return host === "localhost" || host.startsWith("127.") || host === "[::1]";
};

function addressesOf(url: string, field = "url"): string[] {
	return url.split(",").map((part) => {
		const address = part
			.trim()
			.replace(/^https?:\/\//, "")
			.replace(/\/$/, "");
		if (!/^.+:\d+$/.test(address)) throw invalid(field, `${JSON.stringify(part)} must be host:port`);
		return address;
	});
}

/** A client. It connects with its first call, and keeps the connection. */
export class Client {
	/** @internal */
	readonly engine: Engine;
	readonly #hub: Hub;
	#workers = new Set<{ stop(): Promise<void> }>();

	constructor(o: ClientOptions = {}) {
		const env = process.env;
		const addresses = addressesOf(o.url ?? env.MILLRACE_URL ?? "127.0.0.1:7081");
		const token = (o.token ?? env.MILLRACE_TOKEN ?? "").trim();
		if (/[^\x21-\x7e]/.test(token)) throw invalid("token", "must be one word of ASCII");
		const transport = o.transport ?? (env.MILLRACE_TRANSPORT || "auto");
		if (!["auto", "stream", "rest"].includes(transport)) throw invalid("transport", "must be auto, stream or rest");
		// The variable goes with MILLRACE_URL.
		const named = o.restUrl ?? (o.url === undefined ? env.MILLRACE_REST_URL || undefined : undefined);
		const rest = restHosts(named === undefined ? undefined : addressesOf(named, "restUrl"), addresses);
		let tls: TlsOptions | undefined;
		if (typeof o.tls === "object") tls = o.tls;
		else if (o.tls ?? !addresses.every(local)) tls = {};
		this.#hub = new Hub({
			addresses,
			token,
			namespace: o.namespace ?? env.MILLRACE_NAMESPACE ?? "default",
			tls,
			plain: (address) => o.tls === false || local(address),
			logger: o.logger ?? console,
			transport: transport as Transport,
			rest,
		});
		this.engine = new Engine(
			this.#hub,
			o.timeout === undefined ? undefined : millis(o.timeout),
			o.ledger && new Ledger(o.ledger),
		);
	}

	/** @internal */
	get hub(): Hub {
		return this.#hub;
	}

	/** The way in use: streams of gRPC, or REST. */
	get transport(): "stream" | "rest" {
		return this.#hub.ways.rest ? "rest" : "stream";
	}

	/** A commit: add changes, then commit it. */
	tx(): Tx {
		return new Tx(this);
	}

	kv(keyspace: string): KV {
		return new KV(this, keyspace);
	}

	/** Reads a task. */
	async task(id: string, o: { timeout?: Span; signal?: AbortSignal } = {}): Promise<TaskInfo> {
		const request = GetRequest.fromPartial({ id, meta: true });
		const t = (await this.engine.call(methods.getTask, request, o, (n) => placeOfId(id, n))).task!;
		return taskInfo(t);
	}

	/** Cancels a task: one that waits at once; the worker of one that runs is told. */
	async cancel(id: string, o: { reason?: string; force?: boolean; timeout?: Span } = {}): Promise<void> {
		await this.engine.call(
			methods.cancel,
			CancelRequest.fromPartial({ id, reason: o.reason ?? "", force: o.force ?? false }),
			o,
			(n) => placeOfId(id, n),
		);
	}

	/** A queue, by its name. */
	queue(name: string): Queue {
		return new Queue(this, name);
	}

	/** Lists queues with their counters, by name or as sort says. */
	queues(o: QueuesQuery & { timeout?: Span; signal?: AbortSignal } = {}): AsyncGenerator<QueueStats> {
		return queues(this, o);
	}

	/** A cron, by its name. Job.cron makes one. */
	cron(name: string): Cron {
		return new Cron(this, name);
	}

	/** Lists crons by name. */
	crons(o: { prefix?: string; timeout?: Span; signal?: AbortSignal } = {}): AsyncGenerator<CronInfo> {
		return crons(this, o);
	}

	/** Says when a schedule holds: its next slots, 1 to 100, from now or after a time. Nothing is stored. */
	previewCron(
		schedule: string,
		o: { zone?: string; count?: number; after?: Date; timeout?: Span; signal?: AbortSignal } = {},
	): Promise<CronPreview> {
		return previewCron(this, schedule, o);
	}

	/** A limiter, by its name: it bounds tasks of several queues together. */
	limiter(name: string): Limiter {
		return new Limiter(this, name);
	}

	/** Lists limiters by name. */
	limiters(o: { prefix?: string; timeout?: Span; signal?: AbortSignal } = {}): AsyncGenerator<LimiterInfo> {
		return limiters(this, o);
	}

	/**
	 * Opens a batch, to which tasks are added by the option batch until it is sealed. An id of a batch that was opened with something else is
	 * ALREADY_EXISTS.
	 */
	openBatch(o: BatchOptions = {}): Promise<Batch> {
		return openBatch(this, o);
	}

	/** A batch that was opened elsewhere, by its id. */
	batch(id: string): Batch {
		return new Batch(this, id);
	}

	/** Lists batches, the last opened first, partition after partition. */
	batches(o: { timeout?: Span; signal?: AbortSignal } = {}): AsyncGenerator<BatchInfo> {
		return batches(this, o);
	}

	/**
	 * Begins a job that acts on every task of a filter, in all partitions. The server goes on with it when the client is gone; tasks that are
	 * added after the start are left alone. At most 10 jobs run at once in a namespace.
	 */
	startBulk(action: BulkAction, o: BulkOptions = {}): Promise<BulkInfo> {
		return startBulk(this, action, o);
	}

	/** Counts what a bulk job would find, and changes nothing. */
	countBulk(action: BulkAction, o: BulkOptions = {}): Promise<BulkCount> {
		return countBulk(this, action, o);
	}

	/** A bulk job, by its id. */
	bulk(id: string): Bulk {
		return new Bulk(this, id);
	}

	/** Lists the bulk jobs that run and those that ended within a day, the last begun first. */
	bulks(o: { timeout?: Span; signal?: AbortSignal } = {}): Promise<BulkInfo[]> {
		return bulks(this, o);
	}

	/** Replaces the token, for open streams too, before the one in use expires. */
	setToken(token: string): void {
		this.#hub.token = token.trim();
		this.#hub.tokenChanged();
	}

	/** Calls a method of the contract by its generated codec. */
	raw<Req, Res>(
		method: Method<Req, Res>,
		request: Req,
		o: { timeout?: Span; signal?: AbortSignal } = {},
	): Promise<Res> {
		return this.engine.call(method, request, o, undefined, true);
	}

	/** @internal */
	enter(worker: { stop(): Promise<void> }): void {
		this.#workers.add(worker);
	}

	/** @internal */
	leave(worker: { stop(): Promise<void> }): void {
		this.#workers.delete(worker);
	}

	/** Drains the workers, ends what waits, and closes the connections. */
	async close(): Promise<void> {
		await Promise.all([...this.#workers].map((w) => w.stop()));
		await this.engine.producer.close();
		this.#hub.close();
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.close();
	}
}
