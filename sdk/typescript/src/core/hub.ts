// What all streams and calls of a client share: where the server is, the token, and the log.
import type { Fault } from "../errors.js";
import type { Welcome } from "../gen/millrace/v1/stream.js";
import { type Channel, GrpcChannel, type TlsOptions } from "./transport.js";

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
	logger: Logger;
}

export class Hub {
	readonly namespace: string;
	readonly logger: Logger;
	token: string;
	/** No server has let a stream in since the last one broke. */
	unreached = false;
	#addresses: string[];
	#current: string;
	#channel: Channel | undefined;
	#waits: Channel | undefined;
	readonly #tls: TlsOptions | undefined;
	#toldAt = 0;
	#onToken = new Set<() => void>();

	constructor(o: HubOptions) {
		this.namespace = o.namespace;
		this.logger = o.logger;
		this.token = o.token;
		this.#addresses = [...o.addresses];
		this.#current = o.addresses[0]!;
		this.#tls = o.tls;
	}

	/** Of the node that is spoken to now. */
	get address(): string {
		return this.#current;
	}

	get tls(): TlsOptions | undefined {
		return this.#tls;
	}

	#open(): Channel {
		return new GrpcChannel({
			address: this.#current,
			token: () => this.token,
			namespace: this.namespace,
			tls: this.#tls,
		});
	}

	/** The channel to the node that is spoken to now. */
	channel(): Channel {
		this.#channel ??= this.#open();
		return this.#channel;
	}

	/** A channel of its own for calls that wait: a connection has at most 1,000 calls. */
	waiting(): Channel {
		this.#waits ??= this.#open();
		return this.#waits;
	}

	#go(address: string): void {
		if (address === this.#current) return;
		this.#current = address;
		this.#channel?.close();
		this.#waits?.close();
		this.#channel = this.#waits = undefined;
	}

	/** Goes to the node that an error named as the leader. A client that speaks TLS does so there too. */
	follow(leader: string): void {
		if (!this.#addresses.includes(leader)) this.#addresses.push(leader);
		this.#go(leader);
	}

	/** The node was not reached: the next one is tried. */
	missed(): void {
		this.unreached = true;
		const i = this.#addresses.indexOf(this.#current);
		this.#go(this.#addresses[(i + 1) % this.#addresses.length]!);
	}

	nodesAre(nodes: string[]): void {
		for (const n of nodes) if (!this.#addresses.includes(n)) this.#addresses.push(n);
	}

	welcomed(w: Welcome): void {
		this.nodesAre(w.nodes);
		this.#toldAt = 0;
		this.unreached = false;
	}

	/** Says once a minute that the server is not reached. */
	troubled(fault: Fault, tries: number): void {
		const now = Date.now();
		if (tries < 3 || now - this.#toldAt < 60_000) return;
		this.#toldAt = now;
		this.logger.warn(
			`millrace: the server ${this.#current} is not reached; the client goes on trying: ${fault.message ?? fault.code}`,
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
		this.#channel?.close();
		this.#waits?.close();
		this.#channel = this.#waits = undefined;
	}
}
