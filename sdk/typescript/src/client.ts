import { Hub, type Logger } from "./core/hub.js";
import { placeOfId } from "./core/place.js";
import type { Method, TlsOptions } from "./core/transport.js";
import { restHosts, type Transport } from "./core/ways.js";
import { Engine } from "./engine.js";
import { invalid, millis, type Span } from "./errors.js";
import { AfterOn, CancelRequest, GetRequest } from "./gen/millrace/v1/task.js";
import { stateName } from "./job.js";
import { KV } from "./kv.js";
import { Ledger } from "./ledger.js";
import { methods } from "./methods.js";
import { fromTimestamp } from "./time.js";
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

/** A task as it stands. */
export interface TaskInfo {
	id: string;
	queue: string;
	kind: string;
	state: string;
	reason: string;
	attempt: number;
	failures: number;
	crashes: number;
	snoozes: number;
	priority: number;
	tag: string;
	key: string;
	cost: number;
	labels: Record<string, string>;
	createdAt: Date | undefined;
	finishedAt: Date | undefined;
	errorCode: string;
	errorMessage: string;
	progress: { percent: number; message: string } | undefined;
	/** The tasks that it was made to wait for. */
	after: Dependency[];
	/** How many of them a blocked task waits for. */
	pending: number;
	/** How many blocked tasks wait for this one. */
	dependents: number;
}

/** How a task stands that another one was made to wait for. */
export interface Dependency {
	id: string;
	/** Terminal: any end is enough. */
	on: "completed" | "terminal";
	/** Empty where it is not there any more. */
	state: string;
	/** The other one still waits for it. */
	waits: boolean;
}

/** Counts of a queue. */
export interface QueueStats {
	ready: number;
	scheduled: number;
	running: number;
	completed: number;
	dead: number;
	cancelled: number;
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
		return {
			id: t.id,
			queue: t.queue,
			kind: t.kind,
			state: stateName(t.state),
			reason: t.reason,
			attempt: t.attempt,
			failures: t.failures,
			crashes: t.crashes,
			snoozes: t.snoozes,
			priority: t.priority,
			tag: t.tag,
			key: t.key,
			cost: t.cost || 1,
			labels: t.labels,
			createdAt: fromTimestamp(t.createdAt),
			finishedAt: fromTimestamp(t.finishedAt),
			errorCode: t.error?.code ?? "",
			errorMessage: t.error?.message ?? "",
			progress: t.progress && { percent: t.progress.percent, message: t.progress.message },
			after: t.after.map((a) => ({
				id: a.id,
				on: a.on === AfterOn.TERMINAL ? "terminal" : "completed",
				state: a.state ? stateName(a.state) : "",
				waits: a.waits,
			})),
			pending: t.pending,
			dependents: t.dependents,
		};
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
	queue(name: string): { stats(): Promise<QueueStats> } {
		return {
			stats: async () => {
				const s = (await this.engine.call(methods.queueStats, { queue: name })).stats!;
				return {
					ready: Number(s.ready),
					scheduled: Number(s.scheduled),
					running: Number(s.running),
					completed: Number(s.completed),
					dead: Number(s.dead),
					cancelled: Number(s.cancelled),
				};
			},
		};
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
