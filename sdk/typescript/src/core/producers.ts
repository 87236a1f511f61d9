// Creates, commits and waits of a client, each over the stream of its partition. Until the first stream is let in the number of partitions is
// not known: calls stay open on the first one, and are placed when its welcome tells.
import { type Fault, MillraceError } from "../errors.js";
import {
	type CommitRequest,
	CommitRequest as CommitRequestCodec,
	type CommitResponse,
	type Op,
	type Task,
	type TaskSpec,
} from "../gen/millrace/v1/task.js";
import type { Hub } from "./hub.js";
import { follow, repin, repinned, tasksOf, unknownPins } from "./pins.js";
import { type Pins, placeOfCommit, placeOfId, placeOfOp, placeOfTask, placeTask } from "./place.js";
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

/** What a commit takes in a frame. The ids that its tasks wait for are not read: those of the same commit may not be there yet. */
function sizeOfCommit(c: CommitRequest): number {
	const ops = c.ops.map((o): Op => {
		if (o.op?.$case !== "taskCreate" || o.op.value.after.length === 0) return o;
		return { op: { $case: "taskCreate", value: { ...o.op.value, after: [] } } };
	});
	const after = tasksOf(c).reduce((n, s) => n + s.after.length, 0);
	return CommitRequestCodec.encode({ ...c, ops }).finish().length + 32 * after;
}

const closed: Fault = { code: "UNAVAILABLE", message: "the client is closed", outcome: "refused" };

export class Producers {
	/** By partition, those in use. The first one also finds out how many partitions there are. */
	readonly #all: (Producer | undefined)[];
	readonly #first: Producer;
	#closed = false;

	readonly #ask: (queues: string[], o: CallOptions) => Promise<void>;

	/** ask finds out whether queues are pinned. */
	constructor(
		readonly hub: Hub,
		ask: (queues: string[], o: CallOptions) => Promise<void>,
	) {
		this.#first = new Producer(
			hub,
			0,
			(p) => this.#welcomed(p),
			(c, fault) => this.#replace(c, fault),
		);
		this.#all = [this.#first];
		this.#ask = ask;
	}

	#of(partition: number): Producer {
		if (partition <= 0) return this.#first;
		let p = this.#all[partition];
		if (!p) {
			p = new Producer(
				this.hub,
				partition,
				() => {},
				(c, fault) => this.#replace(c, fault),
			);
			this.#all[partition] = p;
		}
		return p;
	}

	/** Resolves when it is known how many partitions there are. */
	learn(o: CallOptions): Promise<void> {
		return this.createAll([], o).then(() => {});
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

	/** Commits. made are its tasks whose ids were made, and may change. */
	commit(commit: CommitRequest, made: ReadonlySet<TaskSpec>, o: CallOptions): Promise<CommitResponse> {
		return new Promise((resolve, reject) => {
			const size = sizeOfCommit(commit);
			const c = new Call(undefined, commit, size, (v) => resolve(v as CommitResponse), reject);
			const late = o.timeout === undefined ? undefined : Date.now() + o.timeout;
			c.made = made;
			c.ask = (queues) => this.#ask(queues, { timeout: late && Math.max(late - Date.now(), 1), signal: o.signal });
			this.#start([c], o);
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

	/** Places a commit when it is known which of its queues are pinned. */
	async #sendAsked(c: Call, queues: string[]): Promise<void> {
		await c.ask?.(queues);
		if (c.over) return;
		if (this.#closed) c.refuse(closed);
		else this.#send([c], true);
	}

	/**
	 * Places a create again that was refused because its queue has its tasks elsewhere than this client knew. It reports whether there is another
	 * partition to try.
	 */
	#replace(c: Call, fault: Fault): boolean {
		const { given, specs } = c;
		if (this.#closed || !given || !specs || !repin(this.hub.pins, fault, specs[0]!.queue)) return false;
		c.given = undefined;
		const had = specs.map((s) => s.id);
		for (const [i, s] of specs.entries()) s.id = given[i]!;
		const n = this.hub.partitions;
		const place = placeTasks(specs, n, this.hub.turn % n, this.hub.pins);
		const to = typeof place === "number" ? this.#of(place) : c.at;
		if (to === c.at) {
			for (const [i, s] of specs.entries()) s.id = had[i]!;
			return false;
		}
		c.at?.open.delete(c);
		c.left = 0; // what was surely refused has not left
		to!.add(c);
		return true;
	}

	/** Places calls and queues them. asked: what can be known of queues is known. */
	#send(calls: Call[], asked = false): void {
		const n = this.hub.partitions;
		const pins = this.hub.pins;
		let free = 0;
		for (const c of calls) {
			if (n > 0 && c.specs?.length === 0) {
				c.answer([]);
				continue;
			}
			c.placed = n > 0;
			const queues = n > 1 && !asked && c.commit ? unknownPins(c.commit, pins) : [];
			if (queues.length > 0) {
				void this.#sendAsked(c, queues);
				continue;
			}
			if (n > 1 && c.specs) c.given = c.specs.map((s) => s.id);
			// Each run of tasks that say no place has a partition's turn.
			const turn = n > 1 ? (this.hub.turn + Math.floor(free / runLength)) % n : 0;
			if (n > 1 && c.specs?.length === 1 && placeOfTask(c.specs[0]!, n, pins) < 0) free++;
			const place = c.commit ? placeCommit(c, c.commit, n, turn, pins) : placeTasks(c.specs!, n, turn, pins);
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
function placeTasks(specs: TaskSpec[], n: number, turn: number, pins: Pins): number | Fault {
	if (n === 0) return 0;
	if (specs.length === 1) return placeTask(specs[0]!, n, turn, pins);
	const home = specs.map((s) => placeOfTask(s, n, pins)).find((p) => p >= 0) ?? turn;
	const strays: string[] = [];
	for (const [i, s] of specs.entries()) {
		const p = placeTask(s, n, home, pins);
		if (typeof p !== "number") return { ...p, field: `tasks[${i}].${p.field}` };
		if (p !== home) strays.push(`tasks[${i}] of partition ${p}`);
	}
	if (strays.length === 0) return home;
	const message = `outside the batch's partition ${home}: ${strays.join(", ")}`;
	return { code: "WRONG_PARTITION", message, outcome: "refused" };
}

/** The partition of a commit, whose new tasks are given ids there. */
function placeCommit(call: Call, c: CommitRequest, n: number, turn: number, pins: Pins): number | Fault {
	if (n === 0) return 0;
	let home = -1;
	if (c.fence) {
		home = placeOfId(c.fence.task, n);
		if (home < 0) return placeCommit(call, { ...c, fence: undefined }, 1, 0, pins); // the server says that there is no such lease
	}
	const moved = home < 0 && call.made ? repinned(c, call.made, n, pins) : new Map<string, string>();
	const unnamed = tasksOf(c).filter((s) => !s.id);
	if (unnamed.length > 0) {
		let at = home;
		// What a task waits for may have no id yet either.
		const placeOf = (o: Op): number =>
			o.op?.$case === "taskCreate" && !o.op.value.id
				? placeOfTask({ ...o.op.value, after: [] }, n, pins)
				: placeOfOp(o, n, pins);
		if (at < 0) at = c.ops.map(placeOf).find((p) => p >= 0) ?? -1;
		if (at < 0 && c.conditions.length > 0) at = placeOfCommit(c.conditions.slice(0, 1), [], n, -1) as number;
		for (const s of unnamed) placeTask(s, n, at < 0 ? turn : at, pins);
	}
	follow(c, moved);
	return placeOfCommit(c.conditions, c.ops, n, home, pins);
}
