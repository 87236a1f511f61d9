// What the public classes ask of the core: calls with their timeouts, and unary calls that are repeated.
import type { Hub } from "./core/hub.js";
import type { Created } from "./core/producer.js";
import { Producers } from "./core/producers.js";
import { awayBound, patience, serverBound, sleep, within } from "./core/retry.js";
import { anywhere, type Endpoint, maxHops, type Route, type Router } from "./core/router.js";
import type { Method, UnaryOptions } from "./core/transport.js";
import { faultIn, MillraceError, millis, type Span } from "./errors.js";
import type { CommitRequest, CommitResponse, Task, TaskSpec } from "./gen/millrace/v1/task.js";
import type { Ledger } from "./ledger.js";
import { methods } from "./methods.js";

const defaultTimeout = 30_000;

export interface Options {
	timeout?: Span;
	signal?: AbortSignal;
}

/** The partition of a call, once it is known how many there are. */
export type Placing = (partitions: number) => number;

export class Engine {
	readonly producer: Producers;

	constructor(
		readonly hub: Hub,
		readonly timeout: number | undefined,
		readonly ledger: Ledger | undefined,
	) {
		this.producer = new Producers(hub, (queues, o) => this.askPins(queues, o as Options));
	}

	/** Finds out whether queues are pinned of which that is not known. Where that fails the server judges. */
	async askPins(queues: string[], o: Options): Promise<void> {
		const { pins } = this.hub;
		for (const queue of queues) {
			if (pins.has(queue)) continue;
			try {
				const r = await this.call(methods.getQueue, { queue, stale: false }, o);
				pins.set(queue, r.config?.pinned === true);
			} catch (e) {
				const { code } = e as MillraceError;
				if ((code === "NOT_FOUND" || code === "PERMISSION_DENIED") && !pins.has(queue)) pins.set(queue, false);
			}
		}
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

	/** Commits. made are its tasks whose ids were made here. */
	async commit(request: CommitRequest, made: ReadonlySet<TaskSpec>, o: Options): Promise<CommitResponse> {
		const begun = this.ledger?.now();
		const line = { op: "commit", request_id: Buffer.from(request.requestId).toString("hex") };
		if (request.fence) Object.assign(line, { id: request.fence.task, token: String(request.fence.token) });
		try {
			const r = await this.producer.commit(request, made, this.#bounded(o));
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

	/** Resolves when it is known how many partitions there are. */
	learn(o: Options): Promise<void> {
		return this.producer.learn(this.#bounded(o));
	}

	/** A call that waits at the server, without a bound unless one is asked for. A read changes nothing. */
	async last<Req, Res>(method: Method<Req, Res>, request: Req, o: Options, place: Placing): Promise<Res> {
		const timeout = o.timeout === undefined ? undefined : millis(o.timeout);
		const again = new Tries(this.hub.router, { timeout, signal: o.signal }, place);
		for (;;) {
			try {
				return await again.ask().unary(method, request, again.bounds(), true);
			} catch (e) {
				try {
					await again.failed(e as MillraceError);
				} catch (last) {
					const { code, message } = last as MillraceError;
					if (code !== "DEADLINE_EXCEEDED") throw last;
					throw new MillraceError({ code, message, outcome: "refused", cause: (last as MillraceError).cause });
				}
			}
		}
	}

	/** A call that is answered by a stream of messages. It is repeated until the first message comes. */
	async *read<Req, Res>(method: Method<Req, Res>, request: Req, o: Options = {}): AsyncGenerator<Res> {
		const again = new Tries(this.hub.router, this.#bounded(o), undefined);
		for (;;) {
			let began = false;
			const asked = again.ask();
			try {
				for await (const m of asked.read(method, request, again.bounds())) {
					began = true;
					yield m;
				}
				return;
			} catch (e) {
				if (began || !(e instanceof MillraceError)) throw e;
				await again.failed(e);
			}
		}
	}

	/**
	 * A unary call, repeated while that helps and its time lasts. A change must carry what makes it repeatable. slow: the server may take its time,
	 * and is not left for it.
	 */
	async call<Req, Res>(
		method: Method<Req, Res>,
		request: Req,
		o: Options = {},
		place?: Placing,
		slow = false,
	): Promise<Res> {
		const again = new Tries(this.hub.router, this.#bounded(o), place);
		for (;;) {
			const asked = again.ask();
			let error: MillraceError;
			if (!slow) this.hub.router.owes(asked);
			try {
				return await asked.unary(method, request, again.bounds());
			} catch (e) {
				error = e as MillraceError;
			} finally {
				if (!slow) asked.answered(1);
			}
			await again.failed(error);
		}
	}
}

/** The tries of one call: where they go, and when they end. */
class Tries {
	readonly #router: Router;
	readonly #late: number;
	readonly #signal: AbortSignal | undefined;
	readonly #place: Placing | undefined;
	#route: Route | undefined;
	#asked: Endpoint | undefined;
	#unsure = false;
	#hops = 0;
	#tries = 0;

	constructor(
		router: Router,
		o: { timeout: number | undefined; signal: AbortSignal | undefined },
		place: Placing | undefined,
	) {
		this.#router = router;
		this.#late = o.timeout === undefined ? Number.POSITIVE_INFINITY : Date.now() + o.timeout;
		this.#signal = o.signal;
		this.#place = place;
	}

	ask(): Endpoint {
		const n = this.#router.partitions;
		if (n > 1) this.#route ??= { partition: this.#place ? this.#place(n) : anywhere, leader: "" };
		this.#asked = this.#router.along(this.#route);
		return this.#asked;
	}

	bounds(): UnaryOptions {
		const bound = Number.isFinite(this.#late);
		return { timeout: bound ? Math.max(this.#late - Date.now(), 1) : undefined, signal: this.#signal };
	}

	/** Waits for the next try, or throws what the call ends with. */
	async failed(e: MillraceError): Promise<void> {
		const fault = faultIn(e);
		const turned = this.#router.redirect(this.#route, this.#asked!, fault) && this.#hops < maxHops;
		const bound = fault.code === "UNAVAILABLE" ? awayBound(this.#tries) : serverBound(this.#tries);
		const wait = turned ? 0 : Math.max(fault.retryAfter ?? 0, within(bound));
		if (this.#signal?.aborted || patience(fault) === 0 || Date.now() + wait >= this.#late) {
			if (!this.#unsure || fault.outcome === "unknown") throw e;
			throw new MillraceError({ code: e.code, message: e.message, outcome: "unknown", cause: e });
		}
		this.#unsure ||= fault.outcome === "unknown";
		if (turned) {
			this.#hops++;
			return;
		}
		this.#hops = 0;
		this.#tries++;
		await sleep(wait, this.#signal);
	}
}
