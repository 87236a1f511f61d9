// REST in the place of gRPC: against a real server, and over proxies that lose answers or speak nothing but HTTP/1.1.
import { readFileSync } from "node:fs";
import * as http from "node:http";
import type { AddressInfo } from "node:net";
import * as net from "node:net";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { Client, job, MillraceError, newId, outcomeOf, Worker } from "../src/index.js";
import { type DevServer, devServer } from "../src/testing.js";

const binary = process.env.MILLRACE_BIN;
let server: DevServer;
const open: { close(): Promise<void> }[] = [];

beforeAll(async () => {
	if (binary) server = await devServer({ binary, http: true });
});
afterEach(async () => {
	for (const c of open.splice(0).reverse()) await c.close();
});
afterAll(() => server?.stop());

const real = it.skipIf(!binary);

function client(o: Record<string, unknown> = {}): Client {
	const c = new Client({
		url: server.url,
		token: server.token,
		transport: "rest",
		restUrl: server.http,
		logger: { warn: () => {}, error: () => {} },
		...o,
	});
	open.push(c);
	return c;
}

/** A proxy for TCP. losing: how many answers it still swallows of requests whose path has a text, each with its connection. */
async function proxy(
	to: string,
): Promise<{ address: string; to: string; lost: number; lose(path: string, n: number): void }> {
	const sockets = new Set<net.Socket>();
	const out = { address: "", to, lost: 0, lose: (_: string, __: number): void => {} };
	let path = "";
	let left = 0;
	out.lose = (p, n) => {
		path = p;
		left = n;
	};
	const listener = net.createServer((from) => {
		const [host, port] = out.to.split(":");
		const there = net.connect(Number(port), host);
		let drops = false;
		for (const s of [from, there]) {
			sockets.add(s);
			s.on("error", () => {});
			s.on("close", () => {
				sockets.delete(s);
				from.destroy();
				there.destroy();
			});
		}
		from.on("data", (b) => {
			if (left > 0 && b.toString("latin1").includes(path)) {
				left--;
				drops = true;
			}
			there.write(b);
		});
		there.on("data", (b) => {
			if (!drops) {
				from.write(b);
				return;
			}
			out.lost++;
			from.destroy();
		});
	});
	await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
	out.address = `127.0.0.1:${(listener.address() as AddressInfo).port}`;
	open.push({
		close: async () => {
			listener.close();
			for (const s of sockets) s.destroy();
		},
	});
	return out;
}

real(
	"carries tasks, effects, commits and reads over REST, byte for byte (skipped where MILLRACE_BIN names no server)",
	async () => {
		const c = client();
		expect(c.transport).toBe("rest");
		const text = `{"b":9007199254740993,"a":[1.50,"é\\u0001"],"b2":-0}`;
		const exact = job<string, string>("rest-exact", {
			codec: {
				type: "application/json",
				encode: (s: unknown) => Buffer.from(s as string),
				decode: (b: Uint8Array) => Buffer.from(b).toString(),
			},
		} as never);
		const bytes = job<Uint8Array, Uint8Array>("rest-bytes");
		const big = Buffer.alloc(1 << 20, 7);
		const w = new Worker(
			c,
			[
				exact.handle((t, a) => {
					expect(Buffer.from(t.payload).toString()).toBe(text);
					t.fx.kv("rest").put("k", "x");
					t.fx.kv("rest").add("sum", 1n);
					return a;
				}),
				bytes.handle((_, a) => a),
			],
			{ slots: 4 },
		);
		const over = w.run({ signals: false });
		expect(await (await exact.add(c, text)).wait()).toBe(text);
		expect(Buffer.compare(Buffer.from(await (await bytes.add(c, big)).wait()), big)).toBe(0);
		expect((await c.kv("rest").get("k"))?.text).toBe("x");
		const tx = c.tx();
		tx.kv("rest").add("sum", 2n ** 53n);
		expect((await tx.commit()).sums[0]).toBe(2n ** 53n + 1n);
		await expect(c.task(newId())).rejects.toMatchObject({ code: "NOT_FOUND", outcome: "refused" });
		await w.stop();
		await over;
	},
);

real("applies what is repeated once when answers are lost (skipped where MILLRACE_BIN names no server)", async () => {
	const p = await proxy(server.http);
	const c = client({ restUrl: p.address });
	const j = job<number, number>("rest-lost");
	p.lose("POST /v1/tasks", 2);
	const h = await j.add(c, 1);
	expect((await client().queue("rest-lost").stats()).ready).toBe(1);
	p.lose("POST /v1/commit", 2);
	const tx = c.tx();
	tx.kv("rest-lost").add("n", 1n);
	expect((await tx.commit()).sums[0]).toBe(1n);
	let runs = 0;
	const w = new Worker(
		c,
		[
			j.handle((t) => {
				runs++;
				t.fx.kv("rest-lost").add("settled", 1n);
				p.lose(":complete", 1);
				return 5;
			}),
		],
		{ slots: 1 },
	);
	const over = w.run({ signals: false });
	expect(await h.wait()).toBe(5);
	await w.stop();
	await over;
	expect(runs).toBe(1);
	expect((await c.kv("rest-lost").get("settled"))?.text).toBe("1");
	expect(p.lost).toBeGreaterThanOrEqual(4);
});

real(
	"begins over REST where HTTP/1.1 alone comes through, and goes back to gRPC (skipped where MILLRACE_BIN names no server)",
	async () => {
		const p = await proxy(server.http);
		const c = client({ url: p.address, transport: "auto", restUrl: undefined });
		const j = job<number, number>("rest-back");
		const seen: number[] = [];
		const w = new Worker(
			c,
			[
				j.handle((t, n) => {
					seen.push(n);
					t.fx.kv("rest-back").add("n", 1n);
					return n;
				}),
			],
			{ slots: 2 },
		);
		const over = w.run({ signals: false });
		expect(await (await j.add(c, 0)).wait()).toBe(0);
		expect(c.transport).toBe("rest");
		p.to = server.url; // gRPC comes through from here on, and REST does not
		let n = 1;
		for (; c.transport === "rest"; n++) {
			await j.add(c, n);
			await new Promise((resolve) => setTimeout(resolve, 20));
		}
		expect(c.transport).toBe("stream");
		expect(await (await j.add(c, n)).wait()).toBe(n);
		while (seen.length <= n) await new Promise((resolve) => setTimeout(resolve, 20));
		await w.stop();
		await over;
		expect(seen.sort((a, b) => a - b)).toEqual(Array.from({ length: n + 1 }, (_, i) => i));
		expect((await client().kv("rest-back").get("n"))?.text).toBe(String(n + 1));
	},
);

const codes = JSON.parse(readFileSync(new URL("../../../proto/conformance/errors.json", import.meta.url), "utf8")) as {
	codes: { code: string; http: number; repeat_seconds: number }[];
};

it.skipIf(!binary).each(codes.codes.filter((x) => x.repeat_seconds === 0))(
	"tells $code over REST with all that it says (skipped where MILLRACE_BIN names no server)",
	async ({ code, http: status }) => {
		const error = {
			code,
			message: "no",
			reason: "why",
			op: 2,
			field: "tasks[0].queue",
			limit: "queue_bytes",
			details: { rev: "3" },
			outcome: "refused",
		};
		// What a stream asks as it opens is answered by the real server.
		const s = http.createServer(async (req, res) => {
			const passes = /^\/v1\/(status|namespace)/.test(req.url!);
			const got = passes
				? await fetch(`http://${server.http}${req.url}`, { headers: { authorization: `Bearer ${server.token}` } })
				: undefined;
			res.writeHead(got?.status ?? status, { "content-type": "application/json" });
			res.end(got ? await got.text() : JSON.stringify({ error }));
		});
		await new Promise<void>((resolve) => s.listen(0, "127.0.0.1", resolve));
		const c = new Client({
			url: "127.0.0.1:1",
			token: "t",
			transport: "rest",
			restUrl: `127.0.0.1:${(s.address() as AddressInfo).port}`,
			logger: { warn: () => {}, error: () => {} },
		});
		try {
			const e = await c
				.kv("k")
				.put("a", "1")
				.then(
					() => undefined,
					(e: unknown) => e,
				);
			expect(e).toBeInstanceOf(MillraceError);
			expect(e).toMatchObject({ code, reason: "why", limit: "queue_bytes", outcome: "refused" });
			expect(outcomeOf(e)).toBe("refused");
		} finally {
			await c.close();
			s.closeAllConnections();
			s.close();
		}
	},
);
