// The three kinds of calls over REST, for clients whose way to the server lets no gRPC through.
//
// A stream is made of requests: each frame with work is one, whose answer becomes its ack; a subscription is a claim that waits for tasks,
// made again and again; and waits for tasks are requests that wait at the server. There are no sessions: what must be repeatable carries an
// id of its own.
import { type Fault, MillraceError } from "../errors.js";
import { type Batch, BatchState } from "../gen/millrace/v1/batch.js";
import type { KVRangeRequest, KVRangeResponse } from "../gen/millrace/v1/kv.js";
import type { CommitRequest, CommitResponse, GetResponse, Task } from "../gen/millrace/v1/task.js";
import { methods, type Route } from "../gen/rest.js";
import { fromDuration } from "../time.js";
import { empty, escaped, type Message, member, type Prepared, prepare, typeOf } from "./restjson.js";
import { RestStream } from "./reststream.js";
import { ended, Poll, shortest } from "./restwaits.js";
import { awayBound, sleep, within } from "./retry.js";
import type { Channel, FrameStream, Method, StreamEvents, UnaryOptions } from "./transport.js";
import {
	type Answer,
	type CallOptions,
	Job,
	long,
	type Place,
	type Request,
	RestError,
	refusedHere,
	type Web,
	work,
} from "./web.js";

/** Most items of a page of a range. */
const page = 1000;

export interface RestOptions {
	web: Web;
	agent: string;
	token: () => string;
	namespace: string;
}

/** Names a field as the message has it: a route of one thing has names of its own for what is a part of a message. */
function enclosed(e: RestError, body: string): RestError {
	const { field } = e.wire;
	if (!field || (body === "config" && ["queue", "if_version", "headers"].includes(field))) return e;
	const name = { "If-Match": "if_version", body }[field] ?? `${body}.${field}`;
	return new RestError({ ...e.wire, field: name }, e.origin);
}

/** Names the range of all keys where the query names none. */
const allKeys = (p: Prepared): [string, string][] =>
	p.query.some(([name]) => ["prefix", "from", "to"].includes(name)) ? [] : [["prefix", ""]];

/** Reads an answer as the response of a route. */
function into(a: Answer, route: Route, type: string): Message {
	let out = empty(type);
	if (a.status !== 204 || !route.empty) {
		if (route.answer) {
			out[camel(route.answer)] = a.read(typeOf(type, route.answer));
			// The status tells what was made from what was there already.
			if ("replayed" in out) out.replayed = a.status === 200;
		} else out = a.read(type);
	}
	if ("at" in out && !Array.isArray(out.at)) out.at = a.at; // a list of places is in the body
	return out;
}

const camel = (name: string): string => name.replace(/_(\w)/g, (_, c: string) => c.toUpperCase());

/** Looks at something again and again, each time waiting at the server for some milliseconds, until it is done. */
async function until<T>(job: Job, look: (wait: number) => Promise<T>, done: (found: T) => boolean): Promise<T> {
	const poll = new Poll();
	for (let attempt = 0; ; ) {
		const began = performance.now();
		try {
			const found = await look(poll.wait);
			if (done(found)) return found;
		} catch (e) {
			if (job.over || !poll.missed(e, performance.now() - began)) throw e;
			continue;
		}
		// Answered by something that does not wait.
		if (performance.now() - began < shortest) await sleep(Math.max(within(awayBound(attempt++)), 50));
	}
}

type Special = (m: Message, o: CallOptions & { job: Job }) => Promise<Message>;

/** REST of one cluster. */
export class RestChannel implements Channel {
	readonly web: Web;
	readonly #o: RestOptions;
	readonly #streams = new Set<RestStream>();
	readonly #special: Record<string, Special> = {
		"TaskService/Claim": (m, o) => this.#claim(m, o),
		"TaskService/Wait": (m, o) => this.#wait(m, o),
		"BatchService/Wait": (m, o) => this.#waitBatch(m, o),
		"KVService/Get": (m, o) => this.#getKey(m, o),
		"KVService/Put": (m, o) => this.#putKey(m, o),
		"KVService/DeleteRange": (m, o) => this.#deleteKeys(m, o),
	};

	constructor(o: RestOptions) {
		this.#o = o;
		this.web = o.web;
	}

	stream(_path: string, events: StreamEvents): FrameStream {
		const s = new RestStream(this, {
			...events,
			end: (fault) => {
				this.#streams.delete(s);
				events.end(fault);
			},
		});
		this.#streams.add(s);
		return s;
	}

	/** Ends the open streams without a loss: each finishes what it has begun. */
	retire(): void {
		for (const s of [...this.#streams]) s.retire();
	}

	/** The request of what was prepared: it says who calls. */
	#request(p: Prepared, more: [string, string][] = []): Request {
		const token = this.#o.token();
		if (/[^\x20-\x7e]/.test(token)) throw refusedHere("token", "must be printable ASCII");
		const headers: Record<string, string> = { "user-agent": this.#o.agent };
		if (token) headers.authorization = `Bearer ${token}`;
		if (p.match) headers["if-match"] = p.match;
		if (p.body !== undefined) headers["content-type"] = "application/json";
		const all: [string, string | Uint8Array][] = [["ns", this.#o.namespace], ...p.query, ...more];
		const query = all.map(([name, value]) => `${escaped(name)}=${escaped(value)}`).join("&");
		return {
			verb: p.verb,
			path: `${p.path}?${query}`,
			body: p.body === undefined ? undefined : Buffer.from(p.body),
			headers,
		};
	}

	/** Makes a call as its route says. It throws RestError. */
	async carry<Res>(name: string, m: object, o: CallOptions = {}): Promise<Res> {
		let route: Route = { verb: "", path: [] };
		try {
			return (await this.web.call(
				() => {
					const p = prepare(name, m as Message);
					route = p.route;
					return this.#request(p);
				},
				(a) => into(a, route, methods[name]!.response),
				o,
			)) as Res;
		} catch (e) {
			if (e instanceof RestError && (route.body === "config" || route.body === "task")) throw enclosed(e, route.body);
			throw e;
		}
	}

	/** Awaits an answer as long as the caller has time. It throws MillraceError. */
	#bounded<T>(o: UnaryOptions, f: (job: Job) => Promise<T>): Promise<T> {
		const job = new Job();
		return new Promise<T>((resolve, reject) => {
			const end = (message: string, cause?: unknown): void => {
				const fault: Fault = { code: "DEADLINE_EXCEEDED", message, outcome: job.left ? "unknown" : "refused" };
				if (cause !== undefined) fault.cause = cause;
				job.cancel();
				reject(new MillraceError(fault));
			};
			const abort = (): void => end("the caller gave up", o.signal!.reason);
			if (o.signal?.aborted) return abort();
			const late =
				o.timeout === undefined
					? undefined
					: setTimeout(() => end(`no answer within ${o.timeout} ms`), Math.min(o.timeout, 2 ** 31 - 1));
			o.signal?.addEventListener("abort", abort);
			f(job)
				.then(resolve, (e) => reject(e instanceof RestError ? new MillraceError(e.fault) : e))
				.finally(() => {
					clearTimeout(late);
					o.signal?.removeEventListener("abort", abort);
				});
		});
	}

	unary<Req, Res>(method: Method<Req, Res>, request: Req, o: UnaryOptions): Promise<Res> {
		const name = method.path.replace("/millrace.v1.", "");
		return this.#bounded(o, (job) => {
			const special = this.#special[name];
			const m = request as Message;
			return (special ? special(m, { job }) : this.carry(name, m, { job })) as Promise<Res>;
		});
	}

	async *read<Req, Res>(method: Method<Req, Res>, request: Req, o: UnaryOptions): AsyncGenerator<Res> {
		const name = method.path.replace("/millrace.v1.", "");
		if (name !== "KVService/Range") throw new MillraceError(refusedHere("", `${name} has no route over REST`).fault);
		const late = o.timeout === undefined ? undefined : performance.now() + o.timeout;
		const m = request as KVRangeRequest;
		let left = Number(m.limit);
		for (let cursor = ""; ; ) {
			const timeout = late === undefined ? undefined : Math.max(late - performance.now(), 1);
			const got = await this.#bounded({ ...o, timeout }, (job) => this.#page(m, left, cursor, job));
			yield got.page as Res;
			cursor = got.cursor;
			const n = got.page.items.length;
			// The last page is the one without a cursor, or the one that fills the limit.
			if (!cursor || (left > 0 && n >= left)) return;
			if (left > 0) left -= n;
		}
	}

	/** Reads a page of a range, as of an instant of its own. */
	#page(m: KVRangeRequest, left: number, cursor: string, job: Job): Promise<{ page: KVRangeResponse; cursor: string }> {
		return this.web.call(
			() => {
				const p = prepare("KVService/Range", { ...m, limit: 0n });
				const more: [string, string][] = [...allKeys(p), ["limit", String(Math.min(page, left || page))]];
				if (cursor) more.push(["cursor", cursor]);
				return this.#request(p, more);
			},
			(a) => ({
				page: into(a, { verb: "", path: [] }, "KVRangeResponse") as unknown as KVRangeResponse,
				cursor: JSON.parse(member(a.text, "cursor") ?? '""') as string,
			}),
			{ job },
		);
	}

	close(): void {
		for (const s of [...this.#streams]) s.cancel();
		this.web.close();
	}

	// The methods that need more than their route.

	#claim(m: Message, o: CallOptions): Promise<Message> {
		const wait = m.wait ? Math.max(fromDuration(m.wait as never), 0) : 0;
		return this.carry("TaskService/Claim", m, { ...o, kind: wait > 0 ? long : work, wait });
	}

	/** Waits for the end of a task, for some milliseconds at most: what is known of it, and the place in the log. */
	look(id: string, wait: number, job: Job): Promise<{ task: Task; at: Place }> {
		return this.web.call(
			() => this.#request(prepare("TaskService/Wait", { id }), [["wait", `${Math.round(wait)}ms`]]),
			(a) => ({ task: a.read("Task") as unknown as Task, at: a.at }),
			{ kind: wait > 0 ? long : work, wait, job },
		);
	}

	/** Reads a task that has ended: what a wait answers lacks parts of it. One that was removed at its end is as the wait knew it. */
	async whole(id: string, task: Task, at: Place, job?: Job): Promise<Task> {
		try {
			const request = { ...empty("GetRequest"), id, minIndex: at.index };
			return (await this.carry<GetResponse>("TaskService/Get", request, { job })).task!;
		} catch (e) {
			if (!(e instanceof RestError) || e.origin !== "server" || e.wire.code !== "NOT_FOUND") throw e;
		}
		// The wait says whether there is a result by having one.
		return { ...task, id, hasResult: task.result.length > 0 };
	}

	async #wait(m: Message, o: { job: Job }): Promise<Message> {
		const id = m.id as string;
		const { task, at } = await until(
			o.job,
			(wait) => this.look(id, wait, o.job),
			(found) => ended(found.task),
		);
		return { ...empty("WaitResponse"), task: await this.whole(id, task, at, o.job), at };
	}

	async #waitBatch(m: Message, { job }: { job: Job }): Promise<Message> {
		const look = (wait: number): Promise<{ batch: Batch; at: Place }> =>
			this.web.call(
				() => this.#request(prepare("BatchService/Wait", m), [["wait", `${Math.round(wait)}ms`]]),
				(a) => ({ batch: a.read("Batch") as unknown as Batch, at: a.at }),
				{ kind: long, wait, job },
			);
		return until(job, look, (found) => found.batch.state === BatchState.FINISHED);
	}

	/** Takes the value as it stands, and its revision and writer from headers. A key that is absent is an answer. */
	async #getKey(m: Message, o: CallOptions): Promise<Message> {
		try {
			return await this.web.call(
				() => this.#request(prepare("KVService/Get", m)),
				(a) => {
					const rev = String(a.headers["millrace-rev"] ?? "");
					if (!/^\d{1,20}$/.test(rev)) throw a.between();
					let writer: { task: string; token: bigint } | undefined;
					if (a.headers["millrace-writer"] !== undefined) {
						const [, task, token] = /^(\S+) (\d{1,20})$/.exec(String(a.headers["millrace-writer"])) ?? [];
						if (!task || !token) throw a.between();
						writer = { task, token: BigInt(token) };
					}
					return { ...empty("KVGetResponse"), value: a.body, rev: BigInt(rev), found: true, at: a.at, writer };
				},
				o,
			);
		} catch (e) {
			// A proxy that does not know the path says so too, in a form of its own: that is an error.
			if (e instanceof RestError && e.origin === "server" && e.wire.code === "NOT_FOUND") return empty("KVGetResponse");
			throw e;
		}
	}

	/** Puts by a commit: a path has no room for every key. */
	async #putKey(m: Message, o: CallOptions): Promise<Message> {
		const commit = {
			...(empty("CommitRequest") as unknown as CommitRequest),
			requestId: m.requestId as Buffer,
			ops: [{ op: { $case: "kvPut", value: m.put as never } }],
		};
		const c = await this.carry<CommitResponse>("CommitService/Commit", commit, o);
		const { rev, prev, existed } = c.results[0]!;
		return { rev, prev, existed, at: c.at };
	}

	/** Deletes a range; all keys are meant where no bound is given, and REST wants that said. */
	#deleteKeys(m: Message, o: CallOptions): Promise<Message> {
		return this.web.call(
			() => {
				const p = prepare("KVService/DeleteRange", m);
				return this.#request(p, allKeys(p));
			},
			(a) => into(a, { verb: "", path: [] }, "KVDeleteRangeResponse"),
			o,
		);
	}
}
