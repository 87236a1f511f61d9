// The tasks of a worker in one partition: what it holds, how each attempt is settled, and how leases go on.
import { type Fault, faultOf } from "../errors.js";
import type { ServerFrame, Welcome, WorkerInfo } from "../gen/millrace/v1/stream.js";
import type { Assignment, At, Hold, QueueWeight, SettleItem } from "../gen/millrace/v1/task.js";
import { toDuration } from "../time.js";
import type { Hub } from "./hub.js";
import { endsLease, patience, serverBound, within } from "./retry.js";
import { type Outgoing, type Role, type Room, Session } from "./session.js";
import { newShare, type Share } from "./share.js";

const frameItems = 512;
const frameBytes = 1 << 20;

/** One attempt, from its assignment to the answer to its settle. */
export interface Attempt {
	/** Where it was assigned, and is settled. */
	readonly lane: Lane;
	readonly assignment: Assignment;
	/** Length of the lease in milliseconds. */
	lease: number;
	/** When it is renewed next, by performance.now. */
	renewAt: number;
	/** What it ends with; undefined while it runs. */
	item: SettleItem | undefined;
	itemBytes: number;
	tries: number;
	over: boolean;
	/** Its settle has left, and has no answer: it takes no slot. */
	away: boolean;
	/** When the settle was made first, by the clock of the ledger. */
	begun: number;
	/** A cancel was told once. */
	cancelled: boolean;
}

/** What becomes of attempts is told to the worker. */
export interface LaneEvents {
	assigned(a: Attempt): void;
	lost(a: Attempt): void;
	cancel(a: Attempt, reason: string): void;
	/** The server refused the settle, with the lease kept: the effects were refused. Undefined fault: it was applied. */
	settled(a: Attempt, fault: Fault | undefined, replayed: boolean, at: At | undefined, failed?: Fault): void;
	/** A stream was let in: the leases of its partition are renewed there. */
	welcomed(lane: Lane): void;
	failed(lane: Lane, fault: Fault): void;
}

/** What a worker asks for, the same in each partition. */
export interface Wanted {
	info: WorkerInfo;
	/** With their weights; 0: 1. */
	queues: readonly QueueWeight[];
	/** A queue is served when those before it have nothing ready. */
	inOrder: boolean;
	/** How many tasks run at once, in all partitions. */
	slots: number;
	/** Milliseconds; undefined: each task's own. */
	lease: number | undefined;
}

/** What a lane tells of its slots to what divides them. */
export interface Division {
	/** The stream was let in, and asks for tasks next. */
	welcomed(lane: Lane): void;
	/** Tasks came. */
	filled(lane: Lane): void;
	/** The server has tasks while the lane has no slot. */
	available(lane: Lane): void;
	/** A task gave its slot back. */
	freed(): void;
}

export class Lane implements Role {
	readonly session: Session;
	readonly held = new Map<string, Attempt>();
	readonly share: Share;
	/** How many of those that are held take no slot. */
	#away = 0;
	/** The server knows the window of the open stream. */
	#subscribed = false;
	#settles: Attempt[] = [];
	#timer: NodeJS.Timeout | undefined;
	#renewAll = false;
	#draining = false;
	#stopped = false;

	constructor(
		readonly hub: Hub,
		readonly wanting: Wanted,
		readonly events: LaneEvents,
		readonly division: Division,
		partition: number,
		slots: number,
	) {
		this.session = new Session(hub, this, partition);
		this.share = newShare(slots);
	}

	get partition(): number {
		return this.session.partition;
	}

	/** How many slots its tasks take. */
	get used(): number {
		return this.held.size - this.#away;
	}

	start(): void {
		this.session.open();
	}

	hello(): { worker: WorkerInfo; held: Hold[] } {
		return {
			worker: this.wanting.info,
			held: [...this.held.values()].map((a) => ({ id: a.assignment.id, token: a.assignment.token })),
		};
	}

	welcomed(w: Welcome): void {
		for (const h of w.lost) this.lose(h.id, h.token);
		this.division.welcomed(this);
		this.events.welcomed(this);
		if (!this.#draining) {
			this.#subscribed = true;
			this.session.tell({
				$case: "subscribe",
				value: {
					sub: 1,
					queues: [...this.wanting.queues],
					slots: this.share.slots,
					batch: 0,
					lease: this.wanting.lease === undefined ? undefined : toDuration(this.wanting.lease),
					strict: this.wanting.inOrder,
				},
			});
		}
		this.#renewAll = this.held.size > 0;
	}

	parted(): void {
		this.share.up = this.#subscribed = false;
	}

	/** Tells the server the window, unless it is told with the subscription. */
	tellSlots(): void {
		if (this.#subscribed && !this.#draining)
			this.session.tell({ $case: "slots", value: { sub: 1, slots: this.share.slots } });
	}

	pushed(f: ServerFrame): void {
		switch (f.frame?.$case) {
			case "assign": {
				const now = performance.now();
				for (const t of f.frame.value.tasks) {
					const before = this.held.get(t.id);
					if (before) this.#back(before); // its lease is over
					const lease = Number(t.leaseMs);
					const a: Attempt = {
						lane: this,
						assignment: t,
						lease,
						renewAt: now + Math.min(lease, Number(t.leaseLeftMs)) / 3,
						item: undefined,
						itemBytes: 0,
						tries: 0,
						over: false,
						away: false,
						begun: 0,
						cancelled: false,
					};
					this.held.set(t.id, a);
					this.events.assigned(a);
				}
				this.#arm();
				this.division.filled(this);
				return;
			}
			case "available":
				this.division.available(this);
				return;
			case "leaseLost": {
				const l = f.frame.value;
				this.lose(l.id, l.token);
				// A slot of a lease that the server ended stays taken until the client answers.
				this.tellSlots();
				return;
			}
			case "cancel": {
				const c = f.frame.value;
				const a = this.held.get(c.id);
				if (a && a.assignment.token === c.token && !a.cancelled) {
					a.cancelled = true;
					this.events.cancel(a, c.reason);
				}
				return;
			}
		}
	}

	/** The lease of an attempt is lost: its handler ends, and nothing is settled. A settle that has left is still answered. */
	lose(id: string, token: bigint): void {
		const a = this.held.get(id);
		if (!a || a.assignment.token !== token || a.item) return;
		this.#drop(a);
		this.events.lost(a);
	}

	/** Gives up an attempt: its stream has ended for good. */
	abandon(a: Attempt): void {
		this.#drop(a);
		this.events.lost(a);
	}

	#drop(a: Attempt): void {
		a.over = true;
		if (this.held.get(a.assignment.id) === a) {
			this.#back(a);
			this.held.delete(a.assignment.id);
			this.division.freed();
		}
		this.#arm();
	}

	/** Its settle is not on its way any more: it takes its slot again, as long as it is held. */
	#back(a: Attempt): void {
		if (!a.away) return;
		a.away = false;
		this.#away--;
	}

	settle(a: Attempt, item: SettleItem, bytes: number): void {
		if (a.over) return;
		a.item = item;
		a.itemBytes = bytes;
		this.#settles.push(a);
		this.session.poke();
	}

	/** Takes an attempt's settle back, so that it can be settled in another way. */
	reopen(a: Attempt): void {
		a.item = undefined;
		a.renewAt = 0;
		this.#arm();
	}

	#arm(): void {
		if (this.#timer !== undefined || this.#stopped) return;
		let next = Number.POSITIVE_INFINITY;
		for (const a of this.held.values()) if (!a.item && a.renewAt < next) next = a.renewAt;
		if (next === Number.POSITIVE_INFINITY) return;
		this.#timer = setTimeout(
			() => {
				this.#timer = undefined;
				this.session.poke();
				this.#arm();
			},
			Math.max(next - performance.now(), 20),
		);
	}

	wanted(): boolean {
		return !this.#stopped;
	}

	failed(fault: Fault): void {
		this.events.failed(this, fault);
	}

	next(room: Room): Outgoing | undefined {
		return this.#nextRenewal() ?? this.#nextSettles(room);
	}

	#nextRenewal(): Outgoing | undefined {
		const now = performance.now();
		const due: Attempt[] = [];
		for (const a of this.held.values()) {
			if (a.item) continue; // a settle that has left needs no renewal
			if (this.#renewAll || a.renewAt <= now) due.push(a);
			if (due.length === frameItems) break;
		}
		if (due.length < frameItems) this.#renewAll = false;
		if (due.length === 0) return undefined;
		for (const a of due) a.renewAt = now + a.lease / 3;
		return {
			items: due.length,
			bytes: due.length * 40,
			commits: 0,
			frame: (seq) => ({
				$case: "renew",
				value: {
					seq,
					items: due.map((a) => ({ id: a.assignment.id, token: a.assignment.token })),
					all: false,
					extend: undefined,
				},
			}),
			lost: () => {}, // the next stream renews all at once
			acked: (ack) => {
				if (ack.error) {
					for (const a of due) a.renewAt = Math.min(a.renewAt, performance.now() + a.lease / 12);
					this.#arm();
					return;
				}
				due.forEach((a, i) => {
					const r = ack.renewed[i];
					if (r?.lost) this.lose(a.assignment.id, a.assignment.token);
					else if (r?.cancel && !a.cancelled && !a.over) {
						a.cancelled = true;
						this.events.cancel(a, "");
					}
				});
				this.#arm();
			},
		};
	}

	#nextSettles(room: Room): Outgoing | undefined {
		const all: Attempt[] = [];
		let bytes = 0;
		while (this.#settles.length > 0 && all.length < frameItems) {
			const a = this.#settles[0]!;
			if (a.over || !a.item) {
				this.#settles.shift();
				continue;
			}
			const fits =
				all.length + 1 <= room.items &&
				bytes + a.itemBytes <= room.bytes &&
				(all.length === 0 || bytes + a.itemBytes <= frameBytes);
			if (!fits && !(room.empty && all.length === 0)) break;
			bytes += a.itemBytes;
			all.push(a);
			this.#settles.shift();
		}
		if (all.length === 0) return undefined;
		for (const a of all) {
			a.tries++;
			if (this.held.get(a.assignment.id) !== a) continue;
			a.away = true;
			this.#away++;
		}
		// Once the frame is written, and the server can have room for more.
		queueMicrotask(() => this.division.freed());
		return {
			items: all.length,
			bytes,
			commits: 0,
			frame: (seq) => ({ $case: "settle", value: { seq, items: all.map((a) => a.item!) } }),
			lost: () => {
				for (const a of all) this.#back(a);
				this.#settles.unshift(...all);
			},
			acked: (ack) => {
				all.forEach((a, i) => {
					const r = ack.settled[i];
					const error = ack.error ?? r?.error;
					if (!error || (!ack.error && r!.failedInstead)) {
						this.#drop(a);
						// The error says why the server failed the attempt: it has ended all the same.
						const why = error && faultOf(error);
						this.events.settled(a, undefined, r!.replayed, ack.at, why);
						return;
					}
					const fault = faultOf(error);
					this.#back(a);
					if (patience(fault) > 0) {
						setTimeout(
							() => {
								this.#settles.push(a);
								this.session.poke();
							},
							Math.max(fault.retryAfter ?? 0, within(serverBound(a.tries - 1))),
						);
						return;
					}
					// After any other refusal than of the lease, the lease goes on: what was refused are the effects.
					if (endsLease(fault)) this.#drop(a);
					this.events.settled(a, fault, false, undefined);
				});
			},
		};
	}

	/** Asks for no more tasks. */
	drain(): void {
		if (this.#draining) return;
		this.#draining = true;
		this.session.tell({ $case: "drain", value: {} });
	}

	/** Ends the stream once what was settled is acknowledged, or after a bound in milliseconds. */
	async finish(most: number): Promise<void> {
		this.#stopped = true;
		clearTimeout(this.#timer);
		await this.session.finish(most);
	}
}
