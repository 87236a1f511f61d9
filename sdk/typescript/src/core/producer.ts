// Creates, commits and waits of a client, over one session.
import { type Fault, faultOf, MillraceError } from "../errors.js";
import type { ServerFrame, Welcome } from "../gen/millrace/v1/stream.js";
import {
	type At,
	type CommitRequest,
	CommitRequest as CommitRequestCodec,
	type CommitResponse,
	type CreateResult,
	type Task,
	type TaskSpec,
	WaitRequest,
	WaitResponse,
} from "../gen/millrace/v1/task.js";
import type { Hub } from "./hub.js";
import { within as drawn, patience, resendFor, serverBound } from "./retry.js";
import { type Outgoing, type Role, type Room, Session } from "./session.js";
import type { Method } from "./transport.js";

const frameItems = 512;
const frameBytes = 1 << 20;

/** What became of a create, and where that stands in the log. */
export type Created = CreateResult & { at?: At | undefined };

/** Bounds a group of calls. */
export interface CallOptions {
	/** Milliseconds; undefined: no bound. */
	timeout?: number | undefined;
	signal?: AbortSignal | undefined;
}

/** One create, or one commit, until it is answered. */
class Call {
	/** When it left first; 0: never. */
	left = 0;
	/** An earlier try may have been applied. */
	unsure = false;
	over = false;
	tries = 0;
	replayed = false;

	constructor(
		readonly specs: TaskSpec[] | undefined,
		readonly commit: CommitRequest | undefined,
		readonly bytes: number,
		readonly done: (value: Created[] | CommitResponse) => void,
		readonly fail: (error: MillraceError) => void,
	) {}

	refuse(fault: Fault): void {
		if (this.over) return;
		this.over = true;
		this.fail(
			new MillraceError({ ...fault, outcome: this.unsure || fault.outcome === "unknown" ? "unknown" : "refused" }),
		);
	}
}

/** A fault of a task, without its place in the frame, which the caller does not know. */
function ofOne(fault: Fault): Fault {
	const out = { ...fault };
	if (out.field) out.field = out.field.replace(/^tasks\[\d+\]\./, "");
	if (out.message) out.message = out.message.replace(/^tasks\[\d+\]\./, "");
	return out;
}

/** About what a task takes in a frame. */
const sizeOf = (s: TaskSpec): number =>
	s.payload.length + 120 + s.headers.length * 40 + Object.keys(s.labels).length * 40;

export const waitMethod: Method<WaitRequest, WaitResponse> = {
	path: "/millrace.v1.TaskService/Wait",
	request: WaitRequest,
	response: WaitResponse,
};

interface Waiter {
	resolve(task: Task): void;
	reject(error: MillraceError): void;
}

export class Producer implements Role {
	readonly session: Session;
	#queue: Call[] = [];
	#head = 0;
	#waiters = new Map<string, Set<Waiter>>();
	#ask = new Set<string>();
	#forget = new Set<string>();
	#byCalls = false;
	#closed = false;
	#open = new Set<Call>();

	constructor(readonly hub: Hub) {
		this.session = new Session(hub, this);
	}

	/** Creates one task. */
	create(spec: TaskSpec, o: CallOptions): Promise<Created> {
		return new Promise((resolve, reject) => {
			this.#start([new Call([spec], undefined, sizeOf(spec), (v) => resolve((v as Created[])[0]!), reject)], o);
		});
	}

	/** Creates tasks, each by itself: an entry is what became of it. */
	createEach(specs: TaskSpec[], o: CallOptions): Promise<(Created | MillraceError)[]> {
		return new Promise((resolve) => {
			const out = new Array<Created | MillraceError>(specs.length);
			let left = specs.length;
			if (left === 0) return resolve(out);
			const took = (i: number, v: Created | MillraceError): void => {
				out[i] = v;
				if (--left === 0) resolve(out);
			};
			this.#start(
				specs.map(
					(s, i) =>
						new Call(
							[s],
							undefined,
							sizeOf(s),
							(v) => took(i, (v as Created[])[0]!),
							(e) => took(i, e),
						),
				),
				o,
			);
		});
	}

	/** Creates tasks, all or none. */
	createAll(specs: TaskSpec[], o: CallOptions): Promise<Created[]> {
		return new Promise((resolve, reject) => {
			const size = specs.reduce((n, s) => n + sizeOf(s), 0);
			this.#start([new Call(specs, undefined, size, (v) => resolve(v as Created[]), reject)], o);
		});
	}

	commit(commit: CommitRequest, o: CallOptions): Promise<CommitResponse> {
		return new Promise((resolve, reject) => {
			const size = CommitRequestCodec.encode(commit).finish().length;
			this.#start([new Call(undefined, commit, size, (v) => resolve(v as CommitResponse), reject)], o);
		});
	}

	#start(calls: Call[], o: CallOptions): void {
		if (this.#closed || o.signal?.aborted) {
			const f: Fault = this.#closed
				? { code: "UNAVAILABLE", message: "the client is closed", outcome: "refused" }
				: { code: "DEADLINE_EXCEEDED", message: "the caller gave up", outcome: "refused", cause: o.signal?.reason };
			for (const c of calls) c.refuse(f);
			return;
		}
		const expire = (cause: unknown, message: string): void => {
			clearTimeout(timer);
			for (const c of calls) {
				this.#open.delete(c);
				if (c.over) continue;
				// What a server may have seen is unknown; what never left is not sent any more.
				if (c.left === 0 && cause === undefined && this.hub.unreached) {
					c.refuse({
						code: "UNAVAILABLE",
						message: `the server ${this.hub.address} is not reached`,
						outcome: "refused",
					});
				} else c.refuse({ code: "DEADLINE_EXCEEDED", message, outcome: c.left > 0 ? "unknown" : "refused", cause });
			}
		};
		const abort = (): void => expire(o.signal!.reason, "the caller gave up");
		let left = calls.length;
		const timer =
			o.timeout === undefined
				? undefined
				: setTimeout(() => {
						o.signal?.removeEventListener("abort", abort);
						expire(undefined, `no answer within ${o.timeout} ms`);
					}, o.timeout);
		o.signal?.addEventListener("abort", abort, { once: true });
		const ended = (c: Call): void => {
			this.#open.delete(c);
			if (--left > 0) return;
			clearTimeout(timer);
			o.signal?.removeEventListener("abort", abort);
		};
		for (const c of calls) {
			const { done, fail } = c;
			Object.assign(c, {
				done: (v: Created[] | CommitResponse) => {
					ended(c);
					done(v);
				},
				fail: (e: MillraceError) => {
					ended(c);
					fail(e);
				},
			});
			this.#open.add(c);
			this.#queue.push(c);
		}
		this.session.poke();
	}

	/** Waits for the end of a task. */
	wait(id: string, o: CallOptions): Promise<Task> {
		return new Promise((resolve, reject) => {
			if (this.#closed) {
				reject(new MillraceError({ code: "UNAVAILABLE", message: "the client is closed", outcome: "refused" }));
				return;
			}
			const leave = (): void => {
				clearTimeout(timer);
				o.signal?.removeEventListener("abort", abort);
				const all = this.#waiters.get(id);
				all?.delete(waiter);
				if (all?.size === 0) {
					this.#waiters.delete(id);
					this.#ask.delete(id);
					this.#forget.add(id);
					if (this.session.serving) this.session.poke();
				}
			};
			const give = (cause: unknown, message: string): void => {
				leave();
				// A read changes nothing.
				reject(new MillraceError({ code: "DEADLINE_EXCEEDED", message, outcome: "refused", cause }));
			};
			const abort = (): void => give(o.signal!.reason, "the caller gave up");
			const timer =
				o.timeout === undefined
					? undefined
					: setTimeout(() => give(undefined, `the task has not ended within ${o.timeout} ms`), o.timeout);
			o.signal?.addEventListener("abort", abort, { once: true });
			const waiter: Waiter = {
				resolve: (t) => {
					leave();
					resolve(t);
				},
				reject: (e) => {
					leave();
					reject(e);
				},
			};
			if (o.signal?.aborted) return abort();
			let all = this.#waiters.get(id);
			if (!all) {
				all = new Set();
				this.#waiters.set(id, all);
				this.#forget.delete(id);
				this.#begin(id);
			}
			all.add(waiter);
		});
	}

	#begin(id: string): void {
		if (this.#byCalls) {
			void this.#waitByCall(id);
			return;
		}
		this.#ask.add(id);
		this.session.poke();
	}

	/** Waits by a call, at a server that has no frames for it. */
	async #waitByCall(id: string): Promise<void> {
		for (let tries = 0; this.#waiters.has(id); tries++) {
			try {
				const r = await this.hub.waiting().unary(waitMethod, { id }, {});
				this.#ended(id, r.task, undefined);
				return;
			} catch (e) {
				const fault = e as MillraceError;
				if (patience({ code: fault.code, ...(fault.reason ? { reason: fault.reason } : {}) }) === 0) {
					this.#ended(id, undefined, fault);
					return;
				}
				await new Promise((r) => setTimeout(r, drawn(serverBound(tries))));
			}
		}
	}

	#ended(id: string, task: Task | undefined, error: MillraceError | undefined): void {
		for (const w of [...(this.#waiters.get(id) ?? [])]) {
			if (task) w.resolve(task);
			else w.reject(error!);
		}
		this.#forget.delete(id);
	}

	hello(): { worker: undefined; held: [] } {
		return { worker: undefined, held: [] };
	}

	welcomed(w: Welcome): void {
		this.#forget.clear();
		const ids = [...this.#waiters.keys()];
		this.#byCalls = !w.features.includes("waits");
		this.#ask.clear();
		for (const id of ids) {
			if (this.#byCalls) void this.#waitByCall(id);
			else this.#ask.add(id);
		}
	}

	pushed(f: ServerFrame): void {
		if (f.frame?.$case !== "ended") return;
		const e = f.frame.value;
		if (e.error) this.#refusedWait(e.id, faultOf(e.error));
		else this.#ended(e.id, e.task, undefined);
	}

	#refusedWait(id: string, fault: Fault): void {
		if (patience(fault) === 0) {
			this.#ended(id, undefined, new MillraceError(fault));
			return;
		}
		setTimeout(
			() => {
				if (!this.#waiters.has(id)) return;
				this.#ask.add(id);
				this.session.poke();
			},
			Math.max(fault.retryAfter ?? 0, drawn(500)),
		);
	}

	wanted(): boolean {
		return !this.#closed && (this.#open.size > 0 || this.#waiters.size > 0);
	}

	failed(fault: Fault): void {
		const calls = [...this.#open];
		this.#queue = [];
		this.#head = 0;
		for (const c of calls) c.refuse(fault);
		for (const id of [...this.#waiters.keys()])
			this.#ended(id, undefined, new MillraceError({ ...fault, outcome: "refused" }));
	}

	#pop(): Call | undefined {
		while (this.#head < this.#queue.length) {
			const c = this.#queue[this.#head]!;
			if (!c.over) return c;
			this.#head++;
		}
		this.#queue = [];
		this.#head = 0;
		return undefined;
	}

	next(room: Room): Outgoing | undefined {
		if (this.#ask.size > 0 || this.#forget.size > 0) return this.#nextWaits();
		if (room.throttled) return undefined;
		const first = this.#pop();
		if (!first) return undefined;
		const within = (items: number, bytes: number, commits: number): boolean =>
			items <= room.items && bytes <= room.bytes && commits <= room.commits;
		// An empty window takes any one thing.
		const fits = (items: number, bytes: number, commits: number): boolean =>
			room.empty || within(items, bytes, commits);
		if (first.commit) {
			if (!fits(0, first.bytes, 1)) return undefined;
			this.#head++;
			return this.#commitFrame(first);
		}
		if (first.specs!.length !== 1) {
			if (!fits(first.specs!.length, first.bytes, 0)) return undefined;
			this.#head++;
			return this.#createFrame([first], true);
		}
		const calls: Call[] = [];
		let bytes = 0;
		for (let c: Call | undefined = first; c?.specs?.length === 1 && calls.length < frameItems; c = this.#pop()) {
			if (calls.length > 0 && (bytes + c.bytes > frameBytes || !within(calls.length + 1, bytes + c.bytes, 0))) break;
			if (calls.length === 0 && !fits(1, c.bytes, 0)) return undefined;
			bytes += c.bytes;
			calls.push(c);
			this.#head++;
		}
		return this.#createFrame(calls, false);
	}

	#left(calls: Call[]): void {
		const now = Date.now();
		for (const c of calls) {
			if (c.left === 0) c.left = now;
			c.tries++;
		}
	}

	/** Puts calls whose stream broke to the front. What left long ago is not sent again: servers may have forgotten its id. */
	#again(calls: Call[]): void {
		const now = Date.now();
		const back = calls.filter((c) => {
			if (c.over) return false;
			c.unsure = true;
			if (now - c.left < resendFor) return true;
			c.refuse({ code: "UNAVAILABLE", message: "no answer within ten minutes", outcome: "unknown" });
			return false;
		});
		this.#queue.splice(0, this.#head, ...back);
		this.#head = 0;
	}

	/** Sends a call again later that a server refused for now, or ends it. */
	#refused(c: Call, fault: Fault): void {
		if (c.over) return;
		if (fault.outcome === "unknown") c.unsure = true;
		if (patience(fault) <= Date.now() - c.left) {
			c.refuse(fault);
			return;
		}
		setTimeout(
			() => {
				if (c.over) return;
				this.#queue.push(c);
				this.session.poke();
			},
			Math.max(fault.retryAfter ?? 0, drawn(serverBound(c.tries - 1))),
		);
	}

	#createFrame(calls: Call[], atomic: boolean): Outgoing {
		this.#left(calls);
		const tasks = calls.flatMap((c) => c.specs!);
		return {
			items: tasks.length,
			bytes: calls.reduce((n, c) => n + c.bytes, 0),
			commits: 0,
			frame: (seq) => ({ $case: "create", value: { seq, tasks, atomic } }),
			lost: () => this.#again(calls),
			acked: (ack) => {
				if (ack.error) {
					const fault = faultOf(ack.error);
					for (const c of calls) this.#refused(c, fault);
					return;
				}
				if (atomic) {
					const bad = ack.created.find((r) => r.error);
					if (bad?.error) this.#refused(calls[0]!, faultOf(bad.error));
					else
						this.#done(
							calls[0]!,
							ack.created.map((r) => ({ ...r, at: ack.at })),
						);
					return;
				}
				for (let i = 0; i < calls.length; i++) {
					const r = ack.created[i]!;
					if (r.error) this.#refused(calls[i]!, ofOne(faultOf(r.error)));
					else this.#done(calls[i]!, [Object.assign(r, { at: ack.at })]);
				}
			},
		};
	}

	#done(c: Call, v: Created[] | CommitResponse): void {
		if (c.over) return;
		c.over = true;
		c.done(v);
	}

	#commitFrame(c: Call): Outgoing {
		this.#left([c]);
		return {
			items: 1,
			bytes: c.bytes,
			commits: 1,
			frame: (seq) => ({ $case: "commit", value: { seq, commit: c.commit, commitSeq: 0n } }),
			lost: () => this.#again([c]),
			acked: (ack) => {
				if (ack.error) this.#refused(c, faultOf(ack.error));
				else this.#done(c, ack.commit!);
			},
		};
	}

	#nextWaits(): Outgoing {
		const take = (from: Set<string>): string[] => {
			const out: string[] = [];
			for (const id of from) {
				if (out.length === frameItems) break;
				out.push(id);
				from.delete(id);
			}
			return out;
		};
		const ids = take(this.#ask);
		const forget = take(this.#forget);
		return {
			items: ids.length,
			bytes: 30 * (ids.length + forget.length),
			commits: 0,
			frame: (seq) => ({ $case: "waits", value: { seq, ids, forget } }),
			lost: () => {}, // the next stream is asked for all that are waited for
			acked: (ack) => {
				ids.forEach((id, i) => {
					const e = ack.error ?? ack.waits[i]?.error;
					if (e) this.#refusedWait(id, faultOf(e));
				});
			},
		};
	}

	async close(): Promise<void> {
		if (this.#closed) return;
		this.#closed = true;
		await this.session.finish(2000);
		this.failed({ code: "UNAVAILABLE", message: "the client is closed", outcome: "refused" });
	}
}
