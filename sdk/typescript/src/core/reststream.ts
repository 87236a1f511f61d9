// A stream made of requests of REST.
import { type Fault, faultOf } from "../errors.js";
import {
	Ack,
	type ClientFrame,
	type Hello,
	type ServerFrame,
	type StatusResponse,
	type Subscribe,
	Welcome,
	type WorkerInfo,
} from "../gen/millrace/v1/stream.js";
import {
	type Assignment,
	type BatchCreateResponse,
	ClaimRequest,
	type ClaimResponse,
	type CommitResponse,
	type EndClaimResponse,
	type GetNamespaceResponse,
	type HeartbeatResponse,
	type Hold,
	type SettleItem,
	type SettleResponse,
	type SettleResult,
} from "../gen/millrace/v1/task.js";
import { toDuration } from "../time.js";
import { random16 } from "./place.js";
import type { RestChannel } from "./rest.js";
import { Poll, shortest, Waits } from "./restwaits.js";
import { awayBound, endsLease, patience, serverBound, within } from "./retry.js";
import type { FrameStream, StreamEvents } from "./transport.js";
import { type CallOptions, Job, long, RestError, urgent } from "./web.js";

/** Requests with work that one stream has open at once: what comes meanwhile shares the next. */
const lanes = 6;
/** Most tasks of one claim. */
const claimTasks = 128;
/** Items of a frame. */
const frameItems = 512;
/** Milliseconds in which requests under way are still answered when the stream breaks. */
const answeredWithin = 2000;
const releaseWithin = 2000;
/** The feature of servers that end a claim by its name, and milliseconds until one that the server did not find is ended again. */
const endClaim = "end_claim";
const endAgain = 50;

type Frame = NonNullable<ClientFrame["frame"]>;
type ValueOf<K> = Extract<Frame, { $case: K }>["value"];

/** One lease that takes a slot. */
interface Held {
	hold: Hold;
	/** The subscription whose slot it takes; 0: not known, as a Hello named the lease. */
	sub: number;
	/** Milliseconds that each renewal makes it; 0: not known, for the same reason. */
	lease: number;
	/** When it is surely over if nothing renews it, by performance.now; 0: not known. */
	until: number;
	/** Its end is on the way. */
	settling: boolean;
}

const keyOf = (h: { id: string; token: bigint }): string => `${h.id} ${h.token}`;

/** One subscription: claims are made while slots are free. */
class Claims {
	/** The claim under way. */
	job: Job | undefined;
	/** Its name; undefined: it has none, or there is none. */
	name: Uint8Array | undefined;
	/** The server is asked to answer it. */
	ending = false;
	over = false;
	/** No claim comes any more. */
	readonly ended: Promise<void>;
	/** Says so. */
	end!: () => void;
	#rung = false;
	#wake: (() => void) | undefined;

	constructor(public spec: Subscribe) {
		this.ended = new Promise((resolve) => {
			this.end = resolve;
		});
	}

	/** Slots may be free. */
	ring(): void {
		this.#rung = true;
		this.#wake?.();
	}

	/** Waits for ring since clear, for some milliseconds at most. */
	async heard(ms: number): Promise<void> {
		if (this.#rung) return;
		await new Promise<void>((resolve) => {
			const timer = Number.isFinite(ms) ? setTimeout(resolve, Math.max(ms, 0)) : undefined;
			this.#wake = () => {
				clearTimeout(timer);
				resolve();
			};
		});
		this.#wake = undefined;
	}

	clear(): void {
		this.#rung = false;
	}

	stop(): void {
		this.over = true;
		this.ring();
		this.job?.cancel();
	}
}

/**
 * The contract's stream over REST. A request without an answer breaks it, as a lost connection breaks gRPC's: the others are waited for, then
 * the stream ends, and what was not acknowledged is sent again on the next one. A request that never left is acknowledged as refused before.
 */
export class RestStream implements FrameStream {
	readonly #t: RestChannel;
	readonly #events: StreamEvents;
	/** Frames that the client has yet to receive. */
	#frames: ServerFrame[] = [];
	/** Requests of frames, and subscriptions. */
	#open = 0;
	readonly #jobs = new Set<Job>();
	/** Requests with work. */
	#works = 0;
	#full = false;
	/** The client has closed its side. */
	#closed = false;
	/** What broke the stream. */
	#cause: Fault | undefined;
	#late: NodeJS.Timeout | undefined;
	#ended = false;
	#welcomed = false;
	/** The client goes over to gRPC. */
	#retired = false;
	/** The client is told to leave. */
	#left = false;
	/** The client asked for no more tasks. */
	#draining = false;
	/** The server ends claims by their names. */
	#namesClaims = false;
	/** Of claims, where the namespace has several. */
	#partition: number | undefined;
	/** Who the client says it is; undefined: it takes no tasks. */
	#worker: WorkerInfo | undefined;
	readonly #held = new Map<string, Held>();
	readonly #subs = new Map<number, Claims>();
	readonly #waits: Waits;

	constructor(t: RestChannel, events: StreamEvents) {
		this.#t = t;
		this.#events = events;
		this.#waits = new Waits({
			look: (id, wait, job) => t.look(id, wait, job),
			whole: (id, task, at) => t.whole(id, task, at),
			ended: (id, task, error, at) => this.#push({ $case: "ended", value: { id, task, error, at } }),
		});
	}

	// What the session calls.

	get full(): boolean {
		this.#full = this.#works >= lanes;
		return this.#full;
	}

	write({ frame: f }: ClientFrame): void {
		if (this.#over || !f) return;
		switch (f.$case) {
			case "hello":
				this.#begin(this.#greet(f.value));
				return;
			case "create":
				this.#create(f.value);
				return;
			case "commit":
				this.#commit(f.value);
				return;
			case "settle":
				this.#settle(f.value);
				return;
			case "renew":
				this.#renew(f.value);
				return;
			case "waits":
				this.#wait(f.value);
				return;
			case "subscribe":
				this.#subscribe(f.value);
				return;
			case "slots": {
				const u = this.#subs.get(f.value.sub);
				if (u) u.spec = { ...u.spec, slots: f.value.slots };
				u?.ring();
				return;
			}
			case "drain":
				this.#draining = true;
				this.#endClaims();
				return;
			case "auth":
				return; // each request has the token of its time
		}
		this.#fail({
			code: "INVALID_ARGUMENT",
			message: `a frame ${f.$case} cannot be sent over REST`,
			outcome: "refused",
		});
	}

	/** Ends this side: the stream ends when all that was sent is answered. */
	end(): void {
		this.#closed = true;
		this.#endClaims();
		this.#waits.stop();
		this.#checkEnd();
	}

	/** Ends the stream at once. Its caller says first why: the end comes afterwards. */
	cancel(): void {
		this.#cause ??= { code: "DEADLINE_EXCEEDED", message: "the stream was cancelled", outcome: "unknown" };
		this.#stopClaims();
		this.#abort();
		queueMicrotask(() => this.#end());
	}

	/** Ends as a server's stream does that stops: nothing new is begun. One that was not let in yet breaks. */
	retire(): void {
		this.#retired = true;
		// Before its Welcome the client reads no Goaway.
		if (!this.#welcomed)
			this.#fail({ code: "UNAVAILABLE", message: "the client goes over to gRPC", outcome: "unknown" });
		else this.#goaway();
	}

	// The life of the stream.

	/** Nothing is begun any more. */
	get #over(): boolean {
		return this.#closed || this.#cause !== undefined;
	}

	/** Does work that the end of the stream waits for. */
	#begin(done: Promise<void>): void {
		this.#open++;
		void done
			.catch((e: Error) => this.#fail({ code: "INTERNAL", message: e.message, outcome: "unknown", cause: e }))
			.finally(() => {
				this.#open--;
				this.#checkEnd();
			});
	}

	/** A request of this stream. */
	async #carry<Res>(name: string, m: object, o: CallOptions = {}): Promise<Res> {
		const job = o.job ?? new Job();
		this.#jobs.add(job);
		try {
			return await this.#t.carry<Res>(name, m, { ...o, job });
		} finally {
			this.#jobs.delete(job);
		}
	}

	/** Gives the client a frame, with all others of this turn. */
	#push(frame: NonNullable<ServerFrame["frame"]>): void {
		if (this.#frames.push({ frame }) === 1) queueMicrotask(() => this.#flush());
	}

	#flush(): void {
		for (const f of this.#frames.splice(0)) if (!this.#ended) this.#events.frame(f);
	}

	#checkEnd(): void {
		if (this.#open === 0 && (this.#over || this.#left)) this.#end();
	}

	/** Tells the client of the end, once. Frames that came before are received before. */
	#end(): void {
		if (this.#ended) return;
		this.#flush();
		this.#ended = true;
		clearTimeout(this.#late);
		this.#waits.stop();
		queueMicrotask(() => this.#events.end(this.#cause));
	}

	/** Breaks the stream; the first cause counts. */
	#fail(fault: Fault): void {
		if (this.#cause) return;
		this.#cause = fault;
		this.#stopClaims();
		this.#waits.stop();
		// Requests under way may still be answered; those that are not are given up.
		this.#late = setTimeout(() => this.#abort(), answeredWithin);
		queueMicrotask(() => this.#checkEnd());
	}

	#abort(): void {
		for (const job of [...this.#jobs]) job.cancel();
	}

	/** Tells the client to leave, once no claim is under way: the tasks of one that is cut would stay leased. */
	#goaway(): void {
		for (const u of this.#subs.values()) u.ring();
		if (this.#subs.size > 0 || this.#over || this.#left) return;
		this.#push({ $case: "goaway", value: { reason: "the client goes over to gRPC" } as never });
		this.#left = true;
		// Once it is told, the client sends nothing more; what it has sent is answered first.
		queueMicrotask(() => this.#checkEnd());
	}

	/**
	 * Asks who is there, which makes the Welcome: that the token is good, and that something answers. Whatever the client says it holds is taken
	 * as kept: a lease that is lost shows when it is renewed.
	 */
	async #greet(h: Hello): Promise<void> {
		this.#worker = h.worker;
		for (const hold of h.held) this.#held.set(keyOf(hold), { hold, sub: 0, lease: 0, until: 0, settling: false });
		let partitions: number;
		let features: string[];
		try {
			features = (await this.#carry<StatusResponse>("ServerService/Status", {})).features;
			partitions = await this.#partitions();
		} catch (e) {
			if (!(e instanceof RestError)) throw e;
			this.#fail(e.fault);
			return;
		}
		if (this.#over || this.#retired) return;
		if (partitions > 1) this.#partition = h.partition;
		this.#welcomed = true;
		this.#namesClaims = features.includes(endClaim);
		features = [...new Set([...features, "waits"])];
		this.#push({ $case: "welcome", value: Welcome.fromPartial({ kept: h.held, partitions, features }) });
	}

	/** Asks how many partitions there are. A namespace that is not there, or not for the token to see, has one. */
	async #partitions(): Promise<number> {
		try {
			const got = await this.#carry<GetNamespaceResponse>("QueueService/GetNamespace", {});
			return Math.max(got.partitions.length, 1);
		} catch (e) {
			if (e instanceof RestError && patience(e.fault) === 0) return 1;
			throw e;
		}
	}

	// Frames with work.

	/** Answers a frame by its ack, which f fills. */
	async #answer(seq: bigint, f: (ack: Ack) => Promise<void>): Promise<void> {
		let ack = Ack.fromPartial({ seq });
		try {
			await f(ack);
		} catch (e) {
			if (!(e instanceof RestError)) throw e;
			// A worker that is not let in can do nothing any more, and is told so.
			if (e.origin === "none" || (e.wire.code === "UNAUTHENTICATED" && this.#worker)) {
				this.#fail(e.fault);
				// What never left was certainly refused, and is acknowledged so.
				if (e.origin !== "none" || e.left) return;
			}
			ack = Ack.fromPartial({ seq });
			ack.error = e.wire;
		}
		this.#push({ $case: "ack", value: ack });
	}

	#sequenced(seq: bigint, f: (ack: Ack) => Promise<void>): void {
		this.#works++;
		this.#begin(
			this.#answer(seq, f).finally(() => {
				this.#works--;
				if (!this.#full || this.#works >= lanes) return;
				this.#full = false;
				queueMicrotask(() => this.#ended || this.#events.drained());
			}),
		);
	}

	#create(f: ValueOf<"create">): void {
		this.#sequenced(f.seq, async (ack) => {
			const request = { tasks: f.tasks, atomic: f.atomic };
			const got = await this.#carry<BatchCreateResponse>("TaskService/BatchCreate", request);
			ack.created = got.results;
			ack.at = got.at;
		});
	}

	#commit(f: ValueOf<"commit">): void {
		this.#sequenced(f.seq, async (ack) => {
			ack.commit = await this.#carry<CommitResponse>("CommitService/Commit", f.commit!);
			ack.at = ack.commit.at;
		});
	}

	/** Ends attempts. A slot is free when the server has answered: it may refuse, and leave the lease. */
	#settle(f: ValueOf<"settle">): void {
		// A lease whose end is on the way is not counted as lost, however long the answer takes.
		for (const x of f.items) {
			const h = this.#held.get(keyOf(x));
			if (h) h.settling = true;
		}
		this.#sequenced(f.seq, async (ack) => {
			let results: SettleResult[] = [];
			try {
				const got = await this.#carry<SettleResponse>("TaskService/Settle", { items: f.items });
				results = got.results;
				ack.settled = results;
				ack.at = got.at;
			} finally {
				this.#settled(f.items, results);
			}
		});
	}

	/** Frees the slots of attempts that have ended. */
	#settled(items: readonly SettleItem[], results: readonly SettleResult[]): void {
		const now = performance.now();
		items.forEach((x, i) => {
			const h = this.#held.get(keyOf(x));
			if (!h) return;
			h.settling = false;
			if (h.lease > 0) h.until = now + h.lease;
			const r = results[i];
			if (!r) return;
			if (r.error && !r.failedInstead) {
				const fault = faultOf(r.error);
				// A failure, a release or a stop that is refused is given up; after a completion a failure may come.
				const ends = ["fail", "release", "stop"].includes(x.outcome?.$case ?? "");
				const givenUp = ends && patience(fault) === 0;
				if (!givenUp && !endsLease(fault)) return;
			}
			this.#held.delete(keyOf(x));
		});
		this.#nudge();
	}

	/** Extends leases. It takes no room of work: what waits for that must not cost a lease. */
	#renew(f: ValueOf<"renew">): void {
		let { items } = f;
		if (f.all) {
			const all = [...this.#held.values()].filter((h) => !h.settling);
			items = all.slice(0, frameItems).map((h) => h.hold);
		}
		const renewed = async (ack: Ack): Promise<void> => {
			if (items.length === 0) return;
			const request = { items, extend: f.extend };
			const got = await this.#carry<HeartbeatResponse>("TaskService/Heartbeat", request, { kind: urgent });
			ack.renewed = got.results;
			ack.at = got.at;
			const now = performance.now();
			items.forEach((x, i) => {
				const h = this.#held.get(keyOf(x));
				if (h && got.results[i]?.lost) this.#held.delete(keyOf(x));
				else if (h && h.lease > 0) h.until = now + h.lease;
			});
			this.#nudge();
		};
		this.#begin(this.#answer(f.seq, renewed));
	}

	#wait(f: ValueOf<"waits">): void {
		for (const id of f.forget) this.#waits.forget(id);
		for (const id of f.ids) this.#waits.ask(id);
		const ack = Ack.fromPartial({ seq: f.seq, waits: f.ids.map(() => ({})) });
		this.#push({ $case: "ack", value: ack });
	}

	// Subscriptions.

	/** Has the subscriptions count their slots again. */
	#nudge(): void {
		for (const u of this.#subs.values()) u.ring();
	}

	#stopClaims(): void {
		for (const u of [...this.#subs.values()]) u.stop();
	}

	/** Ends the claims that wait, so that their answers are read: the tasks of one that is cut as it is answered would stay leased. */
	#endClaims(): void {
		for (const u of [...this.#subs.values()]) {
			if (!u.name) u.stop();
			else if (!u.ending) {
				u.ending = true;
				u.ring();
				this.#begin(this.#endClaim(u, u.name));
			}
		}
	}

	/** Has the server answer a claim, and cuts it if the answer does not come in time. */
	async #endClaim(u: Claims, claim: Uint8Array): Promise<void> {
		const job = new Job();
		const late = setTimeout(() => {
			job.cancel();
			u.stop();
		}, releaseWithin);
		try {
			while (!u.over) {
				const request = { claim, partition: this.#partition };
				const got = await this.#carry<EndClaimResponse>("TaskService/EndClaim", request, { job });
				// One that was not found was answered, or comes to the server behind this request.
				const again = got.found ? u.ended : new Promise((resolve) => setTimeout(resolve, endAgain));
				await Promise.race([u.ended, again]);
			}
		} catch (e) {
			if (!(e instanceof RestError)) throw e;
		} finally {
			clearTimeout(late);
			u.stop();
		}
	}

	#subscribe(spec: Subscribe): void {
		let u = this.#subs.get(spec.sub);
		if (u) {
			u.spec = spec;
			u.ring();
		} else if (!this.#draining && !this.#retired) {
			u = new Claims(spec);
			this.#subs.set(spec.sub, u);
			this.#begin(this.#claims(u));
		}
	}

	/** Asks for tasks while slots are free, one request at a time: never more are given than there are slots. */
	async #claims(u: Claims): Promise<void> {
		try {
			await this.#claimOn(u);
		} finally {
			u.over = true;
			u.end();
			this.#subs.delete(u.spec.sub);
			if (this.#retired && !this.#over) this.#goaway();
		}
	}

	async #claimOn(u: Claims): Promise<void> {
		const poll = new Poll();
		let attempt = 0;
		for (let request = await this.#nextClaim(u); request; request = await this.#nextClaim(u)) {
			const { wait } = poll;
			request.wait = toDuration(wait);
			u.job = new Job();
			const began = performance.now();
			let pause: number;
			try {
				const o: CallOptions = { kind: long, wait, job: u.job };
				const got = await this.#carry<ClaimResponse>("TaskService/Claim", request, o);
				this.#assign(u, got.tasks);
				if (got.tasks.length > 0 || performance.now() - began >= shortest) {
					attempt = 0;
					continue;
				}
				pause = within(awayBound(attempt));
			} catch (e) {
				if (!(e instanceof RestError)) throw e;
				if (u.over) return;
				const { fault } = e;
				// A node of an older program knows no names of claims, though another one of its cluster does.
				if (u.name && fault.code === "INVALID_ARGUMENT" && fault.field === "claim") {
					this.#namesClaims = false;
					continue;
				}
				if (poll.missed(e, performance.now() - began)) continue;
				// Without any answer a lease may have been taken that nothing tells of: the stream breaks.
				if (e.origin === "none" || patience(fault) === 0) {
					this.#fail(fault);
					return;
				}
				const away = fault.code === "UNAVAILABLE" || fault.code === "NOT_LEADER";
				pause = Math.max(within(away ? awayBound(attempt) : serverBound(attempt)), fault.retryAfter ?? 0);
			}
			attempt++;
			await this.#pause(u, performance.now() + Math.max(pause, 50));
		}
	}

	/** Waits until then, or until the claims are over. */
	async #pause(u: Claims, until: number): Promise<void> {
		while (!u.over && performance.now() < until) {
			u.clear();
			await u.heard(until - performance.now());
		}
	}

	/** Waits for free slots; undefined: claims are over. */
	async #nextClaim(u: Claims): Promise<ClaimRequest | undefined> {
		for (;;) {
			u.clear();
			const { free, next } = this.#free(u);
			u.name = undefined;
			if (u.over || this.#draining || this.#retired || this.#over) return undefined;
			if (free > 0) {
				if (this.#namesClaims) u.name = random16();
				return ClaimRequest.fromPartial({
					queues: u.spec.queues,
					strict: u.spec.strict,
					max: Math.min(free, u.spec.batch || claimTasks),
					worker: this.#worker?.id ?? "",
					lease: u.spec.lease,
					partition: this.#partition,
					claim: u.name,
				} as never);
			}
			await u.heard(next - performance.now());
		}
	}

	/**
	 * Counts the slots that nothing holds, and says when the next lease is over that nothing renewed. A slot is held from the claim until the
	 * settle that ends the task is answered, or until the lease is over: its task is then one that the client forgot.
	 */
	#free(u: Claims): { free: number; next: number } {
		let free = u.spec.slots;
		let next = Number.POSITIVE_INFINITY;
		const now = performance.now();
		for (const [key, h] of this.#held) {
			if (h.sub !== 0 && h.sub !== u.spec.sub) continue;
			if (!h.settling && h.until > 0) {
				if (now >= h.until) {
					this.#held.delete(key);
					continue;
				}
				next = Math.min(next, h.until);
			}
			free--;
		}
		return { free, next };
	}

	/** Gives the client tasks. They go back at once when it has left meanwhile, or wants no more. */
	#assign(u: Claims, tasks: Assignment[]): void {
		if (tasks.length === 0) return;
		if (this.#over || this.#draining) {
			void this.#giveBack(tasks);
			return;
		}
		// Counted from now and not from when the server gave it: a slot is rather free too late than too early.
		const now = performance.now();
		for (const { id, token, leaseMs } of tasks) {
			const lease = Number(leaseMs);
			const hold = { id, token };
			this.#held.set(keyOf(hold), { hold, sub: u.spec.sub, lease, until: now + lease, settling: false });
		}
		this.#push({ $case: "assign", value: { sub: u.spec.sub, tasks } });
	}

	/** Releases tasks that came too late. Where that fails their leases end by themselves. */
	async #giveBack(tasks: readonly Assignment[]): Promise<void> {
		const job = new Job();
		const late = setTimeout(() => job.cancel(), releaseWithin);
		const items = tasks.map(({ id, token }) => ({
			id,
			token,
			outcome: { $case: "release", value: {} },
			effects: undefined,
		}));
		await this.#t.carry("TaskService/Settle", { items }, { job }).catch(() => {});
		clearTimeout(late);
	}
}
