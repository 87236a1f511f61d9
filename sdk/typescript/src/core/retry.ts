import type { Fault } from "../errors.js";

/** Servers remember ids for ten minutes; the last try leaves this long after the first one, in milliseconds. */
export const resendFor = 570_000;
/** For how long what a limit refuses is repeated: a caller should hear of a quota while it is of use. */
const refusedFor = 30_000;

/** The longest wait before try n, counted from 0, after an error of a server that is there. */
export const serverBound = (n: number): number => (n < 7 ? Math.min(50 * 2 ** n, 5000) : 5000);

/** The same while no server or no leader is there: short for the first 24 tries, since an election takes a second or two. */
export const awayBound = (n: number): number =>
	n < 24 ? Math.min(50 * 2 ** Math.min(n, 3), 250) : serverBound(n - 24 + 3);

/** A wait is drawn evenly, so that clients that lost one server do not come back together. */
export const within = (bound: number): number => Math.random() * bound;

/** For how long a call is repeated after a fault, in milliseconds; 0: not at all. */
export function patience(f: Pick<Fault, "code" | "reason">): number {
	switch (f.code) {
		case "UNAVAILABLE":
		case "DEADLINE_EXCEEDED":
		case "NOT_LEADER":
			return f.reason === "session_expired" || f.reason === "expired" ? 0 : resendFor;
		case "RATE_LIMITED":
		case "RESOURCE_EXHAUSTED":
			return refusedFor;
	}
	return 0;
}

/**
 * Whether a refused settle means that the lease is gone. What an effect is refused for, which the error names by its op, may be of
 * another task.
 */
export function endsLease(f: Pick<Fault, "code" | "op">): boolean {
	return f.op === undefined && (f.code === "LEASE_LOST" || f.code === "NOT_FOUND" || f.code === "WRONG_STATE");
}

/** Waits. hold: the process lives on meanwhile. */
export const sleep = (ms: number, signal?: AbortSignal, hold = true): Promise<void> =>
	new Promise((resolve) => {
		if (signal?.aborted) return resolve();
		const timer = setTimeout(done, ms);
		if (!hold) timer.unref();
		function done(): void {
			clearTimeout(timer);
			signal?.removeEventListener("abort", done);
			resolve();
		}
		signal?.addEventListener("abort", done);
	});

/** A node that knows of no leader is given so long, while not all of them have been asked; then longer with each round. */
const unledFor = 300;
const unledMost = 5000;
/** Between two such answers, those before are forgotten. */
const unledApart = 10_000;

/**
 * What is known of nodes that know of no leader, one after the other. That is so for a second or two while one is elected, and for as long as
 * it lasts at a node that the others do not reach. Times are milliseconds of one clock.
 */
export class Unled {
	#at = "";
	#since = 0;
	#last = Number.NEGATIVE_INFINITY;
	/** Nodes that were left in a row. */
	#left = 0;

	/** Notes that a node knows of no leader. Returns whether it is to be left for the next of all nodes. */
	leave(at: string, nodes: number, now: number): boolean {
		if (nodes < 2) return false;
		if (now - this.#last > unledApart) this.#left = 0;
		if (now - this.#last > unledApart || at !== this.#at) {
			this.#at = at;
			this.#since = now;
		}
		this.#last = now;
		const rounds = Math.min(Math.floor(this.#left / nodes), 8);
		if (now - this.#since < Math.min(unledFor * 2 ** rounds, unledMost)) return false;
		this.#left++;
		this.#since = now;
		return true;
	}

	/** A node knows its leader. */
	forget(): void {
		this.#last = Number.NEGATIVE_INFINITY;
	}
}
