// What the public classes ask of the core: calls with their timeouts, and unary calls that are repeated.
import type { Hub } from "./core/hub.js";
import { type Created, Producer } from "./core/producer.js";
import { awayBound, patience, serverBound, sleep, within } from "./core/retry.js";
import type { Method } from "./core/transport.js";
import { MillraceError, millis, type Span } from "./errors.js";
import type { CommitRequest, CommitResponse, Task, TaskSpec } from "./gen/millrace/v1/task.js";
import type { Ledger } from "./ledger.js";

const defaultTimeout = 30_000;

export interface Options {
	timeout?: Span;
	signal?: AbortSignal;
}

export class Engine {
	readonly producer: Producer;

	constructor(
		readonly hub: Hub,
		readonly timeout: number | undefined,
		readonly ledger: Ledger | undefined,
	) {
		this.producer = new Producer(hub);
	}

	#bounded(o: Options): { timeout: number; signal: AbortSignal | undefined } {
		return {
			timeout: o.timeout === undefined ? (this.timeout ?? defaultTimeout) : millis(o.timeout),
			signal: o.signal,
		};
	}

	async create(spec: TaskSpec, o: Options): Promise<Created> {
		const begun = this.ledger?.now();
		try {
			const r = await this.producer.create(spec, this.#bounded(o));
			this.ledger?.created(begun!, spec, r);
			return r;
		} catch (e) {
			this.ledger?.failed(begun!, { op: "create", id: spec.id, queue: spec.queue }, e);
			throw e;
		}
	}

	async createEach(specs: TaskSpec[], o: Options): Promise<(Created | MillraceError)[]> {
		const begun = this.ledger?.now();
		const out = await this.producer.createEach(specs, this.#bounded(o));
		if (this.ledger) {
			out.forEach((r, i) => {
				const spec = specs[i]!;
				if (r instanceof MillraceError)
					this.ledger!.failed(begun!, { op: "create", id: spec.id, queue: spec.queue }, r);
				else this.ledger!.created(begun!, spec, r as Created);
			});
		}
		return out;
	}

	async createAll(specs: TaskSpec[], o: Options): Promise<Created[]> {
		const begun = this.ledger?.now();
		try {
			const out = await this.producer.createAll(specs, this.#bounded(o));
			out.forEach((r, i) => {
				this.ledger?.created(begun!, specs[i]!, r);
			});
			return out;
		} catch (e) {
			for (const s of specs) this.ledger?.failed(begun!, { op: "create", id: s.id, queue: s.queue }, e);
			throw e;
		}
	}

	async commit(request: CommitRequest, o: Options): Promise<CommitResponse> {
		const begun = this.ledger?.now();
		const line = { op: "commit", request_id: Buffer.from(request.requestId).toString("hex") };
		if (request.fence) Object.assign(line, { id: request.fence.task, token: String(request.fence.token) });
		try {
			const r = await this.producer.commit(request, this.#bounded(o));
			this.ledger?.ok(begun!, { ...line, replayed: r.replayed }, r.at);
			return r;
		} catch (e) {
			this.ledger?.failed(begun!, line, e);
			throw e;
		}
	}

	/** Waits for the end of a task, without a bound unless one is asked for. */
	wait(id: string, o: Options): Promise<Task> {
		return this.producer.wait(id, {
			timeout: o.timeout === undefined ? undefined : millis(o.timeout),
			signal: o.signal,
		});
	}

	/** A call that is answered by a stream of messages. It is not repeated. */
	read<Req, Res>(method: Method<Req, Res>, request: Req, o: Options = {}): AsyncIterable<Res> {
		const { timeout, signal } = this.#bounded(o);
		return this.hub.channel().read(method, request, { timeout, signal });
	}

	/** A unary call, repeated while that helps and its time lasts. A change must carry what makes it repeatable. */
	async call<Req, Res>(method: Method<Req, Res>, request: Req, o: Options = {}): Promise<Res> {
		const { timeout, signal } = this.#bounded(o);
		const begun = Date.now();
		let unsure = false;
		for (let tries = 0; ; tries++) {
			const left = begun + timeout - Date.now();
			try {
				return await this.hub.channel().unary(method, request, { timeout: Math.max(left, 1), signal });
			} catch (e) {
				const fault = e as MillraceError;
				const kind = fault.reason ? { code: fault.code, reason: fault.reason } : { code: fault.code };
				const wait = Math.max(
					fault.retryAfter ?? 0,
					within(fault.code === "UNAVAILABLE" ? awayBound(tries) : serverBound(tries)),
				);
				if (fault.leader) this.hub.follow(fault.leader);
				if (signal?.aborted || patience(kind) === 0 || Date.now() + wait >= begun + timeout) {
					if (!unsure || fault.outcome === "unknown") throw fault;
					throw new MillraceError({ code: fault.code, message: fault.message, outcome: "unknown", cause: fault });
				}
				unsure ||= fault.outcome === "unknown";
				await sleep(wait, signal);
			}
		}
	}
}
