import { AsyncLocalStorage } from "node:async_hooks";
import { hostname } from "node:os";
import type { Client } from "./client.js";
import type { Attempt, Lane } from "./core/lane.js";
import { Lanes, surplusAfter } from "./core/lanes.js";
import { Renewer } from "./core/renewer.js";
import { type Fault, invalid, MillraceError, millis, type Span } from "./errors.js";
import type { At } from "./gen/millrace/v1/task.js";
import { Cancelled, completed, invoke, LeaseLost, Stopped, threw } from "./handler.js";
import type { Binding } from "./job.js";
import { Reporter } from "./report.js";
import { Task } from "./task.js";
import { toDuration } from "./time.js";

/** What the server answered to the end of an attempt. */
export interface Settlement {
	task: Task;
	/** complete, fail, stop, snooze or release */
	op: string;
	/** The answer is to a repeat: it was applied before. */
	replayed: boolean;
	/** Why it was refused; undefined: it was applied. */
	error: MillraceError | undefined;
}

export interface WorkerOptions {
	/** How many tasks run at once. Default: 16. */
	slots?: number;
	/** Default: the queues of the jobs. */
	queues?: readonly string[];
	/**
	 * Shares of queues, 1 to 1,000, of the tasks that it is given where several have tasks ready: 3 and 1 give three of one queue for each of the
	 * other. A queue that is not named has 1. It holds in each partition.
	 */
	weights?: Readonly<Record<string, number>>;
	/** Gives it tasks of a queue when those before it, in queues or in the jobs, have nothing ready. inOrder and weights are mutually exclusive. */
	inOrder?: boolean;
	/** How long handlers may go on once the worker stops. Default: 25 seconds, below the 30 of Kubernetes. */
	drain?: Span;
	/** The lease of each task. Default: the task's own. */
	lease?: Span;
	/** Names the worker in lists. Default: the host and the process. */
	name?: string;
	/** For how long leases are renewed while the loop is blocked. Default: 10 minutes. */
	stall?: Span;
	onSettled?: (s: Settlement) => void;
}

const unknownKind = 30_000;

/** What a ledger names an attempt by. */
const lineOf = (a: Attempt): { id: string; token: string; attempt: number; queue: string } => ({
	id: a.assignment.id,
	token: String(a.assignment.token),
	attempt: a.assignment.attempt,
	queue: a.assignment.queue,
});

/** Which task a piece of code runs for, so that a rejection that nothing handles fails that task and not the process. */
const current = new AsyncLocalStorage<{ reject: (e: unknown) => void }>();

/** Runs handlers of jobs. */
export class Worker {
	readonly #client: Client;
	readonly #kinds = new Map<string, Binding>();
	readonly #o: WorkerOptions;
	readonly #queues: string[];
	readonly #slots: number;
	#lanes: Lanes | undefined;
	#renewer: Renewer | undefined;
	/** Attempts without an answer to their settle, but for those that no handler is for. */
	readonly #running = new Map<Attempt, Task>();
	/** Those whose handler runs. */
	readonly #active = new Set<Attempt>();
	/** Those that came beyond the slots, and wait for one. */
	#waiting: Attempt[] = [];
	#surplus: NodeJS.Timeout | undefined;
	readonly #told = new Set<string>();
	#stop: (() => void) | undefined;
	#stopped: Promise<void> | undefined;
	#fault: Fault | undefined;
	#ended: Promise<void> | undefined;
	#hurry = false;
	#wake: (() => void) | undefined;

	constructor(client: Client, bindings: readonly Binding[], options: WorkerOptions = {}) {
		this.#client = client;
		this.#o = options;
		this.#slots = options.slots ?? 16;
		for (const b of bindings) this.#kinds.set(b.job.name, b);
		this.#queues = [...(options.queues ?? new Set(bindings.map((b) => b.job.queue)))];
		if (this.#queues.length === 0) throw invalid("queues", "is required where there are no jobs");
		const weights = Object.entries(options.weights ?? {});
		if (weights.length > 0 && options.inOrder) throw invalid("weights", "and inOrder are mutually exclusive");
		for (const [q, n] of weights) {
			if (!this.#queues.includes(q)) throw invalid("weights", `queue ${q} is not one of the worker's`);
			if (!(Number.isInteger(n) && n >= 1 && n <= 1000)) throw invalid("weights", `that of ${q} must be 1 to 1,000`);
		}
	}

	/**
	 * Takes tasks until stop, SIGTERM or SIGINT. Then handlers may end within the drain time, and a second signal gives everything back at
	 * once. Rejects when the server will not have the worker, such as without the right to work.
	 */
	run(o: { signals?: boolean; signal?: AbortSignal } = {}): Promise<void> {
		this.#ended ??= this.#run(o);
		return this.#ended;
	}

	/** Drains, and resolves when the worker has returned. */
	async stop(): Promise<void> {
		this.#stop?.();
		await this.#ended?.catch(() => {});
	}

	/** What is served: whether the stream of a partition is open, and how many tasks run. */
	get health(): { serving: boolean; running: number } {
		return { serving: this.#lanes?.serving ?? false, running: this.#running.size };
	}

	async #run(o: { signals?: boolean; signal?: AbortSignal }): Promise<void> {
		const { hub } = this.#client;
		this.#stopped = new Promise<void>((resolve) => {
			this.#stop = resolve;
		});
		const info = {
			id: this.#o.name ?? `${hostname()}-${process.pid}`.slice(0, 128),
			kinds: [...this.#kinds.keys()].slice(0, 1000),
			host: hostname().slice(0, 128),
		};
		const lease = this.#o.lease === undefined ? undefined : millis(this.#o.lease);
		const turn = (): void => this.#renewer?.turn(hub.ways.rest?.web.url ?? "");
		this.#lanes = new Lanes(
			hub,
			{
				info,
				queues: this.#queues.map((name) => ({ name, weight: this.#o.weights?.[name] ?? 0 })),
				inOrder: this.#o.inOrder ?? false,
				slots: this.#slots,
				lease,
			},
			{
				assigned: (a) => this.#assigned(a),
				lost: (a) => this.#lost(a),
				cancel: (a, reason) => this.#cancelled(a, reason),
				settled: (a, fault, replayed, at, failed) => this.#settled(a, fault, replayed, at, failed),
				welcomed: (lane) => {
					this.#renewer?.reach(lane.partition, lane.session.address, hub.router.nodes);
					turn();
				},
				failed: (lane, fault) => this.#failed(lane, fault),
			},
		);
		this.#renewer = new Renewer({
			addresses: hub.router.nodes,
			token: hub.token,
			namespace: hub.namespace,
			tls: hub.tls,
			stall: this.#o.stall === undefined ? 600_000 : millis(this.#o.stall),
			logger: hub.logger,
			lost: (id, token) => this.#lanes?.lose(id, token),
		});
		const forget = hub.onToken(() => this.#renewer?.setToken(hub.token));
		const forgetTurns = hub.ways.onTurn(turn);
		const signalled = (): void => {
			if (this.#hurry) return;
			if (this.#draining) {
				this.#hurry = true;
				this.#wake?.();
			}
			this.#stop?.();
		};
		const onSignal = o.signals !== false;
		if (onSignal) for (const s of ["SIGTERM", "SIGINT"] as const) process.on(s, signalled);
		const onRejection = (e: unknown): void => {
			const task = current.getStore();
			if (task) task.reject(e);
			else this.#client.hub.logger.error(`millrace: a rejection was not handled: ${e}`);
		};
		process.on("unhandledRejection", onRejection);
		const abort = (): void => this.#stop?.();
		o.signal?.addEventListener("abort", abort);
		if (o.signal?.aborted) abort();
		this.#client.enter(this);
		// The stream alone does not keep the process: a worker does.
		const alive = setInterval(() => {}, 1 << 30);
		try {
			// The first handler may block the loop at once.
			await Promise.race([this.#renewer.ready, this.#stopped]);
			this.#lanes.start();
			await this.#stopped;
			await this.#drain();
		} finally {
			clearInterval(alive);
			this.#client.leave(this);
			forget();
			forgetTurns();
			if (onSignal) for (const s of ["SIGTERM", "SIGINT"] as const) process.off(s, signalled);
			process.off("unhandledRejection", onRejection);
			o.signal?.removeEventListener("abort", abort);
			clearTimeout(this.#surplus);
			await this.#renewer.close();
		}
		if (this.#fault) throw new MillraceError(this.#fault);
	}

	#draining = false;

	async #drain(): Promise<void> {
		this.#draining = true;
		const lanes = this.#lanes!;
		const refused = this.#fault !== undefined;
		lanes.drain();
		for (const a of this.#waiting) this.#giveBack(a);
		for (const t of this.#running.values()) t.tellStopping();
		const most = this.#o.drain === undefined ? 25_000 : millis(this.#o.drain);
		const late = Date.now() + most;
		while (lanes.held > 0 && !this.#hurry && !refused && Date.now() < late) {
			await new Promise<void>((resolve) => {
				const timer = setTimeout(resolve, Math.max(late - Date.now(), 1));
				this.#wake = () => {
					clearTimeout(timer);
					resolve();
				};
			});
		}
		// What still runs is given back; its handlers hear of it.
		for (const [a, t] of this.#running) {
			t.end(new Stopped());
			this.#giveBack(a);
		}
		await lanes.finish(2000);
	}

	#giveBack(a: Attempt): void {
		if (a.item || a.over) return;
		const { id, token } = a.assignment;
		this.#settle(a, { id, token, effects: undefined, outcome: { $case: "release", value: {} } }, 60);
	}

	/** The stream of a partition cannot be opened again. While the worker drains, the others finish theirs. */
	#failed(lane: Lane, fault: Fault): void {
		this.#fault ??= fault;
		if (this.#draining) for (const a of [...lane.held.values()]) lane.abandon(a);
		this.#stop?.();
	}

	#settle(a: Attempt, item: Parameters<Lane["settle"]>[1], bytes: number): void {
		a.begun = this.#client.engine.ledger?.now() ?? 0;
		this.#renewer?.remove(a.assignment.id, a.assignment.token);
		a.lane.settle(a, item, bytes);
		this.#freed(a);
	}

	/** A handler's slot is free: what waits takes it. */
	#freed(a: Attempt): void {
		if (!this.#active.delete(a)) return;
		while (this.#active.size < this.#slots && this.#waiting.length > 0) this.#begin(this.#waiting.shift()!);
	}

	#assigned(a: Attempt): void {
		const m = a.assignment;
		const b = this.#kinds.get(m.kind);
		if (!b) {
			if (!this.#told.has(m.kind)) {
				this.#told.add(m.kind);
				this.#client.hub.logger.warn(
					`millrace: a task of the unknown kind ${m.kind} is put off for 30 seconds, again and again`,
				);
			}
			const delay = toDuration(unknownKind);
			this.#settle(
				a,
				{
					id: m.id,
					token: m.token,
					effects: undefined,
					outcome: { $case: "snooze", value: { until: undefined, delay } },
				},
				80,
			);
			return;
		}
		const t = new Task(this.#client, m);
		t.reporter = new Reporter(this.#client, m.id, m.token);
		this.#running.set(a, t);
		const { ledger } = this.#client.engine;
		if (ledger) ledger.ok(ledger.now(), { ...lineOf(a), op: "deliver" }, undefined);
		if (this.#draining) {
			this.#giveBack(a);
			return;
		}
		this.#renewer?.add(m.id, m.token, a.lease, m.kind, a.lane.partition);
		if (this.#active.size < this.#slots) {
			this.#begin(a);
			return;
		}
		this.#waiting.push(a);
		this.#surplus ??= setTimeout(() => {
			this.#surplus = undefined;
			this.#giveSurplus();
		}, surplusAfter);
	}

	/** Gives back what no slot came free for. */
	#giveSurplus(): void {
		this.#waiting = this.#waiting.filter((a) => !a.over && !a.item);
		const n = Math.min(Math.max(this.#lanes!.surplus, 0), this.#waiting.length);
		for (const a of this.#waiting.splice(this.#waiting.length - n)) this.#giveBack(a);
	}

	#begin(a: Attempt): void {
		const t = this.#running.get(a);
		const b = this.#kinds.get(a.assignment.kind);
		if (!t || !b || a.over || a.item) return;
		this.#active.add(a);
		// In a turn of its own: the frame is taken first, and its leases are known to the renewer before a handler can block.
		setImmediate(() => void this.#handle(a, b, t));
	}

	#cancelled(a: Attempt, reason: string): void {
		const t = this.#running.get(a);
		t?.end(new Cancelled(reason));
		if (!t || this.#active.has(a) || a.item) return;
		// No handler has begun it.
		const { item, bytes } = threw(t, t.ending);
		this.#settle(a, item, bytes);
	}

	async #handle(a: Attempt, b: Binding, t: Task): Promise<void> {
		let settle: { item: Parameters<Lane["settle"]>[1]; bytes: number };
		try {
			const { result } = await new Promise<{ result: unknown }>((resolve, reject) => {
				current.run({ reject }, () => {
					invoke(b, t).then(resolve, reject);
				});
			});
			settle = completed(b, t, result);
			t.result = result;
		} catch (e) {
			settle = threw(t, e);
		}
		const left = t.reporter?.finish();
		if (left) await left;
		if (a.over || a.item) return; // the lease is lost, or the task was given back meanwhile
		this.#settle(a, settle.item, settle.bytes);
	}

	#lost(a: Attempt): void {
		const t = this.#running.get(a);
		this.#running.delete(a);
		this.#renewer?.remove(a.assignment.id, a.assignment.token);
		t?.end(new LeaseLost());
		this.#freed(a);
		if (this.#lanes!.held === 0) this.#wake?.();
	}

	/** failed is why the server refused the effects and failed the attempt instead. */
	#settled(a: Attempt, fault: Fault | undefined, replayed: boolean, at: At | undefined, failed?: Fault): void {
		const { ledger } = this.#client.engine;
		const ended = failed ? "fail" : a.item?.outcome?.$case;
		if (failed) {
			const { id, attempt } = a.assignment;
			this.#client.hub.logger.warn(
				`the effects were refused and the attempt failed: task ${id}, attempt ${attempt}: ${failed.message}`,
			);
		}
		if (ledger) {
			const line = { ...lineOf(a), op: ended ?? "complete", replayed };
			if (fault) ledger.failed(a.begun, line, new MillraceError(fault));
			else ledger.ok(a.begun, line, at);
		}
		const t = this.#running.get(a);
		if (t && fault && !a.over && a.item) {
			const b = this.#kinds.get(a.assignment.kind)!;
			void this.#refused(a, b, t, new MillraceError(fault));
			return;
		}
		this.#running.delete(a);
		if (t) {
			const op = ended ?? "";
			this.#o.onSettled?.({ task: t, op, replayed, error: fault && new MillraceError(fault) });
		}
		if (this.#lanes!.held === 0) this.#wake?.();
	}

	// The effects were refused, with the lease kept: they are built again, or the attempt fails.
	async #refused(a: Attempt, b: Binding, t: Task, e: MillraceError): Promise<void> {
		a.lane.reopen(a);
		this.#active.add(a);
		this.#renewer?.add(t.id, t.token, a.lease, t.kind, a.lane.partition);
		let settle: { item: Parameters<Lane["settle"]>[1]; bytes: number };
		try {
			if (!t.refused) throw e;
			await t.refused(e);
			settle = completed(b, t, t.result);
		} catch (thrown) {
			settle = threw(t, thrown);
		}
		if (!a.over && !a.item) this.#settle(a, settle.item, settle.bytes);
	}
}
