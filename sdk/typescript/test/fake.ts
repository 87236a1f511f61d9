// A server whose streams are played by a test.
import { BinaryWriter } from "@bufbuild/protobuf/wire";
import * as grpc from "@grpc/grpc-js";
import { ClientFrame, type Hello, ServerFrame, Welcome } from "../src/gen/millrace/v1/stream.js";
import { HeartbeatRequest, HeartbeatResponse, Error as WireError } from "../src/gen/millrace/v1/task.js";
import { Client } from "../src/index.js";

type Kind<F extends { frame: { $case: string } | undefined }> = NonNullable<F["frame"]>["$case"];
type ValueOf<F extends { frame: { $case: string; value: unknown } | undefined }, K> = Extract<
	NonNullable<F["frame"]>,
	{ $case: K }
>["value"];

/** The error of a call that the contract describes, in the details of its status. */
function refusal(fields: Record<string, unknown>): Partial<grpc.StatusObject> {
	const w = new BinaryWriter();
	w.uint32(26).fork();
	w.uint32(10).string("type.googleapis.com/millrace.v1.Error");
	w.uint32(18).bytes(WireError.encode(WireError.fromPartial(fields)).finish());
	w.join();
	const metadata = new grpc.Metadata();
	metadata.set("grpc-status-details-bin", Buffer.from(w.finish()));
	return { code: grpc.status.UNAVAILABLE, details: String(fields.code), metadata };
}

/** The server's side of one stream. */
export class FakeStream {
	hello!: Hello;
	readonly #frames: ClientFrame[] = [];
	readonly #waiting: { kind: string; take: (f: ClientFrame) => void }[] = [];
	closed = false;

	constructor(readonly call: grpc.ServerDuplexStream<ClientFrame, ServerFrame>) {}

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
		this.call.write(ServerFrame.fromPartial({ frame: { $case, value } as never }));
	}

	welcome(fields: Record<string, unknown> = {}): void {
		this.send("welcome", Welcome.fromPartial({ partitions: 1, features: ["waits"], ...fields }));
	}

	ack(seq: bigint, fields: Record<string, unknown>): void {
		this.send("ack", { seq, ...fields });
	}

	/** Ends the stream with an error of the contract. */
	refuse(fields: Record<string, unknown>): void {
		this.call.emit("error", refusal(fields));
	}

	/** Ends the stream as a broken connection does. */
	cut(): void {
		this.call.emit("error", { code: grpc.status.UNAVAILABLE, details: "cut" });
	}
}

export class Fake {
	readonly #server = new grpc.Server();
	readonly #streams: FakeStream[] = [];
	readonly #waiting: { partition: number | undefined; take: (s: FakeStream) => void }[] = [];
	readonly #clients: Client[] = [];
	address = "";
	/** Takes streams before accept does. */
	onStream: ((s: FakeStream) => void) | undefined;
	/** Answers heartbeats: with results, or with the fields of an error. */
	onHeartbeat: (r: HeartbeatRequest) => Record<string, unknown> | undefined = () => undefined;

	static async start(): Promise<Fake> {
		const fake = new Fake();
		fake.#server.addService(
			{
				open: {
					path: "/millrace.v1.QueueStream/Open",
					requestStream: true,
					responseStream: true,
					requestSerialize: (m: ClientFrame) => Buffer.from(ClientFrame.encode(m).finish()),
					requestDeserialize: (b: Buffer) => ClientFrame.decode(b),
					responseSerialize: (m: ServerFrame) => Buffer.from(ServerFrame.encode(m).finish()),
					responseDeserialize: (b: Buffer) => ServerFrame.decode(b),
				},
			},
			{
				open: (call: grpc.ServerDuplexStream<ClientFrame, ServerFrame>) => fake.#open(call),
			},
		);
		fake.#server.addService(
			{
				heartbeat: {
					path: "/millrace.v1.TaskService/Heartbeat",
					requestStream: false,
					responseStream: false,
					requestSerialize: (m: HeartbeatRequest) => Buffer.from(HeartbeatRequest.encode(m).finish()),
					requestDeserialize: (b: Buffer) => HeartbeatRequest.decode(b),
					responseSerialize: (m: HeartbeatResponse) => Buffer.from(HeartbeatResponse.encode(m).finish()),
					responseDeserialize: (b: Buffer) => HeartbeatResponse.decode(b),
				},
			},
			{
				heartbeat: (
					call: grpc.ServerUnaryCall<HeartbeatRequest, HeartbeatResponse>,
					done: grpc.sendUnaryData<HeartbeatResponse>,
				) => {
					const error = fake.onHeartbeat(call.request);
					if (error) done(refusal(error));
					else done(null, HeartbeatResponse.fromPartial({ results: call.request.items.map(() => ({})) }));
				},
			},
		);
		const port = await new Promise<number>((resolve, reject) => {
			fake.#server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (e, p) =>
				e ? reject(e) : resolve(p),
			);
		});
		fake.address = `127.0.0.1:${port}`;
		return fake;
	}

	#open(call: grpc.ServerDuplexStream<ClientFrame, ServerFrame>): void {
		const s = new FakeStream(call);
		call.on("data", (f: ClientFrame) => {
			if (f.frame?.$case !== "hello") return s.arrived(f);
			s.hello = f.frame.value;
			if (this.onStream) return this.onStream(s);
			const i = this.#waiting.findIndex((w) => w.partition === undefined || w.partition === s.hello.partition);
			if (i >= 0) this.#waiting.splice(i, 1)[0]!.take(s);
			else this.#streams.push(s);
		});
		call.on("end", () => {
			s.closed = true;
			call.end();
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
		this.#server.forceShutdown();
		await Promise.all(this.#clients.map((c) => c.close()));
	}
}
