// Renews leases while the loop is blocked: a worker thread that sees the leases and the loop's beat in shared memory. When the beat is
// late it dials by itself and sends unary heartbeats, of gRPC or REST. Its source is a text within the bundle, because bundlers break files of worker
// threads. A message for each lease would cost more than all else that a task takes of the loop.
//
// A lease is a row of 64 bytes: as int32 its version, which is odd while the lease is held, its length in milliseconds, the
// number of its kind and the length of the id; then a float64, the time when it was added; its token; the id; and, last, its partition. The loop alone
// writes. A reader compares the version before and after.
import { Worker } from "node:worker_threads";
import type { Logger } from "./hub.js";
import type { TlsOptions } from "./transport.js";

const source = `
const { parentPort, workerData } = require("node:worker_threads");
const beat = new BigInt64Array(workerData.beat);
const tables = [], next = new Map();
// By partition the address that its leases are renewed at; by address the connection.
const places = new Map(), sessions = new Map();
let busy = false, said = false, idle = false;

const open = (memory) => tables.push({ ints: new Int32Array(memory), times: new Float64Array(memory), tokens: new BigUint64Array(memory), bytes: Buffer.from(memory) });
open(workerData.table);
// All leases that are held now.
function held() {
	const out = [];
	for (const t of tables) {
		for (let i = 0, n = t.ints.length / 16; i < n; i++) {
			const version = Atomics.load(t.ints, i * 16);
			if ((version & 1) === 0) continue;
			const l = {
				lease: t.ints[i * 16 + 1], kind: t.ints[i * 16 + 2], partition: t.ints[i * 16 + 15], at: t.times[i * 8 + 2], token: t.tokens[i * 8 + 3],
				id: t.bytes.latin1Slice(i * 64 + 32, i * 64 + 32 + t.ints[i * 16 + 3]),
			};
			if (Atomics.load(t.ints, i * 16) === version) out.push(l);
		}
	}
	return out;
}

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
		// Loaded when it is needed, which is seldom: it is most of what the thread takes to start.
		session = require("node:http2").connect(workerData.scheme + "://" + address, workerData.tls);
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
// The same by a request of REST. The answer says which are lost; undefined: there is none.
function post(url, items, hops) {
	return new Promise((resolve) => {
		const body = JSON.stringify({ items: items.map((l) => ({ id: l.id, token: String(l.token) })) });
		const headers = { "content-type": "application/json", "content-length": body.length };
		if (workerData.token) headers.authorization = "Bearer " + workerData.token;
		const call = require(url.protocol === "https:" ? "node:https" : "node:http").request(url, { method: "POST", headers, ...workerData.tls });
		call.setTimeout(5000, () => call.destroy());
		call.on("error", () => resolve());
		call.on("response", (r) => {
			const parts = [];
			r.on("error", () => resolve());
			r.on("data", (d) => parts.push(d));
			r.on("end", () => {
				try {
					if (r.statusCode === 307 && r.headers.location && hops < 3) {
						const to = new URL(r.headers.location, url);
						const hosts = [url.hostname, ...workerData.addresses.map((a) => new URL("http://" + a).hostname)];
						// The token goes in clear text to hosts alone that are known.
						if (to.protocol === url.protocol && (to.protocol === "https:" || hosts.includes(to.hostname))) return resolve(post(to, items, hops + 1));
					}
					if (r.statusCode !== 200) return resolve();
					const results = JSON.parse(Buffer.concat(parts).toString()).results;
					resolve(items.filter((l, i) => results[i] && results[i].lost));
				} catch {
					resolve();
				}
			});
		});
		call.end(body);
	});
}
function renewed(due, lost) {
	for (const l of due) next.set(l.id + l.token, Date.now() + l.lease / 3);
	for (const l of lost) next.set(l.id + l.token, Infinity);
	if (lost.length) parentPort.postMessage({ lost: lost.map((l) => [l.id, String(l.token)]) });
}
// Renews leases of one partition. Where it is not led, it is looked for: at the leader that an answer names, else at the next node.
async function renew(partition, due) {
	if (workerData.rest) {
		const lost = await post(new URL(workerData.rest + "/v1/tasks:heartbeat?ns=" + encodeURIComponent(workerData.namespace)), due, 0);
		if (lost) renewed(due, lost);
		return;
	}
	for (let hops = 0; ; hops++) {
		const address = places.get(partition) ?? workerData.addresses[0];
		const answer = await send(address, due);
		if (answer.body) {
			renewed(due, lostOf(answer.body, due));
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
	idle = false;
	const now = Date.now(), late = now - Number(Atomics.load(beat, 0));
	if (busy || late < workerData.least) return;
	const leases = held();
	if (next.size > leases.length) {
		const keys = new Set(leases.map((l) => l.id + l.token));
		for (const key of next.keys()) if (!keys.has(key)) next.delete(key);
	}
	if (leases.length === 0) {
		idle = true;
		return;
	}
	if (late > workerData.stall) {
		if (!said) parentPort.postMessage({ stalled: [...new Set(leases.map((l) => l.kind))] });
		said = true;
		return;
	}
	said = false;
	const parts = new Map();
	for (const l of leases) {
		if (late <= l.lease / 6 || now < (next.get(l.id + l.token) ?? l.at + l.lease / 3)) continue;
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
	if (m.rest !== undefined) workerData.rest = m.rest;
	if (m.address) places.set(m.partition, m.address);
	if (m.addresses) workerData.addresses = m.addresses;
	if (m.table) open(m.table);
});
// Without leases there is less to look at: the shortest lease is a second, and is renewed when the beat is late by a sixth of it.
parentPort.postMessage({ ready: true });
(function tick() {
	void look();
	setTimeout(tick, idle ? 150 : 50).unref();
})();
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

/** Rows of one piece of shared memory. */
const rows = 1024;

/** A piece of shared memory, by what its rows have. */
class Table {
	readonly memory = new SharedArrayBuffer(rows * 64);
	readonly ints = new Int32Array(this.memory);
	readonly times = new Float64Array(this.memory);
	readonly tokens = new BigUint64Array(this.memory);
	readonly bytes = Buffer.from(this.memory);
}

/** A thread that renews what the loop holds, while the loop is blocked. */
export class Renewer {
	readonly #thread: Worker;
	readonly #beat = new BigInt64Array(new SharedArrayBuffer(8));
	/** Stamps the beat while leases are held. */
	#timer: NodeJS.Timeout | undefined;
	readonly #tables = [new Table()];
	/** Rows that are free; the next one is the last. */
	readonly #free = Array.from({ length: rows }, (_, i) => rows - 1 - i);
	readonly #rows = new Map<string, number>();
	readonly #kinds = new Map<string, number>();
	/** Resolves when the thread looks at the leases, or has failed. A loop that is blocked before that would lose them. */
	get ready(): Promise<void> {
		return this.#ready;
	}
	readonly #ready: Promise<void>;

	constructor(o: RenewerOptions) {
		let ready = (): void => {};
		this.#ready = new Promise((resolve) => {
			ready = resolve;
		});
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
				table: this.#tables[0]!.memory,
				least: 150,
				stall: o.stall,
			},
		});
		this.#thread.unref();
		this.#thread.on("message", (m: { ready?: true; lost?: [string, string][]; stalled?: number[] }) => {
			if (m.ready) ready();
			for (const [id, token] of m.lost ?? []) o.lost(id, BigInt(token));
			if (m.stalled) {
				const kinds = [...this.#kinds.keys()];
				o.logger.error(
					`millrace: the loop did not answer for ${o.stall} ms: leases were not renewed any more of ${m.stalled.map((i) => kinds[i]).join(", ")}`,
				);
			}
		});
		this.#thread.on("exit", ready);
		this.#thread.on("error", (e) => o.logger.error(`millrace: the renewing thread has failed: ${e.message}`));
	}

	/** Keeps the beat until no lease is held. */
	#beats(): void {
		this.#stamp();
		this.#timer = setInterval(() => {
			this.#stamp();
			if (this.#rows.size > 0) return;
			clearInterval(this.#timer);
			this.#timer = undefined;
		}, 50);
		this.#timer.unref();
	}

	#stamp(): void {
		Atomics.store(this.#beat, 0, BigInt(Date.now()));
	}

	/** From now on a lease is renewed, unless the loop does it. Its task's former lease is not. */
	add(id: string, token: bigint, lease: number, kind: string, partition: number): void {
		this.#drop(id);
		let index = this.#kinds.get(kind);
		if (index === undefined) {
			index = this.#kinds.size;
			this.#kinds.set(kind, index);
		}
		if (this.#timer === undefined) this.#beats();
		if (this.#free.length === 0) this.#grow();
		const row = this.#free.pop()!;
		this.#rows.set(id, row);
		const t = this.#tables[Math.floor(row / rows)]!;
		const i = row % rows;
		t.ints[i * 16 + 1] = Math.min(lease, 2 ** 31 - 1);
		t.ints[i * 16 + 2] = index;
		t.ints[i * 16 + 3] = t.bytes.write(id, i * 64 + 32, 28, "latin1");
		t.ints[i * 16 + 15] = partition;
		t.times[i * 8 + 2] = Date.now();
		t.tokens[i * 8 + 3] = token;
		Atomics.add(t.ints, i * 16, 1);
	}

	remove(id: string, token: bigint): void {
		const row = this.#rows.get(id);
		if (row === undefined) return;
		if (this.#tables[Math.floor(row / rows)]!.tokens[(row % rows) * 8 + 3] === token) this.#drop(id);
	}

	#drop(id: string): void {
		const row = this.#rows.get(id);
		if (row === undefined) return;
		Atomics.add(this.#tables[Math.floor(row / rows)]!.ints, (row % rows) * 16, 1);
		this.#rows.delete(id);
		this.#free.push(row);
	}

	#grow(): void {
		const from = this.#tables.length * rows;
		const t = new Table();
		this.#tables.push(t);
		for (let i = rows - 1; i >= 0; i--) this.#free.push(from + i);
		this.#thread.postMessage({ table: t.memory });
	}

	/** Tells where the leases of a partition are renewed, and which nodes there are. */
	reach(partition: number, address: string, addresses: string[]): void {
		this.#thread.postMessage({ partition, address, addresses });
	}

	/** Tells where REST is, as a URL; empty: leases are renewed over gRPC. */
	turn(rest: string): void {
		this.#thread.postMessage({ rest });
	}

	setToken(token: string): void {
		this.#thread.postMessage({ token });
	}

	async close(): Promise<void> {
		clearInterval(this.#timer);
		await this.#thread.terminate();
	}
}
