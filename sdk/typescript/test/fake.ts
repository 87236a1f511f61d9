// A server whose streams are played by a test.
import * as http2 from "node:http2";
import type { AddressInfo } from "node:net";
import { BinaryWriter } from "@bufbuild/protobuf/wire";
import { framed, Messages } from "../src/core/grpc.js";
import { ClientFrame, type Hello, ServerFrame, Welcome } from "../src/gen/millrace/v1/stream.js";
import { HeartbeatRequest, HeartbeatResponse, Error as WireError } from "../src/gen/millrace/v1/task.js";
import { Client } from "../src/index.js";

type Kind<F extends { frame: { $case: string } | undefined }> = NonNullable<F["frame"]>["$case"];
type ValueOf<F extends { frame: { $case: string; value: unknown } | undefined }, K> = Extract<
	NonNullable<F["frame"]>,
	{ $case: K }
>["value"];

/** The trailers of a call that ends with an error of the contract, which is in the details of its status. */
function refusal(fields: Record<string, unknown>, status = 14): http2.OutgoingHttpHeaders {
	const w = new BinaryWriter();
	w.uint32(26).fork();
	w.uint32(10).string("type.googleapis.com/millrace.v1.Error");
	w.uint32(18).bytes(WireError.encode(WireError.fromPartial(fields)).finish());
	w.join();
	return {
		"grpc-status": String(status),
		"grpc-message": encodeURIComponent(String(fields.code)),
		"grpc-status-details-bin": Buffer.from(w.finish()).toString("base64"),
	};
}

/** A task of the job one, as a server assigns it. */
export const assignment = (id: string, more: Record<string, unknown> = {}) => ({
	id,
	token: 7n,
	attempt: 1,
	queue: "one",
	kind: "one",
	payload: Buffer.from("1"),
	contentType: "application/json",
	leaseMs: 60_000n,
	leaseLeftMs: 60_000n,
	maxAttempts: 5,
	...more,
});

/** The server's side of one stream. */
export class FakeStream {
	hello!: Hello;
	readonly #frames: ClientFrame[] = [];
	readonly #waiting: { kind: string; take: (f: ClientFrame) => void }[] = [];
	closed = false;
	#ended = false;

	constructor(readonly call: http2.ServerHttp2Stream) {}

	arrived(f: ClientFrame): void {
		const i = this.#waiting.findIndex((w) => w.kind === f.frame?.$case);
		if (i >= 0) this.#waiting.splice(i, 1)[0]!.take(f);
		else this.#frames.push(f);
	}

	/** Waits for the next frame of a kind. */
	async next<K extends Kind<ClientFrame>>(kind: K): Promise<ValueOf<ClientFrame, K>> {
		const i = this.#frames.findIndex((f) => f.frame?.$case === kind);
		const f =
			i >= 0
				? this.#frames.splice(i, 1)[0]!
				: await new Promise<ClientFrame>((take) => this.#waiting.push({ kind, take }));
		return f.frame!.value as ValueOf<ClientFrame, K>;
	}

	/** Frames of a kind that came and were not taken. */
	seen(kind: Kind<ClientFrame>): number {
		return this.#frames.filter((f) => f.frame?.$case === kind).length;
	}

	send<K extends Kind<ServerFrame>>($case: K, value: unknown): void {
		this.call.write(framed(ServerFrame, ServerFrame.fromPartial({ frame: { $case, value } as never })));
	}

	welcome(fields: Record<string, unknown> = {}): void {
		this.send("welcome", Welcome.fromPartial({ partitions: 1, features: ["waits"], ...fields }));
	}

	ack(seq: bigint, fields: Record<string, unknown>): void {
		this.send("ack", { seq, ...fields });
	}

	/** Ends the stream with an error of the contract. */
	refuse(fields: Record<string, unknown>): void {
		this.#end(refusal(fields));
	}

	/** Ends the stream as a broken connection does. */
	cut(): void {
		this.end(14, "cut");
	}

	/** Ends the stream with a status of gRPC. */
	end(code = 0, message = ""): void {
		this.#end({ "grpc-status": String(code), "grpc-message": encodeURIComponent(message) });
	}

	#end(trailers: http2.OutgoingHttpHeaders): void {
		if (this.#ended || this.call.destroyed) return;
		this.#ended = true;
		this.call.on("wantTrailers", () => this.call.sendTrailers(trailers));
		this.call.end();
	}
}

export class Fake {
	readonly #server = http2.createServer();
	readonly #sessions = new Set<http2.ServerHttp2Session>();
	readonly #streams: FakeStream[] = [];
	readonly #waiting: { partition: number | undefined; take: (s: FakeStream) => void }[] = [];
	readonly #clients: Client[] = [];
	address = "";
	/** Takes streams before accept does. */
	onStream: ((s: FakeStream) => void) | undefined;
	/** The fields of the error that other calls end with, and its status; undefined: they are not known. */
	onCall: (() => { fields: Record<string, unknown>; status: number }) | undefined;
	/** Answers calls by the name of their method, such as QueueService/Get. */
	readonly calls: Record<string, (request: Buffer) => Uint8Array> = {};
	/** Answers heartbeats: with results, or with the fields of an error. */
	onHeartbeat: (r: HeartbeatRequest) => Record<string, unknown> | undefined = () => undefined;

	static async start(): Promise<Fake> {
		const fake = new Fake();
		fake.#server.on("session", (session) => {
			fake.#sessions.add(session);
			session.on("close", () => fake.#sessions.delete(session));
		});
		fake.#server.on("stream", (stream, headers) => {
			if (headers[":path"] === "/millrace.v1.QueueStream/Open") fake.#open(stream);
			else if (headers[":path"] === "/millrace.v1.TaskService/Heartbeat") fake.#heartbeat(stream);
			else if (fake.#known(headers[":path"]!)) fake.#answer(stream, fake.#known(headers[":path"]!)!);
			else {
				const told = fake.onCall?.();
				const trailers = told ? refusal(told.fields, told.status) : { "grpc-status": "12" };
				stream.respond({ ":status": 200, "content-type": "application/grpc", ...trailers }, { endStream: true });
			}
		});
		await new Promise<void>((resolve) => fake.#server.listen(0, "127.0.0.1", resolve));
		fake.address = `127.0.0.1:${(fake.#server.address() as AddressInfo).port}`;
		return fake;
	}

	#known(path: string): ((request: Buffer) => Uint8Array) | undefined {
		return this.calls[path.replace("/millrace.v1.", "")];
	}

	#answer(call: http2.ServerHttp2Stream, answer: (request: Buffer) => Uint8Array): void {
		const messages = new Messages((b) => {
			call.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
			call.on("wantTrailers", () => call.sendTrailers({ "grpc-status": "0" }));
			const body = answer(b);
			const prefix = Buffer.alloc(5);
			prefix.writeUInt32BE(body.length, 1);
			call.end(Buffer.concat([prefix, body]));
		});
		call.on("data", (b: Buffer) => messages.push(b));
		call.on("error", () => {});
	}

	#heartbeat(call: http2.ServerHttp2Stream): void {
		const messages = new Messages((b) => {
			const request = HeartbeatRequest.decode(b);
			const error = this.onHeartbeat(request);
			if (error) {
				call.respond({ ":status": 200, "content-type": "application/grpc", ...refusal(error) }, { endStream: true });
				return;
			}
			call.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
			call.on("wantTrailers", () => call.sendTrailers({ "grpc-status": "0" }));
			const results = request.items.map(() => ({}));
			call.end(framed(HeartbeatResponse, HeartbeatResponse.fromPartial({ results })));
		});
		call.on("data", (b: Buffer) => messages.push(b));
		call.on("error", () => {});
	}

	#open(call: http2.ServerHttp2Stream): void {
		call.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
		const s = new FakeStream(call);
		const messages = new Messages((b) => {
			const f = ClientFrame.decode(b);
			if (f.frame?.$case !== "hello") return s.arrived(f);
			s.hello = f.frame.value;
			if (this.onStream) return this.onStream(s);
			const i = this.#waiting.findIndex((w) => w.partition === undefined || w.partition === s.hello.partition);
			if (i >= 0) this.#waiting.splice(i, 1)[0]!.take(s);
			else this.#streams.push(s);
		});
		call.on("data", (b: Buffer) => messages.push(b));
		call.on("end", () => {
			s.closed = true;
			s.end();
		});
		call.on("error", () => {});
	}

	/** Waits for the next stream, of a partition where one is given. */
	async accept(partition?: number): Promise<FakeStream> {
		const i = this.#streams.findIndex((s) => partition === undefined || s.hello.partition === partition);
		if (i >= 0) return this.#streams.splice(i, 1)[0]!;
		return new Promise((take) => this.#waiting.push({ partition, take }));
	}

	/** Waits for the next stream and lets it in. */
	async welcome(fields: Record<string, unknown> = {}, partition?: number): Promise<FakeStream> {
		const s = await this.accept(partition);
		s.welcome(fields);
		return s;
	}

	client(o: Record<string, unknown> = {}): Client {
		const c = new Client({ url: this.address, token: "t", logger: { warn: () => {}, error: () => {} }, ...o });
		this.#clients.push(c);
		return c;
	}

	async close(): Promise<void> {
		this.#server.close();
		for (const s of this.#sessions) s.destroy();
		await Promise.all(this.#clients.map((c) => c.close()));
	}
}
