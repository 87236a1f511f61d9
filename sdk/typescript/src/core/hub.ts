// What all streams and calls of a client share: where the servers are, the token, and the log.
import type { Fault } from "../errors.js";
import type { Welcome } from "../gen/millrace/v1/stream.js";
import { type Endpoint, Router } from "./router.js";
import { GrpcChannel, type TlsOptions } from "./transport.js";

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
}

export class Hub {
	readonly namespace: string;
	readonly logger: Logger;
	readonly router: Router;
	readonly tls: TlsOptions | undefined;
	readonly plain: (address: string) => boolean;
	token: string;
	/** Names, modulo their number, the partition of tasks that say none. It changes with each frame of creates, so that frames stay large. */
	turn = Math.floor(Math.random() * 4096);
	#toldAt = 0;
	#onToken = new Set<() => void>();

	constructor(o: HubOptions) {
		this.namespace = o.namespace;
		this.logger = o.logger;
		this.token = o.token;
		this.tls = o.tls;
		this.plain = o.plain;
		this.router = new Router({
			addresses: o.addresses,
			namespace: o.namespace,
			connect: (address) =>
				new GrpcChannel({ address, token: () => this.token, namespace: this.namespace, tls: this.tls }),
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
		this.router.close();
	}
}
