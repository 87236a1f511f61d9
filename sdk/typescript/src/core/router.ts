// Which node a call goes to: the node in use, or the leader of a partition. The router follows what servers say of leaders and members, and
// leaves nodes that are not reached, know of no leader, or are silent.
import { type Fault, MillraceError } from "../errors.js";
import type { PartitionAddress, Welcome } from "../gen/millrace/v1/stream.js";
import { random16 } from "./place.js";
import { Unled } from "./retry.js";
import type { Channel, FrameStream, Method, StreamEvents, UnaryOptions } from "./transport.js";

export const streamPath = "/millrace.v1.QueueStream/Open";

/** No partition: any node will do. */
export const anywhere = -1;

/** How often in a row a leader that an error names is followed without a wait. */
export const maxHops = 3;

/** How many members of its cluster a client remembers. */
const mostMembers = 64;

// A node that hangs keeps its connections. It takes half a minute of pings to tell, and after a second or two another node leads. So while
// a node owes an answer and is silent, the others are asked who leads. If they name another one, the node is left: what is under way there
// ends, and is repeated.
const silentFor = 1000;
const askEvery = 500;
const askMost = 10_000;
const askWithin = 1000;

/** Nothing was reached that speaks for a server. */
const unreached = (f: Fault): boolean => f.code === "UNAVAILABLE" && !f.reason;

/** The connections to one node. */
export class Endpoint {
	/** Frames without an ack, streams without a welcome, and calls without an answer. */
	owed = 0;
	/** When something came last, or the first of what is owed left, by performance.now. */
	heard = 0;
	/** A timer looks whether the node is silent. */
	watched = false;
	/** Streams that are not let in yet. They end when the node is left; what is let in ends well. */
	readonly opening = new Set<() => void>();
	/** Ends each call and stream that is under way. */
	readonly #under = new Set<() => void>();
	readonly #connect: () => Channel;
	#channel: Channel | undefined;
	#waits: Channel | undefined;
	#left = false;

	constructor(
		readonly address: string,
		connect: () => Channel,
	) {
		this.#connect = connect;
	}

	stream(events: StreamEvents): FrameStream {
		this.#channel ??= this.#connect();
		let over = false;
		const end = (fault: Fault | undefined): void => {
			if (over) return;
			over = true;
			this.#ended(cut);
			events.end(fault);
		};
		const stream = this.#channel.stream(streamPath, { ...events, end });
		const cut = (): void => {
			stream.cancel();
			end(silent);
		};
		this.#under.add(cut);
		return stream;
	}

	/** A call. One that waits has a connection of its own, since a connection has at most 1,000 calls, and owes nothing. */
	unary<Req, Res>(m: Method<Req, Res>, request: Req, o: UnaryOptions, waits = false): Promise<Res> {
		let channel: Channel;
		if (waits) channel = this.#waits ??= this.#connect();
		else channel = this.#channel ??= this.#connect();
		return new Promise((resolve, reject) => {
			const cut = (): void => reject(new MillraceError(silent));
			this.#under.add(cut);
			channel.unary(m, request, o).then(
				(v) => {
					this.#ended(cut);
					resolve(v);
				},
				(e) => {
					this.#ended(cut);
					reject(e);
				},
			);
		});
	}

	async *read<Req, Res>(m: Method<Req, Res>, request: Req, o: UnaryOptions): AsyncGenerator<Res> {
		this.#channel ??= this.#connect();
		const cut = (): void => {}; // a reader that is slow owes nothing
		this.#under.add(cut);
		try {
			yield* this.#channel.read(m, request, o);
		} finally {
			this.#ended(cut);
		}
	}

	#ended(cut: () => void): void {
		this.#under.delete(cut);
		if (this.#left && this.#under.size === 0) this.close();
	}

	/** Notes that n answers came, or will not come any more. */
	answered(n: number): void {
		this.heard = performance.now();
		this.owed -= n;
	}

	/** Nothing new begins here. The connections end with what is under way. */
	leave(): void {
		this.#left = true;
		for (const f of [...this.opening]) f();
		if (this.#under.size === 0) this.close();
	}

	/** Ends what is under way: the node is silent. */
	cut(): void {
		for (const f of [...this.#under]) f();
	}

	close(): void {
		this.#channel?.close();
		this.#waits?.close();
		this.#channel = this.#waits = undefined;
	}
}

const silent: Fault = {
	code: "UNAVAILABLE",
	message: "the node was silent, and another one leads",
	outcome: "unknown",
};

/** Where a unary call goes in a namespace of several partitions. It is for one call at a time. */
export interface Route {
	partition: number;
	/** That an answer to a call about no partition named. */
	leader: string;
}

export interface RouterOptions {
	addresses: readonly string[];
	namespace: string;
	connect(address: string): Channel;
	/** A channel to look for the leader where a node is silent; undefined: nothing is looked for now. */
	knock(address: string): Channel | undefined;
	/** Whether the client goes to an address because a server says so: a token goes nowhere in clear text that is asked to be secret. */
	allows(address: string): boolean;
	warn(message: string): void;
}

export class Router {
	readonly #o: RouterOptions;
	#now: Endpoint;
	/** Of the namespace; 0: not known yet. */
	#partitions = 0;
	/** By partition, where there are several: the address of the leader; empty: not known. */
	#lead: string[] = [];
	/** How often in a row a partition was not found where it was looked for. */
	#missed: number[] = [];
	/** Endpoints of leaders by address, without the one in use. */
	readonly #pool = new Map<string, Endpoint>();
	/** Addresses of the cluster that the client was not given. */
	#members: string[] = [];
	readonly #unled = new Unled();
	/** No other node is known. */
	#alone: boolean;
	#closed = false;

	constructor(o: RouterOptions) {
		this.#o = o;
		this.#now = this.#make(o.addresses[0]!);
		this.#alone = o.addresses.length === 1;
	}

	#make(address: string): Endpoint {
		return new Endpoint(address, () => this.#o.connect(address));
	}

	/** The node in use: for calls about no partition, and for all where there is one partition. */
	get now(): Endpoint {
		return this.#now;
	}

	get partitions(): number {
		return this.#partitions;
	}

	/** All addresses that the client knows, the one in use first. */
	get nodes(): string[] {
		const all = [this.#now.address, ...this.#o.addresses, ...this.#members, ...this.#lead];
		return [...new Set(all)].filter((a) => a !== "");
	}

	/** The endpoint of the leader of a partition, as far as it is known. */
	to(partition: number): Endpoint {
		return partition >= 0 && partition < this.#lead.length ? this.#toward(this.#lookAt(partition)) : this.#now;
	}

	/** The endpoint of a unary call. */
	along(route: Route | undefined): Endpoint {
		if (!route) return this.#now;
		return route.leader ? this.#toward(route.leader) : this.to(route.partition);
	}

	// Where the leader is known to be, else one node after the other: any node names the leader if it knows one.
	#lookAt(partition: number): string {
		if (this.#lead[partition]) return this.#lead[partition];
		const { nodes } = this;
		return nodes[this.#missed[partition]! % nodes.length]!;
	}

	#toward(address: string): Endpoint {
		if (this.#closed || address === this.#now.address) return this.#now;
		let e = this.#pool.get(address);
		if (!e) {
			e = this.#make(address);
			this.#pool.set(address, e);
		}
		return e;
	}

	/** Takes in that a node let a stream of a partition in, and what it says of the others. */
	welcomed(e: Endpoint, partition: number, w: Welcome): void {
		if (w.partitions > this.#partitions) {
			this.#partitions = w.partitions;
			while (w.partitions > 1 && this.#lead.length < w.partitions) {
				this.#lead.push("");
				this.#missed.push(0);
			}
		}
		if (e === this.#now) this.#unled.forget();
		this.directory(e, w.directory, w.nodes);
		if (partition >= this.#lead.length) return;
		this.#lead[partition] = e.address;
		this.#missed[partition] = 0;
	}

	/** Takes in who leads which partition, and who the members are. An empty address is the node that says so. */
	directory(e: Endpoint, list: readonly PartitionAddress[], members: readonly string[]): void {
		for (const p of list) {
			const address = p.address || e.address;
			if (p.partition < this.#lead.length && this.#o.allows(address)) this.#lead[p.partition] = address;
		}
		if (members.length > 0) this.#members = members.filter((a) => this.#o.allows(a)).slice(0, mostMembers);
		this.#sweep();
		if (this.#alone && this.nodes.length > 1) {
			this.#alone = false;
			for (const x of [this.#now, ...this.#pool.values()]) if (x.owed > 0) this.#watch(x);
		}
	}

	/** Leaves endpoints that lead to no leader any more. */
	#sweep(): void {
		for (const [address, e] of this.#pool) {
			if (this.#lead.includes(address) || e.opening.size > 0) continue;
			this.#pool.delete(address);
			e.leave();
		}
	}

	/**
	 * Takes in why a call or stream about a partition has failed at a node; welcomed: after a stream was let in. Returns whether to go on at once:
	 * another node was named. Of several partitions only that one moves.
	 */
	turn(partition: number, asked: Endpoint, f: Fault, welcomed: boolean): boolean {
		if (!welcomed && unreached(f)) this.#leaveUnreached(asked);
		if (this.#partitions <= 1) return this.#follow(asked, f);
		if (partition < 0 || partition >= this.#lead.length) return false;
		if (f.code === "NOT_LEADER" && f.leader && this.#o.allows(f.leader)) {
			this.#lead[partition] = f.leader;
			return f.leader !== asked.address;
		}
		if (f.code !== "NOT_LEADER" && f.code !== "UNAVAILABLE") return false;
		// It is not where it was looked for, and no answer has named another node since.
		const known = this.#lead[partition];
		if (known === "" || known === asked.address) {
			this.#lead[partition] = "";
			this.#missed[partition]!++;
		}
		return false;
	}

	/** The same for a unary call. */
	redirect(route: Route | undefined, asked: Endpoint, f: Fault): boolean {
		if (route && route.partition >= 0) return this.turn(route.partition, asked, f, false);
		if (unreached(f)) this.#leaveUnreached(asked);
		if (!route) return this.#follow(asked, f);
		if (f.reason === "no_leader") this.#leaderless();
		route.leader = "";
		if (f.code !== "NOT_LEADER" || !f.leader || !this.#o.allows(f.leader)) return false;
		route.leader = f.leader;
		return f.leader !== asked.address;
	}

	#follow(asked: Endpoint, f: Fault): boolean {
		if (f.code === "UNAVAILABLE" && f.reason === "no_leader") this.#leaderless();
		if (f.code !== "NOT_LEADER" || !f.leader || f.leader === asked.address || !this.#o.allows(f.leader)) return false;
		this.#go(f.leader);
		return true;
	}

	/** Leaves the node in use for the next one if it was not reached. */
	#leaveUnreached(asked: Endpoint): void {
		if (asked === this.#now) this.#goOn();
	}

	/** Leaves the node in use if it knows of no leader for long. */
	#leaderless(): void {
		if (this.#unled.leave(this.#now.address, this.nodes.length, performance.now())) this.#goOn();
	}

	/** Goes to the next node of those that the client was given, and of the members. */
	#goOn(): void {
		const all = [...new Set([...this.#o.addresses, ...this.#members])];
		this.#go(all[(all.indexOf(this.#now.address) + 1) % all.length]!);
	}

	#go(address: string): void {
		const old = this.#now;
		if (this.#closed || address === old.address) return;
		this.#now = this.#pool.get(address) ?? this.#make(address);
		this.#pool.delete(address);
		if (this.#lead.includes(old.address)) this.#pool.set(old.address, old);
		else old.leave();
	}

	/** Notes that a node owes an answer more. */
	owes(e: Endpoint): void {
		if (e.owed++ > 0) return;
		e.heard = performance.now();
		if (!this.#alone) this.#watch(e);
	}

	#watch(e: Endpoint): void {
		if (e.watched) return;
		e.watched = true;
		setTimeout(() => void this.#listen(e, 0), silentFor).unref();
	}

	/** Looks whether a node is silent; asked is how often in a row the others were asked. */
	async #listen(e: Endpoint, asked: number): Promise<void> {
		if (this.#closed || e.owed <= 0) {
			e.watched = false;
			return;
		}
		const quiet = performance.now() - e.heard;
		let next = silentFor - quiet;
		let times = 0;
		if (quiet >= silentFor) {
			const partition = Math.max(this.#lead.indexOf(e.address), 0);
			const leader = await this.#askOthers(e, partition);
			if (leader && !this.#closed) {
				e.watched = false;
				this.#abandon(e, leader, partition);
				return;
			}
			next = Math.min(askEvery * 2 ** asked, askMost);
			times = asked + 1;
		}
		setTimeout(() => void this.#listen(e, times), next).unref();
	}

	/** Asks the other nodes who leads a partition. Returns an empty text when they name this one, or know of none. */
	async #askOthers(e: Endpoint, partition: number): Promise<string> {
		const others = this.nodes.filter((a) => a !== e.address);
		if (others.length === 0) return "";
		return new Promise((resolve) => {
			let left = others.length;
			for (const address of others) {
				void this.#knock(address, partition).then((leader) => {
					if (leader && leader !== e.address) resolve(leader);
					if (--left === 0) resolve("");
				});
			}
		});
	}

	/** Opens a stream as a session would, and ends it when it is let in. Returns who leads; empty: not known. */
	#knock(address: string, partition: number): Promise<string> {
		return new Promise((resolve) => {
			const channel = this.#o.knock(address);
			if (!channel) return resolve("");
			let over = false;
			const done = (leader: string): void => {
				if (over) return;
				over = true;
				clearTimeout(late);
				resolve(leader);
				stream.cancel();
				channel.close();
			};
			const late = setTimeout(() => done(""), askWithin);
			const stream = channel.stream(streamPath, {
				frame: (f) => done(f.frame?.$case === "welcome" ? address : ""),
				end: (f) => done(f?.leader && this.#o.allows(f.leader) ? f.leader : ""),
				drained: () => {},
			});
			const value = {
				version: 1,
				session: random16(),
				namespace: this.#o.namespace,
				worker: undefined,
				held: [],
				partition,
			};
			stream.write({ frame: { $case: "hello", value } });
		});
	}

	/** Leaves a node where nothing is heard for the leader of a partition. */
	#abandon(e: Endpoint, leader: string, partition: number): void {
		this.#o.warn(`millrace: the node ${e.address} is silent, and ${leader} leads`);
		for (const [p, at] of this.#lead.entries()) if (at === e.address) this.#lead[p] = p === partition ? leader : "";
		if (e === this.#now) this.#go(leader);
		this.#sweep();
		e.cut();
	}

	close(): void {
		this.#closed = true;
		for (const e of [this.#now, ...this.#pool.values()]) e.close();
		this.#pool.clear();
	}
}
