// Creates, commits and waits of one partition, over one session.
import { type Fault, faultIn, faultOf, MillraceError } from "../errors.js";
import type { ServerFrame, Welcome } from "../gen/millrace/v1/stream.js";
import {
	type At,
	type CommitRequest,
	type CommitResponse,
	type CreateResult,
	type Task,
	type TaskSpec,
	WaitRequest,
	WaitResponse,
} from "../gen/millrace/v1/task.js";
import type { Hub } from "./hub.js";
import { within as drawn, patience, resendFor, serverBound, sleep } from "./retry.js";
import { maxHops } from "./router.js";
import { type Outgoing, type Role, type Room, Session } from "./session.js";
import type { Method } from "./transport.js";

const frameItems = 512;
const frameBytes = 1 << 20;

/** What became of a create, and where that stands in the log. */
export type Created = CreateResult & { at?: At | undefined };

/** One create, or one commit, until it is answered. */
export class Call {
	/** Where it is queued, or was sent; undefined: it was not placed yet. */
	at: Producer | undefined;
	/** It was placed by a known number of partitions. */
	placed = false;
	/** Hears that it is over. */
	ended: ((c: Call) => void) | undefined;
	/** When it left first; 0: never. */
	left = 0;
	/** An earlier try may have been applied. */
	unsure = false;
	over = false;
	tries = 0;
	/** The ids that specs had before they were placed, where a create may be placed again. That is done once. */
	given: readonly string[] | undefined;
	/** Tasks of a commit whose ids were made before it was sent. They change if their queues turn out to be pinned. */
	made: ReadonlySet<TaskSpec> | undefined;
	/** Finds out whether queues of a commit are pinned, within its time. */
	ask: ((queues: string[]) => Promise<void>) | undefined;

	constructor(
		readonly specs: TaskSpec[] | undefined,
		readonly commit: CommitRequest | undefined,
		readonly bytes: number,
		readonly done: (value: Created[] | CommitResponse) => void,
		readonly fail: (error: MillraceError) => void,
	) {}

	#end(): boolean {
		if (this.over) return false;
		this.over = true;
		this.at?.open.delete(this);
		this.ended?.(this);
		return true;
	}

	answer(value: Created[] | CommitResponse): void {
		if (this.#end()) this.done(value);
	}

	refuse(fault: Fault): void {
		if (!this.#end()) return;
		const outcome = this.unsure || fault.outcome === "unknown" ? "unknown" : "refused";
		this.fail(new MillraceError({ ...fault, outcome }));
	}
}

/** A fault of a task, without its place in the frame, which the caller does not know. */
function ofOne(fault: Fault): Fault {
	const out = { ...fault };
	if (out.field) out.field = out.field.replace(/^tasks\[\d+\]\./, "");
	if (out.message) out.message = out.message.replace(/^tasks\[\d+\]\./, "");
	return out;
}

export const waitMethod: Method<WaitRequest, WaitResponse> = {
	path: "/millrace.v1.TaskService/Wait",
	request: WaitRequest,
	response: WaitResponse,
};

/** A caller who waits for the end of a task. */
export interface Waiter {
	/** Where it is asked for. */
	at: Producer;
	resolve(task: Task): void;
	reject(error: MillraceError): void;
}

export class Producer implements Role {
	readonly session: Session;
	/** Calls that are not answered. */
	readonly open = new Set<Call>();
	#queue: Call[] = [];
	#head = 0;
	#waiters = new Map<string, Set<Waiter>>();
	#ask = new Set<string>();
	#forget = new Set<string>();
	#byCalls = false;
	#closed = false;
	readonly #placed: (p: Producer) => void;
	readonly #replace: (c: Call, fault: Fault) => boolean;

	/**
	 * placed hears of each welcome, which says how many partitions there are. replace takes over a create that was refused and belongs to another
	 * partition by what is known now.
	 */
	constructor(
		readonly hub: Hub,
		partition: number,
		placed: (p: Producer) => void,
		replace: (c: Call, fault: Fault) => boolean,
	) {
		this.#placed = placed;
		this.#replace = replace;
		this.session = new Session(hub, this, partition);
	}

	/** Queues a call. */
	add(c: Call): void {
		c.at = this;
		this.open.add(c);
		this.#queue.push(c);
		this.session.poke();
	}

	/** Takes out the calls that were queued before the number of partitions was known. */
	takeUnplaced(): Call[] {
		const out = this.#queue.slice(this.#head).filter((c) => !c.placed && !c.over);
		if (out.length === 0) return out;
		this.#queue = this.#queue.slice(this.#head).filter((c) => c.placed && !c.over);
		this.#head = 0;
		for (const c of out) this.open.delete(c);
		return out;
	}

	/** Waits for the end of a task. */
	wait(id: string, w: Waiter): void {
		w.at = this;
		let all = this.#waiters.get(id);
		if (!all) {
			all = new Set();
			this.#waiters.set(id, all);
			this.#forget.delete(id);
			this.#begin(id);
		}
		all.add(w);
	}

	/** Takes off a caller who waits. */
	unwait(id: string, w: Waiter): void {
		const all = this.#waiters.get(id);
		all?.delete(w);
		if (all?.size !== 0) return;
		this.#waiters.delete(id);
		this.#ask.delete(id);
		this.#forget.add(id);
		if (this.session.serving) this.session.poke();
	}

	/** Takes out those who wait for tasks that are of another partition. */
	takeWaiters(elsewhere: (id: string) => boolean): [string, Waiter][] {
		const out: [string, Waiter][] = [];
		for (const [id, all] of this.#waiters) {
			if (!elsewhere(id)) continue;
			for (const w of all) out.push([id, w]);
			this.#waiters.delete(id);
			this.#ask.delete(id);
		}
		return out;
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
		const { router } = this.hub;
		let hops = 0;
		for (let tries = 0; this.#waiters.has(id); tries++) {
			const asked = router.to(this.session.partition);
			try {
				const r = await asked.unary(waitMethod, { id }, {}, true);
				this.#ended(id, r.task, undefined);
				return;
			} catch (e) {
				const fault = faultIn(e as MillraceError);
				if (patience(fault) === 0) {
					this.#ended(id, undefined, e as MillraceError);
					return;
				}
				const turned = router.turn(this.session.partition, asked, fault, false);
				if (turned && hops++ < maxHops) continue;
				hops = 0;
				await sleep(drawn(serverBound(tries)));
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
		this.#placed(this);
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

	parted(): void {}

	wanted(): boolean {
		return !this.#closed && (this.open.size > 0 || this.#waiters.size > 0);
	}

	failed(fault: Fault): void {
		const calls = [...this.open];
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
		if (c.given && !c.unsure && this.#replace(c, fault)) return;
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
		this.hub.turn++;
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
					else calls[0]!.answer(ack.created.map((r) => ({ ...r, at: ack.at })));
					return;
				}
				for (let i = 0; i < calls.length; i++) {
					const r = ack.created[i]!;
					if (r.error) this.#refused(calls[i]!, ofOne(faultOf(r.error)));
					else calls[i]!.answer([Object.assign(r, { at: ack.at })]);
				}
			},
		};
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
				else c.answer(ack.commit!);
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
