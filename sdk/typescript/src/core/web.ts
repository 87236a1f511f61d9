// Requests of HTTP: how many are under way, the hosts where they go, and the errors that they end with.
import * as http from "node:http";
import * as https from "node:https";
import { type Code, type Fault, faultOf } from "../errors.js";
import type { StatusResponse } from "../gen/millrace/v1/stream.js";
import type { Error as WireError } from "../gen/millrace/v1/task.js";
import type { TlsOptions } from "./connection.js";
import { BadAnswer, BadRequest, empty, member, read } from "./restjson.js";
import { Unled } from "./retry.js";

/** Renewals; all other requests; those that wait at the server. */
export const urgent = 0;
export const work = 1;
export const long = 2;
export type Kind = typeof urgent | typeof work | typeof long;

const most = 16;
/** Of these, so that renewals and calls always find room. */
const mostLong = 10;
/** Milliseconds for an answer: servers end a call after 30 s. */
const callWithin = 40_000;
/** The same for the look whether a server is there: a call waits for it. */
const probeWithin = 3000;
const connectWithin = 10_000;
/** For how long a connection is kept without a request: servers and proxies close theirs after 60 s. */
const idleFor = 30_000;
/** Several large payloads as base64. */
const answerBytes = 32 << 20;
/** One leads to the leader; more are of proxies, or of a leader that has just changed. */
const redirects = 3;

const codes: Record<Code, true> = {
	INVALID_ARGUMENT: true,
	TOO_LARGE: true,
	UNAUTHENTICATED: true,
	PERMISSION_DENIED: true,
	NOT_FOUND: true,
	ALREADY_EXISTS: true,
	LEASE_LOST: true,
	WRONG_STATE: true,
	PRECONDITION_FAILED: true,
	WRONG_PARTITION: true,
	RATE_LIMITED: true,
	RESOURCE_EXHAUSTED: true,
	NOT_LEADER: true,
	UNAVAILABLE: true,
	DEADLINE_EXCEEDED: true,
	INTERNAL: true,
	DATA_LOSS: true,
};

/** Statuses of what looked at a request and did not pass it on, in codes of the contract. */
const refusals: Partial<Record<number, Code>> = {
	401: "UNAUTHENTICATED",
	407: "UNAUTHENTICATED",
	403: "PERMISSION_DENIED",
	429: "RATE_LIMITED",
	413: "TOO_LARGE",
	414: "TOO_LARGE",
	431: "TOO_LARGE",
	404: "INVALID_ARGUMENT",
	405: "INVALID_ARGUMENT",
};

/** Who ended a request: Millrace, something on the way, or no answer came. */
type Origin = "server" | "between" | "none";

/** The end of a request that did not succeed. */
export class RestError extends Error {
	constructor(
		readonly wire: WireError,
		readonly origin: Origin,
	) {
		super(wire.message);
	}

	get fault(): Fault {
		return faultOf(this.wire);
	}

	/** The request may have been applied. */
	get left(): boolean {
		return this.wire.outcome === 1;
	}
}

/** Makes an error of the contract. */
function wireError(fields: Partial<WireError>): WireError {
	return { ...(empty("Error") as unknown as WireError), ...fields };
}

/** The error of a request without an answer. One that never left changed nothing. */
export function unanswered(host: string, left: boolean, why: string): RestError {
	return new RestError(
		wireError({ code: "UNAVAILABLE", message: `REST at ${host}: ${why}`, outcome: left ? 1 : 0 }),
		"none",
	);
}

/** The error of a request that no server would take. */
export function refusedHere(field: string, message: string): RestError {
	return new RestError(
		wireError({ code: "INVALID_ARGUMENT", field, message: field ? `${field}: ${message}` : message }),
		"server",
	);
}

/** One request, ready to be sent. */
export interface Request {
	verb: string;
	/** Escaped, with the query. */
	path: string;
	body: Buffer | undefined;
	headers: Record<string, string>;
}

/** The place of an answer in the log. */
export interface Place {
	partition: number;
	epoch: number;
	index: bigint;
	stamp: undefined;
}

/** The answer to a request. */
export class Answer {
	constructor(
		readonly status: number,
		readonly headers: http.IncomingHttpHeaders,
		readonly body: Buffer,
	) {}

	get ok(): boolean {
		return this.status >= 200 && this.status < 300;
	}

	get text(): string {
		return this.body.toString();
	}

	get #json(): boolean {
		return (this.headers["content-type"] ?? "").split(";", 1)[0]!.trim().toLowerCase() === "application/json";
	}

	/** Reads the object of the answer. What is not such an object was not written by Millrace. */
	read(type: string): Record<string, unknown> {
		try {
			if (!this.#json) throw new BadAnswer("it is not JSON");
			return read(this.text, type);
		} catch (e) {
			if (e instanceof BadAnswer) throw this.between();
			throw e;
		}
	}

	/** Where the answer stands in the log: partition/epoch/index. What is missing is zero. */
	get at(): Place {
		const m = /^(\d{1,9})\/(\d{1,9})\/(\d{1,19})$/.exec(String(this.headers["millrace-index"] ?? ""));
		const [partition, epoch, index] = m ? m.slice(1) : ["0", "0", "0"];
		return { partition: Number(partition), epoch: Number(epoch), index: BigInt(index!), stamp: undefined };
	}

	/** The error of an answer that is not a success. */
	refusal(): RestError {
		const told = this.#json ? member(this.text, "error") : undefined;
		if (told === undefined) return this.between();
		try {
			const e = read(told, "Error") as unknown as WireError;
			// An object with an error of some other form is not Millrace's.
			if (!Object.hasOwn(codes, e.code)) return this.between();
			e.retryAfter ??= this.#retryAfter();
			return new RestError(e, "server");
		} catch (e) {
			if (e instanceof BadAnswer) return this.between();
			throw e;
		}
	}

	/** The error of an answer that Millrace did not write: of a proxy, or of another server. */
	between(): RestError {
		const code = refusals[this.status];
		const message = `something between here and the server answered ${this.status} ${http.STATUS_CODES[this.status] ?? ""}`;
		return new RestError(
			wireError({
				code: code ?? "UNAVAILABLE",
				message: message.trimEnd(),
				outcome: code ? 0 : 1,
				retryAfter: this.#retryAfter(),
			}),
			"between",
		);
	}

	/** How long the header asks to wait: seconds, or a date. */
	#retryAfter(): WireError["retryAfter"] {
		const text = (this.headers["retry-after"] ?? "").trim();
		if (/^\d{1,9}$/.test(text)) return { seconds: BigInt(text), nanos: 0 };
		const ms = text === "" ? Number.NaN : Math.max(Date.parse(text) - Date.now(), 0);
		return Number.isNaN(ms)
			? undefined
			: { seconds: BigInt(Math.floor(ms / 1000)), nanos: Math.floor(ms % 1000) * 1_000_000 };
	}
}

/** A request that its caller may end. */
export class Job {
	over = false;
	/** Something of it may have been applied. */
	left = false;
	#end: (() => void) | undefined;

	/** Has f end what is under way now. */
	hold(f: (() => void) | undefined): void {
		this.#end = f;
	}

	/** Ends the request. What had left may still be applied. */
	cancel(): void {
		if (this.over) return;
		this.over = true;
		this.#end?.();
	}
}

/** The requests of this process: how many there are, and which one is next. */
class Room {
	readonly #queues: [Set<() => void>, Set<() => void>, Set<() => void>] = [new Set(), new Set(), new Set()];
	#all = 0;
	#long = 0;

	/** A request may wait at the server for long without keeping others from their turn. */
	get roomy(): boolean {
		return this.#long < mostLong / 2 && this.#queues[long].size === 0;
	}

	/** Resolves when the request may begin, or when its job is over, to false. */
	enter(kind: Kind, job: Job): Promise<boolean> {
		return new Promise((resolve) => {
			const begin = (): void => {
				job.hold(undefined);
				resolve(true);
			};
			this.#queues[kind].add(begin);
			job.hold(() => {
				if (this.#queues[kind].delete(begin)) resolve(false);
			});
			this.#next();
		});
	}

	leave(kind: Kind): void {
		this.#all--;
		if (kind === long) this.#long--;
		this.#next();
	}

	#next(): void {
		for (const kind of [urgent, work, long] as const) {
			for (const begin of this.#queues[kind]) {
				if (this.#all >= most || (kind === long && this.#long >= mostLong)) break;
				this.#queues[kind].delete(begin);
				this.#all++;
				if (kind === long) this.#long++;
				begin();
			}
		}
	}
}

export const room = new Room();

export interface WebOptions {
	/** host:port of each place where REST of the cluster may be. */
	hosts: readonly string[];
	/** Whether a host is spoken to by TLS. */
	secure(host: string): boolean;
	tls: TlsOptions | undefined;
}

export interface CallOptions {
	kind?: Kind;
	/** Milliseconds that the request asks the server to wait. */
	wait?: number;
	job?: Job | undefined;
}

/** The hosts where REST of one cluster may be, and the connections to them. */
export class Web {
	/** The one that answered last; empty before one did. */
	host = "";
	readonly #o: WebOptions;
	readonly #plain = new http.Agent({ keepAlive: true, timeout: idleFor });
	readonly #tls: https.Agent;
	readonly #unled = new Unled();
	#probing: Promise<void> | undefined;

	constructor(o: WebOptions) {
		this.#o = o;
		const { ca, cert, key, serverName } = o.tls ?? {};
		this.#tls = new https.Agent({
			keepAlive: true,
			timeout: idleFor,
			...(ca && { ca }),
			...(cert && { cert }),
			...(key && { key }),
			...(serverName && { servername: serverName }),
		});
	}

	/** Where REST answers, as a URL; the first host while none has. */
	get url(): string {
		const host = this.host || this.#o.hosts[0]!;
		return `${this.#o.secure(host) ? "https" : "http"}://${host}`;
	}

	/** Sends a request, and returns what take makes of its answer. It throws RestError. */
	async call<T>(make: () => Request, take: (a: Answer) => T, o: CallOptions = {}): Promise<T> {
		// The first call, and the first after a host was lost, looks for one that answers.
		if (!this.host) await this.probe();
		const { host } = this;
		const job = o.job ?? new Job();
		try {
			const q = make();
			const a = await this.#entered(host, q, o.kind ?? work, job, callWithin + (o.wait ?? 0));
			if (!a.ok) throw a.refusal();
			return take(a);
		} catch (e) {
			if (e instanceof BadRequest) throw refusedHere(e.field, e.message);
			if (!(e instanceof RestError)) throw e;
			// Another host may serve now.
			if (e.origin === "none" && !e.left && this.host === host && !job.over) this.host = "";
			else if (e.wire.code === "UNAVAILABLE" && e.wire.reason === "no_leader") this.#leaderless(host);
			throw e;
		}
	}

	/** A host that knows of no leader is left for the next one after a while. */
	#leaderless(host: string): void {
		const { hosts } = this.#o;
		if (host !== this.host || !this.#unled.leave(host, hosts.length, performance.now())) return;
		this.host = hosts[(hosts.indexOf(host) + 1) % hosts.length]!;
	}

	async #entered(host: string, q: Request, kind: Kind, job: Job, within: number): Promise<Answer> {
		if (job.over || !(await room.enter(kind, job))) throw unanswered(host, false, "the caller has left");
		try {
			return await this.#send(host, q, job, within);
		} finally {
			room.leave(kind);
		}
	}

	/** Sends a request to a host and where it redirects. */
	async #send(host: string, q: Request, job: Job, within: number): Promise<Answer> {
		const secure = this.#o.secure(host);
		let at = host;
		let { path } = q;
		for (let hop = 0; ; hop++) {
			const answer = await this.#once(at, secure, { ...q, path }, job, within);
			const to = this.#redirect(answer, at, secure);
			if (!to || hop === redirects) return answer;
			at = to.host;
			path = to.path;
		}
	}

	/** Where an answer sends the request, if that is not a step down to clear text. */
	#redirect(a: Answer, host: string, secure: boolean): { host: string; path: string } | undefined {
		const { location } = a.headers;
		if ((a.status !== 307 && a.status !== 308) || !location) return undefined;
		const scheme = secure ? "https:" : "http:";
		let to: URL;
		try {
			to = new URL(location, `${scheme}//${host}/`);
		} catch {
			return undefined;
		}
		const at = `${to.hostname}:${to.port || (secure ? 443 : 80)}`;
		// Clear text leaves this machine only where it was asked for.
		if (to.protocol !== scheme || (!secure && this.#o.secure(at))) return undefined;
		return { host: at, path: to.pathname + to.search };
	}

	#once(host: string, secure: boolean, q: Request, job: Job, within: number): Promise<Answer> {
		return new Promise((resolve, reject) => {
			let left = false;
			let req: http.ClientRequest;
			const done = (): void => {
				clearTimeout(late);
				clearTimeout(unmade);
				job.hold(undefined);
			};
			const fail = (why: string): void => {
				done();
				reject(unanswered(host, left, why));
			};
			const end = (why: string): void => {
				fail(why);
				req?.destroy();
			};
			const late = setTimeout(() => end("no answer came in time"), within);
			const unmade = setTimeout(() => end(`no connection within ${connectWithin} ms`), connectWithin);
			if (job.over) return fail("the caller has left");
			const { hostname, port } = new URL(`http://${host}`);
			try {
				req = (secure ? https : http).request({
					host: hostname.replace(/^\[(.*)\]$/, "$1"),
					port: Number(port || 80),
					method: q.verb,
					path: q.path,
					headers: q.body ? { ...q.headers, "content-length": q.body.length } : q.headers,
					agent: secure ? this.#tls : this.#plain,
				});
			} catch (e) {
				return fail((e as Error).message);
			}
			job.hold(() => end("the caller has left"));
			req.once("socket", (socket) => {
				const made = (): void => {
					// From here on the server may act on the request, whether or not its body or the answer is lost.
					left = job.left = true;
					clearTimeout(unmade);
				};
				if (req.reusedSocket) made();
				else socket.once(secure ? "secureConnect" : "connect", made);
			});
			req.on("error", (e) => fail(e.message || (e as NodeJS.ErrnoException).code || "the connection ended"));
			req.on("response", (r) => {
				const parts: Buffer[] = [];
				let bytes = 0;
				r.on("data", (d: Buffer) => {
					parts.push(d);
					bytes += d.length;
					if (bytes > answerBytes) end(`the answer is longer than ${answerBytes} bytes`);
				});
				r.on("error", (e) => fail(e.message));
				r.on("end", () => {
					done();
					resolve(new Answer(r.statusCode ?? 0, r.headers, Buffer.concat(parts)));
				});
			});
			req.end(q.body);
		});
	}

	/** Looks for Millrace at the hosts, in order, and keeps the first one where it answers, be it with a refusal. */
	probe(): Promise<void> {
		this.#probing ??= this.#probe().finally(() => {
			this.#probing = undefined;
		});
		return this.#probing;
	}

	async #probe(): Promise<void> {
		let first: RestError | undefined;
		for (const host of this.#o.hosts) {
			try {
				await this.#answers(host);
				this.host = host;
				return;
			} catch (e) {
				first ??= e as RestError;
			}
		}
		// It was only asked whether it is there.
		throw new RestError({ ...first!.wire, outcome: 0 }, first!.origin);
	}

	/** Returns if Millrace answers at a host. A refusal counts too: calls then get it as their own error. */
	async #answers(host: string): Promise<void> {
		const job = new Job();
		const late = setTimeout(() => job.cancel(), probeWithin);
		try {
			const q: Request = { verb: "GET", path: "/v1/status", body: undefined, headers: {} };
			const a = await this.#entered(host, q, urgent, job, probeWithin);
			if (!a.ok) {
				const e = a.refusal();
				if (e.origin !== "server") throw e;
			} else if (!(a.read("StatusResponse") as unknown as StatusResponse).durability) throw a.between();
		} finally {
			clearTimeout(late);
		}
	}

	/** Closes the connections that are kept. */
	close(): void {
		this.#plain.destroy();
		this.#tls.destroy();
	}
}
