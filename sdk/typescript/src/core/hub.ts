// What all streams and calls of a client share: where the servers are, the token, and the log.
import type { Fault } from "../errors.js";
import type { Welcome } from "../gen/millrace/v1/stream.js";
import { RestChannel } from "./rest.js";
import { type Endpoint, Router } from "./router.js";
import { GrpcChannel, type TlsOptions, version } from "./transport.js";
import { type Transport, Ways } from "./ways.js";
import { Web } from "./web.js";

/** Takes what the client has to say. The console fits. */
export interface Logger {
	warn(message: string): void;
	error(message: string): void;
}

export interface HubOptions {
	addresses: string[];
	token: string;
	namespace: string;
	tls: TlsOptions | undefined;
	/** Whether the client may speak plain text to an address that a server names. */
	plain(address: string): boolean;
	logger: Logger;
	transport: Transport;
	/** host:port of each place where REST may be. */
	rest: string[];
}

export class Hub {
	readonly namespace: string;
	readonly logger: Logger;
	readonly router: Router;
	readonly ways: Ways;
	readonly tls: TlsOptions | undefined;
	readonly plain: (address: string) => boolean;
	token: string;
	/** Names, modulo their number, the partition of tasks that say none. It changes with each frame of creates, so that frames stay large. */
	turn = Math.floor(Math.random() * 4096);
	/** For each queue of which it is known, whether all its tasks are in one partition. */
	readonly pins = new Map<string, boolean>();
	#toldAt = 0;
	#onToken = new Set<() => void>();

	constructor(o: HubOptions) {
		this.namespace = o.namespace;
		this.logger = o.logger;
		this.token = o.token;
		this.tls = o.tls;
		this.plain = o.plain;
		const grpc = (address: string): GrpcChannel =>
			new GrpcChannel({ address, token: () => this.token, namespace: this.namespace, tls: this.tls });
		this.ways = new Ways({
			mode: o.transport,
			addresses: () => this.router.nodes,
			grpc,
			rest: () => {
				const secure = (host: string): boolean => this.tls !== undefined || !this.plain(host);
				const web = new Web({ hosts: o.rest, secure, tls: this.tls });
				const agent = `millrace-typescript/${version}`;
				return new RestChannel({ web, agent, token: () => this.token, namespace: this.namespace });
			},
			logger: o.logger,
		});
		this.router = new Router({
			addresses: o.addresses,
			namespace: o.namespace,
			connect: (address) => this.ways.connect(address),
			// Over REST each request goes where its leader is, and is as slow as it is.
			knock: (address) => (this.ways.rest ? undefined : grpc(address)),
			allows: (address) => /^.+:\d+$/.test(address) && (this.tls !== undefined || this.plain(address)),
			warn: (message) => this.logger.warn(message),
		});
	}

	/** How many partitions the namespace has; 0: not known yet. */
	get partitions(): number {
		return this.router.partitions;
	}

	welcomed(e: Endpoint, partition: number, w: Welcome): void {
		this.router.welcomed(e, partition, w);
		this.#toldAt = 0;
	}

	/** Says once a minute that the server is not reached. */
	troubled(address: string, fault: Fault, tries: number): void {
		const now = Date.now();
		if (tries < 3 || now - this.#toldAt < 60_000) return;
		this.#toldAt = now;
		this.logger.warn(
			`millrace: the server ${address} is not reached; the client goes on trying: ${fault.message ?? fault.code}`,
		);
	}

	/** Has f hear of each new token, until the function that is returned is called. */
	onToken(f: () => void): () => void {
		this.#onToken.add(f);
		return () => this.#onToken.delete(f);
	}

	tokenChanged(): void {
		for (const f of this.#onToken) f();
	}

	close(): void {
		this.ways.close();
		this.router.close();
	}
}
