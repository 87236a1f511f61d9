// Renews leases while the loop is blocked: a worker thread that is told of the leases and of the loop's beat. When the beat is late it
// dials by itself and sends unary heartbeats. Its source is a text within the bundle, because bundlers break files of worker threads.
import { Worker } from "node:worker_threads";
import type { Logger } from "./hub.js";
import type { TlsOptions } from "./transport.js";

const source = `
const { parentPort, workerData } = require("node:worker_threads");
const http2 = require("node:http2");
const beat = new BigInt64Array(workerData.beat);
const leases = new Map();
// By partition the address that its leases are renewed at; by address the connection.
const places = new Map(), sessions = new Map();
let busy = false, said = false;

const varint = (out, n) => { n = BigInt(n); while (n > 127n) { out.push(Number(n & 127n) | 128); n >>= 7n; } out.push(Number(n)); };
function request(items) {
	const body = [];
	for (const l of items) {
		const hold = [0x0a, l.id.length, ...Buffer.from(l.id)];
		hold.push(0x10);
		varint(hold, l.token);
		body.push(0x0a);
		varint(body, hold.length);
		body.push(...hold);
	}
	const b = Buffer.alloc(5 + body.length);
	b.writeUInt32BE(body.length, 1);
	Buffer.from(body).copy(b, 5);
	return b;
}
// Reads which results say lost: field 1 of the response is a result, whose field 1 is lost.
function lostOf(b, items) {
	const lost = [];
	let p = 5, i = 0;
	const read = () => { let n = 0, s = 0, c; do { c = b[p++]; n += (c & 127) * 2 ** s; s += 7; } while (c > 127); return n; };
	while (p < b.length) {
		const tag = read(), len = read(), end = p + len;
		if (tag >>> 3 !== 1) { p = end; continue; }
		while (p < end) {
			const t = read();
			if ((t & 7) === 2) { const n = read(); p += n; continue; }
			const v = read();
			if (t >>> 3 === 1 && v) lost.push(items[i]);
		}
		i++;
	}
	return lost;
}
// Reads the leader out of a status's details: field 3 is an Any, whose field 2 is an error, whose field 10 is the leader.
function leaderOf(details) {
	if (!details) return "";
	const b = Buffer.from(String(details), "base64");
	const field = (from, to, wanted) => {
		let p = from;
		const read = () => { let n = 0, s = 0, c; do { c = b[p++]; n += (c & 127) * 2 ** s; s += 7; } while (c > 127); return n; };
		while (p < to) {
			const tag = read();
			if ((tag & 7) === 0) read();
			else if ((tag & 7) === 1) p += 8;
			else if ((tag & 7) === 5) p += 4;
			else {
				const len = read();
				if (tag >>> 3 === wanted) return [p, p + len];
				p += len;
			}
		}
	};
	let at = [0, b.length];
	for (const wanted of [3, 2, 10]) if (at) at = field(at[0], at[1], wanted);
	return at ? b.toString("utf8", at[0], at[1]) : "";
}
function send(address, items) {
	let session = sessions.get(address);
	if (!session || session.closed || session.destroyed) {
		session = http2.connect(workerData.scheme + "://" + address, workerData.tls);
		session.on("error", () => {});
		session.unref();
		sessions.set(address, session);
	}
	return new Promise((resolve) => {
		const call = session.request({
			":method": "POST", ":path": "/millrace.v1.TaskService/Heartbeat", "content-type": "application/grpc", te: "trailers",
			authorization: "Bearer " + workerData.token, "millrace-namespace": workerData.namespace, "grpc-timeout": "5S",
		});
		const parts = [];
		let details;
		// Where there are other nodes, one that is silent is not waited for long.
		call.setTimeout(workerData.addresses.length > 1 ? 1500 : 5000, () => call.close());
		call.on("response", (h) => (details ??= h["grpc-status-details-bin"]));
		call.on("trailers", (h) => (details ??= h["grpc-status-details-bin"]));
		call.on("data", (d) => parts.push(d));
		call.on("error", () => {});
		call.on("close", () => resolve(parts.length ? { body: Buffer.concat(parts) } : { leader: leaderOf(details) }));
		call.end(request(items));
	});
}
// Renews leases of one partition. Where it is not led, it is looked for: at the leader that an answer names, else at the next node.
async function renew(partition, due) {
	for (let hops = 0; ; hops++) {
		const address = places.get(partition) ?? workerData.addresses[0];
		const answer = await send(address, due);
		if (answer.body) {
			const lost = lostOf(answer.body, due);
			for (const l of due) l.next = Date.now() + l.lease / 3;
			for (const l of lost) leases.delete(l.id + l.token);
			if (lost.length) parentPort.postMessage({ lost: lost.map((l) => [l.id, l.token]) });
			return;
		}
		const all = workerData.addresses;
		const named = answer.leader && answer.leader !== address && (workerData.scheme === "https" || all.includes(answer.leader));
		// It may have been told meanwhile.
		if ((places.get(partition) ?? all[0]) === address) places.set(partition, named ? answer.leader : all[(all.indexOf(address) + 1) % all.length]);
		if (!named || hops === 3) return;
	}
}
async function look() {
	const now = Date.now(), late = now - Number(Atomics.load(beat, 0));
	if (leases.size === 0 || busy || late < workerData.least) return;
	if (late > workerData.stall) {
		if (!said) parentPort.postMessage({ stalled: [...new Set([...leases.values()].map((l) => l.kind))] });
		said = true;
		return;
	}
	said = false;
	const parts = new Map();
	for (const l of leases.values()) {
		if (late <= l.lease / 6 || now < l.next) continue;
		const due = parts.get(l.partition);
		if (!due) parts.set(l.partition, [l]);
		else if (due.length < 512) due.push(l);
	}
	if (parts.size === 0) return;
	busy = true;
	await Promise.all([...parts].map(([p, due]) => renew(p, due)));
	busy = false;
}
parentPort.on("message", (m) => {
	if (m.token !== undefined) workerData.token = m.token;
	if (m.address) places.set(m.partition, m.address);
	if (m.addresses) workerData.addresses = m.addresses;
	for (const l of m.add ?? []) leases.set(l.id + l.token, { ...l, next: Date.now() + l.lease / 3 });
	for (const key of m.del ?? []) leases.delete(key);
});
setInterval(look, 50).unref();
`;

export interface RenewerOptions {
	/** Of the nodes that are known. */
	addresses: string[];
	token: string;
	namespace: string;
	tls: TlsOptions | undefined;
	/** For how long a loop that does not answer is covered, in milliseconds. */
	stall: number;
	logger: Logger;
	lost(id: string, token: bigint): void;
}

/** A thread that renews what the loop holds, while the loop is blocked. */
export class Renewer {
	readonly #thread: Worker;
	readonly #beat = new BigInt64Array(new SharedArrayBuffer(8));
	readonly #timer: NodeJS.Timeout;
	#add: { id: string; token: string; lease: number; kind: string; partition: number }[] = [];
	#del: string[] = [];
	#posted = false;

	constructor(o: RenewerOptions) {
		this.#stamp();
		this.#thread = new Worker(source, {
			eval: true,
			workerData: {
				scheme: o.tls ? "https" : "http",
				addresses: o.addresses,
				tls: o.tls ? { ca: o.tls.ca, cert: o.tls.cert, key: o.tls.key, servername: o.tls.serverName } : {},
				token: o.token,
				namespace: o.namespace,
				beat: this.#beat.buffer,
				least: 150,
				stall: o.stall,
			},
		});
		this.#thread.unref();
		this.#thread.on("message", (m: { lost?: [string, string][]; stalled?: string[] }) => {
			for (const [id, token] of m.lost ?? []) o.lost(id, BigInt(token));
			if (m.stalled) {
				o.logger.error(
					`millrace: the loop did not answer for ${o.stall} ms: leases were not renewed any more of ${m.stalled.join(", ")}`,
				);
			}
		});
		this.#thread.on("error", (e) => o.logger.error(`millrace: the renewing thread has failed: ${e.message}`));
		this.#timer = setInterval(() => this.#stamp(), 50);
		this.#timer.unref();
	}

	#stamp(): void {
		Atomics.store(this.#beat, 0, BigInt(Date.now()));
	}

	add(id: string, token: bigint, lease: number, kind: string, partition: number): void {
		this.#add.push({ id, token: String(token), lease, kind, partition });
		this.#post();
	}

	remove(id: string, token: bigint): void {
		this.#del.push(id + String(token));
		this.#post();
	}

	/** Tells where the leases of a partition are renewed, and which nodes there are. */
	reach(partition: number, address: string, addresses: string[]): void {
		this.#thread.postMessage({ partition, address, addresses });
	}

	setToken(token: string): void {
		this.#thread.postMessage({ token });
	}

	// Told once per turn, before handlers run: a handler that blocks comes after the message.
	#post(): void {
		if (this.#posted) return;
		this.#posted = true;
		queueMicrotask(() => {
			this.#posted = false;
			this.#thread.postMessage({ add: this.#add, del: this.#del });
			this.#add = [];
			this.#del = [];
		});
	}

	async close(): Promise<void> {
		clearInterval(this.#timer);
		await this.#thread.terminate();
	}
}
