// How a server is reached. The rest of the package knows this interface and nothing of gRPC or REST.
import * as http2 from "node:http2";
import { type Fault, MillraceError } from "../errors.js";
import { ClientFrame, ServerFrame } from "../gen/millrace/v1/stream.js";
import { Connection, type ConnectionOptions } from "./connection.js";
import { type Codec, faultOfHttp, faultOfStatus, framed, Messages, maxMessage, timeoutText } from "./grpc.js";

export type { TlsOptions } from "./connection.js";
export type { Codec } from "./grpc.js";

export const version = "0.1.0";

/** A unary method. */
export interface Method<Req, Res> {
	path: string;
	request: Codec<Req>;
	response: Codec<Res>;
}

/** One stream of frames. */
export interface FrameStream {
	write(frame: ClientFrame): void;
	/** Much waits to be sent: what need not be written now is better written after drained. */
	readonly full: boolean;
	/** Half-closes: nothing more is sent. */
	end(): void;
	cancel(): void;
}

export interface StreamEvents {
	frame(frame: ServerFrame): void;
	/** The stream was full, and has sent all. */
	drained(): void;
	/** The stream is over; undefined: without an error. */
	end(fault: Fault | undefined): void;
}

export interface Channel {
	stream(path: string, events: StreamEvents): FrameStream;
	unary<Req, Res>(method: Method<Req, Res>, request: Req, options: UnaryOptions): Promise<Res>;
	/** A call that is answered by a stream of messages. */
	read<Req, Res>(method: Method<Req, Res>, request: Req, options: UnaryOptions): AsyncIterable<Res>;
	close(): void;
}

export interface UnaryOptions {
	/** Milliseconds from now on; undefined: no bound. */
	timeout?: number | undefined;
	signal?: AbortSignal | undefined;
	/** Hears of the fault of the call, with what its error does not have. */
	failed?: (fault: Fault) => void;
}

export interface ChannelOptions extends ConnectionOptions {
	token: () => string;
	namespace: string;
}

/** Bytes that wait in a stream from which on it is full. */
const fullAt = 256 << 10;
/** Messages of a call that wait for their reader from which on the server is held up. */
const unreadAt = 64;

/** Milliseconds by which a server may find earlier than this side that the time of a call is over: both round. */
const clocksDiffer = 10;

interface CallEvents {
	message(bytes: Buffer): void;
	end(fault: Fault | undefined): void;
	drained?(): void;
}

/** One call, of any kind, from its headers to its status. */
class Call {
	readonly #connection: Connection;
	readonly #address: string;
	readonly #events: CallEvents;
	readonly stream: http2.ClientHttp2Stream;
	#status: http2.IncomingHttpHeaders | undefined;
	#over = false;
	#timer: NodeJS.Timeout | undefined;
	/** How many milliseconds the call may take, and when that is over by the clock of performance; unset: it has no bound. */
	#late: number | undefined;
	#until = Infinity;
	#signal: AbortSignal | undefined;

	constructor(
		connection: Connection,
		address: string,
		headers: http2.OutgoingHttpHeaders,
		o: UnaryOptions,
		events: CallEvents,
	) {
		this.#connection = connection;
		this.#address = address;
		this.#events = events;
		if (o.timeout !== undefined) headers["grpc-timeout"] = timeoutText(o.timeout);
		const stream = connection.call(headers);
		this.stream = stream;
		const messages = new Messages((bytes) => {
			if (!this.#over) events.message(bytes);
		});
		stream.on("response", (h) => {
			if (h["grpc-status"] !== undefined) this.#status = h;
			const fault = faultOfHttp(h);
			if (fault) this.fail(fault);
		});
		stream.on("trailers", (h) => {
			this.#status = h;
		});
		stream.on("data", (chunk: Buffer) => {
			if (this.#over) return;
			const wrong = messages.push(chunk);
			if (wrong) this.fail({ code: "INTERNAL", message: wrong, outcome: "unknown" });
		});
		stream.on("end", () => {
			if (!this.#status) return; // the stream was reset: close says why
			if (messages.within && !faultOfStatus(this.#status))
				this.fail({ code: "INTERNAL", message: "the answer ends within a message", outcome: "unknown" });
			else this.#end(faultOfStatus(this.#status));
		});
		stream.on("error", () => {}); // close follows, and knows more
		stream.on("close", () => this.#end(this.#status ? faultOfStatus(this.#status) : this.#broken()));
		if (events.drained) stream.on("drain", () => this.#over || events.drained!());
		if (o.timeout !== undefined) {
			this.#late = o.timeout;
			this.#until = performance.now() + o.timeout;
			this.#timer = setTimeout(() => this.fail(this.#tooLate()), Math.min(o.timeout, 2 ** 31 - 1));
		}
		if (o.signal) {
			this.#signal = o.signal;
			if (o.signal.aborted) queueMicrotask(this.#abort);
			else o.signal.addEventListener("abort", this.#abort);
		}
	}

	/** What is known of a call without a status. */
	get #outcome(): "refused" | "unknown" {
		return this.#connection.reached ? "unknown" : "refused";
	}

	#tooLate(): Fault {
		return { code: "DEADLINE_EXCEEDED", message: `no answer within ${this.#late} ms`, outcome: this.#outcome };
	}

	readonly #abort = (): void => {
		const fault: Fault = { code: "DEADLINE_EXCEEDED", message: "the caller gave up", outcome: this.#outcome };
		fault.cause = this.#signal!.reason;
		this.fail(fault);
	};

	/** Why a stream without a status is over. */
	#broken(): Fault {
		const c = this.#connection;
		const fault: Fault = { code: "UNAVAILABLE", outcome: this.#outcome };
		const code = this.stream.rstCode ?? 0;
		// The server counts the time too, and ends the call by a reset that may be here before this side's timer.
		if (c.reached && code === http2.constants.NGHTTP2_CANCEL && performance.now() >= this.#until - clocksDiffer)
			return this.#tooLate();
		if (!c.reached) fault.message = `the server ${this.#address} is not reached${c.why && `: ${c.why}`}`;
		else if (c.foreign) fault.message = `the server ${this.#address} does not speak HTTP/2`;
		else if (code === http2.constants.NGHTTP2_REFUSED_STREAM || (this.stream.id ?? 0) > c.lastCall) {
			fault.message = "the server did not take the call";
			fault.outcome = "refused";
		} else fault.message = c.why ? `the connection ended: ${c.why}` : `the stream was reset with code ${code}`;
		if (c.foreign) {
			fault.foreign = true;
			fault.outcome = "refused";
		}
		return fault;
	}

	#end(fault: Fault | undefined): void {
		if (this.#over) return;
		this.#over = true;
		clearTimeout(this.#timer);
		this.#signal?.removeEventListener("abort", this.#abort);
		// A server may end a stream that this side has not ended.
		if (!this.stream.closed) this.stream.close(http2.constants.NGHTTP2_NO_ERROR);
		this.#events.end(fault);
	}

	/** Ends the call on this side. */
	fail(fault: Fault | undefined): void {
		if (this.#over) return;
		this.stream.close(http2.constants.NGHTTP2_CANCEL);
		this.#end(fault);
	}

	get over(): boolean {
		return this.#over;
	}
}

/** Connections of one kind to one node: another one is made while all have as many calls as the server allows. */
class Pool {
	#all: Connection[] = [];

	constructor(readonly o: ConnectionOptions) {}

	take(): Connection {
		for (const c of this.#all) if (c.usable && !c.full) return c;
		this.#all = this.#all.filter((c) => c.usable);
		const made = new Connection(this.o, () => {
			// One is kept for the next call.
			if (this.#all.length > 1) {
				this.#all = this.#all.filter((c) => c !== made);
				made.close();
			}
		});
		this.#all.push(made);
		return made;
	}

	close(): void {
		for (const c of this.#all.splice(0)) c.close();
	}
}

/** A channel over gRPC. Streams have connections of their own: a call that waits must not hold them up. */
export class GrpcChannel implements Channel {
	readonly #o: ChannelOptions;
	readonly #streams: Pool;
	readonly #calls: Pool;

	constructor(o: ChannelOptions) {
		this.#o = o;
		this.#streams = new Pool(o);
		this.#calls = new Pool(o);
	}

	/** Begins a call. What is wrong with its headers ends it too. */
	#begin(pool: Pool, path: string, o: UnaryOptions, events: CallEvents): Call | undefined {
		const headers: http2.OutgoingHttpHeaders = {
			":method": "POST",
			":path": path,
			"content-type": "application/grpc",
			te: "trailers",
			"user-agent": `millrace-typescript/${version}`,
			"millrace-namespace": this.#o.namespace,
		};
		const token = this.#o.token();
		if (token) headers.authorization = `Bearer ${token}`;
		for (const [field, value] of [
			["namespace", this.#o.namespace],
			["token", token],
		] as const) {
			if (/^[\x20-\x7e]*$/.test(value)) continue;
			const message = `${field}: must be printable ASCII`;
			queueMicrotask(() => events.end({ code: "INVALID_ARGUMENT", field, message, outcome: "refused" }));
			return undefined;
		}
		return new Call(pool.take(), this.#o.address, headers, o, events);
	}

	stream(path: string, events: StreamEvents): FrameStream {
		const call = this.#begin(
			this.#streams,
			path,
			{},
			{
				message: (b) => {
					let frame: ServerFrame;
					try {
						frame = ServerFrame.decode(b);
					} catch (e) {
						call?.fail(unreadable(e));
						return;
					}
					events.frame(frame);
				},
				end: (fault) => events.end(fault),
				drained: () => events.drained(),
			},
		);
		return {
			write: (f) => {
				if (!call || call.over) return;
				const b = framed(ClientFrame, f);
				if (b.length - 5 > maxMessage) call.fail(tooLong(b));
				else call.stream.write(b);
			},
			get full() {
				return call !== undefined && call.stream.writableLength >= fullAt;
			},
			end: () => call?.stream.end(),
			// Its caller says first why it cancels: the end comes afterwards.
			cancel: () =>
				queueMicrotask(() =>
					call?.fail({ code: "DEADLINE_EXCEEDED", message: "the stream was cancelled", outcome: "unknown" }),
				),
		};
	}

	unary<Req, Res>(method: Method<Req, Res>, request: Req, options: UnaryOptions): Promise<Res> {
		return new Promise<Res>((resolve, reject) => {
			let answer: Buffer | undefined;
			const b = framed(method.request, request);
			if (b.length - 5 > maxMessage) return reject(new MillraceError(tooLong(b)));
			const call = this.#begin(this.#calls, method.path, options, {
				message: (m) => {
					answer = m;
				},
				end: (fault) => {
					if (fault) {
						options.failed?.(fault);
						reject(new MillraceError(fault));
					} else if (!answer)
						reject(new MillraceError({ code: "INTERNAL", message: "the answer is empty", outcome: "unknown" }));
					else {
						try {
							resolve(method.response.decode(answer));
						} catch (e) {
							reject(new MillraceError(unreadable(e)));
						}
					}
				},
			});
			call?.stream.end(b);
		});
	}

	async *read<Req, Res>(method: Method<Req, Res>, request: Req, options: UnaryOptions): AsyncGenerator<Res> {
		const come: Buffer[] = [];
		let ended = false;
		let fault: Fault | undefined;
		let wake = (): void => {};
		const b = framed(method.request, request);
		if (b.length - 5 > maxMessage) throw new MillraceError(tooLong(b));
		const call = this.#begin(this.#calls, method.path, options, {
			message: (m) => {
				if (come.push(m) >= unreadAt) call?.stream.pause();
				wake();
			},
			end: (f) => {
				ended = true;
				fault = f;
				wake();
			},
		});
		call?.stream.end(b);
		try {
			for (;;) {
				for (const m of come.splice(0)) {
					let value: Res;
					try {
						value = method.response.decode(m);
					} catch (e) {
						throw new MillraceError(unreadable(e));
					}
					yield value;
				}
				call?.stream.resume();
				if (come.length > 0) continue;
				if (ended) break;
				await new Promise<void>((resolve) => {
					wake = resolve;
				});
			}
			if (fault) {
				options.failed?.(fault);
				throw new MillraceError(fault);
			}
		} finally {
			call?.fail(undefined);
		}
	}

	close(): void {
		this.#streams.close();
		this.#calls.close();
	}
}

function unreadable(cause: unknown): Fault {
	return { code: "INTERNAL", message: "the answer cannot be read", outcome: "unknown", cause };
}

function tooLong(b: Buffer): Fault {
	const message = `a message of ${b.length - 5} bytes is longer than ${maxMessage}`;
	return { code: "TOO_LARGE", message, limit: "message_bytes", max: maxMessage, outcome: "refused" };
}
