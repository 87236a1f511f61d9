// A server whose streams are played by a test.
import * as grpc from "@grpc/grpc-js";
import { ClientFrame, type Hello, ServerFrame, Welcome } from "../src/gen/millrace/v1/stream.js";
import { Client } from "../src/index.js";

type Kind<F extends { frame: { $case: string } | undefined }> = NonNullable<F["frame"]>["$case"];
type ValueOf<F extends { frame: { $case: string; value: unknown } | undefined }, K> = Extract<
	NonNullable<F["frame"]>,
	{ $case: K }
>["value"];

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

	ack(seq: bigint, fields: Record<string, unknown>): void {
		this.send("ack", { seq, ...fields });
	}

	/** Ends the stream as a broken connection does. */
	cut(): void {
		this.call.emit("error", { code: grpc.status.UNAVAILABLE, details: "cut" });
	}
}

export class Fake {
	readonly #server = new grpc.Server();
	readonly #streams: FakeStream[] = [];
	readonly #waiting: ((s: FakeStream) => void)[] = [];
	readonly #clients: Client[] = [];
	address = "";

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
			{ open: (call: grpc.ServerDuplexStream<ClientFrame, ServerFrame>) => fake.#open(call) },
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
			const take = this.#waiting.shift();
			if (take) take(s);
			else this.#streams.push(s);
		});
		call.on("end", () => {
			s.closed = true;
			call.end();
		});
		call.on("error", () => {});
	}

	/** Waits for the next stream. */
	async accept(): Promise<FakeStream> {
		return this.#streams.shift() ?? new Promise((resolve) => this.#waiting.push(resolve));
	}

	/** Waits for the next stream and lets it in. */
	async welcome(fields: Record<string, unknown> = {}): Promise<FakeStream> {
		const s = await this.accept();
		s.send("welcome", Welcome.fromPartial({ partitions: 1, features: ["waits"], ...fields }));
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
