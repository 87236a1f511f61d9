// What stands between a client and a server over HTTP/1.1: a proxy of a real server, and a server that a test plays.
import * as http from "node:http";
import * as net from "node:net";

const listen = async (server: net.Server): Promise<string> => {
	await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
	return `127.0.0.1:${(server.address() as net.AddressInfo).port}`;
};

const portOf = (address: string): number => Number(address.slice(address.lastIndexOf(":") + 1));

/** A proxy that speaks HTTP/1.1, and lets gRPC through while grpc is set. */
export class HttpProxy {
	grpc = false;
	/** The paths of requests. */
	readonly seen: string[] = [];
	/** Whether the answer to a request is lost. */
	lose: (path: string) => boolean = () => false;
	/** Connections of gRPC that were refused. */
	greeted = 0;
	address = "";
	readonly #sockets = new Set<net.Socket>();
	readonly #tunnels = new Set<net.Socket>();
	readonly #front: net.Server;
	readonly #back: http.Server;

	private constructor(
		readonly rest: string,
		readonly stream: string,
	) {
		this.#back = http.createServer((q, r) => this.#request(q, r));
		this.#front = net.createServer((s) => {
			this.#keep(s);
			s.once("data", (first) => this.#begin(s, first));
		});
	}

	static async start(rest: string, stream: string): Promise<HttpProxy> {
		const p = new HttpProxy(rest, stream);
		await listen(p.#back);
		p.address = await listen(p.#front);
		return p;
	}

	#keep(s: net.Socket): void {
		this.#sockets.add(s);
		s.on("error", () => {});
		s.on("close", () => this.#sockets.delete(s));
	}

	#begin(s: net.Socket, first: Buffer | string): void {
		const h2 = first.toString("latin1").startsWith("PRI");
		if (h2 && !this.grpc) {
			this.greeted++;
			s.end("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
			return;
		}
		const up = net.connect(h2 ? portOf(this.stream) : (this.#back.address() as net.AddressInfo).port, "127.0.0.1");
		this.#keep(up);
		if (h2) this.#tunnels.add(s).add(up);
		up.write(first);
		s.pipe(up).pipe(s);
		s.on("close", () => up.destroy());
		up.on("close", () => s.destroy());
	}

	#request(q: http.IncomingMessage, r: http.ServerResponse): void {
		this.seen.push(q.url!);
		const to = { host: "127.0.0.1", port: portOf(this.rest), method: q.method!, path: q.url!, headers: q.headers };
		const up = http.request(to, (a) => {
			if (this.lose(q.url!)) {
				a.resume();
				a.on("end", () => r.destroy());
				return;
			}
			r.writeHead(a.statusCode!, a.headers);
			a.pipe(r);
		});
		up.on("error", () => r.destroy());
		r.on("close", () => up.destroy());
		q.pipe(up);
	}

	/** Lets gRPC through no more, and ends what goes through. */
	cut(): void {
		this.grpc = false;
		for (const s of this.#tunnels) s.destroy();
	}

	close(): void {
		this.#front.close();
		this.#back.close();
		for (const s of this.#sockets) s.destroy();
		this.#back.closeAllConnections();
	}
}

/** One request to a server that a test plays. */
export interface Asked {
	method: string;
	path: string;
	headers: http.IncomingHttpHeaders;
	body: string;
}

export type Play = (q: Asked) => { status: number; body?: unknown; headers?: Record<string, string> };

/** A server of REST whose answers a test makes, by the beginning of the path. */
export class Canned {
	readonly answers: Record<string, Play> = {
		"/v1/status": () => ({ status: 200, body: { version: "x", durability: "fsync" } }),
		"/v1/namespace": () => ({ status: 200, body: { partitions: [{}] } }),
	};
	readonly seen: Asked[] = [];
	address = "";
	readonly #server = http.createServer((q, r) => {
		const parts: Buffer[] = [];
		q.on("data", (d: Buffer) => parts.push(d));
		q.on("end", () => {
			const asked = {
				method: q.method!,
				path: q.url!,
				headers: q.headers,
				body: Buffer.concat(parts).toString(),
			};
			this.seen.push(asked);
			const play = Object.entries(this.answers).find(([path]) => asked.path.startsWith(path))?.[1];
			const { status, body, headers } = play?.(asked) ?? { status: 404, body: "nothing here", headers: {} };
			const json = body !== undefined && typeof body !== "string";
			r.writeHead(status, { ...(json && { "content-type": "application/json" }), ...headers });
			r.end(json ? JSON.stringify(body) : body);
		});
	});

	static async start(): Promise<Canned> {
		const c = new Canned();
		c.address = await listen(c.#server);
		return c;
	}

	close(): void {
		this.#server.close();
		this.#server.closeAllConnections();
	}
}
