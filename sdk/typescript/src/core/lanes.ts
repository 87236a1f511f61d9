// The lanes of a worker, one for each partition, over which its slots are divided: they go where the work is.
import type { Hub } from "./hub.js";
import { Lane, type LaneEvents, type Wanted } from "./lane.js";
import { divide, roam, setSlots, stay } from "./share.js";

/** Milliseconds between two balances. */
const balanceLeast = 10;
/** The same while some lane has more or less than its even share. */
const balanceEvery = 100;
/** A task that came beyond the slots waits no longer than this for one. */
export const surplusAfter = 250;

export class Lanes {
	/** By partition; there is one until it tells how many there are. */
	readonly all: Lane[] = [];
	readonly #hub: Hub;
	readonly #wanted: Wanted;
	readonly #events: LaneEvents;
	#last = 0;
	/** A lane waits for slots that others still use. */
	#owed = false;
	#timer: NodeJS.Timeout | undefined;
	/** When the timer balances, by performance.now. */
	#next = Number.POSITIVE_INFINITY;
	#draining = false;

	constructor(hub: Hub, wanted: Wanted, events: LaneEvents) {
		this.#hub = hub;
		this.#wanted = wanted;
		this.#events = events;
	}

	start(): void {
		this.#widen(Math.max(this.#hub.partitions, 1));
	}

	#widen(partitions: number): void {
		while (this.all.length < partitions && !this.#draining) {
			const p = this.all.length;
			const lane = new Lane(this.#hub, this.#wanted, this.#events, this, p, p === 0 ? this.#wanted.slots : 0);
			this.all.push(lane);
			lane.start();
		}
	}

	/** How many attempts have no answer to their settle. */
	get held(): number {
		return this.all.reduce((n, l) => n + l.held.size, 0);
	}

	/** How many tasks came beyond the slots: a window that shrinks may have been used meanwhile. */
	get surplus(): number {
		return this.all.reduce((n, l) => n + l.used, -this.#wanted.slots);
	}

	/** Whether a stream is open. */
	get serving(): boolean {
		return this.all.some((l) => l.session.serving);
	}

	/** The lease of an attempt is lost; which lane has it is not known. */
	lose(id: string, token: bigint): void {
		for (const l of this.all) l.lose(id, token);
	}

	welcomed(lane: Lane): void {
		this.#widen(this.#hub.partitions);
		lane.share.up = true;
		this.#balance(performance.now());
	}

	filled(lane: Lane): void {
		if (this.all.length === 1) return;
		if (lane.used === 0 || lane.used < lane.share.slots) return;
		const now = performance.now();
		lane.share.filled = now;
		this.#balanceSoon(now);
	}

	available(lane: Lane): void {
		if (lane.share.slots > 0) return; // a slot is there meanwhile
		lane.share.wanted = true;
		this.#balanceSoon(performance.now());
	}

	freed(): void {
		if (this.#owed && !this.#draining) this.#resize(performance.now());
	}

	#balanceSoon(now: number): void {
		if (now - this.#last >= balanceLeast) this.#balance(now);
		else this.#balanceIn(balanceLeast, now);
	}

	/** Divides the slots again. */
	#balance(now: number): void {
		if (this.all.length === 1 || this.#draining) return;
		this.#last = now;
		const shares = this.all.map((l) => {
			l.share.used = l.used;
			return l.share;
		});
		const { slots } = this.#wanted;
		let wait: number | undefined;
		if (slots < shares.length) {
			roam(slots, shares, now);
			wait = stay(slots, shares.length);
		} else if (divide(slots, shares, now)) wait = balanceEvery;
		this.#resize(now);
		if (wait !== undefined) this.#balanceIn(wait, now);
	}

	#balanceIn(ms: number, now: number): void {
		if (now + ms >= this.#next) return;
		this.#next = now + ms;
		clearTimeout(this.#timer);
		this.#timer = setTimeout(() => {
			this.#next = Number.POSITIVE_INFINITY;
			this.#balance(performance.now());
		}, ms);
	}

	// Windows that shrink do so at once, those that grow as slots come free, so that no more tasks are given out than there are slots.
	#resize(now: number): void {
		// How many slots are spoken for: by windows, and by tasks beyond a window that has shrunk.
		let claimed = 0;
		for (const l of this.all) {
			if (l.share.slots > l.share.target) this.#set(l, l.share.target, now);
			claimed += Math.max(l.share.slots, l.used);
		}
		this.#owed = false;
		for (const l of this.all) {
			const s = l.share;
			if (s.slots >= s.target) continue;
			const before = Math.max(s.slots, l.used);
			const to = Math.min(s.target, before + Math.max(this.#wanted.slots - claimed, 0));
			if (to > s.slots) {
				claimed += Math.max(to, l.used) - before;
				this.#set(l, to, now);
			}
			this.#owed ||= s.slots < s.target;
		}
	}

	#set(l: Lane, slots: number, now: number): void {
		l.share.used = l.used;
		setSlots(l.share, slots, now);
		l.tellSlots();
	}

	/** Asks for no more tasks. */
	drain(): void {
		this.#draining = true;
		clearTimeout(this.#timer);
		for (const l of this.all) l.drain();
	}

	/** Ends the streams once what was settled is acknowledged, or after a bound in milliseconds. */
	async finish(most: number): Promise<void> {
		await Promise.all(this.all.map((l) => l.finish(most)));
	}
}
