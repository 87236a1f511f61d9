// Clients over REST: what is lost on the way, errors, redirects, and the change between gRPC and REST.
import { once } from "node:events";
import { readFileSync } from "node:fs";
import * as net from "node:net";
import { Worker as Thread } from "node:worker_threads";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { newId } from "../src/core/place.js";
import { Renewer } from "../src/core/renewer.js";
import { RestChannel } from "../src/core/rest.js";
import { type Channel, GrpcChannel } from "../src/core/transport.js";
import { restHosts } from "../src/core/ways.js";
import { Web } from "../src/core/web.js";
import { faultOf } from "../src/errors.js";
import { Producer } from "../src/fetch.js";
import { KVDeleteRangeRequest, KVDeleteRangeResponse } from "../src/gen/millrace/v1/kv.js";
import { type Ack, ClientFrame } from "../src/gen/millrace/v1/stream.js";
import { GetRequest } from "../src/gen/millrace/v1/task.js";
import { Client, type ClientOptions, job, MillraceError, methods, type Task, Worker } from "../src/index.js";
import { type DevServer, devServer } from "../src/testing.js";
import { exact } from "./effects.js";
import { Fake } from "./fake.js";
import { Canned, HttpProxy } from "./http.js";

const binary = process.env.MILLRACE_BIN;
const real = it.skipIf(!binary);
const codes = JSON.parse(readFileSync(new URL("../../../proto/conformance/errors.json", import.meta.url), "utf8"))
	.codes as { code: string; grpc: number; http: number }[];

let server: DevServer;
const closers: (() => unknown)[] = [];
beforeAll(async () => {
	if (binary) server = await devServer({ binary, http: true });
});
afterEach(async () => {
	for (const c of closers.splice(0).reverse()) await c();
});
afterAll(() => server?.stop());

const quiet = { warn: () => {}, error: () => {} };

function client(o: ClientOptions): Client {
	const c = new Client({ logger: quiet, ...o });
	closers.push(() => c.close());
	return c;
}
const overRest = (o: ClientOptions = {}): Client =>
	client({ url: server.http, token: server.token, transport: "rest", ...o });

async function proxied(): Promise<HttpProxy> {
	const p = await HttpProxy.start(server.http, server.url);
	closers.push(() => p.close());
	return p;
}
async function canned(): Promise<Canned> {
	const c = await Canned.start();
	closers.push(() => c.close());
	return c;
}

function work(c: Client, bindings: ConstructorParameters<typeof Worker>[1], slots = 4): void {
	const w = new Worker(c, bindings, { slots });
	const over = w.run({ signals: false });
	closers.push(async () => {
		await w.stop();
		await over;
	});
}

/** Unique names of queues and keyspaces: all tests share one server. */
let names = 0;
const unique = (of: string): string => `${of}${++names}`;

/** A job that counts its runs in a key too, and doubles. */
function counting(space: string, runs: number[] = []) {
	const j = job<number, number>("count", { queue: unique("q") });
	const handler = j.handle((t: Task, n: number) => {
		runs.push(n);
		t.fx.kv(space).add("count", 1);
		return 2 * n;
	});
	return { job: j, handler };
}

const errorOf = (p: Promise<unknown>): Promise<MillraceError> =>
	p.then(
		() => {
			throw new Error("no error came");
		},
		(e) => e,
	);

/** What a stream answers to a commit. */
const ackOf = (c: Channel): Promise<Ack> =>
	new Promise((resolve, reject) => {
		const stream = c.stream("/millrace.v1.QueueStream/Open", {
			drained: () => {},
			end: (fault) => reject(new Error(`the stream has ended: ${fault?.message}`)),
			frame: (f) => {
				if (f.frame?.$case === "ack") {
					resolve(f.frame.value);
					stream.end();
				} else stream.write(ClientFrame.fromPartial({ frame: { $case: "commit", value: { seq: 1n, commit: {} } } }));
			},
		});
		stream.write(ClientFrame.fromPartial({ frame: { $case: "hello", value: { version: 1 } } }));
	});

/** Loses the first answer of each of these paths. */
function first(...paths: string[]): (path: string) => boolean {
	const left = new Set(paths);
	return (path) => [...left].some((p) => path.startsWith(p) && left.delete(p));
}

describe("against a real server (skipped where MILLRACE_BIN names none)", () => {
	real.each(["stream", "rest"] as const)("tells who wrote a key, by the transport %s", async (transport) => {
		const c = transport === "rest" ? overRest() : client({ url: server.url, token: server.token, transport });
		const name = unique("n");
		const set = await fetch(`http://${server.http}/v1/keyspaces/${name}`, {
			method: "PUT",
			headers: { authorization: `Bearer ${server.token}`, "content-type": "application/json" },
			body: '{"writers":true}',
		});
		expect(set.status).toBe(200);
		const kv = c.kv(name);
		await kv.put("outside", "1");
		const j = job<number, string>(unique("q"));
		const handler = j.handle((t: Task, n: number) => {
			t.fx.kv(name).add("count", n);
			t.fx.kv(`${name}-other`).put("count", "1");
			return String(t.token);
		});
		work(c, [handler]);
		const h = await j.add(c, 3);
		const writer = { task: h.id, token: BigInt(await h.wait()) };
		expect(await kv.get("count")).toMatchObject({ text: "3", writer });
		expect((await kv.get("outside"))!.writer).toBeUndefined();
		expect((await c.kv(`${name}-other`).get("count"))!.writer).toBeUndefined();
		const found: unknown[] = [];
		for await (const { key, value } of kv.range({ prefix: "" })) found.push([key.toString(), value.writer]);
		expect(found).toEqual([
			["count", writer],
			["outside", undefined],
		]);
		const producer = new Producer({ url: `http://${server.http}`, token: server.token });
		expect(await producer.get(name, "count")).toMatchObject({
			writer: { task: h.id, token: String(writer.token) },
		});
		expect(await producer.get(name, "outside")).not.toHaveProperty("writer");
		await kv.put("count", "4");
		expect((await kv.get("count"))!.writer).toBeUndefined();
	});

	real("keeps types, bytes, large payloads and numbers beyond 2^53", async () => {
		const c = overRest();
		const queue = unique("q");
		const raw = job<Uint8Array, Uint8Array>("raw", { queue });
		const text = job<string, string>("text", { queue });
		const plain = job<string, string>("plain", { queue, codec: exact as never });
		work(c, [raw.handle((_, b) => b), text.handle((_, s) => s), plain.handle((_, s) => s)]);
		const big = Buffer.alloc((1 << 20) - 64, Buffer.from([0, 255, 34, 92, 10]));
		expect(Buffer.compare((await (await raw.add(c, big)).wait()) as Buffer, big)).toBe(0);
		const odd = 'a "quoted" \\ é中\u{1f600}\0';
		expect(await (await text.add(c, odd, { labels: { k: "é" }, delay: 1 })).wait()).toBe(odd);
		const json = '{"z" : 9007199254740993,"a":[1.50,null,"\\u00e9"],"b":{"y":-18446744073709551615,"x":2}}';
		const h = await plain.add(c, json);
		expect(await h.wait()).toBe(json);
		expect((await c.task(h.id)).state).toBe("completed");

		const kv = c.kv(unique("n"));
		const key = Buffer.from([255, 47, 0, 32, 97, 37]);
		const rev = await kv.put(key, big);
		const got = await kv.get(key);
		expect(got?.rev).toBe(rev);
		expect(Buffer.compare(got!.bytes, big)).toBe(0);
		expect(await kv.get("absent")).toBeUndefined();
		expect(await kv.add("sum", 2n ** 53n + 1n)).toBe(2n ** 53n + 1n);
		expect((await errorOf(kv.put(key, 1, { ifRev: rev + 1n }))).details.rev).toBe(String(rev));
		expect(await kv.delete(key, { ifRev: rev })).toBe(true);
	});

	real("reads a range of several pages, and removes all of it", async () => {
		const c = overRest();
		const space = unique("n");
		const name = (n: number): string => String(n).padStart(5, "0");
		for (let from = 0; from < 2100; from += 300) {
			const tx = c.tx();
			for (let n = from; n < from + 300; n++) tx.kv(space).put(name(n), n);
			await tx.commit();
		}
		const keys = async (o: { limit?: number }, prefix = ""): Promise<string[]> => {
			const out: string[] = [];
			for await (const item of c.kv(space).range({ prefix }, o)) out.push(item.key.toString());
			return out;
		};
		const all = Array.from({ length: 2100 }, (_, n) => name(n));
		expect(await keys({})).toEqual(all);
		expect(await keys({ limit: 1500 })).toEqual(all.slice(0, 1500));
		expect(await keys({ limit: 3 }, "0002")).toEqual(["00020", "00021", "00022"]);
		const remove = {
			path: "/millrace.v1.KVService/DeleteRange",
			request: KVDeleteRangeRequest,
			response: KVDeleteRangeResponse,
		};
		await c.raw(remove, KVDeleteRangeRequest.fromPartial({ range: { keyspace: space } }));
		expect(await keys({})).toEqual([]);
	});

	real("reports, cancels, counts, pauses, and refuses what has no route", async () => {
		const c = overRest();
		const queue = unique("q");
		const slow = job<number, number>("slow", { queue, lease: "1500ms" });
		let begun = (): void => {};
		const running = new Promise<void>((resolve) => {
			begun = resolve;
		});
		work(c, [
			slow.handle(async (t) => {
				t.progress(50, "half");
				await t.saveCheckpoint(Buffer.from("saved"));
				begun();
				await new Promise((_, reject) => t.signal.addEventListener("abort", () => reject(t.signal.reason)));
				return 1;
			}),
		]);
		const h = await slow.add(c, 1);
		await running;
		expect((await c.task(h.id)).progress).toEqual({ percent: 50, message: "half" });
		await c.cancel(h.id, { reason: "wrong order" });
		expect(await errorOf(h.wait())).toMatchObject({ state: "cancelled" });
		expect(await c.queue(queue).stats()).toMatchObject({ cancelled: 1, running: 0 });
		await c.raw(methods.pauseQueue, { queue, reason: "stop", duration: undefined } as never);
		await c.raw(methods.resumeQueue, { queue } as never);
		const unknown = { ...methods.status, path: "/millrace.v1.BackupService/Take" };
		expect(await errorOf(c.raw(unknown, {}))).toMatchObject({ code: "INVALID_ARGUMENT", outcome: "refused" });
	});

	real("ends a wait in its time, and many waits at once", async () => {
		const c = overRest();
		const none = await job<number, number>("none", { queue: unique("q") }).add(c, 1);
		expect((await errorOf(none.wait({ timeout: 200 }))).code).toBe("DEADLINE_EXCEEDED");
		const { job: j, handler } = counting(unique("n"));
		const all = Array.from({ length: 40 }, (_, n) => n);
		const handles = await j.addMany(c, all);
		const ends = Promise.all(handles.map((h) => h.wait()));
		work(c, [handler], 8);
		expect(await ends).toEqual(all.map((n) => 2 * n));
	});

	real("applies what has no answer once, and hands refused effects back", async () => {
		const p = await proxied();
		const c = overRest({ url: p.address });
		const space = unique("n");
		const runs: number[] = [];
		const { job: j, handler } = counting(space, runs);
		const again = job<number, string>("again", { queue: j.queue });
		await c.kv(space).put("taken", "theirs");
		p.lose = first("/v1/tasks:batch", "/v1/tasks:settle", "/v1/commit");
		work(c, [
			handler,
			again.handle((t) => {
				t.fx.kv(space).put("taken", "mine", { ifAbsent: true });
				t.onRefused((e) => {
					expect(e).toMatchObject({ code: "PRECONDITION_FAILED", op: 0, outcome: "refused" });
					t.fx.reset();
					t.fx.kv(space).put("other", "2");
				});
				return "built again";
			}),
		]);
		const h = await j.add(c, 4);
		expect(h.replayed).toBe(true);
		expect(await h.wait()).toBe(8);
		expect(await c.kv(space).add("sum", 5)).toBe(5n);
		expect(await (await again.add(c, 1)).wait()).toBe("built again");
		const text = async (key: string): Promise<string | undefined> => (await c.kv(space).get(key))?.text;
		expect([await text("count"), await text("sum"), await text("taken"), await text("other")]).toEqual([
			"1",
			"5",
			"theirs",
			"2",
		]);
		expect(runs).toEqual([4]);
		expect((await c.task(h.id)).attempt).toBe(1);
		for (const path of ["/v1/tasks:batch", "/v1/tasks:settle", "/v1/commit"]) {
			expect(p.seen.filter((s) => s.startsWith(path)).length).toBeGreaterThanOrEqual(2);
		}
	});

	real(
		"starts over REST, is back on gRPC, and goes over again, with nothing lost or done twice",
		{
			timeout: 60_000,
		},
		async () => {
			const p = await proxied();
			const c = client({ url: p.address, token: server.token });
			const space = unique("n");
			const runs: number[] = [];
			const { job: j, handler } = counting(space, runs);
			work(c, [handler], 8);
			let n = 0;
			const some = async (): Promise<void> => {
				const args = Array.from({ length: 5 }, (_, i) => n + i);
				n += 5;
				const handles = await j.addMany(c, args);
				expect(await Promise.all(handles.map((h) => h.wait()))).toEqual(args.map((a) => 2 * a));
			};
			await some();
			expect(c.transport).toBe("rest");
			expect(p.greeted).toBeGreaterThan(0);
			p.grpc = true;
			while (c.transport === "rest") await some();
			await some();
			// gRPC that worked before is refused as a protocol now, which no restart does.
			p.cut();
			while (c.transport === "stream") await some();
			await some();
			expect((await c.kv(space).get("count"))?.text).toBe(String(n));
			expect(runs.sort((a, b) => a - b)).toEqual(Array.from({ length: n }, (_, i) => i));
		},
	);

	real("makes the first call over REST, at an address of its own too, and over gRPC alone not", async () => {
		const p = await proxied();
		const c = client({ url: p.address, token: server.token });
		expect(await errorOf(c.task(newId()))).toMatchObject({ code: "NOT_FOUND", outcome: "refused" });
		expect(c.transport).toBe("rest");
		const away = client({ url: "127.0.0.1:1", restUrl: server.http, token: server.token });
		expect(await away.kv(unique("n")).add("k", 1)).toBe(1n);
		expect(away.transport).toBe("rest");
		const from = p.seen.length;
		const alone = client({ url: p.address, token: server.token, transport: "stream", timeout: 500 });
		expect(await errorOf(alone.kv("n").add("k", 1))).toBeInstanceOf(MillraceError);
		expect(await errorOf(alone.task(newId()))).toBeInstanceOf(MillraceError);
		expect(alone.transport).toBe("stream");
		expect(p.seen.length).toBe(from);
	});

	real("leaves a server that speaks HTTP/2 and does not know the calls", async () => {
		const fake = await Fake.start();
		closers.push(() => fake.close());
		fake.onStream = (s) => s.end(12, "not known");
		const o = { url: fake.address, restUrl: server.http, token: server.token };
		const c = client(o);
		const space = unique("n");
		const { job: j, handler } = counting(space);
		work(c, [handler]);
		expect(await (await j.add(c, 4)).wait()).toBe(8);
		expect((await client(o).kv(space).get("count"))?.text).toBe("1");
		expect(c.transport).toBe("rest");
	});

	real("keeps a lease over REST while the loop is blocked", async () => {
		const c = overRest();
		const j = job<number, string>("block", { queue: unique("q"), lease: "1500ms" });
		work(c, [
			j.handle(() => {
				const late = Date.now() + 4000;
				while (Date.now() < late);
				return "kept";
			}),
		]);
		const h = await j.add(c, 1);
		expect(await h.wait()).toBe("kept");
		expect(await c.task(h.id)).toMatchObject({ attempt: 1, crashes: 0 });
	});
});

describe("an error", () => {
	const fields = (code: string) => ({
		code,
		reason: "why",
		message: "the message",
		field: "ops[3].f",
		op: 3,
		limit: "frame_items",
		max: 512,
		details: { rev: "9007199254740993" },
		outcome: code === "UNAVAILABLE" ? "unknown" : "refused",
	});

	for (const row of codes) {
		it(`${row.code} is the same by stream, by call and over REST`, async () => {
			const want = fields(row.code);
			const wire = {
				...want,
				max: 512n,
				outcome: want.outcome === "unknown" ? 1 : 0,
				retryAfter: { seconds: 60n, nanos: 0 },
			};
			const fake = await Fake.start();
			closers.push(() => fake.close());
			fake.onCall = () => ({ fields: wire, status: row.grpc });
			fake.onStream = (s) => {
				s.welcome();
				void s.next("commit").then((f) => s.ack(f.seq, { error: wire }));
			};
			const played = await canned();
			const answer = { status: row.http, body: { error: { ...want, retry_after_ms: 60_000 } } };
			played.answers["/v1/commit"] = played.answers["/v1/tasks/"] = () => answer;
			const o = { token: () => "t", namespace: "n" };
			const web = new Web({ hosts: [played.address], secure: () => false, tls: undefined });
			const all: Channel[] = [
				new GrpcChannel({ ...o, address: fake.address, tls: undefined }),
				new RestChannel({ ...o, web, agent: "test" }),
			];
			for (const c of all) {
				closers.push(() => c.close());
				const e = await errorOf(c.unary(methods.getTask, GetRequest.fromPartial({ id: "x" }), {}));
				expect(e).toBeInstanceOf(MillraceError);
				expect(e).toMatchObject({ ...want, message: expect.stringContaining("the message"), retryAfter: 60_000 });
				expect(faultOf((await ackOf(c)).error!)).toEqual({ ...want, retryAfter: 60_000 });
			}
		});
	}

	it.each([
		[401, "UNAUTHENTICATED", "refused"],
		[403, "PERMISSION_DENIED", "refused"],
		[404, "INVALID_ARGUMENT", "refused"],
		[413, "TOO_LARGE", "refused"],
		[429, "RATE_LIMITED", "refused"],
		[502, "UNAVAILABLE", "unknown"],
		[200, "UNAVAILABLE", "unknown"],
	])("of a proxy with the status %i is %s", async (status, code, outcome) => {
		const played = await canned();
		played.answers["/v1/tasks/"] = () => ({ status, body: "<html>", headers: { "retry-after": "60" } });
		const c = client({ url: played.address, transport: "rest", timeout: 5000 });
		expect(await errorOf(c.task(newId()))).toMatchObject({ code, outcome, retryAfter: 60_000 });
	});
});

it("follows a follower to the leader, and takes its token nowhere in clear text", async () => {
	const played = await canned();
	const leader = await canned();
	leader.answers["/v1/tasks/"] = () => ({
		status: 200,
		body: { id: "x", state: "ready" },
		headers: { "millrace-index": "0/3/7" },
	});
	let to = `http://${leader.address}`;
	const error = { code: "NOT_LEADER", message: "go there", leader: "10.0.0.1:7081", outcome: "refused" };
	played.answers["/v1/tasks/"] = (q) => ({
		status: 307,
		body: { error },
		headers: { location: `${to}${q.path}&hop=1` },
	});
	const c = client({ url: played.address, token: "secret", transport: "rest" });
	const request = GetRequest.fromPartial({ id: "x" });
	expect((await c.raw(methods.getTask, request)).at).toMatchObject({ partition: 0, epoch: 3, index: 7n });
	expect(leader.seen.at(-1)).toMatchObject({ method: "GET", headers: { authorization: "Bearer secret" } });
	for (to of [`http://${played.address}`, "http://10.0.0.1:7080", `https://${leader.address}`]) {
		const e = await errorOf(c.raw(methods.getTask, request, { timeout: 300 }));
		expect(["NOT_LEADER", "DEADLINE_EXCEEDED"]).toContain(e.code);
	}
});

it("goes on at another host when one is gone, with the token of the time", async () => {
	const played = await canned();
	played.answers["/v1/commit"] = () => ({ status: 200, body: { results: [{ rev: "1" }] } });
	const c = client({ url: `127.0.0.1:1,${played.address}`, token: "first", transport: "rest" });
	await c.kv("n").put("k", 1);
	c.setToken("second");
	await c.kv("n").put("k", 1);
	const told = played.seen.filter((q) => q.path.startsWith("/v1/commit")).map((q) => q.headers.authorization);
	expect(told).toEqual(["Bearer first", "Bearer second"]);
});

it("makes claims shorter that a server bounds, and ends a worker that is not let in", async () => {
	const played = await canned();
	const waits: string[] = [];
	let enough = (): void => {};
	const twice = new Promise<void>((resolve) => {
		enough = resolve;
	});
	played.answers["/v1/tasks:claim"] = (q) => {
		waits.push(JSON.parse(q.body).wait);
		if (waits.length > 1) {
			enough();
			return { status: 204 };
		}
		const error = {
			code: "INVALID_ARGUMENT",
			message: "too long",
			limit: "claim_wait_ms",
			max: 3000,
			outcome: "refused",
		};
		return { status: 400, body: { error } };
	};
	work(client({ url: played.address, transport: "rest" }), [counting("n").handler]);
	await twice;
	expect(waits.slice(0, 2)).toEqual(["25s", "3s"]);

	const closed = await canned();
	const error = { code: "UNAUTHENTICATED", message: "no valid token", outcome: "refused" };
	closed.answers["/v1/status"] = closed.answers["/v1/namespace"] = () => ({ status: 401, body: { error } });
	const w = new Worker(client({ url: closed.address, transport: "rest" }), [counting("n").handler]);
	expect(await errorOf(w.run({ signals: false }))).toMatchObject({ code: "UNAUTHENTICATED" });
});

it("takes no writer of a key that makes no sense", async () => {
	const played = await canned();
	const headers = { "millrace-rev": "7", "millrace-writer": "" };
	played.answers["/v1/kv/"] = () => ({ status: 200, body: "v", headers });
	const c = client({ url: played.address, transport: "rest", timeout: 1000 });
	for (const wrong of ["nonsense", "01J x", "3"]) {
		headers["millrace-writer"] = wrong;
		expect(await errorOf(c.kv("n").get("k"))).toBeInstanceOf(MillraceError);
	}
	headers["millrace-writer"] = "01J 3";
	expect((await c.kv("n").get("k"))!.writer).toEqual({ task: "01J", token: 3n });
});

it("stays as it is while a server is down", async () => {
	const c = client({ url: "127.0.0.1:1", timeout: 500 });
	expect(["UNAVAILABLE", "DEADLINE_EXCEEDED"]).toContain((await errorOf(c.task(newId()))).code);
	expect(c.transport).toBe("stream");
});

it("leaves what takes streams and lets none in", { timeout: 30_000 }, async () => {
	const mute = net.createServer((s) => s.on("error", () => {}).resume());
	await new Promise<void>((resolve) => mute.listen(0, "127.0.0.1", resolve));
	closers.push(() => mute.close());
	const played = await canned();
	played.answers["/v1/commit"] = () => ({ status: 200, body: { results: [{ rev: "1" }] } });
	const url = `127.0.0.1:${(mute.address() as net.AddressInfo).port}`;
	const c = client({ url, restUrl: played.address });
	expect(await c.kv("n").put("k", 1)).toBe(1n);
	expect(c.transport).toBe("rest");
});

it("takes its options and those of the environment", () => {
	expect(() => new Client({ url: "h:1", transport: "pigeon" as never })).toThrow(/^INVALID_ARGUMENT.*transport/);
	expect(() => new Client({ url: "h:1", restUrl: "h" })).toThrow(/^INVALID_ARGUMENT.*restUrl/);
	expect(restHosts(undefined, ["a:7081", "b:9"])).toEqual(["a:7081", "a:7080", "b:9"]);
	expect(restHosts(["r:1", "s:2"], ["a:7081"])).toEqual(["r:1", "s:2"]);
	process.env.MILLRACE_TRANSPORT = "rest";
	try {
		expect(client({ url: "h:1" }).transport).toBe("rest");
		expect(client({ url: "h:1", transport: "stream" }).transport).toBe("stream");
		process.env.MILLRACE_REST_URL = "no address";
		expect(() => new Client()).toThrow(/restUrl/);
		client({ url: "h:1" }); // the variable goes with MILLRACE_URL
	} finally {
		delete process.env.MILLRACE_TRANSPORT;
		delete process.env.MILLRACE_REST_URL;
	}
});

// A server of heartbeats in a thread of its own, as this loop will be blocked.
const heartbeats = `
const { parentPort, workerData } = require("node:worker_threads");
const count = new Int32Array(workerData);
let asked;
const server = require("node:http").createServer((q, r) => {
	const parts = [];
	q.on("data", (d) => parts.push(d));
	q.on("end", () => {
		asked = { path: q.url, token: q.headers.authorization, items: JSON.parse(Buffer.concat(parts).toString()).items };
		if (q.url.startsWith("/v1/")) return r.writeHead(307, { location: "/moved" + q.url }).end();
		r.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ results: asked.items.map((x) => ({ lost: x.token === "2" })) }));
		Atomics.add(count, 0, 1);
		Atomics.notify(count, 0);
	});
});
server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));
parentPort.on("message", () => parentPort.postMessage(asked));
`;

it("renews over REST while the loop is blocked, where a redirect leads, and hears what is lost", async () => {
	const memory = new SharedArrayBuffer(4);
	const count = new Int32Array(memory);
	const thread = new Thread(heartbeats, { eval: true, workerData: memory });
	closers.push(() => thread.terminate());
	const [port] = (await once(thread, "message")) as [number];
	let heard: (x: [string, bigint]) => void = () => {};
	const lost = new Promise<[string, bigint]>((resolve) => {
		heard = resolve;
	});
	const r = new Renewer({
		addresses: ["127.0.0.1:1"],
		token: "t",
		namespace: "n s",
		tls: undefined,
		stall: 600_000,
		logger: console,
		lost: (id, token) => heard([id, token]),
	});
	closers.push(() => r.close());
	r.turn(`http://127.0.0.1:${port}`);
	const [kept, gone] = [newId(), newId()];
	r.add(kept, 2n ** 53n + 1n, 600, "k", 0);
	r.add(gone, 2n, 600, "k", 0);
	await new Promise((resolve) => setImmediate(resolve));
	expect(Atomics.wait(count, 0, 0, 30_000)).not.toBe("timed-out");
	expect(await lost).toEqual([gone, 2n]);
	thread.postMessage("");
	const [asked] = await once(thread, "message");
	expect(asked).toMatchObject({ path: "/moved/v1/tasks:heartbeat?ns=n%20s", token: "Bearer t" });
	expect(asked.items).toContainEqual({ id: kept, token: "9007199254740993" });
});
