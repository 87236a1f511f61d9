import type { Client } from "./client.js";
import { MillraceError, type Span } from "./errors.js";
import type { Assignment } from "./gen/millrace/v1/task.js";
import type { Reporter } from "./report.js";
import { Changes, Tx } from "./tx.js";

/** One attempt at a task, as its handler sees it. */
export class Task {
	readonly id: string;
	readonly queue: string;
	readonly kind: string;
	/** Number of this delivery, from 1. */
	readonly attempt: number;
	/** Failures before it. */
	readonly failures: number;
	readonly maxAttempts: number;
	readonly priority: number;
	readonly tag: string;
	readonly headers: Readonly<Record<string, string>>;
	/** The arguments as bytes, and how to read them. */
	readonly payload: Buffer;
	readonly contentType: string;
	readonly createdAt: Date;
	/** The fencing token of this attempt: rising, fit to fence writes to other systems. */
	readonly token: bigint;
	/** When the run ends at the latest, where the task has such a bound. */
	readonly deadline: Date | undefined;
	/** What is applied with the completion of the task, in the same entry of the log, or not at all. */
	readonly fx: Changes;

	/** @internal */
	controller: AbortController | undefined;
	/** @internal */
	ending: Error | undefined;
	/** @internal */
	refused: ((e: MillraceError) => void | Promise<void>) | undefined;
	/** @internal What the handler returned, for a completion with other effects. */
	result: unknown;
	/** @internal */
	reporter: Reporter | undefined;
	/** @internal */
	saved: Buffer | undefined;
	readonly #client: Client | undefined;
	readonly #stopping: Promise<void>;
	#isStopping = false;
	#stop!: () => void;

	/** @internal */
	constructor(client: Client | undefined, a: Assignment) {
		this.#client = client;
		this.fx = new Changes(client?.hub, a.id);
		this.id = a.id;
		this.queue = a.queue;
		this.kind = a.kind;
		this.attempt = a.attempt;
		this.failures = a.failures;
		this.maxAttempts = a.maxAttempts;
		this.priority = a.priority;
		this.tag = a.tag;
		this.headers = Object.fromEntries(a.headers.map((h) => [h.name, h.value]));
		this.payload = a.payload;
		this.contentType = a.contentType;
		this.createdAt = new Date(Number(a.createdMs));
		this.token = a.token;
		this.deadline = a.maxRunMs > 0n ? new Date(Date.now() + Number(a.maxRunMs)) : undefined;
		if (a.checkpoint.length > 0) this.saved = a.checkpoint;
		this.#stopping = new Promise((resolve) => {
			this.#stop = resolve;
		});
	}

	/** Aborted when the task is cancelled, its lease is lost, or its worker gives up; the reason says which. */
	get signal(): AbortSignal {
		this.controller ??= new AbortController();
		if (this.ending && !this.controller.signal.aborted) this.controller.abort(this.ending);
		return this.controller.signal;
	}

	/** Resolves when the worker begins to drain: a long handler may save how far it is, and end. */
	get stopping(): Promise<void> {
		return this.#stopping;
	}

	get isStopping(): boolean {
		return this.#isStopping;
	}

	/** @internal */
	tellStopping(): void {
		this.#isStopping = true;
		this.#stop();
	}

	/** @internal */
	end(why: Error): void {
		if (this.ending) return;
		this.ending = why;
		this.controller?.abort(why);
	}

	/**
	 * Called when the effects were refused, while the lease goes on. f may change t.fx, after t.fx.reset() for instance: the task then
	 * completes again with the same result. What f throws ends the attempt as if the handler had thrown it.
	 */
	onRefused(f: (e: MillraceError) => void | Promise<void>): void {
		this.refused = f;
	}

	/** A commit in mid-task, which is refused once the lease is lost. */
	tx(): Tx {
		if (!this.#client)
			throw new MillraceError({
				code: "UNAVAILABLE",
				message: "there is no server in a test of a handler",
				outcome: "refused",
			});
		return new Tx(this.#client, { task: this.id, token: this.token });
	}

	/** Tells how far the work is: percent from 0 to 100 and a text of up to 256 bytes. Of several within a second the last one is told. */
	progress(percent: number, message = ""): void {
		this.reporter?.progress(percent, message);
	}

	/** Adds a line to the task's log. Lines are sent once a second. */
	log(line: string): void {
		this.reporter?.log(line);
	}

	/** What the attempts before saved last, or this one did. */
	get checkpoint(): Buffer | undefined {
		return this.saved;
	}

	/** Saves how far the work is, at most 64 KiB, for the attempts after this one. Resolves when it is durable. */
	async saveCheckpoint(bytes: Uint8Array | string, o: { timeout?: Span } = {}): Promise<void> {
		this.saved = Buffer.from(bytes as Uint8Array);
		await this.reporter?.checkpoint(this.saved, o.timeout);
	}
}
