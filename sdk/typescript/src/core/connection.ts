// One HTTP/2 connection to a server: how it is made, looked after and ended.
import * as http2 from "node:http2";
import * as net from "node:net";
import * as tls from "node:tls";

/** How TLS is spoken. Certificates and keys are PEM. */
export interface TlsOptions {
	ca?: Buffer | string;
	cert?: Buffer | string;
	key?: Buffer | string;
	/** The name that the server's certificate must have; default: the host of the address. */
	serverName?: string;
}

export interface ConnectionOptions {
	/** host:port */
	address: string;
	/** undefined: clear text. */
	tls: TlsOptions | undefined;
	/** Milliseconds between pings while calls are open, and how long nothing at all may come after one. */
	pings?: { every: number; within: number } | undefined;
	/** Milliseconds until the connection must be made. */
	connectWithin?: number | undefined;
}

/** Bytes that may be under way to this side, for one call and for all. The largest payload fits several times. */
const streamWindow = 4 << 20;
const sessionWindow = 16 << 20;

/** A connection. It is dialed at once; calls may begin before it is made. It holds the process only while calls are open. */
export class Connection {
	readonly #session: http2.ClientHttp2Session;
	readonly #socket: net.Socket;
	readonly #idle: () => void;
	#calls = 0;
	/** A byte may have left: what becomes of a call then is the server's matter. */
	reached = false;
	/** TLS was agreed on without HTTP/2. */
	#without = false;
	/** Why it ended; empty while it lives, and when it was closed in order. */
	why = "";
	/** A server that goes away answers calls up to this id. */
	lastCall = Number.POSITIVE_INFINITY;
	/** The settings of the other side are known, which makes it one that speaks HTTP/2. */
	#settled = false;

	/** idle is called each time when no call is open any more. */
	constructor(o: ConnectionOptions, idle: () => void) {
		this.#idle = idle;
		const { hostname, port } = new URL(`http://${o.address}`);
		const host = hostname.replace(/^\[(.*)\]$/, "$1");
		const to = { host, port: Number(port || 80), noDelay: true };
		this.#socket = o.tls ? this.#dialTls(to, o.tls) : net.connect(to);
		this.#socket.once(o.tls ? "secureConnect" : "connect", () => {
			this.reached = !this.#without;
		});
		// Streams hear of an error of the connection before the session does.
		this.#socket.on("error", (e) => {
			this.why ||= messageOf(e);
		});
		this.#session = http2.connect(`${o.tls ? "https" : "http"}://${o.address}`, {
			createConnection: () => this.#socket,
			settings: { enablePush: false, initialWindowSize: streamWindow },
			// In MB, counted with what waits to be sent: new calls would be refused beyond it. Windows bound that already.
			maxSessionMemory: 1024,
		});
		this.#session.unref();
		const late = setTimeout(
			() => this.#fail(`no connection within ${o.connectWithin ?? 10_000} ms`),
			o.connectWithin ?? 10_000,
		);
		late.unref();
		let pings: NodeJS.Timeout | undefined;
		this.#session.on("connect", () => {
			clearTimeout(late);
			if (this.#session.destroyed) return;
			this.#session.setLocalWindowSize(sessionWindow);
			pings = this.#ping(o.pings?.every ?? 10_000, o.pings?.within ?? 20_000);
		});
		this.#session.once("remoteSettings", () => {
			this.#settled = true;
		});
		this.#session.on("goaway", (code, last) => {
			this.lastCall = last;
			if (code !== http2.constants.NGHTTP2_NO_ERROR) this.why ||= `the server goes away with code ${code}`;
		});
		this.#session.on("error", (e) => {
			this.why ||= messageOf(e);
		});
		this.#session.on("close", () => {
			clearTimeout(late);
			clearInterval(pings);
		});
	}

	#dialTls(to: { host: string; port: number }, o: TlsOptions): net.Socket {
		// TLS asks for names, not for IP addresses.
		const name = o.serverName ?? (net.isIP(to.host) ? undefined : to.host);
		const socket = tls.connect({
			...to,
			ALPNProtocols: ["h2"],
			...(o.ca && { ca: o.ca }),
			...(o.cert && { cert: o.cert }),
			...(o.key && { key: o.key }),
			...(name && { servername: name }),
		});
		socket.setNoDelay(true);
		socket.once("secureConnect", () => {
			if (socket.alpnProtocol === "h2") return;
			this.#without = true;
			this.#fail("the server does not offer HTTP/2");
		});
		return socket;
	}

	/** Of a connection that has ended: the other side does not speak HTTP/2. Bytes came, and they were no settings. */
	get foreign(): boolean {
		return this.#without || (this.reached && !this.#settled && this.#socket.bytesRead > 0);
	}

	#fail(why: string): void {
		this.why ||= why;
		this.#session.destroy(new Error(why));
	}

	/** Pings while calls are open. Any byte that comes is as good as the answer. */
	#ping(every: number, within: number): NodeJS.Timeout {
		let asked = 0;
		let heard = 0;
		return setInterval(() => {
			if (this.#calls === 0 || this.#session.destroyed) {
				asked = 0;
				return;
			}
			const now = performance.now();
			if (asked > 0 && this.#socket.bytesRead === heard) {
				// Ticks come a little early or late: the nearest one counts.
				if (now - asked > within - every / 2) this.#fail(`no answer to a ping within ${within} ms`);
				return;
			}
			asked = now;
			heard = this.#socket.bytesRead;
			this.#session.ping(() => {});
		}, every).unref();
	}

	/** Calls may begin on it. */
	get usable(): boolean {
		return !this.#session.closed && !this.#session.destroyed;
	}

	/** It has as many calls as the server allows. */
	get full(): boolean {
		return this.#calls >= (this.#settled ? (this.#session.remoteSettings.maxConcurrentStreams ?? 1000) : 1000);
	}

	get calls(): number {
		return this.#calls;
	}

	/** Begins a call. It throws what the headers deserve. */
	call(headers: http2.OutgoingHttpHeaders): http2.ClientHttp2Stream {
		const stream = this.#session.request(headers);
		if (this.#calls++ === 0) this.#session.ref();
		stream.once("close", () => {
			if (--this.#calls > 0) return;
			this.#session.unref();
			this.#idle();
		});
		return stream;
	}

	/** Takes no more calls. It ends with those that are open. */
	close(): void {
		if (this.#calls === 0) this.#session.destroy();
		else this.#session.close();
	}
}

function messageOf(e: Error): string {
	// Several addresses of one name were tried.
	if (e instanceof AggregateError && !e.message) return e.errors.map((x: Error) => x.message).join(", ");
	return e.message;
}
