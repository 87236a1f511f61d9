// How a server is reached. The rest of the package knows this interface and nothing of gRPC.
import { BinaryReader } from "@bufbuild/protobuf/wire";
import * as grpc from "@grpc/grpc-js";
import { type Code, type Fault, faultOf, MillraceError } from "../errors.js";
import { ClientFrame, ServerFrame } from "../gen/millrace/v1/stream.js";
import { Error as WireError } from "../gen/millrace/v1/task.js";

export const version = "0.1.0";

/** The codec of a message, as the generated code has it. */
export interface Codec<T> {
	encode(message: T): { finish(): Uint8Array };
	decode(bytes: Uint8Array): T;
}

/** A unary method. */
export interface Method<Req, Res> {
	path: string;
	request: Codec<Req>;
	response: Codec<Res>;
}

/** One stream of frames. */
export interface FrameStream {
	write(frame: ClientFrame): void;
	/** Half-closes: nothing more is sent. */
	end(): void;
	cancel(): void;
}

export interface StreamEvents {
	frame(frame: ServerFrame): void;
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
}

export interface ChannelOptions {
	address: string;
	token: () => string;
	namespace: string;
	tls: TlsOptions | undefined;
}

/** How TLS is spoken. Certificates and keys are PEM. */
export interface TlsOptions {
	ca?: Buffer | string;
	cert?: Buffer | string;
	key?: Buffer | string;
	/** The name that the server's certificate must have; default: the host of the address. */
	serverName?: string;
}

const codes: Partial<Record<number, { code: Code; refused?: boolean }>> = {
	3: { code: "INVALID_ARGUMENT", refused: true },
	12: { code: "INVALID_ARGUMENT", refused: true },
	11: { code: "INVALID_ARGUMENT", refused: true },
	16: { code: "UNAUTHENTICATED", refused: true },
	7: { code: "PERMISSION_DENIED", refused: true },
	5: { code: "NOT_FOUND", refused: true },
	6: { code: "ALREADY_EXISTS", refused: true },
	9: { code: "PRECONDITION_FAILED", refused: true },
	8: { code: "RESOURCE_EXHAUSTED" },
	4: { code: "DEADLINE_EXCEEDED" },
	1: { code: "DEADLINE_EXCEEDED" },
	13: { code: "INTERNAL" },
	15: { code: "DATA_LOSS" },
};

/** Reads the error of the contract in the details of a status; undefined: there is none. */
function detailOf(metadata: grpc.Metadata | undefined): WireError | undefined {
	const raw = metadata?.get("grpc-status-details-bin")[0];
	if (!raw || typeof raw === "string") return undefined;
	const r = new BinaryReader(raw);
	while (r.pos < r.len) {
		const tag = r.uint32();
		if (tag >>> 3 !== 3) {
			r.skip(tag & 7);
			continue;
		}
		const end = r.uint32() + r.pos;
		let type = "";
		let value: Uint8Array = Buffer.alloc(0);
		while (r.pos < end) {
			const t = r.uint32();
			if (t >>> 3 === 1) type = r.string();
			else if (t >>> 3 === 2) value = r.bytes();
			else r.skip(t & 7);
		}
		if (type.endsWith("/millrace.v1.Error")) return WireError.decode(value);
	}
	return undefined;
}

/** Makes a fault of an error of gRPC. Without an error of the contract nothing says whether a server has seen the call. */
export function faultOfGrpc(e: grpc.ServiceError | grpc.StatusObject): Fault {
	const detail = detailOf(e.metadata);
	if (detail) return faultOf(detail);
	const known = codes[e.code];
	const f: Fault = {
		code: known?.code ?? "UNAVAILABLE",
		message: e.details || "the server is not reached",
		outcome: known?.refused ? "refused" : "unknown",
	};
	if (e.code === grpc.status.CANCELLED) f.cause = e;
	return f;
}

const bytes = <T>(c: Codec<T>) => ({
	serialize: (m: T): Buffer => {
		const b = c.encode(m).finish();
		return Buffer.from(b.buffer, b.byteOffset, b.byteLength);
	},
	deserialize: (b: Buffer): T => c.decode(b),
});

const frames = { out: bytes(ClientFrame), in: bytes(ServerFrame) };

/** A channel over @grpc/grpc-js. */
export class GrpcChannel implements Channel {
	readonly #client: grpc.Client;
	readonly #o: ChannelOptions;

	constructor(o: ChannelOptions) {
		this.#o = o;
		const credentials = o.tls
			? grpc.credentials.createSsl(
					o.tls.ca ? Buffer.from(o.tls.ca) : null,
					o.tls.key ? Buffer.from(o.tls.key) : null,
					o.tls.cert ? Buffer.from(o.tls.cert) : null,
				)
			: grpc.credentials.createInsecure();
		const options: grpc.ChannelOptions = {
			"grpc.primary_user_agent": `millrace-typescript/${version}`,
			"grpc.keepalive_time_ms": 10_000,
			"grpc.keepalive_timeout_ms": 20_000,
			"grpc.max_receive_message_length": 16 << 20,
			"grpc.max_send_message_length": 16 << 20,
			"grpc.initial_reconnect_backoff_ms": 25,
			"grpc.min_reconnect_backoff_ms": 25,
			"grpc.max_reconnect_backoff_ms": 250,
			"grpc.use_local_subchannel_pool": 1,
			"grpc.service_config_disable_resolution": 1,
			"grpc.enable_retries": 0,
			"grpc-node.flow_control_window": 4 << 20,
		};
		if (o.tls?.serverName) options["grpc.ssl_target_name_override"] = o.tls.serverName;
		this.#client = new grpc.Client(o.address, credentials, options);
	}

	#metadata(): grpc.Metadata {
		const m = new grpc.Metadata();
		const token = this.#o.token();
		if (token) m.set("authorization", `Bearer ${token}`);
		m.set("millrace-namespace", this.#o.namespace);
		return m;
	}

	stream(path: string, events: StreamEvents): FrameStream {
		const call = this.#client.makeBidiStreamRequest<ClientFrame, ServerFrame>(
			path,
			frames.out.serialize,
			frames.in.deserialize,
			this.#metadata(),
		);
		let over = false;
		const end = (fault: Fault | undefined): void => {
			if (over) return;
			over = true;
			events.end(fault);
		};
		call.on("data", (f: ServerFrame) => {
			if (!over) events.frame(f);
		});
		call.on("error", (e: grpc.ServiceError) => end(faultOfGrpc(e)));
		call.on("status", (s: grpc.StatusObject) => end(s.code === grpc.status.OK ? undefined : faultOfGrpc(s)));
		return {
			write: (f) => {
				if (!over) call.write(f);
			},
			end: () => call.end(),
			cancel: () => call.cancel(),
		};
	}

	unary<Req, Res>(method: Method<Req, Res>, request: Req, options: UnaryOptions): Promise<Res> {
		const req = bytes(method.request);
		const res = bytes(method.response);
		return new Promise<Res>((resolve, reject) => {
			const more: grpc.CallOptions = {};
			if (options.timeout !== undefined) more.deadline = Date.now() + options.timeout;
			const call = this.#client.makeUnaryRequest<Req, Res>(
				method.path,
				req.serialize,
				res.deserialize,
				request,
				this.#metadata(),
				more,
				(error, value) => {
					options.signal?.removeEventListener("abort", abort);
					if (error) reject(new MillraceError(faultOfGrpc(error)));
					else resolve(value as Res);
				},
			);
			function abort(): void {
				call.cancel();
			}
			if (options.signal?.aborted) call.cancel();
			else options.signal?.addEventListener("abort", abort);
		});
	}

	async *read<Req, Res>(method: Method<Req, Res>, request: Req, options: UnaryOptions): AsyncGenerator<Res> {
		const more: grpc.CallOptions = {};
		if (options.timeout !== undefined) more.deadline = Date.now() + options.timeout;
		const call = this.#client.makeServerStreamRequest<Req, Res>(
			method.path,
			bytes(method.request).serialize,
			bytes(method.response).deserialize,
			request,
			this.#metadata(),
			more,
		);
		const abort = (): void => call.cancel();
		if (options.signal?.aborted) abort();
		else options.signal?.addEventListener("abort", abort);
		try {
			for await (const message of call) yield message as Res;
		} catch (e) {
			throw new MillraceError(faultOfGrpc(e as grpc.ServiceError));
		} finally {
			options.signal?.removeEventListener("abort", abort);
			call.cancel();
		}
	}

	close(): void {
		this.#client.close();
	}
}
