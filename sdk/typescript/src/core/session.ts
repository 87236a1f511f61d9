// A session: the stream that is open now, what was sent on it without an answer, and how it is opened again. docs/reference/protocol.md
// has the rules.
import type { Fault } from "../errors.js";
import type { Ack, ClientFrame, Hello, ServerFrame, Welcome } from "../gen/millrace/v1/stream.js";
import { fromDuration } from "../time.js";
import type { Hub } from "./hub.js";
import { random16 } from "./place.js";
import { awayBound, serverBound, within } from "./retry.js";
import { type Endpoint, maxHops } from "./router.js";
import type { FrameStream } from "./transport.js";

/** A frame with a seq, from when it leaves until its ack. */
export interface Outgoing {
	/** What it weighs on the window; bytes as an estimate of its encoding. */
	items: number;
	bytes: number;
	commits: number;
	frame(seq: bigint): ClientFrame["frame"];
	acked(ack: Ack): void;
	/** Its stream broke: what it holds goes back to where it came from. */
	lost(): void;
}

/** What a session is for. */
export interface Role {
	hello(): Pick<Hello, "worker" | "held">;
	welcomed(welcome: Welcome): void;
	/** Frames that answer nothing, such as tasks that are assigned. */
	pushed(frame: ServerFrame): void;
	/** The next frame to send, given the room that the window has; undefined: nothing waits, or it does not fit. */
	next(room: Room): Outgoing | undefined;
	/** Whether the stream should be opened again after it broke. */
	wanted(): boolean;
	/** The stream has ended. What it held was put back. */
	parted(): void;
	/** Opening the stream cannot help until something is changed by hand. */
	failed(fault: Fault): void;
}

export interface Room {
	items: number;
	bytes: number;
	commits: number;
	/** Creates and commits are to wait. */
	throttled: boolean;
	/** Nothing is on its way: any one frame may be sent. */
	empty: boolean;
}

const permanentCodes = new Set([
	"UNAUTHENTICATED",
	"PERMISSION_DENIED",
	"INVALID_ARGUMENT",
	"NOT_FOUND",
	"PRECONDITION_FAILED",
]);
const welcomeWithin = 10_000;

export class Session {
	readonly id = random16();
	/** No server has let a stream in since the last one broke. */
	unreached = false;
	/** Where the stream is, or was last. */
	#endpoint: Endpoint | undefined;
	#stream: FrameStream | undefined;
	#state: "closed" | "waiting" | "opening" | "serving" | "leaving" | "finished" = "closed";
	#unacked = new Map<number, Outgoing>();
	#items = 0;
	#bytes = 0;
	#commits = 0;
	#limits = { items: 4096, bytes: 16 << 20, commits: 64 };
	#seq = 0;
	#tries = 0;
	#hops = 0;
	#poked = false;
	#throttledUntil = 0;
	#timer: NodeJS.Timeout | undefined;
	#ended: (() => void)[] = [];
	readonly #forget: () => void;

	constructor(
		readonly hub: Hub,
		readonly role: Role,
		readonly partition: number,
	) {
		this.#forget = hub.onToken(() => this.tell({ $case: "auth", value: { token: hub.token } }));
	}

	/** Of the node that was spoken to last. */
	get address(): string {
		return (this.#endpoint ?? this.hub.router.now).address;
	}

	get serving(): boolean {
		return this.#state === "serving";
	}

	/** Opens the stream unless it is open, or about to be. */
	open(): void {
		if (this.#state === "closed") this.#connect();
	}

	/** Has the next turn of the loop send what waits: whatever is added until then joins its frames. */
	poke(): void {
		this.open();
		if (this.#poked) return;
		this.#poked = true;
		setImmediate(() => {
			this.#poked = false;
			this.#flush();
		});
	}

	/** Sends a frame without a seq, if the stream is open. */
	tell(frame: ClientFrame["frame"]): void {
		if (this.#state === "serving") this.#stream!.write({ frame });
	}

	/** Half-closes the stream once all is acknowledged, or after a bound in milliseconds, and resolves when it is over. */
	async finish(most: number): Promise<void> {
		const late = Date.now() + most;
		this.#forget();
		this.#flush(); // what was queued in this turn leaves too
		while (this.#state === "serving" && this.#unacked.size > 0 && Date.now() < late) {
			await new Promise((r) => setTimeout(r, 5));
			this.#flush();
		}
		const before = this.#state;
		this.#state = "finished";
		clearTimeout(this.#timer);
		if (!this.#stream || before === "closed" || before === "waiting") return;
		this.#stream.end();
		await new Promise<void>((resolve) => {
			const timer = setTimeout(() => {
				this.#stream?.cancel();
				resolve();
			}, 1000);
			this.#ended.push(() => {
				clearTimeout(timer);
				resolve();
			});
		});
	}

	#connect(): void {
		this.#state = "opening";
		const { router } = this.hub;
		const endpoint = router.to(this.partition);
		this.#endpoint = endpoint;
		let welcomed = false;
		const fail = (): void => {
			stream.cancel();
			over({ code: "UNAVAILABLE", message: "the server did not let the stream in", outcome: "unknown" });
		};
		const late = setTimeout(fail, welcomeWithin);
		// The node owes a welcome: one that is silent is left for another one that leads.
		router.owes(endpoint);
		endpoint.opening.add(fail);
		const opened = (): void => {
			clearTimeout(late);
			endpoint.opening.delete(fail);
			endpoint.answered(1);
		};
		let ended = false;
		const over = (fault: Fault | undefined): void => {
			if (ended) return;
			ended = true;
			if (!welcomed) opened();
			this.#broke(endpoint, fault, welcomed);
		};
		const stream = endpoint.stream({
			frame: (f) => {
				if (ended) return;
				if (!welcomed) {
					if (f.frame?.$case !== "welcome") return;
					welcomed = true;
					opened();
					this.#welcomed(endpoint, f.frame.value);
					return;
				}
				endpoint.heard = performance.now();
				this.#take(endpoint, f);
			},
			drained: () => this.#flush(),
			end: over,
		});
		this.#stream = stream;
		const { worker, held } = this.role.hello();
		stream.write({
			frame: {
				$case: "hello",
				value: {
					version: 1,
					session: this.id,
					namespace: this.hub.namespace,
					worker,
					held,
					partition: this.partition,
				},
			},
		});
	}

	#welcomed(endpoint: Endpoint, w: Welcome): void {
		if (this.#state === "finished") return; // it was ended while it opened
		const l = w.limits;
		if (l) {
			this.#limits = {
				items: l.unackedItems,
				bytes: l.unackedBytes,
				commits: l.unackedCommits,
			};
		}
		this.#state = "serving";
		this.#tries = 0;
		this.#hops = 0;
		this.unreached = false;
		this.hub.welcomed(endpoint, this.partition, w);
		this.role.welcomed(w);
		this.#flush();
	}

	#take(endpoint: Endpoint, f: ServerFrame): void {
		switch (f.frame?.$case) {
			case "ack": {
				const ack = f.frame.value;
				const o = this.#unacked.get(Number(ack.seq));
				if (!o) return; // one that is answered again
				this.#unacked.delete(Number(ack.seq));
				endpoint.owed--;
				this.#weigh(o, -1);
				o.acked(ack);
				this.#flush();
				return;
			}
			case "throttle": {
				const after = f.frame.value.retryAfter;
				const ms = after ? fromDuration(after) : 100;
				this.#throttledUntil = Date.now() + ms;
				setTimeout(() => this.#flush(), ms).unref();
				return;
			}
			case "goaway":
				this.#state = "leaving";
				return;
			case "directory":
				this.hub.router.directory(endpoint, f.frame.value.partitions, f.frame.value.nodes);
				return;
			default:
				this.role.pushed(f);
		}
	}

	#weigh(o: Outgoing, sign: 1 | -1): void {
		this.#items += sign * o.items;
		this.#bytes += sign * o.bytes;
		this.#commits += sign * o.commits;
	}

	#flush(): void {
		while (this.#state === "serving" && !this.#stream!.full) {
			const o = this.role.next({
				items: this.#limits.items - this.#items,
				bytes: this.#limits.bytes - this.#bytes,
				commits: this.#limits.commits - this.#commits,
				throttled: Date.now() < this.#throttledUntil,
				empty: this.#unacked.size === 0,
			});
			if (!o) return;
			const seq = ++this.#seq;
			this.#unacked.set(seq, o);
			this.#weigh(o, 1);
			this.hub.router.owes(this.#endpoint!);
			this.#stream!.write({ frame: o.frame(BigInt(seq)) });
		}
	}

	#broke(endpoint: Endpoint, fault: Fault | undefined, welcomed: boolean): void {
		const lost = [...this.#unacked.values()];
		endpoint.answered(lost.length);
		this.#unacked.clear();
		this.#items = this.#bytes = this.#commits = 0;
		this.#stream = undefined;
		for (const f of this.#ended.splice(0)) f();
		if (this.#state === "finished") {
			for (const o of lost) o.lost();
			return;
		}
		this.#state = "closed";
		// The oldest is put back last, so that it is sent first again.
		for (const o of lost.reverse()) o.lost();
		this.role.parted();
		if (fault && !welcomed && permanentCodes.has(fault.code)) {
			this.role.failed(fault);
			return;
		}
		if (fault && !welcomed) this.unreached = true;
		const turned = fault !== undefined && this.hub.router.turn(this.partition, endpoint, fault, welcomed);
		if (!this.role.wanted()) return;
		let wait = 0;
		if (turned && this.#hops < maxHops) this.#hops++;
		else if (fault) {
			wait = within(
				fault.code === "UNAVAILABLE" || fault.code === "NOT_LEADER" ? awayBound(this.#tries) : serverBound(this.#tries),
			);
			this.#tries++;
			this.hub.troubled(endpoint.address, fault, this.#tries);
		}
		this.#state = "waiting";
		this.#timer = setTimeout(() => {
			this.#state = "closed";
			if (this.role.wanted()) this.#connect();
		}, wait);
	}
}
