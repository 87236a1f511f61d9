// Creates, commits and waits of a client, each over the stream of its partition. Until the first stream is let in the number of partitions is
// not known: calls stay open on the first one, and are placed when its welcome tells.
import { type Fault, MillraceError } from "../errors.js";
import {
	type CommitRequest,
	CommitRequest as CommitRequestCodec,
	type CommitResponse,
	type Task,
	type TaskSpec,
} from "../gen/millrace/v1/task.js";
import type { Hub } from "./hub.js";
import { placeOfCommit, placeOfId, placeOfOp, placeOfTask, placeTask } from "./place.js";
import { Call, type Created, Producer, type Waiter } from "./producer.js";

/** How many tasks of one call that nothing places go to one partition before the next one's turn: frames are then fewer and fuller. */
const runLength = 32;

/** Bounds a group of calls. */
export interface CallOptions {
	/** Milliseconds; undefined: no bound. */
	timeout?: number | undefined;
	signal?: AbortSignal | undefined;
}

/** About what a task takes in a frame. */
const sizeOf = (s: TaskSpec): number =>
	s.payload.length + 120 + s.headers.length * 40 + Object.keys(s.labels).length * 40;

const closed: Fault = { code: "UNAVAILABLE", message: "the client is closed", outcome: "refused" };

export class Producers {
	/** By partition, those in use. The first one also finds out how many partitions there are. */
	readonly #all: (Producer | undefined)[];
	readonly #first: Producer;
	#closed = false;

	constructor(readonly hub: Hub) {
		this.#first = new Producer(hub, 0, (p) => this.#welcomed(p));
		this.#all = [this.#first];
	}

	#of(partition: number): Producer {
		if (partition <= 0) return this.#first;
		let p = this.#all[partition];
		if (!p) {
			p = new Producer(this.hub, partition, () => {});
			this.#all[partition] = p;
		}
		return p;
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
				? closed
				: { code: "DEADLINE_EXCEEDED", message: "the caller gave up", outcome: "refused", cause: o.signal?.reason };
			for (const c of calls) c.refuse(f);
			return;
		}
		const expire = (cause: unknown, message: string): void => {
			for (const c of calls) {
				if (c.over) continue;
				const session = c.at?.session;
				// What a server may have seen is unknown; what never left is not sent any more.
				if (c.left === 0 && cause === undefined && session?.unreached) {
					c.refuse({
						code: "UNAVAILABLE",
						message: `the server ${session.address} is not reached`,
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
				: setTimeout(() => expire(undefined, `no answer within ${o.timeout} ms`), o.timeout);
		o.signal?.addEventListener("abort", abort, { once: true });
		const ended = (): void => {
			if (--left > 0) return;
			clearTimeout(timer);
			o.signal?.removeEventListener("abort", abort);
		};
		for (const c of calls) c.ended = ended;
		this.#send(calls);
	}

	/** Places calls and queues them. */
	#send(calls: Call[]): void {
		const n = this.hub.partitions;
		let free = 0;
		for (const c of calls) {
			c.placed = n > 0;
			// Each run of tasks that say no place has a partition's turn.
			const turn = n > 1 ? (this.hub.turn + Math.floor(free / runLength)) % n : 0;
			if (n > 1 && c.specs?.length === 1 && placeOfTask(c.specs[0]!, n) < 0) free++;
			const place = c.commit ? placeCommit(c.commit, n, turn) : placeTasks(c.specs!, n, turn);
			if (typeof place === "number") this.#of(place).add(c);
			else c.refuse(place);
		}
	}

	/** What waited for the number of partitions is placed. */
	#welcomed(first: Producer): void {
		this.#send(first.takeUnplaced());
		const n = this.hub.partitions;
		if (n <= 1) return;
		for (const [id, w] of first.takeWaiters((id) => placeOfId(id, n) > 0)) this.#of(placeOfId(id, n)).wait(id, w);
	}

	/** Waits for the end of a task. */
	wait(id: string, o: CallOptions): Promise<Task> {
		return new Promise((resolve, reject) => {
			if (this.#closed) {
				reject(new MillraceError(closed));
				return;
			}
			const leave = (): void => {
				clearTimeout(timer);
				o.signal?.removeEventListener("abort", abort);
				waiter.at.unwait(id, waiter);
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
			const waiter: Waiter = {
				at: this.#of(placeOfId(id, this.hub.partitions)),
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
			o.signal?.addEventListener("abort", abort, { once: true });
			waiter.at.wait(id, waiter);
		});
	}

	async close(): Promise<void> {
		if (this.#closed) return;
		this.#closed = true;
		await Promise.all(this.#all.map((p) => p?.close()));
	}
}

/** The partition of creates of one frame, whose tasks are given ids. n is how many partitions there are; 0: not known, so ids are left open. */
function placeTasks(specs: TaskSpec[], n: number, turn: number): number | Fault {
	if (n === 0) return 0;
	if (specs.length === 1) return placeTask(specs[0]!, n, turn);
	const home = specs.map((s) => placeOfTask(s, n)).find((p) => p >= 0) ?? turn;
	const strays: string[] = [];
	for (const [i, s] of specs.entries()) {
		const p = placeTask(s, n, home);
		if (typeof p !== "number") return { ...p, field: `tasks[${i}].${p.field}` };
		if (p !== home) strays.push(`tasks[${i}] of partition ${p}`);
	}
	if (strays.length === 0) return home;
	const message = `outside the batch's partition ${home}: ${strays.join(", ")}`;
	return { code: "WRONG_PARTITION", message, outcome: "refused" };
}

/** The partition of a commit, whose new tasks are given ids there. */
function placeCommit(c: CommitRequest, n: number, turn: number): number | Fault {
	if (n === 0) return 0;
	let home = -1;
	if (c.fence) {
		home = placeOfId(c.fence.task, n);
		if (home < 0) return placeCommit({ ...c, fence: undefined }, 1, 0); // the server says that there is no such lease
	}
	const unnamed = c.ops.flatMap((o) => (o.op?.$case === "taskCreate" && !o.op.value.id ? [o.op.value] : []));
	if (unnamed.length > 0) {
		let at = home;
		if (at < 0) at = c.ops.map((o) => placeOfOp(o, n)).find((p) => p >= 0) ?? -1;
		if (at < 0 && c.conditions.length > 0) at = placeOfCommit(c.conditions.slice(0, 1), [], n, -1) as number;
		for (const s of unnamed) placeTask(s, n, at < 0 ? turn : at);
	}
	return placeOfCommit(c.conditions, c.ops, n, home);
}
