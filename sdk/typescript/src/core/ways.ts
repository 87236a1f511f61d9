// The choice between gRPC and REST: REST is taken where it alone comes through, and gRPC is looked for again.
import { type Fault, MillraceError } from "../errors.js";
import { ClientFrame } from "../gen/millrace/v1/stream.js";
import type { Logger } from "./hub.js";
import { random16 } from "./place.js";
import type { RestChannel } from "./rest.js";
import { sleep } from "./retry.js";
import type { Channel, FrameStream, Method, StreamEvents, UnaryOptions } from "./transport.js";

/** How a client speaks to its servers: by either way, by gRPC alone, or by REST alone. */
export type Transport = "auto" | "stream" | "rest";

/** Milliseconds that gRPC may fail that worked before: a restart or a short cut must not change the way. */
const grace = 5000;
/** Milliseconds between two looks for REST. */
const askAgain = 500;
/** Milliseconds between two looks for gRPC, which grow from one to the other. */
const lookLeast = 1000;
const lookMost = 60_000;
/** Milliseconds that a stream may take to be let in when gRPC is looked for. */
const lookWithin = 15_000;

/** Where REST may be: the places that are named, or each address itself and the port of REST next to gRPC's own. */
export function restHosts(named: readonly string[] | undefined, addresses: readonly string[]): string[] {
	return [...(named ?? addresses.flatMap((a) => [a, ...(a.endsWith(":7081") ? [a.replace(/7081$/, "7080")] : [])]))];
}

export interface WaysOptions {
	mode: Transport;
	/** All addresses that are known for gRPC. */
	addresses(): readonly string[];
	grpc(address: string): Channel;
	rest(): RestChannel;
	logger: Logger;
}

/** What a call ends with that is to be made again over REST. */
const goesOver = (fault: Fault): Fault => ({
	code: "UNAVAILABLE",
	message: `the client goes over to REST: ${fault.message ?? fault.code}`,
	outcome: fault.outcome,
});

/** The way that the calls of one client take. */
export class Ways {
	readonly #o: WaysOptions;
	/** In use; undefined: gRPC is. */
	rest: RestChannel | undefined;
	/** Kept while gRPC is in use. */
	#made: RestChannel | undefined;
	/** A server answered over gRPC. */
	#proved = false;
	/** Since when none does, by performance.now; undefined: one does. */
	#failing: number | undefined;
	/** When REST was looked for last, and was not there. */
	#missed = Number.NEGATIVE_INFINITY;
	#turning: Promise<boolean> | undefined;
	readonly #closed = new AbortController();
	readonly #heard = new Set<() => void>();

	constructor(o: WaysOptions) {
		this.#o = o;
		if (o.mode === "rest") this.rest = this.#make();
	}

	#make(): RestChannel {
		this.#made ??= this.#o.rest();
		return this.#made;
	}

	/** A channel to a node, by the way in use at each call. */
	connect(address: string): Channel {
		return new Way(this, this.#o.grpc(address));
	}

	/** Has f hear when the way changes, until the function that is returned is called. */
	onTurn(f: () => void): () => void {
		this.#heard.add(f);
		return () => this.#heard.delete(f);
	}

	/** Takes in that a server answered over gRPC. */
	answered(): void {
		this.#proved = true;
		this.#failing = undefined;
	}

	/** Takes in how a call over gRPC has ended, or a stream that was not let in. Returns whether the same is to be tried over REST at once. */
	async turned(fault: Fault, since = performance.now()): Promise<boolean> {
		if (this.#o.mode !== "auto" || this.#closed.signal.aborted) return false;
		if (this.rest) return !fault.told;
		if (fault.told) {
			this.answered();
			return false;
		}
		const now = performance.now();
		this.#failing ??= since;
		// Where there are several nodes, the others may be reached.
		const spared = this.#proved || this.#o.addresses().length > 1;
		if (spared && !fault.foreign && now - this.#failing < grace) return false;
		// What one call finds out holds for all that wait here.
		this.#turning ??= this.#turn().finally(() => {
			this.#turning = undefined;
		});
		return this.#turning;
	}

	async #turn(): Promise<boolean> {
		if (performance.now() - this.#missed < askAgain) return false;
		const rest = this.#make();
		try {
			await rest.web.probe();
		} catch {
			this.#missed = performance.now();
			return false;
		}
		if (this.#closed.signal.aborted) return false;
		this.rest = rest;
		this.#o.logger.warn(
			`millrace: gRPC does not come through at ${this.#o.addresses()[0]}; the client goes over to REST at ${rest.web.url}`,
		);
		for (const f of this.#heard) f();
		void this.#look();
		return true;
	}

	/** Looks for gRPC at all addresses in turn, and goes back to it. */
	async #look(): Promise<void> {
		const { signal } = this.#closed;
		for (let wait = lookLeast; !signal.aborted; wait = Math.min(2 * wait, lookMost)) {
			await sleep(wait / 2 + (Math.random() * wait) / 2, signal, false);
			for (const address of this.#o.addresses()) {
				if (signal.aborted) return;
				if (await this.#comesThrough(address)) {
					this.#goBack(address);
					return;
				}
			}
		}
	}

	/** Opens a stream as a session would, and closes it: a welcome, or the server's own refusal, tells that it is there. */
	#comesThrough(address: string): Promise<boolean> {
		const channel = this.#o.grpc(address);
		return new Promise<boolean>((resolve) => {
			const late = setTimeout(() => resolve(false), lookWithin);
			late.unref();
			this.#closed.signal.addEventListener("abort", () => resolve(false), { once: true });
			const stream = channel.stream("/millrace.v1.QueueStream/Open", {
				frame: () => resolve(true),
				drained: () => {},
				end: (fault) => resolve(fault?.told === true),
			});
			const value = { version: 1, session: random16() };
			stream.write(ClientFrame.fromPartial({ frame: { $case: "hello", value } } as never));
		}).finally(() => channel.close());
	}

	#goBack(address: string): void {
		if (this.#closed.signal.aborted) return;
		const { rest } = this;
		this.rest = undefined;
		this.answered();
		this.#o.logger.warn(`millrace: gRPC comes through at ${address}; the client goes back to its streams`);
		for (const f of this.#heard) f();
		rest?.retire();
	}

	/** Ends the look for gRPC, and what REST has open. */
	close(): void {
		this.#closed.abort();
		this.#made?.close();
	}
}

/** One node, by the way in use. */
class Way implements Channel {
	constructor(
		readonly ways: Ways,
		readonly grpc: Channel,
	) {}

	stream(path: string, events: StreamEvents): FrameStream {
		const { ways } = this;
		if (ways.rest) return ways.rest.stream(path, events);
		const began = performance.now();
		let came = false;
		let cancelled = false;
		const stream = this.grpc.stream(path, {
			...events,
			frame: (f) => {
				if (!came) ways.answered();
				came = true;
				events.frame(f);
			},
			end: (fault) => {
				if (!fault || came || cancelled) events.end(fault);
				else void ways.turned(fault).then((turned) => events.end(turned ? goesOver(fault) : fault));
			},
		});
		return {
			write: (f) => stream.write(f),
			get full() {
				return stream.full;
			},
			end: () => stream.end(),
			cancel: () => {
				cancelled = true;
				// Something took the stream, and let nothing of it through.
				const stuck: Fault = { code: "UNAVAILABLE", message: "no stream was let in", outcome: "unknown" };
				if (!came && performance.now() - began >= grace) void ways.turned(stuck, began);
				stream.cancel();
			},
		};
	}

	async unary<Req, Res>(method: Method<Req, Res>, request: Req, o: UnaryOptions): Promise<Res> {
		const { ways } = this;
		let { rest } = ways;
		if (rest) return rest.unary(method, request, o);
		const late = o.timeout === undefined ? undefined : performance.now() + o.timeout;
		let fault: Fault | undefined;
		try {
			const answer = await this.grpc.unary(method, request, { ...o, failed: (f) => (fault = f) });
			ways.answered();
			return answer;
		} catch (e) {
			if (!fault || !(await this.#turned(fault, o, late))) throw e;
			// What may have been applied is repeated by those who know how.
			rest = ways.rest;
			if (fault.outcome === "unknown" || !rest) throw new MillraceError(goesOver(fault));
		}
		return rest.unary(method, request, { ...o, timeout: left(late) });
	}

	/** Whether a call that failed is to be made over REST, as far as there is time to find out. */
	async #turned(fault: Fault, o: UnaryOptions, late: number | undefined): Promise<boolean> {
		// This side has ended it.
		if (fault.code === "DEADLINE_EXCEEDED" && !fault.told && !fault.foreign) return false;
		const most = left(late);
		const turned = this.ways.turned(fault);
		if (most === undefined) return turned;
		const enough = new AbortController();
		const end = (): void => enough.abort();
		o.signal?.addEventListener("abort", end);
		try {
			return await Promise.race([turned, sleep(most, enough.signal).then(() => false)]);
		} finally {
			end();
			o.signal?.removeEventListener("abort", end);
		}
	}

	async *read<Req, Res>(method: Method<Req, Res>, request: Req, o: UnaryOptions): AsyncGenerator<Res> {
		const { ways } = this;
		const late = o.timeout === undefined ? undefined : performance.now() + o.timeout;
		if (!ways.rest) {
			let fault: Fault | undefined;
			let came = false;
			try {
				for await (const m of this.grpc.read(method, request, { ...o, failed: (f) => (fault = f) })) {
					if (!came) ways.answered();
					came = true;
					yield m;
				}
				return;
			} catch (e) {
				if (came || !fault || !(await this.#turned(fault, o, late))) throw e;
				if (!ways.rest) throw new MillraceError(goesOver(fault));
			}
		}
		yield* ways.rest!.read(method, request, { ...o, timeout: left(late) });
	}

	close(): void {
		this.grpc.close();
	}
}

const left = (late: number | undefined): number | undefined =>
	late === undefined ? undefined : Math.max(late - performance.now(), 1);
