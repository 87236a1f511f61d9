import { once } from "node:events";
import * as http2 from "node:http2";
import * as net from "node:net";
import * as tls from "node:tls";
import { afterEach, expect, it, vi } from "vitest";
import { type Codec, framed, maxMessage } from "../src/core/grpc.js";
import { type ChannelOptions, GrpcChannel, type UnaryOptions } from "../src/core/transport.js";
import type { Fault } from "../src/errors.js";
import { ServerFrame } from "../src/gen/millrace/v1/stream.js";
import { Error as WireError } from "../src/gen/millrace/v1/task.js";
import { MillraceError } from "../src/index.js";
import { certificate } from "./certificate.js";

const raw: Codec<Buffer> = {
	encode: (m) => ({ finish: () => m }),
	decode: (b) => Buffer.from(b),
};
const echo = { path: "/test/Echo", request: raw, response: raw };
const message = (b: Buffer | string): Buffer => framed(raw, Buffer.from(b));

const closers: (() => void | Promise<void>)[] = [];
afterEach(async () => {
	for (const c of closers.splice(0).reverse()) await c();
});

type Play = (s: http2.ServerHttp2Stream, headers: http2.IncomingHttpHeaders) => void;

/** A server that plays something for each call. */
async function serve(play: Play, settings: http2.Settings = {}, secure?: { key: string; cert: string }) {
	const server = secure ? http2.createSecureServer({ ...secure, settings }) : http2.createServer({ settings });
	const sessions: http2.ServerHttp2Session[] = [];
	server.on("session", (s: http2.ServerHttp2Session) => {
		sessions.push(s);
		s.on("error", () => {});
	});
	server.on("stream", (s: http2.ServerHttp2Stream, h: http2.IncomingHttpHeaders) => {
		s.on("error", () => {});
		play(s, h);
	});
	server.on("error", () => {});
	await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
	closers.push(() => {
		server.close();
		for (const s of sessions) s.destroy();
	});
	return { address: `127.0.0.1:${(server.address() as net.AddressInfo).port}`, sessions };
}

/** A server of bare bytes. */
async function listen(server: net.Server): Promise<string> {
	const sockets = new Set<net.Socket>();
	server.on("connection", (s: net.Socket) => {
		sockets.add(s);
		s.on("error", () => {});
	});
	await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
	closers.push(() => {
		server.close();
		for (const s of sockets) s.destroy();
	});
	return `127.0.0.1:${(server.address() as net.AddressInfo).port}`;
}

function channel(address: string, o: Partial<ChannelOptions> = {}): GrpcChannel {
	const c = new GrpcChannel({ address, token: () => "t", namespace: "n", tls: undefined, ...o });
	closers.push(() => c.close());
	return c;
}

const ask = (c: GrpcChannel, text = "x", o: UnaryOptions = {}): Promise<string> =>
	c.unary(echo, Buffer.from(text), o).then(String);

async function faultOfCall(p: Promise<unknown>): Promise<MillraceError> {
	const e = await p.then(
		() => undefined,
		(e) => e,
	);
	expect(e).toBeInstanceOf(MillraceError);
	return e;
}

function open(s: http2.ServerHttp2Stream, trailers: http2.OutgoingHttpHeaders = { "grpc-status": "0" }): void {
	s.respond({ ":status": 200, "content-type": "application/grpc+proto" }, { waitForTrailers: true });
	s.on("wantTrailers", () => s.sendTrailers(trailers));
}

const answer =
	(body: Buffer | string = "ok"): Play =>
	(s) => {
		open(s);
		s.resume();
		s.end(message(body));
	};

it("sends what gRPC asks for, with the token of the moment", async () => {
	const seen: http2.IncomingHttpHeaders[] = [];
	const bodies: Buffer[] = [];
	const { address } = await serve((s, h) => {
		seen.push(h);
		open(s);
		s.on("data", (b: Buffer) => bodies.push(b));
		s.on("end", () => s.end(message("ok")));
	});
	let token = "one";
	const c = channel(address, { token: () => token });
	expect(await ask(c, "abc", { timeout: 5000 })).toBe("ok");
	token = "two";
	await ask(c);
	expect(seen[0]).toMatchObject({
		":method": "POST",
		":path": "/test/Echo",
		":scheme": "http",
		"content-type": "application/grpc",
		te: "trailers",
		authorization: "Bearer one",
		"millrace-namespace": "n",
		"grpc-timeout": "5000m",
	});
	expect(seen[1]).toMatchObject({ authorization: "Bearer two" });
	expect(seen[1]!["grpc-timeout"]).toBeUndefined();
	expect(bodies[0]).toEqual(Buffer.from("\0\0\0\0\x03abc"));
});

it("puts messages together that come in pieces, and takes several of one piece apart", async () => {
	const { address } = await serve((s) => {
		open(s);
		s.resume();
		const all = Buffer.concat([message("first"), message(""), message("third"), message("y".repeat(300))]);
		const next = (i: number): void => {
			if (i === 40) s.end(all.subarray(i));
			else s.write(all.subarray(i, i + 1), () => next(i + 1));
		};
		next(0);
	});
	const got: string[] = [];
	for await (const m of channel(address).read(echo, Buffer.from("x"), {})) got.push(String(m));
	expect(got).toEqual(["first", "", "third", "y".repeat(300)]);
});

it("carries payloads that are larger than all windows, both ways", async () => {
	const { address } = await serve((s) => {
		open(s);
		s.pipe(s);
	});
	const big = Buffer.alloc(12 << 20, "0123456789");
	expect((await channel(address).unary(echo, big, {})).equals(big)).toBe(true);
});

it("holds the server up while nothing is read of a long answer", async () => {
	let sent = 0;
	let stopped: () => void = () => {};
	const full = new Promise<void>((resolve) => {
		stopped = resolve;
	});
	const count = 400;
	const { address } = await serve((s) => {
		open(s);
		s.resume();
		const piece = message(Buffer.alloc(100_000));
		const more = (): void => {
			while (sent < count) {
				sent++;
				if (!s.write(piece)) {
					const held = setTimeout(() => stopped(), 100);
					s.once("drain", () => {
						clearTimeout(held);
						more();
					});
					return;
				}
			}
			s.end();
		};
		more();
	});
	const it = channel(address).read(echo, Buffer.from("x"), {})[Symbol.asyncIterator]();
	await it.next();
	await full;
	expect(sent).toBeLessThan(count);
	let n = 1;
	while (!(await it.next()).done) n++;
	expect(n).toBe(count);
});

it("reads the status of an answer that has trailers only", async () => {
	const { address } = await serve((s) =>
		s.respond(
			{
				":status": 200,
				"content-type": "application/grpc",
				"grpc-status": "7",
				"grpc-message": "no right: caf%C3%A9 100%25",
			},
			{ endStream: true },
		),
	);
	const e = await faultOfCall(ask(channel(address)));
	expect(e).toMatchObject({ code: "PERMISSION_DENIED", outcome: "refused" });
	expect(e.message).toContain("no right: café 100%");
});

it("reads the error of the contract in the details, with padding and without", async () => {
	const told = WireError.encode(
		WireError.fromPartial({
			code: "RATE_LIMITED",
			field: "tasks[0].queue",
			message: "slow",
			retryAfter: { seconds: 2n, nanos: 0 },
		}),
	).finish();
	const type = "type.googleapis.com/millrace.v1.Error";
	const any = Buffer.concat([
		Buffer.from([0x0a, type.length]),
		Buffer.from(type),
		Buffer.from([0x12, told.length]),
		told,
	]);
	const details = Buffer.concat([Buffer.from([0x08, 0x08, 0x1a, any.length]), any]).toString("base64");
	expect(details).toMatch(/=$/);
	for (const text of [details, details.replace(/=+$/, "")]) {
		const { address } = await serve((s) => {
			open(s, { "grpc-status": "8", "grpc-message": "x", "grpc-status-details-bin": text });
			s.end();
		});
		const e = await faultOfCall(ask(channel(address)));
		expect(e).toMatchObject({ code: "RATE_LIMITED", field: "tasks[0].queue", retryAfter: 2000, outcome: "refused" });
	}
});

it("keeps the code when the details cannot be read", async () => {
	const { address } = await serve((s) => {
		open(s, { "grpc-status": "5", "grpc-message": "%zz", "grpc-status-details-bin": "Gv8=" });
		s.end();
	});
	expect(await faultOfCall(ask(channel(address)))).toMatchObject({ code: "NOT_FOUND" });
});

it("refuses a compressed message, one that is too long, and an answer without one", async () => {
	const bodies: Record<string, Buffer> = {
		compressed: Buffer.from([1, 0, 0, 0, 1, 65]),
		"longer than": Buffer.from([0, 0x7f, 0, 0, 0]),
		"within a message": Buffer.from([0, 0, 0, 0, 9, 65]),
		empty: Buffer.alloc(0),
	};
	for (const [text, body] of Object.entries(bodies)) {
		const { address } = await serve((s) => {
			open(s);
			s.resume();
			s.end(body);
		});
		const e = await faultOfCall(ask(channel(address)));
		expect(e).toMatchObject({ code: "INTERNAL", outcome: "unknown" });
		expect(e.message).toContain(text);
	}
});

it("sends nothing of a message that is too long", async () => {
	let calls = 0;
	const { address } = await serve((s) => {
		calls++;
		answer()(s, {});
	});
	const c = channel(address);
	const e = await faultOfCall(c.unary(echo, Buffer.alloc(maxMessage + 1), {}));
	expect(e).toMatchObject({ code: "TOO_LARGE", max: maxMessage, outcome: "refused" });
	await ask(c);
	expect(calls).toBe(1);
});

it("judges answers that something between made", async () => {
	const cases = [
		[503, "text/html", "UNAVAILABLE"],
		[401, "text/html", "UNAUTHENTICATED"],
		[403, "application/json", "PERMISSION_DENIED"],
		[404, "text/plain", "INVALID_ARGUMENT"],
		[418, "application/grpc", "UNAVAILABLE"],
		[200, "text/html", "UNAVAILABLE"],
	] as const;
	for (const [status, type, code] of cases) {
		const { address } = await serve((s) => {
			s.respond({ ":status": status, "content-type": type });
			s.end("<html>");
		});
		const e = await faultOfCall(ask(channel(address)));
		expect(e).toMatchObject({ code });
		expect(e.message).toContain(`HTTP status ${status}`);
	}
});

/** Opens a stream and resolves with what ended it. */
function streamEnd(c: GrpcChannel): Promise<Fault | undefined> {
	return new Promise((end) => c.stream("/test/Stream", { frame: () => {}, drained: () => {}, end }));
}

it("tells a server of HTTP/1.1 from one that is not there", async () => {
	const old = await listen(net.createServer((s) => s.end("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")));
	expect(await streamEnd(channel(old))).toMatchObject({ code: "UNAVAILABLE", foreign: true, outcome: "refused" });
	expect((await faultOfCall(ask(channel(old)))).message).toContain("does not speak HTTP/2");
	const silent = await listen(net.createServer((s) => s.destroy()));
	const cut = await streamEnd(channel(silent));
	expect(cut).toMatchObject({ code: "UNAVAILABLE", outcome: "unknown" });
	expect(cut!.foreign).toBeUndefined();
	const gone = net.createServer();
	const address = await listen(gone);
	gone.close();
	await once(gone, "close");
	const none = await streamEnd(channel(address));
	expect(none).toMatchObject({ code: "UNAVAILABLE", outcome: "refused" });
	expect(none!.message).toContain("ECONNREFUSED");
});

it("gives up on a connection that is not made in time", async () => {
	// A server of TLS that says nothing: the connection is made, the handshake is not.
	const address = await listen(net.createServer(() => {}));
	const e = await faultOfCall(ask(channel(address, { tls: {}, connectWithin: 20 })));
	expect(e).toMatchObject({ code: "UNAVAILABLE", outcome: "refused" });
	expect(e.message).toContain("no connection within 20 ms");
});

it("speaks TLS, checks the certificate, and wants HTTP/2", async () => {
	const made = certificate();
	const { address } = await serve(answer(), {}, made);
	expect(await ask(channel(address, { tls: { ca: made.cert } }))).toBe("ok");
	expect(await ask(channel(address.replace("127.0.0.1", "localhost"), { tls: { ca: made.cert } }))).toBe("ok");
	const unknown = await faultOfCall(ask(channel(address, { tls: {} })));
	expect(unknown).toMatchObject({ code: "UNAVAILABLE", outcome: "refused" });
	expect(unknown.message).toContain("self-signed certificate");
	const other = await faultOfCall(ask(channel(address, { tls: { ca: made.cert, serverName: "other" } })));
	expect(other.message).toContain("other");
	const old = await listen(tls.createServer({ ...made, ALPNProtocols: ["http/1.1"] }).on("tlsClientError", () => {}));
	expect(await streamEnd(channel(old, { tls: { ca: made.cert } }))).toMatchObject({
		code: "UNAVAILABLE",
		outcome: "refused",
	});
	const none = await listen(tls.createServer(made));
	expect(await streamEnd(channel(none, { tls: { ca: made.cert } }))).toMatchObject({ foreign: true });
});

it("knows of a reset whether the call may be repeated", async () => {
	for (const [code, outcome] of [
		[http2.constants.NGHTTP2_REFUSED_STREAM, "refused"],
		[http2.constants.NGHTTP2_INTERNAL_ERROR, "unknown"],
		[http2.constants.NGHTTP2_CANCEL, "unknown"],
		[http2.constants.NGHTTP2_NO_ERROR, "unknown"],
	] as const) {
		const { address } = await serve((s) => s.close(code));
		expect(await faultOfCall(ask(channel(address)))).toMatchObject({ code: "UNAVAILABLE", outcome });
	}
});

it("takes a cancel of the server for the end of the call's time once that is over", async () => {
	const now = performance.now.bind(performance);
	let passed = 0;
	let next = 0;
	const clock = vi.spyOn(performance, "now").mockImplementation(() => now() + passed);
	try {
		const { address } = await serve((s) => {
			passed += next;
			s.close(http2.constants.NGHTTP2_CANCEL);
		});
		const c = channel(address);
		expect(await faultOfCall(ask(c, "x", { timeout: 60_000 }))).toMatchObject({ code: "UNAVAILABLE" });
		next = 60_000;
		expect(await faultOfCall(ask(c, "x", { timeout: 60_000 }))).toMatchObject({
			code: "DEADLINE_EXCEEDED",
			outcome: "unknown",
		});
	} finally {
		clock.mockRestore();
	}
});

it("ends in order what a server that goes away takes still, and goes to another connection", async () => {
	const held: http2.ServerHttp2Stream[] = [];
	const { address, sessions } = await serve((s) => {
		held.push(s);
		open(s);
		s.resume();
		if (held.length === 1) s.write("");
		else s.end(message("second"));
	});
	const c = channel(address);
	const first = ask(c);
	while (held.length === 0) await new Promise((r) => setImmediate(r));
	sessions[0]!.close();
	// The connection has taken the goaway once a call goes over another one.
	while (sessions.length < 2) {
		await ask(c).catch(() => {});
	}
	held[0]!.end(message("first"));
	expect(await first).toBe("first");
});

it("knows that a call after the last one of a goaway was not taken", async () => {
	// Bytes of frames: settings, and a goaway with its last id and a code.
	const settings = Buffer.from("000000040000000000", "hex");
	for (const [last, code, outcome] of [
		[0, http2.constants.NGHTTP2_ENHANCE_YOUR_CALM, "refused"],
		[1, http2.constants.NGHTTP2_ENHANCE_YOUR_CALM, "unknown"],
		[0, http2.constants.NGHTTP2_NO_ERROR, "refused"],
	] as const) {
		const goaway = Buffer.alloc(17);
		goaway[2] = 8;
		goaway[3] = 7;
		goaway.writeUInt32BE(last, 9);
		goaway.writeUInt32BE(code, 13);
		const address = await listen(
			net.createServer((s) => {
				s.write(settings);
				s.once("data", () => s.write(goaway));
			}),
		);
		expect(await faultOfCall(ask(channel(address)))).toMatchObject({ code: "UNAVAILABLE", outcome });
	}
});

it("leaves a connection on which nothing comes any more", async () => {
	const { address } = await serve((s) => {
		open(s);
		s.resume();
	});
	let dead = false;
	const relay = await listen(
		net.createServer((s) => {
			const to = net.connect(Number(address.split(":")[1]));
			closers.push(() => void to.destroy());
			to.on("error", () => {});
			s.on("data", (b) => void (dead || to.write(b)));
			to.on("data", (b) => {
				if (!dead) s.write(b);
				dead ||= b.includes("application/grpc") || b.length > 60;
			});
		}),
	);
	const c = channel(relay, { pings: { every: 10, within: 50 } });
	const e = await faultOfCall(ask(c));
	expect(e).toMatchObject({ code: "UNAVAILABLE", outcome: "unknown" });
	expect(e.message).toContain("no answer to a ping");
});

it("keeps a connection whose pings are answered", async () => {
	let pings = 0;
	const held: http2.ServerHttp2Stream[] = [];
	const { address, sessions } = await serve((s) => {
		held.push(s);
		open(s);
		s.resume();
		sessions[0]!.on("ping", () => {
			if (++pings === 10) s.end(message("ok"));
		});
	});
	expect(await ask(channel(address, { pings: { every: 5, within: 10_000 } }))).toBe("ok");
	expect(pings).toBeGreaterThanOrEqual(10);
});

it("cancels at the server what is late or given up", async () => {
	const codes: Promise<number>[] = [];
	const { address } = await serve((s) => {
		open(s);
		s.resume();
		codes.push(once(s, "close").then(() => s.rstCode!));
	});
	const c = channel(address);
	expect(await faultOfCall(ask(c, "x", { timeout: 50 }))).toMatchObject({ code: "DEADLINE_EXCEEDED" });
	const abort = new AbortController();
	const given = faultOfCall(ask(c, "x", { signal: abort.signal }));
	while (codes.length < 2) await new Promise((r) => setImmediate(r));
	const why = new Error("enough");
	abort.abort(why);
	expect(await given).toMatchObject({ code: "DEADLINE_EXCEEDED", outcome: "unknown", cause: why });
	expect(await faultOfCall(ask(c, "x", { signal: AbortSignal.abort(why) }))).toMatchObject({ cause: why });
	const reading = (async () => {
		for await (const _ of c.read(echo, Buffer.from("x"), { timeout: 50 }));
	})();
	expect(await faultOfCall(reading)).toMatchObject({ code: "DEADLINE_EXCEEDED" });
	for (const code of await Promise.all(codes.slice(0, 2))) expect(code).toBe(http2.constants.NGHTTP2_CANCEL);
});

it("says when a stream is full, and when it is not any more", async () => {
	let arrived = (_: http2.ServerHttp2Stream): void => {};
	const taken = new Promise<http2.ServerHttp2Stream>((resolve) => {
		arrived = resolve;
	});
	const { address } = await serve((s) => {
		open(s);
		arrived(s); // and reads nothing
	});
	let drained = (): void => {};
	const empty = new Promise<void>((resolve) => {
		drained = resolve;
	});
	const s = channel(address).stream("/test/Stream", { frame: () => {}, drained: () => drained(), end: () => {} });
	const token = "x".repeat(100_000);
	let n = 0;
	while (!s.full) {
		s.write({ frame: { $case: "auth", value: { token } } });
		n++;
	}
	expect(n).toBeLessThan(20);
	(await taken).resume();
	await empty;
	expect(s.full).toBe(false);
});

it("ends a stream whose frame cannot be read", async () => {
	const { address } = await serve((s) => {
		open(s);
		s.write(message(Buffer.from([0x0a, 0xff])));
	});
	expect(await streamEnd(channel(address))).toMatchObject({ code: "INTERNAL" });
});

it("takes another connection for calls that the server does not allow on one, and drops it later", async () => {
	const held: http2.ServerHttp2Stream[] = [];
	const { address, sessions } = await serve(
		(s) => {
			open(s);
			s.resume();
			held.push(s);
		},
		{ maxConcurrentStreams: 2 },
	);
	const c = channel(address);
	const first = ask(c);
	while (held.length < 1) await new Promise((r) => setImmediate(r));
	const rest = [ask(c), ask(c), ask(c)];
	while (held.length < 4) await new Promise((r) => setImmediate(r));
	expect(sessions.length).toBe(2);
	for (const s of held) s.end(message("ok"));
	await Promise.all([first, ...rest]);
	while (!sessions.some((s) => s.destroyed)) await new Promise((r) => setImmediate(r));
});

it("has a connection of its own for streams, and leaves nothing behind", async () => {
	const { address, sessions } = await serve((s, h) => {
		open(s);
		s.resume();
		if (h[":path"] === "/test/Echo") s.end(message("ok"));
		else s.write(framed(ServerFrame, ServerFrame.fromPartial({})));
	});
	const sockets = (): number => process.getActiveResourcesInfo().filter((r) => r === "TCPSocketWrap").length;
	const become = async (n: number): Promise<void> => {
		while (sockets() !== n) await new Promise((r) => setImmediate(r));
	};
	await become(0);
	const c = channel(address);
	await ask(c);
	// The server's side alone holds the process while no call is open.
	await become(1);
	let over = (_: Fault | undefined): void => {};
	const ended = new Promise<Fault | undefined>((resolve) => {
		over = resolve;
	});
	const s = await new Promise<{ cancel(): void }>((resolve) => {
		const s = c.stream("/test/Stream", { frame: () => resolve(s), drained: () => {}, end: (f) => over(f) });
	});
	expect(sessions.length).toBe(2);
	await become(3);
	c.close();
	s.cancel();
	await ended;
	while (!sessions.every((x) => x.destroyed)) await new Promise((r) => setImmediate(r));
	await become(0);
});

it("refuses a namespace or a token that no header can carry", async () => {
	const { address } = await serve(answer());
	expect(await faultOfCall(ask(channel(address, { namespace: "ä" })))).toMatchObject({
		code: "INVALID_ARGUMENT",
		field: "namespace",
	});
	expect(await streamEnd(channel(address, { token: () => "a\nb" }))).toMatchObject({ field: "token" });
});
