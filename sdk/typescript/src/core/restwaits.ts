// Requests that wait at the server: for how long, and those for the end of tasks.
import { State, type Task, type Error as WireError } from "../gen/millrace/v1/task.js";
import { sleep } from "./retry.js";
import { Job, type Place, RestError, room } from "./web.js";

/** Requests of one stream that wait for the end of tasks. */
const lanes = 4;
/** Milliseconds that a request waits at the server: some proxies cut what is silent for half a minute. */
const longest = 25_000;
/** The same while others want the room. */
const crowded = 2000;
/** Below that a request says nothing about what cuts it. */
export const shortest = 1000;
/** Milliseconds between two looks at a task, when more are waited for than there are lanes. */
const againLeast = 100;
const againMost = 2000;

export const ended = (t: Task): boolean =>
	t.state === State.COMPLETED || t.state === State.DEAD || t.state === State.CANCELLED;

/** How long a request asks the server to wait. Proxies cut what is silent, each after a time of its own. */
export class Poll {
	#wait = longest;

	get wait(): number {
		return room.roomy ? this.#wait : Math.min(this.#wait, crowded);
	}

	/** Takes the error of a request that waited, and the milliseconds that it took; true: the wait was the reason, and is shorter now. */
	missed(e: unknown, took: number): boolean {
		if (!(e instanceof RestError)) return false;
		if (e.origin === "server") {
			// A server names the longest wait that it allows.
			const most = Number(e.wire.max);
			if (!["claim_wait_ms", "result_wait_ms"].includes(e.wire.limit) || most >= this.#wait) return false;
			this.#wait = most;
			return true;
		}
		if (!e.left || took < 2 * shortest || took >= this.#wait) return false;
		this.#wait = Math.max(took / 2, shortest);
		return true;
	}
}

export interface WaitsEvents {
	/** Waits at the server for some milliseconds, and returns what is known of the task then. */
	look(id: string, wait: number, job: Job): Promise<{ task: Task; at: Place }>;
	/** Reads a task that has ended: what look returns lacks parts of it. */
	whole(id: string, task: Task, at: Place): Promise<Task>;
	ended(id: string, task: Task | undefined, error: WireError | undefined, at: Place | undefined): void;
}

/** The waits for tasks of one stream: a few requests wait at the server; of more tasks each is looked at in turn. */
export class Waits {
	readonly #o: WaitsEvents;
	/** By task, the milliseconds before it is looked at again. */
	readonly #ids = new Map<string, number>();
	/** In their order, and when. */
	readonly #turn: { at: number; id: string }[] = [];
	#lanes = 0;
	/** Requests that wait at the server. */
	readonly #waiting = new Map<string, Job>();
	readonly #stop = new AbortController();

	constructor(o: WaitsEvents) {
		this.#o = o;
	}

	/** Tells of the end of a task. */
	ask(id: string): void {
		if (this.#ids.has(id) || this.#stop.signal.aborted) return;
		this.#ids.set(id, againLeast);
		this.#turn.unshift({ at: 0, id });
		if (this.#lanes < lanes) void this.#lane();
		else for (const job of this.#waiting.values()) job.cancel(); // they take turns from now on
	}

	/** Tells of it no more. */
	forget(id: string): void {
		this.#ids.delete(id);
		this.#waiting.get(id)?.cancel();
	}

	/** Ends all. */
	stop(): void {
		this.#ids.clear();
		this.#turn.length = 0;
		this.#stop.abort();
		for (const job of this.#waiting.values()) job.cancel();
	}

	async #lane(): Promise<void> {
		this.#lanes++;
		const poll = new Poll();
		for (let next = this.#turn.shift(); next; next = this.#turn.shift()) {
			const pause = next.at - performance.now();
			if (pause > 0) await sleep(pause, this.#stop.signal);
			if (this.#ids.has(next.id)) await this.#once(next.id, poll);
		}
		this.#lanes--;
	}

	/** Looks at a task once. */
	async #once(id: string, poll: Poll): Promise<void> {
		const wait = this.#turn.length > 0 ? 0 : poll.wait;
		const job = new Job();
		const began = performance.now();
		this.#waiting.set(id, job);
		try {
			const { task, at } = await this.#o.look(id, wait, job);
			if (ended(task)) {
				const whole = await this.#o.whole(id, task, at);
				if (this.#ids.delete(id)) this.#o.ended(id, whole, undefined, at);
				return;
			}
		} catch (e) {
			if (!(e instanceof RestError)) throw e;
			if (!job.over && !poll.missed(e, performance.now() - began)) {
				if (this.#ids.delete(id)) this.#o.ended(id, undefined, e.wire, undefined);
				return;
			}
		} finally {
			this.#waiting.delete(id);
		}
		const again = this.#ids.get(id);
		if (again === undefined) return;
		// One that has waited at the server is looked at without a pause.
		const waited = wait > 0 && performance.now() - began >= shortest;
		if (!waited) this.#ids.set(id, Math.min(2 * again, againMost));
		this.#turn.push({ at: performance.now() + (waited ? 0 : again), id });
	}
}
